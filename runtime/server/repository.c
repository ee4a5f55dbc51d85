/* The folder of bundles, or of models to compile, that clients may load by name. Only names of
 * models and versions come from clients, no path. Of bundles only files that lie in the folder are
 * opened, no symbolic link; models to compile may be links, as they often are in repositories of
 * Triton. */
#include "runtime/server/access_int.h"
#include "runtime/server/deployment_int.h"

#include "base/file.h"

#include <ctype.h>
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* A folder that is being read. */
typedef struct folder_reader {
    DIR *dir; /* NULL: none */
    int n_read;
} folder_reader;

static void end_folder(folder_reader *r)
{
    if (r->dir)
        closedir(r->dir);
    *r = (folder_reader){0};
}

/* NULL: that was all. */
static const char *next_name(folder_reader *r)
{
    const struct dirent *e = r->dir && r->n_read++ < ENTRIES_MAX ? readdir(r->dir) : NULL;
    if (!e)
        end_folder(r);
    return e ? e->d_name : NULL;
}

/* The latest version that has a file in a model's folder; "": none. */
static void find_latest(const char *path, char best[WEFT_VERSION_MAX])
{
    folder_reader r = {.dir = opendir(path)};
    char version[WEFT_VERSION_MAX];
    const char *name;
    best[0] = '\0';
    while ((name = next_name(&r)))
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
        find_latest(out->path, best);
    char *end = out->path + len;
    size_t room = sizeof out->path - (size_t)len;
    snprintf(end, room, "/%s%s", best, suffix);
    bool found = best[0] && is_file(out->path);
    out->is_versioned = found || version;
    if (!found && (!best[0] || strcmp(best, "1") == 0)) {
        strcpy(best, "1");
        snprintf(end, room, "%s", suffix);
        found = is_file(out->path);
    }
    strcpy(out->version, best);
    return found;
}

/* -- All of them ------------------------------------------------------------------------------ */

struct weft_repository_scan {
    char *folder;
    folder_reader models, versions; /* `versions`: of the folder of `model` */
    char model[NAME_BYTES_MAX + 1], version[WEFT_VERSION_MAX];
};

weft_repository_scan *weft_repository__open_scan(const char *folder)
{
    weft_repository_scan *s = calloc(1, sizeof *s);
    char *copy = strdup(folder);
    if (!s || !copy) {
        free(copy);
        free(s);
        return NULL;
    }
    s->folder = copy;
    s->models.dir = opendir(folder);
    return s;
}

void weft_repository__close_scan(weft_repository_scan *s)
{
    if (!s)
        return;
    end_folder(&s->versions);
    end_folder(&s->models);
    free(s->folder);
    free(s);
}

/* Whether an entry of the model's folder is a version: a bundle, or a folder. */
static bool take_file(weft_repository_scan *s, const char *name)
{
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/%s/%s", s->folder, s->model, name);
    if (n < 0 || (size_t)n >= sizeof path)
        return false;
    if (!weft_serve_is_version(name))
        return take_version(name, s->version) && is_file(path);
    strcpy(s->version, name);
    return weft_file_is_folder(path);
}

/* Whether an entry of the folder is a version; the versions of one that is a folder come next. */
static bool take_entry(weft_repository_scan *s, const char *name)
{
    char path[4096];
    struct stat st;
    size_t stem = stem_of(name), len = stem ? stem : strlen(name);
    int n = snprintf(path, sizeof path, "%s/%s", s->folder, name);
    if (n < 0 || (size_t)n >= sizeof path || !is_name(name, len) || lstat(path, &st) != 0)
        return false;
    memcpy(s->model, name, len);
    s->model[len] = '\0';
    strcpy(s->version, "1");
    if (!stem && S_ISDIR(st.st_mode))
        s->versions.dir = opendir(path);
    return stem && S_ISREG(st.st_mode);
}

bool weft_repository__scan(weft_repository_scan *s, const char **out_model,
                           const char **out_version)
{
    const char *name;
    *out_model = NULL;
    *out_version = s->version;
    if (s->versions.dir) {
        name = next_name(&s->versions);
        if (name && take_file(s, name))
            *out_model = s->model;
        return true;
    }
    name = next_name(&s->models);
    if (name && take_entry(s, name))
        *out_model = s->model;
    return name != NULL;
}

/* -- What clients ask for --------------------------------------------------------------------- */

static bool refuse(weft_repository_refusal *out, weft_answer answer, const char *text)
{
    *out = (weft_repository_refusal){.answer = answer};
    snprintf(out->text, sizeof out->text, "%s", text);
    return false;
}

bool weft_repository__may_change(const char *patterns, const char *model)
{
    char base[NAME_BYTES_MAX + 1];
    size_t len = strcspn(model, (const char[]){WEFT_ADAPTER_MARK, '\0'});
    if (!patterns || len >= sizeof base)
        return !patterns;
    memcpy(base, model, len);
    base[len] = '\0';
    return weft_key__names_model(patterns, base);
}

/* Whether there is something at the path, which is the client's, below the root. */
static bool check_path(const char *root, const char *path, weft_repository_refusal *out)
{
    int fd = -1;
    weft_diag *diag = weft_diag_create();
    weft_err err = diag ? weft_file_open_beneath(root, path, diag, &fd) : WEFT_ERR_NOMEM;
    if (err == WEFT_ERR_OK)
        close(fd);
    else if (err == WEFT_ERR_INPUT)
        (void)refuse(out, WEFT_ANSWER_INVALID, weft_diag_at(diag, 0)->text);
    else
        (void)refuse(out, WEFT_ANSWER_NOT_FOUND, "there is no such folder of an adapter");
    weft_diag_destroy(diag);
    return err == WEFT_ERR_OK;
}

/* An adapter and its folder: below that of all adapters, BASE/NAME or what the client says. */
static bool change_adapter(weft_deployment *d, const char *model, const char *name, bool loads,
                           const weft_repository_request *request, weft_operation_wait *wait,
                           weft_repository_refusal *out)
{
    char base[NAME_BYTES_MAX + 1], folder[2 * NAME_BYTES_MAX + 4];
    const char *root = weft_deployment__adapters(d);
    size_t len = (size_t)(name - 1 - model);
    if (!root)
        return refuse(out, WEFT_ANSWER_INVALID,
                      "loading and unloading of adapters is off: start the server with --adapters");
    if (request->version || request->has_weight)
        return refuse(out, WEFT_ANSWER_INVALID, "an adapter has neither version nor weight");
    if (!is_name(model, len) || !is_name(name, strlen(name)) ||
        strlen(name) > WEFT_ADAPTER_NAME_MAX)
        return refuse(out, WEFT_ANSWER_NOT_FOUND, "no adapter can have this name");
    memcpy(base, model, len);
    base[len] = '\0';
    snprintf(folder, sizeof folder, "%s/%s", base, name);
    const char *from = request->path ? request->path : folder;
    if (loads && !check_path(root, from, out))
        return false;
    return weft_deployment__adapt(d, base, name, root, loads ? from : NULL, wait) != 0 ||
           refuse(out, WEFT_ANSWER_UNAVAILABLE, "too many changes wait");
}

/* Whether a key of JSON may stand for the field, in whatever form whoever reads it allows; `field`:
 * in small letters, without '_'. */
static bool is_field(const char *key, const char *field)
{
    for (; *key; key++)
        if (*key != '_' && tolower((unsigned char)*key) != *field++)
            return false;
    return !*field;
}

static bool may_use_step(const char *patterns, json_t *step)
{
    const char *key;
    json_t *value;
    bool ok = true, named = false;
    json_object_foreach(step, key, value)
    {
        const char *model = json_string_value(value);
        if (!is_field(key, "modelname"))
            continue;
        named = true;
        ok = ok && model && weft_key__names_model(patterns, model);
    }
    return ok && named;
}

/* Anything but an object with a list of steps, which name their models, is refused. */
static bool may_use_steps(const char *patterns, json_t *ensemble)
{
    const char *key;
    json_t *list, *step;
    bool ok = json_is_object(ensemble);
    size_t i;
    json_object_foreach(ensemble, key, list)
    {
        if (!is_field(key, "step"))
            continue;
        ok = ok && json_is_array(list);
        json_array_foreach(list, i, step)
        {
            ok = ok && may_use_step(patterns, step);
        }
    }
    return ok;
}

/* A configuration makes no model of models to which its client has no right. */
static bool check_config(const weft_repository_request *request, weft_repository_refusal *out)
{
    const char *key;
    json_t *value;
    if (!request->config || !request->patterns)
        return true;
    json_t *root = json_loads(request->config, JSON_REJECT_DUPLICATES, NULL);
    bool is_object = json_is_object(root), ok = true;
    json_object_foreach(root, key, value)
    {
        if (is_field(key, "ensemblescheduling"))
            ok = ok && may_use_steps(request->patterns, value);
    }
    json_decref(root);
    if (is_object && ok)
        return true;
    return refuse(out, WEFT_ANSWER_INVALID,
                  is_object ? "'config': the key has no right to the model of each step"
                            : "'config' is no JSON object");
}

/* Loads a model that is compiled for it. */
static bool load_made(weft_deployment *d, const char *folder, const char *model,
                      const weft_repository_request *request, weft_operation_wait *wait,
                      weft_repository_refusal *out)
{
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/%s", folder, model);
    if (request->version || request->has_weight)
        return refuse(out, WEFT_ANSWER_INVALID,
                      "the versions to load are those of the model's version_policy");
    if (!is_name(model, strlen(model)) || n < 0 || (size_t)n >= sizeof path ||
        !weft_file_is_folder(path))
        return refuse(out, WEFT_ANSWER_NOT_FOUND,
                      "failed to load: the repository has no such model");
    if (!check_config(request, out))
        return false;
    return weft_deployment__make(d, model, request->config, wait) != 0 ||
           refuse(out, WEFT_ANSWER_UNAVAILABLE, "too many changes wait");
}

bool weft_repository__load(weft_deployment *d, const char *folder, const char *model,
                           const weft_repository_request *request, weft_operation_wait *wait,
                           weft_repository_refusal *out)
{
    weft_repository_file file;
    const char *mark = strchr(model, WEFT_ADAPTER_MARK);
    if (mark)
        return change_adapter(d, model, mark + 1, true, request, wait, out);
    if (request->path)
        return refuse(out, WEFT_ANSWER_INVALID, "parameter 'path' is for adapters");
    if (!folder)
        return refuse(out, WEFT_ANSWER_INVALID,
                      "loading and unloading is off: start the server with --repository");
    if (weft_deployment__has_source(d))
        return load_made(d, folder, model, request, wait, out);
    if (request->config)
        return refuse(out, WEFT_ANSWER_INVALID,
                      "parameter 'config' is for models that the server compiles");
    if (!weft_repository__find(folder, model, request->version, &file))
        return refuse(out, WEFT_ANSWER_NOT_FOUND, "the repository has no such model or version");
    const weft_serve_bundle as = {.path = file.path,
                                  .folder = folder,
                                  .version = file.is_versioned ? file.version : NULL,
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
    const char *mark = strchr(model, WEFT_ADAPTER_MARK);
    if (mark)
        return change_adapter(d, model, mark + 1, false, request, wait, out);
    if (!folder)
        return refuse(out, WEFT_ANSWER_INVALID,
                      "loading and unloading is off: start the server with --repository");
    return weft_deployment__unload(d, NULL, model, request->version, wait) != 0 ||
           refuse(out, WEFT_ANSWER_UNAVAILABLE, "too many changes wait");
}
