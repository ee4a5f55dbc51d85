/* Lowers a graph to a workload: its kernels at given sizes, and which wait for which.
 *
 * The result is independent of the device. A node of the kernel stage is one kernel, except
 *
 *   views, shapes and sizes    none: the host computes them
 *   reorders of one pixel      none: a view (ops/place.h)
 *   recurrent layers           one GEMM for the inputs of all steps, then for each step a GEMM with
 *                              the state and an element-wise kernel
 *   if                         the kernels of the branch with more work
 *   loop, scan                 the kernels of the body, as many times as there are rounds; once if
 *                              only running tells
 *
 * Lowered for a framework that runs one operator at a time (PyTorch's eager mode), also
 *
 *   slice, split, expand       none: the framework has strided views
 *   convolution with a bias    the convolution, then a kernel that adds the bias (ATen calls
 *                              cudnn_convolution and add_), or a batch norm if the bias came from
 * one
 *                              (`folded_norm`)
 *   a step of a chain          a kernel of its own
 *
 * The graph for a framework comes from the pipeline "framework", which fuses only what the
 * framework has an operator for. estimator.h defines the problem sizes; ops/nest.c computes them.
 * O(nodes + operands). */
#include "estimator/workload/workload_int.h"

#include "ops/place.h"

#include <math.h>
#include <string.h>

/* -- Problems --------------------------------------------------------------------------------- */

static const weft_kernel_kind kind_of_form[WEFT_FORM_COUNT] = {
    [WEFT_FORM_OTHER] = WEFT_KERNEL_OTHER, [WEFT_FORM_EW] = WEFT_KERNEL_EW,
    [WEFT_FORM_MOVE] = WEFT_KERNEL_MOVE,   [WEFT_FORM_REDUCE] = WEFT_KERNEL_REDUCE,
    [WEFT_FORM_NORM] = WEFT_KERNEL_NORM,   [WEFT_FORM_SOFTMAX] = WEFT_KERNEL_SOFTMAX,
    [WEFT_FORM_POOL] = WEFT_KERNEL_POOL,   [WEFT_FORM_GEMM] = WEFT_KERNEL_GEMM,
    [WEFT_FORM_CONV] = WEFT_KERNEL_CONV,   [WEFT_FORM_ATTENTION] = WEFT_KERNEL_ATTENTION,
};

/* The function of an element-wise chain of one step, else the operator's name. */
static const char *find_fn(const weft_work_ctx *work, weft_diag *diag)
{
    const weft_attr *steps = weft_attrs_find(work->attrs, WEFT_ATTR_STEPS);
    weft_step step;
    if (!steps || steps->kind != WEFT_KIND_STRS) /* the steps of a slice are numbers */
        return work->op->name;
    if (steps->n != 1 ||
        weft_steps_parse(steps->u.strs, 1, work->n_in, diag, (weft_where){0}, &step))
        return NULL;
    return weft_step_name(step.op);
}

/* Winograd F(4,3) needs a quarter of the multiplications; its transforms cost about half of that
 * gain. */
static double find_saving(weft_attrs attrs)
{
    return strcmp(weft_attrs_str(attrs, WEFT_ATTR_ALGO, ""), "winograd") == 0 ? 2 : 0;
}

/* Few rows, and convolutions of few channels per group, have kernels of their own on GPUs. */
static weft_staging find_staging(const weft_work_ctx *work, const weft_kernel *k)
{
    enum { FEW_ROWS = 16, FEW_CHANNELS = 8 };
    bool product = (work->op->traits & WEFT_T_GEMM) != 0;
    bool bytes = k->dtype == WEFT_DTYPE_I8 || k->dtype == WEFT_DTYPE_U8;
    double channels = k->conv.in_channels / (k->conv.groups >= 1 ? k->conv.groups : 1);
    if (!product || !bytes || (k->kind == WEFT_KERNEL_GEMM && k->m * k->batch <= FEW_ROWS) ||
        (k->kind != WEFT_KERNEL_GEMM && k->kind != WEFT_KERNEL_CONV) ||
        (k->kind == WEFT_KERNEL_CONV && k->batch > 1 &&
         (channels < FEW_CHANNELS || k->n < FEW_CHANNELS)))
        return (weft_staging){0};
    return (weft_staging){.launches = 2,
                          .packed_bytes = k->batch * k->m * k->k,
                          .sum_bytes = k->batch * k->m * k->n * (double)sizeof(int32_t)};
}

static weft_kernel make_problem(const weft_work_ctx *work, weft_diag *diag, weft_form *out_form)
{
    weft_nest nest = weft_op_nest(work);
    weft_kernel k = {.kind = kind_of_form[nest.form],
                     .dtype = work->n_out > 0 ? (weft_dtype)work->out[0].dtype : WEFT_DTYPE_F32,
                     .fn = find_fn(work, diag),
                     .work = weft_op_work(work),
                     .batch = nest.batch,
                     .m = nest.m,
                     .n = nest.n,
                     .k = nest.k,
                     .rows = nest.rows,
                     .cols = nest.cols,
                     .conv = nest.conv,
                     .delta = nest.delta,
                     .flop_saving = find_saving(work->attrs)};
    /* The type of the arithmetic is that of the first operand (a comparison of floats gives
     * bool). */
    if (work->n_in > 0 && work->in[0].present)
        k.dtype = (weft_dtype)work->in[0].dtype;
    /* With one filter a channel there is no reuse between filters, and matrix units do not help. */
    if (k.kind == WEFT_KERNEL_CONV && nest.n <= 1 && nest.batch > 1)
        k.kind = WEFT_KERNEL_DEPTHWISE;
    k.staging = find_staging(work, &k);
    *out_form = nest.form;
    return k;
}

/* -- Nodes ------------------------------------------------------------------------------------ */

typedef struct lowering_ctx {
    weft_sizes s;
    weft_lowering lowering;
    bool folded_norm;
    WEFT_VEC(weft_graph_kernel) kernel;
    weft_node node;
    const weft_work_ctx *work;
} lowering_ctx;

static void add_kernel(lowering_ctx *cx, const weft_kernel *kernel, double launches)
{
    weft_graph_kernel k = {.node = cx->node,
                           .op = cx->work->op->name,
                           .kernel = *kernel,
                           .launches = (uint32_t)fmin(fmax(launches, 1), 1 << 24)};
    const weft_work *w = &kernel->work;
    if (w->flops + w->bytes_read + w->bytes_written + w->weight_bytes > 0)
        WEFT_VEC_PUSH(cx->s.arena, &cx->kernel, k);
}

static bool make_operand(const lowering_ctx *cx, weft_val v, weft_work_operand *out)
{
    if (!v.i)
        return true;
    const weft_ttype *type = weft_val_ttype(cx->s.m, v);
    *out = (weft_work_operand){.present = true,
                               .is_weight = weft_val_get_kind(cx->s.m, v) == WEFT_VAL_WEIGHT,
                               .dtype = type->dtype,
                               .rank = type->rank};
    return weft_sizes__eval(&cx->s, type, out->dim);
}

/* A GEMM of a recurrent layer, in its type. */
static weft_kernel make_gemm(const weft_kernel *like, double batch, double m, double n, double k)
{
    double size = (double)weft_dtype_size(like->dtype);
    return (weft_kernel){.kind = WEFT_KERNEL_GEMM,
                         .dtype = like->dtype,
                         .fn = like->fn,
                         .work = {.flops = 2 * batch * m * n * k,
                                  .bytes_read = batch * m * k * size,
                                  .bytes_written = batch * m * n * size,
                                  .weight_bytes = batch * n * k * size},
                         .batch = batch,
                         .m = m,
                         .n = n,
                         .k = k};
}

/* The input GEMM covers all time steps; the state GEMM runs once for each. The directions of a
 * layer run side by side: they are the `batch` of the GEMMs. */
static void add_recurrent(lowering_ctx *cx, const weft_kernel *layer)
{
    double size = (double)weft_dtype_size(layer->dtype), steps = layer->rows;
    weft_kernel input = make_gemm(layer, layer->batch, layer->m * steps, layer->n, layer->cols);
    weft_kernel state = make_gemm(layer, layer->batch, layer->m, layer->n, layer->k);
    double gates = layer->batch * layer->m * layer->n;
    weft_kernel cell = {.kind = WEFT_KERNEL_EW,
                        .dtype = layer->dtype,
                        .fn = layer->fn,
                        .work = {.flops = 4 * gates,
                                 .bytes_read = 2 * gates * size,
                                 .bytes_written = layer->batch * layer->m * layer->k * size},
                        .rows = layer->batch * layer->m,
                        .cols = layer->n};
    if (!(steps >= 1))
        return;
    add_kernel(cx, &input, 1);
    add_kernel(cx, &state, steps);
    add_kernel(cx, &cell, steps);
}

/* Operators that are strided views in a framework, and copies in the kernel stage. */
static bool is_framework_view(weft_op_id op)
{
    static const weft_op_id views[] = {WEFT_OP_SLICE, WEFT_OP_SPLIT, WEFT_OP_EXPAND};
    for (size_t i = 0; i < sizeof views / sizeof views[0]; i++)
        if (views[i] == op)
            return true;
    return false;
}

/* The kernel of the bias, or of the batch norm that was folded into it: reads and writes the
 * result, one number (or four) a channel. */
static weft_kernel make_bias(const lowering_ctx *cx, const weft_kernel *conv)
{
    double size = (double)weft_dtype_size(conv->dtype), channels = conv->conv.out_channels;
    double numel = conv->rows * conv->cols;
    weft_kernel k = {.kind = WEFT_KERNEL_EW,
                     .dtype = conv->dtype,
                     .fn = "add",
                     .work = {.flops = numel,
                              .bytes_read = numel * size,
                              .bytes_written = numel * size,
                              .weight_bytes = channels * size},
                     .rows = conv->rows,
                     .cols = conv->cols};
    if (cx->folded_norm) {
        k.kind = WEFT_KERNEL_NORM;
        k.fn = "batch_norm";
        k.work.flops = 8 * numel;
        k.work.weight_bytes = 4 * channels * size;
        k.batch = conv->conv.images;
        k.rows = channels;
        k.cols = numel / channels;
    }
    return k;
}

static void add_framework_conv(lowering_ctx *cx, weft_kernel *conv)
{
    const weft_work_ctx *work = cx->work;
    bool has_bias = work->n_in > 2 && work->in[2].present && conv->rows * conv->cols >= 1;
    if (has_bias) {
        conv->work.flops -= conv->rows * conv->cols;
        conv->work.weight_bytes -=
            work->in[2].is_weight ? conv->conv.out_channels * (double)weft_dtype_size(conv->dtype)
                                  : 0;
    }
    add_kernel(cx, conv, 1);
    if (has_bias) {
        weft_kernel bias = make_bias(cx, conv);
        add_kernel(cx, &bias, 1);
    }
}

static weft_err lower_node(lowering_ctx *cx, weft_node node, uint32_t depth);

static double total_work(const lowering_ctx *cx, uint32_t from)
{
    double sum = 0;
    for (uint32_t i = from; i < cx->kernel.len; i++) {
        const weft_work *w = &cx->kernel.at[i].kernel.work;
        sum += (w->flops + w->bytes_read + w->bytes_written + w->weight_bytes) *
               cx->kernel.at[i].launches;
    }
    return sum;
}

/* Rounds of a loop or scan; 1 if they are not known. */
static double count_rounds(const lowering_ctx *cx, weft_node node)
{
    weft_module *m = cx->s.m;
    weft_flow_layout l;
    int64_t dim[WEFT_RANK_MAX], rounds = 1;
    weft_val count = weft_node_in(m, node, 0);
    weft_weight w = count.i ? weft_val_weight(m, count) : (weft_weight){0};
    if (!weft_node_flow(m, node, &l))
        return 1;
    if (weft_node_op(m, node) == WEFT_OP_SCAN) {
        const weft_ttype *t = weft_val_ttype(m, weft_node_in(m, node, l.n_carried));
        uint32_t axis;
        if (weft_flow_axis(weft_node_attrs(m, node), false, 0, t->rank, &axis) &&
            weft_sizes__eval(&cx->s, t, dim))
            rounds = dim[axis];
    } else if (w.i && weft_weight_get(m, w)->bytes == sizeof rounds) {
        memcpy(&rounds, weft_weight_get(m, w)->data, sizeof rounds);
    } else if (l.n_stacked > 0 &&
               weft_sizes__eval(&cx->s, weft_val_ttype(m, weft_node_out(m, node, l.n_carried)),
                                dim)) {
        rounds = dim[0];
    }
    return fmax((double)rounds, 0);
}

/* Kernels of a node's bodies; those of the cheaper branch are dropped. */
static weft_err lower_bodies(lowering_ctx *cx, weft_node node, uint32_t depth)
{
    weft_module *m = cx->s.m;
    uint32_t first = cx->kernel.len, second = first;
    for (uint32_t b = 0; b < weft_node_body_count(m, node); b++) {
        weft_graph *body = weft_node_body(m, node, b);
        second = cx->kernel.len;
        if (!body || depth > WEFT_FLOW_DEPTH_MAX)
            return weft_diag_error(cx->s.diag, WEFT_ERR_INPUT, weft_node_where(m, node),
                                   "%s: a body is missing", weft_node_opdef(m, node)->name);
        WEFT_FOREACH_NODE (m, body, n)
            WEFT_TRY(lower_node(cx, n, depth + 1));
    }
    if (weft_node_op(m, node) == WEFT_OP_IF) {
        uint32_t n_second = cx->kernel.len - second;
        double other = total_work(cx, second), one = total_work(cx, first) - other;
        if (one < other)
            memmove(&cx->kernel.at[first], &cx->kernel.at[second],
                    n_second * sizeof *cx->kernel.at);
        cx->kernel.len = one < other ? first + n_second : second;
        return WEFT_ERR_OK;
    }
    double rounds = count_rounds(cx, node);
    for (uint32_t i = first; i < cx->kernel.len; i++)
        cx->kernel.at[i].launches =
            (uint32_t)fmin(fmax(cx->kernel.at[i].launches * rounds, 1), 1 << 24);
    return WEFT_ERR_OK;
}

static bool is_view(const weft_module *m, weft_node reorder, const weft_work_operand *in)
{
    const weft_ttype *from = weft_val_ttype(m, weft_node_in(m, reorder, 0));
    const weft_ttype *to = weft_val_ttype(m, weft_node_out(m, reorder, 0));
    return weft_place_keeps_order((weft_layout)from->layout, (weft_layout)to->layout, in->dim,
                                  in->rank);
}

static weft_err lower_node(lowering_ctx *cx, weft_node node, uint32_t depth)
{
    weft_module *m = cx->s.m;
    uint32_t n_in = weft_node_in_count(m, node), n_out = weft_node_out_count(m, node);
    const weft_op *op = weft_node_opdef(m, node);
    if (op->traits & WEFT_T_BODY)
        return lower_bodies(cx, node, depth);
    if (op->traits & WEFT_T_VIEW)
        return WEFT_ERR_OK;
    if (cx->lowering == WEFT_LOWERING_FRAMEWORK && is_framework_view(weft_node_op(m, node)))
        return WEFT_ERR_OK;
    weft_work_operand *in = weft_arena_array(cx->s.arena, (size_t)n_in + 1, sizeof *in);
    weft_work_operand *out = weft_arena_array(cx->s.arena, (size_t)n_out + 1, sizeof *out);
    bool ok = true;
    for (uint32_t i = 0; i < n_in; i++)
        ok = ok && make_operand(cx, weft_node_in(m, node, i), &in[i]);
    for (uint32_t i = 0; i < n_out; i++)
        ok = ok && make_operand(cx, weft_node_out(m, node, i), &out[i]);
    if (!ok)
        return weft_diag_error(cx->s.diag, WEFT_ERR_UNSUP, weft_node_where(m, node),
                               "%s: a shape depends on data, or is too large to estimate its cost",
                               op->name);
    if (op->id == WEFT_OP_REORDER && is_view(m, node, in))
        return WEFT_ERR_OK;
    weft_attrs attrs = weft_node_attrs(m, node);
    if (weft_attrs_bind(attrs, weft_module_dims(m), cx->s.value, cx->s.n_value, cx->s.arena,
                        &attrs) != NULL)
        attrs = weft_node_attrs(m, node); /* not evaluated: they depend on data */
    weft_work_ctx work = {
        .op = op, .attrs = attrs, .in = in, .out = out, .n_in = n_in, .n_out = n_out};
    cx->node = node;
    cx->work = &work;
    weft_form form;
    weft_kernel k = make_problem(&work, cx->s.diag, &form);
    k.launcher = cx->lowering == WEFT_LOWERING_FUSED ? WEFT_LAUNCHER_WEFT : WEFT_LAUNCHER_ANY;
    if (form == WEFT_FORM_RECURRENT)
        add_recurrent(cx, &k);
    else if (cx->lowering == WEFT_LOWERING_FRAMEWORK &&
             (k.kind == WEFT_KERNEL_CONV || k.kind == WEFT_KERNEL_DEPTHWISE))
        add_framework_conv(cx, &k);
    else
        add_kernel(cx, &k, 1);
    return WEFT_ERR_OK;
}

/* -- Graphs ----------------------------------------------------------------------------------- */

/* The edges of a node: the nodes that made its operands. */
static void add_edges(const lowering_ctx *cx, weft_node node, const uint32_t *index_of,
                      weft_workload_node *made, uint32_t *edge)
{
    weft_module *m = cx->s.m;
    for (uint32_t i = 0; i < weft_node_in_count(m, node); i++) {
        weft_val v = weft_node_in(m, node, i);
        if (v.i && weft_val_get_kind(m, v) == WEFT_VAL_NODE)
            edge[made->first_edge + made->n_edge++] = index_of[v.i];
    }
}

weft_err weft_workload_make(weft_graph *g, const int64_t *symbol,
                            const weft_estimate_options *options, weft_arena *arena,
                            weft_diag *diag, weft_workload *out)
{
    static const weft_estimate_options defaults;
    const weft_estimate_options *o = options ? options : &defaults;
    lowering_ctx cx = {.lowering = o->lowering, .folded_norm = o->folded_norm};
    weft_sizes__begin(g, symbol, arena, diag, &cx.s);
    weft_module *m = cx.s.m;
    uint32_t n_node = 0;
    size_t n_operand = 0;
    WEFT_FOREACH_NODE (m, g, counted)
        n_operand += weft_node_in_count(m, counted);
    uint32_t *index_of = weft_arena_array(arena, (size_t)weft_val_count(m) + 1, sizeof *index_of);
    uint32_t *edge = weft_arena_array(arena, n_operand + 1, sizeof *edge);
    weft_workload_node *made =
        weft_arena_array(arena, (size_t)weft_graph_node_count(g) + 1, sizeof *made);
    uint32_t n_edge = 0;
    WEFT_FOREACH_NODE (m, g, node) {
        weft_workload_node *s = &made[n_node];
        *s = (weft_workload_node){.first_kernel = cx.kernel.len, .first_edge = n_edge};
        WEFT_TRY(lower_node(&cx, node, 0));
        s->n_kernel = cx.kernel.len - s->first_kernel;
        add_edges(&cx, node, index_of, s, edge);
        n_edge += s->n_edge;
        for (uint32_t i = 0; i < weft_node_out_count(m, node); i++)
            index_of[weft_node_out(m, node, i).i] = n_node;
        n_node++;
    }
    weft_workload work = {.kernel = cx.kernel.at,
                          .n = cx.kernel.len,
                          .node = made,
                          .n_node = n_node,
                          .edge = edge,
                          .lowering = o->lowering,
                          .graph = g,
                          .beside_bytes = o->beside_bytes};
    uint32_t n_symbol = weft_graph_symbol_count(g);
    int64_t *sizes = weft_arena_array(arena, (size_t)n_symbol + 1, sizeof *sizes);
    if (n_symbol)
        memcpy(sizes, symbol, n_symbol * sizeof *sizes);
    work.symbol = sizes;
    WEFT_TRY(weft_workload__count_memory(&cx.s, symbol, o, &work));
    weft_workload__find_reuse(&cx.s, o, &work);
    *out = work;
    return WEFT_ERR_OK;
}
