/* Values and nodes of the graphs that pack-sequences makes: in the forms that its rules ask for. */
#include "passes/pack_int.h"

#include <string.h>

bool weft_packer__refuse(weft_packer *p, weft_node n, const char *why)
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

bool weft_packer__mentions(weft_packer *p, weft_dim d)
{
    return weft_spreads_mention(p->tokens, d) || weft_spreads_mention(p->batches, d);
}

/* Axes of the value whose size is an expression of the length; `batch`: of the batch. */
uint32_t weft_packer__count_axes(weft_packer *p, weft_val v, bool batch)
{
    const weft_ttype *t = weft_val_ttype(p->m, v);
    uint32_t n = 0;
    for (uint32_t k = 0; t && k < t->rank; k++)
        n += weft_spreads_mention(batch ? p->batches : p->tokens, t->dim[k]);
    return n;
}

/* The two last axes are the length: scores of queries and keys. */
bool weft_packer__is_square(weft_packer *p, weft_val v)
{
    const weft_ttype *t = weft_val_ttype(p->m, v);
    return t->rank >= 2 && t->dim[t->rank - 1] == p->seq && t->dim[t->rank - 2] == p->seq;
}

/* The size in the packed graph of products of the batch, the length and numbers. */
static bool put_dim(weft_packer *p, weft_pack_form f, weft_dim d, weft_dim *out)
{
    const weft_dim from[2] = {p->batch, p->seq};
    const weft_dim to[2] = {f == WEFT_PACK_BY_SEQUENCE ? WEFT_PACKED_SEQUENCES : 1,
                            f == WEFT_PACK_TABLE ? p->longest : p->rows};
    weft_dim times = 1;
    for (int i = 0; i < 2; i++)
        while (weft_spreads_mention(i ? p->tokens : p->batches, d)) {
            if (!weft_dim_div_exact(p->dims, d, from[i], &d) || (i && f == WEFT_PACK_BY_SEQUENCE))
                return false;
            times = weft_dim_mul(p->dims, times, to[i]);
        }
    *out = weft_dim_mul(p->dims, d, times);
    return true;
}

/* The sizes of a value or of a shape. */
bool weft_packer__put_dims(weft_packer *p, weft_pack_form f, const weft_dim *dim, uint32_t n,
                           weft_dim *out)
{
    for (uint32_t k = 0; k < n; k++)
        if (f == WEFT_PACK_BY_PAIR && k + 1 == n && dim[k] == p->seq)
            out[k] = p->longest;
        else if (!put_dim(p, f, dim[k], &out[k]))
            return false;
    return true;
}

bool weft_packer__put_type(weft_packer *p, weft_pack_form f, weft_val v, weft_ttype *out)
{
    weft_ttype from = *weft_val_ttype(p->m, v);
    *out = from;
    return weft_packer__put_dims(p, f, from.dim, from.rank, out->dim);
}

/* -- Nodes of the packed graph ---------------------------------------------------------------- */

weft_val weft_packer__position_numbers(weft_packer *p, int64_t first, int64_t step)
{
    int64_t *at = weft_arena_array(p->cx->scratch, (size_t)p->longest, sizeof *at);
    for (int64_t i = 0; i < p->longest; i++)
        at[i] = first + i * step;
    return weft_rewrite__constant(p->m, WEFT_DTYPE_I64, &p->longest, 1, at, "positions");
}

weft_val weft_packer__gather(weft_packer *p, weft_val data, weft_val index, uint32_t axis,
                             weft_loc loc)
{
    weft_ttype type = *weft_val_ttype(p->m, data);
    const weft_ttype *by = weft_val_ttype(p->m, index);
    weft_val in[2] = {data, index};
    weft_attr attr = WEFT_ATTR_OF_INT(AXIS, axis);
    memmove(&type.dim[axis + by->rank], &type.dim[axis + 1],
            (type.rank - axis - 1) * sizeof *type.dim);
    memcpy(&type.dim[axis], by->dim, by->rank * sizeof *type.dim);
    type.rank = (uint8_t)(type.rank + by->rank - 1);
    return weft_rewrite__append(p->to, WEFT_OP_GATHER, in, 2, &attr, 1, &type, loc);
}

weft_val weft_packer__reshape(weft_packer *p, weft_val x, const weft_ttype *type, weft_loc loc)
{
    weft_attr shape = WEFT_ATTR_OF_DIMS(SHAPE, type->dim, type->rank);
    return weft_rewrite__append(p->to, WEFT_OP_RESHAPE, &x, 1, &shape, 1, type, loc);
}

weft_val weft_packer__combine(weft_packer *p, weft_op_id op, weft_val a, weft_val b,
                              const weft_ttype *type)
{
    weft_val in[2] = {a, b};
    return weft_rewrite__append(p->to, op, in, 2, NULL, 0, type, (weft_loc){0});
}

/* 0, 1, .. rows - 1. */
weft_val weft_packer__row_numbers(weft_packer *p)
{
    weft_ttype type = {.dtype = WEFT_DTYPE_I64, .rank = 1, .dim = {p->rows}};
    const weft_dim zero = 0, one = 1;
    weft_attr attr[3] = {WEFT_ATTR_OF_DIMS(DELTA, &one, 1), WEFT_ATTR_OF_DIMS(LIMIT, &p->rows, 1),
                         WEFT_ATTR_OF_DIMS(START, &zero, 1)};
    if (!p->numbers.i)
        p->numbers =
            weft_rewrite__append(p->to, WEFT_OP_RANGE, NULL, 0, attr, 3, &type, (weft_loc){0});
    return p->numbers;
}

/* The first row of the sequence of each row. */
weft_val weft_packer__first_rows(weft_packer *p)
{
    weft_ttype type = {.dtype = WEFT_DTYPE_I64, .rank = 1, .dim = {p->rows}};
    if (!p->before.i)
        p->before =
            weft_packer__combine(p, WEFT_OP_SUB, weft_packer__row_numbers(p), p->position, &type);
    return p->before;
}

/* For each row and each position: the row of the key there, [rows, longest]. Beyond the end of the
 * sequence, where nothing reads, rows of others or the last row. */
static weft_val key_rows(weft_packer *p)
{
    const weft_ttype one = {.dtype = WEFT_DTYPE_I64, .rank = 1, .dim = {1}};
    const weft_ttype column = {.dtype = WEFT_DTYPE_I64, .rank = 2, .dim = {p->rows, 1}};
    const weft_ttype all = {.dtype = WEFT_DTYPE_I64, .rank = 2, .dim = {p->rows, p->longest}};
    const int64_t zero = 0;
    weft_attr axes = WEFT_ATTR_OF_INTS(AXES, &zero, 1);
    if (p->keys.i)
        return p->keys;
    weft_val number = weft_packer__row_numbers(p),
             first = weft_packer__reshape(p, weft_packer__first_rows(p), &column, (weft_loc){0});
    weft_val last =
        weft_rewrite__append(p->to, WEFT_OP_REDUCE_MAX, &number, 1, &axes, 1, &one, (weft_loc){0});
    weft_val key =
        weft_packer__combine(p, WEFT_OP_ADD, first, weft_packer__position_numbers(p, 0, 1), &all);
    p->keys = weft_packer__combine(p, WEFT_OP_MIN, key, last, &all);
    return p->keys;
}

weft_pack_class weft_packer__class_of(const weft_packer *p, weft_val v)
{
    return v.i && weft_val_get_kind(p->m, v) != WEFT_VAL_WEIGHT ? (weft_pack_class)p->of[v.i]
                                                                : WEFT_PACK_FREE;
}

/* The table, or the value itself. */
weft_val weft_packer__get(const weft_packer *p, weft_val v)
{
    return v.i && weft_val_get_kind(p->m, v) != WEFT_VAL_WEIGHT ? p->val[v.i] : v;
}

/* The value with a row for each token. */
weft_val weft_packer__by_row(weft_packer *p, weft_val v)
{
    if (weft_packer__class_of(p, v) == WEFT_PACK_EVEN) {
        const int64_t zero = 0, one = 1;
        weft_val row = weft_rewrite__constant(p->m, WEFT_DTYPE_I64, &one, 1, &zero, "first row");
        uint32_t axis = 0;
        while (weft_val_ttype(p->m, v)->dim[axis] != p->batch)
            axis++;
        return weft_packer__gather(p, p->val[v.i], row, axis, (weft_loc){0});
    }
    if (weft_packer__class_of(p, v) != WEFT_PACK_PLACE)
        return weft_packer__get(p, v);
    if (!p->row[v.i].i) {
        weft_node n = weft_val_node(p->m, v);
        weft_loc loc = weft_node_loc(p->m, n);
        weft_val data = n.i ? weft_node_in(p->m, n, 0) : (weft_val){0};
        if (weft_node_op(p->m, n) == WEFT_OP_GATHER &&
            weft_packer__class_of(p, data) == WEFT_PACK_FREE) {
            /* Rows of the table that the model has, instead of those of another table. */
            weft_val in[2] = {weft_packer__get(p, data),
                              weft_packer__by_row(p, weft_node_in(p->m, n, 1))};
            weft_attrs attrs = weft_node_attrs(p->m, n);
            weft_ttype type;
            (void)weft_packer__put_type(p, WEFT_PACK_BY_ROW, v, &type);
            p->row[v.i] =
                weft_rewrite__append(p->to, WEFT_OP_GATHER, in, 2, attrs.at, attrs.n, &type, loc);
        } else {
            p->row[v.i] = weft_packer__gather(p, p->val[v.i], p->position,
                                              weft_spreads_get(p->tokens, v).axis, loc);
        }
    }
    return p->row[v.i];
}

/* A mask of keys: [.., 1, ?s]. */
bool weft_packer__is_keys(weft_packer *p, weft_val v)
{
    weft_spread s = weft_spreads_get(p->tokens, v);
    const weft_ttype *t = weft_val_ttype(p->m, v);
    return (weft_packer__class_of(p, v) == WEFT_PACK_TOKEN ||
            weft_packer__class_of(p, v) == WEFT_PACK_PLACE) &&
           s.axis + 1u == t->rank && t->dim[s.axis] == p->seq &&
           (t->rank < 2 || t->dim[t->rank - 2] == 1);
}

/* The value of the size of scores, [.., rows, longest]; none: it has none. */
static weft_val by_pair(weft_packer *p, weft_val v)
{
    const weft_ttype *t = v.i ? weft_val_ttype(p->m, v) : NULL;
    uint32_t last = t && t->rank ? t->rank - 1u : 0;
    weft_val x = weft_packer__get(p, v);
    switch (weft_packer__class_of(p, v)) {
    case WEFT_PACK_FREE:
    case WEFT_PACK_PAIR:
        return x;
    case WEFT_PACK_PLACES:
        return weft_packer__is_square(p, v) && weft_packer__count_axes(p, v, false) == 2
                   ? weft_packer__gather(p, x, p->position, last - 1, (weft_loc){0})
                   : (weft_val){0};
    case WEFT_PACK_PLACE: /* of keys: the table has them by position */
        return t->dim[last] == p->seq ? x : weft_packer__by_row(p, v);
    case WEFT_PACK_TOKEN:
        if (t->rank >= 2 && t->dim[last - 1] == p->seq && t->dim[last] == 1)
            return x;
        if (!weft_packer__is_keys(p, v))
            return (weft_val){0};
        /* fall through */
    case WEFT_PACK_KEYS: {
        weft_ttype flat = *weft_val_ttype(p->m, x);
        flat.dim[flat.rank - 2] = p->rows;
        flat.rank--;
        weft_val keys = key_rows(p);
        weft_val row = weft_packer__reshape(p, x, &flat, (weft_loc){0});
        return weft_packer__gather(p, row, keys, flat.rank - 1u, (weft_loc){0});
    }
    default:
        return (weft_val){0};
    }
}

/* Sets the sizes to 1 where all operands, of an element-wise node, have 1. */
static void narrow_type(const weft_packer *p, const weft_val *in, uint32_t n_in, weft_ttype *type)
{
    for (uint32_t k = 0; k < type->rank; k++) {
        bool one = true;
        for (uint32_t i = 0; i < n_in && one; i++) {
            const weft_ttype *t = in[i].i ? weft_val_ttype(p->m, in[i]) : NULL;
            one = !t || k + t->rank < type->rank || t->dim[k + t->rank - type->rank] == 1;
        }
        if (one)
            type->dim[k] = 1;
    }
}

bool weft_packer__copy(weft_packer *p, weft_node n, weft_pack_form f, bool narrow)
{
    uint32_t n_in = weft_node_in_count(p->m, n), n_out = weft_node_out_count(p->m, n);
    weft_arena *arena = p->cx->scratch;
    weft_attrs attrs = weft_node_attrs(p->m, n);
    weft_val *in = weft_arena_array(arena, (size_t)n_in + 1, sizeof *in);
    weft_type *out = weft_arena_array(arena, (size_t)n_out + 1, sizeof *out);
    weft_attr *attr = weft_arena_array(arena, (size_t)attrs.n + 1, sizeof *attr);
    for (uint32_t i = 0; i < n_in; i++) {
        weft_val v = weft_node_in(p->m, n, i);
        in[i] = f == WEFT_PACK_BY_ROW    ? weft_packer__by_row(p, v)
                : f == WEFT_PACK_BY_PAIR ? by_pair(p, v)
                                         : weft_packer__get(p, v);
        if (v.i && !in[i].i)
            return weft_packer__refuse(p, n, "mixes the tokens of a sequence");
    }
    for (uint32_t i = 0; i < attrs.n; i++) {
        attr[i] = attrs.at[i];
        if (attr[i].kind != WEFT_KIND_DIMS)
            continue;
        weft_dim *dim = weft_arena_array(arena, (size_t)attr[i].n + 1, sizeof *dim);
        if (!weft_packer__put_dims(p, f, attrs.at[i].u.dims, attr[i].n, dim))
            return weft_packer__refuse(p, n, "computes with the length of sequences");
        attr[i].u.dims = dim;
    }
    for (uint32_t i = 0; i < n_out; i++) {
        weft_val v = weft_node_out(p->m, n, i);
        weft_ttype type;
        if (!weft_val_type(p->m, v).i)
            continue;
        if (!weft_packer__put_type(p, f, v, &type))
            return weft_packer__refuse(
                p, n, "has sizes that are no multiples of the length of sequences");
        if (narrow)
            narrow_type(p, in, n_in, &type);
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

bool weft_packer__finish(weft_packer *p, weft_node n, weft_pack_class c)
{
    for (uint32_t i = 0; i < weft_node_out_count(p->m, n); i++)
        p->of[weft_node_out(p->m, n, i).i] = (uint8_t)c;
    return true;
}

/* `even`: the node computes the same for each sequence. */
bool weft_packer__finish_sequence(weft_packer *p, weft_node n, bool even)
{
    for (uint32_t i = 0; i < weft_node_out_count(p->m, n); i++) {
        weft_val v = weft_node_out(p->m, n, i);
        const weft_ttype *t = weft_val_ttype(p->m, v);
        uint32_t batches = 0;
        for (uint32_t k = 0; t && k < t->rank; k++)
            batches += t->dim[k] == p->batch;
        p->of[v.i] = even && batches == 1 && weft_packer__count_axes(p, v, true) == 1
                         ? WEFT_PACK_EVEN
                         : WEFT_PACK_SEQUENCE;
    }
    return true;
}
