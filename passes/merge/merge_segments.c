/* A GEMM by a base weight and the differences of all models from it as one node for the rows of all
 * models:
 *
 *     %z = concat %x, %y {axis = 0}
 *     %p = low_rank_matmul %z, $w, $bias, _, _, $u, $t, %r {starts = [0, ?b],
 *                                                           epilogue = ["add acc i7", "gelu acc"]}
 *
 * or patched_matmul, if the differences are single elements rather than low-rank factors. The rows
 * of adjacent models with the same difference are one segment. If the finish (bias, epilogue) is
 * the same for all models, the node applies it and its result is a joint value, so that the next
 * nodes can be joined as well; otherwise each model's rows are cut out and finished by themselves.
 */
#include "passes/merge/merge_int.h"

#include <string.h>

/* -- Whether all models have the same finish -------------------------------------------------- */

static bool same_steps(const weft_attr *a, const weft_attr *b)
{
    return a && b ? weft_attr_equal(a, b) : a == b;
}

bool weft_merge__finish_alike(const weft_merger *g, const weft_column *c)
{
    weft_node first = weft_merge__first(g, c);
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_node n = c->node[i];
        if (!n.i)
            continue;
        if (weft_node_in_count(g->m, n) != weft_node_in_count(g->m, first) ||
            !same_steps(weft_attrs_find(weft_node_attrs(g->m, n), WEFT_ATTR_EPILOGUE),
                        weft_attrs_find(weft_node_attrs(g->m, first), WEFT_ATTR_EPILOGUE)))
            return false;
        for (uint32_t k = 2; k < weft_node_in_count(g->m, n); k++) {
            weft_val a = weft_node_in(g->m, n, k), b = weft_node_in(g->m, first, k);
            bool constant = !a.i || weft_merge__is_weight(g->m, a);
            if (constant != (!b.i || weft_merge__is_weight(g->m, b)) || (constant && a.i != b.i) ||
                (k == 2 && !constant))
                return false;
        }
    }
    return true;
}

/* -- The node --------------------------------------------------------------------------------- */

enum { IN_MAX = 3 + WEFT_PATCH_OPERANDS * WEFT_LOW_RANK_SEGMENTS + WEFT_MERGE_OPERANDS_MAX };

typedef struct segments {
    weft_val in[IN_MAX];
    uint32_t n_in, n;
    weft_dim start[WEFT_LOW_RANK_SEGMENTS];
} segments;

static void add_segments(const weft_merger *g, const weft_merge_group *p, weft_op_id op,
                         const weft_merge_extra *extra, const weft_dim *start, segments *s)
{
    uint32_t width = op == WEFT_OP_PATCHED_MATMUL ? WEFT_PATCH_OPERANDS : 2;
    const weft_merge_extra *last = NULL;
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        if (!p->column.node[i].i || (last && memcmp(last, &extra[i], sizeof *last) == 0))
            continue;
        last = &extra[i];
        memcpy(s->in + s->n_in, last->in, width * sizeof *last->in);
        s->n_in += width;
        s->start[s->n++] = start[i];
    }
}

/* Adds the operands and steps of the epilogue, which all nodes share; returns the number of steps.
 */
static uint32_t add_steps(weft_merger *g, const weft_merge_group *p, segments *s,
                          const char **steps)
{
    weft_node n = weft_merge__first(g, &p->column);
    uint32_t operand[WEFT_MERGE_OPERANDS_MAX] = {0};
    for (uint32_t k = 3; k < weft_node_in_count(g->m, n); k++) {
        weft_val v = weft_node_in(g->m, n, k);
        operand[k] = s->n_in;
        s->in[s->n_in++] = !v.i || weft_merge__is_weight(g->m, v)
                               ? v
                               : weft_merge__operand(g, p, k, weft_node_loc(g->m, n));
    }
    return weft_merge__add_epilogue(g, n, operand, NULL, steps, 0);
}

weft_val weft_merge__extended(weft_merger *g, const weft_merge_group *p, weft_op_id op, weft_val w,
                              weft_val bias, const weft_merge_extra *extra, bool finish)
{
    weft_merge_form f = weft_merge__form(g, weft_merge__first(g, &p->column));
    weft_loc loc = weft_node_loc(g->m, f.node);
    const char *steps[WEFT_STEPS_MAX];
    weft_attr attr[3];
    uint32_t n_attr = 0;
    segments s = {.in = {weft_merge__operand(g, p, 0, loc), w, bias}, .n_in = 3};
    add_segments(g, p, op, extra, weft_merge__starts(g, p), &s);
    uint32_t n_steps = finish ? add_steps(g, p, &s, steps) : 0;
    if (n_steps)
        attr[n_attr++] = WEFT_ATTR_OF_STRS(EPILOGUE, steps, n_steps);
    attr[n_attr++] = WEFT_ATTR_OF_DIMS(STARTS, s.start, s.n);
    if (f.by_feature)
        attr[n_attr++] = WEFT_ATTR_OF_INT(TRANS_B, 1);
    weft_ttype type = *weft_val_ttype(g->m, s.in[0]);
    type.dim[1] = f.features;
    return weft_merge__append(g, op, s.in, s.n_in, attr, n_attr, &type, loc);
}
