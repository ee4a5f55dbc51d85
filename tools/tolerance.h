/* What `--merge-tolerance` does to the answers of the models, measured. */
#ifndef WEFT_TOOLS_TOLERANCE_H
#define WEFT_TOOLS_TOLERANCE_H

#include "tools/compile.h"

/* One output of one model: the largest difference over all inputs tried, over its largest element.
 */
typedef struct weft_tool_change {
    const char *model, *output;
    double difference;
    uint32_t runs; /* inputs that were tried */
} weft_tool_change;

typedef struct weft_tool_changes {
    weft_tool_change *at;
    uint32_t n;
} weft_tool_changes;

/* Compiles the models for the CPU twice, with the tolerance and bit by bit, and runs both on the
 * same made-up inputs at several sizes. Lives in `arena`. */
WEFT_MUST_USE weft_err weft_tool_measure_tolerance(char *const *file, int n_file,
                                                   const weft_import_options *import,
                                                   const weft_pass_options *options,
                                                   weft_arena *arena, weft_diag *diag,
                                                   weft_tool_changes *out);

#endif
