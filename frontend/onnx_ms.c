/* Hooks of onnx_ops_ms.def: fused operators that onnxruntime's optimisers write, expanded into the
 * operators that they were made of; the passes fuse them again as the kernels need it. */
#include "frontend/onnx_build.h"

#include <math.h>
#include <string.h>

static weft_val operand(const weft_onnx_build *b, uint32_t i)
{
    return i < b->c->n_in ? b->c->in[i] : (weft_val){0};
}

static weft_val add(weft_onnx_build *b, weft_val x, weft_val y)
{
    return y.i ? weft_onnx__make2(b, WEFT_OP_ADD, x, y) : x;
}

/* INPUT unless the first n operands are there and at most `most` are. */
static weft_err need(weft_onnx_call *c, uint32_t n, uint32_t most)
{
    for (uint32_t i = 0; i < n; i++)
        if (i >= c->n_in || !c->in[i].i)
            return weft_onnx__fail(c, WEFT_ERR_INPUT, "input %u is missing", i);
    if (c->n_in > most)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%u inputs, expected at most %u", c->n_in, most);
    return WEFT_ERR_OK;
}

static weft_err finish(weft_onnx_build *b, weft_val result)
{
    b->c->out[0] = result;
    WEFT_TRY(b->err);
    return weft_onnx__no_more_attrs(b->c);
}

/* Operators of which a row exists to say what to do instead. */
weft_err weft_onnx_hook_ms_optimised(weft_onnx_call *c)
{
    return weft_onnx__fail(c, WEFT_ERR_UNSUP,
                           "is made by onnxruntime for one processor: export the model again "
                           "without saving the optimised graph");
}

weft_err weft_onnx_hook_ms_opaque(weft_onnx_call *c)
{
    return weft_onnx__fail(c, WEFT_ERR_UNSUP,
                           "is not supported: quantise the weights for MatMulNBits instead");
}

/* -- Activations ------------------------------------------------------------------------------ */

static weft_val gelu(weft_onnx_build *b, weft_val x, const char *approximate)
{
    const weft_attr attr = WEFT_ATTR_OF_STR(APPROXIMATE, approximate);
    return weft_onnx__make(b, WEFT_OP_GELU, &x, 1, &attr, 1);
}

weft_err weft_onnx_hook_ms_fast_gelu(weft_onnx_call *c)
{
    weft_onnx_build b = {.c = c};
    WEFT_TRY(need(c, 1, 2));
    return finish(&b, gelu(&b, add(&b, operand(&b, 0), operand(&b, 1)), "tanh"));
}

weft_err weft_onnx_hook_ms_bias_gelu(weft_onnx_call *c)
{
    weft_onnx_build b = {.c = c};
    WEFT_TRY(need(c, 2, 2));
    return finish(&b, gelu(&b, add(&b, operand(&b, 0), operand(&b, 1)), "none"));
}

/* x sigmoid(alpha x) */
weft_err weft_onnx_hook_ms_quick_gelu(weft_onnx_call *c)
{
    weft_onnx_build b = {.c = c};
    double alpha;
    WEFT_TRY(need(c, 1, 1));
    WEFT_TRY(weft_onnx__get_float(c, "alpha", (double)1.702F, &alpha));
    weft_val x = c->in[0], s = x;
    if (alpha == 1.0)
        return finish(&b, weft_onnx__make1(&b, WEFT_OP_SILU, x));
    s = weft_onnx__make2(&b, WEFT_OP_MUL, s, weft_onnx__number(&b, s, alpha));
    s = weft_onnx__make1(&b, WEFT_OP_SIGMOID, s);
    return finish(&b, weft_onnx__make2(&b, WEFT_OP_MUL, x, s));
}

/* Left half times gelu of the right half of x + bias. */
weft_err weft_onnx_hook_ms_bias_split_gelu(weft_onnx_call *c)
{
    weft_onnx_build b = {.c = c};
    WEFT_TRY(need(c, 2, 2));
    weft_val v = add(&b, c->in[0], c->in[1]);
    const weft_ttype *t = weft_onnx__of(&b, v);
    weft_dim n = t->rank == 3 ? t->dim[2] : 1;
    if (!weft_dim_is_const(n) || n % 2 != 0)
        weft_onnx__stop(&b, WEFT_ERR_INPUT, "an input without an even number of columns");
    weft_val left = weft_onnx__slice(&b, v, 2, 0, n / 2);
    weft_val right = gelu(&b, weft_onnx__slice(&b, v, 2, n / 2, n), "none");
    return finish(&b, weft_onnx__make2(&b, WEFT_OP_MUL, left, right));
}

weft_err weft_onnx_hook_ms_bias_add(weft_onnx_call *c)
{
    weft_onnx_build b = {.c = c};
    WEFT_TRY(need(c, 3, 3));
    return finish(&b, add(&b, add(&b, c->in[0], c->in[1]), c->in[2]));
}

/* An activation by its ONNX name, with up to three parameters. */
static weft_val activate(weft_onnx_build *b, weft_val x, const char *name, const double *p,
                         uint32_t n)
{
    static const struct {
        const char *name;
        weft_op_id op;
        uint32_t n;
    } known[] = {{"Relu", WEFT_OP_RELU, 0},
                 {"Tanh", WEFT_OP_TANH, 0},
                 {"Sigmoid", WEFT_OP_SIGMOID, 0},
                 {"LeakyRelu", WEFT_OP_LEAKY_RELU, 1},
                 {"HardSigmoid", WEFT_OP_HARD_SIGMOID, 2},
                 {"Clip", WEFT_OP_CLIP, 2},
                 {"Softplus", WEFT_OP_SOFTPLUS, 0},
                 {"Softsign", WEFT_OP_SOFTSIGN, 0},
                 {"Elu", WEFT_OP_ELU, 1},
                 {"ThresholdedRelu", WEFT_OP_THRESHOLDED_RELU, 1}};
    uint32_t i = 0, all = sizeof known / sizeof known[0];
    while (i < all && strcmp(known[i].name, name) != 0)
        i++;
    if (i == all || n < known[i].n) {
        weft_onnx__stop(b, WEFT_ERR_UNSUP, "activation \"%s\" with %u parameters is not supported",
                        name, n);
        return x;
    }
    if (known[i].op == WEFT_OP_CLIP) {
        const weft_val in[3] = {x, weft_onnx__number(b, x, p[0]), weft_onnx__number(b, x, p[1])};
        return weft_onnx__make(b, WEFT_OP_CLIP, in, 3, NULL, 0);
    }
    const weft_attr attr[2] = {WEFT_ATTR_OF_FLOAT(ALPHA, known[i].n > 0 ? p[0] : 0),
                               WEFT_ATTR_OF_FLOAT(BETA, known[i].n > 1 ? p[1] : 0)};
    return weft_onnx__make(b, known[i].op, &x, 1, attr, known[i].n);
}

/* Attributes activation, activation_alpha, activation_beta. */
static weft_val activate_by_attrs(weft_onnx_build *b, weft_val x)
{
    weft_onnx_call *c = b->c;
    const char *name = "";
    double p[2] = {0, 0};
    if (b->err == WEFT_ERR_OK)
        b->err = weft_onnx__get_str(c, "activation", "", &name);
    uint32_t n = weft_onnx__attr(c, "activation_beta")    ? 2
                 : weft_onnx__attr(c, "activation_alpha") ? 1
                                                          : 0;
    if (b->err == WEFT_ERR_OK)
        b->err = weft_onnx__get_float(c, "activation_alpha", 0, &p[0]);
    if (b->err == WEFT_ERR_OK)
        b->err = weft_onnx__get_float(c, "activation_beta", 0, &p[1]);
    weft_onnx__ignore(c, "activation_gamma");
    return *name ? activate(b, x, name, p, n) : x;
}

/* -- Products --------------------------------------------------------------------------------- */

/* [m, b.., k] ==> [b.., m, k] if the attribute says so. */
static weft_val exchange_batch(weft_onnx_build *b, const char *attr, weft_val x)
{
    int64_t exchange = 0, perm[WEFT_RANK_MAX];
    if (b->err == WEFT_ERR_OK)
        b->err = weft_onnx__get_int(b->c, attr, 0, &exchange);
    uint32_t rank = weft_onnx__of(b, x)->rank;
    if (!exchange || rank < 3)
        return x;
    for (uint32_t i = 0; i + 2 < rank; i++)
        perm[i] = i + 1;
    perm[rank - 2] = 0;
    perm[rank - 1] = rank - 1;
    return weft_onnx__transpose(b, x, perm);
}

static weft_val fused_matmul(weft_onnx_build *b)
{
    weft_onnx_call *c = b->c;
    int64_t trans_a = 0, trans_b = 0;
    double alpha = 1;
    if ((b->err = need(c, 2, 2)) != WEFT_ERR_OK)
        return (weft_val){0};
    const weft_val in[2] = {exchange_batch(b, "transBatchA", c->in[0]),
                            exchange_batch(b, "transBatchB", c->in[1])};
    if (b->err == WEFT_ERR_OK)
        b->err = weft_onnx__get_int(c, "transA", 0, &trans_a);
    if (b->err == WEFT_ERR_OK)
        b->err = weft_onnx__get_int(c, "transB", 0, &trans_b);
    if (b->err == WEFT_ERR_OK)
        b->err = weft_onnx__get_float(c, "alpha", 1, &alpha);
    /* A vector is not transposed. */
    const weft_attr attr[3] = {
        WEFT_ATTR_OF_INT(TRANS_A, trans_a && weft_onnx__of(b, in[0])->rank > 1),
        WEFT_ATTR_OF_INT(TRANS_B, trans_b && weft_onnx__of(b, in[1])->rank > 1),
        WEFT_ATTR_OF_FLOAT(ALPHA, alpha)};
    return weft_onnx__make(b, WEFT_OP_MATMUL, in, 2, attr, 3);
}

weft_err weft_onnx_hook_ms_fused_matmul(weft_onnx_call *c)
{
    weft_onnx_build b = {.c = c};
    return finish(&b, fused_matmul(&b));
}

weft_err weft_onnx_hook_ms_fused_matmul_activation(weft_onnx_call *c)
{
    weft_onnx_build b = {.c = c};
    weft_val y = fused_matmul(&b);
    weft_onnx__ignore(c, "activation_axis"); /* of Softmax, which is refused */
    return finish(&b, activate_by_attrs(&b, y));
}

weft_err weft_onnx_hook_ms_fused_gemm(weft_onnx_call *c)
{
    static const char *const mine[] = {"activation", "activation_alpha", "activation_beta",
                                       "activation_gamma"};
    weft_onnx_build b = {.c = c};
    WEFT_TRY(need(c, 2, 3));
    for (size_t i = 0; i < sizeof mine / sizeof mine[0]; i++)
        weft_onnx__ignore(c, mine[i]);
    WEFT_TRY(weft_onnx__map_attrs(c, WEFT_OP_GEMM));
    weft_val y = weft_onnx__make(&b, WEFT_OP_GEMM, c->in, c->n_in, c->attr, c->n_attr);
    return finish(&b, activate_by_attrs(&b, y));
}

/* act(conv(x, w, bias) + z) */
weft_err weft_onnx_hook_ms_fused_conv(weft_onnx_call *c)
{
    weft_onnx_build b = {.c = c};
    const char *name;
    const float *f;
    uint32_t n;
    double p[3] = {0, 0, 0};
    WEFT_TRY(need(c, 2, 4));
    WEFT_TRY(weft_onnx__get_str(c, "activation", "", &name));
    WEFT_TRY(weft_onnx__get_floats(c, "activation_params", &f, &n));
    for (uint32_t i = 0; i < n && i < 3; i++)
        p[i] = (double)f[i];
    WEFT_TRY(weft_onnx__map_attrs(c, WEFT_OP_CONV));
    weft_val y =
        weft_onnx__make(&b, WEFT_OP_CONV, c->in, c->n_in < 3 ? c->n_in : 3, c->attr, c->n_attr);
    y = add(&b, y, operand(&b, 3));
    return finish(&b, *name ? activate(&b, y, name, p, n < 3 ? n : 3) : y);
}

/* -- Normalisation ---------------------------------------------------------------------------- */

static weft_val normalise(weft_onnx_build *b, weft_op_id op, weft_val x, weft_val scale,
                          weft_val bias, int64_t axis, double epsilon)
{
    const weft_val in[3] = {x, scale, bias};
    const weft_attr attr[2] = {WEFT_ATTR_OF_INT(AXIS, axis), WEFT_ATTR_OF_FLOAT(EPSILON, epsilon)};
    return weft_onnx__make(b, op, in, op == WEFT_OP_LAYER_NORM && bias.i ? 3 : 2, attr, 2);
}

/* Results 1 and 2 are the mean and the inverse deviation, which models name and do not use; 3 is
 * the sum. */
static weft_err finish_sum(weft_onnx_build *b, weft_op_id op, weft_val result, weft_val sum,
                           double epsilon)
{
    weft_onnx_call *c = b->c;
    weft_val x = weft_onnx__cast(b, sum, WEFT_DTYPE_F32);
    int64_t last = weft_onnx__of(b, x)->rank - 1;
    if (c->n_out > 1) {
        c->out[1] = weft_onnx__reduce(b, WEFT_OP_REDUCE_MEAN, x, last);
        if (op == WEFT_OP_LAYER_NORM)
            x = weft_onnx__make2(b, WEFT_OP_SUB, x, c->out[1]);
    }
    if (c->n_out > 2) {
        x = weft_onnx__reduce(b, WEFT_OP_REDUCE_MEAN, weft_onnx__make2(b, WEFT_OP_MUL, x, x), last);
        x = weft_onnx__make2(b, WEFT_OP_ADD, x, weft_onnx__number(b, x, epsilon));
        weft_val root = weft_onnx__make1(b, WEFT_OP_SQRT, x);
        c->out[2] = weft_onnx__make2(b, WEFT_OP_DIV, weft_onnx__number(b, x, 1), root);
    }
    if (c->n_out > 3)
        c->out[3] = sum;
    return finish(b, result);
}

/* norm(x + skip + bias) */
static weft_err skip_norm(weft_onnx_call *c, weft_op_id op, uint32_t bias)
{
    weft_onnx_build b = {.c = c};
    double epsilon;
    WEFT_TRY(need(c, 3, bias + 1));
    WEFT_TRY(weft_onnx__get_float(c, "epsilon", (double)1e-12F, &epsilon));
    weft_val v = add(&b, add(&b, c->in[0], operand(&b, bias)), c->in[1]);
    weft_val beta = op == WEFT_OP_LAYER_NORM ? operand(&b, 3) : (weft_val){0};
    return finish_sum(&b, op, normalise(&b, op, v, c->in[2], beta, -1, epsilon), v, epsilon);
}

weft_err weft_onnx_hook_ms_skip_layer_norm(weft_onnx_call *c)
{
    return skip_norm(c, WEFT_OP_LAYER_NORM, 4);
}

weft_err weft_onnx_hook_ms_skip_rms_norm(weft_onnx_call *c)
{
    return skip_norm(c, WEFT_OP_RMS_NORM, 3);
}

/* Written in the default domain, where ONNX has no operator of this name. */
weft_err weft_onnx_hook_ms_rms_norm(weft_onnx_call *c)
{
    weft_onnx_build b = {.c = c};
    double epsilon;
    int64_t axis;
    WEFT_TRY(need(c, 2, 2));
    WEFT_TRY(weft_onnx__get_float(c, "epsilon", (double)1e-5F, &epsilon));
    WEFT_TRY(weft_onnx__get_int(c, "axis", -1, &axis));
    weft_onnx__ignore(c, "stash_type"); /* statistics are in f32 at least */
    if (c->n_out > 1)
        return weft_onnx__fail(c, WEFT_ERR_UNSUP, "result 1, of training, is not supported");
    return finish(
        &b, normalise(&b, WEFT_OP_RMS_NORM, c->in[0], c->in[1], (weft_val){0}, axis, epsilon));
}

static weft_val embed(weft_onnx_build *b, weft_val table, weft_val ids)
{
    const weft_attr axis = WEFT_ATTR_OF_INT(AXIS, 0);
    const weft_val in[2] = {table, ids};
    return weft_onnx__make(b, WEFT_OP_GATHER, in, 2, &axis, 1);
}

/* Operands of EmbedLayerNormalization; none where omitted. */
typedef struct embedding {
    weft_val ids, segment_ids, position_ids, mask;
    weft_val words, positions, segments, gamma, beta;
} embedding;

/* The rows of a table, dequantised if `q` has its scale and zero point. */
static weft_val embed_rows(weft_onnx_build *b, weft_val table, weft_val ids, const weft_val q[2])
{
    weft_val rows = embed(b, table, ids);
    return q ? weft_onnx__make3(b, WEFT_OP_DEQUANTIZE_LINEAR, rows, q[0], q[1]) : rows;
}

/* norm(words[ids] + positions + segments); result 1 counts the mask's ones. `q`, unless NULL, has
 * scale and zero point of words, positions and segments. */
static weft_err embed_layer_norm(weft_onnx_build *b, const embedding *e, weft_val (*q)[2])
{
    weft_onnx_call *c = b->c;
    double epsilon;
    WEFT_TRY(weft_onnx__get_float(c, "epsilon", (double)1e-12F, &epsilon));
    weft_onnx__ignore(c, "mask_index_type");
    if (!e->ids.i || !e->words.i || !e->positions.i || !e->gamma.i || !e->beta.i)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "an input is missing");
    const weft_ttype ids = *weft_onnx__type(c, e->ids);
    if (ids.rank != 2)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "input_ids of rank %u, expected 2", ids.rank);
    weft_val where = e->position_ids;
    if (!where.i)
        where = weft_onnx__iota(b, 0, ids.dim[1]);
    weft_val v = embed_rows(b, e->positions, where, q ? q[1] : NULL);
    v = add(b, embed_rows(b, e->words, e->ids, q ? q[0] : NULL), v);
    if (e->segments.i && e->segment_ids.i)
        v = add(b, v, embed_rows(b, e->segments, e->segment_ids, q ? q[2] : NULL));
    weft_val y = normalise(b, WEFT_OP_LAYER_NORM, v, e->gamma, e->beta, -1, epsilon);
    if (c->n_out > 1 && c->wanted[1]) {
        weft_val mask = e->mask;
        if (!mask.i)
            mask = weft_onnx__make2(b, WEFT_OP_MUL, e->ids, weft_onnx__number(b, e->ids, 0));
        const weft_attr attr[2] = {WEFT_ATTR_OF_DIMS(AXES, &(weft_dim){1}, 1),
                                   WEFT_ATTR_OF_INT(KEEPDIMS, 0)};
        mask = weft_onnx__cast(b, mask, WEFT_DTYPE_I32);
        c->out[1] = weft_onnx__make(b, WEFT_OP_REDUCE_SUM, &mask, 1, attr, 2);
    }
    if (c->n_out > 2)
        c->out[2] = v;
    return finish(b, y);
}

weft_err weft_onnx_hook_ms_embed_layer_norm(weft_onnx_call *c)
{
    enum { IDS, SEGMENT_IDS, WORDS, POSITIONS, SEGMENTS, GAMMA, BETA, MASK, POSITION_IDS };
    weft_onnx_build b = {.c = c};
    const embedding e = {.ids = operand(&b, IDS),
                         .segment_ids = operand(&b, SEGMENT_IDS),
                         .position_ids = operand(&b, POSITION_IDS),
                         .mask = operand(&b, MASK),
                         .words = operand(&b, WORDS),
                         .positions = operand(&b, POSITIONS),
                         .segments = operand(&b, SEGMENTS),
                         .gamma = operand(&b, GAMMA),
                         .beta = operand(&b, BETA)};
    return embed_layer_norm(&b, &e, NULL);
}

/* Tables, gamma and beta are bytes: inputs 8 to 12 are their scales, 13 to 17 their zero points. */
weft_err weft_onnx_hook_ms_qembed_layer_norm(weft_onnx_call *c)
{
    enum { IDS, SEGMENT_IDS, WORDS, POSITIONS, SEGMENTS, GAMMA, BETA, MASK, SCALE };
    enum { ZERO = SCALE + 5, TABLES = 3 };
    weft_onnx_build b = {.c = c};
    weft_val q[TABLES][2] = {{{0}}}, norm[2];
    if (c->n_out > 2)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%u outputs, expected 2", c->n_out);
    for (uint32_t i = 0; i < TABLES + 2; i++) {
        weft_val table = operand(&b, WORDS + i), scale = operand(&b, SCALE + i);
        weft_val zero = operand(&b, ZERO + i);
        if (!table.i && WORDS + i == SEGMENTS)
            continue;
        if (!table.i || !scale.i)
            return weft_onnx__fail(c, WEFT_ERR_INPUT, "input %u or %u is missing", WORDS + i,
                                   SCALE + i);
        if (i < TABLES) {
            q[i][0] = scale;
            q[i][1] = zero;
        } else {
            norm[i - TABLES] = weft_onnx__make3(&b, WEFT_OP_DEQUANTIZE_LINEAR, table, scale, zero);
        }
    }
    const embedding e = {.ids = operand(&b, IDS),
                         .segment_ids = operand(&b, SEGMENT_IDS),
                         .mask = operand(&b, MASK),
                         .words = operand(&b, WORDS),
                         .positions = operand(&b, POSITIONS),
                         .segments = operand(&b, SEGMENTS),
                         .gamma = norm[0],
                         .beta = norm[1]};
    return embed_layer_norm(&b, &e, q);
}

/* Layouts of one accelerator's int8 instructions are in the file. */
weft_err weft_onnx_hook_ms_ordered(weft_onnx_call *c)
{
    return weft_onnx__fail(c, WEFT_ERR_UNSUP,
                           "orders its bytes for one kind of GPU: quantise the float model again "
                           "with QDQ or QOperator");
}

/* group_norm of images, channels last by default, and SiLU. */
static weft_err group_norm(weft_onnx_call *c, weft_val x)
{
    static const int64_t first[4] = {0, 3, 1, 2}, last[4] = {0, 2, 3, 1};
    weft_onnx_build b = {.c = c};
    int64_t groups, activation, channels_last;
    double epsilon;
    WEFT_TRY(weft_onnx__get_int(c, "groups", 0, &groups));
    WEFT_TRY(weft_onnx__get_int(c, "activation", 0, &activation));
    WEFT_TRY(weft_onnx__get_int(c, "channels_last", 1, &channels_last));
    WEFT_TRY(weft_onnx__get_float(c, "epsilon", (double)1e-5F, &epsilon));
    if (weft_onnx__type(c, x)->rank != 4 || (activation != 0 && activation != 1))
        return weft_onnx__fail(c, WEFT_ERR_UNSUP, "rank %u and activation %lld are not supported",
                               weft_onnx__type(c, x)->rank, (long long)activation);
    weft_dtype dtype = weft_onnx__dtype_of(&b, x);
    weft_val in[3] = {channels_last ? weft_onnx__transpose(&b, x, first) : x,
                      weft_onnx__cast(&b, c->in[1], dtype), weft_onnx__cast(&b, c->in[2], dtype)};
    const weft_attr attr[2] = {WEFT_ATTR_OF_FLOAT(EPSILON, epsilon),
                               WEFT_ATTR_OF_INT(NUM_GROUPS, groups)};
    weft_val y = weft_onnx__make(&b, WEFT_OP_GROUP_NORM, in, 3, attr, 2);
    if (activation)
        y = weft_onnx__make1(&b, WEFT_OP_SILU, y);
    return finish(&b, channels_last ? weft_onnx__transpose(&b, y, last) : y);
}

weft_err weft_onnx_hook_ms_group_norm(weft_onnx_call *c)
{
    WEFT_TRY(need(c, 3, 3));
    return group_norm(c, c->in[0]);
}

weft_err weft_onnx_hook_ms_skip_group_norm(weft_onnx_call *c)
{
    weft_onnx_build b = {.c = c};
    WEFT_TRY(need(c, 4, 5));
    weft_val skip = c->in[3];
    const weft_ttype *t = weft_onnx__type(c, skip), *x = weft_onnx__type(c, c->in[0]);
    if (t->rank == 2) { /* [n, c] ==> [n, 1, 1, c] */
        const weft_dim dim[4] = {t->dim[0], 1, 1, t->dim[1]};
        skip = weft_onnx__reshape(&b, skip, dim, 4);
    } else if (t->rank != x->rank) {
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "skip of rank %u", t->rank);
    }
    weft_val v = add(&b, add(&b, c->in[0], skip), operand(&b, 4));
    WEFT_TRY(b.err);
    if (c->n_out > 1)
        c->out[1] = v;
    return group_norm(c, v);
}

/* -- Positions -------------------------------------------------------------------------------- */

/* As RotaryEmbedding of the default domain; positions are an offset or [batch, length]. */
weft_err weft_onnx_hook_ms_rotary(weft_onnx_call *c)
{
    weft_onnx_build b = {.c = c};
    int64_t interleaved, heads, dims, packed;
    double scale;
    WEFT_TRY(need(c, 4, 4));
    WEFT_TRY(weft_onnx__get_int(c, "interleaved", 0, &interleaved));
    WEFT_TRY(weft_onnx__get_int(c, "num_heads", 0, &heads));
    WEFT_TRY(weft_onnx__get_int(c, "rotary_embedding_dim", 0, &dims));
    WEFT_TRY(weft_onnx__get_int(c, "is_packed_batching", 0, &packed));
    WEFT_TRY(weft_onnx__get_float(c, "scale", 1, &scale));
    if (packed || scale != 1)
        return weft_onnx__fail(c, WEFT_ERR_UNSUP, "packed batches and a scale are not supported");
    const weft_ttype x = *weft_onnx__type(c, c->in[0]), cos = *weft_onnx__type(c, c->in[2]);
    const weft_ttype at = *weft_onnx__type(c, c->in[1]);
    if (x.rank < 3 || x.rank > 4 || cos.rank != 2 || at.rank < 1 || at.rank > 2)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "ranks %u, %u and %u", x.rank, at.rank, cos.rank);
    if (x.rank == 3 && heads == 0) {
        if (!weft_dim_is_const(x.dim[2]) || !weft_dim_is_const(cos.dim[1]) || cos.dim[1] < 1 ||
            x.dim[2] % (2 * cos.dim[1]) != 0 || dims)
            return weft_onnx__fail(c, WEFT_ERR_INPUT, "needs num_heads");
        heads = x.dim[2] / (2 * cos.dim[1]);
    }
    weft_val where = c->in[1];
    if (at.rank == 1) {
        weft_dim length = x.dim[x.rank == 3 ? 1 : 2];
        const weft_dim dim[2] = {x.dim[0], length};
        where = weft_onnx__make2(&b, WEFT_OP_ADD, where, weft_onnx__iota(&b, 0, length));
        where = weft_onnx__make_dims(&b, WEFT_OP_EXPAND, where, WEFT_ATTR_SHAPE, dim, 2);
    }
    const weft_attr attr[3] = {WEFT_ATTR_OF_INT(INTERLEAVED, interleaved),
                               WEFT_ATTR_OF_INT(NUM_HEADS, heads),
                               WEFT_ATTR_OF_INT(ROTARY_EMBEDDING_DIM, dims)};
    const weft_val in[4] = {c->in[0], c->in[2], c->in[3], where};
    return finish(&b, weft_onnx__make(&b, WEFT_OP_ROTARY_EMBEDDING, in, 4, attr, 3));
}
