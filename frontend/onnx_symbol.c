/* Symbolic dims of inputs.
 *
 * A name on several axes means that the axes are intended to be equal: one symbol. Exporters also
 * write names that say nothing ("?", "", -1 in place of a size): such an axis gets a symbol of its
 * own, named "input_axis". The options may use this name for any symbolic axis, which then is
 * independent of other axes with the name that it has in the file.
 *
 * One name on two axes of one input is often a mistake of an exporter ([N, 3, N, N]). Where the
 * operators of the model do not relate the two axes, they are independent (weft_onnx_ctx.apart). */
#include "frontend/onnx_int.h"

#include <stdlib.h>
#include <string.h>

/* Names that exporters write for "not known". */
static bool is_anonymous(const char *param)
{
    static const char *const names[] = {"", "?", "*", "None", "none", "unknown", "Unknown"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(param, names[i]) == 0)
            return true;
    char *end;
    return strtol(param, &end, 10) < 0 && !*end;
}

/* Name of a symbolic axis in the file, NULL if it has none. */
static const char *param_of(const Onnx__TensorShapeProto__Dimension *d)
{
    if (d->value_case != ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM || !d->dim_param ||
        is_anonymous(d->dim_param))
        return NULL;
    return d->dim_param;
}

/* Exporters write -1 for unknown dims. */
static bool is_constant(const Onnx__TensorShapeProto__Dimension *d)
{
    return d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
           d->dim_value >= 0;
}

static bool repeats_earlier(const Onnx__TensorShapeProto *shape, size_t axis)
{
    const char *param = param_of(shape->dim[axis]);
    for (size_t i = 0; param && i < axis; i++) {
        const char *other = param_of(shape->dim[i]);
        if (other && strcmp(other, param) == 0)
            return true;
    }
    return false;
}

static const weft_import_dim *find_option(const weft_onnx_ctx *cx, const char *name)
{
    for (size_t i = 0; name && cx->options && i < cx->options->n_dim; i++)
        if (strcmp(cx->options->dim[i].name, name) == 0)
            return &cx->options->dim[i];
    return NULL;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* A name that no other symbol of the graph has. */
static const char *unique_name(const weft_onnx_ctx *cx, const char *name)
{
    const char *unique = name;
    for (unsigned n = 2, i = 0; i < weft_graph_symbol_count(cx->g); i++) {
        if (strcmp(weft_graph_symbol_name(cx->g, i), unique) != 0)
            continue;
        unique = weft_arena_printf(cx->arena, "%s.%u", name, n++);
        i = UINT32_MAX; /* from the first one again */
    }
    return unique;
}

/* The symbol of the models before that has this name and these bounds; 0: there is none. */
static weft_dim earlier_symbol(const weft_onnx_ctx *cx, const char *name, int64_t lo, int64_t hi)
{
    for (uint32_t i = 0; i < cx->n_earlier; i++) {
        weft_dim dim = weft_graph_symbol_dim(cx->g, i);
        int64_t own_lo, own_hi;
        weft_dim_bounds(weft_module_dims(cx->m), dim, &own_lo, &own_hi);
        if (strcmp(weft_graph_symbol_name(cx->g, i), name) == 0 && own_lo == lo && own_hi == hi)
            return dim;
    }
    return 0;
}

static weft_err make_symbol(weft_onnx_ctx *cx, const char *param, const char *axis, bool is_batch,
                            int64_t lowest, weft_where where, weft_dim *out)
{
    for (uint32_t i = 0; i < cx->symbols.len; i++) {
        if (same_text(cx->symbols.at[i].param, param) && same_text(cx->symbols.at[i].axis, axis)) {
            *out = cx->symbols.at[i].dim;
            return WEFT_ERR_OK;
        }
    }
    if (cx->symbols.len == WEFT_ONNX_SYMBOLS_MAX)
        return weft_diag_error(cx->diag, WEFT_ERR_UNSUP, where,
                               "more than %d symbolic dimensions are not supported; fix some "
                               "(dims:)",
                               WEFT_ONNX_SYMBOLS_MAX);
    const char *name = axis ? axis : param;
    const weft_import_dim *option = find_option(cx, axis);
    if (!option)
        option = find_option(cx, param);
    int64_t lo = lowest, hi = INT64_MAX / 4;
    if (is_batch && cx->options && cx->options->batch_max > 0)
        hi = cx->options->batch_max;
    if (option) {
        lo = option->lo;
        hi = option->hi < hi ? option->hi : hi;
        if (lo < 0 || hi < lo)
            return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where,
                                   "dimension \"%s\": bounds %lld and %lld", name, (long long)lo,
                                   (long long)hi);
    }
    weft_onnx_symbol symbol = {.param = param, .axis = axis};
    symbol.dim = lo == hi ? lo : earlier_symbol(cx, name, lo, hi);
    if (lo != hi && symbol.dim == 0)
        symbol.dim = weft_graph_symbol(cx->g, unique_name(cx, name), lo, hi);
    WEFT_VEC_PUSH(cx->arena, &cx->symbols, symbol);
    *out = symbol.dim;
    return WEFT_ERR_OK;
}

weft_err weft_onnx__dim(weft_onnx_ctx *cx, const Onnx__TensorShapeProto *shape, size_t axis,
                        const char *input, weft_where where, weft_dim *out)
{
    const Onnx__TensorShapeProto__Dimension *d = shape->dim[axis];
    if (is_constant(d)) {
        *out = d->dim_value;
        return WEFT_ERR_OK;
    }
    const char *param = param_of(d);
    const char *own = weft_arena_printf(cx->arena, "%s_%zu", input, axis);
    if (param && !find_option(cx, own) && !(cx->apart && repeats_earlier(shape, axis)))
        own = NULL;
    /* An empty batch is no request; other dims may be 0, as the past of a decoder that has none. */
    int64_t lowest = 0;
    if (axis == 0 && !cx->has_batch) {
        cx->has_batch = true;
        lowest = 1;
    }
    return make_symbol(cx, param, own, axis == 0, lowest, where, out);
}

bool weft_onnx__share_dim(weft_onnx_ctx *cx, const Onnx__TensorShapeProto *shape, size_t axis,
                          const char *input, weft_dim earlier)
{
    const Onnx__TensorShapeProto__Dimension *d = shape->dim[axis];
    if (is_constant(d))
        return d->dim_value == earlier;
    const char *param = param_of(d);
    const char *own = weft_arena_printf(cx->arena, "%s_%zu", input, axis);
    if (param && !find_option(cx, own) && !(cx->apart && repeats_earlier(shape, axis)))
        own = NULL;
    cx->has_batch = cx->has_batch || axis == 0;
    for (uint32_t i = 0; i < cx->symbols.len; i++)
        if (same_text(cx->symbols.at[i].param, param) && same_text(cx->symbols.at[i].axis, own))
            return cx->symbols.at[i].dim == earlier;
    const weft_import_dim *option = find_option(cx, own ? own : param);
    int64_t lo, hi;
    weft_dim_bounds(weft_module_dims(cx->m), earlier, &lo, &hi);
    if (option && (option->lo != lo || option->hi != hi))
        return false;
    weft_onnx_symbol symbol = {.param = param, .axis = own, .dim = earlier};
    WEFT_VEC_PUSH(cx->arena, &cx->symbols, symbol);
    return true;
}

weft_err weft_onnx__check_dims(weft_onnx_ctx *cx)
{
    for (size_t i = 0; cx->options && i < cx->options->n_dim; i++) {
        const char *name = cx->options->dim[i].name;
        uint32_t k = 0;
        while (k < cx->symbols.len && !same_text(cx->symbols.at[k].param, name) &&
               !same_text(cx->symbols.at[k].axis, name))
            k++;
        if (k == cx->symbols.len)
            return weft_diag_error(cx->diag, WEFT_ERR_INPUT, (weft_where){.file = cx->file},
                                   "the model has no symbolic dimension \"%s\"", name);
    }
    return WEFT_ERR_OK;
}

/* NULL: the file does not give it. */
static const Onnx__TensorShapeProto *shape_of(const Onnx__ValueInfoProto *v)
{
    const Onnx__TypeProto *type = v->type;
    bool is_tensor = type && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE &&
                     type->tensor_type && type->tensor_type->shape;
    return is_tensor ? type->tensor_type->shape : NULL;
}

bool weft_onnx__is_batch(const char *name)
{
    return strcasestr(name, "batch") != NULL;
}

bool weft_onnx__names_batch(const Onnx__GraphProto *graph)
{
    for (size_t i = 0; i < graph->n_input; i++) {
        const Onnx__TensorShapeProto *shape = shape_of(graph->input[i]);
        const char *name = graph->input[i]->name; /* of axes without a name */
        if (name && weft_onnx__is_batch(name))
            return true;
        for (size_t k = 0; shape && k < shape->n_dim; k++) {
            const char *param = param_of(shape->dim[k]);
            if (param && weft_onnx__is_batch(param))
                return true;
        }
    }
    return false;
}

bool weft_onnx__repeats_names(const Onnx__GraphProto *graph)
{
    for (size_t i = 0; i < graph->n_input; i++) {
        const Onnx__TensorShapeProto *shape = shape_of(graph->input[i]);
        for (size_t k = 1; shape && k < shape->n_dim && k < WEFT_RANK_MAX; k++)
            if (repeats_earlier(shape, k))
                return true;
    }
    return false;
}

static bool mentions(const weft_dimpool *pool, const weft_graph_require *r, weft_dim dim)
{
    uint32_t symbol = weft_dim_as_symbol(pool, dim);
    return symbol != UINT32_MAX &&
           (weft_dim_uses(pool, r->a, symbol) || weft_dim_uses(pool, r->b, symbol));
}

bool weft_onnx__relates_names(const weft_onnx_ctx *cx)
{
    const weft_dimpool *pool = weft_module_dims(cx->m);
    for (uint32_t r = 0; r < weft_graph_require_count(cx->g); r++) {
        const weft_graph_require *require = weft_graph_require_at(cx->g, r);
        for (uint32_t i = 0; i < cx->symbols.len; i++) {
            const weft_onnx_symbol *a = &cx->symbols.at[i];
            if (!a->param || weft_dim_is_const(a->dim) || !mentions(pool, require, a->dim))
                continue;
            for (uint32_t k = 0; k < i; k++)
                if (same_text(cx->symbols.at[k].param, a->param) &&
                    !weft_dim_is_const(cx->symbols.at[k].dim) &&
                    mentions(pool, require, cx->symbols.at[k].dim))
                    return true;
        }
    }
    return false;
}
