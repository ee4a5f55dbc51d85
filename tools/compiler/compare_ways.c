/* Computes one model in several ways; see compare_ways.h. */
#include "tools/compiler/compare_ways.h"

#include "codegen/codegen.h"
#include "runtime/machine/machine.h"
#include "runtime/runtime.h"
#include "tools/common/sample_tensors.h"
#include "tools/common/tools.h"
#include "tools/compiler/graph_inputs.h"
#include "tools/compiler/kernel_cache.h"
#include "tools/compiler/sources.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TARGET_MAX = 16 };

/* Not of the graph as it was read: the model is not cut off. */
static const weft_val whole = {0};

static const weft_tool_way ways[] = {
    {"cpu", "cpu", false},
    {"null", "null", false}, /* reference kernels */
    {"gpu-passes", NULL, true},
    {"cuda", "cuda", true},
};

const weft_tool_way *weft_tool_way_at(size_t i)
{
    return i < sizeof ways / sizeof ways[0] ? &ways[i] : NULL;
}

/* -- The model -------------------------------------------------------------------------------- */

static weft_err load(const weft_tool_verify *v, weft_diag *diag, weft_module **out_m,
                     weft_graph **out)
{
    weft_module *m = NULL;
    weft_err err = weft_tool_load_module(v->file, diag, &m);
    *out_m = m;
    if (err != WEFT_ERR_OK)
        return err;
    if (weft_module_stage(m) != WEFT_STAGE_GRAPH)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = v->file},
                               "is not of the graph stage: its passes have run");
    if (weft_graph_model_count(m) != 1)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = v->file},
                               "has %u models; one is verified at a time",
                               weft_graph_model_count(m));
    for (uint32_t i = 0; i < weft_graph_count(m); i++)
        if (weft_graph_is_model(weft_graph_at(m, i)))
            *out = weft_graph_at(m, i);
    return WEFT_ERR_OK;
}

/* Rounding unit of a floating-point type. */
static double unit_of(weft_dtype t)
{
    switch (t) {
    case WEFT_DTYPE_F64:
    case WEFT_DTYPE_F32:
        return 0x1p-24;
    case WEFT_DTYPE_F16:
        return 0x1p-11;
    case WEFT_DTYPE_BF16:
        return 0x1p-8;
    default:
        return 0x1p-4;
    }
}

/* Integers of 8 bits and fewer that a node makes of floats are rounded to one of 256 steps. */
static double rounding_of(weft_module *m, weft_node n)
{
    double unit = 0;
    bool is_float = false;
    for (uint32_t i = 0; i < weft_node_in_count(m, n); i++) {
        weft_val v = weft_node_in(m, n, i);
        is_float |= v.i && weft_dtype_is_float((weft_dtype)weft_val_ttype(m, v)->dtype);
    }
    for (uint32_t i = 0; i < weft_node_out_count(m, n); i++) {
        weft_dtype t = (weft_dtype)weft_val_ttype(m, weft_node_out(m, n, i))->dtype;
        if (weft_dtype_is_float(t))
            unit = fmax(unit, unit_of(t));
        else if (is_float && t != WEFT_DTYPE_BOOL && weft_dtype_bits(t) <= 8)
            unit = fmax(unit, 0x1p-8);
    }
    return unit;
}

static const char **copy_names(const weft_graph *g, uint32_t n,
                               const char *name(const weft_graph *, uint32_t), weft_arena *arena)
{
    const char **out = weft_arena_array(arena, (size_t)n + 1, sizeof *out);
    for (uint32_t i = 0; i < n; i++)
        out[i] = weft_arena_strdup(arena, name(g, i));
    return out;
}

static void read_ports(weft_graph *g, weft_arena *arena, weft_tool_ports *out)
{
    weft_module *m = weft_graph_module(g);
    uint32_t n_in = weft_graph_input_count(g), n_out = weft_graph_output_count(g);
    uint32_t n_symbol = weft_graph_symbol_count(g);
    int64_t *lo = weft_arena_array(arena, (size_t)n_symbol + 1, sizeof *lo);
    int64_t *hi = weft_arena_array(arena, (size_t)n_symbol + 1, sizeof *hi);
    for (uint32_t i = 0; i < n_symbol; i++)
        weft_dim_bounds(weft_module_dims(m), weft_graph_symbol_dim(g, i), &lo[i], &hi[i]);
    *out = (weft_tool_ports){.model = weft_arena_strdup(arena, weft_graph_name(g)),
                             .input = copy_names(g, n_in, weft_graph_input_name, arena),
                             .output = copy_names(g, n_out, weft_graph_output_name, arena),
                             .symbol = copy_names(g, n_symbol, weft_graph_symbol_name, arena),
                             .n_input = n_in,
                             .n_output = n_out,
                             .n_symbol = n_symbol,
                             .lo = lo,
                             .hi = hi};
    for (uint32_t i = 0; i < weft_graph_count(m); i++)
        WEFT_FOREACH_NODE (m, weft_graph_at(m, i), n)
            out->rounding = fmax(out->rounding, rounding_of(m, n));
}

weft_err weft_tool_verify_ports(const weft_tool_verify *v, weft_tool_ports *out)
{
    weft_module *m = NULL;
    weft_graph *g = NULL;
    weft_err err = load(v, v->diag, &m, &g);
    if (err == WEFT_ERR_OK)
        read_ports(g, v->arena, out);
    weft_module_destroy(m);
    return err;
}

weft_err weft_tool_verify_inputs(const weft_tool_verify *v, const int64_t *symbol, weft_tensor *in)
{
    weft_module *m = NULL;
    weft_graph *g = NULL;
    weft_err err = load(v, v->diag, &m, &g);
    if (err == WEFT_ERR_OK)
        err = weft_tool_make_graph_inputs(g, symbol, v->arena, v->diag, in);
    weft_module_destroy(m);
    return err;
}

/* Cuts the model off behind a value, which becomes all of its outputs. */
static void cut_off(weft_graph *g, weft_val at)
{
    for (uint32_t i = 0; at.i && i < weft_graph_output_count(g); i++)
        weft_graph_set_output(g, i, at);
}

static weft_err evaluate(const weft_tool_verify *v, weft_val cut, const weft_tensor *in,
                         weft_arena *arena, weft_diag *diag, weft_tensor *out)
{
    weft_module *m = NULL;
    weft_graph *g = NULL;
    weft_err err = load(v, diag, &m, &g);
    if (err == WEFT_ERR_OK) {
        cut_off(g, cut);
        err = weft_graph_eval(g, in, weft_graph_input_count(g), arena, diag, out,
                              weft_graph_output_count(g));
    }
    weft_module_destroy(m);
    return err;
}

weft_err weft_tool_verify_reference(const weft_tool_verify *v, const weft_tensor *in,
                                    weft_tensor *out)
{
    weft_tool_progress("%s: evaluating", v->file);
    weft_err err = evaluate(v, whole, in, v->arena, v->diag, out);
    weft_tool_progress(NULL);
    return err;
}

/* -- One way ---------------------------------------------------------------------------------- */

/* The model, cut off or whole, compiled in one way. */
typedef struct trial {
    const weft_tool_verify *v;
    const weft_tool_way *way;
    const weft_tensor *in, *want; /* of output 0; NULL: the passes are not watched */
    const char *first_pass;       /* the first one after which the evaluator differs */
    const char *kernel;           /* of the last launch */
    weft_arena *arena;
    weft_diag *diag;
    weft_module *m;
    weft_graph *g;
    char target[TARGET_MAX];
} trial;

static void watch_pass(void *user, const weft_pass *pass, uint32_t number, bool after, bool changed,
                       double time_ms, weft_module *m)
{
    trial *t = user;
    uint32_t n = weft_graph_output_count(t->g);
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    (void)number, (void)time_ms, (void)m;
    if (after && changed && !t->first_pass && diag && arena) {
        weft_tensor *out = weft_arena_array(arena, (size_t)n + 1, sizeof *out);
        weft_err err =
            weft_graph_eval(t->g, t->in, weft_graph_input_count(t->g), arena, diag, out, n);
        if (err != WEFT_ERR_OK || !(weft_tool_difference(t->want, &out[0]) <= t->v->tolerance))
            t->first_pass = weft_pass_name(pass);
    }
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
}

/* The target of the way: the first GPU's, if the user named none. UNSUP: there is no GPU. */
static weft_err choose_target(trial *t)
{
    weft_machine machine;
    if (!t->way->is_gpu || !t->way->driver) {
        snprintf(t->target, sizeof t->target, "%s", t->way->is_gpu ? "sm_80" : "cpu");
        return WEFT_ERR_OK;
    }
    WEFT_TRY(weft_machine_read(t->arena, t->diag, &machine));
    if (machine.n_gpu == 0 || machine.gpu[0].why_not[0])
        return weft_diag_error(t->diag, WEFT_ERR_UNSUP, (weft_where){0}, "%s",
                               machine.n_gpu ? machine.gpu[0].why_not : machine.why_no_gpu);
    snprintf(t->target, sizeof t->target, "sm_%d%d", machine.gpu[0].cc_major,
             machine.gpu[0].cc_minor);
    return WEFT_ERR_OK;
}

static weft_err lower(trial *t)
{
    size_t n = 0;
    const char *target = t->v->target && t->way->is_gpu ? t->v->target : t->target;
    const weft_pass *const *pass = weft_pipeline_for(target, &n);
    const weft_run_options run = {.pass = {.target = target, .exact_f32 = true},
                                  .hook = t->want ? watch_pass : NULL,
                                  .user = t};
    return weft_passes_run(t->m, pass, n, &run, t->diag);
}

/* Names the kernel of the program's last launch. */
static void name_kernel(trial *t, weft_session *session)
{
    uint32_t n = 0;
    const weft_launch_time *time = weft_session_times(session, &n);
    if (n)
        t->kernel = weft_arena_strdup(t->v->arena, time[n - 1].variant);
}

static weft_err run_session(trial *t, weft_session *session, weft_tensor *out)
{
    const weft_bundle_program *p = weft_session_program(session);
    weft_tensor *got = weft_arena_array(t->arena, (size_t)p->n_output + 1, sizeof *got);
    weft_session_profile(session, t->want && !weft_session_has_device(session));
    WEFT_TRY(weft_session_run(session, t->in, p->n_input, t->diag, got, p->n_output));
    if (t->want && !weft_session_has_device(session))
        name_kernel(t, session);
    for (uint32_t i = 0; i < p->n_output; i++) {
        out[i] = got[i];
        out[i].data = weft_arena_alloc(t->arena, weft_tensor_bytes(&got[i]));
        memcpy(out[i].data, got[i].data, weft_tensor_bytes(&got[i]));
    }
    return WEFT_ERR_OK;
}

static weft_err run_bundle(trial *t, const char *path, weft_tensor *out)
{
    const weft_engine_options options = {.driver = t->way->driver, .threads = t->v->threads};
    weft_tool_cache kernels;
    const weft_codegen_options how = {.target = t->v->target ? t->v->target : t->target,
                                      .worker = "/proc/self/exe",
                                      .cache = weft_tool_kernel_cache(NULL, &kernels)};
    weft_bundle bundle = {0};
    weft_engine *engine = NULL;
    weft_session *session = NULL;
    if (t->way->is_gpu)
        WEFT_TRY(
            weft_codegen_make(t->m, weft_backend_find("cuda"), &how, t->arena, t->diag, &bundle));
    else
        WEFT_TRY(weft_codegen_bundle(t->m, weft_backend_find("cpu"), NULL, NULL, t->arena, t->diag,
                                     &bundle));
    WEFT_TRY(weft_bundle_write(&bundle, path, t->diag));
    weft_err err = weft_engine_open(path, &options, t->diag, &engine);
    if (err == WEFT_ERR_OK)
        err = weft_session_open(engine, weft_engine_bundle(engine)->program[0].name, t->diag,
                                &session);
    if (err == WEFT_ERR_OK)
        err = run_session(t, session, out);
    weft_session_close(session);
    weft_engine_close(engine);
    return err;
}

/* Computes the model cut off behind `cut`; `out` lives in the trial's arena. */
static weft_err compute(trial *t, weft_val cut, weft_tensor *out)
{
    const char *path = NULL;
    WEFT_TRY(choose_target(t));
    WEFT_TRY(load(t->v, t->diag, &t->m, &t->g));
    cut_off(t->g, cut);
    WEFT_TRY(lower(t));
    if (!t->way->driver)
        return weft_graph_eval(t->g, t->in, weft_graph_input_count(t->g), t->arena, t->diag, out,
                               weft_graph_output_count(t->g));
    WEFT_TRY(weft_tool_make_temporary("weft-verify", t->arena, t->diag, &path));
    weft_err err = run_bundle(t, path, out);
    unlink(path);
    return err;
}

/* -- Where they part -------------------------------------------------------------------------- */

/* A value that the differing output depends on. */
typedef struct candidate {
    weft_val val;
    const char *item, *op;
} candidate;

typedef WEFT_VEC(candidate) candidates;

/* Lists the results that the output depends on, in the order of the nodes. */
static weft_err list_candidates(const weft_tool_verify *v, uint32_t output, weft_arena *arena,
                                weft_diag *diag, candidates *out)
{
    weft_module *m = NULL;
    weft_graph *g = NULL;
    weft_err err = load(v, diag, &m, &g);
    if (err == WEFT_ERR_OK) {
        bool *needed = weft_arena_array(arena, (size_t)weft_val_count(m) + 1, sizeof *needed);
        needed[weft_graph_output(g, output).i] = true;
        for (weft_node n = weft_graph_last(g); n.i; n = weft_node_prev(m, n)) {
            bool is_needed = false;
            for (uint32_t i = 0; i < weft_node_out_count(m, n); i++)
                is_needed |= needed[weft_node_out(m, n, i).i];
            for (uint32_t i = 0; is_needed && i < weft_node_in_count(m, n); i++)
                needed[weft_node_in(m, n, i).i] = true;
        }
        WEFT_FOREACH_NODE (m, g, n)
            for (uint32_t i = 0; i < weft_node_out_count(m, n); i++) {
                weft_val val = weft_node_out(m, n, i);
                const char *item = weft_node_loc(m, n).item;
                candidate one = {val, weft_arena_strdup(arena, item ? item : ""),
                                 weft_node_opdef(m, n)->name};
                if (needed[val.i])
                    WEFT_VEC_PUSH(arena, out, one);
            }
    }
    weft_module_destroy(m);
    return err;
}

/* Computes a value by the way and by the reference. Returns the difference; a value that one of
 * them cannot give counts as equal, so that the search goes on behind it. */
static double compare_value(const weft_tool_verify *v, const weft_tool_way *way,
                            const weft_tensor *in, uint32_t n_output, weft_val at,
                            weft_tool_parting *parting)
{
    double difference = 0;
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    trial t = {.v = v, .way = way, .in = in, .arena = arena, .diag = diag};
    if (diag && arena) {
        weft_tensor *want = weft_arena_array(arena, (size_t)n_output + 1, sizeof *want);
        weft_tensor *got = weft_arena_array(arena, (size_t)n_output + 1, sizeof *got);
        if (evaluate(v, at, in, arena, diag, want) == WEFT_ERR_OK) {
            t.want = parting ? want : NULL;
            if (compute(&t, at, got) == WEFT_ERR_OK)
                difference = weft_tool_difference(&want[0], &got[0]);
        }
    }
    if (parting) {
        parting->pass = t.first_pass;
        parting->kernel = t.kernel;
    }
    weft_module_destroy(t.m);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return difference;
}

/* Bisection: the inputs agree, the last value differs. */
static weft_err find_parting(const weft_tool_verify *v, const weft_tool_way *way,
                             const weft_tensor *in, uint32_t n_output, uint32_t output,
                             weft_arena *arena, weft_diag *diag, weft_tool_verdict *out)
{
    candidates list = {0};
    WEFT_TRY(list_candidates(v, output, arena, diag, &list));
    size_t agrees = 0, differs = list.len; /* numbers of values: list.at[number - 1] */
    while (differs > agrees + 1) {
        size_t middle = agrees + (differs - agrees) / 2;
        weft_tool_progress("%s, %s: searching where it differs, %zu values", v->file, way->name,
                           differs - agrees);
        double d = compare_value(v, way, in, n_output, list.at[middle - 1].val, NULL);
        if (d <= v->tolerance)
            agrees = middle;
        else
            differs = middle;
    }
    if (differs == 0)
        return WEFT_ERR_OK;
    weft_tool_parting *parting = weft_arena_alloc(v->arena, sizeof *parting);
    const candidate *c = &list.at[differs - 1];
    *parting = (weft_tool_parting){.item = weft_arena_strdup(v->arena, c->item), .op = c->op};
    parting->difference = compare_value(v, way, in, n_output, c->val, parting);
    if (parting->difference > v->tolerance)
        out->parting = parting;
    return WEFT_ERR_OK;
}

/* -- The verdict ------------------------------------------------------------------------------ */

static weft_err judge(trial *t, uint32_t n, const weft_tensor *want, weft_tool_verdict *out)
{
    uint32_t worst = 0;
    weft_tool_progress("%s: %s", t->v->file, t->way->name);
    weft_tensor *got = weft_arena_array(t->arena, (size_t)n + 1, sizeof *got);
    double *difference = weft_arena_array(t->v->arena, (size_t)n + 1, sizeof *difference);
    WEFT_TRY(compute(t, whole, got));
    out->agrees = true;
    for (uint32_t i = 0; i < n; i++) {
        difference[i] = weft_tool_difference(&want[i], &got[i]);
        out->agrees = out->agrees && difference[i] <= t->v->tolerance;
        worst = difference[i] > difference[worst] ? i : worst;
    }
    out->difference = difference;
    return out->agrees ? WEFT_ERR_OK
                       : find_parting(t->v, t->way, t->in, n, worst, t->arena, t->diag, out);
}

weft_err weft_tool_verify_way(const weft_tool_verify *v, const weft_tool_way *way,
                              uint32_t n_output, const weft_tensor *in, const weft_tensor *want,
                              weft_tool_verdict *out)
{
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    trial t = {.v = v, .way = way, .in = in, .arena = arena, .diag = diag};
    *out = (weft_tool_verdict){.way = way};
    weft_err err = diag && arena ? judge(&t, n_output, want, out) : WEFT_ERR_NOMEM;
    if (err != WEFT_ERR_OK && err != WEFT_ERR_NOMEM) {
        out->is_absent = t.m == NULL && way->is_gpu;
        out->agrees = false;
        out->why = weft_tool_take_reason(diag, err, v->arena);
        err = WEFT_ERR_OK;
    }
    weft_tool_progress(NULL);
    weft_module_destroy(t.m);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return err;
}
