/* Measures the effect of a lower precision on the outputs.
 *
 * Both versions of a graph, f32 and lowered, are evaluated by the reference implementations. They
 * round where the lowered graph has values of the narrow type, that is where a GPU kernel reads and
 * writes; sums inside a kernel are f32 in both, in another order than on the GPU. TF32 changes no
 * types: the operands of GEMMs are rounded instead. The reference is slow, so the models together
 * have a limit of work; models beyond the limit are reported as not measured. */
#include "tools/compiler/measure_error.h"

#include "estimator/estimator.h"
#include "tools/common/sample_tensors.h"
#include "tools/compiler/graph_inputs.h"

#include <math.h>
#include <string.h>

/* Limits: operations and bytes of one run of all models together, with --precision and without;
 * intermediate values of one model. */
#define WORK_MAX         2e10
#define DEFAULT_WORK_MAX 5e8
#define ARENA_MAX_BYTES  ((uint64_t)1 << 30)

/* Inputs and f32 outputs of one model. */
struct weft_tool_trial {
    weft_tensor *in, *want;
    const char *why; /* reason why it is not measured; NULL: it is */
};

/* -- Before: inputs and answers in f32 -------------------------------------------------------- */

/* Returns NULL and subtracts the work of the graph from what is left, or the reason why it
 * exceeds a limit. */
static const char *refuse_work(weft_tool_precision *p, weft_graph *g, const int64_t *symbol,
                               weft_diag *diag)
{
    weft_workload load;
    double work = 0, most = p->is_default ? DEFAULT_WORK_MAX : WORK_MAX;
    const char *hint = p->is_default ? "; --precision tf32 measures more, f32 rounds nothing" : "";
    weft_err err =
        weft_workload_make(g, symbol, &(weft_estimate_options){0}, p->tensors, diag, &load);
    if (err != WEFT_ERR_OK)
        return weft_tool_take_reason(diag, err, p->arena);
    for (size_t i = 0; i < load.n; i++) {
        const weft_work *w = &load.kernel[i].kernel.work;
        work += (double)load.kernel[i].launches *
                (w->flops + w->bytes_read + w->bytes_written + w->weight_bytes);
    }
    if (!(work <= most))
        return weft_arena_printf(p->arena,
                                 "its %.2g operations and bytes are more than the %.2g that are "
                                 "evaluated on the CPU%s",
                                 work, most, hint);
    if (load.arena_bytes > ARENA_MAX_BYTES || load.in_bytes > ARENA_MAX_BYTES ||
        load.out_bytes > ARENA_MAX_BYTES)
        return "it needs too much memory for intermediate values";
    if (!(p->work + work <= most))
        return weft_arena_printf(p->arena,
                                 "the models before it took the %.2g operations and bytes that are "
                                 "evaluated on the CPU%s",
                                 most, hint);
    p->work += work;
    return NULL;
}

static void start_trial(weft_tool_precision *p, weft_graph *g, weft_diag *diag,
                        struct weft_tool_trial *t)
{
    uint32_t n_in = weft_graph_input_count(g), n_out = weft_graph_output_count(g);
    const int64_t *symbol = weft_tool_smallest_symbols(g, p->tensors);
    weft_err err = WEFT_ERR_OK;
    t->in = weft_arena_array(p->tensors, (size_t)n_in + 1, sizeof *t->in);
    t->want = weft_arena_array(p->tensors, (size_t)n_out + 1, sizeof *t->want);
    t->why = refuse_work(p, g, symbol, diag);
    if (t->why)
        return;
    weft_tool_progress("measuring %s", weft_graph_name(g));
    err = weft_tool_make_graph_inputs(g, symbol, p->tensors, diag, t->in);
    if (err == WEFT_ERR_OK)
        err = weft_graph_eval(g, t->in, n_in, p->tensors, diag, t->want, n_out);
    if (err != WEFT_ERR_OK)
        t->why = weft_tool_take_reason(diag, err, p->arena);
}

static void start_all(weft_tool_precision *p, weft_module *m, weft_diag *diag)
{
    uint32_t n = weft_graph_count(m);
    p->trial = weft_arena_array(p->tensors, (size_t)n + 1, sizeof *p->trial);
    for (uint32_t i = 0; i < n; i++) {
        weft_graph *g = weft_graph_at(m, i);
        if (weft_graph_is_model(g))
            start_trial(p, g, diag, &p->trial[i]);
    }
}

/* -- After: the same in the lower precision --------------------------------------------------- */

static void say_change(const weft_tool_precision *p, const char *model,
                       const weft_tool_change *worst, uint32_t n_output)
{
    weft_where where = {.item = model};
    if (worst->why)
        weft_diag_note(p->diag, where, "error of %s not measured: %s", p->name, worst->why);
    else if (isfinite(worst->difference))
        weft_diag_note(
            p->diag, where,
            "%s: output %s is off by up to %.3g of scale from f32%s; one synthetic input at "
            "the smallest sizes, on the CPU",
            p->name, worst->output, worst->difference,
            n_output > 1 ? ", other outputs by no more" : "");
    else
        weft_diag_note(p->diag, where,
                       "%s: output %s overflows or is NaN where that of f32 is finite; one "
                       "synthetic input at the smallest sizes, on the CPU",
                       p->name, worst->output);
}

static void end_trial(weft_tool_precision *p, weft_graph *g, weft_diag *diag,
                      const struct weft_tool_trial *t)
{
    uint32_t n = weft_graph_output_count(g);
    weft_tensor *got = weft_arena_array(p->tensors, (size_t)n + 1, sizeof *got);
    weft_tool_change *at = &p->changes.at[p->changes.n], *worst = at;
    const char *model = weft_arena_strdup(p->arena, weft_graph_name(g)), *why = t->why;
    weft_err err = WEFT_ERR_OK;
    bool tf32 = strcmp(p->name, "tf32") == 0;
    if (!why)
        err = (tf32 ? weft_graph_eval_tf32 : weft_graph_eval)(g, t->in, weft_graph_input_count(g),
                                                              p->tensors, diag, got, n);
    if (err != WEFT_ERR_OK)
        why = weft_tool_take_reason(diag, err, p->arena);
    for (uint32_t i = 0; i < n; i++) {
        const char *output = weft_arena_strdup(p->arena, weft_graph_output_name(g, i));
        at[i] = (weft_tool_change){.model = model, .output = output, .why = why, .runs = !why};
        if (!why)
            at[i].difference = weft_tool_difference(&t->want[i], &got[i]);
        if (at[i].difference > worst->difference)
            worst = &at[i];
    }
    p->changes.n += n;
    if (n)
        say_change(p, model, worst, n);
}

static void end_all(weft_tool_precision *p, weft_module *m, weft_diag *diag)
{
    size_t n = 0;
    for (uint32_t i = 0; i < weft_graph_count(m); i++)
        n += weft_graph_output_count(weft_graph_at(m, i));
    p->changes.at = weft_arena_array(p->arena, n + 1, sizeof *p->changes.at);
    for (uint32_t i = 0; i < weft_graph_count(m); i++)
        if (weft_graph_is_model(weft_graph_at(m, i)))
            end_trial(p, weft_graph_at(m, i), diag, &p->trial[i]);
}

void weft_tool_precision_watch(void *user, const weft_pass *pass, uint32_t number, bool after,
                               bool changed, double time_ms, weft_module *m)
{
    weft_tool_precision *p = user;
    (void)number, (void)changed, (void)time_ms;
    if (strcmp(weft_pass_name(pass), "lower-precision") != 0)
        return;
    weft_diag *diag = weft_diag_create();
    if (!after && !p->tensors)
        p->tensors = weft_arena_create(0);
    if (diag && p->tensors && !after)
        start_all(p, m, diag);
    else if (diag && p->trial)
        end_all(p, m, diag);
    weft_diag_destroy(diag);
    if (after)
        weft_tool_precision_finish(p);
}

void weft_tool_precision_finish(weft_tool_precision *p)
{
    weft_arena_destroy(p->tensors);
    p->tensors = NULL;
    p->trial = NULL;
}
