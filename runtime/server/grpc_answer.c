/* Answers of ModelInfer as messages: ModelInferResponse, or ModelStreamInferResponse for streams.
 */
#include "runtime/server/classes.h"
#include "runtime/server/grpc_int.h"
#include "runtime/server/regions.h"

#include "grpc_service.pb-c.h"

#include <stdio.h>
#include <stdlib.h>

typedef Inference__ModelInferResponse__ParametersEntry answer_entry;

/* Parameters of an answer: of the variant that was chosen, and that it is the last one. */
enum { ANSWER_PARAMETERS = WEFT_CHOICE_PARAMETERS + 1 };

typedef struct answer_parameters {
    weft_choice_parameter from[WEFT_CHOICE_PARAMETERS];
    answer_entry entry[ANSWER_PARAMETERS], *list[ANSWER_PARAMETERS];
    Inference__InferParameter value[ANSWER_PARAMETERS];
} answer_parameters;

static Inference__InferParameter *add_parameter(answer_parameters *to, const char *key,
                                                Inference__ModelInferResponse *response)
{
    size_t i = response->n_parameters++;
    inference__infer_parameter__init(&to->value[i]);
    inference__model_infer_response__parameters_entry__init(&to->entry[i]);
    to->entry[i].key = (char *)key;
    to->entry[i].value = &to->value[i];
    to->list[i] = &to->entry[i];
    response->parameters = to->list;
    return &to->value[i];
}

static void put_choice(const weft_app_choice *c, answer_parameters *to,
                       Inference__ModelInferResponse *response)
{
    weft_request__list_choice(c, to->from);
    for (size_t i = 0; i < WEFT_CHOICE_PARAMETERS; i++) {
        const weft_choice_parameter *p = &to->from[i];
        Inference__InferParameter *value = add_parameter(to, p->key, response);
        value->parameter_choice_case =
            p->text ? INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM
                    : INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_DOUBLE_PARAM;
        if (p->text)
            value->string_param = (char *)p->text;
        else
            value->double_param = p->number;
    }
}

/* Packs what a stream of messages carries for a request: its only answer, or its error. */
static bool pack_streamed(Inference__ModelInferResponse *response, const char *error,
                          answer_parameters *parameters, uint8_t **out, size_t *out_len)
{
    Inference__ModelStreamInferResponse outer = INFERENCE__MODEL_STREAM_INFER_RESPONSE__INIT;
    Inference__InferParameter *last = add_parameter(parameters, "triton_final_response", response);
    last->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM;
    last->bool_param = true;
    outer.infer_response = response;
    if (error)
        outer.error_message = (char *)error;
    return weft_grpc__pack(&outer.base, out, out_len);
}

bool weft_grpc__write_error(const char *id, const char *text, uint8_t **out, size_t *out_len)
{
    Inference__ModelInferResponse response = INFERENCE__MODEL_INFER_RESPONSE__INIT;
    answer_parameters parameters;
    response.id = (char *)id;
    return pack_streamed(&response, text, &parameters, out, out_len);
}

typedef Inference__ModelInferResponse__InferOutputTensor answer_output;

/* Parameters of an output that is in shared memory. */
enum { PLACE_PARAMETERS = 3 };

typedef struct answer_place {
    Inference__ModelInferResponse__InferOutputTensor__ParametersEntry entry[PLACE_PARAMETERS],
        *list[PLACE_PARAMETERS];
    Inference__InferParameter value[PLACE_PARAMETERS];
} answer_place;

static void put_place(answer_place *to, const weft_region_place *place, size_t bytes,
                      answer_output *output)
{
    static char region[] = "shared_memory_region", size[] = "shared_memory_byte_size",
                offset[] = "shared_memory_offset";
    char *const keys[PLACE_PARAMETERS] = {region, size, offset};
    const uint64_t numbers[PLACE_PARAMETERS] = {0, bytes, place->offset};
    for (int i = 0; i < PLACE_PARAMETERS; i++) {
        inference__infer_parameter__init(&to->value[i]);
        inference__model_infer_response__infer_output_tensor__parameters_entry__init(&to->entry[i]);
        to->value[i].parameter_choice_case =
            INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM;
        to->value[i].int64_param = (int64_t)numbers[i];
        to->entry[i].key = keys[i];
        to->entry[i].value = &to->value[i];
        to->list[i] = &to->entry[i];
    }
    to->value[0].parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM;
    to->value[0].string_param = (char *)place->name;
    output->n_parameters = PLACE_PARAMETERS;
    output->parameters = to->list;
}

/* What the message refers to, by output. */
typedef struct answer_parts {
    answer_output output;
    answer_place shared;
    weft_classes classes;
    weft_buf packed;
} answer_parts;

/* Output i as classes, which are packed; `room`: see weft_classes__list. */
static weft_answer put_classes(const weft_grpc_infer *infer, uint32_t i, size_t *room,
                               answer_parts *part, char *text)
{
    static char type[] = "BYTES";
    uint32_t at = infer->output[i].at;
    weft_answer answer = weft_classes__list(infer->program, at, &infer->request->out[at],
                                            infer->output[i].n_class, room, &part->classes, text);
    if (answer == WEFT_ANSWER_OK)
        weft_classes__pack(&part->classes, &part->packed);
    part->output.datatype = type;
    part->output.n_shape = (size_t)part->classes.rank;
    part->output.shape = part->classes.dim;
    return answer;
}

static void put_tensor(const weft_grpc_infer *infer, uint32_t at, answer_place *shared,
                       answer_output *output, ProtobufCBinaryData *raw)
{
    weft_tensor *t = &infer->request->out[at];
    weft_region_place place;
    output->datatype = (char *)weft_dtype_oip_name(t->dtype);
    output->n_shape = (size_t)t->rank;
    output->shape = t->dim;
    if (weft_regions__find_output(infer->request, at, &place))
        put_place(shared, &place, weft_tensor_bytes(t), output);
    else
        *raw = (ProtobufCBinaryData){.len = weft_tensor_bytes(t), .data = t->data};
}

weft_answer weft_grpc__write_infer(const weft_grpc_infer *infer, bool talks, uint8_t **out,
                                   size_t *out_len, char *text)
{
    const weft_bundle_program *p = infer->program;
    uint32_t n = infer->n_output;
    Inference__ModelInferResponse response = INFERENCE__MODEL_INFER_RESPONSE__INIT;
    answer_parts *part = calloc(n + 1, sizeof *part);
    answer_output **list = calloc(n + 1, sizeof *list);
    ProtobufCBinaryData *raw = calloc(n + 1, sizeof *raw);
    answer_parameters parameters;
    bool ok = part && list && raw;
    size_t room = WEFT_CLASSES_BYTES_MAX;
    weft_answer answer = WEFT_ANSWER_OK;
    for (uint32_t i = 0; ok && answer == WEFT_ANSWER_OK && i < n; i++) {
        uint32_t at = infer->output[i].at;
        list[i] = &part[i].output;
        inference__model_infer_response__infer_output_tensor__init(list[i]);
        list[i]->name = (char *)p->output[at].name;
        if (infer->output[i].n_class) {
            answer = put_classes(infer, i, &room, &part[i], text);
            raw[i] = (ProtobufCBinaryData){.len = part[i].packed.len,
                                           .data = (uint8_t *)part[i].packed.at};
            ok = !part[i].packed.failed;
        } else {
            put_tensor(infer, at, &part[i].shared, list[i], &raw[i]);
        }
    }
    if (infer->request->chosen.name)
        put_choice(&infer->request->chosen, &parameters, &response);
    response.model_name = (char *)weft_bundle_served(p);
    response.model_version = (char *)infer->version;
    response.id = infer->in->id;
    response.n_outputs = response.n_raw_output_contents = n;
    response.outputs = list;
    response.raw_output_contents = raw;
    if (ok && answer == WEFT_ANSWER_OK)
        ok = talks ? pack_streamed(&response, NULL, &parameters, out, out_len)
                   : weft_grpc__pack(&response.base, out, out_len);
    for (uint32_t i = 0; part && i < n; i++) {
        weft_classes__finish(&part[i].classes);
        weft_buf_finish(&part[i].packed);
    }
    free(part);
    free(list);
    free(raw);
    if (ok)
        return answer;
    snprintf(text, WEFT_REQUEST_MESSAGE_MAX, "the answer does not fit into memory or a message");
    return WEFT_ANSWER_INTERNAL;
}
