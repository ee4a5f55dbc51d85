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
 * attention, which knows where sequences start. The pass follows the length ?s through the graph
 * (weft_spreads), as the analysis of batches does the batch, and gives each value a class:
 *
 *     FREE       depends on no size
 *     TOKEN      a row for each token; batch 1, ?s becomes ?rows
 *     SEQUENCE   a row for each sequence; the batch becomes the number of starts
 *     PLACE      depends on the position in the sequence alone; a table of the longest sequence,
 *                from which rows are gathered by position where they meet tokens
 *     PLACES     of two positions, such as a causal mask: a table
 *     KEYS       a mask of keys that the model repeats for each query: of size 1 there instead
 *
 * A value of class PLACE or PLACES must not depend on the length: that of a shorter sequence is a
 * prefix of the table. Its sources are prefixes of constants, ranges from 0 and constant fills.
 * A graph with a node that fits no rule has no packed program; the log tells the node. The idea is
 * that of effective transformers (ByteTransformer, 2022, and the variable lengths of
 * FlashAttention). O(nodes). */
#include "passes/passes_int.h"

#include <string.h>

enum {
    ROWS_MAX = 1024,    /* of one run: beyond, products gain nothing from more rows */
    TABLE_MAX = 1 << 26 /* bytes of one table by two positions */
};

typedef enum class { FREE, TOKEN, SEQUENCE, PLACE, PLACES, KEYS } class;

/* What the sizes of the model become. */
typedef enum form { BY_ROW, BY_SEQUENCE, TABLE } form;

typedef struct packer {
    weft_passctx *cx;
    weft_module *m;
    weft_dimpool *dims;
    weft_graph *from, *to;
    weft_dim batch, seq, rows, longest;
    weft_val position, start;
    weft_spreads *tokens, *batches;
    uint8_t *of;   /* class, by value of `from` */
    weft_val *val; /* in `to`, by value; of PLACE and PLACES the table */
    weft_val *row; /* of PLACE: rows gathered from the table; none: not yet */
    const char *reason;
} packer;

static bool refuse(packer *p, weft_node n, const char *why)
{
    const char *item = n.i ? weft_node_loc(p->m, n).item : NULL;
    if (!n.i)
        p->reason = why;
    else
        p->reason = weft_arena_printf(p->cx->scratch, "%s%s%s %s", weft_node_opdef(p->m, n)->name,
                                      item ? " " : "", item ? item : "", why);
    return false;
}

/* -- Types ------------------------------------------------------------------------------------ */

static bool mentions(packer *p, weft_dim d)
{
    return weft_spreads_mention(p->tokens, d) || weft_spreads_mention(p->batches, d);
}

/* Axes of the value whose size is an expression of the length; `batch`: of the batch. */
static uint32_t count_axes(packer *p, weft_val v, bool batch)
{
    const weft_ttype *t = weft_val_ttype(p->m, v);
    uint32_t n = 0;
    for (uint32_t k = 0; t && k < t->rank; k++)
        n += weft_spreads_mention(batch ? p->batches : p->tokens, t->dim[k]);
    return n;
}

/* The two last axes are the length: scores of queries and keys. */
static bool is_square(packer *p, weft_val v)
{
    const weft_ttype *t = weft_val_ttype(p->m, v);
    return t->rank >= 2 && t->dim[t->rank - 1] == p->seq && t->dim[t->rank - 2] == p->seq;
}

/* The size in the packed graph of products of the batch, the length and numbers. */
static bool put_dim(packer *p, form f, weft_dim d, weft_dim *out)
{
    const weft_dim from[2] = {p->batch, p->seq};
    const weft_dim to[2] = {f == BY_SEQUENCE ? WEFT_PACKED_SEQUENCES : 1,
                            f == TABLE ? p->longest : p->rows};
    weft_dim times = 1;
    for (int i = 0; i < 2; i++)
        while (weft_spreads_mention(i ? p->tokens : p->batches, d)) {
            if (!weft_dim_div_exact(p->dims, d, from[i], &d) || (i ? f == BY_SEQUENCE : f == TABLE))
                return false;
            times = weft_dim_mul(p->dims, times, to[i]);
        }
    *out = weft_dim_mul(p->dims, d, times);
    return true;
}

static bool put_type(packer *p, form f, weft_val v, weft_ttype *out)
{
    *out = *weft_val_ttype(p->m, v);
    for (uint32_t k = 0; k < out->rank; k++)
        if (!put_dim(p, f, out->dim[k], &out->dim[k]))
            return false;
    return true;
}

/* -- Nodes of the packed graph ---------------------------------------------------------------- */

static weft_val gather(packer *p, weft_val data, weft_val index, uint32_t axis, weft_loc loc)
{
    weft_ttype type = *weft_val_ttype(p->m, data);
    weft_val in[2] = {data, index};
    weft_attr attr = WEFT_ATTR_OF_INT(AXIS, axis);
    type.dim[axis] = weft_val_ttype(p->m, index)->dim[0];
    return weft_rewrite__append(p->to, WEFT_OP_GATHER, in, 2, &attr, 1, &type, loc);
}

static class class_of(const packer *p, weft_val v)
{
    return v.i && weft_val_get_kind(p->m, v) != WEFT_VAL_WEIGHT ? (class)p->of[v.i] : FREE;
}

/* The table, or the value itself. */
static weft_val get(const packer *p, weft_val v)
{
    return v.i && weft_val_get_kind(p->m, v) != WEFT_VAL_WEIGHT ? p->val[v.i] : v;
}

/* The value with a row for each token. */
static weft_val by_row(packer *p, weft_val v)
{
    if (class_of(p, v) != PLACE)
        return get(p, v);
    if (!p->row[v.i].i) {
        weft_node n = weft_val_node(p->m, v);
        weft_loc loc = weft_node_loc(p->m, n);
        weft_val data = n.i ? weft_node_in(p->m, n, 0) : (weft_val){0};
        if (weft_node_op(p->m, n) == WEFT_OP_GATHER && class_of(p, data) == FREE) {
            /* Rows of the table that the model has, instead of those of another table. */
            weft_val in[2] = {get(p, data), by_row(p, weft_node_in(p->m, n, 1))};
            weft_attrs attrs = weft_node_attrs(p->m, n);
            weft_ttype type;
            (void)put_type(p, BY_ROW, v, &type);
            p->row[v.i] =
                weft_rewrite__append(p->to, WEFT_OP_GATHER, in, 2, attrs.at, attrs.n, &type, loc);
        } else {
            p->row[v.i] =
                gather(p, p->val[v.i], p->position, weft_spreads_get(p->tokens, v).axis, loc);
        }
    }
    return p->row[v.i];
}

/* Copies the node with its operands in the form; `queries`: the last axis but one is 1. */
static bool copy(packer *p, weft_node n, form f, bool queries)
{
    uint32_t n_in = weft_node_in_count(p->m, n), n_out = weft_node_out_count(p->m, n);
    weft_arena *arena = p->cx->scratch;
    weft_attrs attrs = weft_node_attrs(p->m, n);
    weft_val *in = weft_arena_array(arena, (size_t)n_in + 1, sizeof *in);
    weft_type *out = weft_arena_array(arena, (size_t)n_out + 1, sizeof *out);
    weft_attr *attr = weft_arena_array(arena, (size_t)attrs.n + 1, sizeof *attr);
    for (uint32_t i = 0; i < n_in; i++)
        in[i] =
            f == BY_ROW ? by_row(p, weft_node_in(p->m, n, i)) : get(p, weft_node_in(p->m, n, i));
    for (uint32_t i = 0; i < attrs.n; i++) {
        attr[i] = attrs.at[i];
        if (attr[i].kind != WEFT_KIND_DIMS)
            continue;
        weft_dim *dim = weft_arena_array(arena, (size_t)attr[i].n + 1, sizeof *dim);
        for (uint32_t k = 0; k < attr[i].n; k++)
            if (!put_dim(p, f, attrs.at[i].u.dims[k], &dim[k]))
                return refuse(p, n, "computes with the length of sequences");
        attr[i].u.dims = dim;
    }
    for (uint32_t i = 0; i < n_out; i++) {
        weft_val v = weft_node_out(p->m, n, i);
        weft_ttype type;
        if (!weft_val_type(p->m, v).i)
            continue;
        if (!put_type(p, f, v, &type))
            return refuse(p, n, "has sizes that are no multiples of the length of sequences");
        if (queries)
            type.dim[type.rank - 2] = 1;
        out[i] = weft_type_intern(p->m, &type);
    }
    weft_node_spec spec = {.op = weft_node_op(p->m, n),
                           .in = in,
                           .n_in = n_in,
                           .out = out,
                           .n_out = n_out,
                           .attr = attr,
                           .n_attr = attrs.n,
                           .loc = weft_node_loc(p->m, n)};
    weft_node made = weft_node_append(p->to, &spec);
    for (uint32_t i = 0; i < n_out; i++)
        p->val[weft_node_out(p->m, n, i).i] = weft_node_out(p->m, made, i);
    return true;
}

static bool finish(packer *p, weft_node n, class c)
{
    for (uint32_t i = 0; i < weft_node_out_count(p->m, n); i++)
        p->of[weft_node_out(p->m, n, i).i] = (uint8_t)c;
    return true;
}

/* -- Rules: values without tokens ------------------------------------------------------------- */

/* Sizes as attributes are for shapes and for prefixes; everywhere else they are data. */
static bool has_size_as_data(packer *p, weft_node n)
{
    weft_attrs attrs = weft_node_attrs(p->m, n);
    for (uint32_t i = 0; i < attrs.n; i++)
        for (uint32_t k = 0; attrs.at[i].kind == WEFT_KIND_DIMS && k < attrs.at[i].n; k++)
            if (attrs.at[i].key != WEFT_ATTR_SHAPE && mentions(p, attrs.at[i].u.dims[k]))
                return true;
    return false;
}

static const weft_attr *get_dims(packer *p, weft_node n, weft_attr_key key)
{
    const weft_attr *a = weft_attrs_find(weft_node_attrs(p->m, n), key);
    return a && a->kind == WEFT_KIND_DIMS ? a : NULL;
}

/* x[0:length] along constant axes, and constant slices of axes without the length. */
static bool is_prefix(packer *p, weft_node n)
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
        if (mentions(p, starts->u.dims[i]) || mentions(p, step) || mentions(p, size))
            return false;
        if (mentions(p, ends->u.dims[i]) &&
            (ends->u.dims[i] != p->seq || starts->u.dims[i] != 0 || step != 1 ||
             !weft_dim_is_const(size) || size < p->longest))
            return false;
    }
    return true;
}

/* The numbers 0, 1, ... up to the length. */
static bool is_count(packer *p, weft_node n)
{
    const weft_attr_key key[3] = {WEFT_ATTR_START, WEFT_ATTR_LIMIT, WEFT_ATTR_DELTA};
    const weft_dim want[3] = {0, p->seq, 1};
    for (uint32_t i = 0; i < 3 && weft_node_op(p->m, n) == WEFT_OP_RANGE; i++) {
        const weft_attr *a = get_dims(p, n, key[i]);
        const weft_dim *at = a ? a->u.dims : NULL;
        weft_val v = weft_node_in(p->m, n, i);
        uint32_t count = a ? a->n : 0;
        if (!at && v.i)
            at = weft_contents_get(p->cx->contents, v, &count);
        if (!at || count != 1 || at[0] != want[i])
            return false;
    }
    const weft_ttype *t = weft_val_ttype(p->m, weft_node_out(p->m, n, 0));
    return weft_node_op(p->m, n) == WEFT_OP_RANGE && t->dtype == WEFT_DTYPE_I64;
}

static void put_count(packer *p, weft_node n)
{
    int64_t *at = weft_arena_array(p->cx->scratch, (size_t)p->longest, sizeof *at);
    for (int64_t i = 0; i < p->longest; i++)
        at[i] = i;
    p->val[weft_node_out(p->m, n, 0).i] =
        weft_rewrite__constant(p->m, WEFT_DTYPE_I64, &p->longest, 1, at, "positions");
}

/* Whether a table of this value is small enough. */
static bool fits_table(packer *p, weft_node n, weft_val v)
{
    weft_ttype t;
    double bytes = 1;
    if (!put_type(p, TABLE, v, &t))
        return refuse(p, n, "computes with the length of sequences");
    for (uint32_t k = 0; k < t.rank; k++)
        bytes *= weft_dim_is_const(t.dim[k]) ? (double)t.dim[k] : (double)TABLE_MAX;
    bytes *= (double)weft_dtype_size((weft_dtype)t.dtype);
    return bytes <= TABLE_MAX || refuse(p, n, "would be a table of over 64 MB");
}

/* Sets the class of a node by positions whose table has been made. */
static bool finish_places(packer *p, weft_node n)
{
    weft_val v = weft_node_out(p->m, n, 0);
    uint32_t axes = count_axes(p, v, false);
    const weft_ttype *t = weft_val_ttype(p->m, v);
    weft_spread at = {.kind = WEFT_SPREAD_AXIS, .outer = 1, .inner = 1};
    for (uint32_t k = t->rank; k-- > 0;) {
        if (!weft_spreads_mention(p->tokens, t->dim[k]))
            continue;
        if (t->dim[k] != p->seq)
            return refuse(p, n, "mixes positions with other sizes");
        at.axis = (uint8_t)k;
    }
    if (axes == 1)
        weft_spreads_set(p->tokens, v, &at);
    return finish(p, n, axes > 1 ? PLACES : PLACE);
}

/* Row-major order with the same sizes, but for axes of size 1. */
static bool keeps_axes(packer *p, weft_node n)
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

/* A node whose operands depend on positions alone. */
static bool visit_places(packer *p, weft_node n)
{
    const weft_op *op = weft_node_opdef(p->m, n);
    weft_val v = weft_node_out(p->m, n, 0);
    weft_op_id id = weft_node_op(p->m, n);
    bool ok = (op->traits & WEFT_T_EW) != 0 || id == WEFT_OP_TRANSPOSE || id == WEFT_OP_EXPAND ||
              (id == WEFT_OP_GATHER && class_of(p, weft_node_in(p->m, n, 0)) == FREE) ||
              (id == WEFT_OP_TRILU && is_square(p, v)) || is_prefix(p, n) ||
              (id == WEFT_OP_RESHAPE && keeps_axes(p, n));
    if (!ok || weft_node_out_count(p->m, n) != 1 || (!is_prefix(p, n) && has_size_as_data(p, n)))
        return refuse(p, n, "mixes positions");
    return fits_table(p, n, v) && copy(p, n, TABLE, false) && finish_places(p, n);
}

/* A node without operands that depend on sizes. */
static bool visit_free(packer *p, weft_node n)
{
    const weft_op *op = weft_node_opdef(p->m, n);
    bool fill = (op->traits & WEFT_T_FILL) != 0, data = has_size_as_data(p, n);
    uint32_t axes = 0, batches = 0;
    for (uint32_t i = 0; i < weft_node_out_count(p->m, n); i++) {
        axes += count_axes(p, weft_node_out(p->m, n, i), false);
        batches += count_axes(p, weft_node_out(p->m, n, i), true);
    }
    if (is_count(p, n)) {
        put_count(p, n);
        return finish_places(p, n);
    }
    if (axes == 0 && batches == 0 && !data && !(op->traits & WEFT_T_RANDOM))
        return copy(p, n, BY_ROW, false) && finish(p, n, FREE);
    if (axes == 0 && fill && !data)
        return copy(p, n, BY_SEQUENCE, false) && finish(p, n, SEQUENCE);
    if (axes == 1 && fill && !data) {
        weft_spreads_visit(p->tokens, n);
        if (weft_spreads_get(p->tokens, weft_node_out(p->m, n, 0)).kind == WEFT_SPREAD_AXIS)
            return copy(p, n, BY_ROW, false) && finish(p, n, TOKEN);
    }
    if (batches == 0 && ((fill && !data) || is_prefix(p, n)))
        return fits_table(p, n, weft_node_out(p->m, n, 0)) && copy(p, n, TABLE, false) &&
               finish_places(p, n);
    return refuse(p, n, "computes with the length of sequences");
}

/* -- Rules: tokens ---------------------------------------------------------------------------- */

static bool is_rows(packer *p, weft_val v)
{
    weft_spread s = weft_spreads_get(p->tokens, v);
    const weft_ttype *t = weft_val_ttype(p->m, v);
    return class_of(p, v) == TOKEN && s.kind == WEFT_SPREAD_AXIS && s.axis == 1 && t->rank >= 2 &&
           t->dim[0] == p->batch && t->dim[1] == p->seq;
}

/* x[:, 0], by gather or slice: the first row of each sequence. */
static bool is_first(packer *p, weft_node n)
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

static bool visit_first(packer *p, weft_node n)
{
    weft_val v = weft_node_out(p->m, n, 0);
    weft_loc loc = weft_node_loc(p->m, n);
    weft_ttype type = *weft_val_ttype(p->m, v);
    if (weft_node_op(p->m, n) == WEFT_OP_SLICE)
        type.dim[1] = 1; /* or 0, of a sequence without tokens */
    for (uint32_t k = 0; k < type.rank; k++)
        if (!put_dim(p, BY_SEQUENCE, type.dim[k], &type.dim[k]))
            return refuse(p, n, "has sizes that are no multiples of the batch");
    weft_val first = gather(p, get(p, weft_node_in(p->m, n, 0)), p->start, 1, loc);
    weft_attr shape = WEFT_ATTR_OF_DIMS(SHAPE, type.dim, type.rank);
    p->val[v.i] = weft_rewrite__append(p->to, WEFT_OP_RESHAPE, &first, 1, &shape, 1, &type, loc);
    return finish(p, n, SEQUENCE);
}

/* A mask of keys: [.., 1, ?s]. */
static bool is_keys(packer *p, weft_val v)
{
    weft_spread s = weft_spreads_get(p->tokens, v);
    const weft_ttype *t = weft_val_ttype(p->m, v);
    return (class_of(p, v) == TOKEN || class_of(p, v) == PLACE) && s.axis + 1u == t->rank &&
           t->dim[s.axis] == p->seq && (t->rank < 2 || t->dim[t->rank - 2] == 1);
}

/* The same for all queries and keys. */
static bool is_even(packer *p, weft_val v)
{
    const weft_ttype *t = weft_val_ttype(p->m, v);
    return class_of(p, v) == FREE && (t->rank < 1 || t->dim[t->rank - 1] == 1) &&
           (t->rank < 2 || t->dim[t->rank - 2] == 1);
}

/* A mask of keys repeated for each query. */
static bool visit_keys(packer *p, weft_node n)
{
    const weft_op *op = weft_node_opdef(p->m, n);
    weft_val x = weft_node_in(p->m, n, 0), v = weft_node_out(p->m, n, 0);
    if (!is_square(p, v))
        return refuse(p, n, "mixes the tokens of a sequence");
    if (weft_node_op(p->m, n) == WEFT_OP_EXPAND && is_keys(p, x)) {
        weft_ttype type, own = *weft_val_ttype(p->m, get(p, x));
        if (!put_type(p, BY_ROW, v, &type) || type.rank != own.rank)
            return refuse(p, n, "mixes the tokens of a sequence");
        type.dim[type.rank - 2] = 1;
        for (uint32_t k = 0; k < type.rank; k++)
            if (type.dim[k] != own.dim[k])
                return refuse(p, n, "repeats a mask along more than the queries");
        p->val[v.i] = get(p, x);
        return finish(p, n, KEYS);
    }
    for (uint32_t i = 0; i < weft_node_in_count(p->m, n); i++) {
        weft_val in = weft_node_in(p->m, n, i);
        if (!(op->traits & WEFT_T_EW) || class_of(p, in) == PLACES)
            return refuse(p, n,
                          class_of(p, in) == PLACES
                              ? "makes a mask of positions and of the request's own mask"
                              : "mixes the tokens of a sequence");
        if (class_of(p, in) != KEYS && !is_keys(p, in) && !is_even(p, in))
            return refuse(p, n, "mixes the tokens of a sequence");
    }
    return copy(p, n, BY_ROW, true) && finish(p, n, KEYS);
}

/* The mask of packed attention; false: it depends on more than keys or positions. */
static bool take_mask(packer *p, weft_node n, weft_val mask, weft_val *out)
{
    const weft_ttype *t = mask.i ? weft_val_ttype(p->m, mask) : NULL;
    *out = (weft_val){0};
    if (!mask.i)
        return true;
    *out = get(p, mask);
    if (is_even(p, mask) || class_of(p, mask) == KEYS)
        return true;
    if (class_of(p, mask) == PLACES && is_square(p, mask))
        return count_axes(p, mask, false) == 2 || refuse(p, n, "has a mask of three positions");
    if (!is_keys(p, mask) || (t->rank == 4 && t->dim[0] != 1 && t->dim[0] != p->batch))
        return refuse(p, n, "has a mask that is neither one of keys nor one of positions");
    *out = by_row(p, mask);
    return true;
}

static bool visit_attention(packer *p, weft_node n)
{
    weft_val in[5] = {{0}}, v = weft_node_out(p->m, n, 0);
    weft_attrs attrs = weft_node_attrs(p->m, n);
    weft_ttype type;
    for (uint32_t i = 0; i < 3; i++) {
        in[i] = get(p, weft_node_in(p->m, n, i));
        if (!is_rows(p, weft_node_in(p->m, n, i)))
            return refuse(p, n, "has operands without a row for each token");
    }
    if (!take_mask(p, n, weft_node_in(p->m, n, 3), &in[3]) || !put_type(p, BY_ROW, v, &type))
        return p->reason ? false : refuse(p, n, "has other sizes than the tokens");
    in[4] = p->start;
    p->val[v.i] = weft_rewrite__append(p->to, WEFT_OP_ATTENTION, in, 5, attrs.at, attrs.n, &type,
                                       weft_node_loc(p->m, n));
    weft_spread at = {.kind = WEFT_SPREAD_AXIS, .axis = 1, .outer = 1, .inner = 1};
    weft_spreads_set(p->tokens, v, &at);
    return finish(p, n, TOKEN);
}

/* A node that computes each row from the same row of its operands. */
static bool visit_rows(packer *p, weft_node n)
{
    if (has_size_as_data(p, n))
        return refuse(p, n, "computes with the length of sequences");
    weft_spreads_visit(p->tokens, n);
    for (uint32_t i = 0; i < weft_node_out_count(p->m, n); i++) {
        weft_val v = weft_node_out(p->m, n, i);
        if (weft_val_type(p->m, v).i && weft_spreads_get(p->tokens, v).kind != WEFT_SPREAD_AXIS)
            return refuse(p, n, "mixes the tokens of a sequence");
    }
    return copy(p, n, BY_ROW, false) && finish(p, n, TOKEN);
}

static bool visit(packer *p, weft_node n)
{
    uint32_t count[KEYS + 1] = {0};
    weft_val v = weft_node_out(p->m, n, 0);
    for (uint32_t i = 0; i < weft_node_in_count(p->m, n); i++)
        count[class_of(p, weft_node_in(p->m, n, i))]++;
    if (weft_node_opdef(p->m, n)->traits & WEFT_T_BODY)
        return refuse(p, n, "runs other graphs");
    if (weft_node_op(p->m, n) == WEFT_OP_ATTENTION && count[TOKEN] > 0)
        return visit_attention(p, n);
    if (count[SEQUENCE] > 0) {
        if (count[TOKEN] + count[PLACE] + count[PLACES] + count[KEYS] > 0)
            return refuse(p, n, "combines tokens with a value of their sequence");
        return has_size_as_data(p, n) ? refuse(p, n, "computes with the number of requests")
                                      : copy(p, n, BY_SEQUENCE, false) && finish(p, n, SEQUENCE);
    }
    if (count[TOKEN] > 0 && is_first(p, n))
        return visit_first(p, n);
    if (count[KEYS] > 0 || (count[TOKEN] > 0 && (count[PLACES] > 0 || is_square(p, v))))
        return visit_keys(p, n);
    if (count[TOKEN] > 0)
        return visit_rows(p, n);
    if (count[PLACES] > 0 || (count[PLACE] > 0 && count_axes(p, v, true) == 0))
        return visit_places(p, n);
    return count[PLACE] > 0 ? visit_rows(p, n) : visit_free(p, n);
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

static bool add_inputs(packer *p)
{
    for (uint32_t i = 0; i < weft_graph_input_count(p->from); i++) {
        weft_val v = weft_graph_input(p->from, i);
        bool has_tokens = count_axes(p, v, false) > 0;
        weft_ttype type;
        weft_spread at = {.kind = WEFT_SPREAD_AXIS, .axis = 1, .outer = 1, .inner = 1};
        p->of[v.i] = has_tokens ? TOKEN : SEQUENCE;
        if (has_tokens)
            weft_spreads_set(p->tokens, v, &at);
        if ((has_tokens && (!is_rows(p, v) || count_axes(p, v, false) != 1)) ||
            !put_type(p, has_tokens ? BY_ROW : BY_SEQUENCE, v, &type))
            return refuse(p, (weft_node){0}, "an input has the length on another axis");
        for (uint32_t k = has_tokens ? 2 : 1; k < type.rank; k++)
            if (!weft_dim_is_const(type.dim[k]))
                return refuse(p, (weft_node){0}, "an input has another size that varies");
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

static bool add_outputs(packer *p)
{
    for (uint32_t i = 0; i < weft_graph_output_count(p->from); i++) {
        weft_val v = weft_graph_output(p->from, i);
        if (class_of(p, v) != SEQUENCE && !is_rows(p, v))
            return refuse(p, (weft_node){0},
                          weft_arena_printf(p->cx->scratch,
                                            "output %s has neither a row for each token on axis 1 "
                                            "nor one for each sequence",
                                            weft_graph_output_name(p->from, i)));
        weft_graph_add_output(p->to, weft_graph_output_name(p->from, i), get(p, v));
    }
    return true;
}

/* The total of rows: of packed graphs with the same bounds one symbol, so that their types are
 * equal (pack-family). */
static weft_dim add_rows(packer *p, int64_t most)
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

static bool build(packer *p)
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
    packer p = {.cx = cx, .m = m, .dims = weft_module_dims(m), .from = g};
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
