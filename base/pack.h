/* Offline memory planning: offsets in one arena for blocks, each alive during an interval of time
 * (launches of a program, numbered from 0).
 *
 * Greedy by size, best fit: blocks in descending size (then earlier first launch) go to the
 * smallest gap between those already placed whose lifetimes overlap (Pisarchyk and Lee, "Efficient
 * Memory Management for Deep Neural Net Inference", 2020). O(n log n + pairs of blocks that live at
 * the same time), bounded: beyond some seconds of work the blocks left share no memory.
 * Deterministic. Launch numbers are below 2^30. */
#ifndef WEFT_BASE_PACK_H
#define WEFT_BASE_PACK_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum { WEFT_ARENA_ALIGN = 64 }; /* of the buffers of a model */

typedef struct weft_block {
    uint64_t size;        /* bytes; 0 takes no room */
    uint32_t first, last; /* launches, inclusive */
    uint64_t offset;      /* out: multiple of `align` */
} weft_block;

/* NOMEM when out of memory or the total overflows; BUG when a block ends before it begins. */
WEFT_MUST_USE weft_err weft_pack_blocks(weft_block *block, size_t n, uint64_t align,
                                        uint64_t *out_total);
/* The same around blocks with given offsets; the total includes them. */
WEFT_MUST_USE weft_err weft_pack_around(const weft_block *fixed, size_t n_fixed, weft_block *block,
                                        size_t n, uint64_t align, uint64_t *out_total);

#endif
