/* What strategies for unequal weights emit: GEMMs and parts of them as nodes of the joint graph,
 * and the finish of a node.
 *
 *     %y = matmul %x, $w, $bias, %r {epilogue = ["add acc i3", "gelu acc"]}
 *
 * is the GEMM of x and w, which a strategy may compute in any way, and the finish "add bias, add r,
 * gelu". The finish becomes an element-wise chain of its own or, where the strategy ends in a sum
 * with a GEMM, the epilogue of that GEMM. Convolutions are handled alike; their features are dim 1.
 */
#include "passes/merge/merge_int.h"

#include <string.h>

enum { OPERANDS_MAX = WEFT_MERGE_OPERANDS_MAX, ALIGN = 64 };

/* -- GEMMs and their parts -------------------------------------------------------------------- */

weft_val weft_merge__make_weight(weft_merger *g, const weft_merge_form *f, uint32_t taps,
                                 uint32_t features, const float *at, const char *name)
{
    int64_t dim[WEFT_RANK_MAX] = {taps, features};
    const weft_ttype *old = weft_val_ttype(g->m, weft_node_in(g->m, f->node, 1));
    if (!f->conv)
        return weft_rewrite__constant(g->m, WEFT_DTYPE_F32, dim, 2, at, name);
    float *turned = weft_arena_array(g->cx->scratch, (size_t)taps * features, sizeof *turned);
    for (uint32_t t = 0; t < taps; t++)
        for (uint32_t i = 0; i < features; i++)
            turned[(size_t)i * taps + t] = at[(size_t)t * features + i];
    dim[0] = features;
    dim[1] = taps / f->window;
    for (uint32_t k = 2; k < old->rank; k++)
        dim[k] = f->pointwise ? 1 : old->dim[k];
    return weft_rewrite__constant(g->m, WEFT_DTYPE_F32, dim, old->rank, turned, name);
}

/* Appends a GEMM of form `f` of the first two operands, with this number of features. */
static weft_node append_gemm(weft_merger *g, const weft_merge_form *f, uint32_t features,
                             const weft_val *in, uint32_t n_in)
{
    weft_attrs attrs = weft_node_attrs(g->m, f->node);
    weft_ttype type = *weft_val_ttype(g->m, in[0]);
    if (f->conv)
        type = *weft_val_ttype(g->m, weft_node_out(g->m, f->node, 0));
    type.dim[0] = weft_val_ttype(g->m, in[0])->dim[0];
    type.dim[weft_merge__axis(f, &type)] = features;
    bool keeps = f->conv && !f->pointwise;
    weft_val y = weft_merge__append(g, weft_node_op(g->m, f->node), in, n_in, attrs.at,
                                    keeps ? attrs.n : 0, &type, weft_node_loc(g->m, f->node));
    weft_node made = weft_val_node(g->m, y);
    weft_node_drop_attr(g->m, made, WEFT_ATTR_EPILOGUE);
    return made;
}

/* The number of features of a weight from weft_merge__make_weight. */
static uint32_t features_of(const weft_merger *g, const weft_merge_form *f, weft_val w)
{
    return (uint32_t)weft_val_ttype(g->m, w)->dim[!f->conv];
}

weft_val weft_merge__make_gemm(weft_merger *g, const weft_merge_form *f, weft_val x, weft_val w)
{
    const weft_val in[] = {x, w};
    return weft_node_out(g->m, append_gemm(g, f, features_of(g, f, w), in, 2), 0);
}

weft_val weft_merge__accumulate_gemm(weft_merger *g, const weft_merge_form *f, weft_val x,
                                     weft_val w, weft_val to)
{
    static const char *const steps[] = {"add acc i3"};
    const weft_val in[] = {x, w, {0}, to};
    weft_node made = append_gemm(g, f, features_of(g, f, w), in, 4);
    weft_node_set_attr(g->m, made, &WEFT_ATTR_OF_STRS(EPILOGUE, steps, 1));
    return weft_node_out(g->m, made, 0);
}

weft_val weft_merge__multiply_all(weft_merger *g, const weft_merge_group *p, weft_val w)
{
    weft_merge_form f = weft_merge__form(g, weft_merge__first(g, &p->column));
    weft_val x = weft_merge__operand(g, p, 0, weft_node_loc(g->m, f.node));
    return weft_merge__make_gemm(g, &f, x, w);
}

weft_val weft_merge__multiply_base(weft_merger *g, const weft_merge_group *p, weft_val w,
                                   weft_val bias)
{
    weft_merge_form f = weft_merge__form(g, weft_merge__first(g, &p->column));
    weft_val x = weft_merge__operand(g, p, 0, weft_node_loc(g->m, f.node));
    const weft_val in[] = {x, w, bias};
    weft_node made = append_gemm(g, &f, f.features, in, bias.i ? 3 : 2);
    if (f.by_feature && !f.conv)
        weft_node_set_attr(g->m, made, &WEFT_ATTR_OF_INT(TRANS_B, 1));
    return weft_node_out(g->m, made, 0);
}

weft_val weft_merge__part(weft_merger *g, const weft_merge_group *p, uint32_t i, weft_val joint,
                          const weft_dim *start)
{
    weft_node n = p->column.node[i];
    weft_loc loc = weft_node_loc(g->m, n);
    weft_ttype type = *weft_val_ttype(g->m, weft_node_out(g->m, n, 0));
    weft_dim rows = weft_merge__rows(g, &type, p->level);
    weft_merge_form f = weft_merge__form(g, n);
    type.dim[weft_merge__axis(&f, &type)] = weft_val_ttype(g->m, joint)->dim[1];
    return weft_merge__view(g, weft_merge__cut(g, joint, start[i], rows, loc), &type, loc);
}

weft_val weft_merge__take_features(weft_merger *g, const weft_merge_form *f, weft_val v,
                                   const uint32_t *feature, uint32_t n)
{
    weft_ttype type = *weft_val_ttype(g->m, v);
    weft_loc loc = weft_node_loc(g->m, f->node);
    uint32_t at = weft_merge__axis(f, &type);
    bool run = true, all = n == (uint64_t)type.dim[at];
    for (uint32_t i = 0; i < n; i++) {
        run = run && feature[i] == feature[0] + i;
        all = all && feature[i] == i;
    }
    if (all)
        return v;
    type.dim[at] = n;
    if (run) {
        weft_dim axis = at, start = feature[0], end = (weft_dim)feature[0] + n, step = 1;
        weft_attr attr[] = {WEFT_ATTR_OF_DIMS(AXES, &axis, 1), WEFT_ATTR_OF_DIMS(ENDS, &end, 1),
                            WEFT_ATTR_OF_DIMS(STARTS, &start, 1),
                            WEFT_ATTR_OF_DIMS(STEPS, &step, 1)};
        return weft_merge__append(g, WEFT_OP_SLICE, &v, 1, attr, 4, &type, loc);
    }
    int64_t *index = weft_arena_array(g->cx->scratch, n, sizeof *index);
    for (uint32_t i = 0; i < n; i++)
        index[i] = feature[i];
    const int64_t dim[] = {n};
    const weft_val in[] = {
        v, weft_rewrite__constant(g->m, WEFT_DTYPE_I64, dim, 1, index, "merge.columns")};
    weft_attr axis = WEFT_ATTR_OF_INT(AXIS, at);
    return weft_merge__append(g, WEFT_OP_GATHER, in, 2, &axis, 1, &type, loc);
}

weft_val weft_merge__concat_features(weft_merger *g, const weft_merge_form *f, const weft_val *part,
                                     uint32_t n)
{
    weft_ttype type = *weft_val_ttype(g->m, part[0]);
    uint32_t at = weft_merge__axis(f, &type);
    weft_attr axis = WEFT_ATTR_OF_INT(AXIS, at);
    for (uint32_t i = 1; i < n; i++)
        type.dim[at] += weft_val_ttype(g->m, part[i])->dim[at];
    return n == 1 ? part[0]
                  : weft_merge__append(g, WEFT_OP_CONCAT, part, n, &axis, 1, &type,
                                       weft_node_loc(g->m, f->node));
}

/* -- The finish ------------------------------------------------------------------------------- */

bool weft_merge__finishes(const weft_merger *g, weft_node n, bool biased)
{
    return weft_attrs_find(weft_node_attrs(g->m, n), WEFT_ATTR_EPILOGUE) ||
           (!biased && weft_node_in_count(g->m, n) > 2 && weft_node_in(g->m, n, 2).i);
}

/* The text of step `s` when `shift` steps precede its epilogue: operand k becomes operand[k], and
 * `acc` names the accumulator. */
static const char *step_text(weft_arena *arena, const weft_step *s, uint32_t shift,
                             const uint32_t *operand, const char *acc)
{
    const char *text = weft_step_name(s->op);
    for (uint32_t k = 0; k < s->n_args; k++) {
        uint32_t idx = s->arg[k].idx;
        switch (s->arg[k].kind) {
        case WEFT_ARG_INPUT:
            text = weft_arena_printf(arena, "%s i%u", text, operand[idx]);
            break;
        case WEFT_ARG_STEP:
            text = weft_arena_printf(arena, "%s s%u", text, idx + shift);
            break;
        case WEFT_ARG_ACC:
            text = weft_arena_printf(arena, "%s %s", text, acc);
            break;
        default:
            text = weft_arena_printf(arena, "%s %s", text,
                                     weft_rewrite__number_text(s->arg[k].number, arena));
        }
    }
    return text;
}

uint32_t weft_merge__add_epilogue(weft_merger *g, weft_node n, const uint32_t *operand,
                                  const char *acc, const char **steps, uint32_t n_steps)
{
    const weft_attr *old = weft_attrs_find(weft_node_attrs(g->m, n), WEFT_ATTR_EPILOGUE);
    weft_step step[WEFT_STEPS_MAX];
    if (!old || weft_steps_parse(old->u.strs, old->n, weft_node_in_count(g->m, n), NULL,
                                 (weft_where){0}, step) != WEFT_ERR_OK)
        return n_steps;
    for (uint32_t k = 0; k < old->n; k++)
        steps[n_steps + k] =
            step_text(g->cx->scratch, &step[k], n_steps, operand, k || !acc ? "acc" : acc);
    return n_steps + old->n;
}

/* The bias of a node in a shape that broadcasts along features: as it is, or [features, 1, ...] for
 * a convolution. */
static weft_val spread_bias(weft_merger *g, uint32_t i, weft_node n)
{
    weft_val bias = weft_node_in(g->m, n, 2);
    const weft_ttype *y = weft_val_ttype(g->m, weft_node_out(g->m, n, 0));
    if (weft_node_op(g->m, n) != WEFT_OP_CONV)
        return weft_merge__own(g, i, bias, weft_node_loc(g->m, n));
    weft_tensor b = weft_weight_tensor(g->m, weft_val_weight(g->m, bias));
    for (; b.rank + 1u < y->rank; b.rank++)
        b.dim[b.rank] = 1;
    return weft_rewrite__constant(g->m, b.dtype, b.dim, b.rank, b.data, "merge.bias");
}

weft_val weft_merge__finish(weft_merger *g, uint32_t i, weft_node n, weft_val result, bool biased)
{
    weft_loc loc = weft_node_loc(g->m, n);
    uint32_t n_in = weft_node_in_count(g->m, n), n_own = 1, n_steps = 0;
    uint32_t operand[OPERANDS_MAX] = {0};
    weft_val in[OPERANDS_MAX] = {result};
    const char *steps[WEFT_STEPS_MAX];
    bool bias = !biased && n_in > 2 && weft_node_in(g->m, n, 2).i;
    if (!weft_merge__finishes(g, n, biased))
        return result;
    if (bias) {
        in[n_own++] = spread_bias(g, i, n);
        steps[n_steps++] = "add i0 i1";
    }
    for (uint32_t k = 3; k < n_in; k++) {
        weft_val v = weft_merge__own(g, i, weft_node_in(g->m, n, k), loc);
        operand[k] = n_own;
        if (v.i)
            in[n_own++] = v;
    }
    n_steps = weft_merge__add_epilogue(g, n, operand, bias ? NULL : "i0", steps, n_steps);
    weft_attr attr = WEFT_ATTR_OF_STRS(STEPS, steps, n_steps);
    return weft_merge__append(g, WEFT_OP_EW, in, n_own, &attr, 1,
                              weft_val_ttype(g->m, weft_node_out(g->m, n, 0)), loc);
}

weft_val weft_merge__finish_gemm(weft_merger *g, uint32_t i, const weft_merge_form *f, weft_val x,
                                 weft_val w, weft_val result, bool biased)
{
    weft_node n = f->node;
    uint32_t n_in = weft_node_in_count(g->m, n), n_own = n_in < 3 ? 3 : n_in;
    uint32_t operand[OPERANDS_MAX];
    weft_val in[OPERANDS_MAX + 1] = {x, w};
    const char *steps[WEFT_STEPS_MAX];
    for (uint32_t k = 0; k < n_in; k++)
        operand[k] = k;
    for (uint32_t k = biased ? 3 : 2; k < n_in; k++)
        in[k] = weft_merge__own(g, i, weft_node_in(g->m, n, k), weft_node_loc(g->m, n));
    in[n_own] = result;
    steps[0] = weft_arena_printf(g->cx->scratch, "add acc i%u", n_own);
    uint32_t n_steps = weft_merge__add_epilogue(g, n, operand, NULL, steps, 1);
    weft_node made = append_gemm(g, f, f->features, in, n_own + 1);
    weft_node_set_attr(g->m, made, &WEFT_ATTR_OF_STRS(EPILOGUE, steps, n_steps));
    return weft_node_out(g->m, made, 0);
}

/* -- Results ---------------------------------------------------------------------------------- */

/* Bytes of one row, at WEFT_JOINT_IMAGES of one image, of a node's result. */
static uint64_t row_bytes(const weft_merger *g, const weft_merge_group *p, weft_node n)
{
    const weft_ttype *y = weft_val_ttype(g->m, weft_node_out(g->m, n, 0));
    uint64_t bytes = weft_dtype_size((weft_dtype)y->dtype);
    for (uint32_t k = p->level == WEFT_JOINT_ROWS ? y->rank - 1u : 1; k < y->rank; k++)
        bytes *= (uint64_t)y->dim[k];
    return bytes;
}

bool weft_merge__parts_align(const weft_merger *g, const weft_merge_group *p)
{
    uint64_t first = row_bytes(g, p, weft_merge__first(g, &p->column));
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        if (p->column.node[i].i && row_bytes(g, p, p->column.node[i]) != first)
            return false;
    return first % ALIGN == 0;
}

void weft_merge__set_parts(weft_merger *g, const weft_merge_group *p, const weft_val *part)
{
    weft_val row[WEFT_MERGE_MODELS_MAX];
    weft_ttype type = {0};
    uint32_t n = 0;
    const weft_dim *start = weft_merge__starts(g, p);
    weft_loc loc = weft_node_loc(g->m, weft_merge__first(g, &p->column));
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        if (!p->column.node[i].i)
            continue;
        const weft_ttype *t = weft_val_ttype(g->m, part[i]);
        type = weft_merge__with_rows(t, p->level, weft_merge__rows(g, t, p->level));
        if (p->together)
            row[n++] = weft_merge__view(g, part[i], &type, loc);
    }
    if (p->together) {
        weft_attr axis = WEFT_ATTR_OF_INT(AXIS, 0);
        type.dim[0] = start[g->columns.n_model];
        weft_val all = weft_merge__append(g, WEFT_OP_CONCAT, row, n, &axis, 1, &type, loc);
        weft_merge__set_joined(g, p, 0, all, start);
    }
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        if (p->column.node[i].i)
            g->place[weft_node_out(g->m, p->column.node[i], 0).i].val = part[i];
}
