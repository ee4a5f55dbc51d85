/* A model repository of Triton as a set: a folder with a folder for each model, in it config.pbtxt
 * and a folder for each version with model.onnx.
 *
 * The latest version of a model that its policy serves has the model's name, an earlier one
 * NAME.vN: they are models of their own, which are placed, and may be merged, as others are; both
 * tell what clients call them. An ensemble whose steps are models of the repository is a model as
 * well. Models of other backends are left out, with a warning. */
#include "scheduler/input/model_folder.h"

#include "base/file.h"
#include "scheduler/input/model_config.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    ENTRIES_MAX = 4096,
    CONFIG_BYTES_MAX = 1 << 20,
    VERSION_DIGITS_MAX = 18,
    STEPS_MAX = 64,
    LABELS_MAX = 1 << 16,
    NAME_BYTES_MAX = WEFT_SET_NAME_MAX
};

typedef struct folder_model {
    const char *name, *path; /* path: of its folder */
    const char *config_file;
    weft_model_config config;
    const int64_t *version; /* that it has, from the latest on */
    size_t n_version;
    const char *left_out; /* why; NULL: it is not */
} folder_model;

typedef struct reader {
    const char *path; /* of the repository */
    weft_arena *arena;
    weft_diag *diag;
    folder_model *model;
    size_t n_model;
    WEFT_VEC(weft_set_model) out;
} reader;

/* -- Folders ---------------------------------------------------------------------------------- */

/* Names of a folder's entries, sorted; hidden ones are left out. */
static weft_err list_folder(reader *r, const char *path, const char ***out, size_t *out_n)
{
    const weft_where where = {.file = path};
    WEFT_VEC(const char *) name = {0};
    DIR *dir = opendir(path);
    if (!dir)
        return weft_diag_error(r->diag, WEFT_ERR_IO, where, "cannot be read: %s", strerror(errno));
    for (const struct dirent *e; (e = readdir(dir)) && name.len <= ENTRIES_MAX;)
        if (e->d_name[0] != '.')
            WEFT_VEC_PUSH(r->arena, &name, weft_arena_strdup(r->arena, e->d_name));
    closedir(dir);
    if (name.len > ENTRIES_MAX)
        return weft_diag_error(r->diag, WEFT_ERR_UNSUP, where, "has more than %d entries",
                               ENTRIES_MAX);
    if (name.len)
        qsort(name.at, name.len, sizeof *name.at, weft_str_order);
    *out = name.at;
    *out_n = name.len;
    return WEFT_ERR_OK;
}

/* 0: the name is not a version's. */
static int64_t version_of(const char *name)
{
    size_t len = strspn(name, "0123456789");
    return name[len] || len == 0 || len > VERSION_DIGITS_MAX || name[0] == '0'
               ? 0
               : strtoll(name, NULL, 10);
}

static int compare_versions(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

static weft_err find_versions(reader *r, folder_model *m)
{
    const char **name;
    size_t n, found = 0;
    WEFT_TRY(list_folder(r, m->path, &name, &n));
    int64_t *version = weft_arena_array(r->arena, n + 1, sizeof *version);
    for (size_t i = 0; i < n; i++) {
        int64_t x = version_of(name[i]);
        if (x && weft_file_is_folder(weft_arena_printf(r->arena, "%s/%s", m->path, name[i])))
            version[found++] = x;
    }
    if (found)
        qsort(version, found, sizeof *version, compare_versions);
    m->version = version;
    m->n_version = found;
    return WEFT_ERR_OK;
}

static bool has_version(const folder_model *m, int64_t version)
{
    for (size_t i = 0; i < m->n_version; i++)
        if (m->version[i] == version)
            return true;
    return false;
}

/* -- Models ----------------------------------------------------------------------------------- */

/* Labels are not what a model computes: without them it is served as well. */
static weft_err leave_out_labels(reader *r, const folder_model *m, const weft_set_port *port,
                                 const char *why)
{
    weft_diag_warn(r->diag, (weft_where){.file = m->config_file, .line = port->line},
                   "label_filename: %s '%.128s': left out", why, port->label_file);
    return WEFT_ERR_OK;
}

/* One label a line. */
static weft_err read_labels(reader *r, const folder_model *m, weft_set_port *port)
{
    const char *path = weft_arena_printf(r->arena, "%s/%s", m->path, port->label_file);
    WEFT_VEC(const char *) label = {0};
    struct stat st;
    char *text;
    size_t len;
    if (strchr(port->label_file, '/') || stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return leave_out_labels(r, m, port, "the model's folder has no file");
    if (st.st_size > CONFIG_BYTES_MAX)
        return leave_out_labels(r, m, port, "more than 1 MiB are in file");
    WEFT_TRY(weft_file_read(path, CONFIG_BYTES_MAX, r->diag, &text, &len));
    if (memchr(text, '\0', len)) {
        free(text);
        return leave_out_labels(r, m, port, "a NUL byte is in file");
    }
    for (const char *at = text, *end = text + len; at < end;) {
        if (label.len == LABELS_MAX) {
            weft_diag_warn(r->diag, (weft_where){.file = path, .line = LABELS_MAX + 1},
                           "an output has at most %d labels: lines from here on are left out",
                           LABELS_MAX);
            break;
        }
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((newline ? newline : end) - at);
        size_t plain = n && at[n - 1] == '\r' ? n - 1 : n;
        WEFT_VEC_PUSH(r->arena, &label, weft_arena_strndup(r->arena, at, plain));
        at += n + 1;
    }
    free(text);
    port->label = label.at;
    port->n_label = label.len;
    return WEFT_ERR_OK;
}

static weft_err read_all_labels(reader *r, folder_model *m)
{
    weft_set_config *c = &m->config.ports;
    weft_set_port *port = weft_arena_array(r->arena, c->n_output + 1, sizeof *port);
    for (size_t i = 0; i < c->n_output; i++) {
        port[i] = c->output[i];
        if (port[i].label_file)
            WEFT_TRY(read_labels(r, m, &port[i]));
    }
    c->output = port;
    return WEFT_ERR_OK;
}

static weft_err read_config(reader *r, folder_model *m)
{
    char *text;
    size_t len;
    if (!weft_file_is_regular(m->config_file))
        return WEFT_ERR_OK;
    WEFT_TRY(weft_file_read(m->config_file, CONFIG_BYTES_MAX, r->diag, &text, &len));
    weft_err err = weft_set__parse_config(text, len, m->config_file, r->arena, r->diag, &m->config);
    free(text);
    return err == WEFT_ERR_OK ? read_all_labels(r, m) : err;
}

static bool is_either(const char *text, const char *a, const char *b)
{
    return text && (strcmp(text, a) == 0 || strcmp(text, b) == 0);
}

/* Whether the model is of ONNX, or an ensemble; else the reason why it is left out is set. */
static void check_backend(reader *r, folder_model *m)
{
    const weft_model_config *c = &m->config;
    const char *kind = c->backend && *c->backend     ? c->backend
                       : c->platform && *c->platform ? c->platform
                                                     : NULL;
    if (is_either(c->platform, "ensemble", "ensemble") || c->is_ensemble)
        m->config.is_ensemble = true;
    else if (kind && !is_either(kind, "onnxruntime", "onnxruntime_onnx"))
        m->left_out = weft_arena_printf(r->arena, "is of backend '%.64s', not of ONNX", kind);
}

static weft_err read_model(reader *r, const char *name, folder_model *m)
{
    const char *path = weft_arena_printf(r->arena, "%s/%s", r->path, name);
    const weft_where where = {.file = path};
    *m = (folder_model){.name = name,
                        .path = path,
                        .config_file = weft_arena_printf(r->arena, "%s/config.pbtxt", path)};
    WEFT_TRY(find_versions(r, m));
    if (m->n_version == 0 && !weft_file_is_regular(m->config_file)) {
        m->left_out = "has neither config.pbtxt nor a folder of a version";
        return WEFT_ERR_OK;
    }
    if (!weft_set_name_valid(name))
        return weft_diag_error(r->diag, WEFT_ERR_INPUT, where,
                               "the name of a model must be letters, digits, '_', '.' and '-', at "
                               "most %d, the first a letter or digit",
                               NAME_BYTES_MAX);
    WEFT_TRY(read_config(r, m));
    const char *named = m->config.name;
    if (named && *named && strcmp(named, name) != 0)
        return weft_diag_error(r->diag, WEFT_ERR_INPUT, (weft_where){.file = m->config_file},
                               "the model is called '%.128s', its folder '%s'", named, name);
    check_backend(r, m);
    if (m->n_version == 0 && m->config.is_ensemble) { /* folders without files are easily lost */
        static const int64_t first = 1;
        m->version = &first;
        m->n_version = 1;
    }
    return WEFT_ERR_OK;
}

static folder_model *find_model(const reader *r, const char *name)
{
    for (size_t i = 0; i < r->n_model; i++)
        if (strcmp(r->model[i].name, name) == 0)
            return &r->model[i];
    return NULL;
}

/* The versions that the policy serves, from the latest on. */
static weft_err choose_versions(reader *r, const folder_model *m, int64_t *out, size_t *out_n)
{
    const weft_model_config *c = &m->config;
    const weft_where where = {.file = m->path};
    size_t n = 0;
    size_t most =
        c->policy == WEFT_VERSIONS_LATEST ? (size_t)(c->n_latest ? c->n_latest : 1) : m->n_version;
    for (size_t i = 0; i < c->n_version; i++)
        if (!has_version(m, c->version[i]))
            return weft_diag_error(r->diag, WEFT_ERR_INPUT, where,
                                   "version_policy names version %lld, which has no folder",
                                   (long long)c->version[i]);
    for (size_t i = 0; i < m->n_version && n < most; i++) {
        bool listed = c->policy != WEFT_VERSIONS_SPECIFIC;
        for (size_t k = 0; k < c->n_version && !listed; k++)
            listed = c->version[k] == m->version[i];
        if (listed)
            out[n++] = m->version[i];
    }
    if (n == 0)
        return weft_diag_error(r->diag, WEFT_ERR_INPUT, where, "no version is to be served");
    *out_n = n;
    return WEFT_ERR_OK;
}

/* Path of the ONNX file of a version, which may be a folder with the file and its weights. */
static weft_err find_file(reader *r, const folder_model *m, int64_t version, const char **out)
{
    const char *name = m->config.model_file ? m->config.model_file : "model.onnx";
    const char *path = weft_arena_printf(r->arena, "%s/%lld/%s", m->path, (long long)version, name);
    *out = weft_file_is_folder(path) ? weft_arena_printf(r->arena, "%s/model.onnx", path) : path;
    return weft_file_is_regular(*out)
               ? WEFT_ERR_OK
               : weft_diag_error(r->diag, WEFT_ERR_INPUT, (weft_where){.file = *out},
                                 "version %lld of model '%s' lacks this file", (long long)version,
                                 m->name);
}

/* -- Ensembles -------------------------------------------------------------------------------- */

#define WHERE(m, line_) ((weft_where){.file = (m)->config_file, .line = (line_)})

static const weft_set_tensor *copy_tensors(reader *r, const weft_model_tensor *from, size_t n)
{
    weft_set_tensor *to = weft_arena_array(r->arena, n + 1, sizeof *to);
    for (size_t i = 0; i < n; i++)
        to[i] = (weft_set_tensor){.name = from[i].port, .of = from[i].tensor};
    return to;
}

/* The model of a step. *out_why: why the ensemble is left out because of it; NULL: it is not. */
static weft_err read_step(reader *r, const folder_model *m, const weft_model_step *from,
                          weft_set_step *out, const char **out_why)
{
    const folder_model *of = find_model(r, from->model);
    if (!of || (of->left_out && of->n_version == 0))
        return weft_diag_error(r->diag, WEFT_ERR_INPUT, WHERE(m, from->line),
                               "the repository has no model '%.128s'", from->model);
    if (of->left_out) {
        *out_why = weft_arena_printf(r->arena, "has step '%s', which %s", of->name, of->left_out);
        return WEFT_ERR_OK;
    }
    if (of->config.is_ensemble) {
        *out_why = weft_arena_printf(r->arena, "has step '%s', which is an ensemble", of->name);
        return WEFT_ERR_OK;
    }
    int64_t version = from->version < 0 && of->n_version ? of->version[0] : from->version;
    if (!has_version(of, version))
        return weft_diag_error(r->diag, WEFT_ERR_INPUT, WHERE(m, from->line),
                               "model '%s' has no version %lld", of->name, (long long)version);
    weft_set_model *model = weft_arena_alloc(r->arena, sizeof *model);
    model->name = of->name;
    model->config = &of->config.ports;
    WEFT_TRY(find_file(r, of, version, &model->file));
    *out = (weft_set_step){.model = model,
                           .input = copy_tensors(r, from->input, from->n_input),
                           .n_input = from->n_input,
                           .output = copy_tensors(r, from->output, from->n_output),
                           .n_output = from->n_output};
    return WEFT_ERR_OK;
}

/* Whether the tensor is an input of the ensemble or an output of the first n steps. */
static bool is_made(const folder_model *m, const weft_set_step *step, size_t n, const char *tensor)
{
    for (size_t i = 0; i < m->config.ports.n_input; i++)
        if (strcmp(m->config.ports.input[i].name, tensor) == 0)
            return true;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < step[i].n_output; k++)
            if (strcmp(step[i].output[k].of, tensor) == 0)
                return true;
    return false;
}

/* The first input of a step that is not made by the first n; NULL: it can run. */
static const char *find_missing(const folder_model *m, const weft_set_step *step, size_t n,
                                const weft_set_step *next)
{
    for (size_t i = 0; i < next->n_input; i++)
        if (!is_made(m, step, n, next->input[i].of))
            return next->input[i].of;
    return NULL;
}

/* Brings the steps into an order in which each has its inputs. */
static weft_err order_steps(reader *r, const folder_model *m, weft_set_step *step, size_t n)
{
    for (size_t done = 0; done < n; done++) {
        size_t next = done;
        while (next < n && find_missing(m, step, done, &step[next]))
            next++;
        if (next == n)
            return weft_diag_error(r->diag, WEFT_ERR_INPUT, WHERE(m, 0),
                                   "step '%s' needs tensor '%s', which is no input of the ensemble "
                                   "and no output of a step before",
                                   step[done].model->name,
                                   find_missing(m, step, done, &step[done]));
        weft_set_step now = step[next];
        memmove(&step[done + 1], &step[done], (next - done) * sizeof *step);
        step[done] = now;
        for (size_t i = 0; i < now.n_output; i++)
            if (is_made(m, step, done, now.output[i].of))
                return weft_diag_error(r->diag, WEFT_ERR_INPUT, WHERE(m, 0),
                                       "tensor '%s' is made twice", now.output[i].of);
    }
    for (size_t i = 0; i < m->config.ports.n_output; i++)
        if (!is_made(m, step, n, m->config.ports.output[i].name))
            return weft_diag_error(r->diag, WEFT_ERR_INPUT, WHERE(m, 0),
                                   "output '%s' of the ensemble is an output of no step",
                                   m->config.ports.output[i].name);
    return WEFT_ERR_OK;
}

static weft_err read_ensemble(reader *r, folder_model *m, weft_set_model *out)
{
    const weft_model_config *c = &m->config;
    weft_set_step *step = weft_arena_array(r->arena, c->n_step + 1, sizeof *step);
    if (c->n_step == 0 || c->n_step > STEPS_MAX)
        return weft_diag_error(r->diag, WEFT_ERR_INPUT, WHERE(m, 0),
                               "an ensemble has 1 to %d steps, not %zu", STEPS_MAX, c->n_step);
    if (c->ports.n_input == 0 || c->ports.n_output == 0)
        return weft_diag_error(r->diag, WEFT_ERR_INPUT, WHERE(m, 0),
                               "an ensemble lists its inputs and outputs");
    for (size_t i = 0; i < c->n_step && !m->left_out; i++)
        WEFT_TRY(read_step(r, m, &c->step[i], &step[i], &m->left_out));
    if (m->left_out)
        return WEFT_ERR_OK;
    WEFT_TRY(order_steps(r, m, step, c->n_step));
    out->step = step;
    out->n_step = c->n_step;
    return WEFT_ERR_OK;
}

/* -- The set ---------------------------------------------------------------------------------- */

static bool has_onnx(const reader *r, const char *path, const char *version)
{
    const char *file = weft_arena_printf(r->arena, "%s/%s/model.onnx", path, version);
    return weft_file_is_regular(file) || weft_file_is_folder(file);
}

static bool is_taken(const reader *r, const char *name)
{
    for (uint32_t i = 0; i < r->out.len; i++)
        if (strcmp(r->out.at[i].name, name) == 0)
            return true;
    return find_model(r, name) != NULL;
}

static weft_err add_version(reader *r, folder_model *m, int64_t version, bool is_latest)
{
    weft_set_model model = {.name = m->name,
                            .serves = m->name,
                            .version = weft_arena_printf(r->arena, "%lld", (long long)version),
                            .config = &m->config.ports};
    if (!is_latest)
        model.name = weft_arena_printf(r->arena, "%s.v%lld", m->name, (long long)version);
    if (!is_latest && (is_taken(r, model.name) || !weft_set_name_valid(model.name)))
        return weft_diag_error(r->diag, WEFT_ERR_INPUT, (weft_where){.file = m->path},
                               "version %lld is to be called '%s', which is another model's name "
                               "or too long",
                               (long long)version, model.name);
    if (m->config.is_ensemble)
        WEFT_TRY(read_ensemble(r, m, &model));
    else
        WEFT_TRY(find_file(r, m, version, &model.file));
    if (!m->left_out)
        WEFT_VEC_PUSH(r->arena, &r->out, model);
    return WEFT_ERR_OK;
}

static weft_err add_versions(reader *r, folder_model *m)
{
    int64_t *version = weft_arena_array(r->arena, m->n_version + 1, sizeof *version);
    size_t n = 0;
    if (!m->left_out)
        WEFT_TRY(choose_versions(r, m, version, &n));
    for (size_t i = 0; i < n && !m->left_out; i++)
        WEFT_TRY(add_version(r, m, version[i], i == 0));
    if (m->left_out)
        weft_diag_warn(r->diag, (weft_where){.file = m->path}, "%s: left out", m->left_out);
    return WEFT_ERR_OK;
}

/* If the folder is that of one model, *path becomes its repository and *out_only its name. */
static weft_err find_repository(reader *r, const char **path, const char **out_only)
{
    const char **name;
    size_t n;
    char *real = NULL;
    bool is_model = weft_file_is_regular(weft_arena_printf(r->arena, "%s/config.pbtxt", *path));
    *out_only = NULL;
    WEFT_TRY(list_folder(r, *path, &name, &n));
    for (size_t i = 0; i < n && !is_model; i++)
        is_model = version_of(name[i]) > 0 && has_onnx(r, *path, name[i]);
    if (!is_model)
        return WEFT_ERR_OK;
    size_t len = strlen(*path);
    while (len > 1 && (*path)[len - 1] == '/')
        len--;
    char *whole = weft_arena_strndup(r->arena, *path, len), *slash = strrchr(whole, '/');
    const char *last = slash ? slash + 1 : whole;
    if (!slash || strcmp(last, ".") == 0 || strcmp(last, "..") == 0 || !*last) {
        real = realpath(whole, NULL);
        whole = weft_arena_strdup(r->arena, real ? real : "/");
        slash = strrchr(whole, '/');
    }
    free(real);
    *out_only = weft_arena_strdup(r->arena, slash + 1);
    *slash = '\0';
    *path = *whole ? whole : "/";
    return WEFT_ERR_OK;
}

static weft_err read_folder(reader *r, const char *name)
{
    if (find_model(r, name) ||
        !weft_file_is_folder(weft_arena_printf(r->arena, "%s/%s", r->path, name)))
        return WEFT_ERR_OK;
    return read_model(r, name, &r->model[r->n_model++]);
}

/* One model, and the models of its steps. */
static weft_err read_one(reader *r, const char *name)
{
    WEFT_TRY(read_folder(r, name));
    const folder_model *m = find_model(r, name);
    for (size_t i = 0; m && i < m->config.n_step && i < STEPS_MAX; i++)
        if (weft_set_name_valid(m->config.step[i].model))
            WEFT_TRY(read_folder(r, m->config.step[i].model));
    return WEFT_ERR_OK;
}

weft_err weft_set__load_folder(const char *path, weft_arena *arena, weft_diag *diag, weft_set *out)
{
    reader r = {.arena = arena, .diag = diag};
    const char **name, *only;
    size_t n;
    WEFT_TRY(find_repository(&r, &path, &only));
    r.path = weft_arena_strdup(arena, path);
    WEFT_TRY(list_folder(&r, path, &name, &n));
    r.model = weft_arena_array(arena, n + STEPS_MAX + 1, sizeof *r.model);
    if (only)
        WEFT_TRY(read_one(&r, only));
    for (size_t i = 0; i < n && !only; i++)
        WEFT_TRY(read_folder(&r, name[i]));
    for (size_t i = 0; i < r.n_model; i++)
        if (!only || strcmp(r.model[i].name, only) == 0)
            WEFT_TRY(add_versions(&r, &r.model[i]));
    if (r.out.len == 0)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = path},
                               "is a folder without models: a model repository has MODEL/VERSION/"
                               "model.onnx");
    *out = (weft_set){
        .file = r.path, .profile_layout = "weft", .model = r.out.at, .n_model = r.out.len};
    return WEFT_ERR_OK;
}
