/* USHER: each replica gets exactly the compute and the memory that it needs; models that need
 * much compute run beside models that need much memory.
 *
 * Source: S. S. Shubha, H. Shen, A. Iyer, USHER: holistic interference avoidance for resource
 * optimized ML inference, OSDI'24.
 *
 * World of the paper. GPUs of several types with prices, shared by MPS. Each model has a rate
 * and an SLO, and runs in replicas (batch BS, replication degree RD). A replica gets what it
 * requires, so that replicas never compete for compute or memory.
 *
 * Requirements (usher_need.c). Creq is the estimator's share of the compute units (cost.creq on
 * the whole device); without it, the smallest share that is within eps of the speed of the whole
 * device. The replica gets the smallest profiled MPS share that is at least Creq and keeps the
 * SLO; its time is that on the share, in the paper that on the whole device. Where only whole
 * devices are profiled or allowed, Creq is 100 % and USHER is exclusive placement. Mreq is
 * memory capacity in thousandths of a device, rounded up (the design section of the paper; its
 * implementation measures bandwidth, which is part of the estimator's times here).
 * Groups. Imbalance is Creq - Mreq. Two passes of pairing form groups of up to four models whose
 * sums are as near to 0 as possible. The paper uses a balanced k-means; pairing the smallest
 * with the largest is exact.
 * Configurations (usher_search.c). For each group, with the devices of earlier groups: BS of 4,
 * 8 .. 128, RD of 1 .. 6 times c, where c replicas of the largest batch carry the rate. Taken is
 * the cheapest combination with full goodput or, for a fixed fleet (goal goodput), the one with
 * the most goodput and RD limited by the number of GPUs. If the profile has none of these
 * batches, all its batches; if no such RD is sure to carry the rate on every type, the one that
 * is.
 * Placement (usher_place.c). A model whose Creq is 1.2 times its Mreq is C-heavy, the reverse
 * M-heavy, others are neutral (the paper's terms). C-heavy and M-heavy models are paired by
 * descending Creq + Mreq. A pair of replicas goes on one device: best fit on a device of this
 * group, then of other groups, else a new device of the cheapest type. When a device has been
 * opened, the remaining replicas are tried on it first.
 *
 * Changes.
 * - T (a replica serves BS / T) is the execution alone, because the next batch is collected
 *   during it; with wait=1 it includes the time to collect, as in the paper. All replicas are
 *   used, each for a part of the rate in proportion to BS / T. A pair that fits on no device
 *   becomes two single models. Ties that the paper leaves open are decided by name. Merging
 *   models is the compiler's task here: a merge group comes as one model with a profile of its
 *   own. A plan in force stays until a rate moves by 500/s or 10 % (usher_keep.c).
 * - On CPUs (core_slices.c) a slice is a device of its own, where Creq is 100 %: what is left is
 * the cheapest configuration of each model, exclusively.
 *
 * Over time: with measure=1 (peak), 2 (90 %) or 3 (expected loss of at most eps), Creq is taken
 * from the use over time of the profile instead of its mean, and Mreq is the larger of memory and
 * bandwidth so measured. 1 is the letter of the paper's section 2, "at any point of the run": where
 * any kernel fills the device it is 100 %, so that the placement becomes exclusive.
 *
 * Parameters: alternate=0, divide=0 (groups by name), sort=0: ablations of the paper.
 * trigger=0.1 (0: always plan anew). full=1: every combination (slow, for tests). degree=6: RD
 * up to that many times c. eps=0.05. stats=1: a note with the numbers of combinations, of those
 * dropped and cut, and of placements. effort: placements (200000); if they do not suffice, a
 * warning says that the plan is the best of those tried.
 * Complexity: a placement costs O(classes of replicas * classes of equal devices);
 * usher_search.c has the number of combinations. */
#include "scheduler/policies/core_slices.h"
#include "scheduler/policies/usher_int.h"

#include <math.h>
#include <string.h>

static const double slack = 1e-9;

/* A replica on a device of the builder. */
typedef struct replica {
    uint32_t device, model;
    const weft_usher_need *need;
} replica;

typedef struct placer {
    weft_usher u;
    WEFT_VEC(uint32_t) next; /* by device: the next device of its class */
    WEFT_VEC(replica) replicas;
    double *capacity; /* by model */
} placer;

/* -- Carrying out a placement ----------------------------------------------------------------- */

static void push_device(placer *b, uint32_t class, uint32_t device)
{
    weft_usher_class *k = &b->u.classes.at[class];
    if (k->first == UINT32_MAX)
        k->first = device;
    else
        b->next.at[k->last] = device;
    k->last = device;
    b->next.at[device] = UINT32_MAX;
}

static uint32_t pop_device(placer *b, uint32_t class)
{
    weft_usher_class *k = &b->u.classes.at[class];
    uint32_t device = k->first;
    k->first = b->next.at[device];
    return device;
}

static uint32_t open_device(placer *b, uint32_t type, const weft_usher_need *need)
{
    weft_fleet_slice_kind kind = need[type].option->spec.kind;
    uint32_t none = UINT32_MAX;
    uint32_t device = weft_builder__open(b->u.builder, b->u.type[type].row, kind);
    while (b->next.len <= device)
        WEFT_VEC_PUSH(b->u.builder->arena, &b->next, none);
    return device;
}

/* Assigns real devices to the moves of the last placement. */
static void realise(placer *b, const uint32_t *group, const weft_usher_config *const *config)
{
    weft_usher *u = &b->u;
    for (uint32_t i = 0; i < u->moves.len; i++) {
        const weft_usher_move *move = &u->moves.at[i];
        uint32_t type = u->classes.at[move->to].type;
        for (uint32_t k = 0; k < move->count; k++) {
            uint32_t device = move->from == UINT32_MAX
                                  ? open_device(b, type, config[move->model[0]]->need)
                                  : pop_device(b, move->from);
            push_device(b, move->to, device);
            for (uint32_t r = 0; r < move->each * 2; r++) {
                uint32_t m = move->model[r % 2];
                if (m == UINT32_MAX)
                    continue;
                replica x = {.device = device, .model = group[m], .need = &config[m]->need[type]};
                b->capacity[x.model] += x.need->rate_per_s;
                WEFT_VEC_PUSH(u->builder->arena, &b->replicas, x);
            }
        }
    }
}

/* For the next group, the devices of this group are those of other groups. Classes in equal states
 * are united, and classes without room for any replica are dropped. */
static void close_group(placer *b)
{
    weft_usher *u = &b->u;
    uint32_t n = 0;
    for (uint32_t i = 0; i < u->classes.len; i++) {
        weft_usher_class k = u->classes.at[i];
        uint32_t same = 0;
        k.inside = false;
        if (k.count == 0 || k.c_free == 0)
            continue;
        while (same < n &&
               (u->classes.at[same].type != k.type || u->classes.at[same].c_free != k.c_free ||
                u->classes.at[same].m_free != k.m_free))
            same++;
        if (same == n) {
            u->classes.at[n++] = k;
            continue;
        }
        weft_usher_class *to = &u->classes.at[same];
        to->count += k.count;
        b->next.at[to->last] = k.first;
        to->last = k.last;
    }
    u->classes.len = n;
}

/* -- The rates -------------------------------------------------------------------------------- */

/* Spreads the rates over the replicas in proportion to their throughput. A replica of a model that
 * is not carried fully (goal goodput) works at its capacity. */
static weft_err put_replicas(placer *b)
{
    weft_builder *builder = b->u.builder;
    for (uint32_t i = 0; i < b->replicas.len; i++) {
        const replica *x = &b->replicas.at[i];
        const weft_usher_model *m = &b->u.model[x->model];
        double part = fmin(1, m->rate_per_s / b->capacity[x->model]);
        double rate = fmin(x->need->rate_per_s * part, x->need->option->peak_per_s);
        if (weft_builder__put(builder, x->device, -1, m->demand, x->need->option, rate))
            continue;
        if (builder->problem->goal == WEFT_GOAL_GOODPUT)
            continue;
        return weft_diag_error(builder->diag, WEFT_ERR_INFEASIBLE,
                               (weft_where){.item = builder->demands->at[m->demand].model},
                               "its neighbours slow it down beyond its SLO, and usher plans as if "
                               "they did not; a larger SLO or no interference would make it "
                               "feasible");
    }
    return WEFT_ERR_OK;
}

static weft_err refuse_group(const placer *b, const uint32_t *group, uint32_t n,
                             const weft_usher_result *r)
{
    for (uint32_t i = 0; i < n; i++) {
        const weft_usher_model *m = &b->u.model[group[i]];
        if (r->part[i] < m->rate_per_s * (1 - slack))
            return weft_builder__full(b->u.builder, m->demand, m->rate_per_s - r->part[i]);
    }
    return weft_builder__full(b->u.builder, b->u.model[group[0]].demand, 0);
}

static weft_err place_groups(placer *b)
{
    weft_usher *u = &b->u;
    uint64_t effort = u->effort;
    for (uint32_t i = 0; i < u->n_group; i++) {
        const weft_usher_config *config[WEFT_USHER_GROUP];
        double rate[WEFT_USHER_GROUP];
        weft_usher_result r;
        uint32_t n = 0;
        while (n < WEFT_USHER_GROUP && u->group[i][n] != UINT32_MAX) {
            rate[n] = u->model[u->group[i][n]].rate_per_s;
            n++;
        }
        /* The effort that one group leaves is for the others. */
        u->effort = (effort - fmin(effort, u->stats.placed)) / (u->n_group - i);
        u->effort = u->effort > 0 ? u->effort : 1;
        if (!weft_usher__search(u, u->group[i], n, config, &r))
            return refuse_group(b, u->group[i], n, &r);
        (void)weft_usher__place(u, config, rate, n);
        realise(b, u->group[i], config);
        close_group(b);
    }
    return WEFT_ERR_OK;
}

/* -- The policy ------------------------------------------------------------------------------- */

static const char *const parameters[] = {"alternate", "divide",  "sort",   "full",
                                         "wait",      "stats",   "degree", "eps",
                                         "trigger",   "measure", NULL};

static weft_usher_options read_options(const weft_problem *problem)
{
    double value[10];
    static const double otherwise[10] = {1, 1, 1, 0, 0, 0, WEFT_USHER_DEGREES, 0.05, 0.1, 0};
    for (uint32_t i = 0; parameters[i]; i++)
        value[i] = weft_parameter__number(problem, parameters[i], otherwise[i]);
    return (weft_usher_options){
        .no_alternate = !(value[0] > 0),
        .no_divide = !(value[1] > 0),
        .no_sort = !(value[2] > 0),
        .full = value[3] > 0,
        .wait = value[4] > 0,
        .stats = value[5] > 0,
        .degree = (uint32_t)fmax(1, fmin(value[6], WEFT_USHER_DEGREES)),
        .eps = value[7] >= 0 ? value[7] : 0,
        .trigger = value[8],
        .measure = (weft_usher_measure)fmax(0, fmin(value[9], WEFT_USHER_EXPECTED))};
}

static void list_types(weft_usher *u)
{
    const weft_fleet *fleet = u->builder->fleet;
    weft_usher_type *type = weft_arena_array(u->builder->arena, fleet->n_device, sizeof *type);
    for (uint32_t i = 0; i < fleet->n_device; i++) {
        const weft_fleet_device *row = &fleet->device[i];
        double price = weft_fleet__price(row);
        if (!weft_device_type_is_cpu(row->type))
            type[u->n_type++] = (weft_usher_type){.row = row, .price = price > 0 ? price : 1};
    }
    u->type = type;
    u->opened = weft_arena_array(u->builder->arena, u->n_type, sizeof *u->opened);
}

static void report(const weft_usher *u, weft_diag *diag)
{
    const weft_usher_stats *s = &u->stats;
    weft_where where = {.item = "usher"};
    if (s->limited > 0)
        weft_diag_warn(
            diag, where,
            "the effort ended the search of %u of %u groups; more may find a better plan",
            s->limited, s->groups);
    if (u->options.stats)
        weft_diag_note(diag, where,
                       "%u groups, %.0f combinations: %.0f dropped, %.0f cut by the bound, %.0f "
                       "placed",
                       s->groups, s->combinations, s->dropped, s->cut,
                       s->combinations - s->dropped - s->cut);
}

/* -- CPU slices ------------------------------------------------------------------------------- */

/* By descending need, as pairs are placed. */
static double weigh_cores(const weft_builder *builder, uint32_t demand)
{
    return -builder->demands->at[demand].rate_per_s;
}

/* What the replicas of one configuration cost. */
static double cost_of(const weft_option *o, double rest_per_s)
{
    return fmax(1, ceil(rest_per_s / o->peak_per_s * (1 - slack))) * o->spec.weight;
}

static bool is_cheaper(const weft_builder *builder, uint32_t demand, const weft_option *a,
                       const weft_option *b, double rest_per_s)
{
    double less = cost_of(b, rest_per_s) - cost_of(a, rest_per_s);
    (void)builder;
    (void)demand;
    if (fabs(less) > slack)
        return less > 0;
    return a->peak_per_s * b->spec.weight > b->peak_per_s * a->spec.weight * (1 + slack);
}

static weft_err place_usher(void *state, const weft_problem *problem, weft_arena *arena,
                            weft_diag *diag, weft_plan *out)
{
    weft_builder builder;
    placer b = {.u = {.builder = &builder}};
    weft_usher *u = &b.u;
    (void)state;
    u->options = read_options(problem);
    WEFT_TRY(weft_builder__init(&builder, problem, arena, diag));
    if (weft_usher__keep(&builder, u->options.trigger)) {
        weft_builder__finish(&builder, "usher", out);
        return WEFT_ERR_OK;
    }
    if (weft_cores__only(problem->fleet)) {
        static const weft_cores_rule rule = {.weight = weigh_cores, .is_better = is_cheaper};
        WEFT_TRY(weft_cores__place(&builder, &rule));
        weft_builder__finish(&builder, "usher", out);
        return WEFT_ERR_OK;
    }
    u->effort = problem->effort > 0 ? problem->effort : WEFT_USHER_EFFORT;
    list_types(u);
    WEFT_TRY(weft_usher__models(u));
    weft_usher__group(u);
    b.capacity = weft_arena_array(arena, u->n_model, sizeof *b.capacity);
    WEFT_TRY(place_groups(&b));
    WEFT_TRY(put_replicas(&b));
    report(u, diag);
    weft_builder__finish(&builder, "usher", out);
    return WEFT_ERR_OK;
}

const weft_policy weft_policy_usher = {
    .name = "usher",
    .brief = "replicas with what they need, C-heavy beside M-heavy models",
    .cite = "USHER, OSDI'24",
    .parameters = parameters,
    .splits = WEFT_SPLIT_WHOLE | WEFT_SPLIT_MPS | WEFT_SPLIT_CORES,
    .place = place_usher,
};
