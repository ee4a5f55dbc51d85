/* Histograms with logarithmic bins (G. Tene, HdrHistogram): 2^bits bins an octave, so that the
 * middle of a bin is off by at most 1 / 2^(bits + 1). Values are times in ns. */
#ifndef WEFT_BASE_LOG_BINS_H
#define WEFT_BASE_LOG_BINS_H

#include <stdint.h>

enum {
    WEFT_LOG_TOP_BITS = 45, /* larger values count as 2^45 ns, 9.8 h */
    WEFT_LOG_FINE_BITS = 7, /* each bin narrower than 0.8 % */
    WEFT_LOG_COARSE_BITS = 5,
    WEFT_LOG_FINE_N = (WEFT_LOG_TOP_BITS - WEFT_LOG_FINE_BITS + 1) << WEFT_LOG_FINE_BITS,
    WEFT_LOG_COARSE_N = (WEFT_LOG_TOP_BITS - WEFT_LOG_COARSE_BITS + 1) << WEFT_LOG_COARSE_BITS,
};

/* The bin of a value; negative values count as 0. */
static inline uint32_t weft_log_bin(int64_t ns, int bits)
{
    uint64_t v = ns > 0 ? (uint64_t)ns : 0;
    if (v >> WEFT_LOG_TOP_BITS)
        v = ((uint64_t)1 << WEFT_LOG_TOP_BITS) - 1;
    int shift = v >> bits ? 63 - __builtin_clzll(v) - bits : 0;
    return ((uint32_t)shift << bits) + (uint32_t)(v >> shift);
}

static inline double weft_log_middle(uint32_t bin, int bits)
{
    uint32_t shift = bin >> bits;
    if (shift <= 1)
        return bin;
    shift--;
    uint64_t low = (uint64_t)(bin - (shift << bits)) << shift;
    return (double)low + (double)((uint64_t)1 << shift) / 2;
}

/* The number, from 1, of the value that is the nearest-rank percentile of n values. */
static inline uint64_t weft_log_rank(uint64_t n, double part)
{
    uint64_t rank = (uint64_t)(part * (double)n);
    return (double)rank < part * (double)n ? rank + 1 : rank;
}

#endif
