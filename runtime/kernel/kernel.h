/* Private to runtime/, door of runtime/kernel: what the kernels of several drivers share. The
 * commands of a launch on a GPU at concrete dims; dependencies between launches; copies between
 * layouts; the reference kernel. Functions here keep no state. */
#ifndef WEFT_RUNTIME_KERNEL_KERNEL_H
#define WEFT_RUNTIME_KERNEL_KERNEL_H

#include "runtime/driver_int.h"

#define WEFT_COMMAND_NO_REF UINT32_MAX

/* The address arg[at] + offset; arg is that of the launch: in, out, scratch. */
typedef struct weft_command_ref {
    uint32_t at; /* WEFT_COMMAND_NO_REF: none */
    uint64_t offset;
} weft_command_ref;

typedef struct weft_command_arg {
    uint8_t kind; /* weft_command_arg_kind; `ref` is valid for IN, OUT and SCRATCH */
    weft_command_ref ref;
    int32_t i;
    float f;
} weft_command_arg;

/* A weft_bundle_gemm at concrete dims, all greater than 0. */
typedef struct weft_command_gemm {
    weft_dtype dtype;
    uint8_t act;
    bool trans_a, trans_b, tf32;
    int64_t m, n, k, batch;
    int64_t lda, ldb, ldc, ldd;
    int64_t stride_a, stride_b, stride_c, stride_d;
    weft_command_ref a, b, c, d, bias;
    float alpha, beta;
} weft_command_gemm;

/* A weft_bundle_conv at concrete dims. */
typedef struct weft_command_conv {
    weft_conv_key key;
    weft_command_ref x, w, y, z, bias;
} weft_command_conv;

typedef struct weft_command {
    uint8_t kind; /* weft_command_kind */
    uint32_t kernel;
    uint32_t grid[3];
    weft_command_arg *arg; /* KERNEL: its arguments; COPY: target, source; FILL: target */
    uint32_t n_arg;
    weft_command_gemm *gemm;
    weft_command_conv *conv;
    uint64_t bytes;
} weft_command;

/* The commands of a launch that are not empty; one allocation. */
typedef struct weft_command_list {
    weft_command *at;
    uint32_t n;
    uint32_t n_operand; /* operands plus results; arg[n_operand] is scratch memory */
    uint64_t *bytes;    /* size of arg[i] */
    uint32_t *align;    /* alignment of arg[i] */
    uint8_t *access;    /* weft_access of arg[i] */
    uint64_t scratch_bytes;
} weft_command_list;

typedef enum weft_access { WEFT_ACCESS_READ = 1, WEFT_ACCESS_WRITE = 2 } weft_access;

/* Limits of a device for the kernels of a bundle. */
typedef struct weft_command_limits {
    const char *device;      /* in messages */
    uint32_t arch;           /* index of its architecture in the bundle; n_arch: PTX is used */
    uint32_t shared_bytes;   /* per block, static and dynamic */
    uint32_t register_count; /* per block */
} weft_command_limits;

/* Evaluates the commands of prep->launch; the caller frees *out. INPUT with a message for a command
 * that is not valid: an index, a size, a grid, an access past the end of an operand. UNSUP when the
 * launch has no commands. */
WEFT_MUST_USE weft_err weft_command__make_list(const weft_prep *prep, weft_command_list **out);
/* UNSUP when a block of a kernel exceeds the limits. */
WEFT_MUST_USE weft_err weft_command__check_limits(const weft_prep *prep,
                                                  const weft_command_list *commands,
                                                  const weft_command_limits *limits);
/* Limits of an architecture such as "sm_90" (base/sm_limits.h). For an unknown name: 48 KiB of
 * shared memory, which every GPU has. */
weft_command_limits weft_command__limits(const char *arch);

/* A range of memory that an item reads or writes. */
typedef struct weft_touch {
    uint64_t begin, end;
    uint8_t access; /* weft_access */
} weft_touch;

/* Dependencies between items. Item i accesses touch[first[i]] .. touch[first[i + 1] - 1]; its
 * predecessors are edge[edge_first[i]] .. edge[edge_first[i + 1] - 1]. An item depends on an
 * earlier one if one of the two writes bytes that the other reads or writes; edges implied by
 * others are left out. The caller frees both arrays. */
WEFT_MUST_USE weft_err weft_hazard__edges(const weft_touch *touch, const uint32_t *first,
                                          uint32_t n, uint32_t **out_edge,
                                          uint32_t **out_edge_first);

/* Copies n elements of `size` bytes (1, 2, 4 or 8); strides in elements. */
void weft_relayout__line(char *dst, int64_t dst_stride, const char *src, int64_t src_stride,
                         int64_t n, size_t size);
/* Copies a tensor of rank >= 2 from one layout to another; padding becomes zero. */
void weft_relayout__tensor(void *dst, weft_layout to, const void *src, weft_layout from,
                           const int64_t *dim, int32_t rank, size_t size);

/* The reference implementation of the operator (weft_op_eval) as a kernel on the host. Operands in
 * a blocked layout are copied to plain ones in scratch memory. UNSUP when there is none. */
WEFT_MUST_USE weft_err weft_ref__prepare(weft_prep *prep);

/* Flops and bytes of a launch at its sizes. */
WEFT_MUST_USE weft_err weft_prep__work(const weft_prep *p, weft_work *out);

#endif
