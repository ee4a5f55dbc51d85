/* Random tensors. Element i is a function of the seed, of the rounds of the loops around the node,
 * and of i (Philox, base/random.h): the results are the same in every run, on every machine and for
 * any number of threads. They are not the sequence of another runtime.
 *
 * Element i takes 64 bits: word i % 2 of block i / 2. Uniform numbers in [0, 1) have as many of
 * them as the mantissa of their type holds; two normal numbers come from one block (G. Box, M.
 * Muller, A note on the generation of random normal deviates, 1958). */
#include "base/random.h"
#include "base/hash.h"
#include "ops/data_int.h"

#include <math.h>
#include <string.h>

static bool is_normal(weft_attrs attrs)
{
    return strcmp(weft_attrs_str(attrs, WEFT_ATTR_MODE, "uniform"), "normal") == 0;
}

weft_err weft_infer_random(weft_infer_ctx *cx)
{
    weft_dtype dtype = weft_attrs_dtype(cx->attrs, WEFT_ATTR_DTYPE, WEFT_DTYPE_F32);
    const char *mode = weft_attrs_str(cx->attrs, WEFT_ATTR_MODE, "uniform");
    if (strcmp(mode, "uniform") != 0 && strcmp(mode, "normal") != 0)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "mode \"%s\"", mode);
    if (!(1u << dtype & WEFT_M_FLOAT))
        return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "element type %s", weft_dtype_name(dtype));
    if (weft_infer__has(cx, 1))
        WEFT_TRY(weft_infer__dtype(cx, 1, 1u << WEFT_DTYPE_I64));
    return weft_infer_constant_of_shape(cx);
}

typedef struct stream {
    uint32_t key[2];
    uint64_t round; /* of the loops around the node */
} stream;

static stream open_stream(const weft_eval_ctx *cx)
{
    uint64_t seed = (uint64_t)weft_attrs_int(cx->attrs, WEFT_ATTR_SEED, 0);
    const weft_tensor *rounds = weft_eval__in(cx, 1);
    stream s = {.key = {(uint32_t)seed, (uint32_t)(seed >> 32)}};
    for (int64_t i = 0; rounds && i < weft_tensor_numel(rounds); i++)
        s.round = weft_hash_mix(s.round, (uint64_t)weft_tensor_get_i64(rounds, i));
    return s;
}

static void draw(const stream *s, uint64_t block, uint64_t out[2])
{
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)s->round,
                                 (uint32_t)(s->round >> 32)};
    uint32_t x[4];
    weft_rand_philox(counter, s->key, x);
    out[0] = (uint64_t)x[1] << 32 | x[0];
    out[1] = (uint64_t)x[3] << 32 | x[2];
}

/* Bits of the mantissa, with the leading one. */
static int precision(weft_dtype dtype)
{
    return dtype == WEFT_DTYPE_F64    ? 53
           : dtype == WEFT_DTYPE_F16  ? 11
           : dtype == WEFT_DTYPE_BF16 ? 8
                                      : 24;
}

weft_err weft_eval_random(weft_eval_ctx *cx)
{
    weft_tensor *out = weft_eval__out(cx, 0);
    if (!out)
        return WEFT_ERR_OK;
    const double turn = 6.283185307179586;
    bool normal = is_normal(cx->attrs);
    int bits = precision(out->dtype);
    stream s = open_stream(cx);
    int64_t n = weft_tensor_numel(out);
    for (int64_t i = 0; i < n; i += 2) {
        uint64_t word[2];
        double x[2];
        draw(&s, (uint64_t)i / 2, word);
        for (int k = 0; k < 2 && !normal; k++)
            x[k] = ldexp((double)(word[k] >> (64 - bits)), -bits);
        if (normal) {
            double radius = sqrt(-2 * log(((double)(word[0] >> 11) + 1) * 0x1p-53));
            double angle = turn * ((double)(word[1] >> 11) * 0x1p-53);
            x[0] = radius * cos(angle);
            x[1] = radius * sin(angle);
        }
        weft_eval__store_f64(out, i, 1, n - i < 2 ? n - i : 2, x);
    }
    return WEFT_ERR_OK;
}
