/* Epilogues that the CPU driver fuses into oneDNN primitives: known and random chains after every
 * kind of GEMM and convolution, compared with the reference implementation. */
#include "tests/support/kernel_check.h"
#include "tests/support/rand.h"

#include <stdio.h>

/* Operators with an epilogue, in each of their layouts and algorithms. Operand 3 is a full tensor,
 * operand 4 has one value per channel, operand 5 is a scalar. */
static const check subjects[] = {
    {.name = "conv, blocked",
     .op = WEFT_OP_CONV,
     .attrs = {"pads", "l:1,1,1,1"},
     .in = {"c 1,16,7,7", "w 32,16,3,3", "w 32", "c 1,32,7,7", "w 32,1,1", "w 1"},
     .out = "1,32,7,7",
     .layout = WEFT_LAYOUT_C16},
    {.name = "conv, winograd",
     .op = WEFT_OP_CONV,
     .attrs = {"pads", "l:1,1,1,1", "algo", "s:winograd"},
     .in = {"c 1,64,14,14", "w 64,64,3,3", "w 64", "c 1,64,14,14", "w 64,1,1", "w 1"},
     .out = "1,64,14,14",
     .layout = WEFT_LAYOUT_C16},
    {.name = "conv, winograd by images",
     .op = WEFT_OP_CONV,
     .attrs = {"pads", "l:1,1,1,1", "algo", "s:winograd"},
     .in = {"c 3,64,7,7", "w 64,64,3,3", "w 64", "c 3,64,7,7", "w 64,1,1", "w 1"},
     .out = "3,64,7,7",
     .layout = WEFT_LAYOUT_C16},
    {.name = "conv, depthwise",
     .op = WEFT_OP_CONV,
     .attrs = {"pads", "l:1,1,1,1", "group", "i:24"},
     .in = {"c 2,24,9,9", "w 24,1,3,3", "w 24", "c 2,24,9,9", "w 24,1,1", "w 1"},
     .out = "2,24,9,9",
     .layout = WEFT_LAYOUT_C16},
    {.name = "conv, 1x1",
     .op = WEFT_OP_CONV,
     .attrs = {NULL},
     .in = {"c 1,24,9,9", "w 58,24,1,1", "w 58", "c 1,58,9,9", "w 58,1,1", "w 1"},
     .out = "1,58,9,9",
     .layout = WEFT_LAYOUT_C16},
    {.name = "conv, plain",
     .op = WEFT_OP_CONV,
     .attrs = {"pads", "l:1,1,1,1"},
     .in = {"x 1,5,9,9", "w 7,5,3,3", "w 7", "x 1,7,9,9", "w 7,1,1", "w 1"},
     .out = "1,7,9,9"},
    {.name = "matmul",
     .op = WEFT_OP_MATMUL,
     .attrs = {NULL},
     .in = {"x 3,7,32", "w 32,45", "w 45", "x 3,7,45", "w 45", "w 1"},
     .out = "3,7,45"},
    {.name = "matmul, batched",
     .op = WEFT_OP_MATMUL,
     .attrs = {NULL},
     .in = {"x 2,3,7,16", "x 2,3,16,9", "-", "x 2,3,7,9", "w 9", "w 1"},
     .out = "2,3,7,9"},
};

enum { SUBJECTS = sizeof subjects / sizeof *subjects };

static void run_chain(const check *subject, const char *chain, uint32_t threads)
{
    char name[400], steps[320];
    check c = *subject;
    uint32_t n = 0;
    snprintf(steps, sizeof steps, "t:%s", chain);
    snprintf(name, sizeof name, "%s: %s", c.name, chain);
    while (c.attrs[n])
        n++;
    c.attrs[n] = "epilogue";
    c.attrs[n + 1] = steps;
    c.name = name;
    /* A clip or a minimum may reduce the scale that rounding errors are relative to. */
    c.tolerance = strstr(c.name, "winograd") ? 1e-3 : 1e-4;
    c.variant = "";
    run_check(&c, threads);
}

/* Each has two post-ops of the same oneDNN algorithm with different parameters. */
static const char *const known[] = {
    /* y * std + mean */
    "mul acc #1.7;add s0 #0.6",
    /* 2 * sigmoid(x) - 1 */
    "sigmoid acc;mul s0 #2;add s1 #-1",
    "mul acc #2;sigmoid s0;mul s1 #2;add s2 #-1",
    /* 30 * tanh(x / 30) */
    "div acc #30;tanh s0;mul s1 #30",
    /* (tanh(x) + 1) / 2 * 255 */
    "tanh acc;add s0 #1;div s1 #2;mul s2 #255",
    /* clip(x / 6 + 0.5, 0, 1) and its product with another */
    "add acc #3;clip s0 #0 #6;div s1 #6",
    "hard_sigmoid acc #0.2 #0.5;mul s0 i3;hard_sigmoid s1 #0.3 #0.1",
    "clip acc #-1 #6;clip s0 #0 #0.5",
    "clip acc #0 #6;add s0 i4;clip s1 #0.25 #0.75",
    "clip acc #0.5 #0.25;clip s0 #0 #0.4",
    "leaky_relu acc #0.1;leaky_relu s0 #0.3",
    /* PRelu */
    "leaky_relu acc i4",
    "leaky_relu acc i5;mul s0 #2;leaky_relu s1 i3",
    "leaky_relu acc #0.1;add s0 i3;relu s1",
    "relu acc;mul s0 #0.5;leaky_relu s1 #0.2",
    "elu acc #1;sub s0 #0.25;elu s1 #0.5",
    "sub #1 acc;neg s0;mul s1 #0.5",
    "mul acc #1e-30;mul s0 #1e-30;mul s1 #1e30;mul s2 #1e30",
    "mul acc #1e30;mul s0 #1e-30;add s1 #1",
    "mul acc #0;add s0 #2;mul s1 #3",
};

static void test_cpu_epilogue__known_chains(void **state)
{
    (void)state;
    for (size_t i = 0; i < SUBJECTS; i++)
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            run_chain(&subjects[i], known[k], 1 + k % 2);
}

/* -- Random chains -------------------------------------------------------------------------- */

static float constant(uint64_t *seed)
{
    return (float)((int32_t)rand_below(seed, 401) - 200) / 100.0f;
}

/* One step on `before` whose result grows by a bounded factor; its other argument is a number or an
 * operand, if any. */
static int print_step(char *out, size_t size, const char *before, uint64_t *seed)
{
    static const char *const unary[] = {"relu", "sigmoid", "tanh",     "gelu",       "gelu_tanh",
                                        "silu", "abs",     "identity", "hard_swish", "neg",
                                        "erf",  "square",  "softplus"};
    static const char *const binary[] = {"add", "sub", "mul", "min", "max"};
    float a = constant(seed), b = constant(seed);
    switch (rand_below(seed, 9)) {
    case 0:
    case 1:
        return snprintf(out, size, "%s %s", unary[rand_below(seed, sizeof unary / sizeof *unary)],
                        before);
    case 2:
        return snprintf(out, size, "%s %s i%u", binary[rand_below(seed, 5)], before,
                        3 + rand_below(seed, 3));
    case 3:
        return snprintf(out, size, "%s i%u %s", binary[rand_below(seed, 5)],
                        3 + rand_below(seed, 3), before);
    case 4:
        return snprintf(out, size, "clip %s #%g #%g", before, (double)fminf(a, b),
                        (double)fmaxf(a, b));
    case 5:
        return snprintf(out, size, "leaky_relu %s #%g", before, (double)a);
    case 6:
        return snprintf(out, size, "%s %s #%g", binary[rand_below(seed, 5)], before, (double)a);
    case 7:
        return snprintf(out, size, "%s #%g %s", binary[rand_below(seed, 5)], (double)a, before);
    default:
        return snprintf(out, size, "hard_sigmoid %s #%g #%g", before, (double)fabsf(a),
                        (double)fabsf(b));
    }
}

/* A step usually takes the result of the step before, sometimes an older one, which cannot be
 * fused. */
static void make_chain(char *out, size_t size, uint64_t *seed)
{
    uint32_t n = 1 + rand_below(seed, 6);
    size_t len = 0;
    for (uint32_t i = 0; i < n; i++) {
        char before[16] = "acc";
        if (i > 0)
            snprintf(before, sizeof before, "s%u",
                     rand_below(seed, 10) ? i - 1 : rand_below(seed, i));
        len += (size_t)snprintf(out + len, size - len, "%s", i ? ";" : "");
        len += (size_t)print_step(out + len, size - len, before, seed);
    }
}

/* WEFT_CHAINS: number of chains, for manual runs; WEFT_SEED: the first seed. */
static void test_cpu_epilogue__random_chains(void **state)
{
    (void)state;
    const char *many = getenv("WEFT_CHAINS"), *from = getenv("WEFT_SEED");
    uint32_t n = many ? (uint32_t)atoi(many) : 300;
    uint64_t seed = from ? (uint64_t)atoi(from) : 1;
    for (uint32_t i = 0; i < n; i++) {
        char chain[300];
        make_chain(chain, sizeof chain, &seed);
        run_chain(&subjects[rand_below(&seed, SUBJECTS)], chain, 1 + rand_below(&seed, 2));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu_epilogue__known_chains),
        cmocka_unit_test(test_cpu_epilogue__random_chains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
