/* Fewest devices of one MIG geometry as an integer program in the style of Gilmore and Gomory's
 * cutting stock model:
 *
 *   x[s][p]  instances of profile p for service s
 *   y[c]     devices that are split into the maximal multiset c
 *   minimise sum y  subject to
 *            sum_p per_s[s][p] x[s][p] >= rate_s            for each service s
 *            sum_c c[p] y[c] - sum_s x[s][p] >= 0           for each profile p
 *            bound <= sum y <= devices
 *
 * Maximal multisets suffice, since an instance may stay empty; they are enumerated from the device
 * table. The row of a service is divided by its rate. */
#include "scheduler/mig/mig.h"

#include <math.h>
#include <string.h>

/* The constraint matrix by columns, and its bounds. */
typedef struct matrix {
    const weft_mig_search *in;
    weft_mig_count set[WEFT_MIG_SETS_MAX];
    uint32_t n_set, n_x, n_entry;
    uint32_t *start, *row;
    double *coeff, *cost, *upper, *row_lo, *row_hi;
} matrix;

static void add_entry(matrix *b, uint32_t row, double coeff)
{
    b->row[b->n_entry] = row;
    b->coeff[b->n_entry++] = coeff;
}

/* Builds the program. Rows: services, then profiles, then the number of devices. Columns: x by
 * service and profile, then y. */
static weft_program build(matrix *b, uint64_t bound, uint64_t devices, uint32_t nodes_max)
{
    const weft_mig_search *in = b->in;
    uint32_t n = in->n, k = in->shape->n, n_col = n * k + b->n_set, n_row = n + k + 1;
    weft_arena *arena = in->arena;
    b->start = weft_arena_array(arena, n_col + 1u, sizeof *b->start);
    b->cost = weft_arena_array(arena, n_col, sizeof *b->cost);
    b->upper = weft_arena_array(arena, n_col, sizeof *b->upper);
    b->row_lo = weft_arena_array(arena, n_row, sizeof *b->row_lo);
    b->row_hi = weft_arena_array(arena, n_row, sizeof *b->row_hi);
    b->row = weft_arena_array(arena, (size_t)n_col * (k + 2), sizeof *b->row);
    b->coeff = weft_arena_array(arena, (size_t)n_col * (k + 2), sizeof *b->coeff);
    uint32_t col = 0;
    for (uint32_t s = 0; s < n; s++) {
        const weft_mig_load *load = &in->load[s];
        double least = 0; /* rate of a service without requests: it still gets one instance */
        for (uint32_t p = 0; p < k; p++)
            if (load->per_s[p] > 0)
                least = least > 0 ? fmin(least, load->per_s[p]) : load->per_s[p];
        double scale = load->rate_per_s > 0 ? load->rate_per_s : least;
        b->row_lo[s] = 1 - 1e-9;
        b->row_hi[s] = HUGE_VAL;
        for (uint32_t p = 0; p < k; p++, col++) {
            double per_s = load->per_s[p];
            b->start[col] = b->n_entry;
            b->upper[col] = per_s > 0 ? ceil(scale / per_s) : 0;
            if (per_s > 0) {
                add_entry(b, s, fmin(1, per_s / scale));
                add_entry(b, n + p, -1);
            }
        }
    }
    for (uint32_t c = 0; c < b->n_set; c++, col++) {
        b->start[col] = b->n_entry;
        b->cost[col] = 1;
        b->upper[col] = (double)devices;
        for (uint32_t p = 0; p < k; p++)
            if (b->set[c].of[p] > 0)
                add_entry(b, n + p, b->set[c].of[p]);
        add_entry(b, n + k, 1);
    }
    b->start[col] = b->n_entry;
    for (uint32_t p = 0; p < k; p++)
        b->row_hi[n + p] = HUGE_VAL;
    b->row_lo[n + k] = (double)bound;
    b->row_hi[n + k] = (double)devices;
    return (weft_program){.n_col = n_col,
                          .n_row = n_row,
                          .cost = b->cost,
                          .upper = b->upper,
                          .row_lo = b->row_lo,
                          .row_hi = b->row_hi,
                          .start = b->start,
                          .row = b->row,
                          .coeff = b->coeff,
                          .nodes_max = nodes_max};
}

/* Reads and checks the solution: false if some service is not served at its rate. *devices is
 * computed by the closed form. */
static bool read_solution(const weft_mig_search *in, const double *x, weft_mig_counts *count,
                          uint64_t *devices)
{
    uint64_t total[WEFT_MIG_PROFILES_MAX] = {0};
    for (uint32_t s = 0; s < in->n; s++) {
        double carried = 0;
        for (uint32_t p = 0; p < in->shape->n; p++) {
            double n = x[s * in->shape->n + p];
            if (!(n >= 0 && n < UINT32_MAX) || (n > 0 && !(in->load[s].per_s[p] > 0)))
                return false;
            count[s].of[p] = (uint32_t)n;
            total[p] += count[s].of[p];
            carried += n * in->load[s].per_s[p];
        }
        if (!(carried > 0) || carried < in->load[s].rate_per_s * (1 - 1e-9))
            return false;
    }
    *devices = weft_mig__devices(in->shape, total);
    return true;
}

bool weft_mig__solve(const weft_mig_search *in, const weft_solver *solver, uint64_t devices,
                     uint32_t nodes_max, weft_mig_found *out)
{
    matrix *b = weft_arena_alloc(in->arena, sizeof *b);
    weft_mig_counts *count = weft_arena_array(in->arena, in->n, sizeof *count);
    bool found = false;
    double bound = 0;
    uint64_t used;
    b->in = in;
    b->n_set = (uint32_t)weft_mig__multisets(in->shape, true, b->set, WEFT_MIG_SETS_MAX);
    weft_program program = build(b, out->bound, devices, nodes_max);
    double *x = weft_arena_array(in->arena, program.n_col, sizeof *x);
    if (devices < out->bound || solver->solve(&program, x, &found, &bound) != WEFT_ERR_OK)
        return false;
    /* An infeasible program has the bound HUGE_VAL: more than `devices` are needed. */
    double least = fmin((double)devices + 1, ceil(bound - 1e-6));
    if (least > (double)out->bound)
        out->bound = (uint64_t)least;
    if (!found || !read_solution(in, x, count, &used) || used > devices)
        return false;
    out->count = count;
    out->devices = used;
    return true;
}
