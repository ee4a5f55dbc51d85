/* How many edits make one graph of another. */
#ifndef WEFT_PASSES_MERGE_DISTANCE_H
#define WEFT_PASSES_MERGE_DISTANCE_H

#include "base/arena.h"

#include <stdint.h>

/* Nodes with labels; node i takes from[first[i]] .. from[first[i + 1] - 1], in that order: 1 +
 * number of the node that makes it, one before it, or 0: something else. */
typedef struct weft_plain_graph {
    uint32_t n;
    const uint32_t *label; /* small numbers: there is an array of them */
    const uint32_t *first, *from;
} weft_plain_graph;

typedef enum weft_within { WEFT_WITHIN_NO, WEFT_WITHIN_YES, WEFT_WITHIN_UNKNOWN } weft_within;

/* Nodes, and edges between nodes. */
uint32_t weft_distance__size(const weft_plain_graph *g);
/* Whether `limit` edits do: each takes away or adds a node or an edge, other labels are other
 * nodes. Takes as many of *steps as it needs; with none left, or for larger graphs, only what the
 * labels tell is known. */
weft_within weft_distance__within(const weft_plain_graph *a, const weft_plain_graph *b,
                                  uint32_t limit, uint32_t *steps, weft_arena *scratch);

#endif
