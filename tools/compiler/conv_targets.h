/* Plans of cuDNN for the convolutions of a bundle. */
#ifndef WEFT_TOOLS_COMPILER_CONV_TARGETS_H
#define WEFT_TOOLS_COMPILER_CONV_TARGETS_H

#include "runtime/runtime.h"

/* Adds plans to a bundle for GPUs where cuDNN is installed: for device `gpu`, if one of the
 * bundle's architectures is its own, and for the first device of the table of each other
 * architecture. gpu: NULL for none. */
WEFT_MUST_USE weft_err weft_tool_plan_convs(weft_bundle *bundle, const char *gpu, weft_arena *arena,
                                            weft_conv_planning *out);

#endif
