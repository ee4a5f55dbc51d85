/* Attributes: from AttributeProto to the typed attributes of the operator's schema. Names are those
 * of ONNX, so the schema suffices for most operators; hooks read other attributes by name. An
 * attribute that neither reads is an error. */
#include "frontend/onnx_int.h"

#include <string.h>

int weft_onnx__attr_type(const Onnx__AttributeProto *a)
{
    if (a->has_type && (int)a->type != WEFT_ONNX_ATTR_NONE)
        return (int)a->type;
    if (a->has_f)
        return WEFT_ONNX_ATTR_FLOAT;
    if (a->has_i)
        return WEFT_ONNX_ATTR_INT;
    if (a->has_s)
        return WEFT_ONNX_ATTR_STRING;
    if (a->t)
        return WEFT_ONNX_ATTR_TENSOR;
    if (a->g)
        return WEFT_ONNX_ATTR_GRAPH;
    if (a->n_floats)
        return WEFT_ONNX_ATTR_FLOATS;
    if (a->n_ints)
        return WEFT_ONNX_ATTR_INTS;
    if (a->n_strings)
        return WEFT_ONNX_ATTR_STRINGS;
    return WEFT_ONNX_ATTR_NONE;
}

static weft_err bad_type(weft_onnx_call *c, const Onnx__AttributeProto *a, const char *wanted)
{
    static const char *const name[] = {"nothing", "float",  "int",  "string", "tensor",
                                       "graph",   "floats", "ints", "strings"};
    int type = weft_onnx__attr_type(a);
    return weft_onnx__fail(c, WEFT_ERR_INPUT, "attribute \"%s\" holds %s, not %s", a->name,
                           type >= 0 && type < 9 ? name[type] : "something else", wanted);
}

const Onnx__AttributeProto *weft_onnx__attr(weft_onnx_call *c, const char *name)
{
    for (uint32_t i = 0; i < c->n_proto; i++) {
        if (strcmp(c->proto[i]->name, name) == 0) {
            c->taken |= (uint64_t)1 << i;
            return c->proto[i];
        }
    }
    return NULL;
}

void weft_onnx__ignore(weft_onnx_call *c, const char *name)
{
    (void)weft_onnx__attr(c, name);
}

weft_err weft_onnx__get_int(weft_onnx_call *c, const char *name, int64_t otherwise, int64_t *out)
{
    const Onnx__AttributeProto *a = weft_onnx__attr(c, name);
    if (a && weft_onnx__attr_type(a) != WEFT_ONNX_ATTR_INT)
        return bad_type(c, a, "int");
    *out = a ? a->i : otherwise;
    return WEFT_ERR_OK;
}

weft_err weft_onnx__get_float(weft_onnx_call *c, const char *name, double otherwise, double *out)
{
    const Onnx__AttributeProto *a = weft_onnx__attr(c, name);
    if (a && weft_onnx__attr_type(a) != WEFT_ONNX_ATTR_FLOAT)
        return bad_type(c, a, "float");
    *out = a ? (double)a->f : otherwise;
    return WEFT_ERR_OK;
}

static weft_err copy_bytes(weft_onnx_call *c, const Onnx__AttributeProto *a,
                           const ProtobufCBinaryData *s, const char **out)
{
    if (s->len > WEFT_ONNX_NAME_MAX || (s->len && memchr(s->data, 0, s->len)))
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "attribute \"%s\" holds a NUL or is too long",
                               a->name);
    *out = s->len ? weft_arena_strndup(c->cx->arena, (const char *)s->data, s->len) : "";
    return WEFT_ERR_OK;
}

weft_err weft_onnx__get_str(weft_onnx_call *c, const char *name, const char *otherwise,
                            const char **out)
{
    const Onnx__AttributeProto *a = weft_onnx__attr(c, name);
    if (a && weft_onnx__attr_type(a) != WEFT_ONNX_ATTR_STRING)
        return bad_type(c, a, "string");
    if (a)
        return copy_bytes(c, a, &a->s, out);
    *out = otherwise;
    return WEFT_ERR_OK;
}

/* The list of an attribute of type `type`, or NULL with 0 when it is absent. Files without
 * attribute types have no field that tells the type of an empty list. */
static weft_err find_list(weft_onnx_call *c, const char *name, int type, const char *wanted,
                          const Onnx__AttributeProto **out)
{
    *out = weft_onnx__attr(c, name);
    int have = *out ? weft_onnx__attr_type(*out) : type;
    return have == type || have == WEFT_ONNX_ATTR_NONE ? WEFT_ERR_OK : bad_type(c, *out, wanted);
}

weft_err weft_onnx__get_floats(weft_onnx_call *c, const char *name, const float **out,
                               uint32_t *out_n)
{
    static const float none = 0.0F;
    const Onnx__AttributeProto *a;
    WEFT_TRY(find_list(c, name, WEFT_ONNX_ATTR_FLOATS, "floats", &a));
    *out = !a ? NULL : a->n_floats ? a->floats : &none;
    *out_n = a ? (uint32_t)a->n_floats : 0;
    return WEFT_ERR_OK;
}

weft_err weft_onnx__get_ints(weft_onnx_call *c, const char *name, const int64_t **out,
                             uint32_t *out_n)
{
    static const int64_t none = 0;
    const Onnx__AttributeProto *a;
    WEFT_TRY(find_list(c, name, WEFT_ONNX_ATTR_INTS, "ints", &a));
    *out = !a ? NULL : a->n_ints ? a->ints : &none;
    *out_n = a ? (uint32_t)a->n_ints : 0;
    return WEFT_ERR_OK;
}

weft_err weft_onnx__count_strings(weft_onnx_call *c, const char *name, uint32_t *out_n)
{
    const Onnx__AttributeProto *a;
    WEFT_TRY(find_list(c, name, WEFT_ONNX_ATTR_STRINGS, "strings", &a));
    *out_n = a ? (uint32_t)a->n_strings : 0;
    return WEFT_ERR_OK;
}

weft_err weft_onnx__get_strs(weft_onnx_call *c, const char *name, const char *const **out,
                             uint32_t *out_n)
{
    const Onnx__AttributeProto *a;
    WEFT_TRY(find_list(c, name, WEFT_ONNX_ATTR_STRINGS, "strings", &a));
    uint32_t n = a ? (uint32_t)a->n_strings : 0;
    const char **list = weft_arena_array(c->cx->arena, n, sizeof *list);
    for (uint32_t i = 0; i < n; i++)
        WEFT_TRY(copy_bytes(c, a, &a->strings[i], &list[i]));
    *out = list;
    *out_n = n;
    return WEFT_ERR_OK;
}

weft_err weft_onnx__get_tensor(weft_onnx_call *c, const char *name, weft_tensor *out)
{
    const Onnx__AttributeProto *a = weft_onnx__attr(c, name);
    *out = (weft_tensor){.rank = -1};
    if (!a)
        return WEFT_ERR_OK;
    if (weft_onnx__attr_type(a) != WEFT_ONNX_ATTR_TENSOR || !a->t)
        return bad_type(c, a, "tensor");
    weft_onnx_data data;
    WEFT_TRY(weft_onnx__tensor(c->cx, a->t, c->cx->arena, c->where, &data));
    *out = (weft_tensor){.dtype = data.dtype, .rank = data.rank};
    memcpy(out->dim, data.dim, sizeof out->dim);
    out->data = weft_arena_alloc(c->cx->arena, data.bytes); /* aligned */
    if (data.bytes)
        memcpy(out->data, data.at, data.bytes);
    return WEFT_ERR_OK;
}

weft_err weft_onnx__no_more_attrs(weft_onnx_call *c)
{
    for (uint32_t i = 0; i < c->n_proto; i++)
        if (!(c->taken >> i & 1))
            return weft_onnx__fail(c, WEFT_ERR_UNSUP, "attribute \"%s\" is not supported",
                                   c->proto[i]->name);
    return WEFT_ERR_OK;
}

void weft_onnx__put(weft_onnx_call *c, weft_attr attr)
{
    uint32_t i = 0;
    while (i < c->n_attr && c->attr[i].key != attr.key)
        i++;
    if (i == c->n_attr && c->n_attr < WEFT_ONNX_ATTR_MAX)
        c->n_attr++;
    if (i < c->n_attr)
        c->attr[i] = attr;
}

void weft_onnx__put_dims(weft_onnx_call *c, weft_attr_key key, const weft_dim *dim, uint32_t n)
{
    weft_onnx__put(
        c, (weft_attr){.key = (uint16_t)key, .kind = WEFT_KIND_DIMS, .n = n, .u = {.dims = dim}});
}

/* -- By schema -------------------------------------------------------------------------------- */

static weft_err map_list(weft_onnx_call *c, const Onnx__AttributeProto *a, weft_attr *out)
{
    weft_arena *arena = c->cx->arena;
    int type = weft_onnx__attr_type(a);
    if (type == WEFT_ONNX_ATTR_INTS || type == WEFT_ONNX_ATTR_INT) {
        uint32_t n = type == WEFT_ONNX_ATTR_INT ? 1 : (uint32_t)a->n_ints;
        int64_t *x = weft_arena_array(arena, n, sizeof *x);
        for (uint32_t i = 0; i < n; i++) {
            x[i] = type == WEFT_ONNX_ATTR_INT ? a->i : a->ints[i];
            if (out->kind == WEFT_KIND_DIMS)
                x[i] = weft_dim_of_number(x[i]);
        }
        out->n = n;
        out->u.ints = x;
    } else if (type == WEFT_ONNX_ATTR_FLOATS || type == WEFT_ONNX_ATTR_FLOAT) {
        uint32_t n = type == WEFT_ONNX_ATTR_FLOAT ? 1 : (uint32_t)a->n_floats;
        double *x = weft_arena_array(arena, n, sizeof *x);
        for (uint32_t i = 0; i < n; i++)
            x[i] = type == WEFT_ONNX_ATTR_FLOAT ? (double)a->f : (double)a->floats[i];
        out->n = n;
        out->u.floats = x;
    } else {
        const char **x = weft_arena_array(arena, a->n_strings, sizeof *x);
        for (uint32_t i = 0; i < a->n_strings; i++)
            WEFT_TRY(copy_bytes(c, a, &a->strings[i], &x[i]));
        out->n = (uint32_t)a->n_strings;
        out->u.strs = x;
    }
    return WEFT_ERR_OK;
}

static weft_err map_dtype(weft_onnx_call *c, const Onnx__AttributeProto *a, weft_attr *out)
{
    const char *name;
    out->u.dtype = weft_onnx__dtype(a->i, &name);
    if (out->u.dtype == WEFT_DTYPE_NONE)
        return weft_onnx__fail(c, WEFT_ERR_UNSUP, "data type %lld (%s) of attribute \"%s\"",
                               (long long)a->i, name, a->name);
    return WEFT_ERR_OK;
}

static weft_err map_as(weft_onnx_call *c, const Onnx__AttributeProto *a, weft_attr *out)
{
    static const struct {
        int type, type2;
        const char *text;
    } wants[] = {
        [WEFT_KIND_NONE] = {0, 0, ""},
        [WEFT_KIND_INT] = {WEFT_ONNX_ATTR_INT, 0, "int"},
        [WEFT_KIND_FLOAT] = {WEFT_ONNX_ATTR_FLOAT, 0, "float"},
        [WEFT_KIND_STR] = {WEFT_ONNX_ATTR_STRING, 0, "string"},
        [WEFT_KIND_DTYPE] = {WEFT_ONNX_ATTR_INT, 0, "int"},
        [WEFT_KIND_INTS] = {WEFT_ONNX_ATTR_INTS, 0, "ints"},
        [WEFT_KIND_FLOATS] = {WEFT_ONNX_ATTR_FLOATS, WEFT_ONNX_ATTR_FLOAT, "floats"},
        [WEFT_KIND_STRS] = {WEFT_ONNX_ATTR_STRINGS, 0, "strings"},
        [WEFT_KIND_DIMS] = {WEFT_ONNX_ATTR_INTS, WEFT_ONNX_ATTR_INT, "ints"},
    };
    int type = weft_onnx__attr_type(a);
    /* In files without attribute types an empty list has no field that tells its type. */
    bool empty = type == WEFT_ONNX_ATTR_NONE && out->kind >= WEFT_KIND_INTS;
    if (!empty && type != wants[out->kind].type && (!type || type != wants[out->kind].type2))
        return bad_type(c, a, wants[out->kind].text);
    switch ((weft_attr_kind)out->kind) {
    case WEFT_KIND_INT:
        out->u.i = a->i;
        return WEFT_ERR_OK;
    case WEFT_KIND_FLOAT:
        out->u.f = (double)a->f;
        return WEFT_ERR_OK;
    case WEFT_KIND_STR:
        return copy_bytes(c, a, &a->s, &out->u.s);
    case WEFT_KIND_DTYPE:
        return map_dtype(c, a, out);
    default:
        return map_list(c, a, out);
    }
}

/* The kind of `key` in the schema; NONE if the schema does not have it. */
static weft_attr_kind find_kind(const weft_op *op, weft_attr_key key, int onnx_type)
{
    for (uint32_t i = 0; i < WEFT_OP_ATTR_MAX && op->attrs[i].key; i++)
        if (op->attrs[i].key == key)
            return (weft_attr_kind)op->attrs[i].kind;
    for (uint32_t i = 0; i < WEFT_OP_PARAM_MAX && op->params[i].key; i++) {
        if (op->params[i].key != key)
            continue;
        if (onnx_type == WEFT_ONNX_ATTR_FLOAT)
            return WEFT_KIND_FLOAT;
        return onnx_type == WEFT_ONNX_ATTR_FLOATS ? WEFT_KIND_FLOATS : WEFT_KIND_DIMS;
    }
    return WEFT_KIND_NONE;
}

weft_err weft_onnx__map_attrs(weft_onnx_call *c, weft_op_id op)
{
    const weft_op *def = weft_op_get(op);
    for (uint32_t i = 0; i < c->n_proto; i++) {
        if (c->taken >> i & 1)
            continue;
        const Onnx__AttributeProto *a = c->proto[i];
        weft_attr_key key = weft_attr_key_parse(a->name);
        weft_attr_kind kind = key ? find_kind(def, key, weft_onnx__attr_type(a)) : WEFT_KIND_NONE;
        if (kind == WEFT_KIND_NONE)
            return weft_onnx__fail(c, WEFT_ERR_UNSUP, "attribute \"%s\" is not supported", a->name);
        weft_attr attr = {.key = (uint16_t)key, .kind = (uint16_t)kind};
        WEFT_TRY(map_as(c, a, &attr));
        weft_onnx__put(c, attr);
        c->taken |= (uint64_t)1 << i;
    }
    return WEFT_ERR_OK;
}
