/* Random operators: hooks that make them of `random` (ops/noise.c) and arithmetic.
 *
 * Without attribute seed, a node's seed is made of its name. Inside loops the numbers of the rounds
 * are an operand, so that each round draws other numbers. */
#include "base/hash.h"
#include "frontend/onnx_build.h"

#include <string.h>

/* The attribute is an integer in Dropout, elsewhere a float. */
static weft_err read_seed(weft_onnx_call *c, int64_t *out)
{
    const Onnx__AttributeProto *a = weft_onnx__attr(c, "seed");
    double seed;
    *out = (int64_t)weft_hash64(c->where.item, strlen(c->where.item), 0);
    if (!a || weft_onnx__attr_type(a) == WEFT_ONNX_ATTR_INT)
        return weft_onnx__get_int(c, "seed", *out, out);
    WEFT_TRY(weft_onnx__get_float(c, "seed", 0, &seed));
    memcpy(out, &seed, sizeof *out);
    return WEFT_ERR_OK;
}

/* i64[n]: the numbers of the rounds of the loops around the node; none outside of loops. */
static weft_val read_rounds(weft_onnx_build *b)
{
    enum { LOOPS_MAX = WEFT_ONNX_GRAPHS_MAX };
    weft_onnx_ctx *cx = b->c->cx;
    weft_onnx_nest *chain[LOOPS_MAX];
    weft_val round[LOOPS_MAX];
    uint32_t n_chain = 0, n = 0;
    for (weft_onnx_nest *nest = b->c->scope->nest; nest; nest = nest->around) {
        if (nest->no_rounds || n_chain == LOOPS_MAX) {
            weft_onnx__stop(b, WEFT_ERR_UNSUP,
                            "in the body of a Scan its results would not change from round to "
                            "round: draw before the Scan, and scan the result");
            return (weft_val){0};
        }
        chain[n_chain++] = nest;
    }
    while (n_chain-- > 0) { /* from the outermost */
        for (uint32_t i = 0; i < n; i++)
            round[i] = weft_onnx__capture(cx, chain[n_chain], round[i]);
        if (chain[n_chain]->round.i)
            round[n++] = chain[n_chain]->round;
    }
    const weft_dim one = 1;
    for (uint32_t i = 0; i < n; i++)
        round[i] = weft_onnx__reshape(b, round[i], &one, 1);
    return n > 1 ? weft_onnx__concat(b, round, n, 0) : n ? round[0] : (weft_val){0};
}

/* Numbers in [0, 1), or of the standard normal distribution, for a shape i64[rank]. */
static weft_val draw(weft_onnx_build *b, const char *mode, weft_val shape, weft_dtype dtype,
                     int64_t seed)
{
    const weft_attr attr[3] = {WEFT_ATTR_OF_STR(MODE, mode), WEFT_ATTR_OF_DTYPE(DTYPE, dtype),
                               WEFT_ATTR_OF_INT(SEED, seed)};
    const weft_val in[2] = {shape, read_rounds(b)};
    return weft_onnx__make(b, WEFT_OP_RANDOM, in, in[1].i ? 2 : 1, attr, 3);
}

/* Attribute dtype, which is read by the schema of `random`. */
static weft_err read_dtype(weft_onnx_call *c, weft_dtype *dtype)
{
    WEFT_TRY(weft_onnx__map_attrs(c, WEFT_OP_RANDOM));
    for (uint32_t i = 0; i < c->n_attr; i++)
        if (c->attr[i].key == WEFT_ATTR_DTYPE)
            *dtype = c->attr[i].u.dtype;
    return WEFT_ERR_OK;
}

static weft_err read_shape(weft_onnx_build *b, weft_val *out)
{
    const int64_t *dim;
    uint32_t n;
    WEFT_TRY(weft_onnx__get_ints(b->c, "shape", &dim, &n));
    for (uint32_t i = 0; i < n; i++)
        if (dim[i] < 0 || n > WEFT_RANK_MAX)
            return weft_onnx__fail(b->c, WEFT_ERR_INPUT, "a shape of %u dims, dim %u is %lld", n, i,
                                   (long long)dim[i]);
    const int64_t rank = n;
    *out = weft_onnx__i64s(b, dim, &rank, 1);
    return b->err;
}

/* low + (high - low) uniform, mean + scale normal */
weft_err weft_onnx_hook_random(weft_onnx_call *c)
{
    weft_onnx_build b = {.c = c};
    bool normal = strncmp(c->op_type, "RandomNormal", strlen("RandomNormal")) == 0;
    bool like = strcmp(c->op_type + strlen(c->op_type) - 4, "Like") == 0;
    double offset, scale;
    int64_t seed;
    weft_dtype dtype = WEFT_DTYPE_F32;
    weft_val shape = {0};
    WEFT_TRY(weft_onnx__get_float(c, normal ? "mean" : "low", 0, &offset));
    WEFT_TRY(weft_onnx__get_float(c, normal ? "scale" : "high", 1, &scale));
    WEFT_TRY(read_seed(c, &seed));
    if (c->n_in != (like ? 1 : 0) || c->n_out != 1)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%u inputs, expected %d", c->n_in, like);
    if (like) {
        dtype = (weft_dtype)weft_onnx__type(c, c->in[0])->dtype;
        shape = weft_onnx__make1(&b, WEFT_OP_SHAPE, c->in[0]);
    } else {
        WEFT_TRY(read_shape(&b, &shape));
    }
    WEFT_TRY(read_dtype(c, &dtype));
    weft_val x = draw(&b, normal ? "normal" : "uniform", shape, dtype, seed);
    scale -= normal ? 0 : offset;
    if (scale != 1)
        x = weft_onnx__make2(&b, WEFT_OP_MUL, x, weft_onnx__scalar(&b, dtype, scale));
    if (offset != 0)
        x = weft_onnx__make2(&b, WEFT_OP_ADD, x, weft_onnx__scalar(&b, dtype, offset));
    c->out[0] = x;
    return b.err;
}

/* Bernoulli(p) ==> uniform < p */
weft_err weft_onnx_hook_bernoulli(weft_onnx_call *c)
{
    weft_onnx_build b = {.c = c};
    int64_t seed;
    if (c->n_in != 1 || c->n_out != 1)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%u inputs, expected 1", c->n_in);
    weft_dtype p = (weft_dtype)weft_onnx__type(c, c->in[0])->dtype, dtype = p;
    WEFT_TRY(read_seed(c, &seed));
    WEFT_TRY(read_dtype(c, &dtype));
    weft_val u = draw(&b, "uniform", weft_onnx__make1(&b, WEFT_OP_SHAPE, c->in[0]), p, seed);
    c->out[0] = weft_onnx__cast(&b, weft_onnx__make2(&b, WEFT_OP_LESS, u, c->in[0]), dtype);
    return b.err;
}

/* Of rows of logarithms of probabilities [n, classes]: the number of classes whose cumulative
 * probability is at most uniform [n, samples]. */
weft_err weft_onnx_hook_multinomial(weft_onnx_call *c)
{
    enum { SAMPLES_MAX = 1 << 24 };
    weft_onnx_build b = {.c = c};
    int64_t seed, samples;
    weft_dtype dtype = WEFT_DTYPE_I32;
    if (c->n_in != 1 || c->n_out != 1 || weft_onnx__type(c, c->in[0])->rank != 2)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "needs one input, of rank 2");
    WEFT_TRY(read_seed(c, &seed));
    WEFT_TRY(weft_onnx__get_int(c, "sample_size", 1, &samples));
    WEFT_TRY(read_dtype(c, &dtype));
    if (samples < 1 || samples > SAMPLES_MAX ||
        (dtype != WEFT_DTYPE_I32 && dtype != WEFT_DTYPE_I64))
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%lld samples of type %s", (long long)samples,
                               weft_dtype_name(dtype));
    const weft_ttype x = *weft_onnx__type(c, c->in[0]);
    const int64_t one[1] = {1};
    weft_val last = weft_onnx__i64s(&b, one, NULL, 0);
    weft_val p = weft_onnx__softmax(&b, weft_onnx__cast(&b, c->in[0], WEFT_DTYPE_F64), 1);
    p = weft_onnx__make2(&b, WEFT_OP_CUM_SUM, p, last);
    weft_val rows =
        weft_onnx__make1(&b, WEFT_OP_SHAPE, weft_onnx__slice(&b, c->in[0], 1, 0, 1)); /* [n, 1] */
    const int64_t grow[2] = {1, samples}, two[1] = {2};
    weft_val shape = weft_onnx__make2(&b, WEFT_OP_MUL, rows, weft_onnx__i64s(&b, grow, two, 1));
    weft_val u = draw(&b, "uniform", shape, WEFT_DTYPE_F64, seed);
    /* The sum of all probabilities, which rounding leaves near 1. */
    weft_val total = weft_onnx__slice(&b, p, 1, weft_onnx__minus(&b, x.dim[1], 1), x.dim[1]);
    u = weft_onnx__unsqueeze(&b, weft_onnx__make2(&b, WEFT_OP_MUL, u, total), 2);
    weft_val below = weft_onnx__make2(&b, WEFT_OP_LESS_OR_EQUAL, weft_onnx__unsqueeze(&b, p, 1), u);
    below = weft_onnx__cast(&b, below, dtype);
    c->out[0] = weft_onnx__squeeze(&b, weft_onnx__reduce(&b, WEFT_OP_REDUCE_SUM, below, 2), 2);
    return b.err;
}

/* -- Dropout ---------------------------------------------------------------------------------- */

/* Zeros where the mask is false, the rest divided by 1 - ratio. The mask is bool, or of the type of
 * x. */
static weft_err drop(weft_onnx_call *c, double ratio, bool mask_like)
{
    weft_onnx_build b = {.c = c};
    int64_t seed;
    WEFT_TRY(read_seed(c, &seed));
    WEFT_TRY(weft_onnx__map_attrs(c, WEFT_OP_IDENTITY));
    if (!(ratio > 0 && ratio < 1))
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "ratio %g is not in [0, 1)", ratio);
    weft_val x = c->in[0], shape = weft_onnx__make1(&b, WEFT_OP_SHAPE, x);
    weft_val u = draw(&b, "uniform", shape, WEFT_DTYPE_F32, seed);
    weft_val ratios = weft_onnx__scalar(&b, WEFT_DTYPE_F32, ratio);
    weft_val mask = weft_onnx__make2(&b, WEFT_OP_GREATER_OR_EQUAL, u, ratios);
    weft_val scaled =
        weft_onnx__make2(&b, WEFT_OP_MUL, x, weft_onnx__number(&b, x, 1 / (1 - ratio)));
    c->out[0] = weft_onnx__make3(&b, WEFT_OP_WHERE, mask, scaled, weft_onnx__number(&b, x, 0));
    if (c->n_out > 1)
        c->out[1] = mask_like ? weft_onnx__cast(&b, mask, weft_onnx__dtype_of(&b, x)) : mask;
    return b.err;
}

enum {
    OPSET_TRAINING = 7,       /* before, training unless an attribute says otherwise */
    OPSET_DROPOUT_MASK = 10,  /* the mask is bool; before, of the operand's type */
    OPSET_DROPOUT_INPUT = 12, /* ratio and training_mode are inputs */
};

/* Value of a bool or number; false if it is not known at import. */
static bool known_scalar(weft_onnx_call *c, uint32_t in, double otherwise, double *out)
{
    *out = otherwise;
    if (in >= c->n_in || !c->in[in].i)
        return true;
    weft_weight w = weft_val_weight(c->cx->m, c->in[in]);
    if (!w.i || weft_weight_get(c->cx->m, w)->bytes == 0)
        return false;
    weft_tensor t = weft_weight_tensor(c->cx->m, w);
    uint64_t element = 0;
    memcpy(&element, t.data, weft_dtype_size(t.dtype));
    t.data = &element;
    *out = weft_tensor_get_f64(&t, 0);
    return true;
}

/* In inference: dropout(x) ==> identity(x), and a constant mask when it is wanted */
weft_err weft_onnx_hook_dropout(weft_onnx_call *c)
{
    double ratio = 0.5, training = 0.0;
    WEFT_TRY(weft_onnx__get_float(c, "ratio", 0.5, &ratio));
    if (c->n_in == 0 || !c->in[0].i || c->n_out > 2)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%u inputs and %u outputs", c->n_in, c->n_out);
    if (c->opset < OPSET_TRAINING) {
        int64_t is_test;
        WEFT_TRY(weft_onnx__get_int(c, "is_test", 0, &is_test));
        weft_onnx__ignore(c, "consumed_inputs");
        training = is_test ? 0.0 : 1.0;
    } else if (c->opset >= OPSET_DROPOUT_INPUT) {
        bool known = known_scalar(c, 2, 0.0, &training);
        bool known_ratio = known_scalar(c, 1, 0.5, &ratio);
        if (!known || (training != 0.0 && !known_ratio))
            return weft_onnx__fail(c, WEFT_ERR_UNSUP,
                                   "a mode or ratio that is not constant: export for inference, or "
                                   "fix the inputs with `values:` of a set file");
    }
    if (training != 0.0 && ratio != 0.0)
        return drop(c, ratio, c->opset < OPSET_DROPOUT_MASK);
    weft_onnx__ignore(c, "seed");
    WEFT_TRY(weft_onnx__map_attrs(c, c->row->op));
    if (c->n_out > 1) {
        weft_val shape;
        weft_dtype dtype = c->opset < OPSET_DROPOUT_MASK
                               ? (weft_dtype)weft_onnx__type(c, c->in[0])->dtype
                               : WEFT_DTYPE_BOOL;
        /* Without a definition before opset 12: zeros, as in onnxruntime. */
        weft_attr fill[2] = {WEFT_ATTR_OF_FLOAT(VALUE, c->opset < OPSET_DROPOUT_INPUT ? 0.0 : 1.0),
                             WEFT_ATTR_OF_DTYPE(DTYPE, dtype)};
        WEFT_TRY(weft_onnx__emit(c, WEFT_OP_SHAPE, c->in, 1, NULL, 0, &shape, 1));
        WEFT_TRY(weft_onnx__emit(c, WEFT_OP_CONSTANT_OF_SHAPE, &shape, 1, fill, 2, &c->out[1], 1));
    }
    return weft_onnx__emit(c, WEFT_OP_IDENTITY, c->in, 1, NULL, 0, c->out, 1);
}
