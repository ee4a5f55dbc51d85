/* Recurrent layers: lstm, gru, rnn.
 *
 * The product of all inputs with W is one GEMM before the loop over time steps. In a time step, the
 * states of a block of sequences are multiplied by R, and the cell is computed by vector loops over
 * gates. Directions and blocks of sequences are independent of each other and run in parallel; a
 * block runs all its time steps on one thread. A single block shares out the product with R.
 *
 * With quantize_state W and R are bytes (cpu_qrows.h). */
#include "runtime/cpu/cpu_memory.h"
#include "runtime/cpu/cpu_qrows.h"

#include "base/num.h"
#include "ops/recurrent.h"

#include <math.h>
#include <stdio.h>

enum { IN_FLOATS = WEFT_LSTM_W_SCALE }; /* operands that all layers may have */
/* Results. */
enum { OUT_Y, OUT_H, OUT_C, OUT_COUNT };

/* Roughly, nanoseconds of one multiplication in the product with R. */
static const double multiply_ns = 0.03, byte_ns = 0.01;
/* Sequences of a block at most: R is read once a block and time step. */
enum { ROWS_MAX = 32 };

typedef struct rnn_kernel {
    weft_rnn_layer n;
    weft_engine *engine;
    const weft_cpu_vec *vec;
    uint32_t threads, n_in, n_out;
    bool in[WEFT_LSTM_OPERANDS], out[OUT_COUNT]; /* which are present */
    bool long_lens;                              /* lengths are int64 */
    int64_t m;                                   /* h rounded up to WEFT_VEC_PANEL */
    weft_cpu_pack *r;                            /* [directions * gates][m / 32][h][32] */
    weft_cpu_pack *bytes[2];                     /* W and R of bytes; then `r` is NULL */
    /* The product with W: args x, w, gates, scratch. */
    weft_kernel_fn run_product;
    void *product;
    void (*destroy_product)(void *state);
    int64_t rows, blocks;                /* sequences of a block; blocks of a direction */
    uint64_t gates_at, bias_at, work_at; /* offsets in the scratch memory */
    uint64_t work_floats;                /* of one block */
    void *const *arg;                    /* of the current run */
    char variant[80];
} rnn_kernel;

/* One block of one direction. */
typedef struct rnn_block {
    const rnn_kernel *k;
    int64_t d, first, rows;
    const float *r;       /* R of this direction, packed */
    const float *bias;    /* sum of both biases, or NULL */
    const float *bias_rh; /* R's bias of gate h with reset_after, or NULL */
    const float *peep;    /* NULL: none */
    float *h, *c, *reset; /* [rows, h] */
    float *g;             /* sums of gates: [rows, gates, m] */
} rnn_block;

static const void *operand(const rnn_kernel *k, uint32_t i)
{
    return k->in[i] ? k->arg[i] : NULL;
}

static void *result(const rnn_kernel *k, uint32_t o)
{
    return k->out[o] ? k->arg[k->n_in + o] : NULL;
}

static char *scratch(const rnn_kernel *k)
{
    return k->arg[k->n_in + k->n_out];
}

static int64_t gates_of(const rnn_kernel *k)
{
    return (int64_t)k->n.cell * k->n.h;
}

static int64_t length_of(const rnn_kernel *k, int64_t b)
{
    const void *lens = operand(k, WEFT_RNN_LENS);
    return !lens          ? k->n.n_step
           : k->long_lens ? ((const int64_t *)lens)[b]
                          : ((const int32_t *)lens)[b];
}

/* -- Vectors -------------------------------------------------------------------------------- */

static void add(const rnn_kernel *k, float *y, const float *x, int64_t n)
{
    k->vec->accumulate(y, x, (size_t)n);
}

/* y = a * b */
static void multiply(const rnn_kernel *k, float *y, const float *a, const float *b, int64_t n)
{
    k->vec->step[WEFT_STEP_MUL](y, (const float *const[]){a, b}, (size_t)n);
}

/* y = a * b + c */
static void multiply_add(const rnn_kernel *k, float *y, const float *a, const float *b,
                         const float *c, int64_t n)
{
    k->vec->multiply_add(y, (const float *const[]){a, b, c}, (size_t)n);
}

static void activate(const rnn_kernel *k, const weft_rnn_act *a, float *y, const float *x,
                     int64_t n)
{
    weft_step_op op = a->fn == WEFT_RNN_SIGMOID ? WEFT_STEP_SIGMOID
                      : a->fn == WEFT_RNN_TANH  ? WEFT_STEP_TANH
                      : a->fn == WEFT_RNN_RELU  ? WEFT_STEP_RELU
                                                : WEFT_STEP_COUNT;
    if (op != WEFT_STEP_COUNT)
        k->vec->step[op](y, &x, (size_t)n);
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = weft_rnn_activate(a, x[i]);
}

/* Activation of a gate, in place. */
static void activate_gate(const rnn_kernel *k, const weft_rnn_act *a, float *g, int64_t n)
{
    float clip = k->n.clip;
    for (int64_t i = 0; clip > 0 && i < n; i++)
        g[i] = g[i] < -clip ? -clip : g[i] > clip ? clip : g[i]; /* NaN stays */
    activate(k, a, g, g, n);
}

/* -- Cells ---------------------------------------------------------------------------------- */

/* g: sums of the gates i, o, f, c. */
static void cell_lstm(const rnn_block *s, float *g, float *h, float *c)
{
    const rnn_kernel *k = s->k;
    const weft_rnn_act *act = k->n.act[s->d];
    int64_t m = k->n.h;
    float *i = g, *o = g + k->m, *f = g + 2 * k->m, *next = g + 3 * k->m;
    if (s->peep) {
        multiply_add(k, i, s->peep, c, i, m);
        multiply_add(k, f, s->peep + 2 * m, c, f, m);
    }
    activate_gate(k, &act[0], i, m);
    if (k->n.input_forget)
        for (int64_t j = 0; j < m; j++)
            f[j] = 1 - i[j];
    else
        activate_gate(k, &act[0], f, m);
    activate_gate(k, &act[1], next, m);
    multiply(k, c, f, c, m);
    multiply_add(k, c, i, next, c, m);
    if (s->peep)
        multiply_add(k, o, s->peep + m, c, o, m);
    activate_gate(k, &act[0], o, m);
    /* The output is not clipped, as in onnxruntime. */
    activate(k, &act[2], next, c, m);
    multiply(k, h, o, next, m);
}

/* g: gates z and r, activated, and the sum of gate h. */
static void cell_gru(const rnn_block *s, float *g, float *h)
{
    const rnn_kernel *k = s->k;
    int64_t m = k->n.h;
    float *z = g, *change = g + k->m, *next = g + 2 * k->m;
    activate_gate(k, &k->n.act[s->d][1], next, m);
    k->vec->step[WEFT_STEP_SUB](change, (const float *const[]){h, next}, (size_t)m);
    multiply_add(k, h, z, change, next, m);
}

typedef struct r_product {
    const rnn_block *s;
    const float *x;
    int64_t first; /* panel */
} r_product;

static void multiply_panels(void *cx, int64_t begin, int64_t end)
{
    const r_product *p = cx;
    const rnn_kernel *k = p->s->k;
    for (int64_t i = p->first + begin; i < p->first + end; i++)
        k->vec->panel(p->s->g + i * WEFT_VEC_PANEL, (size_t)((int64_t)k->n.cell * k->m), p->x,
                      (size_t)k->n.h, (size_t)p->s->rows, p->s->r + i * k->n.h * WEFT_VEC_PANEL,
                      (size_t)k->n.h);
}

/* -- Bytes ---------------------------------------------------------------------------------- */

/* The sums of W for all time steps and directions. */
static void times_w_bytes(const rnn_kernel *k)
{
    int64_t longest = 0;
    for (int64_t b = 0; b < k->n.n_batch; b++)
        longest = longest < length_of(k, b) ? length_of(k, b) : longest;
    weft_cpu_qrows q = {.vec = k->vec,
                        .x = scratch(k),
                        .rows = longest * k->n.n_batch,
                        .inner = k->n.n_in,
                        .cols = k->n.h,
                        .w = weft_cpu__pack_data(k->bytes[0]),
                        .col_s = operand(k, WEFT_LSTM_W_SCALE),
                        .out = (float *)(void *)(scratch(k) + k->gates_at),
                        .stride = k->n.n_dir * gates_of(k),
                        .part = k->n.h};
    weft_cpu__qrows_quantise(&q, operand(k, WEFT_RNN_X));
    weft_par_for(k->threads, k->n.n_dir * (int64_t)k->n.cell * (k->m / WEFT_VEC_PANEL),
                 (double)(q.rows * q.inner * WEFT_VEC_PANEL) * byte_ns, weft_cpu__qrows_multiply,
                 &q);
}

/* The states before step `at` with 0 for those that count as 0. */
static const float *counted_states(const rnn_block *s, int64_t at)
{
    const rnn_kernel *k = s->k;
    int64_t m = k->n.h;
    if (!k->in[WEFT_RNN_LENS])
        return s->h;
    memcpy(s->reset, s->h, (size_t)(s->rows * m) * sizeof *s->h);
    for (int64_t i = 0; i < s->rows; i++)
        if (weft_rnn_counts_as_zero(&k->n, length_of(k, s->first + i), at))
            memset(s->reset + i * m, 0, (size_t)m * sizeof *s->h);
    return s->reset;
}

/* The sums of R for the states of a block before step `at`. */
static void times_r_bytes(const rnn_block *s, int64_t at)
{
    const rnn_kernel *k = s->k;
    int64_t panels = (int64_t)k->n.cell * (k->m / WEFT_VEC_PANEL);
    weft_cpu_qrows q = {.vec = k->vec,
                        .x = s->reset + s->rows * k->n.h,
                        .rows = s->rows,
                        .inner = k->n.h,
                        .cols = k->n.h,
                        .w = weft_cpu__pack_data(k->bytes[1]),
                        .col_s = operand(k, WEFT_LSTM_R_SCALE),
                        .out = s->g,
                        .stride = (int64_t)k->n.cell * k->m,
                        .part = k->m,
                        .first = s->d * panels};
    weft_cpu__qrows_quantise(&q, counted_states(s, at));
    if (k->n.n_dir * k->blocks == 1)
        weft_par_for(k->threads, panels, (double)(q.rows * q.inner * WEFT_VEC_PANEL) * byte_ns,
                     weft_cpu__qrows_multiply, &q);
    else
        weft_cpu__qrows_multiply(&q, 0, panels);
}

/* -- Time steps ----------------------------------------------------------------------------- */

/* Sums of n gates from gate `first` on: x[rows][h] R. */
static void times_r(const rnn_block *s, const float *x, int64_t first, int64_t n)
{
    const rnn_kernel *k = s->k;
    int64_t panels = k->m / WEFT_VEC_PANEL;
    r_product p = {s, x, first * panels};
    if (k->n.n_dir * k->blocks == 1)
        weft_par_for(k->threads, n * panels,
                     (double)(s->rows * k->n.h * WEFT_VEC_PANEL) * multiply_ns, multiply_panels,
                     &p);
    else
        multiply_panels(&p, 0, n * panels);
}

/* The gates' sums of W for the time step that sequence b is at, and that step; -1: the sequence has
 * ended. */
static int64_t find_step(const rnn_block *s, int64_t at, int64_t b, const float **out_gates)
{
    const rnn_kernel *k = s->k;
    int64_t len = length_of(k, b), pitch = gates_of(k);
    int64_t t = weft_rnn_is_reverse(&k->n, s->d) ? len - 1 - at : at;
    if (at >= len)
        return -1;
    const float *gates = (const float *)(const void *)(scratch(k) + k->gates_at);
    *out_gates = gates + (weft_rnn_x_row(&k->n, t, b) * k->n.n_dir + s->d) * pitch;
    return t;
}

/* Adds W's sums and the biases to n gates from gate `first` on. */
static void add_inputs(const rnn_block *s, float *g, const float *gates, int64_t first, int64_t n)
{
    int64_t h = s->k->n.h, m = s->k->m;
    for (int64_t i = first; i < first + n; i++) {
        add(s->k, g + i * m, gates + i * h, h);
        if (s->bias)
            add(s->k, g + i * m, s->bias + i * h, h);
    }
}

/* Gates z and r of all sequences, then the sum of gate h. */
static void sum_gru(const rnn_block *s, int64_t at)
{
    const rnn_kernel *k = s->k;
    int64_t h = k->n.h, m = k->m;
    const weft_rnn_act *act = k->n.act[s->d];
    const float *gates;
    times_r(s, s->h, 0, k->n.reset_after ? 3 : 2);
    for (int64_t i = 0; i < s->rows; i++) {
        float *g = s->g + i * 3 * m, *r = g + m, *next = g + 2 * m;
        if (find_step(s, at, s->first + i, &gates) < 0) {
            memset(s->reset + i * h, 0, (size_t)h * sizeof *g);
            continue;
        }
        add_inputs(s, g, gates, 0, 2);
        activate_gate(k, act, g, h);
        activate_gate(k, act, r, h);
        if (!k->n.reset_after) {
            multiply(k, s->reset + i * h, r, s->h + i * h, h);
            continue;
        }
        if (s->bias_rh)
            add(k, next, s->bias_rh, h);
        multiply(k, next, r, next, h);
    }
    if (!k->n.reset_after)
        times_r(s, s->reset, 2, 1);
}

static void run_step(const rnn_block *s, int64_t at)
{
    const rnn_kernel *k = s->k;
    int64_t m = k->n.h, n_gate = k->n.cell;
    bool gru = k->n.cell == WEFT_CELL_GRU;
    float *y = result(k, OUT_Y);
    const float *gates;
    if (gru)
        sum_gru(s, at);
    else if (k->n.quantize_state)
        times_r_bytes(s, at);
    else
        times_r(s, s->h, 0, n_gate);
    for (int64_t i = 0; i < s->rows; i++) {
        float *g = s->g + i * n_gate * k->m, *h = s->h + i * m;
        int64_t b = s->first + i, t = find_step(s, at, b, &gates);
        if (t < 0)
            continue;
        add_inputs(s, g, gates, gru ? 2 : 0, gru ? 1 : n_gate);
        if (k->n.cell == WEFT_CELL_LSTM) {
            cell_lstm(s, g, h, s->c + i * m);
        } else if (gru) {
            cell_gru(s, g, h);
        } else {
            activate_gate(k, &k->n.act[s->d][0], g, m);
            memcpy(h, g, (size_t)m * sizeof *h);
        }
        if (y)
            memcpy(y + weft_rnn_y_row(&k->n, t, s->d, b) * m, h, (size_t)m * sizeof *h);
    }
}

/* -- Runs ----------------------------------------------------------------------------------- */

/* Copies the rows of a block between a state of all sequences and its own. */
static void load_state(const rnn_block *s, float *own, const float *all)
{
    int64_t m = s->k->n.h;
    for (int64_t i = 0; i < s->rows; i++)
        if (all)
            memcpy(own + i * m, all + weft_rnn_state_row(&s->k->n, s->d, s->first + i) * m,
                   (size_t)m * sizeof *own);
        else
            memset(own + i * m, 0, (size_t)m * sizeof *own);
}

static void store_state(const rnn_block *s, const float *own, float *all)
{
    int64_t m = s->k->n.h;
    for (int64_t i = 0; all && i < s->rows; i++)
        memcpy(all + weft_rnn_state_row(&s->k->n, s->d, s->first + i) * m, own + i * m,
               (size_t)m * sizeof *own);
}

/* The last states of an empty sequence are 0. */
static void clear_empty(const rnn_block *s)
{
    int64_t m = s->k->n.h;
    for (int64_t i = 0; i < s->rows; i++)
        if (length_of(s->k, s->first + i) == 0) {
            memset(s->h + i * m, 0, (size_t)m * sizeof *s->h);
            memset(s->c + i * m, 0, (size_t)m * sizeof *s->c);
        }
}

static rnn_block make_block(const rnn_kernel *k, int64_t i)
{
    int64_t m = k->n.h, pitch = gates_of(k), d = i / k->blocks;
    rnn_block s = {.k = k, .d = d, .first = i % k->blocks * k->rows};
    const float *bias = operand(k, WEFT_RNN_BIAS), *peep = operand(k, WEFT_LSTM_PEEP);
    s.rows = k->n.n_batch - s.first < k->rows ? k->n.n_batch - s.first : k->rows;
    if (k->r)
        s.r = (const float *)weft_cpu__pack_data(k->r) + d * (int64_t)k->n.cell * k->m * m;
    if (bias) {
        s.bias = (const float *)(const void *)(scratch(k) + k->bias_at) + d * pitch;
        if (k->n.cell == WEFT_CELL_GRU && k->n.reset_after)
            s.bias_rh = bias + d * 2 * pitch + pitch + 2 * m;
    }
    s.peep = peep ? peep + d * 3 * m : NULL;
    s.g = (float *)(void *)(scratch(k) + k->work_at) + (uint64_t)i * k->work_floats;
    s.h = s.g + k->rows * (int64_t)k->n.cell * k->m;
    s.c = s.h + k->rows * m;
    s.reset = s.c + k->rows * m;
    return s;
}

static void run_blocks(void *cx, int64_t begin, int64_t end)
{
    const rnn_kernel *k = cx;
    for (int64_t i = begin; i < end; i++) {
        rnn_block s = make_block(k, i);
        load_state(&s, s.h, operand(k, WEFT_RNN_H0));
        load_state(&s, s.c, operand(k, WEFT_LSTM_C0));
        for (int64_t at = 0; at < k->n.n_step; at++)
            run_step(&s, at);
        clear_empty(&s);
        store_state(&s, s.h, result(k, OUT_H));
        store_state(&s, s.c, result(k, OUT_C));
    }
}

/* The biases that are added to W's sums: both, but of gate h of a gru with reset_after only W's. */
static void sum_biases(const rnn_kernel *k)
{
    const float *bias = operand(k, WEFT_RNN_BIAS);
    float *sum = (float *)(void *)(scratch(k) + k->bias_at);
    int64_t pitch = gates_of(k), both = pitch;
    if (k->n.cell == WEFT_CELL_GRU && k->n.reset_after)
        both = 2 * k->n.h;
    for (int64_t d = 0; bias && d < k->n.n_dir; d++)
        for (int64_t j = 0; j < pitch; j++)
            sum[d * pitch + j] =
                bias[2 * d * pitch + j] + (j < both ? bias[(2 * d + 1) * pitch + j] : 0);
}

static weft_err run_rnn(void *state, void *const *arg)
{
    rnn_kernel *k = state;
    k->arg = arg;
    int64_t pitch = gates_of(k);
    for (int64_t b = 0; k->in[WEFT_RNN_LENS] && b < k->n.n_batch; b++)
        if (length_of(k, b) < 0 || length_of(k, b) > k->n.n_step)
            return WEFT_ERR_INPUT;
    if (k->n.quantize_state)
        times_w_bytes(k);
    else
        WEFT_TRY(k->run_product(k->product, (void *const[]){arg[WEFT_RNN_X], arg[WEFT_RNN_W],
                                                            scratch(k) + k->gates_at, scratch(k)}));
    sum_biases(k);
    if (k->in[WEFT_RNN_LENS] && k->out[OUT_Y])
        memset(result(k, OUT_Y), 0,
               (size_t)(k->n.n_step * k->n.n_batch * k->n.n_dir * k->n.h) * sizeof(float));
    weft_par_for(k->threads, k->n.n_dir * k->blocks,
                 (double)k->n.n_step * (double)(k->rows * k->n.h * pitch) * multiply_ns, run_blocks,
                 k);
    return WEFT_ERR_OK;
}

static void destroy_rnn(void *state)
{
    rnn_kernel *k = state;
    if (k->r)
        weft_cpu__put_pack(k->engine, k->r);
    for (uint32_t i = 0; i < 2; i++)
        if (k->bytes[i])
            weft_cpu__put_pack(k->engine, k->bytes[i]);
    if (k->product && k->destroy_product)
        k->destroy_product(k->product);
    else
        free(k->product);
    free(k);
}

/* -- Preparation ---------------------------------------------------------------------------- */

/* Whether operand or result s is omitted or f32 with this number of elements. */
static bool fits(const weft_slot *s, int64_t numel)
{
    return !s->present ||
           (weft_slot_is(s, WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN) && weft_slot_numel(s) == numel);
}

/* W and R of bytes with their scales and constant zero points; sums of products fit 32 bits. */
static bool bytes_fit(const weft_prep *p, const weft_rnn_layer *n)
{
    int64_t gates = n->n_dir * (int64_t)n->cell * n->h;
    if (p->n_in != WEFT_LSTM_OPERANDS || n->n_in > WEFT_QROWS_INNER_MAX ||
        n->h > WEFT_QROWS_INNER_MAX)
        return false;
    for (uint32_t i = WEFT_RNN_W; i <= WEFT_RNN_R; i++) {
        const weft_slot *w = &p->in[i],
                        *s = w + (WEFT_LSTM_W_SCALE - WEFT_RNN_W) + (i - WEFT_RNN_W);
        if (!w->weight || w->layout != WEFT_LAYOUT_PLAIN || weft_dtype_size(w->tensor.dtype) != 1 ||
            weft_slot_numel(w) != gates * (i == WEFT_RNN_W ? n->n_in : n->h) || !s[0].present ||
            !s[1].weight || !fits(&s[0], gates) || weft_slot_numel(&s[1]) != gates ||
            s[1].tensor.dtype != w->tensor.dtype)
            return false;
    }
    return true;
}

static bool operands_fit(const weft_prep *p, const weft_rnn_layer *n)
{
    int64_t gates = n->n_dir * (int64_t)n->cell * n->h, state = n->n_dir * n->n_batch * n->h;
    const int64_t in[IN_FLOATS] = {n->n_step * n->n_batch * n->n_in,
                                   gates * n->n_in,
                                   gates * n->h,
                                   2 * gates,
                                   n->n_batch,
                                   state,
                                   state,
                                   n->n_dir * 3 * n->h};
    const int64_t out[OUT_COUNT] = {n->n_step * state, state, state};
    if (n->quantize_state ? !bytes_fit(p, n) : p->n_in > IN_FLOATS)
        return false;
    for (uint32_t i = 0; i < p->n_in && i < IN_FLOATS; i++)
        if (i != WEFT_RNN_LENS && !((i == WEFT_RNN_W || i == WEFT_RNN_R) && n->quantize_state) &&
            !fits(&p->in[i], in[i]))
            return false;
    for (uint32_t o = 0; o < p->n_out; o++)
        if (!fits(&p->out[o], out[o]))
            return false;
    const weft_slot *lens =
        p->n_in > WEFT_RNN_LENS && p->in[WEFT_RNN_LENS].present ? &p->in[WEFT_RNN_LENS] : NULL;
    return !lens || (weft_slot_numel(lens) == n->n_batch && (lens->tensor.dtype == WEFT_DTYPE_I32 ||
                                                             lens->tensor.dtype == WEFT_DTYPE_I64));
}

/* s as a matrix [rows, cols]. */
static weft_slot as_matrix(const weft_slot *s, int64_t rows, int64_t cols)
{
    weft_slot m = *s;
    m.tensor.rank = 2;
    m.tensor.dim[0] = rows;
    m.tensor.dim[1] = cols;
    return m;
}

/* Packs W and R of bytes. */
static weft_err prepare_bytes(weft_prep *p, rnn_kernel *k, uint64_t *out_scratch)
{
    const weft_rnn_layer *n = &k->n;
    int64_t parts = n->n_dir * (int64_t)n->cell;
    const weft_cpu_format w =
        weft_cpu__qrows_format(k->vec, parts, n->h, n->n_in, &p->in[WEFT_LSTM_W_ZERO]);
    const weft_cpu_format r =
        weft_cpu__qrows_format(k->vec, parts, n->h, n->h, &p->in[WEFT_LSTM_R_ZERO]);
    *out_scratch = weft_cpu__qrows_room(k->vec, n->n_step * n->n_batch, n->n_in);
    snprintf(k->variant, sizeof k->variant, "%s+%s", k->vec->name,
             weft_cpu__has_bytes(k->vec) ? "bytes" : "words");
    WEFT_TRY(weft_cpu__pack_as(p, WEFT_RNN_W, &w, &k->bytes[0]));
    return weft_cpu__pack_as(p, WEFT_RNN_R, &r, &k->bytes[1]);
}

/* Prepares the product of x and W, for both directions at once, and packs R. */
static weft_err prepare_products(weft_prep *p, rnn_kernel *k, uint64_t *out_scratch)
{
    const weft_rnn_layer *n = &k->n;
    int64_t rows = n->n_step * n->n_batch, cols = n->n_dir * gates_of(k);
    const weft_attr trans_b = {.key = WEFT_ATTR_TRANS_B, .kind = WEFT_KIND_INT, .u.i = 1};
    const weft_slot in[2] = {as_matrix(&p->in[WEFT_RNN_X], rows, n->n_in),
                             as_matrix(&p->in[WEFT_RNN_W], cols, n->n_in)};

    weft_slot gates = {.present = true, .tensor = {.dtype = WEFT_DTYPE_F32, .rank = 2}};
    gates.tensor.dim[0] = rows;
    gates.tensor.dim[1] = cols;
    weft_prep product = *p;
    product.op = WEFT_OP_MATMUL;
    product.attrs = (weft_attrs){&trans_b, 1};
    product.in = in;
    product.n_in = 2;
    product.out = &gates;
    product.n_out = 1;
    WEFT_TRY(weft_cpu__prepare_dnnl_matmul(&product));
    if (!product.run)
        return WEFT_ERR_OK;
    k->run_product = product.run;
    k->product = product.state;
    k->destroy_product = product.destroy;
    *out_scratch = product.scratch_bytes;
    snprintf(k->variant, sizeof k->variant, "%s+%s", k->vec->name, product.variant);
    return weft_cpu__pack_panels(p, WEFT_RNN_R, n->n_dir * (int64_t)n->cell, n->h, n->h, &k->r);
}

/* Scratch memory: the GEMM's own, gates, biases, working memory of the blocks. */
static bool place_scratch(weft_prep *p, rnn_kernel *k, uint64_t at)
{
    uint64_t m = (uint64_t)k->n.h, gates = (uint64_t)gates_of(k) * (uint64_t)k->n.n_dir, bytes;
    uint64_t tasks = (uint64_t)(k->n.n_dir * k->blocks);
    k->gates_at = weft_align_up(at, 64);
    if (!weft_size_mul(gates * sizeof(float), (uint64_t)(k->n.n_step * k->n.n_batch), &bytes) ||
        !weft_size_add(bytes, k->gates_at + 64, &bytes))
        return false;
    k->bias_at = weft_align_up(bytes, 64);
    k->work_at = weft_align_up(k->bias_at + gates * sizeof(float), 64);
    k->work_floats =
        weft_align_up((uint64_t)k->rows * (3 * m + (uint64_t)k->n.cell * (uint64_t)k->m), 16);
    if (k->n.quantize_state) /* behind `reset` */
        k->work_floats = weft_align_up(
            k->work_floats + weft_cpu__qrows_room(k->vec, k->rows, k->n.h) / 4 + 1, 16);
    return weft_size_mul(k->work_floats * sizeof(float), tasks, &bytes) &&
           weft_size_add(bytes, k->work_at, &p->scratch_bytes);
}

static void split_batch(rnn_kernel *k)
{
    int64_t share = (k->n.n_batch * k->n.n_dir + k->threads - 1) / k->threads;
    k->rows = share < ROWS_MAX ? share : ROWS_MAX;
    k->rows = k->rows < k->n.n_batch && !k->n.quantize_state ? k->rows : k->n.n_batch;
    k->blocks = (k->n.n_batch + k->rows - 1) / k->rows;
}

static rnn_kernel *create_rnn(weft_prep *p, const weft_rnn_layer *n)
{
    rnn_kernel *k = weft_cpu__calloc(1, sizeof *k);
    if (!k)
        return NULL;
    k->n = *n;
    k->m = (int64_t)weft_align_up((uint64_t)n->h, WEFT_VEC_PANEL);
    k->engine = p->engine;
    k->vec = weft_cpu__of(p)->vec;
    k->threads = weft_cpu__of(p)->threads;
    k->n_in = p->n_in;
    k->n_out = p->n_out;
    for (uint32_t i = 0; i < p->n_in; i++)
        k->in[i] = p->in[i].present;
    for (uint32_t o = 0; o < p->n_out; o++)
        k->out[o] = p->out[o].present;
    k->long_lens = k->in[WEFT_RNN_LENS] && p->in[WEFT_RNN_LENS].tensor.dtype == WEFT_DTYPE_I64;
    split_batch(k);
    return k;
}

weft_err weft_cpu__prepare_rnn(weft_prep *p)
{
    weft_rnn_layer n;
    uint64_t at = 0;
    if (p->n_in > WEFT_LSTM_OPERANDS || p->n_out > OUT_COUNT || !p->in[WEFT_RNN_R].weight ||
        !weft_rnn_layer_read(p->op, p->attrs, &p->in[WEFT_RNN_X].tensor, &p->in[WEFT_RNN_R].tensor,
                             &n) ||
        !operands_fit(p, &n))
        return WEFT_ERR_OK;
    rnn_kernel *k = create_rnn(p, &n);
    if (!k)
        return WEFT_ERR_NOMEM;
    weft_err err = n.quantize_state ? prepare_bytes(p, k, &at) : prepare_products(p, k, &at);
    if (err != WEFT_ERR_OK || (!k->r && !k->bytes[1]) || !place_scratch(p, k, at)) {
        destroy_rnn(k);
        return err;
    }
    p->run = run_rnn;
    p->state = k;
    p->destroy = destroy_rnn;
    p->variant = k->variant;
    return WEFT_ERR_OK;
}
