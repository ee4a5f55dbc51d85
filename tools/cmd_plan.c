/* weft plan: places the models of a set on the devices of a fleet, and checks such plans. */
#include "frontend/frontend.h"
#include "tools/pipeline.h"
#include "tools/profiles.h"

#include "base/file.h"
#include "base/num.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { PLAN_BYTES_MAX = 256 << 20 };

typedef struct options {
    const char *set, *fleet, *policy, *check, *output;
    bool compare, json;
    weft_rules rules;
    weft_goal goal;
    int64_t effort;
    const char *policy_options;
    weft_tool_pipeline pipeline;
} options;

/* What a plan is made of. */
typedef struct inputs {
    weft_set set;
    weft_fleet fleet;
    weft_demands demands;
    weft_problem problem;
} inputs;

/* -- Profiles of the set ---------------------------------------------------------------------- */

static weft_err estimate_model(options *o, const weft_set_model *model, const weft_slice *slice,
                               size_t n_slice, weft_module *m, weft_arena *arena, weft_diag *diag,
                               weft_profile *out)
{
    weft_import_dim *dim = weft_arena_array(arena, model->n_dim + 1, sizeof *dim);
    for (size_t k = 0; k < model->n_dim; k++)
        dim[k] = (weft_import_dim){model->dim[k].name, model->dim[k].lo, model->dim[k].hi};
    weft_import_options import = {.graph_name = model->name, .dim = dim, .n_dim = model->n_dim};
    weft_graph *g = NULL;
    size_t n = 0;
    const weft_pass *const *pass = weft_pipeline("cpu", &n);
    weft_tool_progress("estimating %s", model->name);
    WEFT_TRY(weft_import_onnx(m, model->file, &import, diag, &g));
    WEFT_TRY(weft_tool_pipeline_run(&o->pipeline, m, pass, n, diag));
    return weft_tool_profile_graph(g, slice, n_slice, arena, diag, out);
}

/* Measured where the set has a profile, else estimated. */
static weft_err profile_model(options *o, const weft_set *set, const weft_set_model *model,
                              const weft_slice *slice, size_t n_slice, weft_arena *arena,
                              weft_diag *diag, weft_profile *out)
{
    if (model->profile)
        return weft_profile_load(model->profile, set->profile_layout, model->name, arena, diag,
                                 out);
    weft_module *m = weft_module_create(0);
    if (!m)
        return WEFT_ERR_NOMEM;
    weft_err err = estimate_model(o, model, slice, n_slice, m, arena, diag, out);
    weft_module_destroy(m);
    return err;
}

static weft_err load_inputs(options *o, weft_arena *arena, weft_diag *diag, inputs *in)
{
    const weft_slice *slice = NULL;
    size_t n_slice = 0;
    WEFT_TRY(weft_set_load(o->set, arena, diag, &in->set));
    WEFT_TRY(weft_fleet_load(o->fleet, arena, diag, &in->fleet));
    WEFT_TRY(weft_tool_fleet_slices(&in->fleet, arena, diag, &slice, &n_slice));
    weft_demand *demand = weft_arena_array(arena, in->set.n_model, sizeof *demand);
    for (size_t i = 0; i < in->set.n_model; i++) {
        const weft_set_model *model = &in->set.model[i];
        demand[i] = (weft_demand){
            .model = model->name, .slo_us = model->slo_us, .rate_per_s = model->rate_per_s};
        WEFT_TRY(
            profile_model(o, &in->set, model, slice, n_slice, arena, diag, &demand[i].profile));
    }
    weft_tool_progress(NULL);
    in->demands = (weft_demands){demand, in->set.n_model};
    in->problem = (weft_problem){.demands = &in->demands,
                                 .fleet = &in->fleet,
                                 .rules = o->rules,
                                 .goal = o->goal,
                                 .app = in->set.app,
                                 .n_app = in->set.n_app,
                                 .effort = (uint64_t)o->effort,
                                 .options = o->policy_options};
    return WEFT_ERR_OK;
}

/* -- Printing --------------------------------------------------------------------------------- */

static void print_plan(const weft_plan *plan)
{
    printf("policy %s: %u device%s, $%.2f/h, at least %.0f needed, decided in %.2f ms\n",
           plan->policy, plan->gpus, plan->gpus == 1 ? "" : "s", plan->cost_per_hour,
           plan->lower_bound, plan->decision_ms);
    for (size_t i = 0; i < plan->n; i++) {
        const weft_placement *p = &plan->at[i];
        char where[WEFT_SLICE_NAME_MAX + 16], size[32];
        const char *slice = p->slice[0] ? p->slice : "whole";
        if (p->mig_start >= 0)
            snprintf(where, sizeof where, "%s@%d", slice, p->mig_start);
        else
            snprintf(where, sizeof where, "%s", slice);
        printf("  %-24s %s %u %s #%u  batch %u x %u  %.6g of %.6g/s  %.6g ms  %s\n", p->model,
               p->type, p->device, where, p->slice_id, p->batch, p->procs, p->rate_per_s,
               p->capacity_per_s, p->latency_us / 1e3, weft_tool_bytes(p->mem_bytes, size));
    }
}

static weft_err write_plan(const options *o, const inputs *in, const weft_plan *plan,
                           weft_diag *diag)
{
    char *text = NULL;
    if (!o->output && !o->json) {
        print_plan(plan);
        return WEFT_ERR_OK;
    }
    WEFT_TRY(weft_plan_to_json(plan, &in->demands, &text));
    weft_buf buf = {0};
    weft_buf_printf(&buf, "%s\n", text);
    free(text);
    weft_err err = buf.failed ? WEFT_ERR_NOMEM
                              : weft_file_write(o->output ? o->output : "-", buf.at, buf.len, diag);
    weft_buf_finish(&buf);
    return err;
}

/* -- Doing ------------------------------------------------------------------------------------ */

static weft_err make_plan(const weft_policy *policy, const inputs *in, weft_arena *arena,
                          weft_diag *diag, weft_plan *out)
{
    double start_ms = weft_tool_now_ms();
    WEFT_TRY(weft_plan_make(policy, NULL, &in->problem, arena, diag, out));
    out->decision_ms = weft_tool_now_ms() - start_ms;
    return WEFT_ERR_OK;
}

static json_t *compare_row(const weft_policy *policy, const weft_plan *plan, weft_err err,
                           const char *why)
{
    if (err != WEFT_ERR_OK)
        return json_pack("{s:s, s:b, s:s}", "policy", policy->name, "feasible", 0, "reason", why);
    return json_pack("{s:s, s:b, s:i, s:f, s:f, s:f}", "policy", policy->name, "feasible", 1,
                     "gpus", (int)plan->gpus, "cost_per_hour", plan->cost_per_hour, "lower_bound",
                     plan->lower_bound, "decision_ms", plan->decision_ms);
}

/* Every policy on the same demands. INFEASIBLE when none finds a plan. */
static weft_err compare_policies(const options *o, const inputs *in, weft_arena *arena,
                                 weft_diag *diag)
{
    json_t *rows = json_array();
    weft_err result = WEFT_ERR_INFEASIBLE;
    const weft_policy *policy;
    if (!o->json)
        printf("%-12s %8s %12s %12s %12s\n", "policy", "devices", "$/h", "at least", "ms");
    for (size_t i = 0; (policy = weft_policy_at(i)); i++) {
        weft_diag *own = weft_diag_create();
        weft_plan plan = {0};
        weft_err err = make_plan(policy, in, arena, own, &plan);
        const char *why = own && weft_diag_count(own) > 0 ? weft_diag_at(own, 0)->text : "";
        if (err == WEFT_ERR_OK)
            result = WEFT_ERR_OK;
        if (o->json)
            json_array_append_new(rows, compare_row(policy, &plan, err, why));
        else if (err == WEFT_ERR_OK)
            printf("%-12s %8u %12.2f %12.0f %12.2f\n", policy->name, plan.gpus, plan.cost_per_hour,
                   plan.lower_bound, plan.decision_ms);
        else
            printf("%-12s %s: %s\n", policy->name, weft_err_name(err), why);
        weft_diag_destroy(own);
    }
    if (o->json) {
        json_dumpf(rows, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
        putchar('\n');
    }
    json_decref(rows);
    if (result != WEFT_ERR_OK)
        (void)weft_diag_error(diag, result, (weft_where){.file = o->set}, "no policy finds a plan");
    return result;
}

/* *differs: the plan was read, and breaks a rule. */
static weft_err check_file(const options *o, const inputs *in, weft_arena *arena, weft_diag *diag,
                           bool *differs)
{
    char *text = NULL;
    size_t len = 0;
    weft_plan plan;
    WEFT_TRY(weft_file_read(o->check, PLAN_BYTES_MAX, diag, &text, &len));
    weft_err err = weft_plan_from_json(text, len, o->check, arena, diag, &plan);
    free(text);
    if (err != WEFT_ERR_OK)
        return err;
    err = weft_plan_check(&plan, &in->problem, diag);
    *differs = err == WEFT_ERR_INPUT;
    if (err == WEFT_ERR_OK && !o->json)
        printf("%s: legal; %u devices, %zu placements\n", o->check, plan.gpus, plan.n);
    return err;
}

static weft_err run_options(options *o, weft_arena *arena, weft_diag *diag, bool *differs)
{
    inputs in = {0};
    weft_plan plan;
    WEFT_TRY(load_inputs(o, arena, diag, &in));
    if (o->check)
        return check_file(o, &in, arena, diag, differs);
    if (o->compare)
        return compare_policies(o, &in, arena, diag);
    WEFT_TRY(make_plan(weft_policy_find(o->policy), &in, arena, diag, &plan));
    return write_plan(o, &in, &plan, diag);
}

/* -- The verb --------------------------------------------------------------------------------- */

enum {
    OPT_FLEET = 1,
    OPT_POLICY,
    OPT_CHECK,
    OPT_COMPARE,
    OPT_FORMAT,
    OPT_RULE,
    OPT_WHOLE_MS,
    OPT_PROCS,
    OPT_GOAL,
    OPT_EFFORT,
    OPT_PARAM
};

/* Returns -1 to go on, or an exit code. */
static int parse(int argc, char **argv, options *o)
{
    static const struct option longs[] = {{"fleet", required_argument, NULL, OPT_FLEET},
                                          {"policy", required_argument, NULL, OPT_POLICY},
                                          {"check", required_argument, NULL, OPT_CHECK},
                                          {"compare", no_argument, NULL, OPT_COMPARE},
                                          {"format", required_argument, NULL, OPT_FORMAT},
                                          {"rule", required_argument, NULL, OPT_RULE},
                                          {"whole-ms", no_argument, NULL, OPT_WHOLE_MS},
                                          {"procs", required_argument, NULL, OPT_PROCS},
                                          {"goal", required_argument, NULL, OPT_GOAL},
                                          {"effort", required_argument, NULL, OPT_EFFORT},
                                          {"policy-options", required_argument, NULL, OPT_PARAM},
                                          {"batch", required_argument, NULL, WEFT_OPT_BATCH},
                                          {"output", required_argument, NULL, 'o'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int64_t number;
    int opt, code;
    optind = 1;
    while ((opt = getopt_long(argc, argv, "o:h", longs, NULL)) != -1) {
        switch (opt) {
        case 'h':
            return weft_tool_help(&weft_verb_plan);
        case 'o':
            o->output = optarg;
            break;
        case OPT_FLEET:
            o->fleet = optarg;
            break;
        case OPT_POLICY:
            o->policy = optarg;
            if (!weft_policy_find(optarg))
                return weft_tool_usage(&weft_verb_plan,
                                       "no policy '%s'; `weft list policies` names them", optarg);
            break;
        case OPT_CHECK:
            o->check = optarg;
            break;
        case OPT_COMPARE:
            o->compare = true;
            break;
        case OPT_FORMAT:
            if (!weft_tool_parse_format(optarg, &o->json))
                return weft_tool_usage(&weft_verb_plan, "--format takes text or json, not '%s'",
                                       optarg);
            break;
        case OPT_RULE:
            if (!weft_latency_rule_parse(optarg, &o->rules.latency))
                return weft_tool_usage(&weft_verb_plan,
                                       "--rule takes exact, half or half09, not '%s'", optarg);
            break;
        case OPT_WHOLE_MS:
            o->rules.whole_ms = true;
            break;
        case OPT_PROCS:
            if (!weft_parse_i64(optarg, &number) || number < 1 || number > 48)
                return weft_tool_usage(&weft_verb_plan, "--procs needs 1 to 48, not '%s'", optarg);
            o->rules.procs_max = (uint32_t)number;
            break;
        case OPT_GOAL:
            if (!weft_goal_parse(optarg, &o->goal))
                return weft_tool_usage(&weft_verb_plan,
                                       "--goal takes cost, goodput or carbon, not '%s'", optarg);
            break;
        case OPT_EFFORT:
            if (!weft_parse_i64(optarg, &o->effort) || o->effort < 1)
                return weft_tool_usage(&weft_verb_plan, "--effort needs a number from 1, not '%s'",
                                       optarg);
            break;
        case OPT_PARAM:
            o->policy_options = optarg;
            break;
        case WEFT_OPT_BATCH:
            code = weft_tool_pipeline_option(&o->pipeline, &weft_verb_plan, opt, optarg);
            if (code)
                return code;
            break;
        default:
            return weft_tool_usage(&weft_verb_plan, "wrong option");
        }
    }
    if (argc - optind != 1)
        return weft_tool_usage(&weft_verb_plan, "name one set file");
    o->set = argv[optind];
    if (!o->fleet)
        return weft_tool_usage(&weft_verb_plan, "--fleet FILE is needed");
    if (o->check && (o->compare || o->output))
        return weft_tool_usage(&weft_verb_plan, "--check goes with neither --compare nor -o");
    if (o->compare && o->output)
        return weft_tool_usage(&weft_verb_plan, "--compare prints; it goes with no -o");
    return -1;
}

static int run_plan(int argc, char **argv)
{
    options o = {.policy = "bestfit", .pipeline = {.run = {.verify = WEFT_VERIFY_OFF}}};
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
    .brief = "place the models of a set on the devices of a fleet",
    .usage =
        "usage: weft plan SET.yaml --fleet FLEET.yaml [OPTIONS]\n"
        "Decides which model runs on which slice of which device, so that every rate and SLO\n"
        "is met. Models with a `profile` are planned by their measurements, others by\n"
        "estimates. Exit code 3: no plan meets the demands.\n\n"
        "      --fleet FILE         devices, how they may be split, what they cost\n"
        "      --policy NAME        bestfit (default); `weft list policies` names them\n"
        "  -o, --output FILE        write the plan as JSON ('-': standard output)\n"
        "      --rule RULE          latency rule: exact (default), half, half09\n"
        "      --whole-ms           cut SLOs to whole milliseconds\n"
        "      --procs N            most processes of one model on one slice\n"
        "      --goal GOAL          cost (default): carry every rate; goodput: as much as the\n"
        "                           fleet can; carbon: with least carbon\n"
        "      --effort N           steps of a policy that searches\n"
        "      --policy-options K=V,...  parameters of the policy\n"
        "      --check PLAN.json    verify a plan made by anyone; exit code 4: it breaks a rule\n"
        "      --compare            run every policy and compare\n"
        "      --batch 1,2,4,8      batch sizes to consider for estimated models\n"
        "      --format text|json   what is printed\n",
    .run = run_plan,
};
