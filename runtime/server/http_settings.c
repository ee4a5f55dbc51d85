/* The routes of log and trace settings over HTTP. */
#include "runtime/server/http_int.h"
#include "runtime/server/oip_int.h"
#include "runtime/server/settings.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static void reply_log(http_exchange *x)
{
    weft_setting list[WEFT_SETTINGS_MAX];
    weft_http__reply(x, 200, weft_oip__settings(list, weft_settings__list_log(list)),
                     "application/json");
}

static void reply_trace(http_exchange *x)
{
    weft_setting list[WEFT_SETTINGS_MAX];
    size_t n = weft_settings__list_trace(x->http->front.spans, list);
    weft_http__reply(x, 200, weft_oip__settings(list, n), "application/json");
}

/* `name` is borrowed. false: a value of no kind that settings have. */
static bool read_setting(const char *name, const json_t *value, weft_setting *out)
{
    *out = (weft_setting){.name = name, .kind = WEFT_SETTING_TEXT};
    if (json_is_array(value) && json_array_size(value) == 1)
        value = json_array_get(value, 0);
    const char *text = json_string_value(value);
    if (json_is_null(value))
        out->kind = WEFT_SETTING_NONE;
    else if (json_is_boolean(value)) {
        out->kind = WEFT_SETTING_FLAG;
        out->flag = json_is_true(value);
    } else if (json_is_integer(value)) {
        json_int_t n = json_integer_value(value);
        out->kind = WEFT_SETTING_COUNT;
        out->count = (uint32_t)n;
        return n >= 0 && n <= UINT32_MAX;
    } else if (!text || strlen(text) >= sizeof out->text)
        return false;
    else
        strcpy(out->text, text);
    return true;
}

/* Reads an object of settings, which refer to *out_root. false: the exchange has its error. */
static bool read_settings(http_exchange *x, json_t **out_root, weft_setting *out, size_t *out_n)
{
    const char *name;
    json_t *value;
    *out_root = x->len <= HTTP_PARAMETERS_BYTES
                    ? json_loadb(x->body, x->len, JSON_REJECT_DUPLICATES, NULL)
                    : NULL;
    bool ok = json_is_object(*out_root) && json_object_size(*out_root) <= WEFT_SETTINGS_MAX;
    *out_n = 0;
    json_object_foreach(*out_root, name, value)
    {
        ok = ok && read_setting(name, value, &out[*out_n]);
        *out_n += ok;
    }
    if (!ok)
        weft_http__fail(
            x, 400, "the body is no JSON object of settings and their values, of at most %d bytes",
            HTTP_PARAMETERS_BYTES);
    return ok;
}

void weft_http__settings(http_exchange *x, bool of_log, bool changes)
{
    weft_setting set[WEFT_SETTINGS_MAX];
    size_t n = 0;
    json_t *root = NULL;
    weft_answer answer = WEFT_ANSWER_OK;
    const char *model =
        x->model == UINT32_MAX
            ? NULL
            : weft_bundle_served(weft_router__model(x->http->router, x->model).program);
    if (!changes || read_settings(x, &root, set, &n)) {
        if (changes)
            answer =
                of_log ? weft_settings__change_log(set, n, x->error)
                       : weft_settings__change_trace(x->http->front.spans, model, set, n, x->error);
        if (answer != WEFT_ANSWER_OK)
            x->status = weft_http__status_of(answer);
        else if (of_log)
            reply_log(x);
        else
            reply_trace(x);
    }
    json_decref(root);
}
