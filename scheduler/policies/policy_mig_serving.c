/* MIG-serving: one GPU after the other, each with the configuration of instances and models that
 * serves the demands best.
 *
 * Source: C. Tan et al., Serving DNN models with multi-instance GPUs: a case of the
 * reconfigurable machine scheduling problem, arXiv:2109.11067, 2021: its fast algorithm, as far
 * as the ParvaGPU paper (SC'24) describes it. This is Weft's form of it, not the published
 * program.
 *
 * World. GPUs that MIG splits; one process of one model on an instance, with the batch of the
 * highest throughput within the latency rule.
 *
 * Algorithm: a greedy heuristic for a cutting-stock problem; the sizes of the instances and
 * their models are chosen together, and models are enumerated in pairs.
 * Score: c_s is the part of the rate of model s that is carried so far. A candidate is a maximal
 * multiset of instances with at most two models on them. It gains g_s = (sum of throughputs) /
 * rate for model s, and scores the sum of (1 - c_s) min(1 - c_s, g_s): a model that is far
 * behind counts more, throughput above the rate counts nothing, an instance without use scores
 * nothing. The best candidate becomes a GPU.
 * End: when no model misses more than one GPU serves, any mixture of models is allowed: the
 * instances of each multiset, large ones first, go to the model that gains most.
 *
 * Changes.
 * - The score of a candidate is the sum of two parts, each of one model. So the best pair for a
 *   split of a multiset is among the best two models of each part: exact, without enumerating
 *   pairs. As c only grows, the score of a part only falls; the models of each part are in a
 *   heap whose old entries are renewed only when they reach the top (lazy greedy evaluation,
 *   Minoux 1978).
 * - An instance whose model has all it needs is left out. Devices of several types compare by
 *   score over price. A whole device that is not split is one more candidate, if the profile has
 *   it.
 *
 * On the six scenarios of ParvaGPU it needs 2, 3, 5, 7, 13 and 17 GPUs, the optimum with one
 * process on an instance. The 41 % that ParvaGPU saves compared with the published program do
 * not show here.
 *
 * Parameters: none. Complexity: O(GPUs * (parts * log models + splits)). */
#include "scheduler/policies/policies_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double slack = 1e-9;

enum { PARTS_MAX = WEFT_MIG_SETS_MAX };

/* The value of a part for a model, computed at `version`. */
typedef struct entry {
    double value;
    uint32_t model, version;
} entry;

/* Some instances of one GPU, for one model. */
typedef struct part {
    weft_mig_count count;
    entry *heap; /* by descending value */
    uint32_t n;
} part;

/* One type of device. */
typedef struct kind {
    const weft_fleet_device *row;
    double price;
    weft_mig_shape shape;
    part *parts;
    uint32_t n_part;
    uint32_t (*split)[2]; /* two parts that together are a maximal multiset */
    uint32_t n_split;
    weft_mig_count *whole; /* the maximal multisets */
    uint32_t n_whole;
    weft_mig_best *best;        /* by model */
    const weft_option **entire; /* by model: the whole device without MIG; NULL: there is none */
} kind;

typedef struct server {
    weft_builder *builder;
    kind *kinds;
    uint32_t n_kind;
    uint32_t n_model; /* models are sorted by name */
    uint32_t *version;
    double *rate, *rest; /* of a model without a rate: 1 until it has a replica */
    double *most;        /* the most that one GPU carries */
} server;

typedef struct candidate {
    double score;
    uint32_t kind, split, model[2]; /* UINT32_MAX: none; split UINT32_MAX: the entire device */
} candidate;

/* -- Scores ----------------------------------------------------------------------------------- */

static double per_s_of(const server *s, uint32_t model, double per_s)
{
    /* a model without a rate is served by any instance */
    return s->builder->demands->at[s->builder->order[model]].rate_per_s > 0 ? per_s : per_s > 0;
}

static double score_of(const server *s, uint32_t model, double per_s)
{
    double open = s->rest[model] / s->rate[model];
    return open * fmin(open, per_s / s->rate[model]);
}

static double capacity_of(const server *s, const kind *k, const weft_mig_count *count,
                          uint32_t model)
{
    double sum = 0;
    for (uint32_t p = 0; p < k->shape.n; p++)
        sum += count->of[p] * per_s_of(s, model, k->best[model].per_s[p]);
    return sum;
}

static bool is_before(const entry *a, const entry *b)
{
    return a->value != b->value ? a->value > b->value : a->model < b->model;
}

static void sift_down(part *p, uint32_t i)
{
    for (;;) {
        uint32_t first = i, left = 2 * i + 1;
        for (uint32_t c = left; c < p->n && c <= left + 1; c++)
            if (is_before(&p->heap[c], &p->heap[first]))
                first = c;
        if (first == i)
            return;
        entry e = p->heap[i];
        p->heap[i] = p->heap[first];
        p->heap[first] = e;
        i = first;
    }
}

/* Renews the entry at `i` until the greatest entry of its subtree is up to date; values only
 * fall. */
static void renew(const server *s, const kind *k, part *p, uint32_t i)
{
    while (i < p->n && p->heap[i].version != s->version[p->heap[i].model]) {
        entry *e = &p->heap[i];
        e->value = score_of(s, e->model, capacity_of(s, k, &p->count, e->model));
        e->version = s->version[e->model];
        sift_down(p, i);
    }
}

/* The best two models of a part; value 0: there is none. */
static void find_best_two(const server *s, const kind *k, part *p, entry out[2])
{
    out[0] = out[1] = (entry){.model = UINT32_MAX};
    if (p->n == 0)
        return;
    renew(s, k, p, 0);
    renew(s, k, p, 1);
    renew(s, k, p, 2);
    out[0] = p->heap[0];
    for (uint32_t i = 1; i < p->n && i < 3; i++)
        if (out[1].model == UINT32_MAX || is_before(&p->heap[i], &out[1]))
            out[1] = p->heap[i];
}

/* -- Candidates ------------------------------------------------------------------------------- */

static bool is_better(const server *s, const candidate *best, double score, uint32_t index)
{
    double value = score / s->kinds[index].price;
    return score > 0 &&
           (best->score <= 0 || value > best->score / s->kinds[best->kind].price * (1 + slack));
}

static void try_split(const server *s, uint32_t index, uint32_t split, entry (*two)[2],
                      candidate *best)
{
    const kind *k = &s->kinds[index];
    const entry *a = two[k->split[split][0]], *b = two[k->split[split][1]];
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t j = 0; j < 2; j++) {
            if (a[i].model == b[j].model && a[i].model != UINT32_MAX)
                continue;
            double score = a[i].value + b[j].value;
            if (is_better(s, best, score, index))
                *best = (candidate){.score = score,
                                    .kind = index,
                                    .split = split,
                                    .model = {a[i].model, b[j].model}};
        }
}

static candidate find_candidate(const server *s)
{
    candidate best = {0};
    entry(*two)[2] = weft_arena_array(s->builder->arena, PARTS_MAX, sizeof *two);
    for (uint32_t i = 0; i < s->n_kind; i++) {
        kind *k = &s->kinds[i];
        if (s->builder->opened[k->row - s->builder->fleet->device] == k->row->count)
            continue;
        for (uint32_t p = 0; p < k->n_part; p++)
            find_best_two(s, k, &k->parts[p], two[p]);
        for (uint32_t p = 0; p < k->n_split; p++)
            try_split(s, i, p, two, &best);
        for (uint32_t m = 0; m < s->n_model; m++) {
            if (!k->entire[m])
                continue;
            double score = score_of(s, m, per_s_of(s, m, k->entire[m]->peak_per_s));
            if (is_better(s, &best, score, i))
                best = (candidate){
                    .score = score, .kind = i, .split = UINT32_MAX, .model = {m, UINT32_MAX}};
        }
    }
    return best;
}

/* -- Making a GPU ----------------------------------------------------------------------------- */

/* Puts an instance for a model, for as much of its rate as it carries. */
static void put_instance(server *s, uint32_t device, int32_t start, uint32_t model,
                         const weft_option *o)
{
    uint32_t demand = s->builder->order[model];
    bool has_rate = s->builder->demands->at[demand].rate_per_s > 0;
    double rate = has_rate ? fmin(s->rest[model], o->peak_per_s) : 0;
    if (!weft_builder__put(s->builder, device, start, demand, o, rate))
        return;
    s->rest[model] = has_rate ? s->rest[model] - rate : 0;
    if (s->rest[model] < s->rate[model] * slack)
        s->rest[model] = 0;
    s->version[model]++;
}

/* Puts the instances of a multiset, large ones first, each for the model that `owner` names. */
static void make_device(server *s, const kind *k, uint32_t (*owner)[8], const weft_mig_count *count)
{
    uint32_t device = weft_builder__open(s->builder, k->row, WEFT_SLICE_MIG), taken = 0;
    for (uint32_t i = 0; i < k->shape.n && device != UINT32_MAX; i++) {
        uint32_t p = k->shape.order[i];
        for (uint32_t j = 0; j < count->of[p]; j++) {
            const weft_mig_profile *mig = &k->shape.type->mig[p];
            int32_t start = weft_pool__mig_start(mig, taken);
            if (start < 0)
                return;
            taken |= weft_device_type_mig_slots(mig, start);
            uint32_t model = owner[p][j];
            if (model != UINT32_MAX && s->rest[model] > 0 && k->best[model].option[p])
                put_instance(s, device, start, model, k->best[model].option[p]);
        }
    }
}

static void make_candidate(server *s, const candidate *c)
{
    kind *k = &s->kinds[c->kind];
    uint32_t owner[WEFT_MIG_PROFILES_MAX][8];
    weft_mig_count all = {{0}};
    if (c->split == UINT32_MAX) {
        uint32_t device = weft_builder__open(s->builder, k->row, WEFT_SLICE_WHOLE);
        put_instance(s, device, -1, c->model[0], k->entire[c->model[0]]);
        return;
    }
    for (uint32_t side = 0; side < 2; side++) {
        const weft_mig_count *count = &k->parts[k->split[c->split][side]].count;
        for (uint32_t p = 0; p < k->shape.n; p++)
            for (uint32_t i = 0; i < count->of[p]; i++)
                owner[p][all.of[p]++] = c->model[side];
    }
    make_device(s, k, owner, &all);
}

/* -- The end: any mixture --------------------------------------------------------------------- */

/* The most that one GPU carries of a model. */
static double most_of(const server *s, uint32_t model)
{
    double most = 0;
    for (uint32_t i = 0; i < s->n_kind; i++) {
        const kind *k = &s->kinds[i];
        for (uint32_t w = 0; w < k->n_whole; w++)
            most = fmax(most, capacity_of(s, k, &k->whole[w], model));
        if (k->entire[model])
            most = fmax(most, per_s_of(s, model, k->entire[model]->peak_per_s));
    }
    return most;
}

/* Gives each instance of a multiset to the model that gains most; returns the sum of the scores. */
static double mix_models(const server *s, const kind *k, const weft_mig_count *count, double *gain,
                         uint32_t (*owner)[8])
{
    double sum = 0;
    memset(gain, 0, s->n_model * sizeof *gain);
    for (uint32_t i = 0; i < k->shape.n; i++) {
        uint32_t p = k->shape.order[i];
        for (uint32_t j = 0; j < count->of[p]; j++) {
            double best = 0;
            owner[p][j] = UINT32_MAX;
            for (uint32_t m = 0; m < s->n_model; m++) {
                double per_s = per_s_of(s, m, k->best[m].per_s[p]);
                double more =
                    s->rest[m] > 0 ? score_of(s, m, gain[m] + per_s) - score_of(s, m, gain[m]) : 0;
                if (more > best * (1 + slack)) {
                    best = more;
                    owner[p][j] = m;
                }
            }
            sum += best;
            if (owner[p][j] != UINT32_MAX)
                gain[owner[p][j]] += per_s_of(s, owner[p][j], k->best[owner[p][j]].per_s[p]);
        }
    }
    return sum;
}

/* Makes a GPU with any mixture of models if it scores more than the best candidate; false: it does
 * not. */
static bool make_mix(server *s, const candidate *than)
{
    double *gain = weft_arena_array(s->builder->arena, s->n_model, sizeof *gain);
    uint32_t owner[WEFT_MIG_PROFILES_MAX][8], best_owner[WEFT_MIG_PROFILES_MAX][8] = {{0}};
    candidate best = *than;
    const weft_mig_count *count = NULL;
    for (uint32_t i = 0; i < s->n_kind; i++) {
        const kind *k = &s->kinds[i];
        if (s->builder->opened[k->row - s->builder->fleet->device] == k->row->count)
            continue;
        for (uint32_t w = 0; w < k->n_whole; w++) {
            double score = mix_models(s, k, &k->whole[w], gain, owner);
            if (!is_better(s, &best, score, i))
                continue;
            best = (candidate){.score = score, .kind = i};
            count = &k->whole[w];
            memcpy(best_owner, owner, sizeof owner);
        }
    }
    if (count)
        make_device(s, &s->kinds[best.kind], best_owner, count);
    return count != NULL;
}

/* -- The policy ------------------------------------------------------------------------------- */

static uint32_t find_part(kind *k, const weft_mig_count *count)
{
    for (uint32_t i = 0; i < k->n_part; i++)
        if (memcmp(&k->parts[i].count, count, sizeof *count) == 0)
            return i;
    k->parts[k->n_part].count = *count;
    return k->n_part++;
}

/* Lists all ways to divide a maximal multiset into two parts; the first part counts up like an
 * odometer. */
static void list_splits(const weft_builder *builder, kind *k)
{
    WEFT_VEC(uint32_t) list = {0};
    for (uint32_t w = 0; w < k->n_whole; w++) {
        const weft_mig_count *whole = &k->whole[w];
        weft_mig_count a = {{0}};
        for (bool more = true; more;) {
            weft_mig_count b = {{0}};
            for (uint32_t q = 0; q < WEFT_MIG_PROFILES_MAX; q++)
                b.of[q] = (uint8_t)(whole->of[q] - a.of[q]);
            uint32_t first = find_part(k, &a), second = find_part(k, &b);
            if (first <= second) {
                WEFT_VEC_PUSH(builder->arena, &list, first);
                WEFT_VEC_PUSH(builder->arena, &list, second);
            }
            more = false;
            for (uint32_t p = 0; p < WEFT_MIG_PROFILES_MAX && !more; p++) {
                more = a.of[p] < whole->of[p];
                a.of[p] = more ? (uint8_t)(a.of[p] + 1) : 0;
            }
        }
    }
    k->n_split = list.len / 2;
    k->split = weft_arena_array(builder->arena, k->n_split, sizeof *k->split);
    for (uint32_t i = 0; i < list.len; i++)
        k->split[i / 2][i % 2] = list.at[i];
}

static int compare_entries(const void *a, const void *b)
{
    return is_before(a, b) ? -1 : 1;
}

static void fill_heap(const server *s, const kind *k, part *p)
{
    p->heap = weft_arena_array(s->builder->arena, s->n_model, sizeof *p->heap);
    for (uint32_t m = 0; m < s->n_model; m++) {
        double per_s = capacity_of(s, k, &p->count, m);
        if (per_s > 0)
            p->heap[p->n++] = (entry){.value = score_of(s, m, per_s), .model = m};
    }
    if (p->n > 0)
        qsort(p->heap, p->n, sizeof *p->heap, compare_entries);
}

static const weft_option *find_entire(const weft_builder *builder, uint32_t demand,
                                      const weft_fleet_device *row)
{
    const weft_option *best = NULL;
    for (uint32_t i = 0; i < builder->n_option[demand]; i++) {
        const weft_option *o = &builder->option[demand][i];
        if (o->row == row && o->spec.kind == WEFT_SLICE_WHOLE && o->point->procs == 1 &&
            (!best || o->peak_per_s > best->peak_per_s * (1 + slack)))
            best = o;
    }
    return best;
}

static void start_kind(server *s, const weft_fleet_device *row)
{
    weft_builder *builder = s->builder;
    kind *k = &s->kinds[s->n_kind++];
    double price = weft_fleet__price(row);
    const weft_device_type *type = weft_device_type_find(row->type);
    *k = (kind){.row = row, .price = price > 0 ? price : 1};
    if (row->mig && type)
        k->shape = weft_mig__shape(type);
    k->best = weft_arena_array(builder->arena, s->n_model, sizeof *k->best);
    k->entire = weft_arena_array(builder->arena, s->n_model, sizeof *k->entire);
    for (uint32_t m = 0; m < s->n_model; m++) {
        if (k->shape.n > 0)
            k->best[m] = weft_mig__best(builder, &k->shape, row, builder->order[m], 1);
        k->entire[m] = find_entire(builder, builder->order[m], row);
    }
    if (k->shape.n == 0)
        return;
    k->whole = weft_arena_array(builder->arena, WEFT_MIG_SETS_MAX, sizeof *k->whole);
    k->n_whole = (uint32_t)weft_mig__multisets(&k->shape, true, k->whole, WEFT_MIG_SETS_MAX);
    k->parts = weft_arena_array(builder->arena, PARTS_MAX, sizeof *k->parts);
    list_splits(builder, k);
    for (uint32_t p = 0; p < k->n_part; p++)
        fill_heap(s, k, &k->parts[p]);
}

static weft_err start(server *s)
{
    weft_builder *builder = s->builder;
    const weft_fleet *fleet = builder->fleet;
    weft_err err = WEFT_ERR_OK;
    s->n_model = (uint32_t)builder->demands->n;
    s->version = weft_arena_array(builder->arena, s->n_model, sizeof *s->version);
    s->rate = weft_arena_array(builder->arena, s->n_model, sizeof *s->rate);
    s->rest = weft_arena_array(builder->arena, s->n_model, sizeof *s->rest);
    s->kinds = weft_arena_array(builder->arena, fleet->n_device, sizeof *s->kinds);
    for (uint32_t m = 0; m < s->n_model; m++) {
        double rate = builder->demands->at[builder->order[m]].rate_per_s;
        s->rate[m] = s->rest[m] = rate > 0 ? rate : 1;
    }
    for (size_t i = 0; i < fleet->n_device; i++)
        if (!weft_device_type_is_cpu(fleet->device[i].type))
            start_kind(s, &fleet->device[i]);
    s->most = weft_arena_array(builder->arena, s->n_model, sizeof *s->most);
    for (uint32_t m = 0; m < s->n_model; m++) {
        const weft_demand *d = &builder->demands->at[builder->order[m]];
        s->most[m] = most_of(s, m);
        if (s->most[m] > 0)
            continue;
        s->rest[m] = 0;
        if (builder->problem->goal != WEFT_GOAL_GOODPUT)
            err =
                weft_diag_error(builder->diag, WEFT_ERR_INFEASIBLE, (weft_where){.item = d->model},
                                "mig-serving places on MIG instances and whole GPUs, one process "
                                "on each, and the model meets its SLO on none that it was "
                                "profiled on; add such a profile, allow MIG, or relax the SLO");
    }
    return err;
}

static bool is_near_end(const server *s)
{
    for (uint32_t m = 0; m < s->n_model; m++)
        if (s->rest[m] > s->most[m])
            return false;
    return true;
}

static uint32_t find_open(const server *s)
{
    for (uint32_t m = 0; m < s->n_model; m++)
        if (s->rest[m] > 0)
            return m;
    return UINT32_MAX;
}

static weft_err serve(server *s)
{
    bool end = false;
    for (uint32_t open; (open = find_open(s)) != UINT32_MAX;) {
        weft_arena_mark mark = weft_arena_get_mark(s->builder->arena);
        candidate c = find_candidate(s);
        weft_arena_reset(s->builder->arena, mark);
        end = end || is_near_end(s);
        if (end && make_mix(s, &c))
            continue;
        if (c.score > 0) {
            make_candidate(s, &c);
            continue;
        }
        if (s->builder->problem->goal == WEFT_GOAL_GOODPUT)
            return WEFT_ERR_OK;
        return weft_builder__full(s->builder, s->builder->order[open], s->rest[open]);
    }
    return WEFT_ERR_OK;
}

static weft_err place_mig_serving(void *state, const weft_problem *problem, weft_arena *arena,
                                  weft_diag *diag, weft_plan *out)
{
    weft_builder builder;
    server s = {.builder = &builder};
    (void)state;
    WEFT_TRY(weft_builder__init(&builder, problem, arena, diag));
    WEFT_TRY(start(&s));
    WEFT_TRY(serve(&s));
    weft_builder__finish(&builder, "mig-serving", out);
    return WEFT_ERR_OK;
}

const weft_policy weft_policy_mig_serving = {
    .name = "mig-serving",
    .brief = "GPU by GPU, the best-scoring MIG configuration of two models",
    .cite = "MIG-serving, 2021, as ParvaGPU (SC'24) describes it",
    .splits = WEFT_SPLIT_WHOLE | WEFT_SPLIT_MIG,
    .place = place_mig_serving,
};
