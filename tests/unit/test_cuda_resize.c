/* resize and upsample for GPUs: what emit_resize.c writes, run on the host, against the operators'
 * references; all modes and coordinates, symbols, crops. */
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

#define NODE(mode, more) \
    "T[2,3,9,14] = resize %x {mode = \"" mode "\", sizes = dims[2, 3, 9, 14]" more "}"
#define COORDS(name) ", coordinate_transformation_mode = \"" name "\""

#define EACH(mode, more)                                                                     \
    {"%x : T[2,3,5,7]", NODE(mode, COORDS("half_pixel") more), "", {0}, false},              \
        {"%x : T[2,3,5,7]", NODE(mode, COORDS("align_corners") more), "", {0}, false},       \
        {"%x : T[2,3,5,7]", NODE(mode, COORDS("asymmetric") more), "", {0}, false},          \
        {"%x : T[2,3,5,7]", NODE(mode, COORDS("pytorch_half_pixel") more), "", {0}, false},  \
    {                                                                                        \
        "%x : T[2,3,20,14]", NODE(mode, COORDS("half_pixel_symmetric") more), "", {0}, false \
    }

static const emit_case nearest_cases[] = {
    EACH("nearest", ""),
    EACH("nearest", ", nearest_mode = \"floor\""),
    EACH("nearest", ", nearest_mode = \"ceil\""),
    EACH("nearest", ", nearest_mode = \"round_prefer_ceil\""),
    {"%x : T[2,3,5,7]", NODE("nearest", COORDS("tf_half_pixel_for_nn")), "", {0}, false},
    {"%x : T[?b,3,?s,6]",
     "T[?b,3,2*?s,12] = resize %x {scales = [1.0, 1.0, 2.0, 2.0]" COORDS("asymmetric") "}",
     "bs",
     {2, 5},
     false},
    {"%x : T[1,2,7,9]",
     "T[1,2,4,5] = resize %x {axes = [3, 2], scales = [0.6, 0.6]}",
     "",
     {0},
     false},
    {"%x : T[?b,2,3,4]",
     "T[?b,2,6,8] = upsample %x {scales = [1.0, 1.0, 2.0, 2.0]}",
     "b",
     {3},
     false},
    {"%x : T[2,3]", "T[2,3] = resize %x {sizes = dims[2, 3]}", "", {0}, false},
};

static const emit_case smooth_cases[] = {
    EACH("linear", ""),
    EACH("cubic", ""),
    EACH("cubic", ", exclude_outside = 1, cubic_coeff_a = -0.5"),
    {"%x : T[?b,3,?s,6]",
     "T[?b,3,2*?s,15] = resize %x {mode = \"linear\", scales = [1.0, 1.0, 2.0, 2.5]}",
     "bs",
     {2, 5},
     false},
    {"%x : T[?b,2,?s,9], %z : T[?t]",
     "T[?b,2,?t,4] = resize %x {axes = [-1, 2], mode = \"linear\", sizes = dims[4, ?t]}",
     "bst",
     {2, 5, 8},
     false},
    {"%x : T[2,5,4,3]",
     "T[2,7,8,2] = resize %x {mode = \"linear\", sizes = dims[2, 7, 8, 2]}",
     "",
     {0},
     false},
    {"%x : T[2,10]",
     "T[2,25] = upsample %x {mode = \"linear\", scales = [1.0, 2.5]}",
     "",
     {0},
     false},
};

/* Some of the result is outside the operand. */
static const char crop_weights[] = "weight $r \"r\" : f32[4] = dense [0.25, -0.5, 0.75, 1.25]\n";
static const emit_case crop_cases[] = {
    {"%x : T[6,7]",
     "T[5,9] = resize %x, $r {mode = \"linear\", extrapolation_value = 3.5, sizes = dims[5, "
     "9]" COORDS("tf_crop_and_resize") "}",
     "",
     {0},
     false},
    {"%x : T[6,7]",
     "T[5,9] = resize %x, $r {extrapolation_value = 3.0, sizes = dims[5, "
     "9]" COORDS("tf_crop_and_resize") "}",
     "",
     {0},
     false},
};

static void test_cuda_resize__nearest_equals_the_reference(void **state)
{
    (void)state;
    CHECK(nearest_cases, "", "f32", 1e-9);
    CHECK(nearest_cases, "", "f16", 1e-9);
    CHECK(nearest_cases, "", "u8", 1e-9);
}

static void test_cuda_resize__sums_equal_the_reference(void **state)
{
    (void)state;
    CHECK(smooth_cases, "", "f32", 1e-5);
    CHECK(smooth_cases, "", "bf16", 1.2e-2);
}

static void test_cuda_resize__crops_equal_the_reference(void **state)
{
    (void)state;
    CHECK(crop_cases, crop_weights, "f32", 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_resize__nearest_equals_the_reference),
        cmocka_unit_test(test_cuda_resize__sums_equal_the_reference),
        cmocka_unit_test(test_cuda_resize__crops_equal_the_reference),
    };
    return cuda_host_status(cmocka_run_group_tests(tests, NULL, NULL));
}
