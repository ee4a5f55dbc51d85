/* The planner of pack.h. Placed blocks are kept in one array sorted by offset; for each new block
 * one walk over the blocks that live at the same time finds the smallest gap that fits. */
#include "base/pack.h"

#include "base/num.h"

#include <stdlib.h>
#include <string.h>

typedef struct placed {
    uint64_t offset, end;
    uint32_t first, last;
} placed;

static int compare_blocks(const void *x, const void *y)
{
    const weft_block *a = *(const weft_block *const *)x;
    const weft_block *b = *(const weft_block *const *)y;
    if (a->size != b->size)
        return a->size > b->size ? -1 : 1;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return a < b ? -1 : a > b; /* both point into the caller's array: its order */
}

/* Rounds up to a multiple of `align`; false on overflow. */
static bool align_checked(uint64_t x, uint64_t align, uint64_t *out)
{
    uint64_t rest = x % align;
    return weft_size_add(x, rest ? align - rest : 0, out);
}

/* Where `b` goes; false when that would overflow. */
static bool find_offset(const placed *done, size_t n_done, const weft_block *b, uint64_t align,
                        uint64_t *out)
{
    uint64_t best = 0, best_gap = 0;
    bool found = false;
    uint64_t start = 0; /* first aligned byte behind the live blocks seen so far */
    for (size_t i = 0; i < n_done; i++) {
        if (done[i].first > b->last || done[i].last < b->first)
            continue;
        if (done[i].offset > start && done[i].offset - start >= b->size &&
            (!found || done[i].offset - start < best_gap)) {
            found = true;
            best = start;
            best_gap = done[i].offset - start;
        }
        if (done[i].end > start && !align_checked(done[i].end, align, &start)) {
            if (!found)
                return false;
            break;
        }
    }
    *out = found ? best : start;
    return true;
}

/* Room for one more in `done`, which stays sorted by offset. */
static void insert(placed *done, size_t n_done, placed p)
{
    size_t lo = 0, hi = n_done;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (done[mid].offset <= p.offset)
            lo = mid + 1;
        else
            hi = mid;
    }
    memmove(&done[lo + 1], &done[lo], (n_done - lo) * sizeof *done);
    done[lo] = p;
}

/* Places `order` in turn among the n_done that `done` has, which has room for all. */
static weft_err place_all(weft_block **order, size_t n, placed *done, size_t n_done, uint64_t align,
                          uint64_t *total)
{
    for (size_t i = 0; i < n; i++) {
        weft_block *b = order[i];
        uint64_t end;
        b->offset = 0;
        if (b->size == 0)
            continue;
        if (!find_offset(done, n_done, b, align, &b->offset) ||
            !weft_size_add(b->offset, b->size, &end))
            return WEFT_ERR_NOMEM;
        *total = end > *total ? end : *total;
        insert(done, n_done++, (placed){b->offset, end, b->first, b->last});
    }
    return WEFT_ERR_OK;
}

weft_err weft_pack_around(const weft_block *fixed, size_t n_fixed, weft_block *block, size_t n,
                          uint64_t align, uint64_t *out_total)
{
    if (align == 0)
        align = 1;
    weft_err err = WEFT_ERR_NOMEM;
    uint64_t total = 0;
    size_t n_done = 0;
    weft_block **order = calloc(n + 1, sizeof *order);
    placed *done = calloc(n + n_fixed + 1, sizeof *done);
    if (!order || !done)
        goto out;
    for (size_t i = 0; i < n_fixed; i++) {
        uint64_t end;
        if (!weft_size_add(fixed[i].offset, fixed[i].size, &end))
            goto out;
        total = end > total ? end : total;
        if (fixed[i].size > 0)
            insert(done, n_done++, (placed){fixed[i].offset, end, fixed[i].first, fixed[i].last});
    }
    for (size_t i = 0; i < n; i++) {
        if (block[i].first > block[i].last) {
            err = WEFT_ERR_BUG;
            goto out;
        }
        order[i] = &block[i];
    }
    qsort(order, n, sizeof *order, compare_blocks);
    err = place_all(order, n, done, n_done, align, &total);
    if (err == WEFT_ERR_OK)
        *out_total = total;
out:
    free(done);
    free(order);
    return err;
}

weft_err weft_pack_blocks(weft_block *block, size_t n, uint64_t align, uint64_t *out_total)
{
    return weft_pack_around(NULL, 0, block, n, align, out_total);
}
