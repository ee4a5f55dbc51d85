/* Pseudo-random numbers of tests: equal seeds give equal cases on every machine. */
#ifndef WEFT_TESTS_RAND_H
#define WEFT_TESTS_RAND_H

#include "base/random.h"

#include <math.h>
#include <stdint.h>

/* Random cases of a test: fewer under AddressSanitizer, which makes them several times slower. */
#ifdef __SANITIZE_ADDRESS__
#define RAND_ROUNDS(n) ((n) / 8 + 1)
#else
#define RAND_ROUNDS(n) (n)
#endif

/* 31 uniform bits. */
static inline uint64_t rand_next(uint64_t *seed)
{
    return weft_rand_lcg(seed) >> 33;
}

/* Uniform in 0 .. n - 1; n in 1 .. 2^31. */
static inline uint32_t rand_below(uint64_t *seed, uint32_t n)
{
    return (uint32_t)(rand_next(seed) % n);
}

/* Uniform in [0, 1), in steps of 2^-24. */
static inline double rand_unit(uint64_t *seed)
{
    (void)rand_next(seed);
    return (double)(*seed >> 40) / (double)(1 << 24);
}

/* Uniform in [-1, 1): elements of tensors. */
static inline float rand_signed(uint64_t *seed)
{
    return (float)rand_next(seed) / (float)(1u << 30) - 1;
}

/* A whole number, uniform on a logarithmic scale between lo and hi: sizes of problems. */
static inline double rand_size(uint64_t *seed, double lo, double hi)
{
    return floor(lo * pow(hi / lo, rand_unit(seed)));
}

#endif
