/* zlib, with bounds on what comes out. */
#include "runtime/server/zip.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    RATIO_FREE_BYTES = 1 << 20,
    FIRST_BYTES = 64 << 10,
    ANY_FORM = 15 + 32, /* windowBits: by the first bytes */
    GZIP = 15 + 16,
    ZLIB = 15,
    MEM_LEVEL = 8
};

const char *weft_zip__name(weft_zip_form form)
{
    static const char *const names[] = {"identity", "gzip", "deflate"};
    return names[form];
}

size_t weft_zip__most(size_t len, size_t max)
{
    uint64_t most = len > RATIO_FREE_BYTES / WEFT_ZIP_RATIO_MAX ? (uint64_t)len * WEFT_ZIP_RATIO_MAX
                                                                : RATIO_FREE_BYTES;
    return most < max ? (size_t)most : max;
}

/* Doubles the memory, which starts small: what was announced has not been unpacked yet. */
static bool grow(char **at, size_t *cap, size_t most)
{
    size_t more = *cap ? *cap * 2 : (size_t)FIRST_BYTES;
    more = more < most ? more : most;
    char *grown = realloc(*at, more + 1);
    if (!grown)
        return false;
    *at = grown;
    *cap = more;
    return true;
}

/* Fills the memory up to the end of the member. */
static weft_zip_result inflate_all(z_stream *z, size_t most, char **out, size_t *out_len)
{
    size_t cap = 0;
    int state = Z_OK;
    char probe; /* tells a member that ends at the limit from a longer one */
    for (;;) {
        if (*out_len == cap && (cap < most || !*out) && !grow(out, &cap, most))
            return WEFT_ZIP_NOMEM;
        bool full = *out_len == cap;
        z->next_out = (Bytef *)(full ? &probe : *out + *out_len);
        z->avail_out = full ? 1 : (uInt)(cap - *out_len);
        uInt room = z->avail_out;
        state = inflate(z, Z_NO_FLUSH);
        size_t got = room - z->avail_out;
        if (full && got)
            return WEFT_ZIP_TOO_LARGE;
        *out_len += got;
        if (state == Z_STREAM_END)
            return z->avail_in ? WEFT_ZIP_DAMAGED : WEFT_ZIP_OK;
        if (state != Z_OK)
            return state == Z_MEM_ERROR ? WEFT_ZIP_NOMEM : WEFT_ZIP_DAMAGED;
    }
}

weft_zip_result weft_zip__unpack(const void *in, size_t len, size_t most, char **out,
                                 size_t *out_len)
{
    z_stream z = {.next_in = (Bytef *)in, .avail_in = (uInt)len};
    *out = NULL;
    *out_len = 0;
    if (len > UINT32_MAX || most > UINT32_MAX)
        return WEFT_ZIP_TOO_LARGE;
    if (inflateInit2(&z, ANY_FORM) != Z_OK)
        return WEFT_ZIP_NOMEM;
    weft_zip_result result = inflate_all(&z, most, out, out_len);
    inflateEnd(&z);
    if (result != WEFT_ZIP_OK) {
        free(*out);
        *out = NULL;
    }
    return result;
}

bool weft_zip__pack(weft_zip_form form, const void *in, size_t len, size_t before, uint8_t **out,
                    size_t *out_len)
{
    z_stream z = {.next_in = (Bytef *)in, .avail_in = (uInt)len};
    uint8_t *at = len <= UINT32_MAX ? malloc(before + len + 1) : NULL;
    if (!at || deflateInit2(&z, Z_BEST_SPEED, Z_DEFLATED, form == WEFT_ZIP_GZIP ? GZIP : ZLIB,
                            MEM_LEVEL, Z_DEFAULT_STRATEGY) != Z_OK) {
        free(at);
        return false;
    }
    z.next_out = at + before;
    z.avail_out = (uInt)len; /* no room to become larger */
    bool ok = deflate(&z, Z_FINISH) == Z_STREAM_END;
    *out_len = before + len - z.avail_out;
    deflateEnd(&z);
    if (!ok) {
        free(at);
        return false;
    }
    *out = at;
    return true;
}
