/* Ensembles whose heads' answers become one: every output is combined of those that the heads give
 * under its name. */
#include "tools/profile/set_combine.h"

#include <string.h>

typedef struct combiner {
    weft_graph *g;
    weft_module *m;
    weft_combine how;
    uint32_t n_head;
    weft_contents *contents;
    weft_arena *arena;
    weft_diag *diag;
    weft_where where;
} combiner;

static weft_err emit(combiner *c, weft_op_id op, const weft_val *in, uint32_t n_in,
                     const weft_attr *attr, uint32_t n_attr, weft_val *out)
{
    weft_type unknown = weft_type_make(c->m, WEFT_DTYPE_F32, NULL, 0);
    weft_ttype type = {0};
    weft_node n = weft_node_append(c->g, &(weft_node_spec){.op = op,
                                                           .in = in,
                                                           .n_in = n_in,
                                                           .out = &unknown,
                                                           .n_out = 1,
                                                           .attr = attr,
                                                           .n_attr = n_attr});
    WEFT_TRY(weft_node_infer_new(c->g, n, c->contents, "combine", c->diag, &type, 1));
    *out = weft_node_out(c->m, n, 0);
    weft_val_set_type(c->m, *out, weft_type_intern(c->m, &type));
    return WEFT_ERR_OK;
}

/* 0, 1, ... n - 1. */
static weft_val count_up(combiner *c, int64_t n)
{
    int64_t *number = weft_arena_array(c->arena, (size_t)n + 1, sizeof *number);
    const weft_dim dim[1] = {n};
    for (int64_t i = 0; i < n; i++)
        number[i] = i;
    const weft_weight_info info = {.type = weft_type_make(c->m, WEFT_DTYPE_I64, dim, 1),
                                   .name = "classes",
                                   .data = (const uint8_t *)number,
                                   .bytes = (uint64_t)n * sizeof *number};
    return weft_weight_val(c->m, weft_weight_add_copy(c->m, &info));
}

/* 1 at the largest element along the last axis, the first of equal ones; else 0. */
static weft_err vote(combiner *c, weft_val x, weft_val *out)
{
    const weft_ttype type = *weft_val_ttype(c->m, x);
    const weft_attr largest[2] = {WEFT_ATTR_OF_INT(AXIS, type.rank - 1),
                                  WEFT_ATTR_OF_INT(KEEPDIMS, 1)};
    const weft_attr to = WEFT_ATTR_OF_DTYPE(TO, (weft_dtype)type.dtype);
    weft_val pair[2] = {{0}, count_up(c, type.dim[type.rank - 1])}, is_it;
    WEFT_TRY(emit(c, WEFT_OP_ARG_MAX, &x, 1, largest, 2, &pair[0]));
    WEFT_TRY(emit(c, WEFT_OP_EQUAL, pair, 2, NULL, 0, &is_it));
    return emit(c, WEFT_OP_CAST, &is_it, 1, &to, 1, out);
}

static weft_err prepare(combiner *c, weft_val x, weft_val *out)
{
    const weft_attr last = WEFT_ATTR_OF_INT(AXIS, -1);
    *out = x;
    return c->how == WEFT_COMBINE_SOFTMAX ? emit(c, WEFT_OP_SOFTMAX, &x, 1, &last, 1, out)
           : c->how == WEFT_COMBINE_VOTE  ? vote(c, x, out)
                                          : WEFT_ERR_OK;
}

static weft_err check_type(const combiner *c, const char *name, weft_val first, weft_val x)
{
    const weft_ttype *type = weft_val_ttype(c->m, x);
    bool classes = c->how == WEFT_COMBINE_SOFTMAX || c->how == WEFT_COMBINE_VOTE;
    if (weft_val_type(c->m, x).i != weft_val_type(c->m, first).i)
        return weft_diag_error(c->diag, WEFT_ERR_INPUT, c->where,
                               "output '%s' has another type or size in one of the heads; only "
                               "equal ones can be combined",
                               name);
    if (!weft_dtype_is_float((weft_dtype)type->dtype))
        return weft_diag_error(c->diag, WEFT_ERR_UNSUP, c->where,
                               "combine: output '%s' is %s, and floats can be combined; export the "
                               "heads without it",
                               name, weft_dtype_name((weft_dtype)type->dtype));
    if (classes && (type->rank == 0 || !weft_dim_is_const(type->dim[type->rank - 1])))
        return weft_diag_error(c->diag, WEFT_ERR_UNSUP, c->where,
                               "combine: output '%s' has no last axis of a constant size, which "
                               "softmax and vote take for that of the classes",
                               name);
    return WEFT_ERR_OK;
}

static weft_err combine_output(combiner *c, const char *name, const weft_val *of, weft_val *out)
{
    static const weft_op_id op[WEFT_COMBINE_KINDS] = {
        [WEFT_COMBINE_MEAN] = WEFT_OP_MEAN,    [WEFT_COMBINE_SUM] = WEFT_OP_SUM,
        [WEFT_COMBINE_MAX] = WEFT_OP_MAX,      [WEFT_COMBINE_MIN] = WEFT_OP_MIN,
        [WEFT_COMBINE_SOFTMAX] = WEFT_OP_MEAN, [WEFT_COMBINE_VOTE] = WEFT_OP_MEAN};
    weft_val *in = weft_arena_array(c->arena, c->n_head, sizeof *in);
    for (uint32_t i = 0; i < c->n_head; i++) {
        WEFT_TRY(check_type(c, name, of[0], of[i]));
        WEFT_TRY(prepare(c, of[i], &in[i]));
    }
    return emit(c, op[c->how], in, c->n_head, NULL, 0, out);
}

static uint32_t count_outputs(const weft_graph *g, const char *head)
{
    size_t len = strlen(head);
    uint32_t n = 0;
    for (uint32_t i = 0; i < weft_graph_output_count(g); i++)
        n += strncmp(weft_graph_output_name(g, i), head, len) == 0 &&
             weft_graph_output_name(g, i)[len] == '/';
    return n;
}

/* The value that the head gives under this name, of its outputs HEAD/NAME; none: it has none. */
static weft_val output_of(const weft_graph *g, const char *head, const char *name)
{
    size_t len = strlen(head);
    for (uint32_t i = 0; i < weft_graph_output_count(g); i++) {
        const char *s = weft_graph_output_name(g, i);
        if (strncmp(s, head, len) == 0 && s[len] == '/' && strcmp(s + len + 1, name) == 0)
            return weft_graph_output(g, i);
    }
    return (weft_val){0};
}

weft_err weft_tool_combine(weft_graph *g, const weft_set_model *model, weft_arena *arena,
                           weft_diag *diag)
{
    combiner c = {.g = g,
                  .m = weft_graph_module(g),
                  .how = model->combine,
                  .n_head = (uint32_t)model->n_head,
                  .contents = weft_contents_create(weft_graph_module(g), arena),
                  .arena = arena,
                  .diag = diag,
                  .where = {.item = model->name}};
    uint32_t each = count_outputs(g, model->head[0]->name);
    const char **name = weft_arena_array(arena, each + 1, sizeof *name);
    weft_val *made = weft_arena_array(arena, each + 1, sizeof *made);
    weft_val *of = weft_arena_array(arena, c.n_head, sizeof *of);
    size_t len = strlen(model->head[0]->name);
    for (uint32_t i = 0; i < each; i++) { /* those of the first head come first */
        name[i] = weft_graph_output_name(g, i) + len + 1;
        for (uint32_t k = 0; k < c.n_head; k++) {
            of[k] = output_of(g, model->head[k]->name, name[i]);
            if (!of[k].i || count_outputs(g, model->head[k]->name) != each)
                return weft_diag_error(diag, WEFT_ERR_INPUT, c.where,
                                       "combine: head '%s' has other outputs than '%s'",
                                       model->head[k]->name, model->head[0]->name);
        }
        WEFT_TRY(combine_output(&c, name[i], of, &made[i]));
    }
    weft_graph_drop_outputs(g);
    for (uint32_t i = 0; i < each; i++)
        weft_graph_add_output(g, name[i], made[i]);
    return WEFT_ERR_OK;
}
