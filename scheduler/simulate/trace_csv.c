/* Request traces as CSV, streamed: memory does not grow with the trace. docs/simulate.md has the
 * format. The header decides what the rows mean:
 *
 *   time_s[,model]            one request a row, seconds from the start, not decreasing
 *   gap_s[,model]             one request a row, seconds after the request before it
 *   minute,model,count        number of requests in the minute (or `second`), rows not decreasing
 *   minute,NAME,NAME...       the same with one column for each model
 *
 * Without the column `model` there must be exactly one service. Counted requests are placed at
 * random in their period: given their number, the times of a Poisson process are independent and
 * uniform (S. Ross, Introduction to Probability Models, theorem 5.2). They are drawn in the order
 * of time: the least of k uniform numbers in (t, end) is t + (end - t) (1 - u^(1/k)) for a uniform
 * u in (0, 1). */
#include "scheduler/simulate/arrivals_int.h"

#include "base/csv.h"
#include "base/num.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    TRACE_COUNT_MAX = 1000000000,
};
static const weft_csv_limits trace_limits = {.row_bytes = 1 << 18, .fields = 8192};
static const double trace_end_s = 1e9;

typedef enum trace_kind { TRACE_TIME, TRACE_GAP, TRACE_LONG, TRACE_WIDE } trace_kind;

typedef struct trace {
    weft_arrivals base;
    weft_arena *arena;
    weft_diag *diag;
    weft_csv *csv;
    int fd; /* -1: none */
    /* Services. */
    const weft_service *service;
    uint32_t *order; /* services by name */
    size_t n;
    /* What the header says. */
    trace_kind kind;
    size_t n_column;
    bool has_model;
    uint32_t *column; /* wide: service by column */
    double unit_s;
    int64_t last_ns;
    double last_s;
    /* The period in hand, and the row of the next one, which has been read already. */
    weft_rand *rng; /* by service */
    uint64_t *count;
    weft_timer *heap;
    size_t n_heap;
    int64_t period, end_ns;
    bool has_row;
    int64_t row_period;
} trace;

static weft_err fail(trace *t, const char *what, const char *value)
{
    return weft_diag_error(t->diag, WEFT_ERR_INPUT, t->csv->where, what, value);
}

/* -- Rows ------------------------------------------------------------------------------------- */

static weft_err next_row(trace *t, bool *more)
{
    WEFT_TRY(weft_csv_next(t->csv, t->diag, more));
    if (*more && t->n_column && t->csv->n_field != t->n_column)
        return weft_diag_error(t->diag, WEFT_ERR_INPUT, t->csv->where,
                               "%zu fields, the header has %zu", t->csv->n_field, t->n_column);
    return WEFT_ERR_OK;
}

/* -- Fields ----------------------------------------------------------------------------------- */

static weft_err find_service(trace *t, const char *name, uint32_t *out)
{
    size_t lo = 0, hi = t->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = strcmp(t->service[t->order[mid]].name, name);
        if (c == 0) {
            *out = t->order[mid];
            return WEFT_ERR_OK;
        }
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (size_t i = 0; i < t->n; i++)
        if (weft_family_has(t->service[i].name, name)) {
            *out = (uint32_t)i;
            return WEFT_ERR_OK;
        }
    return fail(t, "model '%.64s' is not in the plan", name);
}

static weft_err parse_seconds(trace *t, const char *text, double *out)
{
    if (!weft_parse_f64(text, out) || !isfinite(*out) || *out < 0)
        return fail(t, "time '%.64s' must be a number of seconds from 0", text);
    return *out <= trace_end_s
               ? WEFT_ERR_OK
               : fail(t, "time '%.64s' is over 1e9 s: times count from the start of the trace",
                      text);
}

static weft_err parse_count(trace *t, const char *text, int64_t max, int64_t *out)
{
    if (!weft_parse_i64(text, out) || *out < 0 || *out > max)
        return weft_diag_error(t->diag, WEFT_ERR_INPUT, t->csv->where,
                               "'%.64s' must be a whole number from 0 to %lld", text,
                               (long long)max);
    return WEFT_ERR_OK;
}

static weft_err read_period(trace *t)
{
    return parse_count(t, t->csv->field[0], (int64_t)(trace_end_s / t->unit_s), &t->row_period);
}

/* -- Header ----------------------------------------------------------------------------------- */

static weft_err read_wide_header(trace *t)
{
    t->kind = TRACE_WIDE;
    t->column = weft_arena_array(t->arena, t->csv->n_field, sizeof *t->column);
    bool *taken = weft_arena_array(t->arena, t->n + 1, sizeof *taken);
    for (size_t i = 1; i < t->csv->n_field; i++) {
        WEFT_TRY(find_service(t, t->csv->field[i], &t->column[i]));
        if (taken[t->column[i]])
            return fail(t, "column '%.64s' appears twice", t->csv->field[i]);
        taken[t->column[i]] = true;
    }
    return WEFT_ERR_OK;
}

static weft_err read_header(trace *t)
{
    bool more;
    WEFT_TRY(next_row(t, &more));
    if (!more)
        return fail(t, "%s", "trace is empty: a header line is needed");
    const char *first = t->csv->field[0];
    bool minute = strcmp(first, "minute") == 0, second = strcmp(first, "second") == 0;
    bool model = t->csv->n_field == 2 && strcmp(t->csv->field[1], "model") == 0;
    t->unit_s = minute ? 60 : 1;
    if ((minute || second) && t->csv->n_field == 3 && strcmp(t->csv->field[1], "model") == 0 &&
        strcmp(t->csv->field[2], "count") == 0) {
        t->kind = TRACE_LONG;
    } else if ((minute || second) && t->csv->n_field > 1) {
        WEFT_TRY(read_wide_header(t));
    } else if ((strcmp(first, "time_s") == 0 || strcmp(first, "gap_s") == 0) &&
               (model || t->csv->n_field == 1)) {
        t->kind = first[0] == 't' ? TRACE_TIME : TRACE_GAP;
        t->has_model = model;
        if (!model && t->n != 1)
            return weft_diag_error(t->diag, WEFT_ERR_INPUT, t->csv->where,
                                   "the plan has %zu models: a column 'model' is needed", t->n);
    } else {
        return fail(t,
                    "header starts with '%.64s': it must be time_s[,model], gap_s[,model], "
                    "minute,model,count or minute,NAME... (or second)",
                    first);
    }
    t->n_column = t->csv->n_field;
    return WEFT_ERR_OK;
}

/* -- Rows of single requests ------------------------------------------------------------------ */

static weft_err next_single(trace *t, weft_arrival *out, bool *more)
{
    double s;
    uint32_t service = 0;
    WEFT_TRY(next_row(t, more));
    if (!*more)
        return WEFT_ERR_OK;
    WEFT_TRY(parse_seconds(t, t->csv->field[0], &s));
    if (t->has_model)
        WEFT_TRY(find_service(t, t->csv->field[1], &service));
    if (t->kind == TRACE_GAP) {
        int64_t gap_ns = (int64_t)(s * 1e9 + 0.5);
        if (gap_ns > (int64_t)(trace_end_s * 1e9) - t->last_ns)
            return fail(t, "%s", "the gaps add up to over 1e9 s");
        t->last_ns += gap_ns;
    } else {
        if (s < t->last_s)
            return weft_diag_error(t->diag, WEFT_ERR_INPUT, t->csv->where,
                                   "time %.9g s is before that of the row above, %.9g s", s,
                                   t->last_s);
        t->last_s = s;
        t->last_ns = (int64_t)(s * 1e9 + 0.5);
    }
    *out = (weft_arrival){t->last_ns, service};
    return WEFT_ERR_OK;
}

/* -- Rows of counts --------------------------------------------------------------------------- */

/* The time of the first of count[service] requests that are uniform in (from_ns, end_ns). */
static int64_t draw_next(trace *t, uint32_t service, int64_t from_ns)
{
    double k = (double)t->count[service];
    double part = 1 - weft_num__exp(weft_num__ln(weft_rand_unit(&t->rng[service])) / k);
    int64_t at = from_ns + (int64_t)((double)(t->end_ns - from_ns) * part);
    return at < t->end_ns ? at : t->end_ns - 1;
}

static weft_err add_count(trace *t, uint32_t service, const char *text)
{
    int64_t count;
    WEFT_TRY(parse_count(t, text, TRACE_COUNT_MAX, &count));
    if (t->count[service] + (uint64_t)count > TRACE_COUNT_MAX)
        return fail(t, "model '%.64s' has over 1000000000 requests in one period",
                    t->service[service].name);
    t->count[service] += (uint64_t)count;
    return WEFT_ERR_OK;
}

static weft_err take_row(trace *t)
{
    uint32_t service;
    if (t->kind == TRACE_LONG) {
        WEFT_TRY(find_service(t, t->csv->field[1], &service));
        return add_count(t, service, t->csv->field[2]);
    }
    for (size_t i = 1; i < t->csv->n_field; i++)
        WEFT_TRY(add_count(t, t->column[i], t->csv->field[i]));
    return WEFT_ERR_OK;
}

/* Reads the rows of the next period that has requests. t->n_heap is 0 after the call only at the
 * end of the trace. */
static weft_err read_periods(trace *t)
{
    while (t->n_heap == 0) {
        bool more = t->has_row;
        if (!more) {
            WEFT_TRY(next_row(t, &more));
            if (!more)
                return WEFT_ERR_OK;
            WEFT_TRY(read_period(t));
        }
        t->has_row = false;
        if (t->row_period < t->period || (t->kind == TRACE_WIDE && t->row_period == t->period))
            return weft_diag_error(t->diag, WEFT_ERR_INPUT, t->csv->where,
                                   "period %lld comes after %lld", (long long)t->row_period,
                                   (long long)t->period);
        t->period = t->row_period;
        WEFT_TRY(take_row(t));
        while (t->kind == TRACE_LONG) {
            WEFT_TRY(next_row(t, &more));
            if (!more)
                break;
            WEFT_TRY(read_period(t));
            if (t->row_period != t->period) {
                t->has_row = true;
                break;
            }
            WEFT_TRY(take_row(t));
        }
        int64_t start_ns = t->period * (int64_t)t->unit_s * 1000000000;
        t->end_ns = start_ns + (int64_t)t->unit_s * 1000000000;
        for (size_t i = 0; i < t->n; i++)
            if (t->count[i] > 0)
                weft_timer__push(t->heap, t->n_heap++,
                                 (weft_timer){draw_next(t, (uint32_t)i, start_ns), (uint32_t)i});
    }
    return WEFT_ERR_OK;
}

static weft_err next_counted(trace *t, weft_arrival *out, bool *more)
{
    if (t->n_heap == 0)
        WEFT_TRY(read_periods(t));
    *more = t->n_heap > 0;
    if (!*more)
        return WEFT_ERR_OK;
    weft_timer top = t->heap[0];
    *out = (weft_arrival){top.time_ns, top.key};
    if (--t->count[top.key] == 0) {
        weft_timer__pop(t->heap, t->n_heap--);
        return WEFT_ERR_OK;
    }
    t->heap[0].time_ns = draw_next(t, top.key, top.time_ns);
    weft_timer__sink(t->heap, t->n_heap);
    return WEFT_ERR_OK;
}

static weft_err next_trace(weft_arrivals *self, weft_arrival *out, bool *more)
{
    trace *t = (trace *)self;
    return t->kind == TRACE_TIME || t->kind == TRACE_GAP ? next_single(t, out, more)
                                                         : next_counted(t, out, more);
}

/* -- Opening ---------------------------------------------------------------------------------- */

static void close_trace(weft_arrivals *self)
{
    trace *t = (trace *)self;
    if (t->fd > 0)
        close(t->fd);
    t->fd = -1;
    weft_csv_destroy(t->csv);
    t->csv = NULL;
}

/* Sorts the indices of services by name, by bottom-up merge sort. */
static void sort_services(const weft_service *service, uint32_t *order, uint32_t *spare, size_t n)
{
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t lo = 0; lo < n; lo += 2 * width) {
            size_t mid = lo + width < n ? lo + width : n;
            size_t hi = lo + 2 * width < n ? lo + 2 * width : n;
            size_t a = lo, b = mid, k = lo;
            while (a < mid || b < hi)
                spare[k++] = b == hi || (a < mid && strcmp(service[order[a]].name,
                                                           service[order[b]].name) <= 0)
                                 ? order[a++]
                                 : order[b++];
        }
        memcpy(order, spare, n * sizeof *order);
    }
}

static weft_err open_trace(trace init, const weft_service *service, size_t n, uint64_t seed,
                           weft_arrivals **out)
{
    weft_arena *arena = init.arena;
    trace *t = weft_arena_array(arena, 1, sizeof *t);
    *t = init;
    t->base = (weft_arrivals){.next = next_trace, .close = close_trace};
    t->service = service;
    t->n = n;
    t->period = -1;
    t->order = weft_arena_array(arena, n + 1, sizeof *t->order);
    sort_services(service, t->order, weft_arena_array(arena, n + 1, sizeof *t->order), n);
    t->rng = weft_arena_array(arena, n + 1, sizeof *t->rng);
    t->count = weft_arena_array(arena, n + 1, sizeof *t->count);
    t->heap = weft_arena_array(arena, n + 1, sizeof *t->heap);
    for (size_t i = 0; i < n; i++)
        weft_arrivals__seed(&t->rng[i], seed, service[i].name);
    weft_err err = t->csv ? read_header(t) : WEFT_ERR_NOMEM;
    if (err != WEFT_ERR_OK)
        close_trace(&t->base);
    else
        *out = &t->base;
    return err;
}

weft_err weft_trace_open(const char *path, const weft_service *service, size_t n, uint64_t seed,
                         weft_arena *arena, weft_diag *diag, weft_arrivals **out)
{
    const weft_where where = {.file = path};
    int fd = strcmp(path, "-") == 0 ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return weft_diag_error(diag, WEFT_ERR_IO, where, "cannot be opened: %s", strerror(errno));
    weft_csv *csv = weft_csv_create_fd(fd, where, trace_limits);
    trace init = {.arena = arena, .diag = diag, .csv = csv, .fd = fd};
    return open_trace(init, service, n, seed, out);
}

weft_err weft_trace_open_text(const char *text, size_t len, const char *file,
                              const weft_service *service, size_t n, uint64_t seed,
                              weft_arena *arena, weft_diag *diag, weft_arrivals **out)
{
    weft_csv *csv = weft_csv_create(text, len, (weft_where){.file = file}, trace_limits);
    trace init = {.arena = arena, .diag = diag, .csv = csv, .fd = -1};
    return open_trace(init, service, n, seed, out);
}
