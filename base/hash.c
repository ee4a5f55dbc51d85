/* Content hashes: the two entry points of XXH3 that Weft uses. */
#include "base/hash.h"

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
