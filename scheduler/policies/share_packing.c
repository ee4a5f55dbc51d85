/* Packs the MPS shares of a solution on fewer devices.
 *
 * Greedy insertion takes the models with the largest need first, so that the first devices run out
 * of compute and the last ones, full of small models in turn, of memory. Here whole slices move: a
 * slice takes a part of the percentages, of the memory and of the clients of a device, and the
 * slices of each row of the fleet are packed as vectors into a given number of devices, those with
 * the largest part first, each where its vector and what is left there have the greatest dot
 * product (R. Panigrahy et al., Heuristics for vector bin packing, 2011). The number of devices
 * starts at the lower bound of that packing. Complexity: O(slices * devices) for each number. */
#include "scheduler/policies/policies_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS = 3, WORK_MAX = 20000000 };

/* The segments of one slice. */
typedef struct item {
    uint32_t first, n;
    double part[PARTS]; /* of a device: percentages, memory, clients */
    double largest;
} item;

typedef struct packing {
    item *items;
    uint32_t n;
    uint32_t *bin; /* by item */
    double (*left)[PARTS];
} packing;

static int compare_items(const void *a, const void *b)
{
    const item *p = a, *q = b;
    if (p->largest != q->largest)
        return p->largest > q->largest ? -1 : 1;
    return (p->first > q->first) - (p->first < q->first);
}

static item measure_slice(const weft_builder *builder, const weft_segment *segment, uint32_t n)
{
    const weft_rules *rules = &builder->problem->rules;
    const weft_option *o = segment[0].option;
    double mem = 0, has = (double)weft_fleet__mem(o->row) * (1 - rules->mem_reserve);
    for (uint32_t i = 0; i < n; i++)
        mem += (double)segment[i].option->mem_bytes;
    item it = {.n = n};
    it.part[0] = rules->oversubscribe ? 0 : o->spec.percent / 100.0;
    it.part[1] = has > 0 ? mem / has : 0;
    it.part[2] = (double)o->point->procs / WEFT_MPS_CLIENTS_MAX;
    for (uint32_t k = 0; k < PARTS; k++)
        it.largest = fmax(it.largest, it.part[k]);
    return it;
}

/* The MPS shares of a row; *devices: those on which they are. */
static void list_items(const weft_builder *builder, const weft_fleet_device *row,
                       const weft_solution *list, packing *p, uint32_t *devices)
{
    p->n = *devices = 0;
    for (uint32_t i = 0, end; i < list->n; i = end) {
        const weft_segment *s = &list->at[i];
        end = i + 1;
        while (end < list->n && weft_solution__share_slice(s, &list->at[end]))
            end++;
        if (s->option->row != row || s->option->spec.kind != WEFT_SLICE_MPS)
            continue;
        *devices += p->n == 0 || list->at[p->items[p->n - 1].first].device != s->device;
        p->items[p->n] = measure_slice(builder, s, end - i);
        p->items[p->n++].first = i;
    }
    if (p->n > 0)
        qsort(p->items, p->n, sizeof *p->items, compare_items);
}

static uint32_t least_devices(const packing *p)
{
    double sum[PARTS] = {0}, most = 1;
    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t k = 0; k < PARTS; k++)
            sum[k] += p->items[i].part[k];
    for (uint32_t k = 0; k < PARTS; k++)
        most = fmax(most, ceil(sum[k] - 1e-9));
    return (uint32_t)most;
}

/* false: an item has no place. */
static bool fill(packing *p, uint32_t devices)
{
    for (uint32_t b = 0; b < devices; b++)
        for (uint32_t k = 0; k < PARTS; k++)
            p->left[b][k] = 1;
    for (uint32_t i = 0; i < p->n; i++) {
        const double *part = p->items[i].part;
        uint32_t best = devices;
        double most = -1;
        for (uint32_t b = 0; b < devices; b++) {
            const double *left = p->left[b];
            double dot = 0;
            bool fits = true;
            for (uint32_t k = 0; k < PARTS; k++) {
                fits = fits && part[k] <= left[k] + 1e-12;
                dot += part[k] * left[k];
            }
            if (fits && dot > most) {
                most = dot;
                best = b;
            }
        }
        if (best == devices)
            return false;
        p->bin[i] = best;
        for (uint32_t k = 0; k < PARTS; k++)
            p->left[best][k] -= part[k];
    }
    return true;
}

/* Gives the slices of a packing new devices, numbered from `from` on, and their own numbers. */
static void move_slices(const packing *p, uint32_t from, weft_solution *list)
{
    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t k = 0; k < p->items[i].n; k++) {
            weft_segment *s = &list->at[p->items[i].first + k];
            s->device = from + p->bin[i];
            s->slice_id = i;
        }
}

void weft_shares__pack(weft_builder *builder, weft_solution *list)
{
    weft_arena *arena = builder->arena;
    weft_solution next = *list;
    packing p = {.items = weft_arena_array(arena, list->n, sizeof *p.items),
                 .bin = weft_arena_array(arena, list->n, sizeof *p.bin),
                 .left = weft_arena_array(arena, list->n, sizeof *p.left)};
    uint32_t from = 0, used;
    bool any = false;
    next.at = weft_arena_array(arena, list->n, sizeof *next.at);
    memcpy(next.at, list->at, list->n * sizeof *next.at);
    for (uint32_t i = 0; i < list->n; i++)
        from = list->at[i].device >= from ? list->at[i].device + 1 : from;
    for (size_t r = 0; r < builder->fleet->n_device; r++) {
        list_items(builder, &builder->fleet->device[r], list, &p, &used);
        uint32_t devices = least_devices(&p), step = 1;
        while (devices < used && (double)devices * p.n < WORK_MAX && !fill(&p, devices)) {
            devices += step;
            step *= 2;
        }
        if (devices >= used || (double)devices * p.n >= WORK_MAX)
            continue;
        move_slices(&p, from, &next);
        from += devices;
        any = true;
    }
    weft_solution__sort(&next);
    if (any && weft_solution__put(builder, &next))
        *list = weft_solution__list(builder);
}
