/* share-near: weights of different models that are equal within a tolerance (merge_tolerance)
 * become one. Off by default, because it changes results: `weft compile` measures by how much.
 *
 * Two weights are near if they have the same type and corresponding elements differ by at most the
 * tolerance; NaN and infinities must have equal bits. A weight is compared with weights that were
 * kept, never with a replaced one, so no element changes by more than the tolerance. Weights below
 * BYTES_MIN (an epsilon, a scale) are left unchanged. O(n^2) comparisons for n weights of a type;
 * each ends at the first element that differs. After elements_max elements in total the remaining
 * weights are left unchanged. */
#include "passes/passes_int.h"

#include "base/map.h"

#include <math.h>
#include <string.h>

enum { BYTES_MIN = 64 };

static const uint64_t elements_max = 1ull << 33;

typedef struct kept {
    uint32_t weight, owner;
    uint32_t before; /* 1 + index of the one before with its type */
} kept;

/* By weight: 1 + the first model that uses it, 0: none does. */
static uint32_t *find_owners(weft_passctx *cx, const weft_module *m)
{
    uint32_t *owner =
        weft_arena_array(cx->scratch, (size_t)weft_weight_count(m) + 1, sizeof *owner);
    for (uint32_t i = weft_graph_count(m); i-- > 0;)
        WEFT_FOREACH_NODE (m, weft_graph_at(m, i), n)
            for (uint32_t k = 0; k < weft_node_in_count(m, n); k++) {
                weft_val v = weft_node_in(m, n, k);
                if (v.i && weft_val_get_kind(m, v) == WEFT_VAL_WEIGHT)
                    owner[weft_val_weight(m, v).i] = i + 1;
            }
    return owner;
}

static double element(weft_dtype dtype, const uint8_t *at)
{
    uint64_t bits = 0;
    memcpy(&bits, at, weft_dtype_size(dtype));
    const weft_tensor one = {.dtype = dtype, .data = &bits};
    return weft_tensor_get_f64(&one, 0);
}

static double distance(weft_dtype dtype, const uint8_t *x, const uint8_t *y)
{
    float a, b;
    if (dtype != WEFT_DTYPE_F32)
        return fabs(element(dtype, x) - element(dtype, y));
    memcpy(&a, x, sizeof a);
    memcpy(&b, y, sizeof b);
    return fabs((double)a - (double)b);
}

/* `left`: number of elements that may still be compared. */
static bool are_near(const weft_tensor *a, const weft_tensor *b, double tolerance, uint64_t *left,
                     double *most)
{
    uint64_t n = (uint64_t)weft_tensor_numel(a), i = 0;
    size_t size = weft_dtype_size(a->dtype);
    double found = 0;
    for (; i<n && * left> 0; i++, --*left) {
        const uint8_t *x = (const uint8_t *)a->data + i * size;
        const uint8_t *y = (const uint8_t *)b->data + i * size;
        if (memcmp(x, y, size) == 0)
            continue;
        double apart = distance(a->dtype, x, y);
        if (!(apart <= tolerance)) /* written so that NaN fails */
            return false;
        found = fmax(found, apart);
    }
    *most = fmax(*most, i == n ? found : 0);
    return i == n;
}

static bool is_floating(weft_dtype dtype)
{
    return dtype == WEFT_DTYPE_F32 || dtype == WEFT_DTYPE_F64 || dtype == WEFT_DTYPE_F16 ||
           dtype == WEFT_DTYPE_BF16;
}

static void note(weft_passctx *cx, uint64_t bytes, double most)
{
    weft_merge_log *log = cx->options->merge_log;
    if (!log)
        return;
    log->near_weights++;
    log->near_bytes += bytes;
    log->near_most = fmax(log->near_most, most);
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    double tolerance = cx->options->merge_tolerance, most = 0;
    uint32_t n = weft_weight_count(m);
    uint64_t left = elements_max;
    WEFT_VEC(kept) list = {0};
    if (!(tolerance > 0))
        return WEFT_ERR_OK;
    const uint32_t *owner = find_owners(cx, m);
    weft_map *last = weft_map_create(cx->scratch); /* type to 1 + index of the last kept */
    for (uint32_t w = 1; w <= n; w++) {
        const weft_weight_info *info = weft_weight_get(m, (weft_weight){w});
        weft_tensor t = weft_weight_tensor(m, (weft_weight){w});
        uint64_t head = 0, found = 0;
        if (!owner[w] || info->bytes < BYTES_MIN || !is_floating(t.dtype))
            continue;
        weft_map_get(last, info->type.i, &head);
        for (uint64_t k = head; k && !found; k = list.at[k - 1].before) {
            weft_tensor other = weft_weight_tensor(m, (weft_weight){list.at[k - 1].weight});
            if (list.at[k - 1].owner != owner[w] && are_near(&other, &t, tolerance, &left, &most))
                found = k;
        }
        if (found && weft_rewrite__allow(cx)) {
            weft_val with = weft_weight_val(m, (weft_weight){list.at[found - 1].weight});
            for (uint32_t i = 0; i < weft_graph_count(m); i++)
                weft_val_replace(weft_graph_at(m, i), weft_weight_val(m, (weft_weight){w}), with);
            note(cx, info->bytes, most);
            *changed = true;
            continue;
        }
        kept one = {w, owner[w], (uint32_t)head};
        WEFT_VEC_PUSH(cx->scratch, &list, one);
        weft_map_put(last, info->type.i, list.len);
    }
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_share_near = {
    .name = "share-near",
    .brief = "weights of different models within the tolerance become one, when asked for",
    .any_stage = true,
    .run = run,
};
