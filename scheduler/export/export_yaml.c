/* Writes YAML by libyaml's emitter. Keys are written in the order of the calls, so equal plans give
 * equal bytes. An error is kept until weft_export_yaml__finish reports it. */
#include "scheduler/export/export_int.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int write_bytes(void *user, unsigned char *bytes, size_t len)
{
    weft_export_yaml *y = user;
    weft_buf_add(&y->buf, bytes, len);
    return !y->buf.failed;
}

static void emit(weft_export_yaml *y, yaml_event_t *event, int ok)
{
    if (!ok || y->failed) {
        if (ok)
            yaml_event_delete(event);
        y->failed = true;
        return;
    }
    y->failed = !yaml_emitter_emit(&y->emitter, event);
}

void weft_export_yaml__begin(weft_export_yaml *y)
{
    yaml_event_t event;
    *y = (weft_export_yaml){0};
    if (!yaml_emitter_initialize(&y->emitter)) {
        y->failed = true;
        return;
    }
    y->open = true;
    yaml_emitter_set_output(&y->emitter, write_bytes, y);
    yaml_emitter_set_width(&y->emitter, -1);
    yaml_emitter_set_unicode(&y->emitter, 0);
    emit(y, &event, yaml_stream_start_event_initialize(&event, YAML_UTF8_ENCODING));
}

static void end_document(weft_export_yaml *y)
{
    yaml_event_t event;
    if (y->depth > 0)
        emit(y, &event, yaml_document_end_event_initialize(&event, 1));
    y->depth = 0;
}

void weft_export_yaml__document(weft_export_yaml *y)
{
    yaml_event_t event;
    bool first = y->depth == 0;
    end_document(y);
    emit(y, &event, yaml_document_start_event_initialize(&event, NULL, NULL, NULL, first));
    y->depth = 1;
}

char *weft_export_yaml__finish(weft_export_yaml *y)
{
    yaml_event_t event;
    end_document(y);
    emit(y, &event, yaml_stream_end_event_initialize(&event));
    if (y->open)
        yaml_emitter_delete(&y->emitter);
    if (y->failed || y->buf.failed || !y->buf.at) {
        weft_buf_finish(&y->buf);
        return NULL;
    }
    return y->buf.at;
}

void weft_export_yaml__map(weft_export_yaml *y)
{
    yaml_event_t event;
    emit(y, &event,
         yaml_mapping_start_event_initialize(&event, NULL, NULL, 1, YAML_BLOCK_MAPPING_STYLE));
}

void weft_export_yaml__seq(weft_export_yaml *y)
{
    yaml_event_t event;
    emit(y, &event,
         yaml_sequence_start_event_initialize(&event, NULL, NULL, 1, YAML_BLOCK_SEQUENCE_STYLE));
}

void weft_export_yaml__end_map(weft_export_yaml *y)
{
    yaml_event_t event;
    emit(y, &event, yaml_mapping_end_event_initialize(&event));
}

void weft_export_yaml__end_seq(weft_export_yaml *y)
{
    yaml_event_t event;
    emit(y, &event, yaml_sequence_end_event_initialize(&event));
}

static void scalar(weft_export_yaml *y, const char *text, bool quoted)
{
    yaml_event_t event;
    emit(y, &event,
         yaml_scalar_event_initialize(
             &event, NULL, NULL, (const yaml_char_t *)text, (int)strlen(text), !quoted, quoted,
             quoted ? YAML_DOUBLE_QUOTED_SCALAR_STYLE : YAML_PLAIN_SCALAR_STYLE));
}

/* Whether some YAML reader would take the plain text for something other than a string. */
static bool must_quote(const char *text)
{
    static const char *const words[] = {"true", "false", "null", "yes", "no",  "on",
                                        "off",  "y",     "n",    "nan", "inf", "none"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcasecmp(text, words[i]) == 0)
            return true;
    if (!isalpha((unsigned char)text[0]) && text[0] != '/')
        return true;
    for (const char *c = text; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("-_./", *c))
            return true;
    return false;
}

void weft_export_yaml__text(weft_export_yaml *y, const char *text)
{
    scalar(y, text, must_quote(text));
}

void weft_export_yaml__number(weft_export_yaml *y, int64_t number)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)number);
    scalar(y, text, false);
}

void weft_export_yaml__bool(weft_export_yaml *y, bool value)
{
    scalar(y, value ? "true" : "false", false);
}

void weft_export_yaml__put(weft_export_yaml *y, const char *key, const char *text)
{
    weft_export_yaml__text(y, key);
    weft_export_yaml__text(y, text);
}

void weft_export_yaml__put_number(weft_export_yaml *y, const char *key, int64_t number)
{
    weft_export_yaml__text(y, key);
    weft_export_yaml__number(y, number);
}

void weft_export_yaml__put_bool(weft_export_yaml *y, const char *key, bool value)
{
    weft_export_yaml__text(y, key);
    weft_export_yaml__bool(y, value);
}

void weft_export_yaml__open_map(weft_export_yaml *y, const char *key)
{
    weft_export_yaml__text(y, key);
    weft_export_yaml__map(y);
}

void weft_export_yaml__open_seq(weft_export_yaml *y, const char *key)
{
    weft_export_yaml__text(y, key);
    weft_export_yaml__seq(y);
}
