/* What models need of a device (USHER's Creq and Mreq), the (batch, replicas) pairs that they may
 * run with, and the division of the models into groups. policy_usher.c has the essay. */
#include "scheduler/policies/usher_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double slack = 1e-9;
static const double heavy_ratio = 1.2;

enum {
    BATCH_MAX = 128,
    REPLICAS_MAX = 1 << 24,
    PERCENT_MIN = 3 /* at most 33 of the 48 clients */
};

static const uint32_t paper_batch[WEFT_USHER_BATCHES] = {4, 8, 16, 32, 64, 128};

/* -- One replica ------------------------------------------------------------------------------ */

static bool is_usable(const weft_option *o)
{
    return o->point->procs == 1 &&
           (o->spec.kind == WEFT_SLICE_WHOLE || o->spec.kind == WEFT_SLICE_MPS);
}

static uint32_t percent_of(const weft_option *o)
{
    return o->spec.kind == WEFT_SLICE_WHOLE ? 100 : o->spec.percent;
}

/* The requirement of a run over time, a part of the device. */
static double required(const weft_usher_options *options, const weft_usehist *use,
                       weft_usehist_kind kind)
{
    double mean = weft_usehist_mean(use, kind);
    if (options->measure != WEFT_USHER_EXPECTED)
        return weft_usehist_quantile(use, kind, options->measure == WEFT_USHER_PEAK ? 1 : 0.9);
    for (int i = 0; i < WEFT_USEHIST_LEVELS; i++) {
        double level = (double)i / (WEFT_USEHIST_LEVELS - 1);
        if (weft_usehist_above(use, kind, level) <= options->eps * mean)
            return level;
    }
    return 1;
}

static bool is_over_time(const weft_usher *u, const weft_profile_point *point)
{
    return u->options.measure != WEFT_USHER_MEAN && weft_usehist_is_known(&point->use);
}

/* The smallest share that is at least Creq: the estimator's, if the profile has it, else the share
 * whose speed is within eps of the whole device. The batch must keep the SLO on the share. NULL:
 * the model cannot run there. */
static const weft_option *find_share(const weft_usher *u, uint32_t demand, uint32_t batch,
                                     const weft_fleet_device *row)
{
    const weft_builder *builder = u->builder;
    const weft_option *all = NULL, *found = NULL;
    for (uint32_t i = 0; i < builder->n_option[demand]; i++) {
        const weft_option *o = &builder->option[demand][i];
        if (is_usable(o) && o->row == row && o->point->batch == batch &&
            (!all || percent_of(o) > percent_of(all)))
            all = o;
    }
    if (!all)
        return NULL;
    double creq = all->point->cost.creq * 100;
    if (is_over_time(u, all->point))
        creq = 100 * required(&u->options, &all->point->use, WEFT_USEHIST_COMPUTE);
    for (uint32_t i = 0; i < builder->n_option[demand]; i++) {
        const weft_option *o = &builder->option[demand][i];
        if (!is_usable(o) || o->row != row || o->point->batch != batch)
            continue;
        bool enough = creq > 0 ? percent_of(o) >= creq - 1e-6
                               : o->exec_us <= all->exec_us * (1 + u->options.eps);
        if (enough && (!found || percent_of(o) < percent_of(found)))
            found = o;
    }
    return found ? found : all;
}

/* Memory in thousandths of the device, rounded up; over time the larger of memory and bandwidth. */
static uint32_t memory_parts(const weft_usher *u, const weft_option *o)
{
    double has = (double)o->spec.mem_bytes;
    double parts = has > 0 ? ceil((double)o->mem_bytes * WEFT_USHER_MEM / has) : 0;
    if (is_over_time(u, o->point)) {
        double part = required(&u->options, &o->point->use, WEFT_USEHIST_BANDWIDTH);
        parts = fmax(parts, ceil(part * WEFT_USHER_MEM - 1e-6));
    }
    return (uint32_t)fmin(parts, WEFT_USHER_MEM + 1);
}

/* BS / T by the rule of the paper: T includes the time in which a batch is collected, at this
 * replica's part of the rate, or until the server closes the batch (slo.c: flush time). */
static double rate_with_wait(const weft_usher_model *m, const weft_option *o, uint32_t replicas)
{
    double fill_us = o->point->batch * 1e6 * replicas / m->rate_per_s;
    double wait_us = m->rate_per_s > 0 ? fill_us : 0;
    if (m->slo_us > 0)
        wait_us = fmin(wait_us, fmax(0, m->slo_us - o->exec_us - 0.05 * m->slo_us));
    return fmin(o->peak_per_s, o->point->batch * 1e6 / (wait_us + o->exec_us));
}

static void fill_needs(const weft_usher *u, const weft_usher_model *m, uint32_t batch,
                       weft_usher_need *need)
{
    for (uint32_t g = 0; g < u->n_type; g++) {
        const weft_option *o = find_share(u, m->demand, batch, u->type[g].row);
        need[g] = (weft_usher_need){.option = o};
        if (!o)
            continue;
        uint32_t percent = percent_of(o);
        need[g].c = percent < PERCENT_MIN ? PERCENT_MIN : percent;
        need[g].m = memory_parts(u, o);
        need[g].rate_per_s = o->peak_per_s;
        if (need[g].m > WEFT_USHER_MEM)
            need[g].option = NULL;
    }
}

/* Highest and lowest rate of one replica over the types that it may run on; false: there is none.
 * With wait=1, the lowest rate is that of many replicas, whose batches are closed early. */
static bool find_rates(const weft_usher *u, const weft_usher_model *m, const weft_usher_need *need,
                       double *lo, double *hi)
{
    *lo = INFINITY;
    *hi = 0;
    for (uint32_t g = 0; g < u->n_type; g++)
        if (need[g].option) {
            *lo = fmin(*lo, u->options.wait ? rate_with_wait(m, need[g].option, REPLICAS_MAX)
                                            : need[g].rate_per_s);
            *hi = fmax(*hi, need[g].rate_per_s);
        }
    return *hi > 0;
}

/* -- Pairs ------------------------------------------------------------------------------------ */

/* The batches of the paper that the profile has; if none of them is usable, the largest others. */
static uint32_t list_batches(const weft_usher *u, const weft_usher_model *m, uint32_t *out)
{
    const weft_builder *builder = u->builder;
    uint32_t n = 0;
    for (uint32_t k = 0; k < WEFT_USHER_BATCHES; k++)
        for (uint32_t i = 0; i < builder->n_option[m->demand]; i++) {
            const weft_option *o = &builder->option[m->demand][i];
            if (is_usable(o) && o->point->batch == paper_batch[k]) {
                out[n++] = paper_batch[k];
                break;
            }
        }
    if (n > 0)
        return n;
    for (uint32_t below = BATCH_MAX + 1; n < WEFT_USHER_BATCHES; n++) {
        uint32_t next = 0;
        for (uint32_t i = 0; i < builder->n_option[m->demand]; i++) {
            const weft_option *o = &builder->option[m->demand][i];
            if (is_usable(o) && o->point->batch < below && o->point->batch > next)
                next = o->point->batch;
        }
        if (next == 0)
            break;
        out[n] = below = next;
    }
    return n;
}

static double above_half(double share)
{
    return share > 0.5 ? 1 : share == 0.5 ? 0.5 : 0;
}

/* Computes the derived fields of a pair. */
static void finish_config(const weft_usher *u, const weft_usher_model *m, weft_usher_config *c)
{
    uint32_t hosts = 0;
    double lo = INFINITY, hi = 0,
           least[WEFT_USHER_BOUNDS] = {INFINITY, INFINITY, INFINITY, INFINITY};
    c->unit[0] = c->unit[1] = m->rate_per_s > 0 ? INFINITY : 0;
    for (uint32_t g = 0; g < u->n_type; g++) {
        const weft_usher_need *need = &c->need[g];
        if (!need->option)
            continue;
        double part[2] = {need->c / 100.0, (double)need->m / WEFT_USHER_MEM};
        hosts++;
        lo = fmin(lo, need->rate_per_s);
        hi = fmax(hi, need->rate_per_s);
        c->c += need->c;
        c->m += 100 * part[1];
        for (uint32_t q = 0; q < 2; q++) {
            least[q] = fmin(least[q], u->type[g].price * part[q]);
            least[q + 2] = fmin(least[q + 2], u->type[g].price * above_half(part[q]));
            if (m->rate_per_s > 0)
                c->unit[q] = fmin(c->unit[q], part[q] / need->rate_per_s);
        }
    }
    c->c /= hosts;
    c->m /= hosts;
    c->side = c->c >= heavy_ratio * c->m   ? WEFT_USHER_C_HEAVY
              : c->m >= heavy_ratio * c->c ? WEFT_USHER_M_HEAVY
                                           : WEFT_USHER_NEUTRAL;
    c->sure = c->replicas * lo >= m->rate_per_s * (1 - slack);
    c->goodput = fmin(m->rate_per_s, c->replicas * hi);
    double carriers = hi > 0 ? ceil(c->goodput / hi * (1 - slack)) : c->replicas;
    bool fixed = u->builder->problem->goal == WEFT_GOAL_GOODPUT;
    for (uint32_t q = 0; q < WEFT_USHER_BOUNDS; q++) {
        c->must[q] = carriers * least[q];
        c->least[q] = fixed ? c->must[q] : c->replicas * least[q];
    }
}

static bool is_same(const weft_usher *u, const weft_usher_config *a, const weft_usher_config *b)
{
    bool rates = u->n_type > 1 || u->builder->problem->goal == WEFT_GOAL_GOODPUT;
    if (a->replicas != b->replicas)
        return false;
    for (uint32_t g = 0; g < u->n_type; g++) {
        const weft_usher_need *p = &a->need[g], *q = &b->need[g];
        if (!p->option != !q->option)
            return false;
        if (p->option && (p->c != q->c || p->m != q->m))
            return false;
        if (p->option && rates && p->rate_per_s != q->rate_per_s)
            return false;
    }
    return true;
}

/* Adds the pair, unless it cannot carry the rate or equals another pair. */
static void add_config(const weft_usher *u, weft_usher_model *m, uint32_t batch, double replicas,
                       const weft_usher_need *need)
{
    bool cost = u->builder->problem->goal != WEFT_GOAL_GOODPUT;
    weft_usher_config c = {.batch = batch, .need = need};
    c.replicas = (uint32_t)fmin(fmax(1, replicas), REPLICAS_MAX);
    if (u->options.wait) {
        weft_usher_need *own = weft_arena_array(u->builder->arena, u->n_type, sizeof *own);
        memcpy(own, need, u->n_type * sizeof *own);
        for (uint32_t g = 0; g < u->n_type; g++)
            if (own[g].option)
                own[g].rate_per_s = rate_with_wait(m, own[g].option, c.replicas);
        c.need = own;
    }
    finish_config(u, m, &c);
    m->n_pair++;
    if (cost && !u->options.full && c.goodput < m->rate_per_s * (1 - slack))
        return;
    for (uint32_t i = 0; i < m->n_config && !u->options.full; i++)
        if (is_same(u, &c, &m->config[i])) {
            m->n_same++;
            return;
        }
    m->config[m->n_config++] = c;
}

static double key_of(const weft_usher_config *c)
{
    return fmax(fmax(c->least[0], c->least[1]), fmax(c->least[2], c->least[3]));
}

/* Best first: most goodput, of equal ones the least use of devices. */
static int compare_configs(const void *a, const void *b)
{
    const weft_usher_config *p = a, *q = b;
    if (p->goodput != q->goodput)
        return p->goodput > q->goodput ? -1 : 1;
    if (key_of(p) != key_of(q))
        return key_of(p) < key_of(q) ? -1 : 1;
    if (p->replicas != q->replicas)
        return p->replicas < q->replicas ? -1 : 1;
    return (p->batch > q->batch) - (p->batch < q->batch);
}

static double fleet_size(const weft_usher *u)
{
    double sum = 0;
    for (uint32_t g = 0; g < u->n_type; g++)
        sum += u->type[g].row->count;
    return sum;
}

/* Lists the pairs with RD = m * c, where c replicas of the largest batch, on the type that is
 * fastest with it, carry the rate. */
static void list_configs(weft_usher *u, weft_usher_model *m)
{
    bool goodput = u->builder->problem->goal == WEFT_GOAL_GOODPUT, sure = false;
    uint32_t batch[WEFT_USHER_BATCHES], n = list_batches(u, m, batch), largest = 0;
    weft_usher_need *need[WEFT_USHER_BATCHES];
    double lo, hi, at_largest = 0, cells = 0;
    for (uint32_t k = 0; k < n; k++) {
        need[k] = weft_arena_array(u->builder->arena, u->n_type, sizeof *need[k]);
        fill_needs(u, m, batch[k], need[k]);
        if (!find_rates(u, m, need[k], &lo, &hi))
            continue;
        if (batch[k] > largest) {
            largest = batch[k];
            at_largest = hi;
        }
        for (uint32_t g = 0; g < u->n_type; g++)
            if (need[k][g].option) {
                m->c += need[k][g].c;
                m->m += need[k][g].m * 100.0 / WEFT_USHER_MEM;
                cells++;
            }
    }
    if (largest == 0)
        return;
    m->c /= cells;
    m->m /= cells;
    m->config =
        weft_arena_array(u->builder->arena, (size_t)WEFT_USHER_BATCHES * (WEFT_USHER_DEGREES + 1),
                         sizeof *m->config);
    double c = fmax(1, ceil(m->rate_per_s / at_largest * (1 - slack)));
    for (uint32_t k = 0; k < n; k++) {
        if (!find_rates(u, m, need[k], &lo, &hi))
            continue;
        for (uint32_t i = 1; i <= u->options.degree; i++) {
            double replicas = goodput ? fmin(i * c, fleet_size(u)) : i * c;
            add_config(u, m, batch[k], replicas, need[k]);
            sure = sure || replicas * lo >= m->rate_per_s * (1 - slack);
        }
    }
    for (uint32_t k = 0; k < n && !sure && !goodput; k++)
        if (find_rates(u, m, need[k], &lo, &hi))
            add_config(u, m, batch[k], ceil(m->rate_per_s / lo * (1 - slack)), need[k]);
    if (m->n_config > 0)
        qsort(m->config, m->n_config, sizeof *m->config, compare_configs);
}

static weft_err refuse_model(const weft_usher *u, const weft_usher_model *m)
{
    weft_where where = {.item = u->builder->demands->at[m->demand].model};
    if (u->options.wait && m->config)
        return weft_diag_error(u->builder->diag, WEFT_ERR_INFEASIBLE, where,
                               "no number of replicas carries %.6g/s when the time to collect a "
                               "batch counts (wait=1) and no SLO ends it; an SLO would",
                               m->rate_per_s);
    return weft_diag_error(u->builder->diag, WEFT_ERR_INFEASIBLE, where,
                           "usher places on whole GPUs and MPS shares, and the model meets its SLO "
                           "on none that it was profiled on; add such a profile, allow MPS, or "
                           "relax the SLO");
}

weft_err weft_usher__models(weft_usher *u)
{
    const weft_builder *builder = u->builder;
    weft_err err = WEFT_ERR_OK;
    u->model = weft_arena_array(builder->arena, builder->demands->n, sizeof *u->model);
    for (uint32_t i = 0; i < builder->demands->n; i++) {
        uint32_t demand = builder->order[i];
        const weft_demand *d = &builder->demands->at[demand];
        weft_usher_model *m = &u->model[u->n_model];
        *m = (weft_usher_model){.demand = demand, .rank = i, .rate_per_s = d->rate_per_s};
        m->slo_us = weft_rules__slo_us(&builder->problem->rules, d);
        list_configs(u, m);
        if (m->n_config > 0)
            u->n_model++;
        else if (builder->problem->goal != WEFT_GOAL_GOODPUT)
            err = refuse_model(u, m);
    }
    return err;
}

/* -- Groups ----------------------------------------------------------------------------------- */

typedef struct element {
    double d;
    uint32_t at;
} element;

static int compare_elements(const void *a, const void *b)
{
    const element *p = a, *q = b;
    if (p->d != q->d)
        return p->d < q->d ? -1 : 1;
    return (p->at > q->at) - (p->at < q->at);
}

/* Minimises the sum of |d_i + d_j|: |x| is convex, so the smallest is paired with the largest. With
 * an odd number, one is paired with 0. */
void weft_usher__pair(const double *d, uint32_t n, uint32_t *mate, weft_arena *arena)
{
    element *e = weft_arena_array(arena, n + 1, sizeof *e);
    uint32_t count = n + n % 2;
    for (uint32_t i = 0; i < count; i++)
        e[i] = (element){.d = i < n ? d[i] : 0, .at = i};
    if (count > 0)
        qsort(e, count, sizeof *e, compare_elements);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t other = e[count - 1 - i].at;
        if (e[i].at < n)
            mate[e[i].at] = other < n ? other : e[i].at;
    }
}

static int compare_members(const void *a, const void *b)
{
    uint32_t p = *(const uint32_t *)a, q = *(const uint32_t *)b;
    return (p > q) - (p < q);
}

/* Joins pairs of sets of up to `size` members into sets twice as large; returns their number. Sets
 * are in the order of their first members. */
static uint32_t join_pairs(weft_usher *u, uint32_t n, uint32_t size)
{
    weft_arena *arena = u->builder->arena;
    double *d = weft_arena_array(arena, n, sizeof *d);
    uint32_t *mate = weft_arena_array(arena, n, sizeof *mate), out = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < size && u->group[i][k] != UINT32_MAX; k++)
            d[i] += u->model[u->group[i][k]].c - u->model[u->group[i][k]].m;
    weft_usher__pair(d, n, mate, arena);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t set[WEFT_USHER_GROUP], len = 0;
        if (mate[i] < i)
            continue;
        for (uint32_t k = 0; k < size && u->group[i][k] != UINT32_MAX; k++)
            set[len++] = u->group[i][k];
        for (uint32_t k = 0; mate[i] > i && k < size && u->group[mate[i]][k] != UINT32_MAX; k++)
            set[len++] = u->group[mate[i]][k];
        qsort(set, len, sizeof *set, compare_members);
        for (uint32_t k = 0; k < WEFT_USHER_GROUP; k++)
            u->group[out][k] = k < len ? set[k] : UINT32_MAX;
        out++;
    }
    return out;
}

void weft_usher__group(weft_usher *u)
{
    u->group = weft_arena_array(u->builder->arena, u->n_model, sizeof *u->group);
    for (uint32_t i = 0; i < u->n_model; i++)
        for (uint32_t k = 0; k < WEFT_USHER_GROUP; k++)
            u->group[i][k] = k == 0 ? i : UINT32_MAX;
    u->n_group = u->n_model;
    if (!u->options.no_divide) {
        u->n_group = join_pairs(u, u->n_group, 1);
        u->n_group = join_pairs(u, u->n_group, 2);
        return;
    }
    u->n_group = (u->n_model + WEFT_USHER_GROUP - 1) / WEFT_USHER_GROUP;
    for (uint32_t i = 0; i < u->n_group; i++)
        for (uint32_t k = 0; k < WEFT_USHER_GROUP; k++) {
            uint32_t at = i * WEFT_USHER_GROUP + k;
            u->group[i][k] = at < u->n_model ? at : UINT32_MAX;
        }
}
