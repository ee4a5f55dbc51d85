/* The rules of the plan stage:
 *
 *   bucket-symbols  a value for each symbol of the graph, within its bounds
 *   buffer-owner    each value that needs memory of the arena has one buffer, no other has any
 *   buffer-size     as many bytes as the type needs at the bucket's dims
 *   buffer-life     from the node that makes the value to the last that reads it or a view of it
 *   buffer-arena    inside the arena
 *   buffer-overlap  buffers that live at the same time share no bytes */
#include "base/num.h"
#include "ir/verify_int.h"

#include <string.h>

enum { BUFFERS_MAX = 1 << 16 };

typedef struct plan {
    weft_verifier *v;
    const weft_bucket *b;
    uint32_t *root; /* by value: what a view views, 0: itself */
    uint32_t *last; /* by value: 1 + number of the last node that reads it */
    bool *outside;  /* by value: memory of the caller */
    int64_t *value; /* of symbols of the pool */
    uint32_t n_value;
} plan;

/* The value whose memory `val` is. */
static weft_val find_root(const plan *p, weft_val val)
{
    return p->root[val.i] ? (weft_val){p->root[val.i]} : val;
}

static bool needs_buffer(const plan *p, weft_val val)
{
    const weft_verifier *v = p->v;
    const weft_ttype *t = weft_val_ttype(v->m, val);
    weft_node n = weft_val_node(v->m, val);
    if (!n.i || t->dtype == WEFT_DTYPE_NONE || p->outside[val.i] ||
        (weft_node_opdef(v->m, n)->traits & WEFT_T_VIEW))
        return false;
    for (uint32_t k = 0; k < t->rank; k++)
        if (weft_dim_is_data(v->dims, t->dim[k]))
            return false;
    return true;
}

static void find_lives(plan *p)
{
    weft_verifier *v = p->v;
    uint32_t number = 0;
    WEFT_FOREACH_NODE (v->m, v->g, n) {
        number++;
        for (uint32_t i = 0; i < weft_node_in_count(v->m, n); i++)
            if (weft_node_in(v->m, n, i).i)
                p->last[find_root(p, weft_node_in(v->m, n, i)).i] = number;
        if (weft_node_opdef(v->m, n)->traits & WEFT_T_VIEW)
            p->root[weft_node_out(v->m, n, 0).i] = find_root(p, weft_node_in(v->m, n, 0)).i;
    }
    for (uint32_t i = 0; i < weft_graph_output_count(v->g); i++)
        p->outside[find_root(p, weft_graph_output(v->g, i)).i] = true;
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
    if (!v->order[f->val.i] || !needs_buffer(p, f->val)) {
        weft_verifier__report(v, "buffer-owner", where, "%s has a buffer but needs none", name);
        return;
    }
    const weft_ttype *t = weft_val_ttype(v->m, f->val);
    int64_t dim[WEFT_RANK_MAX];
    uint64_t need, end;
    bool known = true;
    for (uint32_t k = 0; known && k < t->rank; k++)
        known = weft_dim_eval(v->dims, t->dim[k], p->value, p->n_value, &dim[k]);
    if (known &&
        (!weft_layout_bytes((weft_dtype)t->dtype, (weft_layout)t->layout, dim, t->rank, &need) ||
         f->bytes < need))
        weft_verifier__report(v, "buffer-size", where, "%s has a buffer of %llu bytes", name,
                              (unsigned long long)f->bytes);
    uint32_t made = v->order[f->val.i] - 1;
    uint32_t read = p->last[f->val.i] > made ? p->last[f->val.i] - 1 : made;
    if (f->first > made || f->last < read)
        weft_verifier__report(v, "buffer-life", where, "%s lives %u..%u, its buffer %u..%u", name,
                              made, read, f->first, f->last);
    if (!weft_size_add(f->offset, f->bytes, &end) || end > p->b->arena_bytes)
        weft_verifier__report(v, "buffer-arena", where,
                              "%s: %llu bytes at %llu are outside the arena of %llu", name,
                              (unsigned long long)f->bytes, (unsigned long long)f->offset,
                              (unsigned long long)p->b->arena_bytes);
}

static void check_overlap(plan *p)
{
    for (uint32_t i = 0; i < p->b->n_buffer; i++) {
        for (uint32_t j = i + 1; j < p->b->n_buffer; j++) {
            const weft_buffer *a = &p->b->buffer[i], *b = &p->b->buffer[j];
            bool in_time = a->first <= b->last && b->first <= a->last;
            bool in_space = a->offset < b->offset ? b->offset - a->offset < a->bytes && b->bytes
                                                  : a->offset - b->offset < b->bytes && a->bytes;
            if (in_time && in_space)
                weft_verifier__report(p->v, "buffer-overlap", weft_verifier__where(p->v),
                                      "%s and %s share bytes while both live",
                                      weft_verifier__val(p->v, a->val),
                                      weft_verifier__val(p->v, b->val));
        }
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
            if (needs_buffer(p, val) && !has[val.i])
                weft_verifier__report(v, "buffer-owner", weft_node_where(v->m, n),
                                      "%s has no buffer", weft_verifier__val(v, val));
        }
    }
}

void weft_verifier__plan(weft_verifier *v)
{
    plan p = {.v = v, .n_value = weft_dim_symbol_count(v->dims)};
    p.root = weft_arena_array(v->scratch, v->m->vals.len, sizeof *p.root);
    p.last = weft_arena_array(v->scratch, v->m->vals.len, sizeof *p.last);
    p.outside = weft_arena_array(v->scratch, v->m->vals.len, sizeof *p.outside);
    p.value = weft_arena_array(v->scratch, p.n_value, sizeof *p.value);
    find_lives(&p);
    for (uint32_t i = 0; i < weft_graph_bucket_count(v->g); i++) {
        p.b = weft_graph_bucket(v->g, i);
        if (p.b->n_buffer > BUFFERS_MAX) {
            weft_verifier__report(v, "buffer-owner", weft_verifier__where(v),
                                  "a bucket has over %d buffers", BUFFERS_MAX);
            continue;
        }
        if (!check_symbols(&p))
            continue;
        check_owners(&p);
        for (uint32_t k = 0; k < p.b->n_buffer; k++)
            check_buffer(&p, &p.b->buffer[k]);
        check_overlap(&p);
    }
}
