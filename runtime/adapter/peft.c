/* Adapters as PEFT writes them (peft 0.21): adapter_config.json tells the scale, and
 * adapter_model.safetensors has two factors for each module,
 *
 *     base_model.model.PATH.lora_A.weight [r, in]      base_model.model.PATH.lora_B.weight [out, r]
 *
 * of which alpha / r times their product is added to the module's weight [out, in] (Hu et al.,
 * "LoRA", 2021; with use_rslora alpha / sqrt(r): Kalajdzievski, 2023). The tensors that are there
 * say which modules it changes. Keys of the configuration that change what a merged model computes
 * in another way are refused by name, as is every tensor that is no factor. */
#include "runtime/adapter/adapter.h"

#include "base/f16.h"
#include "base/file.h"
#include "ops/adapter_rows.h"

#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_KIB_MAX = 1024, TENSORS_MIB_MAX = 4096 };

typedef struct reader {
    const char *folder;
    weft_arena *arena;
    weft_diag *diag;
    const json_t *config;
    weft_peft_module *module;
    const weft_safetensor **a, **b; /* of each module */
    double *scale;
    uint32_t n;
} reader;

#define REFUSE(r, what, ...)                                                                      \
    weft_diag_error((r)->diag, WEFT_ERR_INPUT, (weft_where){.file = (r)->folder, .item = (what)}, \
                    __VA_ARGS__)

/* -- Configuration -------------------------------------------------------------------------- */

/* Whether a key is absent, null, false, or has nothing in it. */
static bool is_unset(const json_t *value)
{
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

/* These change the answers of a model, and are not supported. */
static const char *const unsupported[] = {
    "use_dora",          "lora_bias",     "modules_to_save",   "trainable_token_indices",
    "layer_replication", "use_qalora",    "use_bdlora",        "alora_invocation_tokens",
    "target_parameters", "velora_config", "monteclora_config", "megatron_config",
    "corda_config",      "arrow_config",
};

static weft_err check_config(const reader *r)
{
    const json_t *type = json_object_get(r->config, "peft_type");
    const json_t *bias = json_object_get(r->config, "bias");
    if (!json_is_string(type) || strcmp(json_string_value(type), "LORA") != 0)
        return REFUSE(r, "peft_type", "is %s; only LORA is supported",
                      json_is_string(type) ? json_string_value(type) : "not given");
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++)
        if (!is_unset(json_object_get(r->config, unsupported[i])))
            return REFUSE(r, unsupported[i],
                          "is set, which is not supported; merge the adapter into its base and "
                          "compile the merged model");
    if (bias && (!json_is_string(bias) || strcmp(json_string_value(bias), "none") != 0))
        return REFUSE(r, "bias", "is %s; only none is supported",
                      json_is_string(bias) ? json_string_value(bias) : "no text");
    const json_t *rslora = json_object_get(r->config, "use_rslora");
    if (rslora && !json_is_boolean(rslora) && !json_is_null(rslora))
        return REFUSE(r, "use_rslora", "is neither true nor false");
    return WEFT_ERR_OK;
}

/* Such an adapter was trained beside other weights than those of the published base. */
static void warn_init(const reader *r)
{
    const char *init = json_string_value(json_object_get(r->config, "init_lora_weights"));
    if (init &&
        (strncmp(init, "pissa", 5) == 0 || strcmp(init, "olora") == 0 ||
         strcmp(init, "corda") == 0 || strcmp(init, "lora_ga") == 0 || strcmp(init, "loftq") == 0))
        weft_diag_warn(r->diag, (weft_where){.file = r->folder, .item = "init_lora_weights"},
                       "%s changes the weights of the base: the adapter fits the published base "
                       "only if it was converted when it was saved",
                       init);
}

/* Whether Python's re.match(r"(.*\.)?(KEY)$", path) matches, for a key whose only special character
 * is '.', which stands for any. */
static bool key_matches(const char *key, const char *path)
{
    size_t n = strlen(key), len = strlen(path);
    if (n > len || (len > n && path[len - n - 1] != '.'))
        return false;
    for (size_t i = 0; i < n; i++)
        if (key[i] != '.' && key[i] != path[len - n + i])
            return false;
    return true;
}

static bool is_plain_key(const char *key)
{
    return *key && !strpbrk(key, "^$*+?()[]{}|\\");
}

/* The number that `pattern` has for the path, else the one that `key` has, else `otherwise`. */
static weft_err get_number(const reader *r, const char *key, const char *pattern, const char *path,
                           double otherwise, double *out)
{
    const json_t *number = json_object_get(r->config, key);
    json_t *patterns = json_object_get(r->config, pattern), *value;
    const char *of;
    *out = number ? json_number_value(number) : otherwise;
    if (number && !json_is_number(number))
        return REFUSE(r, key, "is no number");
    if (patterns && !json_is_null(patterns) && !json_is_object(patterns))
        return REFUSE(r, pattern, "is no object");
    json_object_foreach(patterns, of, value)
    {
        if (!is_plain_key(of))
            return REFUSE(r, pattern,
                          "key %s is a regular expression, which is not supported; "
                          "write the modules out",
                          of);
        if (!json_is_number(value))
            return REFUSE(r, pattern, "key %s has no number", of);
        if (!key_matches(of, path))
            continue;
        *out = json_number_value(value);
        break;
    }
    return WEFT_ERR_OK;
}

static weft_err find_scale(const reader *r, const weft_peft_module *m, double *out)
{
    double rank, alpha;
    WEFT_TRY(get_number(r, "r", "rank_pattern", m->path, 8, &rank));
    WEFT_TRY(get_number(r, "lora_alpha", "alpha_pattern", m->path, 8, &alpha));
    if (rank != (double)m->rank)
        return REFUSE(r, m->path, "factors have rank %lld, adapter_config.json says %g",
                      (long long)m->rank, rank);
    *out =
        json_is_true(json_object_get(r->config, "use_rslora")) ? alpha / sqrt(rank) : alpha / rank;
    return isfinite(*out) ? WEFT_ERR_OK : REFUSE(r, "lora_alpha", "is not finite");
}

/* -- Tensors -------------------------------------------------------------------------------- */

static bool strip_ending(const char *name, size_t *len, const char *ending)
{
    size_t n = strlen(ending);
    if (*len <= n || strncmp(name + *len - n, ending, n) != 0)
        return false;
    *len -= n;
    return true;
}

/* The path of a factor's module; NULL: the tensor is none. */
static const char *path_of(const reader *r, const char *name, bool *out_is_a)
{
    static const char *const prefix[] = {"base_model.model.", "base_model."};
    for (size_t i = 0; i < sizeof prefix / sizeof *prefix; i++)
        if (strncmp(name, prefix[i], strlen(prefix[i])) == 0) {
            name += strlen(prefix[i]);
            break;
        }
    size_t len = strlen(name);
    *out_is_a = strip_ending(name, &len, ".lora_A.weight") ||
                strip_ending(name, &len, ".lora_A.default.weight");
    if (!*out_is_a && !strip_ending(name, &len, ".lora_B.weight") &&
        !strip_ending(name, &len, ".lora_B.default.weight"))
        return NULL;
    return weft_arena_strndup(r->arena, name, len);
}

static weft_err take_tensor(reader *r, weft_names *names, const weft_safetensor *t)
{
    bool is_a;
    const char *path = path_of(r, t->name, &is_a);
    if (!path)
        return REFUSE(r, t->name,
                      "is no factor of a linear module (lora_A.weight, lora_B.weight), which alone "
                      "are supported");
    if (t->tensor.rank != 2)
        return REFUSE(r, t->name, "has %d dimensions: only linear modules are supported",
                      t->tensor.rank);
    uint32_t i = weft_names_add(names, path, strlen(path)) - 1;
    if (i == r->n)
        r->module[r->n++].path = path;
    const weft_safetensor **at = is_a ? &r->a[i] : &r->b[i];
    if (*at)
        return REFUSE(r, t->name, "is the second of its kind for this module");
    *at = t;
    return WEFT_ERR_OK;
}

/* As f32; NULL: an element is not finite. */
static float *widen(const reader *r, const weft_tensor *t)
{
    size_t n = (size_t)weft_tensor_numel(t);
    float *y = weft_arena_array(r->arena, n + 1, sizeof *y);
    if (t->dtype == WEFT_DTYPE_F16)
        weft_f16_to_f32_array(t->data, y, n);
    else if (t->dtype == WEFT_DTYPE_BF16)
        weft_bf16_to_f32_array(t->data, y, n);
    else if (n > 0)
        memcpy(y, t->data, n * sizeof *y);
    for (size_t i = 0; i < n; i++)
        if (!isfinite(y[i]))
            return NULL;
    return y;
}

/* b, [n, rank], as [rank, n] times the scale; NULL: an element is not finite. */
static float *turn(const reader *r, const weft_peft_module *m, const float *b, double scale)
{
    float *y = weft_arena_array(r->arena, (size_t)(m->rank * m->n) + 1, sizeof *y);
    for (int64_t i = 0; i < m->n; i++)
        for (int64_t k = 0; k < m->rank; k++) {
            double scaled = scale * (double)b[i * m->rank + k];
            if (!(fabs(scaled) <= FLT_MAX))
                return NULL;
            y[k * m->n + i] = (float)scaled;
        }
    return y;
}

static weft_err read_module(const reader *r, uint32_t i)
{
    weft_peft_module *m = &r->module[i];
    if (!r->a[i] || !r->b[i])
        return REFUSE(r, m->path, "has no %s", r->a[i] ? "lora_B.weight" : "lora_A.weight");
    const weft_tensor *a = &r->a[i]->tensor, *b = &r->b[i]->tensor;
    m->rank = a->dim[0];
    m->k = a->dim[1];
    m->n = b->dim[0];
    if (b->dim[1] != m->rank || m->rank < 1 || m->rank > WEFT_ADAPTER_RANK_MAX || m->k < 1 ||
        m->n < 1)
        return REFUSE(r, m->path,
                      "factors [%lld, %lld] and [%lld, %lld] do not fit; the rank is 1 to %d",
                      (long long)a->dim[0], (long long)a->dim[1], (long long)b->dim[0],
                      (long long)b->dim[1], WEFT_ADAPTER_RANK_MAX);
    WEFT_TRY(find_scale(r, m, &r->scale[i]));
    m->a = widen(r, a);
    const float *wide = m->a ? widen(r, b) : NULL;
    m->b = wide ? turn(r, m, wide, r->scale[i]) : NULL;
    return m->b ? WEFT_ERR_OK : REFUSE(r, m->path, "a factor has a number that is not finite");
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(((const weft_peft_module *)a)->path, ((const weft_peft_module *)b)->path);
}

static weft_err read_modules(reader *r, const weft_safetensors *list)
{
    weft_names *names = weft_names_create(r->arena);
    r->module = weft_arena_array(r->arena, (size_t)list->n + 1, sizeof *r->module);
    r->a = weft_arena_array(r->arena, (size_t)list->n + 1, sizeof *r->a);
    r->b = weft_arena_array(r->arena, (size_t)list->n + 1, sizeof *r->b);
    r->scale = weft_arena_array(r->arena, (size_t)list->n + 1, sizeof *r->scale);
    for (uint32_t i = 0; i < list->n; i++)
        WEFT_TRY(take_tensor(r, names, &list->at[i]));
    if (r->n == 0)
        return REFUSE(r, NULL, "has no factors");
    for (uint32_t i = 0; i < r->n; i++)
        WEFT_TRY(read_module(r, i));
    qsort(r->module, r->n, sizeof *r->module, compare_paths);
    return WEFT_ERR_OK;
}

/* -- The door ------------------------------------------------------------------------------- */

static weft_err parse(reader *r, const uint8_t *tensors, size_t len)
{
    weft_safetensors list;
    WEFT_TRY(check_config(r));
    warn_init(r);
    WEFT_TRY(weft_safetensors_read(tensors, len, r->folder, r->arena, r->diag, &list));
    return read_modules(r, &list);
}

weft_err weft_peft_parse(const char *config, size_t config_len, const uint8_t *tensors,
                         size_t tensors_len, const char *folder, weft_arena *arena, weft_diag *diag,
                         weft_peft *out)
{
    reader r = {.folder = folder, .arena = arena, .diag = diag};
    json_error_t why;
    json_t *root = json_loadb(config, config_len, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(root)) {
        json_decref(root);
        return REFUSE(&r, "adapter_config.json", "is no JSON object: %s",
                      root ? "another value" : why.text);
    }
    r.config = root;
    weft_err err;
    jmp_buf env, *before = weft_arena_guard(arena, &env);
    if (setjmp(env))
        err = WEFT_ERR_NOMEM;
    else
        err = parse(&r, tensors, tensors_len);
    weft_arena_guard(arena, before);
    json_decref(root);
    if (err == WEFT_ERR_OK)
        *out = (weft_peft){.module = r.module, .n = r.n};
    return err;
}

/* -- Files ---------------------------------------------------------------------------------- */

/* A folder, or a file, as it is asked for. */
typedef struct place {
    const char *root, *folder; /* see weft_peft_read */
    weft_diag *diag;
} place;

static weft_err read_file(const place *p, const char *name, uint64_t most, char **out,
                          size_t *out_len)
{
    char path[4096];
    int fd;
    if ((size_t)snprintf(path, sizeof path, "%s/%s", p->folder, name) >= sizeof path)
        return weft_diag_error(p->diag, WEFT_ERR_INPUT, (weft_where){.file = p->folder},
                               "the path is too long");
    WEFT_TRY(p->root ? weft_file_open_beneath(p->root, path, p->diag, &fd)
                     : weft_file_open(path, p->diag, &fd));
    return weft_file_read_stable(fd, path, most, p->diag, out, out_len);
}

static weft_err read_config(const place *p, char **out, size_t *out_len)
{
    return read_file(p, "adapter_config.json", (uint64_t)CONFIG_KIB_MAX << 10, out, out_len);
}

/* Its factors are named after inputs of the one model that was exported for it. */
bool weft_peft_is_onnx(const char *path)
{
    static const char ending[] = ".onnx_adapter";
    size_t len = strlen(path), n = sizeof ending - 1;
    return len > n && strcmp(path + len - n, ending) == 0;
}

/* A pickle runs code when it is read. */
static void note_pickle(const place *p)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/adapter_model.bin", p->folder);
    if (!p->root && weft_file_is_regular(path))
        weft_diag_note(p->diag, (weft_where){.file = path},
                       "is a pickle, which is not read; save the adapter with "
                       "safe_serialization=True");
}

/* The configuration that was read still goes with the tensors that were read after it: both may
 * have been replaced in between. */
static weft_err check_config_again(const place *p, const char *config, size_t len)
{
    char *again = NULL;
    size_t n = 0;
    WEFT_TRY(read_config(p, &again, &n));
    bool same = n == len && memcmp(config, again, len) == 0;
    free(again);
    return same ? WEFT_ERR_OK
                : weft_diag_error(p->diag, WEFT_ERR_IO, (weft_where){.file = p->folder},
                                  "is being replaced while it is read");
}

weft_err weft_peft_read(const char *root, const char *folder, weft_arena *arena, weft_diag *diag,
                        weft_peft *out)
{
    const place p = {root, folder, diag};
    char *config = NULL, *tensors = NULL;
    size_t config_len = 0, len = 0;
    if (weft_peft_is_onnx(folder))
        return weft_diag_error(diag, WEFT_ERR_UNSUP, (weft_where){.file = folder},
                               "is an adapter of ONNX Runtime, which belongs to a model whose "
                               "inputs are the factors; name the PEFT folder that it was made of "
                               "(adapter_config.json, adapter_model.safetensors)");
    WEFT_TRY(read_config(&p, &config, &config_len));
    weft_err err =
        read_file(&p, "adapter_model.safetensors", (uint64_t)TENSORS_MIB_MAX << 20, &tensors, &len);
    if (err != WEFT_ERR_OK)
        note_pickle(&p);
    else
        err = check_config_again(&p, config, config_len);
    if (err == WEFT_ERR_OK)
        err = weft_peft_parse(config, config_len, (const uint8_t *)tensors, len, folder, arena,
                              diag, out);
    free(config);
    free(tensors);
    return err;
}

weft_hash128 weft_peft_identity(const weft_peft *peft)
{
    weft_hash128 h = {0};
    for (uint32_t i = 0; i < peft->n; i++) {
        const weft_peft_module *m = &peft->module[i];
        const int64_t size[] = {m->rank, m->k, m->n};
        const struct {
            const void *at;
            size_t len;
        } span[] = {{m->path, strlen(m->path) + 1},
                    {size, sizeof size},
                    {m->a, (size_t)(m->rank * m->k) * sizeof *m->a},
                    {m->b, (size_t)(m->rank * m->n) * sizeof *m->b}};
        for (size_t k = 0; k < sizeof span / sizeof *span; k++) {
            weft_hash128 part = weft_hash_content(span[k].at, span[k].len, 0);
            h = (weft_hash128){weft_hash_mix(h.lo, part.lo), weft_hash_mix(h.hi, part.hi)};
        }
    }
    return h;
}
