/* The beam search: its prediction is never worse than that of the greedy choice (beam width 1),
 * equals that of a practically unbounded beam, and is better than the greedy one where keeping
 * activations concatenated across columns pays. */
#include "base/diag.h"
#include "base/str.h"
#include "passes/merge/merge_int.h"
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

enum { MODELS_MAX = 5, LAYERS_MAX = 7, UNBOUNDED = 1 << 10 };

/* -- Models ----------------------------------------------------------------------------------- */

/* Models of GEMMs by [width, width], layer after layer; in layer l, model i has the weight of model
 * weight[l][i]. The operand of a GEMM and the nodes after it are the same in all models. */
typedef struct family {
    int n_model, n_layer, width;
    int weight[LAYERS_MAX][MODELS_MAX];
    int from[LAYERS_MAX]; /* the layer whose result is its operand; -1: the input */
    bool light[LAYERS_MAX], sum[LAYERS_MAX];
} family;

static void print_model(weft_buf *text, const family *f, int model)
{
    char type[32];
    int at = 0, result[LAYERS_MAX];
    snprintf(type, sizeof type, "f32[?b%d,%d]", model, f->width);
    weft_buf_printf(text, "graph @m%d (%%0 : %s) {\n  symbol ?b%d \"batch\"\n", model, type, model);
    for (int l = 0; l < f->n_layer; l++) {
        int x = f->from[l] < 0 ? 0 : result[f->from[l]];
        weft_buf_printf(text, "  %%%d : %s = matmul %%%d, $w%d_%d\n", at + 1, type, x, l,
                        f->weight[l][model]);
        at++;
        if (f->light[l]) {
            weft_buf_printf(text, "  %%%d : %s = ew %%%d {steps = [\"tanh i0\"]}\n", at + 1, type,
                            at);
            at++;
        }
        if (f->sum[l]) {
            weft_buf_printf(text, "  %%%d : %s = ew %%%d, %%%d {steps = [\"add i0 i1\"]}\n", at + 1,
                            type, at, x);
            at++;
        }
        result[l] = at;
    }
    weft_buf_printf(text, "  return \"y\" %%%d", at);
    for (int l = 0; l + 1 < f->n_layer; l++)
        weft_buf_printf(text, ", \"y%d\" %%%d", l, result[l]);
    weft_buf_puts(text, "\n}\n");
}

static weft_module *make_module(const family *f, weft_diag *diag)
{
    weft_buf text = {0};
    weft_module *m = NULL;
    weft_buf_puts(&text, "wir 1 kernel\n");
    for (int i = 0; i < f->n_model; i++)
        weft_buf_printf(&text, "symbol ?b%d = [1, 8]\n", i);
    for (int l = 0; l < f->n_layer; l++)
        for (int i = 0; i < f->n_model; i++)
            weft_buf_printf(&text, "weight $w%d_%d : f32[%d,%d] = random %d\n", l, i, f->width,
                            f->width, 100 * l + i + 1);
    for (int i = 0; i < f->n_model; i++)
        print_model(&text, f, i);
    assert_false(text.failed);
    if (weft_module_parse(text.at, text.len, "family", NULL, diag, &m) != WEFT_ERR_OK)
        fail_msg("%s in\n%s", weft_diag_at(diag, 0)->text, text.at);
    weft_buf_finish(&text);
    return m;
}

static void draw_family(uint64_t *seed, family *f)
{
    *f = (family){.n_model = 2 + (int)(rand_next(seed) % (MODELS_MAX - 1)),
                  .n_layer = 2 + (int)(rand_next(seed) % (LAYERS_MAX - 1)),
                  .width = 32 << rand_next(seed) % 3};
    for (int l = 0; l < f->n_layer; l++) {
        f->from[l] = rand_next(seed) % 4 ? l - 1 : (int)(rand_next(seed) % (l + 1u)) - 1;
        f->light[l] = rand_next(seed) % 2;
        f->sum[l] = rand_next(seed) % 3 == 0;
        for (int i = 0; i < f->n_model; i++)
            f->weight[l][i] = (int)(rand_next(seed) % 2 ? 0 : rand_next(seed) % (i + 1u));
    }
}

/* -- Outcomes --------------------------------------------------------------------------------- */

typedef struct outcome {
    double saved_us;
    uint32_t copied;   /* predicted: operands that must be copied to be concatenated */
    uint32_t moved;    /* concatenations and slices that the planner could not place */
    bool is_different; /* GEMMs by unequal weights are joined, which makes further copies */
} outcome;

static uint32_t count_moves(weft_graph *g, weft_arena *arena)
{
    const weft_dimpool *pool = weft_module_dims(weft_graph_module(g));
    int64_t symbol[MODELS_MAX] = {1, 1, 1, 1, 1};
    weft_places places;
    uint32_t n = 0;
    weft_graph_place_start(g, arena, &places);
    assert_true(weft_graph_place(g, pool, symbol, MODELS_MAX, &places));
    for (uint32_t i = 0; i < places.n_launch; i++) {
        const weft_place_launch *l = &places.launch[i];
        n += (l->op == WEFT_OP_CONCAT && !l->joined) || (l->op == WEFT_OP_SLICE && !l->view);
    }
    return n;
}

/* `width`: the beam's. */
static outcome search(const family *f, uint32_t width)
{
    static const weft_pass_options options = {.merge = WEFT_MERGE_AUTO,
                                              .assignment = &weft_assignment_igraph};
    weft_diag *diag = weft_diag_create();
    weft_module *m = make_module(f, diag);
    weft_passctx cx = {.options = &options, .scratch = weft_arena_create(0), .diag = diag};
    weft_graph *model[MODELS_MAX];
    outcome out = {0};
    uint32_t gemm_columns = 0;
    for (int i = 0; i < f->n_model; i++)
        model[i] = weft_graph_at(m, (uint32_t)i);
    weft_merger g = weft_merge__open(&cx, model, (uint32_t)f->n_model);
    weft_beam__search(&g, width, &out.saved_us, &gemm_columns);
    for (uint32_t i = 0; i < g.groups.len; i++) {
        const weft_merge_group *p = &g.groups.at[i];
        for (uint64_t left = p->copied; left; left &= left - 1)
            out.copied++;
        out.is_different = out.is_different || (p->together && !p->strategy->equal_only);
    }
    weft_merge__build(&g);
    out.moved = count_moves(g.joint, cx.scratch);
    weft_arena_destroy(cx.scratch);
    weft_module_destroy(m);
    weft_diag_destroy(diag);
    return out;
}

/* -- Tests ------------------------------------------------------------------------------------ */

/* The default beam is as good as an unbounded one; greedy choice is sometimes worse; and the
 * predicted copies are those that the memory planner makes. */
static void test_beam_search__never_worse_than_column_by_column(void **state)
{
    uint32_t better = 0, checked = 0;
    (void)state;
    for (uint64_t round = 0; round < RAND_ROUNDS(150); round++) {
        uint64_t seed = round * 7919 + 3;
        family f;
        draw_family(&seed, &f);
        outcome greedy = search(&f, 1), chosen = search(&f, 0), best = search(&f, UNBOUNDED);
        double rounding = 1e-9 * fabs(best.saved_us);
        if (!(chosen.saved_us >= greedy.saved_us - rounding && greedy.saved_us >= 0))
            fail_msg("round %llu: %g us saved, %g column by column", (unsigned long long)round,
                     chosen.saved_us, greedy.saved_us);
        if (!(fabs(chosen.saved_us - best.saved_us) <= rounding))
            fail_msg("round %llu: %g us saved of %g", (unsigned long long)round, chosen.saved_us,
                     best.saved_us);
        better += chosen.saved_us > greedy.saved_us + rounding;
        if (chosen.is_different)
            continue;
        assert_int_equal(chosen.moved, chosen.copied);
        checked++;
    }
    print_message("%u of %d better than column by column, copies of %u checked\n", better,
                  RAND_ROUNDS(150), checked);
    assert_true(better >= RAND_ROUNDS(10) && checked >= RAND_ROUNDS(50));
}

/* a and c have the weights of even layers in common, all three models those of odd layers. The
 * greedy choice joins the nodes after each GEMM as the GEMM, and copies a and c back and forth. */
static void test_beam_search__groups_in_turn(void **state)
{
    family f = {.n_model = 3, .n_layer = 6, .width = 32};
    (void)state;
    for (int l = 0; l < f.n_layer; l++) {
        f.from[l] = l - 1;
        f.light[l] = true;
        f.weight[l][1] = l % 2 == 0;
    }
    outcome greedy = search(&f, 1), chosen = search(&f, 0);
    assert_true(chosen.saved_us > greedy.saved_us);
    assert_int_equal(greedy.moved, 6);
    assert_int_equal(chosen.moved, 3);
}

/* a and b are adjacent in the joint value of three models: they are taken as a slice, and their
 * result is concatenated with c without a copy. */
static void test_beam_search__a_run_of_models_is_not_copied(void **state)
{
    family f = {.n_model = 3, .n_layer = 6, .width = 32};
    (void)state;
    for (int l = 0; l < f.n_layer; l++) {
        f.from[l] = l - 1;
        f.light[l] = true;
        f.weight[l][2] = l % 2;
    }
    outcome chosen = search(&f, 0);
    assert_int_equal(chosen.copied, 1); /* the inputs */
    assert_int_equal(chosen.moved, 1);
}

/* The time of a GEMM that arithmetic bounds is predicted for the element type it is computed in. */
static double time_gemm(weft_dtype precision, bool tf32)
{
    const weft_pass_options options = {.target = "sm_90",
                                       .assignment = &weft_assignment_igraph,
                                       .precision = precision,
                                       .exact_f32 = !tf32};
    family f = {.n_model = 2, .n_layer = 1, .width = 2048, .from = {-1}};
    weft_diag *diag = weft_diag_create();
    weft_module *m = make_module(&f, diag);
    weft_passctx cx = {.options = &options, .scratch = weft_arena_create(0), .diag = diag};
    weft_graph *model[] = {weft_graph_at(m, 0), weft_graph_at(m, 1)};
    weft_merger g = weft_merge__open(&cx, model, 2);
    weft_merge_sizes at;
    double us = 0;
    assert_true(weft_merge__sizes(&g, 1, 1, &at));
    weft_node n = weft_merge__first(&g, &g.columns.at[0]);
    assert_true(weft_merge__elements_us(&at, m, n, 2048 * 2048, 2048 * 2048, &us));
    weft_arena_destroy(cx.scratch);
    weft_module_destroy(m);
    weft_diag_destroy(diag);
    return us;
}

static void test_beam_search__predicts_for_the_precision(void **state)
{
    (void)state;
    double f32_us = time_gemm(WEFT_DTYPE_F32, false);
    double tf32_us = time_gemm(WEFT_DTYPE_F32, true);
    double half_us = time_gemm(WEFT_DTYPE_BF16, false);
    assert_true(f32_us == time_gemm(WEFT_DTYPE_NONE, false));
    assert_true(f32_us > 2 * tf32_us && tf32_us > 1.5 * half_us);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_beam_search__never_worse_than_column_by_column),
        cmocka_unit_test(test_beam_search__groups_in_turn),
        cmocka_unit_test(test_beam_search__a_run_of_models_is_not_copied),
        cmocka_unit_test(test_beam_search__predicts_for_the_precision),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
