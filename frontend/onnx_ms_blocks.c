/* GatherBlockQuantized of com.microsoft: rows of a quantised table are gathered as they are stored,
 * then dequantised. */
#include "frontend/onnx_build.h"

#include <string.h>

enum { DATA, INDICES, SCALES, ZEROS, N_INPUTS };

typedef struct blocks {
    weft_onnx_build b;
    weft_val indices;
    int64_t bits, block, gather, quantise; /* axes counted from 0 */
    bool packed;                           /* elements of `bits` bits in the bytes of u8 */
} blocks;

static weft_val gather(blocks *g, weft_val x, int64_t axis, weft_val at)
{
    const weft_attr attr = WEFT_ATTR_OF_INT(AXIS, axis);
    const weft_val in[2] = {x, at};
    return weft_onnx__make(&g->b, WEFT_OP_GATHER, in, 2, &attr, 1);
}

/* u8 [.., n] ==> u8 [.., columns], low bits first */
static weft_val unpack(blocks *g, weft_val x, weft_dim columns)
{
    weft_onnx_build *b = &g->b;
    int64_t per_byte = 8 / g->bits, shift[4] = {0, 1, 2, 3}, dim[1] = {per_byte};
    if (per_byte == 1)
        return x;
    const weft_attr right = WEFT_ATTR_OF_STR(DIRECTION, "RIGHT");
    const weft_ttype t = *weft_onnx__of(b, x);
    for (int64_t i = 0; i < per_byte; i++)
        shift[i] *= g->bits;
    weft_val by = weft_onnx__cast(b, weft_onnx__i64s(b, shift, dim, 1), WEFT_DTYPE_U8);
    const weft_val in[2] = {weft_onnx__unsqueeze(b, x, t.rank), by};
    weft_val parts = weft_onnx__make(b, WEFT_OP_BIT_SHIFT, in, 2, &right, 1);
    parts = weft_onnx__make2(b, WEFT_OP_BITWISE_AND, parts,
                             weft_onnx__scalar(b, WEFT_DTYPE_U8, (double)((1 << g->bits) - 1)));
    weft_dim to[WEFT_RANK_MAX];
    memcpy(to, t.dim, t.rank * sizeof *to);
    to[t.rank - 1] = weft_onnx__times(b, t.dim[t.rank - 1], per_byte);
    parts = weft_onnx__reshape(b, parts, to, t.rank);
    return to[t.rank - 1] == columns ? parts : weft_onnx__slice(b, parts, t.rank - 1, 0, columns);
}

/* One of a block ==> one of an element, along the axis of the blocks, for n elements. */
static weft_val repeat(blocks *g, weft_val x, int64_t axis, int64_t n)
{
    weft_onnx_call *c = g->b.c;
    int64_t *at = weft_arena_array(c->cx->arena, (size_t)n + 1, sizeof *at);
    for (int64_t i = 0; i < n; i++)
        at[i] = i / g->block;
    return gather(g, x, axis, weft_onnx__i64s(&g->b, at, &n, 1));
}

static weft_err read_attrs(blocks *g)
{
    weft_onnx_call *c = g->b.c;
    WEFT_TRY(weft_onnx__get_int(c, "bits", 4, &g->bits));
    WEFT_TRY(weft_onnx__get_int(c, "block_size", 128, &g->block));
    WEFT_TRY(weft_onnx__get_int(c, "gather_axis", 0, &g->gather));
    WEFT_TRY(weft_onnx__get_int(c, "quantize_axis", 1, &g->quantise));
    WEFT_TRY(weft_onnx__no_more_attrs(c));
    for (uint32_t i = 0; i <= SCALES; i++)
        if (i >= c->n_in || !c->in[i].i)
            return weft_onnx__fail(c, WEFT_ERR_INPUT, "input %u is missing", i);
    const weft_ttype *data = weft_onnx__type(c, c->in[DATA]);
    int64_t rank = data->rank;
    g->gather += g->gather < 0 ? rank : 0;
    g->quantise += g->quantise < 0 ? rank : 0;
    if (c->n_in > N_INPUTS || g->gather < 0 || g->gather >= rank || g->quantise < 0 ||
        g->quantise >= rank || weft_onnx__type(c, c->in[SCALES])->rank != rank)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "axes %lld and %lld of rank %lld",
                               (long long)g->gather, (long long)g->quantise, (long long)rank);
    if (g->block < 16 || g->block > 1 << 20 || (g->block & (g->block - 1)) != 0 ||
        (g->bits != 2 && g->bits != 4 && g->bits != 8))
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%lld bits in blocks of %lld", (long long)g->bits,
                               (long long)g->block);
    g->packed = data->dtype == WEFT_DTYPE_U8;
    if (!g->packed && data->dtype != WEFT_DTYPE_I4 && data->dtype != WEFT_DTYPE_U4)
        return weft_onnx__fail(c, WEFT_ERR_UNSUP, "a table of %s is not supported",
                               weft_dtype_name((weft_dtype)data->dtype));
    if (g->gather == g->quantise)
        return weft_onnx__fail(c, WEFT_ERR_UNSUP, "gather_axis and quantize_axis are equal");
    return WEFT_ERR_OK;
}

weft_err weft_onnx_hook_ms_gather_blocks(weft_onnx_call *c)
{
    blocks g = {.b = {.c = c}};
    weft_onnx_build *b = &g.b;
    WEFT_TRY(read_attrs(&g));
    weft_val data = c->in[DATA], zeros = c->n_in > ZEROS ? c->in[ZEROS] : (weft_val){0};
    const weft_ttype t = *weft_onnx__type(c, data), at = *weft_onnx__type(c, c->in[INDICES]);
    const weft_ttype scale = *weft_onnx__type(c, c->in[SCALES]);
    int64_t per_byte = g.packed ? 8 / g.bits : 1;
    int64_t last = t.rank - 1;
    weft_dim n = t.dim[g.quantise], blocks_at = scale.dim[g.quantise];
    if (g.quantise == last)
        n = weft_onnx__times(b, n, per_byte);
    if (!weft_dim_is_const(n) || n < 1 || n > 1 << 24 || !weft_dim_is_const(blocks_at) ||
        blocks_at != (n + g.block - 1) / g.block)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "scales do not fit blocks of %lld",
                               (long long)g.block);
    /* Axes of the result: those of the indices take the place of the gathered one. */
    int64_t axis = g.quantise > g.gather ? g.quantise + at.rank - 1 : g.quantise;
    weft_val q = gather(&g, data, g.gather, c->in[INDICES]);
    weft_val s = repeat(&g, gather(&g, c->in[SCALES], g.gather, c->in[INDICES]), axis, n);
    if (g.packed)
        q = unpack(&g, q, g.quantise == last ? n : weft_onnx__times(b, t.dim[last], per_byte));
    weft_dtype dtype = (weft_dtype)scale.dtype;
    q = weft_onnx__cast(b, q, dtype);
    if (zeros.i) {
        weft_val z = gather(&g, zeros, g.gather, c->in[INDICES]);
        if (g.packed)
            z = unpack(&g, z,
                       g.quantise == last ? blocks_at : weft_onnx__times(b, t.dim[last], per_byte));
        q = weft_onnx__make2(b, WEFT_OP_SUB, q, weft_onnx__cast(b, repeat(&g, z, axis, n), dtype));
    } else if (g.packed) {
        q = weft_onnx__make2(b, WEFT_OP_SUB, q,
                             weft_onnx__number(b, q, (double)(1 << (g.bits - 1))));
    }
    c->out[0] = weft_onnx__make2(b, WEFT_OP_MUL, q, s);
    return b->err;
}
