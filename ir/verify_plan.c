/* The rules of the plan stage:
 *
 *   bucket-symbols  a value for each symbol of the graph, within its bounds
 *   buffer-owner    each value that needs memory of the arena has one buffer, no other has any
 *   buffer-size     as many bytes as the type needs at the bucket's dims
 *   buffer-life     from the node that defines the value, or the first value that shares its
 * memory, to the last node that reads one of them; for an output to the end buffer-arena    inside
 * the arena buffer-overlap  buffers that live at the same time share no bytes */
#include "base/num.h"
#include "ir/verify_int.h"

#include <search.h>
#include <stdlib.h>

typedef struct plan {
    weft_verifier *v;
    const weft_bucket *b;
    weft_places places; /* at the bucket's dims */
    int64_t *value;     /* of symbols of the pool */
    uint32_t n_value;
} plan;

/* NULL: the value needs no memory of the arena. */
static const weft_place_value *find_place(const plan *p, weft_val val)
{
    uint32_t number = p->places.number[val.i];
    const weft_place_value *place = &p->places.value[number];
    return number && place->place == WEFT_PLACE_ARENA ? place : NULL;
}

static bool check_symbols(plan *p)
{
    weft_verifier *v = p->v;
    bool ok = p->b->n_symbol == weft_graph_symbol_count(v->g);
    if (!ok)
        weft_verifier__report(v, "bucket-symbols", weft_verifier__where(v),
                              "%u values for %u symbols", p->b->n_symbol,
                              weft_graph_symbol_count(v->g));
    for (uint32_t i = 0; i < p->n_value; i++)
        p->value[i] = -1;
    for (uint32_t i = 0; ok && i < p->b->n_symbol; i++) {
        weft_dim d = weft_graph_symbol_dim(v->g, i);
        int64_t lo, hi;
        weft_dim_bounds(v->dims, d, &lo, &hi);
        p->value[weft_dim_as_symbol(v->dims, d)] = p->b->symbol[i];
        if (p->b->symbol[i] >= lo && p->b->symbol[i] <= hi)
            continue;
        weft_verifier__report(v, "bucket-symbols", weft_verifier__where(v),
                              "symbol \"%s\" is %lld, its bounds are %lld..%lld",
                              weft_graph_symbol_name(v->g, i), (long long)p->b->symbol[i],
                              (long long)lo, (long long)hi);
        ok = false;
    }
    return ok;
}

static void check_buffer(plan *p, const weft_buffer *f)
{
    weft_verifier *v = p->v;
    weft_node n = weft_val_node(v->m, f->val);
    weft_where where = n.i ? weft_node_where(v->m, n) : weft_verifier__where(v);
    const char *name = weft_verifier__val(v, f->val);
    const weft_place_value *place = find_place(p, f->val);
    uint64_t end;
    if (!place) {
        weft_verifier__report(v, "buffer-owner", where, "%s has a buffer but needs none", name);
        return;
    }
    if (f->bytes < place->bytes)
        weft_verifier__report(v, "buffer-size", where, "%s has a buffer of %llu bytes", name,
                              (unsigned long long)f->bytes);
    if (f->first > place->first || f->last < place->last)
        weft_verifier__report(v, "buffer-life", where, "%s lives %u..%u, its buffer %u..%u", name,
                              place->first, place->last, f->first, f->last);
    if (!weft_size_add(f->offset, f->bytes, &end) || end > p->b->arena_bytes)
        weft_verifier__report(v, "buffer-arena", where,
                              "%s: %llu bytes at %llu are outside the arena of %llu", name,
                              (unsigned long long)f->bytes, (unsigned long long)f->offset,
                              (unsigned long long)p->b->arena_bytes);
}

/* The begin or the end of a buffer's life. */
typedef struct event {
    const weft_buffer *buffer;
    uint64_t time; /* begin: 2 * node; end: 2 * node + 1 */
} event;

static int by_time(const void *x, const void *y)
{
    const event *a = x, *b = y;
    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    return a->buffer < b->buffer ? -1 : a->buffer > b->buffer;
}

/* An order of disjoint ranges of bytes; "equal": they share a byte. */
static int by_bytes(const void *x, const void *y)
{
    const weft_buffer *a = x, *b = y;
    if (a->offset < b->offset ? b->offset - a->offset < a->bytes : a->offset - b->offset < b->bytes)
        return 0;
    return a->offset < b->offset ? -1 : 1;
}

/* Sweep over time with the tree of the ranges that are live; each range found to overlap one of
 * them is reported once. O(n log n). */
static void check_overlap(plan *p)
{
    uint32_t n = 0;
    event *e = weft_arena_array(p->v->scratch, 2 * (size_t)p->b->n_buffer + 1, sizeof *e);
    for (uint32_t i = 0; i < p->b->n_buffer; i++) {
        const weft_buffer *f = &p->b->buffer[i];
        if (f->bytes == 0 || f->first > f->last)
            continue; /* takes no room; the latter is reported by buffer-life */
        e[n++] = (event){f, 2 * (uint64_t)f->first};
        e[n++] = (event){f, 2 * (uint64_t)f->last + 1};
    }
    qsort(e, n, sizeof *e, by_time);
    void *live = NULL;
    for (uint32_t i = 0; i < n; i++) {
        const weft_buffer *f = e[i].buffer;
        bool begins = e[i].time % 2 == 0;
        const weft_buffer *const *at =
            begins ? tsearch(f, &live, by_bytes) : tfind(f, &live, by_bytes);
        const weft_buffer *other = at ? *at : NULL;
        if (!begins && other == f)
            tdelete(f, &live, by_bytes);
        else if (begins && !other)
            weft_verifier__report(p->v, "buffer-overlap", weft_verifier__where(p->v),
                                  "out of memory");
        else if (begins && other != f)
            weft_verifier__report(p->v, "buffer-overlap", weft_verifier__where(p->v),
                                  "%s and %s share bytes while both live",
                                  weft_verifier__val(p->v, other->val),
                                  weft_verifier__val(p->v, f->val));
    }
}

static void check_owners(plan *p)
{
    weft_verifier *v = p->v;
    bool *has = weft_arena_array(v->scratch, v->m->vals.len, sizeof *has);
    for (uint32_t i = 0; i < p->b->n_buffer; i++) {
        uint32_t val = p->b->buffer[i].val.i;
        if (has[val])
            weft_verifier__report(v, "buffer-owner", weft_verifier__where(v), "%s has two buffers",
                                  weft_verifier__val(v, p->b->buffer[i].val));
        has[val] = true;
    }
    WEFT_FOREACH_NODE (v->m, v->g, n) {
        for (uint32_t i = 0; i < weft_node_out_count(v->m, n); i++) {
            weft_val val = weft_node_out(v->m, n, i);
            if (find_place(p, val) && !has[val.i])
                weft_verifier__report(v, "buffer-owner", weft_node_where(v->m, n),
                                      "%s has no buffer", weft_verifier__val(v, val));
        }
    }
}

void weft_verifier__plan(weft_verifier *v)
{
    plan p = {.v = v, .n_value = weft_dim_symbol_count(v->dims)};
    p.value = weft_arena_array(v->scratch, p.n_value, sizeof *p.value);
    weft_graph_place_start(v->g, v->scratch, &p.places);
    for (uint32_t i = 0; i < weft_graph_bucket_count(v->g); i++) {
        p.b = weft_graph_bucket(v->g, i);
        if (!check_symbols(&p))
            continue;
        if (!weft_graph_place(v->g, v->dims, p.value, p.n_value, &p.places)) {
            weft_verifier__report(v, "bucket-symbols", weft_verifier__where(v),
                                  "bucket %u: a dim has no value", i);
            continue;
        }
        check_owners(&p);
        for (uint32_t k = 0; k < p.b->n_buffer; k++)
            check_buffer(&p, &p.b->buffer[k]);
        check_overlap(&p);
    }
}
