/* What `weft inspect` finds in a file, for `weft report` as well. */
#ifndef WEFT_TOOLS_INSPECT_H
#define WEFT_TOOLS_INSPECT_H

#include "base/arena.h"
#include "base/diag.h"

#include <jansson.h>
#include <stdbool.h>

/* Adds to `root` what is in an ONNX file, a text IR file or a bundle; "-" is standard input
 * (docs/bundle.md has the keys). `verify`: the weights of a bundle are read. */
WEFT_MUST_USE weft_err weft_tool_inspect(const char *file, bool verify, weft_diag *diag,
                                         weft_arena *arena, json_t *root);

#endif
