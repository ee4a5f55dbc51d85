/* Kernels of the CPU driver on bytes, each compared with the reference implementation: quantised
 * products with zero points of every kind, and chains of quantisation. The program runs its tests
 * for each instruction set in turn. */
#include "tests/support/session_world.h"

#include <stdio.h>
#include <unistd.h>

#define U8  WEFT_DTYPE_U8
#define I8  WEFT_DTYPE_I8
#define F32 WEFT_DTYPE_F32
enum { IN_MAX = WEFT_QLINEAR_OPERANDS + 2 };

typedef struct problem {
    world w;
    uint32_t n_in, in[IN_MAX];
    weft_tensor t[IN_MAX];
    const weft_tensor *operand[IN_MAX];
    weft_op_id op;
    weft_attrs attrs;
    const char *name, *variant;
    uint32_t out;
    weft_tensor want;
} problem;

static void fill_bytes(problem *p, weft_tensor *t)
{
    for (int64_t i = 0; i < weft_tensor_numel(t); i++)
        weft_tensor_set_i64(t, i,
                            (int64_t)(rand_next(&p->w.seed) >> 56) - (t->dtype == I8 ? 128 : 0));
}

/* Adds an operand; its dims are `n` for a vector, 0 for a number. */
static void add_operand(problem *p, weft_tensor t, bool weight)
{
    p->t[p->n_in] = t;
    p->operand[p->n_in] = &p->t[p->n_in];
    p->in[p->n_in++] = weight ? add_weight(&p->w, t) : add_input(&p->w, t);
}

static void add_scale(problem *p, int64_t n, double scale, bool weight)
{
    weft_tensor t = make_tensor(&p->w, F32, n > 0, &n);
    for (int64_t i = 0; i < weft_tensor_numel(&t); i++)
        weft_tensor_set_f64(&t, i, scale * (1 + 0.5 * rand_unit(&p->w.seed)));
    add_operand(p, t, weight);
}

static void add_zero(problem *p, int64_t n, weft_dtype dtype, bool zero, bool weight)
{
    weft_tensor t = make_tensor(&p->w, dtype, n > 0, &n);
    fill_bytes(p, &t);
    for (int64_t i = 0; zero && i < weft_tensor_numel(&t); i++)
        weft_tensor_set_i64(&t, i, 0);
    add_operand(p, t, weight);
}

static void evaluate(problem *p, weft_dtype dtype, const char *dims)
{
    int64_t dim[8];
    uint32_t rank = parse_dims(dims, dim);
    p->want = make_tensor(&p->w, dtype, rank, dim);
    weft_eval_ctx cx = {.op = weft_op_get(p->op),
                        .attrs = p->attrs,
                        .in = p->operand,
                        .n_in = p->n_in,
                        .out = &p->want,
                        .n_out = 1,
                        .scratch = p->w.arena,
                        .diag = p->w.diag};
    weft_err err = weft_op_eval(&cx);
    explain(&p->w);
    assert_int_equal(err, WEFT_ERR_OK);
}

/* Bytes differ by one where rounding errors decide a tie: hardly ever. */
static void compare(const problem *p, const weft_tensor *got)
{
    int64_t n = weft_tensor_numel(&p->want), off = 0;
    double scale = 1e-6;
    for (int64_t i = 0; i < n; i++)
        if (fabs(weft_tensor_get_f64(&p->want, i)) < 1e6)
            scale = fmax(scale, fabs(weft_tensor_get_f64(&p->want, i)));
    assert_int_equal(weft_tensor_numel(got), n);
    for (int64_t i = 0; i < n; i++) {
        double a = weft_tensor_get_f64(got, i), b = weft_tensor_get_f64(&p->want, i);
        if (a == b || (isnan(a) && isnan(b)))
            continue;
        off++;
        if (!(fabs(a - b) <= (p->want.dtype == F32 ? 2e-6 * fmax(scale, fabs(b)) : 1)))
            fail_msg("%s, element %lld: %g, expected %g", p->name, (long long)i, a, b);
    }
    if (p->want.dtype != F32 && off > n / 100 + 1)
        fail_msg("%s: %lld of %lld bytes differ", p->name, (long long)off, (long long)n);
}

static void run_problem(problem *p, uint32_t at, uint32_t threads)
{
    weft_tensor got;
    uint32_t n;
    add_output(&p->w, p->out);
    open_world(&p->w, threads);
    for (int round = 0; round < 2; round++) {
        weft_session_profile(p->w.session, true);
        weft_err err =
            weft_session_run(p->w.session, p->w.in, p->w.program.n_input, p->w.diag, &got, 1);
        explain(&p->w);
        assert_int_equal(err, WEFT_ERR_OK);
        const char *variant = weft_session_times(p->w.session, &n)[at].variant;
        compare(p, &got);
        if (!strstr(variant, p->variant))
            fail_msg("%s: kernel %s", p->name, variant);
    }
    finish_world(&p->w);
}

/* -- Products ------------------------------------------------------------------------------- */

typedef enum bias_kind { NO_BIAS, WHOLE, REAL } bias_kind;

typedef struct product {
    const char *name;
    weft_op_id op;
    const char *attrs[12], *a, *b, *y;
    weft_dtype a_type, b_type, y_type;
    bool b_varies, nhwc, per_channel, no_zero, a_at_run;
    bias_kind bias;
    const char *variant;
} product;

static const product products[] = {
    {.name = "matmul",
     .op = WEFT_OP_QLINEAR_MATMUL,
     .a = "6,33",
     .b = "33,17",
     .y = "6,17",
     .a_type = U8,
     .b_type = I8,
     .y_type = U8,
     .variant = "words"},
    {.name = "matmul per column",
     .op = WEFT_OP_QLINEAR_MATMUL,
     .a = "2,71,64",
     .b = "64,97",
     .y = "2,71,97",
     .a_type = U8,
     .b_type = U8,
     .y_type = F32,
     .per_channel = true,
     .bias = REAL,
     .variant = "words"},
    {.name = "matmul signed",
     .op = WEFT_OP_QLINEAR_MATMUL,
     .a = "9,40",
     .b = "40,32",
     .y = "9,32",
     .a_type = I8,
     .b_type = I8,
     .y_type = I8,
     .per_channel = true,
     .bias = WHOLE,
     .variant = "words"},
    {.name = "matmul of one row",
     .op = WEFT_OP_QLINEAR_MATMUL,
     .a = "1,1001",
     .b = "1001,130",
     .y = "1,130",
     .a_type = U8,
     .b_type = U8,
     .y_type = F32,
     .a_at_run = true,
     .variant = "words"},
    {.name = "matmul with steps",
     .op = WEFT_OP_QLINEAR_MATMUL,
     .attrs = {"epilogue", "t:relu acc;mul acc #0.5"},
     .a = "70,12",
     .b = "12,5",
     .y = "70,5",
     .a_type = U8,
     .b_type = I8,
     .y_type = U8,
     .bias = REAL,
     .variant = "words"},
    {.name = "matmul with steps to floats",
     .op = WEFT_OP_QLINEAR_MATMUL,
     .attrs = {"epilogue", "t:gelu acc"},
     .a = "70,12",
     .b = "12,5",
     .y = "70,5",
     .a_type = I8,
     .b_type = U8,
     .y_type = F32,
     .a_at_run = true,
     .bias = REAL,
     .variant = "words"},
    {.name = "matmul of weights without zero points",
     .op = WEFT_OP_QLINEAR_MATMUL,
     .a = "20,64",
     .b = "64,48",
     .y = "20,48",
     .a_type = U8,
     .b_type = I8,
     .y_type = U8,
     .no_zero = true,
     .bias = WHOLE,
     .variant = ""},
    {.name = "matmul of activations",
     .op = WEFT_OP_QLINEAR_MATMUL,
     .a = "2,3,19,16",
     .b = "2,3,16,35",
     .y = "2,3,19,35",
     .a_type = U8,
     .b_type = U8,
     .y_type = U8,
     .b_varies = true,
     .variant = "words"},
    {.name = "matmul of shared activations",
     .op = WEFT_OP_QLINEAR_MATMUL,
     .a = "2,3,5,7",
     .b = "3,7,33",
     .y = "2,3,5,33",
     .a_type = I8,
     .b_type = I8,
     .y_type = F32,
     .b_varies = true,
     .variant = "words"},
    {.name = "matmul of stacked weights",
     .op = WEFT_OP_QLINEAR_MATMUL,
     .a = "2,4,9",
     .b = "2,9,40",
     .y = "2,4,40",
     .a_type = U8,
     .b_type = U8,
     .y_type = U8,
     .variant = "words"},
    {.name = "conv",
     .op = WEFT_OP_QLINEAR_CONV,
     .attrs = {"pads", "l:1,0,1,2", "strides", "l:2,1"},
     .a = "2,3,15,9",
     .b = "17,3,3,3",
     .y = "2,17,8,9",
     .a_type = U8,
     .b_type = U8,
     .y_type = U8,
     .per_channel = true,
     .bias = WHOLE,
     .nhwc = true,
     .variant = "words"},
    {.name = "conv of plain images",
     .op = WEFT_OP_QLINEAR_CONV,
     .attrs = {"pads", "l:1,1,1,1"},
     .a = "1,5,7,6",
     .b = "4,5,3,3",
     .y = "1,4,7,6",
     .a_type = I8,
     .b_type = I8,
     .y_type = I8,
     .bias = REAL,
     .variant = "words"},
    {.name = "conv 1x1 to floats",
     .op = WEFT_OP_QLINEAR_CONV,
     .attrs = {"epilogue", "t:silu acc"},
     .a = "1,24,10,13",
     .b = "40,24,1,1",
     .y = "1,40,10,13",
     .a_type = U8,
     .b_type = U8,
     .y_type = F32,
     .a_at_run = true,
     .nhwc = true,
     .variant = "words"},
    {.name = "conv with steps",
     .op = WEFT_OP_QLINEAR_CONV,
     .attrs = {"epilogue", "t:clip acc #0 #6", "dilations", "l:2,2", "pads", "l:2,2,2,2"},
     .a = "1,8,9,9",
     .b = "33,8,3,3",
     .y = "1,33,9,9",
     .a_type = U8,
     .b_type = I8,
     .y_type = U8,
     .bias = REAL,
     .nhwc = true,
     .variant = "words"},
    {.name = "conv of groups",
     .op = WEFT_OP_QLINEAR_CONV,
     .attrs = {"group", "i:3", "pads", "l:1,1,1,1"},
     .a = "2,15,6,6",
     .b = "12,5,3,3",
     .y = "2,12,6,6",
     .a_type = U8,
     .b_type = U8,
     .y_type = U8,
     .per_channel = true,
     .nhwc = true,
     .variant = "words"},
    {.name = "conv depthwise",
     .op = WEFT_OP_QLINEAR_CONV,
     .attrs = {"group", "i:37", "pads", "l:1,1,1,1", "strides", "l:2,2"},
     .a = "2,37,9,9",
     .b = "37,1,3,3",
     .y = "2,37,5,5",
     .a_type = U8,
     .b_type = U8,
     .y_type = U8,
     .per_channel = true,
     .bias = WHOLE,
     .nhwc = true,
     .variant = "words:depthwise"},
    {.name = "conv depthwise of many channels",
     .op = WEFT_OP_QLINEAR_CONV,
     .attrs = {"group", "i:300", "pads", "l:2,2,2,2"},
     .a = "1,300,5,5",
     .b = "300,1,5,5",
     .y = "1,300,5,5",
     .a_type = I8,
     .b_type = I8,
     .y_type = F32,
     .bias = REAL,
     .nhwc = true,
     .variant = "words:depthwise"},
    {.name = "conv of lines",
     .op = WEFT_OP_QLINEAR_CONV,
     .attrs = {"pads", "l:2,1"},
     .a = "2,6,20",
     .b = "9,6,4",
     .y = "2,9,20",
     .a_type = U8,
     .b_type = U8,
     .y_type = U8,
     .variant = "words"},
    {.name = "conv of volumes",
     .op = WEFT_OP_QLINEAR_CONV,
     .attrs = {"pads", "l:1,0,1,1,0,1"},
     .a = "1,3,4,5,6",
     .b = "7,3,3,2,3",
     .y = "1,7,4,4,6",
     .a_type = U8,
     .b_type = U8,
     .y_type = F32,
     .variant = "words"},
    {.name = "conv of weights without zero points",
     .op = WEFT_OP_QLINEAR_CONV,
     .attrs = {"pads", "l:1,1,1,1"},
     .a = "1,16,8,8",
     .b = "24,16,3,3",
     .y = "1,24,8,8",
     .a_type = U8,
     .b_type = I8,
     .y_type = U8,
     .no_zero = true,
     .nhwc = true,
     .variant = ""},
};

static uint32_t reordered(problem *p, uint32_t v, weft_dtype dtype, const char *dims,
                          weft_layout to)
{
    int64_t dim[8];
    uint32_t rank = parse_dims(dims, dim), out = add_value(&p->w, dtype, to, rank, dim);
    const char *name = weft_layout_name(to);
    weft_attr *a = weft_arena_alloc(p->w.arena, sizeof *a);
    *a = (weft_attr){.key = WEFT_ATTR_LAYOUT, .kind = WEFT_KIND_STR, .u.s = name};
    add_launch(&p->w, WEFT_OP_REORDER, (weft_attrs){.at = a, .n = 1}, &v, 1, out);
    return out;
}

static weft_tensor bytes_of(problem *p, weft_dtype dtype, const char *dims)
{
    int64_t dim[8];
    uint32_t rank = parse_dims(dims, dim);
    weft_tensor t = make_tensor(&p->w, dtype, rank, dim);
    fill_bytes(p, &t);
    return t;
}

static void add_result(problem *p, const product *c, int64_t cols)
{
    bool quantised = c->y_type != F32;
    if (quantised) {
        add_scale(p, 0, 4, true);
        add_zero(p, 0, c->y_type, false, true);
    } else {
        p->n_in += 2;
    }
    if (c->bias == NO_BIAS)
        return;
    weft_tensor t = make_tensor(&p->w, c->bias == WHOLE ? WEFT_DTYPE_I32 : F32, 1, &cols);
    for (int64_t i = 0; i < cols; i++)
        weft_tensor_set_f64(&t, i,
                            rint(rand_signed(&p->w.seed) * 3000) * (c->bias == WHOLE ? 1 : 0.01));
    add_operand(p, t, true);
}

static void run_product(const product *c, uint64_t seed, uint32_t threads)
{
    problem p = {.op = c->op, .name = c->name, .variant = c->variant};
    int64_t dim[8];
    bool is_conv = c->op == WEFT_OP_QLINEAR_CONV;
    init_world(&p.w);
    p.w.seed = seed;
    p.attrs = parse_attrs(&p.w, c->attrs);
    uint32_t rank = parse_dims(c->b, dim);
    int64_t cols = is_conv ? dim[0] : dim[rank - 1], n = c->per_channel ? cols : 0;
    add_operand(&p, bytes_of(&p, c->a_type, c->a), false);
    add_scale(&p, 0, 0.02, !c->a_at_run);
    add_zero(&p, 0, c->a_type, false, !c->a_at_run);
    add_operand(&p, bytes_of(&p, c->b_type, c->b), !c->b_varies);
    add_scale(&p, n, 0.02, true);
    add_zero(&p, n, c->b_type, c->no_zero, true);
    add_result(&p, c, cols);
    evaluate(&p, c->y_type, c->y);
    uint32_t rank_y = parse_dims(c->y, dim), at;
    if (c->nhwc)
        p.in[0] = reordered(&p, p.in[0], c->a_type, c->a, WEFT_LAYOUT_NHWC);
    at = p.w.program.n_launch;
    p.out = add_value(&p.w, c->y_type, c->nhwc ? WEFT_LAYOUT_NHWC : WEFT_LAYOUT_PLAIN, rank_y, dim);
    add_launch(&p.w, c->op, p.attrs, p.in, p.n_in, p.out);
    if (c->nhwc)
        p.out = reordered(&p, p.out, c->y_type, c->y, WEFT_LAYOUT_PLAIN);
    run_problem(&p, at, threads);
}

static void test_cpu_bytes__products(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        for (uint32_t threads = 1; threads <= 2; threads++)
            run_product(&products[i], 7 * i + threads, threads);
}

/* -- Chains --------------------------------------------------------------------------------- */

typedef struct chain {
    const char *steps, *x[3]; /* dims after the type: "u", "i", "f" */
    const char *y;
    weft_dtype type;
} chain;

static const chain chains[] = {
    {"t:quantize_u8 i0 #0.01 #117", {"f 3,7,100"}, "3,7,100", U8},
    {"t:quantize_i8 i0 #0.01 #-9", {"f 1,4,2053"}, "1,4,2053", I8},
    {"t:dequantize i0 #0.01 #128", {"u 5,77"}, "5,77", F32},
    {"t:dequantize i0 #0.01 #-3", {"i 5,77"}, "5,77", F32},
    {"t:dequantize i0 #0.01 #9;dequantize i1 #0.02 #-5;add s0 s1;quantize_u8 s2 #0.05 #30",
     {"u 9,131", "i 9,131"},
     "9,131",
     U8},
    {"t:dequantize i0 #0.5 #9;dequantize i1 #0.25 #5;add s0 s1;div s2 #0.5;add s3 #3;"
     "quantize_u8 s4 #1 #0",
     {"u 9,131", "u 9,131"},
     "9,131",
     U8},
    {"t:dequantize i0 #0.5 #9;mul s0 i1;div s1 #0.5;add s2 #-3;quantize_i8 s3 #1 #0;"
     "dequantize s4 #0.5 #-3;relu s5",
     {"u 9,131", "f 131"},
     "9,131",
     F32},
    {"t:add i0 #0.1;sub s0 #0.2;mul s1 #3;div s2 #7;quantize_u8 s3 #0.01 #100;"
     "dequantize s4 #0.01 #100;add s5 i0",
     {"f 3,400"},
     "3,400",
     F32},
    {"t:quantize_u8 i0 #0.01 #100;dequantize s0 #0.01 #100;gelu s1;quantize_u8 s2 #0.02 #7",
     {"f 3,417"},
     "3,417",
     U8},
    {"t:dequantize i0 #0.02 #0;sigmoid s0;mul s0 s1;quantize_i8 s2 #0.02 #-7",
     {"i 3,417"},
     "3,417",
     I8},
    {"t:mul i0 #2;add s0 #1;mul s1 i0;add s2 s0", {"f 3,41"}, "3,41", F32},
    {"t:quantize_u8 i0 i1 #3", {"f 3,41", "f 1"}, "3,41", U8},
};

static weft_tensor chain_operand(problem *p, const char *text)
{
    weft_dtype dtype = text[0] == 'u' ? U8 : text[0] == 'i' ? I8 : F32;
    int64_t dim[8];
    if (dtype != F32)
        return bytes_of(p, dtype, text + 2);
    uint32_t rank = parse_dims(text + 2, dim);
    weft_tensor t = make_tensor(&p->w, F32, rank, dim);
    float *x = t.data;
    if (weft_tensor_numel(&t) == 1)
        x[0] = 0.05f;
    if (rank > 1 && weft_tensor_numel(&t) > 8) {
        const float special[] = {NAN, INFINITY, -INFINITY, -0.0f, 1e30f, -1e30f, 0.005f, 0.015f};
        memcpy(x + 3, special, sizeof special);
    }
    return t;
}

static void run_chain(const chain *c, uint32_t threads)
{
    const char *attrs[12] = {"steps", c->steps};
    problem p = {.op = WEFT_OP_EW, .name = c->steps, .variant = "ew"};
    int64_t dim[8];
    init_world(&p.w);
    weft_attrs steps = parse_attrs(&p.w, attrs);
    weft_attr *a = weft_arena_array(p.w.arena, 2, sizeof *a);
    weft_attr dtype = {.key = WEFT_ATTR_DTYPE, .kind = WEFT_KIND_DTYPE};
    dtype.u.dtype = c->type;
    bool first = dtype.key < steps.at[0].key;
    a[first ? 0 : 1] = dtype;
    a[first ? 1 : 0] = steps.at[0];
    p.attrs = (weft_attrs){.at = a, .n = 2};
    for (uint32_t i = 0; i < 3 && c->x[i]; i++)
        add_operand(&p, chain_operand(&p, c->x[i]), false);
    evaluate(&p, c->type, c->y);
    p.out = add_value(&p.w, c->type, WEFT_LAYOUT_PLAIN, parse_dims(c->y, dim), dim);
    add_launch(&p.w, p.op, p.attrs, p.in, p.n_in, p.out);
    run_problem(&p, 0, threads);
}

static void test_cpu_bytes__chains(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof chains / sizeof *chains; i++)
        for (uint32_t threads = 1; threads <= 2; threads++)
            run_chain(&chains[i], threads);
}

/* -- Instruction sets ----------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    static const char *const isa[] = {"", "AVX512_CORE", "AVX2", "SSE41"};
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cpu_bytes__products),
                                       cmocka_unit_test(test_cpu_bytes__chains)};
    int at = argc > 1 ? atoi(argv[1]) : 0, failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed || at + 1 >= (int)(sizeof isa / sizeof *isa))
        return failed;
    char next[16];
    snprintf(next, sizeof next, "%d", at + 1);
    setenv("ONEDNN_MAX_CPU_ISA", isa[at + 1], 1);
    execl("/proc/self/exe", argv[0], next, (char *)NULL);
    return 1;
}
