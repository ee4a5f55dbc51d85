/* Graphs in attributes: the scope of a graph, and graphs that become bodies (ir/body.c). */
#include "frontend/onnx_flow_int.h"

#include <string.h>

weft_err weft_onnx__flow_graph(weft_onnx_call *c, const char *name, const Onnx__GraphProto **out)
{
    const Onnx__AttributeProto *a = weft_onnx__attr(c, name);
    if (!a || !a->g)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "attribute \"%s\" holds no graph", name);
    *out = a->g;
    return WEFT_ERR_OK;
}

uint8_t weft_onnx__declared_rank(const Onnx__GraphProto *graph, size_t i)
{
    const Onnx__TypeProto *t = i < graph->n_input ? graph->input[i]->type : NULL;
    bool is_tensor = t && t->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE && t->tensor_type;
    return is_tensor && t->tensor_type->shape && t->tensor_type->shape->n_dim == 1;
}

/* The scope of a graph in an attribute of the node. */
static void open_scope(weft_onnx_call *c, const char *attr, weft_onnx_scope *out)
{
    weft_onnx__scope_init(c->cx, out);
    out->parent = c->scope;
    out->nest = c->scope->nest;
    out->opsets = c->scope->opsets;
    out->prefix = weft_arena_printf(c->cx->arena, "%s/%s", c->where.item, attr);
    out->depth = c->scope->depth + 1;
    out->fn = c->scope->fn;
    out->binding = c->scope->binding;
    out->n_binding = c->scope->n_binding;
}

/* Initialisers, nodes and outputs; the inputs have been bound. A value of `out` is none if its node
 * was refused. */
static weft_err import_nodes(weft_onnx_call *c, const char *attr, const Onnx__GraphProto *graph,
                             weft_onnx_scope *scope, weft_val *out, size_t n_out)
{
    if (graph->n_output != n_out)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%s has %zu outputs, expected %zu", attr,
                               graph->n_output, n_out);
    if (scope->depth > WEFT_ONNX_CALLS_MAX)
        return weft_onnx__fail(c, WEFT_ERR_INPUT,
                               "functions and graphs are nested more than %d deep",
                               WEFT_ONNX_CALLS_MAX);
    WEFT_TRY(c->cx->nested(c->cx, scope, graph));
    for (size_t i = 0; i < n_out; i++) {
        const char *name = graph->output[i]->name ? graph->output[i]->name : "";
        if (!weft_onnx__is_defined(c->cx, scope, name))
            return weft_onnx__fail(c, WEFT_ERR_INPUT, "%s: output \"%s\" is the result of no node",
                                   attr, name);
        const weft_onnx_name *e = weft_onnx__read(c->cx, scope, name);
        out[i] = e->bind == WEFT_ONNX_BOUND ? e->val : (weft_val){0};
    }
    return WEFT_ERR_OK;
}

/* The entry of input i of the graph, which nothing else may be named like. */
static weft_err new_input(weft_onnx_call *c, const char *attr, const Onnx__GraphProto *graph,
                          size_t i, weft_onnx_scope *scope, weft_onnx_name **out)
{
    const char *name = graph->input[i]->name;
    *out = weft_onnx__scope_name(c->cx, scope, name ? name : "");
    if (!name || !*name || (*out)->bind != WEFT_ONNX_UNBOUND)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%s: input %zu has no name of its own", attr, i);
    (*out)->bind = WEFT_ONNX_BOUND;
    return WEFT_ERR_OK;
}

weft_err weft_onnx__flow_inline(weft_onnx_call *c, const char *attr, const char *prefix,
                                const weft_val *in, uint32_t n_in, weft_val *out, uint32_t n_out)
{
    weft_onnx_scope scope;
    const Onnx__GraphProto *graph;
    WEFT_TRY(weft_onnx__flow_graph(c, attr, &graph));
    if (graph->n_input != n_in)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%s has %zu inputs, expected %u", attr,
                               graph->n_input, n_in);
    open_scope(c, prefix, &scope);
    for (uint32_t i = 0; i < n_in; i++) {
        weft_onnx_name *e;
        WEFT_TRY(new_input(c, attr, graph, i, &scope, &e));
        e->val = in[i];
    }
    return import_nodes(c, attr, graph, &scope, out, n_out);
}

/* -- Bodies ----------------------------------------------------------------------------------- */

static weft_err bind_formal(weft_onnx_call *c, weft_onnx_scope *scope, weft_onnx_flow_body *b)
{
    weft_onnx_ctx *cx = c->cx;
    if (b->graph->n_input != (size_t)b->n_formal + b->n_list)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%s has %zu inputs, expected %u", b->attr,
                               b->graph->n_input, b->n_formal + b->n_list);
    for (uint32_t i = 0, at = 0; i < b->graph->n_input; i++) {
        weft_onnx_name *e;
        const weft_onnx_flow_list *l =
            i >= WEFT_ONNX_LOOP_FIRST ? weft_onnx__list_get(b, i - WEFT_ONNX_LOOP_FIRST) : NULL;
        WEFT_TRY(new_input(c, b->attr, b->graph, i, scope, &e));
        if (!l)
            e->val = weft_graph_add_input(b->nest.g, weft_arena_printf(cx->arena, "in%u", at),
                                          weft_type_intern(cx->m, &b->formal[at]));
        if (!l && at >= WEFT_ONNX_LOOP_FIRST && at - WEFT_ONNX_LOOP_FIRST < b->n_loose &&
            b->loose[at - WEFT_ONNX_LOOP_FIRST])
            weft_onnx__set_loose(cx, e->val);
        at += !l;
    }
    /* Captures follow the other inputs. */
    for (uint32_t i = 0; i < b->n_list; i++) {
        const Onnx__ValueInfoProto *v = b->graph->input[WEFT_ONNX_LOOP_FIRST + b->list[i].carried];
        weft_val val = weft_onnx__list_bind(cx, b, &b->list[i]);
        weft_onnx__scope_name(cx, scope, v->name)->val = val;
    }
    return WEFT_ERR_OK;
}

/* Output `at` of the graph of the body, of rank 1 if the loop needs that. */
static weft_err settle_output(weft_onnx_call *c, const weft_onnx_flow_body *b, uint32_t at,
                              weft_val *out)
{
    if (at > 0 && at - 1 < b->n_loose)
        return b->loose[at - 1] ? weft_onnx__make_loose(c, out) : WEFT_ERR_OK;
    bool is_condition = b->loose && at == 0;
    if (b->is_branch || is_condition || !weft_onnx__is_loose(c->cx, *out))
        return WEFT_ERR_OK;
    return weft_onnx__fail(c, WEFT_ERR_UNSUP, "%s: output %u has rank 0 or 1, as data decides",
                           b->attr, at);
}

static weft_err fill_body(weft_onnx_call *c, weft_onnx_flow_body *b)
{
    weft_onnx_ctx *cx = c->cx;
    weft_onnx_scope scope;
    size_t n_out = b->graph->n_output;
    weft_val *out = weft_arena_array(cx->arena, n_out, sizeof *out);
    open_scope(c, b->attr, &scope);
    scope.nest = &b->nest;
    WEFT_TRY(bind_formal(c, &scope, b));
    if (c->row->op == WEFT_OP_LOOP)
        b->nest.round = weft_graph_input(b->nest.g, 0);
    WEFT_TRY(import_nodes(c, b->attr, b->graph, &scope, out, n_out));
    b->whole = true;
    for (size_t i = 0; i < n_out; i++) {
        b->whole = b->whole && out[i].i;
        if (!out[i].i || (i > 0 && weft_onnx__list_get(b, i - 1)))
            continue;
        if (weft_onnx__is_sequence(out[i]))
            return weft_onnx__fail(c, WEFT_ERR_UNSUP,
                                   "%s: output %zu is a sequence: return tensors", b->attr, i);
        WEFT_TRY(settle_output(c, b, weft_graph_output_count(b->nest.g), &out[i]));
        weft_graph_add_output(b->nest.g, weft_arena_printf(cx->arena, "out%zu", i), out[i]);
    }
    for (uint32_t i = 0; i < b->n_list && b->whole; i++)
        if (!b->list[i].kept)
            WEFT_TRY(weft_onnx__list_append(c, b, &b->list[i], out[1 + b->list[i].carried]));
    return WEFT_ERR_OK;
}

weft_err weft_onnx__flow_import(weft_onnx_call *c, weft_onnx_flow_body *b)
{
    weft_onnx_ctx *cx = c->cx;
    weft_graph *around = cx->g;
    if (b->graph->n_output == 0)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%s has no outputs", b->attr);
    if (++cx->n_bodies > WEFT_ONNX_BODIES_MAX)
        return weft_onnx__fail(c, WEFT_ERR_UNSUP, "more than %d graphs in attributes",
                               WEFT_ONNX_BODIES_MAX);
    const char *name = weft_arena_printf(cx->arena, "%s.%s", weft_graph_name(around), b->attr);
    b->nest = (weft_onnx_nest){.around = c->scope->nest,
                               .g = weft_body_create(cx->m, name),
                               .no_rounds = c->row->op == WEFT_OP_SCAN,
                               .inner = weft_map_create(cx->arena)};
    cx->g = b->nest.g;
    weft_err err = fill_body(c, b);
    cx->g = around;
    return err;
}

weft_err weft_onnx__flow_put(weft_onnx_call *c, weft_onnx_flow_body *const *b, uint32_t n_body,
                             const weft_val *in, uint32_t n_in, weft_val *out, uint32_t n_out)
{
    weft_onnx_ctx *cx = c->cx;
    uint32_t n = n_in;
    for (uint32_t i = 0; i < n_body; i++) {
        if (!b[i]->whole)
            return WEFT_ERR_OK;
        n += b[i]->nest.captured.len;
    }
    weft_val *all = weft_arena_array(cx->arena, n, sizeof *all);
    memcpy(all, in, n_in * sizeof *in);
    n = n_in;
    for (uint32_t i = 0; i < n_body; i++) {
        for (uint32_t k = 0; k < b[i]->nest.captured.len; k++)
            all[n++] = b[i]->nest.captured.at[k];
        weft_onnx__put(c, (weft_attr){.key = (uint16_t)weft_flow_body_key(c->row->op, i),
                                      .kind = WEFT_KIND_STR,
                                      .u = {.s = weft_graph_name(b[i]->nest.g)}});
    }
    WEFT_TRY(weft_onnx__emit(c, c->row->op, all, n, c->attr, c->n_attr, out, n_out));
    weft_body_sync(cx->g, weft_val_node(cx->m, out[0]), cx->contents);
    return WEFT_ERR_OK;
}

weft_err weft_onnx__flow_put_plain(weft_onnx_call *c, weft_onnx_flow_body *const *b,
                                   uint32_t n_body, uint32_t n_in, uint32_t n_out)
{
    weft_val *out = weft_arena_array(c->cx->arena, n_out, sizeof *out);
    WEFT_TRY(weft_onnx__flow_put(c, b, n_body, c->in, n_in, out, n_out));
    memcpy(c->out, out, c->n_out * sizeof *out);
    return WEFT_ERR_OK;
}

weft_err weft_onnx__flow_or_drop(weft_onnx_call *c, uint32_t n_graph, weft_err err)
{
    if (err != WEFT_ERR_OK || !c->out[0].i)
        weft_body_drop(c->cx->m, n_graph);
    return err;
}

weft_onnx_quiet weft_onnx__quiet_start(weft_onnx_ctx *cx)
{
    weft_onnx_quiet before = {cx->diag, cx->refused, cx->failed};
    cx->diag = NULL;
    cx->refused = weft_names_create(cx->arena);
    cx->failed = WEFT_ERR_OK;
    return before;
}

bool weft_onnx__quiet_end(weft_onnx_ctx *cx, weft_onnx_quiet before)
{
    bool ok = cx->failed == WEFT_ERR_OK;
    cx->diag = before.diag;
    cx->refused = before.refused;
    cx->failed = before.failed;
    return ok;
}
