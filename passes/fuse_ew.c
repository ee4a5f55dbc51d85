/* fuse-ew: fuses chains and trees of element-wise kernels into one kernel.
 *
 *     %a = ew %x, %y {steps = ["add i0 i1"]}
 *     %b = ew %a {steps = ["relu i0"]}
 *   ==>
 *     %b = ew %x, %y {steps = ["add i0 i1", "relu s0"]}
 *
 * A producer is fused into its consumer if the consumer is its only user and both results have the
 * same type, so that nothing is computed twice. Common operands are read once. The number of steps
 * and operands of a kernel is limited. One backward sweep; each consumer fuses as many producers as
 * it can. O(nodes). */
#include "passes/match.h"

#include <string.h>

enum { OPERANDS_MAX = 12 };

typedef struct chain {
    const char *text[WEFT_STEPS_MAX];
    uint32_t n_text;
    weft_val in[OPERANDS_MAX + 1];
    uint32_t n_in;
} chain;

static const weft_attr *steps_of(const weft_module *m, weft_node n)
{
    return weft_attrs_find(weft_node_attrs(m, n), WEFT_ATTR_STEPS);
}

/* Index of `v` among the operands, appended if new; OPERANDS_MAX if there is no room. */
static uint32_t operand(chain *c, weft_val v)
{
    for (uint32_t i = 0; i < c->n_in; i++)
        if (c->in[i].i == v.i)
            return i;
    if (c->n_in == OPERANDS_MAX)
        return OPERANDS_MAX;
    c->in[c->n_in] = v;
    return c->n_in++;
}

/* Text of an argument in the fused kernel: operands renumbered by `map`, steps by `shift`; operand
 * `inlined` is the producer's last step. */
static const char *rewrite_arg(weft_arena *arena, const weft_step *step, uint32_t k,
                               const uint32_t *map, uint32_t shift, uint32_t inlined,
                               uint32_t inlined_step)
{
    uint32_t idx = step->arg[k].idx;
    switch (step->arg[k].kind) {
    case WEFT_ARG_INPUT:
        return idx == inlined ? weft_arena_printf(arena, "s%u", inlined_step)
                              : weft_arena_printf(arena, "i%u", map[idx]);
    case WEFT_ARG_STEP:
        return weft_arena_printf(arena, "s%u", idx + shift);
    case WEFT_ARG_ACC:
        return "acc";
    case WEFT_ARG_NUMBER:
        break;
    }
    return weft_rewrite__number_text(step->arg[k].number, arena);
}

/* Adds the steps of `n` to the chain. `inlined` (an operand number, or UINT32_MAX) is the value
 * that the steps added before compute. */
static bool add_steps(weft_passctx *cx, const weft_module *m, weft_node n, uint32_t inlined,
                      chain *c)
{
    const weft_attr *steps = steps_of(m, n);
    uint32_t n_in = weft_node_in_count(m, n), shift = c->n_text;
    uint32_t *map = weft_arena_array(cx->scratch, (size_t)n_in + 1, sizeof *map);
    if (shift + steps->n > WEFT_STEPS_MAX)
        return false;
    for (uint32_t i = 0; i < n_in; i++) {
        map[i] = i == inlined ? 0 : operand(c, weft_node_in(m, n, i));
        if (map[i] == OPERANDS_MAX)
            return false;
    }
    weft_step parsed[WEFT_STEPS_MAX];
    if (weft_steps_parse(steps->u.strs, steps->n, n_in, NULL, (weft_where){0}, parsed) !=
        WEFT_ERR_OK)
        return false;
    for (uint32_t i = 0; i < steps->n; i++) {
        const char *text = weft_step_name(parsed[i].op);
        for (uint32_t k = 0; k < parsed[i].n_args; k++)
            text = weft_arena_printf(
                cx->scratch, "%s %s", text,
                rewrite_arg(cx->scratch, &parsed[i], k, map, shift, inlined, shift - 1));
        c->text[c->n_text++] = text;
    }
    return true;
}

/* Same dims and layout, and the same element type or both f32 or bytes: steps compute in f32, and
 * bytes are what a step that quantises gives, exactly. */
static bool joins(const weft_ttype *a, const weft_ttype *b)
{
    const uint32_t exact = 1u << WEFT_DTYPE_F32 | 1u << WEFT_DTYPE_U8 | 1u << WEFT_DTYPE_I8;
    return a->rank == b->rank && a->layout == b->layout &&
           memcmp(a->dim, b->dim, a->rank * sizeof *a->dim) == 0 &&
           (a->dtype == b->dtype || ((exact >> a->dtype & 1) && (exact >> b->dtype & 1)));
}

/* An operand of `n` that is an `ew` of such a type with no other user; UINT32_MAX: none. */
static uint32_t find_producer(const weft_graph *g, weft_node n)
{
    const weft_module *m = weft_graph_module(g);
    for (uint32_t i = 0; i < weft_node_in_count(m, n); i++) {
        weft_val v = weft_node_in(m, n, i);
        if (weft_match__maker(m, v, WEFT_OP_EW).i && weft_rewrite__sole_user(g, v).i == n.i &&
            joins(weft_val_ttype(m, v), weft_val_ttype(m, weft_node_out(m, n, 0))))
            return i;
    }
    return UINT32_MAX;
}

/* Fuses the producer of operand `at` with `n` into a new node; none if a limit is exceeded. */
static weft_node join(weft_passctx *cx, weft_graph *g, weft_node n, uint32_t at)
{
    weft_module *m = weft_graph_module(g);
    weft_node producer = weft_val_node(m, weft_node_in(m, n, at));
    chain c = {0};
    if (!add_steps(cx, m, producer, UINT32_MAX, &c) || !add_steps(cx, m, n, at, &c) ||
        !weft_rewrite__allow(cx))
        return (weft_node){0};
    weft_type type = weft_val_type(m, weft_node_out(m, n, 0));
    weft_attr attr[2] = {
        WEFT_ATTR_OF_STRS(STEPS, c.text, c.n_text),
        WEFT_ATTR_OF_DTYPE(DTYPE, (weft_dtype)weft_val_ttype(m, weft_node_out(m, n, 0))->dtype)};
    bool typed = weft_attrs_find(weft_node_attrs(m, n), WEFT_ATTR_DTYPE) ||
                 weft_attrs_find(weft_node_attrs(m, producer), WEFT_ATTR_DTYPE);
    weft_node_spec spec = {.op = WEFT_OP_EW,
                           .in = c.in,
                           .n_in = c.n_in,
                           .out = &type,
                           .n_out = 1,
                           .attr = attr,
                           .n_attr = typed ? 2 : 1,
                           .loc = weft_node_loc(m, n)};
    weft_node joined = weft_node_insert_before(g, n, &spec);
    weft_rewrite__replace_result(g, n, 0, weft_node_out(m, joined, 0));
    weft_node_remove(g, n);
    weft_node_remove(g, producer);
    return joined;
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    for (uint32_t i = 0; i < weft_graph_count(m); i++) {
        weft_graph *g = weft_graph_at(m, i);
        for (weft_node n = weft_graph_last(g); n.i;) {
            uint32_t at = weft_node_op(m, n) == WEFT_OP_EW ? find_producer(g, n) : UINT32_MAX;
            weft_node joined = at == UINT32_MAX ? (weft_node){0} : join(cx, g, n, at);
            *changed |= joined.i != 0;
            n = joined.i ? joined : weft_node_prev(m, n);
        }
    }
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_fuse_ew = {
    .name = "fuse-ew",
    .brief = "chains of element-wise kernels become one",
    .from = WEFT_STAGE_KERNEL,
    .to = WEFT_STAGE_KERNEL,
    .run = run,
};
