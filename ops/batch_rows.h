/* How many rows of a batch run at a time on a CPU.
 *
 * The values of a large batch do not fit into the caches: every kernel then reads from memory what
 * the kernel before wrote there. A few rows of the batch at a time, through all kernels, do fit;
 * for that, weights are read again for every slice. So a batch is divided if the values that would
 * leave the cache are more than twice the bytes of the weights that are read again: values come
 * back from the next cache in part.
 *
 * Sessions run by this rule, and the estimator predicts by it.
 *
 * Measured on an AMD EPYC (Zen 5: L2 1 MiB a core, L3 32 MiB), milliseconds an image in a batch of
 * 8, at a time all, four and two, with one thread: mobilenet_v2 3.68, 3.25, 3.07; densenet121 23.7,
 * 22.5, 21.5; squeezenet1_1 2.88, 2.63, 2.43; resnet50 30.6, 29.2, 28.9 (values 2.6 times the
 * weights). resnet18 (1.1 times) takes 10.3, and 10.9 two at a time. One at a time is slower for
 * networks with many weights (resnet50 30.8), and each thread should have a row. */
#ifndef WEFT_OPS_BATCH_ROWS_H
#define WEFT_OPS_BATCH_ROWS_H

#include "ops/ops.h"

/* What a run of a program moves, in bytes. */
typedef struct weft_rows_traffic {
    double weights; /* set by the caller */
    double spilled; /* values of launches that leave the cache */
    double widest;  /* most values of one launch */
    bool unknown;   /* sizes depend on data, or launches have bodies */
} weft_rows_traffic;

/* Adds a launch that reads and writes so many bytes of values; below 0: not known. */
void weft_rows_add(weft_rows_traffic *sum, weft_op_id op, double bytes);

/* The traffic of the program for so many rows of its batch. */
typedef weft_rows_traffic weft_rows_fn(void *user, int64_t rows);

/* Rows at a time, fewer than `all`; 0: the batch is not divided. */
int64_t weft_rows_choose(int64_t all, uint32_t threads, weft_rows_fn *traffic, void *user);

#endif
