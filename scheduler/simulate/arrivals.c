/* Generated requests: one stream for each service, merged by time.
 *
 * constant   Request k of a service of rate r comes at (k + 1/2) / r, computed from k, so that
 *            rounding errors do not add up.
 * poisson    Independent exponential gaps.
 * bursty     A Markov-modulated Poisson process with two states (W. Fischer, K. Meier-Hellstern,
 *            The Markov-modulated Poisson process (MMPP) cookbook, Performance Evaluation 18,
 *            1993). Bursts of mean length d cover a part f of the time and have k times the rate
 *            of the time between them. The mean rate stays r, so the rate between bursts is
 *            r / (1 - f + f k). The stay in a state is exponential; each service has its own
 *            state. The index of dispersion of counts tends to
 *            1 + 2 (l1 - l2)^2 s1 s2 / ((s1 + s2)^2 (l1 s2 + l2 s1)); l: the rates of requests,
 *            s: the rates of leaving the states.
 *
 * Times are whole nanoseconds; each gap is rounded once. Each service draws from its own
 * generator, seeded by the seed and its name: another service changes none of its requests. */
#include "scheduler/simulate/arrivals_int.h"

#include "base/hash.h"

#include <math.h>
#include <string.h>

/* -- Random numbers --------------------------------------------------------------------------- */

void weft_arrivals__seed(weft_rand *rng, uint64_t seed, const char *name)
{
    weft_rand_seed(rng, weft_hash64(name, strlen(name), seed));
}

static const double ln2_hi = 0x1.62e42fefa0000p-1, ln2_lo = 0x1.cf79abc9e3b3ap-40;

/* x = m 2^e with m in [sqrt 1/2, sqrt 2); ln m = 2 artanh((m - 1) / (m + 1)). */
double weft_num__ln(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int e = (int)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffffu) | (uint64_t)1023 << 52;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > 0x1.6a09e667f3bcdp0) {
        m *= 0.5;
        e++;
    }
    double s = (m - 1) / (m + 1), z = s * s;
    double p = 1.0 / 21;
    p = p * z + 1.0 / 19;
    p = p * z + 1.0 / 17;
    p = p * z + 1.0 / 15;
    p = p * z + 1.0 / 13;
    p = p * z + 1.0 / 11;
    p = p * z + 1.0 / 9;
    p = p * z + 1.0 / 7;
    p = p * z + 1.0 / 5;
    p = p * z + 1.0 / 3;
    return e * ln2_hi + (2 * s + (2 * s * z * p + e * ln2_lo));
}

/* x = k ln 2 + r with |r| <= ln 2 / 2; Taylor series of r. */
double weft_num__exp(double x)
{
    if (x < -700)
        return 0;
    int k = (int)(x * 0x1.71547652b82fep0 - 0.5);
    double r = (x - k * ln2_hi) - k * ln2_lo, p = 1;
    for (int i = 16; i > 0; i--)
        p = 1 + p * r / i;
    uint64_t bits = (uint64_t)(k + 1023) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

double weft_arrivals__exponential(weft_rand *rng)
{
    return -weft_num__ln(weft_rand_unit(rng));
}

/* -- Streams ---------------------------------------------------------------------------------- */

typedef struct stream {
    weft_rand rng;
    double gap_ns;    /* mean gap in the present state */
    double gap_of[2]; /* mean gap between bursts, and in a burst */
    double stay_of[2];
    int64_t next_ns, switch_ns;
    uint64_t k;
    double rate_per_s;
    bool burst;
} stream;

typedef struct generated {
    weft_arrivals base;
    weft_arrival_kind kind;
    int64_t end_ns;
    stream *stream;   /* by service */
    weft_timer *heap; /* the next request of each stream */
    size_t n;
} generated;

/* Later than the end of any stream. */
static const int64_t never_ns = INT64_MAX / 2;

static int64_t later(int64_t from_ns, double gap_ns)
{
    return gap_ns < (double)(never_ns - from_ns) ? from_ns + (int64_t)(gap_ns + 0.5) : never_ns;
}

static void advance_bursty(stream *s)
{
    int64_t at = s->next_ns;
    for (;;) {
        /* The exponential distribution has no memory: after a change of state the gap is drawn
         * anew. */
        int64_t next = later(at, s->gap_ns * weft_arrivals__exponential(&s->rng));
        if (next < s->switch_ns || s->switch_ns >= never_ns) {
            s->next_ns = next;
            return;
        }
        at = s->switch_ns;
        s->burst = !s->burst;
        s->gap_ns = s->gap_of[s->burst];
        s->switch_ns = later(at, s->stay_of[s->burst] * weft_arrivals__exponential(&s->rng));
    }
}

static void advance_stream(const generated *g, stream *s)
{
    switch (g->kind) {
    case WEFT_ARRIVE_CONSTANT: {
        double at = ((double)s->k + 0.5) * 1e9 / s->rate_per_s;
        s->next_ns = later(0, at);
        s->k++;
        break;
    }
    case WEFT_ARRIVE_BURSTY:
        advance_bursty(s);
        break;
    default:
        s->next_ns = later(s->next_ns, s->gap_ns * weft_arrivals__exponential(&s->rng));
    }
}

static weft_err next_generated(weft_arrivals *self, weft_arrival *out, bool *more)
{
    generated *g = (generated *)self;
    *more = g->n > 0;
    if (g->n == 0)
        return WEFT_ERR_OK;
    *out = (weft_arrival){g->heap[0].time_ns, g->heap[0].key};
    stream *s = &g->stream[g->heap[0].key];
    advance_stream(g, s);
    if (s->next_ns >= g->end_ns) {
        weft_timer__pop(g->heap, g->n--);
    } else {
        g->heap[0].time_ns = s->next_ns;
        weft_timer__sink(g->heap, g->n);
    }
    return WEFT_ERR_OK;
}

static void init_stream(stream *s, const weft_service *service, const weft_arrivals_options *o)
{
    double k = o->burst_factor > 0 ? o->burst_factor : 5;
    double f = o->burst_share > 0 ? o->burst_share : 0.1;
    double d = o->burst_s > 0 ? o->burst_s : 1;
    *s = (stream){.rate_per_s = service->rate_per_s, .gap_ns = 1e9 / service->rate_per_s};
    weft_arrivals__seed(&s->rng, o->seed, service->name);
    if (o->kind != WEFT_ARRIVE_BURSTY)
        return;
    double calm = service->rate_per_s / (1 - f + f * k);
    s->gap_of[0] = 1e9 / calm;
    s->gap_of[1] = 1e9 / (calm * k);
    s->stay_of[0] = d * 1e9 * (1 - f) / f;
    s->stay_of[1] = d * 1e9;
    s->burst = weft_rand_unit(&s->rng) < f;
    s->gap_ns = s->gap_of[s->burst];
    s->switch_ns = later(0, s->stay_of[s->burst] * weft_arrivals__exponential(&s->rng));
}

static weft_err check_options(const weft_arrivals_options *o, const weft_service *service, size_t n,
                              weft_diag *diag)
{
    const weft_where where = {0};
    if (!(o->duration_s > 0) || !(o->duration_s <= 1e9))
        return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                               "duration %g s must be from above 0 to 1e9 s", o->duration_s);
    if (!(o->burst_factor >= 0 && o->burst_factor <= 1e6) || !(o->burst_share >= 0) ||
        o->burst_share >= 1 || !(o->burst_s == 0 || (o->burst_s >= 1e-3 && o->burst_s <= 1e9)))
        return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                               "bursts: factor %g must be 0 to 1e6, share %g 0 to below 1, "
                               "length %g s from 1e-3 to 1e9 s",
                               o->burst_factor, o->burst_share, o->burst_s);
    if (n > WEFT_ARRIVAL_SERVICES_MAX)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "more than %d models",
                               WEFT_ARRIVAL_SERVICES_MAX);
    for (size_t i = 0; i < n; i++)
        if (!(service[i].rate_per_s >= 0) || !(service[i].rate_per_s <= 1e9))
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = service[i].name},
                                   "rate %g/s must be from 0 to 1e9/s", service[i].rate_per_s);
    return WEFT_ERR_OK;
}

weft_err weft_arrivals_generate(const weft_arrivals_options *options, const weft_service *service,
                                size_t n, weft_arena *arena, weft_diag *diag, weft_arrivals **out)
{
    WEFT_TRY(check_options(options, service, n, diag));
    generated *g = weft_arena_array(arena, 1, sizeof *g);
    *g = (generated){.base = {.next = next_generated},
                     .kind = options->kind,
                     .end_ns = (int64_t)(options->duration_s * 1e9)};
    g->stream = weft_arena_array(arena, n + 1, sizeof *g->stream);
    g->heap = weft_arena_array(arena, n + 1, sizeof *g->heap);
    for (size_t i = 0; i < n; i++) {
        stream *s = &g->stream[i];
        if (!(service[i].rate_per_s > 0))
            continue;
        init_stream(s, &service[i], options);
        advance_stream(g, s);
        if (s->next_ns < g->end_ns)
            weft_timer__push(g->heap, g->n++, (weft_timer){s->next_ns, (uint32_t)i});
    }
    *out = &g->base;
    return WEFT_ERR_OK;
}

/* -- Another speed ---------------------------------------------------------------------------- */

typedef struct faster {
    weft_arrivals base;
    weft_arrivals *of;
    double factor;
} faster;

static weft_err next_faster(weft_arrivals *self, weft_arrival *out, bool *more)
{
    faster *f = (faster *)self;
    WEFT_TRY(f->of->next(f->of, out, more));
    if (*more)
        out->time_ns = later(0, (double)out->time_ns / f->factor);
    return WEFT_ERR_OK;
}

static void close_faster(weft_arrivals *self)
{
    weft_arrivals_close(((faster *)self)->of);
}

void weft_arrivals_speed(weft_arrivals *arrivals, double factor, weft_arena *arena,
                         weft_arrivals **out)
{
    faster *f = weft_arena_array(arena, 1, sizeof *f);
    *f = (faster){{next_faster, close_faster}, arrivals, factor};
    *out = &f->base;
}

/* -- Use -------------------------------------------------------------------------------------- */

weft_err weft_arrivals_next(weft_arrivals *arrivals, weft_arrival *out, bool *more)
{
    return arrivals->next(arrivals, out, more);
}

void weft_arrivals_close(weft_arrivals *arrivals)
{
    if (arrivals && arrivals->close)
        arrivals->close(arrivals);
}
