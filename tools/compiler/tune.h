/* Chooses algorithms by measuring them on this machine. */
#ifndef WEFT_TOOLS_TUNE_H
#define WEFT_TOOLS_TUNE_H

#include "tools/compiler/sources.h"
#include "tools/profile/pipeline.h"

/* Compiles the models once for each algorithm of convolutions, runs both versions at the
 * smallest planned batch size, and lists the faster algorithm of each convolution (in `arena`).
 * The result holds for this CPU and varies between runs: bundles made with it are not
 * reproducible. */
WEFT_MUST_USE weft_err weft_tool_tune(char *const *file, int n_file,
                                      const weft_import_options *import,
                                      const weft_pass_options *options, weft_arena *arena,
                                      weft_diag *diag, weft_tuned_conv **out, size_t *out_n);

#endif
