/* What a streaming multiprocessor (SM) of each compute capability holds at once: rows of
 * sm_limits.def. Every GPU architecture that Weft compiles for has a row. */
#ifndef WEFT_BASE_SM_LIMITS_H
#define WEFT_BASE_SM_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct weft_sm_limits {
    uint32_t capability; /* 10 * major + minor */
    bool compiled;       /* "sm_<capability>" is a target of the compiler */
    uint32_t threads, blocks, regs;
    uint32_t parts;        /* sub-partitions, which share out the registers */
    uint32_t check_parts;  /* as counted when a launch is checked; 0: parts */
    uint32_t thread_regs;  /* most of one thread */
    uint32_t shared_bytes; /* shared memory at the largest split */
    uint32_t opt_in_bytes; /* most of one block, which has to ask for more than 48 KiB */
    uint32_t reserved_bytes, shared_unit;
    uint32_t barriers;      /* 0: not counted */
    uint32_t carveouts[12]; /* splits, KiB of shared memory, rising */
    const char *source;
} weft_sm_limits;

const weft_sm_limits *weft_sm_limits_find(uint32_t capability); /* NULL when unknown */
/* By the name of the architecture, "sm_90", of `len` bytes; NULL when unknown. */
const weft_sm_limits *weft_sm_limits_named(const char *arch, size_t len);
const weft_sm_limits *weft_sm_limits_at(size_t i); /* NULL behind the last */

#endif
