/* Hooks of onnx_ops_ml.def: preprocessing and linear models of classic machine learning, expanded
 * into other operators. Operands of any number type are computed in f32, as the results are. */
#include "frontend/onnx_ml_int.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* -- Operands --------------------------------------------------------------------------------- */

static weft_val only_operand(weft_onnx_build *k)
{
    if (k->c->n_in != 1 || !k->c->in[0].i) {
        weft_onnx__stop(k, WEFT_ERR_INPUT, "%u inputs, expected 1", k->c->n_in);
        return (weft_val){0};
    }
    return k->c->in[0];
}

weft_val weft_ml__f32(weft_onnx_build *k)
{
    return weft_onnx__cast(k, only_operand(k), WEFT_DTYPE_F32);
}

weft_val weft_ml__rows(weft_onnx_build *k, bool keep_f64)
{
    weft_val x = only_operand(k);
    if (!keep_f64 || weft_onnx__dtype_of(k, x) != WEFT_DTYPE_F64)
        x = weft_onnx__cast(k, x, WEFT_DTYPE_F32);
    if (k->err == WEFT_ERR_OK && weft_onnx__of(k, x)->rank == 1)
        x = weft_onnx__unsqueeze(k, x, 0);
    if (k->err == WEFT_ERR_OK && weft_onnx__of(k, x)->rank != 2)
        weft_onnx__stop(k, WEFT_ERR_INPUT, "an input of rank %u, expected rows of features",
                        weft_onnx__of(k, x)->rank);
    return x;
}

weft_val weft_ml__vector(weft_onnx_build *k, const float *x, uint32_t n)
{
    return weft_onnx__f32s(k, x, &(int64_t){n}, 1);
}

/* One number for all features, or one for each. */
static weft_val per_feature(weft_onnx_build *k, const char *name, const float *x, uint32_t n,
                            weft_val rows)
{
    const weft_ttype *t = weft_onnx__of(k, rows);
    weft_dim features = t->rank ? t->dim[t->rank - 1] : 1;
    if (n == 0 || (n != 1 && weft_dim_is_const(features) && features != (weft_dim)n))
        weft_onnx__stop(k, WEFT_ERR_INPUT,
                        "attribute \"%s\" has %u numbers, expected 1 or one a feature", name, n);
    return weft_onnx__f32s(k, x, &(int64_t){n}, n > 1);
}

static void read_floats(weft_onnx_build *k, const char *name, const float **out, uint32_t *n)
{
    *out = NULL;
    *n = 0;
    if (k->err == WEFT_ERR_OK)
        k->err = weft_onnx__get_floats(k->c, name, out, n);
}

static void read_ints(weft_onnx_build *k, const char *name, const int64_t **out, uint32_t *n)
{
    *out = NULL;
    *n = 0;
    if (k->err == WEFT_ERR_OK)
        k->err = weft_onnx__get_ints(k->c, name, out, n);
}

/* The result, unless there was an error; all attributes must have been read. */
static weft_err finish(weft_onnx_build *k, weft_val result)
{
    k->c->out[0] = result;
    WEFT_TRY(k->err);
    return weft_onnx__no_more_attrs(k->c);
}

/* -- Preprocessing ---------------------------------------------------------------------------- */

/* scaler(x) ==> (x - offset) * scale */
weft_err weft_onnx_hook_ml_scaler(weft_onnx_call *c)
{
    weft_onnx_build k = {.c = c};
    const float *offset, *scale;
    uint32_t n_offset, n_scale;
    weft_val x = weft_ml__f32(&k);
    read_floats(&k, "offset", &offset, &n_offset);
    read_floats(&k, "scale", &scale, &n_scale);
    WEFT_TRY(k.err);
    x = weft_onnx__make2(&k, WEFT_OP_SUB, x, per_feature(&k, "offset", offset, n_offset, x));
    x = weft_onnx__make2(&k, WEFT_OP_MUL, x, per_feature(&k, "scale", scale, n_scale, x));
    return finish(&k, x);
}

/* x / norm, rows of zeros unchanged. The norm MAX is the signed maximum. */
weft_err weft_onnx_hook_ml_normalizer(weft_onnx_call *c)
{
    weft_onnx_build k = {.c = c};
    const char *norm;
    weft_val x = weft_ml__rows(&k, false);
    WEFT_TRY(k.err);
    WEFT_TRY(weft_onnx__get_str(c, "norm", "MAX", &norm));
    bool is_max = strcmp(norm, "MAX") == 0, is_l1 = strcmp(norm, "L1") == 0;
    if (!is_max && !is_l1 && strcmp(norm, "L2") != 0)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "attribute \"norm\" is \"%s\"", norm);
    weft_op_id op = is_max ? WEFT_OP_REDUCE_MAX : is_l1 ? WEFT_OP_REDUCE_L1 : WEFT_OP_REDUCE_L2;
    weft_val size = weft_onnx__reduce(&k, op, x, 1);
    weft_val zero = weft_onnx__make2(&k, WEFT_OP_EQUAL, size, weft_onnx__number(&k, size, 0));
    size = weft_onnx__make3(&k, WEFT_OP_WHERE, zero, weft_onnx__number(&k, size, 1), size);
    return finish(&k, weft_onnx__make2(&k, WEFT_OP_DIV, x, size));
}

/* x > threshold */
weft_err weft_onnx_hook_ml_binarizer(weft_onnx_call *c)
{
    weft_onnx_build k = {.c = c};
    double threshold;
    weft_val x = weft_ml__f32(&k);
    WEFT_TRY(weft_onnx__get_float(c, "threshold", 0.0, &threshold));
    x = weft_onnx__make2(&k, WEFT_OP_GREATER, x, weft_onnx__number(&k, x, threshold));
    return finish(&k, weft_onnx__cast(&k, x, WEFT_DTYPE_F32));
}

/* The elements that Imputer replaces, as bool. */
static weft_val find_missing(weft_onnx_build *k, weft_val x, bool is_int)
{
    int64_t whole = 0;
    double real = 0;
    if (is_int)
        k->err = weft_onnx__get_int(k->c, "replaced_value_int64", 0, &whole);
    else
        k->err = weft_onnx__get_float(k->c, "replaced_value_float", 0.0, &real);
    weft_onnx__ignore(k->c, is_int ? "replaced_value_float" : "replaced_value_int64");
    if (!is_int && isnan(real))
        return weft_onnx__make1(k, WEFT_OP_IS_NAN, x);
    weft_val value = is_int ? weft_onnx__i64s(k, &whole, NULL, 0) : weft_onnx__number(k, x, real);
    return weft_onnx__make2(k, WEFT_OP_EQUAL, x,
                            weft_onnx__cast(k, value, weft_onnx__dtype_of(k, x)));
}

/* where(x is the replaced value, imputed, x) */
weft_err weft_onnx_hook_ml_imputer(weft_onnx_call *c)
{
    weft_onnx_build k = {.c = c};
    const float *reals;
    const int64_t *wholes;
    uint32_t n_real, n_whole;
    weft_val x = only_operand(&k);
    read_floats(&k, "imputed_value_floats", &reals, &n_real);
    read_ints(&k, "imputed_value_int64s", &wholes, &n_whole);
    WEFT_TRY(k.err);
    bool is_int = weft_dtype_is_int(weft_onnx__dtype_of(&k, x));
    uint32_t n = is_int ? n_whole : n_real;
    const weft_ttype *t = weft_onnx__of(&k, x);
    weft_dim features = t->rank ? t->dim[t->rank - 1] : 1;
    if (n == 0 || (n != 1 && weft_dim_is_const(features) && features != (weft_dim)n))
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%u imputed values, expected 1 or one a feature",
                               n);
    weft_val missing = find_missing(&k, x, is_int);
    int64_t dim = n;
    weft_val value =
        is_int ? weft_onnx__i64s(&k, wholes, &dim, n > 1) : weft_onnx__f32s(&k, reals, &dim, n > 1);
    value = weft_onnx__cast(&k, value, weft_onnx__dtype_of(&k, x));
    return finish(&k, weft_onnx__make3(&k, WEFT_OP_WHERE, missing, value, x));
}

/* Columns of the last axis. */
weft_err weft_onnx_hook_ml_array_feature_extractor(weft_onnx_call *c)
{
    weft_onnx_build k = {.c = c};
    if (c->n_in != 2 || !c->in[0].i || !c->in[1].i)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%u inputs, expected 2", c->n_in);
    weft_val x = c->in[0], index = c->in[1];
    if (weft_onnx__of(&k, x)->rank == 0)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "an input of rank 0");
    if (weft_onnx__of(&k, index)->rank != 1) {
        weft_dim n = weft_ttype_numel(weft_module_dims(c->cx->m), weft_onnx__of(&k, index));
        index = weft_onnx__reshape(&k, index, &n, 1);
    }
    if (weft_onnx__of(&k, x)->rank == 1)
        x = weft_onnx__unsqueeze(&k, x, 0);
    weft_attr last = WEFT_ATTR_OF_INT(AXIS, -1);
    return finish(&k, weft_onnx__make(&k, WEFT_OP_GATHER, (weft_val[]){x, index}, 2, &last, 1));
}

/* An input of FeatureVectorizer with exactly `want` columns. */
static weft_val fit_columns(weft_onnx_build *k, weft_val x, int64_t want)
{
    x = weft_onnx__cast(k, x, WEFT_DTYPE_F32);
    if (k->err == WEFT_ERR_OK && weft_onnx__of(k, x)->rank == 1)
        x = weft_onnx__unsqueeze(k, x, 0);
    if (k->err != WEFT_ERR_OK)
        return x;
    const weft_ttype *t = weft_onnx__of(k, x);
    if (t->rank != 2 || !weft_dim_is_const(t->dim[1]) || want < 1 || want > INT32_MAX)
        weft_onnx__stop(k, WEFT_ERR_UNSUP, "an input that is no matrix of constant width");
    else if (want < t->dim[1])
        x = weft_onnx__slice(k, x, 1, 0, want);
    else if (want > t->dim[1])
        x = weft_onnx__make_dims(k, WEFT_OP_PAD, x, WEFT_ATTR_PADS,
                                 (weft_dim[]){0, 0, 0, want - t->dim[1]}, 4);
    return x;
}

/* Concatenates the inputs, each cut or padded with zeros to its width. */
weft_err weft_onnx_hook_ml_feature_vectorizer(weft_onnx_call *c)
{
    weft_onnx_build k = {.c = c};
    const int64_t *width;
    uint32_t n;
    read_ints(&k, "inputdimensions", &width, &n);
    WEFT_TRY(k.err);
    if (n != c->n_in || n == 0)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%u widths for %u inputs", n, c->n_in);
    weft_val *part = weft_arena_array(c->cx->arena, n, sizeof *part);
    for (uint32_t i = 0; i < n; i++) {
        if (!c->in[i].i)
            return weft_onnx__fail(c, WEFT_ERR_INPUT, "input %u is missing", i);
        part[i] = fit_columns(&k, c->in[i], width[i]);
    }
    return finish(&k, weft_onnx__concat(&k, part, n, 1));
}

/* A sequence of maps from labels to numbers ==> the numbers, a column for each label. */
weft_err weft_onnx_hook_ml_zip_map(weft_onnx_call *c)
{
    weft_onnx_build k = {.c = c};
    weft_val x = weft_ml__rows(&k, false);
    weft_ml_labels labels = weft_ml__read_labels(&k, "classlabels_int64s");
    WEFT_TRY(k.err);
    weft_dim columns = weft_onnx__of(&k, x)->dim[1];
    if (weft_dim_is_const(columns) && columns != (weft_dim)labels.n)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%u labels for %lld columns", labels.n,
                               (long long)columns);
    weft_diag_warn(c->cx->diag, c->where,
                   "%s: the result is a tensor with a column for each of the %u labels, in their "
                   "order, instead of a sequence of maps",
                   c->op_type, labels.n);
    return finish(&k, weft_onnx__make1(&k, WEFT_OP_IDENTITY, x));
}

/* Operators on strings or maps alone. */
weft_err weft_onnx_hook_ml_strings(weft_onnx_call *c)
{
    return weft_onnx__fail(c, WEFT_ERR_UNSUP,
                           "strings and maps are not supported: convert the model with inputs of "
                           "numbers, encoded before");
}

/* -- Scores to results ------------------------------------------------------------------------ */

weft_ml_post weft_ml__read_post(weft_onnx_build *k)
{
    static const char *const name[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
    const char *text = "NONE";
    if (k->err == WEFT_ERR_OK)
        k->err = weft_onnx__get_str(k->c, "post_transform", "NONE", &text);
    for (int i = 0; i < 5; i++)
        if (strcmp(name[i], text) == 0)
            return (weft_ml_post)i;
    weft_onnx__stop(k, WEFT_ERR_INPUT, "attribute \"post_transform\" is \"%s\"", text);
    return WEFT_ML_NONE;
}

/* The softmax of the elements that are not 0; the others are scaled, and remain about 0. */
static weft_val softmax_zero(weft_onnx_build *k, weft_val x)
{
    weft_val zero = weft_onnx__number(k, x, 0),
             most = weft_onnx__reduce(k, WEFT_OP_REDUCE_MAX, x, 1);
    weft_val least = weft_onnx__number(k, x, (double)1e-7F);
    weft_val far = weft_onnx__make2(k, WEFT_OP_GREATER, weft_onnx__make1(k, WEFT_OP_ABS, x), least);
    weft_val e = weft_onnx__make1(k, WEFT_OP_EXP, weft_onnx__make2(k, WEFT_OP_SUB, x, most));
    weft_val counted = weft_onnx__make3(k, WEFT_OP_WHERE, far, e, zero);
    weft_val sum = weft_onnx__reduce(k, WEFT_OP_REDUCE_SUM, counted, 1);
    weft_val scale = weft_onnx__make1(k, WEFT_OP_EXP, weft_onnx__make1(k, WEFT_OP_NEG, most));
    weft_val scaled = weft_onnx__make2(k, WEFT_OP_MUL, x, scale);
    return weft_onnx__make2(k, WEFT_OP_DIV, weft_onnx__make3(k, WEFT_OP_WHERE, far, e, scaled),
                            sum);
}

/* sqrt(2) erfinv(2 p - 1), the inverse by S. Winitzki's approximation (2008) with a = 0.147; the
 * digits are those of onnxruntime. */
static weft_val probit(weft_onnx_build *k, weft_val p)
{
    static const double a = 0.147, pi = 3.14159;
    weft_val one = weft_onnx__number(k, p, 1), two = weft_onnx__number(k, p, 2);
    weft_val u = weft_onnx__make2(k, WEFT_OP_SUB, weft_onnx__make2(k, WEFT_OP_MUL, p, two), one);
    weft_val sum = weft_onnx__make2(k, WEFT_OP_ADD, one, u);
    weft_val v = weft_onnx__make2(k, WEFT_OP_MUL, weft_onnx__make2(k, WEFT_OP_SUB, one, u), sum);
    weft_val log = weft_onnx__make1(k, WEFT_OP_LOG, v);
    weft_val half = weft_onnx__make2(k, WEFT_OP_MUL, log, weft_onnx__number(k, p, 0.5));
    weft_val b = weft_onnx__make2(k, WEFT_OP_ADD, half, weft_onnx__number(k, p, 2 / (pi * a)));
    weft_val c = weft_onnx__make2(k, WEFT_OP_MUL, log, weft_onnx__number(k, p, 1 / a));
    weft_val root = weft_onnx__make1(
        k, WEFT_OP_SQRT,
        weft_onnx__make2(k, WEFT_OP_SUB, weft_onnx__make2(k, WEFT_OP_MUL, b, b), c));
    weft_val size = weft_onnx__make1(k, WEFT_OP_SQRT, weft_onnx__make2(k, WEFT_OP_SUB, root, b));
    size = weft_onnx__make2(k, WEFT_OP_MUL, size, weft_onnx__number(k, p, sqrt(2)));
    weft_val below = weft_onnx__make2(k, WEFT_OP_LESS, u, weft_onnx__number(k, p, 0));
    return weft_onnx__make3(k, WEFT_OP_WHERE, below, weft_onnx__make1(k, WEFT_OP_NEG, size), size);
}

weft_val weft_ml__transform(weft_onnx_build *k, weft_val x, weft_ml_post post)
{
    switch (post) {
    case WEFT_ML_SOFTMAX:
        return weft_onnx__softmax(k, x, 1);
    case WEFT_ML_LOGISTIC:
        return weft_onnx__make1(k, WEFT_OP_SIGMOID, x);
    case WEFT_ML_SOFTMAX_ZERO:
        return softmax_zero(k, x);
    case WEFT_ML_PROBIT:
        return probit(k, x);
    default:
        return x;
    }
}

weft_val weft_ml__first_maximum(weft_onnx_build *k, weft_val x)
{
    weft_attr attr[2] = {WEFT_ATTR_OF_INT(AXIS, 1), WEFT_ATTR_OF_INT(KEEPDIMS, 0)};
    return weft_onnx__make(k, WEFT_OP_ARG_MAX, &x, 1, attr, 2);
}

/* -- Labels ----------------------------------------------------------------------------------- */

weft_ml_labels weft_ml__read_labels(weft_onnx_build *k, const char *ints)
{
    weft_ml_labels labels = {0};
    uint32_t n_string = 0;
    read_ints(k, ints, &labels.value, &labels.n);
    if (k->err == WEFT_ERR_OK)
        k->err = weft_onnx__count_strings(k->c, "classlabels_strings", &n_string);
    if (n_string && labels.n)
        weft_onnx__stop(k, WEFT_ERR_INPUT, "labels both of strings and of integers");
    if (n_string)
        labels = (weft_ml_labels){.n = n_string};
    return labels;
}

void weft_ml__put_labels(weft_onnx_build *k, const weft_ml_labels *labels, weft_val index)
{
    int64_t n = labels->n;
    bool same = labels->value != NULL;
    for (int64_t i = 0; i < n && same; i++)
        same = labels->value[i] == i;
    if (!labels->value)
        k->c->out[0] = weft_onnx__string_result();
    else if (same)
        k->c->out[0] = index;
    else
        k->c->out[0] =
            weft_onnx__make2(k, WEFT_OP_GATHER, weft_onnx__i64s(k, labels->value, &n, 1), index);
}

void weft_ml__put_label_of(weft_onnx_build *k, const weft_ml_labels *labels, weft_val condition)
{
    if (!labels->value) {
        k->c->out[0] = weft_onnx__string_result();
        return;
    }
    weft_val no = weft_onnx__i64s(k, &labels->value[0], NULL, 0);
    weft_val yes = weft_onnx__i64s(k, &labels->value[1], NULL, 0);
    k->c->out[0] = weft_onnx__make3(k, WEFT_OP_WHERE, condition, yes, no);
}

/* -- Linear models ---------------------------------------------------------------------------- */

/* x coefficients' + intercepts, coefficients [targets, features] by rows. */
static weft_val linear_scores(weft_onnx_build *k, weft_val x, int64_t targets)
{
    const float *w, *b;
    uint32_t n_w, n_b;
    read_floats(k, "coefficients", &w, &n_w);
    read_floats(k, "intercepts", &b, &n_b);
    if (k->err != WEFT_ERR_OK)
        return x;
    if (targets < 1 || n_w == 0 || n_w % targets != 0 || (n_b != 0 && n_b != targets)) {
        weft_onnx__stop(k, WEFT_ERR_INPUT, "%u coefficients and %u intercepts for %lld targets",
                        n_w, n_b, (long long)targets);
        return x;
    }
    int64_t dim[2] = {targets, n_w / targets};
    weft_val y = weft_onnx__matmul(k, x, weft_onnx__f32s(k, w, dim, 2), true, 1.0);
    return n_b ? weft_onnx__make2(k, WEFT_OP_ADD, y, weft_ml__vector(k, b, n_b)) : y;
}

weft_err weft_onnx_hook_ml_linear_regressor(weft_onnx_call *c)
{
    weft_onnx_build k = {.c = c};
    int64_t targets;
    weft_val x = weft_ml__rows(&k, false);
    WEFT_TRY(weft_onnx__get_int(c, "targets", 1, &targets));
    weft_ml_post post = weft_ml__read_post(&k);
    x = linear_scores(&k, x, targets);
    if (targets > 1 || post == WEFT_ML_PROBIT) /* onnxruntime: of one target only PROBIT */
        x = weft_ml__transform(&k, x, post);
    return finish(&k, x);
}

/* Scores of one row of coefficients for two labels. */
static weft_val second_class(weft_onnx_build *k, weft_val s, weft_ml_post post)
{
    if (post == WEFT_ML_PROBIT)
        weft_onnx__stop(k, WEFT_ERR_UNSUP, "PROBIT of two classes is not supported");
    if (post == WEFT_ML_LOGISTIC)
        s = weft_onnx__make1(k, WEFT_OP_SIGMOID, s);
    weft_val other = weft_onnx__make2(k, WEFT_OP_SUB, weft_onnx__number(k, s, 1), s);
    return weft_onnx__concat(k, (weft_val[]){other, s}, 2, 1);
}

weft_err weft_onnx_hook_ml_linear_classifier(weft_onnx_call *c)
{
    weft_onnx_build k = {.c = c};
    const float *b;
    uint32_t n_b;
    weft_val x = weft_ml__rows(&k, false);
    weft_ml_post post = weft_ml__read_post(&k);
    weft_ml_labels labels = weft_ml__read_labels(&k, "classlabels_ints");
    read_floats(&k, "intercepts", &b, &n_b);
    weft_onnx__ignore(c, "multi_class");
    WEFT_TRY(k.err);
    uint32_t rows = n_b ? n_b : labels.n;
    bool binary = rows == 1 && labels.n == 2;
    if (!binary && rows != labels.n)
        return weft_onnx__fail(c, WEFT_ERR_UNSUP, "%u labels for %u rows of coefficients", labels.n,
                               rows);
    weft_val s = linear_scores(&k, x, rows);
    if (binary) {
        weft_val flat = weft_onnx__squeeze(&k, s, 1);
        weft_ml__put_label_of(
            &k, &labels, weft_onnx__make2(&k, WEFT_OP_GREATER, flat, weft_onnx__number(&k, s, 0)));
        s = second_class(&k, s, post);
    } else {
        weft_ml__put_labels(&k, &labels, weft_ml__first_maximum(&k, s));
        s = weft_ml__transform(&k, s, post);
    }
    if (c->n_out > 1)
        c->out[1] = s;
    return finish(&k, c->out[0]);
}
