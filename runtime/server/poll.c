/* Looks at a repository of models that are compiled, again and again, and has the deployment load
 * what is new or has changed and unload what is gone. */
#include "runtime/server/deployment_int.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { FOUND_MAX = 32 }; /* in one look: fewer than operations may wait */

struct weft_poll {
    const weft_serve_options *options;
    weft_deployment *deployment;
    weft_loop *loop;
    weft_offload *offload;
    weft_timer timer;
    weft_job job;
    /* Of the look under way. */
    struct {
        char *model;
        bool gone;
    } found[FOUND_MAX];
    uint32_t n_found;
    weft_diag *diag;
    weft_err err;
};

static weft_poll *poll_of(weft_job *job)
{
    return (weft_poll *)((char *)job - offsetof(weft_poll, job));
}

static void clear(weft_poll *p)
{
    for (uint32_t i = 0; i < p->n_found; i++)
        free(p->found[i].model);
    p->n_found = 0;
    weft_diag_destroy(p->diag);
    p->diag = NULL;
}

static bool on_found(void *to, const char *model, bool gone)
{
    weft_poll *p = to;
    char *copy = p->n_found < FOUND_MAX ? strdup(model) : NULL;
    if (!copy)
        return false;
    p->found[p->n_found].model = copy;
    p->found[p->n_found++].gone = gone;
    return true;
}

static void run_look(weft_job *job)
{
    weft_poll *p = poll_of(job);
    const weft_serve_source *source = &p->options->source;
    p->diag = weft_diag_create();
    p->err = p->diag ? source->look(source->user, on_found, p, p->diag) : WEFT_ERR_NOMEM;
}

static void set_timer(weft_poll *p)
{
    (void)weft_timer__set(p->loop, &p->timer,
                          weft_clock__now_ns() + (uint64_t)(p->options->source.poll_s * 1e9));
}

static void done_look(weft_job *job)
{
    weft_poll *p = poll_of(job);
    if (p->err != WEFT_ERR_OK)
        WEFT_LOG(WEFT_LOG_ERROR, "repository_not_read",
                 {.key = "folder", .text = p->options->repository},
                 {.key = "why",
                  .text = weft_diag_count(p->diag) ? weft_diag_at(p->diag, 0)->text
                                                   : weft_err_text(p->err)});
    for (uint32_t i = 0; i < p->n_found; i++)
        if (p->found[i].gone)
            (void)weft_deployment__unload(p->deployment, NULL, p->found[i].model, NULL, NULL);
        else
            (void)weft_deployment__make(p->deployment, p->found[i].model, NULL, NULL);
    clear(p);
    set_timer(p);
}

static void on_timer(void *user)
{
    weft_poll *p = user;
    p->job = (weft_job){.run = run_look, .done = done_look};
    weft_offload__submit(p->offload, &p->job);
}

weft_err weft_poll__start(const weft_serve_options *options, weft_deployment *deployment,
                          weft_loop *loop, weft_poll **out)
{
    if (!options->source.make || !(options->source.poll_s > 0))
        return WEFT_ERR_OK;
    weft_poll *p = calloc(1, sizeof *p);
    if (!p)
        return WEFT_ERR_NOMEM;
    p->options = options;
    p->deployment = deployment;
    p->loop = loop;
    p->timer = (weft_timer){.fn = on_timer, .user = p};
    p->offload = weft_offload__create(loop, 0);
    if (!p->offload) {
        free(p);
        return WEFT_ERR_NOMEM;
    }
    set_timer(p);
    *out = p;
    return WEFT_ERR_OK;
}

void weft_poll__stop(weft_poll *p)
{
    if (!p)
        return;
    weft_timer__cancel(p->loop, &p->timer);
    weft_offload__destroy(p->offload);
    clear(p);
    free(p);
}
