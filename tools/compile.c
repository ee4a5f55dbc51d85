/* Loading the models of a set, and the numbers and reports that go with their bundle. */
#include "tools/compile.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static bool has_suffix(const char *s, const char *suffix)
{
    size_t n = strlen(s), k = strlen(suffix);
    return n >= k && strcmp(s + n - k, suffix) == 0;
}

/* -- Loading -------------------------------------------------------------------------------- */

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
    s->set_file = path;
    uint32_t n = 0;
    for (size_t i = 0; i < set->n_model; i++) {
        const weft_set_model *model = &set->model[i];
        if (!model->file) {
            weft_diag_warn(diag, (weft_where){.file = path, .item = model->name},
                           "known by its profile only: not compiled");
            continue;
        }
        weft_import_options options = *import;
        weft_import_dim *dim = weft_arena_array(arena, model->n_dim + 1, sizeof *dim);
        for (size_t k = 0; k < model->n_dim; k++)
            dim[k] = (weft_import_dim){model->dim[k].name, model->dim[k].lo, model->dim[k].hi};
        options.graph_name = model->name;
        options.dim = dim;
        options.n_dim = model->n_dim;
        WEFT_TRY(import_one(s, model->file, &options, diag));
        s->model[n++] = model;
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
    bool is_set = n_file == 1 && (has_suffix(file[0], ".yaml") || has_suffix(file[0], ".yml"));
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

/* -- Report --------------------------------------------------------------------------------- */

static bool uses_weight(const weft_bundle_program *p, uint32_t w)
{
    for (uint32_t i = 0; i < p->n_value; i++)
        if (p->value[i].weight == w)
            return true;
    return false;
}

static json_t *report_weight(const weft_bundle *bundle, uint32_t w)
{
    const weft_bundle_weight *weight = &bundle->weight[w - 1];
    json_t *models = json_array();
    for (uint32_t i = 0; i < bundle->n_program; i++)
        if (uses_weight(&bundle->program[i], w))
            json_array_append_new(models, json_string(bundle->program[i].name));
    return json_pack("{s:s, s:I, s:o}", "weight", weight->name, "bytes", (json_int_t)weight->bytes,
                     "models", models);
}

static json_t *report_merge(const weft_merge_row *row)
{
    json_t *models = json_array();
    for (uint32_t i = 0; i < row->n_model; i++)
        json_array_append_new(models, json_string(row->model[i]));
    return json_pack("{s:s, s:s, s:o, s:I, s:f, s:f, s:b, s:s}", "op", row->op, "item", row->item,
                     "models", models, "weight_bytes", (json_int_t)row->weight_bytes, "gain_small",
                     row->gain_small, "gain_large", row->gain_large, "joined", (int)row->joined,
                     "reason", row->reason);
}

weft_err weft_tool_write_report(const weft_bundle *bundle, const weft_merge_log *log,
                                const char *path, weft_diag *diag)
{
    json_t *shared = json_array();
    uint64_t distinct = 0, saved = 0;
    for (uint32_t w = 1; w <= bundle->n_weight; w++) {
        const weft_bundle_weight *weight = &bundle->weight[w - 1];
        distinct += weight->bytes;
        if (weight->n_users < 2)
            continue;
        saved += weight->bytes * (weight->n_users - 1);
        json_array_append_new(shared, report_weight(bundle, w));
    }
    json_t *merges = json_array();
    for (uint32_t i = 0; log && i < log->rows.len; i++)
        json_array_append_new(merges, report_merge(&log->rows.at[i]));
    json_t *root = json_pack("{s:I, s:I, s:o, s:o}", "weight_bytes", (json_int_t)distinct,
                             "bytes_saved", (json_int_t)saved, "shared", shared, "merges", merges);
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;
    json_decref(root);
    if (!text)
        return WEFT_ERR_NOMEM;
    weft_err err = weft_file_write(path, text, strlen(text), diag);
    free(text);
    return err;
}
