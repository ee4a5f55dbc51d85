/* The interpreter of PTX on kernels written here, so that no NVRTC is needed: right programs run,
 * and each kind of fault is found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/ptx/ptx.h"

/* y[tid] = f(x, tid): the body of a kernel of two warps; %rd3: &x[tid], %rd4: &y[tid], %r1: tid,
 * %r5: the address of word tid of 64 words of shared memory. */
static char *kernel_of(const char *body)
{
    static const char head[] =
        ".version 8.0\n.target sm_80\n.address_size 64\n"
        ".visible .entry k(\n .param .u64 k_param_0,\n .param .u64 k_param_1\n)\n"
        "{\n .reg .pred %p<8>;\n .reg .b32 %r<20>;\n .reg .b64 %rd<10>;\n"
        " .shared .align 16 .b8 s[256];\n"
        " ld.param.u64 %rd1, [k_param_0];\n ld.param.u64 %rd2, [k_param_1];\n"
        " mov.u32 %r1, %tid.x;\n mul.wide.u32 %rd5, %r1, 4;\n"
        " add.s64 %rd3, %rd1, %rd5;\n add.s64 %rd4, %rd2, %rd5;\n"
        " mov.u32 %r4, s;\n shl.b32 %r5, %r1, 2;\n add.s32 %r5, %r4, %r5;\n"
        " ld.global.u32 %r2, [%rd3];\n";
    char *text = malloc(sizeof head + strlen(body) + 100);
    assert_non_null(text);
    sprintf(text, "%s%s st.global.u32 [%%rd4], %%r3;\n ret;\n}\n", head, body);
    return text;
}

static uint32_t x[64], y[64];
static ptx_count count; /* of the last run */

/* The fault, or NULL. */
static const char *run(const char *body, unsigned threads, unsigned blocks)
{
    static char fault[1200];
    char why[300], *text = kernel_of(body);
    ptx_module *m = ptx_load(text, why, sizeof why);
    if (!m)
        fail_msg("%s", why);
    uint32_t *px = x, *py = y;
    const ptx_memory memory[] = {{(uintptr_t)x, sizeof x}, {(uintptr_t)y, sizeof y}};
    const char *wrong = NULL;
    for (unsigned seed = 0; seed < 4 && !wrong; seed++)
        wrong = ptx_run(m, &(ptx_launch){.kernel = "k",
                                         .grid = {blocks, 1, 1},
                                         .threads = threads,
                                         .param = (void *[]){&px, &py},
                                         .memory = memory,
                                         .n_memory = 2,
                                         .seed = seed});
    snprintf(fault, sizeof fault, "%s", wrong ? wrong : "");
    count = ptx_counted(m);
    ptx_unload(m);
    free(text);
    return wrong ? fault : NULL;
}

static void expect(const char *body, unsigned threads, unsigned blocks, const char *part)
{
    const char *fault = run(body, threads, blocks);
    if (!fault || !strstr(fault, part))
        fail_msg("expected \"%s\", not \"%s\"", part, fault ? fault : "no fault");
}

#define OTHER " xor.b32 %r6, %r5, 128;\n" /* the word of the other warp */

static void test_faults__right_programs_run(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 64; i++)
        x[i] = 1000 - 7 * i;
    assert_null(run(
        " st.shared.u32 [%r5], %r2;\n bar.sync 0;\n" OTHER " ld.shared.u32 %r3, [%r6];\n", 64, 1));
    for (uint32_t i = 0; i < 64; i++)
        assert_int_equal(y[i], x[i ^ 32]);
    /* A loop in which lanes part: the sum of 0 .. tid. */
    assert_null(run(" mov.u32 %r3, 0;\n mov.u32 %r7, 0;\nAGAIN:\n setp.gt.u32 %p1, %r7, %r1;\n"
                    " @%p1 bra DONE;\n add.s32 %r3, %r3, %r7;\n add.s32 %r7, %r7, 1;\n"
                    " bra.uni AGAIN;\nDONE:\n shfl.sync.bfly.b32 %r8|%p2, %r3, 1, 31, -1;\n"
                    " add.s32 %r3, %r3, %r8;\n",
                    64, 1));
    for (uint32_t i = 0; i < 64; i++)
        assert_int_equal(y[i], i * (i + 1) / 2 + (i ^ 1) * ((i ^ 1) + 1) / 2);
    assert_null(run(" cp.async.ca.shared.global [%r5], [%rd3], 4;\n cp.async.commit_group;\n"
                    " cp.async.wait_group 0;\n bar.sync 0;\n" OTHER " ld.shared.u32 %r3, [%r6];\n",
                    64, 1));
    for (uint32_t i = 0; i < 64; i++)
        assert_int_equal(y[i], x[i ^ 32]);
}

/* Lanes 0 to 7 meet the others at an instruction that stands before the code of these. */
static void test_faults__lanes_wait_for_each_other(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 64; i++)
        x[i] = 1000 - 7 * i;
    static const char meet[] =
        " setp.lt.u32 %%p1, %%r1, 8;\n mov.u32 %%r7, %%r2;\n bra.uni PARTS;\n"
        "MEET:\n%s bra.uni DONE;\nPARTS:\n @%%p1 bra MEET;\n"
        " add.s32 %%r7, %%r7, 1;\n%s bra.uni MEET;\nDONE:\n";
    char body[1000];
    snprintf(body, sizeof body, meet, " shfl.sync.bfly.b32 %r3|%p2, %r7, 31, 31, -1;\n", "");
    assert_null(run(body, 32, 1));
    for (uint32_t i = 0; i < 32; i++)
        assert_int_equal(y[i], x[31 - i] + (31 - i >= 8));
    snprintf(body, sizeof body, meet,
             " mov.u32 %r3, 1;\n vote.sync.all.pred %p2, %p1, -1;\n"
             " bar.sync 0;\n bar.warp.sync -1;\n @%p2 mov.u32 %r3, 0;\n",
             "");
    assert_null(run(body, 32, 1));
    /* The others end, or meet elsewhere. */
    static const char *const fault[] = {" ret;\n",
                                        " shfl.sync.bfly.b32 %r3|%p2, %r7, 31, 31, -1;\n"};
    for (size_t i = 0; i < sizeof fault / sizeof *fault; i++) {
        snprintf(body, sizeof body, meet, " shfl.sync.bfly.b32 %r3|%p2, %r7, 31, 31, -1;\n",
                 fault[i]);
        expect(body, 32, 1, "of the warp");
        snprintf(body, sizeof body, meet, " mov.u32 %r3, 1;\n bar.sync 0;\n", fault[i]);
        expect(body, 32, 1, "of the warp");
    }
}

/* Pairs of 16 bits by pairs of bytes, of both signs. */
static void test_faults__products_of_halves_and_bytes(void **state)
{
    (void)state;
    x[0] = 0xfffe0003;
    assert_null(run(" mov.u32 %r6, 0x80ff7f02;\n mov.u32 %r7, 10;\n"
                    " dp2a.lo.s32.s32 %r3, %r2, %r6, %r7;\n",
                    1, 1));
    assert_int_equal((int32_t)y[0], 10 + 3 * 2 - 2 * 127);
    assert_null(run(" mov.u32 %r6, 0x80ff7f02;\n mov.u32 %r7, 10;\n"
                    " dp2a.hi.s32.s32 %r3, %r2, %r6, %r7;\n",
                    1, 1));
    assert_int_equal((int32_t)y[0], 10 + 3 * -1 - 2 * -128);
    assert_null(run(" mov.u32 %r6, 0x80ff7f02;\n mov.u32 %r7, 10;\n"
                    " dp2a.hi.u32.u32 %r3, %r2, %r6, %r7;\n",
                    1, 1));
    assert_int_equal(y[0], 10 + 3 * 255 + 0xfffe * 128);
}

static void test_faults__memory(void **state)
{
    (void)state;
    expect(" ld.global.u32 %r3, [%rd3+65536];\n", 64, 1, "outside of every allocation");
    expect(" ld.global.u32 %r3, [%rd3+2];\n", 64, 1, "is not a multiple of 4");
    expect(" mov.u32 %r3, 1;\n st.shared.u32 [%r5+4], %r3;\n", 64, 1,
           "of 256 bytes of shared memory");
    expect(" ld.shared.u32 %r3, [%r5];\n", 64, 1, "nothing was written there");
    /* Shared memory does not outlive its block. */
    expect(" mov.u32 %r6, %ctaid.x;\n setp.ne.s32 %p1, %r6, 0;\n @!%p1 st.shared.u32 [%r5], %r2;\n"
           " ld.shared.u32 %r3, [%r5];\n",
           32, 2, "nothing was written there");
}

static void test_faults__races(void **state)
{
    (void)state;
    expect(" st.shared.u32 [%r5], %r2;\n bar.sync 0;\n st.shared.u32 [%r5], %r2;\n" OTHER
           " ld.shared.u32 %r3, [%r6];\n",
           64, 1, "without a barrier between");
    /* Reads, then writes. */
    expect(" st.shared.u32 [%r5], %r2;\n bar.sync 0;\n" OTHER
           " ld.shared.u32 %r3, [%r6];\n st.shared.u32 [%r5], %r2;\n",
           64, 1, "thread");
    expect(" st.shared.u32 [%r4], %r2;\n mov.u32 %r3, 0;\n", 64, 1, "another thread wrote it");
    /* In global memory: threads of a block, and blocks. */
    expect(" xor.b32 %r7, %r1, 32;\n mul.wide.u32 %rd6, %r7, 4;\n add.s64 %rd6, %rd2, %rd6;\n"
           " st.global.u32 [%rd4], %r2;\n ld.global.u32 %r3, [%rd6];\n",
           64, 1, "without a barrier between");
    expect(" mov.u32 %r3, 5;\n", 64, 2, "another thread wrote it");
}

static void test_faults__asynchronous_copies(void **state)
{
    (void)state;
    expect(" cp.async.ca.shared.global [%r5], [%rd3], 4;\n cp.async.commit_group;\n"
           " ld.shared.u32 %r3, [%r5];\n",
           64, 1, "is not waited for");
    expect(" cp.async.ca.shared.global [%r5], [%rd3], 4;\n cp.async.commit_group;\n"
           " cp.async.wait_group 1;\n ld.shared.u32 %r3, [%r5];\n",
           64, 1, "is not waited for");
    expect(" cp.async.ca.shared.global [%r5], [%rd3], 4;\n cp.async.wait_group 0;\n"
           " ld.shared.u32 %r3, [%r5];\n",
           64, 1, "is not waited for");
    /* Waited for by the thread, but not known to the other warp. */
    expect(" cp.async.ca.shared.global [%r5], [%rd3], 4;\n cp.async.commit_group;\n"
           " cp.async.wait_group 0;\n" OTHER " ld.shared.u32 %r3, [%r6];\n",
           64, 1, "read of byte");
    expect(" cp.async.ca.shared.global [%r5], [%rd3+65536], 4;\n mov.u32 %r3, 0;\n", 64, 1,
           "outside of every allocation");
}

static void test_faults__of_warps(void **state)
{
    (void)state;
    expect(" setp.gt.u32 %p1, %r1, 7;\n mov.u32 %r3, 0;\n @%p1 bar.sync 0;\n", 64, 1,
           "a barrier for a part of the warp");
    expect(" setp.gt.u32 %p1, %r1, 31;\n mov.u32 %r3, 0;\n @%p1 bra OVER;\n bar.sync 0;\nOVER:\n",
           64, 1, "a barrier that some warps never reach");
    expect(" setp.gt.u32 %p1, %r1, 7;\n mov.u32 %r3, 0;\n"
           " @%p1 shfl.sync.bfly.b32 %r3|%p2, %r2, 1, 31, -1;\n",
           64, 1, "for the mask ffffffff");
    expect(" trap;\n", 64, 1, "a trap");
}

/* Words 2, 4, ... of 64 are in the even banks, two in each. */
static void test_faults__bank_conflicts_are_counted(void **state)
{
    (void)state;
    assert_null(run(" st.shared.u32 [%r5], %r2;\n ld.shared.u32 %r3, [%r5];\n", 32, 1));
    assert_true(count.shared_phases > 0 && count.shared_conflicts == 0);
    uint64_t phases = count.shared_phases;
    assert_null(run(" shl.b32 %r6, %r1, 3;\n add.s32 %r6, %r4, %r6;\n"
                    " st.shared.u32 [%r6], %r2;\n ld.shared.u32 %r3, [%r6];\n",
                    32, 1));
    assert_int_equal(count.shared_phases, phases);
    assert_int_equal(count.shared_conflicts, phases);
}

static void test_faults__unknown_text_is_refused(void **state)
{
    (void)state;
    static const char *const body[] = {" wgmma.fence.sync.aligned;\n",
                                       " ld.global.volatile.u32 %r3, [%rd3];\n",
                                       " mov.u32 %r3, %clock;\n", " bra NOWHERE;\n"};
    for (size_t i = 0; i < sizeof body / sizeof *body; i++) {
        char why[300] = "", *text = kernel_of(body[i]);
        assert_null(ptx_load(text, why, sizeof why));
        assert_non_null(strstr(why, "unknown"));
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults__right_programs_run),
        cmocka_unit_test(test_faults__lanes_wait_for_each_other),
        cmocka_unit_test(test_faults__products_of_halves_and_bytes),
        cmocka_unit_test(test_faults__memory),
        cmocka_unit_test(test_faults__races),
        cmocka_unit_test(test_faults__asynchronous_copies),
        cmocka_unit_test(test_faults__of_warps),
        cmocka_unit_test(test_faults__bank_conflicts_are_counted),
        cmocka_unit_test(test_faults__unknown_text_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
