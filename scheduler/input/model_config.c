/* Model configurations of Triton (ModelConfig of its model_config.proto), as far as they have a
 * counterpart here. A table a message says what becomes of each field: it is read, it asks for
 * nothing that would be done otherwise, or it is named in a warning. */
#include "scheduler/input/model_config.h"

#include "base/num.h"
#include "scheduler/input/pbtxt.h"

#include <string.h>

enum { PORTS_MAX = 1024, DIMS_MAX = 8, SIZES_MAX = 16, PREFERRED_MAX = 8 };

typedef WEFT_VEC(int64_t) number_list;
typedef WEFT_VEC(weft_set_port) port_list;
typedef WEFT_VEC(weft_model_step) step_list;
typedef WEFT_VEC(weft_model_tensor) tensor_list;

/* What is read, beside the configuration itself. */
typedef struct reader {
    const char *file;
    weft_arena *arena;
    weft_diag *diag;
    weft_model_config *config;
    port_list input, output;
    number_list version, preferred;
    step_list step;
} reader;

#define WHERE(r, field)     ((weft_where){.file = (r)->file, .line = (field)->line})
#define FAIL(r, field, ...) weft_diag_error((r)->diag, WEFT_ERR_INPUT, WHERE(r, field), __VA_ARGS__)

/* -- Scalars ---------------------------------------------------------------------------------- */

static weft_err read_text(const reader *r, const weft_pbtxt *f, const char **out)
{
    if (!f->is_quoted)
        return FAIL(r, f, "%s: a string is expected", f->name);
    *out = f->text;
    return WEFT_ERR_OK;
}

static weft_err read_number(const reader *r, const weft_pbtxt *f, int64_t lo, int64_t hi,
                            int64_t *out)
{
    int64_t x = 0;
    if (f->is_message || f->is_quoted || !weft_parse_i64(f->text, &x))
        return FAIL(r, f, "%s: a whole number is expected", f->name);
    if (x < lo || x > hi)
        return FAIL(r, f, "%s: %lld is not from %lld to %lld", f->name, (long long)x, (long long)lo,
                    (long long)hi);
    *out = x;
    return WEFT_ERR_OK;
}

static weft_err add_number(const reader *r, const weft_pbtxt *f, int64_t lo, int64_t hi,
                           size_t most, number_list *list)
{
    int64_t x;
    WEFT_TRY(read_number(r, f, lo, hi, &x));
    if (list->len >= most)
        return FAIL(r, f, "%s: more than %zu numbers", f->name, most);
    WEFT_VEC_PUSH(r->arena, list, x);
    return WEFT_ERR_OK;
}

static bool is_word(const weft_pbtxt *f, const char *word)
{
    return !f->is_message && !f->is_quoted && strcmp(f->text, word) == 0;
}

/* -- Messages --------------------------------------------------------------------------------- */

/* A field of a message. `read` NULL: the field asks for nothing that would be done otherwise. */
typedef struct key {
    const char *name;
    weft_err (*read)(reader *r, const weft_pbtxt *f, void *out);
    bool may_repeat;
} key;

static const key *find_key(const key *keys, const char *name)
{
    while (keys->name && strcmp(keys->name, name) != 0)
        keys++;
    return keys->name ? keys : NULL;
}

/* Reads the fields of a message by a table; one that it lacks is named in a warning. */
static weft_err read_fields(reader *r, const weft_pbtxt *message, const key *keys, void *out)
{
    if (!message->is_message)
        return FAIL(r, message, "%s: a message in braces is expected", message->name);
    for (size_t i = 0; i < message->n_field; i++) {
        const weft_pbtxt *f = &message->field[i];
        const key *k = find_key(keys, f->name);
        for (size_t j = 0; j < i && (!k || !k->may_repeat); j++)
            if (strcmp(message->field[j].name, f->name) == 0) {
                if (k)
                    return FAIL(r, f, "%s is given twice", f->name);
                f = NULL; /* warned of already */
                break;
            }
        if (!k && f)
            weft_diag_warn(r->diag, WHERE(r, f), "%s%s%s has no counterpart in weft: left out",
                           message->name, *message->name ? "." : "", f->name);
        else if (k && k->read)
            WEFT_TRY(k->read(r, f, out));
    }
    return WEFT_ERR_OK;
}

/* Warns of a field unless it has the value that asks for nothing. */
static weft_err expect_false(reader *r, const weft_pbtxt *f, void *out)
{
    (void)out;
    if (!is_word(f, "false") && !is_word(f, "0"))
        weft_diag_warn(r->diag, WHERE(r, f), "%s has no counterpart in weft: left out", f->name);
    return WEFT_ERR_OK;
}

/* -- Inputs and outputs ----------------------------------------------------------------------- */

typedef struct raw_port {
    weft_set_port port;
    number_list dim, inner;
} raw_port;

static weft_err read_port_name(reader *r, const weft_pbtxt *f, void *out)
{
    return read_text(r, f, &((raw_port *)out)->port.name);
}

static weft_err read_port_type(reader *r, const weft_pbtxt *f, void *out)
{
    raw_port *p = out;
    bool is_type = !f->is_message && !f->is_quoted && strncmp(f->text, "TYPE_", 5) == 0;
    p->port.dtype = is_type ? weft_dtype_from_oip(f->text + 5) : WEFT_DTYPE_NONE;
    if (p->port.dtype == WEFT_DTYPE_NONE)
        return FAIL(r, f, "data_type: '%.32s' is not supported", f->is_message ? "{" : f->text);
    return WEFT_ERR_OK;
}

static weft_err read_port_dim(reader *r, const weft_pbtxt *f, void *out)
{
    return add_number(r, f, -1, INT32_MAX, DIMS_MAX - 1, &((raw_port *)out)->dim);
}

static weft_err read_inner_dim(reader *r, const weft_pbtxt *f, void *out)
{
    return add_number(r, f, -1, INT32_MAX, DIMS_MAX - 1, &((raw_port *)out)->inner);
}

static weft_err read_format(reader *r, const weft_pbtxt *f, void *out)
{
    (void)r;
    if (is_word(f, "FORMAT_NCHW") || is_word(f, "FORMAT_NHWC"))
        ((raw_port *)out)->port.format = f->text + strlen("FORMAT_");
    return WEFT_ERR_OK;
}

static weft_err read_label_file(reader *r, const weft_pbtxt *f, void *out)
{
    return read_text(r, f, &((raw_port *)out)->port.label_file);
}

static weft_err read_reshape(reader *r, const weft_pbtxt *f, void *out)
{
    static const key keys[] = {{"shape", read_inner_dim, true}, {0}};
    raw_port *p = out;
    WEFT_VEC_PUSH(r->arena, &p->inner, 0); /* there is one, even of rank 0 */
    p->inner.len = 0;
    return read_fields(r, f, keys, out);
}

static const key port_keys[] = {{"name", read_port_name, false},
                                {"data_type", read_port_type, false},
                                {"dims", read_port_dim, true},
                                {"reshape", read_reshape, false},
                                {"format", read_format, false},
                                {"label_filename", read_label_file, false},
                                {"optional", expect_false, false},
                                {"is_shape_tensor", expect_false, false},
                                {"allow_ragged_batch", expect_false, false},
                                {"is_non_linear_format_io", expect_false, false},
                                {0}};

static weft_err read_port(reader *r, const weft_pbtxt *f, port_list *list)
{
    raw_port raw = {.port.line = f->line};
    WEFT_TRY(read_fields(r, f, port_keys, &raw));
    if (!raw.port.name || !*raw.port.name || raw.port.dtype == WEFT_DTYPE_NONE)
        return FAIL(r, f, "%s: name or data_type is missing", f->name);
    for (uint32_t i = 0; i < list->len; i++)
        if (strcmp(list->at[i].name, raw.port.name) == 0)
            return FAIL(r, f, "%s '%.64s' is given twice", f->name, raw.port.name);
    if (list->len == PORTS_MAX)
        return FAIL(r, f, "more than %d of %s", PORTS_MAX, f->name);
    raw.port.dim = raw.dim.at;
    raw.port.n_dim = raw.dim.len;
    raw.port.inner_dim = raw.inner.at;
    raw.port.n_inner_dim = raw.inner.len;
    WEFT_VEC_PUSH(r->arena, list, raw.port);
    return WEFT_ERR_OK;
}

static weft_err read_input(reader *r, const weft_pbtxt *f, void *out)
{
    (void)out;
    return read_port(r, f, &r->input);
}

static weft_err read_output(reader *r, const weft_pbtxt *f, void *out)
{
    (void)out;
    return read_port(r, f, &r->output);
}

/* -- Versions --------------------------------------------------------------------------------- */

static weft_err read_latest_number(reader *r, const weft_pbtxt *f, void *out)
{
    (void)out;
    return read_number(r, f, 1, INT32_MAX, &r->config->n_latest);
}

static weft_err read_latest(reader *r, const weft_pbtxt *f, void *out)
{
    static const key keys[] = {{"num_versions", read_latest_number, false}, {0}};
    r->config->policy = WEFT_VERSIONS_LATEST;
    return read_fields(r, f, keys, out);
}

static weft_err read_all(reader *r, const weft_pbtxt *f, void *out)
{
    static const key keys[] = {{0}};
    r->config->policy = WEFT_VERSIONS_ALL;
    return read_fields(r, f, keys, out);
}

static weft_err read_version(reader *r, const weft_pbtxt *f, void *out)
{
    (void)out;
    return add_number(r, f, 1, INT64_MAX, PORTS_MAX, &r->version);
}

static weft_err read_specific(reader *r, const weft_pbtxt *f, void *out)
{
    static const key keys[] = {{"versions", read_version, true}, {0}};
    r->config->policy = WEFT_VERSIONS_SPECIFIC;
    return read_fields(r, f, keys, out);
}

static weft_err read_policy(reader *r, const weft_pbtxt *f, void *out)
{
    static const key keys[] = {{"latest", read_latest, false},
                               {"all", read_all, false},
                               {"specific", read_specific, false},
                               {0}};
    if (f->is_message && f->n_field > 1)
        return FAIL(r, f, "version_policy: one of latest, all and specific is expected");
    return read_fields(r, f, keys, out);
}

/* -- Scheduling ------------------------------------------------------------------------------- */

static weft_err read_preferred(reader *r, const weft_pbtxt *f, void *out)
{
    (void)out;
    return add_number(r, f, 1, INT32_MAX, PREFERRED_MAX, &r->preferred);
}

static weft_err warn_delay(reader *r, const weft_pbtxt *f, void *out)
{
    int64_t us;
    (void)out;
    WEFT_TRY(read_number(r, f, 0, INT64_MAX, &us));
    if (us)
        weft_diag_warn(r->diag, WHERE(r, f),
                       "%s is an option of the server, for all models: --max-queue-delay %lldus",
                       f->name, (long long)us);
    return WEFT_ERR_OK;
}

static weft_err read_batching(reader *r, const weft_pbtxt *f, void *out)
{
    static const key keys[] = {{"preferred_batch_size", read_preferred, true},
                               {"max_queue_delay_microseconds", warn_delay, false},
                               {"preserve_ordering", expect_false, false},
                               {0}};
    return read_fields(r, f, keys, out);
}

static weft_err read_map_port(reader *r, const weft_pbtxt *f, void *out)
{
    return read_text(r, f, &((weft_model_tensor *)out)->port);
}

static weft_err read_map_tensor(reader *r, const weft_pbtxt *f, void *out)
{
    return read_text(r, f, &((weft_model_tensor *)out)->tensor);
}

static weft_err read_map(reader *r, const weft_pbtxt *f, tensor_list *list)
{
    static const key keys[] = {
        {"key", read_map_port, false}, {"value", read_map_tensor, false}, {0}};
    weft_model_tensor t = {0};
    WEFT_TRY(read_fields(r, f, keys, &t));
    if (!t.port || !t.tensor || !*t.port || !*t.tensor)
        return FAIL(r, f, "%s: key or value is missing", f->name);
    for (uint32_t i = 0; i < list->len; i++)
        if (strcmp(list->at[i].port, t.port) == 0)
            return FAIL(r, f, "%s: '%.64s' is given twice", f->name, t.port);
    if (list->len == PORTS_MAX)
        return FAIL(r, f, "more than %d of %s", PORTS_MAX, f->name);
    WEFT_VEC_PUSH(r->arena, list, t);
    return WEFT_ERR_OK;
}

typedef struct raw_step {
    weft_model_step step;
    tensor_list input, output;
} raw_step;

static weft_err read_step_model(reader *r, const weft_pbtxt *f, void *out)
{
    return read_text(r, f, &((raw_step *)out)->step.model);
}

static weft_err read_step_version(reader *r, const weft_pbtxt *f, void *out)
{
    return read_number(r, f, -1, INT64_MAX, &((raw_step *)out)->step.version);
}

static weft_err read_step_input(reader *r, const weft_pbtxt *f, void *out)
{
    return read_map(r, f, &((raw_step *)out)->input);
}

static weft_err read_step_output(reader *r, const weft_pbtxt *f, void *out)
{
    return read_map(r, f, &((raw_step *)out)->output);
}

static weft_err read_step(reader *r, const weft_pbtxt *f, void *out)
{
    static const key keys[] = {{"model_name", read_step_model, false},
                               {"model_version", read_step_version, false},
                               {"input_map", read_step_input, true},
                               {"output_map", read_step_output, true},
                               {0}};
    raw_step raw = {.step = {.version = -1, .line = f->line}};
    (void)out;
    WEFT_TRY(read_fields(r, f, keys, &raw));
    if (!raw.step.model || raw.input.len == 0 || raw.output.len == 0)
        return FAIL(r, f, "step: model_name, input_map or output_map is missing");
    if (r->step.len == PORTS_MAX)
        return FAIL(r, f, "more than %d steps", PORTS_MAX);
    raw.step.input = raw.input.at;
    raw.step.n_input = raw.input.len;
    raw.step.output = raw.output.at;
    raw.step.n_output = raw.output.len;
    WEFT_VEC_PUSH(r->arena, &r->step, raw.step);
    return WEFT_ERR_OK;
}

static weft_err read_ensemble(reader *r, const weft_pbtxt *f, void *out)
{
    static const key keys[] = {{"step", read_step, true}, {0}};
    r->config->is_ensemble = true;
    return read_fields(r, f, keys, out);
}

/* -- Instances -------------------------------------------------------------------------------- */

static weft_err warn_instances(reader *r, const weft_pbtxt *f, void *out)
{
    int64_t n = 1;
    (void)out;
    WEFT_TRY(read_number(r, f, 1, INT32_MAX, &n));
    if (n > 1)
        weft_diag_warn(r->diag, WHERE(r, f),
                       "instance_group.count: a model has one instance on each slice of the "
                       "server (--slices, or a plan)");
    return WEFT_ERR_OK;
}

static weft_err read_instances(reader *r, const weft_pbtxt *f, void *out)
{
    static const key keys[] = {
        {"count", warn_instances, false}, {"kind", NULL, false}, {"name", NULL, false}, {0}};
    return read_fields(r, f, keys, out);
}

/* -- The configuration ------------------------------------------------------------------------ */

static weft_err read_name(reader *r, const weft_pbtxt *f, void *out)
{
    (void)out;
    return read_text(r, f, &r->config->name);
}

static weft_err read_platform(reader *r, const weft_pbtxt *f, void *out)
{
    (void)out;
    return read_text(r, f, &r->config->platform);
}

static weft_err read_backend(reader *r, const weft_pbtxt *f, void *out)
{
    (void)out;
    return read_text(r, f, &r->config->backend);
}

static weft_err read_model_file(reader *r, const weft_pbtxt *f, void *out)
{
    (void)out;
    WEFT_TRY(read_text(r, f, &r->config->model_file));
    if (!*r->config->model_file || strchr(r->config->model_file, '/') ||
        r->config->model_file[0] == '.')
        return FAIL(r, f, "default_model_filename: '%.64s' is not the name of a file",
                    r->config->model_file);
    return WEFT_ERR_OK;
}

static weft_err read_max_batch(reader *r, const weft_pbtxt *f, void *out)
{
    (void)out;
    return read_number(r, f, 0, INT32_MAX, &r->config->ports.max_batch);
}

static const key config_keys[] = {{"name", read_name, false},
                                  {"platform", read_platform, false},
                                  {"backend", read_backend, false},
                                  {"runtime", NULL, false},
                                  {"default_model_filename", read_model_file, false},
                                  {"max_batch_size", read_max_batch, false},
                                  {"input", read_input, true},
                                  {"output", read_output, true},
                                  {"version_policy", read_policy, false},
                                  {"dynamic_batching", read_batching, false},
                                  {"instance_group", read_instances, true},
                                  {"ensemble_scheduling", read_ensemble, false},
                                  /* Every size that is planned is prepared before a model is
                                   * ready. */
                                  {"model_warmup", NULL, true},
                                  {0}};

/* The dims with that of the batch in front. */
static const int64_t *with_batch(const reader *r, const int64_t *dim, size_t *n)
{
    int64_t *out = weft_arena_array(r->arena, *n + 1, sizeof *out);
    out[0] = -1;
    if (*n)
        memcpy(out + 1, dim, *n * sizeof *dim);
    ++*n;
    return out;
}

static void add_batch_dims(const reader *r, port_list *list)
{
    for (uint32_t i = 0; i < list->len && r->config->ports.max_batch > 0; i++) {
        weft_set_port *p = &list->at[i];
        p->dim = with_batch(r, p->dim, &p->n_dim);
        if (p->inner_dim)
            p->inner_dim = with_batch(r, p->inner_dim, &p->n_inner_dim);
    }
}

/* Powers of two below the largest batch, the sizes that are preferred, and the largest; no more
 * than are planned (passes/plan_memory.c). */
static void choose_batches(reader *r)
{
    weft_set_config *c = &r->config->ports;
    number_list list = {0};
    for (int64_t x = 1; x < c->max_batch && list.len + r->preferred.len + 1 < SIZES_MAX; x *= 2)
        WEFT_VEC_PUSH(r->arena, &list, x);
    for (uint32_t i = 0; i < r->preferred.len; i++)
        if (r->preferred.at[i] < c->max_batch)
            WEFT_VEC_PUSH(r->arena, &list, r->preferred.at[i]);
    if (c->max_batch > 0)
        WEFT_VEC_PUSH(r->arena, &list, c->max_batch);
    for (uint32_t i = 1; i < list.len; i++) /* insertion sort */
        for (uint32_t k = i; k > 0 && list.at[k - 1] > list.at[k]; k--) {
            int64_t x = list.at[k];
            list.at[k] = list.at[k - 1];
            list.at[k - 1] = x;
        }
    uint32_t n = 0;
    for (uint32_t i = 0; i < list.len; i++)
        if (n == 0 || list.at[n - 1] != list.at[i])
            list.at[n++] = list.at[i];
    c->batch = list.at;
    c->n_batch = n;
}

weft_err weft_set__parse_config(const char *text, size_t len, const char *file, weft_arena *arena,
                                weft_diag *diag, weft_model_config *out)
{
    weft_model_config config = {.ports.file = file};
    reader r = {.file = file, .arena = arena, .diag = diag, .config = &config};
    weft_pbtxt root;
    WEFT_TRY(weft_pbtxt__parse(text, len, file, arena, diag, &root));
    WEFT_TRY(read_fields(&r, &root, config_keys, NULL));
    add_batch_dims(&r, &r.input);
    add_batch_dims(&r, &r.output);
    choose_batches(&r);
    config.ports.input = r.input.at;
    config.ports.n_input = r.input.len;
    config.ports.output = r.output.at;
    config.ports.n_output = r.output.len;
    config.version = r.version.at;
    config.n_version = r.version.len;
    config.step = r.step.at;
    config.n_step = r.step.len;
    *out = config;
    return WEFT_ERR_OK;
}
