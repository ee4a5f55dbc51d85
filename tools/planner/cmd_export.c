/* weft export: a plan as configuration of other systems. */
#include "scheduler/scheduler.h"
#include "tools/common/tools.h"

#include "base/file.h"
#include "base/num.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PLAN_BYTES_MAX = 256 << 20 };

typedef struct options {
    const char *plan, *output;
    const weft_exporter *exporter;
    weft_export_options export;
    bool json;
} options;

/* Makes the folder of `path` and those above it, as far as they are missing. */
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
    WEFT_TRY(o->exporter->run(&plan, &o->export, arena, diag, &file, &n));
    for (size_t i = 0; i < n; i++)
        WEFT_TRY(write_file(o, &file[i], arena, diag));
    print_files(o, file, n);
    return WEFT_ERR_OK;
}

/* -- The verb --------------------------------------------------------------------------------- */

enum {
    OPT_TO = 1,
    OPT_BUNDLE,
    OPT_WEFT,
    OPT_CONFIG,
    OPT_IMAGE,
    OPT_CLAIM,
    OPT_NAME,
    OPT_PORT,
    OPT_PER_NODE,
    OPT_FORMAT
};

static int take_number(const char *option, int64_t hi, uint32_t *out)
{
    int64_t x;
    if (!weft_parse_i64(optarg, &x) || x < 1 || x > hi)
        return weft_tool_usage(&weft_verb_export, "%s needs 1 to %lld, not '%s'", option,
                               (long long)hi, optarg);
    *out = (uint32_t)x;
    return 0;
}

static int take(options *o, int opt)
{
    switch (opt) {
    case 'o':
        o->output = optarg;
        return 0;
    case OPT_TO:
        o->exporter = weft_exporter_find(optarg);
        return o->exporter
                   ? 0
                   : weft_tool_usage(
                         &weft_verb_export,
                         "--to takes kubernetes, mig-parted, slurm or systemd, not '%s'", optarg);
    case OPT_BUNDLE:
        o->export.bundle = optarg;
        return 0;
    case OPT_WEFT:
        o->export.weft = optarg;
        return 0;
    case OPT_CONFIG:
        o->export.config = optarg;
        return 0;
    case OPT_IMAGE:
        o->export.image = optarg;
        return 0;
    case OPT_CLAIM:
        o->export.claim = optarg;
        return 0;
    case OPT_NAME:
        o->export.name = optarg;
        return 0;
    case OPT_PORT:
        return take_number("--port", 65000, &o->export.port);
    case OPT_PER_NODE:
        return take_number("--gpus-per-node", 64, &o->export.gpus_per_node);
    case OPT_FORMAT:
        return weft_tool_parse_format(optarg, &o->json)
                   ? 0
                   : weft_tool_usage(&weft_verb_export, "--format takes text or json, not '%s'",
                                     optarg);
    default:
        return weft_tool_usage(&weft_verb_export, "wrong option");
    }
}

static int parse(int argc, char **argv, options *o)
{
    static const struct option longs[] = {{"to", required_argument, NULL, OPT_TO},
                                          {"output", required_argument, NULL, 'o'},
                                          {"bundle", required_argument, NULL, OPT_BUNDLE},
                                          {"weft", required_argument, NULL, OPT_WEFT},
                                          {"config", required_argument, NULL, OPT_CONFIG},
                                          {"image", required_argument, NULL, OPT_IMAGE},
                                          {"claim", required_argument, NULL, OPT_CLAIM},
                                          {"name", required_argument, NULL, OPT_NAME},
                                          {"port", required_argument, NULL, OPT_PORT},
                                          {"gpus-per-node", required_argument, NULL, OPT_PER_NODE},
                                          {"format", required_argument, NULL, OPT_FORMAT},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int opt;
    optind = 1;
    while ((opt = getopt_long(argc, argv, "o:h", longs, NULL)) != -1) {
        if (opt == 'h')
            return weft_tool_help(&weft_verb_export);
        int code = take(o, opt);
        if (code)
            return code;
    }
    if (argc - optind != 1)
        return weft_tool_usage(&weft_verb_export, "name one plan");
    o->plan = argv[optind];
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

const weft_verb weft_verb_export = {
    .name = "export",
    .usage =
        "usage: weft export PLAN.json --to SYSTEM -o DIR [OPTIONS]\n"
        "Writes what SYSTEM needs to run the plan into DIR, and prints the files: workers that\n"
        "`weft serve` a bundle, one a GPU slice or a CPU node, each with its part of the plan.\n\n"
        "      --to SYSTEM          kubernetes, mig-parted, slurm, systemd\n"
        "  -o, --output DIR         made when it is missing\n"
        "      --bundle PATH        the bundle on the nodes (/srv/weft/models.weft)\n"
        "      --weft PATH          the program on the nodes (/usr/bin/weft)\n"
        "      --config DIR         where plans and devices of workers lie there (/etc/weft)\n"
        "      --image IMAGE        container image (weft:latest)\n"
        "      --claim NAME         volume claim with the bundle (weft-models)\n"
        "      --name NAME          prefix of all names (weft)\n"
        "      --port N             HTTP port of the first worker; gRPC and metrics follow, the\n"
        "                           next worker of a node has N + 10 (8000)\n"
        "      --gpus-per-node N    8\n"
        "      --format text|json   of the list of files\n",
    .run = run_export,
};
