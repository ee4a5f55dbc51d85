/* Inference on nodes: collects types, contents and data of the operands for weft_op_infer, and
 * stores the contents of small integer results for later nodes. */
#include "ir/ir_int.h"

#include <string.h>

/* Stores the contents of results, if their number of elements equals that of the type. */
static void keep_contents(weft_contents *c, weft_node n, const weft_dim **found,
                          const weft_ttype *type, uint32_t n_out)
{
    for (uint32_t i = 0; i < n_out; i++) {
        weft_val v = weft_node_out(c->m, n, i);
        weft_content x = {NULL, 0};
        bool is_const = true;
        for (uint32_t k = 0; k < type[i].rank; k++)
            is_const = is_const && weft_dim_is_const(type[i].dim[k]);
        int64_t numel = is_const ? weft_numel(type[i].dim, type[i].rank) : -1;
        if (found[i] && numel >= 0 && numel <= UINT32_MAX)
            x = (weft_content){found[i], (uint32_t)numel};
        weft_contents_set(c, v, x.dim, x.n);
    }
}

static weft_err fill_operand(weft_contents *c, weft_node n, uint32_t i, weft_diag *diag,
                             weft_operand *out)
{
    weft_module *m = c->m;
    weft_val v = weft_node_in(m, n, i);
    *out = (weft_operand){0};
    if (!v.i)
        return WEFT_ERR_OK;
    out->present = true;
    out->type = *weft_val_ttype(m, v);
    if (out->type.dtype == WEFT_DTYPE_NONE)
        return weft_diag_error(diag, WEFT_ERR_INPUT, weft_node_where(m, n),
                               "%s: operand %u has no type", weft_node_opdef(m, n)->name, i);
    out->content = weft_contents_get(c, v, &out->n_content);
    weft_weight w = weft_val_weight(m, v);
    if (w.i) {
        const weft_weight_info *info = weft_weight_get(m, w);
        bool selects = (weft_node_opdef(m, n)->traits & WEFT_T_DATA) != 0;
        if (!selects || info->bytes <= WEFT_SELECT_MAX)
            out->data = weft_contents__align(c->arena, info, (weft_dtype)out->type.dtype,
                                             selects ? UINT64_MAX : WEFT_UNALIGNED_MAX);
    }
    return WEFT_ERR_OK;
}

static weft_err infer(weft_node n, weft_dimpool *pool, weft_contents *contents,
                      weft_require_list *require, weft_diag *diag, weft_ttype *out, uint32_t n_out)
{
    weft_module *m = contents->m;
    uint32_t n_in = weft_node_in_count(m, n);
    if (weft_node_opdef(m, n)->traits & WEFT_T_BODY)
        return weft_body__infer(n, pool, contents, diag, out, n_out);
    weft_operand *in = weft_arena_array(contents->arena, n_in, sizeof *in);
    for (uint32_t i = 0; i < n_in; i++)
        WEFT_TRY(fill_operand(contents, n, i, diag, &in[i]));
    const weft_dim **found = weft_arena_array(contents->arena, n_out, sizeof *found);
    memset(out, 0, n_out * sizeof *out);
    weft_infer_ctx cx = {.op = weft_node_opdef(m, n),
                         .attrs = weft_node_attrs(m, n),
                         .pool = pool,
                         .arena = contents->arena,
                         .in = in,
                         .n_in = n_in,
                         .out = out,
                         .out_content = found,
                         .n_out = n_out,
                         .require = require,
                         .diag = diag,
                         .where = weft_node_where(m, n)};
    WEFT_TRY(weft_op_infer(&cx));
    keep_contents(contents, n, found, out, n_out);
    return WEFT_ERR_OK;
}

weft_err weft_node__infer(weft_node n, weft_dimpool *pool, weft_contents *contents, weft_diag *diag,
                          weft_ttype *out, uint32_t n_out)
{
    return infer(n, pool, contents, NULL, diag, out, n_out);
}

weft_err weft_node_infer(weft_graph *g, weft_node n, weft_contents *contents, weft_diag *diag,
                         weft_ttype *out, uint32_t n_out)
{
    weft_module *m = weft_graph_module(g);
    if (!contents)
        contents = weft_contents_create(m, m->arena);
    return infer(n, m->dims, contents, NULL, diag, out, n_out);
}

weft_err weft_node_infer_new(weft_graph *g, weft_node n, weft_contents *contents, const char *op,
                             weft_diag *diag, weft_ttype *out, uint32_t n_out)
{
    weft_module *m = weft_graph_module(g);
    weft_require_list found = {{0}};
    WEFT_TRY(infer(n, m->dims, contents, &found, diag, out, n_out));
    for (uint32_t i = 0; i < found.list.len; i++) {
        const weft_require *r = &found.list.at[i];
        weft_graph_require require = {
            .kind = r->kind, .a = r->a, .b = r->b, .guard = 1, .item = weft_node_loc(m, n).item};
        require.what = weft_arena_printf(contents->arena, "%s: %s", op, r->what);
        if (weft_graph_require_count(g) == WEFT_MODEL_REQUIRES_MAX ||
            !weft_graph_add_require(g, &require))
            return weft_diag_error(
                diag, WEFT_ERR_UNSUP, weft_node_where(m, n),
                "%s: over %d sizes have to be compared at run time; fix symbolic "
                "dimensions (dims:)",
                op, WEFT_MODEL_REQUIRES_MAX);
    }
    return WEFT_ERR_OK;
}
