/* Compressed bodies and messages: any bytes are unpacked or refused. Checked: the limit holds, and
 * what is unpacked becomes the same again after packing in both forms. */
#include "runtime/server/zip.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_again(weft_zip_form form, const char *plain, size_t len)
{
    enum { BEFORE = 3 };
    uint8_t *packed;
    size_t packed_len, again_len;
    char *again;
    if (!weft_zip__pack(form, plain, len, BEFORE, &packed, &packed_len))
        return;
    if (packed_len > len + BEFORE ||
        weft_zip__unpack(packed + BEFORE, packed_len - BEFORE, len, &again, &again_len) !=
            WEFT_ZIP_OK ||
        again_len != len || memcmp(again, plain, len) != 0)
        abort();
    free(again);
    free(packed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *plain;
    size_t len, most = weft_zip__most(size, MOST);
    if (most > MOST)
        abort();
    if (weft_zip__unpack(data, size, most, &plain, &len) != WEFT_ZIP_OK) {
        if (plain)
            abort();
        return 0;
    }
    if (!plain || len > most)
        abort();
    check_again(WEFT_ZIP_GZIP, plain, len);
    check_again(WEFT_ZIP_DEFLATE, plain, len);
    free(plain);
    return 0;
}
