/* Rates estimated from cumulative counts.
 *
 * A rate that rises is seen in a short window, at once; one that falls is believed after down_s.
 * Windows of up_s, 2 up_s, 4 up_s... end now: a large rise shows in the shortest, a small one only
 * in a longer one, whose count is more exact. How far a rise has gone also shows in the last half
 * and the last quarter of up_s. A difference counts when it is significant for a
 * Poisson process: by the transform of Freeman and Tukey (1950), sqrt(n) + sqrt(n + 1) -
 * sqrt(4 m + 1) is nearly normal with deviation 1 for a count n with mean m.
 *
 * After a fall a service is planned for the mean of the last down_s, or for that part of it that is
 * significantly higher: a load that swings faster than down_s keeps its peak. Until down_s have
 * been seen, no rate falls (a new start must not scale down what it has not measured). */
#include "scheduler/control/control_int.h"

#include <math.h>
#include <string.h>

enum { SAMPLES_MAX = 512, PARTS = 16 };

double weft_control__sigma(uint64_t n, double mean)
{
    return sqrt((double)n) + sqrt((double)n + 1) - sqrt(4 * mean + 1);
}

/* -- History ---------------------------------------------------------------------------------- */

void weft_control__init_history(control_history *h, const weft_control_options *o,
                                uint32_t n_service, weft_arena *arena)
{
    double gap_s = fmax(o->up_s / 4, o->down_s / (SAMPLES_MAX - 8));
    *h = (control_history){.n_service = n_service,
                           .room = o->up_s > 0 ? SAMPLES_MAX : 1,
                           .gap_ns = (int64_t)(gap_s * 1e9)};
    h->at_ns = weft_arena_array(arena, h->room, sizeof *h->at_ns);
    h->sample = weft_arena_array(arena, (size_t)h->room * (n_service + 1), sizeof *h->sample);
}

void weft_control__forget(control_history *h)
{
    h->n = 0;
}

/* Index of the k-th oldest sample. */
static uint32_t slot(const control_history *h, uint32_t k)
{
    return (h->first + k) % h->room;
}

void weft_control__record(control_history *h, int64_t now_ns, const control_sample *now)
{
    if (h->n > 0 && now_ns - h->at_ns[slot(h, h->n - 1)] < h->gap_ns)
        return;
    if (h->n == h->room) {
        h->first = slot(h, 1);
        h->n--;
    }
    uint32_t at = slot(h, h->n++);
    h->at_ns[at] = now_ns;
    memcpy(&h->sample[(size_t)at * h->n_service], now, h->n_service * sizeof *now);
}

const control_sample *weft_control__look_back(const control_history *h, int64_t now_ns, int64_t ns,
                                              int64_t *age_ns)
{
    uint32_t lo = 0, hi = h->n;
    if (h->n == 0)
        return NULL;
    while (lo + 1 < hi) { /* sample lo is old enough, or the oldest */
        uint32_t mid = lo + (hi - lo) / 2;
        if (now_ns - h->at_ns[slot(h, mid)] >= ns)
            lo = mid;
        else
            hi = mid;
    }
    *age_ns = now_ns - h->at_ns[slot(h, lo)];
    return &h->sample[(size_t)slot(h, lo) * h->n_service];
}

/* -- Rates ------------------------------------------------------------------------------------ */

/* Arrivals since a sample of some age. */
typedef struct window {
    const control_sample *from;
    double s;
} window;

/* The windows of one observation, which all services share. */
typedef struct windows {
    window up[CONTROL_WINDOWS_MAX], last[2], part[PARTS], all;
    uint32_t n_up, n_last, n_part; /* part[k] begins k + 1 parts of down_s ago */
    bool full;                     /* down_s have been seen */
} windows;

static bool look(const control_history *h, int64_t now_ns, double s, window *out)
{
    int64_t age_ns = 0;
    int64_t ns = (int64_t)(s * 1e9);
    out->from = weft_control__look_back(h, now_ns, ns, &age_ns);
    out->s = (double)age_ns / 1e9;
    return out->from && age_ns > 0 && age_ns >= ns - ns / 32;
}

static windows find_windows(const control_history *h, const weft_control_options *o, int64_t now_ns)
{
    windows w = {.n_up = 0};
    double parts = fmin(PARTS, fmax(1, floor(o->down_s / o->up_s)));
    for (double s = o->up_s; s <= o->down_s && w.n_up < CONTROL_WINDOWS_MAX; s *= 2) {
        if (!look(h, now_ns, s, &w.up[w.n_up]))
            break;
        w.n_up++;
    }
    while (w.n_last < 2 && look(h, now_ns, o->up_s / (w.n_last ? 4 : 2), &w.last[w.n_last]))
        w.n_last++;
    while (w.n_part < parts &&
           look(h, now_ns, o->down_s * (w.n_part + 1) / parts, &w.part[w.n_part]))
        w.n_part++;
    w.full = look(h, now_ns, o->down_s, &w.all);
    return w;
}

static uint64_t arrived(const window *w, const control_sample *now, uint32_t i)
{
    return now[i].arrivals - w->from[i].arrivals;
}

/* The highest rate that a window shows to be above the one asked for. */
static void find_rise(const windows *w, double least, const control_sample *now, uint32_t i,
                      control_service *s)
{
    for (uint32_t k = 0; k < w->n_up; k++) {
        uint64_t n = arrived(&w->up[k], now, i);
        double rate = (double)n / w->up[k].s;
        double sigma = weft_control__sigma(n, s->asked_per_s * w->up[k].s);
        if (sigma <= least || rate <= s->up_per_s)
            continue;
        s->up_per_s = rate;
        s->n_up = n;
        s->up_s = w->up[k].s;
        s->up_sigma = sigma;
    }
    for (uint32_t k = 0; k < w->n_last && s->up_per_s > 0; k++) {
        uint64_t n = arrived(&w->last[k], now, i);
        if (weft_control__sigma(n, s->up_per_s * w->last[k].s) <= least)
            continue;
        s->up_per_s = (double)n / w->last[k].s;
        s->n_up = n;
        s->up_s = w->last[k].s;
    }
}

/* The highest rate among the mean and the parts of down_s. */
static double find_peak(const windows *w, double least, double mean, const control_sample *now,
                        uint32_t i)
{
    double peak = mean;
    for (uint32_t k = 0; k < w->n_part; k++) {
        uint64_t n = arrived(&w->part[k], now, i) - (k ? arrived(&w->part[k - 1], now, i) : 0);
        double len = w->part[k].s - (k ? w->part[k - 1].s : 0);
        if (len > 0 && weft_control__sigma(n, mean * len) > least)
            peak = fmax(peak, (double)n / len);
    }
    return peak;
}

static void estimate(const windows *w, double least, const control_sample *now, uint32_t i,
                     control_service *s)
{
    s->n_up = 0;
    s->up_per_s = s->up_s = s->up_sigma = s->down_sigma = 0;
    find_rise(w, least, now, i, s);
    s->down_per_s = s->asked_per_s;
    if (!w->all.from || !(w->all.s > 0))
        return;
    uint64_t n = arrived(&w->all, now, i);
    double peak = find_peak(w, least, (double)n / w->all.s, now, i);
    s->down_per_s = w->full ? peak : fmax(peak, s->asked_per_s);
    s->down_sigma = w->full ? weft_control__sigma(n, s->asked_per_s * w->all.s) : 0;
}

void weft_control__estimate(const control_history *h, const weft_control_options *o, int64_t now_ns,
                            const control_sample *now, control_service *service)
{
    windows w = find_windows(h, o, now_ns);
    for (uint32_t i = 0; i < h->n_service; i++)
        estimate(&w, o->sigma, now, i, &service[i]);
}
