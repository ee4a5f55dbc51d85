/* Private to runtime/: plans of cuDNN for convolutions, pooling and attention. A plan is an engine
 * of the library with its settings, for one of them on one kind of device. Choosing one needs no
 * GPU: a device is described by a text of its properties. */
#ifndef WEFT_RUNTIME_CUDA_CUDNN_PLAN_H
#define WEFT_RUNTIME_CUDA_CUDNN_PLAN_H

#include "base/sm_limits.h"
#include "ir/bundle.h"
#include "runtime/cuda/cuda_load.h"

/* A device for which plans are made; finished by weft_cudnn__forget. */
typedef struct weft_cudnn_device {
    const weft_libcudnn *lib;
    weft_cudnn_desc desc;
    int32_t sm_target; /* multiprocessors that a convolution gets; 0: all */
    char why[256];     /* why the last plan could not be had, as the library says it */
} weft_cudnn_device;

/* The device of a handle. false: see `why`. */
WEFT_MUST_USE bool weft_cudnn__see(weft_cudnn_device *d, const weft_libcudnn *lib,
                                   weft_cudnn_handle handle);
/* A device with these properties, which need not be here. */
WEFT_MUST_USE bool weft_cudnn__imagine(weft_cudnn_device *d, const weft_libcudnn *lib,
                                       const weft_sm_limits *sm, uint32_t sms, uint64_t mem_bytes);
void weft_cudnn__forget(weft_cudnn_device *d);

typedef struct weft_cudnn_plan weft_cudnn_plan;

/* The best plan by the library's heuristics that gives the same result in each run, keeps NaN and
 * infinities in their places, rounds no more than the convolution allows, and, of convolutions, is
 * ready without compiling; for others the library needs a driver. NULL: there is none (`why`), or
 * no memory. */
weft_cudnn_plan *weft_cudnn__choose(weft_cudnn_device *d, const weft_conv_key *conv);
/* A plan from its text; NULL: this library or device does not take it. The text must be of this
 * version: cuDNN crashes on a wrong one. */
weft_cudnn_plan *weft_cudnn__restore(weft_cudnn_device *d, const char *json);
/* Owned text; NULL: none, or no memory. */
char *weft_cudnn__text(const weft_cudnn_plan *plan);
uint64_t weft_cudnn__workspace(const weft_cudnn_plan *plan);
void weft_cudnn__drop(weft_cudnn_plan *plan);

/* Addresses of the tensors of a convolution, in the order of a command's: of attention queries,
 * keys, result, values and mask. */
enum {
    WEFT_CUDNN_X,
    WEFT_CUDNN_W,
    WEFT_CUDNN_Y,
    WEFT_CUDNN_Z,
    WEFT_CUDNN_BIAS,
    WEFT_CUDNN_SCALE, /* of attention */
    WEFT_CUDNN_TENSORS
};
/* Addresses of all tensors are multiples of this. */
enum { WEFT_CUDNN_ALIGN = 16 };

/* Whether this version reads the scale of such an attention from host memory. */
bool weft_cudnn__takes_scale(size_t version, uint32_t flags);

/* Enqueues the convolution on the handle's stream. NULL: it has no such tensor. */
weft_cudnn_status weft_cudnn__run(const weft_cudnn_plan *plan, weft_cudnn_handle handle,
                                  void *const at[WEFT_CUDNN_TENSORS], void *workspace);

#endif
