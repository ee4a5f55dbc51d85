/* Packed sequences: the rows of several, of any lengths, one after the other (ops/attention.c).
 * What the reference implementation and kernels share. */
#ifndef WEFT_OPS_PACKED_H
#define WEFT_OPS_PACKED_H

#include "base/tensor.h"

typedef struct weft_packed {
    const int64_t *start; /* ascending, the first is 0; borrowed */
    int64_t n, rows;
} weft_packed;

#define WEFT_PACKED_WRONG "starts are not ascending from 0, or a sequence is longer than the mask"

/* false: the starts do not ascend from 0, or a sequence has over `longest` rows. */
bool weft_packed_read(const weft_tensor *starts, int64_t rows, int64_t longest, weft_packed *out);

static inline int64_t weft_packed_len(const weft_packed *p, int64_t i)
{
    return (i + 1 < p->n ? p->start[i + 1] : p->rows) - p->start[i];
}

/* Where the sequence that begins at start i ends, for operators that give each sequence a row:
 * equal starts are of one sequence, whereas weft_packed_len gives its rows to the last of them. */
static inline int64_t weft_packed_end(const weft_packed *p, int64_t i)
{
    int64_t from = p->start[i];
    while (i < p->n && p->start[i] == from)
        i++;
    return i < p->n ? p->start[i] : p->rows;
}

#endif
