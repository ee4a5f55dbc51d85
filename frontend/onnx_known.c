/* Values that are known while a model is imported: conditions of If, so that the branch that is
 * never taken is not even read.
 *
 * A value is known if it is a constant, if inference found its content (sizes that are fixed), or
 * if all operands of its node are known; the reference implementation then computes it. The work
 * for one question and the bytes of each value are bounded; results are kept, so that the questions
 * of one import do not repeat work. */
#include "frontend/onnx_int.h"

#include <string.h>

enum {
    KNOWN_NODES_MAX = 512,      /* for one question */
    KNOWN_WORK_MAX = 1 << 16,   /* nodes for all questions */
    KNOWN_DEPTH_MAX = 64,       /* of nodes in a chain */
    KNOWN_BYTES_MAX = 64 << 10, /* of a value that is computed */
    KNOWN_WEIGHT_MAX = 1 << 20  /* of a constant */
};

typedef struct question {
    weft_onnx_ctx *cx;
    uint32_t n_nodes;
} question;

static bool known_value(question *q, weft_val v, uint32_t depth, weft_tensor *out);

/* Constant dims; false if one is not. */
static bool fixed_type(const weft_module *m, weft_val v, weft_tensor *out)
{
    const weft_ttype *type = weft_val_ttype(m, v);
    *out = (weft_tensor){.dtype = (weft_dtype)type->dtype, .rank = type->rank};
    for (uint32_t i = 0; i < type->rank; i++) {
        if (!weft_dim_is_const(type->dim[i]))
            return false;
        out->dim[i] = type->dim[i];
    }
    return weft_dtype_size(out->dtype) > 0 && weft_tensor_numel(out) >= 0;
}

static bool from_weight(question *q, weft_weight w, weft_tensor *out)
{
    const weft_weight_info *info = weft_weight_get(q->cx->m, w);
    *out = weft_weight_tensor(q->cx->m, w);
    if (info->bytes > KNOWN_WEIGHT_MAX)
        return false;
    out->data = weft_arena_alloc(q->cx->arena, info->bytes);
    if (info->bytes)
        memcpy(out->data, info->data, info->bytes);
    return true;
}

static bool from_content(question *q, weft_val v, weft_tensor *out)
{
    uint32_t n = 0;
    const weft_dim *content = weft_contents_get(q->cx->contents, v, &n);
    if (!content || !fixed_type(q->cx->m, v, out) || weft_tensor_numel(out) != (int64_t)n)
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (!weft_dim_is_number(content[i]))
            return false;
    out->data = weft_arena_array(q->cx->arena, n, weft_dtype_size(out->dtype));
    for (uint32_t i = 0; i < n; i++)
        weft_tensor_set_i64(out, i, content[i]);
    return true;
}

static bool compute(question *q, weft_node n, uint32_t which, uint32_t depth, weft_tensor *out)
{
    weft_module *m = q->cx->m;
    weft_arena *arena = q->cx->arena;
    const weft_op *op = weft_node_opdef(m, n);
    uint32_t n_in = weft_node_in_count(m, n), n_out = weft_node_out_count(m, n);
    weft_eval_ctx cx = {.op = op, .n_in = n_in, .n_out = n_out, .scratch = arena};
    if (!op->eval || (op->traits & WEFT_T_RANDOM) || ++q->n_nodes > KNOWN_NODES_MAX ||
        ++q->cx->n_known_nodes > KNOWN_WORK_MAX ||
        weft_attrs_bind(weft_node_attrs(m, n), weft_module_dims(m), NULL, 0, arena, &cx.attrs))
        return false;
    const weft_tensor **in = weft_arena_array(arena, n_in, sizeof *in);
    weft_tensor *tensor = weft_arena_array(arena, n_in, sizeof *tensor);
    cx.in = in;
    cx.out = weft_arena_array(arena, n_out, sizeof *cx.out);
    for (uint32_t i = 0; i < n_out; i++) {
        weft_val v = weft_node_out(m, n, i);
        if (!fixed_type(m, v, &cx.out[i]) ||
            (uint64_t)weft_tensor_numel(&cx.out[i]) > KNOWN_BYTES_MAX / 8)
            return false;
    }
    for (uint32_t i = 0; i < n_in; i++) {
        weft_val v = weft_node_in(m, n, i);
        if (v.i && !known_value(q, v, depth + 1, &tensor[i]))
            return false;
        in[i] = v.i ? &tensor[i] : NULL;
    }
    for (uint32_t i = 0; i < n_out; i++)
        cx.out[i].data = weft_arena_alloc(arena, weft_tensor_bytes(&cx.out[i]));
    /* Without messages: an error is found again when the model is compiled. */
    *out = cx.out[which];
    return weft_op_eval(&cx) == WEFT_ERR_OK;
}

static bool known_value(question *q, weft_val v, uint32_t depth, weft_tensor *out)
{
    weft_onnx_ctx *cx = q->cx;
    uint64_t at;
    if (weft_map_get(cx->known, v.i, &at)) {
        *out = cx->known_at.at[at];
        return out->dtype != WEFT_DTYPE_NONE;
    }
    weft_weight w = weft_val_weight(cx->m, v);
    weft_node n = weft_val_node(cx->m, v);
    bool ok = w.i ? from_weight(q, w, out) : from_content(q, v, out);
    if (!ok && !w.i && n.i && depth < KNOWN_DEPTH_MAX)
        ok = compute(q, n, weft_val_index(cx->m, v), depth, out);
    if (!ok && (depth > 0 || q->n_nodes > KNOWN_NODES_MAX))
        return false; /* maybe for a limit of this question only */
    weft_map_put(cx->known, v.i, cx->known_at.len);
    WEFT_VEC_PUSH(cx->arena, &cx->known_at, ok ? *out : (weft_tensor){.dtype = WEFT_DTYPE_NONE});
    return ok;
}

bool weft_onnx__known(weft_onnx_ctx *cx, weft_val v, double *out)
{
    question q = {.cx = cx};
    weft_tensor t;
    if (!known_value(&q, v, 0, &t) || weft_tensor_numel(&t) != 1)
        return false;
    *out = weft_tensor_get_f64(&t, 0);
    return true;
}
