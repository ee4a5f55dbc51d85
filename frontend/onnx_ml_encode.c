/* Hooks of onnx_ops_ml.def: tables of keys and values. */
#include "frontend/onnx_ml_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Keys and values of a table; the values are elements of any type. */
typedef struct table {
    weft_tensor keys, values;
} table;

/* -- Sorting ---------------------------------------------------------------------------------- */

typedef struct sort_key {
    double f64;
    int64_t i64;
    int64_t at; /* index in the model */
} sort_key;

/* Numbers in ascending order, then NaN; equal keys in the order of the model. */
static int compare_keys(const void *left, const void *right)
{
    const sort_key *a = left, *b = right;
    int nan = isnan(a->f64) - isnan(b->f64);
    if (nan)
        return nan;
    if (a->f64 != b->f64 && !isnan(a->f64))
        return a->f64 < b->f64 ? -1 : 1;
    if (a->i64 != b->i64)
        return a->i64 < b->i64 ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

static bool same_key(const sort_key *a, const sort_key *b)
{
    return a->i64 == b->i64 && (a->f64 == b->f64 || (isnan(a->f64) && isnan(b->f64)));
}

/* Sorts the keys; of equal ones the first stays. */
static void sort_table(weft_arena *arena, table *t)
{
    int64_t n = t->keys.dim[0], kept = 0;
    bool is_float = weft_dtype_is_float(t->keys.dtype);
    size_t key_size = weft_dtype_size(t->keys.dtype), size = weft_dtype_size(t->values.dtype);
    sort_key *key = weft_arena_array(arena, (size_t)n, sizeof *key);
    for (int64_t i = 0; i < n; i++) {
        key[i].at = i;
        if (is_float)
            key[i].f64 = weft_tensor_get_f64(&t->keys, i);
        else
            key[i].i64 = weft_tensor_get_i64(&t->keys, i);
    }
    qsort(key, (size_t)n, sizeof *key, compare_keys);
    char *keys = weft_arena_array(arena, (size_t)n, key_size);
    char *values = weft_arena_array(arena, (size_t)n, size);
    for (int64_t i = 0; i < n; i++) {
        if (i > 0 && same_key(&key[i - 1], &key[i]))
            continue;
        size_t from = (size_t)key[i].at, to = (size_t)kept++;
        memcpy(keys + to * key_size, (char *)t->keys.data + from * key_size, key_size);
        memcpy(values + to * size, (char *)t->values.data + from * size, size);
    }
    t->keys.data = keys;
    t->values.data = values;
    t->keys.dim[0] = t->values.dim[0] = kept;
}

/* lookup of x; `otherwise` NULL: a key that the table does not have is an error at run time. */
static weft_val look_up(weft_onnx_build *k, table *t, weft_val x, const void *otherwise)
{
    weft_onnx_call *c = k->c;
    if (k->err != WEFT_ERR_OK)
        return x;
    sort_table(c->cx->arena, t);
    x = weft_onnx__cast(k, x, t->keys.dtype);
    weft_val in[4] = {x, weft_onnx__const(c, t->keys.dtype, t->keys.dim, 1, t->keys.data),
                      weft_onnx__const(c, t->values.dtype, t->values.dim, 1, t->values.data)};
    if (otherwise)
        in[3] = weft_onnx__const(c, t->values.dtype, NULL, 0, otherwise);
    return weft_onnx__make(k, WEFT_OP_LOOKUP, in, otherwise ? 4 : 3, NULL, 0);
}

/* -- OneHotEncoder ---------------------------------------------------------------------------- */

/* one_hot(lookup of the category's index); zeros: an unknown category has no 1, else it is an error
 * at run time. */
weft_err weft_onnx_hook_ml_one_hot_encoder(weft_onnx_call *c)
{
    weft_onnx_build k = {.c = c};
    const int64_t *cats;
    uint32_t n, n_string;
    int64_t zeros;
    if (c->n_in != 1 || !c->in[0].i)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%u inputs, expected 1", c->n_in);
    WEFT_TRY(weft_onnx__get_ints(c, "cats_int64s", &cats, &n));
    WEFT_TRY(weft_onnx__count_strings(c, "cats_strings", &n_string));
    WEFT_TRY(weft_onnx__get_int(c, "zeros", 1, &zeros));
    if (n_string)
        return weft_onnx__fail(c, WEFT_ERR_UNSUP,
                               "categories of strings are not supported: convert the model with "
                               "categories of integers");
    if (n == 0)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "no categories");
    int64_t *index = weft_arena_array(c->cx->arena, n, sizeof *index), outside = n;
    for (uint32_t i = 0; i < n; i++)
        index[i] = i;
    table t = {.keys = {.dtype = WEFT_DTYPE_I64, .rank = 1, .dim = {n}},
               .values = {.dtype = WEFT_DTYPE_I64, .rank = 1, .dim = {n}, .data = index}};
    t.keys.data = weft_arena_array(c->cx->arena, n, sizeof *cats);
    memcpy(t.keys.data, cats, n * sizeof *cats);
    weft_val x = look_up(&k, &t, c->in[0], zeros ? &outside : NULL);
    weft_val depth = weft_onnx__i64s(&k, &outside, NULL, 0);
    static const float values[2] = {0.0F, 1.0F};
    weft_attr last = WEFT_ATTR_OF_INT(AXIS, -1);
    weft_val in[3] = {x, depth, weft_onnx__f32s(&k, values, &(int64_t){2}, 1)};
    c->out[0] = weft_onnx__make(&k, WEFT_OP_ONE_HOT, in, 3, &last, 1);
    WEFT_TRY(k.err);
    return weft_onnx__no_more_attrs(c);
}

/* -- LabelEncoder ----------------------------------------------------------------------------- */

/* The list of an attribute of `stem` + "s" of one of the types, or of a tensor; INPUT unless there
 * is exactly one. */
static weft_err read_list(weft_onnx_call *c, const char *stem, weft_tensor *out)
{
    weft_arena *arena = c->cx->arena;
    const float *f;
    const int64_t *i;
    uint32_t n_float, n_int, n_string;
    weft_tensor t;
    WEFT_TRY(weft_onnx__get_floats(c, weft_arena_printf(arena, "%s_floats", stem), &f, &n_float));
    WEFT_TRY(weft_onnx__get_ints(c, weft_arena_printf(arena, "%s_int64s", stem), &i, &n_int));
    WEFT_TRY(weft_onnx__count_strings(c, weft_arena_printf(arena, "%s_strings", stem), &n_string));
    const char *tensor = weft_arena_printf(arena, "%s_tensor", stem);
    const Onnx__AttributeProto *a = weft_onnx__attr(c, tensor);
    bool strings = a && a->t && a->t->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__STRING;
    if (n_string || strings)
        return weft_onnx__fail(c, WEFT_ERR_UNSUP,
                               "strings as %s are not supported: convert the model with labels of "
                               "integers",
                               stem);
    WEFT_TRY(weft_onnx__get_tensor(c, tensor, &t));
    if ((n_float > 0) + (n_int > 0) + (t.rank >= 0) != 1)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "needs one list of %s", stem);
    if (t.rank < 0) {
        t = (weft_tensor){.dtype = n_int ? WEFT_DTYPE_I64 : WEFT_DTYPE_F32};
        t.dim[0] = n_int ? n_int : n_float;
        t.data = weft_arena_array(arena, (size_t)t.dim[0], n_int ? sizeof *i : sizeof *f);
        memcpy(t.data, n_int ? (const void *)i : (const void *)f,
               (size_t)t.dim[0] * (n_int ? sizeof *i : sizeof *f));
    } else {
        t.dim[0] = weft_tensor_numel(&t);
    }
    t.rank = 1;
    *out = t;
    return WEFT_ERR_OK;
}

/* The value of keys that are not in the table, as one element of the values' type. */
static weft_err read_default(weft_onnx_call *c, weft_dtype dtype, uint64_t *element)
{
    int64_t whole;
    double real;
    weft_tensor t, one = {.dtype = dtype, .data = element};
    WEFT_TRY(weft_onnx__get_int(c, "default_int64", -1, &whole));
    WEFT_TRY(weft_onnx__get_float(c, "default_float", -0.0, &real));
    WEFT_TRY(weft_onnx__get_tensor(c, "default_tensor", &t));
    weft_onnx__ignore(c, "default_string"); /* of values of strings, which are refused */
    *element = 0;
    if (t.rank >= 0 && (t.dtype != dtype || weft_tensor_numel(&t) != 1))
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "\"default_tensor\" is no element of type %s",
                               weft_dtype_name(dtype));
    if (t.rank >= 0)
        memcpy(element, t.data, weft_dtype_size(dtype));
    else if (weft_dtype_is_float(dtype))
        weft_tensor_set_f64(&one, 0, real);
    else
        weft_tensor_set_i64(&one, 0, whole);
    return WEFT_ERR_OK;
}

weft_err weft_onnx_hook_ml_label_encoder(weft_onnx_call *c)
{
    weft_onnx_build k = {.c = c};
    table t;
    uint64_t otherwise;
    if (c->n_in != 1 || !c->in[0].i)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%u inputs, expected 1", c->n_in);
    WEFT_TRY(read_list(c, "keys", &t.keys));
    WEFT_TRY(read_list(c, "values", &t.values));
    WEFT_TRY(read_default(c, t.values.dtype, &otherwise));
    if (t.keys.dim[0] != t.values.dim[0])
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%lld keys and %lld values",
                               (long long)t.keys.dim[0], (long long)t.values.dim[0]);
    if (weft_onnx__dtype_of(&k, c->in[0]) != t.keys.dtype)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "the input holds %s, the keys %s",
                               weft_dtype_name(weft_onnx__dtype_of(&k, c->in[0])),
                               weft_dtype_name(t.keys.dtype));
    c->out[0] = look_up(&k, &t, c->in[0], &otherwise);
    WEFT_TRY(k.err);
    return weft_onnx__no_more_attrs(c);
}
