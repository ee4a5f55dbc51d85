/* weft plan: places the models of a set on the devices of a fleet, says why, answers what-if
 * questions, compares policies, and checks plans of others. */
#include "tools/planner/cmd_plan.h"

#include "base/file.h"
#include "base/num.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

/* --draw terminal, or a file that ends in .svg. */
static weft_err draw_plan(const char *where, const weft_plan *plan, weft_diag *diag)
{
    char *text = NULL;
    if (strcmp(where, "terminal") != 0) {
        WEFT_TRY(weft_plan_draw_svg(plan, &text));
        return write_text(where, text, "", diag);
    }
    weft_draw_options options = {.color = weft_tool_has_color(stdout)};
    WEFT_TRY(weft_plan_draw_text(plan, &options, &text));
    return write_text("-", text, "", diag);
}

/* -- Doing ------------------------------------------------------------------------------------ */

/* *differs: the plan was read, and breaks a rule. */
static weft_err check_file(const weft_plan_options *o, const weft_plan_inputs *in,
                           weft_arena *arena, weft_diag *diag, bool *differs)
{
    weft_plan plan;
    WEFT_TRY(weft_tool_plan_read(o->check, o->layout, &in->problem, arena, diag, &plan));
    weft_err err = weft_plan_check(&plan, &in->problem, diag);
    *differs = err == WEFT_ERR_INPUT;
    if (o->draw)
        WEFT_TRY(draw_plan(o->draw, &plan, diag));
    if (o->json)
        weft_tool_plan_print_check(&plan, diag, err == WEFT_ERR_OK);
    else if (err == WEFT_ERR_OK)
        printf(
            "%s: legal; %u devices, %zu placements, at least %.0f devices needed (gap %.1f %%)\n",
            o->check, plan.gpus, plan.n, plan.lower_bound,
            plan.lower_bound > 0 ? (plan.gpus / plan.lower_bound - 1) * 100 : 0);
    return err;
}

/* Before and after the changes; a plan in force for the second is the first. */
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
    if (after == WEFT_ERR_OK)
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
        WEFT_TRY(draw_plan(o->draw, &plan, diag));
    if (printed || o->output || (o->draw && strcmp(o->draw, "terminal") == 0))
        return WEFT_ERR_OK;
    if (o->json)
        return write_plan("-", in, &plan, diag);
    weft_tool_plan_print(&plan, &in->problem, arena);
    if (o->previous)
        weft_tool_plan_print_moves(&in->previous, &plan, arena);
    return WEFT_ERR_OK;
}

static weft_err run_options(weft_plan_options *o, weft_arena *arena, weft_diag *diag, bool *differs)
{
    weft_plan_inputs in = {0};
    WEFT_TRY(weft_tool_plan_inputs(o, arena, diag, &in));
    if (o->check)
        return check_file(o, &in, arena, diag, differs);
    if (o->compare)
        return weft_tool_plan_compare(o, &in, arena, diag);
    return make_plan(o, &in, arena, diag);
}

/* -- The verb --------------------------------------------------------------------------------- */

enum {
    OPT_FLEET = 1,
    OPT_POLICY,
    OPT_CHECK,
    OPT_LAYOUT,
    OPT_COMPARE,
    OPT_EXPLAIN,
    OPT_DRAW,
    OPT_PREVIOUS,
    OPT_RATE,
    OPT_SLO,
    OPT_GPU,
    OPT_FORMAT,
    OPT_RULE,
    OPT_WHOLE_MS,
    OPT_PROCS,
    OPT_ISOLATED,
    OPT_OVERSUBSCRIBE,
    OPT_RESERVE,
    OPT_INTERFERENCE,
    OPT_CARBON,
    OPT_GOAL,
    OPT_EFFORT,
    OPT_SEED,
    OPT_PARAM,
    OPT_CALIBRATION
};

static const struct option long_options[] = {
    {"fleet", required_argument, NULL, OPT_FLEET},
    {"policy", required_argument, NULL, OPT_POLICY},
    {"check", required_argument, NULL, OPT_CHECK},
    {"check-layout", required_argument, NULL, OPT_LAYOUT},
    {"compare", no_argument, NULL, OPT_COMPARE},
    {"explain", required_argument, NULL, OPT_EXPLAIN},
    {"draw", required_argument, NULL, OPT_DRAW},
    {"previous", required_argument, NULL, OPT_PREVIOUS},
    {"rate", required_argument, NULL, OPT_RATE},
    {"slo", required_argument, NULL, OPT_SLO},
    {"gpu", required_argument, NULL, OPT_GPU},
    {"format", required_argument, NULL, OPT_FORMAT},
    {"rule", required_argument, NULL, OPT_RULE},
    {"whole-ms", no_argument, NULL, OPT_WHOLE_MS},
    {"procs", required_argument, NULL, OPT_PROCS},
    {"isolated", no_argument, NULL, OPT_ISOLATED},
    {"oversubscribe", no_argument, NULL, OPT_OVERSUBSCRIBE},
    {"reserve", required_argument, NULL, OPT_RESERVE},
    {"interference", required_argument, NULL, OPT_INTERFERENCE},
    {"carbon", required_argument, NULL, OPT_CARBON},
    {"goal", required_argument, NULL, OPT_GOAL},
    {"effort", required_argument, NULL, OPT_EFFORT},
    {"seed", required_argument, NULL, OPT_SEED},
    {"policy-options", required_argument, NULL, OPT_PARAM},
    {"calibration", required_argument, NULL, OPT_CALIBRATION},
    {"batch", required_argument, NULL, WEFT_OPT_BATCH},
    {"output", required_argument, NULL, 'o'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0}};

/* "c0,c1,c2,c3,c4". */
static bool parse_interference(const char *text, weft_interference *out)
{
    char copy[256], *at = copy;
    size_t n = 0;
    if (strlen(text) >= sizeof copy)
        return false;
    strcpy(copy, text);
    for (char *field; (field = strsep(&at, ",")); n++)
        if (n == 5 || !weft_parse_f64(field, &out->c[n]) || !(fabs(out->c[n]) <= 1e6))
            return false;
    return n == 5;
}

/* Options that say what is kept to. 0, -1: not one of them, or an exit code. */
static int take_rule(weft_plan_options *o, int opt, const char *arg)
{
    const weft_verb *verb = &weft_verb_plan;
    int64_t number;
    double x;
    switch (opt) {
    case OPT_RULE:
        if (!weft_latency_rule_parse(arg, &o->rules.latency))
            return weft_tool_usage(verb, "--rule takes exact, half or half09, not '%s'", arg);
        return 0;
    case OPT_WHOLE_MS:
        o->rules.whole_ms = true;
        return 0;
    case OPT_PROCS:
        if (!weft_parse_i64(arg, &number) || number < 1 || number > 48)
            return weft_tool_usage(verb, "--procs needs 1 to 48, not '%s'", arg);
        o->rules.procs_max = (uint32_t)number;
        return 0;
    case OPT_ISOLATED:
        o->rules.isolated = true;
        return 0;
    case OPT_OVERSUBSCRIBE:
        o->rules.oversubscribe = true;
        return 0;
    case OPT_RESERVE:
        if (!weft_parse_percent(arg, &o->rules.mem_reserve) || !(o->rules.mem_reserve >= 0) ||
            !(o->rules.mem_reserve < 1))
            return weft_tool_usage(verb, "--reserve needs 0%% to below 100%%, not '%s'", arg);
        return 0;
    case OPT_INTERFERENCE:
        if (!parse_interference(arg, &o->interference))
            return weft_tool_usage(verb, "--interference needs five numbers, not '%s'", arg);
        return 0;
    case OPT_CARBON:
        if (!weft_parse_f64(arg, &x) || !(x >= 0) || !(x <= 1e6))
            return weft_tool_usage(verb, "--carbon needs grams per kWh, not '%s'", arg);
        o->carbon_g_per_kwh = x;
        return 0;
    case OPT_GOAL:
        if (!weft_goal_parse(arg, &o->goal))
            return weft_tool_usage(verb, "--goal takes cost, goodput or carbon, not '%s'", arg);
        return 0;
    case OPT_EFFORT:
        if (!weft_parse_i64(arg, &o->effort) || o->effort < 1)
            return weft_tool_usage(verb, "--effort needs a number from 1, not '%s'", arg);
        return 0;
    case OPT_SEED:
        if (!weft_parse_i64(arg, &o->seed) || o->seed < 0)
            return weft_tool_usage(verb, "--seed needs a number from 0, not '%s'", arg);
        return 0;
    default:
        return -1;
    }
}

/* Options that say what is done. */
static int take_option(weft_plan_options *o, int opt, const char *arg)
{
    const weft_verb *verb = &weft_verb_plan;
    switch (opt) {
    case 'o':
        o->output = arg;
        return 0;
    case OPT_FLEET:
        o->fleet = arg;
        return 0;
    case OPT_POLICY:
        o->policy = arg;
        if (!weft_policy_find(arg))
            return weft_tool_usage(verb, "no policy '%s'; `weft list policies` names them", arg);
        return 0;
    case OPT_CHECK:
        o->check = arg;
        return 0;
    case OPT_LAYOUT:
        o->layout = arg;
        if (strcmp(arg, "weft") != 0 && strcmp(arg, "parvagpu") != 0)
            return weft_tool_usage(verb, "--check-layout takes weft or parvagpu, not '%s'", arg);
        return 0;
    case OPT_COMPARE:
        o->compare = true;
        return 0;
    case OPT_EXPLAIN:
        o->explain = arg;
        return 0;
    case OPT_DRAW: {
        size_t len = strlen(arg);
        o->draw = arg;
        if (strcmp(arg, "terminal") != 0 && (len < 5 || strcmp(arg + len - 4, ".svg") != 0))
            return weft_tool_usage(verb, "--draw takes terminal or FILE.svg, not '%s'", arg);
        return 0;
    }
    case OPT_PREVIOUS:
        o->previous = arg;
        return 0;
    case OPT_RATE:
    case OPT_SLO:
    case OPT_GPU:
        if (o->n_change == WEFT_PLAN_CHANGES_MAX)
            return weft_tool_usage(verb, "at most 64 changes");
        o->change[o->n_change++] = (weft_plan_change){opt == OPT_RATE  ? WEFT_WHATIF_RATE
                                                      : opt == OPT_SLO ? WEFT_WHATIF_SLO
                                                                       : WEFT_WHATIF_GPU,
                                                      arg};
        return 0;
    case OPT_FORMAT:
        if (!weft_tool_parse_format(arg, &o->json))
            return weft_tool_usage(verb, "--format takes text or json, not '%s'", arg);
        return 0;
    case OPT_PARAM:
        o->policy_options = arg;
        return 0;
    case OPT_CALIBRATION:
        o->calibration = arg;
        return 0;
    case WEFT_OPT_BATCH:
        return weft_tool_pipeline_option(&o->pipeline, verb, opt, arg);
    default:
        return weft_tool_usage(verb, "wrong option");
    }
}

/* What does not go together. */
static int check_options(const weft_plan_options *o)
{
    const weft_verb *verb = &weft_verb_plan;
    bool plans = o->output || o->explain || o->n_change > 0 || o->previous;
    if (!o->fleet)
        return weft_tool_usage(verb, "--fleet FILE is needed");
    if (o->check && (o->compare || plans))
        return weft_tool_usage(verb, "--check goes with neither --compare nor -o, --explain, "
                                     "--previous or changes");
    if (o->compare && (plans || o->draw))
        return weft_tool_usage(verb, "--compare prints; it goes with no -o, --explain, --previous, "
                                     "--draw or changes");
    if (o->layout && !o->check && !o->previous)
        return weft_tool_usage(verb, "--check-layout is for --check and --previous");
    return -1;
}

/* Returns -1 to go on, or an exit code. */
static int parse(int argc, char **argv, weft_plan_options *o)
{
    int opt;
    optind = 1;
    while ((opt = getopt_long(argc, argv, "o:h", long_options, NULL)) != -1) {
        if (opt == 'h')
            return weft_tool_help(&weft_verb_plan);
        int code = take_rule(o, opt, optarg);
        if (code < 0)
            code = take_option(o, opt, optarg);
        if (code)
            return code;
    }
    if (argc - optind != 1)
        return weft_tool_usage(&weft_verb_plan, "name one set file");
    o->set = argv[optind];
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
    weft_tool_progress(NULL);
    code = weft_tool_report(diag, err);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return differs ? WEFT_EXIT_DIFFERS : code;
}

const weft_verb weft_verb_plan = {
    .name = "plan",
    .usage =
        "usage: weft plan SET.yaml --fleet FLEET.yaml [OPTIONS]\n"
        "Decides which model runs on which slice of which device, so that every rate and SLO\n"
        "is met. Models with a `profile` are planned by their measurements, others by\n"
        "estimates. Exit code 3: no plan meets the demands.\n\n"
        "      --fleet FILE         devices, how they may be split, what they cost\n"
        "      --policy NAME        weft (default); `weft list policies` names them\n"
        "  -o, --output FILE        write the plan as JSON ('-': standard output)\n"
        "      --draw terminal|FILE.svg  the packed devices as a picture\n"
        "      --explain MODEL      why it is where it is, and what would change that\n"
        "      --compare            run every policy and compare\n"
        "      --previous PLAN.json the plan in force; moves are listed\n"
        "      --check PLAN         verify a plan made by anyone (plan.json, or a deployment\n"
        "                           map of ParvaGPU); exit code 4: it breaks a rule\n"
        "      --check-layout weft|parvagpu  instead of telling by the file\n\n"
        "What if (each any number of times; before and after are printed):\n"
        "      --rate NAME=2x|NAME=500/s  another rate of a model\n"
        "      --slo NAME=2x|NAME=50ms    another SLO\n"
        "      --gpu TYPE=COUNT     another number of devices, or another type\n\n"
        "Rules:\n"
        "      --rule RULE          latency rule: exact (default), half, half09\n"
        "      --whole-ms           cut SLOs to whole milliseconds\n"
        "      --procs N            most processes of one model on one slice\n"
        "      --isolated           no two models on one slice or MIG instance\n"
        "      --oversubscribe      MPS shares may exceed 100 % together\n"
        "      --reserve 10%        part of each memory that stays free\n"
        "      --interference C0,C1,C2,C3,C4  slow-down beside others (docs/plan-json.md)\n"
        "      --goal GOAL          cost (default): carry every rate; goodput: as much as the\n"
        "                           fleet can; carbon: with least carbon\n"
        "      --carbon G           grams of CO2 per kWh\n"
        "      --effort N           steps of a policy that searches\n"
        "      --seed N             of a policy that draws\n"
        "      --policy-options K=V,...  parameters of the policy\n"
        "      --batch 1,2,4,8      batch sizes to consider for estimated models\n"
        "      --calibration FILE   constants of a device, fitted by weft estimate --calibrate\n"
        "      --format text|json   what is printed\n",
    .run = run_plan,
};
