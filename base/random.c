/* xoshiro256**; random.h. */
#include "base/random.h"

static uint64_t rotate_left(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

void weft_rand_seed(weft_rand *rand, uint64_t seed)
{
    for (int i = 0; i < 4; i++)
        rand->s[i] = weft_rand_split(&seed);
}

uint64_t weft_rand_next(weft_rand *rand)
{
    uint64_t *s = rand->s;
    uint64_t result = rotate_left(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

double weft_rand_unit(weft_rand *rand)
{
    return ((double)(weft_rand_next(rand) >> 12) + 0.5) * 0x1p-52;
}
