/* One HTTP exchange: the body as it arrives, decoded where it is compressed, and the answer. */
#include "runtime/server/http_int.h"
#include "runtime/server/regions.h"
#include "runtime/server/zip.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    FIRST_BYTES = 4096,
    SMALL_BYTES = 4096,   /* answers up to it are always given */
    LARGE_BYTES = 1 << 20 /* bodies above may not take the last quarter of what can be held */
};

/* -- Body ----------------------------------------------------------------------------------- */

/* Whether an exchange that holds `have` bytes of a kind may hold `cap`. Small requests have a
 * quarter of the bytes to themselves, and one address may hold a quarter. */
static bool may_hold(const http_exchange *x, size_t have, size_t cap)
{
    const weft_http *http = x->http;
    uint64_t more = cap - have, quarter = http->held_max / 4;
    uint64_t max = cap > LARGE_BYTES ? http->held_max - quarter : http->held_max;
    bool shared = x->peer && !x->peer->exempt;
    /* Outputs may be larger than all that: one at a time, where there is little else. */
    if (http->held_bytes <= quarter && (!shared || x->peer->held_bytes == 0))
        return true;
    if (shared && x->peer->held_bytes + more > quarter)
        return false;
    return http->held_bytes + more <= max;
}

static void release(http_exchange *x, uint64_t bytes)
{
    x->http->held_bytes -= bytes;
    if (x->peer)
        x->peer->held_bytes -= bytes;
}

/* Counts `cap` bytes instead of `have`. false: the exchange has its error. */
static bool hold(http_exchange *x, size_t have, size_t cap)
{
    weft_http *http = x->http;
    if (cap <= have) {
        release(x, have - cap);
        return true;
    }
    if (!may_hold(x, have, cap) && http->relieve)
        http->relieve(http, cap - have);
    if (!may_hold(x, have, cap)) {
        http->counts.refused++;
        weft_http__fail(x, 503, "too many bytes are held by other requests");
        return false;
    }
    http->held_bytes += cap - have;
    if (x->peer)
        x->peer->held_bytes += cap - have;
    return true;
}

static bool grow(http_exchange *x, size_t cap)
{
    if (!hold(x, x->cap, cap))
        return false;
    char *body = realloc(x->body, cap);
    if (!body) {
        release(x, cap - x->cap);
        weft_http__fail(x, 500, "out of memory");
        return false;
    }
    x->body = body;
    x->cap = cap;
    return true;
}

bool weft_http__body_room(http_exchange *x, uint64_t len, size_t *out_room)
{
    if (len > x->http->max_body || x->len > x->http->max_body - len) {
        weft_http__fail_size(x);
        return false;
    }
    if (x->len == x->cap) {
        /* Doubled, so that bytes that have not arrived cost at most as much as those that have. */
        size_t cap = x->cap ? x->cap * 2 : FIRST_BYTES;
        if (x->announced && cap > x->announced && x->announced > x->len)
            cap = (size_t)x->announced;
        if (!grow(x, cap))
            return false;
    }
    *out_room = x->cap - x->len < len ? x->cap - x->len : (size_t)len;
    return true;
}

bool weft_http__add_body(http_exchange *x, const char *data, size_t len)
{
    while (len) {
        size_t room = 0;
        if (!weft_http__body_room(x, len, &room))
            return false;
        memcpy(x->body + x->len, data, room);
        x->len += room;
        data += room;
        len -= room;
    }
    return true;
}

void weft_http__drop_body(http_exchange *x)
{
    release(x, x->cap);
    weft_offload__free(x->http->offload, x->body, x->cap);
    x->body = NULL;
    x->len = x->cap = 0;
}

/* -- Tensors -------------------------------------------------------------------------------- */

/* Counts tensors of so many bytes instead of those counted before. */
static bool hold_tensors(http_exchange *x, size_t bytes)
{
    if (!hold(x, x->decoded, bytes))
        return false;
    x->decoded = bytes;
    return true;
}

bool weft_http__hold_inputs(http_exchange *x)
{
    const weft_oip_infer *infer = x->infer;
    size_t bytes = weft_regions__input_bytes(infer->request);
    bool in_body = false;
    for (uint32_t i = 0; i < infer->program->n_input; i++) {
        if (infer->in_data[i])
            bytes += weft_tensor_bytes(&infer->request->in[i]);
        else
            in_body = in_body || !weft_regions__has_input(infer->request, i);
    }
    if (!in_body)
        weft_http__drop_body(x);
    return hold_tensors(x, bytes);
}

static void drop_inputs(http_exchange *x)
{
    const weft_oip_infer *infer = x->infer;
    weft_http__drop_body(x);
    for (uint32_t i = 0; infer && i < infer->program->n_input; i++) {
        if (infer->in_data[i])
            weft_offload__free(x->http->offload, infer->in_data[i],
                               weft_tensor_bytes(&infer->request->in[i]));
        infer->in_data[i] = NULL;
    }
    if (infer)
        weft_regions__drop_inputs(infer->request, x->http->offload);
}

void weft_http__drop_infer(http_exchange *x)
{
    drop_inputs(x);
    weft_oip__destroy_infer(x->infer);
    x->infer = NULL;
}

static size_t output_bytes(const weft_oip_infer *infer)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < infer->program->n_output; i++)
        bytes += weft_tensor_bytes(&infer->request->out[i]);
    return bytes;
}

bool weft_http__hold_outputs(http_exchange *x)
{
    drop_inputs(x);
    return hold_tensors(x, output_bytes(x->infer));
}

/* The answer is written, or there is none. */
static void drop_tensors(http_exchange *x)
{
    drop_inputs(x);
    if (x->infer) {
        weft_payload__release(x->infer->request->outputs, x->http->offload);
        x->infer->request->outputs = NULL;
    }
    release(x, x->decoded);
    x->decoded = 0;
}

/* -- Decompression -------------------------------------------------------------------------- */

bool weft_http__begin_decode(http_exchange *x, size_t limit)
{
    size_t most = weft_zip__most(x->len, x->http->max_body);
    most = most < limit ? most : limit;
    if (!hold(x, x->plain_max, most))
        return false;
    x->plain_max = most;
    return true;
}

static void drop_plain(http_exchange *x)
{
    release(x, x->plain_max);
    weft_offload__free(x->http->offload, x->plain, x->plain_len);
    x->plain = NULL;
    x->plain_len = x->plain_max = 0;
}

/* gzip or deflate (zlib); the size limit applies to the decompressed body as well. */
bool weft_http__decode(http_exchange *x)
{
    weft_zip_result result =
        weft_zip__unpack(x->body, x->len, x->plain_max, &x->plain, &x->plain_len);
    if (result == WEFT_ZIP_TOO_LARGE && x->plain_max < weft_zip__most(x->len, x->http->max_body))
        return false;
    if (result == WEFT_ZIP_NOMEM)
        weft_http__fail(x, 500, "out of memory");
    else if (result == WEFT_ZIP_DAMAGED)
        weft_http__fail(x, 400, "the compressed body is damaged");
    else if (result == WEFT_ZIP_TOO_LARGE && x->plain_max == x->http->max_body)
        weft_http__fail_size(x);
    else if (result == WEFT_ZIP_TOO_LARGE)
        weft_http__fail(x, 400, "the body is more than %d times larger than its compressed form",
                        WEFT_ZIP_RATIO_MAX);
    return true;
}

bool weft_http__end_decode(http_exchange *x)
{
    x->compressed = false;
    weft_http__drop_body(x);
    if (x->status) {
        drop_plain(x);
        return false;
    }
    x->body = x->plain;
    x->len = x->plain_len;
    x->cap = x->plain_max; /* as it is counted; the memory has at most twice the length */
    x->plain = NULL;
    x->plain_len = x->plain_max = 0;
    if (x->len < x->cap) {
        char *body = realloc(x->body, x->len + 1);
        x->body = body ? body : x->body;
        release(x, x->cap - x->len);
        x->cap = x->len;
    }
    return true;
}

/* -- Answer --------------------------------------------------------------------------------- */

unsigned weft_http__status_of(weft_answer answer)
{
    static const unsigned statuses[] = {
        [WEFT_ANSWER_OK] = 200,          [WEFT_ANSWER_INVALID] = 400,
        [WEFT_ANSWER_NOT_FOUND] = 404,   [WEFT_ANSWER_UNSUPPORTED] = 501,
        [WEFT_ANSWER_UNAVAILABLE] = 503, [WEFT_ANSWER_OVERLOADED] = 503,
        [WEFT_ANSWER_INTERNAL] = 500};
    return statuses[answer];
}

void weft_http__fail(http_exchange *x, unsigned status, const char *fmt, ...)
{
    va_list ap;
    x->status = status;
    va_start(ap, fmt);
    vsnprintf(x->error, sizeof x->error, fmt, ap);
    va_end(ap);
}

void weft_http__fail_size(http_exchange *x)
{
    weft_http__fail(x, 400, "the request is larger than %llu bytes",
                    (unsigned long long)x->http->max_body);
}

void weft_http__reply(http_exchange *x, unsigned status, char *text, const char *type)
{
    if (!text) {
        weft_http__fail(x, 500, "out of memory");
        return;
    }
    x->status = status;
    x->reply = text;
    x->reply_len = strlen(text);
    x->reply_type = type;
}

static const char *reason_of(unsigned status)
{
    static const struct {
        unsigned status;
        const char *text;
    } reasons[] = {{200, "OK"},
                   {400, "Bad Request"},
                   {401, "Unauthorized"},
                   {403, "Forbidden"},
                   {404, "Not Found"},
                   {405, "Method Not Allowed"},
                   {408, "Request Timeout"},
                   {413, "Content Too Large"},
                   {414, "URI Too Long"},
                   {417, "Expectation Failed"},
                   {429, "Too Many Requests"},
                   {431, "Request Header Fields Too Large"},
                   {500, "Internal Server Error"},
                   {501, "Not Implemented"},
                   {503, "Service Unavailable"},
                   {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        if (reasons[i].status == status)
            return reasons[i].text;
    return "Unknown";
}

/* The header field Date, RFC 9110, 5.6.7. The names do not depend on the locale. */
static const char *date_of(weft_http *http)
{
    static const char days[][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char months[][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    time_t now = (time_t)(weft_clock__wall_ms() / 1000);
    struct tm t;
    if (now != http->date_s && gmtime_r(&now, &t)) {
        http->date_s = now;
        snprintf(http->date, sizeof http->date, "Date: %s, %02d %s %d %02d:%02d:%02d GMT\r\n",
                 days[t.tm_wday % 7], t.tm_mday, months[t.tm_mon % 12], t.tm_year + 1900, t.tm_hour,
                 t.tm_min, t.tm_sec);
    }
    return http->date;
}

/* Text of a fixed size. */
typedef struct head_text {
    char *at;
    size_t len, size;
} head_text;

static void put(head_text *t, const char *text)
{
    size_t len = strlen(text);
    if (len <= t->size - t->len)
        memcpy(t->at + t->len, text, len);
    t->len = len <= t->size - t->len ? t->len + len : t->size;
}

static void put_number(head_text *t, const char *name, uint64_t n)
{
    char text[24];
    size_t at = sizeof text;
    text[--at] = '\0';
    text[--at] = '\n';
    text[--at] = '\r';
    do
        text[--at] = (char)('0' + n % 10);
    while (n /= 10);
    put(t, name);
    put(t, text + at);
}

static void put_field(head_text *t, const char *name, const char *value)
{
    put(t, name);
    put(t, value);
    put(t, "\r\n");
}

/* Counts the answer as held instead of the request. One that is not small gives way to an error
 * when too many bytes are held. */
static void hold_reply(http_exchange *x)
{
    drop_tensors(x);
    if (x->reply_len > SMALL_BYTES && !hold(x, 0, x->reply_len)) {
        weft_offload__free(x->http->offload, x->reply, x->reply_len);
        x->reply = NULL;
        x->reply_len = 0;
    } else
        x->charged = x->reply_len > SMALL_BYTES ? x->reply_len : 0;
}

size_t weft_http__write_head(http_exchange *x, const char *option, char *out, size_t size)
{
    head_text t = {.at = out, .size = size};
    hold_reply(x);
    if (!x->reply) {
        x->reply = weft_oip__error(x->error);
        x->reply_len = x->reply ? strlen(x->reply) : 0;
        x->reply_type = "application/json";
        x->json_len = 0;
    }
    const char status[] = {' ',
                           (char)('0' + x->status / 100 % 10),
                           (char)('0' + x->status / 10 % 10),
                           (char)('0' + x->status % 10),
                           ' ',
                           '\0'};
    put(&t, "HTTP/1.1");
    put_field(&t, status, reason_of(x->status));
    put(&t, date_of(x->http));
    put_field(&t, "Content-Type: ", x->reply_type);
    put_number(&t, "Content-Length: ", x->reply_len);
    if (x->json_len)
        put_number(&t, "Inference-Header-Content-Length: ", x->json_len);
    if (x->accept_encoding)
        put(&t, "Accept-Encoding: gzip, deflate\r\n");
    if (x->field)
        put(&t, x->field);
    if (x->allow)
        put_field(&t, "Allow: ", x->allow);
    if (*option)
        put_field(&t, "Connection: ", option);
    put(&t, "\r\n");
    return t.len < size ? t.len : 0;
}

void weft_http__end_use(http_exchange *x)
{
    if (x->in_use)
        weft_router__end_use(x->http->router, x->model);
    x->in_use = false;
}

void weft_http__free_exchange(http_exchange *x)
{
    drop_tensors(x);
    weft_oip__destroy_infer(x->infer);
    weft_http__end_use(x);
    if (x->route && x->model != UINT32_MAX)
        weft_router__release(x->http->router, x->model);
    weft_deployment__forget(&x->operation);
    weft_listing__leave(x->http->front.listings, &x->list.listing);
    weft_repository__close_scan(x->list.at.files);
    weft_buf_finish(&x->list.text);
    free(x->name);
    free(x->adapter);
    drop_plain(x);
    release(x, x->charged);
    weft_peers__release(&x->http->peers, x->peer);
    weft_offload__free(x->http->offload, x->reply, x->reply_len);
    free(x);
}
