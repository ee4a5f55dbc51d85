/* config.pbtxt of Triton's models: read or refused with a message, never a crash. */
#include "scheduler/input/model_config.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_arena *arena = weft_arena_create(0);
    weft_diag *diag = weft_diag_create();
    char *text = malloc(size + 1);
    weft_model_config config;
    if (!arena || !diag || !text)
        abort();
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    if (weft_set__parse_config(text, size, "config.pbtxt", arena, diag, &config) != WEFT_ERR_OK &&
        weft_diag_count(diag) == 0)
        abort();
    free(text);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return 0;
}
