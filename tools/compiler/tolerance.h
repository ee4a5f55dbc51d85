/* Measured effect of `--merge-tolerance` and `--deltas near` on the outputs of the models. */
#ifndef WEFT_TOOLS_TOLERANCE_H
#define WEFT_TOOLS_TOLERANCE_H

#include "tools/compiler/sources.h"
#include "tools/compiler/measure_error.h"

/* Compiles the models for the CPU with these options and without them, and runs both bundles on the
 * same synthetic inputs at several sizes. The result lives in `arena`. */
WEFT_MUST_USE weft_err weft_tool_measure_tolerance(char *const *file, int n_file,
                                                   const weft_import_options *import,
                                                   const weft_pass_options *options,
                                                   weft_arena *arena, weft_diag *diag,
                                                   weft_tool_changes *out);

#endif
