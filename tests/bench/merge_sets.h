/* Sets of sibling models for bench_merge: one model several times, the weights of some of its
 * products changed by a rule. */
#ifndef WEFT_TESTS_BENCH_MERGE_SETS_H
#define WEFT_TESTS_BENCH_MERGE_SETS_H

#include "frontend/frontend.h"
#include "passes/passes.h"

enum { MERGE_SET_MAX = 32 };

/* model: an ONNX file, or one that is made up:
 *
 *   mlp:WxL  L products of W x W with a relu behind each, and a head of 10
 *   ffn:WxL  L blocks of a norm, W x 4W, gelu, 4W x W, added to what came in; and a head
 *   pair:WxL L blocks of two products of 2 W x W with a relu behind each, side by side; and a head
 *   turned:WxL  the same, with the two in the other order in every other sibling
 *   cnn:WxL  L convolutions of 3 x 3 on W channels of 28 x 28, a mean, and a head
 *
 * rule: which weights of products a sibling has of its own: `head` (the last), `last:F` (so much of
 * the products, from the end), `none` (all; nothing is shared), `moved` (all of them by a little),
 * `lora:R` (all but the head, by an update of that rank), `sparse:F` (that part of the elements),
 * `rows:F` (that part of the features, the last ones), `inputs:F` (that part of the inputs).
 * `deeper:N` (the head, and N more layers in the middle; of made-up models only). */
typedef struct merge_spec {
    char model[256], rule[32];
    int k;               /* models */
    int64_t rows, other; /* batch; value of the other symbols */
} merge_spec;

typedef struct merge_set {
    weft_module *module; /* owned; NULL: failed, diag says why */
    char name[MERGE_SET_MAX][16];
    uint32_t n, threads;
} merge_set;

void merge_set_make(const merge_spec *spec, weft_arena *arena, weft_diag *diag, merge_set *out);
/* The same seed, the same set. */
void merge_spec_draw(uint64_t *seed, merge_spec *out);

#endif
