/* Compares merged with unmerged bundles of the same models, and with the predicted gain.
 *
 *   bench_merge [-t THREADS] [-s SECONDS] [-m MODELS_DIR] [-n SETS] [-S] SUITE...
 *
 * Sets are those of merge_sets.h. Suites, each a table of sets, sizes and ways to merge:
 *
 *   shapes      gain by K and rows; made-up models
 *   issue       sets with a required gain; exported models if MODELS_DIR has them
 *   random      SETS made-up sets by seed: family, size, similarity, K and rows; and, as suite
 *               `groups`, each kind of merged GEMMs in them, measured alone
 *   strategies  each strategy alone, and the strategies that the estimator chooses
 *   ablation    each strategy and each step of matching switched off
 *   threshold   strategies for parts of weights by similarity (part of the features that are
 *               common) and number of rows: what a fixed threshold would have chosen, beside the
 *               choice of the estimator
 *   compile     time of the pass and its fraction of the compile time
 *   similar     time to find the common block of two 4096 x 4096 weights, on standard error
 *
 * Blocks of a few milliseconds of merged and unmerged runs alternate in one process. Both use one
 * bundle, so that both share its weights. The gain is the median, with quartiles, of the ratio of
 * consecutive blocks. It is 1 if the compiler made no joint program or the sizes exceed the joint
 * program's limit. -S: predictions only, nothing is timed. Prints a CSV. */
#include "tests/bench/merge_run.h"

#include "passes/similarity/similar.h"
#include "tests/support/rand.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct options {
    merge_options run;
    const char *folder;
    int n_set;
    const char *suite;
} options;

/* -- Rows of the CSV -------------------------------------------------------------------------- */

static void print_spec(const char *suite, const options *o, const merge_spec *spec, const char *way)
{
    printf("%s,%s,%s,%d,%lld,%lld,%u,%s,", suite, spec->model, spec->rule, spec->k,
           (long long)spec->rows, (long long)spec->other, o->run.threads, way);
}

static double get_load(void)
{
    double load = 0;
    (void)getloadavg(&load, 1);
    return load;
}

static void print_result(const options *o, const merge_spec *spec, const char *way,
                         const merge_result *r)
{
    print_spec(o->suite, o, spec, way);
    printf("%u,%u,%u,", r->parts, r->joined, r->gemms);
    if (r->n_pair > 0)
        printf("%.1f,%.1f,%.3f,%.3f,%.3f,", r->apart_us, r->joint_us, r->gain, r->low, r->high);
    else
        printf(",,%s,,,", o->run.predict_only ? "" : "1");
    printf("%.3f,%.1f,%.1e,%.1f,%.1f,%zu,%.2f\n", r->predicted, r->predicted_apart_us,
           r->difference, r->merge_ms, r->compile_ms, r->n_pair, get_load());
}

/* Groups of merged GEMMs; `parts`: models that one merged GEMM serves, `joined`: GEMMs of the
 * group. */
static void print_groups(const options *o, const merge_spec *spec, const merge_result *r)
{
    for (uint32_t i = 0; i < r->n_group; i++) {
        const merge_group *g = &r->group[i];
        if (!(g->joint_us > 0) || !(g->predicted_joint_us > 0))
            continue;
        print_spec("groups", o, spec, g->row->strategy);
        printf("%u,%u,%u,%.2f,%.2f,%.3f,,,%.3f,%.2f,,,,%zu,%.2f\n", g->row->n_model, g->n_row,
               r->gemms, g->apart_us, g->joint_us, g->apart_us / g->joint_us,
               g->predicted_apart_us / g->predicted_joint_us, g->predicted_apart_us, r->n_pair,
               get_load());
    }
}

static void bench_set(const options *o, const merge_spec *spec, const merge_way *way)
{
    weft_arena *arena = weft_arena_create(0);
    merge_result r;
    merge_run(&o->run, spec, way, arena, &r);
    print_result(o, spec, way->name, &r);
    print_groups(o, spec, &r);
    fflush(stdout);
    weft_arena_destroy(arena);
}

/* -- Suites ----------------------------------------------------------------------------------- */

static const merge_way automatic = {.name = "auto", .mode = WEFT_MERGE_AUTO};

static void suite_shapes(const options *o)
{
    static const char *const models[] = {"mlp:768x8", "ffn:256x4", "ffn:768x3", "cnn:64x4"};
    static const int64_t rows[] = {1, 2, 8, 32, 128};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        for (int k = 2; k <= 8; k *= 2)
            for (size_t b = 0; b < sizeof rows / sizeof rows[0]; b++) {
                merge_spec spec = {.rule = "head", .k = k, .rows = rows[b], .other = 1};
                snprintf(spec.model, sizeof spec.model, "%s", models[i]);
                if (strncmp(models[i], "cnn", 3) == 0 && rows[b] > 8)
                    continue;
                bench_set(o, &spec, &automatic);
            }
}

/* All strategies, including the baselines. */
static void bench_strategies(const options *o, const merge_spec *spec)
{
    bench_set(o, spec, &automatic);
    bench_set(o, spec, &(merge_way){.name = "exact", .mode = WEFT_MERGE_EXACT});
    for (size_t i = 0; weft_merge_strategy_at(i); i++) {
        merge_way way = {.mode = WEFT_MERGE_STRATEGY, .strategy = weft_merge_strategy_at(i)};
        way.name = weft_merge_strategy_name(way.strategy);
        if (strcmp(way.name, "none") != 0)
            bench_set(o, spec, &way);
    }
}

static bool has_model(const options *o, const char *name, merge_spec *spec)
{
    int n =
        snprintf(spec->model, sizeof spec->model, "%s/%s.onnx", o->folder ? o->folder : "", name);
    return o->folder && n > 0 && (size_t)n < sizeof spec->model && access(spec->model, R_OK) == 0;
}

static void suite_issue(const options *o)
{
    static const struct {
        const char *model, *rule;
        int k;
        int64_t rows, other;
    } sets[] = {
        {"bert_base", "last:0.09", 2, 1, 1},     {"sib_bert_base", "head", 8, 1, 1},
        {"sib_bert_base", "head", 8, 1, 8},      {"sib_resnet18_base", "head", 8, 1, 1},
        {"sib_bert_base", "lora:8", 2, 1, 1},    {"sib_bert_base", "none", 2, 1, 1},
        {"sib_bert_base", "moved", 2, 1, 1},     {"sib_bert_base", "last:0.3", 4, 1, 1},
        {"sib_bert_base", "rows:0.25", 2, 1, 1}, {"sib_resnet18_base", "rows:0.25", 2, 1, 1},
        {"sib_resnet18_base", "lora:8", 2, 1, 1}};
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        merge_spec spec = {.k = sets[i].k, .rows = sets[i].rows, .other = sets[i].other};
        snprintf(spec.rule, sizeof spec.rule, "%s", sets[i].rule);
        if (has_model(o, sets[i].model, &spec))
            bench_strategies(o, &spec);
        else
            fprintf(stderr, "%s: not in the folder of models\n", sets[i].model);
    }
}

static void suite_random(const options *o)
{
    uint64_t seed = 4;
    options whole = *o;
    whole.run.groups = true;
    for (int i = 0; i < o->n_set; i++) {
        merge_spec spec;
        merge_spec_draw(&seed, &spec);
        bench_set(&whole, &spec, &automatic);
    }
}

static void suite_strategies(const options *o)
{
    static const char *const rules[] = {"head",     "last:0.5", "lora:8", "sparse:0.02",
                                        "rows:0.5", "moved",    "none"};
    static const int64_t rows[] = {1, 8, 64};
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        for (size_t b = 0; b < sizeof rows / sizeof rows[0]; b++) {
            merge_spec spec = {.model = "ffn:512x4", .k = 2, .rows = rows[b], .other = 1};
            snprintf(spec.rule, sizeof spec.rule, "%s", rules[i]);
            bench_strategies(o, &spec);
        }
}

/* Switches off each strategy and each step of matching in turn, on a set to which all of them
 * apply. */
static void suite_ablation(const options *o)
{
    static const merge_spec sets[] = {
        {"ffn:512x4", "head", 4, 1, 1},      {"ffn:512x4", "last:0.5", 2, 1, 1},
        {"ffn:512x4", "lora:8", 4, 1, 1},    {"ffn:512x4", "inputs:0.1", 2, 1, 1},
        {"ffn:512x4", "rows:0.25", 4, 1, 1}, {"mlp:256x8", "moved", 4, 1, 1},
        {"turned:512x4", "head", 2, 1, 1},   {"turned:512x4", "lora:8", 4, 1, 1},
        {"mlp:512x8", "deeper:2", 2, 1, 1}};
    static const merge_way steps[] = {
        {"no anchors", WEFT_MERGE_AUTO, NULL, WEFT_MATCH_ANCHORS, NULL},
        {"no crossed", WEFT_MERGE_AUTO, NULL, WEFT_MATCH_CROSSED, NULL},
        {"no between", WEFT_MERGE_AUTO, NULL, WEFT_MATCH_BETWEEN, NULL},
        {"no rest", WEFT_MERGE_AUTO, NULL, WEFT_MATCH_REST, NULL},
        {"anchors alone", WEFT_MERGE_AUTO, NULL,
         WEFT_MATCH_CROSSED | WEFT_MATCH_BETWEEN | WEFT_MATCH_REST, NULL}};
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        bench_set(o, &sets[i], &automatic);
        for (size_t k = 0; k < sizeof steps / sizeof steps[0]; k++)
            bench_set(o, &sets[i], &steps[k]);
        for (size_t k = 0; weft_merge_strategy_at(k); k++) {
            char name[64];
            merge_way way = automatic;
            way.without = weft_merge_strategy_at(k);
            snprintf(name, sizeof name, "no %s", weft_merge_strategy_name(way.without));
            way.name = name;
            if (strcmp(name, "no none") != 0)
                bench_set(o, &sets[i], &way);
        }
    }
}

/* USHER merges above a fixed threshold of similarity, whatever the number of rows; summarise_merge
 * searches for the best threshold. */
static void suite_threshold(const options *o)
{
    static const int64_t rows[] = {1, 8, 64, 256};
    static const char *const names[] = {"rectangle_literal", "rectangle_compact", "union_stack",
                                        "classes"};
    for (int percent = 0; percent <= 100; percent += 20)
        for (size_t b = 0; b < sizeof rows / sizeof rows[0]; b++) {
            merge_spec spec = {.model = "ffn:512x4", .k = 2, .rows = rows[b], .other = 1};
            snprintf(spec.rule, sizeof spec.rule, "rows:%.1f", 1 - percent / 100.0);
            bench_set(o, &spec, &automatic);
            for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
                merge_way way = {.name = names[i], .mode = WEFT_MERGE_STRATEGY};
                way.strategy = weft_merge_strategy_find(names[i]);
                if (way.strategy)
                    bench_set(o, &spec, &way);
            }
        }
}

static void suite_compile(const options *o)
{
    enum { MOVED_MAX = 4 }; /* all pairs of weights are compared */
    static const int counts[] = {2, 4, 8, 20};
    options quick = *o;
    quick.run.predict_only = true;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        merge_spec spec = {
            .model = "ffn:768x12", .rule = "last:0.1", .k = counts[i], .rows = 1, .other = 1};
        bench_set(&quick, &spec, &automatic);
        snprintf(spec.rule, sizeof spec.rule, "moved");
        if (counts[i] <= MOVED_MAX)
            bench_set(&quick, &spec, &automatic);
        if (has_model(o, counts[i] == 2 ? "bert_base" : "sib_bert_base", &spec)) {
            snprintf(spec.rule, sizeof spec.rule, "last:0.1");
            bench_set(&quick, &spec, &automatic);
        }
    }
}

/* Two random weights with one common block at different offsets. */
static void suite_similar(const options *o)
{
    enum { SIDE = 4096, ROUNDS = 5 };
    static const struct {
        uint32_t row_a, col_a, row_b, col_b, rows, cols;
    } blocks[] = {{0, 0, 0, 0, SIDE, SIDE},
                  {100, 200, 1700, 2300, 1024, 1365},
                  {4000, 7, 3, 4001, 40, 60},
                  {0, 0, 0, 0, 0, 0}};
    weft_arena *arena = weft_arena_create(0);
    float *a = weft_arena_array(arena, (size_t)SIDE * SIDE, sizeof *a);
    float *b = weft_arena_array(arena, (size_t)SIDE * SIDE, sizeof *b);
    uint64_t seed = 1;
    for (size_t i = 0; i < (size_t)SIDE * SIDE; i++)
        a[i] = rand_signed(&seed);
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        double best = INFINITY;
        weft_rect found = {0};
        for (size_t k = 0; k < (size_t)SIDE * SIDE; k++)
            b[k] = rand_signed(&seed);
        for (uint32_t r = 0; r < blocks[i].rows; r++)
            memcpy(b + (size_t)(blocks[i].row_b + r) * SIDE + blocks[i].col_b,
                   a + (size_t)(blocks[i].row_a + r) * SIDE + blocks[i].col_a,
                   blocks[i].cols * sizeof *a);
        for (int round = 0; round < ROUNDS; round++) {
            weft_arena_mark mark = weft_arena_get_mark(arena);
            weft_matrix x = {(const uint8_t *)a, SIDE, SIDE, sizeof *a};
            weft_matrix y = {(const uint8_t *)b, SIDE, SIDE, sizeof *b};
            double begin = merge_now_us(&o->run);
            found = weft_similar__largest_rect(&x, &y, arena);
            best = fmin(best, merge_now_us(&o->run) - begin);
            weft_arena_reset(arena, mark);
        }
        fprintf(stderr, "block of %u x %u: found %u x %u in %.0f ms\n", blocks[i].rows,
                blocks[i].cols, found.rows, found.cols, best * 1e-3);
    }
    weft_arena_destroy(arena);
}

static const struct {
    const char *name;
    void (*run)(const options *o);
} suites[] = {{"shapes", suite_shapes},     {"issue", suite_issue},
              {"random", suite_random},     {"strategies", suite_strategies},
              {"ablation", suite_ablation}, {"threshold", suite_threshold},
              {"compile", suite_compile},   {"similar", suite_similar}};

static int usage(void)
{
    fputs("usage: bench_merge [-t THREADS] [-s SECONDS] [-m MODELS_DIR] [-n SETS] [-S] "
          "shapes|issue|random|strategies|ablation|threshold|compile|similar...\n",
          stderr);
    return 2;
}

int main(int argc, char **argv)
{
    options o = {.run = {.threads = 2, .seconds = 0.5}, .n_set = 50};
    int opt;
    while ((opt = getopt(argc, argv, "t:s:m:n:S")) != -1) {
        switch (opt) {
        case 't':
            o.run.threads = (uint32_t)atoi(optarg);
            break;
        case 's':
            o.run.seconds = atof(optarg);
            break;
        case 'm':
            o.folder = optarg;
            break;
        case 'n':
            o.n_set = atoi(optarg);
            break;
        case 'S':
            o.run.predict_only = true;
            break;
        default:
            return usage();
        }
    }
    if (optind == argc || o.run.threads < 1)
        return usage();
    puts("suite,model,rule,k,rows,other,threads,merge,parts,joined,gemms,apart_us,joint_us,gain,"
         "gain_low,gain_high,predicted,predicted_apart_us,difference,merge_ms,compile_ms,pairs,"
         "load");
    for (; optind < argc; optind++) {
        size_t i = 0;
        while (i < sizeof suites / sizeof suites[0] && strcmp(suites[i].name, argv[optind]) != 0)
            i++;
        if (i == sizeof suites / sizeof suites[0])
            return usage();
        o.suite = suites[i].name;
        suites[i].run(&o);
    }
    return 0;
}
