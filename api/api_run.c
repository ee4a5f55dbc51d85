/* Runs on the caller's thread; sizes; times of kernels. */
#include "api/api_int.h"

#include <stdlib.h>
#include <string.h>

/* -- Inputs ----------------------------------------------------------------------------------- */

static weft_status take_input(api_session *s, uint32_t i, const weft_array *a, weft_error *error)
{
    const char *name = s->input[i].name;
    if (a->rank < 0 || a->rank > WEFT_DIMS_MAX)
        return weft_embed__say(error, WEFT_INPUT, "input %s has rank %d, the limit is %d", name,
                               a->rank, WEFT_DIMS_MAX);
    if (a->type != s->input[i].type)
        return weft_embed__say(error, WEFT_INPUT, "input %s has type %s, the model takes %s", name,
                               weft_name_of(a->type), weft_name_of(s->input[i].type));
    weft_tensor t = {.dtype = (weft_dtype)a->type, .rank = a->rank, .data = a->data};
    memcpy(t.dim, a->dim, (size_t)a->rank * sizeof *t.dim);
    if (weft_tensor_numel(&t) < 0)
        return weft_embed__say(error, WEFT_INPUT, "input %s: a dim is negative or too large", name);
    s->in[i] = t;
    return WEFT_OK;
}

weft_status weft_embed__take_inputs(api_session *s, const weft_array *in, uint32_t n_in,
                                    weft_error *error)
{
    if (n_in != s->n_input || (n_in > 0 && !in))
        return weft_embed__say(error, WEFT_INPUT, "%u inputs are given, the session takes %u",
                               in ? n_in : 0, s->n_input);
    for (uint32_t i = 0; i < n_in; i++) {
        weft_status status = take_input(s, i, &in[i], error);
        if (status != WEFT_OK)
            return status;
    }
    return WEFT_OK;
}

/* Data of the inputs is there. */
static weft_status check_data(const api_session *s, const weft_array *in, weft_error *error)
{
    for (uint32_t i = 0; i < s->n_input; i++) {
        size_t bytes = weft_tensor_bytes(&s->in[i]);
        if (in[i].bytes < bytes || (bytes > 0 && !in[i].data))
            return weft_embed__say(error, WEFT_INPUT, "input %s has %zu bytes, its dims are of %zu",
                                   s->input[i].name, in[i].data ? in[i].bytes : 0, bytes);
    }
    return WEFT_OK;
}

static weft_status check_outputs(const api_session *s, const weft_array *out, uint32_t n_out,
                                 weft_error *error)
{
    if (n_out == s->n_output && (n_out == 0 || out))
        return WEFT_OK;
    return weft_embed__say(error, WEFT_INPUT, "%u outputs are given, the session has %u",
                           out ? n_out : 0, s->n_output);
}

/* -- Running ---------------------------------------------------------------------------------- */

static weft_err run_joint(api_session *s)
{
    const weft_bundle_program *joint = weft_session_program(s->joint);
    weft_tensor *out = s->joint_tensor + joint->n_input;
    weft_embed__joint_inputs(s);
    WEFT_TRY(
        weft_session_run(s->joint, s->joint_tensor, joint->n_input, s->diag, out, joint->n_output));
    for (uint32_t i = 0; i < joint->n_output; i++)
        if (s->joint_out[i] != UINT32_MAX)
            s->out[s->joint_out[i]] = out[i];
    return WEFT_ERR_OK;
}

static weft_err run_apart(api_session *s)
{
    WEFT_TRY(weft_embed__open_parts(s));
    for (uint32_t i = 0; i < s->n_part; i++) {
        const api_part *p = &s->part[i];
        WEFT_TRY(weft_session_run(p->session, s->in + p->in_at, p->program->n_input, s->diag,
                                  s->out + p->out_at, p->program->n_output));
    }
    return WEFT_ERR_OK;
}

/* The models of a joint program may fit the memory only one at a time. */
static weft_err run_any(api_session *s)
{
    if (!weft_embed__is_joint(s))
        return run_apart(s);
    weft_err err = run_joint(s);
    if (err != WEFT_ERR_NOMEM)
        return err;
    weft_diag_clear(s->diag);
    return run_apart(s);
}

static void set_array(const weft_tensor *t, weft_array *out)
{
    out->type = (weft_type)t->dtype;
    out->rank = t->rank;
    memcpy(out->dim, t->dim, sizeof out->dim);
    out->bytes = weft_tensor_bytes(t);
}

static weft_status give_outputs(api_session *s, weft_array *out, weft_error *error)
{
    weft_status status = WEFT_OK;
    for (uint32_t i = 0; i < s->n_output; i++) {
        size_t room = out[i].bytes;
        set_array(&s->out[i], &out[i]);
        if (!out[i].data)
            out[i].data = s->out[i].data;
        else if (out[i].bytes > room)
            status = weft_embed__say(error, WEFT_INPUT, "output %s has %zu bytes, the room is %zu",
                                     s->output[i].name, out[i].bytes, room);
        else if (out[i].bytes > 0)
            memcpy(out[i].data, s->out[i].data, out[i].bytes);
    }
    return status;
}

static weft_status run_locked(api_session *s, const weft_array *in, uint32_t n_in, weft_array *out,
                              uint32_t n_out, weft_error *error)
{
    weft_status status = check_outputs(s, out, n_out, error);
    if (status == WEFT_OK)
        status = weft_embed__take_inputs(s, in, n_in, error);
    if (status == WEFT_OK)
        status = check_data(s, in, error);
    if (status != WEFT_OK)
        return status;
    weft_diag_clear(s->diag);
    weft_err err = run_any(s);
    if (err != WEFT_ERR_OK && weft_engine_lost(s->bundle->engine))
        return weft_embed__say(error, WEFT_NO_DEVICE, "the device is lost: %s",
                               weft_engine_lost(s->bundle->engine));
    status = weft_embed__fail(error, err, s->diag);
    return status == WEFT_OK ? give_outputs(s, out, error) : status;
}

weft_status weft_run(api_session *session, const weft_array *in, uint32_t n_in, weft_array *out,
                     uint32_t n_out, weft_error *error)
{
    pthread_mutex_lock(&session->lock);
    weft_status status = run_locked(session, in, n_in, out, n_out, error);
    pthread_mutex_unlock(&session->lock);
    return status;
}

/* -- Sizes ------------------------------------------------------------------------------------ */

static weft_err measure_part(const api_session *s, const api_part *part, weft_array *out)
{
    const weft_bundle_program *p = part->program;
    int64_t *symbol = calloc((size_t)p->n_symbol + 1, sizeof *symbol);
    weft_err err = symbol ? weft_bundle_bind(p, s->in + part->in_at, p->n_input, symbol, s->diag)
                          : WEFT_ERR_NOMEM;
    for (uint32_t i = 0; err == WEFT_ERR_OK && i < p->n_output; i++) {
        const weft_ttype *type = &p->value[p->output[i].value - 1].type;
        weft_tensor t = {.dtype = (weft_dtype)type->dtype, .rank = (int32_t)type->rank};
        bool known = true;
        for (uint32_t d = 0; d < type->rank; d++)
            if (!weft_dim_eval(p->dims, type->dim[d], symbol, p->n_symbol, &t.dim[d])) {
                t.dim[d] = -1;
                known = false;
            }
        weft_array *a = &out[part->out_at + i];
        known = known && weft_tensor_numel(&t) >= 0;
        set_array(&t, a);
        a->bytes = known ? a->bytes : 0;
    }
    free(symbol);
    return err;
}

weft_status weft_measure(api_session *session, const weft_array *in, uint32_t n_in, weft_array *out,
                         uint32_t n_out, weft_error *error)
{
    api_session *s = session;
    pthread_mutex_lock(&s->lock);
    weft_status status = check_outputs(s, out, n_out, error);
    if (status == WEFT_OK)
        status = weft_embed__take_inputs(s, in, n_in, error);
    weft_diag_clear(s->diag);
    for (uint32_t i = 0; i < s->n_part && status == WEFT_OK; i++)
        status = weft_embed__fail(error, measure_part(s, &s->part[i], out), s->diag);
    pthread_mutex_unlock(&s->lock);
    return status;
}

static weft_err prepare_any(api_session *s)
{
    if (weft_embed__is_joint(s)) {
        weft_embed__joint_inputs(s);
        return weft_session_prepare(s->joint, s->joint_tensor,
                                    weft_session_program(s->joint)->n_input, s->diag);
    }
    WEFT_TRY(weft_embed__open_parts(s));
    for (uint32_t i = 0; i < s->n_part; i++)
        WEFT_TRY(weft_session_prepare(s->part[i].session, s->in + s->part[i].in_at,
                                      s->part[i].program->n_input, s->diag));
    return WEFT_ERR_OK;
}

weft_status weft_prepare(api_session *session, const weft_array *in, uint32_t n_in,
                         weft_error *error)
{
    pthread_mutex_lock(&session->lock);
    weft_status status = weft_embed__take_inputs(session, in, n_in, error);
    weft_diag_clear(session->diag);
    if (status == WEFT_OK)
        status = weft_embed__fail(error, prepare_any(session), session->diag);
    pthread_mutex_unlock(&session->lock);
    return status;
}

/* -- Times of kernels ------------------------------------------------------------------------- */

/* Calls `visit` for the session of the joint program and those of the models that are open. */
static void visit_sessions(api_session *s, void (*visit)(weft_session *session, void *user),
                           void *user)
{
    if (s->joint)
        visit(s->joint, user);
    for (uint32_t i = 0; i < s->n_part; i++)
        if (s->part[i].session)
            visit(s->part[i].session, user);
}

static void set_watch(weft_session *session, void *user)
{
    weft_session_profile(session, *(const bool *)user);
}

void weft_watch(api_session *session, int on)
{
    bool flag = on != 0;
    pthread_mutex_lock(&session->lock);
    visit_sessions(session, set_watch, &flag);
    pthread_mutex_unlock(&session->lock);
}

typedef struct kernel_list {
    weft_kernel_info *at; /* NULL: count only */
    uint32_t n;
} kernel_list;

static void add_kernels(weft_session *session, void *user)
{
    const weft_bundle_program *p = weft_session_program(session);
    kernel_list *list = user;
    uint32_t n = 0;
    const weft_launch_time *time = weft_session_times(session, &n);
    for (uint32_t i = 0; i < n && list->at; i++) {
        const weft_bundle_launch *l = &p->launch[time[i].launch];
        list->at[list->n + i] = (weft_kernel_info){.model = p->name,
                                                   .op = weft_op_get(l->op)->name,
                                                   .item = l->item ? l->item : "",
                                                   .variant = time[i].variant,
                                                   .time_us = time[i].time_us};
    }
    list->n += n;
}

const weft_kernel_info *weft_kernels(api_session *session, uint32_t *out_n)
{
    kernel_list list = {0};
    *out_n = 0;
    pthread_mutex_lock(&session->lock);
    visit_sessions(session, add_kernels, &list);
    free(session->kernel);
    session->kernel = list.at = calloc((size_t)list.n + 1, sizeof *list.at);
    if (list.at) {
        list.n = 0;
        visit_sessions(session, add_kernels, &list);
        *out_n = list.n;
    }
    pthread_mutex_unlock(&session->lock);
    return session->kernel;
}
