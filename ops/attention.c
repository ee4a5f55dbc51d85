/* Fused attention: softmax(scale * q k^T + mask) v for each head, heads side by side in columns.
 *
 * Scores of one row are kept in f32 (f64 for f64); nothing of size sq x sk is stored.
 *
 * Packed: with operand 4, i64 starts in ascending order, the rows of a batch of 1 are those of
 * several sequences one after the other. Each sequence begins at a start and ends at the next one,
 * or at the last row; it attends to itself. Equal starts are of empty sequences. The mask is
 * one of keys, [.., 1, rows], or one of positions in a sequence, [.., longest, longest]. */
#include "ops/op_int.h"
#include "ops/packed.h"

#include <math.h>
#include <string.h>

/* -- Inference and work --------------------------------------------------------------------- */

static weft_err check_columns(weft_infer_ctx *cx, uint32_t in, weft_attr_key key, int64_t width)
{
    int64_t offset = weft_attrs_int(cx->attrs, key, 0);
    const weft_ttype *t = &cx->in[in].type;
    if (offset < 0 || offset > INT32_MAX ||
        (weft_dim_is_const(t->dim[2]) && offset + width > t->dim[2]))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand %u: columns %lld to %lld of %s", in,
                         (long long)offset, (long long)(offset + width),
                         weft_infer__text(cx, t->dim[2]));
    return WEFT_ERR_OK;
}

static bool is_by_row(weft_attrs attrs)
{
    return weft_attrs_int(attrs, WEFT_ATTR_BY_ROW, 0) != 0;
}

/* Of a packed mask, as the last dims tell: positions of queries and keys, or keys alone. */
static bool is_by_position(const weft_ttype *mask)
{
    return mask->rank >= 2 && weft_dim_is_const(mask->dim[mask->rank - 2]) &&
           mask->dim[mask->rank - 2] > 1;
}

static weft_err check_packed(weft_infer_ctx *cx)
{
    WEFT_TRY(weft_infer__dtype(cx, 4, 1u << WEFT_DTYPE_I64));
    WEFT_TRY(weft_infer__rank(cx, 4, 1, 1));
    WEFT_TRY(weft_infer__agree(cx, cx->in[0].type.dim[0], 1, "packed batch"));
    WEFT_TRY(weft_infer__agree(cx, cx->in[0].type.dim[1], cx->in[1].type.dim[1],
                               "packed rows of q and k"));
    return WEFT_ERR_OK;
}

weft_err weft_infer_attention(weft_infer_ctx *cx)
{
    static const weft_attr_key offset[3] = {WEFT_ATTR_Q_OFFSET, WEFT_ATTR_K_OFFSET,
                                            WEFT_ATTR_V_OFFSET};
    int64_t heads = weft_attrs_int(cx->attrs, WEFT_ATTR_HEADS, 0);
    int64_t head_dim = weft_attrs_int(cx->attrs, WEFT_ATTR_HEAD_DIM, 0);
    if (heads < 1 || head_dim < 1 || heads > INT16_MAX || head_dim > INT16_MAX)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%lld heads of %lld columns", (long long)heads,
                         (long long)head_dim);
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_FLOAT));
    for (uint32_t i = 0; i < 3; i++) {
        WEFT_TRY(weft_infer__same_dtype(cx, 0, i));
        WEFT_TRY(weft_infer__rank(cx, i, 3, 3));
        WEFT_TRY(weft_infer__agree(cx, cx->in[0].type.dim[0], cx->in[i].type.dim[0], "batch"));
        WEFT_TRY(check_columns(cx, i, offset[i], heads * head_dim));
    }
    const weft_ttype *q = &cx->in[0].type, *k = &cx->in[1].type;
    WEFT_TRY(weft_infer__agree(cx, k->dim[1], cx->in[2].type.dim[1], "lengths of k and v"));
    if (weft_infer__has(cx, 4))
        WEFT_TRY(check_packed(cx));
    if (weft_infer__has(cx, 3)) {
        WEFT_TRY(weft_infer__dtype(cx, 3, WEFT_M_FLOAT | WEFT_M_BOOL));
        WEFT_TRY(weft_infer__rank(cx, 3, 0, 4));
        weft_ttype score = {.rank = 4, .dim = {q->dim[0], heads, q->dim[1], k->dim[1]}};
        weft_ttype wide = score;
        if (is_by_row(cx->attrs)) {
            if (!weft_infer__has(cx, 4) || cx->in[3].type.rank < 2)
                return WEFT_FAIL(cx, WEFT_ERR_INPUT, "a mask by row is for packed sequences");
            score.dim[3] = wide.dim[3] = cx->in[3].type.dim[cx->in[3].type.rank - 1];
        } else if (weft_infer__has(cx, 4) && is_by_position(&cx->in[3].type))
            score.dim[2] = score.dim[3] = wide.dim[2] = wide.dim[3] =
                cx->in[3].type.dim[cx->in[3].type.rank - 1];
        WEFT_TRY(weft_infer__broadcast(cx, &score, &cx->in[3].type, &wide));
        for (uint32_t i = 0; i < 4; i++)
            WEFT_TRY(weft_infer__agree(cx, wide.dim[i], score.dim[i], "mask and scores"));
    }
    weft_ttype *out = weft_infer__out(cx, 0, (weft_dtype)q->dtype, 3);
    out->dim[0] = q->dim[0];
    out->dim[1] = q->dim[1];
    out->dim[2] = heads * head_dim;
    return WEFT_ERR_OK;
}

weft_work weft_work_attention(const weft_work_ctx *cx)
{
    double heads = (double)weft_attrs_int(cx->attrs, WEFT_ATTR_HEADS, 1);
    double head_dim = (double)weft_attrs_int(cx->attrs, WEFT_ATTR_HEAD_DIM, 1);
    double b = (double)cx->in[0].dim[0], sq = (double)cx->in[0].dim[1];
    double sk = (double)cx->in[1].dim[1];
    /* Sequences of equal lengths: how the rows are shared is known only when it runs. */
    double parts = cx->n_in > 4 && cx->in[4].present ? (double)cx->in[4].dim[0] : 1;
    if (parts > 1)
        sk = ceil(sk / parts);
    /* Two GEMMs, and about five operations per score for scale, mask and softmax. */
    weft_work w = weft_work__bytes(cx, b * heads * sq * sk * (4 * head_dim + 5));
    /* Operands may be slices of wider matrices: only the columns of the heads are read. */
    w.bytes_read = 0;
    double size = (double)weft_dtype_size((weft_dtype)cx->in[0].dtype);
    w.bytes_read = b * (sq + 2 * (double)cx->in[1].dim[1]) * heads * head_dim * size;
    if (cx->n_in > 3 && cx->in[3].present)
        w.bytes_read +=
            weft_work__numel(&cx->in[3]) * (double)weft_dtype_size((weft_dtype)cx->in[3].dtype);
    return w;
}

/* -- Evaluation ----------------------------------------------------------------------------- */

typedef struct plan {
    int64_t b, heads, sq, sk, head_dim;
    int64_t width[3], offset[3]; /* columns of q, k, v; first column of head 0 */
    int64_t mask_stride[4];
    bool mask_is_bool, mask_by_position, mask_by_row;
    double scale, fill;
} plan;

#define DEFINE_ATTENTION(name, T, EXP)                                                             \
    static void name##_row(const plan *p, const T *q, const T *k, const T *v, const T *mask,       \
                           T *score, T *out)                                                       \
    {                                                                                              \
        T top = -INFINITY, sum = 0;                                                                \
        for (int64_t j = 0; j < p->sk; j++) {                                                      \
            T dot = 0;                                                                             \
            for (int64_t d = 0; d < p->head_dim; d++)                                              \
                dot += q[d] * k[j * p->width[1] + d];                                              \
            dot *= (T)p->scale;                                                                    \
            if (mask != NULL) {                                                                    \
                T m = mask[j * p->mask_stride[3]];                                                 \
                dot = !p->mask_is_bool ? dot + m : m != 0 ? dot : (T)p->fill;                      \
            }                                                                                      \
            score[j] = dot;                                                                        \
            top = dot > top || dot != dot ? dot : top;                                             \
        }                                                                                          \
        for (int64_t j = 0; j < p->sk; j++)                                                        \
            sum += score[j] = EXP(score[j] - top);                                                 \
        for (int64_t d = 0; d < p->head_dim; d++)                                                  \
            out[d] = 0;                                                                            \
        for (int64_t j = 0; j < p->sk; j++) {                                                      \
            T w = score[j] / sum;                                                                  \
            for (int64_t d = 0; d < p->head_dim; d++)                                              \
                out[d] += w * v[j * p->width[2] + d];                                              \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    static void name(const plan *p, const T *q, const T *k, const T *v, const T *mask, T *score,   \
                     T *out)                                                                       \
    {                                                                                              \
        for (int64_t b = 0; b < p->b; b++) {                                                       \
            for (int64_t h = 0; h < p->heads; h++) {                                               \
                int64_t col = h * p->head_dim;                                                     \
                const T *kh = k + b * p->sk * p->width[1] + p->offset[1] + col;                    \
                const T *vh = v + b * p->sk * p->width[2] + p->offset[2] + col;                    \
                for (int64_t i = 0; i < p->sq; i++) {                                              \
                    int64_t row = b * p->sq + i;                                                   \
                    const T *m = mask == NULL ? NULL                                               \
                                              : mask + b * p->mask_stride[0] +                     \
                                                    h * p->mask_stride[1] + i * p->mask_stride[2]; \
                    name##_row(p, q + row * p->width[0] + p->offset[0] + col, kh, vh, m, score,    \
                               out + row * p->heads * p->head_dim + col);                          \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }

/* All sequences of a packed batch, or the whole batch. */
#define DEFINE_SEQUENCES(name, T)                                                              \
    static void name##_all(const plan *p, const weft_packed *packed, const T *q, const T *k,   \
                           const T *v, const T *mask, T *score, T *out)                        \
    {                                                                                          \
        if (packed == NULL)                                                                    \
            name(p, q, k, v, mask, score, out);                                                \
        for (int64_t i = 0; packed != NULL && i < packed->n; i++) {                            \
            int64_t from = packed->start[i];                                                   \
            plan one = *p;                                                                     \
            one.sq = one.sk = weft_packed_len(packed, i);                                      \
            name(&one, q + from * p->width[0], k + from * p->width[1], v + from * p->width[2], \
                 mask == NULL || p->mask_by_position                                           \
                     ? mask                                                                    \
                     : mask + from * p->mask_stride[p->mask_by_row ? 2 : 3],                   \
                 score, out + from * p->heads * p->head_dim);                                  \
        }                                                                                      \
    }

DEFINE_ATTENTION(attend_f32, float, expf)
DEFINE_ATTENTION(attend_f64, double, exp)
DEFINE_SEQUENCES(attend_f32, float)
DEFINE_SEQUENCES(attend_f64, double)

bool weft_packed_read(const weft_tensor *starts, int64_t rows, int64_t longest, weft_packed *out)
{
    *out = (weft_packed){.start = starts->data, .n = weft_tensor_numel(starts), .rows = rows};
    bool ok = starts->dtype == WEFT_DTYPE_I64 && (out->n > 0 ? out->start[0] == 0 : rows == 0);
    for (int64_t i = 0; i < out->n && ok; i++) {
        int64_t end = i + 1 < out->n ? out->start[i + 1] : rows;
        ok = end >= out->start[i] && end <= rows && end - out->start[i] <= longest;
    }
    return ok;
}

static weft_err make_plan(weft_eval_ctx *cx, plan *p)
{
    static const weft_attr_key offset[3] = {WEFT_ATTR_Q_OFFSET, WEFT_ATTR_K_OFFSET,
                                            WEFT_ATTR_V_OFFSET};
    p->heads = weft_attrs_int(cx->attrs, WEFT_ATTR_HEADS, 0);
    p->head_dim = weft_attrs_int(cx->attrs, WEFT_ATTR_HEAD_DIM, 0);
    p->scale = weft_attrs_float(cx->attrs, WEFT_ATTR_SCALE, 1);
    p->fill = weft_attrs_float(cx->attrs, WEFT_ATTR_FILL, -INFINITY);
    p->b = cx->in[0]->dim[0];
    p->sq = cx->in[0]->dim[1];
    p->sk = cx->in[1]->dim[1];
    for (uint32_t i = 0; i < 3; i++) {
        const weft_tensor *t = cx->in[i];
        p->width[i] = t->dim[2];
        p->offset[i] = weft_attrs_int(cx->attrs, offset[i], 0);
        if (t->rank != 3 || p->offset[i] < 0 || p->offset[i] + p->heads * p->head_dim > t->dim[2] ||
            t->dim[0] != p->b || (i > 0 && t->dim[1] != p->sk))
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand %u does not fit", i);
    }
    const weft_tensor *mask = weft_eval__in(cx, 3);
    if (mask == NULL)
        return WEFT_ERR_OK;
    int64_t dim[4] = {p->b, p->heads, p->sq, p->sk}, s = 1;
    bool is_packed = weft_eval__in(cx, 4) != NULL && mask->rank >= 2;
    p->mask_by_row = is_packed && is_by_row(cx->attrs);
    p->mask_by_position = is_packed && !p->mask_by_row && mask->dim[mask->rank - 2] > 1;
    if (p->mask_by_row)
        dim[3] = mask->dim[mask->rank - 1];
    if (p->mask_by_position)
        dim[2] = dim[3] = mask->dim[mask->rank - 2];
    for (int32_t i = mask->rank - 1, d = 3; i >= 0; i--, d--) {
        if (d < 0 || (mask->dim[i] != 1 && mask->dim[i] != dim[d]))
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the mask does not broadcast");
        p->mask_stride[d] = mask->dim[i] == 1 ? 0 : s;
        s *= mask->dim[i];
    }
    p->mask_is_bool = mask->dtype == WEFT_DTYPE_BOOL;
    return WEFT_ERR_OK;
}

weft_err weft_eval_attention(weft_eval_ctx *cx)
{
    plan p = {0};
    WEFT_TRY(make_plan(cx, &p));
    const weft_tensor *mask = weft_eval__in(cx, 3), *out = &cx->out[0];
    const weft_tensor *starts = weft_eval__in(cx, 4);
    weft_packed list, *packed = starts != NULL ? &list : NULL;
    int64_t longest = p.mask_by_position || p.mask_by_row ? mask->dim[mask->rank - 1] : p.sq;
    if (packed && (p.b != 1 || p.sq != p.sk || !weft_packed_read(starts, p.sq, longest, packed)))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, WEFT_PACKED_WRONG);
    size_t n = (size_t)weft_tensor_numel(out);
    if (out->dtype == WEFT_DTYPE_F64) {
        attend_f64_all(&p, packed, weft_eval__f64(cx, cx->in[0]), weft_eval__f64(cx, cx->in[1]),
                       weft_eval__f64(cx, cx->in[2]),
                       mask != NULL ? weft_eval__f64(cx, mask) : NULL,
                       weft_arena_array(cx->scratch, (size_t)p.sk + 1, sizeof(double)), out->data);
        return WEFT_ERR_OK;
    }
    float *acc = out->dtype == WEFT_DTYPE_F32 ? out->data
                                              : weft_arena_array(cx->scratch, n + 1, sizeof(float));
    attend_f32_all(&p, packed, weft_eval__f32(cx, cx->in[0]), weft_eval__f32(cx, cx->in[1]),
                   weft_eval__f32(cx, cx->in[2]), mask != NULL ? weft_eval__f32(cx, mask) : NULL,
                   weft_arena_array(cx->scratch, (size_t)p.sk + 1, sizeof(float)), acc);
    if (out->dtype != WEFT_DTYPE_F32)
        weft_eval__store_f32(out, 0, 1, (int64_t)n, acc);
    return WEFT_ERR_OK;
}
