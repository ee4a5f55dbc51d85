/* The planner of pack.h. Blocks that are placed lie in one array sorted by offset; for each new
 * block one walk over those alive at the same time finds the smallest gap that holds it. */
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

weft_err weft_pack_blocks(weft_block *block, size_t n, uint64_t align, uint64_t *out_total)
{
    if (align == 0)
        align = 1;
    weft_err err = WEFT_ERR_NOMEM;
    uint64_t total = 0;
    size_t n_done = 0;
    weft_block **order = calloc(n + 1, sizeof *order);
    placed *done = calloc(n + 1, sizeof *done);
    if (!order || !done)
        goto out;
    for (size_t i = 0; i < n; i++) {
        if (block[i].first > block[i].last) {
            err = WEFT_ERR_BUG;
            goto out;
        }
        order[i] = &block[i];
    }
    qsort(order, n, sizeof *order, compare_blocks);
    for (size_t i = 0; i < n; i++) {
        weft_block *b = order[i];
        b->offset = 0;
        if (b->size == 0)
            continue;
        uint64_t end;
        if (!find_offset(done, n_done, b, align, &b->offset) ||
            !weft_size_add(b->offset, b->size, &end))
            goto out;
        total = end > total ? end : total;
        size_t lo = 0, hi = n_done;
        while (lo < hi) {
            size_t mid = lo + (hi - lo) / 2;
            if (done[mid].offset <= b->offset)
                lo = mid + 1;
            else
                hi = mid;
        }
        memmove(&done[lo + 1], &done[lo], (n_done - lo) * sizeof *done);
        placed p = {b->offset, end, b->first, b->last};
        done[lo] = p;
        n_done++;
    }
    *out_total = total;
    err = WEFT_ERR_OK;
out:
    free(done);
    free(order);
    return err;
}
