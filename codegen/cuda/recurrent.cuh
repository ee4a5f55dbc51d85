/* Recurrent layers: lstm, gru, rnn. Gates are in ONNX order: lstm i o f c, gru z r h.
 *
 * recurrent_inputs multiplies all time steps by W, a warp for each gate and row. recurrent_steps has a
 * block for each sequence and direction, which goes through the time steps with the state in shared
 * memory; a warp computes the product of the state with a row of R. Every step reads R again, from L2:
 * meant for layers of some hundred units, where a launch for each step would take longer.
 *
 * Layers of bytes (lstm with quantize_state) quantise the inputs by their range, and before every time
 * step the states of all sequences by theirs. Therefore a block has all sequences of a direction.
 * ops/recurrent.h says what sequences that have ended count as. */
#ifndef WEFT_RECURRENT_CUH
#define WEFT_RECURRENT_CUH
#include "quant.cuh"

enum { CELL_RNN = 1, CELL_GRU = 3, CELL_LSTM = 4 }; /* value: gates */

/* -- Activations ------------------------------------------------------------------------------- */

__device__ inline f32 rnn_sigmoid(f32 x, f32, f32) { return 1 / (1 + expf(-x)); }
__device__ inline f32 rnn_tanh(f32 x, f32, f32) { return tanhf(x); }
__device__ inline f32 rnn_relu(f32 x, f32, f32) { return x < 0 ? 0 : x; }
__device__ inline f32 rnn_affine(f32 x, f32 p, f32 q) { return p * x + q; }
__device__ inline f32 rnn_leakyrelu(f32 x, f32 p, f32) { return x >= 0 ? x : p * x; }
__device__ inline f32 rnn_thresholdedrelu(f32 x, f32 p, f32) { return x > p ? x : 0; }
__device__ inline f32 rnn_scaledtanh(f32 x, f32 p, f32 q) { return p * tanhf(q * x); }
__device__ inline f32 rnn_hardsigmoid(f32 x, f32 p, f32 q)
{
    x = p * x + q;
    return x < 0 ? 0 : x > 1 ? 1 : x;
}
__device__ inline f32 rnn_elu(f32 x, f32 p, f32) { return x >= 0 ? x : p * (expf(x) - 1); }
__device__ inline f32 rnn_softsign(f32 x, f32, f32) { return x / (1 + (x < 0 ? -x : x)); }
__device__ inline f32 rnn_softplus(f32 x, f32, f32) { return x > 20 ? x : log1pf(expf(x)); }

/* -- Sizes and rows ---------------------------------------------------------------------------- */

struct recurrent_size {
    int n_step, n_batch, n_dir;
    bool batch_first;

    __device__ size_t x_row(int t, int b) const
    {
        return batch_first ? (size_t)b * n_step + t : (size_t)t * n_batch + b;
    }
    __device__ size_t state_row(int d, int b) const
    {
        return batch_first ? (size_t)b * n_dir + d : (size_t)d * n_batch + b;
    }
    __device__ size_t y_row(int t, int d, int b) const
    {
        return batch_first ? ((size_t)b * n_step + t) * n_dir + d
                           : ((size_t)t * n_dir + d) * n_batch + b;
    }
};

/* The sum over k of a[k] * b[k], by the 32 threads of a warp; all of them get it. */
template <class A, class B> __device__ inline f32 warp_dot(const A *a, const B *b, int n)
{
    f32 sum = 0;
    for (int k = threadIdx.x % 32; k < n; k += 32)
        sum += convert<f32>(a[k]) * convert<f32>(b[k]);
    return warp_reduce<op_sum>(sum);
}

/* -- Inputs ------------------------------------------------------------------------------------ */

/* gates[(row * n_dir + direction) * CELL * H + gate] = w[direction, gate] . x[row] + biases. A bias of
 * R that is multiplied by the reset gate (APART) is left out. Blocks: x, rows; y, groups of gates;
 * z, directions. */
template <int CELL, int H, bool APART, class T>
__device__ inline void recurrent_inputs(const T *x, const T *w, const T *bias, f32 *gates, int n_in)
{
    const int row_of_gates = CELL * H, d = blockIdx.z, n_dir = gridDim.z;
    const int j = blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32;
    if (j >= row_of_gates)
        return; /* a whole warp */
    const size_t row = blockIdx.x;
    f32 sum = warp_dot(w + ((size_t)d * row_of_gates + j) * n_in, x + row * n_in, n_in);
    if (bias) {
        const T *own = bias + (size_t)d * 2 * row_of_gates;
        sum += convert<f32>(own[j]);
        if (!(APART && j >= 2 * H))
            sum += convert<f32>(own[row_of_gates + j]);
    }
    if (threadIdx.x % 32 == 0)
        gates[(row * n_dir + d) * row_of_gates + j] = sum;
}

/* The sum over k of (x[k] - x_zero) * (w[k] - w_zero), by the 32 threads of a warp, which read N
 * neighbours each. N divides n. */
template <int N, class W> __device__ inline int warp_dot_bytes(const u8 *x, int x_zero, const W *w, int w_zero, int n)
{
    int sum = 0;
    for (int k = threadIdx.x % 32 * N; k < n; k += 32 * N) {
        int a[N] = {}, b[N] = {};
        load_pack<N>(a, x, k, N);
        load_pack<N>(b, w, k, N);
#pragma unroll
        for (int i = 0; i < N; i++)
            sum += (a[i] - x_zero) * (b[i] - w_zero);
    }
    return warp_reduce<op_sum>(sum);
}

/* Weights of bytes, with a scale and a zero point for each row. */
template <class W> struct byte_rows {
    const W *w;
    const f32 *scale;
    const W *zero;

    __device__ byte_rows from(size_t row, int n) const
    {
        return byte_rows{w + row * n, scale + row, zero + row};
    }
    /* Row j times x, by a warp. */
    template <int N> __device__ f32 times(const u8 *x, f32 x_scale, int x_zero, int j, int n) const
    {
        return x_scale * scale[j] * (f32)warp_dot_bytes<N>(x, x_zero, w + (size_t)j * n, (int)zero[j], n);
    }
};

/* recurrent_inputs of an lstm of bytes. N divides n_in. */
template <int H, int N, class W>
__device__ inline void recurrent_byte_inputs(const u8 *x, const f32 *x_scale, const u8 *x_zero,
                                             const byte_rows<W> w, const f32 *bias, f32 *gates, int n_in)
{
    const int row_of_gates = CELL_LSTM * H, d = blockIdx.z, n_dir = gridDim.z;
    const int j = blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32;
    if (j >= row_of_gates)
        return; /* a whole warp */
    const size_t row = blockIdx.x, first = (size_t)d * row_of_gates;
    f32 sum = w.from(first, n_in).template times<N>(x + row * n_in, *x_scale, *x_zero, j, n_in);
    if (bias)
        sum += bias[2 * first + j] + bias[2 * first + row_of_gates + j];
    if (threadIdx.x % 32 == 0)
        gates[(row * n_dir + d) * row_of_gates + j] = sum;
}

/* -- Time steps -------------------------------------------------------------------------------- */

/* Operands; NULL: omitted. */
template <class T> struct recurrent_data {
    const f32 *gates;
    const T *r, *bias, *h0, *c0, *peep;
    const i32 *len;
    T *y, *y_h, *y_c;
};

/* part[j] = r[j] . state for gates j of [from, to), by all warps of the block. */
template <int H, class T>
__device__ inline void multiply_state(const T *r, const f32 *state, f32 *part, int from, int to)
{
    for (int j = from + (int)threadIdx.x / 32; j < to; j += blockDim.x / 32) {
        f32 sum = warp_dot(r + (size_t)j * H, state, H);
        if (threadIdx.x % 32 == 0)
            part[j] = sum;
    }
    __syncthreads();
}

/* Unit j of an lstm: g, what x contributes to the gates; part, what the state does; c, the cell state,
 * which is updated. act(k, x) clips before activation k, last(x) is the activation of the output, which
 * is not clipped, as in onnxruntime. Returns the new state. */
template <int H, bool INPUT_FORGET, class T, class Act, class Last>
__device__ inline f32 lstm_unit(const f32 *g, const f32 *part, const T *peep, int j, f32 &c, Act act,
                                Last last)
{
    f32 i = act(0, g[j] + part[j] + (peep ? convert<f32>(peep[j]) * c : 0));
    f32 f = INPUT_FORGET ? 1 - i
                         : act(0, g[2 * H + j] + part[2 * H + j] +
                                      (peep ? convert<f32>(peep[2 * H + j]) * c : 0));
    c = f * c + i * act(1, g[3 * H + j] + part[3 * H + j]);
    return act(0, g[H + j] + part[H + j] + (peep ? convert<f32>(peep[H + j]) * c : 0)) * last(c);
}

__device__ inline f32 clipped(f32 x, f32 most)
{
    return most <= 0 ? x : x < -most ? -most : x > most ? most : x;
}

__device__ inline int length_of(const i32 *len, int b, int n_step)
{
    return !len || len[b] > n_step ? n_step : len[b] < 0 ? 0 : len[b];
}

/* Activations: acts.at(k, x), of this block's direction. Blocks: x, sequences; y, directions. */
template <int CELL, int H, bool RESET_AFTER, bool INPUT_FORGET, class T, class Acts>
__device__ inline void recurrent_steps(const recurrent_data<T> v, const recurrent_size n,
                                       bool reverse, f32 most, Acts acts)
{
    __shared__ f32 h[H], c[CELL == CELL_LSTM ? H : 1], part[CELL * H], turned[CELL == CELL_GRU ? H : 1];
    const int b = blockIdx.x, d = blockIdx.y;
    const T *r = v.r + (size_t)d * CELL * H * H;
    const T *peep = v.peep ? v.peep + (size_t)d * 3 * H : 0;
    const T *bias = v.bias ? v.bias + ((size_t)d * 2 * CELL + CELL + 2) * H : 0; /* of R, gate h */
    const int len = length_of(v.len, b, n.n_step);
    const size_t state = n.state_row(d, b) * H;
    auto act = [&](int k, f32 x) { return acts.at(d, k, clipped(x, most)); };
    auto last = [&](f32 x) { return acts.at(d, 2, x); };
    for (int j = threadIdx.x; j < H; j += blockDim.x) {
        h[j] = v.h0 ? convert<f32>(v.h0[state + j]) : 0;
        if (CELL == CELL_LSTM)
            c[j] = v.c0 ? convert<f32>(v.c0[state + j]) : 0;
    }
    __syncthreads();
    for (int at = 0; at < len; at++) {
        const int t = reverse || d == 1 ? len - 1 - at : at;
        const f32 *g = v.gates + (n.x_row(t, b) * n.n_dir + d) * CELL * H;
        multiply_state<H>(r, h, part, 0, CELL == CELL_GRU && !RESET_AFTER ? 2 * H : CELL * H);
        if (CELL == CELL_GRU && !RESET_AFTER) {
            for (int j = threadIdx.x; j < H; j += blockDim.x)
                turned[j] = act(0, g[H + j] + part[H + j]) * h[j];
            __syncthreads();
            multiply_state<H>(r, turned, part, 2 * H, 3 * H);
        }
        for (int j = threadIdx.x; j < H; j += blockDim.x) {
            f32 next;
            if (CELL == CELL_LSTM) {
                next = lstm_unit<H, INPUT_FORGET>(g, part, peep, j, c[j], act, last);
            } else if (CELL == CELL_GRU) {
                f32 z = act(0, g[j] + part[j]), hidden = part[2 * H + j];
                if (RESET_AFTER)
                    hidden = act(0, g[H + j] + part[H + j]) *
                             (hidden + (bias ? convert<f32>(bias[j]) : 0));
                next = (1 - z) * act(1, g[2 * H + j] + hidden) + z * h[j];
            } else {
                next = act(0, g[j] + part[j]);
            }
            h[j] = next;
            if (v.y)
                v.y[n.y_row(t, d, b) * H + j] = convert<T>(next);
        }
        __syncthreads();
    }
    for (int j = threadIdx.x; j < H; j += blockDim.x) {
        for (int t = len; v.y && t < n.n_step; t++)
            v.y[n.y_row(t, d, b) * H + j] = convert<T>(0.0f);
        if (v.y_h)
            v.y_h[state + j] = convert<T>(len ? h[j] : 0);
        if (CELL == CELL_LSTM && v.y_c)
            v.y_c[state + j] = convert<T>(len ? c[j] : 0);
    }
}

/* Elements of x up to the end of the longest sequence. */
__device__ inline size_t used_inputs(const i32 *len, int n_step, int n_batch, int n_in)
{
    int most = 0;
    for (int b = 0; b < n_batch; b++) {
        const int own = length_of(len, b, n_step);
        most = own > most ? own : most;
    }
    return (size_t)most * n_batch * n_in;
}

/* What recurrent_byte_steps needs beside its operands, in memory: states and cell states of all sequences
 * of all directions, and the states as bytes. */
struct recurrent_states {
    f32 *h, *c;
    u8 *bytes;
};

/* recurrent_steps of an lstm of bytes: x and r are not in `v`. Blocks: x, directions. N divides H. */
template <int THREADS, int H, int N, bool INPUT_FORGET, bool ENDED_IS_ZERO, class W, class Acts>
__device__ inline void recurrent_byte_steps(const recurrent_data<f32> v, const byte_rows<W> all_r,
                                            const recurrent_states of, const recurrent_size n,
                                            bool reverse, f32 most, Acts acts)
{
    __shared__ f32 part[CELL_LSTM * H];
    const int d = blockIdx.x;
    const size_t units = (size_t)n.n_batch * H, own = d * units;
    const byte_rows<W> r = all_r.from((size_t)d * CELL_LSTM * H, H);
    const f32 *peep = v.peep ? v.peep + (size_t)d * 3 * H : 0;
    f32 *h = of.h + own, *c = of.c + own;
    u8 *bytes = of.bytes + own;
    auto act = [&](int k, f32 x) { return acts.at(d, k, clipped(x, most)); };
    auto last = [&](f32 x) { return acts.at(d, 2, x); };
    for (size_t i = threadIdx.x; i < units; i += THREADS) {
        const size_t at = n.state_row(d, (int)(i / H)) * H + i % H;
        h[i] = v.h0 ? v.h0[at] : 0;
        c[i] = v.c0 ? v.c0[at] : 0;
    }
    for (int at = 0; at < n.n_step; at++) {
        f32 lo = 0, hi = 0, step;
        __syncthreads();
        for (size_t i = threadIdx.x; i < units; i += THREADS) {
            const int len = length_of(v.len, (int)(i / H), n.n_step);
            const f32 x = at > len && (ENDED_IS_ZERO || len == 0) ? 0 : h[i];
            lo = lesser::of(lo, x);
            hi = greater::of(hi, x);
        }
        lo = block_reduce<THREADS, lesser>(lo);
        hi = block_reduce<THREADS, greater>(hi);
        const u8 zero = scale_of_range(lo, hi, &step);
        for (size_t i = threadIdx.x; i < units; i += THREADS)
            bytes[i] = quantized<u8>(h[i], step, (f32)zero);
        __syncthreads();
        for (int b = 0; b < n.n_batch; b++) {
            const int len = length_of(v.len, b, n.n_step);
            if (at >= len)
                continue; /* all threads */
            for (int j = (int)threadIdx.x / 32; j < CELL_LSTM * H; j += THREADS / 32) {
                f32 sum = r.template times<N>(bytes + (size_t)b * H, step, zero, j, H);
                if (threadIdx.x % 32 == 0)
                    part[j] = sum;
            }
            __syncthreads();
            const int t = reverse || d == 1 ? len - 1 - at : at;
            const f32 *g = v.gates + (n.x_row(t, b) * n.n_dir + d) * CELL_LSTM * H;
            for (int j = threadIdx.x; j < H; j += THREADS) {
                const size_t i = (size_t)b * H + j;
                h[i] = lstm_unit<H, INPUT_FORGET>(g, part, peep, j, c[i], act, last);
                if (v.y)
                    v.y[n.y_row(t, d, b) * H + j] = h[i];
            }
            __syncthreads();
        }
    }
    __syncthreads();
    for (size_t i = threadIdx.x; i < units; i += THREADS) {
        const int b = (int)(i / H);
        const size_t at = n.state_row(d, b) * H + i % H;
        const int len = length_of(v.len, b, n.n_step);
        for (int t = len; v.y && t < n.n_step; t++)
            v.y[n.y_row(t, d, b) * H + i % H] = 0;
        if (v.y_h)
            v.y_h[at] = len ? h[i] : 0;
        if (v.y_c)
            v.y_c[at] = len ? c[i] : 0;
    }
}

#endif
