/* Gathers of whole rows, and casts between common element types. */
#include "base/f16.h"
#include "runtime/cpu/cpu_int.h"

#include <string.h>

/* -- Gather --------------------------------------------------------------------------------- */

typedef struct gather_kernel {
    uint32_t threads;
    int64_t rows, len, n; /* elements before the axis, along it, and indices */
    size_t bytes;         /* of one element along the axis */
    bool wide;            /* i64 indices */
    void *const *arg;
} gather_kernel;

static int64_t index_at(const gather_kernel *k, int64_t i)
{
    int64_t x = k->wide ? ((const int64_t *)k->arg[1])[i] : ((const int32_t *)k->arg[1])[i];
    return x < 0 ? x + k->len : x;
}

static void gather_rows(void *cx, int64_t begin, int64_t end)
{
    const gather_kernel *k = cx;
    const char *src = k->arg[0];
    char *dst = k->arg[2];
    for (int64_t i = begin; i < end; i++)
        memcpy(dst + (size_t)i * k->bytes,
               src + (size_t)(i / k->n * k->len + index_at(k, i % k->n)) * k->bytes, k->bytes);
}

static weft_err run_gather(void *state, void *const *arg)
{
    gather_kernel *k = state;
    k->arg = arg;
    for (int64_t i = 0; i < k->n; i++)
        if (index_at(k, i) < 0 || index_at(k, i) >= k->len)
            return WEFT_ERR_INPUT;
    weft_par_for(k->threads, k->rows * k->n, (double)k->bytes * 0.15, gather_rows, k);
    return WEFT_ERR_OK;
}

weft_err weft_cpu__prepare_gather(weft_prep *p)
{
    const weft_slot *x = &p->in[0], *idx = &p->in[1];
    int32_t rank = x->tensor.rank;
    int64_t axis = weft_attrs_int(p->attrs, WEFT_ATTR_AXIS, 0);
    if (axis < 0)
        axis += rank;
    if (axis < 0 || axis >= rank || x->layout || idx->layout || p->out[0].layout ||
        p->out[0].tensor.dtype != x->tensor.dtype ||
        (idx->tensor.dtype != WEFT_DTYPE_I64 && idx->tensor.dtype != WEFT_DTYPE_I32))
        return WEFT_ERR_OK;
    gather_kernel k = {.threads = weft_cpu__of(p)->threads,
                       .rows = weft_slot_count(x, 0, (int32_t)axis),
                       .len = x->tensor.dim[axis],
                       .n = weft_slot_numel(idx),
                       .bytes = (size_t)weft_slot_count(x, (int32_t)axis + 1, rank) *
                                weft_dtype_size(x->tensor.dtype),
                       .wide = idx->tensor.dtype == WEFT_DTYPE_I64};
    if (weft_tensor_bytes(&p->out[0].tensor) != (size_t)(k.rows * k.n) * k.bytes)
        return WEFT_ERR_OK;
    return weft_cpu__set_kernel(p, run_gather, &k, sizeof k, "gather");
}

/* -- Cast ----------------------------------------------------------------------------------- */

typedef struct cast_kernel {
    int64_t n;
    uint8_t from, to;
} cast_kernel;

#define CAST(from_type, to_type)       \
    for (int64_t i = 0; i < k->n; i++) \
    ((to_type *)arg[1])[i] = (to_type)((const from_type *)arg[0])[i]

/* Casts to f32 from types whose values f32 represents or rounds as expected, and from f32 to f16
 * and bf16. */
static weft_err run_cast(void *state, void *const *arg)
{
    const cast_kernel *k = state;
    switch (k->from) {
    case WEFT_DTYPE_F32:
        if (k->to == WEFT_DTYPE_F16)
            weft_f16_from_f32_array(arg[0], arg[1], (size_t)k->n);
        else
            weft_bf16_from_f32_array(arg[0], arg[1], (size_t)k->n);
        break;
    case WEFT_DTYPE_I64:
        CAST(int64_t, float);
        break;
    case WEFT_DTYPE_I32:
        CAST(int32_t, float);
        break;
    case WEFT_DTYPE_U8:
        CAST(uint8_t, float);
        break;
    case WEFT_DTYPE_BOOL:
        for (int64_t i = 0; i < k->n; i++)
            ((float *)arg[1])[i] = ((const uint8_t *)arg[0])[i] ? 1.0f : 0.0f;
        break;
    case WEFT_DTYPE_F16:
        weft_f16_to_f32_array(arg[0], arg[1], (size_t)k->n);
        break;
    default:
        weft_bf16_to_f32_array(arg[0], arg[1], (size_t)k->n);
        break;
    }
    return WEFT_ERR_OK;
}

weft_err weft_cpu__prepare_cast(weft_prep *p)
{
    uint8_t from = (uint8_t)p->in[0].tensor.dtype, to = (uint8_t)p->out[0].tensor.dtype;
    bool widens = to == WEFT_DTYPE_F32 &&
                  (from == WEFT_DTYPE_I64 || from == WEFT_DTYPE_I32 || from == WEFT_DTYPE_U8 ||
                   from == WEFT_DTYPE_BOOL || from == WEFT_DTYPE_F16 || from == WEFT_DTYPE_BF16);
    bool narrows = from == WEFT_DTYPE_F32 && (to == WEFT_DTYPE_F16 || to == WEFT_DTYPE_BF16);
    if (p->n_in != 1 || !(widens || narrows) || p->in[0].layout || p->out[0].layout ||
        !weft_slot_same_dims(&p->in[0], &p->out[0]))
        return WEFT_ERR_OK;
    const cast_kernel k = {.n = weft_slot_numel(&p->in[0]), .from = from, .to = to};
    return weft_cpu__set_kernel(p, run_cast, &k, sizeof k, "cast");
}
