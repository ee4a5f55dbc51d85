/* Reads set files: the models that are compiled or planned together, with their SLOs and rates.
 *
 * docs/set-file.md is the reference. The schema below lists the keys; `dims` and `values`, whose
 * keys are free, are read from the YAML nodes. The files that a set names are not opened. */
#include "scheduler/input/input.h"
#include "scheduler/input/model_folder.h"
#include "scheduler/input/yaml_int.h"

#include "base/file.h"
#include "base/map.h"
#include "base/hash.h"
#include "base/num.h"

#include <math.h>
#include <string.h>

enum {
    MODELS_MAX = 16384,
    VARIANTS_MAX = 256,
    HEADS_MAX = 256,
    ADAPTERS_MAX = 65536,
    PATH_BYTES_MAX = 4096,
};

typedef struct raw_model {
    char *name, *file, *profile, *slo, *rate, *admission, *spread, *combine;
    char **heads, **adapters, **adapter_modules;
    uint32_t n_heads, n_adapters, n_adapter_modules;
} raw_model;

typedef struct raw_variant {
    char *model;
    double accuracy;
} raw_variant;

typedef struct raw_app {
    char *name, *slo, *rate;
    double accuracy;
    raw_variant *variants;
    uint32_t n_variants;
} raw_app;

typedef struct raw_set {
    char *profile_layout;
    raw_model *models;
    uint32_t n_models;
    raw_app *apps;
    uint32_t n_apps;
} raw_set;

/* -- Schema ----------------------------------------------------------------------------------- */

#define OPT (CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL)

static const cyaml_schema_value_t head_schema = {
    CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char, 1, WEFT_SET_NAME_MAX),
};

static const cyaml_schema_value_t adapter_schema = {
    CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char, 1, PATH_BYTES_MAX),
};

static const cyaml_schema_field_t model_fields[] = {
    CYAML_FIELD_STRING_PTR("name", CYAML_FLAG_POINTER, raw_model, name, 1, WEFT_SET_NAME_MAX),
    CYAML_FIELD_STRING_PTR("file", OPT, raw_model, file, 1, PATH_BYTES_MAX),
    CYAML_FIELD_STRING_PTR("profile", OPT, raw_model, profile, 1, PATH_BYTES_MAX),
    CYAML_FIELD_STRING_PTR("slo", OPT, raw_model, slo, 1, 64),
    CYAML_FIELD_STRING_PTR("rate", OPT, raw_model, rate, 1, 64),
    CYAML_FIELD_STRING_PTR("admission", OPT, raw_model, admission, 1, 64),
    CYAML_FIELD_STRING_PTR("spread", OPT, raw_model, spread, 1, 64),
    CYAML_FIELD_STRING_PTR("combine", OPT, raw_model, combine, 1, 64),
    {.key = "heads",
     .data_offset = offsetof(raw_model, heads),
     .count_offset = offsetof(raw_model, n_heads),
     .count_size = sizeof(uint32_t),
     .value = {CYAML_VALUE_SEQUENCE(OPT, char *, &head_schema, 1, HEADS_MAX)}},
    {.key = "adapters",
     .data_offset = offsetof(raw_model, adapters),
     .count_offset = offsetof(raw_model, n_adapters),
     .count_size = sizeof(uint32_t),
     .value = {CYAML_VALUE_SEQUENCE(OPT, char *, &adapter_schema, 1, ADAPTERS_MAX)}},
    {.key = "adapter_modules",
     .data_offset = offsetof(raw_model, adapter_modules),
     .count_offset = offsetof(raw_model, n_adapter_modules),
     .count_size = sizeof(uint32_t),
     .value = {CYAML_VALUE_SEQUENCE(OPT, char *, &adapter_schema, 1, ADAPTERS_MAX)}},
    CYAML_FIELD_IGNORE("dims", CYAML_FLAG_OPTIONAL),
    CYAML_FIELD_IGNORE("values", CYAML_FLAG_OPTIONAL),
    CYAML_FIELD_END,
};

static const cyaml_schema_value_t model_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, raw_model, model_fields),
};

static const cyaml_schema_field_t variant_fields[] = {
    CYAML_FIELD_STRING_PTR("model", CYAML_FLAG_POINTER, raw_variant, model, 1, WEFT_SET_NAME_MAX),
    CYAML_FIELD_FLOAT("accuracy", CYAML_FLAG_DEFAULT, raw_variant, accuracy),
    CYAML_FIELD_END,
};

static const cyaml_schema_value_t variant_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, raw_variant, variant_fields),
};

static const cyaml_schema_field_t app_fields[] = {
    CYAML_FIELD_STRING_PTR("name", CYAML_FLAG_POINTER, raw_app, name, 1, WEFT_SET_NAME_MAX),
    CYAML_FIELD_STRING_PTR("slo", OPT, raw_app, slo, 1, 64),
    CYAML_FIELD_STRING_PTR("rate", OPT, raw_app, rate, 1, 64),
    CYAML_FIELD_FLOAT("accuracy", CYAML_FLAG_OPTIONAL, raw_app, accuracy),
    {.key = "variants",
     .data_offset = offsetof(raw_app, variants),
     .count_offset = offsetof(raw_app, n_variants),
     .count_size = sizeof(uint32_t),
     .value = {CYAML_VALUE_SEQUENCE(CYAML_FLAG_POINTER, raw_variant, &variant_schema, 1,
                                    VARIANTS_MAX)}},
    CYAML_FIELD_END,
};

static const cyaml_schema_value_t app_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, raw_app, app_fields),
};

static const cyaml_schema_field_t set_fields[] = {
    CYAML_FIELD_STRING_PTR("profile_layout", OPT, raw_set, profile_layout, 1, 32),
    {.key = "models",
     .data_offset = offsetof(raw_set, models),
     .count_offset = offsetof(raw_set, n_models),
     .count_size = sizeof(uint32_t),
     .value = {CYAML_VALUE_SEQUENCE(CYAML_FLAG_POINTER, raw_model, &model_schema, 1, MODELS_MAX)}},
    {.key = "apps",
     .data_offset = offsetof(raw_set, apps),
     .count_offset = offsetof(raw_set, n_apps),
     .count_size = sizeof(uint32_t),
     .value = {CYAML_VALUE_SEQUENCE(OPT, raw_app, &app_schema, 0, MODELS_MAX)}},
    CYAML_FIELD_END,
};

static const cyaml_schema_value_t set_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, raw_set, set_fields),
};

/* -- Values ----------------------------------------------------------------------------------- */

typedef struct reader {
    weft_yaml *yaml;
    weft_arena *arena;
    weft_diag *diag;
    weft_map *names; /* set of the hashes of names; models have seed 0, apps seed 1 */
} reader;

/* false: the name is known already. Names are compared by 64-bit hash, so a set with two names that
 * collide is refused as if a name appeared twice. */
static bool add_name(reader *rd, const char *name, uint64_t seed)
{
    uint64_t key = weft_hash64(name, strlen(name), seed), old;
    if (weft_map_get(rd->names, key, &old))
        return false;
    weft_map_put(rd->names, key, 1);
    return true;
}

static bool has_name(const reader *rd, const char *name, uint64_t seed)
{
    uint64_t value;
    return weft_map_get(rd->names, weft_hash64(name, strlen(name), seed), &value);
}

static const char *resolve_path(reader *rd, const char *path)
{
    if (!path)
        return NULL;
    const char *slash = strrchr(rd->yaml->file, '/');
    if (path[0] == '/' || !slash)
        return weft_arena_strdup(rd->arena, path);
    return weft_arena_printf(rd->arena, "%.*s%s", (int)(slash - rd->yaml->file + 1), rd->yaml->file,
                             path);
}

static weft_err read_dim(reader *rd, const char *model, const yaml_node_t *key,
                         const yaml_node_t *value, weft_set_dim *out)
{
    weft_where where = {.file = rd->yaml->file, .item = model, .line = weft_yaml__line(key)};
    const char *name = (const char *)key->data.scalar.value;
    size_t len = key->data.scalar.length;
    if (len == 0 || len > WEFT_SET_NAME_MAX)
        return weft_diag_error(rd->diag, WEFT_ERR_INPUT, where,
                               "dims: a name must have 1 to 128 bytes, not %zu", len);
    bool pair = value->type == YAML_SEQUENCE_NODE && weft_yaml__at(rd->yaml, value, 1) &&
                !weft_yaml__at(rd->yaml, value, 2);
    const yaml_node_t *lo = pair ? weft_yaml__at(rd->yaml, value, 0) : value;
    const yaml_node_t *hi = pair ? weft_yaml__at(rd->yaml, value, 1) : value;
    weft_set_dim dim = {.name = weft_arena_strdup(rd->arena, name)};
    if (lo->type != YAML_SCALAR_NODE || hi->type != YAML_SCALAR_NODE ||
        !weft_parse_i64((const char *)lo->data.scalar.value, &dim.lo) ||
        !weft_parse_i64((const char *)hi->data.scalar.value, &dim.hi))
        return weft_diag_error(rd->diag, WEFT_ERR_INPUT, where,
                               "dims: '%s' must be [lowest, highest] or one number", name);
    if (dim.lo < 0 || dim.hi < dim.lo || dim.hi > INT32_MAX)
        return weft_diag_error(rd->diag, WEFT_ERR_INPUT, where,
                               "dims: '%s' is [%lld, %lld], must have 0 <= lowest <= highest <= %d",
                               name, (long long)dim.lo, (long long)dim.hi, INT32_MAX);
    *out = dim;
    return WEFT_ERR_OK;
}

static weft_err read_dims(reader *rd, const yaml_node_t *node, weft_set_model *model)
{
    const yaml_node_t *dims = weft_yaml__get(rd->yaml, node, "dims");
    if (!dims)
        return WEFT_ERR_OK;
    weft_where where = {.file = rd->yaml->file, .item = model->name, .line = weft_yaml__line(dims)};
    if (dims->type != YAML_MAPPING_NODE)
        return weft_diag_error(rd->diag, WEFT_ERR_INPUT, where,
                               "dims: must be a mapping of names to ranges");
    size_t n = (size_t)(dims->data.mapping.pairs.top - dims->data.mapping.pairs.start);
    weft_set_dim *dim = weft_arena_array(rd->arena, n, sizeof *dim);
    for (size_t i = 0; i < n; i++) {
        const yaml_node_pair_t *pair = dims->data.mapping.pairs.start + i;
        WEFT_TRY(read_dim(rd, model->name, yaml_document_get_node(&rd->yaml->doc, pair->key),
                          yaml_document_get_node(&rd->yaml->doc, pair->value), &dim[i]));
    }
    model->dim = dim;
    model->n_dim = n;
    return WEFT_ERR_OK;
}

static weft_err read_value(reader *rd, const char *model, const yaml_node_t *key,
                           const yaml_node_t *value, weft_set_value *out)
{
    weft_where where = {.file = rd->yaml->file, .item = model, .line = weft_yaml__line(key)};
    const char *name = (const char *)key->data.scalar.value;
    size_t len = key->data.scalar.length;
    if (len == 0 || len > WEFT_SET_NAME_MAX)
        return weft_diag_error(rd->diag, WEFT_ERR_INPUT, where,
                               "values: a name must have 1 to 128 bytes, not %zu", len);
    weft_set_value v = {.name = weft_arena_strdup(rd->arena, name),
                        .is_list = value->type == YAML_SEQUENCE_NODE};
    v.n = 1;
    if (v.is_list)
        v.n = (size_t)(value->data.sequence.items.top - value->data.sequence.items.start);
    double *x = weft_arena_array(rd->arena, v.n, sizeof *x);
    for (size_t i = 0; i < v.n; i++) {
        const yaml_node_t *item = v.is_list ? weft_yaml__at(rd->yaml, value, i) : value;
        if (item->type != YAML_SCALAR_NODE ||
            !weft_parse_f64((const char *)item->data.scalar.value, &x[i]) || !isfinite(x[i]))
            return weft_diag_error(rd->diag, WEFT_ERR_INPUT, where,
                                   "values: '%s' must be a number or a list of numbers", name);
    }
    v.x = x;
    *out = v;
    return WEFT_ERR_OK;
}

static weft_err read_values(reader *rd, const yaml_node_t *node, weft_set_model *model)
{
    const yaml_node_t *values = weft_yaml__get(rd->yaml, node, "values");
    if (!values)
        return WEFT_ERR_OK;
    weft_where where = {
        .file = rd->yaml->file, .item = model->name, .line = weft_yaml__line(values)};
    if (values->type != YAML_MAPPING_NODE)
        return weft_diag_error(rd->diag, WEFT_ERR_INPUT, where,
                               "values: must be a mapping of inputs to numbers");
    size_t n = (size_t)(values->data.mapping.pairs.top - values->data.mapping.pairs.start);
    weft_set_value *value = weft_arena_array(rd->arena, n, sizeof *value);
    for (size_t i = 0; i < n; i++) {
        const yaml_node_pair_t *pair = values->data.mapping.pairs.start + i;
        WEFT_TRY(read_value(rd, model->name, yaml_document_get_node(&rd->yaml->doc, pair->key),
                            yaml_document_get_node(&rd->yaml->doc, pair->value), &value[i]));
    }
    model->value = value;
    model->n_value = n;
    return WEFT_ERR_OK;
}

/* Parses SLO and rate of a model or an app; a text of NULL, a key that is not given, leaves its
 * number unchanged. */
static weft_err read_target(const reader *rd, weft_where where, const char *slo, const char *rate,
                            double *slo_us, double *rate_per_s)
{
    if (slo && (!weft_parse_duration_us(slo, slo_us) || !isfinite(*slo_us) || !(*slo_us > 0)))
        return weft_diag_error(rd->diag, WEFT_ERR_INPUT, where,
                               "slo: '%s' is not a duration such as 108ms, 1.5s or 250us", slo);
    if (rate &&
        (!weft_parse_rate_per_s(rate, rate_per_s) || !isfinite(*rate_per_s) || !(*rate_per_s > 0)))
        return weft_diag_error(rd->diag, WEFT_ERR_INPUT, where,
                               "rate: '%s' is not a rate such as 829/s or 60/min", rate);
    return WEFT_ERR_OK;
}

static weft_err refuse_name(const reader *rd, weft_where where, const char *what)
{
    return weft_diag_error(rd->diag, WEFT_ERR_INPUT, where,
                           "%s name must be letters, digits, '_', '.' and '-', at most 128, the "
                           "first a letter or digit",
                           what);
}

/* `model` has its SLO. */
static weft_err read_admission(const reader *rd, weft_where where, const char *text,
                               weft_set_model *model)
{
    model->admit_by_slo = text && strcmp(text, "slo") == 0;
    if (text && !model->admit_by_slo && strcmp(text, "all") != 0)
        return weft_diag_error(rd->diag, WEFT_ERR_INPUT, where,
                               "admission: '%s' is neither 'slo' nor 'all'", text);
    if (model->admit_by_slo && !(model->slo_us > 0))
        return weft_diag_error(rd->diag, WEFT_ERR_INPUT, where, "admission: slo needs an 'slo'");
    return WEFT_ERR_OK;
}

static weft_err read_adapters(reader *rd, const raw_model *raw, weft_where where,
                              weft_set_model *model)
{
    const char **adapter = weft_arena_array(rd->arena, raw->n_adapters, sizeof *adapter);
    const char **module = weft_arena_array(rd->arena, raw->n_adapter_modules, sizeof *module);
    if ((raw->n_adapters > 0 || raw->n_adapter_modules > 0) && !raw->file)
        return weft_diag_error(rd->diag, WEFT_ERR_INPUT, where,
                               "'adapters' and 'adapter_modules' need a 'file'");
    for (uint32_t i = 0; i < raw->n_adapters; i++)
        adapter[i] = resolve_path(rd, raw->adapters[i]);
    model->adapter = adapter;
    model->n_adapter = raw->n_adapters;
    for (uint32_t i = 0; i < raw->n_adapter_modules; i++) {
        module[i] = weft_arena_strdup(rd->arena, raw->adapter_modules[i]);
        if (!*module[i])
            return weft_diag_error(rd->diag, WEFT_ERR_INPUT, where,
                                   "a name of 'adapter_modules' is empty");
    }
    model->adapter_module = module;
    model->n_adapter_module = raw->n_adapter_modules;
    return WEFT_ERR_OK;
}

static weft_err read_model(reader *rd, const raw_model *raw, const yaml_node_t *node,
                           weft_set_model *out)
{
    weft_set_model model = {.name = raw->name, .line = weft_yaml__line(node)};
    weft_where where = {.file = rd->yaml->file, .item = raw->name, .line = model.line};
    if (!weft_set_name_valid(raw->name))
        return refuse_name(rd, where, "model");
    if (!add_name(rd, raw->name, 0))
        return weft_diag_error(rd->diag, WEFT_ERR_INPUT, where, "model name appears twice");
    if (raw->file && raw->n_heads)
        return weft_diag_error(rd->diag, WEFT_ERR_INPUT, where, "model has 'file' and 'heads'");
    if (!raw->file && !raw->profile && !raw->n_heads)
        return weft_diag_error(rd->diag, WEFT_ERR_INPUT, where,
                               "model has neither 'file' nor 'heads' nor 'profile'");
    WEFT_TRY(read_target(rd, where, raw->slo, raw->rate, &model.slo_us, &model.rate_per_s));
    WEFT_TRY(read_admission(rd, where, raw->admission, &model));
    if (raw->spread && !weft_domain_parse(raw->spread, &model.spread))
        return weft_diag_error(rd->diag, WEFT_ERR_INPUT, where,
                               "spread: '%s' is not node, rack or zone", raw->spread);
    model.file = resolve_path(rd, raw->file);
    model.profile = resolve_path(rd, raw->profile);
    WEFT_TRY(read_dims(rd, node, &model));
    WEFT_TRY(read_values(rd, node, &model));
    WEFT_TRY(read_adapters(rd, raw, where, &model));
    *out = model;
    return WEFT_ERR_OK;
}

static weft_err read_combine(reader *rd, const raw_model *raw, weft_where where, weft_combine *out)
{
    static const char *const name[WEFT_COMBINE_KINDS] = {
        [WEFT_COMBINE_MEAN] = "mean",       [WEFT_COMBINE_SUM] = "sum",
        [WEFT_COMBINE_MAX] = "max",         [WEFT_COMBINE_MIN] = "min",
        [WEFT_COMBINE_SOFTMAX] = "softmax", [WEFT_COMBINE_VOTE] = "vote"};
    uint32_t i = WEFT_COMBINE_MEAN;
    if (!raw->combine)
        return WEFT_ERR_OK;
    if (!raw->n_heads)
        return weft_diag_error(rd->diag, WEFT_ERR_INPUT, where,
                               "'combine' is for models with 'heads'");
    while (i < WEFT_COMBINE_KINDS && strcmp(raw->combine, name[i]) != 0)
        i++;
    if (i == WEFT_COMBINE_KINDS)
        return weft_diag_error(rd->diag, WEFT_ERR_INPUT, where,
                               "combine: '%s' is not mean, sum, max, min, softmax or vote",
                               raw->combine);
    *out = (weft_combine)i;
    return WEFT_ERR_OK;
}

/* Finds the models that `heads` names: each once, with a file. */
static weft_err read_heads(reader *rd, const raw_model *raw, const weft_set_model *models, size_t n,
                           weft_set_model *out)
{
    weft_where where = {.file = rd->yaml->file, .item = raw->name, .line = out->line};
    const weft_set_model **head = weft_arena_array(rd->arena, raw->n_heads, sizeof *head);
    for (uint32_t i = 0; i < raw->n_heads; i++) {
        for (size_t k = 0; k < n && !head[i]; k++)
            if (strcmp(models[k].name, raw->heads[i]) == 0)
                head[i] = &models[k];
        if (!head[i] || !head[i]->file)
            return weft_diag_error(rd->diag, WEFT_ERR_INPUT, where,
                                   "head '%s' is not a model of this set with a 'file'",
                                   raw->heads[i]);
        for (uint32_t k = 0; k < i; k++)
            if (head[k] == head[i])
                return weft_diag_error(rd->diag, WEFT_ERR_INPUT, where, "head '%s' appears twice",
                                       raw->heads[i]);
    }
    if (raw->n_heads && (out->n_dim || out->n_value))
        return weft_diag_error(rd->diag, WEFT_ERR_INPUT, where,
                               "'dims' and 'values' are those of the heads");
    out->head = head;
    out->n_head = raw->n_heads;
    return read_combine(rd, raw, where, &out->combine);
}

static weft_err read_app(reader *rd, const raw_app *raw, const yaml_node_t *node, weft_set_app *out)
{
    weft_where where = {.file = rd->yaml->file, .item = raw->name, .line = weft_yaml__line(node)};
    if (!weft_set_name_valid(raw->name))
        return refuse_name(rd, where, "app");
    /* A request names an app or a model, so apps and models share one name space. */
    if (!add_name(rd, raw->name, 1) || has_name(rd, raw->name, 0))
        return weft_diag_error(rd->diag, WEFT_ERR_INPUT, where,
                               "name is already used by another app or model");
    weft_set_variant *variant = weft_arena_array(rd->arena, raw->n_variants, sizeof *variant);
    for (uint32_t i = 0; i < raw->n_variants; i++) {
        const raw_variant *v = &raw->variants[i];
        if (!has_name(rd, v->model, 0))
            return weft_diag_error(rd->diag, WEFT_ERR_INPUT, where,
                                   "variant '%s' is not a model of this set", v->model);
        for (uint32_t j = 0; j < i; j++)
            if (strcmp(v->model, raw->variants[j].model) == 0)
                return weft_diag_error(rd->diag, WEFT_ERR_INPUT, where,
                                       "variant '%s' appears twice", v->model);
        if (!isfinite(v->accuracy) || v->accuracy < 0)
            return weft_diag_error(
                rd->diag, WEFT_ERR_INPUT, where,
                "accuracy of variant '%s' must be a number of at least 0, not %g", v->model,
                v->accuracy);
        variant[i] = (weft_set_variant){.model = v->model, .accuracy = v->accuracy};
    }
    weft_set_app app = {.name = raw->name,
                        .accuracy = raw->accuracy,
                        .variant = variant,
                        .n_variant = raw->n_variants};
    WEFT_TRY(read_target(rd, where, raw->slo, raw->rate, &app.slo_us, &app.rate_per_s));
    if (!isfinite(app.accuracy) || app.accuracy < 0)
        return weft_diag_error(rd->diag, WEFT_ERR_INPUT, where,
                               "accuracy: must be a number of at least 0, not %g", app.accuracy);
    *out = app;
    return WEFT_ERR_OK;
}

/* -- Loading ---------------------------------------------------------------------------------- */

static weft_err read_set(reader *rd, weft_set *out)
{
    void *loaded = NULL;
    WEFT_TRY(weft_yaml__load(rd->yaml, &set_schema, rd->arena, rd->diag, &loaded));
    const raw_set *raw = loaded;
    weft_set set = {.file = weft_arena_strdup(rd->arena, rd->yaml->file),
                    .profile_layout = raw->profile_layout ? raw->profile_layout : "weft",
                    .n_model = raw->n_models,
                    .n_app = raw->n_apps};
    const yaml_node_t *root = yaml_document_get_root_node(&rd->yaml->doc);
    if (strcmp(set.profile_layout, "weft") != 0 && strcmp(set.profile_layout, "parvagpu") != 0)
        return weft_diag_error(
            rd->diag, WEFT_ERR_INPUT,
            (weft_where){.file = rd->yaml->file,
                         .line = weft_yaml__line(weft_yaml__get(rd->yaml, root, "profile_layout"))},
            "profile_layout: '%s' must be weft or parvagpu", set.profile_layout);
    weft_set_model *model = weft_arena_array(rd->arena, set.n_model, sizeof *model);
    const yaml_node_t *models = weft_yaml__get(rd->yaml, root, "models");
    for (size_t i = 0; i < set.n_model; i++)
        WEFT_TRY(read_model(rd, &raw->models[i], weft_yaml__at(rd->yaml, models, i), &model[i]));
    for (size_t i = 0; i < set.n_model; i++)
        WEFT_TRY(read_heads(rd, &raw->models[i], model, set.n_model, &model[i]));
    weft_set_app *app = weft_arena_array(rd->arena, set.n_app, sizeof *app);
    const yaml_node_t *apps = weft_yaml__get(rd->yaml, root, "apps");
    for (size_t i = 0; i < set.n_app; i++)
        WEFT_TRY(read_app(rd, &raw->apps[i], weft_yaml__at(rd->yaml, apps, i), &app[i]));
    set.model = model;
    set.app = app;
    *out = set;
    return WEFT_ERR_OK;
}

weft_err weft_set_load(const char *path, weft_arena *arena, weft_diag *diag, weft_set *out)
{
    weft_yaml yaml;
    if (weft_file_is_folder(path))
        return weft_set__load_folder(path, arena, diag, out);
    WEFT_TRY(weft_yaml__open(path, diag, &yaml));
    reader rd = {.yaml = &yaml, .arena = arena, .diag = diag, .names = weft_map_create(arena)};
    weft_err err = read_set(&rd, out);
    weft_yaml__close(&yaml);
    return err;
}
