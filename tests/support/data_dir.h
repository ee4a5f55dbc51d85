/* Where published measurements lie: the folder that WEFT_DATA names, else ../shared/data beside the
 * source tree. Tests that need them skip without. */
#ifndef WEFT_TESTS_SUPPORT_DATA_DIR_H
#define WEFT_TESTS_SUPPORT_DATA_DIR_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Path of a file of the data, such as "neusight/linear.csv"; false: it is not there. */
static inline bool weft_data_path(const char *name, char *out, size_t size)
{
    const char *dir = getenv("WEFT_DATA");
    int len = dir && dir[0] ? snprintf(out, size, "%s/%s", dir, name)
                            : snprintf(out, size, "%s/../shared/data/%s", WEFT_SOURCE_DIR, name);
    return len > 0 && (size_t)len < size && access(out, R_OK) == 0;
}

#endif
