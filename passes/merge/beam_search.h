/* What merge_choose.c decides with: ways to run the nodes of a column (merge_offers.c), where the
 * values that are still needed lie (merge_lie.c), and what is said of it (merge_log.c). */
#ifndef WEFT_PASSES_MERGE_CHOOSE_H
#define WEFT_PASSES_MERGE_CHOOSE_H

#include "passes/merge/merge_int.h"

/* -- Where values lie: merge_lie.c ------------------------------------------------------------ */

/* A lie says of each value that is needed at the time where it is: an array of weft_lie__size
 * numbers, the same for equal arrangements. All zero but for inputs: each by itself. */
typedef struct weft_lies weft_lies;

weft_lies *weft_lie__open(weft_merger *g, const weft_column *column, uint32_t n);
uint32_t weft_lie__size(const weft_lies *l);
/* Before the first column. */
void weft_lie__start(const weft_lies *l, uint32_t *lie);
/* Brings the operands of a piece together. Returns those that are copied for it (bit k: operand k);
 * *out_together: how many lay together before. */
uint64_t weft_lie__bring(weft_lies *l, uint32_t *lie, const weft_piece *p, uint32_t *out_together);
/* The piece's results are there. */
void weft_lie__put(weft_lies *l, uint32_t *lie, const weft_piece *p);
/* Models of `set` whose operands lie with one of the first of them; 0: none does. */
uint32_t weft_lie__beside(const weft_lies *l, const uint32_t *lie, const weft_column *c,
                          uint32_t set);
/* Forgets what no column behind number c needs. */
void weft_lie__leave(const weft_lies *l, uint32_t *lie, const weft_column *column, uint32_t c);
uint64_t weft_lie__hash(const weft_lies *l, const uint32_t *lie);

/* -- Offers: merge_offers.c ------------------------------------------------------------------- */

/* Nodes of a column as they may be run by one strategy, wherever their operands lie. */
typedef struct weft_offer {
    weft_piece piece;
    uint32_t models, set; /* that it was made for, that it serves */
    bool fits, known;
    double small_us, large_us;       /* without copies */
    double apart_us;                 /* at small sizes, each by itself */
    double other_small, other_large; /* us, of what is done otherwise */
    double gain_small, gain_large;   /* over that; 0: not known */
    bool small_only;                 /* it loses at large ones */
    const char *reason;              /* why it cannot be taken; "": it can */
} weft_offer;

enum { WEFT_OFFERS_MAX = 16 }; /* of strategies for one set of models */

typedef struct weft_offers weft_offers; /* of a column: each is made once */

weft_offers *weft_offer__open(weft_merger *g, const weft_column *column);
/* Models that have the same weights, as one node; any models, each by itself. */
const weft_offer *weft_offer__joint(weft_offers *o, uint32_t set);
const weft_offer *weft_offer__apart(weft_offers *o, uint32_t set);
bool weft_offer__is_joint(const weft_offer *offer);
/* Of all strategies for different weights; 0: none is tried (any more). */
uint32_t weft_offer__others(weft_offers *o, uint32_t models, const weft_offer **out);
/* What taking it saves at small sizes, with a margin for the estimator's error, when the operands
 * in piece->copied are copied. */
double weft_offer__saved_us(weft_merger *g, const weft_offer *offer, const weft_piece *piece);
/* Whether the options allow it. */
bool weft_offer__is_open(const weft_merger *g, const weft_offer *offer);

/* -- The log: merge_log.c --------------------------------------------------------------------- */

/* The piece is run by the chosen one, of these offers and each model by itself; NULL: none was
 * chosen. */
void weft_merge__note(weft_merger *g, const weft_piece *piece, const weft_offer *const *offer,
                      uint32_t n, const weft_offer *chosen);

#endif
