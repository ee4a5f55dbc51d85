/* Bundles for GPUs: images, kernels and commands read back as written; malformed bundles are
 * refused. Images are placeholders: nothing is compiled. */
#include "base/f16.h"
#include "codegen/cuda/cuda_int.h"
#include "ir/ir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* In place of NVRTC. */
weft_err weft_cuda__compile(const weft_cuda_source *source, uint32_t n_source,
                            const char *const *arch, uint32_t n_arch,
                            const weft_codegen_options *options, weft_arena *arena, weft_diag *diag,
                            weft_bundle_image **out_image, uint32_t *out_n_image,
                            weft_bundle_resource **out_resource)
{
    (void)options, (void)diag;
    uint32_t n = n_source * (n_arch + 1);
    weft_bundle_image *image = weft_arena_array(arena, n, sizeof *image);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = i % (n_arch + 1);
        image[i].arch =
            k < n_arch ? arch[k] : weft_arena_printf(arena, "compute_%s", arch[n_arch - 1] + 3);
        image[i].module = i / (n_arch + 1);
        image[i].data = (const uint8_t *)weft_arena_printf(arena, "%s %s", image[i].arch,
                                                           source[image[i].module].text);
        image[i].bytes = strlen((const char *)image[i].data);
    }
    weft_bundle_resource *resource =
        weft_arena_array(arena, (size_t)n_source * n_arch, sizeof *resource);
    for (uint32_t i = 0; i < n_source * n_arch; i++)
        resource[i] = (weft_bundle_resource){16 + i, 4 * i, i % 2};
    *out_image = image;
    *out_n_image = n;
    *out_resource = resource;
    return WEFT_ERR_OK;
}

static const char module_text[] = "wir 1 kernel\n"
                                  "symbol ?b = [1, 8]\n"
                                  "weight $w \"w\" : f32[64,64] = random 3\n"
                                  "graph @m (%x : f32[?b,64], %k : i64[?b,3]) {\n"
                                  "  symbol ?b \"batch\"\n"
                                  "  %1 : f32[?b,64] = matmul %x, $w\n"
                                  "  %2 : f32[?b,64] = ew %1, %x {steps = [\"add i0 i1\"]}\n"
                                  "  %3 : f32[64,?b] = transpose %2\n"
                                  "  %4 : f32[?b,3,64] = gather %2, %k\n"
                                  "  return \"y\" %3, \"z\" %4\n"
                                  "}\n";

typedef struct fixture {
    weft_diag *diag;
    weft_arena *arena;
    weft_module *m;
    weft_bundle bundle;
    weft_bundle_algo algo[2];
    weft_bundle_tuning tuning[2];
    weft_bundle_conv_plan conv_plan[2];
    weft_bundle_conv_plans conv_plans[2];
    char path[64], other[64];
} fixture;

static fixture f;

static void succeed(weft_err err)
{
    if (err != WEFT_ERR_OK)
        fail_msg("%s: %s", weft_err_name(err),
                 weft_diag_count(f.diag) ? weft_diag_at(f.diag, 0)->text : "no message");
}

/* Two algorithms of one GPU, and none of another. */
static void add_tunings(void)
{
    for (int i = 0; i < 2; i++) {
        f.algo[i] = (weft_bundle_algo){.gemm = {.dim = {8, 64, 64, 1, 64, 64, 0, 64},
                                                .align = {64, 256, 64, 1u << 31},
                                                .dtype = i ? WEFT_DTYPE_BF16 : WEFT_DTYPE_F32,
                                                .act = WEFT_GEMM_ACT_GELU_TANH,
                                                .flags = WEFT_GEMM_BIAS},
                                       .time_us = 1.5};
        memset(f.algo[i].bytes, 0xf0 + i, sizeof f.algo[i].bytes);
    }
    f.tuning[0] = (weft_bundle_tuning){"NVIDIA H200", 132, 130100, f.algo, 2};
    f.tuning[1] = (weft_bundle_tuning){"NVIDIA H200", 64, 130100, NULL, 0};
    f.bundle.tuning = f.tuning;
    f.bundle.n_tuning = 2;
    for (int i = 0; i < WEFT_CONV_DIMS; i++)
        f.conv_plan[0].conv.dim[i] = f.conv_plan[1].conv.dim[i] = i + 1;
    f.conv_plan[0].conv.dtype = f.conv_plan[1].conv.dtype = WEFT_DTYPE_F32;
    f.conv_plan[1].conv.flags = WEFT_CONV_BIAS | WEFT_CONV_RELU;
    f.conv_plan[0].json = f.conv_plan[1].json = "{}";
    f.conv_plans[0] = (weft_bundle_conv_plans){0, "a100-40", 91900, f.conv_plan, 2, 3};
    f.conv_plans[1] = (weft_bundle_conv_plans){1, "h200", 91900, NULL, 0, 0};
    f.bundle.conv_plans = f.conv_plans;
    f.bundle.n_conv_plans = 2;
}

static int set_up(void **state)
{
    (void)state;
    memset(&f, 0, sizeof f);
    f.diag = weft_diag_create();
    f.arena = weft_arena_create(0);
    snprintf(f.path, sizeof f.path, "code-%ld.weft", (long)getpid());
    snprintf(f.other, sizeof f.other, "code-%ld-b.weft", (long)getpid());
    succeed(weft_module_parse(module_text, strlen(module_text), "t.wir", NULL, f.diag, &f.m));
    const weft_codegen_options options = {.target = "sm_90,sm_80", .tf32 = true};
    succeed(
        weft_codegen_make(f.m, weft_backend_find("cuda"), &options, f.arena, f.diag, &f.bundle));
    add_tunings();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    remove(f.path);
    remove(f.other);
    weft_module_destroy(f.m);
    weft_arena_destroy(f.arena);
    weft_diag_destroy(f.diag);
    return 0;
}

/* -- Round trip -------------------------------------------------------------------------------- */

static void same_args(const weft_bundle_arg *a, const weft_bundle_arg *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(a[i].kind, b[i].kind);
        assert_int_equal(a[i].index, b[i].index);
        assert_true(a[i].f == b[i].f);
        assert_true(weft_dim_is_const(a[i].dim) == weft_dim_is_const(b[i].dim));
    }
}

static void test_bundle_code__comes_back_as_written(void **state)
{
    (void)state;
    weft_bundle *b = NULL;
    succeed(weft_bundle_write(&f.bundle, f.path, f.diag));
    succeed(weft_bundle_open(f.path, f.diag, &b));
    assert_string_equal(b->target, "sm_80,sm_90"); /* by age */
    assert_int_equal(b->n_arch, 2);
    assert_string_equal(b->arch[1], "sm_90");
    assert_int_equal(b->n_image, 9); /* of three kernels */
    assert_string_equal(b->image[2].arch, "compute_90");
    for (uint32_t i = 0; i < b->n_image; i++) {
        assert_int_equal((uintptr_t)b->image[i].data % 64, 0);
        assert_int_equal(b->image[i].bytes, f.bundle.image[i].bytes);
        assert_memory_equal(b->image[i].data, f.bundle.image[i].data, b->image[i].bytes);
    }
    assert_true(b->n_kernel >= 3);
    assert_int_equal(b->n_kernel, f.bundle.n_kernel);
    for (uint32_t i = 0; i < b->n_kernel; i++) {
        assert_string_equal(b->kernel[i].name, f.bundle.kernel[i].name);
        assert_int_equal(b->kernel[i].threads, f.bundle.kernel[i].threads);
        assert_memory_equal(b->kernel[i].resource, f.bundle.kernel[i].resource,
                            2 * sizeof *b->kernel[i].resource);
    }
    assert_int_equal(b->n_tuning, 2);
    assert_int_equal(b->tuning[1].n_algo, 0);
    assert_true(weft_tuning_is_for(&b->tuning[0], "NVIDIA H200", 132, 130100));
    assert_false(weft_tuning_is_for(&b->tuning[0], "NVIDIA H200", 132, 130101));
    assert_int_equal(b->tuning[0].n_algo, 2);
    assert_memory_equal(b->tuning[0].algo, f.algo, sizeof f.algo);
    assert_int_equal(b->n_conv_plans, 2);
    assert_int_equal(b->conv_plans[0].n_plan, 2);
    assert_int_equal(b->conv_plans[0].n_none, 3);
    assert_int_equal(b->conv_plans[1].version, 91900);
    assert_string_equal(b->conv_plans[1].device, "h200");
    assert_string_equal(b->conv_plans[0].plan[1].json, "{}");
    assert_memory_equal(&b->conv_plans[0].plan[1].conv, &f.conv_plan[1].conv,
                        sizeof f.conv_plan[1].conv);
    const weft_bundle_program *p = &b->program[0], *q = &f.bundle.program[0];
    const weft_bundle_gemm *g = p->launch[0].command[0].gemm;
    assert_int_equal(p->launch[0].command[0].kind, WEFT_COMMAND_GEMM);
    assert_true(g->tf32 && g->dtype == WEFT_DTYPE_F32 && g->alpha == 1 && g->beta == 0);
    assert_int_equal(g->n, 64);
    int64_t batch = 5, m = 0;
    assert_true(weft_dim_eval(p->dims, g->m, &batch, 1, &m));
    assert_int_equal(m, 5);
    for (uint32_t l = 1; l < p->n_launch; l++) {
        assert_int_equal(p->launch[l].n_command, q->launch[l].n_command);
        for (uint32_t s = 0; s < p->launch[l].n_command; s++) {
            const weft_bundle_command *a = &p->launch[l].command[s], *c = &q->launch[l].command[s];
            assert_int_equal(a->kernel, c->kernel);
            assert_int_equal(a->n_arg, c->n_arg);
            same_args(a->arg, c->arg, a->n_arg);
        }
    }
    weft_bundle_section section[WEFT_BUNDLE_SECTIONS_MAX];
    assert_int_equal(weft_bundle_sections(b, section), 3);
    assert_string_equal(section[2].name, "code");
    /* The writer accepts the reader's result. */
    succeed(weft_bundle_write(b, f.other, f.diag));
    weft_bundle_close(b);
    char *one = NULL, *two = NULL;
    size_t n_one, n_two;
    succeed(weft_file_read(f.path, UINT64_MAX, f.diag, &one, &n_one));
    succeed(weft_file_read(f.other, UINT64_MAX, f.diag, &two, &n_two));
    assert_int_equal(n_one, n_two);
    assert_memory_equal(one, two, n_one);
    free(one);
    free(two);
}

static void test_bundle_code__is_refused_when_a_byte_differs(void **state)
{
    (void)state;
    weft_bundle *b = NULL;
    char *at = NULL;
    size_t len;
    succeed(weft_bundle_write(&f.bundle, f.path, f.diag));
    succeed(weft_bundle_open(f.path, f.diag, &b));
    weft_bundle_section section[WEFT_BUNDLE_SECTIONS_MAX];
    weft_bundle_sections(b, section);
    size_t first = (size_t)section[2].offset, last = first + (size_t)section[2].bytes;
    weft_bundle_close(b);
    succeed(weft_file_read(f.path, UINT64_MAX, f.diag, &at, &len));
    for (size_t i = first; i < last; i += 97) {
        at[i] ^= 1;
        succeed(weft_file_write(f.other, at, len, f.diag));
        assert_int_equal(weft_bundle_open(f.other, f.diag, &b), WEFT_ERR_INPUT);
        at[i] ^= 1;
    }
    assert_non_null(strstr(weft_diag_at(f.diag, 0)->text, "does not have its checksum"));
    free(at);
}

/* -- What no writer makes ---------------------------------------------------------------------- */

static weft_bundle bad;
static weft_bundle_program program;
static weft_bundle_launch launch[8];
static weft_bundle_command command;
static weft_bundle_kernel kernel[8];
static weft_bundle_image image[16];
static weft_bundle_arg arg[8];
static weft_bundle_gemm gemm;
static const char *arch[2];

/* A copy of the bundle down to command 0 of launch `l`, to be changed. */
static void copy_bundle(uint32_t l)
{
    bad = f.bundle;
    program = bad.program[0];
    memcpy(launch, program.launch, program.n_launch * sizeof launch[0]);
    memcpy(kernel, bad.kernel, bad.n_kernel * sizeof kernel[0]);
    memcpy(image, bad.image, bad.n_image * sizeof image[0]);
    memcpy(arch, bad.arch, sizeof arch);
    command = launch[l].command[0];
    assert_true(command.n_arg <= 8);
    if (command.n_arg)
        memcpy(arg, command.arg, command.n_arg * sizeof arg[0]);
    if (command.gemm)
        gemm = *command.gemm;
    command.arg = arg;
    command.gemm = command.gemm ? &gemm : NULL;
    launch[l].command = &command;
    launch[l].n_command = 1;
    program.launch = launch;
    bad.program = &program;
    bad.kernel = kernel;
    bad.image = image;
    bad.arch = arch;
}

static void refuse(const char *text)
{
    weft_bundle *b = NULL;
    weft_diag_clear(f.diag);
    succeed(weft_bundle_write(&bad, f.path, f.diag));
    if (weft_bundle_open(f.path, f.diag, &b) != WEFT_ERR_INPUT)
        fail_msg("accepted: %s", text);
    if (!strstr(weft_diag_at(f.diag, 0)->text, text))
        fail_msg("\"%s\" instead of \"%s\"", weft_diag_at(f.diag, 0)->text, text);
}

#define REFUSE(launch_index, change, text) \
    do {                                   \
        copy_bundle(launch_index);         \
        change;                            \
        refuse(text);                      \
    } while (0)

enum { GEMM, EW, TRANSPOSE };

static void test_bundle_code__wrong_code_is_refused(void **state)
{
    (void)state;
    REFUSE(EW, arch[0] = "sm_", "architecture \"sm_\"");
    REFUSE(EW, arch[0] = "sm_90", "given twice");
    REFUSE(EW, bad.target = "sm_80", "target");
    REFUSE(EW, bad.target = "sm_80,sm_90,", "target");
    REFUSE(EW, image[1].arch = "sm_80", "image 1");
    REFUSE(EW, image[1].module = 1, "image 1");
    REFUSE(EW, image[2].arch = "compute_80", "image 2");
    REFUSE(EW, bad.n_image = 2, "2 images");
    REFUSE(EW, image[0].bytes = 0, "0 bytes");
    REFUSE(EW, bad.n_arch = 1, "target");
    REFUSE(EW, kernel[0].name = "a b", "has no name of its own");
    REFUSE(EW, kernel[0].name = "", "has no name of its own");
    REFUSE(EW, kernel[1].name = kernel[0].name, "has no name of its own");
    REFUSE(EW, kernel[0].module = 3, "module 3 of 3");
    REFUSE(EW, kernel[0].threads = 0, "0 threads");
    REFUSE(EW, kernel[0].threads = 1025, "1025 threads");
    REFUSE(EW, kernel[0].shared_bytes = 1 << 20, "shared memory");
    REFUSE(EW, (bad.n_arch = bad.n_image = bad.n_kernel = bad.n_tuning = bad.n_conv_plans = 0),
           "commands without code");
}

static void test_bundle_code__wrong_algorithms_are_refused(void **state)
{
    (void)state;
    REFUSE(EW, f.tuning[1].sms = 132, "algorithms for NVIDIA H200 are given twice");
    REFUSE(EW, f.tuning[1].sms = 0, "bundle without code for GPUs");
    REFUSE(EW, (f.tuning[1].sms = 64, f.tuning[1].device = ""), "bundle without code for GPUs");
    f.tuning[1].device = "NVIDIA H100";
    REFUSE(EW, f.algo[1].gemm.act = WEFT_GEMM_ACTS, "algorithm 1 for NVIDIA H200 is wrong");
    f.algo[1].gemm.act = 0;
    REFUSE(EW, f.algo[1].gemm.flags = WEFT_GEMM_FLAGS, "algorithm 1");
    f.algo[1].gemm.flags = 0;
    REFUSE(EW, f.algo[1].time_us = -1, "algorithm 1");
    REFUSE(EW, f.algo[1].time_us = 1e308 * 10, "algorithm 1");
    f.algo[1].time_us = 0;
    weft_bundle_tuning many[65];
    for (uint32_t i = 0; i < 65; i++)
        many[i] = (weft_bundle_tuning){"NVIDIA H200", i + 1, 130100, NULL, 0};
    REFUSE(EW, (bad.tuning = many, bad.n_tuning = 65), "algorithms for 65 GPUs, at most 64");
    copy_bundle(EW);
    weft_bundle *b = NULL;
    succeed(weft_bundle_write(&bad, f.path, f.diag));
    succeed(weft_bundle_open(f.path, f.diag, &b));
    weft_bundle_close(b);
}

static void test_bundle_code__wrong_plans_are_refused(void **state)
{
    (void)state;
    REFUSE(EW, f.conv_plans[1].arch = 0, "plans of convolutions for architecture 0 of 2");
    REFUSE(EW, f.conv_plans[1].arch = 2, "plans of convolutions for architecture 2 of 2");
    REFUSE(EW, (f.conv_plans[1].arch = 1, f.conv_plans[1].device = ""), "plans of convolutions");
    f.conv_plans[1].device = "h200";
    REFUSE(EW, f.conv_plan[1].conv.flags = WEFT_CONV_RELU, "plan 1 of convolutions for a100-40");
    REFUSE(EW, f.conv_plan[1].conv.flags = WEFT_CONV_FLAGS | WEFT_CONV_BIAS, "plan 1");
    f.conv_plan[1].conv.flags = 0;
    REFUSE(EW, f.conv_plan[1].conv.dtype = WEFT_DTYPE_I8, "plan 1");
    f.conv_plan[1].conv.dtype = WEFT_DTYPE_F32;
    REFUSE(EW, f.conv_plan[1].json = "", "plan 1");
    f.conv_plan[1].json = "{}";
}

/* Command 0 of the element-wise launch as a convolution. */
static weft_bundle_conv *make_conv(void)
{
    static weft_bundle_conv conv;
    conv = (weft_bundle_conv){.dtype = WEFT_DTYPE_F32,
                              .x = {.kind = WEFT_COMMAND_ARG_IN},
                              .w = {.kind = WEFT_COMMAND_ARG_IN},
                              .y = {.kind = WEFT_COMMAND_ARG_OUT}};
    for (int i = 0; i < WEFT_CONV_DIMS; i++)
        conv.dim[i] = 1;
    command = (weft_bundle_command){.kind = WEFT_COMMAND_CONV, .conv = &conv};
    return &conv;
}

static void test_bundle_code__wrong_convolutions_are_refused(void **state)
{
    (void)state;
    weft_bundle *b = NULL;
    copy_bundle(EW);
    make_conv();
    succeed(weft_bundle_write(&bad, f.path, f.diag));
    succeed(weft_bundle_open(f.path, f.diag, &b));
    const weft_bundle_command *c = &b->program[0].launch[EW].command[0];
    assert_int_equal(c->kind, WEFT_COMMAND_CONV);
    assert_int_equal(c->conv->y.kind, WEFT_COMMAND_ARG_OUT);
    assert_int_equal(c->conv->dim[WEFT_CONV_DIMS - 1], 1);
    weft_bundle_close(b);
    REFUSE(EW, make_conv()->y.kind = WEFT_COMMAND_ARG_IN, "wrong convolution");
    REFUSE(EW, make_conv()->flags = WEFT_CONV_BIAS, "wrong convolution");
    REFUSE(EW, make_conv()->flags = WEFT_CONV_RELU, "wrong convolution");
    REFUSE(EW, make_conv()->z.kind = WEFT_COMMAND_ARG_IN, "wrong convolution");
    REFUSE(EW, make_conv()->dtype = WEFT_DTYPE_I8, "wrong convolution");
    REFUSE(EW, make_conv()->dim[3] = -1, "wrong convolution");
    REFUSE(EW, (make_conv(), command.kernel = 1), "wrong convolution");
    REFUSE(EW, (make_conv(), command.kind = WEFT_COMMAND_COPY), "wrong copy");
    REFUSE(EW, command.kind = WEFT_COMMAND_AFTER, "belongs to no GEMM or convolution");
    REFUSE(EW, command.kind = WEFT_COMMAND_INSTEAD, "belongs to no GEMM or convolution");
}

static void test_bundle_code__wrong_commands_are_refused(void **state)
{
    (void)state;
    REFUSE(EW, command.kind = WEFT_COMMAND_KINDS, "wrong kind");
    REFUSE(EW, command.kind = WEFT_COMMAND_FINISH, "belongs to no GEMM or convolution");
    REFUSE(EW, command.kernel = bad.n_kernel, "wrong kernel");
    REFUSE(EW, command.bytes = 4, "wrong kernel");
    REFUSE(EW, command.grid[1] = -1, "wrong grid");
    REFUSE(EW, arg[0].index = 2, "wrong argument");
    REFUSE(EW, arg[0].kind = WEFT_COMMAND_ARG_KINDS, "wrong argument");
    REFUSE(EW, arg[0].kind = WEFT_COMMAND_ARG_NONE, "wrong argument");
    REFUSE(EW, arg[0].dim = -4, "wrong argument");
    REFUSE(EW, arg[0].f = 1, "wrong argument");
    REFUSE(EW, launch[EW].scratch_bytes = -1, "commands without code");
    REFUSE(EW, (command.kernel = f.bundle.program[0].launch[TRANSPOSE].command[0].kernel),
           "is used with arguments");
    REFUSE(EW, (command.kind = WEFT_COMMAND_COPY, command.n_arg = 1), "wrong copy");
    REFUSE(EW, (command.kind = WEFT_COMMAND_COPY, command.n_arg = 2),
           "wrong copy"); /* to an operand */
    REFUSE(EW, (command.kind = WEFT_COMMAND_FILL, command.n_arg = 1), "wrong fill");
    REFUSE(GEMM, gemm.dtype = WEFT_DTYPE_I64, "wrong GEMM");
    REFUSE(GEMM, (gemm.dtype = WEFT_DTYPE_BF16), "wrong GEMM"); /* TF32 of bf16 */
    REFUSE(GEMM, gemm.act = WEFT_GEMM_ACTS, "wrong GEMM");
    REFUSE(GEMM, gemm.k = -2, "wrong GEMM");
    REFUSE(GEMM, gemm.d = gemm.a, "wrong GEMM");
    REFUSE(GEMM, gemm.beta = 1, "wrong GEMM"); /* of no matrix */
    REFUSE(GEMM, gemm.alpha = 1e38f * 1e38f, "wrong GEMM");
    REFUSE(GEMM, (gemm.b.kind = WEFT_COMMAND_ARG_INT, gemm.b.index = 0), "wrong GEMM");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_bundle_code__comes_back_as_written, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bundle_code__is_refused_when_a_byte_differs, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_bundle_code__wrong_code_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bundle_code__wrong_algorithms_are_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_bundle_code__wrong_plans_are_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_bundle_code__wrong_convolutions_are_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_bundle_code__wrong_commands_are_refused, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
