/* The kernels of a batch that runs in slices of a few rows, one slice after the other: those of a
 * slice, launched as many times as there are whole slices, and those of the rest.
 *
 *   arena = that of the larger of the two + the outputs of the whole batch */
#include "estimator/workload/workload_int.h"

#include "estimator/device/device.h"

#include "ops/batch_rows.h"

#include <math.h>
#include <string.h>

/* -- The decision ----------------------------------------------------------------------------- */

/* A graph at known sizes, and the symbol of its batch: of the first dimension of the first input.
 */
typedef struct batch {
    weft_sizes s;
    uint32_t symbol; /* of the graph */
    uint32_t value;  /* of the module */
    double weights;  /* bytes */
} batch;

static bool find_batch(batch *b)
{
    weft_dimpool *pool = weft_module_dims(b->s.m);
    if (weft_graph_part_count(b->s.g) || weft_graph_require_count(b->s.g) ||
        weft_graph_input_count(b->s.g) == 0)
        return false;
    const weft_ttype *type = weft_val_ttype(b->s.m, weft_graph_input(b->s.g, 0));
    for (uint32_t i = 0; type && type->rank && i < weft_graph_symbol_count(b->s.g); i++) {
        weft_dim dim = weft_graph_symbol_dim(b->s.g, i);
        int64_t lo = 0, hi = 0;
        if (dim != type->dim[0])
            continue;
        weft_dim_bounds(pool, dim, &lo, &hi);
        b->symbol = i;
        b->value = weft_dim_as_symbol(pool, dim);
        return lo <= 1 && b->value < b->s.n_value;
    }
    return false;
}

/* Bytes of a value that is no weight; below 0: not known. */
static double value_bytes(const weft_sizes *s, weft_val v)
{
    const weft_ttype *type = v.i ? weft_val_ttype(s->m, v) : NULL;
    int64_t dim[WEFT_RANK_MAX];
    if (!type || weft_val_get_kind(s->m, v) == WEFT_VAL_WEIGHT)
        return 0;
    if (!weft_sizes__eval(s, type, dim))
        return -1;
    return (double)weft_numel(dim, type->rank) * weft_dtype_size((weft_dtype)type->dtype);
}

static weft_rows_traffic find_traffic(void *user, int64_t rows)
{
    const batch *b = user;
    weft_module *m = b->s.m;
    int64_t all = b->s.value[b->value];
    weft_rows_traffic sum = {.weights = b->weights};
    b->s.value[b->value] = rows;
    WEFT_FOREACH_NODE (m, b->s.g, node) {
        uint32_t n_in = weft_node_in_count(m, node), n = n_in + weft_node_out_count(m, node);
        double bytes = 0;
        for (uint32_t i = 0; bytes >= 0 && i < n; i++) {
            double more = value_bytes(&b->s, i < n_in ? weft_node_in(m, node, i)
                                                      : weft_node_out(m, node, i - n_in));
            bytes = more < 0 ? more : bytes + more;
        }
        weft_rows_add(&sum, weft_node_op(m, node), bytes);
    }
    b->s.value[b->value] = all;
    return sum;
}

/* Rows of a slice; 0: the batch runs whole. The analysis of the batch is the longest part. */
static int64_t choose_rows(batch *b, const weft_slice *slice)
{
    if (!find_batch(b))
        return 0;
    int64_t rows =
        weft_rows_choose(b->s.value[b->value], (uint32_t)fmax(slice->units, 1), find_traffic, b);
    return rows && weft_graph_batch_symbol(b->s.g) == b->symbol ? rows : 0;
}

/* -- The kernels of slices -------------------------------------------------------------------- */

/* The kernels of so many rows, launched `times` as often. */
static weft_err make_part(const batch *b, const weft_workload *work, int64_t rows, int64_t times,
                          weft_workload *out)
{
    uint32_t n = weft_graph_symbol_count(b->s.g);
    int64_t *symbol = weft_arena_array(b->s.arena, (size_t)n + 1, sizeof *symbol);
    const weft_estimate_options how = {.lowering = work->lowering,
                                       .beside_bytes = work->beside_bytes};
    memcpy(symbol, work->symbol, n * sizeof *symbol);
    symbol[b->symbol] = rows;
    WEFT_TRY(weft_workload_make(b->s.g, symbol, &how, b->s.arena, b->s.diag, out));
    weft_graph_kernel *kernel = (weft_graph_kernel *)(uintptr_t)out->kernel;
    for (size_t i = 0; i < out->n; i++)
        kernel[i].launches = (uint32_t)fmin((double)kernel[i].launches * (double)times, 1 << 24);
    return WEFT_ERR_OK;
}

/* The kernels and nodes of both parts; what begins the second one waits for the end of the first.
 */
static void join_parts(const weft_workload *a, const weft_workload *b, weft_arena *arena,
                       weft_workload *out)
{
    size_t n_edge = b->n_node; /* at most one more for each node of the second */
    for (size_t i = 0; i < a->n_node; i++)
        n_edge += a->node[i].n_edge;
    for (size_t i = 0; i < b->n_node; i++)
        n_edge += b->node[i].n_edge;
    weft_graph_kernel *kernel = weft_arena_array(arena, a->n + b->n + 1, sizeof *kernel);
    weft_workload_node *node = weft_arena_array(arena, a->n_node + b->n_node + 1, sizeof *node);
    uint32_t *edge = weft_arena_array(arena, n_edge + 1, sizeof *edge), at = 0;
    if (a->n)
        memcpy(kernel, a->kernel, a->n * sizeof *kernel);
    if (b->n)
        memcpy(kernel + a->n, b->kernel, b->n * sizeof *kernel);
    for (size_t i = 0; i < a->n_node + b->n_node; i++) {
        const weft_workload *from = i < a->n_node ? a : b;
        uint32_t shift = from == a ? 0 : (uint32_t)a->n_node;
        weft_workload_node s = from->node[i - shift];
        node[i] =
            (weft_workload_node){.first_kernel = s.first_kernel + (from == a ? 0 : (uint32_t)a->n),
                                 .n_kernel = s.n_kernel,
                                 .first_edge = at,
                                 .n_edge = s.n_edge};
        for (uint32_t e = 0; e < s.n_edge; e++)
            edge[at++] = from->edge[s.first_edge + e] + shift;
        if (from == b && s.n_edge == 0 && shift) {
            edge[at++] = shift - 1;
            node[i].n_edge = 1;
        }
    }
    out->kernel = kernel;
    out->n = a->n + b->n;
    out->node = node;
    out->n_node = a->n_node + b->n_node;
    out->edge = edge;
    out->arena_bytes = a->arena_bytes > b->arena_bytes ? a->arena_bytes : b->arena_bytes;
}

weft_err weft_workload_divide(const weft_workload *work, const weft_slice *slice, weft_arena *arena,
                              weft_diag *diag, weft_workload *out)
{
    weft_workload made = *work, part[2] = {{0}};
    batch b = {.weights = (double)work->weight_bytes};
    int64_t rows = 0;
    if (work->graph && work->lowering == WEFT_LOWERING_FUSED && slice->gpu->is_cpu) {
        weft_sizes__begin(work->graph, work->symbol, arena, diag, &b.s);
        rows = choose_rows(&b, slice);
    }
    if (rows) {
        int64_t all = b.s.value[b.value], rest = all % rows;
        WEFT_TRY(make_part(&b, work, rows, all / rows, &part[0]));
        if (rest)
            WEFT_TRY(make_part(&b, work, rest, 1, &part[1]));
        join_parts(&part[0], &part[1], arena, &made);
        made.arena_bytes += work->out_bytes;
        made.graph = NULL; /* divided */
    }
    *out = made;
    return WEFT_ERR_OK;
}
