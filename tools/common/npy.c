/* .npy files; see npy.h. */
#include "tools/common/npy.h"

#include "base/file.h"
#include "base/str.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char magic[] = "\x93NUMPY";
enum { MAGIC_LEN = 6, HEADER_ALIGN = 64 };

/* -- Reading -------------------------------------------------------------------------------- */

static weft_err bad(weft_diag *diag, const char *path, const char *what)
{
    return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = path},
                           "not a usable .npy: %s", what);
}

/* Returns the text behind 'key': in the header dictionary, with blanks skipped; NULL: no such
 * key. */
static const char *find_key(const char *header, const char *key)
{
    const char *at = strstr(header, key);
    if (!at)
        return NULL;
    at += strlen(key);
    while (*at == ' ' || *at == ':')
        at++;
    return at;
}

static weft_err parse_shape(const char *path, const char *s, weft_diag *diag, weft_tensor *out)
{
    if (*s++ != '(')
        return bad(diag, path, "no shape");
    while (*s != ')') {
        char *end;
        if (!isdigit((unsigned char)*s) || out->rank == WEFT_RANK_MAX)
            return bad(diag, path, "wrong shape");
        unsigned long long d = strtoull(s, &end, 10);
        if (d > (unsigned long long)WEFT_NUMEL_MAX)
            return bad(diag, path, "a dimension is too large");
        out->dim[out->rank++] = (int64_t)d;
        for (s = end; *s == ',' || *s == ' '; s++)
            ;
    }
    return WEFT_ERR_OK;
}

static weft_err parse_header(const char *path, const char *header, weft_diag *diag,
                             weft_tensor *out)
{
    const char *descr = find_key(header, "'descr'"), *shape = find_key(header, "'shape'");
    const char *order = find_key(header, "'fortran_order'");
    char type[8] = {0};
    if (!descr || !shape || !order || *descr != '\'')
        return bad(diag, path, "the header lacks descr, fortran_order or shape");
    size_t len = strcspn(descr + 1, "'");
    if (len >= sizeof type)
        return bad(diag, path, "unknown element type");
    memcpy(type, descr + 1, len);
    if (strncmp(order, "False", 5) != 0)
        return bad(diag, path, "Fortran order is not supported");
    *out = (weft_tensor){.dtype = weft_dtype_from_npy(type)};
    if (out->dtype == WEFT_DTYPE_NONE)
        return weft_diag_error(diag, WEFT_ERR_UNSUP, (weft_where){.file = path},
                               "element type %s is not supported", type);
    return parse_shape(path, shape, diag, out);
}

static weft_err parse_file(const char *path, const weft_file *f, weft_arena *arena, weft_diag *diag,
                           weft_tensor *out)
{
    if (f->len < 10 || memcmp(f->at, magic, MAGIC_LEN) != 0)
        return bad(diag, path, "wrong magic");
    bool wide = f->at[6] >= 2;
    uint64_t at = wide ? 12 : 10, len = f->at[8] | (uint64_t)f->at[9] << 8;
    if (wide && f->len >= 12)
        len |= (uint64_t)f->at[10] << 16 | (uint64_t)f->at[11] << 24;
    if (at > f->len || len > f->len - at || len > 65536)
        return bad(diag, path, "the header is cut off or too long");
    char *header = weft_arena_strndup(arena, (const char *)f->at + at, len);
    weft_tensor t;
    WEFT_TRY(parse_header(path, header, diag, &t));
    if (weft_numel(t.dim, t.rank) < 0 ||
        (uint64_t)weft_numel(t.dim, t.rank) > (f->len - at - len) / weft_dtype_size(t.dtype))
        return bad(diag, path, "the data is shorter than the shape says");
    size_t bytes = weft_tensor_bytes(&t);
    t.data = weft_arena_alloc(arena, bytes);
    memcpy(t.data, f->at + at + len, bytes);
    *out = t;
    return WEFT_ERR_OK;
}

weft_err weft_npy_load(const char *path, weft_arena *arena, weft_diag *diag, weft_tensor *out)
{
    weft_file f;
    WEFT_TRY(weft_file_map(path, diag, &f));
    weft_err err = parse_file(path, &f, arena, diag, out);
    weft_file_unmap(&f);
    return err;
}

/* -- Writing -------------------------------------------------------------------------------- */

/* NumPy has no name for some types: it gets a wider one. */
static weft_dtype saved_dtype(weft_dtype dtype)
{
    if (*weft_dtype_npy_name(dtype))
        return dtype;
    if (weft_dtype_is_float(dtype))
        return WEFT_DTYPE_F32;
    return weft_dtype_get_class(dtype) == WEFT_CLASS_SIGNED ? WEFT_DTYPE_I8 : WEFT_DTYPE_U8;
}

weft_err weft_npy_save(const char *path, const weft_tensor *t, weft_diag *diag)
{
    weft_buf dict = {0}, file = {0};
    weft_dtype dtype = saved_dtype(t->dtype);
    bool widen = dtype != t->dtype;
    weft_buf_printf(&dict, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                    weft_dtype_npy_name(dtype));
    for (int32_t i = 0; i < t->rank; i++)
        weft_buf_printf(&dict, "%lld,%s", (long long)t->dim[i], i + 1 < t->rank ? " " : "");
    weft_buf_puts(&dict, "), }");
    size_t over = (MAGIC_LEN + 4 + dict.len + 1) % HEADER_ALIGN;
    weft_buf_printf(&dict, "%*s\n", over ? (int)(HEADER_ALIGN - over) : 0, "");
    weft_buf_add(&file, magic, MAGIC_LEN);
    const char head[4] = {1, 0, (char)(dict.len & 0xff), (char)(dict.len >> 8)};
    weft_buf_add(&file, head, sizeof head);
    weft_buf_add(&file, dict.at, dict.len);
    for (int64_t i = 0; widen && i < weft_tensor_numel(t); i++) {
        uint64_t element = 0;
        weft_tensor one = {.dtype = dtype, .data = &element};
        weft_tensor_set_f64(&one, 0, weft_tensor_get_f64(t, i));
        weft_buf_add(&file, &element, weft_dtype_size(dtype));
    }
    if (!widen && weft_tensor_bytes(t))
        weft_buf_add(&file, t->data, weft_tensor_bytes(t));
    weft_err err = dict.failed || file.failed ? WEFT_ERR_NOMEM
                                              : weft_file_write(path, file.at, file.len, diag);
    weft_buf_finish(&dict);
    weft_buf_finish(&file);
    return err;
}
