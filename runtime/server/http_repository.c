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
    char version[WEFT_VERSION_MAX];
    json_t *root; /* the body, with the texts of the request; owned; NULL: none */
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

/* NULL: the exchange has its error. */
static const char *take_text(http_exchange *x, const char *name, const json_t *value)
{
    const char *text = json_string_value(value);
    if (text && *text)
        return text;
    weft_http__fail(x, 400, "'%s' is %s", name, text ? "empty" : "no text");
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
        return (out->request.path = take_text(x, name, value)) != NULL;
    if (loads && strcmp(name, "config") == 0)
        return (out->request.config = take_text(x, name, value)) != NULL;
    if (!loads && strcmp(name, "unload_dependents") == 0)
        return true; /* no model depends on another */
    weft_http__fail(x, 400, "parameter '%.64s' is not supported", name);
    return false;
}

/* Reads {"parameters": {...}}; the body may be empty. false: the exchange has its error. The root
 * is the caller's in both cases. */
static bool read_parameters(http_exchange *x, bool loads, parameters *out)
{
    const char *name;
    json_t *value;
    size_t most = loads ? HTTP_LOAD_BYTES : HTTP_PARAMETERS_BYTES;
    *out = (parameters){0};
    if (x->len == 0)
        return true;
    if (x->len > most) {
        weft_http__fail(x, 400, "the body has %zu bytes: at most %zu bytes are read", x->len, most);
        return false;
    }
    out->root = json_loadb(x->body, x->len, JSON_REJECT_DUPLICATES, NULL);
    json_t *list = json_object_get(out->root, "parameters");
    bool ok = json_is_object(out->root) && (!list || json_is_object(list));
    if (!ok)
        weft_http__fail(x, 400, "the body is no JSON object with an object 'parameters'");
    json_object_foreach(list, name, value)
    {
        ok = ok && take_parameter(x, name, value, loads, out);
    }
    return ok;
}

/* -- Routes ----------------------------------------------------------------------------------- */

static void begin(http_exchange *x, const weft_repository_request *request, bool loads)
{
    weft_repository_refusal refusal;
    x->operation = (weft_operation_wait){.done = on_end};
    x->waiting = (loads ? weft_repository__load : weft_repository__unload)(
        x->http->front.deployment, x->http->options->repository, x->name, request, &x->operation,
        &refusal);
    if (!x->waiting)
        weft_http__fail(x, weft_http__status_of(refusal.answer), "%s", refusal.text);
}

void weft_http__change_model(http_exchange *x, bool loads)
{
    const char *patterns = weft_access__models(x->http->front.access, &x->presented);
    parameters p;
    if (!x->name || !weft_repository__may_change(patterns, x->name)) {
        weft_http__fail(x, 404, "there is no such model");
        return;
    }
    bool ok = read_parameters(x, loads, &p);
    p.request.patterns = patterns;
    if (ok)
        begin(x, &p.request, loads);
    json_decref(p.root);
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
