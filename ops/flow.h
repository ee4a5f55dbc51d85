/* Operators that run other graphs, their bodies: `if`, `loop`, `scan`.
 *
 * A body sees nothing of the graph around it but its inputs: first the formal inputs that the
 * operator defines, then captured values, which the node gives as operands.
 *
 *   if    cond, captures of then_branch, captures of else_branch -> the branch's outputs
 *   loop  trip count, condition, carried.., captures..
 *         body (iteration i64, condition, carried.., captures..) -> (condition, carried..,
 * scanned..) scan  states.., scanned inputs.., captures.. body (states.., slices.., captures..) ->
 * (states.., scanned..)
 *
 * The evaluator and the runtime differ in how they run a body and where results are placed; they
 * pass that in. Semantics: ONNX, except that the condition that a loop's body returns counts even
 * if the condition operand is absent, as in onnxruntime. */
#ifndef WEFT_OPS_FLOW_H
#define WEFT_OPS_FLOW_H

#include "ops/ops.h"

/* Bodies in bodies: a limit of hostile files, far above real models. */
enum { WEFT_FLOW_DEPTH_MAX = 16, WEFT_FLOW_BODIES = 2 };

/* The attributes that name the bodies of an operator; NONE behind the last. */
weft_attr_key weft_flow_body_key(weft_op_id op, uint32_t i);
/* Number of bodies; 0 for operators without WEFT_T_BODY. */
uint32_t weft_flow_bodies(weft_op_id op);

/* Which operand is which. */
typedef struct weft_flow_layout {
    uint32_t n_body;
    uint32_t n_carried;                       /* carried values or states */
    uint32_t n_sliced;                        /* scanned inputs */
    uint32_t first_carried;                   /* operand; scanned inputs follow */
    uint32_t n_formal;                        /* inputs of a body before its captures */
    uint32_t first_capture[WEFT_FLOW_BODIES]; /* operand */
    uint32_t n_capture[WEFT_FLOW_BODIES];
    uint32_t first_out; /* output of the body that is result 0 */
    uint32_t n_stacked; /* results behind the carried ones */
} weft_flow_layout;

/* false: the numbers of operands, results and ports do not fit together, or the attributes do not.
 * Trailing operands may be absent. */
bool weft_flow_layout_make(weft_op_id op, weft_attrs attrs, uint32_t n_in, uint32_t n_out,
                           const uint32_t body_in[WEFT_FLOW_BODIES],
                           const uint32_t body_out[WEFT_FLOW_BODIES], weft_flow_layout *out);
/* Axis of a scan: of sliced input i, or of stacked result i (`result`); false: not in [-rank,
 * rank). `rank` counts the axis. Axis 0 of a loop. */
bool weft_flow_axis(weft_attrs attrs, bool result, uint32_t i, uint32_t rank, uint32_t *out);
/* Whether the rounds' values of stacked result i of a loop, of this rank, are not stacked on a new
 * axis but joined along one that they have, where their sizes may differ. */
bool weft_flow_joined(weft_attrs attrs, uint32_t i, uint32_t rank, uint32_t *out_axis);

/* One run of a node. Tensors with dtype NONE are absent. */
typedef struct weft_flow {
    weft_op_id op;
    weft_attrs attrs;
    weft_flow_layout layout;
    const weft_tensor *in;
    uint32_t n_in, n_out;
    int32_t formal_rank[2]; /* of a loop's body: iteration and condition, 0 or 1 */
    weft_diag *diag;
    weft_where where;
    void *user;
    /* Runs body `b`. *out: its outputs, valid until the body runs again. */
    weft_err (*run)(struct weft_flow *f, uint32_t b, const weft_tensor *in,
                    const weft_tensor **out);
    /* Dims of output k of a loop's body that has not run; `in` are the inputs of its first round.
     */
    weft_err (*shape)(struct weft_flow *f, const weft_tensor *in, uint32_t k, weft_tensor *out);
    /* Memory for result i of this type; *data is NULL when the result is not wanted. */
    weft_err (*place)(struct weft_flow *f, uint32_t i, const weft_tensor *type, void **data);
    /* Before each round of a loop or scan; an error ends it. May be NULL. */
    weft_err (*round)(struct weft_flow *f, int64_t iteration);
    /* Reserve and release memory against a limit; may be NULL: no limit. */
    weft_err (*take)(struct weft_flow *f, uint64_t bytes);
    void (*give)(struct weft_flow *f, uint64_t bytes);
} weft_flow;

/* INPUT: a condition or a trip count that is not one element, results of rounds that differ in
 * shape, scanned inputs of different lengths. */
WEFT_MUST_USE weft_err weft_flow_run(weft_flow *f);

#endif
