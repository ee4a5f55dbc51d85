/* weft verify: computes a model in every way beside the evaluator, and says where they part. */
#include "passes/passes.h"
#include "tools/common/ports.h"
#include "tools/compiler/compare_ways.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WAYS_MAX = 8, DIMS_MAX = 64, CASES = 2 };

/* Values of the symbols in the second case, in turn: prime, so that kernels meet sizes that fit no
 * vector. */
static const int64_t odd_sizes[] = {3, 7, 5, 11};

typedef struct options {
    const char *target;
    const weft_tool_way *way[WAYS_MAX];
    size_t n_way;
    weft_tool_dim dim[DIMS_MAX];
    size_t n_dim;
    weft_tool_bindings input, expect;
    double tolerance; /* below 0: by the types of the model */
    uint32_t threads;
    bool json;
    const char *file;
} options;

static int take_target(void *at, const weft_verb *verb, char *arg)
{
    *(const char **)at = arg;
    return weft_target_is_gpu(arg)
               ? 0
               : weft_tool_usage(verb, "--target takes sm_NN of a GPU, not '%s'", arg);
}

static int take_dim(void *at, const weft_verb *verb, char *arg)
{
    options *o = at;
    if (o->n_dim == DIMS_MAX)
        return weft_tool_usage(verb, "over %d dimensions", DIMS_MAX);
    return weft_tool_take_dim(verb, arg, &o->dim[o->n_dim++]);
}

static const weft_tool_way *find_way(const char *name, size_t len)
{
    const weft_tool_way *way;
    for (size_t i = 0; (way = weft_tool_way_at(i)); i++)
        if (strlen(way->name) == len && strncmp(way->name, name, len) == 0)
            return way;
    return NULL;
}

/* Reports all names that --driver takes. */
static int refuse_way(const weft_verb *verb, const char *name, size_t len)
{
    weft_buf names = {0};
    const weft_tool_way *way;
    for (size_t i = 0; (way = weft_tool_way_at(i)); i++)
        weft_buf_printf(&names, "%s%s", i ? ", " : "", way->name);
    int code = weft_tool_usage(verb, "--driver takes %s, separated by commas; there is no '%.*s'",
                               names.at && !names.failed ? names.at : "names", (int)len, name);
    weft_buf_finish(&names);
    return code;
}

static int take_ways(void *at, const weft_verb *verb, char *list)
{
    options *o = at;
    for (o->n_way = 0; o->n_way < WAYS_MAX; list++) {
        size_t len = strcspn(list, ",");
        const weft_tool_way *way = find_way(list, len);
        if (!way)
            return refuse_way(verb, list, len);
        o->way[o->n_way++] = way;
        list += len;
        if (*list == '\0')
            return 0;
    }
    return weft_tool_usage(verb, "--driver: over %d names", WAYS_MAX);
}

#define OPTIONS_OF_verify
#define OPTIONS options
#include "tools/common/option_rows.h"

/* What the verb does at one size, and what it found. */
typedef struct comparison {
    const options *o;
    const weft_tool_ports *ports;
    weft_tool_verify *v;
    json_t *cases; /* NULL: text */
    bool differs;
} comparison;

/* -- Inputs ----------------------------------------------------------------------------------- */

/* Sizes of case `number`: 0 the smallest, 1 odd ones; those of --dim in both. Returns false if they
 * are those of the case before. */
static weft_err choose_sizes(const comparison *c, int number, int64_t *symbol, bool *out_is_new)
{
    const weft_tool_ports *p = c->ports;
    *out_is_new = number == 0;
    for (uint32_t i = 0; i < p->n_symbol; i++) {
        int64_t odd = odd_sizes[i % (sizeof odd_sizes / sizeof odd_sizes[0])];
        int64_t least = p->lo[i] > 1 || p->hi[i] < 1 ? p->lo[i] : 1;
        symbol[i] = number == 0 || odd < least ? least : odd < p->hi[i] ? odd : p->hi[i];
        for (size_t k = 0; k < c->o->n_dim; k++)
            if (strcmp(c->o->dim[k].name, p->symbol[i]) == 0)
                symbol[i] = least = c->o->dim[k].value;
        if (symbol[i] < p->lo[i] || symbol[i] > p->hi[i])
            return weft_diag_error(c->v->diag, WEFT_ERR_INPUT, (weft_where){.item = p->model},
                                   "--dim %s=%lld is outside [%lld, %lld]", p->symbol[i],
                                   (long long)symbol[i], (long long)p->lo[i], (long long)p->hi[i]);
        *out_is_new |= symbol[i] != least;
    }
    return WEFT_ERR_OK;
}

static weft_err check_dims(const comparison *c)
{
    for (size_t k = 0; k < c->o->n_dim; k++) {
        bool found = false;
        for (uint32_t i = 0; i < c->ports->n_symbol; i++)
            found |= strcmp(c->o->dim[k].name, c->ports->symbol[i]) == 0;
        if (!found)
            return weft_diag_error(c->v->diag, WEFT_ERR_INPUT, (weft_where){.file = c->o->file},
                                   "has no symbolic dimension '%s'", c->o->dim[k].name);
    }
    return WEFT_ERR_OK;
}

/* -- Report ----------------------------------------------------------------------------------- */

static void print_sizes(const comparison *c, const weft_tensor *in)
{
    printf("%s:", c->ports->model);
    for (uint32_t i = 0; i < c->ports->n_input; i++) {
        printf("%s %s %s[", i ? "," : "", c->ports->input[i], weft_dtype_name(in[i].dtype));
        for (int32_t k = 0; k < in[i].rank; k++)
            printf("%s%lld", k ? "," : "", (long long)in[i].dim[k]);
        putchar(']');
    }
    puts(c->o->input.n ? "" : ", synthetic");
}

static void print_parting(const weft_tool_parting *p)
{
    printf("    parts at %s%s(%s), off by %.3g: ", p->item, *p->item ? " " : "", p->op,
           p->difference);
    if (p->pass)
        printf("pass %s\n", p->pass);
    else
        printf("the passes are right, kernel %s\n", p->kernel ? p->kernel : "of the device");
}

static void print_verdict(const comparison *c, const char *name, const weft_tool_verdict *verdict)
{
    uint32_t worst = UINT32_MAX;
    if (verdict->why) {
        printf("  %-11s %s: %s\n", name, verdict->is_absent ? "not run" : "FAILS", verdict->why);
        return;
    }
    for (uint32_t i = 0; i < c->ports->n_output; i++)
        if (!isnan(verdict->difference[i]) &&
            (worst == UINT32_MAX || verdict->difference[i] > verdict->difference[worst]))
            worst = i;
    if (worst == UINT32_MAX)
        return;
    printf("  %-11s %s, largest relative difference %.3g%s%s%s\n", name,
           verdict->agrees ? "agrees" : "DIFFERS", verdict->difference[worst],
           c->ports->n_output > 1 ? " (" : "",
           c->ports->n_output > 1 ? c->ports->output[worst] : "",
           c->ports->n_output > 1 ? ")" : "");
    if (verdict->parting)
        print_parting(verdict->parting);
}

/* JSON has no infinity: null. */
static json_t *json_difference(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *json_parting(const weft_tool_parting *p)
{
    if (!p)
        return json_null();
    return json_pack("{s:s, s:s, s:o, s:s?, s:s?}", "item", p->item, "op", p->op, "difference",
                     json_difference(p->difference), "pass", p->pass, "kernel", p->kernel);
}

static json_t *json_verdict(const comparison *c, const char *name, const weft_tool_verdict *verdict)
{
    json_t *outputs = json_array();
    for (uint32_t i = 0; !verdict->why && i < c->ports->n_output; i++)
        if (!isnan(verdict->difference[i]))
            json_array_append_new(outputs,
                                  json_pack("{s:s, s:o}", "name", c->ports->output[i], "difference",
                                            json_difference(verdict->difference[i])));
    return json_pack("{s:s, s:s, s:s?, s:o, s:o}", "driver", name, "verdict",
                     verdict->is_absent ? "not run"
                     : verdict->why     ? "fails"
                     : verdict->agrees  ? "agrees"
                                        : "differs",
                     "why", verdict->why, "outputs", outputs, "parts",
                     json_parting(verdict->parting));
}

static void tell(comparison *c, json_t *drivers, const char *name, const weft_tool_verdict *verdict)
{
    c->differs |= !verdict->agrees && !verdict->is_absent;
    if (drivers)
        json_array_append_new(drivers, json_verdict(c, name, verdict));
    else
        print_verdict(c, name, verdict);
}

static json_t *json_sizes(const comparison *c, const weft_tensor *in)
{
    json_t *inputs = json_array();
    for (uint32_t i = 0; i < c->ports->n_input; i++) {
        json_t *shape = json_array();
        for (int32_t k = 0; k < in[i].rank; k++)
            json_array_append_new(shape, json_integer(in[i].dim[k]));
        json_array_append_new(inputs,
                              json_pack("{s:s, s:s, s:o}", "name", c->ports->input[i], "dtype",
                                        weft_dtype_name(in[i].dtype), "shape", shape));
    }
    return inputs;
}

/* -- One case --------------------------------------------------------------------------------- */

/* Compares answers that the user has, those of another runtime. */
static weft_err compare_expected(comparison *c, const weft_tensor *want, json_t *drivers)
{
    weft_arena *arena = c->v->arena;
    const weft_tool_bindings *list = &c->o->expect;
    double *difference = weft_arena_array(arena, (size_t)c->ports->n_output + 1, sizeof(double));
    weft_tool_verdict verdict = {.difference = difference, .agrees = true};
    for (uint32_t i = 0; i < c->ports->n_output; i++)
        difference[i] = NAN;
    for (size_t i = 0; i < list->n; i++) {
        weft_tensor given = {0};
        uint32_t at = 0;
        while (at < c->ports->n_output && strcmp(c->ports->output[at], list->at[i].name) != 0)
            at++;
        if (at == c->ports->n_output)
            return weft_tool_refuse_port("output", list->at[i].name, c->ports->output,
                                         c->ports->n_output, (weft_where){.file = c->o->file},
                                         c->v->diag);
        WEFT_TRY(weft_tool_load_tensor(list->at[i].path, arena, c->v->diag, &given));
        difference[at] = weft_tool_difference(&given, &want[at]);
        verdict.agrees = verdict.agrees && difference[at] <= c->v->tolerance;
    }
    if (list->n)
        tell(c, drivers, "expected", &verdict);
    return WEFT_ERR_OK;
}

static weft_err compare_case(comparison *c, const weft_tensor *in)
{
    size_t n_out = (size_t)c->ports->n_output + 1;
    weft_tensor *want = weft_arena_array(c->v->arena, n_out, sizeof *want);
    json_t *drivers = c->cases ? json_array() : NULL;
    if (c->cases)
        json_array_append_new(
            c->cases, json_pack("{s:o, s:o}", "inputs", json_sizes(c, in), "drivers", drivers));
    else
        print_sizes(c, in);
    WEFT_TRY(weft_tool_verify_reference(c->v, in, want));
    WEFT_TRY(compare_expected(c, want, drivers));
    for (size_t i = 0; i < c->o->n_way; i++) {
        weft_tool_verdict verdict;
        WEFT_TRY(weft_tool_verify_way(c->v, c->o->way[i], c->ports->n_output, in, want, &verdict));
        tell(c, drivers, c->o->way[i]->name, &verdict);
    }
    return WEFT_ERR_OK;
}

static weft_err compare_given(comparison *c)
{
    weft_tensor *in = weft_arena_array(c->v->arena, (size_t)c->ports->n_input + 1, sizeof *in);
    WEFT_TRY(weft_tool_load_named(&c->o->input, c->ports->model, c->ports->input, c->ports->n_input,
                                  c->v->arena, c->v->diag, in));
    return compare_case(c, in);
}

static weft_err compare_synthetic(comparison *c)
{
    weft_arena *arena = c->v->arena;
    WEFT_TRY(check_dims(c));
    for (int i = 0; i < CASES; i++) {
        bool is_new;
        int64_t *symbol = weft_arena_array(arena, (size_t)c->ports->n_symbol + 1, sizeof *symbol);
        weft_tensor *in = weft_arena_array(arena, (size_t)c->ports->n_input + 1, sizeof *in);
        WEFT_TRY(choose_sizes(c, i, symbol, &is_new));
        if (!is_new)
            break;
        WEFT_TRY(weft_tool_verify_inputs(c->v, symbol, in));
        WEFT_TRY(compare_case(c, in));
    }
    return WEFT_ERR_OK;
}

static weft_err verify_model(const options *o, weft_arena *arena, weft_diag *diag,
                             bool *out_differs)
{
    weft_tool_verify v = {.file = o->file,
                          .target = o->target,
                          .threads = o->threads,
                          .tolerance = o->tolerance,
                          .arena = arena,
                          .diag = diag};
    weft_tool_ports ports;
    comparison c = {.o = o, .ports = &ports, .v = &v};
    if (strcmp(o->file, "-") == 0)
        return weft_diag_error(diag, WEFT_ERR_UNSUP, (weft_where){0},
                               "the model is read several times, and standard input can be read "
                               "only once; name the model file");
    WEFT_TRY(weft_tool_verify_ports(&v, &ports));
    if (v.tolerance < 0)
        v.tolerance = 1e-4 + (ports.rounding > 0x1p-24 ? 8 * ports.rounding : 0);
    if (o->json)
        c.cases = json_array();
    weft_err err = o->input.n || ports.n_input == 0 ? compare_given(&c) : compare_synthetic(&c);
    if (err == WEFT_ERR_OK && c.cases) {
        json_t *report = json_pack("{s:s, s:f, s:b, s:O}", "model", ports.model, "tolerance",
                                   v.tolerance, "agrees", !c.differs, "cases", c.cases);
        json_dumpf(report, stdout, JSON_INDENT(2) | JSON_SORT_KEYS);
        putchar('\n');
        json_decref(report);
    }
    json_decref(c.cases);
    *out_differs = c.differs;
    return err;
}

static int run_verify(int argc, char **argv)
{
    options *o = calloc(1, sizeof *o);
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    bool differs = false;
    int code = WEFT_EXIT_FAILED;
    if (o && diag && arena) {
        o->tolerance = -1;
        while ((o->way[o->n_way] = weft_tool_way_at(o->n_way)))
            o->n_way++;
        code = weft_options_parse_one(&weft_verb_verify, argc, argv, o, "model file", &o->file);
        if (code < 0)
            code = weft_tool_report(diag, verify_model(o, arena, diag, &differs));
    } else {
        code = weft_tool_report(diag, WEFT_ERR_NOMEM);
    }
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    free(o);
    return code == WEFT_EXIT_DONE && differs ? WEFT_EXIT_DIFFERS : code;
}

const weft_verb weft_verb_verify = {.name = "verify", .row = rows, .run = run_verify};
