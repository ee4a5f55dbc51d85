/* weft report: one page of HTML from bundles, compile reports, estimates, plans, simulations and
 * measurements. */
#include "tools/common/tools.h"
#include "tools/compiler/inspect.h"
#include "tools/report/page.h"

#include <string.h>
#include <unistd.h>

typedef struct options {
    const char *output, *title;
} options;

#define OPTIONS_OF_report
#define OPTIONS options
#include "tools/common/option_rows.h"

static bool has_format(const json_t *root, const char *format)
{
    const char *text = json_string_value(json_object_get(root, "format"));
    return text && strcmp(text, format) == 0;
}

static bool is_plan(const json_t *root)
{
    return has_format(root, "weft-plan");
}

static bool is_simulation(const json_t *root)
{
    return has_format(root, "weft-simulation");
}

static bool is_bench(const json_t *root)
{
    return has_format(root, "weft-bench");
}

static bool is_compile_report(const json_t *root)
{
    return json_is_array(json_object_get(root, "merges"));
}

static bool is_estimate(const json_t *root)
{
    return json_is_string(json_object_get(root, "lowering")) &&
           json_is_array(json_object_get(root, "models"));
}

static const struct {
    bool (*is)(const json_t *root);
    void (*add)(weft_page *page, const json_t *root);
} kinds[] = {{is_plan, weft_page_add_plan},
             {is_simulation, weft_page_add_simulation},
             {is_bench, weft_page_add_bench},
             {is_compile_report, weft_page_add_merges},
             {is_estimate, weft_page_add_estimate}};

static weft_err add_json(weft_page *page, const char *path, weft_diag *diag)
{
    const weft_where where = {.file = path};
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return weft_diag_error(
            diag, WEFT_ERR_INPUT,
            (weft_where){.file = path, .line = error.line > 0 ? (uint32_t)error.line : 0}, "%s",
            error.text);
    weft_err err = WEFT_ERR_INPUT;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && err != WEFT_ERR_OK; i++)
        if (kinds[i].is(root)) {
            kinds[i].add(page, root);
            err = WEFT_ERR_OK;
        }
    json_decref(root);
    if (err != WEFT_ERR_OK)
        return weft_diag_error(diag, err, where,
                               "is no plan (weft plan -o), compile report (weft compile "
                               "--report), nor JSON of weft simulate, estimate or bench "
                               "(--format json)");
    return err;
}

static weft_err add_bundle(weft_page *page, const char *path, weft_arena *arena, weft_diag *diag)
{
    json_t *root = json_object();
    weft_err err = weft_tool_inspect(path, true, diag, arena, root);
    const json_t *plan = json_object_get(root, "plan");
    if (err == WEFT_ERR_OK)
        weft_page_add_bundle(page, root);
    if (err == WEFT_ERR_OK && json_is_object(plan))
        weft_page_add_plan(page, plan);
    json_decref(root);
    return err;
}

/* Whether the first byte that is no space opens an object. */
static weft_err find_json(const char *path, weft_diag *diag, bool *out)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){.file = path}, "cannot be opened");
    int c;
    while ((c = getc(file)) == ' ' || c == '\n' || c == '\t' || c == '\r')
        continue;
    *out = c == '{';
    fclose(file);
    return WEFT_ERR_OK;
}

static weft_err add_file(weft_page *page, const char *path, weft_arena *arena, weft_diag *diag)
{
    bool is_json = false;
    weft_file_kind kind = WEFT_FILE_TEXT;
    page->file = path;
    weft_tool_progress("reading %s", path);
    WEFT_TRY(find_json(path, diag, &is_json));
    if (is_json)
        return add_json(page, path, diag);
    WEFT_TRY(weft_tool_sniff(path, diag, &kind));
    if (kind != WEFT_FILE_BUNDLE)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = path},
                               "is a model, or nothing that is reported: compile it, or give the "
                               "JSON of weft estimate");
    return add_bundle(page, path, arena, diag);
}

static weft_err write_report(const options *o, char *const *file, int n, weft_arena *arena,
                             weft_diag *diag)
{
    weft_page page = {0};
    weft_err err = WEFT_ERR_OK;
    for (int i = 0; i < n && err == WEFT_ERR_OK; i++)
        err = add_file(&page, file[i], arena, diag);
    if (err == WEFT_ERR_OK)
        err = weft_page_save(&page, o->title ? o->title : "Weft report", o->output, diag);
    weft_page_finish(&page);
    return err;
}

static int run_report(int argc, char **argv)
{
    options o = {0};
    int code = weft_options_parse(&weft_verb_report, argc, argv, &o);
    if (code >= 0)
        return code;
    if (optind >= argc)
        return weft_tool_usage(&weft_verb_report, "expected files: a bundle, a plan, ...");
    if (!o.output)
        return weft_tool_usage(&weft_verb_report, "expected -o PAGE.html ('-': standard output)");
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    weft_err err = diag && arena ? write_report(&o, argv + optind, argc - optind, arena, diag)
                                 : WEFT_ERR_NOMEM;
    code = weft_tool_report(diag, err);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return code;
}

const weft_verb weft_verb_report = {.name = "report", .row = rows, .run = run_report};
