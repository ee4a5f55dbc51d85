/* A lower bound on the workers that start, whatever device of the old plan each device of the new
 * one is, and whichever of two equal slices a worker has.
 *
 * Of each device type two bounds on the workers that stay hold, and the smaller one counts: of each
 * group those that run and that the new plan has; and, up to CHANGE_ASSIGNED_MAX devices, the
 * largest sum over a matching of old and new devices, of which each pair keeps at most as many
 * workers of a kind of slice as the one runs and the other has slices (assignment problem; H. W.
 * Kuhn, The Hungarian method for the assignment problem, 1955, in the form with potentials,
 * O(n^3)). Starts that the positions of MIG instances force are not counted. */
#include "scheduler/export/reconcile_int.h"

#include "base/hash.h"
#include "base/map.h"

#include <string.h>

#define NONE UINT32_MAX

/* Slices of one kind on a device, or workers on them. */
typedef struct slices {
    uint64_t kind;
    uint32_t n;
} slices;

typedef struct device {
    slices *at;
    uint32_t n;
} device;

typedef struct bound {
    const change *c;
    weft_map *wanted; /* by group, hash of its name: workers of the new plan */
    const char *type;
    device *old, *new;
    uint32_t n_old, n_new;
    uint32_t workers, by_group; /* of the new plan; that stay at most, by groups */
} bound;

static uint64_t hash_of(const char *name)
{
    return weft_hash64(name, strlen(name), 0);
}

static void add_slice(device *d, const export_worker *w)
{
    uint64_t kind = weft_hash64(w->slice, strlen(w->slice), w->kind);
    uint32_t i = 0;
    while (i < d->n && d->at[i].kind != kind)
        i++;
    if (i == d->n)
        d->at[d->n++] = (slices){.kind = kind};
    d->at[i].n++;
}

/* -- Devices of a type ------------------------------------------------------------------------- */

/* Old devices with the slices of workers that run and that the new plan has somewhere. */
static void list_old(bound *b)
{
    const change *c = b->c;
    weft_map *total = weft_map_create(c->arena);
    b->old = weft_arena_array(c->arena, c->place.len + 1, sizeof *b->old);
    for (uint32_t p = 0; p < c->place.len; p++) {
        device *d = &b->old[b->n_old];
        uint32_t n_unit = 0;
        if (strcmp(c->place.at[p].type, b->type) != 0)
            continue;
        for (uint32_t i = c->place.at[p].first; i != NONE; i = c->unit.at[i].next)
            n_unit++;
        weft_map *here = weft_map_create(c->arena);
        d->at = weft_arena_array(c->arena, (size_t)n_unit + 1, sizeof *d->at);
        for (uint32_t i = c->place.at[p].first; i != NONE; i = c->unit.at[i].next) {
            const change_unit *u = &c->unit.at[i];
            uint64_t key = hash_of(u->group), wanted = 0, n = 0, all = 0;
            if (u->state != CHANGE_RUNS || !weft_map_get(b->wanted, key, &wanted))
                continue;
            (void)weft_map_get(here, key, &n);
            (void)weft_map_get(total, key, &all);
            weft_map_put(here, key, n + 1);
            weft_map_put(total, key, all + 1);
            b->by_group += all < wanted;
            if (n < wanted)
                add_slice(d, u->worker);
        }
        b->n_old += d->n > 0;
    }
}

static void list_new(bound *b)
{
    const export_ctx *to = b->c->to;
    b->new = weft_arena_array(b->c->arena, to->n_worker + 1, sizeof *b->new);
    for (uint32_t i = 0, end; i < to->n_worker; i = end) {
        device *d = &b->new[b->n_new];
        for (end = i; end < to->n_worker && to->worker[end].device == to->worker[i].device;)
            end++;
        if (strcmp(to->worker[i].type, b->type) != 0)
            continue;
        d->at = weft_arena_array(b->c->arena, end - i, sizeof *d->at);
        for (uint32_t k = i; k < end; k++)
            add_slice(d, &to->worker[k]);
        b->workers += end - i;
        b->n_new++;
    }
}

/* -- The assignment ---------------------------------------------------------------------------- */

static int32_t weigh(const device *old, const device *new)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < old->n; i++)
        for (uint32_t k = 0; k < new->n; k++)
            if (old->at[i].kind == new->at[k].kind)
                sum += old->at[i].n < new->at[k].n ? old->at[i].n : new->at[k].n;
    return (int32_t)sum;
}

/* Rows and columns are numbered from 1; column 0 is where a path begins. */
typedef struct assignment {
    const int32_t *weight;
    uint32_t n, size;
    int32_t *u, *v, *least;
    uint32_t *row, *from;
    bool *used;
} assignment;

/* Relaxes the columns next to column `at`; returns the nearest one that no path has yet. */
static uint32_t step(assignment *s, uint32_t at)
{
    uint32_t next = 0, i = s->row[at];
    int32_t delta = INT32_MAX;
    s->used[at] = true;
    for (uint32_t k = 1; k <= s->n; k++) {
        int32_t cost = -s->weight[(size_t)i * s->size + k] - s->u[i] - s->v[k];
        if (s->used[k])
            continue;
        if (cost < s->least[k]) {
            s->least[k] = cost;
            s->from[k] = at;
        }
        if (s->least[k] < delta) {
            delta = s->least[k];
            next = k;
        }
    }
    for (uint32_t k = 0; k <= s->n; k++)
        if (s->used[k]) {
            s->u[s->row[k]] += delta;
            s->v[k] -= delta;
        } else if (k > 0) {
            s->least[k] -= delta;
        }
    return next;
}

uint32_t *weft_change__assign(const int32_t *weight, uint32_t n, weft_arena *arena)
{
    uint32_t size = n + 1;
    assignment s = {.weight = weight, .n = n, .size = size};
    s.u = weft_arena_array(arena, size, sizeof *s.u);
    s.v = weft_arena_array(arena, size, sizeof *s.v);
    s.least = weft_arena_array(arena, size, sizeof *s.least);
    s.row = weft_arena_array(arena, size, sizeof *s.row);
    s.from = weft_arena_array(arena, size, sizeof *s.from);
    s.used = weft_arena_array(arena, size, sizeof *s.used);
    for (uint32_t i = 1; i <= n; i++) {
        uint32_t at = 0;
        s.row[0] = i;
        for (uint32_t k = 0; k <= n; k++) {
            s.least[k] = INT32_MAX;
            s.used[k] = false;
        }
        do
            at = step(&s, at);
        while (s.row[at] != 0);
        for (uint32_t before; at != 0; at = before) {
            before = s.from[at];
            s.row[at] = s.row[before];
        }
    }
    return s.row;
}

/* Workers that stay at most, by the assignment. */
static uint32_t assign(const bound *b)
{
    uint32_t n = b->n_old > b->n_new ? b->n_old : b->n_new, sum = 0;
    size_t size = n + 1;
    int32_t *weight = weft_arena_array(b->c->arena, size * size, sizeof *weight);
    for (uint32_t i = 0; i < b->n_old; i++)
        for (uint32_t k = 0; k < b->n_new; k++)
            weight[(i + 1) * size + k + 1] = weigh(&b->old[i], &b->new[k]);
    const uint32_t *row = weft_change__assign(weight, n, b->c->arena);
    for (uint32_t k = 1; k <= n; k++)
        sum += (uint32_t)weight[row[k] * size + k];
    return sum;
}

uint32_t weft_change__least_starts(const change *c)
{
    const export_ctx *to = c->to;
    uint32_t least = 0;
    weft_map *wanted = weft_map_create(c->arena), *seen = weft_map_create(c->arena);
    for (uint32_t g = 0; g < to->n_group; g++)
        weft_map_put(wanted, hash_of(to->group[g].name), to->group[g].n);
    for (uint32_t i = 0; i < to->n_worker; i++) {
        bound b = {.c = c, .wanted = wanted, .type = to->worker[i].type};
        uint64_t key = hash_of(b.type), known;
        if (weft_map_get(seen, key, &known))
            continue;
        weft_map_put(seen, key, 1);
        list_new(&b);
        if (!c->o->roll)
            list_old(&b);
        uint32_t stay = b.by_group;
        if (b.n_old <= CHANGE_ASSIGNED_MAX && b.n_new <= CHANGE_ASSIGNED_MAX && stay > 0) {
            uint32_t most = assign(&b);
            stay = most < stay ? most : stay;
        }
        least += b.workers - stay;
    }
    return least;
}
