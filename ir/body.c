/* Bodies: graphs that the nodes of other graphs run (ops/flow.h).
 *
 * A body shares the symbols of the graph around it: the types of its inputs are those of the
 * operands, so that what is known outside is known inside. A dim of a carried value that changes
 * from round to round, and one that is computed from data symbols, is a data symbol of the body's
 * own. A result of a node has the dims that all
 * its bodies give it, if they are known outside; else it is known at run time only. */
#include "ir/ir_int.h"

#include <string.h>

/* -- Graphs --------------------------------------------------------------------------------- */

weft_graph *weft_body_create(weft_module *m, const char *base)
{
    const char *name = base;
    for (uint32_t i = 2; weft_graph_find(m, name); i++)
        name = weft_arena_printf(m->arena, "%s.%u", base, i);
    weft_graph *g = weft_graph_create(m, name);
    g->is_body = true;
    return g;
}

bool weft_graph_is_body(const weft_graph *g)
{
    return g->is_body;
}

bool weft_graph_is_model(const weft_graph *g)
{
    return !g->is_body && g->parts.len == 0;
}

uint32_t weft_graph_model_count(const weft_module *m)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->graphs.len; i++)
        n += weft_graph_is_model(m->graphs.at[i]);
    return n;
}

static void empty_graph(weft_graph *g)
{
    g->outputs.len = 0;
    while (g->last)
        weft_node_remove(g, (weft_node){g->last});
}

void weft_body_drop(weft_module *m, uint32_t n_graph)
{
    while (m->graphs.len > n_graph) {
        empty_graph(m->graphs.at[m->graphs.len - 1]);
        m->graphs.len--;
    }
}

void weft_body_collect(weft_module *m)
{
    uint32_t n = m->graphs.len, kept = 0;
    for (uint32_t i = 0; i < n; i++)
        m->graphs.at[i]->n_user = !m->graphs.at[i]->is_body;
    for (uint32_t i = 0; i < n; i++) { /* a body comes after the graph that runs it */
        weft_graph *g = m->graphs.at[i];
        if (g->n_user == 0)
            continue;
        WEFT_FOREACH_NODE (m, g, node)
            for (uint32_t b = 0; b < weft_node_body_count(m, node); b++)
                if (weft_node_body(m, node, b))
                    weft_node_body(m, node, b)->n_user++;
    }
    for (uint32_t i = 0; i < n; i++)
        kept += m->graphs.at[i]->n_user > 0;
    if (kept == n)
        return;
    uint32_t *number = weft_arena_array(m->arena, n, sizeof *number), at = 0;
    for (uint32_t i = 0; i < n; i++) {
        weft_graph *g = m->graphs.at[i];
        number[i] = at;
        if (g->n_user == 0)
            empty_graph(g);
        else
            m->graphs.at[at++] = g;
    }
    for (uint32_t i = 1; i < m->nodes.len; i++)
        m->nodes.at[i].graph = number[m->nodes.at[i].graph];
    for (uint32_t i = 1; i < m->vals.len; i++)
        if (m->vals.at[i].kind == WEFT_VAL_INPUT)
            m->vals.at[i].def = number[m->vals.at[i].def];
    for (uint32_t i = 0; i < at; i++)
        m->graphs.at[i]->idx = i;
    m->graphs.len = at;
}

void weft_body_inline(weft_graph *g, weft_node n, uint32_t b)
{
    weft_module *m = g->m;
    weft_graph *body = weft_node_body(m, n, b);
    weft_flow_layout l;
    if (!body || !weft_node_flow(m, n, &l))
        return;
    for (uint32_t i = 0; i < l.n_capture[b]; i++)
        weft_val_replace(body, weft_graph_input(body, i),
                         weft_node_in(m, n, l.first_capture[b] + i));
    while (body->first)
        weft_node__move(body, (weft_node){body->first}, g, n);
    for (uint32_t i = 0; i < weft_graph_require_count(body); i++)
        (void)weft_graph_add_require(g, weft_graph_require_at(body, i));
    for (uint32_t i = 0; i < weft_node_out_count(m, n); i++)
        weft_val_replace(g, weft_node_out(m, n, i), weft_graph_output(body, i));
    body->outputs.len = 0;
    weft_node_remove(g, n);
}

uint32_t weft_node_body_count(const weft_module *m, weft_node n)
{
    return weft_flow_bodies(weft_node_op(m, n));
}

weft_graph *weft_node_body(const weft_module *m, weft_node n, uint32_t i)
{
    weft_attr_key key = weft_flow_body_key(weft_node_op(m, n), i);
    const char *name = key ? weft_attrs_str(weft_node_attrs(m, n), key, NULL) : NULL;
    weft_graph *g = name ? weft_graph_find(m, name) : NULL;
    return g && g->is_body && g->idx > m->nodes.at[n.i].graph ? g : NULL;
}

weft_err weft_body_check(weft_module *m, weft_diag *diag)
{
    for (uint32_t i = 0; i < m->graphs.len; i++)
        m->graphs.at[i]->n_user = 0;
    for (uint32_t i = 0; i < m->graphs.len; i++) {
        WEFT_FOREACH_NODE (m, m->graphs.at[i], n) {
            for (uint32_t b = 0; b < weft_node_body_count(m, n); b++) {
                weft_graph *body = weft_node_body(m, n, b);
                if (body && ++body->n_user > 1)
                    return weft_diag_error(diag, WEFT_ERR_INPUT, weft_node_where(m, n),
                                           "%s: body @%s is also the body of another node",
                                           weft_node_opdef(m, n)->name, body->name);
            }
        }
    }
    return WEFT_ERR_OK;
}

bool weft_node_flow(const weft_module *m, weft_node n, weft_flow_layout *out)
{
    uint32_t n_in[WEFT_FLOW_BODIES] = {0}, n_out[WEFT_FLOW_BODIES] = {0};
    for (uint32_t i = 0; i < weft_node_body_count(m, n); i++) {
        const weft_graph *body = weft_node_body(m, n, i);
        if (!body)
            return false;
        n_in[i] = weft_graph_input_count(body);
        n_out[i] = weft_graph_output_count(body);
    }
    return weft_flow_layout_make(weft_node_op(m, n), weft_node_attrs(m, n),
                                 weft_node_in_count(m, n), weft_node_out_count(m, n), n_in, n_out,
                                 out);
}

/* -- Symbols that a body sees --------------------------------------------------------------- */

static bool has_symbol(const weft_graph *g, weft_dim symbol)
{
    for (uint32_t i = 0; i < g->symbols.len; i++)
        if (g->symbols.at[i].dim == symbol)
            return true;
    return false;
}

static void list_symbol(weft_graph *g, weft_dim symbol, const char *name)
{
    const char *unique = name;
    if (has_symbol(g, symbol))
        return;
    for (uint32_t i = 0, k = 2; i < g->symbols.len; i++)
        if (strcmp(g->symbols.at[i].name, unique) == 0) {
            unique = weft_arena_printf(g->m->arena, "%s.%u", name, k++);
            i = UINT32_MAX; /* again from the first */
        }
    weft_graph__add_symbol(g, unique, symbol);
}

/* Calls `visit` for each symbol of a dim. */
static void each_symbol(weft_module *m, weft_dim d, void (*visit)(void *, weft_dim, const char *),
                        void *user)
{
    if (weft_dim_is_const(d))
        return;
    weft_buf text = {0};
    weft_dim_print(m->dims, d, &text);
    for (const char *s = text.at; s && (s = strchr(s, '?')) != NULL;) {
        size_t len = 0;
        for (s++; weft_text__is_name(s[len]);)
            len++;
        char *name = weft_arena_printf(m->arena, "?%.*s", (int)len, s);
        weft_dim symbol;
        if (weft_dim_parse(m->dims, name, &symbol) == len + 1)
            visit(user, symbol, name + 1);
        s += len;
    }
    weft_buf_finish(&text);
}

static void visit_list(void *user, weft_dim symbol, const char *name)
{
    list_symbol(user, symbol, name);
}

static void list_symbols(weft_graph *body, const weft_graph *around)
{
    weft_module *m = body->m;
    body->symbols.len = 0;
    for (uint32_t i = 0; i < around->symbols.len; i++)
        list_symbol(body, around->symbols.at[i].dim, around->symbols.at[i].name);
    for (uint32_t i = 0; i < body->inputs.len; i++) {
        const weft_ttype *t = weft_val_ttype(m, body->inputs.at[i].val);
        for (uint32_t k = 0; k < t->rank; k++)
            each_symbol(m, t->dim[k], visit_list, body);
    }
}

typedef struct seen {
    const weft_graph *g;
    bool all;
} seen;

static void visit_seen(void *user, weft_dim symbol, const char *name)
{
    seen *s = user;
    (void)name;
    s->all = s->all && has_symbol(s->g, symbol);
}

/* -- From operands to inputs ---------------------------------------------------------------- */

/* An expression of data symbols, such as the sum of two sizes. A body takes it as one data symbol
 * of its own, because only the dims of its inputs tell what it is there. */
static bool is_computed(const weft_dimpool *pool, weft_dim d)
{
    return !weft_dim_is_const(d) && weft_dim_is_data(pool, d) &&
           weft_dim_as_symbol(pool, d) == UINT32_MAX;
}

/* The dim of the body's inputs for dim `d` of its captures, its last n inputs; 0: none has it. */
static weft_dim find_inner(const weft_graph *body, const weft_val *captured, uint32_t n, weft_dim d)
{
    const weft_module *m = body->m;
    uint32_t first = body->inputs.len - n;
    for (uint32_t i = 0; i < n; i++) {
        const weft_ttype *from = weft_val_ttype(m, captured[i]);
        const weft_ttype *to = weft_val_ttype(m, body->inputs.at[first + i].val);
        for (uint32_t k = 0; from->rank == to->rank && k < from->rank; k++)
            if (from->dim[k] == d && !is_computed(m->dims, to->dim[k]) &&
                weft_dim_is_data(m->dims, to->dim[k]))
                return to->dim[k];
    }
    return 0;
}

weft_type weft_body_capture_type(weft_graph *body, const weft_val *captured, uint32_t n, weft_val v)
{
    weft_module *m = body->m;
    weft_ttype t = *weft_val_ttype(m, v);
    for (uint32_t k = 0; k < t.rank; k++) {
        weft_dim whole = t.dim[k];
        if (!is_computed(m->dims, whole))
            continue;
        t.dim[k] = find_inner(body, captured, n, whole);
        for (uint32_t i = 0; !t.dim[k] && i < k; i++)
            t.dim[k] = weft_val_ttype(m, v)->dim[i] == whole ? t.dim[i] : 0;
        if (!t.dim[k])
            t.dim[k] = weft_dim_fresh(m->dims);
    }
    return weft_type_intern(m, &t);
}

bool weft_body_capture_content(weft_graph *body, const weft_val *captured, uint32_t n,
                               const weft_dim *content, uint32_t n_content, weft_dim *out)
{
    for (uint32_t i = 0; i < n_content; i++) {
        out[i] = content[i];
        if (!weft_dim_is_const(content[i]) && weft_dim_is_data(body->m->dims, content[i]))
            out[i] = find_inner(body, captured, n, content[i]);
        if (!out[i] && content[i])
            return false;
    }
    return true;
}

static void sync_content(weft_graph *body, const weft_val *captured, uint32_t n, uint32_t which,
                         weft_contents *contents)
{
    uint32_t n_content = 0;
    const weft_dim *content = weft_contents_get(contents, captured[which], &n_content);
    if (!content)
        return;
    weft_dim *inner = weft_arena_array(body->m->arena, (size_t)n_content + 1, sizeof *inner);
    seen s = {.g = body,
              .all = weft_body_capture_content(body, captured, n, content, n_content, inner)};
    for (uint32_t i = 0; s.all && i < n_content; i++)
        each_symbol(body->m, inner[i], visit_seen, &s);
    if (s.all)
        weft_contents_set(contents, body->inputs.at[body->inputs.len - n + which].val, inner,
                          n_content);
}

/* The type of a slice; false: the operand does not have the axis. */
static bool slice_type(const weft_module *m, weft_node n, uint32_t i, const weft_ttype *from,
                       weft_ttype *out)
{
    uint32_t axis;
    if (from->rank == 0 || !weft_flow_axis(weft_node_attrs(m, n), false, i, from->rank, &axis))
        return false;
    *out = (weft_ttype){.dtype = from->dtype, .rank = (uint8_t)(from->rank - 1)};
    for (uint32_t d = 0, k = 0; d < from->rank; d++)
        if (d != axis)
            out->dim[k++] = from->dim[d];
    return true;
}

/* Dims of a carried value that change from round to round stay as they are. */
static void sync_carried(weft_module *m, weft_val operand, weft_val input)
{
    weft_ttype t = *weft_val_ttype(m, input);
    const weft_ttype *from = weft_val_ttype(m, operand);
    if (t.dtype != from->dtype || t.rank != from->rank)
        return;
    for (uint32_t k = 0; k < t.rank; k++)
        if (!weft_dim_is_data(m->dims, t.dim[k]))
            t.dim[k] = is_computed(m->dims, from->dim[k]) ? weft_dim_fresh(m->dims) : from->dim[k];
    weft_val_set_type(m, input, weft_type_intern(m, &t));
}

/* `t`: the type of a slice of the operand. */
static void sync_slice(weft_module *m, weft_ttype t, weft_val input)
{
    const weft_ttype *old = weft_val_ttype(m, input);
    for (uint32_t k = 0; k < t.rank; k++) {
        bool kept = old->rank == t.rank && weft_dim_is_data(m->dims, old->dim[k]) &&
                    !is_computed(m->dims, old->dim[k]);
        if (is_computed(m->dims, t.dim[k]))
            t.dim[k] = kept ? old->dim[k] : weft_dim_fresh(m->dims);
    }
    weft_val_set_type(m, input, weft_type_intern(m, &t));
}

static void sync_captures(weft_module *m, weft_node n, const weft_flow_layout *l, uint32_t b,
                          weft_val *captured)
{
    weft_graph *body = weft_node_body(m, n, b);
    for (uint32_t k = 0; k < l->n_capture[b]; k++)
        captured[k] = weft_node_in(m, n, l->first_capture[b] + k);
    for (uint32_t k = 0; k < l->n_capture[b]; k++)
        weft_val_set_type(m, weft_graph_input(body, l->n_formal + k),
                          weft_body_capture_type(body, captured, l->n_capture[b], captured[k]));
}

void weft_body_sync(weft_graph *g, weft_node n, weft_contents *contents)
{
    weft_module *m = g->m;
    weft_flow_layout l;
    if (!weft_node_flow(m, n, &l))
        return;
    for (uint32_t b = 0; b < l.n_body; b++) {
        weft_graph *body = weft_node_body(m, n, b);
        for (uint32_t k = 0; k < l.n_carried; k++)
            sync_carried(m, weft_node_in(m, n, l.first_carried + k),
                         weft_graph_input(body, l.first_carried + k));
        for (uint32_t k = 0; k < l.n_sliced; k++) {
            weft_ttype t;
            weft_val operand = weft_node_in(m, n, l.first_carried + l.n_carried + k);
            if (slice_type(m, n, k, weft_val_ttype(m, operand), &t))
                sync_slice(m, t, weft_graph_input(body, l.n_carried + k));
        }
        weft_val *captured =
            weft_arena_array(m->arena, (size_t)l.n_capture[b] + 1, sizeof *captured);
        sync_captures(m, n, &l, b, captured);
        list_symbols(body, g);
        for (uint32_t k = 0; k < l.n_capture[b]; k++)
            sync_content(body, captured, l.n_capture[b], k, contents);
    }
}

/* -- Types of results ----------------------------------------------------------------------- */

typedef struct inferrer {
    weft_module *m;
    weft_node n;
    weft_flow_layout l;
    weft_dimpool *pool;
    weft_contents *contents;
    weft_diag *diag;
} inferrer;

#define FAIL(x, err, ...) \
    weft_diag_error((x)->diag, (err), weft_node_where((x)->m, (x)->n), "%s: " __VA_ARGS__)

static const char *op_name(const inferrer *x)
{
    return weft_node_opdef(x->m, x->n)->name;
}

/* Dim k of result i, known at run time only: that of an earlier inference if there is one. */
static weft_dim unknown_dim(inferrer *x, uint32_t i, uint32_t k)
{
    const weft_ttype *old = weft_val_ttype(x->m, weft_node_out(x->m, x->n, i));
    if (old->dtype != WEFT_DTYPE_NONE && k < old->rank && weft_dim_is_data(x->pool, old->dim[k]))
        return old->dim[k];
    return weft_dim_fresh(x->pool);
}

/* A dim of body `b` that is known outside: *d becomes the dim there. */
static bool is_visible(const inferrer *x, uint32_t b, weft_dim *out)
{
    const weft_graph *body = weft_node_body(x->m, x->n, b);
    weft_dim d = *out;
    if (!weft_dim_is_data(x->pool, d))
        return true;
    for (uint32_t i = 0; i < x->l.n_capture[b]; i++) {
        const weft_ttype *in = weft_val_ttype(x->m, weft_graph_input(body, x->l.n_formal + i));
        const weft_ttype *from =
            weft_val_ttype(x->m, weft_node_in(x->m, x->n, x->l.first_capture[b] + i));
        for (uint32_t k = 0; in->rank == from->rank && k < in->rank; k++)
            if (in->dim[k] == d) {
                *out = from->dim[k];
                return true;
            }
    }
    for (uint32_t i = 0; i < weft_node_in_count(x->m, x->n); i++) {
        weft_val v = weft_node_in(x->m, x->n, i);
        const weft_ttype *t = v.i ? weft_val_ttype(x->m, v) : NULL;
        for (uint32_t k = 0; t && k < t->rank; k++)
            if (t->dim[k] == d)
                return true;
    }
    return false;
}

static weft_err infer_if(inferrer *x, weft_ttype *out, uint32_t n_out)
{
    for (uint32_t i = 0; i < n_out; i++) {
        const weft_ttype *a =
            weft_val_ttype(x->m, weft_graph_output(weft_node_body(x->m, x->n, 0), i));
        const weft_ttype *b =
            weft_val_ttype(x->m, weft_graph_output(weft_node_body(x->m, x->n, 1), i));
        if (a->dtype != b->dtype)
            return FAIL(x, WEFT_ERR_INPUT, "the branches give %s and %s for result %u", op_name(x),
                        weft_dtype_name((weft_dtype)a->dtype),
                        weft_dtype_name((weft_dtype)b->dtype), i);
        if (a->rank != b->rank)
            return FAIL(x, WEFT_ERR_UNSUP,
                        "the branches give rank %u and rank %u for result %u: fix the sizes or "
                        "inputs that the condition depends on with `dims:` or `values:` of a set "
                        "file",
                        op_name(x), a->rank, b->rank, i);
        out[i] = *a;
        for (uint32_t k = 0; k < a->rank; k++) {
            weft_dim other = b->dim[k];
            bool known = is_visible(x, 0, &out[i].dim[k]) && is_visible(x, 1, &other);
            if (!known || out[i].dim[k] != other)
                out[i].dim[k] = unknown_dim(x, i, k);
        }
    }
    return WEFT_ERR_OK;
}

static weft_err infer_carried(inferrer *x, uint32_t i, weft_ttype *out)
{
    const weft_graph *body = weft_node_body(x->m, x->n, 0);
    weft_val operand = weft_node_in(x->m, x->n, x->l.first_carried + i);
    const weft_ttype *from = weft_val_ttype(x->m, operand);
    const weft_ttype *in = weft_val_ttype(x->m, weft_graph_input(body, x->l.first_carried + i));
    const weft_ttype *to = weft_val_ttype(x->m, weft_graph_output(body, x->l.first_out + i));
    if (!operand.i || from->dtype != in->dtype || from->rank != in->rank)
        return FAIL(x, WEFT_ERR_INPUT,
                    "carried value %u does not have the type that the body takes", op_name(x), i);
    if (to->dtype != in->dtype)
        return FAIL(x, WEFT_ERR_INPUT, "carried value %u is %s, the body gives %s", op_name(x), i,
                    weft_dtype_name((weft_dtype)in->dtype), weft_dtype_name((weft_dtype)to->dtype));
    if (to->rank != in->rank)
        return FAIL(x, WEFT_ERR_UNSUP,
                    "carried value %u has rank %u, the body gives rank %u: ranks that change are "
                    "not supported",
                    op_name(x), i, in->rank, to->rank);
    *out = *from;
    for (uint32_t k = 0; k < in->rank; k++)
        if (in->dim[k] != from->dim[k])
            out->dim[k] = unknown_dim(x, i, k);
    return WEFT_ERR_OK;
}

/* The one element of a constant or of a content. */
static bool known_number(inferrer *x, weft_val v, weft_dim *out)
{
    uint32_t n = 0;
    const weft_dim *content = weft_contents_get(x->contents, v, &n);
    if (content && n == 1)
        *out = content[0];
    return content && n == 1;
}

/* The condition that the body returns is the one that it was given, or true. */
static bool goes_on(inferrer *x)
{
    const weft_graph *body = weft_node_body(x->m, x->n, 0);
    weft_val v = weft_graph_output(body, 0);
    weft_dim go = 0;
    for (int i = 0; i < 8; i++) {
        weft_node n = weft_val_node(x->m, v);
        if (!n.i || weft_node_op(x->m, n) != WEFT_OP_IDENTITY)
            break;
        v = weft_node_in(x->m, n, 0);
    }
    return v.i == weft_graph_input(body, 1).i || (known_number(x, v, &go) && go == 1);
}

/* Number of rounds, or a data symbol. `i`: the result that is stacked. */
static weft_dim trip_count(inferrer *x, uint32_t i)
{
    weft_dim limit = 0, go = 0;
    weft_val count = weft_node_in(x->m, x->n, 0), condition = weft_node_in(x->m, x->n, 1);
    if (weft_node_op(x->m, x->n) == WEFT_OP_SCAN) {
        const weft_ttype *t =
            weft_val_ttype(x->m, weft_node_in(x->m, x->n, x->l.first_carried + x->l.n_carried));
        uint32_t axis;
        return weft_flow_axis(weft_node_attrs(x->m, x->n), false, 0, t->rank, &axis) ? t->dim[axis]
                                                                                     : 0;
    }
    bool known = count.i && known_number(x, count, &limit) && goes_on(x);
    known = known && (!condition.i || (known_number(x, condition, &go) && go == 1));
    return known ? weft_dim_max(x->pool, limit, 0) : unknown_dim(x, i, 0);
}

static weft_err infer_stacked(inferrer *x, uint32_t i, weft_ttype *out)
{
    uint32_t result = x->l.n_carried + i, axis;
    const weft_graph *body = weft_node_body(x->m, x->n, 0);
    const weft_ttype *t = weft_val_ttype(x->m, weft_graph_output(body, x->l.first_out + result));
    if (weft_flow_joined(weft_node_attrs(x->m, x->n), i, t->rank, &axis)) {
        *out = *t;
        for (uint32_t k = 0; k < out->rank; k++)
            if (k == axis || !is_visible(x, 0, &out->dim[k]))
                out->dim[k] = unknown_dim(x, result, k);
        return WEFT_ERR_OK;
    }
    if (t->rank == WEFT_RANK_MAX)
        return FAIL(x, WEFT_ERR_UNSUP, "result %u: rank over %d", op_name(x), result,
                    WEFT_RANK_MAX);
    if (!weft_flow_axis(weft_node_attrs(x->m, x->n), true, i, t->rank + 1u, &axis))
        return FAIL(x, WEFT_ERR_INPUT, "result %u: its axis is out of range", op_name(x), result);
    *out = (weft_ttype){.dtype = t->dtype, .rank = (uint8_t)(t->rank + 1)};
    for (uint32_t k = 0, d = 0; k < out->rank; k++) {
        if (k == axis) {
            out->dim[k] = trip_count(x, result);
            continue;
        }
        out->dim[k] = t->dim[d++];
        if (!is_visible(x, 0, &out->dim[k]))
            out->dim[k] = unknown_dim(x, result, k);
    }
    return WEFT_ERR_OK;
}

/* Operand i of the node and the element type that it needs; absent is fine. */
static bool is_single(const inferrer *x, uint32_t i, weft_dtype dtype)
{
    weft_val v = weft_node_in(x->m, x->n, i);
    return !v.i || weft_val_ttype(x->m, v)->dtype == dtype;
}

static weft_err check_single(inferrer *x)
{
    weft_op_id op = weft_node_op(x->m, x->n);
    bool ok = true;
    if (op == WEFT_OP_IF)
        ok = is_single(x, 0, WEFT_DTYPE_BOOL);
    if (op == WEFT_OP_LOOP) {
        const weft_graph *body = weft_node_body(x->m, x->n, 0);
        const weft_ttype *i = weft_val_ttype(x->m, weft_graph_input(body, 0));
        const weft_ttype *go = weft_val_ttype(x->m, weft_graph_input(body, 1));
        const weft_ttype *out = weft_val_ttype(x->m, weft_graph_output(body, 0));
        ok = is_single(x, 0, WEFT_DTYPE_I64) && is_single(x, 1, WEFT_DTYPE_BOOL) &&
             i->dtype == WEFT_DTYPE_I64 && go->dtype == WEFT_DTYPE_BOOL && i->rank <= 1 &&
             go->rank <= 1 && out->dtype == WEFT_DTYPE_BOOL;
    }
    return ok ? WEFT_ERR_OK
              : FAIL(x, WEFT_ERR_INPUT, "a trip count, iteration or condition has a wrong type",
                     op_name(x));
}

static bool same_type(const weft_ttype *a, const weft_ttype *b)
{
    bool same = a->dtype == b->dtype && a->rank == b->rank;
    for (uint32_t k = 0; same && k < a->rank; k++)
        same = a->dim[k] == b->dim[k] || !weft_dim_is_const(a->dim[k]) ||
               !weft_dim_is_const(b->dim[k]);
    return same;
}

/* Captures and slices have the types of their operands. */
static weft_err check_inputs(inferrer *x)
{
    const weft_flow_layout *l = &x->l;
    for (uint32_t b = 0; b < l->n_body; b++) {
        const weft_graph *body = weft_node_body(x->m, x->n, b);
        for (uint32_t k = 0; k < l->n_capture[b]; k++) {
            weft_val v = weft_node_in(x->m, x->n, l->first_capture[b] + k);
            if (!v.i || !same_type(weft_val_ttype(x->m, v),
                                   weft_val_ttype(x->m, weft_graph_input(body, l->n_formal + k))))
                return FAIL(x, WEFT_ERR_INPUT,
                            "operand %u does not have the type of what body @%s captures",
                            op_name(x), l->first_capture[b] + k, weft_graph_name(body));
        }
        for (uint32_t k = 0; k < l->n_sliced; k++) {
            weft_val v = weft_node_in(x->m, x->n, l->first_carried + l->n_carried + k);
            weft_ttype t;
            if (!v.i || !slice_type(x->m, x->n, k, weft_val_ttype(x->m, v), &t) ||
                !same_type(&t, weft_val_ttype(x->m, weft_graph_input(body, l->n_carried + k))))
                return FAIL(x, WEFT_ERR_INPUT,
                            "scanned input %u does not have the type that the body takes",
                            op_name(x), k);
        }
    }
    return WEFT_ERR_OK;
}

weft_err weft_body__infer(weft_node n, weft_dimpool *pool, weft_contents *contents, weft_diag *diag,
                          weft_ttype *out, uint32_t n_out)
{
    inferrer x = {.m = contents->m, .n = n, .pool = pool, .contents = contents, .diag = diag};
    WEFT_TRY(weft_op_check_attrs(weft_node_opdef(x.m, n), weft_node_attrs(x.m, n), diag,
                                 weft_node_where(x.m, n)));
    if (!weft_node_flow(x.m, n, &x.l))
        return FAIL(&x, WEFT_ERR_INPUT,
                    "a body is missing, or its inputs and outputs do not fit the node",
                    op_name(&x));
    WEFT_TRY(check_single(&x));
    WEFT_TRY(check_inputs(&x));
    if (weft_node_op(x.m, n) == WEFT_OP_IF)
        return infer_if(&x, out, n_out);
    for (uint32_t i = 0; i < x.l.n_carried; i++)
        WEFT_TRY(infer_carried(&x, i, &out[i]));
    for (uint32_t i = 0; i < x.l.n_stacked; i++)
        WEFT_TRY(infer_stacked(&x, i, &out[x.l.n_carried + i]));
    return WEFT_ERR_OK;
}
