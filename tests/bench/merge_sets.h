/* Sets of sibling models for bench_merge: copies of one model in which a rule changes the weights
 * of some GEMMs. */
#ifndef WEFT_TESTS_BENCH_MERGE_SETS_H
#define WEFT_TESTS_BENCH_MERGE_SETS_H

#include "frontend/frontend.h"
#include "passes/passes.h"

enum { MERGE_SET_MAX = 32 };

/* model: an ONNX file, or a generated model:
 *
 *   mlp:WxL     L GEMMs of W x W, each followed by relu, and a head of 10
 *   ffn:WxL     L residual blocks of norm, W x 4W, gelu, 4W x W; and a head
 *   pair:WxL    L blocks of two parallel GEMMs of 2 W x W, each followed by relu; and a head
 *   turned:WxL  pair, with the two branches exchanged in every other sibling
 *   cnn:WxL     L convolutions of 3 x 3 on W channels of 28 x 28, a mean, and a head
 *
 * rule: which GEMM weights differ between siblings: `head` (the last one), `last:F` (the last
 * fraction F of the GEMMs), `none` (all; nothing is shared), `moved` (all, by a small amount),
 * `lora:R` (all but the head, by an update of rank R), `sparse:F` (a fraction F of the elements),
 * `rows:F` (the last fraction F of the features), `inputs:F` (the last fraction F of the inputs),
 * `deeper:N` (the head, and N more layers in the middle; only for generated models). */
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
/* Draws a random set; equal seeds give equal sets. */
void merge_spec_draw(uint64_t *seed, merge_spec *out);

#endif
