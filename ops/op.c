/* The table of operators, and the entry points (infer, work, eval), which check a node against its
 * row before they call the function that the row names. */
#include "ops/op_int.h"

#include <string.h>

/* -- The table ------------------------------------------------------------------------------ */

#define weft_infer_none NULL
#define weft_work_none  NULL
#define weft_eval_none  NULL
#define ANY             WEFT_VARIADIC
#define IN(lo, hi)      .in_min = (lo), .in_max = (hi)
#define OUT(lo, hi)     .out_min = (lo), .out_max = (hi)
#define BATCH(rule)     WEFT_BATCH_##rule
#define CUDA(kind)      WEFT_CUDA_KIND_##kind
#define JOIN(rule)      WEFT_JOIN_##rule
#define T(bits)         .traits = (bits)
#define FORM(kind)      .form = WEFT_FORM_##kind
#define ROWS(kind)      .row = WEFT_ROW_##kind
#define ATTRS(...)      .attrs = {__VA_ARGS__}
#define OPT(key, kind)                           \
    {                                            \
        WEFT_ATTR_##key, WEFT_KIND_##kind, false \
    }
#define REQ(key, kind)                          \
    {                                           \
        WEFT_ATTR_##key, WEFT_KIND_##kind, true \
    }
#define PARAMS(...) .params = {__VA_ARGS__}
#define PAR(in, key)          \
    {                         \
        (in), WEFT_ATTR_##key \
    }

/* Traits by their short names inside T(). */
enum {
    EW = WEFT_T_EW,
    COMMUTES = WEFT_T_COMMUTES,
    GEMM = WEFT_T_GEMM,
    REDUCE = WEFT_T_REDUCE,
    MOVE = WEFT_T_MOVE,
    VIEW = WEFT_T_VIEW,
    DATA = WEFT_T_DATA,
    EPILOGUE = WEFT_T_EPILOGUE,
    KERNEL_ONLY = WEFT_T_KERNEL_ONLY,
    GRAPH_ONLY = WEFT_T_GRAPH_ONLY,
    RANDOM = WEFT_T_RANDOM,
    RUNS = WEFT_T_RUNS,
    FILL = WEFT_T_FILL,
    NARROW = WEFT_T_NARROW,
    LAYOUT = WEFT_T_LAYOUT,
    BODY = WEFT_T_BODY,
    PER_RUN = WEFT_T_PER_RUN
};

static const weft_op ops[WEFT_OP_COUNT] = {
    [WEFT_OP_NONE] = {.id = WEFT_OP_NONE, .name = "none"},
#define OP(row, infer_fn, work_fn, eval_fn, batch_rule, cuda_kind, join_rule, ...) \
    [WEFT_OP_##row] = {.id = WEFT_OP_##row,                                        \
                       .infer = weft_infer_##infer_fn,                             \
                       .work = weft_work_##work_fn,                                \
                       .eval = weft_eval_##eval_fn,                                \
                       .batch = batch_rule,                                        \
                       .cuda = cuda_kind,                                          \
                       .join = join_rule,                                          \
                       __VA_ARGS__},
#include "ops/ops.def"
#undef OP
};

const weft_op *weft_op_get(weft_op_id id)
{
    return (unsigned)id < WEFT_OP_COUNT ? &ops[id] : &ops[WEFT_OP_NONE];
}

weft_op_id weft_op_find(const char *name)
{
    if (name == NULL)
        return WEFT_OP_NONE;
    for (int i = 1; i < WEFT_OP_COUNT; i++)
        if (strcmp(ops[i].name, name) == 0)
            return (weft_op_id)i;
    return WEFT_OP_NONE;
}

/* -- Checks of every entry ------------------------------------------------------------------ */

static bool kind_fits(uint16_t want, uint16_t have)
{
    if (want == have)
        return true;
    return (want == WEFT_KIND_INTS && have == WEFT_KIND_DIMS) ||
           (want == WEFT_KIND_DIMS && have == WEFT_KIND_INTS) ||
           (want == WEFT_KIND_FLOAT && have == WEFT_KIND_INT);
}

/* A parameter's attribute: a list or a scalar of numbers. */
static bool param_fits(uint16_t have)
{
    return have == WEFT_KIND_DIMS || have == WEFT_KIND_INTS || have == WEFT_KIND_INT ||
           have == WEFT_KIND_FLOAT || have == WEFT_KIND_FLOATS;
}

static const weft_attr_def *find_def(const weft_op *op, uint16_t key)
{
    for (uint32_t i = 0; i < WEFT_OP_ATTR_MAX && op->attrs[i].key != WEFT_ATTR_NONE; i++)
        if (op->attrs[i].key == key)
            return &op->attrs[i];
    return NULL;
}

static bool is_param(const weft_op *op, uint16_t key)
{
    for (uint32_t i = 0; i < WEFT_OP_PARAM_MAX && op->params[i].key != WEFT_ATTR_NONE; i++)
        if (op->params[i].key == key)
            return true;
    return false;
}

weft_err weft_op_check_attrs(const weft_op *op, weft_attrs attrs, weft_diag *diag, weft_where where)
{
    for (uint32_t i = 0; i < attrs.n; i++) {
        const weft_attr *a = &attrs.at[i];
        const char *name = weft_attr_key_name((weft_attr_key)a->key);
        const weft_attr_def *def = find_def(op, a->key);
        if (is_param(op, a->key) && param_fits(a->kind))
            continue;
        if (def == NULL)
            return weft_op__fail(op, diag, where, WEFT_ERR_UNSUP, "no attribute `%s` here", name);
        if (!kind_fits(def->kind, a->kind))
            return weft_op__fail(op, diag, where, WEFT_ERR_INPUT,
                                 "attribute `%s` has the wrong kind", name);
    }
    for (uint32_t i = 0; i < WEFT_OP_ATTR_MAX && op->attrs[i].key != WEFT_ATTR_NONE; i++)
        if (op->attrs[i].required &&
            weft_attrs_find(attrs, (weft_attr_key)op->attrs[i].key) == NULL)
            return weft_op__fail(op, diag, where, WEFT_ERR_INPUT, "attribute `%s` is missing",
                                 weft_attr_key_name((weft_attr_key)op->attrs[i].key));
    return WEFT_ERR_OK;
}

static weft_err check_counts(const weft_op *op, uint32_t n_in, uint32_t n_out, weft_diag *diag,
                             weft_where where)
{
    if (op->infer == NULL)
        return weft_diag_error(diag, WEFT_ERR_BUG, where, "not an operator");
    if (n_in < op->in_min || (op->in_max != WEFT_VARIADIC && n_in > op->in_max))
        return weft_op__fail(op, diag, where, WEFT_ERR_INPUT, "%u operands, expected %u to %u",
                             n_in, op->in_min, op->in_max);
    if (n_out < op->out_min || (op->out_max != WEFT_VARIADIC && n_out > op->out_max))
        return weft_op__fail(op, diag, where, WEFT_ERR_INPUT, "%u results, expected %u to %u",
                             n_out, op->out_min, op->out_max);
    return WEFT_ERR_OK;
}

static weft_err missing_operand(const weft_op *op, uint32_t in, weft_diag *diag, weft_where where)
{
    return weft_op__fail(op, diag, where, WEFT_ERR_INPUT, "operand %u is missing", in);
}

/* Operators with WEFT_T_LAYOUT give results the layout of operand 0, or the layout that attribute
 * `layout` names; all others support PLAIN only. */
static weft_err infer_layout(weft_infer_ctx *cx)
{
    weft_layout layout = WEFT_LAYOUT_PLAIN;
    if (cx->op->traits & WEFT_T_LAYOUT) {
        if (cx->n_in > 0 && cx->in[0].present)
            layout = (weft_layout)cx->in[0].type.layout;
        const weft_attr *a = weft_attrs_find(cx->attrs, WEFT_ATTR_LAYOUT);
        if (a != NULL && !weft_layout_parse(a->u.s, &layout))
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "no layout \"%s\"", a->u.s);
        if (layout != WEFT_LAYOUT_PLAIN && cx->out[0].rank < 3)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "layout \"%s\" on rank %u",
                             weft_layout_name(layout), cx->out[0].rank);
        for (uint32_t i = 1; i < cx->n_in; i++) {
            weft_layout other = (weft_layout)cx->in[i].type.layout;
            if (cx->in[i].present && other != WEFT_LAYOUT_PLAIN && other != layout)
                return WEFT_FAIL(cx, WEFT_ERR_INPUT,
                                 "operand %u has layout \"%s\", the result \"%s\"", i,
                                 weft_layout_name(other), weft_layout_name(layout));
        }
    } else {
        for (uint32_t i = 0; i < cx->n_in; i++)
            if (cx->in[i].present && cx->in[i].type.layout != WEFT_LAYOUT_PLAIN)
                return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand %u has layout \"%s\"", i,
                                 weft_layout_name((weft_layout)cx->in[i].type.layout));
    }
    for (uint32_t i = 0; i < cx->n_out; i++)
        cx->out[i].layout = (uint8_t)(i > 0 && cx->out[i].rank < 3 ? WEFT_LAYOUT_PLAIN : layout);
    return WEFT_ERR_OK;
}

/* Parameters that may be floating-point numbers; all others are integers. */
static bool may_be_real(uint16_t key)
{
    switch (key) {
    case WEFT_ATTR_MIN:
    case WEFT_ATTR_MAX:
    case WEFT_ATTR_START:
    case WEFT_ATTR_LIMIT:
    case WEFT_ATTR_DELTA:
    case WEFT_ATTR_RATIO:
    case WEFT_ATTR_SCALES:
    case WEFT_ATTR_DEPTH:
        return true;
    default:
        return false;
    }
}

static weft_err check_params(weft_infer_ctx *cx)
{
    for (uint32_t i = 0; i < WEFT_OP_PARAM_MAX && cx->op->params[i].key != WEFT_ATTR_NONE; i++) {
        const weft_param_def *p = &cx->op->params[i];
        if (weft_infer__has(cx, p->in) && !may_be_real(p->key))
            WEFT_TRY(weft_infer__dtype(cx, p->in, WEFT_M_INT));
    }
    return WEFT_ERR_OK;
}

/* All data, dims and attributes that a result may depend on are known. */
static bool is_all_known(const weft_infer_ctx *cx)
{
    for (uint32_t i = 0; i < cx->n_in; i++) {
        const weft_operand *in = &cx->in[i];
        if (in->present && in->data == NULL)
            return false;
        for (uint32_t k = 0; in->present && k < in->type.rank; k++)
            if (!weft_dim_is_const(in->type.dim[k]))
                return false;
    }
    for (uint32_t i = 0; i < cx->attrs.n; i++)
        for (uint32_t k = 0; cx->attrs.at[i].kind == WEFT_KIND_DIMS && k < cx->attrs.at[i].n; k++)
            if (!weft_dim_is_const(cx->attrs.at[i].u.dims[k]))
                return false;
    return true;
}

/* A tensor with a dim of 0 is empty, but loops over its other dims must not overflow or run
 * practically forever: their product is bounded too. */
static bool dims_in_range(const int64_t *dim, uint32_t rank)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < rank; i++)
        if (dim[i] < 0 || (dim[i] > 0 && (!weft_i64_mul(n, dim[i], &n) || n > WEFT_NUMEL_MAX)))
            return false;
    return true;
}

static weft_err check_results(weft_infer_ctx *cx)
{
    bool known = is_all_known(cx);
    for (uint32_t i = 0; i < cx->n_out; i++) {
        const weft_ttype *out = &cx->out[i];
        if (weft_dtype_size((weft_dtype)out->dtype) == 0)
            return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "result %u: unknown element type", i);
        for (uint32_t k = 0; k < out->rank; k++) {
            if (!weft_dim_is_valid(cx->pool, out->dim[k]))
                return WEFT_FAIL(cx, WEFT_ERR_INPUT, "result %u: dimension %u is out of range", i,
                                 k);
            if (weft_dim_is_const(out->dim[k]) && out->dim[k] < 0)
                return WEFT_FAIL(cx, WEFT_ERR_INPUT, "result %u: dimension %u would be %lld", i, k,
                                 (long long)out->dim[k]);
            if (known && !weft_dim_is_const(out->dim[k]))
                return WEFT_FAIL(cx, WEFT_ERR_INPUT,
                                 "the operands do not tell dimension %u of result %u", k, i);
        }
        if (known && !dims_in_range(out->dim, out->rank))
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "result %u is too large", i);
    }
    return WEFT_ERR_OK;
}

weft_err weft_op_infer(weft_infer_ctx *cx)
{
    WEFT_TRY(check_counts(cx->op, cx->n_in, cx->n_out, cx->diag, cx->where));
    for (uint32_t i = 0; i < cx->op->in_min; i++)
        if (!cx->in[i].present)
            return missing_operand(cx->op, i, cx->diag, cx->where);
    WEFT_TRY(weft_op_check_attrs(cx->op, cx->attrs, cx->diag, cx->where));
    WEFT_TRY(check_params(cx));
    WEFT_TRY(cx->op->infer(cx));
    WEFT_TRY(check_results(cx));
    return infer_layout(cx);
}

weft_work weft_op_work(const weft_work_ctx *cx)
{
    return cx->op->work != NULL ? cx->op->work(cx) : weft_work__bytes(cx, 0);
}

weft_err weft_op_eval(weft_eval_ctx *cx)
{
    WEFT_TRY(check_counts(cx->op, cx->n_in, cx->n_out, cx->diag, cx->where));
    for (uint32_t i = 0; i < cx->op->in_min; i++)
        if (cx->in[i] == NULL)
            return missing_operand(cx->op, i, cx->diag, cx->where);
    for (uint32_t i = 0; i < cx->n_in; i++)
        if (cx->in[i] != NULL && !dims_in_range(cx->in[i]->dim, (uint32_t)cx->in[i]->rank))
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand %u is too large", i);
    for (uint32_t i = 0; i < cx->n_out; i++)
        if (!dims_in_range(cx->out[i].dim, (uint32_t)cx->out[i].rank))
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "result %u is too large", i);
    WEFT_TRY(weft_op_check_attrs(cx->op, cx->attrs, cx->diag, cx->where));
    if (cx->op->eval == NULL)
        return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "has no reference implementation");
    /* eval functions write all required results, wanted or not. */
    for (uint32_t i = 0; i < cx->op->out_min && i < cx->n_out; i++)
        if (cx->out[i].data == NULL)
            cx->out[i].data = weft_arena_alloc(cx->scratch, weft_tensor_bytes(&cx->out[i]));
    return cx->op->eval(cx);
}
