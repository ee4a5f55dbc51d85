/* How well two nodes of different models, or a column and a node, correspond: the scores that the
 * alignment (align.c) and the bipartite matching (match_rest.c) maximise. 0 means that the two
 * cannot correspond. Equal nodes score most, then GEMMs with weights of one shape, then GEMMs whose
 * weights differ in rows or columns; within a kind, the similarity of the weight sketches decides.
 */
#include "passes/merge/align.h"

/* -- Two nodes -------------------------------------------------------------------------------- */

static uint32_t score_nodes(const weft_module *m, weft_sketches *r, const weft_item *a,
                            const weft_item *b)
{
    if (a->class[WEFT_COLUMN_SIZE] != b->class[WEFT_COLUMN_SIZE])
        return 0;
    bool weighted = a->anchors || a->is_gemm;
    if (a->class[WEFT_COLUMN_EQUAL] == b->class[WEFT_COLUMN_EQUAL])
        return weighted ? 100 : 20;
    bool shape = a->class[WEFT_COLUMN_SHAPE] == b->class[WEFT_COLUMN_SHAPE];
    uint32_t which = weft_align__main_weight(m, a->node);
    if (which == UINT32_MAX)
        return weighted ? 30 : 10;
    weft_val v = weft_node_in(m, a->node, which), w = weft_node_in(m, b->node, which);
    const weft_ttype *s = weft_val_ttype(m, v), *t = weft_val_ttype(m, w);
    if (!shape && (s->rank < 2 || (s->dim[0] != t->dim[0] && s->dim[1] != t->dim[1])))
        return 0;
    double similarity = weft_sketch__compare(r, m, weft_val_weight(m, v), weft_val_weight(m, w));
    if (!shape && similarity < 0.02)
        return WEFT_SCORE_WEAK;
    return shape ? 50 + (uint32_t)(40 * similarity) : 25 + (uint32_t)(20 * similarity);
}

/* -- A column and a node ---------------------------------------------------------------------- */

uint32_t weft_align__score_column(const weft_matching *x, uint32_t column, uint32_t own)
{
    uint32_t best = 0;
    const weft_variant *first = x->variant[column];
    if (first->item.class[WEFT_COLUMN_SIZE] != x->own[own].class[WEFT_COLUMN_SIZE])
        return 0; /* all of a column are of one class */
    for (const weft_variant *v = first; v; v = v->next) {
        uint32_t score = score_nodes(x->m, x->sketches, &v->item, &x->own[own]);
        best = score > best ? score : best;
    }
    return best;
}

bool weft_align__equals_column(const weft_matching *x, uint32_t column, uint32_t own)
{
    for (const weft_variant *v = x->variant[column]; v; v = v->next)
        if (v->item.class[WEFT_COLUMN_EQUAL] == x->own[own].class[WEFT_COLUMN_EQUAL])
            return true;
    return false;
}
