/* Sessions on the CPU driver: programs built by hand, compared with the reference implementation of
 * each operator. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/driver_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VALUES = 32, LAUNCHES = 16 };

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
    uint32_t seed;
    weft_engine *engine;
    weft_session *session;
} world;

static void init_world(world *w)
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

static void finish_world(world *w)
{
    weft_session_close(w->session);
    weft_engine_close(w->engine);
    weft_diag_destroy(w->diag);
    weft_arena_destroy(w->arena);
}

static float noise(world *w)
{
    w->seed = w->seed * 1664525u + 1013904223u;
    return (float)(w->seed >> 8) / (float)(1 << 23) - 1.0f;
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

static weft_tensor make_tensor(world *w, weft_dtype dtype, uint32_t rank, const int64_t *dim)
{
    weft_tensor t = {.dtype = dtype, .rank = (int32_t)rank};
    memcpy(t.dim, dim, rank * sizeof *dim);
    int64_t n = weft_numel(t.dim, t.rank);
    t.data = weft_arena_alloc(w->arena, (size_t)n * weft_dtype_size(dtype) + 64);
    t.data = (void *)(((uintptr_t)t.data + 63) / 64 * 64);
    for (int64_t i = 0; i < n; i++)
        weft_tensor_set_f64(&t, i, dtype == WEFT_DTYPE_F32 ? noise(w) : noise(w) > 0);
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

static uint32_t add_input(world *w, weft_tensor t)
{
    uint32_t v = add_value(w, t.dtype, WEFT_LAYOUT_PLAIN, (uint32_t)t.rank, t.dim);
    w->in[w->program.n_input] = t;
    w->input[w->program.n_input++] = (weft_bundle_port){.name = "x", .value = v};
    return v;
}

static void add_launch(world *w, weft_op_id op, weft_attrs attrs, const uint32_t *in, uint32_t n_in,
                       uint32_t out)
{
    uint32_t *ins = weft_arena_array(w->arena, n_in, sizeof *ins);
    uint32_t *outs = weft_arena_array(w->arena, 1, sizeof *outs);
    memcpy(ins, in, n_in * sizeof *ins);
    *outs = out;
    w->launch[w->program.n_launch++] = (weft_bundle_launch){
        .op = op, .in = ins, .n_in = n_in, .out = outs, .n_out = 1, .attrs = attrs, .item = "node"};
}

static void add_output(world *w, uint32_t v)
{
    w->output[w->program.n_output++] = (weft_bundle_port){.name = "y", .value = v};
}

static void open_world(world *w, uint32_t threads)
{
    weft_engine_options options = {.threads = threads};
    assert_int_equal(weft_engine__open_bundle(&w->bundle, &options, w->diag, &w->engine), 0);
    assert_int_equal(weft_session_open(w->engine, "m", w->diag, &w->session), 0);
}

static void explain(world *w)
{
    char text[512];
    for (size_t i = 0; i < weft_diag_count(w->diag); i++) {
        weft_diag_format(weft_diag_at(w->diag, i), text, sizeof text);
        print_message("%s\n", text);
    }
}

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

static uint32_t parse_dims(const char *s, int64_t *dim)
{
    uint32_t n = 0;
    while (*s) {
        dim[n++] = strtoll(s, (char **)(uintptr_t)&s, 10);
        s += *s == ',';
    }
    return n;
}

static weft_attrs parse_attrs(world *w, const char *const *text)
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

static void test_session__convolutions(void **state)
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

static void test_session__operators(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof other_checks / sizeof *other_checks; i++)
        for (uint32_t threads = 1; threads <= 2; threads++)
            run_check(&other_checks[i], threads);
}

/* -- Sessions ------------------------------------------------------------------------------- */

static void test_session__any_batch_inside_the_range(void **state)
{
    (void)state;
    world w;
    init_world(&w);
    weft_dim batch = weft_dim_symbol(w.pool, "batch", 1, 40);
    w.symbol[0] = (weft_bundle_symbol){.name = "batch", .lo = 1, .hi = 40};
    w.program.n_symbol = 1;
    int64_t xd[2] = {batch, 8}, wd[2] = {8, 4}, yd[2] = {batch, 4}, one[2] = {1, 8};
    uint32_t x = add_input(&w, make_tensor(&w, WEFT_DTYPE_F32, 2, one));
    w.value[x - 1].type.dim[0] = batch;
    (void)xd;
    uint32_t in[2] = {x, add_weight(&w, make_tensor(&w, WEFT_DTYPE_F32, 2, wd))};
    uint32_t y = add_value(&w, WEFT_DTYPE_F32, 0, 2, yd);
    add_launch(&w, WEFT_OP_MATMUL, (weft_attrs){0}, in, 2, y);
    add_output(&w, y);
    add_output(&w, x);
    open_world(&w, 1);
    for (int64_t n = 0; n <= 41; n++) {
        int64_t d[2] = {n, 8};
        weft_tensor t = make_tensor(&w, WEFT_DTYPE_F32, 2, d), got[2];
        weft_err err = weft_session_run(w.session, &t, 1, w.diag, got, 2);
        assert_int_equal(err, n == 0 || n == 41 ? WEFT_ERR_INPUT : WEFT_ERR_OK);
        if (err)
            continue;
        assert_int_equal(got[0].dim[0], n);
        assert_memory_equal(got[1].data, t.data, weft_tensor_bytes(&t));
        assert_ptr_not_equal(got[1].data, t.data);
        const float *a = t.data, *b = (const float *)w.weight[0].data, *c = got[0].data;
        for (int64_t i = 0; i < n * 4; i++) {
            double s = 0;
            for (int64_t k = 0; k < 8; k++)
                s += (double)a[i / 4 * 8 + k] * b[k * 4 + i % 4];
            assert_true(fabs(s - c[i]) < 1e-5);
        }
    }
    finish_world(&w);
}

static void test_session__shapes_that_data_tells(void **state)
{
    (void)state;
    world w;
    init_world(&w);
    int64_t xd[1] = {9};
    weft_tensor x = make_tensor(&w, WEFT_DTYPE_F32, 1, xd), got;
    for (int i = 0; i < 9; i++)
        ((float *)x.data)[i] = i % 3 ? (float)i : 0.0f;
    uint32_t vx = add_input(&w, x);
    int64_t d[2] = {1, weft_dim_fresh(w.pool)}, e[2] = {d[1], 1};
    uint32_t nz = add_value(&w, WEFT_DTYPE_I64, 0, 2, d);
    uint32_t tr = add_value(&w, WEFT_DTYPE_I64, 0, 2, e);
    add_launch(&w, WEFT_OP_NON_ZERO, (weft_attrs){0}, &vx, 1, nz);
    add_launch(&w, WEFT_OP_TRANSPOSE, (weft_attrs){0}, &nz, 1, tr);
    add_output(&w, tr);
    open_world(&w, 1);
    for (int round = 0; round < 3; round++) {
        weft_err err = weft_session_run(w.session, &x, 1, w.diag, &got, 1);
        explain(&w);
        assert_int_equal(err, WEFT_ERR_OK);
        assert_int_equal(got.dim[0], 6 - round);
        assert_int_equal(got.dim[1], 1);
        assert_int_equal(((int64_t *)got.data)[0], round == 2 ? 4 : 1 + round);
        ((float *)x.data)[1 + round] = 0;
    }
    finish_world(&w);
}

/* c2 = [x', a], c3 = [x', a, b], with x' = 2x, a = -x, b = relu(x); nested: c4 = [c3, a']. */
static void test_session__joins_without_copies(void **state)
{
    (void)state;
    for (int64_t images = 1; images <= 2; images++) {
        world w;
        init_world(&w);
        int64_t d[3] = {images, 16, 5}, d2[3] = {images, 32, 5}, d3[3] = {images, 48, 5};
        int64_t d4[3] = {images, 64, 5};
        static const char *const attrs[5][3] = {{"steps", "t:add i0 i0", NULL},
                                                {"steps", "t:neg i0", NULL},
                                                {"steps", "t:relu i0", NULL},
                                                {"axis", "i:1", NULL},
                                                {"steps", "t:abs i0", NULL}};
        uint32_t x = add_input(&w, make_tensor(&w, WEFT_DTYPE_F32, 3, d)), v[4], c[3];
        for (int i = 0; i < 4; i++) {
            v[i] = add_value(&w, WEFT_DTYPE_F32, 0, 3, d);
            add_launch(&w, WEFT_OP_EW, parse_attrs(&w, attrs[i < 3 ? i : 4]), &x, 1, v[i]);
        }
        weft_attrs axis = parse_attrs(&w, attrs[3]);
        c[0] = add_value(&w, WEFT_DTYPE_F32, 0, 3, d2);
        add_launch(&w, WEFT_OP_CONCAT, axis, v, 2, c[0]);
        c[1] = add_value(&w, WEFT_DTYPE_F32, 0, 3, d3);
        add_launch(&w, WEFT_OP_CONCAT, axis, v, 3, c[1]);
        uint32_t last[2] = {c[1], v[3]};
        c[2] = add_value(&w, WEFT_DTYPE_F32, 0, 3, d4);
        add_launch(&w, WEFT_OP_CONCAT, axis, last, 2, c[2]);
        for (int i = 0; i < 3; i++)
            add_output(&w, c[i]);
        open_world(&w, 1);
        weft_tensor out[3];
        weft_session_profile(w.session, true);
        assert_int_equal(weft_session_run(w.session, w.in, 1, w.diag, out, 3), WEFT_ERR_OK);
        const float *in = w.in[0].data;
        for (int o = 0; o < 3; o++)
            for (int64_t i = 0; i < weft_tensor_numel(&out[o]); i++) {
                int64_t part = i / 80 % (o + 2), image = i / 80 / (o + 2);
                float f = in[image * 80 + i % 80];
                float want = part == 0   ? f + f
                             : part == 1 ? -f
                             : part == 2 ? fmaxf(f, 0)
                                         : fabsf(f);
                assert_true(((float *)out[o].data)[i] == want);
            }
        uint32_t n;
        const weft_launch_time *time = weft_session_times(w.session, &n);
        for (uint32_t i = 4; i < 7; i++)
            assert_string_equal(time[i].variant, images == 1 ? "joined" : "move");
        finish_world(&w);
    }
}

static void test_session__memory_limit_holds(void **state)
{
    (void)state;
    world w;
    init_world(&w);
    int64_t d[2] = {1000, 1000};
    uint32_t x = add_input(&w, make_tensor(&w, WEFT_DTYPE_F32, 2, d));
    uint32_t y = add_value(&w, WEFT_DTYPE_F32, 0, 2, d);
    const char *attrs[] = {"steps", "t:relu i0", NULL};
    add_launch(&w, WEFT_OP_EW, parse_attrs(&w, attrs), &x, 1, y);
    add_output(&w, y);
    weft_engine_options options = {.threads = 1, .mem_limit_bytes = 1000000};
    weft_tensor got;
    assert_int_equal(weft_engine__open_bundle(&w.bundle, &options, w.diag, &w.engine), 0);
    assert_int_equal(weft_session_open(w.engine, "m", w.diag, &w.session), 0);
    assert_int_equal(weft_session_run(w.session, w.in, 1, w.diag, &got, 1), WEFT_ERR_NOMEM);
    assert_int_equal(weft_session_run(w.session, w.in, 1, w.diag, &got, 1), WEFT_ERR_NOMEM);
    finish_world(&w);
}

static void test_session__refuses_wrong_inputs(void **state)
{
    (void)state;
    world w;
    init_world(&w);
    int64_t d[2] = {3, 4}, wrong[2] = {3, 5};
    uint32_t x = add_input(&w, make_tensor(&w, WEFT_DTYPE_F32, 2, d));
    add_output(&w, x);
    open_world(&w, 1);
    weft_tensor got, t = make_tensor(&w, WEFT_DTYPE_F32, 2, wrong);
    assert_int_equal(weft_session_run(w.session, &t, 1, w.diag, &got, 1), WEFT_ERR_INPUT);
    t = make_tensor(&w, WEFT_DTYPE_F32, 1, d);
    assert_int_equal(weft_session_run(w.session, &t, 1, w.diag, &got, 1), WEFT_ERR_INPUT);
    t = make_tensor(&w, WEFT_DTYPE_I64, 2, d);
    assert_int_equal(weft_session_run(w.session, &t, 1, w.diag, &got, 1), WEFT_ERR_INPUT);
    assert_int_equal(weft_session_run(w.session, w.in, 0, w.diag, &got, 1), WEFT_ERR_INPUT);
    assert_int_equal(weft_session_run(w.session, w.in, 1, w.diag, &got, 0), WEFT_ERR_INPUT);
    assert_int_equal(weft_session_run(w.session, w.in, 1, w.diag, &got, 1), WEFT_ERR_OK);
    char odd[12 * 4 + 1];
    memcpy(odd + 1, w.in[0].data, sizeof odd - 1);
    t = w.in[0];
    t.data = odd + 1;
    assert_int_equal(weft_session_run(w.session, &t, 1, w.diag, &got, 1), WEFT_ERR_OK);
    assert_memory_equal(got.data, w.in[0].data, 48);
    finish_world(&w);
}

static void test_session__wrong_checksum_is_refused(void **state)
{
    (void)state;
    world w;
    init_world(&w);
    int64_t d[2] = {8, 8};
    uint32_t in[2] = {add_input(&w, make_tensor(&w, WEFT_DTYPE_F32, 2, d)),
                      add_weight(&w, make_tensor(&w, WEFT_DTYPE_F32, 2, d))};
    uint32_t y = add_value(&w, WEFT_DTYPE_F32, 0, 2, d);
    add_launch(&w, WEFT_OP_MATMUL, (weft_attrs){0}, in, 2, y);
    add_output(&w, y);
    static const uint8_t byte;
    w.bundle.file = (weft_file){.at = &byte, .len = 1}; /* as if it came from a file */
    w.weight[0].checksum ^= 1;
    open_world(&w, 1);
    weft_tensor got;
    assert_int_equal(weft_session_run(w.session, w.in, 1, w.diag, &got, 1), WEFT_ERR_INPUT);
    finish_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_session__convolutions),
        cmocka_unit_test(test_session__operators),
        cmocka_unit_test(test_session__any_batch_inside_the_range),
        cmocka_unit_test(test_session__shapes_that_data_tells),
        cmocka_unit_test(test_session__joins_without_copies),
        cmocka_unit_test(test_session__memory_limit_holds),
        cmocka_unit_test(test_session__refuses_wrong_inputs),
        cmocka_unit_test(test_session__wrong_checksum_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
