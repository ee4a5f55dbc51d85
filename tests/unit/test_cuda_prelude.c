/* What all CUDA kernels start from (codegen/cuda/prelude.cuh, mma.cuh), run on the host:
 * conversions against base/f16.c, steps against ops/steps.c, accesses at every alignment, sums over
 * blocks, matrix instructions against plain sums. And the emulation itself: it finds planted
 * mistakes. */
#include "base/f16.h"
#include "ops/ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/cuda_host.h"
#include "tests/support/rand.h"

static cuda_host *host;

static int set_up(void **state)
{
    (void)state;
    if (WEFT_CXX[0] != '\0')
        host = cuda_host_build_file("cuda_prelude.cu");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (host != NULL)
        cuda_host_close(host);
    return 0;
}

static void need_compiler(void)
{
    if (host == NULL) {
        print_message("no C++ compiler was found when this was built\n");
        skip();
    }
    cuda_host_forget_memory(host);
    cuda_host_order(host, 0);
}

static bool same_f32(float a, float b)
{
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0;
}

static void test_cuda_prelude__halves_are_those_of_base(void **state)
{
    (void)state;
    need_compiler();
    uint16_t *x = cuda_host_memory(host, 65536 * 2, 0);
    float *y = cuda_host_memory(host, 65536 * 4, 0), *z = cuda_host_memory(host, 65536 * 4, 0);
    for (int i = 0; i < 65536; i++)
        x[i] = (uint16_t)i;
    cuda_host_launch(host, "from_half", 256, 1, 1, 256, 0, (void *[]){&x, &x, &y, &z});
    for (int i = 0; i < 65536; i++) {
        assert_true(same_f32(y[i], weft_f16_to_f32((uint16_t)i)));
        assert_true(same_f32(z[i], weft_bf16_to_f32((uint16_t)i)));
    }
}

/* Every f16, the middles between neighbours, and what is beside them; random bits. */
static void test_cuda_prelude__halves_are_rounded_to_even(void **state)
{
    (void)state;
    need_compiler();
    enum { N = 6 * 31744 + 100000 };
    float *x = cuda_host_memory(host, (size_t)N * 4, 0);
    uint16_t *y = cuda_host_memory(host, (size_t)N * 2, 0);
    uint16_t *z = cuda_host_memory(host, (size_t)N * 2, 0);
    int n = 0;
    uint64_t seed = 7;
    for (uint16_t h = 0; h < 31744; h++) {
        float a = weft_f16_to_f32(h), b = weft_f16_to_f32((uint16_t)(h + 1));
        float middle = isinf(b) ? 65520.0f : (a + b) / 2;
        const float list[6] = {a,
                               -a,
                               middle,
                               nextafterf(middle, 0),
                               nextafterf(middle, INFINITY),
                               -nextafterf(a, INFINITY)};
        for (int i = 0; i < 6; i++)
            x[n++] = list[i];
    }
    while (n < N) {
        uint32_t bits = (uint32_t)(rand_next(&seed) >> 15 | rand_next(&seed) >> 15 << 16);
        memcpy(&x[n++], &bits, 4);
    }
    cuda_host_launch(host, "to_half", (N + 255) / 256, 1, 1, 256, 0, (void *[]){&x, &y, &z, &n});
    for (int i = 0; i < N; i++) {
        assert_true(same_f32(weft_f16_to_f32(y[i]), weft_f16_to_f32(weft_f16_from_f32(x[i]))));
        assert_true(same_f32(weft_bf16_to_f32(z[i]), weft_bf16_to_f32(weft_bf16_from_f32(x[i]))));
    }
}

static void test_cuda_prelude__wholes_are_cut_and_bounded(void **state)
{
    (void)state;
    need_compiler();
    const float list[] = {0.9f, -0.9f, 127.9f, 128,    -128.9f, -129,     255.5f,    256,       -1,
                          3e9f, -3e9f, 1e19f,  -1e19f, 2e19f,   INFINITY, -INFINITY, (float)NAN};
    enum { N = sizeof list / sizeof list[0] };
    float *x = cuda_host_memory(host, N * 4, 0);
    memcpy(x, list, sizeof list);
    int8_t *a = cuda_host_memory(host, N, 0);
    uint8_t *b = cuda_host_memory(host, N, 0);
    int32_t *c = cuda_host_memory(host, N * 4, 0);
    int64_t *d = cuda_host_memory(host, N * 8, 0);
    uint64_t *e = cuda_host_memory(host, N * 8, 0);
    bool *f = cuda_host_memory(host, N, 0);
    int n = N;
    cuda_host_launch(host, "to_whole", 1, 1, 1, 32, 0, (void *[]){&x, &a, &b, &c, &d, &e, &f, &n});
    for (int i = 0; i < N; i++) {
        double v = isnan(list[i]) ? 0 : trunc((double)list[i]);
        assert_int_equal(a[i], v < -128 ? -128 : v > 127 ? 127 : (int)v);
        assert_int_equal(b[i], v < 0 ? 0 : v > 255 ? 255 : (int)v);
        assert_int_equal(c[i], v < INT32_MIN ? INT32_MIN : v > INT32_MAX ? INT32_MAX : (int)v);
        assert_true(d[i] == (v < -0x1p63 ? INT64_MIN : v >= 0x1p63 ? INT64_MAX : (int64_t)v));
        assert_true(e[i] == (v < 0 ? 0 : v >= 0x1p64 ? UINT64_MAX : (uint64_t)v));
        assert_int_equal(f[i], list[i] != 0);
    }
}

static void test_cuda_prelude__steps_are_those_of_ops(void **state)
{
    (void)state;
    need_compiler();
    static const float value[] = {0,     -0.0f, 1,   -1,    0.5f,     -2.5f,     7,          -7,
                                  1e-3f, 90,    -90, 1e20f, INFINITY, -INFINITY, (float)NAN, 2};
    enum { V = sizeof value / sizeof value[0], N = V * V };
    float *x[3], *y = cuda_host_memory(host, (size_t)N * WEFT_STEP_COUNT * 4, 0);
    for (int j = 0; j < 3; j++)
        x[j] = cuda_host_memory(host, (size_t)N * 4, 0);
    for (int i = 0; i < N; i++) {
        x[0][i] = value[i / V];
        x[1][i] = value[i % V];
        x[2][i] = value[(i % V + 3) % V];
    }
    int n = N;
    cuda_host_launch(host, "steps", 1, 1, 1, 64, 0, (void *[]){&x[0], &x[1], &x[2], &y, &n});
    for (int s = 0; s < WEFT_STEP_COUNT; s++) {
        for (int i = 0; i < N; i++) {
            const float arg[3] = {x[0][i], x[1][i], x[2][i]};
            float want = weft_step_apply((weft_step_op)s, arg), have = y[s * N + i];
            if (!same_f32(want, have) && fabsf(want - have) > 1e-6f * fabsf(want))
                fail_msg("%s(%g, %g, %g) is %g, not %g", weft_step_name((weft_step_op)s), arg[0],
                         arg[1], arg[2], have, want);
        }
    }
}

static void test_cuda_prelude__packs_stay_inside_at_any_address(void **state)
{
    (void)state;
    need_compiler();
    for (size_t shift = 0; shift < 16; shift += 2) {
        for (int n = 0; n < 40; n++) {
            uint16_t *x = cuda_host_memory(host, (size_t)n * 2, shift);
            uint16_t *y = cuda_host_memory(host, (size_t)(n + 1) * 2, (shift * 3) % 16);
            for (int i = 0; i < n; i++)
                x[i] = weft_f16_from_f32((float)i);
            cuda_host_launch(host, "twice", 1, 1, 1, 32, 0, (void *[]){&x, &y, &n});
            for (int i = 0; i < n; i++)
                assert_true(weft_f16_to_f32(y[i]) == 2.0f * (float)i);
            assert_int_equal(y[n], 0xffff);
            cuda_host_forget_memory(host);
        }
    }
}

static void test_cuda_prelude__blocks_are_summed(void **state)
{
    (void)state;
    need_compiler();
    for (unsigned order = 0; order < 2; order++) {
        cuda_host_order(host, order);
        float *x = cuda_host_memory(host, 384 * 4, 0), *y = cuda_host_memory(host, 384 * 4, 0);
        for (int i = 0; i < 384; i++)
            x[i] = (float)((i * 37) % 129);
        x[300] = (float)NAN;
        cuda_host_launch(host, "reduce", 3, 1, 1, 128, 0, (void *[]){&x, &y});
        for (int b = 0; b < 3; b++) {
            float sum = 0, top = 0;
            for (int i = 128 * b; i < 128 * b + 128; i++) {
                sum += x[i];
                top = fmaxf(top, x[i]);
            }
            for (int i = 128 * b; i < 128 * b + 128; i++)
                assert_true(b == 2 ? isnan(y[i]) : y[i] == sum + 1000 * top);
        }
    }
}

static void check_product(const char *kernel, uint16_t (*from)(float), float (*to)(uint16_t))
{
    uint16_t *a = cuda_host_memory(host, 512, 0), *b = cuda_host_memory(host, 256, 0);
    uint16_t *t = cuda_host_memory(host, 256, 0);
    float *d = cuda_host_memory(host, 1024, 0);
    for (int i = 0; i < 256; i++)
        a[i] = from((float)(i * 7 % 23 - 11));
    for (int k = 0; k < 16; k++)
        for (int j = 0; j < 8; j++)
            t[j * 16 + k] = b[k * 8 + j] = from((float)((k * 8 + j) * 5 % 19 - 9));
    cuda_host_launch(host, kernel, 1, 1, 1, 32, 0, (void *[]){&a, &b, &t, &d});
    for (int i = 0; i < 16; i++) {
        for (int j = 0; j < 8; j++) {
            float sum = 0;
            for (int k = 0; k < 16; k++)
                sum += to(a[i * 16 + k]) * to(b[k * 8 + j]);
            assert_true(d[i * 8 + j] == sum);
            assert_true(d[128 + i * 8 + j] == sum);
        }
    }
}

static void test_cuda_prelude__matrix_instructions_multiply(void **state)
{
    (void)state;
    need_compiler();
    check_product("product_f16", weft_f16_from_f32, weft_f16_to_f32);
    check_product("product_bf16", weft_bf16_from_f32, weft_bf16_to_f32);
}

static void expect_fault(const char *kernel, const char *text)
{
    float *x = cuda_host_memory(host, 2048, 0), *y = cuda_host_memory(host, 2048, 0);
    const char *fault =
        cuda_host_try(host, kernel, 1, 1, 1, kernel[0] == 'n' ? 32 : 64, 0, (void *[]){&x, &y});
    if (fault == NULL || strstr(fault, text) == NULL)
        fail_msg("%s: %s", kernel, fault != NULL ? fault : "no fault");
}

static void test_cuda_prelude__mistakes_are_found(void **state)
{
    (void)state;
    need_compiler();
    expect_fault("some_wait", "wait at the barrier");
    expect_fault("too_far", "access outside memory");
    expect_fault("half_a_warp", "wait for lanes");
    expect_fault("no_wait", "asynchronous copies");
    float *x = cuda_host_memory(host, 256, 0), *y[2];
    assert_non_null(cuda_host_try(host, "no_barrier", 1, 1, 1, 65, 0, (void *[]){&x, &x}));
    for (int i = 0; i < 64; i++)
        x[i] = (float)i + 1;
    /* A barrier that is missing: the results depend on the order of threads. */
    for (unsigned order = 0; order < 2; order++) {
        cuda_host_order(host, order);
        y[order] = cuda_host_memory(host, 256, 0);
        cuda_host_launch(host, "no_barrier", 1, 1, 1, 64, 0, (void *[]){&x, &y[order]});
    }
    assert_memory_not_equal(y[0], y[1], 256);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_prelude__halves_are_those_of_base),
        cmocka_unit_test(test_cuda_prelude__halves_are_rounded_to_even),
        cmocka_unit_test(test_cuda_prelude__wholes_are_cut_and_bounded),
        cmocka_unit_test(test_cuda_prelude__steps_are_those_of_ops),
        cmocka_unit_test(test_cuda_prelude__packs_stay_inside_at_any_address),
        cmocka_unit_test(test_cuda_prelude__blocks_are_summed),
        cmocka_unit_test(test_cuda_prelude__matrix_instructions_multiply),
        cmocka_unit_test(test_cuda_prelude__mistakes_are_found),
    };
    return cuda_host_status(cmocka_run_group_tests(tests, set_up, tear_down));
}
