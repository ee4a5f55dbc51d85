/* Device-independent work of one operator or kernel at concrete dimensions: flops, bytes, and sizes
 * of its loop nest, on which its time depends too. */
#ifndef WEFT_OPS_WORK_H
#define WEFT_OPS_WORK_H

typedef struct weft_work {
    double flops;      /* a multiply-add counts 2 */
    double bytes_read; /* activations; each operand counted once */
    double bytes_written;
    double weight_bytes; /* constant operands, not in bytes_read */
} weft_work;

/* The kind of loop nest of an operator: field `form` of its row; if OTHER, by its traits. */
typedef enum weft_form {
    WEFT_FORM_OTHER, /* nothing is known but its work */
    WEFT_FORM_EW,
    WEFT_FORM_MOVE,
    WEFT_FORM_REDUCE,
    WEFT_FORM_NORM,
    WEFT_FORM_SOFTMAX,
    WEFT_FORM_POOL,
    WEFT_FORM_GEMM,
    WEFT_FORM_CONV,
    WEFT_FORM_ATTENTION,
    WEFT_FORM_RECURRENT,
    WEFT_FORM_COUNT
} weft_form;

/* What one row of a NORM or SOFTMAX consists of. */
typedef enum weft_row {
    WEFT_ROW_LAST,      /* the last dim */
    WEFT_ROW_AXIS,      /* the dim that `axis` names */
    WEFT_ROW_FROM_AXIS, /* that dim and all behind it */
    WEFT_ROW_AXES,      /* the dims that `axes` names; all but the second without it */
    WEFT_ROW_CHANNEL,   /* all but the second dim */
    WEFT_ROW_IMAGE,     /* all behind the second dim */
    WEFT_ROW_GROUP,     /* a group of `num_groups` of the second dim, and all behind it */
    WEFT_ROW_COUNT
} weft_row;

/* Sizes of a convolution, as ONNX names them. */
typedef struct weft_conv_shape {
    double images, in_channels, out_channels, groups;
    double in_h, in_w, out_h, out_w;
    double kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
} weft_conv_shape;

/* What is added to a GEMM, by segments of its rows: GEMMs by low-rank factors (low_rank_matmul), or
 * multiplications by few elements (patched_matmul). */
typedef struct weft_delta {
    double segments;
    double rank;     /* of what a row gets, on average */
    double ranks;    /* of all segments, summed: their weights are ranks * (k + n) elements */
    double element;  /* elements by which a row is multiplied, on average */
    double elements; /* of all segments, summed; each has an index beside it */
} weft_delta;

/* Sizes of the loop nest. What does not apply is 0.
 *
 *   GEMM       batch GEMMs of m x k by k x n; and `delta`
 *   CONV       the same as an implicit GEMM: batch = groups, m = images * positions, n = filters
 *              of a group, k = taps of a filter; and `conv`. One spatial dim is the width; the
 *              first two of three count as one height
 *   ATTENTION  batch = images * heads, m queries, n keys, k head size
 *   RECURRENT  batch = directions, rows = steps, m = images, n = gates * hidden, k = hidden,
 *              cols = input size
 *   the rest   rows x cols elements: of the result; of operand 0 where rows of it are reduced or
 *              normalised, a row being what is reduced or normalised together. ROWS(CHANNEL):
 *              batch = images */
typedef struct weft_nest {
    weft_form form;
    double batch, m, n, k;
    double rows, cols;
    weft_conv_shape conv;
    weft_delta delta;
} weft_nest;

#endif
