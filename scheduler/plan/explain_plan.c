/* Explains the placements of one model in a plan.
 *
 * Places: the models on the same slice and on the same device, and the slack in capacity and SLO.
 *
 * Options: each slice of the profile, by its legal batch with the highest capacity. If no batch is
 * legal there, the option is the batch that is closest to legal, with the reason. Legal options are
 * ordered by the capacity of a whole device of such slices per dollar, or by the capacity alone
 * where a price is not known; that makes slices of different sizes and types comparable.
 *
 * Changes: the smallest change of SLO or rate with which the smallest placement of the model fits
 * on a smaller slice, by the profile; and a change with which the policy needs fewer devices or
 * dollars. The latter is found by bisection between no change and an eighth of the rate (eight
 * times the SLO), with a new plan for each value. It is the smallest such change only if the need
 * is monotone; the stated saving is that of a plan in any case. */
#include "scheduler/builder/builder.h"
#include "scheduler/plan/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

enum { BISECTIONS = 10, NAMES_MAX = 64 };

static const double factor_max = 8; /* of the changes that are tried */

static const char *const verdict_name[] = {
    [WEFT_VERDICT_CHOSEN] = "chosen",     [WEFT_VERDICT_POSSIBLE] = "possible",
    [WEFT_VERDICT_NO_ROOM] = "no-room",   [WEFT_VERDICT_SLO] = "slo",
    [WEFT_VERDICT_MEMORY] = "memory",     [WEFT_VERDICT_RULES] = "rules",
    [WEFT_VERDICT_NO_SLICE] = "no-slice", [WEFT_VERDICT_NO_DEVICE] = "no-device",
};

const char *weft_verdict_name(weft_verdict verdict)
{
    return verdict_name[verdict];
}

typedef struct explainer {
    const weft_plan *plan;
    const weft_problem *problem; /* under the rules of the plan */
    const weft_policy *policy;
    weft_arena *arena;
    uint32_t demand;
    const weft_demand *d;
    weft_builder builder; /* the plan without the model */
    weft_explanation out;
} explainer;

/* -- Places ----------------------------------------------------------------------------------- */

typedef struct names {
    WEFT_VEC(const char *) list;
} names;

static void add_name(explainer *e, names *to, const char *name)
{
    for (uint32_t i = 0; i < to->list.len; i++)
        if (strcmp(to->list.at[i], name) == 0)
            return;
    if (to->list.len < NAMES_MAX)
        WEFT_VEC_PUSH(e->arena, &to->list, name);
}

/* The time of k requests is that of the next larger batch of the profile. NULL: there is no point
 * of the placement. */
static const double *times_of(const explainer *e, const weft_placement *p)
{
    const weft_option_table *table = &e->builder.table;
    const weft_shape *shape = weft_option_table__shape(table, p->type, p->slice);
    double *exec_us = weft_arena_array(e->arena, p->batch, sizeof *exec_us);
    uint32_t k = 0;
    for (uint32_t i = 0; shape && i < table->n_timed[e->demand]; i++) {
        const weft_timed_point *t = &table->timed[e->demand][i];
        if (t->shape == (uint32_t)(shape - table->shape) && t->point->procs == p->procs)
            for (; k < t->point->batch && k < p->batch; k++)
                exec_us[k] = t->exec_us;
    }
    return k == p->batch ? exec_us : NULL;
}

enum { CHAIN_BATCH_MAX = 256 };

/* What the rule `queue` costs a model that has its slice to itself, and what it is for. */
static void weigh_rule(const explainer *e, weft_explain_place *place)
{
    const weft_placement *p = place->at;
    const double *exec_us = p->batch <= CHAIN_BATCH_MAX ? times_of(e, p) : NULL;
    if (!(p->exec_us > 0) || place->n_with > 0)
        return;
    place->rule_cost = 1 - p->capacity_per_s * p->exec_us / ((double)p->batch * p->procs * 1e6);
    weft_queue_chain chain = {.exec_us = exec_us, .batch = p->batch, .procs = p->procs};
    if (exec_us && e->d->slo_us > 0)
        place->late_share = weft_queue_chain__late(&chain, p->rate_per_s,
                                                   weft_rules__slo_us(&e->plan->rules, e->d));
}

/* Whether two places differ in their device only. */
static bool is_same_load(const weft_explain_place *a, const weft_explain_place *b)
{
    return strcmp(a->at->type, b->at->type) == 0 && strcmp(a->at->slice, b->at->slice) == 0 &&
           a->at->batch == b->at->batch && a->at->procs == b->at->procs &&
           a->at->rate_per_s == b->at->rate_per_s && a->n_with == b->n_with;
}

static void list_places(explainer *e)
{
    const weft_plan *plan = e->plan;
    WEFT_VEC(weft_explain_place) places = {0};
    double slo_us = weft_rules__slo_us(&plan->rules, e->d);
    for (size_t i = 0; i < plan->n; i++) {
        const weft_placement *p = &plan->at[i];
        if (strcmp(p->model, e->d->model) != 0)
            continue;
        names with = {0}, beside = {0};
        for (size_t j = 0; j < plan->n; j++) {
            const weft_placement *q = &plan->at[j];
            if (q->device == p->device && j != i)
                add_name(e, q->slice_id == p->slice_id ? &with : &beside, q->model);
        }
        weft_explain_place place = {.at = p,
                                    .with = with.list.at,
                                    .n_with = with.list.len,
                                    .beside = beside.list.at,
                                    .n_beside = beside.list.len,
                                    .slack_latency = 1};
        if (p->capacity_per_s > 0)
            place.slack_rate = 1 - p->rate_per_s / p->capacity_per_s;
        if (e->d->slo_us > 0)
            place.slack_latency = 1 - p->latency_us / slo_us;
        const weft_explain_place *before = places.len ? &places.at[places.len - 1] : NULL;
        if (before && is_same_load(before, &place)) {
            place.rule_cost = before->rule_cost;
            place.late_share = before->late_share;
        } else {
            weigh_rule(e, &place);
        }
        WEFT_VEC_PUSH(e->arena, &places, place);
    }
    e->out.place = places.at;
    e->out.n_place = places.len;
}

static bool is_chosen(const explainer *e, const weft_shape *shape)
{
    for (size_t i = 0; i < e->out.n_place; i++)
        if (strcmp(e->out.place[i].at->type, shape->device) == 0 &&
            strcmp(e->out.place[i].at->slice, shape->slice) == 0)
            return true;
    return false;
}

/* -- The plan without the model --------------------------------------------------------------- */

/* Rebuilds the plan without the model. Of an illegal plan, placements that the builder refuses are
 * left out. */
static void load_builder(explainer *e)
{
    const weft_plan *plan = e->plan;
    weft_demand_index index = weft_demands__index(e->problem->demands, e->arena);
    const uint32_t *order = weft_plan__order(plan, e->arena);
    uint32_t device = NONE, slice = NONE;
    for (size_t i = 0; i < plan->n; i++) {
        const weft_placement *p = &plan->at[order[i]];
        const weft_placement *before = i > 0 ? &plan->at[order[i - 1]] : NULL;
        const weft_shape *shape = weft_option_table__shape(&e->builder.table, p->type, p->slice);
        uint32_t d = weft_demands__find(&index, p->model);
        bool fresh = !before || before->device != p->device;
        if (fresh)
            device = NONE;
        if (fresh || before->slice_id != p->slice_id)
            slice = NONE;
        if (d == NONE || !shape || !shape->allowed)
            continue;
        if (device == NONE)
            device = weft_builder__open(&e->builder, shape->row, shape->spec.kind);
        const weft_option *o = weft_option_table__option(
            &e->builder.table, d, (uint32_t)(shape - e->builder.table.shape), p->batch, p->procs);
        if (device == NONE || !o || d == e->demand || slice != NONE)
            continue;
        int32_t start = shape->spec.kind == WEFT_SLICE_CORES ? (int32_t)p->slice_id : p->mig_start;
        if (weft_builder__put(&e->builder, device, start, d, o, p->rate_per_s))
            slice = e->builder.slices.len - 1;
    }
}

/* -- Options ---------------------------------------------------------------------------------- */

static double capacity_of(const explainer *e, const weft_timed_point *k)
{
    return weft_slo__capacity_per_s(&e->problem->rules, e->d, k->point, k->exec_us);
}

/* The representative of the timed points [from, to), which are those of one shape: the legal point
 * with the highest capacity, else the point that is closest to legal. */
static const weft_timed_point *pick_point(const explainer *e, uint32_t from, uint32_t to,
                                          weft_verdict *verdict)
{
    const weft_option_table *table = &e->builder.table;
    const weft_timed_point *best = NULL;
    for (uint32_t i = from; i < to; i++) {
        const weft_timed_point *k = &table->timed[e->demand][i];
        weft_verdict v = weft_option_table__judge(table, e->demand, k);
        bool better = !best || v < *verdict;
        if (best && v == *verdict && v == WEFT_VERDICT_POSSIBLE)
            better = capacity_of(e, k) > capacity_of(e, best);
        if (best && v == *verdict && v == WEFT_VERDICT_SLO)
            better = k->exec_us < best->exec_us;
        if (best && v == *verdict && v == WEFT_VERDICT_MEMORY)
            better = weft_point__mem_bytes(k->point) < weft_point__mem_bytes(best->point);
        if (better) {
            best = k;
            *verdict = v;
        }
    }
    return best;
}

/* Why a point is not legal. */
static const char *refusal_of(const explainer *e, const weft_timed_point *k, weft_verdict verdict)
{
    const weft_shape *shape = &e->builder.table.shape[k->shape];
    const weft_rules *rules = &e->problem->rules;
    double slo_us = weft_rules__slo_us(rules, e->d);
    double needs_us = weft_rules__least_slo_us(rules, e->d, k->exec_us);
    switch (verdict) {
    case WEFT_VERDICT_SLO:
        return weft_arena_printf(
            e->arena,
            "batch %u x %u executes for %.6g ms and needs an SLO of %.6g ms, %.6g ms (%.0f %%) "
            "over the SLO of %.6g ms",
            k->point->batch, k->point->procs, k->exec_us / 1e3, needs_us / 1e3,
            (needs_us - slo_us) / 1e3, slo_us > 0 ? (needs_us / slo_us - 1) * 100 : 0,
            slo_us / 1e3);
    case WEFT_VERDICT_MEMORY:
        return weft_arena_printf(e->arena, "needs %llu bytes, the slice has %llu",
                                 (unsigned long long)weft_point__mem_bytes(k->point),
                                 (unsigned long long)shape->spec.mem_bytes);
    case WEFT_VERDICT_RULES:
        return weft_arena_printf(e->arena,
                                 "%u processes are more than the rules and the device "
                                 "allow",
                                 k->point->procs);
    default:
        return shape->why ? shape->why : "the profile point has no usable time";
    }
}

/* The option of one shape, timed points [from, to). Legal options get their reason later, when the
 * best one is known. */
static weft_explain_option make_option(explainer *e, uint32_t from, uint32_t to)
{
    const weft_option_table *table = &e->builder.table;
    weft_verdict verdict = WEFT_VERDICT_NO_DEVICE;
    const weft_timed_point *k = pick_point(e, from, to, &verdict);
    const weft_shape *shape = &table->shape[k->shape];
    weft_explain_option o = {.type = shape->device,
                             .slice = shape->slice,
                             .batch = k->point->batch,
                             .procs = k->point->procs,
                             .latency_us = 2 * k->exec_us,
                             .verdict = verdict};
    if (verdict != WEFT_VERDICT_POSSIBLE) {
        o.reason = refusal_of(e, k, verdict);
        return o;
    }
    const weft_option *option =
        weft_option_table__option(table, e->demand, k->shape, k->point->batch, k->point->procs);
    o.capacity_per_s = option->peak_per_s;
    o.per_device_per_s = option->peak_per_s / shape->spec.weight;
    if (weft_fleet__price(shape->row) > 0)
        o.per_dollar = o.per_device_per_s * 3600 / weft_fleet__price(shape->row);
    if (is_chosen(e, shape))
        o.verdict = WEFT_VERDICT_CHOSEN;
    else if (!weft_builder__has_place(&e->builder, option))
        o.verdict = WEFT_VERDICT_NO_ROOM;
    return o;
}

/* The reason of a legal option: its capacity, and a comparison with the best option. */
static const char *comparison_of(const explainer *e, const weft_explain_option *o,
                                 const weft_explain_option *best)
{
    double slices = ceil(e->d->rate_per_s / o->capacity_per_s * (1 - 1e-9));
    bool priced = o->per_dollar > 0 && best->per_dollar > 0;
    double worse = priced ? 1 - o->per_dollar / best->per_dollar
                          : 1 - o->per_device_per_s / best->per_device_per_s;
    const char *text = weft_arena_printf(
        e->arena,
        "batch %u x %u serves %.6g/s (the rate needs %.0f slice%s), a device of such slices "
        "%.6g/s",
        o->batch, o->procs, o->capacity_per_s, fmax(1, slices), slices > 1 ? "s" : "",
        o->per_device_per_s);
    if (worse > 1e-9)
        text = weft_arena_printf(e->arena, "%s, %.1f %% less%s than %s %s", text, worse * 100,
                                 priced ? " for its price" : "", best->type,
                                 best->slice[0] ? best->slice : "whole");
    if (o->verdict == WEFT_VERDICT_NO_ROOM)
        text = weft_arena_printf(e->arena, "%s; no device has room for it beside this plan", text);
    return text;
}

static bool is_legal(const weft_explain_option *o)
{
    return o->verdict <= WEFT_VERDICT_NO_ROOM;
}

static int compare_options(const void *a, const void *b)
{
    const weft_explain_option *p = a, *q = b;
    if (is_legal(p) != is_legal(q))
        return is_legal(p) ? -1 : 1;
    if (is_legal(p) && !p->per_dollar != !q->per_dollar)
        return p->per_dollar > 0 ? -1 : 1;
    if (is_legal(p) && p->per_dollar != q->per_dollar)
        return p->per_dollar > q->per_dollar ? -1 : 1;
    if (is_legal(p) && p->per_device_per_s != q->per_device_per_s)
        return p->per_device_per_s > q->per_device_per_s ? -1 : 1;
    if (!is_legal(p) && p->verdict != q->verdict)
        return p->verdict < q->verdict ? -1 : 1;
    int order = strcmp(p->type, q->type);
    return order ? order : strcmp(p->slice, q->slice);
}

static void list_options(explainer *e)
{
    const weft_option_table *table = &e->builder.table;
    const weft_timed_point *timed = table->timed[e->demand];
    uint32_t n = table->n_timed[e->demand];
    WEFT_VEC(weft_explain_option) told = {0};
    for (uint32_t i = 0; i < n;) {
        uint32_t end = i;
        while (end < n && timed[end].shape == timed[i].shape)
            end++;
        weft_explain_option o = make_option(e, i, end);
        WEFT_VEC_PUSH(e->arena, &told, o);
        i = end;
    }
    if (told.len > 0)
        qsort(told.at, told.len, sizeof *told.at, compare_options);
    for (uint32_t i = 0; i < told.len; i++)
        if (is_legal(&told.at[i]))
            told.at[i].reason = comparison_of(e, &told.at[i], &told.at[0]);
    e->out.option = told.at;
    e->out.n_option = told.len;
}

/* -- A smaller slice -------------------------------------------------------------------------- */

typedef struct change_list {
    WEFT_VEC(weft_explain_change) list;
} change_list;

/* The placement on the slice of least weight. */
static const weft_placement *find_smallest(const explainer *e, double *weight)
{
    const weft_placement *least = NULL;
    for (size_t i = 0; i < e->out.n_place; i++) {
        const weft_placement *p = e->out.place[i].at;
        const weft_shape *shape = weft_option_table__shape(&e->builder.table, p->type, p->slice);
        if (!shape || !shape->allowed || (least && shape->spec.weight >= *weight))
            continue;
        least = p;
        *weight = shape->spec.weight;
    }
    return least;
}

static void find_smaller_slice(explainer *e, change_list *to)
{
    const weft_option_table *table = &e->builder.table;
    double weight = 0, slo_us = 0, rate = 0;
    const weft_placement *now = find_smallest(e, &weight);
    const weft_shape *by_slo = NULL, *by_rate = NULL;
    for (uint32_t i = 0; now && i < table->n_timed[e->demand]; i++) {
        const weft_timed_point *k = &table->timed[e->demand][i];
        const weft_shape *shape = &table->shape[k->shape];
        weft_verdict v = weft_option_table__judge(table, e->demand, k);
        if (!shape->allowed || shape->spec.weight >= weight * (1 - 1e-9) ||
            (v != WEFT_VERDICT_SLO && v != WEFT_VERDICT_POSSIBLE))
            continue;
        double peak = capacity_of(e, k);
        double needs_us = weft_rules__least_slo_us(&e->problem->rules, e->d, k->exec_us);
        if (peak >= now->rate_per_s && needs_us > e->d->slo_us && (!by_slo || needs_us < slo_us)) {
            by_slo = shape;
            slo_us = needs_us;
        }
        if (v == WEFT_VERDICT_POSSIBLE && peak < now->rate_per_s && (!by_rate || peak > rate)) {
            by_rate = shape;
            rate = peak;
        }
    }
    if (by_slo && e->d->slo_us > 0) {
        weft_explain_change c = {.what = WEFT_CHANGE_SLO,
                                 .from = e->d->slo_us,
                                 .to = slo_us,
                                 .slice = by_slo->slice,
                                 .type = by_slo->device};
        WEFT_VEC_PUSH(e->arena, &to->list, c);
    }
    if (by_rate) {
        weft_explain_change c = {.what = WEFT_CHANGE_RATE,
                                 .from = e->d->rate_per_s,
                                 .to = e->d->rate_per_s - now->rate_per_s + rate,
                                 .slice = by_rate->slice,
                                 .type = by_rate->device};
        WEFT_VEC_PUSH(e->arena, &to->list, c);
    }
}

/* -- Fewer devices ---------------------------------------------------------------------------- */

/* Plans with one number changed. true: the plan needs fewer devices or dollars, and *c states them.
 */
static bool plan_saves(explainer *e, weft_explain_change *c, double value)
{
    const weft_demands *demands = e->problem->demands;
    weft_arena_mark mark = weft_arena_get_mark(e->arena);
    weft_demand *list = weft_arena_array(e->arena, demands->n, sizeof *list);
    memcpy(list, demands->at, demands->n * sizeof *list);
    if (c->what == WEFT_CHANGE_SLO)
        list[e->demand].slo_us = value;
    else
        list[e->demand].rate_per_s = value;
    weft_demands changed = {list, demands->n};
    weft_problem problem = *e->problem;
    problem.demands = &changed;
    problem.previous = NULL;
    weft_plan plan = {0};
    bool saves =
        weft_plan_decide(e->policy, NULL, &problem, e->arena, NULL, &plan) == WEFT_ERR_OK &&
        (plan.gpus < e->plan->gpus || plan.cost_per_hour < e->plan->cost_per_hour * (1 - 1e-9));
    if (saves) {
        c->to = value;
        c->gpus = plan.gpus;
        c->cost_per_hour = plan.cost_per_hour;
    }
    weft_arena_reset(e->arena, mark);
    return saves;
}

/* Bisects between no change and `far` for a small change that saves. */
static void find_saving(explainer *e, weft_explain_change change, double far, change_list *to)
{
    double near = change.from;
    if (!(change.from > 0) || !plan_saves(e, &change, far))
        return;
    for (int i = 0; i < BISECTIONS; i++) {
        double mid = near + (far - near) / 2;
        if (plan_saves(e, &change, mid))
            far = mid;
        else
            near = mid;
    }
    WEFT_VEC_PUSH(e->arena, &to->list, change);
}

static void list_changes(explainer *e)
{
    change_list changes = {0};
    find_smaller_slice(e, &changes);
    if (e->policy) {
        double slo_us = e->d->slo_us, rate = e->d->rate_per_s;
        find_saving(e, (weft_explain_change){.what = WEFT_CHANGE_SLO, .from = slo_us},
                    slo_us * factor_max, &changes);
        find_saving(e, (weft_explain_change){.what = WEFT_CHANGE_RATE, .from = rate},
                    rate / factor_max, &changes);
    }
    e->out.change = changes.list.at;
    e->out.n_change = changes.list.len;
}

/* -- Families --------------------------------------------------------------------------------- */

/* Plans with the family's models placed the other way. */
static bool plan_otherwise(const explainer *e, const weft_problem *given, const weft_family *f,
                           bool used, weft_plan *out)
{
    weft_problem problem = *given;
    if (used)
        problem.n_family = 0;
    else
        weft_families__group(given, &f, 1, e->arena, &problem);
    problem.rules = e->plan->rules;
    problem.goal = e->plan->goal;
    problem.previous = NULL;
    return weft_plan_decide(e->policy, NULL, &problem, e->arena, NULL, out) == WEFT_ERR_OK;
}

/* `given`: the problem with its families; `model`: the one asked for. */
static void list_families(explainer *e, const weft_problem *given, const char *model)
{
    WEFT_VEC(weft_explain_family) list = {0};
    for (size_t i = 0; i < given->n_family && e->policy; i++) {
        const weft_family *f = &given->family[i];
        weft_plan other = {0};
        if (!weft_family_has(f->name, model) || !weft_family__is_usable(given, f, e->arena))
            continue;
        weft_explain_family row = {.name = f->name, .used = strcmp(f->name, e->d->model) == 0};
        row.busy_now = weft_plan__busy(e->plan);
        row.feasible = plan_otherwise(e, given, f, row.used, &other);
        if (row.feasible) {
            row.gpus = other.gpus;
            row.cost_per_hour = other.cost_per_hour;
            row.busy = weft_plan__busy(&other);
        }
        WEFT_VEC_PUSH(e->arena, &list, row);
    }
    e->out.family = list.at;
    e->out.n_family = list.len;
}

/* Over which failure domains the model is. */
static void describe_domains(explainer *e)
{
    weft_domain level =
        e->plan->rules.survive > e->d->spread ? e->plan->rules.survive : e->d->spread;
    if (level == WEFT_DOMAIN_NONE)
        level = WEFT_DOMAIN_NODE;
    weft_domain_use use = weft_plan__domain_use(e->plan, e->d->model, level, e->arena);
    if (use.n == 0)
        return;
    e->out.domain = level;
    e->out.n_domain = use.n;
    e->out.worst_domain = use.worst;
    e->out.left_per_s = use.left_per_s;
}

weft_err weft_plan_explain(const weft_plan *plan, const weft_problem *problem,
                           const weft_policy *policy, const char *model, weft_arena *arena,
                           weft_diag *diag, weft_explanation *out)
{
    weft_problem judged;
    weft_families_of_plan(plan, problem, arena, &judged);
    judged.rules = plan->rules;
    judged.goal = plan->goal;
    char known[WEFT_NEAREST_BYTES_MAX];
    explainer e = {
        .plan = plan, .problem = &judged, .policy = policy, .arena = arena, .demand = NONE};
    for (uint32_t i = 0; i < judged.demands->n; i++)
        if (weft_family_has(judged.demands->at[i].model, model))
            e.demand = i;
    if (e.demand == NONE)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = model},
                               "the set has no such model%s",
                               weft_demands_say_known(judged.demands, model, known));
    e.d = &judged.demands->at[e.demand];
    e.out = (weft_explanation){
        .model = e.d->model, .slo_us = e.d->slo_us, .rate_per_s = e.d->rate_per_s};
    WEFT_TRY(weft_builder__init(&e.builder, &judged, arena, diag));
    list_places(&e);
    if (e.out.n_place == 0)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = model},
                               "the plan does not place the model");
    load_builder(&e);
    list_options(&e);
    list_changes(&e);
    list_families(&e, problem, model);
    describe_domains(&e);
    *out = e.out;
    return WEFT_ERR_OK;
}
