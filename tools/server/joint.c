/* Measures joint programs against their models. Both get the same inputs, and the answers of the
 * joint program are compared with those of the models before anything is timed. */
#include "tools/server/joint.h"

#include "tools/common/tools.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS_MAX = 10000 };

typedef struct pair {
    const weft_bundle *bundle;
    const weft_bundle_program *joint;
    weft_session *session; /* of the joint program */
    weft_session **model;  /* of each part */
    weft_tensor *in, *out; /* of the joint program: the parts' tensors, one part after the other */
    weft_tensor *apart;    /* outputs of the models */
    weft_arena *arena;
    weft_diag *diag;
} pair;

static weft_err open_pair(pair *p, weft_engine *engine, int64_t batch, const weft_tool_dim *dim,
                          size_t n_dim)
{
    uint32_t at = 0;
    p->in = weft_arena_array(p->arena, (size_t)p->joint->n_input + 1, sizeof *p->in);
    p->out = weft_arena_array(p->arena, (size_t)p->joint->n_output + 1, sizeof *p->out);
    p->apart = weft_arena_array(p->arena, (size_t)p->joint->n_output + 1, sizeof *p->apart);
    p->model = weft_arena_array(p->arena, (size_t)p->joint->n_part + 1, sizeof *p->model);
    WEFT_TRY(weft_session_open(engine, p->joint->name, p->diag, &p->session));
    for (uint32_t i = 0; i < p->joint->n_part; i++) {
        const weft_bundle_program *model = &p->bundle->program[p->joint->part[i].program];
        WEFT_TRY(weft_session_open(engine, model->name, p->diag, &p->model[i]));
        WEFT_TRY(weft_tool_make_inputs(model, batch, dim, n_dim, p->arena, p->diag, &p->in[at]));
        at += model->n_input;
    }
    return WEFT_ERR_OK;
}

static void close_pair(pair *p)
{
    for (uint32_t i = 0; p->model && i < p->joint->n_part; i++)
        weft_session_close(p->model[i]);
    weft_session_close(p->session);
}

static weft_err run_apart(pair *p)
{
    uint32_t in = 0, out = 0;
    for (uint32_t i = 0; i < p->joint->n_part; i++) {
        const weft_bundle_part *part = &p->joint->part[i];
        WEFT_TRY(weft_session_run(p->model[i], &p->in[in], part->n_in, p->diag, &p->apart[out],
                                  part->n_out));
        in += part->n_in;
        out += part->n_out;
    }
    return WEFT_ERR_OK;
}

static weft_err run_joint(pair *p)
{
    return weft_session_run(p->session, p->in, p->joint->n_input, p->diag, p->out,
                            p->joint->n_output);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static weft_err time_pair(pair *p, double seconds, weft_joint_timing *out)
{
    double *apart = weft_arena_array(p->arena, RUNS_MAX, sizeof *apart);
    double *joint = weft_arena_array(p->arena, RUNS_MAX, sizeof *joint);
    size_t n = 0;
    WEFT_TRY(run_apart(p));
    WEFT_TRY(run_joint(p));
    for (uint32_t i = 0; i < p->joint->n_output; i++)
        out->difference = fmax(out->difference, weft_tool_difference(&p->apart[i], &p->out[i]));
    double start = weft_tool_now_ms();
    for (double now = start; n < RUNS_MAX && (n < 3 || now - start < seconds * 1e3); n++) {
        double begin = weft_tool_now_ms();
        WEFT_TRY(run_apart(p));
        double middle = weft_tool_now_ms();
        WEFT_TRY(run_joint(p));
        now = weft_tool_now_ms();
        apart[n] = middle - begin;
        joint[n] = now - middle;
    }
    qsort(apart, n, sizeof *apart, by_value);
    qsort(joint, n, sizeof *joint, by_value);
    out->apart_ms = apart[n / 2];
    out->joint_ms = joint[n / 2];
    out->n_runs = n;
    return WEFT_ERR_OK;
}

/* -- Nodes ------------------------------------------------------------------------------------ */

static double time_of(weft_session *session, const char *item)
{
    const weft_bundle_program *p = weft_session_program(session);
    uint32_t n = 0;
    const weft_launch_time *time = weft_session_times(session, &n);
    double us = 0;
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(p->launch[time[i].launch].item, item) == 0)
            us += time[i].time_us;
    return us;
}

enum { NODE_RUNS_MAX = 201 };

static void start_profile(pair *p)
{
    weft_session_profile(p->session, true);
    for (uint32_t i = 0; i < p->joint->n_part; i++)
        weft_session_profile(p->model[i], true);
}

/* Times the nodes. Medians are used because an interrupted run must not count. */
static weft_err time_nodes(pair *p, double seconds, weft_joint_node *node, size_t n_node)
{
    double *us = weft_arena_array(p->arena, 2 * n_node * NODE_RUNS_MAX, sizeof *us);
    double start = weft_tool_now_ms();
    size_t n = 0;
    while (n < NODE_RUNS_MAX && (n < 3 || weft_tool_now_ms() - start < seconds * 1e3)) {
        start_profile(p);
        WEFT_TRY(run_apart(p));
        WEFT_TRY(run_joint(p));
        for (size_t k = 0; k < n_node; k++) {
            double *apart = us + 2 * k * NODE_RUNS_MAX + n;
            for (uint32_t i = 0; i < p->joint->n_part; i++)
                *apart += time_of(p->model[i], node[k].item);
            apart[NODE_RUNS_MAX] = time_of(p->session, node[k].item);
        }
        n++;
    }
    for (size_t k = 0; k < n_node; k++) {
        double *apart = us + 2 * k * NODE_RUNS_MAX, *joint = apart + NODE_RUNS_MAX;
        qsort(apart, n, sizeof *apart, by_value);
        qsort(joint, n, sizeof *joint, by_value);
        node[k].apart_us = apart[n / 2];
        node[k].joint_us = joint[n / 2];
    }
    return WEFT_ERR_OK;
}

weft_err weft_tool_time_joint(weft_engine *engine, const weft_bundle_program *joint, int64_t batch,
                              const weft_tool_dim *dim, size_t n_dim, double seconds,
                              weft_diag *diag, weft_joint_node *node, size_t n_node,
                              weft_joint_timing *out)
{
    pair p = {.bundle = weft_engine_bundle(engine),
              .joint = joint,
              .arena = weft_arena_create(0),
              .diag = diag};
    *out = (weft_joint_timing){0};
    weft_err err = p.arena ? open_pair(&p, engine, batch, dim, n_dim) : WEFT_ERR_NOMEM;
    if (err == WEFT_ERR_OK)
        err = time_pair(&p, seconds, out);
    if (err == WEFT_ERR_OK && n_node > 0)
        err = time_nodes(&p, seconds / 2, node, n_node);
    close_pair(&p);
    weft_arena_destroy(p.arena);
    return err;
}
