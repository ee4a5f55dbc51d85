/* What `weft compile` says of the bundle that it wrote. */
#ifndef WEFT_TOOLS_COMPILE_SUMMARY_H
#define WEFT_TOOLS_COMPILE_SUMMARY_H

#include "codegen/codegen.h"
#include "passes/passes.h"

/* Lines on standard output: the file, its weights and what sharing saves, what is merged, and of
 * kernels for GPUs how many were compiled. `merges`: whether merging was asked for; `cache` NULL:
 * none. */
void weft_tool_print_compiled(const char *path, const weft_bundle *bundle,
                              const weft_merge_log *log, bool merges,
                              const weft_codegen_cache *cache);

#endif
