/* A bundle in memory for tests of request bodies:
 *
 *   "batched"  image f32[b,2], mask bool[b] -> y f32[b,2], z i64[b]
 *   "fixed"    n i64[3] -> m i64[3]
 *   "open"     h f16[b,s,2] -> k f16[b] */
#ifndef WEFT_TESTS_OIP_SUBJECT_H
#define WEFT_TESTS_OIP_SUBJECT_H

#include "runtime/server/oip_int.h"

#include <string.h>

enum { OIP_BATCHED, OIP_FIXED, OIP_OPEN, OIP_MODELS };

typedef struct oip_subject {
    weft_arena *arena;
    weft_bundle bundle;
    weft_bundle_program program[OIP_MODELS];
    weft_bundle_value value[OIP_MODELS][4];
} oip_subject;

static inline void oip_subject_type(weft_ttype *t, weft_dtype dtype, uint32_t rank, weft_dim a,
                                    weft_dim b, weft_dim c)
{
    *t = (weft_ttype){.dtype = dtype, .rank = rank};
    t->dim[0] = a;
    t->dim[1] = b;
    t->dim[2] = c;
}

static inline void oip_subject_open(oip_subject *s)
{
    static const char *const names[] = {"batched", "fixed", "open"};
    static const weft_bundle_port ports[OIP_MODELS][4] = {
        {{.name = "image", .value = 1},
         {.name = "mask", .value = 2},
         {.name = "y", .value = 3},
         {.name = "z", .value = 4}},
        {{.name = "n", .value = 1}, {.name = "m", .value = 2}},
        {{.name = "h", .value = 1}, {.name = "k", .value = 2}}};
    static const weft_bundle_symbol symbols[2] = {{"b", 1, 1000000}, {"s", 1, 1000000}};
    memset(s, 0, sizeof *s);
    s->arena = weft_arena_create(0);
    weft_dimpool *dims = weft_dimpool_create(s->arena);
    weft_dim b = weft_dim_symbol(dims, "b", 1, 1000000);
    weft_dim open = weft_dim_symbol(dims, "s", 1, 1000000);
    oip_subject_type(&s->value[0][0].type, WEFT_DTYPE_F32, 2, b, 2, 0);
    oip_subject_type(&s->value[0][1].type, WEFT_DTYPE_BOOL, 1, b, 0, 0);
    oip_subject_type(&s->value[0][2].type, WEFT_DTYPE_F32, 2, b, 2, 0);
    oip_subject_type(&s->value[0][3].type, WEFT_DTYPE_I64, 1, b, 0, 0);
    oip_subject_type(&s->value[1][0].type, WEFT_DTYPE_I64, 1, 3, 0, 0);
    oip_subject_type(&s->value[1][1].type, WEFT_DTYPE_I64, 1, 3, 0, 0);
    oip_subject_type(&s->value[2][0].type, WEFT_DTYPE_F16, 3, b, open, 2);
    oip_subject_type(&s->value[2][1].type, WEFT_DTYPE_F16, 1, b, 0, 0);
    for (int i = 0; i < OIP_MODELS; i++) {
        uint32_t n = i == OIP_BATCHED ? 2 : 1;
        s->program[i] = (weft_bundle_program){.name = names[i],
                                              .dims = dims,
                                              .symbol = symbols,
                                              .n_symbol = i == OIP_FIXED ? 0 : 2,
                                              .value = s->value[i],
                                              .n_value = 2 * n,
                                              .input = ports[i],
                                              .output = ports[i] + n,
                                              .n_input = n,
                                              .n_output = n,
                                              .batch_symbol = i == OIP_FIXED ? UINT32_MAX : 0};
    }
    s->bundle.program = s->program;
    s->bundle.n_program = OIP_MODELS;
}

#endif
