/* Hooks of onnx_ops_ml.def: support vector machines.
 *
 * K(x, y) of rows x and support vectors y is a GEMM or a matrix of squared distances, and some
 * element-wise steps. What follows is a GEMM with the coefficients: of a classifier with a column
 * for each pair of classes. */
#include "frontend/onnx_ml_int.h"

#include <string.h>

/* Elements of the matrix [support vectors, pairs of classes]. */
enum { PAIR_ELEMENTS_MAX = 1 << 26 };

typedef struct svm {
    weft_onnx_build k;
    weft_ml_post post;
    const char *kernel;
    double gamma, coef0, degree;
    const float *vector, *coefficient, *rho, *prob_a, *prob_b;
    uint32_t n_vector, n_coefficient, n_rho, n_prob_a, n_prob_b; /* numbers in the lists */
    int64_t supports, features;
} svm;

static void read_list(svm *s, const char *name, const float **out, uint32_t *n)
{
    *out = NULL;
    *n = 0;
    if (s->k.err == WEFT_ERR_OK)
        s->k.err = weft_onnx__get_floats(s->k.c, name, out, n);
}

/* What both operators have. */
static void read_svm(svm *s)
{
    const float *params;
    uint32_t n;
    s->kernel = "LINEAR";
    s->post = weft_ml__read_post(&s->k);
    read_list(s, "support_vectors", &s->vector, &s->n_vector);
    read_list(s, "coefficients", &s->coefficient, &s->n_coefficient);
    read_list(s, "rho", &s->rho, &s->n_rho);
    read_list(s, "kernel_params", &params, &n);
    if (s->k.err == WEFT_ERR_OK)
        s->k.err = weft_onnx__get_str(s->k.c, "kernel_type", "LINEAR", &s->kernel);
    if (n != 0 && n != 3)
        weft_onnx__stop(&s->k, WEFT_ERR_INPUT, "%u kernel parameters, expected 3", n);
    if (s->k.err == WEFT_ERR_OK && n == 3) {
        s->gamma = (double)params[0];
        s->coef0 = (double)params[1];
        s->degree = (double)params[2];
    }
    if (s->k.err == WEFT_ERR_OK && s->n_rho == 0)
        weft_onnx__stop(&s->k, WEFT_ERR_INPUT, "attribute \"rho\" is missing");
}

/* vectors' lengths from their number. */
static void set_supports(svm *s, int64_t supports)
{
    s->supports = supports;
    if (supports < 1 || supports > s->n_vector || s->n_vector % supports != 0)
        weft_onnx__stop(&s->k, WEFT_ERR_INPUT, "%u numbers of %lld support vectors", s->n_vector,
                        (long long)supports);
    else
        s->features = s->n_vector / supports;
}

static weft_val times(svm *s, weft_val x, double by)
{
    return weft_onnx__make2(&s->k, WEFT_OP_MUL, x, weft_onnx__number(&s->k, x, by));
}

static weft_val plus(svm *s, weft_val x, double by)
{
    return weft_onnx__make2(&s->k, WEFT_OP_ADD, x, weft_onnx__number(&s->k, x, by));
}

/* K(x, y) of rows x and vectors y, [rows, vectors]. */
static weft_val kernel_of(svm *s, weft_val x, weft_val y)
{
    weft_onnx_build *k = &s->k;
    if (strcmp(s->kernel, "LINEAR") == 0)
        return weft_onnx__matmul(k, x, y, true, 1.0);
    if (strcmp(s->kernel, "RBF") == 0) {
        weft_val d = weft_onnx__make2(k, WEFT_OP_SQUARED_DISTANCE, x, y);
        return weft_onnx__make1(k, WEFT_OP_EXP, times(s, d, -s->gamma));
    }
    bool poly = strcmp(s->kernel, "POLY") == 0;
    if (!poly && strcmp(s->kernel, "SIGMOID") != 0)
        weft_onnx__stop(k, WEFT_ERR_INPUT, "attribute \"kernel_type\" is \"%s\"", s->kernel);
    weft_val d = plus(s, times(s, weft_onnx__matmul(k, x, y, true, 1.0), s->gamma), s->coef0);
    if (!poly)
        return weft_onnx__make1(k, WEFT_OP_TANH, d);
    return weft_onnx__make2(k, WEFT_OP_POW, d, weft_onnx__number(k, d, s->degree));
}

static weft_val vectors_of(svm *s)
{
    int64_t dim[2] = {s->supports, s->features};
    return weft_onnx__f32s(&s->k, s->vector, dim, 2);
}

/* -- Regressor -------------------------------------------------------------------------------- */

weft_err weft_onnx_hook_ml_svm_regressor(weft_onnx_call *c)
{
    svm s = {.k = {.c = c}};
    weft_onnx_build *k = &s.k;
    int64_t supports, one_class;
    weft_val x = weft_ml__rows(k, false), y;
    read_svm(&s);
    WEFT_TRY(k->err);
    WEFT_TRY(weft_onnx__get_int(c, "n_supports", 0, &supports));
    WEFT_TRY(weft_onnx__get_int(c, "one_class", 0, &one_class));
    if (supports > 0) {
        set_supports(&s, supports);
        if (s.n_coefficient != supports)
            weft_onnx__stop(k, WEFT_ERR_INPUT, "%u coefficients of %lld support vectors",
                            s.n_coefficient, (long long)supports);
        WEFT_TRY(k->err);
        int64_t dim[2] = {supports, 1};
        weft_val coefficients = weft_onnx__f32s(k, s.coefficient, dim, 2);
        y = weft_onnx__matmul(k, kernel_of(&s, x, vectors_of(&s)), coefficients, false, 1.0);
    } else {
        int64_t dim[2] = {1, s.n_coefficient};
        y = kernel_of(&s, x, weft_onnx__f32s(k, s.coefficient, dim, 2));
    }
    y = plus(&s, y, (double)s.rho[0]);
    if (one_class) {
        weft_val above = weft_onnx__make2(k, WEFT_OP_GREATER, y, weft_onnx__number(k, y, 0));
        weft_val no = weft_onnx__number(k, y, -1), yes = weft_onnx__number(k, y, 1);
        y = weft_onnx__make3(k, WEFT_OP_WHERE, above, yes, no);
    } else if (s.post == WEFT_ML_PROBIT) {
        y = weft_ml__transform(k, y, s.post);
    }
    c->out[0] = y;
    WEFT_TRY(k->err);
    return weft_onnx__no_more_attrs(c);
}

/* -- Classifier ------------------------------------------------------------------------------- */

/* Support vectors of each class, in the order of the classes. */
typedef struct class_sizes {
    const int64_t *n;
    uint32_t classes;
    int64_t pairs;
} class_sizes;

/* [supports, pairs]: of the pair (i, j) the vectors of class i have the coefficients of row j - 1,
 * those of class j the coefficients of row i. */
static weft_val pair_coefficients(svm *s, const class_sizes *z)
{
    weft_arena *arena = s->k.c->cx->arena;
    float *w = weft_arena_array(arena, (size_t)(s->supports * z->pairs), sizeof *w);
    int64_t *first = weft_arena_array(arena, z->classes, sizeof *first);
    for (uint32_t i = 1; i < z->classes; i++)
        first[i] = first[i - 1] + z->n[i - 1];
    int64_t pair = 0;
    for (uint32_t i = 0; i < z->classes; i++)
        for (uint32_t j = i + 1; j < z->classes; j++, pair++) {
            for (int64_t v = first[i]; v < first[i] + z->n[i]; v++)
                w[v * z->pairs + pair] = s->coefficient[(int64_t)(j - 1) * s->supports + v];
            for (int64_t v = first[j]; v < first[j] + z->n[j]; v++)
                w[v * z->pairs + pair] = s->coefficient[(int64_t)i * s->supports + v];
        }
    int64_t dim[2] = {s->supports, z->pairs};
    return weft_onnx__f32s(&s->k, w, dim, 2);
}

/* The class with most votes, the first of several: a vote for class i of a pair (i, j) if its
 * score is above 0, else for j. */
static weft_val count_votes(svm *s, const class_sizes *z, weft_val score)
{
    weft_onnx_build *k = &s->k;
    float *by = weft_arena_array(k->c->cx->arena, (size_t)(z->pairs * z->classes), sizeof *by);
    float *base = weft_arena_array(k->c->cx->arena, z->classes, sizeof *base);
    int64_t pair = 0;
    for (uint32_t i = 0; i < z->classes; i++)
        for (uint32_t j = i + 1; j < z->classes; j++, pair++) {
            by[pair * z->classes + i] = 1;
            by[pair * z->classes + j] = -1;
            base[j] += 1;
        }
    int64_t dim[2] = {z->pairs, z->classes};
    weft_val won = weft_onnx__make2(k, WEFT_OP_GREATER, score, weft_onnx__number(k, score, 0));
    won = weft_onnx__cast(k, won, WEFT_DTYPE_F32);
    weft_val votes = weft_onnx__matmul(k, won, weft_onnx__f32s(k, by, dim, 2), false, 1.0);
    votes = weft_onnx__make2(k, WEFT_OP_ADD, votes, weft_ml__vector(k, base, z->classes));
    return weft_ml__first_maximum(k, votes);
}

/* Probabilities of the classes from 1 / (1 + exp(a s + b)) of the pairs. */
static weft_val probabilities(svm *s, const class_sizes *z, weft_val score)
{
    weft_onnx_build *k = &s->k;
    if (s->n_prob_a != z->pairs || s->n_prob_b != z->pairs)
        weft_onnx__stop(k, WEFT_ERR_INPUT, "%u and %u of prob_a and prob_b for %lld pairs",
                        s->n_prob_a, s->n_prob_b, (long long)z->pairs);
    if (k->err != WEFT_ERR_OK)
        return score;
    weft_val p =
        weft_onnx__make2(k, WEFT_OP_MUL, score, weft_ml__vector(k, s->prob_a, s->n_prob_a));
    p = weft_onnx__make2(k, WEFT_OP_ADD, p, weft_ml__vector(k, s->prob_b, s->n_prob_b));
    p = weft_onnx__make1(k, WEFT_OP_SIGMOID, p);
    p = weft_onnx__make2(k, WEFT_OP_SUB, weft_onnx__number(k, p, 1), p);
    weft_attr clip[2] = {WEFT_ATTR_OF_FLOAT(MIN, (double)1e-7F),
                         WEFT_ATTR_OF_FLOAT(MAX, (double)(1 - 1e-7F))};
    p = weft_onnx__make(k, WEFT_OP_CLIP, &p, 1, clip, 2);
    weft_attr classes = WEFT_ATTR_OF_INT(CLASSES, z->classes);
    return weft_onnx__make(k, WEFT_OP_PAIRWISE_COUPLING, &p, 1, &classes, 1);
}

static void check_classes(svm *s, const class_sizes *z, uint32_t n_label)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < z->classes; i++) {
        if (z->n[i] < 0 || z->n[i] > s->n_vector)
            weft_onnx__stop(&s->k, WEFT_ERR_INPUT, "%lld support vectors of a class",
                            (long long)z->n[i]);
        sum += s->k.err == WEFT_ERR_OK ? z->n[i] : 0;
    }
    if (s->k.err == WEFT_ERR_OK)
        set_supports(s, sum);
    if (z->classes < 2 || n_label != z->classes)
        weft_onnx__stop(&s->k, WEFT_ERR_INPUT, "%u labels for %u classes", n_label, z->classes);
    if (s->k.err != WEFT_ERR_OK)
        return;
    if ((int64_t)s->n_coefficient != (z->classes - 1) * s->supports || s->n_rho != z->pairs)
        weft_onnx__stop(&s->k, WEFT_ERR_INPUT, "%u coefficients and %u of rho for %u classes",
                        s->n_coefficient, s->n_rho, z->classes);
    if (z->pairs * s->supports > PAIR_ELEMENTS_MAX || z->pairs * z->classes > PAIR_ELEMENTS_MAX)
        weft_onnx__stop(&s->k, WEFT_ERR_UNSUP, "%u classes with %lld support vectors are too many",
                        z->classes, (long long)s->supports);
}

/* Scores of two classes: [-s, s] of the only pair, whose class 0 has s > 0. */
static weft_val two_scores(svm *s, weft_val score)
{
    weft_onnx_build *k = &s->k;
    weft_val both[2] = {weft_onnx__make1(k, WEFT_OP_NEG, score), score};
    score = weft_onnx__concat(k, both, 2, 1);
    return s->post == WEFT_ML_LOGISTIC ? weft_onnx__make1(k, WEFT_OP_SIGMOID, score) : score;
}

weft_err weft_onnx_hook_ml_svm_classifier(weft_onnx_call *c)
{
    svm s = {.k = {.c = c}};
    weft_onnx_build *k = &s.k;
    class_sizes z = {0};
    weft_val x = weft_ml__rows(k, false);
    weft_ml_labels labels = weft_ml__read_labels(k, "classlabels_ints");
    read_svm(&s);
    read_list(&s, "prob_a", &s.prob_a, &s.n_prob_a);
    read_list(&s, "prob_b", &s.prob_b, &s.n_prob_b);
    WEFT_TRY(k->err);
    WEFT_TRY(weft_onnx__get_ints(c, "vectors_per_class", &z.n, &z.classes));
    if (s.n_vector == 0 || z.classes == 0)
        return weft_onnx__fail(c, WEFT_ERR_UNSUP,
                               "a classifier without support vectors is not supported: convert it "
                               "as a linear one");
    z.pairs = (int64_t)z.classes * (z.classes - 1) / 2;
    check_classes(&s, &z, labels.n);
    WEFT_TRY(k->err);
    weft_val coefficients = pair_coefficients(&s, &z);
    weft_val score =
        weft_onnx__matmul(k, kernel_of(&s, x, vectors_of(&s)), coefficients, false, 1.0);
    score = weft_onnx__make2(k, WEFT_OP_ADD, score, weft_ml__vector(k, s.rho, s.n_rho));
    weft_ml__put_labels(k, &labels, count_votes(&s, &z, score));
    bool known = s.n_prob_a > 0;
    if (known)
        score = probabilities(&s, &z, score);
    if (!known && z.classes == 2)
        score = two_scores(&s, score);
    else
        score = weft_ml__transform(k, score, s.post);
    if (c->n_out > 1)
        c->out[1] = score;
    WEFT_TRY(k->err);
    return weft_onnx__no_more_attrs(c);
}
