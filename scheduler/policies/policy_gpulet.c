/* Elastic partitioning: each GPU is split into at most two MPS shares (gpulets), each of which
 * may serve several models in turn.
 *
 * Source: gpulet (S. Choi et al., Serving heterogeneous machine learning models on multi-GPU
 * servers with spatio-temporal sharing, USENIX ATC'22).
 *
 * World of the paper. GPUs of one type, shares p and 100 - p, a latency table L(batch, share)
 * for each model, and a linear model of the slow-down of two gpulets on one GPU by each other.
 *
 * Algorithm. Models by ascending rate * SLO. For each one, while a rest of its rate is left:
 *   p_eff    the knee of T(p), the highest throughput on a share p within the latency rule
 *   p_req    the least share on which a batch b carries the rest: L <= b / rest and
 *            L + b / rest <= SLO; 100 if there is none
 *   p_ideal  min(p_eff, p_req)
 *   Best fit: of the free gpulets of at least p_ideal the smallest one, else a whole GPU, which
 *   is split into p_ideal and the remainder. The gpulet runs the largest batch that keeps the
 *   SLO beside the other gpulet, provided that the other gpulet keeps its own SLO. A rest that
 *   would not saturate the gpulet first tries to share a used one in time. Without a gpulet the
 *   model is infeasible.
 *
 * Decided here, where the paper is silent or its program differs.
 * - Knee: the point of T(p), both axes scaled to [0, 1], that is farthest above the diagonal,
 *   with 100 % among the shares. The program takes the steepest step and ignores 100 %.
 * - The paper plans for the 99th percentile of a Poisson count at the mean rate, and for latencies
 *   times 1.1. Here the rate and the times are those of the problem, as for every policy; the rule
 *   `queue` (queue_capacity.c) and `confidence` are the margins of this project.
 * - All of the rate is carried. The program accepts 85 % under interference, and any rest up to
 *   15/s.
 * - A model uses the largest profiled share that fits into the gpulet, with one process.
 * - Several types of GPUs: each model tries the types by their requests a dollar.
 * - Time sharing is that of the plan builder: the smallest batches that keep up with the round,
 *   on the gpulet that is then fullest.
 * - On CPUs (core_slices.c) the gpulets are the slices of the fleet: the least size that carries
 * the rest (p_req), with its largest batch, or a used one in time.
 * - Goal `goodput`: a rest without a gpulet is dropped.
 * - The paper repeats the algorithm for N = 1, 2, ... GPUs (every 20 s). As free gpulets are
 *   preferred to whole GPUs, N enters no decision: one run with all GPUs ends where that loop
 *   ends.
 *
 * Parameters: none. Complexity: O(gpulets * GPUs + gpulets^2 * batches). */
#include "scheduler/policies/core_slices.h"

#include <math.h>
#include <stdlib.h>

static const double slack = 1e-9;

enum { WHOLE_PERCENT = 100 };

/* A model on a share of one type of GPU. */
typedef struct share {
    uint32_t shape, percent;
    double peak_per_s; /* with its best batch */
} share;

/* The shares of one model on one fleet row, ascending. */
typedef struct shares {
    const weft_fleet_device *row;
    share at[WHOLE_PERCENT + 1];
    uint32_t n;
} shares;

static bool is_share(const weft_option *o)
{
    return o->point->procs == 1 &&
           (o->spec.kind == WEFT_SLICE_WHOLE || o->spec.kind == WEFT_SLICE_MPS);
}

static uint32_t percent_of(const weft_option *o)
{
    return o->spec.kind == WEFT_SLICE_WHOLE ? WHOLE_PERCENT : o->spec.percent;
}

static double price_of(const weft_fleet_device *row)
{
    double price = weft_fleet__price(row);
    return price > 0 ? price : 1;
}

/* -- Shares of a model ------------------------------------------------------------------------ */

static int compare_shares(const void *a, const void *b)
{
    const share *p = a, *q = b;
    if (p->percent != q->percent)
        return p->percent < q->percent ? -1 : 1;
    return (p->shape > q->shape) - (p->shape < q->shape);
}

/* One share of each size; of a whole GPU and an MPS share of 100 %, the whole GPU. */
static void list_shares(const weft_builder *builder, uint32_t demand, const weft_fleet_device *row,
                        shares *out)
{
    *out = (shares){.row = row};
    for (uint32_t i = 0; i < builder->n_option[demand]; i++) {
        const weft_option *o = &builder->option[demand][i];
        uint32_t k = 0;
        if (o->row != row || !is_share(o))
            continue;
        while (k < out->n && out->at[k].percent != percent_of(o))
            k++;
        if (k == out->n)
            out->at[out->n++] = (share){.shape = o->shape, .percent = percent_of(o)};
        if (out->at[k].shape == o->shape)
            out->at[k].peak_per_s = fmax(out->at[k].peak_per_s, o->peak_per_s);
    }
    if (out->n > 0)
        qsort(out->at, out->n, sizeof *out->at, compare_shares);
}

/* p_eff: the share at which T(p) is farthest above the diagonal. */
static uint32_t find_knee(const shares *s)
{
    double least = INFINITY, most = 0, distance = -INFINITY;
    uint32_t knee = s->at[0].percent, first = s->at[0].percent, last = s->at[s->n - 1].percent;
    for (uint32_t i = 0; i < s->n; i++) {
        least = fmin(least, s->at[i].peak_per_s);
        most = fmax(most, s->at[i].peak_per_s);
    }
    for (uint32_t i = 0; i < s->n; i++) {
        double p = last > first ? (double)(s->at[i].percent - first) / (last - first) : 0;
        double t = most > least ? (s->at[i].peak_per_s - least) / (most - least) : 0;
        if (t - p > distance + slack) {
            distance = t - p;
            knee = s->at[i].percent;
        }
    }
    return knee;
}

/* p_req: the least share on which a batch carries the rest. */
static uint32_t find_required(const weft_builder *builder, uint32_t demand, const shares *s,
                              double rest_per_s)
{
    const weft_demand *d = &builder->demands->at[demand];
    double slo_us = d->slo_us > 0 ? weft_rules__slo_us(&builder->problem->rules, d) : INFINITY;
    for (uint32_t i = 0; i < s->n; i++) {
        weft_choice c = weft_option_table__choice(&builder->table, demand, s->at[i].shape);
        for (uint32_t k = 0; k < c.n; k++) {
            const weft_option *o = &builder->option[demand][c.first + k];
            double fill_us = rest_per_s > 0 ? o->point->batch * 1e6 / rest_per_s : 0;
            if (o->point->procs != 1)
                continue;
            if (rest_per_s <= 0 || (o->exec_us <= fill_us && o->exec_us + fill_us <= slo_us))
                return s->at[i].percent;
        }
    }
    return WHOLE_PERCENT;
}

/* The largest share that fits into `percent`; NULL: there is none. */
static const share *find_share(const shares *s, uint32_t percent)
{
    const share *found = NULL;
    for (uint32_t i = 0; i < s->n && s->at[i].percent <= percent; i++)
        found = &s->at[i];
    return found;
}

/* -- Glets ------------------------------------------------------------------------------------ */

/* L2 and DRAM utilisation of the other gpulet of a device; of several models in turn, the
 * largest. */
static weft_pressure_sum use_beside(const weft_builder *builder, uint32_t device)
{
    weft_pressure_sum use = {0};
    uint32_t last = builder->devices.at[device].last;
    if (last != UINT32_MAX)
        weft_interference__add(&builder->problem->rules.interference,
                               weft_builder__pressure(&builder->slices.at[last]), &use);
    return use;
}

/* Gives the gpulet the largest batch that fits beside the other gpulet, for as much of the rest as
 * it carries. `take` false: only computes *carried. */
static bool use_glet(weft_builder *builder, uint32_t demand, const share *s, uint32_t device,
                     double rest_per_s, bool take, double *carried)
{
    weft_choice c = weft_option_table__choice(&builder->table, demand, s->shape);
    weft_pressure_sum other = use_beside(builder, device);
    /* points are sorted by batch, then by processes: the last one is the largest */
    for (uint32_t k = c.n; k-- > 0;) {
        const weft_option *o = &builder->option[demand][c.first + k];
        if (o->point->procs != 1)
            continue;
        double factor =
            weft_interference__factor(&builder->problem->rules.interference, o->use, &other);
        double part = fmin(rest_per_s, o->peak_per_s / factor);
        uint32_t mark = weft_builder__mark(builder);
        if (!weft_builder__put(builder, device, -1, demand, o, part))
            continue;
        *carried = part;
        if (!take)
            weft_builder__undo(builder, mark);
        return true;
    }
    return false;
}

/* A place for a model: a free gpulet of an open device, or a new device (device UINT32_MAX). */
typedef struct glet {
    const share *share;
    uint32_t device;
    double carried;
} glet;

/* The next place that is large enough: free gpulets by ascending size, then a whole GPU. */
static bool find_glet(weft_builder *builder, uint32_t demand, const shares *s, uint32_t ideal,
                      double rest_per_s, glet *out)
{
    for (uint32_t size = ideal; size < WHOLE_PERCENT; size++) {
        const share *fits = find_share(s, size);
        for (uint32_t i = 0; fits && i < builder->devices.len; i++) {
            const weft_builder_device *device = &builder->devices.at[i];
            if (device->row != s->row || device->kind != WEFT_SLICE_MPS || device->n_slice != 1 ||
                WHOLE_PERCENT - device->percent != size)
                continue;
            *out = (glet){.share = fits, .device = i};
            if (use_glet(builder, demand, fits, i, rest_per_s, false, &out->carried))
                return true;
        }
    }
    const share *split = find_share(s, ideal);
    if (!split)
        return false;
    uint32_t mark = weft_builder__mark(builder);
    weft_fleet_slice_kind kind = builder->table.shape[split->shape].spec.kind;
    uint32_t device = weft_builder__open(builder, s->row, kind);
    *out = (glet){.share = split, .device = UINT32_MAX};
    bool ok = device != UINT32_MAX &&
              use_glet(builder, demand, split, device, rest_per_s, true, &out->carried);
    weft_builder__undo(builder, mark);
    return ok;
}

static bool take_glet(weft_builder *builder, uint32_t demand, const shares *s, const glet *g,
                      double rest_per_s, double *carried)
{
    uint32_t device = g->device;
    if (device == UINT32_MAX)
        device =
            weft_builder__open(builder, s->row, builder->table.shape[g->share->shape].spec.kind);
    return device != UINT32_MAX &&
           use_glet(builder, demand, g->share, device, rest_per_s, true, carried);
}

/* Joins the used gpulet that is then fullest. */
static bool share_glet(weft_builder *builder, uint32_t demand, double rest_per_s)
{
    uint32_t best = UINT32_MAX;
    double most = -1, occupancy;
    for (uint32_t i = 0; i < builder->slices.len; i++) {
        if (!weft_builder__share(builder, i, demand, rest_per_s, false, &occupancy))
            continue;
        if (best == UINT32_MAX || occupancy > most + slack) {
            best = i;
            most = occupancy;
        }
    }
    return best != UINT32_MAX &&
           weft_builder__share(builder, best, demand, rest_per_s, true, &occupancy);
}

/* -- The policy ------------------------------------------------------------------------------- */

/* Fleet rows by requests a dollar on a whole GPU, best first; returns the number of rows that have
 * shares of the model. */
static uint32_t rank_rows(const weft_builder *builder, uint32_t demand, shares *out)
{
    uint32_t n = 0;
    for (size_t r = 0; r < builder->fleet->n_device; r++) {
        shares s;
        list_shares(builder, demand, &builder->fleet->device[r], &s);
        if (s.n == 0)
            continue;
        double value = s.at[s.n - 1].peak_per_s / price_of(s.row);
        uint32_t at = n++;
        for (; at > 0; at--) {
            const shares *before = &out[at - 1];
            if (before->at[before->n - 1].peak_per_s / price_of(before->row) >= value - slack)
                break;
            out[at] = out[at - 1];
        }
        out[at] = s;
    }
    return n;
}

/* One gpulet, or a place in the round of a used one, for some of the rest; false: there is none. */
static bool place_some(weft_builder *builder, uint32_t demand, const shares *row, uint32_t n_row,
                       double *rest)
{
    double carried = 0;
    for (uint32_t i = 0; i < n_row; i++) {
        const shares *s = &row[i];
        glet g;
        uint32_t knee = find_knee(s), required = find_required(builder, demand, s, *rest);
        uint32_t ideal = knee < required ? knee : required;
        /* If no batch keeps the SLO on a gpulet, a larger one is tried. */
        for (; ideal <= WHOLE_PERCENT; ideal++)
            if (find_glet(builder, demand, s, ideal, *rest, &g))
                break;
        if (ideal > WHOLE_PERCENT)
            continue;
        if (g.carried >= *rest * (1 - slack) && share_glet(builder, demand, *rest)) {
            *rest = 0;
            return true;
        }
        if (!take_glet(builder, demand, s, &g, *rest, &carried))
            continue;
        *rest -= carried;
        return true;
    }
    if (!share_glet(builder, demand, *rest))
        return false;
    *rest = 0;
    return true;
}

static weft_err place_model(weft_builder *builder, uint32_t demand, shares *row)
{
    const weft_demand *d = &builder->demands->at[demand];
    uint32_t n_row = rank_rows(builder, demand, row);
    double rest = d->rate_per_s;
    bool drop = builder->problem->goal == WEFT_GOAL_GOODPUT;
    if (n_row == 0)
        return drop ? WEFT_ERR_OK
                    : weft_diag_error(builder->diag, WEFT_ERR_INFEASIBLE,
                                      (weft_where){.item = d->model},
                                      "gpulet places on MPS shares and whole GPUs only, and the "
                                      "model meets its SLO on none that it was profiled on; add "
                                      "such a profile, allow mps, or relax the SLO");
    do {
        if (place_some(builder, demand, row, n_row, &rest))
            continue;
        return drop ? WEFT_ERR_OK : weft_builder__full(builder, demand, rest);
    } while (rest > d->rate_per_s * slack);
    return WEFT_ERR_OK;
}

static double rate_times_slo(const weft_builder *builder, uint32_t demand)
{
    const weft_demand *d = &builder->demands->at[demand];
    return d->rate_per_s * weft_rules__slo_us(&builder->problem->rules, d);
}

/* -- CPU slices ------------------------------------------------------------------------------- */

/* The least size that carries the rest, else the size with the most throughput; of equal ones the
 * largest batch. */
static bool is_better_core(const weft_builder *builder, uint32_t demand, const weft_option *a,
                           const weft_option *b, double rest_per_s)
{
    bool carries = a->peak_per_s >= rest_per_s * (1 - slack);
    bool other = b->peak_per_s >= rest_per_s * (1 - slack);
    (void)builder;
    (void)demand;
    if (carries != other)
        return carries;
    if (carries && a->spec.cores != b->spec.cores)
        return a->spec.cores < b->spec.cores;
    if (!carries && fabs(a->peak_per_s - b->peak_per_s) > slack * b->peak_per_s)
        return a->peak_per_s > b->peak_per_s;
    return a->point->batch > b->point->batch;
}

static weft_err place_gpulet(void *state, const weft_problem *problem, weft_arena *arena,
                             weft_diag *diag, weft_plan *out)
{
    weft_builder builder;
    size_t n = problem->demands->n;
    (void)state;
    WEFT_TRY(weft_builder__init(&builder, problem, arena, diag));
    if (weft_cores__only(problem->fleet)) {
        static const weft_cores_rule rule = {
            .in_turn = true, .weight = rate_times_slo, .is_better = is_better_core};
        WEFT_TRY(weft_cores__place(&builder, &rule));
        weft_builder__finish(&builder, "gpulet", out);
        return WEFT_ERR_OK;
    }
    shares *row = weft_arena_array(arena, problem->fleet->n_device + 1, sizeof *row);
    const uint32_t *order = weft_builder__sort(&builder, rate_times_slo);
    for (size_t i = 0; i < n; i++)
        WEFT_TRY(place_model(&builder, order[i], row));
    weft_builder__finish(&builder, "gpulet", out);
    return WEFT_ERR_OK;
}

const weft_policy weft_policy_gpulet = {
    .name = "gpulet",
    .brief = "two MPS shares a GPU, models in turn on each",
    .cite = "gpulet, ATC'22",
    .splits = WEFT_SPLIT_WHOLE | WEFT_SPLIT_MPS | WEFT_SPLIT_CORES | WEFT_SPLIT_TIME,
    .place = place_gpulet,
};
