/* Finding which nodes of several models correspond: what align.c, node_class.c, match_rest.c and
 * weight_sketch.c share. */
#ifndef WEFT_PASSES_MERGE_ALIGN_H
#define WEFT_PASSES_MERGE_ALIGN_H

#include "passes/merge/merge.h"
#include "passes/similarity/weight_sketch.h"

enum {
    WEFT_COLUMN_KINDS = WEFT_COLUMN_SIZE + 1,
    /* A weight of fewer bytes is no sign that two nodes correspond: scalars are alike everywhere.
     */
    WEFT_ANCHOR_BYTES = 64,
    /* Scores up to this say that two nodes may correspond, not that anything speaks for it. */
    WEFT_SCORE_WEAK = 1
};

/* -- Nodes with their classes (node_class.c) -------------------------------------------------- */

typedef struct weft_item {
    weft_node node;
    weft_dim batch;                    /* of its model */
    uint32_t class[WEFT_COLUMN_KINDS]; /* equal numbers: the same at that level */
    bool is_gemm, anchors; /* a GEMM by a weight; has a weight that tells it from others */
} weft_item;

typedef struct weft_node_classes weft_node_classes;

weft_node_classes *weft_align__make_classes(const weft_module *m, weft_arena *arena);
weft_item weft_align__make_item(weft_node_classes *c, weft_node n, weft_dim batch);
/* Operand that is the weight of a product or of a look-up in a table; UINT32_MAX: none. */
uint32_t weft_align__main_weight(const weft_module *m, weft_node n);

/* -- Matching a model with the columns so far (align.c, match_rest.c) -------------------------- */

/* The different nodes of a column. */
typedef struct weft_variant {
    weft_item item;
    const struct weft_variant *next;
} weft_variant;

typedef struct weft_matching {
    weft_passctx *cx;
    const weft_module *m;
    weft_sketches *sketches;
    weft_columns *columns;
    const weft_variant **variant; /* by column */
    const weft_item *own;         /* nodes of the model that is added */
    uint32_t n_own, model;
    uint32_t *match;     /* by column: 1 + own item, 0: none */
    uint32_t *column_of; /* by own item: 1 + column, 0: none */
    /* Room for tables, kept: what is found out about weights lies behind it in the same arena. */
    uint64_t *row;
    uint8_t *step;
    size_t row_room, step_room;
    uint64_t cells_left, visits_left; /* of aligning and of looking for cycles: hostile graphs */
} weft_matching;

/* A node of the column has the same weights and all else. */
bool weft_align__equals_column(const weft_matching *x, uint32_t column, uint32_t own);
uint32_t weft_align__score_column(const weft_matching *x, uint32_t column, uint32_t own);
/* Match what is free, in any order, where that makes no cycle: nodes of equal weights; all that may
 * correspond. true: something was matched. */
bool weft_align__match_crossed(weft_matching *x);
bool weft_align__match_rest(weft_matching *x);
/* Puts vertices (columns, then own items without one) in topological order, near the given one. */
void weft_align__sort(const weft_matching *x, uint32_t *order, uint32_t n);

#endif
