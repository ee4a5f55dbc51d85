/* What the beam search (beam_search.c) is made of: arrangements of live values
 * (merge_arrangement.c), merge candidates of a column (merge_candidates.c), and the log of what was
 * decided (merge_log.c). */
#ifndef WEFT_PASSES_MERGE_BEAM_SEARCH_H
#define WEFT_PASSES_MERGE_BEAM_SEARCH_H

#include "passes/merge/merge_int.h"

/* -- Arrangements: merge_arrangement.c -------------------------------------------------------- */

/* An arrangement says how the live values of all models are laid out between two columns: which are
 * values of their own and which are concatenated with which others. It is an array of
 * weft_arrangement__size numbers, one for each live value; equal arrays are equal arrangements.
 * This type holds what all arrangements share. */
typedef struct weft_arrangements weft_arrangements;

weft_arrangements *weft_arrangement__open(weft_merger *g, const weft_column *column, uint32_t n);
uint32_t weft_arrangement__size(const weft_arrangements *a);
/* Sets the arrangement before the first column: nothing is concatenated. */
void weft_arrangement__start(const weft_arrangements *a, uint32_t *arrangement);
/* Concatenates the operands that a merge group needs as joint values. Returns the operands that
 * must be copied for it (bit k: operand k); *out_together: how many were concatenated already. */
uint64_t weft_arrangement__gather(weft_arrangements *a, uint32_t *arrangement,
                                  const weft_merge_group *p, uint32_t *out_together);
/* Enters the results of a merge group. */
void weft_arrangement__set_results(weft_arrangements *a, uint32_t *arrangement,
                                   const weft_merge_group *p);
/* The models of `set` that have an operand in the same joint value as the lowest of them; empty if
 * that model has no operand in a joint value. */
uint32_t weft_arrangement__find_joined(const weft_arrangements *a, const uint32_t *arrangement,
                                       const weft_column *c, uint32_t set);
/* Forgets the operands of `column`, column number c, that no later column needs. */
void weft_arrangement__forget(const weft_arrangements *a, uint32_t *arrangement,
                              const weft_column *column, uint32_t c);
uint64_t weft_arrangement__hash(const weft_arrangements *a, const uint32_t *arrangement);

/* -- Merge candidates: merge_candidates.c ----------------------------------------------------- */

/* One strategy for the nodes of a column, of all its models or some, with its predicted times for
 * any arrangement of the operands. */
typedef struct weft_candidate {
    weft_merge_group group;
    uint32_t models;           /* set that the strategy was tried for */
    uint32_t set;              /* set that it serves: a strategy may leave models out */
    bool fits;                 /* the strategy applies */
    bool known;                /* the estimator knows the times */
    double small_us, large_us; /* at both sizes, without copies of operands */
    double apart_us;           /* small size, each model by itself */
    double baseline_small_us, baseline_large_us; /* the best without this strategy */
    double gain_small, gain_large;               /* baseline / time; 0: not known */
    bool small_only;                             /* it loses at the large size */
    const char *reason;                          /* why it must not be taken; "": it may */
} weft_candidate;

enum { WEFT_CANDIDATES_MAX = 16 }; /* for one set of models */

typedef struct weft_candidates weft_candidates; /* of one column: each is made once and kept */

weft_candidates *weft_candidate__open(weft_merger *g, const weft_column *column);
/* One joint node for models that have the same weights. */
const weft_candidate *weft_candidate__joint(weft_candidates *all, uint32_t set);
/* Each model by itself. */
const weft_candidate *weft_candidate__apart(weft_candidates *all, uint32_t set);
/* One of each strategy for unequal weights. Returns how many; 0: none is tried, because the options
 * exclude it or because TRIES_MAX sets of models were tried. */
uint32_t weft_candidate__unequal(weft_candidates *all, uint32_t models, const weft_candidate **out);
bool weft_candidate__is_joint(const weft_candidate *candidate);
/* Time saved at the small size if the operands in group->copied are copied, minus margins for the
 * estimator's error. */
double weft_candidate__saved_us(weft_merger *g, const weft_candidate *candidate,
                                const weft_merge_group *group);
/* Whether the search may take the candidate: it applies, and it pays or was asked for. */
bool weft_candidate__is_open(const weft_merger *g, const weft_candidate *candidate);

/* -- The log: merge_log.c --------------------------------------------------------------------- */

/* Logs the decision for a group: `chosen` among n candidates and each model by itself, which NULL
 * stands for. */
void weft_merge__log_group(weft_merger *g, const weft_merge_group *group,
                           const weft_candidate *const *candidate, uint32_t n,
                           const weft_candidate *chosen);

#endif
