/* Which operators of several models correspond.
 *
 * Nodes correspond when operator, attributes and weights are the same; where the activations come
 * from does not matter here. Models are taken one after the other: the nodes of the next are
 * aligned with the columns found so far by a longest common subsequence (Needleman and Wunsch,
 * 1970, with matches only). Both sides are in topological order and a match never crosses another,
 * so the order of the columns is a topological order of every model: merging can make no cycle.
 * That is the guarantee which matching by similarity alone does not give (a1 < a2 in one model, b2
 * < b1 in the other, a1 = b1 and a2 = b2 would wait for each other).
 *
 * Equal heads and tails are cut off first; siblings are mostly that. O(n m) for what is left, up to
 * TABLE_MAX cells; beyond, what is left is not matched. */
#include "passes/merge.h"

#include "base/hash.h"

#include <string.h>

enum { TABLE_MAX = 1 << 26 };

/* -- Keys ------------------------------------------------------------------------------------- */

/* A dim as it is in every model: a constant, the batch, or something else. */
static int64_t plain_dim(weft_dim d, weft_dim batch)
{
    if (weft_dim_is_const(d))
        return d;
    return d == batch ? INT64_MIN : INT64_MIN + 1;
}

static uint64_t hash_text(uint64_t h, const char *s)
{
    return weft_hash_mix(h, weft_hash64(s, strlen(s), 0));
}

static uint64_t hash_attr(uint64_t h, const weft_attr *a, weft_dim batch)
{
    h = weft_hash_mix(weft_hash_mix(h, a->key), a->kind);
    uint64_t bits = 0;
    switch ((weft_attr_kind)a->kind) {
    case WEFT_KIND_INT:
        return weft_hash_mix(h, (uint64_t)a->u.i);
    case WEFT_KIND_FLOAT:
        memcpy(&bits, &a->u.f, sizeof bits);
        return weft_hash_mix(h, bits);
    case WEFT_KIND_STR:
        return hash_text(h, a->u.s);
    case WEFT_KIND_DTYPE:
        return weft_hash_mix(h, a->u.dtype);
    default:
        break;
    }
    h = weft_hash_mix(h, a->n);
    for (uint32_t i = 0; i < a->n; i++) {
        if (a->kind == WEFT_KIND_INTS)
            h = weft_hash_mix(h, (uint64_t)a->u.ints[i]);
        else if (a->kind == WEFT_KIND_FLOATS)
            h = weft_hash_mix(h, weft_hash64(&a->u.floats[i], sizeof a->u.floats[i], 0));
        else if (a->kind == WEFT_KIND_STRS)
            h = hash_text(h, a->u.strs[i]);
        else if (a->kind == WEFT_KIND_DIMS)
            h = weft_hash_mix(h, (uint64_t)plain_dim(a->u.dims[i], batch));
    }
    return h;
}

static uint64_t hash_node(const weft_module *m, weft_node n, weft_dim batch)
{
    weft_attrs attrs = weft_node_attrs(m, n);
    uint32_t n_in = weft_node_in_count(m, n), n_out = weft_node_out_count(m, n);
    uint64_t h = weft_hash_mix(weft_hash_mix(weft_node_op(m, n), n_in), n_out);
    for (uint32_t i = 0; i < attrs.n; i++)
        h = hash_attr(h, &attrs.at[i], batch);
    for (uint32_t i = 0; i < n_in; i++) {
        weft_val v = weft_node_in(m, n, i);
        bool weight = v.i && weft_val_get_kind(m, v) == WEFT_VAL_WEIGHT;
        h = weft_hash_mix(h, weight ? v.i : UINT64_MAX - (v.i == 0));
    }
    for (uint32_t i = 0; i < n_out; i++) {
        const weft_ttype *t = weft_val_ttype(m, weft_node_out(m, n, i));
        h = weft_hash_mix(weft_hash_mix(h, t->dtype), weft_hash_mix(t->layout, t->rank));
        for (uint32_t k = 0; k < t->rank; k++)
            h = weft_hash_mix(h, (uint64_t)plain_dim(t->dim[k], batch));
    }
    return h;
}

static bool same_attr(const weft_attr *a, weft_dim batch_a, const weft_attr *b, weft_dim batch_b)
{
    if (a->key != b->key || a->kind != b->kind)
        return false;
    switch ((weft_attr_kind)a->kind) {
    case WEFT_KIND_INT:
        return a->u.i == b->u.i;
    case WEFT_KIND_FLOAT:
        return memcmp(&a->u.f, &b->u.f, sizeof a->u.f) == 0;
    case WEFT_KIND_STR:
        return strcmp(a->u.s, b->u.s) == 0;
    case WEFT_KIND_DTYPE:
        return a->u.dtype == b->u.dtype;
    default:
        break;
    }
    if (a->n != b->n)
        return false;
    for (uint32_t i = 0; i < a->n; i++) {
        bool same = true;
        if (a->kind == WEFT_KIND_INTS)
            same = a->u.ints[i] == b->u.ints[i];
        else if (a->kind == WEFT_KIND_FLOATS)
            same = memcmp(&a->u.floats[i], &b->u.floats[i], sizeof a->u.floats[i]) == 0;
        else if (a->kind == WEFT_KIND_STRS)
            same = strcmp(a->u.strs[i], b->u.strs[i]) == 0;
        else if (a->kind == WEFT_KIND_DIMS)
            same = plain_dim(a->u.dims[i], batch_a) == plain_dim(b->u.dims[i], batch_b);
        if (!same)
            return false;
    }
    return true;
}

/* Equal hashes may be a collision: corresponding nodes must be the same in all that the hash saw.
 */
static bool same_node(const weft_module *m, weft_node a, weft_dim batch_a, weft_node b,
                      weft_dim batch_b)
{
    weft_attrs x = weft_node_attrs(m, a), y = weft_node_attrs(m, b);
    uint32_t n_in = weft_node_in_count(m, a), n_out = weft_node_out_count(m, a);
    if (weft_node_op(m, a) != weft_node_op(m, b) || n_in != weft_node_in_count(m, b) ||
        n_out != weft_node_out_count(m, b) || x.n != y.n)
        return false;
    for (uint32_t i = 0; i < x.n; i++)
        if (!same_attr(&x.at[i], batch_a, &y.at[i], batch_b))
            return false;
    for (uint32_t i = 0; i < n_in; i++) {
        weft_val v = weft_node_in(m, a, i), w = weft_node_in(m, b, i);
        bool weight = v.i && weft_val_get_kind(m, v) == WEFT_VAL_WEIGHT;
        if ((v.i == 0) != (w.i == 0) ||
            weight != (w.i && weft_val_get_kind(m, w) == WEFT_VAL_WEIGHT) || (weight && v.i != w.i))
            return false;
    }
    for (uint32_t i = 0; i < n_out; i++) {
        const weft_ttype *s = weft_val_ttype(m, weft_node_out(m, a, i));
        const weft_ttype *t = weft_val_ttype(m, weft_node_out(m, b, i));
        if (s->dtype != t->dtype || s->layout != t->layout || s->rank != t->rank)
            return false;
        for (uint32_t k = 0; k < s->rank; k++)
            if (plain_dim(s->dim[k], batch_a) != plain_dim(t->dim[k], batch_b))
                return false;
    }
    return true;
}

/* -- Alignment -------------------------------------------------------------------------------- */

typedef struct item {
    weft_node node;
    weft_dim batch;
    uint64_t key;
} item;

static bool matches(const weft_module *m, const item *a, const item *b)
{
    return a->key == b->key && same_node(m, a->node, a->batch, b->node, b->batch);
}

/* match[i]: 1 + index in b that a[i] goes with, 0: none. For the middle that is left. */
static void match_middle(weft_passctx *cx, const weft_module *m, const item *a, uint32_t n,
                         const item *b, uint32_t k, uint32_t *match)
{
    if (n == 0 || k == 0 || (uint64_t)(n + 1) * (k + 1) > TABLE_MAX)
        return;
    weft_arena_mark mark = weft_arena_get_mark(cx->scratch);
    size_t width = (size_t)k + 1;
    uint32_t *row = weft_arena_array(cx->scratch, width * 2, sizeof *row);
    uint8_t *step = weft_arena_array(cx->scratch, width * ((size_t)n + 1), 1);
    uint32_t *next = row + width; /* lengths of the row below */
    memset(row, 0, width * 2 * sizeof *row);
    for (uint32_t i = n; i-- > 0;) {
        row[k] = 0;
        for (uint32_t j = k; j-- > 0;) {
            uint8_t how = row[j + 1] > next[j] ? 2 : 1; /* skip b[j], skip a[i] */
            row[j] = how == 2 ? row[j + 1] : next[j];
            if (next[j + 1] + 1 > row[j] && matches(m, &a[i], &b[j])) {
                row[j] = next[j + 1] + 1;
                how = 0;
            }
            step[i * width + j] = how;
        }
        memcpy(next, row, width * sizeof *row);
    }
    for (uint32_t i = 0, j = 0; i < n && j < k;) {
        uint8_t how = step[i * width + j];
        if (how == 0)
            match[i] = j + 1;
        i += how != 2;
        j += how != 1;
    }
    weft_arena_reset(cx->scratch, mark);
}

static void match_items(weft_passctx *cx, const weft_module *m, const item *a, uint32_t n,
                        const item *b, uint32_t k, uint32_t *match)
{
    uint32_t head = 0, tail = 0;
    while (head < n && head < k && matches(m, &a[head], &b[head])) {
        match[head] = head + 1;
        head++;
    }
    while (tail < n - head && tail < k - head && matches(m, &a[n - 1 - tail], &b[k - 1 - tail])) {
        match[n - 1 - tail] = k - tail;
        tail++;
    }
    match_middle(cx, m, a + head, n - head - tail, b + head, k - head - tail, match + head);
    for (uint32_t i = head; i < n - tail; i++)
        match[i] += match[i] ? head : 0;
}

static item *list_items(weft_passctx *cx, const weft_graph *g, uint32_t *out_n)
{
    const weft_module *m = weft_graph_module(g);
    item *list = weft_arena_array(cx->scratch, (size_t)weft_graph_node_count(g) + 1, sizeof *list);
    weft_dim batch = weft_merge__batch(g);
    *out_n = 0;
    WEFT_FOREACH_NODE (m, g, n)
        list[(*out_n)++] = (item){n, batch, hash_node(m, n, batch)};
    return list;
}

static weft_column make_column(weft_passctx *cx, uint32_t n_model, uint32_t model, weft_node n)
{
    weft_column c = {.n = 1};
    c.node = weft_arena_array(cx->scratch, n_model, sizeof *c.node);
    memset(c.node, 0, n_model * sizeof *c.node);
    c.node[model] = n;
    return c;
}

/* Columns and a model's nodes in one order: matches where they meet, before them first what only
 * the columns have, then what only the model has. `seen`: an item of each column. */
static void add_model(weft_passctx *cx, weft_columns *c, uint32_t model, item **seen)
{
    const weft_module *m = weft_graph_module(c->model[model]);
    uint32_t k = 0, n = 0, j = 0;
    item *own = list_items(cx, c->model[model], &k);
    uint32_t *match = weft_arena_array(cx->scratch, (size_t)c->n + 1, sizeof *match);
    memset(match, 0, ((size_t)c->n + 1) * sizeof *match);
    match_items(cx, m, *seen, c->n, own, k, match);
    weft_column *at = weft_arena_array(cx->scratch, (size_t)c->n + k + 1, sizeof *at);
    item *both = weft_arena_array(cx->scratch, (size_t)c->n + k + 1, sizeof *both);
    for (uint32_t i = 0; i <= c->n; i++) {
        uint32_t until = i == c->n ? k : match[i] ? match[i] - 1 : j;
        for (; j < until; j++) {
            at[n] = make_column(cx, c->n_model, model, own[j].node);
            both[n++] = own[j];
        }
        if (i == c->n)
            break;
        at[n] = c->at[i];
        both[n] = (*seen)[i];
        if (match[i]) {
            at[n].node[model] = own[j++].node;
            at[n].n++;
        }
        n++;
    }
    c->at = at;
    c->n = n;
    *seen = both;
}

weft_columns weft_merge__align(weft_passctx *cx, weft_graph *const *model, uint32_t n_model)
{
    weft_columns c = {.model = model, .n_model = n_model};
    item *seen = NULL;
    for (uint32_t i = 0; i < n_model; i++)
        add_model(cx, &c, i, &seen);
    return c;
}
