/* Classes are found with a heap of the best elements so far, whose root is the worst of them. */
#include "runtime/server/classes.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

weft_answer weft_classes__check(const weft_bundle_program *program, uint32_t output,
                                uint64_t n_class, char *message)
{
    const weft_bundle_port *port = &program->output[output];
    const weft_ttype *type = &program->value[port->value - 1].type;
    weft_dtype dtype = (weft_dtype)type->dtype;
    if (n_class > WEFT_CLASSES_MAX) {
        snprintf(message, WEFT_REQUEST_MESSAGE_MAX,
                 "output '%s': at most %d classes can be asked for, not %" PRIu64, port->name,
                 WEFT_CLASSES_MAX, n_class);
        return WEFT_ANSWER_INVALID;
    }
    if (dtype == WEFT_DTYPE_BOOL || (weft_batch__largest(program) > 0 && type->rank == 0)) {
        snprintf(message, WEFT_REQUEST_MESSAGE_MAX, "output '%s' (%s) has no classes", port->name,
                 weft_dtype_oip_name(dtype));
        return WEFT_ANSWER_INVALID;
    }
    return WEFT_ANSWER_OK;
}

/* -- The largest elements --------------------------------------------------------------------- */

typedef struct element {
    double value;   /* 0: an integer */
    uint64_t whole; /* an integer, in their order: -2^63 is 0; unsigned ones are themselves */
    int64_t at;
} element;

static element element_of(const weft_tensor *t, int64_t first, int64_t at)
{
    int64_t i = first + at;
    if (weft_dtype_is_float(t->dtype))
        return (element){.value = weft_tensor_get_f64(t, i), .at = at};
    if (t->dtype == WEFT_DTYPE_U64)
        return (element){.whole = ((const uint64_t *)t->data)[i], .at = at};
    return (element){.whole = (uint64_t)weft_tensor_get_i64(t, i) ^ UINT64_C(1) << 63, .at = at};
}

/* Whether a is listed before b: larger, or equal and earlier; NaN comes last. */
static bool is_before(element a, element b)
{
    if (isnan(a.value) || isnan(b.value))
        return isnan(a.value) == isnan(b.value) ? a.at < b.at : isnan(b.value);
    if (a.value != b.value)
        return a.value > b.value;
    return a.whole != b.whole ? a.whole > b.whole : a.at < b.at;
}

/* Lets the element at i sink to where those below it are listed before it. */
static void sink(element *heap, size_t n, size_t i)
{
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && is_before(heap[child], heap[child + 1]))
            child++;
        if (!is_before(heap[i], heap[child]))
            return;
        element moved = heap[i];
        heap[i] = heap[child];
        heap[child] = moved;
    }
}

static int compare(const void *a, const void *b)
{
    return is_before(*(const element *)a, *(const element *)b) ? -1 : 1;
}

/* The `n` elements of [first, first + count) that are listed first, in order; n <= count. */
static void choose(const weft_tensor *t, int64_t first, int64_t count, element *best, size_t n)
{
    for (int64_t i = 0; i < count; i++) {
        element e = element_of(t, first, i);
        if ((size_t)i < n) {
            best[i] = e;
            for (size_t k = n; (size_t)i + 1 == n && k-- > 0;)
                sink(best, n, k);
        } else if (n && is_before(e, best[0])) {
            best[0] = e;
            sink(best, n, 0);
        }
    }
    if (n)
        qsort(best, n, sizeof *best, compare);
}

/* -- Their text ------------------------------------------------------------------------------- */

static void put_class(weft_buf *out, const weft_bundle_port *port, const weft_tensor *t,
                      int64_t first, element e)
{
    if (weft_dtype_is_float(t->dtype))
        weft_buf_printf(out, "%f", e.value); /* as Triton writes it */
    else if (t->dtype == WEFT_DTYPE_U64)
        weft_buf_put_u64(out, e.whole);
    else
        weft_buf_put_i64(out, weft_tensor_get_i64(t, first + e.at));
    weft_buf_printf(out, ":%" PRId64, e.at);
    if (e.at < (int64_t)port->n_label && *port->label[e.at])
        weft_buf_printf(out, ":%s", port->label[e.at]);
    weft_buf_putc(out, '\0');
}

static bool is_batched(const weft_bundle_program *program, const weft_tensor *t)
{
    return weft_batch__largest(program) > 0 && t->rank > 0;
}

size_t weft_classes__work(const weft_bundle_program *program, const weft_tensor *t,
                          uint32_t n_class)
{
    enum { STRING = 64 };
    int64_t n = weft_tensor_numel(t), rows = is_batched(program, t) ? t->dim[0] : 1;
    int64_t strings = n_class && rows > n / n_class ? n : rows * n_class;
    return weft_tensor_bytes(t) + STRING * (size_t)strings;
}

weft_answer weft_classes__list(const weft_bundle_program *program, uint32_t output,
                               const weft_tensor *t, uint32_t n_class, size_t *room,
                               weft_classes *out, char *message)
{
    bool batched = is_batched(program, t);
    int64_t rows = batched ? t->dim[0] : 1;
    int64_t count = rows ? weft_tensor_numel(t) / rows : 0;
    int64_t n = n_class < count ? n_class : count;
    *out = (weft_classes){0};
    if (n && rows > WEFT_CLASSES_STRINGS_MAX / n) {
        snprintf(message, WEFT_REQUEST_MESSAGE_MAX,
                 "output '%s': at most %d classes fit into an answer, not %" PRId64
                 " of each of %" PRId64 " rows",
                 program->output[output].name, WEFT_CLASSES_STRINGS_MAX, n, rows);
        return WEFT_ANSWER_INVALID;
    }
    element *best = malloc((size_t)n * sizeof *best + 1);
    weft_buf text = {0};
    for (int64_t row = 0; best && row < rows && text.len <= *room; row++) {
        choose(t, row * count, count, best, (size_t)n);
        for (int64_t i = 0; i < n && text.len <= *room; i++)
            put_class(&text, &program->output[output], t, row * count, best[i]);
    }
    *out = (weft_classes){.dim = {batched ? rows : n, n},
                          .rank = batched ? 2 : 1,
                          .text = text.at,
                          .len = text.len,
                          .n = (size_t)(rows * n)};
    free(best);
    if (best && !text.failed && text.len <= *room) {
        *room -= text.len;
        return WEFT_ANSWER_OK;
    }
    weft_classes__finish(out);
    if (text.len > *room) {
        snprintf(message, WEFT_REQUEST_MESSAGE_MAX,
                 "output '%s': the text of the classes of a request has at most %d MiB: ask for "
                 "fewer classes or rows",
                 program->output[output].name, WEFT_CLASSES_BYTES_MAX >> 20);
        return WEFT_ANSWER_INVALID;
    }
    snprintf(message, WEFT_REQUEST_MESSAGE_MAX, "out of memory");
    return WEFT_ANSWER_INTERNAL;
}

size_t weft_classes__bytes(const weft_classes *classes)
{
    return classes->len + classes->n * (sizeof(uint32_t) - 1);
}

void weft_classes__pack(const weft_classes *classes, weft_buf *out)
{
    const char *s = classes->text;
    for (size_t i = 0; i < classes->n; i++) {
        size_t len = strlen(s);
        const uint8_t head[] = {(uint8_t)len, (uint8_t)(len >> 8), (uint8_t)(len >> 16),
                                (uint8_t)(len >> 24)};
        weft_buf_add(out, head, sizeof head);
        weft_buf_add(out, s, len);
        s += len + 1;
    }
}

void weft_classes__finish(weft_classes *classes)
{
    free(classes->text);
    *classes = (weft_classes){0};
}
