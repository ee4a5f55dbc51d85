/* Slow-down of processes of one model in one slice: predicted by the three models of
 * estimator/models/contention.c against measurements (parvagpu/profiles: 11 networks on MIG slices
 * of an A100 80 GB, 2 to 5 processes over 1).
 *
 * The prediction uses only estimates, no measurements. All constants are fitted to resnet50,
 * densenet121 and vgg16.
 *
 * Usage: mig_processes [--bless | --fit] */
#include "tests/support/data_dir.h"
#include "tests/support/network.h"

#include <math.h>
#include <string.h>

enum { MODELS = 11, SLICES = 5, BATCHES = 9, PROCS = 5, FORMS = 3, SKIP = 77, POINTS_MAX = 2500 };

static const struct {
    const char *file, *network;
    bool fitted;
} models[MODELS] = {
    {"densenet121", "densenet121", true},
    {"resnet50", "resnet50", true},
    {"vgg16", "vgg16", true},
    {"bert", "bert_large", false},
    {"densenet169", "densenet169", false},
    {"densenet201", "densenet201", false},
    {"inceptionv3", "inception_v3", false},
    {"mobilenetv2", "mobilenet_v2", false},
    {"resnet101", "resnet101", false},
    {"resnet152", "resnet152", false},
    {"vgg19", "vgg19", false},
};

static const char *const slice_names[SLICES] = {"1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb",
                                                "7g.80gb"};
static const char *const form_names[FORMS] = {"queue", "gpulet", "igniter"};

typedef struct point {
    int model, procs;
    weft_contender alone;
    double measured; /* time of one execution over that with one process */
    double guess[FORMS];
} point;

static point points[POINTS_MAX];
static size_t n_point;

/* -- Points ----------------------------------------------------------------------------------- */

typedef struct profile {
    double per_s[SLICES][BATCHES][PROCS + 1]; /* of one process; 0: not measured */
} profile;

static bool read_profile(int model, profile *out)
{
    static const int gpcs_of[SLICES] = {1, 2, 3, 4, 7};
    char name[128], path[1024], line[256];
    snprintf(name, sizeof name, "parvagpu/profiles/%s.csv", models[model].file);
    if (!weft_data_path(name, path, sizeof path))
        return false;
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    memset(out, 0, sizeof *out);
    while (fgets(line, sizeof line, f)) {
        int gpcs, batch, procs, s = 0;
        double per_s;
        if (sscanf(line, "%d,%d,%d,%lf", &gpcs, &batch, &procs, &per_s) != 4 || procs < 1 ||
            procs > PROCS || batch < 1 || batch > 256)
            continue;
        while (s < SLICES - 1 && gpcs_of[s] != gpcs)
            s++;
        out->per_s[s][(int)round(log2(batch))][procs] = per_s;
    }
    fclose(f);
    return true;
}

static void add_points(int model, const weft_contender *alone, const double *per_s, weft_diag *diag)
{
    for (int p = 2; p <= PROCS; p++) {
        if (per_s[1] <= 0 || per_s[p] <= 0 || n_point == POINTS_MAX)
            continue;
        point *at = &points[n_point++];
        weft_contender same[PROCS];
        double factor[PROCS];
        *at = (point){.model = model, .procs = p, .alone = *alone, .measured = per_s[1] / per_s[p]};
        for (int i = 0; i < p; i++)
            same[i] = *alone;
        for (int form = 0; form < FORMS; form++) {
            if (weft_contention_factors((weft_contention)form, same, (uint32_t)p, false, diag,
                                        factor) != WEFT_ERR_OK)
                network_give_up(diag, models[model].network);
            at->guess[form] = factor[0];
        }
    }
}

static void find_points(int model, const profile *measured, weft_diag *diag)
{
    static const weft_estimate_options options = {.lowering = WEFT_LOWERING_FRAMEWORK};
    weft_module *m = network_load(models[model].network, "framework");
    weft_arena *arena = weft_arena_create(0);
    weft_graph *g = weft_graph_at(m, 0);
    int64_t symbol[8] = {0};
    for (int b = 0; b < BATCHES; b++) {
        weft_workload work;
        if (weft_estimate_symbols(g, 1u << b, diag, symbol) != WEFT_ERR_OK ||
            weft_workload_make(g, symbol, &options, arena, diag, &work) != WEFT_ERR_OK)
            network_give_up(diag, models[model].network);
        for (int s = 0; s < SLICES; s++) {
            weft_slice slice;
            weft_estimate e;
            if (weft_slice_make("a100-80", slice_names[s], diag, &slice) != WEFT_ERR_OK ||
                weft_estimate_workload(&work, &slice, &options, arena, diag, &e) != WEFT_ERR_OK)
                network_give_up(diag, models[model].network);
            weft_contender alone = weft_contention_demand(&e, &slice);
            add_points(model, &alone, measured->per_s[s][b], diag);
        }
    }
    weft_module_destroy(m);
    weft_arena_destroy(arena);
}

/* -- Errors ----------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct summary {
    int n;
    double median[FORMS], mean[FORMS]; /* |predicted / measured - 1| */
} summary;

/* Errors of one model, of the fitted models (-1), or of the held-out models (-2). */
static summary summarise(int model)
{
    static double error[POINTS_MAX];
    summary s = {0};
    for (int form = 0; form < FORMS; form++) {
        s.n = 0;
        for (size_t i = 0; i < n_point; i++) {
            const point *p = &points[i];
            if (model >= 0 ? p->model != model : models[p->model].fitted != (model == -1))
                continue;
            error[s.n] = 100 * fabs(p->guess[form] / p->measured - 1);
            s.mean[form] += error[s.n++];
        }
        qsort(error, (size_t)s.n, sizeof error[0], by_value);
        s.median[form] = error[s.n / 2];
        s.mean[form] /= s.n;
    }
    return s;
}

static const char head[] = "model,part,points,queue_median,queue_mean,gpulet_median,gpulet_mean,"
                           "igniter_median,igniter_mean";

static void print_row(FILE *out, int model)
{
    summary s = summarise(model);
    bool fitted = model == -1 || (model >= 0 && models[model].fitted);
    fprintf(out, "%s,%s,%d", model >= 0 ? models[model].file : "all",
            fitted ? "fitted" : "held out", s.n);
    for (int form = 0; form < FORMS; form++)
        fprintf(out, ",%.1f,%.1f", s.median[form], s.mean[form]);
    fputc('\n', out);
}

static void print_table(FILE *out)
{
    fprintf(
        out,
        "# Time of an execution next to 1 to 4 others of the same model against alone: "
        "errors in %% of the three\n# forms of estimator/models/contention.c on parvagpu/profiles. "
        "`regress_mig_processes --bless` rewrites it.\n%s\n",
        head);
    for (int model = -2; model < MODELS; model++)
        print_row(out, model);
}

/* -- The fit ---------------------------------------------------------------------------------- */

/* Columns of a row in which both published models are linear, and the value to explain. */
static int find_columns(int form, const point *p, double *column)
{
    const weft_contender *d = &p->alone;
    if (form == WEFT_CONTENTION_GPULET) {
        column[0] = d->cache * p->procs;
        column[1] = d->memory * p->procs;
        column[2] = 1;
        return 3;
    }
    column[0] = d->launches / d->time_us * (p->procs - 1);
    column[1] = d->busy * d->cache * (p->procs - 1);
    return 2;
}

/* Minimises the sum of relative errors, with constants of at least 0, by a pattern search. */
static void fit(int form)
{
    double constant[3] = {1, 1, 1}, column[3], best = INFINITY;
    int n = 0;
    for (double factor = 4; factor > 1.002;) {
        bool better = false;
        for (int c = -1; c < (n ? n : 1); c++)
            for (int way = 0; way < 2; way++) {
                double old = c < 0 ? 0 : constant[c], sum = 0;
                if (c >= 0)
                    constant[c] = way ? old / factor : old * factor;
                for (size_t i = 0; i < n_point; i++) {
                    double guess = form == WEFT_CONTENTION_GPULET ? 0 : 1;
                    n = find_columns(form, &points[i], column);
                    for (int k = 0; k < n; k++)
                        guess += constant[k] * column[k];
                    if (models[points[i].model].fitted)
                        sum += fabs(fmax(1, guess) / points[i].measured - 1);
                }
                if (sum < best) {
                    best = sum;
                    better = true;
                } else if (c >= 0) {
                    constant[c] = old;
                }
            }
        if (!better)
            factor = sqrt(factor);
    }
    printf("%s:", form_names[form]);
    for (int k = 0; k < n; k++)
        printf(" %.4g", constant[k]);
    putchar('\n');
}

/* Mean error on the fitted networks for other values of launch_part; `busy` contains the current
 * one (`now`). */
static void fit_launch(double now, double launch_us, weft_diag *diag)
{
    for (int tenth = 0; tenth <= 12; tenth++) {
        double sum = 0, latency_us, per_s;
        int n = 0;
        for (size_t i = 0; i < n_point; i++) {
            weft_contender c = points[i].alone;
            if (!models[points[i].model].fitted)
                continue;
            double more = (tenth / 10.0 - now) * c.launches * launch_us / c.time_us;
            c.busy = fmin(1, fmax(0, c.busy + more));
            if (weft_contention_procs(&c, (uint32_t)points[i].procs, diag, &latency_us, &per_s) !=
                WEFT_ERR_OK)
                exit(1);
            sum += fabs(latency_us / c.time_us / points[i].measured - 1);
            n++;
        }
        printf("queue: %.1f of a launch: mean error %.2f %%\n", tenth / 10.0, 100 * sum / n);
    }
}

/* -- Main ------------------------------------------------------------------------------------- */

static int check(void)
{
    static const double most = 8; /* %, of the queue on networks that are in no fit */
    summary s = summarise(-2);
    if (s.median[WEFT_CONTENTION_QUEUE] > most)
        return fprintf(stderr, "median error of the queue is above %g %%\n", most), 1;
    if (s.median[WEFT_CONTENTION_QUEUE] > s.median[WEFT_CONTENTION_GPULET] ||
        s.median[WEFT_CONTENTION_QUEUE] > s.median[WEFT_CONTENTION_IGNITER])
        return fprintf(stderr, "the queue is not the best of the forms\n"), 1;
    return 0;
}

static int bless(void)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/tests/regress/mig_processes.csv", WEFT_SOURCE_DIR);
    FILE *f = fopen(path, "w");
    if (!f)
        return 1;
    print_table(f);
    return fclose(f) != 0;
}

int main(int argc, char **argv)
{
    weft_diag *diag = weft_diag_create();
    profile measured;
    for (int m = 0; m < MODELS; m++) {
        if (!read_profile(m, &measured)) {
            printf("no measurements in the folder parvagpu (WEFT_DATA)\n");
            weft_diag_destroy(diag);
            return SKIP;
        }
        find_points(m, &measured, diag);
    }
    if (argc > 1 && strcmp(argv[1], "--fit") == 0) {
        fit(WEFT_CONTENTION_GPULET);
        fit(WEFT_CONTENTION_IGNITER);
        fit_launch(0.6, weft_gpu_find("a100-80")->launch_us, diag);
        weft_diag_destroy(diag);
        return 0;
    }
    weft_diag_destroy(diag);
    if (argc > 1 && strcmp(argv[1], "--bless") == 0)
        return bless();
    print_table(stdout);
    return check();
}
