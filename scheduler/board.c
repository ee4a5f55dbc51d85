/* The board on which policies build plans: options of each model, devices opened so far, slices on
 * them and models on those. It keeps every rule of the checker by construction, so that a policy is
 * only its choices. Nothing here is random or timed; equal inputs give equal plans, in any order of
 * the models. */
#include "scheduler/scheduler_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double slack = 1e-9; /* relative, below the tolerance of the checker */

/* -- Options ---------------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b, void *demands)
{
    const weft_demand *at = demands;
    return strcmp(at[*(const uint32_t *)a].model, at[*(const uint32_t *)b].model);
}

/* A canonical order, so that the order of profile rows cannot matter. */
static int compare_options(const void *a, const void *b)
{
    const weft_option *p = a, *q = b;
    if (p->row != q->row)
        return p->row < q->row ? -1 : 1;
    int order = strcmp(p->spec.name, q->spec.name);
    if (order)
        return order;
    if (p->point->batch != q->point->batch)
        return p->point->batch < q->point->batch ? -1 : 1;
    return (p->point->procs > q->point->procs) - (p->point->procs < q->point->procs);
}

/* Why a model has no option: the best that was seen. */
typedef struct refusal {
    bool any_device, any_slice, any_memory;
    double latency_us; /* least */
    const weft_profile_point *fastest;
    uint64_t mem_bytes, mem_has; /* of the point that missed least */
} refusal;

static weft_err explain_no_option(weft_board *board, const weft_demand *d, const refusal *r)
{
    weft_where where = {.item = d->model};
    if (!r->any_device)
        return weft_diag_error(board->diag, WEFT_ERR_INFEASIBLE, where,
                               "no profile for any device of the fleet; profile it there, or add a "
                               "device it was profiled on%s%s",
                               d->profile.n ? ": " : "",
                               d->profile.n ? d->profile.point[0].device : "");
    if (!r->any_slice)
        return weft_diag_error(
            board->diag, WEFT_ERR_INFEASIBLE, where,
            "no profile for a slice that the fleet allows; allow MIG, MPS or the "
            "slices it was profiled on, such as '%s' of %s",
            d->profile.point[0].slice, d->profile.point[0].device);
    if (!r->any_memory)
        return weft_diag_error(board->diag, WEFT_ERR_INFEASIBLE, where,
                               "needs %llu bytes, the largest slice has %llu",
                               (unsigned long long)r->mem_bytes, (unsigned long long)r->mem_has);
    return weft_diag_error(board->diag, WEFT_ERR_INFEASIBLE, where,
                           "slo: %.6g ms, but the lowest latency that any slice reaches is %.6g ms "
                           "(%s%s%s, batch %u); an SLO of %.6g ms would be feasible",
                           d->slo_us / 1e3, r->latency_us / 1e3, r->fastest->device,
                           r->fastest->slice[0] ? " " : "", r->fastest->slice, r->fastest->batch,
                           ceil(r->latency_us) / 1e3);
}

/* One profile point as an option; false when the fleet or the SLO does not allow it. */
static bool make_option(const weft_board *board, const weft_demand *d,
                        const weft_profile_point *point, refusal *why_not, weft_option *out)
{
    weft_option o = {.row = weft_fleet__row(board->fleet, point->device), .point = point};
    const char *why;
    if (!o.row || !weft_profile__usable(point))
        return false;
    why_not->any_device = true;
    if (!weft_slice__resolve(o.row, point->slice, &o.spec, &why))
        return false;
    if (o.spec.kind != WEFT_SLICE_CORES && point->procs > WEFT_MPS_CLIENTS_MAX)
        return false;
    if (!weft_rules__allow_procs(&board->problem->rules, point->procs))
        return false;
    if (o.spec.kind == WEFT_SLICE_MIG && point->procs > weft_mig__clients_max(o.spec.mig))
        return false;
    why_not->any_slice = true;
    uint64_t mem_bytes = weft_load__mem(point);
    if (o.spec.mem_bytes && mem_bytes > o.spec.mem_bytes) {
        if (why_not->mem_bytes == 0 || mem_bytes < why_not->mem_bytes)
            why_not->mem_bytes = mem_bytes;
        if (o.spec.mem_bytes > why_not->mem_has)
            why_not->mem_has = o.spec.mem_bytes;
        return false;
    }
    why_not->any_memory = true;
    o.exec_us = weft_load__exec_us(&board->problem->rules, &d->profile, point);
    o.peak_per_s = weft_load__peak_per_s(point, o.exec_us);
    if (!why_not->fastest || 2 * o.exec_us < why_not->latency_us) {
        why_not->fastest = point;
        why_not->latency_us = 2 * o.exec_us;
    }
    if (!weft_rules__allow(&board->problem->rules, d, o.exec_us))
        return false;
    *out = o;
    return true;
}

static weft_err list_options(weft_board *board, uint32_t demand)
{
    const weft_demand *d = &board->demands->at[demand];
    refusal why_not = {0};
    weft_option *option = weft_arena_array(board->arena, d->profile.n, sizeof *option);
    uint32_t n = 0;
    for (size_t i = 0; i < d->profile.n; i++)
        n += make_option(board, d, &d->profile.point[i], &why_not, &option[n]);
    if (n == 0)
        return explain_no_option(board, d, &why_not);
    qsort(option, n, sizeof *option, compare_options);
    board->option[demand] = option;
    board->n_option[demand] = n;
    return WEFT_ERR_OK;
}

weft_err weft_board__init(weft_board *board, const weft_problem *problem, weft_arena *arena,
                          weft_diag *diag)
{
    const weft_demands *demands = problem->demands;
    const weft_fleet *fleet = problem->fleet;
    *board = (weft_board){
        .problem = problem, .demands = demands, .fleet = fleet, .arena = arena, .diag = diag};
    weft_err err = WEFT_ERR_OK;
    WEFT_TRY(weft_demands__check(demands, diag));
    board->order = weft_arena_array(arena, demands->n, sizeof *board->order);
    board->option = weft_arena_array(arena, demands->n, sizeof *board->option);
    board->n_option = weft_arena_array(arena, demands->n, sizeof *board->n_option);
    board->opened = weft_arena_array(arena, fleet->n_device, sizeof *board->opened);
    for (size_t i = 0; i < demands->n; i++)
        board->order[i] = (uint32_t)i;
    if (demands->n > 0)
        qsort_r(board->order, demands->n, sizeof *board->order, compare_names, (void *)demands->at);
    /* All models that cannot be placed are named, not only the first. */
    for (size_t i = 0; i < demands->n; i++) {
        weft_err one = list_options(board, board->order[i]);
        err = err == WEFT_ERR_OK ? one : err;
    }
    return err;
}

/* -- Room ------------------------------------------------------------------------------------- */

/* First start slot where the profile fits. A 3g takes the right half first: on the left it would
 * block slot 3, which a 1g could use (reference: segment relocation of ParvaGPU). */
static int32_t find_mig_start(const weft_mig_profile *mig, uint32_t taken)
{
    uint32_t range = (1u << mig->slots) - 1;
    for (int32_t i = 0; i < 8; i++) {
        int32_t start = mig->gpcs == 3 ? 7 - i : i;
        if (mig->starts & 1u << start && !(taken & range << start))
            return start;
    }
    return -1;
}

static uint32_t core_slices(const weft_fleet_device *row)
{
    return row->n_slice ? (uint32_t)row->n_slice : 1;
}

static uint32_t cores_of_slice(const weft_fleet_device *row, uint32_t i)
{
    return row->n_slice ? row->slice_cores[i] : row->cores;
}

/* Index of a free CPU slice of that many cores, or UINT32_MAX. */
static uint32_t find_core_slice(const weft_board_device *device, uint32_t cores)
{
    for (uint32_t i = 0; i < core_slices(device->row); i++)
        if (!device->cores_taken[i] && cores_of_slice(device->row, i) == cores)
            return i;
    return UINT32_MAX;
}

/* Whether the device, open and of the right row, takes one more slice of this option. */
static bool has_room(const weft_board_device *device, const weft_option *o)
{
    if (device->row != o->row || device->kind != o->spec.kind)
        return false;
    if (o->spec.kind != WEFT_SLICE_CORES &&
        device->clients + o->point->procs > WEFT_MPS_CLIENTS_MAX)
        return false;
    if ((o->spec.kind == WEFT_SLICE_MPS || o->spec.kind == WEFT_SLICE_CORES) && o->spec.mem_bytes &&
        weft_load__mem(o->point) > o->spec.mem_bytes - device->mem_bytes)
        return false;
    switch (o->spec.kind) {
    case WEFT_SLICE_WHOLE:
        return device->n_slice == 0;
    case WEFT_SLICE_MIG:
        return find_mig_start(o->spec.mig, device->mig_taken) >= 0;
    case WEFT_SLICE_MPS:
        return device->percent + o->spec.percent <= 100;
    case WEFT_SLICE_CORES:
        return find_core_slice(device, o->spec.cores) != UINT32_MAX;
    }
    return false;
}

bool weft_board__has_place(const weft_board *board, const weft_option *option)
{
    if (board->opened[option->row - board->fleet->device] < option->row->count)
        return true;
    for (uint32_t i = 0; i < board->devices.len; i++)
        if (has_room(&board->devices.at[i], option))
            return true;
    return false;
}

/* The device for the option, opened when need be; UINT32_MAX: none. */
static uint32_t find_device(weft_board *board, const weft_option *o, bool best)
{
    uint32_t found = UINT32_MAX;
    for (uint32_t i = 0; i < board->devices.len; i++) {
        const weft_board_device *device = &board->devices.at[i];
        if (!has_room(device, o))
            continue;
        if (!best)
            return i;
        if (found == UINT32_MAX || device->weight > board->devices.at[found].weight + slack)
            found = i;
    }
    uint32_t *opened = &board->opened[o->row - board->fleet->device];
    if (found != UINT32_MAX || *opened == o->row->count)
        return found;
    weft_board_device device = {.row = o->row, .kind = o->spec.kind};
    device.cores_taken = weft_arena_array(board->arena, core_slices(o->row), sizeof(bool));
    ++*opened;
    WEFT_VEC_PUSH(board->arena, &board->devices, device);
    return board->devices.len - 1;
}

bool weft_board__add(weft_board *board, uint32_t demand, const weft_option *o, double rate_per_s,
                     bool best)
{
    uint32_t index = find_device(board, o, best);
    if (index == UINT32_MAX)
        return false;
    weft_board_device *device = &board->devices.at[index];
    weft_board_slice slice = {
        .device = index, .id = device->n_slice, .mig_start = -1, .spec = o->spec};
    if (o->spec.kind == WEFT_SLICE_MIG) {
        slice.mig_start = find_mig_start(o->spec.mig, device->mig_taken);
        device->mig_taken |= ((1u << o->spec.mig->slots) - 1) << slice.mig_start;
    }
    if (o->spec.kind == WEFT_SLICE_CORES) {
        slice.id = find_core_slice(device, o->spec.cores);
        device->cores_taken[slice.id] = true;
    } else {
        device->clients += o->point->procs;
    }
    if (o->spec.kind == WEFT_SLICE_MPS || o->spec.kind == WEFT_SLICE_CORES)
        device->mem_bytes += weft_load__mem(o->point);
    device->percent += o->spec.percent;
    device->weight += o->spec.weight;
    device->n_slice++;
    weft_member member = {.demand = demand, .option = o, .rate_per_s = rate_per_s};
    WEFT_VEC_PUSH(board->arena, &slice.members, member);
    WEFT_VEC_PUSH(board->arena, &board->slices, slice);
    return true;
}

/* -- Time sharing ----------------------------------------------------------------------------- */

/* The next larger batch of a demand on a slice that serves more requests per time of the slice;
 * `from` NULL: the smallest batch. NULL: none. */
static const weft_option *next_batch(const weft_board *board, uint32_t demand,
                                     const weft_board_slice *slice, const weft_option *from)
{
    const weft_option *option = board->option[demand], *found = NULL;
    for (uint32_t i = 0; i < board->n_option[demand]; i++) {
        const weft_option *o = &option[i];
        if (o->row != board->devices.at[slice->device].row || o->point->procs != 1 ||
            strcmp(o->spec.name, slice->spec.name) != 0)
            continue;
        if (from && o->point->batch * from->exec_us <= from->point->batch * o->exec_us)
            continue;
        if (from && o->point->batch <= from->point->batch)
            continue;
        if (!found || o->point->batch < found->point->batch)
            found = o;
    }
    return found;
}

static double sum_exec(const weft_member *member, uint32_t n)
{
    double cycle_us = 0;
    for (uint32_t i = 0; i < n; i++)
        cycle_us += member[i].option->exec_us;
    return cycle_us;
}

/* Starts with the smallest batches and enlarges, one at a time, those that cannot keep up with the
 * round; the round only grows, so what was enlarged once never becomes too large. */
static bool choose_batches(const weft_board *board, const weft_board_slice *slice,
                           weft_member *member, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        member[i].option = next_batch(board, member[i].demand, slice, NULL);
        if (!member[i].option)
            return false;
    }
    for (uint32_t i = 0; i < n;) {
        double cycle_us = sum_exec(member, n);
        if (member[i].rate_per_s * cycle_us <= member[i].option->point->batch * 1e6) {
            i++;
            continue;
        }
        member[i].option = next_batch(board, member[i].demand, slice, member[i].option);
        if (!member[i].option)
            return false;
        i = 0;
    }
    return true;
}

static bool fits_slice(const weft_board *board, const weft_board_slice *slice,
                       const weft_member *member, uint32_t n)
{
    const weft_board_device *device = &board->devices.at[slice->device];
    double cycle_us = sum_exec(member, n);
    uint64_t mem_bytes = 0, old_bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        double slo_us =
            weft_rules__slo_us(&board->problem->rules, &board->demands->at[member[i].demand]);
        if (board->demands->at[member[i].demand].slo_us > 0 &&
            cycle_us + member[i].option->exec_us > slo_us)
            return false;
        uint64_t bytes = weft_load__mem(member[i].option->point);
        if (bytes > UINT64_MAX - mem_bytes)
            return false;
        mem_bytes += bytes;
    }
    if (slice->spec.mem_bytes == 0)
        return true;
    if (slice->spec.kind == WEFT_SLICE_WHOLE || slice->spec.kind == WEFT_SLICE_MIG)
        return mem_bytes <= slice->spec.mem_bytes;
    for (uint32_t i = 0; i < slice->members.len; i++)
        old_bytes += weft_load__mem(slice->members.at[i].option->point);
    uint64_t others = device->mem_bytes - old_bytes;
    return others <= slice->spec.mem_bytes && mem_bytes <= slice->spec.mem_bytes - others;
}

static double occupancy_of(const weft_member *member, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += member[i].rate_per_s * member[i].option->exec_us /
               (member[i].option->point->batch * 1e6);
    return sum;
}

bool weft_board__share(weft_board *board, uint32_t index, uint32_t demand, double rate_per_s,
                       bool commit, double *occupancy)
{
    weft_board_slice *slice = &board->slices.at[index];
    weft_board_device *device = &board->devices.at[slice->device];
    uint32_t n = slice->members.len + 1;
    weft_arena_mark mark = weft_arena_get_mark(board->arena);
    weft_member *member = weft_arena_array(board->arena, n, sizeof *member);
    bool ok = true;
    for (uint32_t i = 0; i + 1 < n; i++) {
        member[i] = slice->members.at[i];
        ok = ok && member[i].demand != demand && member[i].option->point->procs == 1;
    }
    member[n - 1] = (weft_member){.demand = demand, .rate_per_s = rate_per_s};
    ok = ok && choose_batches(board, slice, member, n) && fits_slice(board, slice, member, n);
    if (ok)
        *occupancy = occupancy_of(member, n);
    if (!ok || !commit) {
        weft_arena_reset(board->arena, mark);
        return ok;
    }
    for (uint32_t i = 0; i + 1 < n; i++)
        device->mem_bytes -=
            slice->spec.kind == WEFT_SLICE_MPS || slice->spec.kind == WEFT_SLICE_CORES
                ? weft_load__mem(slice->members.at[i].option->point)
                : 0;
    for (uint32_t i = 0; i < n; i++)
        device->mem_bytes +=
            slice->spec.kind == WEFT_SLICE_MPS || slice->spec.kind == WEFT_SLICE_CORES
                ? weft_load__mem(member[i].option->point)
                : 0;
    slice->members.at = member;
    slice->members.len = slice->members.cap = n;
    return true;
}

/* -- The end ---------------------------------------------------------------------------------- */

weft_err weft_board__full(weft_board *board, uint32_t demand, double rest_per_s)
{
    const weft_demand *d = &board->demands->at[demand];
    const weft_option *top = &board->option[demand][0];
    for (uint32_t i = 1; i < board->n_option[demand]; i++)
        if (board->option[demand][i].peak_per_s > top->peak_per_s * (1 + slack))
            top = &board->option[demand][i];
    double more = fmax(1, ceil(rest_per_s / top->peak_per_s));
    return weft_diag_error(
        board->diag, WEFT_ERR_INFEASIBLE, (weft_where){.item = d->model},
        "the fleet has no place left for %.6g/s of %.6g/s; %.0f more slice%s %s%s%s would carry it",
        rest_per_s, d->rate_per_s, more, more > 1 ? "s" : "", top->row->type,
        top->spec.name[0] ? " " : "", top->spec.name);
}

static int compare_places(const void *a, const void *b)
{
    const weft_placement *p = a, *q = b;
    if (p->device != q->device)
        return p->device < q->device ? -1 : 1;
    if (p->slice_id != q->slice_id)
        return p->slice_id < q->slice_id ? -1 : 1;
    return strcmp(p->model, q->model);
}

static weft_placement describe(const weft_board *board, const weft_board_slice *slice,
                               const weft_member *member)
{
    const weft_demand *demand = &board->demands->at[member->demand];
    const weft_profile_point *point = member->option->point;
    weft_load_in in = {.rules = &board->problem->rules,
                       .demand = demand,
                       .point = point,
                       .exec_us = member->option->exec_us,
                       .cycle_us = sum_exec(slice->members.at, slice->members.len),
                       .alone = slice->members.len == 1,
                       .rate_per_s = member->rate_per_s};
    weft_load load = weft_load__compute(&in);
    return (weft_placement){.model = weft_arena_strdup(board->arena, demand->model),
                            .device = slice->device,
                            .type = weft_arena_strdup(board->arena, member->option->row->type),
                            .slice = weft_arena_strdup(board->arena, slice->spec.name),
                            .mig_start = slice->mig_start,
                            .slice_id = slice->id,
                            .share = slice->spec.share,
                            .batch = point->batch,
                            .procs = point->procs,
                            .rate_per_s = member->rate_per_s,
                            .capacity_per_s = load.capacity_per_s,
                            .latency_us = load.latency_us,
                            .mem_bytes = weft_load__mem(point)};
}

void weft_board__finish(const weft_board *board, const char *policy, weft_plan *out)
{
    size_t n = 0;
    for (uint32_t i = 0; i < board->slices.len; i++)
        n += board->slices.at[i].members.len;
    weft_plan plan = {.policy = policy,
                      .rules = board->problem->rules,
                      .goal = board->problem->goal,
                      .gpus = board->devices.len};
    plan.at = weft_arena_array(board->arena, n, sizeof *plan.at);
    for (uint32_t i = 0; i < board->slices.len; i++) {
        const weft_board_slice *slice = &board->slices.at[i];
        for (uint32_t j = 0; j < slice->members.len; j++)
            plan.at[plan.n++] = describe(board, slice, &slice->members.at[j]);
    }
    for (size_t i = 0; i < plan.n; i++)
        plan.goodput_per_s += plan.at[i].rate_per_s;
    qsort(plan.at, plan.n, sizeof *plan.at, compare_places);
    for (uint32_t i = 0; i < board->devices.len; i++)
        plan.cost_per_hour += weft_fleet__price(board->devices.at[i].row);
    plan.lower_bound = weft_plan__lower_bound(board->problem);
    plan.proven = plan.gpus <= plan.lower_bound;
    *out = plan;
}
