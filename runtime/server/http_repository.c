/* The routes of the model repository over HTTP: a client waits until its model is loaded or
 * unloaded. */
#include "runtime/server/http_int.h"

#include <jansson.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static void on_end(weft_operation_wait *wait, weft_answer answer, const char *error)
{
    http_exchange *x = (http_exchange *)((char *)wait - offsetof(http_exchange, operation));
    x->waiting = false;
    if (error)
        weft_http__fail(x, weft_http__status_of(answer), "%s", error);
    else
        weft_http__reply(x, 200, strdup("{}"), "application/json");
    x->resume(x);
}

/* -- Parameters ------------------------------------------------------------------------------- */

typedef struct parameters {
    weft_repository_request request;
    char version[WEFT_VERSION_MAX], path[HTTP_PARAMETERS_BYTES], config[HTTP_PARAMETERS_BYTES];
} parameters;

static bool take_version(http_exchange *x, const json_t *value, parameters *out)
{
    const char *text = json_string_value(value);
    char number[32];
    if (json_is_integer(value)) {
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
        text = number;
    }
    if (!text || !weft_serve_is_version(text)) {
        weft_http__fail(x, 400, "'version' is a number from 1 on");
        return false;
    }
    strcpy(out->version, text);
    out->request.version = out->version;
    return true;
}

/* NULL: the value is no text, or an empty one; the exchange has its error. */
static const char *take_text(http_exchange *x, const char *name, const json_t *value,
                             char out[HTTP_PARAMETERS_BYTES])
{
    const char *text = json_string_value(value);
    if (text && *text && strlen(text) < HTTP_PARAMETERS_BYTES)
        return strcpy(out, text);
    weft_http__fail(x, 400, "'%s' is a text", name);
    return NULL;
}

static bool take_parameter(http_exchange *x, const char *name, const json_t *value, bool loads,
                           parameters *out)
{
    if (strcmp(name, "version") == 0)
        return take_version(x, value, out);
    if (loads && strcmp(name, "weight") == 0) {
        out->request.has_weight = true;
        out->request.weight = json_number_value(value);
        if (json_is_number(value) && out->request.weight >= 0 && out->request.weight <= 1e6)
            return true;
        weft_http__fail(x, 400, "'weight' is a number from 0 to 1000000");
        return false;
    }
    if (loads && strcmp(name, "path") == 0)
        return (out->request.path = take_text(x, name, value, out->path)) != NULL;
    if (loads && strcmp(name, "config") == 0)
        return (out->request.config = take_text(x, name, value, out->config)) != NULL;
    if (!loads && strcmp(name, "unload_dependents") == 0)
        return true; /* no model depends on another */
    weft_http__fail(x, 400, "parameter '%.64s' is not supported", name);
    return false;
}

/* Reads {"parameters": {...}}; the body may be empty. false: the exchange has its error. */
static bool read_parameters(http_exchange *x, bool loads, parameters *out)
{
    const char *name;
    json_t *value;
    *out = (parameters){0};
    if (x->len == 0)
        return true;
    json_t *root = x->len <= HTTP_PARAMETERS_BYTES
                       ? json_loadb(x->body, x->len, JSON_REJECT_DUPLICATES, NULL)
                       : NULL;
    json_t *list = json_object_get(root, "parameters");
    bool ok = json_is_object(root) && (!list || json_is_object(list));
    if (!ok)
        weft_http__fail(
            x, 400, "the body is no JSON object with an object 'parameters', of at most %d bytes",
            HTTP_PARAMETERS_BYTES);
    json_object_foreach(list, name, value)
    {
        ok = ok && take_parameter(x, name, value, loads, out);
    }
    json_decref(root);
    return ok;
}

/* -- Routes ----------------------------------------------------------------------------------- */

void weft_http__change_model(http_exchange *x, bool loads)
{
    const weft_front *front = &x->http->front;
    const char *folder = x->http->options->repository;
    const char *patterns = weft_access__models(front->access, &x->presented);
    parameters p;
    weft_repository_refusal refusal;
    if (!x->name || !weft_repository__may_change(patterns, x->name)) {
        weft_http__fail(x, 404, "there is no such model");
        return;
    }
    if (!read_parameters(x, loads, &p))
        return;
    x->operation = (weft_operation_wait){.done = on_end};
    x->waiting = (loads ? weft_repository__load : weft_repository__unload)(
        front->deployment, folder, x->name, &p.request, &x->operation, &refusal);
    if (!x->waiting)
        weft_http__fail(x, weft_http__status_of(refusal.answer), "%s", refusal.text);
}

/* {"ready": true} asks for models that are ready. */
void weft_http__list_models(http_exchange *x)
{
    json_t *root = x->len && x->len <= HTTP_PARAMETERS_BYTES
                       ? json_loadb(x->body, x->len, JSON_REJECT_DUPLICATES, NULL)
                       : NULL;
    bool ready = json_is_true(json_object_get(root, "ready"));
    json_decref(root);
    weft_http__begin_list(x, HTTP_LIST_INDEX, ready);
}
