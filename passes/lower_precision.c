/* lower-precision: f32 becomes f16 or bf16 inside the graphs.
 *
 *     graph (%x : f32[?b,8])                      graph (%x : f32[?b,8])
 *       %1 : f32[?b,4] = matmul %x, $w     ==>      %1 : bf16[?b,8] = cast %x {to = bf16}
 *                                                   %2 : bf16[?b,4] = matmul %1, $w'
 *       return "y" %1                               %3 : f32[?b,4] = cast %2 {to = f32}
 *                                                   return "y" %3
 *
 * Inputs and outputs keep their types. Weights are rounded to nearest, once; finite elements beyond
 * the range of the narrow type become its largest number (a mask of -3.4e38 must not become
 * infinity: rows that are masked completely would be NaN). Kernels read and write the narrow type
 * and compute in f32. An operator whose inference refuses narrow operands keeps f32, between casts;
 * so does a cast from f32 to another type, because the value may be an index, an operator that has
 * bytes among its operands or results (its scales are not rounded), and one that runs other graphs:
 * their inputs and outputs keep their types, too. Runs only with --precision.
 * O(nodes + bytes of weights). */
#include "passes/retype.h"

#include "base/f16.h"

#include <math.h>
#include <string.h>

typedef struct lowering {
    weft_passctx *cx;
    weft_module *m;
    weft_graph *g;
    weft_dtype half;
    weft_map *weight;        /* by weight: its narrow value; of all graphs */
    weft_map *narrow, *wide; /* by value: its cast; of the graph at hand */
    weft_contents *contents;
    bool changed;
} lowering;

static weft_dtype dtype_of(const lowering *l, weft_val v)
{
    return (weft_dtype)weft_val_ttype(l->m, v)->dtype;
}

static uint16_t round_down(weft_dtype half, float x)
{
    float most = half == WEFT_DTYPE_F16 ? weft_f16_to_f32(0x7bff) : weft_bf16_to_f32(0x7f7f);
    if (isfinite(x) && fabsf(x) > most)
        x = copysignf(most, x);
    return half == WEFT_DTYPE_F16 ? weft_f16_from_f32(x) : weft_bf16_from_f32(x);
}

static weft_val lower_weight(lowering *l, weft_val v)
{
    weft_weight w = weft_val_weight(l->m, v);
    uint64_t found = 0;
    if (weft_map_get(l->weight, w.i, &found))
        return (weft_val){(uint32_t)found};
    weft_weight_info info = *weft_weight_get(l->m, w);
    weft_ttype type = *weft_val_ttype(l->m, v);
    size_t n = (size_t)info.bytes / sizeof(float);
    uint16_t *to = weft_arena_array(weft_module_arena(l->m), n + 1, sizeof *to);
    for (size_t i = 0; i < n; i++) {
        float x;
        memcpy(&x, info.data + i * sizeof x, sizeof x);
        to[i] = round_down(l->half, x);
    }
    type.dtype = (uint8_t)l->half;
    info.type = weft_type_intern(l->m, &type);
    info.data = (const uint8_t *)to;
    info.bytes = n * sizeof *to;
    info.file_id = 0;
    info.offset = 0;
    weft_val out = weft_weight_val(l->m, weft_weight_add(l->m, &info));
    weft_map_put(l->weight, w.i, out.i);
    return out;
}

/* `v` as `dtype`; inserts a cast before `user` (none: at the end). */
static weft_val cast_to(lowering *l, weft_node user, weft_val v, weft_dtype dtype)
{
    return weft_retype__cast(l->g, user, v, dtype, dtype == WEFT_DTYPE_F32 ? l->wide : l->narrow);
}

static weft_val as_half(lowering *l, weft_node user, weft_val v)
{
    return weft_val_get_kind(l->m, v) == WEFT_VAL_WEIGHT ? lower_weight(l, v)
                                                         : cast_to(l, user, v, l->half);
}

/* Whether a value of bytes goes in or out, as in quantised operators, or other graphs are run. */
static bool keeps_types(const lowering *l, weft_node n)
{
    if (weft_node_opdef(l->m, n)->traits & WEFT_T_BODY)
        return true;
    uint32_t n_in = weft_node_in_count(l->m, n), n_out = weft_node_out_count(l->m, n);
    for (uint32_t i = 0; i < n_in + n_out; i++) {
        weft_val v = i < n_in ? weft_node_in(l->m, n, i) : weft_node_out(l->m, n, i - n_in);
        weft_dtype dtype = v.i ? dtype_of(l, v) : WEFT_DTYPE_NONE;
        if (dtype == WEFT_DTYPE_U8 || dtype == WEFT_DTYPE_I8)
            return true;
    }
    return false;
}

/* Gives the node its narrow operands as f32. */
static void widen(lowering *l, weft_node n)
{
    for (uint32_t i = 0; i < weft_node_in_count(l->m, n); i++) {
        weft_val v = weft_node_in(l->m, n, i);
        if (v.i && dtype_of(l, v) == l->half)
            weft_node_set_in(l->m, n, i, cast_to(l, n, v, WEFT_DTYPE_F32));
    }
    (void)weft_retype__infer(l->cx, l->g, n, l->contents);
}

static void lower_node(lowering *l, weft_node n)
{
    bool is_cast = weft_node_op(l->m, n) == WEFT_OP_CAST;
    weft_dtype to = weft_attrs_dtype(weft_node_attrs(l->m, n), WEFT_ATTR_TO, WEFT_DTYPE_NONE);
    uint32_t n_in = weft_node_in_count(l->m, n);
    if (is_cast && to != WEFT_DTYPE_F32)
        return;
    if (!is_cast && keeps_types(l, n)) {
        widen(l, n);
        return;
    }
    if (is_cast) {
        weft_attr attr = WEFT_ATTR_OF_DTYPE(TO, l->half);
        weft_node_set_attr(l->m, n, &attr);
    }
    weft_val *before = weft_arena_array(l->cx->scratch, n_in, sizeof *before);
    for (uint32_t i = 0; i < n_in; i++) {
        before[i] = weft_node_in(l->m, n, i);
        if (before[i].i && dtype_of(l, before[i]) == WEFT_DTYPE_F32)
            weft_node_set_in(l->m, n, i, as_half(l, n, before[i]));
    }
    l->changed = true;
    if (weft_retype__infer(l->cx, l->g, n, l->contents))
        return;
    for (uint32_t i = 0; i < n_in; i++) {
        if (!before[i].i)
            continue;
        weft_node_set_in(l->m, n, i,
                         dtype_of(l, before[i]) == l->half
                             ? cast_to(l, n, before[i], WEFT_DTYPE_F32)
                             : before[i]);
    }
    (void)weft_retype__infer(l->cx, l->g, n, l->contents);
}

static void lower_graph(lowering *l)
{
    uint32_t n_out = weft_graph_output_count(l->g);
    weft_dtype *given = weft_arena_array(l->cx->scratch, n_out, sizeof *given);
    l->narrow = weft_map_create(l->cx->scratch);
    l->wide = weft_map_create(l->cx->scratch);
    l->contents = weft_contents_create(l->m, l->cx->scratch);
    for (uint32_t i = 0; i < n_out; i++)
        given[i] = dtype_of(l, weft_graph_output(l->g, i));
    WEFT_FOREACH_NODE (l->m, l->g, n)
        lower_node(l, n);
    for (uint32_t i = 0; i < n_out; i++) {
        weft_val v = weft_graph_output(l->g, i);
        if (dtype_of(l, v) != given[i])
            weft_graph_set_output(l->g, i, cast_to(l, (weft_node){0}, v, given[i]));
    }
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    weft_dtype half = cx->options->precision;
    if (half != WEFT_DTYPE_F16 && half != WEFT_DTYPE_BF16)
        return WEFT_ERR_OK;
    lowering l = {.cx = cx, .m = m, .half = half, .weight = weft_map_create(cx->scratch)};
    for (uint32_t i = 0; i < weft_graph_count(m); i++) {
        l.g = weft_graph_at(m, i);
        lower_graph(&l);
    }
    *changed = l.changed;
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_lower_precision = {
    .name = "lower-precision",
    .brief = "f32 becomes f16 or bf16 inside the graphs (--precision)",
    .from = WEFT_STAGE_KERNEL,
    .to = WEFT_STAGE_KERNEL,
    .breaks = WEFT_FACT_TYPES | WEFT_FACT_CONTENTS,
    .run = run,
};
