/* Sessions on devices with memory of their own.
 *
 * A run is one copy of all inputs, one graph launch, one copy for each output, and one wait:
 *
 *   host    | inputs | outputs |              pinned memory, source and target of the copies
 *   device  | inputs .. values .. scratch |   the session's memory; weights are the engine's
 *
 * Because device addresses stay the same from run to run, the graph of a specialisation is recorded
 * once. */
#include "runtime/session/session_int.h"

#include "base/num.h"

#include <stdlib.h>
#include <string.h>

/* -- Life ----------------------------------------------------------------------------------- */

/* Loads the weights of the program; a weight used by several values is listed once. */
static weft_err load_weights(weft_session *s, weft_diag *diag)
{
    weft_engine *e = s->engine;
    uint32_t n = 0;
    uint32_t *list = calloc((size_t)e->bundle->n_weight + 1, sizeof *list);
    bool *has = calloc((size_t)e->bundle->n_weight + 1, sizeof *has);
    weft_err err = list && has ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
    for (uint32_t v = 0; err == WEFT_ERR_OK && v < s->program->n_value; v++) {
        uint32_t w = s->program->value[v].weight;
        if (!w || w > e->bundle->n_weight || has[w])
            continue;
        has[w] = true;
        list[n++] = w;
        err = weft_engine__check_weight(e, w, diag);
    }
    if (err == WEFT_ERR_OK)
        err = e->driver->device_ops->load_weights(e, list, n, diag);
    free(list);
    free(has);
    return err;
}

weft_err weft_session__open_device(weft_session *s, weft_diag *diag)
{
    const weft_driver *d = s->engine->driver;
    if (d->begin)
        d->begin(s->engine);
    weft_err err = load_weights(s, diag);
    if (err == WEFT_ERR_OK)
        err = d->device_ops->open_queue(s->engine, diag, &s->queue);
    if (d->end)
        d->end(s->engine);
    return err;
}

void weft_session__close_device(weft_session *s)
{
    const weft_device_ops *ops = s->engine->driver->device_ops;
    if (s->host)
        ops->host_free(s->engine, s->host, s->host_bytes);
    if (s->queue)
        ops->close_queue(s->engine, s->queue);
}

/* -- Specialisations ------------------------------------------------------------------------ */

/* Assigns the offsets of inputs and outputs in host memory, and lists the launches that have work.
 */
void weft_specialisation__place_device(weft_session *s, weft_specialisation *spec)
{
    const weft_bundle_program *p = s->program;
    weft_bound *bound = weft_arena_array(spec->arena, p->n_launch, sizeof *bound);
    spec->input_at = weft_arena_array(spec->arena, p->n_input, sizeof *spec->input_at);
    spec->output_at = weft_arena_array(spec->arena, p->n_output, sizeof *spec->output_at);
    for (uint32_t i = 0; i < p->n_input; i++) {
        spec->input_at[i] = spec->input_bytes;
        spec->input_bytes += weft_align_up(spec->value[p->input[i].value].bytes, WEFT_ARENA_ALIGN);
    }
    spec->host_bytes = spec->input_bytes;
    for (uint32_t i = 0; i < p->n_output; i++) {
        spec->output_at[i] = spec->host_bytes;
        spec->host_bytes += weft_align_up(spec->value[p->output[i].value].bytes, WEFT_ARENA_ALIGN);
    }
    spec->bound = (weft_bound_list){.program = p, .at = bound};
    for (uint32_t i = 0; i < p->n_launch; i++)
        if (spec->launch[i].state)
            bound[spec->bound.n++] = (weft_bound){
                .launch = i, .state = spec->launch[i].state, .arg = spec->launch[i].arg};
}

weft_err weft_specialisation__record_graph(weft_session *s, weft_specialisation *spec,
                                           weft_diag *diag)
{
    if (spec->graph && spec->graph_base == spec->base)
        return WEFT_ERR_OK;
    spec->graph_base = NULL; /* invalid until the graph is recorded */
    WEFT_TRY(s->engine->driver->device_ops->record_graph(s->engine, s->queue, &spec->bound, diag,
                                                         &spec->graph));
    spec->graph_base = spec->base;
    return WEFT_ERR_OK;
}

/* -- Running -------------------------------------------------------------------------------- */

static weft_err take_host(weft_session *s, const weft_specialisation *spec, weft_diag *diag)
{
    const weft_device_ops *ops = s->engine->driver->device_ops;
    if (s->host && spec->host_bytes <= s->host_bytes)
        return WEFT_ERR_OK;
    if (s->host)
        ops->host_free(s->engine, s->host, s->host_bytes);
    s->host = NULL;
    void *at;
    uint64_t bytes = spec->host_bytes ? spec->host_bytes : WEFT_ARENA_ALIGN;
    weft_err err = ops->host_alloc(s->engine, bytes, &at);
    if (err != WEFT_ERR_OK)
        return weft_diag_error(diag, err, (weft_where){.item = s->program->name},
                               "no memory for %llu bytes of inputs and outputs",
                               (unsigned long long)bytes);
    s->host = at;
    s->host_bytes = bytes;
    return WEFT_ERR_OK;
}

static weft_err copy_inputs(weft_session *s, const weft_specialisation *spec, const weft_tensor *in,
                            weft_diag *diag)
{
    for (uint32_t i = 0; i < s->program->n_input; i++) {
        size_t bytes = weft_tensor_bytes(&in[i]);
        if (bytes)
            memcpy(s->host + spec->input_at[i], in[i].data, bytes);
    }
    if (!spec->input_bytes)
        return WEFT_ERR_OK;
    return s->engine->driver->device_ops->copy_in(s->engine, s->queue,
                                                  (char *)s->memory->at + spec->input_offset,
                                                  s->host, spec->input_bytes, diag);
}

static weft_err copy_outputs(weft_session *s, const weft_specialisation *spec, weft_diag *diag,
                             weft_tensor *out)
{
    weft_err err = WEFT_ERR_OK;
    for (uint32_t i = 0; err == WEFT_ERR_OK && i < s->program->n_output; i++) {
        const weft_specialisation_value *v = &spec->value[s->program->output[i].value];
        out[i] = v->slot.tensor;
        out[i].data = s->host + spec->output_at[i];
        if (v->bytes)
            err = s->engine->driver->device_ops->copy_out(s->engine, s->queue, out[i].data,
                                                          v->slot.tensor.data, v->bytes, diag);
    }
    return err;
}

static weft_err run_all(weft_session *s, weft_specialisation *spec, weft_diag *diag)
{
    const weft_device_ops *ops = s->engine->driver->device_ops;
    if (!s->profile)
        return ops->run_graph(s->engine, s->queue, spec->graph, diag);
    WEFT_TRY(ops->run_graph_timed(s->engine, s->queue, spec->graph, s->sum_us, diag));
    for (uint32_t i = 0; i < s->program->n_launch; i++) {
        const weft_specialisation_launch *l = &spec->launch[i];
        s->time[i].variant = l->state ? l->variant : l->joined ? "joined" : "view";
    }
    s->n_profiled++;
    return WEFT_ERR_OK;
}

weft_err weft_session__run_device(weft_session *s, weft_specialisation *spec, const weft_tensor *in,
                                  weft_diag *diag, weft_tensor *out)
{
    WEFT_TRY(take_host(s, spec, diag));
    WEFT_TRY(weft_specialisation__record_graph(s, spec, diag));
    weft_err err = copy_inputs(s, spec, in, diag);
    if (err == WEFT_ERR_OK)
        err = run_all(s, spec, diag);
    if (err == WEFT_ERR_OK)
        err = copy_outputs(s, spec, diag, out);
    /* Also after an error: no work of this run may still use memory that the next run uses. */
    weft_err waited =
        s->engine->driver->device_ops->wait(s->engine, s->queue, err == WEFT_ERR_OK ? diag : NULL);
    return err != WEFT_ERR_OK ? err : waited;
}

bool weft_session_has_device(const weft_session *session)
{
    return session->engine->driver->device_ops != NULL;
}

weft_err weft_session_time_device(weft_session *session, uint32_t n, weft_diag *diag,
                                  double *out_us)
{
    weft_session *s = session;
    const weft_driver *d = s->engine->driver;
    if (!d->device_ops || !s->now || !s->now->graph_base || s->now->graph_base != s->memory->at ||
        n == 0)
        return weft_diag_error(diag, WEFT_ERR_UNSUP, (weft_where){.item = s->program->name},
                               "there is no run on the device to time");
    if (d->begin)
        d->begin(s->engine);
    weft_err err = d->device_ops->time_graph(s->engine, s->queue, s->now->graph, n, out_us, diag);
    if (d->end)
        d->end(s->engine);
    return err;
}
