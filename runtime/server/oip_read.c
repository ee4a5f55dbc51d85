/* Infer requests: JSON with the binary tensor extension, into tensors. The body is untrusted: sizes
 * are checked before memory is allocated, and error texts name inputs, never addresses or files. */
#include "runtime/server/oip_int.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    weft_oip_infer *infer;
    char *body;
    size_t len;
    size_t binary_at; /* offset of the next binary tensor in the body */
    weft_answer *answer;
    char *message;
} reader;

static bool fail(reader *r, weft_answer answer, const char *fmt, ...) WEFT_PRINTF(3, 4);

static bool fail(reader *r, weft_answer answer, const char *fmt, ...)
{
    va_list ap;
    *r->answer = answer;
    va_start(ap, fmt);
    vsnprintf(r->message, WEFT_REQUEST_MESSAGE_MAX, fmt, ap);
    va_end(ap);
    return false;
}

/* -- JSON data ------------------------------------------------------------------------------ */

/* Position of the next element to set. */
typedef struct filler {
    const weft_tensor *t;
    int64_t at, n;
} filler;

static bool is_in_range(weft_dtype dtype, json_int_t x)
{
    switch (dtype) {
    case WEFT_DTYPE_I8:
        return x >= INT8_MIN && x <= INT8_MAX;
    case WEFT_DTYPE_U8:
        return x >= 0 && x <= UINT8_MAX;
    case WEFT_DTYPE_I16:
        return x >= INT16_MIN && x <= INT16_MAX;
    case WEFT_DTYPE_U16:
        return x >= 0 && x <= UINT16_MAX;
    case WEFT_DTYPE_I32:
        return x >= INT32_MIN && x <= INT32_MAX;
    case WEFT_DTYPE_U32:
        return x >= 0 && x <= UINT32_MAX;
    case WEFT_DTYPE_U64:
        return x >= 0;
    case WEFT_DTYPE_BOOL:
        return x == 0 || x == 1;
    case WEFT_DTYPE_I4:
        return x >= -8 && x <= 7;
    case WEFT_DTYPE_U4:
        return x >= 0 && x <= 15;
    case WEFT_DTYPE_I2:
        return x >= -2 && x <= 1;
    case WEFT_DTYPE_U2:
        return x >= 0 && x <= 3;
    default:
        return true;
    }
}

static bool fill_value(reader *r, filler *f, const json_t *value, const char *name)
{
    weft_dtype dtype = f->t->dtype;
    if (f->at == f->n)
        return fail(r, WEFT_ANSWER_INVALID, "input '%s' has more data than its shape says", name);
    if (weft_dtype_is_float(dtype)) {
        if (!json_is_number(value))
            return fail(r, WEFT_ANSWER_INVALID, "input '%s': data must be numbers", name);
        weft_tensor_set_f64(f->t, f->at++, json_number_value(value));
        return true;
    }
    if (json_is_boolean(value) && dtype == WEFT_DTYPE_BOOL) {
        weft_tensor_set_i64(f->t, f->at++, json_is_true(value));
        return true;
    }
    if (!json_is_integer(value) || !is_in_range(dtype, json_integer_value(value)))
        return fail(r, WEFT_ANSWER_INVALID, "input '%s': a value is not of type %s", name,
                    weft_dtype_oip_name(dtype));
    weft_tensor_set_i64(f->t, f->at++, json_integer_value(value));
    return true;
}

/* Nested or flat arrays. The recursion is bounded: the depth was checked before parsing. */
static bool fill_array(reader *r, filler *f, const json_t *array, const char *name)
{
    size_t i;
    json_t *value;
    json_array_foreach(array, i, value)
    {
        if (!(json_is_array(value) ? fill_array(r, f, value, name) : fill_value(r, f, value, name)))
            return false;
    }
    return true;
}

static bool read_json_data(reader *r, const json_t *input, uint32_t at, const char *name)
{
    weft_tensor *t = &r->infer->request->in[at];
    const json_t *data = json_object_get(input, "data");
    filler f = {.t = t, .n = weft_tensor_numel(t)};
    if (!json_is_array(data))
        return fail(r, WEFT_ANSWER_INVALID, "input '%s' has no data", name);
    if (weft_dtype_is_float(t->dtype) && weft_dtype_bits(t->dtype) < 32)
        return fail(r, WEFT_ANSWER_INVALID, "input '%s': %s must be sent as binary data", name,
                    weft_dtype_oip_name(t->dtype));
    /* Each element takes at least one byte of JSON: the body bounds the allocation. */
    if ((uint64_t)f.n > r->len)
        return fail(r, WEFT_ANSWER_INVALID, "input '%s' has less data than its shape says", name);
    r->infer->in_data[at] = malloc(weft_tensor_bytes(t) + 64);
    if (!r->infer->in_data[at])
        return fail(r, WEFT_ANSWER_INTERNAL, "out of memory");
    t->data = r->infer->in_data[at];
    if (!fill_array(r, &f, data, name))
        return false;
    if (f.at != f.n)
        return fail(r, WEFT_ANSWER_INVALID,
                    "input '%s' has %" PRId64 " values, its shape says %" PRId64, name, f.at, f.n);
    return true;
}

/* -- Binary data ---------------------------------------------------------------------------- */

/* Takes the next bytes of the body as the data of input `at`; copies them if they are not aligned.
 */
static bool take_bytes(reader *r, uint32_t at, size_t bytes)
{
    static char nothing[8];
    weft_tensor *t = &r->infer->request->in[at];
    char *from = bytes ? r->body + r->binary_at : nothing; /* the body may be NULL when empty */
    r->binary_at += bytes;
    t->data = from;
    if ((uintptr_t)from % 8 == 0)
        return true;
    r->infer->in_data[at] = malloc(bytes + 64);
    if (!r->infer->in_data[at])
        return fail(r, WEFT_ANSWER_INTERNAL, "out of memory");
    memcpy(r->infer->in_data[at], from, bytes);
    t->data = r->infer->in_data[at];
    return true;
}

static bool read_binary_data(reader *r, const json_t *size, uint32_t at, const char *name)
{
    const weft_tensor *t = &r->infer->request->in[at];
    if (!json_is_integer(size) || json_integer_value(size) < 0)
        return fail(r, WEFT_ANSWER_INVALID, "input '%s': wrong binary_data_size", name);
    uint64_t bytes = (uint64_t)json_integer_value(size);
    if (bytes != weft_tensor_bytes(t))
        return fail(r, WEFT_ANSWER_INVALID,
                    "input '%s': binary_data_size is %" PRIu64 ", its shape needs %zu", name, bytes,
                    weft_tensor_bytes(t));
    if (bytes > r->len - r->binary_at)
        return fail(r, WEFT_ANSWER_INVALID, "input '%s': the body ends before its binary data",
                    name);
    return take_bytes(r, at, bytes);
}

/* -- Inputs --------------------------------------------------------------------------------- */

static bool read_shape(reader *r, const json_t *shape, const char *name, weft_tensor *t)
{
    size_t i;
    json_t *dim;
    if (!json_is_array(shape) || json_array_size(shape) > WEFT_RANK_MAX)
        return fail(r, WEFT_ANSWER_INVALID, "input '%s': shape must be at most %d numbers", name,
                    WEFT_RANK_MAX);
    json_array_foreach(shape, i, dim)
    {
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return fail(r, WEFT_ANSWER_INVALID, "input '%s': a dimension is not a number from 0",
                        name);
        t->dim[t->rank++] = json_integer_value(dim);
    }
    if (weft_numel(t->dim, t->rank) < 0)
        return fail(r, WEFT_ANSWER_INVALID, "input '%s' is too large", name);
    return true;
}

static bool read_input(reader *r, const json_t *input)
{
    const char *name = json_string_value(json_object_get(input, "name"));
    const char *type = json_string_value(json_object_get(input, "datatype"));
    const json_t *parameters = json_object_get(input, "parameters");
    if (!name || !type)
        return fail(r, WEFT_ANSWER_INVALID, "an input lacks its name or datatype");
    uint32_t at = weft_bundle_find_port(r->infer->program->input, r->infer->program->n_input, name);
    if (at == UINT32_MAX)
        return fail(r, WEFT_ANSWER_INVALID, "the model has no input '%.64s'", name);
    if (r->infer->has_input[at])
        return fail(r, WEFT_ANSWER_INVALID, "input '%s' is given twice", name);
    weft_tensor t = {.dtype = weft_dtype_from_oip(type)};
    if (strcmp(type, "BYTES") == 0)
        return fail(r, WEFT_ANSWER_UNSUPPORTED, "datatype BYTES is not supported");
    if (t.dtype == WEFT_DTYPE_NONE)
        return fail(r, WEFT_ANSWER_INVALID, "input '%s': unknown datatype '%.16s'", name, type);
    if (json_object_get(parameters, "shared_memory_region"))
        return fail(r, WEFT_ANSWER_UNSUPPORTED, "shared memory is not supported");
    if (!read_shape(r, json_object_get(input, "shape"), name, &t))
        return false;
    r->infer->has_input[at] = true;
    r->infer->request->in[at] = t;
    const json_t *size = json_object_get(parameters, "binary_data_size");
    return size ? read_binary_data(r, size, at, name) : read_json_data(r, input, at, name);
}

static bool read_inputs(reader *r, const json_t *root)
{
    size_t i;
    json_t *input;
    const json_t *inputs = json_object_get(root, "inputs");
    const weft_bundle_program *p = r->infer->program;
    if (!json_is_array(inputs))
        return fail(r, WEFT_ANSWER_INVALID, "the request has no inputs");
    json_array_foreach(inputs, i, input)
    {
        if (!read_input(r, input))
            return false;
    }
    for (uint32_t k = 0; k < p->n_input; k++)
        if (!r->infer->has_input[k])
            return fail(r, WEFT_ANSWER_INVALID, "input '%s' is missing", p->input[k].name);
    if (r->binary_at != r->len)
        return fail(r, WEFT_ANSWER_INVALID, "%zu bytes follow the last input",
                    r->len - r->binary_at);
    return true;
}

/* -- Outputs -------------------------------------------------------------------------------- */

static bool read_flag(const json_t *parameters, const char *key, bool otherwise)
{
    const json_t *flag = json_object_get(parameters, key);
    return json_is_boolean(flag) ? json_is_true(flag) : otherwise;
}

static bool read_output(reader *r, const json_t *output, bool binary)
{
    const weft_bundle_program *p = r->infer->program;
    const char *name = json_string_value(json_object_get(output, "name"));
    const json_t *parameters = json_object_get(output, "parameters");
    uint32_t at = name ? weft_bundle_find_port(p->output, p->n_output, name) : UINT32_MAX;
    if (at == UINT32_MAX)
        return fail(r, WEFT_ANSWER_INVALID, "the model has no output '%.64s'", name ? name : "");
    for (uint32_t i = 0; i < r->infer->n_output; i++)
        if (r->infer->output[i].at == at)
            return fail(r, WEFT_ANSWER_INVALID, "output '%s' is asked for twice", name);
    if (json_object_get(parameters, "shared_memory_region"))
        return fail(r, WEFT_ANSWER_UNSUPPORTED, "shared memory is not supported");
    json_t *classes = json_object_get(parameters, "classification");
    if (json_is_integer(classes) && json_integer_value(classes) > 0)
        return fail(r, WEFT_ANSWER_UNSUPPORTED, "classification is not supported");
    r->infer->output[r->infer->n_output++] =
        (weft_oip_output){.at = at, .binary = read_flag(parameters, "binary_data", binary)};
    return true;
}

static bool read_outputs(reader *r, const json_t *root)
{
    size_t i;
    json_t *output;
    const json_t *outputs = json_object_get(root, "outputs");
    const json_t *parameters = json_object_get(root, "parameters");
    const weft_bundle_program *p = r->infer->program;
    bool binary = read_flag(parameters, "binary_data_output", false);
    if (outputs && !json_is_array(outputs))
        return fail(r, WEFT_ANSWER_INVALID, "outputs must be an array");
    if (json_array_size(outputs) > p->n_output)
        return fail(r, WEFT_ANSWER_INVALID, "more outputs are asked for than the model has");
    json_array_foreach(outputs, i, output)
    {
        if (!read_output(r, output, binary))
            return false;
    }
    for (uint32_t k = 0; k < p->n_output && json_array_size(outputs) == 0; k++)
        r->infer->output[r->infer->n_output++] = (weft_oip_output){.at = k, .binary = binary};
    return true;
}

/* -- The request ---------------------------------------------------------------------------- */

/* Whether the JSON is nested deeper than WEFT_OIP_DEPTH_MAX; brackets in strings do not count. */
static bool is_too_deep(const char *text, size_t len)
{
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (in_string) {
            i += c == '\\';
            in_string = c != '"';
            continue;
        }
        in_string = c == '"';
        depth += c == '[' || c == '{';
        depth -= (c == ']' || c == '}') && depth > 0;
        if (depth > WEFT_OIP_DEPTH_MAX)
            return true;
    }
    return false;
}

static weft_oip_infer *create_infer(const weft_bundle *bundle, uint32_t model)
{
    const weft_bundle_program *p = &bundle->program[model];
    weft_oip_infer *infer = calloc(1, sizeof *infer);
    if (!infer)
        return NULL;
    infer->program = p;
    infer->request = weft_request__create(bundle, model);
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

static bool read_parameters(reader *r, const json_t *root)
{
    const json_t *id = json_object_get(root, "id");
    const json_t *timeout = json_object_get(json_object_get(root, "parameters"), "timeout");
    if (json_is_string(id)) {
        r->infer->id = strdup(json_string_value(id));
        if (!r->infer->id)
            return fail(r, WEFT_ANSWER_INTERNAL, "out of memory");
    }
    if (json_is_integer(timeout) && json_integer_value(timeout) > 0)
        r->infer->request->timeout_us = (uint64_t)json_integer_value(timeout);
    return true;
}

bool weft_oip__read_infer(const weft_bundle *bundle, uint32_t model, char *body, size_t len,
                          size_t json_len, weft_answer *out_answer, char *message,
                          weft_oip_infer **out)
{
    reader r = {.body = body,
                .len = len,
                .binary_at = json_len,
                .answer = out_answer,
                .message = message,
                .infer = create_infer(bundle, model)};
    json_error_t error;
    json_t *root = NULL;
    bool ok = true;
    if (!r.infer)
        ok = fail(&r, WEFT_ANSWER_INTERNAL, "out of memory");
    else if (json_len > len)
        ok = fail(&r, WEFT_ANSWER_INVALID, "the JSON header is longer than the body");
    else if (is_too_deep(body, json_len))
        ok = fail(&r, WEFT_ANSWER_INVALID, "JSON is nested deeper than %d", WEFT_OIP_DEPTH_MAX);
    else if (!(root = json_loadb(body, json_len, JSON_REJECT_DUPLICATES, &error)))
        ok = fail(&r, WEFT_ANSWER_INVALID, "wrong JSON at byte %d: %.128s", error.position,
                  error.text);
    else if (!json_is_object(root))
        ok = fail(&r, WEFT_ANSWER_INVALID, "the request is not a JSON object");
    ok = ok && read_parameters(&r, root) && read_inputs(&r, root) && read_outputs(&r, root);
    json_decref(root);
    if (ok)
        *out = r.infer;
    else
        weft_oip__destroy_infer(r.infer);
    return ok;
}

/* Derives the dims of a raw request: batch 1; at most one other dim may vary, and follows from the
 * length of the body. */
static bool derive_shape(reader *r, weft_tensor *t)
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
            return fail(r, WEFT_ANSWER_INVALID,
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
        return fail(r, WEFT_ANSWER_INVALID, "%zu bytes do not fit input '%s'", r->len,
                    p->input[0].name);
    return true;
}

bool weft_oip__read_raw(const weft_bundle *bundle, uint32_t model, char *body, size_t len,
                        weft_answer *out_answer, char *message, weft_oip_infer **out)
{
    reader r = {.body = body,
                .len = len,
                .answer = out_answer,
                .message = message,
                .infer = create_infer(bundle, model)};
    bool ok = true;
    if (!r.infer)
        ok = fail(&r, WEFT_ANSWER_INTERNAL, "out of memory");
    else if (r.infer->program->n_input != 1)
        ok = fail(&r, WEFT_ANSWER_INVALID, "a raw request needs a model with one input");
    ok = ok && derive_shape(&r, &r.infer->request->in[0]) && take_bytes(&r, 0, len);
    if (!ok) {
        weft_oip__destroy_infer(r.infer);
        return false;
    }
    for (uint32_t k = 0; k < r.infer->program->n_output; k++)
        r.infer->output[r.infer->n_output++] = (weft_oip_output){.at = k, .binary = true};
    *out = r.infer;
    return true;
}
