/* Tensors: from a TensorProto, whose elements onnx_wire.c cut out, to a weight of the module.
 *
 * raw_data, float_data, double_data and external data are little-endian arrays and are used in
 * place. Protobuf does not align fields, so such a span may be misaligned for its element type:
 * small spans are copied, large ones are not, and code that reads weights in bulk must use memcpy.
 * Varint fields are decoded. */
#include "frontend/onnx_int.h"

#include "base/narrow.h"
#include "base/num.h"

#include <string.h>

static const struct data_type {
    const char *name;
    weft_dtype dtype;
    weft_onnx_field field; /* where elements are when they are not raw */
} data_types[] = {
    [0] = {"undefined", WEFT_DTYPE_NONE, WEFT_ONNX_NO_DATA},
    [1] = {"float", WEFT_DTYPE_F32, WEFT_ONNX_FLOAT_DATA},
    [2] = {"uint8", WEFT_DTYPE_U8, WEFT_ONNX_INT32_DATA},
    [3] = {"int8", WEFT_DTYPE_I8, WEFT_ONNX_INT32_DATA},
    [4] = {"uint16", WEFT_DTYPE_U16, WEFT_ONNX_INT32_DATA},
    [5] = {"int16", WEFT_DTYPE_I16, WEFT_ONNX_INT32_DATA},
    [6] = {"int32", WEFT_DTYPE_I32, WEFT_ONNX_INT32_DATA},
    [7] = {"int64", WEFT_DTYPE_I64, WEFT_ONNX_INT64_DATA},
    [8] = {"string", WEFT_DTYPE_NONE, WEFT_ONNX_STRING_DATA},
    [9] = {"bool", WEFT_DTYPE_BOOL, WEFT_ONNX_INT32_DATA},
    [10] = {"float16", WEFT_DTYPE_F16, WEFT_ONNX_INT32_DATA},
    [11] = {"double", WEFT_DTYPE_F64, WEFT_ONNX_DOUBLE_DATA},
    [12] = {"uint32", WEFT_DTYPE_U32, WEFT_ONNX_UINT64_DATA},
    [13] = {"uint64", WEFT_DTYPE_U64, WEFT_ONNX_UINT64_DATA},
    [14] = {"complex64", WEFT_DTYPE_NONE, WEFT_ONNX_NO_DATA},
    [15] = {"complex128", WEFT_DTYPE_NONE, WEFT_ONNX_NO_DATA},
    [16] = {"bfloat16", WEFT_DTYPE_BF16, WEFT_ONNX_INT32_DATA},
    [17] = {"float8e4m3fn", WEFT_DTYPE_F8E4M3FN, WEFT_ONNX_INT32_DATA},
    [18] = {"float8e4m3fnuz", WEFT_DTYPE_F8E4M3FNUZ, WEFT_ONNX_INT32_DATA},
    [19] = {"float8e5m2", WEFT_DTYPE_F8E5M2, WEFT_ONNX_INT32_DATA},
    [20] = {"float8e5m2fnuz", WEFT_DTYPE_F8E5M2FNUZ, WEFT_ONNX_INT32_DATA},
    [21] = {"uint4", WEFT_DTYPE_U4, WEFT_ONNX_INT32_DATA},
    [22] = {"int4", WEFT_DTYPE_I4, WEFT_ONNX_INT32_DATA},
    [23] = {"float4e2m1", WEFT_DTYPE_F4E2M1, WEFT_ONNX_INT32_DATA},
    [24] = {"float8e8m0", WEFT_DTYPE_F8E8M0, WEFT_ONNX_INT32_DATA},
    [25] = {"uint2", WEFT_DTYPE_U2, WEFT_ONNX_INT32_DATA},
    [26] = {"int2", WEFT_DTYPE_I2, WEFT_ONNX_INT32_DATA},
    [27] = {"float6e2m3", WEFT_DTYPE_F6E2M3, WEFT_ONNX_INT32_DATA},
    [28] = {"float6e3m2", WEFT_DTYPE_F6E3M2, WEFT_ONNX_INT32_DATA},
};

enum { N_DATA_TYPES = sizeof data_types / sizeof data_types[0] };

weft_dtype weft_onnx__dtype(int64_t onnx_type, const char **out_name)
{
    bool known = onnx_type >= 0 && onnx_type < N_DATA_TYPES;
    if (out_name)
        *out_name = known ? data_types[onnx_type].name : "unknown";
    return known ? data_types[onnx_type].dtype : WEFT_DTYPE_NONE;
}

static weft_err read_type(weft_onnx_ctx *cx, const Onnx__TensorProto *t, weft_where where,
                          weft_onnx_data *out, uint64_t *out_numel)
{
    const char *type_name;
    out->dtype = weft_onnx__dtype(t->data_type, &type_name);
    if (out->dtype == WEFT_DTYPE_NONE)
        return weft_diag_error(cx->diag, t->data_type ? WEFT_ERR_UNSUP : WEFT_ERR_INPUT, where,
                               "tensors of data type %d (%s) are not supported", t->data_type,
                               type_name);
    if (t->n_dims > WEFT_RANK_MAX)
        return weft_diag_error(cx->diag, WEFT_ERR_UNSUP, where, "rank %zu is over %d", t->n_dims,
                               WEFT_RANK_MAX);
    out->rank = (int32_t)t->n_dims;
    for (size_t i = 0; i < t->n_dims; i++) {
        if (t->dims[i] < 0)
            return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where, "dimension %zu is %lld", i,
                                   (long long)t->dims[i]);
        out->dim[i] = t->dims[i];
    }
    int64_t numel = weft_numel(out->dim, out->rank);
    if (numel < 0)
        return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where, "too many elements");
    *out_numel = (uint64_t)numel;
    out->bytes = weft_narrow_packed_bytes(out->dtype, (uint64_t)numel);
    return WEFT_ERR_OK;
}

/* -- External data ---------------------------------------------------------------------------- */

static weft_err map_external(weft_onnx_ctx *cx, const char *location, weft_where where,
                             const weft_onnx_external **out)
{
    for (uint32_t i = 0; i < cx->external.len; i++) {
        if (strcmp(cx->external.at[i].location, location) == 0) {
            *out = &cx->external.at[i];
            return WEFT_ERR_OK;
        }
    }
    if (!cx->dir)
        return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where,
                               "external data \"%s\" where none is allowed", location);
    weft_file file;
    bool links = cx->options && cx->options->allow_hard_links;
    weft_err err = links ? weft_file_map_beneath_linked(cx->dir, location, cx->diag, &file)
                         : weft_file_map_beneath(cx->dir, location, cx->diag, &file);
    if (err != WEFT_ERR_OK) {
        weft_diag_note(cx->diag, where, "external data of this tensor");
        return err;
    }
    weft_onnx_external ext = {.location = location, .file = file};
    const char *slash = cx->dir[0] ? "/" : "";
    char *path = weft_arena_printf(cx->arena, "%s%s%s", cx->dir, slash, location);
    ext.file_id = weft_module_own_file(cx->m, path, file);
    WEFT_VEC_PUSH(cx->arena, &cx->external, ext);
    *out = &cx->external.at[cx->external.len - 1];
    return WEFT_ERR_OK;
}

static weft_err read_external_number(weft_onnx_ctx *cx, const Onnx__StringStringEntryProto *e,
                                     weft_where where, uint64_t *out)
{
    int64_t x;
    if (!weft_parse_i64(e->value ? e->value : "", &x) || x < 0)
        return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where, "external data: %s is \"%s\"",
                               e->key, e->value ? e->value : "");
    *out = (uint64_t)x;
    return WEFT_ERR_OK;
}

static weft_err read_external(weft_onnx_ctx *cx, const Onnx__TensorProto *t, weft_where where,
                              weft_onnx_data *out)
{
    const char *location = NULL;
    uint64_t offset = 0, length = UINT64_MAX;
    uint32_t seen = 0;
    for (size_t i = 0; i < t->n_external_data; i++) {
        const Onnx__StringStringEntryProto *e = t->external_data[i];
        static const char *const keys[] = {"location", "offset", "length", "checksum"};
        uint32_t k = 0;
        while (k < 4 && strcmp(e->key ? e->key : "", keys[k]) != 0)
            k++;
        if (k == 4)
            return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where,
                                   "external data: unknown key \"%s\"", e->key ? e->key : "");
        if (seen >> k & 1)
            return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where,
                                   "external data: key \"%s\" is repeated", keys[k]);
        seen |= 1u << k;
        if (k == 0)
            location = e->value ? e->value : "";
        else if (k == 1)
            WEFT_TRY(read_external_number(cx, e, where, &offset));
        else if (k == 2)
            WEFT_TRY(read_external_number(cx, e, where, &length));
    }
    if (!location)
        return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where, "external data without location");
    const weft_onnx_external *ext = NULL;
    WEFT_TRY(map_external(cx, location, where, &ext));
    if (offset > ext->file.len || (length != UINT64_MAX && length > ext->file.len - offset))
        return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where,
                               "external data: %llu bytes at %llu, \"%s\" has %llu bytes",
                               (unsigned long long)(length == UINT64_MAX ? 0 : length),
                               (unsigned long long)offset, location,
                               (unsigned long long)ext->file.len);
    if (length == UINT64_MAX)
        length = ext->file.len - offset;
    if (length != out->bytes)
        return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where,
                               "external data: %llu bytes, the tensor has %llu",
                               (unsigned long long)length, (unsigned long long)out->bytes);
    out->at = ext->file.at + offset;
    out->file_id = ext->file_id;
    out->offset = offset;
    return WEFT_ERR_OK;
}

/* -- Elements --------------------------------------------------------------------------------- */

static weft_err decode_varints(weft_onnx_ctx *cx, const weft_onnx_payload *p, uint64_t numel,
                               weft_arena *arena, weft_where where, weft_onnx_data *out)
{
    /* Each varint has at least one byte: checked before the allocation. */
    if (numel > p->len)
        return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where,
                               "%llu bytes of varints, the tensor has %llu elements",
                               (unsigned long long)p->len, (unsigned long long)numel);
    size_t size = weft_dtype_size(out->dtype);
    uint64_t *x = weft_arena_array(arena, numel, sizeof *x);
    if (!weft_onnx__varints(p->at, p->len, numel, x))
        return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where, "the elements are not %llu varints",
                               (unsigned long long)numel);
    uint8_t *to = size == sizeof *x ? (uint8_t *)x : weft_arena_alloc(arena, out->bytes);
    for (uint64_t i = 0; size < sizeof *x && i < numel; i++) {
        uint64_t bits = out->dtype == WEFT_DTYPE_BOOL ? x[i] != 0 : x[i];
        memcpy(to + i * size, &bits, size); /* the low bytes: little-endian */
    }
    out->at = to;
    return WEFT_ERR_OK;
}

static weft_err read_payload(weft_onnx_ctx *cx, const weft_onnx_payload *p, int32_t onnx_type,
                             uint64_t numel, weft_arena *arena, weft_where where,
                             weft_onnx_data *out)
{
    if (p->field == WEFT_ONNX_NO_DATA && out->bytes == 0) {
        out->at = weft_arena_alloc(arena, 0);
        return WEFT_ERR_OK;
    }
    if (p->field != WEFT_ONNX_RAW_DATA && p->field != data_types[onnx_type].field)
        return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where, "%s for elements of type %s",
                               p->field == WEFT_ONNX_NO_DATA ? "no elements" : "the wrong field",
                               data_types[onnx_type].name);
    /* In int32_data 4- and 2-bit elements are packed into bytes, 6-bit ones are not. */
    out->is_loose = weft_dtype_bits(out->dtype) == 6 && p->field == WEFT_ONNX_INT32_DATA;
    if (out->is_loose)
        out->bytes = numel;
    else if (weft_dtype_bits(out->dtype) < 8)
        numel = out->bytes;
    bool is_varint = p->field == WEFT_ONNX_INT32_DATA || p->field == WEFT_ONNX_INT64_DATA ||
                     p->field == WEFT_ONNX_UINT64_DATA;
    if (is_varint)
        return decode_varints(cx, p, numel, arena, where, out);
    if (p->len != out->bytes)
        return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where, "%llu bytes, the tensor has %llu",
                               (unsigned long long)p->len, (unsigned long long)out->bytes);
    out->at = p->at;
    if (!p->room && p->len) {
        out->file_id = cx->file_id;
        out->offset = (uint64_t)(p->at - cx->bytes);
    }
    return WEFT_ERR_OK;
}

/* Elements of fewer than 8 bits, packed in files, to a byte each. */
static void unpack_elements(weft_arena *arena, uint64_t numel, weft_onnx_data *data)
{
    uint8_t *out = weft_arena_alloc(arena, numel);
    weft_narrow_unpack(data->dtype, data->at, numel, out);
    data->at = out;
    data->bytes = numel;
    data->file_id = 0;
    data->offset = 0;
}

/* Normalises bools: bytes other than 0 become 1. */
static void normalise_bools(weft_arena *arena, weft_onnx_data *data)
{
    uint64_t i = 0;
    while (i < data->bytes && data->at[i] <= 1)
        i++;
    if (i == data->bytes)
        return;
    uint8_t *copy = weft_arena_alloc(arena, data->bytes);
    for (i = 0; i < data->bytes; i++)
        copy[i] = data->at[i] != 0;
    data->at = copy;
    data->file_id = 0;
    data->offset = 0;
}

weft_err weft_onnx__tensor(weft_onnx_ctx *cx, const Onnx__TensorProto *t, weft_arena *arena,
                           weft_where where, weft_onnx_data *out)
{
    weft_onnx_data data = {0};
    uint64_t numel = 0;
    WEFT_TRY(read_type(cx, t, where, &data, &numel));
    weft_onnx_payload none = {.field = WEFT_ONNX_NO_DATA};
    uint64_t i = t->segment ? (uint64_t)t->segment->begin : UINT64_MAX;
    const weft_onnx_payload *p = i < cx->slim.n_payload ? &cx->slim.payload[i] : &none;
    if (t->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL) {
        if (p->field != WEFT_ONNX_NO_DATA && p->len)
            return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where,
                                   "elements both inside and in external data");
        WEFT_TRY(read_external(cx, t, where, &data));
    } else {
        WEFT_TRY(read_payload(cx, p, t->data_type, numel, arena, where, &data));
    }
    if (data.dtype == WEFT_DTYPE_BOOL)
        normalise_bools(arena, &data);
    if (weft_dtype_bits(data.dtype) < 8 && !data.is_loose)
        unpack_elements(arena, numel, &data);
    if (data.bytes <= WEFT_ONNX_COPY_MAX && (uintptr_t)data.at % weft_dtype_size(data.dtype) != 0) {
        void *copy = weft_arena_alloc(arena, data.bytes);
        memcpy(copy, data.at, data.bytes);
        data.at = copy;
    }
    *out = data;
    return WEFT_ERR_OK;
}

weft_err weft_onnx__weight(weft_onnx_ctx *cx, const Onnx__TensorProto *t, const char *name,
                           weft_where where, weft_val *out)
{
    weft_onnx_data data;
    WEFT_TRY(weft_onnx__tensor(cx, t, weft_module_arena(cx->m), where, &data));
    weft_weight_info info = {.type =
                                 weft_type_make(cx->m, data.dtype, data.dim, (uint32_t)data.rank),
                             .name = name,
                             .data = data.at,
                             .bytes = data.bytes,
                             .file_id = data.file_id,
                             .offset = data.offset};
    *out = weft_weight_val(cx->m, weft_weight_add(cx->m, &info));
    return WEFT_ERR_OK;
}
