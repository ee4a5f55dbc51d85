/* Where compiled kernels are kept; see kernel_cache.h. */
#include "tools/compiler/kernel_cache.h"

#include "tools/common/user_path.h"

#include <stdlib.h>
#include <string.h>

/* About 3,000 kernels. */
#define LIMIT_BYTES ((uint64_t)512 << 20)

weft_codegen_cache *weft_tool_kernel_cache(const char *option, weft_tool_cache *out)
{
    static const char kernels[] = "/kernels";
    const char *folder = option ? option : getenv("WEFT_KERNEL_CACHE");
    bool is_chosen = folder && *folder;
    *out = (weft_tool_cache){0};
    if (!is_chosen) {
        if (!weft_tool_user_path("XDG_CACHE_HOME", "/.cache", out->path,
                                 sizeof out->path - sizeof kernels))
            return NULL;
        strcat(out->path, kernels);
        folder = out->path;
    }
    if (strcmp(folder, "off") == 0)
        return NULL;
    out->cache = (weft_codegen_cache){
        .folder = folder, .limit_bytes = LIMIT_BYTES, .is_optional = !is_chosen};
    return &out->cache;
}
