/* Measures the effect of --merge-tolerance and --deltas on the outputs. */
#include "tools/compiler/tolerance.h"

#include "runtime/runtime.h"
#include "tools/common/sample_tensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RUNS_MAX = 4 };

static weft_err compile_version(char *const *file, int n_file, const weft_import_options *import,
                                const weft_pass_options *options, const char *path,
                                weft_arena *arena, weft_diag *diag)
{
    weft_tool_sources sources = {0};
    weft_bundle bundle = {0};
    size_t n = 0;
    const weft_pass *const *pass = weft_pipeline_for("cpu", &n);
    const weft_run_options run = {.pass = *options};
    weft_err err = weft_tool_load_sources(file, n_file, import, arena, diag, &sources);
    if (err == WEFT_ERR_OK)
        err = weft_passes_run(sources.module, pass, n, &run, diag);
    if (err == WEFT_ERR_OK)
        err = weft_codegen_bundle(sources.module, weft_backend_find("cpu"), NULL, NULL, arena, diag,
                                  &bundle);
    if (err == WEFT_ERR_OK)
        err = weft_bundle_write(&bundle, path, diag);
    weft_module_destroy(sources.module);
    return err;
}

/* Runs both sessions at the size of every bucket, at most RUNS_MAX times. */
static weft_err compare_sessions(weft_session *exact, weft_session *near, weft_arena *arena,
                                 weft_diag *diag, weft_tool_change *out)
{
    const weft_bundle_program *p = weft_session_program(exact);
    weft_tensor *in = weft_arena_array(arena, (size_t)p->n_input + 1, sizeof *in);
    weft_tensor *want = weft_arena_array(arena, (size_t)p->n_output + 1, sizeof *want);
    weft_tensor *got = weft_arena_array(arena, (size_t)p->n_output + 1, sizeof *got);
    uint32_t n = p->n_bucket > 0 && p->n_bucket < RUNS_MAX ? p->n_bucket : RUNS_MAX;
    for (uint32_t r = 0; r < n; r++) {
        bool batched = p->batch_symbol < p->n_symbol && p->n_bucket > 0;
        int64_t batch = batched ? p->bucket[r % p->n_bucket].symbol[p->batch_symbol] : 1;
        WEFT_TRY(weft_tool_make_inputs(p, batch, NULL, 0, arena, diag, in));
        WEFT_TRY(weft_session_run(exact, in, p->n_input, diag, want, p->n_output));
        WEFT_TRY(weft_session_run(near, in, p->n_input, diag, got, p->n_output));
        for (uint32_t i = 0; i < p->n_output; i++) {
            out[i].runs = n;
            out[i].difference = fmax(out[i].difference, weft_tool_difference(&want[i], &got[i]));
        }
    }
    return WEFT_ERR_OK;
}

static weft_err compare_model(weft_engine *const *engine, const char *model, weft_arena *arena,
                              weft_diag *diag, weft_tool_change *out)
{
    weft_session *exact = NULL, *near = NULL;
    weft_err err = weft_session_open(engine[0], model, diag, &exact);
    if (err == WEFT_ERR_OK)
        err = weft_session_open(engine[1], model, diag, &near);
    if (err == WEFT_ERR_OK)
        err = compare_sessions(exact, near, arena, diag, out);
    weft_session_close(exact);
    weft_session_close(near);
    return err;
}

static weft_err compare_bundles(weft_engine *const *engine, weft_arena *arena, weft_diag *diag,
                                weft_tool_changes *out)
{
    const weft_bundle *b = weft_engine_bundle(engine[0]);
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n_program; i++)
        n += b->program[i].n_output;
    out->at = weft_arena_array(arena, (size_t)n + 1, sizeof *out->at);
    for (uint32_t i = 0; i < b->n_program; i++) {
        const weft_bundle_program *p = &b->program[i];
        weft_tool_change *at = &out->at[out->n];
        weft_tool_progress("measuring %s", p->name);
        WEFT_TRY(compare_model(engine, p->name, arena, diag, at));
        for (uint32_t k = 0; k < p->n_output; k++) {
            at[k].model = weft_arena_strdup(arena, p->name);
            at[k].output = weft_arena_strdup(arena, p->output[k].name);
        }
        out->n += p->n_output;
    }
    return WEFT_ERR_OK;
}

weft_err weft_tool_measure_tolerance(char *const *file, int n_file,
                                     const weft_import_options *import,
                                     const weft_pass_options *options, weft_arena *arena,
                                     weft_diag *diag, weft_tool_changes *out)
{
    const char *path[2] = {NULL, NULL};
    weft_engine *engine[2] = {NULL, NULL};
    weft_pass_options how = *options;
    weft_err err = WEFT_ERR_OK;
    how.merge = WEFT_MERGE_OFF;
    how.merge_log = NULL;
    how.target = NULL;
    for (int i = 0; i < 2 && err == WEFT_ERR_OK; i++) {
        how.merge_tolerance = i ? options->merge_tolerance : 0;
        how.deltas = i ? options->deltas : WEFT_DELTAS_OFF;
        err = weft_tool_make_temporary("weft-near", arena, diag, &path[i]);
        if (err == WEFT_ERR_OK)
            err = compile_version(file, n_file, import, &how, path[i], arena, diag);
        if (err == WEFT_ERR_OK)
            err = weft_engine_open(path[i], &(weft_engine_options){0}, diag, &engine[i]);
    }
    if (err == WEFT_ERR_OK)
        err = compare_bundles(engine, arena, diag, out);
    for (int i = 0; i < 2; i++) {
        weft_engine_close(engine[i]);
        if (path[i])
            unlink(path[i]);
    }
    return err;
}
