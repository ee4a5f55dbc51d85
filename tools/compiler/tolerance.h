/* What `--merge-tolerance` does to the answers of the models, measured. */
#ifndef WEFT_TOOLS_TOLERANCE_H
#define WEFT_TOOLS_TOLERANCE_H

#include "tools/compiler/sources.h"
#include "tools/compiler/measure_error.h"

/* Compiles the models for the CPU twice, with the tolerance and bit by bit, and runs both on the
 * same made-up inputs at several sizes. Lives in `arena`. */
WEFT_MUST_USE weft_err weft_tool_measure_tolerance(char *const *file, int n_file,
                                                   const weft_import_options *import,
                                                   const weft_pass_options *options,
                                                   weft_arena *arena, weft_diag *diag,
                                                   weft_tool_changes *out);

#endif
