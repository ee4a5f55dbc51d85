/* Incremental repair: the plan in force, edited in place after a few models have changed.
 *
 * For plans of dedicated slices only (MIG instances and whole devices with one model each),
 * where a change of one model changes no number of another. Placements of unchanged models are
 * copied. A model whose rate has changed, or whose points are no longer within the rules, fills
 * the slices it keeps, gives up those it no longer needs, and takes the rest from free slots of
 * open devices, best fit first, before new devices are opened.
 *
 * Complexity: O(placements + models * options), and O(devices) for each new slice. No plan is
 * built on the builder, which takes most of the time for large plans. All other plans are
 * repaired on the builder (policy_weft.c). */
#include "scheduler/policies/policies_int.h"

#include "base/hash.h"
#include "base/map.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

enum { ADDED_MAX = 4096 }; /* new segments; a change that needs more is not repaired */

typedef struct device {
    const weft_fleet_device *row;
    uint32_t taken, segments, next_id, number;
    bool whole;
} device;

/* One placement: of the plan in force (`old`), or new (`old` is NULL). */
typedef struct edit {
    const weft_placement *old;
    const weft_option *option;
    uint32_t demand, device, slice_id;
    int32_t start;
    double rate_per_s;
    bool gone;
} edit;

typedef struct change {
    uint32_t added;
    const weft_builder *builder;
    const weft_plan *previous;
    weft_arena *arena;
    uint32_t *demand_of;      /* by placement */
    const weft_option **last; /* by demand: option of its placement read last */
    const char **model;       /* by demand: name, as the new plan has it */
    double *carried, *rest;   /* by demand */
    uint32_t *segments;       /* by demand: number of kept segments */
    bool *changed;            /* by demand */
    uint32_t *opened;         /* by fleet row */
    WEFT_VEC(device) devices;
    WEFT_VEC(edit) edits;
} change;

static bool is_plain(const weft_option *o)
{
    return o->spec.kind == WEFT_SLICE_WHOLE ||
           (o->spec.kind == WEFT_SLICE_MIG && !weft_fleet_slice__is_nested(&o->spec));
}

/* -- Reading the plan in force ---------------------------------------------------------------- */

static void find_demands(change *ch)
{
    const weft_demands *demands = ch->builder->demands;
    weft_map *map = weft_map_create(ch->arena);
    for (uint32_t d = 0; d < demands->n; d++) {
        const char *name = demands->at[d].model;
        weft_map_put(map, weft_hash64(name, strlen(name), 0), d);
    }
    for (size_t i = 0; i < ch->previous->n; i++) {
        const char *name = ch->previous->at[i].model;
        uint64_t d;
        bool found = weft_map_get(map, weft_hash64(name, strlen(name), 0), &d) &&
                     strcmp(demands->at[d].model, name) == 0;
        ch->demand_of[i] = found ? (uint32_t)d : NONE;
    }
}

/* The option of a placement by the present rules; NULL: there is none. */
static const weft_option *find_option(change *ch, uint32_t d, const weft_placement *p)
{
    const weft_option *last = ch->last[d];
    if (last && last->point->batch == p->batch && last->point->procs == p->procs &&
        strcmp(last->spec.name, p->slice) == 0 && strcmp(last->row->type, p->type) == 0)
        return last;
    return ch->last[d] = weft_option_table__placed(&ch->builder->table, d, p);
}

/* false: the plan has something that cannot be edited here. */
static bool read_edits(change *ch)
{
    const weft_plan *plan = ch->previous;
    for (size_t i = 0; i < plan->n; i++) {
        const weft_placement *p = &plan->at[i];
        bool sorted = i == 0 || p->device > p[-1].device ||
                      (p->device == p[-1].device && p->slice_id > p[-1].slice_id);
        if (!sorted || p->device > ch->devices.len)
            return false;
        if (p->device == ch->devices.len) {
            const weft_fleet_device *row = weft_fleet__row(ch->builder->fleet, p->type);
            device one = {.row = row};
            if (!row || ++ch->opened[row - ch->builder->fleet->device] > row->count)
                return false;
            WEFT_VEC_PUSH(ch->arena, &ch->devices, one);
        }
        uint32_t d = ch->demand_of[i];
        edit e = {.old = p,
                  .option = d == NONE ? NULL : find_option(ch, d, p),
                  .demand = d,
                  .device = p->device,
                  .slice_id = p->slice_id,
                  .start = p->mig_start,
                  .rate_per_s = p->rate_per_s};
        ch->devices.at[p->device].next_id = p->slice_id + 1;
        e.gone = !e.option;
        if (e.option && !is_plain(e.option))
            return false;
        if (d != NONE) {
            ch->carried[d] += p->rate_per_s;
            /* The SLO may allow a lower rate than before. */
            ch->changed[d] =
                ch->changed[d] || !e.option || p->rate_per_s > e.option->peak_per_s * (1 + 1e-9);
        }
        WEFT_VEC_PUSH(ch->arena, &ch->edits, e);
    }
    return true;
}

/* -- What stays ------------------------------------------------------------------------------- */

/* Takes the slots of a segment; false: they are not free. */
static bool occupy(change *ch, const edit *e)
{
    device *dev = &ch->devices.at[e->device];
    bool whole = e->option->spec.kind == WEFT_SLICE_WHOLE;
    if (dev->whole || (whole && dev->segments > 0) || dev->row != e->option->row)
        return false;
    if (!whole) {
        const weft_mig_profile *mig = e->option->spec.mig;
        if (e->start < 0 || e->start > 7 || !(mig->starts & 1u << e->start) ||
            dev->taken & weft_device_type_mig_slots(mig, e->start))
            return false;
        dev->taken |= weft_device_type_mig_slots(mig, e->start);
    }
    dev->whole = whole;
    dev->segments++;
    return true;
}

static bool keep_segments(change *ch)
{
    const weft_demands *demands = ch->builder->demands;
    for (uint32_t d = 0; d < demands->n; d++) {
        double rate = demands->at[d].rate_per_s;
        ch->changed[d] = ch->changed[d] || fabs(ch->carried[d] - rate) > 1e-9 * rate;
        ch->rest[d] = ch->changed[d] ? rate : 0;
    }
    for (uint32_t i = 0; i < ch->edits.len; i++) {
        edit *e = &ch->edits.at[i];
        if (e->gone)
            continue;
        if (ch->changed[e->demand]) {
            double rate = demands->at[e->demand].rate_per_s;
            e->rate_per_s = fmin(e->option->peak_per_s, ch->rest[e->demand]);
            e->gone = e->rate_per_s <= rate * 1e-9 && ch->segments[e->demand] > 0;
            if (e->gone)
                continue;
            ch->rest[e->demand] -= e->rate_per_s;
        }
        ch->segments[e->demand]++;
        if (!occupy(ch, e))
            return false;
    }
    return true;
}

/* -- What is new ------------------------------------------------------------------------------ */

static uint32_t slots_of(uint32_t taken)
{
    uint32_t n = 0;
    for (; taken; taken &= taken - 1)
        n++;
    return n;
}

/* Best fit: the fullest open device with room, else a new device; false: there is none. */
static bool place_segment(change *ch, uint32_t demand, const weft_option *o, double rate)
{
    bool whole = o->spec.kind == WEFT_SLICE_WHOLE;
    uint32_t best = NONE, most = 0;
    for (uint32_t i = 0; i < ch->devices.len; i++) {
        const device *dev = &ch->devices.at[i];
        if (dev->row != o->row || dev->whole || (whole && dev->segments > 0) ||
            (!whole && weft_pool__mig_start(o->spec.mig, dev->taken) < 0))
            continue;
        uint32_t use = 1 + slots_of(dev->taken);
        if (use > most) {
            most = use;
            best = i;
        }
    }
    uint32_t *opened = &ch->opened[o->row - ch->builder->fleet->device];
    if (best == NONE) {
        device fresh = {.row = o->row};
        if (*opened >= o->row->count)
            return false;
        ++*opened;
        best = ch->devices.len;
        WEFT_VEC_PUSH(ch->arena, &ch->devices, fresh);
    }
    device *dev = &ch->devices.at[best];
    edit e = {.option = o,
              .demand = demand,
              .device = best,
              .slice_id = dev->next_id++,
              .start = whole ? -1 : weft_pool__mig_start(o->spec.mig, dev->taken),
              .rate_per_s = rate};
    WEFT_VEC_PUSH(ch->arena, &ch->edits, e);
    return occupy(ch, &e);
}

static bool add_rest(change *ch, uint32_t demand)
{
    double rate = ch->builder->demands->at[demand].rate_per_s;
    while (ch->segments[demand] == 0 || ch->rest[demand] > rate * 1e-9) {
        const weft_option *list[WEFT_RUIN_RECREATE_CHOICES_MAX];
        uint32_t n = weft_ruin_recreate__rank(ch->builder, demand, ch->rest[demand], true, list);
        bool placed = false;
        for (uint32_t i = 0; !placed && i < n; i++) {
            double part = fmin(list[i]->peak_per_s, ch->rest[demand]);
            placed = is_plain(list[i]) && place_segment(ch, demand, list[i], part);
            ch->rest[demand] -= placed ? part : 0;
        }
        if (!placed || ch->added++ == ADDED_MAX)
            return false;
        ch->segments[demand]++;
    }
    return true;
}

/* -- The plan --------------------------------------------------------------------------------- */

static int compare_edits(const void *a, const void *b)
{
    const edit *p = a, *q = b;
    if (p->device != q->device)
        return p->device < q->device ? -1 : 1;
    return (p->slice_id > q->slice_id) - (p->slice_id < q->slice_id);
}

static const char *text_of(change *ch, const char **kept, const char *text)
{
    if (!*kept || strcmp(*kept, text) != 0)
        *kept = weft_arena_strdup(ch->arena, text);
    return *kept;
}

static weft_placement describe(change *ch, const edit *e)
{
    const weft_option *o = e->option;
    const weft_demand *demand = &ch->builder->demands->at[e->demand];
    weft_slo_load_in in = {.rules = &ch->builder->problem->rules,
                           .demand = demand,
                           .point = o->point,
                           .exec_us = o->exec_us,
                           .cycle_us = o->exec_us,
                           .alone = true,
                           .rate_per_s = e->rate_per_s};
    weft_slo_load load = weft_slo__load(&in);
    return (weft_placement){.mig_start = e->start,
                            .share = o->spec.share,
                            .batch = o->point->batch,
                            .procs = o->point->procs,
                            .rate_per_s = e->rate_per_s,
                            .capacity_per_s = load.capacity_per_s,
                            .latency_us = load.latency_us,
                            .exec_us = load.exec_us,
                            .mem_bytes = o->mem_bytes,
                            .expected_error = o->point->cost.expected_error};
}

static void write_plan(change *ch, weft_plan *out)
{
    weft_plan plan = {
        .policy = "weft", .rules = ch->builder->problem->rules, .goal = ch->builder->problem->goal};
    const char *type = NULL, *source = NULL;
    weft_power power = {0};
    plan.at = weft_arena_array(ch->arena, ch->edits.len, sizeof *plan.at);
    for (uint32_t i = 0; i < ch->devices.len; i++) {
        device *dev = &ch->devices.at[i];
        dev->number = plan.gpus;
        plan.gpus += dev->segments > 0;
        plan.cost_per_hour += dev->segments > 0 ? weft_fleet__price(dev->row) : 0;
    }
    for (uint32_t i = 0; i < ch->edits.len; i++) {
        const edit *e = &ch->edits.at[i];
        if (e->gone)
            continue;
        /* Unchanged placements, too: their latency depends on the SLO. */
        weft_placement p = describe(ch, e);
        p.device = ch->devices.at[e->device].number;
        p.slice_id = e->slice_id;
        p.model = text_of(ch, &ch->model[e->demand], ch->builder->demands->at[e->demand].model);
        p.type = text_of(ch, &type, e->option->row->type);
        p.source = text_of(ch, &source, e->option->point->cost.source);
        p.slice = e->option->spec.name; /* options live as long as the plan */
        plan.at[plan.n++] = p;
        plan.goodput_per_s += p.rate_per_s;
        weft_power__add(&power, e->option->point, p.rate_per_s);
    }
    plan.power_w = weft_power__watts(&power);
    weft_option_table__bound_plan(&ch->builder->table, &plan);
    *out = plan;
}

bool weft_incremental_repair__change(const weft_builder *builder, const weft_plan *previous,
                                     weft_plan *out)
{
    uint32_t n = (uint32_t)builder->demands->n;
    weft_arena *arena = builder->arena;
    change ch = {.builder = builder, .previous = previous, .arena = arena};
    if (builder->problem->goal == WEFT_GOAL_GOODPUT || previous->n > WEFT_PLAN_PLACEMENTS_MAX ||
        !weft_rules__equal(&previous->rules, &builder->problem->rules))
        return false;
    ch.demand_of = weft_arena_array(arena, previous->n, sizeof *ch.demand_of);
    ch.last = weft_arena_array(arena, n, sizeof *ch.last);
    ch.model = weft_arena_array(arena, n, sizeof *ch.model);
    ch.carried = weft_arena_array(arena, n, sizeof *ch.carried);
    ch.rest = weft_arena_array(arena, n, sizeof *ch.rest);
    ch.segments = weft_arena_array(arena, n, sizeof *ch.segments);
    ch.changed = weft_arena_array(arena, n, sizeof *ch.changed);
    ch.opened = weft_arena_array(arena, builder->fleet->n_device, sizeof *ch.opened);
    find_demands(&ch);
    if (!read_edits(&ch) || !keep_segments(&ch))
        return false;
    uint32_t kept = ch.edits.len;
    for (uint32_t s = 0; s < n; s++)
        if (!add_rest(&ch, builder->order[s]))
            return false;
    if (ch.edits.len > kept)
        qsort(ch.edits.at, ch.edits.len, sizeof *ch.edits.at, compare_edits);
    write_plan(&ch, out);
    return true;
}
