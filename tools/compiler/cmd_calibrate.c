/* weft calibrate: fits the constants of the CPU model to kernels measured on this machine. */
#include "tools/compiler/calibrate_measure.h"
#include "tools/compiler/estimate.h"
#include "tools/profile/calibration_file.h"
#include "tools/profile/machine_calibration.h"

#include "base/file.h"
#include "tools/common/tools.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct options {
    const char *output;
    uint32_t threads;
} options;

#define OPTIONS_OF_calibrate
#define OPTIONS options
#include "tools/common/option_rows.h"

/* Makes the folders of a path that are missing. */
static weft_err make_folders(const char *path, weft_diag *diag)
{
    char copy[WEFT_TOOL_MACHINE_PATH_MAX];
    snprintf(copy, sizeof copy, "%s", path);
    for (char *slash = strchr(copy + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(copy, 0755) != 0 && errno != EEXIST)
            return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){.file = copy},
                                   "cannot be made: %s", strerror(errno));
        *slash = '/';
    }
    return WEFT_ERR_OK;
}

/* Part of the time that one thread has its CPU to itself on an idle machine. */
static const double cpu_part_min = 0.95;

static weft_err calibrate(const options *o, weft_arena *arena, weft_diag *diag)
{
    weft_tool_machine machine = {.name = "this CPU"};
    weft_tool_rows measured = {0};
    weft_calibration fit;
    double cpu_part = 1, team_part;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t most = o->threads ? o->threads : cpus > 1 ? (uint32_t)cpus : 1;
    if (!o->output)
        WEFT_TRY(weft_tool_machine_find(diag, &machine));
    double start_ms = weft_tool_now_ms();
    WEFT_TRY(weft_tool_measure_kernels(1, arena, diag, &measured, &cpu_part));
    if (most > 1)
        WEFT_TRY(weft_tool_measure_kernels(most, arena, diag, &measured, &team_part));
    double took_s = (weft_tool_now_ms() - start_ms) * 1e-3;
    WEFT_TRY(weft_calibration_fit(measured.at, measured.len, weft_gpu_find("cpu"), diag, &fit));
    if (!weft_tool_is_quiet()) {
        printf("%s, 1%s%.0u threads, %.0f s\n", machine.name, most > 1 ? " and " : "",
               most > 1 ? most : 0, took_s);
        weft_tool_print_fit(&fit, stdout);
    }
    if (cpu_part < cpu_part_min)
        weft_diag_warn(
            diag, (weft_where){0},
            "other processes took %.0f %% of the time of one thread: the constants are of a "
            "busy machine; calibrate again when it is idle",
            100 * (1 - cpu_part));
    const char *path = o->output ? o->output : machine.path;
    if (!o->output)
        WEFT_TRY(make_folders(path, diag));
    WEFT_TRY(weft_tool_calibration_save(&fit, path, diag));
    if (!weft_tool_is_quiet())
        printf("written to %s%s\n", path,
               o->output ? "" : "; weft estimate and weft plan use it from now on");
    return WEFT_ERR_OK;
}

static int run_calibrate(int argc, char **argv)
{
    options o = {0};
    int code = weft_options_parse(&weft_verb_calibrate, argc, argv, &o);
    if (code >= 0)
        return code;
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    weft_err err = diag && arena ? calibrate(&o, arena, diag) : WEFT_ERR_NOMEM;
    code = weft_tool_report(diag, err);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return code;
}

const weft_verb weft_verb_calibrate = {.name = "calibrate", .row = rows, .run = run_calibrate};
