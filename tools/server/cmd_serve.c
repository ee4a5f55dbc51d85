/* weft serve: serves a bundle by the Open Inference Protocol. */
#include "base/file.h"
#include "base/num.h"
#include "runtime/server/server.h"
#include "tools/server/serve_follow.h"
#include "tools/server/serve_repository.h"
#include "tools/server/serve_slices.h"
#include "tools/common/tools.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUNDLES_MAX = 256 };

typedef struct options {
    weft_serve_options serve;
    weft_serve_bundle bundle[BUNDLES_MAX];
    weft_slices_options cut;
    int64_t cores[WEFT_SLICES_MAX];   /* of each CPU slice */
    uint32_t device[WEFT_SLICES_MAX]; /* devices of the plan to serve */
    double queue_delay_s, poll_s;
    weft_follow_options follow;
} options;

/* -- Options -------------------------------------------------------------------------------- */

static int take_port(void *at, const weft_verb *verb, char *arg)
{
    weft_serve_port *where = at;
    int64_t port = -1;
    *where = (weft_serve_port){.port = -1};
    if (strncmp(arg, "unix:", 5) == 0 && arg[5])
        where->path = arg + 5;
    else if (strcmp(arg, "off") != 0 && (!weft_parse_i64(arg, &port) || port < 0 || port > 65535))
        return weft_tool_usage(
            verb, "wrong port '%s': a number up to 65535, 'off' or unix:PATH is expected", arg);
    where->port = (int)port;
    return 0;
}

static int take_connections(void *at, const weft_verb *verb, char *arg)
{
    int64_t n = 0;
    if (!weft_parse_i64(arg, &n) || n < 1 || n > UINT32_MAX)
        return weft_tool_usage(verb, "wrong number of connections '%s'", arg);
    *(uint32_t *)at = (uint32_t)n;
    return 0;
}

static int take_restriction(void *at, const weft_verb *verb, char *arg)
{
    weft_serve_restrictions *list = at;
    if (list->n == WEFT_RESTRICTIONS_MAX)
        return weft_tool_usage(verb, "more restrictions than API groups");
    list->text[list->n++] = arg;
    return 0;
}

static int take_slices(void *at, const weft_verb *verb, char *arg)
{
    options *o = at;
    o->cut.cores = o->cores;
    o->cut.n_cores = weft_tool_parse_list(arg, o->cores, WEFT_SLICES_MAX);
    return o->cut.n_cores
               ? 0
               : weft_tool_usage(verb, "--slices takes numbers of cores like 2,2, not '%s'", arg);
}

static int take_request_bytes(void *at, const weft_verb *verb, char *arg)
{
    weft_serve_options *serve = at;
    if (weft_parse_bytes(arg, &serve->max_request_bytes) && serve->max_request_bytes)
        return 0;
    return weft_tool_usage(verb, "--max-request takes bytes such as 64MiB, not '%s'", arg);
}

static int take_adapter_memory(void *at, const weft_verb *verb, char *arg)
{
    weft_serve_options *serve = at;
    if (weft_parse_bytes(arg, &serve->adapter_memory) && serve->adapter_memory)
        return 0;
    return weft_tool_usage(verb, "--adapter-memory takes bytes such as 256MiB, not '%s'", arg);
}

static int take_memory(void *at, const weft_verb *verb, char *arg)
{
    weft_serve_options *serve = at;
    if (strcmp(arg, "off") == 0) {
        serve->worker_memory = WEFT_MEMORY_UNLIMITED;
        return 0;
    }
    if (weft_parse_bytes(arg, &serve->worker_memory) && serve->worker_memory &&
        serve->worker_memory <= INT64_MAX)
        return 0;
    return weft_tool_usage(verb, "--worker-memory takes bytes such as 4GiB or off, not '%s'", arg);
}

static int take_admission(void *at, const weft_verb *verb, char *arg)
{
    static const char *const modes[] = {[WEFT_ADMISSION_MODEL] = "model",
                                        [WEFT_ADMISSION_SLO] = "slo",
                                        [WEFT_ADMISSION_NONE] = "none"};
    weft_serve_options *serve = at;
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++)
        if (strcmp(arg, modes[i]) == 0) {
            serve->admission = (weft_admission_mode)i;
            return 0;
        }
    return weft_tool_usage(verb, "--admission is model, slo or none, not '%s'", arg);
}

static int take_log_format(void *at, const weft_verb *verb, char *arg)
{
    weft_serve_options *serve = at;
    serve->log_json = strcmp(arg, "json") == 0;
    return serve->log_json || strcmp(arg, "text") == 0
               ? 0
               : weft_tool_usage(verb, "--log-format is text or json, not '%s'", arg);
}

static int take_log_level(void *at, const weft_verb *verb, char *arg)
{
    static const char *const levels[] = {"error", "warn", "info", "access"};
    weft_serve_options *serve = at;
    for (int i = 0; i < 4; i++)
        if (strcmp(arg, levels[i]) == 0) {
            serve->log_level = (weft_log_level)i;
            return 0;
        }
    return weft_tool_usage(verb, "--log-level is error, warn, info or access, not '%s'", arg);
}

/* "0,2": indices of devices of the plan. */
static int take_devices(void *at_options, const weft_verb *verb, char *arg)
{
    options *o = at_options;
    o->cut.device = o->device;
    o->cut.n_device = 0;
    for (const char *at = arg;; at++) {
        char *end;
        unsigned long x = strtoul(at, &end, 10);
        if (*at < '0' || *at > '9' || x > UINT32_MAX || o->cut.n_device == WEFT_SLICES_MAX ||
            (*end && *end != ','))
            return weft_tool_usage(verb, "--devices takes numbers like 0,1, not '%s'", arg);
        o->device[o->cut.n_device++] = (uint32_t)x;
        at = end;
        if (!*at)
            return 0;
    }
}

#define OPTIONS_OF_serve
#define OPTIONS options
#include "tools/common/option_rows.h"

/* A plan is JSON: its first character tells it from a bundle. */
static bool is_plan(const char *path)
{
    size_t len = strlen(path);
    FILE *f = strcmp(path, "-") == 0 ? NULL : fopen(path, "rb");
    if (!f)
        return strcmp(path, "-") == 0 || (len > 5 && strcmp(path + len - 5, ".json") == 0);
    int c = getc(f);
    while (c == ' ' || c == '\t' || c == '\r' || c == '\n')
        c = getc(f);
    fclose(f);
    return c == '{';
}

/* BUNDLE, BUNDLE@VERSION or BUNDLE@VERSION:WEIGHT; writes a NUL at the end of each part. */
static int take_bundle(options *o, char *arg)
{
    weft_serve_bundle *b = &o->bundle[o->serve.n_bundle];
    if (weft_file_is_folder(arg))
        return weft_tool_usage(
            &weft_verb_serve, "%s is a folder: --repository %s serves the bundles in it", arg, arg);
    char *at = strrchr(arg, '@'), *colon = at ? strchr(at, ':') : NULL;
    if (o->serve.n_bundle++ == BUNDLES_MAX)
        return weft_tool_usage(&weft_verb_serve, "more than %d bundles", BUNDLES_MAX);
    *b = (weft_serve_bundle){.path = arg};
    if (!at || access(arg, F_OK) == 0)
        return -1;
    *at = '\0';
    b->version = at + 1;
    if (colon) {
        *colon = '\0';
        b->has_weight = true;
        if (!weft_parse_f64(colon + 1, &b->weight) || !(b->weight >= 0 && b->weight <= 1e6))
            return weft_tool_usage(&weft_verb_serve, "wrong weight '%s' of %s", colon + 1, arg);
    }
    return weft_serve_is_version(b->version)
               ? -1
               : weft_tool_usage(&weft_verb_serve,
                                 "wrong version '%s' of %s: versions are numbers from 1 on",
                                 b->version, arg);
}

static int take_arguments(options *o, char **arg, int n)
{
    bool may_be_empty = o->serve.repository || o->serve.state;
    o->serve.bundle = o->bundle;
    if ((n > 1 || (n > 0 && may_be_empty)) && is_plan(arg[n - 1]))
        o->cut.plan = arg[--n];
    for (int i = 0; i < n; i++) {
        int code = take_bundle(o, arg[i]);
        if (code >= 0)
            return code;
    }
    return n > 0 || may_be_empty
               ? -1
               : weft_tool_usage(&weft_verb_serve, "name bundles, and optionally a plan; without "
                                                   "a bundle --repository or --state is needed");
}

/* The socket that `weft ctl` asks by default. */
static int find_socket(options *o)
{
    static char path[108];
    const char *folder = getenv("XDG_RUNTIME_DIR");
    if (!o->serve.control.path || strcmp(o->serve.control.path, "auto") != 0)
        return -1;
    int n = folder && *folder ? snprintf(path, sizeof path, "%s/weft.control", folder) : -1;
    o->serve.control.path = path;
    return n > 0 && n < (int)sizeof path
               ? -1
               : weft_tool_usage(&weft_verb_serve, "--control auto needs XDG_RUNTIME_DIR");
}

/* Returns -1 to go on, or an exit code. */
static int parse(int argc, char **argv, options *o)
{
    int code = weft_options_parse(&weft_verb_serve, argc, argv, o);
    if (code >= 0)
        return code;
    o->serve.max_queue_delay_us = o->queue_delay_s * 1e6;
    code = take_arguments(o, argv + optind, argc - optind);
    if (code < 0)
        code = find_socket(o);
    if (code >= 0)
        return code;
    if (o->cut.plan && o->cut.n_cores)
        return weft_tool_usage(&weft_verb_serve, "--slices and a plan exclude each other");
    const weft_follow_options *f = &o->follow;
    if (f->policy && (!f->set || !f->fleet || o->cut.n_cores))
        return weft_tool_usage(&weft_verb_serve,
                               "--policy needs --set and --fleet, and excludes --slices");
    if (!f->policy && (f->set || f->fleet || f->policy_options || f->control_options || f->carbon))
        return weft_tool_usage(&weft_verb_serve, "--set, --fleet, --policy-options, "
                                                 "--control-options and --carbon are for --policy");
    if (o->poll_s > 0 && !o->serve.repository)
        return weft_tool_usage(&weft_verb_serve, "--poll is for --repository");
    if (!o->cut.plan && !f->policy &&
        (o->cut.n_device || o->cut.start_mps || o->cut.reconfigure_mig))
        return weft_tool_usage(&weft_verb_serve,
                               "--devices, --mps and --reconfigure-mig need a plan");
    return -1;
}

/* -- The verb ------------------------------------------------------------------------------- */

/* " http=PORT" or " http=unix:PATH". */
static void print_port(const char *name, const weft_serve_port *where, int port)
{
    if (where->path)
        printf(" %s=unix:%s", name, where->path);
    else
        printf(" %s=%d", name, port);
}

static void on_ready(void *user, int http_port, int grpc_port, int metrics_port, int health_port)
{
    const weft_serve_options *serve = user;
    printf("READY");
    print_port("http", &serve->http, http_port);
    print_port("grpc", &serve->grpc, grpc_port);
    print_port("metrics", &serve->metrics, metrics_port);
    if (serve->health.path || serve->health.port >= 0)
        print_port("health", &serve->health, health_port);
    printf(" pid=%ld\n", (long)getpid());
    fflush(stdout);
}

static weft_err make_slices(void *user, const weft_plan *plan, weft_arena *arena, weft_diag *diag,
                            const weft_serve_slice **out, uint32_t *out_n)
{
    return weft_slices_remake(user, plan, arena, diag, out, out_n);
}

/* A server on GPUs makes the slices of the plan that its state has, and of no other one: the
 * machine is changed once. */
static weft_err make_first_slices(options *o, weft_arena *arena, weft_diag *diag,
                                  weft_slices *slices)
{
    const char *text = NULL;
    if (o->serve.state && o->cut.plan)
        WEFT_TRY(weft_serve_plan_of_state(o->serve.state, arena, diag, &text));
    o->cut.plan_text = text;
    if (text && weft_slices_make(&o->cut, arena, diag, slices) == WEFT_ERR_OK)
        return WEFT_ERR_OK;
    if (text) { /* which of the errors is told when the state is restored */
        weft_slices_end(slices, diag);
        weft_diag_clear(diag);
        slices->n = 0;
    }
    o->cut.plan_text = NULL;
    return weft_slices_make(&o->cut, arena, diag, slices);
}

/* Makes the first plan, and starts what follows the load. */
static weft_err start_following(options *o, weft_arena *arena, weft_diag *diag, weft_follow *out)
{
    if (!o->follow.policy)
        return WEFT_ERR_OK;
    WEFT_TRY(weft_follow_prepare(&o->follow, o->cut.plan, o->serve.control.path, arena, diag, out));
    o->cut.plan = out->plan;
    o->serve.control.path = out->socket;
    o->serve.plans_ahead = true;
    return weft_follow_start(&o->follow, arena, diag, out);
}

/* Compiles a repository of models that are not compiled, and has it served. Its models take the
 * place that a state would have. */
static weft_err compile_repository(options *o, weft_arena *arena, weft_diag *diag,
                                   weft_triton **out)
{
    const char *folder = o->serve.repository, *bundle = NULL;
    const weft_where where = {.file = folder};
    if (!folder || !weft_triton_is_for(folder))
        return o->poll_s > 0
                   ? weft_diag_error(diag, WEFT_ERR_INPUT, where,
                                     "has no models to compile: --poll looks at a model repository")
                   : WEFT_ERR_OK;
    if (o->serve.state)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                               "is compiled at each start, so there is no --state to keep; compile "
                               "it by weft compile, and serve the bundle");
    if (o->serve.require_signature)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                               "is compiled at each start, so there is no bundle to sign; compile "
                               "it by weft compile, sign the bundle, and serve it");
    if (o->serve.n_bundle == BUNDLES_MAX)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "more than %d bundles", BUNDLES_MAX);
    WEFT_TRY(weft_triton_begin(folder, arena, diag, &bundle, out));
    o->bundle[o->serve.n_bundle++] = (weft_serve_bundle){.path = bundle};
    o->serve.source = weft_triton_source(*out, o->poll_s);
    return WEFT_ERR_OK;
}

static weft_err serve(options *o, weft_arena *arena, weft_diag *diag)
{
    static char exe[4096];
    ssize_t len = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (len <= 0)
        return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){0}, "/proc/self/exe is missing");
    exe[len] = '\0';
    o->serve.exe = exe;
    o->serve.on_ready = on_ready;
    o->serve.user = &o->serve;
    /* SIGTERM, SIGINT and SIGHUP are blocked from here on: the server reads them, so that daemons
     * and workers that were started are also stopped. */
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGHUP);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    /* Whoever starts the server may have it ignore SIGCHLD: how children end would be lost. */
    signal(SIGCHLD, SIG_DFL);
    static weft_slices slices;
    weft_follow follow = {0};
    weft_triton *repository = NULL;
    weft_err err = compile_repository(o, arena, diag, &repository);
    if (err == WEFT_ERR_OK)
        err = start_following(o, arena, diag, &follow);
    if (err == WEFT_ERR_OK)
        err = make_first_slices(o, arena, diag, &slices);
    o->serve.slice = slices.at;
    o->serve.n_slice = slices.n;
    if (o->cut.plan && slices.n) {
        o->serve.control.make_slices = make_slices;
        o->serve.control.steps = slices.gpus ? &weft_slices_steps : NULL;
        o->serve.control.user = &slices;
    }
    if (err == WEFT_ERR_OK) {
        /* Warnings are printed before the server starts, not when it ends. */
        weft_tool_report(diag, err);
        weft_diag_clear(diag);
        err = weft_serve(&o->serve, diag);
    }
    weft_follow_end(&follow);
    weft_slices_end(&slices, diag);
    weft_triton_end(repository);
    return err;
}

static int run_serve(int argc, char **argv)
{
    static options o = {.serve = {.http = {.port = 8000},
                                  .grpc = {.port = 8001},
                                  .metrics = {.port = 8002},
                                  .health = {.port = -1},
                                  .trace_rate = 1,
                                  .log_level = WEFT_LOG_WARN}};
    int code = parse(argc, argv, &o);
    if (code >= 0)
        return code;
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    code = weft_tool_report(diag, diag && arena ? serve(&o, arena, diag) : WEFT_ERR_NOMEM);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return code;
}

const weft_verb weft_verb_serve = {.name = "serve", .row = rows, .run = run_serve};
