/* Emits copies. All operators whose copies can be expressed by strides share one kernel.
 *
 * A view maps each element of a dense result to the offset base + sum of coordinate * stride in the
 * operand. Neighbouring dims with matching strides are joined. If the last dim has stride 1,
 * threads move vectors; if another dim has stride 1, tiles are transposed in shared memory. */
#include "codegen/cuda/cuda_int.h"

#include <string.h>

enum { THREADS = 256, PACK_BYTES = 16, DIMS_MAX = 2 * WEFT_RANK_MAX, TILE = 32, TILE_LEAST = 8 };

typedef struct view {
    uint32_t n;
    weft_dim extent[DIMS_MAX], stride[DIMS_MAX];
    /* base = sum of first * first_stride */
    weft_dim first[WEFT_RANK_MAX], first_stride[WEFT_RANK_MAX];
    uint32_t n_first;
} view;

/* The integer type of the same size, as which elements are copied. */
static weft_dtype bits_of(const weft_ttype *t)
{
    switch (weft_dtype_size((weft_dtype)t->dtype)) {
    case 1:
        return WEFT_DTYPE_U8;
    case 2:
        return WEFT_DTYPE_U16;
    case 4:
        return WEFT_DTYPE_U32;
    default:
        return WEFT_DTYPE_U64;
    }
}

void weft_cuda__strides(weft_cuda *cu, const weft_ttype *t, weft_dim stride[WEFT_RANK_MAX])
{
    weft_dim s = 1;
    for (uint32_t i = t->rank; i-- > 0;) {
        stride[i] = s;
        s = weft_cuda__mul(cu, s, t->dim[i]);
    }
}

static void add_dim(weft_cuda *cu, view *v, weft_dim extent, weft_dim stride)
{
    if (extent == 1)
        return;
    if (v->n > 0 && v->stride[v->n - 1] == weft_cuda__mul(cu, stride, extent)) {
        v->extent[v->n - 1] = weft_cuda__mul(cu, v->extent[v->n - 1], extent);
        v->stride[v->n - 1] = stride;
        return;
    }
    v->extent[v->n] = extent;
    v->stride[v->n++] = stride;
}

static weft_dim numel(weft_cuda *cu, const view *v)
{
    weft_dim n = 1;
    for (uint32_t i = 0; i < v->n; i++)
        n = weft_cuda__mul(cu, n, v->extent[i]);
    return n;
}

static const char *base_text(weft_cuda_kernel *k, const view *v)
{
    weft_arena *arena = weft_cuda__arena(weft_cuda__of(k));
    const char *text = NULL;
    for (uint32_t i = 0; i < v->n_first; i++) {
        if (v->first[i] == 0)
            continue;
        const weft_dim factor[] = {v->first[i], v->first_stride[i]};
        const char *one = weft_cuda__long_of(k, factor, 2);
        text = text ? weft_arena_printf(arena, "%s + %s", text, one) : one;
    }
    return text ? text : "0";
}

/* Strides may be negative: size_t arithmetic wraps modulo 2^64, so offsets are still correct. */
static const char *stride_text(weft_cuda_kernel *k, weft_dim stride)
{
    weft_arena *arena = weft_cuda__arena(weft_cuda__of(k));
    return weft_arena_printf(arena, "(size_t)(%s)", weft_cuda__int(k, stride));
}

/* Prints a structure `@_NAME` with one function; returns the expression that constructs it. */
static const char *print_index(weft_cuda_kernel *k, const char *name, const char *head,
                               const char *body)
{
    weft_arena *arena = weft_cuda__arena(weft_cuda__of(k));
    weft_buf *top = weft_cuda__top(k);
    const char *made = "";
    weft_buf_printf(top, "struct @_%s {\n", name);
    for (uint32_t i = 0; i < weft_cuda__int_count(k); i++) {
        weft_buf_printf(top, "    int d%u;\n", i);
        made = weft_arena_printf(arena, "%s%sd%u", made, i ? ", " : "", i);
    }
    weft_buf_printf(top, "    __device__ %s const\n    {\n%s    }\n};\n", head, body);
    return weft_arena_printf(arena, "@_%s{%s}", name, made);
}

const char *weft_cuda__offset(weft_cuda_kernel *k, const char *at, const weft_dim *extent,
                              const weft_dim *stride, uint32_t n)
{
    weft_arena *arena = weft_cuda__arena(weft_cuda__of(k));
    const char *sum = NULL;
    for (uint32_t i = 0; i < n; i++) {
        if (stride[i] == 0)
            continue;
        const char *text = at;
        if (i + 1 < n)
            text = weft_arena_printf(arena, "%s / %s", text,
                                     weft_cuda__long_of(k, extent + i + 1, n - i - 1));
        if (i > 0)
            text = weft_arena_printf(arena, "%s %% %s", text, weft_cuda__long_of(k, extent + i, 1));
        if (stride[i] != 1)
            text = weft_arena_printf(arena, "%s * %s", text, stride_text(k, stride[i]));
        sum = sum ? weft_arena_printf(arena, "%s + %s", sum, text) : text;
    }
    return sum ? sum : "0";
}

/* The longest vector, a power of two of at most PACK_BYTES, whose length divides `run`. */
static int64_t pack_of(weft_dtype bits, weft_dim run)
{
    int64_t pack = PACK_BYTES / (int64_t)weft_dtype_size(bits);
    int64_t known = weft_dim_is_const(run) ? run : 1;
    while (pack > 1 && known % pack != 0)
        pack /= 2;
    return pack;
}

/* A constant that divides the dim: the dim itself, or a power of two of at most PACK_BYTES. */
static weft_dim known_factor(weft_cuda *cu, weft_dim d)
{
    weft_dim q;
    if (weft_dim_is_const(d))
        return d;
    for (int64_t f = PACK_BYTES; f > 1; f /= 2)
        if (weft_dim_div_exact(weft_cuda__dims(cu), d, f, &q))
            return f;
    return 1;
}

static void emit_strided(weft_cuda *cu, const view *v, weft_dtype bits, uint32_t result)
{
    weft_arena *arena = weft_cuda__arena(cu);
    bool dense = v->n > 0 && v->stride[v->n - 1] == 1;
    int64_t pack = dense ? pack_of(bits, known_factor(cu, v->extent[v->n - 1])) : 1;
    weft_cuda_kernel *k = weft_cuda__kernel(cu, "move", THREADS);
    if (pack > 1)
        weft_cuda__share_sizes(k);
    weft_cuda__include(k, "move.cuh");
    weft_cuda__pointer(k, "x", bits, true, weft_cuda__at_in(0, 0));
    weft_cuda__pointer(k, "y", bits, false, weft_cuda__at_out(result, 0));
    const char *offset = weft_cuda__offset(k, "at", v->extent, v->stride, v->n);
    const char *base = base_text(k, v);
    const char *body = weft_arena_printf(arena, "        return %s + %s;\n", base, offset);
    const char *count = weft_cuda__long_of(k, v->extent, v->n);
    const char *made = print_index(k, "index", "size_t operator()(size_t at)", body);
    weft_buf_printf(weft_cuda__body(k), "    move<%lld>(x, y, %s, %s);\n", (long long)pack, count,
                    made);
    weft_cuda__launch(k, weft_cuda__packs(cu, numel(cu, v), pack, THREADS), 1, 1, 0);
}

/* Transposes dim `row`, which is contiguous in x, and the last dim, which is contiguous in y. */
static void emit_transposed(weft_cuda *cu, const view *v, uint32_t row, weft_dtype bits,
                            uint32_t result)
{
    weft_arena *arena = weft_cuda__arena(cu);
    weft_dim extent[DIMS_MAX], xs[DIMS_MAX], ys[DIMS_MAX], below = 1, y_row = 1;
    uint32_t n = 0, last = v->n - 1;
    for (uint32_t i = v->n; i-- > 0;) {
        if (i == row)
            y_row = below;
        ys[i] = below;
        below = weft_cuda__mul(cu, below, v->extent[i]);
    }
    for (uint32_t i = 0; i < last; i++) {
        if (i == row)
            continue;
        extent[n] = v->extent[i];
        xs[n] = v->stride[i];
        ys[n++] = ys[i];
    }
    weft_cuda_kernel *k = weft_cuda__kernel(cu, "transpose", THREADS);
    weft_cuda__share_sizes(k);
    weft_cuda__include(k, "move.cuh");
    weft_cuda__pointer(k, "x", bits, true, weft_cuda__at_in(0, 0));
    weft_cuda__pointer(k, "y", bits, false, weft_cuda__at_out(result, 0));
    const char *yo = weft_cuda__offset(k, "at", extent, ys, n);
    const char *xo = weft_cuda__offset(k, "at", extent, xs, n), *base = base_text(k, v);
    const char *body =
        weft_arena_printf(arena, "        xo = %s + %s;\n        yo = %s;\n", base, xo, yo);
    const char *rows = weft_cuda__long_of(k, &v->extent[row], 1);
    const char *cols = weft_cuda__long_of(k, &v->extent[last], 1);
    const char *x_col = stride_text(k, v->stride[last]), *y_text = stride_text(k, y_row);
    const char *made =
        print_index(k, "rest", "void operator()(size_t at, size_t &xo, size_t &yo)", body);
    weft_buf_printf(weft_cuda__body(k), "    transpose(x, y, %s, %s, %s, %s, %s);\n", rows, cols,
                    x_col, y_text, made);
    weft_dim down = weft_cuda__ceil_div(cu, v->extent[row], TILE);
    weft_dim blocks = weft_cuda__mul(cu, down, weft_cuda__ceil_div(cu, v->extent[last], TILE));
    for (uint32_t i = 0; i < n; i++)
        blocks = weft_cuda__mul(cu, blocks, extent[i]);
    weft_cuda__launch(k, blocks, 1, 1, 0);
}

static bool is_long(weft_dim d)
{
    return !weft_dim_is_const(d) || d >= TILE_LEAST;
}

static weft_err emit_view(weft_cuda *cu, const view *v, uint32_t result)
{
    weft_dtype bits = bits_of(weft_cuda__out_type(cu, result));
    if (v->n > 1 && v->stride[v->n - 1] != 1 && is_long(v->extent[v->n - 1]))
        for (uint32_t i = 0; i + 1 < v->n; i++)
            if (v->stride[i] == 1 && is_long(v->extent[i])) {
                emit_transposed(cu, v, i, bits, result);
                return WEFT_ERR_OK;
            }
    emit_strided(cu, v, bits, result);
    return WEFT_ERR_OK;
}

/* -- Operators --------------------------------------------------------------------------------- */

/* The operator's dim that is dim i of the result's memory. */
static uint32_t dim_of_result(const weft_cuda *cu, uint32_t i, uint32_t rank)
{
    if (!weft_cuda__gives_last(cu) || i == 0)
        return i;
    return i + 1 == rank ? 1 : i + 1;
}

/* Dim i of the operator's result is dim from[i] of its operand. */
static weft_err emit_permuted(weft_cuda *cu, const int64_t *from)
{
    const weft_ttype *x = weft_cuda__in_type(cu, 0);
    weft_dim stride[WEFT_RANK_MAX];
    view v = {0};
    weft_cuda__strides(cu, x, stride);
    for (uint32_t i = 0; i < x->rank; i++) {
        uint32_t at = weft_cuda__memory_axis(cu, from[dim_of_result(cu, i, x->rank)], x->rank);
        add_dim(cu, &v, x->dim[at], stride[at]);
    }
    return emit_view(cu, &v, 0);
}

weft_err weft_cuda_emit_transpose(weft_cuda *cu, weft_node n)
{
    (void)n;
    uint32_t rank = weft_cuda__in_type(cu, 0)->rank, n_perm;
    int64_t from[WEFT_RANK_MAX];
    const int64_t *perm = weft_attrs_ints(weft_cuda__attrs(cu), WEFT_ATTR_PERM, &n_perm);
    for (uint32_t i = 0; i < rank; i++)
        from[i] = perm ? perm[i] : (int64_t)rank - 1 - i;
    return emit_permuted(cu, from);
}

weft_err weft_cuda_emit_reorder(weft_cuda *cu, weft_node n)
{
    (void)n;
    int64_t from[WEFT_RANK_MAX];
    for (uint32_t i = 0; i < WEFT_RANK_MAX; i++)
        from[i] = i;
    return emit_permuted(cu, from);
}

weft_err weft_cuda_emit_expand(weft_cuda *cu, weft_node n)
{
    (void)n;
    const weft_ttype *x = weft_cuda__in_type(cu, 0), *y = weft_cuda__out_type(cu, 0);
    weft_dim stride[WEFT_RANK_MAX];
    view v = {0};
    weft_cuda__strides(cu, x, stride);
    for (uint32_t i = 0; i < y->rank; i++) {
        uint32_t lead = y->rank - x->rank;
        weft_dim d = i < lead ? 1 : x->dim[i - lead];
        if (d != 1 && d != y->dim[i])
            return weft_cuda__unsup(cu, "only running tells whether dim %u is 1", i - lead);
        add_dim(cu, &v, y->dim[i], d == 1 ? 0 : stride[i - lead]);
    }
    return emit_view(cu, &v, 0);
}

weft_err weft_cuda_emit_tile(weft_cuda *cu, weft_node n)
{
    (void)n;
    const weft_ttype *x = weft_cuda__in_type(cu, 0);
    weft_dim stride[WEFT_RANK_MAX];
    const weft_dim *repeat;
    uint32_t n_repeat;
    view v = {0};
    if (!weft_cuda__param(cu, 1, WEFT_ATTR_REPEATS, &repeat, &n_repeat) || n_repeat != x->rank)
        return weft_cuda__unsup(cu, "only running tells `repeats`");
    weft_cuda__strides(cu, x, stride);
    for (uint32_t i = 0; i < x->rank; i++) {
        add_dim(cu, &v, repeat[i], 0);
        add_dim(cu, &v, x->dim[i], stride[i]);
    }
    return emit_view(cu, &v, 0);
}

/* depth_to_space and space_to_depth of [n, c, h, w], as a copy with six dims in result order. */
weft_err weft_cuda_emit_depth(weft_cuda *cu, weft_node n)
{
    const weft_ttype *x = weft_cuda__in_type(cu, 0), *y = weft_cuda__out_type(cu, 0);
    int64_t b = weft_attrs_int(weft_cuda__attrs(cu), WEFT_ATTR_BLOCKSIZE, 1);
    const char *mode = weft_attrs_str(weft_cuda__attrs(cu), WEFT_ATTR_MODE, "DCR");
    bool to_space = weft_node_op(weft_cuda__module(cu), n) == WEFT_OP_DEPTH_TO_SPACE;
    weft_dim stride[WEFT_RANK_MAX], channels = to_space ? y->dim[1] : x->dim[1];
    view v = {0};
    weft_cuda__strides(cu, x, stride);
    add_dim(cu, &v, x->dim[0], stride[0]);
    if (to_space) {
        /* DCR: channel (bh * b + bw) * channels + c; CRD: (c * b + bh) * b + bw. */
        bool crd = strcmp(mode, "CRD") == 0;
        weft_dim of_c = crd ? weft_cuda__mul(cu, stride[1], b * b) : stride[1];
        weft_dim of_bw = crd ? stride[1] : weft_cuda__mul(cu, stride[1], channels);
        weft_dim of_bh = weft_cuda__mul(cu, of_bw, b);
        add_dim(cu, &v, channels, of_c);
        add_dim(cu, &v, x->dim[2], stride[2]);
        add_dim(cu, &v, b, of_bh);
        add_dim(cu, &v, x->dim[3], stride[3]);
        add_dim(cu, &v, b, of_bw);
    } else {
        add_dim(cu, &v, b, stride[2]);
        add_dim(cu, &v, b, stride[3]);
        add_dim(cu, &v, channels, stride[1]);
        add_dim(cu, &v, y->dim[2], weft_cuda__mul(cu, stride[2], b));
        add_dim(cu, &v, y->dim[3], weft_cuda__mul(cu, stride[3], b));
    }
    return emit_view(cu, &v, 0);
}

/* Resolves `start` of a slice as ops/slice.c does: a symbolic start that is never positive counts
 * from the end, one of unknown sign from the front; other sizes are refused before they run. */
static weft_dim clip_start(weft_cuda *cu, weft_dim start, weft_dim d, int64_t step)
{
    weft_dimpool *dims = weft_cuda__dims(cu);
    int64_t least, most;
    weft_dim_bounds(dims, start, &least, &most);
    if (most <= 0 && least < 0)
        return weft_dim_is_const(start) && start < -WEFT_NUMEL_MAX
                   ? 0
                   : weft_dim_max(dims, weft_dim_add(dims, d, start), 0);
    return weft_dim_min(dims, start, step > 0 ? d : weft_dim_sub(dims, d, 1));
}

weft_err weft_cuda_emit_slice(weft_cuda *cu, weft_node n)
{
    (void)n;
    const weft_ttype *x = weft_cuda__in_type(cu, 0), *y = weft_cuda__out_type(cu, 0);
    weft_dim stride[WEFT_RANK_MAX];
    const weft_dim *start, *end, *axes, *steps;
    uint32_t n_start, n_end, n_axes, n_steps;
    view v = {0};
    if (!weft_cuda__param(cu, 1, WEFT_ATTR_STARTS, &start, &n_start) ||
        !weft_cuda__param(cu, 2, WEFT_ATTR_ENDS, &end, &n_end) ||
        !weft_cuda__param(cu, 3, WEFT_ATTR_AXES, &axes, &n_axes) ||
        !weft_cuda__param(cu, 4, WEFT_ATTR_STEPS, &steps, &n_steps))
        return weft_cuda__unsup(cu, "only running tells what is cut out");
    weft_cuda__strides(cu, x, stride);
    for (uint32_t i = 0; i < n_start; i++) {
        uint32_t axis = weft_cuda__memory_axis(cu, axes ? axes[i] : (int64_t)i, x->rank);
        int64_t step = steps ? steps[i] : 1;
        v.first[v.n_first] = clip_start(cu, start[i], x->dim[axis], step);
        v.first_stride[v.n_first++] = stride[axis];
        if (y->dim[axis] != 1) /* with one element the step has no effect */
            stride[axis] = weft_cuda__mul(cu, stride[axis], step);
    }
    for (uint32_t i = 0; i < y->rank; i++)
        add_dim(cu, &v, y->dim[i], stride[i]);
    return emit_view(cu, &v, 0);
}

weft_err weft_cuda_emit_split(weft_cuda *cu, weft_node n)
{
    const weft_ttype *x = weft_cuda__in_type(cu, 0);
    uint32_t axis = weft_cuda__axis(cu, 0, x->rank);
    weft_dim stride[WEFT_RANK_MAX], at = 0;
    weft_cuda__strides(cu, x, stride);
    uint32_t n_out = weft_node_out_count(weft_cuda__module(cu), n);
    for (uint32_t i = 0; i < n_out; i++) {
        const weft_ttype *y = weft_cuda__out_type(cu, i);
        view v = {.n_first = 1, .first = {at}, .first_stride = {stride[axis]}};
        if (!y) /* the start of the next part depends on this unused one's size */
            return weft_cuda__unsup(cu, "result %u is not used", i);
        for (uint32_t d = 0; d < y->rank; d++)
            add_dim(cu, &v, y->dim[d], stride[d]);
        WEFT_TRY(emit_view(cu, &v, i));
        at = weft_cuda__add(cu, at, y->dim[axis]);
    }
    return WEFT_ERR_OK;
}

/* -- Padding ----------------------------------------------------------------------------------- */

/* Padding before each dim; false if it depends on data. */
static bool find_pads(weft_cuda *cu, weft_dim before[WEFT_RANK_MAX])
{
    const weft_ttype *x = weft_cuda__in_type(cu, 0);
    const weft_dim *pads, *axes;
    uint32_t n, n_axes;
    if (!weft_cuda__param(cu, 1, WEFT_ATTR_PADS, &pads, &n) ||
        !weft_cuda__param(cu, 3, WEFT_ATTR_AXES, &axes, &n_axes))
        return false;
    n_axes = axes ? n_axes : x->rank;
    for (uint32_t i = 0; i < n_axes && n == 2 * n_axes; i++) {
        before[weft_cuda__memory_axis(cu, axes ? axes[i] : (int64_t)i, x->rank)] = pads[i];
    }
    return n == 2 * n_axes;
}

/* An expression for the source of element `at` of the result; the last `tail` dims are contiguous.
 */
static const char *source_text(weft_cuda_kernel *k, const weft_dim *before, uint32_t tail,
                               char mode)
{
    weft_cuda *cu = weft_cuda__of(k);
    weft_arena *arena = weft_cuda__arena(cu);
    const weft_ttype *x = weft_cuda__in_type(cu, 0), *y = weft_cuda__out_type(cu, 0);
    uint32_t dense = y->rank - tail;
    const char *text = weft_arena_printf(arena, "        from = at %% %s;\n        i64 c;\n",
                                         weft_cuda__long(k, y, dense, y->rank));
    for (uint32_t i = 0; i < dense; i++) {
        const char *in = weft_cuda__int(k, x->dim[i]);
        const char *behind = weft_cuda__long(k, y, i + 1, y->rank);
        const char *own = weft_cuda__long(k, y, i, i + 1);
        const char *place = weft_arena_printf(arena, "(i64)(at / %s %% %s) - %s", behind, own,
                                              weft_cuda__int(k, before[i]));
        if (mode == 'c')
            text = weft_arena_printf(arena,
                                     "%s        c = %s;\n"
                                     "        if (c < 0 || c >= %s)\n            return false;\n",
                                     text, place, in);
        else
            text = weft_arena_printf(arena, "%s        c = mirror(%s, %s, '%c');\n", text, place,
                                     in, mode);
        text = weft_arena_printf(arena, "%s        from += c * %s;\n", text,
                                 weft_cuda__long(k, x, i + 1, x->rank));
    }
    return weft_arena_printf(arena, "%s        return true;\n", text);
}

weft_err weft_cuda_emit_pad(weft_cuda *cu, weft_node n)
{
    (void)n;
    const weft_ttype *x = weft_cuda__in_type(cu, 0), *y = weft_cuda__out_type(cu, 0);
    weft_dim before[WEFT_RANK_MAX] = {0};
    const char *value, *mode = weft_attrs_str(weft_cuda__attrs(cu), WEFT_ATTR_MODE, "constant");
    weft_dtype bits = bits_of(y);
    if (!find_pads(cu, before))
        return weft_cuda__unsup(cu, "only running tells `pads`");
    uint32_t tail = 0;
    while (tail < y->rank && before[y->rank - 1 - tail] == 0 &&
           x->dim[y->rank - 1 - tail] == y->dim[y->rank - 1 - tail])
        tail++;
    int64_t pack =
        pack_of(bits, known_factor(cu, weft_cuda__product(cu, y, y->rank - tail, y->rank)));
    weft_cuda_kernel *k = weft_cuda__kernel(cu, "pad", THREADS);
    if (pack > 1)
        weft_cuda__share_sizes(k);
    weft_cuda__include(k, "move.cuh");
    weft_cuda__pointer(k, "x", bits, true, weft_cuda__at_in(0, 0));
    weft_cuda__pointer(k, "y", bits, false, weft_cuda__at_out(0, 0));
    if (weft_cuda__in_type(cu, 2) && mode[0] == 'c')
        weft_cuda__pointer(k, value = "value", bits, true, weft_cuda__at_in(2, 0));
    else
        value = weft_arena_printf(weft_cuda__arena(cu), "(const %s *)0", weft_dtype_name(bits));
    const char *body = source_text(k, before, tail, mode[0]);
    const char *count = weft_cuda__long(k, y, 0, y->rank);
    const char *made = print_index(k, "source", "bool operator()(size_t at, size_t &from)", body);
    weft_buf_printf(weft_cuda__body(k), "    pad<%lld>(x, y, %s, %s, %s);\n", (long long)pack,
                    count, made, value);
    weft_cuda__launch(k, weft_cuda__packs(cu, weft_cuda__numel(cu, y), pack, THREADS), 1, 1, 0);
    return WEFT_ERR_OK;
}

/* -- Concatenation ----------------------------------------------------------------------------- */

enum { CONCAT_MAX = 48 }; /* operands per kernel: pointers and widths are parameters */

/* The number of operands of the kernel for n: so that few kernels serve all numbers, it is a power
 * of two or half as much again. */
static uint32_t count_slots(uint32_t n)
{
    for (uint32_t slots = 2;; slots *= 2) {
        if (n <= slots)
            return slots;
        if (n <= slots + slots / 2)
            return slots + slots / 2;
    }
}

/* The operand of slot i: the last slot has the last one, slots without one get it with width 0. */
static uint32_t operand_of(uint32_t i, uint32_t slots, uint32_t from, uint32_t to)
{
    return i + 1 < to - from && i + 1 < slots ? from + i : to - 1;
}

/* Copies operands [from, to): `at` is a linear index over their elements in the result's order. */
static void emit_concat_part(weft_cuda *cu, uint32_t from, uint32_t to, uint32_t axis,
                             weft_dim before, int64_t pack, weft_dtype bits)
{
    const weft_ttype *y = weft_cuda__out_type(cu, 0);
    weft_arena *arena = weft_cuda__arena(cu);
    weft_dim joint = 0, inner = weft_cuda__product(cu, y, axis + 1, y->rank);
    weft_cuda_kernel *k = weft_cuda__kernel(cu, "concat", THREADS);
    weft_cuda__share_sizes(k);
    weft_cuda__include(k, "move.cuh");
    uint32_t slots = count_slots(to - from);
    for (uint32_t i = 0; i < slots; i++)
        weft_cuda__pointer(k, weft_arena_printf(arena, "x%u", i), bits, true,
                           weft_cuda__at_in(operand_of(i, slots, from, to), 0));
    for (uint32_t i = from; i < to; i++)
        joint = weft_cuda__add(cu, joint, weft_cuda__in_type(cu, i)->dim[axis]);
    weft_cuda__pointer(k, "y", bits, false, weft_cuda__at_out(0, 0));
    weft_buf *body = weft_cuda__body(k);
    const weft_dim part[] = {joint, inner}, whole[] = {y->dim[axis], inner},
                   shift[] = {before, inner};
    weft_dim rows = weft_cuda__product(cu, y, 0, axis);
    const char *row_text = weft_cuda__long(k, y, 0, axis);
    const char *part_text = weft_cuda__long_of(k, part, 2);
    const char *whole_text = weft_cuda__long_of(k, whole, 2);
    const char *shift_text = weft_cuda__long_of(k, shift, 2);
    weft_buf_printf(body,
                    "    size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * %lld;\n"
                    "    size_t width = %s, row = at / width, c = at %% width;\n"
                    "    if (row >= %s)\n"
                    "        return;\n"
                    "    size_t to = row * %s + %s + c;\n",
                    (long long)pack, part_text, row_text, whole_text, shift_text);
    weft_buf_printf(body, "    %s v[%lld];\n", weft_dtype_name(bits), (long long)pack);
    for (uint32_t i = 0; i < slots; i++) {
        bool is_used = i + 1 == slots || i + 1 < to - from;
        const weft_dim own[] = {weft_cuda__in_type(cu, operand_of(i, slots, from, to))->dim[axis],
                                inner};
        weft_dim width = is_used ? weft_cuda__mul(cu, own[0], own[1]) : 0;
        const char *w =
            weft_dim_is_const(width)
                ? weft_arena_printf(arena, "(size_t)%s", weft_cuda__own_number(k, width))
                : weft_cuda__long_of(k, own, 2);
        if (i + 1 < slots)
            weft_buf_printf(body, "    if (c < %s) {\n", w);
        else
            weft_buf_puts(body, "    {\n");
        weft_buf_printf(body,
                        "        load_pack<%lld>(v, x%u, row * %s + c, %lld);\n"
                        "        store_pack<%lld>(y, to, v, %lld);\n"
                        "        return;\n"
                        "    }\n",
                        (long long)pack, i, w, (long long)pack, (long long)pack, (long long)pack);
        if (i + 1 < slots)
            weft_buf_printf(body, "    c -= %s;\n", w);
    }
    weft_dim count = weft_cuda__mul(cu, rows, weft_cuda__mul(cu, joint, inner));
    weft_cuda__launch(k, weft_cuda__packs(cu, count, pack, THREADS), 1, 1, 0);
}

weft_err weft_cuda_emit_concat(weft_cuda *cu, weft_node n)
{
    const weft_ttype *y = weft_cuda__out_type(cu, 0);
    uint32_t n_in = weft_node_in_count(weft_cuda__module(cu), n);
    uint32_t axis = weft_cuda__axis(cu, 0, y->rank);
    int64_t pack = PACK_BYTES;
    weft_dtype bits = bits_of(y);
    for (uint32_t i = 0; i < n_in; i++) {
        weft_dim width = weft_cuda__product(cu, weft_cuda__in_type(cu, i), axis, y->rank);
        int64_t one = pack_of(bits, known_factor(cu, width));
        pack = one < pack ? one : pack;
    }
    weft_dim before = 0;
    for (uint32_t i = 0; i < n_in; i += CONCAT_MAX) {
        uint32_t to = i + CONCAT_MAX < n_in ? i + CONCAT_MAX : n_in;
        emit_concat_part(cu, i, to, axis, before, pack, bits);
        for (uint32_t j = i; j < to; j++)
            before = weft_cuda__add(cu, before, weft_cuda__in_type(cu, j)->dim[axis]);
    }
    return WEFT_ERR_OK;
}

/* -- Gather ------------------------------------------------------------------------------------ */

/* Bits of NaN for float types, else 0. */
static const char *absent_bits(weft_dtype dtype)
{
    switch (dtype) {
    case WEFT_DTYPE_F32:
        return "0x7fc00000u";
    case WEFT_DTYPE_F64:
        return "0x7ff8000000000000ull";
    case WEFT_DTYPE_F16:
        return "0x7e00u";
    case WEFT_DTYPE_BF16:
        return "0x7fc0u";
    default:
        return "0";
    }
}

weft_err weft_cuda_emit_gather(weft_cuda *cu, weft_node n)
{
    (void)n;
    const weft_ttype *x = weft_cuda__in_type(cu, 0), *index = weft_cuda__in_type(cu, 1);
    const weft_ttype *y = weft_cuda__out_type(cu, 0);
    uint32_t axis = weft_cuda__axis(cu, 0, x->rank);
    weft_dtype bits = bits_of(x);
    weft_dim inner = weft_cuda__product(cu, x, axis + 1, x->rank);
    int64_t pack = pack_of(bits, known_factor(cu, inner));
    weft_cuda_kernel *k = weft_cuda__kernel(cu, "gather", THREADS);
    if (pack > 1)
        weft_cuda__share_sizes(k);
    weft_cuda__include(k, "move.cuh");
    weft_cuda__pointer(k, "x", bits, true, weft_cuda__at_in(0, 0));
    weft_cuda__in(k, "index", 1);
    weft_cuda__pointer(k, "y", bits, false, weft_cuda__at_out(0, 0));
    const char *all = weft_cuda__long(k, y, 0, y->rank);
    const char *count = weft_cuda__long(k, index, 0, index->rank);
    const char *inner_text = weft_cuda__long(k, x, axis + 1, x->rank);
    weft_buf_printf(weft_cuda__body(k), "    gather<%lld>(x, index, y, %s, %s, %s, %s, (%s)%s);\n",
                    (long long)pack, all, count, inner_text, weft_cuda__int(k, x->dim[axis]),
                    weft_dtype_name(bits), absent_bits((weft_dtype)x->dtype));
    weft_cuda__launch(k, weft_cuda__packs(cu, weft_cuda__numel(cu, y), pack, THREADS), 1, 1, 0);
    return WEFT_ERR_OK;
}
