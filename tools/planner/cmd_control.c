/* weft-planner control: follows the load of a running server. `weft serve --policy` starts it; it
 * is no verb of the command `weft`.
 *
 * It polls the router's counts over the control socket, gives them to the controller
 * (scheduler/control), and asks the router to bring the plans that it chooses into force. Of the
 * router it needs `status`, `apply` and `note`; with `plan` it learns the plan in force at its
 * start, and after somebody else has changed it. It ends when the router ends. */
#include "tools/planner/cmd_plan.h"
#include "tools/planner/control_carbon.h"
#include "tools/planner/control_link.h"

#include "base/file.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { PLAN_BYTES_MAX = 256 << 20, STRANGERS_MAX = 256 };

typedef struct options {
    weft_plan_options plan; /* `previous`: the plan in force at the start */
    const char *socket, *carbon, *control;
    uint64_t fd;
    double patience_s;
    bool check; /* only read the inputs */
} options;

typedef struct follower {
    const options *o;
    weft_plan_inputs in;
    weft_control_options control;
    weft_controller *controller;
    weft_control_link link;
    weft_diag *diag;
    weft_arena *given; /* has the plan in force, if somebody else made it */
    uint64_t generation, replans,
        pending; /* pending: generation of the change under way; 0: none */
    double carbon_g_per_kwh, carbon_at_s;
    WEFT_VEC(const char *) strangers; /* models outside of the set that were told; of the arena */
    weft_arena *arena;
    bool started;
} follower;

/* -- Requests --------------------------------------------------------------------------------- */

static weft_link_end call(follower *f, json_t *request, json_t **out)
{
    return weft_link_call(&f->link, request, f->o->patience_s, f->diag, out);
}

/* Prints a line that the router passes on to its own log. */
static void say(const char *text)
{
    fprintf(stderr, "control: %s\n", text);
}

/* Leaves a text for `explain`. A router that does not take it is no reason to end. */
static weft_link_end leave_note(follower *f, const char *text)
{
    json_t *answer = NULL;
    weft_link_end end = call(f, json_pack("{s:s, s:s}", "do", "note", "text", text), &answer);
    json_decref(answer);
    return end;
}

static weft_link_end note(follower *f, const char *prefix, const char *text)
{
    weft_buf line = {0};
    weft_buf_printf(&line, "%s%s", prefix, text);
    const char *all = line.failed ? text : line.at;
    say(all);
    weft_link_end end = leave_note(f, all);
    weft_buf_finish(&line);
    return end;
}

/* -- The plan in force ------------------------------------------------------------------------ */

/* Asks for the plan in force; the plan stays as it is if the router does not tell. */
static weft_link_end learn_plan(follower *f)
{
    json_t *answer = NULL;
    const char *why;
    weft_link_end end = call(f, json_pack("{s:s}", "do", "plan"), &answer);
    if (end != WEFT_LINK_OK)
        return end;
    json_t *json = weft_link_is_ok(answer, &why) ? json_object_get(answer, "plan") : NULL;
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    weft_arena *arena = text ? weft_arena_create(0) : NULL;
    if (arena) {
        weft_plan *plan = weft_arena_array(arena, 1, sizeof *plan);
        if (weft_plan_from_json(text, strlen(text), "router", arena, f->diag, plan) ==
            WEFT_ERR_OK) {
            weft_controller_replace(f->controller, plan);
            weft_arena_destroy(f->given);
            f->given = arena;
        } else {
            weft_tool_report(f->diag, WEFT_ERR_OK);
            weft_diag_clear(f->diag);
            weft_arena_destroy(arena);
        }
    }
    free(text);
    json_decref(answer);
    return WEFT_LINK_OK;
}

static json_t *apply_request(const weft_decision *d)
{
    char *text = NULL;
    if (weft_plan_to_json(d->plan, d->demands, &text) != WEFT_ERR_OK)
        return NULL;
    json_t *plan = json_loads(text, 0, NULL);
    free(text);
    return plan ? json_pack("{s:s, s:o}", "do", "apply", "plan", plan) : NULL;
}

static weft_link_end apply(follower *f, const weft_decision *d)
{
    json_t *answer = NULL;
    const char *why;
    weft_link_end end = call(f, apply_request(d), &answer);
    if (end != WEFT_LINK_OK)
        return end;
    const json_t *generation = json_object_get(answer, "generation");
    if (weft_link_is_ok(answer, &why) && json_is_integer(generation)) {
        f->pending = f->generation = (uint64_t)json_integer_value(generation);
    } else {
        weft_controller_undo(f->controller);
        end = note(f, "the router refuses the plan: ", why);
    }
    json_decref(answer);
    return end;
}

/* The change under way is over, or somebody else changed the plan. */
static weft_link_end follow_changes(follower *f, const weft_router_status *s)
{
    char took[64];
    if (f->pending && (s->changing || s->last_generation < f->pending))
        return WEFT_LINK_OK;
    bool own = f->pending && s->last_generation == f->pending;
    f->pending = 0;
    if (own && !s->last_ok) {
        weft_controller_undo(f->controller);
        f->generation = s->generation;
        weft_link_end end = note(f, "the change failed, what ran before goes on: ", s->last_error);
        return end == WEFT_LINK_OK ? learn_plan(f) : end;
    }
    if (own) {
        snprintf(took, sizeof took, "%.3g s", s->last_took_s);
        return note(f, "the plan is in force after ", took);
    }
    if (s->changing || s->generation == f->generation)
        return WEFT_LINK_OK;
    f->generation = s->generation;
    return learn_plan(f);
}

/* -- Observations ----------------------------------------------------------------------------- */

static void poll_carbon(follower *f, double now_s)
{
    if (!f->o->carbon || (f->carbon_at_s > 0 && now_s < f->carbon_at_s + f->control.carbon_s))
        return;
    f->carbon_at_s = now_s;
    if (weft_tool_poll_carbon(f->o->carbon, f->diag, &f->carbon_g_per_kwh) != WEFT_ERR_OK) {
        weft_tool_report(f->diag, WEFT_ERR_OK); /* the last value stays */
        weft_diag_clear(f->diag);
    }
}

static weft_link_end decide(follower *f, const weft_router_status *s)
{
    weft_decision d;
    weft_observation o = {.now_ns = (int64_t)(s->now_s * 1e9),
                          .at = s->count,
                          .n = s->n_count,
                          .carbon_g_per_kwh = f->carbon_g_per_kwh,
                          .changing = s->changing || f->pending,
                          .asked = f->started && s->replans > f->replans};
    if (o.asked && o.changing)
        o.asked = false; /* asked again when the change is over */
    else
        f->replans = s->replans;
    if (weft_controller_observe(f->controller, &o, f->diag, &d) != WEFT_ERR_OK) {
        const weft_message *m = weft_diag_count(f->diag) ? weft_diag_at(f->diag, 0) : NULL;
        weft_link_end end = note(f, "the policy fails: ", m ? m->text : "");
        weft_diag_clear(f->diag);
        return end;
    }
    if (d.action == WEFT_CONTROL_WAIT)
        return WEFT_LINK_OK;
    weft_link_end end = note(f, "", d.text);
    return end == WEFT_LINK_OK && d.action == WEFT_CONTROL_CHANGE ? apply(f, &d) : end;
}

static bool was_told(const follower *f, const char *name)
{
    for (uint32_t i = 0; i < f->strangers.len; i++)
        if (strcmp(f->strangers.at[i], name) == 0)
            return true;
    return false;
}

/* Says once of each model that has requests, but no place in the set, that nobody plans for it. */
static weft_link_end tell_strangers(follower *f, const weft_router_status *s)
{
    weft_link_end end = WEFT_LINK_OK;
    for (size_t i = 0; i < s->n_count && end == WEFT_LINK_OK; i++) {
        const weft_control_count *c = &s->count[i];
        if (c->arrivals == 0 || weft_controller_knows(f->controller, c->name) ||
            f->strangers.len == STRANGERS_MAX || was_told(f, c->name))
            continue;
        WEFT_VEC_PUSH(f->arena, &f->strangers, weft_arena_strdup(f->arena, c->name));
        end = note(f, c->name, " has requests and is not in the set: its load is not planned");
    }
    return end;
}

static weft_link_end step(follower *f, weft_arena *arena)
{
    json_t *answer = NULL;
    weft_router_status s;
    const char *why;
    weft_link_end end = call(f, json_pack("{s:s}", "do", "status"), &answer);
    if (end != WEFT_LINK_OK)
        return end;
    if (!weft_link_is_ok(answer, &why)) {
        (void)weft_diag_error(f->diag, WEFT_ERR_IO, (weft_where){0},
                              "the router refuses to tell its status: %s", why);
        end = WEFT_LINK_FAILED;
    } else if (weft_link_read_status(answer, arena, f->diag, &s) != WEFT_ERR_OK) {
        end = WEFT_LINK_FAILED;
    }
    if (end == WEFT_LINK_OK && !f->started) {
        f->generation = s.generation;
        end = learn_plan(f);
    } else if (end == WEFT_LINK_OK) {
        end = follow_changes(f, &s);
    }
    if (end == WEFT_LINK_OK)
        end = tell_strangers(f, &s);
    if (end == WEFT_LINK_OK && !s.draining) {
        poll_carbon(f, s.now_s);
        end = decide(f, &s);
        f->started = true;
    }
    json_decref(answer);
    return end;
}

/* -- The verb --------------------------------------------------------------------------------- */

static weft_err follow(follower *f)
{
    weft_link_end end = WEFT_LINK_OK;
    WEFT_TRY(weft_link_open(f->o->socket, (int)f->o->fd, f->diag, &f->link));
    while (end == WEFT_LINK_OK) {
        weft_arena *arena = weft_arena_create(0);
        if (!arena)
            return WEFT_ERR_NOMEM;
        end = step(f, arena);
        weft_arena_destroy(arena);
        if (end == WEFT_LINK_OK && !weft_link_sleep(&f->link, f->control.poll_s))
            end = WEFT_LINK_CLOSED;
    }
    return end == WEFT_LINK_CLOSED ? WEFT_ERR_OK : WEFT_ERR_IO;
}

/* The rates that the plan was made for, instead of those of the set. */
static void take_rates(const weft_demands *planned, weft_plan_inputs *in, weft_arena *arena)
{
    weft_demand *d = weft_arena_array(arena, in->demands.n + 1, sizeof *d);
    for (size_t i = 0; i < in->demands.n; i++) {
        d[i] = in->demands.at[i];
        for (size_t k = 0; k < planned->n; k++)
            if (strcmp(planned->at[k].model, d[i].model) == 0)
                d[i].rate_per_s = planned->at[k].rate_per_s;
    }
    in->demands.at = d;
}

static weft_err read_inputs(options *o, weft_arena *arena, weft_diag *diag, follower *f)
{
    weft_demands planned = {0};
    char *text = NULL;
    size_t len;
    const char *path = o->plan.previous;
    weft_plan *plan = weft_arena_array(arena, 1, sizeof *plan);
    o->plan.previous = NULL;
    f->control.policy = weft_policy_find(o->plan.policy);
    f->control.try_plan = weft_sim_try;
    weft_control_live(&f->control);
    if (o->control)
        WEFT_TRY(weft_control_parse(o->control, diag, &f->control));
    WEFT_TRY(weft_file_read(path, PLAN_BYTES_MAX, diag, &text, &len));
    weft_err err = weft_plan_from_json(text, len, path, arena, diag, plan);
    if (err == WEFT_ERR_OK)
        err = weft_plan_demands_from_json(text, len, path, arena, diag, &planned);
    free(text);
    WEFT_TRY(err);
    /* The rules and the goal of the first plan hold for the later ones. */
    o->plan.rules = plan->rules;
    o->plan.goal = plan->goal;
    WEFT_TRY(weft_tool_plan_inputs(&o->plan, arena, diag, &f->in));
    take_rates(&planned, &f->in, arena);
    WEFT_TRY(weft_policy_check(f->control.policy, f->in.problem.options, diag));
    WEFT_TRY(weft_controller_create(&f->control, &f->in.problem, plan, &f->controller));
    return o->check && o->carbon ? weft_tool_poll_carbon(o->carbon, diag, &f->carbon_g_per_kwh)
                                 : WEFT_ERR_OK;
}

static int take_policy(void *at, const weft_verb *verb, char *arg)
{
    *(const char **)at = arg;
    if (weft_policy_find(arg))
        return 0;
    return weft_tool_no_policy(verb, arg);
}

#define OPTIONS_OF_control
#define OPTIONS options
#include "tools/common/option_rows.h"

static int parse(int argc, char **argv, options *o)
{
    int code = weft_options_parse_one(&weft_tool_control, argc, argv, o, "set file", &o->plan.set);
    if (code >= 0)
        return code;
    if (!o->plan.fleet || !o->plan.previous || (!o->check && !o->socket && o->fd == 0))
        return weft_tool_usage(&weft_tool_control,
                               "--fleet, --plan, and --socket, --fd or --check are needed");
    return -1;
}

static int run_control(int argc, char **argv)
{
    static options o;
    o = (options){.patience_s = 10,
                  .plan = {.policy = "weft", .pipeline = {.run = {.verify = WEFT_VERIFY_OFF}}}};
    int code = parse(argc, argv, &o);
    if (code >= 0)
        return code;
    signal(SIGPIPE, SIG_IGN);
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    follower f = {.o = &o, .diag = diag, .arena = arena, .link = {.fd = -1}};
    weft_err err = diag && arena ? read_inputs(&o, arena, diag, &f) : WEFT_ERR_NOMEM;
    if (err == WEFT_ERR_OK && !o.check)
        err = follow(&f);
    weft_link_close(&f.link);
    weft_controller_destroy(f.controller);
    weft_arena_destroy(f.given);
    code = weft_tool_report(diag, err);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return code;
}

const weft_verb weft_tool_control = {.name = "control", .row = rows, .run = run_control};
