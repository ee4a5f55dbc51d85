/* Pseudo-random inputs for programs of a bundle; equal seeds give equal inputs. */
#ifndef WEFT_TESTS_SUPPORT_MADE_INPUTS_H
#define WEFT_TESTS_SUPPORT_MADE_INPUTS_H

#include "base/arena.h"
#include "ir/bundle.h"
#include "tests/support/rand.h"

#include <string.h>

/* Inputs of the program for these values of its symbols. Floats are in -1 .. 1. Integers are 0 or
 * 1, so that they are valid indices; the first of each row is 1, because an attention mask of
 * zeros leaves scores that are only rounding errors. false: a dimension has no value. */
static inline bool make_inputs(const weft_bundle_program *p, const int64_t *symbol, uint64_t *seed,
                               weft_arena *arena, weft_tensor *in)
{
    for (uint32_t i = 0; i < p->n_input; i++) {
        const weft_ttype *t = &p->value[p->input[i].value - 1].type;
        in[i] = (weft_tensor){.dtype = (weft_dtype)t->dtype, .rank = t->rank};
        for (uint32_t d = 0; d < t->rank; d++)
            if (!weft_dim_eval(p->dims, t->dim[d], symbol, p->n_symbol, &in[i].dim[d]))
                return false;
        in[i].data = weft_arena_alloc(arena, weft_tensor_bytes(&in[i]) + 64);
        in[i].data = (void *)(((uintptr_t)in[i].data + 63) / 64 * 64);
        for (int64_t k = 0; k < weft_tensor_numel(&in[i]); k++) {
            double u = (double)(rand_next(seed) % 2001) / 1000 - 1;
            bool first = in[i].rank > 0 && k % in[i].dim[in[i].rank - 1] == 0;
            weft_tensor_set_f64(&in[i], k, weft_dtype_is_float(in[i].dtype) ? u : first || u < 0);
        }
    }
    return true;
}

#endif
