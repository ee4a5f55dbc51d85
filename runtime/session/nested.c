/* Launches with bodies: `if`, `loop`, `scan` (ops/flow.h).
 *
 * Each body of a launch has a session of its own, opened when it first runs, with memory of its own
 * and a cache of specialisations, so that rounds of a loop prepare kernels only when sizes change.
 * The symbols of the program around it that a body shares are given to it; the dims of its inputs
 * tell the others. */
#include "runtime/session/session_int.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

double weft_session__now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* One run of a launch. */
typedef struct nested_run {
    weft_session *s;
    uint32_t launch;
    const weft_slot *result; /* of a prepared launch, else NULL */
    void *const *data;       /* their addresses */
    weft_place_fn place;     /* of a launch of dynamic shape */
    weft_tensor *out[WEFT_FLOW_BODIES];
} nested_run;

static const weft_bundle_launch *launch_of(const nested_run *r)
{
    return &r->s->program->launch[r->launch];
}

static const weft_bundle_program *body_of(const nested_run *r, uint32_t b)
{
    return &r->s->engine->bundle->program[launch_of(r)->body[b] - 1];
}

/* -- What weft_flow_run asks for ------------------------------------------------------------ */

static weft_err find_session(nested_run *r, uint32_t b, weft_session **out)
{
    weft_session *s = r->s;
    size_t n = (size_t)s->program->n_launch * WEFT_FLOW_BODIES;
    if (!s->nested)
        s->nested = calloc(n, sizeof(weft_session *));
    if (!s->nested)
        return WEFT_ERR_NOMEM;
    weft_session **at = &s->nested[(size_t)r->launch * WEFT_FLOW_BODIES + b];
    if (!*at)
        WEFT_TRY(s->bodies->open(s->engine, body_of(r, b), s->diag, at));
    *out = *at;
    return WEFT_ERR_OK;
}

/* Values of the body's symbols that the program around it knows. */
static void outer_symbols(const weft_session *s, const weft_bundle_program *body, int64_t *out)
{
    for (uint32_t i = 0; i < body->n_symbol; i++) {
        uint32_t outer = body->outer ? body->outer[i] : 0;
        out[i] = outer && outer <= s->n_symbol ? s->symbol[outer - 1] : -1;
    }
}

static weft_err run_body(weft_flow *f, uint32_t b, const weft_tensor *in, const weft_tensor **out)
{
    nested_run *r = f->user;
    weft_session *body;
    WEFT_TRY(find_session(r, b, &body));
    if (!r->out[b])
        r->out[b] = calloc((size_t)body->program->n_output + 1, sizeof *r->out[b]);
    if (!r->out[b])
        return WEFT_ERR_NOMEM;
    outer_symbols(r->s, body->program, body->known);
    *out = r->out[b];
    body->keep_nan = r->s->keep_nan;
    body->stop_us = r->s->stop_us;
    return r->s->bodies->run(body, in, r->s->diag, r->out[b]);
}

/* Dims that nothing tells are 0. */
static weft_err shape_body(weft_flow *f, const weft_tensor *in, uint32_t k, weft_tensor *out)
{
    nested_run *r = f->user;
    weft_session *body;
    WEFT_TRY(find_session(r, 0, &body));
    const weft_bundle_program *p = body->program;
    outer_symbols(r->s, p, body->known);
    WEFT_TRY(weft_bundle_bind_body(p, body->known, in, p->n_input, body->symbol, r->s->diag));
    const weft_ttype *t = &p->value[p->output[k].value - 1].type;
    *out = (weft_tensor){.dtype = (weft_dtype)t->dtype, .rank = t->rank};
    for (uint32_t d = 0; d < t->rank; d++)
        if (!weft_dim_eval(p->dims, t->dim[d], body->symbol, p->n_symbol, &out->dim[d]) ||
            out->dim[d] < 0)
            out->dim[d] = 0;
    return WEFT_ERR_OK;
}

static weft_err place_result(weft_flow *f, uint32_t i, const weft_tensor *type, void **data)
{
    nested_run *r = f->user;
    uint32_t v = launch_of(r)->out[i];
    if (!v)
        return WEFT_ERR_OK;
    if (!r->result)
        return r->place(r->s, v, type, data, r->s->diag);
    const weft_tensor *want = &r->result[i].tensor;
    if (type->dtype != want->dtype || type->rank != want->rank ||
        memcmp(type->dim, want->dim, (size_t)want->rank * sizeof want->dim[0]) != 0)
        return weft_diag_error(f->diag, WEFT_ERR_INPUT, f->where,
                               "%s: the type of result %u differs from the type in the bundle",
                               weft_op_get(f->op)->name, i);
    *data = r->data[i];
    return WEFT_ERR_OK;
}

/* A loop may run for ever: what ends it is the time that the user grants. */
static weft_err check_time(weft_flow *f, int64_t iteration)
{
    const nested_run *r = f->user;
    if (r->s->stop_us <= 0 || weft_session__now_us() < r->s->stop_us)
        return WEFT_ERR_OK;
    return weft_diag_error(f->diag, WEFT_ERR_INPUT, f->where,
                           "%s: ended after %lld rounds: the run has taken %g s, the limit",
                           weft_op_get(f->op)->name, (long long)iteration,
                           r->s->engine->time_limit_s);
}

static weft_err take(weft_flow *f, uint64_t bytes)
{
    nested_run *r = f->user;
    return weft_engine__take(r->s->engine, bytes, f->diag);
}

static void give(weft_flow *f, uint64_t bytes)
{
    nested_run *r = f->user;
    weft_engine__give(r->s->engine, bytes);
}

static weft_err run(nested_run *r, weft_attrs attrs, const weft_tensor *in)
{
    const weft_bundle_launch *l = launch_of(r);
    uint32_t n_in[WEFT_FLOW_BODIES] = {0}, n_out[WEFT_FLOW_BODIES] = {0};
    weft_flow f = {.op = l->op,
                   .attrs = attrs,
                   .in = in,
                   .n_in = l->n_in,
                   .n_out = l->n_out,
                   .diag = r->s->diag,
                   .where = {.item = l->item},
                   .user = r,
                   .run = run_body,
                   .shape = shape_body,
                   .place = place_result,
                   .round = check_time,
                   .take = take,
                   .give = give};
    for (uint32_t b = 0; b < weft_flow_bodies(l->op); b++) {
        const weft_bundle_program *body = body_of(r, b);
        n_in[b] = body->n_input;
        n_out[b] = body->n_output;
        for (uint32_t i = 0; l->op == WEFT_OP_LOOP && i < 2; i++)
            f.formal_rank[i] = body->value[body->input[i].value - 1].type.rank;
    }
    /* weft_bundle_link has checked it. */
    if (!weft_flow_layout_make(l->op, attrs, l->n_in, l->n_out, n_in, n_out, &f.layout))
        return WEFT_ERR_BUG;
    weft_err err = weft_flow_run(&f);
    for (uint32_t b = 0; b < WEFT_FLOW_BODIES; b++)
        free(r->out[b]);
    return err;
}

/* -- Prepared launches ---------------------------------------------------------------------- */

/* State of a launch whose operands and results have known dims. */
typedef struct prepared {
    weft_session *s;
    uint32_t launch;
    weft_attrs attrs; /* in the arena of the specialisation */
    weft_slot *slot;  /* operands, then results */
    weft_tensor *in;
} prepared;

static void destroy_prepared(void *state)
{
    prepared *k = state;
    free(k->slot);
    free(k->in);
    free(k);
}

static weft_err run_prepared(void *state, void *const *arg)
{
    prepared *k = state;
    const weft_bundle_launch *l = &k->s->program->launch[k->launch];
    nested_run r = {
        .s = k->s, .launch = k->launch, .result = k->slot + l->n_in, .data = arg + l->n_in};
    for (uint32_t i = 0; i < l->n_in; i++)
        if (k->slot[i].present)
            k->in[i].data = arg[i];
    return run(&r, k->attrs, k->in);
}

weft_err weft_nested__prepare(weft_session *s, uint32_t launch, weft_attrs attrs,
                              const weft_slot *slot, weft_specialisation_launch *out)
{
    const weft_bundle_launch *l = &s->program->launch[launch];
    size_t n = (size_t)l->n_in + l->n_out;
    prepared *k = calloc(1, sizeof *k);
    if (!k)
        return WEFT_ERR_NOMEM;
    *k = (prepared){.s = s, .launch = launch, .attrs = attrs};
    k->slot = calloc(n + 1, sizeof *k->slot);
    k->in = calloc((size_t)l->n_in + 1, sizeof *k->in);
    if (!k->slot || !k->in) {
        destroy_prepared(k);
        return WEFT_ERR_NOMEM;
    }
    memcpy(k->slot, slot, n * sizeof *slot);
    for (uint32_t i = 0; i < l->n_in; i++)
        if (slot[i].present)
            k->in[i] = slot[i].tensor;
    out->run = run_prepared;
    out->state = k;
    out->destroy = destroy_prepared;
    out->variant = "bodies";
    return WEFT_ERR_OK;
}

/* -- Preparing bodies ----------------------------------------------------------------------- */

/* The dims of the inputs of body `b` in its first round. */
static bool first_inputs(const weft_flow_layout *l, weft_attrs attrs, const weft_tensor *in,
                         uint32_t n_in, uint32_t b, const weft_bundle_program *body,
                         weft_tensor *out)
{
    for (uint32_t i = 0; i < body->n_input; i++) {
        const weft_ttype *t = &body->value[body->input[i].value - 1].type;
        uint32_t at = i < l->n_formal ? i : l->first_capture[b] + i - l->n_formal;
        out[i] = (weft_tensor){.dtype = (weft_dtype)t->dtype, .rank = t->rank, .dim = {1}};
        if (i < l->first_carried)
            continue; /* iteration and condition of a loop: one element */
        if (at >= n_in || in[at].dtype == WEFT_DTYPE_NONE)
            return false;
        out[i] = in[at];
        uint32_t slice = i - l->first_carried - l->n_carried, axis;
        if (i >= l->n_formal || i < l->first_carried + l->n_carried)
            continue;
        if (!weft_flow_axis(attrs, false, slice, (uint32_t)in[at].rank, &axis))
            return false;
        for (int32_t d = (int32_t)axis; d + 1 < in[at].rank; d++)
            out[i].dim[d] = in[at].dim[d + 1];
        out[i].rank--;
    }
    return true;
}

static weft_err ready_body(nested_run *r, const weft_tensor *operand, uint32_t b)
{
    const weft_bundle_launch *l = launch_of(r);
    uint32_t n_in[WEFT_FLOW_BODIES] = {0}, n_out[WEFT_FLOW_BODIES] = {0};
    weft_flow_layout layout;
    weft_session *body;
    for (uint32_t i = 0; i < weft_flow_bodies(l->op); i++) {
        n_in[i] = body_of(r, i)->n_input;
        n_out[i] = body_of(r, i)->n_output;
    }
    WEFT_TRY(find_session(r, b, &body));
    const weft_bundle_program *p = body->program;
    weft_tensor *in = calloc((size_t)p->n_input + 1, sizeof *in);
    weft_err err = in ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
    outer_symbols(r->s, p, body->known);
    /* A run with these sizes says what is wrong with them. */
    if (err == WEFT_ERR_OK &&
        weft_flow_layout_make(l->op, l->attrs, l->n_in, l->n_out, n_in, n_out, &layout) &&
        first_inputs(&layout, l->attrs, operand, l->n_in, b, p, in) &&
        weft_bundle_bind_body(p, body->known, in, p->n_input, body->symbol, NULL) == WEFT_ERR_OK)
        err = r->s->bodies->ready(body);
    free(in);
    return err;
}

/* Operands of dynamic shape stay absent. */
static weft_err ready_launch(weft_session *s, const weft_specialisation *spec, uint32_t launch)
{
    nested_run r = {.s = s, .launch = launch};
    const weft_bundle_launch *l = launch_of(&r);
    weft_tensor *operand = calloc((size_t)l->n_in + 1, sizeof *operand);
    weft_err err = operand ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
    for (uint32_t i = 0; err == WEFT_ERR_OK && i < l->n_in; i++)
        if (l->in[i] && spec->value[l->in[i]].place != WEFT_PLACE_DYNAMIC)
            operand[i] = spec->value[l->in[i]].slot.tensor;
    for (uint32_t b = 0; err == WEFT_ERR_OK && b < weft_flow_bodies(l->op); b++)
        err = ready_body(&r, operand, b);
    free(operand);
    return err;
}

weft_err weft_nested__ready(weft_session *s, const weft_specialisation *spec)
{
    for (uint32_t i = 0; i < s->program->n_launch; i++)
        if (weft_flow_bodies(s->program->launch[i].op) > 0)
            WEFT_TRY(ready_launch(s, spec, i));
    return WEFT_ERR_OK;
}

uint64_t weft_nested__bytes(const weft_session *s)
{
    uint64_t bytes = 0;
    size_t n = s->nested ? (size_t)s->program->n_launch * WEFT_FLOW_BODIES : 0;
    for (size_t i = 0; i < n; i++)
        if (s->nested[i])
            bytes += (s->nested[i]->now ? s->nested[i]->now->bytes : 0) +
                     weft_nested__bytes(s->nested[i]);
    return bytes;
}

/* -- Launches of dynamic shape -------------------------------------------------------------- */

weft_err weft_nested__run(weft_session *s, uint32_t launch, weft_attrs attrs, const weft_slot *in,
                          weft_place_fn place)
{
    const weft_bundle_launch *l = &s->program->launch[launch];
    nested_run r = {.s = s, .launch = launch, .place = place};
    weft_tensor *tensor = calloc((size_t)l->n_in + 1, sizeof *tensor);
    if (!tensor)
        return WEFT_ERR_NOMEM;
    for (uint32_t i = 0; i < l->n_in; i++)
        if (in[i].present)
            tensor[i] = in[i].tensor;
    weft_err err = run(&r, attrs, tensor);
    free(tensor);
    return err;
}
