/* Where compiled kernels for GPUs are kept between runs. */
#ifndef WEFT_TOOLS_KERNEL_CACHE_H
#define WEFT_TOOLS_KERNEL_CACHE_H

#include "codegen/codegen.h"

enum { WEFT_TOOL_CACHE_PATH_MAX = 1024 };

typedef struct weft_tool_cache {
    weft_codegen_cache cache;
    char path[WEFT_TOOL_CACHE_PATH_MAX];
} weft_tool_cache;

/* The folder that `option` names, or WEFT_KERNEL_CACHE, or
 * ${XDG_CACHE_HOME:-~/.cache}/weft/kernels. Returns NULL for "off" or if there is no such folder.
 * `option` NULL: not given. The result is part of `out` and borrows `option`. */
weft_codegen_cache *weft_tool_kernel_cache(const char *option, weft_tool_cache *out);

#endif
