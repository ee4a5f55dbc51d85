/* ParvaGPU: MIG segments, each with MPS processes of one model.
 *
 * Source: M. Lee et al., ParvaGPU: efficient spatial GPU sharing for large-scale DNN inference
 * in cloud environments, SC'24; the published program where the text is silent.
 *
 * World of the paper. One type of GPU that MIG splits, any number of GPUs. Services never share
 * an instance; MPS separates only the processes of one model in an instance. Each size, batch
 * and number of processes is profiled. On a fleet of several types a plan is made on each type
 * alone, and the cheapest is taken.
 *
 * Algorithm, by section of the paper.
 * 4.1 Triplet decision: for each service and instance size, the point with the highest
 *     throughput within the latency rule (of equal ones the first by batch, then processes).
 * 4.2 Demand matching: the size with the highest throughput per GPC, floor(rate / throughput)
 *     times, and a last segment of the smallest size that carries the rest.
 * 4.3 Segment relocation: first-fit decreasing by size; start slots 7:0 4:0 3:4 2:0 2 4 1:0..6.
 *     A 3g never starts at slot 0, where it would block slot 3.
 * 4.4 Allocation optimisation: from the last GPU to the first, a GPU with at most theta GPCs in
 *     use is emptied and its load cut into the smallest segments, which fill gaps in earlier
 *     GPUs.
 * 4.5 With a previous plan, services that it still serves keep their segments; the others go
 *     through 4.1 to 4.4.
 *
 * Changes.
 * - Placements are legal. The published maps overlap, because only the start slot is tested and
 *   not the range. A rate that is an exact multiple has no last segment, and no service is a
 *   segment short.
 * - The plan before 4.4 is kept unless 4.4 saves a GPU. If whole-GPU instances for every service
 *   need fewer GPUs still, they are taken (not by parva-unoptimised, which exists to show its
 *   waste).
 * - On CPUs (core_slices.c) 4.1 and 4.2 choose among the sizes of the fleet's slices; 4.3 is the
 *   first free slice, and 4.4 has nothing to cut.
 * - Rates are split in proportion to the capacities of the segments. The 1g profile with double
 *   memory is not used.
 *
 * Rows: `parva`; `parva-single`, with one process in a segment; `parva-unoptimised`, without
 * 4.4.
 * Parameters: theta=4 (GPCs of seven; in proportion on other geometries). The paper's limit of
 * three processes is the rule procs_max of the problem.
 * Complexity: O(services * options), and O(segments + devices) for each pass of first fit,
 * because the first device with room for a size only moves to the right. */
#include "scheduler/policies/core_slices.h"

#include <math.h>
#include <string.h>

#define NONE UINT32_MAX

typedef struct segment {
    uint32_t service, profile; /* service: position by name */
    uint32_t device, next;     /* next: another segment on the device */
    int32_t start;
    const weft_option *option;
} segment;

typedef struct map {
    WEFT_VEC(segment) segs;
    WEFT_VEC(uint32_t) taken, head;       /* by device */
    uint32_t from[WEFT_MIG_PROFILES_MAX]; /* no device before this one has room for the size */
} map;

/* One service on one type of device. */
typedef struct service {
    weft_mig_best best;
    double rest_per_s; /* R of section 4.4 */
    bool kept;         /* has its segments from the previous plan */
} service;

typedef struct parva {
    weft_builder *builder;
    const weft_fleet_device *row;
    weft_mig_shape shape;
    service *service; /* by position */
    uint32_t procs;   /* 0: any number */
    bool optimise;
    double theta;
    map map;
    WEFT_VEC(segment) left; /* goal goodput: segments without a place in the fleet */
} parva;

static const weft_mig_profile *profile_of(const parva *pv, uint32_t p)
{
    return &pv->shape.type->mig[p];
}

/* The 1g profile with double memory is not a size of the paper. */
static bool is_size(const parva *pv, uint32_t p)
{
    for (uint32_t q = 0; q < pv->shape.n; q++)
        if (profile_of(pv, q)->gpcs == profile_of(pv, p)->gpcs &&
            profile_of(pv, q)->slots < profile_of(pv, p)->slots)
            return false;
    return true;
}

static const weft_demand *demand_of(const parva *pv, uint32_t s)
{
    return &pv->builder->demands->at[pv->builder->order[s]];
}

/* -- 4.1 and 4.2: what each service needs ----------------------------------------------------- */

static bool choose_triplets(parva *pv, uint32_t s)
{
    bool any = false;
    service *sv = &pv->service[s];
    *sv = (service){
        .best = weft_mig__best(pv->builder, &pv->shape, pv->row, pv->builder->order[s], pv->procs)};
    for (uint32_t p = 0; p < pv->shape.n; p++) {
        if (!is_size(pv, p))
            sv->best.per_s[p] = 0;
        any = any || sv->best.per_s[p] > 0;
    }
    return any;
}

/* The size with the highest throughput per GPC; of equal ones the smaller. */
static uint32_t best_ratio(const parva *pv, const service *sv)
{
    uint32_t best = NONE;
    for (uint32_t i = pv->shape.n; i-- > 0;) {
        uint32_t p = pv->shape.order[i];
        if (sv->best.per_s[p] > 0 &&
            (best == NONE || sv->best.per_s[p] * profile_of(pv, best)->gpcs >
                                 sv->best.per_s[best] * profile_of(pv, p)->gpcs))
            best = p;
    }
    return best;
}

/* The smallest size that carries `rate`; it exists if the size of the best ratio exists. */
static uint32_t smallest_for(const parva *pv, const service *sv, double rate)
{
    for (uint32_t i = pv->shape.n; i-- > 0;) {
        uint32_t p = pv->shape.order[i];
        if (sv->best.per_s[p] > 0 && sv->best.per_s[p] >= rate)
            return p;
    }
    return NONE;
}

/* -- 4.3: first fit --------------------------------------------------------------------------- */

/* Start slot in the order of the paper: a 3g starts only at slot 4. */
static int32_t start_on(const weft_mig_profile *mig, uint32_t taken)
{
    int32_t start = weft_pool__mig_start(mig, taken);
    bool surplus = mig->slots > mig->gpcs && mig->slots < 8;
    return surplus && mig->starts >> (start + 1) != 0 ? -1 : start;
}

static void put_segment(parva *pv, map *m, segment seg)
{
    weft_arena *arena = pv->builder->arena;
    while (seg.device >= m->taken.len) {
        WEFT_VEC_PUSH(arena, &m->taken, 0);
        WEFT_VEC_PUSH(arena, &m->head, NONE);
    }
    m->taken.at[seg.device] |= weft_device_type_mig_slots(profile_of(pv, seg.profile), seg.start);
    seg.next = m->head.at[seg.device];
    m->head.at[seg.device] = m->segs.len;
    WEFT_VEC_PUSH(arena, &m->segs, seg);
}

static void place_segment(parva *pv, map *m, uint32_t s, uint32_t p)
{
    const weft_mig_profile *mig = profile_of(pv, p);
    uint32_t d = m->from[p];
    while (d < m->taken.len && start_on(mig, m->taken.at[d]) < 0)
        d++;
    m->from[p] = d;
    if (d >= pv->row->count && pv->builder->problem->goal == WEFT_GOAL_GOODPUT) {
        segment left = {.service = s, .profile = p};
        if (pv->left.len < 8 * (uint64_t)pv->row->count) /* more never find a place */
            WEFT_VEC_PUSH(pv->builder->arena, &pv->left, left);
        return;
    }
    segment seg = {.service = s,
                   .profile = p,
                   .device = d,
                   .start = start_on(mig, d < m->taken.len ? m->taken.at[d] : 0),
                   .option = pv->service[s].best.option[p]};
    put_segment(pv, m, seg);
}

/* Removes all segments from a device; they stay in the list, without a device. */
static uint32_t clear_device(parva *pv, map *m, uint32_t device)
{
    uint32_t first = m->head.at[device];
    for (uint32_t i = first; i != NONE; i = m->segs.at[i].next)
        m->segs.at[i].device = NONE;
    m->head.at[device] = NONE;
    m->taken.at[device] = 0;
    for (uint32_t p = 0; p < pv->shape.n; p++)
        m->from[p] = device < m->from[p] ? device : m->from[p];
    return first;
}

static uint32_t devices_in_use(const map *m)
{
    uint32_t n = 0;
    for (uint32_t d = 0; d < m->taken.len; d++)
        n += m->head.at[d] != NONE;
    return n;
}

/* More devices than section 4.4 could ever save: the demands cannot be carried. */
static bool is_hopeless(const parva *pv, const map *m)
{
    return m->taken.len > 2 * (uint64_t)pv->row->count + 16;
}

/* Sections 4.2 and 4.3 for all services that are not kept. */
static void relocate(parva *pv, map *m)
{
    uint32_t n = (uint32_t)pv->builder->demands->n;
    uint32_t *copies = weft_arena_array(pv->builder->arena, n, sizeof *copies);
    uint32_t *size = weft_arena_array(pv->builder->arena, n, sizeof *size);
    uint32_t *last = weft_arena_array(pv->builder->arena, n, sizeof *last);
    for (uint32_t s = 0; s < n; s++) {
        const service *sv = &pv->service[s];
        double rate = demand_of(pv, s)->rate_per_s;
        size[s] = last[s] = NONE;
        if (sv->kept || best_ratio(pv, sv) == NONE)
            continue;
        size[s] = best_ratio(pv, sv);
        double whole = floor(rate / sv->best.per_s[size[s]]);
        copies[s] = (uint32_t)fmin(whole, WEFT_PLAN_PLACEMENTS_MAX);
        double rest = rate - copies[s] * sv->best.per_s[size[s]];
        if (rest > rate * 1e-12 || copies[s] == 0)
            last[s] = smallest_for(pv, sv, rest);
    }
    for (uint32_t i = 0; i < pv->shape.n; i++) {
        uint32_t p = pv->shape.order[i];
        for (uint32_t s = 0; s < n && !is_hopeless(pv, m); s++) {
            for (uint32_t k = 0; size[s] == p && k < copies[s] && !is_hopeless(pv, m); k++)
                place_segment(pv, m, s, p);
            if (last[s] == p)
                place_segment(pv, m, s, p);
        }
    }
}

/* -- 4.4: allocation optimisation ------------------------------------------------------------- */

/* The profile with that many GPCs, or NONE. */
static uint32_t size_of(const parva *pv, uint32_t gpcs)
{
    for (uint32_t p = 0; p < pv->shape.n; p++)
        if (profile_of(pv, p)->gpcs == gpcs && is_size(pv, p))
            return p;
    return NONE;
}

/* Small segments for the load that a service still needs; *twos, *ones: their numbers. */
static void cut_small(const parva *pv, service *sv, uint32_t *twos, uint32_t *ones)
{
    uint32_t one = size_of(pv, 1), two = size_of(pv, 2);
    double t1 = one == NONE ? 0 : sv->best.per_s[one], t2 = two == NONE ? 0 : sv->best.per_s[two];
    *twos = *ones = 0;
    if (!(sv->rest_per_s > 0))
        return;
    if (t1 > 0 && t2 / 2 <= t1) {
        *ones = (uint32_t)ceil(sv->rest_per_s / t1);
    } else if (t1 > 0) {
        *twos = (uint32_t)floor(sv->rest_per_s / t2);
        *ones = (uint32_t)ceil(fmax(0, sv->rest_per_s - *twos * t2) / t1);
    } else {
        *twos = (uint32_t)ceil(sv->rest_per_s / t2);
    }
    sv->rest_per_s -= *twos * t2 + *ones * t1;
}

static bool has_small(const parva *pv, const service *sv)
{
    uint32_t one = size_of(pv, 1), two = size_of(pv, 2);
    return (one != NONE && sv->best.per_s[one] > 0) || (two != NONE && sv->best.per_s[two] > 0);
}

static uint32_t gpcs_on(const parva *pv, const map *m, uint32_t device)
{
    uint32_t gpcs = 0;
    for (uint32_t i = m->head.at[device]; i != NONE; i = m->segs.at[i].next)
        gpcs += profile_of(pv, m->segs.at[i].profile)->gpcs;
    return gpcs;
}

/* Empties one device into small segments. It has at most as many services as slots. */
static void split_device(parva *pv, map *m, uint32_t device)
{
    uint32_t list[8], n = 0, twos[8], ones[8];
    segment back[8];
    uint32_t n_back = 0;
    for (uint32_t i = clear_device(pv, m, device); i != NONE; i = m->segs.at[i].next) {
        segment seg = m->segs.at[i];
        service *sv = &pv->service[seg.service];
        if (!has_small(pv, sv)) {
            seg.device = device;
            back[n_back++] = seg;
            continue;
        }
        sv->rest_per_s += seg.option->peak_per_s;
        uint32_t at = n;
        for (; at > 0 && list[at - 1] > seg.service; at--)
            list[at] = list[at - 1];
        list[at] = seg.service;
        n++;
    }
    for (uint32_t i = 0; i < n_back; i++)
        put_segment(pv, m, back[i]);
    for (uint32_t i = 0; i < n; i++) {
        twos[i] = ones[i] = 0;
        if (i == 0 || list[i] != list[i - 1])
            cut_small(pv, &pv->service[list[i]], &twos[i], &ones[i]);
    }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < twos[i]; k++)
            place_segment(pv, m, list[i], size_of(pv, 2));
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < ones[i]; k++)
            place_segment(pv, m, list[i], size_of(pv, 1));
}

static map copy_map(const parva *pv, const map *m)
{
    map copy = *m;
    weft_arena *arena = pv->builder->arena;
    copy.segs.at = weft_arena_array(arena, m->segs.cap, sizeof *m->segs.at);
    copy.taken.at = weft_arena_array(arena, m->taken.cap, sizeof *m->taken.at);
    copy.head.at = weft_arena_array(arena, m->head.cap, sizeof *m->head.at);
    if (m->segs.len > 0)
        memcpy(copy.segs.at, m->segs.at, m->segs.len * sizeof *m->segs.at);
    if (m->taken.len > 0) {
        memcpy(copy.taken.at, m->taken.at, m->taken.len * sizeof *m->taken.at);
        memcpy(copy.head.at, m->head.at, m->head.len * sizeof *m->head.at);
    }
    return copy;
}

static void optimise(parva *pv)
{
    map better = copy_map(pv, &pv->map);
    double theta = pv->theta * pv->shape.type->mig[0].of_gpcs / 7;
    for (uint32_t s = 0; s < pv->builder->demands->n; s++)
        pv->service[s].rest_per_s = 0;
    for (uint32_t d = better.taken.len; d-- > 0;) {
        uint32_t gpcs = gpcs_on(pv, &better, d);
        if (gpcs > 0 && gpcs <= theta)
            split_device(pv, &better, d);
    }
    if (devices_in_use(&better) < devices_in_use(&pv->map))
        pv->map = better;
}

/* -- 4.5: what the previous plan has ---------------------------------------------------------- */

/* Position of a model by name; NONE: the demands do not have it. */
static uint32_t find_service(const parva *pv, const char *model)
{
    uint32_t lo = 0, hi = (uint32_t)pv->builder->demands->n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        int order = strcmp(model, demand_of(pv, mid)->model);
        if (order == 0)
            return mid;
        if (order < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NONE;
}

/* The option of a placement of the previous plan; NULL: it is no longer one. */
static const weft_option *find_option(const parva *pv, uint32_t s, const weft_placement *p)
{
    uint32_t demand = pv->builder->order[s];
    if (strcmp(p->type, pv->row->type) != 0 || p->mig_start < 0 || p->mig_start > 7)
        return NULL;
    for (uint32_t i = 0; i < pv->builder->n_option[demand]; i++) {
        const weft_option *o = &pv->builder->option[demand][i];
        if (o->row == pv->row && o->spec.kind == WEFT_SLICE_MIG && o->spec.percent == 0 &&
            o->point->batch == p->batch && o->point->procs == p->procs &&
            (pv->procs == 0 || p->procs == pv->procs) && strcmp(o->spec.name, p->slice) == 0 &&
            o->spec.mig->starts & 1u << p->mig_start)
            return o;
    }
    return NULL;
}

/* Keeps the segments of each service whose rate is unchanged and whose segments still carry it. */
static void restore(parva *pv, const weft_plan *previous)
{
    uint32_t n = (uint32_t)pv->builder->demands->n;
    double *rate = weft_arena_array(pv->builder->arena, n, sizeof *rate);
    double *peak = weft_arena_array(pv->builder->arena, n, sizeof *peak);
    for (uint32_t s = 0; s < n; s++)
        pv->service[s].kept = true;
    for (size_t i = 0; i < previous->n; i++) {
        const weft_placement *p = &previous->at[i];
        uint32_t s = find_service(pv, p->model);
        const weft_option *o = s == NONE ? NULL : find_option(pv, s, p);
        if (s != NONE && (!o || p->device >= pv->row->count))
            pv->service[s].kept = false;
        if (s == NONE || !o)
            continue;
        rate[s] += p->rate_per_s;
        peak[s] += o->peak_per_s;
    }
    for (uint32_t s = 0; s < n; s++) {
        double asked = demand_of(pv, s)->rate_per_s;
        if (peak[s] <= 0 || peak[s] < asked * (1 - 1e-9) || fabs(rate[s] - asked) > 1e-9 * asked)
            pv->service[s].kept = false;
    }
    for (size_t i = 0; i < previous->n; i++) {
        const weft_placement *p = &previous->at[i];
        uint32_t s = find_service(pv, p->model);
        if (s == NONE || !pv->service[s].kept)
            continue;
        const weft_option *o = find_option(pv, s, p);
        uint32_t range = weft_device_type_mig_slots(o->spec.mig, p->mig_start);
        segment seg = {.service = s,
                       .profile = (uint32_t)(o->spec.mig - pv->shape.type->mig),
                       .device = p->device,
                       .start = p->mig_start,
                       .option = o};
        /* The previous plan is damaged: two segments have the same slots. The whole plan is made
         * anew. */
        if (p->device < pv->map.taken.len && pv->map.taken.at[p->device] & range) {
            pv->map = (map){.segs = {0}};
            for (uint32_t k = 0; k < n; k++)
                pv->service[k].kept = false;
            return;
        }
        put_segment(pv, &pv->map, seg);
    }
}

/* -- The plan --------------------------------------------------------------------------------- */

/* Takes whole-GPU instances for all services, if these need fewer devices. */
static void take_exclusive(parva *pv)
{
    uint32_t whole = pv->shape.order[0], n = (uint32_t)pv->builder->demands->n;
    double sum = 0;
    for (uint32_t s = 0; s < n; s++) {
        double per_s = pv->service[s].best.per_s[whole];
        if (!(per_s > 0))
            return;
        sum += fmax(1, ceil(demand_of(pv, s)->rate_per_s / per_s));
    }
    if (sum >= devices_in_use(&pv->map))
        return;
    pv->map = (map){.segs = {0}};
    for (uint32_t s = 0; s < n; s++) {
        double copies =
            fmax(1, ceil(demand_of(pv, s)->rate_per_s / pv->service[s].best.per_s[whole]));
        for (uint32_t k = 0; k < copies; k++)
            place_segment(pv, &pv->map, s, whole);
    }
}

static void make_map(parva *pv, const weft_plan *previous)
{
    pv->map = (map){.segs = {0}};
    pv->left.len = 0;
    for (uint32_t s = 0; s < pv->builder->demands->n; s++)
        pv->service[s].kept = false;
    if (previous)
        restore(pv, previous);
    relocate(pv, &pv->map);
    if (is_hopeless(pv, &pv->map))
        return;
    if (!pv->optimise)
        return;
    optimise(pv);
    /* The fleet is fixed: what has no place now is not carried. */
    for (uint32_t i = 0, n = pv->left.len; i < n; i++)
        place_segment(pv, &pv->map, pv->left.at[i].service, pv->left.at[i].profile);
    if (!previous && pv->left.len == 0)
        take_exclusive(pv);
}

/* Puts the segments on the builder, by device and start slot. With the goal goodput, segments
 * without a device are left out. */
static weft_err emit(parva *pv)
{
    weft_builder *builder = pv->builder;
    uint32_t n = (uint32_t)builder->demands->n, used = 0;
    double *peak = weft_arena_array(builder->arena, n, sizeof *peak);
    bool goodput = builder->problem->goal == WEFT_GOAL_GOODPUT;
    for (uint32_t i = 0; i < pv->map.segs.len; i++)
        if (pv->map.segs.at[i].device != NONE)
            peak[pv->map.segs.at[i].service] += pv->map.segs.at[i].option->peak_per_s;
    for (uint32_t d = 0; d < pv->map.taken.len; d++) {
        if (pv->map.head.at[d] == NONE)
            continue;
        uint32_t device = NONE;
        if (used++ < pv->row->count)
            device = weft_builder__open(builder, pv->row, WEFT_SLICE_MIG);
        for (int32_t start = 0; start < 8; start++)
            for (uint32_t i = pv->map.head.at[d]; i != NONE; i = pv->map.segs.at[i].next) {
                const segment *seg = &pv->map.segs.at[i];
                if (seg->start != start)
                    continue;
                uint32_t demand = builder->order[seg->service];
                double rate = builder->demands->at[demand].rate_per_s;
                double share = seg->option->peak_per_s * fmin(1, rate / peak[seg->service]);
                if (device != NONE &&
                    weft_builder__put(builder, device, start, demand, seg->option, share))
                    continue;
                if (!goodput)
                    return weft_builder__full(builder, demand, share);
            }
    }
    return WEFT_ERR_OK;
}

static weft_err refuse(const parva *pv, uint32_t s)
{
    return weft_diag_error(
        pv->builder->diag, WEFT_ERR_INFEASIBLE, (weft_where){.item = demand_of(pv, s)->model},
        "parva places on MIG instances only, and the model meets its SLO on none of %s%s; allow "
        "MIG "
        "there, profile it on MIG instances, or raise the SLO",
        pv->row ? pv->row->type : "the fleet", pv->procs == 1 ? " with one process" : "");
}

/* Makes the plan on one type of device. */
static weft_err place_on_row(parva *pv, const weft_fleet_device *row)
{
    const weft_problem *problem = pv->builder->problem;
    uint32_t n = (uint32_t)pv->builder->demands->n;
    pv->row = row;
    pv->shape = weft_mig__shape(weft_device_type_find(row->type));
    pv->service = weft_arena_array(pv->builder->arena, n, sizeof *pv->service);
    for (uint32_t s = 0; s < n; s++)
        if (!choose_triplets(pv, s) && problem->goal != WEFT_GOAL_GOODPUT)
            return refuse(pv, s);
    bool follow = problem->previous && problem->previous->n > 0;
    make_map(pv, follow ? problem->previous : NULL);
    if (follow && devices_in_use(&pv->map) > row->count)
        make_map(pv, NULL);
    return emit(pv);
}

static bool is_better(const weft_plan *a, const weft_plan *b)
{
    if (a->goodput_per_s > b->goodput_per_s * (1 + 1e-9))
        return true;
    if (a->goodput_per_s < b->goodput_per_s * (1 - 1e-9))
        return false;
    return a->cost_per_hour < b->cost_per_hour ||
           (a->cost_per_hour <= b->cost_per_hour && a->gpus < b->gpus);
}

/* -- CPU slices ------------------------------------------------------------------------------- */

/* First fit decreasing: the models that need large slices first. */
static double weigh_cores(const weft_builder *builder, uint32_t demand)
{
    double least = INFINITY;
    for (uint32_t i = 0; i < builder->n_option[demand]; i++)
        if (builder->option[demand][i].spec.kind == WEFT_SLICE_CORES)
            least = fmin(least, builder->option[demand][i].spec.weight);
    return -least;
}

/* 4.2: the smallest size that carries the rest, else that of the most throughput for its cores. */
static bool is_better_size(const weft_builder *builder, uint32_t demand, const weft_option *a,
                           const weft_option *b, double rest_per_s)
{
    bool carries = a->peak_per_s >= rest_per_s, other = b->peak_per_s >= rest_per_s;
    (void)builder;
    (void)demand;
    if (carries != other)
        return carries;
    double more = a->peak_per_s * b->spec.weight - b->peak_per_s * a->spec.weight;
    if (carries && a->spec.weight != b->spec.weight)
        return a->spec.weight < b->spec.weight;
    return more > 1e-9 * b->peak_per_s;
}

static weft_err place_on_cores(weft_builder *builder, const char *name, weft_plan *out)
{
    static const weft_cores_rule rule = {.weight = weigh_cores, .is_better = is_better_size};
    WEFT_TRY(weft_cores__place(builder, &rule));
    weft_builder__finish(builder, name, out);
    return WEFT_ERR_OK;
}

static weft_err place(const weft_problem *problem, weft_arena *arena, weft_diag *diag,
                      const char *name, parva *settings, weft_plan *out)
{
    weft_builder *builder = weft_arena_alloc(arena, sizeof *builder);
    weft_plan best = {0};
    weft_err result = WEFT_ERR_INFEASIBLE;
    bool any_row = false, found = false;
    settings->theta = weft_parameter__number(problem, "theta", 4);
    WEFT_TRY(weft_builder__init(builder, problem, arena, diag));
    settings->builder = builder;
    if (weft_cores__only(problem->fleet))
        return place_on_cores(builder, name, out);
    for (size_t i = 0; i < problem->fleet->n_device; i++) {
        const weft_fleet_device *row = &problem->fleet->device[i];
        weft_plan plan;
        if (!row->mig || row->count == 0)
            continue;
        uint32_t mark = weft_builder__mark(builder);
        any_row = true;
        weft_err err = place_on_row(settings, row);
        if (err == WEFT_ERR_OK) {
            weft_builder__finish(builder, name, &plan);
            if (!found || is_better(&plan, &best))
                best = plan;
            found = true;
        }
        weft_builder__undo(builder, mark);
    }
    if (!any_row && problem->demands->n > 0) {
        settings->row = NULL;
        return refuse(settings, 0);
    }
    if (!any_row)
        weft_builder__finish(builder, name, &best);
    else if (!found)
        return result;
    *out = best;
    return WEFT_ERR_OK;
}

static weft_err place_parva(void *state, const weft_problem *problem, weft_arena *arena,
                            weft_diag *diag, weft_plan *out)
{
    parva settings = {.optimise = true};
    (void)state;
    return place(problem, arena, diag, "parva", &settings, out);
}

static weft_err place_single(void *state, const weft_problem *problem, weft_arena *arena,
                             weft_diag *diag, weft_plan *out)
{
    parva settings = {.optimise = true, .procs = 1};
    (void)state;
    return place(problem, arena, diag, "parva-single", &settings, out);
}

static weft_err place_unoptimised(void *state, const weft_problem *problem, weft_arena *arena,
                                  weft_diag *diag, weft_plan *out)
{
    parva settings = {.procs = 0};
    (void)state;
    return place(problem, arena, diag, "parva-unoptimised", &settings, out);
}

static const char *const parameters[] = {"theta", NULL};

const weft_policy weft_policy_parva = {
    .name = "parva",
    .brief = "MIG segments with MPS inside, cut small to fill gaps",
    .cite = "ParvaGPU, SC'24",
    .parameters = parameters,
    .splits = WEFT_SPLIT_MIG | WEFT_SPLIT_CORES,
    .many_models = true,
    .many_segments = true,
    .place = place_parva,
};

const weft_policy weft_policy_parva_single = {
    .name = "parva-single",
    .brief = "parva with one process a segment",
    .cite = "ParvaGPU-single, SC'24",
    .parameters = parameters,
    .splits = WEFT_SPLIT_MIG | WEFT_SPLIT_CORES,
    .place = place_single,
};

const weft_policy weft_policy_parva_unoptimised = {
    .name = "parva-unoptimised",
    .brief = "parva without its allocation optimisation",
    .cite = "ParvaGPU-unoptimized, SC'24",
    .parameters = parameters,
    .splits = WEFT_SPLIT_MIG | WEFT_SPLIT_CORES,
    .place = place_unoptimised,
};
