/* Models of a set file as graphs. */
#ifndef WEFT_TOOLS_SET_IMPORT_H
#define WEFT_TOOLS_SET_IMPORT_H

#include "frontend/frontend.h"
#include "scheduler/scheduler.h"

/* Imports the model from its file, or its heads or steps from theirs into one graph. `options` are
 * defaults; the model has its own name, dims and values. The model has a file, heads or steps.
 * INPUT: the file does not have the inputs and outputs of the model's configuration. */
WEFT_MUST_USE weft_err weft_tool_import_model(weft_module *m, const weft_set_model *model,
                                              const weft_import_options *options, weft_arena *arena,
                                              weft_diag *diag, weft_graph **out);

#endif
