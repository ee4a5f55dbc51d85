/* weft run: runs a model once on inputs from files. */
#include "runtime/runtime.h"
#include "tools/server/device_options.h"
#include "tools/server/npy.h"
#include "tools/server/ports.h"
#include "tools/common/tools.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SHOWN_VALUES = 6 };

typedef struct options {
    const char *bundle, *model;
    weft_tool_bindings input, output, expect;
    double tolerance;
    weft_engine_options engine;
} options;

#define OPTIONS_OF_run
#define OPTIONS options
#include "tools/common/option_rows.h"

/* -- Tensors -------------------------------------------------------------------------------- */

static void print_output(const char *name, const weft_tensor *t)
{
    printf("%s : %s[", name, weft_dtype_name(t->dtype));
    for (int32_t i = 0; i < t->rank; i++)
        printf("%s%lld", i ? "," : "", (long long)t->dim[i]);
    printf("] =");
    int64_t n = weft_tensor_numel(t);
    for (int64_t i = 0; i < n && i < SHOWN_VALUES; i++)
        printf(" %.6g", weft_tensor_get_f64(t, i));
    puts(n > SHOWN_VALUES ? " ..." : "");
}

/* -- Comparison ----------------------------------------------------------------------------- */

static bool same_shape(const weft_tensor *a, const weft_tensor *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank)
        return false;
    for (int32_t i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i])
            return false;
    return true;
}

/* Returns the largest difference divided by the largest expected magnitude (at least 1e-6). NaN
 * equals NaN, an infinity equals only itself. */
static double difference(const weft_tensor *got, const weft_tensor *want)
{
    double scale = 1e-6, worst = 0;
    int64_t n = weft_tensor_numel(want);
    for (int64_t i = 0; i < n; i++) {
        double x = fabs(weft_tensor_get_f64(want, i));
        scale = isfinite(x) && x > scale ? x : scale;
    }
    for (int64_t i = 0; i < n; i++) {
        double x = weft_tensor_get_f64(got, i), y = weft_tensor_get_f64(want, i);
        if (x == y || (isnan(x) && isnan(y)))
            continue;
        double d = fabs(x - y) / scale;
        worst = d >= worst ? d : (isnan(d) ? INFINITY : worst);
    }
    return worst;
}

static weft_err compare(const options *o, const weft_bundle_program *p, const weft_tensor *out,
                        weft_arena *arena, weft_diag *diag, bool *out_differs)
{
    for (size_t i = 0; i < o->expect.n; i++) {
        weft_tensor want = {0};
        uint32_t at = weft_bundle_find_port(p->output, p->n_output, o->expect.at[i].name);
        if (at == UINT32_MAX)
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = p->name},
                                   "has no output '%s'", o->expect.at[i].name);
        WEFT_TRY(weft_tool_load_tensor(o->expect.at[i].path, arena, diag, &want));
        bool shape = same_shape(&out[at], &want);
        double worst = shape ? difference(&out[at], &want) : INFINITY;
        bool differs = !(worst <= o->tolerance);
        printf("%s: %s, largest relative difference %.3g (tolerance %.3g)\n", o->expect.at[i].name,
               !shape    ? "wrong type or shape"
               : differs ? "DIFFERS"
                         : "agrees",
               worst, o->tolerance);
        *out_differs |= differs;
    }
    return WEFT_ERR_OK;
}

/* -- The verb ------------------------------------------------------------------------------- */

static weft_err save_outputs(const options *o, const weft_bundle_program *p, const weft_tensor *out,
                             weft_diag *diag)
{
    for (size_t i = 0; i < o->output.n; i++) {
        uint32_t at = weft_bundle_find_port(p->output, p->n_output, o->output.at[i].name);
        if (at == UINT32_MAX)
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = p->name},
                                   "has no output '%s'", o->output.at[i].name);
        WEFT_TRY(weft_npy_save(o->output.at[i].path, &out[at], diag));
    }
    for (uint32_t i = 0; i < p->n_output && o->output.n + o->expect.n == 0; i++)
        print_output(p->output[i].name, &out[i]);
    return WEFT_ERR_OK;
}

static weft_err run_session(const options *o, weft_session *session, weft_arena *arena,
                            weft_diag *diag, bool *out_differs)
{
    const weft_bundle_program *p = weft_session_program(session);
    weft_tensor *in = weft_arena_array(arena, (size_t)p->n_input + 1, sizeof *in);
    weft_tensor *out = weft_arena_array(arena, (size_t)p->n_output + 1, sizeof *out);
    WEFT_TRY(weft_tool_load_inputs(&o->input, p, arena, diag, in));
    WEFT_TRY(weft_session_run(session, in, p->n_input, diag, out, p->n_output));
    WEFT_TRY(save_outputs(o, p, out, diag));
    return compare(o, p, out, arena, diag, out_differs);
}

static weft_err run_model(const options *o, weft_arena *arena, weft_diag *diag, bool *out_differs)
{
    weft_engine *engine = NULL;
    weft_session *session = NULL;
    WEFT_TRY(weft_engine_open(o->bundle, &o->engine, diag, &engine));
    const weft_bundle *bundle = weft_engine_bundle(engine);
    weft_err err = WEFT_ERR_OK;
    const char *model = o->model;
    if (!model && bundle->n_program == 1)
        model = bundle->program[0].name;
    if (!model)
        err = weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = o->bundle},
                              "holds %u models: name one with --model", bundle->n_program);
    if (err == WEFT_ERR_OK)
        err = weft_session_open(engine, model, diag, &session);
    if (err == WEFT_ERR_OK)
        err = run_session(o, session, arena, diag, out_differs);
    weft_session_close(session);
    weft_engine_close(engine);
    return err;
}

static int run_run(int argc, char **argv)
{
    options *o = calloc(1, sizeof *o);
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    bool differs = false;
    int code = WEFT_EXIT_FAILED;
    if (o && diag && arena) {
        o->tolerance = 1e-4;
        code = weft_options_parse_one(&weft_verb_run, argc, argv, o, "bundle", &o->bundle);
        if (code < 0)
            code = weft_tool_report(diag, run_model(o, arena, diag, &differs));
    } else {
        code = weft_tool_report(diag, WEFT_ERR_NOMEM);
    }
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    free(o);
    return code == WEFT_EXIT_DONE && differs ? WEFT_EXIT_DIFFERS : code;
}

const weft_verb weft_verb_run = {.name = "run", .row = rows, .run = run_run};
