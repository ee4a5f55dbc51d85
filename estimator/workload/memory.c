/* Memory of a graph (mreq), as capacity.
 *
 *   mreq = weights + arena + workspace + inputs + context
 *
 * Weights: each weight once, however many nodes read it; dedup has replaced weights of equal
 * content by one. Arena (intermediate values and outputs): the size that plan-memory planned for
 * these symbols, or the size it would plan: the same places (ir/place.c), packed by the same
 * algorithm (base/pack.h). For a framework the same number stands for its caching allocator,
 * assuming no fragmentation.
 *
 * Workspace (GPUs): memory that a GEMM of cuBLAS may use. NVIDIA recommends 32 MiB from compute
 * capability 9.0 on and 4 MiB before (documentation of cublasSetWorkspace); PyTorch allocates 8 MiB
 * before (CUBLAS_WORKSPACE_CONFIG :4096:2:16:8). A framework has one workspace a process, Weft one
 * for each GEMM of a level (ops/place.h), because these run concurrently. This is an upper bound:
 * the driver gives each algorithm what it asks for, in gaps of the arena where possible.
 * Implicit-GEMM convolutions need no workspace. Products of bytes need scratch memory for their
 * packed factors and i32 sums (weft_staging); nodes of a level have their own. */
#include "estimator/workload/workload_int.h"

#include "estimator/device/device.h"

#include "base/pack.h"

#include <math.h>
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

/* Weights of a graph and of the bodies of its nodes. */
static uint64_t count_unseen(const weft_sizes *s, const weft_graph *g, bool *seen, uint32_t depth)
{
    uint64_t bytes = 0;
    WEFT_FOREACH_NODE (s->m, g, n) {
        for (uint32_t b = 0; depth < WEFT_FLOW_DEPTH_MAX && b < weft_node_body_count(s->m, n); b++)
            if (weft_node_body(s->m, n, b))
                bytes =
                    add_capped(bytes, count_unseen(s, weft_node_body(s->m, n, b), seen, depth + 1));
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

static uint64_t count_weights(const weft_sizes *s)
{
    bool *seen = weft_arena_array(s->arena, (size_t)weft_weight_count(s->m) + 1, sizeof *seen);
    return count_unseen(s, s->g, seen, 0);
}

/* -- Intermediate values ---------------------------------------------------------------------- */

/* Size of the arena that plan-memory would plan for these sizes. */
static weft_err plan_arena(const weft_sizes *s, uint64_t *out)
{
    weft_places places;
    uint32_t n = 0;
    weft_graph_place_start(s->g, s->arena, &places);
    if (!weft_graph_place(s->g, weft_module_dims(s->m), s->value, s->n_value, &places))
        return weft_diag_error(
            s->diag, WEFT_ERR_UNSUP, (weft_where){.item = weft_graph_name(s->g)},
            "a shape depends on data, or is too large for its memory to be planned");
    weft_block *block = weft_arena_array(s->arena, (size_t)places.n + 1, sizeof *block);
    for (uint32_t v = 1; v <= places.n; v++) {
        const weft_place_value *p = &places.value[v];
        if (p->place == WEFT_PLACE_ARENA)
            block[n++] = (weft_block){.size = p->bytes, .first = p->first, .last = p->last};
    }
    return weft_pack_blocks(block, n, WEFT_ARENA_ALIGN, out);
}

static weft_err find_arena(const weft_sizes *s, const int64_t *symbol, uint64_t *out)
{
    uint32_t n = weft_graph_symbol_count(s->g);
    for (uint32_t i = 0; i < weft_graph_bucket_count(s->g); i++) {
        const weft_bucket *b = weft_graph_bucket(s->g, i);
        if (b->n_symbol == n && (n == 0 || memcmp(b->symbol, symbol, n * sizeof *symbol) == 0)) {
            *out = b->arena_bytes;
            return WEFT_ERR_OK;
        }
    }
    return plan_arena(s, out);
}

/* -- Reuse ------------------------------------------------------------------------------------ */

/* The largest weight that a node reads; {0}: none. */
static weft_weight main_weight(const weft_module *m, weft_node n)
{
    weft_weight best = {0};
    uint64_t most = 0;
    for (uint32_t i = 0; i < weft_node_in_count(m, n); i++) {
        weft_val v = weft_node_in(m, n, i);
        weft_weight w = v.i ? weft_val_weight(m, v) : (weft_weight){0};
        uint64_t bytes = w.i ? weft_weight_get(m, w)->bytes : 0;
        if (bytes > most) {
            best = w;
            most = bytes;
        }
    }
    return best;
}

/* The stack distance of a weight is the bytes touched between two uses of it: the weights used in
 * between (each once, including this one) and the values written in between (at most the arena,
 * whose memory is reused). Between the last use in one execution and the first use in the next it
 * also includes what other programs touch. The loop simulates two executions: the second one knows
 * the state that the first leaves. */
void weft_workload__find_reuse(const weft_sizes *s, const weft_estimate_options *options,
                               weft_workload *out)
{
    weft_graph_kernel *kernel = (weft_graph_kernel *)(uintptr_t)out->kernel;
    size_t n_weight = (size_t)weft_weight_count(s->m) + 1;
    struct {
        double weights, written;
        int round;
    } *last = weft_arena_array(s->arena, n_weight, sizeof *last), at = {0};
    memset(last, 0, n_weight * sizeof *last);
    for (at.round = 1; at.round <= 2; at.round++) {
        for (size_t i = 0; i < out->n; i++) {
            const weft_work *work = &kernel[i].kernel.work;
            uint32_t w = main_weight(s->m, kernel[i].node).i;
            bool is_new = last[w].round < at.round;
            double before = at.weights;
            at.weights += is_new || w == 0 ? work->weight_bytes : 0;
            double weights = before - last[w].weights + work->weight_bytes;
            double written = fmin(at.written - last[w].written, (double)out->arena_bytes);
            kernel[i].kernel.reuse_bytes = w ? weights + written : 0;
            at.written += work->bytes_written * kernel[i].launches;
            last[w].weights = at.weights;
            last[w].written = at.written;
            last[w].round = at.round;
        }
        at.weights += (double)options->beside_bytes;
    }
}

/* -- Workspace ------------------------------------------------------------------------------- */

static uint32_t count_gemms(const weft_workload *work, const weft_workload_node *s)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < s->n_kernel; k++)
        n += work->kernel[s->first_kernel + k].kernel.kind == WEFT_KERNEL_GEMM;
    return n > 0; /* GEMMs of one node run one after the other */
}

/* Scratch memory that GPUs need for the products of bytes of a node. */
static uint64_t staging_bytes(const weft_workload *work, const weft_workload_node *s)
{
    double most = 0; /* the kernels of one node run one after the other */
    for (uint32_t k = 0; k < s->n_kernel; k++) {
        const weft_staging *t = &work->kernel[s->first_kernel + k].kernel.staging;
        most = fmax(most, t->packed_bytes + t->sum_bytes);
    }
    return most < 0x1p63 ? (uint64_t)most : UINT64_MAX;
}

/* Largest number of GEMMs, and most scratch memory, in one level; levels as in weft_place_levels: a
 * node without kernels ends no level. */
static void count_beside(weft_workload *work, weft_arena *arena)
{
    uint32_t *maker = weft_arena_array(arena, work->n_node + 1, sizeof *maker);
    uint32_t begin = 0, n = 0;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < work->n_node; i++) {
        const weft_workload_node *s = &work->node[i];
        uint32_t newest = 0; /* 1 + last node that makes an operand */
        for (uint32_t k = 0; k < s->n_edge; k++)
            if (maker[work->edge[s->first_edge + k]] > newest)
                newest = maker[work->edge[s->first_edge + k]];
        maker[i] = s->n_kernel ? i + 1 : newest;
        if (s->n_kernel && newest > begin) {
            begin = i;
            n = 0;
            bytes = 0;
        }
        n += count_gemms(work, s);
        bytes = add_capped(bytes, staging_bytes(work, s));
        work->n_beside = n > work->n_beside ? n : work->n_beside;
        work->staging_bytes = bytes > work->staging_bytes ? bytes : work->staging_bytes;
    }
}

/* -- Sums ------------------------------------------------------------------------------------- */

weft_err weft_workload__count_memory(const weft_sizes *s, const int64_t *symbol,
                                     const weft_estimate_options *options, weft_workload *out)
{
    out->weight_bytes = count_weights(s);
    out->arena_bytes = options->arena_bytes;
    if (!out->arena_bytes)
        WEFT_TRY(find_arena(s, symbol, &out->arena_bytes));
    for (uint32_t i = 0; i < weft_graph_input_count(s->g); i++)
        out->in_bytes = add_capped(out->in_bytes, val_bytes(s, weft_graph_input(s->g, i)));
    for (uint32_t i = 0; i < weft_graph_output_count(s->g); i++)
        out->out_bytes = add_capped(out->out_bytes, val_bytes(s, weft_graph_output(s->g, i)));
    count_beside(out, s->arena);
    return WEFT_ERR_OK;
}

static uint64_t find_workspace(const weft_workload *work, const weft_slice *slice)
{
    if (slice->gpu->is_cpu || (work->n_beside == 0 && work->staging_bytes == 0))
        return 0;
    bool is_new = slice->gpu->capability >= new_capability;
    if (work->lowering == WEFT_LOWERING_FRAMEWORK)
        return (is_new ? new_workspace_mib : framework_workspace_mib) * mib;
    return add_capped((is_new ? new_workspace_mib : old_workspace_mib) * mib * work->n_beside,
                      work->staging_bytes);
}

void weft_workload__sum_memory(const weft_workload *work, const weft_slice *slice,
                               weft_estimate *out)
{
    out->weight_bytes = work->weight_bytes;
    out->arena_bytes = work->arena_bytes;
    out->workspace_bytes = find_workspace(work, slice);
    out->io_bytes = work->in_bytes; /* the arena holds the outputs */
    out->context_bytes = slice->gpu->context_bytes;
    uint64_t values = add_capped(add_capped(work->weight_bytes, work->arena_bytes), out->io_bytes);
    out->total.mreq_bytes = add_capped(values, out->workspace_bytes + out->context_bytes);
}
