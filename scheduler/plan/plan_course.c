/* The course from one plan to the next one on the same devices: steps, in each of which slices
 * start, become ready and take their part of the load before others end.
 *
 *   1. every slice that has room starts
 *   2. slices in the way of others end, as far as no model falls below what it needs
 *   3. where neither gives room, copies of slices in the way are planned for the next step, on a
 *      device that has room; a copy ends when the course has no further use for it
 *   4. without room for copies the slices in the way end all the same: a dip
 *   5. in the last step all slices end that the new plan does not have
 *
 * In the way are only MIG instances on the same memory slots, other ways to split the device (MIG
 * or not), and memory: shares of a GPU are caps, so that old and new ones run side by side for the
 * time of the change. What a model needs is the least of: the rates of the new plan, what runs, and
 * what the new plan gives it.
 *
 * Each round starts or ends a slice, and a copy leads to the end of its original: O(n) rounds of
 * O(n) at most, and few in practice. Which slices end first is greedy. */
#include "scheduler/plan/plan.h"

#include "base/slice_name.h"
#include "scheduler/input/input.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

enum { COPY_DEVICES_MAX = 64 }; /* with more devices there are no copies */

typedef enum unit_state { UNIT_WAITS, UNIT_RUNS, UNIT_ENDED } unit_state;

/* What a slice carries of a model, and is planned to. */
typedef struct load {
    uint32_t model; /* index in course.model */
    double capacity_per_s, rate_per_s;
} load;

/* A slice with its models. */
typedef struct unit {
    const weft_placement **at, **now; /* by model; now: of the new plan, if it stays */
    uint32_t n, device;               /* device: index in course.device */
    const load *load;
    uint32_t n_load;
    const weft_device_type *type;      /* NULL: the device table does not have it */
    char profile[WEFT_SLICE_NAME_MAX]; /* of MIG; "": none */
    const weft_mig_profile *mig;       /* the profile; NULL: none, or not in the device table */
    uint32_t mig_mask;                 /* memory slots; 0: no MIG instance */
    int32_t mig_start;
    uint64_t mem_bytes;
    uint32_t copy_of; /* NONE: it is no copy */
    uint32_t begins, ends;
    bool stays;  /* it is in the new plan */
    bool copied; /* there is a copy of it */
    unit_state state;
} unit;

typedef struct device {
    uint32_t number; /* in the plans */
    const char *type;
    bool mig;                /* it is spare, and split by MIG */
    WEFT_VEC(uint32_t) unit; /* that are or were there */
} device;

typedef struct course {
    const weft_plan *before, *after;
    weft_arena *arena;
    WEFT_VEC(unit) unit;
    WEFT_VEC(device) device;
    uint32_t n_old;     /* devices of the old plan */
    const char **model; /* sorted */
    double *capacity, *needed;
    uint32_t n_model;
    WEFT_VEC(weft_plan_step) step;
    WEFT_VEC(weft_plan_dip) dip;
    uint32_t n_copy;
} course;

void weft_placement_own(weft_placement *p, weft_arena *arena)
{
    p->model = weft_arena_strdup(arena, p->model);
    p->type = weft_arena_strdup(arena, p->type);
    p->slice = weft_arena_strdup(arena, p->slice);
    p->source = weft_arena_strdup(arena, p->source ? p->source : "");
}

/* -- Models ----------------------------------------------------------------------------------- */

static void list_models(course *c)
{
    WEFT_VEC(const char *) all = {0};
    const weft_plan *plan[] = {c->before, c->after};
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < plan[k]->n; i++) {
            const char *const *model;
            size_t n = weft_family_models(plan[k]->at[i].model, c->arena, &model);
            for (size_t m = 0; m < n; m++)
                WEFT_VEC_PUSH(c->arena, &all, model[m]);
        }
    if (all.len > 0)
        qsort(all.at, all.len, sizeof *all.at, weft_str_order);
    for (uint32_t i = 0; i < all.len; i++)
        if (i == 0 || strcmp(all.at[i], all.at[c->n_model - 1]) != 0)
            all.at[c->n_model++] = all.at[i];
    c->model = all.at;
    c->capacity = weft_arena_array(c->arena, c->n_model + 1, sizeof *c->capacity);
    c->needed = weft_arena_array(c->arena, c->n_model + 1, sizeof *c->needed);
}

/* Sets the loads of a unit. A family carries as much of each of its models. */
static void list_loads(const course *c, unit *u)
{
    WEFT_VEC(load) all = {0};
    for (uint32_t i = 0; i < u->n; i++) {
        const weft_placement *p = u->at[i];
        const char *const *model;
        size_t n = weft_family_models(p->model, c->arena, &model);
        for (size_t m = 0; m < n; m++) {
            const char **at =
                bsearch(&model[m], c->model, c->n_model, sizeof *c->model, weft_str_order);
            const load one = {.model = (uint32_t)(at - c->model),
                              .capacity_per_s = p->capacity_per_s / (double)n,
                              .rate_per_s = p->rate_per_s / (double)n};
            WEFT_VEC_PUSH(c->arena, &all, one);
        }
    }
    u->load = all.at;
    u->n_load = all.len;
}

/* Adds `sign` times what the unit carries of each model. */
static void count(const unit *u, double sign, double *capacity)
{
    for (uint32_t i = 0; i < u->n_load; i++)
        capacity[u->load[i].model] += sign * u->load[i].capacity_per_s;
}

static void find_needs(course *c)
{
    double *later = weft_arena_array(c->arena, c->n_model + 1, sizeof *later);
    double *rate = weft_arena_array(c->arena, c->n_model + 1, sizeof *rate);
    for (uint32_t i = 0; i < c->unit.len; i++) {
        const unit *u = &c->unit.at[i];
        if (u->state == UNIT_RUNS)
            count(u, 1, c->capacity);
        if (!u->stays)
            continue;
        count(u, 1, later);
        for (uint32_t k = 0; k < u->n_load; k++)
            rate[u->load[k].model] += u->load[k].rate_per_s;
    }
    /* A model without a rate keeps some slice. */
    for (uint32_t m = 0; m < c->n_model; m++)
        c->needed[m] = fmin(rate[m] > 0 ? rate[m] : HUGE_VAL, fmin(later[m], c->capacity[m])) *
                       (rate[m] > 0 ? 1 : 1e-6);
}

static bool is_short(const course *c, uint32_t m)
{
    return c->capacity[m] < c->needed[m] * (1 - 1e-9);
}

/* Whether enough is left without a unit. */
static bool can_end(const course *c, const unit *u)
{
    bool enough = true;
    count(u, -1, c->capacity);
    for (uint32_t i = 0; i < u->n_load && enough; i++)
        enough = !is_short(c, u->load[i].model);
    count(u, 1, c->capacity);
    return enough;
}

/* -- Units ------------------------------------------------------------------------------------ */

/* Of a profile that the device table does not have only the first slot is known. */
static uint32_t mask_at(const weft_mig_profile *mig, int32_t start)
{
    static const weft_mig_profile unknown = {.slots = 1};
    return weft_device_type_mig_slots(mig ? mig : &unknown, start);
}

/* Placements come in the order of devices: it is the last one, one of the old plan, which come
 * first and in order, or a new one. */
static uint32_t find_device(course *c, const weft_placement *p)
{
    uint32_t lo = 0, hi = c->n_old;
    if (c->device.len > 0 && c->device.at[c->device.len - 1].number == p->device)
        return c->device.len - 1;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (c->device.at[mid].number < p->device)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo < c->n_old && c->device.at[lo].number == p->device)
        return lo;
    const device new = {.number = p->device, .type = p->type};
    WEFT_VEC_PUSH(c->arena, &c->device, new);
    return c->device.len - 1;
}

static unit *add_unit(course *c, const unit *like)
{
    device *d = &c->device.at[like->device];
    WEFT_VEC_PUSH(c->arena, &d->unit, c->unit.len);
    WEFT_VEC_PUSH(c->arena, &c->unit, *like);
    return &c->unit.at[c->unit.len - 1];
}

static bool same_work(const unit *a, const unit *b)
{
    if (a->n != b->n || a->mig_start != b->mig_start ||
        strcmp(a->at[0]->slice, b->at[0]->slice) != 0)
        return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (strcmp(a->at[i]->model, b->at[i]->model) != 0 || a->at[i]->batch != b->at[i]->batch ||
            a->at[i]->procs != b->at[i]->procs)
            return false;
    return true;
}

/* A unit of the old plan that does the same, and that no other one is; NULL: none. */
static unit *find_same(const course *c, const unit *u)
{
    const device *d = &c->device.at[u->device];
    for (uint32_t i = 0; i < d->unit.len; i++) {
        unit *old = &c->unit.at[d->unit.at[i]];
        if (!old->stays && old->state == UNIT_RUNS && same_work(old, u))
            return old;
    }
    return NULL;
}

static void add_plan(course *c, const weft_plan *plan, bool is_new)
{
    const uint32_t *order = weft_plan__order(plan, c->arena);
    const weft_placement **at = weft_arena_array(c->arena, plan->n + 1, sizeof *at);
    for (size_t i = 0; i < plan->n; i++)
        at[i] = &plan->at[order[i]];
    for (size_t i = 0, end; i < plan->n; i = end) {
        const weft_placement *p = at[i];
        unit u = {.at = &at[i],
                  .device = find_device(c, p),
                  .type = weft_device_type_find(p->type),
                  .mig_start = p->mig_start,
                  .copy_of = NONE,
                  .begins = NONE,
                  .ends = NONE,
                  .stays = is_new,
                  .state = is_new ? UNIT_WAITS : UNIT_RUNS};
        for (end = i;
             end < plan->n && at[end]->device == p->device && at[end]->slice_id == p->slice_id;
             end++) {
            u.mem_bytes += at[end]->mem_bytes;
            u.n++;
        }
        weft_slice_name name;
        if (p->mig_start >= 0 && weft_slicename_parse(p->slice, &name))
            memcpy(u.profile, name.profile, sizeof u.profile);
        u.mig = weft_device_type_mig(u.type, u.profile);
        u.mig_mask = mask_at(u.mig, p->mig_start);
        list_loads(c, &u);
        unit *old = is_new ? find_same(c, &u) : NULL;
        if (old) {
            old->stays = true;
            old->now = u.at;
        } else {
            add_unit(c, &u);
        }
    }
}

/* -- Room ------------------------------------------------------------------------------------- */

static uint64_t memory_of(const unit *u)
{
    return u->mig ? u->mig->mem_bytes : u->type ? u->type->mem_bytes : 0;
}

static bool on_cpu(const unit *u)
{
    return u->type && u->type->sms == 0;
}

/* Whether two units of a device share an instance, or the device without MIG. */
static bool share_memory(const unit *a, const unit *b)
{
    return a->mig_start == b->mig_start && strcmp(a->profile, b->profile) == 0;
}

/* Whether a unit cannot be on a device while another one is there. */
static bool excludes(const unit *a, const unit *b)
{
    if (on_cpu(a) || share_memory(a, b))
        return false;
    return !a->mig_mask || !b->mig_mask || (a->mig_mask & b->mig_mask) != 0;
}

/* Memory that is taken where a unit is to be; `staying`: by units that stay there. */
static uint64_t taken_memory(const course *c, const unit *u, bool staying)
{
    uint64_t sum = 0;
    const device *d = &c->device.at[u->device];
    for (uint32_t i = 0; i < d->unit.len; i++) {
        const unit *v = &c->unit.at[d->unit.at[i]];
        if (v != u && v->state == UNIT_RUNS && share_memory(u, v) && (!staying || v->stays))
            sum += v->mem_bytes;
    }
    return sum;
}

/* Whether the memory is there, or will not be: plans may count on less than their profiles say. */
static bool has_memory(const course *c, const unit *u)
{
    uint64_t all = memory_of(u), taken = taken_memory(c, u, false);
    return on_cpu(u) || all == 0 || u->mem_bytes + taken <= all ||
           taken == taken_memory(c, u, true);
}

/* Whether a unit has room on its device beside what runs there. What stays is no obstacle: then the
 * plan itself would be wrong. */
static bool fits(const course *c, const unit *u)
{
    const device *d = &c->device.at[u->device];
    for (uint32_t i = 0; i < d->unit.len; i++) {
        const unit *v = &c->unit.at[d->unit.at[i]];
        if (v != u && v->state == UNIT_RUNS && !v->stays && excludes(u, v))
            return false;
    }
    return has_memory(c, u);
}

/* Whether a unit that the new plan lacks keeps another one from starting. */
static bool is_in_the_way(const course *c, const unit *v, const unit *of)
{
    return v->state == UNIT_RUNS && !v->stays &&
           (excludes(of, v) || (share_memory(of, v) && !has_memory(c, of)));
}

/* -- Steps ------------------------------------------------------------------------------------ */

static void end_unit(course *c, unit *u)
{
    u->state = UNIT_ENDED;
    u->ends = c->step.len;
    count(u, -1, c->capacity);
}

static uint32_t start_all(course *c)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->unit.len; i++) {
        unit *u = &c->unit.at[i];
        if (u->state != UNIT_WAITS || !fits(c, u))
            continue;
        u->state = UNIT_RUNS;
        u->begins = c->step.len;
        count(u, 1, c->capacity);
        n++;
    }
    return n;
}

/* Ends units in the way of one that waits until it has room. If that takes too much capacity, they
 * go on (`forced`: they end all the same). Returns how many ended. */
static uint32_t make_room(course *c, const unit *of, bool forced)
{
    WEFT_VEC(uint32_t) ended = {0};
    const device *d = &c->device.at[of->device];
    for (uint32_t i = 0; i < d->unit.len && !fits(c, of); i++) {
        unit *v = &c->unit.at[d->unit.at[i]];
        if (!is_in_the_way(c, v, of) || !(forced || can_end(c, v)))
            continue;
        end_unit(c, v);
        WEFT_VEC_PUSH(c->arena, &ended, d->unit.at[i]);
    }
    if (fits(c, of))
        return ended.len;
    for (uint32_t i = 0; i < ended.len; i++) {
        unit *v = &c->unit.at[ended.at[i]];
        v->state = UNIT_RUNS;
        v->ends = NONE;
        count(v, 1, c->capacity);
    }
    return 0;
}

/* Ends units that the new plan lacks. `copies`: only copies whose originals have ended. */
static uint32_t end_rest(course *c, bool copies)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->unit.len; i++) {
        unit *u = &c->unit.at[i];
        bool useless = u->copy_of != NONE && c->unit.at[u->copy_of].state == UNIT_ENDED;
        if (u->state != UNIT_RUNS || u->stays || (copies && !(useless && can_end(c, u))))
            continue;
        end_unit(c, u);
        n++;
    }
    return n;
}

/* Whether nothing is, or will be, on the memory slots of a copy. */
static bool are_slots_free(const course *c, const unit *copy)
{
    const device *d = &c->device.at[copy->device];
    for (uint32_t i = 0; i < d->unit.len; i++) {
        const unit *v = &c->unit.at[d->unit.at[i]];
        if (v->state != UNIT_ENDED && (!v->mig_mask || (v->mig_mask & copy->mig_mask)))
            return false;
    }
    return true;
}

/* Finds a place for a copy of a unit: of a MIG instance on free slots, of all else on a device that
 * no plan uses. */
static bool find_copy_place(const course *c, unit *copy)
{
    const weft_mig_profile *mig = copy->mig;
    for (uint32_t d = 0; d < c->device.len; d++) {
        const device *at = &c->device.at[d];
        bool empty = at->unit.len == 0, is_kind = !empty || at->mig == (mig != NULL);
        if (strcmp(at->type, copy->at[0]->type) != 0 || !is_kind || !(empty || mig))
            continue;
        copy->device = d;
        for (int32_t start = mig ? 0 : -1; start < (mig ? 32 : 0); start++) {
            copy->mig_start = start;
            copy->mig_mask = mask_at(mig, start);
            if ((!mig || (mig->starts >> start & 1)) && are_slots_free(c, copy))
                return true;
        }
    }
    return false;
}

/* Plans copies of the units in the way of one that waits which cannot end now. */
static bool plan_copies(course *c, uint32_t waits)
{
    uint32_t on = c->unit.at[waits].device, n = c->device.at[on].unit.len, n_before = c->n_copy;
    for (uint32_t i = 0; i < n && c->device.len <= COPY_DEVICES_MAX; i++) {
        uint32_t index = c->device.at[on].unit.at[i];
        const unit *v = &c->unit.at[index];
        if (!is_in_the_way(c, v, &c->unit.at[waits]) || v->copy_of != NONE || v->copied ||
            can_end(c, v))
            continue;
        unit copy = *v;
        copy.copy_of = index;
        copy.state = UNIT_WAITS;
        if (!find_copy_place(c, &copy))
            break;
        c->unit.at[index].copied = true;
        add_unit(c, &copy);
        c->n_copy++;
    }
    return c->n_copy > n_before;
}

/* What ends after the starts of a step; *planned: something starts in the next one whether or not
 * anything ends; *forced: the unit for which others had to end. */
static uint32_t end_some(course *c, bool *planned, uint32_t *forced)
{
    uint32_t first = NONE, n_unit = c->unit.len, n = 0;
    for (uint32_t i = 0; i < n_unit; i++) {
        const unit *u = &c->unit.at[i];
        if (u->state != UNIT_WAITS)
            continue;
        n += make_room(c, u, false);
        if (first == NONE && !fits(c, u))
            first = i;
    }
    n += end_rest(c, first != NONE || n > 0);
    *planned = n > 0;
    if (first == NONE || n > 0)
        return n;
    for (uint32_t i = first; i < n_unit && !*planned; i++)
        *planned = c->unit.at[i].state == UNIT_WAITS && plan_copies(c, i);
    if (*planned)
        return 0;
    *forced = first;
    return make_room(c, &c->unit.at[first], true);
}

/* -- What a step looks like from outside ------------------------------------------------------ */

static void note_dips(course *c, uint32_t forced)
{
    const device *d = &c->device.at[c->unit.at[forced].device];
    for (uint32_t m = 0; m < c->n_model; m++)
        if (is_short(c, m)) {
            const weft_plan_dip dip = {.model = c->model[m],
                                       .step = c->step.len,
                                       .needed_per_s = c->needed[m],
                                       .left_per_s = fmax(0, c->capacity[m]),
                                       .device = d->number,
                                       .type = d->type};
            WEFT_VEC_PUSH(c->arena, &c->dip, dip);
        }
}

/* Whether the old plan has the instance of a unit, and nothing has taken its place. */
static bool has_instance(const course *c, const unit *u)
{
    const device *d = &c->device.at[u->device];
    bool found = false;
    for (uint32_t i = 0; i < d->unit.len; i++) {
        const unit *v = &c->unit.at[d->unit.at[i]];
        if (v == u || v->state == UNIT_WAITS || !(v->mig_mask & u->mig_mask))
            continue;
        if (!share_memory(u, v))
            return false;
        found = true;
    }
    return found;
}

/* The placements of a unit, where it is. */
static void locate(const course *c, uint32_t i, weft_placement *out)
{
    const unit *u = &c->unit.at[i];
    for (uint32_t k = 0; k < u->n; k++) {
        out[k] = *(u->now ? u->now : u->at)[k];
        out[k].device = c->device.at[u->device].number;
        out[k].mig_start = u->mig_start;
        out[k].slice_id = i;
    }
}

static const weft_plan *list_running(const course *c)
{
    weft_plan *plan = weft_arena_array(c->arena, 1, sizeof *plan);
    size_t n = 0;
    *plan = *c->after;
    for (uint32_t i = 0; i < c->unit.len; i++)
        n += c->unit.at[i].state == UNIT_RUNS ? c->unit.at[i].n : 0;
    plan->at = weft_arena_array(c->arena, n + 1, sizeof *plan->at);
    plan->n = 0;
    for (uint32_t i = 0; i < c->unit.len; i++) {
        if (c->unit.at[i].state != UNIT_RUNS)
            continue;
        locate(c, i, &plan->at[plan->n]);
        plan->n += c->unit.at[i].n;
    }
    plan->proven = false;
    return plan;
}

static void add_step(course *c, uint32_t n_start, uint32_t n_stop)
{
    uint32_t n_mig = 0;
    for (uint32_t i = 0; i < c->unit.len; i++) {
        const unit *u = &c->unit.at[i];
        n_mig += u->begins == c->step.len && u->mig_mask && !has_instance(c, u);
    }
    const weft_plan_step step = {
        .plan = list_running(c), .n_start = n_start, .n_stop = n_stop, .n_mig = n_mig};
    WEFT_VEC_PUSH(c->arena, &c->step, step);
}

/* -- The course ------------------------------------------------------------------------------- */

static void order_steps(course *c)
{
    for (bool more = true; more;) {
        uint32_t forced = NONE, n_start = start_all(c);
        bool planned;
        uint32_t n_stop = end_some(c, &planned, &forced);
        if (forced != NONE)
            note_dips(c, forced);
        more = n_start + n_stop > 0 || planned;
        if (n_start + n_stop > 0)
            add_step(c, n_start, n_stop);
    }
}

/* By placement of a plan: when its slice begins or ends. */
static uint32_t *list_times(const course *c, const weft_plan *plan, bool ends)
{
    uint32_t *out = weft_arena_array(c->arena, plan->n + 1, sizeof *out);
    for (size_t i = 0; i < plan->n; i++)
        out[i] = WEFT_STEP_NONE;
    for (uint32_t i = 0; i < c->unit.len; i++) {
        const unit *u = &c->unit.at[i];
        bool is_in = u->copy_of == NONE && (ends ? !u->stays : u->stays && !u->now);
        for (uint32_t k = 0; is_in && k < u->n; k++)
            out[u->at[k] - plan->at] = ends ? u->ends : u->begins;
    }
    return out;
}

static const weft_plan_copy *list_copies(const course *c)
{
    weft_plan_copy *out = weft_arena_array(c->arena, c->n_copy + 1, sizeof *out);
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->unit.len; i++) {
        const unit *u = &c->unit.at[i];
        if (u->copy_of == NONE)
            continue;
        weft_placement *at = weft_arena_array(c->arena, u->n, sizeof *at);
        locate(c, i, at);
        out[n++] = (weft_plan_copy){.at = at, .n = u->n, .begins = u->begins, .ends = u->ends};
    }
    return out;
}

void weft_plan_find_course(const weft_plan *before, const weft_plan *after,
                           const weft_plan_spare *spare, size_t n_spare, weft_arena *arena,
                           weft_plan_course *out)
{
    course c = {.before = before, .after = after, .arena = arena};
    list_models(&c);
    add_plan(&c, before, false);
    c.n_old = c.device.len;
    add_plan(&c, after, true);
    for (size_t i = 0; i < n_spare; i++) {
        bool used = false;
        for (uint32_t d = 0; d < c.device.len && !used; d++)
            used = c.device.at[d].number == spare[i].device;
        const device new = {
            .number = spare[i].device, .type = spare[i].type, .mig = spare[i].is_mig};
        if (!used)
            WEFT_VEC_PUSH(arena, &c.device, new);
    }
    find_needs(&c);
    order_steps(&c);
    *out = (weft_plan_course){.step = c.step.at,
                              .n_step = c.step.len,
                              .begins = list_times(&c, after, false),
                              .ends = list_times(&c, before, true),
                              .dip = c.dip.at,
                              .n_dip = c.dip.len,
                              .copy = list_copies(&c),
                              .n_copy = c.n_copy};
}

/* -- Courses on a fleet ----------------------------------------------------------------------- */

/* Devices of the fleet that the plan leaves, with numbers that it does not have. */
static size_t list_spare(const weft_plan *plan, const weft_fleet *fleet,
                         weft_plan_spare out[COPY_DEVICES_MAX])
{
    uint32_t next = 0;
    size_t n = 0;
    for (size_t i = 0; i < plan->n; i++)
        next = plan->at[i].device >= next ? plan->at[i].device + 1 : next;
    for (size_t r = 0; fleet && r < fleet->n_device; r++) {
        const weft_fleet_device *row = &fleet->device[r];
        uint32_t used = 0;
        for (size_t i = 0; i < plan->n; i++) {
            bool is_last = i == plan->n - 1 || plan->at[i].device != plan->at[i + 1].device;
            used += is_last && strcmp(plan->at[i].type, row->type) == 0;
        }
        for (uint32_t k = used; k < row->count && n < COPY_DEVICES_MAX; k++)
            out[n++] = (weft_plan_spare){.device = next++, .type = row->type, .is_mig = row->mig};
    }
    return n;
}

weft_plan weft_plan_find_changes(const weft_plan *before, const weft_plan *after,
                                 const weft_fleet *fleet, weft_arena *arena, weft_plan_course *out)
{
    weft_plan_spare spare[COPY_DEVICES_MAX];
    size_t n = list_spare(before, fleet, spare);
    const weft_plan settled = weft_plan_settle(before, after, spare, n, arena);
    weft_plan_find_course(before, &settled, spare, n, arena, out);
    return settled;
}

double weft_plan_step_s(const weft_plan_step *step, double move_s, double mig_s)
{
    return (step->n_start > 0 ? move_s : 0) + (step->n_mig > 0 ? mig_s : 0);
}

void weft_plan_tell_course(const weft_plan_course *c, double move_s, double mig_s, weft_buf *out)
{
    uint32_t n_mig = 0;
    for (uint32_t k = 0; k < c->n_step; k++)
        n_mig += c->step[k].n_mig;
    if (c->n_step > 1 || n_mig > 0)
        weft_buf_printf(out, " in %u step%s", c->n_step, c->n_step == 1 ? "" : "s");
    if (n_mig > 0)
        weft_buf_printf(out, ", %u new MIG instance%s", n_mig, n_mig == 1 ? "" : "s");
    if (c->n_copy > 0)
        weft_buf_printf(out, ", %u cop%s meanwhile", c->n_copy, c->n_copy == 1 ? "y" : "ies");
    for (uint32_t i = 0; i < c->n_dip; i++) {
        const weft_plan_dip *d = &c->dip[i];
        double seconds =
            d->step + 1 < c->n_step ? weft_plan_step_s(&c->step[d->step + 1], move_s, mig_s) : 0;
        weft_buf_printf(out,
                        "; %s %u is changed where its slices run and nothing else has room: %s "
                        "falls to %.4g/s of %.4g/s for about %.3g s",
                        d->type, d->device, d->model, d->left_per_s, d->needed_per_s, seconds);
    }
}
