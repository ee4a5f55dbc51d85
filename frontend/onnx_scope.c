/* Scopes: the names of a graph, of a call of a function, or of a graph in an attribute of a node,
 * which also sees the names of the graphs around it. A name of an enclosing graph is looked up when
 * it is first read. */
#include "frontend/onnx_int.h"

#include <string.h>

void weft_onnx__scope_init(weft_onnx_ctx *cx, weft_onnx_scope *scope)
{
    memset(scope, 0, sizeof *scope);
    scope->names = weft_names_create(cx->arena);
    scope->prefix = "";
}

weft_onnx_name *weft_onnx__scope_name(weft_onnx_ctx *cx, weft_onnx_scope *scope, const char *name)
{
    uint32_t id = weft_names_add(scope->names, name, strlen(name));
    while (scope->name.len <= id)
        WEFT_VEC_PUSH(cx->arena, &scope->name, (weft_onnx_name){.bind = WEFT_ONNX_UNBOUND});
    return &scope->name.at[id];
}

bool weft_onnx__is_defined(weft_onnx_ctx *cx, weft_onnx_scope *scope, const char *name)
{
    weft_onnx_name *own = weft_onnx__scope_name(cx, scope, name);
    if (own->producer || own->bind != WEFT_ONNX_UNBOUND)
        return true;
    for (const weft_onnx_scope *s = scope->parent; s; s = s->parent) {
        uint32_t id = weft_names_find(s->names, name, strlen(name));
        if (id == 0 || id >= s->name.len ||
            (!s->name.at[id].producer && s->name.at[id].bind == WEFT_ONNX_UNBOUND))
            continue;
        own->bind = WEFT_ONNX_OUTER;
        return true;
    }
    return false;
}

/* An input of the body, unless it is a constant. */
weft_val weft_onnx__capture(weft_onnx_ctx *cx, weft_onnx_nest *nest, weft_val v)
{
    uint64_t found;
    uint32_t n = 0;
    if (weft_onnx__is_sequence(v)) { /* element by element; sequences hold tensors only */
        weft_onnx_sequence s = weft_onnx__sequence_get(cx, v);
        weft_val *inner = weft_arena_array(cx->arena, (size_t)s.n + 1, sizeof *inner);
        for (uint32_t i = 0; i < s.n; i++)
            inner[i] = weft_onnx__capture(cx, nest, s.at[i]);
        s.at = inner;
        s.whole = s.whole.i ? weft_onnx__capture(cx, nest, s.whole) : s.whole;
        return weft_onnx__sequence_add(cx, &s);
    }
    if (weft_val_get_kind(cx->m, v) == WEFT_VAL_WEIGHT)
        return v;
    if (weft_map_get(nest->inner, v.i, &found))
        return (weft_val){(uint32_t)found};
    const char *name = weft_arena_printf(cx->arena, "in%u", weft_graph_input_count(nest->g));
    weft_type type = weft_body_capture_type(nest->g, nest->captured.at, nest->captured.len, v);
    weft_val inner = weft_graph_add_input(nest->g, name, type);
    weft_map_put(nest->inner, v.i, inner.i);
    if (weft_onnx__is_loose(cx, v))
        weft_onnx__set_loose(cx, inner);
    WEFT_VEC_PUSH(cx->arena, &nest->captured, v);
    const weft_dim *content = weft_contents_get(cx->contents, v, &n);
    weft_dim *known = content ? weft_arena_array(cx->arena, (size_t)n + 1, sizeof *known) : NULL;
    if (content && weft_body_capture_content(nest->g, nest->captured.at, nest->captured.len,
                                             content, n, known))
        weft_contents_set(cx->contents, inner, known, n);
    return inner;
}

const weft_onnx_name *weft_onnx__read(weft_onnx_ctx *cx, weft_onnx_scope *scope, const char *name)
{
    weft_onnx_name *own = weft_onnx__scope_name(cx, scope, name);
    if (own->bind != WEFT_ONNX_OUTER)
        return own;
    (void)weft_onnx__is_defined(cx, scope->parent, name);
    const weft_onnx_name *outer = weft_onnx__read(cx, scope->parent, name);
    own->bind = outer->bind;
    own->val = outer->val;
    if (own->bind == WEFT_ONNX_BOUND && scope->nest != scope->parent->nest)
        own->val = weft_onnx__capture(cx, scope->nest, outer->val);
    return own;
}

/* -- Names that graphs in attributes read ----------------------------------------------------- */

typedef WEFT_VEC(char *) name_list;

static void add_reads(weft_onnx_ctx *cx, const Onnx__NodeProto *node, weft_names *seen,
                      name_list *out);

/* Names that `graph` reads and does not define. */
static void add_free_names(weft_onnx_ctx *cx, const Onnx__GraphProto *graph, weft_names *seen,
                           name_list *out)
{
    name_list inner = {0};
    weft_names *own = weft_names_create(cx->arena), *inner_seen = weft_names_create(cx->arena);
    for (size_t i = 0; i < graph->n_initializer; i++)
        if (graph->initializer[i]->name)
            weft_names_add(own, graph->initializer[i]->name, strlen(graph->initializer[i]->name));
    for (size_t i = 0; i < graph->n_input; i++)
        if (graph->input[i]->name)
            weft_names_add(own, graph->input[i]->name, strlen(graph->input[i]->name));
    for (size_t i = 0; i < graph->n_node; i++) {
        for (size_t k = 0; k < graph->node[i]->n_output; k++)
            weft_names_add(own, graph->node[i]->output[k], strlen(graph->node[i]->output[k]));
        add_reads(cx, graph->node[i], inner_seen, &inner);
    }
    for (size_t i = 0; i < graph->n_output; i++)
        if (graph->output[i]->name)
            WEFT_VEC_PUSH(cx->arena, &inner, graph->output[i]->name);
    for (uint32_t i = 0; i < inner.len; i++) {
        size_t len = strlen(inner.at[i]);
        if (len == 0 || weft_names_find(own, inner.at[i], len) ||
            weft_names_find(seen, inner.at[i], len))
            continue;
        weft_names_add(seen, inner.at[i], len);
        WEFT_VEC_PUSH(cx->arena, out, inner.at[i]);
    }
}

/* Names may be repeated. The depth of the recursion is at most WEFT_ONNX_GRAPHS_MAX. */
static void add_reads(weft_onnx_ctx *cx, const Onnx__NodeProto *node, weft_names *seen,
                      name_list *out)
{
    for (size_t i = 0; i < node->n_input; i++)
        WEFT_VEC_PUSH(cx->arena, out, node->input[i]);
    for (size_t i = 0; i < node->n_attribute; i++)
        if (node->attribute[i]->g)
            add_free_names(cx, node->attribute[i]->g, seen, out);
}

weft_onnx_reads weft_onnx__reads(weft_onnx_ctx *cx, const Onnx__NodeProto *node)
{
    bool has_graph = false;
    for (size_t i = 0; i < node->n_attribute; i++)
        has_graph = has_graph || node->attribute[i]->g;
    if (!has_graph)
        return (weft_onnx_reads){node->input, node->n_input};
    name_list all = {0};
    add_reads(cx, node, weft_names_create(cx->arena), &all);
    return (weft_onnx_reads){all.at, all.len};
}
