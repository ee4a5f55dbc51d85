/* Models that run together: which of their operators correspond, which of those become one, and the
 * joint graph that says so. Shared by align.c, merge_cost.c and merge_models.c. */
#ifndef WEFT_PASSES_MERGE_MERGE_H
#define WEFT_PASSES_MERGE_MERGE_H

#include "passes/passes_int.h"

/* More models than this are not joined in one graph: the offset of a part is a sum over those
 * before it, and dims have a limit of terms. */
enum { WEFT_MERGE_MODELS_MAX = 24 };

/* -- Groups (group_models.c) ------------------------------------------------------------------ */

typedef struct weft_model_group {
    weft_graph **model;
    uint32_t n; /* 1 .. WEFT_MERGE_MODELS_MAX */
} weft_model_group;

typedef struct weft_model_groups {
    weft_model_group *at; /* every model is in one */
    uint32_t n;
} weft_model_groups;

/* Models that may gain by being merged; lives in cx->scratch. */
weft_model_groups weft_merge__group_models(weft_passctx *cx, weft_graph *const *model, uint32_t n);

/* -- Columns (align.c) ------------------------------------------------------------------------ */

/* How alike the nodes of a column are. */
typedef enum weft_column_kind {
    WEFT_COLUMN_EQUAL, /* the same operator, attributes and weights: one node could serve all */
    WEFT_COLUMN_SHAPE, /* some weights have other bytes, all the same shapes */
    WEFT_COLUMN_SIZE   /* products (or look-ups) whose weights have other numbers of rows or columns
                        */
} weft_column_kind;

/* Nodes of different models that correspond. */
typedef struct weft_column {
    weft_node *node; /* by model; none where the model has no such node */
    uint32_t n;      /* models that have one */
    weft_column_kind kind;
} weft_column;

/* Making one vertex of each column leaves no cycle: columns stand in an order in which every
 * operand of a node is made by a column before. */
typedef struct weft_columns {
    weft_graph *const *model;
    uint32_t n_model;
    weft_column *at; /* every node of every model is in one */
    uint32_t n;
} weft_columns;

/* All in cx->scratch: columns of every kind; the same with each parted into columns of equal nodes,
 * one after the other. */
weft_columns weft_merge__match(weft_passctx *cx, weft_graph *const *model, uint32_t n_model);
weft_columns weft_merge__split(weft_passctx *cx, const weft_columns *columns);

/* Fills the log's pairs when it wants them. */
void weft_merge__measure_pairs(weft_passctx *cx, weft_module *m);

/* How the operands of a column's nodes are put together. */
typedef enum weft_joint_level {
    WEFT_JOINT_NONE,
    WEFT_JOINT_ROWS,  /* all dims but the last are rows, whatever their number */
    WEFT_JOINT_IMAGES /* along the batch; the other dims are equal constants */
} weft_joint_level;

/* What may be done with a column, whether or not it pays. `first`: a model that has the node. */
weft_joint_level weft_merge__level(const weft_columns *columns, const weft_column *column);
/* A product by a weight: what merging is for. */
bool weft_merge__is_gemm(const weft_module *m, weft_node n);
/* Symbol of the batch of a model; 0 when it cannot be batched. */
weft_dim weft_merge__batch(const weft_graph *g);

#endif
