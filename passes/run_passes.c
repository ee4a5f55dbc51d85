/* The pass runner: stage check, facts, run, verify, hook. */
#include "passes/passes_int.h"

#include <string.h>
#include <time.h>

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* -- Facts ---------------------------------------------------------------------------------- */

/* Re-infers every node of a graph and of its bodies; the types that changed are set. */
static weft_err compute_types(weft_passctx *cx, weft_graph *g, weft_contents *contents,
                              uint32_t depth)
{
    weft_module *m = weft_graph_module(g);
    if (depth > WEFT_FLOW_DEPTH_MAX)
        return weft_diag_error(cx->diag, WEFT_ERR_UNSUP, (weft_where){.item = weft_graph_name(g)},
                               "bodies are nested more than %d deep", WEFT_FLOW_DEPTH_MAX);
    WEFT_FOREACH_NODE (m, g, n) {
        uint32_t n_out = weft_node_out_count(m, n);
        weft_ttype *type = weft_arena_array(cx->scratch, n_out, sizeof *type);
        if (weft_node_body_count(m, n))
            weft_body_sync(g, n, contents);
        for (uint32_t b = 0; b < weft_node_body_count(m, n); b++)
            if (weft_node_body(m, n, b))
                WEFT_TRY(compute_types(cx, weft_node_body(m, n, b), contents, depth + 1));
        WEFT_TRY(weft_node_infer(g, n, contents, cx->diag, type, n_out));
        for (uint32_t k = 0; k < n_out; k++) {
            /* Inference gives logical types; the layout chosen by choose-layout is kept. */
            type[k].layout = weft_val_ttype(m, weft_node_out(m, n, k))->layout;
            weft_val_set_type(m, weft_node_out(m, n, k), weft_type_intern(m, &type[k]));
        }
    }
    return WEFT_ERR_OK;
}

/* Inference computes types and contents together. */
static weft_err compute_facts(weft_passctx *cx, weft_module *m, uint32_t missing)
{
    if (missing & (WEFT_FACT_TYPES | WEFT_FACT_CONTENTS)) {
        WEFT_TRY(weft_body_check(m, cx->diag));
        cx->contents = weft_contents_create(m, weft_module_arena(m));
        for (uint32_t i = 0; i < weft_graph_count(m); i++)
            if (!weft_graph_is_body(weft_graph_at(m, i)))
                WEFT_TRY(compute_types(cx, weft_graph_at(m, i), cx->contents, 0));
    }
    return WEFT_ERR_OK;
}

/* -- Running -------------------------------------------------------------------------------- */

static weft_err verify_after(weft_module *m, const weft_pass *pass, weft_diag *diag)
{
    weft_err err = weft_module_verify(m, diag);
    if (err == WEFT_ERR_OK)
        return err;
    return weft_diag_error(diag, WEFT_ERR_BUG, (weft_where){0},
                           "pass %s left a module that breaks the rules above", pass->name);
}

static weft_err run_one(weft_passctx *cx, weft_module *m, const weft_pass *pass, uint32_t number,
                        uint32_t *valid, const weft_run_options *options)
{
    weft_stage stage = weft_module_stage(m);
    if (!pass->any_stage && stage != pass->from)
        return weft_diag_error(cx->diag, WEFT_ERR_INPUT, (weft_where){0},
                               "pass %s works on stage %s, the module is at stage %s", pass->name,
                               weft_stage_name(pass->from), weft_stage_name(stage));
    WEFT_TRY(compute_facts(cx, m, pass->needs & ~*valid));
    if (pass->needs & ~*valid)
        *valid |= WEFT_FACT_TYPES | WEFT_FACT_CONTENTS;
    if (options->hook)
        options->hook(options->user, pass, number, false, false, 0, m);
    double start_ms = now_ms();
    bool changed = false;
    weft_arena_mark mark = weft_arena_get_mark(cx->scratch);
    WEFT_TRY(pass->run(cx, m, &changed));
    weft_arena_reset(cx->scratch, mark);
    weft_module_drop_files(m);
    if (changed)
        *valid &= ~pass->breaks;
    if (!pass->any_stage)
        weft_module_set_stage(m, pass->to);
    if (options->verify == WEFT_VERIFY_EACH)
        WEFT_TRY(verify_after(m, pass, cx->diag));
    if (options->hook)
        options->hook(options->user, pass, number, true, changed, now_ms() - start_ms, m);
    return WEFT_ERR_OK;
}

static weft_err run_all(weft_passctx *cx, weft_module *m, const weft_pass *const *pass, size_t n,
                        const weft_run_options *options)
{
    uint32_t valid = 0;
    bool started = options->start_at == NULL;
    const weft_pass *last = NULL;
    for (size_t i = 0; i < n; i++) {
        started = started || strcmp(options->start_at, pass[i]->name) == 0;
        if (!started)
            continue;
        WEFT_TRY(run_one(cx, m, pass[i], (uint32_t)i, &valid, options));
        last = pass[i];
        if (options->stop_after && strcmp(options->stop_after, pass[i]->name) == 0)
            break;
    }
    if (!started)
        return weft_diag_error(cx->diag, WEFT_ERR_INPUT, (weft_where){0},
                               "--start-at: no pass %s in the pipeline", options->start_at);
    if (last && options->verify == WEFT_VERIFY_END)
        return verify_after(m, last, cx->diag);
    return WEFT_ERR_OK;
}

weft_err weft_passes_run(weft_module *m, const weft_pass *const *pass, size_t n,
                         const weft_run_options *options, weft_diag *diag)
{
    weft_arena *scratch = weft_arena_create(0);
    if (!scratch)
        return WEFT_ERR_NOMEM;
    jmp_buf env;
    jmp_buf *before = weft_arena_guard(weft_module_arena(m), &env);
    weft_arena_guard(scratch, &env);
    weft_err err;
    if (setjmp(env)) {
        err =
            weft_diag_error(diag, WEFT_ERR_NOMEM, (weft_where){0}, "out of memory while compiling");
    } else {
        weft_passctx cx = {.options = &options->pass, .scratch = scratch, .diag = diag};
        err = run_all(&cx, m, pass, n, options);
    }
    weft_arena_guard(weft_module_arena(m), before);
    weft_arena_destroy(scratch);
    return err;
}
