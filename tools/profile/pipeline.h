/* Running passes for `weft opt` and `weft compile`: their common options, dumps and timings. */
#ifndef WEFT_TOOLS_PIPELINE_H
#define WEFT_TOOLS_PIPELINE_H

#include "estimator/estimator.h"
#include "passes/passes.h"
#include "tools/common/tools.h"

/* Zero-initialised: the defaults. */
typedef struct weft_tool_pipeline {
    weft_run_options run;
    const char *dump_before, *dump_after; /* pass name, "all", or NULL */
    const char *dump_dir;                 /* NULL: standard error */
    bool show_time;
    weft_pass_hook *watch; /* called too around each pass; NULL: nobody */
    void *watcher;
    int64_t batch[64];
} weft_tool_pipeline;

/* getopt_long values of the common options; verbs' own start below 1000. */
enum {
    WEFT_OPT_DUMP_BEFORE = 1000,
    WEFT_OPT_DUMP_AFTER,
    WEFT_OPT_DUMP_DIR,
    WEFT_OPT_STOP_AFTER,
    WEFT_OPT_START_AT,
    WEFT_OPT_PASS_LIMIT,
    WEFT_OPT_VERIFY,
    WEFT_OPT_TIME,
    WEFT_OPT_TARGET,
    WEFT_OPT_BATCH
};

#define WEFT_PIPELINE_OPTIONS                                         \
    {"dump-before", required_argument, NULL, WEFT_OPT_DUMP_BEFORE},   \
        {"dump-after", required_argument, NULL, WEFT_OPT_DUMP_AFTER}, \
        {"dump-dir", required_argument, NULL, WEFT_OPT_DUMP_DIR},     \
        {"stop-after", required_argument, NULL, WEFT_OPT_STOP_AFTER}, \
        {"start-at", required_argument, NULL, WEFT_OPT_START_AT},     \
        {"pass-limit", required_argument, NULL, WEFT_OPT_PASS_LIMIT}, \
        {"verify", required_argument, NULL, WEFT_OPT_VERIFY},         \
        {"time", no_argument, NULL, WEFT_OPT_TIME},                   \
        {"target", required_argument, NULL, WEFT_OPT_TARGET},         \
    {                                                                 \
        "batch", required_argument, NULL, WEFT_OPT_BATCH              \
    }

#define WEFT_PIPELINE_USAGE                                                                 \
    "      --target NAME        cpu (default), cpu:avx2, or GPUs: sm_80,sm_90\n"            \
    "      --batch 1,2,4,8      batch sizes to plan for\n"                                  \
    "      --dump-before PASS   print the module before a pass ('all': each)\n"             \
    "      --dump-after PASS    print the module after a pass ('all': each)\n"              \
    "      --dump-dir DIR       write dumps to DIR/07-PASS.wir instead of standard error\n" \
    "      --stop-after PASS    end the pipeline there\n"                                   \
    "      --start-at PASS      begin the pipeline there\n"                                 \
    "      --pass-limit N       allow the first N rewrites only\n"                          \
    "      --verify WHEN        each, end (default) or off\n"                               \
    "      --time               print the time of each pass to standard error\n"

/* Takes one of the options above. Returns 0, or an exit code after a usage message. */
int weft_tool_pipeline_option(weft_tool_pipeline *p, const weft_verb *verb, int opt,
                              const char *arg);
WEFT_MUST_USE weft_err weft_tool_pipeline_run(weft_tool_pipeline *p, weft_module *m,
                                              const weft_pass *const *pass, size_t n,
                                              weft_diag *diag);
/* Lowers a module for a device: the pipeline that `weft compile` runs for its target, with the
 * options of `p` but the target. Devices of one kind (GPUs; the CPU) get the same kernels. */
WEFT_MUST_USE weft_err weft_tool_pipeline_lower(const weft_tool_pipeline *p, weft_module *m,
                                                const weft_gpu *gpu, weft_diag *diag);

#endif
