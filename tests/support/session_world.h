/* Programs for tests of sessions: values, weights and launches as plain structs, as the bundle
 * reader would return them. */
#ifndef WEFT_TESTS_SESSION_WORLD_H
#define WEFT_TESTS_SESSION_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/driver_int.h"
#include "tests/support/rand.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VALUES = 96, LAUNCHES = 16 };

/* -- Programs by hand ----------------------------------------------------------------------- */

typedef struct world {
    weft_arena *arena;
    weft_diag *diag;
    weft_dimpool *pool;
    weft_bundle bundle;
    weft_bundle_program program;
    weft_bundle_value value[VALUES];
    weft_bundle_weight weight[VALUES];
    weft_bundle_launch launch[LAUNCHES];
    weft_bundle_port input[8], output[8];
    weft_bundle_symbol symbol[4];
    weft_tensor in[8];
    uint64_t seed;
    weft_engine *engine;
    weft_session *session;
} world;

static inline void init_world(world *w)
{
    memset(w, 0, sizeof *w);
    w->arena = weft_arena_create(0);
    w->diag = weft_diag_create();
    w->pool = weft_dimpool_create(w->arena);
    w->program = (weft_bundle_program){.name = "m",
                                       .dims = w->pool,
                                       .symbol = w->symbol,
                                       .value = w->value,
                                       .launch = w->launch,
                                       .input = w->input,
                                       .output = w->output,
                                       .batch_symbol = UINT32_MAX};
    w->bundle = (weft_bundle){.weight = w->weight, .program = &w->program, .n_program = 1};
    w->seed = 1;
}

static inline void finish_world(world *w)
{
    weft_session_close(w->session);
    weft_engine_close(w->engine);
    weft_diag_destroy(w->diag);
    weft_arena_destroy(w->arena);
}

static uint32_t add_value(world *w, weft_dtype dtype, weft_layout layout, uint32_t rank,
                          const int64_t *dim)
{
    weft_bundle_value *v = &w->value[w->program.n_value++];
    v->type.dtype = (uint8_t)dtype;
    v->type.layout = (uint8_t)layout;
    v->type.rank = (uint8_t)rank;
    for (uint32_t d = 0; d < rank; d++)
        v->type.dim[d] = dim[d];
    return w->program.n_value;
}

static inline weft_tensor make_tensor(world *w, weft_dtype dtype, uint32_t rank, const int64_t *dim)
{
    weft_tensor t = {.dtype = dtype, .rank = (int32_t)rank};
    memcpy(t.dim, dim, rank * sizeof *dim);
    int64_t n = weft_numel(t.dim, t.rank);
    t.data = weft_arena_alloc(w->arena, (size_t)n * weft_dtype_size(dtype) + 64);
    t.data = (void *)(((uintptr_t)t.data + 63) / 64 * 64);
    for (int64_t i = 0; i < n; i++)
        weft_tensor_set_f64(
            &t, i, dtype == WEFT_DTYPE_F32 ? rand_signed(&w->seed) : rand_signed(&w->seed) > 0);
    return t;
}

static uint32_t add_weight(world *w, weft_tensor t)
{
    weft_bundle_weight *to = &w->weight[w->bundle.n_weight++];
    uint32_t v = add_value(w, t.dtype, WEFT_LAYOUT_PLAIN, (uint32_t)t.rank, t.dim);
    to->dtype = t.dtype;
    to->rank = (uint32_t)t.rank;
    memcpy(to->dim, t.dim, sizeof t.dim);
    to->data = t.data;
    to->bytes = weft_tensor_bytes(&t);
    to->checksum = weft_hash64(to->data, to->bytes, 0);
    to->name = "w";
    w->value[v - 1].weight = w->bundle.n_weight;
    return v;
}

static inline uint32_t add_input(world *w, weft_tensor t)
{
    uint32_t v = add_value(w, t.dtype, WEFT_LAYOUT_PLAIN, (uint32_t)t.rank, t.dim);
    w->in[w->program.n_input] = t;
    w->input[w->program.n_input++] = (weft_bundle_port){.name = "x", .value = v};
    return v;
}

static inline void add_launch_outs(world *w, weft_op_id op, weft_attrs attrs, const uint32_t *in,
                                   uint32_t n_in, const uint32_t *out, uint32_t n_out)
{
    uint32_t *ins = weft_arena_array(w->arena, n_in, sizeof *ins);
    uint32_t *outs = weft_arena_array(w->arena, n_out, sizeof *outs);
    memcpy(ins, in, n_in * sizeof *ins);
    memcpy(outs, out, n_out * sizeof *outs);
    w->launch[w->program.n_launch++] = (weft_bundle_launch){.op = op,
                                                            .in = ins,
                                                            .n_in = n_in,
                                                            .out = outs,
                                                            .n_out = n_out,
                                                            .attrs = attrs,
                                                            .item = "node"};
}

static inline void add_launch(world *w, weft_op_id op, weft_attrs attrs, const uint32_t *in,
                              uint32_t n_in, uint32_t out)
{
    add_launch_outs(w, op, attrs, in, n_in, &out, 1);
}

static inline void add_output(world *w, uint32_t v)
{
    w->output[w->program.n_output++] = (weft_bundle_port){.name = "y", .value = v};
}

static inline void open_world(world *w, uint32_t threads)
{
    weft_engine_options options = {.threads = threads};
    assert_int_equal(weft_engine_open_bundle(&w->bundle, &options, w->diag, &w->engine), 0);
    assert_int_equal(weft_session_open(w->engine, "m", w->diag, &w->session), 0);
}

static inline void explain(world *w)
{
    char text[512];
    for (size_t i = 0; i < weft_diag_count(w->diag); i++) {
        weft_diag_format(weft_diag_at(w->diag, i), text, sizeof text);
        print_message("%s\n", text);
    }
}

static uint32_t parse_dims(const char *s, int64_t *dim)
{
    uint32_t n = 0;
    while (*s) {
        dim[n++] = strtoll(s, (char **)(uintptr_t)&s, 10);
        s += *s == ',';
    }
    return n;
}

static inline weft_attrs parse_attrs(world *w, const char *const *text)
{
    weft_attr *at = weft_arena_array(w->arena, 8, sizeof *at);
    uint32_t n = 0;
    for (; text[2 * n]; n++) {
        weft_attr a = {.key = (uint16_t)weft_attr_key_parse(text[2 * n])};
        const char *v = text[2 * n + 1];
        int64_t list[16];
        if (v[0] == 'i') {
            a.kind = WEFT_KIND_INT;
            a.u.i = atoll(v + 2);
        } else if (v[0] == 'f') {
            a.kind = WEFT_KIND_FLOAT;
            a.u.f = atof(v + 2);
        } else if (v[0] == 's') {
            a.kind = WEFT_KIND_STR;
            a.u.s = v + 2;
        } else if (v[0] == 'l') {
            a.kind = WEFT_KIND_INTS;
            a.n = parse_dims(v + 2, list);
            int64_t *copy = weft_arena_array(w->arena, a.n, sizeof *copy);
            memcpy(copy, list, a.n * sizeof *copy);
            a.u.ints = copy;
        } else {
            const char **strs = weft_arena_array(w->arena, 16, sizeof *strs);
            char *copy = weft_arena_strdup(w->arena, v + 2);
            a.kind = WEFT_KIND_STRS;
            for (char *s = strtok(copy, ";"); s; s = strtok(NULL, ";"))
                strs[a.n++] = s;
            a.u.strs = strs;
        }
        uint32_t to = n;
        for (; to > 0 && at[to - 1].key > a.key; to--)
            at[to] = at[to - 1];
        at[to] = a;
    }
    return (weft_attrs){.at = at, .n = n};
}

#endif
