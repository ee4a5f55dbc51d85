/* ModelInfer: decodes a request message into tensors, and gives the request to the router. Input
 * data stays where the decoder put it (malloc aligns it); only narrow types of typed contents are
 * converted. The message is untrusted: every malformed field gives an error that names the input.
 */
#include "runtime/server/classes.h"
#include "runtime/server/grpc_int.h"
#include "runtime/server/regions.h"

#include "grpc_service.pb-c.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef Inference__ModelInferRequest__InferInputTensor infer_input;
typedef Inference__ModelInferRequest__InferRequestedOutputTensor infer_output;

typedef struct reader {
    weft_grpc_infer *infer;
    weft_regions *regions;
    size_t decoded_max;
    weft_answer *answer;
    char *text;
} reader;

static bool fail(reader *r, weft_answer answer, const char *fmt, ...) WEFT_PRINTF(3, 4);

static bool fail(reader *r, weft_answer answer, const char *fmt, ...)
{
    va_list ap;
    *r->answer = answer;
    va_start(ap, fmt);
    vsnprintf(r->text, WEFT_REQUEST_MESSAGE_MAX, fmt, ap);
    va_end(ap);
    return false;
}

/* An integer from 0; false: another kind of value. */
static bool get_count(const Inference__InferParameter *p, uint64_t *out)
{
    bool is_int =
        p && p->parameter_choice_case == INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM;
    bool is_uint =
        p && p->parameter_choice_case == INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_UINT64_PARAM;
    if (is_uint)
        *out = p->uint64_param;
    else if (is_int && p->int64_param >= 0)
        *out = (uint64_t)p->int64_param;
    else
        return false;
    return true;
}

static bool read_count(reader *r, const char *key, const Inference__InferParameter *p,
                       uint64_t *out)
{
    return get_count(p, out) ||
           fail(r, WEFT_ANSWER_INVALID, "parameter '%s' is not an integer from 0", key);
}

/* -- Shared memory -------------------------------------------------------------------------- */

/* Takes a parameter of an input or output that says where it is; others are left alone. */
static bool read_place(reader *r, const char *key, const Inference__InferParameter *p,
                       weft_region_place *out)
{
    if (strcmp(key, "shared_memory_offset") == 0)
        return read_count(r, key, p, &out->offset);
    if (strcmp(key, "shared_memory_byte_size") == 0)
        return read_count(r, key, p, &out->bytes);
    if (strcmp(key, "shared_memory_region") != 0)
        return true;
    if (!p || p->parameter_choice_case != INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM)
        return fail(r, WEFT_ANSWER_INVALID, "parameter '%s' is not a string", key);
    out->name = p->string_param;
    return true;
}

static bool take(reader *r, weft_answer answer)
{
    if (answer != WEFT_ANSWER_OK)
        *r->answer = answer;
    return answer == WEFT_ANSWER_OK;
}

/* Its data comes later (weft_regions__load). */
static bool share_input(reader *r, uint32_t at, const weft_region_place *place)
{
    weft_grpc_infer *infer = r->infer;
    if (!take(r, weft_regions__place_input(r->regions, infer->program, infer->request, at, place,
                                           r->text)))
        return false;
    infer->decoded += place->bytes;
    return infer->decoded <= r->decoded_max ||
           fail(r, WEFT_ANSWER_INVALID, "the inputs in shared memory are too large");
}

/* -- Typed contents ------------------------------------------------------------------------- */

/* The field of typed contents that carries a dtype. */
typedef struct field {
    weft_dtype dtype; /* of the elements as decoded; BOOL: protobuf_c_boolean */
    size_t n;
    const void *at;
} field;

static field find_field(const Inference__InferTensorContents *c, weft_dtype dtype)
{
    switch (dtype) {
    case WEFT_DTYPE_BOOL:
        return (field){WEFT_DTYPE_BOOL, c->n_bool_contents, c->bool_contents};
    case WEFT_DTYPE_I2:
    case WEFT_DTYPE_I4:
    case WEFT_DTYPE_I8:
    case WEFT_DTYPE_I16:
    case WEFT_DTYPE_I32:
        return (field){WEFT_DTYPE_I32, c->n_int_contents, c->int_contents};
    case WEFT_DTYPE_I64:
        return (field){WEFT_DTYPE_I64, c->n_int64_contents, c->int64_contents};
    case WEFT_DTYPE_U2:
    case WEFT_DTYPE_U4:
    case WEFT_DTYPE_U8:
    case WEFT_DTYPE_U16:
    case WEFT_DTYPE_U32:
        return (field){WEFT_DTYPE_U32, c->n_uint_contents, c->uint_contents};
    case WEFT_DTYPE_U64:
        return (field){WEFT_DTYPE_U64, c->n_uint64_contents, c->uint64_contents};
    case WEFT_DTYPE_F32:
        return (field){WEFT_DTYPE_F32, c->n_fp32_contents, c->fp32_contents};
    case WEFT_DTYPE_F64:
        return (field){WEFT_DTYPE_F64, c->n_fp64_contents, c->fp64_contents};
    default:
        return (field){WEFT_DTYPE_NONE, 0, NULL};
    }
}

static size_t count_contents(const Inference__InferTensorContents *c)
{
    return c ? c->n_bool_contents + c->n_int_contents + c->n_int64_contents + c->n_uint_contents +
                   c->n_uint64_contents + c->n_fp32_contents + c->n_fp64_contents +
                   c->n_bytes_contents
             : 0;
}

/* Element i of a field whose elements are wider than the dtype of the input. */
static int64_t get_narrow(const field *f, size_t i)
{
    if (f->dtype == WEFT_DTYPE_BOOL)
        return ((const protobuf_c_boolean *)f->at)[i] != 0;
    return f->dtype == WEFT_DTYPE_I32 ? ((const int32_t *)f->at)[i]
                                      : (int64_t)((const uint32_t *)f->at)[i];
}

static bool convert(reader *r, const field *f, uint32_t at, const char *name)
{
    weft_tensor *t = &r->infer->request->in[at];
    void *data = malloc(weft_tensor_bytes(t) + 1);
    if (!data)
        return fail(r, WEFT_ANSWER_INTERNAL, "out of memory");
    r->infer->converted[at] = data;
    r->infer->decoded += weft_tensor_bytes(t);
    t->data = data;
    for (size_t i = 0; i < f->n; i++) {
        int64_t x = get_narrow(f, i);
        weft_tensor_set_i64(t, (int64_t)i, x);
        /* weft_tensor_set_i64 saturates: a value out of range reads back changed. */
        if (weft_tensor_get_i64(t, (int64_t)i) != x)
            return fail(r, WEFT_ANSWER_INVALID, "input '%s': %" PRId64 " is not in the range of %s",
                        name, x, weft_dtype_oip_name(t->dtype));
    }
    return true;
}

static bool read_typed(reader *r, const Inference__InferTensorContents *contents, uint32_t at,
                       const char *name)
{
    static const Inference__InferTensorContents none = INFERENCE__INFER_TENSOR_CONTENTS__INIT;
    const Inference__InferTensorContents *c = contents ? contents : &none;
    weft_tensor *t = &r->infer->request->in[at];
    field f = find_field(c, t->dtype);
    if (f.dtype == WEFT_DTYPE_NONE)
        return fail(r, WEFT_ANSWER_INVALID, "input '%s': %s must be sent as raw contents", name,
                    weft_dtype_oip_name(t->dtype));
    if (f.n != count_contents(c))
        return fail(r, WEFT_ANSWER_INVALID, "input '%s': contents of another type than %s", name,
                    weft_dtype_oip_name(t->dtype));
    if ((int64_t)f.n != weft_tensor_numel(t))
        return fail(r, WEFT_ANSWER_INVALID, "input '%s' has %zu values, its shape says %" PRId64,
                    name, f.n, weft_tensor_numel(t));
    if (f.dtype == t->dtype && f.dtype != WEFT_DTYPE_BOOL) {
        t->data = (void *)f.at;
        return true;
    }
    return convert(r, &f, at, name);
}

/* -- Inputs --------------------------------------------------------------------------------- */

static bool read_raw(reader *r, const ProtobufCBinaryData *raw, uint32_t at, const char *name)
{
    weft_tensor *t = &r->infer->request->in[at];
    if (raw->len != weft_tensor_bytes(t))
        return fail(r, WEFT_ANSWER_INVALID, "input '%s' has %zu bytes, its shape needs %zu", name,
                    raw->len, weft_tensor_bytes(t));
    t->data = raw->data;
    return true;
}

static bool read_shape(reader *r, const infer_input *input, weft_tensor *t)
{
    if (input->n_shape > WEFT_RANK_MAX)
        return fail(r, WEFT_ANSWER_INVALID, "input '%.64s': shape must be at most %d numbers",
                    input->name, WEFT_RANK_MAX);
    t->rank = (int32_t)input->n_shape;
    if (input->n_shape)
        memcpy(t->dim, input->shape, input->n_shape * sizeof *input->shape);
    if (weft_numel(t->dim, t->rank) < 0)
        return fail(r, WEFT_ANSWER_INVALID,
                    "input '%.64s' has a negative dimension or is too large", input->name);
    return true;
}

/* Whether the data of the input is in shared memory, and not in the message. */
static bool is_shared(const infer_input *input)
{
    for (size_t i = 0; i < input->n_parameters; i++)
        if (strcmp(input->parameters[i]->key, "shared_memory_region") == 0)
            return true;
    return false;
}

static bool read_input(reader *r, const infer_input *input, const ProtobufCBinaryData *raw)
{
    weft_region_place place = {0};
    const weft_bundle_program *p = r->infer->program;
    uint32_t at = weft_bundle_find_port(p->input, p->n_input, input->name);
    if (at == UINT32_MAX)
        return fail(r, WEFT_ANSWER_INVALID, "the model has no input '%.64s'", input->name);
    const char *name = p->input[at].name;
    if (r->infer->has_input[at])
        return fail(r, WEFT_ANSWER_INVALID, "input '%s' is given twice", name);
    if (strcmp(input->datatype, "BYTES") == 0)
        return fail(r, WEFT_ANSWER_UNSUPPORTED, "datatype BYTES is not supported");
    weft_tensor t = {.dtype = weft_dtype_from_oip(input->datatype)};
    if (t.dtype == WEFT_DTYPE_NONE)
        return fail(r, WEFT_ANSWER_INVALID, "input '%s': unknown datatype '%.16s'", name,
                    input->datatype);
    for (size_t i = 0; i < input->n_parameters; i++)
        if (!read_place(r, input->parameters[i]->key, input->parameters[i]->value, &place))
            return false;
    if (!read_shape(r, input, &t))
        return false;
    r->infer->has_input[at] = true;
    r->infer->request->in[at] = t;
    if (place.name && count_contents(input->contents) > 0)
        return fail(r, WEFT_ANSWER_INVALID, "input '%s' has both contents and shared memory", name);
    if (place.name)
        return share_input(r, at, &place);
    if (!raw)
        return read_typed(r, input->contents, at, name);
    return read_raw(r, raw, at, name);
}

static bool read_inputs(reader *r)
{
    const Inference__ModelInferRequest *in = r->infer->in;
    const weft_bundle_program *p = r->infer->program;
    bool is_raw = in->n_raw_input_contents > 0;
    if (in->n_inputs > p->n_input)
        return fail(r, WEFT_ANSWER_INVALID, "%zu inputs are given, the model has %" PRIu32,
                    in->n_inputs, p->n_input);
    size_t n_sent = 0, at = 0; /* inputs that are not in shared memory */
    for (size_t i = 0; i < in->n_inputs; i++) {
        if (is_raw && count_contents(in->inputs[i]->contents) > 0) /* in Triton's words */
            return fail(r, WEFT_ANSWER_INVALID,
                        "contents field must not be specified when using raw_input_contents for "
                        "'%.64s' for model '%.64s'",
                        in->inputs[i]->name, in->model_name);
        n_sent += !is_shared(in->inputs[i]);
    }
    if (n_sent < in->n_inputs && !take(r, weft_regions__check_on(r->regions, r->text)))
        return false;
    if (is_raw && in->n_raw_input_contents != n_sent)
        return fail(r, WEFT_ANSWER_INVALID, "%zu inputs but %zu raw_input_contents", n_sent,
                    in->n_raw_input_contents);
    for (size_t i = 0; i < in->n_inputs; i++) {
        bool raw = is_raw && !is_shared(in->inputs[i]);
        if (!read_input(r, in->inputs[i], raw ? &in->raw_input_contents[at++] : NULL))
            return false;
    }
    for (uint32_t k = 0; k < p->n_input; k++)
        if (!r->infer->has_input[k])
            return fail(r, WEFT_ANSWER_INVALID, "input '%s' is missing", p->input[k].name);
    return true;
}

/* -- Outputs -------------------------------------------------------------------------------- */

static bool read_output(reader *r, const infer_output *output)
{
    weft_region_place place = {0};
    const weft_bundle_program *p = r->infer->program;
    uint32_t at = weft_bundle_find_port(p->output, p->n_output, output->name);
    if (at == UINT32_MAX)
        return fail(r, WEFT_ANSWER_INVALID, "the model has no output '%.64s'", output->name);
    for (uint32_t i = 0; i < r->infer->n_output; i++)
        if (r->infer->output[i].at == at)
            return fail(r, WEFT_ANSWER_INVALID, "output '%s' is asked for twice",
                        p->output[at].name);
    uint64_t n_class = 0;
    for (size_t i = 0; i < output->n_parameters; i++) {
        const char *key = output->parameters[i]->key;
        if (!read_place(r, key, output->parameters[i]->value, &place))
            return false;
        if (strcmp(key, "classification") == 0 &&
            !read_count(r, key, output->parameters[i]->value, &n_class))
            return false;
    }
    if (n_class && place.name)
        return fail(r, WEFT_ANSWER_UNSUPPORTED,
                    "output '%s': classes cannot be written to shared memory", p->output[at].name);
    if (n_class && !take(r, weft_classes__check(p, at, n_class, r->text)))
        return false;
    if (place.name &&
        !take(r, weft_regions__place_output(r->regions, p, r->infer->request, at, &place, r->text)))
        return false;
    r->infer->output[r->infer->n_output].at = at;
    r->infer->output[r->infer->n_output++].n_class = (uint32_t)n_class;
    weft_request__ask(r->infer->request, at);
    return true;
}

static bool read_outputs(reader *r)
{
    const Inference__ModelInferRequest *in = r->infer->in;
    const weft_bundle_program *p = r->infer->program;
    if (in->n_outputs > p->n_output)
        return fail(r, WEFT_ANSWER_INVALID, "more outputs are asked for than the model has");
    if (in->n_outputs)
        weft_request__ask_none(r->infer->request, p->n_output);
    for (size_t i = 0; i < in->n_outputs; i++)
        if (!read_output(r, in->outputs[i]))
            return false;
    for (uint32_t k = 0; k < p->n_output && in->n_outputs == 0; k++)
        r->infer->output[r->infer->n_output++].at = k;
    return true;
}

/* -- The request ---------------------------------------------------------------------------- */

void weft_grpc__destroy_infer(weft_grpc_infer *infer)
{
    if (!infer)
        return;
    for (uint32_t i = 0; infer->converted && i < infer->n_input; i++)
        free(infer->converted[i]);
    weft_request__destroy(infer->request);
    if (infer->in)
        inference__model_infer_request__free_unpacked(infer->in, NULL);
    free(infer->has_input);
    free(infer->converted);
    free(infer->output);
    free(infer);
}

/* A number from 0, integer or not. */
static bool get_amount(reader *r, const char *key, const Inference__InferParameter *p, double *out)
{
    uint64_t whole = 0;
    bool real =
        p && p->parameter_choice_case == INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_DOUBLE_PARAM;
    bool ok = real || get_count(p, &whole);
    double x = real ? p->double_param : (double)whole;
    if (!ok || !(x >= 0 && x < 1e15))
        return fail(r, WEFT_ANSWER_INVALID, "parameter '%s' is not a number from 0 to 1e15", key);
    *out = x;
    return true;
}

static bool get_flag(reader *r, const char *key, const Inference__InferParameter *p, bool *out)
{
    if (!p || p->parameter_choice_case != INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM)
        return fail(r, WEFT_ANSWER_INVALID, "parameter '%s' is neither true nor false", key);
    *out = p->bool_param;
    return true;
}

static bool take_adapter(reader *r, const char *name)
{
    return weft_request__set_adapter(r->infer->request, name, strlen(name)) ||
           fail(r, WEFT_ANSWER_INVALID,
                "parameter 'adapter' is no name, or that of another adapter than the model's name "
                "has");
}

static bool read_adapter(reader *r, const Inference__InferParameter *p)
{
    if (!p || p->parameter_choice_case != INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM)
        return fail(r, WEFT_ANSWER_INVALID, "parameter 'adapter' is no text");
    return take_adapter(r, p->string_param);
}

static bool read_parameter(reader *r, const char *key, const Inference__InferParameter *p)
{
    weft_request *request = r->infer->request;
    if (strcmp(key, "timeout") == 0)
        return read_count(r, key, p, &request->timeout_us);
    if (strcmp(key, "min_accuracy") == 0)
        return get_amount(r, key, p, &request->need.min_accuracy);
    if (strcmp(key, "max_cost") == 0)
        return get_amount(r, key, p, &request->need.max_cost);
    if (strcmp(key, "adapter") == 0)
        return read_adapter(r, p);
    if (strcmp(key, "best_effort") == 0)
        return get_flag(r, key, p, &request->need.best_effort);
    if (strcmp(key, "latency_ms") != 0)
        return true;
    bool ok = get_amount(r, key, p, &request->need.latency_us);
    request->need.latency_us *= 1e3;
    return ok;
}

static bool prepare(reader *r, const weft_model_ref *model)
{
    weft_grpc_infer *infer = r->infer;
    const weft_bundle_program *p = model->program;
    /* The name was found without decoding the message. */
    bool named;
    const char *adapter =
        weft_router__adapter_in(p, infer->in->model_name, strlen(infer->in->model_name), &named);
    if (!named)
        return fail(r, WEFT_ANSWER_INVALID, "the message names two models");
    infer->program = p;
    infer->version = model->version;
    infer->n_input = p->n_input;
    infer->request = weft_request__create(model);
    infer->has_input = calloc(p->n_input + 1, sizeof *infer->has_input);
    infer->converted = calloc(p->n_input + 1, sizeof *infer->converted);
    infer->output = calloc(p->n_output + 1, sizeof *infer->output);
    if (!infer->request || !infer->has_input || !infer->converted || !infer->output)
        return fail(r, WEFT_ANSWER_INTERNAL, "out of memory");
    if (adapter && !take_adapter(r, adapter))
        return false;
    for (size_t i = 0; i < infer->in->n_parameters; i++)
        if (!read_parameter(r, infer->in->parameters[i]->key, infer->in->parameters[i]->value))
            return false;
    return true;
}

bool weft_grpc__read_infer(const weft_model_ref *model, weft_regions *regions,
                           const uint8_t *message, size_t len, size_t decoded_max,
                           weft_answer *out_answer, char *text, weft_grpc_infer **out)
{
    reader r = {.infer = calloc(1, sizeof *r.infer),
                .regions = regions,
                .decoded_max = decoded_max,
                .answer = out_answer,
                .text = text};
    bool ok = r.infer || fail(&r, WEFT_ANSWER_INTERNAL, "out of memory");
    const char *wrong = ok ? weft_grpc__scan_infer(message, len) : NULL;
    ok = ok && (!wrong || fail(&r, WEFT_ANSWER_INVALID, "the message %s", wrong));
    if (ok) {
        r.infer->in = (Inference__ModelInferRequest *)weft_grpc__unpack(
            &inference__model_infer_request__descriptor, message, len, decoded_max,
            &r.infer->decoded, &wrong);
        ok = r.infer->in || fail(&r, WEFT_ANSWER_INVALID, "the message %s", wrong);
    }
    ok = ok && prepare(&r, model) && read_inputs(&r) && read_outputs(&r);
    if (ok)
        *out = r.infer;
    else
        weft_grpc__destroy_infer(r.infer);
    return ok;
}

/* -- The call ------------------------------------------------------------------------------- */

static void run_free(weft_job *job)
{
    weft_grpc__destroy_infer((weft_grpc_infer *)((char *)job - offsetof(weft_grpc_infer, job)));
}

/* Frees what was read, beside the loop where that takes long. */
static void free_infer(weft_grpc_call *call, weft_grpc_infer *infer)
{
    if (!call->offload || !call->job.run) {
        weft_grpc__destroy_infer(infer);
        return;
    }
    infer->job = (weft_job){.run = run_free};
    weft_offload__submit(call->offload, &infer->job);
}

static weft_grpc_call *call_of(weft_job *job)
{
    return (weft_grpc_call *)((char *)job - offsetof(weft_grpc_call, job));
}

static void write_answer(weft_grpc_call *call)
{
    char text[WEFT_REQUEST_MESSAGE_MAX];
    weft_answer answer = weft_regions__store(call->infer->request, text);
    if (answer == WEFT_ANSWER_OK)
        answer = weft_grpc__write_infer(call->infer, call->talks, &call->message, &call->len, text);
    if (answer == WEFT_ANSWER_OK)
        weft_grpc__pack_answer(call);
    else
        weft_grpc__fail_call(call, weft_grpc__status_of(answer), "%s", text);
}

/* The call needs its model no more. */
static void release_model(weft_grpc_call *call)
{
    if (!call->holds)
        return;
    weft_router__end_use(call->router, call->reads.at);
    weft_router__release(call->router, call->reads.at);
    call->holds = false;
}

/* Chooses the model and version that answer. false: the call has its error. */
static bool choose_model(weft_grpc_call *call, const uint8_t *message, size_t len)
{
    weft_router *router = call->router;
    const char *patterns = weft_access__models(call->access, &call->presented);
    weft_grpc_names names;
    const char *wrong = weft_grpc__scan_names(message, len, &names);
    const weft_grpc_name name = names.model, version = names.version;
    if (wrong) {
        weft_grpc__fail_call(call, WEFT_GRPC_INVALID_ARGUMENT, "the message %s", wrong);
        return false;
    }
    uint32_t at = weft_router__find(router, name.at, name.len, NULL, 0);
    if (at == UINT32_MAX ||
        (patterns && !weft_key__names_model(
                         patterns, weft_bundle_served(weft_router__model(router, at).program)))) {
        weft_grpc__fail_call(call, WEFT_GRPC_NOT_FOUND, WEFT_UNKNOWN_MODEL,
                             name.len < 64 ? (int)name.len : 64, name.at);
        return false;
    }
    at = version.len ? weft_router__find(router, name.at, name.len, version.at, version.len)
                     : weft_router__choose(router, at);
    if (at == UINT32_MAX) {
        weft_grpc__fail_call(call, WEFT_GRPC_NOT_FOUND, "model '%.*s' has no version '%.*s'",
                             name.len < 64 ? (int)name.len : 64, name.at,
                             version.len < 16 ? (int)version.len : 16, version.at);
        return false;
    }
    weft_router__hold(router, at);
    weft_router__begin_use(router, at);
    call->reads = weft_router__model(router, at);
    call->holds = true;
    call->by_weight = version.len == 0;
    return true;
}

static void end_call(weft_grpc_call *call)
{
    weft_grpc_infer *infer = call->infer;
    call->infer = NULL;
    release_model(call);
    free_infer(call, infer);
    call->reply(call);
}

static void run_write(weft_job *job)
{
    write_answer(call_of(job));
}

static void done_write(weft_job *job)
{
    weft_grpc_call *call = call_of(job);
    call->offloaded = false;
    if (!call->message && call->status == WEFT_GRPC_OK)
        weft_grpc__fail_call(call, WEFT_GRPC_UNAVAILABLE, "the server is shutting down");
    end_call(call);
}

static size_t output_bytes(const weft_grpc_infer *infer)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < infer->program->n_output; i++)
        bytes += weft_tensor_bytes(&infer->request->out[i]);
    return bytes;
}

/* Bytes of the outputs, of which classes take longer to write. */
static size_t answer_work(const weft_grpc_infer *infer)
{
    size_t bytes = output_bytes(infer);
    for (uint32_t i = 0; i < infer->n_output; i++)
        if (infer->output[i].n_class)
            bytes += weft_classes__work(infer->program, &infer->request->out[infer->output[i].at],
                                        infer->output[i].n_class);
    return bytes;
}

static void on_done(weft_request *request)
{
    weft_grpc_call *call = request->user;
    if (request->answer == WEFT_ANSWER_OK &&
        weft_grpc__hold_bytes(call, call->infer->decoded + output_bytes(call->infer))) {
        /* Written beside the loop when it is large. */
        size_t most = call->form ? WEFT_GRPC_INLINE_PACKED_BYTES : (size_t)WEFT_GRPC_INLINE_BYTES;
        size_t work = answer_work(call->infer);
        bool is_long = work > most || weft_regions__has_outputs(request);
        if (call->offload && is_long) {
            weft_grpc__run_beside(call, work, run_write, done_write);
            return;
        }
        write_answer(call);
    } else if (request->answer != WEFT_ANSWER_OK) {
        uint64_t took_us = (weft_clock__now_ns() - request->arrived_ns) / 1000;
        bool expired = request->answer == WEFT_ANSWER_UNAVAILABLE && call->timeout_us &&
                       took_us >= call->timeout_us;
        weft_grpc__fail_call(
            call, expired ? WEFT_GRPC_DEADLINE_EXCEEDED : weft_grpc__status_of(request->answer),
            "%s", request->message);
    }
    end_call(call);
}

static void submit(weft_grpc_call *call)
{
    weft_request *request = call->infer->request;
    if (call->timeout_us && (!request->timeout_us || call->timeout_us < request->timeout_us))
        request->timeout_us = call->timeout_us;
    request->done = on_done;
    request->user = call;
    request->id = call->infer->in->id;
    request->origin = call->origin;
    request->by_weight = call->by_weight;
    call->submitted = true;
    weft_router__submit(call->router, request);
}

static void run_load(weft_job *job)
{
    weft_grpc_call *call = call_of(job);
    call->answer = weft_regions__load(call->infer->request, call->text);
}

static void done_load(weft_job *job)
{
    weft_grpc_call *call = call_of(job);
    call->offloaded = false;
    if (call->answer == WEFT_ANSWER_OK && !call->cancelled) {
        submit(call);
        return;
    }
    if (call->cancelled || call->answer == WEFT_ANSWER_OK)
        weft_grpc__fail_call(call, WEFT_GRPC_UNAVAILABLE, "the client or the server is going away");
    else
        call->status = weft_grpc__status_of(call->answer);
    end_call(call);
}

/* Gives the request that was read to the router, once its inputs in shared memory are here. */
static void begin(weft_grpc_call *call)
{
    if (!weft_grpc__hold_bytes(call, call->infer->decoded)) {
        end_call(call);
        return;
    }
    if (!weft_regions__has_inputs(call->infer->request)) {
        submit(call);
        return;
    }
    call->answer = WEFT_ANSWER_UNAVAILABLE;
    snprintf(call->text, sizeof call->text, "the server is going away");
    if (call->offload) {
        weft_grpc__run_beside(call, weft_regions__input_bytes(call->infer->request), run_load,
                              done_load);
    } else {
        run_load(&call->job);
        done_load(&call->job);
    }
}

void weft_grpc__run_infer(weft_grpc_call *call, const uint8_t *message, size_t len)
{
    weft_answer answer = WEFT_ANSWER_INTERNAL;
    if (!choose_model(call, message, len)) {
        call->reply(call);
        return;
    }
    if (!weft_grpc__read_infer(&call->reads, call->regions, message, len, call->decoded_max,
                               &answer, call->text, &call->infer)) {
        release_model(call);
        call->status = weft_grpc__status_of(answer);
        call->reply(call);
        return;
    }
    begin(call);
}

/* -- Large messages, beside the loop -------------------------------------------------------- */

static void drop_bytes(weft_grpc_call *call)
{
    free(call->bytes);
    call->bytes = NULL;
}

static void run_read(weft_job *job)
{
    weft_grpc_call *call = call_of(job);
    if (!weft_grpc__read_infer(&call->reads, call->regions, call->bytes, call->n_bytes,
                               call->decoded_max, &call->answer, call->text, &call->infer))
        call->infer = NULL;
    drop_bytes(call);
}

static void done_read(weft_job *job)
{
    weft_grpc_call *call = call_of(job);
    bool was_run = call->bytes == NULL;
    call->offloaded = false;
    if (call->infer && !call->cancelled) {
        begin(call);
        return;
    }
    drop_bytes(call);
    release_model(call);
    if (call->cancelled || !was_run)
        weft_grpc__fail_call(call, WEFT_GRPC_UNAVAILABLE, "the client or the server is going away");
    else
        call->status = weft_grpc__status_of(call->answer);
    if (call->infer)
        free_infer(call, call->infer);
    call->infer = NULL;
    call->reply(call);
}

void weft_grpc__offload_infer(weft_grpc_call *call, uint8_t *message, size_t len)
{
    if (!choose_model(call, message, len)) {
        weft_offload__free(call->offload, message, len);
        call->reply(call);
        return;
    }
    call->bytes = message;
    call->n_bytes = len;
    call->answer = WEFT_ANSWER_INTERNAL;
    weft_grpc__run_beside(call, len, run_read, done_read);
}
