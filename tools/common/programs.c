/* Programs of Weft: where they are. */
#include "tools/common/programs.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether DIR/program can be executed. `len`: of `dir`. */
static bool is_in(const char *dir, size_t len, const char *below, const char *program,
                  char out[WEFT_PROGRAM_PATH_MAX])
{
    int n = snprintf(out, WEFT_PROGRAM_PATH_MAX, "%.*s%s/%s", (int)len, dir, below, program);
    return n > 0 && n < WEFT_PROGRAM_PATH_MAX && access(out, X_OK) == 0;
}

bool weft_program_find(const char *program, char out[WEFT_PROGRAM_PATH_MAX])
{
    char self[WEFT_PROGRAM_PATH_MAX];
    const char *dir = getenv("WEFT_LIBEXEC");
    if (dir && *dir) {
        if (is_in(dir, strlen(dir), "", program, out))
            return true;
        fprintf(stderr, "weft: there is no program %s in %s (WEFT_LIBEXEC)\n", program, dir);
        return false;
    }
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(self, '/');
    size_t len = slash ? (size_t)(slash - self) : 0;
    if (slash &&
        (is_in(self, len, "", program, out) || is_in(self, len, "/../libexec/weft", program, out)))
        return true;
    fprintf(
        stderr,
        "weft: the program %s is not installed: it is neither in %.*s nor in %.*s/../libexec/weft"
        "; the environment variable WEFT_LIBEXEC may name its folder\n",
        program, (int)len, self, (int)len, self);
    return false;
}
