/* Types and weights in text: the size of a weight is checked against the limit before anything is
 * allocated. */
#include "ir/parse_int.h"

#include <string.h>

weft_err weft_parser__type(weft_parser *p, weft_type *out)
{
    weft_ttype t = {0};
    if (p->tok.kind != WEFT_TOKEN_WORD)
        return weft_parser__expected(p, "a type");
    if (weft_parser__is_word(p, "none")) {
        *out = (weft_type){0};
        return weft_parser__next(p);
    }
    t.dtype = (uint8_t)weft_dtype_parse(p->tok.s);
    if (t.dtype == WEFT_DTYPE_NONE)
        return weft_parser__expected(p, "a type");
    WEFT_TRY(weft_parser__next(p));
    const weft_dim *dim;
    uint32_t rank;
    WEFT_TRY(weft_parser__dims(p, WEFT_RANK_MAX, &dim, &rank));
    t.rank = (uint8_t)rank;
    for (uint32_t k = 0; k < rank; k++) {
        if (weft_dim_is_const(dim[k]) && dim[k] < 0)
            return weft_parser__fail(p, "dimension %u is negative", k);
        t.dim[k] = dim[k];
    }
    /* f32[8]:c16; nothing else that starts with ':' follows a type. */
    if (weft_parser__is_punct(p, ':')) {
        weft_layout layout;
        WEFT_TRY(weft_parser__next(p));
        if (p->tok.kind != WEFT_TOKEN_WORD || !weft_layout_parse(p->tok.s, &layout))
            return weft_parser__expected(p, "a layout");
        t.layout = (uint8_t)layout;
        WEFT_TRY(weft_parser__next(p));
    }
    *out = weft_type_intern(p->m, &t);
    return WEFT_ERR_OK;
}

/* One element, by the class of its type. */
static weft_err read_element(weft_parser *p, const weft_tensor *t, int64_t i)
{
    if (weft_dtype_is_float(t->dtype)) {
        double x;
        WEFT_TRY(weft_parser__f64(p, &x));
        weft_tensor_set_f64(t, i, x);
        return WEFT_ERR_OK;
    }
    if (t->dtype == WEFT_DTYPE_U64) {
        uint64_t x;
        WEFT_TRY(weft_parser__u64(p, UINT64_MAX, "an element", &x));
        memcpy((char *)t->data + (size_t)i * sizeof x, &x, sizeof x);
        return WEFT_ERR_OK;
    }
    int64_t x;
    weft_token tok = p->tok;
    WEFT_TRY(weft_parser__i64(p, &x));
    weft_tensor_set_i64(t, i, x);
    if (weft_tensor_get_i64(t, i) == x)
        return WEFT_ERR_OK;
    p->tok = tok;
    return weft_parser__fail(p, "%lld does not fit %s", (long long)x, weft_dtype_name(t->dtype));
}

static weft_err read_dense(weft_parser *p, const weft_tensor *t, int64_t n)
{
    WEFT_TRY(weft_parser__punct(p, '['));
    for (int64_t i = 0; i < n; i++) {
        if (i)
            WEFT_TRY(weft_parser__punct(p, ','));
        WEFT_TRY(read_element(p, t, i));
    }
    return weft_parser__punct(p, ']');
}

static weft_err read_splat(weft_parser *p, const weft_tensor *t, int64_t n)
{
    size_t size = weft_dtype_size(t->dtype);
    uint64_t one = 0;
    weft_tensor element = {.dtype = t->dtype, .rank = 1, .dim = {1}, .data = &one};
    WEFT_TRY(read_element(p, &element, 0));
    /* Memory is zeroed already: large weights of zeros touch no pages. */
    for (int64_t i = 0; i < n && one != 0; i++)
        memcpy((char *)t->data + (size_t)i * size, &one, size);
    return WEFT_ERR_OK;
}

static int digit_value(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static weft_err read_base64(weft_parser *p, uint8_t *out, uint64_t bytes)
{
    if (p->tok.kind != WEFT_TOKEN_STRING)
        return weft_parser__expected(p, "a string");
    if (p->tok.s_len != (bytes + 2) / 3 * 4)
        return weft_parser__fail(p, "%llu characters of base64, %llu bytes need %llu",
                                 (unsigned long long)p->tok.s_len, (unsigned long long)bytes,
                                 (unsigned long long)((bytes + 2) / 3 * 4));
    for (uint64_t i = 0; i < bytes; i += 3) {
        const char *s = p->tok.s + i / 3 * 4;
        uint32_t left = bytes - i < 3 ? (uint32_t)(bytes - i) : 3, x = 0;
        for (uint32_t k = 0; k < 4; k++) {
            int d = k <= left ? digit_value(s[k]) : s[k] == '=' ? 0 : -1;
            if (d < 0)
                return weft_parser__fail(p, "a wrong character in base64");
            x = x << 6 | (uint32_t)d;
        }
        if (left < 3 && x << (8 + 8 * left) != 0)
            return weft_parser__fail(p, "base64 has bits behind its end");
        for (uint32_t k = 0; k < left; k++)
            out[i + k] = (uint8_t)(x >> (16 - 8 * k));
    }
    return weft_parser__next(p);
}

/* Maps each file once. */
static weft_err open_file(weft_parser *p, const char *name, uint32_t *out)
{
    for (uint32_t i = 1; i < p->m->files.len; i++) {
        if (p->m->files.at[i].owned && strcmp(p->m->files.at[i].path, name) == 0) {
            *out = i;
            return WEFT_ERR_OK;
        }
    }
    if (!p->dir)
        return weft_parser__fail(p, "weights in files are not allowed here");
    weft_file file;
    /* Allocates first: between mapping the file and giving it to the module nothing may unwind. */
    const char *path = weft_arena_strdup(p->m->arena, name);
    WEFT_VEC_PUSH(p->m->arena, &p->m->files, (weft_module_file){.path = path});
    WEFT_TRY(weft_file_map_beneath(p->dir, name, p->diag, &file));
    *out = p->m->files.len - 1;
    p->m->files.at[*out].file = file;
    p->m->files.at[*out].owned = true;
    return WEFT_ERR_OK;
}

static weft_err read_file(weft_parser *p, weft_weight_info *info)
{
    const char *name;
    WEFT_TRY(weft_parser__string(p, &name));
    WEFT_TRY(open_file(p, name, &info->file_id));
    WEFT_TRY(weft_parser__word(p, "offset"));
    weft_token tok = p->tok;
    WEFT_TRY(weft_parser__u64(p, UINT64_MAX, "an offset", &info->offset));
    const weft_file *file = weft_module__file(p->m, info->file_id);
    if (info->offset > file->len || info->bytes > file->len - info->offset) {
        p->tok = tok;
        return weft_parser__fail(p, "%llu bytes at offset %llu are not in the file of %llu bytes",
                                 (unsigned long long)info->bytes, (unsigned long long)info->offset,
                                 (unsigned long long)file->len);
    }
    info->data = file->at + info->offset;
    return WEFT_ERR_OK;
}

static weft_err read_made(weft_parser *p, weft_weight_info *info, bool *is_random, uint64_t *seed)
{
    const weft_ttype *type = weft_type_get(p->m, info->type);
    if (info->bytes > p->weight_bytes)
        return weft_parser__fail(p, "weights are over the limit of memory");
    p->weight_bytes -= info->bytes;
    weft_tensor t = {.dtype = (weft_dtype)type->dtype, .rank = 1};
    t.dim[0] = (int64_t)(info->bytes / weft_dtype_size(t.dtype));
    t.data = weft_arena_alloc(p->m->arena, info->bytes);
    info->data = t.data;
    if (weft_parser__is_word(p, "random")) {
        WEFT_TRY(weft_parser__next(p));
        WEFT_TRY(weft_parser__u64(p, UINT64_MAX, "a seed", seed));
        *is_random = true;
        weft_weight__generate(t.dtype, *seed, (uint64_t)t.dim[0], t.data);
        return WEFT_ERR_OK;
    }
    if (weft_parser__is_word(p, "splat")) {
        WEFT_TRY(weft_parser__next(p));
        return read_splat(p, &t, t.dim[0]);
    }
    if (weft_parser__is_word(p, "dense")) {
        WEFT_TRY(weft_parser__next(p));
        return read_dense(p, &t, t.dim[0]);
    }
    if (weft_parser__is_word(p, "base64")) {
        WEFT_TRY(weft_parser__next(p));
        return read_base64(p, t.data, info->bytes);
    }
    return weft_parser__expected(p, "`random`, `splat`, `dense`, `base64` or `file`");
}

weft_err weft_parser__weight(weft_parser *p)
{
    weft_weight_info info = {0};
    bool is_random = false;
    uint64_t seed = 0, group = 0, found;
    WEFT_TRY(weft_parser__next(p));
    if (p->tok.kind != WEFT_TOKEN_WEIGHT)
        return weft_parser__expected(p, "a weight");
    uint32_t name = weft_names_add(p->names, p->tok.s, p->tok.s_len);
    if (weft_map_get(p->weights, name, &found))
        return weft_parser__fail(p, "weight $%s is defined twice", p->tok.s);
    info.name = p->tok.s;
    WEFT_TRY(weft_parser__next(p));
    if (p->tok.kind == WEFT_TOKEN_STRING)
        WEFT_TRY(weft_parser__string(p, &info.name));
    WEFT_TRY(weft_parser__punct(p, ':'));
    weft_token tok = p->tok;
    WEFT_TRY(weft_parser__type(p, &info.type));
    if (!weft_type__bytes(p->m, info.type, &info.bytes)) {
        p->tok = tok;
        return weft_parser__fail(p, "a weight needs constant dimensions and the plain layout");
    }
    WEFT_TRY(weft_parser__punct(p, '='));
    if (weft_parser__is_word(p, "file")) {
        WEFT_TRY(weft_parser__next(p));
        WEFT_TRY(read_file(p, &info));
    } else {
        WEFT_TRY(read_made(p, &info, &is_random, &seed));
    }
    if (weft_parser__is_word(p, "group")) {
        WEFT_TRY(weft_parser__next(p));
        WEFT_TRY(weft_parser__u64(p, UINT32_MAX, "a group", &group));
    }
    info.group = (uint32_t)group;
    weft_weight w = weft_weight_add(p->m, &info);
    if (is_random)
        weft_weight__set_random(p->m, w, seed);
    weft_map_put(p->weights, name, w.i);
    return WEFT_ERR_OK;
}
