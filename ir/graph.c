/* Graphs, nodes, values and the lists of their uses. */
#include "ir/ir_int.h"

#include <assert.h>
#include <string.h>

/* -- Graphs --------------------------------------------------------------------------------- */

weft_graph *weft_graph_create(weft_module *m, const char *name)
{
    weft_graph *g = weft_arena_alloc(m->arena, sizeof *g);
    g->m = m;
    g->name = weft_module__name(m, name);
    g->idx = m->graphs.len;
    WEFT_VEC_PUSH(m->arena, &m->graphs, g);
    weft_map_put(m->graph_names, weft_hash64(g->name, strlen(g->name), 0), (uintptr_t)g);
    return g;
}

uint32_t weft_graph_count(const weft_module *m)
{
    return m->graphs.len;
}

weft_graph *weft_graph_at(const weft_module *m, uint32_t i)
{
    return m->graphs.at[i];
}

weft_graph *weft_graph_find(const weft_module *m, const char *name)
{
    uint64_t at;
    if (!weft_map_get(m->graph_names, weft_hash64(name, strlen(name), 0), &at))
        return NULL;
    const weft_graph *last = (const weft_graph *)(uintptr_t)at;
    if (last->idx < m->graphs.len && m->graphs.at[last->idx] == last &&
        strcmp(last->name, name) == 0)
        return m->graphs.at[last->idx];
    /* It was removed, or the names have one hash. */
    for (uint32_t i = 0; i < m->graphs.len; i++)
        if (strcmp(m->graphs.at[i]->name, name) == 0)
            return m->graphs.at[i];
    return NULL;
}

uint32_t weft_graph_index(const weft_graph *g)
{
    return g->idx;
}

const char *weft_graph_name(const weft_graph *g)
{
    return g->name;
}

weft_module *weft_graph_module(const weft_graph *g)
{
    return g->m;
}

/* -- Symbols ---------------------------------------------------------------------------------- */

bool weft_text__is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
}

/* A valid name of the text form: other characters become '_'; the first one is no digit. */
static char *clean_symbol(weft_arena *arena, const char *graph, const char *name, uint32_t n)
{
    char *s = graph ? weft_arena_printf(arena, "%s.%s", graph, name)
                    : weft_arena_printf(arena, "%s", name);
    if (n)
        s = weft_arena_printf(arena, "%s.%u", s, n);
    if (!weft_text__is_name(s[0]) || s[0] == '.' || (s[0] >= '0' && s[0] <= '9'))
        s = weft_arena_printf(arena, "_%s", s);
    for (char *c = s; *c; c++)
        if (!weft_text__is_name(*c))
            *c = '_';
    return s;
}

static bool has_symbol(const weft_dimpool *pool, const char *name)
{
    for (uint32_t i = 0; i < weft_dim_symbol_count(pool); i++)
        if (strcmp(weft_dim_symbol_name(pool, i), name) == 0)
            return true;
    return false;
}

void weft_graph__add_symbol(weft_graph *g, const char *name, weft_dim dim)
{
    weft_graph_symbol_rec rec = {weft_module__name(g->m, name), dim};
    WEFT_VEC_PUSH(g->m->arena, &g->symbols, rec);
}

weft_dim weft_graph_symbol(weft_graph *g, const char *name, int64_t lo, int64_t hi)
{
    weft_module *m = g->m;
    for (uint32_t i = 0; i < g->symbols.len; i++) {
        if (strcmp(g->symbols.at[i].name, name) == 0) {
            uint32_t sym = weft_dim_as_symbol(m->dims, g->symbols.at[i].dim);
            return weft_dim_symbol(m->dims, weft_dim_symbol_name(m->dims, sym), lo, hi);
        }
    }
    const char *in_pool = clean_symbol(m->arena, NULL, name, 0);
    for (uint32_t n = 0; has_symbol(m->dims, in_pool); n++)
        in_pool = clean_symbol(m->arena, g->name, name, n);
    weft_dim dim = weft_dim_symbol(m->dims, in_pool, lo, hi);
    weft_graph__add_symbol(g, name, dim);
    return dim;
}

uint32_t weft_graph_symbol_count(const weft_graph *g)
{
    return g->symbols.len;
}

const char *weft_graph_symbol_name(const weft_graph *g, uint32_t i)
{
    return g->symbols.at[i].name;
}

weft_dim weft_graph_symbol_dim(const weft_graph *g, uint32_t i)
{
    return g->symbols.at[i].dim;
}

void weft_graph_share_symbol(weft_graph *g, const char *name, weft_dim dim)
{
    weft_graph__add_symbol(g, name, dim);
}

/* -- Parts ------------------------------------------------------------------------------------ */

void weft_graph_add_part(weft_graph *g, const weft_part *part)
{
    weft_part copy = *part;
    copy.model = weft_module__name(g->m, part->model);
    WEFT_VEC_PUSH(g->m->arena, &g->parts, copy);
}

uint32_t weft_graph_part_count(const weft_graph *g)
{
    return g->parts.len;
}

const weft_part *weft_graph_part(const weft_graph *g, uint32_t i)
{
    return &g->parts.at[i];
}

void weft_graph_set_packed(weft_graph *g)
{
    g->is_packed = true;
}

bool weft_graph_is_packed(const weft_graph *g)
{
    return g->is_packed;
}

void weft_graph_set_limit(weft_graph *g, uint64_t elements)
{
    g->limit = elements;
}

uint64_t weft_graph_limit(const weft_graph *g)
{
    return g->limit;
}

/* -- Inputs and outputs ------------------------------------------------------------------------ */

weft_val weft_module__add_val(weft_module *m, const weft_val_rec *rec)
{
    WEFT_VEC_PUSH(m->arena, &m->vals, *rec);
    return (weft_val){m->vals.len - 1};
}

weft_val weft_graph_add_input(weft_graph *g, const char *name, weft_type type)
{
    weft_val_rec rec = {
        .type = type.i, .def = g->idx, .idx = g->inputs.len, .kind = WEFT_VAL_INPUT};
    weft_graph_port port = {weft_module__name(g->m, name), weft_module__add_val(g->m, &rec)};
    WEFT_VEC_PUSH(g->m->arena, &g->inputs, port);
    return port.val;
}

void weft_graph_add_output(weft_graph *g, const char *name, weft_val val)
{
    weft_graph_port port = {weft_module__name(g->m, name), val};
    WEFT_VEC_PUSH(g->m->arena, &g->outputs, port);
    g->m->vals.at[val.i].n_output++;
}

uint32_t weft_graph_input_count(const weft_graph *g)
{
    return g->inputs.len;
}

uint32_t weft_graph_output_count(const weft_graph *g)
{
    return g->outputs.len;
}

weft_val weft_graph_input(const weft_graph *g, uint32_t i)
{
    return g->inputs.at[i].val;
}

weft_val weft_graph_output(const weft_graph *g, uint32_t i)
{
    return g->outputs.at[i].val;
}

const char *weft_graph_input_name(const weft_graph *g, uint32_t i)
{
    return g->inputs.at[i].name;
}

const char *weft_graph_output_name(const weft_graph *g, uint32_t i)
{
    return g->outputs.at[i].name;
}

void weft_graph_set_output(weft_graph *g, uint32_t i, weft_val val)
{
    g->m->vals.at[g->outputs.at[i].val.i].n_output--;
    g->m->vals.at[val.i].n_output++;
    g->outputs.at[i].val = val;
}

void weft_graph_drop_outputs(weft_graph *g)
{
    while (g->outputs.len > 0)
        g->m->vals.at[g->outputs.at[--g->outputs.len].val.i].n_output--;
}

bool weft_val_is_output(const weft_graph *g, weft_val v)
{
    const weft_val_rec *rec = &g->m->vals.at[v.i];
    if (rec->n_output == 0 || rec->kind != WEFT_VAL_WEIGHT)
        return rec->n_output > 0;
    for (uint32_t i = 0; i < g->outputs.len; i++) /* weights may be outputs of other graphs */
        if (g->outputs.at[i].val.i == v.i)
            return true;
    return false;
}

/* -- Uses ------------------------------------------------------------------------------------- */

static void link_use(weft_module *m, uint32_t use, uint32_t val)
{
    weft_use_rec *u = &m->uses.at[use];
    u->val = val;
    u->prev = u->next = 0;
    if (!val)
        return;
    weft_val_rec *v = &m->vals.at[val];
    u->prev = v->last_use;
    if (v->last_use)
        m->uses.at[v->last_use].next = use;
    else
        v->first_use = use;
    v->last_use = use;
    v->n_use++;
}

static void unlink_use(weft_module *m, uint32_t use)
{
    weft_use_rec *u = &m->uses.at[use];
    if (!u->val)
        return;
    weft_val_rec *v = &m->vals.at[u->val];
    if (u->prev)
        m->uses.at[u->prev].next = u->next;
    else
        v->first_use = u->next;
    if (u->next)
        m->uses.at[u->next].prev = u->prev;
    else
        v->last_use = u->prev;
    v->n_use--;
    u->val = u->prev = u->next = 0;
}

uint32_t weft_val_use_count(const weft_module *m, weft_val v)
{
    return m->vals.at[v.i].n_use;
}

static weft_use use_of(const weft_module *m, uint32_t use)
{
    if (!use)
        return (weft_use){{0}, 0};
    uint32_t node = m->uses.at[use].node;
    return (weft_use){{node}, use - m->nodes.at[node].first_in};
}

weft_use weft_val_use(const weft_module *m, weft_val v, uint32_t i)
{
    uint32_t use = m->vals.at[v.i].first_use;
    while (i-- && use)
        use = m->uses.at[use].next;
    return use_of(m, use);
}

weft_use weft_use_next(const weft_module *m, weft_use u)
{
    return use_of(m, m->uses.at[m->nodes.at[u.node.i].first_in + u.idx].next);
}

void weft_val_replace(weft_graph *g, weft_val old, weft_val with)
{
    weft_module *m = g->m;
    assert(old.i);
    if (old.i == with.i)
        return;
    while (m->vals.at[old.i].first_use) {
        uint32_t use = m->vals.at[old.i].first_use;
        unlink_use(m, use);
        link_use(m, use, with.i);
    }
    for (uint32_t i = 0; m->vals.at[old.i].n_output > 0 && i < g->outputs.len; i++)
        if (g->outputs.at[i].val.i == old.i)
            weft_graph_set_output(g, i, with);
}

/* -- Nodes ------------------------------------------------------------------------------------ */

static uint32_t add_uses(weft_module *m, uint32_t node, uint32_t n)
{
    uint32_t first = m->uses.len;
    for (uint32_t i = 0; i < n; i++)
        WEFT_VEC_PUSH(m->arena, &m->uses, ((weft_use_rec){.node = node}));
    return first;
}

static void copy_attr(weft_module *m, weft_attr *dst, const weft_attr *src)
{
    *dst = *src;
    size_t size = 0;
    const void *from = NULL;
    switch (src->kind) {
    case WEFT_KIND_STR:
        dst->u.s = weft_module__text(m, src->u.s ? src->u.s : "");
        return;
    case WEFT_KIND_STRS: {
        const char **strs = weft_arena_array(m->arena, src->n, sizeof *strs);
        for (uint32_t i = 0; i < src->n; i++)
            strs[i] = weft_module__text(m, src->u.strs[i]);
        dst->u.strs = strs;
        return;
    }
    case WEFT_KIND_INTS:
        size = sizeof *src->u.ints;
        from = src->u.ints;
        break;
    case WEFT_KIND_FLOATS:
        size = sizeof *src->u.floats;
        from = src->u.floats;
        break;
    case WEFT_KIND_DIMS:
        size = sizeof *src->u.dims;
        from = src->u.dims;
        break;
    default:
        return;
    }
    void *to = weft_arena_array(m->arena, src->n, size);
    if (src->n)
        memcpy(to, from, src->n * size);
    dst->u.ints = to;
}

/* Insertion sort by key: lists are short. */
static const weft_attr *copy_attrs(weft_module *m, const weft_attr *attr, uint32_t n)
{
    if (!n)
        return NULL;
    weft_attr *at = weft_arena_array(m->arena, n, sizeof *at);
    for (uint32_t i = 0; i < n; i++) {
        weft_attr a;
        copy_attr(m, &a, &attr[i]);
        uint32_t j = i;
        for (; j > 0 && at[j - 1].key > a.key; j--)
            at[j] = at[j - 1];
        at[j] = a;
    }
    return at;
}

/* Links a node into the list before `before`; none: at the end. */
static void link_node(weft_graph *g, uint32_t node, uint32_t before)
{
    weft_module *m = g->m;
    weft_node_rec *n = &m->nodes.at[node];
    n->next = before;
    n->prev = before ? m->nodes.at[before].prev : g->last;
    if (n->prev)
        m->nodes.at[n->prev].next = node;
    else
        g->first = node;
    if (before)
        m->nodes.at[before].prev = node;
    else
        g->last = node;
}

static void unlink_node(weft_graph *g, uint32_t node)
{
    weft_module *m = g->m;
    weft_node_rec *n = &m->nodes.at[node];
    if (n->prev)
        m->nodes.at[n->prev].next = n->next;
    else
        g->first = n->next;
    if (n->next)
        m->nodes.at[n->next].prev = n->prev;
    else
        g->last = n->prev;
    n->prev = n->next = 0;
}

weft_node weft_node_insert_before(weft_graph *g, weft_node before, const weft_node_spec *spec)
{
    weft_module *m = g->m;
    uint32_t node = m->nodes.len;
    weft_node_rec rec = {.op = (uint16_t)spec->op,
                         .n_in = spec->n_in,
                         .cap_in = spec->n_in,
                         .n_out = spec->n_out,
                         .graph = g->idx,
                         .n_attr = spec->n_attr,
                         .item = weft_module__name(m, spec->loc.item),
                         .file_id = spec->loc.file_id,
                         .line = spec->loc.line};
    rec.attr = copy_attrs(m, spec->attr, spec->n_attr);
    rec.first_in = add_uses(m, node, spec->n_in);
    rec.first_out = m->vals.len;
    for (uint32_t i = 0; i < spec->n_out; i++) {
        weft_val_rec val = {.type = spec->out[i].i, .def = node, .idx = i, .kind = WEFT_VAL_NODE};
        weft_module__add_val(m, &val);
    }
    WEFT_VEC_PUSH(m->arena, &m->nodes, rec);
    for (uint32_t i = 0; i < spec->n_in; i++)
        link_use(m, rec.first_in + i, spec->in[i].i);
    link_node(g, node, before.i);
    g->n_node++;
    return (weft_node){node};
}

weft_node weft_node_append(weft_graph *g, const weft_node_spec *spec)
{
    return weft_node_insert_before(g, (weft_node){0}, spec);
}

void weft_node_remove(weft_graph *g, weft_node n)
{
    weft_module *m = g->m;
    weft_node_rec *rec = &m->nodes.at[n.i];
    assert(!rec->dead && rec->graph == g->idx);
    for (uint32_t i = 0; i < rec->n_out; i++)
        assert(m->vals.at[rec->first_out + i].n_use == 0);
    for (uint32_t i = 0; i < rec->n_in; i++)
        unlink_use(m, rec->first_in + i);
    unlink_node(g, n.i);
    rec->dead = true;
    g->n_node--;
}

void weft_node_move_before(weft_graph *g, weft_node n, weft_node before)
{
    if (n.i == before.i)
        return;
    unlink_node(g, n.i);
    link_node(g, n.i, before.i);
}

void weft_node__move(weft_graph *from, weft_node n, weft_graph *to, weft_node before)
{
    unlink_node(from, n.i);
    from->n_node--;
    from->m->nodes.at[n.i].graph = to->idx;
    link_node(to, n.i, before.i);
    to->n_node++;
}

weft_node weft_graph_first(const weft_graph *g)
{
    return (weft_node){g->first};
}

weft_node weft_graph_last(const weft_graph *g)
{
    return (weft_node){g->last};
}

weft_node weft_node_next(const weft_module *m, weft_node n)
{
    return (weft_node){m->nodes.at[n.i].next};
}

weft_node weft_node_prev(const weft_module *m, weft_node n)
{
    return (weft_node){m->nodes.at[n.i].prev};
}

uint32_t weft_graph_node_count(const weft_graph *g)
{
    return g->n_node;
}

weft_op_id weft_node_op(const weft_module *m, weft_node n)
{
    return (weft_op_id)m->nodes.at[n.i].op;
}

const weft_op *weft_node_opdef(const weft_module *m, weft_node n)
{
    return weft_op_get(weft_node_op(m, n));
}

uint32_t weft_node_in_count(const weft_module *m, weft_node n)
{
    return m->nodes.at[n.i].n_in;
}

uint32_t weft_node_out_count(const weft_module *m, weft_node n)
{
    return m->nodes.at[n.i].n_out;
}

weft_val weft_node_in(const weft_module *m, weft_node n, uint32_t i)
{
    const weft_node_rec *rec = &m->nodes.at[n.i];
    return (weft_val){i < rec->n_in ? m->uses.at[rec->first_in + i].val : 0};
}

weft_val weft_node_out(const weft_module *m, weft_node n, uint32_t i)
{
    const weft_node_rec *rec = &m->nodes.at[n.i];
    return (weft_val){i < rec->n_out ? rec->first_out + i : 0};
}

void weft_node_set_in(weft_module *m, weft_node n, uint32_t i, weft_val val)
{
    weft_node_rec *rec = &m->nodes.at[n.i];
    assert(i < rec->n_in);
    unlink_use(m, rec->first_in + i);
    link_use(m, rec->first_in + i, val.i);
}

/* Moves the operands of a node to the end of the pool, with room for `cap`. */
static void move_operands(weft_module *m, weft_node n, uint32_t cap)
{
    uint32_t first = add_uses(m, n.i, cap);
    weft_node_rec *rec = &m->nodes.at[n.i];
    for (uint32_t i = 0; i < rec->n_in; i++) {
        uint32_t val = m->uses.at[rec->first_in + i].val;
        unlink_use(m, rec->first_in + i);
        link_use(m, first + i, val);
    }
    rec->first_in = first;
    rec->cap_in = cap;
}

void weft_node_grow_in(weft_module *m, weft_node n, uint32_t i, weft_val val)
{
    weft_node_rec *rec = &m->nodes.at[n.i];
    if (i >= rec->cap_in)
        move_operands(m, n, i + 1 > 2 * rec->cap_in ? i + 1 : 2 * rec->cap_in);
    if (i >= rec->n_in)
        rec->n_in = i + 1;
    weft_node_set_in(m, n, i, val);
}

void weft_node_trim_in(weft_module *m, weft_node n)
{
    weft_node_rec *rec = &m->nodes.at[n.i];
    while (rec->n_in && !m->uses.at[rec->first_in + rec->n_in - 1].val)
        rec->n_in--;
}

weft_attrs weft_node_attrs(const weft_module *m, weft_node n)
{
    const weft_node_rec *rec = &m->nodes.at[n.i];
    return (weft_attrs){rec->attr, rec->n_attr};
}

void weft_node_set_attr(weft_module *m, weft_node n, const weft_attr *attr)
{
    weft_node_rec *rec = &m->nodes.at[n.i];
    weft_attr *at = weft_arena_array(m->arena, rec->n_attr + 1, sizeof *at);
    uint32_t k = 0, i = 0;
    for (; i < rec->n_attr && rec->attr[i].key < attr->key; i++)
        at[k++] = rec->attr[i];
    copy_attr(m, &at[k++], attr);
    if (i < rec->n_attr && rec->attr[i].key == attr->key)
        i++;
    for (; i < rec->n_attr; i++)
        at[k++] = rec->attr[i];
    rec->attr = at;
    rec->n_attr = k;
}

void weft_node_drop_attr(weft_module *m, weft_node n, weft_attr_key key)
{
    weft_node_rec *rec = &m->nodes.at[n.i];
    if (!weft_attrs_find(weft_node_attrs(m, n), key))
        return;
    weft_attr *at = weft_arena_array(m->arena, rec->n_attr, sizeof *at);
    uint32_t k = 0;
    for (uint32_t i = 0; i < rec->n_attr; i++)
        if (rec->attr[i].key != key)
            at[k++] = rec->attr[i];
    rec->attr = at;
    rec->n_attr = k;
}

weft_loc weft_node_loc(const weft_module *m, weft_node n)
{
    const weft_node_rec *rec = &m->nodes.at[n.i];
    return (weft_loc){rec->file_id, rec->item, rec->line};
}

weft_where weft_node_where(const weft_module *m, weft_node n)
{
    weft_loc loc = weft_node_loc(m, n);
    return (weft_where){weft_module_file_path(m, loc.file_id), loc.item, loc.line};
}

/* -- Values ----------------------------------------------------------------------------------- */

weft_val_kind weft_val_get_kind(const weft_module *m, weft_val v)
{
    return (weft_val_kind)m->vals.at[v.i].kind;
}

weft_type weft_val_type(const weft_module *m, weft_val v)
{
    return (weft_type){m->vals.at[v.i].type};
}

const weft_ttype *weft_val_ttype(const weft_module *m, weft_val v)
{
    return weft_type_get(m, weft_val_type(m, v));
}

void weft_val_set_type(weft_module *m, weft_val v, weft_type type)
{
    m->vals.at[v.i].type = type.i;
}

weft_node weft_val_node(const weft_module *m, weft_val v)
{
    const weft_val_rec *rec = &m->vals.at[v.i];
    return (weft_node){rec->kind == WEFT_VAL_NODE ? rec->def : 0};
}

uint32_t weft_val_index(const weft_module *m, weft_val v)
{
    return m->vals.at[v.i].idx;
}

weft_weight weft_val_weight(const weft_module *m, weft_val v)
{
    const weft_val_rec *rec = &m->vals.at[v.i];
    return (weft_weight){rec->kind == WEFT_VAL_WEIGHT ? rec->def : 0};
}

uint32_t weft_val_count(const weft_module *m)
{
    return m->vals.len - 1;
}

/* -- Plan stage ------------------------------------------------------------------------------- */

void weft_graph_add_bucket(weft_graph *g, const weft_bucket *bucket)
{
    weft_arena *arena = g->m->arena;
    weft_bucket copy = *bucket;
    int64_t *symbol = weft_arena_array(arena, bucket->n_symbol, sizeof *symbol);
    weft_buffer *buffer = weft_arena_array(arena, bucket->n_buffer, sizeof *buffer);
    if (bucket->n_symbol)
        memcpy(symbol, bucket->symbol, bucket->n_symbol * sizeof *symbol);
    if (bucket->n_buffer)
        memcpy(buffer, bucket->buffer, bucket->n_buffer * sizeof *buffer);
    copy.symbol = symbol;
    copy.buffer = buffer;
    WEFT_VEC_PUSH(arena, &g->buckets, copy);
}

void weft_graph_clear_buckets(weft_graph *g)
{
    g->buckets.len = 0;
}

uint32_t weft_graph_bucket_count(const weft_graph *g)
{
    return g->buckets.len;
}

const weft_bucket *weft_graph_bucket(const weft_graph *g, uint32_t i)
{
    return &g->buckets.at[i];
}
