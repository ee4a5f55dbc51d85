/* weft compile: compiles a set of models into one bundle. */
#include "base/cpus.h"
#include "codegen/codegen.h"
#include "frontend/frontend.h"
#include "runtime/runtime.h"
#include "scheduler/scheduler.h"
#include "tools/profile/calibration_file.h"
#include "tools/compiler/compile_summary.h"
#include "tools/compiler/adapters.h"
#include "tools/compiler/conv_targets.h"
#include "tools/compiler/follow_plan.h"
#include "tools/compiler/kernel_cache.h"
#include "tools/compiler/measure_error.h"
#include "tools/compiler/merge_report.h"
#include "tools/compiler/sources.h"
#include "tools/profile/pipeline.h"
#include "tools/profile/profiles.h"
#include "tools/compiler/tolerance.h"
#include "tools/compiler/tune.h"

#include <string.h>
#include <unistd.h>

typedef struct options {
    weft_tool_pipeline pipeline;
    const char *output, *depfile, *report, *similarity, *picture, *plan, *gpu, *calibration;
    const char *repository, *kernel_cache;
    bool allow_hard_links, tune, text_report;
    bool tf32;                 /* GEMMs of f32 may round their operands */
    bool is_f32;               /* nothing is computed in less than f32 */
    weft_tool_changes changes; /* effects of --merge-tolerance and --deltas near */
    weft_tool_precision watch;
    weft_tool_adapters adapters;
    char **file;
    int n_file;
} options;

static bool is_for_gpu(const options *o)
{
    return weft_target_is_gpu(o->pipeline.run.pass.target);
}

/* Reports all names that --merge takes. */
static int refuse_merge(const weft_verb *verb, const char *arg)
{
    weft_buf names = {0};
    const weft_merge_strategy *one;
    for (size_t i = 0; (one = weft_merge_strategy_at(i)); i++)
        weft_buf_printf(&names, ", %s", weft_merge_strategy_name(one));
    int code = weft_tool_usage(verb, "--merge takes auto, exact, off%s; there is no strategy '%s'",
                               names.at && !names.failed ? names.at : "", arg);
    weft_buf_finish(&names);
    return code;
}

static int take_merge(void *at, const weft_verb *verb, char *arg)
{
    weft_pass_options *pass = at;
    pass->strategy = weft_merge_strategy_find(arg);
    if (pass->strategy)
        pass->merge = WEFT_MERGE_STRATEGY;
    else if (strcmp(arg, "auto") == 0)
        pass->merge = WEFT_MERGE_AUTO;
    else if (strcmp(arg, "off") == 0)
        pass->merge = WEFT_MERGE_OFF;
    else if (strcmp(arg, "exact") == 0)
        pass->merge = WEFT_MERGE_EXACT;
    else
        return refuse_merge(verb, arg);
    return 0;
}

static int take_deltas(void *at, const weft_verb *verb, char *arg)
{
    weft_pass_options *pass = at;
    if (strcmp(arg, "off") == 0)
        pass->deltas = WEFT_DELTAS_OFF;
    else if (strcmp(arg, "exact") == 0)
        pass->deltas = WEFT_DELTAS_EXACT;
    else if (strcmp(arg, "near") == 0)
        pass->deltas = WEFT_DELTAS_NEAR;
    else
        return weft_tool_usage(verb, "--deltas takes off, exact, near, not '%s'", arg);
    return 0;
}

#define OPTIONS_OF_compile
#define OPTIONS options
#include "tools/common/option_rows.h"

/* Returns -1 to go on, or an exit code. */
static int parse(int argc, char **argv, options *o)
{
    int code = weft_options_parse(&weft_verb_compile, argc, argv, o);
    if (code >= 0)
        return code;
    o->file = argv + optind;
    o->n_file = argc - optind;
    if (o->n_file > 0 && o->repository)
        return weft_tool_usage(&weft_verb_compile, "--repository excludes other files");
    if (o->repository) {
        o->file = (char **)&o->repository;
        o->n_file = 1;
    }
    if (o->n_file == 0)
        return weft_tool_usage(&weft_verb_compile, "name a set file, ONNX files or a --repository");
    const weft_pass_options *pass = &o->pipeline.run.pass;
    bool narrow = weft_tool_is_narrow(pass), is_given = pass->precision != WEFT_DTYPE_NONE;
    o->tf32 = !narrow && !pass->exact_f32 && (is_for_gpu(o) || is_given);
    o->is_f32 = !narrow && !o->tf32;
    if (!o->is_f32 && !is_for_gpu(o))
        return weft_tool_usage(&weft_verb_compile, "--precision other than f32 needs a GPU as "
                                                   "--target; CPUs compute in f32");
    if (!o->output && !o->pipeline.run.stop_after)
        return weft_tool_usage(&weft_verb_compile, "name the bundle to write: -o FILE");
    return -1;
}

/* A bundle that is to be written over the file of a model would end that. */
static weft_err check_output(const options *o, const weft_tool_sources *sources, weft_diag *diag)
{
    for (size_t i = 0; o->output && sources->set && i < sources->set->n_model; i++) {
        const char *file = sources->set->model[i].file;
        if (file && weft_tool_is_same_file(file, o->output))
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = o->output},
                                   "is the file of model '%s': name another file for the bundle",
                                   sources->set->model[i].name);
    }
    return WEFT_ERR_OK;
}

static void add_dependency(weft_buf *text, const char *path)
{
    weft_buf_putc(text, ' ');
    for (const char *s = path; *s; s++) {
        /* make would take these as the end of a name */
        if (*s == ' ' || *s == '#' || *s == '\\')
            weft_buf_putc(text, '\\');
        if (*s == '$')
            weft_buf_putc(text, '$');
        weft_buf_putc(text, *s);
    }
}

/* Whether the set has a recorded profile of the model, in the layout with a column for its host
 * cost. */
static bool tells_host_cost(const weft_tool_sources *sources, const weft_set_model *model)
{
    weft_file_kind kind = WEFT_FILE_BUNDLE;
    return model && model->profile && strcmp(sources->set->profile_layout, "weft") == 0 &&
           weft_tool_sniff(model->profile, NULL, &kind) == WEFT_ERR_OK && kind != WEFT_FILE_BUNDLE;
}

/* Configurations of a repository: of the model, and of the steps of an ensemble. */
static void add_configs(weft_buf *text, const weft_set_model *model)
{
    if (model->config && model->config->file)
        add_dependency(text, model->config->file);
    for (size_t i = 0; i < model->n_step; i++)
        if (model->step[i].model->config->file)
            add_dependency(text, model->step[i].model->config->file);
}

static void add_adapter(weft_buf *text, const char *folder)
{
    static const char *const file[] = {"adapter_config.json", "adapter_model.safetensors"};
    for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
        weft_buf path = {0};
        weft_buf_printf(&path, "%s/%s", folder, file[i]);
        if (path.failed)
            text->failed = true;
        else
            add_dependency(text, path.at);
        weft_buf_finish(&path);
    }
}

/* Writes a make rule with the set file and every file that the module was read from: models,
 * external weights, configurations. */
static weft_err write_depfile(const options *o, const weft_tool_sources *sources, weft_diag *diag)
{
    weft_buf text = {0};
    const char *path;
    weft_buf_printf(&text, "%s:", o->output);
    if (sources->set_file)
        add_dependency(&text, sources->set_file);
    for (uint32_t i = 1; (path = weft_module_file_path(sources->module, i)); i++)
        if (weft_module_file_is_mapped(sources->module, i))
            add_dependency(&text, path);
    for (uint32_t i = 0; i < weft_graph_model_count(sources->module); i++) {
        const weft_set_model *model = sources->model[i];
        if (tells_host_cost(sources, model))
            add_dependency(&text, model->profile);
        if (model)
            add_configs(&text, model);
    }
    const char *folder;
    for (size_t i = 0; (folder = weft_tool_adapter_folder(&o->adapters, i)); i++)
        add_adapter(&text, folder);
    weft_buf_puts(&text, "\n");
    weft_err err =
        text.failed ? WEFT_ERR_NOMEM : weft_file_write(o->depfile, text.at, text.len, diag);
    weft_buf_finish(&text);
    return err;
}

static weft_err write_text(weft_module *m, const char *path, weft_diag *diag)
{
    weft_buf text = {0};
    weft_module_print(m, &text);
    weft_err err =
        text.failed ? WEFT_ERR_NOMEM : weft_file_write(path ? path : "-", text.at, text.len, diag);
    weft_buf_finish(&text);
    return err;
}

static void show_kernels(uint32_t done, uint32_t total)
{
    weft_tool_advance(done, total, "modules");
}

/* Makes the bundle. For GPUs this also compiles kernels, as many at once as there are
 * processors. */
static weft_err make_bundle(const options *o, weft_module *m, const weft_codegen_model *model,
                            weft_codegen_cache *cache, weft_arena *arena, weft_diag *diag,
                            weft_bundle *out)
{
    const weft_codegen_options how = {.model = model,
                                      .target = o->pipeline.run.pass.target,
                                      .n_thread = weft_cpus_usable(),
                                      .tf32 = o->tf32,
                                      .worker = "/proc/self/exe",
                                      .cache = cache,
                                      .progress = show_kernels};
    if (!is_for_gpu(o))
        return weft_codegen_bundle(m, weft_backend_find("cpu"), model, NULL, arena, diag, out);
    weft_tool_progress("compiling kernels for %s", how.target);
    return weft_codegen_make(m, weft_backend_find("cuda"), &how, arena, diag, out);
}

static weft_err write_reports(const options *o, weft_module *m, const weft_bundle *bundle,
                              const weft_conv_planning *convs, weft_arena *arena, weft_diag *diag)
{
    weft_tool_expectations expected = {0};
    const weft_merge_log *log = o->pipeline.run.pass.merge_log;
    const weft_tool_measured measured = {.tolerance = o->pipeline.run.pass.merge_tolerance,
                                         .deltas = o->pipeline.run.pass.deltas,
                                         .by_weights = o->changes,
                                         .convs = convs,
                                         .precision = o->watch.name,
                                         .by_precision = o->watch.changes};
    if (o->report) {
        weft_tool_expect_joint(m, &o->pipeline.run.pass, arena, &expected);
        WEFT_TRY(weft_tool_write_report(bundle, log, &expected, &measured, o->report,
                                        !o->text_report, diag));
    }
    if (o->similarity)
        WEFT_TRY(weft_tool_write_pairs(log, o->similarity, diag));
    return o->picture ? weft_tool_write_picture(m, o->picture, diag) : WEFT_ERR_OK;
}

/* Measures which algorithms of cuBLASLt are the fastest on the GPU of this machine. */
static weft_err tune_gemms(weft_bundle *bundle, weft_arena *arena, weft_diag *diag)
{
    weft_bundle_tuning *tuning = weft_arena_alloc(arena, sizeof *tuning);
    weft_tool_progress("measuring GEMMs");
    WEFT_TRY(weft_tune_gemms(bundle, NULL, arena, diag, tuning));
    bundle->tuning = tuning;
    bundle->n_tuning = tuning->n_algo > 0;
    return WEFT_ERR_OK;
}

static void append(weft_profile *to, const weft_profile *from, weft_arena *arena)
{
    weft_profile_point *point = weft_arena_array(arena, to->n + from->n + 1, sizeof *point);
    if (to->n > 0)
        memcpy(point, to->point, to->n * sizeof *point);
    if (from->n > 0)
        memcpy(point + to->n, from->point, from->n * sizeof *point);
    *to = (weft_profile){.point = point, .n = to->n + from->n, .host_us = to->host_us};
}

/* Profiles of the models of a joint graph, of which `model` has those of all graphs of `m`. */
static const weft_profile *const *profiles_of_parts(const weft_module *m, const weft_graph *joint,
                                                    const weft_profile *model, weft_arena *arena)
{
    uint32_t n = weft_graph_part_count(joint);
    const weft_profile **part = weft_arena_array(arena, n, sizeof *part);
    for (uint32_t i = 0; i < n; i++)
        part[i] = &model[weft_graph_index(weft_graph_find(m, weft_graph_part(joint, i)->model))];
    return part;
}

/* Adds the estimates for all ways to use a device to the profile of each graph. `m` has the graphs
 * of `sources`, lowered for such devices; a joint graph that it lacks gets no points. */
static weft_err profile_device(const weft_tool_sources *sources, weft_module *m, const char *device,
                               const weft_tool_profile_options *how, weft_arena *arena,
                               weft_diag *diag, weft_codegen_model *out)
{
    const weft_slice *slice = NULL;
    size_t n = 0;
    weft_profile *found = weft_arena_array(arena, weft_graph_count(m), sizeof *found);
    WEFT_TRY(weft_tool_gpu_slices(device, arena, diag, &slice, &n));
    weft_tool_progress("estimating for %s", device);
    for (uint32_t i = 0, at = 0; i < weft_graph_count(sources->module); i++) {
        const weft_graph *g = weft_graph_at(sources->module, i);
        weft_tool_advance(i, weft_graph_count(sources->module), "models");
        weft_graph *lowered = weft_graph_find(m, weft_graph_name(g));
        weft_profile one = {0};
        if (weft_graph_is_body(g))
            continue;
        if (weft_graph_is_packed(g)) { /* how its rows are shared is known only when it runs */
            at++;
            continue;
        }
        if (lowered && weft_graph_part_count(g) > 0)
            WEFT_TRY(weft_tool_profile_joint(lowered, profiles_of_parts(m, lowered, found, arena),
                                             slice, n, how, arena, diag, &one));
        else if (lowered)
            WEFT_TRY(weft_tool_profile_graph(lowered, slice, n, how, arena, diag, &one));
        if (lowered)
            found[weft_graph_index(lowered)] = one;
        append(&out[at++].profile, &one, arena);
    }
    return WEFT_ERR_OK;
}

/* Estimates for the device of --gpu in a bundle for the other kind: it has no kernels for it, so
 * the kernels and the joint graphs are those that the pipeline of that device makes. */
static weft_err profile_gpu_apart(const options *o, const weft_tool_sources *sources,
                                  const weft_tool_profile_options *how, weft_arena *arena,
                                  weft_diag *diag, weft_codegen_model *out)
{
    const weft_import_options import = {.allow_hard_links = o->allow_hard_links};
    weft_tool_pipeline pipeline = {
        .run = {.verify = WEFT_VERIFY_OFF, .pass = o->pipeline.run.pass}};
    weft_tool_sources again = {0};
    pipeline.run.pass.device = o->gpu;
    pipeline.run.pass.merge_log = NULL;
    weft_tool_progress("estimating for %s", o->gpu);
    weft_err err = weft_tool_load_again(o->file, o->n_file, &import, arena, diag, &again);
    if (err == WEFT_ERR_OK && weft_module_stage(again.module) == WEFT_STAGE_GRAPH)
        err = weft_tool_pipeline_lower(&pipeline, again.module, weft_gpu_find(o->gpu), diag);
    if (err == WEFT_ERR_OK)
        err = profile_device(sources, again.module, o->gpu, how, arena, diag, out);
    weft_module_destroy(again.module);
    return err;
}

static const char *const *list_heads(const weft_set_model *model, weft_arena *arena)
{
    const char **name = weft_arena_array(arena, model->n_head, sizeof *name);
    for (size_t i = 0; i < model->n_head; i++)
        name[i] = model->head[i]->name;
    return name;
}

/* Formats and labels that the model's configuration gives. */
static void add_ports(const weft_set_config *c, weft_arena *arena, weft_codegen_model *out)
{
    weft_codegen_port *port = weft_arena_array(arena, c->n_input + c->n_output + 1, sizeof *port);
    for (size_t i = 0; i < c->n_input; i++)
        if (c->input[i].format)
            port[out->n_port++] =
                (weft_codegen_port){.name = c->input[i].name, .format = c->input[i].format};
    for (size_t i = 0; i < c->n_output; i++)
        if (c->output[i].n_label)
            port[out->n_port++] = (weft_codegen_port){.name = c->output[i].name,
                                                      .label = c->output[i].label,
                                                      .n_label = c->output[i].n_label};
    out->port = port;
}

/* Collects SLO, rate and profile of each graph, on CPUs and on the device of --gpu, and its host
 * cost, which cannot be estimated, from its recorded profile. The bundle must not depend on the
 * machine that makes it: CPU slices have one, two and four cores, whatever this machine has. */
static weft_err profile_models(const options *o, const weft_tool_sources *sources,
                               const weft_tool_profile_options *how, weft_arena *arena,
                               weft_diag *diag, weft_codegen_model *out)
{
    bool more = o->gpu && strcmp(o->gpu, "cpu") != 0;
    for (uint32_t i = 0; i < weft_graph_model_count(sources->module); i++) {
        const weft_set_model *model = sources->model[i];
        out[i] = (weft_codegen_model){0};
        if (model)
            out[i] = (weft_codegen_model){.serves = model->serves,
                                          .version = model->version,
                                          .slo_us = model->slo_us,
                                          .rate_per_s = model->rate_per_s,
                                          .admit_by_slo = model->admit_by_slo};
        if (model && model->config)
            add_ports(model->config, arena, &out[i]);
        if (model && model->n_head && !model->combine) { /* else it gives none of theirs */
            out[i].head = list_heads(model, arena);
            out[i].n_head = model->n_head;
        }
        weft_profile recorded = {0};
        if (tells_host_cost(sources, model))
            WEFT_TRY(
                weft_profile_load(model->profile, "weft", model->name, arena, diag, &recorded));
        out[i].profile.host_us = recorded.host_us;
    }
    WEFT_TRY(profile_device(sources, sources->module, "cpu", how, arena, diag, out));
    if (!more)
        return WEFT_ERR_OK;
    return is_for_gpu(o) != weft_device_type_is_cpu(o->gpu) ||
                   !weft_gpu_find(o->gpu) /* refused there by name */
               ? profile_device(sources, sources->module, o->gpu, how, arena, diag, out)
               : profile_gpu_apart(o, sources, how, arena, diag, out);
}

/* The apps of the set with those of their variants that are compiled. A server answers requests to
 * an app only if all its variants take them. */
static weft_err add_apps(const weft_tool_sources *sources, weft_arena *arena, weft_diag *diag,
                         weft_bundle *bundle)
{
    size_t n_app = sources->set ? sources->set->n_app : 0;
    weft_bundle_app *app = weft_arena_array(arena, n_app + 1, sizeof *app);
    bundle->app = app;
    for (size_t i = 0; i < n_app; i++) {
        const weft_set_app *from = &sources->set->app[i];
        const weft_where where = {.file = sources->set_file, .item = from->name};
        weft_bundle_variant *variant = weft_arena_array(arena, from->n_variant, sizeof *variant);
        weft_diag *why = weft_diag_create();
        uint32_t n = 0;
        for (size_t k = 0; k < from->n_variant; k++) {
            const weft_bundle_program *p = weft_bundle_find(bundle, from->variant[k].model);
            if (p)
                variant[n++] = (weft_bundle_variant){(uint32_t)(p - bundle->program),
                                                     from->variant[k].accuracy};
        }
        if (!why)
            return WEFT_ERR_NOMEM;
        weft_bundle_app *to = &app[bundle->n_app];
        *to = (weft_bundle_app){.name = from->name,
                                .slo_us = from->slo_us,
                                .rate_per_s = from->rate_per_s,
                                .accuracy = from->accuracy,
                                .variant = variant,
                                .n_variant = n};
        bundle->n_app += n > 0;
        if (n > 0 && weft_bundle_check_app(bundle, to, why) != WEFT_ERR_OK)
            weft_diag_warn(diag, where, "cannot be served as an app: %s",
                           weft_diag_at(why, 0)->text);
        weft_diag_destroy(why);
    }
    return WEFT_ERR_OK;
}

static weft_err write_bundle(options *o, const weft_tool_sources *sources, weft_arena *arena,
                             weft_diag *diag)
{
    weft_module *m = sources->module;
    weft_codegen_model *model =
        weft_arena_array(arena, (size_t)weft_graph_count(m) + 1, sizeof *model);
    weft_bundle bundle = {0};
    weft_conv_planning convs = {0};
    weft_tool_cache kernels;
    weft_codegen_cache *cache = weft_tool_kernel_cache(o->kernel_cache, &kernels);
    weft_calibration fit;
    weft_tool_profile_options how = {.exact_f32 = o->pipeline.run.pass.exact_f32};
    if (o->calibration) {
        WEFT_TRY(weft_tool_calibration_load(o->calibration, diag, &fit));
        how.calibration = &fit;
    }
    WEFT_TRY(profile_models(o, sources, &how, arena, diag, model));
    WEFT_TRY(make_bundle(o, m, model, cache, arena, diag, &bundle));
    WEFT_TRY(add_apps(sources, arena, diag, &bundle));
    WEFT_TRY(weft_tool_plan_convs(&bundle, o->gpu, arena, &convs));
    WEFT_TRY(weft_tool_add_adapters(&o->adapters, arena, diag, &bundle));
    if (o->tune && is_for_gpu(o))
        WEFT_TRY(tune_gemms(&bundle, arena, diag));
    weft_tool_progress("writing %s", o->output);
    WEFT_TRY(weft_bundle_write(&bundle, o->output, diag));
    WEFT_TRY(write_reports(o, m, &bundle, &convs, arena, diag));
    if (o->depfile)
        WEFT_TRY(write_depfile(o, sources, diag));
    weft_tool_progress(NULL);
    if (!weft_tool_is_quiet() && strcmp(o->output, "-") != 0)
        weft_tool_print_compiled(o->output, &bundle, o->pipeline.run.pass.merge_log,
                                 o->pipeline.run.pass.merge != WEFT_MERGE_OFF, cache);
    return WEFT_ERR_OK;
}

/* Measures the effect of changed weights on the answers and warns of it: only the user can judge
 * it. */
static weft_err measure_changes(options *o, const weft_import_options *import, weft_arena *arena,
                                weft_diag *diag)
{
    const weft_pass_options *pass = &o->pipeline.run.pass;
    const weft_tool_change *worst = NULL;
    WEFT_TRY(
        weft_tool_measure_tolerance(o->file, o->n_file, import, pass, arena, diag, &o->changes));
    for (uint32_t i = 0; i < o->changes.n; i++)
        if (!worst || o->changes.at[i].difference > worst->difference)
            worst = &o->changes.at[i];
    if (worst)
        weft_diag_warn(
            diag, (weft_where){.item = worst->model},
            "%s: output %s changes by up to %.3g of its scale in %u runs; outputs of "
            "other models change by no more",
            pass->deltas != WEFT_DELTAS_NEAR
                ? weft_arena_printf(arena, "weights equal within %g", pass->merge_tolerance)
            : pass->merge_tolerance > 0
                ? weft_arena_printf(arena, "weights equal within %g, low-rank differences",
                                    pass->merge_tolerance)
                : "low-rank differences of weights",
            worst->output, worst->difference, worst->runs);
    return WEFT_ERR_OK;
}

static const char *precision_name(const options *o)
{
    return o->tf32 ? "tf32" : weft_dtype_name(o->pipeline.run.pass.precision);
}

/* The batch sizes that configurations of models ask for. */
static void take_batches(options *o, const weft_tool_sources *sources, weft_arena *arena)
{
    uint32_t n = weft_graph_model_count(sources->module), count = 0;
    weft_model_batches *own = weft_arena_array(arena, (size_t)n + 1, sizeof *own);
    for (uint32_t i = 0; i < n; i++) {
        const weft_set_model *model = sources->model[i];
        if (model && model->config && model->config->n_batch)
            own[count++] =
                (weft_model_batches){model->name, model->config->batch, model->config->n_batch};
    }
    o->pipeline.run.pass.own_batch = own;
    o->pipeline.run.pass.n_own_batch = count;
}

/* Models with adapters are merged with no others: which rows of a batch use an adapter is told for
 * one model. */
static weft_err take_adapters(options *o, weft_tool_sources *sources, weft_arena *arena,
                              weft_diag *diag)
{
    weft_pass_options *pass = &o->pipeline.run.pass;
    WEFT_TRY(weft_tool_load_adapters(sources, arena, diag, &o->adapters));
    size_t n = pass->n_alone, n_model = o->adapters.n_model;
    if (n_model > 0 && is_for_gpu(o))
        return weft_diag_error(diag, WEFT_ERR_UNSUP, (weft_where){.file = sources->set_file},
                               "adapters: GPUs run none; compile with --target cpu");
    const char **alone = weft_arena_array(arena, n + n_model + 1, sizeof *alone);
    for (size_t i = 0; i < n; i++)
        alone[i] = pass->alone[i];
    for (size_t i = 0; i < n_model; i++)
        alone[n + i] = o->adapters.model[i].model;
    pass->alone = alone;
    pass->n_alone = n + n_model;
    pass->adapted = o->adapters.model;
    pass->n_adapted = n_model;
    return WEFT_ERR_OK;
}

static weft_err compile(options *o, weft_tool_sources *sources, weft_arena *arena, weft_diag *diag)
{
    const weft_import_options import = {.allow_hard_links = o->allow_hard_links};
    if (o->tune && !is_for_gpu(o)) {
        weft_tuned_conv *tuned = NULL;
        WEFT_TRY(weft_tool_tune(o->file, o->n_file, &import, &o->pipeline.run.pass, arena, diag,
                                &tuned, &o->pipeline.run.pass.n_tuned));
        o->pipeline.run.pass.tuned = tuned;
    }
    if (o->pipeline.run.pass.pack && is_for_gpu(o))
        return weft_diag_error(diag, WEFT_ERR_UNSUP, (weft_where){0},
                               "--pack: GPUs run no packed sequences; compile with --target cpu");
    if (o->pipeline.run.pass.merge_tolerance > 0 || o->pipeline.run.pass.deltas == WEFT_DELTAS_NEAR)
        WEFT_TRY(measure_changes(o, &import, arena, diag));
    WEFT_TRY(weft_tool_load_sources(o->file, o->n_file, &import, arena, diag, sources));
    /* They have the nodes of their heads, and would be found alike. */
    o->pipeline.run.pass.alone = sources->with_heads;
    o->pipeline.run.pass.n_alone = sources->n_with_heads;
    WEFT_TRY(check_output(o, sources, diag));
    take_batches(o, sources, arena);
    WEFT_TRY(take_adapters(o, sources, arena, diag));
    if (o->plan)
        WEFT_TRY(weft_tool_follow_plan(o->plan, sources, &o->pipeline, arena, diag));
    size_t n = 0;
    if (is_for_gpu(o))
        o->pipeline.run.pass.device = o->gpu;
    const weft_pass *const *pass = weft_pipeline_for(o->pipeline.run.pass.target, &n);
    weft_merge_log log = {.arena = arena, .want_pairs = o->report || o->similarity};
    o->pipeline.run.pass.merge_log = &log;
    if (!o->is_f32) {
        o->watch =
            (weft_tool_precision){.name = precision_name(o),
                                  .is_default = o->pipeline.run.pass.precision == WEFT_DTYPE_NONE,
                                  .arena = arena,
                                  .diag = diag};
        o->pipeline.watch = weft_tool_precision_watch;
        o->pipeline.watcher = &o->watch;
    }
    uint32_t n_model = weft_graph_model_count(sources->module);
    o->pipeline.doing =
        weft_arena_printf(arena, "compiling %u model%s", n_model, n_model == 1 ? "" : "s");
    WEFT_TRY(weft_tool_pipeline_run(&o->pipeline, sources->module, pass, n, diag));
    if (weft_module_stage(sources->module) != WEFT_STAGE_PLAN)
        return write_text(sources->module, o->output, diag);
    return write_bundle(o, sources, arena, diag);
}

static int run_compile(int argc, char **argv)
{
    options o = {
        .pipeline.run.pass = {.merge = WEFT_MERGE_AUTO, .assignment = &weft_assignment_igraph}};
    int code = parse(argc, argv, &o);
    if (code >= 0)
        return code;
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    weft_tool_sources sources = {0};
    weft_err err = WEFT_ERR_NOMEM;
    if (diag && arena)
        err = compile(&o, &sources, arena, diag);
    weft_tool_precision_finish(&o.watch);
    code = weft_tool_report(diag, err);
    weft_module_destroy(sources.module);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return code;
}

const weft_verb weft_verb_compile = {.name = "compile", .row = rows, .run = run_compile};
