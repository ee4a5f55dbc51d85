/* Folders of Weft below the user's; see user_path.h. */
#include "tools/common/user_path.h"

#include <stdio.h>
#include <stdlib.h>

bool weft_tool_user_path(const char *variable, const char *below, char *out, size_t size)
{
    const char *folder = getenv(variable), *home = getenv("HOME");
    bool is_set = folder && folder[0] == '/';
    if (!is_set && !(home && home[0]))
        return false;
    int n = snprintf(out, size, "%s%s/weft", is_set ? folder : home, is_set ? "" : below);
    return n > 0 && (size_t)n < size;
}
