/* Content hashes by XXH3. */
#include "base/hash.h"

#include <string.h>
#include <xxhash.h>

uint64_t weft_hash64(const void *bytes, size_t len, uint64_t seed)
{
    return XXH3_64bits_withSeed(bytes, len, seed);
}

weft_hash128 weft_hash_content(const void *bytes, size_t len, uint64_t seed)
{
    XXH128_hash_t h = XXH3_128bits_withSeed(bytes, len, seed);
    weft_hash128 out = {h.low64, h.high64};
    return out;
}

void weft_hash_rows(const void *data, size_t rows, size_t cols, size_t size, uint64_t *out)
{
    const uint8_t *at = data;
    for (size_t r = 0; r < rows; r++)
        out[r] = weft_hash64(at + r * cols * size, cols * size, 0);
}

/* An element as a number: its bytes, or the hash of more than eight. */
static inline uint64_t read_element(const uint8_t *at, size_t size)
{
    uint64_t x = 0;
    if (size > sizeof x)
        return weft_hash64(at, size, 0);
    memcpy(&x, at, size);
    return x;
}

static inline void mix_cols(const uint8_t *at, size_t rows, size_t cols, size_t size, uint64_t *out)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++, at += size)
            out[c] = weft_hash_mix(out[c], read_element(at, size));
}

/* Row by row, in the order of memory. f32 has a loop of its own, whose copy is one load. */
void weft_hash_cols(const void *data, size_t rows, size_t cols, size_t size, uint64_t *out)
{
    memset(out, 0, cols * sizeof *out);
    if (size == sizeof(float))
        mix_cols(data, rows, cols, sizeof(float), out);
    else
        mix_cols(data, rows, cols, size, out);
}
