/* Products of bytes for GPUs: what emit_int8.c and emit_nbits.c write, run on the host, against the
 * operators' references, bit by bit: GEMMs and convolutions of random sizes, types, zero points,
 * scales, biases and epilogues, on every way (library, few rows, plain, windows). Layouts of the
 * library's GEMMs of bytes are checked where they run (cuda_case.h). */
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
#include "tests/support/rand.h"

enum { CASES = 36 };

typedef struct maker {
    weft_buf weights, graphs;
    uint64_t seed;
    int n; /* of the case at hand */
} maker;

static int64_t any_of(maker *k, const int64_t *from, uint32_t n)
{
    return from[rand_below(&k->seed, n)];
}
#define ANY(k, ...)                           \
    any_of(k, (const int64_t[]){__VA_ARGS__}, \
           (uint32_t)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))

static bool chance(maker *k, uint32_t of_ten)
{
    return rand_below(&k->seed, 10) < of_ten;
}

/* Prints "weight $STEM<case> : TYPE[DIMS] = dense [...]" with `n` elements. */
static void put_weight(maker *k, const char *stem, const char *type, const char *dims, int64_t n)
{
    weft_buf *out = &k->weights;
    weft_buf_printf(out, "weight $%s%d \"%s%d\" : %s[%s] = dense [", stem, k->n, stem, k->n, type,
                    dims);
    for (int64_t i = 0; i < n; i++) {
        double x = rand_below(&k->seed, 256);
        if (strcmp(type, "f32") == 0)
            x = 0.0005 + rand_below(&k->seed, 1000) * 1e-5;
        else if (strcmp(type, "i32") == 0)
            x = (double)rand_below(&k->seed, 4000) - 2000;
        else if (type[0] == 'i')
            x -= 128;
        weft_buf_printf(out, "%s%.9g", i ? ", " : "", x);
    }
    weft_buf_puts(out, "]\n");
}

/* A product as it is drawn. */
typedef struct product {
    const char *x, *w, *y;  /* types */
    const char *bias;       /* type; NULL: none */
    const char *steps;      /* NULL: none */
    bool w_zeros, w_scales; /* one for each column or channel */
    bool centred;           /* the weights' zero point is 0 */
} product;

static product draw(maker *k)
{
    static const char *const byte[] = {"u8", "i8"}, *const result[] = {"f32", "u8", "i8", "f32"};
    static const char *const steps[] = {NULL, NULL, "\"relu acc\"",
                                        "\"mul acc #0.25\", \"clip s0 #-30.0 #40.0\""};
    product p = {.x = byte[rand_below(&k->seed, 2)],
                 .w = chance(k, 7) ? "i8" : "u8",
                 .y = result[rand_below(&k->seed, 4)],
                 .steps = steps[rand_below(&k->seed, 4)],
                 .w_zeros = chance(k, 2),
                 .w_scales = chance(k, 5)};
    p.centred = p.w[0] == 'i' && chance(k, 7);
    p.bias = chance(k, 4) ? NULL : chance(k, 5) ? "i32" : "f32";
    return p;
}

/* Weights for the parameters of a product with `cols` columns or channels. */
static void put_params(maker *k, const product *p, int64_t cols)
{
    char all[32];
    snprintf(all, sizeof all, "%lld", (long long)cols);
    put_weight(k, "as", "f32", "", 1);
    put_weight(k, "az", p->x, "", 1);
    put_weight(k, "bs", "f32", p->w_scales ? all : "", p->w_scales ? cols : 1);
    if (p->centred)
        weft_buf_printf(&k->weights, "weight $bz%d \"bz%d\" : i8[] = dense [0]\n", k->n, k->n);
    else
        put_weight(k, "bz", p->w, p->w_zeros ? all : "", p->w_zeros ? cols : 1);
    if (strcmp(p->y, "f32") != 0) {
        put_weight(k, "ys", "f32", "", 1);
        put_weight(k, "yz", p->y, "", 1);
    }
    if (p->bias)
        put_weight(k, "c", p->bias, all, cols);
}

/* " = OP %x, $as, $az, WEIGHT, $bs, $bz, ... {ATTRS}" and the end of the graph. */
static void put_node(maker *k, const product *p, const char *op, const char *weight,
                     const char *attrs)
{
    bool bytes = strcmp(p->y, "f32") != 0;
    int n = k->n;
    weft_buf *out = &k->graphs;
    weft_buf_printf(out, " = %s %%x, $as%d, $az%d, %s, $bs%d, $bz%d", op, n, n, weight, n, n);
    if (bytes)
        weft_buf_printf(out, ", $ys%d, $yz%d", n, n);
    else if (p->bias)
        weft_buf_puts(out, ", _, _");
    if (p->bias)
        weft_buf_printf(out, ", $c%d", n);
    if (*attrs || p->steps)
        weft_buf_printf(out, " {%s%s%s%s%s}", attrs, *attrs && p->steps ? ", " : "",
                        p->steps ? "epilogue = [" : "", p->steps ? p->steps : "",
                        p->steps ? "]" : "");
    weft_buf_puts(out, "\n  return \"y\" %y\n}\n");
}

/* A graph with one qlinear_matmul; rows are symbol ?b if `*out_rows` is not 0 afterwards. */
static void put_matmul(maker *k, int64_t *out_rows)
{
    product p = draw(k);
    int64_t m = ANY(k, 1, 2, 3, 8, 16, 17, 40), n = ANY(k, 1, 2, 4, 7, 8, 20, 36);
    int64_t depth = ANY(k, 1, 3, 4, 12, 16, 33, 64, 100), stack = ANY(k, 1, 1, 3);
    bool is_weight = chance(k, 7), symbolic = chance(k, 4), trans_b = is_weight && chance(k, 6);
    bool stacked = stack > 1 && chance(k, 5);
    char dims[96], weight[32], rows[32], lead[32] = "";
    *out_rows = symbolic ? m : 0;
    snprintf(rows, sizeof rows, "%lld", (long long)m);
    if (symbolic)
        snprintf(rows, sizeof rows, "?b%d", k->n);
    if (stack > 1)
        snprintf(lead, sizeof lead, "%lld,", (long long)stack);
    snprintf(dims, sizeof dims, "%s%lld,%lld", stacked ? lead : "",
             (long long)(trans_b ? n : depth), (long long)(trans_b ? depth : n));
    put_params(k, &p, n);
    snprintf(weight, sizeof weight, "%%w");
    if (is_weight)
        snprintf(weight, sizeof weight, "$w%d", k->n);
    if (is_weight)
        put_weight(k, "w", p.w, dims, n * depth * (stacked ? stack : 1));
    weft_buf_printf(&k->graphs, "graph @g%d (%%x : %s[%s%s,%lld]", k->n, p.x, lead, rows,
                    (long long)depth);
    if (!is_weight)
        weft_buf_printf(&k->graphs, ", %%w : %s[%s]", p.w, dims);
    weft_buf_puts(&k->graphs, ") {\n");
    if (symbolic)
        weft_buf_printf(&k->graphs, "  symbol ?b%d \"b\"\n", k->n);
    weft_buf_printf(&k->graphs, "  %%y : %s[%s%s,%lld]", p.y, lead, rows, (long long)n);
    put_node(k, &p, "qlinear_matmul", weight, trans_b ? "trans_b = 1" : "");
}

/* "[3, 3]" and the like: `spatial` numbers, twice for padding. */
static void put_list(char *to, size_t room, const int64_t *x, uint32_t n)
{
    size_t len = 0;
    for (uint32_t i = 0; i < n; i++)
        len += (size_t)snprintf(to + len, room - len, "%s%lld", i ? ", " : "", (long long)x[i]);
}

static void put_conv(maker *k, int64_t *out_images)
{
    product p = draw(k);
    uint32_t spatial = 1 + rand_below(&k->seed, 3);
    int64_t group = ANY(k, 1, 1, 2, 4), c = ANY(k, 1, 3, 4, 8, 12), m = ANY(k, 1, 2, 4, 8, 9);
    int64_t kernel[3], stride[3], dilation[3], pads[6], in[3], out[3], area = 1,
                                                                       images = ANY(k, 1, 2, 3);
    bool symbolic = chance(k, 3);
    char text[4][64], x_dims[64] = "", w_dims[64] = "", y_dims[64] = "", attrs[400], rows[16];
    for (uint32_t i = 0; i < spatial; i++) {
        kernel[i] = ANY(k, 1, 1, 2, 3);
        stride[i] = ANY(k, 1, 1, 2);
        dilation[i] = ANY(k, 1, 1, 2);
        pads[i] = ANY(k, 0, 0, 1);
        pads[spatial + i] = ANY(k, 0, 1);
        in[i] = ANY(k, 5, 6, 9);
        out[i] =
            (in[i] + pads[i] + pads[spatial + i] - (kernel[i] - 1) * dilation[i] - 1) / stride[i] +
            1;
        area *= kernel[i];
    }
    *out_images = symbolic ? images : 0;
    put_list(text[0], sizeof *text, kernel, spatial);
    put_list(text[1], sizeof *text, stride, spatial);
    put_list(text[2], sizeof *text, dilation, spatial);
    put_list(text[3], sizeof *text, pads, 2 * spatial);
    put_list(x_dims, sizeof x_dims, in, spatial);
    put_list(w_dims, sizeof w_dims, kernel, spatial);
    put_list(y_dims, sizeof y_dims, out, spatial);
    snprintf(attrs, sizeof attrs,
             "kernel_shape = [%s], strides = [%s], dilations = [%s], pads = [%s], group = %lld",
             text[0], text[1], text[2], text[3], (long long)group);
    put_params(k, &p, group * m);
    char dims[128], weight[32];
    snprintf(dims, sizeof dims, "%lld,%lld,%s", (long long)(group * m), (long long)c, w_dims);
    put_weight(k, "w", p.w, dims, group * m * c * area);
    snprintf(weight, sizeof weight, "$w%d", k->n);
    if (symbolic)
        snprintf(rows, sizeof rows, "?b%d", k->n);
    else
        snprintf(rows, sizeof rows, "%lld", (long long)images);
    weft_buf_printf(&k->graphs, "graph @g%d (%%x : %s[%s,%lld,%s]) {\n", k->n, p.x, rows,
                    (long long)(group * c), x_dims);
    if (symbolic)
        weft_buf_printf(&k->graphs, "  symbol ?b%d \"b\"\n", k->n);
    weft_buf_printf(&k->graphs, "  %%y : %s[%s,%lld,%s]", p.y, rows, (long long)(group * m),
                    y_dims);
    put_node(k, &p, "qlinear_conv", weight, attrs);
}

/* Compiles `CASES` graphs at once and runs each at even and at odd addresses. */
static void check_random(void (*put)(maker *, int64_t *), uint64_t seed, bool exact)
{
    maker k = {.seed = seed};
    int64_t symbol[CASES];
    weft_buf text = {0};
    weft_buf_puts(&text, "wir 1 kernel\n");
    for (k.n = 0; k.n < CASES; k.n++) {
        put(&k, &symbol[k.n]);
        if (symbol[k.n])
            weft_buf_printf(&text, "symbol ?b%d = [0, inf]\n", k.n);
    }
    weft_buf_printf(&text, "%s%s", k.weights.at, k.graphs.at);
    cuda_case *c = cuda_case_start(text.at);
    for (uint32_t i = 0; i < CASES; i++)
        for (size_t shift = 0; shift < 2; shift++) {
            /* Symbolic rows on both sides of every limit. */
            const int64_t few = symbol[i] > 16 ? 5 : 21, rows[] = {symbol[i], few, 0};
            for (uint32_t s = 0; s < (symbol[i] ? 3u : 1u); s++)
                cuda_case_verify(
                    c, i, &(cuda_case_spec){.symbol = &rows[s], .shift = shift, .exact = exact});
        }
    cuda_case_stop(c);
    weft_buf_finish(&text);
    weft_buf_finish(&k.weights);
    weft_buf_finish(&k.graphs);
}

/* -- Packed weights --------------------------------------------------------------------------- */

/* A graph with one matmul_nbits, its weights drawn bytes: also of the padding of last blocks. Sums
 * of f32 are compared with the largest of several columns, because one alone may cancel to almost
 * nothing. */
static void put_nbits(maker *k, int64_t *out_rows)
{
    int64_t bits = ANY(k, 2, 4, 4, 8), block = ANY(k, 16, 32, 64), n = ANY(k, 5, 24, 70);
    int64_t depth = ANY(k, 7, 16, 33, 96, 130), m = ANY(k, 1, 3, 8, 9, 40);
    int64_t blocks = (depth + block - 1) / block, bytes = block * bits / 8;
    bool zeros = chance(k, 5), symbolic = chance(k, 3);
    char b_dims[64], s_dims[64], rows[32];
    *out_rows = symbolic ? m : 0;
    snprintf(rows, sizeof rows, "%lld", (long long)m);
    if (symbolic)
        snprintf(rows, sizeof rows, "?b%d", k->n);
    snprintf(b_dims, sizeof b_dims, "%lld,%lld,%lld", (long long)n, (long long)blocks,
             (long long)bytes);
    snprintf(s_dims, sizeof s_dims, "%lld,%lld", (long long)n, (long long)blocks);
    put_weight(k, "b", "u8", b_dims, n * blocks * bytes);
    put_weight(k, "s", "f32", s_dims, n * blocks);
    if (zeros)
        put_weight(k, "z", "f32", s_dims, n * blocks);
    weft_buf_printf(&k->graphs, "graph @g%d (%%x : f32[%s,%lld]) {\n", k->n, rows,
                    (long long)depth);
    if (symbolic)
        weft_buf_printf(&k->graphs, "  symbol ?b%d \"b\"\n", k->n);
    weft_buf_printf(&k->graphs, "  %%y : f32[%s,%lld] = matmul_nbits %%x, $b%d, $s%d", rows,
                    (long long)n, k->n, k->n);
    if (zeros)
        weft_buf_printf(&k->graphs, ", $z%d", k->n);
    weft_buf_printf(
        &k->graphs,
        " {bits = %lld, block_size = %lld, k = %lld, n = %lld}\n  return \"y\" %%y\n}\n",
        (long long)bits, (long long)block, (long long)depth, (long long)n);
}

static uint64_t first_seed(void)
{
    const char *text = getenv("WEFT_SEED");
    return text ? strtoull(text, NULL, 10) : 1;
}

static void test_cuda_int8__gemms_equal_the_reference(void **state)
{
    (void)state;
    check_random(put_matmul, first_seed(), true);
}

static void test_cuda_int8__convolutions_equal_the_reference(void **state)
{
    (void)state;
    check_random(put_conv, first_seed() + 1000, true);
}

static void test_cuda_int8__packed_weights_equal_the_reference(void **state)
{
    (void)state;
    check_random(put_nbits, first_seed() + 2000, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_int8__gemms_equal_the_reference),
        cmocka_unit_test(test_cuda_int8__convolutions_equal_the_reference),
        cmocka_unit_test(test_cuda_int8__packed_weights_equal_the_reference),
    };
    return cuda_host_status(cmocka_run_group_tests(tests, NULL, NULL));
}
