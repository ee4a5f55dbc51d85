/* Recurrent layers: lstm, gru, rnn. One driver loops over directions and time steps; the cells
 * differ in the arithmetic of a time step. The GEMM of the inputs with W is done for all time steps
 * at once; only that of the state with R is inside the loop. Gates are in ONNX order: lstm i o f c,
 * gru z r h. */
#include "ops/data_int.h"
#include "ops/quant_int.h"
#include "ops/recurrent.h"

#include <math.h>
#include <string.h>

weft_rnn_cell weft_rnn_cell_of(weft_op_id op)
{
    return op == WEFT_OP_LSTM ? WEFT_CELL_LSTM : op == WEFT_OP_GRU ? WEFT_CELL_GRU : WEFT_CELL_RNN;
}

/* -- Activations ---------------------------------------------------------------------------- */

static const struct {
    const char *name;
    uint8_t n_args; /* 1: alpha; 2: alpha and beta */
    float alpha, beta;
} act_table[WEFT_RNN_FN_COUNT] = {
    [WEFT_RNN_SIGMOID] = {"sigmoid", 0, 0, 0},
    [WEFT_RNN_TANH] = {"tanh", 0, 0, 0},
    [WEFT_RNN_RELU] = {"relu", 0, 0, 0},
    [WEFT_RNN_AFFINE] = {"affine", 2, 1, 0},
    [WEFT_RNN_LEAKY] = {"leakyrelu", 1, 0.01f, 0},
    [WEFT_RNN_THRESHOLDED] = {"thresholdedrelu", 1, 1, 0},
    [WEFT_RNN_SCALED_TANH] = {"scaledtanh", 2, 1, 1},
    [WEFT_RNN_HARD_SIGMOID] = {"hardsigmoid", 2, 0.2f, 0.5f},
    [WEFT_RNN_ELU] = {"elu", 1, 1, 0},
    [WEFT_RNN_SOFTSIGN] = {"softsign", 0, 0, 0},
    [WEFT_RNN_SOFTPLUS] = {"softplus", 0, 0, 0},
};

const char *weft_rnn_act_name(weft_rnn_fn fn)
{
    return act_table[fn].name;
}

float weft_rnn_activate(const weft_rnn_act *a, float x)
{
    switch (a->fn) {
    case WEFT_RNN_SIGMOID:
        return 1 / (1 + expf(-x));
    case WEFT_RNN_TANH:
        return tanhf(x);
    case WEFT_RNN_RELU:
        return x < 0 ? 0 : x;
    case WEFT_RNN_AFFINE:
        return a->alpha * x + a->beta;
    case WEFT_RNN_LEAKY:
        return x >= 0 ? x : a->alpha * x;
    case WEFT_RNN_THRESHOLDED:
        return x > a->alpha ? x : 0;
    case WEFT_RNN_SCALED_TANH:
        return a->alpha * tanhf(a->beta * x);
    case WEFT_RNN_HARD_SIGMOID:
        x = a->alpha * x + a->beta;
        return x < 0 ? 0 : x > 1 ? 1 : x;
    case WEFT_RNN_ELU:
        return x >= 0 ? x : a->alpha * (expf(x) - 1);
    case WEFT_RNN_SOFTSIGN:
        return x / (1 + fabsf(x));
    default:
        return x > 20 ? x : log1pf(expf(x));
    }
}

static bool same_name(const char *want, const char *have)
{
    for (; *want && *have; want++, have++)
        if (*want != (*have >= 'A' && *have <= 'Z' ? *have - 'A' + 'a' : *have))
            return false;
    return *want == *have;
}

bool weft_rnn_acts(weft_attrs attrs, weft_rnn_cell kind, uint32_t direction, weft_rnn_act out[3])
{
    static const weft_rnn_fn usual[3] = {WEFT_RNN_SIGMOID, WEFT_RNN_TANH, WEFT_RNN_TANH};
    const weft_attr *names = weft_attrs_find(attrs, WEFT_ATTR_ACTIVATIONS);
    const weft_attr *alpha = weft_attrs_find(attrs, WEFT_ATTR_ACTIVATION_ALPHA);
    const weft_attr *beta = weft_attrs_find(attrs, WEFT_ATTR_ACTIVATION_BETA);
    uint32_t n = kind == WEFT_CELL_LSTM  ? 3
                 : kind == WEFT_CELL_GRU ? 2
                                         : 1,
             n_alpha = 0, n_beta = 0;
    for (uint32_t i = 0; i < n * (direction + 1); i++) {
        uint32_t fn = kind == WEFT_CELL_RNN ? WEFT_RNN_TANH : usual[i % n];
        if (names && names->n > 0) {
            if (i >= names->n)
                return false;
            for (fn = 0; fn < WEFT_RNN_FN_COUNT && !same_name(act_table[fn].name, names->u.strs[i]);
                 fn++)
                ;
            if (fn == WEFT_RNN_FN_COUNT)
                return false;
        }
        weft_rnn_act *a = &out[i % n];
        *a = (weft_rnn_act){(weft_rnn_fn)fn, act_table[fn].alpha, act_table[fn].beta};
        if (act_table[fn].n_args > 0 && alpha && n_alpha < alpha->n)
            a->alpha = (float)alpha->u.floats[n_alpha++];
        if (act_table[fn].n_args > 1 && beta && n_beta < beta->n)
            a->beta = (float)beta->u.floats[n_beta++];
    }
    return true;
}

bool weft_rnn_layer_read(weft_op_id op, weft_attrs attrs, const weft_tensor *x,
                         const weft_tensor *r, weft_rnn_layer *out)
{
    weft_rnn_layer n = {.cell = weft_rnn_cell_of(op)};
    uint32_t n_dir = weft_rnn_directions(attrs, &n.reverse);
    if (x->rank != 3 || r->rank != 3 || n_dir == 0 || r->dim[0] != n_dir)
        return false;
    n.batch_first = weft_attrs_int(attrs, WEFT_ATTR_LAYOUT, 0) != 0;
    n.n_step = x->dim[n.batch_first];
    n.n_batch = x->dim[!n.batch_first];
    n.n_in = x->dim[2];
    n.h = r->dim[2];
    n.n_dir = n_dir;
    n.clip = (float)weft_attrs_float(attrs, WEFT_ATTR_CLIP, 0);
    n.input_forget = weft_attrs_int(attrs, WEFT_ATTR_INPUT_FORGET, 0) != 0;
    n.quantize_state = weft_attrs_int(attrs, WEFT_ATTR_QUANTIZE_STATE, 0) != 0;
    n.ended_is_zero = weft_attrs_int(attrs, WEFT_ATTR_QUANTIZE_STATE, 0) == 2;
    n.reset_after = weft_attrs_int(attrs, WEFT_ATTR_LINEAR_BEFORE_RESET, 0) != 0;
    for (uint32_t d = 0; d < n_dir; d++)
        if (!weft_rnn_acts(attrs, n.cell, d, n.act[d]))
            return false;
    *out = n;
    return true;
}

/* -- Inference ------------------------------------------------------------------------------ */

uint32_t weft_rnn_directions(weft_attrs attrs, bool *out_reverse)
{
    const char *s = weft_attrs_str(attrs, WEFT_ATTR_DIRECTION, "forward");
    *out_reverse = strcmp(s, "reverse") == 0;
    if (strcmp(s, "bidirectional") == 0)
        return 2;
    return strcmp(s, "forward") == 0 || *out_reverse;
}

/* Scales and zero points of bytes are there if and only if W and R are bytes. */
static weft_err check_bytes(weft_infer_ctx *cx, bool quantised)
{
    for (uint32_t i = WEFT_LSTM_W_SCALE; i < WEFT_LSTM_OPERANDS; i++) {
        uint32_t factor = i < WEFT_LSTM_R_SCALE ? 1 : 2;
        const weft_ttype *t = &cx->in[factor].type;
        if (weft_infer__has(cx, i) != quantised)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "scales and zero points do not fit");
        if (!quantised)
            continue;
        WEFT_TRY(weft_infer__rank(cx, i, 1, 1));
        WEFT_TRY(weft_infer__agree(cx, cx->in[i].type.dim[0],
                                   weft_dim_mul(cx->pool, t->dim[0], t->dim[1]), "gate rows"));
        WEFT_TRY(weft_infer__dtype(cx, factor, WEFT_M_BYTE));
        if (i == WEFT_LSTM_W_SCALE || i == WEFT_LSTM_R_SCALE)
            WEFT_TRY(weft_infer__dtype(cx, i, WEFT_M_F32));
        else
            WEFT_TRY(weft_infer__same_dtype(cx, factor, i));
    }
    return quantised ? weft_infer__dtype(cx, 0, WEFT_M_F32) : WEFT_ERR_OK;
}

/* Bias, lengths, states and peepholes, as far as they are there. */
static weft_err check_optional(weft_infer_ctx *cx, weft_dim dirs, weft_dim batch, weft_dim h,
                               int64_t gates)
{
    bool batch_first = weft_attrs_int(cx->attrs, WEFT_ATTR_LAYOUT, 0) != 0;
    weft_dim first = batch_first ? batch : dirs, second = batch_first ? dirs : batch;
    const struct {
        uint32_t in, rank;
        weft_dim dim[3];
        const char *what;
    } want[] = {
        {WEFT_RNN_BIAS, 2, {dirs, weft_dim_mul(cx->pool, h, 2 * gates)}, "bias"},
        {WEFT_RNN_LENS, 1, {batch}, "number of lengths"},
        {WEFT_RNN_H0, 3, {first, second, h}, "initial state"},
        {WEFT_LSTM_C0, 3, {first, second, h}, "initial cell state"},
        {WEFT_LSTM_PEEP, 2, {dirs, weft_dim_mul(cx->pool, h, 3)}, "peepholes"},
    };
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        uint32_t in = want[i].in;
        if (!weft_infer__has(cx, in))
            continue;
        WEFT_TRY(weft_infer__rank(cx, in, want[i].rank, want[i].rank));
        if (in != WEFT_RNN_LENS)
            WEFT_TRY(weft_infer__same_dtype(cx, 0, in));
        for (uint32_t d = 0; d < want[i].rank; d++)
            WEFT_TRY(weft_infer__agree(cx, cx->in[in].type.dim[d], want[i].dim[d], want[i].what));
    }
    return WEFT_ERR_OK;
}

weft_err weft_infer_recurrent(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type, *w = &cx->in[1].type, *r = &cx->in[2].type;
    int64_t gates = weft_rnn_cell_of(cx->op->id);
    bool reverse;
    weft_rnn_act acts[3];
    uint32_t n_dir = weft_rnn_directions(cx->attrs, &reverse);
    bool quantised = weft_attrs_int(cx->attrs, WEFT_ATTR_QUANTIZE_STATE, 0) != 0;
    for (uint32_t i = 0; i < 3; i++) {
        WEFT_TRY(weft_infer__rank(cx, i, 3, 3));
        if (!quantised)
            WEFT_TRY(weft_infer__same_dtype(cx, 0, i));
    }
    WEFT_TRY(check_bytes(cx, quantised));
    if (x->dtype == WEFT_DTYPE_F64 || !weft_dtype_is_float((weft_dtype)x->dtype))
        return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "element type %s",
                         weft_dtype_name((weft_dtype)x->dtype));
    if (n_dir == 0 || !weft_rnn_acts(cx->attrs, weft_rnn_cell_of(cx->op->id), n_dir - 1, acts))
        return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "direction or activation is not known");
    int64_t hidden = weft_attrs_int(cx->attrs, WEFT_ATTR_HIDDEN_SIZE, 0);
    weft_dim h = hidden > 0 ? hidden : r->dim[2];
    WEFT_TRY(weft_infer__agree(cx, h, r->dim[2], "hidden size"));
    WEFT_TRY(weft_infer__agree(cx, w->dim[0], n_dir, "number of directions"));
    WEFT_TRY(weft_infer__agree(cx, w->dim[2], x->dim[2], "input size"));
    WEFT_TRY(weft_infer__agree(cx, w->dim[1], weft_dim_mul(cx->pool, h, gates), "rows of W"));
    WEFT_TRY(weft_infer__agree(cx, r->dim[1], weft_dim_mul(cx->pool, h, gates), "rows of R"));
    bool batch_first = weft_attrs_int(cx->attrs, WEFT_ATTR_LAYOUT, 0) != 0;
    if (quantised && batch_first)
        return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "layout 1 with quantize_state");
    weft_dim steps = x->dim[batch_first], batch = x->dim[!batch_first];
    WEFT_TRY(check_optional(cx, n_dir, batch, h, gates));
    weft_ttype *out = weft_infer__out(cx, 0, (weft_dtype)x->dtype, 4);
    const weft_dim y[2][4] = {{steps, n_dir, batch, h}, {batch, steps, n_dir, h}};
    memcpy(out->dim, y[batch_first], sizeof y[0]);
    const weft_dim state[2][3] = {{n_dir, batch, h}, {batch, n_dir, h}};
    for (uint32_t o = 1; o < cx->n_out; o++) {
        out = weft_infer__out(cx, o, (weft_dtype)x->dtype, 3);
        memcpy(out->dim, state[batch_first], sizeof state[0]);
    }
    return WEFT_ERR_OK;
}

weft_work weft_work_recurrent(const weft_work_ctx *cx)
{
    const weft_work_operand *x = &cx->in[0], *w = &cx->in[1], *r = &cx->in[2];
    double rows = (double)x->dim[0] * (double)x->dim[1];
    return weft_work__bytes(cx, 2 * rows * (weft_work__numel(w) + weft_work__numel(r)));
}

/* -- Evaluation ----------------------------------------------------------------------------- */

typedef struct weft_rnn {
    weft_rnn_layer layer;
    const weft_rnn_act *act;                        /* of the direction that runs */
    const float *x, *w, *r, *bias, *h0, *c0, *peep; /* NULL when omitted */
    const int64_t *lens;
    float *y, *y_h, *y_c;
} weft_rnn;

/* out[rows, n] += x[rows, k] * w[k, n]; four rows share one pass over w. */
static void add_product(float *restrict out, int64_t out_pitch, const float *x, int64_t x_pitch,
                        const float *restrict w, int64_t w_pitch, int64_t rows, int64_t k,
                        int64_t n)
{
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4) {
        float *restrict o = out + i * out_pitch;
        for (int64_t p = 0; p < k; p++) {
            const float *restrict row = w + p * w_pitch;
            float a = x[i * x_pitch + p], b = x[(i + 1) * x_pitch + p];
            float c = x[(i + 2) * x_pitch + p], d = x[(i + 3) * x_pitch + p];
            for (int64_t j = 0; j < n; j++) {
                o[j] += a * row[j];
                o[out_pitch + j] += b * row[j];
                o[2 * out_pitch + j] += c * row[j];
                o[3 * out_pitch + j] += d * row[j];
            }
        }
    }
    for (; i < rows; i++)
        for (int64_t p = 0; p < k; p++) {
            const float *restrict row = w + p * w_pitch;
            float *restrict o = out + i * out_pitch, a = x[i * x_pitch + p];
            for (int64_t j = 0; j < n; j++)
                o[j] += a * row[j];
        }
}

static float *transposed(weft_arena *arena, const float *x, int64_t rows, int64_t cols)
{
    float *out = weft_arena_array(arena, (size_t)(rows * cols), sizeof *out);
    weft_walk w = {0};
    weft_walk__push(&w, cols, rows, 1);
    weft_walk__push(&w, rows, 1, cols);
    weft_walk__copy(&w, out, x, sizeof *out);
    return out;
}

static float clipped(const weft_rnn *n, float x)
{
    float most = n->layer.clip;
    if (most <= 0)
        return x;
    return x < -most ? -most : x > most ? most : x;
}

static float activate(const weft_rnn *n, int k, float x)
{
    return weft_rnn_activate(&n->act[k], clipped(n, x));
}

/* One time step of one sequence: g has the gates' sums; h and c are updated. */
static void step_lstm(const weft_rnn *n, const float *g, const float *peep, float *h, float *c)
{
    int64_t m = n->layer.h;
    for (int64_t j = 0; j < m; j++) {
        float pi = peep ? peep[j] * c[j] : 0, pf = peep ? peep[2 * m + j] * c[j] : 0;
        float i = activate(n, 0, g[j] + pi);
        float f = n->layer.input_forget ? 1 - i : activate(n, 0, g[2 * m + j] + pf);
        float next = f * c[j] + i * activate(n, 1, g[3 * m + j]);
        float po = peep ? peep[m + j] * next : 0;
        c[j] = next;
        /* The output is not clipped, as in onnxruntime. */
        h[j] = activate(n, 0, g[m + j] + po) * weft_rnn_activate(&n->act[2], next);
    }
}

/* `rh` is R's contribution to gate h: of the reset state, or with reset_after of the state. */
static void step_gru(const weft_rnn *n, const float *g, const float *rh, float *h)
{
    int64_t m = n->layer.h;
    for (int64_t j = 0; j < m; j++) {
        float z = g[j], part = n->layer.reset_after ? g[m + j] * rh[j] : rh[j];
        float next = activate(n, 1, g[2 * m + j] + part);
        h[j] = (1 - z) * next + z * h[j];
    }
}

/* Working memory of one direction. */
typedef struct weft_rnn_dir {
    int64_t d;
    bool reverse;
    const float *rt;     /* R transposed: [h, gates * h] */
    const float *gate_x; /* W's contribution and the biases for all time steps, in the order of x */
    const float *bias_rh;
    float *g, *h, *c, *reset, *rh; /* [batch, ...] */
} weft_rnn_dir;

static void gru_batch(const weft_rnn *n, const weft_rnn_dir *s)
{
    int64_t m = n->layer.h, rows = n->layer.n_batch, pitch = 3 * m;
    add_product(s->g, pitch, s->h, m, s->rt, pitch, rows, m, 2 * m);
    for (int64_t b = 0; b < rows; b++) {
        float *g = s->g + b * pitch;
        for (int64_t j = 0; j < 2 * m; j++)
            g[j] = activate(n, 0, g[j]);
        for (int64_t j = 0; j < m; j++) {
            s->reset[b * m + j] = (n->layer.reset_after ? 1 : g[m + j]) * s->h[b * m + j];
            s->rh[b * m + j] = s->bias_rh ? s->bias_rh[j] : 0;
        }
    }
    add_product(s->rh, m, s->reset, m, s->rt + 2 * m, pitch, rows, m, m);
}

static int64_t length_of(const weft_rnn *n, int64_t b)
{
    return n->lens ? n->lens[b] : n->layer.n_step;
}

/* The states before step `at`, quantised; in `reset`. */
static const float *quantised_states(const weft_rnn *n, const weft_rnn_dir *s, int64_t at)
{
    int64_t m = n->layer.h;
    memcpy(s->reset, s->h, (size_t)(n->layer.n_batch * m) * sizeof *s->h);
    for (int64_t b = 0; b < n->layer.n_batch; b++)
        if (weft_rnn_counts_as_zero(&n->layer, length_of(n, b), at))
            memset(s->reset + b * m, 0, (size_t)m * sizeof *s->h);
    weft_quantize__by_range(s->reset, s->reset, n->layer.n_batch * m);
    return s->reset;
}

/* Time step `at` of every sequence that is long enough. */
static void run_step(const weft_rnn *n, const weft_rnn_dir *s, int64_t at)
{
    int64_t m = n->layer.h, pitch = (int64_t)n->layer.cell * m;
    for (int64_t b = 0; b < n->layer.n_batch; b++) {
        int64_t len = length_of(n, b);
        int64_t t = at >= len ? at : s->reverse ? len - 1 - at : at;
        memcpy(s->g + b * pitch, s->gate_x + weft_rnn_x_row(&n->layer, t, b) * pitch,
               (size_t)pitch * sizeof *s->g);
    }
    const float *h = n->layer.quantize_state ? quantised_states(n, s, at) : s->h;
    if (n->layer.cell == WEFT_CELL_GRU)
        gru_batch(n, s);
    else
        add_product(s->g, pitch, h, m, s->rt, pitch, n->layer.n_batch, m, pitch);
    const float *peep = n->peep ? n->peep + s->d * 3 * m : NULL;
    for (int64_t b = 0; b < n->layer.n_batch; b++) {
        int64_t len = length_of(n, b);
        if (at >= len)
            continue;
        float *g = s->g + b * pitch, *own = s->h + b * m;
        if (n->layer.cell == WEFT_CELL_LSTM)
            step_lstm(n, g, peep, own, s->c + b * m);
        else if (n->layer.cell == WEFT_CELL_GRU)
            step_gru(n, g, s->rh + b * m, own);
        for (int64_t j = 0; j < m && n->layer.cell == WEFT_CELL_RNN; j++)
            own[j] = activate(n, 0, g[j]);
        int64_t t = s->reverse ? len - 1 - at : at;
        if (n->y)
            memcpy(n->y + weft_rnn_y_row(&n->layer, t, s->d, b) * m, own, (size_t)m * sizeof *own);
    }
}

/* W's contribution to the gates for all time steps, with the biases that are added outside of R's
 * contribution. */
static const float *input_gates(weft_arena *arena, const weft_rnn *n, int64_t d,
                                const float **out_bias_rh)
{
    int64_t pitch = (int64_t)n->layer.cell * n->layer.h, rows = n->layer.n_step * n->layer.n_batch;
    float *gates = weft_arena_array(arena, (size_t)rows, (size_t)pitch * sizeof *gates);
    const float *bias = n->bias ? n->bias + d * 2 * pitch : NULL;
    bool apart = n->layer.cell == WEFT_CELL_GRU && n->layer.reset_after;
    *out_bias_rh = bias && apart ? bias + pitch + 2 * n->layer.h : NULL;
    for (int64_t i = 0; i < rows && bias; i++)
        for (int64_t j = 0; j < pitch; j++)
            gates[i * pitch + j] = bias[j] + (apart && j >= 2 * n->layer.h ? 0 : bias[pitch + j]);
    const float *wt = transposed(arena, n->w + d * pitch * n->layer.n_in, pitch, n->layer.n_in);
    add_product(gates, pitch, n->x, n->layer.n_in, wt, pitch, rows, n->layer.n_in, pitch);
    return gates;
}

static void run_direction(weft_arena *arena, const weft_rnn *n, int64_t d, bool reverse)
{
    int64_t m = n->layer.h, pitch = (int64_t)n->layer.cell * m;
    size_t state = (size_t)(n->layer.n_batch * m), row = (size_t)m * sizeof(float);
    weft_rnn_dir s = {.d = d, .reverse = reverse};
    s.gate_x = input_gates(arena, n, d, &s.bias_rh);
    s.rt = transposed(arena, n->r + d * pitch * m, pitch, m);
    s.g = weft_arena_array(arena, (size_t)(n->layer.n_batch * pitch), sizeof *s.g);
    s.h = weft_arena_array(arena, state, sizeof *s.h);
    s.c = weft_arena_array(arena, state, sizeof *s.c);
    s.reset = weft_arena_array(arena, state, sizeof *s.reset);
    s.rh = weft_arena_array(arena, state, sizeof *s.rh);
    for (int64_t b = 0; b < n->layer.n_batch; b++) {
        if (n->h0)
            memcpy(s.h + b * m, n->h0 + weft_rnn_state_row(&n->layer, d, b) * m, row);
        if (n->c0)
            memcpy(s.c + b * m, n->c0 + weft_rnn_state_row(&n->layer, d, b) * m, row);
    }
    for (int64_t at = 0; at < n->layer.n_step; at++)
        run_step(n, &s, at);
    for (int64_t b = 0; b < n->layer.n_batch; b++) {
        if (length_of(n, b) == 0)
            continue; /* 0 */
        if (n->y_h)
            memcpy(n->y_h + weft_rnn_state_row(&n->layer, d, b) * m, s.h + b * m, row);
        if (n->y_c)
            memcpy(n->y_c + weft_rnn_state_row(&n->layer, d, b) * m, s.c + b * m, row);
    }
}

/* Operand `in` as floats after a check of its number of elements; NULL when omitted. */
static weft_err get_operand(weft_eval_ctx *cx, uint32_t in, int64_t numel, const float **out)
{
    const weft_tensor *t = weft_eval__in(cx, in);
    *out = NULL;
    if (!t)
        return WEFT_ERR_OK;
    if (weft_tensor_numel(t) != numel)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand %u has %lld elements, expected %lld", in,
                         (long long)weft_tensor_numel(t), (long long)numel);
    *out = weft_eval__f32(cx, t);
    return WEFT_ERR_OK;
}

/* As get_operand, for bytes whose rows have scale and zero point in operands scale and scale + 1.
 */
static weft_err get_bytes(weft_eval_ctx *cx, uint32_t in, uint32_t scale, int64_t rows,
                          int64_t cols, const float **out)
{
    const float *x, *s, *z;
    WEFT_TRY(get_operand(cx, in, rows * cols, &x));
    WEFT_TRY(get_operand(cx, scale, rows, &s));
    WEFT_TRY(get_operand(cx, scale + 1, rows, &z));
    if (!x || !s || !z)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "a scale or zero point is missing");
    float *y = weft_arena_array(cx->scratch, (size_t)(rows * cols) + 1, sizeof *y);
    for (int64_t i = 0; i < rows * cols; i++)
        y[i] = (x[i] - z[i / cols]) * s[i / cols];
    *out = y;
    return WEFT_ERR_OK;
}

static weft_err get_factors(weft_eval_ctx *cx, weft_rnn *n)
{
    const weft_rnn_layer *l = &n->layer;
    int64_t gates = l->n_dir * (int64_t)l->cell * l->h, n_x = l->n_step * l->n_batch * l->n_in;
    WEFT_TRY(get_operand(cx, 0, n_x, &n->x));
    if (!l->quantize_state) {
        WEFT_TRY(get_operand(cx, 1, gates * l->n_in, &n->w));
        return get_operand(cx, 2, gates * l->h, &n->r);
    }
    float *x = weft_arena_array(cx->scratch, (size_t)n_x + 1, sizeof *x);
    int64_t longest = 0;
    for (int64_t b = 0; b < l->n_batch; b++)
        longest = longest < length_of(n, b) ? length_of(n, b) : longest;
    weft_quantize__by_range(x, n->x, longest * l->n_batch * l->n_in);
    n->x = x;
    WEFT_TRY(get_bytes(cx, 1, WEFT_LSTM_W_SCALE, gates, l->n_in, &n->w));
    return get_bytes(cx, 2, WEFT_LSTM_R_SCALE, gates, l->h, &n->r);
}

static weft_err get_lens(weft_eval_ctx *cx, weft_rnn *n)
{
    const weft_tensor *t = weft_eval__in(cx, 4);
    if (!t)
        return WEFT_ERR_OK;
    if (weft_tensor_numel(t) != n->layer.n_batch)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%lld lengths for %lld sequences",
                         (long long)weft_tensor_numel(t), (long long)n->layer.n_batch);
    n->lens = weft_eval__i64(cx, t);
    for (int64_t b = 0; b < n->layer.n_batch; b++)
        if (n->lens[b] < 0 || n->lens[b] > n->layer.n_step)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "length %lld of %lld steps", (long long)n->lens[b],
                             (long long)n->layer.n_step);
    return WEFT_ERR_OK;
}

static weft_err get_rnn(weft_eval_ctx *cx, weft_rnn *n)
{
    if (!weft_rnn_layer_read(cx->op->id, cx->attrs, cx->in[0], cx->in[2], &n->layer))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "ranks, directions or activations are wrong");
    const weft_rnn_layer *l = &n->layer;
    int64_t gates = l->n_dir * (int64_t)l->cell * l->h, state = l->n_dir * l->n_batch * l->h;
    WEFT_TRY(get_lens(cx, n));
    WEFT_TRY(get_factors(cx, n));
    WEFT_TRY(get_operand(cx, WEFT_RNN_BIAS, 2 * gates, &n->bias));
    WEFT_TRY(get_operand(cx, WEFT_RNN_H0, state, &n->h0));
    if (l->cell == WEFT_CELL_LSTM) {
        WEFT_TRY(get_operand(cx, WEFT_LSTM_C0, state, &n->c0));
        WEFT_TRY(get_operand(cx, WEFT_LSTM_PEEP, l->n_dir * 3 * l->h, &n->peep));
    }
    return WEFT_ERR_OK;
}

weft_err weft_eval_recurrent(weft_eval_ctx *cx)
{
    weft_rnn n = {0};
    float *buf[3] = {NULL};
    WEFT_TRY(get_rnn(cx, &n));
    const weft_rnn_layer *l = &n.layer;
    for (uint32_t o = 0; o < cx->n_out && o < 3; o++) {
        int64_t want = l->n_dir * l->n_batch * l->h * (o == 0 ? l->n_step : 1);
        if (!weft_eval__out(cx, o))
            continue;
        if (weft_tensor_numel(&cx->out[o]) != want)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "result %u has the wrong size", o);
        buf[o] = weft_arena_array(cx->scratch, (size_t)want, sizeof(float));
    }
    n.y = buf[0];
    n.y_h = buf[1];
    n.y_c = buf[2];
    for (int64_t d = 0; d < l->n_dir; d++) {
        n.act = l->act[d];
        run_direction(cx->scratch, &n, d, weft_rnn_is_reverse(l, d));
    }
    for (uint32_t o = 0; o < cx->n_out && o < 3; o++)
        if (buf[o])
            weft_eval__store_f32(&cx->out[o], 0, 1, weft_tensor_numel(&cx->out[o]), buf[o]);
    return WEFT_ERR_OK;
}
