/* Edges of a graph from what its items read and write.
 *
 * Memory is cut into segments; each knows who wrote it last and who has read it since. An item that
 * reads follows the writer; one that writes follows the writer and the readers. Then edges that
 * follow from others are dropped, by the set of all that comes before each item. */
#include "runtime/kernel/kernel.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

/* More items than this keep edges that follow from others: sets of them would take 64 MiB. */
enum { REDUCE_MAX = 23000 };

/* Readers of a segment: cell, then next. Lists only grow at the front, so that parts of a segment
 * that is cut share theirs. */
typedef struct cell {
    uint32_t item, next;
} cell;

typedef struct segment {
    uint64_t begin, end;
    uint32_t writer, readers;
} segment;

typedef struct hazards {
    segment *segment; /* sorted, apart from each other */
    size_t n_segment, segment_cap;
    cell *cell;
    size_t n_cell, cell_cap;
    uint32_t *mark; /* [item]: last item that follows it */
    uint32_t item;
    uint32_t *edge;
    size_t n_edge, edge_cap;
    size_t edge_start; /* of this item */
    uint64_t *before;  /* bits: [item][item]; NULL: too many */
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

/* Makes `x` a border: index of the first segment that ends behind it. */
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

/* Reads what is known of [begin, end), and fills gaps with what nobody has written. */
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

/* Keeps the edges that do not follow from later ones, and notes all that is before the item. */
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
