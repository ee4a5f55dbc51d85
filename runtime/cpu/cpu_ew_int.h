/* Private to cpu_ew*.c and kernels that run element-wise programs on parts of their results: a
 * prepared program. */
#ifndef WEFT_RUNTIME_CPU_CPU_EW_INT_H
#define WEFT_RUNTIME_CPU_CPU_EW_INT_H

#include "runtime/cpu/cpu_int.h"

enum { EW_BLOCK = 1024, EW_BUFFERS = 24, EW_OPERANDS = 16, EW_DIMS = WEFT_RANK_MAX + 1 };
enum { EW_NUMBERS = WEFT_STEPS_MAX * WEFT_STEP_ARGS_MAX };

typedef struct ew_operand {
    uint32_t arg;
    uint8_t dtype;
    bool flat;   /* same layout and dims as the result */
    bool single; /* one element */
    int64_t stride[EW_DIMS];
    float *own; /* constant, expanded at preparation; NULL: none */
} ew_operand;

/* EW_SCALAR: one float, for steps of weft_cpu_vec.step_by. */
typedef enum ew_source { EW_OPERAND, EW_BUFFER, EW_NUMBER, EW_SCALAR } ew_source;

typedef struct ew_step {
    weft_vec_step fn;
    uint32_t n_args;
    ew_source from[WEFT_STEP_ARGS_MAX];
    uint32_t idx[WEFT_STEP_ARGS_MAX];
    uint32_t dst; /* buffer, or EW_BUFFERS: the result */
} ew_step;

struct weft_cpu_ew {
    const weft_cpu_vec *vec;
    uint32_t threads, out_arg;
    uint8_t out_dtype;
    int64_t dim[EW_DIMS]; /* loops over the result's memory, merged */
    int32_t rank;
    int64_t n, unit, block, block_per_unit;
    uint32_t n_operand, n_step, n_number, n_buffer;
    ew_operand operand[EW_OPERANDS];
    ew_step step[WEFT_STEPS_MAX];
    float number[EW_NUMBERS];
    float scalar[WEFT_STEPS_MAX][WEFT_STEP_ARGS_MAX]; /* by step and argument */
    /* Does the last step, which quantises: weft_cpu_vec.quantize or quantize_sum; or NULL. */
    void (*quantize)(uint8_t *y, const float *x, float scale, float zero, float lo, float hi,
                     size_t n);
    float lo, hi; /* limits of its result */
    /* The result is a function of a byte: of what the last step quantised, or, without steps, of
     * operand 0. One entry for each byte. */
    bool maps;
    uint8_t byte_of[256];
    float float_of[256];
    weft_cpu_lanes lanes; /* of the result */
    double cost_ns;
    /* Set when the program is one x * scale + shift per channel. */
    void (*affine)(float *y, const float *x, const float *scale, const float *shift, size_t n);
    void *const *arg; /* arguments of the current run */
};

/* What one thread needs to run a program. */
typedef struct weft_ew_part {
    float buffer[EW_BUFFERS][EW_BLOCK];
    /* Contents of each operand's buffer: the address it was expanded from (NULL: empty), and the
     * number of elements. */
    const void *held[EW_OPERANDS];
    int64_t held_n[EW_OPERANDS];
    const float *at[EW_OPERANDS];
} weft_ew_part;

void weft_ew__part_init(const weft_cpu_ew *ew, weft_ew_part *part);
/* Runs the program, whose `arg` is set, for elements [from, from + n) of the result's memory; both
 * are multiples of the innermost loop's length where that is shorter than a block of channels. */
void weft_ew__run_range(const weft_cpu_ew *ew, weft_ew_part *part, int64_t from, int64_t n);

/* Element i as f32; bool as 0 or 1. */
float weft_ew__element(const void *p, uint8_t dtype, int64_t i);

#endif
