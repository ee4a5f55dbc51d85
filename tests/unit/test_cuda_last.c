/* Images with channels innermost on GPUs: pass channels-last keeps what a graph computes, and the
 * kernels of its result agree with the reference, over element types, kinds of convolutions,
 * groups, spatial dims, epilogues and the operators between convolutions. */
#include "ir/ir.h"
#include "passes/passes.h"

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

/* Types are written T[...], weights $0 to $9. */
typedef struct last_case {
    const char
        *kernel; /* that one of the nodes becomes, by the start of its name; NULL: a product */
    const char *weights[5], *inputs, *nodes;
} last_case;

static const last_case cases[] = {
    /* Stem: channels that fill no copy, stride, padding; then whole copies and a residual. */
    {"conv_last_T_",
     {"T[8,3,7,7]", "T[8]", "T[40,8,3,3]", "T[40]"},
     "%x : T[?b,3,21,19], %r : T[?b,40,11,10]",
     "%1 : T[?b,8,11,10] = conv %x, $0, $1 {epilogue = [\"relu acc\"], pads = [3, 3, 3, 3], "
     "strides = [2, 2]}\n"
     "%y : T[?b,40,11,10] = conv %1, $2, $3, %r {epilogue = [\"add acc i3\", \"relu s0\"], pads = "
     "[1, 1, 1, 1]}"},
    /* Many channels and few pixels: in parts. */
    {"conv_last_T_",
     {"T[24,64,3,3]", "T[24]"},
     "%x : T[1,64,4,5], %r : T[1,24,4,5]",
     "%y : T[1,24,4,5] = conv %x, $0, $1, %r {epilogue = [\"add acc i3\", \"silu s0\"], pads = [1, "
     "1, 1, 1]}"},
    /* Dilated, padding on one side, groups of several channels, odd channels of a group. */
    {"conv_last_T_",
     {"T[18,4,3,3]", "T[18]", "T[6,9,2,3]"},
     "%x : T[2,12,8,9]",
     "%1 : T[2,18,8,9] = conv %x, $0, $1 {dilations = [2, 1], epilogue = [\"sigmoid acc\"], group "
     "= 3, pads = [2, 1, 2, 1]}\n"
     "%y : T[2,6,4,5] = conv %1, $2 {group = 2, pads = [0, 1, 1, 1], strides = [2, 2]}"},
    /* One spatial dim, and three. */
    {"conv_last_T_",
     {"T[10,16,5]", "T[10]"},
     "%x : T[2,16,50]",
     "%y : T[2,10,25] = conv %x, $0, $1 {pads = [2, 2], strides = [2]}"},
    {"conv_last_T_",
     {"T[4,8,3,2,3]", "T[4]"},
     "%x : T[1,8,6,7,8]",
     "%y : T[1,4,3,6,8] = conv %x, $0, $1 {pads = [1, 0, 1, 1, 0, 1], strides = [2, 1, 1]}"},
    /* More taps than bits, padding by name. */
    {"conv_last_T_",
     {"T[4,8,9,5]"},
     "%x : T[1,8,10,11]",
     "%y : T[1,4,5,6] = conv %x, $0 {auto_pad = \"SAME_LOWER\", strides = [2, 2]}"},
    /* One pixel: products, of the library and of ours; a stride is none. */
    {NULL,
     {"T[32,16,1,1]", "T[32]"},
     "%x : T[?b,16,8,7], %r : T[?b,32,8,7]",
     "%y : T[?b,32,8,7] = conv %x, $0, $1, %r {epilogue = [\"add acc i3\", \"relu s0\"]}"},
    {"gemm_T_",
     {"T[33,20,1,1]", "T[33]"},
     "%x : T[?b,20,8,8], %r : T[?b,33,1,1]",
     "%y : T[?b,33,8,8] = conv %x, $0, $1, %r {epilogue = [\"mul acc i3\", \"gelu s0\"]}"},
    {"conv_last_T_",
     {"T[24,20,1,1]", "T[24]"},
     "%x : T[2,20,9,8]",
     "%y : T[2,24,5,4] = conv %x, $0, $1 {strides = [2, 2]}"},
    /* Depthwise: vectors of channels, single ones, several results of a channel. */
    {"conv_depthwise_last",
     {"T[12,1,3,3]", "T[12]"},
     "%x : T[?b,12,9,11], %r : T[?b,12,9,11]",
     "%y : T[?b,12,9,11] = conv %x, $0, $1, %r {epilogue = [\"mul acc i3\"], group = 12, pads = "
     "[1, 1, 1, 1]}"},
    {"conv_depthwise_last",
     {"T[6,1,5,3]"},
     "%x : T[1,3,14,13]",
     "%y : T[1,6,7,5] = conv %x, $0 {dilations = [1, 2], group = 3, pads = [2, 0, 2, 0], strides = "
     "[2, 2]}"},
    {"conv_depthwise_last",
     {"T[6,1,7]", "T[6]"},
     "%x : T[2,6,20]",
     "%y : T[2,6,20] = conv %x, $0, $1 {group = 6, pads = [3, 3]}"},
    /* What stands between convolutions. */
    {"concat",
     {"T[16,8,1,1]", "T[16]", "T[16]", "T[16]", "T[16]"},
     "%x : T[?b,8,6,5], %m : T[?b,1,6,5]",
     "%0 : T[?b,16,6,5] = conv %x, $0\n"
     "%1 : T[?b,16,6,5] = batch_norm %0, $1, $2, $3, $4\n"
     "%2 : T[?b,16,1,1] = global_average_pool %1\n"
     "%3 : T[?b,16,6,5] = ew %1, %2, %m {steps = [\"mul i0 i1\", \"relu s0\", \"add s1 i2\"]}\n"
     "%4 : T[?b,32,6,5] = concat %3, %0 {axis = 1}\n"
     "%5 : T[?b,32,6,10] = concat %4, %4 {axis = 3}\n"
     "%6 : T[?b,20,6,4] = slice %5 {axes = [1, -1], ends = dims[32, 9], starts = dims[12, 1], "
     "steps "
     "= [1, 2]}\n"
     "%y : T[?b,6,4,20] = transpose %6 {perm = [0, 2, 3, 1]}"},
    {"pool",
     {"T[16,8,3,3]", "T[16]"},
     "%x : T[2,8,12,11]",
     "%0 : T[2,16,12,11] = conv %x, $0, $1 {pads = [1, 1, 1, 1]}\n"
     "%1 : T[2,16,6,5] = max_pool %0 {kernel_shape = [3, 3], pads = [1, 0, 1, 0], strides = [2, "
     "2]}\n"
     "%y : T[2,16,5,4] = average_pool %1 {count_include_pad = 1, kernel_shape = [2, 2]}"},
    {"resize",
     {"T[16,8,1,1]", "T[16]"},
     "%x : T[?b,8,4,5]",
     "%0 : T[?b,16,4,5] = conv %x, $0, $1\n"
     "%1 : T[?b,10,4,5], %2 : T[?b,6,4,5] = split %0 {axis = 1, split = [10, 6]}\n"
     "%3 : T[?b,10,7,6] = pad %1 {pads = dims[0, 0, 1, 0, 0, 0, 2, 1]}\n"
     "%4 : T[?b,10,14,12] = resize %3 {coordinate_transformation_mode = \"asymmetric\", mode = "
     "\"nearest\", nearest_mode = \"floor\", scales = [1.0, 1.0, 2.0, 2.0]}\n"
     "%5 : T[?b,6,8,10] = resize %2 {mode = \"linear\", scales = [1.0, 1.0, 2.0, 2.0]}\n"
     "%6 : T[?b,6,14,12] = pad %5 {mode = \"reflect\", pads = dims[0, 0, 3, 1, 0, 0, 3, 1]}\n"
     "%y : T[?b,16,14,12] = concat %4, %6 {axis = 1}"},
};

enum { CASES = sizeof cases / sizeof cases[0] };

static void print_case(weft_buf *text, uint32_t i, const char *type)
{
    for (uint32_t w = 0; w < 5 && cases[i].weights[w]; w++) {
        weft_buf_printf(text, "weight $w%u_%u : ", i, w);
        put_typed(text, cases[i].weights[w], type);
        weft_buf_printf(text, " = random %u\n", 10 * i + w + 1);
    }
    weft_buf_printf(text, "graph @case%u_%s (", i, type);
    put_typed(text, cases[i].inputs, type);
    weft_buf_printf(text, ") {\n%s", strstr(cases[i].inputs, "?b") ? "  symbol ?b \"b\"\n" : "");
    weft_buf nodes = {0};
    put_typed(&nodes, cases[i].nodes, type);
    for (const char *s = nodes.at; *s; s++) {
        if (*s == '$')
            weft_buf_printf(text, "$w%u_", i);
        else
            weft_buf_putc(text, *s);
    }
    weft_buf_finish(&nodes);
    weft_buf_puts(text, "\n  return \"y\" %y\n}\n");
}

static void choose(weft_module *m, weft_diag *diag)
{
    const weft_pass *pass = weft_pass_find("channels-last");
    const weft_run_options options = {.verify = WEFT_VERIFY_EACH};
    if (weft_passes_run(m, &pass, 1, &options, diag) != WEFT_ERR_OK)
        fail_msg("%s", weft_diag_count(diag) ? weft_diag_at(diag, 0)->text : "no message");
}

/* Whether a launch of the program is a kernel whose name begins so, or with NULL a product. */
static bool has_kernel(const cuda_case *c, uint32_t program, const char *name)
{
    const weft_bundle_program *p = &c->bundle.program[program];
    for (uint32_t l = 0; l < p->n_launch; l++)
        for (uint32_t i = 0; i < p->launch[l].n_command; i++) {
            const weft_bundle_command *s = &p->launch[l].command[i];
            if (s->kind == WEFT_COMMAND_GEMM
                    ? !name
                    : name && weft_command_is_kernel(s->kind) &&
                          strncmp(c->bundle.kernel[s->kernel].name, name, strlen(name)) == 0)
                return true;
        }
    return false;
}

static void run_cases(const char *type, bool tf32)
{
    const double tolerance = tf32 ? 3e-3 : strcmp(type, "bf16") == 0 ? 2.5e-2 : 0;
    static const int64_t images[] = {3};
    weft_buf text = {0};
    weft_buf_puts(&text, "wir 1 kernel\nsymbol ?b = [0, 64]\n");
    for (uint32_t i = 0; i < CASES; i++)
        print_case(&text, i, type);
    cuda_case *c = cuda_case_start_with(text.at, tf32, choose);
    for (uint32_t i = 0; i < CASES; i++) {
        weft_buf name = {0};
        if (cases[i].kernel)
            put_typed(&name, cases[i].kernel, type);
        if (!has_kernel(c, i, name.at))
            fail_msg("case %u: no kernel %s", i, cases[i].kernel ? cases[i].kernel : "GEMM");
        weft_buf_finish(&name);
        cuda_case_verify(c, i, &(cuda_case_spec){.tolerance = tolerance, .symbol = images});
        cuda_case_verify(c, i,
                         &(cuda_case_spec){.tolerance = tolerance, .symbol = images, .shift = 5});
        cuda_case_verify(
            c, i,
            &(cuda_case_spec){
                .tolerance = tolerance, .symbol = images, .shift = 8, .special = true});
        if (strstr(cases[i].inputs, "?b"))
            cuda_case_verify(c, i,
                             &(cuda_case_spec){.tolerance = tolerance, .symbol = (int64_t[]){0}});
    }
    cuda_case_stop(c);
    weft_buf_finish(&text);
}

#ifndef WEFT_PTX /* the host's types differ in less than NVRTC's take time */
static void test_cuda_last__f32_is_the_reference(void **state)
{
    (void)state;
    run_cases("f32", false);
}

static void test_cuda_last__bf16_is_the_reference(void **state)
{
    (void)state;
    run_cases("bf16", false);
}
#endif

static void test_cuda_last__tf32_is_near_the_reference(void **state)
{
    (void)state;
    run_cases("f32", true);
}

static void test_cuda_last__f16_is_the_reference(void **state)
{
    (void)state;
    run_cases("f16", false);
}

static weft_module *parse(const char *text, weft_diag *diag)
{
    weft_module *m;
    if (weft_module_parse(text, strlen(text), "case", NULL, diag, &m) != WEFT_ERR_OK)
        fail_msg("%s", weft_diag_at(diag, 0)->text);
    return m;
}

/* The pass changes no bit of what the evaluator computes. */
static void test_cuda_last__the_pass_keeps_results(void **state)
{
    (void)state;
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    weft_buf text = {0};
    weft_buf_puts(&text, "wir 1 kernel\nsymbol ?b = [2, 2]\n");
    for (uint32_t i = 0; i < CASES; i++)
        print_case(&text, i, "f32");
    weft_module *before = parse(text.at, diag), *after = parse(text.at, diag);
    choose(after, diag);
    assert_int_equal(weft_module_verify(after, diag), WEFT_ERR_OK);
    for (uint32_t i = 0; i < CASES; i++) {
        weft_graph *g = weft_graph_at(before, i);
        weft_tensor in[2], want, have;
        uint32_t n_in = weft_graph_input_count(g);
        uint64_t seed = i + 1;
        assert_true(n_in <= 2);
        for (uint32_t k = 0; k < n_in; k++) {
            const weft_ttype *t = weft_val_ttype(before, weft_graph_input(g, k));
            in[k] = (weft_tensor){.dtype = WEFT_DTYPE_F32, .rank = t->rank};
            for (uint32_t d = 0; d < t->rank; d++)
                in[k].dim[d] = weft_dim_is_const(t->dim[d]) ? t->dim[d] : 2;
            int64_t n = weft_tensor_numel(&in[k]);
            float *x = in[k].data = weft_arena_array(arena, (size_t)n, sizeof *x);
            for (int64_t at = 0; at < n; at++)
                x[at] = cuda_case_random(&seed);
        }
        assert_int_equal(weft_graph_eval(g, in, n_in, arena, diag, &want, 1), WEFT_ERR_OK);
        assert_int_equal(weft_graph_eval(weft_graph_at(after, i), in, n_in, arena, diag, &have, 1),
                         WEFT_ERR_OK);
        assert_memory_equal(have.data, want.data, weft_tensor_bytes(&want));
    }
    weft_module_destroy(before);
    weft_module_destroy(after);
    weft_buf_finish(&text);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_last__the_pass_keeps_results),
#ifndef WEFT_PTX
        cmocka_unit_test(test_cuda_last__f32_is_the_reference),
        cmocka_unit_test(test_cuda_last__bf16_is_the_reference),
#endif
        cmocka_unit_test(test_cuda_last__tf32_is_near_the_reference),
        cmocka_unit_test(test_cuda_last__f16_is_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
