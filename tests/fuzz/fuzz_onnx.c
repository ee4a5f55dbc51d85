/* ONNX files: any input is imported or refused; an imported module passes the verifier. */
#include "frontend/frontend.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_module *m = weft_module_create((size_t)256 << 20);
    weft_diag *diag = weft_diag_create();
    weft_graph *g = NULL;
    if (m && diag &&
        weft_import_onnx_bytes(m, data, size, NULL, "fuzz.onnx", NULL, diag, &g) == WEFT_ERR_OK) {
        weft_err err = weft_module_verify(m, diag);
        if (err != WEFT_ERR_OK && err != WEFT_ERR_NOMEM)
            abort();
    }
    weft_diag_destroy(diag);
    weft_module_destroy(m);
    return 0;
}
