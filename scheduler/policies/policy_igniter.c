/* iGniter: each model gets the MPS share that its SLO requires, plus what the interference of
 * its neighbours costs.
 *
 * Source: iGniter (F. Xu et al., iGniter: interference-aware GPU resource provisioning for
 * predictable DNN inference in the cloud, IEEE TPDS 34(3), 2023), as the ParvaGPU paper (SC'24)
 * describes and runs it. This is Weft's form of it, not the published program.
 *
 * World of the paper. One type of GPU, MPS shares in steps of 2.5 %, one process for each model,
 * no model on two GPUs.
 *
 * Algorithm.
 * - Share: the batch is the smallest one that carries the rate within the latency rule (e <= L /
 *   2), the share the smallest one with such a batch.
 * - Interference: a share grows to the next one that keeps rate and SLO with all neighbours
 *   present; so do the shares of the neighbours, until nothing changes (a fixed point: shares
 *   only grow).
 * - Place: models by descending share, each on the GPU where the shares of all residents grow
 *   least because of it; if no GPU holds it within 100 %, on a new one.
 *
 * Changes.
 * - The paper fits a few profiles to predict the time at any share; here the shares are those of
 *   the profile. Its terms of interference (delay of the scheduler, contention in the L2 cache,
 *   power) need measurements that are not published; the factor of slo.c takes their place.
 *   Without coefficients there is no interference and no growth.
 * - Devices of several types: a new GPU is of the free type with the least share times price. A
 *   whole device is a share of 100 %.
 * - A model that needs more than one whole GPU is refused with that reason, as in the published
 *   comparison (S5, S6); the published program then emits a plan with 127.5 % of a GPU. With the
 *   goal goodput the model is carried as far as one GPU does.
 *
 * Parameters: none. Complexity: O(models * devices * residents * shares). */
#include "scheduler/policies/policies_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double slack = 1e-9;

typedef struct resident {
    uint32_t demand;
    double rate_per_s;
    const weft_option *option;
} resident;

typedef struct gpu {
    const weft_fleet_device *row;
    WEFT_VEC(resident) residents;
} gpu;

typedef struct work {
    uint32_t demand, rank, percent;
    double rate_per_s;
} work;

typedef struct packer {
    weft_builder *builder;
    WEFT_VEC(gpu) gpus;
    uint32_t *opened; /* by fleet row */
    resident *trial;  /* residents of the GPU under trial, and the newcomer */
    uint32_t trial_cap;
} packer;

static bool is_usable(const weft_option *o)
{
    return o->point->procs == 1 &&
           (o->spec.kind == WEFT_SLICE_WHOLE || o->spec.kind == WEFT_SLICE_MPS);
}

static uint32_t percent_of(const weft_option *o)
{
    return o->spec.kind == WEFT_SLICE_WHOLE ? 100 : o->spec.percent;
}

/* -- Shares ----------------------------------------------------------------------------------- */

/* Whether the option keeps rate and SLO beside neighbours of this utilisation. */
static bool holds(const weft_builder *builder, uint32_t demand, const weft_option *o,
                  double rate_per_s, const weft_pressure_sum *others)
{
    double slowdown =
        weft_interference__factor(&builder->problem->rules.interference, o->use, others);
    weft_slo_load_in in = {.rules = &builder->problem->rules,
                           .demand = &builder->demands->at[demand],
                           .point = o->point,
                           .exec_us =
                               o->exec_us * (o->spec.kind == WEFT_SLICE_WHOLE ? 1 : slowdown),
                           .slowdown = o->spec.kind == WEFT_SLICE_WHOLE ? 1 : slowdown,
                           .alone = true,
                           .rate_per_s = rate_per_s};
    return weft_rules__allow(in.rules, in.demand, in.exec_us) &&
           rate_per_s <= weft_slo__load(&in).capacity_per_s * (1 + slack);
}

/* The smallest share of at least `percent` on `row` that holds, with its smallest batch; NULL:
 * there is none. */
static const weft_option *find_share(const weft_builder *builder, uint32_t demand,
                                     const weft_fleet_device *row, uint32_t percent,
                                     double rate_per_s, const weft_pressure_sum *others)
{
    const weft_option *best = NULL;
    for (uint32_t i = 0; i < builder->n_option[demand]; i++) {
        const weft_option *o = &builder->option[demand][i];
        if (!is_usable(o) || o->row != row || percent_of(o) < percent)
            continue;
        if (best && (percent_of(o) > percent_of(best) ||
                     (percent_of(o) == percent_of(best) && o->point->batch >= best->point->batch)))
            continue;
        if (holds(builder, demand, o, rate_per_s, others))
            best = o;
    }
    return best;
}

static double most_of(const weft_builder *builder, uint32_t demand)
{
    double most = 0;
    for (uint32_t i = 0; i < builder->n_option[demand]; i++)
        if (is_usable(&builder->option[demand][i]))
            most = fmax(most, builder->option[demand][i].peak_per_s);
    return most;
}

/* Lists the models with the shares that they need alone. INFEASIBLE: a model needs more than one
 * GPU. */
static weft_err list_works(const weft_builder *builder, work *list, uint32_t *n)
{
    bool goodput = builder->problem->goal == WEFT_GOAL_GOODPUT;
    weft_err err = WEFT_ERR_OK;
    for (uint32_t i = 0; i < builder->demands->n; i++) {
        uint32_t d = builder->order[i];
        const weft_demand *demand = &builder->demands->at[d];
        weft_where where = {.item = demand->model};
        double most = most_of(builder, d);
        work w = {.demand = d, .rank = i, .percent = UINT32_MAX, .rate_per_s = demand->rate_per_s};
        if (goodput)
            w.rate_per_s = fmin(w.rate_per_s, most);
        for (size_t r = 0; r < builder->fleet->n_device; r++) {
            const weft_option *o = find_share(builder, d, &builder->fleet->device[r], 0,
                                              w.rate_per_s, &(weft_pressure_sum){0});
            if (o && percent_of(o) < w.percent)
                w.percent = percent_of(o);
        }
        if (w.percent != UINT32_MAX)
            list[(*n)++] = w;
        else if (most == 0 && !goodput)
            err =
                weft_diag_error(builder->diag, WEFT_ERR_INFEASIBLE, where,
                                "igniter places on MPS shares and whole GPUs, and the model meets "
                                "its SLO on none that it was profiled on; add such a profile, "
                                "allow MPS, or relax the SLO");
        else if (!goodput)
            err = weft_diag_error(builder->diag, WEFT_ERR_INFEASIBLE, where,
                                  "igniter never splits a model over GPUs, and one GPU carries "
                                  "%.6g/s of %.6g/s; another policy, or %.0f services with a part "
                                  "of the rate each, would be feasible",
                                  most, demand->rate_per_s, ceil(demand->rate_per_s / most));
    }
    return err;
}

/* -- Placing ---------------------------------------------------------------------------------- */

static weft_pressure_sum use_of_others(const packer *p, uint32_t n, uint32_t own)
{
    weft_pressure_sum sum = {0};
    for (uint32_t i = 0; i < n; i++)
        if (i != own)
            weft_interference__add(&p->builder->problem->rules.interference,
                                   p->trial[i].option->use, &sum);
    return sum;
}

static bool fits(const packer *p, uint32_t n)
{
    uint32_t percent = 0;
    uint64_t bytes = 0, has = p->trial[0].option->spec.mem_bytes;
    for (uint32_t i = 0; i < n; i++) {
        const weft_option *o = p->trial[i].option;
        percent += percent_of(o);
        if (n > 1 && o->spec.kind == WEFT_SLICE_WHOLE)
            return false;
        if (has && o->mem_bytes > has - bytes)
            return false;
        bytes += has ? o->mem_bytes : 0;
    }
    return percent <= 100 && n <= WEFT_MPS_CLIENTS_MAX;
}

/* Adds `w` to a GPU in p->trial, and lets shares grow until all hold; false: together they exceed
 * the device. *extra: growth, in percent, of residents and newcomer over their shares before. */
static bool try_gpu(packer *p, const gpu *g, const work *w, uint32_t *extra)
{
    weft_builder *builder = p->builder;
    uint32_t n = g->residents.len + 1, before = w->percent, after = 0;
    if (n > p->trial_cap) {
        p->trial_cap = 2 * n;
        p->trial = weft_arena_array(builder->arena, p->trial_cap, sizeof *p->trial);
    }
    for (uint32_t i = 0; i + 1 < n; i++) {
        p->trial[i] = g->residents.at[i];
        before += percent_of(p->trial[i].option);
    }
    const weft_option *own =
        find_share(builder, w->demand, g->row, 0, w->rate_per_s, &(weft_pressure_sum){0});
    if (!own)
        return false;
    p->trial[n - 1] = (resident){.demand = w->demand, .rate_per_s = w->rate_per_s, .option = own};
    if (!fits(p, n))
        return false;
    for (uint32_t i = 0; i < n;) { /* ends, because shares only grow */
        resident *r = &p->trial[i];
        weft_pressure_sum others = use_of_others(p, n, i);
        if (holds(builder, r->demand, r->option, r->rate_per_s, &others)) {
            i++;
            continue;
        }
        r->option = find_share(builder, r->demand, g->row, percent_of(r->option) + 1, r->rate_per_s,
                               &others);
        if (!r->option || !fits(p, n))
            return false;
        i = 0;
    }
    for (uint32_t i = 0; i < n; i++)
        after += percent_of(p->trial[i].option);
    *extra = after > before ? after - before : 0;
    return true;
}

/* The row with a free device and the least share times price; NULL: there is none. */
static const weft_fleet_device *choose_row(const packer *p, const work *w)
{
    const weft_builder *builder = p->builder;
    const weft_fleet_device *best = NULL;
    double least = INFINITY;
    for (size_t i = 0; i < builder->fleet->n_device; i++) {
        const weft_fleet_device *row = &builder->fleet->device[i];
        const weft_option *o =
            find_share(builder, w->demand, row, 0, w->rate_per_s, &(weft_pressure_sum){0});
        double price = weft_fleet__price(row);
        if (!o || p->opened[i] == row->count)
            continue;
        double cost = (price > 0 ? price : 1) * percent_of(o);
        if (cost < least) {
            least = cost;
            best = row;
        }
    }
    return best;
}

static bool place_work(packer *p, const work *w)
{
    uint32_t best = UINT32_MAX, least = 0, extra = 0;
    for (uint32_t i = 0; i < p->gpus.len; i++)
        if (try_gpu(p, &p->gpus.at[i], w, &extra) && (best == UINT32_MAX || extra < least)) {
            best = i;
            least = extra;
        }
    if (best == UINT32_MAX) {
        gpu fresh = {.row = choose_row(p, w)};
        if (!fresh.row)
            return false;
        p->opened[fresh.row - p->builder->fleet->device]++;
        WEFT_VEC_PUSH(p->builder->arena, &p->gpus, fresh);
        best = p->gpus.len - 1;
    }
    gpu *g = &p->gpus.at[best];
    if (!try_gpu(p, g, w, &extra))
        return false;
    resident own = p->trial[g->residents.len];
    for (uint32_t i = 0; i < g->residents.len; i++)
        g->residents.at[i] = p->trial[i];
    WEFT_VEC_PUSH(p->builder->arena, &g->residents, own);
    return true;
}

static int compare_works(const void *a, const void *b)
{
    const work *p = a, *q = b;
    if (p->percent != q->percent)
        return p->percent > q->percent ? -1 : 1;
    return (p->rank > q->rank) - (p->rank < q->rank);
}

static weft_err put_all(const packer *p)
{
    weft_builder *builder = p->builder;
    for (uint32_t i = 0; i < p->gpus.len; i++) {
        const gpu *g = &p->gpus.at[i];
        if (g->residents.len == 0)
            continue;
        uint32_t device = weft_builder__open(builder, g->row, g->residents.at[0].option->spec.kind);
        for (uint32_t k = 0; k < g->residents.len; k++) {
            const resident *r = &g->residents.at[k];
            if (device == UINT32_MAX ||
                !weft_builder__put(builder, device, -1, r->demand, r->option, r->rate_per_s))
                return weft_builder__full(builder, r->demand, r->rate_per_s);
        }
    }
    return WEFT_ERR_OK;
}

static weft_err place_igniter(void *state, const weft_problem *problem, weft_arena *arena,
                              weft_diag *diag, weft_plan *out)
{
    weft_builder builder;
    packer p = {.builder = &builder};
    uint32_t n = 0;
    (void)state;
    WEFT_TRY(weft_builder__init(&builder, problem, arena, diag));
    work *list = weft_arena_array(arena, problem->demands->n, sizeof *list);
    p.opened = weft_arena_array(arena, problem->fleet->n_device, sizeof *p.opened);
    WEFT_TRY(list_works(&builder, list, &n));
    if (n > 0)
        qsort(list, n, sizeof *list, compare_works);
    for (uint32_t i = 0; i < n; i++)
        if (!place_work(&p, &list[i]) && problem->goal != WEFT_GOAL_GOODPUT)
            return weft_builder__full(&builder, list[i].demand, list[i].rate_per_s);
    WEFT_TRY(put_all(&p));
    weft_builder__finish(&builder, "igniter", out);
    return WEFT_ERR_OK;
}

const weft_policy weft_policy_igniter = {
    .name = "igniter",
    .brief = "one MPS share a model, enlarged for its neighbours",
    .cite = "iGniter, TPDS 2023, as ParvaGPU (SC'24) describes it",
    .splits = WEFT_SPLIT_WHOLE | WEFT_SPLIT_MPS,
    .place = place_igniter,
};
