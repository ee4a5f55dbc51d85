/* What strategies for products by unequal weights are made of: a product as numbers, parts of it as
 * nodes of the joint graph, and what its node does to the product afterwards.
 *
 *     %y = matmul %x, $w, $bias, %r {epilogue = ["add acc i3", "gelu acc"]}
 *
 * is the product x w, made in whatever way, and the finish "add bias, add r, gelu": an element-wise
 * chain of its own, or, when the last step of making the product is a sum with a product, the
 * epilogue of that. */
#include "passes/merge_int.h"

#include <string.h>

/* -- Forms ------------------------------------------------------------------------------------ */

enum { FINISH_MAX = WEFT_STEPS_MAX - 2, OPERANDS_MAX = 24, ALIGN = 64 };

static bool trans_b(const weft_module *m, weft_node n)
{
    return weft_attrs_int(weft_node_attrs(m, n), WEFT_ATTR_TRANS_B, 0) != 0;
}

static const char *refuse_node(const weft_merger *g, weft_node n)
{
    weft_attrs attrs = weft_node_attrs(g->m, n);
    const weft_attr *epilogue = weft_attrs_find(attrs, WEFT_ATTR_EPILOGUE);
    weft_step step[WEFT_STEPS_MAX];
    if (weft_node_op(g->m, n) != WEFT_OP_MATMUL)
        return "not done for convolutions";
    weft_tensor w = weft_weight_tensor(g->m, weft_val_weight(g->m, weft_node_in(g->m, n, 1)));
    if (w.dtype != WEFT_DTYPE_F32)
        return "not done for this type of element";
    if (w.rank != 2 || w.dim[0] <= 0 || w.dim[1] <= 0 || w.dim[0] > INT32_MAX ||
        w.dim[1] > INT32_MAX)
        return "the weight is no matrix, or empty";
    if (weft_node_in_count(g->m, n) > OPERANDS_MAX ||
        (epilogue && (epilogue->n > FINISH_MAX ||
                      weft_steps_parse(epilogue->u.strs, epilogue->n, weft_node_in_count(g->m, n),
                                       NULL, (weft_where){0}, step) != WEFT_ERR_OK)))
        return "too much is done to the product afterwards";
    return NULL;
}

const char *weft_merge__refuse(const weft_merger *g, const weft_piece *p)
{
    if (p->level != WEFT_JOINT_ROWS)
        return "its rows depend on each other, or are images";
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        const char *reason = p->column.node[i].i ? refuse_node(g, p->column.node[i]) : NULL;
        if (reason)
            return reason;
    }
    return NULL;
}

weft_merge_form weft_merge__form(const weft_merger *g, weft_node n)
{
    weft_merge_form f = {.x = weft_node_in(g->m, n, 0), .w = weft_node_in(g->m, n, 1)};
    weft_tensor w = weft_weight_tensor(g->m, weft_val_weight(g->m, f.w));
    f.by_feature = trans_b(g->m, n);
    f.taps = (uint32_t)w.dim[f.by_feature];
    f.features = (uint32_t)w.dim[!f.by_feature];
    return f;
}

const uint8_t *weft_merge__bytes(const weft_merger *g, const weft_merge_form *f)
{
    return weft_weight_tensor(g->m, weft_val_weight(g->m, f->w)).data;
}

float weft_merge__element(const weft_merge_form *f, const uint8_t *bytes, uint32_t tap,
                          uint32_t feature)
{
    float x;
    size_t at =
        f->by_feature ? (size_t)feature * f->taps + tap : (size_t)tap * f->features + feature;
    memcpy(&x, bytes + at * sizeof x, sizeof x);
    return x;
}

bool weft_merge__node_rows(const weft_merge_sizes *at, weft_module *m, weft_node n, double *rows)
{
    const weft_ttype *y = weft_val_ttype(m, weft_node_out(m, n, 0));
    double elements = 0;
    if (!weft_merge__count(at, m, weft_node_out(m, n, 0), &elements))
        return false;
    *rows = elements / (double)y->dim[y->rank - 1];
    return true;
}

/* -- Parts of products ------------------------------------------------------------------------ */

weft_val weft_merge__weight(weft_merger *g, uint32_t rows, uint32_t cols, const float *at,
                            const char *name)
{
    const int64_t dim[] = {rows, cols};
    return weft_rewrite__constant(g->m, WEFT_DTYPE_F32, dim, 2, at, name);
}

weft_val weft_merge__multiply(weft_merger *g, weft_val x, weft_val w, weft_loc loc)
{
    const weft_val in[] = {x, w};
    weft_ttype type = *weft_val_ttype(g->m, x);
    type.dim[type.rank - 1] = weft_val_ttype(g->m, w)->dim[1];
    return weft_merge__append(g, WEFT_OP_MATMUL, in, 2, NULL, 0, &type, loc);
}

weft_val weft_merge__multiply_all(weft_merger *g, const weft_piece *p, weft_val w)
{
    weft_loc loc = weft_node_loc(g->m, weft_merge__first(g, &p->column));
    return weft_merge__multiply(g, weft_merge__operand(g, p, 0, loc), w, loc);
}

weft_val weft_merge__part(weft_merger *g, const weft_piece *p, uint32_t i, weft_val joint,
                          const weft_dim *start)
{
    weft_node n = p->column.node[i];
    weft_loc loc = weft_node_loc(g->m, n);
    weft_ttype type = *weft_val_ttype(g->m, weft_node_out(g->m, n, 0));
    weft_dim rows = weft_merge__rows(g, &type, p->level);
    type.dim[type.rank - 1] = weft_val_ttype(g->m, joint)->dim[1];
    return weft_merge__view(g, weft_merge__cut(g, joint, start[i], rows, loc), &type, loc);
}

weft_val weft_merge__pick(weft_merger *g, weft_val v, const uint32_t *col, uint32_t n, weft_loc loc)
{
    weft_ttype type = *weft_val_ttype(g->m, v);
    uint32_t last = type.rank - 1u;
    bool run = true, all = n == (uint64_t)type.dim[last];
    for (uint32_t i = 0; i < n; i++) {
        run = run && col[i] == col[0] + i;
        all = all && col[i] == i;
    }
    if (all)
        return v;
    type.dim[last] = n;
    if (run) {
        weft_dim axis = last, start = col[0], end = (weft_dim)col[0] + n, step = 1;
        weft_attr attr[] = {WEFT_ATTR_OF_DIMS(AXES, &axis, 1), WEFT_ATTR_OF_DIMS(ENDS, &end, 1),
                            WEFT_ATTR_OF_DIMS(STARTS, &start, 1),
                            WEFT_ATTR_OF_DIMS(STEPS, &step, 1)};
        return weft_merge__append(g, WEFT_OP_SLICE, &v, 1, attr, 4, &type, loc);
    }
    int64_t *index = weft_arena_array(g->cx->scratch, n, sizeof *index);
    for (uint32_t i = 0; i < n; i++)
        index[i] = col[i];
    const int64_t dim[] = {n};
    const weft_val in[] = {
        v, weft_rewrite__constant(g->m, WEFT_DTYPE_I64, dim, 1, index, "merge.columns")};
    weft_attr axis = WEFT_ATTR_OF_INT(AXIS, last);
    return weft_merge__append(g, WEFT_OP_GATHER, in, 2, &axis, 1, &type, loc);
}

weft_val weft_merge__beside(weft_merger *g, const weft_val *part, uint32_t n, weft_loc loc)
{
    weft_ttype type = *weft_val_ttype(g->m, part[0]);
    uint32_t last = type.rank - 1u;
    weft_attr axis = WEFT_ATTR_OF_INT(AXIS, last);
    for (uint32_t i = 1; i < n; i++)
        type.dim[last] += weft_val_ttype(g->m, part[i])->dim[last];
    return n == 1 ? part[0] : weft_merge__append(g, WEFT_OP_CONCAT, part, n, &axis, 1, &type, loc);
}

/* -- What follows ----------------------------------------------------------------------------- */

bool weft_merge__finishes(const weft_merger *g, weft_node n, bool biased)
{
    return weft_attrs_find(weft_node_attrs(g->m, n), WEFT_ATTR_EPILOGUE) ||
           (!biased && weft_node_in_count(g->m, n) > 2 && weft_node_in(g->m, n, 2).i);
}

/* Step `s` as text, `shift` steps further on, operand k called operand[k]. `acc`: what stands for
 * the accumulator. */
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

/* Adds the steps of a node's epilogue behind the n there are. `acc`: the accumulator of its first;
 * NULL: "acc". Returns the new count. */
static uint32_t add_epilogue(weft_merger *g, weft_node n, const uint32_t *operand, const char *acc,
                             const char **steps, uint32_t n_steps)
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

weft_val weft_merge__finish(weft_merger *g, uint32_t i, weft_node n, weft_val product, bool biased)
{
    weft_loc loc = weft_node_loc(g->m, n);
    uint32_t n_in = weft_node_in_count(g->m, n), n_own = 1, n_steps = 0;
    uint32_t operand[OPERANDS_MAX] = {0};
    weft_val in[OPERANDS_MAX] = {product};
    const char *steps[WEFT_STEPS_MAX];
    bool bias = !biased && n_in > 2 && weft_node_in(g->m, n, 2).i;
    if (!weft_merge__finishes(g, n, biased))
        return product;
    for (uint32_t k = bias ? 2 : 3; k < n_in; k++) {
        weft_val v = weft_merge__own(g, i, weft_node_in(g->m, n, k), loc);
        operand[k] = n_own;
        if (v.i)
            in[n_own++] = v;
    }
    if (bias)
        steps[n_steps++] = "add i0 i1";
    n_steps = add_epilogue(g, n, operand, bias ? NULL : "i0", steps, n_steps);
    weft_attr attr = WEFT_ATTR_OF_STRS(STEPS, steps, n_steps);
    return weft_merge__append(g, WEFT_OP_EW, in, n_own, &attr, 1,
                              weft_val_ttype(g->m, weft_node_out(g->m, n, 0)), loc);
}

weft_val weft_merge__finish_sum(weft_merger *g, uint32_t i, weft_node n, weft_val x, weft_val w,
                                weft_val product, bool biased)
{
    weft_loc loc = weft_node_loc(g->m, n);
    uint32_t n_in = weft_node_in_count(g->m, n), n_own = n_in < 3 ? 3 : n_in;
    uint32_t operand[OPERANDS_MAX];
    weft_val in[OPERANDS_MAX + 1] = {x, w};
    const char *steps[WEFT_STEPS_MAX];
    for (uint32_t k = 0; k < n_in; k++)
        operand[k] = k;
    for (uint32_t k = biased ? 3 : 2; k < n_in; k++)
        in[k] = weft_merge__own(g, i, weft_node_in(g->m, n, k), loc);
    in[n_own] = product;
    steps[0] = weft_arena_printf(g->cx->scratch, "add acc i%u", n_own);
    uint32_t n_steps = add_epilogue(g, n, operand, NULL, steps, 1);
    weft_attr attr = WEFT_ATTR_OF_STRS(EPILOGUE, steps, n_steps);
    return weft_merge__append(g, WEFT_OP_MATMUL, in, n_own + 1, &attr, 1,
                              weft_val_ttype(g->m, weft_node_out(g->m, n, 0)), loc);
}

/* -- Results ---------------------------------------------------------------------------------- */

bool weft_merge__parts_align(const weft_merger *g, const weft_piece *p)
{
    weft_node first = weft_merge__first(g, &p->column);
    const weft_ttype *y = weft_val_ttype(g->m, weft_node_out(g->m, first, 0));
    uint64_t features = (uint64_t)y->dim[y->rank - 1];
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_node n = p->column.node[i];
        const weft_ttype *t = n.i ? weft_val_ttype(g->m, weft_node_out(g->m, n, 0)) : y;
        if ((uint64_t)t->dim[t->rank - 1] != features)
            return false;
    }
    return features * weft_dtype_size((weft_dtype)y->dtype) % ALIGN == 0;
}

void weft_merge__set_parts(weft_merger *g, const weft_piece *p, const weft_val *part)
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
