/* Calibration: fits constants of a device to a user's measurements.
 *
 * A predicted time is divided into launches and the rest (body), by what bounds the kernel:
 *
 *   time = launches * launch_us * exp(p0) + sum over class c of body_us(c) * exp(pc)
 *
 * with a class for each kind of kernel that is bound by arithmetic, and one for memory (bound by
 * traffic; on CPUs of GEMMs alone, because each kind of loop has a rate of its own). p = 0 is the
 * device's row. The fit minimises
 *
 *   sum over rows of huber(log(time / measured)) + weight * sum of p^2
 *
 * Huber's loss (Huber 1964, delta 0.2) limits the influence of outliers, and the ridge term keeps a
 * constant that few rows depend on near its old value. A constant is fitted only if enough rows
 * depend on it, and is bounded. Gauss-Newton with Levenberg's damping; nine unknowns, so that a
 * step is O(rows).
 *
 * error_after is that of five-fold cross validation: all rows of one shape are in one fold, and
 * each fold is predicted by constants fitted to the other four. The 90 % band is that of split
 * conformal prediction (Lei et al., "Distribution-free predictive inference for regression", JASA
 * 2018) on the residuals of a class: their order statistics of rank (n + 1) 5 % and (n + 1) 95 %;
 * with fewer than 19 rows these do not exist, and the extremes are taken half as far again. */
#include "estimator/device/device.h"
#include "estimator/estimator_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARAMS = WEFT_CALIBRATION_CONSTANTS, FOLDS = 5, STEPS_MAX = 60 };
static const double huber_delta = 0.2, ridge = 1.0, bound = 1.6094379124341003; /* log 5 */
/* A row depends on a constant if the constant makes up this part of its time. */
static const double part_min = 0.2;

static const char *const constant_name[PARAMS] = {"launch",      "product",  "attention",
                                                  "convolution", "winograd", "depthwise",
                                                  "pool",        "vector",   "memory"};

const char *weft_calibration_name(weft_calibration_constant c)
{
    return (int)c < PARAMS ? constant_name[c] : NULL;
}

/* -- Kernels ---------------------------------------------------------------------------------- */

static weft_calibration_constant find_kind(const weft_kernel *kernel)
{
    switch (kernel->kind) {
    case WEFT_KERNEL_GEMM:
        return WEFT_CALIBRATION_GEMM;
    case WEFT_KERNEL_ATTENTION:
        return WEFT_CALIBRATION_ATTENTION;
    case WEFT_KERNEL_CONV:
        return kernel->flop_saving > 1 ? WEFT_CALIBRATION_WINOGRAD : WEFT_CALIBRATION_CONV;
    case WEFT_KERNEL_DEPTHWISE:
        return WEFT_CALIBRATION_DEPTHWISE;
    case WEFT_KERNEL_POOL:
        return WEFT_CALIBRATION_POOL;
    default:
        return WEFT_CALIBRATION_VECTOR;
    }
}

/* On a GPU all kernels that wait for the memory have one rate; the loops of a CPU differ. */
static weft_calibration_constant find_class(const weft_kernel *kernel, const weft_slice *slice,
                                            bool exact_f32)
{
    double rate = weft_peak__flops_per_us(slice, kernel, exact_f32);
    double saving = kernel->flop_saving > 1 ? kernel->flop_saving : 1;
    double compute_us = rate > 0 ? kernel->work.flops / saving / rate : 0;
    bool waits = compute_us <= weft_traffic__us(slice, kernel, slice->units);
    if (waits && (!slice->gpu->is_cpu || kernel->kind == WEFT_KERNEL_GEMM))
        return WEFT_CALIBRATION_MEMORY;
    return find_kind(kernel);
}

/* The floor by the peaks alone: a calibrated launch may be shorter than that of the device's row,
 * which floor_us includes. */
static double find_floor(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32)
{
    double floor_us = weft_peak__floor_us(kernel, slice, exact_f32);
    double saving = fmax(4, kernel->flop_saving); /* as weft_peak__floor_us for F(4x4,3x3) */
    if (floor_us > slice->gpu->launch_us)
        return floor_us;
    return fmax(kernel->work.flops / saving / weft_peak__flops_per_us(slice, kernel, exact_f32),
                weft_traffic__memory_bytes(slice, kernel) / (slice->bandwidth_gbps * 1e3));
}

void weft_calibration__apply(const weft_calibration *c, const weft_kernel *kernel,
                             const weft_slice *slice, bool exact_f32, weft_timing *t)
{
    weft_calibration_constant class = find_class(kernel, slice, exact_f32);
    double launch_us = slice->gpu->launch_us;
    double body_us = fmax(0, t->time_us - launch_us);
    double time_us = launch_us * c->scale[WEFT_CALIBRATION_LAUNCH] + body_us * c->scale[class];
    t->time_us = fmax(time_us, find_floor(kernel, slice, exact_f32));
    if (!c->fitted[class] || !c->held_out)
        return;
    t->expected_error = c->error[class];
    memcpy(t->edge, c->edge[class], sizeof t->edge);
    t->widened = "spread of the measurements it was calibrated with";
}

weft_err weft_calibration_add_kernel(const weft_kernel *kernel, double launches,
                                     const weft_slice *slice, const weft_estimate_options *options,
                                     weft_diag *diag, weft_calibration_row *row)
{
    const weft_model *model;
    weft_timing t;
    WEFT_TRY(weft_model__predict(kernel, slice, options, diag, &t, &model));
    double body_us = fmax(0, t.time_us - slice->gpu->launch_us);
    row->launch_us += launches * slice->gpu->launch_us;
    row->body_us[find_class(kernel, slice, options && options->exact_f32)] += launches * body_us;
    return WEFT_ERR_OK;
}

weft_err weft_calibration_add_workload(const weft_workload *work, const weft_slice *slice,
                                       const weft_estimate_options *options, weft_diag *diag,
                                       weft_calibration_row *row)
{
    for (size_t i = 0; i < work->n; i++)
        WEFT_TRY(weft_calibration_add_kernel(
            &work->kernel[i].kernel, work->kernel[i].launches ? work->kernel[i].launches : 1, slice,
            options, diag, row));
    return WEFT_ERR_OK;
}

/* -- The fit ---------------------------------------------------------------------------------- */

typedef struct problem {
    const weft_calibration_row *row;
    size_t n;
    uint32_t left_out; /* fold that is left out; FOLDS: none */
    bool active[PARAMS];
} problem;

static uint32_t part_of(const weft_calibration_row *row)
{
    uint64_t x = row->shape * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)((x >> 32) % FOLDS);
}

/* Time of the row by constant. Returns the sum. */
static double predict(const weft_calibration_row *row, const double *p, double *part)
{
    double sum = 0;
    for (int j = 0; j < PARAMS; j++) {
        double x = j == WEFT_CALIBRATION_LAUNCH ? row->launch_us : row->body_us[j];
        part[j] = x * exp(p[j]);
        sum += part[j];
    }
    return sum;
}

static double objective(const problem *q, const double *p)
{
    double sum = 0, part[PARAMS];
    for (size_t i = 0; i < q->n; i++) {
        if (part_of(&q->row[i]) == q->left_out)
            continue;
        double r = fabs(log(predict(&q->row[i], p, part) / q->row[i].measured_us));
        sum += r <= huber_delta ? 0.5 * r * r : huber_delta * (r - 0.5 * huber_delta);
    }
    for (int j = 0; j < PARAMS; j++)
        sum += 0.5 * ridge * p[j] * p[j];
    return sum;
}

/* Normal equations of one step: h step = -g. */
static void linearise(const problem *q, const double *p, double h[PARAMS][PARAMS], double *g)
{
    memset(h, 0, sizeof(double[PARAMS][PARAMS]));
    for (int j = 0; j < PARAMS; j++) {
        h[j][j] = ridge;
        g[j] = ridge * p[j];
    }
    for (size_t i = 0; i < q->n; i++) {
        double part[PARAMS];
        if (part_of(&q->row[i]) == q->left_out)
            continue;
        double time = predict(&q->row[i], p, part), r = log(time / q->row[i].measured_us);
        double weight = fabs(r) <= huber_delta ? 1 : huber_delta / fabs(r);
        for (int j = 0; j < PARAMS; j++) {
            g[j] += weight * r * part[j] / time;
            for (int k = 0; k < PARAMS; k++)
                h[j][k] += weight * (part[j] / time) * (part[k] / time);
        }
    }
    for (int j = 0; j < PARAMS; j++) {
        if (q->active[j])
            continue;
        for (int k = 0; k < PARAMS; k++)
            h[j][k] = h[k][j] = 0;
        h[j][j] = 1;
        g[j] = 0;
    }
}

/* Solves by Cholesky decomposition: `h` is symmetric and, with damping, positive definite. */
static void solve(double h[PARAMS][PARAMS], double damping, const double *g, double *step)
{
    double l[PARAMS][PARAMS] = {{0}}, y[PARAMS];
    for (int i = 0; i < PARAMS; i++) {
        for (int j = 0; j <= i; j++) {
            double sum = h[i][j] + (i == j ? damping * h[i][i] : 0);
            for (int k = 0; k < j; k++)
                sum -= l[i][k] * l[j][k];
            l[i][j] = i == j ? sqrt(fmax(sum, 1e-12)) : sum / l[j][j];
        }
        y[i] = -g[i];
        for (int k = 0; k < i; k++)
            y[i] -= l[i][k] * y[k];
        y[i] /= l[i][i];
    }
    for (int i = PARAMS; i-- > 0;) {
        step[i] = y[i];
        for (int k = i + 1; k < PARAMS; k++)
            step[i] -= l[k][i] * step[k];
        step[i] /= l[i][i];
    }
}

static void minimise(const problem *q, double *p)
{
    double damping = 1e-3, best;
    memset(p, 0, PARAMS * sizeof *p);
    best = objective(q, p);
    for (int n = 0; n < STEPS_MAX; n++) {
        double h[PARAMS][PARAMS], g[PARAMS], step[PARAMS], next[PARAMS], moved = 0;
        linearise(q, p, h, g);
        solve(h, damping, g, step);
        for (int j = 0; j < PARAMS; j++) {
            next[j] = fmax(-bound, fmin(bound, p[j] + step[j]));
            moved = fmax(moved, fabs(next[j] - p[j]));
        }
        double value = objective(q, next);
        if (value <= best) {
            best = value;
            memcpy(p, next, sizeof next);
            damping = fmax(1e-9, damping / 4);
            if (moved < 1e-9)
                return;
        } else {
            damping *= 8;
            if (damping > 1e9)
                return;
        }
    }
}

/* -- Errors ----------------------------------------------------------------------------------- */

/* Sum of relative errors over a fold (FOLDS: over all rows). */
static double sum_errors(const weft_calibration_row *row, size_t n, uint32_t part, const double *p)
{
    double sum = 0, parts[PARAMS];
    for (size_t i = 0; i < n; i++)
        if (part == FOLDS || part_of(&row[i]) == part)
            sum += fabs(predict(&row[i], p, parts) / row[i].measured_us - 1);
    return sum;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* `score`: log2(measured / predicted) of rows that the fit had not seen; sorts them. */
static void find_edges(double *score, size_t n, double *edge)
{
    static const double tail = 0.05, beyond = 1.5;
    double rank = floor(tail * (double)(n + 1));
    size_t least = rank >= 1 ? (size_t)rank - 1 : 0;
    double grow = rank >= 1 ? 1 : beyond;
    qsort(score, n, sizeof *score, by_value);
    edge[0] = fmin(0, score[least]) * grow;
    edge[1] = fmax(0, score[n - 1 - least]) * grow;
}

/* The class with most of a row's time behind the launches. */
static int class_of(const weft_calibration_row *row)
{
    int most = WEFT_CALIBRATION_LAUNCH + 1;
    for (int j = most; j < PARAMS; j++)
        if (row->body_us[j] > row->body_us[most])
            most = j;
    return most;
}

/* Errors and bands of the classes, from scores (log2 of measured / predicted) of rows that the fit
 * had not seen. A class of few rows has those of all. */
static void find_bands(const weft_calibration_row *row, const double *score, size_t n,
                       double *scratch, weft_calibration *out)
{
    for (int j = 0; j < PARAMS; j++) {
        size_t of_class = 0;
        for (size_t i = 0; i < n; i++)
            of_class += class_of(&row[i]) == j;
        bool all = of_class < WEFT_CALIBRATION_ROWS_MIN;
        double sum = 0;
        size_t count = 0;
        for (size_t i = 0; i < n; i++)
            if (all || class_of(&row[i]) == j) {
                sum += fabs(exp2(-score[i]) - 1);
                scratch[count++] = score[i];
            }
        out->error[j] = sum / (double)count;
        find_edges(scratch, count, out->edge[j]);
    }
}

static weft_err hold_out(const problem *all, weft_diag *diag, weft_calibration *out)
{
    problem q = *all;
    double sum = 0;
    size_t count[FOLDS] = {0}, parts = 0;
    for (size_t i = 0; i < q.n; i++)
        parts += count[part_of(&q.row[i])]++ == 0;
    out->held_out = parts == FOLDS;
    if (!out->held_out)
        return WEFT_ERR_OK;
    double *score = malloc(2 * q.n * sizeof *score);
    if (!score)
        return weft_diag_error(diag, WEFT_ERR_NOMEM, (weft_where){0}, "calibration: no memory");
    for (uint32_t f = 0; f < FOLDS; f++) {
        double p[PARAMS];
        q.left_out = f;
        minimise(&q, p);
        sum += sum_errors(q.row, q.n, f, p);
        double split[PARAMS];
        for (size_t i = 0; i < q.n; i++)
            if (part_of(&q.row[i]) == f)
                score[i] = log2(q.row[i].measured_us / predict(&q.row[i], p, split));
    }
    out->error_after = sum / (double)q.n;
    find_bands(q.row, score, q.n, score + q.n, out);
    free(score);
    return WEFT_ERR_OK;
}

/* A factor between measured and predicted time beyond which the unit must be wrong. */
static const double off_max = 1e5;

static weft_err check_rows(const weft_calibration_row *row, size_t n, weft_diag *diag)
{
    for (size_t i = 0; i < n; i++) {
        double sum = row[i].launch_us;
        bool sound = isfinite(row[i].launch_us) && row[i].launch_us >= 0 &&
                     isfinite(row[i].measured_us) && row[i].measured_us > 0;
        for (int j = 0; j < PARAMS; j++) {
            sound = sound && isfinite(row[i].body_us[j]) && row[i].body_us[j] >= 0;
            sum += j == WEFT_CALIBRATION_LAUNCH ? 0 : row[i].body_us[j];
        }
        if (!sound || !(sum > 0) || !isfinite(sum))
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                                   "measurement %zu: times must be finite and above 0", i + 1);
        if (!(row[i].measured_us > sum / off_max && row[i].measured_us < sum * off_max))
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                                   "measurement %zu: %g us where %g us are predicted; are these "
                                   "microseconds of this device?",
                                   i + 1, row[i].measured_us, sum);
    }
    return WEFT_ERR_OK;
}

weft_err weft_calibration_fit(const weft_calibration_row *row, size_t n, const weft_gpu *gpu,
                              weft_diag *diag, weft_calibration *out)
{
    static const double unchanged[PARAMS] = {0};
    problem q = {.row = row, .n = n, .left_out = FOLDS};
    weft_calibration c = {.n_rows = n};
    double p[PARAMS];
    WEFT_TRY(check_rows(row, n, diag));
    if (n < WEFT_CALIBRATION_ROWS_MIN)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                               "%zu measurements: at least %d are needed", n,
                               WEFT_CALIBRATION_ROWS_MIN);
    for (size_t i = 0; i < n; i++) {
        double part[PARAMS], time = predict(&row[i], unchanged, part);
        for (int j = 0; j < PARAMS; j++)
            c.rows[j] += part[j] >= part_min * time;
    }
    for (int j = 0; j < PARAMS; j++)
        q.active[j] = c.fitted[j] = c.rows[j] >= WEFT_CALIBRATION_ROWS_MIN;
    minimise(&q, p);
    for (int j = 0; j < PARAMS; j++)
        c.scale[j] = exp(p[j]);
    snprintf(c.gpu, sizeof c.gpu, "%s", gpu->name);
    c.error_before = sum_errors(row, n, FOLDS, unchanged) / (double)n;
    c.error_fitted = sum_errors(row, n, FOLDS, p) / (double)n;
    WEFT_TRY(hold_out(&q, diag, &c));
    *out = c;
    return WEFT_ERR_OK;
}
