/* Set files: read or refused with a message, never a crash. */
#include "scheduler/scheduler.h"
#include "tests/support/fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_arena *arena = weft_arena_create(0);
    weft_diag *diag = weft_diag_create();
    weft_set read;
    char path[32];
    int fd = fuzz_file_open(data, size, path);
    if (weft_set_load(path, arena, diag, &read) != WEFT_ERR_OK && weft_diag_count(diag) == 0)
        abort();
    close(fd);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return 0;
}
