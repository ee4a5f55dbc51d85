/* Private to base/file*.c. */
#ifndef WEFT_BASE_FILE_INT_H
#define WEFT_BASE_FILE_INT_H

#include "base/file.h"

/* weft_file_read of a descriptor. */
weft_err weft_file__read_fd(int fd, const char *path, uint64_t limit_bytes, weft_diag *diag,
                            char **out, size_t *out_len);

#endif
