/* Memory of a graph: Mreq as capacity.
 *
 *   mreq = weights + arena + workspace + inputs + context
 *
 * Weights count once however many nodes read them; share-equal has made those of equal content one.
 * The arena, which holds outputs too, is what the planner planned for these very sizes; without a
 * plan it is the most that is alive at once, which is what a perfect packing would take (and, for a
 * framework, its caching allocator without fragmentation).
 *
 * Workspace, on GPUs: cuBLAS takes one buffer a process as soon as there is a product; NVIDIA
 * recommends 32 MiB from compute capability 9.0 on and 4 MiB before (documentation of
 * cublasSetWorkspace), PyTorch allocates 8 MiB before (CUBLAS_WORKSPACE_CONFIG :4096:2:16:8).
 * Convolutions by implicit product need none. */
#include "estimator/estimator_int.h"

#include <string.h>

static const uint64_t mib = 1024 * 1024;
static const uint64_t new_workspace_mib = 32, old_workspace_mib = 4, framework_workspace_mib = 8;
static const uint32_t new_capability = 90;

static uint64_t add_capped(uint64_t a, uint64_t b)
{
    return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

static uint64_t val_bytes(const weft_sizes *s, weft_val v)
{
    const weft_ttype *type = weft_val_ttype(s->m, v);
    int64_t dim[WEFT_RANK_MAX];
    uint64_t bytes = 0;
    if (!type || !weft_sizes__eval(s, type, dim) ||
        !weft_layout_bytes((weft_dtype)type->dtype, (weft_layout)type->layout, dim, type->rank,
                           &bytes))
        return 0;
    return bytes;
}

static uint64_t count_weights(const weft_sizes *s)
{
    uint64_t bytes = 0;
    bool *seen = weft_arena_array(s->arena, (size_t)weft_weight_count(s->m) + 1, sizeof *seen);
    WEFT_FOREACH_NODE (s->m, s->g, n) {
        for (uint32_t i = 0; i < weft_node_in_count(s->m, n); i++) {
            weft_val v = weft_node_in(s->m, n, i);
            weft_weight w = v.i ? weft_val_weight(s->m, v) : (weft_weight){0};
            if (!w.i || seen[w.i])
                continue;
            seen[w.i] = true;
            bytes = add_capped(bytes, weft_weight_get(s->m, w)->bytes);
        }
    }
    return bytes;
}

/* -- Intermediate values ---------------------------------------------------------------------- */

/* The value whose memory v lies in: a view has that of its operand. */
static weft_val find_owner(const weft_sizes *s, weft_val v)
{
    while (v.i && weft_val_get_kind(s->m, v) == WEFT_VAL_NODE) {
        weft_node n = weft_val_node(s->m, v);
        if (!(weft_node_opdef(s->m, n)->traits & WEFT_T_VIEW))
            break;
        v = weft_node_in(s->m, n, 0);
    }
    return v;
}

/* Values that need memory of their own: results of nodes, except views. */
static bool needs_memory(const weft_sizes *s, weft_val v)
{
    return v.i && weft_val_get_kind(s->m, v) == WEFT_VAL_NODE &&
           !(weft_node_opdef(s->m, weft_val_node(s->m, v))->traits & WEFT_T_VIEW);
}

static uint64_t peak_alive(const weft_sizes *s)
{
    uint32_t n_val = weft_val_count(s->m) + 1, step = 0;
    uint32_t *last = weft_arena_array(s->arena, n_val, sizeof *last);
    uint64_t now = 0, peak = 0;
    WEFT_FOREACH_NODE (s->m, s->g, n) {
        step++;
        for (uint32_t i = 0; i < weft_node_in_count(s->m, n); i++)
            last[find_owner(s, weft_node_in(s->m, n, i)).i] = step;
    }
    for (uint32_t i = 0; i < weft_graph_output_count(s->g); i++)
        last[find_owner(s, weft_graph_output(s->g, i)).i] = step + 1;
    step = 0;
    WEFT_FOREACH_NODE (s->m, s->g, k) {
        uint64_t unread = 0;
        step++;
        for (uint32_t i = 0; i < weft_node_out_count(s->m, k); i++) {
            weft_val v = weft_node_out(s->m, k, i);
            if (!needs_memory(s, v))
                continue;
            uint64_t bytes = val_bytes(s, v);
            now = add_capped(now, bytes);
            if (last[v.i] == 0)
                unread = add_capped(unread, bytes);
        }
        peak = now > peak ? now : peak;
        now -= unread < now ? unread : now;
        for (uint32_t i = 0; i < weft_node_in_count(s->m, k); i++) {
            weft_val v = find_owner(s, weft_node_in(s->m, k, i));
            if (last[v.i] != step || !needs_memory(s, v))
                continue;
            last[v.i] = 0; /* once, also when it is two operands */
            uint64_t bytes = val_bytes(s, v);
            now -= bytes < now ? bytes : now;
        }
    }
    return peak;
}

static uint64_t find_arena(const weft_sizes *s, const int64_t *symbol)
{
    uint32_t n = weft_graph_symbol_count(s->g);
    for (uint32_t i = 0; i < weft_graph_bucket_count(s->g); i++) {
        const weft_bucket *b = weft_graph_bucket(s->g, i);
        if (b->n_symbol == n && (n == 0 || memcmp(b->symbol, symbol, n * sizeof *symbol) == 0))
            return b->arena_bytes;
    }
    return peak_alive(s);
}

/* -- Sums ------------------------------------------------------------------------------------- */

void weft_workload__count_memory(const weft_sizes *s, const int64_t *symbol,
                                 const weft_estimate_options *options, weft_workload *out)
{
    out->weight_bytes = count_weights(s);
    out->arena_bytes = options->arena_bytes ? options->arena_bytes : find_arena(s, symbol);
    for (uint32_t i = 0; i < weft_graph_input_count(s->g); i++)
        out->in_bytes = add_capped(out->in_bytes, val_bytes(s, weft_graph_input(s->g, i)));
    for (uint32_t i = 0; i < weft_graph_output_count(s->g); i++)
        out->out_bytes = add_capped(out->out_bytes, val_bytes(s, weft_graph_output(s->g, i)));
}

static uint64_t find_workspace(const weft_workload *work, const weft_slice *slice)
{
    if (weft_gpu__is_cpu(slice->gpu))
        return 0;
    for (size_t i = 0; i < work->n; i++) {
        if (work->kernel[i].kernel.kind != WEFT_KERNEL_GEMM)
            continue;
        if (slice->gpu->capability >= new_capability)
            return new_workspace_mib * mib;
        return (work->lowering == WEFT_LOWERING_FRAMEWORK ? framework_workspace_mib
                                                          : old_workspace_mib) *
               mib;
    }
    return 0;
}

void weft_workload__sum_memory(const weft_workload *work, const weft_slice *slice,
                               weft_estimate *out)
{
    out->weight_bytes = work->weight_bytes;
    out->arena_bytes = work->arena_bytes;
    out->workspace_bytes = find_workspace(work, slice);
    out->io_bytes = work->in_bytes; /* outputs lie in the arena */
    out->context_bytes = slice->gpu->context_bytes;
    uint64_t values = add_capped(add_capped(work->weight_bytes, work->arena_bytes), out->io_bytes);
    out->total.mreq_bytes = add_capped(values, out->workspace_bytes + out->context_bytes);
}
