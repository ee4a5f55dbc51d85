/* What a router decides about the queue of a model: which requests can be answered in time, and
 * whose turn it is.
 *
 * A promise is kept if the client has the answer within the SLO: queue, batch, and what a request
 * costs besides (transport, router, copies). The last one is not seen from here; the profile of a
 * model tells it, and it is taken off the SLO once, when the request gets its due time.
 *
 * A request with a promise is refused on arrival when its predicted finish is after the end of its
 * promise, and dropped before it is sent when it would be late. So no worker computes what nobody
 * waits for, and an overloaded server keeps the throughput of full batches: the window drop of
 * Nexus (Shen et al., SOSP 2019, section 6.3), with admission in front of it. A request that finds
 * an idle worker and no queue is always admitted, and one request of a queue is always kept, so
 * that an estimate that is too high cannot stay.
 *
 * Among the models of a worker the first one due goes first. A backlog that is never dropped, of
 * requests without a promise, is always overdue and would starve the others; so an overdue model
 * goes before others only as long as it has had no more of the workers' time than they, by the
 * virtual times of start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996). */
#include "scheduler/scheduler.h"

#include <math.h>

/* Accuracy of the clocks and timers involved. */
static const double margin_ns = 1e6;

/* The SLO of models without one: an order among others. */
static const double patience_us = 1e6;

/* -- Times of batches ------------------------------------------------------------------------- */

/* Smoothed as round-trip times of TCP are (Jacobson, SIGCOMM 1988). */
void weft_line_learn(weft_batch_time *time, double took_ns)
{
    double off = took_ns - time->mean_ns;
    time->mean_ns += off / 8;
    time->dev_ns += (fabs(off) - time->dev_ns) / 4;
}

/* -- Promises --------------------------------------------------------------------------------- */

uint64_t weft_line_due_ns(uint64_t arrived_ns, double slo_us, double host_us)
{
    bool has_slo = slo_us > 0 && slo_us < 1e15;
    double inside_us = (has_slo ? slo_us : patience_us) - host_us;
    return arrived_ns + (inside_us > 0 ? (uint64_t)(inside_us * 1e3) : 0);
}

static int64_t rows_of(const weft_waiting *r)
{
    return r->rows > 0 ? r->rows : 1;
}

static uint64_t mean_ns(const weft_line *line, int64_t rows)
{
    return (uint64_t)line->time(line->of, rows).mean_ns;
}

/* A time that few batches exceed: twice the deviation would cost a tenth of the good answers of an
 * overloaded server, and save one in a hundred from being late. */
static uint64_t at_most_ns(const weft_line *line, int64_t rows)
{
    weft_batch_time t = line->time(line->of, rows);
    return (uint64_t)(t.mean_ns + t.dev_ns);
}

/* -- Turns ------------------------------------------------------------------------------------ */

bool weft_line_goes_first(const weft_line_turn *a, const weft_line_turn *b, uint64_t now_ns)
{
    bool late_a = a->due_ns < now_ns, late_b = b->due_ns < now_ns;
    if (!late_a && !late_b)
        return a->due_ns < b->due_ns;
    if (late_a != late_b && a->virtual_ns == b->virtual_ns)
        return late_a;
    return a->virtual_ns < b->virtual_ns;
}

double weft_line_charge(const weft_line *line, int64_t rows)
{
    return (double)mean_ns(line, rows) + margin_ns;
}

/* -- On arrival ------------------------------------------------------------------------------- */

/* Rows of a queue that run before a request that is due at `due_ns`; *head: what is first. */
static int64_t rows_before(const weft_line *line, uint64_t due_ns, weft_waiting *head)
{
    weft_waiting r;
    int64_t rows = 0;
    const void *at = line->next(line->of, NULL, head);
    r = *head;
    for (; at && r.due_ns <= due_ns; at = line->next(line->of, at, &r))
        rows += rows_of(&r);
    return rows;
}

/* Work of another model that runs before the request; `own_ns`: of its own model. */
static double other_ns(const weft_line *line, const weft_waiting *request, double own_ns,
                       uint64_t now_ns)
{
    weft_waiting head = {.due_ns = UINT64_MAX};
    double batches = ceil((double)rows_before(line, request->due_ns, &head) / //
                          (double)line->most_rows);
    double each_ns = (double)mean_ns(line, line->most_rows), all_ns = batches * each_ns;
    if (head.due_ns < now_ns && all_ns > own_ns + each_ns)
        return own_ns + each_ns; /* its share, and what it may be behind */
    return all_ns;
}

weft_forecast weft_line_forecast(const weft_line *line, const weft_line *other, uint32_t n_other,
                                 const weft_waiting *request, const weft_crew *crew,
                                 uint64_t now_ns)
{
    weft_waiting head = {0};
    if (crew->n == 0)
        return (weft_forecast){0};
    bool empty = !line->next(line->of, NULL, &head);
    int64_t most = line->most_rows, before = rows_before(line, request->due_ns, &head);
    int64_t last = before % most + rows_of(request);
    weft_batch_time t = line->time(line->of, last < most ? last : most);
    double queue_ns = (double)(before / most) * (double)mean_ns(line, most);
    for (uint32_t i = 0; i < n_other && !(crew->any_idle && empty); i++)
        queue_ns += other_ns(&other[i], request, queue_ns, now_ns);
    double start_ns = crew->any_idle && empty ? 0 : crew->soonest_ns + queue_ns / crew->n;
    return (weft_forecast){.known = t.mean_ns > 0,
                           .at_once = crew->any_idle && empty,
                           .start_ns = start_ns,
                           .finish_ns = start_ns + t.mean_ns + 2 * t.dev_ns};
}

double weft_forecast_late_ns(const weft_forecast *f, uint64_t due_ns, uint64_t now_ns)
{
    double late_ns = (double)now_ns + f->finish_ns + margin_ns - (double)due_ns;
    return f->known && !f->at_once && late_ns > 0 ? late_ns : 0;
}

/* -- Before a batch --------------------------------------------------------------------------- */

static bool in_time(const weft_waiting *r, uint64_t end_ns)
{
    return !r->promised || end_ns <= r->due_ns;
}

/* Rows from a request on, up to `most`. */
static int64_t rows_from(const weft_line *line, const void *at, weft_waiting r, int64_t most)
{
    int64_t rows = 0;
    for (; at && rows + r.rows <= most; at = line->next(line->of, at, &r))
        rows += r.rows;
    return rows;
}

/* Whether a batch of `first` rows from a request on lets the ones behind it be in time as well. */
static bool rest_in_time(const weft_line *line, const void *at, weft_waiting r, int64_t first,
                         int64_t all, uint64_t now_ns)
{
    uint64_t end_ns = now_ns + mean_ns(line, first) + mean_ns(line, all - first);
    for (int64_t rows = 0; at && rows + r.rows <= first; at = line->next(line->of, at, &r))
        rows += r.rows;
    return !at || in_time(&r, end_ns);
}

weft_line_choice weft_line_choose(const weft_line *line, int64_t most, uint64_t now_ns)
{
    weft_line_choice out = {.most = most};
    weft_waiting r, last = {0};
    const void *at = line->next(line->of, NULL, &r);
    for (; at; last = r, at = line->next(line->of, at, &r), out.drop++) {
        if (!r.promised || r.rows <= 0 || r.kept || r.rows > most)
            return out;
        int64_t all = rows_from(line, at, r, most);
        if (in_time(&r, now_ns + at_most_ns(line, all)))
            return out;
        for (uint32_t i = line->n_size; i-- > 0;) {
            int64_t rows = line->size(line->of, i);
            if (rows >= r.rows && rows < all && in_time(&r, now_ns + at_most_ns(line, rows)) &&
                rest_in_time(line, at, r, rows, all, now_ns)) {
                out.most = rows;
                return out;
            }
        }
    }
    if (out.drop > 0 && last.due_ns > now_ns)
        out.drop--; /* it runs alone, and tells how long that takes now */
    return out;
}
