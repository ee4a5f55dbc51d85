/* Merged against unmerged bundles of the same models, and against what was predicted.
 *
 *   bench_merge [-t THREADS] [-s SECONDS] [-m MODELS_DIR] [-n SETS] [-S] SUITE...
 *
 * A set is one model K times, with the weights of some of its products changed by a rule, as
 * fine-tuning leaves siblings (`head`, `last:F`, `lora:R`, `sparse:F`, `rows:F`, `moved`, `none`).
 * Suites, each a table of sets, sizes and ways to merge:
 *
 *   shapes     gain by K and rows; made-up models
 *   issue      sets with a stated least gain; exported models where MODELS_DIR has them
 *   random     SETS made-up sets by seed: family, size, similarity, K and rows
 *   ablation   every strategy by itself beside the choice of the estimator
 *   threshold  every strategy at every similarity (part of the features that are common) and number
 *              of rows: what a fixed threshold would have chosen, beside the choice of the
 * estimator compile    time of the pass, share of the whole similar    time of finding what two
 * 4096 x 4096 weights have in common, on standard error
 *
 * Merged and unmerged run in turn, blocks of some milliseconds, in one process, from one bundle
 * that shares its weights either way; figures are medians over pairs of blocks of the ratio, with
 * quartiles. Where the compiler made no joint program, or the sizes are beyond the limit that it
 * has set for one, the ratio is 1 by construction. -S predicts only: nothing is timed. Prints a
 * CSV. */
#include "tests/bench/merge_sets.h"

#include "codegen/codegen.h"
#include "estimator/estimator.h"
#include "passes/similar.h"
#include "runtime/runtime.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PAIRS_MAX = 1000, PAIRS_MIN = 11, BLOCK_US = 4000, SYMBOLS_MAX = 64 };

typedef struct options {
    uint32_t threads;
    double seconds;
    const char *folder;
    int n_set;
    bool predict_only;
    const char *suite;
} options;

/* How a set is merged; strategy NULL: as `mode` says. */
typedef struct manner {
    weft_merge mode;
    const char *strategy;
} manner;

typedef struct result {
    double apart_us, joint_us, gain, low, high, difference;
    double predicted, predicted_apart_us, merge_ms, compile_ms;
    uint32_t parts, joined, heavy; /* models in the joint program; products joined, of how many */
    size_t n_pair;
} result;

typedef struct subject {
    merge_set set;
    weft_bundle bundle;
    weft_merge_log log;
    weft_engine *engine;
    weft_session *joint, *model[MERGE_SET_MAX];
    weft_tensor *in, *out, *apart;
    uint32_t n_in, n_out;
    weft_arena *arena;
    weft_diag *diag;
    double merge_ms, compile_ms;
} subject;

/* With one thread the time that the process has run: other programs take away the rest. */
static clockid_t clock_id = CLOCK_MONOTONIC;

static double now_us(void)
{
    struct timespec t;
    clock_gettime(clock_id, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void give_up(const weft_diag *diag, const char *what)
{
    char text[1024] = "no message";
    if (weft_diag_count(diag) > 0)
        weft_diag_format(weft_diag_at(diag, 0), text, sizeof text);
    fprintf(stderr, "%s: %s\n", what, text);
    exit(1);
}

/* -- Compiling -------------------------------------------------------------------------------- */

static void note_time(void *user, const weft_pass *pass, uint32_t number, bool after, bool changed,
                      double time_ms, weft_module *m)
{
    subject *s = user;
    (void)number;
    (void)changed;
    (void)time_ms;
    (void)m;
    if (strcmp(weft_pass_name(pass), "merge-models") == 0)
        s->merge_ms = now_us() * 1e-3 - (after ? s->merge_ms : 0);
}

static void compile(subject *s, const merge_spec *spec, const manner *how)
{
    size_t n = 0;
    const weft_pass *const *pass = weft_pipeline("cpu", &n);
    merge_set_make(spec, s->arena, s->diag, &s->set);
    if (!s->set.module)
        give_up(s->diag, spec->model);
    double begin = now_us();
    s->log = (weft_merge_log){.arena = s->arena};
    weft_run_options run = {
        .pass = {.merge = how->mode, .merge_log = &s->log}, .hook = note_time, .user = s};
    if (how->strategy)
        run.pass.strategy = weft_merge_strategy_find(how->strategy);
    if (weft_passes_run(s->set.module, pass, n, &run, s->diag) != WEFT_ERR_OK)
        give_up(s->diag, spec->model);
    s->compile_ms = (now_us() - begin) * 1e-3;
}

/* -- Predictions ------------------------------------------------------------------------------ */

/* By the pool's symbols: the batch is `rows`, others `other`. */
static void set_symbols(const subject *s, const merge_spec *spec, int64_t *value)
{
    weft_dimpool *pool = weft_module_dims(s->set.module);
    for (uint32_t i = 0; i < SYMBOLS_MAX; i++)
        value[i] = 1;
    for (uint32_t i = 0; i < s->set.n; i++) {
        weft_graph *g = weft_graph_find(s->set.module, s->set.name[i]);
        uint32_t batch = weft_graph_batch_symbol(g);
        for (uint32_t k = 0; k < weft_graph_symbol_count(g); k++) {
            uint32_t at = weft_dim_as_symbol(pool, weft_graph_symbol_dim(g, k));
            if (at < SYMBOLS_MAX)
                value[at] = k == batch ? spec->rows : spec->other;
        }
    }
}

static double predict_graph(subject *s, weft_graph *g, const int64_t *value, uint64_t beside_bytes,
                            uint64_t *out_bytes)
{
    int64_t symbol[SYMBOLS_MAX];
    weft_slice slice;
    weft_estimate e;
    const weft_estimate_options how = {.beside_bytes = beside_bytes};
    weft_dimpool *pool = weft_module_dims(s->set.module);
    char name[16];
    snprintf(name, sizeof name, "%ucore", s->set.threads);
    for (uint32_t i = 0; i < weft_graph_symbol_count(g) && i < SYMBOLS_MAX; i++)
        symbol[i] = value[weft_dim_as_symbol(pool, weft_graph_symbol_dim(g, i)) % SYMBOLS_MAX];
    if (weft_slice_make("cpu", name, s->diag, &slice) != WEFT_ERR_OK)
        give_up(s->diag, name);
    if (weft_estimate_graph(g, symbol, &slice, &how, s->arena, s->diag, &e) != WEFT_ERR_OK) {
        fprintf(stderr, "%s: %s\n", weft_graph_name(g), weft_diag_at(s->diag, 0)->text);
        return (double)NAN;
    }
    *out_bytes = e.weight_bytes;
    return e.total.time_us;
}

static weft_graph *find_joint(const subject *s)
{
    weft_graph *best = NULL;
    for (uint32_t i = 0; i < weft_graph_count(s->set.module); i++) {
        weft_graph *g = weft_graph_at(s->set.module, i);
        if (weft_graph_part_count(g) > (best ? weft_graph_part_count(best) : 1))
            best = g;
    }
    return best;
}

/* The joint program is not run for so many rows: its models do better by themselves. */
static bool is_beyond_limit(const subject *s, const merge_spec *spec, const weft_graph *joint)
{
    const weft_module *m = s->set.module;
    int64_t value[SYMBOLS_MAX];
    double elements = 0;
    set_symbols(s, spec, value);
    for (uint32_t i = 0; i < weft_graph_input_count(joint); i++) {
        const weft_ttype *t = weft_val_ttype(m, weft_graph_input(joint, i));
        double one = 1;
        for (uint32_t d = 0; d < t->rank; d++) {
            int64_t dim = 0;
            if (!weft_dim_eval(weft_module_dims(s->set.module), t->dim[d], value, SYMBOLS_MAX,
                               &dim))
                give_up(s->diag, "joint program");
            one *= (double)dim;
        }
        elements += one;
    }
    return weft_graph_limit(joint) > 0 && elements > (double)weft_graph_limit(joint);
}

static bool has_part(const weft_graph *joint, const char *name)
{
    for (uint32_t i = 0; joint && i < weft_graph_part_count(joint); i++)
        if (strcmp(weft_graph_part(joint, i)->model, name) == 0)
            return true;
    return false;
}

/* Models run one after the other, so that each finds the cache as the others leave it: what all of
 * them read, each weight once, is what the joint program reads. */
static void predict(subject *s, const merge_spec *spec, result *r)
{
    int64_t value[SYMBOLS_MAX];
    uint64_t own, all = 0;
    weft_graph *joint = find_joint(s);
    double apart_us = 0, rest_us = 0;
    set_symbols(s, spec, value);
    bool *seen =
        weft_arena_array(s->arena, (size_t)weft_weight_count(s->set.module) + 1, sizeof *seen);
    memset(seen, 0, (size_t)weft_weight_count(s->set.module) + 1);
    for (uint32_t i = 0; i < s->set.n; i++) {
        weft_graph *g = weft_graph_find(s->set.module, s->set.name[i]);
        WEFT_FOREACH_NODE (s->set.module, g, n)
            for (uint32_t k = 0; k < weft_node_in_count(s->set.module, n); k++) {
                weft_val v = weft_node_in(s->set.module, n, k);
                uint32_t w = v.i ? weft_val_weight(s->set.module, v).i : 0;
                all += w && !seen[w] ? weft_weight_get(s->set.module, (weft_weight){w})->bytes : 0;
                seen[w] = true;
            }
    }
    for (uint32_t i = 0; i < s->set.n; i++) {
        weft_graph *g = weft_graph_find(s->set.module, s->set.name[i]);
        predict_graph(s, g, value, 0, &own);
        /* A shared weight was last read one model ago. */
        uint64_t beside = all > own ? all - own : 0;
        double us = predict_graph(s, g, value, beside, &own);
        apart_us += us;
        rest_us += has_part(joint, s->set.name[i]) ? 0 : us;
    }
    r->predicted_apart_us = apart_us;
    r->predicted = joint ? apart_us / (predict_graph(s, joint, value, 0, &own) + rest_us) : 1;
}

/* -- Running ---------------------------------------------------------------------------------- */

static void make_inputs(subject *s, const merge_spec *spec, const weft_bundle_program *p,
                        weft_tensor *in, uint32_t *seed)
{
    int64_t symbol[SYMBOLS_MAX];
    for (uint32_t i = 0; i < p->n_symbol && i < SYMBOLS_MAX; i++)
        symbol[i] = i == p->batch_symbol ? spec->rows : spec->other;
    for (uint32_t i = 0; i < p->n_input; i++) {
        const weft_ttype *t = &p->value[p->input[i].value - 1].type;
        in[i] = (weft_tensor){.dtype = (weft_dtype)t->dtype, .rank = t->rank};
        for (uint32_t d = 0; d < t->rank; d++)
            if (!weft_dim_eval(p->dims, t->dim[d], symbol, p->n_symbol, &in[i].dim[d]))
                give_up(s->diag, spec->model);
        in[i].data = weft_arena_alloc(s->arena, weft_tensor_bytes(&in[i]) + 64);
        memset(in[i].data, 0, weft_tensor_bytes(&in[i]));
        for (int64_t k = 0; in[i].dtype == WEFT_DTYPE_F32 && k < weft_tensor_numel(&in[i]); k++) {
            *seed = *seed * 1664525 + 1013904223;
            ((float *)in[i].data)[k] = (float)(*seed >> 8) / (float)(1 << 23) - 1;
        }
    }
}

static void open_sessions(subject *s, const merge_spec *spec, const options *o)
{
    char path[64];
    const weft_engine_options engine = {.threads = o->threads};
    const weft_bundle_program *joint = NULL;
    uint32_t seed = 1;
    snprintf(path, sizeof path, "bench_merge.%ld.weft", (long)getpid());
    if (weft_codegen_bundle(s->set.module, weft_backend_find("cpu"), NULL, NULL, s->arena, s->diag,
                            &s->bundle) != WEFT_ERR_OK ||
        weft_bundle_write(&s->bundle, path, s->diag) != WEFT_ERR_OK ||
        weft_engine_open(path, &engine, s->diag, &s->engine) != WEFT_ERR_OK)
        give_up(s->diag, spec->model);
    unlink(path);
    const weft_bundle *b = weft_engine_bundle(s->engine);
    for (uint32_t i = 0; i < b->n_joint; i++)
        if (!joint || b->program[b->n_program + i].n_part > joint->n_part)
            joint = &b->program[b->n_program + i];
    if (!joint)
        return;
    s->in = weft_arena_array(s->arena, (size_t)joint->n_input + 1, sizeof *s->in);
    s->out = weft_arena_array(s->arena, (size_t)joint->n_output + 1, sizeof *s->out);
    s->apart = weft_arena_array(s->arena, (size_t)joint->n_output + 1, sizeof *s->apart);
    s->n_in = joint->n_input;
    s->n_out = joint->n_output;
    if (weft_session_open(s->engine, joint->name, s->diag, &s->joint) != WEFT_ERR_OK)
        give_up(s->diag, spec->model);
    uint32_t at = 0;
    for (uint32_t i = 0; i < joint->n_part; i++) {
        const weft_bundle_program *p = &b->program[joint->part[i].program];
        if (weft_session_open(s->engine, p->name, s->diag, &s->model[i]) != WEFT_ERR_OK)
            give_up(s->diag, spec->model);
        make_inputs(s, spec, p, &s->in[at], &seed);
        at += p->n_input;
    }
}

static void run_apart(subject *s)
{
    uint32_t in = 0, out = 0;
    for (uint32_t i = 0; s->model[i]; i++) {
        const weft_bundle_program *p = weft_session_program(s->model[i]);
        if (weft_session_run(s->model[i], s->in + in, p->n_input, s->diag, s->apart + out,
                             p->n_output) != WEFT_ERR_OK)
            give_up(s->diag, p->name);
        in += p->n_input;
        out += p->n_output;
    }
}

static void run_joint(subject *s)
{
    if (weft_session_run(s->joint, s->in, s->n_in, s->diag, s->out, s->n_out) != WEFT_ERR_OK)
        give_up(s->diag, "joint program");
}

static double find_difference(const subject *s)
{
    double most = 0;
    for (uint32_t i = 0; i < s->n_out; i++) {
        double difference = 0, scale = 1e-30;
        if (memcmp(s->out[i].data, s->apart[i].data, weft_tensor_bytes(&s->out[i])) == 0)
            continue;
        for (int64_t k = 0; k < weft_tensor_numel(&s->out[i]); k++) {
            double x = weft_tensor_get_f64(&s->apart[i], k);
            difference = fmax(difference, fabs(x - weft_tensor_get_f64(&s->out[i], k)));
            scale = fmax(scale, fabs(x));
        }
        most = fmax(most, difference / scale);
    }
    return most;
}

/* Mean time of `n` runs; the one before is not counted: it finds what the other side left. */
static double time_block(subject *s, void (*run)(subject *), int n)
{
    run(s);
    double begin = now_us();
    for (int i = 0; i < n; i++)
        run(s);
    return (now_us() - begin) / n;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(subject *s, const options *o, result *r)
{
    static double apart[PAIRS_MAX], joint[PAIRS_MAX], ratio[PAIRS_MAX];
    run_apart(s);
    run_joint(s);
    r->difference = find_difference(s);
    double once_us = fmin(time_block(s, run_apart, 1), time_block(s, run_apart, 2));
    int n = (int)fmin(1000, fmax(1, ceil(BLOCK_US / once_us)));
    double start = now_us();
    size_t i = 0;
    for (; i < PAIRS_MAX && (i < PAIRS_MIN || now_us() - start < o->seconds * 1e6); i++) {
        bool first = i % 2;
        if (first)
            joint[i] = time_block(s, run_joint, n);
        apart[i] = time_block(s, run_apart, n);
        if (!first)
            joint[i] = time_block(s, run_joint, n);
        ratio[i] = apart[i] / joint[i];
    }
    qsort(apart, i, sizeof *apart, by_value);
    qsort(joint, i, sizeof *joint, by_value);
    qsort(ratio, i, sizeof *ratio, by_value);
    r->apart_us = apart[i / 2];
    r->joint_us = joint[i / 2];
    r->gain = ratio[i / 2];
    r->low = ratio[i / 4];
    r->high = ratio[i * 3 / 4];
    r->n_pair = i;
}

/* -- One set ---------------------------------------------------------------------------------- */

static void count_products(const subject *s, result *r)
{
    for (uint32_t i = 0; i < s->log.rows.len; i++) {
        r->heavy++;
        r->joined += s->log.rows.at[i].joined;
    }
}

static void print_result(const options *o, const merge_spec *spec, const char *manner_name,
                         const result *r)
{
    double load = 0;
    (void)getloadavg(&load, 1);
    printf("%s,%s,%s,%d,%lld,%lld,%u,%s,%u,%u,%u,", o->suite, spec->model, spec->rule, spec->k,
           (long long)spec->rows, (long long)spec->other, o->threads, manner_name, r->parts,
           r->joined, r->heavy);
    if (r->n_pair > 0)
        printf("%.1f,%.1f,%.3f,%.3f,%.3f,", r->apart_us, r->joint_us, r->gain, r->low, r->high);
    else
        printf(",,%s,,,", o->predict_only ? "" : "1");
    printf("%.3f,%.1f,%.1e,%.1f,%.1f,%zu,%.2f\n", r->predicted, r->predicted_apart_us,
           r->difference, r->merge_ms, r->compile_ms, r->n_pair, load);
    fflush(stdout);
}

static void bench_set(const options *o, const merge_spec *spec, const manner *how)
{
    static const char *const modes[] = {"off", "auto", "exact", "strategy"};
    subject s = {.arena = weft_arena_create(0), .diag = weft_diag_create()};
    result r = {.gain = 1, .predicted = 1};
    if (how->strategy && !weft_merge_strategy_find(how->strategy))
        goto done;
    compile(&s, spec, how);
    s.set.threads = o->threads;
    weft_graph *joint = find_joint(&s);
    r.parts = joint ? weft_graph_part_count(joint) : 0;
    r.merge_ms = s.merge_ms;
    r.compile_ms = s.compile_ms;
    count_products(&s, &r);
    predict(&s, spec, &r);
    if (joint && is_beyond_limit(&s, spec, joint)) {
        joint = NULL;
        r.predicted = 1;
    }
    if (joint && !o->predict_only) {
        open_sessions(&s, spec, o);
        measure(&s, o, &r);
    }
    print_result(o, spec, how->strategy ? how->strategy : modes[how->mode], &r);
    for (uint32_t i = 0; s.model[i]; i++)
        weft_session_close(s.model[i]);
    weft_session_close(s.joint);
    weft_engine_close(s.engine);
    weft_module_destroy(s.set.module);
done:
    weft_arena_destroy(s.arena);
    weft_diag_destroy(s.diag);
}

/* -- Suites ----------------------------------------------------------------------------------- */

static const manner automatic = {.mode = WEFT_MERGE_AUTO};

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

/* Every strategy there is; the baselines too. */
static void bench_strategies(const options *o, const merge_spec *spec)
{
    bench_set(o, spec, &automatic);
    bench_set(o, spec, &(manner){.mode = WEFT_MERGE_EXACT});
    for (size_t i = 0; weft_merge_strategy_at(i); i++) {
        const char *name = weft_merge_strategy_name(weft_merge_strategy_at(i));
        if (strcmp(name, "none") != 0)
            bench_set(o, spec, &(manner){.mode = WEFT_MERGE_STRATEGY, .strategy = name});
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
    for (int i = 0; i < o->n_set; i++) {
        merge_spec spec;
        merge_spec_draw(&seed, &spec);
        bench_set(o, &spec, &automatic);
    }
}

static void suite_ablation(const options *o)
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

/* USHER joins from a threshold of similarity on, whatever the rows; summarise_merge looks for the
 * best of them. */
static void suite_threshold(const options *o)
{
    static const int64_t rows[] = {1, 8, 64, 256};
    for (int percent = 0; percent <= 100; percent += 20)
        for (size_t b = 0; b < sizeof rows / sizeof rows[0]; b++) {
            merge_spec spec = {.model = "ffn:512x4", .k = 2, .rows = rows[b], .other = 1};
            snprintf(spec.rule, sizeof spec.rule, "rows:%.1f", 1 - percent / 100.0);
            bench_strategies(o, &spec);
        }
}

static void suite_compile(const options *o)
{
    enum { MOVED_MAX = 4 }; /* all pairs of all weights are looked at */
    static const int counts[] = {2, 4, 8, 20};
    options quick = *o;
    quick.predict_only = true;
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

/* Two weights of random numbers with one block in common, at unequal places. */
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
    uint32_t seed = 1;
    (void)o;
    for (size_t i = 0; i < (size_t)SIDE * SIDE; i++)
        a[i] = (float)(seed = seed * 1664525 + 1013904223);
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        double best = INFINITY;
        weft_rect found = {0};
        for (size_t k = 0; k < (size_t)SIDE * SIDE; k++)
            b[k] = (float)(seed = seed * 22695477 + 1);
        for (uint32_t r = 0; r < blocks[i].rows; r++)
            memcpy(b + (size_t)(blocks[i].row_b + r) * SIDE + blocks[i].col_b,
                   a + (size_t)(blocks[i].row_a + r) * SIDE + blocks[i].col_a,
                   blocks[i].cols * sizeof *a);
        for (int round = 0; round < ROUNDS; round++) {
            weft_arena_mark mark = weft_arena_get_mark(arena);
            weft_matrix x = {(const uint8_t *)a, SIDE, SIDE, sizeof *a};
            weft_matrix y = {(const uint8_t *)b, SIDE, SIDE, sizeof *b};
            double begin = now_us();
            found = weft_similar__largest_rect(&x, &y, arena);
            best = fmin(best, now_us() - begin);
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
} suites[] = {{"shapes", suite_shapes},       {"issue", suite_issue},
              {"random", suite_random},       {"ablation", suite_ablation},
              {"threshold", suite_threshold}, {"compile", suite_compile},
              {"similar", suite_similar}};

static int usage(void)
{
    fputs("usage: bench_merge [-t THREADS] [-s SECONDS] [-m MODELS_DIR] [-n SETS] [-S] "
          "shapes|issue|random|ablation|threshold|compile|similar...\n",
          stderr);
    return 2;
}

int main(int argc, char **argv)
{
    options o = {.threads = 2, .seconds = 0.5, .n_set = 50};
    int opt;
    while ((opt = getopt(argc, argv, "t:s:m:n:S")) != -1) {
        switch (opt) {
        case 't':
            o.threads = (uint32_t)atoi(optarg);
            break;
        case 's':
            o.seconds = atof(optarg);
            break;
        case 'm':
            o.folder = optarg;
            break;
        case 'n':
            o.n_set = atoi(optarg);
            break;
        case 'S':
            o.predict_only = true;
            break;
        default:
            return usage();
        }
    }
    if (optind == argc || o.threads < 1)
        return usage();
    if (o.threads == 1)
        clock_id = CLOCK_PROCESS_CPUTIME_ID;
    puts("suite,model,rule,k,rows,other,threads,merge,parts,joined,products,apart_us,joint_us,gain,"
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
