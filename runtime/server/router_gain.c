/* Whether requests of several models, or of several lengths, should run together: by times that the
 * server measures.
 *
 * Every worker has a table for each program of the times of its runs, by size, in half powers of
 * two; each entry keeps running means of size and time, between which a time is interpolated. Times
 * of slices that are not equal never mix. The time that requests would take apart is the sum of
 * those of the runs that they would be, by the programs of their models, and needs no run of its
 * own. Together they run unless their program has been slower than that sum: at once where it was
 * (ratio over 1), and not before it is 3 % faster do they run together again. What is not known yet
 * favours running together, as the compiler predicted.
 *
 * Disturbances make a time longer and never shorter, so a run in less than half of the mean shows
 * that the mean is wrong, and replaces it. A mean that is too short by chance is corrected soon: it
 * makes its own way the one that runs.
 *
 * The way that is not chosen is tried once in TRIAL choices so that its times stay true, in
 * TRIAL_CLEAR where it is over a quarter slower, and once in TRIAL_EARLY of the first ones while
 * the times apart are unknown. A trial costs the difference of both ways at most, 1/64 of the time
 * where both are nearly alike. All of it is a function of the times that it is given. */
#include "runtime/server/router_int.h"

#include <math.h>
#include <stdlib.h>

enum {
    TRUSTED = 4, /* runs from which a time is known */
    MEMORY = 16, /* runs that a mean remembers */
    EARLY = 64,
    TRIAL_EARLY = 8,
    TRIAL = 64,
    TRIAL_CLEAR = 512
};
static const double together_below = 0.97, clear = 1.25;

static uint32_t entry_of(int64_t size)
{
    double at = size > 1 ? 2 * log2((double)size) : 0;
    return at < GAIN_SIZES - 1 ? (uint32_t)at : GAIN_SIZES - 1;
}

void weft_gain__learn(router_gain *g, int64_t size, double took_ns)
{
    gain_time *t = &g->time[entry_of(size)];
    if (t->n >= TRUSTED)
        took_ns = fmin(took_ns, 3 * t->time_ns); /* a disturbed run */
    if (t->n == 1 && took_ns < t->time_ns)
        t->n = 0; /* the first run prepares what the others use */
    if (t->n > 1 && 2 * took_ns < t->time_ns) {
        *t = (gain_time){(double)size, took_ns, t->n < TRUSTED ? t->n : TRUSTED};
        return;
    }
    t->n += t->n < MEMORY;
    t->size += ((double)size - t->size) / t->n;
    t->time_ns += (took_ns - t->time_ns) / t->n;
}

double weft_gain__time(const router_gain *g, int64_t size)
{
    const gain_time *below = NULL, *above = NULL;
    double x = (double)size;
    for (uint32_t i = 0; i < GAIN_SIZES && !above; i++) {
        const gain_time *t = &g->time[i];
        if (t->n < TRUSTED)
            continue;
        if (t->size <= x)
            below = t;
        else
            above = t;
    }
    if (below && above)
        return below->time_ns +
               (above->time_ns - below->time_ns) * (x - below->size) / (above->size - below->size);
    const gain_time *one = below ? below : above;
    if (!one || x > 1.5 * one->size || one->size > 1.5 * x)
        return 0;
    return one->time_ns;
}

/* Whether the other way is tried this time. */
static bool is_trial(gain_choice *c, double ratio)
{
    bool far = ratio > clear || ratio < 1 / clear;
    uint32_t every = ratio <= 0 ? (c->n < EARLY ? TRIAL_EARLY : TRIAL) : far ? TRIAL_CLEAR : TRIAL;
    c->n += c->n < EARLY;
    if (++c->since < every)
        return false;
    c->since = 0;
    return true;
}

bool weft_gain__choose(router_gain *g, int64_t size, double apart_ns)
{
    gain_choice *c = &g->choice[entry_of(size)];
    double together_ns = weft_gain__time(g, size);
    if (together_ns <= 0)
        return true;
    double ratio = apart_ns > 0 ? together_ns / apart_ns : 0;
    if (ratio > 0) {
        c->apart = c->apart ? ratio >= together_below : ratio > 1;
        g->gain = g->gain > 0 ? g->gain + (1 / ratio - g->gain) / MEMORY : 1 / ratio;
    }
    bool trial = is_trial(c, ratio);
    g->n_trial += trial;
    g->n_apart += !trial && c->apart;
    return c->apart == trial;
}

/* -- Runs of workers -------------------------------------------------------------------------- */

router_gain *weft_gain__of(const router_worker *w, const weft_bundle_program *program)
{
    return &w->gain[program - w->bundle->bundle->program];
}

int64_t weft_gain__size(const router_model *m, const weft_request *r, int64_t rows)
{
    bool by_row = m->program->n_input > 0 && r->rows > 0;
    int64_t each = by_row ? weft_tensor_numel(&r->in[0]) / r->rows : 1;
    return weft_batch__padded(m, rows) * each;
}

/* What the requests of a packed batch would take by the programs of their model: each length a run,
 * or, of several lengths, by its packed program where that is another one. 0: not known. */
static double time_apart(const weft_router *router, const router_worker *w, const router_batch *b)
{
    const router_model *m = &router->model[b->model];
    int64_t tokens = 0;
    uint32_t n_length = 0;
    bool known = true;
    double sum = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        int64_t rows = 0;
        uint32_t first = 0;
        tokens += b->request_rows[i] * b->request_length[i];
        while (b->request_length[first] != b->request_length[i])
            first++;
        if (first < i)
            continue; /* counted with the first of this length */
        for (uint32_t k = i; k < b->n; k++)
            rows += b->request_length[k] == b->request_length[i] ? b->request_rows[k] : 0;
        double took =
            weft_gain__time(weft_gain__of(w, m->program), weft_gain__size(m, b->request[i], rows));
        known = known && took > 0;
        sum += took;
        n_length++;
    }
    sum = known ? sum : 0;
    if (!m->packed || m->packed == w->packed || n_length < 2)
        return sum;
    double packed =
        weft_gain__time(weft_gain__of(w, m->packed), weft_batch__packed_bucket(m->packed, tokens));
    return packed > 0 && (sum <= 0 || packed < sum) ? packed : sum;
}

bool weft_gain__keeps_packed(const weft_router *router, router_worker *w)
{
    double apart = 0;
    bool known = true;
    for (uint32_t k = 0; k < w->n_part; k++) {
        double took = time_apart(router, w, &w->part[k]);
        known = known && (took > 0 || w->part[k].n == 0);
        apart += took;
    }
    w->size = w->part[0].packed_rows;
    return router->options->always_together ||
           weft_gain__choose(weft_gain__of(w, w->packed), w->size, known ? apart : 0);
}

bool weft_gain__keeps_joint(const weft_router *router, router_worker *w, const joint_part *part)
{
    const weft_bundle_program *p = w->joint->program;
    double apart = 0;
    bool known = true;
    w->size = 0;
    for (uint32_t k = 0; k < p->n_part; k++) {
        const router_model *m = &router->model[w->joint->first + p->part[k].program];
        if (part[k].rows == 0)
            continue;
        int64_t size = weft_gain__size(m, m->head, part[k].rows);
        double took = weft_gain__time(weft_gain__of(w, m->program), size);
        known = known && took > 0;
        apart += took;
        w->size += size;
    }
    return router->options->always_together ||
           weft_gain__choose(weft_gain__of(w, p), w->size, known ? apart : 0);
}

bool weft_gain__keeps_heads(const weft_router *router, router_worker *w)
{
    double apart = 0;
    bool known = true;
    w->size = 0;
    for (uint32_t k = 0; k < w->n_part; k++) {
        const router_batch *b = &w->part[k];
        const router_model *m = &router->model[b->model];
        if (b->n == 0)
            continue;
        int64_t size = weft_gain__size(m, b->request[0], b->rows);
        double took = weft_gain__time(weft_gain__of(w, m->program), size);
        known = known && took > 0;
        apart += took;
        if (!b->is_equal[0]) /* its rows run */
            w->size = size;
    }
    return router->options->always_together ||
           weft_gain__choose(weft_gain__of(w, w->heads), w->size, known ? apart : 0);
}
