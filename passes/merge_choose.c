/* Which corresponding nodes are run together, and how.
 *
 * Column after column, in the order of the joint graph. Products by different weights are offered
 * to every strategy for that, which may serve some of the models only, and compared with the same
 * products run by classes of equal weights; of those that are worth it the one that saves most is
 * taken, and what is left of the column is offered again. Products by the same weight are run
 * together or not. Worth it is what gains `margin` at small or at large sizes and loses at neither
 * more than `loss`, or gains `small_margin` at small ones: the joint graph has a limit on its size
 * where it is predicted to lose.
 *
 * What stands between products - element-wise chains, normalisation, pooling - is joined when its
 * operands lie together already, so that activations stay together from one product to the next. */
#include "passes/merge_int.h"

#include <math.h>
#include <string.h>

static const double margin = 1.05, loss = 0.98, small_margin = 1.1;
/* Products that are made anew for less than that are not worth their weights. */
static const double least_us = 0.3;
/* Of the time of all products at small sizes: for less, no joint program is made. */
static const double least_saved = 0.02;
/* By which algorithm a convolution runs is chosen later: its time is less certain. */
static const double conv_margin = 1.35;

/* -- Columns ---------------------------------------------------------------------------------- */

weft_node weft_merge__first(const weft_merger *g, const weft_column *c)
{
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        if (c->node[i].i)
            return c->node[i];
    return (weft_node){0};
}

bool weft_merge__is_weight(const weft_merger *g, weft_val v)
{
    return v.i && weft_val_get_kind(g->m, v) == WEFT_VAL_WEIGHT;
}

bool weft_merge__same_weights(const weft_merger *g, weft_node a, weft_node b)
{
    uint32_t n = weft_node_in_count(g->m, a);
    for (uint32_t k = 0; k < n; k++) {
        weft_val x = weft_node_in(g->m, a, k), y = weft_node_in(g->m, b, k);
        if ((weft_merge__is_weight(g, x) || weft_merge__is_weight(g, y)) && x.i != y.i)
            return false;
    }
    return n == weft_node_in_count(g->m, b);
}

bool weft_merge__same_models(const weft_merger *g, const weft_column *a, const weft_column *b)
{
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        if ((a->node[i].i != 0) != (b->node[i].i != 0))
            return false;
    return true;
}

/* -- Pieces ----------------------------------------------------------------------------------- */

static weft_piece make_piece(weft_merger *g)
{
    weft_piece p = {.how = &weft_merge_strategy_none};
    uint32_t n = g->columns.n_model;
    p.column.node = weft_arena_array(g->cx->scratch, n, sizeof *p.column.node);
    memset(p.column.node, 0, n * sizeof *p.column.node);
    return p;
}

static void add_node(weft_piece *p, uint32_t model, weft_node n)
{
    p->column.node[model] = n;
    p->column.n++;
}

/* The piece of the models in `set` (bit i: model i). */
static weft_piece take_models(weft_merger *g, const weft_column *c, uint32_t set)
{
    weft_piece p = make_piece(g);
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        if (set >> i & 1 && c->node[i].i)
            add_node(&p, i, c->node[i]);
    p.level = p.column.n ? weft_merge__level(&g->columns, &p.column) : WEFT_JOINT_NONE;
    return p;
}

static uint32_t models_of(const weft_merger *g, const weft_column *c)
{
    uint32_t set = 0;
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        set |= (uint32_t)(c->node[i].i != 0) << i;
    return set;
}

/* Models of the column with the same weights as the first of `left`. */
static uint32_t equal_to_first(const weft_merger *g, const weft_column *c, uint32_t left)
{
    uint32_t set = 0;
    weft_node first = {0};
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        if (!(left >> i & 1))
            continue;
        if (!first.i)
            first = c->node[i];
        if (weft_merge__same_weights(g, first, c->node[i]))
            set |= 1u << i;
    }
    return set;
}

static void push(weft_merger *g, const weft_piece *p)
{
    if (p->column.n == 0)
        return;
    WEFT_VEC_PUSH(g->cx->scratch, &g->pieces, *p);
    for (uint32_t i = 0; p->together && i < g->columns.n_model; i++) {
        weft_node n = p->column.node[i];
        for (uint32_t r = 0; n.i && r < weft_node_out_count(g->m, n); r++)
            g->decided_of[weft_node_out(g->m, n, r).i] = g->pieces.len;
    }
}

/* -- What lies together ----------------------------------------------------------------------- */

/* Whether operand `k` of all nodes lies together already: results of one joined piece with the same
 * models. */
static bool lies_together(const weft_merger *g, const weft_piece *p, uint32_t k)
{
    uint32_t in = 0, result = 0;
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        if (!p->column.node[i].i)
            continue;
        weft_val v = weft_node_in(g->m, p->column.node[i], k);
        uint32_t found = v.i && v.i < g->n_place ? g->decided_of[v.i] : 0;
        if (!found || (in && (found != in || weft_val_index(g->m, v) != result)))
            return false;
        in = found;
        result = weft_val_index(g->m, v);
    }
    return in && weft_merge__same_models(g, &p->column, &g->pieces.at[in - 1].column);
}

/* Whether bringing operand 0 together takes copies: a node that makes it can do so in place. */
static bool needs_copies(const weft_merger *g, const weft_piece *p)
{
    if (lies_together(g, p, 0))
        return false;
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_node n = p->column.node[i];
        weft_val v = n.i ? weft_node_in(g->m, n, 0) : (weft_val){0};
        if (v.i && (weft_val_get_kind(g->m, v) != WEFT_VAL_NODE || g->decided_of[v.i]))
            return true;
    }
    return false;
}

static bool all_together(const weft_merger *g, const weft_piece *p)
{
    weft_node n = weft_merge__first(g, &p->column);
    for (uint32_t k = 0; k < weft_node_in_count(g->m, n); k++) {
        weft_val v = weft_node_in(g->m, n, k);
        if (v.i && !weft_merge__is_weight(g, v) && !lies_together(g, p, k))
            return false;
    }
    return true;
}

/* -- Candidates ------------------------------------------------------------------------------- */

typedef struct candidate {
    weft_piece piece;
    bool fits, known;
    double small_us, large_us;
    double gain_small, gain_large; /* over the alternative */
    double saved_us;               /* at small sizes */
    const char *reason;
} candidate;

static bool time_piece(weft_merger *g, const weft_piece *p, const weft_merge_sizes *at, double *us)
{
    double x = 0;
    if (!g->sized || !p->how->time || !p->how->time(g, p, at, us))
        return false;
    if (p->how == &weft_merge_strategy_none || p->how == &weft_merge_strategy_interleaved ||
        !needs_copies(g, p))
        return true;
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_node n = p->column.node[i];
        if (n.i && !weft_merge__count(at, g->m, weft_node_in(g->m, n, 0), &x))
            return false;
    }
    weft_val v = weft_node_in(g->m, weft_merge__first(g, &p->column), 0);
    *us += weft_merge__copy_us(
        at, x * (double)weft_dtype_size((weft_dtype)weft_val_ttype(g->m, v)->dtype));
    return true;
}

static bool has_equal_weights(const weft_merger *g, const weft_column *c)
{
    uint32_t all = models_of(g, c);
    return equal_to_first(g, c, all) == all;
}

static candidate consider(weft_merger *g, const weft_merge_strategy *how, const weft_piece *piece)
{
    candidate c = {.piece = *piece, .reason = ""};
    uint32_t n = g->columns.n_model;
    c.piece.how = how;
    c.piece.plan = NULL;
    c.piece.together = false;
    c.piece.column.node = weft_arena_array(g->cx->scratch, n, sizeof *c.piece.column.node);
    memcpy(c.piece.column.node, piece->column.node, n * sizeof *c.piece.column.node);
    if (how->equal_only && !has_equal_weights(g, &piece->column))
        c.reason = "the weights differ";
    else if (how->fit)
        c.reason = how->fit(g, &c.piece);
    if (!c.reason)
        c.reason = "";
    c.fits = *c.reason == 0;
    c.known = c.fits && time_piece(g, &c.piece, &g->small, &c.small_us) &&
              time_piece(g, &c.piece, &g->large, &c.large_us);
    if (c.fits && !c.known)
        c.reason = "the estimator does not know this product";
    return c;
}

/* Against what is done otherwise. */
static bool is_worth_it(const weft_merger *g, candidate *c, double small_us, double large_us)
{
    weft_node first = weft_merge__first(g, &c->piece.column);
    double least = weft_node_op(g->m, first) == WEFT_OP_MATMUL ? margin : conv_margin;
    if (!c->known)
        return false;
    c->gain_small = small_us / c->small_us;
    c->gain_large = large_us / c->large_us;
    c->saved_us = small_us - c->small_us;
    if (!c->piece.how->equal_only && small_us - c->small_us < least_us &&
        large_us - c->large_us < least_us) {
        c->reason = "saves less than 0.3 us";
        return false;
    }
    if (c->gain_small < least && c->gain_large < least)
        c->reason = "no gain: arithmetic decides, not reading the weight";
    else if (c->gain_small < loss || c->gain_large < loss)
        c->reason = "loses at some sizes";
    /* The joint program need not be run where it loses (find_limit). */
    if (c->gain_small >= small_margin)
        c->reason = "";
    return *c->reason == 0;
}

static const char *praise(const weft_merger *g, const candidate *c)
{
    if (g->cx->options->merge == WEFT_MERGE_STRATEGY)
        return "asked for";
    return c->gain_large < loss ? "gains at small sizes, is not run at large ones"
                                : "gains at small sizes, loses at none";
}

/* -- The log ---------------------------------------------------------------------------------- */

static uint64_t weight_bytes(const weft_merger *g, const weft_column *c)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_val w = c->node[i].i ? weft_node_in(g->m, c->node[i], 1) : (weft_val){0};
        bool seen = !w.i;
        for (uint32_t k = 0; k < i && !seen; k++)
            seen = c->node[k].i && weft_node_in(g->m, c->node[k], 1).i == w.i;
        if (!seen)
            bytes += weft_weight_get(g->m, weft_val_weight(g->m, w))->bytes;
    }
    return bytes;
}

static void list_candidates(weft_merger *g, const candidate *all, uint32_t n, weft_merge_row *row)
{
    weft_merge_candidate *list = weft_arena_array(g->log->arena, (size_t)n + 1, sizeof *list);
    for (uint32_t i = 0; i < n; i++) {
        const candidate *c = &all[i];
        weft_merge_candidate *one = &list[i];
        *one = (weft_merge_candidate){.strategy = c->piece.how->name,
                                      .fits = c->fits,
                                      .gain_small = c->gain_small,
                                      .gain_large = c->gain_large,
                                      .reason = weft_arena_strdup(g->log->arena, c->reason)};
        if (!c->fits)
            continue;
        one->read_bytes = weight_bytes(g, &c->piece.column);
        if (c->piece.how->bytes)
            c->piece.how->bytes(g, &c->piece, &one->read_bytes, &one->made_bytes);
    }
    row->candidate = list;
    row->n_candidate = n;
}

/* `chosen`: index of a candidate, or n: nothing is done. */
static void note(weft_merger *g, const weft_column *column, const candidate *all, uint32_t n,
                 uint32_t chosen, const char *reason)
{
    if (!g->log)
        return;
    weft_node first = weft_merge__first(g, column);
    const char *item = weft_node_loc(g->m, first).item;
    const char **model = weft_arena_array(g->log->arena, column->n, sizeof *model);
    weft_merge_row row = {.op = weft_node_opdef(g->m, first)->name,
                          .item = weft_arena_strdup(g->log->arena, item ? item : ""),
                          .model = model,
                          .weight_bytes = weight_bytes(g, column),
                          .gain_small = 1,
                          .gain_large = 1,
                          .strategy = chosen < n ? all[chosen].piece.how->name : "none",
                          .reason = weft_arena_strdup(g->log->arena, reason)};
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        if (column->node[i].i)
            model[row.n_model++] =
                weft_arena_strdup(g->log->arena, weft_graph_name(g->columns.model[i]));
    double most = 0;
    for (uint32_t i = 0; i < n; i++) {
        double gain = all[i].gain_small * all[i].gain_large;
        if (chosen < n ? i != chosen : gain <= most)
            continue;
        most = gain;
        row.gain_small = gain > 0 ? all[i].gain_small : 1;
        row.gain_large = gain > 0 ? all[i].gain_large : 1;
    }
    row.joined = chosen < n && all[chosen].piece.how != &weft_merge_strategy_interleaved;
    list_candidates(g, all, n, &row);
    WEFT_VEC_PUSH(g->log->arena, &g->log->rows, row);
}

/* -- Products --------------------------------------------------------------------------------- */

/* So many sets of models are tried in vain: each takes its time. */
enum { STRATEGIES_MAX = 16, TRIES_MAX = 3 };

/* Products by the same weights, run one after the other: of what that gains nothing is known. */
static void choose_interleaved(weft_merger *g, const weft_piece *piece, const candidate *joint)
{
    candidate both[] = {*joint, consider(g, &weft_merge_strategy_interleaved, piece)};
    if (joint->fits)
        both[0].reason = "a joint product need not have the same bits";
    note(g, &piece->column, both, 2, 1, both[0].reason);
    push(g, &both[1].piece);
}

/* Products by the same weights: together or not. Returns how many products they become fewer. */
static uint32_t choose_equal(weft_merger *g, const weft_piece *piece)
{
    weft_merge mode = g->cx->options->merge;
    const weft_merge_strategy *asked = g->cx->options->strategy;
    candidate one = consider(g, &weft_merge_strategy_concatenated, piece);
    bool take = false;
    double small_us = 0, large_us = 0;
    if (one.known && time_piece(g, piece, &g->small, &small_us) &&
        time_piece(g, piece, &g->large, &large_us))
        take = is_worth_it(g, &one, small_us, large_us);
    if (mode == WEFT_MERGE_EXACT ||
        (mode == WEFT_MERGE_STRATEGY && asked == &weft_merge_strategy_interleaved)) {
        choose_interleaved(g, piece, &one);
        return 0;
    }
    const char *reason = take ? praise(g, &one) : one.reason;
    if (mode == WEFT_MERGE_STRATEGY) {
        take = one.fits && asked != &weft_merge_strategy_none;
        reason = !one.fits ? one.reason : take ? "asked for" : "not asked for";
    }
    note(g, &piece->column, &one, 1, take ? 0 : 1, reason);
    push(g, take ? &one.piece : piece);
    return take ? piece->column.n - 1 : 0;
}

/* -- Products by unequal weights -------------------------------------------------------------- */

/* Time of the piece's products when those with the same weights are run together, or not, whichever
 * is less. */
static bool time_by_class(weft_merger *g, const weft_piece *p, const weft_merge_sizes *at,
                          double *us)
{
    uint32_t left = models_of(g, &p->column);
    *us = 0;
    while (left) {
        uint32_t set = equal_to_first(g, &p->column, left);
        weft_piece one = take_models(g, &p->column, set);
        double apart = 0, joint = 0;
        left &= ~set;
        if (!time_piece(g, &one, at, &apart))
            return false;
        one.how = &weft_merge_strategy_concatenated;
        if (one.column.n > 1 && one.level != WEFT_JOINT_NONE && time_piece(g, &one, at, &joint))
            apart = joint < apart ? joint : apart;
        *us += apart;
    }
    return true;
}

/* Whether a strategy is tried at all. */
static bool is_tried(const weft_merger *g, const weft_merge_strategy *how)
{
    if (how->equal_only || how == &weft_merge_strategy_none)
        return false;
    return g->cx->options->merge == WEFT_MERGE_STRATEGY ? how == g->cx->options->strategy
                                                        : !how->asked_only;
}

/* Of all candidates for products by different weights the one that is worth it and saves most; n:
 * none. */
static uint32_t find_best(weft_merger *g, candidate *all, uint32_t n)
{
    bool asked = g->cx->options->merge == WEFT_MERGE_STRATEGY;
    uint32_t best = n;
    for (uint32_t i = 0; i < n; i++) {
        double small_us = 0, large_us = 0;
        bool worth = false;
        if (all[i].known && time_by_class(g, &all[i].piece, &g->small, &small_us) &&
            time_by_class(g, &all[i].piece, &g->large, &large_us))
            worth = is_worth_it(g, &all[i], small_us, large_us);
        if (!(worth || (asked && all[i].fits)))
            continue;
        if (best == n || all[i].saved_us > all[best].saved_us)
            best = i;
    }
    for (uint32_t i = 0; best < n && i < n; i++)
        if (i != best && all[i].known && !*all[i].reason)
            all[i].reason = "another saves more";
    return best;
}

/* Tries all strategies for products by different weights on these models; *out_set: those that the
 * chosen one serves. */
static bool choose_unequal(weft_merger *g, const weft_column *c, uint32_t models, bool is_noted,
                           uint32_t *out_set)
{
    candidate all[STRATEGIES_MAX];
    weft_piece p = take_models(g, c, models);
    uint32_t n = 0;
    for (size_t i = 0; weft_merge_strategy_at(i); i++)
        if (is_tried(g, weft_merge_strategy_at(i)) && n < STRATEGIES_MAX)
            all[n++] = consider(g, weft_merge_strategy_at(i), &p);
    uint32_t best = find_best(g, all, n);
    if (best < n) {
        all[best].reason = "";
        note(g, &all[best].piece.column, all, n, best, praise(g, &all[best]));
        push(g, &all[best].piece);
        *out_set = models_of(g, &all[best].piece.column);
    } else if (is_noted) {
        note(g, &p.column, all, n, n, "the weights differ, and no strategy for that gains");
    }
    return best < n;
}

static uint32_t choose_products(weft_merger *g, const weft_column *c)
{
    uint32_t left = models_of(g, c), fewer = 0, set = 0;
    uint32_t tries = g->cx->options->merge == WEFT_MERGE_EXACT ? 0 : TRIES_MAX;
    while (left) {
        bool differ = equal_to_first(g, c, left) != left;
        if (differ && tries > 0 && choose_unequal(g, c, left, tries == TRIES_MAX, &set)) {
            left &= ~set;
            fewer++;
            continue;
        }
        tries -= differ && tries > 0;
        set = equal_to_first(g, c, left);
        weft_piece p = take_models(g, c, set);
        left &= ~set;
        if (p.column.n > 1)
            fewer += choose_equal(g, &p);
        else
            push(g, &p);
    }
    return fewer;
}

/* -- What is between products ----------------------------------------------------------------- */

/* Models whose operands lie together with those of the first of `left`, and have its weights. */
static uint32_t beside_first(const weft_merger *g, const weft_column *c, uint32_t left)
{
    uint32_t set = equal_to_first(g, c, left), in = 0;
    bool first = true;
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        if (!(set >> i & 1))
            continue;
        uint32_t found = 0;
        for (uint32_t k = 0; k < weft_node_in_count(g->m, c->node[i]) && !found; k++) {
            weft_val v = weft_node_in(g->m, c->node[i], k);
            found = v.i && v.i < g->n_place ? g->decided_of[v.i] : 0;
        }
        if (first)
            in = found;
        first = false;
        if (found != in)
            set &= ~(1u << i);
    }
    return set;
}

static void choose_light(weft_merger *g, const weft_column *c)
{
    uint32_t left = models_of(g, c), alone = 0;
    while (left) {
        uint32_t set = beside_first(g, c, left);
        weft_piece p = take_models(g, c, set);
        left &= ~set;
        if (p.column.n < 2 || p.level == WEFT_JOINT_NONE || !all_together(g, &p)) {
            alone |= set;
            continue;
        }
        p.how = &weft_merge_strategy_concatenated;
        p.together = true;
        push(g, &p);
    }
    weft_piece rest = take_models(g, c, alone);
    push(g, &rest);
}

/* -- Where the joint program pays ------------------------------------------------------------- */

/* Time of the products that are run together, so and apart; false: not known. */
static bool time_all(weft_merger *g, const weft_merge_sizes *at, double *joint_us, double *apart_us)
{
    *joint_us = *apart_us = 0;
    for (uint32_t i = 0; i < g->pieces.len; i++) {
        weft_piece p = g->pieces.at[i];
        double joint = 0, apart = 0;
        if (p.column.n < 2 || !weft_merge__is_heavy(g->m, weft_merge__first(g, &p.column)))
            continue;
        if (!time_piece(g, &p, at, &joint))
            return false;
        p.how = &weft_merge_strategy_none;
        if (!time_piece(g, &p, at, &apart))
            return false;
        *joint_us += joint;
        *apart_us += apart;
    }
    return true;
}

bool weft_merge__is_worth_it(weft_merger *g)
{
    double joint = 0, apart = 0, all = 0;
    if (g->cx->options->merge != WEFT_MERGE_AUTO)
        return true;
    if (!g->sized || !time_all(g, &g->small, &joint, &apart))
        return false;
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        WEFT_FOREACH_NODE (g->m, g->columns.model[i], n)
            if (weft_merge__is_heavy(g->m, n) && !weft_merge__node_us(&g->small, g->m, n, &all))
                return false;
    return apart - joint >= least_saved * all;
}

static double count_inputs(weft_merger *g, const weft_merge_sizes *at)
{
    double n = 0;
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        for (uint32_t k = 0; k < weft_graph_input_count(g->columns.model[i]); k++)
            weft_merge__count(at, g->m, weft_graph_input(g->columns.model[i], k), &n);
    return n;
}

uint64_t weft_merge__find_limit(weft_merger *g)
{
    double limit = INFINITY;
    if (g->cx->options->merge != WEFT_MERGE_AUTO)
        return 0;
    for (int64_t batch = 1; batch <= WEFT_MERGE_LARGE_BATCH; batch *= 2)
        for (int64_t other = 1; other <= WEFT_MERGE_LARGE_OTHER; other *= 2) {
            weft_merge_sizes at;
            double joint = 0, apart = 0;
            if (weft_merge__sizes(g, batch, other, &at) && time_all(g, &at, &joint, &apart) &&
                joint > apart)
                limit = fmin(limit, count_inputs(g, &at) - 1);
        }
    return isfinite(limit) && limit >= 1 ? (uint64_t)limit : 0;
}

uint32_t weft_merge__choose(weft_merger *g, uint32_t *out_heavy)
{
    uint32_t fewer = 0;
    *out_heavy = 0;
    g->sized = weft_merge__sizes(g, 1, 1, &g->small) &&
               weft_merge__sizes(g, WEFT_MERGE_LARGE_BATCH, WEFT_MERGE_LARGE_OTHER, &g->large);
    for (uint32_t i = 0; i < g->columns.n; i++) {
        const weft_column *c = &g->columns.at[i];
        if (weft_merge__is_heavy(g->m, weft_merge__first(g, c)) && c->n > 1) {
            ++*out_heavy;
            fewer += choose_products(g, c);
            continue;
        }
        weft_columns one = g->columns;
        one.at = &g->columns.at[i];
        one.n = 1;
        one = weft_merge__split(g->cx, &one);
        for (uint32_t k = 0; k < one.n; k++)
            choose_light(g, &one.at[k]);
    }
    return fewer;
}
