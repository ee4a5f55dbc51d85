/* Slow-down of language models on MPS shares of 30 to 90 % of an A100's SMs, relative to all SMs,
 * with the rest of the device idle (muxserve/llama.json: LLaMA 7B and 13B on one GPU, prefill and
 * one step of decoding, batches 1 to 256, sequences of 32 to 512 tokens).
 *
 * Slow-downs are compared instead of times, because the kernels of that engine are not recorded.
 * The law of the traffic (README.md, Slices) has one constant that was chosen on this data.
 *
 * Usage: mps_shares [--bless] */
#include "base/diag.h"
#include "estimator/estimator.h"
#include "tests/support/data_dir.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MODELS = 2, PHASES = 2, PERCENTS = 8, BATCHES = 9, LENGTHS = 5, DEPTH = 6, SKIP = 77 };

static const struct {
    const char *name;
    double layers, width, inner, heads;
} models[MODELS] = {{"llama-7b", 32, 4096, 11008, 32}, {"llama-13b", 40, 5120, 13824, 40}};

static const char *const phases[PHASES] = {"decoding", "prefill"};

/* ms; 0: not measured. Index 0 .. 7: 30, 40 .. 100 %. */
static double measured[MODELS][PHASES][PERCENTS][BATCHES][LENGTHS];

/* -- Measurements ----------------------------------------------------------------------------- */

static int find_index(const char *const *names, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

static void add_value(char key[DEPTH][32], double ms)
{
    static const char *const model_names[MODELS] = {"llama-7b", "llama-13b"};
    int model = find_index(model_names, MODELS, key[0]), phase = find_index(phases, PHASES, key[5]);
    int percent = atoi(key[2]) / 10 - 3, batch = (int)round(log2(atof(key[3])));
    int length = (int)round(log2(atof(key[4]))) - 5;
    if (model >= 0 && phase >= 0 && strcmp(key[1], "1") == 0 && percent >= 0 &&
        percent < PERCENTS && batch >= 0 && batch < BATCHES && length >= 0 && length < LENGTHS &&
        ms > 0)
        measured[model][phase][percent][batch][length] = ms;
}

/* Nested objects with six keys: model, GPUs, percent, batch, length, phase. */
static bool read_measured(void)
{
    char path[1024], key[DEPTH][32] = {{0}};
    int depth = 0, c;
    if (!weft_data_path("muxserve/llama.json", path, sizeof path))
        return false;
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    while ((c = fgetc(f)) != EOF) {
        double ms;
        if (c == '{') {
            depth++;
        } else if (c == '}') {
            depth--;
        } else if (c == '"' && depth >= 1 && depth <= DEPTH) {
            if (fscanf(f, "%31[^\"]", key[depth - 1]) != 1 || fgetc(f) != '"')
                break;
        } else if (depth == DEPTH && (c == '-' || (c >= '0' && c <= '9'))) {
            ungetc(c, f);
            if (fscanf(f, "%lf", &ms) != 1)
                break;
            add_value(key, ms);
        }
    }
    fclose(f);
    return true;
}

/* -- Predictions ------------------------------------------------------------------------------ */

static double add(weft_kernel kernel, double n, const weft_slice *slice)
{
    weft_cost cost;
    weft_diag *diag = weft_diag_create();
    if (weft_estimate_kernel(&kernel, slice, NULL, diag, &cost, NULL) != WEFT_ERR_OK) {
        fprintf(stderr, "%s\n", weft_diag_count(diag) ? weft_diag_at(diag, 0)->text : "no kernel");
        exit(1);
    }
    weft_diag_destroy(diag);
    return n * cost.time_us * 1e-3;
}

/* The kernels of a decoder as serving engines launch them, f16. */
static double predict(int model, int phase, double batch, double length, const weft_slice *s)
{
    const weft_dtype t = WEFT_DTYPE_F16;
    double layers = models[model].layers, width = models[model].width, inner = models[model].inner;
    double heads = models[model].heads, tokens = phase == 1 ? batch * length : batch;
    double ms = 0;
    ms += add(weft_kernel_make_rows(WEFT_KERNEL_NORM, "rms_norm", t, 1, tokens, width), 2 * layers,
              s);
    ms += add(weft_kernel_make_gemm(t, 1, tokens, 3 * width, width, true), layers, s);
    ms += add(weft_kernel_make_rows(WEFT_KERNEL_EW, NULL, t, 1, tokens, 2 * width), layers, s);
    ms += add(weft_kernel_make_rows(WEFT_KERNEL_MOVE, NULL, t, 1, tokens, 2 * width), layers, s);
    ms += add(
        weft_kernel_make_attention(t, batch, heads, phase == 1 ? length : 1, length, width / heads),
        layers, s);
    ms += add(weft_kernel_make_gemm(t, 1, tokens, width, width, true), layers, s);
    ms += add(weft_kernel_make_gemm(t, 1, tokens, 2 * inner, width, true), layers, s);
    ms += add(weft_kernel_make_rows(WEFT_KERNEL_EW, NULL, t, 2, tokens, inner), layers, s);
    ms += add(weft_kernel_make_gemm(t, 1, tokens, width, inner, true), layers, s);
    ms += add(weft_kernel_make_gemm(t, 1, batch, 32000, width, true), 1, s);
    return ms;
}

/* -- Errors ----------------------------------------------------------------------------------- */

enum { ERRORS_MAX = MODELS * PERCENTS * BATCHES * LENGTHS };

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Errors of the slow-down in %, for one percentage or (-1) for all below 100. Returns their
 * number. */
static int find_errors(int phase, int percent, double *error, double *out_bias)
{
    int n = 0;
    weft_slice whole, part;
    char name[8];
    *out_bias = 0;
    for (int p = 0; p < PERCENTS - 1; p++) {
        snprintf(name, sizeof name, "%d%%", 30 + 10 * p);
        if (weft_slice_make("a100-80", "", NULL, &whole) != WEFT_ERR_OK ||
            weft_slice_make("a100-80", name, NULL, &part) != WEFT_ERR_OK)
            exit(1);
        for (int i = 0; i < MODELS * BATCHES * LENGTHS && (percent < 0 || percent == p); i++) {
            int m = i % MODELS, b = i / MODELS % BATCHES, l = i / MODELS / BATCHES;
            double all = measured[m][phase][PERCENTS - 1][b][l], some = measured[m][phase][p][b][l];
            if (all <= 0 || some <= 0)
                continue;
            double batch = 1 << b, length = 32 << l;
            double slow =
                predict(m, phase, batch, length, &part) / predict(m, phase, batch, length, &whole);
            error[n] = 100 * fabs(slow / (some / all) - 1);
            *out_bias += 100 * (slow / (some / all) - 1);
            n++;
        }
    }
    qsort(error, (size_t)n, sizeof *error, by_value);
    *out_bias /= n;
    return n;
}

static void print_table(FILE *out)
{
    static double error[ERRORS_MAX];
    fprintf(out, "# Slow-down on an MPS share of an A100 80 GB against all of it (muxserve): "
                 "errors in %%.\n# `regress_mps_shares --bless` rewrites it.\n"
                 "phase,share,points,median,bias\n");
    for (int phase = 0; phase < PHASES; phase++)
        for (int p = -1; p < PERCENTS - 1; p++) {
            double bias;
            int n = find_errors(phase, p, error, &bias);
            fprintf(out, "%s,%d,%d,%.1f,%.1f\n", phases[phase], p < 0 ? 0 : 30 + 10 * p, n,
                    error[n / 2], bias);
        }
}

static int check(void)
{
    static const double most[PHASES] = {6, 15};
    static double error[ERRORS_MAX];
    for (int phase = 0; phase < PHASES; phase++) {
        double bias;
        int n = find_errors(phase, -1, error, &bias);
        if (n < 500 || error[n / 2] > most[phase])
            return fprintf(stderr, "%s: median error %.1f %%, at most %g %%\n", phases[phase],
                           error[n / 2], most[phase]),
                   1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    char path[1024];
    if (!read_measured()) {
        printf("no measurements in the folder muxserve (WEFT_DATA)\n");
        return SKIP;
    }
    if (argc > 1 && strcmp(argv[1], "--bless") == 0) {
        snprintf(path, sizeof path, "%s/tests/regress/mps_shares.csv", WEFT_SOURCE_DIR);
        FILE *f = fopen(path, "w");
        if (!f)
            return 1;
        print_table(f);
        return fclose(f) != 0;
    }
    print_table(stdout);
    return check();
}
