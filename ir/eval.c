/* Evaluation of graphs by the reference implementations.
 *
 * Nodes run in order on concrete tensors. The dims of the inputs determine the symbols; a symbol
 * that depends on data gets its value from the first result with such a dim. Each result is
 * compared with its type, so evaluating a graph also tests inference. Intermediate tensors live on
 * the heap until their last use. */
#include "ir/ir_int.h"

#include "base/f16.h"

#include <stdlib.h>
#include <string.h>

#define TENSOR_MAX_BYTES ((uint64_t)4 << 30)

typedef struct evaluator {
    weft_graph *g;
    weft_module *m;
    weft_node node; /* the node to evaluate; none: the whole graph */
    bool tf32;
    weft_arena *scratch;
    weft_arena *results; /* memory for results of nodes; NULL: the heap */
    weft_diag *diag;
    int64_t *symbol; /* values; -1: not known */
    uint32_t n_symbol;
    weft_tensor *tensor; /* by value */
    void **heap;         /* by value: memory to free */
    uint32_t *uses;      /* by value: number of uses left */
    const weft_tensor *in;
    uint32_t n_in;
    weft_tensor *out;
    uint32_t n_out;
    weft_arena *out_arena;
    /* Of a body: values of the symbols in the graph around it. */
    const int64_t *outer_symbol;
    uint32_t n_outer_symbol;
} evaluator;

static const char *dim_text(evaluator *e, weft_dim d)
{
    weft_buf buf = {0};
    weft_dim_print(e->m->dims, d, &buf);
    return weft_buf_keep(&buf, e->scratch);
}

/* -- Symbols ---------------------------------------------------------------------------------- */

/* Compares a size with its dim; sets the value of the dim's symbol if it is unknown. */
static weft_err bind_dim(evaluator *e, weft_dim dim, int64_t have, const char *what, uint32_t k,
                         weft_where where)
{
    int64_t want;
    if (weft_dim_eval(e->m->dims, dim, e->symbol, e->n_symbol, &want)) {
        if (want == have)
            return WEFT_ERR_OK;
        if (weft_dim_is_const(dim))
            return weft_diag_error(e->diag, WEFT_ERR_INPUT, where,
                                   "%s: dimension %u is %lld, should be %lld", what, k,
                                   (long long)have, (long long)want);
        return weft_diag_error(e->diag, WEFT_ERR_INPUT, where,
                               "%s: dimension %u is %lld, but %s is %lld", what, k, (long long)have,
                               dim_text(e, dim), (long long)want);
    }
    uint32_t sym = weft_dim_as_symbol(e->m->dims, dim);
    if (sym >= e->n_symbol)
        return WEFT_ERR_OK;
    int64_t lo, hi;
    weft_dim_symbol_range(e->m->dims, sym, &lo, &hi);
    if (have < lo || have > hi)
        return weft_diag_error(e->diag, WEFT_ERR_INPUT, where,
                               "%s: dimension %u is %lld, but %s must be in %lld..%lld", what, k,
                               (long long)have, dim_text(e, dim), (long long)lo, (long long)hi);
    e->symbol[sym] = have;
    return WEFT_ERR_OK;
}

static weft_err check_tensor(evaluator *e, const weft_tensor *t, const weft_ttype *type,
                             const char *what, weft_where where)
{
    if (t->dtype != type->dtype)
        return weft_diag_error(e->diag, WEFT_ERR_INPUT, where, "%s is %s, should be %s", what,
                               weft_dtype_name(t->dtype), weft_dtype_name((weft_dtype)type->dtype));
    if (t->rank != type->rank)
        return weft_diag_error(e->diag, WEFT_ERR_INPUT, where, "%s has rank %d, should be %u", what,
                               (int)t->rank, type->rank);
    /* Two rounds: expressions may contain symbols that a later dim determines. */
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t k = 0; k < type->rank; k++)
            WEFT_TRY(bind_dim(e, type->dim[k], t->dim[k], what, k, where));
    return WEFT_ERR_OK;
}

static weft_err bind_inputs(evaluator *e)
{
    weft_where where = {.file = NULL, .item = weft_graph_name(e->g)};
    if (e->n_in != weft_graph_input_count(e->g))
        return weft_diag_error(e->diag, WEFT_ERR_INPUT, where, "%u inputs given, %u wanted",
                               e->n_in, weft_graph_input_count(e->g));
    if (e->n_out != weft_graph_output_count(e->g))
        return weft_diag_error(e->diag, WEFT_ERR_INPUT, where, "%u outputs asked, there are %u",
                               e->n_out, weft_graph_output_count(e->g));
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < e->n_in; i++) {
            weft_val v = weft_graph_input(e->g, i);
            const char *name =
                weft_arena_printf(e->scratch, "input \"%s\"", weft_graph_input_name(e->g, i));
            WEFT_TRY(check_tensor(e, &e->in[i], weft_val_ttype(e->m, v), name, where));
            e->tensor[v.i] = e->in[i];
        }
    }
    return WEFT_ERR_OK;
}

/* The node's attributes with symbols replaced by their values. */
static weft_err bind_attrs(evaluator *e, weft_node n, weft_attrs *out)
{
    const weft_attr *bad = weft_attrs_bind(weft_node_attrs(e->m, n), e->m->dims, e->symbol,
                                           e->n_symbol, e->scratch, out);
    if (!bad)
        return WEFT_ERR_OK;
    return weft_diag_error(e->diag, WEFT_ERR_INPUT, weft_node_where(e->m, n),
                           "%s: attribute `%s` depends on what has no value",
                           weft_node_opdef(e->m, n)->name,
                           weft_attr_key_name((weft_attr_key)bad->key));
}

/* -- One node --------------------------------------------------------------------------------- */

static weft_err infer_results(evaluator *e, weft_node n, weft_attrs attrs,
                              const weft_tensor *const *in, uint32_t n_in, weft_tensor *out,
                              uint32_t n_out)
{
    weft_operand *operand = weft_arena_array(e->scratch, n_in, sizeof *operand);
    weft_ttype *type = weft_arena_array(e->scratch, n_out, sizeof *type);
    const weft_dim **content = weft_arena_array(e->scratch, n_out, sizeof *content);
    for (uint32_t i = 0; i < n_in; i++) {
        if (!in[i])
            continue;
        operand[i].present = true;
        operand[i].type.dtype = (uint8_t)in[i]->dtype;
        operand[i].type.rank = (uint8_t)in[i]->rank;
        memcpy(operand[i].type.dim, in[i]->dim, (size_t)in[i]->rank * sizeof in[i]->dim[0]);
        operand[i].data = in[i]->data;
    }
    weft_infer_ctx cx = {.op = weft_node_opdef(e->m, n),
                         .attrs = attrs,
                         .pool = weft_dimpool_create(e->scratch),
                         .arena = e->scratch,
                         .in = operand,
                         .n_in = n_in,
                         .out = type,
                         .out_content = content,
                         .n_out = n_out,
                         .diag = e->diag,
                         .where = weft_node_where(e->m, n)};
    WEFT_TRY(weft_op_infer(&cx));
    for (uint32_t i = 0; i < n_out; i++) {
        out[i].dtype = (weft_dtype)type[i].dtype;
        out[i].rank = type[i].rank;
        for (uint32_t k = 0; k < type[i].rank; k++) {
            out[i].dim[k] = type[i].dim[k];
            if (!weft_dim_is_const(type[i].dim[k]))
                return weft_diag_error(e->diag, WEFT_ERR_UNSUP, cx.where,
                                       "%s: dimension %u of result %u cannot be computed",
                                       cx.op->name, k, i);
        }
    }
    return WEFT_ERR_OK;
}

static weft_err alloc_result(evaluator *e, weft_node n, weft_val v, weft_tensor *t)
{
    int64_t numel = weft_tensor_numel(t);
    uint64_t bytes = numel < 0 ? UINT64_MAX : (uint64_t)numel * weft_dtype_size(t->dtype);
    if (bytes > TENSOR_MAX_BYTES)
        return weft_diag_error(e->diag, WEFT_ERR_NOMEM, weft_node_where(e->m, n),
                               "%s: a result would be over %llu bytes",
                               weft_node_opdef(e->m, n)->name,
                               (unsigned long long)TENSOR_MAX_BYTES);
    if (e->results) {
        t->data = weft_arena_alloc(e->results, bytes);
        return WEFT_ERR_OK;
    }
    t->data = e->heap[v.i] = calloc(1, bytes ? bytes : 1);
    if (!t->data)
        return weft_diag_error(e->diag, WEFT_ERR_NOMEM, weft_node_where(e->m, n),
                               "no memory for %llu bytes", (unsigned long long)bytes);
    return WEFT_ERR_OK;
}

static weft_err run_node(evaluator *e, weft_node n, const weft_tensor *const *in, uint32_t n_in,
                         weft_tensor *out, uint32_t n_out)
{
    const weft_op *op = weft_node_opdef(e->m, n);
    weft_attrs attrs;
    WEFT_TRY(bind_attrs(e, n, &attrs));
    memset(out, 0, n_out * sizeof *out);
    WEFT_TRY(infer_results(e, n, attrs, in, n_in, out, n_out));
    for (uint32_t i = 0; i < n_out; i++) {
        weft_val v = weft_node_out(e->m, n, i);
        const weft_ttype *type = weft_val_ttype(e->m, v);
        if (type->dtype == WEFT_DTYPE_NONE)
            continue;
        const char *what = weft_arena_printf(e->scratch, "%s: result %u", op->name, i);
        WEFT_TRY(check_tensor(e, &out[i], type, what, weft_node_where(e->m, n)));
        WEFT_TRY(alloc_result(e, n, v, &out[i]));
    }
    weft_eval_ctx cx = {.op = op,
                        .attrs = attrs,
                        .in = in,
                        .n_in = n_in,
                        .out = out,
                        .n_out = n_out,
                        .scratch = e->scratch,
                        .diag = e->diag,
                        .where = weft_node_where(e->m, n)};
    return weft_op_eval(&cx);
}

/* -- Graphs ----------------------------------------------------------------------------------- */

/* Weights in mapped files may be unaligned, element access needs alignment. */
static weft_err load_weight(evaluator *e, weft_val v)
{
    weft_weight w = weft_val_weight(e->m, v);
    const weft_weight_info *info = weft_weight_get(e->m, w);
    weft_tensor t = weft_weight_tensor(e->m, w);
    if (info->bytes && (uintptr_t)info->data % weft_dtype_size(t.dtype)) {
        void *copy = malloc(info->bytes);
        if (!copy)
            return weft_diag_error(e->diag, WEFT_ERR_NOMEM, (weft_where){0},
                                   "no memory for weight \"%s\"", info->name);
        memcpy(copy, info->data, info->bytes);
        t.data = e->heap[v.i] = copy;
    }
    e->tensor[v.i] = t;
    return WEFT_ERR_OK;
}

static void drop_use(evaluator *e, weft_val v)
{
    if (--e->uses[v.i] == 0) {
        free(e->heap[v.i]);
        e->heap[v.i] = NULL;
        /* Frees the copy of a weight: a later use makes a new copy. */
        e->tensor[v.i].dtype = WEFT_DTYPE_NONE;
    }
}

static weft_err get_operand(evaluator *e, weft_node n, weft_val v, const weft_tensor **out)
{
    *out = NULL;
    if (!v.i)
        return WEFT_ERR_OK;
    if (e->tensor[v.i].dtype == WEFT_DTYPE_NONE) {
        if (weft_val_get_kind(e->m, v) != WEFT_VAL_WEIGHT)
            return weft_diag_error(e->diag, WEFT_ERR_INPUT, weft_node_where(e->m, n),
                                   "%s: an operand is used before it is computed",
                                   weft_node_opdef(e->m, n)->name);
        WEFT_TRY(load_weight(e, v));
    }
    *out = &e->tensor[v.i];
    return WEFT_ERR_OK;
}

/* A copy rounded to TF32, in scratch. */
static const weft_tensor *round_factor(evaluator *e, const weft_tensor *t)
{
    int64_t n = weft_tensor_numel(t);
    weft_tensor *copy = weft_arena_alloc(e->scratch, sizeof *copy);
    float *to = weft_arena_array(e->scratch, (size_t)n + 1, sizeof *to);
    for (int64_t i = 0; i < n; i++)
        to[i] = weft_tf32_from_f32(((const float *)t->data)[i]);
    *copy = *t;
    copy->data = to;
    return copy;
}

static void round_factors(evaluator *e, weft_node n, const weft_tensor **in, uint32_t n_in)
{
    for (uint32_t i = 0; i < n_in; i++)
        if (in[i] && in[i]->dtype == WEFT_DTYPE_F32 &&
            weft_op_is_factor(weft_node_op(e->m, n), weft_node_attrs(e->m, n), i))
            in[i] = round_factor(e, in[i]);
}

/* -- Bodies ----------------------------------------------------------------------------------- */

static weft_err eval_nested(evaluator *around, weft_graph *g, const weft_tensor *in, uint32_t n_in,
                            weft_arena *arena, weft_tensor *out, uint32_t n_out);

/* A node that runs bodies. */
typedef struct flow_run {
    evaluator *e;
    weft_node n;
    weft_tensor *out;                    /* of the node */
    weft_tensor *body[WEFT_FLOW_BODIES]; /* outputs of the last run, in `arena` */
    weft_arena *arena[WEFT_FLOW_BODIES];
    uint64_t bytes; /* taken */
} flow_run;

static weft_err run_body(weft_flow *f, uint32_t b, const weft_tensor *in, const weft_tensor **out)
{
    flow_run *r = f->user;
    weft_graph *body = weft_node_body(r->e->m, r->n, b);
    uint32_t n_out = weft_graph_output_count(body);
    if (r->arena[b])
        weft_arena_destroy(r->arena[b]);
    r->arena[b] = weft_arena_create(0);
    if (!r->arena[b])
        return WEFT_ERR_NOMEM;
    *out = r->body[b];
    return eval_nested(r->e, body, in, weft_graph_input_count(body), r->arena[b], r->body[b],
                       n_out);
}

/* Dims that are not known are 0. */
static weft_err shape_body(weft_flow *f, const weft_tensor *in, uint32_t k, weft_tensor *out)
{
    flow_run *r = f->user;
    evaluator *e = r->e;
    weft_graph *body = weft_node_body(e->m, r->n, 0);
    const weft_ttype *t = weft_val_ttype(e->m, weft_graph_output(body, k));
    (void)in;
    *out = (weft_tensor){.dtype = (weft_dtype)t->dtype, .rank = t->rank};
    for (uint32_t d = 0; d < t->rank; d++)
        if (!weft_dim_eval(e->m->dims, t->dim[d], e->symbol, e->n_symbol, &out->dim[d]))
            out->dim[d] = 0;
    return WEFT_ERR_OK;
}

static weft_err place_flow(weft_flow *f, uint32_t i, const weft_tensor *type, void **data)
{
    flow_run *r = f->user;
    evaluator *e = r->e;
    weft_val v = weft_node_out(e->m, r->n, i);
    const weft_ttype *want = weft_val_ttype(e->m, v);
    r->out[i] = *type;
    if (want->dtype == WEFT_DTYPE_NONE)
        return WEFT_ERR_OK;
    const char *what = weft_arena_printf(e->scratch, "%s: result %u", weft_op_get(f->op)->name, i);
    WEFT_TRY(check_tensor(e, type, want, what, f->where));
    WEFT_TRY(alloc_result(e, r->n, v, &r->out[i]));
    *data = r->out[i].data;
    return WEFT_ERR_OK;
}

static weft_err take_flow(weft_flow *f, uint64_t bytes)
{
    flow_run *r = f->user;
    if (bytes > TENSOR_MAX_BYTES || r->bytes + bytes > TENSOR_MAX_BYTES)
        return weft_diag_error(f->diag, WEFT_ERR_NOMEM, f->where, "%s: values over %llu bytes",
                               weft_op_get(f->op)->name, (unsigned long long)TENSOR_MAX_BYTES);
    r->bytes += bytes;
    return WEFT_ERR_OK;
}

static weft_err run_flow(evaluator *e, weft_node n, const weft_tensor *const *in, uint32_t n_in,
                         weft_tensor *out, uint32_t n_out)
{
    flow_run r = {.e = e, .n = n, .out = out};
    weft_tensor *tensor = weft_arena_array(e->scratch, n_in, sizeof *tensor);
    weft_flow f = {.op = weft_node_op(e->m, n),
                   .attrs = weft_node_attrs(e->m, n),
                   .in = tensor,
                   .n_in = n_in,
                   .n_out = n_out,
                   .diag = e->diag,
                   .where = weft_node_where(e->m, n),
                   .user = &r,
                   .run = run_body,
                   .shape = shape_body,
                   .place = place_flow,
                   .take = take_flow};
    if (!weft_node_flow(e->m, n, &f.layout))
        return weft_diag_error(e->diag, WEFT_ERR_INPUT, f.where, "%s: its bodies do not fit",
                               weft_op_get(f.op)->name);
    for (uint32_t i = 0; i < n_in; i++)
        if (in[i])
            tensor[i] = *in[i];
    for (uint32_t b = 0; b < f.layout.n_body; b++) {
        weft_graph *body = weft_node_body(e->m, n, b);
        uint32_t n_body_out = weft_graph_output_count(body);
        r.body[b] = weft_arena_array(e->scratch, n_body_out, sizeof *r.body[b]);
        for (uint32_t i = 0; f.op == WEFT_OP_LOOP && i < 2; i++)
            f.formal_rank[i] = weft_val_ttype(e->m, weft_graph_input(body, i))->rank;
    }
    weft_err err = weft_flow_run(&f);
    for (uint32_t b = 0; b < WEFT_FLOW_BODIES; b++)
        if (r.arena[b])
            weft_arena_destroy(r.arena[b]);
    return err;
}

static weft_err step_node(evaluator *e, weft_node n)
{
    uint32_t n_in = weft_node_in_count(e->m, n), n_out = weft_node_out_count(e->m, n);
    const weft_tensor **in = weft_arena_array(e->scratch, n_in, sizeof *in);
    weft_tensor *out = weft_arena_array(e->scratch, n_out, sizeof *out);
    for (uint32_t i = 0; i < n_in; i++)
        WEFT_TRY(get_operand(e, n, weft_node_in(e->m, n, i), &in[i]));
    if (e->tf32)
        round_factors(e, n, in, n_in);
    if (weft_node_opdef(e->m, n)->traits & WEFT_T_BODY)
        WEFT_TRY(run_flow(e, n, in, n_in, out, n_out));
    else
        WEFT_TRY(run_node(e, n, in, n_in, out, n_out));
    for (uint32_t i = 0; i < n_out; i++) {
        weft_val v = weft_node_out(e->m, n, i);
        e->tensor[v.i] = out[i];
        e->uses[v.i]++;
        drop_use(e, v);
    }
    for (uint32_t i = 0; i < n_in; i++)
        if (weft_node_in(e->m, n, i).i)
            drop_use(e, weft_node_in(e->m, n, i));
    return WEFT_ERR_OK;
}

static weft_err copy_outputs(evaluator *e)
{
    for (uint32_t i = 0; i < e->n_out; i++) {
        weft_val v = weft_graph_output(e->g, i);
        const weft_tensor *t;
        WEFT_TRY(get_operand(e, weft_graph_last(e->g), v, &t));
        size_t bytes = weft_tensor_bytes(t);
        e->out[i] = *t;
        e->out[i].data = weft_arena_alloc(e->out_arena, bytes);
        if (bytes)
            memcpy(e->out[i].data, t->data, bytes);
    }
    return WEFT_ERR_OK;
}

static void make_symbols(evaluator *e)
{
    e->n_symbol = weft_dim_symbol_count(e->m->dims);
    e->symbol = weft_arena_array(e->scratch, e->n_symbol, sizeof *e->symbol);
    for (uint32_t i = 0; i < e->n_symbol; i++)
        e->symbol[i] = i < e->n_outer_symbol ? e->outer_symbol[i] : -1;
}

static weft_err eval_all(evaluator *e)
{
    uint32_t n_val = weft_val_count(e->m) + 1;
    make_symbols(e);
    e->tensor = weft_arena_array(e->scratch, n_val, sizeof *e->tensor);
    e->uses = weft_arena_array(e->scratch, n_val, sizeof *e->uses);
    e->heap = weft_arena_array(e->scratch, n_val, sizeof *e->heap);
    WEFT_FOREACH_NODE (e->m, e->g, n)
        for (uint32_t i = 0; i < weft_node_in_count(e->m, n); i++)
            e->uses[weft_node_in(e->m, n, i).i]++;
    for (uint32_t i = 0; i < weft_graph_input_count(e->g); i++)
        e->uses[weft_graph_input(e->g, i).i]++;
    for (uint32_t i = 0; i < weft_graph_output_count(e->g); i++)
        e->uses[weft_graph_output(e->g, i).i]++;
    WEFT_TRY(bind_inputs(e));
    WEFT_FOREACH_NODE (e->m, e->g, n) {
        weft_arena_mark mark = weft_arena_get_mark(e->scratch);
        WEFT_TRY(step_node(e, n));
        weft_arena_reset(e->scratch, mark);
    }
    return copy_outputs(e);
}

/* Runs `body` with recovery points in both arenas, so that tensors on the heap are freed when
 * memory is exhausted, as on any error. */
static weft_err run_guarded(evaluator *e, weft_arena *arena, weft_err (*body)(evaluator *))
{
    jmp_buf env;
    jmp_buf *before = weft_arena_guard(arena, &env);
    weft_arena_guard(e->scratch, &env);
    weft_err err;
    if (setjmp(env))
        err = weft_diag_error(e->diag, WEFT_ERR_NOMEM, (weft_where){.item = weft_graph_name(e->g)},
                              "out of memory while evaluating");
    else
        err = body(e);
    weft_arena_guard(arena, before);
    return err;
}

/* `e` is complete but for its scratch arena. */
static weft_err eval_with(evaluator *e)
{
    e->scratch = weft_arena_create(0);
    if (!e->scratch)
        return weft_diag_error(e->diag, WEFT_ERR_NOMEM, (weft_where){0}, "out of memory");
    weft_err err = run_guarded(e, e->out_arena, eval_all);
    for (uint32_t i = 0; e->heap && i <= weft_val_count(e->m); i++)
        free(e->heap[i]);
    weft_arena_destroy(e->scratch);
    return err;
}

static weft_err eval_nested(evaluator *around, weft_graph *g, const weft_tensor *in, uint32_t n_in,
                            weft_arena *arena, weft_tensor *out, uint32_t n_out)
{
    evaluator e = {.g = g,
                   .m = around->m,
                   .tf32 = around->tf32,
                   .diag = around->diag,
                   .in = in,
                   .n_in = n_in,
                   .out = out,
                   .n_out = n_out,
                   .out_arena = arena,
                   .outer_symbol = around->symbol,
                   .n_outer_symbol = around->n_symbol};
    return eval_with(&e);
}

static weft_err eval_graph(weft_graph *g, bool tf32, const weft_tensor *in, uint32_t n_in,
                           weft_arena *arena, weft_diag *diag, weft_tensor *out, uint32_t n_out)
{
    evaluator e = {.g = g,
                   .m = weft_graph_module(g),
                   .tf32 = tf32,
                   .diag = diag,
                   .in = in,
                   .n_in = n_in,
                   .out = out,
                   .n_out = n_out,
                   .out_arena = arena};
    return eval_with(&e);
}

weft_err weft_graph_eval(weft_graph *g, const weft_tensor *in, uint32_t n_in, weft_arena *arena,
                         weft_diag *diag, weft_tensor *out, uint32_t n_out)
{
    return eval_graph(g, false, in, n_in, arena, diag, out, n_out);
}

weft_err weft_graph_eval_tf32(weft_graph *g, const weft_tensor *in, uint32_t n_in,
                              weft_arena *arena, weft_diag *diag, weft_tensor *out, uint32_t n_out)
{
    return eval_graph(g, true, in, n_in, arena, diag, out, n_out);
}

/* -- Folding ---------------------------------------------------------------------------------- */

static weft_err fold_node(evaluator *e)
{
    weft_module *m = e->m;
    uint32_t n_in = weft_node_in_count(m, e->node);
    make_symbols(e);
    const weft_tensor **in = weft_arena_array(e->scratch, n_in, sizeof *in);
    weft_tensor *tensor = weft_arena_array(e->scratch, n_in, sizeof *tensor);
    for (uint32_t i = 0; i < n_in; i++) {
        weft_val v = weft_node_in(m, e->node, i);
        if (!v.i)
            continue;
        weft_weight w = weft_val_weight(m, v);
        if (!w.i)
            return weft_diag_error(e->diag, WEFT_ERR_UNSUP, weft_node_where(m, e->node),
                                   "%s: operand %u is not constant",
                                   weft_node_opdef(m, e->node)->name, i);
        const weft_weight_info *info = weft_weight_get(m, w);
        tensor[i] = weft_weight_tensor(m, w);
        if (info->bytes && (uintptr_t)info->data % weft_dtype_size(tensor[i].dtype)) {
            tensor[i].data = weft_arena_alloc(e->scratch, info->bytes);
            memcpy(tensor[i].data, info->data, info->bytes);
        }
        in[i] = &tensor[i];
    }
    return run_node(e, e->node, in, n_in, e->out, e->n_out);
}

weft_err weft_node_eval(weft_graph *g, weft_node n, weft_diag *diag, weft_tensor *out,
                        uint32_t n_out)
{
    weft_module *m = weft_graph_module(g);
    evaluator e = {.g = g,
                   .m = m,
                   .node = n,
                   .scratch = weft_arena_create(0),
                   .results = m->arena,
                   .diag = diag,
                   .out = out,
                   .n_out = n_out};
    if (!e.scratch)
        return weft_diag_error(diag, WEFT_ERR_NOMEM, (weft_where){0}, "out of memory");
    weft_err err = run_guarded(&e, m->arena, fold_node);
    weft_arena_destroy(e.scratch);
    return err;
}
