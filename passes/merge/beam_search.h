/* What beam_search.c decides with: ways to run the nodes of a column (merge_candidates.c), where
 * the values that are still needed arrangement (merge_arrangement.c), and what is said of it
 * (merge_log.c). */
#ifndef WEFT_PASSES_MERGE_BEAM_SEARCH_H
#define WEFT_PASSES_MERGE_BEAM_SEARCH_H

#include "passes/merge/merge_int.h"

/* -- Where values arrangement: merge_arrangement.c
 * ------------------------------------------------------------ */

/* A arrangement says of each value that is needed at the time where it is: an array of
 * weft_arrangement__size numbers, the same for equal arrangements. All zero but for inputs: each by
 * itself. */
typedef struct weft_arrangements weft_arrangements;

weft_arrangements *weft_arrangement__open(weft_merger *g, const weft_column *column, uint32_t n);
uint32_t weft_arrangement__size(const weft_arrangements *a);
/* Before the first column. */
void weft_arrangement__start(const weft_arrangements *a, uint32_t *arrangement);
/* Brings the operands of a piece together. Returns those that are copied for it (bit k: operand k);
 * *out_together: how many lay together before. */
uint64_t weft_arrangement__bring(weft_arrangements *a, uint32_t *arrangement,
                                 const weft_merge_group *p, uint32_t *out_together);
/* The piece's results are there. */
void weft_arrangement__put(weft_arrangements *a, uint32_t *arrangement, const weft_merge_group *p);
/* Models of `set` whose operands arrangement with one of the first of them; 0: none does. */
uint32_t weft_arrangement__beside(const weft_arrangements *a, const uint32_t *arrangement,
                                  const weft_column *c, uint32_t set);
/* Forgets what no column behind number c needs. */
void weft_arrangement__leave(const weft_arrangements *a, uint32_t *arrangement,
                             const weft_column *column, uint32_t c);
uint64_t weft_arrangement__hash(const weft_arrangements *a, const uint32_t *arrangement);

/* -- Offers: merge_candidates.c -------------------------------------------------------------------
 */

/* Nodes of a column as they may be run by one strategy, wherever their operands arrangement. */
typedef struct weft_candidate {
    weft_merge_group group;
    uint32_t models, set; /* that it was made for, that it serves */
    bool fits, known;
    double small_us, large_us;       /* without copies */
    double apart_us;                 /* at small sizes, each by itself */
    double other_small, other_large; /* us, of what is done otherwise */
    double gain_small, gain_large;   /* over that; 0: not known */
    bool small_only;                 /* it loses at large ones */
    const char *reason;              /* why it cannot be taken; "": it can */
} weft_candidate;

enum { WEFT_CANDIDATES_MAX = 16 }; /* of strategies for one set of models */

typedef struct weft_candidates weft_candidates; /* of a column: each is made once */

weft_candidates *weft_candidate__open(weft_merger *g, const weft_column *column);
/* Models that have the same weights, as one node; any models, each by itself. */
const weft_candidate *weft_candidate__joint(weft_candidates *o, uint32_t set);
const weft_candidate *weft_candidate__apart(weft_candidates *o, uint32_t set);
bool weft_candidate__is_joint(const weft_candidate *candidate);
/* Of all strategies for different weights; 0: none is tried (any more). */
uint32_t weft_candidate__unequal(weft_candidates *o, uint32_t models, const weft_candidate **out);
/* What taking it saves at small sizes, with a margin for the estimator's error, when the operands
 * in group->copied are copied. */
double weft_candidate__saved_us(weft_merger *g, const weft_candidate *candidate,
                                const weft_merge_group *group);
/* Whether the options allow it. */
bool weft_candidate__is_open(const weft_merger *g, const weft_candidate *candidate);

/* -- The log: merge_log.c --------------------------------------------------------------------- */

/* The piece is run by the chosen one, of these candidates and each model by itself; NULL: none was
 * chosen. */
void weft_merge__note(weft_merger *g, const weft_merge_group *group,
                      const weft_candidate *const *candidate, uint32_t n,
                      const weft_candidate *chosen);

#endif
