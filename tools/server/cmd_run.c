/* weft run: runs a model once on inputs from files. */
#include "runtime/adapter/adapter.h"
#include "runtime/runtime.h"
#include "runtime/server/server.h"
#include "tools/server/device_options.h"
#include "tools/common/npy.h"
#include "tools/common/ports.h"
#include "tools/common/tools.h"

#include "base/file.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SHOWN_VALUES = 6 };

typedef struct options {
    const char *bundle, *model, *adapter, *require_signature;
    weft_tool_bindings input, output, expect;
    double tolerance;
    bool json;
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

/* JSON has no NaN and no infinities: they are texts. Integers from 2^63 on are reals. */
static json_t *json_value(const weft_tensor *t, int64_t i)
{
    if (weft_dtype_is_int(t->dtype) &&
        (t->dtype != WEFT_DTYPE_U64 || weft_tensor_get_i64(t, i) >= 0))
        return json_integer(weft_tensor_get_i64(t, i));
    double x = weft_tensor_get_f64(t, i);
    if (t->dtype == WEFT_DTYPE_BOOL)
        return json_boolean(x != 0);
    return isfinite(x) ? json_real(x) : json_string(isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
}

/* An output as JSON. `file`: it is written there; NULL: with its values, if `with_data`. */
static json_t *json_output(const char *name, const weft_tensor *t, const char *file, bool with_data)
{
    json_t *shape = json_array();
    for (int32_t i = 0; i < t->rank; i++)
        json_array_append_new(shape, json_integer(t->dim[i]));
    json_t *out = json_pack("{s:s, s:s, s:o}", "name", name, "dtype", weft_dtype_name(t->dtype),
                            "shape", shape);
    if (file)
        json_object_set_new(out, "file", json_string(file));
    if (!with_data)
        return out;
    json_t *data = json_array();
    for (int64_t i = 0, n = weft_tensor_numel(t); i < n; i++)
        json_array_append_new(data, json_value(t, i));
    json_object_set_new(out, "data", data);
    return out;
}

static weft_err refuse_output(const weft_bundle_program *p, const char *name, weft_arena *arena,
                              weft_diag *diag)
{
    const char **known = weft_arena_array(arena, (size_t)p->n_output + 1, sizeof *known);
    for (uint32_t i = 0; i < p->n_output; i++)
        known[i] = p->output[i].name;
    return weft_tool_refuse_port("output", name, known, p->n_output, (weft_where){.item = p->name},
                                 diag);
}

/* -- Comparison ----------------------------------------------------------------------------- */

static void print_comparison(const char *name, bool shape, double worst, double tolerance)
{
    printf("%s: %s, largest relative difference %.3g (tolerance %.3g)\n", name,
           !shape               ? "wrong type or shape"
           : worst <= tolerance ? "agrees"
                                : "DIFFERS",
           worst, tolerance);
}

/* `compared`: the JSON report; NULL: as text. */
static weft_err compare(const options *o, const weft_bundle_program *p, const weft_tensor *out,
                        json_t *compared, weft_arena *arena, weft_diag *diag, bool *out_differs)
{
    for (size_t i = 0; i < o->expect.n; i++) {
        weft_tensor want = {0};
        const char *name = o->expect.at[i].name;
        uint32_t at = weft_bundle_find_port(p->output, p->n_output, name);
        if (at == UINT32_MAX)
            return refuse_output(p, name, arena, diag);
        WEFT_TRY(weft_tool_load_tensor(o->expect.at[i].path, arena, diag, &want));
        bool shape = weft_tool_same_shape(&want, &out[at]);
        double worst = weft_tool_difference(&want, &out[at]);
        bool agrees = worst <= o->tolerance;
        if (compared)
            json_array_append_new(
                compared, json_pack("{s:s, s:b, s:o, s:f}", "output", name, "agrees", agrees,
                                    "difference", isfinite(worst) ? json_real(worst) : json_null(),
                                    "tolerance", o->tolerance));
        else
            print_comparison(name, shape, worst, o->tolerance);
        *out_differs |= !agrees;
    }
    return WEFT_ERR_OK;
}

/* -- The verb ------------------------------------------------------------------------------- */

/* The file that an output is written to; NULL: none. */
static const char *file_of(const options *o, const char *name)
{
    for (size_t i = 0; i < o->output.n; i++)
        if (strcmp(o->output.at[i].name, name) == 0)
            return o->output.at[i].path;
    return NULL;
}

/* Outputs that no option names, for weft_session_skip. */
static uint64_t find_unused(const options *o, const weft_bundle_program *p)
{
    uint64_t unused = 0;
    for (uint32_t i = 0; i < p->n_output && i < WEFT_SKIPPED_OUTPUTS_MAX; i++) {
        bool used = file_of(o, p->output[i].name) != NULL;
        for (size_t k = 0; k < o->expect.n; k++)
            used = used || strcmp(o->expect.at[k].name, p->output[i].name) == 0;
        unused |= (uint64_t)!used << i;
    }
    return unused;
}

static weft_err save_outputs(const options *o, const weft_bundle_program *p, const weft_tensor *out,
                             weft_arena *arena, weft_diag *diag)
{
    for (size_t i = 0; i < o->output.n; i++) {
        uint32_t at = weft_bundle_find_port(p->output, p->n_output, o->output.at[i].name);
        if (at == UINT32_MAX)
            return refuse_output(p, o->output.at[i].name, arena, diag);
        WEFT_TRY(weft_npy_save(o->output.at[i].path, &out[at], diag));
    }
    return WEFT_ERR_OK;
}

/* `report`: gets the JSON report; NULL: as text. Values are told where no option says what becomes
 * of outputs. */
static void tell_outputs(const options *o, const weft_bundle_program *p, const weft_tensor *out,
                         json_t *report)
{
    bool with_data = o->output.n + o->expect.n == 0;
    json_t *outputs = report ? json_array() : NULL;
    for (uint32_t i = 0; i < p->n_output; i++) {
        const char *name = p->output[i].name;
        if (outputs)
            json_array_append_new(outputs, json_output(name, &out[i], file_of(o, name), with_data));
        else if (with_data)
            print_output(name, &out[i]);
    }
    if (report)
        json_object_update_new(report,
                               json_pack("{s:s, s:o}", "model", p->name, "outputs", outputs));
}

/* Adds an adapter from its folder, which is not in the bundle. */
static weft_err add_adapter(const options *o, weft_session *session, uint64_t number,
                            weft_arena *arena, weft_diag *diag)
{
    const weft_bundle_site *site;
    weft_peft peft;
    uint32_t n = weft_bundle_sites(weft_session_program(session), arena, &site);
    if (o->require_signature)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = o->adapter},
                               "adapters have no signatures, which --require-signature asks for");
    WEFT_TRY(weft_peft_read(NULL, o->adapter, arena, diag, &peft));
    uint32_t *of = weft_arena_array(arena, (size_t)peft.n + 1, sizeof *of);
    weft_adapter_part *part = weft_arena_array(arena, (size_t)peft.n + 1, sizeof *part);
    WEFT_TRY(weft_peft_find_sites(&peft, site, n, o->adapter, diag, of));
    for (uint32_t i = 0; i < peft.n; i++) {
        const weft_peft_module *m = &peft.module[i];
        part[i] = (weft_adapter_part){site[of[i]].name, {m->rank, m->k, m->n, m->a, m->b}};
    }
    return weft_session_add_adapter(session, number, part, peft.n, diag);
}

/* All rows of the batch get the adapter that is asked for. */
static weft_err take_adapter(const options *o, weft_session *session, const weft_bundle *bundle,
                             weft_arena *arena, weft_diag *diag)
{
    static const uint64_t added = (uint64_t)1 << 32;
    const weft_bundle_program *p = weft_session_program(session);
    if (!o->adapter)
        return WEFT_ERR_OK;
    if (strchr(o->adapter, '/')) {
        WEFT_TRY(add_adapter(o, session, added, arena, diag));
        return weft_session_adapt(session, &added, 1, diag);
    }
    const uint64_t number =
        weft_bundle_find_adapter(bundle, (uint32_t)(p - bundle->program), o->adapter);
    if (!number)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = o->bundle},
                               "model %s has no adapter '%s'", p->name, o->adapter);
    return weft_session_adapt(session, &number, 1, diag);
}

static weft_err run_session(const options *o, weft_session *session, weft_arena *arena,
                            weft_diag *diag, bool *out_differs)
{
    const weft_bundle_program *p = weft_session_program(session);
    weft_tensor *in = weft_arena_array(arena, (size_t)p->n_input + 1, sizeof *in);
    weft_tensor *out = weft_arena_array(arena, (size_t)p->n_output + 1, sizeof *out);
    WEFT_TRY(weft_tool_load_inputs(&o->input, p, arena, diag, in));
    if (!o->json && o->output.n + o->expect.n > 0)
        weft_session_skip(session, find_unused(o, p));
    weft_tool_progress("running %s", p->name);
    weft_err ran = weft_session_run(session, in, p->n_input, diag, out, p->n_output);
    weft_tool_progress(NULL);
    WEFT_TRY(ran);
    WEFT_TRY(save_outputs(o, p, out, arena, diag));
    json_t *compared = o->json ? json_array() : NULL;
    json_t *report = o->json ? json_pack("{s:O}", "compared", compared) : NULL;
    tell_outputs(o, p, out, report);
    weft_err err = compare(o, p, out, compared, arena, diag, out_differs);
    if (report && err == WEFT_ERR_OK) {
        json_dumpf(report, stdout, JSON_INDENT(2) | JSON_SORT_KEYS);
        putchar('\n');
    }
    json_decref(compared);
    json_decref(report);
    return err;
}

/* With a signature the bytes that were checked are those that run. */
static weft_err open_engine(const options *o, weft_diag *diag, weft_engine **out)
{
    int fd;
    if (!o->require_signature)
        return weft_engine_open(o->bundle, &o->engine, diag, out);
    WEFT_TRY(weft_file_freeze(o->bundle, diag, &fd));
    weft_err err = weft_signature_require(fd, NULL, o->bundle, o->require_signature, diag);
    if (err == WEFT_ERR_OK)
        err = weft_engine_open_fd(fd, o->bundle, &o->engine, diag, out);
    close(fd);
    return err;
}

static weft_err run_model(const options *o, weft_arena *arena, weft_diag *diag, bool *out_differs)
{
    weft_engine *engine = NULL;
    weft_session *session = NULL;
    weft_tool_progress("loading %s", o->bundle);
    WEFT_TRY(open_engine(o, diag, &engine));
    const weft_bundle *bundle = weft_engine_bundle(engine);
    weft_err err = WEFT_ERR_OK;
    const char *model = o->model;
    if (!model && bundle->n_program == 1)
        model = bundle->program[0].name;
    if (!model)
        err = weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = o->bundle},
                              "holds %u models: name one with --model, such as %s",
                              bundle->n_program, bundle->program[0].name);
    if (err == WEFT_ERR_OK)
        err = weft_session_open(engine, model, diag, &session);
    if (err == WEFT_ERR_OK)
        err = take_adapter(o, session, bundle, arena, diag);
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
