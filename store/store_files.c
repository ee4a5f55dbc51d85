/* Files, digests and names of a store. */
#include "store/store_int.h"

#include "base/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 20, TAG_MAX = 128 };

bool weft_store__hash(const void *bytes, size_t len, uint8_t *out)
{
    return EVP_Digest(bytes, len, out, NULL, EVP_sha256(), NULL) == 1;
}

weft_err weft_store__hash_file(int fd, const char *path, weft_diag *diag, uint8_t *out)
{
    unsigned char *part = malloc(READ_BYTES);
    EVP_MD_CTX *sum = EVP_MD_CTX_new();
    bool ok = part && sum && EVP_DigestInit_ex(sum, EVP_sha256(), NULL) == 1;
    int code = 0;
    for (off_t at = 0; ok && !code;) {
        ssize_t n = pread(fd, part, READ_BYTES, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            break;
        code = n < 0 ? errno : 0;
        ok = n < 0 || EVP_DigestUpdate(sum, part, (size_t)n) == 1;
        at += n;
    }
    ok = ok && EVP_DigestFinal_ex(sum, out, NULL) == 1;
    EVP_MD_CTX_free(sum);
    free(part);
    return code ? weft_file_report(diag, path, "read", code) : ok ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
}

char *weft_store__chunk_name(const weft_chunk *chunk, weft_arena *arena)
{
    char hex[WEFT_SHA256_TEXT];
    weft_chunk_print_sha256(chunk->sha256, hex);
    return weft_arena_printf(arena, "chunks/%.2s/%s%s", hex, hex, chunk->stored ? ".zst" : "");
}

char *weft_store__bundle_name(const char *hex, const char *suffix, weft_arena *arena)
{
    return weft_arena_printf(arena, "bundles/%s%s", hex, suffix);
}

bool weft_store__is_tag(const char *name)
{
    size_t len = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");
    return len > 0 && len <= TAG_MAX && !name[len] && name[0] != '.';
}

char *weft_store__folder_of(const char *path, weft_arena *arena)
{
    const char *slash = strrchr(path, '/');
    return slash ? weft_arena_strndup(arena, path, slash == path ? 1 : (size_t)(slash - path))
                 : weft_arena_strdup(arena, ".");
}
