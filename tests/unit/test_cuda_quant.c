/* Quantisation for GPUs: kernels of emit_quant.c, run on the host, against the operators'
 * references; scales for all, along an axis and by blocks, every type, values that saturate, NaN
 * and infinities. */
#include "ir/ir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/cuda_graphs.h"

static const char weights[] =
    "weight $s \"s\" : f32[] = dense [0.0078125]\n"
    "weight $c \"c\" : f32[5] = dense [0.25, 0.003, 0.01, 1.0, 0.001]\n"
    "weight $b \"b\" : f32[3,2] = dense [0.25, 0.003, 0.01, 1.0, 0.001, 0.5]\n"
    "weight $z \"z\" : T[] = dense [7]\n"
    "weight $y \"y\" : T[5] = dense [7, 0, 100, 3, 12]\n"
    "weight $x \"x\" : T[3,2] = dense [7, 0, 100, 3, 12, 1]\n";

static const emit_case quantize_cases[] = {
    {"%x : f32[3,5,70]", "T[3,5,70] = quantize_linear %x, $s, $z", "", {0}, false},
    {"%x : f32[?b,5,7]", "T[?b,5,7] = quantize_linear %x, $c, $y", "b", {3}, false},
    {"%x : f32[5,?s]", "T[5,?s] = quantize_linear %x, $c, $y {axis = -2}", "s", {30}, false},
    {"%x : f32[3,7]",
     "T[3,7] = quantize_linear %x, $b, $x {axis = 1, block_size = 4}",
     "",
     {0},
     false},
};

static const emit_case dequantize_cases[] = {
    {"%x : T[3,5,70]", "f32[3,5,70] = dequantize_linear %x, $s, $z", "", {0}, false},
    {"%x : T[?b,5,7]", "f32[?b,5,7] = dequantize_linear %x, $c, $y", "b", {3}, false},
    {"%x : T[3,7]",
     "f32[3,7] = dequantize_linear %x, $b, $x {axis = 1, block_size = 4}",
     "",
     {0},
     false},
    {"%x : T[3,5]", "f32[3,5] = dequantize_linear %x, $c", "", {0}, false},
};

static const emit_case untyped_cases[] = {
    {"%x : f32[70]", "u8[70] = quantize_linear %x, $s", "", {0}, false},
    {"%x : f16[70], %s : f16[]",
     "i8[70] = quantize_linear %x, %s {output_dtype = i8}",
     "",
     {0},
     true},
    {"%x : i32[70]", "f32[70] = dequantize_linear %x, $s", "", {0}, false},
};

static void test_cuda_quant__equals_the_reference(void **state)
{
    (void)state;
    static const char *const type[] = {"i8", "u8", "i16", "u16"};
    for (size_t i = 0; i < 4; i++) {
        size_t n = sizeof quantize_cases / sizeof quantize_cases[0];
        check_typed_weights(quantize_cases, n, weights, type[i], 1e-9);
        n = sizeof dequantize_cases / sizeof dequantize_cases[0];
        check_typed_weights(dequantize_cases, n, weights, type[i], 1e-9);
    }
    CHECK(untyped_cases, "weight $s \"s\" : f32[] = dense [0.0078125]\n", "f32", 1e-9);
}

/* The range is that of the data, with zero in it; of no data too. */
static void test_cuda_quant__scale_of_the_data(void **state)
{
    (void)state;
    cuda_case *c =
        cuda_case_start("wir 1 kernel\nsymbol ?b = [0, 2000]\n"
                        "graph @all (%x : f32[?b,41]) {\n  symbol ?b \"b\"\n"
                        "  %y : u8[?b,41], %s : f32[], %z : u8[] = dynamic_quantize_linear %x\n"
                        "  return \"y\" %y, \"s\" %s, \"z\" %z\n}\n"
                        "graph @above (%x : f32[70]) {\n  %p : f32[70] = exp %x\n"
                        "  %y : u8[70], _, %z : u8[] = dynamic_quantize_linear %p\n"
                        "  return \"y\" %y, \"z\" %z\n}\n");
    const int64_t rows[] = {0, 1, 7, 1700};
    for (size_t i = 0; i < 4; i++)
        cuda_case_verify(c, 0, &(cuda_case_spec){.symbol = &rows[i], .tolerance = 1e-9});
    cuda_case_verify(c, 1, &(cuda_case_spec){.shift = 1, .tolerance = 1e-9});
    cuda_case_stop(c);
}

static const char product_weights[] =
    "weight $z \"z\" : u8[] = dense [7]\n"
    "weight $i \"i\" : i8[] = dense [-3]\n"
    "weight $r \"r\" : u8[5] = dense [7, 0, 200, 3, 12]\n"
    "weight $c \"c\" : i8[9] = dense [1, -2, 3, -4, 5, -6, 7, -8, 9]\n"
    "weight $s \"s\" : f32[] = dense [0.0078125]\n"
    "weight $t \"t\" : f32[5] = dense [0.25, 0.003, 0.01, 1.0, 0.001]\n"
    "weight $u \"u\" : f32[9] = dense [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]\n";

static const emit_case product_cases[] = {
    {"%a : u8[5,33], %b : i8[33,9]", "i32[5,9] = matmul_integer %a, %b", "", {0}, false},
    {"%a : u8[?b,5,33], %b : i8[33,9]",
     "i32[?b,5,9] = matmul_integer %a, %b, $r, $c",
     "b",
     {3},
     false},
    {"%a : u8[2,1,5,33], %b : i8[3,33,9]",
     "i32[2,3,5,9] = matmul_integer %a, %b, $z, $i",
     "",
     {0},
     false},
    {"%a : u8[?b,5,33], %b : i8[33,9]",
     "u8[?b,5,9] = qlinear_matmul %a, $s, $z, %b, $s, $i, $s, $z",
     "b",
     {3},
     false},
    {"%a : u8[2,5,33], %b : i8[2,33,9]",
     "i8[2,5,9] = qlinear_matmul %a, $t, $r, %b, $u, $c, $s, $i",
     "",
     {0},
     false},
};

static void test_cuda_quant__products_equal_the_reference(void **state)
{
    (void)state;
    CHECK(product_cases, product_weights, "f32", 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_quant__equals_the_reference),
        cmocka_unit_test(test_cuda_quant__scale_of_the_data),
        cmocka_unit_test(test_cuda_quant__products_equal_the_reference),
    };
    return cuda_host_status(cmocka_run_group_tests(tests, NULL, NULL));
}
