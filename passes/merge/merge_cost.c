/* Predicted times of nodes, copies and GEMMs that a merge candidate would run, by the estimator for
 * the target.
 *
 * A joint node pays if its time is less than the sum of the times of the models' own nodes, plus
 * the copies that concatenate its operands. The gain is reading the weight once instead of once per
 * model; it fades as the number of rows grows and arithmetic becomes the bottleneck. */
#include "passes/merge/merge_int.h"

#include "base/sm_limits.h"

#include <math.h>
#include <string.h>

/* A fixed number of cores, so that the bundle does not depend on the machine that compiles it. */
static const char cpu_slice[] = "2core";

/* -- Time ------------------------------------------------------------------------------------- */

/* Sets the symbols of a model to these values, clamped to their bounds. */
static void set_symbols(const weft_graph *g, int64_t batch, int64_t other, int64_t *value)
{
    weft_dimpool *pool = weft_module_dims(weft_graph_module(g));
    for (uint32_t i = 0; i < weft_graph_symbol_count(g); i++) {
        weft_dim d = weft_graph_symbol_dim(g, i);
        int64_t lo, hi, x = d == weft_merge__batch(g) ? batch : other;
        weft_dim_bounds(pool, d, &lo, &hi);
        lo = lo > 1 ? lo : 1;
        x = x < lo ? lo : x;
        value[weft_dim_as_symbol(pool, d)] = x > hi && hi >= lo ? hi : x;
    }
}

static bool count_elements(weft_module *m, weft_val v, const int64_t *value, uint32_t n,
                           double *out)
{
    const weft_ttype *t = weft_val_ttype(m, v);
    *out = 1;
    for (uint32_t k = 0; k < t->rank; k++) {
        int64_t dim;
        if (!weft_dim_eval(weft_module_dims(m), t->dim[k], value, n, &dim))
            return false;
        *out *= (double)dim;
    }
    return true;
}

/* The element type in which a value is computed. */
static weft_dtype run_dtype(const weft_merge_sizes *at, const weft_module *m, weft_val v)
{
    weft_dtype dtype = (weft_dtype)weft_val_ttype(m, v)->dtype;
    return dtype == WEFT_DTYPE_F32 && at->half != WEFT_DTYPE_NONE ? at->half : dtype;
}

/* The GEMM of node n with `x` elements in its first operand and `y` in its result. */
static weft_kernel make_gemm(const weft_merge_sizes *at, const weft_module *m, weft_node n,
                             double x, double y)
{
    const weft_ttype *w = weft_val_ttype(m, weft_node_in(m, n, 1));
    const weft_ttype *out = weft_val_ttype(m, weft_node_out(m, n, 0));
    double groups = (double)weft_attrs_int(weft_node_attrs(m, n), WEFT_ATTR_GROUP, 1), weights = 1;
    bool conv = weft_node_op(m, n) != WEFT_OP_MATMUL;
    for (uint32_t k = 0; k < w->rank; k++)
        weights *= (double)w->dim[k];
    double features = (double)out->dim[conv && out->rank > 1 ? 1 : out->rank - 1];
    weft_dtype dtype = run_dtype(at, m, weft_node_out(m, n, 0));
    double size = (double)weft_dtype_size(dtype);
    weft_kernel k = {.kind = conv ? WEFT_KERNEL_CONV : WEFT_KERNEL_GEMM,
                     .dtype = dtype,
                     .batch = groups,
                     .n = features / groups,
                     .k = weights / features,
                     .m = y / features};
    k.work = (weft_work){.flops = 2 * y * k.k,
                         .bytes_read = x * size,
                         .bytes_written = y * size,
                         .weight_bytes = weights * size};
    return k;
}

static bool predict(const weft_kernel *kernel, const weft_merge_sizes *at, double *sum)
{
    const weft_estimate_options how = {.exact_f32 = at->exact_f32};
    weft_cost cost;
    if (weft_estimate_kernel(kernel, &at->slice, &how, NULL, &cost, NULL) != WEFT_ERR_OK ||
        !isfinite(cost.time_us))
        return false;
    *sum += cost.time_us;
    return true;
}

bool weft_merge__count(const weft_merge_sizes *at, weft_module *m, weft_val v, double *sum)
{
    double n;
    if (!count_elements(m, v, at->value, at->n, &n))
        return false;
    *sum += n;
    return true;
}

bool weft_merge__elements_us(const weft_merge_sizes *at, const weft_module *m, weft_node like,
                             double x, double y, double *us)
{
    weft_kernel k = make_gemm(at, m, like, x, y);
    k.reuse_bytes = at->reuse_bytes;
    return predict(&k, at, us);
}

bool weft_merge__node_us(const weft_merge_sizes *at, weft_module *m, weft_node n, double *us)
{
    double x = 0, y = 0;
    return weft_merge__count(at, m, weft_node_in(m, n, 0), &x) &&
           weft_merge__count(at, m, weft_node_out(m, n, 0), &y) &&
           weft_merge__elements_us(at, m, n, x, y, us);
}

bool weft_merge__gemm_us(const weft_merge_sizes *at, const weft_module *m, weft_node like,
                         const weft_merge_gemm *p, double *us)
{
    weft_kernel k = make_gemm(at, m, like, p->x, p->rows * p->features * p->batch);
    double size = (double)weft_dtype_size(k.dtype);
    k.batch = p->batch;
    k.m = p->rows;
    k.n = p->features;
    k.k = p->taps;
    k.work.flops = 2 * k.batch * p->rows * p->features * p->taps;
    k.work.weight_bytes = k.batch * p->features * p->taps * size;
    weft_kernel_add_delta(&k, &p->delta);
    k.reuse_bytes = at->reuse_bytes;
    return predict(&k, at, us);
}

bool weft_merge__chain_us(const weft_merge_sizes *at, const weft_module *m, weft_val v,
                          double elements, double operands, double *us)
{
    weft_kernel k =
        weft_kernel_make_rows(WEFT_KERNEL_EW, NULL, run_dtype(at, m, v), operands, elements, 1);
    return predict(&k, at, us);
}

bool weft_merge__copy_us(const weft_merge_sizes *at, const weft_module *m, weft_val v,
                         double elements, double *us)
{
    weft_kernel k =
        weft_kernel_make_rows(WEFT_KERNEL_MOVE, NULL, run_dtype(at, m, v), 1, elements, 1);
    return elements == 0 || predict(&k, at, us);
}

/* Bytes of all distinct weights of GEMMs: what is read between two uses of the same weight. */
static double sum_weights(weft_merger *g)
{
    weft_map *seen = weft_map_create(g->cx->scratch);
    double bytes = 0;
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        WEFT_FOREACH_NODE (g->m, g->columns.model[i], n) {
            uint64_t one;
            weft_val w = weft_merge__is_gemm(g->m, n) ? weft_node_in(g->m, n, 1) : (weft_val){0};
            if (!w.i || weft_map_get(seen, w.i, &one))
                continue;
            weft_map_put(seen, w.i, 1);
            bytes += (double)weft_weight_get(g->m, weft_val_weight(g->m, w))->bytes;
        }
    return bytes;
}

/* The first device of the table whose architecture is the first of a target like "sm_80,sm_90"; "":
 * there is none. */
static const char *find_device(const char *target)
{
    const weft_sm_limits *sm = weft_sm_limits_named(target, strcspn(target, ","));
    const weft_gpu *gpu;
    for (size_t i = 0; sm && (gpu = weft_gpu_at(i)); i++)
        if (gpu->capability == sm->capability)
            return gpu->name;
    return "";
}

weft_err weft_merge_slice(const weft_pass_options *o, weft_slice *out)
{
    if (o->device)
        return weft_slice_make(o->device, o->slice ? o->slice : "", NULL, out);
    if (weft_target_is_gpu(o->target))
        return weft_slice_make(find_device(o->target), o->slice ? o->slice : "", NULL, out);
    return weft_slice_make("cpu", o->slice ? o->slice : cpu_slice, NULL, out);
}

bool weft_merge__sizes(weft_merger *g, int64_t batch, int64_t other, weft_merge_sizes *out)
{
    *out = (weft_merge_sizes){.n = weft_dim_symbol_count(g->dims), .reuse_bytes = sum_weights(g)};
    out->value = weft_arena_array(g->cx->scratch, (size_t)out->n + 1, sizeof *out->value);
    for (uint32_t i = 0; i < out->n; i++)
        out->value[i] = -1;
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        set_symbols(g->columns.model[i], batch, other, out->value);
    weft_dtype precision = g->cx->options->precision;
    out->half = precision == WEFT_DTYPE_F32 ? WEFT_DTYPE_NONE : precision;
    out->exact_f32 = g->cx->options->exact_f32;
    weft_pass_options options = *g->cx->options;
    if (g->set && g->set->device) {
        options.device = g->set->device;
        options.slice = g->set->slice;
    }
    return weft_merge_slice(&options, &out->slice) == WEFT_ERR_OK;
}
