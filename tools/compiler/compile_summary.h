/* What `weft compile` says of the bundle that it wrote. */
#ifndef WEFT_TOOLS_COMPILE_SUMMARY_H
#define WEFT_TOOLS_COMPILE_SUMMARY_H

#include "ir/bundle.h"
#include "passes/passes.h"

/* Three lines on standard output: the file, its weights and what sharing saves, what is merged.
 * `merges`: whether merging was asked for. */
void weft_tool_print_compiled(const char *path, const weft_bundle *bundle,
                              const weft_merge_log *log, bool merges);

#endif
