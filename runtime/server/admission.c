/* Which requests can be answered in time.
 *
 * A request with a promise (a timeout of its client, or the SLO of a model that asks for it) is
 * refused on arrival when its predicted finish is after the end of its promise, and dropped before
 * it is sent when it would be late. So a worker never computes what nobody waits for, and an
 * overloaded server keeps the throughput of full batches: the window drop of Nexus (Shen et al.,
 * SOSP 2019, section 6.3), with admission in front of it.
 *
 * Among the models of a worker the first one due goes first. A backlog that is never dropped, of
 * requests without a promise, is always overdue and would starve the others; so an overdue model
 * goes before others only as long as it has had no more of the workers' time than they, by the
 * virtual times of start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996).
 *
 * The time of a batch is measured: mean and mean deviation by bucket, smoothed as round-trip times
 * of TCP are (Jacobson, SIGCOMM 1988). A request that finds an idle worker and no queue is always
 * admitted, and one request of a queue is always kept, so that an estimate that is too high cannot
 * stay. */
#include "runtime/server/router_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Order of requests without a promise, of models without an SLO, among others. */
static const uint64_t patience_ns = 1000000000u;
/* Accuracy of the clocks and timers involved. */
static const double margin_ns = 1e6;

/* -- Times of batches ------------------------------------------------------------------------- */

void weft_admission__learn(router_model *model, int64_t rows, uint64_t took_ns)
{
    uint32_t i = 0;
    double took = (double)took_ns;
    while (i < model->n_time && model->time[i].rows < rows)
        i++;
    if (i == model->n_time || model->time[i].rows != rows) {
        if (model->n_time == BATCH_TIMES_MAX)
            return;
        memmove(&model->time[i + 1], &model->time[i], (model->n_time - i) * sizeof model->time[0]);
        model->time[i] = (batch_time){.rows = rows, .mean_ns = took, .first = true};
        model->n_time++;
        return;
    }
    batch_time *t = &model->time[i];
    double off = took - t->mean_ns;
    if (t->first && off < 0)
        t->mean_ns = took; /* the first run prepares what the others use */
    t->first = false;
    off = took - t->mean_ns;
    t->mean_ns += off / 8;
    t->dev_ns += (fabs(off) - t->dev_ns) / 4;
}

/* The time of a bucket that was not measured is in proportion to that of the nearest one that was.
 */
static batch_time time_of(const router_model *model, int64_t rows)
{
    const batch_time *best = NULL;
    for (uint32_t i = 0; i < model->n_time; i++) {
        const batch_time *t = &model->time[i];
        if (!best || llabs(t->rows - rows) < llabs(best->rows - rows))
            best = t;
    }
    if (!best)
        return (batch_time){.rows = rows};
    double part = best->rows > 0 ? (double)rows / (double)best->rows : 1;
    return (batch_time){
        .rows = rows, .mean_ns = best->mean_ns * part, .dev_ns = best->dev_ns * part};
}

uint64_t weft_admission__batch_ns(const router_model *model, int64_t rows)
{
    return (uint64_t)time_of(model, weft_batch__padded(model, rows)).mean_ns;
}

/* A time that few batches exceed: twice the deviation would cost a tenth of the good answers of an
 * overloaded server, and save one in a hundred from being late. */
static uint64_t at_most_ns(const router_model *model, int64_t rows)
{
    batch_time t = time_of(model, weft_batch__padded(model, rows));
    return (uint64_t)(t.mean_ns + t.dev_ns);
}

/* -- Promises --------------------------------------------------------------------------------- */

void weft_admission__promise(const weft_router *router, weft_request *request)
{
    const weft_bundle_program *p = router->model[request->model].program;
    weft_admission_mode mode = router->options->admission;
    double slo_ns = p->slo_us * 1e3;
    bool by_slo = slo_ns > 0 && slo_ns < 1e18 &&
                  (mode == WEFT_ADMISSION_SLO || (mode == WEFT_ADMISSION_MODEL && p->admit_by_slo));
    uint64_t budget_ns = slo_ns > 0 && slo_ns < 1e18 ? (uint64_t)slo_ns : patience_ns;
    request->due_ns = request->arrived_ns + budget_ns;
    request->promised = by_slo;
    if (request->timeout_us > 0 && request->deadline_ns <= request->due_ns) {
        request->due_ns = request->deadline_ns;
        request->promised = mode != WEFT_ADMISSION_NONE;
    } else if (request->timeout_us > 0 && mode != WEFT_ADMISSION_NONE && !by_slo) {
        request->due_ns = request->deadline_ns;
        request->promised = true;
    }
}

/* -- Between models --------------------------------------------------------------------------- */

bool weft_admission__goes_first(const router_model *a, const router_model *b, uint64_t now_ns)
{
    bool late_a = a->head->due_ns < now_ns, late_b = b->head->due_ns < now_ns;
    if (!late_a && !late_b)
        return a->head->due_ns < b->head->due_ns;
    if (late_a != late_b && a->virtual_ns == b->virtual_ns)
        return late_a;
    return a->virtual_ns < b->virtual_ns;
}

void weft_admission__enter(const weft_router *router, router_model *model)
{
    if (!model->head && model->virtual_ns < router->virtual_ns)
        model->virtual_ns = router->virtual_ns;
}

void weft_admission__charge(weft_router *router, router_model *model, int64_t rows)
{
    router->virtual_ns = model->virtual_ns;
    model->virtual_ns += (double)weft_admission__batch_ns(model, rows) + margin_ns;
}

/* -- On arrival ------------------------------------------------------------------------------- */

/* Rows of a queue that run before a request that is due at `due_ns`. */
static int64_t rows_before(const router_model *model, uint64_t due_ns)
{
    int64_t rows = 0;
    for (const weft_request *r = model->head; r && r->due_ns <= due_ns; r = r->next)
        rows += r->rows > 0 ? r->rows : 1;
    return rows;
}

static bool run_together(const weft_router *router, uint32_t a, uint32_t b)
{
    const router_bundle *from = router->model[a].bundle;
    for (uint32_t j = 0; from && from == router->model[b].bundle && j < from->joints.n; j++) {
        const weft_bundle_program *p = from->joints.at[j].program;
        bool has_a = false, has_b = false;
        for (uint32_t i = 0; i < p->n_part; i++) {
            has_a = has_a || from->first + p->part[i].program == a;
            has_b = has_b || from->first + p->part[i].program == b;
        }
        if (has_a && has_b)
            return true;
    }
    return false;
}

/* Work of other models that runs before the request on the workers that serve it; `own_ns`: of its
 * own model. */
static double others_ns(const weft_router *router, const weft_request *request, const bool *shares,
                        double own_ns, uint64_t now_ns)
{
    double sum = 0;
    for (uint32_t i = 0; i < router->n_model; i++) {
        const router_model *m = &router->model[i];
        if (i == request->model || !shares[i] || !m->head ||
            run_together(router, i, request->model))
            continue;
        double batches = ceil((double)rows_before(m, request->due_ns) / (double)m->largest_bucket);
        double each_ns = (double)weft_admission__batch_ns(m, m->largest_bucket);
        double all_ns = batches * each_ns;
        if (m->head->due_ns < now_ns && all_ns > own_ns + each_ns)
            all_ns = own_ns + each_ns; /* its share, and what it may be behind */
        sum += all_ns;
    }
    return sum;
}

/* Time until the worker is idle; < 0: it takes no requests. */
static double busy_ns(const weft_router *router, const router_worker *w, uint64_t now_ns)
{
    if (w->process.stall_ns != 0 ||
        (w->process.state != WORKER_IDLE && w->process.state != WORKER_BUSY))
        return -1;
    double most = 0;
    for (uint32_t k = 0; k < w->n_part && w->process.state == WORKER_BUSY; k++) {
        const router_batch *b = &w->part[k];
        const router_model *m = &router->model[b->model];
        double left = b->n > 0
                          ? (double)b->sent_ns +
                                (double)weft_admission__batch_ns(m, b->padded_rows) - (double)now_ns
                          : 0;
        most = left > most ? left : most;
    }
    return most;
}

/* What the workers that serve a model are like. */
typedef struct outlook {
    uint32_t n;
    double soonest_ns; /* until one of them is idle */
    bool any_idle;
} outlook;

static outlook look_at_workers(const weft_router *router, uint32_t model, uint64_t now_ns,
                               bool *shares)
{
    outlook o = {.soonest_ns = HUGE_VAL};
    for (uint32_t i = 0; i < router->n_worker; i++) {
        const router_worker *w = &router->worker[i];
        double left = w->serves[model] ? busy_ns(router, w, now_ns) : -1;
        if (left < 0)
            continue;
        o.n++;
        o.any_idle = o.any_idle || w->process.state == WORKER_IDLE;
        o.soonest_ns = left < o.soonest_ns ? left : o.soonest_ns;
        for (uint32_t k = 0; k < router->n_model; k++)
            shares[k] = shares[k] || w->serves[k];
    }
    return o;
}

bool weft_admission__can_meet(const weft_router *router, const weft_request *request,
                              uint64_t now_ns, uint64_t *out_late_ns)
{
    const router_model *m = &router->model[request->model];
    bool *shares = router->shares;
    memset(shares, 0, router->n_model * sizeof *shares);
    outlook o = look_at_workers(router, request->model, now_ns, shares);
    if (o.n == 0 || (o.any_idle && !m->head))
        return true; /* nothing is known, or nothing could be better */
    int64_t before = rows_before(m, request->due_ns), most = m->largest_bucket;
    int64_t own = request->rows > 0 ? request->rows : 1;
    batch_time last = time_of(m, weft_batch__padded(m, before % most + own < most //
                                                           ? before % most + own
                                                           : most));
    double queue_ns = (double)(before / most) * (double)weft_admission__batch_ns(m, most);
    queue_ns += others_ns(router, request, shares, queue_ns, now_ns);
    double finish_ns =
        (double)now_ns + o.soonest_ns + queue_ns / o.n + last.mean_ns + 2 * last.dev_ns;
    if (last.mean_ns <= 0 || finish_ns + margin_ns <= (double)request->due_ns)
        return true;
    *out_late_ns = (uint64_t)(finish_ns + margin_ns - (double)request->due_ns);
    return false;
}

/* -- Before a batch --------------------------------------------------------------------------- */

static bool in_time(const weft_request *r, uint64_t end_ns)
{
    return !r->promised || end_ns <= r->due_ns;
}

/* Rows from `r` on, up to `most`. */
static int64_t rows_from(const weft_request *r, int64_t most)
{
    int64_t rows = 0;
    for (; r && rows + r->rows <= most; r = r->next)
        rows += r->rows;
    return rows;
}

/* Whether a batch of `first` rows from `r` on lets the requests behind it be in time as well. */
static bool rest_in_time(const router_model *m, const weft_request *r, int64_t first, int64_t all,
                         uint64_t now_ns)
{
    uint64_t end_ns =
        now_ns + weft_admission__batch_ns(m, first) + weft_admission__batch_ns(m, all - first);
    for (int64_t rows = 0; r && rows + r->rows <= first; r = r->next)
        rows += r->rows;
    return !r || in_time(r, end_ns);
}

admission_choice weft_admission__choose(const router_model *m, int64_t most, uint64_t now_ns)
{
    admission_choice out = {.most = most};
    const weft_request *r = m->head, *last = NULL;
    for (; r; last = r, r = r->next, out.drop++) {
        if (!r->promised || r->rows <= 0 || r->attempts > 0 || r->rows > most)
            return out;
        int64_t all = rows_from(r, most);
        if (in_time(r, now_ns + at_most_ns(m, all)))
            return out;
        for (uint32_t i = m->program->n_bucket; i-- > 0;) {
            int64_t rows = m->program->bucket[i].symbol[m->program->batch_symbol];
            if (rows >= r->rows && rows < all && in_time(r, now_ns + at_most_ns(m, rows)) &&
                rest_in_time(m, r, rows, all, now_ns)) {
                out.most = rows;
                return out;
            }
        }
    }
    if (last && last->due_ns > now_ns)
        out.drop--; /* it runs alone, and tells how long that takes now */
    return out;
}
