/* Weights of 2, 4 or 8 bits in blocks: operands of matmul_nbits.
 *
 *   b       u8 [n, blocks, block * bits / 8], low bits first; the last block of a row is padded
 *   scales  f32 [n, blocks]
 *   zeros   f32 [n, blocks]; omitted: 2^(bits - 1)
 *
 * Element k of row n is (q - zero) * scale of its block k / block. Attribute accuracy_level 4
 * allows kernels to round x to 8 bits, with a scale for each block of a row (max |x| / 127). */
#ifndef WEFT_OPS_NBITS_H
#define WEFT_OPS_NBITS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct weft_nbits {
    int64_t k, n, block, blocks, block_bytes;
    int bits;
} weft_nbits;

/* Sizes from attributes; false: out of range. */
bool weft_nbits_make(int64_t k, int64_t n, int64_t bits, int64_t block, weft_nbits *out);

/* The unsigned numbers of `count` elements that begin with a byte. */
static inline void weft_nbits_split(uint8_t *q, const uint8_t *b, int bits, int64_t count)
{
    if (bits == 8) {
        for (int64_t i = 0; i < count; i++)
            q[i] = b[i];
    } else if (bits == 4) {
        for (int64_t i = 0; i < count / 2; i++) {
            q[2 * i] = b[i] & 15;
            q[2 * i + 1] = b[i] >> 4;
        }
        if (count & 1)
            q[count - 1] = b[count / 2] & 15;
    } else {
        for (int64_t i = 0; i < count; i++)
            q[i] = (uint8_t)(b[i / 4] >> (i % 4 * 2) & 3);
    }
}

#endif
