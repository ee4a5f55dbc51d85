/* The server's log: one line for each event on standard error, as text or JSON (--log-format).
 *
 * A line never waits: where standard error takes no more, the line is dropped, and the next one
 * tells how many were. A disk that becomes full may take a part of a line; the next line begins
 * anew. */
#include "base/str.h"
#include "runtime/server/serve_int.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* At most PIPE_BUF: a pipe that is ready for writing takes so much at once. */
enum { LINE_BYTES = 4096, VALUE_BYTES = 256 };

static struct {
    bool json;
    _Atomic weft_log_level level;
    uint64_t dropped;
    bool cut; /* the last line is not whole */
} state = {.level = WEFT_LOG_WARN};

void weft_log__configure(bool json, weft_log_level level)
{
    state.json = json;
    state.level = level;
}

void weft_log__set_level(weft_log_level level)
{
    state.level = level;
}

bool weft_log__is_on(weft_log_level level)
{
    return level <= state.level;
}

static void put_time(weft_buf *out)
{
    struct timespec now;
    struct tm utc;
    char text[32];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
    weft_buf_printf(out, "%s.%06ldZ", text, now.tv_nsec / 1000);
}

/* A value in quotes, cut to VALUE_BYTES, in ASCII: JSON's escapes are used in both formats. */
void weft_log__put_text(weft_buf *out, const char *text)
{
    weft_buf_putc(out, '"');
    for (size_t i = 0; text[i] && i < VALUE_BYTES; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            weft_buf_printf(out, "\\%c", c);
        else if (c < 0x20 || c >= 0x7f)
            weft_buf_printf(out, "\\u%04x", c);
        else
            weft_buf_putc(out, (char)c);
    }
    weft_buf_putc(out, '"');
}

static void put_field(weft_buf *out, const weft_log_field *f)
{
    weft_buf_printf(out, state.json ? ",\"%s\":" : " %s=", f->key);
    if (f->text)
        weft_log__put_text(out, f->text);
    else
        weft_buf_put_f64(out, f->number);
}

/* Writes the line if standard error takes it without waiting. */
static bool write_line(const weft_buf *line)
{
    struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&ready, 1, 0) != 1 || !(ready.revents & POLLOUT))
        return false;
    ssize_t n = write(STDERR_FILENO, line->at, line->len);
    if (n > 0)
        state.cut = line->at[n - 1] != '\n';
    return n == (ssize_t)line->len;
}

void weft_log__write(weft_log_level level, const char *event, const weft_log_field *field, size_t n)
{
    static const char *const names[] = {"error", "warn", "info", "access"};
    weft_buf line = {0};
    if (!weft_log__is_on(level))
        return;
    weft_buf_puts(&line, state.cut ? "\n" : "");
    weft_buf_puts(&line, state.json ? "{\"ts\":\"" : "");
    put_time(&line);
    weft_buf_printf(&line, state.json ? "\",\"level\":\"%s\",\"event\":\"%s\"" : " %s %s",
                    names[level], event);
    for (size_t i = 0; i < n; i++)
        put_field(&line, &field[i]);
    if (state.dropped)
        put_field(&line, &(weft_log_field){.key = "dropped", .number = (double)state.dropped});
    weft_buf_puts(&line, state.json ? "}\n" : "\n");
    if (!line.failed && line.len <= LINE_BYTES && write_line(&line))
        state.dropped = 0;
    else
        state.dropped++;
    weft_buf_finish(&line);
}
