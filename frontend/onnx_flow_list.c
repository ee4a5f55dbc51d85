/* Carried values of a loop that our loop does not carry. What the body returns as it got it is
 * captured: weights, which some exporters hand from round to round, stay constants of the body.
 * What the body appends to a list becomes a result of the loop: rounds stacked, or joined if the
 * list is only concatenated later. */
#include "frontend/onnx_flow_int.h"

#include <string.h>

weft_onnx_flow_list *weft_onnx__list_get(const weft_onnx_flow_body *b, size_t carried)
{
    for (uint32_t i = 0; i < b->n_list; i++)
        if (b->list[i].carried == carried)
            return &b->list[i];
    return NULL;
}

weft_val weft_onnx__list_bind(weft_onnx_ctx *cx, weft_onnx_flow_body *b,
                              const weft_onnx_flow_list *l)
{
    if (l->kept)
        return weft_onnx__capture(cx, &b->nest, l->start);
    return weft_onnx__sequence_add(cx, &(weft_onnx_sequence){.kind = WEFT_ONNX_APPENDED,
                                                             .carried = l->carried,
                                                             .nest = b->nest.g});
}

weft_err weft_onnx__list_append(weft_onnx_call *c, weft_onnx_flow_body *b, weft_onnx_flow_list *l,
                                weft_val out)
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

bool weft_onnx__is_plain(const Onnx__NodeProto *n, const char *op)
{
    bool is_onnx = !n->domain || !*n->domain || strcmp(n->domain, "ai.onnx") == 0;
    return is_onnx && n->op_type && strcmp(n->op_type, op) == 0;
}

const char *weft_onnx__source_name(const Onnx__GraphProto *graph, size_t output)
{
    const char *name = output < graph->n_output ? graph->output[output]->name : NULL;
    for (size_t i = graph->n_node; name && i-- > 0;) {
        const Onnx__NodeProto *n = graph->node[i];
        bool passes = weft_onnx__is_plain(n, "Identity") && n->n_input == 1 && n->n_output == 1 &&
                      strcmp(n->output[0], name) == 0;
        name = passes ? n->input[0] : name;
    }
    return name;
}

/* Whether the body's output is its input, maybe through Identity. */
static bool returns_input(const Onnx__GraphProto *graph, size_t input, size_t output)
{
    const char *name = weft_onnx__source_name(graph, output);
    const char *want = input < graph->n_input ? graph->input[input]->name : NULL;
    return name && want && strcmp(name, want) == 0;
}

/* Whether the node concatenates along an axis that exists. */
static bool joins(const Onnx__NodeProto *n, int64_t *out_axis)
{
    bool known = weft_onnx__is_plain(n, "ConcatFromSequence"), has_axis = false;
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

void weft_onnx__list_find(weft_onnx_call *c, weft_onnx_flow_body *b, uint32_t n_carried)
{
    b->list = weft_arena_array(c->cx->arena, (size_t)n_carried + 1, sizeof *b->list);
    for (uint32_t i = 0; i < n_carried; i++) {
        weft_val v = c->in[WEFT_ONNX_LOOP_FIRST + i];
        bool kept = v.i && returns_input(b->graph, WEFT_ONNX_LOOP_FIRST + i, 1 + i);
        if (!kept && (!v.i || !weft_onnx__is_sequence(v)))
            continue;
        weft_onnx_flow_list *l = &b->list[b->n_list++];
        *l = (weft_onnx_flow_list){.carried = i, .start = v, .kept = kept};
        l->is_joined = i < c->n_listed && is_joined_later(c, c->out_name[i], &l->axis);
    }
}

/* The list before the loop, then what its rounds appended: `added`. */
static weft_err extend_list(weft_onnx_call *c, const weft_onnx_flow_list *l, weft_val added,
                            weft_val *out)
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

weft_err weft_onnx__list_results(weft_onnx_call *c, const weft_onnx_flow_body *b,
                                 uint32_t n_carried, const weft_val *from, uint32_t n_from)
{
    uint32_t at = 0, n_appended = 0, k = 0;
    for (uint32_t i = 0; i < b->n_list; i++)
        n_appended += !b->list[i].kept;
    for (uint32_t i = 0; i < c->n_out; i++) {
        const weft_onnx_flow_list *l = i < n_carried ? weft_onnx__list_get(b, i) : NULL;
        if (!l)
            c->out[i] = from[at++];
        else if (l->kept)
            c->out[i] = l->start;
        else
            WEFT_TRY(extend_list(c, l, from[n_from - n_appended + k++], &c->out[i]));
    }
    return WEFT_ERR_OK;
}

uint32_t weft_onnx__list_join(weft_onnx_call *c, const weft_onnx_flow_body *b, size_t n_scan)
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
