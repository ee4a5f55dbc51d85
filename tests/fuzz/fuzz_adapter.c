/* Adapters as PEFT writes them: any bytes are read or refused with a message. A file of the corpus
 * is the configuration, a NUL, then the safetensors file. Checked: factors are finite and have the
 * sizes that they say. */
#include "runtime/adapter/adapter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_numbers(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (isnan(x[i]))
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    size_t config = end ? (size_t)(end - data) : size;
    size_t rest = end ? size - config - 1 : 0;
    weft_arena *arena = weft_arena_create(0);
    weft_diag *diag = weft_diag_create();
    uint8_t *tensors = malloc(rest + 1); /* of exactly the size, for the sanitizer */
    weft_peft peft = {0};
    if (!arena || !diag || !tensors)
        abort();
    if (rest)
        memcpy(tensors, end + 1, rest);
    tensors = realloc(tensors, rest ? rest : 1);
    weft_err err =
        weft_peft_parse((const char *)data, config, tensors, rest, "adapter", arena, diag, &peft);
    if (err != WEFT_ERR_OK && weft_diag_count(diag) == 0)
        abort();
    for (uint32_t i = 0; err == WEFT_ERR_OK && i < peft.n; i++) {
        const weft_peft_module *m = &peft.module[i];
        check_numbers(m->a, m->rank * m->k);
        check_numbers(m->b, m->rank * m->n);
    }
    free(tensors);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return 0;
}
