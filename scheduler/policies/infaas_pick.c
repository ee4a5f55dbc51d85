/* INFaaS (USENIX ATC'21): the variant for a query.
 *
 *   1. Among the Active variants that satisfy accuracy and latency: the one whose least loaded
 *      instance has the least load, and that instance.
 *   2. Else, among those without an instance: the one with the least time to load and answer, on
 *      the least used worker of its hardware.
 *   3. Else the nearest one: least sum of the relative shortfalls of accuracy and latency.
 * Overloaded and Interfered instances are not candidates; a query does not load their variant a
 * second time, which is left to scaling.
 *
 * Data structure: variants are sorted by accuracy, so that the accurate enough ones are a
 * suffix. Each node of a segment tree over them has the least latency and the least key (load,
 * or time to load and answer) of the candidates below; a branch is pruned if either shows
 * that nothing in it is better. Instances of a variant, and workers of a kind of hardware, are
 * in tournament trees by load. */
#include "scheduler/policies/infaas_int.h"

#include <math.h>
#include <stdlib.h>

#define NONE UINT32_MAX

/* Minimum over a fixed range of places: a tournament tree as a complete binary tree, leaf i at size
 * + i. */
typedef struct least {
    uint32_t size;
    double *value;
} least;

typedef struct node {
    double latency_us, key; /* INFINITY: no candidate */
} node;

struct weft_infaas_pick {
    const weft_infaas_candidate *candidate;
    uint32_t n, n_worker, size;
    const uint32_t *hardware; /* by worker */
    uint32_t *sorted;         /* variants by accuracy */
    uint32_t *rank;           /* the inverse */
    node *active, *inactive;  /* segment trees over ranks */
    least *instance;          /* by variant, over workers: load of the Active ones */
    uint32_t *n_instance;     /* by variant, in any state */
    uint8_t *state;           /* by variant and worker */
    least *worker;            /* by kind of hardware, over workers */
    uint32_t n_hardware;
};

static uint32_t round_up(uint32_t n)
{
    uint32_t size = 1;
    while (size < n)
        size *= 2;
    return size;
}

static least make_least(uint32_t n, weft_arena *arena)
{
    least l = {.size = round_up(n)};
    l.value = weft_arena_array(arena, 2 * (size_t)l.size, sizeof *l.value);
    for (uint32_t i = 0; i < 2 * l.size; i++)
        l.value[i] = INFINITY;
    return l;
}

static void set_least(least *l, uint32_t i, double value)
{
    i += l->size;
    l->value[i] = value;
    for (i /= 2; i > 0; i /= 2)
        l->value[i] = fmin(l->value[2 * i], l->value[2 * i + 1]);
}

/* The first place with the least value; NONE: all values are INFINITY. */
static uint32_t find_least(const least *l)
{
    uint32_t i = 1;
    if (!(l->value[1] < INFINITY))
        return NONE;
    while (i < l->size)
        i = l->value[2 * i] <= l->value[2 * i + 1] ? 2 * i : 2 * i + 1;
    return i - l->size;
}

static void set_node(weft_infaas_pick *p, node *tree, uint32_t variant, double key)
{
    uint32_t i = p->size + p->rank[variant];
    bool candidate = key < INFINITY;
    tree[i] = (node){candidate ? p->candidate[variant].latency_us : INFINITY, key};
    for (i /= 2; i > 0; i /= 2)
        tree[i] = (node){fmin(tree[2 * i].latency_us, tree[2 * i + 1].latency_us),
                         fmin(tree[2 * i].key, tree[2 * i + 1].key)};
}

/* Rank of the least key from rank `from` on with a latency within the limit. Node i covers [lo, lo
 * + width). */
static void search(const weft_infaas_pick *p, const node *tree, uint32_t i, uint32_t lo,
                   uint32_t width, uint32_t from, double latency_us, uint32_t *best,
                   double *best_key)
{
    if (lo + width <= from || !(tree[i].latency_us <= latency_us) || !(tree[i].key < *best_key))
        return;
    if (width == 1) {
        *best = lo;
        *best_key = tree[i].key;
        return;
    }
    search(p, tree, 2 * i, lo, width / 2, from, latency_us, best, best_key);
    search(p, tree, 2 * i + 1, lo + width / 2, width / 2, from, latency_us, best, best_key);
}

static int compare_candidates(const void *a, const void *b, void *candidates)
{
    const weft_infaas_candidate *at = candidates;
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    if (at[i].accuracy != at[j].accuracy)
        return at[i].accuracy < at[j].accuracy ? -1 : 1;
    return (i > j) - (i < j);
}

static double time_to_answer(const weft_infaas_candidate *candidate)
{
    return candidate->load_us + candidate->latency_us;
}

weft_infaas_pick *weft_infaas__index(const weft_infaas_candidate *candidate, uint32_t n,
                                     const uint32_t *hardware, uint32_t n_worker, weft_arena *arena)
{
    weft_infaas_pick *p = weft_arena_alloc(arena, sizeof *p);
    *p = (weft_infaas_pick){
        .candidate = candidate, .n = n, .n_worker = n_worker, .hardware = hardware};
    p->size = round_up(n);
    p->sorted = weft_arena_array(arena, n + 1u, sizeof *p->sorted);
    p->rank = weft_arena_array(arena, n + 1u, sizeof *p->rank);
    p->active = weft_arena_array(arena, 2 * (size_t)p->size, sizeof *p->active);
    p->inactive = weft_arena_array(arena, 2 * (size_t)p->size, sizeof *p->inactive);
    p->instance = weft_arena_array(arena, n + 1u, sizeof *p->instance);
    p->n_instance = weft_arena_array(arena, n + 1u, sizeof *p->n_instance);
    p->state = weft_arena_array(arena, (size_t)n * n_worker + 1, sizeof *p->state);
    for (uint32_t i = 0; i < 2 * p->size; i++)
        p->active[i] = p->inactive[i] = (node){INFINITY, INFINITY};
    for (uint32_t v = 0; v < n; v++) {
        p->sorted[v] = v;
        if (candidate[v].hardware >= p->n_hardware)
            p->n_hardware = candidate[v].hardware + 1;
    }
    for (uint32_t w = 0; w < n_worker; w++)
        if (hardware[w] >= p->n_hardware)
            p->n_hardware = hardware[w] + 1;
    if (n > 0)
        qsort_r(p->sorted, n, sizeof *p->sorted, compare_candidates, (void *)candidate);
    for (uint32_t i = 0; i < n; i++)
        p->rank[p->sorted[i]] = i;
    p->worker = weft_arena_array(arena, p->n_hardware + 1u, sizeof *p->worker);
    for (uint32_t h = 0; h < p->n_hardware; h++)
        p->worker[h] = make_least(n_worker, arena);
    for (uint32_t w = 0; w < n_worker; w++)
        set_least(&p->worker[hardware[w]], w, 0);
    for (uint32_t v = 0; v < n; v++) {
        p->instance[v] = make_least(n_worker, arena);
        set_node(p, p->inactive, v, time_to_answer(&candidate[v]));
    }
    return p;
}

void weft_infaas__set_instance(weft_infaas_pick *p, uint32_t variant, uint32_t worker,
                               weft_infaas_state state, double load)
{
    uint8_t *was = &p->state[(size_t)variant * p->n_worker + worker];
    p->n_instance[variant] += (state != WEFT_INFAAS_INACTIVE) - (*was != WEFT_INFAAS_INACTIVE);
    *was = (uint8_t)state;
    set_least(&p->instance[variant], worker, state == WEFT_INFAAS_ACTIVE ? load : INFINITY);
    set_node(p, p->active, variant, p->instance[variant].value[1]);
    set_node(p, p->inactive, variant,
             p->n_instance[variant] > 0 ? INFINITY : time_to_answer(&p->candidate[variant]));
}

void weft_infaas__set_worker(weft_infaas_pick *p, uint32_t worker, double use)
{
    set_least(&p->worker[p->hardware[worker]], worker, use);
}

/* The first rank whose variant is accurate enough. */
static uint32_t first_rank(const weft_infaas_pick *p, double accuracy)
{
    uint32_t lo = 0, hi = p->n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (p->candidate[p->sorted[mid]].accuracy < accuracy)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static uint32_t find_closest(const weft_infaas_pick *p, double accuracy, double latency_us)
{
    uint32_t best = NONE;
    double least_shortfall = INFINITY;
    for (uint32_t v = 0; v < p->n; v++) {
        const weft_infaas_candidate *o = &p->candidate[v];
        double a = accuracy > 0 ? fmax(0, accuracy - o->accuracy) / accuracy : 0;
        double l =
            latency_us > 0 ? fmax(0, o->latency_us - latency_us) / latency_us : o->latency_us;
        if (a + l < least_shortfall) {
            least_shortfall = a + l;
            best = v;
        }
    }
    return best;
}

weft_infaas_choice weft_infaas__choose(const weft_infaas_pick *p, double accuracy,
                                       double latency_us)
{
    uint32_t from = first_rank(p, accuracy), rank = NONE;
    double key = INFINITY;
    search(p, p->active, 1, 0, p->size, from, latency_us, &rank, &key);
    if (rank != NONE)
        return (weft_infaas_choice){WEFT_INFAAS_RUNS, p->sorted[rank],
                                    find_least(&p->instance[p->sorted[rank]])};
    search(p, p->inactive, 1, 0, p->size, from, latency_us, &rank, &key);
    if (rank != NONE) {
        uint32_t v = p->sorted[rank];
        return (weft_infaas_choice){WEFT_INFAAS_LOAD, v,
                                    find_least(&p->worker[p->candidate[v].hardware])};
    }
    return (weft_infaas_choice){WEFT_INFAAS_CLOSEST, find_closest(p, accuracy, latency_us), NONE};
}
