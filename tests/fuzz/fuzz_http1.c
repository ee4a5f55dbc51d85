/* Bytes of a connection through the parser of HTTP/1.1.
 *
 * The first byte of the input gives the size of the pieces in which the rest arrives. Checked: all
 * at once, in these pieces and byte by byte, the same is read. */
#include "tests/support/http1_drive.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* In a block of exactly its size, so that a sanitizer detects reads past it. */
static char *read_in_pieces(const uint8_t *data, size_t size, size_t piece)
{
    http1_drive d = {0};
    char *block = malloc(size ? size : 1);
    if (!block)
        abort();
    memcpy(block, data, size);
    d.at = block;
    for (size_t arrived = 0; arrived < size && !d.ended;) {
        arrived = size - arrived < piece ? size : arrived + piece;
        http1_drive_feed(&d, block + arrived);
    }
    free(block);
    weft_buf_puts(&d.out, "");
    if (d.out.failed)
        abort();
    return d.out.at;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    char *whole = read_in_pieces(data + 1, size - 1, size);
    char *pieces = read_in_pieces(data + 1, size - 1, 1u + data[0]);
    char *bytes = read_in_pieces(data + 1, size - 1, 1);
    if (strcmp(whole, pieces) != 0 || strcmp(whole, bytes) != 0)
        abort();
    free(whole);
    free(pieces);
    free(bytes);
    return 0;
}
