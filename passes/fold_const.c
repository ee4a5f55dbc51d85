/* fold-const: constant folding. Nodes that depend on no input become weights.
 *
 *     %s = shape %x             (content known: [2, 3])   ==>  $w = dense [2, 3]
 *     %y = transpose $w {...}                             ==>  $w2
 *
 * A node is folded if inference found its small integer result to be constant (symbols may have
 * cancelled), or if all operands are weights: the reference implementation then computes it. A node
 * whose result is larger than RESULT_MAX and than its different operands together is not folded
 * (expanding a scalar to a large tensor is cheaper at run time). Weights that are dequantised from
 * bytes are left to fold-weights, which runs when fuse-quantised has taken those that products of
 * bytes read. One forward sweep, since operands come first.
 *
 * A model can be made so that every constant is twice as large as the one before. All passes of a
 * run together produce at most BYTES_MIN + BYTES_RATIO times the weights of the module, with at
 * most FLOPS_MAX operations; what is left is computed at run time. */
#include "base/map.h"
#include "base/num.h"
#include "ops/work.h"
#include "passes/passes_int.h"

enum { RESULT_MAX_BYTES = 1 << 20, BYTES_MIN = 64 << 20, BYTES_RATIO = 4 };
/* Operations of products and convolutions, which are evaluated by blocked loops; one of others
 * counts as SLOW of them. */
static const double FLOPS_MAX = 2e10, SLOW = 10;

/* -- From contents -------------------------------------------------------------------------- */

static bool constant_content(weft_passctx *cx, const weft_module *m, weft_val v,
                             const weft_dim **out, uint32_t *out_n)
{
    const weft_ttype *type = weft_val_ttype(m, v);
    if (!weft_dtype_is_int((weft_dtype)type->dtype) && type->dtype != WEFT_DTYPE_BOOL)
        return false;
    *out = weft_contents_get(cx->contents, v, out_n);
    if (!*out)
        return false;
    for (uint32_t i = 0; i < *out_n; i++)
        if (!weft_dim_is_number((*out)[i]))
            return false;
    for (uint32_t i = 0; i < type->rank; i++)
        if (!weft_dim_is_const(type->dim[i]))
            return false;
    return true;
}

static weft_val weight_of_content(weft_passctx *cx, weft_module *m, weft_val v,
                                  const weft_dim *content, uint32_t n, const char *name)
{
    const weft_ttype *type = weft_val_ttype(m, v);
    weft_tensor t = {.dtype = (weft_dtype)type->dtype, .rank = type->rank};
    for (uint32_t i = 0; i < type->rank; i++)
        t.dim[i] = type->dim[i];
    t.data = weft_arena_array(cx->scratch, (size_t)n + 1, weft_dtype_size(t.dtype));
    for (uint32_t i = 0; i < n; i++)
        weft_tensor_set_i64(&t, i, content[i]);
    return weft_rewrite__constant(m, t.dtype, t.dim, type->rank, t.data, name);
}

static bool fold_content(weft_passctx *cx, weft_graph *g, weft_node n)
{
    weft_module *m = weft_graph_module(g);
    weft_val v = weft_node_out(m, n, 0);
    const weft_dim *content = NULL;
    uint32_t count = 0;
    if (weft_node_out_count(m, n) != 1 || !constant_content(cx, m, v, &content, &count) ||
        !weft_rewrite__allow(cx))
        return false;
    weft_val w = weight_of_content(cx, m, v, content, count, weft_node_opdef(m, n)->name);
    weft_rewrite__replace_result(g, n, 0, w);
    return true;
}

/* -- By running ----------------------------------------------------------------------------- */

/* *out_bytes: of the different operands. */
static bool operands_are_weights(weft_passctx *cx, const weft_module *m, weft_node n,
                                 uint64_t *out_bytes)
{
    weft_map *seen = weft_node_in_count(m, n) > 1 ? weft_map_create(cx->scratch) : NULL;
    uint64_t known;
    *out_bytes = 0;
    for (uint32_t i = 0; i < weft_node_in_count(m, n); i++) {
        weft_val v = weft_node_in(m, n, i);
        if (!v.i)
            continue;
        if (weft_val_get_kind(m, v) != WEFT_VAL_WEIGHT)
            return false;
        if (seen && weft_map_get(seen, v.i, &known))
            continue;
        if (seen)
            weft_map_put(seen, v.i, 1);
        *out_bytes += weft_weight_get(m, weft_val_weight(m, v))->bytes;
    }
    return true;
}

static void start_budget(weft_passctx *cx, const weft_module *m)
{
    if (cx->fold_started)
        return;
    cx->fold_started = true;
    cx->fold_bytes = BYTES_MIN;
    cx->fold_flops = FLOPS_MAX;
    for (uint32_t i = 1; i <= weft_weight_count(m); i++)
        cx->fold_bytes += BYTES_RATIO * weft_weight_get(m, (weft_weight){i})->bytes;
}

static weft_work_operand work_operand(const weft_module *m, weft_val v)
{
    const weft_ttype *type = v.i ? weft_val_ttype(m, v) : NULL;
    weft_work_operand o = {.present = type != NULL, .is_weight = true};
    if (!type)
        return o;
    o.dtype = type->dtype;
    o.rank = type->rank;
    for (uint32_t i = 0; i < type->rank; i++)
        o.dim[i] = type->dim[i];
    return o;
}

static double count_flops(weft_passctx *cx, const weft_module *m, weft_node n)
{
    uint32_t n_in = weft_node_in_count(m, n), n_out = weft_node_out_count(m, n);
    weft_work_operand *in = weft_arena_array(cx->scratch, (size_t)n_in + 1, sizeof *in);
    weft_work_operand *out = weft_arena_array(cx->scratch, (size_t)n_out + 1, sizeof *out);
    for (uint32_t i = 0; i < n_in; i++)
        in[i] = work_operand(m, weft_node_in(m, n, i));
    for (uint32_t i = 0; i < n_out; i++)
        out[i] = work_operand(m, weft_node_out(m, n, i));
    weft_work work = weft_op_work(&(weft_work_ctx){.op = weft_node_opdef(m, n),
                                                   .attrs = weft_node_attrs(m, n),
                                                   .in = in,
                                                   .out = out,
                                                   .n_in = n_in,
                                                   .n_out = n_out});
    bool fast =
        (weft_node_opdef(m, n)->traits & WEFT_T_GEMM) && weft_node_op(m, n) != WEFT_OP_EINSUM;
    return fast || weft_op_form(weft_node_opdef(m, n)) == WEFT_FORM_RECURRENT ? work.flops
                                                                              : SLOW * work.flops;
}

/* Whether the time depends on the operands' values: depths of trees, sizes of regions. */
static bool is_unpredictable(const weft_module *m, weft_node n)
{
    weft_op_id op = weft_node_op(m, n);
    return op == WEFT_OP_TREE_ENSEMBLE || op == WEFT_OP_ROI_ALIGN || op == WEFT_OP_MAX_ROI_POOL;
}

/* Whether all results have constant dims, and are worth their bytes and operations. */
static bool is_affordable(weft_passctx *cx, const weft_module *m, weft_node n, uint64_t in_bytes)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < weft_node_out_count(m, n); i++) {
        const weft_ttype *type = weft_val_ttype(m, weft_node_out(m, n, i));
        uint64_t bytes = 0;
        for (uint32_t k = 0; k < type->rank; k++)
            if (!weft_dim_is_const(type->dim[k]))
                return false;
        if (!weft_layout_bytes((weft_dtype)type->dtype, WEFT_LAYOUT_PLAIN, type->dim, type->rank,
                               &bytes) ||
            !weft_size_add(total, bytes, &total))
            return false;
    }
    if ((total > RESULT_MAX_BYTES && total > in_bytes) || total > cx->fold_bytes)
        return false;
    double flops = count_flops(cx, m, n);
    if (flops > cx->fold_flops)
        return false;
    cx->fold_bytes -= total;
    cx->fold_flops -= flops;
    return true;
}

/* Whether sizes that only a run has decide what an attribute says: a row of a constant table. */
static bool has_symbols(weft_attrs attrs)
{
    for (uint32_t i = 0; i < attrs.n; i++)
        for (uint32_t k = 0; attrs.at[i].kind == WEFT_KIND_DIMS && k < attrs.at[i].n; k++)
            if (!weft_dim_is_const(attrs.at[i].u.dims[k]))
                return true;
    return false;
}

/* A dequantised weight of bytes. */
static bool is_dequantised(const weft_module *m, weft_node n)
{
    return weft_node_op(m, n) == WEFT_OP_DEQUANTIZE_LINEAR &&
           weft_dtype_size((weft_dtype)weft_val_ttype(m, weft_node_in(m, n, 0))->dtype) == 1;
}

static weft_err fold_by_running(weft_passctx *cx, weft_graph *g, weft_node n, bool *changed)
{
    weft_module *m = weft_graph_module(g);
    const weft_op *op = weft_node_opdef(m, n);
    uint64_t in_bytes = 0;
    if (!op->eval || (op->traits & (WEFT_T_RANDOM | WEFT_T_PER_RUN)) || is_unpredictable(m, n) ||
        has_symbols(weft_node_attrs(m, n)) || !operands_are_weights(cx, m, n, &in_bytes) ||
        !is_affordable(cx, m, n, is_dequantised(m, n) ? 4 * in_bytes : in_bytes) ||
        !weft_rewrite__allow(cx))
        return WEFT_ERR_OK;
    uint32_t n_out = weft_node_out_count(m, n);
    weft_tensor *out = weft_arena_array(cx->scratch, n_out, sizeof *out);
    WEFT_TRY(weft_node_eval(g, n, cx->diag, out, n_out));
    for (uint32_t i = 0; i < n_out; i++) {
        weft_ttype type = *weft_val_ttype(m, weft_node_out(m, n, i));
        weft_weight_info info = {.type = weft_type_intern(m, &type),
                                 .name = op->name,
                                 .data = out[i].data,
                                 .bytes = weft_tensor_bytes(&out[i])};
        weft_rewrite__replace_result(g, n, i, weft_weight_val(m, weft_weight_add(m, &info)));
    }
    *changed = true;
    return WEFT_ERR_OK;
}

/* Folds dequantised weights, or all other nodes. */
static weft_err fold(weft_passctx *cx, weft_module *m, bool dequantised, bool *changed)
{
    start_budget(cx, m);
    for (uint32_t i = 0; i < weft_graph_count(m); i++) {
        weft_graph *g = weft_graph_at(m, i);
        WEFT_FOREACH_NODE (m, g, n) {
            weft_arena_mark mark = weft_arena_get_mark(cx->scratch);
            if (!weft_rewrite__is_live(g, n) || is_dequantised(m, n) != dequantised)
                continue;
            if (fold_content(cx, g, n))
                *changed = true;
            else
                WEFT_TRY(fold_by_running(cx, g, n, changed));
            if (!weft_rewrite__is_live(g, n))
                weft_node_remove(g, n);
            weft_arena_reset(cx->scratch, mark);
        }
    }
    return WEFT_ERR_OK;
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    return fold(cx, m, false, changed);
}

static weft_err run_weights(weft_passctx *cx, weft_module *m, bool *changed)
{
    return fold(cx, m, true, changed);
}

const weft_pass weft_pass_fold_const = {
    .name = "fold-const",
    .brief = "compute what depends on no input",
    .from = WEFT_STAGE_GRAPH,
    .to = WEFT_STAGE_GRAPH,
    .needs = WEFT_FACT_TYPES | WEFT_FACT_CONTENTS,
    .run = run,
};

const weft_pass weft_pass_fold_weights = {
    .name = "fold-weights",
    .brief = "dequantise weights of bytes that no product of bytes reads",
    .from = WEFT_STAGE_GRAPH,
    .to = WEFT_STAGE_GRAPH,
    .needs = WEFT_FACT_TYPES | WEFT_FACT_CONTENTS,
    .run = run_weights,
};
