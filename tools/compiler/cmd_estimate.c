/* weft estimate: what models cost on a device, without running them. */
#include "tools/compiler/estimate.h"

#include "ir/bundle.h"
#include "ir/ir.h"
#include "tools/compiler/sources.h"
#include "tools/profile/calibration_file.h"
#include "tools/profile/machine_calibration.h"
#include "tools/compiler/estimate_kernels.h"
#include "tools/profile/pipeline.h"
#include "tools/profile/profiles.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* -- One model on one slice ------------------------------------------------------------------- */

/* Replaces the estimated memory on a CPU by what the driver of this machine says: packed weights
 * and scratch memory depend on the kernel. If the driver fails, the estimate stays. */
static void count_memory(const weft_tool_estimate *o, weft_bundle *bundle, const int64_t *symbol,
                         weft_tool_finding *f)
{
    const weft_engine_options options = {.threads = f->slice->units};
    weft_diag *why = weft_diag_create();
    weft_memory_plan *m = &f->memory;
    weft_estimate *e = &f->e;
    f->is_exact_memory = why && weft_memory_plan_make(bundle, f->name, symbol, &options,
                                                      o->program_bytes, why, m) == WEFT_ERR_OK;
    weft_diag_destroy(why);
    if (!f->is_exact_memory)
        return;
    e->weight_bytes = m->packed_bytes + m->file_bytes;
    e->arena_bytes = m->arena_bytes;
    e->io_bytes = m->input_bytes;
    e->context_bytes = m->process_bytes;
    e->workspace_bytes =
        m->peak_bytes - e->weight_bytes - e->arena_bytes - e->io_bytes - e->context_bytes;
    e->total.mreq_bytes = m->peak_bytes;
}

static void add_price(const weft_tool_prices *prices, weft_tool_finding *f)
{
    double per_hour = weft_tool_price_of(prices, f->slice->gpu->name);
    if (!(per_hour > 0) || !(f->throughput_per_s > 0))
        return;
    f->price_per_hour = per_hour * weft_slice_parts(f->slice);
    f->price_per_million = f->price_per_hour / 3600 / f->throughput_per_s * 1e6;
}

/* Computes throughput, price and whether the model fits, from `cost` of one process and `procs`. */
static weft_err add_up(const weft_tool_prices *prices, weft_tool_finding *f, weft_diag *diag)
{
    double per_s = 1e6 / f->cost.time_us;
    if (f->procs > 1) {
        weft_contender alone = weft_contention_demand(&f->e, f->slice);
        WEFT_TRY(weft_contention_procs(&alone, f->procs, diag, &f->cost.time_us, &per_s));
    }
    f->throughput_per_s = per_s * (double)f->batch;
    f->fits_known = f->slice->mem_bytes > 0;
    f->fits = f->cost.mreq_bytes <= f->slice->mem_bytes / f->procs;
    add_price(prices, f);
    return WEFT_ERR_OK;
}

static weft_err estimate_slice(const weft_tool_estimate *o, const weft_workload *work,
                               weft_bundle *bundle, const int64_t *symbol, weft_arena *arena,
                               weft_diag *diag, weft_tool_finding *f)
{
    if (o->calibration && strcmp(o->fit.gpu, f->slice->gpu->name) == 0)
        f->how.calibration = &o->fit;
    WEFT_TRY(weft_estimate_workload(work, f->slice, &f->how, arena, diag, &f->e));
    if (bundle && f->slice->gpu->is_cpu)
        count_memory(o, bundle, symbol, f);
    f->cost = f->e.total;
    return add_up(&o->prices, f, diag);
}

/* The sources, lowered for the devices of one kind; m NULL: no slice is of this kind. */
typedef struct lowered {
    weft_tool_sources sources;
    weft_module *m;      /* own module, or that of the other kind */
    bool is_given;       /* the file was lowered already */
    weft_bundle *bundle; /* the bundle that the CPU driver would load; NULL: none */
} lowered;

enum { ON_CPU, ON_GPU, KINDS };

static int kind_of(const weft_slice *slice)
{
    return slice->gpu->is_cpu ? ON_CPU : ON_GPU;
}

/* Estimates graph `index` at one batch size on the slices `first` to `end`. */
static weft_err estimate_batch(weft_tool_estimate *o, const lowered *by_kind, uint32_t index,
                               int64_t batch, size_t first, size_t end, weft_arena *arena,
                               weft_diag *diag, weft_tool_finding *out)
{
    weft_estimate_options how = {.exact_f32 = o->pass.exact_f32, .model = o->model};
    weft_workload work[KINDS];
    int64_t *symbol[KINDS] = {NULL};
    if (o->framework)
        how.lowering = WEFT_LOWERING_FRAMEWORK;
    for (size_t s = first; s < end; s++, out++) {
        int k = kind_of(&o->at[s]);
        weft_graph *g = weft_graph_at(by_kind[k].m, index);
        if (!symbol[k]) {
            symbol[k] =
                weft_arena_array(arena, (size_t)weft_graph_symbol_count(g) + 1, sizeof *symbol[k]);
            weft_err err = weft_tool_estimate_symbols(o, g, batch, diag, symbol[k]);
            o->usage = err != WEFT_ERR_OK;
            WEFT_TRY(err);
            WEFT_TRY(weft_workload_make(g, symbol[k], &how, arena, diag, &work[k]));
        }
        *out = (weft_tool_finding){.name = weft_graph_name(g),
                                   .m = by_kind[k].m,
                                   .slice = &o->at[s],
                                   .batch = batch,
                                   .procs = o->procs,
                                   .how = how};
        WEFT_TRY(estimate_slice(o, &work[k], by_kind[k].bundle, symbol[k], arena, diag, out));
    }
    return WEFT_ERR_OK;
}

/* -- Models ----------------------------------------------------------------------------------- */

static weft_err lower(const weft_tool_estimate *o, weft_module *m, const weft_gpu *gpu,
                      weft_diag *diag)
{
    weft_tool_pipeline pipeline = {.doing = "lowering",
                                   .run = {.verify = WEFT_VERIFY_OFF, .pass = o->pass}};
    size_t n = 0;
    pipeline.run.pass.batch = o->batch;
    pipeline.run.pass.n_batch = o->n_batch;
    if (weft_module_stage(m) != WEFT_STAGE_GRAPH) {
        const char *option = o->framework                    ? "--lowering framework"
                             : weft_tool_is_narrow(&o->pass) ? "--precision f16 or bf16"
                                                             : NULL;
        return option ? weft_diag_error(diag, WEFT_ERR_UNSUP, (weft_where){.file = o->file[0]},
                                        "is lowered already; %s needs the graph stage", option)
                      : WEFT_ERR_OK;
    }
    const weft_pass *const *framework = weft_pipeline("framework", &n);
    weft_err err = o->framework ? weft_tool_pipeline_run(&pipeline, m, framework, n, diag)
                                : weft_tool_pipeline_lower(&pipeline, m, gpu, diag);
    weft_tool_progress(NULL);
    return err;
}

/* Makes the bundle that the CPU driver would load; NULL: the module has no memory plan. */
static weft_bundle *make_bundle(const weft_tool_estimate *o, weft_module *m, weft_arena *arena)
{
    if (o->framework || weft_module_stage(m) != WEFT_STAGE_PLAN)
        return NULL;
    weft_bundle *bundle = weft_arena_array(arena, 1, sizeof *bundle);
    weft_diag *why = weft_diag_create();
    bool done = why && weft_codegen_bundle(m, weft_backend_find("cpu"), NULL, NULL, arena, why,
                                           bundle) == WEFT_ERR_OK;
    weft_diag_destroy(why);
    return done ? bundle : NULL;
}

static weft_err write_profile(weft_tool_estimate *o, weft_module *m, weft_arena *arena,
                              weft_diag *diag)
{
    const weft_slice *slice;
    size_t n;
    weft_profile profile;
    weft_tool_profile_options how = {.calibration = o->calibration ? &o->fit : NULL,
                                     .exact_f32 = o->pass.exact_f32};
    if (weft_graph_model_count(m) != 1)
        return weft_diag_error(diag, WEFT_ERR_UNSUP, (weft_where){.file = o->file[0]},
                               "holds %u models; a profile is of one", weft_graph_model_count(m));
    WEFT_TRY(weft_tool_gpu_slices(o->gpu, arena, diag, &slice, &n));
    WEFT_TRY(weft_tool_profile_graph(weft_graph_at(m, 0), slice, n, &how, arena, diag, &profile));
    if (profile.n == 0)
        return WEFT_ERR_UNSUP;
    return weft_tool_write_profile(&profile, o->output, diag);
}

static weft_err report(const weft_tool_estimate *o, const weft_tool_finding *f, size_t n,
                       weft_diag *diag)
{
    if (o->draw)
        WEFT_TRY(weft_tool_draw_findings(o, f, n, diag));
    if (o->json)
        return weft_tool_write_findings(o, f, n, diag);
    if (o->compare && !o->explain && !o->per_kernel) {
        weft_tool_print_comparison(f, n);
        return WEFT_ERR_OK;
    }
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            putchar('\n');
        weft_tool_print_finding(o, &f[i]);
    }
    return WEFT_ERR_OK;
}

/* Loads and lowers the sources for the kind of this slice. Models that are lowered already, or
 * lowered for a framework, are the same for every kind. */
static weft_err lower_kind(weft_tool_estimate *o, const weft_slice *slice, lowered *by_kind,
                           weft_arena *arena, weft_diag *diag)
{
    const weft_import_options import = {0};
    lowered *own = &by_kind[kind_of(slice)], *other = &by_kind[!kind_of(slice)];
    if (other->m && (o->framework || other->is_given)) {
        own->m = other->m;
    } else {
        WEFT_TRY((other->m ? weft_tool_load_again : weft_tool_load_sources)(
            o->file, o->n_file, &import, arena, diag, &own->sources));
        own->m = own->sources.module;
        own->is_given = weft_module_stage(own->m) != WEFT_STAGE_GRAPH;
        WEFT_TRY(lower(o, own->m, slice->gpu, diag));
    }
    if (kind_of(slice) == ON_CPU)
        own->bundle = make_bundle(o, own->m, arena);
    return WEFT_ERR_OK;
}

/* Model i on share i while the others run, with the batch of all or the i-th of as many. */
static weft_err estimate_together(weft_tool_estimate *o, const lowered *by_kind,
                                  weft_tool_finding *f, weft_arena *arena, weft_diag *diag)
{
    const weft_module *m = by_kind[kind_of(&o->at[0])].m;
    uint32_t n_model = weft_graph_model_count(m);
    size_t n = 0;
    o->usage = n_model != o->n_at || (o->n_batch != 1 && o->n_batch != n_model);
    if (o->usage)
        return weft_diag_error(
            diag, WEFT_ERR_INPUT, (weft_where){.file = o->file[0]},
            "%u models with %zu shares and %zu batch sizes: --share LIST takes one "
            "share for each model, --batch one size for all or one for each",
            n_model, o->n_at, o->n_batch);
    for (uint32_t i = 0; i < weft_graph_count(m); i++) {
        if (!weft_graph_is_model(weft_graph_at(m, i)))
            continue;
        WEFT_TRY(estimate_batch(o, by_kind, i, o->batch[o->n_batch > 1 ? n : 0], n, n + 1, arena,
                                diag, &f[n]));
        n++;
    }
    WEFT_TRY(weft_tool_slow_down(f, n, diag));
    return report(o, f, n, diag);
}

static weft_err estimate_modules(weft_tool_estimate *o, lowered *by_kind, weft_arena *arena,
                                 weft_diag *diag)
{
    for (size_t s = 0; s < o->n_at; s++)
        if (!by_kind[kind_of(&o->at[s])].m)
            WEFT_TRY(lower_kind(o, &o->at[s], by_kind, arena, diag));
    weft_module *m = by_kind[kind_of(&o->at[0])].m;
    size_t each = o->n_at * o->n_batch, n = 0;
    weft_tool_finding *f = weft_arena_array(arena, each * weft_graph_count(m) + 1, sizeof *f);
    WEFT_TRY(weft_tool_estimate_check_dims(o, m, diag));
    if (o->calibrate)
        return weft_tool_calibrate(o, m, diag);
    if (o->profile)
        return write_profile(o, m, arena, diag);
    if (o->together)
        return estimate_together(o, by_kind, f, arena, diag);
    for (uint32_t i = 0; i < weft_graph_count(m); i++) {
        if (weft_graph_is_body(weft_graph_at(m, i)))
            continue;
        for (size_t b = 0; b < o->n_batch; b++, n += o->n_at)
            WEFT_TRY(estimate_batch(o, by_kind, i, o->batch[b], 0, o->n_at, arena, diag, &f[n]));
    }
    return report(o, f, n, diag);
}

static weft_err estimate_sources(weft_tool_estimate *o, weft_arena *arena, weft_diag *diag)
{
    lowered by_kind[KINDS] = {0};
    weft_err err = estimate_modules(o, by_kind, arena, diag);
    for (int k = 0; k < KINDS; k++)
        weft_module_destroy(by_kind[k].sources.module);
    return err;
}

/* -- Bundles ---------------------------------------------------------------------------------- */

static const weft_profile_point *find_point(const weft_profile *profile, const weft_slice *slice,
                                            int64_t batch, int64_t procs)
{
    for (size_t k = 0; k < profile->n; k++) {
        const weft_profile_point *point = &profile->point[k];
        if (point->batch == batch && point->procs == procs &&
            strcmp(point->device, slice->gpu->name) == 0 && strcmp(point->slice, slice->name) == 0)
            return point;
    }
    return NULL;
}

static weft_err find_in_bundle(weft_tool_estimate *o, const weft_bundle_program *p, size_t b,
                               size_t s, weft_diag *diag, weft_tool_finding *f)
{
    const weft_slice *slice = &o->at[s];
    const weft_profile_point *point = find_point(&p->profile, slice, o->batch[b], o->procs);
    o->usage = !point;
    if (!point)
        return weft_diag_error(diag, WEFT_ERR_UNSUP,
                               (weft_where){.file = o->file[0], .item = p->name},
                               "the bundle has no estimate for %s%s%s, batch %lld, processes %lld; "
                               "compile with --gpu and --batch, or give the model file",
                               slice->gpu->name, slice->name[0] ? ":" : "", slice->name,
                               (long long)o->batch[b], (long long)o->procs);
    *f = (weft_tool_finding){.name = p->name,
                             .slice = slice,
                             .batch = o->batch[b],
                             .procs = o->procs,
                             .cost = point->cost,
                             .throughput_per_s = point->throughput_per_s > 0
                                                     ? point->throughput_per_s
                                                     : (double)point->batch * point->procs * 1e6 /
                                                           point->cost.time_us};
    f->fits_known = slice->mem_bytes > 0;
    f->fits = f->cost.mreq_bytes <= slice->mem_bytes / f->procs;
    add_price(&o->prices, f);
    return WEFT_ERR_OK;
}

/* Reports the estimates that a bundle has. A bundle has no graphs, so other estimates are
 * refused. */
static weft_err read_bundle(weft_tool_estimate *o, const weft_bundle *bundle, weft_arena *arena,
                            weft_diag *diag)
{
    size_t n = 0;
    weft_tool_finding *f =
        weft_arena_array(arena, (size_t)bundle->n_program * o->n_at * o->n_batch + 1, sizeof *f);
    if (o->per_kernel || o->explain || o->draw || o->framework || o->calibrate || o->n_dim ||
        o->together)
        return weft_diag_error(diag, WEFT_ERR_UNSUP, (weft_where){.file = o->file[0]},
                               "a bundle has no kernels of the compiler; give the model file");
    if (o->pass.precision != WEFT_DTYPE_NONE || o->model || o->calibration)
        return weft_diag_error(diag, WEFT_ERR_UNSUP, (weft_where){.file = o->file[0]},
                               "a bundle has estimates, which --precision, --model and "
                               "--calibration do not change; give the model file");
    if (o->profile && bundle->n_program != 1)
        return weft_diag_error(diag, WEFT_ERR_UNSUP, (weft_where){.file = o->file[0]},
                               "holds %u models; a profile is of one", bundle->n_program);
    if (o->profile)
        return weft_tool_write_profile(&bundle->program[0].profile, o->output, diag);
    for (uint32_t i = 0; i < bundle->n_program; i++)
        for (size_t b = 0; b < o->n_batch; b++)
            for (size_t s = 0; s < o->n_at; s++)
                WEFT_TRY(find_in_bundle(o, &bundle->program[i], b, s, diag, &f[n++]));
    return report(o, f, n, diag);
}

static weft_err estimate_bundle(weft_tool_estimate *o, weft_arena *arena, weft_diag *diag)
{
    weft_bundle *bundle = NULL;
    WEFT_TRY(weft_bundle_open(o->file[0], diag, &bundle));
    weft_err err = read_bundle(o, bundle, arena, diag);
    weft_bundle_close(bundle);
    return err;
}

/* -- The verb --------------------------------------------------------------------------------- */

static bool uses_device(const weft_tool_estimate *o, const char *gpu)
{
    bool used = o->kernels && !o->gpu; /* rows may name it */
    for (size_t i = 0; i < o->n_at; i++)
        used = used || strcmp(o->at[i].gpu->name, gpu) == 0;
    return used || (o->gpu && strcmp(o->gpu, gpu) == 0);
}

/* Loads the calibration that the options name, else that of this machine's CPU, and says so. */
static weft_err find_calibration(weft_tool_estimate *o, weft_arena *arena, weft_diag *diag)
{
    if (o->calibration && strcmp(o->calibration, "none") == 0) {
        o->calibration = NULL;
        return WEFT_ERR_OK;
    }
    if (o->calibration) {
        WEFT_TRY(weft_tool_calibration_load(o->calibration, diag, &o->fit));
        if (!uses_device(o, o->fit.gpu))
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = o->calibration},
                                   "is a calibration of %s, not of %s", o->fit.gpu,
                                   o->n_at > 0 ? o->at[0].gpu->name : o->gpu);
        return WEFT_ERR_OK;
    }
    return o->calibrate || o->features || !uses_device(o, "cpu")
               ? WEFT_ERR_OK
               : weft_tool_machine_calibration(arena, diag, &o->fit, &o->calibration);
}

static weft_err run_options(weft_tool_estimate *o, weft_arena *arena, weft_diag *diag)
{
    weft_file_kind kind = WEFT_FILE_ONNX;
    WEFT_TRY(weft_tool_prices_load(o->prices_file, arena, diag, &o->prices));
    if (!o->json && !o->output)
        weft_tool_prices_print(&o->prices);
    if (o->n_file == 1 && !o->kernels && strcmp(o->file[0], "-") != 0)
        WEFT_TRY(weft_tool_sniff(o->file[0], diag, &kind));
    if (kind != WEFT_FILE_BUNDLE || o->calibration)
        WEFT_TRY(find_calibration(o, arena, diag));
    if (o->kernels) {
        const weft_tool_kernels how = {.input = o->kernels,
                                       .output = o->output,
                                       .gpu = o->gpu,
                                       .slice = o->slice,
                                       .model = o->model,
                                       .calibration = o->calibration ? &o->fit : NULL,
                                       .no_dispatch = o->no_dispatch,
                                       .features = o->features};
        return weft_tool_estimate_kernels(&how, diag);
    }
    if (o->n_file == 0)
        return weft_tool_calibrate(o, NULL, diag);
    return kind == WEFT_FILE_BUNDLE ? estimate_bundle(o, arena, diag)
                                    : estimate_sources(o, arena, diag);
}

#define OPTIONS_OF_estimate
#define OPTIONS weft_tool_estimate
#include "tools/common/option_rows.h"

/* Returns -1 to go on, or an exit code. */
static int parse(int argc, char **argv, weft_tool_estimate *o)
{
    *o = (weft_tool_estimate){.slice = "",
                              .batch = {1},
                              .n_batch = 1,
                              .procs = 1,
                              .program_bytes = weft_tool_resident_bytes()};
    int code = weft_options_parse(&weft_verb_estimate, argc, argv, o);
    if (code >= 0)
        return code;
    o->file = argv + optind;
    o->n_file = argc - optind;
    return weft_tool_estimate_check(o, &weft_verb_estimate);
}

static int run_estimate(int argc, char **argv)
{
    int code = WEFT_EXIT_FAILED;
    weft_err err = WEFT_ERR_NOMEM;
    weft_tool_estimate *o = calloc(1, sizeof *o);
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    if (o && diag && arena) {
        code = parse(argc, argv, o);
        err = code < 0 ? run_options(o, arena, diag) : WEFT_ERR_OK;
    }
    if (!o || code < 0 || err != WEFT_ERR_OK) {
        code = weft_tool_report(diag, err);
        if (err != WEFT_ERR_OK && o && o->usage)
            code = WEFT_EXIT_USAGE;
    }
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    free(o);
    return code;
}

const weft_verb weft_verb_estimate = {.name = "estimate", .row = rows, .run = run_estimate};
