/* lower-precision: which values become narrow, and that results are near those of f32. */
#include "base/f16.h"
#include "ir/ir.h"
#include "passes/passes.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static weft_diag *diag;
static weft_arena *arena;
static weft_module *m, *plain;

static int set_up(void **state)
{
    (void)state;
    diag = weft_diag_create();
    arena = weft_arena_create(0);
    m = plain = NULL;
    return diag && arena ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    weft_module_destroy(m);
    weft_module_destroy(plain);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return 0;
}

static void succeed(weft_err err)
{
    if (err != WEFT_ERR_OK)
        fail_msg("%s", weft_diag_count(diag) ? weft_diag_at(diag, 0)->text : weft_err_name(err));
}

static weft_module *lower(const char *text, weft_dtype precision)
{
    weft_module *out = NULL;
    succeed(weft_module_parse(text, strlen(text), "t.wir", NULL, diag, &out));
    const weft_pass *pass = weft_pass_find("lower-precision");
    const weft_run_options options = {.pass.precision = precision, .verify = WEFT_VERIFY_EACH};
    succeed(weft_passes_run(out, &pass, 1, &options, diag));
    return out;
}

static weft_node node_at(const weft_module *from, uint32_t i)
{
    weft_graph *g = weft_graph_at(from, 0);
    WEFT_FOREACH_NODE (from, g, n)
        if (i-- == 0)
            return n;
    fail_msg("no such node");
    return (weft_node){0};
}

static weft_dtype out_dtype(const weft_module *from, uint32_t node)
{
    return (weft_dtype)weft_val_ttype(from, weft_node_out(from, node_at(from, node), 0))->dtype;
}

static const char net[] = "wir 1 kernel\n"
                          "symbol ?b = [1, 8]\n"
                          "weight $w \"w\" : f32[16,16] = random 3\n"
                          "weight $s \"s\" : f32[16] = random 4\n"
                          "weight $h \"h\" : f32[2] = dense [1e30, -3.4e38]\n"
                          "graph @m (%x : f32[?b,16], %i : i64[?b]) {\n"
                          "  symbol ?b \"batch\"\n"
                          "  %1 : f32[?b,16] = matmul %x, $w, $s {epilogue = [\"relu acc\"]}\n"
                          "  %2 : f32[?b,16], %3 : f32[?b,1] = layer_norm %1, $s, $s {axis = 1}\n"
                          "  %4 : f32[?b] = cast %i {to = f32}\n"
                          "  %5 : f32[?b,1] = view %4 {shape = dims[?b, 1]}\n"
                          "  %6 : f32[?b,16] = ew %2, %5 {steps = [\"mul i0 i1\", \"add s0 #1\"]}\n"
                          "  %7 : i64[?b,16] = cast %x {to = i64}\n"
                          "  return \"y\" %6, \"m\" %3, \"i\" %7, \"x\" %x, \"h\" $h\n"
                          "}\n";

static void test_lower_precision__narrows_all_between_the_ports(void **state)
{
    (void)state;
    m = lower(net, WEFT_DTYPE_BF16);
    weft_graph *g = weft_graph_at(m, 0);
    assert_int_equal(weft_val_ttype(m, weft_graph_input(g, 0))->dtype, WEFT_DTYPE_F32);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(weft_val_ttype(m, weft_graph_output(g, i))->dtype,
                         i == 2 ? WEFT_DTYPE_I64 : WEFT_DTYPE_F32);
    /* cast, matmul, layer_norm, cast, view, ew; the cast to i64 reads %x itself; cast of y. */
    assert_int_equal(weft_graph_node_count(g), 8);
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(out_dtype(m, i), WEFT_DTYPE_BF16);
    assert_int_equal(weft_node_in(m, node_at(m, 6), 0).i, weft_graph_input(g, 0).i);
    /* Statistics are f32 in any case. */
    assert_int_equal(weft_val_node(m, weft_graph_output(g, 1)).i, node_at(m, 2).i);
    /* An output that is a weight stays as it is. */
    assert_int_equal(weft_val_get_kind(m, weft_graph_output(g, 4)), WEFT_VAL_WEIGHT);
}

static void test_lower_precision__f32_changes_nothing(void **state)
{
    (void)state;
    m = lower(net, WEFT_DTYPE_F32);
    assert_int_equal(weft_graph_node_count(weft_graph_at(m, 0)), 6);
    assert_int_equal(out_dtype(m, 0), WEFT_DTYPE_F32);
}

static void test_lower_precision__large_weights_stay_finite(void **state)
{
    (void)state;
    static const char text[] = "wir 1 kernel\n"
                               "weight $h : f32[4] = dense [1e30, -3.4e38, -inf, 0.1]\n"
                               "graph @m (%x : f32[4]) {\n"
                               "  %1 : f32[4] = ew %x, $h {steps = [\"max i0 i1\"]}\n"
                               "  return \"y\" %1\n"
                               "}\n";
    m = lower(text, WEFT_DTYPE_F16);
    weft_val w = weft_node_in(m, node_at(m, 1), 1);
    weft_tensor t = weft_weight_tensor(m, weft_val_weight(m, w));
    assert_int_equal(t.dtype, WEFT_DTYPE_F16);
    assert_true(weft_tensor_get_f64(&t, 0) == 65504);
    assert_true(weft_tensor_get_f64(&t, 1) == -65504);
    assert_true(isinf(weft_tensor_get_f64(&t, 2)));
    assert_true(fabs(weft_tensor_get_f64(&t, 3) - 0.1) < 1e-4);
}

/* Operators that need f32 keep it. */
static void test_lower_precision__others_compute_as_they_did(void **state)
{
    (void)state;
    static const char text[] = "wir 1 kernel\n"
                               "weight $z : u8[] = dense [128]\n"
                               "weight $s : f32[] = dense [0.125]\n"
                               "graph @m (%x : f32[2,3]) {\n"
                               "  %1 : f32[2,3] = ew %x {steps = [\"mul i0 #0.5\"]}\n"
                               "  %2 : u8[2,3] = quantize_linear %1, $s, $z\n"
                               "  %3 : f32[2,3] = dequantize_linear %2, $s, $z\n"
                               "  %4 : f32[2,3] = ew %3 {steps = [\"add i0 #0.5\"]}\n"
                               "  return \"y\" %4\n"
                               "}\n";
    m = lower(text, WEFT_DTYPE_F16);
    weft_graph *g = weft_graph_at(m, 0);
    assert_int_equal(weft_val_ttype(m, weft_graph_output(g, 0))->dtype, WEFT_DTYPE_F32);
}

static void test_lower_precision__results_are_near(void **state)
{
    (void)state;
    static const weft_dtype half[] = {WEFT_DTYPE_F16, WEFT_DTYPE_BF16};
    static const double tolerance[] = {3e-3, 3e-2};
    float x[4 * 16];
    int64_t i[4] = {1, 2, 3, -4};
    for (int k = 0; k < 4 * 16; k++)
        x[k] = (float)((k * 37) % 64) / 32 - 1;
    const weft_tensor in[] = {
        {.dtype = WEFT_DTYPE_F32, .rank = 2, .dim = {4, 16}, .data = x},
        {.dtype = WEFT_DTYPE_I64, .rank = 1, .dim = {4}, .data = i},
    };
    weft_tensor want[5], have[5];
    plain = lower(net, WEFT_DTYPE_F32);
    succeed(weft_graph_eval(weft_graph_at(plain, 0), in, 2, arena, diag, want, 5));
    for (int h = 0; h < 2; h++) {
        weft_module *low = lower(net, half[h]);
        succeed(weft_graph_eval(weft_graph_at(low, 0), in, 2, arena, diag, have, 5));
        double scale = 0, worst = 0;
        for (int64_t k = 0; k < 4 * 16; k++) {
            double w = weft_tensor_get_f64(&want[0], k);
            scale = fmax(scale, fabs(w));
            worst = fmax(worst, fabs(w - weft_tensor_get_f64(&have[0], k)));
        }
        assert_true(worst > 0 && worst <= tolerance[h] * scale);
        weft_module_destroy(low);
    }
}

/* Scales of bytes are not rounded; what follows a product of bytes is narrow again. */
static void test_lower_precision__keeps_scales_of_bytes(void **state)
{
    (void)state;
    static const char text[] =
        "wir 1 kernel\n"
        "weight $s \"s\" : f32[] = dense [1e-6]\n"
        "weight $z \"z\" : u8[] = dense [3]\n"
        "weight $i \"i\" : i8[] = dense [0]\n"
        "weight $w \"w\" : i8[4,4] = splat 3\n"
        "weight $v \"v\" : f32[4,4] = splat 0.5\n"
        "graph @m (%x : f32[2,4]) {\n"
        "  %1 : f32[2,4] = matmul %x, $v\n"
        "  %2 : u8[2,4] = ew %1 {steps = [\"quantize_u8 i0 #1e-6 #3.0\"], dtype = u8}\n"
        "  %3 : f32[2,4] = qlinear_matmul %2, $s, $z, $w, $s, $i, _, _, _, %1 {epilogue = [\"add "
        "acc i9\"]}\n"
        "  %4 : f32[2,4] = relu %3\n"
        "  return \"y\" %4\n"
        "}\n";
    m = lower(text, WEFT_DTYPE_F16);
    WEFT_FOREACH_NODE (m, weft_graph_at(m, 0), n) {
        bool product = weft_node_op(m, n) == WEFT_OP_QLINEAR_MATMUL;
        weft_dtype first =
            (weft_dtype)weft_val_ttype(m, weft_node_in(m, n, product ? 1 : 0))->dtype;
        if (product || weft_node_op(m, n) == WEFT_OP_EW)
            assert_int_equal(first, WEFT_DTYPE_F32);
        if (product)
            assert_int_equal(weft_val_ttype(m, weft_node_in(m, n, 9))->dtype, WEFT_DTYPE_F32);
        if (weft_node_op(m, n) == WEFT_OP_RELU || weft_node_op(m, n) == WEFT_OP_MATMUL)
            assert_int_equal(first, WEFT_DTYPE_F16);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_lower_precision__keeps_scales_of_bytes, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_lower_precision__narrows_all_between_the_ports, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_lower_precision__f32_changes_nothing, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_lower_precision__large_weights_stay_finite, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_lower_precision__others_compute_as_they_did, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_lower_precision__results_are_near, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
