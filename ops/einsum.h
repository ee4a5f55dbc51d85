/* Equations of einsum, read: a label for each dim of the operands and of the result. */
#ifndef WEFT_OPS_EINSUM_H
#define WEFT_OPS_EINSUM_H

#include "ops/ops.h"

enum { WEFT_EINSUM_TERMS_MAX = 16, WEFT_EINSUM_LABELS = 26 * 2 + WEFT_RANK_MAX };

/* Labels of the dims in order. Labels 0-25 are a-z, 26-51 A-Z, then the dims of the ellipsis
 * counted from its end, so that they align as in broadcasting. */
typedef struct weft_einsum_term {
    uint8_t label[WEFT_RANK_MAX];
    uint32_t rank;
} weft_einsum_term;

typedef struct weft_einsum {
    weft_einsum_term in[WEFT_EINSUM_TERMS_MAX], out;
    uint32_t n_in;
    uint32_t ellipsis; /* most dims that an ellipsis stands for */
} weft_einsum;

bool weft_einsum_has(const weft_einsum_term *t, uint32_t label);
/* Reads an equation for operands of these ranks; false: it does not fit them. */
bool weft_einsum_read(const char *text, const uint8_t *rank, uint32_t n_in, weft_einsum *out);

#endif
