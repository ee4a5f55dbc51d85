/* The folder of published measurements: WEFT_DATA, or ../shared/data beside the source tree. Tests
 * that need a file skip if it does not exist. */
#ifndef WEFT_TESTS_SUPPORT_DATA_DIR_H
#define WEFT_TESTS_SUPPORT_DATA_DIR_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Path of a data file, such as "neusight/linear.csv"; false: it does not exist. */
static inline bool weft_data_path(const char *name, char *out, size_t size)
{
    const char *dir = getenv("WEFT_DATA");
    int len = dir && dir[0] ? snprintf(out, size, "%s/%s", dir, name)
                            : snprintf(out, size, "%s/../shared/data/%s", WEFT_SOURCE_DIR, name);
    return len > 0 && (size_t)len < size && access(out, R_OK) == 0;
}

#endif
