/* pack-sequences: a program of a model that runs sequences of different lengths without padding.
 *
 *     graph @m (%ids : i64[?b,?s])                graph @m.packed (%ids : i64[1,?rows],
 *       %1 = gather $words, %ids                      %position : i64[?rows], %start : i64[32])
 *       %2 = slice $p {0 .. ?s}                      %1 = gather $words, %ids
 *       %3 = add %1, %2                   ==>        %2 = gather $p, %position
 *       %4 = matmul %3, $w                           %3 = add %1, %2
 *       %5 = attention %4, %4, %4                    %4 = matmul %3, $w
 *       %6 = gather %5, 0 {axis = 1}                 %5 = attention %4, %4, %4, _, %start
 *                                                    %6 = reshape(gather %5, %start {axis = 1})
 *
 * The rows of all sequences are one after the other on the axis of the tokens, and the batch is 1.
 * That computes the same values if a token depends on its own row alone everywhere but in
 * attention, which knows where sequences start, and in sums over a sequence:
 *
 *     reduce_sum %x {axes = 1}             ==> reduce_sequences %x, %start {mode = "sum"}
 *     cum_sum %x {axis = 1}, of integers   ==> the sums over all rows, less the sum of the rows
 *                                              before the row's sequence
 *     gather %x, -1 {axis = 1}             ==> the rows with the largest number of each sequence
 *
 * The pass follows the length ?s through the graph (weft_spreads), as the analysis of batches does
 * the batch, and gives each value a class:
 *
 *     FREE       depends on no size
 *     TOKEN      a row for each token; batch 1, ?s becomes ?rows
 *     SEQUENCE   a row for each sequence; the batch becomes the number of starts
 *     EVEN       the same, and all rows are equal
 *     PLACE      depends on the position in the sequence alone; a table of the longest sequence,
 *                from which rows are gathered by position where they meet tokens
 *     PLACES     of two positions, such as a causal mask: a table
 *     KEYS       a mask of keys that the model repeats for each query and head: of size 1 there
 *     PAIR       a mask of positions and of keys, [.., ?s, ?s]: [.., ?rows, longest], for each row
 *                what the keys of its sequence have there, by position
 *
 * A value of class PLACE or PLACES must not depend on the length: that of a shorter sequence is a
 * prefix of the table. Its sources are prefixes of constants, ranges from 0 and constant fills.
 * A graph with a node that fits no rule has no packed program; the log tells the node. The idea is
 * that of effective transformers (ByteTransformer, 2022, and the variable lengths of
 * FlashAttention). O(nodes). */
#include "passes/pack_int.h"

#include <string.h>

enum {
    ROWS_MAX = 1024,    /* of one run: beyond, products gain nothing from more rows */
    TABLE_MAX = 1 << 26 /* bytes of one table by two positions */
};

/* -- Rules: values without tokens ------------------------------------------------------------- */

/* Sizes as attributes are for shapes and for prefixes; everywhere else they are data. */
static bool has_size_as_data(weft_packer *p, weft_node n)
{
    weft_attrs attrs = weft_node_attrs(p->m, n);
    for (uint32_t i = 0; i < attrs.n; i++)
        for (uint32_t k = 0; attrs.at[i].kind == WEFT_KIND_DIMS && k < attrs.at[i].n; k++)
            if (attrs.at[i].key != WEFT_ATTR_SHAPE &&
                weft_packer__mentions(p, attrs.at[i].u.dims[k]))
                return true;
    return false;
}

static const weft_attr *get_dims(weft_packer *p, weft_node n, weft_attr_key key)
{
    const weft_attr *a = weft_attrs_find(weft_node_attrs(p->m, n), key);
    return a && a->kind == WEFT_KIND_DIMS ? a : NULL;
}

/* x[0:length] along constant axes, and constant slices of axes without the length. */
static bool is_prefix(weft_packer *p, weft_node n)
{
    const weft_attr *axes = get_dims(p, n, WEFT_ATTR_AXES), *ends = get_dims(p, n, WEFT_ATTR_ENDS);
    const weft_attr *starts = get_dims(p, n, WEFT_ATTR_STARTS);
    const weft_attr *steps = get_dims(p, n, WEFT_ATTR_STEPS);
    const weft_ttype *x = weft_val_ttype(p->m, weft_node_in(p->m, n, 0));
    if (weft_node_op(p->m, n) != WEFT_OP_SLICE || !axes || !ends || !starts)
        return false;
    for (uint32_t i = 0; i < axes->n; i++) {
        weft_dim axis = axes->u.dims[i] < 0 ? axes->u.dims[i] + x->rank : axes->u.dims[i];
        weft_dim size = x->dim[axis], step = steps ? steps->u.dims[i] : 1;
        if (weft_packer__mentions(p, starts->u.dims[i]) || weft_packer__mentions(p, step) ||
            weft_packer__mentions(p, size))
            return false;
        if (weft_packer__mentions(p, ends->u.dims[i]) &&
            (ends->u.dims[i] != p->seq || starts->u.dims[i] != 0 || step != 1 ||
             !weft_dim_is_const(size) || size < p->longest))
            return false;
    }
    return true;
}

/* x[0:length] of fewer rows than sequences may have. */
static bool is_short(weft_packer *p, weft_node n)
{
    const weft_attr *axes = get_dims(p, n, WEFT_ATTR_AXES), *ends = get_dims(p, n, WEFT_ATTR_ENDS);
    const weft_ttype *x = weft_val_ttype(p->m, weft_node_in(p->m, n, 0));
    if (weft_node_op(p->m, n) != WEFT_OP_SLICE || !axes || !ends || axes->n != 1)
        return false;
    weft_dim size = x->dim[axes->u.dims[0] < 0 ? axes->u.dims[0] + x->rank : axes->u.dims[0]];
    return ends->u.dims[0] == p->seq && weft_dim_is_const(size) && size < p->longest;
}

/* The constant or size that operand i of a range is. */
static bool get_bound(weft_packer *p, weft_node n, uint32_t i, weft_attr_key key, weft_dim *out)
{
    const weft_attr *a = get_dims(p, n, key);
    const weft_dim *at = a ? a->u.dims : NULL;
    weft_val v = weft_node_in(p->m, n, i);
    uint32_t count = a ? a->n : 0;
    if (!at && v.i)
        at = weft_contents_get(p->cx->contents, v, &count);
    if (!at || count != 1)
        return false;
    *out = at[0];
    return true;
}

/* Numbers from a constant on, in constant steps, one for each position. */
static bool is_range(weft_packer *p, weft_node n, int64_t *out_first, int64_t *out_step)
{
    if (weft_node_op(p->m, n) != WEFT_OP_RANGE || !get_bound(p, n, 0, WEFT_ATTR_START, out_first) ||
        !get_bound(p, n, 2, WEFT_ATTR_DELTA, out_step))
        return false;
    const weft_ttype *t = weft_val_ttype(p->m, weft_node_out(p->m, n, 0));
    return t->dtype == WEFT_DTYPE_I64 && t->dim[0] == p->seq && weft_dim_is_const(*out_first) &&
           weft_dim_is_const(*out_step) && *out_first >= -INT32_MAX && *out_first <= INT32_MAX &&
           *out_step >= -INT32_MAX && *out_step <= INT32_MAX;
}

/* Whether a table of this value is small enough. */
static bool fits_table(weft_packer *p, weft_node n, weft_val v)
{
    weft_ttype t;
    double bytes = 1;
    if (!weft_packer__put_type(p, WEFT_PACK_TABLE, v, &t))
        return weft_packer__refuse(p, n, "computes with the length of sequences");
    for (uint32_t k = 0; k < t.rank; k++)
        bytes *= weft_dim_is_const(t.dim[k]) ? (double)t.dim[k] : (double)TABLE_MAX;
    bytes *= (double)weft_dtype_size((weft_dtype)t.dtype);
    return bytes <= TABLE_MAX || weft_packer__refuse(p, n, "would be a table of over 64 MB");
}

/* Sets the class of a node by positions whose table has been made. */
static bool finish_places(weft_packer *p, weft_node n)
{
    weft_val v = weft_node_out(p->m, n, 0);
    uint32_t axes = weft_packer__count_axes(p, v, false);
    const weft_ttype *t = weft_val_ttype(p->m, v);
    weft_spread at = {.kind = WEFT_SPREAD_AXIS, .outer = 1, .inner = 1};
    for (uint32_t k = t->rank; k-- > 0;) {
        if (!weft_spreads_mention(p->tokens, t->dim[k]))
            continue;
        if (t->dim[k] != p->seq)
            return weft_packer__refuse(p, n, "mixes positions with other sizes");
        at.axis = (uint8_t)k;
    }
    if (axes == 1)
        weft_spreads_set(p->tokens, v, &at);
    return weft_packer__finish(p, n, axes > 1 ? WEFT_PACK_PLACES : WEFT_PACK_PLACE);
}

/* Row-major order with the same sizes, but for axes of size 1. */
static bool keeps_axes(weft_packer *p, weft_node n)
{
    const weft_ttype *a = weft_val_ttype(p->m, weft_node_in(p->m, n, 0));
    const weft_ttype *b = weft_val_ttype(p->m, weft_node_out(p->m, n, 0));
    uint32_t i = 0, k = 0;
    for (;; i++, k++) {
        while (i < a->rank && a->dim[i] == 1)
            i++;
        while (k < b->rank && b->dim[k] == 1)
            k++;
        if (i == a->rank || k == b->rank)
            return i == a->rank && k == b->rank;
        if (a->dim[i] != b->dim[k])
            return false;
    }
}

/* The numbers of positions, or the same in another form: they index each position once. */
static bool counts_up(weft_packer *p, weft_val v)
{
    weft_node n = v.i && weft_val_get_kind(p->m, v) != WEFT_VAL_WEIGHT ? weft_val_node(p->m, v)
                                                                       : (weft_node){0};
    while (n.i &&
           (weft_node_op(p->m, n) == WEFT_OP_RESHAPE || weft_node_op(p->m, n) == WEFT_OP_CAST ||
            weft_node_op(p->m, n) == WEFT_OP_EXPAND))
        n = weft_val_node(p->m, weft_node_in(p->m, n, 0));
    int64_t first, step;
    return n.i && is_range(p, n, &first, &step) && first == 0 && step == 1;
}

/* A row of the result depends on the same row of the operands, of one position each. */
static bool follows(weft_packer *p, weft_node n)
{
    for (uint32_t i = 0; i < weft_node_in_count(p->m, n); i++)
        if (weft_packer__class_of(p, weft_node_in(p->m, n, i)) == WEFT_PACK_PLACES)
            return false;
    weft_spreads_visit(p->tokens, n);
    weft_spread at = weft_spreads_get(p->tokens, weft_node_out(p->m, n, 0));
    return at.kind == WEFT_SPREAD_AXIS && at.outer == 1 && at.inner == 1;
}

/* A node whose operands depend on positions alone. */
static bool visit_places(weft_packer *p, weft_node n)
{
    const weft_op *op = weft_node_opdef(p->m, n);
    weft_val v = weft_node_out(p->m, n, 0);
    weft_op_id id = weft_node_op(p->m, n);
    bool ok = (op->traits & WEFT_T_EW) != 0 || id == WEFT_OP_TRANSPOSE || id == WEFT_OP_EXPAND ||
              (id == WEFT_OP_GATHER &&
               (weft_packer__class_of(p, weft_node_in(p->m, n, 0)) == WEFT_PACK_FREE ||
                counts_up(p, weft_node_in(p->m, n, 1)))) ||
              (id == WEFT_OP_TRILU && weft_packer__is_square(p, v)) || is_prefix(p, n) ||
              (id == WEFT_OP_RESHAPE && keeps_axes(p, n)) || follows(p, n);
    if (!ok || weft_node_out_count(p->m, n) != 1 || (!is_prefix(p, n) && has_size_as_data(p, n)))
        return weft_packer__refuse(p, n, "mixes positions");
    return fits_table(p, n, v) && weft_packer__copy(p, n, WEFT_PACK_TABLE, false) &&
           finish_places(p, n);
}

/* A node without operands that depend on sizes. */
static bool visit_free(weft_packer *p, weft_node n)
{
    const weft_op *op = weft_node_opdef(p->m, n);
    bool fill = (op->traits & WEFT_T_FILL) != 0, data = has_size_as_data(p, n);
    uint32_t axes = 0, batches = 0;
    for (uint32_t i = 0; i < weft_node_out_count(p->m, n); i++) {
        axes += weft_packer__count_axes(p, weft_node_out(p->m, n, i), false);
        batches += weft_packer__count_axes(p, weft_node_out(p->m, n, i), true);
    }
    int64_t first, step;
    if (is_range(p, n, &first, &step)) {
        p->val[weft_node_out(p->m, n, 0).i] = weft_packer__position_numbers(p, first, step);
        return finish_places(p, n);
    }
    if (axes == 0 && batches == 0 && !data && !(op->traits & WEFT_T_RANDOM))
        return weft_packer__copy(p, n, WEFT_PACK_BY_ROW, false) &&
               weft_packer__finish(p, n, WEFT_PACK_FREE);
    if (axes == 0 && fill && !data)
        return weft_packer__copy(p, n, WEFT_PACK_BY_SEQUENCE, false) &&
               weft_packer__finish_sequence(p, n, true);
    if (axes == 1 && fill && !data) {
        weft_spreads_visit(p->tokens, n);
        if (weft_spreads_get(p->tokens, weft_node_out(p->m, n, 0)).kind == WEFT_SPREAD_AXIS)
            return weft_packer__copy(p, n, WEFT_PACK_BY_ROW, false) &&
                   weft_packer__finish(p, n, WEFT_PACK_TOKEN);
    }
    if ((fill && !data) || (batches == 0 && is_prefix(p, n)))
        return fits_table(p, n, weft_node_out(p->m, n, 0)) &&
               weft_packer__copy(p, n, WEFT_PACK_TABLE, false) && finish_places(p, n);
    return weft_packer__refuse(
        p, n,
        is_short(p, n) ? "has fewer rows than the longest sequence (state `dims` of the "
                         "length in a set file)"
                       : "computes with the length of sequences");
}

/* -- Rules: tokens ---------------------------------------------------------------------------- */

static bool is_rows(weft_packer *p, weft_val v)
{
    weft_spread s = weft_spreads_get(p->tokens, v);
    const weft_ttype *t = weft_val_ttype(p->m, v);
    return weft_packer__class_of(p, v) == WEFT_PACK_TOKEN && s.kind == WEFT_SPREAD_AXIS &&
           s.axis == 1 && t->rank >= 2 && t->dim[0] == p->batch && t->dim[1] == p->seq;
}

/* x[:, 0], by gather or slice: the first row of each sequence. */
static bool is_first(weft_packer *p, weft_node n)
{
    weft_val x = weft_node_in(p->m, n, 0);
    double index;
    if (!x.i || !is_rows(p, x))
        return false;
    if (weft_node_op(p->m, n) == WEFT_OP_GATHER) {
        int64_t axis = weft_attrs_int(weft_node_attrs(p->m, n), WEFT_ATTR_AXIS, 0);
        return axis == 1 && weft_rewrite__scalar(p->m, weft_node_in(p->m, n, 1), &index) &&
               index == 0;
    }
    const weft_attr *axes = get_dims(p, n, WEFT_ATTR_AXES), *ends = get_dims(p, n, WEFT_ATTR_ENDS);
    const weft_attr *starts = get_dims(p, n, WEFT_ATTR_STARTS);
    return weft_node_op(p->m, n) == WEFT_OP_SLICE && axes && axes->n == 1 && starts && ends &&
           axes->u.dims[0] == 1 && starts->u.dims[0] == 0 && ends->u.dims[0] == 1;
}

static bool visit_first(weft_packer *p, weft_node n)
{
    weft_val v = weft_node_out(p->m, n, 0);
    weft_loc loc = weft_node_loc(p->m, n);
    weft_ttype type = *weft_val_ttype(p->m, v);
    if (weft_node_op(p->m, n) == WEFT_OP_SLICE)
        type.dim[1] = 1; /* or 0, of a sequence without tokens */
    const weft_ttype from = type;
    if (!weft_packer__put_dims(p, WEFT_PACK_BY_SEQUENCE, from.dim, from.rank, type.dim))
        return weft_packer__refuse(p, n, "has sizes that are no multiples of the batch");
    weft_val first =
        weft_packer__gather(p, weft_packer__get(p, weft_node_in(p->m, n, 0)), p->start, 1, loc);
    p->val[v.i] = weft_packer__reshape(p, first, &type, loc);
    return weft_packer__finish(p, n, WEFT_PACK_SEQUENCE);
}

/* -- Rules: sums over a sequence -------------------------------------------------------------- */

/* The only axis along which the node computes, of operand 1 or the attribute; -1: others. */
static int64_t axis_of(weft_packer *p, weft_node n, weft_attr_key key)
{
    uint32_t count = 0, from_attr = 0;
    const int64_t *at = weft_attrs_ints(weft_node_attrs(p->m, n), key, &from_attr);
    const weft_attr *dims = get_dims(p, n, key);
    weft_val v = weft_node_in(p->m, n, 1);
    count = from_attr;
    if (!at && dims) {
        at = dims->u.dims;
        count = dims->n;
    } else if (!at && v.i) {
        at = weft_contents_get(p->cx->contents, v, &count);
    }
    uint32_t rank = weft_val_ttype(p->m, weft_node_in(p->m, n, 0))->rank;
    return !at || count != 1 ? -1 : at[0] < 0 ? at[0] + rank : at[0];
}

static const char *mode_of(weft_op_id op)
{
    return op == WEFT_OP_REDUCE_SUM    ? "sum"
           : op == WEFT_OP_REDUCE_MEAN ? "mean"
           : op == WEFT_OP_REDUCE_MAX  ? "max"
           : op == WEFT_OP_REDUCE_MIN  ? "min"
                                       : NULL;
}

static bool is_summable(weft_packer *p, weft_val v)
{
    weft_dtype dtype = (weft_dtype)weft_val_ttype(p->m, v)->dtype;
    return weft_dtype_is_float(dtype) || dtype == WEFT_DTYPE_I64 || dtype == WEFT_DTYPE_I32;
}

/* A row for each sequence: the rows of x [1, rows, ..] reduced. */
static weft_val reduce(weft_packer *p, weft_val x, const char *mode, weft_loc loc)
{
    weft_ttype type = *weft_val_ttype(p->m, x);
    weft_val in[2] = {x, p->start};
    weft_attr attr = WEFT_ATTR_OF_STR(MODE, mode);
    type.dim[1] = WEFT_PACKED_SEQUENCES;
    type.rank--;
    memmove(type.dim, type.dim + 1, type.rank * sizeof *type.dim);
    return weft_rewrite__append(p->to, WEFT_OP_REDUCE_SEQUENCES, in, 2, &attr, 1, &type, loc);
}

/* A sum, mean or extreme over the tokens. */
static bool is_pool(weft_packer *p, weft_node n)
{
    weft_val x = weft_node_in(p->m, n, 0);
    return mode_of(weft_node_op(p->m, n)) && is_rows(p, x) && is_summable(p, x) &&
           axis_of(p, n, WEFT_ATTR_AXES) == 1;
}

static bool visit_pool(weft_packer *p, weft_node n)
{
    weft_val v = weft_node_out(p->m, n, 0);
    weft_loc loc = weft_node_loc(p->m, n);
    weft_ttype type;
    if (!weft_packer__put_type(p, WEFT_PACK_BY_SEQUENCE, v, &type))
        return weft_packer__refuse(p, n, "has sizes that are no multiples of the batch");
    weft_val sum = reduce(p, weft_packer__get(p, weft_node_in(p->m, n, 0)),
                          mode_of(weft_node_op(p->m, n)), loc);
    p->val[v.i] = weft_packer__reshape(p, sum, &type, loc);
    return weft_packer__finish(p, n, WEFT_PACK_SEQUENCE);
}

/* A running sum along the tokens, of integers: exact, whatever is added and taken away again. */
static bool is_running(weft_packer *p, weft_node n)
{
    weft_val x = weft_node_in(p->m, n, 0);
    weft_attrs attrs = weft_node_attrs(p->m, n);
    return weft_node_op(p->m, n) == WEFT_OP_CUM_SUM && is_rows(p, x) && is_summable(p, x) &&
           !weft_dtype_is_float((weft_dtype)weft_val_ttype(p->m, x)->dtype) &&
           axis_of(p, n, WEFT_ATTR_AXIS) == 1 && !weft_attrs_int(attrs, WEFT_ATTR_EXCLUSIVE, 0) &&
           !weft_attrs_int(attrs, WEFT_ATTR_REVERSE, 0);
}

static bool visit_running(weft_packer *p, weft_node n)
{
    weft_val v = weft_node_out(p->m, n, 0), x = weft_packer__get(p, weft_node_in(p->m, n, 0));
    if (!weft_packer__copy(p, n, WEFT_PACK_BY_ROW, false))
        return false;
    const weft_ttype type = *weft_val_ttype(p->m, x);
    weft_val sums = p->val[v.i], less = weft_packer__combine(p, WEFT_OP_SUB, sums, x, &type);
    weft_val before =
        weft_packer__gather(p, less, weft_packer__first_rows(p), 1, weft_node_loc(p->m, n));
    p->val[v.i] = weft_packer__combine(p, WEFT_OP_SUB, sums, before, &type);
    weft_spread at = {.kind = WEFT_SPREAD_AXIS, .axis = 1, .outer = 1, .inner = 1};
    weft_spreads_set(p->tokens, v, &at);
    return weft_packer__finish(p, n, WEFT_PACK_TOKEN);
}

/* x[:, -1]: the last row of each sequence. */
static bool is_last(weft_packer *p, weft_node n)
{
    double index;
    return weft_node_op(p->m, n) == WEFT_OP_GATHER && is_rows(p, weft_node_in(p->m, n, 0)) &&
           weft_attrs_int(weft_node_attrs(p->m, n), WEFT_ATTR_AXIS, 0) == 1 &&
           weft_rewrite__scalar(p->m, weft_node_in(p->m, n, 1), &index) && index == -1;
}

static bool visit_last(weft_packer *p, weft_node n)
{
    weft_val v = weft_node_out(p->m, n, 0);
    weft_loc loc = weft_node_loc(p->m, n);
    const weft_ttype row = {.dtype = WEFT_DTYPE_I64, .rank = 2, .dim = {1, p->rows}};
    weft_ttype type;
    if (!weft_packer__put_type(p, WEFT_PACK_BY_SEQUENCE, v, &type))
        return weft_packer__refuse(p, n, "has sizes that are no multiples of the batch");
    weft_val last =
        reduce(p, weft_packer__reshape(p, weft_packer__row_numbers(p), &row, loc), "max", loc);
    p->val[v.i] = weft_packer__reshape(
        p, weft_packer__gather(p, weft_packer__get(p, weft_node_in(p->m, n, 0)), last, 1, loc),
        &type, loc);
    return weft_packer__finish(p, n, WEFT_PACK_SEQUENCE);
}

/* -- Rules: masks ----------------------------------------------------------------------------- */

/* The same for all queries and keys. */
static bool is_same_everywhere(weft_packer *p, weft_val v)
{
    const weft_ttype *t = weft_val_ttype(p->m, v);
    return weft_packer__class_of(p, v) == WEFT_PACK_FREE &&
           (t->rank < 1 || t->dim[t->rank - 1] == 1) && (t->rank < 2 || t->dim[t->rank - 2] == 1);
}

/* A mask of positions and of the request's own mask. */
static bool visit_pair(weft_packer *p, weft_node n)
{
    weft_val v = weft_node_out(p->m, n, 0);
    bool ok =
        (weft_node_opdef(p->m, n)->traits & WEFT_T_EW) || weft_node_op(p->m, n) == WEFT_OP_EXPAND;
    if (!ok || !weft_packer__is_square(p, v) || weft_packer__count_axes(p, v, false) != 2)
        return weft_packer__refuse(p, n, "mixes the tokens of a sequence");
    return weft_packer__copy(p, n, WEFT_PACK_BY_PAIR, weft_node_op(p->m, n) != WEFT_OP_EXPAND) &&
           weft_packer__finish(p, n, WEFT_PACK_PAIR);
}

/* A mask of keys repeated for each query. */
static bool visit_keys(weft_packer *p, weft_node n)
{
    const weft_op *op = weft_node_opdef(p->m, n);
    weft_val x = weft_node_in(p->m, n, 0), v = weft_node_out(p->m, n, 0);
    if (!weft_packer__is_square(p, v))
        return weft_packer__refuse(p, n, "mixes the tokens of a sequence");
    if (weft_node_op(p->m, n) == WEFT_OP_EXPAND && weft_packer__is_keys(p, x)) {
        weft_ttype type, own = *weft_val_ttype(p->m, weft_packer__get(p, x));
        if (!weft_packer__put_type(p, WEFT_PACK_BY_ROW, v, &type) || type.rank != own.rank)
            return weft_packer__refuse(p, n, "mixes the tokens of a sequence");
        for (uint32_t k = 0; k < type.rank; k++)
            if (type.dim[k] != own.dim[k] && own.dim[k] != 1)
                return weft_packer__refuse(p, n, "mixes the tokens of a sequence");
        p->val[v.i] = weft_packer__get(p, x);
        return weft_packer__finish(p, n, WEFT_PACK_KEYS);
    }
    for (uint32_t i = 0; i < weft_node_in_count(p->m, n); i++) {
        weft_val in = weft_node_in(p->m, n, i);
        if (!(op->traits & WEFT_T_EW))
            return weft_packer__refuse(p, n, "mixes the tokens of a sequence");
        if (weft_packer__class_of(p, in) != WEFT_PACK_KEYS && !weft_packer__is_keys(p, in) &&
            !is_same_everywhere(p, in))
            return visit_pair(p, n);
    }
    return weft_packer__copy(p, n, WEFT_PACK_BY_ROW, true) &&
           weft_packer__finish(p, n, WEFT_PACK_KEYS);
}

/* The mask of packed attention; false: it depends on more than keys or positions. */
static bool take_mask(weft_packer *p, weft_node n, weft_val mask, weft_val *out)
{
    const weft_ttype *t = mask.i ? weft_val_ttype(p->m, mask) : NULL;
    *out = (weft_val){0};
    if (!mask.i)
        return true;
    *out = weft_packer__get(p, mask);
    if (weft_packer__class_of(p, mask) == WEFT_PACK_PAIR)
        return weft_packer__is_square(p, mask) ||
               weft_packer__refuse(p, n, "has a mask that is not of queries and keys");
    if (is_same_everywhere(p, mask) || weft_packer__class_of(p, mask) == WEFT_PACK_KEYS)
        return true;
    if (weft_packer__class_of(p, mask) == WEFT_PACK_PLACES && weft_packer__is_square(p, mask))
        return weft_packer__count_axes(p, mask, false) == 2 ||
               weft_packer__refuse(p, n, "has a mask of three positions");
    if (!weft_packer__is_keys(p, mask) || (t->rank == 4 && t->dim[0] != 1 && t->dim[0] != p->batch))
        return weft_packer__refuse(p, n,
                                   "has a mask that is neither one of keys nor one of positions");
    *out = weft_packer__by_row(p, mask);
    return true;
}

static bool visit_attention(weft_packer *p, weft_node n)
{
    weft_val in[5] = {{0}}, v = weft_node_out(p->m, n, 0);
    weft_attrs attrs = weft_node_attrs(p->m, n);
    weft_attr *attr = weft_arena_array(p->cx->scratch, (size_t)attrs.n + 1, sizeof *attr);
    weft_ttype type;
    for (uint32_t i = 0; i < 3; i++) {
        in[i] = weft_packer__get(p, weft_node_in(p->m, n, i));
        if (!is_rows(p, weft_node_in(p->m, n, i)))
            return weft_packer__refuse(p, n, "has operands without a row for each token");
    }
    if (!take_mask(p, n, weft_node_in(p->m, n, 3), &in[3]) ||
        !weft_packer__put_type(p, WEFT_PACK_BY_ROW, v, &type))
        return p->reason ? false : weft_packer__refuse(p, n, "has other sizes than the tokens");
    in[4] = p->start;
    memcpy(attr, attrs.at, attrs.n * sizeof *attr);
    attr[attrs.n] = WEFT_ATTR_OF_INT(BY_ROW, 1);
    bool pair = weft_packer__class_of(p, weft_node_in(p->m, n, 3)) == WEFT_PACK_PAIR;
    p->val[v.i] = weft_rewrite__append(p->to, WEFT_OP_ATTENTION, in, 5, attr, attrs.n + pair, &type,
                                       weft_node_loc(p->m, n));
    weft_spread at = {.kind = WEFT_SPREAD_AXIS, .axis = 1, .outer = 1, .inner = 1};
    weft_spreads_set(p->tokens, v, &at);
    return weft_packer__finish(p, n, WEFT_PACK_TOKEN);
}

/* A node that computes each row from the same row of its operands. */
static bool visit_rows(weft_packer *p, weft_node n)
{
    if (has_size_as_data(p, n))
        return weft_packer__refuse(p, n, "computes with the length of sequences");
    weft_spreads_visit(p->tokens, n);
    for (uint32_t i = 0; i < weft_node_out_count(p->m, n); i++) {
        weft_val v = weft_node_out(p->m, n, i);
        if (weft_val_type(p->m, v).i && weft_spreads_get(p->tokens, v).kind != WEFT_SPREAD_AXIS)
            return weft_packer__refuse(p, n, "mixes the tokens of a sequence");
    }
    return weft_packer__copy(p, n, WEFT_PACK_BY_ROW, false) &&
           weft_packer__finish(p, n, WEFT_PACK_TOKEN);
}

static bool visit(weft_packer *p, weft_node n)
{
    uint32_t count[WEFT_PACK_PAIR + 1] = {0};
    weft_val v = weft_node_out(p->m, n, 0);
    for (uint32_t i = 0; i < weft_node_in_count(p->m, n); i++)
        count[weft_packer__class_of(p, weft_node_in(p->m, n, i))]++;
    uint32_t tokens = count[WEFT_PACK_TOKEN] + count[WEFT_PACK_PLACE] + count[WEFT_PACK_PLACES] +
                      count[WEFT_PACK_KEYS] + count[WEFT_PACK_PAIR];
    if (weft_node_opdef(p->m, n)->traits & WEFT_T_BODY)
        return weft_packer__refuse(p, n, "runs other graphs");
    if (weft_node_op(p->m, n) == WEFT_OP_ADAPTER_DELTA)
        return weft_packer__refuse(
            p, n, "adds the adapter of a request, which is told by rows of a batch");
    if (weft_node_op(p->m, n) == WEFT_OP_ATTENTION && count[WEFT_PACK_TOKEN] > 0)
        return visit_attention(p, n);
    if (count[WEFT_PACK_SEQUENCE] > 0 && tokens > 0)
        return weft_packer__refuse(p, n, "combines tokens with a value of their sequence");
    if (tokens == 0 && count[WEFT_PACK_SEQUENCE] + count[WEFT_PACK_EVEN] > 0)
        return has_size_as_data(p, n)
                   ? weft_packer__refuse(p, n, "computes with the number of requests")
                   : weft_packer__copy(p, n, WEFT_PACK_BY_SEQUENCE, false) &&
                         weft_packer__finish_sequence(p, n, count[WEFT_PACK_SEQUENCE] == 0);
    if (count[WEFT_PACK_TOKEN] > 0 && is_first(p, n))
        return visit_first(p, n);
    if (count[WEFT_PACK_TOKEN] > 0 && is_last(p, n))
        return visit_last(p, n);
    if (count[WEFT_PACK_TOKEN] > 0 && is_pool(p, n))
        return visit_pool(p, n);
    if (count[WEFT_PACK_TOKEN] > 0 && is_running(p, n))
        return visit_running(p, n);
    if (count[WEFT_PACK_KEYS] > 0 || (count[WEFT_PACK_TOKEN] > 0 && (count[WEFT_PACK_PLACES] > 0 ||
                                                                     weft_packer__is_square(p, v))))
        return visit_keys(p, n);
    if (count[WEFT_PACK_PAIR] > 0)
        return visit_pair(p, n);
    if (count[WEFT_PACK_TOKEN] > 0)
        return visit_rows(p, n);
    if (count[WEFT_PACK_PLACES] > 0 ||
        (count[WEFT_PACK_PLACE] > 0 && weft_packer__count_axes(p, v, true) == 0))
        return visit_places(p, n);
    return count[WEFT_PACK_PLACE] > 0 ? visit_rows(p, n) : visit_free(p, n);
}

/* -- The graph -------------------------------------------------------------------------------- */

/* The size of axis 1 of the inputs that have tokens: the first that is a symbol of its own. */
static weft_dim find_length(const weft_graph *g, weft_dim batch)
{
    const weft_module *m = weft_graph_module(g);
    for (uint32_t i = 0; i < weft_graph_input_count(g); i++) {
        const weft_ttype *t = weft_val_ttype(m, weft_graph_input(g, i));
        for (uint32_t k = 0; k < weft_graph_symbol_count(g) && t->rank >= 2; k++)
            if (t->dim[1] == weft_graph_symbol_dim(g, k) && t->dim[1] != batch)
                return t->dim[1];
    }
    return 0;
}

static bool add_inputs(weft_packer *p)
{
    for (uint32_t i = 0; i < weft_graph_input_count(p->from); i++) {
        weft_val v = weft_graph_input(p->from, i);
        bool has_tokens = weft_packer__count_axes(p, v, false) > 0;
        weft_ttype type;
        weft_spread at = {.kind = WEFT_SPREAD_AXIS, .axis = 1, .outer = 1, .inner = 1};
        p->of[v.i] = has_tokens ? WEFT_PACK_TOKEN : WEFT_PACK_SEQUENCE;
        if (has_tokens)
            weft_spreads_set(p->tokens, v, &at);
        if ((has_tokens && (!is_rows(p, v) || weft_packer__count_axes(p, v, false) != 1)) ||
            !weft_packer__put_type(p, has_tokens ? WEFT_PACK_BY_ROW : WEFT_PACK_BY_SEQUENCE, v,
                                   &type))
            return weft_packer__refuse(p, (weft_node){0},
                                       "an input has the length on another axis");
        for (uint32_t k = has_tokens ? 2 : 1; k < type.rank; k++)
            if (!weft_dim_is_const(type.dim[k]))
                return weft_packer__refuse(p, (weft_node){0},
                                           "an input has another size that varies");
        p->val[v.i] = weft_graph_add_input(p->to, weft_graph_input_name(p->from, i),
                                           weft_type_intern(p->m, &type));
    }
    weft_dim sequences = WEFT_PACKED_SEQUENCES;
    p->position = weft_graph_add_input(p->to, "packed.position",
                                       weft_type_make(p->m, WEFT_DTYPE_I64, &p->rows, 1));
    p->start = weft_graph_add_input(p->to, "packed.start",
                                    weft_type_make(p->m, WEFT_DTYPE_I64, &sequences, 1));
    return true;
}

static bool add_outputs(weft_packer *p)
{
    for (uint32_t i = 0; i < weft_graph_output_count(p->from); i++) {
        weft_val v = weft_graph_output(p->from, i);
        if (weft_packer__class_of(p, v) != WEFT_PACK_SEQUENCE &&
            weft_packer__class_of(p, v) != WEFT_PACK_EVEN && !is_rows(p, v))
            return weft_packer__refuse(
                p, (weft_node){0},
                weft_arena_printf(p->cx->scratch,
                                  "output %s has neither a row for each token on axis 1 "
                                  "nor one for each sequence",
                                  weft_graph_output_name(p->from, i)));
        weft_graph_add_output(p->to, weft_graph_output_name(p->from, i), weft_packer__get(p, v));
    }
    return true;
}

/* The total of rows: of packed graphs with the same bounds one symbol, so that their types are
 * equal (pack-family). */
static weft_dim add_rows(weft_packer *p, int64_t most)
{
    for (uint32_t i = 0; i < weft_graph_count(p->m); i++) {
        const weft_graph *g = weft_graph_at(p->m, i);
        int64_t lo = 0, hi = 0;
        if (g == p->to || !weft_graph_is_packed(g))
            continue;
        weft_dim_bounds(p->dims, weft_graph_symbol_dim(g, 0), &lo, &hi);
        if (lo == 1 && hi == most) {
            weft_graph_share_symbol(p->to, "rows", weft_graph_symbol_dim(g, 0));
            return weft_graph_symbol_dim(g, 0);
        }
    }
    return weft_graph_symbol(p->to, "rows", 1, most);
}

static bool build(weft_packer *p)
{
    const char *name = weft_graph_name(p->from);
    const char *unique = weft_arena_printf(p->cx->scratch, "%s.packed", name);
    for (uint32_t k = 2; weft_graph_find(p->m, unique); k++)
        unique = weft_arena_printf(p->cx->scratch, "%s.packed.%u", name, k);
    p->to = weft_graph_create(p->m, unique);
    int64_t most = weft_pass__most_batch(p->cx->options, name) * p->longest;
    p->rows = add_rows(p, most < ROWS_MAX ? most : ROWS_MAX);
    if (!add_inputs(p))
        return false;
    WEFT_FOREACH_NODE (p->m, p->from, n)
        if (!visit(p, n))
            return false;
    if (!add_outputs(p))
        return false;
    weft_graph_add_part(p->to, &(weft_part){name, weft_graph_input_count(p->from),
                                            weft_graph_output_count(p->from)});
    weft_graph_set_packed(p->to);
    return true;
}

static void log_result(weft_passctx *cx, const weft_graph *g, const char *reason)
{
    weft_merge_log *log = cx->options->merge_log;
    if (!log)
        return;
    weft_pack_row row = {.model = weft_arena_strdup(log->arena, weft_graph_name(g)),
                         .reason = reason ? weft_arena_strdup(log->arena, reason) : NULL};
    WEFT_VEC_PUSH(log->arena, &log->packs, row);
}

static void pack_graph(weft_passctx *cx, weft_graph *g, bool *changed)
{
    weft_module *m = weft_graph_module(g);
    uint32_t batch = weft_graph_batch_symbol(g), n_graph = weft_graph_count(m);
    size_t n_val = weft_val_count(m) + (size_t)1;
    weft_packer p = {.cx = cx, .m = m, .dims = weft_module_dims(m), .from = g};
    if (batch == UINT32_MAX) {
        log_result(cx, g, "requests cannot be batched");
        return;
    }
    p.batch = weft_graph_symbol_dim(g, batch);
    p.seq = find_length(g, p.batch);
    if (weft_pass__most_batch(cx->options, weft_graph_name(g)) < 2) {
        log_result(cx, g, "memory is planned for batches of one request");
        return;
    }
    if (!p.seq) {
        log_result(cx, g, "no input has a length: a second dimension that varies");
        return;
    }
    int64_t lo;
    weft_dim_bounds(p.dims, p.seq, &lo, &p.longest);
    p.longest = p.longest < ROWS_MAX ? p.longest : ROWS_MAX;
    p.tokens = weft_spreads_create(g, p.seq, cx->scratch);
    p.batches = weft_spreads_create(g, p.batch, cx->scratch);
    p.of = weft_arena_array(cx->scratch, n_val, sizeof *p.of);
    p.val = weft_arena_array(cx->scratch, n_val, sizeof *p.val);
    p.row = weft_arena_array(cx->scratch, n_val, sizeof *p.row);
    bool packed = p.longest > 1 && weft_rewrite__allow(cx) && build(&p);
    if (!packed)
        weft_body_drop(m, n_graph);
    log_result(cx, g, packed ? NULL : p.reason ? p.reason : "sequences have one length");
    *changed = *changed || packed;
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    uint32_t n = weft_graph_count(m);
    for (uint32_t i = 0; cx->options->pack && i < n; i++)
        if (weft_graph_is_model(weft_graph_at(m, i)))
            pack_graph(cx, weft_graph_at(m, i), changed);
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_pack_sequences = {
    .name = "pack-sequences",
    .brief = "a program for sequences of different lengths, without padding",
    .from = WEFT_STAGE_GRAPH,
    .to = WEFT_STAGE_GRAPH,
    .needs = WEFT_FACT_TYPES | WEFT_FACT_CONTENTS,
    .breaks = WEFT_FACT_TYPES | WEFT_FACT_CONTENTS,
    .run = run,
};
