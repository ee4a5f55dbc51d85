/* Measures algorithms of convolutions; see tune.h. */
#include "tools/compiler/tune.h"

#include "runtime/runtime.h"
#include "tools/common/sample_tensors.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RUNS = 4, ROUNDS = 5 };

static const char *const algos[2] = {"direct", "winograd"};

/* Time of each convolution that was measured. */
typedef struct timing {
    const char *model, *item;
    double time_us;
} timing;

typedef WEFT_VEC(timing) timings;

/* -- One version ---------------------------------------------------------------------------- */

/* Assigns `algo` to every convolution of the module. */
static weft_tuned_conv *force_algo(const weft_module *m, const char *algo, weft_arena *arena,
                                   size_t *out_n)
{
    WEFT_VEC(weft_tuned_conv) list = {0};
    for (uint32_t i = 0; i < weft_graph_count(m); i++) {
        const weft_graph *g = weft_graph_at(m, i);
        const char *model = weft_arena_strdup(arena, weft_graph_name(g));
        for (weft_node n = weft_graph_first(g); n.i; n = weft_node_next(m, n)) {
            const char *item = weft_node_loc(m, n).item;
            if (weft_node_op(m, n) != WEFT_OP_CONV || !item)
                continue;
            weft_tuned_conv conv = {model, weft_arena_strdup(arena, item), algo};
            WEFT_VEC_PUSH(arena, &list, conv);
        }
    }
    *out_n = list.len;
    return list.at;
}

/* Compiles into the bundle file `path` with every convolution by `algo`. */
static weft_err compile_version(char *const *file, int n_file, const weft_import_options *import,
                                const weft_pass_options *options, const char *algo,
                                const char *path, weft_arena *arena, weft_diag *diag)
{
    weft_tool_sources sources = {0};
    weft_bundle bundle = {0};
    size_t n = 0;
    const weft_pass *const *pass = weft_pipeline_for("cpu", &n);
    weft_run_options run = {.pass = *options};
    weft_err err = weft_tool_load_sources(file, n_file, import, arena, diag, &sources);
    if (err == WEFT_ERR_OK) {
        run.pass.tuned = force_algo(sources.module, algo, arena, &run.pass.n_tuned);
        err = weft_passes_run(sources.module, pass, n, &run, diag);
    }
    if (err == WEFT_ERR_OK && weft_module_stage(sources.module) == WEFT_STAGE_PLAN) {
        weft_codegen_model *model =
            weft_arena_array(arena, (size_t)weft_graph_count(sources.module) + 1, sizeof *model);
        err = weft_codegen_bundle(sources.module, weft_backend_find("cpu"), model, NULL, arena,
                                  diag, &bundle);
        if (err == WEFT_ERR_OK)
            err = weft_bundle_write(&bundle, path, diag);
    }
    weft_module_destroy(sources.module);
    return err;
}

static int64_t smallest_batch(const weft_bundle_program *p)
{
    int64_t least = 1;
    for (uint32_t i = 0; i < p->n_bucket && p->batch_symbol < p->n_symbol; i++)
        if (i == 0 || p->bucket[i].symbol[p->batch_symbol] < least)
            least = p->bucket[i].symbol[p->batch_symbol];
    return least;
}

static weft_err time_session(weft_session *session, weft_arena *arena, weft_diag *diag,
                             timings *out)
{
    const weft_bundle_program *p = weft_session_program(session);
    weft_tensor *in = weft_arena_array(arena, (size_t)p->n_input + 1, sizeof *in);
    weft_tensor *result = weft_arena_array(arena, (size_t)p->n_output + 1, sizeof *result);
    WEFT_TRY(weft_tool_make_inputs(p, smallest_batch(p), NULL, 0, arena, diag, in));
    for (int i = 0; i < 2; i++)
        WEFT_TRY(weft_session_run(session, in, p->n_input, diag, result, p->n_output));
    weft_session_profile(session, true);
    for (int i = 0; i < RUNS; i++)
        WEFT_TRY(weft_session_run(session, in, p->n_input, diag, result, p->n_output));
    uint32_t n = 0;
    const weft_launch_time *time = weft_session_times(session, &n);
    for (uint32_t i = 0; i < n; i++) {
        const weft_bundle_launch *l = &p->launch[time[i].launch];
        if (l->op != WEFT_OP_CONV || !l->item[0])
            continue;
        timing t = {weft_arena_strdup(arena, p->name), weft_arena_strdup(arena, l->item),
                    time[i].time_us};
        WEFT_VEC_PUSH(arena, out, t);
    }
    return WEFT_ERR_OK;
}

static weft_err time_bundle(const char *path, weft_arena *arena, weft_diag *diag, timings *out)
{
    weft_engine *engine = NULL;
    weft_err err = weft_engine_open(path, &(weft_engine_options){0}, diag, &engine);
    uint32_t n = err == WEFT_ERR_OK ? weft_engine_bundle(engine)->n_program : 0;
    for (uint32_t i = 0; i < n && err == WEFT_ERR_OK; i++) {
        weft_session *session = NULL;
        const char *model = weft_engine_bundle(engine)->program[i].name;
        weft_tool_progress("measuring %s", model);
        weft_tool_advance(i, n, "models");
        err = weft_session_open(engine, model, diag, &session);
        if (err == WEFT_ERR_OK)
            err = time_session(session, arena, diag, out);
        weft_session_close(session);
    }
    weft_engine_close(engine);
    return err;
}

/* -- The choice ----------------------------------------------------------------------------- */

/* Takes the minimum of all rounds: other processes can only make a run slower. */
static double time_of(const timings *t, const char *model, const char *item)
{
    double least = -1;
    for (uint32_t i = 0; i < t->len; i++)
        if (strcmp(t->at[i].model, model) == 0 && strcmp(t->at[i].item, item) == 0 &&
            (least < 0 || t->at[i].time_us < least))
            least = t->at[i].time_us;
    return least;
}

/* The first `n_conv` timings are one round: one entry for each convolution. */
static void choose(const timings *time, uint32_t n_conv, weft_arena *arena, weft_tuned_conv **out,
                   size_t *out_n)
{
    *out = weft_arena_array(arena, (size_t)n_conv + 1, sizeof **out);
    for (uint32_t i = 0; i < n_conv; i++) {
        const timing *conv = &time[0].at[i];
        double direct_us = time_of(&time[0], conv->model, conv->item);
        double winograd_us = time_of(&time[1], conv->model, conv->item);
        bool faster = winograd_us >= 0 && winograd_us < direct_us;
        (*out)[i] = (weft_tuned_conv){conv->model, conv->item, algos[faster]};
    }
    *out_n = n_conv;
}

/* The two versions alternate, so that a drift of the clock frequency affects both. */
static weft_err tune(char *const *file, int n_file, const weft_import_options *import,
                     const weft_pass_options *options, const char **path, weft_arena *arena,
                     weft_diag *diag, weft_tuned_conv **out, size_t *out_n)
{
    timings time[2] = {{0}, {0}};
    uint32_t n_conv = 0;
    for (int i = 0; i < 2; i++)
        WEFT_TRY(compile_version(file, n_file, import, options, algos[i], path[i], arena, diag));
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 2; i++)
            WEFT_TRY(time_bundle(path[i], arena, diag, &time[i]));
        if (round == 0)
            n_conv = time[0].len;
    }
    choose(time, n_conv, arena, out, out_n);
    return WEFT_ERR_OK;
}

weft_err weft_tool_tune(char *const *file, int n_file, const weft_import_options *import,
                        const weft_pass_options *options, weft_arena *arena, weft_diag *diag,
                        weft_tuned_conv **out, size_t *out_n)
{
    const char *path[2] = {NULL, NULL};
    weft_err err = WEFT_ERR_OK;
    for (int i = 0; i < 2 && err == WEFT_ERR_OK; i++)
        err = weft_tool_make_temporary("weft-tune", arena, diag, &path[i]);
    if (err == WEFT_ERR_OK)
        err = tune(file, n_file, import, options, path, arena, diag, out, out_n);
    for (int i = 0; i < 2 && path[i]; i++)
        unlink(path[i]);
    return err;
}
