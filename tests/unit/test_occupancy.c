/* Occupancy against recorded results of NVIDIA's cuda_occupancy.h (tests/regress/occupancy.csv)
 * and, where that header is installed (CMake variable WEFT_CUDA_INCLUDE), against the header itself
 * on 100,000 random kernels for each row of base/sm_limits.def. */
#include "base/diag.h"
#include "base/sm_limits.h"
#include "estimator/estimator.h"
#include "tests/support/rand.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#ifdef WEFT_CUDA_OCCUPANCY
#include <cuda_occupancy.h>
#endif

enum { LINE_MAX_BYTES = 256, PER_ROW = 24, COMPARED = 100000 };

/* Random blocks: round sizes, odd sizes, and sizes that cannot run. */
static weft_thread_block draw_block(uint64_t *seed, const weft_sm_limits *sm)
{
    weft_thread_block b = {.threads = rand_below(seed, 4) ? 32 * (1 + rand_below(seed, 33))
                                                          : 1 + rand_below(seed, 1100),
                           .regs = rand_below(seed, rand_below(seed, 4) ? 90 : 270)};
    uint32_t top = rand_below(seed, 3) ? 49152 : sm->opt_in_bytes;
    switch (rand_below(seed, 4)) {
    case 0:
        break;
    case 1:
        b.static_bytes = rand_below(seed, 50000);
        break;
    case 2:
        b.dynamic_bytes = rand_below(seed, top + 2048);
        break;
    default:
        b.static_bytes = rand_below(seed, 20000);
        b.dynamic_bytes = rand_below(seed, top + 2048);
        break;
    }
    b.opt_in = rand_below(seed, 2);
    if (b.opt_in)
        b.dynamic_max_bytes = rand_below(seed, 4) ? b.dynamic_bytes + rand_below(seed, 3) * 1024
                                                  : rand_below(seed, sm->opt_in_bytes + 2048);
    b.has_carveout = rand_below(seed, 3) == 0;
    if (b.has_carveout)
        b.carveout_percent = rand_below(seed, 101);
    b.barriers = rand_below(seed, 2) ? 1 : rand_below(seed, 17);
    b.virtual_resources = rand_below(seed, 4) ? 0 : rand_below(seed, 40);
    return b;
}

/* -- Recorded results ------------------------------------------------------------------------- */

static const char *const head = "capability,threads,regs,static,dynamic,opt_in,dynamic_max,carveout"
                                ",barriers,resources,blocks,warps,slots,by_regs,by_shared"
                                ",by_barriers,by_resources,block_regs,block_shared";

/* One line of the file. -1: a limit that does not apply, or no carveout. */
static void print_row(char *out, size_t size, uint32_t capability, const weft_thread_block *b,
                      const weft_occupancy *o)
{
    const uint32_t v[] = {o->blocks,          o->limit_warps,  o->limit_blocks,
                          o->limit_regs,      o->limit_shared, o->limit_barriers,
                          o->limit_resources, o->block_regs,   o->block_shared_bytes};
    int at = snprintf(out, size, "%u,%u,%u,%u,%u,%d,%u,%d,%u,%u", capability, b->threads, b->regs,
                      b->static_bytes, b->dynamic_bytes, b->opt_in, b->dynamic_max_bytes,
                      b->has_carveout ? (int)b->carveout_percent : -1, b->barriers,
                      b->virtual_resources);
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++)
        at += snprintf(out + at, size - (size_t)at, ",%d",
                       v[i] == WEFT_OCCUPANCY_UNLIMITED ? -1 : (int)v[i]);
}

static void read_block(const char *line, uint32_t *capability, weft_thread_block *b)
{
    int opt_in, carveout;
    assert_int_equal(sscanf(line, "%u,%u,%u,%u,%u,%d,%u,%d,%u,%u", capability, &b->threads,
                            &b->regs, &b->static_bytes, &b->dynamic_bytes, &opt_in,
                            &b->dynamic_max_bytes, &carveout, &b->barriers, &b->virtual_resources),
                     10);
    b->opt_in = opt_in;
    b->has_carveout = carveout >= 0;
    b->carveout_percent = carveout >= 0 ? (uint32_t)carveout : 0;
}

static void test_occupancy__is_as_recorded(void **state)
{
    char path[1024], line[LINE_MAX_BYTES], now[LINE_MAX_BYTES];
    int rows = 0;
    (void)state;
    snprintf(path, sizeof path, "%s/tests/regress/occupancy.csv", WEFT_SOURCE_DIR);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (line[0] == '#' || strcmp(line, head) == 0)
            continue;
        uint32_t capability;
        weft_thread_block b = {0};
        weft_occupancy o;
        read_block(line, &capability, &b);
        assert_int_equal(weft_occupancy_find(capability, &b, NULL, &o), WEFT_ERR_OK);
        print_row(now, sizeof now, capability, &b, &o);
        assert_string_equal(now, line);
        rows++;
    }
    fclose(f);
    print_message("%d recorded kernels\n", rows);
    assert_true(rows >= 300);
}

/* -- The header itself ------------------------------------------------------------------------ */

#ifdef WEFT_CUDA_OCCUPANCY

static cudaOccDeviceProp make_device(const weft_sm_limits *sm)
{
    return (cudaOccDeviceProp){
        .computeMajor = (int)sm->capability / 10,
        .computeMinor = (int)sm->capability % 10,
        .maxThreadsPerBlock = 1024,
        .maxThreadsPerMultiprocessor = (int)sm->threads,
        .regsPerBlock = 65536,
        .regsPerMultiprocessor = (int)sm->regs,
        .warpSize = 32,
        .sharedMemPerBlock = 49152,
        .sharedMemPerMultiprocessor = sm->shared_bytes,
        .numSms = 100,
        .sharedMemPerBlockOptin = sm->opt_in_bytes,
        .reservedSharedMemPerBlock = sm->reserved_bytes,
    };
}

/* false: the header does not know the capability. */
static bool ask_header(const weft_sm_limits *sm, const weft_thread_block *b, weft_occupancy *out)
{
    cudaOccDeviceProp device = make_device(sm);
    cudaOccFuncAttributes function = {
        .maxThreadsPerBlock = INT_MAX,
        .numRegs = (int)b->regs,
        .sharedSizeBytes = b->static_bytes,
        .shmemLimitConfig = b->opt_in ? FUNC_SHMEM_LIMIT_OPTIN : FUNC_SHMEM_LIMIT_DEFAULT,
        .maxDynamicSharedSizeBytes = b->dynamic_max_bytes,
        .numBlockBarriers = (int)b->barriers,
#ifdef WEFT_CUDA_OCCUPANCY_VIRTUAL
        .virtualResourceCount = (int)b->virtual_resources,
#endif
    };
    cudaOccDeviceState device_state = {.carveoutConfig = b->has_carveout
                                                             ? (int)b->carveout_percent
                                                             : (int)SHAREDMEM_CARVEOUT_DEFAULT};
    cudaOccResult r = {0};
    cudaOccError err = cudaOccMaxActiveBlocksPerMultiprocessor(
        &r, &device, &function, &device_state, (int)b->threads, b->dynamic_bytes);
    if (err == CUDA_OCC_ERROR_UNKNOWN_DEVICE)
        return false;
    assert_int_equal(err, CUDA_OCC_SUCCESS);
    uint32_t warps = (b->threads + 31) / 32;
    *out = (weft_occupancy){.blocks = (uint32_t)r.activeBlocksPerMultiprocessor,
                            .warps = (uint32_t)r.activeBlocksPerMultiprocessor * warps,
                            .limit_warps = (uint32_t)r.blockLimitWarps,
                            .limit_blocks = (uint32_t)r.blockLimitBlocks,
                            .limit_regs = (uint32_t)r.blockLimitRegs,
                            .limit_shared = (uint32_t)r.blockLimitSharedMem,
                            .limit_barriers = (uint32_t)r.blockLimitBarriers,
                            .limit_resources = WEFT_OCCUPANCY_UNLIMITED,
                            .block_regs = (uint32_t)r.allocatedRegistersPerBlock,
                            .block_shared_bytes = (uint32_t)r.allocatedSharedMemPerBlock};
#ifdef WEFT_CUDA_OCCUPANCY_VIRTUAL
    out->limit_resources = (uint32_t)r.blockLimitVirtual;
#endif
    return true;
}

/* Headers before CUDA 13.1 have no virtual resources. Those before 13.5 give 10.3 two barriers for
 * each block, as 10.0 has; the table follows the later ones. */
static void fit_to_header(const weft_sm_limits *sm, weft_thread_block *b)
{
    weft_thread_block probe = {.threads = 32, .barriers = 1};
    weft_occupancy theirs;
#ifndef WEFT_CUDA_OCCUPANCY_VIRTUAL
    b->virtual_resources = 0;
#endif
    if (sm->capability == 103 && ask_header(sm, &probe, &theirs) &&
        theirs.limit_barriers != sm->barriers)
        b->barriers = 0;
}

static void bless(void)
{
    char path[1024], row[LINE_MAX_BYTES];
    uint64_t seed = 1;
    snprintf(path, sizeof path, "%s/tests/regress/occupancy.csv", WEFT_SOURCE_DIR);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f,
            "# What cuda_occupancy.h of CUDA 13 says of random kernels; the test unit/occupancy "
            "with WEFT_BLESS=1\n# and that header (CMake variable WEFT_CUDA_INCLUDE) rewrites "
            "it. -1: no limit, or no carveout asked for.\n%s\n",
            head);
    for (size_t i = 0; weft_sm_limits_at(i); i++)
        for (int k = 0; k < PER_ROW; k++) {
            weft_thread_block b = draw_block(&seed, weft_sm_limits_at(i));
            weft_occupancy o;
            assert_true(ask_header(weft_sm_limits_at(i), &b, &o));
            print_row(row, sizeof row, weft_sm_limits_at(i)->capability, &b, &o);
            fprintf(f, "%s\n", row);
        }
    fclose(f);
}

static void test_occupancy__is_that_of_the_header(void **state)
{
    char theirs[LINE_MAX_BYTES], ours[LINE_MAX_BYTES];
    uint64_t seed = 2026;
    (void)state;
#ifdef WEFT_CUDA_OCCUPANCY_VIRTUAL
    if (getenv("WEFT_BLESS"))
        bless();
#else
    (void)bless;
#endif
    for (size_t i = 0; weft_sm_limits_at(i); i++) {
        const weft_sm_limits *sm = weft_sm_limits_at(i);
        uint32_t compared = 0, running = 0;
        for (int k = 0; k < COMPARED; k++) {
            weft_thread_block b = draw_block(&seed, sm);
            weft_occupancy a, o;
            fit_to_header(sm, &b);
            if (!ask_header(sm, &b, &a))
                break;
            assert_int_equal(weft_occupancy_find(sm->capability, &b, NULL, &o), WEFT_ERR_OK);
            print_row(theirs, sizeof theirs, sm->capability, &b, &a);
            print_row(ours, sizeof ours, sm->capability, &b, &o);
            assert_string_equal(ours, theirs);
            compared++;
            running += o.blocks > 0;
        }
        print_message("%u.%u: %u kernels identical, %u of them can run\n", sm->capability / 10,
                      sm->capability % 10, compared, running);
        assert_true(compared == COMPARED || compared == 0);
        /* At least half of the kernels can run, so that the comparison covers more than
         * refusals. */
        assert_true(running * 2 > compared || compared == 0);
    }
}

#else

static void test_occupancy__is_that_of_the_header(void **state)
{
    (void)state;
    print_message("no cuda_occupancy.h: set the CMake variable WEFT_CUDA_INCLUDE to its folder\n");
    skip();
}

#endif

/* -- Properties ------------------------------------------------------------------------------- */

static void test_occupancy__more_needs_never_hold_more_blocks(void **state)
{
    uint64_t seed = 3;
    (void)state;
    for (int i = 0; i < 20000; i++) {
        size_t n = 0;
        while (weft_sm_limits_at(n))
            n++;
        const weft_sm_limits *sm = weft_sm_limits_at(rand_below(&seed, (uint32_t)n));
        weft_thread_block b = draw_block(&seed, sm), more;
        weft_occupancy a, o;
        b.has_carveout = false;
        b.opt_in = true;
        b.dynamic_max_bytes = b.dynamic_bytes;
        more = b;
        more.regs += rand_below(&seed, 20);
        more.threads += rand_below(&seed, 64);
        more.dynamic_bytes = more.dynamic_max_bytes = b.dynamic_bytes + rand_below(&seed, 4096);
        assert_int_equal(weft_occupancy_find(sm->capability, &b, NULL, &a), WEFT_ERR_OK);
        assert_int_equal(weft_occupancy_find(sm->capability, &more, NULL, &o), WEFT_ERR_OK);
        assert_true(a.share >= 0 && a.share <= 1 && a.warps * 32 <= sm->threads);
        /* Above 48 KiB the larger opt-in limit applies, and the block can run again. */
        if (a.blocks > 0)
            assert_true(o.blocks <= a.blocks);
    }
}

static void test_occupancy__refuses_what_is_no_block(void **state)
{
    weft_diag *diag = weft_diag_create();
    weft_occupancy o;
    weft_thread_block b = {.threads = 128, .regs = 32};
    (void)state;
    assert_int_equal(weft_occupancy_find(90, &b, diag, &o), WEFT_ERR_OK);
    assert_int_equal(o.blocks, 16);
    assert_int_equal(weft_occupancy_find(35, &b, diag, &o), WEFT_ERR_UNSUP);
    assert_non_null(strstr(weft_diag_at(diag, 0)->text, "3.5"));
    const weft_thread_block wrong[] = {
        {.threads = 0},
        {.threads = UINT32_MAX},
        {.threads = 1, .regs = UINT32_MAX},
        {.threads = 1, .static_bytes = UINT32_MAX},
        {.threads = 1, .dynamic_bytes = UINT32_MAX},
        {.threads = 1, .has_carveout = true, .carveout_percent = 101}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(weft_occupancy_find(90, &wrong[i], diag, &o), WEFT_ERR_INPUT);
    weft_diag_destroy(diag);
}

/* Every GPU of NVIDIA's in the device table has a row, and rows are ordered. */
static void test_occupancy__table_is_sound(void **state)
{
    (void)state;
    for (size_t i = 0; weft_gpu_at(i); i++)
        if (weft_gpu_at(i)->capability > 0)
            assert_non_null(weft_sm_limits_find(weft_gpu_at(i)->capability));
    for (size_t i = 1; weft_sm_limits_at(i); i++)
        assert_true(weft_sm_limits_at(i - 1)->capability < weft_sm_limits_at(i)->capability);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_occupancy__is_that_of_the_header),
        cmocka_unit_test(test_occupancy__is_as_recorded),
        cmocka_unit_test(test_occupancy__more_needs_never_hold_more_blocks),
        cmocka_unit_test(test_occupancy__refuses_what_is_no_block),
        cmocka_unit_test(test_occupancy__table_is_sound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
