/* Bundles: any file is read or refused; a bundle that was read can be written and read again with
 * the same contents.
 *
 * Input: byte 0 and a file; or byte 1 and metadata, for which a file with correct checksums and
 * zeros as weights and images is built, so that the checks after the checksums are reached too. */
#include "tests/support/bundle_file.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_and_compare(const weft_bundle *b)
{
    const char *dir = getenv("TMPDIR");
    char path[2][256];
    char *bytes[2] = {NULL, NULL};
    size_t len[2] = {0, 0};
    weft_bundle *again = NULL;
    for (int i = 0; i < 2; i++)
        snprintf(path[i], sizeof path[i], "%s/fuzz-bundle-%ld-%d", dir ? dir : "/tmp",
                 (long)getpid(), i);
    if (weft_bundle_write(b, path[0], NULL) != WEFT_ERR_OK ||
        weft_bundle_open(path[0], NULL, &again) != WEFT_ERR_OK ||
        weft_bundle_write(again, path[1], NULL) != WEFT_ERR_OK ||
        weft_file_read(path[0], UINT64_MAX, NULL, &bytes[0], &len[0]) != WEFT_ERR_OK ||
        weft_file_read(path[1], UINT64_MAX, NULL, &bytes[1], &len[1]) != WEFT_ERR_OK ||
        len[0] != len[1] || memcmp(bytes[0], bytes[1], len[0]) != 0)
        abort();
    weft_bundle_close(again);
    free(bytes[0]);
    free(bytes[1]);
    unlink(path[0]);
    unlink(path[1]);
}

static void read_file(const uint8_t *file, size_t len)
{
    char path[64];
    int fd = memfd_create("bundle", 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    weft_bundle *b = NULL;
    if (fd >= 0 && write(fd, file, len) == (ssize_t)len &&
        weft_bundle_open(path, NULL, &b) == WEFT_ERR_OK) {
        for (uint32_t w = 1; w <= b->n_weight; w++)
            (void)!weft_bundle_check_weight(b, w, NULL);
        write_and_compare(b);
        weft_bundle_close(b);
    }
    if (fd >= 0)
        close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] == 0) {
        read_file(data + 1, size - 1);
        return 0;
    }
    uint8_t *file = NULL;
    size_t len = bundle_file_build(data + 1, size - 1, &file);
    if (file)
        read_file(file, len);
    free(file);
    return 0;
}
