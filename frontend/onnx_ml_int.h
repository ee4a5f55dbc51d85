/* Private to frontend/: what the hooks of ai.onnx.ml share. */
#ifndef WEFT_FRONTEND_ONNX_ML_INT_H
#define WEFT_FRONTEND_ONNX_ML_INT_H

#include "frontend/onnx_build.h"

/* The only operand, as a matrix of rows; a vector is one row. Integers become f32; f64 stays when
 * `keep_f64`. */
weft_val weft_ml__rows(weft_onnx_build *k, bool keep_f64);
/* As weft_ml__rows, in f32, of any rank. */
weft_val weft_ml__f32(weft_onnx_build *k);

typedef enum weft_ml_post {
    WEFT_ML_NONE,
    WEFT_ML_SOFTMAX,
    WEFT_ML_LOGISTIC,
    WEFT_ML_SOFTMAX_ZERO,
    WEFT_ML_PROBIT /* the order is that of post_transform in TreeEnsemble-5 */
} weft_ml_post;

/* Attribute post_transform of the older operators. */
weft_ml_post weft_ml__read_post(weft_onnx_build *k);
/* Of rows [n, targets] of f32. */
weft_val weft_ml__transform(weft_onnx_build *k, weft_val x, weft_ml_post post);

/* i64[n]: of each row of [n, columns] the index of the first maximum. */
weft_val weft_ml__first_maximum(weft_onnx_build *k, weft_val x);

/* Class labels: n of them. Strings have no values here: results that would hold strings are left
 * out, which a warning says. */
typedef struct weft_ml_labels {
    const int64_t *value; /* NULL: strings */
    uint32_t n;
} weft_ml_labels;

/* Attributes classlabels_ints (or `ints`) and classlabels_strings. */
weft_ml_labels weft_ml__read_labels(weft_onnx_build *k, const char *ints);
/* Sets result 0 to the labels of indices i64[n]; UNSUP with the remedy for strings. */
void weft_ml__put_labels(weft_onnx_build *k, const weft_ml_labels *labels, weft_val index);
/* condition ? labels[1] : labels[0], of bool[n]. */
void weft_ml__put_label_of(weft_onnx_build *k, const weft_ml_labels *labels, weft_val condition);
/* A vector of f32 as a constant. */
weft_val weft_ml__vector(weft_onnx_build *k, const float *x, uint32_t n);

#endif
