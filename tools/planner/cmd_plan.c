/* weft plan: places the models of a set on the devices of a fleet, explains placements, answers
 * what-if questions, compares policies, and checks plans made by others. */
#include "tools/planner/cmd_plan.h"

#include "base/file.h"
#include "base/num.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* -- Writing ---------------------------------------------------------------------------------- */

static weft_err write_text(const char *path, char *text, const char *end, weft_diag *diag)
{
    weft_buf buf = {0};
    weft_buf_printf(&buf, "%s%s", text, end);
    free(text);
    weft_err err = buf.failed ? WEFT_ERR_NOMEM : weft_file_write(path, buf.at, buf.len, diag);
    weft_buf_finish(&buf);
    return err;
}

static weft_err write_plan(const char *path, const weft_plan_inputs *in, const weft_plan *plan,
                           weft_diag *diag)
{
    char *text = NULL;
    WEFT_TRY(weft_plan_to_json(plan, &in->demands, &text));
    return write_text(path, text, "\n", diag);
}

/* Draws to standard output (--draw terminal) or to a file that ends in .svg. */
static weft_err draw_plan(const char *where, const weft_plan_inputs *in, const weft_plan *plan,
                          weft_diag *diag)
{
    char *text = NULL;
    weft_draw_options options = {.color = weft_tool_has_color(stdout), .demands = &in->demands};
    if (strcmp(where, "terminal") != 0) {
        WEFT_TRY(weft_plan_draw_svg(plan, &options, &text));
        return write_text(where, text, "", diag);
    }
    WEFT_TRY(weft_plan_draw_text(plan, &options, &text));
    return write_text("-", text, "", diag);
}

/* -- Doing ------------------------------------------------------------------------------------ */

/* *differs: the plan was read and breaks a rule. */
static weft_err check_file(const weft_plan_options *o, weft_plan_inputs *in, weft_arena *arena,
                           weft_diag *diag, bool *differs)
{
    weft_plan plan;
    WEFT_TRY(weft_tool_plan_read(o->check, o->layout, &in->problem, arena, diag, &plan));
    if (o->interference.given)
        plan.rules.interference = o->interference.coeff;
    weft_tool_plan_beside(in, &plan.rules.interference, arena);
    weft_err err = weft_plan_check(&plan, &in->problem, diag);
    *differs = err == WEFT_ERR_INPUT;
    if (o->draw)
        WEFT_TRY(draw_plan(o->draw, in, &plan, diag));
    if (o->json)
        weft_tool_plan_print_check(&plan, diag, err == WEFT_ERR_OK);
    else if (err == WEFT_ERR_OK)
        printf(
            "%s: legal; %u devices, %zu placements, at least %.0f devices needed (gap %.1f %%)\n",
            o->check, plan.gpus, plan.n, plan.lower_bound, weft_plan_gap(&plan) * 100);
    return err;
}

/* Plans before and after the changes; the first plan is the plan in force for the second. */
static weft_err answer_whatif(const weft_plan_options *o, const weft_policy *policy,
                              weft_plan_inputs *in, weft_arena *arena, weft_diag *diag,
                              weft_plan_inputs *changed, weft_plan *out)
{
    weft_plan before;
    weft_diag *own = weft_diag_create();
    weft_err err = weft_tool_plan_changed(o, in, arena, diag, changed);
    if (err != WEFT_ERR_OK || !own) {
        weft_diag_destroy(own);
        return err != WEFT_ERR_OK ? err : WEFT_ERR_NOMEM;
    }
    err = weft_tool_plan_decide(policy, &in->problem, arena, own, &before);
    const weft_message *msg = weft_diag_count(own) > 0 ? weft_diag_at(own, 0) : NULL;
    const char *why =
        msg ? weft_arena_printf(arena, "%s: %s", msg->item ? msg->item : "plan", msg->text) : "";
    weft_diag_destroy(own);
    if (err == WEFT_ERR_OK)
        changed->problem.previous = &before;
    weft_err after = weft_tool_plan_decide(policy, &changed->problem, arena, diag, out);
    if (after == WEFT_ERR_OK && !(weft_tool_is_quiet() && o->output))
        weft_tool_plan_print_whatif(o, err == WEFT_ERR_OK ? &before : NULL, why, out,
                                    &changed->problem, arena);
    changed->problem.previous = in->problem.previous;
    return after;
}

static weft_err explain_plan(const weft_plan_options *o, const weft_policy *policy,
                             const weft_plan_inputs *in, const weft_plan *plan, weft_arena *arena,
                             weft_diag *diag)
{
    weft_explanation e;
    WEFT_TRY(weft_plan_explain(plan, &in->problem, policy, o->explain, arena, diag, &e));
    weft_tool_plan_print_explanation(&e, o->json);
    return WEFT_ERR_OK;
}

static weft_err make_plan(const weft_plan_options *o, weft_plan_inputs *in, weft_arena *arena,
                          weft_diag *diag)
{
    const weft_policy *policy = weft_policy_find(o->policy);
    weft_plan_inputs changed;
    weft_plan plan;
    bool printed = o->n_change > 0;
    if (o->n_change > 0) {
        WEFT_TRY(answer_whatif(o, policy, in, arena, diag, &changed, &plan));
        in = &changed;
    } else {
        WEFT_TRY(weft_tool_plan_decide(policy, &in->problem, arena, diag, &plan));
    }
    if (o->explain) {
        WEFT_TRY(explain_plan(o, policy, in, &plan, arena, diag));
        printed = true;
    }
    if (o->output)
        WEFT_TRY(write_plan(o->output, in, &plan, diag));
    if (o->draw)
        WEFT_TRY(draw_plan(o->draw, in, &plan, diag));
    if (o->output && strcmp(o->output, "-") != 0 && !printed && !weft_tool_is_quiet()) {
        printf("%s: %zu models in %zu placements\n", o->output, in->demands.n, plan.n);
        weft_tool_plan_print_head(&plan, &in->problem, arena);
    }
    if (printed || o->output || (o->draw && strcmp(o->draw, "terminal") == 0))
        return WEFT_ERR_OK;
    if (o->json)
        return write_plan("-", in, &plan, diag);
    weft_tool_plan_print(&plan, &in->problem, arena);
    if (o->previous)
        weft_tool_plan_print_moves(&in->previous, &plan, in->problem.fleet, arena);
    return WEFT_ERR_OK;
}

static weft_err run_options(weft_plan_options *o, weft_arena *arena, weft_diag *diag, bool *differs)
{
    weft_plan_inputs in = {0};
    WEFT_TRY(weft_tool_plan_inputs(o, arena, diag, &in));
    if (!o->json && !weft_tool_is_quiet() && !(o->output && strcmp(o->output, "-") == 0))
        weft_tool_prices_print(&in.prices);
    if (o->check)
        return check_file(o, &in, arena, diag, differs);
    if (o->compare)
        return weft_tool_plan_compare(o, &in, arena, diag);
    return make_plan(o, &in, arena, diag);
}

/* -- The verb --------------------------------------------------------------------------------- */

static int take_latency_rule(void *at, const weft_verb *verb, char *arg)
{
    (void)verb;
    weft_rules *rules = at;
    weft_latency_rule_parse(arg, &rules->latency);
    return 0;
}

static int take_arrivals(void *at, const weft_verb *verb, char *arg)
{
    (void)verb;
    weft_rules *rules = at;
    weft_arrival_kind_parse(arg, &rules->arrivals);
    return 0;
}

static int take_survive(void *at, const weft_verb *verb, char *arg)
{
    (void)verb;
    weft_rules *rules = at;
    weft_domain_parse(arg, &rules->survive);
    return 0;
}

static int take_host(void *at, const weft_verb *verb, char *arg)
{
    weft_rules *rules = at;
    if (weft_parse_duration_us(arg, &rules->host_us) && rules->host_us >= 0)
        return 0;
    return weft_tool_usage(verb, "--host takes a time such as 300us, not '%s'", arg);
}

static int take_goal(void *at, const weft_verb *verb, char *arg)
{
    (void)verb;
    weft_goal_parse(arg, at);
    return 0;
}

static int take_reserve(void *at, const weft_verb *verb, char *arg)
{
    weft_rules *rules = at;
    double *part = &rules->mem_reserve;
    if (weft_parse_percent(arg, part) && *part >= 0 && *part < 1)
        return 0;
    return weft_tool_usage(verb, "--reserve takes 0%% to below 100%%, not '%s'", arg);
}

static int take_policy(void *at, const weft_verb *verb, char *arg)
{
    *(const char **)at = arg;
    if (weft_policy_find(arg))
        return 0;
    return weft_tool_no_policy(verb, arg);
}

static int take_picture(void *at, const weft_verb *verb, char *arg)
{
    size_t len = strlen(arg);
    *(const char **)at = arg;
    if (strcmp(arg, "terminal") == 0 || (len > 4 && strcmp(arg + len - 4, ".svg") == 0))
        return 0;
    return weft_tool_usage(verb, "--draw takes terminal or FILE.svg, not '%s'", arg);
}

static int add_change(weft_plan_options *o, const weft_verb *verb, weft_plan_change change)
{
    if (o->n_change == WEFT_PLAN_CHANGES_MAX)
        return weft_tool_usage(verb, "at most %d changes", WEFT_PLAN_CHANGES_MAX);
    o->change[o->n_change++] = change;
    return 0;
}

static int take_rate(void *at, const weft_verb *verb, char *arg)
{
    return add_change(at, verb, (weft_plan_change){WEFT_WHATIF_RATE, arg});
}

static int take_slo(void *at, const weft_verb *verb, char *arg)
{
    return add_change(at, verb, (weft_plan_change){WEFT_WHATIF_SLO, arg});
}

static int take_gpu(void *at, const weft_verb *verb, char *arg)
{
    char name[WEFT_DEVICE_NAME_MAX + 1];
    size_t len = strcspn(arg, "=");
    snprintf(name, sizeof name, "%.*s", (int)(len < sizeof name ? len : sizeof name - 1), arg);
    if (arg[len] && !weft_tool_find_device(verb, name))
        return WEFT_EXIT_USAGE;
    return add_change(at, verb, (weft_plan_change){WEFT_WHATIF_GPU, arg});
}

#define OPTIONS_OF_plan
#define OPTIONS weft_plan_options
#include "tools/common/option_rows.h"

/* Whether a file is a bundle. A pipe is not read: its bytes could not be read again. */
static bool is_bundle(const char *path)
{
    struct stat info;
    weft_file_kind kind;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) &&
           weft_tool_sniff(path, NULL, &kind) == WEFT_ERR_OK && kind == WEFT_FILE_BUNDLE;
}

/* Options that exclude each other, and those that are needed. */
static int check_options(const weft_plan_options *o)
{
    const weft_verb *verb = &weft_verb_plan;
    bool plans = o->output || o->explain || o->n_change > 0 || o->previous;
    const weft_rules *r = &o->rules;
    if (is_bundle(o->set))
        return weft_tool_usage(verb, "%s is a bundle: plan its set file, with --bundle %s", o->set,
                               o->set);
    if (!o->fleet)
        return weft_tool_usage(verb, "--fleet FILE is needed");
    if (r->latency != WEFT_RULE_QUEUE &&
        (r->arrivals != WEFT_ARRIVE_POISSON || r->quantile > 0 || r->burst > 0 || r->host_us > 0))
        return weft_tool_usage(verb,
                               "--arrivals, --quantile, --burst and --host are for --rule queue");
    if (o->trace && (r->latency != WEFT_RULE_QUEUE || r->burst > 0 || o->check ||
                     r->arrivals != WEFT_ARRIVE_POISSON))
        return weft_tool_usage(verb, "--trace is for --rule queue, and excludes --arrivals, "
                                     "--burst and --check");
    if (r->burst > 0 && r->arrivals != WEFT_ARRIVE_BURSTY)
        return weft_tool_usage(verb, "--burst is for --arrivals bursty");
    if (o->check && (o->compare || plans))
        return weft_tool_usage(verb, "--check excludes --compare, -o, --explain, "
                                     "--previous and changes");
    if (o->compare && (plans || o->draw))
        return weft_tool_usage(verb, "--compare excludes -o, --explain, --previous, "
                                     "--draw and changes");
    if (o->layout && !o->check && !o->previous)
        return weft_tool_usage(verb, "--check-layout is for --check and --previous");
    return -1;
}

/* Returns -1 to go on, or an exit code. */
static int parse(int argc, char **argv, weft_plan_options *o)
{
    int code = weft_options_parse_one(&weft_verb_plan, argc, argv, o, "set file", &o->set);
    if (code >= 0)
        return code;
    return check_options(o);
}

static int run_plan(int argc, char **argv)
{
    weft_plan_options o = {.policy = weft_policy_find("weft") ? "weft" : "bestfit",
                           .pipeline = {.run = {.verify = WEFT_VERIFY_OFF}}};
    int code = parse(argc, argv, &o);
    if (code >= 0)
        return code;
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    weft_err err = WEFT_ERR_NOMEM;
    bool differs = false;
    if (diag && arena)
        err = run_options(&o, arena, diag, &differs);
    code = weft_tool_report(diag, err);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return differs ? WEFT_EXIT_DIFFERS : code;
}

const weft_verb weft_verb_plan = {.name = "plan", .row = rows, .run = run_plan};
