/* Choosing algorithms by measuring them on this machine. */
#ifndef WEFT_TOOLS_TUNE_H
#define WEFT_TOOLS_TUNE_H

#include "tools/compiler/sources.h"
#include "tools/profile/pipeline.h"

/* Compiles the models once for each algorithm of convolutions, runs both versions at the smallest
 * batch size planned for, and lists the faster one of each convolution (in `arena`). What is found
 * holds for this CPU and differs from run to run: bundles made with it are not reproducible. */
WEFT_MUST_USE weft_err weft_tool_tune(char *const *file, int n_file,
                                      const weft_import_options *import,
                                      const weft_pass_options *options, weft_arena *arena,
                                      weft_diag *diag, weft_tuned_conv **out, size_t *out_n);

#endif
