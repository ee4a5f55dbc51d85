/* The folder that keeps what is served over restarts of the server: `state.json`, which is replaced
 * as a whole, and `lock`.
 *
 *   {"format": "weft-state", "version": 1, "plan": PLAN or null,
 *    "bundles": [{"path": PATH, "identity": HEX, "version": "1", "spreads": BOOL,
 *                 "models": {NAME: WEIGHT, ...}}, ...],
 *    "adapters": [{"base": MODEL, "name": NAME, "path": FOLDER or null, "identity": HEX}, ...]}
 *
 * The version "" stands for those that the bundle has; names are those of the bundle's programs.
 * The path null stands for an adapter of a bundle that was removed.
 *
 * The next state is written and synchronised before a change comes into force, so that a full disk
 * refuses the change, and renamed when it has. */
#include "runtime/server/deployment_int.h"
#include "runtime/server/live_int.h"

#include "base/file.h"
#include "runtime/server/json_dump.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    STATE_BYTES_MAX = 64 << 20,
    BUNDLES_MAX = 4096,
    MODELS_MAX = 8192,
    ADAPTERS_MAX = 65536,
    PATH_BYTES = 4096
};

static const double weight_max = 1e6;

/* -- Reading ---------------------------------------------------------------------------------- */

static weft_err refuse(weft_diag *diag, const char *folder, const char *what)
{
    return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = folder, .item = "state.json"},
                           "%s; move the file away to start without it", what);
}

static weft_err read_models(const json_t *models, weft_arena *arena, weft_diag *diag,
                            const char *folder, weft_serve_bundle *out)
{
    size_t n = json_object_size(models), i = 0;
    const char *name;
    json_t *weight;
    const char **model = weft_arena_array(arena, n + 1, sizeof *model);
    double *weights = weft_arena_array(arena, n + 1, sizeof *weights);
    json_object_foreach((json_t *)models, name, weight)
    {
        model[i] = weft_arena_strdup(arena, name);
        weights[i] = json_number_value(weight);
        if (!json_is_number(weight) || !(weights[i] >= 0 && weights[i] <= weight_max))
            return refuse(diag, folder, "a weight is missing or wrong");
        i++;
    }
    out->model = model;
    out->model_weight = weights;
    out->n_model = (uint32_t)n;
    return WEFT_ERR_OK;
}

static weft_err read_bundle(const json_t *b, weft_arena *arena, weft_diag *diag, const char *folder,
                            weft_serve_bundle *out)
{
    const char *path = json_string_value(json_object_get(b, "path"));
    const char *identity = json_string_value(json_object_get(b, "identity"));
    const char *version = json_string_value(json_object_get(b, "version"));
    const json_t *models = json_object_get(b, "models"), *spreads = json_object_get(b, "spreads");
    char *end = NULL;
    errno = 0;
    unsigned long long hash = identity && strlen(identity) == 16 ? strtoull(identity, &end, 16) : 0;
    if (!path || path[0] != '/' || strlen(path) >= PATH_BYTES)
        return refuse(diag, folder, "the path of a bundle is missing or wrong");
    if (!end || *end || errno || hash == 0 || identity[0] == '-' || identity[0] == '+')
        return refuse(diag, folder, "the identity of a bundle is missing or wrong");
    if (!version || (*version && !weft_serve_is_version(version)))
        return refuse(diag, folder, "the version of a bundle is missing or wrong");
    if (!json_is_object(models) || json_object_size(models) == 0 ||
        json_object_size(models) > MODELS_MAX || !json_is_boolean(spreads))
        return refuse(diag, folder, "the models of a bundle are missing or wrong");
    *out = (weft_serve_bundle){.path = weft_arena_strdup(arena, path),
                               .version = *version ? weft_arena_strdup(arena, version) : NULL,
                               .identity = hash,
                               .spreads = json_is_true(spreads)};
    return read_models(models, arena, diag, folder, out);
}

/* The 32 digits of a content hash. */
static bool read_hash(const char *text, weft_hash128 *out)
{
    char half[17] = "";
    if (!text || strlen(text) != 32 || strspn(text, "0123456789abcdef") != 32)
        return false;
    memcpy(half, text, 16);
    *out = (weft_hash128){strtoull(half, NULL, 16), strtoull(text + 16, NULL, 16)};
    return true;
}

static weft_err read_adapter(const json_t *a, weft_arena *arena, weft_diag *diag,
                             const char *folder, weft_state_adapter *out)
{
    const char *base = json_string_value(json_object_get(a, "base"));
    const char *name = json_string_value(json_object_get(a, "name"));
    const json_t *path = json_object_get(a, "path");
    const char *text = json_string_value(path);
    if (!base || !*base || !name || !*name || strlen(name) > WEFT_ADAPTER_NAME_MAX)
        return refuse(diag, folder, "the name of an adapter is missing or wrong");
    if (!json_is_null(path) && (!text || text[0] != '/' || strlen(text) >= PATH_BYTES))
        return refuse(diag, folder, "the path of an adapter is missing or wrong");
    *out = (weft_state_adapter){.base = weft_arena_strdup(arena, base),
                                .name = weft_arena_strdup(arena, name),
                                .path = text ? weft_arena_strdup(arena, text) : NULL};
    return !text || read_hash(json_string_value(json_object_get(a, "identity")), &out->identity)
               ? WEFT_ERR_OK
               : refuse(diag, folder, "the identity of an adapter is missing or wrong");
}

/* States of older servers have no such list. */
static weft_err read_adapters(const json_t *list, weft_arena *arena, weft_diag *diag,
                              const char *folder, weft_state *out)
{
    size_t n = json_array_size(list);
    if ((list && !json_is_array(list)) || n > ADAPTERS_MAX)
        return refuse(diag, folder, "the adapters are wrong");
    weft_state_adapter *adapter = weft_arena_array(arena, n + 1, sizeof *adapter);
    for (size_t i = 0; i < n; i++)
        WEFT_TRY(read_adapter(json_array_get(list, i), arena, diag, folder, &adapter[i]));
    out->adapter = adapter;
    out->n_adapter = (uint32_t)n;
    return WEFT_ERR_OK;
}

static weft_err read_state(const json_t *root, weft_arena *arena, weft_diag *diag,
                           const char *folder, weft_state *out)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    const json_t *bundles = json_object_get(root, "bundles"), *plan = json_object_get(root, "plan");
    size_t n = json_array_size(bundles);
    if (!format || strcmp(format, "weft-state") != 0 ||
        json_integer_value(json_object_get(root, "version")) != 1)
        return refuse(diag, folder, "is no state of this version of the server");
    if (!json_is_array(bundles) || n > BUNDLES_MAX || !(json_is_object(plan) || json_is_null(plan)))
        return refuse(diag, folder, "bundles or plan are missing or wrong");
    weft_serve_bundle *b = weft_arena_array(arena, n + 1, sizeof *b);
    for (size_t i = 0; i < n; i++)
        WEFT_TRY(read_bundle(json_array_get(bundles, i), arena, diag, folder, &b[i]));
    char *text = json_is_object(plan) ? json_dumps(plan, JSON_COMPACT) : NULL;
    if (json_is_object(plan) && !text)
        return WEFT_ERR_NOMEM;
    *out = (weft_state){
        .bundle = b, .n_bundle = (uint32_t)n, .plan = text ? weft_arena_strdup(arena, text) : NULL};
    free(text);
    return read_adapters(json_object_get(root, "adapters"), arena, diag, folder, out);
}

weft_err weft_state__open(const char *folder, weft_diag *diag, int *out_lock)
{
    char path[PATH_BYTES];
    const weft_where where = {.file = folder};
    int n = snprintf(path, sizeof path, "%s/lock", folder);
    if (n < 0 || (size_t)n >= sizeof path - 16)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "the path is too long");
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return weft_diag_error(diag, WEFT_ERR_IO, where, "create folder: %s", strerror(errno));
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){.file = path}, "open: %s",
                               strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "another server uses this state");
    }
    *out_lock = fd;
    return WEFT_ERR_OK;
}

weft_err weft_state__read(const char *folder, weft_arena *arena, weft_diag *diag, weft_state *out,
                          bool *out_found)
{
    char path[PATH_BYTES], *text = NULL;
    size_t len = 0;
    json_error_t error;
    snprintf(path, sizeof path, "%s/state.json", folder);
    *out_found = access(path, F_OK) == 0;
    if (!*out_found)
        return WEFT_ERR_OK;
    if (!weft_file_is_regular(path))
        return refuse(diag, folder, "is not a regular file");
    WEFT_TRY(weft_file_read(path, STATE_BYTES_MAX, diag, &text, &len));
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
    free(text);
    weft_err err = json_is_object(root) ? read_state(root, arena, diag, folder, out)
                                        : refuse(diag, folder, "is not a JSON object");
    json_decref(root);
    return err;
}

/* -- Writing ---------------------------------------------------------------------------------- */

/* Whether the entry is for the models of this bundle as they are served. */
static json_t *find_entry(const json_t *bundles, const char *path, const char *identity,
                          const char *version)
{
    size_t i;
    json_t *b;
    json_array_foreach(bundles, i, b)
    {
        if (strcmp(json_string_value(json_object_get(b, "path")), path) == 0 &&
            strcmp(json_string_value(json_object_get(b, "identity")), identity) == 0 &&
            strcmp(json_string_value(json_object_get(b, "version")), version) == 0)
            return b;
    }
    return NULL;
}

static bool add_model(json_t *bundles, const weft_router *router, uint32_t model)
{
    const weft_model_ref ref = weft_router__model(router, model);
    const char *path = weft_router__bundle_file(router, model);
    char identity[17];
    snprintf(identity, sizeof identity, "%016" PRIx64, weft_router__identity(router, model));
    bool is_own = ref.program->version && strcmp(ref.program->version, ref.version) == 0;
    const char *version = is_own ? "" : ref.version;
    json_t *b = find_entry(bundles, path, identity, version);
    if (!b) {
        b = json_pack("{s:s, s:s, s:s, s:b, s:{}}", "path", path, "identity", identity, "version",
                      version, "spreads", weft_router__spreads(router, model), "models");
        if (json_array_append_new(bundles, b) != 0)
            return false; /* which frees b */
    }
    return json_object_set_new(json_object_get(b, "models"), ref.program->name,
                               json_real(weft_router__weight(router, model))) == 0;
}

static bool add_adapter(json_t *adapters, const weft_live_adapter *a)
{
    char identity[33];
    snprintf(identity, sizeof identity, "%016" PRIx64 "%016" PRIx64, a->identity.lo,
             a->identity.hi);
    return json_array_append_new(
               adapters, json_pack("{s:s, s:s, s:s?, s:s}", "base", a->base, "name", a->name,
                                   "path", a->number ? a->path : NULL, "identity", identity)) == 0;
}

char *weft_state__describe(const weft_router *router, const char *plan)
{
    json_t *bundles = json_array(), *placed = plan ? json_loads(plan, 0, NULL) : json_null();
    json_t *adapters = json_array();
    const weft_live_adapter *a;
    bool ok = bundles && placed && adapters;
    for (uint32_t i = 0; ok && (a = weft_live__at(weft_router__live(router), i)); i++)
        ok = add_adapter(adapters, a);
    for (uint32_t i = 0; i < weft_router__model_count(router) && ok; i++)
        ok = !weft_router__is_coming(router, i) || add_model(bundles, router, i);
    json_t *root = json_pack("{s:s, s:i, s:o, s:o, s:o}", "format", "weft-state", "version", 1,
                             "plan", placed, "bundles", bundles, "adapters", adapters);
    char *text = weft_json__dump(root, JSON_INDENT(1));
    if (ok)
        return text;
    free(text);
    return NULL;
}

int weft_state__prepare(const char *folder, const char *text)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/state.new", folder);
    /* Non-blocking: a pipe of this name is an error, and not waited for. */
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd < 0)
        return errno;
    int code = weft_file_put(fd, text, strlen(text));
    if (code == 0 && fsync(fd) != 0)
        code = errno;
    if (close(fd) != 0 && code == 0)
        code = errno;
    if (code != 0)
        unlink(path);
    return code;
}

int weft_state__commit(const char *folder)
{
    char from[PATH_BYTES], to[PATH_BYTES];
    snprintf(from, sizeof from, "%s/state.new", folder);
    snprintf(to, sizeof to, "%s/state.json", folder);
    if (rename(from, to) != 0)
        return errno;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int code = fd >= 0 && fsync(fd) == 0 ? 0 : errno;
    if (fd >= 0)
        close(fd);
    return code;
}

void weft_state__discard(const char *folder)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/state.new", folder);
    unlink(path);
}
