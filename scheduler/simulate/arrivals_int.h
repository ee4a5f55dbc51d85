/* Shared by arrivals.c and trace_csv.c: random times, and the interface of a stream of requests. */
#ifndef WEFT_SCHEDULER_SIMULATE_ARRIVALS_INT_H
#define WEFT_SCHEDULER_SIMULATE_ARRIVALS_INT_H

#include "base/random.h"
#include "scheduler/scheduler.h"

enum { WEFT_ARRIVAL_SERVICES_MAX = 1 << 20 };

/* Exponential with mean 1. */
double weft_arrivals__exponential(weft_rand *rng);
/* Natural logarithm of x > 0 and exponential of x <= 0. Not libm's: the last bit of libm depends
 * on its version, and a simulation gives the same bytes on every machine. Relative error below
 * 1e-15. */
double weft_num__ln(double x);
double weft_num__exp(double x);
/* Seeds the generator of one service from the seed and its name. */
void weft_arrivals__seed(weft_rand *rng, uint64_t seed, const char *name);

struct weft_arrivals {
    weft_err (*next)(weft_arrivals *self, weft_arrival *out, bool *more);
    void (*close)(weft_arrivals *self);
};

/* -- A heap of (time, key), least first; equal times by key ----------------------------------- */

typedef struct weft_timer {
    int64_t time_ns;
    uint32_t key;
} weft_timer;

static inline bool weft_timer__before(weft_timer a, weft_timer b)
{
    return a.time_ns < b.time_ns || (a.time_ns == b.time_ns && a.key < b.key);
}

/* Restores the heap after a change of at[0]. */
static inline void weft_timer__sink(weft_timer *at, size_t n)
{
    weft_timer moving = at[0];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= n)
            break;
        if (child + 1 < n && weft_timer__before(at[child + 1], at[child]))
            child++;
        if (!weft_timer__before(at[child], moving))
            break;
        at[i] = at[child];
        i = child;
    }
    at[i] = moving;
}

/* Adds a timer to a heap of n; there must be room for n + 1. */
static inline void weft_timer__push(weft_timer *at, size_t n, weft_timer timer)
{
    size_t i = n;
    while (i > 0 && weft_timer__before(timer, at[(i - 1) / 2])) {
        at[i] = at[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    at[i] = timer;
}

/* Removes at[0] from a heap of n. */
static inline void weft_timer__pop(weft_timer *at, size_t n)
{
    at[0] = at[n - 1];
    if (n > 1)
        weft_timer__sink(at, n - 1);
}

#endif
