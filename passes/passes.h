/* Modules into better modules: the pass runner and the pipelines.
 *
 * A pass declares the facts that it needs and breaks; the runner computes, voids, verifies, dumps
 * and counts. Single-thread per module. */
#ifndef WEFT_PASSES_PASSES_H
#define WEFT_PASSES_PASSES_H

#include "estimator/estimator.h"
#include "ir/ir.h"

typedef struct weft_pass weft_pass;

const weft_pass *weft_pass_find(const char *name);
const weft_pass *weft_pass_at(size_t i); /* in the order of passes.def; NULL behind the last */
const char *weft_pass_name(const weft_pass *pass);
const char *weft_pass_brief(const weft_pass *pass);

/* The algorithm of one convolution as found by measuring (weft compile --tune). */
typedef struct weft_tuned_conv {
    const char *model, *item; /* graph, and name of the ONNX node */
    const char *algo;         /* "direct", "winograd"; one that does not fit is not taken */
} weft_tuned_conv;

/* -- Graph algorithms of a library ------------------------------------------------------------ */

/* An edge of a bipartite graph. Weights are positive; doubles that hold integers. */
typedef struct weft_assignment_edge {
    uint32_t left, right;
    double weight;
} weft_assignment_edge;

enum { WEFT_ASSIGNMENT_NONE = UINT32_MAX };

/* The assignment problem: a matching of maximum weight in a bipartite graph. Handed in by the
 * program that compiles (weft_pass_options), so that other programs need not link the library
 * behind it. */
typedef struct weft_assignment_solver {
    const char *name;
    /* partner[i] of left vertex i: a right vertex, or WEFT_ASSIGNMENT_NONE. false: out of memory.
     */
    bool (*solve)(uint32_t n_left, uint32_t n_right, const weft_assignment_edge *edge,
                  uint32_t n_edge, uint32_t *partner);
} weft_assignment_solver;

extern const weft_assignment_solver weft_assignment_igraph; /* igraph; library weft_igraph */

/* -- Merging of models (pass merge-models) ---------------------------------------------------- */

/* A way to run corresponding products of several models together: a row of strategies.def. */
typedef struct weft_merge_strategy weft_merge_strategy;

const weft_merge_strategy *weft_merge_strategy_find(const char *name); /* NULL: there is none */
const weft_merge_strategy *weft_merge_strategy_at(size_t i);           /* NULL behind the last */
const char *weft_merge_strategy_name(const weft_merge_strategy *strategy);
const char *weft_merge_strategy_brief(const weft_merge_strategy *strategy);

typedef enum weft_merge {
    WEFT_MERGE_OFF,
    WEFT_MERGE_AUTO,    /* what pays */
    WEFT_MERGE_EXACT,   /* what leaves every bit of the results as it is */
    WEFT_MERGE_STRATEGY /* options' strategy wherever it may be used, whether or not it pays */
} weft_merge;

/* One strategy for one group of products, as it was predicted. */
typedef struct weft_merge_candidate {
    const char *strategy;
    bool fits;                     /* it may be used here; else only `reason` is set */
    double gain_small, gain_large; /* time apart / together; 0: the estimator does not know */
    uint64_t read_bytes;           /* weights read by one run for all models */
    uint64_t made_bytes;           /* weights that it adds to the module */
    const char *reason;            /* why not; "" for the chosen one */
} weft_merge_candidate;

/* Corresponding products of several models, and what became of them. */
typedef struct weft_merge_row {
    const char *op, *item;    /* ONNX node of the first model */
    const char *const *model; /* names */
    uint32_t n_model;
    uint64_t weight_bytes;         /* of the distinct weights of these products */
    double gain_small, gain_large; /* of what was chosen; none: of the best that fits, 1 if none */
    bool joined;                   /* the chosen strategy makes one product (or fewer) of them */
    const char *strategy;          /* chosen: "none", "interleaved", "concatenated", ... */
    const char *reason;
    const weft_merge_candidate *candidate; /* all that were considered, in order of the table */
    uint32_t n_candidate;
} weft_merge_row;

/* What two models have in common; weights are those of products and of look-ups in tables. */
typedef struct weft_merge_pair {
    const char *model[2];
    uint32_t nodes[2], matched; /* matched: nodes that correspond */
    double architecture;        /* 2 matched / (nodes of both) */
    uint64_t bytes[2];          /* of weights */
    uint64_t equal_bytes;       /* of weights of corresponding nodes that are the same */
    uint64_t common_bytes;      /* of the largest rectangles that corresponding weights share */
    double similarity;          /* USHER's: 2 common / (bytes of both) */
    bool lower_bound;           /* too much to look at: similarity is at least this */
} weft_merge_pair;

/* Models that were matched with each other: their architectures or weights are similar. */
typedef struct weft_merge_model_group {
    const char *const *model; /* names */
    uint32_t n_model;
} weft_merge_model_group;

typedef struct weft_merge_log {
    weft_arena *arena; /* given by the caller; owns the rows */
    WEFT_VEC(weft_merge_row) rows;
    WEFT_VEC(weft_merge_model_group) model_groups; /* of two models and more */
    bool want_pairs; /* every two models are measured, whatever `merge` is: takes seconds */
    WEFT_VEC(weft_merge_pair) pairs;
    /* Weights that were replaced by near ones (merge_tolerance), and the largest difference. */
    uint32_t near_weights;
    uint64_t near_bytes;
    double near_most;
} weft_merge_log;

/* Steps of matching models (align.c). */
enum {
    WEFT_MATCH_ANCHORS = 1, /* nodes with equal weights, in order */
    WEFT_MATCH_CROSSED = 2, /* those that cross them */
    WEFT_MATCH_BETWEEN = 4, /* alignment by likeness of what is between */
    WEFT_MATCH_REST = 8     /* bipartite matching of what is left, and what follows from it */
};

/* Zero-initialised: the defaults. */
typedef struct weft_pass_options {
    const char *target;   /* "cpu", "cpu:avx2"; NULL: "cpu" */
    const int64_t *batch; /* buckets of the batch symbol; NULL: 1, 2, 4, 8 */
    size_t n_batch;
    uint64_t rewrite_limit; /* the first N rewrites only; 0: no limit */
    bool allow_fast;        /* rewrites that change floating-point results beyond rounding order */
    weft_dtype precision;   /* F16, BF16: what f32 becomes inside the graphs; else it stays */
    bool tf32;              /* products of f32 are computed as TF32 where the device can */
    const weft_tuned_conv *tuned;
    size_t n_tuned;
    weft_merge merge;
    const weft_merge_strategy *strategy;      /* for WEFT_MERGE_STRATEGY */
    const weft_assignment_solver *assignment; /* NULL: merge-models refuses more than one model */
    const char *device, *slice; /* for which it must pay, as weft_slice_make; NULL: of the target */
    weft_merge_log *merge_log;  /* rows are added; NULL: not wanted */
    /* What is left out, to see what it is good for: steps of matching (WEFT_MATCH_*), a strategy.
     */
    uint32_t match_without;
    const weft_merge_strategy *strategy_without;
    double merge_tolerance; /* weights of which no element differs by more are equal; 0: by bits */
} weft_pass_options;

/* The slice for which merging must pay: that of `device`, else of `target`; two cores of a CPU. */
WEFT_MUST_USE weft_err weft_merge_slice(const weft_pass_options *options, weft_slice *out);

typedef enum weft_verify_when {
    WEFT_VERIFY_END,
    WEFT_VERIFY_EACH,
    WEFT_VERIFY_OFF
} weft_verify_when;

/* Called around each pass that runs. `changed` is false before the pass. */
typedef void weft_pass_hook(void *user, const weft_pass *pass, uint32_t number, bool after,
                            bool changed, double time_ms, weft_module *m);

typedef struct weft_run_options {
    weft_pass_options pass;
    weft_verify_when verify;
    const char *stop_after; /* pass name, NULL: run all */
    const char *start_at;
    weft_pass_hook *hook; /* may be NULL */
    void *user;
} weft_run_options;

/* Runs these passes in order. A module that a pass leaves illegal: BUG naming pass and rule. */
WEFT_MUST_USE weft_err weft_passes_run(weft_module *m, const weft_pass *const *pass, size_t n,
                                       const weft_run_options *options, weft_diag *diag);

/* Passes of a named pipeline ("cpu", "gpu": graph stage to plan stage; "framework": graph to kernel
 * stage, as an eager framework would run it); NULL when unknown. */
const weft_pass *const *weft_pipeline(const char *name, size_t *out_n);
/* True for "sm_90" and lists such as "sm_80,sm_90"; false for "cpu", "cpu:avx2" and NULL. */
bool weft_target_is_gpu(const char *target);
/* The pipeline that compiles for a target; the only place that decides it. Whoever estimates or
 * plans for a device lowers by the pipeline of its target. */
const weft_pass *const *weft_pipeline_for(const char *target, size_t *out_n);

#endif
