/* Ensembles of decision trees: which arrays are sound, and the CPU's kernel against a walk written
 * here. */
#include "ops/trees.h"
#include "tests/support/rand.h"
#include "tests/support/session_world.h"

/* -- Random ensembles ------------------------------------------------------------------------- */

enum { NODES = 4000, TREES = 200, ENTRIES = 8000 };

typedef struct forest {
    bool wide;
    int32_t tree[TREES + 1];
    weft_tree_node64 node[NODES];
    weft_tree_node32 narrow[NODES];
    int32_t target[ENTRIES];
    double weight[ENTRIES];
    float narrow_weight[ENTRIES];
    int64_t n_tree, n_node, n_entry, n_target, n_feature;
    weft_tensor operand[4];
} forest;

static void grow(forest *f, uint64_t *seed, int depth, int bits, int64_t *next, int64_t at)
{
    weft_tree_node64 *n = &f->node[at];
    if (depth == 0 || rand_next(seed) % 5 == 0) {
        *n = (weft_tree_node64){.what = WEFT_TREE_LEAF};
        return;
    }
    int64_t feature = (int64_t)(rand_next(seed) % (uint64_t)f->n_feature);
    n->what = feature << WEFT_TREE_SHIFT | (int64_t)(rand_next(seed) % 4 & (uint64_t)bits);
    n->value = (double)(rand_next(seed) % 5) * 0.5 - 1;
    n->yes = (*next)++;
    n->no = (*next)++;
    int64_t yes = n->yes, no = n->no;
    grow(f, seed, depth - 1, bits, next, yes);
    grow(f, seed, depth - 1, bits, next, no);
}

/* Leaves' entries in the order of the nodes. */
static void add_entries(forest *f, uint64_t *seed, int64_t from)
{
    for (int64_t i = from; i < f->n_node; i++) {
        if (f->node[i].what != WEFT_TREE_LEAF)
            continue;
        f->node[i].yes = f->n_entry;
        for (uint64_t k = rand_next(seed) % 3; k > 0; k--) {
            f->target[f->n_entry] = (int32_t)(rand_next(seed) % (uint64_t)f->n_target);
            f->weight[f->n_entry++] = (double)(rand_next(seed) % 2001) * 0.001 - 1;
        }
        f->node[i].no = f->n_entry;
    }
}

static void set_operands(forest *f)
{
    weft_dtype real = f->wide ? WEFT_DTYPE_F64 : WEFT_DTYPE_F32;
    f->operand[0] =
        (weft_tensor){.dtype = WEFT_DTYPE_I32, .rank = 1, .dim = {f->n_tree + 1}, .data = f->tree};
    f->operand[1] = (weft_tensor){.dtype = f->wide ? WEFT_DTYPE_I64 : WEFT_DTYPE_I32,
                                  .rank = 2,
                                  .dim = {f->n_node, 4},
                                  .data = f->wide ? (void *)f->node : (void *)f->narrow};
    f->operand[2] =
        (weft_tensor){.dtype = WEFT_DTYPE_I32, .rank = 1, .dim = {f->n_entry}, .data = f->target};
    f->operand[3] = (weft_tensor){.dtype = real, .rank = 1, .dim = {f->n_entry}};
    f->operand[3].data = f->wide ? (void *)f->weight : (void *)f->narrow_weight;
}

static forest *make_forest(uint64_t seed, bool wide, int64_t n_tree, int bits)
{
    forest *f = calloc(1, sizeof *f);
    f->wide = wide;
    f->n_feature = 1 + (int64_t)(rand_next(&seed) % 6);
    f->n_target = 1 + (int64_t)(rand_next(&seed) % 3);
    for (f->n_tree = 0; f->n_tree < n_tree; f->n_tree++) {
        int64_t from = f->n_node, next = from + 1;
        f->tree[f->n_tree] = (int32_t)from;
        grow(f, &seed, (int)(rand_next(&seed) % 5), bits, &next, from);
        f->n_node = next;
        add_entries(f, &seed, from);
    }
    f->tree[n_tree] = (int32_t)f->n_node;
    for (int64_t i = 0; i < f->n_node; i++) {
        const weft_tree_node64 *n = &f->node[i];
        f->narrow[i] =
            (weft_tree_node32){(int32_t)n->what, (float)n->value, (int32_t)n->yes, (int32_t)n->no};
    }
    for (int64_t i = 0; i < f->n_entry; i++)
        f->narrow_weight[i] = (float)f->weight[i];
    set_operands(f);
    return f;
}

/* -- Soundness -------------------------------------------------------------------------------- */

static bool is_sound(const forest *f)
{
    const weft_tensor *operand[4];
    weft_ensemble t;
    weft_ensemble_use use;
    for (int i = 0; i < 4; i++)
        operand[i] = &f->operand[i];
    return weft_ensemble_read(operand, f->n_target, &t) && weft_ensemble_is_sound(&t, &use) &&
           use.features <= f->n_feature;
}

/* Two nodes and three leaves; each damage makes it unsound. */
static forest *small_forest(void)
{
    static const weft_tree_node64 node[5] = {
        {0, 0.5, 1, 2}, {4, 1.5, 3, 4}, {-1, 0, 0, 1}, {-1, 0, 1, 2}, {-1, 0, 2, 3}};
    forest *f = calloc(1, sizeof *f);
    *f = (forest){.wide = true, .n_tree = 1, .n_node = 5, .n_entry = 3, .n_target = 2};
    f->n_feature = 2;
    f->tree[1] = 5;
    memcpy(f->node, node, sizeof node);
    f->target[2] = 1;
    set_operands(f);
    return f;
}

static void test_trees__damage_is_found(void **state)
{
    (void)state;
    static const struct {
        int at, field;
        int64_t value;
    } damage[] = {{0, 2, 0},  {0, 3, 0},  {1, 2, 1}, {1, 3, 0},  {1, 2, 5},
                  {1, 3, -1}, {0, 0, -2}, {2, 2, 1}, {2, 3, 4},  {3, 2, 0},
                  {3, 3, 0},  {4, 3, 4},  {1, 0, 8}, {0, 2, 99}, {4, 2, -1}};
    forest *f = small_forest();
    assert_true(is_sound(f));
    free(f);
    for (size_t i = 0; i < sizeof damage / sizeof damage[0]; i++) {
        f = small_forest();
        ((int64_t *)&f->node[damage[i].at])[damage[i].field] = damage[i].value;
        if (is_sound(f))
            fail_msg("damage %zu was not found", i);
        free(f);
    }
    f = small_forest();
    f->target[1] = 2;
    assert_false(is_sound(f));
    f->target[1] = 0;
    f->tree[0] = 1;
    assert_false(is_sound(f));
    f->tree[0] = 0;
    f->tree[1] = 4;
    assert_false(is_sound(f));
    free(f);
}

/* A child may have two parents, as categorical splits have them. */
static void test_trees__shared_children(void **state)
{
    (void)state;
    forest *f = small_forest();
    f->node[0].yes = 1;
    f->node[0].no = 3;
    assert_true(is_sound(f));
    free(f);
}

/* -- The kernel ------------------------------------------------------------------------------- */

static double element(const weft_tensor *x, int64_t row, int64_t feature)
{
    return weft_tensor_get_f64(x, row * x->dim[1] + feature);
}

/* Reduction over the trees of row `row`, one target. */
static double walk(const forest *f, const weft_tensor *x, int64_t row, int32_t target, char fold,
                   bool *voted)
{
    double sum = 0;
    *voted = false;
    for (int64_t t = 0; t < f->n_tree; t++) {
        int64_t at = f->tree[t];
        while (f->node[at].what != WEFT_TREE_LEAF) {
            const weft_tree_node64 *n = &f->node[at];
            double v = element(x, row, n->what / 4);
            bool yes = n->what & WEFT_TREE_EQUAL ? v == n->value : v <= n->value;
            at = yes || ((n->what & WEFT_TREE_MISSING) && v != v) ? n->yes : n->no;
        }
        for (int64_t e = f->node[at].yes; e < f->node[at].no; e++) {
            double w = f->wide ? f->weight[e] : (double)f->narrow_weight[e];
            if (f->target[e] != target)
                continue;
            if (fold == 's')
                sum = f->wide ? sum + w : (double)((float)sum + (float)w);
            else if (!*voted || (fold == 'i' ? w < sum : w > sum))
                sum = w;
            *voted = true;
        }
    }
    return sum;
}

static weft_tensor make_rows(world *w, const forest *f, int64_t rows, uint64_t seed)
{
    int64_t dim[2] = {rows, f->n_feature};
    weft_tensor x = make_tensor(w, f->wide ? WEFT_DTYPE_F64 : WEFT_DTYPE_F32, 2, dim);
    for (int64_t i = 0; i < rows * f->n_feature; i++) {
        uint64_t r = rand_next(&seed);
        double v = r % 11 == 0 ? (double)NAN : (double)(r % 9) * 0.25 - 1;
        weft_tensor_set_f64(&x, i, v);
    }
    return x;
}

static void check_kernel(uint64_t seed, bool wide, int64_t n_tree, int64_t rows, char fold,
                         uint32_t threads)
{
    world w;
    weft_tensor got[2];
    uint32_t in[5], out[2], n;
    forest *f = make_forest(seed, wide, n_tree, (int)(seed % 4));
    init_world(&w);
    weft_tensor x = make_rows(&w, f, rows, seed);
    in[0] = add_input(&w, x);
    for (int i = 0; i < 4; i++)
        in[i + 1] = add_weight(&w, f->operand[i]);
    int64_t dim[2] = {rows, f->n_target};
    out[0] = add_value(&w, x.dtype, WEFT_LAYOUT_PLAIN, 2, dim);
    out[1] = add_value(&w, WEFT_DTYPE_BOOL, WEFT_LAYOUT_PLAIN, 2, dim);
    weft_attr attr[2] = {{.key = WEFT_ATTR_REDUCTION, .kind = WEFT_KIND_STR},
                         {.key = WEFT_ATTR_TARGETS, .kind = WEFT_KIND_INT}};
    attr[0].u.s = fold == 's' ? "sum" : fold == 'i' ? "min" : "max";
    attr[1].u.i = f->n_target;
    add_launch_outs(&w, WEFT_OP_TREE_ENSEMBLE, (weft_attrs){attr, 2}, in, 5, out, 2);
    add_output(&w, out[0]);
    add_output(&w, out[1]);
    open_world(&w, threads);
    weft_session_profile(w.session, true);
    weft_err err = weft_session_run(w.session, w.in, w.program.n_input, w.diag, got, 2);
    explain(&w);
    assert_int_equal(err, WEFT_ERR_OK);
    if (f->n_entry > 0) /* without entries an operand is empty, which is left to the reference */
        assert_memory_equal(weft_session_times(w.session, &n)[0].variant, "trees", 5);
    for (int64_t i = 0; i < rows * f->n_target; i++) {
        bool voted;
        double want = walk(f, &x, i / f->n_target, (int32_t)(i % f->n_target), fold, &voted);
        if (weft_tensor_get_f64(&got[0], i) != want || weft_tensor_get_i64(&got[1], i) != voted)
            fail_msg("seed %llu, element %lld: %g, expected %g", (unsigned long long)seed,
                     (long long)i, weft_tensor_get_f64(&got[0], i), want);
    }
    finish_world(&w);
    free(f);
}

static void test_trees__kernel(void **state)
{
    (void)state;
    static const int64_t trees[] = {2, 1, 7, 8, 65, 150}, rows[] = {1, 5, 16, 17, 64, 131};
    for (uint64_t i = 0; i < 72; i++)
        check_kernel(i, i % 3 == 0, trees[i % 6], rows[i / 6 % 6], "sia"[i % 3], 1 + i % 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trees__damage_is_found),
        cmocka_unit_test(test_trees__shared_children),
        cmocka_unit_test(test_trees__kernel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
