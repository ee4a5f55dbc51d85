/* Estimates of kernels and of whole graphs: chooses the model, adds up, counts memory and energy.
 */
#include "estimator/estimator_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const weft_model *const model_table[] = {
#define MODEL(name) &weft_model_##name,
#include "estimator/models.def"
#undef MODEL
};

enum { MODEL_COUNT = sizeof model_table / sizeof model_table[0], UNBOUNDED_DEFAULT = 128 };

/* -- Kinds ------------------------------------------------------------------------------------ */

static const struct {
    const char *text;
    bool is_product;
} kind_table[WEFT_KERNEL_COUNT] = {
    [WEFT_KERNEL_OTHER] = {"other", false},
#define KIND(name, text, brief, is_product) [WEFT_KERNEL_##name] = {text, is_product},
#include "estimator/kinds.def"
#undef KIND
};

const char *weft_kernel_kind_name(weft_kernel_kind kind)
{
    return kind_table[kind].text;
}

bool weft_kernel_is_product(weft_kernel_kind kind)
{
    return kind_table[kind].is_product;
}

/* -- One kernel ------------------------------------------------------------------------------- */

static bool is_number(double x)
{
    return isfinite(x) && x >= 0;
}

static weft_err check_kernel(const weft_kernel *k, weft_diag *diag)
{
    if (is_number(k->work.flops) && is_number(k->work.bytes_read) &&
        is_number(k->work.bytes_written) && is_number(k->work.weight_bytes) &&
        is_number(k->batch) && is_number(k->m) && is_number(k->n) && is_number(k->k) &&
        is_number(k->flop_saving))
        return WEFT_ERR_OK;
    return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                           "kernel: sizes and work must be finite numbers from 0");
}

static const weft_model *choose_model(const weft_kernel *kernel, const weft_slice *slice,
                                      const char *name)
{
    for (size_t i = 0; i < MODEL_COUNT; i++)
        if ((!name || strcmp(name, model_table[i]->name) == 0) &&
            model_table[i]->supports(kernel, slice))
            return model_table[i];
    return NULL;
}

/* Idle power of the slice for as long as the kernel runs, and the rest in proportion to how much of
 * the arithmetic or of the bandwidth is in use. */
static double energy_j(const weft_kernel *kernel, const weft_slice *slice, double time_us,
                       bool exact_f32)
{
    const weft_gpu *gpu = slice->gpu;
    double part = weft_gpu__is_cpu(gpu) ? slice->units : slice->share;
    double saving = kernel->flop_saving > 1 ? kernel->flop_saving : 1;
    double busy = kernel->work.flops / saving /
                  (weft_slice__flops_per_us(slice, kernel, exact_f32) * time_us);
    double traffic =
        weft_slice__memory_bytes(slice, kernel) / (slice->bandwidth_gbps * 1e3 * time_us);
    double use = fmin(1, fmax(busy, traffic));
    return part * (gpu->idle_w + (gpu->power_w - gpu->idle_w) * use) * time_us * 1e-6;
}

weft_err weft_estimate_kernel(const weft_kernel *kernel, const weft_slice *slice,
                              const weft_estimate_options *options, weft_diag *diag, weft_cost *out,
                              const char **out_model)
{
    bool exact_f32 = options && options->exact_f32;
    WEFT_TRY(check_kernel(kernel, diag));
    const weft_model *model = choose_model(kernel, slice, options ? options->model : NULL);
    if (!model)
        return weft_diag_error(diag, WEFT_ERR_UNSUP, (weft_where){.item = slice->gpu->name},
                               "no model estimates such a kernel (%s) there",
                               weft_dtype_name(kernel->dtype));
    weft_timing t = model->predict(kernel, slice, exact_f32);
    if (!isfinite(t.time_us) || !(t.time_us > 0))
        return weft_diag_error(diag, WEFT_ERR_BUG, (weft_where){.item = model->name},
                               "model predicts %g us", t.time_us);
    *out =
        (weft_cost){.time_us = t.time_us,
                    .creq = fmin(1, t.units / slice->all_units),
                    .bandwidth_gbps = weft_slice__memory_bytes(slice, kernel) / (t.time_us * 1e3),
                    .energy_j = energy_j(kernel, slice, t.time_us, exact_f32),
                    .expected_error = t.expected_error};
    snprintf(out->source, sizeof out->source, "analytic");
    if (out_model)
        *out_model = model->name;
    return WEFT_ERR_OK;
}

/* -- Nodes as kernels ------------------------------------------------------------------------- */

/* Values of all symbols of the pool, -1 where not given. */
typedef struct graph_ctx {
    weft_module *m;
    weft_graph *g;
    weft_arena *arena;
    weft_diag *diag;
    int64_t *value;
    uint32_t n_value;
} graph_ctx;

static bool eval_type(const graph_ctx *cx, const weft_ttype *type, int64_t *dim)
{
    for (uint32_t i = 0; i < type->rank; i++)
        if (!weft_dim_eval(weft_module_dims(cx->m), type->dim[i], cx->value, cx->n_value,
                           &dim[i]) ||
            dim[i] < 0)
            return false;
    return weft_numel(dim, type->rank) >= 0;
}

static bool make_operand(const graph_ctx *cx, weft_val v, weft_work_operand *out)
{
    if (!v.i)
        return true;
    const weft_ttype *type = weft_val_ttype(cx->m, v);
    *out = (weft_work_operand){.present = true,
                               .is_weight = weft_val_get_kind(cx->m, v) == WEFT_VAL_WEIGHT,
                               .dtype = type->dtype,
                               .rank = type->rank};
    return eval_type(cx, type, out->dim);
}

/* b products of m x k by k x n. All from the shapes and the flops: a convolution is a product of
 * (batch x positions) x (channels x taps) by the filters of one group; attention counts as one
 * product of its flops. */
static void find_product(const weft_work_ctx *work, weft_kernel *kernel)
{
    const weft_work_operand *y = &work->out[0];
    double numel = 1, n = 1, batch = 1;
    for (uint32_t i = 0; i < y->rank; i++)
        numel *= (double)y->dim[i];
    if (numel <= 0 || y->rank == 0)
        return;
    int64_t group = weft_attrs_int(work->attrs, WEFT_ATTR_GROUP, 1);
    bool channels = weft_attrs_find(work->attrs, WEFT_ATTR_KERNEL_SHAPE) ||
                    (work->op->traits & WEFT_T_LAYOUT && y->rank >= 3);
    if (channels && y->rank >= 2) {
        kernel->kind = WEFT_KERNEL_CONV;
        batch = group > 0 ? (double)group : 1;
        n = fmax(1, (double)y->dim[1] / batch);
    } else {
        n = (double)y->dim[y->rank - 1];
        bool shared = work->n_in > 1 && work->in[1].present && work->in[1].rank <= 2;
        for (uint32_t i = 0; !shared && i + 2 < y->rank; i++)
            batch *= (double)y->dim[i];
    }
    /* One filter a channel is no product: matrix units cannot share anything. */
    if (kernel->kind == WEFT_KERNEL_CONV && n <= 1 && batch > 1)
        kernel->kind = WEFT_KERNEL_DEPTHWISE;
    else if (kernel->kind != WEFT_KERNEL_CONV)
        kernel->kind = WEFT_KERNEL_GEMM;
    kernel->batch = batch;
    kernel->n = n;
    kernel->m = fmax(1, numel / (n * batch));
    kernel->k = fmax(1, kernel->work.flops / (2 * numel));
}

static weft_err make_kernel(const graph_ctx *cx, weft_node node, weft_kernel *out)
{
    uint32_t n_in = weft_node_in_count(cx->m, node), n_out = weft_node_out_count(cx->m, node);
    weft_work_operand *in = weft_arena_array(cx->arena, (size_t)n_in + 1, sizeof *in);
    weft_work_operand *result = weft_arena_array(cx->arena, (size_t)n_out + 1, sizeof *result);
    const weft_op *op = weft_node_opdef(cx->m, node);
    bool ok = true;
    for (uint32_t i = 0; i < n_in; i++)
        ok = ok && make_operand(cx, weft_node_in(cx->m, node, i), &in[i]);
    for (uint32_t i = 0; i < n_out; i++)
        ok = ok && make_operand(cx, weft_node_out(cx->m, node, i), &result[i]);
    if (!ok)
        return weft_diag_error(cx->diag, WEFT_ERR_UNSUP, weft_node_where(cx->m, node),
                               "%s: a shape depends on data, its cost cannot be estimated",
                               op->name);
    weft_work_ctx work = {.op = op,
                          .attrs = weft_node_attrs(cx->m, node),
                          .in = in,
                          .out = result,
                          .n_in = n_in,
                          .n_out = n_out};
    weft_kernel kernel = {.dtype = n_out > 0 ? (weft_dtype)result[0].dtype : WEFT_DTYPE_F32};
    /* What is computed in: the first operand's type (a comparison of floats gives bool). */
    if (n_in > 0 && in[0].present)
        kernel.dtype = (weft_dtype)in[0].dtype;
    kernel.work = weft_op_work(&work);
    if (op->traits & WEFT_T_GEMM && n_out > 0)
        find_product(&work, &kernel);
    /* Winograd F(4,3) multiplies a quarter as often; transforms eat about half of the gain. */
    const char *algo = weft_attrs_str(work.attrs, WEFT_ATTR_ALGO, "");
    if (strcmp(algo, "winograd") == 0)
        kernel.flop_saving = 2;
    *out = kernel;
    return WEFT_ERR_OK;
}

/* -- Memory ----------------------------------------------------------------------------------- */

static uint64_t add_capped(uint64_t a, uint64_t b)
{
    return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

static uint64_t val_bytes(const graph_ctx *cx, weft_val v)
{
    const weft_ttype *type = weft_val_ttype(cx->m, v);
    int64_t dim[WEFT_RANK_MAX];
    uint64_t bytes = 0;
    if (!eval_type(cx, type, dim) ||
        !weft_layout_bytes((weft_dtype)type->dtype, (weft_layout)type->layout, dim, type->rank,
                           &bytes))
        return 0;
    return bytes;
}

static uint64_t count_weights(const graph_ctx *cx)
{
    uint64_t bytes = 0;
    bool *seen = weft_arena_array(cx->arena, (size_t)weft_weight_count(cx->m) + 1, sizeof *seen);
    WEFT_FOREACH_NODE (cx->m, cx->g, n) {
        for (uint32_t i = 0; i < weft_node_in_count(cx->m, n); i++) {
            weft_val v = weft_node_in(cx->m, n, i);
            weft_weight w = v.i ? weft_val_weight(cx->m, v) : (weft_weight){0};
            if (!w.i || seen[w.i])
                continue;
            seen[w.i] = true;
            bytes = add_capped(bytes, weft_weight_get(cx->m, w)->bytes);
        }
    }
    return bytes;
}

/* The most bytes of intermediate values alive at once: what a perfect packing would take. */
static uint64_t peak_alive(const graph_ctx *cx)
{
    uint32_t n_val = weft_val_count(cx->m) + 1, step = 0;
    uint32_t *last = weft_arena_array(cx->arena, n_val, sizeof *last);
    uint64_t now = 0, peak = 0;
    WEFT_FOREACH_NODE (cx->m, cx->g, n) {
        step++;
        for (uint32_t i = 0; i < weft_node_in_count(cx->m, n); i++)
            last[weft_node_in(cx->m, n, i).i] = step;
    }
    step = 0;
    WEFT_FOREACH_NODE (cx->m, cx->g, k) {
        step++;
        if (weft_node_opdef(cx->m, k)->traits & WEFT_T_VIEW)
            continue;
        for (uint32_t i = 0; i < weft_node_out_count(cx->m, k); i++)
            now = add_capped(now, val_bytes(cx, weft_node_out(cx->m, k, i)));
        peak = now > peak ? now : peak;
        for (uint32_t i = 0; i < weft_node_in_count(cx->m, k); i++) {
            weft_val v = weft_node_in(cx->m, k, i);
            if (!v.i || last[v.i] != step || weft_val_get_kind(cx->m, v) != WEFT_VAL_NODE)
                continue;
            last[v.i] = 0; /* once, also when it is two operands */
            uint64_t bytes = val_bytes(cx, v);
            now -= bytes < now ? bytes : now;
        }
    }
    return peak;
}

static uint64_t find_arena(const graph_ctx *cx, const int64_t *symbol)
{
    uint32_t n = weft_graph_symbol_count(cx->g);
    for (uint32_t i = 0; i < weft_graph_bucket_count(cx->g); i++) {
        const weft_bucket *b = weft_graph_bucket(cx->g, i);
        if (b->n_symbol == n && (n == 0 || memcmp(b->symbol, symbol, n * sizeof *symbol) == 0))
            return b->arena_bytes;
    }
    return peak_alive(cx);
}

static void count_memory(const graph_ctx *cx, const int64_t *symbol, const weft_slice *slice,
                         const weft_estimate_options *options, weft_estimate *e)
{
    e->weight_bytes = count_weights(cx);
    e->arena_bytes =
        options && options->arena_bytes ? options->arena_bytes : find_arena(cx, symbol);
    for (uint32_t i = 0; i < weft_graph_input_count(cx->g); i++)
        e->io_bytes = add_capped(e->io_bytes, val_bytes(cx, weft_graph_input(cx->g, i)));
    for (uint32_t i = 0; i < weft_graph_output_count(cx->g); i++)
        e->io_bytes = add_capped(e->io_bytes, val_bytes(cx, weft_graph_output(cx->g, i)));
    e->context_bytes = slice->gpu->context_bytes;
    e->total.mreq_bytes = add_capped(add_capped(e->weight_bytes, e->arena_bytes),
                                     add_capped(e->io_bytes, e->context_bytes));
}

/* -- Whole graphs ----------------------------------------------------------------------------- */

weft_err weft_estimate_symbols(weft_graph *g, uint32_t batch, weft_diag *diag, int64_t *out)
{
    weft_dimpool *pool = weft_module_dims(weft_graph_module(g));
    uint32_t n = weft_graph_symbol_count(g), which = weft_graph_batch_symbol(g);
    weft_where where = {.item = weft_graph_name(g)};
    if (which == UINT32_MAX && batch != 1)
        return weft_diag_error(diag, WEFT_ERR_UNSUP, where,
                               "batch %u: the model has no batch dimension", batch);
    for (uint32_t i = 0; i < n; i++) {
        int64_t lo, hi;
        weft_dim_bounds(pool, weft_graph_symbol_dim(g, i), &lo, &hi);
        out[i] = hi;
        if (i == which)
            out[i] = batch;
        else if (hi > INT32_MAX)
            out[i] = lo > UNBOUNDED_DEFAULT ? lo : UNBOUNDED_DEFAULT;
        if (out[i] < lo || out[i] > hi)
            return weft_diag_error(diag, WEFT_ERR_INPUT, where, "batch %u is outside [%lld, %lld]",
                                   batch, (long long)lo, (long long)hi);
    }
    return WEFT_ERR_OK;
}

/* Fills one entry; *used false for nodes that launch nothing. */
static weft_err estimate_node(const graph_ctx *cx, weft_node node, const weft_slice *slice,
                              const weft_estimate_options *options, weft_kernel_cost *out,
                              bool *used)
{
    const weft_op *op = weft_node_opdef(cx->m, node);
    *used = false;
    if (op->traits & WEFT_T_VIEW)
        return WEFT_ERR_OK;
    weft_kernel_cost k = {.node = node, .op = op->name};
    WEFT_TRY(make_kernel(cx, node, &k.kernel));
    if (k.kernel.work.flops + weft_slice__memory_bytes(slice, &k.kernel) +
            k.kernel.work.bytes_read + k.kernel.work.bytes_written <=
        0)
        return WEFT_ERR_OK; /* shapes and sizes: known to the host */
    WEFT_TRY(weft_estimate_kernel(&k.kernel, slice, options, cx->diag, &k.cost, &k.model));
    *out = k;
    *used = true;
    return WEFT_ERR_OK;
}

static void add_kernel(const weft_kernel_cost *k, weft_cost *total)
{
    double before_us = total->time_us, time_us = before_us + k->cost.time_us;
    double old = before_us / time_us, part = k->cost.time_us / time_us;
    total->creq = total->creq * old + k->cost.creq * part;
    total->bandwidth_gbps = total->bandwidth_gbps * old + k->cost.bandwidth_gbps * part;
    /* Errors of kernels on one device have one cause: they add up, they do not cancel. */
    total->expected_error = total->expected_error * old + k->cost.expected_error * part;
    total->energy_j += k->cost.energy_j;
    total->time_us = time_us;
}

weft_err weft_estimate_graph(weft_graph *g, const int64_t *symbol, const weft_slice *slice,
                             const weft_estimate_options *options, weft_arena *arena,
                             weft_diag *diag, weft_estimate *out)
{
    weft_module *m = weft_graph_module(g);
    weft_dimpool *pool = weft_module_dims(m);
    graph_ctx cx = {
        .m = m, .g = g, .arena = arena, .diag = diag, .n_value = weft_dim_symbol_count(pool)};
    cx.value = weft_arena_array(arena, (size_t)cx.n_value + 1, sizeof *cx.value);
    for (uint32_t i = 0; i < cx.n_value; i++)
        cx.value[i] = -1;
    for (uint32_t i = 0; i < weft_graph_symbol_count(g); i++) {
        uint32_t at = weft_dim_as_symbol(pool, weft_graph_symbol_dim(g, i));
        if (at < cx.n_value)
            cx.value[at] = symbol[i];
    }
    weft_estimate e = {0};
    weft_kernel_cost *kernel =
        weft_arena_array(arena, (size_t)weft_graph_node_count(g) + 1, sizeof *kernel);
    WEFT_FOREACH_NODE (m, g, n) {
        bool used;
        WEFT_TRY(estimate_node(&cx, n, slice, options, &kernel[e.n], &used));
        if (used)
            add_kernel(&kernel[e.n++], &e.total);
    }
    e.kernel = kernel;
    if (e.n == 0) { /* a graph of views: one launch to copy its result */
        e.total = (weft_cost){.time_us = slice->gpu->launch_us, .expected_error = 1};
        e.total.creq = 1.0 / slice->all_units;
    }
    snprintf(e.total.source, sizeof e.total.source, "analytic");
    count_memory(&cx, symbol, slice, options, &e);
    *out = e;
    return WEFT_ERR_OK;
}
