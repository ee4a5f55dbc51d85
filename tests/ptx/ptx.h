/* An interpreter of PTX, the assembly that NVRTC makes of kernels: runs a launch on the host and
 * checks what a GPU would let pass or what only some runs on it would show. It is written from the
 * PTX ISA. A launch faults on
 *
 *   - accesses outside of the allocations given, of shared memory or of parameters, and misaligned
 * ones;
 *   - reads of shared memory that no thread of the block has written;
 *   - two accesses of a byte of shared or global memory by different threads, one of them a write,
 *     without a barrier between them; in global memory also by different blocks;
 *   - reads and writes of the target of cp.async before the thread's wait_group and a barrier;
 *   - barriers, shuffles and matrix instructions that not all threads of the block (warp) reach;
 *   - instructions that it does not know.
 *
 * Races are found by epochs (the barriers passed so far), whatever the order of execution; blocks
 * and warps still run in a random order with bursts of random length, so that a wrong result of a
 * wrong order shows as well. Matrix instructions accumulate in f32 in the order of the depth,
 * hardware in another one: compare with tolerance.
 *
 * Known: what NVRTC makes of Weft's kernels for sm_75 to sm_89 (mma.sync, ldmatrix, cp.async,
 * shuffles). Not known: calls of functions, atomics, wgmma, TMA, mbarrier. */
#ifndef WEFT_TESTS_PTX_H
#define WEFT_TESTS_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ptx_module ptx_module;

/* NULL: the text cannot be read; `why` says why. */
ptx_module *ptx_load(const char *text, char *why, size_t why_size);
void ptx_unload(ptx_module *m);

typedef struct ptx_kernel_info {
    const char *name;
    unsigned threads; /* .maxntid; 1024 without */
    unsigned n_param;
} ptx_kernel_info;

size_t ptx_kernels(const ptx_module *m);
void ptx_kernel_at(const ptx_module *m, size_t i, ptx_kernel_info *out);
/* The bytes of a parameter. */
unsigned ptx_kernel_param(const ptx_module *m, size_t i, unsigned param);

/* Global memory that a launch may access. */
typedef struct ptx_memory {
    uintptr_t at;
    size_t bytes;
} ptx_memory;

typedef struct ptx_launch {
    const char *kernel;
    unsigned grid[3], threads;
    unsigned shared_bytes; /* dynamic */
    void **param;
    const ptx_memory *memory;
    size_t n_memory;
    uint64_t seed;
    bool skip_global_races; /* for speed: does not look for races in global memory */
} ptx_launch;

/* What launches have executed, summed over all of a module; by warps. */
typedef struct ptx_count {
    uint64_t instructions, mma, barriers;
    uint64_t shared_phases;    /* of accesses to shared memory: the least possible... */
    uint64_t shared_conflicts; /* ...and those that bank conflicts added */
} ptx_count;

/* NULL: success; else what is wrong, in memory of the module until its next launch. */
const char *ptx_run(ptx_module *m, const ptx_launch *launch);
ptx_count ptx_counted(const ptx_module *m);

#endif
