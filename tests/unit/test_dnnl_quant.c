/* Quantised products and convolutions through dnnl_api.h, against the formula of weft_dnnl_quant in
 * double precision. The same cases hold for oneDNN 2 and 3. */
#include "runtime/cpu/dnnl_api.h"
#include "tests/support/rand.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ARGS = 16 };

typedef struct bench {
    weft_dnnl_scope scope;
    dnnl_stream_t stream;
    dnnl_exec_arg_t arg[ARGS];
    uint32_t n;
    void *owned[ARGS];
} bench;

static void start(bench *b)
{
    memset(b, 0, sizeof *b);
    assert_int_equal(weft_dnnl__engine_open(&b->scope.engine, &b->stream), dnnl_success);
}

static void add_arg(bench *b, int arg, const weft_dnnl_md *md, void *at)
{
    assert_true(b->n < ARGS);
    b->arg[b->n].arg = arg;
    b->arg[b->n].memory = weft_dnnl__memory_create(b->scope.engine, md, at);
    assert_non_null(b->arg[b->n].memory);
    b->n++;
}

static void *room_for(bench *b, uint64_t bytes)
{
    void *at = aligned_alloc(64, (bytes + 127) / 64 * 64);
    assert_non_null(at);
    b->owned[b->n] = at;
    return at;
}

static void execute(bench *b, const weft_dnnl_pd *pd)
{
    dnnl_primitive_t prim = weft_dnnl__primitive_create(pd);
    assert_non_null(prim);
    assert_true(weft_dnnl__execute(prim, b->stream, b->n, b->arg));
    weft_dnnl__primitive_destroy(prim);
    for (uint32_t i = 0; i < b->n; i++) {
        weft_dnnl__memory_destroy(b->arg[i].memory);
        free(b->owned[i]);
        b->owned[i] = NULL;
    }
    b->n = 0;
}

static void finish(bench *b)
{
    weft_dnnl__scope_finish(&b->scope);
    weft_dnnl__engine_close(b->scope.engine, b->stream);
}

/* Binds weights in the layout that pd expects. */
static void add_weights(bench *b, const weft_dnnl_pd *pd, const weft_dnnl_md *from, void *at)
{
    const weft_dnnl_md *to = weft_dnnl__pd_md(&b->scope, pd, dnnl_query_weights_md, 0);
    bench pack = {.scope = {.engine = b->scope.engine}, .stream = b->stream};
    const weft_dnnl_pd *reorder = weft_dnnl__reorder(&pack.scope, from, to);
    assert_non_null(reorder);
    void *packed = room_for(b, weft_dnnl__md_bytes(to));
    add_arg(b, DNNL_ARG_WEIGHTS, to, packed);
    const weft_dnnl_md *scratch =
        weft_dnnl__pd_md(&pack.scope, reorder, dnnl_query_scratchpad_md, 0);
    add_arg(&pack, DNNL_ARG_FROM, from, at);
    add_arg(&pack, DNNL_ARG_TO, to, packed);
    if (scratch) {
        void *room = room_for(&pack, weft_dnnl__md_bytes(scratch));
        add_arg(&pack, DNNL_ARG_SCRATCHPAD, scratch, room);
    }
    execute(&pack, reorder);
    weft_dnnl__scope_finish(&pack.scope);
}

static void add_quant(bench *b, const weft_dnnl_quant *q)
{
    weft_dnnl_const c[WEFT_DNNL_QUANT_ARGS];
    uint32_t n = weft_dnnl__quant_args(q, c);
    for (uint32_t i = 0; i < n; i++) {
        int64_t dim = c[i].n;
        add_arg(b, c[i].arg, weft_dnnl__md_by_tag(&b->scope, 1, &dim, c[i].type, dnnl_a),
                (void *)(uintptr_t)c[i].values);
    }
}

static void add_scratch(bench *b, const weft_dnnl_pd *pd)
{
    const weft_dnnl_md *md = weft_dnnl__pd_md(&b->scope, pd, dnnl_query_scratchpad_md, 0);
    if (md) {
        void *room = room_for(b, weft_dnnl__md_bytes(md));
        add_arg(b, DNNL_ARG_SCRATCHPAD, md, room);
    }
}

/* -- Products ------------------------------------------------------------------------------- */

enum { M = 5, K = 37, N = 19 };

typedef struct product {
    const char *name;
    dnnl_data_type_t x, y;
    bool scaled, per_column, bias, relu, residual, factor, at_run;
    float sy;
    int32_t zx, zy;
} product;

static const product products[] = {
    {.name = "s32 sums", .x = dnnl_u8, .y = dnnl_s32},
    {.name = "s32 sums of s8", .x = dnnl_s8, .y = dnnl_s32},
    {.name = "f32", .x = dnnl_u8, .y = dnnl_f32, .scaled = true, .bias = true},
    {.name = "f32 by column",
     .x = dnnl_u8,
     .y = dnnl_f32,
     .scaled = true,
     .per_column = true,
     .bias = true,
     .zx = 11},
    {.name = "u8",
     .x = dnnl_u8,
     .y = dnnl_u8,
     .scaled = true,
     .per_column = true,
     .bias = true,
     .sy = 0.3f,
     .zx = 100,
     .zy = 17},
    {.name = "s8", .x = dnnl_s8, .y = dnnl_s8, .scaled = true, .sy = 0.25f, .zx = -3, .zy = -9},
    {.name = "relu",
     .x = dnnl_u8,
     .y = dnnl_s8,
     .scaled = true,
     .per_column = true,
     .relu = true,
     .sy = 0.2f,
     .zy = -100},
    {.name = "residual, relu",
     .x = dnnl_s8,
     .y = dnnl_u8,
     .scaled = true,
     .residual = true,
     .relu = true,
     .sy = 0.2f,
     .zx = 5,
     .zy = 30},
    {.name = "factor after relu",
     .x = dnnl_u8,
     .y = dnnl_u8,
     .scaled = true,
     .relu = true,
     .factor = true,
     .sy = 0.2f,
     .zy = 3},
    {.name = "scales of the run",
     .x = dnnl_u8,
     .y = dnnl_f32,
     .scaled = true,
     .per_column = true,
     .at_run = true,
     .zx = 77},
    {.name = "scales of the run, relu",
     .x = dnnl_u8,
     .y = dnnl_u8,
     .scaled = true,
     .per_column = true,
     .at_run = true,
     .relu = true,
     .sy = 0.2f,
     .zx = 7,
     .zy = 1},
};

typedef struct operands {
    uint8_t x[M * K]; /* u8 or s8 */
    int8_t w[K * N];
    float sw[N], scale[N], bias[N];
    float factor[N];
    union {
        uint8_t u8[M * N];
        int8_t s8[M * N];
        int32_t s32[M * N];
        float f32[M * N];
    } y, before;
} operands;

/* Seven bits of x, so that instruction sets without VNNI do not saturate. */
static void fill(operands *o, uint64_t seed, dnnl_data_type_t x)
{
    for (int i = 0; i < M * K; i++)
        o->x[i] = (uint8_t)(rand_below(&seed, 128) - (x == dnnl_s8 ? 64 : 0));
    for (int i = 0; i < K * N; i++)
        o->w[i] = (int8_t)((int)rand_below(&seed, 127) - 63);
    for (int i = 0; i < N; i++) {
        o->sw[i] = 0.001f + 0.002f * (float)rand_unit(&seed);
        o->bias[i] = 20 * rand_signed(&seed);
        o->factor[i] = rand_signed(&seed);
    }
    for (int i = 0; i < M * N; i++)
        o->y.u8[i] = o->before.u8[i] = (uint8_t)rand_below(&seed, 100);
}

static double expected(const product *p, const operands *o, int m, int n)
{
    double sum = 0;
    for (int k = 0; k < K; k++) {
        int x = p->x == dnnl_s8 ? (int8_t)o->x[m * K + k] : o->x[m * K + k];
        sum += (double)(x - p->zx) * o->w[k * N + n];
    }
    if (p->scaled)
        sum *= 0.5 * o->sw[p->per_column ? n : 0];
    if (p->bias)
        sum += o->bias[n];
    if (p->residual)
        sum += 0.11 * (o->before.u8[m * N + n] - 4);
    if (p->relu && sum < 0)
        sum *= 0.125;
    if (p->factor)
        sum *= o->factor[n];
    return sum / (p->sy != 0 ? p->sy : 1) + p->zy;
}

static void compare(const product *p, const operands *o)
{
    for (int i = 0; i < M * N; i++) {
        double want = expected(p, o, i / N, i % N);
        double got = p->y == dnnl_f32   ? (double)o->y.f32[i]
                     : p->y == dnnl_s32 ? o->y.s32[i]
                     : p->y == dnnl_s8  ? o->y.s8[i]
                                        : o->y.u8[i];
        double low = p->y == dnnl_s8 ? -128 : 0, high = p->y == dnnl_s8 ? 127 : 255;
        bool eight = p->y == dnnl_s8 || p->y == dnnl_u8;
        if (eight)
            want = fmin(fmax(want, low), high);
        /* Rounding to the nearest, with the error of f32 before it. */
        double allowed = eight ? 0.5 + 1e-4 : p->y == dnnl_s32 ? 0 : 1e-4;
        if (!(fabs(got - want) <= allowed))
            fail_msg("%s, element %d: %g, not %g", p->name, i, got, want);
    }
}

/* The residual is the previous contents of the result with scale 0.11 and zero point 4. */
static weft_dnnl_attr attributes(bench *b, const product *p, const operands *o)
{
    weft_dnnl_attr a = {.quant = {.sx = 0.5f,
                                  .sw = o->sw,
                                  .n_sw = !p->scaled      ? 0
                                          : p->per_column ? N
                                                          : 1,
                                  .sy = p->sy,
                                  .zx = p->zx,
                                  .zy = p->zy,
                                  .scale_at_run = p->at_run,
                                  .zx_at_run = p->at_run}};
    if (p->residual)
        assert_true(weft_dnnl__append(
            &a,
            (weft_dnnl_post){.kind = dnnl_sum, .alpha = 0.11f, .zero_point = 4, .type = dnnl_u8}));
    if (p->relu)
        assert_true(weft_dnnl__append(
            &a, (weft_dnnl_post){.kind = dnnl_eltwise, .alg = dnnl_eltwise_relu, .alpha = 0.125f}));
    if (p->factor)
        assert_true(weft_dnnl__append(
            &a, (weft_dnnl_post){.kind = dnnl_binary,
                                 .alg = dnnl_binary_mul,
                                 .md = weft_dnnl__md_by_tag(&b->scope, 2, (int64_t[]){1, N},
                                                            dnnl_f32, dnnl_ab)}));
    return a;
}

static void add_run_values(bench *b, const product *p, operands *o)
{
    static int32_t zx;
    const int64_t n = N, one = 1;
    zx = p->zx;
    for (int i = 0; i < N; i++)
        o->scale[i] = 0.5f * o->sw[i];
    add_arg(b, weft_dnnl__arg_scale, weft_dnnl__md_by_tag(&b->scope, 1, &n, dnnl_f32, dnnl_a),
            o->scale);
    add_arg(b, weft_dnnl__arg_zero_point,
            weft_dnnl__md_by_tag(&b->scope, 1, &one, dnnl_s32, dnnl_a), &zx);
}

static void run_product(bench *b, const product *p, uint64_t seed)
{
    static operands o;
    float bias[N];
    fill(&o, seed, p->x);
    weft_dnnl_attr a = attributes(b, p, &o);
    const weft_dnnl_md *x = weft_dnnl__md_by_tag(&b->scope, 2, (int64_t[]){M, K}, p->x, dnnl_ab);
    const weft_dnnl_md *w = weft_dnnl__md_by_tag(&b->scope, 2, (int64_t[]){K, N}, dnnl_s8, dnnl_ab);
    const weft_dnnl_md *w_any =
        weft_dnnl__md_by_tag(&b->scope, 2, (int64_t[]){K, N}, dnnl_s8, dnnl_format_tag_any);
    const weft_dnnl_md *y = weft_dnnl__md_by_tag(&b->scope, 2, (int64_t[]){M, N}, p->y, dnnl_ab);
    const weft_dnnl_md *row =
        weft_dnnl__md_by_tag(&b->scope, 2, (int64_t[]){1, N}, dnnl_f32, dnnl_ab);
    const weft_dnnl_pd *pd = weft_dnnl__matmul(&b->scope, &a, x, w_any, p->bias ? row : NULL, y);
    if (!pd)
        fail_msg("%s: no primitive", p->name);
    add_arg(b, DNNL_ARG_SRC, x, o.x);
    add_arg(b, DNNL_ARG_DST, y, &o.y);
    add_weights(b, pd, w, o.w);
    if (p->bias) {
        assert_true(weft_dnnl__quant_bias(&a.quant, N, o.bias, bias));
        add_arg(b, DNNL_ARG_BIAS, row, bias);
    }
    if (p->factor)
        add_arg(b, DNNL_ARG_ATTR_MULTIPLE_POST_OP((int)a.n_post - 1) | DNNL_ARG_SRC_1, row,
                o.factor);
    if (p->at_run)
        add_run_values(b, p, &o);
    add_quant(b, &a.quant);
    add_scratch(b, pd);
    execute(b, pd);
    compare(p, &o);
}

static void test_dnnl_quant__products(void **state)
{
    bench b;
    (void)state;
    start(&b);
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        run_product(&b, &products[i], i + 1);
    finish(&b);
}

/* -- Convolutions --------------------------------------------------------------------------- */

enum { GROUPS = 2, CHANNELS = 8, SIDE = 6, TAPS = 9, IMAGE = 2 * CHANNELS * SIDE * SIDE };

typedef struct convolution {
    const char *name;
    dnnl_data_type_t x, y;
    int groups;
    bool residual;
    int32_t zx, zy;
} convolution;

static const convolution convolutions[] = {
    {"u8", dnnl_u8, dnnl_u8, 1, false, 0, 20},
    {"u8, zero point", dnnl_u8, dnnl_s8, 1, false, 60, -4},
    {"s8", dnnl_s8, dnnl_s8, 1, false, 0, 0},
    {"s8, zero point", dnnl_s8, dnnl_u8, 1, false, -7, 40},
    {"groups", dnnl_u8, dnnl_u8, GROUPS, false, 3, 9},
    {"depthwise", dnnl_u8, dnnl_u8, CHANNELS, false, 0, 9},
    {"residual", dnnl_u8, dnnl_u8, 1, true, 0, 30},
};

/* 3x3, padded by 1 with the zero point; x is [2][SIDE][SIDE][CHANNELS]. */
static double convolve(const convolution *c, const uint8_t *x, const int8_t *w, int image, int out,
                       int row, int column)
{
    int per_group = CHANNELS / c->groups, first = out / per_group * per_group;
    double sum = 0;
    for (int i = 0; i < per_group; i++)
        for (int tap = 0; tap < TAPS; tap++) {
            int r = row + tap / 3 - 1, k = column + tap % 3 - 1;
            if (r < 0 || r >= SIDE || k < 0 || k >= SIDE)
                continue;
            uint8_t v = x[((image * SIDE + r) * SIDE + k) * CHANNELS + first + i];
            sum += ((c->x == dnnl_s8 ? (int8_t)v : v) - c->zx) *
                   (double)w[(out * per_group + i) * TAPS + tap];
        }
    return sum;
}

static const weft_dnnl_pd *describe_conv(bench *b, const convolution *c, weft_dnnl_attr *a,
                                         const weft_dnnl_md **x, const weft_dnnl_md **y,
                                         const weft_dnnl_md **w)
{
    static const weft_dnnl_window window = {.stride = {1, 1}, .before = {1, 1}, .after = {1, 1}};
    const int64_t dims[] = {2, CHANNELS, SIDE, SIDE}, channels = CHANNELS;
    int64_t weights[] = {c->groups, CHANNELS / c->groups, CHANNELS / c->groups, 3, 3};
    int skip = c->groups == 1, rank = 5 - skip;
    dnnl_format_tag_t tag = skip ? dnnl_abcd : dnnl_abcde;
    *x = weft_dnnl__md_by_tag(&b->scope, 4, dims, c->x, dnnl_acdb);
    *y = weft_dnnl__md_by_tag(&b->scope, 4, dims, c->y, dnnl_acdb);
    *w = weft_dnnl__md_by_tag(&b->scope, rank, weights + skip, dnnl_s8, tag);
    return weft_dnnl__conv(
        &b->scope, a, dnnl_convolution_direct, 0, &window, *x,
        weft_dnnl__md_by_tag(&b->scope, rank, weights + skip, dnnl_s8, dnnl_format_tag_any),
        weft_dnnl__md_by_tag(&b->scope, 1, &channels, dnnl_f32, dnnl_a), *y);
}

/* Without VNNI, oneDNN halves the weights of a convolution of s8 by s8, and the driver leaves such
 * convolutions to its own kernels. */
static bool is_exact(const convolution *c)
{
    return c->x != dnnl_s8 || weft_dnnl__has_isa(dnnl_cpu_isa_avx512_core_vnni) ||
           weft_dnnl__has_isa(dnnl_cpu_isa_avx2_vnni);
}

static void check_conv(const convolution *c, const uint8_t *x, const int8_t *w, const float *sw,
                       const float *bias, const uint8_t *before, const uint8_t *y)
{
    for (int i = 0; i < IMAGE; i++) {
        int out = i % CHANNELS, column = i / CHANNELS % SIDE, row = i / CHANNELS / SIDE % SIDE;
        double want = convolve(c, x, w, i / (IMAGE / 2), out, row, column) * 0.5 * sw[out];
        want += bias[out];
        if (c->residual)
            want += 0.2 * (before[i] - 5);
        want = want / 0.25 + c->zy;
        bool is_s8 = c->y == dnnl_s8;
        want = fmin(fmax(want, is_s8 ? -128 : 0), is_s8 ? 127 : 255);
        double got = is_s8 ? (int8_t)y[i] : y[i];
        if (!(fabs(got - want) <= 0.501))
            fail_msg("%s, element %d: %g, not %g", c->name, i, got, want);
    }
}

static void run_conv(bench *b, const convolution *c, uint64_t seed)
{
    uint8_t x[IMAGE], y[IMAGE], before[IMAGE];
    int8_t w[CHANNELS * CHANNELS * TAPS];
    float sw[CHANNELS], bias[CHANNELS], converted[CHANNELS];
    const weft_dnnl_md *x_md, *y_md, *w_md;
    const int64_t channels = CHANNELS;
    for (int i = 0; i < IMAGE; i++) {
        x[i] = (uint8_t)(rand_below(&seed, 128) - (c->x == dnnl_s8 ? 64 : 0));
        y[i] = before[i] = (uint8_t)rand_below(&seed, 100);
    }
    for (size_t i = 0; i < sizeof w; i++)
        w[i] = (int8_t)((int)rand_below(&seed, 64) - 32);
    for (int i = 0; i < CHANNELS; i++) {
        sw[i] = 0.002f + 0.001f * (float)rand_unit(&seed);
        bias[i] = 4 * rand_signed(&seed);
    }
    weft_dnnl_attr a = {
        .quant = {.sx = 0.5f, .sw = sw, .n_sw = CHANNELS, .sy = 0.25f, .zx = c->zx, .zy = c->zy}};
    if (c->residual)
        assert_true(weft_dnnl__append(
            &a,
            (weft_dnnl_post){.kind = dnnl_sum, .alpha = 0.2f, .zero_point = 5, .type = dnnl_u8}));
    const weft_dnnl_pd *pd = describe_conv(b, c, &a, &x_md, &y_md, &w_md);
    if (!pd)
        fail_msg("%s: no primitive", c->name);
    add_arg(b, DNNL_ARG_SRC, x_md, x);
    add_arg(b, DNNL_ARG_DST, y_md, y);
    add_weights(b, pd, w_md, w);
    assert_true(weft_dnnl__quant_bias(&a.quant, CHANNELS, bias, converted));
    add_arg(b, DNNL_ARG_BIAS, weft_dnnl__md_by_tag(&b->scope, 1, &channels, dnnl_f32, dnnl_a),
            converted);
    add_quant(b, &a.quant);
    add_scratch(b, pd);
    execute(b, pd);
    check_conv(c, x, w, sw, bias, before, y);
}

static void test_dnnl_quant__convolutions(void **state)
{
    bench b;
    (void)state;
    start(&b);
    for (size_t i = 0; i < sizeof convolutions / sizeof *convolutions; i++)
        if (is_exact(&convolutions[i]))
            run_conv(&b, &convolutions[i], i + 1);
    finish(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dnnl_quant__products),
                                       cmocka_unit_test(test_dnnl_quant__convolutions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
