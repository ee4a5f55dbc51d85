/* Chunked bodies (RFC 9112, 7.1) and the segments of paths (RFC 3986, 3.3). */
#include "runtime/server/http1_parse.h"

#include <string.h>

/* -- Chunks --------------------------------------------------------------------------------- */

enum { DIGITS_MAX = 16 };

/* What the next byte belongs to. */
enum {
    SIZE,      /* digits of the size of a chunk */
    EXTENSION, /* behind the size, up to the end of its line */
    SIZE_LF,   /* end of the line of a size */
    DATA,      /* of the chunk */
    DATA_CR,   /* the end of the data */
    DATA_LF,
    TRAILER, /* first byte of a line behind the last chunk */
    TRAILER_NAME,
    TRAILER_VALUE,
    TRAILER_LF,
    LAST_LF, /* end of the empty line at the end */
    END
};

static http1_result refuse(http1_chunks *c, unsigned status, const char *error)
{
    c->status = status;
    c->error = error;
    return HTTP1_BAD;
}

static int digit_of(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static http1_result take_size(http1_chunks *c, char byte)
{
    int digit = digit_of(byte);
    if (digit >= 0) {
        if (c->n_digit++ == DIGITS_MAX)
            return refuse(c, 400, "the size of a chunk is too long");
        c->left = c->left << 4 | (uint64_t)digit;
        return HTTP1_MORE;
    }
    if (c->n_digit == 0 || (byte != '\r' && byte != ';'))
        return refuse(c, 400, "the size of a chunk is not a hexadecimal number");
    c->state = byte == '\r' ? SIZE_LF : EXTENSION;
    return HTTP1_MORE;
}

static http1_result end_size(http1_chunks *c, char byte)
{
    if (byte != '\n')
        return refuse(c, 400, "the line of a chunk's size does not end with CR LF");
    if (c->left > c->limit - c->n_data)
        return refuse(c, 413, "the body is too large");
    c->n_data += c->left;
    c->state = c->left ? DATA : TRAILER;
    c->n_digit = c->n_extension = 0;
    return HTTP1_MORE;
}

static http1_result take_trailer(http1_chunks *c, char byte)
{
    bool last = c->state == TRAILER && byte == '\r';
    if (++c->n_trailer > HTTP1_TRAILER_MAX)
        return refuse(c, 431, "the trailers are too large");
    if (last)
        c->state = LAST_LF;
    else if (c->state == TRAILER_NAME && byte == ':')
        c->state = TRAILER_VALUE;
    else if (c->state == TRAILER_VALUE && byte == '\r')
        c->state = TRAILER_LF;
    else if (c->state == TRAILER_VALUE ? !weft_http1__is_text(byte) : !weft_http1__is_token(byte))
        return refuse(c, 400, "a trailer is not NAME: VALUE");
    else if (c->state == TRAILER)
        c->state = TRAILER_NAME;
    return HTTP1_MORE;
}

/* One byte of framing. */
static http1_result take_byte(http1_chunks *c, char byte)
{
    if (++c->overhead > HTTP1_OVERHEAD_FREE + c->n_data)
        return refuse(c, 400, "the body has too many small chunks");
    switch (c->state) {
    case SIZE:
        return take_size(c, byte);
    case EXTENSION:
        if (byte == '\r')
            c->state = SIZE_LF;
        else if (!weft_http1__is_text(byte) || ++c->n_extension > HTTP1_EXTENSION_MAX)
            return refuse(c, 400, "a chunk has a wrong extension");
        return HTTP1_MORE;
    case SIZE_LF:
        return end_size(c, byte);
    case DATA_CR:
    case DATA_LF:
        if (byte != (c->state == DATA_CR ? '\r' : '\n'))
            return refuse(c, 400, "the data of a chunk does not end with CR LF");
        c->state = c->state == DATA_CR ? DATA_LF : SIZE;
        return HTTP1_MORE;
    case TRAILER_LF:
    case LAST_LF:
        if (byte != '\n')
            return refuse(c, 400, "a carriage return without a line feed");
        c->state = c->state == LAST_LF ? END : TRAILER;
        return c->state == END ? HTTP1_DONE : HTTP1_MORE;
    default:
        return take_trailer(c, byte);
    }
}

http1_result weft_http1__read_chunk(http1_chunks *c, const char *at, size_t len, size_t *out_used,
                                    const char **out_data, size_t *out_len)
{
    size_t used = 0;
    http1_result result = HTTP1_MORE;
    *out_data = at;
    *out_len = 0;
    while (result == HTTP1_MORE && used < len) {
        if (c->state != DATA) {
            result = take_byte(c, at[used++]);
            continue;
        }
        size_t n = len - used;
        *out_data = at + used;
        *out_len = c->left < n ? (size_t)c->left : n;
        c->left -= *out_len;
        used += *out_len;
        if (c->left == 0)
            c->state = DATA_CR;
        break;
    }
    *out_used = used;
    return result;
}

/* -- Paths ---------------------------------------------------------------------------------- */

/* Characters that no client has reason to encode (RFC 3986, 2.3); `~` was reserved once. */
static bool is_unreserved(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_';
}

/* Decodes one segment into `text`. Returns NULL, or why it is refused. What a proxy that compares
 * paths without decoding them would take for another path is refused. */
static const char *decode(const char *raw, size_t len, char *text, size_t *out_len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        char c = raw[i];
        if (c == '%') {
            int high = i + 2 < len ? digit_of(raw[i + 1]) : -1;
            int low = i + 2 < len ? digit_of(raw[i + 2]) : -1;
            if (high < 0 || low < 0)
                return "the path has a wrong percent encoding";
            c = (char)(high << 4 | low);
            i += 2;
            if (c == '/')
                return "the path has an encoded slash";
            if (is_unreserved(c))
                return "the path has an encoded letter, digit, dash, dot or underscore";
        }
        if (c == '\\' || (unsigned char)c < 0x20 || c == 0x7f)
            return "the path has a backslash or a control character";
        text[n++] = c;
    }
    if ((n == 1 && text[0] == '.') || (n == 2 && text[0] == '.' && text[1] == '.'))
        return "the path has a dot segment";
    *out_len = n;
    return NULL;
}

const char *weft_http1__split_path(const char *raw, size_t len, char *text, http1_path *out)
{
    size_t at = 0;
    out->n = 0;
    while (at < len) {
        size_t start = at + 1, n = 0; /* behind the slash */
        const char *slash = start < len ? memchr(raw + start, '/', len - start) : NULL;
        size_t end = slash ? (size_t)(slash - raw) : len;
        if (end == start && len > 1)
            return "the path has an empty segment";
        const char *why = decode(raw + start, end - start, text, &n);
        if (why)
            return why;
        if (end > start && out->n < HTTP1_SEGMENTS_MAX) {
            out->at[out->n] = text;
            out->len[out->n] = n;
        }
        if (end > start && out->n <= HTTP1_SEGMENTS_MAX)
            out->n++;
        text += n;
        at = end;
    }
    return NULL;
}
