/* Convolutions for GPUs: the kernels of emit_conv.c against the operator's reference, over element
 * types, strides, paddings, dilations, groups, one to three spatial dims, epilogues, crooked
 * addresses, NaN and infinities. */
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
#include "tests/support/typed_text.h"

/* Types are written T[...]. */
typedef struct conv_case {
    const char *kernel; /* that it becomes, by the start of its name */
    const char *inputs, *node;
    bool symbol; /* dim ?b: images */
} conv_case;

static const conv_case cases[] = {
    /* Stem, with stride and padding. */
    {"conv_T_", "%x : T[?b,3,21,19], %w : T[8,3,7,7], %c : T[8]",
     "T[?b,8,11,10] = conv %x, %w, %c {epilogue = [\"relu acc\"], pads = [3, 3, 3, 3], strides = "
     "[2, 2]}",
     true},
    /* The common one, with a sum. */
    {"conv_T_", "%x : T[?b,16,12,12], %w : T[40,16,3,3], %c : T[40], %r : T[?b,40,12,12]",
     "T[?b,40,12,12] = conv %x, %w, %c, %r {epilogue = [\"add acc i3\", \"relu s0\"], pads = [1, "
     "1, 1, 1]}",
     true},
    /* Without bias, stride 2, padding on one side. */
    {"conv_T_", "%x : T[2,5,9,9], %w : T[7,5,2,3]",
     "T[2,7,5,5] = conv %x, %w {pads = [0, 1, 1, 1], strides = [2, 2]}", false},
    /* Dilated. */
    {"conv_T_", "%x : T[1,4,13,15], %w : T[6,4,3,3], %c : T[6]",
     "T[1,6,13,11] = conv %x, %w, %c {dilations = [2, 2], pads = [2, 0, 2, 0]}", false},
    /* Groups of several channels. */
    {"conv_T_", "%x : T[2,12,8,9], %w : T[18,4,3,3], %c : T[18]",
     "T[2,18,8,9] = conv %x, %w, %c {epilogue = [\"silu acc\"], group = 3, pads = [1, 1, 1, 1]}",
     false},
    /* One spatial dim, and three. */
    {"conv_T_", "%x : T[2,6,50], %w : T[10,6,5], %c : T[10]",
     "T[2,10,25] = conv %x, %w, %c {pads = [2, 2], strides = [2]}", false},
    {"conv_T_", "%x : T[1,3,6,7,8], %w : T[4,3,3,2,3], %c : T[4]",
     "T[1,4,3,6,8] = conv %x, %w, %c {pads = [1, 0, 1, 1, 0, 1], strides = [2, 1, 1]}", false},
    /* Padding by name. */
    {"conv_T_", "%x : T[1,3,10,11], %w : T[4,3,4,3]",
     "T[1,4,5,6] = conv %x, %w {auto_pad = \"SAME_UPPER\", strides = [2, 2]}", false},
    {"conv_T_", "%x : T[1,3,10,11], %w : T[4,3,4,3]",
     "T[1,4,5,6] = conv %x, %w {auto_pad = \"SAME_LOWER\", strides = [2, 2]}", false},
    {"conv_T_", "%x : T[1,3,10,11], %w : T[4,3,4,3]",
     "T[1,4,7,9] = conv %x, %w {auto_pad = \"VALID\", pads = [0, 0, 0, 0]}", false},
    /* One pixel: matrices, odd sizes, strides. */
    {"conv_pointwise_T_", "%x : T[?b,20,8,8], %w : T[33,20,1,1], %c : T[33], %r : T[?b,33,8,8]",
     "T[?b,33,8,8] = conv %x, %w, %c, %r {epilogue = [\"add acc i3\", \"gelu s0\"]}", true},
    {"conv_pointwise_T_", "%x : T[2,8,4,10], %w : T[12,4,1,1], %c : T[12]",
     "T[2,12,4,10] = conv %x, %w, %c {group = 2}", false},
    {"conv_T_", "%x : T[2,20,7,7], %w : T[24,20,1,1], %c : T[24]",
     "T[2,24,7,7] = conv %x, %w, %c {epilogue = [\"clip acc #0.0 #6.0\"]}", false},
    {"conv_T_", "%x : T[2,20,9,8], %w : T[24,20,1,1], %c : T[24]",
     "T[2,24,5,4] = conv %x, %w, %c {strides = [2, 2]}", false},
    /* Few pixels and much depth: in parts. */
    {"conv_T_", "%x : T[1,64,4,5], %w : T[24,64,3,3], %c : T[24], %r : T[1,24,4,5]",
     "T[1,24,4,5] = conv %x, %w, %c, %r {epilogue = [\"add acc i3\", \"relu s0\"], pads = [1, 1, "
     "1, 1]}",
     false},
    {"conv_pointwise_T_", "%x : T[?b,300,4,4], %w : T[24,300,1,1], %c : T[24]",
     "T[?b,24,4,4] = conv %x, %w, %c {epilogue = [\"relu acc\"]}", true},
    /* Depthwise. */
    {"conv_depthwise", "%x : T[?b,10,9,11], %w : T[10,1,3,3], %c : T[10], %r : T[?b,10,9,11]",
     "T[?b,10,9,11] = conv %x, %w, %c, %r {epilogue = [\"mul acc i3\"], group = 10, pads = [1, 1, "
     "1, 1]}",
     true},
    {"conv_depthwise", "%x : T[1,3,14,13], %w : T[6,1,5,3]",
     "T[1,6,7,5] = conv %x, %w {dilations = [1, 2], group = 3, pads = [2, 0, 2, 0], strides = [2, "
     "2]}",
     false},
    {"conv_depthwise", "%x : T[2,4,20], %w : T[4,1,7], %c : T[4]",
     "T[2,4,20] = conv %x, %w, %c {group = 4, pads = [3, 3]}", false},
    {"conv_T_", "%x : T[1,4,3,5,6], %w : T[4,1,3,3,3], %c : T[4]",
     "T[1,4,3,5,6] = conv %x, %w, %c {group = 4, pads = [1, 1, 1, 1, 1, 1]}", false},
    /* Transposed. */
    {"conv_transposed", "%x : T[?b,6,5,7], %w : T[6,4,3,3], %c : T[4]",
     "T[?b,4,10,14] = conv_transpose %x, %w, %c {output_padding = [1, 1], pads = [1, 1, 1, 1], "
     "strides = [2, 2]}",
     true},
    {"conv_transposed", "%x : T[2,6,9], %w : T[6,2,4]",
     "T[2,6,18] = conv_transpose %x, %w {dilations = [2], group = 3, pads = [3, 2], strides = [2]}",
     false},
};

enum { CASES = sizeof cases / sizeof cases[0] };

/* The first command that runs without cuDNN. */
static const weft_bundle_command *first_kernel(const weft_bundle_launch *l)
{
    uint32_t i = 0;
    while (l->command[i].kind == WEFT_COMMAND_CONV || l->command[i].kind == WEFT_COMMAND_AFTER)
        i++;
    assert_true(l->command[i].kind == WEFT_COMMAND_KERNEL ||
                l->command[i].kind == WEFT_COMMAND_INSTEAD);
    return &l->command[i];
}

static void run_cases(const char *type, bool tf32)
{
    const double tolerance = tf32 ? 3e-3 : 0;
    weft_buf text = {0};
    weft_buf_puts(&text, "wir 1 kernel\nsymbol ?b = [0, 64]\n");
    for (int i = 0; i < CASES; i++) {
        weft_buf_printf(&text, "graph @case%d_%s (", i, type);
        put_typed(&text, cases[i].inputs, type);
        weft_buf_printf(&text, ") {\n%s  %%y : ", cases[i].symbol ? "  symbol ?b \"b\"\n" : "");
        put_typed(&text, cases[i].node, type);
        weft_buf_puts(&text, "\n  return \"y\" %y\n}\n");
    }
    cuda_case *c = cuda_case_start_as(text.at, tf32);
    static const int64_t images[] = {3};
    for (uint32_t i = 0; i < CASES; i++) {
        weft_buf name = {0};
        put_typed(&name, cases[i].kernel, type);
        const weft_bundle_command *s = first_kernel(&c->bundle.program[i].launch[0]);
        if (strncmp(c->bundle.kernel[s->kernel].name, name.at, name.len) != 0)
            fail_msg("case %u: %s", i, c->bundle.kernel[s->kernel].name);
        weft_buf_finish(&name);
        cuda_case_verify(c, i, &(cuda_case_spec){.tolerance = tolerance, .symbol = images});
        cuda_case_verify(c, i,
                         &(cuda_case_spec){.tolerance = tolerance, .symbol = images, .shift = 5});
        cuda_case_verify(
            c, i,
            &(cuda_case_spec){
                .tolerance = tolerance, .symbol = images, .shift = 8, .special = true});
        if (cases[i].symbol)
            cuda_case_verify(c, i,
                             &(cuda_case_spec){.tolerance = tolerance, .symbol = (int64_t[]){0}});
    }
    cuda_case_stop(c);
    weft_buf_finish(&text);
}

static void test_cuda_conv__f32_is_the_reference(void **state)
{
    (void)state;
    run_cases("f32", false);
}

static void test_cuda_conv__tf32_is_near_the_reference(void **state)
{
    (void)state;
    run_cases("f32", true);
}

static void test_cuda_conv__f16_is_the_reference(void **state)
{
    (void)state;
    run_cases("f16", false);
}

static void test_cuda_conv__bf16_is_the_reference(void **state)
{
    (void)state;
    run_cases("bf16", false);
}

/* Images of many models behind each other: sizes of launches are sums over the models, and can
 * still be told before. */
static void test_cuda_conv__images_of_many_models(void **state)
{
    (void)state;
    enum { MODELS = 12 };
    weft_buf text = {0};
    weft_buf_puts(&text, "wir 1 kernel\n");
    for (int i = 0; i < MODELS; i++)
        weft_buf_printf(&text, "symbol ?a%d = [0, 8]\n", i);
    weft_buf_puts(&text, "graph @joint (");
    for (int i = 0; i < MODELS; i++)
        weft_buf_printf(&text, "%%x%d : f16[?a%d,300,4,4], ", i, i);
    weft_buf_puts(&text, "%w : f16[24,300,1,1], %v : f16[20,24,3,3], %u : f16[4,80]) {\n");
    weft_buf sum = {0};
    for (int i = 0; i < MODELS; i++) {
        weft_buf_printf(&text, "  symbol ?a%d \"a%d\"\n", i, i);
        weft_buf_printf(&sum, "%s?a%d", i ? " + " : "", i);
    }
    weft_buf_printf(&text, "  %%c : f16[%s,300,4,4] = concat ", sum.at);
    for (int i = 0; i < MODELS; i++)
        weft_buf_printf(&text, "%s%%x%d", i ? ", " : "", i);
    weft_buf_printf(
        &text,
        " {axis = 0}\n  %%d : f16[%s,24,4,4] = conv %%c, %%w {epilogue = [\"relu acc\"]}\n"
        "  %%e : f16[%s,20,4,4] = conv %%d, %%v {pads = [1, 1, 1, 1]}\n"
        "  %%f : f16[%s,20,4,80] = matmul %%e, %%u {epilogue = [\"gelu acc\"]}\n"
        "  return \"y\" %%f\n}\n",
        sum.at, sum.at, sum.at);
    cuda_case *c = cuda_case_start(text.at);
    const weft_bundle_program *p = &c->bundle.program[0];
    uint32_t variants = 0;
    for (uint32_t l = 0; l < p->n_launch; l++) {
        for (uint32_t s = 0; s < p->launch[l].n_command; s++) {
            uint32_t kind = p->launch[l].command[s].kind;
            if (weft_command_is_kernel(kind))
                assert_false(weft_dim_is_data(p->dims, p->launch[l].command[s].grid[0]));
            variants += l > 0 && kind != WEFT_COMMAND_CONV && kind != WEFT_COMMAND_AFTER;
        }
    }
    assert_in_range(variants, 6, 16);
    cuda_case_verify(c, 0, &(cuda_case_spec){.symbol = (int64_t[MODELS]){1, 0, 2, 0, 0, 1}});
    cuda_case_verify(c, 0, &(cuda_case_spec){.symbol = (int64_t[MODELS]){8, 8, 8, 8, 8, 8, 3}});
    cuda_case_stop(c);
    weft_buf_finish(&sum);
    weft_buf_finish(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_conv__f32_is_the_reference),
        cmocka_unit_test(test_cuda_conv__tf32_is_near_the_reference),
        cmocka_unit_test(test_cuda_conv__f16_is_the_reference),
        cmocka_unit_test(test_cuda_conv__bf16_is_the_reference),
        cmocka_unit_test(test_cuda_conv__images_of_many_models),
    };
    return cuda_host_status(cmocka_run_group_tests(tests, NULL, NULL));
}
