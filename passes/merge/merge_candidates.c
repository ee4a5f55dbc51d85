/* Ways to run the nodes of a column, what each would take, and whether it may be taken.
 *
 * Products by the same weights may become one; products by different weights are offered to every
 * strategy for that, which may serve some of the models only, and compared with the same products
 * run by classes of equal weights. What stands between products - element-wise chains,
 * normalisation, pooling - saves launches when it is joined.
 *
 * The estimator errs, so a way must gain a margin. The gain of K products of m rows over one of K m
 * rows by the same weight is known within 2 to 4 % in the median (estimator/README.md, Models):
 * products must gain 5 %. That of convolutions was predicted 14 % too high where it was measured,
 * 1.23 for 1.08 when all of eight siblings of ResNet-18 are joined
 * (tests/bench/results/merge_2_threads.csv): they must gain 15 %. Both hold for every size and
 * strategy alike.
 *
 * Gains are those at small sizes, where weights are read for few rows and the joint program is run
 * most. At large ones a way may lose, but for a gain worth having: the joint program has a limit on
 * its size where it loses (merge_limit.c), and a way that gains little must not lower it. */
#include "passes/merge/beam_search.h"

static const double gemm_margin = 1.05, conv_margin = 1.15, loss = 0.98, small_margin = 1.1;
/* Products that are made anew for less than that are not worth their weights. */
static const double least_us = 0.3;

/* So many sets of models are offered to strategies for different weights: each takes its time. */
enum { TRIES_MAX = 4 };

/* What strategies for different weights make of a set of models. */
typedef struct attempt {
    uint32_t models, n;
    const weft_candidate *candidate[WEFT_CANDIDATES_MAX];
} attempt;

struct weft_candidates {
    weft_merger *g;
    const weft_column *column;
    bool is_gemm, known; /* the times apart are */
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

/* A node between products that makes so many elements: the fewer launches, the less. */
static bool time_light(const weft_merger *g, weft_node n, const weft_merge_sizes *at,
                       double elements, double *us)
{
    if (weft_node_opdef(g->m, n)->traits & WEFT_T_VIEW)
        return true;
    return weft_merge__chain_us(at, g->m, weft_node_out(g->m, n, 0), elements,
                                weft_node_in_count(g->m, n), us);
}

static bool time_joint_light(const weft_merger *g, const weft_column *c, const weft_merge_sizes *at,
                             double *us)
{
    double elements = 0;
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        if (c->node[i].i &&
            !weft_merge__count(at, g->m, weft_node_out(g->m, c->node[i], 0), &elements))
            return false;
    return time_light(g, weft_merge__first(g, c), at, elements, us);
}

/* Of model i by itself. */
static bool time_apart(const weft_candidates *o, uint32_t i, const weft_merge_sizes *at, double *us)
{
    weft_node n = o->column->node[i];
    double elements = 0;
    if (o->is_gemm)
        return weft_merge__node_us(at, o->g->m, n, us);
    return weft_merge__count(at, o->g->m, weft_node_out(o->g->m, n, 0), &elements) &&
           time_light(o->g, n, at, elements, us);
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
    return p->how->time && p->how->time(g, p, at, us) && time_copies(g, p, at, us);
}

/* -- One candidate --------------------------------------------------------------------------------
 */

/* Why it is not worth its while; "": it is. */
static const char *judge(const weft_merger *g, const weft_candidate *x)
{
    double least = margin_of(g, &x->group);
    if (!x->known)
        return "the estimator does not know this product";
    if (!x->group.how->equal_only && x->other_small - x->small_us < least_us &&
        x->other_large - x->large_us < least_us)
        return "saves less than 0.3 us";
    if (x->gain_small < least)
        return x->gain_small < loss ? "loses at small sizes"
                                    : "no gain: arithmetic decides, not reading the weight";
    if (x->small_only && x->gain_small < small_margin)
        return "loses at some sizes";
    return "";
}

static weft_candidate *consider(weft_candidates *o, const weft_merge_strategy *how, uint32_t models)
{
    weft_merger *g = o->g;
    weft_candidate *x = weft_arena_alloc(g->cx->scratch, sizeof *x);
    x->group = weft_merge__make_group(g, o->column, models, how);
    x->models = models;
    x->reason = how == g->cx->options->strategy_without ? "left out"
                : how->fit                              ? how->fit(g, &x->group)
                                                        : NULL;
    x->fits = !x->reason;
    x->reason = x->reason ? x->reason : "";
    x->set = weft_merge__models(g, &x->group.column);
    if (!x->fits || !o->known)
        return x;
    if (o->is_gemm)
        x->known = how->time && how->time(g, &x->group, &g->small, &x->small_us) &&
                   how->time(g, &x->group, &g->large, &x->large_us);
    else
        x->known = time_joint_light(g, &x->group.column, &g->small, &x->small_us) &&
                   time_joint_light(g, &x->group.column, &g->large, &x->large_us);
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        x->apart_us += x->set >> i & 1 ? o->small_us[i] : 0;
    return x;
}

/* Against that. */
static void compare(const weft_candidates *o, weft_candidate *x, double small_us, double large_us)
{
    x->other_small = small_us;
    x->other_large = large_us;
    if (x->known && x->small_us > 0 && x->large_us > 0) {
        x->gain_small = small_us / x->small_us;
        x->gain_large = large_us / x->large_us;
        x->small_only = x->gain_large < loss;
    }
    if (x->fits && o->is_gemm)
        x->reason = judge(o->g, x);
}

weft_candidates *weft_candidate__open(weft_merger *g, const weft_column *column)
{
    weft_candidates *o = weft_arena_alloc(g->cx->scratch, sizeof *o);
    o->g = g;
    o->column = column;
    o->is_gemm = weft_merge__is_gemm(g->m, weft_merge__first(g, column));
    o->known = g->sized && column->n > 1;
    for (uint32_t i = 0; i < g->columns.n_model && o->known; i++)
        if (column->node[i].i)
            o->known = time_apart(o, i, &g->small, &o->small_us[i]) &&
                       time_apart(o, i, &g->large, &o->large_us[i]);
    return o;
}

/* By a strategy for the same weights, against each model by itself. */
static const weft_candidate *find_same(weft_candidates *o, const weft_merge_strategy *how,
                                       uint32_t set)
{
    double small_us = 0, large_us = 0;
    for (uint32_t i = 0; i < o->same.len; i++)
        if (o->same.at[i]->models == set && o->same.at[i]->group.how == how)
            return o->same.at[i];
    weft_candidate *x = consider(o, how, set);
    for (uint32_t i = 0; i < o->g->columns.n_model; i++) {
        small_us += set >> i & 1 ? o->small_us[i] : 0;
        large_us += set >> i & 1 ? o->large_us[i] : 0;
    }
    compare(o, x, small_us, large_us);
    WEFT_VEC_PUSH(o->g->cx->scratch, &o->same, x);
    return x;
}

const weft_candidate *weft_candidate__joint(weft_candidates *o, uint32_t set)
{
    return find_same(o, &weft_merge_strategy_concatenated, set);
}

const weft_candidate *weft_candidate__apart(weft_candidates *o, uint32_t set)
{
    bool beside = o->is_gemm && set & (set - 1) && weft_merge__is_exact(o->g);
    return find_same(o, beside ? &weft_merge_strategy_interleaved : &weft_merge_strategy_none, set);
}

/* -- Different weights ------------------------------------------------------------------------ */

/* Compares with the same products when those with the same weights are run together, or not,
 * whichever is less. */
static void compare_by_class(weft_candidates *o, weft_candidate *x)
{
    double small_us = 0, large_us = 0;
    for (uint32_t left = x->set; left;) {
        uint32_t set = weft_merge__equal_to_first(o->g, o->column, left);
        const weft_candidate *one = weft_candidate__joint(o, set);
        bool joint = set & (set - 1) && one->known;
        small_us += joint && one->small_us < one->other_small ? one->small_us : one->other_small;
        large_us += joint && one->large_us < one->other_large ? one->large_us : one->other_large;
        left &= ~set;
    }
    compare(o, x, small_us, large_us);
}

/* Whether a strategy is tried at all. */
static bool is_tried(const weft_merger *g, const weft_merge_strategy *how)
{
    if (how->equal_only || how == &weft_merge_strategy_none)
        return false;
    return g->cx->options->merge == WEFT_MERGE_STRATEGY ? how == g->cx->options->strategy
                                                        : !how->asked_only;
}

uint32_t weft_candidate__unequal(weft_candidates *o, uint32_t models, const weft_candidate **out)
{
    uint32_t k = 0;
    while (k < o->n_tried && o->tried[k].models != models)
        k++;
    if (k == TRIES_MAX || o->g->cx->options->merge == WEFT_MERGE_EXACT)
        return 0;
    attempt *t = &o->tried[k];
    if (k == o->n_tried) {
        o->n_tried++;
        t->models = models;
        for (size_t i = 0; weft_merge_strategy_at(i) && t->n < WEFT_CANDIDATES_MAX; i++) {
            if (!is_tried(o->g, weft_merge_strategy_at(i)))
                continue;
            weft_candidate *x = consider(o, weft_merge_strategy_at(i), models);
            compare_by_class(o, x);
            t->candidate[t->n++] = x;
        }
    }
    for (uint32_t i = 0; i < t->n; i++)
        out[i] = t->candidate[i];
    return t->n;
}

/* -- Taking one ------------------------------------------------------------------------------- */

bool weft_candidate__is_joint(const weft_candidate *x)
{
    return x->group.how != &weft_merge_strategy_none &&
           x->group.how != &weft_merge_strategy_interleaved;
}

double weft_candidate__saved_us(weft_merger *g, const weft_candidate *x, const weft_merge_group *p)
{
    double us = x->small_us;
    if (!x->known || !weft_candidate__is_joint(x) || !time_copies(g, p, &g->small, &us))
        return 0;
    us *= margin_of(g, p);
    return x->apart_us - us - (p->how->equal_only ? 0 : least_us);
}

bool weft_candidate__is_open(const weft_merger *g, const weft_candidate *x)
{
    if (!x->fits || !(x->set & (x->set - 1)))
        return false;
    if (g->cx->options->merge == WEFT_MERGE_STRATEGY)
        return g->cx->options->strategy != &weft_merge_strategy_none;
    return *x->reason == 0;
}
