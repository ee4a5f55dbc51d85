/* Private to frontend/: what the hooks of control flow (If, Loop, Scan) share.
 *
 *   onnx_flow_if.c onnx_flow_loop.c   the hooks
 *   onnx_flow_unroll.c                loops of a few rounds
 *   onnx_flow_body.c                  graphs in attributes as bodies of nodes
 *   onnx_flow_list.c                  lists of tensors that loops carry */
#ifndef WEFT_FRONTEND_ONNX_FLOW_INT_H
#define WEFT_FRONTEND_ONNX_FLOW_INT_H

#include "frontend/onnx_build.h"

enum { WEFT_ONNX_LOOP_FIRST = 2 }; /* inputs of a loop's body before the carried ones */

/* A carried value of a loop that is a list, or a tensor that the body returns as it got it. */
typedef struct weft_onnx_flow_list {
    uint32_t carried; /* number among the carried values */
    weft_val start;
    bool kept;      /* the body returns what it was given */
    bool is_joined; /* its elements are joined along `axis`, which may be negative */
    int64_t axis;
    int64_t result_axis; /* along which the rounds' results are joined; -1: stacked */
} weft_onnx_flow_list;

/* A graph that is read as a body. */
typedef struct weft_onnx_flow_body {
    const char *attr;
    const Onnx__GraphProto *graph;
    const weft_ttype *formal; /* types of its inputs that are no lists */
    uint32_t n_formal;
    weft_onnx_flow_list *list;
    uint32_t n_list;
    bool is_branch;    /* of an If */
    const bool *loose; /* [n_loose]: carried tensors of a loop whose rank is 0 or 1 */
    uint32_t n_loose;
    weft_onnx_nest nest;
    bool whole; /* all outputs are there */
} weft_onnx_flow_body;

/* -- Graphs in attributes, and bodies: onnx_flow_body.c --------------------------------------- */

/* INPUT: the attribute is absent or holds no graph. */
WEFT_MUST_USE weft_err weft_onnx__flow_graph(weft_onnx_call *c, const char *attr,
                                             const Onnx__GraphProto **out);
/* 1 if input i of the graph is declared with one dim: the iteration or the condition. */
uint8_t weft_onnx__declared_rank(const Onnx__GraphProto *graph, size_t i);
/* The nodes of the graph in attribute `attr` in the graph around it, with in[n_in] for its inputs;
 * its outputs into out[n_out]. `prefix`: of the names of its nodes. */
WEFT_MUST_USE weft_err weft_onnx__flow_inline(weft_onnx_call *c, const char *attr,
                                              const char *prefix, const weft_val *in, uint32_t n_in,
                                              weft_val *out, uint32_t n_out);
/* Makes the graph a body of the module. */
WEFT_MUST_USE weft_err weft_onnx__flow_import(weft_onnx_call *c, weft_onnx_flow_body *b);
/* The node with these bodies; `in`: its operands before the captures. Without results if a body is
 * not whole. */
WEFT_MUST_USE weft_err weft_onnx__flow_put(weft_onnx_call *c, weft_onnx_flow_body *const *b,
                                           uint32_t n_body, const weft_val *in, uint32_t n_in,
                                           weft_val *out, uint32_t n_out);
/* The same for a node with the operands and results of the ONNX node. */
WEFT_MUST_USE weft_err weft_onnx__flow_put_plain(weft_onnx_call *c, weft_onnx_flow_body *const *b,
                                                 uint32_t n_body, uint32_t n_in, uint32_t n_out);
/* Removes the bodies after the first n_graph graphs if the node is not made. */
weft_err weft_onnx__flow_or_drop(weft_onnx_call *c, uint32_t n_graph, weft_err err);

/* Messages, refused operators and the first error of an import that may be given up. */
typedef struct weft_onnx_quiet {
    weft_diag *diag;
    weft_names *refused;
    weft_err failed;
} weft_onnx_quiet;

weft_onnx_quiet weft_onnx__quiet_start(weft_onnx_ctx *cx);
/* Whether nothing failed since; messages are reported again. */
bool weft_onnx__quiet_end(weft_onnx_ctx *cx, weft_onnx_quiet before);

/* -- Loops of a few rounds: onnx_flow_unroll.c ------------------------------------------------- */

/* The number of rounds of a Loop if it is constant and small, and nothing ends the loop earlier;
 * otherwise 0. */
uint32_t weft_onnx__few_rounds(const weft_onnx_call *c, const Onnx__GraphProto *body);
/* The nodes of every round, in the graph around the loop. */
WEFT_MUST_USE weft_err weft_onnx__unroll(weft_onnx_call *c, const Onnx__GraphProto *body,
                                         uint32_t rounds);

/* -- Lists, and what rounds leave as it is: onnx_flow_list.c ---------------------------------- */

/* Whether the node is this operator of ONNX itself. */
bool weft_onnx__is_plain(const Onnx__NodeProto *n, const char *op);
/* What an output of the graph is called where it was made: before Identity nodes. NULL: there is no
 * such output. */
const char *weft_onnx__source_name(const Onnx__GraphProto *graph, size_t output);
/* NULL if our loop carries the value. */
weft_onnx_flow_list *weft_onnx__list_get(const weft_onnx_flow_body *b, size_t carried);
/* Finds them among the carried values of the Loop node. */
void weft_onnx__list_find(weft_onnx_call *c, weft_onnx_flow_body *b, uint32_t n_carried);
/* What the body sees as the value. */
weft_val weft_onnx__list_bind(weft_onnx_ctx *cx, weft_onnx_flow_body *b,
                              const weft_onnx_flow_list *l);
/* What a round appends to the list, as an output of the body. */
WEFT_MUST_USE weft_err weft_onnx__list_append(weft_onnx_call *c, weft_onnx_flow_body *b,
                                              weft_onnx_flow_list *l, weft_val out);
/* Says which stacked results are joined; returns the number of lists that are results. */
uint32_t weft_onnx__list_join(weft_onnx_call *c, const weft_onnx_flow_body *b, size_t n_scan);
/* Results of the ONNX node from those of ours: carried tensors, stacked results, lists. */
WEFT_MUST_USE weft_err weft_onnx__list_results(weft_onnx_call *c, const weft_onnx_flow_body *b,
                                               uint32_t n_carried, const weft_val *from,
                                               uint32_t n_from);

#endif
