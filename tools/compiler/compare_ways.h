/* One model computed in several ways beside each other (weft verify). The reference is the
 * evaluator on the graph as it was read. */
#ifndef WEFT_TOOLS_COMPARE_WAYS_H
#define WEFT_TOOLS_COMPARE_WAYS_H

#include "base/arena.h"
#include "base/diag.h"
#include "base/tensor.h"

#include <stdbool.h>

/* A way to compute a model; a row of compare_ways.c. */
typedef struct weft_tool_way {
    const char *name;
    const char
        *driver; /* driver that runs the bundle; NULL: the evaluator runs the lowered graph */
    bool is_gpu; /* the passes are those for GPUs */
} weft_tool_way;

const weft_tool_way *weft_tool_way_at(size_t i); /* NULL behind the last */

typedef struct weft_tool_verify {
    const char *file;   /* ONNX or text IR, with one model */
    const char *target; /* architectures for the way cuda; NULL: that of the machine's first GPU */
    uint32_t threads;   /* 0: one for each CPU */
    double tolerance;   /* largest difference of an output, divided by its largest element */
    weft_arena *arena;  /* owns all results */
    weft_diag *diag;
} weft_tool_verify;

/* Ports of the model, and inputs of one size. */
typedef struct weft_tool_ports {
    const char *model;
    const char *const *input, *const *output, *const *symbol; /* names */
    uint32_t n_input, n_output, n_symbol;
    const int64_t *lo, *hi; /* bounds of each symbol; lo may be 0 */
    double rounding;        /* rounding unit of the narrowest type that the model computes with */
} weft_tool_ports;

/* Where a way parts from the reference: the first value that differs, found by bisection over the
 * values that the output depends on, in the order of the nodes. For each step the model is cut off
 * behind a value, compiled and run anew. */
typedef struct weft_tool_parting {
    const char *item, *op; /* ONNX node ("": it has no name) and operator that make the value */
    double difference;
    const char *pass;   /* the evaluator differs from this pass on; NULL: the passes are right */
    const char *kernel; /* that the driver chose for the value; NULL: not known */
} weft_tool_parting;

typedef struct weft_tool_verdict {
    const weft_tool_way *way;
    const char *why;          /* why there is no answer; NULL: there is one */
    bool is_absent;           /* no answer because the machine lacks the device */
    const double *difference; /* of each output; NaN: it was not compared */
    bool agrees;
    const weft_tool_parting *parting; /* NULL: it agrees, or no value was found */
} weft_tool_verdict;

/* Reads the names and bounds of the model's ports. */
WEFT_MUST_USE weft_err weft_tool_verify_ports(const weft_tool_verify *v, weft_tool_ports *out);
/* Makes synthetic inputs for these values of the symbols. */
WEFT_MUST_USE weft_err weft_tool_verify_inputs(const weft_tool_verify *v, const int64_t *symbol,
                                               weft_tensor *in);
/* Computes the reference answers. */
WEFT_MUST_USE weft_err weft_tool_verify_reference(const weft_tool_verify *v, const weft_tensor *in,
                                                  weft_tensor *out);
/* Computes the model in this way and compares; looks for the first value that differs. Fails only
 * without memory: what goes wrong in the way is part of the verdict. */
WEFT_MUST_USE weft_err weft_tool_verify_way(const weft_tool_verify *v, const weft_tool_way *way,
                                            uint32_t n_output, const weft_tensor *in,
                                            const weft_tensor *want, weft_tool_verdict *out);

#endif
