/* Headers of safetensors files.
 *
 *     u64 N, little endian | N bytes of JSON | data
 *
 * The JSON object has an entry {"dtype", "shape", "data_offsets": [begin, end]} for each tensor,
 * with offsets from the start of the data, and perhaps "__metadata__", strings by string. */
#include "runtime/adapter/adapter.h"

#include "base/num.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

typedef struct span {
    uint64_t begin, end;
} span;

typedef struct reader {
    const char *path;
    weft_diag *diag;
    const uint8_t *data;
    uint64_t data_len;
    weft_safetensor *at;
    span *span;
    uint32_t n;
} reader;

#define REFUSE(r, name, ...)                                                                    \
    weft_diag_error((r)->diag, WEFT_ERR_INPUT, (weft_where){.file = (r)->path, .item = (name)}, \
                    __VA_ARGS__)

/* Names are shown in messages and compared with others. */
static bool is_name(const char *s)
{
    for (; *s; s++)
        if (iscntrl((unsigned char)*s))
            return false;
    return true;
}

static weft_dtype find_dtype(const char *text)
{
    return strcmp(text, "F32") == 0    ? WEFT_DTYPE_F32
           : strcmp(text, "F16") == 0  ? WEFT_DTYPE_F16
           : strcmp(text, "BF16") == 0 ? WEFT_DTYPE_BF16
                                       : WEFT_DTYPE_NONE;
}

static weft_err read_shape(const reader *r, const char *name, const json_t *shape, weft_tensor *to)
{
    if (!json_is_array(shape) || json_array_size(shape) > WEFT_RANK_MAX)
        return REFUSE(r, name, "shape is no list of at most %d sizes", WEFT_RANK_MAX);
    to->rank = (int32_t)json_array_size(shape);
    for (int32_t i = 0; i < to->rank; i++) {
        const json_t *dim = json_array_get(shape, (size_t)i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return REFUSE(r, name, "size %d of the shape is no number of at least 0", i);
        to->dim[i] = json_integer_value(dim);
    }
    if (weft_numel(to->dim, to->rank) < 0)
        return REFUSE(r, name, "has too many elements");
    return WEFT_ERR_OK;
}

static weft_err read_offsets(const reader *r, const char *name, const json_t *offsets,
                             const weft_tensor *of, span *out)
{
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    uint64_t bytes = 0;
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin))
        return REFUSE(r, name, "data_offsets are not [begin, end]");
    *out = (span){(uint64_t)json_integer_value(begin), (uint64_t)json_integer_value(end)};
    if (!weft_size_mul((uint64_t)weft_tensor_numel(of), weft_dtype_size(of->dtype), &bytes) ||
        out->end - out->begin != bytes)
        return REFUSE(r, name, "has %llu bytes, its shape needs %llu",
                      (unsigned long long)(out->end - out->begin), (unsigned long long)bytes);
    if (out->end > r->data_len)
        return REFUSE(r, name, "ends at byte %llu, the data has %llu", (unsigned long long)out->end,
                      (unsigned long long)r->data_len);
    return WEFT_ERR_OK;
}

static weft_err read_entry(reader *r, const char *name, const json_t *entry, weft_arena *arena)
{
    weft_safetensor *to = &r->at[r->n];
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    if (!*name || !is_name(name))
        return REFUSE(r, NULL, "a tensor has an empty name, or one with control characters");
    if (!dtype)
        return REFUSE(r, name, "has no dtype");
    *to = (weft_safetensor){.name = weft_arena_strdup(arena, name)};
    to->tensor.dtype = find_dtype(dtype);
    if (to->tensor.dtype == WEFT_DTYPE_NONE)
        return REFUSE(r, name, "element type %s is not supported: F32, F16 and BF16 are", dtype);
    WEFT_TRY(read_shape(r, name, json_object_get(entry, "shape"), &to->tensor));
    WEFT_TRY(
        read_offsets(r, name, json_object_get(entry, "data_offsets"), &to->tensor, &r->span[r->n]));
    to->tensor.data = (void *)(uintptr_t)(r->data + r->span[r->n].begin);
    r->n++;
    return WEFT_ERR_OK;
}

static weft_err read_metadata(const reader *r, json_t *metadata)
{
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        return REFUSE(r, "__metadata__", "is no object");
    json_object_foreach(metadata, key, value) if (!json_is_string(value)) return REFUSE(
        r, "__metadata__", "has a value that is no string");
    return WEFT_ERR_OK;
}

static int compare_places(const void *a, const void *b)
{
    const weft_safetensor *s = a, *t = b;
    const uint8_t *x = s->tensor.data, *y = t->tensor.data;
    size_t nx = weft_tensor_bytes(&s->tensor), ny = weft_tensor_bytes(&t->tensor);
    return x != y ? (x > y) - (x < y) : nx != ny ? (nx > ny) - (nx < ny) : strcmp(s->name, t->name);
}

/* The tensors, one behind the other, are the data. */
static weft_err check_tiles(reader *r)
{
    const uint8_t *at = r->data;
    qsort(r->at, r->n, sizeof *r->at, compare_places);
    for (uint32_t i = 0; i < r->n; i++) {
        if ((const uint8_t *)r->at[i].tensor.data != at)
            return REFUSE(r, r->at[i].name, "begins at byte %llu of the data, %llu is expected",
                          (unsigned long long)((const uint8_t *)r->at[i].tensor.data - r->data),
                          (unsigned long long)(at - r->data));
        at += weft_tensor_bytes(&r->at[i].tensor);
    }
    if (at != r->data + r->data_len)
        return REFUSE(r, NULL, "has %llu bytes behind its tensors",
                      (unsigned long long)(r->data + r->data_len - at));
    return WEFT_ERR_OK;
}

static weft_err read_header(reader *r, json_t *root, weft_arena *arena)
{
    const char *name;
    json_t *entry;
    size_t n = json_object_size(root);
    r->at = weft_arena_array(arena, n + 1, sizeof *r->at);
    r->span = weft_arena_array(arena, n + 1, sizeof *r->span);
    json_object_foreach(root, name, entry)
    {
        weft_err err = strcmp(name, "__metadata__") == 0 ? read_metadata(r, entry)
                                                         : read_entry(r, name, entry, arena);
        if (err != WEFT_ERR_OK)
            return err;
    }
    return check_tiles(r);
}

weft_err weft_safetensors_read(const uint8_t *at, size_t len, const char *path, weft_arena *arena,
                               weft_diag *diag, weft_safetensors *out)
{
    reader r = {.path = path, .diag = diag};
    uint64_t header = 0;
    if (len < 8)
        return REFUSE(&r, NULL, "has %zu bytes: no safetensors file", len);
    for (int i = 0; i < 8; i++)
        header |= (uint64_t)at[i] << (8 * i);
    if (header > len - 8 || header > (uint64_t)WEFT_SAFETENSORS_HEADER_MIB << 20)
        return REFUSE(&r, NULL, "header has %llu bytes, the file %zu; at most %d MiB are read",
                      (unsigned long long)header, len, WEFT_SAFETENSORS_HEADER_MIB);
    r.data = at + 8 + header;
    r.data_len = len - 8 - header;
    json_error_t why;
    json_t *root = json_loadb((const char *)at + 8, (size_t)header, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(root)) {
        json_decref(root);
        return REFUSE(&r, NULL, "header is no JSON object: %s", root ? "another value" : why.text);
    }
    weft_err err;
    jmp_buf env, *before = weft_arena_guard(arena, &env);
    if (setjmp(env))
        err = WEFT_ERR_NOMEM;
    else
        err = read_header(&r, root, arena);
    weft_arena_guard(arena, before);
    json_decref(root);
    if (err == WEFT_ERR_OK)
        *out = (weft_safetensors){.at = r.at, .n = r.n};
    return err;
}
