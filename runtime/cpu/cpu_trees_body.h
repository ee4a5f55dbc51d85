/* Walks through trees and sums of leaves, included by cpu_trees.c once for each element type: NODE,
 * REAL, INDEX, and F(name) to make names. */

/* The node behind `at` for row x; a leaf stays where it is. */
static inline INDEX F(step)(const NODE *node, INDEX at, const REAL *x, int bits)
{
    const NODE *n = &node[at];
    if (n->what < 0)
        return at;
    REAL v = x[n->what >> WEFT_TREE_SHIFT];
    bool yes = v <= n->value;
    if ((bits & WEFT_TREE_EQUAL) && (n->what & WEFT_TREE_EQUAL))
        yes = v == n->value;
    if (bits & WEFT_TREE_MISSING)
        yes |= (n->what & WEFT_TREE_MISSING) && isnan(v);
    return yes ? n->yes : n->no;
}

static inline int32_t F(walk)(const NODE *node, INDEX at, const REAL *x, int bits)
{
    while (node[at].what >= 0)
        at = F(step)(node, at, x, bits);
    return (int32_t)at;
}

/* LANES walks side by side until all are at leaves: lane i starts at at[i] with row x[i]. */
static inline void F(walk_lanes)(const NODE *node, INDEX *at, const REAL *const *x, int bits)
{
    bool more = true;
    while (more) {
        more = false;
        for (int i = 0; i < LANES; i++) {
            INDEX next = F(step)(node, at[i], x[i], bits);
            more |= next != at[i];
            at[i] = next;
        }
    }
}

static inline void F(walk_rows)(const trees_kernel *k, const void *x, int64_t rows, int64_t root,
                                int32_t *leaf, int bits)
{
    const NODE *node = k->trees.node;
    const REAL *row = x;
    int64_t r = 0;
    for (; r + LANES <= rows; r += LANES) {
        INDEX at[LANES];
        const REAL *lane[LANES];
        for (int i = 0; i < LANES; i++) {
            at[i] = (INDEX)root;
            lane[i] = row + (r + i) * k->features;
        }
        F(walk_lanes)(node, at, lane, bits);
        for (int i = 0; i < LANES; i++)
            leaf[r + i] = (int32_t)at[i];
    }
    for (; r < rows; r++)
        leaf[r] = F(walk)(node, (INDEX)root, row + r * k->features, bits);
}

static inline void F(walk_trees)(const trees_kernel *k, const void *x, const int32_t *tree,
                                 int64_t n, int32_t *leaf, int64_t step, int bits)
{
    const NODE *node = k->trees.node;
    int64_t t = 0;
    for (; t + LANES <= n; t += LANES) {
        INDEX at[LANES];
        const REAL *lane[LANES];
        for (int i = 0; i < LANES; i++) {
            at[i] = (INDEX)tree[t + i];
            lane[i] = x;
        }
        F(walk_lanes)(node, at, lane, bits);
        for (int i = 0; i < LANES; i++)
            leaf[(t + i) * step] = (int32_t)at[i];
    }
    for (; t < n; t++)
        leaf[t * step] = F(walk)(node, (INDEX)tree[t], x, bits);
}

#define WALKS(bits)                                                                             \
    static void F(walk_rows_##bits)(const trees_kernel *k, const void *x, int64_t rows,         \
                                    int64_t root, int32_t *leaf)                                \
    {                                                                                           \
        F(walk_rows)(k, x, rows, root, leaf, bits);                                             \
    }                                                                                           \
    static void F(walk_trees_##bits)(const trees_kernel *k, const void *x, const int32_t *tree, \
                                     int64_t n, int32_t *leaf, int64_t step)                    \
    {                                                                                           \
        F(walk_trees)(k, x, tree, n, leaf, step, bits);                                         \
    }
WALKS(0)
WALKS(1)
WALKS(2)
WALKS(3)
#undef WALKS

static void F(fold)(const trees_kernel *k, const int32_t *leaf, int64_t n, int64_t step, void *out,
                    uint8_t *seen)
{
    const NODE *node = k->trees.node;
    const REAL *weight = k->trees.weight;
    REAL *sum = out;
    for (int64_t t = 0; t < n; t++) {
        const NODE *l = &node[leaf[t * step]];
        for (INDEX e = l->yes; e < l->no; e++) {
            int32_t target = k->trees.target[e];
            REAL *s = &sum[target];
            if (k->fold == FOLD_SUM)
                *s += weight[e];
            else if (!seen[target] || (k->fold == FOLD_MIN ? weight[e] < *s : weight[e] > *s))
                *s = weight[e];
            if (k->marks)
                seen[target] = 1;
        }
    }
}

static trees_code F(code)(int bits)
{
    static const trees_code code[4] = {
        {F(walk_rows_0), F(walk_trees_0), F(fold)},
        {F(walk_rows_1), F(walk_trees_1), F(fold)},
        {F(walk_rows_2), F(walk_trees_2), F(fold)},
        {F(walk_rows_3), F(walk_trees_3), F(fold)},
    };
    return code[bits & 3];
}
