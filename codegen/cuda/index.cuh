/* Reads and writes at computed indices, and elements that depend on their own position. */
#ifndef WEFT_INDEX_CUH
#define WEFT_INDEX_CUH
#include "math.cuh"

/* Resolves index i in a dim of `limit` elements; negative indices count from the end. false: out of
 * range. Because a launch cannot fail, reads then give `absent` and writes are skipped. */
__device__ inline bool fix_index(i64 &i, i64 limit)
{
    i += i < 0 ? limit : 0;
    return i >= 0 && i < limit;
}

/* NaN for float types, else 0. */
template <class T> __device__ inline T absent()
{
    return T{};
}
template <> __device__ inline f32 absent<f32>()
{
    return __int_as_float(0x7fc00000);
}
template <> __device__ inline f64 absent<f64>()
{
    return (f64)__int_as_float(0x7fc00000);
}
template <> __device__ inline f16 absent<f16>()
{
    return f16{0x7e00};
}
template <> __device__ inline bf16 absent<bf16>()
{
    return bf16{0x7fc0};
}

/* Reductions of scatters: combine the stored element and the update. */
struct scatter_none {
    template <class T> __device__ static T of(T, T update)
    {
        return update;
    }
};

#define WEFT_SCATTER(name)                                             \
    template <class C> struct scatter_##name {                         \
        template <class T> __device__ static T of(T old, T update)     \
        {                                                              \
            return convert<T>(math_##name(convert<C>(old), convert<C>(update))); \
        }                                                              \
    };
WEFT_SCATTER(add)
WEFT_SCATTER(mul)
WEFT_SCATTER(min)
WEFT_SCATTER(max)

/* Offset of the slice at DEPTH indices in dims of sizes `limit` and strides `stride`. */
template <int DEPTH, class I>
__device__ inline bool slice_at(const I *index, const i64 (&limit)[DEPTH], const i64 (&stride)[DEPTH],
                                size_t &out)
{
    size_t at = 0;
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
        i64 i = index[k];
        if (!fix_index(i, limit[k]))
            return false;
        at += (size_t)(i * stride[k]);
    }
    out = at;
    return true;
}

/* Whether a comes before b in the order of top_k; NaN is larger than every number. */
template <bool LARGEST, class C> __device__ inline bool is_before(C a, C b)
{
    bool above = a > b || (a != a && b == b), below = a < b || (b != b && a == a);
    return LARGEST ? above : below;
}

/* Writes element i of a line of `len` elements with stride `step` to its rank, if that is below `k`. The
 * rank is the number of elements that precede it; ties keep their order. */
template <bool LARGEST, class C, class T>
__device__ inline void top_k(const T *line, int len, size_t step, int i, int k, T *value, i64 *index)
{
    const C own = convert<C>(line[i * step]);
    int place = 0;
    for (int j = 0; j < len && place < k; j++) {
        const C other = convert<C>(line[j * step]);
        place += is_before<LARGEST>(other, own) || (j < i && !is_before<LARGEST>(own, other));
    }
    if (place < k && value)
        value[place * step] = line[i * step];
    if (place < k && index)
        index[place * step] = i;
}

#endif
