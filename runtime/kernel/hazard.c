/* Computes the edges of a dependency graph from the memory that its items read and write.
 *
 * Memory is divided into segments. Each segment stores its last writer and the readers since that
 * write. An item that reads a segment depends on its writer (read after write); an item that writes
 * a segment depends on its writer and its readers (write after write, write after read). Transitive
 * reduction then removes edges that are implied by others, using a bit set of all predecessors of
 * each item. */
#include "runtime/kernel/kernel.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

/* With more items than this, edges are not reduced: the bit sets would exceed 64 MiB. */
enum { REDUCE_MAX = 23000 };

/* A linked list of the readers of a segment. Items are only added at the front, so that the parts
 * of a divided segment share the rest of the list. */
typedef struct cell {
    uint32_t item, next;
} cell;

typedef struct segment {
    uint64_t begin, end;
    uint32_t writer, readers;
} segment;

typedef struct hazards {
    segment *segment; /* sorted, disjoint */
    size_t n_segment, segment_cap;
    cell *cell;
    size_t n_cell, cell_cap;
    uint32_t *mark; /* [item]: the last item that got an edge from it */
    uint32_t item;
    uint32_t *edge;
    size_t n_edge, edge_cap;
    size_t edge_start; /* index of the current item's first edge */
    uint64_t *before;  /* [item]: bit set of its predecessors; NULL: too many items */
    size_t words;
} hazards;

static bool grow(void *array, size_t *cap, size_t want, size_t size)
{
    void **at = array;
    if (want <= *cap)
        return true;
    size_t n = *cap ? *cap * 2 : 64;
    while (n < want)
        n *= 2;
    void *bigger = realloc(*at, n * size);
    if (!bigger)
        return false;
    *at = bigger;
    *cap = n;
    return true;
}

static bool follow(hazards *h, uint32_t item)
{
    if (item == NONE || item == h->item || h->mark[item] == h->item)
        return true;
    h->mark[item] = h->item;
    if (!grow(&h->edge, &h->edge_cap, h->n_edge + 1, sizeof *h->edge))
        return false;
    h->edge[h->n_edge++] = item;
    return true;
}

/* -- Segments ------------------------------------------------------------------------------- */

static bool insert(hazards *h, size_t at, segment s)
{
    if (!grow(&h->segment, &h->segment_cap, h->n_segment + 1, sizeof s))
        return false;
    memmove(&h->segment[at + 1], &h->segment[at], (h->n_segment - at) * sizeof s);
    h->segment[at] = s;
    h->n_segment++;
    return true;
}

/* Divides the segment that contains `x`, if any, at x. *out: index of the first segment that ends
 * after x. */
static bool cut(hazards *h, uint64_t x, size_t *out)
{
    size_t lo = 0, hi = h->n_segment;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (h->segment[mid].end <= x)
            lo = mid + 1;
        else
            hi = mid;
    }
    *out = lo;
    if (lo == h->n_segment || h->segment[lo].begin >= x)
        return true;
    segment left = h->segment[lo];
    left.end = x;
    h->segment[lo].begin = x;
    *out = lo + 1;
    return insert(h, lo, left);
}

static bool read_segment(hazards *h, segment *s)
{
    if (!follow(h, s->writer))
        return false;
    if (s->readers != NONE && h->cell[s->readers].item == h->item)
        return true;
    if (!grow(&h->cell, &h->cell_cap, h->n_cell + 1, sizeof *h->cell))
        return false;
    h->cell[h->n_cell] = (cell){h->item, s->readers};
    s->readers = (uint32_t)h->n_cell++;
    return true;
}

/* Reads all segments of [begin, end) and adds segments without a writer for the gaps. */
static bool read_span(hazards *h, const weft_touch *span)
{
    size_t at;
    uint64_t x = span->begin;
    if (!cut(h, span->end, &at) || !cut(h, span->begin, &at))
        return false;
    while (x < span->end) {
        if (at == h->n_segment || h->segment[at].begin > x) {
            uint64_t end = span->end;
            if (at < h->n_segment && h->segment[at].begin < end)
                end = h->segment[at].begin;
            if (!insert(h, at, (segment){x, end, NONE, NONE}))
                return false;
        }
        if (!read_segment(h, &h->segment[at]))
            return false;
        x = h->segment[at++].end;
    }
    return true;
}

static bool write_span(hazards *h, const weft_touch *span)
{
    size_t from, to;
    if (!cut(h, span->begin, &from) || !cut(h, span->end, &to))
        return false;
    for (size_t i = from; i < to; i++) {
        if (!follow(h, h->segment[i].writer))
            return false;
        for (uint32_t c = h->segment[i].readers; c != NONE; c = h->cell[c].next)
            if (!follow(h, h->cell[c].item))
                return false;
    }
    if (to > from)
        memmove(&h->segment[from], &h->segment[to], (h->n_segment - to) * sizeof(segment));
    h->n_segment -= to - from;
    return insert(h, from, (segment){span->begin, span->end, h->item, NONE});
}

/* -- Edges ---------------------------------------------------------------------------------- */

static int by_descent(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Keeps the edges of the current item that are not implied by its later predecessors, and collects
 * its set of predecessors. */
static void reduce(hazards *h)
{
    size_t n = h->edge_start;
    uint64_t *mine;
    qsort(h->edge + n, h->n_edge - n, sizeof *h->edge, by_descent);
    if (!h->before)
        return;
    mine = h->before + h->item * h->words;
    for (size_t i = n; i < h->n_edge; i++) {
        uint32_t d = h->edge[i];
        const uint64_t *its = h->before + d * h->words;
        if (mine[d / 64] >> d % 64 & 1)
            continue;
        for (size_t w = 0; w <= d / 64; w++)
            mine[w] |= its[w];
        mine[d / 64] |= (uint64_t)1 << d % 64;
        h->edge[n++] = d;
    }
    h->n_edge = n;
}

static bool add_item(hazards *h, const weft_touch *span, uint32_t n)
{
    h->edge_start = h->n_edge;
    for (uint32_t i = 0; i < n; i++)
        if ((span[i].access & WEFT_ACCESS_READ) && span[i].begin < span[i].end &&
            !read_span(h, &span[i]))
            return false;
    for (uint32_t i = 0; i < n; i++)
        if ((span[i].access & WEFT_ACCESS_WRITE) && span[i].begin < span[i].end &&
            !write_span(h, &span[i]))
            return false;
    reduce(h);
    return true;
}

weft_err weft_hazard__edges(const weft_touch *span, const uint32_t *first, uint32_t n,
                            uint32_t **out_edge, uint32_t **out_edge_first)
{
    hazards h = {.words = ((size_t)n + 63) / 64};
    uint32_t *edge_first = calloc((size_t)n + 1, sizeof *edge_first);
    h.mark = malloc(((size_t)n + 1) * sizeof *h.mark);
    bool ok = edge_first && h.mark && grow(&h.edge, &h.edge_cap, 1, sizeof *h.edge);
    if (ok && n <= REDUCE_MAX) {
        h.before = calloc((size_t)n * h.words + 1, sizeof *h.before);
        ok = h.before != NULL;
    }
    if (ok)
        memset(h.mark, 0xff, ((size_t)n + 1) * sizeof *h.mark);
    for (uint32_t i = 0; ok && i < n; i++) {
        h.item = i;
        ok = add_item(&h, span + first[i], first[i + 1] - first[i]) && h.n_edge < NONE;
        edge_first[i + 1] = (uint32_t)h.n_edge;
    }
    free(h.segment);
    free(h.cell);
    free(h.mark);
    free(h.before);
    if (!ok) {
        free(h.edge);
        free(edge_first);
        return WEFT_ERR_NOMEM;
    }
    *out_edge = h.edge;
    *out_edge_first = edge_first;
    return WEFT_ERR_OK;
}
