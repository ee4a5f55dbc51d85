/* fuse-attention: the sub-graph that exporters write for multi-head attention becomes one operator.
 *
 *     q4 = transpose(reshape(q, [b, sq, h, d]), [0, 2, 1, 3])        k4, v4 alike
 *     s  = matmul(q4, transpose k4)     scaled by a constant before or after
 *     s  = s + mask, where(mask, s, fill) or where(mask, fill, s)    optional, or two of these
 *     y  = reshape(transpose(matmul(softmax(s, -1), v4), [0, 2, 1, 3]), [b, sq, h*d])
 *   ==>
 *     y  = attention q k v mask {heads, head_dim, scale, fill}
 *
 * PyTorch's nn.MultiheadAttention has sequences first and splits heads off the batch:
 *
 *     q3 = transpose(reshape(q, [sq, b*h, d]), [1, 0, 2])            q : [sq, b, h*d]
 *     y  = reshape(transpose(matmul(softmax(s, -1), v3), [1, 0, 2]), [sq*b, h*d])
 *   ==>
 *     y  = reshape(transpose(attention (transpose q) ..., [1, 0, 2]), [sq*b, h*d])
 *
 * or, in newer versions, reshapes q3 to [b, h, sq, d]. cancel-transposes removes most of the new
 * transposes.
 *
 * q4 and k4 may also be other values, such as rotary embeddings compute element by element: these
 * are transposed. Two masks become one that is added: where(mask, 0, fill) in place of a fill,
 * which absorbs the score only if it is huge (`fill_most`).
 *
 * The result is equal up to rounding; transposes and the score matrix are eliminated. If q, k and v
 * are parts of one split along the last axis or slices of it, or are gathered from one projection
 * reshaped to [b, s, 3, h, d], the operator takes the whole value with offsets, and the split or
 * gather becomes dead. O(nodes). */
#include "passes/match.h"

#include <string.h>

/* A projection whose heads are operands of a GEMM. */
typedef struct projection {
    weft_val x;         /* [b, s, heads * dim], or [s, b, heads * dim] */
    bool seq_first;     /* the latter */
    bool by_head;       /* [b, heads, s, dim] */
    int64_t heads, dim; /* of each head */
    int64_t offset;     /* of the first head in x's last dim */
} projection;

/* What is done to scores. */
typedef struct masking {
    weft_val v;
    double fill;
    bool has_fill;   /* else it is added */
    bool fills_true; /* where the mask is true, not false */
} masking;

typedef struct attention {
    projection q, k, v;
    masking mask[2]; /* the last one done first */
    uint32_t n_mask;
    bool seq_first;   /* the result is [sq, b, h*d] or [sq*b, h*d] */
    bool flat_scores; /* [b*h, sq, sk], as the mask then is */
    double scale;
} attention;

/* Fills to here absorb what is added to them. */
static const double fill_most = -1e30;

/* transpose of a value with exactly this perm: its operand; none otherwise */
static weft_val transposed(const weft_module *m, weft_val v, const int64_t *want, uint32_t rank)
{
    weft_node n = weft_match__maker(m, v, WEFT_OP_TRANSPOSE);
    uint32_t count = 0;
    const int64_t *perm =
        n.i ? weft_attrs_ints(weft_node_attrs(m, n), WEFT_ATTR_PERM, &count) : NULL;
    if (!perm || count != rank || memcmp(perm, want, rank * sizeof *want) != 0)
        return (weft_val){0};
    return weft_node_in(m, n, 0);
}

static const int64_t swap_heads[4] = {0, 2, 1, 3};
static const int64_t swap_heads_and_last[4] = {0, 2, 3, 1};
static const int64_t swap_last[4] = {0, 1, 3, 2};
static const int64_t swap_sequence[3] = {1, 0, 2};
static const int64_t swap_sequence_and_last[3] = {1, 2, 0};
static const int64_t sequence_first[4] = {2, 0, 1, 3};

/* Whether the operator takes heads of these sizes (ops/attention.c). */
static bool has_sizes(const projection *p)
{
    return p->heads >= 1 && p->dim >= 1 && p->heads <= INT16_MAX && p->dim <= INT16_MAX;
}

/* reshape from [b, s, h*d] to [b, s, h, d] */
static bool unsplit_heads(const weft_module *m, weft_val v4, projection *out)
{
    weft_node n = v4.i ? weft_match__maker(m, v4, WEFT_OP_RESHAPE) : (weft_node){0};
    if (!n.i)
        return false;
    weft_val x = weft_node_in(m, n, 0);
    const weft_ttype *from = weft_val_ttype(m, x), *to = weft_val_ttype(m, v4);
    *out = (projection){.x = x, .heads = to->dim[2], .dim = to->dim[3]};
    return from->rank == 3 && to->rank == 4 && from->dim[0] == to->dim[0] &&
           from->dim[1] == to->dim[1] && weft_dim_is_const(to->dim[2]) &&
           weft_dim_is_const(to->dim[3]);
}

/* reshape from [s, b, h*d] to [s, b*h, d] */
static bool unsplit_batch(weft_module *m, weft_val v3, projection *out)
{
    weft_node n = v3.i ? weft_match__maker(m, v3, WEFT_OP_RESHAPE) : (weft_node){0};
    if (!n.i)
        return false;
    weft_val x = weft_node_in(m, n, 0);
    const weft_ttype *from = weft_val_ttype(m, x), *to = weft_val_ttype(m, v3);
    if (from->rank != 3 || to->rank != 3 || !weft_dim_is_const(from->dim[2]) ||
        !weft_dim_is_const(to->dim[2]) || to->dim[2] == 0 || from->dim[2] % to->dim[2] != 0)
        return false;
    *out = (projection){
        .x = x, .seq_first = true, .heads = from->dim[2] / to->dim[2], .dim = to->dim[2]};
    return from->dim[0] == to->dim[0] &&
           to->dim[1] == weft_dim_mul(weft_module_dims(m), from->dim[1], out->heads);
}

/* Matches part i of a joint projection: gather of index i along the first axis of
 *     transpose(reshape(x, [b, s, parts, h, d]), [2, 0, 3, 1, 4])
 * The offset is that of the part in x's last dim. */
static bool gathered_part(const weft_module *m, weft_val v, projection *out)
{
    static const int64_t parts_first[5] = {2, 0, 3, 1, 4};
    weft_node gather = weft_match__maker(m, v, WEFT_OP_GATHER);
    double part = 0;
    if (!gather.i || weft_attrs_int(weft_node_attrs(m, gather), WEFT_ATTR_AXIS, 0) != 0 ||
        !weft_rewrite__scalar(m, weft_node_in(m, gather, 1), &part))
        return false;
    weft_val v5 = transposed(m, weft_node_in(m, gather, 0), parts_first, 5);
    weft_node r = v5.i ? weft_match__maker(m, v5, WEFT_OP_RESHAPE) : (weft_node){0};
    if (!r.i)
        return false;
    weft_val x = weft_node_in(m, r, 0);
    const weft_ttype *from = weft_val_ttype(m, x), *to = weft_val_ttype(m, v5);
    if (from->rank != 3 || to->rank != 5 || from->dim[0] != to->dim[0] ||
        from->dim[1] != to->dim[1] || !weft_dim_is_const(to->dim[2]) ||
        !weft_dim_is_const(to->dim[3]) || !weft_dim_is_const(to->dim[4]) || part < 0 ||
        part >= (double)to->dim[2] || part > INT32_MAX || weft_val_ttype(m, v)->rank != 4)
        return false;
    *out = (projection){.x = x, .heads = to->dim[3], .dim = to->dim[4]};
    if (!has_sizes(out))
        return false;
    out->offset = (int64_t)part * out->heads * out->dim;
    return true;
}

/* reshape from [b*h, s, d] to [b, h, s, d], with sequences first before */
static bool unsplit_reshaped(weft_module *m, weft_val v, projection *out)
{
    weft_node n = weft_match__maker(m, v, WEFT_OP_RESHAPE);
    weft_val v3 = n.i ? transposed(m, weft_node_in(m, n, 0), swap_sequence, 3) : (weft_val){0};
    if (!v3.i || !unsplit_batch(m, v3, out))
        return false;
    const weft_ttype *from = weft_val_ttype(m, out->x), *to = weft_val_ttype(m, v);
    return to->dim[0] == from->dim[1] && to->dim[1] == out->heads && to->dim[2] == from->dim[0];
}

/* Matches a projection split into heads, [b, h, s, d] or [b*h, s, d]; `swapped`: d before s. */
static bool match_heads(weft_module *m, weft_val v, bool swapped, projection *out)
{
    uint32_t rank = weft_val_ttype(m, v)->rank;
    if (rank == 3)
        return unsplit_batch(
            m, transposed(m, v, swapped ? swap_sequence_and_last : swap_sequence, 3), out);
    if (rank != 4)
        return false;
    if (unsplit_heads(m, transposed(m, v, swapped ? swap_heads_and_last : swap_heads, 4), out))
        return true;
    weft_val plain = swapped ? transposed(m, v, swap_last, 4) : v;
    return plain.i && (gathered_part(m, plain, out) || unsplit_reshaped(m, plain, out) ||
                       (swapped && unsplit_heads(m, transposed(m, plain, swap_heads, 4), out)));
}

/* Matches heads that are computed element by element: [b, h, s, d]; `swapped`: d before s. */
static bool match_computed(const weft_module *m, weft_val v, bool swapped, projection *out)
{
    weft_val x = swapped ? transposed(m, v, swap_last, 4) : v;
    weft_node n = x.i ? weft_val_node(m, x) : (weft_node){0};
    const weft_ttype *t = n.i ? weft_val_ttype(m, x) : NULL;
    if (!t || !(weft_node_opdef(m, n)->traits & WEFT_T_EW) || t->rank != 4 ||
        t->dtype != WEFT_DTYPE_F32 || !weft_dim_is_const(t->dim[1]) ||
        !weft_dim_is_const(t->dim[3]))
        return false;
    *out = (projection){.x = x, .by_head = true, .heads = t->dim[1], .dim = t->dim[3]};
    return true;
}

/* Strips a multiplication by a constant from `v`; true if there was one. */
static bool take_scale(const weft_module *m, weft_val *v, double *scale)
{
    weft_val x;
    double c = 0;
    if (weft_match__with_scalar(m, *v, WEFT_OP_DIV, false, &x, &c) && c != 0) {
        *scale /= c;
    } else if (weft_match__with_scalar(m, *v, WEFT_OP_MUL, true, &x, &c)) {
        *scale *= c;
    } else {
        return false;
    }
    *v = x;
    return true;
}

static bool mask_broadcasts(const weft_module *m, weft_val mask, weft_val score)
{
    const weft_ttype *a = weft_val_ttype(m, mask), *s = weft_val_ttype(m, score);
    if (a->rank > s->rank)
        return false;
    for (uint32_t i = 0; i < a->rank; i++) {
        weft_dim d = a->dim[a->rank - 1 - i];
        if (d != 1 && d != s->dim[s->rank - 1 - i])
            return false;
    }
    return true;
}

static weft_val take_mask(const weft_module *m, weft_val v, masking *out, uint32_t more);

/* A product, scaled by constants or not, under at most `more` masks. */
static bool is_score(const weft_module *m, weft_val v, uint32_t more)
{
    double unused = 1;
    masking inner;
    weft_val x = v;
    while (take_scale(m, &x, &unused))
        ;
    if (weft_match__maker(m, x, WEFT_OP_MATMUL).i)
        return true;
    return more > 0 && take_mask(m, v, &inner, more - 1).i != v.i;
}

/* add(score, mask), where(mask, score, fill) or where(mask, fill, score): returns the score, under
 * at most `more` masks, and stores the mask. Else returns v. */
static weft_val take_mask(const weft_module *m, weft_val v, masking *out, uint32_t more)
{
    weft_node where = weft_match__maker(m, v, WEFT_OP_WHERE);
    weft_node add = weft_match__maker(m, v, WEFT_OP_ADD);
    double fill;
    for (uint32_t i = 1; where.i && i <= 2; i++)
        if (weft_rewrite__scalar(m, weft_node_in(m, where, i), &fill)) {
            *out = (masking){weft_node_in(m, where, 0), fill, true, i == 1};
            return weft_node_in(m, where, 3 - i);
        }
    for (uint32_t i = 0; add.i && i < 2; i++)
        if (is_score(m, weft_node_in(m, add, i), more)) {
            *out = (masking){.v = weft_node_in(m, add, 1 - i)};
            return weft_node_in(m, add, i);
        }
    return v;
}

/* Takes the masks off the score. */
static weft_val take_masks(const weft_module *m, weft_val v, attention *a)
{
    for (a->n_mask = 0; a->n_mask < 2; a->n_mask++) {
        weft_val x = take_mask(m, v, &a->mask[a->n_mask], 1 - a->n_mask);
        if (x.i == v.i)
            break;
        v = x;
    }
    return v;
}

/* Whether the masks broadcast to the scores, and two can be one that is added. */
static bool fits_masks(const weft_module *m, const attention *a, weft_val score)
{
    for (uint32_t i = 0; i < a->n_mask; i++) {
        const masking *one = &a->mask[i];
        if (!mask_broadcasts(m, one->v, score) ||
            (a->n_mask > 1 &&
             (one->has_fill ? !(one->fill <= fill_most) : !weft_match__is_f32(m, one->v))))
            return false;
    }
    return true;
}

static bool is_plain_matmul(const weft_module *m, weft_node n)
{
    weft_attrs attrs = weft_node_attrs(m, n);
    return !weft_node_in(m, n, 2).i && !weft_attrs_int(attrs, WEFT_ATTR_TRANS_A, 0) &&
           weft_attrs_float(attrs, WEFT_ATTR_ALPHA, 1) == 1 &&
           !weft_attrs_find(attrs, WEFT_ATTR_EPILOGUE);
}

static bool match_score(weft_module *m, weft_val score, attention *a)
{
    a->scale = 1;
    weft_val s = take_masks(m, score, a);
    while (take_scale(m, &s, &a->scale))
        ;
    weft_node mm = weft_match__maker(m, s, WEFT_OP_MATMUL);
    if (!mm.i || !is_plain_matmul(m, mm))
        return false;
    if (!fits_masks(m, a, s))
        return false;
    a->flat_scores = weft_val_ttype(m, s)->rank == 3;
    bool trans_b = weft_attrs_int(weft_node_attrs(m, mm), WEFT_ATTR_TRANS_B, 0);
    weft_val q = weft_node_in(m, mm, 0), k = weft_node_in(m, mm, 1);
    while (take_scale(m, &q, &a->scale) || take_scale(m, &k, &a->scale))
        ;
    return (match_heads(m, q, false, &a->q) || match_computed(m, q, false, &a->q)) &&
           (match_heads(m, k, !trans_b, &a->k) || match_computed(m, k, !trans_b, &a->k)) &&
           has_sizes(&a->q) && a->k.heads == a->q.heads && a->k.dim == a->q.dim;
}

static weft_dim batch_of(const weft_module *m, const projection *p)
{
    return weft_val_ttype(m, p->x)->dim[p->seq_first ? 1 : 0];
}

static weft_dim rows_of(const weft_module *m, const projection *p)
{
    return weft_val_ttype(m, p->x)->dim[p->by_head ? 2 : p->seq_first ? 0 : 1];
}

/* The result is [b, sq, h*d]; with sequences first, [sq, b, h*d] or [sq*b, h*d]. */
static bool is_result(weft_module *m, const weft_ttype *y, const attention *a)
{
    weft_dim batch = batch_of(m, &a->q);
    weft_dim rows = rows_of(m, &a->q);
    if (y->dtype != WEFT_DTYPE_F32 || y->rank < 2 || y->dim[y->rank - 1] != a->q.heads * a->q.dim)
        return false;
    if (y->rank == 2)
        return a->seq_first && y->dim[0] == weft_dim_mul(weft_module_dims(m), rows, batch);
    return y->rank == 3 && y->dim[0] == (a->seq_first ? rows : batch) &&
           y->dim[1] == (a->seq_first ? batch : rows);
}

static bool match_attention(weft_module *m, weft_node reshape, attention *a)
{
    weft_val joined = weft_node_in(m, reshape, 0);
    weft_val context = transposed(m, joined, swap_heads, 4);
    if (!context.i) {
        context = transposed(m, joined, swap_sequence, 3);
        if (!context.i)
            context = transposed(m, joined, sequence_first, 4);
        a->seq_first = true;
    }
    weft_node mm = weft_match__maker(m, context, WEFT_OP_MATMUL);
    if (!context.i || !mm.i || !is_plain_matmul(m, mm) ||
        weft_attrs_int(weft_node_attrs(m, mm), WEFT_ATTR_TRANS_B, 0))
        return false;
    weft_node softmax = weft_match__maker(m, weft_node_in(m, mm, 0), WEFT_OP_SOFTMAX);
    int64_t axis = softmax.i ? weft_attrs_int(weft_node_attrs(m, softmax), WEFT_ATTR_AXIS, -1) : 0;
    int64_t last = (int64_t)weft_val_ttype(m, context)->rank - 1;
    if (!softmax.i || (axis != -1 && axis != last) ||
        !match_heads(m, weft_node_in(m, mm, 1), false, &a->v) ||
        !match_score(m, weft_node_in(m, softmax, 0), a) || a->v.heads != a->q.heads ||
        a->v.dim != a->q.dim)
        return false;
    /* matmul broadcasts k and v over the batch; the operator does not. */
    return batch_of(m, &a->k) == batch_of(m, &a->q) && batch_of(m, &a->v) == batch_of(m, &a->q) &&
           is_result(m, weft_val_ttype(m, weft_node_out(m, reshape, 0)), a);
}

/* -- Offsets into one value ------------------------------------------------------------------ */

/* Offset of v, part i of a split along the last axis into constant sizes; false: it is none. */
static bool split_offset(const weft_module *m, weft_val v, weft_node split, int64_t rank,
                         int64_t *offset)
{
    int64_t axis = weft_attrs_int(weft_node_attrs(m, split), WEFT_ATTR_AXIS, 0);
    if (axis != -1 && axis != rank - 1)
        return false;
    for (uint32_t i = 0; i < weft_val_index(m, v); i++) {
        weft_dim d = weft_val_ttype(m, weft_node_out(m, split, i))->dim[rank - 1];
        if (!weft_dim_is_const(d))
            return false;
        *offset += d;
    }
    return true;
}

/* The only integer of attribute `key`; false: it is something else. */
static bool single_int(const weft_module *m, weft_node n, weft_attr_key key, int64_t *out)
{
    uint32_t count = 0;
    const int64_t *list = weft_attrs_ints(weft_node_attrs(m, n), key, &count);
    if (!list || count != 1)
        return false;
    *out = list[0];
    return true;
}

/* Offset of a slice along the last axis, step 1; false: it is something else. */
static bool slice_offset(const weft_module *m, weft_node n, int64_t rank, int64_t *offset)
{
    int64_t axis, start, step = 1;
    if (weft_node_in_count(m, n) > 1 || !single_int(m, n, WEFT_ATTR_AXES, &axis) ||
        (axis != -1 && axis != rank - 1) || !single_int(m, n, WEFT_ATTR_STARTS, &start) ||
        start < 0)
        return false;
    if (weft_attrs_find(weft_node_attrs(m, n), WEFT_ATTR_STEPS) &&
        (!single_int(m, n, WEFT_ATTR_STEPS, &step) || step != 1))
        return false;
    *offset += start;
    return true;
}

/* Whether transpose n, but for dims of 1, takes [a, b, parts, e], a view of `whole`, to
 * [parts, a, b, e]. */
static bool puts_parts_first(const weft_module *m, weft_node n, const weft_ttype *whole,
                             const weft_ttype *parts)
{
    const weft_ttype *from = weft_val_ttype(m, weft_node_in(m, n, 0));
    uint32_t count = 0, n_from = 0, n_to = 0;
    const int64_t *perm = weft_attrs_ints(weft_node_attrs(m, n), WEFT_ATTR_PERM, &count);
    uint32_t axis[4] = {0}, order[4] = {0};
    for (uint32_t i = 0; perm && i < count; i++) {
        if (from->dim[i] != 1 && n_from++ < 4)
            axis[n_from - 1] = i;
        if (from->dim[perm[i]] != 1 && n_to++ < 4)
            order[n_to - 1] = (uint32_t)perm[i];
    }
    return n_from == 4 && from->dim[axis[0]] == whole->dim[0] &&
           from->dim[axis[1]] == whole->dim[1] && from->dim[axis[2]] == parts->dim[0] &&
           from->dim[axis[3]] == parts->dim[3] && order[0] == axis[2] && order[1] == axis[0] &&
           order[2] == axis[1] && order[3] == axis[3];
}

/* Part v = [a, b, e] is gathered from [parts, a, b, e], which x = [a, b, parts * e] is transposed
 * to: returns x, and adds the offset of v in its last dim. */
static weft_val gathered_whole(const weft_module *m, weft_val v, int64_t *offset)
{
    const weft_val none = {0};
    weft_node gather = weft_match__maker(m, v, WEFT_OP_GATHER);
    double part = 0;
    if (!gather.i || weft_attrs_int(weft_node_attrs(m, gather), WEFT_ATTR_AXIS, 0) != 0 ||
        !weft_rewrite__scalar(m, weft_node_in(m, gather, 1), &part))
        return none;
    weft_val all = weft_node_in(m, gather, 0);
    const weft_ttype *parts = weft_val_ttype(m, all);
    weft_node view = weft_match__maker(m, all, WEFT_OP_RESHAPE);
    weft_node t = weft_match__maker(m, view.i ? weft_node_in(m, view, 0) : all, WEFT_OP_TRANSPOSE);
    weft_node r =
        t.i ? weft_match__maker(m, weft_node_in(m, t, 0), WEFT_OP_RESHAPE) : (weft_node){0};
    if (!r.i || parts->rank != 4 || weft_val_ttype(m, v)->rank != 3)
        return none;
    weft_val x = weft_node_in(m, r, 0);
    const weft_ttype *whole = weft_val_ttype(m, x);
    if (whole->rank != 3 || parts->dim[1] != whole->dim[0] || parts->dim[2] != whole->dim[1] ||
        !weft_dim_is_const(parts->dim[0]) || !weft_dim_is_const(parts->dim[3]) || part < 0 ||
        part >= (double)parts->dim[0] || !puts_parts_first(m, t, whole, parts))
        return none;
    *offset += (int64_t)part * parts->dim[3];
    return x;
}

/* The value of which p is a part along the last axis, or p itself. */
static projection whole_of(const weft_module *m, projection p)
{
    projection whole = p;
    if (p.by_head)
        return p;
    whole.x = gathered_whole(m, p.x, &whole.offset);
    if (whole.x.i)
        return whole;
    weft_node n = weft_match__maker(m, p.x, WEFT_OP_SPLIT);
    if (!n.i)
        n = weft_match__maker(m, p.x, WEFT_OP_SLICE);
    if (!n.i)
        return p;
    whole.x = weft_node_in(m, n, 0);
    int64_t rank = weft_val_ttype(m, whole.x)->rank;
    bool found = weft_node_op(m, n) == WEFT_OP_SPLIT ? split_offset(m, p.x, n, rank, &whole.offset)
                                                     : slice_offset(m, n, rank, &whole.offset);
    return found ? whole : p;
}

/* Operands of the operator: whole values, but not where the parts that it takes would have to be
 * copied in another order together with others. */
static void take_wholes(const weft_module *m, attention *a)
{
    projection q = whole_of(m, a->q), k = whole_of(m, a->k), v = whole_of(m, a->v);
    bool same = q.x.i == k.x.i && k.x.i == v.x.i;
    a->q = q.seq_first && !same ? a->q : q;
    a->k = k.seq_first && !same ? a->k : k;
    a->v = v.seq_first && !same ? a->v : v;
}

/* [s, b, n] <-> [b, s, n] */
static weft_err emit_swap(weft_passctx *cx, weft_graph *g, weft_node before, weft_val *v)
{
    weft_attr perm = WEFT_ATTR_OF_INTS(PERM, swap_sequence, 3);
    weft_val x = *v;
    return weft_rewrite__emit(cx, g, before, WEFT_OP_TRANSPOSE, &x, 1, &perm, 1,
                              weft_node_loc(weft_graph_module(g), before), v);
}

/* [b, h, s, d] as [b, s, h*d] */
static weft_err emit_join(weft_passctx *cx, weft_graph *g, weft_node before, const projection *p,
                          weft_val *out)
{
    weft_module *m = weft_graph_module(g);
    weft_attr perm = WEFT_ATTR_OF_INTS(PERM, swap_heads, 4);
    weft_dim dim[3] = {batch_of(m, p), rows_of(m, p), p->heads * p->dim};
    weft_attr shape = WEFT_ATTR_OF_DIMS(SHAPE, dim, 3);
    weft_loc loc = weft_node_loc(m, before);
    weft_val x = p->x, y;
    WEFT_TRY(weft_rewrite__emit(cx, g, before, WEFT_OP_TRANSPOSE, &x, 1, &perm, 1, loc, &y));
    return weft_rewrite__emit(cx, g, before, WEFT_OP_RESHAPE, &y, 1, &shape, 1, loc, out);
}

/* What the mask adds to `inner`, none for 0. */
static weft_err emit_added(weft_passctx *cx, weft_graph *g, weft_node before, const masking *one,
                           weft_val inner, weft_val *out)
{
    weft_module *m = weft_graph_module(g);
    const float zero = 0, fill = (float)one->fill;
    weft_loc loc = weft_node_loc(m, before);
    if (!one->has_fill && !inner.i) {
        *out = one->v;
        return WEFT_ERR_OK;
    }
    weft_val sum[2] = {inner, one->v};
    if (!one->has_fill)
        return weft_rewrite__emit(cx, g, before, WEFT_OP_ADD, sum, 2, NULL, 0, loc, out);
    weft_val own =
        inner.i ? inner : weft_rewrite__constant(m, WEFT_DTYPE_F32, NULL, 0, &zero, "zero");
    weft_val filled = weft_rewrite__constant(m, WEFT_DTYPE_F32, NULL, 0, &fill, "fill");
    weft_val in[3] = {one->v, one->fills_true ? filled : own, one->fills_true ? own : filled};
    return weft_rewrite__emit(cx, g, before, WEFT_OP_WHERE, in, 3, NULL, 0, loc, out);
}

/* One mask that is added, or false where scores are filled; one for each batch and head,
 * [b*h, sq, sk], as [b, h, sq, sk]. */
static weft_err emit_mask(weft_passctx *cx, weft_graph *g, weft_node before, attention *a)
{
    weft_module *m = weft_graph_module(g);
    masking *first = &a->mask[0];
    if (a->n_mask > 1) {
        weft_val inner;
        WEFT_TRY(emit_added(cx, g, before, &a->mask[1], (weft_val){0}, &inner));
        WEFT_TRY(emit_added(cx, g, before, first, inner, &first->v));
        first->has_fill = first->fills_true = false;
    }
    if (first->fills_true)
        WEFT_TRY(weft_rewrite__emit(cx, g, before, WEFT_OP_NOT, &(weft_val){first->v.i}, 1, NULL, 0,
                                    weft_node_loc(m, before), &first->v));
    const weft_ttype *t = a->n_mask ? weft_val_ttype(m, first->v) : NULL;
    if (!t || t->rank != 3 || t->dim[0] == 1 || !a->flat_scores)
        return WEFT_ERR_OK;
    weft_dim dim[4] = {batch_of(m, &a->q), a->q.heads, t->dim[1], t->dim[2]};
    weft_attr shape = WEFT_ATTR_OF_DIMS(SHAPE, dim, 4);
    weft_val x = first->v;
    return weft_rewrite__emit(cx, g, before, WEFT_OP_RESHAPE, &x, 1, &shape, 1,
                              weft_node_loc(m, before), &first->v);
}

static weft_err emit(weft_passctx *cx, weft_graph *g, weft_node last, attention *a)
{
    weft_module *m = weft_graph_module(g);
    weft_loc loc = weft_node_loc(m, last);
    weft_val y = weft_node_out(m, last, 0), with;
    WEFT_TRY(emit_mask(cx, g, last, a));
    take_wholes(m, a);
    projection *p[3] = {&a->q, &a->k, &a->v};
    weft_val operand[4] = {{0}, {0}, {0}, a->mask[0].v};
    for (uint32_t i = 0; i < 3; i++) {
        operand[i] = p[i]->x;
        if (p[i]->seq_first)
            WEFT_TRY(emit_swap(cx, g, last, &operand[i]));
        if (p[i]->by_head)
            WEFT_TRY(emit_join(cx, g, last, p[i], &operand[i]));
    }
    weft_attr attr[7] = {
        WEFT_ATTR_OF_INT(HEADS, a->q.heads),      WEFT_ATTR_OF_INT(HEAD_DIM, a->q.dim),
        WEFT_ATTR_OF_INT(Q_OFFSET, a->q.offset),  WEFT_ATTR_OF_INT(K_OFFSET, a->k.offset),
        WEFT_ATTR_OF_INT(V_OFFSET, a->v.offset),  WEFT_ATTR_OF_FLOAT(SCALE, a->scale),
        WEFT_ATTR_OF_FLOAT(FILL, a->mask[0].fill)};
    WEFT_TRY(weft_rewrite__emit(cx, g, last, WEFT_OP_ATTENTION, operand, a->n_mask ? 4 : 3, attr,
                                a->mask[0].has_fill ? 7 : 6, loc, &with));
    if (a->seq_first) {
        WEFT_TRY(emit_swap(cx, g, last, &with));
        if (weft_val_ttype(m, y)->rank == 2) {
            weft_val x = with;
            weft_attr shape = WEFT_ATTR_OF_DIMS(SHAPE, weft_val_ttype(m, y)->dim, 2);
            WEFT_TRY(
                weft_rewrite__emit(cx, g, last, WEFT_OP_RESHAPE, &x, 1, &shape, 1, loc, &with));
        }
    }
    weft_rewrite__replace_result(g, last, 0, with);
    weft_rewrite__remove_dead(g, last);
    return WEFT_ERR_OK;
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    for (uint32_t i = 0; i < weft_graph_count(m); i++) {
        weft_graph *g = weft_graph_at(m, i);
        WEFT_FOREACH_NODE (m, g, n) {
            attention a = {0};
            if (weft_node_op(m, n) != WEFT_OP_RESHAPE || !weft_rewrite__is_live(g, n) ||
                !match_attention(m, n, &a) || !weft_rewrite__allow(cx))
                continue;
            WEFT_TRY(emit(cx, g, n, &a));
            *changed = true;
        }
    }
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_fuse_attention = {
    .name = "fuse-attention",
    .brief = "spelt-out multi-head attention becomes one operator",
    .from = WEFT_STAGE_GRAPH,
    .to = WEFT_STAGE_GRAPH,
    .needs = WEFT_FACT_TYPES | WEFT_FACT_CONTENTS,
    .run = run,
};
