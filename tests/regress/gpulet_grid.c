/* gpulet's setting: which combinations of rates two GPUs can carry, by policy, against exhaustive
 * search.
 *
 * The paper (ATC'22) puts nine models at 0, 100 or 200 requests/s and finds that gpulet loses 520
 * of the 19682 combinations (2.6 %) that exhaustive search can place. Its latency tables are not
 * published. Instead: five networks of make_networks.py, estimated as a framework runs them on a
 * V100 at batches 1 to 32 and shares of 20 40 50 60 80 100 % (gpulet_grid_profiles.csv). SLO: twice
 * the time of a batch of 32 on a whole GPU. Rates: 0, 1 or 2 units, the unit such that about half
 * of the 242 combinations fit on two GPUs. Memory does not bind, and shares do not slow each other
 * down (as in the paper's exhaustive search).
 *
 * Two ideals. `two_glets`: at most two shares a GPU, gpulet's world. `any_shares`: any shares with
 * a sum of at most 100 %. Both let models take turns on a share and split rates over shares, by the
 * rules of the checker (slo.c): a share that runs batches b_i in turn carries b_i / cycle of each
 * when cycle + e_i <= SLO_i; one model alone b / e when 2 e <= SLO. For each share size all choices
 * of models and batches are listed, cut off at the rates asked for, and those that another one
 * exceeds in every model are dropped; then a search goes through the choices share by share, for
 * every way to split two GPUs, and back where weighted sums show that the rest cannot be carried.
 * The search is exact: at its limit it fails with a message, and every plan that it finds goes
 * through the checker.
 *
 * As recorded: of 242 combinations 98 fit with two glets a GPU, of which gpulet loses 8.2 % (the
 * paper, with its models, 2.6 %); 123 fit with any shares, of which weft loses 4.9 %.
 *
 * Usage: gpulet_grid [--estimate | --bless]. Recomputes every fifth row of gpulet_grid.csv, and
 * fails if an ideal has changed (or a policy carries more than the ideal), or if a policy no longer
 * carries a recorded combination. Prints the losses over all rows. --estimate writes the
 * profiles anew, --bless the rows. */
#include "scheduler/scheduler.h"
#include "tests/support/network.h"

#include <math.h>
#include <string.h>

enum { MODELS = 5, SHARES = 6, BATCHES = 6, CASES = 243, LINE_MAX = 256, SAMPLE = 5 };
enum { CAPS_MAX = 60000, PARTS_MAX = 5, POLICIES = 2, POINTS = SHARES * BATCHES };

static const char *const network[MODELS] = {"densenet121", "inception_v3", "mobilenet_v2",
                                            "resnet50", "vgg16"};
static const int percent[SHARES] = {20, 40, 50, 60, 80, 100};
static const char *const policy_name[POLICIES] = {"gpulet", "weft"};
static const double unit_per_s = 480;
static const char *const csv_head = "rates,two_glets,any_shares,gpulet,weft\n";

static double time_us[MODELS][SHARES][BATCHES]; /* maximum over this batch and smaller ones */
static double slo_us[MODELS];
static weft_profile_point point[MODELS][POINTS];

/* -- Estimates -------------------------------------------------------------------------------- */

static FILE *open_csv(const char *name, const char *mode)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/tests/regress/%s", WEFT_SOURCE_DIR, name);
    return fopen(path, mode);
}

static void share_name(int s, char out[8])
{
    out[0] = '\0'; /* the whole device */
    if (s + 1 < SHARES)
        snprintf(out, 8, "%d%%", percent[s]);
}

static void estimate_network(int m, FILE *f)
{
    static const uint32_t batch[BATCHES] = {1, 2, 4, 8, 16, 32}, procs[] = {1};
    const weft_estimate_options options = {.lowering = WEFT_LOWERING_FRAMEWORK};
    weft_arena *arena = weft_arena_create(0);
    weft_diag *diag = weft_diag_create();
    weft_module *module = network_load(network[m], "framework");
    weft_slice slice[SHARES];
    weft_profile profile = {0};
    for (int s = 0; s < SHARES; s++) {
        char name[8];
        share_name(s, name);
        if (weft_slice_make("v100", name, diag, &slice[s]) != WEFT_ERR_OK)
            network_give_up(diag, name);
    }
    if (weft_estimate_profile(weft_graph_at(module, 0), slice, SHARES, batch, BATCHES, procs, 1,
                              &options, arena, diag, &profile) != WEFT_ERR_OK)
        network_give_up(diag, network[m]);
    for (int b = 0; b < BATCHES; b++) {
        fprintf(f, "%s,%u", network[m], batch[b]);
        for (int s = 0; s < SHARES; s++) {
            char name[8];
            share_name(s, name);
            for (size_t i = 0; i < profile.n; i++)
                if (profile.point[i].batch == batch[b] && !strcmp(profile.point[i].slice, name))
                    fprintf(f, ",%.1f", profile.point[i].cost.time_us);
        }
        fputc('\n', f);
    }
    weft_module_destroy(module);
    weft_diag_destroy(diag);
    weft_arena_destroy(arena);
}

static int write_estimates(void)
{
    FILE *f = open_csv("gpulet_grid_profiles.csv", "w");
    if (!f)
        return 1;
    fputs("network,batch,us_20,us_40,us_50,us_60,us_80,us_100\n", f);
    for (int m = 0; m < MODELS; m++)
        estimate_network(m, f);
    return fclose(f) == 0 ? 0 : 1;
}

static bool read_estimates(void)
{
    char line[LINE_MAX], want[64];
    FILE *f = open_csv("gpulet_grid_profiles.csv", "r");
    bool ok = f && fgets(line, sizeof line, f);
    for (int m = 0; m < MODELS && ok; m++)
        for (int b = 0; b < BATCHES && ok; b++) {
            int len = snprintf(want, sizeof want, "%s,%d", network[m], 1 << b);
            ok = fgets(line, sizeof line, f) && strncmp(line, want, (size_t)len) == 0;
            char *next = line + len;
            for (int s = 0; s < SHARES && ok; s++) {
                ok = *next == ',';
                time_us[m][s][b] = ok ? strtod(next + 1, &next) : 0;
                ok = ok && time_us[m][s][b] > 0;
            }
        }
    if (f)
        fclose(f);
    return ok;
}

static void fill_points(void)
{
    for (int m = 0; m < MODELS; m++) {
        slo_us[m] = 2 * time_us[m][SHARES - 1][BATCHES - 1];
        for (int s = 0; s < SHARES; s++)
            for (int b = 0; b < BATCHES; b++) {
                weft_profile_point *p = &point[m][s * BATCHES + b];
                *p = (weft_profile_point){
                    .device = "v100", .share = percent[s] / 100.0, .batch = 1u << b, .procs = 1};
                share_name(s, p->slice);
                snprintf(p->cost.source, sizeof p->cost.source, "analytic");
                p->cost.time_us = time_us[m][s][b];
                if (b > 0)
                    time_us[m][s][b] = fmax(time_us[m][s][b], time_us[m][s][b - 1]);
            }
    }
}

/* -- The setting ------------------------------------------------------------------------------ */

typedef struct setting {
    weft_demand demand[MODELS];
    weft_demands demands;
    weft_fleet_device device;
    weft_fleet fleet;
    weft_problem problem;
} setting;

static void make_setting(const double *rate, setting *t)
{
    t->device = (weft_fleet_device){
        .type = "v100", .count = 2, .mps = true, .mem_bytes = (uint64_t)1 << 40};
    t->fleet = (weft_fleet){.file = "fleet", .device = &t->device, .n_device = 1};
    t->demands = (weft_demands){t->demand, 0};
    t->problem = (weft_problem){.demands = &t->demands, .fleet = &t->fleet};
    for (int m = 0; m < MODELS; m++)
        if (rate[m] > 0)
            t->demand[t->demands.n++] = (weft_demand){.model = network[m],
                                                      .slo_us = slo_us[m],
                                                      .rate_per_s = rate[m],
                                                      .profile = {.point = point[m], .n = POINTS}};
}

/* -- Exhaustive search ------------------------------------------------------------------------ */

/* Fraction of each model's requested rate that a set of shares can serve: 0 to 1. */
typedef struct caps {
    float of[MODELS];
    float sum;
    int8_t batch[MODELS]; /* index, -1: not on the share */
} caps;

typedef struct caps_list {
    caps *at;
    size_t n;
} caps_list;

typedef struct search {
    double rate[MODELS];
    caps_list raw; /* scratch */
    caps_list share[SHARES];
} search;

static void out_of_room(void)
{
    fputs("gpulet_grid: more choices than expected\n", stderr);
    exit(1);
}

static void add_caps(caps_list *list, caps c)
{
    if (list->n == CAPS_MAX)
        out_of_room();
    c.sum = 0;
    for (int m = 0; m < MODELS; m++) {
        c.of[m] = fminf(c.of[m], 1);
        c.sum += c.of[m];
    }
    list->at[list->n++] = c;
}

static bool covers(const caps *a, const caps *b)
{
    for (int m = 0; m < MODELS; m++)
        if (a->of[m] < b->of[m])
            return false;
    return true;
}

static int compare_caps(const void *a, const void *b)
{
    float x = ((const caps *)a)->sum, y = ((const caps *)b)->sum;
    return (x < y) - (x > y);
}

/* Moves the entries that no other entry dominates from `raw` to their own list. */
static caps_list keep_best(caps_list *raw)
{
    caps_list best = {.at = malloc((raw->n + 1) * sizeof *best.at)};
    if (!best.at)
        out_of_room();
    qsort(raw->at, raw->n, sizeof *raw->at, compare_caps);
    for (size_t i = 0; i < raw->n; i++) {
        bool covered = false;
        for (size_t k = 0; k < best.n && !covered; k++)
            covered = covers(&best.at[k], &raw->at[i]);
        if (!covered)
            best.at[best.n++] = raw->at[i];
    }
    raw->n = 0;
    return best;
}

/* Extends the choice by models m, m + 1 .. (batch index, -1: not on the share). */
static void list_choices(search *s, int share, int m, int *batch, double cycle_us)
{
    if (m < MODELS) {
        batch[m] = -1;
        list_choices(s, share, m + 1, batch, cycle_us);
        for (int b = 0; b < BATCHES && s->rate[m] > 0; b++) {
            batch[m] = b;
            if (cycle_us + 2 * time_us[m][share][b] <= slo_us[m])
                list_choices(s, share, m + 1, batch, cycle_us + time_us[m][share][b]);
        }
        batch[m] = -1;
        return;
    }
    caps c = {0};
    for (int i = 0; i < MODELS; i++) {
        c.batch[i] = (int8_t)batch[i];
        if (batch[i] < 0)
            continue;
        if (cycle_us + time_us[i][share][batch[i]] > slo_us[i])
            return;
        c.of[i] = (float)((1 << batch[i]) * 1e6 / cycle_us / s->rate[i]);
    }
    add_caps(&s->raw, c);
}

/* -- Exhaustive search: assignment ----------------------------------------------------------- */

/* The shares of both GPUs, and weights that prove infeasibility: no choice on a share is worth
 * more than worth[w][share], so shares whose worth sums to less than the weighted missing rates
 * cannot serve them. */
enum { WEIGHTS = 24, GLETS_MAX = 2 * PARTS_MAX, NODES_MAX = 20000000 };

static const float tolerance = 1e-7F, rounding = 1e-5F; /* of what is carried, of sums */

typedef struct assignment {
    const search *s;
    int share[GLETS_MAX], gpu[GLETS_MAX];
    int n, n_used; /* all shares; shares that serve some model */
    float weight[WEIGHTS][MODELS], worth[WEIGHTS][SHARES], rest_worth[WEIGHTS][GLETS_MAX + 1];
    size_t chosen[GLETS_MAX];
    uint64_t nodes;
} assignment;

static float value_of(const float *weight, const float *of)
{
    float sum = 0;
    for (int m = 0; m < MODELS; m++)
        sum += weight[m] * of[m];
    return sum;
}

/* Computes weights by multiplicative updates towards the largest missing rate; false: the weights
 * prove that the shares cannot serve the rates. */
static bool choose_weights(assignment *a)
{
    float w[MODELS];
    for (int m = 0; m < MODELS; m++)
        w[m] = a->s->rate[m] > 0 ? 1 : 0;
    for (int k = 0; k < WEIGHTS * 4; k++) {
        float need = value_of(w, (const float[MODELS]){1, 1, 1, 1, 1}), x[MODELS] = {0};
        float *worth = a->worth[k % WEIGHTS];
        memcpy(a->weight[k % WEIGHTS], w, sizeof w);
        for (int i = 0; i < SHARES; i++)
            worth[i] = -1;
        a->rest_worth[k % WEIGHTS][a->n] = 0;
        for (int g = a->n - 1; g >= 0; g--) {
            const caps_list *list = &a->s->share[a->share[g]];
            size_t best = 0;
            float most = -1;
            for (size_t c = 0; c < list->n; c++) {
                float v = value_of(w, list->at[c].of);
                if (v > most) {
                    most = v;
                    best = c;
                }
            }
            worth[a->share[g]] = most;
            a->rest_worth[k % WEIGHTS][g] = a->rest_worth[k % WEIGHTS][g + 1] + most;
            for (int m = 0; m < MODELS; m++)
                x[m] += list->at[best].of[m];
        }
        if (a->rest_worth[k % WEIGHTS][0] < need * (1 - rounding))
            return false;
        float sum = 0;
        for (int m = 0; m < MODELS; m++) {
            w[m] *= expf(0.3F / (1 + 0.1F * (float)k) * fmaxf(-2, fminf(2, 1 - x[m])));
            sum += w[m];
        }
        for (int m = 0; m < MODELS; m++)
            w[m] *= MODELS / sum;
    }
    return true;
}

/* Searches choices for shares g, g + 1 .. that serve the missing rates. */
static bool assign_from(assignment *a, int g, const float *missing)
{
    float most = 0;
    for (int m = 0; m < MODELS; m++)
        most = fmaxf(most, missing[m]);
    a->n_used = g;
    if (most <= tolerance)
        return true;
    if (g == a->n)
        return false;
    if (++a->nodes > NODES_MAX)
        out_of_room();
    for (int k = 0; k < WEIGHTS; k++)
        if (a->rest_worth[k][g] < value_of(a->weight[k], missing) - rounding)
            return false;
    const caps_list *list = &a->s->share[a->share[g]];
    /* Equal shares are filled in one order only, to break symmetry. */
    size_t first = g > 0 && a->share[g] == a->share[g - 1] ? a->chosen[g - 1] : 0;
    for (size_t c = first; c < list->n; c++) {
        float left[MODELS];
        for (int m = 0; m < MODELS; m++)
            left[m] = fmaxf(0, missing[m] - list->at[c].of[m]);
        a->chosen[g] = c;
        if (assign_from(a, g + 1, left))
            return true;
    }
    return false;
}

/* The shares of size `size` of a GPU. */
static void add_shares(assignment *a, int gpu, const int *split, int size)
{
    for (int k = 0; k < PARTS_MAX && split[k] >= 0; k++)
        if (split[k] == size) {
            a->gpu[a->n] = gpu;
            a->share[a->n++] = size;
        }
}

static bool can_assign(const search *s, const int *p, const int *q, assignment *a)
{
    float missing[MODELS];
    a->s = s;
    a->n = 0;
    a->nodes = 0;
    for (int size = SHARES - 1; size >= 0; size--) {
        add_shares(a, 0, p, size);
        add_shares(a, 1, q, size);
    }
    for (int m = 0; m < MODELS; m++)
        missing[m] = s->rate[m] > 0 ? 1 : 0;
    return choose_weights(a) && assign_from(a, 0, missing);
}

/* The result of the search as a plan, which the checker must accept. */
static void check_plan(const assignment *a)
{
    static setting t;
    static char slice[SHARES][8];
    weft_placement at[GLETS_MAX * MODELS];
    weft_plan plan = {.policy = "ideal", .at = at};
    double missing[MODELS];
    uint32_t n_slice[2] = {0};
    weft_arena *arena = weft_arena_create(0);
    weft_diag *diag = weft_diag_create();
    make_setting(a->s->rate, &t);
    memcpy(missing, a->s->rate, sizeof missing);
    for (int g = 0; g < a->n_used; g++) {
        const caps *c = &a->s->share[a->share[g]].at[a->chosen[g]];
        bool any = false;
        share_name(a->share[g], slice[a->share[g]]);
        for (int m = 0; m < MODELS; m++) {
            double rate = fmin(missing[m], c->of[m] * a->s->rate[m] * (1 + 2 * tolerance));
            if (c->batch[m] < 0 || rate <= 0)
                continue;
            any = true;
            missing[m] -= rate;
            at[plan.n++] = (weft_placement){.model = network[m],
                                            .device = (uint32_t)a->gpu[g],
                                            .type = "v100",
                                            .slice = slice[a->share[g]],
                                            .mig_start = -1,
                                            .slice_id = n_slice[a->gpu[g]],
                                            .batch = 1u << c->batch[m],
                                            .procs = 1,
                                            .rate_per_s = rate};
        }
        n_slice[a->gpu[g]] += any;
    }
    /* Only the second GPU used: equal to only the first. */
    for (size_t i = 0; i < plan.n && n_slice[0] == 0; i++)
        at[i].device = 0;
    weft_plan_derive(&plan, &t.problem, arena);
    if (weft_plan_check(&plan, &t.problem, diag) != WEFT_ERR_OK)
        network_give_up(diag, "the checker refuses what the search found");
    weft_diag_destroy(diag);
    weft_arena_destroy(arena);
}

/* Can two GPUs, each split in one of these ways (indices of shares, -1: none), serve all rates? */
static bool can_carry(const search *s, const int (*split)[PARTS_MAX], size_t n_split)
{
    static assignment a;
    for (size_t i = 0; i < n_split; i++)
        for (size_t j = i; j < n_split; j++)
            if (can_assign(s, split[i], split[j], &a)) {
                check_plan(&a);
                return true;
            }
    return false;
}

/* Maximal splits; an unused share is allowed. */
static const int two_glets[][PARTS_MAX] = {{5, -1}, {0, 4, -1}, {1, 3, -1}, {2, 2, -1}};
static const int any_shares[][PARTS_MAX] = {
    {5, -1},    {4, 0, -1},    {3, 1, -1},    {3, 0, 0, -1},    {2, 2, -1},
    {2, 1, -1}, {2, 0, 0, -1}, {1, 1, 0, -1}, {1, 0, 0, 0, -1}, {0, 0, 0, 0, 0}};

/* `carried`: gpulet or weft found a plan, which proves feasibility. */
static void find_ideals(search *s, const bool *carried, bool out[2])
{
    for (int i = 0; i < SHARES; i++) {
        int batch[MODELS];
        list_choices(s, i, 0, batch, 0);
        s->share[i] = keep_best(&s->raw);
    }
    out[0] = carried[0] || can_carry(s, two_glets, sizeof two_glets / sizeof two_glets[0]);
    out[1] =
        out[0] || carried[1] || can_carry(s, any_shares, sizeof any_shares / sizeof any_shares[0]);
    for (int i = 0; i < SHARES; i++)
        free(s->share[i].at);
}

/* -- Policies --------------------------------------------------------------------------------- */

static bool policy_carries(const char *name, const double *rate)
{
    static setting t;
    weft_arena *arena = weft_arena_create(0);
    weft_diag *diag = weft_diag_create();
    weft_plan plan;
    make_setting(rate, &t);
    weft_err err = weft_plan_make(weft_policy_find(name), NULL, &t.problem, arena, diag, &plan);
    if (err != WEFT_ERR_OK && err != WEFT_ERR_INFEASIBLE)
        network_give_up(diag, name);
    weft_diag_destroy(diag);
    weft_arena_destroy(arena);
    return err == WEFT_ERR_OK;
}

/* The rates of case i, digits to the base 3. */
static void set_rates(int i, double *rate, char digits[MODELS + 1])
{
    for (int m = MODELS - 1; m >= 0; m--, i /= 3) {
        rate[m] = unit_per_s * (i % 3);
        digits[m] = (char)('0' + i % 3);
    }
    digits[MODELS] = 0;
}

typedef struct outcome {
    bool ideal[2], policy[POLICIES];
} outcome;

static void run_case(search *s, outcome *out)
{
    for (int p = 0; p < POLICIES; p++)
        out->policy[p] = policy_carries(policy_name[p], s->rate);
    find_ideals(s, out->policy, out->ideal);
}

/* -- Rows ------------------------------------------------------------------------------------- */

static bool read_row(const char *line, const char *digits, outcome *out)
{
    int v[4];
    char want[LINE_MAX];
    if (strncmp(line, digits, MODELS) != 0 ||
        sscanf(line + MODELS, ",%d,%d,%d,%d", &v[0], &v[1], &v[2], &v[3]) != 4)
        return false;
    *out = (outcome){{v[0] != 0, v[1] != 0}, {v[2] != 0, v[3] != 0}};
    snprintf(want, sizeof want, "%s,%d,%d,%d,%d\n", digits, v[0], v[1], v[2], v[3]);
    return strcmp(line, want) == 0;
}

static int compare_outcomes(const char *digits, const outcome *was, const outcome *is)
{
    int failed = 0;
    if (was->ideal[0] != is->ideal[0] || was->ideal[1] != is->ideal[1])
        failed = printf("FAILED: %s: the ideals have changed\n", digits);
    for (int p = 0; p < POLICIES; p++) {
        if (was->policy[p] && !is->policy[p])
            failed = printf("FAILED: %s: %s carried it before\n", digits, policy_name[p]);
    }
    return failed > 0;
}

static void report(const int ideal[2], const int carried[POLICIES])
{
    printf("of %d combinations %d fit with two glets a GPU, %d with any shares\n", CASES - 1,
           ideal[0], ideal[1]);
    for (int p = 0; p < POLICIES; p++)
        printf("%-6s carries %d: %.1f %% fewer than two glets, %.1f %% than any shares\n",
               policy_name[p], carried[p], 100.0 * (ideal[0] - carried[p]) / ideal[0],
               100.0 * (ideal[1] - carried[p]) / ideal[1]);
}

int main(int argc, char **argv)
{
    static search s;
    bool bless = argc > 1 && strcmp(argv[1], "--bless") == 0;
    int failed = 0, ideal[2] = {0}, carried[POLICIES] = {0};
    char line[LINE_MAX], digits[MODELS + 1];
    if (argc > 1 && strcmp(argv[1], "--estimate") == 0)
        return write_estimates();
    if (!read_estimates())
        return fputs("gpulet_grid_profiles.csv: not as written by --estimate\n", stderr), 1;
    fill_points();
    s.raw.at = malloc(CAPS_MAX * sizeof *s.raw.at);
    FILE *f = open_csv("gpulet_grid.csv", bless ? "w" : "r");
    if (!f || !s.raw.at)
        return perror("gpulet_grid.csv"), 1;
    if (bless)
        fputs(csv_head, f);
    else if (!fgets(line, sizeof line, f) || strcmp(line, csv_head) != 0)
        failed = puts("FAILED: gpulet_grid.csv has another head") > 0;
    for (int i = 1; i < CASES; i++) {
        outcome was = {0}, is = {0};
        set_rates(i, s.rate, digits);
        if (!bless && (!fgets(line, sizeof line, f) || !read_row(line, digits, &was)))
            return printf("FAILED: gpulet_grid.csv has no row %s\n", digits), 1;
        if (bless || i % SAMPLE == 0)
            run_case(&s, &is);
        else
            is = was;
        failed += compare_outcomes(digits, bless ? &is : &was, &is);
        if (bless)
            fprintf(f, "%s,%d,%d,%d,%d\n", digits, is.ideal[0], is.ideal[1], is.policy[0],
                    is.policy[1]);
        for (int k = 0; k < 2; k++)
            ideal[k] += is.ideal[k];
        for (int k = 0; k < POLICIES; k++)
            carried[k] += is.policy[k];
    }
    report(ideal, carried);
    fclose(f);
    free(s.raw.at);
    return failed > 0;
}
