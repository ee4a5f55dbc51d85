/* Adapters that come and go while the server runs: the table of those in force, and their store.
 *
 * Reading and checking an adapter is done beside the loop (deployment.c); on the loop one pointer
 * changes, for all workers at once. */
#include "runtime/server/live_int.h"

#include "base/file.h"
#include "runtime/adapter/adapter.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Places begin at multiples of the largest page that a machine may have. */
enum { LIVE_MAX = 65536, PLACE_BYTES = 65536 };

/* Numbers of the store are above those of bundles. */
static const uint64_t store_begin = (uint64_t)1 << 32;

struct weft_live {
    bool is_refused; /* adapters have no signatures */
    int fd, fd_read;
    weft_offload *offload;  /* frees places; NULL: none */
    uint64_t next;          /* place in the store; of the thread that reads */
    weft_live_adapter **at; /* in force, by base and name */
    uint32_t n, room;
    weft_live_counts counts;
};

/* -- The store -------------------------------------------------------------------------------- */

weft_err weft_live__create(const weft_serve_options *options, weft_diag *diag, weft_live **out)
{
    weft_live *live = calloc(1, sizeof *live);
    if (!live)
        return WEFT_ERR_NOMEM;
    *live = (weft_live){.is_refused = options->require_signature != NULL,
                        .fd = -1,
                        .fd_read = -1,
                        .next = store_begin};
    weft_err err = weft_file_make_unnamed(options->state, diag, &live->fd, &live->fd_read);
    if (err != WEFT_ERR_OK) {
        free(live);
        return err;
    }
    *out = live;
    return WEFT_ERR_OK;
}

void weft_live__destroy(weft_live *live)
{
    if (!live)
        return;
    while (live->n > 0)
        weft_live__release(live->at[--live->n]);
    free(live->at);
    close(live->fd);
    close(live->fd_read);
    free(live);
}

int weft_live__fd(const weft_live *live)
{
    return live ? live->fd_read : -1;
}

/* What `bytes` bytes take in the store. */
static uint64_t round_up(uint64_t bytes)
{
    return (bytes + PLACE_BYTES - 1) / PLACE_BYTES * PLACE_BYTES;
}

void weft_live__free_beside(weft_live *live, weft_offload *offload)
{
    if (live)
        live->offload = offload;
}

static void free_place(const weft_live *live, uint64_t number, uint64_t bytes)
{
    /* A block that is freed in part would stay. */
    (void)fallocate(live->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)number,
                    (off_t)round_up(bytes));
}

/* A place that is to be freed beside the loop. */
typedef struct unused_place {
    weft_job job;
    const weft_live *live;
    uint64_t number, bytes;
} unused_place;

static void run_free(weft_job *job)
{
    unused_place *p = (unused_place *)((char *)job - offsetof(unused_place, job));
    free_place(p->live, p->number, p->bytes);
    free(p);
}

/* The file system takes 0.2 to 1 ms to free a MiB. */
static void free_place_beside(const weft_live *live, uint64_t number, uint64_t bytes)
{
    unused_place *p = live->offload ? malloc(sizeof *p) : NULL;
    if (!p) {
        free_place(live, number, bytes);
        return;
    }
    *p = (unused_place){.job = {.run = run_free}, .live = live, .number = number, .bytes = bytes};
    weft_offload__submit(live->offload, &p->job);
}

/* Writes the bytes behind all that was ever in the store. */
static weft_err put(weft_live *live, const uint8_t *bytes, size_t len, weft_diag *diag,
                    uint64_t *out_number)
{
    uint64_t number = live->next;
    live->next += round_up(len);
    int code = weft_file_put_at(live->fd, bytes, len, number);
    if (code) {
        free_place(live, number, len);
        return weft_diag_error(diag, WEFT_ERR_NOMEM, (weft_where){0},
                               "the factors cannot be written into the folder of the state, or of "
                               "temporary files: %s",
                               weft_errno_text(code));
    }
    /* Pages that are on the disk can leave the memory at once when they are not used. */
    (void)sync_file_range(live->fd, (off_t)number, (off_t)len, SYNC_FILE_RANGE_WRITE);
    *out_number = number;
    return WEFT_ERR_OK;
}

/* -- Adapters --------------------------------------------------------------------------------- */

static void free_adapter(weft_live_adapter *a)
{
    for (uint32_t i = 0; i < a->n_site; i++)
        free((char *)(uintptr_t)a->site[i].name);
    free(a->site);
    free(a->base);
    free(a->name);
    free(a->path);
    free(a);
}

weft_live_adapter *weft_live__removed(weft_live *live, const char *base, const char *name)
{
    weft_live_adapter *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    *a = (weft_live_adapter){.live = live, .base = strdup(base), .name = strdup(name), .n_ref = 1};
    if (a->base && a->name)
        return a;
    free_adapter(a);
    return NULL;
}

weft_live_adapter *weft_live__hold(weft_live_adapter *adapter)
{
    if (adapter)
        adapter->n_ref++;
    return adapter;
}

void weft_live__release(weft_live_adapter *a)
{
    if (!a || --a->n_ref > 0)
        return;
    if (a->number)
        free_place_beside(a->live, a->number, a->bytes);
    if (a->counted) /* by the loop's thread: the other one releases only what it could not read */
        a->live->counts.bytes -= a->bytes;
    free_adapter(a);
}

static bool keep_sites(weft_live_adapter *a, const weft_peft *peft, const weft_bundle_site *site,
                       const uint32_t *of)
{
    a->site = calloc((size_t)peft->n + 1, sizeof *a->site);
    for (uint32_t i = 0; a->site && i < peft->n; i++) {
        a->site[i] = site[of[i]];
        a->site[i].name = strdup(site[of[i]].name);
        if (!a->site[i].name)
            return false;
        a->n_site++;
    }
    return a->site != NULL;
}

/* What the adapter's files say, for the sites of the program. */
static weft_err take(weft_live *live, const char *root, const char *folder, weft_live_adapter *a,
                     const weft_bundle_program *program, weft_arena *arena, weft_diag *diag)
{
    const weft_bundle_site *site;
    weft_peft peft;
    uint8_t *bytes = NULL;
    size_t len = 0;
    uint32_t n = weft_bundle_sites(program, arena, &site);
    if (n == 0)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = program->name},
                               "the model was compiled without adapters, and takes none: name "
                               "adapters, or adapter_modules, in its set file");
    WEFT_TRY(weft_peft_read(root, folder, arena, diag, &peft));
    uint32_t *of = weft_arena_array(arena, (size_t)peft.n + 1, sizeof *of);
    const char **name = weft_arena_array(arena, (size_t)peft.n + 1, sizeof *name);
    WEFT_TRY(weft_peft_find_sites(&peft, site, n, folder, diag, of));
    for (uint32_t i = 0; i < peft.n; i++)
        name[i] = site[of[i]].name;
    if (!keep_sites(a, &peft, site, of))
        return WEFT_ERR_NOMEM;
    WEFT_TRY(weft_peft_pack(&peft, name, &bytes, &len));
    weft_err err = put(live, bytes, len, diag, &a->number);
    free(bytes);
    a->identity = weft_peft_identity(&peft);
    a->bytes = err == WEFT_ERR_OK ? len : 0;
    return err;
}

static weft_err take_guarded(weft_live *live, const char *root, const char *folder,
                             weft_live_adapter *a, const weft_bundle_program *program,
                             weft_diag *diag)
{
    weft_arena *arena = weft_arena_create(0);
    jmp_buf env;
    if (!arena)
        return WEFT_ERR_NOMEM;
    weft_err err;
    weft_arena_guard(arena, &env);
    if (setjmp(env))
        err = WEFT_ERR_NOMEM;
    else
        err = take(live, root, folder, a, program, arena, diag);
    weft_arena_guard(arena, NULL);
    weft_arena_destroy(arena);
    return err;
}

/* The folder's path from the root; as it was named where it cannot be found. */
static char *absolute(const char *root, const char *folder)
{
    size_t room = (root ? strlen(root) : 0) + strlen(folder) + 2;
    char *named = malloc(room);
    if (!named)
        return NULL;
    snprintf(named, room, "%s%s%s", root ? root : "", root ? "/" : "", folder);
    char *path = realpath(named, NULL);
    if (path)
        free(named);
    return path ? path : named;
}

weft_err weft_live__read(weft_live *live, const char *root, const char *folder, const char *base,
                         const char *name, const weft_bundle_program *program, weft_diag *diag,
                         weft_live_adapter **out)
{
    if (live->is_refused)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                               "adapters have no signatures, which --require-signature asks for: "
                               "compile it into a bundle");
    weft_live_adapter *a = weft_live__removed(live, base, name);
    if (a)
        a->path = absolute(root, folder);
    weft_err err =
        a && a->path ? take_guarded(live, root, folder, a, program, diag) : WEFT_ERR_NOMEM;
    if (err == WEFT_ERR_OK && a->path[0] != '/')
        err = weft_diag_error(diag, WEFT_ERR_IO, (weft_where){0}, "its folder is gone");
    if (err == WEFT_ERR_OK)
        *out = a;
    else
        weft_live__release(a);
    return err;
}

static bool has_sites(const weft_live_adapter *a, const weft_bundle_site *site, uint32_t n)
{
    for (uint32_t i = 0; i < a->n_site; i++) {
        uint32_t k = 0;
        while (k < n && strcmp(site[k].name, a->site[i].name) != 0)
            k++;
        if (k == n || site[k].k != a->site[i].k || site[k].n != a->site[i].n)
            return false;
    }
    return true;
}

static bool find_fit(const weft_live_adapter *a, const weft_bundle_program *program)
{
    const weft_bundle_site *site = NULL;
    jmp_buf env;
    weft_arena *arena = weft_arena_create(0);
    if (!arena)
        return false;
    weft_arena_guard(arena, &env);
    if (setjmp(env)) {
        weft_arena_destroy(arena);
        return false;
    }
    uint32_t n = weft_bundle_sites(program, arena, &site);
    bool fits = n > 0 && has_sites(a, site, n);
    weft_arena_guard(arena, NULL);
    weft_arena_destroy(arena);
    return fits;
}

bool weft_live__fits(weft_live_adapter *a, const weft_bundle *bundle, uint32_t program)
{
    for (uint32_t i = 0; i < WEFT_LIVE_FITS; i++)
        if (a->fit[i].identity == bundle->identity && a->fit[i].program == program)
            return a->fit[i].fits;
    bool fits = find_fit(a, &bundle->program[program]);
    a->fit[a->n_fit++ % WEFT_LIVE_FITS] = (struct live_fit){bundle->identity, program, fits};
    return fits;
}

/* -- In force --------------------------------------------------------------------------------- */

static int compare_text(const char *a, const char *b, size_t len)
{
    size_t n = strlen(a);
    int order = memcmp(a, b, n < len ? n : len);
    return order ? order : (n > len) - (n < len);
}

static int compare(const weft_live_adapter *a, const char *base, size_t base_len, const char *name,
                   size_t len)
{
    int by_base = compare_text(a->base, base, base_len);
    return by_base ? by_base : compare_text(a->name, name, len);
}

/* Where it is in the table, or belongs. */
static uint32_t find_place(const weft_live *live, const char *base, size_t base_len,
                           const char *name, size_t len, bool *out_found)
{
    uint32_t from = 0, to = live->n;
    *out_found = false;
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        int order = compare(live->at[middle], base, base_len, name, len);
        *out_found = *out_found || order == 0;
        if (order < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

static bool make_room(weft_live *live)
{
    if (live->n < live->room)
        return true;
    uint32_t room = live->room ? 2 * live->room : 16;
    weft_live_adapter **at = room <= LIVE_MAX ? realloc(live->at, room * sizeof *at) : NULL;
    if (!at)
        return false;
    live->at = at;
    live->room = room;
    return true;
}

bool weft_live__exchange(weft_live *live, const char *base, const char *name,
                         weft_live_adapter *next, weft_live_adapter **out)
{
    bool found;
    uint32_t at = find_place(live, base, strlen(base), name, strlen(name), &found);
    if (next && !found && !make_room(live))
        return false;
    *out = found ? live->at[at] : NULL;
    live->counts.n -= *out && (*out)->number;
    live->counts.n += next && next->number;
    if (next && !next->counted) {
        next->counted = true;
        live->counts.bytes += next->bytes;
    }
    if (found && !next)
        memmove(&live->at[at], &live->at[at + 1], (--live->n - at) * sizeof *live->at);
    if (!found && next)
        memmove(&live->at[at + 1], &live->at[at], (live->n++ - at) * sizeof *live->at);
    if (next)
        live->at[at] = next;
    return true;
}

weft_live_adapter *weft_live__find(const weft_live *live, const char *base, size_t base_len,
                                   const char *name, size_t len)
{
    bool found = false;
    uint32_t at = live ? find_place(live, base, base_len, name, len, &found) : 0;
    return found ? live->at[at] : NULL;
}

weft_live_adapter *weft_live__at(const weft_live *live, uint32_t i)
{
    return live && i < live->n ? live->at[i] : NULL;
}

weft_live_counts weft_live__counts(const weft_live *live)
{
    return live ? live->counts : (weft_live_counts){0};
}

void weft_live__count(weft_live_adapter *adapter, bool ok)
{
    *(ok ? &adapter->n_ok : &adapter->n_failed) += 1;
}

void weft_live__count_change(weft_live *live)
{
    live->counts.changes++;
}
