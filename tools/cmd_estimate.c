/* weft estimate: what models cost on a device, without running them. */
#include "ir/bundle.h"
#include "tools/compile.h"
#include "tools/pipeline.h"
#include "tools/profiles.h"

#include "base/num.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { DIMS_MAX = 16 };

typedef struct options {
    char *const *file;
    int n_file;
    const char *gpu, *slice, *output;
    const char *dim[DIMS_MAX]; /* "seq=128" */
    size_t n_dim;
    int64_t batch;
    bool per_kernel, exact_f32, json;
} options;

/* -- Printing --------------------------------------------------------------------------------- */

static json_t *cost_to_json(const char *name, const weft_cost *c)
{
    json_t *o = json_object();
    json_object_set_new(o, "name", json_string(name));
    json_object_set_new(o, "time_us", json_real(c->time_us));
    json_object_set_new(o, "creq", json_real(c->creq));
    json_object_set_new(o, "mreq_bytes", json_integer((json_int_t)c->mreq_bytes));
    json_object_set_new(o, "bandwidth_gbps", json_real(c->bandwidth_gbps));
    json_object_set_new(o, "energy_j", json_real(c->energy_j));
    json_object_set_new(o, "source", json_string(c->source));
    json_object_set_new(o, "expected_error", json_real(c->expected_error));
    return o;
}

static json_t *kernel_to_json(const weft_module *m, const weft_kernel_cost *k)
{
    const char *item = weft_node_loc(m, k->node).item;
    const weft_kernel *kernel = &k->kernel;
    json_t *o = cost_to_json(item ? item : "", &k->cost);
    json_object_set_new(o, "op", json_string(k->op));
    json_object_set_new(o, "model", json_string(k->model));
    json_object_set_new(o, "flops", json_real(kernel->work.flops));
    json_object_set_new(o, "bytes",
                        json_real(kernel->work.bytes_read + kernel->work.bytes_written +
                                  kernel->work.weight_bytes));
    return o;
}

static void print_cost(const char *name, const weft_cost *c)
{
    char size[32];
    printf("%-28s %12.1f us +-%.0f %%  creq %5.1f %%  mreq %-10s %8.1f GB/s  %.4g J  %s\n", name,
           c->time_us, c->expected_error * 100, c->creq * 100, weft_tool_bytes(c->mreq_bytes, size),
           c->bandwidth_gbps, c->energy_j, c->source);
}

static void print_kernels(const weft_module *m, const weft_estimate *e)
{
    for (size_t i = 0; i < e->n; i++) {
        const weft_kernel_cost *k = &e->kernel[i];
        const char *item = weft_node_loc(m, k->node).item;
        printf("  %-20s %10.2f us  creq %5.1f %%  %10.3g flop %10.3g B  %-8s %s\n", k->op,
               k->cost.time_us, k->cost.creq * 100, k->kernel.work.flops,
               k->kernel.work.bytes_read + k->kernel.work.bytes_written +
                   k->kernel.work.weight_bytes,
               k->model, item ? item : "");
    }
}

/* -- Modules ---------------------------------------------------------------------------------- */

/* A kernel needs its operands and results in memory, nothing else. */
static void count_kernel_memory(weft_estimate *e)
{
    weft_kernel_cost *k = (weft_kernel_cost *)e->kernel;
    for (size_t i = 0; i < e->n; i++)
        k[i].cost.mreq_bytes =
            (uint64_t)(k[i].kernel.work.bytes_read + k[i].kernel.work.bytes_written +
                       k[i].kernel.work.weight_bytes);
}

/* Values given with --dim. A name that the graph does not have is left to its other graphs. */
static weft_err set_dims(const options *o, const weft_graph *g, int64_t *symbol, weft_diag *diag)
{
    weft_dimpool *pool = weft_module_dims(weft_graph_module(g));
    for (size_t i = 0; i < o->n_dim; i++) {
        const char *equals = strchr(o->dim[i], '=');
        size_t len = (size_t)(equals - o->dim[i]);
        for (uint32_t k = 0; k < weft_graph_symbol_count(g); k++) {
            const char *name = weft_graph_symbol_name(g, k);
            int64_t lo, hi, value = 0;
            if (strlen(name) != len || strncmp(name, o->dim[i], len) != 0)
                continue;
            weft_dim_bounds(pool, weft_graph_symbol_dim(g, k), &lo, &hi);
            if (!weft_parse_i64(equals + 1, &value) || value < lo || value > hi)
                return weft_diag_error(
                    diag, WEFT_ERR_INPUT, (weft_where){.item = weft_graph_name(g)},
                    "--dim %s is outside [%lld, %lld]", o->dim[i], (long long)lo, (long long)hi);
            symbol[k] = value;
        }
    }
    return WEFT_ERR_OK;
}

static weft_err estimate_one(const options *o, weft_graph *g, const weft_slice *slice,
                             json_t *models, weft_arena *arena, weft_diag *diag)
{
    const weft_module *m = weft_graph_module(g);
    weft_estimate_options how = {.exact_f32 = o->exact_f32};
    int64_t *symbol =
        weft_arena_array(arena, (size_t)weft_graph_symbol_count(g) + 1, sizeof *symbol);
    weft_estimate e;
    WEFT_TRY(weft_estimate_symbols(g, (uint32_t)o->batch, diag, symbol));
    WEFT_TRY(set_dims(o, g, symbol, diag));
    WEFT_TRY(weft_estimate_graph(g, symbol, slice, &how, arena, diag, &e));
    count_kernel_memory(&e);
    if (!o->json) {
        print_cost(weft_graph_name(g), &e.total);
        if (o->per_kernel)
            print_kernels(m, &e);
        return WEFT_ERR_OK;
    }
    json_t *row = cost_to_json(weft_graph_name(g), &e.total);
    json_object_set_new(row, "weight_bytes", json_integer((json_int_t)e.weight_bytes));
    json_object_set_new(row, "arena_bytes", json_integer((json_int_t)e.arena_bytes));
    json_object_set_new(row, "n_kernels", json_integer((json_int_t)e.n));
    if (o->per_kernel) {
        json_t *kernels = json_array();
        for (size_t i = 0; i < e.n; i++)
            json_array_append_new(kernels, kernel_to_json(m, &e.kernel[i]));
        json_object_set_new(row, "kernels", kernels);
    }
    json_array_append_new(models, row);
    return WEFT_ERR_OK;
}

static weft_err estimate_sources(const options *o, const weft_slice *slice, json_t *models,
                                 weft_tool_sources *sources, weft_arena *arena, weft_diag *diag)
{
    const weft_import_options import = {0};
    WEFT_TRY(weft_tool_load_sources(o->file, o->n_file, &import, arena, diag, sources));
    weft_module *m = sources->module;
    if (weft_module_stage(m) == WEFT_STAGE_GRAPH) {
        weft_tool_pipeline pipeline = {
            .run = {.verify = WEFT_VERIFY_OFF, .pass = {.batch = &o->batch, .n_batch = 1}}};
        size_t n = 0;
        const weft_pass *const *pass = weft_pipeline("cpu", &n);
        weft_tool_progress("lowering");
        WEFT_TRY(weft_tool_pipeline_run(&pipeline, m, pass, n, diag));
        weft_tool_progress(NULL);
    }
    for (uint32_t i = 0; i < weft_graph_count(m); i++)
        WEFT_TRY(estimate_one(o, weft_graph_at(m, i), slice, models, arena, diag));
    return WEFT_ERR_OK;
}

/* -- Bundles ---------------------------------------------------------------------------------- */

/* A bundle carries estimates, not graphs of the compiler: what it has is shown, nothing is made up.
 */
static weft_err estimate_bundle(const options *o, const weft_slice *slice, json_t *models,
                                weft_diag *diag)
{
    weft_bundle *bundle = NULL;
    WEFT_TRY(weft_bundle_open(o->file[0], diag, &bundle));
    weft_err err = WEFT_ERR_OK;
    if (o->per_kernel)
        err = weft_diag_error(diag, WEFT_ERR_UNSUP, (weft_where){.file = o->file[0]},
                              "a bundle has no estimates per kernel; give the model file");
    for (uint32_t i = 0; i < bundle->n_program && err == WEFT_ERR_OK; i++) {
        const weft_bundle_program *p = &bundle->program[i];
        const weft_profile_point *found = NULL;
        for (size_t k = 0; k < p->profile.n && !found; k++) {
            const weft_profile_point *point = &p->profile.point[k];
            if (point->batch == o->batch && strcmp(point->device, slice->gpu->name) == 0 &&
                strcmp(point->slice, slice->name) == 0)
                found = point;
        }
        if (!found)
            err = weft_diag_error(diag, WEFT_ERR_UNSUP,
                                  (weft_where){.file = o->file[0], .item = p->name},
                                  "the bundle has no estimate for %s '%s', batch %lld; compile "
                                  "with --gpu and --batch, or give the model file",
                                  slice->gpu->name, slice->name, (long long)o->batch);
        else if (o->json)
            json_array_append_new(models, cost_to_json(p->name, &found->cost));
        else
            print_cost(p->name, &found->cost);
    }
    weft_bundle_close(bundle);
    return err;
}

/* -- The verb --------------------------------------------------------------------------------- */

static weft_err write_json(const options *o, const weft_slice *slice, json_t *models,
                           weft_diag *diag)
{
    json_t *root = json_object();
    json_object_set_new(root, "device", json_string(slice->gpu->name));
    json_object_set_new(root, "slice", json_string(slice->name));
    json_object_set_new(root, "batch", json_integer(o->batch));
    json_object_set(root, "models", models);
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(root);
    if (!text)
        return WEFT_ERR_NOMEM;
    weft_buf buf = {0};
    weft_buf_printf(&buf, "%s\n", text);
    free(text);
    weft_err err = buf.failed ? WEFT_ERR_NOMEM
                              : weft_file_write(o->output ? o->output : "-", buf.at, buf.len, diag);
    weft_buf_finish(&buf);
    return err;
}

static weft_err estimate(const options *o, const weft_slice *slice, weft_diag *diag)
{
    weft_file_kind kind = WEFT_FILE_ONNX;
    weft_tool_sources sources = {0};
    weft_arena *arena = weft_arena_create(0);
    json_t *models = json_array();
    weft_err err = arena && models ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
    if (err == WEFT_ERR_OK && o->n_file == 1 && strcmp(o->file[0], "-") != 0)
        err = weft_tool_sniff(o->file[0], diag, &kind);
    if (err == WEFT_ERR_OK)
        err = kind == WEFT_FILE_BUNDLE ? estimate_bundle(o, slice, models, diag)
                                       : estimate_sources(o, slice, models, &sources, arena, diag);
    if (err == WEFT_ERR_OK && o->json)
        err = write_json(o, slice, models, diag);
    json_decref(models);
    weft_module_destroy(sources.module);
    weft_arena_destroy(arena);
    return err;
}

enum { OPT_GPU = 1, OPT_SLICE, OPT_SHARE, OPT_BATCH, OPT_DIM, OPT_KERNEL, OPT_EXACT, OPT_FORMAT };

/* Returns -1 to go on, or an exit code. */
static int parse(int argc, char **argv, options *o)
{
    static const struct option longs[] = {{"gpu", required_argument, NULL, OPT_GPU},
                                          {"slice", required_argument, NULL, OPT_SLICE},
                                          {"share", required_argument, NULL, OPT_SHARE},
                                          {"batch", required_argument, NULL, OPT_BATCH},
                                          {"dim", required_argument, NULL, OPT_DIM},
                                          {"per-kernel", no_argument, NULL, OPT_KERNEL},
                                          {"exact-f32", no_argument, NULL, OPT_EXACT},
                                          {"format", required_argument, NULL, OPT_FORMAT},
                                          {"output", required_argument, NULL, 'o'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    double part;
    int opt;
    optind = 1;
    while ((opt = getopt_long(argc, argv, "o:h", longs, NULL)) != -1) {
        switch (opt) {
        case 'h':
            return weft_tool_help(&weft_verb_estimate);
        case 'o':
            o->output = optarg;
            o->json = true;
            break;
        case OPT_GPU:
            o->gpu = optarg;
            break;
        case OPT_SLICE:
            o->slice = optarg;
            break;
        case OPT_SHARE:
            o->slice = optarg;
            if (!weft_parse_percent(optarg, &part))
                return weft_tool_usage(&weft_verb_estimate,
                                       "--share needs a percentage such as 40%%, not '%s'", optarg);
            break;
        case OPT_BATCH:
            if (!weft_parse_i64(optarg, &o->batch) || o->batch < 1 || o->batch > 1 << 20)
                return weft_tool_usage(&weft_verb_estimate,
                                       "--batch needs a number from 1 to 1048576, not '%s'",
                                       optarg);
            break;
        case OPT_DIM:
            if (!strchr(optarg, '=') || o->n_dim == DIMS_MAX)
                return weft_tool_usage(&weft_verb_estimate,
                                       "--dim needs NAME=VALUE, at most 16 times, not '%s'",
                                       optarg);
            o->dim[o->n_dim++] = optarg;
            break;
        case OPT_KERNEL:
            o->per_kernel = true;
            break;
        case OPT_EXACT:
            o->exact_f32 = true;
            break;
        case OPT_FORMAT:
            if (!weft_tool_parse_format(optarg, &o->json))
                return weft_tool_usage(&weft_verb_estimate, "--format takes text or json, not '%s'",
                                       optarg);
            break;
        default:
            return weft_tool_usage(&weft_verb_estimate, "wrong option");
        }
    }
    o->file = argv + optind;
    o->n_file = argc - optind;
    if (o->n_file < 1)
        return weft_tool_usage(&weft_verb_estimate, "name a model, a set or a bundle");
    if (!o->gpu)
        return weft_tool_usage(&weft_verb_estimate, "--gpu NAME is needed");
    return -1;
}

static int run_estimate(int argc, char **argv)
{
    options o = {.slice = "", .batch = 1};
    int code = parse(argc, argv, &o);
    if (code >= 0)
        return code;
    weft_diag *diag = weft_diag_create();
    weft_slice slice;
    if (!diag)
        return weft_tool_report(NULL, WEFT_ERR_NOMEM);
    if (weft_slice_make(o.gpu, o.slice, diag, &slice) != WEFT_ERR_OK)
        code = weft_tool_usage(&weft_verb_estimate, "%s", weft_diag_at(diag, 0)->text);
    else
        code = weft_tool_report(diag, estimate(&o, &slice, diag));
    weft_diag_destroy(diag);
    return code;
}

const weft_verb weft_verb_estimate = {
    .name = "estimate",
    .brief = "estimate time, compute, memory and energy without running",
    .usage =
        "usage: weft estimate MODEL.onnx|SET.yaml|MODULE.wir|BUNDLE.weft --gpu NAME [OPTIONS]\n"
        "Estimates time, compute need (creq), memory need (mreq) and energy of each model, one\n"
        "execution of one batch, and says where the numbers come from and their expected error.\n\n"
        "      --gpu NAME           device; `weft list gpus` names them\n"
        "      --slice NAME         MIG profile such as 1g.18gb, or cores of a CPU such as 2core\n"
        "      --share 40%          MPS share of the device\n"
        "      --batch N            batch size (1)\n"
        "      --dim NAME=VALUE     value of another symbolic dimension; several may be given\n"
        "      --per-kernel         each kernel too\n"
        "      --exact-f32          no TF32 for f32 products\n"
        "  -o, --output FILE        write JSON there\n"
        "      --format text|json   what is printed\n",
    .run = run_estimate,
};
