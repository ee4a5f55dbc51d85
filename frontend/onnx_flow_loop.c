/* Loop and Scan. The body is first read with the shapes that the carried values have before the
 * first round; if it gives them other dims, it is read again with these dims left open. */
#include "frontend/onnx_flow_int.h"

#include <string.h>

typedef struct rounds {
    weft_onnx_flow_body body;
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
    weft_onnx_quiet before = weft_onnx__quiet_start(c->cx);
    weft_err err = weft_onnx__flow_import(c, &r->body);
    return weft_onnx__quiet_end(c->cx, before) && err == WEFT_ERR_OK && r->body.whole;
}

/* Twice with known dims, then with all of them open. */
static weft_err import_rounds(weft_onnx_call *c, rounds *r)
{
    enum { TRIES = 2, FIXES = 4 };
    uint32_t n_fix = 0;
    bool fixed = false;
    uint32_t n_graph = weft_graph_count(c->cx->m), n_unrolled = c->cx->n_unrolled;
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
        c->cx->n_unrolled = n_unrolled;
        if (!ok)
            break;
    }
    memset(r->open, 1, (size_t)r->n_carried * WEFT_RANK_MAX);
    set_carried(c, r);
    return weft_onnx__flow_import(c, &r->body);
}

static weft_err start_rounds(weft_onnx_call *c, weft_val *carried, uint32_t n_carried,
                             uint32_t first, uint32_t n_formal, rounds *out)
{
    *out = (rounds){.carried = carried, .n_carried = n_carried, .first = first};
    out->formal = weft_arena_array(c->cx->arena, n_formal, sizeof *out->formal);
    out->open =
        weft_arena_array(c->cx->arena, (size_t)n_carried + 1, WEFT_RANK_MAX * sizeof *out->open);
    out->loose = weft_arena_array(c->cx->arena, (size_t)n_carried + 1, sizeof *out->loose);
    out->body = (weft_onnx_flow_body){.attr = "body", .formal = out->formal, .n_formal = n_formal};
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
    return weft_onnx__flow_graph(c, "body", &out->body.graph);
}

static weft_err import_loop(weft_onnx_call *c)
{
    rounds r;
    uint32_t n_carried = c->n_in > WEFT_ONNX_LOOP_FIRST ? c->n_in - WEFT_ONNX_LOOP_FIRST : 0,
             n_in = 0;
    weft_val *in =
        weft_arena_array(c->cx->arena, (size_t)c->n_in + WEFT_ONNX_LOOP_FIRST, sizeof *in);
    uint32_t n_graph = weft_graph_count(c->cx->m);
    weft_onnx_flow_body lists = {0};
    WEFT_TRY(weft_onnx__flow_graph(c, "body", &lists.graph));
    uint32_t few = weft_onnx__few_rounds(c, lists.graph);
    if (few > 0)
        return weft_onnx__unroll(c, lists.graph, few);
    weft_onnx__list_find(c, &lists, n_carried);
    for (uint32_t i = 0; i < WEFT_ONNX_LOOP_FIRST + n_carried; i++)
        if (i < WEFT_ONNX_LOOP_FIRST || !weft_onnx__list_get(&lists, i - WEFT_ONNX_LOOP_FIRST))
            in[n_in++] = i < c->n_in ? c->in[i] : (weft_val){0};
    for (uint32_t i = 0; i < WEFT_ONNX_LOOP_FIRST; i++)
        if (weft_onnx__is_sequence(in[i]))
            return weft_onnx__fail(c, WEFT_ERR_INPUT, "input %u is a sequence", i);
    WEFT_TRY(start_rounds(c, in + WEFT_ONNX_LOOP_FIRST, n_in - WEFT_ONNX_LOOP_FIRST,
                          WEFT_ONNX_LOOP_FIRST, n_in, &r));
    r.body.list = lists.list;
    r.body.n_list = lists.n_list;
    size_t n_out = r.body.graph->n_output;
    if (n_out < 1 + (size_t)n_carried || n_out > UINT16_MAX || c->n_listed > n_out - 1)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%u carried values, %u results, %zu of the body",
                               n_carried, c->n_listed, n_out);
    r.formal[0] =
        (weft_ttype){.dtype = WEFT_DTYPE_I64, .rank = weft_onnx__declared_rank(r.body.graph, 0)};
    r.formal[1] =
        (weft_ttype){.dtype = WEFT_DTYPE_BOOL, .rank = weft_onnx__declared_rank(r.body.graph, 1)};
    r.formal[0].dim[0] = r.formal[0].rank;
    r.formal[1].dim[0] = r.formal[1].rank;
    WEFT_TRY(import_rounds(c, &r));
    if (!r.body.whole)
        return WEFT_ERR_OK;
    uint32_t n_result = (uint32_t)n_out - 1 - r.body.n_list;
    n_result += weft_onnx__list_join(c, &r.body, n_out - 1 - n_carried);
    weft_val *out = weft_arena_array(c->cx->arena, (size_t)n_result + 1, sizeof *out);
    if (n_result == 0) { /* all that it carries stays as it is */
        weft_body_drop(c->cx->m, n_graph);
        return weft_onnx__list_results(c, &r.body, n_carried, out, n_result);
    }
    if (r.needs_round)
        weft_onnx__put(c, WEFT_ATTR_OF_INT(MIN_ROUNDS, 1));
    WEFT_TRY(weft_onnx__flow_put(c, &(weft_onnx_flow_body *){&r.body}, 1, in, n_in, out, n_result));
    for (uint32_t i = 0; i < r.n_carried; i++)
        if (r.loose[i])
            weft_onnx__set_loose(c->cx, out[i]);
    return weft_onnx__list_results(c, &r.body, n_carried, out, n_result);
}

weft_err weft_onnx_hook_loop(weft_onnx_call *c)
{
    uint32_t n_graph = weft_graph_count(c->cx->m);
    return weft_onnx__flow_or_drop(c, n_graph, import_loop(c));
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
    return weft_onnx__flow_put_plain(c, &(weft_onnx_flow_body *){&r.body}, 1, c->n_in,
                                     (uint32_t)n_out);
}

weft_err weft_onnx_hook_scan(weft_onnx_call *c)
{
    uint32_t n_graph = weft_graph_count(c->cx->m);
    return weft_onnx__flow_or_drop(c, n_graph, import_scan(c));
}
