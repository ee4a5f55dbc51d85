/* Indices of bundles: any text is read or refused with a message. What is read has chunks that add
 * up to the bundle, within the limits, and is printed as the same text. */
#include "store/store.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_arena *arena = weft_arena_create(0);
    weft_diag *diag = weft_diag_create();
    char *text = malloc(size ? size : 1); /* of exactly the size, for the sanitizer */
    weft_chunk_index index;
    size_t len;
    if (!arena || !diag || !text)
        abort();
    if (size)
        memcpy(text, data, size);
    weft_err err = weft_chunk_parse_index(text, size, "index", arena, diag, &index);
    if (err != WEFT_ERR_OK && weft_diag_count(diag) == 0)
        abort();
    if (err == WEFT_ERR_OK) {
        uint64_t sum = 0;
        for (uint32_t i = 0; i < index.n_chunk; i++) {
            const weft_chunk *c = &index.chunk[i];
            if (c->bytes == 0 || c->bytes > WEFT_CHUNK_BYTES_MAX || c->stored >= c->bytes)
                abort();
            sum += c->bytes;
        }
        const char *again = weft_chunk_print_index(&index, arena, &len);
        if (sum != index.bytes || len != size || memcmp(again, text, len) != 0)
            abort();
    }
    free(text);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return 0;
}
