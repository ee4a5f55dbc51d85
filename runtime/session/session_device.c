/* Sessions on devices with memory of their own.
 *
 * A run is one copy of all inputs, one graph launch, one copy for each output, and one wait:
 *
 *   host    | inputs | outputs |              pinned memory, source and target of the copies
 *   device  | inputs .. values .. scratch |   the session's memory; weights are the engine's
 *
 * Because device addresses stay the same from run to run, the graph of a specialisation is recorded
 * once.
 *
 * A launch with bodies (nested.c) divides the program into parts with a graph each. Its operands
 * are copied to host memory between two parts; the host decides which body runs how often, each in
 * a session of its own on the device, and its results are copied back. */
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

static bool has_bodies(const weft_session *s, uint32_t launch)
{
    return weft_op_get(s->program->launch[launch].op)->traits & WEFT_T_BODY;
}

/* Value k of a launch: its operands, then its results; 0: omitted. */
static uint32_t value_of(const weft_bundle_launch *l, uint32_t k)
{
    return k < l->n_in ? l->in[k] : l->out[k - l->n_in];
}

/* Ends a part with launch i, whose operands and results get offsets in host memory. */
static void end_part(weft_session *s, weft_specialisation *spec, uint32_t i)
{
    const weft_bundle_launch *l = &s->program->launch[i];
    weft_specialisation_part *part = &spec->part[spec->n_part++];
    uint64_t at = spec->host_bytes;
    part->body = i;
    part->host = weft_arena_array(spec->arena, l->n_in + l->n_out + 1, sizeof *part->host);
    part->arg = weft_arena_array(spec->arena, l->n_in + l->n_out + 1, sizeof *part->arg);
    for (uint32_t k = 0; k < l->n_in + l->n_out; k++) {
        uint32_t v = value_of(l, k);
        part->host[k] = at;
        if (v && !spec->value[v].slot.weight)
            at += weft_align_up(spec->value[v].bytes, WEFT_ARENA_ALIGN);
    }
    spec->body_bytes =
        at - spec->host_bytes > spec->body_bytes ? at - spec->host_bytes : spec->body_bytes;
}

/* Divides the launches that have work. */
static void find_parts(weft_session *s, weft_specialisation *spec)
{
    const weft_bundle_program *p = s->program;
    uint32_t n = 1;
    for (uint32_t i = 0; i < p->n_launch; i++)
        n += has_bodies(s, i);
    weft_bound *bound = weft_arena_array(spec->arena, p->n_launch, sizeof *bound);
    spec->part = weft_arena_array(spec->arena, n, sizeof *spec->part);
    for (uint32_t i = 0; i < n; i++)
        spec->part[i].body = UINT32_MAX;
    spec->part[0].bound = (weft_bound_list){.program = p, .at = bound};
    for (uint32_t i = 0; i < p->n_launch; i++) {
        weft_bound_list *list = &spec->part[spec->n_part].bound;
        if (!spec->launch[i].state)
            continue;
        if (has_bodies(s, i)) {
            bound += list->n;
            end_part(s, spec, i);
            spec->part[spec->n_part].bound = (weft_bound_list){.program = p, .at = bound};
        } else {
            bound[list->n++] = (weft_bound){
                .launch = i, .state = spec->launch[i].state, .arg = spec->launch[i].arg};
        }
    }
    spec->n_part++;
    spec->host_bytes += spec->body_bytes;
}

/* Assigns the offsets of inputs and outputs in host memory, and lists the launches that have work.
 */
void weft_specialisation__place_device(weft_session *s, weft_specialisation *spec)
{
    const weft_bundle_program *p = s->program;
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
    find_parts(s, spec);
}

void weft_specialisation__free_graphs(weft_session *s, weft_specialisation *spec)
{
    for (uint32_t i = 0; i < spec->n_part; i++)
        if (spec->part[i].graph)
            s->engine->driver->device_ops->free_graph(s->engine, spec->part[i].graph);
    spec->n_part = 0;
}

void weft_specialisation__give_graphs(weft_specialisation *spec, weft_specialisation *heir)
{
    for (uint32_t i = 0; i < spec->n_part && i < heir->n_part; i++) {
        heir->part[i].graph = spec->part[i].graph;
        spec->part[i].graph = NULL;
    }
}

weft_err weft_specialisation__record_graph(weft_session *s, weft_specialisation *spec,
                                           weft_diag *diag)
{
    if (spec->graph_base && spec->graph_base == spec->base)
        return WEFT_ERR_OK;
    spec->graph_base = NULL; /* invalid until all graphs are recorded */
    for (uint32_t i = 0; i < spec->n_part; i++)
        WEFT_TRY(s->engine->driver->device_ops->record_graph(
            s->engine, s->queue, &spec->part[i].bound, diag, &spec->part[i].graph));
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

/* Runs a launch with bodies on copies of its operands. */
static weft_err run_bodies(weft_session *s, weft_specialisation *spec,
                           const weft_specialisation_part *part, weft_diag *diag)
{
    const weft_engine *e = s->engine;
    const weft_device_ops *ops = e->driver->device_ops;
    const weft_bundle_launch *l = &s->program->launch[part->body];
    weft_specialisation_launch *to = &spec->launch[part->body];
    void **host = part->arg;
    double start = weft_session__now_us();
    for (uint32_t k = 0; k < l->n_in + l->n_out; k++) {
        const weft_specialisation_value *v = &spec->value[value_of(l, k)];
        host[k] = !value_of(l, k) ? NULL : s->host + part->host[k];
        if (v->slot.weight)
            host[k] = (char *)(uintptr_t)e->bundle->weight[v->slot.weight - 1].data + v->shift;
        else if (k < l->n_in && host[k] && v->bytes)
            WEFT_TRY(ops->copy_out(s->engine, s->queue, host[k], to->arg[k], v->bytes, diag));
    }
    WEFT_TRY(ops->wait(s->engine, s->queue, diag));
    s->diag = diag;
    weft_err err = to->run(to->state, host);
    if (err != WEFT_ERR_OK)
        return weft_launch__fail(l->op, (weft_where){.item = l->item}, err, diag);
    for (uint32_t k = l->n_in; k < l->n_in + l->n_out; k++) {
        const weft_specialisation_value *v = &spec->value[value_of(l, k)];
        if (host[k] && v->bytes)
            WEFT_TRY(ops->copy_in(s->engine, s->queue, to->arg[k], host[k], v->bytes, diag));
    }
    s->sum_us[part->body] += s->profile ? weft_session__now_us() - start : 0;
    return WEFT_ERR_OK;
}

static weft_err run_part(weft_session *s, weft_specialisation *spec,
                         const weft_specialisation_part *part, weft_diag *diag)
{
    const weft_device_ops *ops = s->engine->driver->device_ops;
    WEFT_TRY(s->profile ? ops->run_graph_timed(s->engine, s->queue, part->graph, s->sum_us, diag)
                        : ops->run_graph(s->engine, s->queue, part->graph, diag));
    return part->body == UINT32_MAX ? WEFT_ERR_OK : run_bodies(s, spec, part, diag);
}

static weft_err run_all(weft_session *s, weft_specialisation *spec, weft_diag *diag)
{
    for (uint32_t i = 0; i < spec->n_part; i++)
        WEFT_TRY(run_part(s, spec, &spec->part[i], diag));
    if (!s->profile)
        return WEFT_ERR_OK;
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
    if (s->now->n_part != 1)
        return weft_diag_error(diag, WEFT_ERR_UNSUP, (weft_where){.item = s->program->name},
                               "the host decides which branches run: no run of the device alone");
    if (d->begin)
        d->begin(s->engine);
    weft_err err =
        d->device_ops->time_graph(s->engine, s->queue, s->now->part[0].graph, n, out_us, diag);
    if (d->end)
        d->end(s->engine);
    return err;
}
