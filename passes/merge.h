/* Models that run together: which of their operators correspond, which of those become one, and the
 * joint graph that says so. Shared by align.c, merge_cost.c and merge_models.c. */
#ifndef WEFT_PASSES_MERGE_H
#define WEFT_PASSES_MERGE_H

#include "passes/passes_int.h"

/* More models than this are not joined in one graph: the offset of a part is a sum over those
 * before it, and dims have a limit of terms. */
enum { WEFT_MERGE_MODELS_MAX = 24 };

struct weft_merge_strategy {
    const char *name, *brief;
};

#define S(file) extern const weft_merge_strategy weft_merge_strategy_##file;
#include "passes/strategies.def"
#undef S

/* Nodes of different models that correspond: same operator, attributes and weights. */
typedef struct weft_column {
    weft_node *node; /* by model; none where the model has no such node */
    uint32_t n;      /* models that have one */
} weft_column;

typedef struct weft_columns {
    weft_graph *const *model;
    uint32_t n_model;
    weft_column *at; /* every node of every model is in one; an order that suits all models */
    uint32_t n;
} weft_columns;

/* Lives in cx->scratch. */
weft_columns weft_merge__align(weft_passctx *cx, weft_graph *const *model, uint32_t n_model);

/* How the operands of a column's nodes are put together. */
typedef enum weft_joint_level {
    WEFT_JOINT_NONE,
    WEFT_JOINT_ROWS,  /* all dims but the last are rows, whatever their number */
    WEFT_JOINT_IMAGES /* along the batch; the other dims are equal constants */
} weft_joint_level;

/* What may be done with a column, whether or not it pays. `first`: a model that has the node. */
weft_joint_level weft_merge__level(const weft_columns *columns, const weft_column *column);
/* A product by a weight: what merging is for. */
bool weft_merge__is_heavy(const weft_module *m, weft_node n);
/* Symbol of the batch of a model; 0 when it cannot be batched. */
weft_dim weft_merge__batch(const weft_graph *g);

/* Predicted time of the nodes of a column one by one over that of one product for all of them, with
 * `copied` when their operands have to be copied together first; for the smallest and the largest
 * sizes planned for. false: the estimator does not know. */
typedef struct weft_merge_gain {
    double small, large;
} weft_merge_gain;
bool weft_merge__gain(weft_passctx *cx, const weft_columns *columns, const weft_column *column,
                      bool copied, weft_merge_gain *out);

#endif
