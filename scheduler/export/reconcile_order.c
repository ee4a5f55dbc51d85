/* The order of a change: stages, in each of which workers start, become ready and take their part
 * of the traffic before others end.
 *
 *   1. every worker that has room starts
 *   2. workers in the way of others end, as far as no model falls below what it needs
 *   3. where neither gives room, copies of workers in the way are planned for the next stage, on a
 *      device that has room and that nothing of the new plan waits for: of each model those for one
 *      place, since its other workers can then follow one another. A copy ends when the change has
 *      no further use for it
 *   4. at the end all workers end that the new plan does not have
 *
 * Room on a device: MIG instances do not overlap, shares are at most 100 % and 48 processes and fit
 * in its memory, and all else has a device to itself. Each round starts or ends a worker, and a
 * copy leads to the end of its original, so that O(n) rounds of O(n) suffice; plans in practice
 * take few.
 *
 * Which workers end first is greedy: another choice may need fewer copies. */
#include "scheduler/export/reconcile_int.h"
#include "scheduler/plan/plan.h"

#include <math.h>
#include <string.h>

#define NONE UINT32_MAX

/* -- Room -------------------------------------------------------------------------------------- */

void weft_change__add_shares(change_shares *sum, const export_worker *w)
{
    sum->percent += w->percent;
    sum->clients += w->clients;
    for (uint32_t i = 0; i < w->n; i++)
        sum->mem_bytes += w->at[i]->mem_bytes;
}

bool weft_change__fit_shares(const change *c, const change_shares *sum, const char *type,
                             double reserve)
{
    const weft_fleet *fleet = c->o->problem ? c->o->problem->fleet : NULL;
    const weft_fleet_device *row = fleet ? weft_fleet__row(fleet, type) : NULL;
    const weft_device_type *known = weft_device_type_find(type);
    uint64_t mem_bytes = row ? weft_fleet__mem(row) : known ? known->mem_bytes : 0;
    if (!c->to->plan->rules.oversubscribe && sum->percent > 100)
        return false;
    return sum->clients <= WEFT_MPS_CLIENTS_MAX &&
           (!mem_bytes || (double)sum->mem_bytes <= (1 - reserve) * (double)mem_bytes);
}

/* Whether two workers can never be on one device at a time. */
static bool exclude(const change_unit *a, const change_unit *b)
{
    weft_fleet_slice_kind kind = a->worker->kind;
    if (kind != b->worker->kind || kind == WEFT_SLICE_WHOLE || kind == WEFT_SLICE_CORES)
        return true;
    return (a->mig_mask & b->mig_mask) != 0;
}

/* Whether a unit has room at a place beside what runs there, and with `planned` also beside what
 * will. */
static bool fits(const change *c, const change_unit *u, uint32_t place, bool planned)
{
    change_shares sum = {0};
    weft_change__add_shares(&sum, u->worker);
    for (uint32_t i = c->place.at[place].first; i != NONE; i = c->unit.at[i].next) {
        const change_unit *v = &c->unit.at[i];
        bool counts = v->state == CHANGE_RUNS || (planned && v->state == CHANGE_WAITS);
        if (v == u || !counts)
            continue;
        if (exclude(u, v))
            return false;
        weft_change__add_shares(&sum, v->worker);
    }
    return u->worker->kind != WEFT_SLICE_MPS ||
           weft_change__fit_shares(c, &sum, u->worker->type, 0);
}

/* -- Capacity ---------------------------------------------------------------------------------- */

static void count(change *c, const change_unit *u, double sign)
{
    for (uint32_t k = 0; k < u->n_part; k++)
        c->capacity[u->part[k].model] += sign * u->part[k].capacity_per_s;
}

/* Whether enough is left without a unit. */
static bool can_end(const change *c, const change_unit *u)
{
    for (uint32_t k = 0; k < u->n_part; k++) {
        const change_part *p = &u->part[k];
        double all = 0;
        for (uint32_t i = 0; i < u->n_part; i++)
            all += u->part[i].model == p->model ? u->part[i].capacity_per_s : 0;
        if (c->capacity[p->model] - all < c->needed[p->model] * (1 - 1e-9))
            return false;
    }
    return true;
}

/* -- Stages ------------------------------------------------------------------------------------ */

typedef WEFT_VEC(uint32_t) units;

static void end_unit(change *c, uint32_t i, units *stop)
{
    c->unit.at[i].state = CHANGE_ENDED;
    count(c, &c->unit.at[i], -1);
    WEFT_VEC_PUSH(c->arena, stop, i);
}

static void start_all(change *c, units *start)
{
    for (uint32_t i = 0; i < c->unit.len; i++) {
        change_unit *u = &c->unit.at[i];
        if (u->state != CHANGE_WAITS || !fits(c, u, u->place, false))
            continue;
        u->state = CHANGE_RUNS;
        count(c, u, 1);
        WEFT_VEC_PUSH(c->arena, start, i);
    }
}

/* Whether the new plan lacks a unit that runs. */
static bool is_in_the_way(const change_unit *u, const change_unit *of)
{
    return u->state == CHANGE_RUNS && !u->stays &&
           (exclude(u, of) || of->worker->kind == WEFT_SLICE_MPS);
}

/* Ends units in the way of one that waits until it has room. If that takes too much capacity, they
 * go on (`forced`: they end all the same). */
static bool make_room(change *c, uint32_t waits, units *stop, bool forced)
{
    uint32_t n_before = stop->len;
    const change_unit *of = &c->unit.at[waits];
    for (uint32_t i = c->place.at[of->place].first; i != NONE; i = c->unit.at[i].next) {
        if (fits(c, of, of->place, false))
            break;
        const change_unit *u = &c->unit.at[i];
        if (is_in_the_way(u, of) && (forced || can_end(c, u)))
            end_unit(c, i, stop);
    }
    if (fits(c, of, of->place, false))
        return true;
    while (stop->len > n_before) {
        change_unit *u = &c->unit.at[stop->at[--stop->len]];
        u->state = CHANGE_RUNS;
        count(c, u, 1);
    }
    return false;
}

/* Ends units that the new plan lacks. `copies`: only copies whose originals have ended. */
static void end_rest(change *c, units *stop, bool copies)
{
    for (uint32_t i = 0; i < c->unit.len; i++) {
        const change_unit *u = &c->unit.at[i];
        bool useless = u->copy_of != NONE && c->unit.at[u->copy_of].state == CHANGE_ENDED;
        if (u->state == CHANGE_RUNS && !u->stays && (useless || !copies) && can_end(c, u))
            end_unit(c, i, stop);
    }
}

/* A place that can run a copy of a unit and for which nothing waits; NONE: none. */
static uint32_t find_copy_place(change *c, const change_unit *u)
{
    uint32_t place = NONE;
    for (uint32_t i = 0; i < c->place.len && place == NONE; i++)
        if (strcmp(c->place.at[i].type, u->worker->type) == 0 && fits(c, u, i, true))
            place = i;
    return place != NONE ? place : weft_change__take_spare(c, u->worker->type, u->worker->kind);
}

/* Whether a copy of one of the models of a unit is planned; `mark`: now one is. */
static bool is_covered(const change_unit *u, bool *covered, bool mark)
{
    bool any = false;
    for (uint32_t k = 0; k < u->n_part; k++) {
        any = any || covered[u->part[k].model];
        covered[u->part[k].model] |= mark;
    }
    return any;
}

/* Plans copies of all units in the way of one that waits which cannot end now. covered: models that
 * have one for another place already, whose workers follow one another with it. */
static bool plan_copies(change *c, uint32_t waits, bool *covered)
{
    uint32_t place = c->unit.at[waits].place, n_before = c->n_temporary;
    bool *here = weft_arena_array(c->arena, c->n_model + 1, sizeof *here);
    for (uint32_t i = c->place.at[place].first; i != NONE; i = c->unit.at[i].next) {
        change_unit *u = &c->unit.at[i];
        if (!is_in_the_way(u, &c->unit.at[waits]) || u->copy_of != NONE || u->copied ||
            can_end(c, u) || is_covered(u, covered, false))
            continue;
        uint32_t at = find_copy_place(c, u);
        if (at == NONE)
            break;
        u->copied = true;
        is_covered(u, here, true);
        weft_change__add_copy(c, i, at);
    }
    for (uint32_t m = 0; m < c->n_model; m++)
        covered[m] |= here[m];
    return c->n_temporary > n_before;
}

/* -- What a stage looks like from outside ------------------------------------------------------ */

static const weft_reconcile_worker *list_workers(change *c, const units *list)
{
    weft_reconcile_worker *out = weft_arena_array(c->arena, list->len + 1, sizeof *out);
    for (uint32_t i = 0; i < list->len; i++) {
        const change_unit *u = &c->unit.at[list->at[i]];
        out[i] = (weft_reconcile_worker){.name = u->where.worker,
                                         .node = u->where.node,
                                         .group = u->group,
                                         .gpu = u->where.gpu,
                                         .at = u->worker->at,
                                         .n = u->worker->n,
                                         .temporary = u->copy_of != NONE};
    }
    return out;
}

static void share_rates(change *c, const weft_plan *plan)
{
    double *rate = weft_arena_array(c->arena, c->n_model + 1, sizeof *rate);
    for (uint32_t i = 0; i < c->unit.len; i++)
        for (uint32_t k = 0; c->unit.at[i].stays && k < c->unit.at[i].n_part; k++)
            rate[c->unit.at[i].part[k].model] += c->unit.at[i].part[k].rate_per_s;
    size_t at = 0;
    for (uint32_t i = 0; i < c->unit.len; i++) {
        const change_unit *u = &c->unit.at[i];
        uint32_t part = 0;
        for (uint32_t k = 0; u->state == CHANGE_RUNS && k < u->worker->n; k++) {
            const char *const *model;
            size_t n = weft_family_models(u->worker->at[k]->model, c->arena, &model);
            double sum = 0;
            for (; n > 0; n--, part++) {
                const change_part *p = &u->part[part];
                double of = c->capacity[p->model];
                sum += of > 0 ? rate[p->model] * p->capacity_per_s / of : 0;
            }
            plan->at[at++].rate_per_s = sum;
        }
    }
}

static bool is_running(const change_unit *u)
{
    return u->state == CHANGE_RUNS;
}

/* What runs, with each model's rate over its workers by capacity. */
static const weft_plan *plan_running(change *c)
{
    const weft_plan *plan = weft_change__plan(c, is_running);
    share_rates(c, plan);
    return plan;
}

static void add_stage(change *c, const units *start, const units *stop, const weft_plan *plan)
{
    const weft_reconcile_stage stage = {.start = list_workers(c, start),
                                        .n_start = start->len,
                                        .stop = list_workers(c, stop),
                                        .n_stop = stop->len,
                                        .plan = plan};
    WEFT_VEC_PUSH(c->arena, &c->stage, stage);
}

static void note_dips(change *c)
{
    for (uint32_t m = 0; m < c->n_model; m++)
        if (c->capacity[m] < c->needed[m] * (1 - 1e-9)) {
            const weft_reconcile_dip dip = {.model = c->model[m],
                                            .stage = c->stage.len,
                                            .needed_per_s = c->needed[m],
                                            .left_per_s = fmax(0, c->capacity[m])};
            WEFT_VEC_PUSH(c->arena, &c->dip, dip);
        }
}

/* -- New bundles of groups --------------------------------------------------------------------- */

/* The workers of a group of both plans; empty: the old one does not have it. */
static units list_group(const change *c, const export_group *group)
{
    units list = {0};
    bool old = false;
    for (uint32_t i = 0; i < c->from->n_group && !old; i++)
        old = strcmp(c->from->group[i].name, group->name) == 0;
    for (uint32_t i = 0; i < c->unit.len && old; i++)
        if (c->unit.at[i].stays && strcmp(c->unit.at[i].group, group->name) == 0)
            WEFT_VEC_PUSH(c->arena, &list, i);
    return list;
}

static weft_err allow_roll(change *c, const char *group, const units *list)
{
    const change_unit *u = &c->unit.at[list->at[0]], one_more = *u;
    bool in_place = c->to->o.in_place;
    if (in_place ? can_end(c, u) : find_copy_place(c, &one_more) != NONE)
        return WEFT_ERR_OK;
    if (!in_place)
        return weft_diag_error(
            c->diag, WEFT_ERR_INFEASIBLE, (weft_where){.item = group},
            "no %s in the fleet has room for one more worker of this group, which a new bundle "
            "needs; one more would have it, or --rollout in-place ends a worker first",
            u->worker->type);
    if (!c->o->dip)
        return weft_diag_error(
            c->diag, WEFT_ERR_INFEASIBLE, (weft_where){.item = group},
            "no worker of this group can end first without less capacity than needed; "
            "--rollout surge starts one before, on a %s that has room",
            u->worker->type);
    count(c, u, -1);
    note_dips(c);
    count(c, u, 1);
    return WEFT_ERR_OK;
}

weft_err weft_change__roll_groups(change *c)
{
    const weft_plan *plan = plan_running(c);
    for (uint32_t g = 0; g < c->to->n_group; g++) {
        const char *group = c->to->group[g].name;
        const units list = list_group(c, &c->to->group[g]);
        if (list.len == 0)
            continue;
        WEFT_TRY(allow_roll(c, group, &list));
        add_stage(c, &list, &list, plan);
        c->stage.at[c->stage.len - 1].rolls = true;
    }
    return WEFT_ERR_OK;
}

/* -- The order --------------------------------------------------------------------------------- */

static weft_err refuse(change *c, uint32_t waits)
{
    const change_unit *u = &c->unit.at[waits];
    return weft_diag_error(
        c->diag, WEFT_ERR_INFEASIBLE, (weft_where){.item = u->worker->at[0]->model},
        "%s waits for room on GPU %u of %s, where workers can end only below the capacity that is "
        "needed; one more %s in the fleet would take copies of them",
        u->where.worker, u->where.gpu, u->where.node, u->worker->type);
}

/* What ends after the starts of a stage. */
static weft_err end_some(change *c, units *stop)
{
    uint32_t first = NONE, n_unit = c->unit.len;
    bool planned = false;
    for (uint32_t i = 0; i < n_unit; i++)
        if (c->unit.at[i].state == CHANGE_WAITS && !make_room(c, i, stop, false) && first == NONE)
            first = i;
    end_rest(c, stop, first != NONE);
    if (first == NONE || stop->len > 0)
        return WEFT_ERR_OK;
    bool *covered = weft_arena_array(c->arena, c->n_model + 1, sizeof *covered);
    for (uint32_t i = first; i < n_unit; i++)
        if (c->unit.at[i].state == CHANGE_WAITS && plan_copies(c, i, covered))
            planned = true;
    if (planned)
        return WEFT_ERR_OK;
    if (!c->o->dip)
        return refuse(c, first);
    if (!make_room(c, first, stop, true))
        return weft_diag_error(c->diag, WEFT_ERR_BUG, (weft_where){0}, "%s can never start",
                               c->unit.at[first].where.worker);
    note_dips(c);
    return WEFT_ERR_OK;
}

weft_err weft_change__order(change *c)
{
    for (;;) {
        units start = {0}, stop = {0};
        start_all(c, &start);
        WEFT_TRY(end_some(c, &stop));
        bool waits = false;
        for (uint32_t i = 0; i < c->unit.len && !waits; i++)
            waits = c->unit.at[i].state == CHANGE_WAITS;
        if (start.len + stop.len > 0)
            add_stage(c, &start, &stop, plan_running(c));
        if (!waits && start.len + stop.len == 0)
            return WEFT_ERR_OK;
    }
}
