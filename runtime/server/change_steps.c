/* A plan that comes into force in steps.
 *
 *   begin -> [prepare beside the loop -> the router's step] for each step -> over
 *
 * A step is prepared when the workers that ended with the one before are gone: that is when MIG
 * instances are free. If a step cannot be prepared, or its workers do not become ready, the steps
 * that follow lead back from what runs by then. The way back is tried several times; if it fails
 * for good, what runs stays in force, and the error says so. */
#include "runtime/server/deployment_int.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WHY_BYTES = 512, BACK_TRIES = 5 };
static const uint64_t first_pause_ns = 100000000u; /* doubled with each try */

struct weft_staged {
    const weft_serve_control *control;
    weft_router *router;
    weft_loop *loop;
    weft_offload *offload;
    weft_arena *plan; /* has what was begun */
    uint32_t k, n;    /* the step that is to come, or under way; steps */
    uint32_t done;    /* the router's count, when the step began */
    bool back;
    uint32_t tries; /* of the way back */
    bool stuck;     /* it has failed */
    weft_timer again;
    /* Of the step that is being prepared. */
    weft_job job;
    bool stopped; /* the server ends: nothing begins any more */
    weft_arena *arena;
    weft_diag *diag;
    weft_err err;
    const weft_serve_slice *slice;
    uint32_t n_slice;
};

static void prepare(weft_staged *s);

static void explain(const weft_diag *diag, weft_err err, char *out, size_t size)
{
    const weft_message *m = NULL;
    for (size_t i = 0; diag && i < weft_diag_count(diag) && !m; i++)
        if (weft_diag_at(diag, i)->severity == WEFT_SEV_ERROR)
            m = weft_diag_at(diag, i);
    snprintf(out, size, "%s%s%s", m && m->item ? m->item : "", m && m->item ? ": " : "",
             m ? m->text : weft_err_text(err));
}

/* What the step did to the machine. */
static void log_notes(const weft_diag *diag)
{
    for (size_t i = 0; diag && i < weft_diag_count(diag); i++) {
        const weft_message *m = weft_diag_at(diag, i);
        WEFT_LOG(m->severity == WEFT_SEV_NOTE ? WEFT_LOG_INFO : WEFT_LOG_WARN, "device_changed",
                 {.key = "device", .text = m->item ? m->item : ""},
                 {.key = "what", .text = m->text});
    }
}

static void drop_job(weft_staged *s)
{
    weft_arena_destroy(s->arena);
    weft_diag_destroy(s->diag);
    s->arena = NULL;
    s->diag = NULL;
}

/* -- The way back ----------------------------------------------------------------------------- */

static void give_up(weft_staged *s, const char *why)
{
    char text[WHY_BYTES + 64];
    snprintf(text, sizeof text, "the way back fails, what runs stays: %s", why);
    WEFT_LOG(WEFT_LOG_ERROR, "change_stuck", {.key = "why", .text = why});
    s->stuck = true;
    weft_router__end_steps(s->router, text);
}

static void begin_back(weft_staged *s, const char *why)
{
    s->back = true;
    if (s->tries >= BACK_TRIES) {
        give_up(s, why);
        return;
    }
    uint64_t pause_ns = s->tries ? first_pause_ns << s->tries : 0;
    s->tries++;
    weft_timer__set(s->loop, &s->again, weft_clock__now_ns() + pause_ns);
}

static void try_back(void *user)
{
    weft_staged *s = user;
    weft_err err = s->control->steps->back(s->control->user, &s->n);
    s->k = 0;
    if (err == WEFT_ERR_OK)
        prepare(s);
    else
        begin_back(s, weft_err_text(err));
}

/* -- A step ----------------------------------------------------------------------------------- */

static void fail(weft_staged *s, const char *why)
{
    weft_router__turn_back(s->router, why);
    begin_back(s, why);
}

static void run_prepare(weft_job *job)
{
    weft_staged *s = (weft_staged *)((char *)job - offsetof(weft_staged, job));
    s->err = s->control->steps->prepare(s->control->user, s->k, s->arena, s->diag, &s->slice,
                                        &s->n_slice);
}

static void done_prepare(weft_job *job)
{
    weft_staged *s = (weft_staged *)((char *)job - offsetof(weft_staged, job));
    char why[WHY_BYTES] = "";
    weft_err err = s->err;
    if (s->stopped)
        return;
    log_notes(s->diag);
    bool cancelled = weft_router__change_status(s->router).is_back && !s->back;
    if (err == WEFT_ERR_OK && !cancelled) {
        weft_diag_clear(s->diag);
        err = weft_router__begin_step(s->router, s->slice, s->n_slice, s->k + 1 == s->n, s->arena,
                                      s->diag);
        s->arena = err == WEFT_ERR_OK ? NULL : s->arena;
    }
    if (err != WEFT_ERR_OK)
        explain(s->diag, err, why, sizeof why);
    s->done = weft_router__change_status(s->router).n_step;
    drop_job(s);
    if (err != WEFT_ERR_OK || cancelled)
        fail(s, why);
}

static void prepare(weft_staged *s)
{
    s->arena = weft_arena_create(0);
    s->diag = weft_diag_create();
    if (!s->arena || !s->diag) {
        drop_job(s);
        fail(s, weft_err_text(WEFT_ERR_NOMEM));
        return;
    }
    s->job = (weft_job){.run = run_prepare, .done = done_prepare};
    weft_offload__submit(s->offload, &s->job);
}

void weft_staged__go_on(weft_staged *s)
{
    uint32_t done = weft_router__change_status(s->router).n_step;
    if (done == s->done) { /* it was undone */
        begin_back(s, "its workers do not become ready");
        return;
    }
    s->control->steps->reached(s->control->user, s->k);
    s->done = done; /* the next one may not even begin */
    s->k++;
    prepare(s);
}

/* -- Life ------------------------------------------------------------------------------------- */

weft_err weft_staged__create(const weft_serve_control *control, weft_router *router,
                             weft_loop *loop, weft_offload *offload, weft_staged **out)
{
    weft_staged *s = calloc(1, sizeof *s);
    if (!s)
        return WEFT_ERR_NOMEM;
    *s = (weft_staged){.control = control, .router = router, .loop = loop, .offload = offload};
    s->again = (weft_timer){.fn = try_back, .user = s};
    *out = s;
    return WEFT_ERR_OK;
}

void weft_staged__stop(weft_staged *s)
{
    if (!s)
        return;
    s->stopped = true;
    weft_timer__cancel(s->loop, &s->again);
}

void weft_staged__destroy(weft_staged *s)
{
    if (!s)
        return;
    drop_job(s);
    weft_arena_destroy(s->plan);
    free(s);
}

weft_err weft_staged__begin(weft_staged *s, const weft_plan *plan, weft_arena *arena,
                            weft_diag *diag)
{
    const weft_serve_slice *last;
    uint32_t n;
    WEFT_TRY(s->control->steps->plan(s->control->user, plan, arena, diag, &last, &n, &s->n));
    WEFT_TRY(weft_router__begin_steps(s->router, last, n, diag));
    weft_arena_destroy(s->plan);
    s->plan = arena;
    s->k = s->done = s->tries = 0;
    s->back = s->stuck = false;
    prepare(s);
    return WEFT_ERR_OK;
}

/* What runs, as JSON; NULL: out of memory. */
static char *describe(const weft_staged *s)
{
    weft_plan plan;
    char *text = NULL;
    weft_arena *arena = weft_arena_create(0);
    const weft_demands none = {0};
    if (!arena)
        return NULL;
    if (s->control->steps->tell(s->control->user, arena, &plan) != WEFT_ERR_OK ||
        weft_plan_to_json(&plan, &none, &text) != WEFT_ERR_OK)
        text = NULL;
    weft_arena_destroy(arena);
    return text;
}

char *weft_staged__end(weft_staged *s)
{
    if (weft_router__change_status(s->router).n_step != s->done)
        s->control->steps->reached(s->control->user, s->k);
    s->done = weft_router__change_status(s->router).n_step;
    return s->stuck ? describe(s) : NULL;
}
