/* xoshiro256** and Philox; random.h. */
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

void weft_rand_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    enum { ROUNDS = 10 };
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]}, k0 = key[0], k1 = key[1];
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t a = (uint64_t)0xd2511f53u * c[0], b = (uint64_t)0xcd9e8d57u * c[2];
        uint32_t x = (uint32_t)(b >> 32) ^ c[1] ^ k0, y = (uint32_t)(a >> 32) ^ c[3] ^ k1;
        c[0] = x;
        c[1] = (uint32_t)b;
        c[2] = y;
        c[3] = (uint32_t)a;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    for (int i = 0; i < 4; i++)
        out[i] = c[i];
}
