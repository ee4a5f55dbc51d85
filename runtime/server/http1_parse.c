/* Heads of HTTP/1.1 requests: a scan for the ends of lines that refuses control characters, and a
 * parser for each line. Both work in the order of the bytes, so that the first error is the same
 * for every split of the input. Section numbers are of RFC 9112 unless another RFC is named. */
#include "runtime/server/http1_parse.h"

#include <string.h>
#include <strings.h>

/* -- Characters ----------------------------------------------------------------------------- */

enum { TOKEN = 1, TARGET = 2, HOST = 4 };

/* RFC 9110, 5.6.2: tchar. RFC 3986: characters of a path or query, and of a host with port. */
enum { O, K = TOKEN, R = TARGET, H = HOST, G = TARGET | HOST, A = TOKEN | TARGET | HOST };
/* clang-format off */
static const unsigned char classes[128] = {
    O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, /* control */
    O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, /* control */
    O, A, O, K, A, A, A, A, G, G, A, A, G, A, A, R, /* !"#$%&'()*+,-./ */
    A, A, A, A, A, A, A, A, A, A, G, G, O, G, O, R, /* 0-9:;<=>? */
    R, A, A, A, A, A, A, A, A, A, A, A, A, A, A, A, /* @A-O */
    A, A, A, A, A, A, A, A, A, A, A, H, O, H, K, A, /* P-Z[\]^_ */
    K, A, A, A, A, A, A, A, A, A, A, A, A, A, A, A, /* `a-o */
    A, A, A, A, A, A, A, A, A, A, A, O, K, O, A, O, /* p-z{|}~ */
};
/* clang-format on */

static unsigned class_of(unsigned char c)
{
    return c < sizeof classes ? classes[c] : 0;
}

static bool all_of(const char *at, size_t len, unsigned class)
{
    for (size_t i = 0; i < len; i++)
        if (!(class_of((unsigned char)at[i]) & class))
            return false;
    return true;
}

bool weft_http1__is_text(char c)
{
    unsigned char u = (unsigned char)c;
    return (u >= 0x20 && u != 0x7f) || u == '\t';
}

bool weft_http1__is_token(char c)
{
    return class_of((unsigned char)c) & TOKEN;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool equals(const char *at, size_t len, const char *lower)
{
    return strlen(lower) == len && strncasecmp(at, lower, len) == 0;
}

static http1_result refuse(http1_head *h, unsigned status, const char *error)
{
    h->status = status;
    h->error = error;
    return HTTP1_BAD;
}

/* -- Request line (3) ----------------------------------------------------------------------- */

static bool read_method(const char *at, size_t len, http1_method *out)
{
    static const char *const names[] = {
        [HTTP1_GET] = "GET",         [HTTP1_HEAD] = "HEAD",     [HTTP1_POST] = "POST",
        [HTTP1_PUT] = "PUT",         [HTTP1_DELETE] = "DELETE", [HTTP1_PATCH] = "PATCH",
        [HTTP1_OPTIONS] = "OPTIONS", [HTTP1_TRACE] = "TRACE"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i]) == len && memcmp(names[i], at, len) == 0) {
            *out = (http1_method)i;
            return true;
        }
    return false;
}

/* "HTTP/1.0" or "HTTP/1.x" with one digit. */
static http1_result read_version(http1_head *h, const char *at, size_t len)
{
    if (len < 5 || memcmp(at, "HTTP/", 5) != 0)
        return refuse(h, 400, "the request line is not METHOD TARGET HTTP/1.1");
    for (size_t i = 5; i < len; i++)
        if ((at[i] < '0' || at[i] > '9') && at[i] != '.')
            return refuse(h, 400, "the request line is not METHOD TARGET HTTP/1.1");
    if (len != 8 || at[5] != '1' || at[6] != '.' || at[7] == '.')
        return refuse(h, 505, "the server speaks HTTP/1.1");
    h->minor = at[7] == '0' ? 0 : 1;
    return HTTP1_DONE;
}

/* Length of "http://host:port" before the path of an absolute target; 0: not absolute. */
static size_t authority_len(const char *at, size_t len)
{
    size_t scheme = len >= 7 && strncasecmp(at, "http://", 7) == 0    ? 7
                    : len >= 8 && strncasecmp(at, "https://", 8) == 0 ? 8
                                                                      : 0;
    size_t end = scheme;
    while (end < len && at[end] != '/' && at[end] != '?')
        end++;
    return scheme && end > scheme && all_of(at + scheme, end - scheme, HOST) ? end : 0;
}

/* Origin form, absolute form (whose authority says nothing here: the server is one host), or "*"
 * for OPTIONS (3.2). */
static http1_result read_target(http1_head *h, const char *at, uint32_t start, uint32_t len)
{
    const char *target = at + start;
    if (len == 1 && *target == '*' && h->method == HTTP1_OPTIONS) {
        h->asterisk = true;
        return HTTP1_DONE;
    }
    size_t skip = *target == '/' ? 0 : authority_len(target, len);
    if (*target != '/' && skip == 0)
        return refuse(h, 400, "the target is neither a path nor an http URL");
    if (!all_of(target + skip, len - skip, TARGET))
        return refuse(h, 400, "the target has a character that must be percent-encoded");
    const char *query = memchr(target + skip, '?', len - skip);
    size_t end = query ? (size_t)(query - target) : len;
    h->path = (http1_span){start + (uint32_t)skip, (uint32_t)(end - skip)};
    return HTTP1_DONE;
}

static http1_result read_request_line(http1_head *h, const char *at, uint32_t start, uint32_t end)
{
    const char *line = at + start;
    size_t len = end - start;
    const char *space = memchr(line, ' ', len);
    const char *second = space ? memchr(space + 1, ' ', len - (size_t)(space + 1 - line)) : NULL;
    if (!second || space == line || second == space + 1 ||
        !all_of(line, (size_t)(space - line), TOKEN))
        return refuse(h, 400, "the request line is not METHOD TARGET HTTP/1.1");
    http1_result result = read_version(h, second + 1, len - (size_t)(second + 1 - line));
    if (result == HTTP1_BAD)
        return result;
    if (!read_method(line, (size_t)(space - line), &h->method))
        return refuse(h, 501, "the method is not supported");
    return read_target(h, at, start + (uint32_t)(space + 1 - line), (uint32_t)(second - space - 1));
}

/* -- Fields (5) ----------------------------------------------------------------------------- */

static http1_result read_field(http1_head *h, const char *at, uint32_t start, uint32_t end)
{
    uint32_t colon = start, from, to = end;
    if (is_blank(at[start]))
        return refuse(h, 400, "a header line begins with a blank");
    while (colon < end && weft_http1__is_token(at[colon]))
        colon++;
    if (colon == start || colon == end || at[colon] != ':')
        return refuse(h, 400, "a header line is not NAME: VALUE");
    if (h->n_field == HTTP1_FIELDS_MAX)
        return refuse(h, 431, "too many header fields");
    for (from = colon + 1; from < end && is_blank(at[from]); from++)
        ;
    while (to > from && is_blank(at[to - 1]))
        to--;
    h->field[h->n_field].name = (http1_span){start, colon - start};
    h->field[h->n_field++].value = (http1_span){from, to - from};
    return HTTP1_DONE;
}

/* Number of fields of this name; *out: the value of the last. */
static uint32_t count(const http1_head *h, const char *at, const char *name, http1_span *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < h->n_field; i++)
        if (equals(at + h->field[i].name.at, h->field[i].name.len, name)) {
            *out = h->field[i].value;
            n++;
        }
    return n;
}

/* -- What the fields mean ------------------------------------------------------------------- */

/* Content-Length: 1*DIGIT, below 2^63 (6.3, rule 5). */
static http1_result read_length(http1_head *h, const char *at, http1_span value)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < value.len; i++) {
        char c = at[value.at + i];
        uint64_t digit = (uint64_t)(c - '0');
        if (c < '0' || c > '9')
            return refuse(h, 400, "Content-Length is not a number");
        if (n > ((uint64_t)INT64_MAX - digit) / 10)
            return refuse(h, 400, "Content-Length is too large");
        n = n * 10 + digit;
    }
    if (value.len == 0)
        return refuse(h, 400, "Content-Length is not a number");
    h->length = n;
    return HTTP1_DONE;
}

/* How long the body is (6.3). A request in which two ways are given, or one of them twice, is read
 * differently by different programs. */
static http1_result read_framing(http1_head *h, const char *at)
{
    http1_span coding, length;
    uint32_t n_coding = count(h, at, "transfer-encoding", &coding);
    uint32_t n_length = count(h, at, "content-length", &length);
    if (n_coding + n_length > 1)
        return refuse(h, 400, "more than one Content-Length or Transfer-Encoding");
    if (n_coding && h->minor == 0)
        return refuse(h, 400, "HTTP/1.0 has no Transfer-Encoding");
    if (n_coding && !equals(at + coding.at, coding.len, "chunked"))
        return refuse(h, 501, "the transfer coding is not 'chunked'");
    h->chunked = n_coding == 1;
    return n_length ? read_length(h, at, length) : HTTP1_DONE;
}

/* Whether a list of tokens, in all fields of a name, has this one. */
static bool lists(const http1_head *h, const char *at, const char *name, const char *token)
{
    for (uint32_t i = 0; i < h->n_field; i++) {
        if (!equals(at + h->field[i].name.at, h->field[i].name.len, name))
            continue;
        const char *p = at + h->field[i].value.at, *end = p + h->field[i].value.len;
        while (p < end) {
            const char *comma = memchr(p, ',', (size_t)(end - p));
            const char *next = comma ? comma + 1 : end, *to = comma ? comma : end;
            while (p < to && is_blank(*p))
                p++;
            while (to > p && is_blank(to[-1]))
                to--;
            if (equals(p, (size_t)(to - p), token))
                return true;
            p = next;
        }
    }
    return false;
}

/* Fields that may stand only once: a proxy could read the other one. */
static const char *const single[] = {
    "content-type",  "content-encoding", "inference-header-content-length",
    "authorization", "x-api-key",        "expect"};

static http1_result read_meaning(http1_head *h, const char *at)
{
    http1_span value = {0};
    uint32_t n_host = count(h, at, "host", &value);
    if (n_host > 1 || (n_host == 0 && h->minor == 1) ||
        (n_host && !all_of(at + value.at, value.len, HOST)))
        return refuse(h, 400, "a request has one valid Host");
    http1_result result = read_framing(h, at);
    if (result == HTTP1_BAD)
        return result;
    for (size_t i = 0; i < sizeof single / sizeof single[0]; i++)
        if (count(h, at, single[i], &value) > 1)
            return refuse(h, 400, "a header field that may stand once stands twice");
    /* RFC 9110, 10.1.1: a client of HTTP/1.0 cannot expect anything. */
    if (h->minor == 1 && count(h, at, "expect", &value)) {
        if (!equals(at + value.at, value.len, "100-continue"))
            return refuse(h, 417, "the server meets no expectation but 100-continue");
        h->expects_continue = true;
    }
    h->keep_alive = !lists(h, at, "connection", "close") &&
                    (h->minor == 1 || lists(h, at, "connection", "keep-alive"));
    return HTTP1_DONE;
}

enum { BLOCK = 16 };

/* -- Lines (2.2) ---------------------------------------------------------------------------- */

/* Handles the line [head->line, end). MORE: it was not the last. */
static http1_result take_line(http1_head *h, const char *at, uint32_t end)
{
    http1_result result;
    if (!h->begun && end == h->line && !h->skipped_line) {
        /* One empty line before a request is ignored. */
        h->skipped_line = true;
        return HTTP1_MORE;
    }
    if (h->begun && end == h->line) {
        h->size = end + 2;
        return read_meaning(h, at);
    }
    result = h->begun ? read_field(h, at, h->line, end) : read_request_line(h, at, h->line, end);
    h->begun = true;
    return result == HTTP1_BAD ? result : HTTP1_MORE;
}

/* Length of whole blocks of plain text at the start; what follows is looked at byte by byte. */
static uint32_t skip_text(const char *at, uint32_t len)
{
    uint32_t n = 0;
    for (; n + BLOCK <= len; n += BLOCK) {
        unsigned other = 0;
        for (uint32_t i = 0; i < BLOCK; i++) {
            unsigned char u = (unsigned char)at[n + i];
            other |= (unsigned)(u < 0x20) | (unsigned)(u == 0x7f);
        }
        if (other)
            break;
    }
    return n;
}

http1_result weft_http1__read_head(http1_head *h, const char *at, size_t len)
{
    uint32_t end = len < HTTP1_HEAD_MAX ? (uint32_t)len : HTTP1_HEAD_MAX;
    while (h->scan < end) {
        if (h->begun && !h->after_cr)
            h->scan += skip_text(at + h->scan, end - h->scan);
        if (h->scan == end)
            break;
        char c = at[h->scan];
        if (h->after_cr) {
            if (c != '\n')
                return refuse(h, 400, "a carriage return without a line feed");
            h->after_cr = false;
            http1_result result = take_line(h, at, h->scan - 1);
            h->line = ++h->scan;
            if (result != HTTP1_MORE)
                return result;
            continue;
        }
        if (c == '\r')
            h->after_cr = true;
        else if (!weft_http1__is_text(c))
            return refuse(h, 400, "a control character in the head");
        else if (!h->begun && h->scan - h->line >= HTTP1_LINE_MAX)
            return refuse(h, 414, "the request line is too long");
        h->scan++;
    }
    return h->scan < HTTP1_HEAD_MAX ? HTTP1_MORE : refuse(h, 431, "the head is too large");
}

bool weft_http1__is_field(const http1_head *h, const char *at, uint32_t i, const char *name)
{
    return equals(at + h->field[i].name.at, h->field[i].name.len, name);
}

bool weft_http1__field(const http1_head *h, const char *at, const char *name, http1_span *out)
{
    for (uint32_t i = 0; i < h->n_field; i++)
        if (equals(at + h->field[i].name.at, h->field[i].name.len, name)) {
            *out = h->field[i].value;
            return true;
        }
    return false;
}
