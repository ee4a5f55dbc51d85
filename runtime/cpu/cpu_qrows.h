/* Private to runtime/cpu: products of rows of numbers, quantised by the range of all of them, with
 * factors of bytes. The sums are exact; each is scaled once. */
#ifndef WEFT_RUNTIME_CPU_CPU_QROWS_H
#define WEFT_RUNTIME_CPU_CPU_QROWS_H

#include "runtime/cpu/cpu_dnnl.h"

/* One product. The factor [parts, cols, inner] is packed; task i is panel i % panels of part
 * i / panels. */
typedef struct weft_cpu_qrows {
    const weft_cpu_vec *vec;
    void *x; /* memory of weft_cpu__qrows_room bytes for the quantised rows */
    int64_t rows, inner, cols;
    const void *w;      /* packed */
    const float *col_s; /* scales of the factor's columns, [parts, cols] */
    float *out;
    int64_t stride; /* from a row of out to the next, in floats */
    int64_t part;   /* from a part to the next */
    int64_t first;  /* task 0 of multiply; its part is the first of out */
    /* Set by weft_cpu__qrows_quantise. */
    float scale;
    int32_t zero;
} weft_cpu_qrows;

/* Most elements of a row: sums fit 32 bits. */
enum { WEFT_QROWS_INNER_MAX = (1 << 30) / (255 * 255) };

/* The format of the factor; zero points: one a column. It depends on the processor. */
weft_cpu_format weft_cpu__qrows_format(const weft_cpu_vec *vec, int64_t parts, int64_t cols,
                                       int64_t inner, const weft_slot *zero);
/* Bytes of memory for rows. */
uint64_t weft_cpu__qrows_room(const weft_cpu_vec *vec, int64_t rows, int64_t inner);
void weft_cpu__qrows_quantise(weft_cpu_qrows *q, const float *x);
/* Tasks begin to end - 1; a weft_par_fn. */
void weft_cpu__qrows_multiply(void *qrows, int64_t begin, int64_t end);

#endif
