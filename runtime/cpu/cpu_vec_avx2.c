/* Vector loops for x86-64 with AVX2. */
#if defined(__x86_64__)
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2", "fma")
#endif
#define VEC_LANES 8
#define VEC_TABLE weft_cpu_vec_avx2
#define VEC_NAME  "avx2"
#include "runtime/cpu/cpu_vec_body.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int weft_cpu_vec_avx2_unused;
#endif
