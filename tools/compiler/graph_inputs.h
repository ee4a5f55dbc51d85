/* Synthetic inputs of graphs. */
#ifndef WEFT_TOOLS_GRAPH_INPUTS_H
#define WEFT_TOOLS_GRAPH_INPUTS_H

#include "ir/ir.h"

/* Returns the lower bound of each symbol, at least 1. */
int64_t *weft_tool_smallest_symbols(const weft_graph *g, weft_arena *arena);
/* Makes the inputs for these values of the graph's symbols. INPUT: an input has no size. */
WEFT_MUST_USE weft_err weft_tool_make_graph_inputs(weft_graph *g, const int64_t *symbol,
                                                   weft_arena *arena, weft_diag *diag,
                                                   weft_tensor *in);

#endif
