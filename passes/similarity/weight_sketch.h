/* A cheap estimate of how similar two weights are, from a sketch of each (weight_sketch.c). */
#ifndef WEFT_PASSES_SIMILARITY_WEIGHT_SKETCH_H
#define WEFT_PASSES_SIMILARITY_WEIGHT_SKETCH_H

#include "passes/passes_int.h"

/* Sketches of weights and results for pairs, each computed at most once. Lives in the arena. */
typedef struct weft_sketches weft_sketches;

weft_sketches *weft_sketch__open(weft_arena *arena);
/* Estimated similarity, from 0 (nothing in common) to 1 (equal); for ranking candidates only. */
double weft_sketch__compare(weft_sketches *s, const weft_module *m, weft_weight a, weft_weight b);

#endif
