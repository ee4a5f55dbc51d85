/* The plan builder: a plan under construction, as policies see it. It knows the options of each
 * model, the open devices, the slices on them and the models on those. Each operation checks
 * memory, MIG geometry, shares, rates and SLOs, and either succeeds or changes nothing, so that the
 * checker accepts every plan built here and a policy consists of its choices. Equal inputs give
 * equal plans, whatever the order of the models. */
#include "scheduler/builder/builder_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double slack = 1e-9; /* relative, below the tolerance of the checker */

/* -- The beginning ----------------------------------------------------------------------------- */

weft_err weft_builder__init(weft_builder *builder, const weft_problem *problem, weft_arena *arena,
                            weft_diag *diag)
{
    const weft_demands *demands = problem->demands;
    const weft_fleet *fleet = problem->fleet;
    *builder = (weft_builder){
        .problem = problem, .demands = demands, .fleet = fleet, .arena = arena, .diag = diag};
    weft_err err = WEFT_ERR_OK;
    WEFT_TRY(weft_demands__check(demands, diag));
    WEFT_TRY(weft_rules__check(&problem->rules, diag));
    weft_option_table__build(problem, arena, &builder->table);
    builder->option = builder->table.option;
    builder->n_option = builder->table.n_option;
    builder->index = weft_demands__index(demands, arena);
    builder->order = builder->index.by_name;
    builder->opened = weft_arena_array(arena, fleet->n_device, sizeof *builder->opened);
    weft_pool__init(builder);
    /* Reports all models without an option, not only the first. */
    for (size_t i = 0; i < demands->n && problem->goal != WEFT_GOAL_GOODPUT; i++) {
        if (builder->n_option[builder->order[i]] > 0)
            continue;
        weft_err one = weft_option_table__refuse(&builder->table, builder->order[i], diag);
        err = err == WEFT_ERR_OK ? one : err;
    }
    return err;
}

/* -- Room ------------------------------------------------------------------------------------- */

static uint32_t core_slices(const weft_fleet_device *row)
{
    return row->n_slice ? (uint32_t)row->n_slice : 1;
}

static uint32_t cores_of_slice(const weft_fleet_device *row, uint32_t i)
{
    return row->n_slice ? row->slice_cores[i] : row->cores;
}

static bool fits_memory(const weft_option *o, uint64_t taken_bytes)
{
    return o->spec.mem_bytes == 0 ||
           (taken_bytes <= o->spec.mem_bytes && o->mem_bytes <= o->spec.mem_bytes - taken_bytes);
}

static bool fits_percent(const weft_builder *builder, const weft_option *o, uint32_t taken)
{
    return builder->problem->rules.oversubscribe || taken + o->spec.percent <= 100;
}

/* Whether a CPU slice with the cores of the option is free; *out: its index. */
static bool fits_cores(const weft_builder_device *device, const weft_option *o, int32_t start,
                       int32_t *out)
{
    uint32_t n = core_slices(device->row), i = start < 0 ? 0 : (uint32_t)start;
    for (; i < n && (start < 0 || i == (uint32_t)start); i++)
        if (!device->cores_taken[i] && cores_of_slice(device->row, i) == o->spec.cores &&
            fits_memory(o, device->mem_bytes)) {
            *out = (int32_t)i;
            return true;
        }
    return false;
}

/* Whether the instance at `start`, which is split already, has room for one more share. */
static bool fits_nested(const weft_builder *builder, const weft_builder_device *device,
                        const weft_option *o, int32_t start, int32_t *out)
{
    const weft_builder_instance *at =
        start >= 0 && device->instance ? &device->instance[start] : NULL;
    if (!at || !at->mig)
        return false;
    *out = start;
    return at->mig == o->spec.mig && fits_percent(builder, o, at->percent) &&
           at->clients + o->point->procs <= weft_fleet__mig_clients_max(at->mig) &&
           fits_memory(o, at->mem_bytes) &&
           (!builder->problem->rules.isolated || at->demand == o->demand);
}

static bool fits_mig(const weft_builder_device *device, const weft_option *o, int32_t start,
                     int32_t *out)
{
    uint32_t range = (1u << o->spec.mig->slots) - 1;
    if (start < 0)
        start = weft_pool__mig_start(o->spec.mig, device->mig_taken);
    if (start < 0 || start > 7 || !(o->spec.mig->starts & 1u << start) ||
        device->mig_taken & range << start)
        return false;
    *out = start;
    return true;
}

bool weft_builder__fits(const weft_builder *builder, const weft_builder_device *device,
                        const weft_option *o, int32_t start, int32_t *out)
{
    *out = -1;
    if (device->row != o->row || device->kind != o->spec.kind || start > 4096)
        return false;
    if (o->spec.kind != WEFT_SLICE_CORES &&
        device->clients + o->point->procs > WEFT_MPS_CLIENTS_MAX)
        return false;
    switch (o->spec.kind) {
    case WEFT_SLICE_WHOLE:
        return device->n_slice == 0;
    case WEFT_SLICE_MIG:
        if (weft_fleet_slice__is_nested(&o->spec) && start >= 0 && start < 8 && device->instance &&
            device->instance[start].mig)
            return fits_nested(builder, device, o, start, out);
        return fits_mig(device, o, start, out);
    case WEFT_SLICE_MPS:
        return fits_percent(builder, o, device->percent) && fits_memory(o, device->mem_bytes);
    case WEFT_SLICE_CORES:
        return fits_cores(device, o, start, out);
    }
    return false;
}

/* -- Changes ---------------------------------------------------------------------------------- */

static void log_undo(weft_builder *builder, weft_undo_record record)
{
    WEFT_VEC_PUSH(builder->arena, &builder->log, record);
}

uint32_t weft_builder__open(weft_builder *builder, const weft_fleet_device *row,
                            weft_fleet_slice_kind kind)
{
    uint32_t *opened = &builder->opened[row - builder->fleet->device];
    if (*opened == row->count)
        return UINT32_MAX;
    weft_builder_device device = {.row = row, .kind = kind, .nth = *opened, .last = UINT32_MAX};
    /* An undone device at this index left lists that are empty again: they are reused. */
    if (builder->devices.len < builder->devices.cap) {
        const weft_builder_device *old = &builder->devices.at[builder->devices.len];
        device.instance = old->instance;
        device.cores_taken = old->row == row ? old->cores_taken : NULL;
    }
    if (kind == WEFT_SLICE_CORES && !device.cores_taken)
        device.cores_taken = weft_arena_array(builder->arena, core_slices(row), sizeof(bool));
    ++*opened;
    WEFT_VEC_PUSH(builder->arena, &builder->devices, device);
    weft_pool__insert(builder, builder->devices.len - 1);
    log_undo(builder, (weft_undo_record){.kind = WEFT_UNDO_OPEN});
    return builder->devices.len - 1;
}

/* Adds (sign 1) or subtracts (-1) a share of an instance to what the instance and its device hold.
 */
static void count_nested(weft_builder *builder, const weft_builder_slice *slice,
                         const weft_option *o, int sign)
{
    weft_builder_device *device = &builder->devices.at[slice->device];
    uint32_t start = (uint32_t)slice->mig_start;
    if (!device->instance)
        device->instance = weft_arena_array(builder->arena, 8, sizeof *device->instance);
    weft_builder_instance *i = &device->instance[start];
    if (i->mig)
        weft_pool__remove_instance(builder, slice->device, start);
    bool is_first = sign > 0 && i->n_share == 0, is_last = sign < 0 && i->n_share == 1;
    if (is_first || is_last) {
        device->mig_taken ^= weft_device_type_mig_slots(o->spec.mig, slice->mig_start);
        device->gpcs += (uint32_t)sign * o->spec.mig->gpcs;
        i->demand = o->demand;
    }
    i->mig = is_last ? NULL : o->spec.mig;
    i->n_share += (uint32_t)sign;
    i->percent += (uint32_t)sign * o->spec.percent;
    i->clients += (uint32_t)sign * o->point->procs;
    i->mem_bytes += (uint64_t)sign * o->mem_bytes;
    if (i->mig)
        weft_pool__insert_instance(builder, slice->device, start);
}

/* Adds (sign 1) or subtracts (-1) a slice with one member to what its device holds. Unsigned
 * arithmetic is modular, so adding the negated amount subtracts. */
static void count_slice(weft_builder *builder, const weft_builder_slice *slice,
                        const weft_option *o, int sign)
{
    weft_builder_device *device = &builder->devices.at[slice->device];
    weft_pool__remove(builder, slice->device);
    if (weft_fleet_slice__is_nested(&o->spec)) {
        count_nested(builder, slice, o, sign);
    } else if (o->spec.kind == WEFT_SLICE_MIG) {
        device->mig_taken ^= weft_device_type_mig_slots(o->spec.mig, slice->mig_start);
        device->gpcs += (uint32_t)sign * o->spec.mig->gpcs;
    } else if (o->spec.kind == WEFT_SLICE_MPS) {
        device->percent += (uint32_t)sign * o->spec.percent;
    }
    if (o->spec.kind == WEFT_SLICE_CORES)
        device->cores_taken[slice->id] = sign > 0;
    else
        device->clients += (uint32_t)sign * o->point->procs;
    if (o->spec.kind == WEFT_SLICE_MPS || o->spec.kind == WEFT_SLICE_CORES)
        device->mem_bytes += (uint64_t)sign * o->mem_bytes;
    device->n_slice += (uint32_t)sign;
    weft_pool__insert(builder, slice->device);
}

/* Adds a slice at `start`, which is free. An undone slice at this index left its list of members,
 * which is reused. */
static void push_slice(weft_builder *builder, uint32_t index, int32_t start, weft_member member)
{
    weft_builder_device *device = &builder->devices.at[index];
    const weft_option *o = member.option;
    bool is_core = o->spec.kind == WEFT_SLICE_CORES;
    weft_builder_slice slice = {.device = index,
                                .id = is_core ? (uint32_t)start : device->n_slice,
                                .mig_start = o->spec.kind == WEFT_SLICE_MIG ? start : -1,
                                .spec = o->spec,
                                .shape = o->shape,
                                .before = device->last};
    if (builder->slices.len == builder->slices.cap)
        WEFT_VEC_PUSH(builder->arena, &builder->slices, slice);
    else
        builder->slices.len++;
    weft_builder_slice *at = &builder->slices.at[builder->slices.len - 1];
    slice.members = at->members;
    slice.members.len = 1;
    if (slice.members.cap == 0) {
        slice.members.at = weft_arena_array(builder->arena, 1, sizeof *slice.members.at);
        slice.members.cap = 1;
    }
    slice.members.at[0] = member;
    *at = slice;
    device->last = builder->slices.len - 1;
    count_slice(builder, at, o, 1);
    log_undo(builder, (weft_undo_record){.kind = WEFT_UNDO_PUT, .slice = builder->slices.len - 1});
}

/* Adds a slice, and removes it again if a rate or an SLO is then violated. */
static bool try_slice(weft_builder *builder, uint32_t index, int32_t start, weft_member member)
{
    uint32_t mark = weft_builder__mark(builder);
    push_slice(builder, index, start, member);
    if (weft_builder__keeps_slos(builder, builder->slices.len - 1))
        return true;
    weft_builder__undo(builder, mark);
    return false;
}

uint32_t weft_builder__find_demand(const weft_builder *builder, const char *model)
{
    return weft_demands__find(&builder->index, model);
}

uint64_t weft_builder__sum_mem(const weft_member *member, uint32_t n)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t bytes = member[i].option->mem_bytes;
        sum = bytes > UINT64_MAX - sum ? UINT64_MAX : sum + bytes;
    }
    return sum;
}

/* Updates the memory taken on a device or instance when that of a slice changes. */
static void recount_mem(weft_builder *builder, const weft_builder_slice *slice, uint64_t old_bytes,
                        uint64_t new_bytes)
{
    weft_builder_device *device = &builder->devices.at[slice->device];
    if (weft_fleet_slice__is_nested(&slice->spec)) {
        weft_pool__remove_instance(builder, slice->device, (uint32_t)slice->mig_start);
        device->instance[slice->mig_start].mem_bytes += new_bytes - old_bytes;
        weft_pool__insert_instance(builder, slice->device, (uint32_t)slice->mig_start);
    } else if (slice->spec.kind == WEFT_SLICE_MPS || slice->spec.kind == WEFT_SLICE_CORES) {
        weft_pool__remove(builder, slice->device);
        device->mem_bytes += new_bytes - old_bytes;
        weft_pool__insert(builder, slice->device);
    }
}

void weft_builder__set_members(weft_builder *builder, weft_builder_slice *slice,
                               const weft_member *member, uint32_t n)
{
    uint64_t old_bytes = weft_builder__sum_mem(slice->members.at, slice->members.len);
    if (n > slice->members.cap) {
        slice->members.at = weft_arena_array(builder->arena, n, sizeof *slice->members.at);
        slice->members.cap = n;
    }
    if (n > 0)
        memmove(slice->members.at, member, n * sizeof *member);
    slice->members.len = n;
    recount_mem(builder, slice, old_bytes, weft_builder__sum_mem(member, n));
}

static void undo_join(weft_builder *builder, const weft_undo_record *record)
{
    builder->saved.len -= record->n_saved;
    weft_builder__set_members(builder, &builder->slices.at[record->slice],
                              builder->saved.at + builder->saved.len, record->n_saved);
}

uint32_t weft_builder__mark(const weft_builder *builder)
{
    return builder->log.len;
}

void weft_builder__undo(weft_builder *builder, uint32_t mark)
{
    while (builder->log.len > mark) {
        weft_undo_record record = builder->log.at[--builder->log.len];
        if (record.kind == WEFT_UNDO_OPEN) {
            weft_pool__remove(builder, --builder->devices.len);
            builder
                ->opened[builder->devices.at[builder->devices.len].row - builder->fleet->device]--;
        } else if (record.kind == WEFT_UNDO_PUT) {
            const weft_builder_slice *slice = &builder->slices.at[--builder->slices.len];
            builder->devices.at[slice->device].last = slice->before;
            count_slice(builder, slice, slice->members.at[0].option, -1);
        } else {
            undo_join(builder, &record);
        }
    }
}

/* -- Slices ----------------------------------------------------------------------------------- */

/* A member for which a device is searched. */
typedef struct wish {
    weft_builder *builder; /* NULL: SLOs are not checked */
    const weft_builder *look;
    weft_member member;
} wish;

/* Whether a device has room, and, where interference applies, every SLO still holds with the new
 * slice. */
static bool fits_wish(void *user, uint32_t device, int32_t start)
{
    wish *w = user;
    const weft_option *o = w->member.option;
    int32_t at;
    if (!weft_builder__fits(w->look, &w->look->devices.at[device], o, start, &at))
        return false;
    if (!w->builder || !weft_builder__has_neighbours(&o->spec) ||
        !weft_interference__any(&w->look->problem->rules.interference))
        return true;
    uint32_t mark = weft_builder__mark(w->builder);
    push_slice(w->builder, device, at, w->member);
    bool ok = weft_builder__keeps_slos(w->builder, w->builder->slices.len - 1);
    weft_builder__undo(w->builder, mark);
    return ok;
}

bool weft_builder__has_place(const weft_builder *builder, const weft_option *option)
{
    wish w = {.look = builder, .member = {.option = option}};
    int32_t start;
    if (builder->opened[option->row - builder->fleet->device] < option->row->count)
        return true;
    return weft_pool__find(builder, option, false, fits_wish, &w, &start) != UINT32_MAX;
}

bool weft_builder__add(weft_builder *builder, uint32_t demand, const weft_option *o,
                       double rate_per_s, bool best)
{
    wish w = {.builder = builder,
              .look = builder,
              .member = {.demand = demand, .option = o, .rate_per_s = rate_per_s}};
    uint32_t mark = weft_builder__mark(builder);
    int32_t start, at;
    uint32_t device = weft_pool__find(builder, o, best, fits_wish, &w, &start);
    if (device == UINT32_MAX)
        device = weft_builder__open(builder, o->row, o->spec.kind);
    if (device != UINT32_MAX &&
        weft_builder__fits(builder, &builder->devices.at[device], o, start, &at) &&
        try_slice(builder, device, at, w.member))
        return true;
    weft_builder__undo(builder, mark);
    return false;
}

bool weft_builder__put(weft_builder *builder, uint32_t device, int32_t mig_start, uint32_t demand,
                       const weft_option *o, double rate_per_s)
{
    weft_member member = {.demand = demand, .option = o, .rate_per_s = rate_per_s};
    int32_t at;
    if (device >= builder->devices.len)
        return false;
    if (mig_start < 0 && weft_fleet_slice__is_nested(&o->spec) &&
        builder->devices.at[device].instance)
        for (int32_t i = 0; i < 8; i++)
            if (builder->devices.at[device].instance[i].mig == o->spec.mig &&
                weft_builder__fits(builder, &builder->devices.at[device], o, i, &at) &&
                try_slice(builder, device, at, member))
                return true;
    return weft_builder__fits(builder, &builder->devices.at[device], o, mig_start, &at) &&
           try_slice(builder, device, at, member);
}

/* -- The end ---------------------------------------------------------------------------------- */

weft_err weft_builder__full(weft_builder *builder, uint32_t demand, double rest_per_s)
{
    const weft_demand *d = &builder->demands->at[demand];
    if (builder->n_option[demand] == 0)
        return weft_option_table__refuse(&builder->table, demand, builder->diag);
    const weft_option *top = &builder->option[demand][0];
    for (uint32_t i = 1; i < builder->n_option[demand]; i++)
        if (builder->option[demand][i].peak_per_s > top->peak_per_s * (1 + slack))
            top = &builder->option[demand][i];
    double more = fmax(1, ceil(rest_per_s / top->peak_per_s));
    return weft_diag_error(
        builder->diag, WEFT_ERR_INFEASIBLE, (weft_where){.item = d->model},
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

static weft_placement describe(const weft_builder *builder, const weft_builder_slice *slice,
                               const weft_member *member, double cycle_us)
{
    const weft_profile_point *point = member->option->point;
    weft_slo_load load = weft_builder__load(builder, slice, member, cycle_us);
    return (weft_placement){.model = builder->demands->at[member->demand].model,
                            .type = member->option->row->type,
                            .slice = builder->table.shape[slice->shape].slice,
                            .mig_start = slice->mig_start,
                            .slice_id = slice->id,
                            .share = slice->spec.share,
                            .batch = point->batch,
                            .procs = point->procs,
                            .rate_per_s = member->rate_per_s,
                            .capacity_per_s = load.capacity_per_s,
                            .latency_us = load.latency_us,
                            .exec_us = load.exec_us,
                            .mem_bytes = member->option->mem_bytes,
                            .expected_error = point->cost.expected_error,
                            .source = point->cost.source};
}

/* Copies texts of placements to the arena, since a plan outlives its problem. A text equal to the
 * last one in the same field is not copied again. */
typedef struct text_copies {
    weft_arena *arena;
    const char *text[4];
} text_copies;

static const char *copy_text(text_copies *c, size_t which, const char *text)
{
    if (!c->text[which] || strcmp(c->text[which], text) != 0)
        c->text[which] = weft_arena_strdup(c->arena, text);
    return c->text[which];
}

/* Numbers the devices that are not empty, and sums up their count and price. */
static uint32_t *number_devices(const weft_builder *builder, weft_plan *plan)
{
    uint32_t *number = weft_arena_array(builder->arena, builder->devices.len, sizeof *number);
    for (uint32_t i = 0; i < builder->devices.len; i++) {
        number[i] = plan->gpus;
        if (builder->devices.at[i].n_slice == 0)
            continue;
        plan->gpus++;
        plan->cost_per_hour += weft_fleet__price(builder->devices.at[i].row);
    }
    return number;
}

void weft_builder__finish(const weft_builder *builder, const char *policy, weft_plan *out)
{
    size_t n = 0;
    text_copies copies = {.arena = builder->arena};
    for (uint32_t i = 0; i < builder->slices.len; i++)
        n += builder->slices.at[i].members.len;
    weft_plan plan = {
        .policy = policy, .rules = builder->problem->rules, .goal = builder->problem->goal};
    uint32_t *number = number_devices(builder, &plan);
    weft_power power = {0};
    plan.at = weft_arena_array(builder->arena, n, sizeof *plan.at);
    for (uint32_t i = 0; i < builder->slices.len; i++) {
        const weft_builder_slice *slice = &builder->slices.at[i];
        double cycle_us = weft_builder__cycle_us(builder, slice);
        for (uint32_t j = 0; j < slice->members.len; j++) {
            weft_placement p = describe(builder, slice, &slice->members.at[j], cycle_us);
            p.device = number[slice->device];
            p.model = copy_text(&copies, 0, p.model);
            p.type = copy_text(&copies, 1, p.type);
            p.slice = copy_text(&copies, 2, p.slice);
            p.source = copy_text(&copies, 3, p.source);
            plan.at[plan.n++] = p;
            weft_power__add(&power, slice->members.at[j].option->point, p.rate_per_s);
        }
    }
    qsort(plan.at, plan.n, sizeof *plan.at, compare_places);
    plan.power_w = weft_power__watts(&power);
    for (size_t i = 0; i < plan.n; i++)
        plan.goodput_per_s += plan.at[i].rate_per_s;
    weft_option_table__bound_plan(&builder->table, &plan);
    *out = plan;
}
