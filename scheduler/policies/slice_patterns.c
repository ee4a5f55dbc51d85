/* How the devices of a fleet are split: the patterns of its integer program.
 *
 * A pattern says how many slots of each kind a device has: one for a whole device, the maximal
 * multisets of instances for MIG. MPS shares of a device or of an instance share its memory and its
 * clients, and the slices of a CPU its memory, so their kinds differ in percentage or cores, memory
 * and processes; the patterns are the maximal multisets of kinds that fit, found by depth-first
 * search from large to small. Where all slices together can never exceed the memory (or the
 * clients), these do not count, which leaves one kind for each percentage or number of cores.
 * Maximal patterns suffice, since a slot may stay empty, and a slot is good for every column of its
 * kind.
 *
 * With too many kinds, each of a few devices has one slot of its own for all shares, in which the
 * program limits percentages, memory and processes; with many devices, and on CPUs, memory and
 * clients are ignored. That only makes the program looser: its bound stays right, and the builder
 * checks the plan. */
#include "scheduler/policies/fleet_program.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

enum {
    PATTERNS_MAX = 5000,
    KINDS_MAX = 400,
    VISITS_MAX = 400000,
    OWN_MAX = 3000 /* columns, over the devices with slots of their own */
};

typedef struct listing {
    const weft_builder *builder;
    weft_slice_columns *columns;
    weft_slice_patterns *out;
    bool loose; /* slots of their own, or memory and clients of pools are ignored */
    uint32_t visits;
} listing;

/* -- Kinds of slots --------------------------------------------------------------------------- */

/* Slices that have memory in common: MPS shares, and those of a CPU. */
static bool is_pooled(const weft_fleet_slice *spec)
{
    return spec->percent > 0 || spec->kind == WEFT_SLICE_CORES;
}

/* How many slices of so many cores a CPU has; 0 cores: of any number. */
static uint32_t count_cores(const weft_fleet_device *row, uint32_t cores)
{
    uint32_t n = row->n_slice == 0 && (cores == 0 || cores == row->cores);
    for (size_t i = 0; i < row->n_slice; i++)
        n += cores == 0 || row->slice_cores[i] == cores;
    return n;
}

/* Whether slices of this pool can together exceed its memory or its clients. */
typedef struct pressure {
    bool mem, clients;
} pressure;

static bool same_pool(const weft_shape *a, const weft_shape *b)
{
    return a->row == b->row && a->spec.kind == b->spec.kind && a->spec.mig == b->spec.mig &&
           is_pooled(&a->spec) && is_pooled(&b->spec);
}

static uint32_t clients_max(const weft_mig_profile *mig)
{
    return mig ? weft_fleet__mig_clients_max(mig) : WEFT_MPS_CLIENTS_MAX;
}

/* By shape. */
static pressure *list_pressures(const listing *l)
{
    uint32_t n = l->builder->table.n_shape;
    const weft_shape *shape = l->builder->table.shape;
    bool any = l->builder->problem->rules.oversubscribe;
    pressure *list = weft_arena_array(l->builder->arena, n, sizeof *list);
    for (uint32_t i = 0; i < l->columns->at.len && !l->loose; i++) {
        const weft_slice_column *c = &l->columns->at.at[i];
        const weft_shape *s = &shape[c->shape];
        bool cores = s->spec.kind == WEFT_SLICE_CORES;
        double part = cores ? 1.0 / count_cores(s->row, 0) : s->spec.percent / 100.0;
        pressure *own = &list[c->shape];
        own->mem = own->mem || any ||
                   (s->spec.mem_bytes && (double)c->mem_bytes > part * (double)s->spec.mem_bytes);
        own->clients =
            !cores && (own->clients || any || c->clients > part * clients_max(s->spec.mig));
    }
    /* what one shape of a pool can do, its pool can */
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < n; k++)
            if ((list[k].mem || list[k].clients) && same_pool(&shape[k], &shape[i])) {
                list[i].mem = list[i].mem || list[k].mem;
                list[i].clients = list[i].clients || list[k].clients;
            }
    return list;
}

static uint32_t find_slot(listing *l, const weft_slot_kind *kind)
{
    for (uint32_t i = 0; i < l->out->slots.len; i++) {
        const weft_slot_kind *k = &l->out->slots.at[i];
        if (k->row == kind->row && k->kind == kind->kind && k->mig == kind->mig &&
            k->nested == kind->nested && k->percent == kind->percent &&
            k->clients == kind->clients && k->mem_bytes == kind->mem_bytes &&
            k->cores == kind->cores && k->demand == kind->demand && k->own == kind->own)
            return i;
    }
    WEFT_VEC_PUSH(l->builder->arena, &l->out->slots, *kind);
    return l->out->slots.len - 1;
}

static weft_slot_kind slot_of(const listing *l, const weft_slice_column *c, pressure p)
{
    const weft_shape *s = &l->builder->table.shape[c->shape];
    bool nested = weft_fleet_slice__is_nested(&s->spec);
    weft_slot_kind k = {.row = s->row,
                        .kind = s->spec.kind,
                        .mig = s->spec.mig,
                        .nested = nested,
                        .percent = s->spec.percent,
                        .cores = s->spec.cores,
                        .demand = NONE};
    if (is_pooled(&s->spec)) {
        k.mem_bytes = p.mem ? c->mem_bytes : 0;
        k.clients = p.clients ? c->clients : 0;
    }
    if (nested && l->builder->problem->rules.isolated)
        k.demand = c->turn[0].demand;
    return k;
}

/* `apart`: columns of MPS shares of devices have their slots already. */
static void name_slots(listing *l, bool apart)
{
    const pressure *pressures = list_pressures(l);
    for (uint32_t i = 0; i < l->columns->at.len; i++) {
        weft_slice_column *c = &l->columns->at.at[i];
        if (apart && l->builder->table.shape[c->shape].spec.kind == WEFT_SLICE_MPS)
            continue;
        weft_slot_kind kind = slot_of(l, c, pressures[c->shape]);
        c->slot = find_slot(l, &kind);
    }
}

/* Gives the columns of MPS shares of devices slots of their own, with a copy for each device;
 * false: too many. */
static bool take_apart(listing *l)
{
    uint32_t n = l->columns->at.len;
    uint64_t copies = 0;
    for (uint32_t i = 0; i < n; i++) {
        const weft_shape *s = &l->builder->table.shape[l->columns->at.at[i].shape];
        copies += s->spec.kind == WEFT_SLICE_MPS ? s->row->count : 0;
    }
    if (copies > OWN_MAX)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        weft_slice_column c = l->columns->at.at[i];
        const weft_shape *s = &l->builder->table.shape[c.shape];
        for (uint32_t k = 0; s->spec.kind == WEFT_SLICE_MPS && k < s->row->count; k++) {
            weft_slot_kind kind = {
                .row = s->row, .kind = WEFT_SLICE_MPS, .demand = NONE, .own = k + 1};
            c.slot = find_slot(l, &kind);
            if (k == 0)
                l->columns->at.at[i] = c;
            else
                WEFT_VEC_PUSH(l->builder->arena, &l->columns->at, c);
        }
    }
    return true;
}

/* -- Patterns --------------------------------------------------------------------------------- */

static void add_pattern(listing *l, const weft_fleet_device *row, weft_fleet_slice_kind kind,
                        uint32_t inside, const weft_slot_count *has, uint32_t n)
{
    if (l->out->at.len == PATTERNS_MAX) {
        l->out->complete = false;
        return;
    }
    weft_slot_count *copy = weft_arena_array(l->builder->arena, n + 1u, sizeof *copy);
    memcpy(copy, has, n * sizeof *copy);
    weft_slice_pattern p = {.row = row, .kind = kind, .inside = inside, .has = copy, .n = n};
    WEFT_VEC_PUSH(l->builder->arena, &l->out->at, p);
}

static void add_mig(listing *l, const weft_fleet_device *row)
{
    const weft_device_type *type = weft_device_type_find(row->type);
    weft_mig_shape shape = weft_mig__shape(type);
    weft_mig_count set[WEFT_MIG_SETS_MAX];
    if (shape.n == 0) {
        l->out->complete = false;
        return;
    }
    size_t n = weft_mig__multisets(&shape, true, set, WEFT_MIG_SETS_MAX);
    for (size_t i = 0; i < n; i++) {
        weft_slot_count has[WEFT_MIG_PROFILES_MAX];
        uint32_t len = 0;
        for (uint32_t k = 0; k < shape.n; k++) {
            uint32_t p = shape.order[k];
            weft_slot_kind kind = {
                .row = row, .kind = WEFT_SLICE_MIG, .mig = &type->mig[p], .demand = NONE};
            if (set[i].of[p] > 0)
                has[len++] = (weft_slot_count){find_slot(l, &kind), set[i].of[p]};
        }
        add_pattern(l, row, WEFT_SLICE_MIG, NONE, has, len);
    }
}

/* -- Pools ------------------------------------------------------------------------------------ */

typedef struct pool {
    listing *l;
    const weft_slot_kind *like;
    uint32_t kinds[KINDS_MAX], n;
    uint32_t count[KINDS_MAX];
    uint32_t inside;
    bool any_percent; /* shares may sum to more than 100 % */
    bool counts_mem;  /* a kind says how much memory it takes */
} pool;

typedef struct room {
    int64_t percent, clients;
    uint64_t mem_bytes; /* UINT64_MAX: no limit */
} room;

/* Slices of a CPU with as many cores as those of a kind that no slot takes yet. */
static uint32_t count_left(const pool *p, const weft_slot_kind *k)
{
    uint32_t n = count_cores(k->row, k->cores);
    for (uint32_t i = 0; i < p->n; i++)
        n -= p->l->out->slots.at[p->kinds[i]].cores == k->cores ? p->count[i] : 0;
    return n;
}

/* How many slots of a kind fit. */
static uint32_t most_of(const pool *p, const weft_slot_kind *k, const room *r)
{
    int64_t n = p->any_percent || k->percent == 0 ? INT32_MAX : r->percent / k->percent;
    if (k->kind == WEFT_SLICE_CORES)
        n = count_left(p, k);
    if (k->clients > 0 && r->clients / k->clients < n)
        n = r->clients / k->clients;
    if (k->mem_bytes > 0 && (int64_t)(r->mem_bytes / k->mem_bytes) < n &&
        r->mem_bytes != UINT64_MAX)
        n = (int64_t)(r->mem_bytes / k->mem_bytes);
    return n > WEFT_FLEET_CORES_MAX ? WEFT_FLEET_CORES_MAX : (uint32_t)n;
}

static bool is_maximal(const pool *p, const room *r)
{
    for (uint32_t i = 0; i < p->n; i++)
        if (most_of(p, &p->l->out->slots.at[p->kinds[i]], r) > 0)
            return false;
    return true;
}

static void visit(pool *p, uint32_t at, const room *r)
{
    listing *l = p->l;
    if (l->visits++ >= VISITS_MAX || l->out->at.len >= PATTERNS_MAX) {
        l->out->complete = false;
        return;
    }
    if (at == p->n) {
        weft_slot_count has[KINDS_MAX];
        uint32_t len = 0;
        if (!is_maximal(p, r))
            return;
        for (uint32_t i = 0; i < p->n; i++)
            if (p->count[i] > 0)
                has[len++] = (weft_slot_count){p->kinds[i], p->count[i]};
        add_pattern(l, p->like->row, p->like->kind, p->inside, has, len);
        return;
    }
    const weft_slot_kind *k = &l->out->slots.at[p->kinds[at]];
    for (uint32_t n = most_of(p, k, r) + 1; n-- > 0;) {
        room rest = {.percent = r->percent - (int64_t)n * k->percent,
                     .clients = r->clients - (int64_t)n * k->clients,
                     .mem_bytes =
                         r->mem_bytes == UINT64_MAX ? UINT64_MAX : r->mem_bytes - n * k->mem_bytes};
        p->count[at] = n;
        visit(p, at + 1, &rest);
        if (k->kind == WEFT_SLICE_CORES && !p->counts_mem)
            break; /* fewer leave slices of these cores, and no other kind takes them */
    }
    p->count[at] = 0;
}

static bool is_of_pool(const weft_slot_kind *k, const weft_slot_kind *like)
{
    return k->row == like->row && k->kind == like->kind && k->mig == like->mig &&
           (k->percent > 0 || k->kind == WEFT_SLICE_CORES) && k->demand == like->demand;
}

/* Lists the patterns of the pool to which slot kind `first`, the first of the pool, belongs. */
static void add_pool(listing *l, uint32_t first)
{
    weft_slot_kind like = l->out->slots.at[first];
    pool *p = weft_arena_array(l->builder->arena, 1, sizeof *p);
    *p = (pool){.l = l,
                .like = &like,
                .inside = NONE,
                .any_percent = l->builder->problem->rules.oversubscribe};
    if (like.nested) {
        weft_slot_kind whole = {
            .row = like.row, .kind = WEFT_SLICE_MIG, .mig = like.mig, .demand = NONE};
        p->inside = find_slot(l, &whole);
    }
    uint64_t mem = 0;
    for (uint32_t i = first; i < l->out->slots.len; i++)
        if (is_of_pool(&l->out->slots.at[i], &like)) {
            if (p->n == KINDS_MAX) {
                l->out->complete = false;
                return;
            }
            /* large percentages first */
            uint32_t at = p->n++;
            for (;
                 at > 0 && l->out->slots.at[i].percent > l->out->slots.at[p->kinds[at - 1]].percent;
                 at--)
                p->kinds[at] = p->kinds[at - 1];
            p->kinds[at] = i;
            p->counts_mem = p->counts_mem || l->out->slots.at[i].mem_bytes > 0;
        }
    for (uint32_t s = 0; s < l->builder->table.n_shape; s++) {
        const weft_shape *shape = &l->builder->table.shape[s];
        if (shape->row == like.row && shape->allowed && shape->spec.kind == like.kind &&
            shape->spec.mig == like.mig && is_pooled(&shape->spec))
            mem = shape->spec.mem_bytes;
    }
    room r = {
        .percent = 100, .clients = clients_max(like.mig), .mem_bytes = mem ? mem : UINT64_MAX};
    visit(p, 0, &r);
}

static void list(listing *l)
{
    weft_slice_patterns *out = l->out;
    *out = (weft_slice_patterns){.complete = true};
    bool apart = l->loose && take_apart(l);
    name_slots(l, apart);
    uint32_t n = out->slots.len;
    for (uint32_t i = 0; i < n; i++) {
        bool first = true;
        for (uint32_t j = 0; j < i; j++)
            first = first && !is_of_pool(&out->slots.at[j], &out->slots.at[i]);
        if ((out->slots.at[i].percent > 0 || out->slots.at[i].kind == WEFT_SLICE_CORES) && first)
            add_pool(l, i);
    }
    for (uint32_t i = 0; i < out->slots.len; i++) {
        weft_slot_kind k = out->slots.at[i];
        bool first = true;
        for (uint32_t j = 0; j < i; j++)
            first = first && !(out->slots.at[j].row == k.row && out->slots.at[j].kind == k.kind);
        if (k.kind == WEFT_SLICE_WHOLE || k.own)
            add_pattern(l, k.row, k.kind, NONE, &(weft_slot_count){i, 1}, 1);
        else if (k.kind == WEFT_SLICE_MIG && first)
            add_mig(l, k.row);
    }
}

void weft_patterns__list(const weft_builder *builder, weft_slice_columns *columns,
                         weft_slice_patterns *out)
{
    listing l = {.builder = builder, .columns = columns, .out = out};
    list(&l);
    if (out->complete || builder->problem->rules.oversubscribe)
        return;
    listing loose = {.builder = builder, .columns = columns, .out = out, .loose = true};
    list(&loose);
}
