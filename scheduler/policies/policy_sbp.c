/* Squishy bin packing: whole GPUs, each of which serves several models in turn.
 *
 * Source: Nexus (H. Shen et al., Nexus: a GPU cluster engine for accelerating DNN-based video
 * analysis, SOSP'19); a baseline of gpulet and of USHER.
 *
 * World of the paper. GPUs of one type, never split. A session (model, rate r, latency limit L)
 * runs in batches; e(b) is the time of batch b. A GPU runs its sessions in a fixed round, the
 * duty cycle D.
 *
 * Algorithm.
 * - Saturate: B is the batch with the highest throughput T = B / e(B) among those with 2 e(B) <=
 *   L. floor(r / T) whole GPUs serve this session only. The residue is q < T.
 * - Residue: alone on a GPU, it would run batch b once in D = b / q, with occupancy e(b) / D.
 *   Chosen is the feasible b (e(b) + D <= L, e(b) <= D) of the least occupancy.
 * - Merge: best-fit decreasing. Residues by descending occupancy, each into the open GPU that is
 *   then fullest: D becomes the smaller of both duty cycles, each batch becomes ceil(D q_i);
 *   feasible if the sum of e_i <= D, all D + e_i <= L_i and the memory suffices. Otherwise a new
 *   GPU.
 *
 * Changes.
 * - Execution times are not monotone in the batch (vgg16 of the Nexus data gets faster at 35 of
 *   173 steps). Each choice of a batch is an exact argmax over all batches, of equal ones the
 *   smaller; Nexus searches for the largest feasible batch.
 * - D is at most L - e(b): at a low rate the server closes the batch early, so b = 1 is feasible
 *   whenever 2 e(1) <= L. Nexus has no solution there.
 * - Profiles with gaps: ceil(D q_i) becomes the fastest profiled batch that is at least as
 *   large.
 * - Devices of several types: a model saturates the type with the lowest price for a request,
 *   and the next type when that one is used up; a residue tries the open devices of all types
 *   before a new one.
 * - Goal `goodput`: a model without a device is dropped, in the order of names.
 * - As in the paper, a model has one process on a device.
 *
 * Parameters: none. Complexity: O(models * devices * options), of the merge. */
#include "scheduler/policies/policies_int.h"

#include <math.h>
#include <stdlib.h>

static const double slack = 1e-9;

typedef struct member {
    uint32_t demand;
    const weft_option *option;
    double rate_per_s;
} member;

typedef struct bin {
    uint32_t slice;   /* in the builder */
    uint32_t shape;   /* of its options */
    double cycle_us;  /* of the round */
    uint32_t refused; /* 1 + index of the residue that the builder refused here last */
    WEFT_VEC(member) members;
} bin;

/* A residue alone on a device. */
typedef struct residue {
    uint32_t demand, rank;
    double rate_per_s, occupancy;
} residue;

typedef struct packer {
    weft_builder *builder;
    WEFT_VEC(bin) bins;
    WEFT_VEC(residue) residues;
    member *trial; /* room for the members of the largest bin and one more */
    const weft_option **trial_option;
    uint32_t trial_cap;
} packer;

/* Throughput of back-to-back executions; at most the measured one. */
static double peak_of(const weft_option *o)
{
    return fmin(o->peak_per_s, o->point->batch * 1e6 / o->exec_us);
}

static double slo_of(const weft_builder *builder, uint32_t demand)
{
    double slo_us = weft_rules__slo_us(&builder->problem->rules, &builder->demands->at[demand]);
    return builder->demands->at[demand].slo_us > 0 ? slo_us : INFINITY;
}

static bool is_whole(const weft_option *o)
{
    return o->point->procs == 1 &&
           (o->spec.kind == WEFT_SLICE_WHOLE ||
            (o->spec.kind == WEFT_SLICE_MIG && o->spec.mig->gpcs == o->spec.mig->of_gpcs));
}

static double price_of(const weft_option *o)
{
    return o->price_per_hour > 0 ? o->price_per_hour : 1;
}

/* -- Saturation ------------------------------------------------------------------------------- */

/* The option with the most requests a dollar on a row with a free device; NULL: there is none. */
static const weft_option *find_saturated(const weft_builder *builder, uint32_t demand)
{
    const weft_option *best = NULL;
    for (uint32_t i = 0; i < builder->n_option[demand]; i++) {
        const weft_option *o = &builder->option[demand][i];
        if (!is_whole(o) || !weft_builder__has_place(builder, o))
            continue;
        double value = peak_of(o) / price_of(o);
        if (!best || value > peak_of(best) / price_of(best) * (1 + slack))
            best = o;
    }
    return best;
}

/* Duty cycle of a batch alone on its device; 0: the batch cannot carry the rate. */
static double duty_cycle(const weft_builder *builder, uint32_t demand, const weft_option *o,
                         double rate_per_s)
{
    if (rate_per_s > peak_of(o) * (1 + slack))
        return 0;
    double fill_us = rate_per_s > 0 ? o->point->batch * 1e6 / rate_per_s : INFINITY;
    return fmin(fill_us, slo_of(builder, demand) - o->exec_us);
}

/* The batch of the least occupancy on slices of `shape` (UINT32_MAX: on any free device). */
static const weft_option *find_residue(const weft_builder *builder, uint32_t demand,
                                       double rate_per_s, uint32_t shape, double *out_occupancy)
{
    const weft_option *best = NULL;
    double least = INFINITY;
    weft_choice in = {.n = builder->n_option[demand]};
    if (shape != UINT32_MAX)
        in = weft_option_table__choice(&builder->table, demand, shape);
    for (uint32_t i = in.first; i < in.first + in.n; i++) {
        const weft_option *o = &builder->option[demand][i];
        if (!is_whole(o) || (shape == UINT32_MAX && !weft_builder__has_place(builder, o)))
            continue;
        double cycle_us = duty_cycle(builder, demand, o, rate_per_s);
        if (!(cycle_us > 0) || o->exec_us > cycle_us * (1 + slack))
            continue;
        double cost = o->exec_us / cycle_us * price_of(o);
        if (!best || cost < least * (1 - slack)) {
            best = o;
            least = cost;
        }
    }
    if (best)
        *out_occupancy = best->exec_us / duty_cycle(builder, demand, best, rate_per_s);
    return best;
}

static weft_err saturate(packer *p, uint32_t demand, uint32_t rank)
{
    weft_builder *builder = p->builder;
    double rate = builder->demands->at[demand].rate_per_s, rest = rate;
    bool any = false;
    for (uint32_t i = 0; i < builder->n_option[demand]; i++)
        any = any || is_whole(&builder->option[demand][i]);
    if (!any && builder->problem->goal == WEFT_GOAL_GOODPUT)
        return WEFT_ERR_OK;
    if (!any)
        return weft_diag_error(builder->diag, WEFT_ERR_INFEASIBLE,
                               (weft_where){.item = builder->demands->at[demand].model},
                               "sbp places on whole GPUs only, and the model meets its SLO on none "
                               "that it was profiled on; add a profile of a whole GPU, or relax "
                               "the SLO");
    for (;;) {
        const weft_option *o = find_saturated(builder, demand);
        if (!o || rest < peak_of(o) * (1 - slack) || rest <= rate * slack)
            break;
        /* All devices of that type: the choice stays the same until they are used up. */
        uint32_t before = builder->slices.len;
        while (rest >= peak_of(o) * (1 - slack) && rest > rate * slack) {
            double part = fmin(rest, peak_of(o));
            if (!weft_builder__add(builder, demand, o, part, false))
                break;
            rest -= part;
        }
        if (builder->slices.len == before)
            break;
    }
    if (rest > rate * slack || rate == 0) {
        residue r = {.demand = demand, .rank = rank, .rate_per_s = rest};
        if (!find_residue(builder, demand, rest, UINT32_MAX, &r.occupancy))
            r.occupancy = 1;
        WEFT_VEC_PUSH(builder->arena, &p->residues, r);
    }
    return WEFT_ERR_OK;
}

/* -- Residues --------------------------------------------------------------------------------- */

static int compare_residues(const void *a, const void *b)
{
    const residue *r = a, *s = b;
    if (r->occupancy != s->occupancy)
        return r->occupancy > s->occupancy ? -1 : 1;
    return (r->rank > s->rank) - (r->rank < s->rank);
}

/* The fastest batch of at least cycle * rate requests that keeps the SLO; NULL: there is none. */
static const weft_option *find_batch(const weft_builder *builder, const member *m, const bin *in,
                                     double cycle_us)
{
    const weft_option *best = NULL;
    weft_choice at = weft_option_table__choice(&builder->table, m->demand, in->shape);
    for (uint32_t i = at.first; i < at.first + at.n; i++) {
        const weft_option *o = &builder->option[m->demand][i];
        if (!is_whole(o))
            continue;
        if (m->rate_per_s > 0 && m->rate_per_s * cycle_us > o->point->batch * 1e6 * (1 + slack))
            continue;
        if (cycle_us + o->exec_us > slo_of(builder, m->demand) * (1 + slack))
            continue;
        if (!best || o->exec_us < best->exec_us)
            best = o;
    }
    return best;
}

/* Tries a residue in an open bin. Returns the occupancy, with the members and their new batches in
 * p->trial, or -1. */
static double try_bin(packer *p, const bin *in, const residue *r, double *out_cycle_us)
{
    weft_builder *builder = p->builder;
    uint32_t n = in->members.len + 1;
    double occupancy, sum_us = 0;
    if (n > p->trial_cap) {
        p->trial_cap = n * 2;
        p->trial = weft_arena_array(builder->arena, p->trial_cap, sizeof *p->trial);
        p->trial_option = weft_arena_array(builder->arena, p->trial_cap, sizeof *p->trial_option);
    }
    const weft_option *own = find_residue(builder, r->demand, r->rate_per_s, in->shape, &occupancy);
    if (!own)
        return -1;
    double cycle_us = fmin(in->cycle_us, duty_cycle(builder, r->demand, own, r->rate_per_s));
    for (uint32_t i = 0; i < n; i++) {
        member *m = &p->trial[i];
        *m = i + 1 < n ? in->members.at[i]
                       : (member){.demand = r->demand, .rate_per_s = r->rate_per_s};
        m->option = p->trial_option[i] = find_batch(builder, m, in, cycle_us);
        if (!m->option)
            return -1;
        sum_us += m->option->exec_us;
    }
    if (sum_us > cycle_us)
        return -1;
    *out_cycle_us = cycle_us;
    return isinf(cycle_us) ? 0 : sum_us / cycle_us;
}

/* Puts a residue into the bin that is then fullest; false: no bin takes it. */
static bool join_bin(packer *p, const residue *r)
{
    uint32_t number = (uint32_t)(r - p->residues.at) + 1;
    for (;;) {
        uint32_t best = UINT32_MAX;
        double most = -1, cycle_us = 0;
        for (uint32_t i = 0; i < p->bins.len; i++) {
            double occupancy =
                p->bins.at[i].refused == number ? -1 : try_bin(p, &p->bins.at[i], r, &cycle_us);
            if (occupancy > most + slack) {
                most = occupancy;
                best = i;
            }
        }
        if (best == UINT32_MAX)
            return false;
        bin *b = &p->bins.at[best];
        (void)try_bin(p, b, r, &cycle_us);
        /* The builder also checks the memory, and rules that forbid sharing. */
        if (!weft_builder__join(p->builder, b->slice, r->demand, r->rate_per_s, p->trial_option)) {
            b->refused = number;
            continue;
        }
        b->cycle_us = cycle_us;
        member own = p->trial[b->members.len];
        for (uint32_t i = 0; i < b->members.len; i++)
            b->members.at[i] = p->trial[i];
        WEFT_VEC_PUSH(p->builder->arena, &b->members, own);
        return true;
    }
}

/* Opens a device for a residue; false: none is free. */
static bool open_bin(packer *p, const residue *r)
{
    weft_builder *builder = p->builder;
    double occupancy;
    const weft_option *o = find_residue(builder, r->demand, r->rate_per_s, UINT32_MAX, &occupancy);
    if (!o || !weft_builder__add(builder, r->demand, o, r->rate_per_s, false))
        return false;
    bin b = {.slice = builder->slices.len - 1,
             .shape = o->shape,
             .cycle_us = duty_cycle(builder, r->demand, o, r->rate_per_s)};
    member m = {.demand = r->demand, .option = o, .rate_per_s = r->rate_per_s};
    WEFT_VEC_PUSH(builder->arena, &b.members, m);
    WEFT_VEC_PUSH(builder->arena, &p->bins, b);
    return true;
}

static weft_err place_sbp(void *state, const weft_problem *problem, weft_arena *arena,
                          weft_diag *diag, weft_plan *out)
{
    weft_builder builder;
    packer p = {.builder = &builder};
    (void)state;
    WEFT_TRY(weft_builder__init(&builder, problem, arena, diag));
    for (uint32_t i = 0; i < problem->demands->n; i++)
        WEFT_TRY(saturate(&p, builder.order[i], i));
    if (p.residues.len > 0)
        qsort(p.residues.at, p.residues.len, sizeof *p.residues.at, compare_residues);
    for (uint32_t i = 0; i < p.residues.len; i++) {
        const residue *r = &p.residues.at[i];
        if (!join_bin(&p, r) && !open_bin(&p, r) && problem->goal != WEFT_GOAL_GOODPUT)
            return weft_builder__full(&builder, r->demand, r->rate_per_s);
    }
    weft_builder__finish(&builder, "sbp", out);
    return WEFT_ERR_OK;
}

const weft_policy weft_policy_sbp = {
    .name = "sbp",
    .brief = "whole GPUs, several models in turn on each",
    .cite = "squishy bin packing of Nexus, SOSP'19",
    .splits = WEFT_SPLIT_WHOLE | WEFT_SPLIT_TIME,
    .place = place_sbp,
};
