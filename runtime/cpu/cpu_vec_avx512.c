/* Vector loops for x86-64 with AVX-512. */
#if defined(__x86_64__)
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx2", "fma")
#endif
#define VEC_LANES 16
#define VEC_TABLE weft_cpu_vec_avx512
#define VEC_NAME  "avx512"
#include "runtime/cpu/cpu_vec_body.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int weft_cpu_vec_avx512_unused;
#endif
