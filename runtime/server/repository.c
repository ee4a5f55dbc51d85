/* The folder of bundles that clients may load by name. Only names of models and versions come from
 * clients, and only files that lie in the folder are opened: no path, no symbolic link. */
#include "runtime/server/deployment_int.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { ENTRIES_MAX = 4096, NAME_BYTES_MAX = 200 };

static const char suffix[] = ".weft";

/* The names that models can have, but for a leading dot. */
static bool is_name(const char *name, size_t len)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
    return len > 0 && len <= NAME_BYTES_MAX && name[0] != '.' && strspn(name, allowed) >= len;
}

static bool is_file(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* Length of a file name without ".weft"; 0: it has another form. */
static size_t stem_of(const char *name)
{
    size_t len = strlen(name), end = sizeof suffix - 1;
    return len > end && strcmp(name + len - end, suffix) == 0 ? len - end : 0;
}

/* "3.weft": *out is "3". */
static bool take_version(const char *name, char out[WEFT_VERSION_MAX])
{
    size_t stem = stem_of(name);
    if (stem == 0 || stem >= WEFT_VERSION_MAX)
        return false;
    memcpy(out, name, stem);
    out[stem] = '\0';
    return weft_serve_is_version(out);
}

static bool is_later(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    return n != m ? n > m : strcmp(a, b) > 0;
}

/* Calls `fn` for the entries of a folder. */
static void read_folder(const char *path, void (*fn)(void *user, const char *name), void *user)
{
    DIR *dir = opendir(path);
    const struct dirent *e;
    for (int i = 0; dir && i < ENTRIES_MAX && (e = readdir(dir)); i++)
        fn(user, e->d_name);
    if (dir)
        closedir(dir);
}

static void keep_latest(void *user, const char *name)
{
    char version[WEFT_VERSION_MAX], *best = user;
    if (take_version(name, version) && (!best[0] || is_later(version, best)))
        strcpy(best, version);
}

bool weft_repository__find(const char *folder, const char *model, const char *version,
                           weft_repository_file *out)
{
    char best[WEFT_VERSION_MAX] = "";
    if (!is_name(model, strlen(model)) || (version && !weft_serve_is_version(version)))
        return false;
    int len = snprintf(out->path, sizeof out->path, "%s/%s", folder, model);
    if (len < 0 || (size_t)len + 64 > sizeof out->path)
        return false;
    if (version)
        strcpy(best, version);
    else
        read_folder(out->path, keep_latest, best);
    char *end = out->path + len;
    size_t room = sizeof out->path - (size_t)len;
    snprintf(end, room, "/%s%s", best, suffix);
    bool found = best[0] && is_file(out->path);
    if (!found && (!best[0] || strcmp(best, "1") == 0)) {
        strcpy(best, "1");
        snprintf(end, room, "%s", suffix);
        found = is_file(out->path);
    }
    strcpy(out->version, best);
    return found;
}

typedef struct listing {
    const char *folder, *model; /* `model`: whose folder is read */
    void (*fn)(void *user, const char *model, const char *version);
    void *user;
} listing;

static void list_version(void *user, const char *name)
{
    const listing *l = user;
    char version[WEFT_VERSION_MAX], path[4096];
    int n = snprintf(path, sizeof path, "%s/%s/%s", l->folder, l->model, name);
    if (n > 0 && (size_t)n < sizeof path && take_version(name, version) && is_file(path))
        l->fn(l->user, l->model, version);
}

static void list_model(void *user, const char *name)
{
    const listing *l = user;
    listing own = *l;
    char path[4096];
    struct stat st;
    size_t stem = stem_of(name), len = stem ? stem : strlen(name);
    int n = snprintf(path, sizeof path, "%s/%s", l->folder, name);
    if (n < 0 || (size_t)n >= sizeof path || !is_name(name, len) || lstat(path, &st) != 0)
        return;
    char model[NAME_BYTES_MAX + 1];
    memcpy(model, name, len);
    model[len] = '\0';
    own.model = model;
    if (stem && S_ISREG(st.st_mode))
        l->fn(l->user, model, "1");
    else if (!stem && S_ISDIR(st.st_mode))
        read_folder(path, list_version, &own);
}

void weft_repository__list(const char *folder,
                           void (*fn)(void *user, const char *model, const char *version),
                           void *user)
{
    listing l = {.folder = folder, .fn = fn, .user = user};
    read_folder(folder, list_model, &l);
}

/* -- What clients ask for --------------------------------------------------------------------- */

static bool refuse(weft_repository_refusal *out, weft_answer answer, const char *text)
{
    *out = (weft_repository_refusal){.answer = answer};
    snprintf(out->text, sizeof out->text, "%s", text);
    return false;
}

bool weft_repository__load(weft_deployment *d, const char *folder, const char *model,
                           const weft_repository_request *request, weft_operation_wait *wait,
                           weft_repository_refusal *out)
{
    weft_repository_file file;
    if (!folder)
        return refuse(out, WEFT_ANSWER_INVALID,
                      "loading and unloading is off: start the server with --repository");
    if (!weft_repository__find(folder, model, request->version, &file))
        return refuse(out, WEFT_ANSWER_NOT_FOUND, "the repository has no such model or version");
    const weft_serve_bundle as = {.path = file.path,
                                  .folder = folder,
                                  .version = file.version,
                                  .model = &model,
                                  .n_model = 1,
                                  .has_weight = request->has_weight,
                                  .weight = request->weight};
    return weft_deployment__load(d, &as, !request->version, wait) != 0 ||
           refuse(out, WEFT_ANSWER_UNAVAILABLE, "too many changes wait");
}

bool weft_repository__unload(weft_deployment *d, const char *folder, const char *model,
                             const weft_repository_request *request, weft_operation_wait *wait,
                             weft_repository_refusal *out)
{
    if (!folder)
        return refuse(out, WEFT_ANSWER_INVALID,
                      "loading and unloading is off: start the server with --repository");
    return weft_deployment__unload(d, NULL, model, request->version, wait) != 0 ||
           refuse(out, WEFT_ANSWER_UNAVAILABLE, "too many changes wait");
}
