/* One set of siblings, merged one way: what is predicted, and what is measured, of the joint
 * program beside its models. */
#ifndef WEFT_TESTS_BENCH_MERGE_RUN_H
#define WEFT_TESTS_BENCH_MERGE_RUN_H

#include "tests/bench/merge_sets.h"

enum { MERGE_GROUPS_MAX = 64 };

typedef struct merge_options {
    uint32_t threads; /* 1: the processor's time is taken, not that of the clock */
    double seconds;   /* for each measurement */
    bool predict_only;
    bool groups; /* single kernels are measured, too */
} merge_options;

/* As options of the pass. */
typedef struct merge_way {
    const char *name;
    weft_merge mode;
    const weft_merge_strategy *strategy;
    uint32_t match_without;
    const weft_merge_strategy *without;
} merge_way;

/* Merged products of one operator, size and strategy, all of the set together, with the copies that
 * bring their operands together. */
typedef struct merge_group {
    const weft_merge_row *row; /* the first of them */
    uint32_t n_row;
    double apart_us, joint_us; /* medians; 0: not measured */
    double predicted_apart_us, predicted_joint_us;
} merge_group;

typedef struct merge_result {
    double apart_us, joint_us, gain, low, high, difference; /* medians; quartiles of the gain */
    double predicted, predicted_apart_us, merge_ms, compile_ms;
    uint32_t parts, joined,
        products;  /* models in the joint program; products joined, of how many */
    size_t n_pair; /* 0: not measured, the gain is 1 by construction */
    merge_group group[MERGE_GROUPS_MAX];
    uint32_t n_group;
} merge_result;

/* Ends the program where something fails. `arena`: what result->group points to. */
void merge_run(const merge_options *options, const merge_spec *spec, const merge_way *way,
               weft_arena *arena, merge_result *out);
/* Microseconds of the clock that measurements go by. */
double merge_now_us(const merge_options *options);

#endif
