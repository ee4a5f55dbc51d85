/* Compiles one set of siblings with one way to merge; predicts and measures its joint program and
 * its models run separately. */
#ifndef WEFT_TESTS_BENCH_MERGE_RUN_H
#define WEFT_TESTS_BENCH_MERGE_RUN_H

#include "tests/bench/merge_sets.h"

enum { MERGE_GROUPS_MAX = 64 };

typedef struct merge_options {
    uint32_t threads; /* 1: CPU time is measured instead of wall-clock time */
    double seconds;   /* for each measurement */
    bool predict_only;
    bool groups; /* single kernels are measured as well */
} merge_options;

/* Options of the pass merge-models. */
typedef struct merge_way {
    const char *name;
    weft_merge mode;
    const weft_merge_strategy *strategy;
    uint32_t match_without;
    const weft_merge_strategy *without;
} merge_way;

/* All merged GEMMs of a set with one operator, size and strategy, including the copies that gather
 * their operands. */
typedef struct merge_group {
    const weft_merge_row *row; /* the first GEMM of the group */
    uint32_t n_row;
    double apart_us, joint_us; /* medians; 0: not measured */
    double predicted_apart_us, predicted_joint_us;
} merge_group;

typedef struct merge_result {
    double apart_us, joint_us, gain, low, high, difference; /* medians; quartiles of the gain */
    double predicted, predicted_apart_us, merge_ms, compile_ms;
    uint32_t parts;         /* models in the joint program */
    uint32_t joined, gemms; /* GEMMs merged; GEMMs considered */
    size_t n_pair;          /* 0: not measured; the gain is 1 because models run separately */
    merge_group group[MERGE_GROUPS_MAX];
    uint32_t n_group;
} merge_result;

/* Exits with a message on errors. result->group points into `arena`. */
void merge_run(const merge_options *options, const merge_spec *spec, const merge_way *way,
               weft_arena *arena, merge_result *out);
/* The clock of all measurements, in microseconds. */
double merge_now_us(const merge_options *options);

#endif
