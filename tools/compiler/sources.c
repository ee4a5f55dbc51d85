/* Model files as modules. */
#include "tools/compiler/sources.h"

#include "base/file.h"
#include "tools/profile/set_import.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT_LIMIT_MIB = 1024 };

static bool has_suffix(const char *s, const char *suffix)
{
    size_t n = strlen(s), k = strlen(suffix);
    return n >= k && strcmp(s + n - k, suffix) == 0;
}

/* -- One file --------------------------------------------------------------------------------- */

/* Loads a module from memory; the first bytes say which format it is. An ONNX module refers to
 * its bytes, so they are copied to its arena. */
static weft_err load_bytes(const char *text, size_t len, const char *shown, const char *dir,
                           weft_diag *diag, weft_module **out)
{
    if (weft_tool_is_text(text, len))
        return weft_module_parse(text, len, shown, dir, diag, out);
    weft_module *m = weft_module_create(0);
    weft_graph *g = NULL;
    if (!m)
        return WEFT_ERR_NOMEM;
    uint8_t *bytes = weft_arena_alloc(weft_module_arena(m), len);
    memcpy(bytes, text, len);
    weft_err err = weft_import_onnx_bytes(m, bytes, len, NULL, shown,
                                          &(weft_import_options){.graph_name = "model"}, diag, &g);
    if (err != WEFT_ERR_OK) {
        weft_module_destroy(m);
        return err;
    }
    *out = m;
    return WEFT_ERR_OK;
}

static weft_err load_text(const char *path, weft_diag *diag, weft_module **out)
{
    char *text = NULL;
    size_t len = 0;
    WEFT_TRY(weft_file_read(path, (uint64_t)TEXT_LIMIT_MIB << 20, diag, &text, &len));
    const char *slash = strrchr(path, '/');
    char dir[4096];
    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - path) + (slash == path) : 1,
             slash ? path : ".");
    bool is_stdin = strcmp(path, "-") == 0;
    weft_err err = load_bytes(text, len, is_stdin ? "<stdin>" : path, dir, diag, out);
    free(text);
    return err;
}

weft_err weft_tool_load_module(const char *path, weft_diag *diag, weft_module **out)
{
    weft_file_kind kind = WEFT_FILE_TEXT;
    if (strcmp(path, "-") != 0)
        WEFT_TRY(weft_tool_sniff(path, diag, &kind));
    if (kind == WEFT_FILE_TEXT)
        return load_text(path, diag, out);
    if (kind == WEFT_FILE_BUNDLE)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = path},
                               "is a bundle; an ONNX or text IR file is needed");
    weft_module *m = weft_module_create(0);
    if (!m)
        return WEFT_ERR_NOMEM;
    weft_graph *g = NULL;
    weft_err err = weft_import_onnx(m, path, &(weft_import_options){0}, diag, &g);
    if (err != WEFT_ERR_OK) {
        weft_module_destroy(m);
        return err;
    }
    *out = m;
    return WEFT_ERR_OK;
}

/* -- Sets of models --------------------------------------------------------------------------- */

static weft_err import_one(weft_tool_sources *s, const char *path,
                           const weft_import_options *options, weft_diag *diag)
{
    weft_graph *g = NULL;
    weft_tool_progress("reading %s", path);
    return weft_import_onnx(s->module, path, options, diag, &g);
}

static weft_err load_set(const char *path, const weft_import_options *import, weft_arena *arena,
                         weft_diag *diag, weft_tool_sources *s)
{
    weft_set *set = weft_arena_alloc(arena, sizeof *set);
    WEFT_TRY(weft_set_load(path, arena, diag, set));
    s->model = weft_arena_array(arena, set->n_model + 1, sizeof *s->model);
    s->with_heads = weft_arena_array(arena, set->n_model + 1, sizeof *s->with_heads);
    s->set_file = path;
    s->set = set;
    uint32_t n = 0;
    for (size_t i = 0; i < set->n_model; i++) {
        const weft_set_model *model = &set->model[i];
        if (!model->file && !model->n_head && !model->n_step) {
            weft_diag_warn(diag, (weft_where){.file = path, .item = model->name},
                           "known by its profile only: not compiled");
            continue;
        }
        weft_graph *g = NULL;
        weft_tool_progress("reading %s", model->name);
        weft_tool_advance((double)i, (double)set->n_model, "models");
        WEFT_TRY(weft_tool_import_model(s->module, model, import, arena, diag, &g));
        s->model[n++] = model;
        if (model->n_head)
            s->with_heads[s->n_with_heads++] = model->name;
    }
    if (n == 0)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = path},
                               "no model of the set has a file to compile");
    return WEFT_ERR_OK;
}

static weft_err load_models(char *const *file, int n_file, const weft_import_options *import,
                            weft_arena *arena, weft_diag *diag, weft_tool_sources *s)
{
    s->model = weft_arena_array(arena, (size_t)n_file, sizeof *s->model);
    for (int i = 0; i < n_file; i++)
        WEFT_TRY(import_one(s, file[i], import, diag));
    return WEFT_ERR_OK;
}

weft_err weft_tool_load_sources(char *const *file, int n_file, const weft_import_options *import,
                                weft_arena *arena, weft_diag *diag, weft_tool_sources *out)
{
    weft_file_kind kind = WEFT_FILE_TEXT;
    bool is_set = n_file == 1 && (has_suffix(file[0], ".yaml") || has_suffix(file[0], ".yml") ||
                                  weft_file_is_folder(file[0]));
    if (!is_set && strcmp(file[0], "-") != 0)
        WEFT_TRY(weft_tool_sniff(file[0], diag, &kind));
    if (!is_set && n_file == 1 && kind != WEFT_FILE_ONNX) {
        WEFT_TRY(weft_tool_load_module(file[0], diag, &out->module));
        out->set_file = strcmp(file[0], "-") == 0 ? NULL : file[0];
        uint32_t n = weft_graph_count(out->module);
        out->model = weft_arena_array(arena, (size_t)n + 1, sizeof *out->model);
        return WEFT_ERR_OK;
    }
    out->module = weft_module_create(0);
    if (!out->module)
        return WEFT_ERR_NOMEM;
    return is_set ? load_set(file[0], import, arena, diag, out)
                  : load_models(file, n_file, import, arena, diag, out);
}

weft_err weft_tool_load_again(char *const *file, int n_file, const weft_import_options *import,
                              weft_arena *arena, weft_diag *diag, weft_tool_sources *out)
{
    if (strcmp(file[0], "-") == 0)
        return weft_diag_error(diag, WEFT_ERR_UNSUP, (weft_where){0},
                               "CPUs and GPUs get kernels of their own, and standard input can be "
                               "read only once; name the model file");
    return weft_tool_load_sources(file, n_file, import, arena, diag, out);
}
