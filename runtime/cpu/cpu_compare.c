/* Comparisons with broadcasting. Dims that are contiguous in both operands are merged; the
 * innermost loop runs over vectors (weft_cpu_vec.compare). */
#include "runtime/cpu/cpu_int.h"

typedef struct compare_kernel {
    weft_vec_compare fn;
    uint32_t threads, n_in, x, z; /* operands of fn */
    size_t size;                  /* of an element of an operand */
    int32_t rank;
    int64_t dim[WEFT_RANK_MAX], stride[2][WEFT_RANK_MAX]; /* of x and z; inner ones are 0 or 1 */
    void *const *arg;
} compare_kernel;

static void compare_rows(void *cx, int64_t begin, int64_t end)
{
    const compare_kernel *k = cx;
    int32_t last = k->rank - 1;
    int64_t n = k->dim[last];
    for (int64_t row = begin; row < end; row++) {
        int64_t rest = row, at[2] = {0, 0};
        for (int32_t d = last; d-- > 0; rest /= k->dim[d])
            for (int i = 0; i < 2; i++)
                at[i] += rest % k->dim[d] * k->stride[i][d];
        k->fn((uint8_t *)k->arg[k->n_in] + row * n,
              (const char *)k->arg[k->x] + at[0] * (int64_t)k->size, k->stride[0][last] != 0,
              (const char *)k->arg[k->z] + at[1] * (int64_t)k->size, k->stride[1][last] != 0,
              (size_t)n);
    }
}

static weft_err run_compare(void *state, void *const *arg)
{
    compare_kernel *k = state;
    int64_t rows = 1;
    for (int32_t d = 0; d + 1 < k->rank; d++)
        rows *= k->dim[d];
    k->arg = arg;
    weft_par_for(k->threads, rows, (double)k->dim[k->rank - 1] * 0.1, compare_rows, k);
    return WEFT_ERR_OK;
}

static bool find_type(weft_dtype dtype, weft_vec_type *out)
{
    switch (dtype) {
    case WEFT_DTYPE_F32:
        *out = WEFT_VEC_F32;
        return true;
    case WEFT_DTYPE_I32:
        *out = WEFT_VEC_I32;
        return true;
    case WEFT_DTYPE_I64:
        *out = WEFT_VEC_I64;
        return true;
    case WEFT_DTYPE_U8:
    case WEFT_DTYPE_BOOL:
        *out = WEFT_VEC_U8;
        return true;
    default:
        return false;
    }
}

/* Strides of an operand along the dims of the result; 0 where it is broadcast. */
static bool read_strides(const weft_tensor *y, const weft_tensor *x, int64_t *stride)
{
    int64_t at = 1;
    for (int32_t d = y->rank; d-- > 0;) {
        int32_t from = d - (y->rank - x->rank);
        int64_t dim = from >= 0 ? x->dim[from] : 1;
        if (dim != 1 && dim != y->dim[d])
            return false;
        stride[d] = dim == 1 ? 0 : at;
        at *= dim;
    }
    return x->rank <= y->rank;
}

/* Merges neighbouring dims, and drops those of one element. */
static void merge_dims(compare_kernel *k, const weft_tensor *y, int64_t stride[2][WEFT_RANK_MAX])
{
    int32_t n = 0;
    for (int32_t d = 0; d < y->rank; d++) {
        if (y->dim[d] == 1)
            continue;
        bool merge = n > 0;
        for (int i = 0; i < 2; i++)
            merge = merge && k->stride[i][n - 1] == stride[i][d] * y->dim[d];
        n -= merge;
        k->dim[n] = merge ? k->dim[n] * y->dim[d] : y->dim[d];
        for (int i = 0; i < 2; i++)
            k->stride[i][n] = stride[i][d];
        n++;
    }
    if (n == 0)
        k->dim[n++] = 1;
    k->rank = n;
}

weft_err weft_cpu__prepare_compare(weft_prep *p)
{
    const weft_slot *x = &p->in[0], *z = &p->in[1], *y = &p->out[0];
    bool swapped = p->op == WEFT_OP_GREATER || p->op == WEFT_OP_GREATER_OR_EQUAL;
    bool or_equal = p->op == WEFT_OP_LESS_OR_EQUAL || p->op == WEFT_OP_GREATER_OR_EQUAL;
    weft_vec_order order = p->op == WEFT_OP_EQUAL ? WEFT_VEC_EQUAL
                           : or_equal             ? WEFT_VEC_LESS_OR_EQUAL
                                                  : WEFT_VEC_LESS;
    int64_t stride[2][WEFT_RANK_MAX];
    weft_vec_type type;
    compare_kernel k = {.threads = weft_cpu__of(p)->threads, .n_in = p->n_in};
    if (p->n_in != 2 || !x->present || !z->present || x->layout != WEFT_LAYOUT_PLAIN ||
        z->layout != WEFT_LAYOUT_PLAIN || !weft_slot_is(y, WEFT_DTYPE_BOOL, WEFT_LAYOUT_PLAIN) ||
        x->tensor.dtype != z->tensor.dtype || !find_type((weft_dtype)x->tensor.dtype, &type) ||
        !read_strides(&y->tensor, &p->in[swapped].tensor, stride[0]) ||
        !read_strides(&y->tensor, &p->in[!swapped].tensor, stride[1]))
        return WEFT_ERR_OK;
    k.x = swapped;
    k.z = !swapped;
    k.size = weft_dtype_size((weft_dtype)x->tensor.dtype);
    k.fn = weft_cpu__of(p)->vec->compare[type][order];
    merge_dims(&k, &y->tensor, stride);
    return weft_cpu__set_kernel(p, run_compare, &k, sizeof k, "compare");
}
