/* Test double of libcuda.so.1: graphs. Nodes run in a topological order as different as possible
 * from the order in which they were added. Nodes without a path between them must not access the
 * same bytes if one of them writes. */
#include "libcuda_double.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct exec_node {
    weft_work work;
    size_t *after;
    size_t n_after, missing;
    uint64_t *before; /* bit set of the nodes that ended when this one starts */
} exec_node;

struct weft_cuda_exec {
    weft_object o;
    exec_node *node;
    size_t n;
    bool checked;
};

/* -- Graphs ----------------------------------------------------------------------------------- */

static void end_node(weft_object *o)
{
    weft_cuda_node *n = (weft_cuda_node *)o;
    weft_work__free(&n->work);
    free(n->after);
    n->after = NULL;
    n->n_after = 0;
}

static void end_graph(weft_object *o)
{
    weft_cuda_graph *g = (weft_cuda_graph *)o;
    for (size_t i = 0; i < g->n; i++)
        weft_cuda__kill(&g->node[i]->o);
    free(g->node);
    g->node = NULL;
    g->n = 0;
}

/* Checks a list of predecessors: live nodes of this graph. */
static bool check_after(weft_cuda_graph *g, weft_cuda_node *const *after, size_t n,
                        const char *call)
{
    for (size_t i = 0; i < n; i++) {
        weft_cuda_node *x = weft_cuda__get(after[i], WEFT_NODE, call);
        if (!x)
            return false;
        if (x->graph != g) {
            weft_double_mistake("%s: node %u is of another graph", call, x->o.serial);
            return false;
        }
        for (size_t k = 0; k < i; k++) {
            if (after[k] != x)
                continue;
            weft_double_mistake("%s: node %u is given twice", call, x->o.serial);
            return false;
        }
    }
    return true;
}

weft_cu_result weft_graph__add(weft_cuda_graph *g, weft_cuda_node *const *after, size_t n_after,
                               weft_work *w, weft_cuda_node **out)
{
    if (w->ctx && g->ctx && w->ctx != g->ctx)
        weft_double_mistake("graph %u: %s runs in context %u, nodes before it in %u", g->o.serial,
                            w->what, w->ctx->o.serial, g->ctx->o.serial);
    g->ctx = w->ctx ? w->ctx : g->ctx;
    if (g->n == g->room) {
        size_t room = g->room ? 2 * g->room : 16;
        weft_cuda_node **p = realloc(g->node, room * sizeof(weft_cuda_node *));
        if (!p) {
            weft_work__free(w);
            return WEFT_CUDA_ERROR_OUT_OF_MEMORY;
        }
        g->node = p;
        g->room = room;
    }
    weft_cuda_node **copy = calloc(n_after + 1, sizeof(weft_cuda_node *));
    weft_cuda_node *n = copy ? weft_cuda__make(WEFT_NODE, sizeof *n, end_node) : NULL;
    if (!n) {
        free(copy);
        weft_work__free(w);
        return WEFT_CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < n_after; i++)
        copy[i] = after[i];
    n->o.device = g->o.device;
    n->graph = g;
    n->number = g->n;
    n->work = *w;
    n->after = copy;
    n->n_after = n_after;
    g->node[g->n++] = n;
    *out = n;
    return 0;
}

weft_cu_result cuGraphCreate(weft_cu_graph *out, unsigned flags)
{
    weft_cu_result r = weft_cuda__enter("cuGraphCreate", WEFT_IN_CONTEXT);
    if (!r && flags)
        r = WEFT_CUDA_ERROR_INVALID_VALUE;
    weft_cuda_graph *g = r ? NULL : weft_cuda__make(WEFT_GRAPH, sizeof *g, end_graph);
    if (g)
        *out = (weft_cu_graph)g;
    else if (!r)
        r = WEFT_CUDA_ERROR_OUT_OF_MEMORY;
    return weft_cuda__leave(r, "cuGraphCreate", "%u", flags);
}

weft_cu_result cuGraphDestroy(weft_cu_graph graph)
{
    weft_cu_result r = weft_cuda__enter("cuGraphDestroy", WEFT_AFTER_INIT);
    weft_cuda_graph *g = weft_cuda__get(graph, WEFT_GRAPH, "cuGraphDestroy");
    if (g) {
        if (g->capturing)
            weft_double_mistake("cuGraphDestroy: a stream is captured into graph %u", g->o.serial);
        weft_cuda__kill(&g->o);
    } else if (!r) {
        r = WEFT_CUDA_ERROR_INVALID_HANDLE;
    }
    return weft_cuda__leave(r, "cuGraphDestroy", "%u", g ? g->o.serial : 0);
}

/* -- Nodes ------------------------------------------------------------------------------------ */

static bool is_zero(const void *at, size_t bytes)
{
    const unsigned char *p = at;
    for (size_t i = 0; i < bytes; i++)
        if (p[i])
            return false;
    return true;
}

/* NULL: the current context of the thread. */
static weft_cuda_ctx *find_ctx(weft_cu_context ctx)
{
    return ctx ? weft_cuda__get(ctx, WEFT_CONTEXT, "cuGraphAddNode") : weft_cuda__current();
}

static weft_cu_result kernel_work(const weft_cu_kernel_node *k, weft_work *out)
{
    const char *call = "cuGraphAddNode";
    const unsigned grid[3] = {k->gridDimX, k->gridDimY, k->gridDimZ};
    const unsigned block[3] = {k->blockDimX, k->blockDimY, k->blockDimZ};
    void *kernel = k->func ? (void *)k->func : (void *)k->kern;
    return weft_kernel__work(out, call, kernel, grid, block, k->sharedMemBytes, k->kernelParams,
                             k->extra);
}

static uintptr_t side(unsigned type, const void *host, weft_cu_deviceptr device, size_t bytes)
{
    const char *call = "cuGraphAddNode: copy";
    uintptr_t at = type == WEFT_CU_MEMORYTYPE_DEVICE ? (uintptr_t)device : (uintptr_t)host;
    bool ok = type == WEFT_CU_MEMORYTYPE_DEVICE ? weft_memory__check(call, at, bytes)
              : type == WEFT_CU_MEMORYTYPE_HOST ? weft_memory__check_host(call, at, bytes)
                                                : false;
    return ok ? at : 0;
}

/* Of all copy nodes, only copies of one row are supported. */
static weft_cu_result copy_work(const weft_cu_memcpy_node *c, weft_work *out)
{
    const weft_cu_memcpy3d *p = &c->copyParams;
    size_t bytes = p->WidthInBytes;
    uintptr_t src = side(p->srcMemoryType, p->srcHost, p->srcDevice, bytes);
    uintptr_t dst = side(p->dstMemoryType, p->dstHost, p->dstDevice, bytes);
    if (!src || !dst || p->Height != 1 || p->Depth != 1 || !bytes || p->srcXInBytes ||
        p->dstXInBytes || p->srcY || p->dstY || p->srcZ || p->dstZ || c->flags || c->reserved) {
        weft_double_mistake("cuGraphAddNode: a copy of %zu x %zu x %zu bytes that is not a row",
                            bytes, p->Height, p->Depth);
        return WEFT_CUDA_ERROR_INVALID_VALUE;
    }
    if ((dst < src ? src - dst : dst - src) < bytes) {
        weft_double_mistake("cuGraphAddNode: source and destination of a copy overlap");
        return WEFT_CUDA_ERROR_INVALID_VALUE;
    }
    *out = (weft_work){
        .kind = WEFT_WORK_COPY, .dst = (void *)dst, .src = (const void *)src, .bytes = bytes};
    snprintf(out->what, sizeof out->what, "copy of %zu bytes", bytes);
    weft_spans__add(&out->read, src, bytes);
    weft_spans__add(&out->write, dst, bytes);
    return 0;
}

static weft_cu_result set_work(const weft_cu_memset_node *m, weft_work *out)
{
    size_t bytes = m->width * m->elementSize;
    unsigned char byte = (unsigned char)m->value;
    bool same = m->elementSize == 1 || m->value == 0;
    if (!same || m->height != 1 || !bytes ||
        (m->elementSize != 1 && m->elementSize != 2 && m->elementSize != 4) ||
        m->dst % m->elementSize ||
        !weft_memory__check("cuGraphAddNode: set", (uintptr_t)m->dst, bytes)) {
        weft_double_mistake("cuGraphAddNode: a set of %zu x %zu elements of %u bytes to %u",
                            m->width, m->height, m->elementSize, m->value);
        return WEFT_CUDA_ERROR_INVALID_VALUE;
    }
    *out = (weft_work){.kind = WEFT_WORK_SET,
                       .dst = (void *)(uintptr_t)m->dst,
                       .bytes = bytes,
                       .value = byte,
                       .what = "set"};
    weft_spans__add(&out->write, (uintptr_t)m->dst, bytes);
    return 0;
}

static weft_cu_result event_work(const weft_cu_event_node *e, weft_work *out)
{
    weft_cuda_event *event = weft_cuda__get(e->event, WEFT_EVENT, "cuGraphAddNode");
    if (!event)
        return WEFT_CUDA_ERROR_INVALID_HANDLE;
    *out = (weft_work){.kind = WEFT_WORK_EVENT, .event = event, .what = "event"};
    return 0;
}

/* The context that a node runs in; false: it has none. */
static bool node_ctx(const weft_cu_node_params *p, weft_cuda_ctx **out)
{
    *out = NULL;
    if (p->type == WEFT_CU_GRAPH_NODE_TYPE_KERNEL)
        *out = find_ctx(p->u.kernel.ctx);
    else if (p->type == WEFT_CU_GRAPH_NODE_TYPE_MEMCPY)
        *out = find_ctx(p->u.memcpy.copyCtx);
    else if (p->type == WEFT_CU_GRAPH_NODE_TYPE_MEMSET)
        *out = find_ctx(p->u.memset.ctx);
    else
        return true;
    return *out != NULL;
}

static weft_cu_result node_work(const weft_cu_node_params *p, weft_work *out)
{
    static const size_t used[] = {sizeof(weft_cu_kernel_node), sizeof(weft_cu_memcpy_node),
                                  sizeof(weft_cu_memset_node)};
    size_t room = sizeof p->u, n = p->type < 3 ? used[p->type] : 0;
    if (p->type == WEFT_CU_GRAPH_NODE_TYPE_EVENT_RECORD)
        n = sizeof p->u.eventRecord;
    if (!is_zero(p->reserved0, sizeof p->reserved0) || p->reserved2 ||
        !is_zero((const char *)&p->u + n, room - n)) {
        weft_double_mistake("cuGraphAddNode: unused bytes of the parameters are not zero");
        return WEFT_CUDA_ERROR_INVALID_VALUE;
    }
    switch (p->type) {
    case WEFT_CU_GRAPH_NODE_TYPE_KERNEL:
        return kernel_work(&p->u.kernel, out);
    case WEFT_CU_GRAPH_NODE_TYPE_MEMCPY:
        return copy_work(&p->u.memcpy, out);
    case WEFT_CU_GRAPH_NODE_TYPE_MEMSET:
        return set_work(&p->u.memset, out);
    case WEFT_CU_GRAPH_NODE_TYPE_EMPTY:
        *out = (weft_work){.kind = WEFT_WORK_EMPTY, .what = "empty node"};
        return 0;
    case WEFT_CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return event_work(&p->u.eventRecord, out);
    default:
        weft_double_mistake("cuGraphAddNode: nodes of type %u are unknown", p->type);
        return WEFT_CUDA_ERROR_INVALID_VALUE;
    }
}

weft_cu_result cuGraphAddNode(weft_cu_graph_node *out, weft_cu_graph graph,
                              const weft_cu_graph_node *after, size_t n_after,
                              weft_cu_node_params *params)
{
    const char *call = "cuGraphAddNode";
    weft_cu_result r = weft_cuda__enter(call, WEFT_IN_CONTEXT);
    weft_cuda_graph *g = r ? NULL : weft_cuda__get(graph, WEFT_GRAPH, call);
    weft_cuda_node *const *list = (weft_cuda_node *const *)after;
    weft_work w = {0};
    if (!r && (!g || !check_after(g, list, n_after, call)))
        r = WEFT_CUDA_ERROR_INVALID_VALUE;
    if (!r)
        r = node_work(params, &w);
    if (!r && !node_ctx(params, &w.ctx)) {
        weft_work__free(&w);
        r = WEFT_CUDA_ERROR_INVALID_CONTEXT;
    }
    char what[sizeof w.what];
    memcpy(what, w.what, sizeof what);
    weft_cuda_node *made = NULL;
    if (!r)
        r = weft_graph__add(g, list, n_after, &w, &made);
    if (!r)
        *out = (weft_cu_graph_node)made;
    return weft_cuda__leave(r, call, "%u, %zu edges, %s", g ? g->o.serial : 0, n_after, what);
}

/* -- Capture ---------------------------------------------------------------------------------- */

weft_cu_result cuStreamBeginCaptureToGraph(weft_cu_stream stream, weft_cu_graph graph,
                                           const weft_cu_graph_node *after,
                                           const weft_cu_edge_data *edge, size_t n_after,
                                           unsigned mode)
{
    const char *call = "cuStreamBeginCaptureToGraph";
    weft_cu_result r = weft_cuda__enter(call, WEFT_IN_CONTEXT);
    weft_cuda_stream *s = r ? NULL : weft_cuda__get(stream, WEFT_STREAM, call);
    weft_cuda_graph *g = r ? NULL : weft_cuda__get(graph, WEFT_GRAPH, call);
    weft_cuda_node *const *list = (weft_cuda_node *const *)after;
    if (!r && (!s || !g || edge || mode > 2 || !check_after(g, list, n_after, call)))
        r = WEFT_CUDA_ERROR_INVALID_VALUE;
    if (!r && weft_stream__is_captured(s, call))
        r = WEFT_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    weft_cuda_node **copy = r ? NULL : calloc(n_after + 1, sizeof(weft_cuda_node *));
    if (!r && !copy)
        r = WEFT_CUDA_ERROR_OUT_OF_MEMORY;
    if (!r) {
        for (size_t i = 0; i < n_after; i++)
            copy[i] = list[i];
        free(s->after);
        s->after = copy;
        s->n_after = n_after;
        s->capture = g;
        s->broken = false;
        g->capturing++;
    }
    return weft_cuda__leave(r, call, "%u, %u, %zu edges", s ? s->o.serial : 0, g ? g->o.serial : 0,
                            n_after);
}

weft_cu_result cuStreamGetCaptureInfo(weft_cu_stream stream, unsigned *status, uint64_t *id,
                                      weft_cu_graph *graph, const weft_cu_graph_node **last,
                                      size_t *n_last)
{
    const char *call = "cuStreamGetCaptureInfo";
    weft_cu_result r = weft_cuda__enter(call, WEFT_IN_CONTEXT);
    weft_cuda_stream *s = r ? NULL : weft_cuda__get(stream, WEFT_STREAM, call);
    if (!r && !s)
        r = WEFT_CUDA_ERROR_INVALID_HANDLE;
    if (!r) {
        *status = !s->capture ? WEFT_CU_STREAM_CAPTURE_STATUS_NONE
                  : s->broken ? WEFT_CU_STREAM_CAPTURE_STATUS_INVALIDATED
                              : WEFT_CU_STREAM_CAPTURE_STATUS_ACTIVE;
        if (id)
            *id = s->capture ? s->o.serial : 0;
        if (graph)
            *graph = (weft_cu_graph)s->capture;
        if (last)
            *last = (const weft_cu_graph_node *)s->after;
        if (n_last)
            *n_last = s->capture ? s->n_after : 0;
    }
    return weft_cuda__leave(r, call, "%u", s ? s->o.serial : 0);
}

/* A capture that was invalidated, or cannot be ended, destroys its graph. */
weft_cu_result cuStreamEndCapture(weft_cu_stream stream, weft_cu_graph *graph)
{
    const char *call = "cuStreamEndCapture";
    weft_cu_result r = weft_cuda__enter(call, WEFT_IN_CONTEXT);
    weft_cuda_stream *s = weft_cuda__get(stream, WEFT_STREAM, call);
    if (s && !s->capture)
        weft_double_mistake("%s: stream %u is not captured", call, s->o.serial);
    if (!s || !s->capture) {
        r = r ? r : WEFT_CUDA_ERROR_INVALID_VALUE;
    } else {
        if (!r && s->broken)
            r = WEFT_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        s->capture->capturing--;
        *graph = r ? NULL : (weft_cu_graph)s->capture;
        if (r)
            weft_cuda__kill(&s->capture->o);
        s->capture = NULL;
        s->n_after = 0;
    }
    return weft_cuda__leave(r, call, "%u", s ? s->o.serial : 0);
}

/* -- Executables ------------------------------------------------------------------------------ */

static void end_exec(weft_object *o)
{
    weft_cuda_exec *x = (weft_cuda_exec *)o;
    for (size_t i = 0; i < x->n; i++) {
        weft_work__free(&x->node[i].work);
        free(x->node[i].after);
        free(x->node[i].before);
    }
    free(x->node);
    x->node = NULL;
    x->n = 0;
}

/* Nodes are in topological order, because an edge can only be added from an existing node. */
static bool fill_exec(weft_cuda_exec *x, const weft_cuda_graph *g)
{
    size_t words = (g->n + 63) / 64;
    x->node = calloc(g->n + 1, sizeof *x->node);
    if (!x->node)
        return false;
    for (size_t i = 0; i < g->n; i++) {
        const weft_cuda_node *n = g->node[i];
        exec_node *y = &x->node[i];
        x->n++;
        y->after = calloc(n->n_after + 1, sizeof *y->after);
        y->before = calloc(words, sizeof *y->before);
        if (!weft_work__copy(&y->work, &n->work) || !y->after || !y->before)
            return false;
        y->n_after = n->n_after;
        for (size_t k = 0; k < n->n_after; k++) {
            size_t p = n->after[k]->number;
            y->after[k] = p;
            y->before[p / 64] |= 1ull << (p % 64);
            for (size_t w = 0; w < words; w++)
                y->before[w] |= x->node[p].before[w];
        }
    }
    return true;
}

weft_cu_result cuGraphInstantiateWithFlags(weft_cu_graph_exec *out, weft_cu_graph graph,
                                           unsigned long long flags)
{
    const char *call = "cuGraphInstantiateWithFlags";
    weft_cu_result r = weft_cuda__enter(call, WEFT_IN_CONTEXT);
    weft_cuda_graph *g = r ? NULL : weft_cuda__get(graph, WEFT_GRAPH, call);
    if (!r && (!g || flags))
        r = WEFT_CUDA_ERROR_INVALID_VALUE;
    if (!r && g->capturing) {
        weft_double_mistake("%s: a stream is captured into graph %u", call, g->o.serial);
        r = WEFT_CUDA_ERROR_INVALID_VALUE;
    }
    weft_cuda_exec *x = r ? NULL : weft_cuda__make(WEFT_EXEC, sizeof *x, end_exec);
    if (!r && (!x || !fill_exec(x, g))) {
        r = WEFT_CUDA_ERROR_OUT_OF_MEMORY;
        if (x)
            weft_cuda__kill(&x->o);
    }
    if (!r)
        *out = (weft_cu_graph_exec)x;
    return weft_cuda__leave(r, call, "%u, %zu nodes", g ? g->o.serial : 0, x ? x->n : 0);
}

/* The same kinds of nodes with the same edges. */
static bool same_shape(const weft_cuda_exec *a, const weft_cuda_exec *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        const exec_node *x = &a->node[i], *y = &b->node[i];
        if (x->work.kind != y->work.kind || x->n_after != y->n_after ||
            memcmp(x->after, y->after, x->n_after * sizeof *x->after) != 0)
            return false;
    }
    return true;
}

/* Pending launches are not affected: they are executed first. */
weft_cu_result cuGraphExecUpdate(weft_cu_graph_exec exec, weft_cu_graph graph,
                                 weft_cu_exec_update *result)
{
    const char *call = "cuGraphExecUpdate";
    weft_cu_result r = weft_cuda__enter(call, WEFT_IN_CONTEXT);
    weft_cuda_exec *x = r ? NULL : weft_cuda__get(exec, WEFT_EXEC, call), now = {0};
    weft_cuda_graph *g = r ? NULL : weft_cuda__get(graph, WEFT_GRAPH, call);
    if (!r && (!x || !g || g->capturing))
        r = WEFT_CUDA_ERROR_INVALID_VALUE;
    if (!r && weft_stream__uses(&x->o))
        r = weft_stream__finish_all();
    if (!r && !fill_exec(&now, g))
        r = WEFT_CUDA_ERROR_OUT_OF_MEMORY;
    if (!r && !same_shape(x, &now))
        r = WEFT_CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    if (!r) {
        exec_node *node = x->node;
        x->node = now.node;
        now.node = node;
        x->checked = false;
    }
    if (now.node)
        end_exec(&now.o);
    memset(result, 0, sizeof *result);
    result->result = r ? 1 : 0;
    return weft_cuda__leave(r, call, "%u, %u", x ? x->o.serial : 0, g ? g->o.serial : 0);
}

static void check_pair(const exec_node *a, const exec_node *b)
{
    uintptr_t at = weft_spans__meet(&a->work.write, &b->work.write);
    if (!at)
        at = weft_spans__meet(&a->work.write, &b->work.read);
    if (!at)
        at = weft_spans__meet(&a->work.read, &b->work.write);
    if (at)
        weft_double_mistake("graph: no edge between %s and %s, both access %p", a->work.what,
                            b->work.what, (void *)at);
}

static void check_edges(weft_cuda_exec *x)
{
    for (size_t i = 0; i < x->n; i++) {
        weft_spans__sort(&x->node[i].work.read);
        weft_spans__sort(&x->node[i].work.write);
    }
    for (size_t i = 0; i < x->n; i++)
        for (size_t k = 0; k < i; k++)
            if (!(x->node[i].before[k / 64] >> (k % 64) & 1))
                check_pair(&x->node[k], &x->node[i]);
    x->checked = true;
}

/* WEFT_DOUBLE_ORDER=first: in the order of addition; otherwise the last node that is ready runs
 * next. */
weft_cu_result weft_exec__run(weft_cuda_exec *x, weft_spans *read, weft_spans *write)
{
    const char *order = weft_double_text("ORDER");
    bool first = order && strcmp(order, "first") == 0;
    bool *done = calloc(x->n + 1, sizeof *done);
    weft_cu_result r = done ? 0 : WEFT_CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t left = x->n; left && !r; left--) {
        exec_node *next = NULL;
        for (size_t i = 0; i < x->n && !next; i++) {
            size_t at = first ? i : x->n - 1 - i;
            bool ready = !done[at];
            for (size_t k = 0; ready && k < x->node[at].n_after; k++)
                ready = done[x->node[at].after[k]];
            if (ready)
                next = &x->node[at];
        }
        done[next - x->node] = true;
        r = weft_work__run(&next->work);
    }
    free(done);
    if (!r && !x->checked)
        check_edges(x);
    for (size_t i = 0; i < x->n; i++) {
        const weft_work *w = &x->node[i].work;
        for (size_t k = 0; k < w->read.n; k++)
            weft_spans__add(read, w->read.at[k].at, w->read.at[k].bytes);
        for (size_t k = 0; k < w->write.n; k++)
            weft_spans__add(write, w->write.at[k].at, w->write.at[k].bytes);
    }
    return r;
}

weft_cu_result cuGraphUpload(weft_cu_graph_exec exec, weft_cu_stream stream)
{
    weft_cu_result r = weft_cuda__enter("cuGraphUpload", WEFT_IN_CONTEXT);
    weft_cuda_exec *x = r ? NULL : weft_cuda__get(exec, WEFT_EXEC, "cuGraphUpload");
    weft_cuda_stream *s = r ? NULL : weft_cuda__get(stream, WEFT_STREAM, "cuGraphUpload");
    if (!r && (!x || !s))
        r = WEFT_CUDA_ERROR_INVALID_HANDLE;
    return weft_cuda__leave(r, "cuGraphUpload", "%u, stream %u", x ? x->o.serial : 0,
                            s ? s->o.serial : 0);
}

weft_cu_result cuGraphLaunch(weft_cu_graph_exec exec, weft_cu_stream stream)
{
    weft_cu_result r = weft_cuda__enter("cuGraphLaunch", WEFT_IN_CONTEXT);
    weft_cuda_exec *x = r ? NULL : weft_cuda__get(exec, WEFT_EXEC, "cuGraphLaunch");
    weft_cuda_stream *s = r ? NULL : weft_cuda__get(stream, WEFT_STREAM, "cuGraphLaunch");
    if (!r && (!x || !s))
        r = WEFT_CUDA_ERROR_INVALID_HANDLE;
    for (size_t i = 0; !r && i < x->n; i++) {
        const weft_cuda_kernel *k = x->node[i].work.kernel;
        if (!k || !k->o.dead)
            continue;
        weft_double_mistake("cuGraphLaunch: library %u of %s was unloaded", k->library->o.serial,
                            x->node[i].work.what);
        r = WEFT_CUDA_ERROR_INVALID_HANDLE;
    }
    for (size_t i = 0; !r && i < x->n; i++) {
        weft_cuda_event *e = x->node[i].work.event;
        if (!e)
            continue;
        if (e->o.dead) {
            weft_double_mistake("cuGraphLaunch: event %u was destroyed", e->o.serial);
            r = WEFT_CUDA_ERROR_INVALID_HANDLE;
        }
        e->recorded = e->pending = true;
    }
    if (!r) {
        weft_work w = {.kind = WEFT_WORK_GRAPH, .exec = x};
        snprintf(w.what, sizeof w.what, "graph %u", x->o.serial);
        r = weft_stream__enqueue(s, &w);
    }
    return weft_cuda__leave(r, "cuGraphLaunch", "%u, stream %u", x ? x->o.serial : 0,
                            s ? s->o.serial : 0);
}

weft_cu_result cuGraphExecDestroy(weft_cu_graph_exec exec)
{
    weft_cu_result r = weft_cuda__enter("cuGraphExecDestroy", WEFT_AFTER_INIT);
    weft_cuda_exec *x = weft_cuda__get(exec, WEFT_EXEC, "cuGraphExecDestroy");
    if (x) {
        if (weft_stream__uses(&x->o))
            weft_stream__finish_all();
        weft_cuda__kill(&x->o);
    } else if (!r) {
        r = WEFT_CUDA_ERROR_INVALID_HANDLE;
    }
    return weft_cuda__leave(r, "cuGraphExecDestroy", "%u", x ? x->o.serial : 0);
}
