/* Answers of the Open Inference Protocol: infer responses, metadata, configuration, statistics.
 * Infer responses are written directly, because jansson would allocate an object for each number;
 * all others use jansson. */
#include "runtime/server/access_int.h"
#include "runtime/server/classes.h"
#include "runtime/server/deployment_int.h"
#include "runtime/server/json_dump.h"
#include "runtime/server/oip_int.h"
#include "runtime/server/regions.h"
#include "runtime/server/settings.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes a JSON string. Names in error texts come from clients and may be truncated: bytes that are
 * not valid UTF-8 become U+FFFD. */
static void put_json_string(weft_buf *out, const char *s)
{
    weft_buf_putc(out, '"');
    while (*s) {
        size_t plain = 0; /* characters that stand for themselves */
        while ((unsigned char)s[plain] >= 0x20 && (unsigned char)s[plain] < 0x80 &&
               s[plain] != '"' && s[plain] != '\\')
            plain++;
        weft_buf_add(out, s, plain);
        s += plain;
        if (!*s)
            break;
        size_t n = weft_utf8_size(s, 4);
        if (n == 0)
            weft_buf_puts(out, "\\ufffd");
        else if (*s == '"' || *s == '\\')
            weft_buf_printf(out, "\\%c", *s);
        else if (n == 1 && *s < 0x20)
            weft_buf_printf(out, "\\u%04x", (unsigned)*s);
        else
            weft_buf_add(out, s, n);
        s += n ? n : 1;
    }
    weft_buf_putc(out, '"');
}

/* -- Infer responses ------------------------------------------------------------------------ */

static void put_number(weft_buf *out, const weft_tensor *t, int64_t i)
{
    switch (t->dtype) {
    case WEFT_DTYPE_F32:
        weft_buf_put_f32(out, ((const float *)t->data)[i]);
        return;
    case WEFT_DTYPE_F64:
        weft_buf_put_f64(out, ((const double *)t->data)[i]);
        return;
    case WEFT_DTYPE_BOOL:
        weft_buf_puts(out, ((const uint8_t *)t->data)[i] ? "true" : "false");
        return;
    case WEFT_DTYPE_U64:
        weft_buf_put_u64(out, ((const uint64_t *)t->data)[i]);
        return;
    default:
        weft_buf_put_i64(out, weft_tensor_get_i64(t, i));
    }
}

/* Whether JSON can represent the values: it has no NaN and no infinity, and the protocol sends FP16
 * and smaller floats only as binary data. */
static bool fits_json(const weft_tensor *t)
{
    if (weft_dtype_is_float(t->dtype) && weft_dtype_bits(t->dtype) < 32)
        return false;
    int64_t n = weft_dtype_is_float(t->dtype) ? weft_tensor_numel(t) : 0;
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(weft_tensor_get_f64(t, i)))
            return false;
    return true;
}

static void begin_output(weft_buf *out, const char *name, const char *type, const int64_t *dim,
                         int32_t rank)
{
    weft_buf_puts(out, "{\"name\":");
    put_json_string(out, name);
    weft_buf_puts(out, ",\"datatype\":\"");
    weft_buf_puts(out, type);
    weft_buf_puts(out, "\",\"shape\":[");
    for (int32_t i = 0; i < rank; i++) {
        if (i)
            weft_buf_putc(out, ',');
        weft_buf_put_i64(out, dim[i]);
    }
    weft_buf_putc(out, ']');
}

static void put_binary_size(weft_buf *out, size_t bytes)
{
    weft_buf_puts(out, ",\"parameters\":{\"binary_data_size\":");
    weft_buf_put_u64(out, bytes);
    weft_buf_puts(out, "}}");
}

static void put_classes(weft_buf *out, const char *name, const weft_classes *c, bool binary)
{
    const char *s = c->text;
    begin_output(out, name, "BYTES", c->dim, c->rank);
    if (binary) {
        put_binary_size(out, weft_classes__bytes(c));
        return;
    }
    weft_buf_puts(out, ",\"data\":[");
    for (size_t i = 0; i < c->n; i++) {
        if (i)
            weft_buf_putc(out, ',');
        put_json_string(out, s);
        s += strlen(s) + 1;
    }
    weft_buf_puts(out, "]}");
}

/* `shared`: where its values are, in shared memory; NULL: in the answer. */
static void put_output(weft_buf *out, const char *name, const weft_tensor *t, bool binary,
                       const weft_region_place *shared)
{
    begin_output(out, name, weft_dtype_oip_name(t->dtype), t->dim, t->rank);
    if (shared) {
        weft_buf_puts(out, ",\"parameters\":{\"shared_memory_region\":");
        put_json_string(out, shared->name);
        weft_buf_puts(out, ",\"shared_memory_byte_size\":");
        weft_buf_put_u64(out, weft_tensor_bytes(t));
        weft_buf_puts(out, ",\"shared_memory_offset\":");
        weft_buf_put_u64(out, shared->offset);
        weft_buf_puts(out, "}}");
        return;
    }
    if (binary) {
        put_binary_size(out, weft_tensor_bytes(t));
        return;
    }
    weft_buf_puts(out, ",\"data\":[");
    int64_t n = weft_tensor_numel(t);
    for (int64_t i = 0; i < n; i++) {
        if (i)
            weft_buf_putc(out, ',');
        put_number(out, t, i);
    }
    weft_buf_puts(out, "]}");
}

static void put_choice(weft_buf *out, const weft_app_choice *c)
{
    weft_choice_parameter p[WEFT_CHOICE_PARAMETERS];
    if (!c->name)
        return;
    weft_request__list_choice(c, p);
    for (int i = 0; i < WEFT_CHOICE_PARAMETERS; i++) {
        weft_buf_puts(out, i == 0 ? ",\"parameters\":{" : ",");
        put_json_string(out, p[i].key);
        weft_buf_putc(out, ':');
        if (p[i].text)
            put_json_string(out, p[i].text);
        else
            weft_buf_put_f64(out, p[i].number);
    }
    weft_buf_putc(out, '}');
}

/* The classes of those outputs of which they are asked; `list`: zeroed, one for each output. */
static weft_answer list_classes(const weft_oip_infer *infer, weft_classes *list, char *message)
{
    weft_answer answer = WEFT_ANSWER_OK;
    size_t room = WEFT_CLASSES_BYTES_MAX;
    for (uint32_t i = 0; i < infer->n_output && answer == WEFT_ANSWER_OK; i++) {
        const weft_oip_output *o = &infer->output[i];
        if (o->n_class)
            answer = weft_classes__list(infer->program, o->at, &infer->request->out[o->at],
                                        o->n_class, &room, &list[i], message);
    }
    return answer;
}

/* Writes the answer; `classes`: one for each output. */
static bool write_outputs(const weft_oip_infer *infer, const weft_classes *classes, weft_buf *out,
                          size_t *out_json_len, weft_answer *out_answer, char *message)
{
    const weft_bundle_program *p = infer->program;
    weft_region_place shared;
    weft_buf_puts(out, "{\"model_name\":");
    put_json_string(out, weft_bundle_served(p));
    weft_buf_puts(out, ",\"model_version\":\"");
    weft_buf_puts(out, infer->version);
    weft_buf_putc(out, '"');
    if (infer->id) {
        weft_buf_puts(out, ",\"id\":");
        put_json_string(out, infer->id);
    }
    put_choice(out, &infer->request->chosen);
    weft_buf_puts(out, ",\"outputs\":[");
    for (uint32_t i = 0; i < infer->n_output; i++) {
        const weft_oip_output *o = &infer->output[i];
        const weft_tensor *t = &infer->request->out[o->at];
        bool is_shared = weft_regions__find_output(infer->request, o->at, &shared);
        if (!o->n_class && !o->binary && !is_shared && !fits_json(t)) {
            *out_answer = WEFT_ANSWER_INVALID;
            snprintf(message, WEFT_REQUEST_MESSAGE_MAX,
                     "output '%s' (%s) has values that JSON cannot represent: ask for binary data",
                     p->output[o->at].name, weft_dtype_oip_name(t->dtype));
            return false;
        }
        if (i)
            weft_buf_putc(out, ',');
        if (o->n_class)
            put_classes(out, p->output[o->at].name, &classes[i], o->binary);
        else
            put_output(out, p->output[o->at].name, t, o->binary, is_shared ? &shared : NULL);
    }
    weft_buf_puts(out, "]}");
    *out_json_len = out->len;
    for (uint32_t i = 0; i < infer->n_output; i++) {
        const weft_tensor *t = &infer->request->out[infer->output[i].at];
        if (infer->output[i].binary && infer->output[i].n_class)
            weft_classes__pack(&classes[i], out);
        else if (infer->output[i].binary &&
                 !weft_regions__find_output(infer->request, infer->output[i].at, &shared))
            weft_buf_add(out, t->data, weft_tensor_bytes(t));
    }
    if (!out->failed)
        return true;
    *out_answer = WEFT_ANSWER_INTERNAL;
    snprintf(message, WEFT_REQUEST_MESSAGE_MAX, "out of memory");
    return false;
}

bool weft_oip__write_infer(const weft_oip_infer *infer, weft_buf *out, size_t *out_json_len,
                           weft_answer *out_answer, char *message)
{
    weft_classes *classes = calloc(infer->n_output + 1, sizeof *classes);
    *out_answer = WEFT_ANSWER_INTERNAL;
    if (!classes) {
        snprintf(message, WEFT_REQUEST_MESSAGE_MAX, "out of memory");
        return false;
    }
    *out_answer = weft_regions__store(infer->request, message);
    if (*out_answer == WEFT_ANSWER_OK)
        *out_answer = list_classes(infer, classes, message);
    bool ok = *out_answer == WEFT_ANSWER_OK &&
              write_outputs(infer, classes, out, out_json_len, out_answer, message);
    for (uint32_t i = 0; i < infer->n_output; i++)
        weft_classes__finish(&classes[i]);
    free(classes);
    return ok;
}

/* -- Metadata ------------------------------------------------------------------------------- */

static const char *const extensions[] = {"binary_tensor_data",
                                         "classification",
                                         "model_configuration",
                                         "model_repository",
                                         "schedule_policy",
                                         "statistics",
                                         "trace",
                                         "logging",
                                         "system_shared_memory"}; /* the last one */

const char *const *weft_oip__extensions(const weft_regions *regions, size_t *out_n)
{
    *out_n = sizeof extensions / sizeof extensions[0] - !regions;
    return extensions;
}

static char *dump(json_t *root)
{
    return weft_json__dump(root, JSON_COMPACT);
}

static json_t *pack_setting(const weft_setting *s)
{
    if (s->kind == WEFT_SETTING_FLAG)
        return json_boolean(s->flag);
    if (s->kind == WEFT_SETTING_COUNT)
        return json_integer(s->count);
    return s->many ? json_pack("[s]", s->text) : json_string(s->text);
}

char *weft_oip__settings(const weft_setting *list, size_t n)
{
    json_t *root = json_object();
    for (size_t i = 0; i < n; i++)
        json_object_set_new(root, list[i].name, pack_setting(&list[i]));
    return dump(root);
}

char *weft_oip__error(const char *text)
{
    weft_buf out = {0};
    weft_buf_puts(&out, "{\"error\":");
    put_json_string(&out, text);
    weft_buf_putc(&out, '}');
    if (!out.failed)
        return out.at;
    weft_buf_finish(&out);
    return NULL;
}

char *weft_oip__server_metadata(const weft_front *front)
{
    json_t *list = json_array();
    size_t n;
    (void)weft_oip__extensions(front->regions, &n);
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_string(extensions[i]));
    return dump(json_pack("{s:s, s:s, s:o}", "name",
                          front->server_name ? front->server_name : "weft", "version", WEFT_VERSION,
                          "extensions", list));
}

int64_t weft_oip__shown_dim(weft_dim dim)
{
    return weft_dim_is_const(dim) ? dim : -1;
}

/* `skip`: number of leading dims to omit (Triton's configuration omits the batch dim). `config`:
 * uses the names of Triton's configuration instead of those of metadata. */
static json_t *list_ports(const weft_bundle_program *p, const weft_bundle_port *port, uint32_t n,
                          bool config, int skip)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++) {
        const weft_ttype *t = &p->value[port[i].value - 1].type;
        json_t *shape = json_array();
        for (int k = skip; k < t->rank; k++)
            json_array_append_new(shape, json_integer(weft_oip__shown_dim(t->dim[k])));
        const char *type = weft_dtype_oip_name((weft_dtype)t->dtype);
        char name[32];
        snprintf(name, sizeof name, "%s%s", config ? "TYPE_" : "", type);
        json_t *one =
            json_pack("{s:s, s:s, s:o}", "name", port[i].name, config ? "data_type" : "datatype",
                      name, config ? "dims" : "shape", shape);
        if (config && port[i].format && *port[i].format) {
            snprintf(name, sizeof name, "FORMAT_%s", port[i].format);
            json_object_set_new(one, "format", json_string(name));
        }
        json_array_append_new(list, one);
    }
    return list;
}

char *weft_oip__model_metadata(const weft_router *router, uint32_t model)
{
    const weft_bundle_program *p = weft_router__model(router, model).program;
    json_t *versions = json_array();
    for (uint32_t i = UINT32_MAX; (i = weft_router__next_version(router, model, i)) != UINT32_MAX;)
        json_array_append_new(versions, json_string(weft_router__model(router, i).version));
    return dump(json_pack("{s:s, s:o, s:s, s:o, s:o}", "name", weft_bundle_served(p), "versions",
                          versions, "platform", WEFT_SERVE_PLATFORM, "inputs",
                          list_ports(p, p->input, p->n_input, false, 0), "outputs",
                          list_ports(p, p->output, p->n_output, false, 0)));
}

char *weft_oip__server_ready(const weft_router *router, bool ready, bool detailed)
{
    json_t *root = json_pack("{s:b}", "ready", ready), *slices = json_array();
    for (uint32_t i = 0; i < weft_router__worker_count(router); i++) {
        weft_worker_status s = weft_router__worker_status(router, i);
        if (s.name && detailed)
            json_array_append_new(slices,
                                  json_pack("{s:s, s:b, s:b, s:s}", "slice", s.name, "ready",
                                            s.ready, "lost", s.lost, "why", s.why));
    }
    if (json_array_size(slices))
        json_object_set(root, "slices", slices);
    json_decref(slices);
    return dump(root);
}

char *weft_oip__model_ready(const weft_router *router, uint32_t model, bool ready)
{
    char why[512];
    const weft_bundle_program *p = weft_router__model(router, model).program;
    json_t *root = json_pack("{s:s, s:b}", "name", weft_bundle_served(p), "ready", (int)ready);
    weft_router__explain(router, model, why, sizeof why);
    if (why[0])
        json_object_set_new(root, "why", json_string(why));
    return dump(root);
}

char *weft_oip__model_config(const weft_bundle_program *p)
{
    int64_t max_batch = weft_batch__largest(p);
    int skip = max_batch > 0;
    return dump(json_pack("{s:s, s:s, s:s, s:I, s:o, s:o}", "name", weft_bundle_served(p),
                          "platform", WEFT_SERVE_PLATFORM, "backend", "weft", "max_batch_size",
                          (json_int_t)max_batch, "input",
                          list_ports(p, p->input, p->n_input, true, skip), "output",
                          list_ports(p, p->output, p->n_output, true, skip)));
}

/* -- Statistics ----------------------------------------------------------------------------- */

static json_t *pack_duration(weft_duration d)
{
    return json_pack("{s:I, s:I}", "count", (json_int_t)d.count, "ns", (json_int_t)d.ns);
}

static json_t *pack_batches(const weft_model_stats *s)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < s->n_batch; i++) {
        const weft_batch_stat *b = &s->batch[i];
        json_array_append_new(list,
                              json_pack("{s:I, s:o, s:o, s:o}", "batch_size", (json_int_t)b->batch,
                                        "compute_input", pack_duration(b->compute_input),
                                        "compute_infer", pack_duration(b->compute_infer),
                                        "compute_output", pack_duration(b->compute_output)));
    }
    return list;
}

static json_t *pack_memory(const weft_router *router, uint32_t model)
{
    uint64_t bytes = weft_router__memory_bytes(router, model);
    return bytes ? json_pack("[{s:s, s:i, s:I}]", "type", weft_router__memory_kind(router, model),
                             "id", 0, "byte_size", (json_int_t)bytes)
                 : json_array();
}

static json_t *pack_stats(const weft_router *router, uint32_t model)
{
    const weft_model_stats *s = weft_router__stats(router, model);
    const weft_model_ref ref = weft_router__model(router, model);
    const weft_duration none = {0};
    json_t *inference =
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "success", pack_duration(s->success),
                  "fail", pack_duration(s->fail), "queue", pack_duration(s->queue), "compute_input",
                  pack_duration(s->compute_input), "compute_infer", pack_duration(s->compute_infer),
                  "compute_output", pack_duration(s->compute_output), "cache_hit",
                  pack_duration(none), "cache_miss", pack_duration(none));
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:o, s:{}}", "name",
                     weft_bundle_served(ref.program), "version", ref.version, "last_inference",
                     (json_int_t)s->last_inference_ms, "inference_count",
                     (json_int_t)s->inference_count, "execution_count",
                     (json_int_t)s->execution_count, "inference_stats", inference, "batch_stats",
                     pack_batches(s), "memory_usage", pack_memory(router, model), "response_stats");
}

bool weft_oip__is_listed(const weft_router *router, const weft_oip_filter *f, uint32_t model)
{
    if (!weft_router__is_shown(router, model))
        return false;
    const char *name = weft_bundle_served(weft_router__model(router, model).program);
    bool asked =
        f->model == UINT32_MAX || f->model == model ||
        (f->any_version &&
         strcmp(weft_bundle_served(weft_router__model(router, f->model).program), name) == 0);
    return asked && (!f->patterns || weft_key__names_model(f->patterns, name));
}

bool weft_oip__write_stats(const weft_router *router, const weft_oip_filter *filter, uint32_t *at,
                           weft_buf *out)
{
    enum { AT_ONCE = 16 };
    if (out->len == 0)
        weft_buf_puts(out, "{\"model_stats\":[");
    for (int n = 0; n < AT_ONCE && !out->failed && *at < weft_router__model_count(router); ++*at) {
        if (!weft_oip__is_listed(router, filter, *at))
            continue;
        char *text = dump(pack_stats(router, *at));
        if (out->at[out->len - 1] == '}')
            weft_buf_putc(out, ',');
        weft_buf_puts(out, text ? text : "");
        out->failed = out->failed || !text;
        free(text);
        n++;
    }
    if (*at < weft_router__model_count(router) && !out->failed)
        return true;
    weft_buf_puts(out, "]}");
    return false;
}

/* At the next file or folder. */
static weft_index_step look_at_file(const weft_router *router, const weft_oip_filter *filter,
                                    const char *folder, weft_list_place *at, weft_index_entry *out)
{
    if (!at->files && !(at->files = weft_repository__open_scan(folder)))
        return WEFT_INDEX_NOMEM;
    *out = (weft_index_entry){.state = "UNAVAILABLE", .reason = "not loaded"};
    if (!weft_repository__scan(at->files, &out->model, &out->version))
        return WEFT_INDEX_END;
    bool listed = out->model &&
                  (!filter->patterns || weft_key__names_model(filter->patterns, out->model)) &&
                  weft_router__find(router, out->model, strlen(out->model), out->version,
                                    strlen(out->version)) == UINT32_MAX;
    return listed ? WEFT_INDEX_ENTRY : WEFT_INDEX_NOTHING;
}

weft_index_step weft_oip__next_entry(const weft_router *router, const weft_oip_filter *filter,
                                     const char *folder, weft_list_place *at, weft_index_entry *out)
{
    if (at->model >= weft_router__model_count(router))
        return folder && !filter->only_ready ? look_at_file(router, filter, folder, at, out)
                                             : WEFT_INDEX_END;
    uint32_t model = at->model++;
    bool ready = weft_router__is_ready(router, model);
    if (!weft_oip__is_listed(router, filter, model) || (filter->only_ready && !ready))
        return WEFT_INDEX_NOTHING;
    const weft_model_ref ref = weft_router__model(router, model);
    *out = (weft_index_entry){.model = weft_bundle_served(ref.program),
                              .version = ref.version,
                              .state = ready ? "READY" : "UNAVAILABLE",
                              .reason = ready ? "" : "its worker is starting"};
    return WEFT_INDEX_ENTRY;
}

static void put_member(weft_buf *out, const char *key, const char *text)
{
    weft_buf_puts(out, key);
    put_json_string(out, text);
}

bool weft_oip__write_index(const weft_router *router, const weft_oip_filter *filter,
                           const char *folder, weft_list_place *at, weft_buf *out)
{
    enum { AT_ONCE = 32 };
    weft_index_entry entry;
    weft_index_step step = WEFT_INDEX_NOTHING;
    if (out->len == 0)
        weft_buf_putc(out, '[');
    for (int n = 0; n < AT_ONCE && step < WEFT_INDEX_END && !out->failed; n++) {
        step = weft_oip__next_entry(router, filter, folder, at, &entry);
        if (step != WEFT_INDEX_ENTRY)
            continue;
        put_member(out, out->len > 1 ? ",{\"name\":" : "{\"name\":", entry.model);
        put_member(out, ",\"version\":", entry.version);
        put_member(out, ",\"state\":", entry.state);
        put_member(out, ",\"reason\":", entry.reason);
        weft_buf_putc(out, '}');
    }
    out->failed = out->failed || step == WEFT_INDEX_NOMEM;
    if (step < WEFT_INDEX_END && !out->failed)
        return true;
    weft_buf_putc(out, ']');
    return false;
}
