/* Inference on nodes: collects types, contents and data of the operands for weft_op_infer, and
 * stores the contents of small integer results for later nodes. */
#include "ir/ir_int.h"

#include <string.h>

typedef struct content {
    const weft_dim *dim; /* NULL: unknown */
    uint32_t n;
} content;

struct weft_contents {
    weft_module *m;
    weft_arena *arena;
    weft_map *entry; /* value to 1 + index of its entry */
    WEFT_VEC(content) entries;
};

weft_contents *weft_contents_create(weft_module *m, weft_arena *arena)
{
    weft_contents *c = weft_arena_alloc(arena, sizeof *c);
    c->m = m;
    c->arena = arena;
    c->entry = weft_map_create(arena);
    return c;
}

static void put_content(weft_contents *c, weft_val v, content x)
{
    uint64_t i;
    if (weft_map_get(c->entry, v.i, &i)) {
        c->entries.at[i] = x;
        return;
    }
    weft_map_put(c->entry, v.i, c->entries.len);
    WEFT_VEC_PUSH(c->arena, &c->entries, x);
}

/* The bytes of a weight, aligned for its type; NULL if that needs too large a copy. */
static const void *align_data(weft_arena *arena, const weft_weight_info *info, weft_dtype dtype,
                              uint64_t limit)
{
    size_t size = weft_dtype_size(dtype);
    if (info->bytes == 0 || (uintptr_t)info->data % size == 0)
        return info->data;
    if (info->bytes > limit)
        return NULL;
    void *copy = weft_arena_alloc(arena, info->bytes);
    memcpy(copy, info->data, info->bytes);
    return copy;
}

static content read_weight(weft_contents *c, weft_weight w)
{
    content none = {NULL, 0};
    weft_tensor t = weft_weight_tensor(c->m, w);
    int64_t n = weft_tensor_numel(&t);
    if (weft_dtype_is_float(t.dtype) || n < 0 || n > WEFT_FOLLOW_MAX)
        return none;
    const void *data = align_data(c->arena, weft_weight_get(c->m, w), t.dtype, WEFT_UNALIGNED_MAX);
    memcpy(&t.data, &data, sizeof data);
    weft_dim *dim = weft_arena_array(c->arena, (size_t)n, sizeof *dim);
    for (int64_t i = 0; i < n; i++) {
        int64_t x = weft_tensor_get_i64(&t, i);
        /* Exporters write values beyond the range of dims for "to the start". */
        dim[i] = weft_dim_is_const(x) ? x : WEFT_DIM_CONST_MIN + 1;
    }
    return (content){dim, (uint32_t)n};
}

const weft_dim *weft_contents_get(weft_contents *c, weft_val v, uint32_t *out_n)
{
    content x = {NULL, 0};
    uint64_t i;
    if (weft_map_get(c->entry, v.i, &i)) {
        x = c->entries.at[i];
    } else if (weft_val_get_kind(c->m, v) == WEFT_VAL_WEIGHT) {
        x = read_weight(c, weft_val_weight(c->m, v));
        put_content(c, v, x);
    }
    *out_n = x.n;
    return x.dim;
}

/* Stores the contents of results, if their number of elements equals that of the type. */
static void keep_contents(weft_contents *c, weft_node n, const weft_dim **found,
                          const weft_ttype *type, uint32_t n_out)
{
    for (uint32_t i = 0; i < n_out; i++) {
        weft_val v = weft_node_out(c->m, n, i);
        content x = {NULL, 0};
        bool is_const = true;
        for (uint32_t k = 0; k < type[i].rank; k++)
            is_const = is_const && weft_dim_is_const(type[i].dim[k]);
        int64_t numel = is_const ? weft_numel(type[i].dim, type[i].rank) : -1;
        if (found[i] && numel >= 0 && numel <= UINT32_MAX)
            x = (content){found[i], (uint32_t)numel};
        put_content(c, v, x);
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
        bool needs_data = (weft_node_opdef(m, n)->traits & WEFT_T_DATA) != 0;
        out->data = align_data(c->arena, weft_weight_get(m, w), (weft_dtype)out->type.dtype,
                               needs_data ? UINT64_MAX : WEFT_UNALIGNED_MAX);
    }
    return WEFT_ERR_OK;
}

static weft_err infer(weft_node n, weft_dimpool *pool, weft_contents *contents,
                      weft_require_list *require, weft_diag *diag, weft_ttype *out, uint32_t n_out)
{
    weft_module *m = contents->m;
    uint32_t n_in = weft_node_in_count(m, n);
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
