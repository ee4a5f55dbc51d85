/* Device code for GPUs, as `weft inspect` shows it. */
#ifndef WEFT_TOOLS_INSPECT_CODE_H
#define WEFT_TOOLS_INSPECT_CODE_H

#include "ir/bundle.h"

#include <jansson.h>

/* Images, kernels and commands (docs/bundle.md); null if the bundle has no code. Owned. */
json_t *weft_tool_code_json(const weft_bundle *b);
/* Prints the same as text. */
void weft_tool_code_print(const json_t *code);

#endif
