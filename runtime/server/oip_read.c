/* Infer requests: JSON with the binary tensor extension, straight into tensors while it is parsed.
 * The body is untrusted: sizes are checked before memory is allocated, fields of a wrong type are
 * refused, and error texts name inputs, never addresses or files. */
#include "runtime/server/oip_read_int.h"

#include "runtime/server/classes.h"

#include <stdlib.h>
#include <string.h>

/* -- Parameters ----------------------------------------------------------------------------- */

static bool read_count(weft_oip__reader *r, const char *key, uint64_t *out)
{
    weft_json_number number;
    if (!weft_oip__expect(r, '0', "parameter '%s' is not a number", key))
        return false;
    if (!weft_json__number(&r->json, &number))
        return weft_oip__refuse_json(r);
    return weft_json__as_u64(&number, out) ||
           weft_oip__refuse(r, WEFT_ANSWER_INVALID, "parameter '%s' is not a number from 0", key);
}

/* A number from 0. */
static bool read_amount(weft_oip__reader *r, const char *key, double *out)
{
    weft_json_number number;
    double value;
    if (!weft_oip__expect(r, '0', "parameter '%s' is not a number", key))
        return false;
    if (!weft_json__number(&r->json, &number))
        return weft_oip__refuse_json(r);
    if (!weft_json__as_f64(&number, &value) || !(value >= 0 && value < 1e15))
        return weft_oip__refuse(r, WEFT_ANSWER_INVALID,
                                "parameter '%s' is not a number from 0 to 1e15", key);
    *out = value;
    return true;
}

static bool read_flag(weft_oip__reader *r, const char *key, int *out)
{
    char kind = weft_json__peek(&r->json);
    if (kind != 't' && !weft_oip__expect(r, 'f', "parameter '%s' is neither true nor false", key))
        return false;
    *out = kind == 't';
    return weft_json__skip(&r->json) || weft_oip__refuse_json(r);
}

/* Those that are read; a bit of weft_oip__parameters.seen each. */
static const char *const parameter_names[] = {"binary_data_size",
                                              "timeout",
                                              "binary_data",
                                              "binary_data_output",
                                              "classification",
                                              "latency_ms",
                                              "min_accuracy",
                                              "max_cost",
                                              "best_effort",
                                              "shared_memory_region",
                                              "shared_memory_offset",
                                              "shared_memory_byte_size",
                                              "adapter"};

static bool read_region(weft_oip__reader *r, weft_oip__parameters *out)
{
    size_t len;
    out->shared = true;
    if (!weft_oip__expect(r, '"', "parameter 'shared_memory_region' is not a string"))
        return false;
    if (!weft_json__string(&r->json, out->region, sizeof out->region, &len))
        return weft_oip__refuse_json(r);
    return len < sizeof out->region ||
           weft_oip__refuse(r, WEFT_ANSWER_INVALID, "there is no region '%.64s...'", out->region);
}

static bool read_adapter(weft_oip__reader *r, weft_oip__parameters *out)
{
    size_t len = 0;
    if (!weft_oip__expect(r, '"', "parameter 'adapter' is no text"))
        return false;
    if (!weft_json__string(&r->json, out->adapter, sizeof out->adapter, &len))
        return weft_oip__refuse_json(r);
    return (len > 0 && len == strlen(out->adapter)) ||
           weft_oip__refuse(r, WEFT_ANSWER_INVALID, "parameter 'adapter' is no name");
}

static bool read_parameter(weft_oip__reader *r, const char *key, weft_oip__parameters *out)
{
    for (unsigned i = 0; i < sizeof parameter_names / sizeof parameter_names[0]; i++) {
        if (strcmp(key, parameter_names[i]) != 0)
            continue;
        if (out->seen & 1u << i)
            return weft_oip__refuse(r, WEFT_ANSWER_INVALID, "the JSON has '%s' twice", key);
        out->seen |= 1u << i;
    }
    if (strcmp(key, "binary_data_size") == 0) {
        out->has_size = true;
        return read_count(r, key, &out->size);
    }
    if (strcmp(key, "timeout") == 0)
        return read_count(r, key, &out->timeout_us);
    if (strcmp(key, "latency_ms") == 0)
        return read_amount(r, key, &out->need.latency_us);
    if (strcmp(key, "min_accuracy") == 0)
        return read_amount(r, key, &out->need.min_accuracy);
    if (strcmp(key, "max_cost") == 0)
        return read_amount(r, key, &out->need.max_cost);
    if (strcmp(key, "best_effort") == 0) {
        int flag = 0;
        bool ok = read_flag(r, key, &flag);
        out->need.best_effort = flag > 0;
        return ok;
    }
    if (strcmp(key, "adapter") == 0)
        return read_adapter(r, out);
    if (strcmp(key, "binary_data") == 0)
        return read_flag(r, key, &out->binary);
    if (strcmp(key, "binary_data_output") == 0)
        return read_flag(r, key, &out->binary_output);
    if (strcmp(key, "classification") == 0)
        return read_count(r, key, &out->n_class);
    if (strcmp(key, "shared_memory_region") == 0)
        return read_region(r, out);
    if (strcmp(key, "shared_memory_offset") == 0)
        return read_count(r, key, &out->region_offset);
    if (strcmp(key, "shared_memory_byte_size") == 0)
        return read_count(r, key, &out->region_bytes);
    return weft_json__skip(&r->json) || weft_oip__refuse_json(r);
}

static bool read_parameters(weft_oip__reader *r, weft_oip__parameters *out)
{
    char key[32];
    size_t len;
    bool first = true;
    *out = (weft_oip__parameters){.binary = -1, .binary_output = -1};
    if (!weft_json__enter(&r->json, '{'))
        return weft_oip__refuse_json(r);
    while (weft_json__next(&r->json, '}', &first)) {
        if (!weft_json__key(&r->json, key, sizeof key, &len))
            return weft_oip__refuse_json(r);
        if (!read_parameter(r, len < sizeof key ? key : "", out))
            return false;
    }
    return !r->json.error || weft_oip__refuse_json(r);
}

/* -- Inputs --------------------------------------------------------------------------------- */

enum { NAME_BYTES = 256 };

/* An element of `inputs`. */
typedef struct input {
    char name[NAME_BYTES], type[16];
    weft_tensor t;
    bool has_name, has_type, has_shape, has_parameters, is_placed, is_filled;
    uint32_t at;
    weft_oip__parameters parameters;
    const char *data; /* that came before name, type or shape; NULL: none */
} input;

static bool read_shape(weft_oip__reader *r, weft_tensor *t)
{
    bool first = true;
    t->rank = 0;
    if (!weft_oip__enter(r, '[', "a shape must be an array"))
        return false;
    while (weft_json__next(&r->json, ']', &first)) {
        weft_json_number number;
        if (t->rank == WEFT_RANK_MAX)
            return weft_oip__refuse(r, WEFT_ANSWER_INVALID, "a shape has more than %d numbers",
                                    WEFT_RANK_MAX);
        if (!weft_oip__expect(r, '0', "a dimension is not a number"))
            return false;
        if (!weft_json__number(&r->json, &number))
            return weft_oip__refuse_json(r);
        if (!weft_json__as_i64(&number, &t->dim[t->rank]) || t->dim[t->rank] < 0)
            return weft_oip__refuse(r, WEFT_ANSWER_INVALID,
                                    "a dimension is not a JSON number from 0 to 2^63 - 1");
        t->rank++;
    }
    if (r->json.error)
        return weft_oip__refuse_json(r);
    if (weft_numel(t->dim, t->rank) < 0)
        return weft_oip__refuse(r, WEFT_ANSWER_INVALID, "an input is too large");
    return true;
}

/* Once name, type and shape are known: finds the model's input. */
static bool place_input(weft_oip__reader *r, input *in)
{
    const weft_bundle_program *p = r->infer->program;
    in->at = weft_bundle_find_port(p->input, p->n_input, in->name);
    if (in->at == UINT32_MAX)
        return weft_oip__refuse(r, WEFT_ANSWER_INVALID, "the model has no input '%.64s'", in->name);
    if (r->infer->has_input[in->at])
        return weft_oip__refuse(r, WEFT_ANSWER_INVALID, "input '%s' is given twice", in->name);
    in->t.dtype = weft_dtype_from_oip(in->type);
    if (strcmp(in->type, "BYTES") == 0)
        return weft_oip__refuse(r, WEFT_ANSWER_UNSUPPORTED, "datatype BYTES is not supported");
    if (in->t.dtype == WEFT_DTYPE_NONE)
        return weft_oip__refuse(r, WEFT_ANSWER_INVALID, "input '%s': unknown datatype '%.16s'",
                                in->name, in->type);
    r->infer->has_input[in->at] = true;
    r->infer->request->in[in->at] = in->t;
    in->is_placed = true;
    return true;
}

/* Reads a string of a member that may occur once. */
static bool read_text(weft_oip__reader *r, const char *key, bool *seen, char *out, size_t size)
{
    size_t len;
    if (!weft_oip__expect(r, '"', "'%s' must be a string", key))
        return false;
    if (!weft_json__string(&r->json, out, size, &len))
        return weft_oip__refuse_json(r);
    if (*seen)
        return weft_oip__refuse(r, WEFT_ANSWER_INVALID, "the JSON has '%s' twice", key);
    *seen = true;
    return true;
}

/* Data is read at once when the tensor is known, as clients send it; else at the end. */
static bool read_data(weft_oip__reader *r, input *in)
{
    if (in->data || in->is_filled)
        return weft_oip__refuse(r, WEFT_ANSWER_INVALID, "the JSON has 'data' twice");
    if (in->has_name && in->has_type && in->has_shape && !in->has_parameters) {
        in->is_filled = true;
        return place_input(r, in) && weft_oip__read_json_data(r, in->at, in->name);
    }
    in->data = r->json.at;
    return weft_json__skip(&r->json) || weft_oip__refuse_json(r);
}

static bool read_input_member(weft_oip__reader *r, const char *key, input *in)
{
    bool seen;
    if (strcmp(key, "name") == 0)
        return read_text(r, key, &in->has_name, in->name, sizeof in->name);
    if (strcmp(key, "datatype") == 0)
        return read_text(r, key, &in->has_type, in->type, sizeof in->type);
    if (strcmp(key, "data") == 0)
        return read_data(r, in);
    if (strcmp(key, "shape") == 0) {
        seen = in->has_shape;
        in->has_shape = true;
        return seen ? weft_oip__refuse(r, WEFT_ANSWER_INVALID, "the JSON has 'shape' twice")
                    : read_shape(r, &in->t);
    }
    if (strcmp(key, "parameters") == 0) {
        seen = in->has_parameters;
        in->has_parameters = true;
        return seen ? weft_oip__refuse(r, WEFT_ANSWER_INVALID, "the JSON has 'parameters' twice")
                    : read_parameters(r, &in->parameters);
    }
    return weft_json__skip(&r->json) || weft_oip__refuse_json(r);
}

static weft_region_place place_of(const weft_oip__parameters *p)
{
    return (weft_region_place){p->region, p->region_offset, p->region_bytes};
}

/* Its data comes later (weft_regions__load). */
static bool share_input(weft_oip__reader *r, const input *in)
{
    weft_request *request = r->infer->request;
    weft_region_place at = place_of(&in->parameters);
    if (r->regions && (in->parameters.has_size || in->data || in->is_filled))
        return weft_oip__refuse(r, WEFT_ANSWER_INVALID,
                                "input '%s' has both data and shared memory", in->name);
    return weft_oip__accept(r, weft_regions__place_input(r->regions, r->infer->program, request,
                                                         in->at, &at, r->message));
}

static bool end_input(weft_oip__reader *r, input *in)
{
    if (!in->has_name || !in->has_type || !in->has_shape)
        return weft_oip__refuse(r, WEFT_ANSWER_INVALID,
                                "an input lacks its name, datatype or shape");
    if (in->parameters.has_size && (in->data || in->is_filled))
        return weft_oip__refuse(r, WEFT_ANSWER_INVALID,
                                "input '%s' has both data and binary_data_size", in->name);
    if (!in->is_placed && !place_input(r, in))
        return false;
    if (in->parameters.shared)
        return share_input(r, in);
    if (in->is_filled)
        return true;
    if (in->parameters.has_size)
        return weft_oip__read_binary_data(r, in->parameters.size, in->at, in->name);
    if (!in->data)
        return weft_oip__refuse(r, WEFT_ANSWER_INVALID, "input '%s' has no data", in->name);
    weft_json behind = r->json;
    r->json.at = in->data;
    bool ok = weft_oip__read_json_data(r, in->at, in->name);
    if (ok)
        r->json = behind;
    return ok;
}

static bool read_input(weft_oip__reader *r)
{
    input in = {.parameters = {.binary = -1, .binary_output = -1}};
    char key[16];
    size_t len;
    bool first = true;
    if (!weft_oip__enter(r, '{', "an element of inputs is no object with name, datatype and shape"))
        return false;
    while (weft_json__next(&r->json, '}', &first)) {
        if (!weft_json__key(&r->json, key, sizeof key, &len))
            return weft_oip__refuse_json(r);
        if (!read_input_member(r, len < sizeof key ? key : "", &in))
            return false;
    }
    return r->json.error ? weft_oip__refuse_json(r) : end_input(r, &in);
}

static bool read_inputs(weft_oip__reader *r)
{
    bool first = true;
    if (!weft_oip__enter(r, '[', "'inputs' must be an array"))
        return false;
    while (weft_json__next(&r->json, ']', &first))
        if (!read_input(r))
            return false;
    return !r->json.error || weft_oip__refuse_json(r);
}

static bool check_inputs(weft_oip__reader *r)
{
    const weft_bundle_program *p = r->infer->program;
    for (uint32_t k = 0; k < p->n_input; k++)
        if (!r->infer->has_input[k])
            return weft_oip__refuse(r, WEFT_ANSWER_INVALID, "input '%s' is missing",
                                    p->input[k].name);
    if (r->binary_at != r->len)
        return weft_oip__refuse(r, WEFT_ANSWER_INVALID, "%zu bytes follow the last input",
                                r->len - r->binary_at);
    return true;
}

/* -- Outputs -------------------------------------------------------------------------------- */

static bool add_output(weft_oip__reader *r, const char *name, const weft_oip__parameters *given)
{
    const weft_bundle_program *p = r->infer->program;
    uint32_t at = weft_bundle_find_port(p->output, p->n_output, name);
    if (at == UINT32_MAX)
        return weft_oip__refuse(r, WEFT_ANSWER_INVALID, "the model has no output '%.64s'", name);
    for (uint32_t i = 0; i < r->infer->n_output; i++)
        if (r->infer->output[i].at == at)
            return weft_oip__refuse(r, WEFT_ANSWER_INVALID, "outputs has '%s' twice", name);
    if (given->n_class && given->shared)
        return weft_oip__refuse(r, WEFT_ANSWER_UNSUPPORTED,
                                "output '%s': classes cannot be written to shared memory", name);
    if (given->n_class &&
        !weft_oip__accept(r, weft_classes__check(p, at, given->n_class, r->message)))
        return false;
    const weft_region_place where = place_of(given);
    if (given->shared &&
        !weft_oip__accept(r, weft_regions__place_output(r->regions, p, r->infer->request, at,
                                                        &where, r->message)))
        return false;
    int binary = given->binary >= 0 ? given->binary : r->root.binary_output;
    r->infer->output[r->infer->n_output++] =
        (weft_oip_output){.at = at, .n_class = (uint32_t)given->n_class, .binary = binary > 0};
    weft_request__ask(r->infer->request, at);
    return true;
}

static bool read_output(weft_oip__reader *r)
{
    weft_oip__parameters given = {.binary = -1};
    char key[16], name[NAME_BYTES] = "";
    size_t len;
    bool first = true, has_name = false, has_parameters = false;
    if (!weft_oip__enter(r, '{', "an element of outputs is no object with a name"))
        return false;
    while (weft_json__next(&r->json, '}', &first)) {
        if (!weft_json__key(&r->json, key, sizeof key, &len))
            return weft_oip__refuse_json(r);
        bool parameters = strcmp(key, "parameters") == 0;
        if (parameters && has_parameters)
            return weft_oip__refuse(r, WEFT_ANSWER_INVALID, "the JSON has 'parameters' twice");
        has_parameters = has_parameters || parameters;
        bool ok = strcmp(key, "name") == 0 ? read_text(r, key, &has_name, name, sizeof name)
                  : parameters             ? read_parameters(r, &given)
                                           : weft_json__skip(&r->json) || weft_oip__refuse_json(r);
        if (!ok)
            return false;
    }
    return r->json.error ? weft_oip__refuse_json(r) : add_output(r, name, &given);
}

static bool read_outputs(weft_oip__reader *r)
{
    bool first = true;
    if (r->outputs) {
        r->json.at = r->outputs;
        if (!weft_oip__enter(r, '[', "'outputs' must be an array"))
            return false;
        weft_request__ask_none(r->infer->request, r->infer->program->n_output);
        while (weft_json__next(&r->json, ']', &first))
            if (!read_output(r))
                return false;
        if (first)
            r->infer->request->skip = 0; /* an empty list: all */
    }
    for (uint32_t k = 0; k < r->infer->program->n_output && first; k++)
        r->infer->output[r->infer->n_output++] =
            (weft_oip_output){.at = k, .binary = r->root.binary_output > 0};
    return true;
}

/* -- The request ---------------------------------------------------------------------------- */

static weft_oip_infer *create_infer(const weft_model_ref *model)
{
    const weft_bundle_program *p = model->program;
    weft_oip_infer *infer = calloc(1, sizeof *infer);
    if (!infer)
        return NULL;
    infer->program = p;
    infer->version = model->version;
    infer->request = weft_request__create(model);
    infer->has_input = calloc(p->n_input + 1, sizeof *infer->has_input);
    infer->in_data = calloc(p->n_input + 1, sizeof *infer->in_data);
    infer->output = calloc(p->n_output + 1, sizeof *infer->output);
    if (!infer->request || !infer->has_input || !infer->in_data || !infer->output) {
        weft_oip__destroy_infer(infer);
        return NULL;
    }
    return infer;
}

void weft_oip__destroy_infer(weft_oip_infer *infer)
{
    if (!infer)
        return;
    for (uint32_t i = 0; infer->in_data && i < infer->program->n_input; i++)
        free(infer->in_data[i]);
    weft_request__destroy(infer->request);
    free(infer->has_input);
    free(infer->in_data);
    free(infer->output);
    free(infer->id);
    free(infer);
}

static bool read_id(weft_oip__reader *r)
{
    const char *from = r->json.at;
    size_t len, whole;
    if (!weft_oip__expect(r, '"', "'id' must be a string"))
        return false;
    if (r->infer->id)
        return weft_oip__refuse(r, WEFT_ANSWER_INVALID, "the JSON has 'id' twice");
    /* Twice: for its length, and into memory of that size. */
    if (!weft_json__string(&r->json, NULL, 0, &len))
        return weft_oip__refuse_json(r);
    r->infer->id = malloc(len + 1);
    if (!r->infer->id)
        return weft_oip__refuse(r, WEFT_ANSWER_INTERNAL, "out of memory");
    r->json.at = from;
    return weft_json__string(&r->json, r->infer->id, len + 1, &whole) || weft_oip__refuse_json(r);
}

static bool read_member(weft_oip__reader *r, const char *key, bool *has_inputs,
                        bool *has_parameters)
{
    bool *seen = strcmp(key, "inputs") == 0       ? has_inputs
                 : strcmp(key, "parameters") == 0 ? has_parameters
                                                  : NULL;
    if ((seen && *seen) || (strcmp(key, "outputs") == 0 && r->outputs))
        return weft_oip__refuse(r, WEFT_ANSWER_INVALID, "the JSON has '%s' twice", key);
    if (seen)
        *seen = true;
    if (seen == has_inputs)
        return read_inputs(r);
    if (seen == has_parameters)
        return read_parameters(r, &r->root);
    if (strcmp(key, "id") == 0)
        return read_id(r);
    if (strcmp(key, "outputs") == 0) {
        /* Read later: `parameters` says what is binary when an output does not. */
        weft_json__peek(&r->json);
        r->outputs = r->json.at;
    }
    return weft_json__skip(&r->json) || weft_oip__refuse_json(r);
}

static bool read_request(weft_oip__reader *r)
{
    char key[16];
    size_t len;
    bool first = true, has_inputs = false, has_parameters = false;
    if (!weft_oip__enter(r, '{', "the request is not a JSON object"))
        return false;
    while (weft_json__next(&r->json, '}', &first)) {
        if (!weft_json__key(&r->json, key, sizeof key, &len))
            return weft_oip__refuse_json(r);
        if (!read_member(r, len < sizeof key ? key : "", &has_inputs, &has_parameters))
            return false;
    }
    weft_json__peek(&r->json);
    if (!r->json.error && r->json.at != r->json.end)
        r->json.error = "text follows the request";
    if (r->json.error)
        return weft_oip__refuse_json(r);
    if (!has_inputs)
        return weft_oip__refuse(r, WEFT_ANSWER_INVALID, "the request has no inputs");
    r->infer->request->timeout_us = r->root.timeout_us;
    r->infer->request->need = r->root.need;
    r->infer->request->need.latency_us *= 1e3;
    if (r->root.adapter[0])
        weft_request__set_adapter(r->infer->request, r->root.adapter, strlen(r->root.adapter));
    return check_inputs(r) && read_outputs(r);
}

bool weft_oip__read_infer(const weft_model_ref *model, weft_regions *regions, char *body,
                          size_t len, size_t json_len, weft_answer *out_answer, char *message,
                          weft_oip_infer **out)
{
    const char *json = body ? body : ""; /* of a request without a body */
    weft_oip__reader r = {.regions = regions,
                          .body = body,
                          .len = len,
                          .json = {.at = json, .end = json + (json_len < len ? json_len : len)},
                          .binary_at = json_len,
                          .answer = out_answer,
                          .message = message,
                          .root = {.binary = -1, .binary_output = -1},
                          .infer = create_infer(model)};
    bool ok = r.infer
                  ? json_len <= len || weft_oip__refuse(&r, WEFT_ANSWER_INVALID,
                                                        "the JSON header is longer than the body")
                  : weft_oip__refuse(&r, WEFT_ANSWER_INTERNAL, "out of memory");
    ok = ok && read_request(&r);
    if (ok)
        *out = r.infer;
    else
        weft_oip__destroy_infer(r.infer);
    return ok;
}

/* Derives the dims of a raw request: batch 1; at most one other dim may vary, and follows from the
 * length of the body. */
static bool derive_shape(weft_oip__reader *r, weft_tensor *t)
{
    const weft_bundle_program *p = r->infer->program;
    const weft_ttype *type = &p->value[p->input[0].value - 1].type;
    int64_t known = 1;
    int32_t open = -1; /* the dim that varies */
    *t = (weft_tensor){.dtype = (weft_dtype)type->dtype, .rank = type->rank};
    for (int32_t i = 0; i < t->rank; i++) {
        weft_dim d = type->dim[i];
        bool batch = i == 0 && p->batch_symbol < p->n_symbol &&
                     weft_dim_as_symbol(p->dims, d) == p->batch_symbol;
        t->dim[i] = batch ? 1 : weft_dim_is_const(d) ? d : -1;
        if (t->dim[i] < 0 && open >= 0)
            return weft_oip__refuse(
                r, WEFT_ANSWER_INVALID,
                "a raw request needs an input with at most one varying dimension");
        if (t->dim[i] < 0)
            open = i;
        else if (t->dim[i] > 0 && known <= WEFT_NUMEL_MAX / t->dim[i])
            known *= t->dim[i];
        else
            known = 0;
    }
    size_t size = weft_dtype_size(t->dtype);
    if (open >= 0)
        t->dim[open] = known > 0 ? (int64_t)(r->len / size) / known : 0;
    if (weft_numel(t->dim, t->rank) < 0 || weft_tensor_bytes(t) != r->len)
        return weft_oip__refuse(r, WEFT_ANSWER_INVALID, "%zu bytes do not fit input '%s'", r->len,
                                p->input[0].name);
    return true;
}

bool weft_oip__read_raw(const weft_model_ref *model, char *body, size_t len,
                        weft_answer *out_answer, char *message, weft_oip_infer **out)
{
    weft_oip__reader r = {.body = body,
                          .len = len,
                          .answer = out_answer,
                          .message = message,
                          .infer = create_infer(model)};
    bool ok = true;
    if (!r.infer)
        ok = weft_oip__refuse(&r, WEFT_ANSWER_INTERNAL, "out of memory");
    else if (r.infer->program->n_input != 1)
        ok =
            weft_oip__refuse(&r, WEFT_ANSWER_INVALID, "a raw request needs a model with one input");
    ok = ok && derive_shape(&r, &r.infer->request->in[0]) && weft_oip__take_bytes(&r, 0, len);
    if (!ok) {
        weft_oip__destroy_infer(r.infer);
        return false;
    }
    for (uint32_t k = 0; k < r.infer->program->n_output; k++)
        r.infer->output[r.infer->n_output++] = (weft_oip_output){.at = k, .binary = true};
    *out = r.infer;
    return true;
}
