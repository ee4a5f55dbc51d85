/* Helpers of the operators that move elements. */
#include "ops/data_int.h"

#include <string.h>

/* -- Inference ------------------------------------------------------------------------------ */

weft_given weft_param__dims(weft_infer_ctx *cx, uint32_t in, weft_attr_key key,
                            const weft_dim **out, uint32_t *out_n)
{
    *out = NULL;
    *out_n = 0;
    if (weft_infer_param(cx, in, key, out, out_n))
        return WEFT_GIVEN_KNOWN;
    return weft_infer__has(cx, in) ? WEFT_GIVEN_LATER : WEFT_GIVEN_NOT;
}

weft_given weft_param__ints(weft_infer_ctx *cx, uint32_t in, weft_attr_key key, const int64_t **out,
                            uint32_t *out_n)
{
    weft_given given = weft_param__dims(cx, in, key, out, out_n);
    if (given != WEFT_GIVEN_KNOWN)
        return given;
    for (uint32_t i = 0; i < *out_n; i++)
        if (!weft_dim_is_const((*out)[i]))
            return WEFT_GIVEN_LATER;
    return WEFT_GIVEN_KNOWN;
}

weft_given weft_param__floats(weft_infer_ctx *cx, uint32_t in, weft_attr_key key,
                              const double **out, uint32_t *out_n)
{
    *out = NULL;
    *out_n = 0;
    const weft_attr *attr = weft_attrs_find(cx->attrs, key);
    if (attr && attr->kind == WEFT_KIND_FLOATS) {
        *out = attr->u.floats;
        *out_n = attr->n;
        return WEFT_GIVEN_KNOWN;
    }
    if (attr && attr->kind == WEFT_KIND_FLOAT) {
        double *one = weft_arena_alloc(cx->arena, sizeof *one);
        *one = attr->u.f;
        *out = one;
        *out_n = 1;
        return WEFT_GIVEN_KNOWN;
    }
    if (!weft_infer__has(cx, in))
        return WEFT_GIVEN_NOT;
    weft_tensor t;
    if (!weft_infer__tensor(cx, in, &t))
        return WEFT_GIVEN_LATER;
    int64_t n = weft_tensor_numel(&t);
    if (n > WEFT_CONTENT_MAX)
        return WEFT_GIVEN_LATER;
    double *list = weft_arena_array(cx->arena, (size_t)n, sizeof *list);
    weft_eval__load_f64(&t, 0, 1, n, list);
    *out = list;
    *out_n = (uint32_t)n;
    return WEFT_GIVEN_KNOWN;
}

/* Concrete dims and their number of elements, at most WEFT_CONTENT_MAX. */
static bool small_dims(const weft_ttype *type, weft_tensor *out, int64_t *out_numel)
{
    *out = (weft_tensor){.dtype = WEFT_DTYPE_I64, .rank = type->rank};
    for (uint32_t d = 0; d < type->rank; d++) {
        if (!weft_dim_is_const(type->dim[d]) || type->dim[d] > WEFT_CONTENT_MAX)
            return false;
        out->dim[d] = type->dim[d];
    }
    *out_numel = weft_numel(out->dim, out->rank);
    return *out_numel >= 0 && *out_numel <= WEFT_CONTENT_MAX;
}

static bool content_operand(weft_infer_ctx *cx, uint32_t i, bool moved, weft_tensor *out)
{
    const weft_dim *content;
    uint32_t n;
    int64_t numel;
    if (!small_dims(&cx->in[i].type, out, &numel) || !weft_infer__content(cx, i, &content, &n) ||
        n != numel)
        return false;
    for (uint32_t k = 0; k < n && !moved; k++)
        if (!weft_dim_is_const(content[k]))
            return false;
    weft_dim *copy = weft_arena_array(cx->arena, n, sizeof *copy);
    if (n > 0)
        memcpy(copy, content, n * sizeof *copy);
    out->data = copy;
    return true;
}

void weft_infer__move_content(weft_infer_ctx *cx, uint32_t moved)
{
    if (!cx->out_content || !cx->op->eval || cx->n_in == 0)
        return;
    weft_dtype dtype = cx->in[0].present ? (weft_dtype)cx->in[0].type.dtype : WEFT_DTYPE_NONE;
    if (!weft_dtype_is_int(dtype) && dtype != WEFT_DTYPE_BOOL)
        return;
    weft_tensor *out = weft_arena_array(cx->arena, cx->n_out, sizeof *out);
    for (uint32_t o = 0; o < cx->n_out; o++) {
        int64_t numel;
        if (!small_dims(&cx->out[o], &out[o], &numel))
            return;
        /* eval takes NULL for a result that is not wanted. */
        out[o].data = weft_arena_array(cx->arena, (size_t)numel + 1, sizeof(weft_dim));
    }
    weft_tensor *in = weft_arena_array(cx->arena, cx->n_in, sizeof *in);
    const weft_tensor **at = weft_arena_array(cx->arena, cx->n_in, sizeof *at);
    for (uint32_t i = 0; i < cx->n_in; i++) {
        if (!cx->in[i].present)
            continue;
        if (!content_operand(cx, i, i < 32 ? moved >> i & 1 : moved == UINT32_MAX, &in[i]))
            return;
        at[i] = &in[i];
    }
    weft_eval_ctx eval = {.op = cx->op,
                          .attrs = cx->attrs,
                          .in = at,
                          .n_in = cx->n_in,
                          .out = out,
                          .n_out = cx->n_out,
                          .scratch = cx->arena};
    if (cx->op->eval(&eval) != WEFT_ERR_OK)
        return;
    for (uint32_t o = 0; o < cx->n_out; o++)
        cx->out_content[o] = out[o].data;
}

void weft_infer__fresh(weft_infer_ctx *cx, weft_ttype *out)
{
    for (uint32_t d = 0; d < out->rank; d++)
        out->dim[d] = weft_dim_fresh(cx->pool);
}

weft_err weft_infer__unify(weft_infer_ctx *cx, weft_dim a, weft_dim b, const char *what,
                           weft_dim *out)
{
    WEFT_TRY(weft_infer__agree(cx, a, b, what));
    if (weft_dim_is_const(a) || a == b)
        *out = a;
    else if (weft_dim_is_const(b))
        *out = b;
    else
        *out = weft_dim_is_data(cx->pool, a) ? b : a;
    return WEFT_ERR_OK;
}

weft_err weft_infer__axes(weft_infer_ctx *cx, const int64_t *axes, uint32_t n, uint32_t rank,
                          uint32_t *out_mask)
{
    uint32_t mask = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t axis;
        WEFT_TRY(weft_infer__axis(cx, axes[i], rank, &axis));
        if (mask >> axis & 1)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "axis %u is given twice", axis);
        mask |= 1u << axis;
    }
    *out_mask = mask;
    return WEFT_ERR_OK;
}

weft_dim weft_infer__not_negative(weft_dimpool *pool, weft_dim d)
{
    int64_t lo, hi;
    weft_dim_bounds(pool, d, &lo, &hi);
    return lo >= 0 ? d : weft_dim_max(pool, d, 0);
}

weft_dim weft_infer__ceil_div(weft_dimpool *pool, weft_dim a, weft_dim b)
{
    weft_dim up = weft_dim_add(pool, a, weft_dim_sub(pool, b, 1));
    weft_dim exact;
    if (weft_dim_div_exact(pool, a, b, &exact))
        return exact;
    return weft_dim_floordiv(pool, up, b);
}

/* -- Evaluation ----------------------------------------------------------------------------- */

weft_err weft_eval__check_dims(weft_eval_ctx *cx, uint32_t out, const int64_t *dim, int32_t rank)
{
    const weft_tensor *t = &cx->out[out];
    bool same = t->rank == rank;
    for (int32_t d = 0; same && d < rank; d++)
        same = t->dim[d] == dim[d];
    if (same)
        return WEFT_ERR_OK;
    return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the dimensions of result %u do not follow from the data",
                     out);
}

void weft_walk__push(weft_walk *w, int64_t dim, int64_t dst, int64_t src)
{
    w->dim[w->rank] = dim;
    w->dst[w->rank] = dst;
    w->src[w->rank++] = src;
}

/* Drops dims of size 1, and fuses neighbouring dims that are contiguous on both sides. false: there
 * are no elements. */
static bool fuse_dims(const weft_walk *w, weft_walk *out)
{
    out->rank = 0;
    for (int32_t d = 0; d < w->rank; d++) {
        if (w->dim[d] <= 0)
            return false;
        if (w->dim[d] == 1)
            continue;
        int32_t last = out->rank - 1;
        if (last >= 0 && out->dst[last] == w->dst[d] * w->dim[d] &&
            out->src[last] == w->src[d] * w->dim[d]) {
            out->dim[last] *= w->dim[d];
            out->dst[last] = w->dst[d];
            out->src[last] = w->src[d];
        } else {
            weft_walk__push(out, w->dim[d], w->dst[d], w->src[d]);
        }
    }
    return true;
}

/* Copies a plane of strided elements, which may be unaligned (a mapped file). Blocking keeps both
 * sides of a transposition in the cache. */
#define COPY_PLANE(T)                                                                             \
    static void copy_plane_##T(char *dst, const char *src, const int64_t *dim, const int64_t *ds, \
                               const int64_t *ss)                                                 \
    {                                                                                             \
        enum { B = 16, E = sizeof(T) };                                                           \
        for (int64_t i0 = 0; i0 < dim[0]; i0 += B)                                                \
            for (int64_t j0 = 0; j0 < dim[1]; j0 += 4 * B) {                                      \
                int64_t i1 = i0 + B < dim[0] ? i0 + B : dim[0];                                   \
                int64_t j1 = j0 + 4 * B < dim[1] ? j0 + 4 * B : dim[1];                           \
                for (int64_t i = i0; i < i1; i++) {                                               \
                    char *d = dst + i * ds[0] * E;                                                \
                    const char *s = src + i * ss[0] * E;                                          \
                    for (int64_t j = j0; j < j1; j++)                                             \
                        memcpy(d + j * ds[1] * E, s + j * ss[1] * E, E);                          \
                }                                                                                 \
            }                                                                                     \
    }

COPY_PLANE(uint8_t)
COPY_PLANE(uint16_t)
COPY_PLANE(uint32_t)
COPY_PLANE(uint64_t)

static void copy_plane(char *dst, const char *src, const int64_t *dim, const int64_t *ds,
                       const int64_t *ss, size_t elem)
{
    if (ds[1] == 1 && ss[1] == 1) {
        for (int64_t i = 0; i < dim[0]; i++)
            memcpy(dst + i * ds[0] * (int64_t)elem, src + i * ss[0] * (int64_t)elem,
                   (size_t)dim[1] * elem);
    } else if (elem == 1) {
        copy_plane_uint8_t(dst, src, dim, ds, ss);
    } else if (elem == 2) {
        copy_plane_uint16_t(dst, src, dim, ds, ss);
    } else if (elem == 4) {
        copy_plane_uint32_t(dst, src, dim, ds, ss);
    } else {
        copy_plane_uint64_t(dst, src, dim, ds, ss);
    }
}

/* If source and destination are contiguous in different dims, the source's dim becomes the last but
 * one, so that the innermost plane is a 2-D transposition. */
static void order_dims(weft_walk *w)
{
    if (w->rank < 3 || w->src[w->rank - 1] == 1)
        return;
    for (int32_t k = 0; k < w->rank - 2; k++) {
        if (w->src[k] != 1)
            continue;
        int64_t dim = w->dim[k], dst = w->dst[k], src = w->src[k];
        for (int32_t d = k; d < w->rank - 2; d++) {
            w->dim[d] = w->dim[d + 1];
            w->dst[d] = w->dst[d + 1];
            w->src[d] = w->src[d + 1];
        }
        w->rank -= 2;
        int64_t last[3] = {w->dim[w->rank + 1], w->dst[w->rank + 1], w->src[w->rank + 1]};
        weft_walk__push(w, dim, dst, src);
        weft_walk__push(w, last[0], last[1], last[2]);
        return;
    }
}

void weft_walk__copy(const weft_walk *walk, void *dst, const void *src, size_t elem)
{
    weft_walk w;
    if (!fuse_dims(walk, &w))
        return;
    if (w.rank == 0) {
        memcpy(dst, src, elem);
        return;
    }
    order_dims(&w);
    if (w.rank == 1) {
        w.dim[1] = w.dim[0];
        w.dst[1] = w.dst[0];
        w.src[1] = w.src[0];
        w.dim[0] = 1;
        w.dst[0] = w.src[0] = 0;
        w.rank = 2;
    }
    int32_t outer = w.rank - 2;
    int64_t idx[WEFT_WALK_MAX] = {0};
    int64_t d_at = 0, s_at = 0;
    for (;;) {
        copy_plane((char *)dst + d_at * (int64_t)elem, (const char *)src + s_at * (int64_t)elem,
                   w.dim + outer, w.dst + outer, w.src + outer, elem);
        int32_t k = outer - 1;
        for (; k >= 0; k--) {
            d_at += w.dst[k];
            s_at += w.src[k];
            if (++idx[k] < w.dim[k])
                break;
            d_at -= w.dst[k] * w.dim[k];
            s_at -= w.src[k] * w.dim[k];
            idx[k] = 0;
        }
        if (k < 0)
            return;
    }
}

void weft_data__fill(void *dst, int64_t n, const void *one, size_t elem)
{
    char *at = dst;
    if (n <= 0)
        return;
    memcpy(at, one, elem);
    size_t done = elem, all = (size_t)n * elem;
    while (done < all) {
        size_t step = done < all - done ? done : all - done;
        memcpy(at + done, at, step);
        done += step;
    }
}
