/* The model wave (estimator/models/model_wave.c) on published times of GEMMs, and the fit of its
 * constants: one row in 29, by a hash of its sizes, of each campaign (aiconfigurator). The
 * constants are fitted to the bf16 campaigns; those of 8 and 4 bits are in no fit.
 *
 * wave_gemms.csv has the mean errors in percent: with the constants as they are, with constants
 * fitted without any campaign of the row's device (left_out, which --bless finds), and of
 * the roofline of data sheets, launch + max(flops / P, bytes / B) / 0.9. This program computes all
 * but left_out again, and fails if they differ, or if a campaign left out is worse than that
 * roofline.
 *
 * --left-out writes all rows as they are predicted with the constants of left_out, for
 * scripts/leave_out.py.
 *
 * Usage: wave_gemms [--bless | --fit | --left-out OUT.csv] */
#include "estimator/models/models.h"
#include "tests/support/data_dir.h"

#include "base/hash.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SKIP = 77, LINE = 256, ROWS_MAX = 600000, ROUNDS = 60, RESTART = 12, ONE_IN = 29 };

static const struct {
    const char *file, *gpu;
    weft_dtype dtype;
} campaigns[] = {
    {"gemm_bf16_a100_sxm_sglang_0.5.10", "a100-80", WEFT_DTYPE_BF16},
    {"gemm_bf16_a100_sxm_vllm_0.14.0", "a100-80", WEFT_DTYPE_BF16},
    {"gemm_bf16_b200_sxm_vllm_0.22.0", "b200", WEFT_DTYPE_BF16},
    {"gemm_bf16_h100_sxm_trtllm_1.3.0rc20", "h100", WEFT_DTYPE_BF16},
    {"gemm_bf16_h100_sxm_vllm_0.24.0", "h100", WEFT_DTYPE_BF16},
    {"gemm_bf16_h200_sxm_sglang_0.5.14", "h200", WEFT_DTYPE_BF16},
    {"gemm_bf16_h200_sxm_trtllm_1.3.0rc20", "h200", WEFT_DTYPE_BF16},
    {"gemm_bf16_h200_sxm_vllm_0.22.0", "h200", WEFT_DTYPE_BF16},
    {"gemm_bf16_l40s_sglang_0.5.12", "l40s", WEFT_DTYPE_BF16},
    {"gemm_bf16_rtx_pro_6000_server_vllm_0.24.0", "rtx-pro-6000", WEFT_DTYPE_BF16},
    {"gemm_fp8_h100_sxm_vllm_0.24.0", "h100", WEFT_DTYPE_F8E4M3FN},
    {"gemm_fp8_h200_sxm_sglang_0.5.14", "h200", WEFT_DTYPE_F8E4M3FN},
    {"gemm_fp8_l40s_sglang_0.5.12", "l40s", WEFT_DTYPE_F8E4M3FN},
    {"gemm_fp8_rtx_pro_6000_server_vllm_0.24.0", "rtx-pro-6000", WEFT_DTYPE_F8E4M3FN},
    {"gemm_nvfp4_b200_sxm_vllm_0.22.0", "b200", WEFT_DTYPE_F4E2M1},
};
enum { CAMPAIGNS = sizeof campaigns / sizeof campaigns[0] };

static struct {
    weft_slice slice;
    size_t first, end; /* rows */
} found[CAMPAIGNS];

static struct {
    weft_kernel kernel;
    double time_us;
} rows[ROWS_MAX];
static size_t n_row;

static bool read_campaign(size_t c, unsigned one_in)
{
    char name[128], path[1024], line[LINE];
    snprintf(name, sizeof name, "aiconfigurator/%s.csv", campaigns[c].file);
    FILE *f = weft_data_path(name, path, sizeof path) ? fopen(path, "r") : NULL;
    if (!f || weft_slice_make(campaigns[c].gpu, "", NULL, &found[c].slice) != WEFT_ERR_OK)
        return false;
    found[c].first = n_row;
    while (fgets(line, sizeof line, f) && n_row < ROWS_MAX) {
        double x[4];
        if (sscanf(line, "%lf,%lf,%lf,%lf", &x[0], &x[1], &x[2], &x[3]) != 4 ||
            weft_hash64(x, 3 * sizeof x[0], 0) % one_in != 0)
            continue; /* the first is the head */
        rows[n_row].kernel = weft_kernel_make_gemm(campaigns[c].dtype, 1, x[0], x[1], x[2], true);
        rows[n_row++].time_us = x[3];
    }
    found[c].end = n_row;
    return fclose(f) == 0;
}

static double wave_us(const weft_wave_constants *k, size_t c, size_t row)
{
    return weft_model__wave_time_us(k, &rows[row].kernel, &found[c].slice, false, false) +
           weft_traffic__staging_us(&rows[row].kernel, &found[c].slice);
}

static double roofline_us(size_t c, size_t row)
{
    const weft_kernel *kernel = &rows[row].kernel;
    const weft_slice *slice = &found[c].slice;
    const weft_work *w = &kernel->work;
    double compute_us = w->flops / weft_peak__flops_per_us(slice, kernel, false);
    double bytes = w->bytes_read + w->bytes_written + w->weight_bytes;
    return slice->gpu->launch_us + fmax(compute_us, bytes / (slice->bandwidth_gbps * 1e3)) / 0.9 +
           weft_traffic__staging_us(kernel, slice);
}

/* -- Fit -------------------------------------------------------------------------------------- */

static const char *const names[] = {"eff[0]",     "eff[1]",  "eff[2]", "eff[3]",     "eff[4]",
                                    "eff[5]",     "wave_us", "few_us", "memory_eff", "cache_clock",
                                    "tile_clock", "overlap", "held",   "copies"};
enum { CONSTANTS = sizeof names / sizeof names[0] };
_Static_assert(sizeof(weft_wave_constants) == CONSTANTS * sizeof(double), "a name for each");

/* Mean over devices of the mean absolute logarithm of the error, over the campaigns of the fit. */
static double loss(const weft_wave_constants *k, const char *without)
{
    double sum = 0, devices = 0;
    for (size_t c = 0, next; c < CAMPAIGNS && campaigns[c].dtype == WEFT_DTYPE_BF16; c = next) {
        double device = 0, n = 0;
        bool is_used = strcmp(campaigns[c].gpu, without) != 0;
        for (next = c; strcmp(campaigns[next].gpu, campaigns[c].gpu) == 0; next++)
            for (size_t r = found[next].first; r < found[next].end && is_used; r++, n++)
                device += fabs(log(wave_us(k, next, r) / rows[r].time_us));
        if (is_used) {
            sum += device / n;
            devices++;
        }
    }
    return sum / devices;
}

/* Where fits start that must know nothing of the device that they leave out. */
static const weft_wave_constants start = {.eff = {0.9, 0.8, 0.5, 0.3, 0.2, 0.9},
                                          .wave_us = 0.3,
                                          .few_us = 2,
                                          .memory_eff = 0.8,
                                          .cache_clock = 8,
                                          .tile_clock = 64,
                                          .overlap = 0.2,
                                          .held = 1.5,
                                          .copies = 3};

/* Coordinate search: varies one constant after the other, with steps that are halved and,
 * against local optima, start anew. A loss that does not change leaves a constant as it is. */
static weft_wave_constants fit(weft_wave_constants k, const char *without)
{
    static const double enough = 1e-5, first_step = 0.3;
    double p[CONSTANTS], step[CONSTANTS];
    memcpy(p, &k, sizeof p);
    double best = loss(&k, without);
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < CONSTANTS; i++) {
            double old = p[i], better = best;
            if (round % RESTART == 0)
                step[i] = first_step;
            for (int sign = -1; sign <= 1 && better >= best; sign += 2) {
                p[i] = old * exp(sign * step[i]);
                memcpy(&k, p, sizeof p);
                better = loss(&k, without);
            }
            if (better < best - enough) {
                best = better;
            } else {
                p[i] = old;
                step[i] /= 2;
            }
        }
    for (size_t i = 0; i < CONSTANTS; i++) {
        char text[32];
        snprintf(text, sizeof text, "%.3g", p[i]);
        p[i] = atof(text);
    }
    memcpy(&k, p, sizeof p);
    return k;
}

static void show(const weft_wave_constants *k)
{
    double p[CONSTANTS];
    memcpy(p, k, sizeof p);
    printf("loss %.4f\n", loss(k, ""));
    for (size_t i = 0; i < CONSTANTS; i++)
        printf("    .%s = %.3g\n", names[i], p[i]);
}

/* -- Errors ----------------------------------------------------------------------------------- */

static double mean_error(const weft_wave_constants *k, size_t c)
{
    double sum = 0;
    for (size_t r = found[c].first; r < found[c].end; r++)
        sum += fabs((k ? wave_us(k, c, r) : roofline_us(c, r)) / rows[r].time_us - 1);
    return 100 * sum / (double)(found[c].end - found[c].first);
}

static void put_line(char *out, size_t size, size_t c, double left_out)
{
    snprintf(out, size, "%s,%zu,%.1f,%.1f,%.1f\n", campaigns[c].file, found[c].end - found[c].first,
             mean_error(&weft_model__wave_fitted, c), left_out, mean_error(NULL, c));
}

static const char head[] = "# Errors of the model wave, in percent; wave_gemms --bless. Data: "
                           "ai-dynamo/aiconfigurator at\n"
                           "# 095f58a (Apache-2.0).\n"
                           "campaign,rows,wave,left_out,roofline\n";

/* The constants fitted without the device of each campaign. */
static void fit_left_out(weft_wave_constants *out)
{
    for (size_t c = 0; c < CAMPAIGNS; c++) {
        size_t same = 0;
        while (same < c && strcmp(campaigns[same].gpu, campaigns[c].gpu) != 0)
            same++;
        out[c] = same < c ? out[same] : fit(start, campaigns[c].gpu);
    }
}

static int bless(const char *path)
{
    FILE *f = fopen(path, "w");
    weft_wave_constants k[CAMPAIGNS];
    char line[LINE];
    if (!f)
        return 1;
    fputs(head, f);
    fit_left_out(k);
    for (size_t c = 0; c < CAMPAIGNS; c++) {
        put_line(line, sizeof line, c, mean_error(&k[c], c));
        fputs(line, f);
    }
    return fclose(f) != 0;
}

static bool read_all(unsigned one_in)
{
    n_row = 0;
    for (size_t c = 0; c < CAMPAIGNS; c++)
        if (!read_campaign(c, one_in))
            return false;
    return true;
}

static int write_left_out(const char *path)
{
    FILE *f = fopen(path, "w");
    weft_wave_constants k[CAMPAIGNS];
    if (!f)
        return 1;
    fit_left_out(k);
    if (!read_all(1))
        return 1;
    fprintf(f, "gpu,dtype,m,n,k,time_us\n");
    for (size_t c = 0; c < CAMPAIGNS; c++)
        for (size_t r = found[c].first; r < found[c].end; r++)
            fprintf(f, "%s,%s,%.0f,%.0f,%.0f,%.6g\n", campaigns[c].gpu,
                    weft_dtype_name(campaigns[c].dtype), rows[r].kernel.m, rows[r].kernel.n,
                    rows[r].kernel.k, wave_us(&k[c], c, r));
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
        double left_out, roofline;
        do
            if (!fgets(was, sizeof was, f))
                return 1;
        while (was[0] == '#' || strncmp(was, "campaign,", 9) == 0);
        if (sscanf(was, "%*[^,],%*d,%*f,%lf,%lf", &left_out, &roofline) != 2)
            return 1;
        put_line(now, sizeof now, c, left_out);
        bool same = strcmp(was, now) == 0, worse = left_out > roofline;
        printf("%s%s", now, worse ? "left out it is worse than the roofline\n" : "");
        if (!same)
            printf("recorded: %s", was);
        wrong += !same || worse;
    }
    fclose(f);
    return wrong > 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "",
               *path = WEFT_SOURCE_DIR "/tests/regress/wave_gemms.csv";
    if (!read_all(ONE_IN)) {
        printf("skipped: no aiconfigurator below WEFT_DATA\n");
        return SKIP;
    }
    if (strcmp(mode, "--fit") == 0) {
        weft_wave_constants k = fit(weft_model__wave_fitted, "");
        show(&k);
        return 0;
    }
    if (strcmp(mode, "--left-out") == 0 && argc > 2)
        return write_left_out(argv[2]);
    return strcmp(mode, "--bless") == 0 ? bless(path) : compare(path);
}
