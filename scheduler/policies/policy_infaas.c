/* INFaaS: variants and numbers of instances for the rate of each application, scaled in steps
 * from the instances that run.
 *
 * Source: F. Romero et al., INFaaS: automated model-less inference serving, USENIX ATC'21.
 *
 * World of the paper. An application states what it wants (accuracy, latency). The system has
 * many variants of it (architecture, framework, batch, hardware) on workers with CPUs and GPUs.
 * Each second greedy rules, which approximate an integer program, add, upgrade and remove
 * instances. infaas.c has the program and the rules, dispatch/pick.c the choice of a variant for
 * each query.
 *
 * Mapping. An app of the set with a rate is an application, its models are architectures; a
 * model with a rate of its own is an application with one architecture. A variant is a model on
 * a slice of a device, with the batch of the highest throughput there. Only variants within the
 * SLO and with the accuracy of the app are eligible, so each single answer keeps both. A worker
 * is a device; an instance has a slice of its own (INFaaS lets instances share GPUs in time).
 * Cost is price times part of the device.
 *
 * Algorithm. One call stands for one or more slots of `slot` seconds. The running instances are
 * read from the plan in force; segments of other policies with other batches are not instances
 * and end.
 * Up: if capacity < 1.05 load, the cheapest way with room among replicating a running variant
 * and upgrading within an architecture; if none has room, any variant. An application also
 * starts so. A replaced instance ends when the new ones are placed.
 * Down: one instance less, or one exchanged for a cheaper one, whichever saves more, if 1.05
 * load remains and this was possible for as many slots in a row as the variant takes to load.
 * Without a state (a single plan) nothing is scaled down.
 * exact=1: the integer program is solved for each application in the order of names, and takes
 * effect at once in both directions. It needs a solver.
 *
 * Decided here, where the paper is silent.
 * - If no way covers the need, each way is used as far as there is room. If the fleet has no
 *   room for 1.05 load, the load suffices. If the running instances leave no room for an
 *   application, all are placed anew. If the problem has interference, an instance with
 *   neighbours counts 1 / 1.2 of its throughput, and no instance is placed where one would be
 *   slower than that: none becomes Interfered.
 * - Profiles have no load times: a load takes start + bytes / bw.
 *
 * Parameters: lambda=0.1 (1/s, weight of loading in the cost), slot=1 (s), start=1 (s, to start
 * an instance), bw=8e9 (bytes/s, loading), exact=0. effort: nodes of the integer program (2000).
 * Complexity: O(variants * (running variants + 1)) ways for each application, O(instances) to
 * place each. */
#include "scheduler/policies/infaas_int.h"
#include "scheduler/policies/policies_int.h"

#include "base/hash.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

static const double slack = 1e-9;

enum { MEMORY_MAX = 4096, NODES = 2000, WAYS_TRIED_MAX = 256, ROUNDS_MAX = 256 };

/* What the policy remembers between calls: the number of slots in a row in which an application
 * could have been scaled down. Applications that do not fit into the table are never scaled
 * down. */
typedef struct waiting {
    uint64_t name;
    uint32_t slots;
} waiting;

typedef struct memory {
    double now_s;
    uint32_t n;
    bool called;
    waiting at[MEMORY_MAX];
} memory;

typedef struct task {
    const char *name;
    const weft_set_app *app; /* NULL: a model with a rate of its own */
    uint32_t demand;         /* the model, or the first variant of the app; for messages */
    double rate_per_s;
    weft_infaas_task in;
    weft_infaas_variant *variant;
    const weft_option **option; /* by variant */
    uint32_t slots;             /* for which scaling down has been possible */
    uint32_t *exchange;         /* by variant: instances that replace larger ones */
} task;

/* A slice of the builder, which is an instance of a variant of a task. */
typedef struct instance {
    uint32_t task, variant;
    bool gone;
} instance;

typedef struct run {
    weft_builder *builder;
    weft_arena *arena;
    const weft_problem *problem;
    const weft_demand_index *index;
    double lambda, slot_s, start_s, bytes_per_s;
    bool exact;
    uint32_t nodes;
    task *list;
    uint32_t n;
    WEFT_VEC(instance) instances; /* by slice of the builder */
} run;

/* -- Applications ----------------------------------------------------------------------------- */

static int compare_tasks(const void *a, const void *b)
{
    const task *p = a, *q = b;
    int order = strcmp(p->name, q->name);
    return order ? order : (p->app != NULL) - (q->app != NULL);
}

/* Requests per second that an instance is assumed to carry. */
static double counted_on(const run *r, const weft_option *o)
{
    bool slower = weft_interference__any(&r->problem->rules.interference) &&
                  weft_builder__has_neighbours(&o->spec);
    return slower ? o->peak_per_s / weft_infaas_interfered : o->peak_per_s;
}

/* Lists the option with the highest throughput for each shape. */
static void list_variants(run *r, task *t, uint32_t demand, uint32_t arch)
{
    const weft_option_table *table = &r->builder->table;
    for (uint32_t c = 0; c < table->n_choice[demand]; c++) {
        const weft_choice *choice = &table->choice[demand][c];
        const weft_option *best = NULL;
        for (uint32_t i = 0; i < choice->n; i++) {
            const weft_option *o = &table->option[demand][choice->first + i];
            if (!best || o->peak_per_s > best->peak_per_s * (1 + slack))
                best = o;
        }
        if (!best)
            continue;
        uint32_t v = t->in.n++;
        t->option[v] = best;
        t->variant[v] =
            (weft_infaas_variant){.arch = arch,
                                  .row = (uint32_t)(best->row - r->builder->fleet->device),
                                  .weight = best->spec.weight,
                                  .cost = best->cost,
                                  .peak_per_s = counted_on(r, best),
                                  .load_s = r->start_s + (double)best->mem_bytes / r->bytes_per_s};
    }
}

static void describe(run *r, task *t)
{
    const weft_set_app *app = t->app;
    size_t n = 0, n_model = app ? app->n_variant : 1;
    for (size_t i = 0; i < n_model; i++) {
        uint32_t d = app ? weft_demands__find(r->index, app->variant[i].model) : t->demand;
        n += r->builder->table.n_choice[d];
    }
    t->variant = weft_arena_array(r->arena, n, sizeof *t->variant);
    t->option = weft_arena_array(r->arena, n, sizeof *t->option);
    t->exchange = weft_arena_array(r->arena, n, sizeof *t->exchange);
    t->in = (weft_infaas_task){.load_per_s = t->rate_per_s,
                               .lambda = r->lambda,
                               .variant = t->variant,
                               .n_row = (uint32_t)r->builder->fleet->n_device};
    if (!app) {
        list_variants(r, t, t->demand, 0);
        return;
    }
    /* models by name, in whatever order the app has them */
    uint32_t *demand = weft_arena_array(r->arena, n_model, sizeof *demand);
    uint32_t n_demand = 0;
    for (size_t i = 0; i < n_model; i++) {
        uint32_t d = weft_demands__find(r->index, app->variant[i].model), at = n_demand;
        if (app->variant[i].accuracy < app->accuracy)
            continue;
        for (; at > 0 && strcmp(r->builder->demands->at[demand[at - 1]].model,
                                r->builder->demands->at[d].model) > 0;
             at--)
            demand[at] = demand[at - 1];
        demand[at] = d;
        n_demand++;
    }
    for (uint32_t i = 0; i < n_demand; i++)
        list_variants(r, t, demand[i], i);
    t->demand = n_demand > 0 ? demand[0] : t->demand;
}

static weft_err list_tasks(run *r, weft_diag *diag)
{
    const weft_problem *problem = r->problem;
    const uint32_t *app_of;
    WEFT_TRY(weft_apps__index(problem, r->arena, diag, &app_of));
    r->list = weft_arena_array(r->arena, problem->demands->n + problem->n_app, sizeof *r->list);
    for (uint32_t d = 0; d < problem->demands->n; d++) {
        const weft_demand *at = &problem->demands->at[d];
        if (!app_of[d] || at->rate_per_s > 0)
            r->list[r->n++] = (task){.name = at->model, .demand = d, .rate_per_s = at->rate_per_s};
    }
    for (size_t a = 0; a < problem->n_app; a++) {
        const weft_set_app *app = &problem->app[a];
        if (weft_app__is_asked(app))
            r->list[r->n++] = (task){.name = app->name,
                                     .app = app,
                                     .demand = weft_demands__find(r->index, app->variant[0].model),
                                     .rate_per_s = app->rate_per_s};
    }
    if (r->n > 0)
        qsort(r->list, r->n, sizeof *r->list, compare_tasks);
    for (uint32_t i = 0; i < r->n; i++)
        describe(r, &r->list[i]);
    return WEFT_ERR_OK;
}

/* -- What runs -------------------------------------------------------------------------------- */

static uint32_t find_variant(const task *t, const weft_option *o)
{
    for (uint32_t v = 0; v < t->in.n; v++)
        if (t->option[v] == o)
            return v;
    return NONE;
}

/* Finds task and variant of an option. A model that has a rate and is a variant of an app belongs
 * to two tasks with the same options: the later task gets the instances that the first one does not
 * need. */
static bool find_owner(run *r, const weft_option *o, uint32_t demand, instance *out)
{
    bool found = false;
    for (uint32_t i = 0; i < r->n; i++) {
        task *t = &r->list[i];
        uint32_t v = t->app || t->demand == demand ? find_variant(t, o) : NONE;
        if (v == NONE)
            continue;
        *out = (instance){.task = i, .variant = v};
        found = true;
        if (weft_infaas__need(&t->in) > 0)
            break;
    }
    return found;
}

/* The instances of the plan in force, each with the rate that it is assumed to carry. */
static weft_solution read_running(run *r)
{
    const weft_plan *plan = r->problem->previous;
    weft_solution list = {.at = weft_arena_array(r->arena, plan->n, sizeof *list.at)};
    const uint32_t *order = weft_plan__order(plan, r->arena);
    const weft_placement *last = NULL;
    for (size_t i = 0; i < plan->n; i++) {
        const weft_placement *p = &plan->at[order[i]];
        uint32_t demand = weft_demands__find(r->index, p->model);
        const weft_option *o = NULL;
        bool shared = last && last->device == p->device && last->slice_id == p->slice_id;
        last = p;
        if (demand != NONE && !shared)
            o = weft_option_table__placed(&r->builder->table, demand, p);
        if (!o)
            continue;
        list.at[list.n++] = (weft_segment){.device = p->device,
                                           .slice_id = p->slice_id,
                                           .demand = demand,
                                           .start = p->mig_start,
                                           .option = o,
                                           .rate_per_s = counted_on(r, o)};
    }
    return list;
}

/* -- Down ------------------------------------------------------------------------------------- */

/* Removes the last instance of a variant; false: no instance has a place. */
static bool take_last(run *r, const weft_solution *list, instance *own, uint32_t task_index,
                      uint32_t variant)
{
    for (uint32_t i = list->n; i-- > 0;)
        if (!own[i].gone && own[i].task == task_index && own[i].variant == variant) {
            own[i].gone = true;
            r->list[task_index].variant[variant].running--;
            return true;
        }
    return false;
}

/* Scales one task down, for the `slots` since the last call. */
static void scale_down(run *r, uint32_t index, const weft_solution *list, instance *own,
                       uint32_t slots)
{
    task *t = &r->list[index];
    weft_infaas_down down;
    t->slots = t->slots > NONE - slots ? NONE : t->slots + slots;
    for (;;) {
        if (weft_infaas__need(&t->in) > 0 || !weft_infaas__down(&t->in, &down)) {
            t->slots = 0;
            return;
        }
        uint32_t wait = weft_infaas__slots(&t->variant[down.drop], r->slot_s);
        if (t->slots < wait)
            return;
        t->slots -= wait;
        if (!take_last(r, list, own, index, down.drop))
            return;
        if (down.add == NONE)
            continue;
        /* It counts as running from now on, and is placed after all that stay. */
        t->exchange[down.add]++;
        t->variant[down.add].running++;
    }
}

/* -- Up --------------------------------------------------------------------------------------- */

/* Adds up to n instances; returns how many were placed. */
static uint32_t add_instances(run *r, uint32_t index, uint32_t variant, uint32_t n)
{
    task *t = &r->list[index];
    const weft_option *o = t->option[variant];
    uint32_t demand = NONE, placed = 0;
    /* The demand of an option is the one whose list of options it is in. */
    for (uint32_t i = 0; demand == NONE && i < (t->app ? t->app->n_variant : 1); i++) {
        uint32_t d = t->app ? weft_demands__find(r->index, t->app->variant[i].model) : t->demand;
        const weft_option *first = r->builder->option[d];
        if (o >= first && o < first + r->builder->n_option[d])
            demand = d;
    }
    for (; placed < n; placed++) {
        if (!weft_builder__add(r->builder, demand, o, t->variant[variant].peak_per_s, true))
            break;
        instance own = {.task = index, .variant = variant};
        WEFT_VEC_PUSH(r->arena, &r->instances, own);
    }
    t->variant[variant].running += placed;
    return placed;
}

static void drop_variant(run *r, uint32_t index, uint32_t variant)
{
    for (uint32_t i = 0; i < r->instances.len; i++)
        if (r->instances.at[i].task == index && r->instances.at[i].variant == variant)
            r->instances.at[i].gone = true;
    r->list[index].variant[variant].running = 0;
}

/* Takes one way, completely or not at all. `part`: as many instances as have a place, at least
 * one. */
static bool try_way(run *r, uint32_t index, const weft_infaas_up *way, bool part)
{
    uint32_t mark = weft_builder__mark(r->builder), n_instance = r->instances.len;
    uint32_t placed = add_instances(r, index, way->add, way->n);
    if (placed == way->n || (part && placed > 0)) {
        if (way->drop != NONE && placed == way->n)
            drop_variant(r, index, way->drop);
        return true;
    }
    weft_builder__undo(r->builder, mark);
    r->instances.len = n_instance;
    r->list[index].variant[way->add].running -= placed;
    return false;
}

/* Takes the cheapest way with room; false: no way has room. */
static bool scale_up_once(run *r, uint32_t index)
{
    task *t = &r->list[index];
    uint32_t kinds = 0;
    for (uint32_t v = 0; v < t->in.n; v++)
        kinds += t->variant[v].running > 0;
    uint32_t cap = t->in.n * (kinds + 1);
    weft_infaas_up *way = weft_arena_array(r->arena, cap, sizeof *way);
    for (int step = 0; step < 3; step++) {
        uint32_t n = weft_infaas__ups(&t->in, step > 0, way, cap);
        for (uint32_t i = 0; i < n && i < WAYS_TRIED_MAX; i++)
            if ((step < 2 || way[i].drop == NONE) && try_way(r, index, &way[i], step == 2))
                return true;
    }
    return false;
}

static bool is_running(const task *t)
{
    for (uint32_t v = 0; v < t->in.n; v++)
        if (t->variant[v].running > 0)
            return true;
    return false;
}

static bool scale_up(run *r, uint32_t index)
{
    task *t = &r->list[index];
    for (uint32_t v = 0; v < t->in.n; v++) {
        uint32_t n = t->exchange[v];
        t->exchange[v] = 0;
        t->variant[v].running -= n;
        (void)add_instances(r, index, v, n);
    }
    for (int round = 0; round < ROUNDS_MAX; round++)
        if ((is_running(t) && !(weft_infaas__need(&t->in) > 0)) || !scale_up_once(r, index))
            break;
    return is_running(t) && weft_infaas__capacity(&t->in) >= t->rate_per_s * (1 - slack);
}

/* -- The program ------------------------------------------------------------------------------ */

/* Applies the solution of the integer program for one task. What finds no room is left to scaling
 * up. */
static void solve_task(run *r, uint32_t index)
{
    task *t = &r->list[index];
    uint32_t n_row = t->in.n_row;
    double *free = weft_arena_array(r->arena, n_row, sizeof *free);
    uint32_t *count = weft_arena_array(r->arena, t->in.n, sizeof *count);
    for (uint32_t i = 0; i < n_row; i++)
        free[i] = r->builder->fleet->device[i].count;
    for (uint32_t i = 0; i < r->instances.len; i++) {
        const instance *at = &r->instances.at[i];
        const weft_infaas_variant *v = &r->list[at->task].variant[at->variant];
        if (!at->gone)
            free[v->row] -= v->weight;
    }
    t->in.free = free;
    if (t->in.n == 0 || !(t->rate_per_s > 0) ||
        !weft_infaas__solve(&t->in, r->problem->solver, r->arena, r->nodes, count))
        return;
    uint32_t missing = 0;
    for (uint32_t v = 0; v < t->in.n; v++)
        if (count[v] > t->variant[v].running) {
            uint32_t more = count[v] - t->variant[v].running;
            missing += more - add_instances(r, index, v, more);
        }
    /* Old instances end only if all new ones have a place. */
    for (uint32_t i = r->instances.len; i-- > 0 && missing == 0;) {
        instance *at = &r->instances.at[i];
        if (at->gone || at->task != index || t->variant[at->variant].running <= count[at->variant])
            continue;
        at->gone = true;
        t->variant[at->variant].running--;
    }
}

/* -- The policy ------------------------------------------------------------------------------- */

/* Spreads the rates over the instances in proportion to what they are assumed to carry, and removes
 * those that end. */
static bool settle(run *r)
{
    uint32_t gone = 0, kept = 0;
    for (uint32_t i = 0; i < r->instances.len; i++) {
        const instance *at = &r->instances.at[i];
        const task *t = &r->list[at->task];
        double capacity = weft_infaas__capacity(&t->in);
        double part = t->variant[at->variant].peak_per_s * fmin(1, t->rate_per_s / capacity);
        r->builder->slices.at[i].members.at[0].rate_per_s = at->gone ? -1 : part;
        gone += at->gone;
    }
    if (gone == 0)
        return true;
    weft_solution list = weft_solution__list(r->builder);
    for (uint32_t i = 0; i < list.n; i++)
        if (list.at[i].rate_per_s >= 0)
            list.at[kept++] = list.at[i];
    list.n = kept;
    return weft_solution__put(r->builder, &list);
}

/* Slots since the last call, at least one. */
static uint32_t slots_since(const run *r, const memory *m)
{
    double slots = m->called ? (r->problem->now_s - m->now_s) / r->slot_s : 1;
    return slots >= 1 ? (uint32_t)fmin(floor(slots + slack), 1e6) : 1;
}

/* Plans from the running instances, or from none. NONE: done; else the task that has no room. */
static uint32_t plan_all(run *r, const memory *m, bool from_running)
{
    weft_solution list = {0};
    instance *own = NULL;
    weft_builder__undo(r->builder, 0);
    r->instances.len = 0;
    for (uint32_t i = 0; i < r->n; i++)
        for (uint32_t v = 0; v < r->list[i].in.n; v++)
            r->list[i].variant[v].running = r->list[i].exchange[v] = 0;
    if (from_running) {
        uint32_t kept = 0;
        weft_solution all = read_running(r);
        own = weft_arena_array(r->arena, all.n, sizeof *own);
        for (uint32_t i = 0; i < all.n; i++)
            if (find_owner(r, all.at[i].option, all.at[i].demand, &own[kept])) {
                r->list[own[kept].task].variant[own[kept].variant].running++;
                all.at[kept++] = all.at[i];
            }
        all.n = kept;
        for (uint32_t i = 0; i < r->n && !r->exact; i++)
            scale_down(r, i, &all, own, slots_since(r, m));
        list.at = weft_arena_array(r->arena, all.n, sizeof *list.at);
        for (uint32_t i = 0; i < all.n; i++)
            if (!own[i].gone) {
                WEFT_VEC_PUSH(r->arena, &r->instances, own[i]);
                list.at[list.n++] = all.at[i];
            }
    }
    if (list.n > 0 && !weft_solution__put(r->builder, &list))
        return 0;
    for (uint32_t i = 0; i < r->n; i++) {
        if (r->exact)
            solve_task(r, i);
        if (!scale_up(r, i) && r->problem->goal != WEFT_GOAL_GOODPUT)
            return i;
    }
    return settle(r) ? NONE : 0;
}

static weft_err read_options(const weft_problem *problem, weft_diag *diag, run *r)
{
    r->lambda = weft_parameter__number(problem, "lambda", 0.1);
    r->slot_s = weft_parameter__number(problem, "slot", 1);
    r->start_s = weft_parameter__number(problem, "start", 1);
    r->bytes_per_s = weft_parameter__number(problem, "bw", 8e9);
    r->exact = weft_parameter__number(problem, "exact", 0) > 0;
    if (!(r->lambda >= 0 && r->slot_s > 0 && r->start_s >= 0 && r->bytes_per_s > 0) ||
        !isfinite(r->lambda + r->slot_s + r->start_s))
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                               "infaas: lambda and start are numbers from 0, slot and bw above 0");
    if (r->exact && !problem->solver)
        return weft_diag_error(diag, WEFT_ERR_UNSUP, (weft_where){.item = "exact"},
                               "infaas: exact=1 needs a solver, and this program has none");
    r->nodes = problem->effort ? (uint32_t)fmin((double)problem->effort, 1e8) : NODES;
    return WEFT_ERR_OK;
}

static void recall(run *r, const memory *m)
{
    for (uint32_t i = 0, k = 0; i < r->n; i++) {
        uint64_t name = weft_hash64(r->list[i].name, strlen(r->list[i].name), 0);
        /* Both lists are in the order of names, unless applications came or went: then the search
         * starts from the beginning. */
        for (uint32_t tries = 0; tries < m->n; tries++, k++)
            if (m->at[k % m->n].name == name) {
                r->list[i].slots = m->at[k++ % m->n].slots;
                break;
            }
    }
}

static void remember(const run *r, memory *m)
{
    m->called = true;
    m->now_s = r->problem->now_s;
    m->n = 0;
    for (uint32_t i = 0; i < r->n && m->n < MEMORY_MAX; i++)
        if (r->list[i].slots > 0)
            m->at[m->n++] = (waiting){weft_hash64(r->list[i].name, strlen(r->list[i].name), 0),
                                      r->list[i].slots};
}

static weft_err place_infaas(void *state, const weft_problem *problem, weft_arena *arena,
                             weft_diag *diag, weft_plan *out)
{
    weft_builder builder;
    memory *m = state;
    run r = {.builder = &builder, .arena = arena, .problem = problem};
    WEFT_TRY(read_options(problem, diag, &r));
    WEFT_TRY(weft_builder__init(&builder, problem, arena, diag));
    weft_demand_index index = weft_demands__index(problem->demands, arena);
    r.index = &index;
    WEFT_TRY(list_tasks(&r, diag));
    bool drop = problem->goal == WEFT_GOAL_GOODPUT;
    for (uint32_t i = 0; i < r.n && !drop; i++)
        if (r.list[i].in.n == 0)
            return weft_diag_error(
                diag, WEFT_ERR_INFEASIBLE,
                (weft_where){.item = builder.demands->at[r.list[i].demand].model},
                "no eligible variant of '%s' meets the SLO on a slice that it was profiled on; add "
                "such a profile, allow more slices, or relax the SLO or the accuracy",
                r.list[i].name);
    recall(&r, m);
    uint32_t failed = NONE;
    bool has_running = problem->previous && problem->previous->n > 0;
    if (has_running)
        failed = plan_all(&r, m, true);
    if (!has_running || failed != NONE)
        failed = plan_all(&r, m, false);
    if (failed != NONE) {
        const task *t = &r.list[failed];
        return weft_builder__full(&builder, t->demand,
                                  t->rate_per_s - weft_infaas__capacity(&t->in));
    }
    remember(&r, m);
    weft_builder__finish(&builder, "infaas", out);
    return WEFT_ERR_OK;
}

static const char *const parameters[] = {"lambda", "slot", "start", "bw", "exact", NULL};

const weft_policy weft_policy_infaas = {
    .name = "infaas",
    .brief = "variants and replicas, scaled in steps from the running ones",
    .cite = "INFaaS, ATC'21",
    .parameters = parameters,
    .splits =
        WEFT_SPLIT_WHOLE | WEFT_SPLIT_MIG | WEFT_SPLIT_MPS | WEFT_SPLIT_CORES | WEFT_SPLIT_VARIANTS,
    .state_size = sizeof(memory),
    .place = place_infaas,
};
