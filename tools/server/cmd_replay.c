/* weft replay: sends requests to a server at planned times, and reports the answers. */
#include "tools/server/replay.h"

#include "base/file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PLAN_BYTES_MAX = 256 << 20, KEY_BYTES_MAX = 4096 };

typedef struct options {
    const char *to, *trace, *set, *plan, *key_file, *compare;
    bool json, arrivals_given;
    double scale, speed, timeout_s, warmup_s, bucket_s;
    weft_arrivals_options arrivals;
    weft_tool_bindings input;
    uint32_t connections, connections_max;
} options;

static int take_arrivals(void *at, const weft_verb *verb, char *arg)
{
    options *o = at;
    (void)verb;
    o->arrivals_given = true;
    weft_arrival_kind_parse(arg, &o->arrivals.kind);
    return 0;
}

#define OPTIONS_OF_replay
#define OPTIONS options
#include "tools/common/option_rows.h"

/* -- Inputs ----------------------------------------------------------------------------------- */

/* The models, SLOs and rates of a set, or of a plan. */
static weft_err read_problem(const options *o, weft_arena *arena, weft_diag *diag,
                             weft_problem *out)
{
    weft_demands *demands = weft_arena_array(arena, 1, sizeof *demands);
    out->demands = demands;
    if (o->plan) {
        char *text = NULL;
        size_t len = 0;
        WEFT_TRY(weft_file_read(o->plan, PLAN_BYTES_MAX, diag, &text, &len));
        weft_err err = weft_plan_demands_from_json(text, len, o->plan, arena, diag, demands);
        free(text);
        WEFT_TRY(err);
    }
    if (!o->set)
        return WEFT_ERR_OK;
    weft_set set = {0};
    WEFT_TRY(weft_set_load(o->set, arena, diag, &set));
    weft_demand *demand = weft_arena_array(arena, set.n_model + 1, sizeof *demand);
    for (size_t i = 0; i < set.n_model; i++)
        demand[i] = weft_demand_of(&set.model[i], (weft_profile){0});
    *demands = (weft_demands){demand, set.n_model};
    out->app = set.app;
    out->n_app = set.n_app;
    return WEFT_ERR_OK;
}

/* As the simulator does: an app without an SLO has the tightest of its variants. */
static double slo_of(const weft_problem *problem, const char *name, bool app)
{
    for (size_t i = 0; !app && i < problem->demands->n; i++)
        if (strcmp(problem->demands->at[i].model, name) == 0)
            return problem->demands->at[i].slo_us;
    for (size_t i = 0; app && i < problem->n_app; i++) {
        const weft_set_app *a = &problem->app[i];
        if (strcmp(a->name, name) != 0)
            continue;
        double slo_us = a->slo_us;
        for (size_t k = 0; k < a->n_variant && !(a->slo_us > 0); k++) {
            double of = slo_of(problem, a->variant[k].model, false);
            if (of > 0 && (slo_us == 0 || of < slo_us))
                slo_us = of;
        }
        return slo_us;
    }
    return 0;
}

static void init_services(const weft_problem *problem, const weft_service *service, size_t n,
                          weft_arena *arena, weft_replay_report *r)
{
    r->service = weft_arena_array(arena, n + 1, sizeof *r->service);
    r->n_service = n;
    for (size_t i = 0; i < n; i++) {
        bool app = i >= problem->demands->n;
        r->service[i].name = service[i].name;
        r->service[i].app = app;
        r->service[i].slo_us = slo_of(problem, service[i].name, app);
    }
}

static weft_err open_arrivals(const options *o, const weft_service *service, size_t n,
                              weft_arena *arena, weft_diag *diag, weft_arrivals **out)
{
    double sum = 0;
    if (o->trace) {
        WEFT_TRY(weft_trace_open(o->trace, service, n, o->arrivals.seed, arena, diag, out));
    } else {
        weft_service *scaled = weft_arena_array(arena, n + 1, sizeof *scaled);
        for (size_t i = 0; i < n; i++) {
            scaled[i] = service[i];
            scaled[i].rate_per_s *= o->scale;
            sum += scaled[i].rate_per_s;
        }
        if (!(sum > 0))
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                                   "no model has a rate: give a TRACE, or a --set with rates");
        WEFT_TRY(weft_arrivals_generate(&o->arrivals, scaled, n, arena, diag, out));
    }
    if (o->speed != 1)
        weft_arrivals_speed(*out, o->speed, arena, out);
    return WEFT_ERR_OK;
}

static weft_err read_key(const char *path, weft_arena *arena, weft_diag *diag, const char **out)
{
    char *text = NULL;
    size_t len = 0;
    WEFT_TRY(weft_file_read(path, KEY_BYTES_MAX, diag, &text, &len));
    size_t n = strcspn(text, "\r\n"), good = 0;
    while (good < n && text[good] > ' ' && text[good] < 127)
        good++;
    weft_err err = WEFT_ERR_OK;
    if (n == 0 || good < n)
        err = weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = path},
                              "its first line is no key: printable ASCII without blanks");
    else
        *out = weft_arena_strndup(arena, text, n);
    free(text);
    return err;
}

/* -- The verb --------------------------------------------------------------------------------- */

/* The figures are worth little if requests left late. */
static void warn_of_lag(const weft_replay_report *r, weft_diag *diag)
{
    double slo_us = 0, lag_us = weft_replay_percentile_us(&r->lag, 0.99);
    for (size_t i = 0; i < r->n_service; i++)
        if (r->service[i].slo_us > 0 && (slo_us == 0 || r->service[i].slo_us < slo_us))
            slo_us = r->service[i].slo_us;
    double limit_us = slo_us > 0 ? slo_us / 100 : 1000;
    if (lag_us > limit_us)
        weft_diag_warn(diag, (weft_where){0},
                       "requests left up to %.3g ms late (p99), more than %.3g ms: this machine is "
                       "too busy, and latencies include it",
                       lag_us / 1e3, limit_us / 1e3);
    uint64_t asked = 0;
    for (size_t i = 0; i < r->n_service; i++)
        asked += r->service[i].count.requests;
    if (r->wait.n * 100 > asked)
        weft_diag_warn(diag, (weft_where){0},
                       "%llu of %llu requests waited for a connection: see --connections and "
                       "--max-connections",
                       (unsigned long long)r->wait.n, (unsigned long long)asked);
}

static weft_err write_report(const options *o, const weft_replay_report *r, const json_t *simulated,
                             weft_arena *arena)
{
    char *text = NULL;
    if (!o->json) {
        weft_replay_print(arena, r, simulated);
        return WEFT_ERR_OK;
    }
    WEFT_TRY(weft_replay_to_json(arena, r, simulated, &text));
    puts(text);
    free(text);
    return WEFT_ERR_OK;
}

static weft_err replay(const options *o, const json_t *simulated, weft_arena *arena,
                       weft_diag *diag, weft_replay_report *r)
{
    weft_problem problem = {0};
    weft_replay_target to;
    weft_arrivals *arrivals = NULL;
    const weft_service *service = NULL;
    const char *key = NULL;
    size_t n = 0;
    WEFT_TRY(read_problem(o, arena, diag, &problem));
    weft_sim_services(&problem, arena, &service, &n);
    init_services(&problem, service, n, arena, r);
    if (o->key_file)
        WEFT_TRY(read_key(o->key_file, arena, diag, &key));
    WEFT_TRY(weft_replay_resolve(o->to, arena, diag, &to));
    to.key = key;
    WEFT_TRY(weft_replay_make_messages(&to, &o->input, o->arrivals.seed, arena, diag, r));
    WEFT_TRY(open_arrivals(o, service, n, arena, diag, &arrivals));
    weft_replay_run_options run = {.connections = o->connections,
                                   .connections_max = o->connections_max,
                                   .timeout_ns = (int64_t)(o->timeout_s * 1e9)};
    if (o->arrivals.duration_s < 1e9)
        run.duration_ns = (int64_t)(o->arrivals.duration_s * 1e9);
    weft_err err = weft_replay_add_inside(&to, -1, diag, r);
    if (err == WEFT_ERR_OK)
        err = weft_replay_run(&to, &run, arrivals, arena, diag, r);
    weft_arrivals_close(arrivals);
    WEFT_TRY(err);
    if (weft_replay_add_inside(&to, 1, diag, r) != WEFT_ERR_OK)
        weft_diag_warn(diag, (weft_where){.item = o->to}, "its statistics cannot be read");
    warn_of_lag(r, diag);
    return write_report(o, r, simulated, arena);
}

static weft_err run_options(const options *o, weft_arena *arena, weft_diag *diag)
{
    json_t *simulated = NULL;
    weft_replay_report r = {.warm_ns = (int64_t)(o->warmup_s * 1e9),
                            .bucket_ns = (int64_t)(o->bucket_s * 1e9)};
    if (o->compare)
        WEFT_TRY(weft_replay_read_simulation(o->compare, diag, &simulated));
    weft_err err = replay(o, simulated, arena, diag, &r);
    for (size_t i = 0; i < r.n_service; i++)
        for (uint32_t k = 0; k < r.service[i].n_message; k++)
            weft_buf_finish(&r.service[i].message[k]);
    json_decref(simulated);
    return err;
}

static int check(options *o, int argc, char **argv)
{
    if (argc - optind > 1)
        return weft_tool_usage(&weft_verb_replay, "takes at most one trace");
    o->trace = optind < argc ? argv[optind] : NULL;
    if (!o->to)
        return weft_tool_usage(&weft_verb_replay, "needs --to HOST:PORT");
    if (!o->set == !o->plan)
        return weft_tool_usage(&weft_verb_replay, "needs --set or --plan, not both");
    if (o->trace && o->arrivals_given)
        return weft_tool_usage(&weft_verb_replay, "a trace and --arrivals exclude each other");
    if (o->connections > o->connections_max)
        o->connections_max = o->connections;
    if (!(o->timeout_s > 0 && o->timeout_s <= 3600) || !(o->speed > 0) ||
        !(o->bucket_s == 0 || o->bucket_s >= 1e-3) || !(o->warmup_s <= 1e6))
        return weft_tool_usage(&weft_verb_replay,
                               "--timeout is above 0 and at most an hour, --speed above 0, "
                               "--bucket at least 1ms, --warmup at most 1e6 s");
    if (!(o->arrivals.duration_s > 0))
        o->arrivals.duration_s = o->trace ? 1e9 : 60;
    return -1;
}

static int run_replay(int argc, char **argv)
{
    static options o;
    o = (options){.scale = 1,
                  .speed = 1,
                  .timeout_s = 30,
                  .connections = 16,
                  .connections_max = 1024,
                  .arrivals = {.seed = 1}};
    int code = weft_options_parse(&weft_verb_replay, argc, argv, &o);
    if (code < 0)
        code = check(&o, argc, argv);
    if (code >= 0)
        return code;
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    weft_err err = diag && arena ? run_options(&o, arena, diag) : WEFT_ERR_NOMEM;
    code = weft_tool_report(diag, err);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return code;
}

const weft_verb weft_verb_replay = {.name = "replay", .row = rows, .run = run_replay};
