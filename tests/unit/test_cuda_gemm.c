/* GEMMs for GPUs: kernels and library calls of emit_gemm.c against the operator's
 * reference, over element types, transpositions, edge sizes, batches, epilogues, crooked addresses,
 * NaN and infinities. */
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

/* One graph: operands, then the node. Types are written %s. */
typedef struct gemm_case {
    const char *symbols; /* "" or lines */
    const char *inputs, *node;
    int64_t symbol[3];
    bool half_only;
} gemm_case;

/* An epilogue that the library lacks makes the kernel ours. */
#define OWN "epilogue = [\"gelu acc\"]"

static const gemm_case cases[] = {
    {"", "%a : T[1,1], %b : T[1,1]", "T[1,1] = matmul %a, %b {" OWN "}", {0}, false},
    {"", "%a : T[33,17], %b : T[17,65]", "T[33,65] = matmul %a, %b {" OWN "}", {0}, false},
    {"",
     "%a : T[64,40], %b : T[72,40]",
     "T[64,72] = matmul %a, %b {" OWN ", trans_b = 1}",
     {0},
     false},
    {"",
     "%a : T[24,70], %b : T[24,31]",
     "T[70,31] = matmul %a, %b {" OWN ", trans_a = 1}",
     {0},
     false},
    {"",
     "%a : T[37,45], %b : T[29,37]",
     "T[45,29] = matmul %a, %b {" OWN ", trans_a = 1, trans_b = 1}",
     {0},
     false},
    {"", "%a : T[5,0], %b : T[0,6], %c : T[6]", "T[5,6] = matmul %a, %b, %c", {0}, false},
    {"",
     "%a : T[96,64], %b : T[64,96], %c : T[96]",
     "T[96,96] = matmul %a, %b, %c {" OWN ", alpha = 0.5}",
     {0},
     false},
    /* The largest tile. */
    {"",
     "%a : T[1220,40], %b : T[1280,40], %c : T[1280], %r : T[1220,1280]",
     "T[1220,1280] = matmul %a, %b, %c, %r {epilogue = [\"gelu acc\", \"add s0 i3\"], trans_b = 1}",
     {0},
     false},
    /* Batches: of both, of one, of outer and inner dims, with a symbol. */
    {"",
     "%a : T[3,2,20,24], %b : T[3,2,24,18]",
     "T[3,2,20,18] = matmul %a, %b {" OWN "}",
     {0},
     false},
    {"",
     "%a : T[3,1,20,24], %b : T[2,24,18]",
     "T[3,2,20,18] = matmul %a, %b {" OWN "}",
     {0},
     false},
    {"", "%a : T[4,3,20,24], %b : T[4,1,24,18]", "T[4,3,20,18] = matmul %a, %b", {0}, false},
    {"",
     "%a : T[20,24], %b : T[5,24,18]",
     "T[5,20,18] = matmul %a, %b {epilogue = [\"sigmoid acc\"]}",
     {0},
     false},
    {"symbol ?b0 \"b0\"\nsymbol ?s0 \"s0\"\n",
     "%a : T[?b0,?s0,48], %b : T[80,48], %c : T[80], %r : T[?b0,?s0,80]",
     "T[?b0,?s0,80] = matmul %a, %b, %c, %r {epilogue = [\"gelu acc\", \"add s0 i3\"], trans_b = "
     "1}",
     {2, 37},
     false},
    {"symbol ?b1 \"b1\"\n",
     "%a : T[?b1,48], %b : T[48,1280]",
     "T[?b1,1280] = matmul %a, %b {epilogue = [\"gelu acc\"]}",
     {330},
     false},
    {"symbol ?b2 \"b2\"\n",
     "%a : T[?b2,12,9,16], %b : T[?b2,12,9,16]",
     "T[?b2,12,9,9] = matmul %a, %b {alpha = 0.25, epilogue = [\"silu acc\"], trans_b = 1}",
     {3},
     false},
    /* Vectors. */
    {"", "%a : T[40], %b : T[40,24]", "T[24] = matmul %a, %b {" OWN "}", {0}, false},
    {"", "%a : T[3,24,40], %b : T[40]", "T[3,24] = matmul %a, %b {" OWN "}", {0}, false},
    /* Sums that are broadcast along rows, and along all. */
    {"", "%a : T[33,17], %b : T[17,34], %c : T[33,1]", "T[33,34] = matmul %a, %b, %c", {0}, false},
    {"",
     "%a : T[2,33,17], %b : T[17,34], %c : T[2,1,1], %r : T[1]",
     "T[2,33,34] = matmul %a, %b, %c, %r {epilogue = [\"mul acc i3\", \"tanh s0\"]}",
     {0},
     false},
    /* Few blocks and much depth: in parts. */
    {"",
     "%a : T[21,700], %b : T[50,700], %c : T[50], %r : T[21,50]",
     "T[21,50] = matmul %a, %b, %c, %r {epilogue = [\"gelu acc\", \"add s0 i3\"], trans_b = 1}",
     {0},
     false},
    {"symbol ?b4 \"b4\"\n",
     "%a : T[?b4,2,20,300], %b : T[?b4,1,300,30]",
     "T[?b4,2,20,30] = matmul %a, %b {" OWN ", alpha = 2.0}",
     {3},
     false},
    /* Large ones: by the library, finished by a kernel. */
    {"symbol ?b5 \"b5\"\n",
     "%a : T[?b5,3,512], %b : T[?b5,8,512], %c : T[8], %r : T[3,1]",
     "T[?b5,3,8] = matmul %a, %b, %c, %r {epilogue = [\"gelu acc\", \"add s0 i3\"], trans_b = 1}",
     {3},
     false},
    {"symbol ?b5 \"b5\"\n",
     "%a : T[?b5,3,512], %b : T[?b5,512,7], %c : T[3,1]",
     "T[?b5,3,7] = matmul %a, %b, %c {alpha = 0.5}",
     {3},
     false},
    /* The library's. */
    {"",
     "%a : T[33,17], %b : T[34,17], %c : T[34]",
     "T[33,34] = matmul %a, %b, %c {epilogue = [\"relu acc\"], trans_b = 1}",
     {0},
     false},
    {"",
     "%a : T[17,33], %b : T[17,34], %c : T[34], %r : T[33,34]",
     "T[33,34] = matmul %a, %b, %c, %r {alpha = 2.0, epilogue = [\"add i3 acc\", \"gelu_tanh "
     "acc\"], trans_a = 1}",
     {0},
     false},
    {"",
     "%a : T[33,17], %b : T[17,34], %c : T[34]",
     "T[33,34] = gemm %a, %b, %c {alpha = 2.0, beta = 0.5}",
     {0},
     false},
    {"",
     "%a : T[33,17], %b : T[17,34], %c : T[33,34]",
     "T[33,34] = gemm %a, %b, %c {alpha = 2.0, beta = 0.5}",
     {0},
     false},
    {"symbol ?b3 \"b3\"\n",
     "%a : T[?b3,4,5,6], %b : T[?b3,4,6,7]",
     "T[?b3,4,5,7] = matmul %a, %b",
     {2},
     false},
};

enum { CASES = sizeof cases / sizeof cases[0] };

/* All cases as graphs of one module. */
static void print_cases(weft_buf *out, const char *type)
{
    weft_buf_puts(out, "wir 1 kernel\nsymbol ?b0 = [0, 64]\nsymbol ?s0 = [1, 128]\n"
                       "symbol ?b1 = [1, 400]\nsymbol ?b2 = [1, 8]\nsymbol ?b3 = [1, 8]\nsymbol "
                       "?b4 = [0, 80]\nsymbol ?b5 = [1, 400]\n");
    for (int i = 0; i < CASES; i++) {
        weft_buf_printf(out, "graph @case%d_%s (", i, type);
        put_typed(out, cases[i].inputs, type);
        weft_buf_printf(out, ") {\n%s  %%y : ", cases[i].symbols);
        put_typed(out, cases[i].node, type);
        weft_buf_puts(out, "\n  return \"y\" %y\n}\n");
    }
}

static void run_cases(const char *type, bool tf32)
{
    const double tolerance = tf32 ? 3e-3 : 0;
    weft_buf text = {0};
    print_cases(&text, type);
    cuda_case *c = cuda_case_start_as(text.at, tf32);
    for (uint32_t i = 0; i < CASES; i++) {
        cuda_case_verify(c, i,
                         &(cuda_case_spec){.tolerance = tolerance, .symbol = cases[i].symbol});
        if (i == 7) /* large */
            continue;
        cuda_case_verify(
            c, i, &(cuda_case_spec){.tolerance = tolerance, .symbol = cases[i].symbol, .shift = 3});
        cuda_case_verify(
            c, i,
            &(cuda_case_spec){
                .tolerance = tolerance, .symbol = cases[i].symbol, .shift = 8, .special = true});
    }
    /* No rows at all, and few. */
    cuda_case_verify(c, 12, &(cuda_case_spec){.tolerance = tolerance, .symbol = (int64_t[]){0, 5}});
    cuda_case_verify(c, 13, &(cuda_case_spec){.tolerance = tolerance, .symbol = (int64_t[]){1}});
    cuda_case_verify(c, 20, &(cuda_case_spec){.tolerance = tolerance, .symbol = (int64_t[]){0}});
    cuda_case_verify(c, 20, &(cuda_case_spec){.tolerance = tolerance, .symbol = (int64_t[]){49}});
    for (uint32_t i = 21; i < 23; i++)
        cuda_case_verify(
            c, i,
            &(cuda_case_spec){.tolerance = tolerance, .symbol = (int64_t[]){390}, .shift = 1});
    cuda_case_stop(c);
    weft_buf_finish(&text);
}

static void test_cuda_gemm__f32_is_the_reference(void **state)
{
    (void)state;
    run_cases("f32", false);
}

static void test_cuda_gemm__tf32_is_near_the_reference(void **state)
{
    (void)state;
    run_cases("f32", true);
}

static void test_cuda_gemm__f16_is_the_reference(void **state)
{
    (void)state;
    run_cases("f16", false);
}

static void test_cuda_gemm__bf16_is_the_reference(void **state)
{
    (void)state;
    run_cases("bf16", false);
}

/* f64 and integers. */
static void test_cuda_gemm__others_are_plain(void **state)
{
    (void)state;
    cuda_case *c = cuda_case_start(
        "wir 1 kernel\nsymbol ?b = [1, 8]\n"
        "graph @a (%a : i64[3,20,9], %b : i64[3,9,13]) {\n  %y : i64[3,20,13] = matmul %a, %b\n"
        "  return \"y\" %y\n}\n"
        "graph @b (%a : f64[?b,9,20], %b : f64[13,9]) {\n  symbol ?b \"b\"\n"
        "  %y : f64[?b,20,13] = matmul %a, %b {trans_a = 1, trans_b = 1}\n  return \"y\" %y\n}\n");
    for (uint32_t i = 0; i < 2; i++)
        cuda_case_verify(c, i, &(cuda_case_spec){.symbol = (int64_t[]){3}, .shift = i});
    cuda_case_stop(c);
}

/* Commands of kind `kind` of the first launch of graph `i`. */
static uint32_t count_commands(const cuda_case *c, uint32_t i, weft_command_kind kind)
{
    const weft_bundle_launch *l = &c->bundle.program[i].launch[0];
    uint32_t n = 0;
    for (uint32_t s = 0; s < l->n_command; s++)
        n += l->command[s].kind == kind;
    return n;
}

/* The library gets what it can express, and nothing else; at any size one kernel has blocks. */
static void test_cuda_gemm__rule_of_choice(void **state)
{
    (void)state;
    weft_buf text = {0};
    print_cases(&text, "bf16");
    cuda_case *c = cuda_case_start(text.at);
    static const bool library[CASES] = {
        [10] = true, [23] = true, [24] = true, [25] = false, [26] = true, [27] = true};
    for (uint32_t i = 0; i < CASES; i++) {
        bool both = i == 21 || i == 22;
        assert_int_equal(count_commands(c, i, WEFT_COMMAND_GEMM), library[i] || both);
        assert_true(library[i] ? count_commands(c, i, WEFT_COMMAND_KERNEL) == 0
                               : count_commands(c, i, WEFT_COMMAND_KERNEL) >= 1);
    }
    const weft_bundle_program *p = &c->bundle.program[13];
    assert_int_equal(p->launch[0].n_command, 2); /* no 400 rows fill a GPU with the largest tile */
    for (int64_t b = 1; b <= 400; b++) {
        uint32_t with_blocks = 0;
        for (uint32_t s = 0; s < 2; s++) {
            int64_t blocks;
            assert_true(weft_dim_eval(p->dims, p->launch[0].command[s].grid[0], &b, 1, &blocks));
            with_blocks += blocks > 0;
        }
        assert_int_equal(with_blocks, 1);
    }
    cuda_case_stop(c);
    weft_buf_finish(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_gemm__f32_is_the_reference),
        cmocka_unit_test(test_cuda_gemm__tf32_is_near_the_reference),
        cmocka_unit_test(test_cuda_gemm__f16_is_the_reference),
        cmocka_unit_test(test_cuda_gemm__bf16_is_the_reference),
        cmocka_unit_test(test_cuda_gemm__others_are_plain),
        cmocka_unit_test(test_cuda_gemm__rule_of_choice),
    };
    return cuda_host_status(cmocka_run_group_tests(tests, NULL, NULL));
}
