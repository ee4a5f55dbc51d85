/* The GEMM form of a node: what a strategy for unequal weights needs to know of a GEMM, whether the
 * node is a matmul,
 *
 *     %y = matmul %x, $w          %x [rows, taps], $w [taps, features] or transposed
 *
 * or a convolution, which is the GEMM of the patches under its kernel by a matrix (im2col):
 *
 *     %y = conv %x, $w            %x [images, channels, ...], $w [features, channels, kernel...]
 *
 * The rows of a convolution are the output positions in all images. Its taps are the elements of
 * the kernel for each input channel in turn, so that $w as it is stored is [features, taps]. Where
 * a strategy picks columns of %x in a matmul, it picks whole channels in a convolution: `window`
 * taps for each. */
#include "passes/merge/merge_int.h"

#include <string.h>

enum { FINISH_MAX = WEFT_STEPS_MAX - 2, OPERANDS_MAX = WEFT_MERGE_OPERANDS_MAX };

static bool trans_b(const weft_module *m, weft_node n)
{
    return weft_attrs_int(weft_node_attrs(m, n), WEFT_ATTR_TRANS_B, 0) != 0;
}

/* The product of the dims from `first` on; 0: one of them is no positive constant, or it is too
 * large. */
static int64_t count_constants(const weft_ttype *t, uint32_t first)
{
    int64_t n = 1;
    for (uint32_t k = first; k < t->rank; k++) {
        if (!weft_dim_is_const(t->dim[k]) || t->dim[k] <= 0 || n > INT32_MAX / t->dim[k])
            return 0;
        n *= t->dim[k];
    }
    return n;
}

/* -- Nodes without a GEMM form ---------------------------------------------------------------- */

/* Whether the epilogue can be applied by another node: its steps use the accumulator, earlier steps
 * and operands from 3 on only. */
static bool finishes_apart(const weft_merger *g, weft_node n)
{
    const weft_attr *epilogue = weft_attrs_find(weft_node_attrs(g->m, n), WEFT_ATTR_EPILOGUE);
    weft_step step[WEFT_STEPS_MAX];
    uint32_t n_in = weft_node_in_count(g->m, n);
    if (n_in > OPERANDS_MAX ||
        (epilogue &&
         (epilogue->n > FINISH_MAX || weft_steps_parse(epilogue->u.strs, epilogue->n, n_in, NULL,
                                                       (weft_where){0}, step) != WEFT_ERR_OK)))
        return false;
    for (uint32_t i = 0; epilogue && i < epilogue->n; i++)
        for (uint32_t k = 0; k < step[i].n_args; k++)
            if (step[i].arg[k].kind == WEFT_ARG_INPUT && step[i].arg[k].idx < 3)
                return false;
    return true;
}

const char *weft_merge__refuse_node(const weft_merger *g, weft_node n)
{
    bool conv = weft_node_op(g->m, n) == WEFT_OP_CONV;
    const weft_ttype *w = weft_val_ttype(g->m, weft_node_in(g->m, n, 1));
    const weft_ttype *y = weft_val_ttype(g->m, weft_node_out(g->m, n, 0));
    if (!conv && weft_node_op(g->m, n) != WEFT_OP_MATMUL)
        return "not done for this operator";
    if (weft_attrs_int(weft_node_attrs(g->m, n), WEFT_ATTR_GROUP, 1) != 1)
        return "not done for convolutions in groups";
    if (weft_attrs_float(weft_node_attrs(g->m, n), WEFT_ATTR_ALPHA, 1) != 1)
        return "not done for GEMMs that are scaled";
    if (w->dtype != WEFT_DTYPE_F32)
        return "not done for this type of element";
    if (conv ? w->rank < 3 : w->rank != 2)
        return "the weight is not a matrix";
    if (count_constants(w, 0) == 0 || (conv && count_constants(y, 1) == 0))
        return "the weight is too large, or something is empty";
    return finishes_apart(g, n) ? NULL : "the epilogue is too long, or uses operands of the GEMM";
}

const char *weft_merge__refuse(const weft_merger *g, const weft_merge_group *p)
{
    bool conv = weft_node_op(g->m, weft_merge__first(g, &p->column)) == WEFT_OP_CONV;
    if (p->level != (conv ? WEFT_JOINT_IMAGES : WEFT_JOINT_ROWS))
        return conv ? "its images depend on each other, or have no constant size"
                    : "its rows depend on each other, or are images";
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        const char *reason =
            p->column.node[i].i ? weft_merge__refuse_node(g, p->column.node[i]) : NULL;
        if (reason)
            return reason;
    }
    return NULL;
}

/* -- Forms ------------------------------------------------------------------------------------ */

weft_merge_form weft_merge__form(const weft_merger *g, weft_node n)
{
    weft_merge_form f = {.node = n, .window = 1, .spread = 1};
    f.x = weft_node_in(g->m, n, 0);
    f.w = weft_node_in(g->m, n, 1);
    f.conv = weft_node_op(g->m, n) == WEFT_OP_CONV;
    f.by_feature = f.conv || trans_b(g->m, n);
    const weft_ttype *w = weft_val_ttype(g->m, f.w);
    f.features = (uint32_t)w->dim[!f.by_feature];
    f.taps = f.by_feature ? (uint32_t)count_constants(w, 1) : (uint32_t)w->dim[0];
    if (!f.conv)
        return f;
    const weft_ttype *y = weft_val_ttype(g->m, weft_node_out(g->m, n, 0));
    f.window = (uint32_t)count_constants(w, 2);
    f.spread = (double)count_constants(weft_val_ttype(g->m, f.x), 2) /
               (double)count_constants(y, 2) / f.window;
    return f;
}

weft_merge_form weft_merge__pointwise(const weft_merge_form *f, uint32_t taps)
{
    weft_merge_form out = *f;
    out.taps = taps;
    out.window = 1;
    out.spread = 1;
    out.pointwise = f->conv;
    return out;
}

weft_merge_gemm weft_merge__numbers(const weft_merge_form *f, double rows, uint32_t taps,
                                    uint32_t features)
{
    return (weft_merge_gemm){
        .rows = rows, .features = features, .taps = taps, .x = rows * taps * f->spread, .batch = 1};
}

uint32_t weft_merge__axis(const weft_merge_form *f, const weft_ttype *type)
{
    return f->conv ? 1 : type->rank - 1u;
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
    bool conv = weft_node_op(m, n) == WEFT_OP_CONV;
    double elements = 0;
    if (!weft_merge__count(at, m, weft_node_out(m, n, 0), &elements))
        return false;
    *rows = elements / (double)y->dim[conv ? 1 : y->rank - 1];
    return true;
}
