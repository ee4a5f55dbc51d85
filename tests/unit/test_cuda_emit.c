/* Kernels for GPUs other than GEMMs: what emitters write, run on the host, against the operators'
 * references; over element types, sizes at and off the edges, symbols, crooked addresses, NaN and
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

#include "tests/support/cuda_graphs.h"

/* -- Element by element ------------------------------------------------------------------------ */

static const char ew_weights[] = "weight $c \"c\" : T[24,1,1] = random 3\n"
                                 "weight $v \"v\" : T[7] = random 4\n"
                                 "weight $e \"e\" : T[16] = random 5\n";

static const emit_case ew_cases[] = {
    {"%x : T[1023]", "T[1023] = ew %x {steps = [\"add i0 #1.5\", \"gelu s0\"]}", "", {0}, false},
    {"%x : T[3,5,7], %z : T[3,5,7]",
     "T[3,5,7] = ew %x, %z {steps = [\"mul i0 i1\", \"sub s0 i0\", \"max s1 #-inf\"]}",
     "",
     {0},
     false},
    /* By channel, by column, by row, one for all; packs that fit and do not. */
    {"%x : T[?b,24,4,3]",
     "T[?b,24,4,3] = ew %x, $c {steps = [\"add i0 i1\", \"relu s0\"]}",
     "b",
     {3},
     false},
    {"%x : T[?b,24,5,1]", "T[?b,24,5,1] = ew %x, $c {steps = [\"mul i1 i0\"]}", "b", {2}, false},
    {"%x : T[?b,?s,7]",
     "T[?b,?s,7] = ew %x, $v {steps = [\"add i0 i1\", \"tanh s0\"]}",
     "bs",
     {2, 5},
     false},
    {"%x : T[?b,?s,16], %z : T[1,?s,16], %u : T[?b,1,1]",
     "T[?b,?s,16] = ew %x, %z, %u, $e {steps = [\"add i0 i1\", \"mul s0 i2\", \"add acc i3\"]}",
     "bs",
     {3, 5},
     false},
    {"%x : T[?b,1], %z : T[1,?s]",
     "T[?b,?s] = ew %x, %z {steps = [\"add i0 i1\"]}",
     "bs",
     {9, 13},
     false},
    {"%x : T[], %z : T[1,33]", "T[1,33] = ew %x, %z {steps = [\"div i1 i0\"]}", "", {0}, false},
    {"%k : bool[3,1,9], %x : T[3,4,9]",
     "T[3,4,9] = ew %k, %x {steps = [\"where i0 i1 #-10000\"]}",
     "",
     {0},
     false},
    {"%x : T[?b,8]", "T[?b,8] = ew %x {steps = [\"relu i0\"]}", "b", {0}, false},
    {"%x : T[300]",
     "T[300] = ew %x {steps = [\"sigmoid i0\", \"silu i0\", \"min s0 s1\", \"hard_swish i0\", "
     "\"add s2 s3\", \"softplus i0\", \"add s4 s5\", \"leaky_relu i0 #0.1\", \"add s6 s7\", "
     "\"elu i0 #1.25\", \"add s8 s9\", \"hard_sigmoid i0 #0.2 #0.5\", \"add s10 s11\", "
     "\"gelu_tanh i0\", \"add s12 s13\", \"erf i0\", \"add s14 s15\"]}",
     "",
     {0},
     false},
    {"%x : T[257]",
     "T[257] = ew %x {steps = [\"abs i0\", \"sqrt s0\", \"exp i0\", \"add s1 s2\", \"square i0\", "
     "\"neg s4\", \"add s3 s5\", \"clip i0 #-0.5 #0.25\", \"add s6 s7\", \"pow s0 #1.7\", \"add "
     "s8 s9\"]}",
     "",
     {0},
     true},
};

static void test_cuda_emit__chains_equal_the_reference(void **state)
{
    (void)state;
    size_t n = sizeof ew_cases / sizeof ew_cases[0];
    check_typed_weights(ew_cases, n, ew_weights, "f32", 0);
    check_typed_weights(ew_cases, n, ew_weights, "f16", 0);
    check_typed_weights(ew_cases, n, ew_weights, "bf16", 0);
}

static const emit_case cast_cases[] = {
    {"%x : i64[?b,1,1,7]", "f32[?b,1,1,7] = cast %x {to = f32}", "b", {3}, false},
    {"%x : f32[1001]", "i64[1001] = cast %x {to = i64}", "", {0}, false},
    {"%x : f32[1001]", "f16[1001] = cast %x {to = f16}", "", {0}, false},
    {"%x : f32[1001]", "bf16[1001] = cast %x {to = bf16}", "", {0}, false},
    {"%x : f16[1001]", "f32[1001] = cast %x {to = f32}", "", {0}, false},
    {"%x : bf16[1001]", "f16[1001] = cast %x {to = f16}", "", {0}, false},
    {"%x : bool[101]", "f32[101] = cast %x {to = f32}", "", {0}, false},
    {"%x : i32[101]", "bool[101] = cast %x {to = bool}", "", {0}, false},
    {"%x : f32[101]", "i32[101] = cast %x {to = i32}", "", {0}, false},
    {"%x : f64[101]", "f32[101] = cast %x {to = f32}", "", {0}, false},
};

static void test_cuda_emit__casts_equal_the_reference(void **state)
{
    (void)state;
    CHECK(cast_cases, "", "f32", 1e-7);
}

/* -- Movement ---------------------------------------------------------------------------------- */

static const emit_case move_cases[] = {
    {"%x : T[3,40,50]", "T[3,50,40] = transpose %x {perm = [0, 2, 1]}", "", {0}, false},
    {"%x : T[?b,?s,3,8]", "T[?b,3,?s,8] = transpose %x {perm = [0, 2, 1, 3]}", "bs", {2, 5}, false},
    {"%x : T[?b,?s,3,8]",
     "T[?b,3,8,?s] = transpose %x {perm = [0, 2, 3, 1]}",
     "bs",
     {2, 37},
     false},
    {"%x : T[33,2,65]", "T[65,2,33] = transpose %x", "", {0}, false},
    {"%x : T[4,2,3]", "T[3,4,2] = transpose %x {perm = [-1, 0, 1]}", "", {0}, false},
    {"%x : T[?b,7]", "T[7,?b] = transpose %x {perm = [1, 0]}", "b", {0}, false},
    {"%x : T[?b,2,58,12]", "T[?b,58,2,12] = transpose %x {perm = [0, 2, 1, 3]}", "b", {2}, false},
    {"%x : T[5,1,7]", "T[2,5,3,7] = expand %x {shape = dims[2, 5, 3, 7]}", "", {0}, false},
    {"%x : T[?b,6]", "T[?b*3,12] = tile %x {repeats = dims[3, 2]}", "b", {2}, false},
    {"%x : T[2,12,4,6]", "T[2,3,8,12] = depth_to_space %x {blocksize = 2}", "", {0}, false},
    {"%x : T[2,12,4,6]",
     "T[2,3,8,12] = depth_to_space %x {blocksize = 2, mode = \"CRD\"}",
     "",
     {0},
     false},
    {"%x : T[2,3,4,6]", "T[2,12,2,3] = space_to_depth %x {blocksize = 2}", "", {0}, false},
    {"%x : T[?b,16,9]",
     "T[?b,8,9] = slice %x {axes = dims[1], starts = dims[8], ends = dims[16]}",
     "b",
     {3},
     false},
    {"%x : T[9,20]",
     "T[4,7] = slice %x {axes = dims[1, 0], starts = dims[-1, -8], ends = dims[-21, 100], steps = "
     "dims[-3, 2]}",
     "",
     {0},
     false},
    {"%x : T[1,1,16,16], %z : T[?s]",
     "T[1,1,min(?s, 16),min(?s, 16)] = slice %x {axes = dims[2, 3], starts = dims[0, 0], ends = "
     "dims[?s, ?s]}",
     "s",
     {5},
     false},
    {"%x : T[?b,6,8], %z : T[?s]",
     "T[?s,6,8] = pad %x {pads = dims[0, 0, 0, ?s - ?b, 0, 0]}",
     "bs",
     {3, 7},
     false},
    {"%x : T[4,6,9]", "T[6,4,9] = pad %x {pads = dims[2, -1, 0, 0, -1, 0]}", "", {0}, false},
    {"%x : T[4,6]", "T[7,9] = pad %x {pads = dims[1, 2, 2, 1], mode = \"edge\"}", "", {0}, false},
    {"%x : T[4,6]",
     "T[4,13] = pad %x {pads = dims[3, 4], axes = dims[-1], mode = \"reflect\"}",
     "",
     {0},
     false},
    {"%x : T[4,6]",
     "T[9,6] = pad %x {pads = dims[3, 2], axes = dims[0], mode = \"wrap\"}",
     "",
     {0},
     false},
    {"%x : T[?b,3,8], %z : T[?b,5,8], %u : T[?b,1,8]",
     "T[?b,9,8] = concat %x, %z, %u {axis = 1}",
     "b",
     {4},
     false},
    {"%x : T[4,3], %z : T[4,?s]", "T[4,?s+3] = concat %x, %z {axis = -1}", "s", {6}, false},
    {"%x : T[?b,3], %z : T[?s,3]", "T[?b+?s,3] = concat %x, %z {axis = 0}", "bs", {2, 0}, false},
};

static void test_cuda_emit__movement_equals_the_reference(void **state)
{
    (void)state;
    CHECK(move_cases, "", "f32", 1e-9);
    CHECK(move_cases, "", "f16", 1e-9);
    CHECK(move_cases, "", "i64", 1e-9);
    CHECK(move_cases, "", "bool", 1e-9);
}

static const char gather_weights[] = "weight $i \"i\" : i64[2,3] = dense [0, -1, 4, 2, -5, 3]\n"
                                     "weight $k \"k\" : i32[] = dense [2]\n";

static const emit_case gather_cases[] = {
    {"%x : T[5,12]", "T[2,3,12] = gather %x, $i", "", {0}, false},
    {"%x : T[?b,5,7]", "T[?b,2,3,7] = gather %x, $i {axis = 1}", "b", {3}, false},
    {"%x : T[?b,4,8]", "T[?b,8] = gather %x, $k {axis = -2}", "b", {3}, false},
    {"%x : T[6,5]", "T[6,2,3] = gather %x, $i {axis = 1}", "", {0}, false},
};

static void test_cuda_emit__gathers_equal_the_reference(void **state)
{
    (void)state;
    CHECK(gather_cases, gather_weights, "f32", 1e-9);
    CHECK(gather_cases, gather_weights, "bf16", 1e-9);
}

static const emit_case pad_cases[] = {
    {"%x : T[4,7]", "T[7,8] = pad %x {pads = dims[1, 0, 2, 1]}", "", {0}, false},
    {"%x : T[4,7]", "T[2,9] = pad %x {pads = dims[-1, 3, -1, -1]}", "", {0}, false},
    {"%x : T[?b,3,8], %z : T[?s]",
     "T[?s,3,8] = pad %x {pads = dims[0, 0, 0, ?s-?b, 0, 0]}",
     "bs",
     {2, 5},
     false},
    {"%x : T[?b,4], %z : T[]",
     "T[?b+2,4] = pad %x, _, %z {pads = dims[2, 0, 0, 0]}",
     "b",
     {3},
     false},
    {"%x : T[5,6]",
     "T[9,6] = pad %x {axes = [0], mode = \"edge\", pads = dims[1, 3]}",
     "",
     {0},
     false},
    {"%x : T[3,4]",
     "T[11,6] = pad %x {mode = \"reflect\", pads = dims[5, 1, 3, 1]}",
     "",
     {0},
     false},
    {"%x : T[3,4]", "T[9,7] = pad %x {mode = \"wrap\", pads = dims[4, 1, 2, 2]}", "", {0}, false},
};

static void test_cuda_emit__pads_equal_the_reference(void **state)
{
    (void)state;
    CHECK(pad_cases, "", "f32", 1e-9);
    CHECK(pad_cases, "", "bool", 1e-9);
}

/* -- Normalisation ----------------------------------------------------------------------------- */

static const char norm_weights[] = "weight $s \"s\" : T[96] = random 3\n"
                                   "weight $o \"o\" : T[96] = random 4\n"
                                   "weight $l \"l\" : T[1100] = random 5\n"
                                   "weight $m \"m\" : T[9000] = random 6\n"
                                   "weight $i \"i\" : T[] = splat 1.5\n"
                                   "weight $c \"c\" : T[6] = random 7\n"
                                   "weight $g \"g\" : T[2] = random 8\n"
                                   "weight $v \"v\" : T[6] = splat 0.75\n";

static const emit_case norm_cases[] = {
    {"%x : T[?b,?s,96]", "T[?b,?s,96] = layer_norm %x, $s, $o {axis = -1}", "bs", {2, 5}, false},
    {"%x : T[7,96]", "T[7,96] = layer_norm %x, $s {axis = 1, epsilon = 0.1}", "", {0}, false},
    {"%x : T[3,5,20]", "T[3,5,20] = layer_norm %x, $i, $i {axis = 1}", "", {0}, false},
    {"%x : T[3,1100]", "T[3,1100] = layer_norm %x, $l, $l {axis = 1}", "", {0}, false},
    {"%x : T[2,9000]", "T[2,9000] = layer_norm %x, $m, $m {axis = 1}", "", {0}, false},
    {"%x : T[4,?s]", "T[4,?s] = layer_norm %x, $i, $i {axis = 1}", "s", {33}, false},
    {"%x : T[?b,6,5,3]", "T[?b,6,5,3] = group_norm %x, $c, $c {num_groups = 2}", "b", {3}, false},
    {"%x : T[2,6,5,3]", "T[2,6,5,3] = group_norm %x, $g, $g {num_groups = 2}", "", {0}, false},
    {"%x : T[2,6,7,?s]", "T[2,6,7,?s] = instance_norm %x, $c, $c", "s", {4}, false},
    {"%x : T[?b,6,4,5]", "T[?b,6,4,5] = batch_norm %x, $c, $c, $c, $v", "b", {2}, false},
    {"%x : T[2,7,4,3]", "T[2,7,4,3] = lrn %x {size = 4, alpha = 0.5}", "", {0}, false},
    {"%x : T[?b,?s,31]", "T[?b,?s,31] = softmax %x", "bs", {3, 5}, false},
    {"%x : T[5,96]", "T[5,96] = log_softmax %x", "", {0}, false},
    {"%x : T[2,2000]", "T[2,2000] = softmax %x {axis = 1}", "", {0}, false},
    {"%x : T[2,9000]", "T[2,9000] = log_softmax %x {axis = 1}", "", {0}, false},
    {"%x : T[4,?s]", "T[4,?s] = softmax %x {axis = -1}", "s", {300}, false},
    {"%x : T[3,?s,7]", "T[3,?s,7] = softmax %x {axis = 1}", "s", {11}, false},
    {"%x : T[3,9,7]", "T[3,9,7] = hardmax %x {axis = 1}", "", {0}, false},
    {"%x : T[3,9,7]", "T[3,9,7] = lp_norm %x {axis = 1}", "", {0}, false},
    {"%x : T[3,9,7]", "T[3,9,7] = lp_norm %x {axis = 2, p = 1}", "", {0}, false},
};

static void test_cuda_emit__norms_equal_the_reference(void **state)
{
    (void)state;
    size_t n = sizeof norm_cases / sizeof norm_cases[0];
    check_typed_weights(norm_cases, n, norm_weights, "f32", 0);
    check_typed_weights(norm_cases, n, norm_weights, "bf16", 0);
}

/* Mean and deviation as results of their own. */
static const emit_case stat_cases[] = {
    {"%x : T[5,96]",
     "T[5,96], %m : f32[5,1], %v : f32[5,1] = layer_norm %x, $s {axis = 1}",
     "",
     {0},
     false},
    {"%x : T[5,96]", "T[5,96], _, %v : f32[5,1] = layer_norm %x, $s {axis = 1}", "", {0}, false},
};

static void test_cuda_emit__norms_give_their_statistics(void **state)
{
    (void)state;
    static const char *const out[] = {"\"m\" %m, \"v\" %v", "\"v\" %v"};
    for (size_t i = 0; i < 2; i++) {
        weft_buf text = {0};
        put_typed(&text, "wir 1 kernel\nweight $s \"s\" : T[96] = random 3\ngraph @g (", "f16");
        put_typed(&text, stat_cases[i].inputs, "f16");
        weft_buf_puts(&text, ") {\n  %y : ");
        put_typed(&text, stat_cases[i].node, "f16");
        weft_buf_printf(&text, "\n  return %s\n}\n", out[i]);
        cuda_case *c = cuda_case_start(text.at);
        cuda_case_verify(c, 0, &(cuda_case_spec){.tolerance = 1e-4});
        cuda_case_stop(c);
        weft_buf_finish(&text);
    }
}

/* -- Reductions -------------------------------------------------------------------------------- */

static const emit_case reduce_cases[] = {
    {"%x : T[?b,?s,31]", "T[?b,?s,1] = reduce_sum %x {axes = dims[-1]}", "bs", {3, 5}, false},
    {"%x : T[?b,40,7]", "T[?b,7] = reduce_mean %x {axes = dims[1], keepdims = 0}", "b", {3}, false},
    {"%x : T[2,3,4,5]", "T[1,3,1,5] = reduce_max %x {axes = dims[0, 2]}", "", {0}, false},
    {"%x : T[2,3,4,5]", "T[1,3,1,5] = reduce_min %x {axes = dims[0, 2]}", "", {0}, false},
    {"%x : T[2,3,4,5]", "T[3,5] = reduce_l1 %x {axes = dims[0, 2], keepdims = 0}", "", {0}, false},
    {"%x : T[2,3,4,5]", "T[2,1,4,1] = reduce_prod %x {axes = dims[1, 3]}", "", {0}, false},
    {"%x : T[6,1,500]", "T[1,1,1] = reduce_sum_square %x", "", {0}, false},
    {"%x : T[?b,5000]", "T[?b] = reduce_sum %x {axes = dims[1], keepdims = 0}", "b", {3}, false},
    {"%x : T[4,6]", "T[4,6] = reduce_sum %x {noop_with_empty_axes = 1}", "", {0}, false},
    {"%x : T[4,?s]", "T[4,1] = reduce_max %x {axes = dims[1]}", "s", {300}, false},
};

static const emit_case real_cases[] = {
    {"%x : T[3,40]", "T[3,1] = reduce_l2 %x {axes = dims[1]}", "", {0}, false},
    {"%x : T[40,3]", "T[1,3] = reduce_log_sum_exp %x {axes = dims[0]}", "", {0}, false},
    {"%x : T[3,4000]", "T[3,1] = reduce_log_sum_exp %x {axes = dims[1]}", "", {0}, false},
    {"%x : T[3,40]", "T[3,1] = reduce_log_sum %x {axes = dims[1]}", "", {0}, false},
    {"%x : T[?b,6,7,7]", "T[?b,6,1,1] = global_average_pool %x", "b", {2}, false},
    {"%x : T[2,6,5]", "T[2,6,1] = global_max_pool %x", "", {0}, false},
    {"%x : T[2,6,5]", "T[2,6,1] = global_lp_pool %x {p = 3}", "", {0}, false},
    {"%x : T[2,6,5]", "T[2,6,1] = global_lp_pool %x", "", {0}, false},
};

static const emit_case place_cases[] = {
    {"%x : T[3,?s]", "i64[3,1] = arg_max %x {axis = 1}", "s", {100}, false},
    {"%x : T[3,50,7]", "i64[3,7] = arg_min %x {axis = 1, keepdims = 0}", "", {0}, false},
    {"%x : T[50,3]", "i64[1,3] = arg_max %x {axis = 0, select_last_index = 1}", "", {0}, false},
    {"%x : T[3,50,7]", "T[3,50,7] = cum_sum %x {axis = dims[1]}", "", {0}, false},
    {"%x : T[3,50]",
     "T[3,50] = cum_sum %x {axis = dims[-1], exclusive = 1, reverse = 1}",
     "",
     {0},
     false},
};

static void test_cuda_emit__reductions_equal_the_reference(void **state)
{
    (void)state;
    CHECK(reduce_cases, "", "f32", 1e-5);
    CHECK(reduce_cases, "", "f16", 2e-3);
    CHECK(reduce_cases, "", "i32", 1e-9);
    CHECK(real_cases, "", "f32", 1e-5);
    CHECK(real_cases, "", "bf16", 1.2e-2);
    CHECK(place_cases, "", "f32", 1e-5);
    CHECK(place_cases, "", "i64", 1e-9);
}

/* -- Pooling ----------------------------------------------------------------------------------- */

static const emit_case pool_cases[] = {
    {"%x : T[?b,3,13,14]",
     "T[?b,3,7,7] = max_pool %x {kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]}",
     "b",
     {2},
     true},
    {"%x : T[2,3,13,14]",
     "T[2,3,6,7] = max_pool %x {kernel_shape = [3, 2], strides = [2, 2], ceil_mode = 1}",
     "",
     {0},
     true},
    {"%x : T[2,3,17]",
     "T[2,3,13] = max_pool %x {kernel_shape = [3], dilations = [2]}",
     "",
     {0},
     true},
    {"%x : T[2,3,5,6,7]",
     "T[2,3,3,3,4] = max_pool %x {kernel_shape = [3, 3, 3], strides = [2, 2, 2], auto_pad = "
     "\"SAME_UPPER\"}",
     "",
     {0},
     true},
    {"%x : T[2,3,13,14]",
     "T[2,3,7,8] = average_pool %x {kernel_shape = [3, 2], strides = [2, 2], pads = [1, 1, 1, 1]}",
     "",
     {0},
     false},
    {"%x : T[2,3,13,14]",
     "T[2,3,7,8] = average_pool %x {kernel_shape = [3, 2], strides = [2, 2], pads = [1, 1, 1, 1], "
     "count_include_pad = 1}",
     "",
     {0},
     false},
    {"%x : T[2,3,?s]",
     "T[2,3,floordiv(?s + 1, 2)] = average_pool %x {kernel_shape = [2], strides = [2], auto_pad = "
     "\"SAME_LOWER\"}",
     "s",
     {9},
     false},
    {"%x : T[2,3,9]", "T[2,3,4] = lp_pool %x {kernel_shape = [2], strides = [2]}", "", {0}, false},
};

static void test_cuda_emit__pools_equal_the_reference(void **state)
{
    (void)state;
    CHECK(pool_cases, "", "f32", 1e-6);
    CHECK(pool_cases, "", "f16", 2e-3);
}

/* -- Recurrent layers: more of them in machine/recurrent_gpu ---------------------------------- */

static const char recurrent_weights[] = "weight $w4 \"w4\" : T[2,36,5] = random 3\n"
                                        "weight $r4 \"r4\" : T[2,36,9] = random 4\n"
                                        "weight $b4 \"b4\" : T[2,72] = random 5\n"
                                        "weight $w3 \"w3\" : T[1,120,7] = random 6\n"
                                        "weight $r3 \"r3\" : T[1,120,40] = random 7\n"
                                        "weight $b3 \"b3\" : T[1,240] = random 8\n"
                                        "weight $w1 \"w1\" : T[1,33,6] = random 9\n"
                                        "weight $r1 \"r1\" : T[1,33,33] = random 10\n";

static const emit_case recurrent_cases[] = {
    {"%x : T[?s,?b,5]",
     "T[?s,2,?b,9] = lstm %x, $w4, $r4, $b4 {hidden_size = 9, direction = \"bidirectional\"}",
     "bs",
     {3, 4},
     false},
    {"%x : T[?s,2,7]", "T[?s,1,2,40] = gru %x, $w3, $r3, $b3 {hidden_size = 40}", "s", {3}, false},
    {"%x : T[4,?b,7]",
     "T[4,1,?b,40] = gru %x, $w3, $r3, $b3 {hidden_size = 40, linear_before_reset = 1}",
     "b",
     {2},
     false},
    {"%x : T[4,1,6]",
     "T[4,1,1,33] = rnn %x, $w1, $r1 {hidden_size = 33, direction = \"reverse\"}",
     "",
     {0},
     false},
};

static void test_cuda_emit__recurrent_layers_equal_the_reference(void **state)
{
    (void)state;
    size_t n = sizeof recurrent_cases / sizeof recurrent_cases[0];
    check_typed_weights(recurrent_cases, n, recurrent_weights, "f32", 1e-5);
    check_typed_weights(recurrent_cases, n, recurrent_weights, "f16", 4e-3);
}

/* Weights of bytes; sequences end at different steps; rows that four bytes fill and that they do
 * not.
 */
static const char byte_weights[] = "weight $w \"w\" : T[2,36,5] = random 3\n"
                                   "weight $r \"r\" : T[2,36,9] = random 4\n"
                                   "weight $b \"b\" : f32[2,72] = random 5\n"
                                   "weight $s \"s\" : f32[72] = random 10\n"
                                   "weight $z \"z\" : T[72] = random 11\n"
                                   "weight $v \"v\" : T[1,64,8] = random 6\n"
                                   "weight $q \"q\" : T[1,64,16] = random 7\n"
                                   "weight $p \"p\" : f32[1,48] = random 8\n"
                                   "weight $t \"t\" : f32[64] = random 9\n"
                                   "weight $o \"o\" : T[64] = random 12\n"
                                   "weight $n \"n\" : i32[3] = dense [4, 0, 2]\n";

static const emit_case byte_cases[] = {
    {"%x : f32[?s,?b,5], %h : f32[2,?b,9], %c : f32[2,?b,9]",
     "f32[?s,2,?b,9] = lstm %x, $w, $r, $b, _, %h, %c, _, $s, $z, $s, $z {hidden_size = 9, "
     "direction = \"bidirectional\", quantize_state = 1}",
     "bs",
     {3, 4},
     true},
    {"%x : f32[4,3,8]",
     "f32[4,1,3,16] = lstm %x, $v, $q, _, $n, _, _, $p, $t, $o, $t, $o {hidden_size = 16, "
     "direction = \"reverse\", clip = 0.75, quantize_state = 1}",
     "",
     {0},
     true},
};

static void test_cuda_emit__recurrent_layers_of_bytes_equal_the_reference(void **state)
{
    (void)state;
    size_t n = sizeof byte_cases / sizeof byte_cases[0];
    check_typed_weights(byte_cases, n, byte_weights, "i8", 1e-5);
    check_typed_weights(byte_cases, n, byte_weights, "u8", 1e-5);
}

/* All three results; the input's range is that of 5 of 6 steps, and what sequences that have ended
 * count as in the range of the states decides it. */
static void test_cuda_emit__lengths_of_layers_of_bytes(void **state)
{
    (void)state;
    static const char *const kind[] = {"1", "2"};
    for (size_t i = 0; i < 2; i++) {
        weft_buf text = {0};
        weft_buf_puts(&text, "wir 1 kernel\n");
        put_typed(&text, byte_weights, "u8");
        weft_buf_printf(
            &text,
            "weight $l \"l\" : i32[4] = dense [5, 0, 2, 1]\n"
            "graph @g (%%x : f32[6,4,5], %%h : f32[2,4,9], %%c : f32[2,4,9]) {\n"
            "  %%y : f32[6,2,4,9], %%p : f32[2,4,9], %%q : f32[2,4,9] = lstm %%x, $w, $r, $b, $l, "
            "%%h, %%c, _, $s, $z, $s, $z {hidden_size = 9, direction = \"bidirectional\", "
            "quantize_state = %s}\n"
            "  return \"y\" %%y, \"p\" %%p, \"q\" %%q\n}\n",
            kind[i]);
        cuda_case *c = cuda_case_start(text.at);
        cuda_case_verify(c, 0, &(cuda_case_spec){.tolerance = 1e-5});
        cuda_case_stop(c);
        weft_buf_finish(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_emit__chains_equal_the_reference),
        cmocka_unit_test(test_cuda_emit__casts_equal_the_reference),
        cmocka_unit_test(test_cuda_emit__movement_equals_the_reference),
        cmocka_unit_test(test_cuda_emit__gathers_equal_the_reference),
        cmocka_unit_test(test_cuda_emit__pads_equal_the_reference),
        cmocka_unit_test(test_cuda_emit__norms_equal_the_reference),
        cmocka_unit_test(test_cuda_emit__norms_give_their_statistics),
        cmocka_unit_test(test_cuda_emit__reductions_equal_the_reference),
        cmocka_unit_test(test_cuda_emit__pools_equal_the_reference),
        cmocka_unit_test(test_cuda_emit__recurrent_layers_equal_the_reference),
        cmocka_unit_test(test_cuda_emit__recurrent_layers_of_bytes_equal_the_reference),
        cmocka_unit_test(test_cuda_emit__lengths_of_layers_of_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
