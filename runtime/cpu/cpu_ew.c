/* Running element-wise programs.
 *
 * The result is computed in the order of its memory, in blocks that fit the L1 cache; each step
 * runs over a whole block before the next step. An operand in the layout of the result is read in
 * place. A broadcast operand is read in place while a block stays inside one of its contiguous
 * runs; otherwise it is expanded into a buffer, which is reused as long as its contents stay the
 * same:
 *
 *   result  [n][c/16][h*w][16]   unit = h*w*16, blocks never cross a unit
 *   scale      [c/16]     [16]   period 16: the buffer is filled once per unit */
#include "base/f16.h"
#include "runtime/cpu/cpu_ew_int.h"

#include <stdlib.h>
#include <string.h>

/* -- Reading operands ----------------------------------------------------------------------- */

float weft_ew__element(const void *p, uint8_t dtype, int64_t i)
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
    case WEFT_DTYPE_U8:
        return ((const uint8_t *)p)[i];
    case WEFT_DTYPE_I8:
        return ((const int8_t *)p)[i];
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
        float x = weft_ew__element(src, dtype, at);
        for (int64_t i = 0; i < n; i++)
            dst[i] = x;
        return;
    }
    for (int64_t i = 0; i < n; i++)
        dst[i] = weft_ew__element(src, dtype, at + i * stride);
}

/* Expands elements [from, from + n), in the result's order, of an operand into a buffer. */
static void lay_out(const weft_cpu_ew *ew, const ew_operand *o, const void *src, int64_t from,
                    int64_t n, float *dst)
{
    int64_t idx[EW_DIMS], at = 0, left = from;
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

/* Offset of element `from` in the operand, and whether n elements from there are contiguous. */
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

static const float *read_operand(const weft_cpu_ew *ew, weft_ew_part *part, uint32_t i,
                                 int64_t from, int64_t n)
{
    const ew_operand *o = &ew->operand[i];
    const void *src = o->own ? o->own : ew->arg[o->arg];
    float *buffer = part->buffer[EW_BUFFERS - 1 - i];
    int64_t at = 0;

    if (o->flat && o->dtype == WEFT_DTYPE_F32)
        return (const float *)src + from;
    if (o->flat && o->dtype == WEFT_DTYPE_U8) {
        ew->vec->from_u8(buffer, (const uint8_t *)src + from, (size_t)n);
        return buffer;
    }
    if (o->flat && o->dtype == WEFT_DTYPE_I8) {
        ew->vec->from_i8(buffer, (const int8_t *)src + from, (size_t)n);
        return buffer;
    }
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
    else if (ew->out_dtype == WEFT_DTYPE_U8 || ew->out_dtype == WEFT_DTYPE_I8)
        ew->vec->to_bytes((uint8_t *)out + from, src, (size_t)n);
    else if (ew->out_dtype == WEFT_DTYPE_F64)
        for (int64_t i = 0; i < n; i++)
            ((double *)out)[from + i] = src[i];
}

static const float *argument(const weft_cpu_ew *ew, const weft_ew_part *part, const ew_step *step,
                             uint32_t k)
{
    switch (step->from[k]) {
    case EW_OPERAND:
        return part->at[step->idx[k]];
    case EW_SCALAR:
        return &ew->scalar[step->idx[k]][k];
    case EW_BUFFER:
    case EW_NUMBER:
        break;
    }
    return part->buffer[step->idx[k]];
}

static void map_bytes(const weft_cpu_ew *ew, const uint8_t *x, int64_t from, int64_t n)
{
    void *out = ew->arg[ew->out_arg];
    if (ew->out_dtype == WEFT_DTYPE_F32)
        for (int64_t i = 0; i < n; i++)
            ((float *)out)[from + i] = ew->float_of[x[i]];
    else
        ew->vec->map_bytes((uint8_t *)out + from, x, ew->byte_of, (size_t)n);
}

/* The last step, which gives bytes. */
static void quantize_block(const weft_cpu_ew *ew, const float *const *arg, int64_t from, int64_t n)
{
    uint8_t byte[EW_BLOCK], *out = byte;
    if (!ew->maps)
        out = (uint8_t *)ew->arg[ew->out_arg] + from;
    ew->quantize(out, arg[0], *arg[1], *arg[2], ew->lo, ew->hi, (size_t)n);
    if (ew->maps)
        map_bytes(ew, byte, from, n);
}

static void run_block(const weft_cpu_ew *ew, weft_ew_part *part, int64_t from, int64_t n)
{
    bool direct = ew->out_dtype == WEFT_DTYPE_F32;
    float *out = direct ? (float *)ew->arg[ew->out_arg] + from : part->buffer[ew->n_buffer];

    if (ew->n_step == 0) {
        map_bytes(ew, (const uint8_t *)ew->arg[ew->operand[0].arg] + from, from, n);
        return;
    }
    for (uint32_t i = 0; i < ew->n_operand; i++)
        part->at[i] = read_operand(ew, part, i, from, n);
    for (uint32_t s = 0; s < ew->n_step; s++) {
        const ew_step *step = &ew->step[s];
        const float *arg[WEFT_STEP_ARGS_MAX] = {0};
        for (uint32_t k = 0; k < step->n_args; k++)
            arg[k] = argument(ew, part, step, k);
        if (ew->quantize && s + 1 == ew->n_step) {
            quantize_block(ew, arg, from, n);
            return;
        }
        step->fn(step->dst == EW_BUFFERS ? out : part->buffer[step->dst], arg, (size_t)n);
    }
    if (!direct)
        store_result(ew, out, from, n);
}

void weft_ew__part_init(const weft_cpu_ew *ew, weft_ew_part *part)
{
    memset(part->held, 0, sizeof part->held);
    memset(part->held_n, 0, sizeof part->held_n);
    /* Numbers are in the buffers after those of steps. */
    for (uint32_t i = 0; i < ew->n_number; i++)
        for (int64_t k = 0; k < ew->block; k++)
            part->buffer[ew->n_buffer + 1 + i][k] = ew->number[i];
}

void weft_ew__run_range(const weft_cpu_ew *ew, weft_ew_part *part, int64_t from, int64_t n)
{
    for (int64_t end = from + n; from < end; from += n) {
        n = ew->unit - from % ew->unit;
        n = n < ew->block ? n : ew->block;
        n = n < end - from ? n : end - from;
        run_block(ew, part, from, n);
    }
}

static void run_blocks(void *cx, int64_t begin, int64_t end)
{
    const weft_cpu_ew *ew = cx;
    weft_ew_part part;
    weft_ew__part_init(ew, &part);
    for (int64_t i = begin; i < end; i++) {
        int64_t start = i % ew->block_per_unit * ew->block;
        int64_t n = ew->unit - start < ew->block ? ew->unit - start : ew->block;
        run_block(ew, &part, i / ew->block_per_unit * ew->unit + start, n);
    }
}

/* The program is x * scale + shift per channel of a blocked layout: one unit at a time. */
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
        weft_cpu__clear_lanes(&ew->lanes, arg[ew->out_arg]);
        return;
    }
    weft_par_for(ew->threads, ew->n / ew->unit * ew->block_per_unit,
                 ew->cost_ns * (double)(ew->block < ew->unit ? ew->block : ew->unit), run_blocks,
                 ew);
    weft_cpu__clear_lanes(&ew->lanes, arg[ew->out_arg]);
}

void weft_cpu__ew_destroy(weft_cpu_ew *ew)
{
    if (!ew)
        return;
    for (uint32_t i = 0; i < ew->n_operand; i++)
        free(ew->operand[i].own);
    free(ew);
}
