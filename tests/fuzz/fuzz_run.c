/* Bundles through the CPU driver: any file is refused when it is opened, when a model of it is
 * prepared or when it runs, or runs to its end.
 *
 * Input: a byte that inputs are filled with, and metadata, for which a file with correct checksums
 * and zeros as weights is built.
 *
 * Corpus: bundle */
#include "tests/support/bundle_file.h"
#include "tests/support/bundle_run.h"
#include "tests/support/fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *file = NULL;
    char path[32];
    if (size == 0)
        return 0;
    size_t len = bundle_file_build(data + 1, size - 1, &file);
    if (file) {
        int fd = fuzz_file_open(file, len, path);
        bundle_run_file(path, data, 1);
        close(fd);
    }
    free(file);
    return 0;
}
