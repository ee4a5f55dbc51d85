/* Sessions: one model of an engine, run at any dims within the bounds of its symbols. */
#include "base/num.h"
#include "runtime/session/session_int.h"

#include <stdlib.h>
#include <string.h>

/* -- Life ----------------------------------------------------------------------------------- */

static weft_err open_body(weft_engine *engine, const weft_bundle_program *p, weft_diag *diag,
                          weft_session **out);
static weft_err run_body(weft_session *s, const weft_tensor *in, weft_diag *diag, weft_tensor *out);

static weft_err ready_body(weft_session *s);

static const weft_body_ops body_ops = {.open = open_body, .run = run_body, .ready = ready_body};

static weft_err open_program(weft_engine *engine, const weft_bundle_program *p, weft_diag *diag,
                             weft_session **out)
{
    weft_session *s = calloc(1, sizeof *s);
    if (!s)
        return WEFT_ERR_NOMEM;
    s->engine = engine;
    s->program = p;
    s->bodies = &body_ops;
    s->memory = engine->share_memory ? &engine->memory : &s->own_memory;
    s->kernels = engine->share_memory ? &engine->kernels : &s->own_kernels;
    s->n_symbol = weft_dim_symbol_count(p->dims);
    if (s->n_symbol < p->n_symbol)
        s->n_symbol = p->n_symbol;
    s->symbol = malloc((s->n_symbol + 1) * sizeof *s->symbol);
    s->dynamic = calloc((size_t)p->n_value + 1, sizeof *s->dynamic);
    s->sum_us = calloc((size_t)p->n_launch + 1, sizeof *s->sum_us);
    s->time = calloc((size_t)p->n_launch + 1, sizeof *s->time);
    s->scratch = weft_arena_create(0);
    s->input = calloc((size_t)p->n_input + 1, sizeof *s->input);
    s->known = calloc((size_t)p->n_symbol + 1, sizeof *s->known);
    if (!s->input || !s->known || !s->symbol || !s->dynamic || !s->sum_us || !s->time ||
        !s->scratch) {
        weft_session_close(s);
        return WEFT_ERR_NOMEM;
    }
    weft_err err = weft_session__open_adapters(s);
    if (err == WEFT_ERR_OK && engine->driver->device_ops && !engine->count)
        err = weft_session__open_device(s, diag);
    if (err != WEFT_ERR_OK) {
        weft_session_close(s);
        return err;
    }
    *out = s;
    return WEFT_ERR_OK;
}

weft_err weft_session_open(weft_engine *engine, const char *model, weft_diag *diag,
                           weft_session **out)
{
    const weft_bundle_program *p = weft_bundle_find_any(engine->bundle, model);
    if (!p)
        return weft_bundle_refuse_model(engine->bundle, model, (weft_where){0}, diag);
    return open_program(engine, p, diag, out);
}

/* A body never uses the engine's shared memory, where the values of the program around it are. */
static weft_err open_body(weft_engine *engine, const weft_bundle_program *p, weft_diag *diag,
                          weft_session **out)
{
    WEFT_TRY(open_program(engine, p, diag, out));
    (*out)->memory = &(*out)->own_memory;
    return WEFT_ERR_OK;
}

/* The depth of the recursion is that of bodies in bodies. */
void weft_session_close(weft_session *session)
{
    if (!session)
        return;
    for (size_t i = 0; session->nested && i < (size_t)session->program->n_launch * WEFT_FLOW_BODIES;
         i++)
        weft_session_close(session->nested[i]);
    free(session->nested);
    free(session->known);
    weft_dynamic_shape__reset(session);
    for (uint32_t i = 0; i < WEFT_SPECIALISATION_MAX; i++)
        weft_specialisation__destroy(session, session->spec[i]);
    free(session->own_kernels.first);
    weft_slicing__free(session);
    weft_session__close_adapters(session);
    weft_engine__release(session->engine, &session->own_memory);
    if (session->engine->driver->device_ops)
        weft_session__close_device(session);
    if (session->scratch)
        weft_arena_destroy(session->scratch);
    free(session->idle);
    free(session->symbol);
    free(session->dynamic);
    free(session->input);
    free(session->sum_us);
    free(session->time);
    free(session);
}

const weft_bundle_program *weft_session_program(const weft_session *session)
{
    return session->program;
}

/* -- Running -------------------------------------------------------------------------------- */

static weft_err fail_launch(weft_session *s, uint32_t i, weft_err err, weft_diag *diag)
{
    const weft_bundle_launch *l = &s->program->launch[i];
    return weft_launch__fail(l->op, (weft_where){.item = l->item}, err, diag);
}

static weft_err run_profiled(weft_session *s, weft_specialisation *spec, weft_diag *diag)
{
    for (uint32_t i = 0; i < s->program->n_launch; i++) {
        weft_specialisation_launch *l = &spec->launch[i];
        double start = weft_session__now_us();
        weft_err err = WEFT_ERR_OK;
        if (s->idle && s->idle[i])
            continue;
        if (l->run)
            err = l->run(l->state, l->arg);
        else if (l->dynamic)
            WEFT_TRY(weft_dynamic_shape__run(s, spec, i, diag));
        if (err != WEFT_ERR_OK)
            return fail_launch(s, i, err, diag);
        s->sum_us[i] += weft_session__now_us() - start;
        s->time[i].variant = l->run       ? l->variant
                             : l->dynamic ? "dynamic shape"
                             : l->joined  ? "joined"
                                          : "view";
    }
    return WEFT_ERR_OK;
}

static weft_err run_launches(weft_session *s, weft_specialisation *spec, weft_diag *diag)
{
    s->diag = diag;
    if (s->profile)
        return run_profiled(s, spec, diag);
    const weft_specialisation_launch *l = spec->launch;
    for (uint32_t i = 0; i < s->program->n_launch; i++, l++) {
        if (s->idle && s->idle[i])
            continue;
        if (l->run) {
            weft_err err = l->run(l->state, l->arg);
            if (err != WEFT_ERR_OK)
                return fail_launch(s, i, err, diag);
        } else if (l->dynamic) {
            WEFT_TRY(weft_dynamic_shape__run(s, spec, i, diag));
        }
    }
    return WEFT_ERR_OK;
}

static bool is_skipped(const weft_session *s, uint32_t output)
{
    return s->idle && output < WEFT_SKIPPED_OUTPUTS_MAX && (s->skip >> output & 1);
}

/* Marks the launches of which no wanted output needs a result. */
static void find_idle(weft_session *s, bool *needed)
{
    const weft_bundle_program *p = s->program;
    for (uint32_t i = 0; i < p->n_output; i++)
        if (!is_skipped(s, i))
            needed[p->output[i].value] = true;
    for (uint32_t i = p->n_launch; i-- > 0;) {
        const weft_bundle_launch *l = &p->launch[i];
        bool runs = false;
        for (uint32_t k = 0; k < l->n_out; k++)
            runs = runs || needed[l->out[k]];
        s->idle[i] = !runs;
        for (uint32_t k = 0; runs && k < l->n_in; k++)
            if (l->in[k])
                needed[l->in[k]] = true;
    }
}

void weft_session_skip(weft_session *session, uint64_t outputs)
{
    weft_session *s = session;
    if (s->skip == outputs || s->engine->driver->device_ops)
        return;
    free(s->idle);
    s->skip = outputs;
    s->idle = outputs ? calloc((size_t)s->program->n_launch + 1, sizeof *s->idle) : NULL;
    /* Without memory everything is computed. */
    bool *needed = s->idle ? calloc((size_t)s->program->n_value + 1, sizeof *needed) : NULL;
    if (needed) {
        find_idle(s, needed);
    } else {
        free(s->idle);
        s->idle = NULL;
        s->skip = 0;
    }
    free(needed);
}

static void give_outputs(weft_session *s, weft_specialisation *spec, weft_tensor *out)
{
    for (uint32_t i = 0; i < s->program->n_output; i++) {
        uint32_t v = s->program->output[i].value;
        const weft_specialisation_value *value = &spec->value[v];
        if (is_skipped(s, i)) {
            out[i] = (weft_tensor){.dtype = s->program->value[v - 1].type.dtype, .rank = 1};
            continue;
        }
        if (value->place == WEFT_PLACE_DYNAMIC) {
            out[i] = s->dynamic[v].tensor;
            continue;
        }
        out[i] = value->slot.tensor;
        if (spec->copy[i]) {
            void *to = (char *)s->memory->at + spec->copy[i] - 1;
            if (value->bytes)
                memcpy(to, spec->value[value->root].slot.tensor.data, value->bytes);
            out[i].data = to;
        }
    }
}

/* Stores the addresses of the inputs. An input that is not aligned to its element size is copied,
 * because kernels need that alignment. */
static weft_err take_inputs(weft_session *s, weft_specialisation *spec, const weft_tensor *in,
                            weft_diag *diag)
{
    for (uint32_t i = 0; i < s->program->n_input; i++) {
        s->input[i] = in[i].data;
        size_t bytes = weft_tensor_bytes(&in[i]);
        if (bytes == 0 || (uintptr_t)in[i].data % weft_dtype_size(in[i].dtype) == 0)
            continue;
        void *copy;
        WEFT_TRY(weft_dynamic_shape__alloc(s, bytes, diag, &copy));
        memcpy(copy, in[i].data, bytes);
        s->input[i] = copy;
    }
    for (uint32_t i = 0; i < spec->n_patch; i++)
        *spec->patch[i].at = (void *)(uintptr_t)s->input[spec->patch[i].input];
    for (uint32_t i = 0; i < spec->n_alias; i++) {
        weft_specialisation_value *v = &spec->value[spec->alias[i]];
        v->slot.tensor.data = (void *)(uintptr_t)s->input[spec->value[v->root].input];
    }
    return WEFT_ERR_OK;
}

/* Runs all launches on these inputs; *out is the specialisation that ran. */
static weft_err run_program(weft_session *s, const weft_tensor *in, weft_diag *diag,
                            weft_specialisation **out)
{
    weft_dynamic_shape__reset(s);
    for (uint32_t i = s->program->n_symbol; i < s->n_symbol; i++)
        s->symbol[i] = -1; /* set by a launch of dynamic shape */
    WEFT_TRY(weft_specialisation__get(s, s->symbol, diag, out));
    WEFT_TRY(weft_specialisation__bind(s, *out, diag));
    if (s->engine->driver->device_ops)
        return WEFT_ERR_OK;
    WEFT_TRY(take_inputs(s, *out, in, diag));
    return run_launches(s, *out, diag);
}

/* A run whose kernels lost NaN or spread it, and whose errors may come from that, is repeated by
 * kernels that do not. */
static weft_err run_or_repeat(weft_session *s, const weft_tensor *in, weft_diag *diag,
                              weft_specialisation **out)
{
    const weft_driver *driver = s->engine->driver;
    size_t messages = weft_diag_count(diag);
    weft_err err = run_program(s, in, diag, out);
    if (driver->lost_nan && driver->lost_nan(s->engine) && err != WEFT_ERR_NOMEM) {
        weft_diag_cut(diag, messages);
        s->keep_nan = true;
        err = run_program(s, in, diag, out);
        s->keep_nan = false;
    }
    return err;
}

static weft_err run_whole(weft_session *s, const weft_tensor *in, weft_diag *diag, weft_tensor *out)
{
    weft_specialisation *spec;
    WEFT_TRY(run_or_repeat(s, in, diag, &spec));
    if (s->engine->driver->device_ops)
        return weft_session__run_device(s, spec, in, diag, out);
    give_outputs(s, spec, out);
    return WEFT_ERR_OK;
}

/* The symbols have the sizes of the whole batch before and afterwards. */
static weft_err run_slices(weft_session *s, int64_t rows, const weft_tensor *in, weft_diag *diag,
                           weft_tensor *out)
{
    int64_t *batch = &s->symbol[s->program->batch_symbol], all = *batch;
    const weft_specialisation *full = NULL;
    weft_err err = weft_slicing__start(s);
    for (int64_t begin = 0; err == WEFT_ERR_OK && begin < all; begin += rows) {
        *batch = all - begin < rows ? all - begin : rows;
        weft_slicing__cut(s, in, begin, *batch);
        weft_session__cut_adapters(s, begin, *batch);
        err = run_whole(s, s->slices.in, diag, s->slices.out);
        if (err == WEFT_ERR_OK)
            err = weft_slicing__gather(s, begin, *batch, all, diag, out);
        full = begin == 0 ? s->now : full;
    }
    if (full)
        s->now = full; /* the last slice may be smaller */
    *batch = all;
    weft_session__cut_adapters(s, 0, all);
    return err;
}

weft_err weft_session_run(weft_session *session, const weft_tensor *in, uint32_t n_in,
                          weft_diag *diag, weft_tensor *out, uint32_t n_out)
{
    weft_session *s = session;
    WEFT_TRY(weft_bundle_bind(s->program, in, n_in, s->symbol, diag));
    for (uint32_t i = 0; i < n_in; i++)
        if (!in[i].data && weft_tensor_numel(&in[i]) > 0)
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = s->program->name},
                                   "input %s has no data", s->program->input[i].name);
    if (n_out != s->program->n_output)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = s->program->name},
                               "%u outputs are given, the model has %u", n_out,
                               s->program->n_output);
    WEFT_TRY(weft_session__check_adapters(s, diag));
    double limit_us = s->engine->time_limit_s * 1e6;
    s->stop_us = limit_us > 0 ? weft_session__now_us() + limit_us : 0;
    if (s->engine->driver->begin)
        s->engine->driver->begin(s->engine);
    int64_t rows = weft_slicing__rows(s, s->symbol);
    s->slices.last = rows;
    weft_err err = rows ? run_slices(s, rows, in, diag, out) : run_whole(s, in, diag, out);
    if (s->engine->driver->end)
        s->engine->driver->end(s->engine);
    s->n_profiled += s->profile && err == WEFT_ERR_OK && !s->engine->driver->device_ops;
    return err;
}

static weft_err run_body(weft_session *s, const weft_tensor *in, weft_diag *diag, weft_tensor *out)
{
    weft_specialisation *spec;
    weft_dynamic_shape__reset(s);
    for (uint32_t i = s->program->n_symbol; i < s->n_symbol; i++)
        s->symbol[i] = -1;
    WEFT_TRY(weft_bundle_bind_body(s->program, s->known, in, s->program->n_input, s->symbol, diag));
    WEFT_TRY(weft_specialisation__get(s, s->symbol, diag, &spec));
    WEFT_TRY(weft_specialisation__bind(s, spec, diag));
    if (s->engine->driver->device_ops)
        return weft_session__run_device(s, spec, in, diag, out);
    WEFT_TRY(take_inputs(s, spec, in, diag));
    WEFT_TRY(run_launches(s, spec, diag));
    give_outputs(s, spec, out);
    return WEFT_ERR_OK;
}

/* Sizes that a body does not take are reported by the run that has them. */
static weft_err ready_body(weft_session *s)
{
    weft_specialisation *spec;
    weft_err err = weft_specialisation__get(s, s->symbol, NULL, &spec);
    if (err == WEFT_ERR_OK && !s->engine->count)
        err = weft_specialisation__bind(s, spec, NULL);
    if (err == WEFT_ERR_OK && !s->engine->count && s->engine->driver->device_ops)
        err = weft_specialisation__record_graph(s, spec, NULL);
    if (err == WEFT_ERR_OK)
        err = weft_nested__ready(s, spec);
    return err == WEFT_ERR_NOMEM ? err : WEFT_ERR_OK;
}

/* Prepares the sizes that s->symbol has. */
static weft_err ready_sizes(weft_session *s, weft_diag *diag)
{
    weft_specialisation *spec;
    WEFT_TRY(weft_specialisation__get(s, s->symbol, diag, &spec));
    WEFT_TRY(weft_specialisation__bind(s, spec, diag));
    if (s->engine->driver->device_ops)
        WEFT_TRY(weft_specialisation__record_graph(s, spec, diag));
    s->diag = diag;
    return weft_nested__ready(s, spec);
}

static weft_err ready_slices(weft_session *s, int64_t rows, weft_diag *diag)
{
    int64_t *batch = &s->symbol[s->program->batch_symbol], rest = *batch % rows;
    *batch = rest;
    if (rest)
        WEFT_TRY(ready_sizes(s, diag));
    *batch = rows;
    return ready_sizes(s, diag);
}

static weft_err make_ready(weft_session *s, const int64_t *symbol, weft_diag *diag)
{
    for (uint32_t i = 0; i < s->n_symbol; i++)
        s->symbol[i] = i < s->program->n_symbol ? symbol[i] : -1;
    if (s->engine->driver->begin)
        s->engine->driver->begin(s->engine);
    int64_t rows = weft_slicing__rows(s, s->symbol);
    weft_err err = rows ? ready_slices(s, rows, diag) : ready_sizes(s, diag);
    if (s->engine->driver->end)
        s->engine->driver->end(s->engine);
    return err;
}

weft_err weft_session_warm(weft_session *session, uint32_t bucket, weft_diag *diag)
{
    const weft_bundle_program *p = session->program;
    if (bucket >= p->n_bucket)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = p->name},
                               "the model has %u buckets, bucket %u is asked for", p->n_bucket,
                               bucket);
    return make_ready(session, p->bucket[bucket].symbol, diag);
}

weft_err weft_session_prepare(weft_session *session, const weft_tensor *in, uint32_t n_in,
                              weft_diag *diag)
{
    WEFT_TRY(weft_bundle_bind(session->program, in, n_in, session->symbol, diag));
    return make_ready(session, session->symbol, diag);
}

/* -- Profile -------------------------------------------------------------------------------- */

void weft_session_profile(weft_session *session, bool on)
{
    session->profile = on;
    session->n_profiled = 0;
    memset(session->sum_us, 0, session->program->n_launch * sizeof *session->sum_us);
}

const weft_launch_time *weft_session_times(weft_session *session, uint32_t *out_n)
{
    for (uint32_t i = 0; i < session->program->n_launch; i++) {
        session->time[i].launch = i;
        if (!session->time[i].variant)
            session->time[i].variant = "";
        session->time[i].time_us =
            session->n_profiled ? session->sum_us[i] / (double)session->n_profiled : 0;
    }
    *out_n = session->program->n_launch;
    return session->time;
}
