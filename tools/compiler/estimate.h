/* What the files of `weft estimate` share: the options, and the estimate of one model on one
 * slice. */
#ifndef WEFT_TOOLS_ESTIMATE_H
#define WEFT_TOOLS_ESTIMATE_H

#include "estimator/estimator.h"
#include "runtime/runtime.h"
#include "tools/common/prices.h"
#include "tools/common/tools.h"
#include "tools/profile/pipeline.h"

enum {
    WEFT_ESTIMATE_DIMS_MAX = 16,
    WEFT_ESTIMATE_BATCHES_MAX = 256,
    WEFT_ESTIMATE_SLICES_MAX = 64
};

typedef struct weft_tool_estimate {
    char *const *file;
    int n_file;
    const char *gpu, *slice, *output;
    weft_slice at[WEFT_ESTIMATE_SLICES_MAX]; /* one slice, or those to compare */
    size_t n_at;
    const char *dim[WEFT_ESTIMATE_DIMS_MAX]; /* "seq=128" */
    size_t n_dim;
    int64_t batch[WEFT_ESTIMATE_BATCHES_MAX];
    size_t n_batch;
    uint32_t procs;
    bool together;          /* model i runs on at[i] while the others run: several shares */
    weft_pass_options pass; /* --precision */
    bool per_kernel, explain, compare, profile, json, framework;
    const char *kernels, *calibrate, *calibration, *model, *prices_file, *draw;
    weft_tool_prices prices;
    bool features, no_dispatch;
    weft_calibration fit;   /* valid if `calibration` is set; find_calibration() */
    uint64_t program_bytes; /* resident memory at the start of the process */
    bool usage;             /* out: an option names something that the model does not have */
} weft_tool_estimate;

/* One model on one slice at one batch size. */
typedef struct weft_tool_finding {
    const char *name;
    const weft_module *m; /* NULL: from a bundle, which has no kernels */
    const weft_slice *slice;
    int64_t batch;
    uint32_t procs;
    double slow_down;         /* its time beside the other models over its time alone; 0: alone */
    weft_cost cost;           /* of one process among `procs`, beside the other models */
    double throughput_per_s;  /* of all processes */
    double price_per_hour;    /* of the slice, in proportion to its share; 0: unknown */
    double price_per_million; /* of a million inferences */
    bool fits_known, fits;
    weft_estimate e;
    weft_estimate_options how;
    bool is_exact_memory; /* `memory` comes from the driver of this machine */
    weft_memory_plan memory;
} weft_tool_finding;

enum { WEFT_ESTIMATE_TOP = 10 };

/* estimate_slowest.c: indices of the at most `n` kernels that take the most time, in decreasing
 * order. Returns how many. */
size_t weft_tool_slowest(const weft_estimate *e, size_t *out, size_t n);
/* Shares of the time by what limits the kernel: compute, memory, launch. */
void weft_tool_shares(const weft_estimate *e, double out[3]);

/* estimate_options.c: values of options (rows in options.def); `at` is the weft_tool_estimate, for
 * --share its slice, which may be a list. */
int weft_tool_take_share(void *at, const weft_verb *verb, char *arg);
int weft_tool_take_batches(void *at, const weft_verb *verb, char *arg);
int weft_tool_take_dims(void *at, const weft_verb *verb, char *arg);
int weft_tool_take_compared(void *at, const weft_verb *verb, char *arg);
/* Options that exclude each other, and those that are needed: -1 to go on, or an exit code. */
int weft_tool_estimate_check(weft_tool_estimate *o, const weft_verb *verb);
/* estimate_together.c: changes the findings of `n` models, each on its own share of one GPU, to
 * what they are while all run. */
WEFT_MUST_USE weft_err weft_tool_slow_down(weft_tool_finding *f, size_t n, weft_diag *diag);
/* estimate_text.c */
void weft_tool_print_finding(const weft_tool_estimate *o, const weft_tool_finding *f);
void weft_tool_print_comparison(const weft_tool_finding *f, size_t n);
/* estimate_json.c */
WEFT_MUST_USE weft_err weft_tool_write_findings(const weft_tool_estimate *o,
                                                const weft_tool_finding *f, size_t n,
                                                weft_diag *diag);
/* Writes the roofline of the kernels to o->draw. */
WEFT_MUST_USE weft_err weft_tool_draw_findings(const weft_tool_estimate *o,
                                               const weft_tool_finding *f, size_t n,
                                               weft_diag *diag);
/* estimate_profile.c */
WEFT_MUST_USE weft_err weft_tool_write_profile(const weft_profile *profile, const char *path,
                                               weft_diag *diag);
/* Prints the constants of a fit and its errors before and after. */
void weft_tool_print_fit(const weft_calibration *c, FILE *to);
/* estimate_calibrate.c: fits a device's constants, to measurements of kernels (m NULL) or of
 * models. */
WEFT_MUST_USE weft_err weft_tool_calibrate(const weft_tool_estimate *o, weft_module *m,
                                           weft_diag *diag);
/* estimate_dims.c: refuses a name of --dim that no graph has or that is the batch of a graph. */
WEFT_MUST_USE weft_err weft_tool_estimate_check_dims(weft_tool_estimate *o, weft_module *m,
                                                     weft_diag *diag);
/* Values of the symbols of a graph at a batch size, with those of --dim. */
WEFT_MUST_USE weft_err weft_tool_estimate_symbols(const weft_tool_estimate *o, weft_graph *g,
                                                  int64_t batch, weft_diag *diag, int64_t *out);

#endif
