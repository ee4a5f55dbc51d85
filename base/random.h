/* Pseudo-random generators. A seed gives the same sequence on every machine and in every version:
 * generated weights, simulations and searches are compared byte by byte. Not for secrets. */
#ifndef WEFT_BASE_RANDOM_H
#define WEFT_BASE_RANDOM_H

#include <stdint.h>

/* splitmix64 (G. Steele, D. Lea, C. Flood, Fast splittable pseudorandom number generators, OOPSLA
 * 2014): a state of one word, any number. */
static inline uint64_t weft_rand_split(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* A linear congruential generator modulo 2^64 (D. Knuth, The Art of Computer Programming 2, 3.3.4;
 * constants of MMIX). The low bits have short periods: use the high ones. Serves tests, and
 * searches whose results are recorded; other code takes weft_rand_split. */
static inline uint64_t weft_rand_lcg(uint64_t *state)
{
    return *state = *state * 6364136223846793005u + 1442695040888963407u;
}

/* xoshiro256** 1.0 (D. Blackman, S. Vigna, Scrambled linear pseudorandom number generators, ACM
 * TOMS 47(4), 2021; public domain), seeded by splitmix64: for long sequences. */
typedef struct weft_rand {
    uint64_t s[4];
} weft_rand;

void weft_rand_seed(weft_rand *rand, uint64_t seed);
uint64_t weft_rand_next(weft_rand *rand);
/* Uniform in (0, 1). */
double weft_rand_unit(weft_rand *rand);

/* Philox4x32-10 (J. Salmon, M. Moraes, R. Dror, D. Shaw, Parallel random numbers: as easy as 1, 2,
 * 3, SC'11): counter-based, so that element i of a stream needs none before it. */
void weft_rand_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

#endif
