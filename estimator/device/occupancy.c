/* Occupancy: how many blocks of a kernel a multiprocessor holds at once.
 *
 * Each resource of a block sets a limit on the number of blocks; the smallest limit holds:
 *
 *   warps      warps of the multiprocessor / warps of the block
 *   blocks     a constant of the hardware
 *   registers  a warp gets registers in units of 256 from its sub-partition; all sub-partitions
 *              together hold (registers / parts / registers of a warp) * parts warps
 *   shared     a block gets units of 128 or 256 bytes, including 1 KiB for the system, of the part
 *              of the memory that the split with L1 leaves to shared memory
 *   barriers   named barriers, from 9.0 on
 *   resources  "virtual resources", from 10.0 on: 128
 *
 * The checks at launch are coarser than the allocation in two cases: they round the warps of a
 * block up to a multiple of the sub-partitions when they count its registers, and 6.0 refuses
 * blocks that 6.1 (4 sub-partitions instead of 2) cannot run. The results equal those of NVIDIA's
 * cuda_occupancy.h (CUDA 13), limit by limit: unit/occupancy compares them where a toolkit is
 * installed. The code is written from the documented rules, not from that file.
 *
 * O(1). */
#include "estimator/estimator.h"

#include "base/sm_limits.h"

enum {
    WARP = 32,
    BLOCK_THREADS_MAX = 1024,
    BLOCK_REGS_MAX = 65536,
    BLOCK_SHARED_DEFAULT = 49152,
    REG_UNIT = 256,
    VIRTUAL_RESOURCES = 128,
    VIRTUAL_SINCE = 100,
    BARRIERS_SINCE = 90,
    CARVEOUT_SINCE = 70,
    THREADS_MAX = 65536,
    REGS_MAX = 4096,
    BYTES_MAX = 1 << 30
};

static uint32_t round_up(uint32_t x, uint32_t unit)
{
    return (x + unit - 1) / unit * unit;
}

/* -- Limits ----------------------------------------------------------------------------------- */

static uint32_t limit_warps(const weft_sm_limits *sm, const weft_thread_block *block)
{
    if (block->threads > BLOCK_THREADS_MAX)
        return 0;
    return sm->threads / WARP / (round_up(block->threads, WARP) / WARP);
}

static uint32_t limit_regs(const weft_sm_limits *sm, const weft_thread_block *block,
                           uint32_t *out_regs)
{
    uint32_t warps = round_up(block->threads, WARP) / WARP;
    uint32_t warp_regs = round_up(block->regs * WARP, REG_UNIT);
    uint32_t check_parts = sm->check_parts ? sm->check_parts : sm->parts;
    *out_regs = warp_regs * warps;
    if (block->regs > sm->thread_regs ||
        (uint64_t)warp_regs * round_up(warps, check_parts) > BLOCK_REGS_MAX)
        return 0;
    if (warp_regs == 0)
        return WEFT_OCCUPANCY_UNLIMITED;
    return sm->regs / sm->parts / warp_regs * sm->parts / warps;
}

/* Smallest split with at least `bytes` of shared memory; 0: there is none. */
static uint32_t fit_carveout(const weft_sm_limits *sm, uint32_t bytes)
{
    uint32_t n = sizeof sm->carveouts / sizeof sm->carveouts[0];
    for (uint32_t i = 0; i < n; i++)
        if ((i == 0 || sm->carveouts[i] > 0) && sm->carveouts[i] * 1024u >= bytes)
            return sm->carveouts[i] * 1024u;
    return 0;
}

static uint32_t limit_shared(const weft_sm_limits *sm, const weft_thread_block *block,
                             uint32_t *out_bytes)
{
    uint32_t fixed = block->static_bytes + sm->reserved_bytes;
    uint32_t bytes = round_up(fixed + block->dynamic_bytes, sm->shared_unit);
    uint32_t most = BLOCK_SHARED_DEFAULT;
    *out_bytes = bytes;
    if (block->opt_in) {
        if (block->dynamic_bytes > block->dynamic_max_bytes)
            return 0;
        if (fixed + block->dynamic_max_bytes > BLOCK_SHARED_DEFAULT)
            most = sm->opt_in_bytes;
    }
    if (bytes > most + sm->reserved_bytes)
        return 0;
    uint32_t all = sm->shared_bytes;
    if (sm->capability >= CARVEOUT_SINCE && block->has_carveout) {
        all = fit_carveout(sm, (uint32_t)((uint64_t)block->carveout_percent * all / 100));
        if (all < bytes)
            all = fit_carveout(sm, bytes);
    }
    return bytes > 0 ? all / bytes : WEFT_OCCUPANCY_UNLIMITED;
}

static uint32_t limit_barriers(const weft_sm_limits *sm, const weft_thread_block *block)
{
    return sm->capability >= BARRIERS_SINCE && block->barriers > 0 ? sm->barriers / block->barriers
                                                                   : WEFT_OCCUPANCY_UNLIMITED;
}

static uint32_t limit_resources(const weft_sm_limits *sm, const weft_thread_block *block)
{
    return sm->capability >= VIRTUAL_SINCE && block->virtual_resources > 0
               ? VIRTUAL_RESOURCES / block->virtual_resources
               : WEFT_OCCUPANCY_UNLIMITED;
}

weft_err weft_occupancy_find(uint32_t capability, const weft_thread_block *block, weft_diag *diag,
                             weft_occupancy *out)
{
    const weft_sm_limits *sm = weft_sm_limits_find(capability);
    if (!sm)
        return weft_diag_error(diag, WEFT_ERR_UNSUP, (weft_where){0},
                               "occupancy: compute capability %u.%u is not known", capability / 10,
                               capability % 10);
    if (block->threads == 0 || block->threads > THREADS_MAX || block->regs > REGS_MAX ||
        block->static_bytes > BYTES_MAX || block->dynamic_bytes > BYTES_MAX ||
        block->dynamic_max_bytes > BYTES_MAX || block->carveout_percent > 100)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                               "occupancy: impossible block: %u threads, %u registers, %u + %u "
                               "bytes",
                               block->threads, block->regs, block->static_bytes,
                               block->dynamic_bytes);
    weft_occupancy o = {.limit_warps = limit_warps(sm, block), .limit_blocks = sm->blocks};
    o.limit_regs = limit_regs(sm, block, &o.block_regs);
    o.limit_shared = limit_shared(sm, block, &o.block_shared_bytes);
    o.limit_barriers = limit_barriers(sm, block);
    o.limit_resources = limit_resources(sm, block);
    const uint32_t limits[] = {o.limit_blocks, o.limit_regs,     o.limit_shared,
                               o.limit_warps,  o.limit_barriers, o.limit_resources};
    o.blocks = limits[0];
    for (size_t i = 1; i < sizeof limits / sizeof limits[0]; i++)
        o.blocks = limits[i] < o.blocks ? limits[i] : o.blocks;
    uint32_t warps = round_up(block->threads, WARP) / WARP;
    o.warps = o.blocks * warps;
    o.share = (double)o.warps * WARP / sm->threads;
    *out = o;
    return WEFT_ERR_OK;
}
