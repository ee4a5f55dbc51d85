/* MIG geometry: the number of devices that a multiset of instances needs, in closed form.
 *
 * A device with 7 GPCs consists of a left half (memory slots 0-3) and a right half (memory slots
 * 4-7, but only three GPCs). With n_i instances of i GPCs, g = G - n7, x = min(n3, g),
 * a = g - n4 - (n3 - x) and c = g - x, G devices suffice if and only if a >= 0, n2 <= 2a + c and
 * n1 + 2 n2 <= 4a + 3c. The cases n3 <= g and n3 > g together are equivalent to four linear
 * inequalities, so that
 *
 *   G = max( ceil((n1 + 2 n2 + 3 n3 + 4 n4 + 7 n7) / 7),    GPCs
 *            ceil((n1 + 2 n2 + 4 n3 + 4 n4 + 8 n7) / 8),    memory slots
 *            ceil((n2 + n3 + 2 n4 + 3 n7) / 3),             places for a 2g
 *            n4 + n7 ).                                     places for a 4g
 *
 * So the packing of thousands of instances is four sums, which keeps the searches small. A 1g with
 * double memory counts one GPC and two memory slots, and takes no place of a 2g.
 *
 * The inequalities are derived from the device table rather than written here, so that another
 * geometry (A30: four slots) needs no code. One inequality counts memory slots. For each profile q,
 * another one counts places for q: an instance of profile p weighs as many as it displaces. An
 * inequality that some legal multiset violates is dropped. The unit tests compare the result with
 * exhaustive packing for every geometry of the table.
 *
 * Placing takes large instances first. An instance with more memory slots than GPCs (3g, 1g with
 * double memory) goes as far right as possible, because slot 7 has no GPC that would be lost; the
 * others go as far left as possible. */
#include "scheduler/mig/mig.h"

#include <string.h>

/* -- One device ------------------------------------------------------------------------------- */

/* All multisets of instances that fit one device. */
typedef struct enumeration {
    const weft_mig_shape *shape;
    weft_mig_count *found;
    size_t n, cap;
} enumeration;

static void add_multiset(enumeration *e, const weft_mig_count *count)
{
    for (size_t i = 0; i < e->n; i++)
        if (memcmp(&e->found[i], count, sizeof *count) == 0)
            return;
    if (e->n < e->cap)
        e->found[e->n++] = *count;
}

/* Adds `count` and every multiset that extends it by instances from slot `from` on. Instances are
 * tried in the order of their start slots, so each layout is visited once; a multiset is visited
 * once for each of its layouts. The depth is at most the number of slots. */
static void enumerate(enumeration *e, weft_mig_count *count, int32_t from)
{
    add_multiset(e, count);
    for (int32_t start = from; start < (int32_t)e->shape->type->mig_slots; start++)
        for (uint32_t p = 0; p < e->shape->n; p++) {
            const weft_mig_profile *mig = &e->shape->type->mig[p];
            if (!(mig->starts & 1u << start))
                continue;
            count->of[p]++;
            enumerate(e, count, start + (int32_t)mig->slots);
            count->of[p]--;
        }
}

static bool contains(const weft_mig_count *a, const weft_mig_count *b)
{
    for (uint32_t p = 0; p < WEFT_MIG_PROFILES_MAX; p++)
        if (a->of[p] < b->of[p])
            return false;
    return true;
}

size_t weft_mig__multisets(const weft_mig_shape *shape, bool maximal, weft_mig_count *out,
                           size_t cap)
{
    weft_mig_count all[WEFT_MIG_SETS_MAX], empty = {{0}};
    enumeration e = {.shape = shape, .found = all, .cap = WEFT_MIG_SETS_MAX};
    size_t n = 0;
    enumerate(&e, &empty, 0);
    for (size_t i = 0; i < e.n; i++) {
        bool keep = true;
        for (size_t j = 0; maximal && keep && j < e.n; j++)
            keep = j == i || !contains(&all[j], &all[i]);
        if (keep && n < cap)
            out[n] = all[i];
        n += keep;
    }
    return n;
}

/* -- Facets ----------------------------------------------------------------------------------- */

/* Most instances of profile q that fit beside the instances `fixed` on one device. */
static uint32_t most_beside(const enumeration *e, uint32_t q, const weft_mig_count *fixed)
{
    uint32_t most = 0;
    for (size_t i = 0; i < e->n; i++) {
        if (!contains(&e->found[i], fixed))
            continue;
        uint32_t n = (uint32_t)e->found[i].of[q] - fixed->of[q];
        most = n > most ? n : most;
    }
    return most;
}

/* Adds the facet unless some legal multiset violates it or an equal facet is there. */
static void add_facet(weft_mig_shape *shape, const enumeration *e, const uint32_t *weight,
                      uint32_t cap)
{
    for (size_t i = 0; i < e->n; i++) {
        uint32_t sum = 0;
        for (uint32_t p = 0; p < shape->n; p++)
            sum += weight[p] * e->found[i].of[p];
        if (sum > cap)
            return;
    }
    for (uint32_t f = 0; f < shape->n_facet; f++)
        if (shape->cap[f] == cap &&
            memcmp(shape->weight[f], weight, shape->n * sizeof *weight) == 0)
            return;
    memcpy(shape->weight[shape->n_facet], weight, shape->n * sizeof *weight);
    shape->cap[shape->n_facet++] = cap;
}

static void derive_facets(weft_mig_shape *shape)
{
    weft_mig_count all[WEFT_MIG_SETS_MAX], empty = {{0}};
    enumeration e = {.shape = shape, .found = all, .cap = WEFT_MIG_SETS_MAX};
    uint32_t weight[WEFT_MIG_PROFILES_MAX];
    enumerate(&e, &empty, 0);
    for (uint32_t q = 0; q < shape->n; q++) {
        weft_mig_count none = {{0}};
        uint32_t cap = most_beside(&e, q, &none);
        for (uint32_t p = 0; p < shape->n; p++) {
            weft_mig_count one = {{0}};
            one.of[p] = 1;
            weight[p] = cap - most_beside(&e, q, &one);
        }
        add_facet(shape, &e, weight, cap);
    }
    for (uint32_t p = 0; p < shape->n; p++)
        weight[p] = shape->type->mig[p].slots;
    add_facet(shape, &e, weight, shape->type->mig_slots);
}

static bool is_before(const weft_mig_profile *a, const weft_mig_profile *b)
{
    return a->slots != b->slots ? a->slots > b->slots : a->gpcs > b->gpcs;
}

weft_mig_shape weft_mig__shape(const weft_device_type *type)
{
    weft_mig_shape shape = {.type = type};
    if (!type || type->n_mig > WEFT_MIG_PROFILES_MAX || type->mig_slots > 8)
        return shape;
    shape.n = (uint32_t)type->n_mig;
    for (uint32_t p = 0; p < shape.n; p++) {
        uint32_t at = p;
        for (; at > 0 && is_before(&type->mig[p], &type->mig[shape.order[at - 1]]); at--)
            shape.order[at] = shape.order[at - 1];
        shape.order[at] = p;
    }
    derive_facets(&shape);
    return shape;
}

uint64_t weft_mig__devices(const weft_mig_shape *shape, const uint64_t *count)
{
    uint64_t devices = 0;
    for (uint32_t f = 0; f < shape->n_facet; f++) {
        uint64_t sum = 0;
        for (uint32_t p = 0; p < shape->n; p++)
            sum += shape->weight[f][p] * count[p];
        uint64_t need = (sum + shape->cap[f] - 1) / shape->cap[f];
        devices = need > devices ? need : devices;
    }
    return devices;
}

/* -- Many devices ----------------------------------------------------------------------------- */

typedef struct placing {
    uint32_t *taken, n, cap;
    weft_arena *arena;
} placing;

static void open_devices(placing *in, uint32_t n)
{
    if (n > in->cap) {
        uint32_t cap = n > 2 * in->cap ? n : 2 * in->cap;
        in->taken = weft_arena_grow(in->arena, in->taken, in->cap * sizeof(uint32_t),
                                    cap * sizeof(uint32_t));
        in->cap = cap;
    }
    while (in->n < n)
        in->taken[in->n++] = 0;
}

/* Places all instances of one profile: start slots in the order of preference, each on all devices.
 */
static void place_profile(placing *in, const weft_mig_profile *mig, uint64_t count,
                          weft_mig_place *out)
{
    bool right = mig->slots > mig->gpcs;
    uint64_t done = 0;
    while (done < count) {
        for (int32_t i = 0; i < 8 && done < count; i++) {
            int32_t start = right ? 7 - i : i;
            if (!(mig->starts & 1u << start))
                continue;
            for (uint32_t d = 0; d < in->n && done < count; d++) {
                if (in->taken[d] & weft_device_type_mig_slots(mig, start))
                    continue;
                in->taken[d] |= weft_device_type_mig_slots(mig, start);
                out[done++] = (weft_mig_place){.device = d, .start = start};
            }
        }
        if (done < count)
            open_devices(in, in->n + 1);
    }
}

uint32_t weft_mig__place(const weft_mig_shape *shape, const uint64_t *count, uint32_t devices,
                         uint32_t **taken, weft_arena *arena,
                         weft_mig_place *out[WEFT_MIG_PROFILES_MAX])
{
    placing in = {.taken = *taken, .n = devices, .cap = devices, .arena = arena};
    if (devices == 0)
        open_devices(&in, (uint32_t)weft_mig__devices(shape, count));
    for (uint32_t i = 0; i < shape->n; i++) {
        uint32_t p = shape->order[i];
        out[p] = weft_arena_array(arena, count[p], sizeof **out);
        place_profile(&in, &shape->type->mig[p], count[p], out[p]);
    }
    *taken = in.taken;
    return in.n;
}
