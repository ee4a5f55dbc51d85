/* plan-memory: offsets in one arena for each batch bucket.
 *
 * Buckets are the batch sizes asked for, for all models or for one, crossed with a few values of
 * every other symbol: its upper bound and the powers of two from 16 below it; a symbol without a
 * bound is planned at UNBOUNDED_DEFAULT. Sizes that the requirements of the graph exclude are
 * replaced by the next ones that they allow. In a joint graph all parts have the same batch; a
 * packed graph has sizes of its own for all rows. The runtime plans other sizes when a request has
 * them. In a bucket all dims are numbers: ops/place.h computes which values need memory and their
 * lifetimes (an output lives to the end), and base/pack.h places the blocks. Values with a dynamic
 * shape live on the heap and have no buffer. O(buckets * nodes^2) in the worst case, in practice
 * linear.
 *
 * GPUs run independent launches concurrently: there a value lives from the beginning of the level
 * that defines it (level-schedule) to the end of the last level that reads it. */
#include "passes/merge/merge.h"

#include "base/pack.h"

#include <string.h>

enum {
    BUCKETS_MAX = 64,
    CHOICES_MAX = 24,
    UNBOUNDED_DEFAULT = 128,
    SMALLEST_STEP = 16,
    TRIES_MAX = 4096
};

static const int64_t default_batch[] = {1, 2, 4, 8};

/* -- Buckets -------------------------------------------------------------------------------- */

/* Values of the pool's symbols, -1: not known. `tries` bounds the search for allowed sizes. */
typedef struct planner {
    weft_graph *g;
    int64_t *value;
    uint32_t n_value;
    uint32_t tries;
} planner;

typedef struct choices {
    int64_t at[CHOICES_MAX];
    uint32_t n;
} choices;

/* The batches to plan for a model. */
static const int64_t *list_batches(const weft_pass_options *o, const char *model, size_t *out_n)
{
    const int64_t *batch = o->batch ? o->batch : default_batch;
    *out_n = o->batch ? o->n_batch : sizeof default_batch / sizeof default_batch[0];
    for (size_t i = 0; i < o->n_own_batch && !o->batch; i++)
        if (strcmp(o->own_batch[i].model, model) == 0) {
            batch = o->own_batch[i].batch;
            *out_n = o->own_batch[i].n;
        }
    return batch;
}

int64_t weft_pass__most_batch(const weft_pass_options *o, const char *model)
{
    size_t n;
    const int64_t *batch = list_batches(o, model, &n);
    int64_t most = 1;
    for (size_t i = 0; i < n; i++)
        most = batch[i] > most ? batch[i] : most;
    return most;
}

static void choose_batch(const weft_pass_options *o, const char *model, int64_t lo, int64_t hi,
                         choices *out)
{
    size_t n;
    const int64_t *batch = list_batches(o, model, &n);
    for (size_t i = 0; i < n && out->n < CHOICES_MAX; i++)
        if (batch[i] >= lo && batch[i] <= hi)
            out->at[out->n++] = batch[i];
    if (out->n == 0)
        out->at[out->n++] = lo > 0 ? lo : 1;
}

/* Adds the first size from `x` to `last` that the requirements of the graph allow. */
static void choose_allowed(planner *p, uint32_t symbol, int64_t x, int64_t last, choices *out)
{
    const weft_dimpool *pool = weft_module_dims(weft_graph_module(p->g));
    uint32_t i = weft_dim_as_symbol(pool, weft_graph_symbol_dim(p->g, symbol));
    bool found = weft_graph_require_count(p->g) == 0;
    while (!found && x <= last && p->tries > 0) {
        p->tries--;
        p->value[i] = x;
        found = !weft_graph_find_broken(p->g, pool, p->value, p->n_value);
        p->value[i] = -1;
        x += !found;
    }
    if (found)
        out->at[out->n++] = x;
}

/* `symbol` alone is known: only requirements that depend on no other one rule out its sizes. */
static void choose_other(planner *p, uint32_t symbol, int64_t lo, int64_t hi, choices *out)
{
    bool open = hi > INT32_MAX;
    if (open)
        hi = lo > UNBOUNDED_DEFAULT ? lo : UNBOUNDED_DEFAULT;
    for (int64_t x = SMALLEST_STEP; x < hi && out->n + 1 < CHOICES_MAX; x *= 2)
        if (x >= lo)
            choose_allowed(p, symbol, x, (x < hi / 2 ? 2 * x : hi) - 1, out);
    choose_allowed(p, symbol, hi, open ? 2 * hi : hi, out);
    if (out->n == 0)
        choose_allowed(p, symbol, lo > 0 ? lo : 1, hi, out);
    if (out->n == 0)
        out->at[out->n++] = hi;
}

/* Extends lifetimes to whole levels. */
static void widen(weft_passctx *cx, const weft_places *p, weft_block *block, uint32_t n)
{
    weft_place_level *level = weft_arena_array(cx->scratch, (size_t)p->n_launch + 1, sizeof *level);
    uint32_t *maker = weft_arena_array(cx->scratch, (size_t)p->n + 1, sizeof *maker);
    weft_place_levels(p->launch, p->n_launch, maker, level);
    for (uint32_t i = 0; i < n; i++) {
        block[i].first = level[block[i].first].first;
        block[i].last = level[block[i].last].last;
    }
}

static weft_err plan_bucket(weft_passctx *cx, weft_graph *g, weft_places *places,
                            const int64_t *symbol, uint32_t n_symbol)
{
    weft_dimpool *pool = weft_module_dims(weft_graph_module(g));
    uint32_t n_pool = weft_dim_symbol_count(pool), n = 0;
    int64_t *value = weft_arena_array(cx->scratch, (size_t)n_pool + 1, sizeof *value);
    for (uint32_t i = 0; i < n_pool; i++)
        value[i] = -1;
    for (uint32_t i = 0; i < n_symbol; i++)
        value[weft_dim_as_symbol(pool, weft_graph_symbol_dim(g, i))] = symbol[i];
    if (weft_graph_find_broken(g, pool, value, n_pool) ||
        !weft_graph_place(g, pool, value, n_pool, places))
        return WEFT_ERR_OK; /* this combination is invalid (it makes a dim negative, for example) */
    weft_block *block = weft_arena_array(cx->scratch, (size_t)places->n + 1, sizeof *block);
    weft_buffer *buffer = weft_arena_array(cx->scratch, (size_t)places->n + 1, sizeof *buffer);
    for (uint32_t v = 1; v <= places->n; v++) {
        const weft_place_value *p = &places->value[v];
        if (p->place != WEFT_PLACE_ARENA)
            continue;
        block[n] = (weft_block){.size = p->bytes, .first = p->first, .last = p->last};
        buffer[n++].val = places->val[v];
    }
    uint64_t total = 0;
    if (weft_target_is_gpu(cx->options->target))
        widen(cx, places, block, n);
    WEFT_TRY(weft_pack_blocks(block, n, WEFT_ARENA_ALIGN, &total));
    for (uint32_t i = 0; i < n; i++)
        buffer[i] = (weft_buffer){.val = buffer[i].val,
                                  .offset = block[i].offset,
                                  .bytes = block[i].size,
                                  .first = block[i].first,
                                  .last = block[i].last};
    weft_graph_add_bucket(g, &(weft_bucket){.symbol = symbol,
                                            .n_symbol = n_symbol,
                                            .arena_bytes = total,
                                            .buffer = buffer,
                                            .n_buffer = n});
    return WEFT_ERR_OK;
}

/* Classes of symbols that have equal values in every bucket: in a joint graph all batches, and
 * symbols with the same name ("a/seq", "b/seq"); other symbols are classes of their own. Returns
 * the first symbol of the class of symbol i. */
static uint32_t find_class(const weft_graph *g, uint32_t i, const bool *is_batch)
{
    const char *name = strrchr(weft_graph_symbol_name(g, i), '/');
    if (weft_graph_part_count(g) == 0)
        return i;
    for (uint32_t k = 0; k < i; k++) {
        const char *other = strrchr(weft_graph_symbol_name(g, k), '/');
        if (is_batch[k] != is_batch[i])
            continue;
        if (is_batch[i] || (name && other && strcmp(name, other) == 0))
            return k;
    }
    return i;
}

/* Which symbols are batches: of the graph, or of its parts. */
static void find_batches(const weft_graph *g, bool *out)
{
    const weft_module *m = weft_graph_module(g);
    uint32_t n = weft_graph_symbol_count(g), own = weft_graph_batch_symbol(g);
    for (uint32_t i = 0; i < n; i++)
        out[i] = i == own && weft_graph_part_count(g) == 0;
    for (uint32_t k = 0; k < weft_graph_part_count(g); k++) {
        const weft_graph *model = weft_graph_find(m, weft_graph_part(g, k)->model);
        weft_dim batch = model ? weft_merge__batch(model) : 0;
        for (uint32_t i = 0; i < n && batch != 0; i++)
            out[i] = out[i] || weft_graph_symbol_dim(g, i) == batch;
    }
}

/* Total rows of packed sequences: steps of 16, then of a quarter of the power of two, so that few
 * rows are padding. */
static void choose_rows(int64_t hi, choices *out)
{
    for (int64_t rows = 16, step = 16; rows < hi; rows += step) {
        out->at[out->n++] = rows;
        step = rows >= 8 * step ? 2 * step : step;
    }
    out->at[out->n++] = hi;
}

static weft_err plan_graph(weft_passctx *cx, weft_graph *g)
{
    weft_dimpool *pool = weft_module_dims(weft_graph_module(g));
    uint32_t n = weft_graph_symbol_count(g);
    choices *choice = weft_arena_array(cx->scratch, (size_t)n + 1, sizeof *choice);
    uint32_t *turn = weft_arena_array(cx->scratch, (size_t)n + 1, sizeof *turn);
    uint32_t *class = weft_arena_array(cx->scratch, (size_t)n + 1, sizeof *class);
    bool *is_batch = weft_arena_array(cx->scratch, (size_t)n + 1, sizeof *is_batch);
    int64_t *symbol = weft_arena_array(cx->scratch, (size_t)n + 1, sizeof *symbol);
    find_batches(g, is_batch);
    planner p = {.g = g, .n_value = weft_dim_symbol_count(pool), .tries = TRIES_MAX};
    p.value = weft_arena_array(cx->scratch, (size_t)p.n_value + 1, sizeof *p.value);
    for (uint32_t i = 0; i < p.n_value; i++)
        p.value[i] = -1;
    for (uint32_t i = 0; i < n; i++) {
        int64_t lo = 0, hi = 0;
        weft_dim_bounds(pool, weft_graph_symbol_dim(g, i), &lo, &hi);
        class[i] = find_class(g, i, is_batch);
        if (class[i] != i)
            choice[i].n = 1; /* follows its class */
        else if (weft_graph_is_packed(g))
            choose_rows(hi, &choice[i]);
        else if (is_batch[i])
            choose_batch(cx->options, weft_graph_name(g), lo, hi, &choice[i]);
        else
            choose_other(&p, i, lo, hi, &choice[i]);
    }
    weft_places places;
    weft_graph_place_start(g, cx->scratch, &places);
    weft_graph_clear_buckets(g);
    /* All combinations; the last symbol varies fastest. */
    for (uint32_t made = 0; made < BUCKETS_MAX; made++) {
        for (uint32_t i = 0; i < n; i++) {
            int64_t lo = 0, hi = 0;
            weft_dim_bounds(pool, weft_graph_symbol_dim(g, i), &lo, &hi);
            symbol[i] = choice[class[i]].at[turn[class[i]]];
            symbol[i] = symbol[i] < lo ? lo : symbol[i] > hi ? hi : symbol[i];
        }
        WEFT_TRY(plan_bucket(cx, g, &places, symbol, n));
        uint32_t i = n;
        while (i > 0 && ++turn[i - 1] == choice[i - 1].n)
            turn[--i] = 0;
        if (i == 0)
            break;
    }
    return WEFT_ERR_OK;
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    for (uint32_t i = 0; i < weft_graph_count(m); i++)
        if (!weft_graph_is_body(weft_graph_at(m, i))) /* the sizes of bodies are known when run */
            WEFT_TRY(plan_graph(cx, weft_graph_at(m, i)));
    *changed = true;
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_plan_memory = {
    .name = "plan-memory",
    .brief = "plan one arena for each batch bucket",
    .from = WEFT_STAGE_KERNEL,
    .to = WEFT_STAGE_PLAN,
    .run = run,
};
