/* What one slice can carry: the columns of the fleet's integer program.
 *
 * A slice belongs to one model, or to several in turn, one batch each, with one process each. Then
 * the batches b_i give the cycle sum e_i(b_i), and each model is served at b_i / cycle whatever the
 * others receive (slo.c); so a choice of models and batches is a vector of rates, and a plan
 * carries what the sum of the vectors of its slices is. A part of a vector above the rate of the
 * model is of no use, so vectors are compared as parts of the rates, at most 1.
 *
 * All sets of models and batches are enumerated, and those kept that no other column of the shape
 * dominates: at least the same part of every model with no more memory and processes. Adding a
 * model lengthens the cycle, so a set that breaks an SLO is not extended. One pass lists the sets
 * of one model on all shapes, the next those of two, and so on. The passes together have a limit on
 * their work: the last one within it counts, and the list is not complete if sets were left out. A
 * list that is not complete proves nothing, so it is kept short. */
#include "scheduler/policies/fleet_program.h"

#include <math.h>
#include <string.h>

enum {
    TURNS_MAX = 12,            /* models on a slice */
    NODES_MAX = 400000,        /* sets of models and batches, over all shapes */
    SHAPE_COLUMNS_MAX = 4000,  /* columns of a shape */
    PARTIAL_COLUMNS_MAX = 3500 /* of a list that is not complete: more take long to solve */
};

static const double work_max = 3e8; /* numbers compared */

typedef struct listing {
    const weft_builder *builder;
    weft_slice_columns *out;
    uint32_t shape, first; /* first column of the shape */
    bool pooled;           /* memory and processes are shared with other slices */
    uint32_t nodes;
    uint32_t turns; /* most models on a slice in this pass */
    bool cut;       /* whether a larger set would keep its SLOs as far as is known */
    double work;
    weft_turn turn[TURNS_MAX];
    uint32_t n;
    double *part;  /* by demand, of the candidate */
    double *parts; /* by column of the shape, then demand */
} listing;

double weft_turn__part(const weft_builder *builder, const weft_turn *turn)
{
    double rate = builder->demands->at[turn->demand].rate_per_s;
    return rate > turn->per_s ? turn->per_s / rate : 1;
}

static bool is_no_worse(const listing *l, const double *a, const weft_slice_column *p,
                        const double *b, const weft_slice_column *q)
{
    if (l->pooled && (p->mem_bytes > q->mem_bytes || p->clients > q->clients))
        return false;
    for (uint32_t d = 0; d < l->builder->demands->n; d++)
        if (a[d] < b[d] - 1e-12)
            return false;
    return true;
}

/* Adds the turns of the listing as a column, unless one is no worse; removes those that are. */
static void offer(listing *l)
{
    uint32_t n_demand = (uint32_t)l->builder->demands->n;
    weft_slice_column c = {.shape = l->shape, .n = l->n};
    memset(l->part, 0, n_demand * sizeof *l->part);
    for (uint32_t i = 0; i < l->n; i++) {
        l->part[l->turn[i].demand] = weft_turn__part(l->builder, &l->turn[i]);
        c.mem_bytes += l->turn[i].option->mem_bytes;
    }
    c.clients = l->n > 1 ? 1 : l->turn[0].option->point->procs;
    weft_slice_column *at = l->out->at.at + l->first;
    uint32_t n = l->out->at.len - l->first, kept = 0;
    l->work += (double)n * n_demand;
    for (uint32_t i = 0; i < n; i++)
        if (is_no_worse(l, l->parts + (size_t)i * n_demand, &at[i], l->part, &c))
            return;
    for (uint32_t i = 0; i < n; i++) {
        double *part = l->parts + (size_t)i * n_demand;
        if (is_no_worse(l, l->part, &c, part, &at[i]))
            continue;
        at[kept] = at[i];
        if (kept != i)
            memcpy(l->parts + (size_t)kept * n_demand, part, n_demand * sizeof *part);
        kept++;
    }
    l->out->at.len = l->first + kept;
    if (kept == SHAPE_COLUMNS_MAX) {
        l->out->complete = false;
        return;
    }
    memcpy(l->parts + (size_t)kept * n_demand, l->part, n_demand * sizeof *l->part);
    weft_turn *turn = weft_arena_array(l->builder->arena, l->n, sizeof *turn);
    memcpy(turn, l->turn, l->n * sizeof *turn);
    c.turn = turn;
    WEFT_VEC_PUSH(l->builder->arena, &l->out->at, c);
}

/* Rates of the turns, and whether every one keeps its SLO and the memory suffices. */
static bool keeps_slos(listing *l)
{
    const weft_builder *builder = l->builder;
    double cycle_us = 0;
    uint64_t mem_bytes = 0, limit = l->turn[0].option->spec.mem_bytes;
    for (uint32_t i = 0; i < l->n; i++) {
        cycle_us += l->turn[i].option->exec_us;
        mem_bytes += l->turn[i].option->mem_bytes;
    }
    if (limit && mem_bytes > limit)
        return false;
    for (uint32_t i = 0; i < l->n; i++) {
        weft_turn *t = &l->turn[i];
        weft_slo_load_in in = {.rules = &builder->problem->rules,
                               .demand = &builder->demands->at[t->demand],
                               .point = t->option->point,
                               .exec_us = t->option->exec_us,
                               .slowdown = 1,
                               .cycle_us = cycle_us,
                               .alone = l->n == 1,
                               .rate_per_s = builder->demands->at[t->demand].rate_per_s};
        weft_slo_load load = weft_slo__load(&in);
        if (load.capacity_per_s < in.rate_per_s) { /* the rest of the rate is for other slices */
            in.rate_per_s = load.capacity_per_s;
            load = weft_slo__load(&in);
        }
        t->per_s = l->n == 1 ? t->option->peak_per_s : load.capacity_per_s;
        if (l->n > 1 && in.demand->slo_us > 0 &&
            load.latency_us > weft_rules__slo_us(in.rules, in.demand))
            return false;
    }
    return true;
}

/* Extends the set by every model from `from` on, in the order of names, with every batch. */
static void extend(listing *l, uint32_t from)
{
    const weft_builder *builder = l->builder;
    for (uint32_t s = from; s < builder->demands->n; s++) {
        uint32_t d = builder->order[s];
        weft_choice choice = weft_option_table__choice(&builder->table, d, l->shape);
        for (uint32_t i = 0; i < choice.n; i++) {
            const weft_option *o = &builder->option[d][choice.first + i];
            if (o->point->procs != 1 && l->n > 0)
                continue;
            if (l->nodes == NODES_MAX || l->work > work_max) {
                l->out->complete = false;
                return;
            }
            l->nodes++;
            l->turn[l->n++] = (weft_turn){.demand = d, .option = o};
            if (keeps_slos(l)) {
                offer(l);
                if (o->point->procs == 1 && !builder->problem->rules.isolated) {
                    if (l->n < l->turns)
                        extend(l, s + 1);
                    else if (s + 1 < builder->demands->n)
                        l->cut = true;
                }
            }
            l->n--;
        }
    }
}

/* One pass over all shapes; false: the limits were reached. */
static bool list_sets(listing *l)
{
    const weft_builder *builder = l->builder;
    l->out->at.len = 0;
    l->cut = false;
    for (l->shape = 0; l->shape < builder->table.n_shape && l->out->complete; l->shape++) {
        const weft_shape *shape = &builder->table.shape[l->shape];
        if (!shape->row || !shape->allowed)
            continue;
        l->first = l->out->at.len;
        l->pooled =
            weft_builder__has_neighbours(&shape->spec) || shape->spec.kind == WEFT_SLICE_CORES;
        extend(l, 0);
    }
    return l->out->complete;
}

void weft_columns__list(const weft_builder *builder, weft_slice_columns *out)
{
    weft_slice_columns pass = {.complete = true};
    listing l = {.builder = builder, .out = &pass};
    uint32_t n_demand = (uint32_t)builder->demands->n;
    bool more = true;
    *out = (weft_slice_columns){.complete = true};
    l.part = weft_arena_array(builder->arena, n_demand, sizeof *l.part);
    l.parts =
        weft_arena_array(builder->arena, (size_t)n_demand * SHAPE_COLUMNS_MAX, sizeof *l.parts);
    for (l.turns = 1; more; l.turns++) {
        pass = (weft_slice_columns){.complete = true};
        more = list_sets(&l) && l.cut && l.turns < TURNS_MAX;
        bool few = l.turns == 1 || (pass.complete && pass.at.len <= PARTIAL_COLUMNS_MAX);
        if (few || (pass.complete && !l.cut))
            *out = pass;
        out->complete = pass.complete && !l.cut;
    }
}
