/* Heads of HTTP/1 answers, from a server that is not trusted. */
#include "tools/server/replay.h"

#include <string.h>
#include <strings.h>

static weft_replay_read bad(weft_replay_head *out, const char *why)
{
    out->why = why;
    return WEFT_REPLAY_BAD;
}

/* Returns the size of the head with its empty line; 0: it is not complete. */
static size_t find_end(const char *at, size_t len)
{
    const char *end = memmem(at, len, "\r\n\r\n", 4);
    return end ? (size_t)(end - at) + 4 : 0;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* "HTTP/1.1 200 OK" */
static bool read_status(const char *line, size_t len, weft_replay_head *out)
{
    if (len < 12 || memcmp(line, "HTTP/1.", 7) != 0 || (line[7] != '0' && line[7] != '1') ||
        line[8] != ' ' || !is_digit(line[9]) || !is_digit(line[10]) || !is_digit(line[11]) ||
        (len > 12 && line[12] != ' '))
        return false;
    out->status = (uint32_t)((line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0'));
    out->close = line[7] == '0';
    return out->status >= 200 && out->status <= 599;
}

static bool is_named(const char *line, size_t name_len, const char *name)
{
    return name_len == strlen(name) && strncasecmp(line, name, name_len) == 0;
}

static bool read_length(const char *text, size_t len, uint64_t *out)
{
    if (len == 0 || len > 18)
        return false;
    *out = 0;
    for (size_t i = 0; i < len; i++) {
        if (!is_digit(text[i]))
            return false;
        *out = *out * 10 + (uint64_t)(text[i] - '0');
    }
    return true;
}

/* Reads one field; NULL, or why it is refused. */
static const char *read_field(const char *line, size_t len, weft_replay_head *out, bool *has_length)
{
    const char *colon = memchr(line, ':', len);
    if (!colon || colon == line || line[0] == ' ' || line[0] == '\t')
        return "a field without a name";
    size_t name_len = (size_t)(colon - line), value_len = len - name_len - 1;
    const char *value = colon + 1;
    while (value_len > 0 && (*value == ' ' || *value == '\t'))
        value++, value_len--;
    while (value_len > 0 && (value[value_len - 1] == ' ' || value[value_len - 1] == '\t'))
        value_len--;
    if (is_named(line, name_len, "transfer-encoding"))
        return "Transfer-Encoding, which weft replay does not read";
    if (is_named(line, name_len, "connection") && is_named(value, value_len, "close"))
        out->close = true;
    if (!is_named(line, name_len, "content-length"))
        return NULL;
    if (*has_length || !read_length(value, value_len, &out->length))
        return "a wrong Content-Length";
    *has_length = true;
    return NULL;
}

weft_replay_read weft_replay_read_head(const char *at, size_t len, weft_replay_head *out)
{
    *out = (weft_replay_head){0};
    size_t size = find_end(at, len < WEFT_REPLAY_HEAD_MAX ? len : WEFT_REPLAY_HEAD_MAX);
    if (size == 0)
        return len < WEFT_REPLAY_HEAD_MAX ? WEFT_REPLAY_MORE : bad(out, "a head above 16 KiB");
    bool first = true, has_length = false;
    for (size_t from = 0; from < size - 2;) {
        const char *end = memmem(at + from, size - from, "\r\n", 2);
        size_t line_len = (size_t)(end - (at + from));
        if (memchr(at + from, '\0', line_len) || memchr(at + from, '\n', line_len) ||
            memchr(at + from, '\r', line_len))
            return bad(out, "a control character in its head");
        if (first) {
            if (!read_status(at + from, line_len, out))
                return bad(out, "a wrong status line");
        } else {
            const char *why = read_field(at + from, line_len, out, &has_length);
            if (why)
                return bad(out, why);
        }
        first = false;
        from += line_len + 2;
    }
    if (!has_length && out->status != 204 && out->status != 304)
        return bad(out, "no Content-Length");
    out->size = size;
    return WEFT_REPLAY_DONE;
}
