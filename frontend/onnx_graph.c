/* Graphs: initialisers become weights, inputs become inputs with symbolic dims, then the nodes,
 * then the outputs. */
#include "frontend/onnx_int.h"

#include <string.h>

static const char *text(const char *s)
{
    return s ? s : "";
}

/* -- Initialisers ----------------------------------------------------------------------------- */

/* Names that nodes or outputs read: other initialisers are checked but not kept. */
static weft_names *collect_used(weft_onnx_ctx *cx, const Onnx__GraphProto *graph)
{
    weft_names *used = weft_names_create(cx->arena);
    for (size_t i = 0; i < graph->n_node; i++) {
        weft_onnx_reads reads = weft_onnx__reads(cx, graph->node[i]);
        for (size_t k = 0; k < reads.n; k++)
            weft_names_add(used, reads.name[k], strlen(reads.name[k]));
    }
    for (size_t i = 0; i < graph->n_output; i++)
        weft_names_add(used, text(graph->output[i]->name), strlen(text(graph->output[i]->name)));
    return used;
}

/* The entry of a name that nothing is bound to yet. */
static weft_err name_initialiser(weft_onnx_ctx *cx, weft_onnx_scope *scope, const char *name,
                                 size_t i, weft_where where, weft_onnx_name **out)
{
    if (!*name)
        return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where, "initialiser %zu has no name", i);
    *out = weft_onnx__scope_name(cx, scope, name);
    if ((*out)->bind != WEFT_ONNX_UNBOUND)
        return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where,
                               "initialiser \"%s\" is defined twice", name);
    (*out)->bind = WEFT_ONNX_BROKEN;
    return WEFT_ERR_OK;
}

static weft_err add_sparse(weft_onnx_ctx *cx, weft_onnx_scope *scope, const weft_names *used,
                           const Onnx__GraphProto *graph)
{
    for (size_t i = 0; i < graph->n_sparse_initializer; i++) {
        const Onnx__SparseTensorProto *t = graph->sparse_initializer[i];
        const char *name = t->values ? text(t->values->name) : "";
        weft_where where = {.file = cx->file, .item = name};
        weft_onnx_name *e;
        WEFT_TRY(name_initialiser(cx, scope, name, i, where, &e));
        if (!weft_names_find(used, name, strlen(name)))
            continue;
        weft_val val = {0};
        WEFT_TRY(weft_onnx__note_failure(cx, weft_onnx__sparse(cx, t, name, where, &val)));
        e->bind = val.i ? WEFT_ONNX_BOUND : WEFT_ONNX_BROKEN;
        e->val = val;
    }
    return WEFT_ERR_OK;
}

static weft_err add_initialisers(weft_onnx_ctx *cx, weft_onnx_scope *scope,
                                 const Onnx__GraphProto *graph)
{
    const weft_names *used = collect_used(cx, graph);
    WEFT_TRY(add_sparse(cx, scope, used, graph));
    for (size_t i = 0; i < graph->n_initializer; i++) {
        const Onnx__TensorProto *t = graph->initializer[i];
        const char *name = text(t->name);
        weft_where where = {.file = cx->file, .item = name};
        weft_onnx_name *e;
        WEFT_TRY(name_initialiser(cx, scope, name, i, where, &e));
        if (t->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__STRING) {
            e->bind = WEFT_ONNX_STRINGS;
            continue;
        }
        weft_val val = {0};
        weft_onnx_data unused;
        weft_err err = weft_names_find(used, name, strlen(name))
                           ? weft_onnx__weight(cx, t, name, where, &val)
                           : weft_onnx__tensor(cx, t, cx->arena, where, &unused);
        e->bind = val.i ? WEFT_ONNX_BOUND : WEFT_ONNX_BROKEN;
        e->val = val;
        WEFT_TRY(weft_onnx__note_failure(cx, err));
    }
    return WEFT_ERR_OK;
}

/* -- Inputs ----------------------------------------------------------------------------------- */

/* The dim of an axis: symbolic ones have the size that `port` has for them, axis 0 the dim `batch`
 * if that is given (not 0). */
static weft_err read_dim(weft_onnx_ctx *cx, const Onnx__TensorShapeProto *shape, size_t axis,
                         const char *name, weft_where where, const weft_import_port *port,
                         weft_dim batch, weft_dim *out)
{
    const Onnx__TensorShapeProto__Dimension *d = shape->dim[axis];
    bool is_const =
        d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE && d->dim_value >= 0;
    *out = axis == 0 ? batch : 0;
    if (*out != 0 && weft_onnx__share_dim(cx, shape, axis, name, *out))
        return WEFT_ERR_OK;
    if (!is_const && port && port->n_dim == shape->n_dim && port->dim[axis] >= 0) {
        *out = port->dim[axis];
        return WEFT_ERR_OK;
    }
    return weft_onnx__dim(cx, shape, axis, name, where, out);
}

static weft_err read_type(weft_onnx_ctx *cx, const Onnx__ValueInfoProto *v, weft_where where,
                          const weft_import_port *port, weft_dim batch, weft_ttype *out)
{
    const Onnx__TypeProto *type = v->type;
    bool is_tensor = type && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    if (type && type->value_case != ONNX__TYPE_PROTO__VALUE__NOT_SET && !is_tensor)
        return weft_diag_error(cx->diag, WEFT_ERR_UNSUP, where,
                               "input \"%s\" is no tensor: sequences, optionals, maps and sparse "
                               "tensors are not supported; export a model that takes their tensors "
                               "as inputs",
                               v->name);
    if (!is_tensor || !type->tensor_type)
        return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where, "input \"%s\" has no type",
                               v->name);
    const Onnx__TypeProto__Tensor *t = type->tensor_type;
    const char *type_name;
    weft_dtype dtype = weft_onnx__dtype(t->elem_type, &type_name);
    if (dtype == WEFT_DTYPE_NONE)
        return weft_diag_error(cx->diag, t->elem_type ? WEFT_ERR_UNSUP : WEFT_ERR_INPUT, where,
                               "input \"%s\" of data type %d (%s) is not supported%s", v->name,
                               t->elem_type, type_name,
                               t->elem_type == ONNX__TENSOR_PROTO__DATA_TYPE__STRING
                                   ? ": encode strings as numbers before the model"
                                   : "");
    if (!t->shape)
        return weft_diag_error(cx->diag, WEFT_ERR_UNSUP, where,
                               "input \"%s\" without a shape is not supported", v->name);
    if (t->shape->n_dim > WEFT_RANK_MAX)
        return weft_diag_error(cx->diag, WEFT_ERR_UNSUP, where, "input \"%s\": rank %zu is over %d",
                               v->name, t->shape->n_dim, WEFT_RANK_MAX);
    *out = (weft_ttype){.dtype = (uint8_t)dtype, .rank = (uint8_t)t->shape->n_dim};
    int64_t known = 1;
    for (size_t i = 0; i < t->shape->n_dim; i++) {
        weft_dim *d = &out->dim[i];
        WEFT_TRY(read_dim(cx, t->shape, i, v->name, where, port, batch, d));
        if (!weft_dim_is_const(*d) || *d == 0)
            continue;
        if (*d > WEFT_NUMEL_MAX / known)
            return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where,
                                   "input \"%s\" has too many elements", v->name);
        known *= *d;
    }
    return WEFT_ERR_OK;
}

static const weft_import_value *find_value(const weft_onnx_ctx *cx, const char *name)
{
    for (size_t i = 0; cx->options && i < cx->options->n_value; i++)
        if (strcmp(cx->options->value[i].name, name) == 0)
            return &cx->options->value[i];
    return NULL;
}

/* The dims of a fixed input: those of the model, or of the value where the model leaves them open.
 * false: they differ. */
static bool fixed_dims(const Onnx__ValueInfoProto *v, const weft_import_value *value,
                       weft_tensor *out)
{
    const Onnx__TensorShapeProto *shape = v->type->tensor_type->shape;
    size_t rank = shape ? shape->n_dim : value->is_list;
    if (rank > WEFT_RANK_MAX || (value->is_list && rank != 1))
        return false;
    out->rank = (int32_t)rank;
    for (size_t i = 0; i < rank; i++) {
        const Onnx__TensorShapeProto__Dimension *d = shape ? shape->dim[i] : NULL;
        bool known = d && d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
                     d->dim_value >= 0;
        out->dim[i] = known ? d->dim_value : (int64_t)value->n;
    }
    int64_t n = weft_tensor_numel(out);
    return n >= 0 && n <= WEFT_ONNX_COPY_MAX && (!value->is_list || n == (int64_t)value->n);
}

/* The input as a constant. */
static weft_err fix_input(weft_onnx_ctx *cx, const Onnx__ValueInfoProto *v,
                          const weft_import_value *value, weft_where where, weft_val *out)
{
    const char *type_name = "none";
    bool is_tensor = v->type && v->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE &&
                     v->type->tensor_type;
    weft_tensor t = {.dtype = is_tensor
                                  ? weft_onnx__dtype(v->type->tensor_type->elem_type, &type_name)
                                  : WEFT_DTYPE_NONE};
    if (t.dtype == WEFT_DTYPE_NONE)
        return weft_diag_error(cx->diag, WEFT_ERR_UNSUP, where,
                               "a value for input \"%s\" of type %s is not supported", v->name,
                               type_name);
    if (!fixed_dims(v, value, &t))
        return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where,
                               "the value given for input \"%s\" does not have its shape", v->name);
    size_t n = (size_t)weft_tensor_numel(&t), bytes = weft_tensor_bytes(&t);
    t.data = weft_arena_alloc(weft_module_arena(cx->m), bytes);
    for (size_t i = 0; i < n; i++) {
        double x = value->x[value->is_list ? i : 0];
        weft_tensor_set_f64(&t, (int64_t)i, x);
        bool exact = weft_dtype_is_float(t.dtype) || weft_tensor_get_f64(&t, (int64_t)i) == x;
        if (!exact)
            return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where,
                                   "%g, given for input \"%s\", is no value of type %s", x, v->name,
                                   weft_dtype_name(t.dtype));
    }
    weft_dim dim[WEFT_RANK_MAX];
    for (int32_t i = 0; i < t.rank; i++)
        dim[i] = t.dim[i];
    weft_weight_info info = {.type = weft_type_make(cx->m, t.dtype, dim, (uint32_t)t.rank),
                             .name = v->name,
                             .data = t.data,
                             .bytes = bytes};
    *out = weft_weight_val(cx->m, weft_weight_add(cx->m, &info));
    return WEFT_ERR_OK;
}

/* -- Ports: what the caller asks of an input or output ---------------------------------------- */

static weft_import_port *find_port(weft_import_port *port, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(port[i].name, name) == 0)
            return &port[i];
    return NULL;
}

static weft_import_port *input_port(const weft_onnx_ctx *cx, const char *name)
{
    return cx->options ? find_port(cx->options->input, cx->options->n_input, name) : NULL;
}

/* The shape of the graph's side of a port whose side in the model has this type. */
static weft_err outer_type(const weft_onnx_ctx *cx, const weft_import_port *port, weft_where where,
                           const weft_ttype *inner, weft_ttype *out)
{
    bool has_batch = port->n_outer_dim > 0 && port->outer_dim[0] < 0 && inner->rank > 0;
    weft_ttype type = {.dtype = inner->dtype, .rank = (uint8_t)port->n_outer_dim};
    int64_t n_inner = 1, n_outer = 1;
    bool known = port->n_outer_dim <= WEFT_RANK_MAX;
    for (size_t i = has_batch; known && i < inner->rank; i++) {
        known = weft_dim_is_const(inner->dim[i]) && inner->dim[i] <= WEFT_NUMEL_MAX / n_inner;
        n_inner *= known && inner->dim[i] > 0 ? inner->dim[i] : 1;
    }
    for (size_t i = 0; known && i < port->n_outer_dim; i++) {
        int64_t d = port->outer_dim[i];
        type.dim[i] = i == 0 && has_batch ? inner->dim[0] : d;
        known = (i == 0 && has_batch) || (d > 0 && d <= WEFT_NUMEL_MAX / n_outer);
        n_outer *= known && !(i == 0 && has_batch) ? d : 1;
    }
    if (!known)
        return weft_diag_error(cx->diag, WEFT_ERR_UNSUP, where,
                               "\"%s\" is to be reshaped, which needs sizes that do not vary",
                               port->name);
    if (n_inner != n_outer)
        return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where,
                               "\"%s\" is to be reshaped from %lld elements to %lld", port->name,
                               (long long)n_outer, (long long)n_inner);
    *out = type;
    return WEFT_ERR_OK;
}

static weft_err reshape(weft_onnx_ctx *cx, const weft_ttype *to, weft_where where, weft_val *val)
{
    weft_onnx_call call = {.cx = cx, .op_type = "Reshape", .where = where};
    return weft_onnx__emit_dims(&call, WEFT_OP_RESHAPE, *val, WEFT_ATTR_SHAPE, to->dim, to->rank,
                                val);
}

/* The input of that name of the models before; none: they have no such input. */
static weft_val earlier_input(const weft_onnx_ctx *cx, const char *name)
{
    for (uint32_t i = 0; cx->options && cx->options->into && i < weft_graph_input_count(cx->g); i++)
        if (strcmp(weft_graph_input_name(cx->g, i), name) == 0)
            return weft_graph_input(cx->g, i);
    return (weft_val){0};
}

static weft_err refuse_value(const weft_onnx_ctx *cx, const char *name, weft_where where)
{
    return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where,
                           "input \"%s\" has another type, size or bounds than that of the %s "
                           "before",
                           name, cx->options->head ? "heads" : "models");
}

/* Checks that the input has the type of the value that it gets. */
static weft_err share_input(weft_onnx_ctx *cx, const Onnx__ValueInfoProto *v, weft_where where,
                            weft_val earlier)
{
    const weft_ttype *type = weft_val_ttype(cx->m, earlier);
    bool is_tensor = v->type && v->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE &&
                     v->type->tensor_type && v->type->tensor_type->shape;
    const Onnx__TypeProto__Tensor *t = is_tensor ? v->type->tensor_type : NULL;
    const char *name = "none";
    bool same = t && weft_onnx__dtype(t->elem_type, &name) == (weft_dtype)type->dtype &&
                t->shape->n_dim == type->rank;
    for (size_t i = 0; same && i < t->shape->n_dim; i++)
        same = weft_onnx__share_dim(cx, t->shape, i, v->name, type->dim[i]);
    return same ? WEFT_ERR_OK : refuse_value(cx, v->name, where);
}

/* The value that an input gets, in the shape of the model. */
static weft_err take_value(weft_onnx_ctx *cx, const Onnx__ValueInfoProto *v,
                           const weft_import_port *port, weft_where where, weft_val *val)
{
    if (!port || !port->outer_dim)
        return share_input(cx, v, where, *val);
    const weft_ttype given = *weft_val_ttype(cx->m, *val);
    bool has_batch = port->n_outer_dim > 0 && port->outer_dim[0] < 0 && given.rank > 0;
    weft_ttype inner, outer;
    WEFT_TRY(read_type(cx, v, where, port, has_batch ? given.dim[0] : 0, &inner));
    WEFT_TRY(outer_type(cx, port, where, &inner, &outer));
    bool same = given.dtype == outer.dtype && given.rank == outer.rank;
    for (uint32_t i = 0; same && i < outer.rank; i++)
        same = given.dim[i] == outer.dim[i];
    if (!same)
        return refuse_value(cx, v->name, where);
    return reshape(cx, &inner, where, val);
}

static weft_err make_input(weft_onnx_ctx *cx, const Onnx__ValueInfoProto *v, weft_where where,
                           weft_val *out)
{
    const weft_import_value *value = find_value(cx, v->name);
    if (value)
        return fix_input(cx, v, value, where, out);
    weft_import_port *port = input_port(cx, v->name);
    const char *name = port && port->as ? port->as : v->name;
    *out = port && port->val.i ? port->val : earlier_input(cx, name);
    if (port)
        port->val = *out;
    if (out->i)
        return take_value(cx, v, port, where, out);
    weft_ttype type, shown;
    WEFT_TRY(read_type(cx, v, where, port, 0, &type));
    shown = type;
    if (port && port->outer_dim)
        WEFT_TRY(outer_type(cx, port, where, &type, &shown));
    *out = weft_graph_add_input(cx->g, name, weft_type_intern(cx->m, &shown));
    if (port)
        port->val = *out;
    return port && port->outer_dim ? reshape(cx, &type, where, out) : WEFT_ERR_OK;
}

static weft_err add_inputs(weft_onnx_ctx *cx, weft_onnx_scope *scope, const Onnx__GraphProto *graph)
{
    weft_names *seen = weft_names_create(cx->arena);
    for (size_t i = 0; i < graph->n_input; i++) {
        const Onnx__ValueInfoProto *v = graph->input[i];
        const char *name = text(v->name);
        weft_where where = {.file = cx->file, .item = name};
        if (!*name)
            return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where, "input %zu has no name", i);
        if (weft_names_find(seen, name, strlen(name)))
            return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where, "input \"%s\" is defined twice",
                                   name);
        weft_names_add(seen, name, strlen(name));
        if (weft_onnx__scope_name(cx, scope, name)->bind != WEFT_ONNX_UNBOUND)
            continue; /* an initialiser is the input's default, which is treated as a constant */
        weft_val val = {0};
        weft_err err = make_input(cx, v, where, &val);
        WEFT_TRY(weft_onnx__note_failure(cx, err));
        weft_onnx_name *e = weft_onnx__scope_name(cx, scope, name);
        e->bind = err == WEFT_ERR_OK ? WEFT_ONNX_BOUND : WEFT_ONNX_BROKEN;
        e->val = val;
    }
    return WEFT_ERR_OK;
}

/* INPUT: the options bound a symbolic dimension, or fix an input, that the model does not have. */
static weft_err check_options(weft_onnx_ctx *cx, const Onnx__GraphProto *graph)
{
    for (size_t i = 0; cx->options && i < cx->options->n_value; i++) {
        size_t k = 0;
        while (k < graph->n_input &&
               strcmp(text(graph->input[k]->name), cx->options->value[i].name) != 0)
            k++;
        if (k == graph->n_input)
            return weft_diag_error(cx->diag, WEFT_ERR_INPUT, (weft_where){.file = cx->file},
                                   "the model has no input \"%s\"", cx->options->value[i].name);
    }
    WEFT_TRY(weft_onnx__check_dims(cx));
    return WEFT_ERR_OK;
}

/* -- Outputs ---------------------------------------------------------------------------------- */

/* The dim of the nodes wins over the declared one, as in onnxruntime. */
static void compare_dims(weft_onnx_ctx *cx, const Onnx__ValueInfoProto *v, const weft_ttype *type,
                         weft_where where)
{
    const Onnx__TensorShapeProto *shape = v->type->tensor_type->shape;
    for (uint32_t i = 0; i < type->rank; i++) {
        const Onnx__TensorShapeProto__Dimension *d = shape->dim[i];
        if (d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
            d->dim_value >= 0 && weft_dim_is_const(type->dim[i]) && type->dim[i] != d->dim_value)
            weft_diag_warn(cx->diag, where,
                           "dimension %u of output \"%s\" is declared as %lld, the nodes give %lld",
                           i, v->name, (long long)d->dim_value, (long long)type->dim[i]);
    }
}

/* Compares the declared type of an output with the inferred one. Only another element type is an
 * error. */
static weft_err check_output(weft_onnx_ctx *cx, const Onnx__ValueInfoProto *v, weft_val val,
                             weft_where where)
{
    if (!v->type || v->type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ||
        !v->type->tensor_type)
        return WEFT_ERR_OK;
    const Onnx__TypeProto__Tensor *t = v->type->tensor_type;
    const weft_ttype *type = weft_val_ttype(cx->m, val);
    const char *declared;
    weft_dtype dtype = weft_onnx__dtype(t->elem_type, &declared);
    if (t->elem_type && dtype != type->dtype)
        return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where,
                               "output \"%s\" is declared as %s, the nodes give %s", v->name,
                               declared, weft_dtype_name((weft_dtype)type->dtype));
    if (t->shape && t->shape->n_dim != type->rank) {
        cx->rank_differs = true;
        weft_diag_warn(cx->diag, where,
                       "output \"%s\" is declared with rank %zu, the nodes give %u", v->name,
                       t->shape->n_dim, type->rank);
    } else if (t->shape)
        compare_dims(cx, v, type, where);
    return WEFT_ERR_OK;
}

/* An output of the graph, or, if outputs are listed, the value of its port. */
static weft_err keep_output(weft_onnx_ctx *cx, const char *name, weft_val val, weft_where where)
{
    const char *head = cx->options ? cx->options->head : NULL;
    if (!cx->options || cx->options->n_output == 0) {
        weft_graph_add_output(cx->g,
                              head ? weft_arena_printf(cx->arena, "%s/%s", head, name) : name, val);
        return WEFT_ERR_OK;
    }
    weft_import_port *port = find_port(cx->options->output, cx->options->n_output, name);
    if (!port)
        return WEFT_ERR_OK;
    if (port->outer_dim) {
        weft_ttype outer;
        WEFT_TRY(outer_type(cx, port, where, weft_val_ttype(cx->m, val), &outer));
        WEFT_TRY(reshape(cx, &outer, where, &val));
    }
    port->val = val;
    return WEFT_ERR_OK;
}

/* The listed outputs, in the order of the list. */
static void add_listed(weft_onnx_ctx *cx)
{
    size_t n = cx->options && !cx->options->is_step ? cx->options->n_output : 0;
    for (size_t i = 0; i < n; i++) {
        const weft_import_port *port = &cx->options->output[i];
        if (port->val.i)
            weft_graph_add_output(cx->g, port->as ? port->as : port->name, port->val);
    }
}

static weft_err add_outputs(weft_onnx_ctx *cx, weft_onnx_scope *scope,
                            const Onnx__GraphProto *graph)
{
    weft_names *seen = weft_names_create(cx->arena);
    size_t n = 0;
    for (size_t i = 0; i < graph->n_output; i++) {
        const Onnx__ValueInfoProto *v = graph->output[i];
        const char *name = text(v->name);
        weft_where where = {.file = cx->file, .item = name};
        if (!*name)
            return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where, "output %zu has no name", i);
        if (weft_names_find(seen, name, strlen(name)))
            return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where,
                                   "output \"%s\" is defined twice", name);
        weft_names_add(seen, name, strlen(name));
        const weft_onnx_name *e = weft_onnx__scope_name(cx, scope, name);
        if (e->bind == WEFT_ONNX_UNBOUND)
            return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where,
                                   "output \"%s\" is the result of no node", name);
        if (e->bind == WEFT_ONNX_STRINGS)
            weft_diag_warn(cx->diag, where, "output \"%s\" is a tensor of strings: it is left out",
                           name);
        if (e->bind != WEFT_ONNX_BOUND)
            continue;
        if (weft_onnx__is_loose(cx, e->val))
            return weft_diag_error(
                cx->diag, WEFT_ERR_UNSUP, where,
                "output \"%s\" is of rank 0 or 1, as data decides: reshape it in "
                "the model",
                name);
        if (weft_onnx__is_sequence(e->val))
            return weft_diag_error(cx->diag, WEFT_ERR_UNSUP, where,
                                   "output \"%s\" is a sequence: return its elements instead",
                                   name);
        n++;
        WEFT_TRY(weft_onnx__note_failure(cx, check_output(cx, v, e->val, where)));
        WEFT_TRY(keep_output(cx, name, e->val, where));
    }
    add_listed(cx);
    if (n == 0 && cx->failed == WEFT_ERR_OK)
        return weft_diag_error(cx->diag, WEFT_ERR_UNSUP, (weft_where){.file = cx->file},
                               "all outputs are tensors of strings, which are not supported");
    return WEFT_ERR_OK;
}

static weft_err import_nested(weft_onnx_ctx *cx, weft_onnx_scope *scope,
                              const Onnx__GraphProto *graph)
{
    WEFT_TRY(add_initialisers(cx, scope, graph));
    return weft_onnx__body(cx, scope, graph->node, graph->n_node);
}

weft_err weft_onnx__graph(weft_onnx_ctx *cx, const Onnx__GraphProto *graph)
{
    weft_onnx_scope scope;
    weft_onnx__scope_init(cx, &scope);
    scope.opsets = cx->opsets;
    if (graph->n_output == 0)
        return weft_diag_error(cx->diag, WEFT_ERR_INPUT, (weft_where){.file = cx->file},
                               "the graph has no outputs");
    cx->nested = import_nested;
    WEFT_TRY(add_initialisers(cx, &scope, graph));
    WEFT_TRY(add_inputs(cx, &scope, graph));
    WEFT_TRY(check_options(cx, graph));
    WEFT_TRY(weft_onnx__body(cx, &scope, graph->node, graph->n_node));
    WEFT_TRY(add_outputs(cx, &scope, graph));
    return cx->failed;
}
