/* Messages are formatted when they are added, each into one allocation of its own: a list has few
 * of them, and diagnostics must work when an arena has just run out. */
#include "base/diag.h"

#include "base/escape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGES_MAX = 100 };

struct weft_diag {
    weft_message kept[MESSAGES_MAX + 1];
    void *owned[MESSAGES_MAX];
    size_t len;
    size_t dropped; /* messages that found no room; a note at the end of the list counts them */
    char more[64];
};

weft_diag *weft_diag_create(void)
{
    return calloc(1, sizeof(weft_diag));
}

void weft_diag_cut(weft_diag *diag, size_t count)
{
    while (diag && diag->len > count)
        free(diag->owned[--diag->len]);
}

void weft_diag_clear(weft_diag *diag)
{
    weft_diag_cut(diag, 0);
    if (diag)
        diag->dropped = 0;
}

void weft_diag_destroy(weft_diag *diag)
{
    weft_diag_clear(diag);
    free(diag);
}

static void count_dropped(weft_diag *diag)
{
    diag->dropped++;
    snprintf(diag->more, sizeof diag->more, "%zu more messages", diag->dropped);
    weft_message note = {.severity = WEFT_SEV_NOTE, .text = diag->more};
    diag->kept[MESSAGES_MAX] = note;
}

/* Makes room in a full list for an error, which matters more than the last warning or note. */
static void drop_lesser(weft_diag *diag)
{
    for (size_t i = diag->len; i-- > 0;) {
        if (diag->kept[i].severity == WEFT_SEV_ERROR)
            continue;
        free(diag->owned[i]);
        diag->len--;
        count_dropped(diag);
        memmove(&diag->kept[i], &diag->kept[i + 1], (diag->len - i) * sizeof diag->kept[0]);
        memmove(&diag->owned[i], &diag->owned[i + 1], (diag->len - i) * sizeof diag->owned[0]);
        return;
    }
}

/* Copies `s` to *at without control characters, and moves *at behind it. */
static const char *copy_text(char **at, const char *s)
{
    if (!s)
        return NULL;
    char *copy = *at;
    size_t size = weft_escape_controls(s, NULL, 0) + 1;
    weft_escape_controls(s, copy, size);
    *at += size;
    return copy;
}

static void keep_message(weft_diag *diag, weft_message msg, const char *text)
{
    size_t size = 0;
    const char *part[3] = {text, msg.file, msg.item};
    for (int i = 0; i < 3; i++)
        size += part[i] ? weft_escape_controls(part[i], NULL, 0) + 1 : 0;
    char *at = text ? malloc(size) : NULL;
    diag->owned[diag->len] = at;
    msg.text = at ? copy_text(&at, text) : "out of memory for the text of a message";
    msg.file = at ? copy_text(&at, msg.file) : NULL;
    msg.item = at ? copy_text(&at, msg.item) : NULL;
    diag->kept[diag->len++] = msg;
}

/* Messages quote names and values of files, so what they may hold is escaped here. */
static void add_message(weft_diag *diag, weft_message msg, const char *fmt, va_list ap)
{
    if (!diag)
        return;
    if (diag->len == MESSAGES_MAX && msg.severity == WEFT_SEV_ERROR)
        drop_lesser(diag);
    if (diag->len == MESSAGES_MAX) {
        count_dropped(diag);
        return;
    }
    char *text = NULL;
    if (vasprintf(&text, fmt, ap) < 0)
        text = NULL;
    keep_message(diag, msg, text);
    free(text);
}

weft_err weft_diag_error(weft_diag *diag, weft_err err, weft_where where, const char *fmt, ...)
{
    weft_message msg = {.severity = WEFT_SEV_ERROR,
                        .err = err,
                        .file = where.file,
                        .item = where.item,
                        .line = where.line};
    va_list ap;
    va_start(ap, fmt);
    add_message(diag, msg, fmt, ap);
    va_end(ap);
    return err;
}

void weft_diag_warn(weft_diag *diag, weft_where where, const char *fmt, ...)
{
    weft_message msg = {
        .severity = WEFT_SEV_WARNING, .file = where.file, .item = where.item, .line = where.line};
    va_list ap;
    va_start(ap, fmt);
    add_message(diag, msg, fmt, ap);
    va_end(ap);
}

void weft_diag_note(weft_diag *diag, weft_where where, const char *fmt, ...)
{
    weft_message msg = {
        .severity = WEFT_SEV_NOTE, .file = where.file, .item = where.item, .line = where.line};
    va_list ap;
    va_start(ap, fmt);
    add_message(diag, msg, fmt, ap);
    va_end(ap);
}

size_t weft_diag_count(const weft_diag *diag)
{
    return diag ? diag->len + (diag->dropped > 0) : 0;
}

const weft_message *weft_diag_at(const weft_diag *diag, size_t i)
{
    return i < weft_diag_count(diag) ? &diag->kept[i] : NULL;
}

size_t weft_diag_format(const weft_message *msg, char *buf, size_t size)
{
    const char *file = msg->file ? msg->file : "";
    const char *item = msg->item ? msg->item : "";
    char line[16] = "";
    if (msg->line)
        snprintf(line, sizeof line, "%s%u", *file ? ":" : "line ", (unsigned)msg->line);
    /* "net.wir:3: %x: text", but "net.onnx:Conv_12: text": an item stands in for a line. */
    const char *middle = !*item || !(*file || *line) ? "" : *line ? ": " : ":";
    const char *end = *file || *line || *item ? ": " : "";
    int len = snprintf(size ? buf : NULL, size, "%s%s%s%s%s%s", file, line, middle, item, end,
                       msg->text ? msg->text : "");
    return len < 0 ? 0 : (size_t)len;
}
