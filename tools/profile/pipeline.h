/* Pipelines of passes for the verbs: common options, dumps and timings. */
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
    const char *doing;     /* shown before the name of the pass while it runs; NULL: nothing is */
    weft_pass_hook *watch; /* also called around each pass; NULL: nothing */
    void *watcher;
    int64_t batch[64];
} weft_tool_pipeline;

/* Values of the common options (rows in options.def): `at` is a weft_tool_pipeline; a const char *
 * for passes and dumps; a weft_verify_when; for precision the weft_pass_options. */
int weft_tool_take_target(void *at, const weft_verb *verb, char *arg);
int weft_tool_take_batch(void *at, const weft_verb *verb, char *arg);
int weft_tool_take_pass(void *at, const weft_verb *verb, char *arg);
/* Refuses the name of a pass that is none, and says which may be meant. */
int weft_tool_no_pass(const weft_verb *verb, const char *name);
int weft_tool_take_dump(void *at, const weft_verb *verb, char *arg);
int weft_tool_take_verify(void *at, const weft_verb *verb, char *arg);
int weft_tool_take_precision(void *at, const weft_verb *verb, char *arg);
/* Whether --precision says f16 or bf16. */
bool weft_tool_is_narrow(const weft_pass_options *pass);

WEFT_MUST_USE weft_err weft_tool_pipeline_run(weft_tool_pipeline *p, weft_module *m,
                                              const weft_pass *const *pass, size_t n,
                                              weft_diag *diag);
/* Lowers a module for a device: the pipeline that `weft compile` runs for its target, with the
 * options of `p` but the target. Devices of one kind (GPUs; the CPU) get the same kernels. */
WEFT_MUST_USE weft_err weft_tool_pipeline_lower(const weft_tool_pipeline *p, weft_module *m,
                                                const weft_gpu *gpu, weft_diag *diag);

#endif
