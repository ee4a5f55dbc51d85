/* raise-precision: f16 and bf16 become f32 inside the graphs, for CPUs, which compute in f32.
 *
 *     graph (%x : f16[?b,8])                      graph (%x : f16[?b,8])
 *       %1 : f16[?b,4] = matmul %x, $w     ==>      %1 : f32[?b,8] = cast %x {to = f32}
 *                                                   %2 : f32[?b,4] = matmul %1, $w'
 *       return "y" %1                               %3 : f16[?b,4] = cast %2 {to = f16}
 *                                                   return "y" %3
 *
 * Inputs and outputs keep their types. Weights are widened, which is exact. Results are no longer
 * rounded to the narrow type after every operator, and do not overflow at its largest number: they
 * are nearer to those of exact arithmetic. For the same reason a cast from f32 to a narrow type
 * becomes one to f32, that is, nothing, and a scalar that is the rounded form of a constant of GELU
 * or hard swish becomes that constant, so that fuse-patterns finds these.
 *
 * An operator keeps narrow operands, between casts, where its result depends on their type
 * (WEFT_T_NARROW; casts to integers, whose rounding begins from the narrow number) or where its
 * inference refuses f32. O(nodes + bytes of weights). */
#include "passes/retype.h"

#include "base/f16.h"

typedef struct raising {
    weft_passctx *cx;
    weft_module *m;
    weft_graph *g;
    weft_map *weight;        /* by weight: its wide value; of all graphs */
    weft_map *was;           /* by value: its narrow type, before it was raised */
    weft_map *narrow, *wide; /* by value: its cast; of the graph at hand */
    weft_contents *contents;
    bool changed;
} raising;

static bool is_narrow(weft_dtype dtype)
{
    return dtype == WEFT_DTYPE_F16 || dtype == WEFT_DTYPE_BF16;
}

static weft_dtype dtype_of(const raising *r, weft_val v)
{
    return v.i ? (weft_dtype)weft_val_ttype(r->m, v)->dtype : WEFT_DTYPE_NONE;
}

/* The type that the model gives to `v`. */
static weft_dtype given_dtype(const raising *r, weft_val v)
{
    uint64_t was;
    return v.i && weft_map_get(r->was, v.i, &was) ? (weft_dtype)was : dtype_of(r, v);
}

/* The constant of which a scalar is the nearest number of the narrow type; other scalars as they
 * are. */
static float unround(weft_dtype dtype, float x)
{
    static const float exact[] = {1.41421356F, 0.70710678F, 0.79788456F, 0.044715F, 1.0F / 6};
    for (size_t i = 0; i < sizeof exact / sizeof exact[0]; i++) {
        float rounded = dtype == WEFT_DTYPE_F16 ? weft_f16_to_f32(weft_f16_from_f32(exact[i]))
                                                : weft_bf16_to_f32(weft_bf16_from_f32(exact[i]));
        if (x == rounded)
            return exact[i];
    }
    return x;
}

static weft_val raise_weight(raising *r, weft_val v)
{
    weft_weight w = weft_val_weight(r->m, v);
    uint64_t found = 0;
    if (weft_map_get(r->weight, w.i, &found))
        return (weft_val){(uint32_t)found};
    weft_weight_info info = *weft_weight_get(r->m, w);
    weft_ttype type = *weft_val_ttype(r->m, v);
    size_t n = (size_t)info.bytes / sizeof(uint16_t);
    float *to = weft_arena_array(weft_module_arena(r->m), n + 1, sizeof *to);
    if (type.dtype == WEFT_DTYPE_F16)
        weft_f16_to_f32_array(info.data, to, n);
    else
        weft_bf16_to_f32_array(info.data, to, n);
    if (n == 1)
        to[0] = unround((weft_dtype)type.dtype, to[0]);
    type.dtype = WEFT_DTYPE_F32;
    info.type = weft_type_intern(r->m, &type);
    info.data = (const uint8_t *)to;
    info.bytes = n * sizeof *to;
    info.file_id = 0;
    info.offset = 0;
    weft_val out = weft_weight_val(r->m, weft_weight_add(r->m, &info));
    weft_map_put(r->weight, w.i, out.i);
    return out;
}

static weft_val as_f32(raising *r, weft_node user, weft_val v)
{
    return weft_val_get_kind(r->m, v) == WEFT_VAL_WEIGHT
               ? raise_weight(r, v)
               : weft_retype__cast(r->g, user, v, WEFT_DTYPE_F32, r->wide);
}

/* `v` in the type that the model gives to it. */
static weft_val as_given(raising *r, weft_node user, weft_val v)
{
    weft_dtype given = given_dtype(r, v);
    return given == dtype_of(r, v) ? v : weft_retype__cast(r->g, user, v, given, r->narrow);
}

/* Whether the node's result depends on the narrow type of its operands. */
static bool needs_narrow(const raising *r, weft_node n)
{
    const weft_op *op = weft_op_get(weft_node_op(r->m, n));
    if (op->traits & WEFT_T_NARROW)
        return true;
    if (op->id != WEFT_OP_CAST && op->id != WEFT_OP_CAST_LIKE)
        return false;
    weft_dtype to = dtype_of(r, weft_node_out(r->m, n, 0));
    return !weft_dtype_is_float(to) || weft_dtype_size(to) < sizeof(uint16_t);
}

/* Remembers the types of the results, and sets the attributes that name the element type. */
static void prepare_results(raising *r, weft_node n)
{
    weft_attrs attrs = weft_node_attrs(r->m, n);
    weft_attr attr = WEFT_ATTR_OF_DTYPE(TO, WEFT_DTYPE_F32);
    for (uint32_t i = 0; i < weft_node_out_count(r->m, n); i++) {
        weft_val v = weft_node_out(r->m, n, i);
        if (is_narrow(dtype_of(r, v)))
            weft_map_put(r->was, v.i, dtype_of(r, v));
    }
    if (is_narrow(weft_attrs_dtype(attrs, WEFT_ATTR_TO, WEFT_DTYPE_NONE)))
        weft_node_set_attr(r->m, n, &attr);
}

static bool has_narrow(const raising *r, weft_node n)
{
    for (uint32_t i = 0; i < weft_node_in_count(r->m, n); i++)
        if (is_narrow(given_dtype(r, weft_node_in(r->m, n, i))))
            return true;
    for (uint32_t i = 0; i < weft_node_out_count(r->m, n); i++)
        if (is_narrow(dtype_of(r, weft_node_out(r->m, n, i))))
            return true;
    return false;
}

static void raise_node(raising *r, weft_node n)
{
    uint32_t n_in = weft_node_in_count(r->m, n);
    weft_val *before = weft_arena_array(r->cx->scratch, n_in, sizeof *before);
    if (!has_narrow(r, n))
        return;
    r->changed = true;
    for (uint32_t i = 0; i < n_in; i++)
        before[i] = weft_node_in(r->m, n, i);
    if (!needs_narrow(r, n)) {
        weft_dtype to = weft_attrs_dtype(weft_node_attrs(r->m, n), WEFT_ATTR_TO, WEFT_DTYPE_NONE);
        weft_attr attr = WEFT_ATTR_OF_DTYPE(TO, to);
        prepare_results(r, n);
        for (uint32_t i = 0; i < n_in; i++)
            if (is_narrow(dtype_of(r, before[i])))
                weft_node_set_in(r->m, n, i, as_f32(r, n, before[i]));
        if (weft_retype__infer(r->cx, r->g, n, r->contents))
            return;
        if (to != WEFT_DTYPE_NONE)
            weft_node_set_attr(r->m, n, &attr);
    }
    for (uint32_t i = 0; i < n_in; i++)
        if (before[i].i)
            weft_node_set_in(r->m, n, i, as_given(r, n, before[i]));
    (void)weft_retype__infer(r->cx, r->g, n, r->contents);
}

static void raise_graph(raising *r)
{
    r->narrow = weft_map_create(r->cx->scratch);
    r->wide = weft_map_create(r->cx->scratch);
    r->was = weft_map_create(r->cx->scratch);
    r->contents = weft_contents_create(r->m, r->cx->scratch);
    WEFT_FOREACH_NODE (r->m, r->g, n)
        raise_node(r, n);
    for (uint32_t i = 0; i < weft_graph_output_count(r->g); i++) {
        weft_val v = weft_graph_output(r->g, i);
        weft_graph_set_output(r->g, i, as_given(r, (weft_node){0}, v));
    }
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    raising r = {.cx = cx, .m = m, .weight = weft_map_create(cx->scratch)};
    for (uint32_t i = 0; i < weft_graph_count(m); i++) {
        r.g = weft_graph_at(m, i);
        raise_graph(&r);
    }
    *changed = r.changed;
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_raise_precision = {
    .name = "raise-precision",
    .brief = "f16 and bf16 become f32 inside the graphs, for CPUs",
    .from = WEFT_STAGE_GRAPH,
    .to = WEFT_STAGE_GRAPH,
    .needs = WEFT_FACT_TYPES,
    .breaks = WEFT_FACT_TYPES | WEFT_FACT_CONTENTS,
    .run = run,
};
