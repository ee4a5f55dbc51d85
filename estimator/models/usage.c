/* How a kernel uses the compute units: from its launch and its predicted time.
 *
 * A launch of N blocks of W warps, b of which fit on an SM at once (occupancy.c), on a slice of M
 * SMs of a device of U SMs, runs in F = ceil(N / (b M)) waves; the last wave has r = N - (F - 1) b
 * M blocks. Blocks are distributed breadth-first over the SMs, and all waves take the same time:
 *
 *   sm_peak     = min(M, N) / U
 *   sm_need     = the need by the time model, at most sm_peak; if it gives none, ceil(N / (b F)) /
 * U: the fewest SMs with the same number of waves occ_theory  = b W / warps of an SM occ_active  =
 * N W / (warps of an SM * ((F - 1) M + min(M, r))) sm_active   = ((F - 1) M + min(M, r)) / (F U) *
 * body occ_elapsed = N W / (warps of an SM * F U) * body = occ_active * sm_active
 *
 * body is the part of the time after the launch. The last line is Little's law. The definitions are
 * those of NVIDIA's counters sm__warps_active.avg.pct_of_peak_sustained_active and _elapsed, and
 * sm__cycles_active.avg over elapsed cycles.
 *
 * The launch of a kernel of a library is a guess: tiles, block sizes and registers of kernels that
 * the library is known to run for such a problem. README.md has its accuracy. On a CPU there are no
 * blocks: occupancies are 0 (not known), and all cores of the slice are at work.
 *
 * O(tiles * splits). */
#include "estimator/models/models.h"

#include "base/sm_limits.h"
#include "estimator/device/device.h"
#include "estimator/workload/workload.h"

#include <math.h>
#include <string.h>

/* -- Launches --------------------------------------------------------------------------------- */

/* One block of a GEMM: rows and columns of its part of the result, and its resources. eff: speed of
 * its arithmetic, relative to the best block. */
typedef struct gemm_block {
    double rows, cols, eff;
    uint32_t threads, regs, shared_bytes;
} gemm_block;

/* Plain units: sgemm kernels of cuBLAS 10 to 12 (names and blocks in neusight/kernels.csv;
 * registers and shared memory as profilers report them for such kernels). */
static const gemm_block plain_blocks[] = {
    {128, 128, 1.00, 256, 122, 16640}, {128, 64, 0.95, 128, 122, 12544},
    {128, 32, 0.80, 256, 57, 16384},   {32, 128, 0.80, 256, 57, 16384},
    {64, 64, 0.80, 64, 126, 8448},     {64, 32, 0.60, 256, 86, 33792},
    {32, 32, 0.50, 128, 86, 33280},
};

/* Convolutions on plain units: scudnn kernels of cuDNN, positions by filters. */
static const gemm_block conv_blocks[] = {
    {128, 128, 1.00, 256, 126, 16640},
    {128, 64, 0.95, 128, 126, 12544},
    {128, 32, 0.80, 64, 126, 10496},
};

/* Matrix units before Hopper: kernels of mma instructions with staged copies of the operands. */
static const gemm_block mma_blocks[] = {
    {256, 128, 1.00, 256, 230, 73728},
    {128, 128, 0.95, 128, 230, 65536},
    {128, 64, 0.80, 128, 168, 49152},
    {64, 64, 0.60, 128, 96, 32768},
};

/* Hopper and data-centre Blackwell: a block of three warp groups takes the shared memory of an
 * SM. */
static const gemm_block wgmma_blocks[] = {
    {128, 256, 1.00, 384, 168, 217088},
    {128, 128, 0.95, 384, 168, 200704},
    {64, 128, 0.70, 256, 168, 147456},
    {64, 64, 0.50, 256, 128, 98304},
};

/* More blocks than any launch has; above this a double cannot count single blocks. */
static const double blocks_max = 1e15;
static const double splits[] = {1, 2, 4, 8, 16};

enum {
    MMA_SINCE = 70,
    WGMMA_BYTES = 220 * 1024, /* shared memory of the devices that have wgmma */
    SPLIT_K_MIN = 128,
    WAVE_K = 30, /* fixed cost of a wave, in units of k */
    SPLIT_COST = 30,
    EW_THREADS = 128,
    EW_ELEMENTS = 512, /* elements of a block: 128 threads of 4 */
    POOL_THREADS = 1024,
    WARP_COLS_MAX = 1024,
    ROW_THREADS_MAX = 1024,
    SHARED_DEFAULT = 49152
};

typedef struct block_list {
    const gemm_block *at;
    size_t n;
} block_list;

static uint32_t shared_max(const weft_gpu *gpu)
{
    const weft_sm_limits *sm = weft_sm_limits_find(gpu->capability);
    return sm ? sm->opt_in_bytes : 0;
}

static bool has_wgmma(const weft_gpu *gpu)
{
    return shared_max(gpu) >= WGMMA_BYTES;
}

static block_list list_blocks(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32)
{
    const weft_gpu *gpu = slice->gpu;
    bool plain = weft_peak__is_plain(slice, kernel, exact_f32) || gpu->capability < MMA_SINCE;
    if (plain && kernel->kind == WEFT_KERNEL_CONV)
        return (block_list){conv_blocks, sizeof conv_blocks / sizeof conv_blocks[0]};
    if (plain)
        return (block_list){plain_blocks, sizeof plain_blocks / sizeof plain_blocks[0]};
    if (!has_wgmma(gpu))
        return (block_list){mma_blocks, sizeof mma_blocks / sizeof mma_blocks[0]};
    return (block_list){wgmma_blocks, sizeof wgmma_blocks / sizeof wgmma_blocks[0]};
}

/* The tile and the split of k that finish first if every SM executes its blocks at the same rate;
 * *out_cost: multiply-adds of the busiest SM. Libraries compute column-major GEMMs, which have n
 * first: tiles are long in n. */
static weft_launch launch_gemm(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32,
                               double *out_cost)
{
    block_list list = list_blocks(kernel, slice, exact_f32);
    bool conv = kernel->kind == WEFT_KERNEL_CONV;
    size_t n_split = kernel->batch > 1 || conv ? 1 : sizeof splits / sizeof splits[0];
    double best = INFINITY, batch = fmax(1, kernel->batch), m = fmax(1, kernel->m);
    double n = fmax(1, kernel->n), k = fmax(1, kernel->k);
    /* Convolutions have positions first, and do not split k. */
    if (conv) {
        m = fmax(1, kernel->n);
        n = fmax(1, kernel->m);
    }
    uint32_t most_bytes = shared_max(slice->gpu);
    weft_launch launch = {.blocks = 1};
    for (size_t i = 0; i < list.n; i++) {
        const gemm_block *b = &list.at[i];
        if (b->shared_bytes > most_bytes)
            continue;
        for (size_t s = 0; s < n_split; s++) {
            double part = ceil(k / splits[s]);
            if (s > 0 && part < SPLIT_K_MIN)
                break;
            double blocks = batch * ceil(n / b->rows) * ceil(m / b->cols) * splits[s];
            double time =
                ceil(blocks / slice->units) * b->rows * b->cols * (part + WAVE_K) / b->eff;
            if (s > 0)
                time += SPLIT_COST * splits[s] * batch * n * m / slice->units;
            if (time < best * (1 - 1e-9)) {
                best = time;
                launch = (weft_launch){.blocks = blocks,
                                       .threads = b->threads,
                                       .regs = b->regs,
                                       .shared_bytes = b->shared_bytes};
            }
        }
    }
    *out_cost = best;
    return launch;
}

/* A 3 x 3 convolution on plain units may run by Winograd's algorithm: F(2x2,3x3) in one kernel with
 * blocks of 32 filters by 8 x 16 results or by 4 images x 8 x 4 results, or F(4x4,3x3) as 36 GEMMs
 * over tiles of 4 x 4 results, whose operands go through memory (grids of neusight/conv.csv). The
 * registers of the first kernel follow from Orion's V100 profiles, in which one block of it fills
 * an SM. */
static weft_launch launch_conv(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32)
{
    const weft_conv_shape *c = &kernel->conv;
    double cost, cost2, cost4, flops_per_us = weft_peak__flops_per_us(slice, kernel, exact_f32);
    weft_launch direct = launch_gemm(kernel, slice, exact_f32, &cost);
    bool plain = weft_peak__is_plain(slice, kernel, exact_f32);
    if (!plain || !weft_kernel__is_fast_conv(kernel))
        return direct;
    double wide = c->images * ceil(c->out_h / 8) * ceil(c->out_w / 16);
    double deep = ceil(c->images / 4) * ceil(c->out_h / 8) * ceil(c->out_w / 4);
    weft_launch fused = {.blocks = fmin(wide, deep) * ceil(c->out_channels / 32),
                         .threads = 256,
                         .regs = 168,
                         .shared_bytes = 49152};
    cost2 = ceil(fused.blocks / slice->units) * 32 * 32 * 16 * (c->in_channels + 16);
    weft_kernel gemm = *kernel;
    gemm.kind = WEFT_KERNEL_GEMM;
    gemm.batch = 36;
    gemm.m = ceil(c->images / 16) * 16 * ceil(c->out_h / 4) * ceil(c->out_w / 4);
    gemm.n = c->out_channels;
    gemm.k = c->in_channels;
    weft_launch parts = launch_gemm(&gemm, slice, exact_f32, &cost4);
    double values = 36 * (gemm.m * (gemm.n + gemm.k) + gemm.n * gemm.k);
    double traffic_us = 2 * 4 * values / (slice->bandwidth_gbps * 1e3);
    cost4 += traffic_us * flops_per_us / 2 / slice->units;
    if (cost2 <= cost && cost2 <= cost4)
        return fused;
    return cost4 < cost ? parts : direct;
}

static double count_elements(const weft_kernel *kernel)
{
    if (kernel->rows > 0 && kernel->cols > 0)
        return kernel->rows * kernel->cols;
    double size = (double)weft_dtype_size(kernel->dtype);
    return fmax(1, fmax(kernel->work.bytes_written, kernel->work.bytes_read) / fmax(1, size));
}

static weft_launch launch_elements(const weft_kernel *kernel, uint32_t regs)
{
    return (weft_launch){
        .blocks = ceil(count_elements(kernel) / EW_ELEMENTS), .threads = EW_THREADS, .regs = regs};
}

/* Short rows: a warp for one or two rows, four warps in a block; long rows: a block for each. */
static weft_launch launch_softmax(const weft_kernel *kernel)
{
    double rows = fmax(1, kernel->rows), cols = fmax(1, kernel->cols);
    if (cols <= WARP_COLS_MAX)
        return (weft_launch){
            .blocks = ceil(rows / (cols <= 128 ? 8 : 4)), .threads = EW_THREADS, .regs = 40};
    uint32_t threads = 32;
    double most = fmin(cols / 4, ROW_THREADS_MAX);
    while (threads < most / 2)
        threads *= 2;
    return (weft_launch){.blocks = rows, .threads = threads, .regs = 40, .shared_bytes = 512};
}

static weft_launch launch_reduce(const weft_kernel *kernel)
{
    double rows = fmax(1, kernel->rows);
    return (weft_launch){.blocks = ceil(rows / 16), .threads = 512, .regs = 32};
}

/* Flash attention: one block for 128 queries of a head. */
static weft_launch launch_attention(const weft_kernel *kernel, const weft_slice *slice)
{
    bool wgmma = has_wgmma(slice->gpu);
    return (weft_launch){.blocks = fmax(1, kernel->batch) * ceil(fmax(1, kernel->m) / 128),
                         .threads = wgmma ? 384 : 128,
                         .regs = wgmma ? 168 : 254,
                         .shared_bytes = wgmma ? 180224 : 49152};
}

static double thread_size(double elements)
{
    double size = 32;
    while (size < elements && size < 512)
        size *= 2;
    return size;
}

/* One block a row; batch norms as ATen's batch_norm_transform_input launches them: blocks of one
 * channel and one or more images. */
static weft_launch launch_norm(const weft_kernel *kernel)
{
    double rows = fmax(1, kernel->rows);
    if (!(kernel->batch >= 1) || !kernel->fn || strcmp(kernel->fn, "batch_norm") != 0)
        return (weft_launch){.blocks = rows, .threads = 128, .regs = 40, .shared_bytes = 32};
    double positions = fmax(1, kernel->cols / kernel->batch);
    double across = fmax(thread_size(positions / 4), fmin(thread_size(positions), 64));
    double images = fmax(1, floor(64 / across));
    double groups = fmin(floor(262144 / rows), ceil(kernel->batch / images));
    return (weft_launch){
        .blocks = rows * fmax(1, groups), .threads = (uint32_t)(across * images), .regs = 32};
}

weft_launch weft_usage__launch(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32)
{
    weft_launch launch = {0};
    double cost;
    if (slice->gpu->is_cpu)
        return launch;
    switch (kernel->kind) {
    case WEFT_KERNEL_GEMM:
        launch = launch_gemm(kernel, slice, exact_f32, &cost);
        break;
    case WEFT_KERNEL_CONV:
        launch = launch_conv(kernel, slice, exact_f32);
        break;
    case WEFT_KERNEL_ATTENTION:
        launch = launch_attention(kernel, slice);
        break;
    case WEFT_KERNEL_NORM:
        launch = launch_norm(kernel);
        break;
    case WEFT_KERNEL_SOFTMAX:
        launch = launch_softmax(kernel);
        break;
    case WEFT_KERNEL_REDUCE:
        launch = launch_reduce(kernel);
        break;
    case WEFT_KERNEL_DEPTHWISE:
    case WEFT_KERNEL_POOL: /* one result a thread (ATen) */
        launch = (weft_launch){.blocks = ceil(count_elements(kernel) / POOL_THREADS),
                               .threads = POOL_THREADS,
                               .regs = 32};
        break;
    default: /* element-wise functions, copies, other kernels */
        launch = launch_elements(kernel, 32);
        break;
    }
    launch.blocks = fmin(fmax(1, launch.blocks), blocks_max);
    return launch;
}

/* -- Usage ------------------------------------------------------------------------------------ */

/* Resident blocks of an SM, at least one: where the guessed kernel does not fit a small SM, the
 * library has a kernel of that size that does. */
static double count_resident(const weft_launch *launch, const weft_sm_limits *sm)
{
    weft_thread_block block = {.threads = launch->threads, .regs = launch->regs};
    if (launch->shared_bytes > SHARED_DEFAULT) {
        block.opt_in = true;
        block.dynamic_bytes = block.dynamic_max_bytes = launch->shared_bytes;
    } else {
        block.static_bytes = launch->shared_bytes;
    }
    weft_occupancy o;
    if (weft_occupancy_find(sm->capability, &block, NULL, &o) != WEFT_ERR_OK || o.blocks == 0)
        return 1;
    return o.blocks;
}

weft_usage weft_usage__find(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32,
                            double time_us, double need_units)
{
    const weft_sm_limits *sm = weft_sm_limits_find(slice->gpu->capability);
    double units = slice->units, all = slice->all_units;
    weft_usage u = {.launch = weft_usage__launch(kernel, slice, exact_f32)};
    if (!sm) {
        u.sm_peak = u.sm_active = units / all;
        u.sm_need = (need_units > 0 ? fmin(units, fmax(1, need_units)) : units) / all;
        return u;
    }
    double blocks = u.launch.blocks, warps = ceil(u.launch.threads / 32.0);
    double sm_warps = sm->threads / 32.0, resident = count_resident(&u.launch, sm);
    resident = fmin(resident, floor(sm_warps / warps));
    double peak_units = fmin(units, blocks), waves = ceil(blocks / (resident * units));
    double tail = fmax(1, blocks - (waves - 1) * resident * units);
    double busy = (waves - 1) * units + fmin(units, tail); /* SMs times waves */
    double need = need_units > 0 ? need_units : ceil(blocks / (resident * waves));
    double body = time_us > slice->gpu->launch_us ? 1 - slice->gpu->launch_us / time_us : 0;
    u.sm_peak = peak_units / all;
    u.sm_need = fmin(peak_units, fmax(1, need)) / all;
    u.occ_theory = resident * warps / sm_warps;
    u.occ_active = fmin(u.occ_theory, blocks * warps / (sm_warps * busy));
    u.sm_active = fmin(u.sm_peak, busy / (waves * all)) * body;
    u.occ_elapsed = u.occ_active * u.sm_active;
    return u;
}
