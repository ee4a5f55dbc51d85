/* Algorithm 2 of USHER: places the replicas of one combination on the devices.
 *
 * Devices in equal states are one class with a count, so a call works on classes, not on
 * devices. A device that fits best still fits best after it took a replica: it has less left
 * than before, and no other device fitted better. So it is filled at once, and then all its
 * equals, as long as replicas remain. Each action is a move of devices between classes, recorded
 * in a log; undo reads the log backwards. Once the lists have grown to their final size, nothing
 * is allocated. */
#include "scheduler/policies/usher_int.h"

#include <math.h>

static const double slack = 1e-9;

/* One or two models whose replicas are placed together. */
typedef struct unit {
    const weft_usher_config *config[2]; /* second NULL: one model */
    uint32_t model[2];                  /* in the group */
    double key;                         /* the larger Rreq (Creq + Mreq) */
} unit;

/* What one replica, or pair of replicas, needs on a type. */
typedef struct load {
    const weft_usher_need *need[2];
    uint32_t model[2];
} load;

/* -- Units ------------------------------------------------------------------------------------ */

static double rreq(const weft_usher_config *c)
{
    return c->c + c->m;
}

/* Indices of the group by descending Rreq (insertion sort of at most four), or, without sorting, as
 * they are. */
static uint32_t list_side(const weft_usher *u, const weft_usher_config *const *config, uint32_t n,
                          weft_usher_side side, uint32_t *out)
{
    uint32_t len = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (config[i]->side != side)
            continue;
        uint32_t at = len++;
        while (!u->options.no_sort && at > 0 && rreq(config[out[at - 1]]) < rreq(config[i])) {
            out[at] = out[at - 1];
            at--;
        }
        out[at] = i;
    }
    return len;
}

static unit make_unit(const weft_usher_config *const *config, uint32_t a, uint32_t b)
{
    unit x = {.config = {config[a]}, .model = {a, UINT32_MAX}, .key = rreq(config[a])};
    if (b != UINT32_MAX) {
        x.config[1] = config[b];
        x.model[1] = b;
        x.key = fmax(x.key, rreq(config[b]));
    }
    return x;
}

static uint32_t insert_unit(const weft_usher *u, unit *list, uint32_t len, unit x)
{
    uint32_t at = len;
    while (!u->options.no_sort && at > 0 && list[at - 1].key < x.key) {
        list[at] = list[at - 1];
        at--;
    }
    list[at] = x;
    return len + 1;
}

/* C-heavy and M-heavy models in pairs, the others alone, all by descending Rreq. */
static uint32_t list_units(const weft_usher *u, const weft_usher_config *const *config, uint32_t n,
                           unit *list)
{
    uint32_t c[WEFT_USHER_GROUP], m[WEFT_USHER_GROUP], neutral[WEFT_USHER_GROUP], len = 0;
    uint32_t n_c = list_side(u, config, n, WEFT_USHER_C_HEAVY, c);
    uint32_t n_m = list_side(u, config, n, WEFT_USHER_M_HEAVY, m);
    uint32_t n_neutral = list_side(u, config, n, WEFT_USHER_NEUTRAL, neutral);
    uint32_t pairs = u->options.no_alternate ? 0 : n_c < n_m ? n_c : n_m;
    for (uint32_t i = 0; i < pairs; i++)
        len = insert_unit(u, list, len, make_unit(config, c[i], m[i]));
    for (uint32_t i = pairs; i < n_c; i++)
        len = insert_unit(u, list, len, make_unit(config, c[i], UINT32_MAX));
    for (uint32_t i = pairs; i < n_m; i++)
        len = insert_unit(u, list, len, make_unit(config, m[i], UINT32_MAX));
    for (uint32_t i = 0; i < n_neutral; i++)
        len = insert_unit(u, list, len, make_unit(config, neutral[i], UINT32_MAX));
    return len;
}

/* -- Devices ---------------------------------------------------------------------------------- */

static uint32_t find_class(weft_usher *u, uint32_t type, uint32_t c_free, uint32_t m_free,
                           bool inside)
{
    for (uint32_t i = 0; i < u->classes.len; i++) {
        const weft_usher_class *k = &u->classes.at[i];
        if (k->type == type && k->c_free == c_free && k->m_free == m_free && k->inside == inside)
            return i;
    }
    weft_usher_class k = {.type = type,
                          .c_free = c_free,
                          .m_free = m_free,
                          .inside = inside,
                          .first = UINT32_MAX,
                          .last = UINT32_MAX};
    WEFT_VEC_PUSH(u->builder->arena, &u->classes, k);
    return u->classes.len - 1;
}

/* Compute and memory on a type; false: the load cannot be on it. */
static bool load_on(const load *l, uint32_t type, uint32_t *c, uint32_t *m)
{
    const weft_usher_need *a = &l->need[0][type], *b = l->need[1] ? &l->need[1][type] : NULL;
    if (!a->option || (b && !b->option))
        return false;
    *c = a->c + (b ? b->c : 0);
    *m = a->m + (b ? b->m : 0);
    return *c <= 100 && *m <= WEFT_USHER_MEM;
}

static uint32_t how_many(uint32_t c_free, uint32_t m_free, uint32_t c, uint32_t m)
{
    uint32_t n = c_free / c; /* c is never 0 */
    return m > 0 && m_free / m < n ? m_free / m : n;
}

/* Moves `count` devices of class `from` (UINT32_MAX: new ones of `type`) to the class that has
 * `each` more loads. */
static void move_devices(weft_usher *u, const load *l, uint32_t from, uint32_t type, uint32_t count,
                         uint32_t each, double *part)
{
    uint32_t c, m, c_free = 100, m_free = WEFT_USHER_MEM;
    bool inside = true;
    (void)load_on(l, type, &c, &m);
    if (from != UINT32_MAX) {
        c_free = u->classes.at[from].c_free;
        m_free = u->classes.at[from].m_free;
        inside = u->classes.at[from].inside;
        u->classes.at[from].count -= count;
    } else {
        u->opened[type] += count;
    }
    uint32_t to = find_class(u, type, c_free - each * c, m_free - each * m, inside);
    u->classes.at[to].count += count;
    weft_usher_move move = {
        .from = from, .to = to, .count = count, .each = each, .model = {l->model[0], l->model[1]}};
    WEFT_VEC_PUSH(u->builder->arena, &u->moves, move);
    for (uint32_t i = 0; i < 2 && l->need[i]; i++)
        part[l->model[i]] += (double)count * each * l->need[i][type].rate_per_s;
}

/* Best fit of up to `n` loads on open devices, of this group or of others; returns the number of
 * loads that remain. */
static uint32_t fill_open(weft_usher *u, const load *l, uint32_t n, bool inside, double *part)
{
    while (n > 0) {
        uint32_t best = UINT32_MAX, least = 0, c, m;
        for (uint32_t i = 0; i < u->classes.len; i++) {
            const weft_usher_class *k = &u->classes.at[i];
            if (k->count == 0 || k->inside != inside || !load_on(l, k->type, &c, &m) ||
                k->c_free < c || k->m_free < m)
                continue;
            uint32_t left = k->c_free * (WEFT_USHER_MEM / 100) + k->m_free;
            if (best == UINT32_MAX || left < least) {
                best = i;
                least = left;
            }
        }
        if (best == UINT32_MAX)
            break;
        const weft_usher_class *k = &u->classes.at[best];
        (void)load_on(l, k->type, &c, &m);
        uint32_t each = how_many(k->c_free, k->m_free, c, m);
        uint32_t count = n / each < k->count ? n / each : k->count;
        if (count == 0) {
            count = 1;
            each = n;
        }
        move_devices(u, l, best, k->type, count, each, part);
        n -= count * each;
    }
    return n;
}

/* Opens devices of the cheapest type that fits the load; returns the number of loads that
 * remain. */
static uint32_t fill_new(weft_usher *u, const load *l, uint32_t n, double *part, double *cost)
{
    while (n > 0) {
        uint32_t best = UINT32_MAX, c, m;
        for (uint32_t g = 0; g < u->n_type; g++)
            if (u->opened[g] < u->type[g].row->count && load_on(l, g, &c, &m) &&
                (best == UINT32_MAX || u->type[g].price < u->type[best].price))
                best = g;
        if (best == UINT32_MAX)
            break;
        (void)load_on(l, best, &c, &m);
        uint32_t each = how_many(100, WEFT_USHER_MEM, c, m);
        uint32_t stock = u->type[best].row->count - u->opened[best];
        uint32_t count = n / each < stock ? n / each : stock;
        if (count == 0) {
            count = 1;
            each = n;
        }
        move_devices(u, l, UINT32_MAX, best, count, each, part);
        *cost += count * u->type[best].price;
        n -= count * each;
    }
    return n;
}

/* -- Placement -------------------------------------------------------------------------------- */

static bool fits_together(const weft_usher *u, const load *l)
{
    uint32_t c, m;
    for (uint32_t g = 0; g < u->n_type; g++)
        if (load_on(l, g, &c, &m))
            return true;
    return false;
}

static load load_of(const unit *x, uint32_t i)
{
    return (load){.need = {x->config[i]->need}, .model = {x->model[i], UINT32_MAX}};
}

/* Returns the number of replicas without a place. */
static uint32_t place_unit(weft_usher *u, const unit *x, double *part, double *cost)
{
    uint32_t n[2] = {x->config[0]->replicas, x->config[1] ? x->config[1]->replicas : 0}, pairs = 0;
    load both = {.need = {x->config[0]->need, x->config[1] ? x->config[1]->need : NULL},
                 .model = {x->model[0], x->model[1]}};
    if (x->config[1] && fits_together(u, &both))
        pairs = n[0] < n[1] ? n[0] : n[1];
    n[0] -= pairs;
    n[1] -= pairs;
    for (uint32_t outside = 0; outside < 2; outside++) {
        pairs = fill_open(u, &both, pairs, !outside, part);
        for (uint32_t i = 0; i < 2; i++)
            if (n[i] > 0) {
                load one = load_of(x, i);
                n[i] = fill_open(u, &one, n[i], !outside, part);
            }
    }
    pairs = fill_new(u, &both, pairs, part, cost);
    for (uint32_t i = 0; i < 2; i++) {
        n[i] += pairs; /* no device has room for both */
        if (n[i] == 0)
            continue;
        load one = load_of(x, i);
        n[i] = fill_open(u, &one, n[i], true, part);
        if (pairs > 0)
            n[i] = fill_open(u, &one, n[i], false, part);
        n[i] = fill_new(u, &one, n[i], part, cost);
    }
    return n[0] + n[1];
}

weft_usher_result weft_usher__place(weft_usher *u, const weft_usher_config *const *config,
                                    const double *rate_per_s, uint32_t n)
{
    unit list[WEFT_USHER_GROUP];
    weft_usher_result r = {0};
    u->kept = u->classes.len;
    u->moves.len = 0;
    u->stats.placed++;
    uint32_t len = list_units(u, config, n, list);
    uint32_t unplaced = 0;
    for (uint32_t i = 0; i < len; i++)
        unplaced += place_unit(u, &list[i], r.part, &r.cost);
    r.enough = true;
    for (uint32_t i = 0; i < n; i++) {
        r.enough = r.enough && r.part[i] > 0 && r.part[i] >= rate_per_s[i] * (1 - slack);
        r.part[i] = fmin(r.part[i], rate_per_s[i]);
        r.goodput += r.part[i];
    }
    r.complete = r.enough && unplaced == 0;
    return r;
}

void weft_usher__undo(weft_usher *u)
{
    for (uint32_t i = u->moves.len; i-- > 0;) {
        const weft_usher_move *move = &u->moves.at[i];
        if (move->from == UINT32_MAX)
            u->opened[u->classes.at[move->to].type] -= move->count;
        else
            u->classes.at[move->from].count += move->count;
        u->classes.at[move->to].count -= move->count;
    }
    u->moves.len = 0;
    u->classes.len = u->kept;
}
