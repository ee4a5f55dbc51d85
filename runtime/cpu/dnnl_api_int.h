/* What dnnl_api.c needs of a version of oneDNN; defined by dnnl_v2.c and dnnl_v3.c. Only these
 * three files call oneDNN. */
#ifndef WEFT_RUNTIME_CPU_DNNL_API_INT_H
#define WEFT_RUNTIME_CPU_DNNL_API_INT_H

#include "runtime/cpu/cpu_memory.h"
#include "runtime/cpu/dnnl_api.h"

#include <oneapi/dnnl/dnnl.h>

/* Whether the call succeeded; notes lack of memory. */
static inline bool weft_dnnl__done(dnnl_status_t status)
{
    if (status == dnnl_out_of_memory)
        weft_cpu__note_lack();
    return status == dnnl_success;
}

/* The library's descriptors of memory; NULL: failed. */
void *weft_dnnl__desc_by_tag(int rank, const int64_t *dim, dnnl_data_type_t type,
                             dnnl_format_tag_t tag);
void *weft_dnnl__desc_by_strides(int rank, const int64_t *dim, dnnl_data_type_t type,
                                 const int64_t *stride);
void *weft_dnnl__desc_part(const void *whole, const int64_t *dim, const int64_t *offset);
void *weft_dnnl__desc_copy(const void *desc);
void weft_dnnl__desc_destroy(void *desc);
/* Sets the fields of md by md->desc. */
bool weft_dnnl__desc_read(weft_dnnl_md *md);

bool weft_dnnl__append_eltwise(dnnl_post_ops_t ops, const weft_dnnl_post *post);
bool weft_dnnl__append_sum(dnnl_post_ops_t ops, const weft_dnnl_post *post);

/* Rewrites quantisation that the library cannot express by other attributes. */
bool weft_dnnl__lower_quant(weft_dnnl_attr *a);

/* What the scales of a primitive vary along. */
typedef struct weft_dnnl_masks {
    int result;  /* the channel of the result */
    int weights; /* the channel of the weights */
} weft_dnnl_masks;

/* Sets scales and zero points of a lowered quantisation. */
bool weft_dnnl__set_quant(dnnl_primitive_attr_t attr, const weft_dnnl_quant *q,
                          weft_dnnl_masks masks);

/* A primitive to be described; only the fields of its kind are set, and what is absent is NULL. */
typedef struct weft_dnnl_op {
    dnnl_primitive_kind_t kind;
    dnnl_alg_kind_t alg;
    const weft_dnnl_window *window;
    const void *x, *w, *bias, *y; /* the library's descriptors of memory */
    int tile;                     /* convolutions: see weft_dnnl__conv */
} weft_dnnl_op;

dnnl_status_t weft_dnnl__describe(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                  const weft_dnnl_op *op, dnnl_primitive_attr_t attr);

#endif
