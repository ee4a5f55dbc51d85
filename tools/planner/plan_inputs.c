/* Inputs of `weft plan`: the set with its profiles, the fleet, the plan in force, what-if
 * changes, and plans read from files. */
#include "tools/planner/cmd_plan.h"

#include "estimator/estimator.h"
#include "frontend/frontend.h"
#include "tools/profile/calibration_file.h"
#include "tools/profile/machine_calibration.h"

#include "base/file.h"
#include "base/nearest.h"
#include "base/num.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLAN_BYTES_MAX = 256 << 20, COUNT_MAX = 65536 };

/* -- Policies --------------------------------------------------------------------------------- */

static const char *policy_at(size_t i, const void *user)
{
    (void)user;
    return weft_policy_at(i) ? weft_policy_at(i)->name : NULL;
}

int weft_tool_no_policy(const weft_verb *verb, const char *name)
{
    return weft_tool_usage(verb, "no policy '%s'%s; `weft list policies` names them", name,
                           weft_tool_hint(weft_nearest(name, policy_at, NULL)));
}

/* -- Interference ----------------------------------------------------------------------------- */

int weft_tool_take_interference(void *at, const weft_verb *verb, char *arg)
{
    weft_tool_interference *given = at;
    weft_interference *out = &given->coeff;
    char copy[256], *rest = copy;
    size_t n = 0;
    bool ok = strlen(arg) < sizeof copy;
    *out = (weft_interference){.mean = strcmp(arg, "mean") == 0};
    out->over_time = out->mean || strcmp(arg, "use") == 0;
    given->given = true;
    if (out->over_time || strcmp(arg, "none") == 0)
        return 0;
    snprintf(copy, sizeof copy, "%s", arg);
    for (char *field; ok && (field = strsep(&rest, ",")); n++)
        ok = n < 5 && weft_parse_f64(field, &out->c[n]) && fabs(out->c[n]) <= WEFT_INTERFERENCE_MAX;
    return ok && n == 5
               ? 0
               : weft_tool_usage(
                     verb, "--interference takes five numbers, 'use', 'mean' or 'none', not '%s'",
                     arg);
}

/* -- Inputs ----------------------------------------------------------------------------------- */

/* Adds peak bandwidths from the estimator's tables, and prices where the fleet says none. */
static void complete_rows(weft_fleet *fleet, const weft_tool_prices *prices, weft_arena *arena)
{
    weft_fleet_device *row = weft_arena_array(arena, fleet->n_device, sizeof *row);
    for (size_t i = 0; i < fleet->n_device; i++) {
        const weft_gpu *gpu = weft_gpu_find(fleet->device[i].type);
        row[i] = fleet->device[i];
        if (gpu)
            row[i].bandwidth_gbps = gpu->bandwidth_gbps;
        if (row[i].price_per_hour == 0)
            row[i].price_per_hour =
                weft_fleet_listed_price(&row[i], weft_tool_price_of(prices, row[i].type));
    }
    fleet->device = row;
}

weft_err weft_tool_fleet_load(const char *path, const weft_tool_prices *prices, weft_arena *arena,
                              weft_diag *diag, weft_fleet *out)
{
    WEFT_TRY(weft_fleet_load(path, arena, diag, out));
    complete_rows(out, prices, arena);
    return WEFT_ERR_OK;
}

/* The rows of the fleet and those that what-if changes add: profiles are estimated for all of
 * them. */
static weft_fleet rows_with_changes(const weft_plan_options *o, const weft_fleet *fleet,
                                    weft_arena *arena)
{
    weft_fleet_device *row = weft_arena_array(arena, fleet->n_device + o->n_change, sizeof *row);
    weft_fleet all = {.file = fleet->file, .device = row};
    for (; all.n_device < fleet->n_device; all.n_device++)
        row[all.n_device] = fleet->device[all.n_device];
    for (size_t i = 0; i < o->n_change; i++) {
        const char *equal = strchr(o->change[i].text, '=');
        if (o->change[i].what != WEFT_WHATIF_GPU || !equal)
            continue;
        size_t len = (size_t)(equal - o->change[i].text);
        const weft_device_type *type =
            weft_device_type_named(weft_arena_strndup(arena, o->change[i].text, len));
        bool known = !type || type->sms == 0;
        for (size_t k = 0; k < all.n_device && !known; k++)
            known = strcmp(row[k].type, type->name) == 0;
        if (!known)
            row[all.n_device++] = (weft_fleet_device){
                .type = type->name, .mig = type->mig_slots > 0, .mps = !type->is_foreign};
    }
    return all;
}

/* Sets the arrivals of the rules to those of a trace. */
static weft_err take_burst(const char *trace, weft_problem *problem, weft_arena *arena,
                           weft_diag *diag)
{
    weft_rules *rules = &problem->rules;
    double quantile = rules->quantile > 0 ? rules->quantile : 0.99;
    const char *model = NULL;
    WEFT_TRY(weft_trace_burst(trace, problem, quantile, arena, diag, &model, &rules->burst));
    rules->arrivals = WEFT_ARRIVE_BURSTY;
    weft_diag_note(diag, (weft_where){.file = trace, .item = model},
                   "peak rate over mean rate: %.3g", rules->burst);
    return WEFT_ERR_OK;
}

/* Takes the calibration that the options name, else, for fleets with CPUs, that of this machine. */
static weft_err take_calibration(weft_plan_options *o, const weft_fleet *fleet, weft_arena *arena,
                                 weft_diag *diag)
{
    weft_calibration *fit = weft_arena_array(arena, 1, sizeof *fit);
    const char *path = o->calibration;
    bool has_cpu = false;
    for (size_t i = 0; i < fleet->n_device; i++)
        has_cpu = has_cpu || weft_device_type_is_cpu(fleet->device[i].type);
    if (path && strcmp(path, "none") == 0)
        return WEFT_ERR_OK;
    if (path)
        WEFT_TRY(weft_tool_calibration_load(path, diag, fit));
    else if (has_cpu)
        WEFT_TRY(weft_tool_machine_calibration(arena, diag, fit, &path));
    o->profile.calibration = path ? fit : NULL;
    return WEFT_ERR_OK;
}

void weft_tool_plan_beside(weft_plan_inputs *in, const weft_interference *coeff, weft_arena *arena)
{
    size_t n = in->demands.n, n_family = in->problem.n_family;
    weft_demand *demand = weft_arena_array(arena, n + 1, sizeof *demand);
    weft_family *family = weft_arena_array(arena, n_family + 1, sizeof *family);
    for (size_t i = 0; i < n; i++) {
        demand[i] = in->demands.at[i];
        demand[i].profile = weft_interference_times(&demand[i].profile, coeff, arena);
    }
    for (size_t i = 0; i < n_family; i++) {
        family[i] = in->problem.family[i];
        family[i].profile = weft_interference_times(&family[i].profile, coeff, arena);
    }
    in->demands.at = demand;
    in->problem.family = family;
}

weft_err weft_tool_plan_inputs(weft_plan_options *o, weft_arena *arena, weft_diag *diag,
                               weft_plan_inputs *in)
{
    const weft_slice *slice = NULL;
    size_t n_slice = 0;
    WEFT_TRY(weft_set_load(o->set, arena, diag, &in->set));
    WEFT_TRY(weft_tool_prices_load(o->prices, arena, diag, &in->prices));
    WEFT_TRY(weft_tool_fleet_load(o->fleet, &in->prices, arena, diag, &in->fleet));
    WEFT_TRY(take_calibration(o, &in->fleet, arena, diag));
    weft_fleet all = rows_with_changes(o, &in->fleet, arena);
    WEFT_TRY(weft_tool_fleet_slices(&all, arena, diag, &slice, &n_slice));
    const weft_tool_profile_sources from = {.bundle = o->bundle,
                                            .pipeline = &o->pipeline,
                                            .slice = slice,
                                            .n_slice = n_slice,
                                            .options = &o->profile};
    weft_demand *demand = weft_arena_array(arena, in->set.n_model, sizeof *demand);
    weft_profile *profile = weft_arena_array(arena, in->set.n_model, sizeof *profile);
    WEFT_TRY(weft_tool_set_profiles(&in->set, &from, arena, diag, profile));
    for (size_t i = 0; i < in->set.n_model; i++)
        demand[i] = weft_demand_of(&in->set.model[i], profile[i]);
    weft_tool_families families = {0};
    WEFT_TRY(o->bundle ? weft_tool_bundle_families(&in->set, o->bundle, arena, diag, &families)
                       : weft_tool_set_families(&in->set, arena, diag, &families));
    in->demands = (weft_demands){demand, in->set.n_model};
    in->problem = (weft_problem){.demands = &in->demands,
                                 .fleet = &in->fleet,
                                 .rules = o->rules,
                                 .goal = o->goal,
                                 .app = in->set.app,
                                 .n_app = in->set.n_app,
                                 .family = families.at,
                                 .n_family = families.len,
                                 .carbon_g_per_kwh = o->carbon_g_per_kwh,
                                 .seed = o->seed,
                                 .effort = o->effort,
                                 .options = o->policy_options,
                                 .solver = &weft_solver_cbc};
    if (o->interference.given)
        in->problem.rules.interference = o->interference.coeff;
    weft_tool_plan_beside(in, &in->problem.rules.interference, arena);
    if (o->trace)
        WEFT_TRY(take_burst(o->trace, &in->problem, arena, diag));
    if (!o->previous)
        return WEFT_ERR_OK;
    WEFT_TRY(weft_tool_plan_read(o->previous, o->layout, &in->problem, arena, diag, &in->previous));
    in->problem.previous = &in->previous;
    return WEFT_ERR_OK;
}

/* -- What-if changes -------------------------------------------------------------------------- */

static weft_err refuse(weft_diag *diag, const weft_plan_change *c, const char *why)
{
    static const char *const name[] = {"--rate", "--slo", "--gpu"};
    return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0}, "%s %s: %s", name[c->what],
                           c->text, why);
}

/* Reads a change: "2x" multiplies `old`, other texts go to the parser of the unit. */
static bool parse_change(const char *text, double old, bool (*parse)(const char *, double *),
                         double *out)
{
    char factor[64];
    size_t len = strlen(text);
    double x;
    if (len < 2 || text[len - 1] != 'x')
        return parse(text, out);
    if (len >= sizeof factor)
        return false;
    memcpy(factor, text, len - 1);
    factor[len - 1] = 0;
    if (!weft_parse_f64(factor, &x) || !isfinite(x) || x < 0)
        return false;
    *out = old * x;
    return isfinite(*out);
}

static weft_err change_model(const weft_plan_change *c, const char *name, const char *value,
                             weft_demand *demand, size_t n, weft_diag *diag)
{
    const weft_demands all = {demand, n};
    char known[WEFT_NEAREST_BYTES_MAX], why[sizeof known + 32];
    for (size_t i = 0; i < n; i++) {
        if (strcmp(demand[i].model, name) != 0)
            continue;
        if (c->what == WEFT_WHATIF_RATE)
            return parse_change(value, demand[i].rate_per_s, weft_parse_rate_per_s,
                                &demand[i].rate_per_s)
                       ? WEFT_ERR_OK
                       : refuse(diag, c, "must be a factor such as 2x or a rate such as 500/s");
        return parse_change(value, demand[i].slo_us, weft_parse_duration_us, &demand[i].slo_us)
                   ? WEFT_ERR_OK
                   : refuse(diag, c, "must be a factor such as 2x or a time such as 50ms");
    }
    snprintf(why, sizeof why, "the set has no such model%s",
             weft_demands_say_known(&all, name, known));
    return refuse(diag, c, why);
}

/* Changes the count of a row, or adds a row of a new type that may be divided in every way. */
static weft_err change_fleet(const weft_plan_change *c, const char *name, const char *value,
                             weft_fleet_device *row, size_t *n, weft_diag *diag)
{
    const weft_device_type *type = weft_device_type_named(name);
    int64_t count;
    if (!type)
        return refuse(diag, c, "is no device type; `weft list gpus` names them");
    if (!weft_parse_i64(value, &count) || count < 0 || count > COUNT_MAX)
        return refuse(diag, c, "must be a count from 0 to 65536");
    for (size_t i = 0; i < *n; i++)
        if (strcmp(row[i].type, type->name) == 0) {
            row[i].count = (uint32_t)count;
            return WEFT_ERR_OK;
        }
    if (type->sms == 0)
        return refuse(diag, c, "a cpu cannot be added without its cores; put it in the fleet file");
    row[(*n)++] = (weft_fleet_device){.type = type->name,
                                      .count = (uint32_t)count,
                                      .mig = type->mig_slots > 0,
                                      .mps = !type->is_foreign};
    return WEFT_ERR_OK;
}

weft_err weft_tool_plan_changed(const weft_plan_options *o, const weft_plan_inputs *in,
                                weft_arena *arena, weft_diag *diag, weft_plan_inputs *out)
{
    weft_demand *demand = weft_arena_array(arena, in->demands.n, sizeof *demand);
    weft_fleet_device *row = weft_arena_array(arena, in->fleet.n_device + o->n_change, sizeof *row),
                      *kept = row;
    size_t n_row = in->fleet.n_device, n_kept = 0;
    if (in->demands.n > 0)
        memcpy(demand, in->demands.at, in->demands.n * sizeof *demand);
    memcpy(row, in->fleet.device, n_row * sizeof *row);
    for (size_t i = 0; i < o->n_change; i++) {
        const weft_plan_change *c = &o->change[i];
        const char *equal = strchr(c->text, '=');
        if (!equal || equal == c->text)
            return refuse(diag, c, "must be NAME=VALUE");
        const char *name = weft_arena_strndup(arena, c->text, (size_t)(equal - c->text));
        if (c->what == WEFT_WHATIF_GPU)
            WEFT_TRY(change_fleet(c, name, equal + 1, row, &n_row, diag));
        else
            WEFT_TRY(change_model(c, name, equal + 1, demand, in->demands.n, diag));
    }
    for (size_t i = 0; i < n_row; i++) /* rows without devices are dropped */
        if (row[i].count > 0)
            kept[n_kept++] = row[i];
    *out = *in;
    out->demands = (weft_demands){demand, in->demands.n};
    out->fleet = (weft_fleet){.file = in->fleet.file, .device = kept, .n_device = n_kept};
    complete_rows(&out->fleet, &in->prices, arena);
    out->problem.demands = &out->demands;
    out->problem.fleet = &out->fleet;
    return WEFT_ERR_OK;
}

/* -- Plans ------------------------------------------------------------------------------------ */

weft_err weft_tool_plan_read(const char *path, const char *layout, const weft_problem *problem,
                             weft_arena *arena, weft_diag *diag, weft_plan *out)
{
    char *text = NULL;
    size_t len = 0;
    WEFT_TRY(weft_file_read(path, PLAN_BYTES_MAX, diag, &text, &len));
    bool is_map = layout ? strcmp(layout, "parvagpu") == 0 : weft_parvagpu_detect(text, len);
    weft_err err = is_map ? weft_plan_from_parvagpu(text, len, path, problem, arena, diag, out)
                          : weft_plan_from_json(text, len, path, arena, diag, out);
    free(text);
    return err;
}

weft_err weft_tool_plan_decide(const weft_policy *policy, const weft_problem *problem,
                               weft_arena *arena, weft_diag *diag, weft_plan *out)
{
    weft_plan plan = {0};
    double start_ms = weft_tool_now_ms();
    weft_tool_progress("planning, policy %s", policy->name);
    weft_err err = weft_plan_decide(policy, NULL, problem, arena, diag, &plan);
    weft_tool_progress(NULL);
    WEFT_TRY(err);
    plan.decision_ms = weft_tool_now_ms() - start_ms;
    if (weft_plan_check(&plan, problem, diag) != WEFT_ERR_OK)
        return weft_diag_error(diag, WEFT_ERR_BUG, (weft_where){0},
                               "policy %s made a plan that the checker refuses", policy->name);
    *out = plan;
    return WEFT_ERR_OK;
}
