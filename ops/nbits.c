/* matmul_nbits: x w' with weights of a few bits, which stay packed (ops/nbits.h). */
#include "ops/nbits.h"

#include "ops/op_int.h"

enum { NBITS_X, NBITS_B, NBITS_SCALES, NBITS_ZEROS };

bool weft_nbits_make(int64_t k, int64_t n, int64_t bits, int64_t block, weft_nbits *out)
{
    if (k < 1 || k > INT32_MAX || n < 1 || n > INT32_MAX || block < 16 || block > 1 << 20 ||
        (block & (block - 1)) != 0 || (bits != 2 && bits != 4 && bits != 8))
        return false;
    *out = (weft_nbits){.k = k, .n = n, .block = block, .bits = (int)bits};
    out->blocks = (k + block - 1) / block;
    out->block_bytes = block * bits / 8;
    return true;
}

static bool read_nbits(weft_attrs attrs, weft_nbits *out)
{
    return weft_nbits_make(weft_attrs_int(attrs, WEFT_ATTR_K, 0),
                           weft_attrs_int(attrs, WEFT_ATTR_N, 0),
                           weft_attrs_int(attrs, WEFT_ATTR_BITS, 4),
                           weft_attrs_int(attrs, WEFT_ATTR_BLOCK_SIZE, 0), out);
}

weft_err weft_infer_matmul_nbits(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[NBITS_X].type, *b = &cx->in[NBITS_B].type;
    weft_nbits s;
    if (!read_nbits(cx->attrs, &s))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "k, n, bits and block_size do not fit");
    WEFT_TRY(weft_infer__dtype(cx, NBITS_X, WEFT_M_F32));
    WEFT_TRY(weft_infer__dtype(cx, NBITS_B, 1u << WEFT_DTYPE_U8));
    WEFT_TRY(weft_infer__rank(cx, NBITS_X, 1, WEFT_RANK_MAX));
    WEFT_TRY(weft_infer__rank(cx, NBITS_B, 3, 3));
    WEFT_TRY(weft_infer__agree(cx, x->dim[x->rank - 1], s.k, "columns and k"));
    WEFT_TRY(weft_infer__agree(cx, b->dim[0], s.n, "rows of weights"));
    WEFT_TRY(weft_infer__agree(cx, b->dim[1], s.blocks, "blocks"));
    WEFT_TRY(weft_infer__agree(cx, b->dim[2], s.block_bytes, "bytes of a block"));
    for (uint32_t i = NBITS_SCALES; i <= NBITS_ZEROS; i++) {
        if (!weft_infer__has(cx, i))
            continue;
        WEFT_TRY(weft_infer__dtype(cx, i, WEFT_M_F32));
        WEFT_TRY(weft_infer__rank(cx, i, 2, 2));
        WEFT_TRY(weft_infer__agree(cx, cx->in[i].type.dim[0], s.n, "rows of scales"));
        WEFT_TRY(weft_infer__agree(cx, cx->in[i].type.dim[1], s.blocks, "blocks of scales"));
    }
    weft_infer__copy(cx, 0, NBITS_X);
    cx->out[0].dim[x->rank - 1] = s.n;
    return WEFT_ERR_OK;
}

weft_work weft_work_matmul_nbits(const weft_work_ctx *cx)
{
    double k = (double)weft_attrs_int(cx->attrs, WEFT_ATTR_K, 1);
    return weft_work__bytes(cx, 2 * k * weft_work__numel(&cx->out[0]));
}

/* Row `row` of the weights. */
static void unpack_row(const weft_eval_ctx *cx, const weft_nbits *s, int64_t row, uint8_t *q,
                       double *w)
{
    const weft_tensor *zeros = weft_eval__in(cx, NBITS_ZEROS);
    const uint8_t *b = (const uint8_t *)cx->in[NBITS_B]->data + row * s->blocks * s->block_bytes;
    for (int64_t i = 0; i < s->blocks; i++) {
        int64_t n = s->k - i * s->block < s->block ? s->k - i * s->block : s->block;
        int64_t at = row * s->blocks + i;
        float scale = ((const float *)cx->in[NBITS_SCALES]->data)[at];
        float zero = zeros ? ((const float *)zeros->data)[at] : (float)(1 << (s->bits - 1));
        weft_nbits_split(q, b + i * s->block_bytes, s->bits, n);
        for (int64_t k = 0; k < n; k++)
            w[i * s->block + k] = (double)(((float)q[k] - zero) * scale);
    }
}

weft_err weft_eval_matmul_nbits(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[NBITS_X], *out = &cx->out[0];
    weft_nbits s;
    if (!read_nbits(cx->attrs, &s) || x->dim[x->rank - 1] != s.k)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "k, n, bits and block_size do not fit");
    int64_t rows = weft_tensor_numel(x) / s.k;
    uint8_t *q = weft_arena_array(cx->scratch, (size_t)s.block, 1);
    double *w = weft_arena_array(cx->scratch, (size_t)s.k, sizeof *w);
    for (int64_t n = 0; n < s.n; n++) {
        unpack_row(cx, &s, n, q, w);
        for (int64_t r = 0; r < rows; r++) {
            const float *row = (const float *)x->data + r * s.k;
            double sum = 0;
            for (int64_t k = 0; k < s.k; k++)
                sum += (double)row[k] * w[k];
            ((float *)out->data)[r * s.n + n] = (float)sum;
        }
    }
    return WEFT_ERR_OK;
}
