#include "tests/bench/merge_run.h"

#include "estimator/estimator.h"
#include "runtime/runtime.h"
#include "tests/support/compiled.h"
#include "tests/support/made_inputs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PAIRS_MAX = 1000, PAIRS_MIN = 11, BLOCK_US = 4000, SYMBOLS_MAX = 64, STEP_RUNS_MAX = 401 };

typedef struct subject {
    const merge_options *options;
    const merge_spec *spec;
    merge_set set;
    weft_bundle bundle;
    weft_merge_log log;
    weft_graph *graph; /* joint */
    int64_t value[SYMBOLS_MAX];
    weft_engine *engine;
    weft_session *joint, *model[MERGE_SET_MAX];
    weft_tensor *in, *out, *apart;
    uint32_t n_in, n_out, n_model;
    weft_arena *arena;
    weft_diag *diag;
    double merge_ms, compile_ms;
} subject;

double merge_now_us(const merge_options *options)
{
    struct timespec t;
    clock_gettime(options->threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void check(const subject *s, weft_err err)
{
    if (err == WEFT_ERR_OK)
        return;
    fprintf(stderr, "%s %s: %s\n", s->spec->model, s->spec->rule, weft_err_text(err));
    print_messages(s->diag);
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
        s->merge_ms = merge_now_us(s->options) * 1e-3 - (after ? s->merge_ms : 0);
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

static void compile(subject *s, const merge_way *way)
{
    size_t n = 0;
    const weft_pass *const *pass = weft_pipeline("cpu", &n);
    merge_set_make(s->spec, s->arena, s->diag, &s->set);
    check(s, s->set.module ? WEFT_ERR_OK : WEFT_ERR_INPUT);
    double begin = merge_now_us(s->options);
    s->log = (weft_merge_log){.arena = s->arena};
    weft_run_options run = {.pass = {.merge = way->mode,
                                     .strategy = way->strategy,
                                     .assignment = &weft_assignment_igraph,
                                     .match_without = way->match_without,
                                     .strategy_without = way->without,
                                     .merge_log = &s->log},
                            .hook = note_time,
                            .user = s};
    check(s, weft_passes_run(s->set.module, pass, n, &run, s->diag));
    s->compile_ms = (merge_now_us(s->options) - begin) * 1e-3;
    s->graph = find_joint(s);
}

/* -- Predictions ------------------------------------------------------------------------------ */

/* Values by symbol of the pool: the batch symbol is `rows`, every other symbol `other`. */
static void set_symbols(subject *s)
{
    weft_dimpool *pool = weft_module_dims(s->set.module);
    for (uint32_t i = 0; i < SYMBOLS_MAX; i++)
        s->value[i] = 1;
    for (uint32_t i = 0; i < s->set.n; i++) {
        weft_graph *g = weft_graph_find(s->set.module, s->set.name[i]);
        uint32_t batch = weft_graph_batch_symbol(g);
        for (uint32_t k = 0; k < weft_graph_symbol_count(g); k++) {
            uint32_t at = weft_dim_as_symbol(pool, weft_graph_symbol_dim(g, k));
            if (at < SYMBOLS_MAX)
                s->value[at] = k == batch ? s->spec->rows : s->spec->other;
        }
    }
}

/* The joint program is not used for this many rows: its models are faster separately. */
static bool is_beyond_limit(const subject *s)
{
    const weft_module *m = s->set.module;
    double elements = 0;
    for (uint32_t i = 0; i < weft_graph_input_count(s->graph); i++) {
        const weft_ttype *t = weft_val_ttype(m, weft_graph_input(s->graph, i));
        double one = 1;
        for (uint32_t d = 0; d < t->rank; d++) {
            int64_t dim = 0;
            bool known = weft_dim_eval(weft_module_dims(s->set.module), t->dim[d], s->value,
                                       SYMBOLS_MAX, &dim);
            check(s, known ? WEFT_ERR_OK : WEFT_ERR_BUG);
            one *= (double)dim;
        }
        elements += one;
    }
    return weft_graph_limit(s->graph) > 0 && elements > (double)weft_graph_limit(s->graph);
}

static bool is_same_group(const weft_merge_row *a, const weft_merge_row *b)
{
    return strcmp(a->op, b->op) == 0 && strcmp(a->strategy, b->strategy) == 0 &&
           a->n_model == b->n_model && a->weight_bytes == b->weight_bytes;
}

/* Index of the group whose GEMM has this ONNX name; n_group: none. */
static uint32_t find_group(const subject *s, const merge_result *r, const char *item)
{
    for (uint32_t i = 0; i < s->log.rows.len; i++) {
        const weft_merge_row *row = &s->log.rows.at[i];
        if (!item || !*item || !row->joined || strcmp(row->item, item) != 0)
            continue;
        for (uint32_t k = 0; k < r->n_group; k++)
            if (is_same_group(r->group[k].row, row))
                return k;
    }
    return r->n_group;
}

static void list_groups(const subject *s, merge_result *r)
{
    for (uint32_t i = 0; i < s->log.rows.len; i++) {
        const weft_merge_row *row = &s->log.rows.at[i];
        uint32_t k = 0;
        if (!row->joined || !*row->item)
            continue;
        while (k < r->n_group && !is_same_group(r->group[k].row, row))
            k++;
        if (k == r->n_group && k < MERGE_GROUPS_MAX)
            r->group[r->n_group++].row = row;
        if (k < r->n_group)
            r->group[k].n_row++;
    }
}

static void predict(subject *s, merge_result *r)
{
    char name[16];
    weft_slice slice;
    weft_joint_estimate e;
    const weft_module *m = s->set.module;
    snprintf(name, sizeof name, "%ucore", s->options->threads);
    check(s, weft_slice_make("cpu", name, s->diag, &slice));
    check(s, weft_estimate_joint(s->graph, s->value, SYMBOLS_MAX, &slice, s->arena, s->diag, &e));
    r->predicted_apart_us = e.apart_us;
    r->predicted = e.apart_us / e.joint.total.time_us;
    for (size_t i = 0; i < e.joint.n; i++) {
        uint32_t k = find_group(s, r, weft_node_loc(m, e.joint.kernel[i].node).item);
        if (k < r->n_group)
            r->group[k].predicted_joint_us += e.joint.kernel[i].cost.time_us;
    }
    for (uint32_t p = 0; p < e.n_part; p++)
        for (size_t i = 0; i < e.part[p].n; i++) {
            uint32_t k = find_group(s, r, weft_node_loc(m, e.part[p].kernel[i].node).item);
            if (k < r->n_group)
                r->group[k].predicted_apart_us += e.part[p].kernel[i].cost.time_us;
        }
}

/* -- Running ---------------------------------------------------------------------------------- */

static const weft_bundle_program *find_program(const weft_bundle *b)
{
    const weft_bundle_program *joint = &b->program[b->n_program];
    for (uint32_t i = 1; i < b->n_joint; i++)
        if (b->program[b->n_program + i].n_part > joint->n_part)
            joint = &b->program[b->n_program + i];
    return joint;
}

static void open_sessions(subject *s)
{
    char path[64];
    const weft_engine_options engine = {.threads = s->options->threads};
    uint64_t seed = 1;
    snprintf(path, sizeof path, "bench_merge.%ld.weft", (long)getpid());
    check(s, weft_codegen_bundle(s->set.module, weft_backend_find("cpu"), NULL, NULL, s->arena,
                                 s->diag, &s->bundle));
    check(s, weft_bundle_write(&s->bundle, path, s->diag));
    check(s, weft_engine_open(path, &engine, s->diag, &s->engine));
    unlink(path);
    const weft_bundle *b = weft_engine_bundle(s->engine);
    const weft_bundle_program *joint = find_program(b);
    s->n_in = joint->n_input;
    s->n_out = joint->n_output;
    s->in = weft_arena_array(s->arena, (size_t)s->n_in + 1, sizeof *s->in);
    s->out = weft_arena_array(s->arena, (size_t)s->n_out + 1, sizeof *s->out);
    s->apart = weft_arena_array(s->arena, (size_t)s->n_out + 1, sizeof *s->apart);
    check(s, weft_session_open(s->engine, joint->name, s->diag, &s->joint));
    weft_tensor *in = s->in;
    for (; s->n_model < joint->n_part; s->n_model++) {
        const weft_bundle_program *p = &b->program[joint->part[s->n_model].program];
        int64_t symbol[SYMBOLS_MAX];
        for (uint32_t i = 0; i < p->n_symbol && i < SYMBOLS_MAX; i++)
            symbol[i] = i == p->batch_symbol ? s->spec->rows : s->spec->other;
        check(s, weft_session_open(s->engine, p->name, s->diag, &s->model[s->n_model]));
        check(s, make_inputs(p, symbol, &seed, s->arena, in) ? WEFT_ERR_OK : WEFT_ERR_INPUT);
        in += p->n_input;
    }
}

static void run_apart(subject *s)
{
    uint32_t in = 0, out = 0;
    for (uint32_t i = 0; i < s->n_model; i++) {
        const weft_bundle_program *p = weft_session_program(s->model[i]);
        check(s, weft_session_run(s->model[i], s->in + in, p->n_input, s->diag, s->apart + out,
                                  p->n_output));
        in += p->n_input;
        out += p->n_output;
    }
}

static void run_joint(subject *s)
{
    check(s, weft_session_run(s->joint, s->in, s->n_in, s->diag, s->out, s->n_out));
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

/* Mean time of `n` runs after one unmeasured run, which warms the caches that the other side used.
 */
static double time_block(subject *s, void (*run)(subject *), int n)
{
    run(s);
    double begin = merge_now_us(s->options);
    for (int i = 0; i < n; i++)
        run(s);
    return (merge_now_us(s->options) - begin) / n;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(subject *s, merge_result *r)
{
    static double apart[PAIRS_MAX], joint[PAIRS_MAX], ratio[PAIRS_MAX];
    run_apart(s);
    run_joint(s);
    r->difference = find_difference(s);
    double once_us = fmin(time_block(s, run_apart, 1), time_block(s, run_apart, 2));
    int n = (int)fmin(1000, fmax(1, ceil(BLOCK_US / once_us)));
    double start = merge_now_us(s->options), most = s->options->seconds * 1e6;
    size_t i = 0;
    for (; i < PAIRS_MAX && (i < PAIRS_MIN || merge_now_us(s->options) - start < most); i++) {
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

/* -- Groups ----------------------------------------------------------------------------------- */

/* Overhead of timing one launch: the time of a launch that does nothing. */
static double clock_cost_us(void)
{
    enum { CALLS = 1000 };
    struct timespec first, last;
    clock_gettime(CLOCK_MONOTONIC, &first);
    for (int i = 0; i < CALLS; i++)
        clock_gettime(CLOCK_MONOTONIC, &last);
    return ((double)(last.tv_sec - first.tv_sec) * 1e6 +
            (double)(last.tv_nsec - first.tv_nsec) * 1e-3) /
           CALLS;
}

/* Adds the launch times of the last run to their groups, `stride` elements apart. */
static void add_steps(const subject *s, const merge_result *r, weft_session *session, double *us,
                      size_t stride, double clock_us)
{
    const weft_bundle_program *p = weft_session_program(session);
    uint32_t n = 0;
    const weft_launch_time *time = weft_session_times(session, &n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = find_group(s, r, p->launch[time[i].launch].item);
        if (k < r->n_group)
            us[k * stride] += fmax(0, time[i].time_us - clock_us);
    }
}

/* Medians of single runs, the two sides alternating: an interrupted run does not affect a median.
 */
static void measure_groups(subject *s, merge_result *r)
{
    size_t stride = STEP_RUNS_MAX, n = 0;
    double *apart = weft_arena_array(s->arena, r->n_group * stride + 1, sizeof *apart);
    double *joint = weft_arena_array(s->arena, r->n_group * stride + 1, sizeof *joint);
    double start = merge_now_us(s->options), most = s->options->seconds * 1e6;
    double clock_us = clock_cost_us();
    while (r->n_group > 0 && n < STEP_RUNS_MAX &&
           (n < PAIRS_MIN || merge_now_us(s->options) - start < most)) {
        for (uint32_t i = 0; i < s->n_model; i++)
            weft_session_profile(s->model[i], true);
        weft_session_profile(s->joint, true);
        run_apart(s);
        run_joint(s);
        for (uint32_t i = 0; i < s->n_model; i++)
            add_steps(s, r, s->model[i], apart + n, stride, clock_us);
        add_steps(s, r, s->joint, joint + n, stride, clock_us);
        n++;
    }
    for (uint32_t k = 0; k < r->n_group; k++) {
        qsort(apart + k * stride, n, sizeof *apart, by_value);
        qsort(joint + k * stride, n, sizeof *joint, by_value);
        r->group[k].apart_us = apart[k * stride + n / 2];
        r->group[k].joint_us = joint[k * stride + n / 2];
    }
}

/* -- One set ---------------------------------------------------------------------------------- */

void merge_run(const merge_options *options, const merge_spec *spec, const merge_way *way,
               weft_arena *arena, merge_result *out)
{
    subject s = {.options = options, .spec = spec, .arena = arena, .diag = weft_diag_create()};
    merge_result r = {.gain = 1, .predicted = 1};
    compile(&s, way);
    set_symbols(&s);
    r.parts = s.graph ? weft_graph_part_count(s.graph) : 0;
    r.merge_ms = s.merge_ms;
    r.compile_ms = s.compile_ms;
    r.gemms = s.log.rows.len;
    for (uint32_t i = 0; i < s.log.rows.len; i++)
        r.joined += s.log.rows.at[i].joined;
    if (s.graph && !is_beyond_limit(&s)) {
        list_groups(&s, &r);
        predict(&s, &r);
        if (!options->predict_only) {
            open_sessions(&s);
            measure(&s, &r);
            if (options->groups)
                measure_groups(&s, &r);
        }
    }
    for (uint32_t i = 0; i < s.n_model; i++)
        weft_session_close(s.model[i]);
    weft_session_close(s.joint);
    weft_engine_close(s.engine);
    weft_module_destroy(s.set.module);
    weft_diag_destroy(s.diag);
    *out = r;
}
