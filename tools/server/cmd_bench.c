/* weft bench: latency and throughput of the programs of a bundle, and the time of their kernels. */
#include "runtime/runtime.h"
#include "tools/server/bench_gpu.h"
#include "tools/server/device_options.h"
#include "tools/server/joint.h"
#include "tools/common/names.h"
#include "tools/common/report_file.h"
#include "tools/common/ports.h"
#include "tools/common/tools.h"

#include "base/csv.h"
#include "base/file.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PROFILE_RUNS = 20, SAMPLES_MAX = 100000, TOP_KERNELS = 12, BATCHES_MAX = 64, DIMS_MAX = 16 };

typedef struct options {
    const char *bundle, *model, *report, *measured;
    int64_t batch[BATCHES_MAX];
    size_t n_batch;
    double seconds;
    bool json, per_kernel;
    weft_engine_options engine;
    weft_tool_bindings input;
    weft_tool_dim dim[DIMS_MAX];
    size_t n_dim;
} options;

typedef struct result {
    const char *model;
    int64_t batch;
    double load_ms, first_ms, min_ms, median_ms, p99_ms, throughput;
    double device_ms; /* of the launches alone; negative: the device is the CPU */
    size_t n_runs;
    weft_launch_time *kernel; /* the shortest of several runs; NULL: not measured */
    uint32_t n_kernel;
    weft_bench_reading gpu;
} result;

static int take_batches(void *at, const weft_verb *verb, char *arg)
{
    options *o = at;
    o->n_batch = weft_tool_parse_list(arg, o->batch, BATCHES_MAX);
    return o->n_batch ? 0 : weft_tool_usage(verb, "--batch takes numbers like 1,8, not '%s'", arg);
}

static int take_dim(void *at, const weft_verb *verb, char *arg)
{
    options *o = at;
    if (o->n_dim == DIMS_MAX)
        return weft_tool_usage(verb, "more than %d --dim", DIMS_MAX);
    return weft_tool_take_dim(verb, arg, &o->dim[o->n_dim++]);
}

#define OPTIONS_OF_bench
#define OPTIONS options
#include "tools/common/option_rows.h"

/* -- Measuring ------------------------------------------------------------------------------ */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Times the device alone, without the host and its copies, for a quarter of `seconds`. Branches are
 * not the device's alone. */
static weft_err measure_device(weft_session *session, double seconds, weft_diag *diag,
                               double *out_ms)
{
    double us = 0;
    *out_ms = -1;
    if (!weft_session_has_device(session))
        return WEFT_ERR_OK;
    if (weft_session_time_device(session, 1, NULL, &us) == WEFT_ERR_UNSUP)
        return WEFT_ERR_OK;
    WEFT_TRY(weft_session_time_device(session, 1, diag, &us));
    double n = seconds * 0.25e6 / (us > 1 ? us : 1);
    WEFT_TRY(weft_session_time_device(session,
                                      n < 3       ? 3
                                      : n < 10000 ? (uint32_t)n
                                                  : 10000,
                                      diag, &us));
    *out_ms = us * 1e-3;
    return WEFT_ERR_OK;
}

/* Kernels are timed in runs of their own, because timing them slows a run down. */
static weft_err measure_kernels(weft_session *session, const weft_tensor *in, weft_tensor *out,
                                weft_arena *arena, weft_diag *diag, result *r)
{
    const weft_bundle_program *p = weft_session_program(session);
    weft_err err = WEFT_ERR_OK;
    r->kernel = weft_arena_array(arena, (size_t)p->n_launch + 1, sizeof *r->kernel);
    for (int run = 0; run < PROFILE_RUNS && err == WEFT_ERR_OK; run++) {
        weft_session_profile(session, true);
        err = weft_session_run(session, in, p->n_input, diag, out, p->n_output);
        const weft_launch_time *time = weft_session_times(session, &r->n_kernel);
        for (uint32_t i = 0; i < r->n_kernel; i++)
            if (run == 0 || time[i].time_us < r->kernel[i].time_us)
                r->kernel[i] = time[i];
    }
    weft_session_profile(session, false);
    return err;
}

static weft_err measure(weft_session *session, const options *o, weft_bench_meter *meter,
                        int64_t batch, weft_arena *arena, weft_diag *diag, result *r)
{
    const weft_bundle_program *p = weft_session_program(session);
    weft_tensor *in = weft_arena_array(arena, (size_t)p->n_input + 1, sizeof *in);
    weft_tensor *out = weft_arena_array(arena, (size_t)p->n_output + 1, sizeof *out);
    double *sample = weft_arena_array(arena, SAMPLES_MAX, sizeof *sample);
    if (o->input.n)
        WEFT_TRY(weft_tool_load_inputs(&o->input, p, arena, diag, in));
    else
        WEFT_TRY(weft_tool_make_inputs(p, batch, o->dim, o->n_dim, arena, diag, in));
    if (o->input.n && p->n_input && in[0].rank && p->batch_symbol < p->n_symbol)
        r->batch = batch = in[0].dim[0];
    double begin = weft_tool_now_ms();
    WEFT_TRY(weft_session_run(session, in, p->n_input, diag, out, p->n_output));
    r->first_ms = weft_tool_now_ms() - begin;
    WEFT_TRY(weft_session_run(session, in, p->n_input, diag, out, p->n_output));
    WEFT_TRY(measure_device(session, o->seconds, diag, &r->device_ms));
    weft_bench_meter_begin(meter);
    double start = weft_tool_now_ms(), now = start;
    while (r->n_runs < SAMPLES_MAX && (now - start < o->seconds * 1e3 || r->n_runs < 3)) {
        WEFT_TRY(weft_session_run(session, in, p->n_input, diag, out, p->n_output));
        double end = weft_tool_now_ms();
        sample[r->n_runs++] = end - now;
        now = end;
    }
    weft_bench_meter_end(meter, p, batch, r->n_runs, (now - start) * 1e-3, &r->gpu);
    qsort(sample, r->n_runs, sizeof *sample, by_value);
    r->min_ms = sample[0];
    r->median_ms = sample[r->n_runs / 2];
    r->p99_ms = sample[(r->n_runs * 99) / 100 < r->n_runs ? (r->n_runs * 99) / 100 : 0];
    r->throughput = (double)batch * (double)r->n_runs / ((now - start) * 1e-3);
    return o->per_kernel ? measure_kernels(session, in, out, arena, diag, r) : WEFT_ERR_OK;
}

/* -- Reports -------------------------------------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
    double x = ((const weft_launch_time *)a)->time_us, y = ((const weft_launch_time *)b)->time_us;
    return (x < y) - (x > y);
}

static void print_kernels(const weft_bundle_program *p, const result *r, weft_arena *arena)
{
    weft_launch_time *sorted = weft_arena_array(arena, (size_t)r->n_kernel + 1, sizeof *sorted);
    double total = 0;
    for (uint32_t i = 0; i < r->n_kernel; i++) {
        sorted[i] = r->kernel[i];
        total += sorted[i].time_us;
    }
    qsort(sorted, r->n_kernel, sizeof *sorted, by_time);
    for (uint32_t i = 0; i < r->n_kernel && i < TOP_KERNELS; i++) {
        const weft_bundle_launch *l = &p->launch[sorted[i].launch];
        printf("    %9.1f us %5.1f %%  %-20s %-24s %s\n", sorted[i].time_us,
               100 * sorted[i].time_us / (total > 0 ? total : 1), weft_op_get(l->op)->name,
               sorted[i].variant, l->item);
    }
}

static void print_result(const options *o, const result *r)
{
    if (!o->json)
        printf("%-20s batch %-4lld throughput %10.1f/s   latency ms: min %.3f median %.3f p99 "
               "%.3f   first %.1f   runs %zu\n",
               r->model, (long long)r->batch, r->throughput, r->min_ms, r->median_ms, r->p99_ms,
               r->first_ms, r->n_runs);
    if (!o->json && r->device_ms >= 0)
        printf("    device    %.3f ms\n", r->device_ms);
    if (!o->json)
        weft_bench_reading_print(&r->gpu, r->median_ms);
}

/* All kernels in the order in which they run. */
static json_t *kernels_json(const weft_bundle_program *p, const result *r)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < r->n_kernel; i++) {
        const weft_bundle_launch *l = &p->launch[r->kernel[i].launch];
        json_array_append_new(
            list, json_pack("{s:f, s:s, s:s, s:o}", "time_us", r->kernel[i].time_us, "operator",
                            weft_op_get(l->op)->name, "variant", r->kernel[i].variant, "item",
                            weft_tool_json_name(l->item)));
    }
    return list;
}

static json_t *result_json(const result *r)
{
    json_t *row =
        json_pack("{s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:I}", "model", r->model, "batch",
                  (json_int_t)r->batch, "throughput_per_s", r->throughput, "min_ms", r->min_ms,
                  "median_ms", r->median_ms, "p99_ms", r->p99_ms, "first_ms", r->first_ms,
                  "load_ms", r->load_ms, "runs", (json_int_t)r->n_runs);
    json_object_set_new(row, "device_ms",
                        r->device_ms >= 0 ? json_real(r->device_ms) : json_null());
    weft_bench_reading_add(&r->gpu, row);
    return row;
}

/* -- The verb ------------------------------------------------------------------------------- */

/* Lists the batch sizes of the options or, without them, of the buckets. */
static size_t list_batches(const options *o, const weft_bundle_program *p, int64_t *out)
{
    size_t n = 0;
    if (p->batch_symbol >= p->n_symbol || o->input.n) {
        out[0] = 1;
        return 1;
    }
    for (size_t i = 0; i < o->n_batch; i++)
        out[n++] = o->batch[i];
    for (uint32_t i = 0; i < p->n_bucket && o->n_batch == 0 && n < BATCHES_MAX; i++) {
        int64_t b = p->bucket[i].symbol[p->batch_symbol];
        bool seen = false;
        for (size_t k = 0; k < n; k++)
            seen = seen || out[k] == b;
        if (!seen)
            out[n++] = b;
    }
    if (n == 0)
        out[n++] = 1;
    return n;
}

static weft_err bench_model(const options *o, weft_engine *engine, weft_bench_meter *meter,
                            const char *model, weft_diag *diag, json_t *list)
{
    weft_session *session = NULL;
    double begin = weft_tool_now_ms();
    WEFT_TRY(weft_session_open(engine, model, diag, &session));
    double load_ms = weft_tool_now_ms() - begin;
    int64_t batch[BATCHES_MAX];
    const weft_bundle_program *p = weft_session_program(session);
    size_t n = list_batches(o, p, batch);
    weft_err err = WEFT_ERR_OK;
    for (size_t i = 0; i < n && err == WEFT_ERR_OK; i++) {
        weft_arena *arena = weft_arena_create(0);
        result r = {.model = model, .batch = batch[i], .load_ms = load_ms};
        weft_tool_progress("%s, batch %lld", model, (long long)batch[i]);
        weft_tool_advance((double)i, (double)n, "batch sizes");
        err = arena ? measure(session, o, meter, batch[i], arena, diag, &r) : WEFT_ERR_NOMEM;
        weft_tool_progress(NULL);
        if (err == WEFT_ERR_OK) {
            json_t *row = result_json(&r);
            print_result(o, &r);
            if (o->per_kernel && o->json)
                json_object_set_new(row, "kernels", kernels_json(p, &r));
            else if (o->per_kernel)
                print_kernels(p, &r, arena);
            json_array_append_new(list, row);
        }
        weft_arena_destroy(arena);
    }
    weft_session_close(session);
    return err;
}

/* -- Joint programs ------------------------------------------------------------------------- */

static bool has_model(const weft_bundle *bundle, const weft_bundle_program *joint, const char *name)
{
    for (uint32_t i = 0; i < joint->n_part; i++)
        if (strcmp(bundle->program[joint->part[i].program].name, name) == 0)
            return true;
    return false;
}

/* Lists the groups of a report that this joint program runs: the rows of `merges` in `row`,
 * their nodes in `node`. Both arrays have room for all groups. */
static size_t list_groups(const weft_bundle *bundle, const weft_bundle_program *joint,
                          const json_t *report, json_t **row, weft_joint_node *node)
{
    size_t i, k, n = 0;
    json_t *one, *model;
    json_array_foreach(json_object_get(report, "merges"), i, one)
    {
        const char *item = json_string_value(json_object_get(one, "item"));
        bool all = item && *item;
        json_array_foreach(json_object_get(one, "models"), k, model)
        {
            const char *name = json_string_value(model);
            all = all && name && has_model(bundle, joint, name);
        }
        if (!all)
            continue;
        row[n] = one;
        node[n++] = (weft_joint_node){.item = item};
    }
    return n;
}

static void note_groups(json_t *const *row, const weft_joint_node *node, size_t n, int64_t batch)
{
    for (size_t i = 0; i < n; i++) {
        json_t *list = json_object_get(row[i], "measured");
        if (!(node[i].joint_us > 0) || !(node[i].apart_us > 0))
            continue;
        json_array_append_new(list,
                              json_pack("{s:I, s:f, s:f, s:f}", "batch", (json_int_t)batch,
                                        "apart_us", node[i].apart_us, "joint_us", node[i].joint_us,
                                        "gain", node[i].apart_us / node[i].joint_us));
    }
}

/* Returns the gain that the report expects; 0: the report has none. */
static double find_expected(const options *o, const json_t *report, const char *joint,
                            int64_t batch)
{
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(report, "expected"), i, one)
    {
        const char *name = json_string_value(json_object_get(one, "joint"));
        if (o->n_dim == 0 && name && strcmp(name, joint) == 0 &&
            json_integer_value(json_object_get(one, "batch")) == batch)
            return json_number_value(json_object_get(one, "gain"));
    }
    return 0;
}

static void print_joint(const weft_bundle_program *p, int64_t batch, const weft_joint_timing *t,
                        double expected)
{
    printf("%-20s batch %-4lld apart %.3f ms  joint %.3f ms  gain %.2f  ", p->name,
           (long long)batch, t->apart_ms, t->joint_ms, t->apart_ms / t->joint_ms);
    if (expected > 0)
        printf("expected %.2f  ", expected);
    printf("largest difference %.2g of scale\n", t->difference);
}

static json_t *joint_json(const weft_bundle_program *p, int64_t batch, const weft_joint_timing *t,
                          double expected)
{
    json_t *row = json_pack("{s:o, s:I, s:f, s:f, s:f, s:f, s:I}", "joint",
                            weft_tool_json_name(p->name), "batch", (json_int_t)batch, "apart_ms",
                            t->apart_ms, "joint_ms", t->joint_ms, "gain", t->apart_ms / t->joint_ms,
                            "difference", t->difference, "runs", (json_int_t)t->n_runs);
    if (expected > 0)
        json_object_set_new(row, "expected", json_real(expected));
    return row;
}

/* `report`: where the measured gain of each group is added; NULL: nowhere. */
static weft_err bench_joint(const options *o, weft_engine *engine, const weft_bundle_program *p,
                            json_t *report, weft_diag *diag, json_t *list)
{
    static const int64_t usual[] = {1, 8};
    const int64_t *batch = o->n_batch ? o->batch : usual;
    size_t n = o->n_batch ? o->n_batch : sizeof usual / sizeof usual[0];
    size_t room = json_array_size(json_object_get(report, "merges")) + 1, n_group;
    json_t **row = calloc(room, sizeof *row);
    weft_joint_node *node = calloc(room, sizeof *node);
    weft_err err = row && node ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
    for (size_t i = 0; i < n && err == WEFT_ERR_OK; i++) {
        weft_joint_timing t;
        n_group = list_groups(weft_engine_bundle(engine), p, report, row, node);
        weft_tool_progress("%s, batch %lld", p->name, (long long)batch[i]);
        weft_tool_advance((double)i, (double)n, "batch sizes");
        err = weft_tool_time_joint(engine, p, batch[i], o->dim, o->n_dim, o->seconds, diag, node,
                                   n_group, &t);
        weft_tool_progress(NULL);
        if (err != WEFT_ERR_OK)
            break;
        note_groups(row, node, n_group, batch[i]);
        double expected = find_expected(o, report, p->name, batch[i]);
        if (!o->json)
            print_joint(p, batch[i], &t, expected);
        json_array_append_new(list, joint_json(p, batch[i], &t, expected));
    }
    free(row);
    free(node);
    return err;
}

/* Reads the report, and removes earlier measurements from it. */
static weft_err open_report(const options *o, weft_diag *diag, json_t **out)
{
    size_t i;
    json_t *one;
    if (!o->report)
        return WEFT_ERR_OK;
    WEFT_TRY(weft_tool_read_report(o->report, diag, out));
    json_array_foreach(json_object_get(*out, "merges"), i, one)
        json_object_set_new(one, "measured", json_array());
    return WEFT_ERR_OK;
}

/* The table that `weft estimate --calibrate` reads: times of the device, which is what estimates
 * are of; on a CPU those of the whole run. */
static weft_err write_measured(const char *path, const json_t *list, weft_diag *diag)
{
    weft_buf text = {0};
    size_t i;
    const json_t *row;
    weft_buf_puts(&text, "model,batch,measured_us\n");
    json_array_foreach(list, i, row)
    {
        const json_t *device_ms = json_object_get(row, "device_ms");
        const json_t *ms =
            json_is_number(device_ms) ? device_ms : json_object_get(row, "median_ms");
        weft_csv_put(&text, json_string_value(json_object_get(row, "model")));
        weft_buf_printf(&text, ",%lld,%.9g\n",
                        (long long)json_integer_value(json_object_get(row, "batch")),
                        json_number_value(ms) * 1e3);
    }
    weft_err err = text.failed ? WEFT_ERR_NOMEM : weft_file_write(path, text.at, text.len, diag);
    weft_buf_finish(&text);
    return err;
}

static weft_err finish(const options *o, json_t *list, json_t *joint, json_t *report,
                       weft_diag *diag)
{
    if (o->json) {
        json_t *root = json_pack("{s:s, s:i, s:s, s:O, s:O}", "format", "weft-bench", "version", 1,
                                 "bundle", o->bundle, "results", list, "joint", joint);
        json_dumpf(root, stdout, JSON_INDENT(2) | JSON_SORT_KEYS);
        putchar('\n');
        json_decref(root);
    }
    if (o->measured)
        WEFT_TRY(write_measured(o->measured, list, diag));
    if (!report)
        return WEFT_ERR_OK;
    json_object_set(report, "joint", joint);
    WEFT_TRY(weft_tool_save_report(report, o->report, true, diag));
    fflush(stdout); /* the text report follows what was printed */
    return o->json ? WEFT_ERR_OK : weft_tool_save_report(report, "-", false, diag);
}

static weft_err bench(const options *o, weft_diag *diag)
{
    weft_engine *engine = NULL;
    weft_bench_meter meter;
    weft_bench_meter_open(&meter, o->bundle, &o->engine);
    weft_err opened = weft_engine_open(o->bundle, &o->engine, diag, &engine);
    if (opened != WEFT_ERR_OK) {
        weft_bench_meter_close(&meter);
        return opened;
    }
    const weft_bundle *bundle = weft_engine_bundle(engine);
    json_t *list = json_array(), *report = NULL;
    weft_err err = open_report(o, diag, &report);
    bool found = false;
    for (uint32_t i = 0; i < bundle->n_program && err == WEFT_ERR_OK; i++) {
        if (o->model && strcmp(o->model, bundle->program[i].name) != 0)
            continue;
        found = true;
        err = bench_model(o, engine, &meter, bundle->program[i].name, diag, list);
    }
    json_t *joint = json_array();
    for (uint32_t i = 0; i < bundle->n_joint && err == WEFT_ERR_OK; i++) {
        const weft_bundle_program *p = &bundle->program[bundle->n_program + i];
        if (p->is_packed || (o->model && strcmp(o->model, p->name) != 0))
            continue;
        found = true;
        err = bench_joint(o, engine, p, report, diag, joint);
    }
    if (err == WEFT_ERR_OK && !found)
        err = weft_bundle_refuse_model(bundle, o->model, (weft_where){.file = o->bundle}, diag);
    if (err == WEFT_ERR_OK)
        err = finish(o, list, joint, report, diag);
    json_decref(report);
    json_decref(joint);
    json_decref(list);
    weft_engine_close(engine);
    weft_bench_meter_close(&meter);
    return err;
}

static int run_bench(int argc, char **argv)
{
    static options o; /* static: too large for the stack */
    o.seconds = 1;
    int code = weft_options_parse_one(&weft_verb_bench, argc, argv, &o, "bundle", &o.bundle);
    if (code >= 0)
        return code;
    weft_diag *diag = weft_diag_create();
    code = weft_tool_report(diag, bench(&o, diag));
    weft_diag_destroy(diag);
    return code;
}

const weft_verb weft_verb_bench = {.name = "bench", .row = rows, .run = run_bench};
