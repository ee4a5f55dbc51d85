/* weft export: writes a plan as configuration of another system. */
#include "scheduler/scheduler.h"
#include "tools/common/tools.h"

#include "base/file.h"
#include "base/num.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PLAN_BYTES_MAX = 256 << 20, NODES_BYTES_MAX = 16 << 20, SBATCH_MAX = 32 };

typedef struct options {
    const char *plan, *output, *nodes;
    const weft_exporter *exporter;
    weft_export_options export;
    const char *sbatch[SBATCH_MAX];
    bool json;
} options;

/* Creates the missing folders on the way to `path`. */
static weft_err make_folders(const char *path, weft_arena *arena, weft_diag *diag)
{
    char *copy = weft_arena_strdup(arena, path);
    for (char *at = copy + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        if (mkdir(copy, 0777) != 0 && errno != EEXIST)
            return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){.file = copy},
                                   "cannot be made: %s", strerror(errno));
        *at = '/';
    }
    return WEFT_ERR_OK;
}

static weft_err write_file(const options *o, const weft_export_file *file, weft_arena *arena,
                           weft_diag *diag)
{
    const char *path = weft_arena_printf(arena, "%s/%s", o->output, file->path);
    WEFT_TRY(make_folders(path, arena, diag));
    WEFT_TRY(weft_file_write(path, file->text, file->len, diag));
    if (file->executable) {
        mode_t mask = umask(0);
        umask(mask);
        if (chmod(path, 0777 & ~mask) != 0)
            return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){.file = path},
                                   "cannot be made executable: %s", strerror(errno));
    }
    return WEFT_ERR_OK;
}

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
    char *text = NULL;
    size_t len = 0, n = 0;
    weft_plan plan;
    weft_demands demands;
    const weft_export_file *file = NULL;
    WEFT_TRY(weft_file_read(o->plan, PLAN_BYTES_MAX, diag, &text, &len));
    weft_err err = weft_plan_from_json(text, len, o->plan, arena, diag, &plan);
    if (err == WEFT_ERR_OK)
        err = weft_plan_demands_from_json(text, len, o->plan, arena, diag, &demands);
    free(text);
    WEFT_TRY(err);
    o->export.demands = &demands;
    if (o->nodes) {
        WEFT_TRY(weft_file_read(o->nodes, NODES_BYTES_MAX, diag, &text, &len));
        o->export.nodes = weft_arena_strndup(arena, text, len);
        o->export.nodes_path = o->nodes;
        free(text);
    }
    WEFT_TRY(o->exporter->run(&plan, &o->export, arena, diag, &file, &n));
    for (size_t i = 0; i < n; i++)
        WEFT_TRY(write_file(o, &file[i], arena, diag));
    print_files(o, file, n);
    return WEFT_ERR_OK;
}

/* -- The verb --------------------------------------------------------------------------------- */

static int take_system(void *at, const weft_verb *verb, char *arg)
{
    (void)verb;
    *(const weft_exporter **)at = weft_exporter_find(arg);
    return 0;
}

static int take_buffer(void *at, const weft_verb *verb, char *arg)
{
    return weft_parse_bytes(arg, at)
               ? 0
               : weft_tool_usage(verb, "--buffer takes bytes such as 128KiB, not '%s'", arg);
}

static int take_sbatch(void *at, const weft_verb *verb, char *arg)
{
    options *o = at;
    if (o->export.n_sbatch == SBATCH_MAX)
        return weft_tool_usage(verb, "more than %d times --sbatch", SBATCH_MAX);
    o->sbatch[o->export.n_sbatch++] = arg;
    o->export.sbatch = o->sbatch;
    return 0;
}

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
    return -1;
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
