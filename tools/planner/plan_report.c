/* Reports of `weft plan` as text or JSON: plans, comparisons, what-if answers, explanations. */
#include "tools/planner/cmd_plan.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void print_json(json_t *root)
{
    json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    putchar('\n');
    json_decref(root);
}

/* JSON has neither NaN nor infinities. */
static void set_number(json_t *o, const char *key, double x)
{
    json_object_set_new(o, key, isfinite(x) ? json_real(x) : json_null());
}

/* "h100 3 3g.40gb@4 #1"; returns buf. */
static const char *place_text(const weft_placement *p, char *buf, size_t size)
{
    const char *slice = p->slice[0] ? p->slice : "whole";
    if (p->mig_start >= 0)
        snprintf(buf, size, "%s %u %s@%d", p->type, p->device, slice, p->mig_start);
    else
        snprintf(buf, size, "%s %u %s", p->type, p->device, slice);
    return buf;
}

/* -- Plans ------------------------------------------------------------------------------------ */

/* " (proven)" or " (unproven, gap at most 4.0 %)"; returns buf. */
static const char *proof_text(const weft_plan *plan, char *buf, size_t size)
{
    double gap = weft_plan_gap(plan);
    if (plan->proven)
        snprintf(buf, size, " (proven)");
    else if (isfinite(gap))
        snprintf(buf, size, " (unproven, gap at most %.2g %%)", ceil(gap * 1e4) / 100);
    else
        snprintf(buf, size, " (unproven)");
    return buf;
}

enum { COST_MAX = 32 };

/* "$1.79/h"; devices without a price cost nothing in plans, which is not what they cost. */
static const char *cost_text(double per_hour, char buf[COST_MAX])
{
    if (per_hour <= 0)
        return "no known price";
    snprintf(buf, COST_MAX, "$%.2f/h", per_hour);
    return buf;
}

void weft_tool_plan_print_head(const weft_plan *plan, const weft_problem *problem,
                               weft_arena *arena)
{
    weft_plan_metrics m;
    weft_plan_measure(plan, problem, arena, &m);
    char proof[64], cost[COST_MAX];
    printf("policy %s: %u device%s, %s, at least %.0f needed%s, decided in %.2f ms\n", plan->policy,
           plan->gpus, plan->gpus == 1 ? "" : "s", cost_text(plan->cost_per_hour, cost),
           plan->lower_bound, proof_text(plan, proof, sizeof proof), plan->decision_ms);
    printf("slack %.1f %% inside slices, %.1f %% of devices unused", m.internal_slack * 100,
           m.external_fragmentation * 100);
    if (plan->power_w > 0)
        printf(", %.1f W", plan->power_w);
    if (m.carbon_g_per_h > 0)
        printf(", %.1f g CO2/h", m.carbon_g_per_h);
    putchar('\n');
}

void weft_tool_plan_print(const weft_plan *plan, const weft_problem *problem, weft_arena *arena)
{
    weft_tool_plan_print_head(plan, problem, arena);
    for (size_t i = 0; i < plan->n; i++) {
        const weft_placement *p = &plan->at[i];
        char where[128], size[32], mark[48] = "";
        if (p->source && strcmp(p->source, "measured") != 0)
            snprintf(mark, sizeof mark, "  %s +-%.0f %%", p->source, p->expected_error * 100);
        printf("  %-24s %s #%u  batch %u x %u  %.6g of %.6g/s  %.6g ms  %s%s\n", p->model,
               place_text(p, where, sizeof where), p->slice_id, p->batch, p->procs, p->rate_per_s,
               p->capacity_per_s, p->latency_us / 1e3, weft_tool_bytes(p->mem_bytes, size), mark);
    }
}

static void print_move(const weft_plan_move *move)
{
    char from[128], to[128];
    if (!move->from)
        printf("  start  %-24s %s\n", move->model, place_text(move->to, to, sizeof to));
    else if (!move->to)
        printf("  end    %-24s %s\n", move->model, place_text(move->from, from, sizeof from));
    else
        printf("  move   %-24s %s -> %s%s\n", move->model,
               place_text(move->from, from, sizeof from), place_text(move->to, to, sizeof to),
               move->from->batch != move->to->batch || move->from->procs != move->to->procs
                   ? ", other batch or processes"
                   : "");
}

void weft_tool_plan_print_moves(const weft_plan *before, const weft_plan *after,
                                const weft_fleet *fleet, weft_arena *arena)
{
    const weft_plan_move *move;
    weft_plan_course course;
    weft_control_options live = {0};
    weft_buf how = {0};
    size_t n;
    weft_control_live(&live);
    weft_plan_diff(before, after, arena, &move, &n);
    (void)weft_plan_find_changes(before, after, fleet, arena, &course);
    weft_plan_tell_course(&course, live.move_s, live.mig_s, &how);
    printf("%zu move%s\n", n, n == 1 ? "" : "s");
    if (how.at && !how.failed)
        printf("  done%s\n", how.at);
    weft_buf_finish(&how);
    for (size_t i = 0; i < n; i++)
        print_move(&move[i]);
}

void weft_tool_plan_print_check(const weft_plan *plan, const weft_diag *diag, bool legal)
{
    json_t *root = json_object(), *list = json_array();
    for (size_t i = 0; i < weft_diag_count(diag); i++) {
        const weft_message *msg = weft_diag_at(diag, i);
        size_t rule = strcspn(msg->text, ":");
        if (msg->severity != WEFT_SEV_ERROR)
            continue;
        json_t *o = json_object();
        json_object_set_new(o, "rule", json_stringn(msg->text, rule));
        json_object_set_new(o, "model", msg->item ? json_string(msg->item) : json_null());
        json_object_set_new(o, "text", json_string(msg->text));
        json_array_append_new(list, o);
    }
    json_object_set_new(root, "legal", json_boolean(legal));
    json_object_set_new(root, "gpus", json_integer(plan->gpus));
    json_object_set_new(root, "placements", json_integer((json_int_t)plan->n));
    set_number(root, "lower_bound", plan->lower_bound);
    set_number(root, "gap", weft_plan_gap(plan));
    json_object_set_new(root, "violations", list);
    print_json(root);
}

/* -- Comparing policies ----------------------------------------------------------------------- */

/* Number of models that the plan places as families. */
static json_int_t count_in_families(const weft_plan *plan)
{
    json_int_t n = 0;
    for (size_t i = 0; i < plan->n; i++) {
        const char *name = plan->at[i].model;
        size_t k = 0;
        while (k < i && strcmp(plan->at[k].model, name) != 0)
            k++;
        if (k < i || !weft_family_is_name(name))
            continue;
        for (n++; (name = strchr(name, '+')); name++)
            n++;
    }
    return n;
}

static json_t *plan_row(const weft_plan *plan, const weft_plan_metrics *m)
{
    json_t *o = json_object();
    json_object_set_new(o, "policy", json_string(plan->policy));
    json_object_set_new(o, "feasible", json_true());
    json_object_set_new(o, "gpus", json_integer(plan->gpus));
    set_number(o, "cost_per_hour", plan->cost_per_hour);
    set_number(o, "goodput_per_s", plan->goodput_per_s);
    set_number(o, "lower_bound", plan->lower_bound);
    json_object_set_new(o, "proven", json_boolean(plan->proven));
    set_number(o, "gap", m->gap);
    set_number(o, "cost_bound", m->cost_bound);
    set_number(o, "internal_slack", m->internal_slack);
    set_number(o, "external_fragmentation", m->external_fragmentation);
    json_object_set_new(o, "power_w", plan->power_w > 0 ? json_real(plan->power_w) : json_null());
    json_object_set_new(o, "carbon_g_per_h",
                        m->carbon_g_per_h > 0 ? json_real(m->carbon_g_per_h) : json_null());
    json_object_set_new(o, "placements", json_integer((json_int_t)plan->n));
    json_object_set_new(o, "in_families", json_integer(count_in_families(plan)));
    set_number(o, "decision_ms", plan->decision_ms);
    return o;
}

static json_t *refused_row(const char *policy, const char *why)
{
    json_t *o = json_object();
    json_object_set_new(o, "policy", json_string(policy));
    json_object_set_new(o, "feasible", json_false());
    json_object_set_new(o, "reason", json_string(why));
    return o;
}

static void print_head(void)
{
    printf("%-18s %7s %10s %11s %6s %6s %9s %6s %6s %10s\n", "policy", "devices", "$/h",
           "goodput/s", "slack", "unused", "W", "gap", "joint", "ms");
}

static void print_row(const weft_plan *plan, const weft_plan_metrics *m)
{
    char watts[32] = "-";
    if (plan->power_w > 0)
        snprintf(watts, sizeof watts, "%.1f", plan->power_w);
    printf("%-18s %7u %10.2f %11.6g %5.1f%% %5.1f%% %9s %5.1f%% %6lld %10.2f\n", plan->policy,
           plan->gpus, plan->cost_per_hour, plan->goodput_per_s, m->internal_slack * 100,
           m->external_fragmentation * 100, watts, m->gap * 100, (long long)count_in_families(plan),
           plan->decision_ms);
}

/* Finds the model and the reason in the messages of a policy that refused. */
static const char *refusal(const weft_diag *diag, weft_arena *arena)
{
    const weft_message *msg = diag && weft_diag_count(diag) > 0 ? weft_diag_at(diag, 0) : NULL;
    if (!msg)
        return "";
    return weft_arena_printf(arena, "%s%s%s", msg->item ? msg->item : "", msg->item ? ": " : "",
                             msg->text);
}

weft_err weft_tool_plan_compare(const weft_plan_options *o, const weft_plan_inputs *in,
                                weft_arena *arena, weft_diag *diag)
{
    json_t *rows = json_array();
    weft_err result = WEFT_ERR_INFEASIBLE;
    const weft_policy *policy;
    double bound = 0;
    if (!o->json)
        print_head();
    for (size_t i = 0; (policy = weft_policy_at(i)); i++) {
        weft_diag *own = weft_diag_create();
        weft_plan plan = {0};
        weft_plan_metrics m;
        weft_err err = weft_tool_plan_decide(policy, &in->problem, arena, own, &plan);
        plan.policy = policy->name;
        if (err == WEFT_ERR_OK) {
            result = WEFT_ERR_OK;
            weft_plan_measure(&plan, &in->problem, arena, &m);
            bound = fmax(bound, plan.lower_bound);
        }
        if (o->json)
            json_array_append_new(rows, err == WEFT_ERR_OK
                                            ? plan_row(&plan, &m)
                                            : refused_row(policy->name, refusal(own, arena)));
        else if (err == WEFT_ERR_OK)
            print_row(&plan, &m);
        else
            printf("%-18s %s: %s\n", policy->name, weft_err_name(err), refusal(own, arena));
        weft_diag_destroy(own);
    }
    if (o->json)
        print_json(rows);
    else
        json_decref(rows);
    if (!o->json && result == WEFT_ERR_OK)
        printf("at least %.0f devices are needed\n", bound);
    if (result != WEFT_ERR_OK)
        (void)weft_diag_error(diag, result, (weft_where){.file = o->set}, "no policy finds a plan");
    return result;
}

/* -- What if ---------------------------------------------------------------------------------- */

static json_t *place_json(const weft_placement *p)
{
    if (!p)
        return json_null();
    json_t *o = json_object();
    json_object_set_new(o, "device", json_integer(p->device));
    json_object_set_new(o, "type", json_string(p->type));
    json_object_set_new(o, "slice", json_string(p->slice));
    json_object_set_new(o, "mig_start",
                        p->mig_start < 0 ? json_null() : json_integer(p->mig_start));
    json_object_set_new(o, "batch", json_integer(p->batch));
    json_object_set_new(o, "procs", json_integer(p->procs));
    return o;
}

static json_t *moves_json(const weft_plan *before, const weft_plan *after, weft_arena *arena)
{
    const weft_plan_move *move;
    size_t n;
    json_t *list = json_array();
    weft_plan_diff(before, after, arena, &move, &n);
    for (size_t i = 0; i < n; i++) {
        json_t *o = json_object();
        json_object_set_new(o, "model", json_string(move[i].model));
        json_object_set_new(o, "from", place_json(move[i].from));
        json_object_set_new(o, "to", place_json(move[i].to));
        json_array_append_new(list, o);
    }
    return list;
}

void weft_tool_plan_print_whatif(const weft_plan_options *o, const weft_plan *before,
                                 const char *why_not, const weft_plan *after,
                                 const weft_problem *problem, weft_arena *arena)
{
    weft_plan_metrics old = {0}, new;
    if (before)
        weft_plan_measure(before, problem, arena, &old);
    weft_plan_measure(after, problem, arena, &new);
    if (o->json) {
        json_t *root = json_object(), *changes = json_array();
        for (size_t i = 0; i < o->n_change; i++)
            json_array_append_new(changes, json_string(o->change[i].text));
        json_object_set_new(root, "changes", changes);
        json_object_set_new(root, "before",
                            before ? plan_row(before, &old) : refused_row(o->policy, why_not));
        json_object_set_new(root, "after", plan_row(after, &new));
        json_object_set_new(root, "moves", before ? moves_json(before, after, arena) : json_null());
        print_json(root);
        return;
    }
    print_head();
    if (before)
        print_row(before, &old);
    else
        printf("%-18s before: %s\n", o->policy, why_not);
    print_row(after, &new);
    if (!before)
        return;
    printf("%+d device%s, %+.2f $/h\n", (int)after->gpus - (int)before->gpus,
           abs((int)after->gpus - (int)before->gpus) == 1 ? "" : "s",
           after->cost_per_hour - before->cost_per_hour);
    weft_tool_plan_print_moves(before, after, problem->fleet, arena);
}

/* -- Explanations ----------------------------------------------------------------------------- */

static json_t *names_json(const char *const *name, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_string(name[i]));
    return list;
}

static json_t *places_json(const weft_explanation *e)
{
    json_t *list = json_array();
    for (size_t i = 0; i < e->n_place; i++) {
        const weft_explain_place *place = &e->place[i];
        json_t *o = place_json(place->at);
        set_number(o, "rate_per_s", place->at->rate_per_s);
        set_number(o, "capacity_per_s", place->at->capacity_per_s);
        set_number(o, "latency_us", place->at->latency_us);
        set_number(o, "slack_rate", place->slack_rate);
        set_number(o, "slack_latency", place->slack_latency);
        if (place->at->exec_us > 0) {
            set_number(o, "rule_cost", place->rule_cost);
            set_number(o, "late_share", place->late_share);
        }
        json_object_set_new(o, "shares_with", names_json(place->with, place->n_with));
        json_object_set_new(o, "beside", names_json(place->beside, place->n_beside));
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *options_json(const weft_explanation *e)
{
    json_t *list = json_array();
    for (size_t i = 0; i < e->n_option; i++) {
        const weft_explain_option *option = &e->option[i];
        json_t *o = json_object();
        json_object_set_new(o, "type", json_string(option->type));
        json_object_set_new(o, "slice", json_string(option->slice));
        json_object_set_new(o, "batch", json_integer(option->batch));
        json_object_set_new(o, "procs", json_integer(option->procs));
        set_number(o, "capacity_per_s", option->capacity_per_s);
        set_number(o, "capacity_per_device_per_s", option->per_device_per_s);
        json_object_set_new(o, "requests_per_dollar",
                            option->per_dollar > 0 ? json_real(option->per_dollar) : json_null());
        set_number(o, "latency_us", option->latency_us);
        json_object_set_new(o, "verdict", json_string(weft_verdict_name(option->verdict)));
        json_object_set_new(o, "reason", json_string(option->reason));
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *changes_json(const weft_explanation *e)
{
    json_t *list = json_array();
    for (size_t i = 0; i < e->n_change; i++) {
        const weft_explain_change *c = &e->change[i];
        bool slo = c->what == WEFT_CHANGE_SLO;
        json_t *o = json_object();
        json_object_set_new(o, "what", json_string(slo ? "slo_us" : "rate_per_s"));
        set_number(o, "from", c->from);
        set_number(o, "to", c->to);
        json_object_set_new(o, "type", c->slice ? json_string(c->type) : json_null());
        json_object_set_new(o, "slice", c->slice ? json_string(c->slice) : json_null());
        json_object_set_new(o, "gpus", c->slice ? json_null() : json_integer(c->gpus));
        json_object_set_new(o, "cost_per_hour",
                            c->slice ? json_null() : json_real(c->cost_per_hour));
        json_array_append_new(list, o);
    }
    return list;
}

static void print_names(const char *head, const char *const *name, size_t n)
{
    for (size_t i = 0; i < n; i++)
        printf("%s%s", i ? ", " : head, name[i]);
}

static void print_change(const weft_explain_change *c)
{
    bool slo = c->what == WEFT_CHANGE_SLO;
    double unit = slo ? 1e3 : 1;
    char cost[COST_MAX];
    printf("  %s of %.6g%s (now %.6g%s): ", slo ? "an SLO" : "a rate", c->to / unit,
           slo ? " ms" : "/s", c->from / unit, slo ? " ms" : "/s");
    if (c->slice)
        printf("fits the smaller slice %s of %s\n", c->slice[0] ? c->slice : "(whole)", c->type);
    else
        printf("%u devices, %s\n", c->gpus, cost_text(c->cost_per_hour, cost));
}

static json_t *families_json(const weft_explanation *e)
{
    json_t *list = json_array();
    for (size_t i = 0; i < e->n_family; i++) {
        const weft_explain_family *f = &e->family[i];
        json_t *o = json_object();
        json_object_set_new(o, "name", json_string(f->name));
        json_object_set_new(o, "used", json_boolean(f->used));
        set_number(o, "busy", f->busy_now);
        json_object_set_new(o, "otherwise", f->feasible ? json_object() : json_null());
        if (f->feasible) {
            json_t *other = json_object_get(o, "otherwise");
            json_object_set_new(other, "gpus", json_integer(f->gpus));
            set_number(other, "cost_per_hour", f->cost_per_hour);
            set_number(other, "busy", f->busy);
        }
        json_array_append_new(list, o);
    }
    return list;
}

static void print_family(const weft_explain_family *f)
{
    char cost[COST_MAX];
    printf("  %s run%s; %s ", f->name, f->used ? " as one joint program" : " apart",
           f->used ? "apart" : "as one joint program");
    if (f->feasible)
        printf("they need %u device%s, %s, %.3g devices' worth of work instead of %.3g\n", f->gpus,
               f->gpus == 1 ? "" : "s", cost_text(f->cost_per_hour, cost), f->busy, f->busy_now);
    else
        printf("there is no plan\n");
}

void weft_tool_plan_print_explanation(const weft_explanation *e, bool json)
{
    if (json) {
        json_t *root = json_object();
        json_object_set_new(root, "model", json_string(e->model));
        set_number(root, "slo_us", e->slo_us);
        set_number(root, "rate_per_s", e->rate_per_s);
        json_object_set_new(root, "places", places_json(e));
        json_object_set_new(root, "options", options_json(e));
        json_object_set_new(root, "changes", changes_json(e));
        json_object_set_new(root, "families", families_json(e));
        if (e->n_domain > 0) {
            json_object_set_new(root, "domain", json_string(weft_domain_name(e->domain)));
            json_object_set_new(root, "domains", json_integer(e->n_domain));
            json_object_set_new(root, "worst_domain", json_string(e->worst_domain));
            set_number(root, "left_per_s", e->left_per_s);
        }
        print_json(root);
        return;
    }
    printf("%s: %.6g/s, SLO %.6g ms\n\nplaced\n", e->model, e->rate_per_s, e->slo_us / 1e3);
    for (size_t i = 0; i < e->n_place; i++) {
        const weft_explain_place *place = &e->place[i];
        char where[128];
        printf("  %s  batch %u x %u  %.6g of %.6g/s (%.0f %% left)  %.6g ms (%.0f %% left)",
               place_text(place->at, where, sizeof where), place->at->batch, place->at->procs,
               place->at->rate_per_s, place->at->capacity_per_s, place->slack_rate * 100,
               place->at->latency_us / 1e3, place->slack_latency * 100);
        if (place->rule_cost > 0)
            printf("; the rule keeps %.0f %% of the peak free, %.2g %% late if arrivals are random",
                   place->rule_cost * 100, place->late_share * 100);
        print_names("; time-shares the slice with ", place->with, place->n_with);
        print_names("; beside ", place->beside, place->n_beside);
        putchar('\n');
    }
    if (e->n_domain > 0)
        printf("  in %u %s%s; without %s it can serve %.6g/s\n", e->n_domain,
               weft_domain_name(e->domain), e->n_domain == 1 ? "" : "s", e->worst_domain,
               e->left_per_s);
    if (e->n_family > 0)
        printf("\nfamilies\n");
    for (size_t i = 0; i < e->n_family; i++)
        print_family(&e->family[i]);
    printf("\noptions, best first (by the capacity per dollar of a whole device of such slices)\n");
    for (size_t i = 0; i < e->n_option; i++) {
        const weft_explain_option *o = &e->option[i];
        printf("  %-12s %-14s %-9s %s\n", o->type, o->slice[0] ? o->slice : "whole",
               weft_verdict_name(o->verdict), o->reason);
    }
    printf("\nsmallest changes with an effect\n");
    for (size_t i = 0; i < e->n_change; i++)
        print_change(&e->change[i]);
    if (e->n_change == 0)
        printf(
            "  none: no SLO of up to 8 times and no rate down to an eighth gives a smaller slice "
            "or saves a device\n");
}
