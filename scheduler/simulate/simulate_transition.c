/* From one plan to the next one, while requests flow.
 *
 * The transition keeps every slice that the new plan has on the same device, in the same place,
 * with the same models, batches and processes. A device of the new plan is the device of the old
 * one that has the same slices, else the one with the same number, else any of its type.
 *
 * A new slice serves start_s after the switch, a new MIG instance mig_s later still. A MIG instance
 * that is in the way of a new one (or of another way to split the device) stops at the switch, and
 * the new one starts when the last batch of the old one has ended. All other slices that the new
 * plan lacks serve until the last new slice does (make before break), so that no capacity is
 * missing meanwhile. */
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

/* Whether the new slice can start only when the old one has ended. */
static bool blocks(const sim_slice *old, const sim_slice *now)
{
    if (old->device != now->device)
        return false;
    if ((old->mig_start >= 0) != (now->mig_start >= 0))
        return true;
    return (old->mig_mask & now->mig_mask) != 0;
}

/* Stops the slices that block a new one, and returns when the new one serves: after their last
 * batch, start_s and, for a MIG instance, mig_s. */
static int64_t clear_way(sim_world *w, uint32_t slice, const uint32_t *on_device, uint32_t n)
{
    const sim_slice *s = &w->slice.at[slice];
    int64_t from = w->now_ns;
    for (uint32_t i = 0; i < n; i++) {
        sim_slice *old = &w->slice.at[on_device[i]];
        if (old->kept || on_device[i] == slice || !blocks(old, s))
            continue;
        for (uint32_t k = 0; k < old->n_server; k++) {
            const sim_server *server = &w->server.at[old->first_server + k];
            if (server->busy && server->end_ns > from)
                from = server->end_ns;
        }
        old->off_ns = w->now_ns;
    }
    double wait_s = w->o->start_s + (s->mig_start >= 0 ? w->o->mig_s : 0);
    return from + (int64_t)(wait_s * 1e9);
}

/* The slices that exist before the switch, by device: those of device d are list[first[d]] to
 * list[first[d + 1] - 1]. */
static uint32_t *list_by_device(const sim_world *w, uint32_t n_slice, weft_arena *arena,
                                uint32_t **first)
{
    uint32_t n = w->device.len, *at = weft_arena_array(arena, n + 2, sizeof *at);
    for (uint32_t i = 0; i < n_slice; i++)
        if (w->slice.at[i].state != SIM_GONE)
            at[w->slice.at[i].device + 2]++;
    for (uint32_t i = 2; i < n + 2; i++)
        at[i] += at[i - 1];
    uint32_t *list = weft_arena_array(arena, at[n + 1] + 1, sizeof *list);
    for (uint32_t i = 0; i < n_slice; i++)
        if (w->slice.at[i].state != SIM_GONE)
            list[at[w->slice.at[i].device + 1]++] = i;
    *first = at;
    return list;
}

static weft_err switch_plan(sim_world *w, const weft_plan *plan, const char *policy,
                            weft_arena *scratch)
{
    sim_group *g;
    uint32_t n, n_old = w->slice.len, *first;
    WEFT_TRY(make_groups(w, plan, scratch, &g, &n));
    map_devices(w, plan, g, n, scratch);
    weft_sim_change change = {.at_s = (double)w->now_ns / 1e9, .policy = policy, .why = ""};
    change.kept = keep_slices(w, g, n, scratch);
    const uint32_t *list = list_by_device(w, n_old, scratch, &first);
    int64_t ready_ns = w->now_ns;
    for (uint32_t i = 0; i < n; i++) {
        if (g[i].kept != UINT32_MAX)
            continue;
        uint32_t slice = w->slice.len, d = g[i].device;
        WEFT_TRY(weft_sim__add_slice(w, &g[i]));
        int64_t on_ns = clear_way(w, slice, &list[first[d]], first[d + 1] - first[d]);
        w->slice.at[slice].on_ns = on_ns;
        weft_sim__set_timer(w, on_ns, SIM_TIMER_ON, slice);
        ready_ns = on_ns > ready_ns ? on_ns : ready_ns;
        change.started++;
    }
    for (uint32_t i = 0; i < n_old; i++) {
        sim_slice *s = &w->slice.at[i];
        if (s->kept || (s->state != SIM_ON && s->state != SIM_STARTING))
            continue;
        change.stopped++;
        if (s->off_ns == w->now_ns || s->state == SIM_STARTING || ready_ns == w->now_ns)
            weft_sim__close_slice(w, i);
        else
            weft_sim__set_timer(w, ready_ns, SIM_TIMER_OFF, i);
    }
    change.gpus = plan->gpus;
    change.ready_s = (double)ready_ns / 1e9;
    WEFT_VEC_PUSH(w->arena, &w->change, change);
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
