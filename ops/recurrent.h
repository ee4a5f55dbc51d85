/* What implementations of recurrent layers share: the attributes of lstm, gru and rnn, and where a
 * row is in their operands and results. Gates are in ONNX order: lstm i o f c, gru z r h. */
#ifndef WEFT_OPS_RECURRENT_H
#define WEFT_OPS_RECURRENT_H

#include "ops/ops.h"

/* Operands; gru and rnn end with H0. The last four are not ONNX's, of lstm with quantize_state: f32
 * and bytes [directions * gates * h]. */
enum {
    WEFT_RNN_X,
    WEFT_RNN_W,
    WEFT_RNN_R,
    WEFT_RNN_BIAS,
    WEFT_RNN_LENS,
    WEFT_RNN_H0,
    WEFT_LSTM_C0,
    WEFT_LSTM_PEEP,
    WEFT_LSTM_W_SCALE,
    WEFT_LSTM_W_ZERO,
    WEFT_LSTM_R_SCALE,
    WEFT_LSTM_R_ZERO,
    WEFT_LSTM_OPERANDS
};

typedef enum weft_rnn_cell {
    WEFT_CELL_RNN = 1,
    WEFT_CELL_GRU = 3,
    WEFT_CELL_LSTM = 4
} weft_rnn_cell; /* value: gates */

typedef enum weft_rnn_fn {
    WEFT_RNN_SIGMOID,
    WEFT_RNN_TANH,
    WEFT_RNN_RELU,
    WEFT_RNN_AFFINE,
    WEFT_RNN_LEAKY,
    WEFT_RNN_THRESHOLDED,
    WEFT_RNN_SCALED_TANH,
    WEFT_RNN_HARD_SIGMOID,
    WEFT_RNN_ELU,
    WEFT_RNN_SOFTSIGN,
    WEFT_RNN_SOFTPLUS,
    WEFT_RNN_FN_COUNT
} weft_rnn_fn;

typedef struct weft_rnn_act {
    weft_rnn_fn fn;
    float alpha, beta;
} weft_rnn_act;

/* Sizes and attributes of a layer. The last states of an empty sequence are 0, whatever its initial
 * ones, as in onnxruntime. */
typedef struct weft_rnn_layer {
    weft_rnn_cell cell;
    int64_t n_step, n_batch, n_in, h, n_dir;
    bool batch_first, input_forget, reset_after; /* reset_after: linear_before_reset */
    bool reverse;                                /* the only direction is backward */
    /* W and R are bytes, each gate row with a scale and a zero point of its own (lstm only). x up
     * to the end of the longest sequence, and before a product with R the states of all sequences,
     * are quantised by their range, as dynamic_quantize_linear does. All this is as in onnxruntime
     * with one thread: with more, it quantises parts of the batch by ranges of their own. */
    bool quantize_state;
    /* quantize_state = 2: sequences that have ended count as 0 in the range of the states, as in
     * onnxruntime if Y is a result; otherwise (1) with their last state. */
    bool ended_is_zero;
    float clip;             /* 0: none */
    weft_rnn_act act[2][3]; /* by direction */
} weft_rnn_layer;

/* false: ranks, number of directions or activations are wrong or not known. x [steps, batch, in] or
 * with layout 1 [batch, steps, in]; r [directions, gates * h, h]. */
bool weft_rnn_layer_read(weft_op_id op, weft_attrs attrs, const weft_tensor *x,
                         const weft_tensor *r, weft_rnn_layer *out);
/* 1 or 2; 0 when unknown. */
uint32_t weft_rnn_directions(weft_attrs attrs, bool *out_reverse);
/* Activations of one direction; each takes the next entries of alpha and beta. */
bool weft_rnn_acts(weft_attrs attrs, weft_rnn_cell cell, uint32_t direction, weft_rnn_act out[3]);
weft_rnn_cell weft_rnn_cell_of(weft_op_id op);
const char *weft_rnn_act_name(weft_rnn_fn fn); /* "hardsigmoid" */
float weft_rnn_activate(const weft_rnn_act *a, float x);

static inline bool weft_rnn_is_reverse(const weft_rnn_layer *n, int64_t direction)
{
    return direction == 1 || n->reverse;
}
/* With quantize_state: whether a sequence of `len` steps counts as 0 in the range of the states
 * before step `at`. */
static inline bool weft_rnn_counts_as_zero(const weft_rnn_layer *n, int64_t len, int64_t at)
{
    return at > len && (n->ended_is_zero || len == 0);
}
/* Rows of x, of the initial and last states, and of y. */
static inline int64_t weft_rnn_x_row(const weft_rnn_layer *n, int64_t t, int64_t b)
{
    return n->batch_first ? b * n->n_step + t : t * n->n_batch + b;
}
static inline int64_t weft_rnn_state_row(const weft_rnn_layer *n, int64_t d, int64_t b)
{
    return n->batch_first ? b * n->n_dir + d : d * n->n_batch + b;
}
static inline int64_t weft_rnn_y_row(const weft_rnn_layer *n, int64_t t, int64_t d, int64_t b)
{
    return n->batch_first ? (b * n->n_step + t) * n->n_dir + d
                          : (t * n->n_dir + d) * n->n_batch + b;
}

#endif
