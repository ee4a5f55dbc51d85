/* tree_ensemble. Rows are processed in blocks, trees in groups: first the leaves that the rows of a
 * block reach in the trees of a group, several walks at a time so that their cache misses overlap;
 * then the entries of these leaves in the order of the trees. Sums are therefore those of a loop
 * over the trees, for any number of threads. Threads share blocks of rows, or, for few rows, the
 * trees. */
#include "base/num.h"
#include "ops/trees.h"
#include "runtime/cpu/cpu_int.h"

#include <math.h>
#include <string.h>

enum { ROWS = 64, GROUP = 64, LANES = 8, FEW_ROWS = 16 };
static const double level_ns = 1.5;

typedef enum tree_fold { FOLD_SUM, FOLD_MIN, FOLD_MAX } tree_fold;

typedef struct trees_kernel trees_kernel;

typedef struct trees_code {
    /* leaf[i] of row i, reached in the tree whose root is `root`. */
    void (*walk_rows)(const trees_kernel *k, const void *x, int64_t rows, int64_t root,
                      int32_t *leaf);
    /* leaf[i * step] of one row in tree i. */
    void (*walk_trees)(const trees_kernel *k, const void *x, const int32_t *tree, int64_t n,
                       int32_t *leaf, int64_t step);
    /* Entries of the leaves that a row reached in n trees, `step` apart. */
    void (*fold)(const trees_kernel *k, const int32_t *leaf, int64_t n, int64_t step, void *out,
                 uint8_t *seen);
} trees_code;

struct trees_kernel {
    weft_ensemble trees;
    trees_code code;
    int bits; /* that nodes have */
    tree_fold fold;
    bool marks; /* `seen` is needed */
    bool by_trees;
    uint32_t threads;
    int64_t rows, features;
    double row_ns;
    int64_t leaf_bytes, scratch_bytes; /* per thread */
    uint32_t scratch;                  /* index in args */
    void *const *arg;
};

/* The bits are constants in each copy of a function, so that tests for them vanish. */
#define NODE    weft_tree_node32
#define REAL    float
#define INDEX   int32_t
#define F(name) name##32
#include "runtime/cpu/cpu_trees_body.h"
#undef NODE
#undef REAL
#undef INDEX
#undef F
#define NODE    weft_tree_node64
#define REAL    double
#define INDEX   int64_t
#define F(name) name##64
#include "runtime/cpu/cpu_trees_body.h"

/* -- Running ---------------------------------------------------------------------------------- */

enum { ARG_X = 0, ARG_OUT = 5, ARG_VOTED = 6 }; /* indices in args */

static const char *row_at(const trees_kernel *k, int64_t row)
{
    size_t size = k->trees.wide ? sizeof(double) : sizeof(float);
    return (const char *)k->arg[ARG_X] + (size_t)(row * k->features) * size;
}

static void *out_at(const trees_kernel *k, int64_t row)
{
    size_t size = k->trees.wide ? sizeof(double) : sizeof(float);
    return (char *)k->arg[ARG_OUT] + (size_t)(row * k->trees.n_target) * size;
}

static void clear_rows(const trees_kernel *k, int64_t row, int64_t rows, uint8_t *seen)
{
    size_t size = k->trees.wide ? sizeof(double) : sizeof(float);
    memset(out_at(k, row), 0, (size_t)(rows * k->trees.n_target) * size);
    if (k->marks)
        memset(seen, 0, (size_t)(rows * k->trees.n_target));
}

static void write_marks(const trees_kernel *k, int64_t row, int64_t rows, const uint8_t *seen)
{
    uint8_t *voted = k->scratch > ARG_VOTED ? k->arg[ARG_VOTED] : NULL;
    if (voted)
        memcpy(voted + row * k->trees.n_target, seen, (size_t)(rows * k->trees.n_target));
}

/* Blocks [begin, end) of rows. */
static void run_blocks(void *cx, int64_t begin, int64_t end)
{
    const trees_kernel *k = cx;
    const weft_ensemble *t = &k->trees;
    char *scratch = (char *)k->arg[k->scratch] + weft_par_self() * (uint64_t)k->scratch_bytes;
    int32_t *leaf = (int32_t *)scratch; /* [GROUP, ROWS] */
    uint8_t *seen = (uint8_t *)scratch + k->leaf_bytes;
    for (int64_t b = begin; b < end; b++) {
        int64_t row = b * ROWS, rows = k->rows - row < ROWS ? k->rows - row : ROWS;
        clear_rows(k, row, rows, seen);
        for (int64_t from = 0; from < t->n_tree; from += GROUP) {
            int64_t n = t->n_tree - from < GROUP ? t->n_tree - from : GROUP;
            for (int64_t i = 0; i < n; i++)
                k->code.walk_rows(k, row_at(k, row), rows, t->tree[from + i], leaf + i * ROWS);
            for (int64_t r = 0; r < rows; r++)
                k->code.fold(k, leaf + r, n, ROWS, out_at(k, row + r), seen + r * t->n_target);
        }
        write_marks(k, row, rows, seen);
    }
}

/* Trees [begin, end) of all rows, which are few: leaves [trees, rows] at the start of the scratch
 * memory. */
static void run_trees(void *cx, int64_t begin, int64_t end)
{
    const trees_kernel *k = cx;
    int32_t *leaf = k->arg[k->scratch];
    for (int64_t r = 0; r < k->rows; r++)
        k->code.walk_trees(k, row_at(k, r), k->trees.tree + begin, end - begin,
                           leaf + begin * k->rows + r, k->rows);
}

static weft_err run_ensemble(void *state, void *const *arg)
{
    trees_kernel *k = state;
    k->arg = arg;
    if (!k->by_trees) {
        weft_par_for(k->threads, (k->rows + ROWS - 1) / ROWS, ROWS * k->row_ns, run_blocks, k);
        return WEFT_ERR_OK;
    }
    int32_t *leaf = arg[k->scratch];
    uint8_t *seen = (uint8_t *)leaf + k->leaf_bytes;
    double tree_ns = k->row_ns * (double)k->rows / (double)(k->trees.n_tree + 1);
    weft_par_for(k->threads, k->trees.n_tree, tree_ns, run_trees, k);
    clear_rows(k, 0, k->rows, seen);
    for (int64_t r = 0; r < k->rows; r++)
        k->code.fold(k, leaf + r, k->trees.n_tree, k->rows, out_at(k, r),
                     seen + r * k->trees.n_target);
    write_marks(k, 0, k->rows, seen);
    return WEFT_ERR_OK;
}

/* -- Preparing -------------------------------------------------------------------------------- */

/* Reads the trees; false: not supported here (the reference implementation reports errors). */
static bool read_trees(const weft_prep *p, trees_kernel *k)
{
    const weft_tensor *operand[4];
    weft_ensemble_use use = {0, 0};
    for (uint32_t i = 0; i < 4; i++) {
        const weft_slot *s = &p->in[i + 1];
        if (!s->present || !s->weight || s->layout)
            return false;
        operand[i] = &s->tensor;
    }
    if (!weft_ensemble_read(operand, weft_attrs_int(p->attrs, WEFT_ATTR_TARGETS, 0), &k->trees))
        return false;
    /* The data are NULL when weights are only counted. */
    bool known = k->trees.tree && k->trees.node && k->trees.target && k->trees.weight;
    if (known && (!weft_ensemble_is_sound(&k->trees, &use) || use.features > k->features))
        return false;
    k->bits = use.bits;
    return true;
}

static bool read_fold(const weft_prep *p, trees_kernel *k)
{
    static const char *const name[] = {"sum", "min", "max"};
    const char *text = weft_attrs_str(p->attrs, WEFT_ATTR_REDUCTION, "sum");
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, name[i]) == 0) {
            k->fold = (tree_fold)i;
            return true;
        }
    }
    return false;
}

/* Sizes of the scratch memory; false on overflow. */
static bool plan_scratch(trees_kernel *k, uint64_t *out)
{
    uint64_t rows = k->by_trees ? (uint64_t)k->rows : ROWS, leaf, seen, both;
    uint64_t trees = k->by_trees ? (uint64_t)k->trees.n_tree : GROUP;
    if (!weft_size_mul(rows * sizeof(int32_t), trees, &leaf) ||
        !weft_size_mul(rows, k->marks ? (uint64_t)k->trees.n_target : 0, &seen) ||
        !weft_size_add(leaf, seen, &both) || both > INT64_MAX / 2)
        return false;
    k->leaf_bytes = (int64_t)leaf;
    k->scratch_bytes = (int64_t)weft_align_up(both, 64);
    return weft_size_mul((uint64_t)k->scratch_bytes, k->by_trees ? 1 : k->threads, out);
}

weft_err weft_cpu__prepare_tree_ensemble(weft_prep *p)
{
    const weft_slot *x = &p->in[0];
    trees_kernel k = {.threads = weft_cpu__of(p)->threads, .scratch = p->n_in + p->n_out};
    uint64_t scratch;
    if (x->layout || x->tensor.rank != 2 || p->n_in != ARG_OUT || p->n_out > 2)
        return WEFT_ERR_OK;
    k.rows = x->tensor.dim[0];
    k.features = x->tensor.dim[1];
    if (!read_trees(p, &k) || !read_fold(p, &k) || k.trees.n_target > INT32_MAX ||
        x->tensor.dtype != (k.trees.wide ? WEFT_DTYPE_F64 : WEFT_DTYPE_F32))
        return WEFT_ERR_OK;
    k.marks = k.fold != FOLD_SUM || (p->n_out == 2 && p->out[1].present);
    k.by_trees = k.rows <= FEW_ROWS;
    k.row_ns = (double)k.trees.n_tree * level_ns *
               log2((double)k.trees.n_node / (double)(k.trees.n_tree + 1) + 2);
    k.code = k.trees.wide ? code64(k.bits) : code32(k.bits);
    if (!plan_scratch(&k, &scratch))
        return WEFT_ERR_OK;
    WEFT_TRY(weft_cpu__set_kernel(p, run_ensemble, &k, sizeof k,
                                  k.by_trees ? "trees:few_rows" : "trees"));
    p->scratch_bytes = scratch;
    return WEFT_ERR_OK;
}
