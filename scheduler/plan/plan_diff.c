/* The difference between two plans: the placements that end, start and move.
 *
 * Devices have no identity across plans, so they are matched first. Devices with equal placements
 * are paired; each other new device is paired greedily with the free old device of its type that
 * shares most placements with it (same model, slice, start slot, batch and processes). A placement
 * without its like on the paired device ends or starts. An end and a start of one model become a
 * move.
 *
 * O(p log p + c) for p placements and c pairs of equal ones; at most 64 pairs of each placement are
 * considered. */
#include "scheduler/plan/plan.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

enum { CANDIDATES_MAX = 64 };

typedef struct matching {
    const weft_plan *before, *after;
    weft_arena *arena;
    uint32_t *order;                        /* old placements, equal ones next to each other */
    uint32_t *device_before, *device_after; /* by placement: its device, numbered without gaps */
    uint32_t n_before, n_after;             /* numbers of devices */
    uint32_t *old_of;                       /* by new device: its partner; NONE: none */
    bool *taken;                            /* by old device: whether it has a partner */
    uint32_t *votes;                        /* by old device: placements in common */
} matching;

int weft_placement__compare(const weft_placement *p, const weft_placement *q)
{
    int order = strcmp(p->model, q->model);
    if (!order)
        order = strcmp(p->slice, q->slice);
    if (!order)
        order = strcmp(p->type, q->type);
    if (order)
        return order;
    if (p->mig_start != q->mig_start)
        return p->mig_start < q->mig_start ? -1 : 1;
    if (p->batch != q->batch)
        return p->batch < q->batch ? -1 : 1;
    return (p->procs > q->procs) - (p->procs < q->procs);
}

static int compare_before(const void *a, const void *b, void *plan)
{
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    const weft_placement *p = (weft_placement *)plan + i, *q = (weft_placement *)plan + j;
    int order = weft_placement__compare(p, q);
    if (order)
        return order;
    return p->device != q->device ? (p->device < q->device ? -1 : 1) : (i > j) - (i < j);
}

/* Position in m->order of the first old placement that is not before `p`. */
static size_t find_first(const matching *m, const weft_placement *p)
{
    size_t lo = 0, hi = m->before->n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (weft_placement__compare(&m->before->at[m->order[mid]], p) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Renumbers devices without gaps, by placement; a plan that was not checked may have any numbers.
 */
static uint32_t *number_devices(const weft_plan *plan, const uint32_t *order, weft_arena *arena,
                                uint32_t *out_n)
{
    uint32_t *number = weft_arena_array(arena, plan->n, sizeof *number), n = 0;
    for (size_t i = 0; i < plan->n; i++) {
        if (i > 0 && plan->at[order[i]].device != plan->at[order[i - 1]].device)
            n++;
        number[order[i]] = n;
    }
    *out_n = plan->n > 0 ? n + 1 : 0;
    return number;
}

/* The free old device that shares most placements with the new device order[from .. to); ties go to
 * the lowest number. NONE: no device shares any. */
static uint32_t find_partner(matching *m, const uint32_t *order, size_t from, size_t to)
{
    uint32_t touched[CANDIDATES_MAX], n_touched = 0, best = NONE;
    for (size_t i = from; i < to; i++) {
        const weft_placement *p = &m->after->at[order[i]];
        uint32_t last = NONE;
        for (size_t k = find_first(m, p), tried = 0; k < m->before->n && tried < CANDIDATES_MAX;
             k++, tried++) {
            uint32_t old = m->device_before[m->order[k]];
            if (weft_placement__compare(p, &m->before->at[m->order[k]]) != 0)
                break;
            if (old == last || m->taken[old])
                continue;
            last = old;
            if (m->votes[old] == 0 && n_touched == CANDIDATES_MAX)
                continue;
            if (m->votes[old]++ == 0)
                touched[n_touched++] = old;
        }
    }
    for (uint32_t t = 0; t < n_touched; t++) {
        uint32_t d = touched[t];
        if (best == NONE || m->votes[d] > m->votes[best] ||
            (m->votes[d] == m->votes[best] && d < best))
            best = d;
    }
    for (uint32_t t = 0; t < n_touched; t++)
        m->votes[touched[t]] = 0;
    return best;
}

/* A hash of the placements of a device that does not depend on their order. */
typedef struct signature {
    uint64_t sum;
    uint32_t device;
} signature;

static signature *sign_devices(const weft_plan *plan, const uint32_t *device, uint32_t n,
                               weft_arena *arena)
{
    signature *sign = weft_arena_array(arena, n, sizeof *sign);
    for (size_t i = 0; i < plan->n; i++) {
        const weft_placement *p = &plan->at[i];
        uint64_t h = weft_hash64(p->model, strlen(p->model), p->batch);
        h = weft_hash64(p->slice, strlen(p->slice), weft_hash_mix(h, p->procs));
        h = weft_hash64(p->type, strlen(p->type), weft_hash_mix(h, (uint64_t)p->mig_start + 1));
        sign[device[i]].sum += h;
        sign[device[i]].device = device[i];
    }
    return sign;
}

static int compare_signatures(const void *a, const void *b)
{
    const signature *p = a, *q = b;
    if (p->sum != q->sum)
        return p->sum < q->sum ? -1 : 1;
    return (p->device > q->device) - (p->device < q->device);
}

/* Pairs devices with equal placements. A hash collision only makes the difference longer than
 * needed. */
static void match_equal(matching *m)
{
    signature *old = sign_devices(m->before, m->device_before, m->n_before, m->arena);
    signature *new = sign_devices(m->after, m->device_after, m->n_after, m->arena);
    qsort(old, m->n_before, sizeof *old, compare_signatures);
    qsort(new, m->n_after, sizeof *new, compare_signatures);
    for (uint32_t i = 0, j = 0; i < m->n_before && j < m->n_after;) {
        if (old[i].sum == new[j].sum) {
            m->old_of[new[j].device] = old[i].device;
            m->taken[old[i].device] = true;
            i++, j++;
        } else if (old[i].sum < new[j].sum) {
            i++;
        } else {
            j++;
        }
    }
}

static void match_devices(matching *m, const uint32_t *order)
{
    match_equal(m);
    for (size_t i = 0; i < m->after->n;) {
        uint32_t device = m->device_after[order[i]];
        size_t end = i;
        while (end < m->after->n && m->device_after[order[end]] == device)
            end++;
        if (m->old_of[device] == NONE) {
            m->old_of[device] = find_partner(m, order, i, end);
            if (m->old_of[device] != NONE)
                m->taken[m->old_of[device]] = true;
        }
        i = end;
    }
}

static int compare_moves(const void *a, const void *b)
{
    const weft_plan_move *p = a, *q = b;
    int order = strcmp(p->model, q->model);
    if (order)
        return order;
    const weft_placement *x = p->to ? p->to : p->from, *y = q->to ? q->to : q->from;
    return x->device != y->device ? (x->device < y->device ? -1 : 1)
                                  : (x->slice_id > y->slice_id) - (x->slice_id < y->slice_id);
}

/* Joins ends and starts of one model, in the order of devices, into moves. Both lists are sorted by
 * model. */
static size_t pair_moves(const weft_plan_move *end, size_t n_end, const weft_plan_move *start,
                         size_t n_start, weft_plan_move *out)
{
    size_t i = 0, j = 0, n = 0;
    while (i < n_end || j < n_start) {
        int order = i == n_end ? 1 : j == n_start ? -1 : strcmp(end[i].model, start[j].model);
        if (order < 0)
            out[n++] = end[i++];
        else if (order > 0)
            out[n++] = start[j++];
        else
            out[n++] = (weft_plan_move){end[i].model, end[i].from, start[j].to}, i++, j++;
    }
    return n;
}

/* Marks the old placements that stay, and lists the new ones that do not. */
static size_t list_starts(const matching *m, bool *stays, weft_plan_move *start)
{
    size_t n = 0;
    for (size_t i = 0; i < m->after->n; i++) {
        const weft_placement *p = &m->after->at[i];
        uint32_t old = m->old_of[m->device_after[i]];
        bool found = false;
        /* Equal placements are adjacent and sorted by device: binary search among them. */
        size_t lo = find_first(m, p), hi = m->before->n;
        while (lo < hi && old != NONE) {
            size_t mid = (lo + hi) / 2;
            if (weft_placement__compare(&m->before->at[m->order[mid]], p) == 0 &&
                m->device_before[m->order[mid]] < old)
                lo = mid + 1;
            else
                hi = mid;
        }
        for (; old != NONE && lo < m->before->n && !found; lo++) {
            if (weft_placement__compare(&m->before->at[m->order[lo]], p) != 0 ||
                m->device_before[m->order[lo]] != old)
                break;
            found = !stays[m->order[lo]];
            stays[m->order[lo]] = true;
        }
        if (!found)
            start[n++] = (weft_plan_move){.model = p->model, .to = p};
    }
    return n;
}

static matching match_plans(const weft_plan *before, const weft_plan *after, weft_arena *arena)
{
    matching m = {.before = before, .after = after, .arena = arena};
    const uint32_t *order = weft_plan__order(after, arena);
    m.device_before = number_devices(before, weft_plan__order(before, arena), arena, &m.n_before);
    m.device_after = number_devices(after, order, arena, &m.n_after);
    m.votes = weft_arena_array(arena, m.n_before, sizeof *m.votes);
    m.taken = weft_arena_array(arena, m.n_before, sizeof *m.taken);
    m.old_of = weft_arena_array(arena, m.n_after, sizeof *m.old_of);
    m.order = weft_arena_array(arena, before->n, sizeof *m.order);
    for (uint32_t i = 0; i < m.n_after; i++)
        m.old_of[i] = NONE;
    for (size_t i = 0; i < before->n; i++)
        m.order[i] = (uint32_t)i;
    if (before->n > 0)
        qsort_r(m.order, before->n, sizeof *m.order, compare_before, before->at);
    match_devices(&m, order);
    return m;
}

/* A device of the old plan, or a spare one. */
typedef struct settled {
    uint32_t number;
    const char *type;
    bool taken;
} settled;

/* The devices of the old plan in the order of m->taken, behind the spare ones. */
static settled *list_settled(const matching *m, const weft_plan_spare *spare, size_t n_spare,
                             uint32_t *out_next)
{
    settled *at = weft_arena_array(m->arena, n_spare + m->n_before + 1, sizeof *at);
    uint32_t next = 0;
    for (size_t i = 0; i < n_spare; i++) {
        at[i] = (settled){spare[i].device, spare[i].type, false};
        next = spare[i].device >= next ? spare[i].device + 1 : next;
    }
    for (size_t i = 0; i < m->before->n; i++) {
        const weft_placement *p = &m->before->at[i];
        uint32_t d = m->device_before[i];
        at[n_spare + d] = (settled){p->device, p->type, m->taken[d]};
        next = p->device >= next ? p->device + 1 : next;
    }
    *out_next = next;
    return at;
}

weft_plan weft_plan_settle(const weft_plan *before, const weft_plan *after,
                           const weft_plan_spare *spare, size_t n_spare, weft_arena *arena)
{
    matching m = match_plans(before, after, arena);
    uint32_t next, n = (uint32_t)n_spare + m.n_before;
    settled *at = list_settled(&m, spare, n_spare, &next);
    uint32_t *number = weft_arena_array(arena, m.n_after + 1, sizeof *number);
    bool *done = weft_arena_array(arena, m.n_after + 1, sizeof *done);
    weft_plan out = *after;
    out.at = weft_arena_array(arena, after->n + 1, sizeof *out.at);
    for (uint32_t i = 0; i < m.n_after; i++)
        if (m.old_of[i] != NONE) {
            number[i] = at[n_spare + m.old_of[i]].number;
            done[i] = true;
        }
    for (size_t i = 0; i < after->n; i++) {
        uint32_t d = m.device_after[i], k = 0;
        out.at[i] = after->at[i];
        while (!done[d] && k < n && (at[k].taken || strcmp(at[k].type, after->at[i].type) != 0))
            k++;
        if (!done[d]) {
            number[d] = k < n ? at[k].number : next++;
            if (k < n)
                at[k].taken = true;
            done[d] = true;
        }
        out.at[i].device = number[d];
    }
    return out;
}

void weft_plan_diff(const weft_plan *before, const weft_plan *after, weft_arena *arena,
                    const weft_plan_move **out, size_t *out_n)
{
    matching m = match_plans(before, after, arena);
    bool *stays = weft_arena_array(arena, before->n, sizeof *stays);
    weft_plan_move *start = weft_arena_array(arena, after->n, sizeof *start);
    weft_plan_move *end = weft_arena_array(arena, before->n, sizeof *end);
    size_t n_start = list_starts(&m, stays, start), n_end = 0;
    for (size_t i = 0; i < before->n; i++)
        if (!stays[i])
            end[n_end++] = (weft_plan_move){.model = before->at[i].model, .from = &before->at[i]};
    qsort(start, n_start, sizeof *start, compare_moves);
    qsort(end, n_end, sizeof *end, compare_moves);
    weft_plan_move *move = weft_arena_array(arena, n_start + n_end, sizeof *move);
    *out_n = pair_moves(end, n_end, start, n_start, move);
    *out = move;
}
