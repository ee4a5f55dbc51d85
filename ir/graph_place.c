/* Converts a graph at concrete dims to the structures of ops/place.h, and places its values. */
#include "ir/ir_int.h"

#include <string.h>

typedef struct placer {
    weft_graph *g;
    weft_module *m;
    weft_arena *arena;
    uint32_t *number; /* by value: its number, from 1 */
    weft_places *out;
} placer;

static uint32_t number_val(placer *p, weft_val v)
{
    if (!v.i || p->number[v.i])
        return v.i ? p->number[v.i] : 0;
    p->out->val[++p->out->n] = v;
    return p->number[v.i] = p->out->n;
}

/* Fills the given fields for a value at these dims. false: a dim has no value. */
static bool describe(const weft_module *m, const weft_dimpool *dims, const int64_t *symbol,
                     uint32_t n_symbol, weft_val v, weft_place_value *out)
{
    const weft_ttype *t = weft_val_ttype(m, v);
    weft_val_kind kind = weft_val_get_kind(m, v);
    *out = (weft_place_value){
        .dtype = (weft_dtype)t->dtype, .layout = (weft_layout)t->layout, .rank = t->rank};
    if (kind == WEFT_VAL_WEIGHT)
        out->place = WEFT_PLACE_WEIGHT;
    else if (kind != WEFT_VAL_NODE)
        out->place = WEFT_PLACE_INPUT;
    for (uint32_t k = 0; k < t->rank; k++) {
        if (weft_dim_is_data(dims, t->dim[k])) {
            out->place = WEFT_PLACE_DYNAMIC;
            return true;
        }
        if (!weft_dim_eval(dims, t->dim[k], symbol, n_symbol, &out->dim[k]) || out->dim[k] < 0)
            return false;
    }
    return weft_layout_bytes(out->dtype, out->layout, out->dim, out->rank, &out->bytes);
}

static bool has_data_dim(const weft_dimpool *dims, weft_attrs attrs)
{
    for (uint32_t i = 0; i < attrs.n; i++)
        for (uint32_t k = 0; attrs.at[i].kind == WEFT_KIND_DIMS && k < attrs.at[i].n; k++)
            if (weft_dim_is_data(dims, attrs.at[i].u.dims[k]))
                return true;
    return false;
}

static void add_launch(placer *p, weft_node n, weft_place_launch *out)
{
    weft_attrs attrs = weft_node_attrs(p->m, n);
    uint32_t n_in = weft_node_in_count(p->m, n), n_out = weft_node_out_count(p->m, n);
    uint32_t *in = weft_arena_array(p->arena, n_in, sizeof *in);
    uint32_t *result = weft_arena_array(p->arena, n_out, sizeof *result);
    for (uint32_t i = 0; i < n_in; i++)
        in[i] = number_val(p, weft_node_in(p->m, n, i));
    for (uint32_t i = 0; i < n_out; i++) {
        weft_val v = weft_node_out(p->m, n, i);
        if (weft_val_ttype(p->m, v)->dtype != WEFT_DTYPE_NONE) /* else the result is not wanted */
            result[i] = number_val(p, v);
    }
    *out = (weft_place_launch){.op = weft_node_op(p->m, n),
                               .axis = weft_attrs_int(attrs, WEFT_ATTR_AXIS, 0),
                               .in = in,
                               .n_in = n_in,
                               .out = result,
                               .n_out = n_out,
                               .dynamic = has_data_dim(weft_module_dims(p->m), attrs)};
}

void weft_graph_place_start(weft_graph *g, weft_arena *arena, weft_places *out)
{
    weft_module *m = weft_graph_module(g);
    uint32_t n_launch = weft_graph_node_count(g), n_output = weft_graph_output_count(g);
    size_t n_val = (size_t)weft_val_count(m) + 1;
    *out = (weft_places){.n_launch = n_launch, .n_output = n_output};
    placer p = {.g = g, .m = m, .arena = arena, .out = out};
    p.number = weft_arena_array(arena, n_val, sizeof *p.number);
    out->number = p.number;
    out->val = weft_arena_array(arena, n_val, sizeof *out->val);
    out->launch = weft_arena_array(arena, n_launch, sizeof *out->launch);
    uint32_t *output = weft_arena_array(arena, n_output, sizeof *output);
    for (uint32_t i = 0; i < weft_graph_input_count(g); i++)
        (void)number_val(&p, weft_graph_input(g, i));
    uint32_t i = 0;
    WEFT_FOREACH_NODE (m, g, n)
        add_launch(&p, n, &out->launch[i++]);
    for (i = 0; i < n_output; i++)
        output[i] = number_val(&p, weft_graph_output(g, i));
    out->output = output;
    out->value = weft_arena_array(arena, (size_t)out->n + 1, sizeof *out->value);
}

bool weft_graph_place(weft_graph *g, const weft_dimpool *dims, const int64_t *symbol,
                      uint32_t n_symbol, weft_places *places)
{
    weft_module *m = weft_graph_module(g);
    uint32_t i = 0;
    memset(&places->value[0], 0, sizeof places->value[0]);
    WEFT_FOREACH_NODE (m, g, n) {
        weft_place_launch *l = &places->launch[i++];
        weft_dim start;
        l->cut = !l->dynamic &&
                 weft_place_is_cut(l->op, weft_node_attrs(m, n), l->n_in, &l->axis, &start) &&
                 weft_dim_eval(dims, start, symbol, n_symbol, &l->start);
    }
    for (uint32_t v = 1; v <= places->n; v++)
        if (!describe(m, dims, symbol, n_symbol, places->val[v], &places->value[v]))
            return false;
    weft_place_values(places->value, places->n, places->launch, places->n_launch, places->output,
                      places->n_output);
    return true;
}
