/* Emits lstm, gru and rnn: a kernel for the products of all inputs with W, and one that goes
 * through the time steps (recurrent.cuh). For layers of bytes, two kernels in front quantise the
 * inputs by their range. */
#include "codegen/cuda/cuda_int.h"
#include "ops/recurrent.h"

enum {
    THREADS = 256,
    STATIC_BYTES = 48 << 10,
    BYTES_MAX = INT32_MAX / (255 * 255) /* products of differences of bytes that a sum takes */
};

typedef struct layer {
    weft_cuda *cu;
    weft_rnn_cell cell;
    weft_dim n_step, n_batch, n_in;
    int64_t h;
    uint32_t n_dir;
    bool reverse, batch_first, reset_after, input_forget;
    bool is_bytes; /* quantize_state */
    bool ended_is_zero, has_lens;
    float clip;
    const char *type;
    weft_dim gates; /* offset of the products in scratch memory */
    /* Of layers of bytes: bytes, scale and zero point of x; states, cells, bytes of states.
     */
    weft_dim x, x_scale, x_zero, states, cells, bytes;
} layer;

/* Shared memory of recurrent_steps: state, cell, sums of the gates, reset state. */
static int64_t shared_bytes(const layer *l)
{
    int64_t cell = l->cell == WEFT_CELL_LSTM ? l->h : 1,
            reset = l->cell == WEFT_CELL_GRU ? l->h : 1;
    return (l->h + cell + (int64_t)l->cell * l->h + reset) * (int64_t)sizeof(float);
}

static weft_err read_layer(weft_cuda *cu, weft_op_id op, layer *l)
{
    const weft_ttype *x = weft_cuda__in_type(cu, 0), *r = weft_cuda__in_type(cu, 2);
    const weft_ttype *len = weft_cuda__in_type(cu, WEFT_RNN_LENS);
    weft_attrs attrs = weft_cuda__attrs(cu);
    *l = (layer){.cu = cu, .cell = weft_rnn_cell_of(op)};
    l->n_dir = weft_rnn_directions(attrs, &l->reverse);
    l->batch_first = weft_attrs_int(attrs, WEFT_ATTR_LAYOUT, 0) != 0;
    l->n_step = x->dim[l->batch_first];
    l->n_batch = x->dim[!l->batch_first];
    l->n_in = x->dim[2];
    l->reset_after = weft_attrs_int(attrs, WEFT_ATTR_LINEAR_BEFORE_RESET, 0) != 0;
    l->input_forget = weft_attrs_int(attrs, WEFT_ATTR_INPUT_FORGET, 0) != 0;
    l->clip = (float)weft_attrs_float(attrs, WEFT_ATTR_CLIP, 0);
    l->type = weft_dtype_name((weft_dtype)x->dtype);
    l->is_bytes = weft_attrs_int(attrs, WEFT_ATTR_QUANTIZE_STATE, 0) != 0;
    l->ended_is_zero = weft_attrs_int(attrs, WEFT_ATTR_QUANTIZE_STATE, 0) == 2;
    l->has_lens = len != NULL;
    if (!weft_dim_is_const(r->dim[2]))
        return weft_cuda__unsup(cu, "only running tells the hidden size");
    l->h = r->dim[2];
    if (l->h > STATIC_BYTES || shared_bytes(l) > STATIC_BYTES)
        return weft_cuda__unsup(cu, "a hidden size of %lld is too large for a block's memory",
                                (long long)l->h);
    if (l->is_bytes && (!weft_dim_is_const(l->n_in) || l->n_in > BYTES_MAX))
        return weft_cuda__unsup(cu, "sums of more than %d products of bytes", BYTES_MAX);
    if (len && len->dtype != WEFT_DTYPE_I32)
        return weft_cuda__unsup(cu, "lengths of type %s", weft_dtype_name((weft_dtype)len->dtype));
    return WEFT_ERR_OK;
}

/* Adds operand i as the parameter `name`; returns "name", or "0" if it is omitted. */
static const char *operand(const layer *l, weft_cuda_kernel *k, const char *name, uint32_t i)
{
    if (i >= weft_node_in_count(weft_cuda__module(l->cu), weft_cuda__node(l->cu)) ||
        !weft_cuda__in_type(l->cu, i))
        return "0";
    weft_cuda__in(k, name, i);
    return name;
}

static const char *result(const layer *l, weft_cuda_kernel *k, const char *name, uint32_t i)
{
    if (!weft_cuda__out_type(l->cu, i))
        return "0";
    weft_cuda__out(k, name, i);
    return name;
}

static void emit_inputs(const layer *l)
{
    weft_cuda_kernel *k = weft_cuda__kernel(l->cu, "recurrent_inputs", THREADS);
    const weft_dim row_of_gates = (int64_t)l->cell * l->h;
    weft_cuda__include(k, "recurrent.cuh");
    weft_cuda__in(k, "x", 0);
    weft_cuda__in(k, "w", 1);
    const char *bias = operand(l, k, "bias", WEFT_RNN_BIAS);
    weft_cuda__scratch(k, "gates", WEFT_DTYPE_F32, l->gates, false);
    weft_buf_printf(weft_cuda__body(k),
                    "    recurrent_inputs<%d, %lld, %s, %s>(x, w, %s, gates, %s);\n", (int)l->cell,
                    (long long)l->h, l->cell == WEFT_CELL_GRU && l->reset_after ? "true" : "false",
                    l->type, bias, weft_cuda__int(k, l->n_in));
    weft_dim rows = weft_cuda__mul(l->cu, l->n_step, l->n_batch);
    weft_cuda__launch(k, rows, weft_cuda__ceil_div(l->cu, row_of_gates, THREADS / 32), l->n_dir, 0);
}

/* Prints `@_acts`: activation k of direction d. */
static weft_err print_acts(const layer *l, weft_cuda_kernel *k)
{
    weft_buf *top = weft_cuda__top(k);
    weft_buf_puts(top,
                  "struct @_acts {\n    __device__ f32 at(int d, int k, f32 x) const\n    {\n");
    for (uint32_t d = 0; d < l->n_dir; d++) {
        weft_rnn_act act[3] = {{0}};
        if (!weft_rnn_acts(weft_cuda__attrs(l->cu), l->cell, d, act))
            return weft_cuda__unsup(l->cu, "an activation is not known");
        for (uint32_t i = 0; i < 3; i++)
            weft_buf_printf(
                top, "        if (d == %u && k == %u)\n            return rnn_%s(x, %s, %s);\n", d,
                i, weft_rnn_act_name(act[i].fn), weft_cuda__f32_text(l->cu, act[i].alpha),
                weft_cuda__f32_text(l->cu, act[i].beta));
    }
    weft_buf_puts(top, "        return x;\n    }\n};\n");
    return WEFT_ERR_OK;
}

/* The members of recurrent_size. */
static const char *size_text(const layer *l, weft_cuda_kernel *k)
{
    const char *steps = weft_cuda__int(k, l->n_step), *batch = weft_cuda__int(k, l->n_batch);
    return weft_arena_printf(weft_cuda__arena(l->cu), "{%s, %s, %u, %s}", steps, batch, l->n_dir,
                             l->batch_first ? "true" : "false");
}

static weft_err emit_steps(const layer *l)
{
    weft_cuda_kernel *k = weft_cuda__kernel(l->cu, "recurrent_steps", THREADS);
    bool is_lstm = l->cell == WEFT_CELL_LSTM;
    weft_cuda__include(k, "recurrent.cuh");
    WEFT_TRY(print_acts(l, k));
    weft_cuda__scratch(k, "gates", WEFT_DTYPE_F32, l->gates, true);
    weft_cuda__in(k, "r", 2);
    const char *bias = operand(l, k, "bias", WEFT_RNN_BIAS),
               *len = operand(l, k, "len", WEFT_RNN_LENS);
    const char *h0 = operand(l, k, "h0", WEFT_RNN_H0),
               *c0 = is_lstm ? operand(l, k, "c0", WEFT_LSTM_C0) : "0";
    const char *peep = is_lstm ? operand(l, k, "peep", WEFT_LSTM_PEEP) : "0";
    const char *y = result(l, k, "y", 0), *y_h = result(l, k, "y_h", 1);
    const char *y_c = is_lstm ? result(l, k, "y_c", 2) : "0";
    weft_buf_printf(
        weft_cuda__body(k),
        "    const recurrent_data<%s> data = {gates, r, %s, %s, %s, %s, %s, %s, %s, %s};\n"
        "    const recurrent_size size = %s;\n"
        "    recurrent_steps<%d, %lld, %s, %s>(data, size, %s, %s, @_acts{});\n",
        l->type, bias, h0, c0, peep, len, y, y_h, y_c, size_text(l, k), (int)l->cell,
        (long long)l->h, l->reset_after ? "true" : "false", l->input_forget ? "true" : "false",
        l->reverse ? "true" : "false", weft_cuda__f32_text(l->cu, l->clip));
    weft_cuda__launch(k, l->n_batch, l->n_dir, 1, 0);
    return WEFT_ERR_OK;
}

/* -- Layers of bytes -------------------------------------------------------------------------- */

/* Neighbours that a thread reads at once of rows of n bytes. */
static int byte_pack(int64_t n)
{
    return n % 4 == 0 ? 4 : 1;
}

/* Adds rows of bytes as parameters; returns the expression that constructs them. */
static const char *byte_rows(const layer *l, weft_cuda_kernel *k, uint32_t in, uint32_t scale)
{
    weft_cuda__in(k, "w", in);
    weft_cuda__in(k, "scale", scale);
    weft_cuda__in(k, "zero", scale + 1);
    const weft_ttype *w = weft_cuda__in_type(l->cu, in);
    return weft_arena_printf(weft_cuda__arena(l->cu), "byte_rows<%s>{w, scale, zero}",
                             weft_dtype_name((weft_dtype)w->dtype));
}

static void reserve_bytes(layer *l)
{
    weft_cuda *cu = l->cu;
    weft_dim states = weft_cuda__mul(cu, l->n_batch, (int64_t)l->n_dir * l->h);
    l->x = weft_cuda__scratch_bytes(cu, weft_cuda__numel(cu, weft_cuda__in_type(cu, 0)));
    l->x_scale = weft_cuda__scratch_bytes(cu, 4);
    l->x_zero = weft_cuda__scratch_bytes(cu, 1);
    l->states = weft_cuda__scratch_bytes(cu, weft_cuda__mul(cu, states, 4));
    l->cells = weft_cuda__scratch_bytes(cu, weft_cuda__mul(cu, states, 4));
    l->bytes = weft_cuda__scratch_bytes(cu, states);
}

static void emit_byte_inputs(const layer *l)
{
    weft_cuda_kernel *k = weft_cuda__kernel(l->cu, "recurrent_byte_inputs", THREADS);
    weft_cuda__include(k, "recurrent.cuh");
    weft_cuda__scratch(k, "x", WEFT_DTYPE_U8, l->x, true);
    weft_cuda__scratch(k, "x_scale", WEFT_DTYPE_F32, l->x_scale, true);
    weft_cuda__scratch(k, "x_zero", WEFT_DTYPE_U8, l->x_zero, true);
    const char *rows = byte_rows(l, k, WEFT_RNN_W, WEFT_LSTM_W_SCALE),
               *bias = operand(l, k, "bias", WEFT_RNN_BIAS);
    weft_cuda__scratch(k, "gates", WEFT_DTYPE_F32, l->gates, false);
    weft_buf_printf(weft_cuda__body(k),
                    "    recurrent_byte_inputs<%lld, %d>(x, x_scale, x_zero, %s, %s, gates, %s);\n",
                    (long long)l->h, byte_pack(l->n_in), rows, bias, weft_cuda__int(k, l->n_in));
    weft_dim lines = weft_cuda__mul(l->cu, l->n_step, l->n_batch);
    weft_cuda__launch(k, lines, weft_cuda__ceil_div(l->cu, WEFT_CELL_LSTM * l->h, THREADS / 32),
                      l->n_dir, 0);
}

static weft_err emit_byte_steps(const layer *l)
{
    weft_cuda_kernel *k = weft_cuda__kernel(l->cu, "recurrent_byte_steps", THREADS);
    weft_cuda__include(k, "recurrent.cuh");
    WEFT_TRY(print_acts(l, k));
    weft_cuda__scratch(k, "gates", WEFT_DTYPE_F32, l->gates, true);
    weft_cuda__scratch(k, "states", WEFT_DTYPE_F32, l->states, false);
    weft_cuda__scratch(k, "cells", WEFT_DTYPE_F32, l->cells, false);
    weft_cuda__scratch(k, "bytes", WEFT_DTYPE_U8, l->bytes, false);
    const char *rows = byte_rows(l, k, WEFT_RNN_R, WEFT_LSTM_R_SCALE),
               *len = operand(l, k, "len", WEFT_RNN_LENS);
    const char *h0 = operand(l, k, "h0", WEFT_RNN_H0), *c0 = operand(l, k, "c0", WEFT_LSTM_C0);
    const char *peep = operand(l, k, "peep", WEFT_LSTM_PEEP), *y = result(l, k, "y", 0);
    const char *y_h = result(l, k, "y_h", 1), *y_c = result(l, k, "y_c", 2);
    weft_buf_printf(
        weft_cuda__body(k),
        "    const recurrent_data<f32> data = {gates, 0, 0, %s, %s, %s, %s, %s, %s, %s};\n"
        "    const recurrent_size size = %s;\n"
        "    recurrent_byte_steps<%d, %lld, %d, %s, %s>(data, %s, recurrent_states{states, cells, "
        "bytes},\n"
        "        size, %s, %s, @_acts{});\n",
        h0, c0, peep, len, y, y_h, y_c, size_text(l, k), THREADS, (long long)l->h, byte_pack(l->h),
        l->input_forget ? "true" : "false", l->ended_is_zero ? "true" : "false", rows,
        l->reverse ? "true" : "false", weft_cuda__f32_text(l->cu, l->clip));
    weft_cuda__launch(k, l->n_dir, 1, 1, 0);
    return WEFT_ERR_OK;
}

weft_err weft_cuda_emit_recurrent(weft_cuda *cu, weft_node n)
{
    layer l;
    WEFT_TRY(read_layer(cu, weft_node_op(weft_cuda__module(cu), n), &l));
    weft_dim rows = weft_cuda__mul(cu, l.n_step, l.n_batch);
    l.gates = weft_cuda__scratch_bytes(
        cu, weft_cuda__mul(cu, rows, (int64_t)l.n_dir * (int64_t)l.cell * l.h * 4));
    if (l.is_bytes) {
        reserve_bytes(&l);
        const weft_bundle_arg to[] = {weft_cuda__at_scratch(l.x), weft_cuda__at_scratch(l.x_scale),
                                      weft_cuda__at_scratch(l.x_zero)};
        weft_cuda__quantize_by_range(cu, to, l.has_lens ? WEFT_RNN_LENS : 0);
        emit_byte_inputs(&l);
        return emit_byte_steps(&l);
    }
    emit_inputs(&l);
    return emit_steps(&l);
}
