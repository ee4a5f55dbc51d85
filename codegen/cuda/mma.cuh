/* Wrappers of the instructions of tensor cores, by which a warp loads fragments from shared memory and
 * multiplies them, and of asynchronous copies to shared memory.
 *
 *   mma(d, a, b)   d[16][8] += a[16][16] b[16][8] for f16 or bf16, summed in f32. Lane l holds, with
 *                  g = l / 4 and t = l % 4:
 *                    a[0]: row g,     columns 2t, 2t + 1     a[2]: row g,     columns 2t + 8, + 9
 *                    a[1]: row g + 8, columns 2t, 2t + 1     a[3]: row g + 8, columns 2t + 8, + 9
 *                    b[0]: rows 2t, 2t + 1 of column g       b[1]: rows 2t + 8, + 9 of column g
 *                    d[0], d[1]: row g, columns 2t, 2t + 1   d[2], d[3]: row g + 8, the same
 *   mma_tf32       d[16][8] += a[16][8] b[8][8] of f32 rounded to 10 bits of mantissa:
 *                    a[0]: row g, column t   a[1]: row g + 8   a[2], a[3]: the same, column t + 4
 *                    b[0]: row t of column g                   b[1]: row t + 4
 *   load_matrices  four 8 x 8 matrices of 16-bit elements; lane l gives the address of row l % 8 of
 *                  matrix l / 8 (16 bytes) and gets, of each, row g, columns 2t, 2t + 1; transposed:
 *                  rows 2t, 2t + 1 of column g
 *   copy_async     copies 16 bytes, of which the first `given` are read and the others are zero;
 *                  visible after copy_wait and a barrier
 *
 * (PTX ISA, mma.m16n8k16, mma.m16n8k8, ldmatrix, cp.async.) Before sm_80 the instructions
 * have half the depth, bf16 (has_mma) and TF32 (has_tf32) are not supported, and copies are
 * synchronous. */
#ifndef WEFT_MMA_CUH
#define WEFT_MMA_CUH

#include "prelude.cuh"

/* Whether the tensor cores of this architecture support T. */
template <class T> struct has_mma {
    static const bool yes = false;
};
template <> struct has_mma<f16> {
    static const bool yes = true;
};
template <> struct has_mma<bf16> {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
    static const bool yes = false;
#else
    static const bool yes = true;
#endif
};

struct has_tf32 {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
    static const bool yes = false;
#else
    static const bool yes = true;
#endif
};

#ifdef __CUDA_ARCH__

#if __CUDA_ARCH__ >= 800
__device__ inline u32 to_tf32(f32 x)
{
    u32 y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return y;
}

__device__ inline void mma_tf32(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2])
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

__device__ inline u32 shared_address(const void *p)
{
    return (u32)__cvta_generic_to_shared(p);
}

__device__ inline void mma(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2], f16)
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
#pragma unroll
    for (int i = 0; i < 2; i++)
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
            "{%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[2 * i]), "r"(a[2 * i + 1]), "r"(b[i]));
#endif
}

__device__ inline void mma(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2], bf16)
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

template <bool TRANSPOSED> __device__ inline void load_matrices(u32 (&r)[4], const void *row)
{
    if (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(shared_address(row))
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(shared_address(row))
                     : "memory");
}

#if __CUDA_ARCH__ >= 800
__device__ inline void copy_async(void *to, const void *from, int given)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared_address(to)), "l"(__cvta_generic_to_global(from)), "r"(given)
                 : "memory");
}

__device__ inline void copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int PENDING> __device__ inline void copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
#else
__device__ inline void copy_async(void *to, const void *from, int given)
{
    pack<u32, 4> p = {{0, 0, 0, 0}};
    if (given == 16) {
        p = *(const pack<u32, 4> *)from;
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (2 * i < given)
                p.at[i / 2] |= (u32)((const u16 *)from)[i] << (i % 2 * 16);
    }
    *(pack<u32, 4> *)to = p;
}

__device__ inline void copy_commit() {}

template <int PENDING> __device__ inline void copy_wait() {}
#endif

#else /* the host */

struct half_value {
    static f32 of(u16 bits)
    {
        return half_to_f32(bits);
    }
};
struct bfloat_value {
    static f32 of(u16 bits)
    {
        return __int_as_float((int)((u32)bits << 16));
    }
};

inline void mma(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2], f16)
{
    weft_emu::mma16<half_value>(d, a, b);
}

inline void mma(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2], bf16)
{
    weft_emu::mma16<bfloat_value>(d, a, b);
}

/* Rounds to nearest, halves away from zero. */
inline u32 to_tf32(f32 x)
{
    u32 bits = (u32)__float_as_int(x);
    return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & 0xffffe000u;
}

inline void mma_tf32(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2])
{
    weft_emu::mma8(d, a, b);
}

template <bool TRANSPOSED> inline void load_matrices(u32 (&r)[4], const void *row)
{
    weft_emu::ldmatrix4(r, row, TRANSPOSED);
}

inline void copy_async(void *to, const void *from, int given)
{
    weft_emu::cp_async(to, from, 16, (unsigned)given);
}

inline void copy_commit()
{
    weft_emu::cp_commit();
}

template <int PENDING> inline void copy_wait()
{
    weft_emu::cp_wait(PENDING);
}

#endif

/* Packs two neighbours of a fragment. */
template <class T> __device__ inline u32 pair_of(f32 lo, f32 hi)
{
    return (u32)convert<T>(lo).bits | (u32)convert<T>(hi).bits << 16;
}

#endif
