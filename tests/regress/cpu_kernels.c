/* The CPU model (estimator/models/model_cpu.c) on single kernels that tests/bench/bench_kernels
 * measured one after the other, as in a program: cpu_kernels_measured.csv, whose head names the
 * machine. A shape is the kind and sizes of a kernel without the rows of its first operand; one
 * shape in four, by a hash of its text, is held out of the fit with all its rows and thread counts.
 *
 * cpu_kernels.csv has the errors on held-out and on fitted shapes, and those of the roofline; this
 * program computes them again, and fails if they differ or exceed the targets. Merging depends on
 * ratios, the time of one GEMM for K models over that of K GEMMs: they are compared too, from the
 * same rows, as K times the GEMM of m rows over the GEMM of K m rows.
 *
 * Usage: cpu_kernels [--bless | --fit | --points] */
#include "estimator/models/models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MAX = 8192, LINE = 512, GROUPS_MAX = 64, TEXT = 96, FIT_ROUNDS = 60 };

typedef struct row {
    weft_kernel kernel;
    char model[40], op[32];
    int threads;
    double time_us, guess_us, plain_us; /* measured; predicted; by the roofline */
    bool held_out;
} row;

static row rows[ROWS_MAX];
static size_t n_row;
static weft_slice slices[3];

/* -- Measurements ----------------------------------------------------------------------------- */

static uint64_t hash_text(const char *text) /* FNV-1a */
{
    uint64_t h = 14695981039346656037u;
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 1099511628211u;
    return h ^ h >> 29;
}

static weft_kernel_kind find_kind(const char *name)
{
    for (int k = 0; k < WEFT_KERNEL_COUNT; k++)
        if (strcmp(weft_kernel_kind_name((weft_kernel_kind)k), name) == 0)
            return (weft_kernel_kind)k;
    return WEFT_KERNEL_OTHER;
}

static bool is_held_out(const weft_kernel *k)
{
    char text[TEXT];
    snprintf(text, sizeof text, "%d %.0f %.0f %.0f", (int)k->kind, k->n > k->k ? k->n : k->k,
             k->n > k->k ? k->k : k->n, k->cols);
    return hash_text(text) % 4 == 0;
}

static bool read_row(const char *line, row *r)
{
    char kind[32];
    double out_h, out_w;
    weft_kernel *k = &r->kernel;
    *r = (row){0};
    int n = sscanf(line,
                   "%39[^,],%d,%31[^,],%31[^,],%lf,%lf,%lf,%lf,%lf,%lf,%lf,%lf,%lf,%lf,%lf,%lf,"
                   "%lf,%lf",
                   r->model, &r->threads, r->op, kind, &k->batch, &k->m, &k->n, &k->k, &k->rows,
                   &k->cols, &out_h, &out_w, &k->flop_saving, &k->work.flops, &k->work.bytes_read,
                   &k->work.bytes_written, &k->work.weight_bytes, &k->reuse_bytes);
    const char *last = strrchr(line, ',');
    if (n != 18 || !last || r->threads < 1 || r->threads > 2)
        return false;
    r->time_us = strtod(last + 1, NULL);
    k->kind = find_kind(kind);
    k->dtype = WEFT_DTYPE_F32;
    k->conv.out_h = out_h;
    k->conv.out_w = out_w;
    k->conv.images = out_h * out_w > 0 ? k->m / (out_h * out_w) : 0;
    r->held_out = is_held_out(k);
    return r->time_us > 0 && k->kind != WEFT_KERNEL_OTHER;
}

static bool read_rows(void)
{
    char line[LINE];
    FILE *in = fopen(WEFT_SOURCE_DIR "/tests/regress/cpu_kernels_measured.csv", "r");
    if (!in)
        return false;
    while (fgets(line, sizeof line, in))
        if (line[0] != '#' && n_row < ROWS_MAX && read_row(line, &rows[n_row]))
            n_row++;
    fclose(in);
    return n_row > 1000;
}

static void predict(const weft_model_cpu_constants *c)
{
    for (size_t i = 0; i < n_row; i++) {
        const weft_slice *s = &slices[rows[i].threads];
        rows[i].guess_us = weft_model__cpu_time_us(c, &rows[i].kernel, s, s->units, false);
    }
}

static bool predict_plain(void)
{
    const weft_estimate_options how = {.model = "roofline"};
    for (size_t i = 0; i < n_row; i++) {
        weft_cost cost;
        if (weft_estimate_kernel(&rows[i].kernel, &slices[rows[i].threads], &how, NULL, &cost,
                                 NULL) != WEFT_ERR_OK)
            return false;
        rows[i].plain_us = cost.time_us;
    }
    return true;
}

/* -- Fit -------------------------------------------------------------------------------------- */

/* Huber loss with delta 10 %; GEMMs have a larger weight, because merging depends on them. */
static double loss(const weft_model_cpu_constants *c)
{
    static const double turn = 0.1;
    double sum = 0;
    predict(c);
    for (size_t i = 0; i < n_row; i++) {
        double e = fabs(log(rows[i].guess_us / rows[i].time_us));
        double weight = rows[i].kernel.kind == WEFT_KERNEL_GEMM ? 1 : 0.25;
        if (!rows[i].held_out)
            sum += weight * (e < turn ? e * e / 2 : turn * (e - turn / 2));
    }
    return sum;
}

/* Coordinate search: varies one constant after the other, with steps that are halved. */
static void fit(void)
{
    static const char *const names[] = {"call_us",
                                        "loop_us",
                                        "cold_us",
                                        "enter_us",
                                        "gemm_eff",
                                        "gemm_rows",
                                        "cache_eff",
                                        "near_eff",
                                        "near_bytes",
                                        "memory_eff",
                                        "overlap",
                                        "overlap_rows",
                                        "kept",
                                        "lost",
                                        "conv_eff",
                                        "conv_rows",
                                        "winograd_eff",
                                        "head_us",
                                        "query_us",
                                        "attention_eff",
                                        "ew_eff",
                                        "norm_eff",
                                        "pool_eff",
                                        "reduce_eff",
                                        "move_eff",
                                        "depthwise_eff",
                                        "act_kept",
                                        "act_lost",
                                        "act_eff",
                                        "low_rank_us",
                                        "low_rank_eff",
                                        "low_rank_cache_eff",
                                        "low_rank_result_eff",
                                        "element_eff"};
    enum { N = sizeof names / sizeof names[0] };
    _Static_assert(sizeof(weft_model_cpu_constants) == N * sizeof(double),
                   "a name for each constant");
    double p[N], best;
    weft_model_cpu_constants c = weft_model__cpu_fitted;
    memcpy(p, &c, sizeof p);
    best = loss(&c);
    double step = 0.3;
    for (int round = 0; round < FIT_ROUNDS; round++) {
        double before = best;
        for (size_t i = 0; i < N; i++) {
            for (int side = -1; side <= 1; side += 2) {
                double old = p[i];
                p[i] = old * exp(side * step);
                memcpy(&c, p, sizeof p);
                double now = c.gemm_eff <= 1 && c.conv_eff <= 1 && c.overlap <= 1 &&
                                     c.memory_eff <= 1 && c.kept < 0.95 * c.lost &&
                                     c.act_kept < 0.95 * c.act_lost
                                 ? loss(&c)
                                 : INFINITY;
                if (now < best)
                    best = now;
                else
                    p[i] = old;
            }
        }
        if (best > before * 0.9995)
            step /= 1.6;
    }
    for (size_t i = 0; i < N; i++)
        printf("    .%s = %.4g,\n", names[i], p[i]);
    memcpy(&c, p, sizeof p);
    printf("loss %g\n", loss(&c));
}

/* -- Errors ----------------------------------------------------------------------------------- */

typedef struct group {
    char name[TEXT];
    double error[ROWS_MAX], plain[ROWS_MAX];
    size_t n;
} group;

static group groups[GROUPS_MAX];
static size_t n_group;

static void add_error(const char *name, double error, double plain)
{
    size_t i = 0;
    while (i < n_group && strcmp(groups[i].name, name) != 0)
        i++;
    if (i == n_group && n_group < GROUPS_MAX)
        snprintf(groups[n_group++].name, TEXT, "%s", name);
    if (i < n_group && groups[i].n < ROWS_MAX) {
        groups[i].plain[groups[i].n] = plain;
        groups[i].error[groups[i].n++] = error;
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The row of the same problem with `times` as many rows; NULL: not measured. */
static const row *find_joint(const row *r, int times)
{
    for (size_t i = 0; i < n_row; i++) {
        const row *o = &rows[i];
        if (o->threads == r->threads && o->kernel.kind == r->kernel.kind &&
            strcmp(o->model, r->model) == 0 && o->kernel.m == times * r->kernel.m &&
            o->kernel.n == r->kernel.n && o->kernel.k == r->kernel.k &&
            o->kernel.batch == r->kernel.batch)
            return o;
    }
    return NULL;
}

static void collect(void)
{
    char name[TEXT];
    for (size_t i = 0; i < n_row; i++) {
        const row *r = &rows[i];
        const char *part = r->held_out ? "held out" : "fitted";
        snprintf(name, sizeof name, "%s,%s,%d", part, weft_kernel_kind_name(r->kernel.kind),
                 r->threads);
        add_error(name, fabs(r->guess_us / r->time_us - 1), fabs(r->plain_us / r->time_us - 1));
        if (r->kernel.kind != WEFT_KERNEL_GEMM)
            continue;
        for (int times = 2; times <= 8; times *= 2) {
            const row *joint = find_joint(r, times);
            if (!joint)
                continue;
            snprintf(name, sizeof name, "%s,gain of %d,%d", part, times, r->threads);
            double gain = times * r->time_us / joint->time_us;
            add_error(name, fabs(times * r->guess_us / joint->guess_us / gain - 1),
                      fabs(times * r->plain_us / joint->plain_us / gain - 1));
        }
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const group *)a)->name, ((const group *)b)->name);
}

static bool write_errors(FILE *out)
{
    bool met = true;
    fputs(
        "# Errors of the CPU's model in percent; tests/regress/cpu_kernels.c says on what. within "
        "15: part of the rows, percent.\n"
        "part,kind,threads,rows,median,mean,p90,within_15,roofline_median,roofline_within_15\n",
        out);
    qsort(groups, n_group, sizeof *groups, by_name);
    for (size_t i = 0; i < n_group; i++) {
        group *g = &groups[i];
        double sum = 0, within = 0, plain = 0;
        qsort(g->error, g->n, sizeof *g->error, by_value);
        qsort(g->plain, g->n, sizeof *g->plain, by_value);
        for (size_t k = 0; k < g->n; k++) {
            sum += g->error[k];
            within += g->error[k] <= 0.15;
            plain += g->plain[k] <= 0.15;
        }
        double n = (double)g->n;
        fprintf(out, "%s,%zu,%.1f,%.1f,%.1f,%.0f,%.1f,%.0f\n", g->name, g->n,
                100 * g->error[g->n / 2], 100 * sum / n, 100 * g->error[g->n * 9 / 10],
                100 * within / n, 100 * g->plain[g->n / 2], 100 * plain / n);
        if (strncmp(g->name, "held out,gain", 13) == 0 && within < 0.9 * (double)g->n) {
            printf("%s: %.0f of %zu gains are within 15 %%\n", g->name, within, g->n);
            met = false;
        }
    }
    return met;
}

static bool same_files(FILE *a, FILE *b)
{
    int x, y;
    do {
        x = getc(a);
        y = getc(b);
    } while (x == y && x != EOF);
    return x == y;
}

int main(int argc, char **argv)
{
    static const char path[] = WEFT_SOURCE_DIR "/tests/regress/cpu_kernels.csv";
    const char *mode = argc > 1 ? argv[1] : "";
    if (!read_rows() || weft_slice_make("cpu", "1core", NULL, &slices[1]) != WEFT_ERR_OK ||
        weft_slice_make("cpu", "2core", NULL, &slices[2]) != WEFT_ERR_OK) {
        puts("cpu_kernels_measured.csv: no rows");
        return 1;
    }
    if (strcmp(mode, "--fit") == 0) {
        fit();
        return 0;
    }
    predict(&weft_model__cpu_fitted);
    if (!predict_plain())
        return 1;
    for (size_t i = 0; strcmp(mode, "--points") == 0 && i < n_row; i++)
        printf("%-28s %d %-10s %-8s b %g m %g n %g k %g reuse %.3g MB: %.4g us, predicted %.4g%s\n",
               rows[i].model, rows[i].threads, weft_kernel_kind_name(rows[i].kernel.kind),
               rows[i].op, rows[i].kernel.batch, rows[i].kernel.m, rows[i].kernel.n,
               rows[i].kernel.k, rows[i].kernel.reuse_bytes / 1e6, rows[i].time_us,
               rows[i].guess_us, rows[i].held_out ? " held out" : "");
    collect();
    bool bless = strcmp(mode, "--bless") == 0;
    FILE *out = bless ? fopen(path, "w") : tmpfile(), *old = NULL;
    if (!out)
        return 1;
    bool ok = write_errors(out);
    rewind(out);
    if (!bless) {
        old = fopen(path, "r");
        bool same = old && same_files(out, old);
        if (!same)
            puts("cpu_kernels.csv is not what is found now; --bless rewrites it");
        ok = ok && same;
    }
    if (old)
        fclose(old);
    fclose(out);
    return !ok;
}
