/* Private to cpu_dnnl_q*.c: products of bytes by oneDNN. */
#ifndef WEFT_RUNTIME_CPU_CPU_DNNL_QPRODUCT_INT_H
#define WEFT_RUNTIME_CPU_CPU_DNNL_QPRODUCT_INT_H

#include "runtime/cpu/cpu_dnnl_int.h"

/* Scales, zero points, bias and epilogue of a qlinear product. */
typedef struct qproduct {
    weft_dnnl_scope scope;
    int64_t cols;
    bool at_run;    /* scale and zero point of operand a are known at the run only */
    float *scale;   /* of b, one or one a column; owned */
    float *bias;    /* as the primitive expects it; NULL: none; owned */
    bool adds_bias; /* the bias is a step of the epilogue */
    dnnl_epilogue epilogue;
    const weft_dnnl_md *bias_md;
} qproduct;

/* Whether oneDNN multiplies bytes exactly on this CPU: without VNNI, sums of two products saturate
 * at 16 bits. */
bool weft_qproduct__is_exact(void);
/* Reads the operands of p; `bias_rank`: of the descriptor of the bias, whose columns are on
 * `bias_axis`. false: not supported. */
bool weft_qproduct__read(weft_prep *p, qproduct *q, int64_t cols, int bias_rank, int bias_axis);
/* Reads the epilogue into q->epilogue, with the quantisation. `collapsed`: weft_dnnl__epilogue. */
weft_err weft_qproduct__epilogue(weft_prep *p, qproduct *q, bool collapsed);
/* Binds the bias, the epilogue and the quantisation, and sets the kernel of p to k, which is taken;
 * scratch memory from `offset` on holds what is converted at the run. */
weft_err weft_qproduct__finish(weft_prep *p, qproduct *q, dnnl_kernel *k, dnnl_call *s,
                               const weft_dnnl_pd *pd);
void weft_qproduct__destroy(qproduct *q);

#endif
