/* Which corresponding operators may become one, and whether that pays.
 *
 * May. An operator whose result rows depend on the same rows of its operands only can take the rows
 * of several models at once: products by a weight, normalisation and softmax of the last dim,
 * element-wise chains, look-ups in a table. Whatever else is right image by image (that is what
 * makes a model batchable) can take the images of several models, when the other dims are the same
 * constants.
 *
 * Pays. The time of one product for all against that of a product for each, both by the estimator
 * of the target, plus the copies that bring operands together. Reading the weight once instead of
 * once a model is the gain; it fades as rows grow and arithmetic decides. */
#include "passes/merge/merge_int.h"

#include <math.h>
#include <string.h>

/* The bundle must not depend on the machine that makes it. */
static const char cpu_slice[] = "2core";

weft_dim weft_merge__batch(const weft_graph *g)
{
    uint32_t which = weft_graph_batch_symbol(g);
    return which == UINT32_MAX ? 0 : weft_graph_symbol_dim(g, which);
}

static bool is_weight(const weft_module *m, weft_val v)
{
    return v.i && weft_val_get_kind(m, v) == WEFT_VAL_WEIGHT;
}

bool weft_merge__is_gemm(const weft_module *m, weft_node n)
{
    return weft_node_opdef(m, n)->traits & WEFT_T_GEMM && weft_node_in_count(m, n) >= 2 &&
           !is_weight(m, weft_node_in(m, n, 0)) && is_weight(m, weft_node_in(m, n, 1));
}

/* -- Level ------------------------------------------------------------------------------------ */

static uint32_t results_wanted(const weft_module *m, weft_node n)
{
    uint32_t wanted = 0;
    for (uint32_t i = 0; i < weft_node_out_count(m, n); i++)
        wanted += weft_val_ttype(m, weft_node_out(m, n, i))->dtype != WEFT_DTYPE_NONE;
    return wanted;
}

/* Broadcast along rows: one element, or one row. */
static bool is_row_weight(const weft_module *m, weft_val v, weft_dim cols)
{
    const weft_ttype *t = weft_val_ttype(m, v);
    for (uint32_t k = 0; k + 1 < t->rank; k++)
        if (t->dim[k] != 1)
            return false;
    return t->rank <= 2 &&
           (t->rank == 0 || t->dim[t->rank - 1] == 1 || t->dim[t->rank - 1] == cols);
}

/* The last dim a constant, not 0, the same for all: what is left are rows. */
static bool has_rows(const weft_module *m, weft_val v)
{
    const weft_ttype *t = weft_val_ttype(m, v);
    return t->rank >= 2 && t->layout == WEFT_LAYOUT_PLAIN &&
           weft_dim_is_const(t->dim[t->rank - 1]) && t->dim[t->rank - 1] != 0;
}

/* Operands from `first` on have the rows of the result, or are the same for every row. */
static bool row_operands(const weft_module *m, weft_node n, uint32_t first)
{
    const weft_ttype *y = weft_val_ttype(m, weft_node_out(m, n, 0));
    for (uint32_t i = first; i < weft_node_in_count(m, n); i++) {
        weft_val v = weft_node_in(m, n, i);
        if (!v.i)
            continue;
        const weft_ttype *t = weft_val_ttype(m, v);
        if (is_weight(m, v) ? !is_row_weight(m, v, y->dim[y->rank - 1])
                            : t->rank != y->rank || memcmp(t->dim, y->dim, sizeof y->dim) != 0)
            return false;
    }
    return true;
}

static bool normalises_rows(const weft_module *m, weft_node n)
{
    int64_t rank = weft_val_ttype(m, weft_node_in(m, n, 0))->rank;
    int64_t axis = weft_attrs_int(weft_node_attrs(m, n), WEFT_ATTR_AXIS, -1);
    return axis == -1 || axis == rank - 1;
}

static bool is_row_wise(const weft_module *m, weft_node n)
{
    weft_attrs attrs = weft_node_attrs(m, n);
    if (results_wanted(m, n) != 1 || weft_node_out_count(m, n) < 1)
        return false;
    weft_val x = weft_node_in(m, n, 0), y = weft_node_out(m, n, 0), w = weft_node_in(m, n, 1);
    switch (weft_node_op(m, n)) {
    case WEFT_OP_MATMUL:
        return has_rows(m, x) && has_rows(m, y) && is_weight(m, w) &&
               weft_val_ttype(m, w)->rank == 2 && !weft_attrs_int(attrs, WEFT_ATTR_TRANS_A, 0) &&
               row_operands(m, n, 2);
    case WEFT_OP_EW:
        return has_rows(m, y) && !is_weight(m, x) && row_operands(m, n, 0);
    case WEFT_OP_LAYER_NORM:
    case WEFT_OP_SOFTMAX:
        return has_rows(m, x) && normalises_rows(m, n) && row_operands(m, n, 1);
    default:
        return false;
    }
}

/* [batch, constants...] */
static bool has_images(const weft_module *m, weft_val v, weft_dim batch)
{
    const weft_ttype *t = weft_val_ttype(m, v);
    if (t->rank < 1 || t->dim[0] != batch)
        return false;
    for (uint32_t k = 1; k < t->rank; k++)
        if (!weft_dim_is_const(t->dim[k]))
            return false;
    return true;
}

static bool is_image_wise(const weft_graph *g, weft_node n, weft_dim batch)
{
    const weft_module *m = weft_graph_module(g);
    const weft_op *op = weft_node_opdef(m, n);
    weft_attrs attrs = weft_node_attrs(m, n);
    uint32_t activations = 0;
    if (op->traits & (WEFT_T_RANDOM | WEFT_T_DATA))
        return false;
    for (uint32_t i = 0; i < attrs.n; i++)
        for (uint32_t k = 0; attrs.at[i].kind == WEFT_KIND_DIMS && k < attrs.at[i].n; k++)
            if (!weft_dim_is_const(attrs.at[i].u.dims[k]) &&
                !(weft_node_op(m, n) == WEFT_OP_VIEW && k == 0 && attrs.at[i].u.dims[k] == batch))
                return false;
    for (uint32_t i = 0; i < weft_node_in_count(m, n); i++) {
        weft_val v = weft_node_in(m, n, i);
        if (!v.i || is_weight(m, v))
            continue;
        activations++;
        if (!has_images(m, v, batch))
            return false;
    }
    for (uint32_t i = 0; i < weft_node_out_count(m, n); i++) {
        weft_val v = weft_node_out(m, n, i);
        if (weft_val_ttype(m, v)->dtype != WEFT_DTYPE_NONE && !has_images(m, v, batch))
            return false;
    }
    return activations > 0;
}

/* Operands of the two nodes can lie one behind the other. Results of one shape do not say so: a
 * convolution of stride 2 makes 4 x 4 of 7 x 7 and of 8 x 8. How many channels it reads is for its
 * weight to say. */
static bool have_like_images(const weft_module *m, weft_node a, weft_node b)
{
    for (uint32_t i = 0; i < weft_node_in_count(m, a); i++) {
        weft_val v = weft_node_in(m, a, i), w = weft_node_in(m, b, i);
        if (!v.i || !w.i || is_weight(m, v) || is_weight(m, w))
            continue;
        const weft_ttype *s = weft_val_ttype(m, v), *t = weft_val_ttype(m, w);
        bool like = s->rank == t->rank;
        for (uint32_t k = i == 0 && weft_merge__is_gemm(m, a) ? 2 : 1; like && k < s->rank; k++)
            like = s->dim[k] == t->dim[k];
        if (!like)
            return false;
    }
    return true;
}

weft_joint_level weft_merge__level(const weft_columns *c, const weft_column *column)
{
    bool rows = true, images = true;
    weft_node first = {0};
    for (uint32_t i = 0; i < c->n_model; i++) {
        weft_dim batch = weft_merge__batch(c->model[i]);
        if (!column->node[i].i)
            continue;
        rows = rows && is_row_wise(weft_graph_module(c->model[i]), column->node[i]);
        images = images && batch != 0 && is_image_wise(c->model[i], column->node[i], batch);
        first = first.i ? first : column->node[i];
        images = images && have_like_images(weft_graph_module(c->model[i]), first, column->node[i]);
    }
    return rows ? WEFT_JOINT_ROWS : images ? WEFT_JOINT_IMAGES : WEFT_JOINT_NONE;
}

/* -- Time ------------------------------------------------------------------------------------- */

/* Values of a model's symbols: these, as far as they can have them. */
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

/* Of a value of that type, as it will be when it is computed. */
static weft_dtype run_dtype(const weft_merge_sizes *at, const weft_module *m, weft_val v)
{
    weft_dtype dtype = (weft_dtype)weft_val_ttype(m, v)->dtype;
    return dtype == WEFT_DTYPE_F32 && at->half != WEFT_DTYPE_NONE ? at->half : dtype;
}

/* The product of one node for `y` elements of its result that it makes from `x`. */
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
    weft_kernel_add_thin(&k, &p->thin);
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

/* Of all weights of products, each once: what lies between two uses of one. */
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

/* The first device of the table that runs code for "sm_90". */
static const char *find_device(const char *target)
{
    uint32_t capability = 0;
    const weft_gpu *gpu;
    for (const char *s = target + 3; *s >= '0' && *s <= '9' && capability < 1000; s++)
        capability = 10 * capability + (uint32_t)(*s - '0');
    for (size_t i = 0; (gpu = weft_gpu_at(i)); i++)
        if (capability && gpu->capability == capability)
            return gpu->name;
    return "";
}

weft_err weft_merge_slice(const weft_pass_options *o, weft_slice *out)
{
    if (o->device)
        return weft_slice_make(o->device, o->slice ? o->slice : "", NULL, out);
    if (o->target && strncmp(o->target, "sm_", 3) == 0)
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
    out->exact_f32 = !g->cx->options->tf32;
    return weft_merge_slice(g->cx->options, &out->slice) == WEFT_ERR_OK;
}
