/* Private to gen.c, gen_steps.c and cg_cuda.c: the structures behind cuda_int.h. */
#ifndef WEFT_CODEGEN_CUDA_GEN_INT_H
#define WEFT_CODEGEN_CUDA_GEN_INT_H

#include "base/hash.h"
#include "base/map.h"
#include "codegen/cuda/cuda_int.h"

enum { WEFT_CUDA_SHARED_MAX = 40 }; /* sizes and numbers; a bundle allows 128 parameters */

typedef struct weft_cuda__kernel_param {
    const char *text; /* "const f32 *__restrict__ x" */
    weft_bundle_arg arg;
} weft_cuda__kernel_param;

struct weft_cuda_kernel {
    weft_cuda *cu;
    const char *stem;
    uint32_t threads, min_blocks;
    bool shares_sizes; /* constants become parameters */
    WEFT_VEC(const char *) include;
    WEFT_VEC(weft_cuda__kernel_param) param;
    WEFT_VEC(weft_dim) symbol; /* dims that have a parameter; the first is "d0" */
    uint32_t n_float;
    weft_buf top, body;
    weft_cuda_kernel *next_open;
};

/* A finished kernel. */
typedef struct weft_cuda__made {
    const char *stem, *key; /* '@' stands for the kernel's name */
    const char *name, *text;
    const char *origin; /* operator and node, for messages */
    uint32_t threads, shared_bytes;
    const char *const *include;
    uint32_t n_include;
    uint32_t next; /* index + 1 of the next kernel with the same hash; 0: none */
} weft_cuda__made;

struct weft_cuda {
    weft_device_code *code;
    const char *const *arch;
    uint32_t n_arch;
    WEFT_VEC(weft_cuda__made) made;
    weft_map *made_by_hash;
    weft_names *names;      /* of finished kernels */
    weft_cuda_kernel *open; /* not launched yet */
    bool out_of_memory;
    /* State of the current node. */
    weft_node node;
    WEFT_VEC(weft_bundle_command) command;
    weft_dim scratch;
};

weft_cuda *weft_cuda__start(weft_device_code *code);
/* Frees memory that the arena does not own. */
void weft_cuda__stop(weft_cuda *cu);
/* Runs an emitter and stores its commands in the launch. */
WEFT_MUST_USE weft_err weft_cuda__emit_node(weft_cuda *cu, weft_node n, weft_cuda_emit_fn emit,
                                            weft_bundle_launch *launch);
/* A module of source text for each kernel. */
weft_cuda_source *weft_cuda__sources(weft_cuda *cu);

#endif
