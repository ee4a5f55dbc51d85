/* Single kernels against Orion's profiles (orion/, PyTorch with f32 on a V100 16 GB, CUDA 10.2):
 * time and use of SMs of each kernel of one inference of a batch of 4.
 *
 * The kernels that a framework launches for a network are matched with the rows of the file in
 * order of execution, by kind (longest common subsequence). The file's SM use is the number of
 * blocks over the blocks that fit on one SM, rounded up; the estimator's is the same number for the
 * launch that it guesses; both are limited to 80 SMs before they are compared. The files have no
 * shapes: a wrongly matched row cannot be distinguished from a wrongly estimated one.
 *
 * One constant of the estimator comes from one of these files: the rate of depthwise convolutions
 * (model_implicit.c), from mobilenetv2.
 *
 * Usage: orion_kernels [--bless | --rows] */
#include "tests/support/data_dir.h"
#include "tests/support/network.h"

#include <math.h>
#include <string.h>

enum { SKIP = 77, ROWS_MAX = 2048, LINE = 4096, UNITS = 80, BATCH = 4 };

static const struct {
    const char *file, *network;
} files[] = {
    {"orion/profiles/resnet50_4_fwd_new.csv", "resnet50"},
    {"orion/profiles/resnet101_4_fwd_new.csv", "resnet101"},
    {"orion/model_kernels/resnet101_4_fwd.csv", "resnet101"},
    {"orion/profiles/mobilenetv2_4_fwd_new.csv", "mobilenet_v2"},
};

enum { FILES = sizeof files / sizeof files[0] };

/* Kinds that both the files and the estimator distinguish. */
enum { CONV, DEPTHWISE, NORM, EW, POOL, REDUCE, GEMM, OTHER, KINDS };

static const char *const kind_names[KINDS] = {"conv", "depthwise", "norm", "ew",
                                              "pool", "reduce",    "gemm", "other"};

typedef struct row {
    int kind;
    double time_us, units; /* units, at most 80 */
} row;

/* -- Both sides ------------------------------------------------------------------------------- */

static int kind_of_name(const char *name)
{
    static const struct {
        const char *part;
        int kind;
    } parts[] = {
        {"conv_depthwise", DEPTHWISE},
        {"Conv", CONV},
        {"BatchNorm", NORM},
        {"max_pool", POOL},
        {"avg_pool", POOL},
        {"reduce", REDUCE},
        {"gemm", GEMM},
        {"elementwise", EW},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (strstr(name, parts[i].part))
            return parts[i].kind;
    return OTHER;
}

/* Names contain commas: the numbers are split off from the right. */
static bool read_row(char *line, row *out)
{
    char *field[4];
    for (int i = 3; i >= 0; i--) {
        field[i] = strrchr(line, ',');
        if (!field[i])
            return false;
        *field[i]++ = 0;
    }
    double time_ns = atof(field[3]);
    *out = (row){kind_of_name(line), time_ns * 1e-3, fmin(UNITS, atof(field[2]))};
    return time_ns > 0;
}

static size_t read_measured(const char *path, row *out)
{
    static char line[LINE];
    size_t n = 0;
    FILE *in = fopen(path, "r");
    while (in && n < ROWS_MAX && fgets(line, sizeof line, in))
        n += read_row(line, &out[n]);
    if (in)
        fclose(in);
    return n;
}

static int kind_of_kernel(weft_kernel_kind kind)
{
    static const int kinds[WEFT_KERNEL_COUNT] = {
        [WEFT_KERNEL_OTHER] = OTHER,     [WEFT_KERNEL_GEMM] = GEMM,
        [WEFT_KERNEL_CONV] = CONV,       [WEFT_KERNEL_DEPTHWISE] = DEPTHWISE,
        [WEFT_KERNEL_ATTENTION] = OTHER, [WEFT_KERNEL_EW] = EW,
        [WEFT_KERNEL_NORM] = NORM,       [WEFT_KERNEL_SOFTMAX] = OTHER,
        [WEFT_KERNEL_REDUCE] = REDUCE,   [WEFT_KERNEL_POOL] = POOL,
        [WEFT_KERNEL_MOVE] = OTHER,
    };
    return kinds[kind];
}

/* Blocks over the blocks that fit on one SM. */
static double find_units(const weft_slice *slice, const weft_launch *launch, weft_diag *diag)
{
    weft_occupancy fits;
    weft_thread_block block = {.threads = launch->threads,
                               .regs = launch->regs,
                               .dynamic_bytes = launch->shared_bytes,
                               .opt_in = true,
                               .dynamic_max_bytes = launch->shared_bytes};
    if (weft_occupancy_find(slice->gpu->capability, &block, diag, &fits) != WEFT_ERR_OK ||
        fits.blocks == 0)
        network_give_up(diag, "occupancy");
    return fmin(UNITS, ceil(launch->blocks / fits.blocks));
}

static size_t estimate(const char *name, const weft_slice *slice, weft_diag *diag, row *out)
{
    weft_module *m = network_load(name, "framework");
    weft_arena *arena = weft_arena_create(0);
    weft_estimate_options o = {.lowering = WEFT_LOWERING_FRAMEWORK};
    weft_estimate e;
    int64_t symbol[8] = {0};
    weft_graph *g = weft_graph_at(m, 0);
    if (weft_estimate_symbols(g, BATCH, diag, symbol) != WEFT_ERR_OK ||
        weft_estimate_graph(g, symbol, slice, &o, arena, diag, &e) != WEFT_ERR_OK)
        network_give_up(diag, name);
    size_t n = e.n < ROWS_MAX ? e.n : ROWS_MAX;
    for (size_t i = 0; i < n; i++)
        out[i] = (row){kind_of_kernel(e.kernel[i].kernel.kind), e.kernel[i].cost.time_us,
                       find_units(slice, &e.kernel[i].usage.launch, diag)};
    weft_arena_destroy(arena);
    weft_module_destroy(m);
    return n;
}

/* -- Matching --------------------------------------------------------------------------------- */

typedef struct pair {
    int file;
    row measured, guess;
} pair;

static pair pairs[FILES * ROWS_MAX];
static size_t n_pair;

static void match(int file, const row *a, size_t n_a, const row *b, size_t n_b)
{
    static uint16_t best[ROWS_MAX + 1]
                        [ROWS_MAX + 1]; /* length of the common subsequence from rows i and k on */
    for (size_t k = 0; k <= n_b; k++)
        best[n_a][k] = 0;
    for (size_t i = n_a; i-- > 0;) {
        best[i][n_b] = 0;
        for (size_t k = n_b; k-- > 0;) {
            uint16_t skip = best[i + 1][k] > best[i][k + 1] ? best[i + 1][k] : best[i][k + 1];
            uint16_t take = (uint16_t)(best[i + 1][k + 1] + 1);
            best[i][k] = a[i].kind == b[k].kind && take > skip ? take : skip;
        }
    }
    for (size_t i = 0, k = 0; i < n_a && k < n_b;) {
        if (a[i].kind == b[k].kind && best[i][k] == best[i + 1][k + 1] + 1)
            pairs[n_pair++] = (pair){file, a[i++], b[k++]};
        else if (best[i + 1][k] >= best[i][k + 1])
            i++;
        else
            k++;
    }
}

/* -- Statistics ------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(const double *sorted, size_t n, double q)
{
    return n ? sorted[(size_t)fmin((double)n - 1, floor(q * (double)n))] : 0;
}

typedef struct summary {
    size_t n;
    double time_median, time_p90, time_mean, bias; /* errors in percent; predicted / measured */
    double total;                                  /* sum of times, predicted / measured */
    double units_median, units_p90,
        units_right; /* part of the rows whose SMs are within 10 % of the device */
} summary;

/* file, kind -1: all */
static summary summarise(int file, int kind)
{
    static double time[FILES * ROWS_MAX], units[FILES * ROWS_MAX], ratio[FILES * ROWS_MAX];
    double guess = 0, measured = 0;
    summary s = {0};
    for (size_t i = 0; i < n_pair; i++) {
        const pair *p = &pairs[i];
        if ((file >= 0 && p->file != file) || (kind >= 0 && p->measured.kind != kind))
            continue;
        ratio[s.n] = p->guess.time_us / p->measured.time_us;
        time[s.n] = fabs(ratio[s.n] - 1) * 100;
        units[s.n] = fabs(p->guess.units - p->measured.units);
        s.units_right += units[s.n] <= 0.1 * UNITS;
        s.time_mean += time[s.n];
        guess += p->guess.time_us;
        measured += p->measured.time_us;
        s.n++;
    }
    double n = (double)(s.n ? s.n : 1);
    qsort(time, s.n, sizeof *time, by_value);
    qsort(units, s.n, sizeof *units, by_value);
    qsort(ratio, s.n, sizeof *ratio, by_value);
    s.time_median = quantile(time, s.n, 0.5);
    s.time_p90 = quantile(time, s.n, 0.9);
    s.time_mean /= n;
    s.bias = quantile(ratio, s.n, 0.5);
    s.units_median = quantile(units, s.n, 0.5);
    s.units_p90 = quantile(units, s.n, 0.9);
    s.units_right = s.units_right / n * 100;
    s.total = measured > 0 ? guess / measured : 0;
    return s;
}

static void print_row(FILE *out, int file, int kind)
{
    summary s = summarise(file, kind);
    if (s.n > 0)
        fprintf(out, "%s,%s,%zu,%.1f,%.1f,%.1f,%.3f,%.3f,%.0f,%.0f,%.0f\n",
                file < 0 ? "all" : files[file].file, kind < 0 ? "all" : kind_names[kind], s.n,
                s.time_median, s.time_p90, s.time_mean, s.bias, s.total, s.units_median,
                s.units_p90, s.units_right);
}

static void print_table(FILE *out)
{
    fprintf(out, "file,kind,kernels,time_median,time_p90,time_mean,bias,total,units_median,"
                 "units_p90,units_right\n");
    print_row(out, -1, -1);
    for (int k = 0; k < KINDS; k++)
        print_row(out, -1, k);
    for (int f = 0; f < FILES; f++)
        print_row(out, f, -1);
}

/* -- Main ------------------------------------------------------------------------------------- */

/* Fails if the mean error of time, or the part of rows with correct SMs, is worse than recorded. */
static int check(const char *path)
{
    static const double slack = 0.15, slack_units = 1; /* one digit of the record */
    char line[256];
    double mean = -1, right = 0;
    summary s = summarise(-1, -1);
    FILE *in = fopen(path, "r");
    while (in && fgets(line, sizeof line, in))
        if (sscanf(line, "all,all,%*d,%*f,%*f,%lf,%*f,%*f,%*f,%*f,%lf", &mean, &right) == 2)
            break;
    if (in)
        fclose(in);
    if (mean >= 0 && s.time_mean <= mean + slack && s.units_right >= right - slack_units)
        return 0;
    fprintf(stderr, "recorded: mean error %g %%, %g %% of rows right; --bless records a change\n",
            mean, right);
    return 1;
}

int main(int argc, char **argv)
{
    static row measured[ROWS_MAX], guess[ROWS_MAX];
    const char *mode = argc > 1 ? argv[1] : "";
    char path[1024], data[1024];
    weft_diag *diag = weft_diag_create();
    weft_slice slice;
    snprintf(path, sizeof path, "%s/tests/regress/orion_kernels.csv", WEFT_SOURCE_DIR);
    if (weft_slice_make("v100", "", diag, &slice) != WEFT_ERR_OK)
        network_give_up(diag, "v100");
    for (int f = 0; f < FILES; f++) {
        if (!weft_data_path(files[f].file, data, sizeof data)) {
            printf("%s is not there (WEFT_DATA): skipped\n", files[f].file);
            weft_diag_destroy(diag);
            return SKIP;
        }
        size_t n_measured = read_measured(data, measured);
        size_t n_guess = estimate(files[f].network, &slice, diag, guess);
        size_t before = n_pair;
        match(f, measured, n_measured, guess, n_guess);
        printf("%s: %zu rows, %zu kernels, %zu matched\n", files[f].file, n_measured, n_guess,
               n_pair - before);
    }
    for (size_t i = 0; i < n_pair && strcmp(mode, "--rows") == 0; i++)
        printf("%s,%s,%.2f,%.2f,%.0f,%.0f\n", files[pairs[i].file].file,
               kind_names[pairs[i].measured.kind], pairs[i].measured.time_us,
               pairs[i].guess.time_us, pairs[i].measured.units, pairs[i].guess.units);
    print_table(stdout);
    weft_diag_destroy(diag);
    if (strcmp(mode, "--bless") == 0) {
        FILE *out = fopen(path, "w");
        if (out)
            print_table(out);
        return out && fclose(out) == 0 ? 0 : 1;
    }
    return check(path);
}
