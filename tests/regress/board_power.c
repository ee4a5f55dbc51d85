/* The model of power (estimator/models/energy.c) against the board power of single kernels: GEMMs
 * and attention in graph replay on H200 and B200 (aiconfigurator, vLLM 0.22.0). A quarter of the
 * shapes, by a hash, is held out of the fit.
 *
 * The driver's meter averages over a longer time than many of these kernels take: next to the limit
 * stand rows of a few microseconds on a few units, whose meter still had the power of what ran
 * before. Hence medians beside means. `power` is at the measured time; `energy` at the predicted
 * time, over measured power and time. board_power.csv has the errors on held-out rows in percent;
 * this program computes them again, and fails if they differ.
 *
 * Usage: board_power [--bless | --fit] */
#include "estimator/models/models.h"
#include "tests/support/data_dir.h"

#include "base/hash.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SKIP = 77, LINE = 256, ROWS_MAX = 130000, CONSTANTS = 4, ROUNDS = 40, HELD_OUT = 4 };

static const struct {
    const char *file, *gpu;
    weft_dtype dtype;
    bool attention;
} campaigns[] = {
    {"gemm_bf16_h200_sxm_vllm_0.22.0", "h200", WEFT_DTYPE_BF16, false},
    {"gemm_bf16_b200_sxm_vllm_0.22.0", "b200", WEFT_DTYPE_BF16, false},
    {"gemm_nvfp4_b200_sxm_vllm_0.22.0", "b200", WEFT_DTYPE_F4E2M1, false},
    {"encoder_attention_bf16_h200_sxm_vllm_0.22.0", "h200", WEFT_DTYPE_BF16, true},
    {"encoder_attention_bf16_b200_sxm_vllm_0.22.0", "b200", WEFT_DTYPE_BF16, true},
};
enum { CAMPAIGNS = sizeof campaigns / sizeof campaigns[0] };

typedef struct row {
    weft_kernel kernel;
    weft_usage usage;
    double time_us, power_w, energy_j; /* measured; by the estimator at its own time */
    size_t campaign;
    bool held_out;
} row;

static row *rows;
static size_t n_row;
static weft_slice slices[CAMPAIGNS];

static bool read_campaign(size_t c)
{
    char name[128], path[1024], line[LINE];
    snprintf(name, sizeof name, "aiconfigurator/%s.csv", campaigns[c].file);
    FILE *f = weft_data_path(name, path, sizeof path) ? fopen(path, "r") : NULL;
    if (!f || weft_slice_make(campaigns[c].gpu, "", NULL, &slices[c]) != WEFT_ERR_OK)
        return false;
    while (fgets(line, sizeof line, f) && n_row < ROWS_MAX) {
        row r = {.campaign = c};
        double x[4] = {0}, limit_w;
        const char *at = line;
        char *end;
        int n_size = campaigns[c].attention ? 4 : 3;
        for (int i = 0; i < n_size; i++, at = end + 1)
            x[i] = strtod(at, &end);
        if (sscanf(at, "%lf,%lf,%lf", &r.time_us, &r.power_w, &limit_w) != 3)
            continue; /* the head */
        r.kernel =
            campaigns[c].attention
                ? weft_kernel_make_attention(campaigns[c].dtype, x[0], x[2], x[1], x[1], x[3])
                : weft_kernel_make_gemm(campaigns[c].dtype, 1, x[0], x[1], x[2], true);
        r.kernel.launcher = WEFT_LAUNCHER_VLLM;
        r.held_out = weft_hash64(x, sizeof x, 0) % HELD_OUT == 0;
        weft_cost cost;
        weft_timing t;
        const weft_model *model;
        if (weft_estimate_kernel(&r.kernel, &slices[c], NULL, NULL, &cost, NULL) != WEFT_ERR_OK ||
            weft_model__predict(&r.kernel, &slices[c], NULL, NULL, &t, &model) != WEFT_ERR_OK)
            abort();
        r.energy_j = cost.energy_j;
        r.usage = weft_usage__find(&r.kernel, &slices[c], false, r.time_us, t.units);
        rows[n_row++] = r;
    }
    return fclose(f) == 0;
}

static double power_of(const row *r, const weft_energy_constants *c)
{
    return weft_energy__power_w(c, &r->kernel, &slices[r->campaign], false, r->time_us, &r->usage);
}

/* -- Fit -------------------------------------------------------------------------------------- */

/* Huber's, with delta 10 %: readings of a meter that lags are outliers. */
static double loss(const weft_energy_constants *c)
{
    static const double turn = 0.1;
    double sum = 0;
    for (size_t i = 0; i < n_row; i++) {
        if (rows[i].held_out)
            continue;
        double e = fabs(log(power_of(&rows[i], c) / rows[i].power_w));
        sum += e < turn ? e * e / 2 : turn * (e - turn / 2);
    }
    return sum;
}

/* Coordinate search: varies one constant after the other, with steps that are halved. */
static void fit(void)
{
    double p[CONSTANTS], step = 0.3;
    weft_energy_constants c = weft_energy__fitted;
    _Static_assert(sizeof c == sizeof p, "all constants are doubles");
    memcpy(p, &c, sizeof p);
    double best = loss(&c);
    for (int round = 0; round < ROUNDS; round++) {
        double before = best;
        for (size_t i = 0; i < 2 * CONSTANTS; i++) {
            double old = p[i / 2];
            p[i / 2] = old * exp(i % 2 ? step : -step);
            memcpy(&c, p, sizeof p);
            double now = loss(&c);
            if (now < best)
                best = now;
            else
                p[i / 2] = old;
        }
        if (best > before * 0.9995)
            step /= 2;
    }
    printf(".busy_part = %.3g, .busy_power = %.3g, .compute_part = %.3g, .memory_part = %.3g\n",
           p[0], p[1], p[2], p[3]);
}

/* -- Errors ----------------------------------------------------------------------------------- */

typedef struct errors {
    double power_mean, power_median, power_bias, energy_mean, energy_median;
    size_t n;
} errors;

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, size_t n)
{
    qsort(x, n, sizeof *x, by_value);
    return x[n / 2];
}

static errors find_errors(size_t campaign)
{
    double *power = malloc(3 * n_row * sizeof *power), *energy = power + n_row,
           *ratio = power + 2 * n_row;
    errors e = {0};
    if (!power)
        abort();
    for (size_t i = 0; i < n_row; i++) {
        const row *r = &rows[i];
        if (!r->held_out || r->campaign != campaign)
            continue;
        ratio[e.n] = 100 * (power_of(r, &weft_energy__fitted) / r->power_w - 1);
        power[e.n] = fabs(ratio[e.n]);
        energy[e.n] = 100 * fabs(r->energy_j / (r->power_w * r->time_us * 1e-6) - 1);
        e.power_mean += power[e.n];
        e.energy_mean += energy[e.n++];
    }
    e.power_mean /= (double)e.n;
    e.energy_mean /= (double)e.n;
    e.power_median = median(power, e.n);
    e.energy_median = median(energy, e.n);
    e.power_bias = median(ratio, e.n);
    free(power);
    return e;
}

static void put_line(char *out, size_t size, size_t c)
{
    errors e = find_errors(c);
    snprintf(out, size, "%s,%zu,%.1f,%.1f,%.1f,%.1f,%.1f\n", campaigns[c].file, e.n, e.power_mean,
             e.power_median, e.power_bias, e.energy_mean, e.energy_median);
}

static const char head[] =
    "# Errors of power and energy on held-out kernels, in percent; board_power --bless. Data:\n"
    "# ai-dynamo/aiconfigurator at 095f58a (Apache-2.0).\n"
    "campaign,rows,power_mean,power_median,power_bias,energy_mean,energy_median\n";

static int bless(const char *path)
{
    FILE *f = fopen(path, "w");
    char line[LINE];
    if (!f)
        return 1;
    fputs(head, f);
    for (size_t c = 0; c < CAMPAIGNS; c++) {
        put_line(line, sizeof line, c);
        fputs(line, f);
    }
    return fclose(f) != 0;
}

static int compare(const char *path)
{
    FILE *f = fopen(path, "r");
    char was[LINE], now[LINE];
    int wrong = 0;
    if (!f)
        return 1;
    for (size_t c = 0; c < CAMPAIGNS; c++) {
        do
            if (!fgets(was, sizeof was, f))
                return 1;
        while (was[0] == '#' || strncmp(was, "campaign,", 9) == 0);
        put_line(now, sizeof now, c);
        bool same = strcmp(was, now) == 0;
        printf("%s%s", now, same ? "" : "recorded: ");
        if (!same)
            printf("%s", was);
        wrong += !same;
    }
    fclose(f);
    return wrong > 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "",
               *path = WEFT_SOURCE_DIR "/tests/regress/board_power.csv";
    rows = calloc(ROWS_MAX, sizeof *rows);
    for (size_t c = 0; c < CAMPAIGNS; c++)
        if (!rows || !read_campaign(c)) {
            printf("skipped: no aiconfigurator below WEFT_DATA\n");
            free(rows);
            return SKIP;
        }
    int code = 0;
    if (strcmp(mode, "--fit") == 0)
        fit();
    else
        code = strcmp(mode, "--bless") == 0 ? bless(path) : compare(path);
    free(rows);
    return code;
}
