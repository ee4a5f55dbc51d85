/* The optimiser: passes over modules, the pass runner and the pipelines.
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
    const char *algo; /* "direct", "winograd"; ignored if the convolution does not allow it */
} weft_tuned_conv;

/* -- Graph algorithms of a library ------------------------------------------------------------ */

/* An edge of a bipartite graph. Weights are positive; doubles that hold integers. */
typedef struct weft_assignment_edge {
    uint32_t left, right;
    double weight;
} weft_assignment_edge;

#define WEFT_ASSIGNMENT_NONE UINT32_MAX

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

/* A way to run corresponding GEMMs of several models: a row of merge/strategies.def. A GEMM that
 * several models share is a super-GEMM. */
typedef struct weft_merge_strategy weft_merge_strategy;

const weft_merge_strategy *weft_merge_strategy_find(const char *name); /* NULL: there is none */
const weft_merge_strategy *weft_merge_strategy_at(size_t i);           /* NULL behind the last */
const char *weft_merge_strategy_name(const weft_merge_strategy *strategy);
const char *weft_merge_strategy_brief(const weft_merge_strategy *strategy);

typedef enum weft_merge {
    WEFT_MERGE_OFF,
    WEFT_MERGE_AUTO,    /* strategies that are predicted to pay */
    WEFT_MERGE_EXACT,   /* interleaved only: every bit of the results stays the same */
    WEFT_MERGE_STRATEGY /* the strategy of the options wherever it applies */
} weft_merge;

/* A merge candidate in the log: one strategy for one merge group, with its predictions. */
typedef struct weft_merge_candidate {
    const char *strategy;
    bool fits;                     /* it applies here; else only `reason` is set */
    double gain_small, gain_large; /* time apart / together; 0: the estimator does not know */
    uint64_t read_bytes;           /* weights that one run reads for all models */
    uint64_t made_bytes;           /* weights that it adds to the module */
    const char *reason;            /* why it was not chosen; "" for the chosen one */
} weft_merge_candidate;

/* A merge group in the log: corresponding GEMMs of several models, and the decision for them. */
typedef struct weft_merge_row {
    const char *op, *item;    /* ONNX node of the first model */
    const char *const *model; /* names */
    uint32_t n_model;
    uint64_t weight_bytes; /* of the distinct weights of these GEMMs */
    double gain_small,
        gain_large;       /* of the chosen strategy, else of the best that applies, else 1 */
    bool joined;          /* the chosen strategy makes a super-GEMM of them */
    const char *strategy; /* chosen: "none", "interleaved", "concatenated", ... */
    const char *reason;
    const weft_merge_candidate *candidate; /* all that were tried, in the order of the table */
    uint32_t n_candidate;
} weft_merge_row;

/* What two models have in common; weights are those of GEMMs and of look-ups. */
typedef struct weft_merge_pair {
    const char *model[2];
    uint32_t nodes[2], matched; /* matched: nodes that correspond */
    double architecture;        /* 2 matched / (nodes of both) */
    uint64_t bytes[2];          /* of weights */
    uint64_t equal_bytes;       /* of equal weights of corresponding nodes */
    uint64_t common_bytes; /* of the largest rectangles common to weights of corresponding nodes */
    double similarity;     /* USHER's: 2 common / (bytes of both) */
    bool lower_bound;      /* not all was searched: the similarity may be higher */
} weft_merge_pair;

/* Models that were matched with each other: their architectures or weights are similar. */
typedef struct weft_merge_model_group {
    const char *const *model; /* names */
    uint32_t n_model;
} weft_merge_model_group;

/* Models that have no joint program: of a group with each other, or one that is in no group. */
typedef struct weft_merge_apart {
    weft_merge_model_group models;
    const char *reason;
} weft_merge_apart;

/* A weight that is similar to another one, and what store-deltas keeps of it. */
typedef struct weft_delta_row {
    const char *weight, *base; /* names */
    const char *kind;          /* "elements", "low_rank", "none": it is kept whole */
    uint32_t size;             /* number of elements, or rank */
    uint64_t full_bytes, bytes;
    double error; /* largest difference of an element of base + difference from the weight */
} weft_delta_row;

/* A model for which pack-sequences has made a packed program, or why not. */
typedef struct weft_pack_row {
    const char *model;
    const char *reason;     /* NULL: it has one */
    uint32_t together_with; /* number of other models of its family (pack-family) */
    const char *apart;      /* why an earlier model is not of its family; NULL: none was tried */
} weft_pack_row;

typedef struct weft_merge_log {
    weft_arena *arena; /* set by the caller; owns all below */
    WEFT_VEC(weft_merge_row) rows;
    WEFT_VEC(weft_merge_model_group) model_groups; /* of two models and more */
    WEFT_VEC(weft_merge_apart) apart;
    bool want_pairs; /* set by the caller: measure every two models, which takes seconds */
    WEFT_VEC(weft_merge_pair) pairs;
    /* Weights replaced by others within merge_tolerance, and the largest difference of an element.
     */
    uint32_t near_weights;
    uint64_t near_bytes;
    double near_most;
    WEFT_VEC(weft_delta_row) deltas;
    WEFT_VEC(weft_pack_row) packs;
} weft_merge_log;

/* Which weights store-deltas keeps as a difference from another weight. */
typedef enum weft_deltas {
    WEFT_DELTAS_OFF,
    WEFT_DELTAS_EXACT, /* those that base and difference give back bit by bit */
    WEFT_DELTAS_NEAR   /* also those that low-rank factors give back within f32 rounding */
} weft_deltas;

/* Stages of aligning models (merge/align.c). */
enum {
    WEFT_MATCH_ANCHORS = 1, /* nodes with equal weights, in order */
    WEFT_MATCH_CROSSED = 2, /* nodes with equal weights that cross these */
    WEFT_MATCH_BETWEEN = 4, /* alignment by similarity between two anchors */
    WEFT_MATCH_REST = 8 /* bipartite matching of the rest, and nodes whose operands correspond */
};

/* Models that a plan puts on one slice. */
typedef struct weft_merge_set {
    const char *const *model; /* names */
    size_t n_model;
    bool as_one;                /* the plan counts on a joint program of exactly these */
    const char *device, *slice; /* where it must pay; NULL: as in the options */
} weft_merge_set;

/* Zero-initialised: the defaults. */
/* Batch sizes of one model. */
typedef struct weft_model_batches {
    const char *model;
    const int64_t *batch;
    size_t n;
} weft_model_batches;

/* A model that adapters may change (pass add-adapters): paths of modules in the files of adapters,
 * each of one GEMM, and "*.NAME" for all modules whose path is NAME or ends with ".NAME". */
typedef struct weft_adapted_model {
    const char *model;
    const char *const *path;
    uint32_t n_path;
} weft_adapted_model;

typedef struct weft_pass_options {
    const char *const *alone; /* names of models that are merged with no other */
    size_t n_alone;
    const weft_adapted_model *adapted; /* on CPUs */
    size_t n_adapted;
    const char *target;   /* "cpu", "cpu:avx2"; NULL: "cpu" */
    const int64_t *batch; /* buckets of the batch symbol; NULL: 1, 2, 4, 8 */
    size_t n_batch;
    const weft_model_batches *own_batch; /* of some models, where `batch` is NULL */
    size_t n_own_batch;
    uint64_t rewrite_limit; /* the first N rewrites only; 0: no limit */
    bool allow_fast;        /* rewrites that change floating-point results beyond rounding order */
    weft_dtype precision;   /* F16, BF16: what f32 becomes inside the graphs; else it stays */
    bool exact_f32;         /* GEMMs of f32 are not computed as TF32 where the device can */
    const weft_tuned_conv *tuned;
    size_t n_tuned;
    weft_merge merge;
    const weft_merge_strategy *strategy;      /* for WEFT_MERGE_STRATEGY */
    const weft_assignment_solver *assignment; /* NULL: merge-models refuses more than one model */
    const char *device, *slice; /* for which it must pay, as weft_slice_make; NULL: of the target */
    const weft_merge_set *set;  /* only models of one set are merged with each other; NULL: any */
    size_t n_set;
    weft_merge_log *merge_log; /* rows are added; NULL: not wanted */
    /* For ablation: stages of aligning (WEFT_MATCH_*) and a strategy that are left out. */
    uint32_t match_without;
    const weft_merge_strategy *strategy_without;
    weft_deltas deltas;
    bool pack;              /* programs for sequences of different lengths, on CPUs */
    double merge_tolerance; /* weights are equal if no element differs by more; 0: equal by bits */
} weft_pass_options;

/* The slice for which merging predicts times: that of `device`, else of `target`; two cores of a
 * CPU.
 */
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

/* Runs these passes in order. BUG, naming pass and rule, if a pass leaves an invalid module. */
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
