/* What the files of pass merge-models share: the decisions, the joint graph in the making, and the
 * record of a strategy. merge_models.c says how they go together. */
#ifndef WEFT_PASSES_MERGE_MERGE_INT_H
#define WEFT_PASSES_MERGE_MERGE_INT_H

#include "base/map.h"
#include "estimator/estimator.h"
#include "passes/merge/merge.h"

typedef struct weft_merger weft_merger;

/* -- Times: merge_cost.c ---------------------------------------------------------------------- */

/* Values of symbols that times are predicted for, on the target. */
typedef struct weft_merge_sizes {
    weft_slice slice;
    int64_t *value;
    uint32_t n;
    double reuse_bytes; /* that a program touches between two uses of a weight */
    weft_dtype half;    /* F16, BF16: what f32 is computed in; else NONE */
    bool exact_f32;     /* f32 is not computed as TF32 */
} weft_merge_sizes;

/* A product that a strategy would make: so many rows (of a convolution: positions of all images) by
 * features, each the sum of so many products; `x`: elements of its first operand. */
typedef struct weft_merge_gemm {
    double rows, features, taps, x;
    uint32_t batch;   /* so many such products, by different weights */
    weft_delta delta; /* on top of it */
} weft_merge_gemm;

/* Batches of so many rows, other symbols of that value, as far as they can have it. false: the
 * target is not known. */
bool weft_merge__sizes(weft_merger *g, int64_t batch, int64_t other, weft_merge_sizes *out);
/* What is planned for at most. */
enum { WEFT_MERGE_LARGE_BATCH = 8, WEFT_MERGE_LARGE_OTHER = 128 };
/* These add to *sum and *us. false: not known. */
bool weft_merge__count(const weft_merge_sizes *at, weft_module *m, weft_val v, double *sum);
bool weft_merge__node_us(const weft_merge_sizes *at, weft_module *m, weft_node n, double *us);
/* The product of a node for `y` elements of its result that it makes from `x`. */
bool weft_merge__elements_us(const weft_merge_sizes *at, const weft_module *m, weft_node like,
                             double x, double y, double *us);
bool weft_merge__gemm_us(const weft_merge_sizes *at, const weft_module *m, weft_node like,
                         const weft_merge_gemm *p, double *us);
/* Of copying so many elements like those of `v`. */
bool weft_merge__copy_us(const weft_merge_sizes *at, const weft_module *m, weft_val v,
                         double elements, double *us);
/* Of an element-wise chain over so many elements like those of `v`, with so many operands. */
bool weft_merge__chain_us(const weft_merge_sizes *at, const weft_module *m, weft_val v,
                          double elements, double operands, double *us);

/* -- What is decided and made ----------------------------------------------------------------- */

/* Corresponding nodes and how they are run: a column, or some of its models. */
typedef struct weft_merge_group {
    weft_column column;
    weft_joint_level level;
    const weft_merge_strategy *how;
    bool together;   /* results lie in one value, one model after the other */
    bool gathers;    /* all operands are brought together for it, not only operand 0 */
    uint64_t copied; /* bit k: operand k of its nodes is copied to be brought together */
    void *plan;      /* the strategy's own, in scratch */
} weft_merge_group;

/* A result, or an operand, of one piece's nodes in one value of the joint graph: rows of the models
 * that have the node, one model after the other. */
typedef struct weft_joined {
    weft_val val;
    weft_joint_level level;
    uint32_t models;
    const weft_dim *start; /* by model: first row; [n_model]: all rows */
} weft_joined;

/* Where a value of a model is in the joint graph. */
typedef struct weft_joint_place {
    weft_val val; /* on its own; none: in `in`, not taken out yet */
    uint32_t in;  /* 1 + index of what it is joined in, too or only; 0: nothing */
} weft_joint_place;

struct weft_merger {
    weft_passctx *cx;
    weft_module *m;
    weft_dimpool *dims;
    weft_columns columns;
    weft_merge_log *log; /* may be NULL */
    /* Decisions, in the order of the joint graph. */
    WEFT_VEC(weft_merge_group) groups;
    weft_merge_sizes small, large; /* what is planned for; both unknown when `sized` is not set */
    bool sized;
    weft_map *memo; /* what strategies found out about pairs of weights */
    /* Emission. */
    weft_graph *joint;
    weft_joint_place *place; /* by value of the models */
    uint32_t n_place;
    WEFT_VEC(weft_joined) joined;
};

/* What is found out about the models lives in cx->scratch. */
weft_merger weft_merge__open(weft_passctx *cx, weft_graph *const *model, uint32_t n);

/* -- Strategies ------------------------------------------------------------------------------- */

struct weft_merge_strategy {
    const char *name, *brief;
    bool equal_only; /* nodes have the same weights */
    bool asked_only; /* a baseline, never chosen by itself */
    /* Whether the piece may be run so, whether or not it pays: NULL and group->plan,
     * `together` and `gathers` set, or why not. Models that it does not suit may be taken out of
     * the group; two at least stay. NULL here: always. */
    const char *(*fit)(weft_merger *g, weft_merge_group *group);
    /* Predicted time of all its nodes, its copies but not those that bring operands together.
     * false: not known. */
    bool (*time)(weft_merger *g, const weft_merge_group *group, const weft_merge_sizes *at,
                 double *us);
    /* Bytes of weights read by one run, and of weights that it makes; NULL: those of the nodes, and
     * none. */
    void (*bytes)(weft_merger *g, const weft_merge_group *group, uint64_t *read, uint64_t *made);
    void (*emit)(weft_merger *g, const weft_merge_group *group);
};

#define S(name) extern const weft_merge_strategy weft_merge_strategy_##name;
#include "passes/merge/strategies.def"
#undef S

/* -- Columns: merge_columns.c ----------------------------------------------------------------- */

weft_node weft_merge__first(const weft_merger *g, const weft_column *c);
bool weft_merge__is_weight(const weft_merger *g, weft_val v);
/* Both have the same operands that are weights. */
bool weft_merge__same_weights(const weft_merger *g, weft_node a, weft_node b);
/* Sets of models: bit i is model i. */
uint32_t weft_merge__models(const weft_merger *g, const weft_column *c);
uint32_t weft_merge__lowest(uint32_t set); /* 31 when it is empty */
/* Those of `set` with the same weights as the first of them. */
uint32_t weft_merge__equal_to_first(const weft_merger *g, const weft_column *c, uint32_t set);
/* The nodes of these models, by themselves. */
weft_merge_group weft_merge__make_group(const weft_merger *g, const weft_column *c, uint32_t set,
                                        const weft_merge_strategy *how);
/* From model i on, those of `set` that follow each other in `whole`, too, and are all in `same`. */
uint32_t weft_merge__run(uint32_t set, uint32_t same, uint32_t whole, uint32_t i);

/* -- Products by unequal weights: merge_form.c, merge_gemm.c -------------------------------- */

/* Operands of a node that has a form. */
enum { WEFT_MERGE_OPERANDS_MAX = 24 };

/* A product by a weight [taps, features] as numbers. Of a convolution the taps are those of its
 * kernel at each input channel, the rows positions of all images, and the features channels. */
typedef struct weft_merge_form {
    weft_node node;
    weft_val x, w;
    uint32_t taps, features;
    uint32_t window; /* taps of one input feature: elements of a convolution's kernel, else 1 */
    double spread;   /* elements of x for a tap of a row: 1, but of a convolution */
    bool by_feature; /* the weight is stored as [features, taps], else as [taps, features] */
    bool conv;
    bool pointwise; /* a convolution of what one like `node` made: 1 x 1, nothing beside it */
} weft_merge_form;

/* Why strategies for unequal weights do not apply to the group; NULL: they do, and every node has a
 * form. */
const char *weft_merge__refuse(const weft_merger *g, const weft_merge_group *group);
weft_merge_form weft_merge__form(const weft_merger *g, weft_node n);
/* Of a product by [taps, features] of what a product of form `f` by [.., taps] made. */
weft_merge_form weft_merge__pointwise(const weft_merge_form *f, uint32_t taps);
/* So many rows of it, with some of the taps and features. */
weft_merge_gemm weft_merge__numbers(const weft_merge_form *f, double rows, uint32_t taps,
                                    uint32_t features);
/* Bytes of the weight of a form. */
const uint8_t *weft_merge__bytes(const weft_merger *g, const weft_merge_form *f);
/* One of them, whichever way the weight is stored. */
float weft_merge__element(const weft_merge_form *f, const uint8_t *bytes, uint32_t tap,
                          uint32_t feature);
/* Rows of a node's product. false: not known. */
bool weft_merge__node_rows(const weft_merge_sizes *at, weft_module *m, weft_node n, double *rows);
/* Dim of an operand or result of that type whose elements are features. */
uint32_t weft_merge__axis(const weft_merge_form *f, const weft_ttype *type);

/* A weight for such products from [taps, features]; the elements are copied. */
weft_val weft_merge__make_weight(weft_merger *g, const weft_merge_form *f, uint32_t taps,
                                 uint32_t features, const float *at, const char *name);
/* x by such a weight; the result has the rows of x. */
weft_val weft_merge__make_gemm(weft_merger *g, const weft_merge_form *f, weft_val x, weft_val w);
/* The same, added to `to`. */
weft_val weft_merge__accumulate_gemm(weft_merger *g, const weft_merge_form *f, weft_val x,
                                     weft_val w, weft_val to);
/* These features of `v`, in that order; `v` itself when that is all of them. */
weft_val weft_merge__take(weft_merger *g, const weft_merge_form *f, weft_val v,
                          const uint32_t *feature, uint32_t n);
/* Features of all values, side by side. */
weft_val weft_merge__beside(weft_merger *g, const weft_merge_form *f, const weft_val *part,
                            uint32_t n);
/* One product of all rows of operand 0. */
weft_val weft_merge__multiply_all(weft_merger *g, const weft_merge_group *group, weft_val w);
/* The same by the weight of one of the nodes, as it is stored; bias: none, or of all nodes. */
weft_val weft_merge__multiply_base(weft_merger *g, const weft_merge_group *group, weft_val w,
                                   weft_val bias);
/* Model i's rows of a value that has those of all models, as its node's result. */
weft_val weft_merge__part(weft_merger *g, const weft_merge_group *group, uint32_t i, weft_val joint,
                          const weft_dim *start);
/* What a node does to its product: bias (`biased`: the product has it already) and epilogue. */
bool weft_merge__finishes(const weft_merger *g, weft_node n, bool biased);
weft_val weft_merge__finish(weft_merger *g, uint32_t i, weft_node n, weft_val product, bool biased);
/* The same for the sum of `product` and x by w, a product of form `f`. */
weft_val weft_merge__finish_gemm(weft_merger *g, uint32_t i, const weft_merge_form *f, weft_val x,
                                 weft_val w, weft_val product, bool biased);
/* Adds the steps of a node's epilogue behind the n there are, operand k called operand[k]. `acc`:
 * the accumulator of its first; NULL: "acc". Returns the new count. */
uint32_t weft_merge__add_epilogue(weft_merger *g, weft_node n, const uint32_t *operand,
                                  const char *acc, const char **steps, uint32_t n_steps);
/* The results of the piece's nodes are these values, by model; together too when the piece says so.
 */
void weft_merge__set_parts(weft_merger *g, const weft_merge_group *group, const weft_val *part);
/* Whether parts lie one behind the other without a copy. */
bool weft_merge__parts_align(const weft_merger *g, const weft_merge_group *group);

/* -- A base product and what models have more in one node: merge_segments.c ------------------- */

/* Operands of low_rank_matmul or patched_matmul for a model's rows; none: it has the base. */
typedef struct weft_merge_extra {
    weft_val in[WEFT_PATCH_OPERANDS];
} weft_merge_extra;

/* All nodes have the same bias (a weight, or none) and the same epilogue, of the same weights. */
bool weft_merge__finish_alike(const weft_merger *g, const weft_column *c);
/* The product of the rows of all models by `w`, as the nodes store it, and what they have more (by
 * model), by one of these operators; `finish`: with what the nodes, which finish alike, do
 * afterwards. */
weft_val weft_merge__extended(weft_merger *g, const weft_merge_group *group, weft_op_id op,
                              weft_val w, weft_val bias, const weft_merge_extra *extra,
                              bool finish);

/* -- Decisions: beam_search.c ---------------------------------------------------------------- */

/* Fills g->groups; returns how many products they make fewer, *out_gemm_columns: of how many
 * columns, and *out_saved_us: of the time at small sizes, predicted with a margin. `width`: states
 * that are kept at most; 0: the default. */
uint32_t weft_beam__search(weft_merger *g, uint32_t width, double *out_saved_us,
                           uint32_t *out_gemm_columns);
/* Nothing is joined: weights that are the same are read one after the other. */
bool weft_merge__is_exact(const weft_merger *g);
/* Time of a piece's nodes, its copies too. false: not known. */
bool weft_merge__group_us(weft_merger *g, const weft_merge_group *group, const weft_merge_sizes *at,
                          double *us);

/* -- Where it pays: merge_limit.c ------------------------------------------------------------- */

/* Whether what is run together gains enough for a joint program. */
bool weft_merge__is_worth_it(weft_merger *g);
/* Elements of the joint graph's inputs up to which it is predicted to pay, by its products and as a
 * whole; 0: it always does. For a joint graph that is built. */
uint64_t weft_merge__find_limit(weft_merger *g);

/* -- The joint graph: merge_emit.c ------------------------------------------------------------ */

void weft_merge__build(weft_merger *g);

/* A node with one result, at the end of the joint graph. */
weft_val weft_merge__append(weft_merger *g, weft_op_id op, const weft_val *in, uint32_t n_in,
                            const weft_attr *attr, uint32_t n_attr, const weft_ttype *type,
                            weft_loc loc);
/* A view of `v` as that type; `v` itself when it has it. */
weft_val weft_merge__view(weft_merger *g, weft_val v, const weft_ttype *type, weft_loc loc);
/* Rows (or images) of a value of that type. */
weft_dim weft_merge__rows(weft_merger *g, const weft_ttype *type, weft_joint_level level);
/* The type with `rows` rows in the place of its own; of rank 2 at WEFT_JOINT_ROWS. */
weft_ttype weft_merge__with_rows(const weft_ttype *type, weft_joint_level level, weft_dim rows);
/* First row of each model's part in a result of the group; [n_model]: all rows. */
const weft_dim *weft_merge__starts(weft_merger *g, const weft_merge_group *group);
/* `rows` rows of `v` from `start` on. */
weft_val weft_merge__cut(weft_merger *g, weft_val v, weft_dim start, weft_dim rows, weft_loc loc);
/* Value `v` of model i, on its own. */
weft_val weft_merge__own(weft_merger *g, uint32_t i, weft_val v, weft_loc loc);
/* Operand k of all nodes of the piece together, with its rows at the piece's level. */
weft_val weft_merge__operand(weft_merger *g, const weft_merge_group *group, uint32_t k,
                             weft_loc loc);
/* Result k of the piece's nodes is that value: of all models, or of model i. */
void weft_merge__set_joined(weft_merger *g, const weft_merge_group *group, uint32_t k, weft_val val,
                            const weft_dim *start);
void weft_merge__set_own(weft_merger *g, weft_val of, weft_val val);

/* Each node as it is. */
void weft_merge__emit_copies(weft_merger *g, const weft_merge_group *group);

#endif
