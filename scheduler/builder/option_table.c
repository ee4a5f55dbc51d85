/* The option table: what each demand can run on, with look-ups in constant or logarithmic time.
 *
 * Profiles are lists in any order. Each (device, slice) that some profile names becomes a shape,
 * which is resolved against the fleet once. The points of a demand are sorted by shape, processes
 * and batch; one sweep over them then finds the execution time that the rule `exact` prescribes
 * (slo.c): the longest time of this batch or a smaller one. The points that the fleet, the rules,
 * the memory and the SLO allow become options, grouped by shape.
 *
 * The result does not depend on the order of demands and profile rows. O(p log p) for p points of
 * all demands. */
#include "scheduler/builder/builder.h"

#include "base/hash.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

/* -- Shapes ----------------------------------------------------------------------------------- */

typedef struct shape_table {
    WEFT_VEC(weft_shape) shapes;
    uint32_t *slot; /* index of a shape + 1, 0: free */
    uint32_t n_slot;
    weft_arena *arena;
} shape_table;

static uint64_t hash_shape(const char *device, const char *slice)
{
    return weft_hash64(slice, strlen(slice), weft_hash64(device, strlen(device), 0));
}

/* The slot of a shape, or the free slot at which it has to be inserted (linear probing). */
static uint32_t find_slot(const weft_shape *shape, const uint32_t *slot, uint32_t n_slot,
                          const char *device, const char *slice)
{
    uint32_t i = (uint32_t)hash_shape(device, slice) & (n_slot - 1);
    while (slot[i] && (strcmp(shape[slot[i] - 1].slice, slice) != 0 ||
                       strcmp(shape[slot[i] - 1].device, device) != 0))
        i = (i + 1) & (n_slot - 1);
    return i;
}

static void rebuild_slots(shape_table *t, uint32_t n_slot)
{
    t->slot = weft_arena_array(t->arena, n_slot, sizeof *t->slot);
    t->n_slot = n_slot;
    for (uint32_t i = 0; i < t->shapes.len; i++) {
        const weft_shape *s = &t->shapes.at[i];
        t->slot[find_slot(t->shapes.at, t->slot, n_slot, s->device, s->slice)] = i + 1;
    }
}

/* Fills in row, spec and reason of a shape from its device and slice. */
static void resolve_shape(const weft_problem *problem, weft_shape *shape)
{
    shape->row = weft_fleet__row(problem->fleet, shape->device);
    shape->why = "the fleet has no such device";
    if (shape->row)
        shape->allowed =
            weft_fleet_slice__resolve(shape->row, shape->slice, &shape->spec, &shape->why);
    if (problem->rules.mem_reserve > 0)
        shape->spec.mem_bytes =
            (uint64_t)((double)shape->spec.mem_bytes * (1 - problem->rules.mem_reserve));
}

static uint32_t intern_shape(shape_table *t, const weft_problem *problem, const char *device,
                             const char *slice)
{
    uint32_t i = find_slot(t->shapes.at, t->slot, t->n_slot, device, slice);
    if (t->slot[i])
        return t->slot[i] - 1;
    weft_shape shape = {.device = device, .slice = slice};
    resolve_shape(problem, &shape);
    WEFT_VEC_PUSH(t->arena, &t->shapes, shape);
    t->slot[i] = t->shapes.len;
    if (t->shapes.len * 2 > t->n_slot)
        rebuild_slots(t, t->n_slot * 2);
    return t->shapes.len - 1;
}

/* Shapes of the fleet come first, by row, then by slice name; the others follow. */
static int compare_shapes(const void *a, const void *b)
{
    const weft_shape *p = a, *q = b;
    if (!p->row != !q->row)
        return p->row ? -1 : 1;
    if (p->row != q->row)
        return p->row < q->row ? -1 : 1;
    int order = strcmp(p->slice, q->slice);
    return order ? order : strcmp(p->device, q->device);
}

const weft_shape *weft_option_table__shape(const weft_option_table *table, const char *device,
                                           const char *slice)
{
    uint32_t i = find_slot(table->shape, table->slot, table->n_slot, device, slice);
    return table->slot[i] ? &table->shape[table->slot[i] - 1] : NULL;
}

bool weft_option_table__spec(const weft_option_table *table, const char *device, const char *slice,
                             weft_fleet_slice *out, const char **why)
{
    const weft_shape *shape = weft_option_table__shape(table, device, slice);
    weft_shape own = {.device = device, .slice = slice};
    if (!shape) {
        resolve_shape(table->problem, &own);
        shape = &own;
    }
    *why = shape->why;
    if (shape->allowed)
        *out = shape->spec;
    return shape->allowed;
}

/* -- Points ----------------------------------------------------------------------------------- */

/* Profiles from files have no two points of one shape, processes and batch; for others the longer
 * time comes first, so that the order is defined. */
static int compare_timed(const void *a, const void *b)
{
    const weft_timed_point *p = a, *q = b;
    if (p->shape != q->shape)
        return p->shape < q->shape ? -1 : 1;
    if (p->point->procs != q->point->procs)
        return p->point->procs < q->point->procs ? -1 : 1;
    if (p->point->batch != q->point->batch)
        return p->point->batch < q->point->batch ? -1 : 1;
    return (p->point->cost.time_us < q->point->cost.time_us) -
           (p->point->cost.time_us > q->point->cost.time_us);
}

/* With the margin that the confidence asks for. */
static double time_of(const weft_rules *rules, const weft_profile_point *point)
{
    return point->cost.time_us * weft_rules__margin(rules, point);
}

/* Sets the execution time of each point: under `exact` and `queue` the longest time of this batch
 * and all smaller ones, else the time of the point. */
static void sweep_times(const weft_rules *rules, weft_timed_point *timed, uint32_t n)
{
    double longest = 0; /* over the batches smaller than that of point i */
    for (uint32_t i = 0, first = 0; i < n; i++) {
        const weft_profile_point *p = timed[i].point, *q = timed[first].point;
        if (timed[first].shape != timed[i].shape || q->procs != p->procs) {
            longest = 0;
            first = i;
        } else if (q->batch != p->batch) {
            for (; first < i; first++)
                longest = fmax(longest, time_of(rules, timed[first].point));
        }
        bool early = rules->latency == WEFT_RULE_EXACT || rules->latency == WEFT_RULE_QUEUE;
        timed[i].exec_us = early ? fmax(longest, time_of(rules, p)) : time_of(rules, p);
    }
}

/* The order of options: shape, batch, processes. */
static int compare_options(const weft_timed_point *p, const weft_timed_point *q)
{
    if (p->shape != q->shape)
        return p->shape < q->shape ? -1 : 1;
    if (p->point->batch != q->point->batch)
        return p->point->batch < q->point->batch ? -1 : 1;
    return (p->point->procs > q->point->procs) - (p->point->procs < q->point->procs);
}

static int compare_option_pointers(const void *a, const void *b)
{
    return compare_options(*(const weft_timed_point *const *)a,
                           *(const weft_timed_point *const *)b);
}

enum { PROCS_COUNTED = 64 };

/* Sorts points that are in the order of shape, batch, processes, as most profiles are, into the
 * order of shape, processes, batch by a counting sort over the processes. false, and nothing
 * changed: the points are in another order. */
static bool sort_by_counting(weft_timed_point *timed, uint32_t n, weft_arena *arena)
{
    for (uint32_t i = 0; i < n; i++)
        if (timed[i].point->procs >= PROCS_COUNTED ||
            (i > 0 && compare_options(&timed[i - 1], &timed[i]) >= 0))
            return false;
    weft_arena_mark mark = weft_arena_get_mark(arena);
    weft_timed_point *copy = weft_arena_array(arena, n, sizeof *copy);
    memcpy(copy, timed, n * sizeof *copy);
    for (uint32_t from = 0, to; from < n; from = to) {
        uint32_t at[PROCS_COUNTED + 1] = {0};
        for (to = from; to < n && copy[to].shape == copy[from].shape; to++)
            at[copy[to].point->procs + 1]++;
        for (uint32_t p = 0; p < PROCS_COUNTED; p++)
            at[p + 1] += at[p];
        for (uint32_t i = from; i < to; i++)
            timed[from + at[copy[i].point->procs]++] = copy[i];
    }
    weft_arena_reset(arena, mark);
    return true;
}

static void list_timed(weft_option_table *table, uint32_t demand, const uint32_t *id,
                       const uint32_t *rank, weft_arena *arena)
{
    const weft_profile *profile = &table->problem->demands->at[demand].profile;
    weft_timed_point *timed = weft_arena_array(arena, profile->n, sizeof *timed);
    for (size_t i = 0; i < profile->n; i++)
        timed[i] = (weft_timed_point){.point = &profile->point[i], .shape = rank[id[i]]};
    if (profile->n > 0 && !sort_by_counting(timed, (uint32_t)profile->n, arena))
        qsort(timed, profile->n, sizeof *timed, compare_timed);
    sweep_times(&table->problem->rules, timed, (uint32_t)profile->n);
    table->timed[demand] = timed;
    table->n_timed[demand] = (uint32_t)profile->n;
}

const weft_timed_point *weft_option_table__find(const weft_option_table *table, uint32_t demand,
                                                const weft_shape *shape, uint32_t batch,
                                                uint32_t procs)
{
    const weft_timed_point *timed = table->timed[demand];
    uint32_t lo = 0, hi = table->n_timed[demand],
             want = shape ? (uint32_t)(shape - table->shape) : 0;
    if (!shape)
        return NULL;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        const weft_profile_point *p = timed[mid].point;
        bool less = timed[mid].shape != want ? timed[mid].shape < want
                    : p->procs != procs      ? p->procs < procs
                                             : p->batch < batch;
        if (less)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == table->n_timed[demand] || timed[lo].shape != want ||
        timed[lo].point->procs != procs || timed[lo].point->batch != batch ||
        !weft_point__usable(timed[lo].point))
        return NULL;
    return &timed[lo];
}

/* -- Options ---------------------------------------------------------------------------------- */

weft_verdict weft_option_table__judge(const weft_option_table *table, uint32_t demand,
                                      const weft_timed_point *k)
{
    const weft_demand *d = &table->problem->demands->at[demand];
    const weft_shape *shape = &table->shape[k->shape];
    const weft_profile_point *p = k->point;
    if (!shape->row || !weft_point__usable(p))
        return WEFT_VERDICT_NO_DEVICE;
    if (!shape->allowed)
        return WEFT_VERDICT_NO_SLICE;
    if (!weft_rules__allow_procs(&table->problem->rules, p->procs) ||
        (shape->spec.kind != WEFT_SLICE_CORES && p->procs > WEFT_MPS_CLIENTS_MAX) ||
        (shape->spec.mig && p->procs > weft_fleet__mig_clients_max(shape->spec.mig)))
        return WEFT_VERDICT_RULES;
    if (shape->spec.mem_bytes && weft_point__mem_bytes(p) > shape->spec.mem_bytes)
        return WEFT_VERDICT_MEMORY;
    return weft_rules__allow(&table->problem->rules, d, k->exec_us) ? WEFT_VERDICT_POSSIBLE
                                                                    : WEFT_VERDICT_SLO;
}

static void list_choices(weft_option_table *table, uint32_t demand, weft_arena *arena)
{
    const weft_option *option = table->option[demand];
    uint32_t n = table->n_option[demand], n_choice = 0;
    for (uint32_t i = 0; i < n; i++)
        n_choice += i == 0 || option[i - 1].shape != option[i].shape;
    weft_choice *choice = weft_arena_array(arena, n_choice, sizeof *choice);
    n_choice = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (i == 0 || option[i - 1].shape != option[i].shape)
            choice[n_choice++] = (weft_choice){.shape = option[i].shape, .first = i};
        choice[n_choice - 1].n++;
    }
    table->choice[demand] = choice;
    table->n_choice[demand] = n_choice;
}

static void list_options(weft_option_table *table, uint32_t demand, weft_arena *arena)
{
    uint32_t n = 0;
    /* Pointers are sorted instead of options, which are large. */
    uint32_t n_timed = table->n_timed[demand];
    const weft_demand *d = &table->problem->demands->at[demand];
    const weft_profile_point *rows = table->problem->demands->at[demand].profile.point;
    const weft_timed_point **by_row = weft_arena_array(arena, n_timed, sizeof *by_row);
    const weft_timed_point **list = weft_arena_array(arena, n_timed, sizeof *list);
    for (uint32_t i = 0; i < n_timed; i++)
        by_row[table->timed[demand][i].point - rows] = &table->timed[demand][i];
    bool sorted = true;
    for (uint32_t i = 0; i < n_timed; i++)
        if (weft_option_table__judge(table, demand, by_row[i]) == WEFT_VERDICT_POSSIBLE) {
            sorted = sorted && (n == 0 || compare_options(list[n - 1], by_row[i]) < 0);
            list[n++] = by_row[i];
        }
    if (!sorted)
        qsort(list, n, sizeof *list, compare_option_pointers);
    weft_option *option = weft_arena_array(arena, n, sizeof *option);
    for (uint32_t i = 0; i < n; i++) {
        const weft_timed_point *k = list[i];
        const weft_shape *shape = &table->shape[k->shape];
        double price = weft_fleet__price(shape->row);
        option[i] = (weft_option){
            .row = shape->row,
            .spec = shape->spec,
            .point = k->point,
            .shape = k->shape,
            .demand = demand,
            .exec_us = k->exec_us,
            .peak_per_s = weft_slo__capacity_per_s(&table->problem->rules, d, k->point, k->exec_us),
            .price_per_hour = price,
            .cost = shape->spec.weight * (price > 0 ? price : 1),
            .mem_bytes = weft_point__mem_bytes(k->point),
            .use = weft_point__pressure(shape->row, k->point)};
    }
    table->option[demand] = option;
    table->n_option[demand] = n;
    list_choices(table, demand, arena);
}

weft_choice weft_option_table__choice(const weft_option_table *table, uint32_t demand,
                                      uint32_t shape)
{
    const weft_choice *choice = table->choice[demand];
    uint32_t lo = 0, hi = table->n_choice[demand];
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (choice[mid].shape < shape)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo < table->n_choice[demand] && choice[lo].shape == shape)
        return choice[lo];
    return (weft_choice){.shape = shape};
}

const weft_option *weft_option_table__option(const weft_option_table *table, uint32_t demand,
                                             uint32_t shape, uint32_t batch, uint32_t procs)
{
    weft_choice choice = weft_option_table__choice(table, demand, shape);
    const weft_option *option = table->option[demand] + choice.first;
    uint32_t lo = 0, hi = choice.n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        const weft_profile_point *p = option[mid].point;
        if (p->batch < batch || (p->batch == batch && p->procs < procs))
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo < choice.n && option[lo].point->batch == batch && option[lo].point->procs == procs)
        return &option[lo];
    return NULL;
}

const weft_option *weft_option_table__placed(const weft_option_table *table, uint32_t demand,
                                             const weft_placement *p)
{
    const weft_shape *shape = weft_option_table__shape(table, p->type, p->slice);
    return shape ? weft_option_table__option(table, demand, (uint32_t)(shape - table->shape),
                                             p->batch, p->procs)
                 : NULL;
}

/* -- Building --------------------------------------------------------------------------------- */

void weft_option_table__build(const weft_problem *problem, weft_arena *arena,
                              weft_option_table *out)
{
    const weft_demands *demands = problem->demands;
    weft_option_table table = {.problem = problem};
    shape_table t = {.arena = arena};
    rebuild_slots(&t, 64);
    table.timed = weft_arena_array(arena, demands->n, sizeof *table.timed);
    table.n_timed = weft_arena_array(arena, demands->n, sizeof *table.n_timed);
    table.option = weft_arena_array(arena, demands->n, sizeof *table.option);
    table.n_option = weft_arena_array(arena, demands->n, sizeof *table.n_option);
    table.choice = weft_arena_array(arena, demands->n, sizeof *table.choice);
    table.n_choice = weft_arena_array(arena, demands->n, sizeof *table.n_choice);
    uint32_t **id = weft_arena_array(arena, demands->n, sizeof *id);
    for (size_t d = 0; d < demands->n; d++) {
        const weft_profile *profile = &demands->at[d].profile;
        id[d] = weft_arena_array(arena, profile->n, sizeof **id);
        for (size_t i = 0; i < profile->n; i++) {
            const weft_profile_point *p = &profile->point[i];
            /* Most rows name the same slice as the row before. */
            bool again =
                i > 0 && strcmp(p->slice, p[-1].slice) == 0 && strcmp(p->device, p[-1].device) == 0;
            id[d][i] = again ? id[d][i - 1] : intern_shape(&t, problem, p->device, p->slice);
        }
    }
    /* rank[i]: position in sorted order of the shape that was interned as the i-th. */
    weft_shape *shape = weft_arena_array(arena, t.shapes.len, sizeof *shape);
    uint32_t *rank = weft_arena_array(arena, t.shapes.len, sizeof *rank);
    if (t.shapes.len > 0) {
        memcpy(shape, t.shapes.at, t.shapes.len * sizeof *shape);
        qsort(shape, t.shapes.len, sizeof *shape, compare_shapes);
    }
    shape_table sorted = {.shapes = {.at = shape, .len = t.shapes.len, .cap = t.shapes.len},
                          .arena = arena};
    rebuild_slots(&sorted, t.n_slot);
    for (uint32_t i = 0; i < t.shapes.len; i++)
        rank[i] = sorted.slot[find_slot(shape, sorted.slot, sorted.n_slot, t.shapes.at[i].device,
                                        t.shapes.at[i].slice)] -
                  1;
    table.shape = shape;
    table.n_shape = t.shapes.len;
    table.slot = sorted.slot;
    table.n_slot = sorted.n_slot;
    for (uint32_t d = 0; d < demands->n; d++) {
        list_timed(&table, d, id[d], rank, arena);
        list_options(&table, d, arena);
    }
    *out = table;
}

/* -- Refusals --------------------------------------------------------------------------------- */

weft_err weft_option_table__refuse(const weft_option_table *table, uint32_t demand, weft_diag *diag)
{
    const weft_demand *d = &table->problem->demands->at[demand];
    const weft_timed_point *fastest = NULL, *least = NULL;
    const weft_profile_point *first = d->profile.n ? table->timed[demand][0].point : NULL;
    weft_where where = {.item = d->model};
    weft_verdict best = WEFT_VERDICT_NO_DEVICE; /* a lower verdict is closer to being possible */
    uint64_t mem_has = 0;
    for (uint32_t i = 0; i < table->n_timed[demand]; i++) {
        const weft_timed_point *k = &table->timed[demand][i];
        weft_verdict v = weft_option_table__judge(table, demand, k);
        best = v < best ? v : best;
        if (v == WEFT_VERDICT_MEMORY &&
            (!least || weft_point__mem_bytes(k->point) < weft_point__mem_bytes(least->point)))
            least = k;
        if (v == WEFT_VERDICT_MEMORY && table->shape[k->shape].spec.mem_bytes > mem_has)
            mem_has = table->shape[k->shape].spec.mem_bytes;
        if (v == WEFT_VERDICT_SLO && (!fastest || k->exec_us < fastest->exec_us))
            fastest = k;
    }
    if (best == WEFT_VERDICT_SLO) {
        const weft_profile_point *p = fastest->point;
        return weft_diag_error(
            diag, WEFT_ERR_INFEASIBLE, where,
            "slo: %.6g ms, but the lowest latency on any slice is %.6g ms "
            "(%s%s%s, batch %u); an SLO of %.6g ms would be feasible",
            d->slo_us / 1e3, 2 * fastest->exec_us / 1e3, p->device, p->slice[0] ? " " : "",
            p->slice, p->batch,
            ceil(weft_rules__least_slo_us(&table->problem->rules, d, fastest->exec_us)) / 1e3);
    }
    if (best == WEFT_VERDICT_MEMORY)
        return weft_diag_error(diag, WEFT_ERR_INFEASIBLE, where,
                               "model needs %llu bytes of memory, the largest slice has %llu",
                               (unsigned long long)weft_point__mem_bytes(least->point),
                               (unsigned long long)mem_has);
    if (best == WEFT_VERDICT_RULES)
        return weft_diag_error(diag, WEFT_ERR_INFEASIBLE, where,
                               "every profile point has more processes than the rules and the "
                               "device allow; profile the model with one process");
    if (best == WEFT_VERDICT_NO_SLICE)
        return weft_diag_error(
            diag, WEFT_ERR_INFEASIBLE, where,
            "no profile point is on a slice that the fleet allows; allow MIG, MPS or the "
            "slices that were profiled, such as '%s' of %s",
            first->slice, first->device);
    return weft_diag_error(diag, WEFT_ERR_INFEASIBLE, where,
                           "no profile for any device of the fleet; profile the model there, or "
                           "add a device that it was profiled on%s%s",
                           first ? ": " : "", first ? first->device : "");
}
