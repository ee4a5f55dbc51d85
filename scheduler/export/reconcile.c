/* Reconciles what runs with a new plan: units on places (reconcile_units.c), an order
 * (reconcile_order.c), commands (reconcile_commands.c). */
#include "scheduler/export/reconcile_int.h"
#include "scheduler/plan/plan.h"

#include <stdlib.h>
#include <string.h>

static weft_err prepare(const weft_plan *plan, const weft_export_options *options,
                        weft_arena *arena, weft_diag *diag, export_ctx **out)
{
    export_ctx *ctx = weft_arena_array(arena, 1, sizeof *ctx);
    *ctx = (export_ctx){.plan = plan, .o = *options, .arena = arena, .diag = diag};
    ctx->o.some_nodes = true;
    WEFT_TRY(weft_export__prepare(ctx));
    *out = ctx;
    return WEFT_ERR_OK;
}

static weft_err fill_change(change *c, const weft_plan *from, const weft_plan *to,
                            weft_placement *located, weft_reconciliation *out)
{
    WEFT_TRY(weft_change__begin(c, located, &out->n_least));
    for (uint32_t i = 0; i < c->unit.len; i++)
        out->n_kept += !c->o->roll && c->unit.at[i].stays && c->unit.at[i].state == CHANGE_RUNS;
    WEFT_TRY(weft_change__order(c));
    if (c->o->roll && !c->restarts)
        WEFT_TRY(weft_change__roll_groups(c));
    static const weft_problem none = {0};
    const weft_problem *problem = c->o->problem ? c->o->problem : &none;
    out->unit = weft_plan__unit(from, to, problem);
    out->saving =
        weft_plan__price(from, problem, out->unit) - weft_plan__price(to, problem, out->unit);
    return WEFT_ERR_OK;
}

static void add_price(const change *c, const weft_reconcile_stage *stage, weft_reconciliation *out)
{
    static const weft_problem none = {0};
    const weft_problem *problem = c->o->problem ? c->o->problem : &none;
    out->n_start += stage->n_start;
    out->n_stop += stage->n_stop;
    for (uint32_t i = 0; i < stage->n_start; i++)
        for (uint32_t k = 0; k < stage->start[i].n; k++)
            out->price += weft_plan__slice_price(c->to->plan, stage->start[i].at[k], problem,
                                                 out->unit, c->o->move_s);
}

static weft_err check_lost(const change *c)
{
    for (uint32_t i = 0; c->o->lost && i < c->to->n_worker; i++) {
        const char *node = c->to->worker[i].where.node;
        if (node && strcmp(node, c->o->lost) == 0)
            return weft_diag_error(
                c->diag, WEFT_ERR_INPUT, (weft_where){.item = c->to->worker[i].at[0]->model},
                "the new plan has it on the lost node %s; plan without that node", node);
    }
    return WEFT_ERR_OK;
}

static int find_name(const void *name, const void *at)
{
    return strcmp(name, *(const char *const *)at);
}

/* Whether the name is one of a worker, and of none that the old plan has. */
static bool is_strange(const change *c, const char *name)
{
    size_t len = strlen(c->from->o.name);
    bool is_ours = strncmp(name, c->from->o.name, len) == 0 && strncmp(name + len, "-d", 2) == 0;
    for (uint32_t i = 0; i < c->from->n_worker && is_ours; i++)
        is_ours = strcmp(c->from->worker[i].name, name) != 0;
    return is_ours;
}

/* What a change that failed halfway has begun must not run a second time; workers of another plan
 * are nothing that this one may end. */
static weft_err check_running(const change *c)
{
    size_t n = c->o->n_running;
    const char **name = weft_arena_array(c->arena, n + 1, sizeof *name);
    for (size_t i = 0; i < n; i++)
        name[i] = c->o->running[i];
    if (n > 0)
        qsort(name, n, sizeof *name, weft_str_order);
    for (uint32_t k = 0; k < c->stage.len; k++)
        for (uint32_t i = 0; i < c->stage.at[k].n_start; i++) {
            const char *starts = c->stage.at[k].start[i].name;
            if (bsearch(starts, name, n, sizeof *name, find_name))
                return weft_diag_error(c->diag, WEFT_ERR_INPUT, (weft_where){.item = starts},
                                       "runs, is not of the old plan, and would start again; end "
                                       "it, or give the plan that has it");
        }
    for (size_t i = 0; i < n; i++)
        if (is_strange(c, c->o->running[i]))
            weft_diag_warn(c->diag, (weft_where){.item = c->o->running[i]},
                           "runs, is not of the old plan, and is left alone");
    return WEFT_ERR_OK;
}

weft_err weft_reconcile(const weft_plan *from, const weft_plan *to,
                        const weft_reconcile_options *options, weft_arena *arena, weft_diag *diag,
                        weft_reconciliation *out)
{
    change c = {.o = options, .arena = arena, .diag = diag};
    weft_reconciliation r = {0};
    export_ctx *old, *new;
    weft_export_options of_old = options->how;
    of_old.demands = options->from_demands ? options->from_demands : of_old.demands;
    WEFT_TRY(prepare(from, &of_old, arena, diag, &old));
    WEFT_TRY(prepare(to, &options->how, arena, diag, &new));
    c.from = old;
    c.to = new;
    c.restarts = options->roll && !weft_change__counts(options->engine);
    uint32_t *match = weft_change__match(&c);
    c.match = match;
    const weft_plan *other = c.restarts ? NULL : weft_change__exchange(&c, match);
    if (other) {
        to = other;
        WEFT_TRY(prepare(to, &options->how, arena, diag, &new));
        c.to = new;
    }
    weft_plan *located = weft_arena_array(arena, 1, sizeof *located);
    *located = *to;
    located->at = weft_arena_array(arena, to->n + 1, sizeof *located->at);
    memcpy(located->at, to->at, to->n * sizeof *to->at);
    WEFT_TRY(check_lost(&c));
    WEFT_TRY(fill_change(&c, from, to, located->at, &r));
    WEFT_TRY(check_running(&c));
    r.plan = located;
    r.stage = c.stage.at;
    r.n_stage = c.stage.len;
    r.dip = c.dip.at;
    r.n_dip = c.dip.len;
    r.n_temporary = c.n_temporary;
    if (r.n_stage > 0)
        c.stage.at[r.n_stage - 1].plan = located;
    for (size_t i = 0; i < r.n_stage; i++)
        add_price(&c, &r.stage[i], &r);
    if (options->engine)
        WEFT_TRY(weft_change__commands(&c, &r));
    *out = r;
    return WEFT_ERR_OK;
}

weft_err weft_reconcile_without(const weft_plan *from, const weft_export_options *options,
                                const char *node, weft_arena *arena, weft_diag *diag,
                                weft_plan *out)
{
    export_ctx *ctx;
    weft_plan rest = *from;
    WEFT_TRY(prepare(from, options, arena, diag, &ctx));
    rest.n = 0;
    rest.at = weft_arena_array(arena, from->n + 1, sizeof *rest.at);
    for (uint32_t i = 0; i < ctx->n_worker; i++) {
        const export_worker *w = &ctx->worker[i];
        for (uint32_t k = 0; k < w->n && strcmp(ctx->node[w->node].name, node) != 0; k++) {
            weft_placement p = *w->at[k];
            p.where.node = ctx->node[w->node].name;
            p.where.gpu = w->gpu;
            p.where.worker = w->name;
            p.where.port = w->port;
            rest.at[rest.n++] = p;
        }
    }
    if (rest.n == 0)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = node},
                               "all that the plan has is on this node, so that nothing runs; make "
                               "a plan for the rest of the fleet and export it");
    if (rest.n == from->n)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = node},
                               "the plan has nothing on this node; its nodes begin with '%s'",
                               ctx->node[0].name);
    *out = rest;
    return WEFT_ERR_OK;
}
