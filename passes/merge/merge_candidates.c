/* Merge candidates: the strategies that can run the nodes of a column, their predicted times, and
 * whether the beam search may take them.
 *
 * GEMMs by the same weight can become one super-GEMM. GEMMs by different weights are tried with
 * every strategy for that, which may serve some of the models only; the baseline is running them by
 * classes of equal weights. Nodes between GEMMs (element-wise chains, normalisation, pooling) save
 * launches when they are joined.
 *
 * The estimator errs, so a candidate must gain by a margin. The gain of one GEMM of K m rows over K
 * GEMMs of m rows by the same weight is known within 2 to 4 % in the median (estimator/README.md,
 * Models): GEMMs must gain 5 %. The gain of convolutions was predicted 14 % too high where it was
 * measured, 1.23 instead of 1.08 for joining all of eight siblings of ResNet-18
 * (tests/bench/results/merge_2_threads.csv): convolutions must gain 15 %. Both margins hold for
 * every size and strategy.
 *
 * Gains are those at the small size, where weights are read for few rows and the joint program runs
 * most. A candidate may lose at the large size if it gains at least `small_margin` at the small
 * one: the joint program gets a limit on its size (merge_limit.c), which a small gain is not worth.
 */
#include "passes/merge/beam_search.h"

static const double gemm_margin = 1.05, conv_margin = 1.15, loss = 0.98, small_margin = 1.1;
/* Strategies that add weights to the module must save at least this much. */
static const double least_us = 0.3;

/* Sets of models for which strategies for unequal weights are tried: comparing weights takes time.
 */
enum { TRIES_MAX = 4 };

/* The candidates of all strategies for unequal weights for one set of models. */
typedef struct attempt {
    uint32_t models, n;
    const weft_candidate *candidate[WEFT_CANDIDATES_MAX];
} attempt;

struct weft_candidates {
    weft_merger *g;
    const weft_column *column;
    bool is_gemm, known; /* known: the times of the models' own nodes */
    double small_us[WEFT_MERGE_MODELS_MAX], large_us[WEFT_MERGE_MODELS_MAX]; /* by model, apart */
    WEFT_VEC(weft_candidate *) same; /* for models with the same weights */
    attempt tried[TRIES_MAX];
    uint32_t n_tried;
};

bool weft_merge__is_exact(const weft_merger *g)
{
    const weft_pass_options *o = g->cx->options;
    return o->merge == WEFT_MERGE_EXACT ||
           (o->merge == WEFT_MERGE_STRATEGY && o->strategy == &weft_merge_strategy_interleaved);
}

/* -- Times ------------------------------------------------------------------------------------ */

static double margin_of(const weft_merger *g, const weft_merge_group *p)
{
    weft_node first = weft_merge__first(g, &p->column);
    if (!weft_merge__is_gemm(g->m, first))
        return 1;
    return weft_node_op(g->m, first) == WEFT_OP_MATMUL ? gemm_margin : conv_margin;
}

/* A node between GEMMs whose result has `elements` elements. */
static bool time_other(const weft_merger *g, weft_node n, const weft_merge_sizes *at,
                       double elements, double *us)
{
    if (weft_node_opdef(g->m, n)->traits & WEFT_T_VIEW)
        return true;
    return weft_merge__chain_us(at, g->m, weft_node_out(g->m, n, 0), elements,
                                weft_node_in_count(g->m, n), us);
}

static bool time_joint_other(const weft_merger *g, const weft_column *c, const weft_merge_sizes *at,
                             double *us)
{
    double elements = 0;
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        if (c->node[i].i &&
            !weft_merge__count(at, g->m, weft_node_out(g->m, c->node[i], 0), &elements))
            return false;
    return time_other(g, weft_merge__first(g, c), at, elements, us);
}

/* The node of model i by itself. */
static bool time_apart(const weft_candidates *all, uint32_t i, const weft_merge_sizes *at,
                       double *us)
{
    weft_node n = all->column->node[i];
    double elements = 0;
    if (all->is_gemm)
        return weft_merge__node_us(at, all->g->m, n, us);
    return weft_merge__count(at, all->g->m, weft_node_out(all->g->m, n, 0), &elements) &&
           time_other(all->g, n, at, elements, us);
}

static bool time_copies(weft_merger *g, const weft_merge_group *p, const weft_merge_sizes *at,
                        double *us)
{
    weft_node first = weft_merge__first(g, &p->column);
    for (uint32_t k = 0; p->copied >> k; k++) {
        double x = 0;
        if (!(p->copied >> k & 1))
            continue;
        for (uint32_t i = 0; i < g->columns.n_model; i++) {
            weft_node n = p->column.node[i];
            if (n.i && !weft_merge__count(at, g->m, weft_node_in(g->m, n, k), &x))
                return false;
        }
        if (!weft_merge__copy_us(at, g->m, weft_node_in(g->m, first, k), x, us))
            return false;
    }
    return true;
}

bool weft_merge__group_us(weft_merger *g, const weft_merge_group *p, const weft_merge_sizes *at,
                          double *us)
{
    return p->strategy->time && p->strategy->time(g, p, at, us) && time_copies(g, p, at, us);
}

/* -- One candidate ---------------------------------------------------------------------------- */

/* Why the candidate does not pay; "": it does. */
static const char *find_reason(const weft_merger *g, const weft_candidate *x)
{
    double least = margin_of(g, &x->group);
    if (!x->known)
        return "the estimator does not know this GEMM";
    if (!x->group.strategy->equal_only && x->baseline_small_us - x->small_us < least_us &&
        x->baseline_large_us - x->large_us < least_us)
        return "saves less than 0.3 us";
    if (x->gain_small < least)
        return x->gain_small < loss ? "loses at small sizes"
                                    : "no gain: arithmetic decides, not reading the weight";
    if (x->small_only && x->gain_small < small_margin)
        return "loses at some sizes";
    return "";
}

static weft_candidate *make_candidate(weft_candidates *all, const weft_merge_strategy *strategy,
                                      uint32_t models)
{
    weft_merger *g = all->g;
    weft_candidate *x = weft_arena_alloc(g->cx->scratch, sizeof *x);
    x->group = weft_merge__make_group(g, all->column, models, strategy);
    x->models = models;
    x->reason = strategy == g->cx->options->strategy_without ? "left out"
                : strategy->fit                              ? strategy->fit(g, &x->group)
                                                             : NULL;
    x->fits = !x->reason;
    x->reason = x->reason ? x->reason : "";
    x->set = weft_merge__models(g, &x->group.column);
    if (!x->fits || !all->known)
        return x;
    if (all->is_gemm)
        x->known = strategy->time && strategy->time(g, &x->group, &g->small, &x->small_us) &&
                   strategy->time(g, &x->group, &g->large, &x->large_us);
    else
        x->known = time_joint_other(g, &x->group.column, &g->small, &x->small_us) &&
                   time_joint_other(g, &x->group.column, &g->large, &x->large_us);
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        x->apart_us += x->set >> i & 1 ? all->small_us[i] : 0;
    return x;
}

/* Compares the candidate with a baseline. */
static void compare(const weft_candidates *all, weft_candidate *x, double small_us, double large_us)
{
    x->baseline_small_us = small_us;
    x->baseline_large_us = large_us;
    if (x->known && x->small_us > 0 && x->large_us > 0) {
        x->gain_small = small_us / x->small_us;
        x->gain_large = large_us / x->large_us;
        x->small_only = x->gain_large < loss;
    }
    if (x->fits && all->is_gemm)
        x->reason = find_reason(all->g, x);
}

weft_candidates *weft_candidate__open(weft_merger *g, const weft_column *column)
{
    weft_candidates *all = weft_arena_alloc(g->cx->scratch, sizeof *all);
    all->g = g;
    all->column = column;
    all->is_gemm = weft_merge__is_gemm(g->m, weft_merge__first(g, column));
    all->known = g->sized && column->n > 1;
    for (uint32_t i = 0; i < g->columns.n_model && all->known; i++)
        if (column->node[i].i)
            all->known = time_apart(all, i, &g->small, &all->small_us[i]) &&
                         time_apart(all, i, &g->large, &all->large_us[i]);
    return all;
}

/* The candidate of a strategy for equal weights; its baseline is each model by itself. */
static const weft_candidate *find_same(weft_candidates *all, const weft_merge_strategy *strategy,
                                       uint32_t set)
{
    double small_us = 0, large_us = 0;
    for (uint32_t i = 0; i < all->same.len; i++)
        if (all->same.at[i]->models == set && all->same.at[i]->group.strategy == strategy)
            return all->same.at[i];
    weft_candidate *x = make_candidate(all, strategy, set);
    for (uint32_t i = 0; i < all->g->columns.n_model; i++) {
        small_us += set >> i & 1 ? all->small_us[i] : 0;
        large_us += set >> i & 1 ? all->large_us[i] : 0;
    }
    compare(all, x, small_us, large_us);
    WEFT_VEC_PUSH(all->g->cx->scratch, &all->same, x);
    return x;
}

const weft_candidate *weft_candidate__joint(weft_candidates *all, uint32_t set)
{
    return find_same(all, &weft_merge_strategy_concatenated, set);
}

const weft_candidate *weft_candidate__apart(weft_candidates *all, uint32_t set)
{
    bool beside = all->is_gemm && set & (set - 1) && weft_merge__is_exact(all->g);
    return find_same(all, beside ? &weft_merge_strategy_interleaved : &weft_merge_strategy_none,
                     set);
}

/* -- Unequal weights -------------------------------------------------------------------------- */

/* Compares the candidate with running classes of equal weights, each joined or apart, whichever
 * takes less time. */
static void compare_by_class(weft_candidates *all, weft_candidate *x)
{
    double small_us = 0, large_us = 0;
    for (uint32_t left = x->set; left;) {
        uint32_t set = weft_merge__equal_to_first(all->g, all->column, left);
        const weft_candidate *one = weft_candidate__joint(all, set);
        bool joint = set & (set - 1) && one->known;
        small_us += joint && one->small_us < one->baseline_small_us ? one->small_us
                                                                    : one->baseline_small_us;
        large_us += joint && one->large_us < one->baseline_large_us ? one->large_us
                                                                    : one->baseline_large_us;
        left &= ~set;
    }
    compare(all, x, small_us, large_us);
}

/* Whether the options let a strategy for unequal weights be tried. */
static bool is_tried(const weft_merger *g, const weft_merge_strategy *strategy)
{
    if (strategy->equal_only || strategy == &weft_merge_strategy_none)
        return false;
    return g->cx->options->merge == WEFT_MERGE_STRATEGY ? strategy == g->cx->options->strategy
                                                        : !strategy->asked_only;
}

uint32_t weft_candidate__unequal(weft_candidates *all, uint32_t models, const weft_candidate **out)
{
    uint32_t k = 0;
    while (k < all->n_tried && all->tried[k].models != models)
        k++;
    if (k == TRIES_MAX || all->g->cx->options->merge == WEFT_MERGE_EXACT)
        return 0;
    attempt *t = &all->tried[k];
    if (k == all->n_tried) {
        all->n_tried++;
        t->models = models;
        for (size_t i = 0; weft_merge_strategy_at(i) && t->n < WEFT_CANDIDATES_MAX; i++) {
            if (!is_tried(all->g, weft_merge_strategy_at(i)))
                continue;
            weft_candidate *x = make_candidate(all, weft_merge_strategy_at(i), models);
            compare_by_class(all, x);
            t->candidate[t->n++] = x;
        }
    }
    for (uint32_t i = 0; i < t->n; i++)
        out[i] = t->candidate[i];
    return t->n;
}

/* -- Use by the search ------------------------------------------------------------------------ */

bool weft_candidate__is_joint(const weft_candidate *x)
{
    return x->group.strategy != &weft_merge_strategy_none &&
           x->group.strategy != &weft_merge_strategy_interleaved;
}

double weft_candidate__saved_us(weft_merger *g, const weft_candidate *x, const weft_merge_group *p)
{
    double us = x->small_us;
    if (!x->known || !weft_candidate__is_joint(x) || !time_copies(g, p, &g->small, &us))
        return 0;
    us *= margin_of(g, p);
    return x->apart_us - us - (p->strategy->equal_only ? 0 : least_us);
}

bool weft_candidate__is_open(const weft_merger *g, const weft_candidate *x)
{
    if (!x->fits || !(x->set & (x->set - 1)))
        return false;
    if (g->cx->options->merge == WEFT_MERGE_STRATEGY)
        return g->cx->options->strategy != &weft_merge_strategy_none;
    return *x->reason == 0;
}
