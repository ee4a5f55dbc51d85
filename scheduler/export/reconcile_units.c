/* Reconciles what runs with a new plan: the same workers where both plans have them, and an order
 * in which the others start and end without less capacity than needed.
 *
 * Devices of both plans are matched by what is on them, or by their locations where the new plan
 * states these. A worker that both plans have on a device stays, with its name, port and part of
 * the plan: new rates alone change the front only. The other workers of the new plan get names and
 * ports that nothing has, so that old and new ones can run side by side. All of this is written
 * into the new plan as locations; the export of that plan has the same workers again. With a new
 * bundle (`restarts`) a worker that would stay is one of these others, in the same slice. */
#include "scheduler/export/reconcile_int.h"

#include "base/hash.h"
#include "base/map.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

static uint64_t hash_name(const char *name, uint64_t seed)
{
    return weft_hash64(name, strlen(name), seed);
}

/* -- Models ------------------------------------------------------------------------------------ */

static int find_name(const void *name, const void *at)
{
    return strcmp(name, *(const char *const *)at);
}

/* The models of both plans, each once, by name. */
static void list_models(change *c)
{
    const export_ctx *a = c->from, *b = c->to;
    c->model = weft_arena_array(c->arena, a->n_model + b->n_model + 1, sizeof *c->model);
    for (uint32_t i = 0, k = 0; i < a->n_model || k < b->n_model;) {
        int order = i == a->n_model ? 1 : k == b->n_model ? -1 : strcmp(a->model[i], b->model[k]);
        c->model[c->n_model++] = order <= 0 ? a->model[i] : b->model[k];
        i += order <= 0;
        k += order >= 0;
    }
    c->capacity = weft_arena_array(c->arena, c->n_model + 1, sizeof *c->capacity);
    c->needed = weft_arena_array(c->arena, c->n_model + 1, sizeof *c->needed);
}

static void list_parts(change *c, const export_ctx *ctx, change_unit *u)
{
    const export_worker *w = u->worker;
    WEFT_VEC(change_part) list = {0};
    for (uint32_t i = 0; i < w->n; i++) {
        export_part *part;
        size_t n = weft_export__parts(ctx, w->at[i], &part);
        for (size_t k = 0; k < n; k++) {
            const char **at =
                bsearch(part[k].model, c->model, c->n_model, sizeof *c->model, find_name);
            change_part one = {.model = (uint32_t)(at - c->model),
                               .rate_per_s = part[k].rate_per_s,
                               .capacity_per_s = w->at[i]->capacity_per_s / (double)n};
            WEFT_VEC_PUSH(c->arena, &list, one);
        }
    }
    u->part = list.at;
    u->n_part = list.len;
}

/* -- Nodes ------------------------------------------------------------------------------------- */

enum { NODE_GPUS_MAX = 64 }; /* indices that change_node counts */

static change_node *find_node(change *c, const char *name)
{
    for (uint32_t i = 0; i < c->node.len; i++)
        if (strcmp(c->node.at[i].name, name) == 0)
            return &c->node.at[i];
    return NULL;
}

static change_node *add_node(change *c, const char *name, const char *type,
                             weft_fleet_slice_kind kind)
{
    change_node *node = find_node(c, name), new = {.name = name, .type = type, .kind = kind};
    if (node)
        return node;
    WEFT_VEC_PUSH(c->arena, &c->node, new);
    return &c->node.at[c->node.len - 1];
}

static bool is_lost(const change *c, const char *node)
{
    return c->o->lost && strcmp(node, c->o->lost) == 0;
}

/* A node of the type with room for one more device, or a new one. */
static change_node *find_room(change *c, const char *type, weft_fleet_slice_kind kind)
{
    uint32_t most = c->to->o.gpus_per_node;
    uint64_t full = most >= NODE_GPUS_MAX ? UINT64_MAX : (1ull << most) - 1;
    for (uint32_t i = 0; i < c->node.len && kind != WEFT_SLICE_CORES; i++) {
        change_node *node = &c->node.at[i];
        if (node->kind == kind && strcmp(node->type, type) == 0 && (node->gpus & full) != full)
            return node;
    }
    for (uint32_t k = 0;; k++) {
        const char *name = weft_arena_printf(c->arena, "%s-%s-%u", c->to->o.name, type, k);
        name = weft_export__label(c->arena, name, WEFT_EXPORT_LABEL_MAX);
        if (!find_node(c, name) && !is_lost(c, name))
            return add_node(c, name, type, kind);
    }
}

/* The lowest port of the node that no worker has. */
static uint32_t take_port(change *c, const char *name)
{
    change_node *node = find_node(c, name);
    for (uint32_t port = c->to->o.port;; port += 10) {
        bool taken = false;
        for (uint32_t i = 0; i < node->ports.len && !taken; i++)
            taken = node->ports.at[i] == port;
        if (taken)
            continue;
        WEFT_VEC_PUSH(c->arena, &node->ports, port);
        return port;
    }
}

/* -- Places ------------------------------------------------------------------------------------ */

static uint32_t add_place(change *c, const char *type, weft_fleet_slice_kind kind,
                          const weft_location *where)
{
    change_place place = {.type = type, .kind = kind, .where = *where, .first = NONE};
    change_node *node = add_node(c, where->node, type, kind);
    place.where.worker = NULL;
    place.where.port = 0;
    if (where->gpu < NODE_GPUS_MAX)
        node->gpus |= 1ull << where->gpu;
    WEFT_VEC_PUSH(c->arena, &c->place, place);
    return c->place.len - 1;
}

static change_spare *find_spare(change *c, const char *type)
{
    for (uint32_t i = 0; i < c->spare.len; i++)
        if (strcmp(c->spare.at[i].type, type) == 0)
            return &c->spare.at[i];
    change_spare none = {.type = type};
    WEFT_VEC_PUSH(c->arena, &c->spare, none);
    return &c->spare.at[c->spare.len - 1];
}

/* Whether the old plan has the names of the fleet for its nodes. */
static bool is_of_fleet(const change *c, const weft_fleet_device *row)
{
    for (uint32_t i = 0; i < c->from->n_worker; i++) {
        const export_worker *w = &c->from->worker[i];
        if (strcmp(w->type, row->type) == 0)
            return weft_fleet__has_location(row, &w->where, c->arena);
    }
    return false;
}

/* A free device of a row, on a node that is split in the same way or not at all; NONE: none. */
static uint32_t take_of_fleet(change *c, const weft_fleet_device *row, weft_fleet_slice_kind kind)
{
    uint32_t per = row->per_domain[WEFT_DOMAIN_NODE];
    for (uint32_t i = 0; i < row->count; i += per) {
        weft_location where = weft_fleet__location(row, i, c->arena);
        const change_node *node = find_node(c, where.node);
        if (is_lost(c, where.node) || (node && node->kind != kind))
            continue;
        for (uint32_t k = 0; k < per && k < NODE_GPUS_MAX && i + k < row->count; k++) {
            where.gpu = k;
            if (!node || !(node->gpus >> k & 1))
                return add_place(c, row->type, kind, &where);
        }
    }
    return NONE;
}

uint32_t weft_change__take_spare(change *c, const char *type, weft_fleet_slice_kind kind)
{
    change_spare *spare = find_spare(c, type);
    uint32_t gpu = 0;
    if (spare->n == 0)
        return NONE;
    spare->n--;
    const weft_fleet *fleet = c->o->problem ? c->o->problem->fleet : NULL;
    const weft_fleet_device *row = fleet ? weft_fleet__row(fleet, type) : NULL;
    if (row && is_of_fleet(c, row))
        return take_of_fleet(c, row, kind);
    change_node *node = find_room(c, type, kind);
    while (node->gpus >> gpu & 1)
        gpu++;
    const weft_location where = {.node = node->name, .gpu = gpu};
    return add_place(c, type, kind, &where);
}

static uint32_t count_devices(const export_ctx *ctx, const char *type)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < ctx->n_worker; i++)
        n += strcmp(ctx->worker[i].type, type) == 0 &&
             (i == 0 || ctx->worker[i - 1].device != ctx->worker[i].device);
    return n;
}

/* Devices of each type that the old plan does not use. */
static void count_spare(change *c)
{
    const weft_fleet *fleet = c->o->problem ? c->o->problem->fleet : NULL;
    for (uint32_t i = 0; i < c->from->n_worker + c->to->n_worker; i++) {
        const export_worker *w =
            i < c->from->n_worker ? &c->from->worker[i] : &c->to->worker[i - c->from->n_worker];
        uint32_t known = c->spare.len;
        change_spare *spare = find_spare(c, w->type);
        if (c->spare.len == known)
            continue;
        uint32_t old = count_devices(c->from, w->type), all = count_devices(c->to, w->type);
        if (fleet) {
            const weft_fleet_device *row = weft_fleet__row(fleet, w->type);
            all = row ? row->count - weft_fleet__count_lost(row) : 0;
        }
        spare->n = all > old ? all - old : 0;
    }
}

/* -- Units ------------------------------------------------------------------------------------- */

static const weft_mig_profile *profile_of(const export_worker *w)
{
    return weft_device_type_mig(weft_device_type_find(w->type), w->slice);
}

/* Memory slots of an instance that starts at `start`; 0: it is none. */
static uint32_t mig_mask(const export_worker *w, int32_t start)
{
    const weft_mig_profile *profile = profile_of(w);
    return profile ? weft_device_type_mig_slots(profile, start) : 0;
}

static change_unit *add_unit(change *c, const export_ctx *ctx, const export_worker *w,
                             uint32_t place, const weft_location *where)
{
    change_unit u = {.worker = w,
                     .where = *where,
                     .group = ctx->group[w->group].name,
                     .place = place,
                     .next = c->place.at[place].first,
                     .mig_mask = mig_mask(w, w->mig_start),
                     .copy_of = NONE};
    list_parts(c, ctx, &u);
    c->place.at[place].first = c->unit.len;
    WEFT_VEC_PUSH(c->arena, &c->unit, u);
    return &c->unit.at[c->unit.len - 1];
}

static bool has_name(const change *c, uint32_t place, const char *name)
{
    for (uint32_t u = c->place.at[place].first; u != NONE; u = c->unit.at[u].next)
        if (strcmp(c->unit.at[u].where.worker, name) == 0)
            return true;
    return false;
}

/* A location at a place with a name and a port that no unit has. */
static weft_location name_unit(change *c, uint32_t place)
{
    weft_location where = c->place.at[place].where;
    size_t len = strlen(c->to->o.name);
    bool prefixed = strncmp(where.node, c->to->o.name, len) == 0 && where.node[len] == '-';
    for (uint32_t k = 0; !where.worker; k++) {
        const char *name =
            weft_arena_printf(c->arena, "%s%s%s-g%u-s%u", prefixed ? "" : c->to->o.name,
                              prefixed ? "" : "-", where.node, where.gpu, k);
        name = weft_export__label(c->arena, name, WEFT_EXPORT_LABEL_MAX);
        if (!has_name(c, place, name))
            where.worker = name;
    }
    where.port = take_port(c, where.node);
    return where;
}

void weft_change__add_copy(change *c, uint32_t unit, uint32_t place)
{
    const change_unit *of = &c->unit.at[unit];
    const weft_location where = name_unit(c, place);
    const export_ctx *ctx = c->from;
    const char *group = of->group;
    change_unit *u = add_unit(c, ctx, of->worker, place, &where);
    u->group = group;
    u->copy_of = unit;
    c->n_temporary++;
}

weft_plan *weft_change__plan(change *c, bool (*takes)(const change_unit *u))
{
    weft_plan *plan = weft_arena_array(c->arena, 1, sizeof *plan);
    size_t n = 0;
    *plan = *c->to->plan;
    for (uint32_t i = 0; i < c->unit.len; i++)
        n += takes(&c->unit.at[i]) ? c->unit.at[i].worker->n : 0;
    plan->at = weft_arena_array(c->arena, n + 1, sizeof *plan->at);
    plan->n = 0;
    for (uint32_t i = 0; i < c->unit.len; i++) {
        const change_unit *u = &c->unit.at[i];
        for (uint32_t k = 0; takes(u) && k < u->worker->n; k++) {
            weft_placement *p = &plan->at[plan->n++];
            *p = *u->worker->at[k];
            p->device = u->place;
            p->where = u->where;
            if (u->worker->kind == WEFT_SLICE_CORES) /* all its slices are one worker */
                p->slice_id += i * WEFT_FLEET_CORES_MAX;
            else
                p->slice_id = i;
        }
    }
    plan->gpus = c->place.len;
    plan->proven = false;
    return plan;
}

/* The workers of the old plan. *by_device: their places, by device of the plan. */
static void add_old(change *c, weft_map *by_device, weft_map *by_location)
{
    const export_ctx *ctx = c->from;
    size_t n = c->o->n_running;
    const char **running = weft_arena_array(c->arena, n + 1, sizeof *running);
    for (size_t i = 0; i < n; i++)
        running[i] = c->o->running[i];
    qsort(running, n, sizeof *running, weft_str_order);
    for (uint32_t i = 0; i < ctx->n_worker; i++) {
        const export_worker *w = &ctx->worker[i];
        weft_location where = w->where;
        uint64_t place;
        where.node = ctx->node[w->node].name;
        where.gpu = w->gpu;
        where.worker = w->name;
        where.port = w->port;
        if (!weft_map_get(by_device, w->device, &place)) {
            place = add_place(c, w->type, w->kind, &where);
            weft_map_put(by_device, w->device, place);
            weft_map_put(by_location, hash_name(where.node, where.gpu), place);
        }
        change_unit *u = add_unit(c, ctx, w, (uint32_t)place, &where);
        change_node *node = find_node(c, where.node);
        WEFT_VEC_PUSH(c->arena, &node->ports, where.port);
        bool runs = !c->o->running || bsearch(w->name, running, n, sizeof *running, find_name);
        u->state = runs ? CHANGE_RUNS : CHANGE_ENDED;
    }
}

/* A place for a device of the new plan that is no device of the old one: a spare one, else one that
 * the new plan leaves. */
static uint32_t find_place(change *c, const export_worker *w)
{
    uint32_t other = NONE;
    if (w->where.node) {
        change_spare *of_type = find_spare(c, w->type);
        of_type->n -= of_type->n > 0;
        return add_place(c, w->type, w->kind, &w->where);
    }
    uint32_t spare = weft_change__take_spare(c, w->type, w->kind);
    if (spare != NONE)
        return spare;
    for (uint32_t i = 0; i < c->place.len; i++) {
        const change_place *p = &c->place.at[i];
        if (p->matched || strcmp(p->type, w->type) != 0)
            continue;
        if (p->kind == w->kind)
            return i;
        other = other == NONE ? i : other;
    }
    return other;
}

/* The places of the devices of the new plan, by device: first those of the old plan, then others.
 */
static weft_err find_places(change *c, const weft_map *by_device, const weft_map *by_location,
                            weft_map *place_of)
{
    const export_ctx *ctx = c->to;
    const uint32_t *match = c->match;
    for (uint32_t i = 0; i < ctx->n_worker; i++) {
        const export_worker *w = &ctx->worker[i];
        uint64_t place;
        bool found = w->where.node
                         ? weft_map_get(by_location, hash_name(w->where.node, w->where.gpu), &place)
                         : match[i] != NONE &&
                               weft_map_get(by_device, c->from->worker[match[i]].device, &place);
        if (!found || weft_map_get(place_of, w->device, &(uint64_t){0}))
            continue;
        weft_map_put(place_of, w->device, place);
        c->place.at[place].matched = true;
    }
    for (uint32_t i = 0; i < ctx->n_worker; i++) {
        const export_worker *w = &ctx->worker[i];
        if (weft_map_get(place_of, w->device, &(uint64_t){0}))
            continue;
        uint32_t place = find_place(c, w);
        if (place == NONE)
            return weft_diag_error(c->diag, WEFT_ERR_INFEASIBLE, (weft_where){.item = w->type},
                                   "the new plan has more of these devices than the fleet");
        weft_map_put(place_of, w->device, place);
        c->place.at[place].matched = true;
    }
    return WEFT_ERR_OK;
}

/* -- Workers of the new plan ------------------------------------------------------------------- */

enum { ARRANGED_MAX = 16 }; /* workers of one device */

/* The workers of one device of the new plan at its place. */
typedef struct arrangement {
    const export_worker *worker;
    uint32_t n, place;
    uint32_t same[ARRANGED_MAX]; /* the unit of the old plan that each is; NONE: it starts */
    int32_t start[ARRANGED_MAX]; /* memory slots; -1 without MIG */
} arrangement;

static bool is_taken(const arrangement *a, uint32_t unit)
{
    for (uint32_t i = 0; i < a->n; i++)
        if (a->same[i] == unit)
            return true;
    return false;
}

/* A unit of the old plan that does the same as worker i and that no other worker is; NONE: none. */
static uint32_t find_same(const change *c, const arrangement *a, uint32_t i, bool moved)
{
    const export_worker *w = &a->worker[i];
    for (uint32_t u = c->place.at[a->place].first; u != NONE; u = c->unit.at[u].next) {
        const change_unit *unit = &c->unit.at[u];
        if (!unit->stays && (moved || unit->worker->mig_start == w->mig_start) && !is_taken(a, u) &&
            weft_export__same_work(unit->worker, w))
            return u;
    }
    return NONE;
}

/* A search for starts of instances with which most workers stay. */
typedef struct arranging {
    const arrangement *wish; /* `same`: which unit each worker could be */
    arrangement *best;
    uint32_t kept; /* workers that stay in `best`, + 1; 0: none was found */
    uint32_t tries;
} arranging;

enum { ARRANGING_TRIES = 20000 };

/* Workers from i on; `taken`: slots. `kept` of those before stay. */
static void arrange_rest(arranging *s, arrangement *a, uint32_t i, uint32_t taken, uint32_t kept)
{
    uint32_t most = kept + 1;
    for (uint32_t k = i; k < a->n; k++)
        most += s->wish->same[k] != NONE;
    if (most <= s->kept || s->tries == 0)
        return;
    s->tries--;
    if (i == a->n) {
        *s->best = *a;
        s->kept = kept + 1;
        return;
    }
    const export_worker *w = &a->worker[i];
    uint32_t starts = profile_of(w)->starts;
    a->same[i] = s->wish->same[i];
    a->start[i] = s->wish->start[i];
    if (a->same[i] != NONE && !(mig_mask(w, a->start[i]) & taken))
        arrange_rest(s, a, i + 1, taken | mig_mask(w, a->start[i]), kept + 1);
    a->same[i] = NONE;
    for (int32_t k = -1; k < 32; k++) { /* its own start first */
        a->start[i] = k < 0 ? w->mig_start : k;
        uint32_t mask = mig_mask(w, a->start[i]);
        if (a->start[i] < 32 && (starts >> a->start[i] & 1) && !(mask & taken))
            arrange_rest(s, a, i + 1, taken | mask, kept);
    }
}

static void arrange(const change *c, arrangement *a)
{
    bool mig = a->worker->mig_start >= 0;
    for (uint32_t i = 0; i < a->n; i++) {
        a->same[i] = NONE;
        a->start[i] = a->worker[i].mig_start;
    }
    for (uint32_t i = 0; i < a->n; i++)
        a->same[i] = find_same(c, a, i, !mig);
    if (!mig)
        return;
    arrangement wish = *a, room = *a;
    arranging s = {.wish = &wish, .best = a, .tries = ARRANGING_TRIES};
    for (uint32_t i = 0; i < wish.n; i++) {
        if (wish.same[i] == NONE)
            wish.same[i] = find_same(c, &wish, i, true);
        if (wish.same[i] != NONE)
            wish.start[i] = c->unit.at[wish.same[i]].worker->mig_start;
    }
    arrange_rest(&s, &room, 0, 0, 0);
}

/* A worker of the new plan with placements that have their own copy in `located`. */
static const export_worker *copy_worker(change *c, const export_worker *w, int32_t start,
                                        weft_placement *located)
{
    export_worker *copy = weft_arena_array(c->arena, 1, sizeof *copy);
    *copy = *w;
    copy->mig_start = start;
    copy->at = weft_arena_array(c->arena, w->n, sizeof *copy->at);
    for (uint32_t k = 0; k < w->n; k++) {
        weft_placement *p = &located[w->at[k] - c->to->plan->at];
        p->mig_start = start;
        copy->at[k] = p;
    }
    return copy;
}

static void add_arranged(change *c, const arrangement *a, weft_placement *located)
{
    const export_ctx *ctx = c->to;
    for (uint32_t i = 0; i < a->n; i++) {
        const export_worker *w = copy_worker(c, &a->worker[i], a->start[i], located);
        uint32_t same = a->same[i];
        if (same != NONE && !c->restarts) {
            change_unit *u = &c->unit.at[same];
            u->stays = true;
            u->state = u->state == CHANGE_RUNS ? CHANGE_RUNS : CHANGE_WAITS;
            u->worker = w;
            list_parts(c, ctx, u);
        } else {
            const weft_location where = name_unit(c, a->place);
            same = c->unit.len;
            add_unit(c, ctx, w, a->place, &where)->stays = true;
        }
        for (uint32_t k = 0; k < w->n; k++)
            located[w->at[k] - located].where = c->unit.at[same].where;
    }
}

/* The workers of the new plan. `located`: its placements, which get their locations. */
static weft_err add_new(change *c, const weft_map *place_of, weft_placement *located)
{
    const export_ctx *ctx = c->to;
    for (uint32_t i = 0, end; i < ctx->n_worker; i = end) {
        uint64_t place = 0;
        for (end = i; end < ctx->n_worker && ctx->worker[end].device == ctx->worker[i].device;)
            end++;
        (void)weft_map_get(place_of, ctx->worker[i].device, &place);
        /* Shares, which have no place on their device, one by one. */
        bool mig = ctx->worker[i].mig_start >= 0;
        if (mig && end - i > ARRANGED_MAX)
            return weft_diag_error(c->diag, WEFT_ERR_INPUT, (weft_where){0},
                                   "device %u has more than %d instances", ctx->worker[i].device,
                                   ARRANGED_MAX);
        end = mig ? end : i + 1;
        arrangement a = {.worker = &ctx->worker[i], .n = end - i, .place = (uint32_t)place};
        arrange(c, &a);
        add_arranged(c, &a, located);
    }
    return WEFT_ERR_OK;
}

/* -- What is needed ---------------------------------------------------------------------------- */

static void find_needs(change *c)
{
    double *later = weft_arena_array(c->arena, c->n_model + 1, sizeof *later);
    double *rate = weft_arena_array(c->arena, c->n_model + 1, sizeof *rate);
    for (uint32_t i = 0; i < c->unit.len; i++) {
        const change_unit *u = &c->unit.at[i];
        for (uint32_t k = 0; k < u->n_part; k++) {
            const change_part *p = &u->part[k];
            if (u->state == CHANGE_RUNS)
                c->capacity[p->model] += p->capacity_per_s;
            if (u->stays) {
                later[p->model] += p->capacity_per_s;
                rate[p->model] += p->rate_per_s;
            }
        }
    }
    /* A model without a rate keeps some worker. */
    for (uint32_t m = 0; m < c->n_model; m++)
        c->needed[m] = fmin(rate[m] > 0 ? rate[m] : HUGE_VAL, fmin(later[m], c->capacity[m])) *
                       (rate[m] > 0 ? 1 : 1e-6);
}

weft_err weft_change__begin(change *c, weft_placement *located, uint32_t *out_least)
{
    weft_map *by_device = weft_map_create(c->arena), *by_location = weft_map_create(c->arena);
    weft_map *place_of = weft_map_create(c->arena);
    list_models(c);
    count_spare(c);
    add_old(c, by_device, by_location);
    WEFT_TRY(find_places(c, by_device, by_location, place_of));
    WEFT_TRY(add_new(c, place_of, located));
    find_needs(c);
    *out_least = weft_change__least_starts(c);
    return WEFT_ERR_OK;
}
