/* IEEE binary16, bfloat16 and TF32: conversions, round to nearest even. */
#ifndef WEFT_BASE_F16_H
#define WEFT_BASE_F16_H

#include <stddef.h>
#include <stdint.h>

float weft_f16_to_f32(uint16_t h);
uint16_t weft_f16_from_f32(float f);
float weft_bf16_to_f32(uint16_t h);
uint16_t weft_bf16_from_f32(float f);
/* The nearest number with 10 bits of mantissa (TF32), as matrix units round factors. */
float weft_tf32_from_f32(float f);
/* n elements; src and dst do not overlap. src may be at any address: the weights of a model lie in
 * its file as they come. */
void weft_f16_to_f32_array(const void *src, float *dst, size_t n);
void weft_bf16_to_f32_array(const void *src, float *dst, size_t n);
void weft_f16_from_f32_array(const void *src, uint16_t *dst, size_t n);
void weft_bf16_from_f32_array(const void *src, uint16_t *dst, size_t n);

#endif
