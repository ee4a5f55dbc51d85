/* The plan with the least price as an integer program, for fleets of any mixture: MIG, MPS, both in
 * each other, whole devices and CPU slices, of several types and prices, with or without models in
 * turn on one slice.
 *
 *   x[j]  slices used as column j says (slice_columns.c)
 *   y[p]  devices, or instances, split as pattern p says (slice_patterns.c)
 *   minimise  sum (price + least) y  over the patterns of devices  subject to
 *             sum_j part[j][d] x[j] >= 1                           for each demand d
 *             sum_p has[p][k] y[p] - sum_{j takes k} x[j]
 *                 - sum_{p inside k} y[p] >= 0                     for each kind of slot k
 *             sum y <= count                                       for each row of the fleet
 *             percentages, memory and processes <= y               for a slot of one device's own
 *             objective < that of the best plan known
 *
 * part[j][d] is the part of the rate of d that j carries, at most 1: that makes the program tight
 * for models that need less than one slice. `least` is 1e-5 of the mean price, so that among plans
 * of one price the one with the fewest devices wins. Without prices each device costs 1.
 *
 * If the program has no solution, no plan is better than the best one known. Its cost is in units
 * of the mean price, and large programs (over 1e4 devices) have no `least`.
 *
 * The price of a plan is a sum of whole devices. On small fleets all such sums are listed: the best
 * plan known is to be beaten by the next lower sum, and a bound is rounded up to the next sum. What
 * the solver leaves open is decided for each maximal choice of devices that is cheap enough: with
 * these numbers of devices as limits the program is much tighter. */
#include "scheduler/policies/fleet_program.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

enum {
    DEMANDS_MAX = 64,
    COLUMNS_MAX = 30000,
    SUMS_MAX = 1 << 12,
    CHOICES_MAX = 64,
    FIRST_PART = 40,
    ENTRIES_FREE = 1500,
    ENTRIES_FEW = 800,
    NODES_LEAST = 10
};

static const double least_part = 1e-5;

typedef struct program {
    weft_builder *builder;
    weft_slice_columns columns;
    weft_slice_patterns patterns;
    double unit;  /* dollars an hour; 0: no device has a price */
    double least; /* objective of a device beside its price */
    uint32_t n_x, n_y, n_row, n_entry;
    uint32_t *demand_row; /* by demand: its place in the order of names */
    uint32_t *slot_row;   /* by slot: its first row; one of its own has three */
    uint32_t *start, *row;
    double *coeff, *cost, *upper, *row_lo, *row_hi;
    double *x;
    struct choice *sum; /* all multisets of devices, by ascending objective; NULL: too many */
    uint32_t n_sum;
    uint32_t first_row; /* of the rows that limit the devices */
} program;

typedef struct choice {
    double value;
    uint32_t *count; /* by row of the fleet */
    bool closed;     /* whether it and all its parts hold no plan below the cutoff */
} choice;

/* -- The matrix ------------------------------------------------------------------------------- */

static void add_entry(program *m, uint32_t row, double coeff)
{
    m->row[m->n_entry] = row;
    m->coeff[m->n_entry++] = coeff;
}

static void choose_unit(program *m)
{
    const weft_fleet *fleet = m->builder->fleet;
    double sum = 0, count = 0;
    for (size_t i = 0; i < fleet->n_device; i++) {
        sum += weft_fleet__price(&fleet->device[i]);
        count += fleet->device[i].count;
    }
    m->unit = fleet->n_device > 0 ? sum / (double)fleet->n_device : 0;
    m->least = count <= 1e4 ? least_part : 0;
}

/* The objective of plans with this price and number of devices. */
static double value_of(const program *m, double cost_per_hour, double devices)
{
    return m->unit > 0 ? cost_per_hour / m->unit + m->least * devices : devices;
}

static int compare_sums(const void *a, const void *b)
{
    const choice *p = a, *q = b;
    if (p->value != q->value)
        return p->value < q->value ? -1 : 1;
    return (p->count > q->count) - (p->count < q->count);
}

static void list_sums(program *m)
{
    const weft_fleet *fleet = m->builder->fleet;
    double n = 1;
    for (size_t i = 0; i < fleet->n_device; i++)
        n *= fleet->device[i].count + 1.0;
    if (n > SUMS_MAX)
        return;
    m->n_sum = (uint32_t)n;
    m->sum = weft_arena_array(m->builder->arena, m->n_sum, sizeof *m->sum);
    uint32_t *count =
        weft_arena_array(m->builder->arena, m->n_sum * fleet->n_device, sizeof *count);
    for (uint32_t k = 0; k < m->n_sum; k++, count += fleet->n_device) {
        uint32_t left = k;
        m->sum[k].count = count;
        for (size_t i = 0; i < fleet->n_device; i++) {
            count[i] = left % (fleet->device[i].count + 1);
            left /= fleet->device[i].count + 1;
            m->sum[k].value += count[i] * value_of(m, weft_fleet__price(&fleet->device[i]), 1);
        }
    }
    qsort(m->sum, m->n_sum, sizeof *m->sum, compare_sums);
}

/* The objective of each device if all are of one price, else 0. */
static double common_value(const program *m)
{
    const weft_fleet *fleet = m->builder->fleet;
    for (size_t i = 1; i < fleet->n_device; i++)
        if (weft_fleet__price(&fleet->device[i]) != weft_fleet__price(&fleet->device[0]))
            return 0;
    return value_of(m, m->unit, 1);
}

/* The highest objective that is lower than `known`. */
static double next_below(const program *m, double known)
{
    double step = m->unit > 0 && m->least > 0 ? m->least / 2 : 1e-6, each = common_value(m);
    uint32_t i = m->n_sum;
    if (!isfinite(known))
        return known;
    if (each > 0)
        return (ceil(known / each - 1e-6) - 1) * each + step / 2;
    while (i > 0 && m->sum[i - 1].value > known - step)
        i--;
    return i > 0 ? m->sum[i - 1].value + step / 2 : m->n_sum > 0 ? -1 : known - step;
}

/* The lowest objective of any plan under a lower bound. */
static double round_up(const program *m, double bound)
{
    double step = m->unit > 0 && m->least > 0 ? m->least / 2 : 1e-6, each = common_value(m);
    if (each > 0)
        return ceil(bound / each - 1e-6) * each;
    for (uint32_t i = 0; i < m->n_sum; i++)
        if (m->sum[i].value >= bound - step)
            return m->sum[i].value;
    return bound;
}

/* Most slices of a column that are of use. */
static double most_of(const program *m, const weft_slice_column *c)
{
    double most = 1;
    for (uint32_t i = 0; i < c->n; i++)
        most = fmax(most, ceil(1 / weft_turn__part(m->builder, &c->turn[i]) - 1e-9));
    return most;
}

/* What a column takes of its slot. */
static void add_use(program *m, const weft_slice_column *c)
{
    const weft_fleet_slice *spec = &m->builder->table.shape[c->shape].spec;
    uint32_t row = m->slot_row[c->slot];
    if (!m->patterns.slots.at[c->slot].own) {
        add_entry(m, row, -1);
        return;
    }
    if (!m->builder->problem->rules.oversubscribe)
        add_entry(m, row, -(double)spec->percent / 100);
    if (spec->mem_bytes > 0)
        add_entry(m, row + 1, -(double)c->mem_bytes / (double)spec->mem_bytes);
    add_entry(m, row + 2, -(double)c->clients / WEFT_MPS_CLIENTS_MAX);
}

static void add_columns(program *m)
{
    for (uint32_t j = 0; j < m->n_x; j++) {
        const weft_slice_column *c = &m->columns.at.at[j];
        m->start[j] = m->n_entry;
        m->upper[j] = most_of(m, c);
        for (uint32_t i = 0; i < c->n; i++)
            add_entry(m, m->demand_row[c->turn[i].demand],
                      weft_turn__part(m->builder, &c->turn[i]));
        add_use(m, c);
    }
}

static void add_patterns(program *m)
{
    uint32_t last = m->n_row - 1, rows = last - (uint32_t)m->builder->fleet->n_device;
    for (uint32_t k = 0; k < m->n_y; k++) {
        const weft_slice_pattern *p = &m->patterns.at.at[k];
        uint32_t col = m->n_x + k;
        m->start[col] = m->n_entry;
        bool own = p->n > 0 && m->patterns.slots.at[p->has[0].slot].own > 0;
        for (uint32_t i = 0; i < p->n; i++)
            add_entry(m, m->slot_row[p->has[i].slot], p->has[i].n);
        for (uint32_t i = 1; own && i < 3; i++)
            add_entry(m, m->slot_row[p->has[0].slot] + i, 1);
        if (p->inside != NONE) {
            add_entry(m, m->slot_row[p->inside], -1);
            m->upper[col] = 7.0 * p->row->count;
            continue;
        }
        m->cost[col] = value_of(m, weft_fleet__price(p->row), 1);
        m->upper[col] = own ? 1 : p->row->count;
        add_entry(m, rows + (uint32_t)(p->row - m->builder->fleet->device), 1);
        add_entry(m, last, m->cost[col]);
    }
    m->start[m->n_x + m->n_y] = m->n_entry;
}

static weft_program build(program *m, double cutoff, uint32_t nodes_max)
{
    weft_arena *arena = m->builder->arena;
    const weft_fleet *fleet = m->builder->fleet;
    uint32_t n_demand = (uint32_t)m->builder->demands->n;
    m->n_x = m->columns.at.len;
    m->n_y = m->patterns.at.len;
    m->slot_row = weft_arena_array(arena, m->patterns.slots.len + 1u, sizeof *m->slot_row);
    m->demand_row = weft_arena_array(arena, n_demand, sizeof *m->demand_row);
    for (uint32_t s = 0; s < n_demand; s++)
        m->demand_row[m->builder->order[s]] = s;
    m->n_row = n_demand;
    for (uint32_t i = 0; i < m->patterns.slots.len; i++) {
        m->slot_row[i] = m->n_row;
        m->n_row += m->patterns.slots.at[i].own ? 3 : 1;
    }
    m->first_row = m->n_row;
    m->n_row += (uint32_t)fleet->n_device + 1;
    uint32_t n_col = m->n_x + m->n_y;
    size_t entries = 0;
    for (uint32_t j = 0; j < m->n_x; j++)
        entries += m->columns.at.at[j].n + 3u;
    for (uint32_t k = 0; k < m->n_y; k++)
        entries += m->patterns.at.at[k].n + 5u;
    m->start = weft_arena_array(arena, n_col + 1u, sizeof *m->start);
    m->cost = weft_arena_array(arena, n_col, sizeof *m->cost);
    m->upper = weft_arena_array(arena, n_col, sizeof *m->upper);
    m->row_lo = weft_arena_array(arena, m->n_row, sizeof *m->row_lo);
    m->row_hi = weft_arena_array(arena, m->n_row, sizeof *m->row_hi);
    m->row = weft_arena_array(arena, entries, sizeof *m->row);
    m->coeff = weft_arena_array(arena, entries, sizeof *m->coeff);
    m->x = weft_arena_array(arena, n_col, sizeof *m->x);
    add_columns(m);
    add_patterns(m);
    for (uint32_t r = 0; r < m->n_row; r++)
        m->row_hi[r] = HUGE_VAL;
    for (uint32_t d = 0; d < n_demand; d++)
        m->row_lo[m->demand_row[d]] = 1 - 1e-9;
    for (size_t i = 0; i < fleet->n_device; i++)
        m->row_hi[m->first_row + i] = fleet->device[i].count;
    m->row_hi[m->n_row - 1] = cutoff;
    return (weft_program){.n_col = n_col,
                          .n_row = m->n_row,
                          .cost = m->cost,
                          .upper = m->upper,
                          .row_lo = m->row_lo,
                          .row_hi = m->row_hi,
                          .start = m->start,
                          .row = m->row,
                          .coeff = m->coeff,
                          .nodes_max = nodes_max};
}

/* -- The plan --------------------------------------------------------------------------------- */

/* The solution on its way to the builder. */
typedef struct build_state {
    program *m;
    double *left;   /* by column and pattern: copies that are not yet on the builder */
    double *filled; /* by demand: the part of each turn's capacity that is used */
} build_state;

/* Puts a column at this place; *start becomes its instance. */
static bool put_column(build_state *b, uint32_t device, int32_t *start, const weft_slice_column *c)
{
    weft_builder *builder = b->m->builder;
    const weft_option *option[64];
    double rate[64];
    for (uint32_t i = 0; i < c->n && i < 64; i++) {
        option[i] = c->turn[i].option;
        rate[i] = c->turn[i].per_s * b->filled[c->turn[i].demand];
    }
    if (!weft_builder__put(builder, device, *start, c->turn[0].demand, option[0], rate[0]))
        return false;
    uint32_t slice = builder->slices.len - 1;
    *start = builder->slices.at[slice].mig_start;
    for (uint32_t i = 1; i < c->n; i++)
        if (!weft_builder__join(builder, slice, c->turn[i].demand, rate[i], option))
            return false;
    return true;
}

/* The next column with copies left that takes this kind of slot; NONE: none. */
static uint32_t next_column(const build_state *b, uint32_t slot)
{
    for (uint32_t j = 0; j < b->m->n_x; j++)
        if (b->m->columns.at.at[j].slot == slot && b->left[j] > 0.5)
            return j;
    return NONE;
}

/* Fills the slots of a pattern, those of instances that are split last. */
static bool fill(build_state *b, uint32_t device, uint32_t pattern)
{
    const program *m = b->m;
    const weft_slice_pattern *p = &m->patterns.at.at[pattern];
    int32_t inside = -1;
    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t k = 0; k < p->has[i].n; k++) {
            int32_t start = p->inside == NONE ? -1 : inside;
            uint32_t j = next_column(b, p->has[i].slot), q = 0;
            bool own = m->patterns.slots.at[p->has[i].slot].own > 0;
            for (; own && j != NONE; j = next_column(b, p->has[i].slot)) {
                b->left[j]--;
                if (!put_column(b, device, &start, &m->columns.at.at[j]))
                    return false;
            }
            if (j != NONE) {
                b->left[j]--;
                if (!put_column(b, device, &start, &m->columns.at.at[j]))
                    return false;
                inside = start;
                continue;
            }
            while (q < m->n_y &&
                   !(m->patterns.at.at[q].inside == p->has[i].slot && b->left[m->n_x + q] > 0.5))
                q++;
            if (q == m->n_y)
                continue;
            b->left[m->n_x + q]--;
            if (!fill(b, device, q))
                return false;
        }
    return true;
}

/* How much of the capacity of its turns each demand uses; false: a demand is not served. */
static bool fill_rates(build_state *b)
{
    const weft_builder *builder = b->m->builder;
    uint32_t n_demand = (uint32_t)builder->demands->n;
    for (uint32_t j = 0; j < b->m->n_x; j++)
        for (uint32_t i = 0; i < b->m->columns.at.at[j].n; i++) {
            const weft_turn *t = &b->m->columns.at.at[j].turn[i];
            b->filled[t->demand] += t->per_s * b->m->x[j];
        }
    for (uint32_t d = 0; d < n_demand; d++) {
        double rate = builder->demands->at[d].rate_per_s;
        if (!(b->filled[d] > 0) || b->filled[d] < rate * (1 - 1e-8))
            return false;
        b->filled[d] = fmin(1 + 1e-10, rate / b->filled[d]);
    }
    return true;
}

/* Puts the solution on the builder; false: it does not fit there, or the solver was inexact. */
static bool realise(program *m)
{
    weft_arena *arena = m->builder->arena;
    uint32_t n_col = m->n_x + m->n_y;
    build_state b = {.m = m};
    b.left = weft_arena_array(arena, n_col, sizeof *b.left);
    b.filled = weft_arena_array(arena, m->builder->demands->n, sizeof *b.filled);
    memcpy(b.left, m->x, n_col * sizeof *b.left);
    weft_builder__undo(m->builder, 0);
    if (!fill_rates(&b))
        return false;
    for (uint32_t k = 0; k < m->n_y; k++) {
        const weft_slice_pattern *p = &m->patterns.at.at[k];
        for (uint32_t i = 0; p->inside == NONE && i < (uint32_t)m->x[m->n_x + k]; i++) {
            uint32_t device = weft_builder__open(m->builder, p->row, p->kind);
            if (device == NONE || !fill(&b, device, k))
                return false;
        }
    }
    for (uint32_t j = 0; j < m->n_x; j++)
        if (b.left[j] > 0.5)
            return false;
    return true;
}

/* -- Solving ---------------------------------------------------------------------------------- */

/* Bounds on price and devices from a bound on the objective. */
static void read_bounds(const program *m, double bound, weft_fleet_found *out)
{
    const weft_fleet *fleet = m->builder->fleet;
    double each = common_value(m), cheapest = fleet->n_device > 0 ? HUGE_VAL : 0;
    for (size_t i = 0; i < fleet->n_device; i++)
        cheapest = fmin(cheapest, weft_fleet__price(&fleet->device[i]));
    bound = round_up(m, bound);
    if (m->unit > 0)
        /* A plan of this price has at most price / cheapest devices. */
        out->cost_bound =
            cheapest > 0 ? bound / (1 / m->unit + m->least / cheapest) * (1 - 1e-9) : 0;
    if (each > 0) {
        out->device_bound = ceil(bound / each - 1e-6);
        out->cost_bound = out->device_bound * m->unit;
    }
}

/* The best plan known during a search, and what bounds all others. */
typedef struct search {
    program *m;
    const weft_solver *solver;
    weft_program program;
    uint32_t nodes_max;
    double known, cutoff; /* objectives */
    double bound;
    uint32_t devices; /* of the best plan known */
    bool better;      /* the best plan known was found here; it is `list` */
    weft_solution list;
} search;

/* Runs the solver with the present limits. Returns a lower bound on plans under the cutoff within
 * these limits; above the cutoff: there are none. A plan that is found is kept. */
static double run_solver(search *se)
{
    program *m = se->m;
    bool found = false;
    double bound = 0;
    m->row_hi[m->n_row - 1] = se->cutoff;
    /* A node of a large program takes longer, and a program that is not complete proves nothing. */
    double part = fmin(1, (double)ENTRIES_FREE / (m->n_entry + 1.0));
    if (!m->columns.complete)
        part = fmin(part, (double)ENTRIES_FEW / (m->n_entry + 1.0) * part);
    se->program.nodes_max = (uint32_t)fmax(NODES_LEAST, se->nodes_max * part);
    if (se->solver->solve(&se->program, m->x, &found, &bound) != WEFT_ERR_OK)
        return 0;
    if (!found || !realise(m))
        return bound;
    weft_solution next = weft_solution__list(m->builder);
    double value = value_of(m, next.cost_per_hour, next.devices);
    if (value > se->cutoff * (1 + 1e-9))
        return bound;
    se->known = value;
    se->cutoff = next_below(m, value);
    se->devices = next.devices;
    se->list = next;
    se->better = true;
    return bound;
}

static bool is_part(const choice *a, const choice *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (a->count[i] > b->count[i])
            return false;
    return true;
}

/* The next maximal choice of devices under the cutoff that is not closed; NULL: none. */
static choice *next_choice(const search *se)
{
    const program *m = se->m;
    size_t n = m->builder->fleet->n_device;
    for (uint32_t i = m->n_sum; i-- > 0;) {
        bool maximal = !m->sum[i].closed && m->sum[i].value <= se->cutoff;
        for (uint32_t k = i + 1; maximal && k < m->n_sum && m->sum[k].value <= se->cutoff; k++)
            maximal = !is_part(&m->sum[i], &m->sum[k], n);
        if (maximal)
            return &m->sum[i];
    }
    return NULL;
}

/* Decides choice by choice; raises the bound to that of the choices that stay open. */
static void try_choices(search *se)
{
    program *m = se->m;
    size_t n = m->builder->fleet->n_device;
    double open = HUGE_VAL;
    choice *one;
    for (uint32_t tries = 0; (one = next_choice(se)); tries++) {
        if (tries == CHOICES_MAX)
            return;
        for (size_t i = 0; i < n; i++)
            m->row_hi[m->first_row + i] = one->count[i];
        double known = se->known, bound = run_solver(se);
        if (se->known < known)
            continue; /* the cutoff is lower now, and another choice may be maximal */
        if (bound <= se->cutoff)
            open = fmin(open, fmax(bound, se->bound));
        for (uint32_t i = 0; i < m->n_sum; i++)
            m->sum[i].closed = m->sum[i].closed || is_part(&m->sum[i], one, n);
    }
    se->bound = fmax(se->bound, fmin(open, se->known));
}

weft_fleet_found weft_wholefleet__solve(weft_builder *builder, const weft_solver *solver,
                                        const weft_solution *best, uint32_t nodes_max)
{
    weft_fleet_found out = {0};
    program *m = weft_arena_array(builder->arena, 1, sizeof *m);
    search se = {.m = m, .solver = solver, .devices = best ? best->devices : 0};
    m->builder = builder;
    if (builder->demands->n == 0 || builder->demands->n > DEMANDS_MAX)
        return out;
    weft_columns__list(builder, &m->columns);
    if (m->columns.at.len > COLUMNS_MAX)
        return out;
    weft_patterns__list(builder, &m->columns, &m->patterns);
    out.complete = m->columns.complete && m->patterns.complete;
    choose_unit(m);
    list_sums(m);
    se.known = best ? value_of(m, best->cost_per_hour, best->devices) : HUGE_VAL;
    se.cutoff = next_below(m, se.known);
    se.nodes_max = m->sum ? nodes_max / FIRST_PART : nodes_max;
    se.program = build(m, se.cutoff, 0);
    double bound = run_solver(&se);
    se.bound = bound > se.cutoff ? se.known : fmin(se.known, round_up(m, bound));
    if (m->sum && out.complete && se.bound < se.known * (1 - 1e-9)) {
        se.nodes_max = nodes_max;
        try_choices(&se);
    }
    out.better = se.better && weft_solution__put(builder, &se.list);
    if (out.complete) {
        out.proven = se.bound >= se.known * (1 - 1e-9) && (!se.better || out.better);
        read_bounds(m, fmin(se.bound, se.known), &out);
    }
    return out;
}
