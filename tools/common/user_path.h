/* Folders of Weft below the user's, as the XDG base directories are. */
#ifndef WEFT_TOOLS_USER_PATH_H
#define WEFT_TOOLS_USER_PATH_H

#include <stdbool.h>
#include <stddef.h>

/* ${VARIABLE:-~BELOW}/weft, for example ("XDG_STATE_HOME", "/.local/state"); a relative path in the
 * variable is ignored. False: neither the variable nor HOME is set, or the path is too long. */
bool weft_tool_user_path(const char *variable, const char *below, char *out, size_t size);

#endif
