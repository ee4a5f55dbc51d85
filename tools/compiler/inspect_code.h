/* What weft inspect tells of code for GPUs. */
#ifndef WEFT_TOOLS_INSPECT_CODE_H
#define WEFT_TOOLS_INSPECT_CODE_H

#include "ir/bundle.h"

#include <jansson.h>

/* Images, kernels, commands (docs/bundle.md); null of a bundle without code. Owned. */
json_t *weft_tool_code_json(const weft_bundle *b);
/* As lines of text. */
void weft_tool_code_print(const json_t *code);

#endif
