/* What passes share: the record of a pass, its context, and helpers of rewrites. */
#ifndef WEFT_PASSES_PASSES_INT_H
#define WEFT_PASSES_PASSES_INT_H

#include "passes/passes.h"

/* Facts that passes need or break; run_passes.c computes them. */
#define WEFT_FACT_MAP(X)                          \
    X(TYPES, "result types agree with inference") \
    X(CONTENTS, "contents of small integer values are known (cx->contents)")

typedef enum weft_fact_bit {
#define X(name, text) WEFT_FACT_BIT_##name,
    WEFT_FACT_MAP(X)
#undef X
        WEFT_FACT_BIT_COUNT
} weft_fact_bit;

enum {
#define X(name, text) WEFT_FACT_##name = 1 << WEFT_FACT_BIT_##name,
    WEFT_FACT_MAP(X)
#undef X
        WEFT_FACT_ALL = (1 << WEFT_FACT_BIT_COUNT) - 1
};

typedef struct weft_passctx {
    const weft_pass_options *options;
    weft_arena *scratch; /* reset after every pass */
    weft_diag *diag;
    weft_contents *contents; /* valid while fact CONTENTS is */
    uint64_t n_rewrites;     /* of the whole run, for rewrite_limit */
    /* What constant folding may still do in this run; set by its first pass. */
    uint64_t fold_bytes;
    double fold_flops;
    bool fold_started;
} weft_passctx;

struct weft_pass {
    const char *name;  /* "fold-const": for -p, --dump-after, tests */
    const char *brief; /* one line, shown by weft list passes */
    weft_stage from, to;
    bool any_stage;  /* runs at every stage and keeps it; `from` and `to` are ignored */
    uint32_t needs;  /* facts made valid before run() */
    uint32_t breaks; /* facts that are invalid after run() reported a change */
    weft_err (*run)(weft_passctx *cx, weft_module *m, bool *changed);
};

/* Counts one rewrite; false if the limit is reached, and the rewrite must not be done. Every
 * rewrite of every pass calls this function, so that --pass-limit can bisect a miscompilation. */
bool weft_rewrite__allow(weft_passctx *cx);

/* The largest batch of the model for which memory is planned (plan_memory.c). */
int64_t weft_pass__most_batch(const weft_pass_options *options, const char *model);

/* Replaces result `i` of `n` by `with` in all operands and graph outputs. Does not count a rewrite.
 */
void weft_rewrite__replace_result(weft_graph *g, weft_node n, uint32_t i, weft_val with);
/* Removes `n` and, transitively, the nodes whose results are then unused. */
void weft_rewrite__remove_dead(weft_graph *g, weft_node n);
/* true when some result is used by a node or is a graph output. */
bool weft_rewrite__is_live(const weft_graph *g, weft_node n);
/* Whether two nodes are alike but for their operands: operator, attributes, number of operands,
 * types of results. */
bool weft_rewrite__is_like(const weft_module *m, weft_node a, weft_node b);
/* Sole use of `v`, which must be a node operand and not a graph output; none otherwise. */
weft_node weft_rewrite__sole_user(const weft_graph *g, weft_val v);

/* A new node of one result at the end of the graph, with this type. Returns the result. */
weft_val weft_rewrite__append(weft_graph *g, weft_op_id op, const weft_val *in, uint32_t n_in,
                              const weft_attr *attr, uint32_t n_attr, const weft_ttype *type,
                              weft_loc loc);
/* A new node before `before` with inferred result types (PLAIN); one result; BUG on failure. */
weft_err weft_rewrite__emit(weft_passctx *cx, weft_graph *g, weft_node before, weft_op_id op,
                            const weft_val *in, uint32_t n_in, const weft_attr *attr,
                            uint32_t n_attr, weft_loc loc, weft_val *out);

/* The text of the step (ops/ops.h) that computes element-wise node `n` on f32, with `arg[i]` for
 * its operands; NULL if there is none. Lives in `arena`. */
const char *weft_rewrite__step_text(const weft_module *m, weft_node n, const char *const *arg,
                                    weft_arena *arena);

/* `x` as the argument of a step: "#0.5". */
const char *weft_rewrite__number_text(float x, weft_arena *arena);

/* A weight made by the compiler; bytes are copied into the module. */
weft_val weft_rewrite__constant(weft_module *m, weft_dtype dtype, const int64_t *dim, uint32_t rank,
                                const void *bytes, const char *name);
/* true if `v` is a weight with one element; *out is the element. */
bool weft_rewrite__scalar(const weft_module *m, weft_val v, double *out);

#endif
