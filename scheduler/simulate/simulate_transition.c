/* From one plan to the next one, while requests flow.
 *
 * The transition keeps every slice that the new plan has on the same device, in the same place,
 * with the same models, batches and processes. A device of the new plan is the device of the old
 * one that has the same slices, else the one with the same number, else any of its type.
 *
 * Slices start and end in the steps of the course from one plan to the other (plan_course.c), as in
 * the server: the slices of a step serve start_s after it begins, mig_s later if it makes MIG
 * instances; then others end, and the next step begins after their last batches. */
#include "scheduler/simulate/simulate_int.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

/* -- Plans as groups of placements ------------------------------------------------------------ */

static weft_err check_placement(const sim_world *w, const weft_placement *p)
{
    if (weft_sim__find_model(w, p->model) == UINT32_MAX)
        return weft_sim__refuse(w, p, "the demands have no such model");
    if (p->batch < 1 || p->batch > SIM_BATCH_MAX)
        return weft_sim__refuse(w, p, "batch must be from 1 to 256");
    if (p->procs < 1 || p->procs > WEFT_MPS_CLIENTS_MAX)
        return weft_sim__refuse(w, p, "procs must be from 1 to 48");
    if (p->mig_start > 31 || p->mig_start < -1)
        return weft_sim__refuse(w, p, "mig_start is not a MIG slot");
    return WEFT_ERR_OK;
}

static uint64_t hash_text(uint64_t h, const char *text)
{
    return weft_hash64(text, strlen(text), h);
}

static weft_err make_groups(sim_world *w, const weft_plan *plan, weft_arena *arena, sim_group **out,
                            uint32_t *out_n)
{
    const weft_placement **p = weft_arena_array(arena, plan->n + 1, sizeof *p);
    sim_group *g = weft_arena_array(arena, plan->n + 1, sizeof *g);
    uint32_t n = 0;
    if (plan->n > WEFT_PLAN_PLACEMENTS_MAX)
        return weft_diag_error(w->diag, WEFT_ERR_INPUT, (weft_where){0},
                               "plan has more than %d placements", WEFT_PLAN_PLACEMENTS_MAX);
    const uint32_t *order = weft_plan__order(plan, arena);
    for (size_t i = 0; i < plan->n; i++)
        WEFT_TRY(check_placement(w, &plan->at[i]));
    for (size_t i = 0; i < plan->n; i++)
        p[i] = &plan->at[order[i]];
    for (size_t i = 0; i < plan->n; i++) {
        const weft_placement *last = i ? p[i - 1] : NULL;
        bool same = last && last->device == p[i]->device && last->slice_id == p[i]->slice_id;
        if (last && last->device == p[i]->device && strcmp(last->type, p[i]->type) != 0)
            return weft_sim__refuse(w, p[i], "another placement of the device has another type");
        if (same && (strcmp(last->slice, p[i]->slice) != 0 || last->mig_start != p[i]->mig_start))
            return weft_sim__refuse(
                w, p[i], "another placement of the slice has another slice name or MIG slot");
        if (same && strcmp(last->model, p[i]->model) == 0)
            return weft_sim__refuse(w, p[i], "the slice has the model twice");
        if (!same)
            g[n++] = (sim_group){.at = &p[i],
                                 .device = p[i]->device,
                                 .kept = UINT32_MAX,
                                 .key = hash_text(hash_text(7, p[i]->type), p[i]->slice) +
                                        (uint64_t)(uint32_t)p[i]->mig_start};
        sim_group *at = &g[n - 1];
        at->n++;
        at->key =
            weft_hash_mix(weft_hash_mix(hash_text(at->key, p[i]->model), p[i]->batch), p[i]->procs);
    }
    *out = g;
    *out_n = n;
    return WEFT_ERR_OK;
}

/* -- Devices ---------------------------------------------------------------------------------- */

typedef struct marked {
    uint64_t mark;
    uint32_t device;
} marked;

static int order_marks(const void *a, const void *b)
{
    const marked *p = a, *q = b;
    if (p->mark != q->mark)
        return p->mark < q->mark ? -1 : 1;
    return p->device < q->device ? -1 : p->device > q->device;
}

/* A device of the plan with the same slices as a device of the world gets that device. Both lists
 * are sorted by the hash of the slices and merged. */
static void match_marks(sim_world *w, marked *now, uint32_t n_now, marked *old, uint32_t n_old,
                        uint32_t *to)
{
    qsort(now, n_now, sizeof *now, order_marks);
    qsort(old, n_old, sizeof *old, order_marks);
    for (uint32_t i = 0, k = 0; i < n_now && k < n_old;) {
        if (now[i].mark == old[k].mark) {
            to[now[i++].device] = old[k].device;
            w->device.at[old[k++].device].taken = true;
        } else if (now[i].mark < old[k].mark) {
            i++;
        } else {
            k++;
        }
    }
}

/* Maps each device of the plan to a device of the world; the groups then have the latter's
 * index. */
static void map_devices(sim_world *w, const weft_plan *plan, sim_group *g, uint32_t n,
                        weft_arena *arena)
{
    uint32_t n_plan = 0, n_old = w->device.len, *to;
    for (uint32_t i = 0; i < n; i++)
        n_plan += i == 0 || g[i].device != g[i - 1].device;
    to = weft_arena_array(arena, n_plan + 1, sizeof *to);
    marked *now = weft_arena_array(arena, n_plan + 1, sizeof *now);
    marked *old = weft_arena_array(arena, n_old + 1, sizeof *old);
    const char **type = weft_arena_array(arena, n_plan + 1, sizeof *type);
    uint32_t *number = weft_arena_array(arena, n_plan + 1, sizeof *number);
    uint32_t d = 0;
    for (uint32_t i = 0; i < n; i++) {
        d += i > 0 && g[i].device != g[i - 1].device;
        now[d].device = d;
        now[d].mark += g[i].key;
        type[d] = g[i].at[0]->type;
        number[d] = g[i].device;
    }
    for (uint32_t i = 0; i < n_old; i++) {
        w->device.at[i].mark = 0;
        w->device.at[i].taken = false;
    }
    for (uint32_t i = 0; i < w->slice.len; i++)
        if (w->slice.at[i].state == SIM_ON || w->slice.at[i].state == SIM_STARTING)
            w->device.at[w->slice.at[i].device].mark += w->slice.at[i].key;
    for (uint32_t i = 0; i < n_old; i++)
        old[i] = (marked){w->device.at[i].mark, i};
    for (uint32_t i = 0; i < n_plan; i++)
        to[i] = UINT32_MAX;
    match_marks(w, now, n_plan, old, n_old, to);
    for (uint32_t i = 0; i < n_plan; i++) {
        uint32_t same = number[i];
        if (to[i] == UINT32_MAX && same < n_old && !w->device.at[same].taken &&
            strcmp(w->device.at[same].type, type[i]) == 0) {
            to[i] = same;
            w->device.at[same].taken = true;
        }
    }
    uint32_t next = 0;
    const char *next_type = NULL;
    for (uint32_t i = 0; i < n_plan; i++) {
        if (to[i] != UINT32_MAX)
            continue;
        if (!next_type || strcmp(next_type, type[i]) != 0)
            next = 0;
        next_type = type[i];
        while (next < n_old &&
               (w->device.at[next].taken || strcmp(w->device.at[next].type, type[i]) != 0))
            next++;
        to[i] = next < n_old ? next : weft_sim__add_device(w, plan, type[i]);
        w->device.at[to[i]].taken = true;
    }
    for (uint32_t i = n, at = n_plan; i-- > 0;) {
        /* The groups of one device are neighbours. The loop runs backwards, so that g[i - 1] still
         * has its index in the plan. */
        if (i == n - 1 || g[i].device != number[at])
            at--;
        g[i].device = to[at];
    }
}

/* -- Switching -------------------------------------------------------------------------------- */

/* The placements of a kept slice may have other rates than before. */
static void keep_slice(sim_world *w, const sim_group *g, sim_slice *s)
{
    s->kept = true;
    s->leaves = false;
    for (uint32_t i = 0; i < g->n; i++) {
        const weft_placement old = s->placement[i];
        s->placement[i] = *g->at[i];
        s->placement[i].model = old.model; /* the same names, which stay */
        s->placement[i].type = old.type;
        s->placement[i].slice = old.slice;
        s->placement[i].source = old.source;
    }
    for (uint32_t i = 0; i < g->n; i++)
        weft_sim__set_weight(&w->replica.at[s->first_replica + i], g->at[i]);
}

typedef struct live {
    uint64_t key;
    uint32_t device, slice;
} live;

static int order_live(const void *a, const void *b)
{
    const live *p = a, *q = b;
    if (p->device != q->device)
        return p->device < q->device ? -1 : 1;
    if (p->key != q->key)
        return p->key < q->key ? -1 : 1;
    return p->slice < q->slice ? -1 : p->slice > q->slice;
}

/* Finds the slices that both plans have; returns their number. */
static uint32_t keep_slices(sim_world *w, sim_group *g, uint32_t n, weft_arena *arena)
{
    live *old = weft_arena_array(arena, w->slice.len + 1, sizeof *old);
    live *now = weft_arena_array(arena, n + 1, sizeof *now);
    uint32_t n_old = 0, kept = 0;
    for (uint32_t i = 0; i < w->slice.len; i++) {
        sim_slice *s = &w->slice.at[i];
        s->kept = false;
        if ((s->state == SIM_ON || s->state == SIM_STARTING))
            old[n_old++] = (live){s->key, s->device, i};
    }
    for (uint32_t i = 0; i < n; i++)
        now[i] = (live){g[i].key, g[i].device, i};
    qsort(old, n_old, sizeof *old, order_live);
    qsort(now, n, sizeof *now, order_live);
    for (uint32_t i = 0, k = 0; i < n && k < n_old;) {
        bool before = old[k].device < now[i].device ||
                      (old[k].device == now[i].device && old[k].key < now[i].key);
        if (old[k].device == now[i].device && old[k].key == now[i].key) {
            sim_group *at = &g[now[i++].slice];
            at->kept = old[k++].slice;
            keep_slice(w, at, &w->slice.at[at->kept]);
            kept++;
        } else if (before) {
            k++;
        } else {
            i++;
        }
    }
    return kept;
}

/* Time that the batches of a slice that ends at a time still take. */
static int64_t drain_ns(const sim_world *w, const sim_slice *s, int64_t at_ns,
                        const weft_placement *p)
{
    int64_t left = 0;
    double batch_s = p->capacity_per_s > 0 ? p->procs * p->batch / p->capacity_per_s : 0;
    if (at_ns > w->now_ns)
        return (int64_t)(batch_s * 1e9);
    for (uint32_t k = 0; k < s->n_server; k++) {
        const sim_server *server = &w->server.at[s->first_server + k];
        if (server->busy && server->end_ns - at_ns > left)
            left = server->end_ns - at_ns;
    }
    return left;
}

/* Ends a slice at the time. */
static void end_at(sim_world *w, uint32_t slice, int64_t at_ns)
{
    sim_slice *s = &w->slice.at[slice];
    s->leaves = true;
    s->leave_ns = at_ns;
    if (at_ns == w->now_ns || s->state == SIM_STARTING)
        weft_sim__close_slice(w, slice);
    else
        weft_sim__set_timer(w, at_ns, SIM_TIMER_OFF, slice);
}

/* A switch under way. */
typedef struct transition {
    sim_world *w;
    sim_group *g;
    uint32_t n;
    const weft_plan *after; /* devices have the numbers of the world */
    weft_plan before;
    uint32_t *slice_of; /* by placement of `before` */
    weft_plan_course course;
    uint32_t *copied; /* by copy: its slice */
    weft_sim_change change;
} transition;

/* What runs, as a plan on the devices of the world. */
static void list_running(transition *t, weft_arena *arena)
{
    const sim_world *w = t->w;
    size_t n = 0;
    for (uint32_t i = 0; i < w->slice.len; i++)
        n += w->slice.at[i].n_replica;
    t->before.at = weft_arena_array(arena, n + 1, sizeof *t->before.at);
    t->slice_of = weft_arena_array(arena, n + 1, sizeof *t->slice_of);
    for (uint32_t i = 0; i < w->slice.len; i++) {
        const sim_slice *s = &w->slice.at[i];
        for (uint32_t k = 0; (s->state == SIM_ON || s->state == SIM_STARTING) && k < s->n_replica;
             k++) {
            weft_placement *p = &t->before.at[t->before.n];
            *p = s->placement[k];
            p->device = s->device;
            p->slice_id = i;
            t->slice_of[t->before.n++] = i;
        }
    }
}

/* The new plan on the devices of the world, of which the groups have the placements. */
static void place_groups(transition *t, const weft_plan *plan, weft_arena *arena)
{
    weft_plan *after = weft_arena_array(arena, 1, sizeof *after);
    *after = *plan;
    after->at = weft_arena_array(arena, plan->n + 1, sizeof *after->at);
    for (uint32_t i = 0, at = 0; i < t->n; i++) {
        sim_group *g = &t->g[i];
        const weft_placement **own = weft_arena_array(arena, g->n, sizeof *own);
        for (uint32_t k = 0; k < g->n; k++, at++) {
            after->at[at] = *g->at[k];
            after->at[at].device = g->device;
            own[k] = &after->at[at];
        }
        g->at = own;
    }
    t->after = after;
}

/* Starts the slice of a group; returns it. */
static weft_err start_slice(transition *t, const sim_group *g, int64_t on_ns, uint32_t *out)
{
    sim_world *w = t->w;
    *out = w->slice.len;
    WEFT_TRY(weft_sim__add_slice(w, g));
    w->slice.at[*out].on_ns = on_ns;
    weft_sim__set_timer(w, on_ns, SIM_TIMER_ON, *out);
    t->change.started++;
    return WEFT_ERR_OK;
}

static weft_err start_copy(transition *t, uint32_t i, int64_t on_ns, weft_arena *arena)
{
    const weft_plan_copy *copy = &t->course.copy[i];
    const weft_placement **at = weft_arena_array(arena, copy->n, sizeof *at);
    for (uint32_t k = 0; k < copy->n; k++)
        at[k] = &copy->at[k];
    const sim_group g = {
        .at = at, .n = copy->n, .device = copy->at->device, .key = i, .kept = UINT32_MAX};
    return start_slice(t, &g, on_ns, &t->copied[i]);
}

/* Starts the slices of a step that begins at a time; *ready_ns: when they serve. */
static weft_err start_slices(transition *t, uint32_t k, int64_t from_ns, weft_arena *arena,
                             int64_t *ready_ns)
{
    const weft_plan_step *step = &t->course.step[k];
    double wait_s = t->w->o->start_s + (step->n_mig > 0 ? t->w->o->mig_s : 0);
    int64_t on_ns = from_ns + (int64_t)(wait_s * 1e9);
    uint32_t slice;
    *ready_ns = step->n_start > 0 ? on_ns : from_ns;
    for (uint32_t i = 0; i < t->n; i++)
        if (t->g[i].kept == UINT32_MAX && t->course.begins[t->g[i].at[0] - t->after->at] == k)
            WEFT_TRY(start_slice(t, &t->g[i], on_ns, &slice));
    for (uint32_t i = 0; i < t->course.n_copy; i++)
        if (t->course.copy[i].begins == k)
            WEFT_TRY(start_copy(t, i, on_ns, arena));
    return WEFT_ERR_OK;
}

/* Ends those that end with a step; returns when their last batches end. */
static int64_t end_slices(transition *t, uint32_t k, int64_t at_ns)
{
    int64_t last_ns = 0;
    for (size_t i = 0; i < t->before.n; i++) {
        uint32_t slice = t->slice_of[i];
        if (t->course.ends[i] != k)
            continue;
        int64_t left_ns = drain_ns(t->w, &t->w->slice.at[slice], at_ns, &t->before.at[i]);
        last_ns = left_ns > last_ns ? left_ns : last_ns;
        if (i > 0 && t->slice_of[i - 1] == slice)
            continue;
        end_at(t->w, slice, at_ns);
        t->change.stopped++;
    }
    for (uint32_t i = 0; i < t->course.n_copy; i++)
        if (t->course.copy[i].ends == k) {
            end_at(t->w, t->copied[i], at_ns);
            t->change.stopped++;
        }
    return at_ns + last_ns;
}

static weft_err switch_plan(sim_world *w, const weft_plan *plan, const char *policy,
                            weft_arena *scratch)
{
    transition t = {.w = w,
                    .before = {.rules = plan->rules},
                    .change = {.at_s = (double)w->now_ns / 1e9, .policy = policy, .why = ""}};
    int64_t from_ns = w->now_ns, ready_ns = w->now_ns;
    WEFT_TRY(make_groups(w, plan, scratch, &t.g, &t.n));
    map_devices(w, plan, t.g, t.n, scratch);
    list_running(&t, scratch);
    t.change.kept = keep_slices(w, t.g, t.n, scratch);
    place_groups(&t, plan, scratch);
    weft_plan_find_course(&t.before, t.after, NULL, 0, scratch, &t.course);
    t.copied = weft_arena_array(scratch, t.course.n_copy + 1, sizeof *t.copied);
    for (uint32_t k = 0; k < t.course.n_step; k++) {
        WEFT_TRY(start_slices(&t, k, from_ns, scratch, &ready_ns));
        from_ns = end_slices(&t, k, ready_ns);
    }
    t.change.gpus = plan->gpus;
    t.change.ready_s = (double)ready_ns / 1e9;
    WEFT_VEC_PUSH(w->arena, &w->change, t.change);
    w->plan = plan;
    return WEFT_ERR_OK;
}

weft_err weft_sim__switch(sim_world *w, const weft_plan *plan, const char *policy)
{
    weft_arena *scratch = weft_arena_create(0);
    if (!scratch)
        return WEFT_ERR_NOMEM;
    weft_err err = switch_plan(w, plan, policy, scratch);
    weft_arena_destroy(scratch);
    return err;
}

weft_err weft_sim__begin(sim_world *w, const weft_plan *plan)
{
    sim_group *g;
    uint32_t n;
    WEFT_TRY(make_groups(w, plan, w->arena, &g, &n));
    map_devices(w, plan, g, n, w->arena);
    for (uint32_t i = 0; i < n; i++)
        WEFT_TRY(weft_sim__add_slice(w, &g[i]));
    for (uint32_t i = 0; i < n; i++)
        weft_sim__open_slice(w, i);
    w->plan = plan;
    return WEFT_ERR_OK;
}
