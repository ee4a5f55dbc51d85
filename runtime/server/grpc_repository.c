/* The methods of the model repository over gRPC: a client waits until its model is loaded or
 * unloaded. */
#include "runtime/server/grpc_int.h"

#include "grpc_service.pb-c.h"

#include "base/num.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef struct parameters {
    weft_repository_request request;
    char version[WEFT_VERSION_MAX];
} parameters;

static void on_end(weft_operation_wait *wait, weft_answer answer, const char *error)
{
    weft_grpc_call *call = (weft_grpc_call *)((char *)wait - offsetof(weft_grpc_call, operation));
    /* The answers of both methods have no fields. */
    const Inference__RepositoryModelLoadResponse r =
        INFERENCE__REPOSITORY_MODEL_LOAD_RESPONSE__INIT;
    if (error)
        weft_grpc__fail_call(call, weft_grpc__status_of(answer), "%s", error);
    else if (!weft_grpc__pack(&r.base, &call->message, &call->len))
        weft_grpc__fail_call(call, WEFT_GRPC_INTERNAL, "out of memory");
    call->reply(call);
}

/* The text of a parameter; NULL: it has another type. `number` has room for one. */
static const char *text_of(const Inference__ModelRepositoryParameter *p, char number[32])
{
    if (p && p->parameter_choice_case ==
                 INFERENCE__MODEL_REPOSITORY_PARAMETER__PARAMETER_CHOICE_STRING_PARAM)
        return p->string_param;
    if (!p || p->parameter_choice_case !=
                  INFERENCE__MODEL_REPOSITORY_PARAMETER__PARAMETER_CHOICE_INT64_PARAM)
        return NULL;
    snprintf(number, 32, "%lld", (long long)p->int64_param);
    return number;
}

/* NULL: a parameter that is a text, and not empty. */
static const char *wrong_text(const Inference__ModelRepositoryParameter *p)
{
    bool is_text = p && p->parameter_choice_case ==
                            INFERENCE__MODEL_REPOSITORY_PARAMETER__PARAMETER_CHOICE_STRING_PARAM;
    return !is_text ? "is no text" : !*p->string_param ? "is empty" : NULL;
}

/* NULL: taken; else what is wrong. */
static const char *take_parameter(const char *name, const Inference__ModelRepositoryParameter *p,
                                  bool loads, parameters *out)
{
    char number[32];
    const char *text = text_of(p, number);
    if (strcmp(name, "version") == 0) {
        if (!text || !weft_serve_is_version(text))
            return "is no number from 1 on";
        strcpy(out->version, text);
        out->request.version = out->version;
        return NULL;
    }
    if (loads && strcmp(name, "weight") == 0) {
        out->request.has_weight = true;
        return text && weft_parse_f64(text, &out->request.weight) && out->request.weight >= 0 &&
                       out->request.weight <= 1e6
                   ? NULL
                   : "is no number from 0 to 1000000";
    }
    if (loads && strcmp(name, "path") == 0) {
        out->request.path = text; /* of the message */
        return wrong_text(p);
    }
    if (loads && strcmp(name, "config") == 0) {
        out->request.config = text; /* of the message */
        return wrong_text(p);
    }
    /* No model depends on another. */
    return !loads && strcmp(name, "unload_dependents") == 0 ? NULL : "is unknown";
}

/* Begins the operation. false: the call has its error. */
static bool begin(weft_grpc_call *call, const char *model, parameters *p, bool loads)
{
    const char *patterns = weft_access__models(call->access, &call->presented);
    weft_repository_refusal refusal;
    p->request.patterns = patterns;
    if (!weft_repository__may_change(patterns, model)) {
        weft_grpc__fail_call(call, WEFT_GRPC_NOT_FOUND, "there is no such model");
        return false;
    }
    call->operation = (weft_operation_wait){.done = on_end};
    if ((loads ? weft_repository__load : weft_repository__unload)(
            call->deployment, call->repository, model, &p->request, &call->operation, &refusal))
        return true;
    weft_grpc__fail_call(call, weft_grpc__status_of(refusal.answer), "%s", refusal.text);
    return false;
}

bool weft_grpc__load_model(weft_grpc_call *call, const ProtobufCMessage *in)
{
    const Inference__RepositoryModelLoadRequest *r = (const void *)in;
    parameters p = {0};
    for (size_t i = 0; i < r->n_parameters; i++) {
        const char *wrong =
            take_parameter(r->parameters[i]->key, r->parameters[i]->value, true, &p);
        if (!wrong)
            continue;
        weft_grpc__fail_call(call, WEFT_GRPC_INVALID_ARGUMENT, "parameter '%.64s' %s",
                             r->parameters[i]->key, wrong);
        return false;
    }
    return begin(call, r->model_name, &p, true);
}

bool weft_grpc__unload_model(weft_grpc_call *call, const ProtobufCMessage *in)
{
    const Inference__RepositoryModelUnloadRequest *r = (const void *)in;
    parameters p = {0};
    for (size_t i = 0; i < r->n_parameters; i++) {
        const char *wrong =
            take_parameter(r->parameters[i]->key, r->parameters[i]->value, false, &p);
        if (!wrong)
            continue;
        weft_grpc__fail_call(call, WEFT_GRPC_INVALID_ARGUMENT, "parameter '%.64s' %s",
                             r->parameters[i]->key, wrong);
        return false;
    }
    return begin(call, r->model_name, &p, false);
}
