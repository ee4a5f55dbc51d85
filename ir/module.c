/* Modules: their arena, files and names. */
#include "base/escape.h"
#include "ir/ir_int.h"

#include <string.h>

const char *weft_stage_name(weft_stage stage)
{
    static const char *const name[] = {"graph", "kernel", "plan"};
    return (unsigned)stage < sizeof name / sizeof name[0] ? name[stage] : "?";
}

/* Index 0 of every pool means none. */
static weft_module *make_module(weft_arena *arena)
{
    weft_module *m = weft_arena_alloc(arena, sizeof *m);
    m->arena = arena;
    m->dims = weft_dimpool_create(arena);
    m->names = weft_names_create(arena);
    m->type_ids = weft_map_create(arena);
    m->copies = weft_map_create(arena);
    m->graph_names = weft_map_create(arena);
    weft_type_rec *no_type = weft_arena_alloc(arena, sizeof *no_type);
    weft_weight_rec *no_weight = weft_arena_alloc(arena, sizeof *no_weight);
    WEFT_VEC_PUSH(arena, &m->types, no_type);
    WEFT_VEC_PUSH(arena, &m->weights, no_weight);
    WEFT_VEC_PUSH(arena, &m->nodes, (weft_node_rec){0});
    WEFT_VEC_PUSH(arena, &m->uses, (weft_use_rec){0});
    WEFT_VEC_PUSH(arena, &m->vals, (weft_val_rec){0});
    WEFT_VEC_PUSH(arena, &m->files, (weft_module_file){0});
    return m;
}

static weft_module *make_guarded(weft_arena *arena)
{
    jmp_buf env;
    if (setjmp(env))
        return NULL;
    weft_arena_guard(arena, &env);
    return make_module(arena);
}

weft_module *weft_module_create(size_t limit_bytes)
{
    weft_arena *arena = weft_arena_create(limit_bytes);
    if (!arena)
        return NULL;
    weft_module *m = make_guarded(arena);
    weft_arena_guard(arena, NULL);
    if (!m)
        weft_arena_destroy(arena);
    return m;
}

void weft_module_destroy(weft_module *m)
{
    if (!m)
        return;
    for (uint32_t i = 1; i < m->files.len; i++)
        if (m->files.at[i].owned)
            weft_file_unmap(&m->files.at[i].file);
    weft_arena_destroy(m->arena);
}

void weft_module_guard(weft_module *m, jmp_buf *env)
{
    weft_arena_guard(m->arena, env);
}

weft_arena *weft_module_arena(weft_module *m)
{
    return m->arena;
}

weft_dimpool *weft_module_dims(weft_module *m)
{
    return m->dims;
}

weft_stage weft_module_stage(const weft_module *m)
{
    return m->stage;
}

void weft_module_set_stage(weft_module *m, weft_stage stage)
{
    m->stage = stage;
}

const char *weft_module__name(weft_module *m, const char *s)
{
    bool is_plain = !s || weft_escape_controls(s, NULL, 0) == strlen(s);
    return weft_module__text(m, is_plain ? s : weft_escaped(m->arena, s));
}

const char *weft_module__text(weft_module *m, const char *s)
{
    return s ? weft_names_text(m->names, weft_names_add(m->names, s, strlen(s))) : NULL;
}

/* -- Files ------------------------------------------------------------------------------------ */

uint32_t weft_module_own_file(weft_module *m, const char *path, weft_file file)
{
    weft_module_file rec = {.path = weft_arena_strdup(m->arena, path), .file = file, .owned = true};
    WEFT_VEC_PUSH(m->arena, &m->files, rec);
    return m->files.len - 1;
}

void weft_module_drop_files(const weft_module *m)
{
    for (uint32_t i = 1; i < m->files.len; i++)
        if (m->files.at[i].owned)
            weft_file_drop(&m->files.at[i].file, m->files.at[i].file.at, m->files.at[i].file.len);
}

uint32_t weft_module_name_file(weft_module *m, const char *path)
{
    for (uint32_t i = 1; i < m->files.len; i++)
        if (!m->files.at[i].is_text && strcmp(m->files.at[i].path, path) == 0)
            return i;
    weft_module_file rec = {.path = weft_arena_strdup(m->arena, path)};
    WEFT_VEC_PUSH(m->arena, &m->files, rec);
    return m->files.len - 1;
}

bool weft_module_file_is_mapped(const weft_module *m, uint32_t file_id)
{
    return file_id && file_id < m->files.len && m->files.at[file_id].file.at != NULL;
}

const char *weft_module_file_path(const weft_module *m, uint32_t file_id)
{
    return file_id && file_id < m->files.len ? m->files.at[file_id].path : NULL;
}

const weft_file *weft_module__file(const weft_module *m, uint32_t file_id)
{
    bool known = file_id && file_id < m->files.len && m->files.at[file_id].owned;
    return known ? &m->files.at[file_id].file : NULL;
}
