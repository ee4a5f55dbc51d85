/* Aligning models into columns of corresponding nodes: what align.c, node_class.c, match_score.c
 * and match_rest.c share. */
#ifndef WEFT_PASSES_MERGE_ALIGN_H
#define WEFT_PASSES_MERGE_ALIGN_H

#include "passes/merge/merge.h"
#include "passes/similarity/weight_sketch.h"

enum {
    WEFT_COLUMN_KINDS = WEFT_COLUMN_SIZE + 1,
    /* Smaller weights are no anchors: equal scalars occur everywhere. */
    WEFT_ANCHOR_BYTES = 64,
    /* Nodes with a score up to this can correspond, but nothing suggests that they do. */
    WEFT_SCORE_WEAK = 1
};

/* -- Nodes with their classes (node_class.c) -------------------------------------------------- */

typedef struct weft_item {
    weft_node node;
    weft_dim batch;                    /* of its model */
    uint32_t class[WEFT_COLUMN_KINDS]; /* by kind: nodes of one class differ in nothing else */
    bool is_gemm;                      /* a GEMM by a weight */
    bool anchors;                      /* has a weight of at least WEFT_ANCHOR_BYTES */
} weft_item;

typedef struct weft_node_classes weft_node_classes;

weft_node_classes *weft_align__make_classes(const weft_module *m, weft_arena *arena);
weft_item weft_align__make_item(weft_node_classes *c, weft_node n, weft_dim batch);
/* The operand that is the weight of a GEMM or the table of a look-up; UINT32_MAX: none. */
uint32_t weft_align__main_weight(const weft_module *m, weft_node n);

/* -- Matching one more model with the columns (align.c, match_score.c, match_rest.c) ---------- */

/* The distinct nodes of a column: one of each class WEFT_COLUMN_EQUAL. */
typedef struct weft_variant {
    weft_item item;
    const struct weft_variant *next;
} weft_variant;

/* The state while one model is added. Its nodes are called own items. */
typedef struct weft_matching {
    weft_passctx *cx;
    const weft_module *m;
    weft_sketches *sketches;
    weft_columns *columns;
    const weft_variant **variant; /* by column */
    const weft_item *own;         /* in the order of the model's graph */
    uint32_t n_own, model;
    uint32_t *match;     /* by column: index + 1 of its own item, 0: none */
    uint32_t *column_of; /* by own item: index + 1 of its column, 0: none */
    /* Tables of the alignment, reused: the arena cannot be reset between alignments, because weight
     * sketches that are kept are allocated after them. */
    uint64_t *row;
    uint8_t *trace;
    size_t row_room, trace_room;
    uint64_t cells_left;  /* of alignment tables: bounds the time for hostile graphs */
    uint64_t visits_left; /* of edges during cycle tests, likewise */
} weft_matching;

/* Whether the own item is equal to a node of the column, weights included. */
bool weft_align__equals_column(const weft_matching *x, uint32_t column, uint32_t own);
/* How well the own item corresponds to the column: the score of the best of its nodes; 0: it
 * cannot. */
uint32_t weft_align__score_column(const weft_matching *x, uint32_t column, uint32_t own);
/* Match unmatched columns with unmatched own items in any order, as far as that makes no cycle:
 * match_crossed only nodes with equal weights, match_rest all that can correspond. true: something
 * was matched. */
bool weft_align__match_crossed(weft_matching *x);
bool weft_align__match_rest(weft_matching *x);
/* Sorts vertices topologically and otherwise keeps their order. Vertex i < columns->n is column i;
 * vertex columns->n + j is own item j, which has no column. */
void weft_align__sort(const weft_matching *x, uint32_t *order, uint32_t n);

#endif
