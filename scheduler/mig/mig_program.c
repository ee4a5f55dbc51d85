/* Fewest devices of one MIG geometry as an integer program:
 *
 *   x[s][p]  instances of profile p for service s
 *   g        devices
 *   minimise g  subject to
 *            sum_p per_s[s][p] x[s][p] >= rate_s            for each service s
 *            cap[f] g - sum_s,p weight[f][p] x[s][p] >= 0   for each facet f (mig_pack.c)
 *            bound <= g <= devices
 *
 * The facets say exactly what fits on g devices, so that no variable is needed for how each of them
 * is split. The row of a service is divided by its rate. */
#include "scheduler/mig/mig.h"

#include <math.h>
#include <string.h>

/* The constraint matrix by columns, and its bounds. */
typedef struct matrix {
    const weft_mig_search *in;
    uint32_t n_entry;
    uint32_t *start, *row;
    double *coeff, *cost, *upper, *row_lo, *row_hi;
} matrix;

static void add_entry(matrix *b, uint32_t row, double coeff)
{
    b->row[b->n_entry] = row;
    b->coeff[b->n_entry++] = coeff;
}

/* The rate by which the row of a service is divided; a service without requests still gets one
 * instance. */
static double scale_of(const weft_mig_load *load, uint32_t n_profile)
{
    double least = 0;
    for (uint32_t p = 0; p < n_profile; p++)
        if (load->per_s[p] > 0)
            least = least > 0 ? fmin(least, load->per_s[p]) : load->per_s[p];
    return load->rate_per_s > 0 ? load->rate_per_s : least;
}

/* Builds the program. Rows: services, facets, and the bound. Columns: x by service and profile,
 * then g. */
static weft_program build(matrix *b, uint64_t bound, uint64_t devices, uint32_t nodes_max)
{
    const weft_mig_search *in = b->in;
    const weft_mig_shape *shape = in->shape;
    uint32_t n = in->n, k = shape->n, n_col = n * k + 1, n_row = n + shape->n_facet + 1, col = 0;
    weft_arena *arena = in->arena;
    b->start = weft_arena_array(arena, n_col + 1u, sizeof *b->start);
    b->cost = weft_arena_array(arena, n_col, sizeof *b->cost);
    b->upper = weft_arena_array(arena, n_col, sizeof *b->upper);
    b->row_lo = weft_arena_array(arena, n_row, sizeof *b->row_lo);
    b->row_hi = weft_arena_array(arena, n_row, sizeof *b->row_hi);
    b->row = weft_arena_array(arena, (size_t)n_col * (shape->n_facet + 1u), sizeof *b->row);
    b->coeff = weft_arena_array(arena, (size_t)n_col * (shape->n_facet + 1u), sizeof *b->coeff);
    for (uint32_t s = 0; s < n; s++) {
        const weft_mig_load *load = &in->load[s];
        double scale = scale_of(load, k);
        b->row_lo[s] = 1 - 1e-9;
        for (uint32_t p = 0; p < k; p++, col++) {
            double per_s = load->per_s[p];
            b->start[col] = b->n_entry;
            b->upper[col] = per_s > 0 ? ceil(scale / per_s) : 0;
            if (!(per_s > 0))
                continue;
            add_entry(b, s, fmin(1, per_s / scale));
            for (uint32_t f = 0; f < shape->n_facet; f++)
                if (shape->weight[f][p] > 0)
                    add_entry(b, n + f, -(double)shape->weight[f][p]);
        }
    }
    b->start[col] = b->n_entry;
    b->cost[col] = 1;
    b->upper[col] = (double)devices;
    for (uint32_t f = 0; f < shape->n_facet; f++)
        add_entry(b, n + f, shape->cap[f]);
    add_entry(b, n_row - 1, 1);
    b->row_lo[n_row - 1] = (double)bound;
    b->start[col + 1] = b->n_entry;
    for (uint32_t r = 0; r < n_row; r++)
        b->row_hi[r] = HUGE_VAL;
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
