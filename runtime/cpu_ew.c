/* Element-wise programs.
 *
 * The result is walked in the order of its memory, in blocks that fit the first-level cache; each
 * step runs over the whole block before the next. Operands that lie like the result are read where
 * they are; a broadcast one is read in place while a block stays inside one of its runs, else it is
 * laid out in a buffer, which is kept as long as it does not change:
 *
 *   result  [n][c/16][h*w][16]     unit = h*w*16, blocks never cross a unit
 *   scale   [ ][c/16][   ][16]     period 16: the buffer is filled once a unit
 */
#include "base/f16.h"
#include "runtime/cpu_int.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 1024, BUFFERS = 24, OPERANDS = 16, DIMS = WEFT_RANK_MAX + 1, SHORT_RUN = 64 };

typedef struct ew_operand {
    uint32_t arg;
    uint8_t dtype;
    bool flat;   /* lies like the result */
    bool single; /* one element */
    int64_t stride[DIMS];
    float *own; /* constant laid out at preparation, or NULL */
} ew_operand;

typedef enum ew_source { EW_OPERAND, EW_BUFFER, EW_NUMBER } ew_source;

typedef struct ew_step {
    weft_vec_step fn;
    uint32_t n_args;
    ew_source from[WEFT_STEP_ARGS_MAX];
    uint32_t idx[WEFT_STEP_ARGS_MAX];
    uint32_t dst; /* buffer, or BUFFERS: the result */
} ew_step;

struct weft_cpu_ew {
    const weft_cpu_vec *vec;
    uint32_t threads, out_arg;
    uint8_t out_dtype;
    int64_t dim[DIMS]; /* of the result in memory, merged */
    int32_t rank;
    int64_t n, unit, block, block_per_unit;
    uint32_t n_operand, n_step, n_number, n_buffer;
    ew_operand operand[OPERANDS];
    ew_step step[WEFT_STEPS_MAX];
    float number[BUFFERS];
    /* Lanes of the last channel block to zero: images, its plane, a group, lanes; in elements. */
    int64_t pad_every, pad_plane, pad_block, pad_lanes;
    double cost_ns;
    /* Set when the program is one x * scale + shift by channels. */
    void (*affine)(float *y, const float *x, const float *scale, const float *shift, size_t n);
    void *const *arg; /* of the run */
};

/* -- Reading operands ----------------------------------------------------------------------- */

static float element(const void *p, uint8_t dtype, int64_t i)
{
    switch (dtype) {
    case WEFT_DTYPE_F32:
        return ((const float *)p)[i];
    case WEFT_DTYPE_F64:
        return (float)((const double *)p)[i];
    case WEFT_DTYPE_F16:
        return weft_f16_to_f32(((const uint16_t *)p)[i]);
    case WEFT_DTYPE_BF16:
        return weft_bf16_to_f32(((const uint16_t *)p)[i]);
    default:
        return ((const uint8_t *)p)[i] ? 1.0f : 0.0f;
    }
}

static void copy_run(float *dst, const void *src, uint8_t dtype, int64_t at, int64_t stride,
                     int64_t n)
{
    if (dtype == WEFT_DTYPE_F32 && stride == 1) {
        const float *s = (const float *)src + at;
        if (n == 16)
            memcpy(dst, s, 16 * sizeof *dst);
        else
            memcpy(dst, s, (size_t)n * sizeof *dst);
        return;
    }
    if (stride == 0) {
        float x = element(src, dtype, at);
        for (int64_t i = 0; i < n; i++)
            dst[i] = x;
        return;
    }
    for (int64_t i = 0; i < n; i++)
        dst[i] = element(src, dtype, at + i * stride);
}

/* Elements [from, from + n) of the result's order. */
static void lay_out(const weft_cpu_ew *ew, const ew_operand *o, const void *src, int64_t from,
                    int64_t n, float *dst)
{
    int64_t idx[DIMS], at = 0, left = from;
    int32_t last = ew->rank - 1;
    for (int32_t d = last; d >= 0; d--) {
        idx[d] = left % ew->dim[d];
        left /= ew->dim[d];
        at += idx[d] * o->stride[d];
    }
    while (n > 0) {
        int64_t run = ew->dim[last] - idx[last];
        run = run < n ? run : n;
        copy_run(dst, src, o->dtype, at, o->stride[last], run);
        dst += run;
        n -= run;
        at += run * o->stride[last];
        idx[last] += run;
        for (int32_t d = last; d > 0 && idx[d] == ew->dim[d]; d--) {
            at += o->stride[d - 1] - idx[d] * o->stride[d];
            idx[d] = 0;
            idx[d - 1]++;
        }
    }
}

/* Offset of element `from`, and whether n elements from it are one run. */
static bool find_run(const weft_cpu_ew *ew, const ew_operand *o, int64_t from, int64_t n,
                     int64_t *out_at)
{
    int64_t at = 0, left = from, inner = left % ew->dim[ew->rank - 1];
    for (int32_t d = ew->rank - 1; d >= 0; d--) {
        at += left % ew->dim[d] * o->stride[d];
        left /= ew->dim[d];
    }
    *out_at = at;
    return inner + n <= ew->dim[ew->rank - 1];
}

/* -- Running -------------------------------------------------------------------------------- */

typedef struct ew_part {
    float buffer[BUFFERS][BLOCK];
    /* What an operand's buffer holds: the address it starts at; NULL nothing. */
    const void *held[OPERANDS];
    int64_t held_n[OPERANDS];
    const float *at[OPERANDS];
} ew_part;

static const float *read_operand(const weft_cpu_ew *ew, ew_part *part, uint32_t i, int64_t from,
                                 int64_t n)
{
    const ew_operand *o = &ew->operand[i];
    const void *src = o->own ? o->own : ew->arg[o->arg];
    float *buffer = part->buffer[BUFFERS - 1 - i];
    int64_t at = 0;

    if (o->flat && o->dtype == WEFT_DTYPE_F32)
        return (const float *)src + from;
    if (o->single) {
        if (part->held_n[i] < n)
            copy_run(buffer, src, o->dtype, 0, 0, n);
        part->held_n[i] = n > part->held_n[i] ? n : part->held_n[i];
        return buffer;
    }
    int64_t last = o->stride[ew->rank - 1];
    bool run = find_run(ew, o, from, n, &at);
    if (run && last == 1 && o->dtype == WEFT_DTYPE_F32)
        return (const float *)src + at;
    const void *start = (const char *)src + (size_t)at * weft_dtype_size(o->dtype);
    bool repeats = (run && last == 0) ||
                   (ew->rank >= 2 && ew->unit == ew->dim[ew->rank - 1] * ew->dim[ew->rank - 2] &&
                    o->stride[ew->rank - 2] == 0 && from % ew->dim[ew->rank - 1] == 0);
    if (!repeats || part->held[i] != start || part->held_n[i] < n) {
        lay_out(ew, o, src, from, n, buffer);
        part->held[i] = repeats ? start : NULL;
        part->held_n[i] = n;
    }
    return buffer;
}

static void store_result(const weft_cpu_ew *ew, const float *src, int64_t from, int64_t n)
{
    void *out = ew->arg[ew->out_arg];
    if (ew->out_dtype == WEFT_DTYPE_F16)
        weft_f16_from_f32_array(src, (uint16_t *)out + from, (size_t)n);
    else if (ew->out_dtype == WEFT_DTYPE_BF16)
        weft_bf16_from_f32_array(src, (uint16_t *)out + from, (size_t)n);
    else if (ew->out_dtype == WEFT_DTYPE_F64)
        for (int64_t i = 0; i < n; i++)
            ((double *)out)[from + i] = src[i];
}

static void run_block(const weft_cpu_ew *ew, ew_part *part, int64_t from, int64_t n)
{
    bool direct = ew->out_dtype == WEFT_DTYPE_F32;
    float *out = direct ? (float *)ew->arg[ew->out_arg] + from : part->buffer[ew->n_buffer];

    for (uint32_t i = 0; i < ew->n_operand; i++)
        part->at[i] = read_operand(ew, part, i, from, n);
    for (uint32_t s = 0; s < ew->n_step; s++) {
        const ew_step *step = &ew->step[s];
        const float *arg[WEFT_STEP_ARGS_MAX] = {0};
        for (uint32_t k = 0; k < step->n_args; k++)
            arg[k] =
                step->from[k] == EW_OPERAND ? part->at[step->idx[k]] : part->buffer[step->idx[k]];
        step->fn(step->dst == BUFFERS ? out : part->buffer[step->dst], arg, (size_t)n);
    }
    if (!direct)
        store_result(ew, out, from, n);
}

static void run_blocks(void *cx, int64_t begin, int64_t end)
{
    const weft_cpu_ew *ew = cx;
    ew_part part;
    memset(part.held, 0, sizeof part.held);
    memset(part.held_n, 0, sizeof part.held_n);
    /* Numbers lie in the buffers behind those of steps. */
    for (uint32_t i = 0; i < ew->n_number; i++)
        for (int64_t k = 0; k < ew->block; k++)
            part.buffer[ew->n_buffer + 1 + i][k] = ew->number[i];
    for (int64_t i = begin; i < end; i++) {
        int64_t start = i % ew->block_per_unit * ew->block;
        int64_t n = ew->unit - start < ew->block ? ew->unit - start : ew->block;
        run_block(ew, &part, i / ew->block_per_unit * ew->unit + start, n);
    }
}

/* Lanes behind the last channel stay zero: convolutions read them. */
static void zero_pad(const weft_cpu_ew *ew)
{
    char *out = ew->arg[ew->out_arg];
    size_t size = weft_dtype_size(ew->out_dtype), lanes = (size_t)ew->pad_lanes * size;
    for (int64_t end = ew->pad_every; end <= ew->n; end += ew->pad_every)
        for (int64_t i = end - ew->pad_plane; i < end; i += ew->pad_block)
            memset(out + (size_t)(i + ew->pad_block - ew->pad_lanes) * size, 0, lanes);
}

/* One step, x * scale + shift by channels of a blocked layout: a unit at a time. */
static void run_affine(void *cx, int64_t begin, int64_t end)
{
    const weft_cpu_ew *ew = cx;
    const ew_operand *o[3];
    const float *base[3];
    for (int k = 0; k < 3; k++) {
        o[k] = &ew->operand[ew->step[0].idx[k]];
        base[k] = o[k]->own ? o[k]->own : ew->arg[o[k]->arg];
    }
    float *out = ew->arg[ew->out_arg];
    for (int64_t u = begin; u < end; u++) {
        int64_t from = u * ew->unit, scale, shift;
        (void)find_run(ew, o[1], from, 1, &scale);
        (void)find_run(ew, o[2], from, 1, &shift);
        ew->affine(out + from, base[0] + from, base[1] + scale, base[2] + shift, (size_t)ew->unit);
    }
}

void weft_cpu__ew_run(weft_cpu_ew *ew, void *const *arg)
{
    ew->arg = arg;
    if (ew->affine) {
        weft_par_for(ew->threads, ew->n / ew->unit, ew->cost_ns * (double)ew->unit, run_affine, ew);
        if (ew->pad_lanes)
            zero_pad(ew);
        return;
    }
    weft_par_for(ew->threads, ew->n / ew->unit * ew->block_per_unit,
                 ew->cost_ns * (double)(ew->block < ew->unit ? ew->block : ew->unit), run_blocks,
                 ew);
    if (ew->pad_lanes)
        zero_pad(ew);
}

static weft_err run_ew(void *state, void *const *arg)
{
    weft_cpu__ew_run(state, arg);
    return WEFT_ERR_OK;
}

void weft_cpu__ew_destroy(weft_cpu_ew *ew)
{
    if (!ew)
        return;
    for (uint32_t i = 0; i < ew->n_operand; i++)
        free(ew->operand[i].own);
    free(ew);
}

static void destroy_ew(void *state)
{
    weft_cpu__ew_destroy(state);
}

/* -- Preparing ------------------------------------------------------------------------------ */

/* The order of the result's memory: `axis` is the logical dimension of each loop. */
typedef struct ew_order {
    int32_t rank;
    int64_t dim[DIMS];
    int32_t axis[DIMS];
    int64_t step[DIMS]; /* of the axis: 16 for blocks of channels */
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

/* Element strides of the loops in an operand of the result's own (not plain) layout. */
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

/* A constant with one element a channel, padded to whole blocks. */
static bool pad_channels(const weft_slot *in, const weft_slot *out, const ew_order *o,
                         ew_operand *to)
{
    int64_t channels = out->tensor.dim[1], block = weft_layout_block(out->layout);
    int64_t n = (channels + block - 1) / block * block;
    if (!in->weight || weft_slot_numel(in) != channels)
        return false;
    to->own = calloc((size_t)n, sizeof *to->own);
    if (!to->own)
        return false;
    for (int64_t i = 0; i < channels; i++)
        to->own[i] = element(in->tensor.data, to->dtype, i);
    to->dtype = WEFT_DTYPE_F32;
    for (int32_t l = 0; l < o->rank; l++)
        to->stride[l] = o->axis[l] == 1 ? o->step[l] : 0;
    return true;
}

static bool dtype_fits(uint8_t dtype)
{
    return weft_dtype_is_float(dtype) || dtype == WEFT_DTYPE_BOOL;
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

/* Number of the operand of `ew` that reads in[i] (or the accumulator: arg), or UINT32_MAX. */
static uint32_t add_operand(weft_prep *p, weft_cpu_ew *ew, uint32_t i, const ew_order *o)
{
    for (uint32_t k = 0; k < ew->n_operand; k++)
        if (ew->operand[k].arg == i)
            return k;
    if (ew->n_operand == OPERANDS)
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
        to->idx[k] = idx; /* a step, until buffers are given out */
        return idx < s;
    }
    if (kind == WEFT_ARG_NUMBER) {
        to->from[k] = EW_NUMBER;
        for (to->idx[k] = 0; to->idx[k] < ew->n_number; to->idx[k]++)
            if (memcmp(&ew->number[to->idx[k]], &step[s].arg[k].number, sizeof(float)) == 0)
                return true;
        if (ew->n_number == BUFFERS)
            return false;
        ew->number[ew->n_number++] = step[s].arg[k].number;
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

/* Argument of step s that is the result of `from`, read nowhere else; UINT32_MAX when there is
 * none. */
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

/* Drops step s, whose work step s + 1 has taken over. */
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

/* Buffers for step results, each given back after its last use. */
static bool give_buffers(weft_cpu_ew *ew)
{
    uint32_t last[WEFT_STEPS_MAX] = {0}, at[WEFT_STEPS_MAX] = {0};
    bool busy[BUFFERS] = {false};
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
            step->dst = BUFFERS;
            break;
        }
        uint32_t b = 0;
        while (b < BUFFERS && busy[b])
            b++;
        if (b == BUFFERS)
            return false;
        busy[b] = true;
        step->dst = at[s] = b;
        ew->n_buffer = b + 1 > ew->n_buffer ? b + 1 : ew->n_buffer;
    }
    /* Numbers lie behind the steps' buffers and the one for converted results. */
    for (uint32_t s = 0; s < ew->n_step; s++)
        for (uint32_t k = 0; k < ew->step[s].n_args; k++)
            if (ew->step[s].from[k] == EW_NUMBER)
                ew->step[s].idx[k] += ew->n_buffer + 1;
    return ew->n_buffer + 1 + ew->n_number + ew->n_operand <= BUFFERS;
}

/* Merges loops that all operands walk as one, drops those of one turn. */
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
    ew->block = BLOCK;
    if (inner < SHORT_RUN)
        ew->block = BLOCK / inner * inner;
    if (ew->block > ew->unit)
        ew->block = ew->unit;
    ew->block_per_unit = (ew->unit + ew->block - 1) / ew->block;
}

/* x lies like the result; scale and shift change with the channel only. */
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
        bool lies = k == 0 ? o->flat
                           : !o->flat && !o->single && o->stride[ew->rank - 1] == 1 &&
                                 o->stride[ew->rank - 2] == 0;
        if (!lies || o->dtype != WEFT_DTYPE_F32)
            return;
    }
    ew->affine = relu ? ew->vec->affine16_relu : ew->vec->affine16;
}

static void set_padding(weft_cpu_ew *ew, const weft_slot *out)
{
    int64_t block = weft_layout_block(out->layout);
    if (block == 1 || out->tensor.rank < 2 || out->tensor.dim[1] % block == 0)
        return;
    int64_t plane = weft_slot_count(out, 2, out->tensor.rank) * block;
    ew->pad_block = block;
    ew->pad_plane = plane;
    ew->pad_every = plane * ((out->tensor.dim[1] + block - 1) / block);
    ew->pad_lanes = block - out->tensor.dim[1] % block;
}

static bool init_ew(weft_prep *p, const weft_step *step, uint32_t n_step, bool acc, weft_cpu_ew *ew)
{
    static const float cheap_ns = 0.15f, heavy_ns = 1.0f;
    const weft_slot *out = &p->out[0];
    ew_order order;

    ew->vec = weft_cpu__of(p)->vec;
    ew->threads = weft_cpu__of(p)->threads;
    ew->out_arg = p->n_in;
    ew->out_dtype = (uint8_t)out->tensor.dtype;
    ew->n = weft_slot_stored(out);
    ew->n_step = n_step;
    order_of(out, &order);
    for (uint32_t s = 0; s < n_step; s++) {
        ew->step[s].fn = ew->vec->step[step[s].op];
        ew->step[s].n_args = step[s].n_args;
        bool heavy = step[s].op >= WEFT_STEP_SIGMOID && step[s].op <= WEFT_STEP_LOG;
        ew->cost_ns += heavy ? heavy_ns : cheap_ns;
        if (!ew->step[s].fn)
            return false;
        for (uint32_t k = 0; k < step[s].n_args; k++)
            if (!set_arg(p, ew, step, s, k, acc, &order))
                return false;
    }
    ew->cost_ns += (double)(ew->n_operand + 1) * 0.1;
    merge_steps(ew);
    if (!give_buffers(ew))
        return false;
    merge_loops(ew, &order);
    choose_blocks(ew);
    find_affine(ew);
    set_padding(ew, out);
    return true;
}

weft_err weft_cpu__ew_create(weft_prep *p, const weft_step *step, uint32_t n_step, bool acc,
                             weft_cpu_ew **out)
{
    *out = NULL;
    if (p->n_out != 1 || n_step == 0 || n_step > WEFT_STEPS_MAX ||
        !weft_dtype_is_float(p->out[0].tensor.dtype) ||
        (acc && p->out[0].tensor.dtype != WEFT_DTYPE_F32))
        return WEFT_ERR_OK;
    weft_cpu_ew *ew = calloc(1, sizeof *ew);
    if (!ew)
        return WEFT_ERR_NOMEM;
    if (init_ew(p, step, n_step, acc, ew))
        *out = ew;
    else
        weft_cpu__ew_destroy(ew);
    return WEFT_ERR_OK;
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
