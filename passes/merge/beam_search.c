/* Decides which corresponding nodes run together and by which strategy: beam search by dynamic
 * programming over the columns.
 *
 * Columns come in the order of the joint graph. Earlier decisions affect later costs only through
 * the arrangement of the live values: which of them are values of their own, and which are
 * concatenated with those of which models. So the state between two columns is the arrangement
 * (and, within a column, the models that are not decided yet), and of two ways to the same state
 * only the cheaper one is kept (Bellman, "Dynamic Programming", 1957). A super-GEMM costs its own
 * time, plus copies if its operands are arranged differently; its results are concatenated, and the
 * nodes between GEMMs keep them so or take them apart. So activations stay concatenated through a
 * chain of GEMMs where taking them apart and copying them back would cost more than it gains.
 *
 *     a: w1 - w2 - w1 - w2        a and c have w1 in common, all models w2. Reading w2 once instead
 *     b: x1 - w2 - x2 - w2        of twice is weighed against copying the activations of a, b and c
 *     c: w1 - w2 - w1 - w2        into one value, and back into one of a and c.
 *
 * Minimises the predicted time at the small size, with a margin for the estimator's error on merged
 * nodes. Candidates that lose at the large size are taken only if they gain much at the small one
 * (merge_candidates.c). Running all models apart is one of the solutions, so no solution is
 * predicted to be slower than that.
 *
 * Decisions for the models of a column that are still undecided, in turn: each merge candidate for
 * unequal weights; joining models that have the same weights as the first undecided one (all of
 * them; those whose operands are in one joint value with its own; those of one of the
 * PARTITIONS_MAX partitions of the models that most columns have); running all models with these
 * weights apart.
 *
 * The beam keeps the WIDTH states that save most time; it is narrower when many values are live,
 * because a state stores one number for each. If no more than WIDTH states differ, as in chains of
 * two or three models, the result is the optimum over these decisions. The state that the greedy
 * choice leads to (the decision that saves most, each time) is always kept, so the result is never
 * predicted to be worse than the greedy one.
 *
 * O(columns WIDTH (models + live values)) for the search; beyond WORK_MAX of columns times live
 * values nothing is merged. The estimator is asked for each time once. */
#include "passes/merge/beam_search.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

enum {
    WIDTH = 32,
    DECISIONS_MAX = 8 + WEFT_CANDIDATES_MAX,
    PARTITIONS_MAX = 4,
    CELLS_MAX = 1 << 16
};
enum { WORK_MAX = 1 << 28 };

/* A decision and, through `before`, all decisions that led to it. */
typedef struct decision {
    const struct decision *before;
    uint32_t column, left; /* `left`: models of the column that were undecided before */
    const weft_candidate *candidate;
    weft_merge_group group; /* that of the candidate, with `copied` set for the arrangement */
} decision;

typedef struct state {
    double saved_us;
    uint64_t hash; /* of arrangement and left */
    uint32_t left; /* models of the current column that are undecided */
    bool greedy;   /* reached by the decision that saves most, each time */
    uint32_t *arrangement;
    decision made;        /* the last decision, while the state is in search.next */
    const decision *last; /* the same in scratch; NULL: not copied there yet */
} state;

typedef struct search {
    weft_merger *g;
    weft_arrangements *arrangements;
    weft_column *column;
    weft_candidates **candidates;
    uint32_t n_column, at, width;
    uint32_t partition[PARTITIONS_MAX]
                      [WEFT_MERGE_MODELS_MAX]; /* by model: its part of the partition */
    uint32_t n_partition;
    state *now;    /* the beam: width + 1 */
    state *next;   /* the states that one decision leads to: (width + 1) DECISIONS_MAX */
    state **order; /* of next, by saving */
    uint32_t n_now, n_next;
} search;

/* -- States ----------------------------------------------------------------------------------- */

static void copy_state(const search *s, state *to, const state *from)
{
    uint32_t *arrangement = to->arrangement;
    memcpy(arrangement, from->arrangement,
           weft_arrangement__size(s->arrangements) * sizeof *arrangement);
    *to = *from;
    to->arrangement = arrangement;
}

static state *make_states(search *s, uint32_t n)
{
    state *all = weft_arena_array(s->g->cx->scratch, n, sizeof *all);
    for (uint32_t i = 0; i < n; i++)
        all[i].arrangement =
            weft_arena_array(s->g->cx->scratch, (size_t)weft_arrangement__size(s->arrangements) + 1,
                             sizeof *all[i].arrangement);
    return all;
}

static int by_saving(const void *a, const void *b)
{
    const state *x = *(state *const *)a, *y = *(state *const *)b;
    if (x->saved_us != y->saved_us)
        return x->saved_us > y->saved_us ? -1 : 1;
    return (x > y) - (x < y);
}

/* Makes the best of the next states the beam; of equal states the best is kept. */
static void keep_best(search *s)
{
    for (uint32_t i = 0; i < s->n_next; i++)
        s->order[i] = &s->next[i];
    qsort(s->order, s->n_next, sizeof(state *), by_saving);
    s->n_now = 0;
    for (uint32_t i = 0; i < s->n_next; i++) {
        const state *one = s->order[i];
        uint32_t k = 0;
        while (k < s->n_now && s->now[k].hash != one->hash)
            k++;
        if (k < s->n_now) {
            s->now[k].greedy = s->now[k].greedy || one->greedy;
        } else if (s->n_now < s->width || one->greedy) {
            copy_state(s, &s->now[k], one);
            if (!one->last) {
                decision *kept = weft_arena_alloc(s->g->cx->scratch, sizeof *kept);
                *kept = one->made;
                s->now[k].last = kept;
            }
            s->n_now++;
        }
    }
}

/* -- Decisions -------------------------------------------------------------------------------- */

/* Adds the state that a candidate leads to. `unforced`: only if it needs no copy and an operand is
 * concatenated already. */
static void add(search *s, const state *from, const weft_candidate *candidate, bool unforced)
{
    state *to = &s->next[s->n_next];
    weft_merge_group p = candidate->group;
    uint32_t together = 0;
    copy_state(s, to, from);
    if (weft_candidate__is_joint(candidate))
        p.copied = weft_arrangement__gather(s->arrangements, to->arrangement, &p, &together);
    if (unforced && (p.copied || together == 0))
        return;
    weft_arrangement__set_results(s->arrangements, to->arrangement, &p);
    to->saved_us += weft_candidate__saved_us(s->g, candidate, &p);
    to->left &= ~candidate->set;
    to->hash = weft_hash_mix(weft_arrangement__hash(s->arrangements, to->arrangement), to->left);
    to->greedy = false;
    to->made = (decision){from->last, s->at, from->left, candidate, p};
    to->last = NULL;
    s->n_next++;
}

/* Lists the distinct subsets of `equal`, models with the same weights, that may be joined. */
static uint32_t find_sets(const search *s, const state *from, uint32_t equal, uint32_t *set)
{
    const weft_column *c = &s->column[s->at];
    uint32_t first = weft_merge__lowest(equal), n = 0, all = 0;
    uint32_t found[2 + PARTITIONS_MAX] = {
        equal, weft_arrangement__find_joined(s->arrangements, from->arrangement, c, equal)};
    if (s->g->cx->options->merge == WEFT_MERGE_AUTO)
        for (all = 2; all < 2 + s->n_partition; all++)
            found[all] = equal & s->partition[all - 2][first];
    else
        all = weft_merge__is_gemm(s->g->m, c->node[first]) ? 1 : 2;
    for (uint32_t i = 0; i < all; i++) {
        bool known = !(found[i] & (found[i] - 1));
        for (uint32_t k = 0; k < n; k++)
            known = known || set[k] == found[i];
        if (!known)
            set[n++] = found[i];
    }
    return n;
}

/* Adds the states of all decisions for the first undecided model. A strategy that was asked for is
 * the only decision wherever it applies. */
static void decide(search *s, const state *from)
{
    const weft_column *c = &s->column[s->at];
    weft_candidates *candidates = s->candidates[s->at];
    bool is_gemm = weft_merge__is_gemm(s->g->m, weft_merge__first(s->g, c));
    bool asked = s->g->cx->options->merge == WEFT_MERGE_STRATEGY;
    uint32_t equal = weft_merge__equal_to_first(s->g, c, from->left), before = s->n_next;
    const weft_candidate *other[WEFT_CANDIDATES_MAX];
    uint32_t n = is_gemm && equal != from->left && c->n > 1
                     ? weft_candidate__unequal(candidates, from->left, other)
                     : 0;
    for (uint32_t i = 0; i < n; i++)
        if (weft_candidate__is_open(s->g, other[i]))
            add(s, from, other[i], false);
    if (asked && s->n_next > before)
        return;
    uint32_t set[2 + PARTITIONS_MAX];
    n = weft_merge__is_exact(s->g) ? 0 : find_sets(s, from, equal, set);
    for (uint32_t i = 0; i < n; i++) {
        const weft_candidate *joint = weft_candidate__joint(candidates, set[i]);
        if (weft_candidate__is_open(s->g, joint))
            add(s, from, joint, !is_gemm);
        if (asked && s->n_next > before)
            return;
    }
    add(s, from, weft_candidate__apart(candidates, equal), false);
}

static void mark_greedy(search *s, uint32_t from)
{
    uint32_t best = from;
    for (uint32_t i = from; i < s->n_next; i++)
        if (s->next[i].saved_us > s->next[best].saved_us)
            best = i;
    s->next[best].greedy = true;
}

/* Decides on all models of a column: rounds of decisions until no state has undecided models. */
static void pass_column(search *s)
{
    const weft_column *c = &s->column[s->at];
    bool more = true;
    for (uint32_t i = 0; i < s->n_now; i++)
        s->now[i].left = weft_merge__models(s->g, c);
    while (more) {
        more = false;
        s->n_next = 0;
        for (uint32_t i = 0; i < s->n_now; i++) {
            uint32_t before = s->n_next;
            if (s->now[i].left == 0)
                copy_state(s, &s->next[s->n_next++], &s->now[i]);
            else
                decide(s, &s->now[i]);
            if (s->now[i].left && s->now[i].greedy)
                mark_greedy(s, before);
        }
        for (uint32_t i = 0; i < s->n_next; i++)
            more = more || s->next[i].left;
        for (uint32_t i = 0; i < s->n_next && !more; i++) {
            weft_arrangement__forget(s->arrangements, s->next[i].arrangement, c, s->at);
            s->next[i].hash = weft_arrangement__hash(s->arrangements, s->next[i].arrangement);
        }
        keep_best(s);
    }
}

/* -- Columns ---------------------------------------------------------------------------------- */

/* The columns of the search: those of GEMMs as they are; all others split into columns of equal
 * nodes. */
static void open_columns(search *s)
{
    const weft_columns *all = &s->g->columns;
    WEFT_VEC(weft_column) list = {0};
    for (uint32_t i = 0; i < all->n; i++) {
        weft_columns one = *all;
        one.at = &all->at[i];
        one.n = 1;
        if (!weft_merge__is_gemm(s->g->m, weft_merge__first(s->g, &all->at[i])))
            one = weft_merge__split(s->g->cx, &one);
        for (uint32_t k = 0; k < one.n; k++)
            WEFT_VEC_PUSH(s->g->cx->scratch, &list, one.at[k]);
    }
    s->column = list.at;
    s->n_column = list.len;
    s->candidates =
        weft_arena_array(s->g->cx->scratch, (size_t)list.len + 1, sizeof(weft_candidates *));
    for (uint32_t i = 0; i < list.len; i++)
        s->candidates[i] = weft_candidate__open(s->g, &list.at[i]);
    s->arrangements = weft_arrangement__open(s->g, list.at, list.len);
}

typedef struct partition {
    uint32_t of[WEFT_MERGE_MODELS_MAX];
    uint32_t n_column;
} partition;

static int by_columns(const void *a, const void *b)
{
    const partition *x = a, *y = b;
    if (x->n_column != y->n_column)
        return x->n_column > y->n_column ? -1 : 1;
    return memcmp(x->of, y->of, sizeof x->of);
}

/* Finds the partitions of the models by equal weights that most columns of GEMMs have. */
static void find_partitions(search *s)
{
    WEFT_VEC(partition) list = {0};
    for (uint32_t c = 0; c < s->n_column; c++) {
        partition p = {.n_column = 1};
        uint32_t k = 0, left = weft_merge__models(s->g, &s->column[c]);
        if (!(left & (left - 1)) ||
            !weft_merge__is_gemm(s->g->m, weft_merge__first(s->g, &s->column[c])))
            continue;
        while (left) {
            uint32_t set = weft_merge__equal_to_first(s->g, &s->column[c], left);
            for (uint32_t i = 0; i < s->g->columns.n_model; i++)
                p.of[i] |= set >> i & 1 ? set : 0;
            left &= ~set;
        }
        while (k < list.len && memcmp(list.at[k].of, p.of, sizeof p.of) != 0)
            k++;
        if (k < list.len)
            list.at[k].n_column++;
        else
            WEFT_VEC_PUSH(s->g->cx->scratch, &list, p);
    }
    if (list.len > 0)
        qsort(list.at, list.len, sizeof *list.at, by_columns);
    for (; s->n_partition < PARTITIONS_MAX && s->n_partition < list.len; s->n_partition++)
        memcpy(s->partition[s->n_partition], list.at[s->n_partition].of, sizeof *s->partition);
}

/* -- The result ------------------------------------------------------------------------------- */

static void log_decision(search *s, const decision *d)
{
    weft_merger *g = s->g;
    const weft_column *c = &s->column[d->column];
    weft_candidates *candidates = s->candidates[d->column];
    uint32_t all = weft_merge__models(g, c), n = 1;
    const weft_candidate *list[WEFT_CANDIDATES_MAX];
    bool differ = weft_candidate__is_joint(d->candidate) && !d->group.strategy->equal_only;
    if (!g->log || c->n < 2 || !weft_merge__is_gemm(g->m, weft_merge__first(g, c)))
        return;
    if (!differ && d->left == all && weft_merge__equal_to_first(g, c, all) != all) {
        n = weft_candidate__unequal(candidates, all, list);
        if (!weft_merge__is_exact(g))
            weft_merge__log_group(g, &weft_candidate__apart(candidates, all)->group, list, n, NULL);
    }
    if (d->group.column.n < 2)
        return;
    if (differ)
        n = weft_candidate__unequal(candidates, d->left, list);
    else
        list[0] = weft_candidate__joint(candidates, d->candidate->set);
    weft_merge__log_group(g, &d->group, list, differ ? n : 1, d->candidate);
}

/* Appends the decisions that led to a state to g->groups; returns by how many GEMMs they are fewer.
 */
static uint32_t take(search *s, const state *best)
{
    const decision **list;
    uint32_t n = 0, fewer = 0;
    for (const decision *d = best->last; d; d = d->before)
        n++;
    list = weft_arena_array(s->g->cx->scratch, (size_t)n + 1, sizeof(decision *));
    for (const decision *d = best->last; d; d = d->before)
        list[--n] = d;
    for (; list[n]; n++) {
        const weft_candidate *candidate = list[n]->candidate;
        if (weft_candidate__is_joint(candidate) &&
            weft_merge__is_gemm(s->g->m, weft_merge__first(s->g, &candidate->group.column)))
            fewer += candidate->group.column.n - 1;
        log_decision(s, list[n]);
        WEFT_VEC_PUSH(s->g->cx->scratch, &s->g->groups, list[n]->group);
    }
    return fewer;
}

uint32_t weft_beam__search(weft_merger *g, uint32_t width, double *out_saved_us,
                           uint32_t *out_gemm_columns)
{
    search s = {.g = g};
    *out_gemm_columns = 0;
    *out_saved_us = 0;
    g->sized = weft_merge__sizes(g, 1, 1, &g->small) &&
               weft_merge__sizes(g, WEFT_MERGE_LARGE_BATCH, WEFT_MERGE_LARGE_OTHER, &g->large);
    open_columns(&s);
    if ((uint64_t)s.n_column * weft_arrangement__size(s.arrangements) > WORK_MAX)
        return 0;
    find_partitions(&s);
    for (uint32_t i = 0; i < s.n_column; i++)
        *out_gemm_columns +=
            s.column[i].n > 1 && weft_merge__is_gemm(g->m, weft_merge__first(g, &s.column[i]));
    s.width = CELLS_MAX / (weft_arrangement__size(s.arrangements) + 1);
    width = width ? width : WIDTH;
    s.width = s.width < 1 ? 1 : s.width < width ? s.width : width;
    s.now = make_states(&s, s.width + 1);
    s.next = make_states(&s, (s.width + 1) * DECISIONS_MAX);
    s.order =
        weft_arena_array(g->cx->scratch, ((size_t)s.width + 1) * DECISIONS_MAX, sizeof(state *));
    s.n_now = 1;
    s.now[0].greedy = true;
    weft_arrangement__start(s.arrangements, s.now[0].arrangement);
    for (; s.at < s.n_column; s.at++)
        pass_column(&s);
    *out_saved_us = s.now[0].saved_us;
    return take(&s, &s.now[0]);
}
