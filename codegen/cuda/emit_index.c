/* Emits operators that read or write at indices (gather, scatter and related ones), select by order
 * (top_k), or depend on the position of the element (trilu, one_hot, range...). A thread computes
 * an element of the result.
 *
 * Scatters copy the data, then write the updates. Without a reduction each update has its own
 * thread, because ONNX requires distinct indices. With a reduction several updates may change one
 * element: one thread applies all updates that can collide (those along the axis, or those at one
 * position of their slices) in order, so that every run gives the bits of the reference
 * implementation. */
#include "codegen/cuda/cuda_int.h"

#include <string.h>

enum { THREADS = 256 };

/* -- Kernels of one element a thread ----------------------------------------------------------- */

/* Begins a kernel with result "y" and `at`, the linear index of the thread's element; threads with
 * at >= `count` return. */
static weft_cuda_kernel *start(weft_cuda *cu, const char *stem, weft_dim count)
{
    weft_cuda_kernel *k = weft_cuda__kernel(cu, stem, THREADS);
    weft_cuda__include(k, "index.cuh");
    weft_cuda__out(k, "y", 0);
    weft_cuda__each(k, &count, 1);
    return k;
}

static weft_err launch(weft_cuda_kernel *k, weft_dim count)
{
    weft_cuda *cu = weft_cuda__of(k);
    weft_cuda__launch(k, weft_cuda__packs(cu, count, 1, THREADS), 1, 1, 0);
    return WEFT_ERR_OK;
}

static const char *type_of(const weft_ttype *t)
{
    return weft_dtype_name((weft_dtype)t->dtype);
}

/* -- Gather ------------------------------------------------------------------------------------ */

/* Offset in `t` of the element with linear index `at` in `shape`, without the part of dim `axis`.
 */
static const char *offset_beside(weft_cuda_kernel *k, const weft_ttype *t, const weft_ttype *shape,
                                 int64_t axis)
{
    weft_dim stride[WEFT_RANK_MAX];
    weft_cuda__strides(weft_cuda__of(k), t, stride);
    stride[axis] = 0;
    return weft_cuda__offset(k, "at", shape->dim, stride, shape->rank);
}

weft_err weft_cuda_emit_gather_elements(weft_cuda *cu, weft_node n)
{
    (void)n;
    const weft_ttype *x = weft_cuda__in_type(cu, 0), *y = weft_cuda__out_type(cu, 0);
    uint32_t axis = weft_cuda__axis(cu, 0, x->rank);
    weft_dim count = weft_cuda__numel(cu, y);
    weft_cuda_kernel *k = start(cu, "gather_elements", count);
    weft_cuda__in(k, "x", 0);
    weft_cuda__in(k, "index", 1);
    const char *size = weft_cuda__int(k, x->dim[axis]), *beside = offset_beside(k, x, y, axis);
    const char *stride = weft_cuda__long(k, x, axis + 1, x->rank);
    weft_buf_printf(weft_cuda__body(k),
                    "    i64 i = index[at];\n"
                    "    y[at] = fix_index(i, %s) ? x[%s + (size_t)i * %s] : absent<%s>();\n",
                    size, beside, stride, type_of(y));
    return launch(k, count);
}

/* Prints the arrays "limit" and "stride" of dims `from` to `from + depth - 1`, for slice_at. */
static void print_limits(weft_cuda_kernel *k, const weft_ttype *x, uint32_t from, uint32_t depth)
{
    weft_buf *body = weft_cuda__body(k);
    weft_buf_printf(body, "    const i64 limit[%u] = {", depth);
    for (uint32_t i = 0; i < depth; i++)
        weft_buf_printf(body, "%s%s", i ? ", " : "", weft_cuda__int(k, x->dim[from + i]));
    weft_buf_printf(body, "}, stride[%u] = {", depth);
    for (uint32_t i = 0; i < depth; i++)
        weft_buf_printf(body, "%s(i64)%s", i ? ", " : "",
                        weft_cuda__long(k, x, from + i + 1, x->rank));
    weft_buf_puts(body, "};\n    size_t from;\n");
}

weft_err weft_cuda_emit_gather_nd(weft_cuda *cu, weft_node n)
{
    (void)n;
    const weft_ttype *x = weft_cuda__in_type(cu, 0), *index = weft_cuda__in_type(cu, 1);
    const weft_ttype *y = weft_cuda__out_type(cu, 0);
    uint32_t batch = (uint32_t)weft_attrs_int(weft_cuda__attrs(cu), WEFT_ATTR_BATCH_DIMS, 0);
    uint32_t depth = (uint32_t)index->dim[index->rank - 1];
    weft_dim count = weft_cuda__numel(cu, y);
    weft_cuda_kernel *k = start(cu, "gather_nd", count);
    weft_cuda__in(k, "x", 0);
    weft_cuda__in(k, "index", 1);
    print_limits(k, x, batch, depth);
    const char *inner = weft_cuda__long(k, x, batch + depth, x->rank);
    const char *rows = weft_cuda__long(k, index, batch, index->rank - 1u);
    const char *stride = weft_cuda__long(k, x, batch, x->rank);
    weft_buf_printf(weft_cuda__body(k),
                    "    const size_t inner = %s, row = at / inner, batch = row / (%s);\n"
                    "    y[at] = slice_at<%u>(index + row * %u, limit, stride, from)\n"
                    "                ? x[batch * %s + from + at %% inner] : absent<%s>();\n",
                    inner, rows, depth, depth, stride, type_of(y));
    return launch(k, count);
}

/* -- Scatter ----------------------------------------------------------------------------------- */

/* The structure of index.cuh for the reduction; NULL: no reduction. */
static const char *reduction_of(weft_cuda *cu)
{
    const weft_ttype *y = weft_cuda__out_type(cu, 0);
    const char *name = weft_attrs_str(weft_cuda__attrs(cu), WEFT_ATTR_REDUCTION, "none");
    if (strcmp(name, "none") == 0)
        return NULL;
    return weft_arena_printf(weft_cuda__arena(cu), "scatter_%s<%s>", name,
                             weft_cuda__arith((weft_dtype)y->dtype));
}

static void copy_data(weft_cuda *cu)
{
    const weft_ttype *y = weft_cuda__out_type(cu, 0);
    int64_t size = (int64_t)weft_dtype_size((weft_dtype)y->dtype);
    weft_cuda__copy(cu, weft_cuda__at_out(0, 0), weft_cuda__at_in(0, 0),
                    weft_cuda__mul(cu, weft_cuda__numel(cu, y), size));
}

weft_err weft_cuda_emit_scatter_elements(weft_cuda *cu, weft_node n)
{
    (void)n;
    const weft_ttype *x = weft_cuda__in_type(cu, 0), *index = weft_cuda__in_type(cu, 1);
    const char *reduce = reduction_of(cu);
    uint32_t axis = weft_cuda__axis(cu, 0, x->rank);
    weft_ttype shape =
        *index; /* updates of a thread; with a reduction, all updates along the axis */
    weft_dim stride[WEFT_RANK_MAX];
    weft_cuda__strides(cu, index, stride);
    if (reduce)
        shape.dim[axis] = 1;
    weft_dim count = weft_cuda__numel(cu, &shape);
    copy_data(cu);
    weft_cuda_kernel *k = start(cu, "scatter_elements", count);
    weft_cuda__in(k, "index", 1);
    weft_cuda__in(k, "update", 2);
    const char *steps = reduce ? weft_cuda__int(k, index->dim[axis]) : "1";
    const char *from = weft_cuda__offset(k, "at", shape.dim, stride, shape.rank);
    const char *step = weft_cuda__long(k, index, axis + 1, index->rank);
    const char *size = weft_cuda__int(k, x->dim[axis]);
    const char *beside = offset_beside(k, x, &shape, axis);
    const char *stride_x = weft_cuda__long(k, x, axis + 1, x->rank);
    weft_buf_printf(weft_cuda__body(k),
                    "    for (int j = 0; j < %s; j++) {\n"
                    "        const size_t from = %s + j * %s;\n"
                    "        i64 i = index[from];\n"
                    "        if (fix_index(i, %s)) {\n"
                    "            const size_t to = %s + (size_t)i * %s;\n"
                    "            y[to] = %s::of(y[to], update[from]);\n        }\n    }\n",
                    steps, from, step, size, beside, stride_x, reduce ? reduce : "scatter_none");
    return launch(k, count);
}

weft_err weft_cuda_emit_scatter_nd(weft_cuda *cu, weft_node n)
{
    (void)n;
    const weft_ttype *x = weft_cuda__in_type(cu, 0), *index = weft_cuda__in_type(cu, 1);
    weft_dim depth = index->dim[index->rank - 1];
    const char *reduce = reduction_of(cu);
    if (!weft_dim_is_const(depth))
        return weft_cuda__unsup(cu, "only running tells how many indices a slice has");
    weft_dim inner = weft_cuda__product(cu, x, (uint32_t)depth, x->rank);
    weft_dim rows = weft_cuda__product(cu, index, 0, index->rank - 1u);
    weft_dim count = reduce ? inner : weft_cuda__mul(cu, inner, rows);
    copy_data(cu);
    weft_cuda_kernel *k = start(cu, "scatter_nd", count);
    weft_cuda__in(k, "index", 1);
    weft_cuda__in(k, "update", 2);
    print_limits(k, x, 0, (uint32_t)depth);
    const char *length = weft_cuda__long_of(k, &inner, 1);
    const char *last = weft_cuda__long_of(k, &rows, 1);
    weft_buf_printf(weft_cuda__body(k),
                    "    const size_t inner = %s;\n"
                    "    for (size_t row = at / inner; row < %s; row += %s) {\n"
                    "        if (slice_at<%u>(index + row * %u, limit, stride, from)) {\n"
                    "            const size_t to = from + at %% inner;\n"
                    "            y[to] = %s::of(y[to], update[row * inner + at %% inner]);\n"
                    "        }\n    }\n",
                    length, last, reduce ? "1" : last, (uint32_t)depth, (uint32_t)depth,
                    reduce ? reduce : "scatter_none");
    return launch(k, count);
}

/* -- Order ------------------------------------------------------------------------------------- */

/* Rank by counting: each thread counts the elements that precede its own, O(line length) steps.
 * Meant for lines of up to some thousand elements. */
weft_err weft_cuda_emit_top_k(weft_cuda *cu, weft_node n)
{
    (void)n;
    static const char *const name[] = {"value", "index"};
    const weft_ttype *x = weft_cuda__in_type(cu, 0);
    uint32_t axis = weft_cuda__axis(cu, -1, x->rank);
    bool largest = weft_attrs_int(weft_cuda__attrs(cu), WEFT_ATTR_LARGEST, 1) != 0;
    weft_dim count = weft_cuda__numel(cu, x), k_dim = 0;
    const char *to[2] = {"(T *)0", "(i64 *)0"};
    weft_cuda_kernel *k = weft_cuda__kernel(cu, "top_k", THREADS);
    weft_cuda__include(k, "index.cuh");
    weft_cuda__in(k, "x", 0);
    const char *len = weft_cuda__int(k, x->dim[axis]);
    const char *step = weft_cuda__long(k, x, axis + 1, x->rank);
    for (uint32_t i = 0; i < 2; i++) {
        const weft_ttype *y = weft_cuda__out_type(cu, i);
        if (!y)
            continue;
        k_dim = y->dim[axis];
        weft_cuda__out(k, name[i], i);
        to[i] = weft_arena_printf(weft_cuda__arena(cu), "%s + line * %s * step + c", name[i],
                                  weft_cuda__int(k, k_dim));
    }
    weft_cuda__each(k, &count, 1);
    weft_buf_printf(
        weft_cuda__body(k),
        "    typedef %s T;\n"
        "    const size_t step = %s, c = at %% step, line = at / (step * %s);\n"
        "    top_k<%s, %s>(x + line * %s * step + c, %s, step, (int)(at / step %% %s), %s, "
        "%s, %s);\n",
        type_of(x), step, len, largest ? "true" : "false", weft_cuda__arith((weft_dtype)x->dtype),
        len, len, len, weft_cuda__int(k, k_dim), to[0], to[1]);
    return launch(k, count);
}

/* -- By their own place ------------------------------------------------------------------------ */

weft_err weft_cuda_emit_one_hot(weft_cuda *cu, weft_node n)
{
    (void)n;
    const weft_ttype *y = weft_cuda__out_type(cu, 0);
    uint32_t axis = weft_cuda__axis(cu, -1, y->rank);
    weft_dim count = weft_cuda__numel(cu, y);
    weft_cuda_kernel *k = start(cu, "one_hot", count);
    weft_cuda__in(k, "x", 0);
    weft_cuda__in(k, "value", 2);
    const char *depth = weft_cuda__long(k, y, axis, axis + 1);
    weft_buf_printf(weft_cuda__body(k),
                    "    const size_t inner = %s, place = at / inner %% %s;\n"
                    "    i64 i = convert<i64>(x[at / inner / %s * inner + at %% inner]);\n"
                    "    y[at] = value[fix_index(i, (i64)%s) && (size_t)i == place];\n",
                    weft_cuda__long(k, y, axis + 1, y->rank), depth, depth, depth);
    return launch(k, count);
}

/* Prints "row" and "col": the element's coordinates in the last two dims of the result. */
static void print_row_col(weft_cuda_kernel *k, const weft_ttype *y)
{
    const char *cols = weft_cuda__long(k, y, y->rank - 1u, y->rank);
    weft_buf_printf(weft_cuda__body(k),
                    "    const i64 row = (i64)(at / %s %% %s), col = (i64)(at %% %s);\n", cols,
                    weft_cuda__long(k, y, y->rank - 2u, y->rank - 1u), cols);
}

weft_err weft_cuda_emit_trilu(weft_cuda *cu, weft_node n)
{
    (void)n;
    const weft_ttype *y = weft_cuda__out_type(cu, 0);
    bool upper = weft_attrs_int(weft_cuda__attrs(cu), WEFT_ATTR_UPPER, 1) != 0;
    const weft_dim *diagonal;
    uint32_t n_diagonal;
    if (!weft_cuda__param(cu, 1, WEFT_ATTR_K, &diagonal, &n_diagonal) || n_diagonal > 1)
        return weft_cuda__unsup(cu, "only running tells the diagonal");
    weft_dim count = weft_cuda__numel(cu, y);
    weft_cuda_kernel *k = start(cu, "trilu", count);
    weft_cuda__in(k, "x", 0);
    print_row_col(k, y);
    weft_buf_printf(weft_cuda__body(k), "    y[at] = col - row %s %s ? x[at] : %s{};\n",
                    upper ? ">=" : "<=", n_diagonal ? weft_cuda__int(k, diagonal[0]) : "0",
                    type_of(y));
    return launch(k, count);
}

weft_err weft_cuda_emit_eye_like(weft_cuda *cu, weft_node n)
{
    (void)n;
    const weft_ttype *y = weft_cuda__out_type(cu, 0);
    weft_dim count = weft_cuda__numel(cu, y);
    weft_cuda_kernel *k = start(cu, "eye_like", count);
    print_row_col(k, y);
    weft_buf_printf(weft_cuda__body(k), "    y[at] = convert<%s>(col - row == %lldll);\n",
                    type_of(y), (long long)weft_attrs_int(weft_cuda__attrs(cu), WEFT_ATTR_K, 0));
    return launch(k, count);
}

/* One of the first two dims is time, the other one is the batch. */
weft_err weft_cuda_emit_reverse_sequence(weft_cuda *cu, weft_node n)
{
    (void)n;
    const weft_ttype *y = weft_cuda__out_type(cu, 0);
    uint32_t batch = weft_attrs_int(weft_cuda__attrs(cu), WEFT_ATTR_BATCH_AXIS, 1) != 0;
    uint32_t time = 1 - batch;
    weft_dim count = weft_cuda__numel(cu, y);
    weft_cuda_kernel *k = start(cu, "reverse_sequence", count);
    weft_cuda__in(k, "x", 0);
    weft_cuda__in(k, "len", 1);
    const char *below = weft_cuda__long(k, y, time + 1, y->rank);
    const char *steps = weft_cuda__long(k, y, time, time + 1);
    const char *below_batch = weft_cuda__long(k, y, batch + 1, y->rank);
    const char *sequences = weft_cuda__long(k, y, batch, batch + 1);
    const char *longest = weft_cuda__int(k, y->dim[time]);
    weft_buf_printf(weft_cuda__body(k),
                    "    const i64 t = (i64)(at / %s %% %s), own = len[at / %s %% %s];\n"
                    "    const bool turned = t < own && own <= %s;\n"
                    "    y[at] = x[at + (turned ? (size_t)(own - 1 - 2 * t) * %s : 0)];\n",
                    below, steps, below_batch, sequences, longest, below);
    return launch(k, count);
}

weft_err weft_cuda_emit_constant_of_shape(weft_cuda *cu, weft_node n)
{
    (void)n;
    const weft_ttype *y = weft_cuda__out_type(cu, 0);
    const weft_attr *value = weft_attrs_find(weft_cuda__attrs(cu), WEFT_ATTR_VALUE);
    weft_dim count = weft_cuda__numel(cu, y);
    weft_cuda_kernel *k = start(cu, "constant", count);
    const char *text = "0";
    if (value && value->kind == WEFT_KIND_INT)
        text =
            weft_arena_printf(weft_cuda__arena(cu), "(i64)%lluull", (unsigned long long)value->u.i);
    else if (value && value->kind == WEFT_KIND_FLOAT)
        text = weft_cuda__f32_text(cu, (float)value->u.f);
    weft_buf_printf(weft_cuda__body(k), "    y[at] = convert<%s>(%s);\n", type_of(y), text);
    return launch(k, count);
}

/* Integers only: ranges of floats have been folded to constants. */
weft_err weft_cuda_emit_range(weft_cuda *cu, weft_node n)
{
    (void)n;
    const weft_ttype *y = weft_cuda__out_type(cu, 0);
    const weft_dim *first, *step;
    uint32_t n_first, n_step;
    if (weft_dtype_is_float((weft_dtype)y->dtype))
        return weft_cuda__unsup(cu, "ranges of %s", type_of(y));
    if (!weft_cuda__param(cu, 0, WEFT_ATTR_START, &first, &n_first) ||
        !weft_cuda__param(cu, 2, WEFT_ATTR_DELTA, &step, &n_step) || n_first != 1 || n_step != 1)
        return weft_cuda__unsup(cu, "only running tells start and step");
    weft_dim count = weft_cuda__numel(cu, y);
    weft_cuda_kernel *k = start(cu, "range", count);
    const char *start_text = weft_cuda__int(k, first[0]), *step_text = weft_cuda__int(k, step[0]);
    weft_buf_printf(weft_cuda__body(k), "    y[at] = convert<%s>((i64)%s + (i64)at * %s);\n",
                    type_of(y), start_text, step_text);
    return launch(k, count);
}

/* Sizes as data, of shape and size: only where they are not constants, and something computes with
 * them on the device. */
weft_err weft_cuda_emit_shape(weft_cuda *cu, weft_node n)
{
    const weft_ttype *x = weft_cuda__in_type(cu, 0), *y = weft_cuda__out_type(cu, 0);
    weft_attrs attrs = weft_cuda__attrs(cu);
    bool is_size = weft_node_op(weft_cuda__module(cu), n) == WEFT_OP_SIZE;
    int64_t first = weft_attrs_int(attrs, WEFT_ATTR_START, 0);
    if (weft_cuda__is_last(cu, 0))
        return weft_cuda__unsup(cu, "an operand with channels innermost");
    first = first < 0 ? first + x->rank : first;
    first = first < 0 ? 0 : first;
    uint32_t count = is_size ? 1 : (uint32_t)y->dim[0];
    weft_cuda_kernel *k = weft_cuda__kernel(cu, "shape", 32);
    weft_cuda__include(k, "prelude.cuh");
    weft_cuda__out(k, "y", 0);
    weft_buf_puts(weft_cuda__body(k), "    if (threadIdx.x > 0)\n        return;\n");
    for (uint32_t i = 0; i < count; i++)
        weft_buf_printf(weft_cuda__body(k), "    y[%u] = %s;\n", i,
                        is_size ? weft_cuda__long(k, x, 0, x->rank)
                                : weft_cuda__int(k, x->dim[(uint32_t)first + i]));
    weft_cuda__launch(k, count > 0, 1, 1, 0);
    return WEFT_ERR_OK;
}
