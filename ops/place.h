/* Which values of a program need memory, which share memory with another value, and when each is
 * alive.
 *
 * The memory planner, the verifier of its plans and the runtime call these functions, so all three
 * agree. At concrete dimensions a view shares the memory of its operand; so does a slice whose
 * elements are contiguous in its operand; and the operands of a concatenation are computed directly
 * in its result if that needs no copy. */
#ifndef WEFT_OPS_PLACE_H
#define WEFT_OPS_PLACE_H

#include "ops/ops.h"

typedef enum weft_place {
    WEFT_PLACE_NONE, /* never made */
    WEFT_PLACE_WEIGHT,
    WEFT_PLACE_INPUT, /* memory of the caller */
    WEFT_PLACE_ARENA,
    WEFT_PLACE_ALIAS,  /* same bytes as `root`, `shift` behind its start */
    WEFT_PLACE_DYNAMIC /* dims are known only at run time */
} weft_place;

typedef struct weft_place_value {
    /* Given by the caller; dims and bytes not for DYNAMIC values. `place`: WEIGHT, INPUT, DYNAMIC,
     * or NONE for results of launches. */
    weft_place place;
    weft_dtype dtype;
    weft_layout layout;
    int32_t rank;
    int64_t dim[WEFT_RANK_MAX];
    uint64_t bytes;
    /* Computed. */
    uint32_t root; /* the value that owns the memory; itself if it is no alias */
    uint64_t shift;
    bool hosts; /* operands of a concatenation are computed in it */
    uint32_t first,
        last; /* of a root: lifetime in launches, inclusive; last == n_launch: to the end */
} weft_place_value;

typedef struct weft_place_launch {
    /* Given by the caller. Values are numbered from 1; 0: none. Each is defined once, before its
     * uses. */
    weft_op_id op;
    int64_t axis;  /* of a concatenation */
    bool cut;      /* a slice of one axis with stride 1 */
    int64_t start; /* of a cut: index where it begins */
    const uint32_t *in, *out;
    uint32_t n_in, n_out;
    bool dynamic; /* attributes known only at run time; computed: or operands, or results */
    /* Computed. */
    bool view;   /* the result shares the operand's memory */
    bool joined; /* a concatenation whose operands are computed in its result */
} weft_place_launch;

/* Whether a tensor of these dims, broadcast to images of `rank` dims, is the same memory in layouts
 * PLAIN and NHWC: it has one channel, or one pixel. */
bool weft_place_is_one(const weft_dim *dim, int32_t n_dim, int32_t rank);
/* Whether reordering a tensor of these dims leaves everything where it is. */
bool weft_place_keeps_order(weft_layout from, weft_layout to, const weft_dim *dim, int32_t rank);
/* Whether a launch is a slice of one axis with stride 1: the axis, and the dim where it starts. */
bool weft_place_is_cut(weft_op_id op, weft_attrs attrs, uint32_t n_in, int64_t *out_axis,
                       weft_dim *out_start);

/* Fills the computed fields. Value v is value[v]; value[0] is not used. O(values) for each
 * concatenation that may be joined, with a bound on the total. */
void weft_place_values(weft_place_value *value, uint32_t n_value, weft_place_launch *launch,
                       uint32_t n_launch, const uint32_t *output, uint32_t n_output);

/* A run of launches none of which reads a result of another: they may run concurrently. */
typedef struct weft_place_level {
    uint32_t first, last; /* launches, inclusive */
} weft_place_level;

/* After weft_place_values: out[i] is the level of launch i, out[n_launch] that of the end. A level
 * ends before the first launch that reads a result of the level; views and joined concatenations
 * run nothing and end no level. `maker`: room for values 0 .. n_value, zeroed. */
void weft_place_levels(const weft_place_launch *launch, uint32_t n_launch, uint32_t *maker,
                       weft_place_level *out);

#endif
