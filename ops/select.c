/* Operators that select elements by value: top_k, non_zero, compress, unique, non_max_suppression.
 * Most have results whose size depends on data: infer and eval then share one function that does
 * the selection. */
#include "ops/data_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The elements as sort keys: floats as double, integers as int64 (u64 shifted). */
typedef struct weft_keys {
    const double *f; /* one of both is NULL */
    const int64_t *i;
    int64_t step; /* keys of an item */
    bool down;
} weft_keys;

static weft_keys load_keys(weft_arena *arena, const weft_tensor *t)
{
    int64_t n = weft_tensor_numel(t);
    weft_keys keys = {.step = 1};
    if (weft_dtype_is_float(t->dtype)) {
        double *f = weft_arena_array(arena, (size_t)n, sizeof *f);
        weft_eval__load_f64(t, 0, 1, n, f);
        keys.f = f;
        return keys;
    }
    int64_t *list = weft_arena_array(arena, (size_t)n, sizeof *list);
    weft_eval__load_i64(t, 0, 1, n, list);
    if (t->dtype == WEFT_DTYPE_U64)
        for (int64_t k = 0; k < n; k++)
            list[k] = (int64_t)((uint64_t)list[k] ^ (uint64_t)1 << 63);
    keys.i = list;
    return keys;
}

/* NaN is larger than every number. */
static int compare_f64(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) - isnan(b);
    return (a > b) - (a < b);
}

static int compare_keys(const weft_keys *keys, int64_t a, int64_t b)
{
    for (int64_t k = 0; k < keys->step; k++) {
        int64_t p = a * keys->step + k, q = b * keys->step + k;
        int c = keys->f ? compare_f64(keys->f[p], keys->f[q])
                        : (keys->i[p] > keys->i[q]) - (keys->i[p] < keys->i[q]);
        if (c != 0)
            return keys->down ? -c : c;
    }
    return 0;
}

/* Order of item numbers; equal items stay in order. */
static int compare_items(const void *a, const void *b, void *ctx)
{
    int64_t i = *(const int64_t *)a, j = *(const int64_t *)b;
    int c = compare_keys(ctx, i, j);
    return c != 0 ? c : (i > j) - (i < j);
}

static int compare_numbers(const void *a, const void *b)
{
    int64_t i = *(const int64_t *)a, j = *(const int64_t *)b;
    return (i > j) - (i < j);
}

/* -- top_k ---------------------------------------------------------------------------------- */

weft_err weft_infer_top_k(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type;
    uint32_t axis, n;
    const weft_dim *k;
    WEFT_TRY(weft_infer__axis(cx, weft_attrs_int(cx->attrs, WEFT_ATTR_AXIS, -1), x->rank, &axis));
    weft_given given = weft_param__dims(cx, 1, WEFT_ATTR_K, &k, &n);
    if (given == WEFT_GIVEN_NOT || (given == WEFT_GIVEN_KNOWN && n != 1))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "one k is wanted");
    weft_dim count = given == WEFT_GIVEN_KNOWN ? k[0] : weft_dim_fresh(cx->pool);
    if (weft_dim_is_const(count) &&
        (count < 0 || (weft_dim_is_const(x->dim[axis]) && count > x->dim[axis])))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "k is %lld of %s", (long long)count,
                         weft_infer__text(cx, x->dim[axis]));
    for (uint32_t o = 0; o < cx->n_out; o++) {
        weft_infer__copy(cx, o, 0);
        cx->out[o].dim[axis] = count;
    }
    if (cx->n_out > 1)
        cx->out[1].dtype = WEFT_DTYPE_I64;
    return WEFT_ERR_OK;
}

weft_err weft_eval_top_k(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0];
    weft_tensor *values = weft_eval__out(cx, 0);
    weft_tensor *indices = cx->n_out > 1 ? weft_eval__out(cx, 1) : NULL;
    uint32_t axis;
    WEFT_TRY(weft_eval__axis(cx, weft_attrs_int(cx->attrs, WEFT_ATTR_AXIS, -1), x->rank, &axis));
    int64_t n = x->dim[axis], k = cx->out[0].dim[axis], dim[WEFT_RANK_MAX];
    if (k > n)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "k is %lld of %lld", (long long)k, (long long)n);
    memcpy(dim, x->dim, sizeof dim);
    dim[axis] = k;
    WEFT_TRY(weft_eval__check_dims(cx, 0, dim, x->rank));
    if (indices)
        WEFT_TRY(weft_eval__check_dims(cx, 1, dim, x->rank));
    if (n == 0 || k == 0)
        return WEFT_ERR_OK;
    int64_t inner = weft_dims__product(x->dim, (int32_t)axis + 1, x->rank);
    int64_t lines = weft_tensor_numel(x) / n;
    weft_keys keys = load_keys(cx->scratch, x);
    keys.down = weft_attrs_int(cx->attrs, WEFT_ATTR_LARGEST, 1) != 0;
    int64_t *order = weft_arena_array(cx->scratch, (size_t)n, sizeof *order);
    size_t elem = weft_dtype_size(x->dtype);
    for (int64_t line = 0; line < lines; line++) {
        int64_t first = line / inner * n * inner + line % inner;
        int64_t to = line / inner * k * inner + line % inner;
        for (int64_t i = 0; i < n; i++)
            order[i] = first + i * inner;
        qsort_r(order, (size_t)n, sizeof *order, compare_items, &keys);
        for (int64_t i = 0; i < k; i++) {
            if (values)
                memcpy(weft_data__at(values, to + i * inner), weft_data__at(x, order[i]), elem);
            if (indices)
                ((int64_t *)indices->data)[to + i * inner] = (order[i] - first) / inner;
        }
    }
    return WEFT_ERR_OK;
}

/* -- non_zero ------------------------------------------------------------------------------- */

/* Numbers of the elements that are not zero, into `out` (may be NULL: only count). */
static int64_t find_non_zero(const weft_tensor *x, int64_t *out)
{
    enum { BLOCK = 256 };
    double value[BLOCK];
    int64_t n = weft_tensor_numel(x), found = 0;
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t len = n - i < BLOCK ? n - i : BLOCK;
        weft_eval__load_f64(x, i, 1, len, value);
        for (int64_t k = 0; k < len; k++)
            if (value[k] != 0) {
                if (out)
                    out[found] = i + k;
                found++;
            }
    }
    return found;
}

weft_err weft_infer_non_zero(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type;
    weft_ttype *out = weft_infer__out(cx, 0, WEFT_DTYPE_I64, 2);
    weft_tensor t;
    out->dim[0] = x->rank > 0 ? x->rank : 1;
    out->dim[1] =
        weft_infer__tensor(cx, 0, &t) ? find_non_zero(&t, NULL) : weft_dim_fresh(cx->pool);
    return WEFT_ERR_OK;
}

weft_err weft_eval_non_zero(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0];
    weft_tensor *out = weft_eval__out(cx, 0);
    if (!out)
        return WEFT_ERR_OK;
    int64_t n = find_non_zero(x, NULL), rank = x->rank > 0 ? x->rank : 1;
    WEFT_TRY(weft_eval__check_dims(cx, 0, (int64_t[]){rank, n}, 2));
    int64_t *found = weft_arena_array(cx->scratch, (size_t)n, sizeof *found), *to = out->data;
    int64_t stride[WEFT_RANK_MAX] = {1};
    find_non_zero(x, found);
    weft_dims__strides(x->dim, x->rank, stride);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = found[i];
        for (int64_t d = 0; d < rank; d++) {
            to[d * n + i] = rest / stride[d];
            rest %= stride[d];
        }
    }
    return WEFT_ERR_OK;
}

/* -- compress ------------------------------------------------------------------------------- */

weft_err weft_infer_compress(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type;
    weft_tensor mask;
    uint32_t axis = 0;
    WEFT_TRY(weft_infer__dtype(cx, 1, WEFT_M_BOOL));
    WEFT_TRY(weft_infer__rank(cx, 1, 1, 1));
    weft_dim n =
        weft_infer__tensor(cx, 1, &mask) ? find_non_zero(&mask, NULL) : weft_dim_fresh(cx->pool);
    if (!weft_attrs_find(cx->attrs, WEFT_ATTR_AXIS)) {
        weft_infer__out(cx, 0, x->dtype, 1)->dim[0] = n;
        return WEFT_ERR_OK;
    }
    WEFT_TRY(weft_infer__axis(cx, weft_attrs_int(cx->attrs, WEFT_ATTR_AXIS, 0), x->rank, &axis));
    weft_infer__copy(cx, 0, 0);
    cx->out[0].dim[axis] = n;
    return WEFT_ERR_OK;
}

weft_err weft_eval_compress(weft_eval_ctx *cx)
{
    const weft_tensor *mask = cx->in[1];
    weft_tensor x = *cx->in[0], *out = weft_eval__out(cx, 0);
    uint32_t axis = 0;
    if (!out)
        return WEFT_ERR_OK;
    if (!weft_attrs_find(cx->attrs, WEFT_ATTR_AXIS)) {
        x.dim[0] = weft_tensor_numel(&x);
        x.rank = 1;
    } else {
        WEFT_TRY(weft_eval__axis(cx, weft_attrs_int(cx->attrs, WEFT_ATTR_AXIS, 0), x.rank, &axis));
    }
    int64_t dim[WEFT_RANK_MAX], n = find_non_zero(mask, NULL), limit = x.dim[axis];
    memcpy(dim, x.dim, sizeof dim);
    dim[axis] = n;
    WEFT_TRY(weft_eval__check_dims(cx, 0, dim, x.rank));
    int64_t *found = weft_arena_array(cx->scratch, (size_t)n, sizeof *found);
    find_non_zero(mask, found);
    if (n > 0 && found[n - 1] >= limit)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the condition picks element %lld of %lld",
                         (long long)found[n - 1], (long long)limit);
    int64_t outer = weft_dims__product(x.dim, 0, (int32_t)axis);
    int64_t inner = weft_dims__product(x.dim, (int32_t)axis + 1, x.rank);
    size_t row = (size_t)inner * weft_dtype_size(x.dtype);
    for (int64_t o = 0; o < outer && row > 0; o++)
        for (int64_t i = 0; i < n; i++)
            memcpy(weft_data__at(out, (o * n + i) * inner),
                   weft_data__at(&x, (o * limit + found[i]) * inner), row);
    return WEFT_ERR_OK;
}

/* -- unique --------------------------------------------------------------------------------- */

typedef struct weft_unique {
    int64_t n_items, n_groups;
    int64_t *group, *first, *count; /* of items; of groups */
} weft_unique;

/* Items are the elements, or the slices along an axis (`outer` != 1 or `inner` != 1). */
static weft_keys unique_keys(weft_arena *arena, const weft_tensor *x, int32_t axis, int64_t *out_n)
{
    weft_keys keys = load_keys(arena, x);
    *out_n = weft_tensor_numel(x);
    if (axis < 0)
        return keys;
    int64_t outer = weft_dims__product(x->dim, 0, axis), n = x->dim[axis];
    int64_t inner = weft_dims__product(x->dim, axis + 1, x->rank);
    weft_walk w = {0};
    weft_walk__push(&w, n, outer * inner, inner);
    weft_walk__push(&w, outer, inner, n * inner);
    weft_walk__push(&w, inner, 1, 1);
    int64_t *packed = weft_arena_array(arena, (size_t)*out_n, sizeof *packed);
    weft_walk__copy(&w, packed, keys.f ? (const void *)keys.f : keys.i, sizeof *packed);
    if (keys.f)
        keys.f = (const double *)(const void *)packed;
    else
        keys.i = packed;
    keys.step = outer * inner;
    *out_n = n;
    return keys;
}

static weft_unique find_unique(weft_arena *arena, const weft_tensor *x, int32_t axis, bool sorted)
{
    weft_unique u = {0};
    weft_keys keys = unique_keys(arena, x, axis, &u.n_items);
    size_t n = (size_t)u.n_items;
    int64_t *order = weft_arena_array(arena, n, sizeof *order);
    int64_t *rank = weft_arena_array(arena, n, sizeof *rank);
    u.group = weft_arena_array(arena, n, sizeof *u.group);
    u.first = weft_arena_array(arena, n, sizeof *u.first);
    u.count = weft_arena_array(arena, n, sizeof *u.count);
    for (size_t i = 0; i < n; i++)
        order[i] = (int64_t)i;
    qsort_r(order, n, sizeof *order, compare_items, &keys);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || compare_keys(&keys, order[i - 1], order[i]) != 0)
            u.first[u.n_groups++] = order[i];
        u.group[order[i]] = u.n_groups - 1;
    }
    if (!sorted) {
        /* Groups in the order of their first items: number them by a walk over the items. */
        int64_t next = 0;
        for (size_t i = 0; i < n; i++)
            if (u.first[u.group[i]] == (int64_t)i)
                rank[u.group[i]] = next++;
        for (size_t i = 0; i < n; i++)
            u.group[i] = rank[u.group[i]];
        qsort(u.first, (size_t)u.n_groups, sizeof *u.first, compare_numbers);
    }
    for (size_t i = 0; i < n; i++)
        u.count[u.group[i]]++;
    return u;
}

/* The axis, or -1 for the flattened tensor. */
static bool unique_axis(weft_attrs attrs, int32_t rank, int32_t *out)
{
    const weft_attr *a = weft_attrs_find(attrs, WEFT_ATTR_AXIS);
    uint32_t axis;
    *out = -1;
    if (!a)
        return true;
    if (a->kind != WEFT_KIND_INT || !weft_axis__fix(a->u.i, (uint32_t)rank, &axis))
        return false;
    *out = (int32_t)axis;
    return true;
}

weft_err weft_infer_unique(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type;
    int32_t axis;
    weft_tensor t;
    if (!unique_axis(cx->attrs, x->rank, &axis))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "axis is out of range");
    weft_dim n;
    if (weft_infer__tensor(cx, 0, &t))
        n = find_unique(cx->arena, &t, axis, true).n_groups;
    else
        n = weft_dim_fresh(cx->pool);
    if (axis < 0)
        weft_infer__out(cx, 0, x->dtype, 1);
    else
        weft_infer__copy(cx, 0, 0);
    cx->out[0].dim[axis < 0 ? 0 : axis] = n;
    for (uint32_t o = 1; o < cx->n_out; o++)
        weft_infer__out(cx, o, WEFT_DTYPE_I64, 1)->dim[0] = n;
    if (cx->n_out > 2)
        cx->out[2].dim[0] = axis < 0 ? weft_ttype_numel(cx->pool, x) : x->dim[axis];
    return WEFT_ERR_OK;
}

weft_err weft_eval_unique(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0];
    bool sorted = weft_attrs_int(cx->attrs, WEFT_ATTR_SORTED, 1) != 0;
    int32_t axis;
    if (!unique_axis(cx->attrs, x->rank, &axis))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "axis is out of range");
    weft_unique u = find_unique(cx->scratch, x, axis, sorted);
    int64_t dim[WEFT_RANK_MAX];
    memcpy(dim, x->dim, sizeof dim);
    dim[axis < 0 ? 0 : axis] = u.n_groups;
    if (weft_eval__out(cx, 0)) {
        WEFT_TRY(weft_eval__check_dims(cx, 0, dim, axis < 0 ? 1 : x->rank));
        int64_t outer = axis < 0 ? 1 : weft_dims__product(x->dim, 0, axis);
        int64_t inner = axis < 0 ? 1 : weft_dims__product(x->dim, axis + 1, x->rank);
        size_t row = (size_t)inner * weft_dtype_size(x->dtype);
        for (int64_t o = 0; o < outer && row > 0; o++)
            for (int64_t g = 0; g < u.n_groups; g++)
                memcpy(weft_data__at(&cx->out[0], (o * u.n_groups + g) * inner),
                       weft_data__at(x, (o * u.n_items + u.first[g]) * inner), row);
    }
    const int64_t *list[4] = {NULL, u.first, u.group, u.count};
    for (uint32_t o = 1; o < cx->n_out && o < 4; o++) {
        int64_t n = o == 2 ? u.n_items : u.n_groups;
        if (!weft_eval__out(cx, o))
            continue;
        WEFT_TRY(weft_eval__check_dims(cx, o, &n, 1));
        if (n > 0)
            memcpy(cx->out[o].data, list[o], (size_t)n * sizeof **list);
    }
    return WEFT_ERR_OK;
}

/* -- non_max_suppression -------------------------------------------------------------------- */

typedef struct weft_nms {
    const float *boxes, *scores;
    int64_t n_batch, n_class, n_box, limit;
    float max_iou, min_score;
    bool center, has_min_score;
} weft_nms;

/* Corners, in order. */
static void box_corners(const weft_nms *nms, const float *box, float *out)
{
    if (nms->center) {
        out[0] = box[1] - box[3] / 2;
        out[1] = box[0] - box[2] / 2;
        out[2] = box[1] + box[3] / 2;
        out[3] = box[0] + box[2] / 2;
        return;
    }
    for (int i = 0; i < 2; i++) {
        out[i] = fminf(box[i], box[i + 2]);
        out[i + 2] = fmaxf(box[i], box[i + 2]);
    }
}

static inline float smaller(float a, float b)
{
    return a < b ? a : b;
}

static inline float larger(float a, float b)
{
    return a > b ? a : b;
}

/* Kept boxes with an area: [corner][box], and their areas. Others, such as those with NaN, overlap
 * with none. */
typedef struct weft_kept {
    float *corner[4], *area;
    int64_t n;
} weft_kept;

/* Whether a box with an area overlaps one of n kept boxes from `from` on. 0 is not divided by 0: an
 * invalid operation asks for a second run (runtime/cpu/cpu_team.h). */
static inline bool overlaps(const weft_nms *nms, const float *p, float area, const weft_kept *kept,
                            int64_t from, int64_t n)
{
    const float *const *c = (const float *const *)kept->corner;
    int hit = 0;
    for (int64_t i = from; i < from + n; i++) {
        float h = smaller(p[2], c[2][i]) - larger(p[0], c[0][i]);
        float w = smaller(p[3], c[3][i]) - larger(p[1], c[1][i]);
        float both = h * w;
        hit |= (h > 0) & (w > 0) & (both / (area + kept->area[i] - both) > nms->max_iou);
    }
    return hit;
}

/* Whether a box overlaps no kept one; it is kept then, if it has an area. */
static bool keep(const weft_nms *nms, weft_kept *kept, const float *p)
{
    enum { STEP = 16 }; /* a vectorised loop */
    float area = (p[2] - p[0]) * (p[3] - p[1]);
    int64_t i = 0, n = kept->n;
    if (!(area > 0))
        return true;
    for (; i + STEP <= n; i += STEP)
        if (overlaps(nms, p, area, kept, i, STEP))
            return false;
    if (overlaps(nms, p, area, kept, i, n - i))
        return false;
    for (int k = 0; k < 4; k++)
        kept->corner[k][n] = p[k];
    kept->area[kept->n++] = area;
    return true;
}

/* Selected triples (batch, class, box) into `out`, the first `room` of them; returns how many there
 * are. Takes time in proportion to boxes times selected boxes. */
static int64_t run_nms(weft_arena *arena, const weft_nms *nms, int64_t *out, int64_t room)
{
    int64_t found = 0, n = nms->n_box;
    int64_t *order = weft_arena_array(arena, (size_t)n, sizeof *order);
    double *key = weft_arena_array(arena, (size_t)n, sizeof *key);
    weft_kept kept = {.area = weft_arena_array(arena, (size_t)n, sizeof(float))};
    for (int i = 0; i < 4; i++)
        kept.corner[i] = weft_arena_array(arena, (size_t)n, sizeof(float));
    weft_keys keys = {.f = key, .step = 1, .down = true};
    for (int64_t line = 0; line < nms->n_batch * nms->n_class; line++) {
        const float *boxes = nms->boxes + line / nms->n_class * n * 4;
        const float *scores = nms->scores + line * n;
        int64_t n_order = 0, n_kept = 0;
        kept.n = 0;
        for (int64_t i = 0; i < n; i++) {
            key[i] = scores[i];
            if (!nms->has_min_score || scores[i] > nms->min_score)
                order[n_order++] = i;
        }
        qsort_r(order, (size_t)n_order, sizeof *order, compare_items, &keys);
        for (int64_t i = 0; i < n_order && n_kept < nms->limit; i++) {
            float box[4];
            box_corners(nms, boxes + order[i] * 4, box);
            if (!keep(nms, &kept, box))
                continue;
            n_kept++;
            if (found < room) {
                out[found * 3] = line / nms->n_class;
                out[found * 3 + 1] = line % nms->n_class;
                out[found * 3 + 2] = order[i];
            }
            found++;
        }
    }
    return found;
}

/* Fills the task from operands; false when they do not fit. `in` has NULL for omitted ones. */
static bool nms_task(weft_arena *arena, weft_attrs attrs, const weft_tensor *const in[5],
                     weft_nms *out)
{
    const weft_tensor *boxes = in[0], *scores = in[1];
    if (boxes->rank != 3 || scores->rank != 3 || boxes->dim[2] != 4 ||
        boxes->dim[0] != scores->dim[0] || boxes->dim[1] != scores->dim[2])
        return false;
    for (int i = 2; i < 5; i++)
        if (in[i] && weft_tensor_numel(in[i]) != 1)
            return false;
    int64_t n_boxes = weft_tensor_numel(boxes), n_scores = weft_tensor_numel(scores);
    float *b = weft_arena_array(arena, (size_t)n_boxes, sizeof *b);
    float *s = weft_arena_array(arena, (size_t)n_scores, sizeof *s);
    weft_eval__load_f32(boxes, 0, 1, n_boxes, b);
    weft_eval__load_f32(scores, 0, 1, n_scores, s);
    *out = (weft_nms){.boxes = b,
                      .scores = s,
                      .n_batch = scores->dim[0],
                      .n_class = scores->dim[1],
                      .n_box = scores->dim[2],
                      .limit = in[2] ? weft_tensor_get_i64(in[2], 0) : 0,
                      .max_iou = in[3] ? (float)weft_tensor_get_f64(in[3], 0) : 0,
                      .min_score = in[4] ? (float)weft_tensor_get_f64(in[4], 0) : 0,
                      .has_min_score = in[4] != NULL,
                      .center = weft_attrs_int(attrs, WEFT_ATTR_CENTER_POINT_BOX, 0) != 0};
    return true;
}

weft_err weft_infer_non_max_suppression(weft_infer_ctx *cx)
{
    weft_tensor t[5];
    const weft_tensor *in[5] = {NULL};
    bool known = true;
    WEFT_TRY(weft_infer__rank(cx, 0, 3, 3));
    WEFT_TRY(weft_infer__rank(cx, 1, 3, 3));
    for (uint32_t i = 0; i < 5 && known; i++) {
        if (!weft_infer__has(cx, i))
            continue;
        known = weft_infer__tensor(cx, i, &t[i]);
        in[i] = &t[i];
    }
    weft_ttype *out = weft_infer__out(cx, 0, WEFT_DTYPE_I64, 2);
    out->dim[1] = 3;
    if (!known) {
        out->dim[0] = weft_dim_fresh(cx->pool);
        return WEFT_ERR_OK;
    }
    weft_nms task;
    if (!nms_task(cx->arena, cx->attrs, in, &task))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "boxes and scores do not fit");
    out->dim[0] = run_nms(cx->arena, &task, NULL, 0);
    return WEFT_ERR_OK;
}

weft_err weft_eval_non_max_suppression(weft_eval_ctx *cx)
{
    const weft_tensor *in[5] = {NULL};
    weft_nms task;
    if (!weft_eval__out(cx, 0))
        return WEFT_ERR_OK;
    for (uint32_t i = 0; i < 5; i++)
        in[i] = weft_eval__in(cx, i);
    if (!nms_task(cx->scratch, cx->attrs, in, &task))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "boxes and scores do not fit");
    int64_t n = run_nms(cx->scratch, &task, cx->out[0].data, weft_tensor_numel(&cx->out[0]) / 3);
    return weft_eval__check_dims(cx, 0, (int64_t[]){n, 3}, 2);
}
