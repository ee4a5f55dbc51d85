/* Finds a device with room for a slice without a look at every device: first fit and best fit over
 * buckets.
 *
 * A pool holds the open devices of one fleet row that are split in one way, or the split instances
 * of one MIG profile. Its members are grouped into buckets by a small integer, the key, that says
 * what is taken on them:
 *
 *   MIG     memory slots taken (bit set) * 8 + GPCs taken
 *   shares  percent * 17 + memory taken in sixteenths
 *   cores   number of slices taken
 *   whole   0 free, 1 taken
 *
 * Few keys occur (at most some hundreds). A bucket is a set of device numbers that finds its least
 * member in constant time. A look-up visits every bucket. The members of a bucket of shares differ
 * in memory and processes, so there the look-up tries them one after another. */
#include "scheduler/builder/builder_int.h"

#include <string.h>

enum {
    KINDS = 4, /* weft_fleet_slice_kind; pools of instances follow, one for each MIG profile */
    SIXTEENTHS = 17,
    KEYS_MAX = WEFT_FLEET_CORES_MAX + 1,
};

#define NONE UINT32_MAX

/* -- Sets of numbers -------------------------------------------------------------------------- */

/* A set of small numbers as a bit set in two levels: `word` has a bit for each member, `top` a bit
 * for each word that is not 0. */
typedef struct set {
    uint64_t *word, *top;
    uint32_t n_top, len;
} set;

static set make_set(weft_arena *arena, uint32_t capacity)
{
    set s = {.n_top = (capacity / 64 + 1) / 64 + 1};
    s.word = weft_arena_array(arena, (size_t)s.n_top * 64, sizeof *s.word);
    s.top = weft_arena_array(arena, s.n_top, sizeof *s.top);
    return s;
}

static void add_to(set *s, uint32_t x)
{
    s->word[x / 64] |= (uint64_t)1 << x % 64;
    s->top[x / 4096] |= (uint64_t)1 << x / 64 % 64;
    s->len++;
}

static void take_from(set *s, uint32_t x)
{
    s->word[x / 64] &= ~((uint64_t)1 << x % 64);
    if (s->word[x / 64] == 0)
        s->top[x / 4096] &= ~((uint64_t)1 << x / 64 % 64);
    s->len--;
}

/* The least member that is at least `from`; NONE: none. */
static uint32_t next_in(const set *s, uint32_t from)
{
    uint32_t w = from / 64;
    if (w >= s->n_top * 64)
        return NONE;
    uint64_t bits = s->word[w] & ~(uint64_t)0 << from % 64;
    if (bits)
        return w * 64 + (uint32_t)__builtin_ctzll(bits);
    w++;
    for (uint32_t t = w / 64; t < s->n_top; t++) {
        uint64_t tops = s->top[t];
        if (t == w / 64)
            tops &= ~(uint64_t)0 << w % 64;
        if (tops) {
            w = t * 64 + (uint32_t)__builtin_ctzll(tops);
            return w * 64 + (uint32_t)__builtin_ctzll(s->word[w]);
        }
    }
    return NONE;
}

/* -- Pools ------------------------------------------------------------------------------------ */

typedef struct bucket {
    uint32_t key;
    set members; /* numbers of devices in their row; of instances: that * 8 + start slot */
} bucket;

typedef struct pool {
    WEFT_VEC(bucket) buckets;
    uint32_t *index; /* by key: index of the bucket + 1; NULL: no bucket yet */
} pool;

struct weft_pool {
    uint32_t width;      /* pools for each row */
    pool *at;            /* by row * width + kind */
    uint32_t **device;   /* by row, then number in the row: index among builder->devices */
    uint32_t *cap;       /* by row: length of device[row] */
    uint64_t *mem_bytes; /* by row */
    const weft_mig_profile **first_mig; /* by row */
};

void weft_pool__init(weft_builder *builder)
{
    size_t rows = builder->fleet->n_device, n_mig = 0;
    for (size_t i = 0; i < rows; i++) {
        const weft_device_type *type = weft_device_type_find(builder->fleet->device[i].type);
        if (type && type->n_mig > n_mig)
            n_mig = type->n_mig;
    }
    struct weft_pool *p = weft_arena_array(builder->arena, 1, sizeof *p);
    p->width = (uint32_t)(KINDS + n_mig);
    p->at = weft_arena_array(builder->arena, rows * p->width, sizeof *p->at);
    p->device = weft_arena_array(builder->arena, rows, sizeof *p->device);
    p->cap = weft_arena_array(builder->arena, rows, sizeof *p->cap);
    p->mem_bytes = weft_arena_array(builder->arena, rows, sizeof *p->mem_bytes);
    p->first_mig = weft_arena_array(builder->arena, rows, sizeof *p->first_mig);
    for (size_t i = 0; i < rows; i++) {
        const weft_device_type *type = weft_device_type_find(builder->fleet->device[i].type);
        p->mem_bytes[i] = weft_fleet__mem(&builder->fleet->device[i]);
        p->first_mig[i] = type ? type->mig : NULL;
    }
    builder->pool = p;
}

static size_t row_of(const weft_builder *builder, const weft_fleet_device *row)
{
    return (size_t)(row - builder->fleet->device);
}

static set *set_of(const weft_builder *builder, pool *p, uint32_t key, uint32_t capacity)
{
    if (!p->index)
        p->index = weft_arena_array(builder->arena, KEYS_MAX, sizeof *p->index);
    if (!p->index[key]) {
        bucket b = {.key = key, .members = make_set(builder->arena, capacity)};
        WEFT_VEC_PUSH(builder->arena, &p->buckets, b);
        p->index[key] = p->buckets.len;
    }
    return &p->buckets.at[p->index[key] - 1].members;
}

static uint32_t shares_key(uint32_t percent, uint64_t taken, uint64_t of)
{
    uint64_t part = of ? (uint64_t)((double)taken / (double)of * (SIXTEENTHS - 1)) : 0;
    if (percent > 100)
        percent = 100; /* oversubscribed */
    return percent * SIXTEENTHS + (uint32_t)(part < SIXTEENTHS ? part : SIXTEENTHS - 1);
}

static uint32_t device_key(const weft_builder *builder, const weft_builder_device *d)
{
    switch (d->kind) {
    case WEFT_SLICE_MIG:
        return (d->mig_taken & 0xff) * 8 + d->gpcs % 8;
    case WEFT_SLICE_MPS:
        return shares_key(d->percent, d->mem_bytes,
                          builder->pool->mem_bytes[row_of(builder, d->row)]);
    default:
        return d->n_slice;
    }
}

static set *device_set(weft_builder *builder, uint32_t device)
{
    const weft_builder_device *d = &builder->devices.at[device];
    size_t row = row_of(builder, d->row);
    return set_of(builder, &builder->pool->at[row * builder->pool->width + d->kind],
                  device_key(builder, d), d->row->count);
}

void weft_pool__insert(weft_builder *builder, uint32_t device)
{
    const weft_builder_device *d = &builder->devices.at[device];
    size_t row = row_of(builder, d->row);
    struct weft_pool *p = builder->pool;
    if (d->nth >= p->cap[row]) {
        uint32_t cap = p->cap[row] ? p->cap[row] * 2 : 16;
        p->device[row] = weft_arena_grow(builder->arena, p->device[row],
                                         p->cap[row] * sizeof(uint32_t), cap * sizeof(uint32_t));
        p->cap[row] = cap;
    }
    p->device[row][d->nth] = device;
    add_to(device_set(builder, device), d->nth);
}

void weft_pool__remove(weft_builder *builder, uint32_t device)
{
    take_from(device_set(builder, device), builder->devices.at[device].nth);
}

/* -- Split instances -------------------------------------------------------------------------- */

static pool *instance_pool(const weft_builder *builder, const weft_fleet_device *row,
                           const weft_mig_profile *mig)
{
    size_t i = row_of(builder, row);
    size_t kind = KINDS + (size_t)(mig - builder->pool->first_mig[i]);
    return &builder->pool->at[i * builder->pool->width + kind];
}

static set *instance_set(weft_builder *builder, uint32_t device, uint32_t start)
{
    const weft_builder_device *d = &builder->devices.at[device];
    const weft_builder_instance *i = &d->instance[start];
    return set_of(builder, instance_pool(builder, d->row, i->mig),
                  shares_key(i->percent, i->mem_bytes, i->mig->mem_bytes), d->row->count * 8);
}

void weft_pool__insert_instance(weft_builder *builder, uint32_t device, uint32_t start)
{
    add_to(instance_set(builder, device, start), builder->devices.at[device].nth * 8 + start);
}

void weft_pool__remove_instance(weft_builder *builder, uint32_t device, uint32_t start)
{
    take_from(instance_set(builder, device, start), builder->devices.at[device].nth * 8 + start);
}

/* -- Finding ---------------------------------------------------------------------------------- */

int32_t weft_pool__mig_start(const weft_mig_profile *mig, uint32_t taken)
{
    uint32_t range = (1u << mig->slots) - 1;
    /* An instance with more memory slots than GPCs (3g, 1g with double memory) goes right first: in
     * the left half a 3g blocks slot 3, which a 1g could use (ParvaGPU's segment relocation), and
     * slot 7 has no GPC that would be lost. */
    bool right = mig->slots > mig->gpcs;
    for (int32_t i = 0; i < 8; i++) {
        int32_t start = right ? 7 - i : i;
        if (mig->starts & 1u << start && !(taken & range << start))
            return start;
    }
    return -1;
}

/* How much is taken in a bucket, comparable inside one pool; NONE: no member has room. */
static uint32_t taken_of(const weft_builder *builder, const weft_option *o, uint32_t key,
                         bool shares)
{
    uint32_t percent = key / SIXTEENTHS;
    if (shares)
        return builder->problem->rules.oversubscribe || percent + o->spec.percent <= 100 ? percent
                                                                                         : NONE;
    switch (o->spec.kind) {
    case WEFT_SLICE_MIG:
        return weft_pool__mig_start(o->spec.mig, key / 8) >= 0 ? key % 8 : NONE;
    case WEFT_SLICE_CORES:
        return key;
    default:
        return key == 0 ? 0 : NONE;
    }
}

/* The member found by best fit, where most is taken, or by first fit; ties go to the least number.
 */
static uint32_t find_in(const weft_builder *builder, const pool *p, const weft_option *o, bool best,
                        bool instances, weft_pool_fits fits, void *user)
{
    bool shares = instances || o->spec.kind == WEFT_SLICE_MPS;
    const uint32_t *device = builder->pool->device[row_of(builder, o->row)];
    uint32_t found = NONE, most = 0;
    for (uint32_t i = 0; i < p->buckets.len; i++) {
        const bucket *s = &p->buckets.at[i];
        uint32_t taken = s->members.len ? taken_of(builder, o, s->key, shares) : NONE;
        if (taken == NONE || (best && found != NONE && taken < most))
            continue;
        bool only_lower = found != NONE && (!best || taken == most);
        uint32_t x = next_in(&s->members, 0);
        while (x != NONE && !(only_lower && x >= found)) {
            bool ok =
                instances ? fits(user, device[x / 8], (int32_t)(x % 8)) : fits(user, device[x], -1);
            if (ok) {
                found = x;
                most = taken;
                break;
            }
            x = next_in(&s->members, x + 1);
        }
    }
    return found;
}

uint32_t weft_pool__find(const weft_builder *builder, const weft_option *o, bool best,
                         weft_pool_fits fits, void *user, int32_t *start)
{
    size_t row = row_of(builder, o->row);
    const struct weft_pool *p = builder->pool;
    uint32_t x;
    *start = -1;
    if (weft_fleet_slice__is_nested(&o->spec)) {
        x = find_in(builder, instance_pool(builder, o->row, o->spec.mig), o, best, true, fits,
                    user);
        if (x != NONE) {
            *start = (int32_t)(x % 8);
            return p->device[row][x / 8];
        }
    }
    x = find_in(builder, &p->at[row * p->width + o->spec.kind], o, best, false, fits, user);
    return x == NONE ? NONE : p->device[row][x];
}
