/* A dense, row-major view of tensor data with concrete dimensions. Owns nothing. */
#ifndef WEFT_BASE_TENSOR_H
#define WEFT_BASE_TENSOR_H

#include "base/dtype.h"
#include "base/err.h"

enum { WEFT_RANK_MAX = 8 };
/* Elements of one tensor: what fits a signed 48-bit count, far above any memory. */
#define WEFT_NUMEL_MAX ((int64_t)1 << 47)

typedef struct weft_tensor {
    weft_dtype dtype;
    int32_t rank; /* 0: scalar */
    int64_t dim[WEFT_RANK_MAX];
    void *data; /* may be NULL when there are no elements */
} weft_tensor;

/* Product of the dimensions; -1 when one is negative or the product is over WEFT_NUMEL_MAX. */
int64_t weft_numel(const int64_t *dim, int32_t rank);
/* Both below: a valid tensor is assumed (numel >= 0). */
static inline int64_t weft_tensor_numel(const weft_tensor *t)
{
    return weft_numel(t->dim, t->rank);
}
static inline size_t weft_tensor_bytes(const weft_tensor *t)
{
    return (size_t)weft_numel(t->dim, t->rank) * weft_dtype_size(t->dtype);
}

/* Element i (row-major) as double / int64; conversion saturates for integers, and NaN gives 0.
 * Reading takes data at any address, writing wants it aligned for its type. */
double weft_tensor_get_f64(const weft_tensor *t, int64_t i);
int64_t weft_tensor_get_i64(const weft_tensor *t, int64_t i);
void weft_tensor_set_f64(const weft_tensor *t, int64_t i, double x);
void weft_tensor_set_i64(const weft_tensor *t, int64_t i, int64_t x);

#endif
