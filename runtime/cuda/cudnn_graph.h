/* Private to runtime/cuda: descriptors of cuDNN and the graphs of operations that plans are made
 * of. */
#ifndef WEFT_RUNTIME_CUDA_CUDNN_GRAPH_H
#define WEFT_RUNTIME_CUDA_CUDNN_GRAPH_H

#include "runtime/cuda/cudnn_plan.h"

enum { WEFT_CUDNN_MADE_MAX = 64 /* descriptors of a plan and of the graph that it is made of */ };

/* Owns all descriptors that were made for it, because cuDNN does not say which of them may be
 * destroyed before it. */
struct weft_cudnn_plan {
    const weft_cudnn_api *dnn;
    weft_cudnn_desc made[WEFT_CUDNN_MADE_MAX];
    uint32_t n_made;
    weft_cudnn_status status; /* of the first call that failed; all calls after it do nothing */
    weft_cudnn_desc desc;     /* one of `made` */
};

/* NULL: no memory. */
weft_cudnn_plan *weft_cudnn__open(const weft_cudnn_api *dnn);
/* Keeps the status of a call; false: the call failed. */
bool weft_cudnn__note(weft_cudnn_plan *p, weft_cudnn_status status);
weft_cudnn_desc weft_cudnn__make(weft_cudnn_plan *p, unsigned type);
void weft_cudnn__set(weft_cudnn_plan *p, weft_cudnn_desc desc, unsigned name, unsigned type,
                     int64_t n, const void *value);
void weft_cudnn__set_desc(weft_cudnn_plan *p, weft_cudnn_desc desc, unsigned name,
                          weft_cudnn_desc value);
void weft_cudnn__finalise(weft_cudnn_plan *p, weft_cudnn_desc desc);
/* Destroys the descriptors from `n` on, and forgets an error. */
void weft_cudnn__back_to(weft_cudnn_plan *p, uint32_t n);

/* The graph of a convolution, of pooling, or of attention. */
weft_cudnn_desc weft_cudnn__graph(weft_cudnn_plan *p, const weft_conv_key *conv);

#endif
