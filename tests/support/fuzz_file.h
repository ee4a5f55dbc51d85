/* A fuzz input as a file in memory, for readers that take a path. */
#ifndef WEFT_TESTS_FUZZ_FILE_H
#define WEFT_TESTS_FUZZ_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Returns a descriptor that the caller closes; `path` (at least 32 bytes) is valid while it is
 * open. */
static inline int fuzz_file_open(const uint8_t *data, size_t size, char *path)
{
    int fd = memfd_create("fuzz", 0);
    if (fd < 0)
        abort();
    for (size_t done = 0; done < size;) {
        ssize_t n = write(fd, data + done, size - done);
        if (n <= 0)
            abort();
        done += (size_t)n;
    }
    snprintf(path, 32, "/proc/self/fd/%d", fd);
    return fd;
}

#endif
