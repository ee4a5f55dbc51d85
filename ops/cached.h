/* Attention with a cache of keys and values (ops/cached.c): what the reference implementation and
 * kernels share. Positions count from the first key of a sequence. */
#ifndef WEFT_OPS_CACHED_H
#define WEFT_OPS_CACHED_H

#include "ops/ops.h"

/* cache_append: `room` rows before, `all` after; `bytes` of an element. */
typedef struct weft_cache {
    int64_t batch, heads, room, all, length, size;
    size_t bytes;
} weft_cache;

/* The sizes of cache_append: past [batch, heads, room, size], fresh [batch, length, heads * size],
 * out [batch, heads, all, size]. */
static inline weft_cache weft_cache_of(const weft_tensor *past, const weft_tensor *fresh,
                                       const weft_tensor *out)
{
    return (weft_cache){.batch = past->dim[0],
                        .heads = past->dim[1],
                        .room = past->dim[2],
                        .all = out->dim[2],
                        .length = fresh->dim[1],
                        .size = past->dim[3],
                        .bytes = weft_dtype_size(past->dtype)};
}

/* Position of the first new key of a sequence that has n keys with the new ones. */
static inline int64_t weft_cache_start(int64_t n, int64_t length)
{
    return n > length ? n - length : 0;
}
/* Whether the positions of the last keys fit the cache; total: -1, or the length that the model
 * states. */
bool weft_cache_fits(const weft_cache *c, const int32_t *last, int64_t total);
/* All rows of head `head` of all sequences, of which `last` is the position of the last key. */
void weft_cache_copy_head(const weft_cache *c, int64_t head, int64_t last, char *out,
                          const char *past, const char *fresh);

/* cached_attention. window: keys that a query sees at most; 0: all. cap: of the scores; 0: none.
 * columns: of the bias; strides of the bias in elements. */
typedef struct weft_cached {
    int64_t batch, length, heads, kv, all, size, value_size, window;
    int64_t columns, bias_batch, bias_head;
    bool causal;
    double scale, cap;
} weft_cached;

/* in: the six operands, NULL where omitted; false: they do not fit. */
bool weft_cached_make(weft_attrs attrs, const weft_tensor *const *in, weft_cached *out);
bool weft_cached_fits(const weft_cached *c, const int32_t *last);

typedef struct weft_cached_keys {
    int64_t from, to;
} weft_cached_keys;

/* The keys that row `row` of the queries sees. */
static inline weft_cached_keys weft_cached_range(const weft_cached *c, int64_t last, int64_t row)
{
    int64_t n = last + 1, end = weft_cache_start(n, c->length) + row + 1;
    if (!c->causal || end > n)
        end = n;
    return (weft_cached_keys){c->window && end > c->window ? end - c->window : 0, end};
}

#endif
