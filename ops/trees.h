/* Ensembles of decision trees as flat arrays: the constant operands of tree_ensemble.
 *
 *   trees    i32 [trees + 1]  first node of each tree; the last entry is the number of nodes
 *   nodes    i32 or i64 [nodes, 4]: weft_tree_node32 or weft_tree_node64; thresholds by their bits
 *   targets  i32 [leaves]     target to which a leaf adds
 *   weights  f32 or f64 [leaves]  what it adds; a leaf has any number of (target, weight) entries
 *
 * The nodes of a tree are contiguous, its root first, each child behind its parents. Every walk
 * therefore ends, and the work of a row is at most the number of nodes. A node may have several
 * parents. The entries of leaves are in the order of the leaves' nodes. */
#ifndef WEFT_OPS_TREES_H
#define WEFT_OPS_TREES_H

#include "base/tensor.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* `what` of a node: its feature times 4, and these bits; or LEAF. */
enum { WEFT_TREE_EQUAL = 1, WEFT_TREE_MISSING = 2, WEFT_TREE_SHIFT = 2, WEFT_TREE_LEAF = -1 };

/* The walk continues at `yes` if x[feature] <= value (EQUAL: x[feature] == value; MISSING: also if
 * x[feature] is NaN), else at `no`. Of a leaf: its entries [yes, no). */
typedef struct weft_tree_node32 {
    int32_t what;
    float value;
    int32_t yes, no;
} weft_tree_node32;

typedef struct weft_tree_node64 {
    int64_t what;
    double value;
    int64_t yes, no;
} weft_tree_node64;

typedef struct weft_ensemble {
    bool wide; /* weft_tree_node64 and f64, else weft_tree_node32 and f32 */
    const int32_t *tree;
    const void *node;
    const int32_t *target;
    const void *weight;
    int64_t n_tree, n_node, n_leaf;
    int64_t n_target; /* of a result's row */
} weft_ensemble;

/* What the nodes use, of sound trees. */
typedef struct weft_ensemble_use {
    int64_t features; /* the highest feature + 1 */
    int bits;         /* EQUAL, MISSING: a node has it */
} weft_ensemble_use;

/* Reads operands trees, nodes, targets and weights; false: their types do not fit. `data` of the
 * tensors may be NULL. */
bool weft_ensemble_read(const weft_tensor *const operand[4], int64_t n_target, weft_ensemble *out);
/* Whether the arrays are as described above. */
bool weft_ensemble_is_sound(const weft_ensemble *t, weft_ensemble_use *out);

static inline bool weft_tree_test32(const weft_tree_node32 *n, const float *x)
{
    float v = x[n->what >> WEFT_TREE_SHIFT];
    bool yes = n->what & WEFT_TREE_EQUAL ? v == n->value : v <= n->value;
    return yes | ((n->what & WEFT_TREE_MISSING) && isnan(v));
}

static inline bool weft_tree_test64(const weft_tree_node64 *n, const double *x)
{
    double v = x[n->what >> WEFT_TREE_SHIFT];
    bool yes = n->what & WEFT_TREE_EQUAL ? v == n->value : v <= n->value;
    return yes | ((n->what & WEFT_TREE_MISSING) && isnan(v));
}

#endif
