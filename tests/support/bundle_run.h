/* Runs the programs of a bundle file on made-up inputs, with bounded memory. */
#ifndef WEFT_TESTS_SUPPORT_BUNDLE_RUN_H
#define WEFT_TESTS_SUPPORT_BUNDLE_RUN_H

#include "runtime/runtime.h"

#include <stdlib.h>
#include <string.h>

enum {
    RUN_PORTS_MAX = 32,
    RUN_ELEMENTS_MAX = 1 << 14, /* of all inputs */
    RUN_MEMORY_BYTES = 4 << 20,
    RUN_SYMBOL_MAX = 3 /* size of a symbol that may be so large */
};

/* Dims of the inputs, symbols at small sizes; false: a dim depends on something else, or there are
 * too many elements. */
static inline bool bundle_run_shape(const weft_bundle_program *p, weft_tensor *in)
{
    int64_t total = 0;
    for (uint32_t k = 0; k < p->n_input; k++) {
        const weft_ttype *t = &p->value[p->input[k].value - 1].type;
        in[k] = (weft_tensor){.dtype = (weft_dtype)t->dtype, .rank = (int32_t)t->rank};
        int64_t numel = 1;
        for (uint32_t d = 0; d < t->rank; d++) {
            int64_t size = t->dim[d];
            if (size < 0) {
                uint32_t s = weft_dim_as_symbol(p->dims, t->dim[d]);
                if (s >= p->n_symbol)
                    return false;
                size = p->symbol[s].lo > RUN_SYMBOL_MAX   ? p->symbol[s].lo
                       : p->symbol[s].hi < RUN_SYMBOL_MAX ? p->symbol[s].hi
                                                          : RUN_SYMBOL_MAX;
            }
            if (size > RUN_ELEMENTS_MAX)
                return false;
            in[k].dim[d] = size;
            numel *= size;
            if (numel > RUN_ELEMENTS_MAX)
                return false;
        }
        total += numel;
        if (total > RUN_ELEMENTS_MAX)
            return false;
    }
    return true;
}

/* Whether a program or a body of it has an operator whose time no size bounds. */
static inline bool bundle_run_may_not_end(const weft_bundle *b)
{
    for (uint32_t i = 0; i < b->n_program + b->n_joint + b->n_body; i++)
        for (uint32_t k = 0; k < b->program[i].n_launch; k++)
            if (b->program[i].launch[k].op == WEFT_OP_LOOP)
                return true;
    return false;
}

static inline void bundle_run_one(weft_engine *engine, const weft_bundle_program *p,
                                  const uint8_t *pattern, size_t n_pattern, weft_diag *diag)
{
    weft_tensor in[RUN_PORTS_MAX], out[RUN_PORTS_MAX];
    weft_session *session = NULL;
    if (p->n_input > RUN_PORTS_MAX || p->n_output > RUN_PORTS_MAX || !bundle_run_shape(p, in))
        return;
    for (uint32_t k = 0; k < p->n_input; k++) {
        size_t bytes = weft_tensor_bytes(&in[k]);
        uint8_t *data = aligned_alloc(64, (bytes + 64) / 64 * 64);
        if (!data)
            abort();
        for (size_t i = 0; i < bytes; i++)
            data[i] = n_pattern ? pattern[i % n_pattern] : 0;
        if (in[k].dtype == WEFT_DTYPE_BOOL)
            for (size_t i = 0; i < bytes; i++)
                data[i] &= 1;
        in[k].data = data;
    }
    if (weft_session_open(engine, p->name, diag, &session) == WEFT_ERR_OK)
        (void)!weft_session_run(session, in, p->n_input, diag, out, p->n_output);
    weft_session_close(session);
    for (uint32_t k = 0; k < p->n_input; k++)
        free(in[k].data);
}

/* Inputs repeat the bytes of `pattern`. */
static inline void bundle_run_file(const char *path, const uint8_t *pattern, size_t n_pattern)
{
    const weft_engine_options options = {
        .driver = "cpu", .threads = 1, .mem_limit_bytes = RUN_MEMORY_BYTES};
    weft_engine *engine = NULL;
    weft_diag *diag = weft_diag_create();
    if (weft_engine_open(path, &options, diag, &engine) == WEFT_ERR_OK &&
        !bundle_run_may_not_end(weft_engine_bundle(engine))) {
        const weft_bundle *b = weft_engine_bundle(engine);
        for (uint32_t i = 0; i < b->n_program + b->n_joint; i++)
            bundle_run_one(engine, &b->program[i], pattern, n_pattern, diag);
    }
    weft_engine_close(engine);
    weft_diag_destroy(diag);
}

#endif
