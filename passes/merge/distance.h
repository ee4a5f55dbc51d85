/* The edit distance of two graphs, compared with a limit. */
#ifndef WEFT_PASSES_MERGE_DISTANCE_H
#define WEFT_PASSES_MERGE_DISTANCE_H

#include "base/arena.h"

#include <stdint.h>

/* A directed graph with labelled nodes. The operands of node i are from[first[i]] ..
 * from[first[i + 1] - 1], in order: index + 1 of the node that makes the operand, which is below i,
 * or 0 if no node makes it. */
typedef struct weft_plain_graph {
    uint32_t n;
    const uint32_t *label; /* small numbers: arrays are indexed by label */
    const uint32_t *first, *from;
} weft_plain_graph;

typedef enum weft_within { WEFT_WITHIN_NO, WEFT_WITHIN_YES, WEFT_WITHIN_UNKNOWN } weft_within;

/* The number of nodes and of edges between nodes. */
uint32_t weft_distance__size(const weft_plain_graph *g);
/* Whether at most `limit` edits turn one graph into the other; an edit removes or adds a node or an
 * edge, and nodes with different labels are different nodes. Reduces *budget by the number of
 * branches searched. If it is used up, or for graphs of more than 256 nodes, only the bound by
 * labels decides, and the result may be WEFT_WITHIN_UNKNOWN. */
weft_within weft_distance__within(const weft_plain_graph *a, const weft_plain_graph *b,
                                  uint32_t limit, uint32_t *budget, weft_arena *scratch);

#endif
