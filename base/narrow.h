/* Element types of 8 bits and less that are not int8, uint8 or bool: small floats and integers of 4
 * and 2 bits. In memory an element takes a byte; its value is in the low bits, and the others are
 * ignored. */
#ifndef WEFT_BASE_NARROW_H
#define WEFT_BASE_NARROW_H

#include "base/dtype.h"

/* Floats: formats of the OCP specifications of 8-bit and microscaling floats and of ONNX. Exact. */
double weft_narrow_to_f64(weft_dtype dtype, uint8_t code);
/* Nearest, ties to even, as ONNX's Cast: `saturate` clamps what is out of range, infinities too;
 * otherwise it becomes an infinity if the type has it, else NaN. A type without NaN stores NaN as
 * -0, and saturates in any case. F8E8M0 rounds away from zero (weft_e8m0_from_f64). */
uint8_t weft_narrow_from_f64(weft_dtype dtype, double x, bool saturate);

typedef enum weft_e8m0_round { WEFT_E8M0_UP, WEFT_E8M0_DOWN, WEFT_E8M0_NEAREST } weft_e8m0_round;

/* F8E8M0 has powers of two from 2^-127 to 2^127, and NaN, which also stands for negative numbers.
 * Of two powers equally near, NEAREST takes the larger. `saturate` clamps, 0 and infinity too;
 * otherwise what is out of range becomes NaN. */
uint8_t weft_e8m0_from_f64(double x, bool saturate, weft_e8m0_round round);

/* Integers: the value of the low bits, sign-extended for signed types; back, higher bits are lost.
 */
int64_t weft_narrow_to_int(weft_dtype dtype, uint8_t code);
uint8_t weft_narrow_from_int(weft_dtype dtype, int64_t x);

/* Bytes of n elements packed one behind the other, the first in the lowest bits. */
uint64_t weft_narrow_packed_bytes(weft_dtype dtype, uint64_t n);
/* Packed elements to one byte each. */
void weft_narrow_unpack(weft_dtype dtype, const uint8_t *packed, uint64_t n, uint8_t *out);

#endif
