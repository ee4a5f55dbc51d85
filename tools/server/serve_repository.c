/* Model repositories that are compiled when they are served.
 *
 * Bundles are made in a folder of this run, which has one for all models, and one for each model
 * that was loaded since. To find changes, each model gets a fingerprint: the configuration, and
 * names, sizes and times of the files of its versions; an ensemble's has those of its steps. A
 * change counts when two looks have found the same, so that no file is read while it is copied. */
#include "tools/server/serve_repository.h"

#include "base/file.h"
#include "base/hash.h"
#include "scheduler/scheduler.h"
#include "tools/server/model_overlay.h"
#include "tools/server/serve_child.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MODELS_MAX = 4096 };

/* A model by its name for requests. */
typedef struct known_model {
    char *name;            /* owned */
    uint64_t served, seen; /* fingerprints: of what was loaded, of the last look; 0: none */
    bool is_there;         /* in the look under way */
    bool again;            /* the compiler was killed: what is there is compiled once more */
} known_model;

struct weft_triton {
    const char *path;
    char folder[4096]; /* of the bundles */
    unsigned n_made;
    weft_child_watch watch;
    pthread_mutex_t lock; /* of the models: looks and compilations are in threads of their own */
    known_model *model;
    size_t n_model;
};

/* -- Folders ---------------------------------------------------------------------------------- */

static bool has_models(const char *path)
{
    char at[4096];
    DIR *dir = opendir(path);
    bool found = false;
    for (const struct dirent *e; dir && !found && (e = readdir(dir));) {
        bool fits = snprintf(at, sizeof at, "%s/%s", path, e->d_name) < (int)sizeof at;
        if (!fits || e->d_name[0] == '.')
            continue;
        found = strcmp(e->d_name, "config.pbtxt") == 0 ||
                (weft_serve_is_version(e->d_name) && weft_file_is_folder(at));
    }
    if (dir)
        closedir(dir);
    return found;
}

bool weft_triton_is_for(const char *folder)
{
    char at[4096];
    DIR *dir = opendir(folder);
    bool found = false;
    for (const struct dirent *e; dir && !found && (e = readdir(dir));)
        found = e->d_name[0] != '.' &&
                snprintf(at, sizeof at, "%s/%s", folder, e->d_name) < (int)sizeof at &&
                weft_file_is_folder(at) && has_models(at);
    if (dir)
        closedir(dir);
    return found;
}

/* -- Fingerprints ----------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, const void *bytes, size_t len)
{
    return weft_hash64(bytes, len, hash);
}

static uint64_t mix_file(uint64_t hash, const char *path)
{
    struct stat st;
    if (!path || stat(path, &st) != 0)
        return hash;
    const int64_t facts[] = {(int64_t)st.st_size, (int64_t)st.st_mtim.tv_sec,
                             (int64_t)st.st_mtim.tv_nsec, (int64_t)st.st_ino};
    hash = mix(hash, path, strlen(path));
    return mix(hash, facts, sizeof facts);
}

/* All files beside a model's file, which may be its weights; in no order. */
static uint64_t mix_folder(uint64_t hash, const char *file)
{
    char at[4096];
    const char *slash = file ? strrchr(file, '/') : NULL;
    int len = slash ? (int)(slash - file) : 0;
    uint64_t sum = 0;
    if (!slash || snprintf(at, sizeof at, "%.*s", len, file) >= (int)sizeof at)
        return mix_file(hash, file);
    DIR *dir = opendir(at);
    for (const struct dirent *e; dir && (e = readdir(dir));)
        if (snprintf(at, sizeof at, "%.*s/%s", len, file, e->d_name) < (int)sizeof at &&
            strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            sum += mix_file(0, at);
    if (dir)
        closedir(dir);
    hash = mix(hash, file, strlen(file));
    return mix(hash, &sum, sizeof sum);
}

static uint64_t mix_model(uint64_t hash, const weft_set_model *model)
{
    hash = mix_file(hash, model->config ? model->config->file : NULL);
    return mix_folder(hash, model->file);
}

static uint64_t fingerprint(uint64_t hash, const weft_set_model *model)
{
    hash = model->n_step ? mix_file(hash, model->config->file) : mix_model(hash, model);
    hash = mix(hash, model->version, strlen(model->version));
    for (size_t i = 0; i < model->n_step; i++)
        hash = mix_model(hash, model->step[i].model);
    return hash;
}

static known_model *find_known(weft_triton *r, const char *name)
{
    for (size_t i = 0; i < r->n_model; i++)
        if (strcmp(r->model[i].name, name) == 0)
            return &r->model[i];
    return NULL;
}

static known_model *add_known(weft_triton *r, const char *name)
{
    known_model *k = find_known(r, name);
    if (k)
        return k;
    known_model *more =
        r->n_model < MODELS_MAX ? realloc(r->model, (r->n_model + 1) * sizeof *more) : NULL;
    char *copy = more ? strdup(name) : NULL;
    if (more)
        r->model = more;
    if (!copy)
        return NULL;
    r->model[r->n_model] = (known_model){.name = copy};
    return &r->model[r->n_model++];
}

/* Calls `found` for what is other than what was loaded and the same as in the last look; with
 * `found` NULL everything counts as loaded. */
static void compare(weft_triton *r, const weft_set *set,
                    bool (*found)(void *to, const char *model, bool gone), void *to)
{
    for (size_t i = 0; i < r->n_model; i++)
        r->model[i].is_there = false;
    for (size_t i = 0; i < set->n_model;) { /* versions of a model are side by side */
        const char *name = set->model[i].serves;
        known_model *k = add_known(r, name);
        uint64_t now = 0;
        for (; i < set->n_model && strcmp(set->model[i].serves, name) == 0; i++)
            now = fingerprint(now, &set->model[i]);
        if (!k)
            continue;
        k->is_there = true;
        if (!found ||
            ((now != k->served || k->again) && now == k->seen && found(to, name, false))) {
            k->served = now;
            k->again = false;
        }
        k->seen = now;
    }
    for (size_t i = 0; i < r->n_model; i++) {
        known_model *k = &r->model[i];
        if (k->is_there || k->served == 0)
            continue;
        if (k->seen == 0 && found && found(to, k->name, true))
            k->served = 0;
        k->seen = 0;
    }
}

static weft_err look(void *user, bool (*found)(void *to, const char *model, bool gone), void *to,
                     weft_diag *diag)
{
    weft_triton *r = user;
    weft_arena *arena = weft_arena_create(0);
    weft_diag *said = weft_diag_create(); /* warnings were given when the models were compiled */
    weft_set set;
    weft_err err = arena && said ? weft_set_load(r->path, arena, said, &set) : WEFT_ERR_NOMEM;
    if (err == WEFT_ERR_OK) {
        pthread_mutex_lock(&r->lock);
        compare(r, &set, found, to);
        pthread_mutex_unlock(&r->lock);
    }
    for (size_t i = 0; err != WEFT_ERR_OK && i < weft_diag_count(said); i++)
        if (weft_diag_at(said, i)->severity == WEFT_SEV_ERROR)
            err = weft_diag_error(diag, err, (weft_where){.file = weft_diag_at(said, i)->file},
                                  "%s", weft_diag_at(said, i)->text);
    weft_diag_destroy(said);
    weft_arena_destroy(arena);
    return err;
}

/* -- The compiler ----------------------------------------------------------------------------- */

/* `out_killed`: a signal has ended the compiler, as the kernel does for lack of memory, which says
 * nothing of the model; or it could not be started. */
static weft_err compile(weft_triton *r, const char *from, const char *to, weft_arena *arena,
                        weft_diag *diag, bool *out_killed)
{
    weft_child c;
    WEFT_TRY(weft_child_begin("weft-compiler", "compile", "--repository", arena, diag, &c));
    weft_child_add(&c, NULL, "--quiet");
    weft_child_add(&c, "--repository", from);
    weft_child_add(&c, "-o", to);
    int code = weft_child_run(&c, &r->watch);
    *out_killed = code < 0;
    return code == 0 ? WEFT_ERR_OK
                     : weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = from},
                                       "cannot be compiled (exit code %d); the log of the server "
                                       "has the compiler's messages",
                                       code);
}

static weft_err make(void *user, const char *model, const char *config, weft_diag *diag,
                     char **out_path)
{
    weft_triton *r = user;
    weft_arena *arena = weft_arena_create(0);
    if (!arena)
        return WEFT_ERR_NOMEM;
    const char *to = weft_arena_printf(arena, "%s/%u.weft", r->folder, ++r->n_made);
    const char *in = config ? weft_arena_printf(arena, "%s/%u", r->folder, r->n_made) : r->path;
    const char *from = weft_arena_printf(arena, "%s/%s", in, model);
    bool killed = false;
    weft_err err =
        config ? weft_overlay_make(r->path, model, config, in, arena, diag) : WEFT_ERR_OK;
    if (err == WEFT_ERR_OK)
        err = compile(r, from, to, arena, diag, &killed);
    if (config)
        weft_overlay_remove(in, model, arena);
    if (killed) {
        pthread_mutex_lock(&r->lock);
        known_model *k = find_known(r, model);
        if (k)
            k->again = true;
        pthread_mutex_unlock(&r->lock);
    }
    *out_path = err == WEFT_ERR_OK ? strdup(to) : NULL;
    if (err == WEFT_ERR_OK && !*out_path)
        err = WEFT_ERR_NOMEM;
    weft_arena_destroy(arena);
    return err;
}

static void stop(void *user)
{
    weft_triton *r = user;
    weft_child_stop(&r->watch);
}

weft_serve_source weft_triton_source(weft_triton *r, double poll_s)
{
    return (weft_serve_source){
        .make = make, .look = look, .stop = stop, .poll_s = poll_s, .user = r};
}

/* -- Life ------------------------------------------------------------------------------------- */

weft_err weft_triton_begin(const char *folder, weft_arena *arena, weft_diag *diag,
                           const char **out_bundle, weft_triton **out)
{
    const char *base = getenv("TMPDIR");
    weft_triton *r = calloc(1, sizeof *r);
    if (!r)
        return WEFT_ERR_NOMEM;
    bool killed;
    pthread_mutex_init(&r->watch.lock, NULL);
    pthread_mutex_init(&r->lock, NULL);
    r->path = folder;
    *out = r;
    snprintf(r->folder, sizeof r->folder, "%s/weft-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(r->folder)) {
        weft_err err = weft_diag_error(diag, WEFT_ERR_IO, (weft_where){.file = r->folder},
                                       "cannot be created: %s", strerror(errno));
        r->folder[0] = '\0';
        return err;
    }
    /* What changes from here on is found. */
    WEFT_TRY(look(r, NULL, NULL, diag));
    *out_bundle = weft_arena_printf(arena, "%s/all.weft", r->folder);
    return compile(r, folder, *out_bundle, arena, diag, &killed);
}

void weft_triton_end(weft_triton *r)
{
    if (!r)
        return;
    if (r->folder[0])
        weft_file_remove_folder(r->folder); /* what a compiler that was ended leaves, too */
    for (size_t i = 0; i < r->n_model; i++)
        free(r->model[i].name);
    free(r->model);
    pthread_mutex_destroy(&r->lock);
    pthread_mutex_destroy(&r->watch.lock);
    free(r);
}
