/* The methods of log and trace settings over gRPC. */
#include "runtime/server/grpc_int.h"
#include "runtime/server/settings.h"

#include "grpc_service.pb-c.h"

#include <string.h>

/* Whether the number of settings can be right; else the call has its error. */
static bool is_few(weft_grpc_call *call, size_t n)
{
    if (n <= WEFT_SETTINGS_MAX)
        return true;
    weft_grpc__fail_call(call, WEFT_GRPC_INVALID_ARGUMENT, "there are not so many settings");
    return false;
}

/* false: the text is longer than any value; the call has its error. */
static bool take_text(weft_grpc_call *call, const char *text, weft_setting *out)
{
    if (strlen(text) < sizeof out->text) {
        strcpy(out->text, text);
        return true;
    }
    weft_grpc__fail_call(call, WEFT_GRPC_INVALID_ARGUMENT, "'%.32s' has no such value", out->name);
    return false;
}

/* -- Log ------------------------------------------------------------------------------------ */

static bool read_log(weft_grpc_call *call, const Inference__LogSettingsRequest *r,
                     weft_setting *out)
{
    for (size_t i = 0; i < r->n_settings; i++) {
        const Inference__LogSettingsRequest__SettingValue *v = r->settings[i]->value;
        out[i] = (weft_setting){.name = r->settings[i]->key, .kind = WEFT_SETTING_NONE};
        int which = v ? (int)v->parameter_choice_case : 0;
        if (which == INFERENCE__LOG_SETTINGS_REQUEST__SETTING_VALUE__PARAMETER_CHOICE_BOOL_PARAM) {
            out[i].kind = WEFT_SETTING_FLAG;
            out[i].flag = v->bool_param;
        } else if (which ==
                   INFERENCE__LOG_SETTINGS_REQUEST__SETTING_VALUE__PARAMETER_CHOICE_UINT32_PARAM) {
            out[i].kind = WEFT_SETTING_COUNT;
            out[i].count = v->uint32_param;
        } else if (which ==
                   INFERENCE__LOG_SETTINGS_REQUEST__SETTING_VALUE__PARAMETER_CHOICE_STRING_PARAM) {
            out[i].kind = WEFT_SETTING_TEXT;
            if (!take_text(call, v->string_param, &out[i]))
                return false;
        }
    }
    return true;
}

static Inference__LogSettingsResponse__SettingsEntry *put_log(weft_arena *arena,
                                                              const weft_setting *s)
{
    typedef Inference__LogSettingsResponse__SettingValue setting_value;
    Inference__LogSettingsResponse__SettingsEntry *e = weft_arena_alloc(arena, sizeof *e);
    setting_value *v = weft_arena_alloc(arena, sizeof *v);
    inference__log_settings_response__settings_entry__init(e);
    inference__log_settings_response__setting_value__init(v);
    e->key = (char *)s->name;
    e->value = v;
    if (s->kind == WEFT_SETTING_FLAG) {
        v->parameter_choice_case =
            INFERENCE__LOG_SETTINGS_RESPONSE__SETTING_VALUE__PARAMETER_CHOICE_BOOL_PARAM;
        v->bool_param = s->flag;
    } else if (s->kind == WEFT_SETTING_COUNT) {
        v->parameter_choice_case =
            INFERENCE__LOG_SETTINGS_RESPONSE__SETTING_VALUE__PARAMETER_CHOICE_UINT32_PARAM;
        v->uint32_param = s->count;
    } else {
        v->parameter_choice_case =
            INFERENCE__LOG_SETTINGS_RESPONSE__SETTING_VALUE__PARAMETER_CHOICE_STRING_PARAM;
        v->string_param = weft_arena_strdup(arena, s->text);
    }
    return e;
}

ProtobufCMessage *weft_grpc__log_settings(weft_grpc_call *call, weft_arena *arena,
                                          const ProtobufCMessage *in)
{
    const Inference__LogSettingsRequest *request = (const void *)in;
    weft_setting list[WEFT_SETTINGS_MAX];
    if (!is_few(call, request->n_settings) || !read_log(call, request, list))
        return NULL;
    call->status =
        weft_grpc__status_of(weft_settings__change_log(list, request->n_settings, call->text));
    if (call->status != WEFT_GRPC_OK)
        return NULL;
    Inference__LogSettingsResponse *r = weft_arena_alloc(arena, sizeof *r);
    inference__log_settings_response__init(r);
    r->n_settings = weft_settings__list_log(list);
    r->settings = weft_arena_array(arena, r->n_settings, sizeof *r->settings);
    for (size_t i = 0; i < r->n_settings; i++)
        r->settings[i] = put_log(arena, &list[i]);
    return &r->base;
}

/* -- Traces --------------------------------------------------------------------------------- */

static bool read_trace(weft_grpc_call *call, const Inference__TraceSettingRequest *r,
                       weft_setting *out)
{
    for (size_t i = 0; i < r->n_settings; i++) {
        const Inference__TraceSettingRequest__SettingValue *v = r->settings[i]->value;
        size_t n = v ? v->n_value : 0;
        out[i] = (weft_setting){.name = r->settings[i]->key,
                                .kind = n ? WEFT_SETTING_TEXT : WEFT_SETTING_NONE};
        if (n == 1 && !take_text(call, v->value[0], &out[i]))
            return false;
    }
    return true;
}

static Inference__TraceSettingResponse__SettingsEntry *put_trace(weft_arena *arena,
                                                                 const weft_setting *s)
{
    typedef Inference__TraceSettingResponse__SettingValue setting_value;
    Inference__TraceSettingResponse__SettingsEntry *e = weft_arena_alloc(arena, sizeof *e);
    setting_value *v = weft_arena_alloc(arena, sizeof *v);
    inference__trace_setting_response__settings_entry__init(e);
    inference__trace_setting_response__setting_value__init(v);
    e->key = (char *)s->name;
    e->value = v;
    v->n_value = 1;
    v->value = weft_arena_alloc(arena, sizeof *v->value);
    v->value[0] = weft_arena_strdup(arena, s->text);
    return e;
}

ProtobufCMessage *weft_grpc__trace_setting(weft_grpc_call *call, weft_arena *arena,
                                           const ProtobufCMessage *in)
{
    const Inference__TraceSettingRequest *request = (const void *)in;
    weft_setting list[WEFT_SETTINGS_MAX];
    if (!is_few(call, request->n_settings) || !read_trace(call, request, list))
        return NULL;
    call->status = weft_grpc__status_of(weft_settings__change_trace(
        call->spans, request->model_name, list, request->n_settings, call->text));
    if (call->status != WEFT_GRPC_OK)
        return NULL;
    Inference__TraceSettingResponse *r = weft_arena_alloc(arena, sizeof *r);
    inference__trace_setting_response__init(r);
    r->n_settings = weft_settings__list_trace(call->spans, list);
    r->settings = weft_arena_array(arena, r->n_settings, sizeof *r->settings);
    for (size_t i = 0; i < r->n_settings; i++)
        r->settings[i] = put_trace(arena, &list[i]);
    return &r->base;
}
