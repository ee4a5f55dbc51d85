/* The planner of pack.h. A new block is compared only with the placed blocks that live at the same
 * time: those that begin during its life, from a list for each launch, and those alive at its first
 * launch, from a segment tree over the launches (de Berg et al., "Computational Geometry", 10.3).
 */
#include "base/pack.h"

#include "base/num.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

/* Comparisons of blocks after which the blocks left, the smallest, share no memory with others. */
static const uint64_t comparisons_max = UINT64_C(1) << 25;

typedef struct placed {
    uint64_t offset, end;
    uint32_t first, last;
    uint32_t next; /* with the same first launch */
} placed;

/* A placed block in the list of a node of the tree. */
typedef struct entry {
    uint32_t block, next;
} entry;

typedef struct planner {
    uint64_t align, total, comparisons;
    placed *done;
    uint32_t n_done;
    uint32_t *starts; /* [n_launch]: first of the placed blocks that begin there */
    uint32_t *tree;   /* [2 * n_leaf]: list of entries; leaf of launch t is n_leaf + t */
    uint32_t n_launch, n_leaf;
    entry *entry;
    size_t n_entry, cap_entry;
    const placed **live; /* [n]: found by collect() */
} planner;

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

static int compare_offsets(const void *x, const void *y)
{
    const placed *a = *(const placed *const *)x, *b = *(const placed *const *)y;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

/* Puts the placed blocks that live at the same time as `b` in p->live, by offset. */
static size_t collect(planner *p, const weft_block *b)
{
    size_t n = 0;
    for (uint32_t at = p->n_leaf + b->first; at > 0; at /= 2)
        for (uint32_t e = p->tree[at]; e != NONE; e = p->entry[e].next)
            p->live[n++] = &p->done[p->entry[e].block];
    for (uint32_t t = b->first + 1; t <= b->last; t++)
        for (uint32_t k = p->starts[t]; k != NONE; k = p->done[k].next)
            p->live[n++] = &p->done[k];
    p->comparisons += n + (b->last - b->first);
    qsort(p->live, n, sizeof *p->live, compare_offsets);
    return n;
}

/* Where `b` goes; false when that would overflow. */
static bool find_offset(planner *p, const weft_block *b, uint64_t *out)
{
    uint64_t best = 0, best_gap = 0;
    bool found = false;
    uint64_t start = 0; /* first aligned byte behind the live blocks seen so far */
    if (p->comparisons > comparisons_max)
        return align_checked(p->total, p->align, out);
    size_t n = collect(p, b);
    for (size_t i = 0; i < n; i++) {
        const placed *d = p->live[i];
        if (d->offset > start && d->offset - start >= b->size &&
            (!found || d->offset - start < best_gap)) {
            found = true;
            best = start;
            best_gap = d->offset - start;
        }
        if (d->end > start && !align_checked(d->end, p->align, &start)) {
            if (!found)
                return false;
            break;
        }
    }
    *out = found ? best : start;
    return true;
}

static bool add_entry(planner *p, uint32_t node, uint32_t block)
{
    if (p->n_entry == p->cap_entry) {
        size_t cap = p->cap_entry ? 2 * p->cap_entry : 256;
        entry *grown = cap < NONE ? realloc(p->entry, cap * sizeof *grown) : NULL;
        if (!grown)
            return false;
        p->entry = grown;
        p->cap_entry = cap;
    }
    p->entry[p->n_entry] = (entry){block, p->tree[node]};
    p->tree[node] = (uint32_t)p->n_entry++;
    return true;
}

static weft_err place(planner *p, const weft_block *b)
{
    uint64_t end;
    if (!weft_size_add(b->offset, b->size, &end))
        return WEFT_ERR_NOMEM;
    p->total = end > p->total ? end : p->total;
    uint32_t id = p->n_done++;
    p->done[id] = (placed){b->offset, end, b->first, b->last, p->starts[b->first]};
    p->starts[b->first] = id;
    /* The nodes whose launches together are first .. last. */
    size_t lo = (size_t)p->n_leaf + b->first, hi = (size_t)p->n_leaf + b->last + 1;
    for (; lo < hi; lo /= 2, hi /= 2) {
        if (lo % 2 && !add_entry(p, (uint32_t)lo++, id))
            return WEFT_ERR_NOMEM;
        if (hi % 2 && !add_entry(p, (uint32_t)--hi, id))
            return WEFT_ERR_NOMEM;
    }
    return WEFT_ERR_OK;
}

/* The greatest launch; BUG when a block ends before it begins. */
static weft_err find_last(const weft_block *block, size_t n, uint32_t *last)
{
    for (size_t i = 0; i < n; i++) {
        if (block[i].first > block[i].last || block[i].last >= UINT32_MAX / 4)
            return WEFT_ERR_BUG;
        *last = block[i].last > *last ? block[i].last : *last;
    }
    return WEFT_ERR_OK;
}

static weft_err start(planner *p, size_t n, uint32_t last)
{
    p->n_launch = last + 1;
    for (p->n_leaf = 1; p->n_leaf < p->n_launch; p->n_leaf *= 2)
        ;
    p->done = calloc(n + 1, sizeof *p->done);
    p->live = calloc(n + 1, sizeof *p->live);
    p->starts = malloc(p->n_launch * sizeof *p->starts);
    p->tree = malloc(2 * (size_t)p->n_leaf * sizeof *p->tree);
    if (!p->done || !p->live || !p->starts || !p->tree)
        return WEFT_ERR_NOMEM;
    memset(p->starts, 0xff, p->n_launch * sizeof *p->starts);
    memset(p->tree, 0xff, 2 * (size_t)p->n_leaf * sizeof *p->tree);
    return WEFT_ERR_OK;
}

static weft_err place_all(planner *p, const weft_block *fixed, size_t n_fixed, weft_block *block,
                          weft_block **order, size_t n)
{
    for (size_t i = 0; i < n_fixed; i++)
        if (fixed[i].size > 0)
            WEFT_TRY(place(p, &fixed[i]));
    for (size_t i = 0; i < n; i++)
        order[i] = &block[i];
    qsort(order, n, sizeof *order, compare_blocks);
    for (size_t i = 0; i < n; i++) {
        order[i]->offset = 0;
        if (order[i]->size == 0)
            continue;
        if (!find_offset(p, order[i], &order[i]->offset))
            return WEFT_ERR_NOMEM;
        WEFT_TRY(place(p, order[i]));
    }
    return WEFT_ERR_OK;
}

weft_err weft_pack_around(const weft_block *fixed, size_t n_fixed, weft_block *block, size_t n,
                          uint64_t align, uint64_t *out_total)
{
    planner p = {.align = align ? align : 1};
    uint32_t last = 0;
    WEFT_TRY(find_last(fixed, n_fixed, &last));
    WEFT_TRY(find_last(block, n, &last));
    if (n > NONE / 2 || n_fixed > NONE / 2)
        return WEFT_ERR_NOMEM;
    weft_err err = start(&p, n + n_fixed, last);
    weft_block **order = calloc(n + 1, sizeof *order);
    if (err == WEFT_ERR_OK && !order)
        err = WEFT_ERR_NOMEM;
    if (err == WEFT_ERR_OK)
        err = place_all(&p, fixed, n_fixed, block, order, n);
    if (err == WEFT_ERR_OK)
        *out_total = p.total;
    free(order);
    free(p.entry);
    free(p.tree);
    free(p.starts);
    free(p.live);
    free(p.done);
    return err;
}

weft_err weft_pack_blocks(weft_block *block, size_t n, uint64_t align, uint64_t *out_total)
{
    return weft_pack_around(NULL, 0, block, n, align, out_total);
}
