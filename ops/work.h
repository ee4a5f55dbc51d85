/* Device-independent work of one operator or kernel at concrete dimensions. */
#ifndef WEFT_OPS_WORK_H
#define WEFT_OPS_WORK_H

typedef struct weft_work {
    double flops;      /* a multiply-add counts 2 */
    double bytes_read; /* activations; each operand counted once */
    double bytes_written;
    double weight_bytes; /* constant operands, not in bytes_read */
} weft_work;

#endif
