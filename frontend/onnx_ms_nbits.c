/* MatMulNBits of com.microsoft: weights stay packed; zero points and scales become f32, one for
 * each block. */
#include "frontend/onnx_build.h"
#include "ops/nbits.h"

#include <string.h>

enum { X, B, SCALES, ZEROS, GROUP_INDEX, BIAS, N_INPUTS };

static weft_val operand(const weft_onnx_call *c, uint32_t i)
{
    return i < c->n_in ? c->in[i] : (weft_val){0};
}

static weft_val as_blocks(weft_onnx_build *b, weft_val x, const weft_nbits *s)
{
    const weft_dim dim[2] = {s->n, s->blocks};
    const weft_ttype *t = weft_onnx__of(b, x);
    x = weft_onnx__cast(b, x, WEFT_DTYPE_F32);
    bool is = t->rank == 2 && t->dim[0] == s->n && t->dim[1] == s->blocks;
    return is ? x : weft_onnx__reshape(b, x, dim, 2); /* older files have them flat */
}

/* Packed like the weights, each row beginning with a byte. */
static weft_val unpack_zeros(weft_onnx_build *b, weft_val zeros, const weft_nbits *s)
{
    weft_onnx_call *c = b->c;
    weft_weight w = weft_val_weight(c->cx->m, zeros);
    int64_t row = (s->blocks * s->bits + 7) / 8, dim[2] = {s->n, s->blocks};
    if (!w.i || weft_weight_get(c->cx->m, w)->bytes != (uint64_t)(row * s->n)) {
        weft_onnx__stop(b, WEFT_ERR_UNSUP, "zero points that are no constant of %lld bytes",
                        (long long)(row * s->n));
        return zeros;
    }
    weft_tensor t = weft_weight_tensor(c->cx->m, w);
    uint8_t *q = weft_arena_array(c->cx->arena, (size_t)s->blocks, 1);
    float *out = weft_arena_array(c->cx->arena, (size_t)(s->n * s->blocks), sizeof *out);
    for (int64_t n = 0; n < s->n; n++) {
        weft_nbits_split(q, (const uint8_t *)t.data + n * row, s->bits, s->blocks);
        for (int64_t i = 0; i < s->blocks; i++)
            out[n * s->blocks + i] = (float)q[i];
    }
    return weft_onnx__f32s(b, out, dim, 2);
}

static weft_err read_sizes(weft_onnx_call *c, weft_nbits *out, int64_t *out_accuracy)
{
    int64_t k, n, bits, block, prepacked;
    WEFT_TRY(weft_onnx__get_int(c, "K", 0, &k));
    WEFT_TRY(weft_onnx__get_int(c, "N", 0, &n));
    WEFT_TRY(weft_onnx__get_int(c, "bits", 4, &bits));
    WEFT_TRY(weft_onnx__get_int(c, "block_size", 0, &block));
    WEFT_TRY(weft_onnx__get_int(c, "weight_prepacked", 0, &prepacked));
    /* The least accuracy that the model needs: f32 has it, kernels may use it for 4 (int8). */
    WEFT_TRY(weft_onnx__get_int(c, "accuracy_level", 0, out_accuracy));
    WEFT_TRY(weft_onnx__no_more_attrs(c));
    if (prepacked)
        return weft_onnx__fail(c, WEFT_ERR_UNSUP,
                               "weights packed for one processor: export the model again without "
                               "weight_prepacked");
    if (!weft_nbits_make(k, n, bits, block, out))
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "K %lld, N %lld, %lld bits, blocks of %lld",
                               (long long)k, (long long)n, (long long)bits, (long long)block);
    return WEFT_ERR_OK;
}

/* -- Columns in any group: g_idx -------------------------------------------------------------- */

/* A constant of at least `numel` elements, or an error. */
static weft_tensor constant(weft_onnx_build *b, uint32_t i, const char *name, int64_t numel)
{
    weft_onnx_call *c = b->c;
    weft_weight w = weft_val_weight(c->cx->m, operand(c, i));
    weft_tensor t = {0};
    if (w.i)
        t = weft_weight_tensor(c->cx->m, w);
    if (!w.i || weft_tensor_numel(&t) < numel)
        weft_onnx__stop(b, WEFT_ERR_UNSUP,
                        "\"g_idx\" needs a constant \"%s\" of %lld elements or more: export the "
                        "model with its weights as initializers",
                        name, (long long)numel);
    return t;
}

/* Whether the groups of elements are others than their blocks. */
static bool has_groups(weft_onnx_build *b, const weft_nbits *s, weft_tensor *out)
{
    bool differ = false;
    if (!operand(b->c, GROUP_INDEX).i)
        return false;
    *out = constant(b, GROUP_INDEX, "g_idx", s->k);
    for (int64_t i = 0; i < s->k && b->err == WEFT_ERR_OK; i++) {
        int64_t g = weft_tensor_get_i64(out, i);
        if (g < 0 || g >= s->blocks)
            weft_onnx__stop(b, WEFT_ERR_INPUT, "\"g_idx\" has %lld, beyond %lld groups",
                            (long long)g, (long long)s->blocks);
        differ = differ || g != i / s->block;
    }
    return differ;
}

/* Zero points of all groups. */
static float *read_zeros(weft_onnx_build *b, const weft_nbits *s)
{
    weft_onnx_call *c = b->c;
    float *zeros = weft_arena_array(c->cx->arena, (size_t)(s->n * s->blocks), sizeof *zeros);
    int64_t row = (s->blocks * s->bits + 7) / 8;
    bool packed = weft_onnx__dtype_of(b, operand(c, ZEROS)) == WEFT_DTYPE_U8;
    weft_tensor t = {0};
    if (operand(c, ZEROS).i)
        t = constant(b, ZEROS, "zero_points", s->n * (packed ? row : s->blocks));
    for (int64_t i = 0; i < s->n * s->blocks && b->err == WEFT_ERR_OK; i++) {
        int64_t bit = i % s->blocks * s->bits;
        zeros[i] =
            !t.data  ? (float)(1 << (s->bits - 1))
            : packed ? (float)(((const uint8_t *)t.data)[i / s->blocks * row + bit / 8] >> bit % 8 &
                               ((1 << s->bits) - 1))
                     : (float)weft_tensor_get_f64(&t, i);
    }
    return zeros;
}

/* Each element has the scale and the zero point of its group, as the operator is documented
 * (onnxruntime 1.32 ignores zero points here): weights are widened. */
static weft_val multiply_grouped(weft_onnx_build *b, const weft_nbits *s, weft_val x,
                                 const weft_tensor *groups)
{
    weft_onnx_call *c = b->c;
    weft_tensor packed = constant(b, B, "B", s->n * s->blocks * s->block_bytes);
    weft_tensor scales = constant(b, SCALES, "scales", s->n * s->blocks);
    const float *zeros = read_zeros(b, s);
    const int64_t dim[2] = {s->n, s->k};
    if (b->err != WEFT_ERR_OK)
        return x;
    float *w = weft_arena_array(c->cx->arena, (size_t)s->n, (size_t)s->k * sizeof *w);
    uint8_t *q = weft_arena_array(c->cx->arena, (size_t)(s->blocks * s->block), 1);
    for (int64_t n = 0; n < s->n; n++) {
        weft_nbits_split(q, (const uint8_t *)packed.data + n * s->blocks * s->block_bytes, s->bits,
                         s->k);
        for (int64_t k = 0; k < s->k; k++) {
            int64_t at = n * s->blocks + weft_tensor_get_i64(groups, k);
            w[n * s->k + k] = ((float)q[k] - zeros[at]) * (float)weft_tensor_get_f64(&scales, at);
        }
    }
    return weft_onnx__matmul(b, x, weft_onnx__f32s(b, w, dim, 2), true, 1);
}

weft_err weft_onnx_hook_ms_matmul_nbits(weft_onnx_call *c)
{
    weft_onnx_build b = {.c = c};
    weft_nbits s;
    int64_t accuracy;
    WEFT_TRY(read_sizes(c, &s, &accuracy));
    if (!operand(c, X).i || !operand(c, B).i || !operand(c, SCALES).i || c->n_in > N_INPUTS)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%u inputs, expected 3 to %d", c->n_in, N_INPUTS);
    weft_dtype dtype = weft_onnx__dtype_of(&b, c->in[X]);
    weft_val in[4] = {weft_onnx__cast(&b, c->in[X], WEFT_DTYPE_F32), c->in[B],
                      as_blocks(&b, c->in[SCALES], &s)};
    weft_val zeros = operand(c, ZEROS);
    if (zeros.i)
        in[3] = weft_onnx__dtype_of(&b, zeros) == WEFT_DTYPE_U8 ? unpack_zeros(&b, zeros, &s)
                                                                : as_blocks(&b, zeros, &s);
    const weft_attr attr[5] = {WEFT_ATTR_OF_INT(BITS, s.bits),
                               WEFT_ATTR_OF_INT(BLOCK_SIZE, s.block), WEFT_ATTR_OF_INT(K, s.k),
                               WEFT_ATTR_OF_INT(N, s.n),
                               WEFT_ATTR_OF_INT(ACCURACY_LEVEL, accuracy)};
    weft_tensor groups;
    weft_val y = has_groups(&b, &s, &groups)
                     ? multiply_grouped(&b, &s, in[X], &groups)
                     : weft_onnx__make(&b, WEFT_OP_MATMUL_NBITS, in, in[3].i ? 4 : 3, attr,
                                       accuracy == 4 ? 5 : 4);
    if (operand(c, BIAS).i)
        y = weft_onnx__make2(&b, WEFT_OP_ADD, y, weft_onnx__cast(&b, c->in[BIAS], WEFT_DTYPE_F32));
    c->out[0] = weft_onnx__cast(&b, y, dtype);
    return b.err;
}
