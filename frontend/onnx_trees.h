/* Private to frontend/: decision trees of ai.onnx.ml, from linked nodes in any order to the
 * operands of tree_ensemble (ops/trees.h). */
#ifndef WEFT_FRONTEND_ONNX_TREES_H
#define WEFT_FRONTEND_ONNX_TREES_H

#include "frontend/onnx_build.h"

/* The order is that of nodes_modes in TreeEnsemble-5. */
typedef enum weft_tree_mode {
    WEFT_TREE_LE,
    WEFT_TREE_LT,
    WEFT_TREE_GE,
    WEFT_TREE_GT,
    WEFT_TREE_EQ,
    WEFT_TREE_NE,
    WEFT_TREE_MEMBER,
    WEFT_TREE_END /* a leaf */
} weft_tree_mode;

typedef struct weft_tree_link {
    double value;
    int64_t feature;
    uint32_t yes, no; /* nodes; of a leaf: its entries [yes, no) */
    uint8_t mode;     /* weft_tree_mode, MEMBER excepted */
    bool missing;     /* NaN continues at yes */
} weft_tree_link;

typedef struct weft_forest {
    const weft_tree_link *node;
    uint32_t n_node;
    const uint32_t *root;
    uint32_t n_root;
    /* Entries of leaves. */
    const int64_t *target;
    const double *weight;
    uint32_t n_entry;
    int64_t n_target;
    bool wide; /* thresholds and weights of 64 bits */
    const char *reduction;
} weft_forest;

/* tree_ensemble of x [rows, features]; out[0] the reduction, out[1] unless n_out is 1 whether a
 * target got a weight. Errors name the tree. */
void weft_forest__make(weft_onnx_build *k, const weft_forest *f, weft_val x, weft_val *out,
                       uint32_t n_out);

#endif
