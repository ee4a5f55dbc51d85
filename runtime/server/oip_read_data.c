/* The data of inputs: JSON arrays and bytes behind the JSON, into tensors. */
#include "runtime/server/oip_read_int.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool weft_oip__refuse(weft_oip__reader *r, weft_answer answer, const char *fmt, ...)
{
    va_list ap;
    *r->answer = answer;
    va_start(ap, fmt);
    vsnprintf(r->message, WEFT_REQUEST_MESSAGE_MAX, fmt, ap);
    va_end(ap);
    return false;
}

bool weft_oip__accept(weft_oip__reader *r, weft_answer answer)
{
    if (answer != WEFT_ANSWER_OK)
        *r->answer = answer;
    return answer == WEFT_ANSWER_OK;
}

/* The message of the cursor's error, once. */
bool weft_oip__refuse_json(weft_oip__reader *r)
{
    return weft_oip__refuse(r, WEFT_ANSWER_INVALID, "wrong JSON at byte %zu: %s",
                            (size_t)(r->json.at - r->body),
                            r->json.error ? r->json.error : "a value is expected");
}

/* -- JSON data ------------------------------------------------------------------------------ */

static bool refuse_kind(weft_oip__reader *r, const char *fmt, va_list ap)
{
    if (!weft_json__skip(&r->json))
        return weft_oip__refuse_json(r);
    *r->answer = WEFT_ANSWER_INVALID;
    vsnprintf(r->message, WEFT_REQUEST_MESSAGE_MAX, fmt, ap);
    return false;
}

bool weft_oip__expect(weft_oip__reader *r, char kind, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    bool ok = weft_json__peek(&r->json) == kind || refuse_kind(r, fmt, ap);
    va_end(ap);
    return ok;
}

bool weft_oip__enter(weft_oip__reader *r, char bracket, const char *text)
{
    return weft_oip__expect(r, bracket, "%s", text) &&
           (weft_json__enter(&r->json, bracket) || weft_oip__refuse_json(r));
}

/* At most 40 characters of the number, for a message. */
static const char *number_text(const weft_json_number *number, char *out)
{
    size_t len = number->len < 40 ? number->len : 40;
    memcpy(out, number->text, len);
    out[len] = '\0';
    return out;
}

static bool is_in_range(weft_dtype dtype, int64_t x)
{
    switch (dtype) {
    case WEFT_DTYPE_I8:
        return x >= INT8_MIN && x <= INT8_MAX;
    case WEFT_DTYPE_U8:
        return x >= 0 && x <= UINT8_MAX;
    case WEFT_DTYPE_I16:
        return x >= INT16_MIN && x <= INT16_MAX;
    case WEFT_DTYPE_U16:
        return x >= 0 && x <= UINT16_MAX;
    case WEFT_DTYPE_I32:
        return x >= INT32_MIN && x <= INT32_MAX;
    case WEFT_DTYPE_U32:
        return x >= 0 && x <= UINT32_MAX;
    case WEFT_DTYPE_U64:
        return x >= 0;
    case WEFT_DTYPE_BOOL:
        return x == 0 || x == 1;
    case WEFT_DTYPE_I4:
        return x >= -8 && x <= 7;
    case WEFT_DTYPE_U4:
        return x >= 0 && x <= 15;
    case WEFT_DTYPE_I2:
        return x >= -2 && x <= 1;
    case WEFT_DTYPE_U2:
        return x >= 0 && x <= 3;
    default:
        return true;
    }
}

/* Reads the next value into element `at` of the tensor. */
static bool fill_value(weft_oip__reader *r, const weft_tensor *t, int64_t at, const char *name)
{
    weft_json_number number;
    int64_t i = 0;
    uint64_t u = 0;
    char kind = weft_json__peek(&r->json);
    if (t->dtype == WEFT_DTYPE_BOOL && (kind == 't' || kind == 'f')) {
        if (!weft_json__skip(&r->json))
            return weft_oip__refuse_json(r);
        weft_tensor_set_i64(t, at, kind == 't');
        return true;
    }
    if (!weft_oip__expect(r, '0', "input '%s': data must be numbers of type %s", name,
                          weft_dtype_oip_name(t->dtype)))
        return false;
    if (!weft_json__number(&r->json, &number))
        return weft_oip__refuse_json(r);
    bool fits = t->dtype == WEFT_DTYPE_F32   ? weft_json__as_f32(&number, (float *)t->data + at)
                : t->dtype == WEFT_DTYPE_F64 ? weft_json__as_f64(&number, (double *)t->data + at)
                : t->dtype == WEFT_DTYPE_U64
                    ? weft_json__as_u64(&number, &u)
                    : weft_json__as_i64(&number, &i) && is_in_range(t->dtype, i);
    if (!fits)
        return weft_oip__refuse(r, WEFT_ANSWER_INVALID,
                                "input '%s': the JSON number %.40s is no value of type %s", name,
                                number_text(&number, (char[48]){0}), weft_dtype_oip_name(t->dtype));
    if (t->dtype == WEFT_DTYPE_U64)
        ((uint64_t *)t->data)[at] = u;
    else if (t->dtype != WEFT_DTYPE_F32 && t->dtype != WEFT_DTYPE_F64)
        weft_tensor_set_i64(t, at, i);
    return true;
}

/* Nested or flat arrays: their numbers in order are the elements. */
static bool fill_arrays(weft_oip__reader *r, const weft_tensor *t, int64_t n, const char *name)
{
    bool first[WEFT_JSON_DEPTH_MAX + 1] = {true};
    int64_t at = 0;
    if (!weft_json__enter(&r->json, '['))
        return weft_oip__refuse_json(r);
    for (int depth = 0; depth >= 0;) {
        if (!weft_json__next(&r->json, ']', &first[depth])) {
            if (r->json.error)
                return weft_oip__refuse_json(r);
            depth--;
        } else if (weft_json__peek(&r->json) == '[') {
            if (!weft_json__enter(&r->json, '['))
                return weft_oip__refuse_json(r);
            first[++depth] = true;
        } else {
            if (at == n)
                return weft_oip__refuse(r, WEFT_ANSWER_INVALID,
                                        "input '%s' has more data than its shape says", name);
            if (!fill_value(r, t, at++, name))
                return false;
        }
    }
    if (at != n)
        return weft_oip__refuse(r, WEFT_ANSWER_INVALID,
                                "input '%s' has %" PRId64 " values, its shape says %" PRId64, name,
                                at, n);
    return true;
}

/* Reads an array at the cursor into the data of input `at`. */
bool weft_oip__read_json_data(weft_oip__reader *r, uint32_t at, const char *name)
{
    weft_tensor *t = &r->infer->request->in[at];
    int64_t n = weft_tensor_numel(t);
    if (!weft_oip__expect(r, '[', "input '%s' has no data", name))
        return false;
    if (weft_dtype_is_float(t->dtype) && weft_dtype_bits(t->dtype) < 32)
        return weft_oip__refuse(r, WEFT_ANSWER_INVALID,
                                "input '%s': %s must be sent as binary data", name,
                                weft_dtype_oip_name(t->dtype));
    /* An element and its comma take two bytes at least: the body bounds the allocation. */
    if (n > (r->json.end - r->json.at) / 2)
        return weft_oip__refuse(r, WEFT_ANSWER_INVALID,
                                "input '%s' has less data than its shape says", name);
    r->infer->in_data[at] = malloc(weft_tensor_bytes(t) + 64);
    if (!r->infer->in_data[at])
        return weft_oip__refuse(r, WEFT_ANSWER_INTERNAL, "out of memory");
    t->data = r->infer->in_data[at];
    return fill_arrays(r, t, n, name);
}

/* -- Binary data ---------------------------------------------------------------------------- */

/* Takes the next bytes of the body as the data of input `at`; copies them if they are not aligned.
 */
bool weft_oip__take_bytes(weft_oip__reader *r, uint32_t at, size_t bytes)
{
    static char nothing[8];
    weft_tensor *t = &r->infer->request->in[at];
    char *from = bytes ? r->body + r->binary_at : nothing; /* the body may be NULL when empty */
    r->binary_at += bytes;
    t->data = from;
    if ((uintptr_t)from % 8 == 0)
        return true;
    r->infer->in_data[at] = malloc(bytes + 64);
    if (!r->infer->in_data[at])
        return weft_oip__refuse(r, WEFT_ANSWER_INTERNAL, "out of memory");
    memcpy(r->infer->in_data[at], from, bytes);
    t->data = r->infer->in_data[at];
    return true;
}

bool weft_oip__read_binary_data(weft_oip__reader *r, uint64_t bytes, uint32_t at, const char *name)
{
    const weft_tensor *t = &r->infer->request->in[at];
    if (bytes != weft_tensor_bytes(t))
        return weft_oip__refuse(r, WEFT_ANSWER_INVALID,
                                "input '%s': binary_data_size is %" PRIu64 ", its shape needs %zu",
                                name, bytes, weft_tensor_bytes(t));
    if (bytes > r->len - r->binary_at)
        return weft_oip__refuse(r, WEFT_ANSWER_INVALID,
                                "input '%s': the body ends before its binary data", name);
    return weft_oip__take_bytes(r, at, bytes);
}
