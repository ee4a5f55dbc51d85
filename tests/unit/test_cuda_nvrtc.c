/* Kernels for GPUs through the real NVRTC, where there is one: every template compiles for every
 * generation of GPUs, cubins tell their registers, and errors name kernel and operator.
 * ctest label: slow (NVRTC takes the time, and sanitizers cannot look into NVRTC). */
#include "codegen/cuda/cubin.h"
#include "codegen/cuda/cuda_int.h"
#include "ir/ir.h"
#include "tests/support/rand.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static weft_diag *diag;
static weft_arena *arena;
static weft_module *m;
static weft_bundle bundle;

static int set_up(void **state)
{
    (void)state;
    diag = weft_diag_create();
    arena = weft_arena_create(0);
    m = NULL;
    memset(&bundle, 0, sizeof bundle);
    return diag && arena ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    weft_module_destroy(m);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return 0;
}

static weft_err generate(const char *text, const char *target)
{
    if (weft_module_parse(text, strlen(text), "t.wir", NULL, diag, &m) != WEFT_ERR_OK)
        fail_msg("%s", weft_diag_at(diag, 0)->text);
    weft_codegen_cache cache = {.folder = WEFT_KERNEL_CACHE "/nvrtc", .limit_bytes = UINT64_MAX};
    const weft_codegen_options options = {.target = target, .n_thread = 2, .cache = &cache};
    return weft_codegen_make(m, weft_backend_find("cuda"), &options, arena, diag, &bundle);
}

/* Skips without NVRTC, or with one that is too old. */
static void succeed(weft_err err)
{
    if (err == WEFT_ERR_NODEV) {
        print_message("%s\n", weft_diag_at(diag, 0)->text);
        skip();
    }
    if (err != WEFT_ERR_OK)
        fail_msg("%s", weft_diag_count(diag) ? weft_diag_at(diag, 0)->text : weft_err_name(err));
}

/* One of each template. */
static const char all[] =
    "wir 1 kernel\n"
    "symbol ?b = [1, 8]\n"
    "weight $i \"i\" : i64[4,1] = dense [3, 2, 1, 0]\n"
    "weight $w \"w\" : bf16[96,96] = random 3\n"
    "weight $s \"s\" : bf16[96] = random 4\n"
    "weight $k \"k\" : bf16[32,8,3,3] = random 5\n"
    "weight $d \"d\" : bf16[32,1,3,3] = random 6\n"
    "weight $f \"f\" : f32[32,8,3,3] = random 5\n"
    "weight $sc \"sc\" : f32[] = dense [0.01]\n"
    "weight $zu \"zu\" : u8[] = dense [7]\n"
    "weight $zi \"zi\" : i8[] = dense [0]\n"
    "weight $wm \"wm\" : i8[16,9] = splat 3\n"
    "weight $wc \"wc\" : i8[12,32,3,3] = splat 2\n"
    "weight $wd \"wd\" : i8[32,1,3,3] = splat 2\n"
    "weight $nb \"nb\" : u8[40,3,16] = splat 19\n"
    "weight $ns \"ns\" : f32[40,3] = splat 0.5\n"
    "graph @m (%x : bf16[?b,96], %i : i64[?b,3], %c : bf16[?b,8,9,9], %e : f32[?b,8,9,9]) {\n"
    "  symbol ?b \"batch\"\n"
    "  %1 : bf16[?b,96] = matmul %x, $w, $s {epilogue = [\"gelu acc\"]}\n"
    "  %2 : bf16[?b,96] = ew %1, $s {steps = [\"add i0 i1\", \"tanh s0\"]}\n"
    "  %3 : bf16[?b,96] = layer_norm %2, $s, $s {axis = 1}\n"
    "  %4 : bf16[?b,96] = softmax %3\n"
    "  %5 : bf16[?b,3,96] = gather %4, %i\n"
    "  %6 : bf16[96,3,?b] = transpose %5\n"
    "  %7 : bf16[96,6,?b] = concat %6, %6 {axis = 1}\n"
    "  %8 : f32[96,6,?b] = cast %7 {to = f32}\n"
    "  %9 : f32[96,1,?b] = reduce_log_sum_exp %8 {axes = dims[1]}\n"
    "  %10 : f32[96,1,1] = reduce_mean %9 {axes = dims[2]}\n"
    "  %11 : bf16[?b,32,9,9] = conv %c, $k {pads = [1, 1, 1, 1]}\n"
    "  %12 : bf16[?b,32,9,9] = conv %11, $d {pads = [1, 1, 1, 1], group = 32}\n"
    "  %13 : bf16[?b,32,4,4] = max_pool %12 {kernel_shape = [3, 3], strides = [2, 2]}\n"
    "  %14 : f32[?b,32,9,9] = conv %e, $f {pads = [1, 1, 1, 1]}\n"
    "  %15 : i64[?b,1] = arg_max %4 {axis = 1}\n"
    "  %16 : bf16[?b,3,32] = attention %5, %5, %5 {heads = 1, head_dim = 32}\n"
    "  %17 : bf16[?b,8,18,18] = resize %c {sizes = dims[?b, 8, 18, 18]}\n"
    "  %18 : bf16[?b,8,7,18] = resize %17 {mode = \"cubic\", sizes = dims[?b, 8, 7, 18]}\n"
    "  %19 : bf16[4,1] = gather_elements $w, $i\n"
    "  %20 : bf16[96,96] = scatter_elements $w, $i, %19 {reduction = \"add\"}\n"
    "  %21 : bf16[4,96] = gather_nd %20, $i\n"
    "  %22 : bf16[96,96] = scatter_nd $w, $i, %21\n"
    "  %23 : u8[?b,32,9,9], %24 : f32[], %25 : u8[] = dynamic_quantize_linear %14\n"
    "  %26 : i32[?b,32,9,9] = matmul_integer %23, %23, %25\n"
    "  %27 : f32[?b,32,9,9] = dequantize_linear %26, %24\n"
    "  %40 : u8[?b,32,9,16] = qlinear_matmul %23, %24, %25, $wm, $sc, $zi, $sc, $zu "
    "{trans_b = 1, epilogue = [\"relu acc\"]}\n"
    "  %41 : f32[?b,12,9,9] = qlinear_conv %23, %24, %25, $wc, $sc, $zi {pads = [1, 1, 1, 1], "
    "epilogue = [\"tanh acc\"]}\n"
    "  %42 : i8[?b,32,9,9] = qlinear_conv %23, %24, %25, $wd, $sc, $zi, $sc, $zi {pads = [1, 1, 1, "
    "1], "
    "group = 32}\n"
    "  %43 : i32[?b,12,7,7] = conv_integer %42, $wc, $zi\n"
    "  %44 : f32[?b,96] = cast %1 {to = f32}\n"
    "  %45 : f32[?b,40] = matmul_nbits %44, $nb, $ns {bits = 4, block_size = 32, k = 96, n = 40}\n"
    "  %28 : bf16[?b,5], %29 : i64[?b,5] = top_k %4 {k = dims[5]}\n"
    "  return \"q0\" %40, \"q1\" %41, \"q3\" %43, \"q4\" %45, \"k\" %29, \"v\" %28, \"q\" %27, "
    "\"g\" %22, \"r\" %18, \"a\" %10, \"b\" %13, \"c\" "
    "%14, \"d\" %15, \"e\" "
    "%16\n"
    "}\n";

static void test_cuda_nvrtc__every_template_for_every_generation(void **state)
{
    (void)state;
    /* The text of kernels differs between sm_75 and later ones only; WEFT_TARGETS names more. */
    const char *target = getenv("WEFT_TARGETS");
    succeed(generate(all, target ? target : "sm_75,sm_90,sm_120"));
    uint32_t n = bundle.n_arch;
    if (!target)
        assert_int_equal(n, 3);
    assert_int_equal(bundle.n_image, bundle.n_kernel * (n + 1));
    assert_memory_equal(bundle.image[n].arch, "compute_", strlen("compute_"));
    for (uint32_t i = 0; i < bundle.n_image; i++)
        assert_true(i % (n + 1) == n
                        ? strstr((const char *)bundle.image[i].data, ".version") != NULL
                        : memcmp(bundle.image[i].data,
                                 "\x7f"
                                 "ELF",
                                 4) == 0);
    for (uint32_t i = 0; i < bundle.n_kernel; i++)
        for (uint32_t a = 0; a < n; a++) {
            const weft_bundle_resource *r = &bundle.kernel[i].resource[a];
            if (r->registers == 0 || r->registers > 255)
                fail_msg("%s on %s: %u registers", bundle.kernel[i].name, bundle.arch[a],
                         r->registers);
            /* So that a block fits: 64 Ki registers, allocated by 8 for a thread. */
            assert_true((r->registers + 7) / 8 * 8 * bundle.kernel[i].threads <= 65536);
            assert_true(r->shared_bytes <= 48 << 10 || bundle.kernel[i].shared_bytes == 0);
        }
}

/* Functions of math.cuh are there for NVRTC in every arithmetic. */
static void test_cuda_nvrtc__element_wise_operators(void **state)
{
    (void)state;
    static const char *const type[] = {"f32", "f64", "i64", "u64"};
    weft_buf text = {0};
    weft_buf_puts(&text, "wir 1 kernel\n");
    for (int id = 1; id < WEFT_OP_COUNT; id++) {
        const weft_op *op = weft_op_get((weft_op_id)id);
        for (int t = 0; t < 8 && (op->traits & WEFT_T_EW) && op->in_min <= 2; t++) {
            weft_buf one = {0};
            weft_buf_printf(&one,
                            "graph @%s_%d (%%x : %s[9], %%z : %s[9]) {\n  %%y : %s[9] = %s %s%s\n"
                            "  return \"y\" %%y\n}\n",
                            op->name, t, type[t / 2], type[t / 2], t % 2 ? "bool" : type[t / 2],
                            op->name, op->in_min == 1 ? "%x" : "%x, %z",
                            id == WEFT_OP_BIT_SHIFT ? " {direction = \"LEFT\"}" : "");
            weft_buf whole = {0};
            weft_buf_printf(&whole, "wir 1 kernel\n%s", one.at);
            if (weft_module_parse(whole.at, whole.len, "t", NULL, diag, &m) == WEFT_ERR_OK &&
                weft_module_verify(m, diag) == WEFT_ERR_OK)
                weft_buf_puts(&text, one.at);
            weft_module_destroy(m);
            m = NULL;
            weft_diag_clear(diag);
            weft_buf_finish(&one);
            weft_buf_finish(&whole);
        }
    }
    weft_err err = generate(text.at, "sm_90");
    weft_buf_finish(&text);
    succeed(err);
    assert_true(bundle.n_kernel > 150);
}

static void test_cuda_nvrtc__errors_name_kernel_and_operator(void **state)
{
    (void)state;
    static const char *const arch[] = {"sm_80"};
    static const weft_cuda_source source[] = {
        {"extern \"C\" __global__ void fine_1(int *x)\n{\n    *x = 1;\n}\n", "fine_1",
         "relu Relu_1"},
        {"#line 1 \"broken_2\"\nextern \"C\" __global__ void broken_2(int *x)\n{\n"
         "    *x = missing;\n}\n",
         "broken_2", "conv Conv_7"}};
    weft_bundle_image *image;
    uint32_t n_image;
    weft_bundle_resource *resource;
    const weft_codegen_options options = {.n_thread = 1};
    weft_err err =
        weft_cuda__compile(source, 2, arch, 1, &options, arena, diag, &image, &n_image, &resource);
    if (err == WEFT_ERR_NODEV)
        succeed(err);
    assert_int_equal(err, WEFT_ERR_BUG);
    const weft_message *said = weft_diag_at(diag, 0);
    assert_string_equal(said->item, "conv Conv_7");
    assert_non_null(strstr(said->text, "kernel broken_2 does not compile for sm_80"));
    assert_non_null(strstr(said->text, "\"missing\" is undefined"));
}

/* A process that could not load NVRTC says so; no kernel is to blame. */
static void test_cuda_nvrtc__a_compiler_that_fails_blames_no_kernel(void **state)
{
    (void)state;
    static const char *const arch[] = {"sm_80"};
    const weft_cuda_source source = {
        "extern \"C\" __global__ void fine_1(int *x)\n{\n    *x = 1;\n}\n", "fine_1",
        "relu Relu_1"};
    char worker[] = "/tmp/test_cuda_nvrtc_XXXXXX";
    /* Reads some of the job, then answers: function 7, code 0, nothing else. */
    static const char script[] = "#!/bin/sh\nhead -c 40 > /dev/null\n"
                                 "printf '\\007'\nhead -c 31 /dev/zero\n";
    int fd = mkstemp(worker);
    assert_true(fd >= 0 && write(fd, script, sizeof script - 1) == sizeof script - 1);
    assert_int_equal(fchmod(fd, 0700), 0);
    close(fd);
    weft_bundle_image *image;
    uint32_t n_image;
    weft_bundle_resource *resource;
    const weft_codegen_options options = {.n_thread = 1, .worker = worker};
    weft_err err =
        weft_cuda__compile(&source, 1, arch, 1, &options, arena, diag, &image, &n_image, &resource);
    unlink(worker);
    if (err == WEFT_ERR_NODEV)
        succeed(err);
    assert_int_equal(err, WEFT_ERR_BUG);
    assert_string_equal(weft_diag_at(diag, 0)->text, "dlopen: NVRTC's error 0, for sm_80");
}

/* A process that ends after an answer is replaced: the next job is not to blame. */
static void test_cuda_nvrtc__a_process_that_ended_is_replaced(void **state)
{
    (void)state;
    static const char *const arch[] = {"sm_80"};
    static const weft_cuda_source source[] = {
        {"extern \"C\" __global__ void one_1() {}\n", "one_1", ""},
        {"extern \"C\" __global__ void two_2() {}\n", "two_2", ""}};
    char worker[] = "/tmp/test_cuda_nvrtc_XXXXXX";
    /* Reads the job, 8 + 5 + 38 bytes, and answers: function 0, code 0, a byte of each result. */
    static const char script[] = "#!/bin/sh\nhead -c 51 > /dev/null\nhead -c 8 /dev/zero\n"
                                 "printf '\\001'\nhead -c 7 /dev/zero\n"
                                 "printf '\\001'\nhead -c 15 /dev/zero\nprintf 'cp'\n";
    int fd = mkstemp(worker);
    assert_true(fd >= 0 && write(fd, script, sizeof script - 1) == sizeof script - 1);
    assert_int_equal(fchmod(fd, 0700), 0);
    close(fd);
    void (*before)(int) = signal(SIGPIPE, SIG_IGN);
    weft_bundle_image *image;
    uint32_t n_image;
    weft_bundle_resource *resource;
    const weft_codegen_options options = {.n_thread = 1, .worker = worker};
    weft_err err =
        weft_cuda__compile(source, 2, arch, 1, &options, arena, diag, &image, &n_image, &resource);
    (void)signal(SIGPIPE, before);
    unlink(worker);
    succeed(err);
    assert_int_equal(n_image, 4);
    for (uint32_t i = 0; i < n_image; i++) {
        assert_int_equal(image[i].bytes, 1);
        assert_int_equal(image[i].data[0], i % 2 ? 'p' : 'c');
    }
}

static void test_cuda_nvrtc__unknown_architectures_are_refused(void **state)
{
    (void)state;
    assert_int_equal(generate(all, "sm_80,sm_70"), WEFT_ERR_INPUT);
    assert_non_null(strstr(weft_diag_at(diag, 0)->text, "\"sm_70\"; there are sm_75 sm_80"));
}

/* A KiB of each block is the system's; no architecture's cubins show it. */
static void test_cuda_nvrtc__shared_memory_is_what_a_kernel_declares(void **state)
{
    (void)state;
    static const char *const arch[] = {"sm_75", "sm_80", "sm_90", "sm_100", "sm_120"};
    static const uint32_t bytes[] = {0, 400, 16};
    static const weft_cuda_source source[] = {
        {"extern \"C\" __global__ void none_0(int *x)\n{\n    *x = 1;\n}\n", "none_0", ""},
        {"extern \"C\" __global__ void some_1(int *x)\n{\n    __shared__ int s[100];\n"
         "    s[threadIdx.x] = x[1];\n    __syncthreads();\n    *x = s[5];\n}\n",
         "some_1", ""},
        {"extern \"C\" __global__ void both_2(int *x)\n{\n    extern __shared__ int d[];\n"
         "    __shared__ int s[4];\n    d[threadIdx.x] = x[1];\n    s[threadIdx.x] = x[2];\n"
         "    __syncthreads();\n    *x = s[2] + d[1];\n}\n",
         "both_2", ""}};
    weft_bundle_image *image;
    uint32_t n_image;
    weft_bundle_resource *resource;
    const weft_codegen_options options = {.n_thread = 2};
    succeed(
        weft_cuda__compile(source, 3, arch, 5, &options, arena, diag, &image, &n_image, &resource));
    for (uint32_t i = 0; i < 15; i++)
        assert_int_equal(resource[i].shared_bytes, bytes[i / 5]);
}

/* No bytes make the reader of cubins fall over. */
static void test_cuda_nvrtc__damaged_cubins_tell_nothing(void **state)
{
    (void)state;
    static const char small[] = "wir 1 kernel\ngraph @m (%x : f32[64,33]) {\n"
                                "  %y : f32[64,1] = reduce_max %x {axes = dims[1]}\n"
                                "  return \"y\" %y\n}\n";
    succeed(generate(small, "sm_90"));
    const char *name = bundle.kernel[0].name;
    size_t n = (size_t)bundle.image[0].bytes;
    uint8_t *copy = malloc(n);
    uint64_t seed = 12345;
    for (int round = 0; round < 2000; round++) {
        weft_bundle_resource r = {0};
        memcpy(copy, bundle.image[0].data, n);
        for (int k = 0; k < 1 + round % 8; k++) {
            /* Headers and tables more often than code. */
            size_t at = round % 2   ? rand_next(&seed) % n
                        : round % 4 ? rand_next(&seed) % 64
                                    : n - 1 - rand_next(&seed) % (n / 4);
            copy[at] = (uint8_t)(seed >> 56);
        }
        weft_cubin_resource(copy, round % 16 == 0 ? rand_next(&seed) % n : n, name, &r);
    }
    weft_bundle_resource whole = {0};
    weft_cubin_resource(bundle.image[0].data, n, name, &whole);
    assert_int_equal(whole.registers, bundle.kernel[0].resource[0].registers);
    assert_true(whole.registers > 0);
    free(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_cuda_nvrtc__every_template_for_every_generation,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_cuda_nvrtc__element_wise_operators, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_cuda_nvrtc__errors_name_kernel_and_operator, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_cuda_nvrtc__a_compiler_that_fails_blames_no_kernel,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_cuda_nvrtc__a_process_that_ended_is_replaced, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_cuda_nvrtc__unknown_architectures_are_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_cuda_nvrtc__shared_memory_is_what_a_kernel_declares,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_cuda_nvrtc__damaged_cubins_tell_nothing, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
