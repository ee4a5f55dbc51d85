/* Which device of the old plan each device of the new one is, so that many workers stay.
 *
 * A worker stays if both devices have one that does the same, wherever its MIG instance begins: the
 * new plan's instances are arranged around those that stay (reconcile_units.c). Devices with equal
 * work are paired first. Then, in rounds, each device that is left looks for the free old device
 * with which it has most workers in common, and pairs are made from the most on. At most CANDIDATES
 * old devices are looked at for each kind of work. A greedy matching, not the best one. */
#include "scheduler/export/reconcile_int.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

enum { CANDIDATES = 64 };

/* The work of a device: hashes of its groups, sorted. */
typedef struct device {
    uint32_t worker; /* its first */
    uint32_t n;
    uint64_t *group;
    uint64_t sum; /* equal for equal work */
    uint32_t partner;
} device;

typedef struct devices {
    device *at;
    uint32_t n;
} devices;

static int order_hashes(const void *a, const void *b)
{
    const uint64_t *p = a, *q = b;
    return (*p > *q) - (*p < *q);
}

static devices list_devices(const export_ctx *ctx, weft_arena *arena)
{
    devices d = {.at = weft_arena_array(arena, ctx->n_worker + 1, sizeof *d.at)};
    uint64_t *group = weft_arena_array(arena, ctx->n_worker + 1, sizeof *group);
    for (uint32_t i = 0; i < ctx->n_worker; i++) {
        const char *name = ctx->group[ctx->worker[i].group].name;
        group[i] = weft_hash64(name, strlen(name), 0);
        if (i == 0 || ctx->worker[i].device != ctx->worker[i - 1].device)
            d.at[d.n++] = (device){.worker = i, .group = &group[i], .partner = NONE};
        d.at[d.n - 1].n++;
    }
    for (uint32_t i = 0; i < d.n; i++) {
        qsort(d.at[i].group, d.at[i].n, sizeof *group, order_hashes);
        for (uint32_t k = 0; k < d.at[i].n; k++)
            d.at[i].sum = weft_hash_mix(d.at[i].sum, d.at[i].group[k]);
    }
    return d;
}

/* -- Equal work -------------------------------------------------------------------------------- */

static int order_sums(const void *a, const void *b, void *of)
{
    const device *at = of;
    uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    if (at[i].sum != at[k].sum)
        return at[i].sum < at[k].sum ? -1 : 1;
    return (i > k) - (i < k);
}

static uint32_t *sort_devices(const devices *d, weft_arena *arena)
{
    uint32_t *order = weft_arena_array(arena, d->n + 1, sizeof *order);
    for (uint32_t i = 0; i < d->n; i++)
        order[i] = i;
    qsort_r(order, d->n, sizeof *order, order_sums, d->at);
    return order;
}

static void pair(devices *old, uint32_t i, devices *new, uint32_t k)
{
    old->at[i].partner = k;
    new->at[k].partner = i;
}

static void pair_equal(devices *old, devices *new, weft_arena *arena)
{
    const uint32_t *a = sort_devices(old, arena), *b = sort_devices(new, arena);
    for (uint32_t i = 0, k = 0; i < old->n && k < new->n;) {
        uint64_t p = old->at[a[i]].sum, q = new->at[b[k]].sum;
        if (p == q)
            pair(old, a[i++], new, b[k++]);
        else
            *(p < q ? &i : &k) += 1;
    }
}

/* -- Most work in common ----------------------------------------------------------------------- */

/* Workers that two devices have in common. */
static uint32_t count_common(const device *a, const device *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0, k = 0; i < a->n && k < b->n;) {
        if (a->group[i] == b->group[k])
            n++, i++, k++;
        else
            *(a->group[i] < b->group[k] ? &i : &k) += 1;
    }
    return n;
}

/* An old device that has a kind of work. */
typedef struct holder {
    uint64_t group;
    uint32_t device;
} holder;

static int order_holders(const void *a, const void *b)
{
    const holder *p = a, *q = b;
    if (p->group != q->group)
        return p->group < q->group ? -1 : 1;
    return (p->device > q->device) - (p->device < q->device);
}

/* Of the free old devices, each once for each kind of its work. */
static uint32_t list_holders(const devices *old, holder *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < old->n; i++)
        for (uint32_t k = 0; old->at[i].partner == NONE && k < old->at[i].n; k++)
            if (k == 0 || old->at[i].group[k] != old->at[i].group[k - 1])
                out[n++] = (holder){old->at[i].group[k], i};
    if (n > 0)
        qsort(out, n, sizeof *out, order_holders);
    return n;
}

static uint32_t find_holder(const holder *h, uint32_t n, uint64_t group)
{
    uint32_t lo = 0, hi = n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (h[mid].group < group)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

typedef struct wish {
    uint32_t common, old, new;
} wish;

static int order_wishes(const void *a, const void *b)
{
    const wish *p = a, *q = b;
    if (p->common != q->common)
        return p->common > q->common ? -1 : 1;
    return (p->new > q->new) - (p->new < q->new);
}

/* taken: by holder that is the first of its work, how many from there on have partners by now. */
static wish find_best(const devices *old, const devices *new, uint32_t k, const holder *h,
                      uint32_t n, uint32_t *taken)
{
    wish best = {.old = NONE, .new = k};
    const device *d = &new->at[k];
    for (uint32_t g = 0; g < d->n; g++) {
        if (g > 0 && d->group[g] == d->group[g - 1])
            continue;
        uint32_t from = find_holder(h, n, d->group[g]);
        uint32_t i = from + taken[from];
        while (i < n && h[i].group == d->group[g] && old->at[h[i].device].partner != NONE)
            i++;
        taken[from] = i - from;
        for (uint32_t end = i + CANDIDATES; i < n && i < end && h[i].group == d->group[g]; i++) {
            if (old->at[h[i].device].partner != NONE)
                continue;
            uint32_t common = count_common(&old->at[h[i].device], d);
            if (common > best.common || (common == best.common && h[i].device < best.old))
                best = (wish){common, h[i].device, k};
        }
    }
    return best;
}

/* Of devices that look for the same old one, the others take another that is as good, so that
 * thousands of equal devices need few rounds. */
static bool pair_round(devices *old, devices *new, holder *h, wish *w, uint32_t *taken)
{
    uint32_t n_holder = list_holders(old, h), n = 0;
    memset(taken, 0, (n_holder + 1) * sizeof *taken);
    bool any = false;
    for (uint32_t k = 0; k < new->n &&n_holder > 0; k++) {
        wish one = new->at[k].partner == NONE ? find_best(old, new, k, h, n_holder, taken)
                                              : (wish){.old = NONE};
        if (one.old != NONE)
            w[n++] = one;
    }
    if (n > 0)
        qsort(w, n, sizeof *w, order_wishes);
    for (uint32_t i = 0; i < n; i++) {
        wish one = w[i];
        if (old->at[one.old].partner != NONE)
            one = find_best(old, new, one.new, h, n_holder, taken);
        if (one.old == NONE || one.common < w[i].common)
            continue;
        pair(old, one.old, new, one.new);
        any = true;
    }
    return any;
}

uint32_t *weft_change__match(const change *c)
{
    devices old = list_devices(c->from, c->arena), new = list_devices(c->to, c->arena);
    uint32_t *out = weft_arena_array(c->arena, c->to->n_worker + 1, sizeof *out);
    holder *h = weft_arena_array(c->arena, c->from->n_worker + 1, sizeof *h);
    wish *w = weft_arena_array(c->arena, new.n + 1, sizeof *w);
    uint32_t *taken = weft_arena_array(c->arena, c->from->n_worker + 1, sizeof *taken);
    pair_equal(&old, &new, c->arena);
    while (pair_round(&old, &new, h, w, taken))
        ;
    for (uint32_t k = 0; k < new.n; k++)
        for (uint32_t i = 0; i < new.at[k].n; i++)
            out[new.at[k].worker + i] =
                new.at[k].partner == NONE ? NONE : old.at[new.at[k].partner].worker;
    return out;
}
