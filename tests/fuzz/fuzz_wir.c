/* Text IR: a module that parses is printed, read back and printed the same; the verifier never
 * crashes. */
#include "ir/ir_int.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WEIGHTS_MAX_BYTES = 16 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_module *m = NULL, *again = NULL;
    weft_buf first = {0}, second = {0};
    weft_diag *diag = weft_diag_create();
    if (weft_module__parse((const char *)data, size, "fuzz.wir", NULL, WEIGHTS_MAX_BYTES, diag,
                           &m) == WEFT_ERR_OK) {
        weft_module_print(m, &first);
        if (weft_module_verify(m, diag) == WEFT_ERR_OK)
            weft_diag_clear(diag);
        if (weft_module__parse(first.at, first.len, "again.wir", NULL, WEIGHTS_MAX_BYTES, diag,
                               &again) != WEFT_ERR_OK)
            abort();
        weft_module_print(again, &second);
        if (first.len != second.len || memcmp(first.at, second.at, first.len) != 0)
            abort();
    } else if (weft_diag_count(diag) == 0) {
        abort(); /* an error without a message */
    }
    weft_module_destroy(m);
    weft_module_destroy(again);
    weft_buf_finish(&first);
    weft_buf_finish(&second);
    weft_diag_destroy(diag);
    return 0;
}
