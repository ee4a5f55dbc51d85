/* weft reconcile: the change from the workers that run to those of a new plan. */
#include "tools/planner/cmd_plan.h"
#include "tools/planner/export_folder.h"

#include "base/file.h"
#include "base/map.h"

#include <jansson.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RUNNING_BYTES_MAX = 64 << 20 };

extern char **environ;

typedef struct options {
    const char *set, *from, *plan, *output, *fleet, *running, *lost, *policy;
    const weft_exporter *engine, *front;
    weft_tool_export export;
    double move_s;
    bool dip, roll, apply, json;
} options;

/* Both plans and what they are reconciled by. */
typedef struct inputs {
    weft_plan from, to, rest; /* rest: of `from` without the lost node */
    weft_demands of_from, of_to;
    weft_fleet fleet;
    weft_plan_options set_options;
    weft_plan_inputs set;
    weft_problem problem;
} inputs;

/* -- Inputs ----------------------------------------------------------------------------------- */

/* The first word of each line. */
static weft_err read_running(const char *path, weft_arena *arena, weft_diag *diag,
                             weft_reconcile_options *out)
{
    char *text = NULL;
    size_t len = 0;
    WEFT_VEC(const char *) name = {0};
    WEFT_TRY(weft_file_read(path, RUNNING_BYTES_MAX, diag, &text, &len));
    char *copy = weft_arena_strndup(arena, text, len), *rest = copy;
    free(text);
    for (char *line; (line = strsep(&rest, "\n"));) {
        line += strspn(line, " \t");
        line[strcspn(line, " \t\r")] = 0;
        if (line[0])
            WEFT_VEC_PUSH(arena, &name, line);
    }
    static const char *const none[] = {NULL};
    out->running = name.len ? name.at : none;
    out->n_running = name.len;
    return WEFT_ERR_OK;
}

/* Devices of a type that a plan uses. */
static uint32_t count_devices(const weft_plan *plan, const char *type, weft_arena *arena)
{
    weft_map *seen = weft_map_create(arena);
    for (size_t i = 0; i < plan->n; i++)
        if (strcmp(plan->at[i].type, type) == 0)
            weft_map_put(seen, plan->at[i].device, 1);
    return weft_map_len(seen);
}

/* The fleet without the devices that went with the node. Of one whose nodes have names, the node is
 * lost and the others keep their places; of another, there are fewer devices. */
static void shrink_fleet(const options *o, const inputs *in, weft_fleet *fleet, weft_arena *arena)
{
    weft_fleet_device *row = weft_arena_array(arena, fleet->n_device + 1, sizeof *row);
    size_t n = 0;
    for (size_t i = 0; i < fleet->n_device; i++) {
        row[n] = fleet->device[i];
        if (weft_fleet_lose(&row[n], o->lost, arena) == 0) {
            uint32_t lost = count_devices(&in->from, row[n].type, arena) -
                            count_devices(&in->rest, row[n].type, arena);
            row[n].count -= lost < row[n].count ? lost : row[n].count;
        }
        n += row[n].count > 0;
    }
    fleet->device = row;
    fleet->n_device = n;
}

/* Plans without wishes for failure domains: any devices of those that are left, by their number. */
static void drop_domains(const options *o, inputs *in, weft_arena *arena)
{
    weft_fleet_device *row = weft_arena_array(arena, in->set.fleet.n_device + 1, sizeof *row);
    weft_demand *demand = weft_arena_array(arena, in->set.demands.n + 1, sizeof *demand);
    size_t n = 0;
    for (size_t i = 0; i < in->set.fleet.n_device; i++) {
        row[n] = in->set.fleet.device[i];
        row[n].count -= weft_fleet_lose(&row[n], o->lost, arena);
        row[n].lost_node = 0;
        n += row[n].count > 0;
    }
    for (size_t i = 0; i < in->set.demands.n; i++) {
        demand[i] = in->set.demands.at[i];
        demand[i].spread = WEFT_DOMAIN_NONE;
    }
    in->set.fleet.device = row;
    in->set.fleet.n_device = n;
    in->set.demands.at = demand;
    in->set.problem.rules.survive = WEFT_DOMAIN_NONE;
}

static bool asks_for_domains(const inputs *in)
{
    bool asks = in->set.problem.rules.survive != WEFT_DOMAIN_NONE;
    for (size_t i = 0; i < in->set.demands.n && !asks; i++)
        asks = in->set.demands.at[i].spread != WEFT_DOMAIN_NONE;
    return asks;
}

/* Plans; an INFEASIBLE says nothing. */
static weft_err try_plan(const options *o, inputs *in, weft_arena *arena, weft_diag *diag)
{
    const weft_policy *policy = weft_policy_find(o->policy);
    weft_diag *own = weft_diag_create();
    if (!own)
        return WEFT_ERR_NOMEM;
    weft_err err = weft_tool_plan_decide(policy, &in->set.problem, arena, own, &in->to);
    weft_diag_destroy(own);
    return err == WEFT_ERR_OK || err == WEFT_ERR_INFEASIBLE
               ? err
               : weft_tool_plan_decide(policy, &in->set.problem, arena, diag, &in->to);
}

/* A plan of the set for the rest of the fleet: of all rates, apart as the set and the old plan want
 * it, else anywhere, else of as many requests as it can. */
static weft_err plan_rest(const options *o, inputs *in, weft_arena *arena, weft_diag *diag)
{
    const weft_where where = {.item = o->lost};
    in->set_options = (weft_plan_options){.set = o->set, .fleet = o->fleet, .policy = o->policy};
    in->set_options.rules = in->from.rules;
    in->set_options.goal = in->from.goal;
    in->set_options.pipeline.run.verify = WEFT_VERIFY_OFF;
    WEFT_TRY(weft_tool_plan_inputs(&in->set_options, arena, diag, &in->set));
    shrink_fleet(o, in, &in->set.fleet, arena);
    in->fleet = in->set.fleet;
    in->set.problem.previous = &in->rest;
    bool apart = asks_for_domains(in);
    if (!apart)
        drop_domains(o, in, arena);
    weft_err err = try_plan(o, in, arena, diag);
    if (err == WEFT_ERR_INFEASIBLE && apart) {
        weft_diag_warn(diag, where,
                       "what is left cannot serve all rates after one more failure; the plan does "
                       "not ask for it");
        drop_domains(o, in, arena);
        err = try_plan(o, in, arena, diag);
    }
    if (err == WEFT_ERR_INFEASIBLE) {
        weft_diag_warn(diag, where,
                       "what is left cannot serve all rates; the plan serves what it can");
        in->set.problem.goal = WEFT_GOAL_GOODPUT;
        err = weft_tool_plan_decide(weft_policy_find(o->policy), &in->set.problem, arena, diag,
                                    &in->to);
    }
    in->of_to = in->set.demands;
    return err;
}

static weft_err read_inputs(options *o, inputs *in, weft_arena *arena, weft_diag *diag)
{
    WEFT_TRY(weft_tool_export_prepare(&o->export, arena, diag));
    WEFT_TRY(weft_tool_export_plan(o->from, arena, diag, &in->from, &in->of_from));
    in->rest = in->from;
    o->export.o.demands = &in->of_from;
    if (o->lost)
        WEFT_TRY(weft_reconcile_without(&in->from, &o->export.o, o->lost, arena, diag, &in->rest));
    if (o->fleet && !o->set)
        WEFT_TRY(weft_fleet_load(o->fleet, arena, diag, &in->fleet));
    if (o->fleet && !o->set && o->lost)
        shrink_fleet(o, in, &in->fleet, arena);
    WEFT_TRY(o->plan ? weft_tool_export_plan(o->plan, arena, diag, &in->to, &in->of_to)
                     : plan_rest(o, in, arena, diag));
    o->export.o.demands = &in->of_to;
    in->problem = (weft_problem){.fleet = o->fleet ? &in->fleet : NULL, .goal = in->to.goal};
    return WEFT_ERR_OK;
}

/* -- Reports ---------------------------------------------------------------------------------- */

static void print_list(const char *what, const weft_reconcile_worker *w, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        printf("  %s %s on %s:", what, w[i].name, w[i].node);
        for (uint32_t k = 0; k < w[i].n; k++)
            printf("%s %s", k ? "," : "", w[i].at[k]->model);
        printf("%s\n", w[i].temporary ? " (a copy for the time of the change)" : "");
    }
}

/* What a lost node leaves of the models' capacities until the change is done. */
static void print_lost(const inputs *in)
{
    for (size_t i = 0; i < in->of_from.n; i++) {
        const weft_demand *d = &in->of_from.at[i];
        double left = 0;
        for (size_t k = 0; k < in->rest.n; k++)
            left +=
                weft_family_has(in->rest.at[k].model, d->model) ? in->rest.at[k].capacity_per_s : 0;
        if (left < d->rate_per_s * (1 - 1e-9))
            printf("until then %s has %.6g/s of %.6g/s\n", d->model, left, d->rate_per_s);
    }
}

static void print_text(const options *o, const inputs *in, const weft_reconciliation *r)
{
    printf("%u workers stay, %u start (at least %u), %u end, %u of them copies; %zu stages\n",
           r->n_kept, r->n_start, r->n_least, r->n_stop, r->n_temporary, r->n_stage);
    printf("the change costs %.3g %s, the new plan saves %.3g %s an hour\n", r->price, r->unit,
           r->saving, r->unit);
    if (o->lost)
        print_lost(in);
    for (size_t k = 0; k < r->n_stage; k++) {
        printf("stage %zu\n", k + 1);
        if (r->stage[k].rolls) {
            printf("  new pods for the %u of %s\n", r->stage[k].n_start,
                   r->stage[k].start[0].group);
        } else {
            print_list("start", r->stage[k].start, r->stage[k].n_start);
            print_list("end", r->stage[k].stop, r->stage[k].n_stop);
        }
        for (size_t i = 0; i < r->n_dip; i++)
            if (r->dip[i].stage == k)
                printf("  %s falls to %.6g/s, needed are %.6g/s\n", r->dip[i].model,
                       r->dip[i].left_per_s, r->dip[i].needed_per_s);
    }
    printf("%s/apply.sh\n", o->output);
}

static json_t *workers_to_json(const weft_reconcile_worker *w, uint32_t n)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++) {
        json_t *models = json_array();
        for (uint32_t k = 0; k < w[i].n; k++)
            json_array_append_new(models, json_string(w[i].at[k]->model));
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:i, s:s, s:b, s:o}", "worker", w[i].name,
                                        "node", w[i].node, "gpu", (int)w[i].gpu, "group",
                                        w[i].group, "copy", (int)w[i].temporary, "models", models));
    }
    return list;
}

static weft_err print_json(const weft_reconciliation *r)
{
    json_t *stages = json_array(), *dips = json_array();
    for (size_t k = 0; k < r->n_stage; k++) {
        const weft_reconcile_stage *s = &r->stage[k];
        json_array_append_new(
            stages, json_pack("{s:o, s:o, s:b}", "start", workers_to_json(s->start, s->n_start),
                              "stop", workers_to_json(s->stop, s->n_stop), "rolls", (int)s->rolls));
    }
    for (size_t i = 0; i < r->n_dip; i++)
        json_array_append_new(dips, json_pack("{s:s, s:i, s:f, s:f}", "model", r->dip[i].model,
                                              "stage", (int)r->dip[i].stage + 1, "needed_per_s",
                                              r->dip[i].needed_per_s, "left_per_s",
                                              r->dip[i].left_per_s));
    json_t *root =
        json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:s, s:f, s:f, s:o, s:o}", "format",
                  "weft-reconcile", "version", 1, "kept", (int)r->n_kept, "starts", (int)r->n_start,
                  "least_starts", (int)r->n_least, "stops", (int)r->n_stop, "unit", r->unit,
                  "price", r->price, "saving_per_hour", r->saving, "stages", stages, "dips", dips);
    bool ok = root && json_dumpf(root, stdout, JSON_INDENT(2)) == 0;
    printf("\n");
    json_decref(root);
    return ok ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
}

/* -- Doing ------------------------------------------------------------------------------------ */

static weft_err write_folder(const options *o, const inputs *in, const weft_reconciliation *r,
                             weft_arena *arena, weft_diag *diag)
{
    char *text = NULL;
    WEFT_TRY(weft_plan_to_json(r->plan, &in->of_to, &text));
    const char *plan = weft_arena_printf(arena, "%s\n", text);
    free(text);
    const weft_export_file own[] = {
        {.path = "plan.json", .text = plan, .len = strlen(plan)},
        {.path = "apply.sh", .text = r->script, .len = strlen(r->script), .executable = true}};
    WEFT_TRY(weft_tool_export_write(o->output, r->file, r->n_file, arena, diag));
    return weft_tool_export_write(o->output, own, 2, arena, diag);
}

/* Runs the commands; their output is that of this program. */
static weft_err run_script(const options *o, weft_arena *arena, weft_diag *diag)
{
    char *path =
        weft_arena_printf(arena, "%s%s/apply.sh", o->output[0] == '-' ? "./" : "", o->output);
    char *argv[] = {"sh", path, NULL};
    pid_t pid;
    int status = 0;
    fflush(stdout);
    if (posix_spawnp(&pid, "sh", NULL, NULL, argv, environ) != 0 || waitpid(pid, &status, 0) != pid)
        return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){.file = path}, "cannot be run");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return weft_diag_error(
            diag, WEFT_ERR_IO, (weft_where){.file = path},
            "a command failed; what it had begun goes on. Reconcile again with --running");
    return WEFT_ERR_OK;
}

static weft_err run_options(options *o, weft_arena *arena, weft_diag *diag)
{
    inputs *in = weft_arena_array(arena, 1, sizeof *in);
    weft_reconciliation r;
    WEFT_TRY(read_inputs(o, in, arena, diag));
    weft_reconcile_options how = {.how = o->export.o,
                                  .from_demands = &in->of_from,
                                  .problem = &in->problem,
                                  .engine = o->engine,
                                  .front = o->front,
                                  .move_s = o->move_s,
                                  .lost = o->lost,
                                  .dip = o->dip,
                                  .roll = o->roll};
    if (o->running)
        WEFT_TRY(read_running(o->running, arena, diag, &how));
    WEFT_TRY(weft_reconcile(&in->rest, &in->to, &how, arena, diag, &r));
    WEFT_TRY(write_folder(o, in, &r, arena, diag));
    if (o->json)
        WEFT_TRY(print_json(&r));
    else
        print_text(o, in, &r);
    return o->apply && r.n_stage > 0 ? run_script(o, arena, diag) : WEFT_ERR_OK;
}

/* -- The verb --------------------------------------------------------------------------------- */

#define OPTIONS_OF_reconcile
#define OPTIONS options
#include "tools/common/option_rows.h"

/* Returns -1 to go on, or an exit code. */
static int parse(int argc, char **argv, options *o)
{
    const weft_verb *verb = &weft_verb_reconcile;
    int code = weft_options_parse(verb, argc, argv, o);
    if (code >= 0)
        return code;
    if (argc - optind > 1)
        return weft_tool_usage(verb, "one set file at most");
    o->set = argc > optind ? argv[optind] : NULL;
    if (!o->from || !o->engine || !o->output || !o->output[0])
        return weft_tool_usage(verb, "--from OLD.json, --engine ENGINE and -o DIR are needed");
    if (!o->plan == !o->set)
        return weft_tool_usage(verb, o->plan
                                         ? "--plan excludes a set file"
                                         : "--plan NEW.json is needed, or a set file and --lost");
    if (o->plan && o->policy)
        return weft_tool_usage(verb, "--policy is for a set file and --lost, not for --plan");
    o->policy = o->policy ? o->policy : weft_policy_find("weft") ? "weft" : "bestfit";
    if (o->set && (!o->lost || !o->fleet))
        return weft_tool_usage(verb, "a set file goes with --fleet FILE and --lost NODE");
    if (!weft_policy_find(o->policy))
        return weft_tool_no_policy(verb, o->policy);
    if (o->running && strcmp(o->engine->name, "kubernetes") == 0)
        return weft_tool_usage(verb, "--running is not for Kubernetes, which starts pods again");
    return weft_tool_export_check(verb, &o->export, o->engine, o->front);
}

static int run_reconcile(int argc, char **argv)
{
    options o = {.move_s = 30};
    int code = parse(argc, argv, &o);
    if (code >= 0)
        return code;
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    code = weft_tool_report(diag, diag && arena ? run_options(&o, arena, diag) : WEFT_ERR_NOMEM);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return code;
}

const weft_verb weft_verb_reconcile = {.name = "reconcile", .row = rows, .run = run_reconcile};
