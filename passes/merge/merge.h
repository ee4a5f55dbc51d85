/* Models that are merged: groups of models that may gain by it, columns of corresponding nodes, and
 * whether the nodes of a column can be joined. Shared by all files of this folder; README.md is the
 * overview. */
#ifndef WEFT_PASSES_MERGE_MERGE_H
#define WEFT_PASSES_MERGE_MERGE_H

#include "passes/passes_int.h"

/* The most models of one joint graph: the first row of a model's part is a sum over the models
 * before it, and the number of terms of a dim is bounded. */
enum { WEFT_MERGE_MODELS_MAX = 24 };

/* -- Groups (group_models.c) ------------------------------------------------------------------ */

typedef struct weft_model_group {
    weft_graph **model;
    uint32_t n; /* 1 .. WEFT_MERGE_MODELS_MAX */
} weft_model_group;

typedef struct weft_model_groups {
    weft_model_group *at; /* every model is in exactly one */
    uint32_t n;
} weft_model_groups;

/* Divides the models into groups that may gain by being merged. The result lives in cx->scratch. */
weft_model_groups weft_merge__group_models(weft_passctx *cx, weft_graph *const *model, uint32_t n);

/* -- Columns (align.c) ------------------------------------------------------------------------ */

/* In what the nodes of a column may differ. */
typedef enum weft_column_kind {
    WEFT_COLUMN_EQUAL, /* in nothing: operator, attributes and weights are the same */
    WEFT_COLUMN_SHAPE, /* in the bytes of weights; shapes are the same */
    WEFT_COLUMN_SIZE   /* in the number of rows or columns of the weight of a GEMM or a look-up */
} weft_column_kind;

/* Corresponding nodes, at most one of each model. */
typedef struct weft_column {
    weft_node *node; /* by model; none: the model has no node in this column */
    uint32_t n;      /* models that have a node */
    weft_column_kind kind;
} weft_column;

/* The columns of some models in a topological order: every operand of a node is made in an earlier
 * column. So contracting each column to one vertex makes no cycle. */
typedef struct weft_columns {
    weft_graph *const *model;
    uint32_t n_model;
    weft_column *at; /* every node of every model is in exactly one */
    uint32_t n;
} weft_columns;

/* Aligns the models into columns of any kind. Needs cx->options->assignment. */
weft_columns weft_merge__match(weft_passctx *cx, weft_graph *const *model, uint32_t n_model);
/* Splits each column into columns of equal nodes, which follow each other. Both results live in
 * cx->scratch. */
weft_columns weft_merge__split(weft_passctx *cx, const weft_columns *columns);

/* Measures every two models if the log wants pairs (weft_merge_log). */
void weft_merge__measure_pairs(weft_passctx *cx, weft_module *m);

/* -- What may be joined (merge_level.c) ------------------------------------------------------- */

/* Along what the operands of a column's nodes can be concatenated. */
typedef enum weft_joint_level {
    WEFT_JOINT_NONE,
    WEFT_JOINT_ROWS,  /* along rows: all dims but the last, flattened */
    WEFT_JOINT_IMAGES /* along the batch; the other dims are equal constants */
} weft_joint_level;

/* The level at which the nodes of a column can be joined, no matter whether that pays. */
weft_joint_level weft_merge__level(const weft_columns *columns, const weft_column *column);
bool weft_merge__is_weight(const weft_module *m, weft_val v); /* false for none */
/* A GEMM (matmul or convolution) of an activation by a weight: the nodes that merging is for. */
bool weft_merge__is_gemm(const weft_module *m, weft_node n);
/* The batch symbol of a model; 0: the model cannot be batched. */
/* A model that the options leave alone, or that is no model. */
bool weft_merge__is_alone(const weft_pass_options *options, const weft_graph *g);
weft_dim weft_merge__batch(const weft_graph *g);

#endif
