/* INFaaS (USENIX ATC'21): states of instances, the integer program, greedy scaling, and the
 * number of workers.
 *
 *   minimise    sum_v cost_v (d_v + lambda load_v max(d_v, 0))
 *   subject to  sum_v Q_v (N_v + d_v) >= 1.05 load sum_v weight_v d_v <= free devices, for each
 *               kind of device N_v + d_v >= 0
 *
 * linear with d = u - v; u, v >= 0. Variants that miss the SLO or the accuracy are not listed.
 * Complexity of greedy scaling: O(variants^2). */
#include "scheduler/policies/infaas_int.h"

#include <math.h>
#include <stdlib.h>

#define NONE UINT32_MAX

const double weft_infaas_headroom = 1.05;
const double weft_infaas_interfered = 1.2;

static const double slack = 1e-9;
enum { COUNT_MAX = 1000000 };

weft_infaas_state weft_infaas__state(const weft_infaas_seen *seen)
{
    if (!seen->loaded)
        return WEFT_INFAAS_INACTIVE;
    if (seen->load_per_s > seen->peak_per_s / weft_infaas_headroom)
        return WEFT_INFAAS_OVERLOADED;
    if (seen->latency_us > weft_infaas_interfered * seen->profile_us)
        return WEFT_INFAAS_INTERFERED;
    return WEFT_INFAAS_ACTIVE;
}

/* -- Greedy ----------------------------------------------------------------------------------- */

double weft_infaas__capacity(const weft_infaas_task *task)
{
    double sum = 0;
    for (uint32_t v = 0; v < task->n; v++)
        sum += task->variant[v].running * task->variant[v].peak_per_s;
    return sum;
}

static double wanted(const weft_infaas_task *task)
{
    return weft_infaas_headroom * task->load_per_s;
}

double weft_infaas__need(const weft_infaas_task *task)
{
    double need = wanted(task) - weft_infaas__capacity(task);
    return need > wanted(task) * slack ? need : 0;
}

double weft_infaas__cost(const weft_infaas_task *task, const uint32_t *count)
{
    double sum = 0;
    for (uint32_t v = 0; v < task->n; v++) {
        const weft_infaas_variant *a = &task->variant[v];
        double d = (double)count[v] - a->running;
        sum += a->cost * (d + task->lambda * a->load_s * fmax(d, 0));
    }
    return sum;
}

static int compare_ups(const void *a, const void *b)
{
    const weft_infaas_up *p = a, *q = b;
    if (p->cost != q->cost)
        return p->cost < q->cost ? -1 : 1;
    if (p->add != q->add)
        return p->add < q->add ? -1 : 1;
    return (p->drop > q->drop) - (p->drop < q->drop);
}

/* Instances of v that carry `need`; 0: more than the counter holds. */
static uint32_t instances(const weft_infaas_variant *v, double need)
{
    double n = v->peak_per_s > 0 ? ceil(need / v->peak_per_s * (1 - slack)) : INFINITY;
    return n <= COUNT_MAX ? (uint32_t)fmax(1, n) : 0;
}

uint32_t weft_infaas__ups(const weft_infaas_task *task, bool any, weft_infaas_up *out, uint32_t cap)
{
    double need = weft_infaas__need(task);
    uint32_t n = 0;
    any = any || !(weft_infaas__capacity(task) > 0);
    for (uint32_t w = 0; w < task->n; w++) {
        const weft_infaas_variant *to = &task->variant[w];
        uint32_t more = instances(to, need);
        double one = to->cost * (1 + task->lambda * to->load_s);
        if (more > 0 && n < cap && (any || to->running > 0))
            out[n++] = (weft_infaas_up){w, more, NONE, more * one};
        for (uint32_t v = 0; v < task->n && n < cap; v++) {
            const weft_infaas_variant *from = &task->variant[v];
            if (v == w || from->running == 0 || from->arch != to->arch ||
                to->peak_per_s <= from->peak_per_s)
                continue;
            more = instances(to, need + from->running * from->peak_per_s);
            if (more > 0)
                out[n++] = (weft_infaas_up){w, more, v, more * one - from->running * from->cost};
        }
    }
    if (n > 0)
        qsort(out, n, sizeof *out, compare_ups);
    return n;
}

bool weft_infaas__down(const weft_infaas_task *task, weft_infaas_down *out)
{
    double spare = weft_infaas__capacity(task) - wanted(task), total = 0;
    *out = (weft_infaas_down){NONE, NONE, 0};
    spare += wanted(task) * slack;
    for (uint32_t v = 0; v < task->n; v++)
        total += task->variant[v].running;
    for (uint32_t v = 0; v < task->n; v++) {
        const weft_infaas_variant *from = &task->variant[v];
        if (from->running == 0)
            continue;
        if (total > 1 && from->peak_per_s <= spare && from->cost > out->saved * (1 + slack))
            *out = (weft_infaas_down){v, NONE, from->cost};
        for (uint32_t w = 0; w < task->n; w++) {
            const weft_infaas_variant *to = &task->variant[w];
            double saved = from->cost - to->cost;
            if (w != v && from->peak_per_s - to->peak_per_s <= spare &&
                saved > out->saved * (1 + slack) && saved > from->cost * slack)
                *out = (weft_infaas_down){v, w, saved};
        }
    }
    return out->drop != NONE;
}

uint32_t weft_infaas__slots(const weft_infaas_variant *variant, double slot_s)
{
    double slots = ceil(variant->load_s / slot_s * (1 - slack));
    return slots > 1 ? (uint32_t)fmin(slots, COUNT_MAX) : 1;
}

/* -- The program ------------------------------------------------------------------------------ */

/* Columns: u of each variant, then v of each variant. Rows: the load, then each kind of device. */
bool weft_infaas__solve(const weft_infaas_task *task, const weft_solver *solver, weft_arena *arena,
                        uint32_t nodes_max, uint32_t *count)
{
    uint32_t n = task->n, n_col = 2 * n, n_row = 1 + (task->free ? task->n_row : 0), at = 0;
    double *cost = weft_arena_array(arena, n_col, sizeof *cost);
    double *upper = weft_arena_array(arena, n_col, sizeof *upper);
    double *lo = weft_arena_array(arena, n_row, sizeof *lo);
    double *hi = weft_arena_array(arena, n_row, sizeof *hi);
    double *coeff = weft_arena_array(arena, 2 * (size_t)n_col, sizeof *coeff);
    double *x = weft_arena_array(arena, n_col, sizeof *x);
    uint32_t *start = weft_arena_array(arena, n_col + 1u, sizeof *start);
    uint32_t *row = weft_arena_array(arena, 2 * (size_t)n_col, sizeof *row);
    double scale = fmax(wanted(task), slack), bound;
    bool found = false;
    lo[0] = (wanted(task) - weft_infaas__capacity(task)) / scale;
    hi[0] = HUGE_VAL;
    for (uint32_t r = 1; r < n_row; r++) {
        lo[r] = -HUGE_VAL;
        hi[r] = fmax(0, task->free[r - 1]) + slack;
    }
    for (uint32_t c = 0; c < n_col; c++) {
        const weft_infaas_variant *v = &task->variant[c % n];
        double sign = c < n ? 1 : -1;
        cost[c] = sign * v->cost * (c < n ? 1 + task->lambda * v->load_s : 1);
        upper[c] = c < n ? ceil(scale / v->peak_per_s) : v->running;
        start[c] = at;
        row[at] = 0;
        coeff[at++] = sign * v->peak_per_s / scale;
        if (n_row > 1) {
            row[at] = 1 + v->row;
            coeff[at++] = sign * v->weight;
        }
    }
    start[n_col] = at;
    weft_program program = {.n_col = n_col,
                            .n_row = n_row,
                            .cost = cost,
                            .upper = upper,
                            .row_lo = lo,
                            .row_hi = hi,
                            .start = start,
                            .row = row,
                            .coeff = coeff,
                            .nodes_max = nodes_max};
    if (solver->solve(&program, x, &found, &bound) != WEFT_ERR_OK || !found)
        return false;
    double capacity = 0;
    for (uint32_t v = 0; v < n; v++) {
        double number = task->variant[v].running + x[v] - x[n + v];
        if (!(number >= 0 && number <= COUNT_MAX))
            return false;
        count[v] = (uint32_t)number;
        capacity += count[v] * task->variant[v].peak_per_s;
    }
    return capacity >= wanted(task) * (1 - 1e-6);
}

/* -- Workers ---------------------------------------------------------------------------------- */

int32_t weft_infaas__workers(const weft_infaas_worker *worker, uint32_t n)
{
    static const double busy = 0.8, drain_s = 60;
    uint32_t n_busy = 0, n_interfered = 0, n_overloaded = 0, n_empty = 0;
    for (uint32_t i = 0; i < n; i++) {
        n_busy += worker[i].use > busy;
        n_interfered += worker[i].interfered;
        n_overloaded += worker[i].overloaded;
        n_empty += worker[i].empty_s >= drain_s;
    }
    if (n > 0 && (n_busy == n || n_interfered == n || n_overloaded > busy * n))
        return 1;
    return -(int32_t)n_empty;
}
