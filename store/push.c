/* Puts a bundle into a store: chunks that are not there, then the signature, the index, the tag.
 * Each file appears whole, and the index only when all that it names is on the disk, so that a push
 * that is interrupted leaves nothing wrong behind, and the next goes on. */
#include "store/store_int.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

/* A compressed chunk is kept if it saves this part of the bytes: less is not worth the time that
 * every reader spends. */
enum { SAVED_PART = 16, SIGNATURE_BYTES_MAX = 4096 };

typedef struct push {
    const weft_push_options *o;
    weft_diag *diag;
    weft_arena *arena;
    weft_push_report report;
    weft_chunk *chunk;
    uint8_t *bytes, *packed; /* of one chunk */
    size_t packed_bytes;
    ZSTD_CCtx *pack;
    EVP_MD_CTX *sum; /* of the bundle */
} push;

static weft_err make_folder(push *p, const char *path)
{
    return mkdir(path, 0777) == 0 || errno == EEXIST
               ? WEFT_ERR_OK
               : weft_file_report(p->diag, path, "make folder", errno);
}

static char *path_of(push *p, const char *name)
{
    return weft_arena_printf(p->arena, "%s/%s", p->o->folder, name);
}

/* Bytes of a file of the store; 0: there is none. */
static uint64_t size_of(push *p, const weft_chunk *c)
{
    struct stat st;
    const char *path = path_of(p, weft_store__chunk_name(c, p->arena));
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
}

/* Whether the store has the chunk, as it is or compressed; sets `stored`. */
static bool is_there(push *p, weft_chunk *c)
{
    c->stored = 0;
    if (size_of(p, c) == c->bytes)
        return true;
    c->stored = 1;
    uint64_t bytes = size_of(p, c);
    c->stored = bytes < c->bytes ? (uint32_t)bytes : 0;
    return c->stored;
}

static weft_err put_chunk(push *p, weft_chunk *c)
{
    const void *bytes = p->bytes;
    size_t len = c->bytes;
    if (p->o->level) {
        size_t n =
            ZSTD_compressCCtx(p->pack, p->packed, p->packed_bytes, p->bytes, c->bytes, p->o->level);
        if (ZSTD_isError(n))
            return weft_diag_error(p->diag, WEFT_ERR_NOMEM, (weft_where){.file = p->o->bundle},
                                   "zstd: %s", ZSTD_getErrorName(n));
        if (n + c->bytes / SAVED_PART < c->bytes) {
            c->stored = (uint32_t)n;
            bytes = p->packed;
            len = n;
        }
    }
    char *path = path_of(p, weft_store__chunk_name(c, p->arena));
    WEFT_TRY(make_folder(p, weft_store__folder_of(path, p->arena)));
    WEFT_TRY(weft_file_write(path, bytes, len, p->diag));
    p->report.n_new++;
    p->report.new_bytes += c->bytes;
    p->report.put_bytes += len;
    return WEFT_ERR_OK;
}

static weft_err put_chunks(push *p, const weft_bundle *b, int fd, const uint32_t *size, uint32_t n)
{
    uint64_t at = 0;
    p->chunk = weft_arena_array(p->arena, n, sizeof *p->chunk);
    for (uint32_t i = 0; i < n; i++) {
        weft_chunk *c = &p->chunk[i];
        c->bytes = size[i];
        int code = weft_file_get_at(fd, p->bytes, size[i], at);
        if (code)
            return weft_file_report(p->diag, p->o->bundle, "read", code);
        if (!weft_store__hash(p->bytes, size[i], c->sha256) ||
            EVP_DigestUpdate(p->sum, p->bytes, size[i]) != 1)
            return WEFT_ERR_NOMEM;
        weft_arena_mark mark = weft_arena_get_mark(p->arena);
        if (!is_there(p, c))
            WEFT_TRY(put_chunk(p, c));
        weft_arena_reset(p->arena, mark);
        at += size[i];
        if (p->o->progress)
            p->o->progress(p->o->user, at, b->file.len);
    }
    return WEFT_ERR_OK;
}

/* The signature beside the bundle, if it has one. */
static weft_err put_signature(push *p, const char *hex)
{
    char *real = realpath(p->o->bundle, NULL), *text = NULL;
    char *path = weft_arena_printf(p->arena, "%s.sig", real ? real : p->o->bundle);
    size_t len = 0;
    free(real);
    if (access(path, F_OK) != 0)
        return WEFT_ERR_OK;
    WEFT_TRY(weft_file_read(path, SIGNATURE_BYTES_MAX, p->diag, &text, &len));
    char *to = path_of(p, weft_store__bundle_name(hex, ".sig", p->arena));
    weft_err err = weft_file_write(to, text, len, p->diag);
    free(text);
    p->report.is_signed = true;
    p->report.put_bytes += len;
    return err;
}

/* What was written is on the disk before what names it. */
static weft_err keep(push *p)
{
    int fd = open(p->o->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int code = fd < 0 || syncfs(fd) != 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    return code ? weft_file_report(p->diag, p->o->folder, "write", code) : WEFT_ERR_OK;
}

static weft_err put_index(push *p, const weft_bundle *b, uint32_t n)
{
    weft_chunk_index index = {.bytes = b->file.len, .chunk = p->chunk, .n_chunk = n};
    size_t len;
    if (EVP_DigestFinal_ex(p->sum, index.sha256, NULL) != 1)
        return WEFT_ERR_NOMEM;
    weft_chunk_print_sha256(index.sha256, p->report.sha256);
    WEFT_TRY(put_signature(p, p->report.sha256));
    WEFT_TRY(keep(p));
    const char *text = weft_chunk_print_index(&index, p->arena, &len);
    char *path = path_of(p, weft_store__bundle_name(p->report.sha256, "", p->arena));
    WEFT_TRY(weft_file_write(path, text, len, p->diag));
    p->report.put_bytes += len;
    if (!p->o->tag)
        return keep(p);
    char *to = weft_arena_printf(p->arena, "sha256:%s\n", p->report.sha256);
    path = path_of(p, weft_arena_printf(p->arena, "tags/%s", p->o->tag));
    WEFT_TRY(keep(p));
    return weft_file_write(path, to, strlen(to), p->diag);
}

static weft_err put_bundle(push *p, weft_bundle *b, int fd)
{
    static const char *const folders[] = {"", "chunks", "bundles", "tags"};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
        WEFT_TRY(make_folder(p, path_of(p, folders[i])));
    for (uint32_t w = 1; w <= b->n_weight; w++)
        WEFT_TRY(weft_bundle_check_weight(b, w, p->diag));
    uint32_t *size, n = weft_store__split(b, p->arena, &size);
    p->report.bytes = b->file.len;
    p->report.n_chunk = n;
    WEFT_TRY(put_chunks(p, b, fd, size, n));
    return put_index(p, b, n);
}

weft_err weft_store_push(const weft_push_options *options, weft_arena *arena, weft_diag *diag,
                         weft_push_report *out)
{
    push p = {.o = options, .diag = diag, .arena = arena};
    if (options->tag && !weft_store__is_tag(options->tag))
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = options->tag},
                               "a tag has letters, digits, _, . and -, at most 128");
    p.packed_bytes = ZSTD_compressBound(WEFT_CHUNK_BYTES_MAX);
    p.bytes = weft_arena_alloc(arena, WEFT_CHUNK_BYTES_MAX);
    p.packed = weft_arena_alloc(arena, p.packed_bytes);
    p.pack = ZSTD_createCCtx();
    p.sum = EVP_MD_CTX_new();
    bool ok = p.pack && p.sum && EVP_DigestInit_ex(p.sum, EVP_sha256(), NULL) == 1;
    weft_err err = ok ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
    weft_bundle *b = NULL;
    int fd = -1;
    if (err == WEFT_ERR_OK)
        err = weft_file_open(options->bundle, diag, &fd);
    if (err == WEFT_ERR_OK)
        err = weft_bundle_open_fd(fd, options->bundle, diag, &b);
    if (err == WEFT_ERR_OK)
        err = put_bundle(&p, b, fd);
    weft_bundle_close(b);
    if (fd >= 0)
        close(fd);
    ZSTD_freeCCtx(p.pack);
    EVP_MD_CTX_free(p.sum);
    if (err == WEFT_ERR_OK)
        *out = p.report;
    return err;
}
