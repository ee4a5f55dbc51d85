/* Preparing element-wise programs: loops over the result's memory, strides of the operands, buffers
 * for steps, and the block size. cpu_ew.c runs them. */
#include "runtime/cpu/cpu_ew_int.h"
#include "runtime/cpu/cpu_memory.h"

#include <stdlib.h>
#include <string.h>

/* Runs of operands that are shorter are expanded, so that blocks are long. */
enum { SHORT_RUN = 512 };

/* -- Loops ---------------------------------------------------------------------------------- */

/* Loops over the result's memory; axis[l] is the logical dim of loop l. */
typedef struct ew_order {
    int32_t rank;
    int64_t dim[EW_DIMS];
    int32_t axis[EW_DIMS];
    int64_t step[EW_DIMS]; /* indices of the axis per iteration: 16 for loops over channel blocks */
} ew_order;

static void push_loop(ew_order *o, int64_t dim, int32_t axis, int64_t step)
{
    o->dim[o->rank] = dim;
    o->axis[o->rank] = axis;
    o->step[o->rank++] = step;
}

static void order_of(const weft_slot *s, ew_order *o)
{
    const weft_tensor *t = &s->tensor;
    int64_t block = weft_layout_block(s->layout);
    o->rank = 0;
    if (s->layout == WEFT_LAYOUT_PLAIN || t->rank < 2) {
        for (int32_t d = 0; d < t->rank; d++)
            push_loop(o, t->dim[d], d, 1);
        if (o->rank == 0)
            push_loop(o, 1, 0, 1);
        return;
    }
    push_loop(o, t->dim[0], 0, 1);
    if (block > 1)
        push_loop(o, (t->dim[1] + block - 1) / block, 1, block);
    for (int32_t d = 2; d < t->rank; d++)
        push_loop(o, t->dim[d], d, 1);
    push_loop(o, block > 1 ? block : t->dim[1], 1, 1);
}

/* Element strides of the loops in an operand that has the result's blocked layout. */
static bool blocked_strides(const weft_slot *in, const weft_slot *out, const ew_order *o,
                            int64_t *stride)
{
    ew_order mine;
    int64_t at = 1;
    if (in->tensor.rank != out->tensor.rank || in->tensor.dim[1] != out->tensor.dim[1])
        return false;
    order_of(in, &mine);
    for (int32_t l = o->rank - 1; l >= 0; l--) {
        stride[l] = mine.dim[l] == 1 ? 0 : at;
        if (mine.dim[l] != 1 && mine.dim[l] != o->dim[l])
            return false;
        at *= mine.dim[l];
    }
    return true;
}

/* Element strides of the loops in a plain operand, broadcast to the result. */
static bool plain_strides(const weft_slot *in, const weft_slot *out, const ew_order *o,
                          int64_t *stride)
{
    int64_t of_axis[WEFT_RANK_MAX + 1] = {0}, at = 1;
    int32_t shift = out->tensor.rank - in->tensor.rank;
    if (shift < 0)
        return false;
    for (int32_t d = in->tensor.rank - 1; d >= 0; d--) {
        if (in->tensor.dim[d] != 1 && in->tensor.dim[d] != out->tensor.dim[d + shift])
            return false;
        of_axis[d + shift] = in->tensor.dim[d] == 1 ? 0 : at;
        at *= in->tensor.dim[d];
    }
    for (int32_t l = 0; l < o->rank; l++)
        stride[l] = of_axis[o->axis[l]] * o->step[l];
    return true;
}

/* A constant with one element per channel, padded to whole blocks. */
static bool pad_channels(const weft_slot *in, const weft_slot *out, const ew_order *o,
                         ew_operand *to)
{
    int64_t channels = out->tensor.dim[1], block = weft_layout_block(out->layout);
    int64_t n = (channels + block - 1) / block * block;
    if (!in->weight || weft_slot_numel(in) != channels)
        return false;
    to->own = weft_cpu__calloc((size_t)n, sizeof *to->own);
    if (!to->own)
        return false;
    for (int64_t i = 0; i < channels; i++)
        to->own[i] = weft_ew__element(in->tensor.data, to->dtype, i);
    to->dtype = WEFT_DTYPE_F32;
    for (int32_t l = 0; l < o->rank; l++)
        to->stride[l] = o->axis[l] == 1 ? o->step[l] : 0;
    return true;
}

static bool dtype_fits(uint8_t dtype)
{
    return (weft_dtype_is_float(dtype) && !weft_dtype_is_narrow(dtype)) ||
           dtype == WEFT_DTYPE_BOOL || dtype == WEFT_DTYPE_U8 || dtype == WEFT_DTYPE_I8;
}

static bool set_operand(weft_prep *p, uint32_t i, const ew_order *o, ew_operand *to)
{
    const weft_slot *in = &p->in[i], *out = &p->out[0];
    if (i >= p->n_in || !in->present || !dtype_fits(in->tensor.dtype))
        return false;
    to->arg = i;
    to->dtype = (uint8_t)in->tensor.dtype;
    if (weft_slot_numel(in) == 1 && in->layout == WEFT_LAYOUT_PLAIN) {
        to->single = true;
        return true;
    }
    if (in->layout == out->layout && weft_slot_same_dims(in, out)) {
        to->flat = true;
        int64_t at = 1;
        for (int32_t l = o->rank - 1; l >= 0; at *= o->dim[l], l--)
            to->stride[l] = at;
        return true;
    }
    if (in->layout != WEFT_LAYOUT_PLAIN)
        return in->layout == out->layout && blocked_strides(in, out, o, to->stride);
    if (!plain_strides(in, out, o, to->stride))
        return false;
    bool by_channel = false;
    for (int32_t l = 0; l < o->rank; l++)
        by_channel = by_channel || (o->axis[l] == 1 && to->stride[l]);
    if (weft_layout_block(out->layout) > 1 && by_channel &&
        out->tensor.dim[1] % weft_layout_block(out->layout) != 0)
        return pad_channels(in, out, o, to);
    return true;
}

/* Index of the operand of `ew` that reads in[i] (or the accumulator: argument arg); UINT32_MAX:
 * failed. */
static uint32_t add_operand(weft_prep *p, weft_cpu_ew *ew, uint32_t i, const ew_order *o)
{
    for (uint32_t k = 0; k < ew->n_operand; k++)
        if (ew->operand[k].arg == i)
            return k;
    if (ew->n_operand == EW_OPERANDS)
        return UINT32_MAX;
    ew_operand *to = &ew->operand[ew->n_operand];
    memset(to, 0, sizeof *to);
    if (i == ew->out_arg) {
        to->arg = i;
        to->dtype = WEFT_DTYPE_F32;
        to->flat = true;
    } else if (!set_operand(p, i, o, to)) {
        return UINT32_MAX;
    }
    return ew->n_operand++;
}

static uint32_t add_number(weft_cpu_ew *ew, float x)
{
    for (uint32_t i = 0; i < ew->n_number; i++)
        if (memcmp(&ew->number[i], &x, sizeof x) == 0)
            return i;
    ew->number[ew->n_number] = x;
    return ew->n_number++;
}

static bool set_arg(weft_prep *p, weft_cpu_ew *ew, const weft_step *step, uint32_t s, uint32_t k,
                    bool acc, const ew_order *o)
{
    ew_step *to = &ew->step[s];
    weft_arg_kind kind = step[s].arg[k].kind;
    uint32_t idx = step[s].arg[k].idx;
    if (kind == WEFT_ARG_ACC && s > 0) {
        kind = WEFT_ARG_STEP;
        idx = s - 1;
    }
    if (kind == WEFT_ARG_STEP) {
        to->from[k] = EW_BUFFER;
        to->idx[k] = idx; /* index of a step, replaced by a buffer in give_buffers */
        return idx < s;
    }
    if (kind == WEFT_ARG_NUMBER) {
        to->from[k] = EW_NUMBER;
        to->idx[k] = add_number(ew, step[s].arg[k].number);
        return true;
    }
    if (kind == WEFT_ARG_ACC && !acc)
        return false;
    to->from[k] = EW_OPERAND;
    to->idx[k] = add_operand(p, ew, kind == WEFT_ARG_ACC ? ew->out_arg : idx, o);
    return to->idx[k] != UINT32_MAX;
}

static bool is_step(const weft_cpu_ew *ew, uint32_t s, weft_step_op op)
{
    return s < ew->n_step && ew->step[s].fn == ew->vec->step[op];
}

/* The argument of step s that is the result of step `from`, if nothing else reads that result; else
 * UINT32_MAX. */
static uint32_t only_use(const weft_cpu_ew *ew, uint32_t from, uint32_t s)
{
    uint32_t uses = 0, found = UINT32_MAX;
    for (uint32_t t = from + 1; t < ew->n_step; t++)
        for (uint32_t k = 0; k < ew->step[t].n_args; k++)
            if (ew->step[t].from[k] == EW_BUFFER && ew->step[t].idx[k] == from) {
                uses++;
                found = t == s ? k : found;
            }
    return uses == 1 ? found : UINT32_MAX;
}

/* Removes step s, which was merged into step s + 1. */
static void drop_step(weft_cpu_ew *ew, uint32_t s)
{
    memmove(&ew->step[s], &ew->step[s + 1], (ew->n_step - s - 1) * sizeof *ew->step);
    ew->n_step--;
    for (uint32_t t = s; t < ew->n_step; t++)
        for (uint32_t k = 0; k < ew->step[t].n_args; k++)
            if (ew->step[t].from[k] == EW_BUFFER && ew->step[t].idx[k] > s)
                ew->step[t].idx[k]--;
}

/* mul x y; add acc z; relu acc ==> one pass over the block. */
static void merge_steps(weft_cpu_ew *ew)
{
    for (uint32_t s = 0; s + 1 < ew->n_step; s++) {
        uint32_t k = only_use(ew, s, s + 1);
        ew_step *mul = &ew->step[s], *next = &ew->step[s + 1];
        if (k == UINT32_MAX || !is_step(ew, s, WEFT_STEP_MUL) || !is_step(ew, s + 1, WEFT_STEP_ADD))
            continue;
        next->from[2] = next->from[1 - k];
        next->idx[2] = next->idx[1 - k];
        memcpy(next->from, mul->from, 2 * sizeof *next->from);
        memcpy(next->idx, mul->idx, 2 * sizeof *next->idx);
        next->n_args = 3;
        next->fn = ew->vec->multiply_add;
        drop_step(ew, s);
        if (is_step(ew, s + 1, WEFT_STEP_RELU) && only_use(ew, s, s + 1) == 0) {
            ew->step[s + 1] = ew->step[s];
            ew->step[s + 1].fn = ew->vec->multiply_add_relu;
            drop_step(ew, s);
        }
    }
}

static bool is_number(const weft_cpu_ew *ew, uint32_t s, uint32_t k)
{
    return ew->step[s].from[k] == EW_NUMBER;
}

static bool is_value(const weft_cpu_ew *ew, uint32_t s, uint32_t k, float x)
{
    return is_number(ew, s, k) && ew->number[ew->step[s].idx[k]] == x;
}

/* div x scale; add acc zero; quantize acc 1 0 ==> quantisation that adds zero before rounding */
static void merge_quantize(weft_cpu_ew *ew)
{
    for (uint32_t s = 0; s + 2 < ew->n_step; s++) {
        ew_step *div = &ew->step[s], *add = div + 1, *last = div + 2;
        bool is_u8 = is_step(ew, s + 2, WEFT_STEP_QUANTIZE_U8);
        if (!is_step(ew, s, WEFT_STEP_DIV) || !is_step(ew, s + 1, WEFT_STEP_ADD) ||
            !(is_u8 || is_step(ew, s + 2, WEFT_STEP_QUANTIZE_I8)) || !is_number(ew, s, 1) ||
            !is_number(ew, s + 1, 1) || !is_value(ew, s + 2, 1, 1) || !is_value(ew, s + 2, 2, 0) ||
            only_use(ew, s, s + 1) != 0 || only_use(ew, s + 1, s + 2) != 0)
            continue;
        last->fn = is_u8 ? ew->vec->quantize_sum_u8_by : ew->vec->quantize_sum_i8_by;
        last->from[0] = div->from[0];
        last->idx[0] = div->idx[0];
        last->idx[1] = div->idx[1];
        last->idx[2] = add->idx[1];
        drop_step(ew, s);
        drop_step(ew, s);
    }
}

static bool same_number(const weft_cpu_ew *ew, uint32_t s, uint32_t t, uint32_t k)
{
    return is_number(ew, s, k) && is_number(ew, t, k) && ew->step[s].idx[k] == ew->step[t].idx[k];
}

/* quantize x scale zero; dequantize acc scale zero ==> one pass over the block */
static void merge_round_trip(weft_cpu_ew *ew)
{
    for (uint32_t s = 0; s + 1 < ew->n_step; s++) {
        bool is_u8 = is_step(ew, s, WEFT_STEP_QUANTIZE_U8);
        if (!(is_u8 || is_step(ew, s, WEFT_STEP_QUANTIZE_I8)) ||
            !is_step(ew, s + 1, WEFT_STEP_DEQUANTIZE) || only_use(ew, s, s + 1) != 0 ||
            !same_number(ew, s, s + 1, 1) || !same_number(ew, s, s + 1, 2))
            continue;
        ew->step[s + 1] = ew->step[s];
        ew->step[s + 1].fn = is_u8 ? ew->vec->round_trip_u8_by : ew->vec->round_trip_i8_by;
        drop_step(ew, s);
    }
}

/* Whether a function is for scalars only. */
static bool needs_scalars(const weft_cpu_vec *vec, weft_vec_step fn)
{
    return fn == vec->quantize_sum_u8_by || fn == vec->quantize_sum_i8_by ||
           fn == vec->round_trip_u8_by || fn == vec->round_trip_i8_by;
}

/* The function of a step whose arguments 1 and 2 are one float each; NULL: there is none. */
static weft_vec_step by_scalars(const weft_cpu_ew *ew, uint32_t s)
{
    const ew_step *step = &ew->step[s];
    for (uint32_t k = 1; k < step->n_args; k++)
        if (!is_number(ew, s, k))
            return NULL;
    if (needs_scalars(ew->vec, step->fn))
        return step->fn;
    for (uint32_t op = 0; op < WEFT_STEP_COUNT; op++)
        if (ew->vec->step_by[op] && step->fn == ew->vec->step[op])
            return ew->vec->step_by[op];
    return NULL;
}

/* Steps take numbers as scalars where they can; numbers that then have no use are dropped. */
static void use_scalars(weft_cpu_ew *ew)
{
    float number[EW_NUMBERS];
    memcpy(number, ew->number, sizeof number);
    ew->n_number = 0;
    for (uint32_t s = 0; s < ew->n_step; s++) {
        ew_step *step = &ew->step[s];
        weft_vec_step by = by_scalars(ew, s);
        step->fn = by ? by : step->fn;
        for (uint32_t k = 0; k < step->n_args; k++) {
            if (!is_number(ew, s, k))
                continue;
            float x = number[step->idx[k]];
            bool scalar = by && k > 0;
            step->from[k] = scalar ? EW_SCALAR : EW_NUMBER;
            step->idx[k] = scalar ? s : add_number(ew, x);
            ew->scalar[s][k] = x;
        }
    }
}

/* Assigns buffers to the results of steps; a buffer is free again after the last use of its value.
 */
static bool give_buffers(weft_cpu_ew *ew)
{
    uint32_t last[WEFT_STEPS_MAX] = {0}, at[WEFT_STEPS_MAX] = {0};
    bool busy[EW_BUFFERS] = {false};
    for (uint32_t s = 0; s < ew->n_step; s++)
        for (uint32_t k = 0; k < ew->step[s].n_args; k++)
            if (ew->step[s].from[k] == EW_BUFFER)
                last[ew->step[s].idx[k]] = s;
    for (uint32_t s = 0; s < ew->n_step; s++) {
        ew_step *step = &ew->step[s];
        for (uint32_t k = 0; k < step->n_args; k++) {
            if (step->from[k] != EW_BUFFER)
                continue;
            if (last[step->idx[k]] == s)
                busy[at[step->idx[k]]] = false;
            step->idx[k] = at[step->idx[k]];
        }
        if (s + 1 == ew->n_step) {
            step->dst = EW_BUFFERS;
            break;
        }
        uint32_t b = 0;
        while (b < EW_BUFFERS && busy[b])
            b++;
        if (b == EW_BUFFERS)
            return false;
        busy[b] = true;
        step->dst = at[s] = b;
        ew->n_buffer = b + 1 > ew->n_buffer ? b + 1 : ew->n_buffer;
    }
    /* Numbers follow the buffers of steps and the buffer for converted results. */
    for (uint32_t s = 0; s < ew->n_step; s++)
        for (uint32_t k = 0; k < ew->step[s].n_args; k++)
            if (ew->step[s].from[k] == EW_NUMBER)
                ew->step[s].idx[k] += ew->n_buffer + 1;
    return ew->n_buffer + 1 + ew->n_number + ew->n_operand <= EW_BUFFERS;
}

/* Merges neighbouring loops that are contiguous in all operands, and drops loops of one iteration.
 */
static void merge_loops(weft_cpu_ew *ew, const ew_order *o)
{
    int32_t n = 0;
    for (int32_t l = 0; l < o->rank; l++) {
        if (o->dim[l] == 1)
            continue;
        bool merge = n > 0;
        for (uint32_t i = 0; i < ew->n_operand && merge; i++) {
            const ew_operand *x = &ew->operand[i];
            merge = x->flat || x->single || x->stride[n - 1] == x->stride[l] * o->dim[l];
        }
        n -= merge;
        ew->dim[n] = merge ? ew->dim[n] * o->dim[l] : o->dim[l];
        for (uint32_t i = 0; i < ew->n_operand; i++)
            ew->operand[i].stride[n] = ew->operand[i].stride[l];
        n++;
    }
    if (n == 0)
        ew->dim[n++] = 1;
    ew->rank = n;
}

static void choose_blocks(weft_cpu_ew *ew)
{
    int64_t inner = ew->dim[ew->rank - 1];
    ew->unit = ew->n;
    for (uint32_t i = 0; i < ew->n_operand && ew->rank > 1; i++) {
        const ew_operand *x = &ew->operand[i];
        if (x->flat || x->single)
            continue;
        if (inner >= SHORT_RUN && x->stride[ew->rank - 1] <= 1)
            ew->unit = inner;
        else if (inner < SHORT_RUN && x->stride[ew->rank - 2] == 0)
            ew->unit = inner * ew->dim[ew->rank - 2];
    }
    ew->block = EW_BLOCK;
    if (inner < SHORT_RUN)
        ew->block = EW_BLOCK / inner * inner;
    if (ew->block > ew->unit)
        ew->block = ew->unit;
    ew->block_per_unit = (ew->unit + ew->block - 1) / ew->block;
}

/* Recognises x * scale + shift where x has the result's layout and scale and shift vary with the
 * channel only. */
static void find_affine(weft_cpu_ew *ew)
{
    ew_step *step = &ew->step[0];
    bool relu = step->fn == ew->vec->multiply_add_relu;
    if (ew->n_step != 1 || ew->rank < 2 || ew->dim[ew->rank - 1] != 16 ||
        ew->unit != 16 * ew->dim[ew->rank - 2] || ew->out_dtype != WEFT_DTYPE_F32 ||
        (!relu && step->fn != ew->vec->multiply_add))
        return;
    if (step->from[1] == EW_OPERAND && ew->operand[step->idx[1]].flat) {
        uint32_t x = step->idx[1];
        ew_source from = step->from[0];
        step->idx[1] = step->idx[0];
        step->from[1] = from;
        step->idx[0] = x;
        step->from[0] = EW_OPERAND;
    }
    for (uint32_t k = 0; k < 3; k++) {
        if (step->from[k] != EW_OPERAND)
            return;
        const ew_operand *o = &ew->operand[step->idx[k]];
        bool fits = k == 0 ? o->flat
                           : !o->flat && !o->single && o->stride[ew->rank - 1] == 1 &&
                                 o->stride[ew->rank - 2] == 0;
        if (!fits || o->dtype != WEFT_DTYPE_F32)
            return;
    }
    ew->affine = relu ? ew->vec->affine16_relu : ew->vec->affine16;
}

/* -- Functions of one byte ------------------------------------------------------------------ */

static bool gives_bytes(const weft_step *s)
{
    return (s->op == WEFT_STEP_QUANTIZE_U8 || s->op == WEFT_STEP_QUANTIZE_I8) &&
           s->arg[1].kind == WEFT_ARG_NUMBER && s->arg[2].kind == WEFT_ARG_NUMBER;
}

/* What a step costs more than a look-up in a table, roughly. */
static uint32_t cost_of(const weft_step *s)
{
    bool costly = s->op >= WEFT_STEP_SIGMOID && s->op <= WEFT_STEP_LOG;
    return costly ? 8 : s->op == WEFT_STEP_DIV || gives_bytes(s) ? 4 : 1;
}

/* Whether steps [from, n) read numbers, results of steps from `from` - 1 on, and, of the operands,
 * only `operand` (UINT32_MAX: none). */
static bool depends_on_one(const weft_step *step, uint32_t from, uint32_t n, uint32_t operand)
{
    for (uint32_t s = from; s < n; s++)
        for (uint32_t k = 0; k < step[s].n_args; k++) {
            uint32_t idx = step[s].arg[k].idx;
            switch (step[s].arg[k].kind) {
            case WEFT_ARG_INPUT:
                if (idx != operand)
                    return false;
                break;
            case WEFT_ARG_STEP:
                if (idx + 1 < from)
                    return false;
                break;
            case WEFT_ARG_ACC:
                if (s == 0)
                    return false;
                break;
            case WEFT_ARG_NUMBER:
                break;
            }
        }
    return true;
}

/* The result of steps [from, n) for byte x: what step `from` - 1 or the operand is. */
static float apply(const weft_step *step, uint32_t from, uint32_t n, float x)
{
    float value[WEFT_STEPS_MAX];
    for (uint32_t s = from; s < n; s++) {
        float arg[WEFT_STEP_ARGS_MAX] = {0};
        for (uint32_t k = 0; k < step[s].n_args; k++) {
            uint32_t idx = step[s].arg[k].kind == WEFT_ARG_ACC ? s - 1 : step[s].arg[k].idx;
            if (step[s].arg[k].kind == WEFT_ARG_NUMBER)
                arg[k] = step[s].arg[k].number;
            else if (step[s].arg[k].kind == WEFT_ARG_INPUT || idx + 1 == from)
                arg[k] = x;
            else
                arg[k] = value[idx];
        }
        value[s] = weft_step_apply(step[s].op, arg);
    }
    return value[n - 1];
}

static void fill_map(weft_cpu_ew *ew, const weft_step *step, uint32_t from, uint32_t n,
                     bool is_signed)
{
    ew->maps = true;
    for (int32_t i = 0; i < 256; i++) {
        float y = apply(step, from, n, is_signed ? (float)(int8_t)i : (float)i);
        ew->float_of[i] = y;
        ew->byte_of[i] = y > -129 && y < 256 ? (uint8_t)(int32_t)y : 0;
    }
}

/* Replaces the last steps by a table if they depend on one byte; returns the number of steps that
 * remain. Without steps operand 0 of ew is the byte. */
static uint32_t find_map(weft_prep *p, weft_cpu_ew *ew, const weft_step *step, uint32_t n,
                         const ew_order *order)
{
    enum { TABLE_COST = 12 };
    uint32_t cost = 0;
    const weft_step *last = &step[n - 1];
    bool bytes = ew->out_dtype == WEFT_DTYPE_U8 || ew->out_dtype == WEFT_DTYPE_I8;
    if ((!bytes && ew->out_dtype != WEFT_DTYPE_F32) || (bytes && !gives_bytes(last)))
        return n;
    for (uint32_t s = 0; s < n; s++)
        cost += cost_of(&step[s]);
    weft_dtype from = (weft_dtype)p->in[0].tensor.dtype;
    if (cost >= TABLE_COST && p->n_in == 1 && depends_on_one(step, 0, n, 0) &&
        (from == WEFT_DTYPE_U8 || from == WEFT_DTYPE_I8) && add_operand(p, ew, 0, order) == 0 &&
        ew->operand[0].flat) {
        fill_map(ew, step, 0, n, from == WEFT_DTYPE_I8);
        return 0;
    }
    for (uint32_t s = 0; s + 1 < n; s++) {
        cost -= cost_of(&step[s]);
        if (cost < TABLE_COST || !gives_bytes(&step[s]) ||
            !depends_on_one(step, s + 1, n, UINT32_MAX))
            continue;
        fill_map(ew, step, s + 1, n, step[s].op == WEFT_STEP_QUANTIZE_I8);
        return s + 1;
    }
    return n;
}

/* The last step quantises by one scale and zero point: it stores the bytes. */
static void find_quantize(weft_cpu_ew *ew)
{
    const weft_cpu_vec *vec = ew->vec;
    weft_vec_step fn = ew->step[ew->n_step - 1].fn;
    bool sums = fn == vec->quantize_sum_u8_by || fn == vec->quantize_sum_i8_by;
    bool is_u8 = fn == vec->quantize_sum_u8_by || fn == vec->step_by[WEFT_STEP_QUANTIZE_U8];
    bool is_i8 = fn == vec->quantize_sum_i8_by || fn == vec->step_by[WEFT_STEP_QUANTIZE_I8];
    if (!ew->maps) {
        is_u8 = is_u8 && ew->out_dtype == WEFT_DTYPE_U8;
        is_i8 = is_i8 && ew->out_dtype == WEFT_DTYPE_I8;
    }
    if (is_u8 || is_i8)
        ew->quantize = sums ? vec->quantize_sum : vec->quantize;
    ew->lo = is_u8 ? 0 : -128;
    ew->hi = is_u8 ? 255 : 127;
}

static bool init_ew(weft_prep *p, const weft_step *step, uint32_t n_step, bool acc, weft_cpu_ew *ew)
{
    static const float cheap_ns = 0.15f, costly_ns = 1.0f;
    const weft_slot *out = &p->out[0];
    ew_order order;

    ew->vec = weft_cpu__of(p)->vec;
    ew->threads = weft_cpu__of(p)->threads;
    ew->out_arg = p->n_in;
    ew->out_dtype = (uint8_t)out->tensor.dtype;
    ew->n = weft_cpu__slot_stored(out);
    ew->n_step = n_step;
    order_of(out, &order);
    if (!acc)
        n_step = ew->n_step = find_map(p, ew, step, n_step, &order);
    for (uint32_t s = 0; s < n_step; s++) {
        ew->step[s].fn = ew->vec->step[step[s].op];
        ew->step[s].n_args = step[s].n_args;
        bool costly = step[s].op >= WEFT_STEP_SIGMOID && step[s].op <= WEFT_STEP_LOG;
        ew->cost_ns += costly ? costly_ns : cheap_ns;
        if (!ew->step[s].fn)
            return false;
        for (uint32_t k = 0; k < step[s].n_args; k++)
            if (!set_arg(p, ew, step, s, k, acc, &order))
                return false;
    }
    ew->cost_ns += (double)(ew->n_operand + 1) * 0.1;
    merge_quantize(ew);
    merge_round_trip(ew);
    merge_steps(ew);
    use_scalars(ew);
    if (n_step > 0) {
        find_quantize(ew);
        if (!give_buffers(ew))
            return false;
    }
    merge_loops(ew, &order);
    choose_blocks(ew);
    find_affine(ew);
    ew->lanes = weft_cpu__lanes(out);
    return true;
}

weft_err weft_cpu__ew_create(weft_prep *p, const weft_step *step, uint32_t n_step, bool acc,
                             weft_cpu_ew **out)
{
    *out = NULL;
    if (p->n_out != 1 || n_step == 0 || n_step > WEFT_STEPS_MAX ||
        !dtype_fits(p->out[0].tensor.dtype) || p->out[0].tensor.dtype == WEFT_DTYPE_BOOL ||
        (acc && p->out[0].tensor.dtype != WEFT_DTYPE_F32))
        return WEFT_ERR_OK;
    weft_cpu_ew *ew = weft_cpu__calloc(1, sizeof *ew);
    if (!ew)
        return WEFT_ERR_NOMEM;
    if (init_ew(p, step, n_step, acc, ew))
        *out = ew;
    else
        weft_cpu__ew_destroy(ew);
    return WEFT_ERR_OK;
}

static weft_err run_ew(void *state, void *const *arg)
{
    weft_cpu__ew_run(state, arg);
    return WEFT_ERR_OK;
}

static void destroy_ew(void *state)
{
    weft_cpu__ew_destroy(state);
}

weft_err weft_cpu__prepare_ew(weft_prep *p)
{
    weft_step step[WEFT_STEPS_MAX];
    weft_cpu_ew *ew;
    const weft_attr *steps = weft_attrs_find(p->attrs, WEFT_ATTR_STEPS);
    if (!steps || steps->kind != WEFT_KIND_STRS || steps->n == 0 || steps->n > WEFT_STEPS_MAX)
        return WEFT_ERR_OK;
    WEFT_TRY(weft_steps_parse(steps->u.strs, steps->n, p->n_in, p->diag, p->where, step));
    WEFT_TRY(weft_cpu__ew_create(p, step, steps->n, false, &ew));
    if (!ew)
        return WEFT_ERR_OK;
    p->run = run_ew;
    p->state = ew;
    p->destroy = destroy_ew;
    p->variant = "ew";
    return WEFT_ERR_OK;
}
