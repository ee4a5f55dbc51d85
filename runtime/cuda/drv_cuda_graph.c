/* CUDA graphs: all launches of a specialisation as one executable.
 *
 * Commands become nodes. A launch depends only on launches whose memory it conflicts with
 * (hazard.c), so independent branches run concurrently. GEMMs and convolutions of
 * libraries are captured from a stream into the same graph. When addresses change, the graph is
 * recorded again and the executable, which is expensive to instantiate, is updated. Without graph
 * support (a driver before CUDA 12.3) launches are put into the queue one after the other.
 *
 * Nodes name the context that they run in: that of the partition, if any. A green context accepts
 * calls of one thread at a time, so recording holds the lock. */
#include "runtime/cuda/drv_cuda_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct recorded {
    weft_cu_graph_exec timed; /* the launches in sequence with events between; NULL: not recorded */
    weft_cu_graph_exec exec;  /* NULL: no graph support, or no work */
    const weft_bound_list *list; /* outlives this */
    uint32_t n;                  /* number of its launches with commands */
} recorded;

/* State of a recording. */
typedef struct recorder {
    weft_cudev *g;
    weft_cu_stream stream; /* for captures */
    weft_diag *diag;
    const weft_bound **item; /* launches with commands */
    uint32_t n;
    uint32_t *edge, *edge_first;
    weft_cu_graph graph;
    weft_cu_graph_node *last;  /* [item]: its last node */
    weft_cu_graph_node *after; /* scratch: the predecessors of a node */
} recorder;

static weft_cudev_launch *launch_of(const weft_bound *b)
{
    return b->state;
}

/* -- Edges ---------------------------------------------------------------------------------- */

static weft_err find_edges(recorder *r)
{
    size_t n_touch = 0, at = 0;
    for (uint32_t i = 0; i < r->n; i++)
        n_touch += (size_t)launch_of(r->item[i])->commands->n_operand + 1;
    weft_touch *touch = calloc(n_touch + 1, sizeof *touch);
    uint32_t *first = calloc((size_t)r->n + 1, sizeof *first);
    weft_err err = touch && first ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
    for (uint32_t i = 0; err == WEFT_ERR_OK && i < r->n; i++) {
        const weft_command_list *s = launch_of(r->item[i])->commands;
        for (uint32_t k = 0; k <= s->n_operand; k++) {
            uint64_t begin = (uint64_t)(uintptr_t)r->item[i]->arg[k];
            if (s->access[k])
                touch[at++] = (weft_touch){begin, begin + s->bytes[k], s->access[k]};
        }
        first[i + 1] = (uint32_t)at;
    }
    if (err == WEFT_ERR_OK)
        err = weft_hazard__edges(touch, first, r->n, &r->edge, &r->edge_first);
    free(touch);
    free(first);
    return err;
}

/* -- Nodes ---------------------------------------------------------------------------------- */

static weft_err add_node(recorder *r, weft_cu_node_params *params, size_t n_after,
                         weft_cu_graph_node *out)
{
    return weft_cudev__check(r->g,
                             r->g->cu->cuGraphAddNode(out, r->graph, r->after, n_after, params),
                             "cuGraphAddNode", r->diag);
}

static void set_kernel(weft_cudev_launch *l, uint32_t i, void *const *arg, weft_cu_node_params *to)
{
    const weft_command *s = &l->commands->at[i];
    weft_cudev__set_params(l, i, arg);
    to->type = WEFT_CU_GRAPH_NODE_TYPE_KERNEL;
    to->u.kernel = (weft_cu_kernel_node){.gridDimX = s->grid[0],
                                         .gridDimY = s->grid[1],
                                         .gridDimZ = s->grid[2],
                                         .blockDimX = l->row[i]->threads,
                                         .blockDimY = 1,
                                         .blockDimZ = 1,
                                         .sharedMemBytes = l->row[i]->shared_bytes,
                                         .kernelParams = l->param,
                                         .kern = l->kernel[i],
                                         .ctx = l->gpu->ctx};
}

static void set_copy(const weft_cudev *g, weft_cu_deviceptr to, weft_cu_deviceptr from,
                     uint64_t bytes, weft_cu_node_params *out)
{
    out->type = WEFT_CU_GRAPH_NODE_TYPE_MEMCPY;
    out->u.memcpy.copyCtx = g->ctx;
    out->u.memcpy.copyParams = (weft_cu_memcpy3d){.srcMemoryType = WEFT_CU_MEMORYTYPE_DEVICE,
                                                  .srcDevice = from,
                                                  .dstMemoryType = WEFT_CU_MEMORYTYPE_DEVICE,
                                                  .dstDevice = to,
                                                  .WidthInBytes = bytes,
                                                  .Height = 1,
                                                  .Depth = 1};
}

static void set_fill(const weft_cudev *g, weft_cu_deviceptr to, uint64_t bytes,
                     weft_cu_node_params *out)
{
    bool words = to % 4 == 0 && bytes % 4 == 0;
    out->type = WEFT_CU_GRAPH_NODE_TYPE_MEMSET;
    out->u.memset = (weft_cu_memset_node){.dst = to,
                                          .elementSize = words ? 4 : 1,
                                          .width = words ? bytes / 4 : bytes,
                                          .height = 1,
                                          .ctx = g->ctx};
}

/* One node that follows all nodes at the end of a capture. */
static weft_err join_tail(recorder *r, const weft_cu_graph_node *last, size_t n,
                          weft_cu_graph_node *out)
{
    weft_cu_node_params params;
    if (n == 1) {
        *out = last[0];
        return WEFT_ERR_OK;
    }
    memset(&params, 0, sizeof params);
    params.type = WEFT_CU_GRAPH_NODE_TYPE_EMPTY;
    return weft_cudev__check(r->g, r->g->cu->cuGraphAddNode(out, r->graph, last, n, &params),
                             "cuGraphAddNode", r->diag);
}

/* cuBLASLt and cuDNN work on streams: their work is captured from a stream into the graph. */
static weft_err capture(recorder *r, weft_cudev_launch *l, uint32_t i, void *const *arg,
                        size_t n_after, weft_cu_graph_node *out)
{
    const weft_cu_api *cu = r->g->cu;
    unsigned status = WEFT_CU_STREAM_CAPTURE_STATUS_NONE;
    uint64_t id;
    weft_cu_graph graph = NULL;
    const weft_cu_graph_node *last = NULL;
    size_t n_last = 0;
    WEFT_TRY(weft_cudev__warm_command(l, i, arg, r->stream, r->diag));
    WEFT_TRY(weft_cudev__check(r->g,
                               cu->cuStreamBeginCaptureToGraph(r->stream, r->graph, r->after, NULL,
                                                               n_after,
                                                               WEFT_CU_STREAM_CAPTURE_MODE_RELAXED),
                               "cuStreamBeginCaptureToGraph", r->diag));
    weft_err err = weft_cudev__run_command(l, i, arg, r->stream, r->diag);
    if (err == WEFT_ERR_OK)
        err = weft_cudev__check(
            r->g, cu->cuStreamGetCaptureInfo(r->stream, &status, &id, &graph, &last, &n_last),
            "cuStreamGetCaptureInfo", r->diag);
    if (err == WEFT_ERR_OK &&
        (status != WEFT_CU_STREAM_CAPTURE_STATUS_ACTIVE || n_last == 0 || graph != r->graph))
        err = weft_diag_error(r->diag, WEFT_ERR_BUG, (weft_where){.file = r->g->name},
                              "a library left the capture in state %u with %zu nodes", status,
                              n_last);
    if (err == WEFT_ERR_OK)
        err = join_tail(r, last, n_last, out);
    /* Also after an error: a capturing stream is unusable. An invalidated capture destroys its
     * graph. */
    graph = NULL;
    weft_err ended = weft_cudev__check(r->g, cu->cuStreamEndCapture(r->stream, &graph),
                                       "cuStreamEndCapture", err == WEFT_ERR_OK ? r->diag : NULL);
    if (!graph)
        r->graph = NULL;
    return err != WEFT_ERR_OK ? err : ended;
}

static weft_err add_command(recorder *r, weft_cudev_launch *l, uint32_t i, void *const *arg,
                            size_t n_after, weft_cu_graph_node *out)
{
    const weft_command *s = &l->commands->at[i];
    weft_cu_node_params params;
    if (s->kind == WEFT_COMMAND_GEMM || s->kind == WEFT_COMMAND_CONV)
        return capture(r, l, i, arg, n_after, out);
    memset(&params, 0, sizeof params);
    if (s->kind == WEFT_COMMAND_KERNEL)
        set_kernel(l, i, arg, &params);
    else if (s->kind == WEFT_COMMAND_COPY)
        set_copy(r->g, weft_cudev__address(arg, s->arg[0].ref),
                 weft_cudev__address(arg, s->arg[1].ref), s->bytes, &params);
    else
        set_fill(r->g, weft_cudev__address(arg, s->arg[0].ref), s->bytes, &params);
    return add_node(r, &params, n_after, out);
}

static weft_err add_launch(recorder *r, uint32_t item)
{
    weft_cudev_launch *l = launch_of(r->item[item]);
    size_t n_after = 0;
    for (uint32_t k = r->edge_first[item]; k < r->edge_first[item + 1]; k++)
        r->after[n_after++] = r->last[r->edge[k]];
    for (uint32_t i = 0; i < l->commands->n; i++) {
        WEFT_TRY(add_command(r, l, i, r->item[item]->arg, n_after, &r->last[item]));
        r->after[0] = r->last[item];
        n_after = 1;
    }
    return WEFT_ERR_OK;
}

static weft_err record(recorder *r)
{
    WEFT_TRY(find_edges(r));
    r->last = calloc((size_t)r->n + 1, sizeof *r->last);
    r->after = calloc((size_t)r->n + 1, sizeof *r->after);
    if (!r->last || !r->after)
        return WEFT_ERR_NOMEM;
    WEFT_TRY(
        weft_cudev__check(r->g, r->g->cu->cuGraphCreate(&r->graph, 0), "cuGraphCreate", r->diag));
    for (uint32_t i = 0; i < r->n; i++)
        WEFT_TRY(add_launch(r, i));
    return WEFT_ERR_OK;
}

/* -- Executables ---------------------------------------------------------------------------- */

static weft_err make_exec(recorder *r, recorded *f)
{
    const weft_cu_api *cu = r->g->cu;
    weft_cu_exec_update said;
    if (f->exec) {
        memset(&said, 0, sizeof said);
        weft_cu_result result = cu->cuGraphExecUpdate(f->exec, r->graph, &said);
        if (result == WEFT_CUDA_SUCCESS)
            return WEFT_ERR_OK;
        /* The nodes differ from before, or the device is lost; the next call shows which. */
        (void)cu->cuGraphExecDestroy(f->exec);
        f->exec = NULL;
    }
    WEFT_TRY(weft_cudev__check(r->g, cu->cuGraphInstantiateWithFlags(&f->exec, r->graph, 0),
                               "cuGraphInstantiateWithFlags", r->diag));
    return weft_cudev__check(r->g, cu->cuGraphUpload(f->exec, r->stream), "cuGraphUpload", r->diag);
}

static weft_err record_and_make(recorder *r, const weft_bound_list *list, recorded *f)
{
    r->item = calloc((size_t)list->n + 1, sizeof *r->item);
    if (!r->item)
        return WEFT_ERR_NOMEM;
    for (uint32_t i = 0; i < list->n; i++)
        if (launch_of(&list->at[i])->commands->n)
            r->item[r->n++] = &list->at[i];
    f->list = list;
    f->n = r->n;
    if (!r->g->lib->graphs || r->n == 0)
        return WEFT_ERR_OK;
    WEFT_TRY(record(r));
    return make_exec(r, f);
}

weft_err weft_cudev__record_graph(weft_engine *e, void *queue, const weft_bound_list *list,
                                  weft_diag *diag, void **inout)
{
    weft_cudev_queue *q = queue;
    recorded *f = *inout ? *inout : calloc(1, sizeof *f);
    if (!f)
        return WEFT_ERR_NOMEM;
    recorder r = {.g = weft_cudev__of(e), .stream = q->stream, .diag = diag};
    if (f->timed)
        (void)r.g->cu->cuGraphExecDestroy(f->timed);
    f->timed = NULL;
    pthread_mutex_lock(&r.g->lock);
    weft_err err = record_and_make(&r, list, f);
    pthread_mutex_unlock(&r.g->lock);
    if (r.graph)
        (void)r.g->cu->cuGraphDestroy(r.graph);
    free(r.item);
    free(r.edge);
    free(r.edge_first);
    free(r.last);
    free(r.after);
    if (err != WEFT_ERR_OK) {
        weft_cudev__free_graph(e, f);
        f = NULL;
    }
    *inout = f;
    return err;
}

void weft_cudev__free_graph(weft_engine *e, void *data)
{
    weft_cudev *g = weft_cudev__of(e);
    recorded *f = data;
    weft_cudev__enter(g);
    if (f->exec)
        (void)g->cu->cuGraphExecDestroy(f->exec);
    if (f->timed)
        (void)g->cu->cuGraphExecDestroy(f->timed);
    free(f);
}

/* -- Running -------------------------------------------------------------------------------- */

weft_err weft_cudev__run_graph(weft_engine *e, void *queue, void *data, weft_diag *diag)
{
    weft_cudev *g = weft_cudev__of(e);
    weft_cudev_queue *q = queue;
    const recorded *f = data;
    if (f->exec)
        return weft_cudev__check(g, g->cu->cuGraphLaunch(f->exec, q->stream), "cuGraphLaunch",
                                 diag);
    for (uint32_t i = 0; f->n && i < f->list->n; i++)
        WEFT_TRY(weft_cudev__run_launch(q, &f->list->at[i], diag));
    return WEFT_ERR_OK;
}

/* -- Times ---------------------------------------------------------------------------------- */

static weft_err make_events(weft_cudev *g, weft_cudev_queue *q, uint32_t n, weft_diag *diag)
{
    if (n <= q->n_event)
        return WEFT_ERR_OK;
    weft_cu_event *more = realloc(q->event, n * sizeof(weft_cu_event));
    if (!more)
        return WEFT_ERR_NOMEM;
    q->event = more;
    while (q->n_event < n) {
        WEFT_TRY(
            weft_cudev__check(g, g->cu->cuEventCreate(&q->event[q->n_event], WEFT_CU_EVENT_DEFAULT),
                              "cuEventCreate", diag));
        q->n_event++;
    }
    return WEFT_ERR_OK;
}

static weft_err mark(weft_cudev *g, weft_cudev_queue *q, uint32_t i, weft_diag *diag)
{
    return weft_cudev__check(g, g->cu->cuEventRecord(q->event[i], q->stream), "cuEventRecord",
                             diag);
}

static weft_err elapsed(weft_cudev *g, const weft_cudev_queue *q, uint32_t from, uint32_t to,
                        double *out_us, weft_diag *diag)
{
    float ms = 0;
    WEFT_TRY(weft_cudev__check(g, g->cu->cuEventElapsedTime(&ms, q->event[from], q->event[to]),
                               "cuEventElapsedTime", diag));
    *out_us = (double)ms * 1e3;
    return WEFT_ERR_OK;
}

static weft_err add_event(recorder *r, weft_cu_event event, size_t n_after)
{
    weft_cu_node_params params;
    memset(&params, 0, sizeof params);
    params.type = WEFT_CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    params.u.eventRecord.event = event;
    weft_cu_graph_node node;
    WEFT_TRY(add_node(r, &params, n_after, &node));
    r->after[0] = node;
    return WEFT_ERR_OK;
}

/* Launches in sequence, an event before the first and after each. */
static weft_err record_timed(recorder *r, const weft_cudev_queue *q, const weft_bound_list *list)
{
    weft_cu_graph_node after[1];
    r->after = after;
    WEFT_TRY(
        weft_cudev__check(r->g, r->g->cu->cuGraphCreate(&r->graph, 0), "cuGraphCreate", r->diag));
    WEFT_TRY(add_event(r, q->event[0], 0));
    for (uint32_t i = 0; i < list->n; i++) {
        weft_cudev_launch *l = launch_of(&list->at[i]);
        for (uint32_t k = 0; k < l->commands->n; k++)
            WEFT_TRY(add_command(r, l, k, list->at[i].arg, 1, &after[0]));
        WEFT_TRY(add_event(r, q->event[i + 1], 1));
    }
    return WEFT_ERR_OK;
}

static weft_err make_timed(weft_cudev *g, const weft_cudev_queue *q, recorded *f, weft_diag *diag)
{
    recorder r = {.g = g, .stream = q->stream, .diag = diag};
    pthread_mutex_lock(&g->lock);
    weft_err err = record_timed(&r, q, f->list);
    pthread_mutex_unlock(&g->lock);
    if (err == WEFT_ERR_OK)
        err = weft_cudev__check(g, g->cu->cuGraphInstantiateWithFlags(&f->timed, r.graph, 0),
                                "cuGraphInstantiateWithFlags", diag);
    if (r.graph)
        (void)g->cu->cuGraphDestroy(r.graph);
    return err;
}

/* Without graphs the times include the host's calls. */
static weft_err run_marked(weft_cudev *g, weft_cudev_queue *q, const weft_bound_list *list,
                           bool traced, weft_diag *diag)
{
    WEFT_TRY(mark(g, q, 0, diag));
    for (uint32_t i = 0; i < list->n; i++) {
        WEFT_TRY(traced ? weft_cudev__trace_launch(q, list, i, diag)
                        : weft_cudev__run_launch(q, &list->at[i], diag));
        WEFT_TRY(mark(g, q, i + 1, diag));
    }
    return WEFT_ERR_OK;
}

/* Runs all launches in sequence with events between them, and waits. */
static weft_err run_row(weft_engine *e, weft_cudev_queue *q, recorded *f, bool traced,
                        weft_diag *diag)
{
    weft_cudev *g = weft_cudev__of(e);
    bool graph = g->lib->graphs && !traced;
    if (graph && !f->timed)
        WEFT_TRY(make_timed(g, q, f, diag));
    WEFT_TRY(graph ? weft_cudev__check(g, g->cu->cuGraphLaunch(f->timed, q->stream),
                                       "cuGraphLaunch", diag)
                   : run_marked(g, q, f->list, traced, diag));
    return weft_cudev__wait(e, q, diag);
}

weft_err weft_cudev__run_graph_timed(weft_engine *e, void *queue, void *data, double *time_us,
                                     weft_diag *diag)
{
    weft_cudev *g = weft_cudev__of(e);
    weft_cudev_queue *q = queue;
    recorded *f = data;
    WEFT_TRY(make_events(g, q, f->list->n + 1, diag));
    bool traced = weft_cudev__trace_begin();
    weft_err err = run_row(e, q, f, traced, diag);
    bool told = traced && weft_cudev__trace_end(f->list, time_us);
    if (err != WEFT_ERR_OK || told)
        return err;
    for (uint32_t i = 0; i < f->list->n; i++) {
        double us;
        WEFT_TRY(elapsed(g, q, i, i + 1, &us, diag));
        time_us[f->list->at[i].launch] += us;
    }
    return WEFT_ERR_OK;
}

weft_err weft_cudev__time_graph(weft_engine *e, void *queue, void *data, uint32_t n, double *out_us,
                                weft_diag *diag)
{
    weft_cudev *g = weft_cudev__of(e);
    weft_cudev_queue *q = queue;
    double us;
    WEFT_TRY(make_events(g, q, 2, diag));
    WEFT_TRY(mark(g, q, 0, diag));
    for (uint32_t i = 0; i < n; i++)
        WEFT_TRY(weft_cudev__run_graph(e, queue, data, diag));
    WEFT_TRY(mark(g, q, 1, diag));
    WEFT_TRY(weft_cudev__wait(e, queue, diag));
    WEFT_TRY(elapsed(g, q, 0, 1, &us, diag));
    *out_us = us / n;
    return WEFT_ERR_OK;
}
