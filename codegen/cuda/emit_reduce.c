/* Emits reductions. A thread computes a result if neighbouring results are neighbours in the
 * operand, so that the loads of a warp coalesce; else a warp does, or a block for many elements per
 * result. */
#include "codegen/cuda/cuda_int.h"

enum {
    THREADS = 256,
    WARP_COUNT = 4096 /* largest number of elements per result that a warp reduces */
};

typedef struct reduction {
    bool over[WEFT_RANK_MAX];
    weft_dim n, count; /* number of results; elements per result */
} reduction;

static bool mark_axes(weft_cuda *cu, reduction *r)
{
    const weft_ttype *x = weft_cuda__in_type(cu, 0);
    bool noop = weft_attrs_int(weft_cuda__attrs(cu), WEFT_ATTR_NOOP_WITH_EMPTY_AXES, 0) != 0;
    const weft_dim *axes;
    uint32_t n;
    if (!weft_cuda__param(cu, 1, WEFT_ATTR_AXES, &axes, &n))
        return false;
    for (uint32_t i = 0; i < n; i++)
        r->over[weft_cuda__memory_axis(cu, axes[i], x->rank)] = true;
    for (uint32_t i = 0; i < x->rank && n == 0 && !noop; i++)
        r->over[i] = true;
    return true;
}

static void count_elements(weft_cuda *cu, reduction *r)
{
    const weft_ttype *x = weft_cuda__in_type(cu, 0);
    r->n = r->count = 1;
    for (uint32_t i = 0; i < x->rank; i++) {
        weft_dim *to = r->over[i] ? &r->count : &r->n;
        *to = weft_cuda__mul(cu, *to, x->dim[i]);
    }
}

/* An expression for the offset in the operand of linear index `at` over the dims that are reduced
 * (`over`) or kept. */
static const char *offset_text(weft_cuda_kernel *k, const reduction *r, bool over)
{
    const weft_ttype *x = weft_cuda__in_type(weft_cuda__of(k), 0);
    weft_arena *arena = weft_cuda__arena(weft_cuda__of(k));
    weft_dim below[WEFT_RANK_MAX]; /* product of the dims of this kind behind each dim */
    uint32_t n_below = 0;
    const char *sum = NULL;
    for (uint32_t i = x->rank; i-- > 0;) {
        if (r->over[i] != over || x->dim[i] == 1)
            continue;
        /* Neighbouring dims of the same kind are joined. */
        uint32_t from = i;
        while (from > 0 && (r->over[from - 1] == over || x->dim[from - 1] == 1))
            from--;
        bool last = true;
        for (uint32_t j = 0; j < from; j++)
            last = last && (r->over[j] != over || x->dim[j] == 1);
        const char *text = "at";
        if (n_below > 0)
            text = weft_arena_printf(arena, "at / %s", weft_cuda__long_of(k, below, n_below));
        if (!last)
            text = weft_arena_printf(arena, "%s %% %s", text, weft_cuda__long(k, x, from, i + 1));
        text = weft_arena_printf(arena, "%s * %s", text, weft_cuda__long(k, x, i + 1, x->rank));
        sum = sum ? weft_arena_printf(arena, "%s + %s", sum, text) : text;
        for (uint32_t j = from; j <= i; j++)
            below[n_below++] = x->dim[j];
        i = from;
    }
    return sum ? sum : "0";
}

/* Whether the elements of a result are so many strides apart, so that no size divides an index. */
static bool is_one_run(weft_cuda *cu, const reduction *r)
{
    const weft_ttype *x = weft_cuda__in_type(cu, 0);
    uint32_t runs = 0;
    bool inside = false;
    for (uint32_t i = 0; i < x->rank; i++)
        if (x->dim[i] != 1) {
            runs += r->over[i] && !inside;
            inside = r->over[i];
        }
    return runs <= 1;
}

static const char *print_places(weft_cuda_kernel *k, const reduction *r)
{
    weft_arena *arena = weft_cuda__arena(weft_cuda__of(k));
    const char *base = offset_text(k, r, false), *step = offset_text(k, r, true), *made = "";
    weft_buf *top = weft_cuda__top(k);
    weft_buf_puts(top, "struct @_places {\n");
    for (uint32_t i = 0; i < weft_cuda__int_count(k); i++) {
        weft_buf_printf(top, "    int d%u;\n", i);
        made = weft_arena_printf(arena, "%s%sd%u", made, i ? ", " : "", i);
    }
    weft_buf_printf(
        top,
        "    __device__ size_t base(size_t at) const\n    {\n        return %s;\n    }\n"
        "    __device__ size_t step(size_t at) const\n    {\n        return %s;\n    }\n"
        "};\n",
        base, step);
    return weft_arena_printf(arena, "@_places{%s}", made);
}

static uint32_t group_of(weft_cuda *cu, const reduction *r)
{
    const weft_ttype *x = weft_cuda__in_type(cu, 0);
    uint32_t last = x->rank;
    while (last > 0 && x->dim[last - 1] == 1)
        last--;
    if (last > 0 && !r->over[last - 1])
        return 1;
    return weft_dim_is_const(r->count) && r->count <= WARP_COUNT ? 32 : THREADS;
}

/* `function` has a format for the threads per result: "reduce<%u, fold_sum, f32>". */
static weft_err emit_places(weft_cuda *cu, const reduction *r, const char *function,
                            const char *arguments)
{
    const weft_ttype *x = weft_cuda__in_type(cu, 0);
    weft_dim over[WEFT_RANK_MAX], kept[WEFT_RANK_MAX];
    uint32_t n_over = 0, n_kept = 0, group = group_of(cu, r);
    for (uint32_t i = 0; i < x->rank; i++) {
        if (r->over[i])
            over[n_over++] = x->dim[i];
        else
            kept[n_kept++] = x->dim[i];
    }
    weft_cuda_kernel *k = weft_cuda__kernel(cu, "reduce", THREADS);
    if (is_one_run(cu, r))
        weft_cuda__share_sizes(k);
    weft_cuda__include(k, "reduce.cuh");
    weft_cuda__in(k, "x", 0);
    weft_cuda__out(k, "y", 0);
    const char *n = weft_cuda__long_of(k, kept, n_kept);
    const char *count = weft_cuda__long_of(k, over, n_over);
    const char *places = print_places(k, r);
    weft_buf_printf(weft_cuda__body(k), "    %s<%u, %s>(x, y, %s, %s, %s);\n", function, group,
                    arguments, n, count, places);
    weft_cuda__launch(k, weft_cuda__ceil_div(cu, r->n, THREADS / group), 1, 1, 0);
    return WEFT_ERR_OK;
}

/* The type in which elements of `t` are accumulated. */
static const char *accumulator_of(const weft_ttype *t, bool is_real)
{
    if (t->dtype == WEFT_DTYPE_U64 && !is_real)
        return "u64";
    if (!weft_dtype_is_float((weft_dtype)t->dtype))
        return is_real ? "f64" : "i64";
    return t->dtype == WEFT_DTYPE_F64 ? "f64" : "f32";
}

static const char *fold_of(weft_op_id op)
{
    switch (op) {
    case WEFT_OP_REDUCE_MEAN:
    case WEFT_OP_GLOBAL_AVERAGE_POOL:
        return "fold_mean";
    case WEFT_OP_REDUCE_MAX:
        return "fold_max";
    case WEFT_OP_REDUCE_MIN:
        return "fold_min";
    case WEFT_OP_REDUCE_PROD:
        return "fold_prod";
    case WEFT_OP_REDUCE_L1:
        return "fold_l1";
    case WEFT_OP_REDUCE_L2:
        return "fold_l2";
    case WEFT_OP_REDUCE_LOG_SUM:
        return "fold_log_sum";
    case WEFT_OP_REDUCE_SUM_SQUARE:
        return "fold_sum_square";
    case WEFT_OP_GLOBAL_MAX_POOL:
        return "fold_max";
    default:
        return "fold_sum";
    }
}

weft_err weft_cuda_emit_reduce(weft_cuda *cu, weft_node n)
{
    const weft_ttype *x = weft_cuda__in_type(cu, 0);
    weft_op_id op = weft_node_op(weft_cuda__module(cu), n);
    reduction r = {{false}, 1, 1};
    if (!mark_axes(cu, &r))
        return weft_cuda__unsup(cu, "only running tells `axes`");
    count_elements(cu, &r);
    if (op == WEFT_OP_REDUCE_LOG_SUM_EXP)
        return emit_places(cu, &r, "reduce_log_sum_exp", accumulator_of(x, true));
    bool is_real = op == WEFT_OP_REDUCE_L2 || op == WEFT_OP_REDUCE_LOG_SUM;
    return emit_places(
        cu, &r, "reduce",
        weft_arena_printf(weft_cuda__arena(cu), "%s, %s", fold_of(op), accumulator_of(x, is_real)));
}

weft_err weft_cuda_emit_global_pool(weft_cuda *cu, weft_node n)
{
    const weft_ttype *x = weft_cuda__in_type(cu, 0);
    weft_op_id op = weft_node_op(weft_cuda__module(cu), n);
    int64_t p = weft_attrs_int(weft_cuda__attrs(cu), WEFT_ATTR_P, 2);
    weft_arena *arena = weft_cuda__arena(cu);
    reduction r = {{false}, 1, 1};
    for (uint32_t i = 2; i < x->rank; i++)
        r.over[weft_cuda__memory_axis(cu, i, x->rank)] = true;
    count_elements(cu, &r);
    const char *fold = op == WEFT_OP_GLOBAL_LP_POOL
                           ? weft_arena_printf(arena, "fold_lp<%lld>", (long long)p)
                           : fold_of(op);
    return emit_places(cu, &r, "reduce",
                       weft_arena_printf(arena, "%s, %s", fold, accumulator_of(x, false)));
}

/* -- Along one axis ---------------------------------------------------------------------------- */

weft_err weft_cuda_emit_arg(weft_cuda *cu, weft_node n)
{
    const weft_ttype *x = weft_cuda__in_type(cu, 0);
    weft_attrs attrs = weft_cuda__attrs(cu);
    bool least = weft_node_op(weft_cuda__module(cu), n) == WEFT_OP_ARG_MIN;
    bool last = weft_attrs_int(attrs, WEFT_ATTR_SELECT_LAST_INDEX, 0) != 0;
    uint32_t axis = weft_cuda__axis(cu, 0, x->rank);
    if (x->rank == 0)
        return weft_cuda__unsup(cu, "a single number has no CUDA kernel");
    weft_dim lanes = weft_cuda__numel(cu, weft_cuda__out_type(cu, 0));
    weft_cuda_kernel *k = weft_cuda__kernel(cu, "arg_best", THREADS);
    weft_cuda__include(k, "reduce.cuh");
    weft_cuda__in(k, "x", 0);
    weft_cuda__out(k, "y", 0);
    const char *before = weft_cuda__long(k, x, 0, axis);
    const char *stride = weft_cuda__long(k, x, axis + 1, x->rank);
    const char *len = weft_cuda__long(k, x, axis, axis + 1);
    weft_buf_printf(weft_cuda__body(k), "    arg_best<%s, %s, %s>(x, y, %s * %s, %s, %s);\n",
                    least ? "true" : "false", last ? "true" : "false", accumulator_of(x, false),
                    before, stride, len, stride);
    weft_cuda__launch(k, weft_cuda__ceil_div(cu, lanes, THREADS / 32), 1, 1, 0);
    return WEFT_ERR_OK;
}

weft_err weft_cuda_emit_cum_sum(weft_cuda *cu, weft_node n)
{
    (void)n;
    const weft_ttype *x = weft_cuda__in_type(cu, 0);
    weft_attrs attrs = weft_cuda__attrs(cu);
    const weft_dim *given;
    uint32_t n_given;
    if (!weft_cuda__param(cu, 1, WEFT_ATTR_AXIS, &given, &n_given) || n_given != 1)
        return weft_cuda__unsup(cu, "only running tells `axis`");
    uint32_t axis = (uint32_t)(given[0] + (given[0] < 0 ? x->rank : 0));
    weft_dim outer = weft_cuda__product(cu, x, 0, axis);
    weft_dim lanes = weft_cuda__mul(cu, outer, weft_cuda__product(cu, x, axis + 1, x->rank));
    weft_cuda_kernel *k = weft_cuda__kernel(cu, "cum_sum", THREADS);
    weft_cuda__include(k, "reduce.cuh");
    weft_cuda__in(k, "x", 0);
    weft_cuda__out(k, "y", 0);
    const char *before = weft_cuda__long(k, x, 0, axis);
    const char *stride = weft_cuda__long(k, x, axis + 1, x->rank);
    const char *len = weft_cuda__long(k, x, axis, axis + 1);
    weft_buf_printf(weft_cuda__body(k), "    cum_sum<%s>(x, y, %s * %s, %s, %s, %s, %s);\n",
                    accumulator_of(x, false), before, stride, len, stride,
                    weft_attrs_int(attrs, WEFT_ATTR_EXCLUSIVE, 0) ? "true" : "false",
                    weft_attrs_int(attrs, WEFT_ATTR_REVERSE, 0) ? "true" : "false");
    weft_cuda__launch(k, weft_cuda__packs(cu, lanes, 1, THREADS), 1, 1, 0);
    return WEFT_ERR_OK;
}
