/* Content hashes (XXH3 of xxHash): 64 bits for tables and checksums, 128 for identity of weights.
 */
#ifndef WEFT_BASE_HASH_H
#define WEFT_BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct weft_hash128 {
    uint64_t lo, hi;
} weft_hash128;

uint64_t weft_hash64(const void *bytes, size_t len, uint64_t seed);
weft_hash128 weft_hash_content(const void *bytes, size_t len, uint64_t seed);
/* Hashes of the rows, or of the columns, of a row-major matrix whose elements have `size` bytes and
 * need not be aligned: equal rows (columns) have equal hashes. `out` has an element for each. */
void weft_hash_rows(const void *data, size_t rows, size_t cols, size_t size, uint64_t *out);
void weft_hash_cols(const void *data, size_t rows, size_t cols, size_t size, uint64_t *out);
static inline bool weft_hash128_eq(weft_hash128 a, weft_hash128 b)
{
    return a.lo == b.lo && a.hi == b.hi;
}
static inline uint64_t weft_hash_mix(uint64_t h, uint64_t x)
{
    h ^= x + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
    h *= 0xff51afd7ed558ccdu;
    return h ^ (h >> 32);
}

#endif
