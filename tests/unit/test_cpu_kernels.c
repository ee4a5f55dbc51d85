/* Kernels of the CPU driver, each compared with the reference implementation of its operator, in
 * the layouts the compiler chooses. */
#include "tests/support/session_world.h"

/* -- Comparing one operator ----------------------------------------------------------------- */

typedef struct check {
    const char *name;
    weft_op_id op;
    const char *attrs[12]; /* key, value pairs: "i:3", "f:0.5", "l:1,2", "s:text", "t:a;b" */
    const char *in[6];     /* "x 1,3,8,8" input, "w 4,3" weight, "c..." input reordered to c16,
                            * "b..." bool input, "-" omitted */
    const char *out;       /* dims */
    weft_layout layout;    /* of the result of the operator */
    double tolerance;
    const char *variant; /* must occur in the name of the kernel */
} check;

static weft_attrs layout_attr(world *w, weft_layout layout)
{
    weft_attr *a = weft_arena_alloc(w->arena, sizeof *a);
    *a = (weft_attr){.key = WEFT_ATTR_LAYOUT, .kind = WEFT_KIND_STR};
    a->u.s = weft_layout_name(layout);
    return (weft_attrs){.at = a, .n = 1};
}

static double compare(const weft_tensor *got, const weft_tensor *want)
{
    double worst = 0, scale = 1e-6;
    int64_t n = weft_tensor_numel(want);
    assert_int_equal(weft_tensor_numel(got), n);
    for (int64_t i = 0; i < n; i++)
        scale = fmax(scale, fabs(weft_tensor_get_f64(want, i)));
    for (int64_t i = 0; i < n; i++) {
        double e = fabs(weft_tensor_get_f64(got, i) - weft_tensor_get_f64(want, i)) / scale;
        worst = e > worst || e != e ? e : worst;
    }
    return worst;
}

static void run_check(const check *c, uint32_t threads)
{
    world w;
    int64_t dim[8];
    uint32_t n_in = 0, in[6] = {0};
    weft_tensor t[6], y, got;
    const weft_tensor *operand[6] = {0};
    init_world(&w);
    for (; n_in < 6 && c->in[n_in]; n_in++) {
        char kind = c->in[n_in][0];
        if (kind == '-')
            continue;
        uint32_t rank = parse_dims(c->in[n_in] + 2, dim);
        t[n_in] = make_tensor(&w, kind == 'b' ? WEFT_DTYPE_BOOL : WEFT_DTYPE_F32, rank, dim);
        operand[n_in] = &t[n_in];
        in[n_in] = kind == 'w' ? add_weight(&w, t[n_in]) : add_input(&w, t[n_in]);
        if (kind == 'c') {
            uint32_t v = add_value(&w, WEFT_DTYPE_F32, WEFT_LAYOUT_C16, rank, dim);
            add_launch(&w, WEFT_OP_REORDER, layout_attr(&w, WEFT_LAYOUT_C16), &in[n_in], 1, v);
            in[n_in] = v;
        }
    }
    weft_attrs attrs = parse_attrs(&w, c->attrs);
    uint32_t rank = parse_dims(c->out, dim), plain;
    uint32_t out = add_value(&w, WEFT_DTYPE_F32, c->layout, rank, dim);
    uint32_t at = w.program.n_launch;
    add_launch(&w, c->op, attrs, in, n_in, out);
    plain = out;
    if (c->layout != WEFT_LAYOUT_PLAIN) {
        plain = add_value(&w, WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN, rank, dim);
        add_launch(&w, WEFT_OP_REORDER, layout_attr(&w, WEFT_LAYOUT_PLAIN), &out, 1, plain);
    }
    add_output(&w, plain);
    y = make_tensor(&w, WEFT_DTYPE_F32, rank, dim);
    weft_eval_ctx cx = {.op = weft_op_get(c->op),
                        .attrs = attrs,
                        .in = operand,
                        .n_in = n_in,
                        .out = &y,
                        .n_out = 1,
                        .scratch = w.arena,
                        .diag = w.diag};
    weft_err err = weft_op_eval(&cx);
    explain(&w);
    assert_int_equal(err, WEFT_ERR_OK);
    open_world(&w, threads);
    for (int round = 0; round < 2; round++) {
        weft_session_profile(w.session, true);
        err = weft_session_run(w.session, w.in, w.program.n_input, w.diag, &got, 1);
        explain(&w);
        assert_int_equal(err, WEFT_ERR_OK);
        uint32_t n;
        const char *variant = weft_session_times(w.session, &n)[at].variant;
        double worst = compare(&got, &y);
        if (!(worst <= c->tolerance) || !strstr(variant, c->variant))
            fail_msg("%s: error %g, kernel %s", c->name, worst, variant);
    }
    finish_world(&w);
}

static const check conv_checks[] = {
    {"plain to c16",
     WEFT_OP_CONV,
     {"strides", "l:2,2", "pads", "l:3,3,3,3", "epilogue", "t:relu acc"},
     {"x 1,3,32,32", "w 32,3,7,7", "w 32"},
     "1,32,16,16",
     WEFT_LAYOUT_C16,
     1e-5,
     "jit"},
    {"c16 3x3 with residual",
     WEFT_OP_CONV,
     {"pads", "l:1,1,1,1", "epilogue", "t:add acc i3;relu acc"},
     {"c 2,32,9,9", "w 32,32,3,3", "w 32", "c 2,32,9,9"},
     "2,32,9,9",
     WEFT_LAYOUT_C16,
     1e-5,
     "jit"},
    {"winograd with residual",
     WEFT_OP_CONV,
     {"pads", "l:1,1,1,1", "algo", "s:winograd", "epilogue", "t:add acc i3;relu acc"},
     {"c 1,64,14,14", "w 64,64,3,3", "w 64", "c 1,64,14,14"},
     "1,64,14,14",
     WEFT_LAYOUT_C16,
     1e-5,
     "wino"},
    {"winograd with relu",
     WEFT_OP_CONV,
     {"pads", "l:1,1,1,1", "algo", "s:winograd", "epilogue", "t:relu acc"},
     {"c 1,64,28,28", "w 64,64,3,3", "w 64"},
     "1,64,28,28",
     WEFT_LAYOUT_C16,
     1e-5,
     "wino"},
    {"depthwise clip",
     WEFT_OP_CONV,
     {"pads", "l:1,1,1,1", "group", "i:24", "epilogue", "t:clip acc #0 #6"},
     {"c 2,24,9,9", "w 24,1,3,3", "w 24"},
     "2,24,9,9",
     WEFT_LAYOUT_C16,
     1e-5,
     "jit_dw"},
    {"1x1 odd channels",
     WEFT_OP_CONV,
     {"epilogue", "t:sigmoid acc"},
     {"c 1,24,9,9", "w 58,24,1,1", "w 58"},
     "1,58,9,9",
     WEFT_LAYOUT_C16,
     1e-5,
     "jit"},
    {"plain to plain",
     WEFT_OP_CONV,
     {"pads", "l:1,1,1,1"},
     {"x 1,20,9,9", "w 33,20,3,3", "w 33"},
     "1,33,9,9",
     WEFT_LAYOUT_PLAIN,
     1e-5,
     "onednn"},
    {"plain with epilogue operand",
     WEFT_OP_CONV,
     {"pads", "l:1,1,1,1", "epilogue", "t:add acc i3;gelu acc"},
     {"x 1,20,9,9", "w 33,20,3,3", "-", "x 1,33,9,9"},
     "1,33,9,9",
     WEFT_LAYOUT_PLAIN,
     1e-5,
     "onednn"},
    {"groups",
     WEFT_OP_CONV,
     {"group", "i:3", "dilations", "l:2,2"},
     {"x 2,9,11,11", "w 12,3,3,3", "w 12"},
     "2,12,7,7",
     WEFT_LAYOUT_PLAIN,
     1e-5,
     "onednn"},
    {"one dimension, same pads",
     WEFT_OP_CONV,
     {"auto_pad", "s:SAME_UPPER", "strides", "l:2"},
     {"x 2,5,11", "w 7,5,4", "w 7"},
     "2,7,6",
     WEFT_LAYOUT_PLAIN,
     1e-5,
     "onednn"},
    {"three dimensions",
     WEFT_OP_CONV,
     {"pads", "l:1,1,1,0,0,0"},
     {"x 1,3,6,6,6", "w 4,3,3,2,2"},
     "1,4,5,6,6",
     WEFT_LAYOUT_PLAIN,
     1e-5,
     "onednn"},
    {"weight that is an input",
     WEFT_OP_CONV,
     {"pads", "l:1,1,1,1"},
     {"x 1,4,6,6", "x 5,4,3,3"},
     "1,5,6,6",
     WEFT_LAYOUT_PLAIN,
     1e-5,
     ""},
    {"epilogue that cannot be fused",
     WEFT_OP_CONV,
     {"epilogue", "t:sigmoid acc;mul s0 s0;erf acc;add acc i3"},
     {"c 1,20,5,5", "w 24,20,1,1", "w 24", "w 24,1,1"},
     "1,24,5,5",
     WEFT_LAYOUT_C16,
     1e-5,
     "+ew"},
};

static void test_cpu_kernels__convolutions(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof conv_checks / sizeof *conv_checks; i++)
        for (uint32_t threads = 1; threads <= 2; threads++)
            run_check(&conv_checks[i], threads);
}

static const check other_checks[] = {
    {"matmul by weight",
     WEFT_OP_MATMUL,
     {"epilogue", "t:gelu acc"},
     {"x 2,7,32", "w 32,48", "w 48"},
     "2,7,48",
     0,
     1e-5,
     "onednn"},
    {"matmul residual",
     WEFT_OP_MATMUL,
     {"epilogue", "t:add acc i3"},
     {"x 2,7,32", "w 32,48", "w 48", "x 2,7,48"},
     "2,7,48",
     0,
     1e-5,
     "onednn"},
    {"matmul transposed",
     WEFT_OP_MATMUL,
     {"trans_b", "i:1", "alpha", "f:0.5"},
     {"x 5,32", "w 9,32", "w 9"},
     "5,9",
     0,
     1e-5,
     "onednn"},
    {"matmul transposed a",
     WEFT_OP_MATMUL,
     {"trans_a", "i:1"},
     {"x 2,3,5", "x 3,4"},
     "2,5,4",
     0,
     1e-5,
     ""},
    {"matmul batched",
     WEFT_OP_MATMUL,
     {"trans_b", "i:1"},
     {"x 2,3,7,16", "x 2,3,9,16"},
     "2,3,7,9",
     0,
     1e-5,
     "onednn"},
    {"matmul broadcast",
     WEFT_OP_MATMUL,
     {NULL},
     {"x 3,7,16", "x 2,1,16,9"},
     "2,3,7,9",
     0,
     1e-5,
     ""},
    {"matmul odd bias",
     WEFT_OP_MATMUL,
     {"epilogue", "t:relu acc"},
     {"x 5,8", "w 8,6", "w 5,1"},
     "5,6",
     0,
     1e-5,
     "onednn"},
    {"matmul vector", WEFT_OP_MATMUL, {NULL}, {"x 8", "x 2,8,6"}, "2,6", 0, 1e-5, ""},
    {"gemm",
     WEFT_OP_GEMM,
     {"transB", "i:1", "alpha", "f:2"},
     {"x 4,6", "w 5,6", "w 1,5"},
     "4,5",
     0,
     1e-5,
     "onednn"},
    {"max pool",
     WEFT_OP_MAX_POOL,
     {"kernel_shape", "l:3,3", "strides", "l:2,2", "pads", "l:1,1,1,1"},
     {"c 1,24,12,12"},
     "1,24,6,6",
     WEFT_LAYOUT_C16,
     1e-6,
     "jit"},
    {"max pool ceil",
     WEFT_OP_MAX_POOL,
     {"kernel_shape", "l:3,3", "strides", "l:2,2", "ceil_mode", "i:1"},
     {"c 1,16,12,12"},
     "1,16,6,6",
     WEFT_LAYOUT_C16,
     1e-6,
     "jit"},
    {"average pool",
     WEFT_OP_AVERAGE_POOL,
     {"kernel_shape", "l:2,2", "strides", "l:2,2"},
     {"c 1,16,12,12"},
     "1,16,6,6",
     WEFT_LAYOUT_C16,
     1e-6,
     "jit"},
    {"average pool counted",
     WEFT_OP_AVERAGE_POOL,
     {"kernel_shape", "l:3,3", "pads", "l:1,1,1,1", "count_include_pad", "i:1"},
     {"x 1,3,6,6"},
     "1,3,6,6",
     0,
     1e-6,
     ""},
    {"global pool",
     WEFT_OP_GLOBAL_AVERAGE_POOL,
     {NULL},
     {"c 2,24,7,7"},
     "2,24,1,1",
     WEFT_LAYOUT_C16,
     1e-6,
     "global_pool"},
    {"global pool to plain",
     WEFT_OP_GLOBAL_AVERAGE_POOL,
     {NULL},
     {"c 2,32,7,7"},
     "2,32,1,1",
     0,
     1e-6,
     "global_pool"},
    {"global pool to plain, odd",
     WEFT_OP_GLOBAL_AVERAGE_POOL,
     {NULL},
     {"c 3,40,7,7"},
     "3,40,1,1",
     0,
     1e-6,
     "global_pool"},
    {"batch norm",
     WEFT_OP_BATCH_NORM,
     {"epsilon", "f:1.5"},
     {"c 2,24,5,5", "w 24", "w 24", "w 24", "w 24"},
     "2,24,5,5",
     WEFT_LAYOUT_C16,
     1e-5,
     "batch_norm"},
    {"batch norm plain",
     WEFT_OP_BATCH_NORM,
     {"epsilon", "f:1.5"},
     {"x 2,5,5,5", "w 5", "w 5", "w 5", "w 5"},
     "2,5,5,5",
     0,
     1e-5,
     "batch_norm"},
    {"layer norm",
     WEFT_OP_LAYER_NORM,
     {"axis", "i:-1", "epsilon", "f:1e-5"},
     {"x 3,5,77", "w 77", "w 77"},
     "3,5,77",
     0,
     1e-5,
     "layer_norm"},
    {"softmax", WEFT_OP_SOFTMAX, {"axis", "i:-1"}, {"x 3,5,77"}, "3,5,77", 0, 1e-5, "softmax"},
    {"softmax axis", WEFT_OP_SOFTMAX, {"axis", "i:1"}, {"x 3,5,7"}, "3,5,7", 0, 1e-5, "softmax"},
    {"attention",
     WEFT_OP_ATTENTION,
     {"heads", "i:3", "head_dim", "i:20", "scale", "f:0.3"},
     {"x 2,13,60", "x 2,37,60", "x 2,37,60", "x 2,1,1,37"},
     "2,13,60",
     0,
     1e-5,
     "attention"},
    {"attention fused qkv",
     WEFT_OP_ATTENTION,
     {"heads", "i:2", "head_dim", "i:64", "scale", "f:0.125", "k_offset", "i:128", "v_offset",
      "i:256"},
     {"x 1,33,384", "x 1,33,384", "x 1,33,384"},
     "1,33,128",
     0,
     1e-5,
     "attention"},
    {"attention bool mask",
     WEFT_OP_ATTENTION,
     {"heads", "i:2", "head_dim", "i:32", "fill", "f:-10000"},
     {"x 2,9,64", "x 2,9,64", "x 2,9,64", "b 1,1,9,9"},
     "2,9,64",
     0,
     1e-5,
     "attention"},
    {"reduce",
     WEFT_OP_REDUCE_MEAN,
     {"axes", "l:2,3", "keepdims", "i:0"},
     {"x 2,5,6,7"},
     "2,5",
     0,
     1e-5,
     "reduce"},
    {"reduce middle",
     WEFT_OP_REDUCE_SUM,
     {"axes", "l:1", "keepdims", "i:1"},
     {"x 2,5,6"},
     "2,1,6",
     0,
     1e-5,
     "ref"},
    {"transpose",
     WEFT_OP_TRANSPOSE,
     {"perm", "l:0,2,3,1"},
     {"x 2,33,5,7"},
     "2,5,7,33",
     0,
     0,
     "move"},
    {"transpose back",
     WEFT_OP_TRANSPOSE,
     {"perm", "l:0,3,1,2"},
     {"x 2,5,7,33"},
     "2,33,5,7",
     0,
     0,
     "move"},
    {"transpose all", WEFT_OP_TRANSPOSE, {NULL}, {"x 3,4,5"}, "5,4,3", 0, 0, "move"},
    {"concat",
     WEFT_OP_CONCAT,
     {"axis", "i:1"},
     {"x 2,3,4", "x 2,1,4", "x 2,5,4"},
     "2,9,4",
     0,
     0,
     "move"},
    {"concat c16",
     WEFT_OP_CONCAT,
     {"axis", "i:1"},
     {"c 2,32,5,5", "c 2,24,5,5"},
     "2,56,5,5",
     WEFT_LAYOUT_C16,
     0,
     "move"},
    {"concat c16 odd",
     WEFT_OP_CONCAT,
     {"axis", "i:1"},
     {"c 2,24,5,5", "c 2,24,5,5"},
     "2,48,5,5",
     WEFT_LAYOUT_C16,
     0,
     "ref"},
    {"slice",
     WEFT_OP_SLICE,
     {"starts", "l:-1,1", "ends", "l:-100,5", "axes", "l:0,2", "steps", "l:-1,2"},
     {"x 3,4,7"},
     "3,4,2",
     0,
     0,
     "move"},
    {"expand", WEFT_OP_EXPAND, {"shape", "l:2,3,4"}, {"x 3,1"}, "2,3,4", 0, 0, "move"},
    {"tile", WEFT_OP_TILE, {"repeats", "l:2,1,3"}, {"x 2,3,4"}, "4,3,12", 0, 0, "move"},
    {"pad", WEFT_OP_PAD, {"pads", "l:0,1,2,0,0,3"}, {"x 2,3,4"}, "2,4,9", 0, 0, "move"},
    {"deconvolution",
     WEFT_OP_CONV_TRANSPOSE,
     {"strides", "l:2,2", "pads", "l:1,1,1,1", "output_padding", "l:1,1"},
     {"x 2,20,5,6", "w 20,12,3,3", "w 12"},
     "2,12,10,12",
     0,
     1e-5,
     ""},
    {"deconvolution by groups",
     WEFT_OP_CONV_TRANSPOSE,
     {"strides", "l:2,2", "group", "i:2", "dilations", "l:2,1"},
     {"x 1,6,5,6", "w 6,4,3,2", "w 8"},
     "1,8,13,12",
     0,
     1e-5,
     "onednn"},
    {"deconvolution same",
     WEFT_OP_CONV_TRANSPOSE,
     {"strides", "l:2", "auto_pad", "s:SAME_LOWER"},
     {"x 1,4,6", "w 4,5,3"},
     "1,5,12",
     0,
     1e-5,
     ""},
    {"ew broadcast",
     WEFT_OP_EW,
     {"steps", "t:add i0 i1;mul s0 #0.5;tanh s1;sub s2 i2"},
     {"x 2,3,100", "x 100", "x 2,3,1"},
     "2,3,100",
     0,
     1e-5,
     "ew"},
    {"ew channels",
     WEFT_OP_EW,
     {"steps", "t:mul i0 i1;add acc i2;relu acc"},
     {"x 2,30,7,7", "w 30,1,1", "w 1,30,1,1"},
     "2,30,7,7",
     0,
     1e-5,
     "ew"},
    {"ew c16 channels",
     WEFT_OP_EW,
     {"steps", "t:mul i0 i1;add acc i2;sigmoid acc"},
     {"c 2,24,40,7", "w 24,1,1", "w 1,24,1,1"},
     "2,24,40,7",
     WEFT_LAYOUT_C16,
     1e-5,
     "ew"},
    {"ew c16 affine relu",
     WEFT_OP_EW,
     {"steps", "t:mul i1 i0;add i2 s0;relu s1"},
     {"c 2,48,9,7", "w 48,1,1", "w 1,48,1,1"},
     "2,48,9,7",
     WEFT_LAYOUT_C16,
     1e-5,
     "ew"},
    {"ew c16 affine odd",
     WEFT_OP_EW,
     {"steps", "t:mul i0 i1;add s0 i2"},
     {"c 2,24,9,7", "w 24,1,1", "w 1,24,1,1"},
     "2,24,9,7",
     WEFT_LAYOUT_C16,
     1e-5,
     "ew"},
    {"ew plain affine",
     WEFT_OP_EW,
     {"steps", "t:mul i0 i1;add i2 s0;relu s1;add s2 s1"},
     {"x 3,70,5", "x 70,1", "x 3,1,5"},
     "3,70,5",
     0,
     1e-5,
     "ew"},
    {"ew c16 gate",
     WEFT_OP_EW,
     {"steps", "t:mul i0 i1;add acc i2"},
     {"c 2,32,9,9", "c 2,32,1,1", "c 2,32,9,9"},
     "2,32,9,9",
     WEFT_LAYOUT_C16,
     1e-5,
     "ew"},
    {"ew c16 plain gate",
     WEFT_OP_EW,
     {"steps", "t:mul i0 i1"},
     {"c 2,32,9,9", "x 2,32,1,1"},
     "2,32,9,9",
     WEFT_LAYOUT_C16,
     1e-5,
     "ew"},
    {"ew c16 odd gate",
     WEFT_OP_EW,
     {"steps", "t:mul i0 i1"},
     {"c 2,20,9,9", "x 2,20,1,1"},
     "2,20,9,9",
     WEFT_LAYOUT_C16,
     1e-5,
     "ref"},
    {"ew where",
     WEFT_OP_EW,
     {"steps", "t:where i0 i1 #-3;exp acc;neg acc"},
     {"b 5,1,9", "x 7,9"},
     "5,7,9",
     0,
     1e-5,
     "ew"},
    {"ew scalar",
     WEFT_OP_EW,
     {"steps", "t:pow i0 #3;clip acc #-0.1 #0.2;gelu_tanh acc"},
     {"x 3000"},
     "3000",
     0,
     1e-5,
     "ew"},
    {"ew long rows",
     WEFT_OP_EW,
     {"steps", "t:mul i0 i1;abs s0;add s1 #0.1;log acc"},
     {"x 3,2500", "x 2500"},
     "3,2500",
     0,
     1e-5,
     "ew"},
    {"gelu alone", WEFT_OP_GELU, {NULL}, {"x 77"}, "77", 0, 1e-5, ""},
};

static void test_cpu_kernels__operators(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof other_checks / sizeof *other_checks; i++)
        for (uint32_t threads = 1; threads <= 2; threads++)
            run_check(&other_checks[i], threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu_kernels__convolutions),
        cmocka_unit_test(test_cpu_kernels__operators),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
