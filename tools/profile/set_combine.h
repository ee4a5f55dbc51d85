/* Ensembles: the answers of several heads as one. */
#ifndef WEFT_TOOLS_SET_COMBINE_H
#define WEFT_TOOLS_SET_COMBINE_H

#include "ir/ir.h"
#include "scheduler/scheduler.h"

/* Replaces the outputs HEAD/NAME of the model's graph by their combinations, called NAME. INPUT:
 * the heads have different outputs. UNSUP: some cannot be combined. */
WEFT_MUST_USE weft_err weft_tool_combine(weft_graph *g, const weft_set_model *model,
                                         weft_arena *arena, weft_diag *diag);

#endif
