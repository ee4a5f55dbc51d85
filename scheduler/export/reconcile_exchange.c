/* Exchanges workers of the new plan between its devices, so that more of them are where they run.
 *
 * A plan is as good with any two equal slices exchanged: MIG instances of one profile, and MPS
 * shares of one size as long as the devices have memory for them. This makes the new plan one
 * whose devices have as many workers as possible in common with those of the old plan that they
 * are matched with (reconcile_match.c).
 *
 * For a given matching of devices that is a maximum b-matching of a bipartite graph, found by
 * augmenting paths (L. R. Ford and D. R. Fulkerson, Flows in Networks, 1962): a node on one side is
 * the equal slices of one new device, with their number as capacity; a node on the other side is a
 * group of the new plan, with its number of workers; an edge is a worker that runs on the old
 * device and is of that group. Nodes that a failed search has seen are on no later augmenting path.
 * O(edges) for each path and for all failed searches together.
 *
 * Two matchings of devices are tried: the one by what the devices have in common as they are, where
 * devices without a match get the free old device whose slices fit best; and the one with which
 * most slices fit (assignment problem; up to CHANGE_ASSIGNED_MAX devices of a type). The one with
 * more workers that stay counts. Another matching may still let more stay, since the second counts
 * a group on as many devices as run it.
 *
 * Not for plans whose devices have places, which failure domains depend on, nor under rules for
 * interference, where the capacity of a worker depends on its neighbours. */
#include "scheduler/export/reconcile_int.h"
#include "scheduler/plan/plan.h"

#include "base/hash.h"
#include "base/map.h"

#include <string.h>

#define NONE UINT32_MAX

/* Workers [first, first + n) of a plan, which are on one device. */
typedef struct device {
    uint32_t first, n;
    uint32_t partner;
} device;

/* Equal slices of a new device. */
typedef struct bin {
    uint32_t worker;     /* one of them */
    uint32_t free;       /* slices without an edge */
    uint32_t from, to;   /* its edges */
    uint32_t seen, path; /* number of the search that has seen it last; the edge that led to it */
    bool dead;
} bin;

/* A group of the new plan. */
typedef struct node {
    uint32_t free;
    uint32_t from, to; /* its edges, in by_group */
    uint32_t seen, path;
} node;

/* A worker that runs, and could stay. */
typedef struct edge {
    uint32_t bin, group;
    bool stays;
} edge;

typedef struct exchange {
    const change *c;
    weft_arena *arena;
    bool shares; /* of MPS are exchanged, too */
    device *old, *new;
    uint32_t n_old, n_new;
    uint32_t *group_of; /* by old worker: the group of the new plan; NONE */
    uint32_t *bin_of;   /* by new worker; NONE: its slice is not exchanged */
    bin *bin;
    uint32_t n_bin;
    node *node;
    edge *edge; /* by bin */
    uint32_t n_edge;
    uint32_t *by_group;
    uint32_t *queue;
    uint32_t search;
} exchange;

/* -- Devices ----------------------------------------------------------------------------------- */

static device *list_devices(const export_ctx *ctx, weft_arena *arena, uint32_t *out_n)
{
    device *at = weft_arena_array(arena, ctx->n_worker + 1, sizeof *at);
    uint32_t n = 0;
    for (uint32_t i = 0; i < ctx->n_worker; i++) {
        if (i == 0 || ctx->worker[i].device != ctx->worker[i - 1].device)
            at[n++] = (device){.first = i, .partner = NONE};
        at[n - 1].n++;
    }
    *out_n = n;
    return at;
}

static bool is_equal_slice(const export_worker *a, const export_worker *b)
{
    return a->kind == b->kind && strcmp(a->slice, b->slice) == 0 && strcmp(a->type, b->type) == 0;
}

static bool may_exchange(const exchange *x, const export_worker *w)
{
    return w->kind == WEFT_SLICE_MIG || (w->kind == WEFT_SLICE_MPS && x->shares);
}

/* Slices of a new device that workers of an old one could keep; `now`: as its workers are. */
static uint32_t count_fitting(const exchange *x, const device *old, const device *new, bool now)
{
    const export_worker *from = x->c->from->worker, *to = &x->c->to->worker[new->first];
    uint32_t n = 0, most = new->n < 64 ? new->n : 64;
    bool taken[64] = {false}; /* new slices */
    for (uint32_t i = old->first; i < old->first + old->n; i++)
        for (uint32_t k = 0; x->group_of[i] != NONE && k < most; k++) {
            bool same = !now && may_exchange(x, &to[k]) ? is_equal_slice(&from[i], &to[k])
                                                        : x->group_of[i] == to[k].group;
            if (!taken[k] && same) {
                taken[k] = true;
                n++;
                break;
            }
        }
    return n;
}

static void take_match(exchange *x, const uint32_t *match)
{
    uint32_t *device_of = weft_arena_array(x->arena, x->c->from->n_worker + 1, sizeof *device_of);
    for (uint32_t d = 0; d < x->n_old; d++)
        for (uint32_t i = 0; i < x->old[d].n; i++)
            device_of[x->old[d].first + i] = d;
    for (uint32_t d = 0; d < x->n_new; d++) {
        if (match[x->new[d].first] == NONE)
            continue;
        x->new[d].partner = device_of[match[x->new[d].first]];
        x->old[x->new[d].partner].partner = d;
    }
}

static void match_rest(exchange *x)
{
    for (uint32_t i = 0; i < x->n_old; i++) {
        uint32_t best = NONE, most = 0;
        for (uint32_t k = 0; x->old[i].partner == NONE && k < x->n_new; k++) {
            if (x->new[k].partner != NONE || !may_exchange(x, &x->c->to->worker[x->new[k].first]))
                continue;
            uint32_t n = count_fitting(x, &x->old[i], &x->new[k], false);
            if (n > most) {
                most = n;
                best = k;
            }
        }
        if (best != NONE) {
            x->old[i].partner = best;
            x->new[best].partner = i;
        }
    }
}

enum { FITTING = 64 }; /* a slice that fits counts for more than workers that are there already */

/* The devices of a type. */
static uint32_t list_type(const device *at, uint32_t n, const export_ctx *ctx, const char *type,
                          uint32_t *out)
{
    uint32_t n_out = 0;
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(ctx->worker[at[i].first].type, type) == 0)
            out[n_out++] = i;
    return n_out;
}

/* Matches the devices of a type anew, so that as many slices fit as can. */
static void assign_type(exchange *x, const char *type)
{
    uint32_t *old = weft_arena_array(x->arena, x->n_old + 1, sizeof *old);
    uint32_t *new = weft_arena_array(x->arena, x->n_new + 1, sizeof *new);
    uint32_t n_old = list_type(x->old, x->n_old, x->c->from, type, old);
    uint32_t n_new = list_type(x->new, x->n_new, x->c->to, type, new);
    uint32_t n = n_old > n_new ? n_old : n_new;
    if (n > CHANGE_ASSIGNED_MAX)
        return;
    size_t size = n + 1;
    int32_t *weight = weft_arena_array(x->arena, size * size, sizeof *weight);
    for (uint32_t i = 0; i < n_old; i++) {
        x->old[old[i]].partner = NONE;
        for (uint32_t k = 0; k < n_new; k++) {
            const device *a = &x->old[old[i]], *b = &x->new[new[k]];
            weight[(i + 1) * size + k + 1] =
                (int32_t)(FITTING * count_fitting(x, a, b, false) + count_fitting(x, a, b, true));
        }
    }
    const uint32_t *row = weft_change__assign(weight, n, x->arena);
    for (uint32_t k = 0; k < n_new; k++) {
        uint32_t i = row[k + 1] - 1;
        x->new[new[k]].partner = NONE;
        if (weight[(i + 1) * size + k + 1] == 0)
            continue;
        x->new[new[k]].partner = old[i];
        x->old[old[i]].partner = new[k];
    }
}

static void assign_devices(exchange *x)
{
    const export_ctx *to = x->c->to;
    weft_map *seen = weft_map_create(x->arena);
    for (uint32_t i = 0; i < to->n_worker; i++) {
        const char *type = to->worker[i].type;
        uint64_t key = weft_hash64(type, strlen(type), 0), known;
        if (weft_map_get(seen, key, &known))
            continue;
        weft_map_put(seen, key, 1);
        assign_type(x, type);
    }
}

/* -- The graph --------------------------------------------------------------------------------- */

static void find_groups(exchange *x)
{
    const export_ctx *from = x->c->from, *to = x->c->to;
    weft_map *by_name = weft_map_create(x->arena);
    for (uint32_t g = 0; g < to->n_group; g++)
        weft_map_put(by_name, weft_hash64(to->group[g].name, strlen(to->group[g].name), 0), g);
    x->group_of = weft_arena_array(x->arena, from->n_worker + 1, sizeof *x->group_of);
    for (uint32_t i = 0; i < from->n_worker; i++) {
        const char *name = from->group[from->worker[i].group].name;
        uint64_t g = NONE;
        (void)weft_map_get(by_name, weft_hash64(name, strlen(name), 0), &g);
        x->group_of[i] = (uint32_t)g;
    }
}

static void make_bins(exchange *x)
{
    const export_ctx *to = x->c->to;
    x->bin = weft_arena_array(x->arena, to->n_worker + 1, sizeof *x->bin);
    x->bin_of = weft_arena_array(x->arena, to->n_worker + 1, sizeof *x->bin_of);
    for (uint32_t d = 0; d < x->n_new; d++) {
        uint32_t first = x->n_bin;
        for (uint32_t i = x->new[d].first; i < x->new[d].first + x->new[d].n; i++) {
            uint32_t b = first;
            x->bin_of[i] = NONE;
            if (!may_exchange(x, &to->worker[i]))
                continue;
            while (b < x->n_bin && !is_equal_slice(&to->worker[x->bin[b].worker], &to->worker[i]))
                b++;
            if (b == x->n_bin)
                x->bin[x->n_bin++] = (bin){.worker = i};
            x->bin[b].free++;
            x->bin_of[i] = b;
        }
    }
}

static void make_edges(exchange *x)
{
    const export_ctx *from = x->c->from, *to = x->c->to;
    x->edge = weft_arena_array(x->arena, from->n_worker + 1, sizeof *x->edge);
    x->node = weft_arena_array(x->arena, to->n_group + 1, sizeof *x->node);
    for (uint32_t b = 0, d = 0; b < x->n_bin; b++) {
        x->bin[b].from = x->bin[b].to = x->n_edge;
        while (x->bin[b].worker >= x->new[d].first + x->new[d].n)
            d++;
        const device *old = x->new[d].partner == NONE ? NULL : &x->old[x->new[d].partner];
        for (uint32_t i = 0; old && i < old->n; i++) {
            uint32_t w = old->first + i, g = x->group_of[w];
            if (g == NONE || !is_equal_slice(&from->worker[w], &to->worker[x->bin[b].worker]))
                continue;
            x->edge[x->n_edge++] = (edge){.bin = b, .group = g};
            x->node[g].to++;
        }
        x->bin[b].to = x->n_edge;
    }
    x->by_group = weft_arena_array(x->arena, x->n_edge + 1, sizeof *x->by_group);
    for (uint32_t g = 0, at = 0; g < to->n_group; g++) {
        uint32_t n = x->node[g].to;
        x->node[g] = (node){.free = to->group[g].n, .from = at, .to = at};
        at += n;
    }
    for (uint32_t e = 0; e < x->n_edge; e++)
        x->by_group[x->node[x->edge[e].group].to++] = e;
}

/* Takes the edge at the end of a path, and gives up every other edge of it. */
static void flip_path(exchange *x, uint32_t e, uint32_t start)
{
    x->node[x->edge[e].group].free--;
    for (;;) {
        uint32_t b = x->edge[e].bin;
        x->edge[e].stays = true;
        if (b == start)
            break;
        x->edge[x->bin[b].path].stays = false;
        e = x->node[x->edge[x->bin[b].path].group].path;
    }
    x->bin[start].free--;
}

/* One more edge for a bin; false: no path leads from it to a group that lacks one. */
static bool augment(exchange *x, uint32_t start)
{
    uint32_t n = 0;
    x->search++;
    x->queue[n++] = start;
    x->bin[start].seen = x->search;
    for (uint32_t at = 0; at < n; at++) {
        const bin *b = &x->bin[x->queue[at]];
        for (uint32_t e = b->from; e < b->to; e++) {
            node *g = &x->node[x->edge[e].group];
            if (x->edge[e].stays || g->seen == x->search)
                continue;
            g->seen = x->search;
            g->path = e;
            if (g->free > 0) {
                flip_path(x, e, start);
                return true;
            }
            for (uint32_t i = g->from; i < g->to; i++) {
                const edge *back = &x->edge[x->by_group[i]];
                bin *next = &x->bin[back->bin];
                if (!back->stays || next->dead || next->seen == x->search)
                    continue;
                next->seen = x->search;
                next->path = x->by_group[i];
                x->queue[n++] = back->bin;
            }
        }
    }
    for (uint32_t at = 0; at < n; at++)
        x->bin[x->queue[at]].dead = true;
    return false;
}

static void match_workers(exchange *x)
{
    x->queue = weft_arena_array(x->arena, x->n_bin + 1, sizeof *x->queue);
    for (uint32_t b = 0; b < x->n_bin; b++)
        while (x->bin[b].free > 0 && !x->bin[b].dead && augment(x, b))
            ;
}

/* -- The new plan ------------------------------------------------------------------------------ */

/* Which worker each slice gets; slices and workers both by number of worker of the new plan. */
typedef struct filling {
    uint32_t *gets; /* by slice; NONE: it has none yet */
    bool *placed;   /* by worker */
} filling;

static void fill(const filling *f, uint32_t slice, uint32_t worker)
{
    f->gets[slice] = worker;
    f->placed[worker] = true;
}

/* The workers that stay, first those that the new plan has in the same bin, then any of the group.
 */
static void fill_with_staying(const exchange *x, const filling *f)
{
    const export_ctx *to = x->c->to;
    uint32_t n = to->n_worker;
    uint32_t *next = weft_arena_array(x->arena, to->n_group + 1, sizeof *next);
    bool *done = weft_arena_array(x->arena, x->n_edge + 1, sizeof *done);
    for (uint32_t e = 0; e < x->n_edge; e++) {
        const edge *one = &x->edge[e];
        uint32_t slice = x->bin[one->bin].worker;
        for (uint32_t i = slice; i < n && one->stays && !done[e]; i++) {
            if (to->worker[i].device != to->worker[slice].device)
                break;
            if (f->placed[i] || to->worker[i].group != one->group || x->bin_of[i] != one->bin)
                continue;
            fill(f, i, i);
            done[e] = true;
        }
    }
    for (uint32_t e = 0; e < x->n_edge; e++) {
        const edge *one = &x->edge[e];
        uint32_t slice = x->bin[one->bin].worker, *at = &next[one->group];
        if (!one->stays || done[e])
            continue;
        while (f->placed[*at] || to->worker[*at].group != one->group)
            ++*at;
        while (f->gets[slice] != NONE || x->bin_of[slice] != one->bin)
            slice++;
        fill(f, slice, *at);
    }
}

/* All others, in their own slices where these are left. */
static void fill_rest(const exchange *x, const filling *f)
{
    const export_ctx *to = x->c->to;
    weft_map *from = weft_map_create(x->arena); /* by kind of slice: where the search goes on */
    for (uint32_t i = 0; i < to->n_worker; i++)
        if (f->gets[i] == NONE && !f->placed[i])
            fill(f, i, i);
    for (uint32_t i = 0; i < to->n_worker; i++) {
        const export_worker *w = &to->worker[i];
        uint64_t key = weft_hash64(w->type, strlen(w->type), w->kind), at = 0;
        key = weft_hash64(w->slice, strlen(w->slice), key);
        if (f->gets[i] != NONE)
            continue;
        (void)weft_map_get(from, key, &at);
        while (f->placed[at] || !is_equal_slice(&to->worker[at], w))
            at++;
        weft_map_put(from, key, at);
        fill(f, i, (uint32_t)at);
    }
}

/* Whether the MPS shares of each device fit on it together. */
static bool fit_shares(const exchange *x, const filling *f)
{
    const export_ctx *to = x->c->to;
    for (uint32_t d = 0; d < x->n_new; d++) {
        uint32_t first = x->new[d].first;
        change_shares sum = {0};
        for (uint32_t i = 0; i < x->new[d].n; i++)
            weft_change__add_shares(&sum, &to->worker[f->gets[first + i]]);
        if (to->worker[first].kind == WEFT_SLICE_MPS &&
            !weft_change__fit_shares(x->c, &sum, to->worker[first].type,
                                     to->plan->rules.mem_reserve))
            return false;
    }
    return true;
}

/* Gives workers the slices that they get. NULL: they have them. */
static const weft_plan *move_workers(const exchange *x, const filling *f)
{
    const export_ctx *to = x->c->to;
    weft_plan *plan = weft_arena_array(x->arena, 1, sizeof *plan);
    bool any = false;
    *plan = *to->plan;
    plan->at = weft_arena_array(x->arena, plan->n + 1, sizeof *plan->at);
    memcpy(plan->at, to->plan->at, plan->n * sizeof *plan->at);
    for (uint32_t i = 0; i < to->n_worker; i++) {
        const export_worker *w = &to->worker[f->gets[i]];
        const weft_placement *slice = to->worker[i].at[0];
        any = any || f->gets[i] != i;
        for (uint32_t k = 0; f->gets[i] != i && k < w->n; k++) {
            weft_placement *p = &plan->at[w->at[k] - to->plan->at];
            p->device = slice->device;
            p->slice_id = slice->slice_id;
            p->mig_start = slice->mig_start;
        }
    }
    return any ? plan : NULL;
}

/* The matching of devices, as far as they have a worker in common. */
static void keep_match(const exchange *x, uint32_t *match)
{
    for (uint32_t d = 0; d < x->n_new; d++) {
        const device *one = &x->new[d];
        bool any = one->partner != NONE && count_fitting(x, &x->old[one->partner], one, true) > 0;
        for (uint32_t i = 0; i < one->n; i++)
            match[one->first + i] = any ? x->old[one->partner].first : NONE;
    }
    const device *at = x->new;
    for (uint32_t e = 0; e < x->n_edge; e++) {
        while (x->bin[x->edge[e].bin].worker >= at->first + at->n)
            at++;
        for (uint32_t i = 0; x->edge[e].stays && i < at->n; i++)
            match[at->first + i] = x->old[at->partner].first;
    }
}

/* Workers that stay: edges, and on slices that are not exchanged what the devices have in common.
 */
static uint32_t count_staying(const exchange *x)
{
    uint32_t n = 0;
    for (uint32_t e = 0; e < x->n_edge; e++)
        n += x->edge[e].stays;
    for (uint32_t d = 0; d < x->n_new; d++) {
        const device *one = &x->new[d];
        if (one->partner != NONE && !may_exchange(x, &x->c->to->worker[one->first]))
            n += count_fitting(x, &x->old[one->partner], one, true);
    }
    return n;
}

/* One way to match devices, and with it the most workers that stay. */
static exchange try_match(const change *c, const uint32_t *match, bool shares, bool anew)
{
    exchange x = {.c = c, .arena = c->arena, .shares = shares};
    x.old = list_devices(c->from, c->arena, &x.n_old);
    x.new = list_devices(c->to, c->arena, &x.n_new);
    find_groups(&x);
    take_match(&x, match);
    if (anew)
        assign_devices(&x);
    else
        match_rest(&x);
    make_bins(&x);
    make_edges(&x);
    match_workers(&x);
    return x;
}

const weft_plan *weft_change__exchange(const change *c, uint32_t *match)
{
    uint32_t n = c->to->n_worker;
    bool fixed = weft_plan__is_fixed(c->to->plan, c->to->o.demands);
    for (int shares = fixed ? -1 : 1; shares >= 0; shares--) {
        exchange x = try_match(c, match, shares > 0, false);
        exchange other = try_match(c, match, shares > 0, true);
        const filling f = {.gets = weft_arena_array(c->arena, n + 1, sizeof *f.gets),
                           .placed = weft_arena_array(c->arena, n + 1, sizeof *f.placed)};
        if (count_staying(&other) > count_staying(&x))
            x = other;
        for (uint32_t i = 0; i < n; i++)
            f.gets[i] = NONE;
        fill_with_staying(&x, &f);
        fill_rest(&x, &f);
        if (!fit_shares(&x, &f))
            continue;
        keep_match(&x, match);
        return move_workers(&x, &f);
    }
    return NULL;
}
