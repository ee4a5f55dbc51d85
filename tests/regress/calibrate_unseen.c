/* Calibration of what nothing was trained on, simulated: a campaign of GEMMs plays the GPU. 200 of
 * its rows, as many as half a minute measures, are given to weft_calibration_fit; the others are
 * predicted before and after.
 *
 * The campaigns (aiconfigurator) are predicted by one analytic model alone, as a new GPU would be:
 * fp8 and nvfp4 by the wave model, which was fitted to bf16, bf16 by the roofline.
 * calibrate_unseen.csv has the mean errors and the part of the rows in the 90 % band, in percent;
 * this program computes them again, and fails where calibration makes a campaign worse or its band
 * holds less than 85 %.
 *
 * Usage: calibrate_unseen [--bless] */
#include "estimator/estimator.h"
#include "tests/support/data_dir.h"

#include "base/hash.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SKIP = 77, LINE = 256, ROWS_MAX = 40000, MEASURED = 200 };

static const struct {
    const char *file, *gpu, *model;
    weft_dtype dtype;
} campaigns[] = {
    {"gemm_fp8_h100_sxm_vllm_0.24.0", "h100", "wave", WEFT_DTYPE_F8E4M3FN},
    {"gemm_fp8_h200_sxm_sglang_0.5.14", "h200", "wave", WEFT_DTYPE_F8E4M3FN},
    {"gemm_fp8_l40s_sglang_0.5.12", "l40s", "wave", WEFT_DTYPE_F8E4M3FN},
    {"gemm_fp8_rtx_pro_6000_server_vllm_0.24.0", "rtx-pro-6000", "wave", WEFT_DTYPE_F8E4M3FN},
    {"gemm_nvfp4_b200_sxm_vllm_0.22.0", "b200", "wave", WEFT_DTYPE_F4E2M1},
    {"gemm_bf16_l40s_sglang_0.5.12", "l40s", "roofline", WEFT_DTYPE_BF16},
    {"gemm_bf16_rtx_pro_6000_server_vllm_0.24.0", "rtx-pro-6000", "roofline", WEFT_DTYPE_BF16},
    {"gemm_bf16_b200_sxm_vllm_0.22.0", "b200", "roofline", WEFT_DTYPE_BF16},
};

typedef struct row {
    weft_kernel kernel;
    uint64_t shape;
    double measured_us;
    bool is_given; /* to the calibration */
} row;

static row rows[ROWS_MAX];
static size_t n_row;

static bool read_campaign(const char *file, weft_dtype dtype)
{
    char name[128], path[1024], line[LINE];
    snprintf(name, sizeof name, "aiconfigurator/%s.csv", file);
    FILE *f = weft_data_path(name, path, sizeof path) ? fopen(path, "r") : NULL;
    if (!f)
        return false;
    n_row = 0;
    while (fgets(line, sizeof line, f) && n_row < ROWS_MAX) {
        double m, n, k, us;
        if (sscanf(line, "%lf,%lf,%lf,%lf", &m, &n, &k, &us) != 4)
            continue; /* the head */
        const double sizes[] = {n, k};
        rows[n_row++] = (row){.kernel = weft_kernel_make_gemm(dtype, 1, m, n, k, true),
                              .shape = weft_hash64(sizes, sizeof sizes, 0),
                              .measured_us = us};
    }
    fclose(f);
    /* Rows with the least hashes: as good as drawn by chance. */
    for (size_t i = 0; i < n_row; i++) {
        const double sizes[] = {rows[i].kernel.m, rows[i].kernel.n, rows[i].kernel.k};
        rows[i].is_given = weft_hash64(sizes, sizeof sizes, 1) % n_row < MEASURED;
    }
    return n_row > 0;
}

static bool fit(const weft_slice *slice, const char *model, weft_calibration *out)
{
    static weft_calibration_row given[ROWS_MAX];
    const weft_estimate_options how = {.model = model};
    size_t n = 0;
    for (size_t i = 0; i < n_row; i++) {
        if (!rows[i].is_given)
            continue;
        given[n] =
            (weft_calibration_row){.measured_us = rows[i].measured_us, .shape = rows[i].shape};
        if (weft_calibration_add_kernel(&rows[i].kernel, 1, slice, &how, NULL, &given[n++]) !=
            WEFT_ERR_OK)
            return false;
    }
    return weft_calibration_fit(given, n, slice->gpu, NULL, out) == WEFT_ERR_OK;
}

/* Mean error and coverage over the rows that the calibration was not given, percent. */
static bool predict(const weft_slice *slice, const weft_estimate_options *how, double *out_error,
                    double *out_inside)
{
    double error = 0, inside = 0, n = 0;
    for (size_t i = 0; i < n_row; i++) {
        weft_cost c;
        double us = rows[i].measured_us;
        if (rows[i].is_given)
            continue;
        if (weft_estimate_kernel(&rows[i].kernel, slice, how, NULL, &c, NULL) != WEFT_ERR_OK)
            return false;
        error += fabs(c.time_us / us - 1);
        inside += c.time_p5_us <= us && us <= c.time_p95_us;
        n++;
    }
    *out_error = 100 * error / n;
    *out_inside = 100 * inside / n;
    return true;
}

/* 0, or why the campaign cannot be shown. */
static int try_campaign(size_t i, char *line, bool *good)
{
    weft_slice slice;
    weft_calibration c;
    double before, before_inside, after, inside;
    weft_estimate_options how = {.model = campaigns[i].model};
    if (!read_campaign(campaigns[i].file, campaigns[i].dtype))
        return SKIP;
    if (weft_slice_make(campaigns[i].gpu, "", NULL, &slice) != WEFT_ERR_OK ||
        !fit(&slice, how.model, &c) || !predict(&slice, &how, &before, &before_inside))
        return 1;
    how.calibration = &c;
    if (!predict(&slice, &how, &after, &inside))
        return 1;
    snprintf(line, LINE, "%s,%s,%zu,%.1f,%.1f,%.1f,%.1f\n", campaigns[i].file,
             how.model ? how.model : "trees", n_row, before, before_inside, after, inside);
    *good = after < before && inside >= 85;
    return 0;
}

int main(int argc, char **argv)
{
    static const char path[] = WEFT_SOURCE_DIR "/tests/regress/calibrate_unseen.csv";
    static const char head[] =
        "# Errors and rows in the 90 % band in percent; tests/regress/calibrate_unseen.c.\n"
        "campaign,model,rows,error_before,inside_before,error_after,inside_after\n";
    bool bless = argc > 1 && strcmp(argv[1], "--bless") == 0;
    char line[LINE], recorded[LINE];
    FILE *f = fopen(path, bless ? "w" : "r");
    int wrong = 0;
    if (!f || (bless ? fputs(head, f) < 0 : !fgets(recorded, LINE, f) || !fgets(recorded, LINE, f)))
        return 1;
    for (size_t i = 0; i < sizeof campaigns / sizeof campaigns[0]; i++) {
        bool good;
        int code = try_campaign(i, line, &good);
        if (code == SKIP)
            printf("no %s\n", campaigns[i].file);
        if (code)
            return code;
        printf("%s", line);
        if (bless)
            fputs(line, f);
        else if (!fgets(recorded, LINE, f) || strcmp(recorded, line) != 0)
            wrong = printf("recorded is %s; --bless rewrites it\n", recorded);
        if (!good)
            wrong = printf("%s: calibration is of no use\n", campaigns[i].file);
    }
    fclose(f);
    return wrong ? 1 : 0;
}
