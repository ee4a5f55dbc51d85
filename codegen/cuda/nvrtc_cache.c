/* Results of NVRTC in a folder, for models and runs to share.
 *
 * A file is named after the hash of its key: everything that the result depends on (compiler,
 * architecture, text of the module). It contains
 *
 *     head  key  cubin  PTX
 *
 * and the head has a hash of the rest. A result is taken only if the key is equal byte by byte, so
 * neither a collision of hashes nor a damaged file gives a wrong one; what is damaged is compiled
 * and written again. The folder and the file must belong to the user, and nobody else may write
 * them. A file is written beside its name and renamed, so that processes can use the folder at the
 * same time. A use sets the file's modification time; when the files exceed the limit, those with
 * the oldest times are removed (least recently used first), and so are parts that an interrupted
 * process left. */
#include "codegen/cuda/nvrtc_int.h"

#include "base/file.h"
#include "base/hash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char magic[8] = "weftker1", suffix[] = ".kernel";

/* Largest file; characters of a hash in a name; age of parts that nobody writes any more. */
enum { FILE_MAX = 256 << 20, HASH_CHARS = 32, PART_SECONDS = 3600 };

struct weft_nvrtc__cache {
    char *folder, *compiler;
    uint64_t limit_bytes;
    atomic_bool has_new;
};

typedef struct head {
    char magic[sizeof magic];
    uint64_t hash; /* of the other members and of all that follows */
    uint64_t key_bytes, cubin_bytes, ptx_bytes;
} head;

/* -- The folder -------------------------------------------------------------------------------- */

/* Makes the folder and those above it. */
static bool make_folder(char *path)
{
    for (char *at = path; *at; at++)
        if (*at == '/' && at > path) {
            *at = 0;
            (void)mkdir(path, 0700);
            *at = '/';
        }
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

/* Why the folder must not be used; NULL: it may. */
static const char *check_folder(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return weft_errno_text(errno);
    if (!S_ISDIR(st.st_mode))
        return "not a folder";
    if (st.st_uid != geteuid())
        return "another user owns the folder";
    return st.st_mode & (S_IWGRP | S_IWOTH) ? "others may write the folder" : NULL;
}

weft_nvrtc__cache *weft_nvrtc__cache_open(const char *folder, uint64_t limit_bytes,
                                          const char *compiler, const char **why)
{
    weft_nvrtc__cache *cache = calloc(1, sizeof *cache);
    *why = weft_errno_text(ENOMEM);
    if (!cache)
        return NULL;
    cache->folder = strdup(folder);
    cache->compiler = strdup(compiler);
    cache->limit_bytes = limit_bytes;
    if (cache->folder && cache->compiler)
        *why = make_folder(cache->folder) ? check_folder(folder) : weft_errno_text(errno);
    if (!*why)
        return cache;
    weft_nvrtc__cache_close(cache);
    return NULL;
}

/* -- Keys -------------------------------------------------------------------------------------- */

static void print_key(const weft_nvrtc__cache *cache, const char *text, const char *arch,
                      weft_buf *out)
{
    weft_buf_printf(out, "%s\n%s\n%s", cache->compiler, arch, text);
}

static void print_path(const weft_nvrtc__cache *cache, const weft_buf *key, weft_buf *out)
{
    if (key->failed)
        return;
    weft_hash128 hash = weft_hash_content(key->at, key->len, 0);
    weft_buf_printf(out, "%s/%016llx%016llx%s", cache->folder, (unsigned long long)hash.hi,
                    (unsigned long long)hash.lo, suffix);
}

/* Of the head without its hash, and of what follows. */
static uint64_t hash_file(head h, const char *key, const char *cubin, const char *ptx)
{
    h.hash = 0;
    uint64_t hash = weft_hash64(&h, sizeof h, 0);
    hash = weft_hash64(key, (size_t)h.key_bytes, hash);
    hash = weft_hash64(cubin, (size_t)h.cubin_bytes, hash);
    return weft_hash64(ptx, (size_t)h.ptx_bytes, hash);
}

/* -- Reading ----------------------------------------------------------------------------------- */

static char *copy(const char *from, uint64_t bytes)
{
    char *to = malloc((size_t)bytes + 1);
    if (to) {
        memcpy(to, from, (size_t)bytes);
        to[bytes] = 0;
    }
    return to;
}

/* Takes the result out of a file's bytes if they are whole and have this key. */
static bool take(const char *at, uint64_t len, const weft_buf *key, weft_nvrtc__result *r)
{
    head h;
    if (len < sizeof h)
        return false;
    memcpy(&h, at, sizeof h);
    uint64_t left = len - sizeof h;
    if (memcmp(h.magic, magic, sizeof magic) != 0 || h.key_bytes != key->len ||
        h.key_bytes > left || h.cubin_bytes > left - h.key_bytes || h.cubin_bytes == 0 ||
        h.ptx_bytes != left - h.key_bytes - h.cubin_bytes || h.ptx_bytes == 0)
        return false;
    const char *body = at + sizeof h, *cubin = body + key->len, *ptx = cubin + h.cubin_bytes;
    if (hash_file(h, body, cubin, ptx) != h.hash || memcmp(body, key->at, key->len) != 0)
        return false;
    weft_nvrtc__result found = {.cubin = copy(cubin, h.cubin_bytes),
                                .ptx = copy(ptx, h.ptx_bytes),
                                .cubin_bytes = (size_t)h.cubin_bytes,
                                .ptx_bytes = (size_t)h.ptx_bytes};
    if (!found.cubin || !found.ptx) {
        weft_nvrtc__free(&found);
        return false;
    }
    *r = found;
    return true;
}

/* Reads the file into memory: a mapping would end the process if another one cut the file off. */
static char *read_own(int fd, uint64_t *out_len)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
        (st.st_mode & (S_IWGRP | S_IWOTH)) || st.st_size <= 0 || st.st_size > FILE_MAX)
        return NULL;
    char *at = malloc((size_t)st.st_size);
    if (at && !weft_file_get(fd, at, (size_t)st.st_size)) {
        free(at);
        return NULL;
    }
    *out_len = (uint64_t)st.st_size;
    return at;
}

bool weft_nvrtc__cache_find(const weft_nvrtc__cache *cache, const char *text, const char *arch,
                            weft_nvrtc__result *r)
{
    weft_buf key = {0}, path = {0};
    bool found = false;
    if (!cache)
        return false;
    print_key(cache, text, arch, &key);
    print_path(cache, &key, &path);
    int fd = key.failed || path.failed
                 ? -1
                 : open(path.at, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0) {
        uint64_t len = 0;
        char *at = read_own(fd, &len);
        found = at && take(at, len, &key, r);
        free(at);
        if (found)
            (void)futimens(fd, NULL);
        close(fd);
    }
    weft_buf_finish(&key);
    weft_buf_finish(&path);
    return found;
}

/* -- Writing ----------------------------------------------------------------------------------- */

void weft_nvrtc__cache_keep(weft_nvrtc__cache *cache, const char *text, const char *arch,
                            const weft_nvrtc__result *r)
{
    weft_buf key = {0}, path = {0};
    if (!cache || r->cubin_bytes + r->ptx_bytes > FILE_MAX / 2)
        return;
    print_key(cache, text, arch, &key);
    print_path(cache, &key, &path);
    if (!key.failed && !path.failed) {
        head h = {.key_bytes = key.len, .cubin_bytes = r->cubin_bytes, .ptx_bytes = r->ptx_bytes};
        memcpy(h.magic, magic, sizeof magic);
        h.hash = hash_file(h, key.at, r->cubin, r->ptx);
        const weft_span span[] = {
            {&h, sizeof h}, {key.at, key.len}, {r->cubin, r->cubin_bytes}, {r->ptx, r->ptx_bytes}};
        /* Without room, or in a folder that is read-only, nothing is kept. */
        if (weft_file_write_private(path.at, span, sizeof span / sizeof span[0], NULL) ==
            WEFT_ERR_OK)
            atomic_store(&cache->has_new, true);
    }
    weft_buf_finish(&key);
    weft_buf_finish(&path);
}

/* -- Removing ---------------------------------------------------------------------------------- */

typedef struct entry {
    char name[HASH_CHARS + sizeof suffix];
    struct timespec used;
    uint64_t bytes;
} entry;

/* Whether the name is one that this file writes: HASH.kernel, or, of a part, HASH.kernel.N-N.tmp.
 */
static bool is_own_name(const char *name, bool *is_part)
{
    size_t len = strspn(name, "0123456789abcdef");
    if (len != HASH_CHARS || strncmp(name + len, suffix, sizeof suffix - 1) != 0)
        return false;
    const char *rest = name + len + sizeof suffix - 1;
    *is_part = *rest != 0;
    if (!*rest)
        return true;
    size_t digits = *rest == '.' ? 1 + strspn(rest + 1, "0123456789-") : 0;
    return digits > 1 && strcmp(rest + digits, ".tmp") == 0;
}

static int by_use(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec)
        return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    if (x->used.tv_nsec != y->used.tv_nsec)
        return x->used.tv_nsec < y->used.tv_nsec ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Lists the results in the folder; removes old parts. Memory of malloc; NULL: none. */
static entry *list(DIR *dir, size_t *out_n, uint64_t *out_bytes)
{
    entry *all = NULL;
    size_t n = 0, room = 0;
    for (const struct dirent *d; (d = readdir(dir)) != NULL;) {
        bool is_part;
        struct stat st;
        if (!is_own_name(d->d_name, &is_part) ||
            fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
            continue;
        if (is_part) {
            if (st.st_mtim.tv_sec < time(NULL) - PART_SECONDS)
                (void)unlinkat(dirfd(dir), d->d_name, 0);
            continue;
        }
        if (n == room) {
            room = room ? 2 * room : 256;
            entry *more = realloc(all, room * sizeof *all);
            if (!more)
                break;
            all = more;
        }
        all[n] = (entry){.used = st.st_mtim, .bytes = (uint64_t)st.st_size};
        memcpy(all[n].name, d->d_name, sizeof all[n].name);
        *out_bytes += all[n++].bytes;
    }
    *out_n = n;
    return all;
}

static void remove_oldest(const weft_nvrtc__cache *cache)
{
    DIR *dir = opendir(cache->folder);
    size_t n = 0;
    uint64_t bytes = 0;
    if (!dir)
        return;
    entry *all = list(dir, &n, &bytes);
    if (bytes > cache->limit_bytes) {
        qsort(all, n, sizeof *all, by_use);
        for (size_t i = 0; i < n && bytes > cache->limit_bytes; i++)
            if (unlinkat(dirfd(dir), all[i].name, 0) == 0 || errno == ENOENT)
                bytes -= all[i].bytes;
    }
    free(all);
    closedir(dir);
}

void weft_nvrtc__cache_close(weft_nvrtc__cache *cache)
{
    if (!cache)
        return;
    if (atomic_load(&cache->has_new))
        remove_oldest(cache);
    free(cache->folder);
    free(cache->compiler);
    free(cache);
}
