/* What the files of pass merge-models share: the state of merging one model group, the record of a
 * strategy, and the functions of each file. README.md of this folder is the overview. */
#ifndef WEFT_PASSES_MERGE_MERGE_INT_H
#define WEFT_PASSES_MERGE_MERGE_INT_H

#include "base/map.h"
#include "estimator/estimator.h"
#include "passes/merge/merge.h"

typedef struct weft_merger weft_merger;

/* -- Times: merge_cost.c ---------------------------------------------------------------------- */

/* The target and the values of all symbols for which times are predicted. */
typedef struct weft_merge_sizes {
    weft_slice slice;
    int64_t *value;
    uint32_t n;
    double reuse_bytes; /* bytes that are touched between two uses of the same weight */
    weft_dtype half;    /* F16 or BF16 if f32 is computed in that type; else NONE */
    bool exact_f32;     /* f32 is not computed as TF32 */
} weft_merge_sizes;

/* The size of a GEMM that a strategy would emit: [rows, taps] by [taps, features]. A convolution is
 * a GEMM whose rows are the output positions of all images. */
typedef struct weft_merge_gemm {
    double rows, features, taps;
    double x;         /* elements of the first operand that are read */
    uint32_t batch;   /* number of such GEMMs, by different weights, in one batched GEMM */
    weft_delta delta; /* what is added to it: low-rank factors or single elements */
} weft_merge_gemm;

/* Sets batch symbols to `batch` and other symbols to `other`, each clamped to its bounds. false:
 * the target has no row in the device table. */
bool weft_merge__sizes(weft_merger *g, int64_t batch, int64_t other, weft_merge_sizes *out);
/* The larger of the two sizes for which decisions are made; the smaller is 1 for every symbol. */
enum { WEFT_MERGE_LARGE_BATCH = 8, WEFT_MERGE_LARGE_OTHER = 128 };
/* The functions below add to *sum (elements) or *us (time). false: the estimator does not know. */
bool weft_merge__count(const weft_merge_sizes *at, weft_module *m, weft_val v, double *sum);
bool weft_merge__node_us(const weft_merge_sizes *at, weft_module *m, weft_node n, double *us);
/* The GEMM of node `like` with `x` elements in its first operand and `y` in its result. */
bool weft_merge__elements_us(const weft_merge_sizes *at, const weft_module *m, weft_node like,
                             double x, double y, double *us);
bool weft_merge__gemm_us(const weft_merge_sizes *at, const weft_module *m, weft_node like,
                         const weft_merge_gemm *p, double *us);
/* A copy of `elements` elements of the type of `v`. */
bool weft_merge__copy_us(const weft_merge_sizes *at, const weft_module *m, weft_val v,
                         double elements, double *us);
/* An element-wise chain over `elements` elements of the type of `v`, with `operands` operands. */
bool weft_merge__chain_us(const weft_merge_sizes *at, const weft_module *m, weft_val v,
                          double elements, double operands, double *us);

/* -- Merge groups and the joint graph --------------------------------------------------------- */

/* Nodes of one column, of all its models or some, that are run together by one strategy. */
typedef struct weft_merge_group {
    weft_column column;
    weft_joint_level level;
    const weft_merge_strategy *strategy;
    bool together;   /* the results are one joint value: the rows of one model after the other */
    bool gathers;    /* every operand is concatenated for it; false: operand 0 only */
    uint64_t copied; /* bit k: concatenating operand k of its nodes needs a copy */
    void *plan;      /* private data of the strategy, in cx->scratch */
} weft_merge_group;

/* A value of the joint graph that concatenates one operand or one result of the nodes of a merge
 * group: the rows of one model after the other. */
typedef struct weft_joined {
    weft_val val;
    weft_joint_level level;
    uint32_t models;       /* set: bit i is model i */
    const weft_dim *start; /* by model: first row; [n_model]: all rows */
} weft_joined;

/* Where a value of a model is found in the joint graph. */
typedef struct weft_joint_place {
    weft_val val; /* a value of its own; none: only as part of joint value `in` so far */
    uint32_t in;  /* index + 1 of the joint value (weft_joined) that contains it; 0: none */
} weft_joint_place;

struct weft_merger {
    weft_passctx *cx;
    const weft_merge_set *set; /* the one that the models are of; NULL: there are no sets */
    weft_module *m;
    weft_dimpool *dims;
    weft_columns columns;
    weft_merge_log *log; /* may be NULL */
    /* The result of the beam search, in the order in which the joint graph is emitted. */
    WEFT_VEC(weft_merge_group) groups;
    weft_merge_sizes small, large; /* decisions are made for these two sizes */
    bool sized;                    /* both are known */
    weft_map *memo;                /* results of comparing pairs of weights, kept by strategies */
    /* The joint graph under construction. */
    weft_graph *joint;
    weft_joint_place *place; /* by value of the models */
    uint32_t n_place;
    WEFT_VEC(weft_joined) joined;
};

/* Aligns the models into columns. All its data lives in cx->scratch. */
weft_merger weft_merge__open(weft_passctx *cx, weft_graph *const *model, uint32_t n);

/* -- Strategies ------------------------------------------------------------------------------- */

struct weft_merge_strategy {
    const char *name, *brief;
    bool equal_only; /* applies to nodes with the same weights only */
    bool asked_only; /* a baseline: used only when it is asked for by name */
    /* Whether the strategy applies to the group, no matter whether it pays. Returns NULL and sets
     * plan, `together` and `gathers` of the group; else the reason why it does not apply. May take
     * models out of the group, but leaves at least two. NULL here: the strategy always applies. */
    const char *(*fit)(weft_merger *g, weft_merge_group *group);
    /* Predicted time of all nodes that the strategy emits for the group, without the concatenation
     * of operands. false: the estimator does not know. */
    bool (*time)(weft_merger *g, const weft_merge_group *group, const weft_merge_sizes *at,
                 double *us);
    /* Bytes of weights that one run reads, and bytes of weights that the strategy adds to the
     * module. NULL here: the distinct weights of the nodes, and 0. */
    void (*bytes)(weft_merger *g, const weft_merge_group *group, uint64_t *read, uint64_t *made);
    void (*emit)(weft_merger *g, const weft_merge_group *group);
};

#define S(name) extern const weft_merge_strategy weft_merge_strategy_##name;
#include "passes/merge/strategies.def"
#undef S

/* -- Columns: merge_columns.c ----------------------------------------------------------------- */

weft_node weft_merge__first(const weft_merger *g, const weft_column *c);
/* Every operand that is a weight in either node is the same weight in both. */
bool weft_merge__same_weights(const weft_merger *g, weft_node a, weft_node b);
/* The models of a column as a set: bit i is model i. */
uint32_t weft_merge__models(const weft_merger *g, const weft_column *c);
uint32_t weft_merge__lowest(uint32_t set); /* 31 when it is empty */
/* The models of `set` whose nodes have the same weights as the node of its lowest model. */
uint32_t weft_merge__equal_to_first(const weft_merger *g, const weft_column *c, uint32_t set);
/* The nodes of the models in `set`. */
weft_merge_group weft_merge__make_group(const weft_merger *g, const weft_column *c, uint32_t set,
                                        const weft_merge_strategy *strategy);
/* The longest run of models from i on that are consecutive both in `set` and in `whole` and belong
 * to `same`: their rows are adjacent in a joint value of the models `whole`. */
uint32_t weft_merge__run(uint32_t set, uint32_t same, uint32_t whole, uint32_t i);

/* -- GEMMs by unequal weights: merge_form.c, merge_gemm.c ------------------------------------- */

/* The most operands of a node that has a GEMM form. */
enum { WEFT_MERGE_OPERANDS_MAX = 24 };

/* The GEMM form of a node: [rows, taps] by a weight [taps, features]. In a convolution, rows are
 * the output positions of all images, taps are the elements of the kernel for each input channel,
 * and features are output channels. merge_form.c has a picture. */
typedef struct weft_merge_form {
    weft_node node;
    weft_val x, w;
    uint32_t taps, features;
    uint32_t window; /* taps for each input feature: elements of a convolution's kernel, else 1 */
    double spread;   /* elements of x / (rows x taps): 1 except in a convolution, whose patches
                        overlap */
    bool by_feature; /* the weight is stored as [features, taps], else as [taps, features] */
    bool conv;
    bool pointwise; /* a 1 x 1 convolution of the result of a convolution like `node` */
} weft_merge_form;

/* Why strategies for unequal weights do not apply to the group. NULL: they do, and every node has a
 * GEMM form. */
const char *weft_merge__refuse(const weft_merger *g, const weft_merge_group *group);
/* Why a node has no GEMM form. NULL: it has one. */
const char *weft_merge__refuse_node(const weft_merger *g, weft_node n);
weft_merge_form weft_merge__form(const weft_merger *g, weft_node n);
/* The form of a second GEMM, by [taps, features], of the result of a GEMM of form `f` that has
 * `taps` features. */
weft_merge_form weft_merge__pointwise(const weft_merge_form *f, uint32_t taps);
/* The size of a GEMM of form `f` with other numbers of rows, taps and features. */
weft_merge_gemm weft_merge__numbers(const weft_merge_form *f, double rows, uint32_t taps,
                                    uint32_t features);
/* The bytes of the weight of a form, and one element of them, in either storage order. */
const uint8_t *weft_merge__bytes(const weft_merger *g, const weft_merge_form *f);
float weft_merge__element(const weft_merge_form *f, const uint8_t *bytes, uint32_t tap,
                          uint32_t feature);
/* The rows of a node's GEMM. false: the sizes do not tell. */
bool weft_merge__node_rows(const weft_merge_sizes *at, weft_module *m, weft_node n, double *rows);
/* The dim of an operand or a result of this type that counts features. */
uint32_t weft_merge__axis(const weft_merge_form *f, const weft_ttype *type);

/* A weight for GEMMs of form `f` from the elements `at`, [taps, features], which are copied. */
weft_val weft_merge__make_weight(weft_merger *g, const weft_merge_form *f, uint32_t taps,
                                 uint32_t features, const float *at, const char *name);
/* x by a weight from weft_merge__make_weight; the result has the rows of x. */
weft_val weft_merge__make_gemm(weft_merger *g, const weft_merge_form *f, weft_val x, weft_val w);
/* x by w + `to`. */
weft_val weft_merge__accumulate_gemm(weft_merger *g, const weft_merge_form *f, weft_val x,
                                     weft_val w, weft_val to);
/* The listed features of `v`, in the order of the list; `v` itself if that changes nothing. */
weft_val weft_merge__take_features(weft_merger *g, const weft_merge_form *f, weft_val v,
                                   const uint32_t *feature, uint32_t n);
/* The features of all values, concatenated. */
weft_val weft_merge__concat_features(weft_merger *g, const weft_merge_form *f, const weft_val *part,
                                     uint32_t n);
/* One GEMM of the concatenated operands 0 by `w`. */
weft_val weft_merge__multiply_all(weft_merger *g, const weft_merge_group *group, weft_val w);
/* The same by the weight of one of the nodes, in the storage order of that node, plus `bias`, which
 * is the bias of all nodes or none. */
weft_val weft_merge__multiply_base(weft_merger *g, const weft_merge_group *group, weft_val w,
                                   weft_val bias);
/* The rows of model i out of `joint`, which has the rows of all models, in the shape of the result
 * of model i's node. */
weft_val weft_merge__part(weft_merger *g, const weft_merge_group *group, uint32_t i, weft_val joint,
                          const weft_dim *start);
/* The finish of a node: its bias and its epilogue. `biased`: the GEMM has added the bias already.
 */
bool weft_merge__finishes(const weft_merger *g, weft_node n, bool biased);
weft_val weft_merge__finish(weft_merger *g, uint32_t i, weft_node n, weft_val result, bool biased);
/* Applies the finish of a node to `result` + x by w, a GEMM of form `f`. */
weft_val weft_merge__finish_gemm(weft_merger *g, uint32_t i, const weft_merge_form *f, weft_val x,
                                 weft_val w, weft_val result, bool biased);
/* Appends the epilogue steps of a node to the n_steps that are there. Operand k of the node becomes
 * operand[k]; `acc` names the accumulator of the first step, NULL: "acc". Returns the new count. */
uint32_t weft_merge__add_epilogue(weft_merger *g, weft_node n, const uint32_t *operand,
                                  const char *acc, const char **steps, uint32_t n_steps);
/* Sets the results of the group's nodes to `part`, by model, and concatenates them if
 * group->together. */
void weft_merge__set_parts(weft_merger *g, const weft_merge_group *group, const weft_val *part);
/* Whether the planner can place the parts one behind the other, so that concatenating them needs no
 * copy. */
bool weft_merge__parts_align(const weft_merger *g, const weft_merge_group *group);

/* -- Epilogues that differ: merge_epilogues.c ------------------------------------------------- */

typedef struct weft_merge_splits weft_merge_splits;
/* Makes a node of its own of each epilogue behind a GEMM by a weight for which the models have
 * different ones; in cx->scratch. */
weft_merge_splits *weft_merge__split_epilogues(weft_passctx *cx, weft_graph *const *model,
                                               uint32_t n);
/* Makes the models' graphs what they were before. */
void weft_merge__join_epilogues(weft_module *m, const weft_merge_splits *splits);

/* -- A base GEMM and the differences of the models in one node: merge_segments.c --------------- */

/* The operands that low_rank_matmul or patched_matmul has for the rows of one model; none: the
 * model's weight is the base. */
typedef struct weft_merge_extra {
    weft_val in[WEFT_PATCH_OPERANDS];
} weft_merge_extra;

/* Whether all nodes have the same bias (a weight, or none) and the same epilogue with the same
 * weights. */
bool weft_merge__finish_alike(const weft_merger *g, const weft_column *c);
/* One node of operator `op` for the rows of all models: the GEMM by base `w`, in the storage order
 * of the nodes, plus the difference of each model. `finish`: the node applies the finish, which all
 * models share (weft_merge__finish_alike). */
weft_val weft_merge__extended(weft_merger *g, const weft_merge_group *group, weft_op_id op,
                              weft_val w, weft_val bias, const weft_merge_extra *extra,
                              bool finish);

/* -- Decisions: beam_search.c ---------------------------------------------------------------- */

/* Fills g->groups and returns by how many GEMMs they are fewer than the nodes of the models.
 * *out_gemm_columns: columns of several models with GEMMs. *out_saved_us: predicted time saved at
 * the small sizes, minus margins. `width`: the beam's width; 0: the default. */
uint32_t weft_beam__search(weft_merger *g, uint32_t width, double *out_saved_us,
                           uint32_t *out_gemm_columns);
/* Results must keep every bit: nothing is joined, nodes with the same weight only run in turn. */
bool weft_merge__is_exact(const weft_merger *g);
/* Predicted time of a group: the strategy's nodes and the copies of operands. false: the estimator
 * does not know. */
bool weft_merge__group_us(weft_merger *g, const weft_merge_group *group, const weft_merge_sizes *at,
                          double *us);

/* -- Where a joint program pays: merge_limit.c ------------------------------------------------ */

/* Whether the groups save enough for a joint program. */
bool weft_merge__is_worth_it(weft_merger *g);
/* The number of input elements up to which the joint graph, which must have been built, is
 * predicted to pay, by its super-GEMMs and as a whole; 0: it pays at every size. */
uint64_t weft_merge__find_limit(weft_merger *g);

/* -- The joint graph: merge_emit.c ------------------------------------------------------------ */

void weft_merge__build(weft_merger *g);

/* Appends a node with one result to the joint graph. */
weft_val weft_merge__append(weft_merger *g, weft_op_id op, const weft_val *in, uint32_t n_in,
                            const weft_attr *attr, uint32_t n_attr, const weft_ttype *type,
                            weft_loc loc);
/* A view of `v` with this type; `v` itself if it has the type. */
weft_val weft_merge__view(weft_merger *g, weft_val v, const weft_ttype *type, weft_loc loc);
/* The number of rows (at WEFT_JOINT_IMAGES: images) of a value of this type. */
weft_dim weft_merge__rows(weft_merger *g, const weft_ttype *type, weft_joint_level level);
/* The type with `rows` rows instead of its own; at WEFT_JOINT_ROWS the rank becomes 2. */
weft_ttype weft_merge__with_rows(const weft_ttype *type, weft_joint_level level, weft_dim rows);
/* By model: the first row of its part in a joint result of the group; [n_model]: all rows. */
const weft_dim *weft_merge__starts(weft_merger *g, const weft_merge_group *group);
/* A slice of `v`: `rows` rows from row `start` on. */
weft_val weft_merge__cut(weft_merger *g, weft_val v, weft_dim start, weft_dim rows, weft_loc loc);
/* Value `v` of model i as a value of its own in the joint graph; cut out of a joint value if need
 * be. */
weft_val weft_merge__own(weft_merger *g, uint32_t i, weft_val v, weft_loc loc);
/* Operand k of all nodes of the group, concatenated along rows at the group's level. */
weft_val weft_merge__operand(weft_merger *g, const weft_merge_group *group, uint32_t k,
                             weft_loc loc);
/* Records where results are: result k of all nodes of the group is the joint value `val`; value
 * `of` of a model is `val`. */
void weft_merge__set_joined(weft_merger *g, const weft_merge_group *group, uint32_t k, weft_val val,
                            const weft_dim *start);
void weft_merge__set_own(weft_merger *g, weft_val of, weft_val val);

/* Copies each node of the group into the joint graph unchanged. */
void weft_merge__emit_copies(weft_merger *g, const weft_merge_group *group);

#endif
