/* Every merging strategy on random sets of siblings, with every relation between weights and every
 * finish: each model's answers in the joint graph are those of the model by itself. */
#include "base/arena.h"
#include "base/diag.h"
#include "base/str.h"
#include "ir/ir.h"
#include "passes/passes.h"
#include "tests/support/rand.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum {
    WIDTH = 32,
    LAYERS = 3,
    MODELS_MAX = 4,
    SIZE = WIDTH * WIDTH,
    WINDOW_MAX = 4, /* taps of a convolution for each channel */
    HEIGHT = 3,     /* its images: 3 x 2 */
};

static float uniform(uint64_t *seed)
{
    return (float)(rand_next(seed) % 2001) / 1000 - 1;
}

/* -- Siblings --------------------------------------------------------------------------------- */

typedef enum relation {
    EQUAL,
    LOW_RANK,
    TAPS,
    SCATTERED,
    FEATURES,
    SHUFFLED,
    RECTANGLE,
    NOTHING
} relation;

/* Models of LAYERS GEMMs; 4 bits of `shape` describe each layer. */
typedef struct family {
    bool conv;
    uint64_t shape;
} family;

enum { BIASED = 1, RESIDUAL = 2, RELU = 4, OTHER_FORM = 8 }; /* transposed; 1 x 1 */

static uint64_t layer_shape(const family *f, int layer)
{
    return f->shape >> (4 * layer);
}

/* Whether each model has a bias of its own. */
static bool has_own_bias(const family *f)
{
    return f->shape >> (4 * LAYERS + 1) & 1;
}

/* Whether the bias is the model's input. */
static bool adds_input(const family *f)
{
    return !f->conv && f->shape >> (4 * LAYERS + 2) & 1;
}

static uint32_t window_of(const family *f, int layer)
{
    return !f->conv || layer_shape(f, layer) & OTHER_FORM ? 1 : WINDOW_MAX;
}

/* Makes a weight [32 * window, 32] with a relation to `base`. */
static void make_sibling(const float *base, uint32_t window, relation how, uint64_t *seed,
                         float *out)
{
    float u[2][WIDTH * WINDOW_MAX], v[2][WIDTH];
    uint32_t shift = 1 + (uint32_t)(rand_next(seed) % (WIDTH - 1)), keep = 20;
    for (uint32_t k = 0; k < 2; k++) {
        for (uint32_t i = 0; i < WIDTH * window; i++)
            u[k][i] = uniform(seed);
        for (int i = 0; i < WIDTH; i++)
            v[k][i] = uniform(seed);
    }
    for (uint32_t r = 0; r < WIDTH * window; r++)
        for (uint32_t c = 0; c < WIDTH; c++) {
            float x = base[r * WIDTH + c], y = uniform(seed);
            uint32_t input = r / window;
            bool other = (how == TAPS && input % 8 == 3) || (how == FEATURES && c % 4 == 1) ||
                         (how == SCATTERED && (r * WIDTH + c) % 29 == shift % 29) ||
                         (how == RECTANGLE && (input >= keep || c >= keep)) || how == NOTHING;
            if (how == LOW_RANK)
                x += u[0][r] * v[0][c] + u[1][r] * v[1][c];
            if (how == SHUFFLED)
                x = base[r * WIDTH + (c + shift) % WIDTH];
            out[r * WIDTH + c] = other ? y : x;
        }
}

static void print_weight(weft_buf *text, const family *f, int model, int layer, const float *at)
{
    uint32_t window = window_of(f, layer), taps = WIDTH * window, k = window == 1 ? 1 : 2;
    bool by_feature = f->conv || layer_shape(f, layer) & OTHER_FORM;
    weft_buf_printf(text, "weight $m%dw%d : f32[%d,%d", model, layer, WIDTH, WIDTH);
    if (f->conv)
        weft_buf_printf(text, ",%u,%u", k, k);
    weft_buf_printf(text, "] = dense [");
    for (uint32_t i = 0; i < taps * WIDTH; i++) {
        weft_buf_printf(text, i ? ", " : "");
        weft_buf_put_f32(text, at[by_feature ? i % taps * WIDTH + i / taps : i]);
    }
    weft_buf_printf(text, "]\n");
}

static void print_type(weft_buf *text, const family *f, int model, bool halved)
{
    if (f->conv)
        weft_buf_printf(text, "f32[?b%d,%d,%d,2]", model, WIDTH, halved ? 2 : HEIGHT);
    else
        weft_buf_printf(text, "f32[?b%d,?s%d,%d]", model, model, WIDTH);
}

/* A GEMM with or without a bias, a residual and an activation. A convolution keeps the image size,
 * except that the last one, if it has no residual, has stride 2 along rows. */
static void print_gemm(weft_buf *text, const family *f, int model, int layer, bool again)
{
    uint64_t shape = layer_shape(f, layer);
    bool residual = shape & RESIDUAL, halves = f->conv && !residual && layer == LAYERS - 1;
    bool trans = again ? !(layer_shape(f, 0) & OTHER_FORM) : shape & OTHER_FORM;
    const char *steps = residual       ? "epilogue = [\"add i3 acc\", \"tanh acc\", \"mul acc s0\"]"
                        : shape & RELU ? "epilogue = [\"relu acc\"]"
                                       : "";
    const char *pads = window_of(f, layer) == 1 ? "pads = [0, 0, 0, 0]" : "pads = [0, 0, 1, 1]";
    const char *form = f->conv ? pads : trans ? "trans_b = 1" : "trans_b = 0";
    weft_buf_printf(text, "  %%%d : ", layer + 1);
    print_type(text, f, model, halves);
    weft_buf_printf(text, " = %s %%%d, $m%dw%d", f->conv ? "conv" : "matmul", layer, model,
                    again ? 0 : layer);
    if ((shape & BIASED || residual) && adds_input(f))
        weft_buf_printf(text, ", %%0");
    else if (shape & BIASED || residual)
        weft_buf_printf(text, ", $n%d", has_own_bias(f) ? model : 0);
    weft_buf_printf(text, "%s {%s", residual ? ", %0" : "", steps);
    weft_buf_printf(text, "%s%s%s}\n", *steps ? ", " : "", form,
                    halves ? ", strides = [2, 1]" : "");
}

/* All models have the same layers. The last layer may have the weight of the first one, transposed:
 * tied weights. */
static void print_graph(weft_buf *text, const family *f, int model)
{
    bool tied = !f->conv && f->shape >> (4 * LAYERS) & 1;
    weft_buf_printf(text, "graph @m%d (%%0 : ", model);
    print_type(text, f, model, false);
    weft_buf_printf(text, ") {\n  symbol ?b%d \"batch\"\n", model);
    if (!f->conv)
        weft_buf_printf(text, "  symbol ?s%d \"seq\"\n", model);
    for (int i = 0; i < LAYERS; i++)
        print_gemm(text, f, model, i, tied && i == LAYERS - 1);
    weft_buf_printf(text, "  return \"y\" %%%d, \"z\" %%1\n}\n", LAYERS);
}

static weft_module *make_siblings(bool conv, int n_model, relation how, uint64_t *seed,
                                  weft_diag *diag)
{
    static float weight[MODELS_MAX][LAYERS][SIZE * WINDOW_MAX];
    weft_buf text = {0};
    weft_module *m = NULL;
    const family f = {.conv = conv, .shape = rand_next(seed)};
    weft_buf_printf(&text, "wir 1 kernel\n");
    for (int i = 0; i < n_model; i++) {
        weft_buf_printf(&text, "symbol ?b%d = [1, 8]\n", i);
        if (!conv)
            weft_buf_printf(&text, "symbol ?s%d = [1, 4]\n", i);
    }
    for (int l = 0; l < LAYERS; l++)
        for (int k = 0; k < SIZE * WINDOW_MAX; k++)
            weight[0][l][k] = uniform(seed) / 4;
    for (int i = 0; i < n_model; i++)
        for (int l = 0; l < LAYERS; l++) {
            /* One layer has equal weights in all models, another in some. */
            bool equal = l == 1 || (l == 2 && rand_next(seed) % 2);
            if (i > 0)
                make_sibling(weight[0][l], window_of(&f, l), equal ? EQUAL : how, seed,
                             weight[i][l]);
            print_weight(&text, &f, i, l, weight[i][l]);
        }
    for (int i = 0; i < n_model; i++)
        weft_buf_printf(&text, "weight $n%d : f32[%d] = random %d\n", i, WIDTH, 99 + i);
    for (int i = 0; i < n_model; i++)
        print_graph(&text, &f, i);
    assert_false(text.failed);
    if (weft_module_parse(text.at, text.len, "siblings", NULL, diag, &m) != WEFT_ERR_OK)
        fail_msg("%s", weft_diag_at(diag, 0)->text);
    weft_buf_finish(&text);
    return m;
}

/* -- Comparison ------------------------------------------------------------------------------- */

/* A random input of a random size within the bounds. */
static weft_tensor make_input(const weft_graph *g, weft_arena *arena, uint64_t *seed)
{
    const weft_ttype *t = weft_val_ttype(weft_graph_module(g), weft_graph_input(g, 0));
    weft_tensor in = {.dtype = WEFT_DTYPE_F32, .rank = t->rank};
    for (uint32_t i = 0; i < t->rank; i++)
        in.dim[i] = weft_dim_is_const(t->dim[i]) ? t->dim[i] : 1 + (int64_t)(rand_next(seed) % 4);
    in.data = weft_arena_alloc(arena, weft_tensor_bytes(&in));
    for (int64_t i = 0; i < weft_tensor_numel(&in); i++)
        weft_tensor_set_f64(&in, i, uniform(seed));
    return in;
}

/* Equal up to 1e-5 of the largest element. */
static void expect_same(const weft_tensor *a, const weft_tensor *b, const char *what)
{
    double most = 0, apart = 0;
    assert_int_equal(a->rank, b->rank);
    assert_memory_equal(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim);
    for (int64_t i = 0; i < weft_tensor_numel(a); i++) {
        double x = weft_tensor_get_f64(a, i), d = fabs(x - weft_tensor_get_f64(b, i));
        most = fmax(most, fabs(x));
        apart = isnan(d) ? INFINITY : fmax(apart, d);
    }
    if (!(apart <= 1e-5 * most))
        fail_msg("%s: %g of %g", what, apart, most);
}

/* Compares the answers of `joint` with those of the models in `m`. */
static void compare(weft_module *m, weft_graph *joint, const char *what, weft_diag *diag,
                    uint64_t *seed)
{
    weft_arena *arena = weft_arena_create(0);
    weft_tensor in[MODELS_MAX], apart[2 * MODELS_MAX], out[2 * MODELS_MAX];
    uint32_t n = weft_graph_part_count(joint);
    for (uint32_t i = 0; i < n; i++) {
        weft_graph *g = weft_graph_find(m, weft_graph_part(joint, i)->model);
        in[i] = make_input(g, arena, seed);
        assert_int_equal(weft_graph_eval(g, &in[i], 1, arena, diag, &apart[2 * i], 2), WEFT_ERR_OK);
    }
    if (weft_graph_eval(joint, in, n, arena, diag, out, 2 * n) != WEFT_ERR_OK)
        fail_msg("%s: %s", what, weft_diag_at(diag, 0)->text);
    for (uint32_t i = 0; i < 2 * n; i++)
        expect_same(&apart[i], &out[i], what);
    weft_arena_destroy(arena);
}

static void merge(weft_module *m, const char *strategy, const char *target, weft_merge_log *log,
                  weft_diag *diag)
{
    const weft_pass *pass[] = {weft_pass_find("dedup"), weft_pass_find("merge-models"),
                               weft_pass_find("dce")};
    weft_run_options run = {
        .pass = {.merge_log = log, .target = target, .assignment = &weft_assignment_igraph},
        .verify = WEFT_VERIFY_EACH};
    run.pass.strategy = weft_merge_strategy_find(strategy);
    run.pass.merge = run.pass.strategy ? WEFT_MERGE_STRATEGY : WEFT_MERGE_AUTO;
    if (weft_passes_run(m, pass, 3, &run, diag) != WEFT_ERR_OK)
        fail_msg("%s: %s", strategy, weft_diag_at(diag, 0)->text);
}

/* Merges siblings with one relation and compares answers; returns for how many merge groups the
 * strategy was used. */
static uint32_t run_set(const char *strategy, bool conv, relation how, uint64_t seed,
                        weft_diag *diag)
{
    weft_arena *arena = weft_arena_create(0);
    int n_model = 2 + (int)(rand_next(&seed) % (MODELS_MAX - 1));
    weft_module *m = make_siblings(conv, n_model, how, &seed, diag);
    weft_merge_log log = {.arena = arena};
    uint32_t used = 0;
    merge(m, strategy, NULL, &log, diag);
    for (uint32_t i = 0; i < log.rows.len; i++)
        used += strcmp(log.rows.at[i].strategy, strategy) == 0;
    for (uint32_t i = (uint32_t)n_model; i < weft_graph_count(m); i++)
        compare(m, weft_graph_at(m, i), strategy, diag, &seed);
    weft_module_destroy(m);
    weft_arena_destroy(arena);
    return used;
}

/* `rounds` sets of siblings with the relation that the strategy is for, on which it must be used,
 * and some sets with each other relation. */
static void check_strategy(const char *strategy, bool conv, relation its_own)
{
    weft_diag *diag = weft_diag_create();
    uint32_t used = 0, rounds = RAND_ROUNDS(conv ? 8 : 20);
    for (uint64_t round = 0; round < rounds; round++)
        used += run_set(strategy, conv, its_own, round * 7919 + 1, diag);
    assert_true(used >= rounds);
    for (relation how = EQUAL; how <= NOTHING; how++)
        for (uint64_t round = 0; round < RAND_ROUNDS(conv ? 2u : 6u); round++)
            run_set(strategy, conv, how, round * 104729 + how, diag);
    weft_diag_destroy(diag);
}

static void check_both(const char *strategy, relation its_own)
{
    check_strategy(strategy, false, its_own);
    check_strategy(strategy, true, its_own);
}

static void test_merge_strategy__low_rank(void **state)
{
    (void)state;
    check_both("low_rank", LOW_RANK);
}

static uint32_t count_nodes(const weft_module *m, weft_op_id op)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < weft_graph_count(m); i++)
        WEFT_FOREACH_NODE (m, weft_graph_at(m, i), node)
            n += weft_node_op(m, node) == op;
    return n;
}

/* There is one node for each GEMM; if all models have the same bias, that node applies the finish
 * too. */
static void test_merge_strategy__low_rank_is_one_node(void **state)
{
    (void)state;
    weft_diag *diag = weft_diag_create();
    uint32_t alike = 0;
    for (uint64_t round = 1; round < 20; round++) {
        weft_arena *arena = weft_arena_create(0);
        uint64_t seed = round, copy = round;
        const family f = {.shape = rand_next(&copy)};
        weft_module *m = make_siblings(false, 3, LOW_RANK, &seed, diag);
        weft_merge_log log = {.arena = arena};
        uint32_t used = 0;
        merge(m, "low_rank", NULL, &log, diag);
        for (uint32_t i = 0; i < log.rows.len; i++)
            used += strcmp(log.rows.at[i].strategy, "low_rank") == 0;
        assert_int_equal(count_nodes(m, WEFT_OP_LOW_RANK_MATMUL), used);
        if (!has_own_bias(&f) && !adds_input(&f))
            assert_int_equal(count_nodes(m, WEFT_OP_EW), 0);
        alike += used > 0 && !has_own_bias(&f) && !adds_input(&f);
        weft_module_destroy(m);
        weft_arena_destroy(arena);
    }
    assert_true(alike > 2 && alike < 19);
    weft_diag_destroy(diag);
}

/* GPUs have no kernel for the operator. */
static void test_merge_strategy__scattered(void **state)
{
    (void)state;
    check_strategy("scattered", false, SCATTERED);
    weft_diag *diag = weft_diag_create();
    for (int gpu = 0; gpu < 2; gpu++) {
        weft_arena *arena = weft_arena_create(0);
        uint64_t seed = 3;
        weft_module *m = make_siblings(false, 3, SCATTERED, &seed, diag);
        weft_merge_log log = {.arena = arena};
        merge(m, "scattered", gpu ? "sm_90" : "cpu", &log, diag);
        assert_true((count_nodes(m, WEFT_OP_PATCHED_MATMUL) > 0) == !gpu);
        weft_module_destroy(m);
        weft_arena_destroy(arena);
    }
    weft_diag_destroy(diag);
}

static void test_merge_strategy__sparse(void **state)
{
    (void)state;
    check_both("sparse", TAPS);
}

static void test_merge_strategy__classes(void **state)
{
    (void)state;
    check_both("classes", FEATURES);
    check_both("classes", SHUFFLED);
}

static void test_merge_strategy__union_stack(void **state)
{
    (void)state;
    check_both("union_stack", FEATURES);
    check_both("union_stack", SHUFFLED);
}

static void test_merge_strategy__batched(void **state)
{
    (void)state;
    check_both("batched", NOTHING);
}

/* The maximum of rows must not leave a model out: by its bounds the second model never has fewer
 * rows than the first, but its part may be empty. */
static void test_merge_strategy__batched_with_an_empty_part(void **state)
{
    static const char *const bounds[] = {"[1, 8]", "[2, 8]"};
    (void)state;
    for (int outdone = 0; outdone < 2; outdone++) {
        weft_diag *diag = weft_diag_create();
        weft_arena *arena = weft_arena_create(0);
        weft_merge_log log = {.arena = arena};
        weft_module *m = NULL;
        weft_buf text = {0};
        weft_buf_printf(&text, "wir 1 kernel\nsymbol ?b = [1, 2]\nsymbol ?c = %s\n",
                        bounds[outdone]);
        for (int i = 0; i < 2; i++)
            weft_buf_printf(&text,
                            "weight $w%d : f32[32,32] = random %d\n"
                            "graph @m%d (%%0 : f32[?%c,32]) {\n  symbol ?%c \"batch\"\n"
                            "  %%1 : f32[?%c,32] = matmul %%0, $w%d\n  return \"y\" %%1\n}\n",
                            i, i + 1, i, 'b' + i, 'b' + i, 'b' + i, i);
        assert_false(text.failed);
        assert_int_equal(weft_module_parse(text.at, text.len, "text", NULL, diag, &m), WEFT_ERR_OK);
        merge(m, "batched", NULL, &log, diag);
        assert_int_equal(weft_graph_count(m), outdone ? 2 : 3);
        assert_int_equal(log.rows.len, 1);
        assert_string_equal(log.rows.at[0].strategy, outdone ? "none" : "batched");
        weft_module_destroy(m);
        weft_buf_finish(&text);
        weft_arena_destroy(arena);
        weft_diag_destroy(diag);
    }
}

static void test_merge_strategy__rectangles(void **state)
{
    (void)state;
    check_both("rectangle_compact", RECTANGLE);
    check_both("rectangle_compact", SHUFFLED);
    check_both("rectangle_literal", RECTANGLE);
}

/* -- Attention -------------------------------------------------------------------------------- */

/* Two attention models whose four weights have one relation. */
static void print_attention(weft_buf *text, relation how, uint64_t seed)
{
    static const family plain;
    float weight[2][SIZE];
    weft_buf_printf(text, "wir 1 graph\n");
    for (int i = 0; i < 2; i++)
        weft_buf_printf(text, "symbol ?b%d = [1, 8]\nsymbol ?s%d = [1, 4]\n", i, i);
    for (int layer = 0; layer < 4; layer++) {
        for (int k = 0; k < SIZE; k++)
            weight[0][k] = uniform(&seed) / 4;
        make_sibling(weight[0], 1, how, &seed, weight[1]);
        for (int i = 0; i < 2; i++)
            print_weight(text, &plain, i, layer, weight[i]);
    }
    for (int i = 0; i < 2; i++) {
        char type[32];
        snprintf(type, sizeof type, "f32[?b%d,?s%d,%d]", i, i, WIDTH);
        weft_buf_printf(text,
                        "graph @m%d (%%0 : %s) {\n  symbol ?b%d \"batch\"\n  symbol ?s%d \"seq\"\n",
                        i, type, i, i);
        for (int layer = 0; layer < 3; layer++)
            weft_buf_printf(text, "  %%%d : %s = matmul %%0, $m%dw%d\n", layer + 1, type, i, layer);
        weft_buf_printf(
            text,
            "  %%4 : %s = attention %%1, %%2, %%3 {head_dim = 8, heads = 4, scale = 0.5}\n"
            "  %%5 : %s = matmul %%4, $m%dw3\n  return \"y\" %%5, \"z\" %%4\n}\n",
            type, type, i);
    }
}

/* The GEMMs of an attention, which the passes fuse to one, and the GEMM after it are joined by the
 * strategy; the answers are those of the models before all passes. */
static void run_attention(const char *strategy, relation how, uint64_t seed)
{
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    weft_module *models = NULL, *m = NULL;
    weft_buf text = {0};
    weft_merge_log log = {.arena = arena};
    size_t n = 0;
    const weft_pass *const *pass = weft_pipeline("cpu", &n);
    weft_run_options run = {.pass = {.merge = WEFT_MERGE_STRATEGY,
                                     .merge_log = &log,
                                     .assignment = &weft_assignment_igraph},
                            .verify = WEFT_VERIFY_EACH,
                            .stop_after = "merge-models"};
    run.pass.strategy = weft_merge_strategy_find(strategy);
    print_attention(&text, how, seed);
    assert_false(text.failed);
    if (weft_module_parse(text.at, text.len, "attention", NULL, diag, &models) != WEFT_ERR_OK ||
        weft_module_parse(text.at, text.len, "attention", NULL, diag, &m) != WEFT_ERR_OK ||
        weft_passes_run(m, pass, n, &run, diag) != WEFT_ERR_OK)
        fail_msg("%s: %s", strategy, weft_diag_at(diag, 0)->text);
    assert_int_equal(weft_graph_count(m), 3);
    assert_int_equal(log.rows.len, 2);
    assert_int_equal(log.rows.at[0].weight_bytes, 2 * 3 * SIZE * sizeof(float));
    for (uint32_t i = 0; i < 2; i++)
        assert_string_equal(log.rows.at[i].strategy, strategy);
    compare(models, weft_graph_at(m, 2), strategy, diag, &seed);
    weft_module_destroy(m);
    weft_module_destroy(models);
    weft_buf_finish(&text);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
}

static void test_merge_strategy__attention(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 4; seed++) {
        run_attention("low_rank", LOW_RANK, seed);
        run_attention("sparse", TAPS, seed);
        run_attention("classes", FEATURES, seed);
        run_attention("union_stack", FEATURES, seed);
        run_attention("batched", NOTHING, seed);
    }
}

/* -- Odd weights ------------------------------------------------------------------------------ */

/* Two siblings, the second with a NaN in its weights: the first gives the same answers as before.
 */
static void run_poisoned(const weft_merge_strategy *how, const char *number, weft_diag *diag)
{
    static float weight[SIZE];
    uint64_t seed = 5;
    weft_buf text = {0};
    weft_module *m = NULL;
    weft_arena *arena = weft_arena_create(0);
    const weft_pass *pass = weft_pass_find("merge-models");
    weft_run_options run = {.pass = {.merge = WEFT_MERGE_STRATEGY,
                                     .strategy = how,
                                     .assignment = &weft_assignment_igraph}};
    weft_tensor in[2], apart[2], out[4];
    weft_buf_printf(&text, "wir 1 kernel\nsymbol ?b = [1, 8]\nsymbol ?c = [1, 8]\n"
                           "weight $k : f32[32,32] = random 1\n");
    for (int k = 0; k < SIZE; k++)
        weight[k] = uniform(&seed);
    for (int i = 0; i < 2; i++) {
        weft_buf_printf(&text, "weight $w%d : f32[32,32] = dense [", i);
        for (int k = 0; k < SIZE; k++) {
            weft_buf_printf(&text, k ? ", " : "");
            if (i == 1 && k == 5 * WIDTH + 7)
                weft_buf_printf(&text, "%s", number);
            else
                weft_buf_put_f32(&text, weight[k]);
        }
        weft_buf_printf(&text, "]\n");
    }
    for (int i = 0; i < 2; i++)
        weft_buf_printf(
            &text,
            "graph @m%d (%%0 : f32[?%c,32]) {\n  symbol ?%c \"batch\"\n"
            "  %%1 : f32[?%c,32] = matmul %%0, $k\n"
            "  %%2 : f32[?%c,32] = matmul %%1, $w%d\n  return \"y\" %%2, \"z\" %%1\n}\n",
            i, 'b' + i, 'b' + i, 'b' + i, 'b' + i, i);
    if (weft_module_parse(text.at, text.len, "poisoned", NULL, diag, &m) != WEFT_ERR_OK ||
        weft_passes_run(m, &pass, 1, &run, diag) != WEFT_ERR_OK)
        fail_msg("%s", weft_diag_at(diag, 0)->text);
    for (uint32_t i = 0; i < 2; i++)
        in[i] = make_input(weft_graph_at(m, i), arena, &seed);
    assert_int_equal(weft_graph_eval(weft_graph_at(m, 0), in, 1, arena, diag, apart, 2),
                     WEFT_ERR_OK);
    if (weft_graph_count(m) == 3) {
        assert_int_equal(weft_graph_eval(weft_graph_at(m, 2), in, 2, arena, diag, out, 4),
                         WEFT_ERR_OK);
        expect_same(&apart[0], &out[0], number);
        expect_same(&apart[1], &out[1], number);
    }
    weft_module_destroy(m);
    weft_arena_destroy(arena);
    weft_buf_finish(&text);
}

/* Corner cases for every strategy: the joint graphs are legal and give the same answers. */
static void run_text(const char *text, const char *what, uint64_t seed)
{
    weft_diag *diag = weft_diag_create();
    for (size_t i = 0; weft_merge_strategy_at(i); i++) {
        weft_module *m = NULL;
        const weft_pass *pass[] = {weft_pass_find("dedup"), weft_pass_find("merge-models"),
                                   weft_pass_find("dce")};
        weft_run_options run = {.verify = WEFT_VERIFY_EACH};
        run.pass.merge = WEFT_MERGE_STRATEGY;
        run.pass.strategy = weft_merge_strategy_at(i);
        run.pass.assignment = &weft_assignment_igraph;
        if (weft_module_parse(text, strlen(text), what, NULL, diag, &m) != WEFT_ERR_OK ||
            weft_passes_run(m, pass, 3, &run, diag) != WEFT_ERR_OK)
            fail_msg("%s: %s", what, weft_diag_at(diag, 0)->text);
        for (uint32_t k = 0; k < weft_graph_count(m); k++)
            if (weft_graph_part_count(weft_graph_at(m, k)) > 0)
                compare(m, weft_graph_at(m, k), what, diag, &seed);
        weft_module_destroy(m);
    }
    weft_diag_destroy(diag);
}

/* Two models whose first GEMMs have the same weight and whose second GEMMs have weights `w` and
 * `v`. */
static void run_pair(const char *w, const char *v, const char *w_type, const char *v_type,
                     const char *attrs)
{
    weft_buf text = {0};
    weft_buf_printf(&text,
                    "wir 1 kernel\nsymbol ?b = [1, 8]\nsymbol ?s = [1, 4]\n"
                    "symbol ?c = [1, 8]\nsymbol ?t = [1, 4]\n"
                    "weight $k : f32[32,32] = random 1\nweight $w : %s = %s\n"
                    "weight $v : %s = %s\n",
                    w_type, w, v_type, v);
    for (int i = 0; i < 2; i++) {
        const char *type = i ? v_type : w_type, *cols = strchr(type, ',') + 1;
        char b = i ? 'c' : 'b', s = i ? 't' : 's';
        weft_buf_printf(&text,
                        "graph @m%d (%%0 : f32[?%c,?%c,32]) {\n  symbol ?%c \"batch\"\n"
                        "  symbol ?%c \"seq\"\n  %%1 : f32[?%c,?%c,32] = matmul %%0, $k\n"
                        "  %%2 : f32[?%c,?%c,%s = matmul %%1, $%c {%s}\n"
                        "  return \"y\" %%2, \"z\" %%1\n}\n",
                        i, b, s, b, s, b, s, b, s, cols, i ? 'v' : 'w', attrs);
    }
    assert_false(text.failed);
    run_text(text.at, w, 7);
    weft_buf_finish(&text);
}

/* Two models whose second convolutions have equal or different weights, on images of these sizes.
 */
static void run_images(const char *const *image, const char *weight, const char *result,
                       const char *attrs, bool equal)
{
    weft_buf text = {0};
    weft_buf_printf(&text,
                    "wir 1 kernel\nsymbol ?b = [1, 4]\nsymbol ?c = [1, 4]\n"
                    "weight $k : f32[8,8,1,1] = random 1\n"
                    "weight $w0 : %s = random 2\nweight $w1 : %s = random %d\n",
                    weight, weight, equal ? 2 : 3);
    for (int i = 0; i < 2; i++)
        weft_buf_printf(&text,
                        "graph @m%d (%%0 : f32[?%c,8,%s]) {\n  symbol ?%c \"batch\"\n"
                        "  %%1 : f32[?%c,8,%s] = conv %%0, $k\n"
                        "  %%2 : f32[?%c,%s] = conv %%1, $w%d {%s}\n"
                        "  return \"y\" %%2, \"z\" %%1\n}\n",
                        i, 'b' + i, image[i], 'b' + i, 'b' + i, image[i], 'b' + i, result, i,
                        attrs);
    assert_false(text.failed);
    run_text(text.at, attrs, 9);
    weft_buf_finish(&text);
}

static void test_merge_strategy__odd_images(void **state)
{
    static const char *const alike[] = {"8,8", "8,8"}, *const others[] = {"7,7", "8,8"};
    (void)state;
    for (int equal = 0; equal < 2; equal++) {
        /* Results of one size from images of two sizes. */
        run_images(others, "f32[8,8,2,2]", "8,4,4", "pads = [0, 0, 1, 1], strides = [2, 2]", equal);
        run_images(alike, "f32[8,8,3,3]", "8,4,2", "dilations = [2, 3], strides = [1, 1]", equal);
        run_images(alike, "f32[8,8,3,3]", "8,8,8", "auto_pad = \"SAME_UPPER\"", equal);
        run_images(alike, "f32[8,1,3,3]", "8,6,6", "group = 8", equal);
        run_images(alike, "f32[8,2,1,1]", "8,8,8", "group = 4", equal);
        run_images(alike, "f32[8,8,1,1]", "8,8,8", "epilogue = [\"add acc i0\"]", equal);
    }
}

static void test_merge_strategy__odd_weights(void **state)
{
    static const char plain[] = "trans_a = 0";
    (void)state;
    run_pair("random 2", "random 3", "f32[32,8]", "f32[32,12]",
             plain); /* other numbers of features */
    run_pair("random 2", "random 2", "f32[32,8]", "f32[32,8]", plain); /* two names of one weight */
    run_pair("random 2", "splat 0", "f32[32,1]", "f32[32,1]", plain);
    run_pair("splat 0", "splat 0", "f32[32,16]", "f32[32,32]", plain);
    run_pair("splat 0.5", "splat 0.5", "f32[32,8]", "f32[32,12]",
             plain); /* all features in common */
    run_pair("splat 1", "splat 1e30", "f32[32,32]", "f32[32,32]", plain);
    run_pair("splat 1e-30", "splat 1", "f32[32,32]", "f32[32,32]", plain);
    run_pair("random 2", "random 3", "f32[32,32]", "f32[32,32]", "alpha = 0.5");
    run_pair("splat 0.5", "splat 0.5", "f32[32,8]", "f32[32,12]", "alpha = 0.5");
    run_pair("random 2", "random 3", "f32[32,32]", "f32[32,32]", "epilogue = [\"add acc i0\"]");
}

/* A NaN in a model's weight never reaches the other model, whatever the strategy. */
static void test_merge_strategy__numbers_that_are_none(void **state)
{
    static const char *const bad[] = {"nan", "inf", "-inf"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        weft_diag *diag = weft_diag_create();
        for (size_t k = 0; weft_merge_strategy_at(k); k++)
            run_poisoned(weft_merge_strategy_at(k), bad[i], diag);
        weft_diag_destroy(diag);
    }
}

static void test_merge_strategy__auto_keeps_answers(void **state)
{
    weft_diag *diag = weft_diag_create();
    (void)state;
    for (relation how = EQUAL; how <= NOTHING; how++)
        for (uint64_t round = 0; round < 10; round++)
            run_set("auto", round % 3 == 0, how, round * 104729 + how, diag);
    weft_diag_destroy(diag);
}

/* Base plus low-rank factors pay for few rows only: the joint graph has a limit. */
static void test_merge_strategy__auto_has_a_limit(void **state)
{
    enum { WIDE = 256 };
    static float weight[WIDE * WIDE];
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    weft_buf text = {0};
    weft_module *m = NULL;
    weft_merge_log log = {.arena = arena};
    const weft_pass *pass = weft_pass_find("merge-models");
    weft_run_options run = {.pass = {.merge = WEFT_MERGE_AUTO,
                                     .merge_log = &log,
                                     .assignment = &weft_assignment_igraph}};
    uint64_t seed = 3;
    (void)state;
    weft_buf_printf(&text, "wir 1 kernel\nsymbol ?b = [1, 8]\nsymbol ?s = [1, 512]\n"
                           "symbol ?c = [1, 8]\nsymbol ?t = [1, 512]\n");
    for (int k = 0; k < WIDE * WIDE; k++)
        weight[k] = uniform(&seed);
    for (int i = 0; i < 2; i++) {
        float u[WIDE], v[WIDE];
        for (int k = 0; k < WIDE; k++) {
            u[k] = uniform(&seed);
            v[k] = uniform(&seed) * (float)i;
        }
        weft_buf_printf(&text, "weight $w%d : f32[%d,%d] = dense [", i, WIDE, WIDE);
        for (int k = 0; k < WIDE * WIDE; k++) {
            weft_buf_printf(&text, k ? ", " : "");
            weft_buf_put_f32(&text, weight[k] + u[k / WIDE] * v[k % WIDE]);
        }
        weft_buf_printf(&text, "]\n");
    }
    weft_buf_printf(&text, "weight $k : f32[256,256] = random 1\n");
    for (int i = 0; i < 2; i++) {
        char b = i ? 'c' : 'b', s = i ? 't' : 's';
        weft_buf_printf(&text,
                        "graph @m%d (%%0 : f32[?%c,?%c,256]) {\n  symbol ?%c \"batch\"\n"
                        "  symbol ?%c \"seq\"\n  %%1 : f32[?%c,?%c,256] = matmul %%0, $k\n"
                        "  %%2 : f32[?%c,?%c,256] = matmul %%1, $w%d\n  return \"y\" %%2\n}\n",
                        i, b, s, b, s, b, s, b, s, i);
    }
    if (weft_module_parse(text.at, text.len, "limit", NULL, diag, &m) != WEFT_ERR_OK ||
        weft_passes_run(m, &pass, 1, &run, diag) != WEFT_ERR_OK)
        fail_msg("%s", weft_diag_at(diag, 0)->text);
    assert_int_equal(weft_graph_count(m), 3);
    assert_int_equal(log.rows.len, 2);
    assert_string_equal(log.rows.at[1].strategy, "low_rank");
    assert_true(log.rows.at[1].gain_small > 1.1 && log.rows.at[1].gain_large < 1);
    uint64_t limit = weft_graph_limit(weft_graph_at(m, 2)), one = 2 * WIDE;
    assert_true(limit >= one && limit < 8 * 128 * one);
    weft_module_destroy(m);
    weft_buf_finish(&text);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
}

static void test_merge_strategy__table_has_names(void **state)
{
    size_t n = 0;
    (void)state;
    for (; weft_merge_strategy_at(n); n++) {
        const char *name = weft_merge_strategy_name(weft_merge_strategy_at(n));
        assert_ptr_equal(weft_merge_strategy_find(name), weft_merge_strategy_at(n));
        assert_true(*weft_merge_strategy_brief(weft_merge_strategy_at(n)) != 0);
    }
    assert_true(n >= 10);
    assert_null(weft_merge_strategy_find("wishful"));
    assert_null(weft_merge_strategy_at(n + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merge_strategy__table_has_names),
        cmocka_unit_test(test_merge_strategy__low_rank),
        cmocka_unit_test(test_merge_strategy__low_rank_is_one_node),
        cmocka_unit_test(test_merge_strategy__scattered),
        cmocka_unit_test(test_merge_strategy__sparse),
        cmocka_unit_test(test_merge_strategy__classes),
        cmocka_unit_test(test_merge_strategy__union_stack),
        cmocka_unit_test(test_merge_strategy__batched),
        cmocka_unit_test(test_merge_strategy__batched_with_an_empty_part),
        cmocka_unit_test(test_merge_strategy__rectangles),
        cmocka_unit_test(test_merge_strategy__attention),
        cmocka_unit_test(test_merge_strategy__odd_weights),
        cmocka_unit_test(test_merge_strategy__odd_images),
        cmocka_unit_test(test_merge_strategy__numbers_that_are_none),
        cmocka_unit_test(test_merge_strategy__auto_has_a_limit),
        cmocka_unit_test(test_merge_strategy__auto_keeps_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
