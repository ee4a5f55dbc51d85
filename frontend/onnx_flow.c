/* Control flow: hooks of If, Loop and Scan, whose attributes hold graphs.
 *
 * An If whose condition is known becomes the nodes of its branch, in the graph around it; the other
 * branch is not read, so it may hold what is not supported. Other graphs become bodies (ir/body.c).
 * A loop's body is first read with the shapes that its carried values have before the first round;
 * if it gives them other dims, it is read again with these dims left open.
 *
 * A loop may carry lists. One that the body returns as it got it is captured; what the body appends
 * to another one becomes a result of the loop: rounds stacked, or joined if the list is only
 * concatenated later. */
#include "frontend/onnx_build.h"

#include <string.h>

static weft_err get_graph(weft_onnx_call *c, const char *name, const Onnx__GraphProto **out)
{
    const Onnx__AttributeProto *a = weft_onnx__attr(c, name);
    if (!a || !a->g)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "attribute \"%s\" holds no graph", name);
    *out = a->g;
    return WEFT_ERR_OK;
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

/* -- Bodies ----------------------------------------------------------------------------------- */

/* A sequence that a loop carries. */
typedef struct list {
    uint32_t carried; /* number among the carried values */
    weft_val start;
    bool kept;      /* the body returns what it was given */
    bool is_joined; /* its elements are joined along `axis`, which may be negative */
    int64_t axis;
    int64_t result_axis; /* along which the rounds' results are joined; -1: stacked */
} list;

/* A graph that is read as a body. */
typedef struct body {
    const char *attr;
    const Onnx__GraphProto *graph;
    const weft_ttype *formal; /* types of its inputs that are no lists */
    uint32_t n_formal;
    list *list;
    uint32_t n_list;
    bool is_branch;    /* of an If */
    const bool *loose; /* [n_loose]: carried tensors of a loop whose rank is 0 or 1 */
    uint32_t n_loose;
    weft_onnx_nest nest;
    bool whole; /* all outputs are there */
} body;

enum { LOOP_FIRST = 2 }; /* inputs of a loop's body before the carried ones */

static list *find_list(const body *b, size_t carried)
{
    for (uint32_t i = 0; i < b->n_list; i++)
        if (b->list[i].carried == carried)
            return &b->list[i];
    return NULL;
}

/* What the body sees as the list. */
static weft_val bind_list(weft_onnx_ctx *cx, body *b, const list *l)
{
    if (l->kept)
        return weft_onnx__capture(cx, &b->nest, l->start);
    return weft_onnx__sequence_add(cx, &(weft_onnx_sequence){.kind = WEFT_ONNX_APPENDED,
                                                             .carried = l->carried,
                                                             .nest = b->nest.g});
}

static weft_err bind_formal(weft_onnx_call *c, weft_onnx_scope *scope, body *b)
{
    weft_onnx_ctx *cx = c->cx;
    if (b->graph->n_input != (size_t)b->n_formal + b->n_list)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%s has %zu inputs, expected %u", b->attr,
                               b->graph->n_input, b->n_formal + b->n_list);
    for (uint32_t i = 0, at = 0; i < b->graph->n_input; i++) {
        const Onnx__ValueInfoProto *v = b->graph->input[i];
        weft_onnx_name *e = weft_onnx__scope_name(cx, scope, v->name ? v->name : "");
        const list *l = i >= LOOP_FIRST ? find_list(b, i - LOOP_FIRST) : NULL;
        if (!v->name || !*v->name || e->bind != WEFT_ONNX_UNBOUND)
            return weft_onnx__fail(c, WEFT_ERR_INPUT, "%s: input %u has no name of its own",
                                   b->attr, i);
        e->bind = WEFT_ONNX_BOUND;
        if (!l)
            e->val = weft_graph_add_input(b->nest.g, weft_arena_printf(cx->arena, "in%u", at),
                                          weft_type_intern(cx->m, &b->formal[at]));
        if (!l && at >= LOOP_FIRST && at - LOOP_FIRST < b->n_loose && b->loose[at - LOOP_FIRST])
            weft_onnx__set_loose(cx, e->val);
        at += !l;
    }
    /* Captures follow the other inputs. */
    for (uint32_t i = 0; i < b->n_list; i++) {
        const Onnx__ValueInfoProto *v = b->graph->input[LOOP_FIRST + b->list[i].carried];
        weft_val val = bind_list(cx, b, &b->list[i]);
        weft_onnx__scope_name(cx, scope, v->name)->val = val;
    }
    return WEFT_ERR_OK;
}

/* What a round appends to the list, as an output of the body. */
static weft_err give_appended(weft_onnx_call *c, body *b, list *l, weft_val out)
{
    weft_onnx_build build = {.c = c};
    weft_onnx_sequence s = {0};
    if (weft_onnx__is_sequence(out))
        s = weft_onnx__sequence_get(c->cx, out);
    if (s.kind != WEFT_ONNX_APPENDED || s.nest != b->nest.g || s.carried != l->carried)
        return weft_onnx__fail(c, WEFT_ERR_UNSUP,
                               "carried value %u is a list: the loop may only append to it, the "
                               "same number of elements in each round",
                               l->carried);
    l->result_axis = -1;
    if (s.n == 0) {
        l->kept = true;
        return WEFT_ERR_OK;
    }
    int64_t rank = weft_onnx__type(c, s.at[0])->rank, axis = l->axis + (l->axis < 0 ? rank : 0);
    if (l->is_joined && (axis < 0 || axis >= rank))
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "axis %lld of elements of rank %lld",
                               (long long)l->axis, (long long)rank);
    weft_val all = s.at[0];
    if (l->is_joined) {
        all = weft_onnx__concat(&build, s.at, s.n, axis);
        l->result_axis = axis;
    } else if (s.n > 1) {
        for (uint32_t i = 0; i < s.n; i++)
            s.at[i] = weft_onnx__unsqueeze(&build, s.at[i], 0);
        all = weft_onnx__concat(&build, s.at, s.n, 0);
        l->result_axis = 0;
    }
    WEFT_TRY(build.err);
    weft_graph_add_output(b->nest.g, weft_arena_printf(c->cx->arena, "list%u", l->carried), all);
    return WEFT_ERR_OK;
}

/* Output `at` of the graph of the body, of rank 1 if the loop needs that. */
static weft_err settle_output(weft_onnx_call *c, const body *b, uint32_t at, weft_val *out)
{
    if (at > 0 && at - 1 < b->n_loose)
        return b->loose[at - 1] ? weft_onnx__make_loose(c, out) : WEFT_ERR_OK;
    bool is_condition = b->loose && at == 0;
    if (b->is_branch || is_condition || !weft_onnx__is_loose(c->cx, *out))
        return WEFT_ERR_OK;
    return weft_onnx__fail(c, WEFT_ERR_UNSUP, "%s: output %u has rank 0 or 1, as data decides",
                           b->attr, at);
}

static weft_err fill_body(weft_onnx_call *c, body *b)
{
    weft_onnx_ctx *cx = c->cx;
    weft_onnx_scope scope;
    size_t n_out = b->graph->n_output;
    weft_val *out = weft_arena_array(cx->arena, n_out, sizeof *out);
    open_scope(c, b->attr, &scope);
    scope.nest = &b->nest;
    WEFT_TRY(bind_formal(c, &scope, b));
    WEFT_TRY(import_nodes(c, b->attr, b->graph, &scope, out, n_out));
    b->whole = true;
    for (size_t i = 0; i < n_out; i++) {
        b->whole = b->whole && out[i].i;
        if (!out[i].i || (i > 0 && find_list(b, i - 1)))
            continue;
        if (weft_onnx__is_sequence(out[i]))
            return weft_onnx__fail(c, WEFT_ERR_UNSUP,
                                   "%s: output %zu is a sequence: return tensors", b->attr, i);
        WEFT_TRY(settle_output(c, b, weft_graph_output_count(b->nest.g), &out[i]));
        weft_graph_add_output(b->nest.g, weft_arena_printf(cx->arena, "out%zu", i), out[i]);
    }
    for (uint32_t i = 0; i < b->n_list && b->whole; i++)
        if (!b->list[i].kept)
            WEFT_TRY(give_appended(c, b, &b->list[i], out[1 + b->list[i].carried]));
    return WEFT_ERR_OK;
}

static weft_err import_body(weft_onnx_call *c, body *b)
{
    weft_onnx_ctx *cx = c->cx;
    weft_graph *around = cx->g;
    if (b->graph->n_output == 0)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%s has no outputs", b->attr);
    if (++cx->n_bodies > WEFT_ONNX_BODIES_MAX)
        return weft_onnx__fail(c, WEFT_ERR_UNSUP, "more than %d graphs in attributes",
                               WEFT_ONNX_BODIES_MAX);
    const char *name = weft_arena_printf(cx->arena, "%s.%s", weft_graph_name(around), b->attr);
    b->nest =
        (weft_onnx_nest){.g = weft_body_create(cx->m, name), .inner = weft_map_create(cx->arena)};
    cx->g = b->nest.g;
    weft_err err = fill_body(c, b);
    cx->g = around;
    return err;
}

/* The node; `in`: its operands before the captures. Without results if a body is not whole. */
static weft_err put_node(weft_onnx_call *c, body *const *b, uint32_t n_body, const weft_val *in,
                         uint32_t n_in, weft_val *out, uint32_t n_out)
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

/* The same for a node with the results of the ONNX node. */
static weft_err put_plain(weft_onnx_call *c, body *const *b, uint32_t n_body, uint32_t n_in,
                          uint32_t n_out)
{
    weft_val *out = weft_arena_array(c->cx->arena, n_out, sizeof *out);
    WEFT_TRY(put_node(c, b, n_body, c->in, n_in, out, n_out));
    memcpy(c->out, out, c->n_out * sizeof *out);
    return WEFT_ERR_OK;
}

/* -- If --------------------------------------------------------------------------------------- */

/* if (known) ==> the nodes of the branch */
static weft_err inline_branch(weft_onnx_call *c, const char *attr)
{
    weft_onnx_scope scope;
    const Onnx__GraphProto *graph;
    WEFT_TRY(get_graph(c, attr, &graph));
    if (graph->n_input > 0)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%s has inputs", attr);
    open_scope(c, attr, &scope);
    weft_val *out = weft_arena_array(c->cx->arena, c->n_listed, sizeof *out);
    WEFT_TRY(import_nodes(c, attr, graph, &scope, out, c->n_listed));
    memcpy(c->out, out, c->n_out * sizeof *out);
    return WEFT_ERR_OK;
}

/* One element of rank 0 in one branch and of rank 1 in the other. */
static weft_err join_ranks(weft_onnx_call *c, body *const *b, bool *out_loose)
{
    weft_onnx_ctx *cx = c->cx;
    weft_graph *around = cx->g;
    weft_err err = WEFT_ERR_OK;
    for (uint32_t i = 0; i < c->n_listed; i++) {
        weft_val v[2] = {weft_graph_output(b[0]->nest.g, i), weft_graph_output(b[1]->nest.g, i)};
        bool any = weft_onnx__is_loose(cx, v[0]) || weft_onnx__is_loose(cx, v[1]) ||
                   weft_onnx__type(c, v[0])->rank != weft_onnx__type(c, v[1])->rank;
        out_loose[i] = any && weft_onnx__is_single(cx, v[0]) && weft_onnx__is_single(cx, v[1]);
        for (int k = 0; k < 2 && out_loose[i] && err == WEFT_ERR_OK; k++) {
            cx->g = b[k]->nest.g;
            err = weft_onnx__make_loose(c, &v[k]);
            if (err == WEFT_ERR_OK)
                weft_graph_set_output(cx->g, i, v[k]);
        }
    }
    cx->g = around;
    return err;
}

static weft_err import_branches(weft_onnx_call *c)
{
    body yes = {.attr = "then_branch", .is_branch = true};
    body no = {.attr = "else_branch", .is_branch = true};
    body *const both[] = {&yes, &no};
    for (int i = 0; i < 2; i++) {
        WEFT_TRY(get_graph(c, both[i]->attr, &both[i]->graph));
        if (both[i]->graph->n_output != c->n_listed)
            return weft_onnx__fail(c, WEFT_ERR_INPUT, "%s has %zu outputs, expected %u",
                                   both[i]->attr, both[i]->graph->n_output, c->n_listed);
        WEFT_TRY(import_body(c, both[i]));
    }
    bool *loose = weft_arena_array(c->cx->arena, c->n_listed, sizeof *loose);
    if (yes.whole && no.whole)
        WEFT_TRY(join_ranks(c, both, loose));
    WEFT_TRY(put_plain(c, both, 2, 1, c->n_listed));
    for (uint32_t i = 0; i < c->n_out; i++)
        if (loose[i] && c->out[i].i)
            weft_onnx__set_loose(c->cx, c->out[i]);
    return WEFT_ERR_OK;
}

/* The bodies of a node that is not made are removed. */
static weft_err or_drop(weft_onnx_call *c, uint32_t n_graph, weft_err err)
{
    if (err != WEFT_ERR_OK || !c->out[0].i)
        weft_body_drop(c->cx->m, n_graph);
    return err;
}

/* Messages, refused operators and the first error of an import that may be given up. */
typedef struct quiet {
    weft_diag *diag;
    weft_names *refused;
    weft_err failed;
} quiet;

static quiet start_quiet(weft_onnx_ctx *cx)
{
    quiet before = {cx->diag, cx->refused, cx->failed};
    cx->diag = NULL;
    cx->refused = weft_names_create(cx->arena);
    cx->failed = WEFT_ERR_OK;
    return before;
}

/* Whether nothing failed; messages are reported again. */
static bool end_quiet(weft_onnx_ctx *cx, quiet before)
{
    bool ok = cx->failed == WEFT_ERR_OK;
    cx->diag = before.diag;
    cx->refused = before.refused;
    cx->failed = before.failed;
    return ok;
}

/* The condition is `a == b`, or with *out_not `a != b`, of two sizes that inputs determine. */
static bool compares_sizes(weft_onnx_ctx *cx, weft_val v, weft_dim *out_a, weft_dim *out_b,
                           bool *out_not)
{
    enum { STEPS = 16 };
    weft_dimpool *pool = weft_module_dims(cx->m);
    for (int i = 0; i < STEPS; i++) {
        weft_node n = weft_val_node(cx->m, v);
        weft_op_id op = n.i ? weft_node_op(cx->m, n) : WEFT_OP_NONE;
        if (op == WEFT_OP_EQUAL) {
            uint32_t n_a = 0, n_b = 0;
            const weft_dim *a = weft_contents_get(cx->contents, weft_node_in(cx->m, n, 0), &n_a);
            const weft_dim *b = weft_contents_get(cx->contents, weft_node_in(cx->m, n, 1), &n_b);
            if (!a || !b || n_a != 1 || n_b != 1 || weft_dim_is_data(pool, *a) ||
                weft_dim_is_data(pool, *b))
                return false;
            *out_a = *a;
            *out_b = *b;
            return true;
        }
        bool passes = op == WEFT_OP_NOT || op == WEFT_OP_IDENTITY || op == WEFT_OP_CAST ||
                      op == WEFT_OP_SQUEEZE || op == WEFT_OP_RESHAPE || op == WEFT_OP_UNSQUEEZE;
        if (!passes)
            return false;
        *out_not ^= op == WEFT_OP_NOT;
        v = weft_node_in(cx->m, n, 0);
    }
    return false;
}

/* if (size == 1) squeeze(x) else x, as exporters write a squeeze of a size that they do not know:
 * the rank of the result would depend on the size. The model is compiled for the size that the
 * condition asks for; others are refused when the sizes are known. */
static weft_err require_sizes(weft_onnx_call *c, weft_dim a, weft_dim b, bool is_not)
{
    const weft_graph_require r = {.kind = WEFT_REQUIRE_EQUAL,
                                  .a = a,
                                  .b = b,
                                  .guard = 1,
                                  .item = c->where.item,
                                  .what =
                                      "If: compiled for sizes that are equal here (`dims:` of a "
                                      "set file compiles it for others)"};
    if (weft_graph_require_count(c->cx->g) == WEFT_MODEL_REQUIRES_MAX ||
        !weft_graph_add_require(c->cx->g, &r))
        return weft_onnx__fail(c, WEFT_ERR_UNSUP, "over %d sizes have to be compared at run time",
                               WEFT_MODEL_REQUIRES_MAX);
    return inline_branch(c, is_not ? "else_branch" : "then_branch");
}

weft_err weft_onnx_hook_if(weft_onnx_call *c)
{
    double condition;
    if (c->n_in != 1 || !c->in[0].i)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%u inputs, expected 1", c->n_in);
    if (weft_onnx__type(c, c->in[0])->dtype != WEFT_DTYPE_BOOL)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "the condition is not of type bool");
    if (weft_onnx__known(c->cx, c->in[0], &condition))
        return inline_branch(c, condition != 0.0 ? "then_branch" : "else_branch");
    uint32_t n_graph = weft_graph_count(c->cx->m);
    weft_dim a, b;
    bool is_not = false;
    if (!compares_sizes(c->cx, c->in[0], &a, &b, &is_not))
        return or_drop(c, n_graph, import_branches(c));
    quiet before = start_quiet(c->cx);
    weft_err err = or_drop(c, n_graph, import_branches(c));
    return end_quiet(c->cx, before) && err == WEFT_ERR_OK ? err : require_sizes(c, a, b, is_not);
}

/* -- Loop and Scan ---------------------------------------------------------------------------- */

typedef struct rounds {
    body body;
    weft_ttype *formal;
    weft_val *carried; /* operands */
    uint32_t first, n_carried;
    bool *open;       /* [carried][dim]: changes from round to round */
    bool *loose;      /* [carried]: rank 0 or 1 */
    bool needs_round; /* the operands of carried values that no round reads were replaced */
} rounds;

/* ir/body.c: a body takes such a dim as a symbol of its own. */
static bool is_computed(weft_onnx_call *c, weft_dim d)
{
    const weft_dimpool *pool = weft_module_dims(c->cx->m);
    return !weft_dim_is_const(d) && weft_dim_is_data(pool, d) &&
           weft_dim_as_symbol(pool, d) == UINT32_MAX;
}

static void set_carried(weft_onnx_call *c, rounds *r)
{
    for (uint32_t i = 0; i < r->n_carried; i++) {
        weft_ttype *t = &r->formal[r->first + i];
        *t = *weft_onnx__type(c, r->carried[i]);
        for (uint32_t k = 0; k < t->rank; k++)
            if (r->open[i * WEFT_RANK_MAX + k] || is_computed(c, t->dim[k]))
                t->dim[k] = weft_dim_fresh(weft_module_dims(c->cx->m));
    }
}

/* Opens the dims that the body changes; false if it changes none. */
static bool open_changed(weft_onnx_call *c, rounds *r)
{
    bool changed = false;
    uint32_t first_out = c->row->op == WEFT_OP_LOOP ? 1 : 0;
    for (uint32_t i = 0; i < r->n_carried; i++) {
        const weft_ttype *in = &r->formal[r->first + i];
        const weft_ttype *out =
            weft_onnx__type(c, weft_graph_output(r->body.nest.g, first_out + i));
        for (uint32_t k = 0; in->rank == out->rank && k < in->rank; k++) {
            bool *open = &r->open[i * WEFT_RANK_MAX + k];
            if (*open || in->dim[k] == out->dim[k])
                continue;
            changed = *open = true;
        }
    }
    return changed;
}

/* Whether the body reads carried value i. */
static bool is_read(const weft_onnx_call *c, const rounds *r, uint32_t i)
{
    const weft_graph *g = r->body.nest.g;
    weft_val v = weft_graph_input(g, r->first + i);
    for (uint32_t k = 0; k < weft_graph_output_count(g); k++)
        if (weft_graph_output(g, k).i == v.i)
            return true;
    return weft_val_use_count(c->cx->m, v) > 0;
}

/* An operand of the type that the rounds give; it has no elements. */
static weft_val make_unread(weft_onnx_call *c, const weft_ttype *type)
{
    const int64_t none[WEFT_RANK_MAX] = {0};
    return weft_onnx__const(c, (weft_dtype)type->dtype, none, type->rank, NULL);
}

/* Rounds that give a carried value another rank than it has: one element of rank 0 or 1 is loose;
 * one that no round reads begins with the rank that rounds give. *out: the body is to be read
 * again. */
static weft_err fix_ranks(weft_onnx_call *c, rounds *r, bool *out)
{
    weft_onnx_build b = {.c = c};
    const weft_dim one = 1;
    *out = false;
    for (uint32_t i = 0; c->row->op == WEFT_OP_LOOP && i < r->n_carried; i++) {
        weft_val to = weft_graph_output(r->body.nest.g, 1 + i);
        const weft_ttype *in = weft_onnx__type(c, r->carried[i]), *type = weft_onnx__type(c, to);
        if (r->loose[i] || in->dtype != type->dtype ||
            (in->rank == type->rank && !weft_onnx__is_loose(c->cx, to)))
            continue;
        if (weft_onnx__is_single(c->cx, to) && weft_onnx__is_single(c->cx, r->carried[i])) {
            if (in->rank == 0)
                r->carried[i] = weft_onnx__reshape(&b, r->carried[i], &one, 1);
            *out = r->loose[i] = true;
        } else if (in->rank != type->rank && type->rank > 0 && !is_read(c, r, i)) {
            r->carried[i] = make_unread(c, type);
            memset(&r->open[i * WEFT_RANK_MAX], 1, WEFT_RANK_MAX);
            *out = r->needs_round = true;
        }
    }
    return b.err;
}

/* Reads the body without messages and without effect on what is reported later. */
static bool try_body(weft_onnx_call *c, rounds *r)
{
    quiet before = start_quiet(c->cx);
    weft_err err = import_body(c, &r->body);
    return end_quiet(c->cx, before) && err == WEFT_ERR_OK && r->body.whole;
}

/* Twice with known dims, then with all of them open. */
static weft_err import_rounds(weft_onnx_call *c, rounds *r)
{
    enum { TRIES = 2, FIXES = 4 };
    uint32_t n_fix = 0;
    bool fixed = false;
    uint32_t n_graph = weft_graph_count(c->cx->m);
    for (int i = 0; i < TRIES; i++) {
        set_carried(c, r);
        bool ok = try_body(c, r);
        if (ok && n_fix++ < FIXES)
            WEFT_TRY(fix_ranks(c, r, &fixed));
        if (ok && !fixed && !open_changed(c, r))
            return WEFT_ERR_OK;
        i = fixed ? -1 : i;
        fixed = false;
        weft_body_drop(c->cx->m, n_graph);
        if (!ok)
            break;
    }
    memset(r->open, 1, (size_t)r->n_carried * WEFT_RANK_MAX);
    set_carried(c, r);
    return import_body(c, &r->body);
}

static weft_err start_rounds(weft_onnx_call *c, weft_val *carried, uint32_t n_carried,
                             uint32_t first, uint32_t n_formal, rounds *out)
{
    *out = (rounds){.carried = carried, .n_carried = n_carried, .first = first};
    out->formal = weft_arena_array(c->cx->arena, n_formal, sizeof *out->formal);
    out->open =
        weft_arena_array(c->cx->arena, (size_t)n_carried + 1, WEFT_RANK_MAX * sizeof *out->open);
    out->loose = weft_arena_array(c->cx->arena, (size_t)n_carried + 1, sizeof *out->loose);
    out->body = (body){.attr = "body", .formal = out->formal, .n_formal = n_formal};
    if (c->row->op == WEFT_OP_LOOP) {
        out->body.loose = out->loose;
        out->body.n_loose = n_carried;
    }
    for (uint32_t i = 0; i < n_carried; i++)
        out->loose[i] = weft_onnx__is_loose(c->cx, carried[i]);
    for (uint32_t i = 0; i < n_carried; i++)
        if (!carried[i].i)
            return weft_onnx__fail(c, WEFT_ERR_INPUT, "a carried value is missing");
    weft_onnx__put(c, WEFT_ATTR_OF_INT(CARRIED, n_carried));
    return get_graph(c, "body", &out->body.graph);
}

/* 1 if input i of the graph is declared with one dim: the iteration or the condition. */
static uint8_t declared_rank(const Onnx__GraphProto *graph, size_t i)
{
    const Onnx__TypeProto *t = i < graph->n_input ? graph->input[i]->type : NULL;
    bool is_tensor = t && t->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE && t->tensor_type;
    return is_tensor && t->tensor_type->shape && t->tensor_type->shape->n_dim == 1;
}

/* -- Lists that a loop carries ---------------------------------------------------------------- */

/* Whether the body's output is its input, maybe through Identity. */
static bool returns_input(const Onnx__GraphProto *graph, size_t input, size_t output)
{
    const char *name = output < graph->n_output ? graph->output[output]->name : NULL;
    const char *want = input < graph->n_input ? graph->input[input]->name : NULL;
    for (size_t i = graph->n_node; name && want && i-- > 0 && strcmp(name, want) != 0;) {
        const Onnx__NodeProto *n = graph->node[i];
        bool passes = n->op_type && strcmp(n->op_type, "Identity") == 0 && n->n_input == 1 &&
                      n->n_output == 1 && strcmp(n->output[0], name) == 0;
        name = passes ? n->input[0] : name;
    }
    return name && want && strcmp(name, want) == 0;
}

/* Whether the node concatenates along an axis that exists. */
static bool joins(const Onnx__NodeProto *n, int64_t *out_axis)
{
    bool known = n->op_type && strcmp(n->op_type, "ConcatFromSequence") == 0, has_axis = false;
    for (size_t i = 0; known && i < n->n_attribute; i++) {
        const Onnx__AttributeProto *a = n->attribute[i];
        known = a->name && !(a->ref_attr_name && *a->ref_attr_name);
        if (known && strcmp(a->name, "axis") == 0) {
            *out_axis = a->i;
            has_axis = true;
        }
        known = known && (strcmp(a->name, "new_axis") != 0 || a->i == 0);
    }
    return known && has_axis;
}

/* Whether all nodes that read `name` join the sequence along one axis. */
static bool is_joined_later(const weft_onnx_call *c, const char *name, int64_t *out_axis)
{
    uint32_t n_reader = 0;
    for (size_t i = 0; i < c->scope->n_node; i++) {
        const Onnx__NodeProto *n = c->scope->node[i];
        for (size_t k = 0; k < n->n_input; k++) {
            int64_t axis;
            if (strcmp(n->input[k], name) != 0)
                continue;
            if (!joins(n, &axis) || (n_reader++ > 0 && axis != *out_axis))
                return false;
            *out_axis = axis;
        }
    }
    return n_reader > 0;
}

static void find_lists(weft_onnx_call *c, body *b, uint32_t n_carried)
{
    b->list = weft_arena_array(c->cx->arena, (size_t)n_carried + 1, sizeof *b->list);
    for (uint32_t i = 0; i < n_carried; i++) {
        weft_val v = c->in[LOOP_FIRST + i];
        if (!v.i || !weft_onnx__is_sequence(v))
            continue;
        list *l = &b->list[b->n_list++];
        *l = (list){
            .carried = i, .start = v, .kept = returns_input(b->graph, LOOP_FIRST + i, 1 + i)};
        l->is_joined = i < c->n_listed && is_joined_later(c, c->out_name[i], &l->axis);
    }
}

/* The list before the loop, then what its rounds appended: `added`. */
static weft_err extend_list(weft_onnx_call *c, const list *l, weft_val added, weft_val *out)
{
    weft_onnx_build b = {.c = c};
    weft_onnx_sequence s = weft_onnx__sequence_get(c->cx, l->start);
    weft_val *part = weft_arena_array(c->cx->arena, (size_t)s.n + 2, sizeof *part);
    uint32_t n = 0, axis = l->is_joined ? (uint32_t)l->result_axis : 0;
    bool fits = s.kind == WEFT_ONNX_LIST ||
                (l->is_joined ? s.kind == WEFT_ONNX_JOINED && s.axis == axis
                              : s.kind == WEFT_ONNX_SLICES && s.squeeze && s.axis == 0);
    if (!fits)
        return weft_onnx__fail(c, WEFT_ERR_UNSUP,
                               "carried value %u: a list of unknown length is appended to: return "
                               "what the loop appends as a tensor",
                               l->carried);
    for (uint32_t i = 0; i < s.n; i++)
        part[n++] = l->is_joined ? s.at[i] : weft_onnx__unsqueeze(&b, s.at[i], 0);
    if (s.whole.i)
        part[n++] = s.whole;
    part[n++] = added;
    const weft_onnx_sequence all = {.kind = l->is_joined ? WEFT_ONNX_JOINED : WEFT_ONNX_SLICES,
                                    .whole = weft_onnx__concat(&b, part, n, axis),
                                    .axis = axis,
                                    .chunk = 1,
                                    .squeeze = !l->is_joined};
    *out = weft_onnx__sequence_add(c->cx, &all);
    return b.err;
}

/* Results of the ONNX node from those of ours: carried tensors, stacked results, lists. */
static weft_err give_results(weft_onnx_call *c, const body *b, uint32_t n_carried,
                             const weft_val *from, uint32_t n_from)
{
    uint32_t at = 0, n_appended = 0, k = 0;
    for (uint32_t i = 0; i < b->n_list; i++)
        n_appended += !b->list[i].kept;
    for (uint32_t i = 0; i < c->n_out; i++) {
        const list *l = i < n_carried ? find_list(b, i) : NULL;
        if (!l)
            c->out[i] = from[at++];
        else if (l->kept)
            c->out[i] = l->start;
        else
            WEFT_TRY(extend_list(c, l, from[n_from - n_appended + k++], &c->out[i]));
    }
    return WEFT_ERR_OK;
}

/* Says which stacked results are joined; returns the number of lists that are results. */
static uint32_t put_joined(weft_onnx_call *c, const body *b, size_t n_scan)
{
    int64_t *axis =
        weft_arena_array(weft_module_arena(c->cx->m), n_scan + b->n_list + 1, sizeof *axis);
    uint32_t n = (uint32_t)n_scan;
    bool any = false;
    for (uint32_t i = 0; i < n; i++)
        axis[i] = -1;
    for (uint32_t i = 0; i < b->n_list; i++) {
        if (b->list[i].kept)
            continue;
        axis[n++] = b->list[i].result_axis;
        any = any || b->list[i].result_axis >= 0;
    }
    if (any)
        weft_onnx__put(c, WEFT_ATTR_OF_INTS(JOINED, axis, n));
    return n - (uint32_t)n_scan;
}

static weft_err import_loop(weft_onnx_call *c)
{
    rounds r;
    uint32_t n_carried = c->n_in > LOOP_FIRST ? c->n_in - LOOP_FIRST : 0, n_in = 0;
    weft_val *in = weft_arena_array(c->cx->arena, (size_t)c->n_in + LOOP_FIRST, sizeof *in);
    body lists = {0};
    WEFT_TRY(get_graph(c, "body", &lists.graph));
    find_lists(c, &lists, n_carried);
    for (uint32_t i = 0; i < LOOP_FIRST + n_carried; i++)
        if (i < LOOP_FIRST || !find_list(&lists, i - LOOP_FIRST))
            in[n_in++] = i < c->n_in ? c->in[i] : (weft_val){0};
    for (uint32_t i = 0; i < LOOP_FIRST; i++)
        if (weft_onnx__is_sequence(in[i]))
            return weft_onnx__fail(c, WEFT_ERR_INPUT, "input %u is a sequence", i);
    WEFT_TRY(start_rounds(c, in + LOOP_FIRST, n_in - LOOP_FIRST, LOOP_FIRST, n_in, &r));
    r.body.list = lists.list;
    r.body.n_list = lists.n_list;
    size_t n_out = r.body.graph->n_output;
    if (n_out < 1 + (size_t)n_carried || n_out > UINT16_MAX || c->n_listed > n_out - 1)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%u carried values, %u results, %zu of the body",
                               n_carried, c->n_listed, n_out);
    r.formal[0] = (weft_ttype){.dtype = WEFT_DTYPE_I64, .rank = declared_rank(r.body.graph, 0)};
    r.formal[1] = (weft_ttype){.dtype = WEFT_DTYPE_BOOL, .rank = declared_rank(r.body.graph, 1)};
    r.formal[0].dim[0] = r.formal[0].rank;
    r.formal[1].dim[0] = r.formal[1].rank;
    WEFT_TRY(import_rounds(c, &r));
    if (!r.body.whole)
        return WEFT_ERR_OK;
    uint32_t n_result = (uint32_t)n_out - 1 - r.body.n_list;
    n_result += put_joined(c, &r.body, n_out - 1 - n_carried);
    weft_val *out = weft_arena_array(c->cx->arena, (size_t)n_result + 1, sizeof *out);
    if (n_result == 0) /* lists only, which it leaves as they are */
        return weft_onnx__fail(c, WEFT_ERR_UNSUP, "a loop without a result");
    if (r.needs_round)
        weft_onnx__put(c, WEFT_ATTR_OF_INT(MIN_ROUNDS, 1));
    WEFT_TRY(put_node(c, &(body *){&r.body}, 1, in, n_in, out, n_result));
    for (uint32_t i = 0; i < r.n_carried; i++)
        if (r.loose[i])
            weft_onnx__set_loose(c->cx, out[i]);
    return give_results(c, &r.body, n_carried, out, n_result);
}

weft_err weft_onnx_hook_loop(weft_onnx_call *c)
{
    uint32_t n_graph = weft_graph_count(c->cx->m);
    return or_drop(c, n_graph, import_loop(c));
}

static weft_err import_scan(weft_onnx_call *c)
{
    rounds r;
    int64_t n_sliced;
    WEFT_TRY(weft_onnx__get_int(c, "num_scan_inputs", 0, &n_sliced));
    if (n_sliced < 1 || n_sliced > c->n_in)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%lld scanned inputs of %u", (long long)n_sliced,
                               c->n_in);
    uint32_t n_carried = c->n_in - (uint32_t)n_sliced;
    WEFT_TRY(start_rounds(c, c->in, n_carried, 0, c->n_in, &r));
    WEFT_TRY(weft_onnx__map_attrs(c, c->row->op));
    weft_onnx__put(c, WEFT_ATTR_OF_INT(NUM_SCAN_INPUTS, n_sliced));
    size_t n_out = r.body.graph->n_output;
    if (n_out < n_carried || n_out > UINT16_MAX || c->n_listed > n_out)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%u states, %u results, %zu of the body",
                               n_carried, c->n_listed, n_out);
    for (uint32_t i = 0; i < (uint32_t)n_sliced; i++) {
        weft_val v = c->in[n_carried + i];
        uint32_t axis;
        if (!v.i)
            return weft_onnx__fail(c, WEFT_ERR_INPUT, "a scanned input is missing");
        weft_ttype t = *weft_onnx__type(c, v), *to = &r.formal[n_carried + i];
        weft_attrs attrs = {.at = c->attr, .n = c->n_attr};
        if (!weft_flow_axis(attrs, false, i, t.rank, &axis))
            return weft_onnx__fail(c, WEFT_ERR_INPUT, "the axis of scanned input %u, of rank %u", i,
                                   t.rank);
        *to = (weft_ttype){.dtype = t.dtype, .rank = (uint8_t)(t.rank - 1)};
        for (uint32_t d = 0, k = 0; d < t.rank; d++)
            if (d != axis)
                to->dim[k++] = is_computed(c, t.dim[d]) ? weft_dim_fresh(weft_module_dims(c->cx->m))
                                                        : t.dim[d];
    }
    WEFT_TRY(import_rounds(c, &r));
    return put_plain(c, &(body *){&r.body}, 1, c->n_in, (uint32_t)n_out);
}

weft_err weft_onnx_hook_scan(weft_onnx_call *c)
{
    uint32_t n_graph = weft_graph_count(c->cx->m);
    return or_drop(c, n_graph, import_scan(c));
}
