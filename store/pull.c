/* Gets a bundle from a store.
 *
 *   index -> chunks that OUTPUT.part has (an interrupted pull)
 *         -> chunks that older bundles here have
 *         -> chunks from the store
 *         -> SHA-256 of the whole, acceptance by the caller, OUTPUT.sig, OUTPUT
 *
 * No list of what is done is kept anywhere: a chunk is there if the bytes at its place have its
 * hash. So it does not matter how a pull ended (SIGKILL, a full disk, loss of power), nor which
 * bundle the part was of. OUTPUT.part is locked: a second pull of OUTPUT waits, and then has little
 * or nothing to do. */
#include "store/store_int.h"

#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <zstd.h>

enum { TAG_BYTES_MAX = 128, SIGNATURE_BYTES_MAX = 4096 };

typedef struct pull {
    const weft_pull_options *o;
    weft_diag *diag;
    weft_arena *arena;
    weft_source *source;
    weft_pull_report report;
    weft_chunk_index index;
    uint64_t *at;    /* of each chunk in the bundle */
    bool *there;     /* of each chunk: its bytes are in the part */
    uint32_t *order; /* chunks by hash */
    uint64_t done;   /* bytes that are there */
    char *part_path, *signature;
    size_t signature_len;
    int part;
    uint8_t *bytes; /* of one chunk */
    ZSTD_DCtx *unpack;
} pull;

/* -- What to get ------------------------------------------------------------------------------ */

static weft_err refuse_name(pull *p)
{
    return weft_diag_error(p->diag, WEFT_ERR_INPUT, (weft_where){.item = p->o->name},
                           "a bundle is named by sha256:HEX, 64 digits, or by a tag");
}

/* sha256:HEX; false: it is none. */
static bool take_digest(const char *text, size_t len, char *out_hex)
{
    static const char mark[] = "sha256:";
    uint8_t sha256[WEFT_SHA256_BYTES];
    if (len < sizeof mark - 1 || memcmp(text, mark, sizeof mark - 1) != 0 ||
        !weft_chunk_parse_sha256(text + sizeof mark - 1, len - (sizeof mark - 1), sha256))
        return false;
    weft_chunk_print_sha256(sha256, out_hex);
    return true;
}

static weft_err find_digest(pull *p)
{
    char *text = NULL;
    size_t len = 0;
    if (take_digest(p->o->name, strlen(p->o->name), p->report.sha256))
        return WEFT_ERR_OK;
    if (!weft_store__is_tag(p->o->name))
        return refuse_name(p);
    const char *name = weft_arena_printf(p->arena, "tags/%s", p->o->name);
    WEFT_TRY(weft_source__read(p->source, name, TAG_BYTES_MAX, p->diag, &text, &len));
    bool ok =
        text && len > 0 && text[len - 1] == '\n' && take_digest(text, len - 1, p->report.sha256);
    weft_err err = ok ? WEFT_ERR_OK
                      : weft_diag_error(p->diag, WEFT_ERR_INPUT, (weft_where){.file = p->o->store},
                                        text ? "%s is no tag" : "has no %s", name);
    free(text);
    return err;
}

static weft_err get_index(pull *p)
{
    char *text = NULL, hex[WEFT_SHA256_TEXT];
    size_t len = 0;
    const char *name = weft_store__bundle_name(p->report.sha256, "", p->arena);
    const weft_where where = {.file = p->o->store};
    WEFT_TRY(weft_source__read(p->source, name, WEFT_INDEX_BYTES_MAX, p->diag, &text, &len));
    if (!text)
        return weft_diag_error(p->diag, WEFT_ERR_INPUT, where, "has no %s", name);
    const char *path = weft_arena_printf(p->arena, "%s/%s", p->o->store, name);
    weft_err err = weft_chunk_parse_index(text, len, path, p->arena, p->diag, &p->index);
    free(text);
    WEFT_TRY(err);
    weft_chunk_print_sha256(p->index.sha256, hex);
    if (strcmp(hex, p->report.sha256) != 0)
        return weft_diag_error(p->diag, WEFT_ERR_INPUT, where, "%s is the index of another bundle",
                               name);
    p->report.bytes = p->index.bytes;
    p->report.n_chunk = p->index.n_chunk;
    return WEFT_ERR_OK;
}

static int by_hash(const void *a, const void *b, void *user)
{
    const weft_chunk *chunk = user;
    uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    int order = memcmp(chunk[i].sha256, chunk[k].sha256, WEFT_SHA256_BYTES);
    return order ? order : (i > k) - (i < k);
}

static void plan_chunks(pull *p)
{
    uint32_t n = p->index.n_chunk;
    p->at = weft_arena_array(p->arena, n, sizeof *p->at);
    p->there = weft_arena_array(p->arena, n, sizeof *p->there);
    p->order = weft_arena_array(p->arena, n, sizeof *p->order);
    for (uint32_t i = 0; i < n; i++) {
        p->at[i] = i ? p->at[i - 1] + p->index.chunk[i - 1].bytes : 0;
        p->order[i] = i;
    }
    qsort_r(p->order, n, sizeof *p->order, by_hash, (void *)(uintptr_t)p->index.chunk);
}

static void mark_there(pull *p, uint32_t i)
{
    p->there[i] = true;
    p->done += p->index.chunk[i].bytes;
    if (p->o->progress)
        p->o->progress(p->o->user, p->done, p->index.bytes);
}

/* -- The part --------------------------------------------------------------------------------- */

/* Opens and locks OUTPUT.part. The file that was locked may have become OUTPUT meanwhile. */
static weft_err open_part(pull *p)
{
    for (;;) {
        struct stat own, named;
        p->part = open(p->part_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
        if (p->part < 0)
            return weft_file_report(p->diag, p->part_path, "create", errno);
        while (flock(p->part, LOCK_EX) != 0)
            if (errno != EINTR)
                return weft_file_report(p->diag, p->part_path, "lock", errno);
        if (fstat(p->part, &own) == 0 && !S_ISREG(own.st_mode))
            return weft_diag_error(p->diag, WEFT_ERR_INPUT, (weft_where){.file = p->part_path},
                                   "not a regular file");
        if (stat(p->part_path, &named) == 0 && named.st_ino == own.st_ino &&
            named.st_dev == own.st_dev)
            return WEFT_ERR_OK;
        close(p->part);
    }
}

/* Finds the chunks that the part has: bytes that were never written are skipped. */
static weft_err keep_chunks(pull *p)
{
    uint8_t sha256[WEFT_SHA256_BYTES];
    struct stat st;
    if (fstat(p->part, &st) != 0 ||
        ((uint64_t)st.st_size != p->index.bytes && ftruncate(p->part, (off_t)p->index.bytes) != 0))
        return weft_file_report(p->diag, p->part_path, "resize", errno);
    for (uint32_t i = 0; i < p->index.n_chunk; i++) {
        const weft_chunk *c = &p->index.chunk[i];
        off_t data = lseek(p->part, (off_t)p->at[i], SEEK_DATA);
        if (data < 0 && errno == ENXIO)
            break; /* nothing was written from here on */
        if (data >= 0 && (uint64_t)data >= p->at[i] + c->bytes)
            continue;
        int code = weft_file_get_at(p->part, p->bytes, c->bytes, p->at[i]);
        if (code)
            return weft_file_report(p->diag, p->part_path, "read", code);
        if (!weft_store__hash(p->bytes, c->bytes, sha256))
            return WEFT_ERR_NOMEM;
        if (memcmp(sha256, c->sha256, sizeof sha256) == 0) {
            p->report.kept_bytes += c->bytes;
            mark_there(p, i);
        }
    }
    return WEFT_ERR_OK;
}

static weft_err put_chunk(pull *p, uint32_t i, const uint8_t *bytes)
{
    int code = weft_file_put_at(p->part, bytes, p->index.chunk[i].bytes, p->at[i]);
    if (code)
        return weft_file_report(p->diag, p->part_path, "write", code);
    mark_there(p, i);
    return WEFT_ERR_OK;
}

/* -- Older bundles ---------------------------------------------------------------------------- */

/* The first in `order` with this hash; n_chunk: none. */
static uint32_t first_of(const pull *p, const uint8_t *sha256)
{
    uint32_t lo = 0, hi = p->index.n_chunk;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (memcmp(p->index.chunk[p->order[mid]].sha256, sha256, WEFT_SHA256_BYTES) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Writes `bytes` to each place that wants them. */
static weft_err reuse_bytes(pull *p, const uint8_t *bytes, uint32_t len)
{
    uint8_t sha256[WEFT_SHA256_BYTES];
    if (!weft_store__hash(bytes, len, sha256))
        return WEFT_ERR_NOMEM;
    for (uint32_t k = first_of(p, sha256); k < p->index.n_chunk; k++) {
        uint32_t i = p->order[k];
        if (memcmp(p->index.chunk[i].sha256, sha256, sizeof sha256) != 0)
            break;
        if (p->there[i] || p->index.chunk[i].bytes != len)
            continue;
        WEFT_TRY(put_chunk(p, i, bytes));
        p->report.reused_bytes += len;
    }
    return WEFT_ERR_OK;
}

static weft_err reuse_chunks(pull *p, int fd, const weft_bundle *b)
{
    uint32_t *size, n = weft_store__split(b, p->arena, &size);
    uint64_t at = 0;
    for (uint32_t i = 0; i < n && p->done < p->index.bytes; i++) {
        if (weft_file_get_at(fd, p->bytes, size[i], at) != 0)
            break; /* what cannot be read is fetched */
        WEFT_TRY(reuse_bytes(p, p->bytes, size[i]));
        at += size[i];
    }
    return WEFT_ERR_OK;
}

/* Takes chunks from a bundle that is here. One that is damaged, or that the caller does not accept,
 * is no error: its chunks are fetched. */
static weft_err reuse_bundle(pull *p, const char *path)
{
    weft_diag *own = weft_diag_create();
    weft_bundle *b = NULL;
    int fd = -1, signature = -1;
    char *real = realpath(path, NULL);
    const char *name = weft_arena_printf(p->arena, "%s.sig", real ? real : path);
    free(real);
    weft_err err = own ? weft_file_open(path, own, &fd) : WEFT_ERR_NOMEM;
    if (err == WEFT_ERR_OK && weft_file_open(name, own, &signature) != WEFT_ERR_OK)
        signature = -1;
    if (err == WEFT_ERR_OK)
        err = p->o->accept(p->o->user, fd, signature, path, own);
    if (err == WEFT_ERR_OK)
        err = weft_bundle_open_fd(fd, path, own, &b);
    weft_err result = err == WEFT_ERR_OK ? reuse_chunks(p, fd, b) : WEFT_ERR_OK;
    weft_bundle_close(b);
    if (signature >= 0)
        close(signature);
    if (fd >= 0)
        close(fd);
    weft_diag_destroy(own);
    return result;
}

/* The newest file *.weft of a folder but OUTPUT; NULL: none. */
static char *newest_of(pull *p, const char *folder)
{
    char *found = NULL;
    struct timespec time = {0};
    struct stat output, st;
    bool exists = stat(p->o->output, &output) == 0;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        size_t len = strlen(e->d_name);
        if (len < 6 || strcmp(e->d_name + len - 5, ".weft") != 0 || e->d_name[0] == '.' ||
            fstatat(dirfd(dir), e->d_name, &st, 0) != 0 || !S_ISREG(st.st_mode) ||
            (exists && st.st_ino == output.st_ino && st.st_dev == output.st_dev))
            continue;
        if (!found || st.st_mtim.tv_sec > time.tv_sec ||
            (st.st_mtim.tv_sec == time.tv_sec && st.st_mtim.tv_nsec > time.tv_nsec)) {
            found = weft_arena_printf(p->arena, "%s/%s", folder, e->d_name);
            time = st.st_mtim;
        }
    }
    if (dir)
        closedir(dir);
    return found;
}

static weft_err reuse_bundles(pull *p)
{
    if (p->done < p->index.bytes && weft_file_is_regular(p->o->output))
        WEFT_TRY(reuse_bundle(p, p->o->output));
    for (uint32_t i = 0; i < p->o->n_have && p->done < p->index.bytes; i++) {
        const char *path = p->o->have[i];
        if (weft_file_is_folder(path))
            path = newest_of(p, path);
        if (path)
            WEFT_TRY(reuse_bundle(p, path));
    }
    return WEFT_ERR_OK;
}

/* -- The store -------------------------------------------------------------------------------- */

static weft_err take_chunk(void *user, const weft_source_want *want, const uint8_t *bytes,
                           weft_diag *diag)
{
    pull *p = user;
    const weft_chunk *c = &p->index.chunk[want->chunk];
    uint8_t sha256[WEFT_SHA256_BYTES];
    bool ok = true;
    if (c->stored) {
        /* Never more than the chunk's bytes, whatever the frame says. */
        size_t n = ZSTD_decompressDCtx(p->unpack, p->bytes, c->bytes, bytes, c->stored);
        ok = !ZSTD_isError(n) && n == c->bytes;
        bytes = p->bytes;
    }
    if (ok && !weft_store__hash(bytes, c->bytes, sha256))
        return WEFT_ERR_NOMEM;
    if (!ok || memcmp(sha256, c->sha256, sizeof sha256) != 0)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = p->o->store},
                               "%s has other contents than its name says", want->name);
    p->report.n_fetched++;
    p->report.fetched_bytes += c->bytes;
    return put_chunk(p, want->chunk, bytes);
}

/* Bytes that are still to be written must fit, before any is fetched. */
static weft_err check_space(pull *p)
{
    struct statvfs st;
    uint64_t missing = p->index.bytes - p->done;
    if (fstatvfs(p->part, &st) != 0 || (uint64_t)st.f_bavail * st.f_frsize >= missing)
        return WEFT_ERR_OK;
    return weft_diag_error(p->diag, WEFT_ERR_IO, (weft_where){.file = p->part_path},
                           "%llu bytes are missing, and the disk has room for %llu",
                           (unsigned long long)missing,
                           (unsigned long long)st.f_bavail * st.f_frsize);
}

static weft_err fetch_chunks(pull *p)
{
    weft_source_want *want = weft_arena_array(p->arena, p->index.n_chunk, sizeof *want);
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->index.n_chunk; i++) {
        const weft_chunk *c = &p->index.chunk[i];
        if (!p->there[i])
            want[n++] = (weft_source_want){.name = weft_store__chunk_name(c, p->arena),
                                           .bytes = c->stored ? c->stored : c->bytes,
                                           .chunk = i};
    }
    if (n == 0)
        return WEFT_ERR_OK;
    WEFT_TRY(check_space(p));
    return weft_source__fetch(p->source, want, n, take_chunk, p, p->diag);
}

static weft_err get_signature(pull *p)
{
    const char *name = weft_store__bundle_name(p->report.sha256, ".sig", p->arena);
    WEFT_TRY(weft_source__read(p->source, name, SIGNATURE_BYTES_MAX, p->diag, &p->signature,
                               &p->signature_len));
    p->report.is_signed = p->signature;
    return WEFT_ERR_OK;
}

/* -- The bundle ------------------------------------------------------------------------------- */

/* Asks the caller about a whole file. */
static weft_err accept_file(pull *p, int fd, const char *path)
{
    int signature =
        p->signature ? weft_file_make("weft-signature", p->signature, p->signature_len) : -1;
    if (p->signature && signature < 0)
        return WEFT_ERR_NOMEM;
    weft_err err = p->o->accept(p->o->user, fd, signature, path, p->diag);
    if (signature >= 0)
        close(signature);
    return err;
}

/* The signature stands beside the bundle before the bundle has its name; that of a bundle before is
 * removed. */
static weft_err name_signature(pull *p)
{
    const char *path = weft_arena_printf(p->arena, "%s.sig", p->o->output);
    if (p->signature)
        return weft_file_write(path, p->signature, p->signature_len, p->diag);
    return unlink(path) == 0 || errno == ENOENT ? WEFT_ERR_OK
                                                : weft_file_report(p->diag, path, "remove", errno);
}

static void sync_folder(pull *p)
{
    int fd =
        open(weft_store__folder_of(p->o->output, p->arena), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd); /* not all file systems can */
        close(fd);
    }
}

static weft_err name_bundle(pull *p)
{
    uint8_t sha256[WEFT_SHA256_BYTES];
    WEFT_TRY(weft_store__hash_file(p->part, p->part_path, p->diag, sha256));
    if (memcmp(sha256, p->index.sha256, sizeof sha256) != 0) {
        unlink(p->part_path);
        return weft_diag_error(p->diag, WEFT_ERR_INPUT, (weft_where){.file = p->o->store},
                               "the chunks of %s are not that bundle", p->report.sha256);
    }
    WEFT_TRY(accept_file(p, p->part, p->part_path));
    weft_bundle *b = NULL;
    WEFT_TRY(weft_bundle_open_fd(p->part, p->part_path, p->diag, &b));
    weft_bundle_close(b);
    mode_t mask = umask(0);
    umask(mask);
    if (fchmod(p->part, 0666 & ~mask) != 0 || fsync(p->part) != 0)
        return weft_file_report(p->diag, p->part_path, "write", errno);
    WEFT_TRY(name_signature(p));
    if (rename(p->part_path, p->o->output) != 0)
        return weft_file_report(p->diag, p->o->output, "rename", errno);
    sync_folder(p);
    return WEFT_ERR_OK;
}

/* Whether OUTPUT is the bundle already. */
static weft_err look_at_output(pull *p)
{
    uint8_t sha256[WEFT_SHA256_BYTES];
    struct stat st;
    int fd = open(p->o->output, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return WEFT_ERR_OK;
    weft_err err = WEFT_ERR_OK;
    bool known = fstat(fd, &st) == 0;
    bool same = known && S_ISREG(st.st_mode) && (uint64_t)st.st_size == p->index.bytes;
    if (known && S_ISDIR(st.st_mode)) /* before anything is fetched */
        err = weft_file_report(p->diag, p->o->output, "replace", EISDIR);
    if (same)
        err = weft_store__hash_file(fd, p->o->output, p->diag, sha256);
    if (err == WEFT_ERR_OK && same && memcmp(sha256, p->index.sha256, sizeof sha256) == 0) {
        p->report.was_there = true;
        err = accept_file(p, fd, p->o->output);
        if (err == WEFT_ERR_OK)
            err = name_signature(p);
    }
    close(fd);
    return err;
}

static weft_err fill_part(pull *p)
{
    plan_chunks(p);
    WEFT_TRY(keep_chunks(p));
    WEFT_TRY(reuse_bundles(p));
    WEFT_TRY(fetch_chunks(p));
    return name_bundle(p);
}

static weft_err get_bundle(pull *p)
{
    WEFT_TRY(find_digest(p));
    WEFT_TRY(get_index(p));
    WEFT_TRY(get_signature(p));
    WEFT_TRY(open_part(p));
    weft_err err = look_at_output(p);
    if (err != WEFT_ERR_OK || p->report.was_there) {
        unlink(p->part_path);
        return err;
    }
    return fill_part(p);
}

weft_err weft_store_pull(const weft_pull_options *options, weft_arena *arena, weft_diag *diag,
                         weft_pull_report *out)
{
    pull p = {.o = options, .diag = diag, .arena = arena, .part = -1};
    p.part_path = weft_arena_printf(arena, "%s.part", options->output);
    p.bytes = weft_arena_alloc(arena, WEFT_CHUNK_BYTES_MAX);
    p.unpack = ZSTD_createDCtx();
    weft_err err = p.unpack ? weft_source__open(options, arena, diag, &p.source) : WEFT_ERR_NOMEM;
    if (err == WEFT_ERR_OK)
        err = get_bundle(&p);
    if (p.source)
        p.report.transferred_bytes = weft_source__bytes(p.source);
    weft_source__close(p.source);
    ZSTD_freeDCtx(p.unpack);
    free(p.signature);
    if (p.part >= 0)
        close(p.part); /* and lets the next one go on */
    if (err == WEFT_ERR_OK)
        *out = p.report;
    return err;
}
