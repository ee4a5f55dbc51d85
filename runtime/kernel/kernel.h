/* Private to runtime/: the commands of a launch on a GPU at concrete dims, checked, for whoever
 * runs them or only looks whether they could be run. */
#ifndef WEFT_RUNTIME_KERNEL_KERNEL_H
#define WEFT_RUNTIME_KERNEL_KERNEL_H

#include "runtime/driver_int.h"

#define WEFT_COMMAND_NO_REF UINT32_MAX

/* An address: arg[at] of the launch (in, out, scratch), and so many bytes behind. */
typedef struct weft_command_ref {
    uint32_t at; /* WEFT_COMMAND_NO_REF: none */
    uint64_t offset;
} weft_command_ref;

typedef struct weft_command_arg {
    uint8_t kind; /* weft_command_arg_kind: IN, OUT and SCRATCH have a ref */
    weft_command_ref ref;
    int32_t i;
    float f;
} weft_command_arg;

/* weft_bundle_gemm at concrete dims, none of them 0. */
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

typedef struct weft_command {
    uint8_t kind; /* weft_command_kind */
    uint32_t kernel;
    uint32_t grid[3];
    weft_command_arg *arg; /* of a kernel; COPY: to, from; FILL: to */
    uint32_t n_arg;
    weft_command_gemm *gemm;
    uint64_t bytes;
} weft_command;

/* Commands that have something to do; one allocation. */
typedef struct weft_command_list {
    weft_command *at;
    uint32_t n;
    uint32_t n_operand; /* operands and results; arg[n_operand] is scratch memory */
    uint64_t *bytes;    /* of arg[i] */
    uint32_t *align;    /* of its address */
    uint8_t *access;    /* weft_access of arg[i] */
    uint64_t scratch_bytes;
} weft_command_list;

typedef enum weft_access { WEFT_ACCESS_READ = 1, WEFT_ACCESS_WRITE = 2 } weft_access;

/* What kernels may take on a device. */
typedef struct weft_command_limits {
    const char *device;      /* in messages */
    uint32_t arch;           /* index of its machine code in the bundle; n_arch: PTX is used */
    uint32_t shared_bytes;   /* static and dynamic, of a block */
    uint32_t register_count; /* of a block */
} weft_command_limits;

/* Commands of prep->launch. INPUT names what is not sound: indices, sizes, grids, what reaches
 * behind an operand; UNSUP when it has none. free() it. */
WEFT_MUST_USE weft_err weft_command__make_list(const weft_prep *prep, weft_command_list **out);
/* Whether blocks of the kernels fit. */
WEFT_MUST_USE weft_err weft_command__check_limits(const weft_prep *prep,
                                                  const weft_command_list *commands,
                                                  const weft_command_limits *limits);
/* Limits of "sm_90" (base/sm_limits.h); 48 KiB of shared memory, which every GPU has, for a name
 * that is not known. */
weft_command_limits weft_command__limits(const char *arch);

/* Bytes that something reads or writes. */
typedef struct weft_touch {
    uint64_t begin, end;
    uint8_t access; /* weft_access */
} weft_touch;

/* What must be waited for. Item i touches touch[first[i]] .. touch[first[i + 1] - 1]; it gets
 * the items before it edge[edge_first[i]] .. : those that it must follow because one of the two
 * writes bytes that the other reads or writes, without those that follow from other edges. Arrays
 * are the caller's to free. */
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

#endif
