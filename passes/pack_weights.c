/* pack-weights: products with dequantised weights of 4 or 2 bits become matmul_nbits, for CPUs.
 *
 *     %1 : f32[k,n] = dequantize_linear $w $scale $zero
 *     %2 : f32[?b,n] = matmul %x, %1
 *   ==>
 *     %2 : f32[?b,n] = matmul_nbits %x, $packed $scales $zeros
 *
 * The weights stay as small as in the file and are not widened; 8 bits are left to fold-weights.
 * Scales may be one, one for each column, or one for each block of a power of two rows. Columns
 * with one scale get blocks of 128 rows. O(nodes + weights). */
#include "passes/match.h"

#include "ops/nbits.h"

#include <string.h>

enum { BLOCK = 128 };

typedef struct packing {
    weft_nbits size;
    weft_tensor w, scale, zero;
    bool has_zero, trans; /* trans: w is [n, k] */
    int64_t scale_block;  /* rows of a scale; 0: all */
    bool one_scale;
    int offset; /* from an element to its unsigned form */
} packing;

static bool constant_of(const weft_module *m, weft_val v, weft_tensor *out)
{
    if (!v.i || weft_val_get_kind(m, v) != WEFT_VAL_WEIGHT)
        return false;
    *out = weft_weight_tensor(m, weft_val_weight(m, v));
    return true;
}

static int bits_of(weft_dtype dtype)
{
    bool four = dtype == WEFT_DTYPE_I4 || dtype == WEFT_DTYPE_U4;
    bool two = dtype == WEFT_DTYPE_I2 || dtype == WEFT_DTYPE_U2;
    return four ? 4 : two ? 2 : 0;
}

/* Which element has which scale. */
static bool read_scales(weft_attrs attrs, packing *p)
{
    int64_t axis = weft_attrs_int(attrs, WEFT_ATTR_AXIS, 1);
    int64_t block = weft_attrs_int(attrs, WEFT_ATTR_BLOCK_SIZE, 0), k = p->trans ? 1 : 0;
    axis += axis < 0 ? 2 : 0;
    p->one_scale = p->scale.rank == 0 || weft_tensor_numel(&p->scale) == 1;
    if (p->one_scale)
        return block == 0;
    if (block == 0)
        return axis == 1 - k && p->scale.rank == 1 && p->scale.dim[0] == p->size.n;
    p->scale_block = block;
    return axis == k && block == p->size.block && p->scale.rank == 2 &&
           p->scale.dim[k] == p->size.blocks && p->scale.dim[1 - k] == p->size.n;
}

static bool same_dims(const weft_tensor *a, const weft_tensor *b)
{
    return a->rank == b->rank &&
           memcmp(a->dim, b->dim, (size_t)(a->rank > 0 ? a->rank : 0) * sizeof a->dim[0]) == 0;
}

static bool match_product(const weft_module *m, weft_node n, packing *p)
{
    weft_attrs attrs = weft_node_attrs(m, n);
    if (weft_node_op(m, n) != WEFT_OP_MATMUL || weft_node_in_count(m, n) != 2 ||
        weft_attrs_int(attrs, WEFT_ATTR_TRANS_A, 0) ||
        weft_attrs_float(attrs, WEFT_ATTR_ALPHA, 1) != 1 ||
        !weft_match__is_f32(m, weft_node_in(m, n, 0)) ||
        weft_val_ttype(m, weft_node_in(m, n, 0))->rank < 1)
        return false;
    weft_node dq = weft_match__maker(m, weft_node_in(m, n, 1), WEFT_OP_DEQUANTIZE_LINEAR);
    if (!dq.i || !weft_match__is_f32(m, weft_node_out(m, dq, 0)) ||
        !constant_of(m, weft_node_in(m, dq, 0), &p->w) ||
        !constant_of(m, weft_node_in(m, dq, 1), &p->scale) || p->scale.dtype != WEFT_DTYPE_F32)
        return false;
    p->has_zero = weft_node_in_count(m, dq) > 2 && weft_node_in(m, dq, 2).i;
    int bits = bits_of(p->w.dtype);
    if (!bits || p->w.rank != 2 ||
        (p->has_zero &&
         (!constant_of(m, weft_node_in(m, dq, 2), &p->zero) || !same_dims(&p->zero, &p->scale))))
        return false;
    p->trans = weft_attrs_int(attrs, WEFT_ATTR_TRANS_B, 0) != 0;
    bool is_signed = p->w.dtype == WEFT_DTYPE_I4 || p->w.dtype == WEFT_DTYPE_I2;
    p->offset = is_signed ? 1 << (bits - 1) : 0;
    weft_attrs how = weft_node_attrs(m, dq);
    int64_t block = weft_attrs_int(how, WEFT_ATTR_BLOCK_SIZE, 0);
    return weft_nbits_make(p->w.dim[p->trans ? 1 : 0], p->w.dim[p->trans ? 0 : 1], bits,
                           block ? block : BLOCK, &p->size) &&
           read_scales(how, p);
}

/* Index in the scales of block `block` of column n. */
static int64_t scale_at(const packing *p, int64_t n, int64_t block)
{
    if (p->one_scale)
        return 0;
    if (!p->scale_block)
        return n;
    return p->trans ? n * p->size.blocks + block : block * p->size.n + n;
}

/* Column n of the weights, packed. */
static void pack_column(const packing *p, int64_t n, uint8_t *to)
{
    const weft_nbits *s = &p->size;
    int64_t step = p->trans ? 1 : s->n, first = p->trans ? n * s->k : n;
    int per_byte = 8 / s->bits, mask = (1 << s->bits) - 1;
    for (int64_t k = 0; k < s->k; k++) {
        int q = (int)weft_tensor_get_i64(&p->w, first + k * step) + p->offset;
        to[k / per_byte] |= (uint8_t)((q & mask) << (int)(k % per_byte) * s->bits);
    }
}

static weft_err rewrite(weft_passctx *cx, weft_graph *g, weft_node n, const packing *p)
{
    weft_module *m = weft_graph_module(g);
    const weft_nbits *s = &p->size;
    size_t row = (size_t)(s->blocks * s->block_bytes), blocks = (size_t)(s->n * s->blocks);
    uint8_t *packed = weft_arena_array(cx->scratch, (size_t)s->n + 1, row);
    float *scales = weft_arena_array(cx->scratch, blocks + 1, sizeof *scales);
    float *zeros = weft_arena_array(cx->scratch, blocks + 1, sizeof *zeros);
    memset(packed, 0, (size_t)s->n * row);
    for (int64_t i = 0; i < s->n; i++) {
        pack_column(p, i, packed + (size_t)i * row);
        for (int64_t b = 0; b < s->blocks; b++) {
            int64_t at = scale_at(p, i, b), to = i * s->blocks + b;
            scales[to] = (float)weft_tensor_get_f64(&p->scale, at);
            zeros[to] = (float)((p->has_zero ? weft_tensor_get_i64(&p->zero, at) : 0) + p->offset);
        }
    }
    const int64_t dim[3] = {s->n, s->blocks, s->block_bytes};
    const weft_val in[4] = {weft_node_in(m, n, 0),
                            weft_rewrite__constant(m, WEFT_DTYPE_U8, dim, 3, packed, "packed"),
                            weft_rewrite__constant(m, WEFT_DTYPE_F32, dim, 2, scales, "scales"),
                            weft_rewrite__constant(m, WEFT_DTYPE_F32, dim, 2, zeros, "zeros")};
    const weft_attr attr[4] = {WEFT_ATTR_OF_INT(BITS, s->bits),
                               WEFT_ATTR_OF_INT(BLOCK_SIZE, s->block), WEFT_ATTR_OF_INT(K, s->k),
                               WEFT_ATTR_OF_INT(N, s->n)};
    weft_val y;
    /* The middle of the range needs no zero points. */
    bool plain = p->offset && !p->has_zero;
    WEFT_TRY(weft_rewrite__emit(cx, g, n, WEFT_OP_MATMUL_NBITS, in, plain ? 3 : 4, attr, 4,
                                weft_node_loc(m, n), &y));
    weft_rewrite__replace_result(g, n, 0, y);
    weft_rewrite__remove_dead(g, n);
    return WEFT_ERR_OK;
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    for (uint32_t i = 0; i < weft_graph_count(m); i++) {
        weft_graph *g = weft_graph_at(m, i);
        WEFT_FOREACH_NODE (m, g, n) {
            packing p = {0};
            if (!match_product(m, n, &p) || !weft_rewrite__allow(cx))
                continue;
            WEFT_TRY(rewrite(cx, g, n, &p));
            *changed = true;
        }
    }
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_pack_weights = {
    .name = "pack-weights",
    .brief = "products with weights of 4 or 2 bits keep them packed, on CPUs",
    .from = WEFT_STAGE_GRAPH,
    .to = WEFT_STAGE_GRAPH,
    .needs = WEFT_FACT_TYPES,
    .run = run,
};
