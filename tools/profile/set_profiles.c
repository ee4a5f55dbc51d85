/* Profiles of the models of a set: of a bundle, recorded, or estimated.
 *
 * Sets of many models name the same file again and again. Each bundle is opened once, and models
 * whose profiles must be equal share one: that of a file with measurements by its path; an estimate
 * by the contents of the model's files and all that the set says of their graph. The contents of
 * two files are compared by a hash, and only where the files are as long as each other. Equal files
 * of different folders count as different if their weights may be in further files, whose paths are
 * relative to the folder. */
#include "tools/profile/profiles.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/map.h"
#include "ir/bundle.h"

#include <string.h>

/* A model file. */
typedef struct source {
    const char *path;
    uint64_t bytes;
    bool is_hashed;
    bool is_alone; /* no further file belongs to it */
    weft_hash128 hash;
    uint32_t same; /* index of the first file that is equal */
} source;

typedef struct open_bundle {
    const char *path;
    weft_bundle *bundle;
} open_bundle;

typedef struct known {
    const char *key;
    weft_profile profile;
} known;

typedef struct reader {
    const weft_set *set;
    const weft_tool_profile_sources *from;
    weft_arena *arena;
    weft_diag *diag;
    WEFT_VEC(source) files;
    WEFT_VEC(open_bundle) bundles;
    WEFT_VEC(known) profiles;
    weft_map *file_of, *profile_of; /* by hash of path and of key */
} reader;

/* -- Equal files ------------------------------------------------------------------------------ */

/* Whether the bytes have the key under which ONNX names a file of weights. */
static bool names_files(const weft_file *file)
{
    static const char key[] = "location";
    return memmem(file->at, file->len, key, sizeof key - 1) != NULL;
}

static weft_err hash_source(source *s, weft_diag *diag)
{
    weft_file file;
    if (s->is_hashed)
        return WEFT_ERR_OK;
    WEFT_TRY(weft_file_map(s->path, diag, &file));
    s->hash = weft_hash_content(file.at, file.len, 0);
    s->is_alone = !names_files(&file);
    s->is_hashed = true;
    weft_file_unmap(&file);
    return WEFT_ERR_OK;
}

static bool same_folder(const char *a, const char *b)
{
    const char *end_a = strrchr(a, '/'), *end_b = strrchr(b, '/');
    size_t len_a = end_a ? (size_t)(end_a - a) : 0, len_b = end_b ? (size_t)(end_b - b) : 0;
    return len_a == len_b && !end_a == !end_b && memcmp(a, b, len_a) == 0;
}

/* Sets *out to the index of the first file with these contents. */
static weft_err find_source(reader *r, const char *path, uint32_t *out)
{
    uint64_t key = weft_hash64(path, strlen(path), 0), at;
    weft_file file;
    if (weft_map_get(r->file_of, key, &at) && strcmp(r->files.at[at].path, path) == 0) {
        *out = r->files.at[at].same;
        return WEFT_ERR_OK;
    }
    WEFT_TRY(weft_file_map(path, r->diag, &file));
    source s = {.path = path, .bytes = file.len, .same = r->files.len};
    weft_file_unmap(&file);
    for (uint32_t i = 0; i < r->files.len && s.same == r->files.len; i++) {
        source *other = &r->files.at[i];
        if (other->bytes != s.bytes || other->same != i)
            continue;
        WEFT_TRY(hash_source(&s, r->diag));
        WEFT_TRY(hash_source(other, r->diag));
        if (weft_hash128_eq(s.hash, other->hash) && (s.is_alone || same_folder(path, other->path)))
            s.same = i;
    }
    weft_map_put(r->file_of, key, r->files.len);
    *out = s.same;
    WEFT_VEC_PUSH(r->arena, &r->files, s);
    return WEFT_ERR_OK;
}

/* -- Keys ------------------------------------------------------------------------------------- */

static void put_text(weft_buf *out, const char *text)
{
    weft_buf_put_quoted(out, text ? text : "", text ? strlen(text) : 0);
}

static void put_sizes(weft_buf *out, const int64_t *x, size_t n)
{
    weft_buf_puts(out, "[");
    for (size_t i = 0; i < n; i++)
        weft_buf_printf(out, "%lld,", (long long)x[i]);
    weft_buf_puts(out, "]");
}

static void put_ports(weft_buf *out, const weft_set_port *port, size_t n)
{
    weft_buf_puts(out, "{");
    for (size_t i = 0; i < n; i++) {
        put_text(out, port[i].name);
        weft_buf_printf(out, "%d", (int)port[i].dtype);
        put_sizes(out, port[i].dim, port[i].n_dim);
        put_sizes(out, port[i].inner_dim, port[i].n_inner_dim);
    }
    weft_buf_puts(out, "}");
}

static void put_config(weft_buf *out, const weft_set_config *c)
{
    put_ports(out, c->input, c->n_input);
    put_ports(out, c->output, c->n_output);
    weft_buf_printf(out, "%lld", (long long)c->max_batch);
    put_sizes(out, c->batch, c->n_batch);
}

static void put_tensors(weft_buf *out, const weft_set_tensor *t, size_t n)
{
    weft_buf_puts(out, "{");
    for (size_t i = 0; i < n; i++) {
        put_text(out, t[i].name);
        put_text(out, t[i].of);
    }
    weft_buf_puts(out, "}");
}

/* File, dims and values. */
static weft_err put_file(reader *r, const weft_set_model *model, weft_buf *out)
{
    uint32_t at = 0;
    if (model->file)
        WEFT_TRY(find_source(r, model->file, &at));
    weft_buf_printf(out, "f%u.%d", at, model->file != NULL);
    for (size_t i = 0; i < model->n_dim; i++) {
        put_text(out, model->dim[i].name);
        put_sizes(out, &model->dim[i].lo, 1);
        put_sizes(out, &model->dim[i].hi, 1);
    }
    for (size_t i = 0; i < model->n_value; i++) {
        const weft_set_value *v = &model->value[i];
        put_text(out, v->name);
        weft_buf_printf(out, "%d", v->is_list);
        for (size_t k = 0; k < v->n; k++) {
            weft_buf_put_f64(out, v->x[k]);
            weft_buf_puts(out, ",");
        }
    }
    if (model->config)
        put_config(out, model->config);
    return WEFT_ERR_OK;
}

/* All that decides the graph of a model but its name. */
static weft_err put_model(reader *r, const weft_set_model *model, weft_buf *out)
{
    WEFT_TRY(put_file(r, model, out));
    for (size_t i = 0; i < model->n_head; i++) {
        put_text(out, model->head[i]->name); /* its outputs are called after it */
        WEFT_TRY(put_file(r, model->head[i], out));
    }
    for (size_t i = 0; i < model->n_step; i++) {
        const weft_set_step *step = &model->step[i];
        weft_buf_puts(out, ";");
        WEFT_TRY(put_file(r, step->model, out));
        put_tensors(out, step->input, step->n_input);
        put_tensors(out, step->output, step->n_output);
    }
    return WEFT_ERR_OK;
}

/* -- Bundles ---------------------------------------------------------------------------------- */

static weft_profile copy_points(const weft_profile *from, weft_arena *arena)
{
    weft_profile_point *point = weft_arena_array(arena, from->n + 1, sizeof *point);
    memcpy(point, from->point, from->n * sizeof *point);
    return (weft_profile){.point = point, .n = from->n, .host_us = from->host_us};
}

static weft_err find_bundle(reader *r, const char *path, weft_bundle **out)
{
    open_bundle b = {.path = path};
    for (uint32_t i = 0; i < r->bundles.len; i++)
        if (strcmp(r->bundles.at[i].path, path) == 0) {
            *out = r->bundles.at[i].bundle;
            return WEFT_ERR_OK;
        }
    WEFT_TRY(weft_bundle_open(path, r->diag, &b.bundle));
    WEFT_VEC_PUSH(r->arena, &r->bundles, b);
    *out = b.bundle;
    return WEFT_ERR_OK;
}

/* The profile of a model in a bundle, or in one with this model only, under any name. */
static weft_err read_bundle(reader *r, const char *path, const char *model, weft_profile *out)
{
    weft_where where = {.file = path, .item = model};
    weft_bundle *bundle = NULL;
    WEFT_TRY(find_bundle(r, path, &bundle));
    const weft_bundle_program *p = weft_bundle_find(bundle, model);
    if (!p && bundle->n_program == 1)
        p = &bundle->program[0];
    if (!p)
        return weft_diag_error(r->diag, WEFT_ERR_INPUT, where, "the bundle has no such model");
    if (p->profile.n == 0)
        return weft_diag_error(r->diag, WEFT_ERR_INPUT, where, "the bundle has no profile of it");
    *out = copy_points(&p->profile, r->arena);
    return WEFT_ERR_OK;
}

/* -- Profiles --------------------------------------------------------------------------------- */

static weft_err make_profile(reader *r, const weft_set_model *model, bool is_recorded,
                             weft_profile *out)
{
    const weft_tool_profile_sources *from = r->from;
    if (is_recorded)
        return weft_profile_load(model->profile, r->set->profile_layout, model->name, r->arena,
                                 r->diag, out);
    weft_tool_progress("estimating %s", model->name);
    weft_tool_advance((double)(model - r->set->model), (double)r->set->n_model, "models");
    return weft_tool_profile_model(from->pipeline, model, from->slice, from->n_slice, from->options,
                                   r->arena, r->diag, out);
}

static weft_err share_profile(reader *r, const weft_set_model *model, bool is_recorded,
                              weft_profile *out)
{
    weft_buf text = {0};
    weft_err err = WEFT_ERR_OK;
    if (is_recorded)
        put_text(&text, model->profile);
    else
        err = put_model(r, model, &text);
    known new = {.key = weft_buf_keep(&text, r->arena)};
    WEFT_TRY(err);
    uint64_t key = weft_hash64(new.key, strlen(new.key), 0), at;
    if (weft_map_get(r->profile_of, key, &at) && strcmp(r->profiles.at[at].key, new.key) == 0) {
        *out = r->profiles.at[at].profile;
        return WEFT_ERR_OK;
    }
    WEFT_TRY(make_profile(r, model, is_recorded, &new.profile));
    weft_map_put(r->profile_of, key, r->profiles.len);
    WEFT_VEC_PUSH(r->arena, &r->profiles, new);
    *out = new.profile;
    return WEFT_ERR_OK;
}

/* NULL: it has heads and no profile. */
static const char *recorded_path(const weft_set_model *model)
{
    return model->profile ? model->profile : model->file;
}

static weft_err read_model(reader *r, const weft_set_model *model, weft_profile *out)
{
    const char *path = recorded_path(model);
    weft_file_kind kind = WEFT_FILE_TEXT;
    if (r->from->bundle)
        return read_bundle(r, r->from->bundle, model->name, out);
    if (!model->profile && r->from->n_slice == 0)
        return WEFT_ERR_OK;
    if (path)
        WEFT_TRY(weft_tool_sniff(path, r->diag, &kind));
    if (kind == WEFT_FILE_BUNDLE)
        return read_bundle(r, path, model->name, out);
    return share_profile(r, model, model->profile != NULL, out);
}

weft_err weft_tool_set_profiles(const weft_set *set, const weft_tool_profile_sources *from,
                                weft_arena *arena, weft_diag *diag, weft_profile *out)
{
    reader r = {.set = set,
                .from = from,
                .arena = arena,
                .diag = diag,
                .file_of = weft_map_create(arena),
                .profile_of = weft_map_create(arena)};
    weft_err err = WEFT_ERR_OK;
    for (size_t i = 0; i < set->n_model && err == WEFT_ERR_OK; i++)
        err = read_model(&r, &set->model[i], &out[i]);
    for (uint32_t i = 0; i < r.bundles.len; i++)
        weft_bundle_close(r.bundles.at[i].bundle);
    weft_tool_progress(NULL);
    return err;
}

/* -- Families --------------------------------------------------------------------------------- */

/* The family of a joint program; false: the set lacks one of its models, or it has no profile. */
static bool read_family(const weft_set *set, const weft_bundle *b, const weft_bundle_program *joint,
                        weft_arena *arena, weft_family *out)
{
    const char **model = weft_arena_array(arena, joint->n_part, sizeof *model);
    for (uint32_t k = 0; k < joint->n_part; k++) {
        const char *name = b->program[joint->part[k].program].name;
        size_t i = 0;
        while (i < set->n_model && strcmp(set->model[i].name, name) != 0)
            i++;
        if (i == set->n_model)
            return false;
        model[k] = set->model[i].name;
    }
    *out = (weft_family){.name = weft_family_name(model, joint->n_part, arena),
                         .model = model,
                         .n = joint->n_part,
                         .profile = copy_points(&joint->profile, arena)};
    return joint->profile.n > 0 && strlen(out->name) <= WEFT_FAMILY_NAME_MAX;
}

weft_err weft_tool_bundle_families(const weft_set *set, const char *path, weft_arena *arena,
                                   weft_diag *diag, weft_tool_families *out)
{
    weft_bundle *b = NULL;
    WEFT_TRY(weft_bundle_open(path, diag, &b));
    for (uint32_t i = 0; i < b->n_joint; i++) {
        weft_family family;
        if (read_family(set, b, &b->program[b->n_program + i], arena, &family))
            WEFT_VEC_PUSH(arena, out, family);
    }
    weft_bundle_close(b);
    return WEFT_ERR_OK;
}

weft_err weft_tool_set_families(const weft_set *set, weft_arena *arena, weft_diag *diag,
                                weft_tool_families *out)
{
    for (size_t i = 0; i < set->n_model; i++) {
        const char *path = recorded_path(&set->model[i]);
        weft_file_kind kind = WEFT_FILE_TEXT;
        size_t k = 0;
        while (k < i && !(path && recorded_path(&set->model[k]) &&
                          strcmp(recorded_path(&set->model[k]), path) == 0))
            k++;
        if (path)
            WEFT_TRY(weft_tool_sniff(path, diag, &kind));
        if (k == i && kind == WEFT_FILE_BUNDLE)
            WEFT_TRY(weft_tool_bundle_families(set, path, arena, diag, out));
    }
    return WEFT_ERR_OK;
}
