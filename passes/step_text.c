/* Converts element-wise nodes to text of steps (ops/ops.h). */
#include "passes/passes_int.h"

#include <float.h>
#include <string.h>

const char *weft_rewrite__number_text(float x, weft_arena *arena)
{
    weft_buf buf = {0};
    weft_buf_put_f32(&buf, x);
    /* Out of memory: an empty text is no valid argument. */
    const char *text = weft_arena_printf(arena, "#%s", buf.at && !buf.failed ? buf.at : "");
    weft_buf_finish(&buf);
    return text;
}

/* All operands f32, but the condition of a `where`; result f32. */
static bool is_f32_node(const weft_module *m, weft_node n)
{
    bool where = weft_node_op(m, n) == WEFT_OP_WHERE;
    for (uint32_t i = 0; i < weft_node_in_count(m, n); i++) {
        weft_val v = weft_node_in(m, n, i);
        uint8_t want = where && i == 0 ? WEFT_DTYPE_BOOL : WEFT_DTYPE_F32;
        if (!v.i || weft_val_ttype(m, v)->dtype != want)
            return false;
    }
    return weft_node_out_count(m, n) == 1 &&
           weft_val_ttype(m, weft_node_out(m, n, 0))->dtype == WEFT_DTYPE_F32;
}

/* Attributes that are arguments of the step, in order, with their defaults. */
static const struct {
    weft_op_id op;
    weft_attr_key key[2];
    double otherwise[2];
} arguments[] = {
    {WEFT_OP_ELU, {WEFT_ATTR_ALPHA}, {1.0}},
    {WEFT_OP_LEAKY_RELU, {WEFT_ATTR_ALPHA}, {0.01}},
    {WEFT_OP_HARD_SIGMOID, {WEFT_ATTR_ALPHA, WEFT_ATTR_BETA}, {0.2, 0.5}},
    {WEFT_OP_CLIP, {WEFT_ATTR_MIN, WEFT_ATTR_MAX}, {-(double)FLT_MAX, (double)FLT_MAX}},
};

static const char *with_attrs(const weft_module *m, weft_node n, const char *text,
                              weft_arena *arena)
{
    for (size_t i = 0; i < sizeof arguments / sizeof arguments[0]; i++)
        for (uint32_t k = 0; arguments[i].op == weft_node_op(m, n) && k < 2; k++)
            if (arguments[i].key[k] != WEFT_ATTR_NONE)
                text = weft_arena_printf(
                    arena, "%s %s", text,
                    weft_rewrite__number_text((float)weft_attrs_float(weft_node_attrs(m, n),
                                                                      arguments[i].key[k],
                                                                      arguments[i].otherwise[k]),
                                              arena));
    return text;
}

static const char *step_name(const weft_module *m, weft_node n)
{
    if (weft_node_op(m, n) == WEFT_OP_PRELU)
        return weft_step_name(WEFT_STEP_LEAKY_RELU); /* its slope may be any operand */
    if (weft_node_op(m, n) != WEFT_OP_GELU)
        return weft_node_opdef(m, n)->name;
    const char *approximate = weft_attrs_str(weft_node_attrs(m, n), WEFT_ATTR_APPROXIMATE, "none");
    return strcmp(approximate, "tanh") == 0 ? "gelu_tanh" : "gelu";
}

const char *weft_rewrite__step_text(const weft_module *m, weft_node n, const char *const *arg,
                                    weft_arena *arena)
{
    uint32_t n_in = weft_node_in_count(m, n);
    if (!(weft_node_opdef(m, n)->traits & WEFT_T_RUNS) || !is_f32_node(m, n))
        return NULL;
    const char *text = weft_arena_strdup(arena, step_name(m, n));
    for (uint32_t i = 0; i < n_in; i++)
        text = weft_arena_printf(arena, "%s %s", text, arg[i]);
    text = with_attrs(m, n, text, arena);
    /* As operators min and max have any number of operands, as steps two; weft_steps_parse checks.
     */
    weft_step step;
    if (weft_steps_parse(&text, 1, UINT32_MAX, NULL, (weft_where){0}, &step) != WEFT_ERR_OK)
        return NULL;
    return text;
}
