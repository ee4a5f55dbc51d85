/* Fused attention for GPUs: the kernels of emit_attention.c against the operator's reference, over
 * element types, head sizes, lengths, masks, parts of wider matrices, crooked addresses, NaN and
 * infinities. */
#include "ir/ir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/cuda_case.h"
#include "tests/support/typed_text.h"

/* Types are written T[...]; ?b, ?s: batch and length. */
typedef struct attention_case {
    const char *inputs, *node;
    bool symbol;
} attention_case;

static const attention_case cases[] = {
    {"%q : T[?b,?s,32], %k : T[?b,?s,32], %v : T[?b,?s,32]",
     "T[?b,?s,32] = attention %q, %k, %v {head_dim = 16, heads = 2, scale = 0.25}", true},
    /* One matrix of all three, with a mask of rows. */
    {"%q : T[?b,?s,192], %m : T[?b,1,1,?s]",
     "T[?b,?s,64] = attention %q, %q, %q, %m {head_dim = 64, heads = 1, k_offset = 64, scale = "
     "0.125, v_offset = 128}",
     true},
    /* Causal: a mask of booleans, filled. */
    {"%q : T[2,70,24], %m : bool[70,70]",
     "T[2,70,8] = attention %q, %q, %q, %m {fill = -3.4028234663852886e+38, head_dim = 4, heads = "
     "2, k_offset = 8, v_offset = 16}",
     false},
    {"%q : T[2,33,24], %k : T[2,90,30], %v : T[2,90,25], %m : bool[2,1,33,90]",
     "T[2,33,24] = attention %q, %k, %v, %m {head_dim = 12, heads = 2, k_offset = 6, scale = 0.3, "
     "v_offset = 1}",
     false},
    /* Lengths across tiles, mask of heads. */
    {"%q : T[1,65,80], %k : T[1,130,80], %v : T[1,130,80], %m : T[1,1,130]",
     "T[1,65,80] = attention %q, %k, %v, %m {head_dim = 80, heads = 1, scale = 0.1}", false},
    {"%q : T[1,17,256], %k : T[1,67,256], %v : T[1,67,256], %m : T[2,17,1]",
     "T[1,17,256] = attention %q, %k, %v, %m {head_dim = 128, heads = 2, scale = 0.08}", false},
    {"%q : T[1,18,256], %k : T[1,37,256], %v : T[1,37,256]",
     "T[1,18,256] = attention %q, %k, %v {head_dim = 256, heads = 1, scale = 0.06}", false},
    {"%q : T[1,5,66], %k : T[1,3,66], %v : T[1,3,66]",
     "T[1,5,66] = attention %q, %k, %v {head_dim = 33, heads = 2, scale = 0.2}", false},
    /* Enough rows for the larger block. */
    {"%q : T[4,65,96], %k : T[4,20,96], %v : T[4,20,96]",
     "T[4,65,96] = attention %q, %k, %v {head_dim = 8, heads = 12, scale = 0.3}", false},
    /* One key, none. */
    {"%q : T[1,4,8], %k : T[1,1,8], %v : T[1,1,8]",
     "T[1,4,8] = attention %q, %k, %v {head_dim = 8, heads = 1}", false},
    {"%q : T[1,4,8], %k : T[1,0,8], %v : T[1,0,8]",
     "T[1,4,8] = attention %q, %k, %v {head_dim = 8, heads = 1}", false},
};

enum { CASES = sizeof cases / sizeof cases[0] };

static cuda_case *start_cases(const char *type)
{
    weft_buf text = {0};
    weft_buf_puts(&text, "wir 1 kernel\nsymbol ?b = [0, 64]\nsymbol ?s = [1, 512]\n");
    for (int i = 0; i < CASES; i++) {
        weft_buf_printf(&text, "graph @case%d_%s (", i, type);
        put_typed(&text, cases[i].inputs, type);
        weft_buf_printf(&text, ") {\n%s  %%y : ",
                        cases[i].symbol ? "  symbol ?b \"b\"\n  symbol ?s \"s\"\n" : "");
        put_typed(&text, cases[i].node, type);
        weft_buf_puts(&text, "\n  return \"y\" %y\n}\n");
    }
    cuda_case *c = cuda_case_start(text.at);
    weft_buf_finish(&text);
    return c;
}

static void run_cases(const char *type)
{
    cuda_case *c = start_cases(type);
    for (uint32_t i = 0; i < CASES; i++) {
        const int64_t size[2] = {2, 37};
        cuda_case_verify(c, i, &(cuda_case_spec){.symbol = size});
        cuda_case_verify(c, i, &(cuda_case_spec){.symbol = size, .shift = 3});
        cuda_case_verify(c, i, &(cuda_case_spec){.symbol = size, .shift = 8, .special = true});
    }
    for (uint32_t i = 0; i < 2; i++) {
        cuda_case_verify(c, i, &(cuda_case_spec){.symbol = (int64_t[]){0, 5}});
        cuda_case_verify(c, i, &(cuda_case_spec){.symbol = (int64_t[]){1, 1}});
        cuda_case_verify(c, i, &(cuda_case_spec){.symbol = (int64_t[]){3, 129}});
    }
    /* Only then: many rows. */
    cuda_case_verify(c, 0, &(cuda_case_spec){.symbol = (int64_t[]){49, 10}});
    cuda_case_stop(c);
}

static void test_cuda_attention__f32_is_the_reference(void **state)
{
    (void)state;
    run_cases("f32");
}

static void test_cuda_attention__f16_is_the_reference(void **state)
{
    (void)state;
    run_cases("f16");
}

static void test_cuda_attention__bf16_is_the_reference(void **state)
{
    (void)state;
    run_cases("bf16");
}

/* Rows that see no key at all are NaN when they are filled with -infinity, and the mean of all
 * values when they are filled with the smallest number. */
static void test_cuda_attention__rows_without_keys(void **state)
{
    (void)state;
    cuda_case *c = cuda_case_start(
        "wir 1 kernel\n"
        "graph @a (%q : f16[1,20,8], %k : f16[1,100,8], %v : f16[1,100,8], %m : bool[20,100]) {\n"
        "  %y : f16[1,20,8] = attention %q, %k, %v, %m {head_dim = 8, heads = 1}\n"
        "  return \"y\" %y\n}\n"
        "graph @b (%q : f32[1,20,8], %k : f32[1,100,8], %v : f32[1,100,8], %m : bool[20,100]) {\n"
        "  %y : f32[1,20,8] = attention %q, %k, %v, %m {fill = -3.4028234663852886e+38, head_dim = "
        "8, "
        "heads = 1}\n  return \"y\" %y\n}\n");
    bool mask[20 * 100];
    for (int i = 0; i < 20 * 100; i++)
        mask[i] = i / 100 == 7 ? false : i / 100 == 9 ? i % 100 > 90 : i % 3 == 0;
    for (uint32_t g = 0; g < 2; g++) {
        weft_dtype type = g ? WEFT_DTYPE_F32 : WEFT_DTYPE_F16;
        static unsigned char data[3][100 * 8 * 4];
        uint64_t seed = 3;
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 100 * 8; j++)
                cuda_case_put(type, data[i], j, cuda_case_random(&seed));
        const weft_tensor in[4] = {
            {.dtype = type, .rank = 3, .dim = {1, 20, 8}, .data = data[0]},
            {.dtype = type, .rank = 3, .dim = {1, 100, 8}, .data = data[1]},
            {.dtype = type, .rank = 3, .dim = {1, 100, 8}, .data = data[2]},
            {.dtype = WEFT_DTYPE_BOOL, .rank = 2, .dim = {20, 100}, .data = mask}};
        weft_tensor want, have;
        weft_arena *arena = weft_arena_create(0);
        cuda_case_check(c,
                        weft_graph_eval(weft_graph_at(c->m, g), in, 4, arena, c->diag, &want, 1));
        cuda_case_go(c, g, in, 1, 0, &have);
        cuda_case_compare("masked", &have, &want, cuda_case_tolerance(type));
        assert_true(isnan(weft_tensor_get_f64(&have, 7 * 8)) == (g == 0));
        assert_true(isfinite(weft_tensor_get_f64(&have, 9 * 8)));
        weft_arena_destroy(arena);
    }
    cuda_case_stop(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_attention__f32_is_the_reference),
        cmocka_unit_test(test_cuda_attention__f16_is_the_reference),
        cmocka_unit_test(test_cuda_attention__bf16_is_the_reference),
        cmocka_unit_test(test_cuda_attention__rows_without_keys),
    };
    return cuda_host_status(cmocka_run_group_tests(tests, NULL, NULL));
}
