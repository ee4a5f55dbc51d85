/* Emits fused attention. With 16-bit elements cuDNN computes it where it can; what follows runs
 * otherwise. Each block computes several rows of one head (attention.cuh). 16-bit heads
 * of up to 128 columns have two kernels: one with 64 rows per block, and one with 16 rows for
 * shapes that would give too few blocks of 64. If the choice depends on symbols, it is made at run
 * time, as in emit_tile.c. */
#include "codegen/cuda/cuda_gemm_int.h"

#include <math.h>
#include <string.h>

enum { HEAD_MAX = 256, FULL_BLOCKS = 96, SCORE_RANK = 4, LIBRARY_STEP = 8 };

typedef struct problem {
    weft_dtype dtype;
    weft_dim batch, rows, keys;
    int64_t heads, head;
} problem;

/* Geometry of a kernel: a block of 32 * `warps` threads computes `rows` rows and loads `keys` keys
 * at a time. */
typedef struct shape {
    uint32_t warps, rows, keys, width;
} shape;

/* Shared memory stays below 48 KiB, and the tile has a width that half_tile can transpose. */
static shape find_shape(const problem *p, bool small)
{
    uint32_t head = (uint32_t)p->head;
    shape s = {.width = head <= 16 ? 16 : head <= 32 ? 32 : (head + 63) / 64 * 64};
    if (p->dtype == WEFT_DTYPE_F32) {
        s.warps = 4;
        s.rows = head <= 128 ? 32 : 16;
        s.keys = s.rows;
        s.width = (head + 7) / 8 * 8;
        return s;
    }
    s.warps = small || head > 128 ? 1 : 4;
    s.rows = 16 * s.warps;
    s.keys = head <= 64 ? 64 : head <= 128 ? 32 : 16;
    return s;
}

/* Prints `const X mask = ...;` for operand 3, which is broadcast to [batch, heads, rows, keys]. */
static void print_mask(weft_cuda *cu, weft_cuda_kernel *k, const problem *p)
{
    const weft_ttype *t = weft_cuda__in_type(cu, 3);
    weft_arena *arena = weft_cuda__arena(cu);
    const weft_dim size[SCORE_RANK] = {p->batch, p->heads, p->rows, p->keys};
    const char *step[SCORE_RANK] = {"(size_t)0", "(size_t)0", "(size_t)0", "(size_t)0"};
    if (!t) {
        weft_buf_puts(weft_cuda__body(k), "    const no_mask mask;\n");
        return;
    }
    weft_cuda__in(k, "mask_at", 3);
    for (uint32_t d = SCORE_RANK - t->rank, i = 0; d < SCORE_RANK; d++, i++) {
        if (t->dim[i] == 1)
            continue;
        step[d] = weft_cuda__long(k, t, i + 1, t->rank);
        if (t->dim[i] != size[d]) /* 1 or the size of the scores: only a run tells */
            step[d] = weft_arena_printf(arena, "(%s > 1 ? %s : 0)", weft_cuda__int(k, t->dim[i]),
                                        step[d]);
    }
    const char *at =
        weft_arena_printf(arena, "mask_at + place.batch * %s + place.head * %s", step[0], step[1]);
    if (t->dtype == WEFT_DTYPE_BOOL) {
        double fill = weft_attrs_float(weft_cuda__attrs(cu), WEFT_ATTR_FILL, -INFINITY);
        weft_buf_printf(weft_cuda__body(k), "    const bool_mask mask = {%s, %s, %s, %s};\n", at,
                        step[2], step[3], weft_cuda__f32_text(cu, (float)fill));
    } else {
        weft_buf_printf(weft_cuda__body(k), "    const added_mask<%s> mask = {%s, %s, %s};\n",
                        weft_dtype_name((weft_dtype)t->dtype), at, step[2], step[3]);
    }
}

/* "x + (place.batch * rows) * width + offset + place.head * head". */
static const char *head_text(weft_cuda_kernel *k, const problem *p, const char *name,
                             const weft_ttype *t, int64_t offset)
{
    return weft_arena_printf(
        weft_cuda__arena(weft_cuda__of(k)), "%s + place.batch * %s + %lld + place.head * %lld",
        name, weft_cuda__long(k, t, 1, t->rank), (long long)offset, (long long)p->head);
}

static weft_err emit_shape(weft_cuda *cu, const problem *p, const shape *s, weft_dim taken)
{
    static const weft_attr_key key[3] = {WEFT_ATTR_Q_OFFSET, WEFT_ATTR_K_OFFSET,
                                         WEFT_ATTR_V_OFFSET};
    static const char *const name[3] = {"q", "k", "v"};
    weft_arena *arena = weft_cuda__arena(cu);
    weft_attrs attrs = weft_cuda__attrs(cu);
    const char *type = weft_dtype_name(p->dtype), *at[3], *step[3];
    weft_cuda_kernel *k = weft_cuda__kernel(
        cu, weft_arena_printf(arena, "attention_%s_%u", type, s->rows), 32 * s->warps);
    weft_cuda__include(k, "attention.cuh");
    for (uint32_t i = 0; i < 3; i++)
        weft_cuda__in(k, name[i], i);
    weft_cuda__out(k, "y", 0);
    const char *rows = weft_cuda__int(k, p->rows), *keys = weft_cuda__int(k, p->keys);
    weft_buf_printf(weft_cuda__body(k), "    const attention_place place(%s, %lld, %u);\n", rows,
                    (long long)p->heads, s->rows);
    for (uint32_t i = 0; i < 3; i++) {
        const weft_ttype *t = weft_cuda__in_type(cu, i);
        at[i] = head_text(k, p, name[i], t, weft_attrs_int(attrs, key[i], 0));
        step[i] = weft_cuda__long(k, t, 2, 3);
    }
    const weft_ttype *o = weft_cuda__out_type(cu, 0);
    print_mask(cu, k, p);
    const char *at_y = head_text(k, p, "y", o, 0), *step_y = weft_cuda__long(k, o, 2, 3);
    weft_buf_printf(weft_cuda__body(k),
                    "    const attention_head<%s> h = {%s,\n        %s,\n        %s,\n        %s,\n"
                    "        %s, %s, %s, %s, %s, %s, %s};\n"
                    "    attention<%s, %lld, %u, %u, %u, %u>(h, place.row, mask);\n",
                    type, at[0], at[1], at[2], at_y, step[0], step[1], step[2], step_y, rows, keys,
                    weft_cuda__f32_text(cu, (float)weft_attrs_float(attrs, WEFT_ATTR_SCALE, 1)),
                    type, (long long)p->head, s->width, s->warps, s->rows, s->keys);
    weft_dim blocks = weft_cuda__mul(
        cu, weft_cuda__mul(cu, weft_cuda__ceil_div(cu, p->rows, s->rows), p->batch), p->heads);
    weft_cuda__launch(k, weft_cuda__mul(cu, blocks, taken), 1, 1, 0);
    return WEFT_ERR_OK;
}

/* The first three dims of the mask as cuDNN takes it; false: it does not. */
static bool find_mask(weft_cuda *cu, const problem *p, weft_dim *dim)
{
    const weft_ttype *t = weft_cuda__in_type(cu, 3);
    if (!t || t->dtype != p->dtype || t->rank == 0 || t->dim[t->rank - 1] != p->keys)
        return false;
    for (uint32_t d = 0; d + 1 < SCORE_RANK; d++)
        dim[d] = d + t->rank < SCORE_RANK ? 1 : t->dim[d + t->rank - SCORE_RANK];
    return true;
}

/* Emits cuDNN's attention; false: it has none of this kind. */
static bool emit_library(weft_cuda *cu, const problem *p)
{
    static const weft_attr_key key[3] = {WEFT_ATTR_Q_OFFSET, WEFT_ATTR_K_OFFSET,
                                         WEFT_ATTR_V_OFFSET};
    weft_attrs attrs = weft_cuda__attrs(cu);
    float scale = (float)weft_attrs_float(attrs, WEFT_ATTR_SCALE, 1);
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    weft_bundle_conv c = {.dtype = p->dtype,
                          .flags = WEFT_CONV_ATTENTION | WEFT_CONV_Z,
                          .dim = {[WEFT_ATTENTION_BATCH] = p->batch,
                                  [WEFT_ATTENTION_HEADS] = p->heads,
                                  [WEFT_ATTENTION_ROWS] = p->rows,
                                  [WEFT_ATTENTION_KEYS] = p->keys,
                                  [WEFT_ATTENTION_HEAD] = p->head,
                                  [WEFT_ATTENTION_SCALE] = bits},
                          .y = weft_cuda__at_out(0, 0)};
    weft_bundle_arg *const arg[3] = {&c.x, &c.w, &c.z};
    if (p->dtype == WEFT_DTYPE_F32 || p->head % LIBRARY_STEP != 0)
        return false;
    for (uint32_t i = 0; i < 3; i++) {
        const weft_ttype *t = weft_cuda__in_type(cu, i);
        int64_t offset = weft_attrs_int(attrs, key[i], 0);
        *arg[i] = weft_cuda__at_in(i, offset * (int64_t)weft_dtype_size(p->dtype));
        c.dim[WEFT_ATTENTION_STEP + i] = t->dim[2];
    }
    c.dim[WEFT_ATTENTION_STEP + 3] = weft_cuda__out_type(cu, 0)->dim[2];
    if (weft_cuda__in_type(cu, 3)) {
        if (!find_mask(cu, p, c.dim + WEFT_ATTENTION_MASK))
            return false;
        c.flags |= WEFT_CONV_BIAS;
        c.bias = weft_cuda__at_in(3, 0);
    }
    weft_cuda__conv(cu, &c);
    return true;
}

static weft_err emit_kernels(weft_cuda *cu, const problem *p)
{
    shape large = find_shape(p, false), small = find_shape(p, true);
    if (large.rows == small.rows)
        return emit_shape(cu, p, &large, 1);
    weft_dim blocks = weft_cuda__mul(
        cu, weft_cuda__mul(cu, weft_cuda__ceil_div(cu, p->rows, large.rows), p->batch), p->heads);
    weft_dim taken = weft_cuda__enough(cu, blocks, FULL_BLOCKS);
    if (taken != 0)
        WEFT_TRY(emit_shape(cu, p, &large, taken));
    if (taken != 1)
        WEFT_TRY(emit_shape(cu, p, &small, weft_cuda__fewer(cu, blocks, FULL_BLOCKS)));
    return WEFT_ERR_OK;
}

weft_err weft_cuda_emit_attention(weft_cuda *cu, weft_node n)
{
    (void)n;
    const weft_ttype *q = weft_cuda__in_type(cu, 0), *k = weft_cuda__in_type(cu, 1);
    if (weft_cuda__in_type(cu, 4))
        return weft_cuda__unsup(cu, "packed sequences");
    weft_attrs attrs = weft_cuda__attrs(cu);
    problem p = {.dtype = (weft_dtype)q->dtype,
                 .batch = q->dim[0],
                 .rows = q->dim[1],
                 .keys = k->dim[1],
                 .heads = weft_attrs_int(attrs, WEFT_ATTR_HEADS, 1),
                 .head = weft_attrs_int(attrs, WEFT_ATTR_HEAD_DIM, 1)};
    if (p.dtype != WEFT_DTYPE_F32 && p.dtype != WEFT_DTYPE_F16 && p.dtype != WEFT_DTYPE_BF16)
        return weft_cuda__unsup(cu, "element type %s", weft_dtype_name(p.dtype));
    if (p.head > HEAD_MAX)
        return weft_cuda__unsup(cu, "heads of %lld columns, at most %d", (long long)p.head,
                                HEAD_MAX);
    bool library = emit_library(cu, &p);
    uint32_t first = weft_cuda__command_count(cu);
    WEFT_TRY(emit_kernels(cu, &p));
    if (library)
        weft_cuda__depends(cu, first, WEFT_COMMAND_INSTEAD);
    return WEFT_ERR_OK;
}
