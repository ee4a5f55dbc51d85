/* The settings as Triton's clients know them:
 *
 *   log:    log_info, log_warning, log_error (flags), log_verbose_level (from 1 on: a line for each
 *           request), log_format ("default"), log_file (""). The levels of Weft contain each other,
 *           so log_info is log_warning as well, and errors are always written.
 *   trace:  trace_level (OFF, TIMESTAMPS), trace_rate (one request of so many), trace_count (-1),
 *           log_frequency (0), trace_mode (opentelemetry). The file is the server's (--trace).
 *
 * Neither names a file that clients chose. */
#include "runtime/server/settings.h"

#include "base/num.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static weft_setting flag(const char *name, bool on)
{
    return (weft_setting){.name = name, .kind = WEFT_SETTING_FLAG, .flag = on};
}

static weft_setting text_setting(const char *name, bool many, const char *fmt, ...)
    WEFT_PRINTF(3, 4);

static weft_setting text_setting(const char *name, bool many, const char *fmt, ...)
{
    weft_setting s = {.name = name, .kind = WEFT_SETTING_TEXT, .many = many};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(s.text, sizeof s.text, fmt, ap);
    va_end(ap);
    return s;
}

/* -- Log ------------------------------------------------------------------------------------ */

size_t weft_settings__list_log(weft_setting *out)
{
    size_t n = 0;
    out[n++] = text_setting("log_file", false, "%s", "");
    out[n++] = flag("log_info", weft_log__is_on(WEFT_LOG_INFO));
    out[n++] = flag("log_warning", weft_log__is_on(WEFT_LOG_WARN));
    out[n++] = flag("log_error", true);
    out[n++] = (weft_setting){.name = "log_verbose_level",
                              .kind = WEFT_SETTING_COUNT,
                              .count = weft_log__is_on(WEFT_LOG_ACCESS)};
    out[n++] = text_setting("log_format", false, "default");
    return n;
}

/* The level that a setting of a flag or count switches; ERROR: none. */
static weft_log_level level_of(const weft_setting *s)
{
    if (strcmp(s->name, "log_info") == 0 && s->kind == WEFT_SETTING_FLAG)
        return WEFT_LOG_INFO;
    if (strcmp(s->name, "log_warning") == 0 && s->kind == WEFT_SETTING_FLAG)
        return WEFT_LOG_WARN;
    if (strcmp(s->name, "log_verbose_level") == 0 && s->kind == WEFT_SETTING_COUNT)
        return WEFT_LOG_ACCESS;
    return WEFT_LOG_ERROR;
}

/* Whether the setting says what is so anyway. */
static bool is_as_it_is(const weft_setting *s)
{
    if (s->kind == WEFT_SETTING_FLAG)
        return strcmp(s->name, "log_error") == 0 && s->flag;
    return s->kind == WEFT_SETTING_TEXT &&
           ((strcmp(s->name, "log_format") == 0 && strcmp(s->text, "default") == 0) ||
            (strcmp(s->name, "log_file") == 0 && !s->text[0]));
}

weft_answer weft_settings__change_log(const weft_setting *set, size_t n, char *text)
{
    bool on[WEFT_LOG_ACCESS + 1];
    for (int i = 0; i <= WEFT_LOG_ACCESS; i++)
        on[i] = weft_log__is_on((weft_log_level)i);
    for (size_t i = 0; i < n; i++) {
        weft_log_level level = level_of(&set[i]);
        if (level != WEFT_LOG_ERROR)
            on[level] = set[i].kind == WEFT_SETTING_FLAG ? set[i].flag : set[i].count > 0;
        else if (!is_as_it_is(&set[i]))
            return weft_answer__refuse(
                WEFT_ANSWER_INVALID, text,
                "'%.32s' cannot be set so: log_info and log_warning are true or false, "
                "log_verbose_level a number; errors are always written, to the server's "
                "standard error, in its own format",
                set[i].name);
    }
    weft_log_level level = WEFT_LOG_ERROR;
    for (int i = 0; i <= WEFT_LOG_ACCESS; i++)
        level = on[i] ? (weft_log_level)i : level;
    weft_log__set_level(level);
    return WEFT_ANSWER_OK;
}

/* -- Traces --------------------------------------------------------------------------------- */

size_t weft_settings__list_trace(const weft_spans *spans, weft_setting *out)
{
    weft_spans_rate now = weft_spans__rate(spans);
    size_t n = 0;
    out[n++] = text_setting("trace_level", true, now.on ? "TIMESTAMPS" : "OFF");
    out[n++] = text_setting("trace_rate", false, "%.0f", now.rate > 0 ? 1 / now.rate : 0);
    out[n++] = text_setting("trace_count", false, "-1");
    out[n++] = text_setting("log_frequency", false, "0");
    out[n++] = text_setting("trace_mode", false, "opentelemetry");
    return n;
}

static bool says(const weft_setting *s, const char *name, const char *text)
{
    return strcmp(s->name, name) == 0 &&
           (s->kind == WEFT_SETTING_NONE ||
            (s->kind == WEFT_SETTING_TEXT && strcmp(s->text, text) == 0));
}

/* NULL: taken; else what is wrong. */
static const char *take_trace(const weft_setting *s, weft_spans_rate first, weft_spans_rate *now)
{
    int64_t every = 0;
    bool clears = s->kind == WEFT_SETTING_NONE;
    if (strcmp(s->name, "trace_level") == 0) {
        bool on = says(s, "trace_level", "TIMESTAMPS");
        if (!on && !says(s, "trace_level", "OFF"))
            return "is OFF or TIMESTAMPS";
        now->on = clears ? first.on : on;
        return NULL;
    }
    if (strcmp(s->name, "trace_rate") == 0) {
        bool ok = s->kind == WEFT_SETTING_TEXT && weft_parse_i64(s->text, &every) && every > 0;
        if (!clears && !ok)
            return "is a number from 1 on";
        now->rate = clears ? first.rate : 1 / (double)every;
        return NULL;
    }
    if (says(s, "trace_count", "-1") || says(s, "log_frequency", "0") ||
        says(s, "trace_mode", "opentelemetry"))
        return NULL;
    return "cannot be set so: the file of spans is the server's (--trace-file), and has all of "
           "them";
}

weft_answer weft_settings__change_trace(weft_spans *spans, const char *model,
                                        const weft_setting *set, size_t n, char *text)
{
    weft_spans_rate first = weft_spans__first_rate(spans), now = weft_spans__rate(spans);
    if (n == 0)
        return WEFT_ANSWER_OK;
    if (model && model[0])
        return weft_answer__refuse(WEFT_ANSWER_UNSUPPORTED, text,
                                   "trace settings of one model are not supported");
    for (size_t i = 0; i < n; i++) {
        const char *wrong = take_trace(&set[i], first, &now);
        if (wrong)
            return weft_answer__refuse(WEFT_ANSWER_INVALID, text, "'%.32s' %s", set[i].name, wrong);
    }
    if (now.on && !first.on)
        return weft_answer__refuse(
            WEFT_ANSWER_INVALID, text,
            "spans have no file: the server was started without --trace-file");
    weft_spans__set_rate(spans, now);
    return WEFT_ANSWER_OK;
}
