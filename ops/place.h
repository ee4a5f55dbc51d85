/* Which values of a program need memory, which lie in another's, and from when to when.
 *
 * The one rule that the memory planner, the verifier of its plans and the runtime share, so that
 * what is planned is what is used: at concrete dimensions a view lies in what it views, so does a
 * slice whose elements are one run of its operand's bytes, and the operands of a concatenation lie
 * in its result where that needs no copy. */
#ifndef WEFT_OPS_PLACE_H
#define WEFT_OPS_PLACE_H

#include "ops/ops.h"

typedef enum weft_place {
    WEFT_PLACE_NONE, /* never made */
    WEFT_PLACE_WEIGHT,
    WEFT_PLACE_INPUT, /* memory of the caller */
    WEFT_PLACE_ARENA,
    WEFT_PLACE_ALIAS,  /* same bytes as `root`, `shift` behind its start */
    WEFT_PLACE_DYNAMIC /* dims that only running tells */
} weft_place;

typedef struct weft_place_value {
    /* Given; dims and bytes not of DYNAMIC values. `place`: WEIGHT, INPUT, DYNAMIC, or NONE for
     * what launches make. */
    weft_place place;
    weft_dtype dtype;
    weft_layout layout;
    int32_t rank;
    int64_t dim[WEFT_RANK_MAX];
    uint64_t bytes;
    /* Found. */
    uint32_t root; /* value with the memory; itself when it is no alias */
    uint64_t shift;
    bool hosts;           /* operands of a concatenation lie in it */
    uint32_t first, last; /* of a root: launches, inclusive; last == n_launch: to the end */
} weft_place_value;

typedef struct weft_place_launch {
    /* Given. Values count from 1, 0 is none; each is made once, before it is used. */
    weft_op_id op;
    int64_t axis;  /* of a concatenation */
    bool cut;      /* a slice with steps of 1 that takes a run of one axis, */
    int64_t start; /* from here on */
    const uint32_t *in, *out;
    uint32_t n_in, n_out;
    bool dynamic; /* attributes that only running tells; found: or operands, or results */
    /* Found. */
    bool view;   /* the result lies in the operand */
    bool joined; /* a concatenation whose operands lie in its result */
} weft_place_launch;

/* Whether a launch is a slice that takes a run of one axis: its axis, and the dim where it starts.
 */
bool weft_place_is_cut(weft_op_id op, weft_attrs attrs, uint32_t n_in, int64_t *out_axis,
                       weft_dim *out_start);

/* value[0] is not used: v is value[v]. O(values) for each concatenation that may be joined, with a
 * bound on the whole. */
void weft_place_values(weft_place_value *value, uint32_t n_value, weft_place_launch *launch,
                       uint32_t n_launch, const uint32_t *output, uint32_t n_output);

/* Neighbours in the order none of which reads what another makes: they may run at the same time. */
typedef struct weft_place_level {
    uint32_t first, last; /* launches, inclusive */
} weft_place_level;

/* After weft_place_values: the level of each launch, and behind the last one that of the end. A
 * level ends where a launch reads what it makes; launches that only look at bytes end none.
 * `maker`: room for values 0 .. n_value, zeroed. */
void weft_place_levels(const weft_place_launch *launch, uint32_t n_launch, uint32_t *maker,
                       weft_place_level *out);

#endif
