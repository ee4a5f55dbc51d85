/* Adapters of the models of a set: the folders that match its patterns are read before the passes
 * run, which make sites of the GEMMs that the adapters name; afterwards their factors become
 * weights of the bundle. */
#include "tools/compiler/adapters.h"

#include "base/file.h"
#include "runtime/adapter/adapter.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>

enum { ADAPTERS_MAX = 65536 };

struct weft_tool_adapter {
    const char *model, *name, *folder;
    weft_peft peft;
};

typedef WEFT_VEC(weft_tool_adapter) adapter_list;

typedef struct loader {
    weft_arena *arena;
    weft_diag *diag;
    adapter_list list;
    weft_names *names; /* "MODEL@NAME" */
} loader;

/* -- Reading -------------------------------------------------------------------------------- */

static weft_err load_one(loader *l, const char *model, const char *folder)
{
    weft_tool_adapter a = {.model = model};
    size_t len = strlen(folder);
    while (len > 1 && folder[len - 1] == '/')
        len--;
    a.folder = weft_arena_strndup(l->arena, folder, len);
    const char *slash = strrchr(a.folder, '/');
    a.name = slash ? slash + 1 : a.folder;
    const char *full = weft_arena_printf(l->arena, "%s@%s", model, a.name);
    const weft_where where = {.file = a.folder, .item = model};
    if (!weft_set_name_valid(a.name))
        return weft_diag_error(l->diag, WEFT_ERR_INPUT, where,
                               "the folder's name, by which requests call the adapter, must be "
                               "letters, digits, '_', '.' and '-', at most %d",
                               WEFT_SET_NAME_MAX);
    if (weft_names_find(l->names, full, strlen(full)))
        return weft_diag_error(l->diag, WEFT_ERR_INPUT, where,
                               "another adapter of the model has this name");
    if (l->list.len == ADAPTERS_MAX)
        return weft_diag_error(l->diag, WEFT_ERR_INPUT, where, "more than %d adapters",
                               ADAPTERS_MAX);
    weft_names_add(l->names, full, strlen(full));
    WEFT_TRY(weft_peft_read(NULL, a.folder, l->arena, l->diag, &a.peft));
    WEFT_VEC_PUSH(l->arena, &l->list, a);
    return WEFT_ERR_OK;
}

/* Folders that match, in the order of their names. */
static weft_err load_pattern(loader *l, const weft_set_model *model, const char *pattern)
{
    glob_t found;
    size_t before = l->list.len;
    weft_err err = WEFT_ERR_OK;
    int code = glob(pattern, 0, NULL, &found);
    for (size_t i = 0; code == 0 && i < found.gl_pathc && err == WEFT_ERR_OK; i++)
        if (weft_file_is_folder(found.gl_pathv[i]) || weft_peft_is_onnx(found.gl_pathv[i]))
            err = load_one(l, model->name, found.gl_pathv[i]);
    if (code == 0)
        globfree(&found);
    if (code == GLOB_NOSPACE)
        return WEFT_ERR_NOMEM;
    if (err == WEFT_ERR_OK && l->list.len == before)
        err = weft_diag_error(l->diag, WEFT_ERR_INPUT, (weft_where){.item = model->name},
                              "adapters: no folder is called %s", pattern);
    return err;
}

/* The modules of the model's adapters, from number `first` of the list on, each once, and those
 * that adapters may change which are loaded later. */
static weft_adapted_model list_paths(const loader *l, const weft_set_model *model, size_t first)
{
    weft_adapted_model to = {.model = model->name};
    WEFT_VEC(const char *) path = {0};
    weft_names *names = weft_names_create(l->arena);
    for (size_t i = first; i < l->list.len; i++)
        for (uint32_t k = 0; k < l->list.at[i].peft.n; k++) {
            const char *s = l->list.at[i].peft.module[k].path;
            if (weft_names_find(names, s, strlen(s)))
                continue;
            weft_names_add(names, s, strlen(s));
            WEFT_VEC_PUSH(l->arena, &path, s);
        }
    for (size_t i = 0; i < model->n_adapter_module; i++)
        WEFT_VEC_PUSH(l->arena, &path,
                      weft_arena_printf(l->arena, "*.%s", model->adapter_module[i]));
    to.path = path.at;
    to.n_path = path.len;
    return to;
}

weft_err weft_tool_load_adapters(const weft_tool_sources *sources, weft_arena *arena,
                                 weft_diag *diag, weft_tool_adapters *out)
{
    loader l = {.arena = arena, .diag = diag, .names = weft_names_create(arena)};
    uint32_t n = weft_graph_model_count(sources->module);
    weft_adapted_model *model = weft_arena_array(arena, (size_t)n + 1, sizeof *model);
    size_t n_model = 0;
    for (uint32_t i = 0; i < n; i++) {
        const weft_set_model *m = sources->model[i];
        size_t first = l.list.len;
        for (size_t k = 0; m && k < m->n_adapter; k++)
            WEFT_TRY(load_pattern(&l, m, m->adapter[k]));
        if (m && m->n_adapter + m->n_adapter_module > 0)
            model[n_model++] = list_paths(&l, m, first);
    }
    *out =
        (weft_tool_adapters){.at = l.list.at, .n = l.list.len, .model = model, .n_model = n_model};
    return WEFT_ERR_OK;
}

const char *weft_tool_adapter_folder(const weft_tool_adapters *adapters, size_t i)
{
    return i < adapters->n ? adapters->at[i].folder : NULL;
}

/* -- Writing -------------------------------------------------------------------------------- */

static uint32_t add_weight(weft_bundle_weight *list, uint32_t *n, int64_t rows, int64_t cols,
                           const float *data, const char *name)
{
    list[*n] = (weft_bundle_weight){.dtype = WEFT_DTYPE_F32,
                                    .rank = 2,
                                    .dim = {rows, cols},
                                    .data = (const uint8_t *)data,
                                    .bytes = (uint64_t)(rows * cols) * sizeof *data,
                                    .name = name,
                                    .n_users = 1};
    return ++*n;
}

static weft_err add_one(const weft_tool_adapter *from, weft_arena *arena, weft_diag *diag,
                        weft_bundle *bundle, weft_bundle_weight *weight, weft_bundle_adapter *to)
{
    const weft_bundle_program *p = weft_bundle_find(bundle, from->model);
    const weft_bundle_site *site;
    uint32_t n = weft_bundle_sites(p, arena, &site);
    uint32_t *of = weft_arena_array(arena, (size_t)from->peft.n + 1, sizeof *of);
    WEFT_TRY(weft_peft_find_sites(&from->peft, site, n, from->folder, diag, of));
    weft_bundle_factor *factor = weft_arena_array(arena, from->peft.n, sizeof *factor);
    for (uint32_t i = 0; i < from->peft.n; i++) {
        const weft_peft_module *m = &from->peft.module[i];
        const char *name = weft_arena_printf(arena, "%s@%s:%s", from->model, from->name, m->path);
        factor[i].site = site[of[i]].name;
        factor[i].a = add_weight(weight, &bundle->n_weight, m->rank, m->k, m->a,
                                 weft_arena_printf(arena, "%s.a", name));
        factor[i].b = add_weight(weight, &bundle->n_weight, m->rank, m->n, m->b,
                                 weft_arena_printf(arena, "%s.b", name));
    }
    *to = (weft_bundle_adapter){.name = from->name,
                                .program = (uint32_t)(p - bundle->program),
                                .factor = factor,
                                .n_factor = from->peft.n};
    return WEFT_ERR_OK;
}

weft_err weft_tool_add_adapters(const weft_tool_adapters *adapters, weft_arena *arena,
                                weft_diag *diag, weft_bundle *bundle)
{
    size_t n = bundle->n_weight;
    for (size_t i = 0; i < adapters->n; i++)
        n += 2 * (size_t)adapters->at[i].peft.n;
    weft_bundle_weight *weight = weft_arena_array(arena, n, sizeof *weight);
    weft_bundle_adapter *to = weft_arena_array(arena, adapters->n, sizeof *to);
    if (bundle->n_weight > 0)
        memcpy(weight, bundle->weight, bundle->n_weight * sizeof *weight);
    for (size_t i = 0; i < adapters->n; i++)
        WEFT_TRY(add_one(&adapters->at[i], arena, diag, bundle, weight, &to[i]));
    bundle->weight = weight;
    bundle->adapter = to;
    bundle->n_adapter = (uint32_t)adapters->n;
    return WEFT_ERR_OK;
}
