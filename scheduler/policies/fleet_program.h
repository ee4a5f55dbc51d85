/* A whole fleet as an integer program, for the policy weft. slice_columns.c lists what one slice
 * can carry, slice_patterns.c how devices are split into slices, fleet_program.c puts both into one
 * program and its solution on a plan builder; cover_program.c is for large sets. */
#ifndef WEFT_SCHEDULER_POLICIES_FLEET_PROGRAM_H
#define WEFT_SCHEDULER_POLICIES_FLEET_PROGRAM_H

#include "scheduler/policies/policies_int.h"

/* -- Columns (slice_columns.c) ---------------------------------------------------------------- */

/* A model on a slice, and the requests per second that it can then serve there. */
typedef struct weft_turn {
    uint32_t demand;
    const weft_option *option;
    double per_s;
} weft_turn;

/* One way to use one slice: a model alone, or several in turn. */
typedef struct weft_slice_column {
    uint32_t shape; /* index into the shapes of the option table */
    uint32_t n;
    const weft_turn *turn;
    uint64_t mem_bytes;
    uint32_t clients; /* processes */
    uint32_t slot;    /* kind of slot that it takes (slice_patterns.c) */
} weft_slice_column;

typedef struct weft_slice_columns {
    WEFT_VEC(weft_slice_column) at;
    bool complete; /* every other way to use a slice is no better than one of these */
} weft_slice_columns;

/* Lists the columns, with a limit on their number and on the work. */
void weft_columns__list(const weft_builder *builder, weft_slice_columns *out);
/* The part of a demand's rate that a turn carries, at most 1. A model without a rate needs one
 * turn. */
double weft_turn__part(const weft_builder *builder, const weft_turn *turn);

/* -- Patterns (slice_patterns.c) -------------------------------------------------------------- */

/* Columns with equal demands on a device take the same kind of slot. */
typedef struct weft_slot_kind {
    const weft_fleet_device *row;
    weft_fleet_slice_kind kind;
    const weft_mig_profile *mig; /* MIG only */
    bool nested;                 /* an MPS share of an instance of `mig` */
    uint32_t percent, clients;   /* shares only */
    uint64_t mem_bytes;          /* shares only; 0: memory cannot be exceeded */
    uint32_t cores;
    uint32_t demand; /* shares of instances under the rule `isolated`; UINT32_MAX: any */
    uint32_t own;    /* 1 + number of the device whose shares it stands for; 0: any device */
} weft_slot_kind;

typedef struct weft_slot_count {
    uint32_t slot, n;
} weft_slot_count;

/* One way to split a device, or an instance into shares (then it takes one slot of the kind
 * `inside`). */
typedef struct weft_slice_pattern {
    const weft_fleet_device *row;
    weft_fleet_slice_kind kind;
    uint32_t inside; /* UINT32_MAX: a device */
    const weft_slot_count *has;
    uint32_t n;
} weft_slice_pattern;

typedef struct weft_slice_patterns {
    WEFT_VEC(weft_slot_kind) slots;
    WEFT_VEC(weft_slice_pattern) at;
    bool complete; /* no way of splitting that matters is missing */
} weft_slice_patterns;

/* Sets the slot of each column, and lists the maximal patterns of the slots. Columns may be copied,
 * one for each device of a row. */
void weft_patterns__list(const weft_builder *builder, weft_slice_columns *columns,
                         weft_slice_patterns *out);

/* -- The program (fleet_program.c) ------------------------------------------------------------ */

typedef struct weft_fleet_found {
    bool better;   /* the builder holds a plan that is better than the given one */
    bool proven;   /* no plan is better than the better one of the two */
    bool complete; /* the program covers every plan within the rules */
    double cost_bound, device_bound; /* on any plan; 0: none */
} weft_fleet_found;

/* Looks for the plan with the least price, among those for one with the fewest devices, that is
 * better than `best` (NULL: any). Goal cost only. Where models slow each other down, that is
 * ignored, so the bounds hold, but the plan may be rejected by the builder. */
weft_fleet_found weft_wholefleet__solve(weft_builder *builder, const weft_solver *solver,
                                        const weft_solution *best, uint32_t nodes_max);

/* -- Large sets (cover_program.c, portion_packing.c) ------------------------------------------ */

/* A slice for one model, and the rate that it carries there. */
typedef struct weft_portion {
    uint32_t demand;
    const weft_option *option;
    double rate_per_s;
} weft_portion;

typedef struct weft_portions {
    WEFT_VEC(weft_portion) at;
} weft_portions;

/* By column generation, the portions of a plan for sets of any size, goal cost only; none: it found
 * no plan. Both bounds hold for every plan within the rules; 0: none. `bound_only`: no portions. */
weft_portions weft_covers__solve(weft_builder *builder, const weft_solver *solver, bool bound_only,
                                 double *cost_bound, double *device_bound);
/* In which order small portions share slices. */
typedef enum weft_portions_order {
    WEFT_PORTIONS_ALONE, /* they share none */
    WEFT_PORTIONS_BY_USE,
    WEFT_PORTIONS_BY_ROUND,
    WEFT_PORTIONS_ORDERS
} weft_portions_order;

/* Places the portions on the builder, and greedily what they leave of the rates. `rows`: those of
 * the builder's fleet, whose counts are raised meanwhile. false: something has no place. */
bool weft_portions__place(weft_builder *builder, weft_fleet_device *rows, const weft_portions *list,
                          weft_portions_order order);

#endif
