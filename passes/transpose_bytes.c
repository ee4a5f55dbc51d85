/* transpose-bytes: weights of products of bytes get rows along the depth.
 *
 *     %y = qlinear_matmul %x, $sx, $zx, $w, ...    ==>    %y = qlinear_matmul %x, $sx, $zx, $t, ...
 *         $w : i8[k,n]                                        {trans_b = 1}, $t : i8[n,k]
 *
 * Tensor cores multiply bytes only in this form (cuBLASLt's "TN"), so that GPUs read the weights in
 * place. Only for weights of rank 2. A weight of several products is transposed once. O(nodes +
 * bytes of weights). */
#include "base/map.h"
#include "passes/match.h"

/* Edge of the square tiles in which a matrix is transposed: both sides stay in the cache. */
enum { TILE = 64 };

static void transpose(const uint8_t *from, uint8_t *to, int64_t rows, int64_t cols)
{
    for (int64_t r0 = 0; r0 < rows; r0 += TILE)
        for (int64_t c0 = 0; c0 < cols; c0 += TILE)
            for (int64_t r = r0; r < rows && r < r0 + TILE; r++)
                for (int64_t c = c0; c < cols && c < c0 + TILE; c++)
                    to[c * rows + r] = from[r * cols + c];
}

static weft_val transposed(weft_module *m, weft_map *done, weft_val v)
{
    uint64_t found = 0;
    weft_weight id = weft_val_weight(m, v);
    if (weft_map_get(done, id.i, &found))
        return (weft_val){(uint32_t)found};
    weft_tensor t = weft_weight_tensor(m, id);
    uint64_t bytes = (uint64_t)weft_tensor_numel(&t);
    uint8_t *to = weft_arena_alloc(weft_module_arena(m), (size_t)bytes + 1);
    transpose(t.data, to, t.dim[0], t.dim[1]);
    weft_dim dim[2] = {t.dim[1], t.dim[0]};
    weft_weight_info info = {.type = weft_type_make(m, t.dtype, dim, 2),
                             .name = weft_weight_get(m, id)->name,
                             .data = to,
                             .bytes = bytes};
    weft_val out = weft_weight_val(m, weft_weight_add(m, &info));
    weft_map_put(done, id.i, out.i);
    return out;
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    weft_map *done = weft_map_create(cx->scratch);
    for (uint32_t i = 0; i < weft_graph_count(m); i++)
        WEFT_FOREACH_NODE (m, weft_graph_at(m, i), n) {
            weft_val b = weft_node_in(m, n, WEFT_QLINEAR_B);
            if (weft_node_op(m, n) != WEFT_OP_QLINEAR_MATMUL ||
                weft_val_get_kind(m, b) != WEFT_VAL_WEIGHT || weft_val_ttype(m, b)->rank != 2 ||
                weft_attrs_int(weft_node_attrs(m, n), WEFT_ATTR_TRANS_B, 0) != 0 ||
                !weft_rewrite__allow(cx))
                continue;
            weft_attr attr = WEFT_ATTR_OF_INT(TRANS_B, 1);
            weft_node_set_in(m, n, WEFT_QLINEAR_B, transposed(m, done, b));
            weft_node_set_attr(m, n, &attr);
            *changed = true;
        }
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_transpose_bytes = {
    .name = "transpose-bytes",
    .brief = "weights of products of bytes get rows along the depth",
    .from = WEFT_STAGE_KERNEL,
    .to = WEFT_STAGE_KERNEL,
    .run = run,
};
