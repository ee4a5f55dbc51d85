/* Emits matmul_nbits, weights of 2, 4 or 8 bits that become f32 in registers (nbits.cuh): few rows
 * by a warp for each column, which reads the weights once; more rows in tiles, as emit_gemm.c. The
 * choice is made at run time if it depends on symbols. */
#include "codegen/cuda/cuda_gemm_int.h"

enum { NBITS_X, NBITS_B, NBITS_SCALES, NBITS_ZEROS };
enum { THREADS = 256, FEW_ROWS = 8 };

typedef struct problem {
    weft_dim m;
    int64_t n, k, bits, block;
} problem;

/* Adds the operands, and prints `w`, the packed weights. */
static void add_operands(weft_cuda_kernel *k, const problem *p)
{
    bool zeros = weft_cuda__in_type(weft_cuda__of(k), NBITS_ZEROS) != NULL;
    weft_cuda__include(k, "nbits.cuh");
    weft_cuda__in(k, "x", NBITS_X);
    weft_cuda__in(k, "b", NBITS_B);
    weft_cuda__in(k, "scales", NBITS_SCALES);
    if (zeros)
        weft_cuda__in(k, "zeros", NBITS_ZEROS);
    weft_buf_printf(weft_cuda__body(k),
                    "    const packed_weights<%lld> w = {b, scales, %s, %lld, %s};\n",
                    (long long)p->bits, zeros ? "zeros" : "0", (long long)p->block,
                    weft_cuda__number(k, (p->k + p->block - 1) / p->block));
}

static void emit_warps(weft_cuda *cu, const problem *p, weft_dim taken)
{
    weft_cuda_kernel *k = weft_cuda__kernel(cu, "multiply_packed", THREADS);
    add_operands(k, p);
    weft_cuda__out(k, "y", 0);
    const char *m = weft_cuda__number(k, p->m), *n = weft_cuda__number(k, p->n);
    const char *depth = weft_cuda__number(k, p->k);
    weft_buf_printf(weft_cuda__body(k),
                    "    const int m = %s, n = %s, lane = threadIdx.x %% 32;\n"
                    "    const int col = blockIdx.x * %d + threadIdx.x / 32;\n"
                    "    if (col >= n)\n        return;\n"
                    "    f32 sum[%d];\n"
                    "    multiply_packed(sum, x, w, col, m, %s);\n"
                    "#pragma unroll\n"
                    "    for (int r = 0; r < %d; r++)\n"
                    "        if (lane == r && r < m)\n"
                    "            y[(size_t)r * n + col] = sum[r];\n",
                    m, n, THREADS / 32, FEW_ROWS, depth, FEW_ROWS);
    weft_dim blocks = weft_cuda__ceil_div(cu, p->n, THREADS / 32);
    weft_cuda__launch(k, weft_cuda__mul(cu, blocks, taken), 1, 1, 0);
}

static weft_err emit_tiled(weft_cuda *cu, const problem *p, const weft_cuda_variant *v)
{
    const weft_cuda_tile *t = v->tile;
    weft_cuda_tiled tiled = weft_cuda__begin_tiled(cu, v, t, "gemm_packed");
    weft_cuda_kernel *k = tiled.kernel;
    add_operands(k, p);
    weft_cuda__add_result(&tiled);
    const char *m = weft_cuda__number(k, p->m), *n = weft_cuda__number(k, p->n);
    const char *depth = weft_cuda__number(k, p->k);
    weft_buf_printf(weft_cuda__body(k),
                    "    const gemm_place place(%s, %s, %u, %u);\n"
                    "    gemm_packed<%s>(x, w, y, %s, place, %s, %s, %s, %s);\n",
                    m, n, t->bm, t->bn, weft_cuda__tile_text(cu, t), tiled.first, m, n, depth,
                    weft_cuda__part_text(&tiled));
    return weft_cuda__end_tiled(&tiled, -1, false, 1, 1, UINT32_MAX);
}

weft_err weft_cuda_emit_matmul_nbits(weft_cuda *cu, weft_node node)
{
    (void)node;
    weft_attrs attrs = weft_cuda__attrs(cu);
    const weft_ttype *x = weft_cuda__in_type(cu, NBITS_X);
    const problem p = {.m = weft_cuda__product(cu, x, 0, x->rank - 1u),
                       .n = weft_attrs_int(attrs, WEFT_ATTR_N, 0),
                       .k = weft_attrs_int(attrs, WEFT_ATTR_K, 0),
                       .bits = weft_attrs_int(attrs, WEFT_ATTR_BITS, 4),
                       .block = weft_attrs_int(attrs, WEFT_ATTR_BLOCK_SIZE, 0)};
    weft_dim tiled = weft_cuda__enough(cu, p.m, FEW_ROWS + 1);
    weft_dim few = weft_cuda__fewer(cu, p.m, FEW_ROWS + 1);
    if (few != 0)
        emit_warps(cu, &p, few);
    if (tiled == 0)
        return WEFT_ERR_OK;
    weft_cuda_variant v[WEFT_CUDA_VARIANTS_MAX];
    const weft_cuda_extent e = {WEFT_DTYPE_F32, &p.m, 1, p.n, 1, p.k};
    uint32_t count = weft_cuda__tiles(cu, &e, tiled, v);
    for (uint32_t i = 0; i < count; i++)
        WEFT_TRY(emit_tiled(cu, &p, &v[i]));
    return WEFT_ERR_OK;
}
