/* Places the portions of a large plan (cover_program.c) on devices.
 *
 * First on as many devices as it takes, large portions before small ones, best fit. Where models
 * may share slices, a portion that leaves much of its slice idle joins the slice of another such
 * portion instead, if both keep their SLOs: best fit decreasing by the part of the slice that they
 * need, or by the longest round that they allow. A round of a slice in turn is no longer than its
 * least patient model allows, and each model takes exec / round of the time, however small its
 * rate; so models that allow equally long rounds belong together, each on the slice where exec /
 * round, times the part of the device, is least. Then the MIG instances are packed again, by the
 * closed form of mig_pack.c, on the fewest devices. If the fleet does not have them, the portions
 * are placed once more on the devices that it has, and the rest goes wherever there is room. */
#include "scheduler/policies/fleet_program.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

enum { JOINS_MAX = 24 /* slices that one portion tries to join, of each shape */ };

static const double full = 0.85; /* of the peak; such portions share no slice */

/* A portion in the order of placing. */
typedef struct turn {
    const weft_portion *portion;
    const weft_option *option; /* one process if the portion may share its slice */
    double use;                /* part of the slice; 1: it shares none */
    double round_us;           /* WEFT_PORTIONS_BY_ROUND: longest that it allows; else 0 */
    uint32_t rank;
} turn;

typedef struct packing {
    weft_builder *builder;
    weft_fleet_device *rows;
    turn *turns;
    uint32_t n;
    WEFT_VEC(uint32_t) open; /* slices that others may join */
    double *left;            /* by demand: rate without a place */
    bool *placed;            /* by demand */
} packing;

static int compare_turns(const void *a, const void *b)
{
    const turn *p = a, *q = b;
    bool p_full = p->use >= full, q_full = q->use >= full;
    double x = p->option->spec.weight, y = q->option->spec.weight;
    if (p_full != q_full)
        return p_full ? -1 : 1;
    if (p_full && x != y)
        return x > y ? -1 : 1;
    if (!p_full && p->round_us != q->round_us)
        return p->round_us > q->round_us ? -1 : 1;
    if (!p_full && p->use != q->use)
        return p->use > q->use ? -1 : 1;
    return (p->rank > q->rank) - (p->rank < q->rank);
}

/* The option of a portion with one process that carries its rate in the least time. */
static const weft_option *option_in_turn(const weft_builder *builder, const weft_portion *portion)
{
    weft_choice all =
        weft_option_table__choice(&builder->table, portion->demand, portion->option->shape);
    const weft_option *best = NULL;
    for (uint32_t i = 0; i < all.n; i++) {
        const weft_option *o = &builder->option[portion->demand][all.first + i];
        if (o->point->procs == 1 && o->peak_per_s >= portion->rate_per_s &&
            (!best || o->peak_per_s > best->peak_per_s))
            best = o;
    }
    return best;
}

/* The longest round in which a batch of an option serves the rate of a portion within its SLO; 0:
 * none. */
static double round_of(const weft_builder *builder, const weft_portion *portion,
                       const weft_option *o)
{
    const weft_rules *rules = &builder->problem->rules;
    const weft_demand *d = &builder->demands->at[portion->demand];
    double slo_us = d->slo_us > 0 ? weft_rules__slo_us(rules, d) - o->exec_us : HUGE_VAL;
    double fill_us =
        portion->rate_per_s > 0 ? o->point->batch * 1e6 / portion->rate_per_s : HUGE_VAL;
    return fmax(0, fmin(slo_us, fill_us));
}

/* The option on which a portion in turn takes the least of a device by its price. NULL: none. */
static const weft_option *option_by_round(const weft_builder *builder, const weft_portion *portion)
{
    const weft_option *best = NULL;
    double least = HUGE_VAL;
    for (uint32_t i = 0; i < builder->n_option[portion->demand]; i++) {
        const weft_option *o = &builder->option[portion->demand][i];
        double round_us = round_of(builder, portion, o), part = o->cost * o->exec_us / round_us;
        if (o->point->procs != 1 || !(round_us > 2 * o->exec_us) || !(part < least))
            continue;
        least = part;
        best = o;
    }
    return best;
}

static turn make_turn(const weft_builder *builder, const weft_portion *portion, uint32_t rank,
                      weft_portions_order order)
{
    turn t = {.portion = portion, .option = portion->option, .use = 1, .rank = rank};
    const weft_option *one = order == WEFT_PORTIONS_ALONE ? NULL : option_in_turn(builder, portion);
    if (!one || portion->rate_per_s >= full * one->peak_per_s)
        return t;
    t.option = one;
    t.use = portion->rate_per_s / one->peak_per_s;
    one = order == WEFT_PORTIONS_BY_ROUND ? option_by_round(builder, portion) : NULL;
    if (one) {
        t.option = one;
        t.round_us = round_of(builder, portion, one);
    }
    return t;
}

static void order_turns(packing *p, const weft_portions *list, weft_portions_order order)
{
    p->n = list->at.len;
    p->turns = weft_arena_array(p->builder->arena, p->n, sizeof *p->turns);
    for (uint32_t i = 0; i < p->n; i++)
        p->turns[i] = make_turn(p->builder, &list->at.at[i], i, order);
    if (p->n > 0)
        qsort(p->turns, p->n, sizeof *p->turns, compare_turns);
}

/* Joins an open slice, of the portion's own shape if there is one: that which is then fullest. */
static bool join_slice(packing *p, const turn *t)
{
    uint32_t best = NONE, tried = 0;
    double most = 0, occupancy;
    for (uint32_t i = p->open.len; i-- > 0 && tried < JOINS_MAX;) {
        uint32_t slice = p->open.at[i];
        if (p->builder->slices.at[slice].shape != t->option->shape)
            continue;
        tried++;
        if (weft_builder__share(p->builder, slice, t->portion->demand, t->portion->rate_per_s,
                                false, &occupancy) &&
            occupancy > most) {
            best = slice;
            most = occupancy;
        }
    }
    return best != NONE && weft_builder__share(p->builder, best, t->portion->demand,
                                               t->portion->rate_per_s, true, &occupancy);
}

static void put_turns(packing *p)
{
    weft_builder__undo(p->builder, 0);
    p->open.len = 0;
    for (uint32_t d = 0; d < p->builder->demands->n; d++) {
        p->left[d] = p->builder->demands->at[d].rate_per_s;
        p->placed[d] = false;
    }
    for (uint32_t i = 0; i < p->n; i++) {
        const turn *t = &p->turns[i];
        uint32_t d = t->portion->demand;
        bool joined = t->use < full && join_slice(p, t);
        if (!joined && !weft_builder__add(p->builder, d, t->option, t->portion->rate_per_s, true))
            continue;
        uint32_t slice = p->builder->slices.len - 1;
        if (!joined && t->use < full)
            WEFT_VEC_PUSH(p->builder->arena, &p->open, slice);
        p->left[d] -= t->portion->rate_per_s;
        p->placed[d] = true;
    }
}

/* Whether a row has MIG instances only, none of them split. */
static bool can_repack(const weft_builder *builder, const weft_fleet_device *row)
{
    for (uint32_t i = 0; i < builder->slices.len; i++) {
        const weft_builder_slice *s = &builder->slices.at[i];
        if (builder->devices.at[s->device].row == row &&
            (s->spec.kind != WEFT_SLICE_MIG || weft_fleet_slice__is_nested(&s->spec)))
            return false;
    }
    return row->mig && weft_mig__shape(weft_device_type_find(row->type)).n > 0;
}

/* Gives the instances of a row new places. Devices are numbered from *devices on. */
static void repack_row(const weft_builder *builder, const weft_fleet_device *row,
                       uint32_t *new_device, int32_t *new_start, uint32_t *devices)
{
    weft_mig_shape shape = weft_mig__shape(weft_device_type_find(row->type));
    uint64_t count[WEFT_MIG_PROFILES_MAX] = {0}, next[WEFT_MIG_PROFILES_MAX] = {0};
    weft_mig_place *place[WEFT_MIG_PROFILES_MAX];
    uint32_t *taken = NULL;
    for (uint32_t i = 0; i < builder->slices.len; i++) {
        const weft_builder_slice *s = &builder->slices.at[i];
        if (builder->devices.at[s->device].row == row)
            count[s->spec.mig - shape.type->mig]++;
    }
    uint32_t used = weft_mig__place(&shape, count, 0, &taken, builder->arena, place);
    for (uint32_t i = 0; i < builder->slices.len; i++) {
        const weft_builder_slice *s = &builder->slices.at[i];
        if (builder->devices.at[s->device].row != row)
            continue;
        size_t p = (size_t)(s->spec.mig - shape.type->mig);
        const weft_mig_place *at = &place[p][next[p]++];
        new_device[i] = *devices + at->device;
        new_start[i] = at->start;
    }
    *devices += used;
}

/* Puts everything on the builder again, MIG instances packed anew; false: the fleet is too small.
 */
static bool repack(packing *p)
{
    weft_builder *builder = p->builder;
    uint32_t n = builder->slices.len, devices = builder->devices.len, members = 0, len = 0;
    uint32_t *device = weft_arena_array(builder->arena, n + 1u, sizeof *device);
    int32_t *start = weft_arena_array(builder->arena, n + 1u, sizeof *start);
    for (uint32_t i = 0; i < n; i++) {
        const weft_builder_slice *s = &builder->slices.at[i];
        device[i] = s->device;
        start[i] = s->spec.kind == WEFT_SLICE_CORES ? (int32_t)s->id : s->mig_start;
        members += s->members.len;
    }
    for (size_t r = 0; r < builder->fleet->n_device; r++)
        if (can_repack(builder, &builder->fleet->device[r]))
            repack_row(builder, &builder->fleet->device[r], device, start, &devices);
    weft_solution list = {.at = weft_arena_array(builder->arena, members, sizeof *list.at)};
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < builder->slices.at[i].members.len; k++, len++) {
            const weft_member *one = &builder->slices.at[i].members.at[k];
            list.at[len] = (weft_segment){.device = device[i],
                                          .slice_id = i,
                                          .demand = one->demand,
                                          .start = start[i],
                                          .option = one->option,
                                          .rate_per_s = one->rate_per_s};
        }
    list.n = len;
    weft_solution__sort(&list);
    return weft_solution__put(builder, &list);
}

static bool place_rest(packing *p)
{
    weft_builder *builder = p->builder;
    for (uint32_t s = 0; s < builder->demands->n; s++) {
        uint32_t d = builder->order[s];
        bool done = p->placed[d] && !(p->left[d] > builder->demands->at[d].rate_per_s * 1e-9);
        if (!done && !weft_ruin_recreate__add(builder, d, fmax(0, p->left[d]), true))
            return false;
    }
    return true;
}

bool weft_portions__place(weft_builder *builder, weft_fleet_device *rows, const weft_portions *list,
                          weft_portions_order order)
{
    packing p = {.builder = builder, .rows = rows};
    size_t n_row = builder->fleet->n_device;
    uint32_t *count = weft_arena_array(builder->arena, n_row, sizeof *count);
    p.left = weft_arena_array(builder->arena, builder->demands->n, sizeof *p.left);
    p.placed = weft_arena_array(builder->arena, builder->demands->n, sizeof *p.placed);
    order_turns(&p, list, builder->problem->rules.isolated ? WEFT_PORTIONS_ALONE : order);
    for (size_t i = 0; i < n_row; i++) {
        count[i] = rows[i].count;
        rows[i].count = count[i] < UINT32_MAX / 2 ? 2 * count[i] : count[i];
    }
    put_turns(&p);
    for (size_t i = 0; i < n_row; i++)
        rows[i].count = count[i];
    if (!repack(&p))
        put_turns(&p);
    return place_rest(&p);
}
