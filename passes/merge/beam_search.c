/* Which corresponding nodes are run together, and how: dynamic programming over the columns.
 *
 * Columns come in the order of the joint graph, so that what was decided before matters for what
 * follows only by how the values that are still needed arrangement: each by itself, or joined with
 * those of which models. That is the state. A product for some models costs its own time, and
 * copies when its operands arrangement otherwise; its results arrangement together then, and what
 * stands between products carries that on, or breaks it up. Of two ways to the same state the
 * cheaper one is kept (Bellman, "Dynamic Programming", 1957): so activations stay together through
 * a chain of products where splitting them up and copying them back would cost more than it gains,
 * column by column.
 *
 *     a: w1 - w2 - w1 - w2        w1 is the same for a and c, w2 for all: reading w2 once instead
 *     b: x1 - w2 - x2 - w2        of twice is set against copying what a, b and c have to where
 *     c: w1 - w2 - w1 - w2        they are together, and back to where a and c are
 *
 * What is made least is the time at small sizes, with a margin for the estimator's error on what is
 * joined, among ways that lose little at large sizes (merge_candidates.c). Running everything apart
 * is one way, so that nothing is predicted to become slower.
 *
 * A decision joins some models, of those that have the same weights as the first that is left:
 * all; those whose operands arrangement with its own; those that some other column has together
 * (the WANTED_MAX sets that most columns have); or runs all of them apart. Where weights differ,
 * strategies for that are tried first. At most WIDTH states are kept, those that have saved most,
 * fewer when so many values are alive that their arrangements would be long. Then the result is
 * exact - the best of what these decisions can make - as long as no more than WIDTH states differ,
 * as in chains of two or three models; else bounded. The way that takes at every decision what
 * saves most there (WIDTH = 1) is kept in any case: the result is never predicted to be worse.
 *
 * O(columns WIDTH (models + values alive)) for the decisions, up to WORK_MAX, beyond which nothing
 * is run together; each time is asked of the estimator once. */
#include "passes/merge/beam_search.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

enum { WIDTH = 32, DECISIONS_MAX = 8 + WEFT_CANDIDATES_MAX, WANTED_MAX = 4, CELLS_MAX = 1 << 16 };
enum { WORK_MAX = 1 << 28 };

/* The last of the decisions that led to a state. */
typedef struct decision {
    const struct decision *before;
    uint32_t column, left; /* models that were left in it */
    const weft_candidate *candidate;
    weft_merge_group group; /* the candidate's, where values arrangement */
} decision;

typedef struct state {
    double saved_us;
    uint64_t hash; /* of arrangement and left */
    uint32_t left; /* models whose node of the column at hand is not decided on yet */
    bool greedy;   /* made by taking what saves most at every decision */
    uint32_t *arrangement;
    decision made;        /* that led here; */
    const decision *last; /* where it is kept, NULL: not yet */
} state;

typedef struct search {
    weft_merger *g;
    weft_arrangements *arrangements;
    weft_column *column;
    weft_candidates **candidates;
    uint32_t n_column, at, width;
    uint32_t wanted[WANTED_MAX][WEFT_MERGE_MODELS_MAX]; /* by model: the set it is in */
    uint32_t n_wanted;
    state *now, *next; /* width + 1; a round of decisions more */
    state **order;
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

/* The best of what there is next becomes what there is now. */
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

/* One more state: models of the column as the candidate says. `unforced`: only if nothing is copied
 * for it, and something arrangements together. */
static void add(search *s, const state *from, const weft_candidate *candidate, bool unforced)
{
    state *to = &s->next[s->n_next];
    weft_merge_group p = candidate->group;
    uint32_t together = 0;
    copy_state(s, to, from);
    if (weft_candidate__is_joint(candidate))
        p.copied = weft_arrangement__bring(s->arrangements, to->arrangement, &p, &together);
    if (unforced && (p.copied || together == 0))
        return;
    weft_arrangement__put(s->arrangements, to->arrangement, &p);
    to->saved_us += weft_candidate__saved_us(s->g, candidate, &p);
    to->left &= ~candidate->set;
    to->hash = weft_hash_mix(weft_arrangement__hash(s->arrangements, to->arrangement), to->left);
    to->greedy = false;
    to->made = (decision){from->last, s->at, from->left, candidate, p};
    to->last = NULL;
    s->n_next++;
}

/* Adds the different sets of models of which it may pay to join one. */
static uint32_t find_sets(const search *s, const state *from, uint32_t equal, uint32_t *set)
{
    const weft_column *c = &s->column[s->at];
    uint32_t first = weft_merge__lowest(equal), n = 0, all = 0;
    uint32_t found[2 + WANTED_MAX] = {
        equal, weft_arrangement__beside(s->arrangements, from->arrangement, c, equal)};
    if (s->g->cx->options->merge == WEFT_MERGE_AUTO)
        for (all = 2; all < 2 + s->n_wanted; all++)
            found[all] = equal & s->wanted[all - 2][first];
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

/* All decisions for the first of the models that are left. Where a strategy was asked for, it is
 * taken wherever it fits. */
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
    uint32_t set[2 + WANTED_MAX];
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

/* All models of a column. */
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
            weft_arrangement__leave(s->arrangements, s->next[i].arrangement, c, s->at);
            s->next[i].hash = weft_arrangement__hash(s->arrangements, s->next[i].arrangement);
        }
        keep_best(s);
    }
}

/* -- Columns ---------------------------------------------------------------------------------- */

/* Products of several models stay a column; whatever else is parted into columns of equal nodes. */
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

/* The ways in which most products have their models together. */
static void find_wanted(search *s)
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
    for (; s->n_wanted < WANTED_MAX && s->n_wanted < list.len; s->n_wanted++)
        memcpy(s->wanted[s->n_wanted], list.at[s->n_wanted].of, sizeof *s->wanted);
}

/* -- What was decided ------------------------------------------------------------------------- */

static void note(search *s, const decision *d)
{
    weft_merger *g = s->g;
    const weft_column *c = &s->column[d->column];
    weft_candidates *candidates = s->candidates[d->column];
    uint32_t all = weft_merge__models(g, c), n = 1;
    const weft_candidate *list[WEFT_CANDIDATES_MAX];
    bool differ = weft_candidate__is_joint(d->candidate) && !d->group.how->equal_only;
    if (!g->log || c->n < 2 || !weft_merge__is_gemm(g->m, weft_merge__first(g, c)))
        return;
    if (!differ && d->left == all && weft_merge__equal_to_first(g, c, all) != all) {
        n = weft_candidate__unequal(candidates, all, list);
        if (!weft_merge__is_exact(g))
            weft_merge__note(g, &weft_candidate__apart(candidates, all)->group, list, n, NULL);
    }
    if (d->group.column.n < 2)
        return;
    if (differ)
        n = weft_candidate__unequal(candidates, d->left, list);
    else
        list[0] = weft_candidate__joint(candidates, d->candidate->set);
    weft_merge__note(g, &d->group, list, differ ? n : 1, d->candidate);
}

/* Puts the decisions that led to a state into g->groups; returns how many products they make fewer.
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
        note(s, list[n]);
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
    find_wanted(&s);
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
