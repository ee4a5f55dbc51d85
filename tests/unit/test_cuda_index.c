/* Gather, scatter and what elements get from their own place, for GPUs: kernels of emit_index.c,
 * run on the host, against the operators' references; several element types, negative and equal
 * indices, symbols, indices that are outside. */
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

static const char weights[] = "weight $i \"i\" : i64[2,3] = dense [0, -1, 3, 2, -4, 3]\n"
                              "weight $j \"j\" : i32[2,3] = dense [0, -1, 3, 2, -4, 1]\n"
                              "weight $p \"p\" : i32[2,2] = dense [0, 1, -1, 2]\n"
                              "weight $q \"q\" : i64[3,1] = dense [1, -1, 1]\n"
                              "weight $r \"r\" : i64[3,1] = dense [1, 0, 3]\n"
                              "weight $s \"s\" : i64[4] = dense [0, 2, 1, 3]\n"
                              "weight $f \"f\" : f32[3] = dense [1.0, -2.0, 7.0]\n"
                              "weight $k \"k\" : i64[] = dense [-1]\n";

static const emit_case cases[] = {
    {"%x : T[4,5]", "T[2,3] = gather_elements %x, $i", "", {0}, false},
    {"%x : T[2,5]", "T[2,3] = gather_elements %x, $i {axis = -1}", "", {0}, false},
    {"%x : T[3,4,5]", "T[2,5] = gather_nd %x, $p", "", {0}, false},
    {"%x : T[?b,4,3,5]", "T[3,4,3,5] = gather_nd %x, $q", "b", {2}, false},
    {"%x : T[2,3,4]", "T[2,4] = gather_nd %x, $p {batch_dims = 0}", "", {0}, false},
    {"%x : T[2,3,4,7]", "T[2,7] = gather_nd %x, $p {batch_dims = 1}", "", {0}, false},
    {"%x : T[4,5], %u : T[2,3]", "T[4,5] = scatter_elements %x, $j, %u", "", {0}, false},
    {"%x : T[2,?s,4], %u : T[2,4]", "T[2,?s,4] = scatter_nd %x, $p, %u", "s", {3}, false},
    {"%x : T[3,4,5], %u : T[2,5]", "T[3,4,5] = scatter_nd %x, $p, %u", "", {0}, false},
    {"%x : T[4,2,3], %u : T[3,2,3]", "T[4,2,3] = scatter_nd %x, $r, %u", "", {0}, false},
    {"%v : T[2], %x : T[1]", "T[2,3,7] = one_hot $i, _, %v {depth = dims[7]}", "", {0}, false},
    {"%v : T[2]", "T[3,5] = one_hot $f, _, %v {axis = 1, depth = dims[5]}", "", {0}, false},
    {"%v : T[2]", "T[2,5,3] = one_hot $i, _, %v {axis = 1, depth = dims[5]}", "", {0}, false},
    {"%x : T[?b,4,6]", "T[?b,4,6] = trilu %x", "b", {3}, false},
    {"%x : T[4,6]", "T[4,6] = trilu %x, $k {upper = 0}", "", {0}, false},
    {"%x : T[6,?s]", "T[6,?s] = trilu %x {k = dims[2]}", "s", {5}, false},
    {"%x : T[4,6]", "T[4,6] = eye_like %x {k = 1}", "", {0}, false},
    {"%x : T[5,4,3]", "T[5,4,3] = reverse_sequence %x, $s", "", {0}, false},
    {"%x : T[4,5]",
     "T[4,5] = reverse_sequence %x, $s {batch_axis = 0, time_axis = 1}",
     "",
     {0},
     false},
};

/* Each element may meet several updates. */
static const emit_case reductions[] = {
    {"%x : T[4,5], %u : T[2,3]",
     "T[4,5] = scatter_elements %x, $i, %u {reduction = \"add\"}",
     "",
     {0},
     false},
    {"%x : T[2,5], %u : T[2,3]",
     "T[2,5] = scatter_elements %x, $i, %u {axis = 1, reduction = \"mul\"}",
     "",
     {0},
     false},
    {"%x : T[2,5], %u : T[2,3]",
     "T[2,5] = scatter_elements %x, $i, %u {axis = 1, reduction = \"max\"}",
     "",
     {0},
     false},
    {"%x : T[4,2,?s], %u : T[3,2,?s]",
     "T[4,2,?s] = scatter_nd %x, $q, %u {reduction = \"add\"}",
     "s",
     {5},
     false},
    {"%x : T[4,2,3], %u : T[3,2,3]",
     "T[4,2,3] = scatter_nd %x, $q, %u {reduction = \"mul\"}",
     "",
     {0},
     false},
    {"%x : T[4,2,3], %u : T[3,2,3]",
     "T[4,2,3] = scatter_nd %x, $q, %u {reduction = \"min\"}",
     "",
     {0},
     false},
    {"%x : T[4,5], %u : T[2]",
     "T[4,5] = scatter_nd %x, $p, %u {reduction = \"max\"}",
     "",
     {0},
     false},
};

static void test_cuda_index__elements_are_those_of_the_reference(void **state)
{
    (void)state;
    CHECK(cases, weights, "f32", 1e-9);
    CHECK(cases, weights, "f16", 1e-9);
    CHECK(cases, weights, "i64", 1e-9);
    CHECK(cases, weights, "bool", 1e-9);
}

static void test_cuda_index__reductions_equal_the_reference(void **state)
{
    (void)state;
    CHECK(reductions, weights, "f32", 1e-9);
    CHECK(reductions, weights, "bf16", 1e-9);
    CHECK(reductions, weights, "i32", 1e-9);
    CHECK(reductions, weights, "u8", 1e-9);
}

static const emit_case made[] = {
    {"%x : f32[?b]",
     "f32[?b,7] = constant_of_shape {shape = dims[?b, 7], value = 1.5}",
     "b",
     {3},
     false},
    {"%x : f32[?b]",
     "i64[?b] = constant_of_shape {dtype = i64, shape = dims[?b], value = -3}",
     "b",
     {3},
     false},
    {"%x : f32[?b]",
     "i64[?b] = range {delta = dims[1], limit = dims[?b], start = dims[0]}",
     "b",
     {5},
     false},
    {"%x : f32[?b]",
     "i32[2*?b] = range {delta = dims[-1], dtype = i32, limit = dims[-?b], start = dims[?b]}",
     "b",
     {5},
     false},
    {"%x : f32[?b,7,3]", "i64[3] = shape %x", "b", {5}, false},
    {"%x : f32[?b,7,3]", "i64[2] = shape %x {end = 9, start = -2}", "b", {5}, false},
    {"%x : f32[?b,7,3]", "i64[1] = shape %x {end = -2}", "b", {4}, false},
    {"%x : f32[?b,7,3]", "i64[] = size %x", "b", {5}, false},
};

static void test_cuda_index__made_of_nothing(void **state)
{
    (void)state;
    CHECK(made, "", "f32", 1e-9);
}

/* Values and places of the largest and smallest; equal elements, NaN and infinities among them. */
static void test_cuda_index__top_k_equals_the_reference(void **state)
{
    (void)state;
    static const char *const type[] = {"f32", "f16", "i64", "u8"};
    for (size_t t = 0; t < 4; t++) {
        weft_buf text = {0};
        put_typed(&text,
                  "wir 1 kernel\nsymbol ?b = [1, 9]\n"
                  "graph @a (%x : T[?b,300]) {\n  symbol ?b \"b\"\n"
                  "  %v : T[?b,7], %i : i64[?b,7] = top_k %x {k = dims[7]}\n"
                  "  return \"v\" %v, \"i\" %i\n}\n"
                  "graph @b (%x : T[3,300,4]) {\n"
                  "  %v : T[3,300,4], %i : i64[3,300,4] = top_k %x {axis = 1, k = dims[300], "
                  "largest = 0}\n  return \"v\" %v, \"i\" %i\n}\n"
                  "graph @c (%x : T[3,50]) {\n  _, %i : i64[3,1] = top_k %x {k = dims[1]}\n"
                  "  return \"i\" %i\n}\n",
                  type[t]);
        cuda_case *c = cuda_case_start(text.at);
        for (uint32_t i = 0; i < 6; i++)
            cuda_case_verify(
                c, i / 2,
                &(cuda_case_spec){
                    .symbol = (int64_t[]){3}, .shift = i % 2, .special = i % 2, .tolerance = 1e-9});
        cuda_case_stop(c);
        weft_buf_finish(&text);
    }
}

/* Launches cannot fail: what is not there reads as NaN and is not written. */
static void test_cuda_index__outside_is_harmless(void **state)
{
    (void)state;
    cuda_case *c = cuda_case_start("wir 1 kernel\n"
                                   "graph @g (%x : f32[4], %i : i64[3], %u : f32[3]) {\n"
                                   "  %y : f32[3] = gather_elements %x, %i\n"
                                   "  %z : f32[4] = scatter_elements %x, %i, %u\n"
                                   "  return \"y\" %y, \"z\" %z\n}\n");
    float x[] = {1, 2, 3, 4}, u[] = {5, 6, 7};
    int64_t i[] = {4, -5, -4};
    const weft_tensor in[] = {
        {.dtype = WEFT_DTYPE_F32, .rank = 1, .dim = {4}, .data = x},
        {.dtype = WEFT_DTYPE_I64, .rank = 1, .dim = {3}, .data = i},
        {.dtype = WEFT_DTYPE_F32, .rank = 1, .dim = {3}, .data = u},
    };
    weft_tensor out[2];
    cuda_case_go(c, 0, in, 0, 0, out);
    const float *y = out[0].data, *z = out[1].data;
    assert_true(isnan(y[0]) && isnan(y[1]) && y[2] == 1);
    assert_true(z[0] == 7 && z[1] == 2 && z[2] == 3 && z[3] == 4);
    cuda_case_stop(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_index__elements_are_those_of_the_reference),
        cmocka_unit_test(test_cuda_index__reductions_equal_the_reference),
        cmocka_unit_test(test_cuda_index__made_of_nothing),
        cmocka_unit_test(test_cuda_index__top_k_equals_the_reference),
        cmocka_unit_test(test_cuda_index__outside_is_harmless),
    };
    return cuda_host_status(cmocka_run_group_tests(tests, NULL, NULL));
}
