/* weft export: writes a plan as configuration of another system. */
#include "tools/planner/export_folder.h"

typedef struct options {
    const char *plan, *output;
    const weft_exporter *exporter;
    weft_tool_export export;
    bool json;
} options;

static void print_files(const options *o, const weft_export_file *file, size_t n)
{
    if (o->json)
        printf("[");
    for (size_t i = 0; i < n; i++)
        printf(o->json ? "%s\n  \"%s\"" : "%.0s%s\n", i ? "," : "", file[i].path);
    if (o->json)
        printf("\n]\n");
}

static weft_err run_options(options *o, weft_arena *arena, weft_diag *diag)
{
    size_t n = 0;
    weft_plan plan;
    weft_demands demands;
    const weft_export_file *file = NULL;
    WEFT_TRY(weft_tool_export_plan(o->plan, arena, diag, &plan, &demands));
    WEFT_TRY(weft_tool_export_prepare(&o->export, arena, diag));
    o->export.o.demands = &demands;
    WEFT_TRY(o->exporter->run(&plan, &o->export.o, arena, diag, &file, &n));
    WEFT_TRY(weft_tool_export_write(o->output, file, n, arena, diag));
    print_files(o, file, n);
    return WEFT_ERR_OK;
}

/* -- The verb --------------------------------------------------------------------------------- */

#define OPTIONS_OF_export
#define OPTIONS options
#include "tools/common/option_rows.h"

/* Returns -1 to go on, or an exit code. */
static int parse(int argc, char **argv, options *o)
{
    int code = weft_options_parse_one(&weft_verb_export, argc, argv, o, "plan", &o->plan);
    if (code >= 0)
        return code;
    if (!o->exporter)
        return weft_tool_usage(&weft_verb_export, "--to SYSTEM is needed");
    if (!o->output || !o->output[0])
        return weft_tool_usage(&weft_verb_export, "-o DIR is needed");
    return weft_tool_export_check(&weft_verb_export, &o->export, o->exporter, NULL);
}

static int run_export(int argc, char **argv)
{
    options o = {0};
    int code = parse(argc, argv, &o);
    if (code >= 0)
        return code;
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    code = weft_tool_report(diag, diag && arena ? run_options(&o, arena, diag) : WEFT_ERR_NOMEM);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return code;
}

const weft_verb weft_verb_export = {.name = "export", .row = rows, .run = run_export};
