/* Vector loops for any processor, and the choice of the instruction set. */
#define VEC_LANES 4
#define VEC_TABLE weft_cpu_vec_base
#define VEC_NAME  "base"
#include "runtime/cpu/cpu_vec_body.h"

const weft_cpu_vec *weft_cpu__vec(uint32_t lanes)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (lanes >= 16 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return &weft_cpu_vec_avx512;
    if (lanes >= 8 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return &weft_cpu_vec_avx2;
#else
    (void)lanes;
#endif
    return &weft_cpu_vec_base;
}

bool weft_cpu__has_bytes(const weft_cpu_vec *vec)
{
#if defined(__x86_64__)
    return vec->nbits_bytes && __builtin_cpu_supports("avx512vnni");
#else
    (void)vec;
    return false;
#endif
}
