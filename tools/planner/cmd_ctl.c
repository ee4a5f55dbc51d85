/* weft ctl: asks a running server over its control socket, and changes its plan. */
#include "tools/common/options.h"
#include "tools/common/tools.h"
#include "tools/planner/control_link.h"

#include "base/file.h"
#include "base/nearest.h"
#include "base/num.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PLAN_BYTES_MAX = 4 << 20 };
static const double poll_s = 0.05;

typedef struct options {
    bool json, no_wait;
    double patience_s;
    const char *socket, *version;
    double weight; /* < 0: not given */
} options;

enum { SOCKET_PATH_MAX = 108 };

typedef struct client {
    const options *o;
    char **argument; /* of the command */
    int n_argument;
    const char *file; /* the first; NULL: none */
    weft_control_link link;
    weft_arena *arena;
    weft_diag *diag;
} client;

/* -- Requests --------------------------------------------------------------------------------- */

static weft_err ask(client *c, json_t *request, json_t **out)
{
    const char *why;
    weft_link_end end = weft_link_call(&c->link, request, c->o->patience_s, c->diag, out);
    if (end == WEFT_LINK_CLOSED)
        return weft_diag_error(c->diag, WEFT_ERR_IO, (weft_where){0},
                               "the server has closed the connection");
    if (end != WEFT_LINK_OK)
        return WEFT_ERR_IO;
    if (weft_link_is_ok(*out, &why))
        return WEFT_ERR_OK;
    weft_err err =
        weft_diag_error(c->diag, WEFT_ERR_INPUT, (weft_where){0}, "the server refuses: %s", why);
    json_decref(*out);
    *out = NULL;
    return err;
}

static weft_err print_json(const json_t *value, size_t flags)
{
    char *text = json_dumps(value, flags);
    if (!text)
        return WEFT_ERR_NOMEM;
    puts(text);
    free(text);
    return WEFT_ERR_OK;
}

/* -- Status ----------------------------------------------------------------------------------- */

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static long long number_of(const json_t *object, const char *key)
{
    return (long long)json_integer_value(json_object_get(object, key));
}

static void print_models(const json_t *models)
{
    size_t i;
    json_t *m;
    printf("%-20s %-7s %-6s %-5s %7s %10s %10s %8s %8s %8s\n", "model", "version", "weight",
           "ready", "queue", "arrivals", "answered", "late", "refused", "failed");
    json_array_foreach(models, i, m)
    {
        bool ready = json_is_true(json_object_get(m, "ready"));
        printf("%-20s %-7s %-6.4g %-5s %7lld %10lld %10lld %8lld %8lld %8lld\n",
               text_of(m, "model"), text_of(m, "version"),
               json_number_value(json_object_get(m, "weight")), ready ? "yes" : "no",
               number_of(m, "queue"), number_of(m, "arrivals"), number_of(m, "answered"),
               number_of(m, "late"), number_of(m, "refused"), number_of(m, "failed"));
        if (!ready && *text_of(m, "why"))
            printf("  %s\n", text_of(m, "why"));
    }
}

static void print_workers(const json_t *workers)
{
    size_t i, k;
    json_t *w;
    const json_t *model;
    printf("%-20s %-9s %8s %8s  %s\n", "slice", "state", "pid", "restarts", "models");
    json_array_foreach(workers, i, w)
    {
        const json_t *models = json_object_get(w, "models");
        bool draining = json_is_true(json_object_get(w, "draining"));
        printf("%-20s %-9s %8lld %8lld ", *text_of(w, "slice") ? text_of(w, "slice") : "all CPUs",
               draining ? "draining" : text_of(w, "state"), number_of(w, "pid"),
               number_of(w, "restarts"));
        json_array_foreach(models, k, model) printf(" %s", json_string_value(model));
        puts(json_array_size(models) ? "" : " all");
        if (*text_of(w, "why"))
            printf("  %s\n", text_of(w, "why"));
    }
}

static void print_missing(const json_t *missing)
{
    size_t i;
    json_t *b;
    json_array_foreach(missing, i, b)
    {
        printf("not served: %s, version %s: %s\n", text_of(b, "bundle"), text_of(b, "version"),
               text_of(b, "why"));
    }
}

static void print_status(const json_t *status)
{
    const json_t *last = json_object_get(status, "last_change");
    printf("state %s, generation %lld\n", text_of(status, "state"),
           number_of(status, "generation"));
    if (last && json_is_true(json_object_get(last, "ok")))
        printf("last change: generation %lld in force after %.3g s\n",
               number_of(last, "generation"), json_number_value(json_object_get(last, "took_s")));
    else if (last)
        printf("last change: generation %lld undone: %s\n", number_of(last, "generation"),
               text_of(last, "error"));
    if (*text_of(status, "state_error"))
        printf("%s\n", text_of(status, "state_error"));
    print_models(json_object_get(status, "models"));
    print_workers(json_object_get(status, "workers"));
    print_missing(json_object_get(status, "missing"));
}

static void print_adapters(const json_t *adapters)
{
    size_t i;
    json_t *a;
    printf("%-20s %-20s %-8s %12s %10s %8s  %s\n", "model", "adapter", "from", "bytes", "answered",
           "failed", "folder");
    json_array_foreach(adapters, i, a)
    {
        printf("%-20s %-20s %-8s %12lld %10lld %8lld  %s\n", text_of(a, "model"),
               text_of(a, "adapter"), text_of(a, "from"), number_of(a, "bytes"),
               number_of(a, "answered"), number_of(a, "failed"), text_of(a, "path"));
    }
}

/* -- Changes ---------------------------------------------------------------------------------- */

/* Waits until the change to `generation` is over. */
static weft_err wait_for(client *c, uint64_t generation, double *out_took_s)
{
    weft_tool_progress("bringing generation %llu into force", (unsigned long long)generation);
    for (;;) {
        json_t *answer = NULL;
        weft_router_status s;
        WEFT_TRY(ask(c, json_pack("{s:s}", "do", "status"), &answer));
        weft_err err = weft_link_read_status(answer, c->arena, c->diag, &s);
        bool over = err == WEFT_ERR_OK && s.last_generation >= generation;
        *out_took_s = s.last_took_s;
        if (over && s.last_generation > generation)
            err = weft_diag_error(c->diag, WEFT_ERR_IO, (weft_where){0},
                                  "another change followed; `status` tells of it");
        else if (over && !s.last_ok)
            err = weft_diag_error(c->diag, WEFT_ERR_IO, (weft_where){.file = c->file},
                                  "the change was undone: %s", s.last_error);
        json_decref(answer);
        if (err != WEFT_ERR_OK || over)
            return err;
        weft_link_sleep(&c->link, poll_s);
    }
}

static weft_err apply_plan(client *c)
{
    char *text = NULL;
    size_t len = 0;
    double took_s = 0;
    json_t *answer = NULL;
    json_error_t error;
    WEFT_TRY(weft_file_read(c->file, PLAN_BYTES_MAX, c->diag, &text, &len));
    json_t *plan = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (!plan)
        return weft_diag_error(c->diag, WEFT_ERR_INPUT, (weft_where){.file = c->file},
                               "is not JSON: line %d: %s", error.line, error.text);
    WEFT_TRY(ask(c, json_pack("{s:s, s:o}", "do", "apply", "plan", plan), &answer));
    uint64_t generation = (uint64_t)number_of(answer, "generation");
    weft_err err = c->o->json ? print_json(answer, JSON_COMPACT) : WEFT_ERR_OK;
    json_decref(answer);
    if (err == WEFT_ERR_OK && !c->o->no_wait)
        err = wait_for(c, generation, &took_s);
    weft_tool_progress(NULL);
    if (err == WEFT_ERR_OK && !c->o->json)
        printf(c->o->no_wait ? "generation %llu\n" : "generation %llu is in force after %.3g s\n",
               (unsigned long long)generation, took_s);
    return err;
}

/* -- Bundles ---------------------------------------------------------------------------------- */

/* Waits until an operation is over, and tells of it. */
static weft_err wait_for_operation(client *c, long long number)
{
    weft_tool_progress("waiting for operation %lld", number);
    for (;;) {
        json_t *answer = NULL;
        WEFT_TRY(ask(c, json_pack("{s:s}", "do", "status"), &answer));
        const json_t *last = json_object_get(answer, "last_operation");
        long long at = number_of(last, "operation");
        weft_err err = WEFT_ERR_OK;
        if (at == number && !json_is_true(json_object_get(last, "ok")))
            err = weft_diag_error(c->diag, WEFT_ERR_IO, (weft_where){.file = c->file},
                                  "not done: %s", text_of(last, "error"));
        json_decref(answer);
        if (at > number)
            err = weft_diag_error(c->diag, WEFT_ERR_IO, (weft_where){0},
                                  "other changes followed; `status` tells of them");
        if (at >= number || err != WEFT_ERR_OK)
            return err;
        weft_link_sleep(&c->link, poll_s);
    }
}

static weft_err operate(client *c, json_t *request)
{
    json_t *answer = NULL;
    WEFT_TRY(ask(c, request, &answer));
    long long number = number_of(answer, "operation");
    weft_err err = c->o->json ? print_json(answer, JSON_COMPACT) : WEFT_ERR_OK;
    json_decref(answer);
    return err != WEFT_ERR_OK || c->o->no_wait ? err : wait_for_operation(c, number);
}

static void add_text(json_t *request, const char *key, const char *text)
{
    if (text)
        json_object_set_new(request, key, json_string(text));
}

/* The adapter in a name MODEL@ADAPTER, which is cut; NULL: it is none. */
static char *cut_adapter(char *name)
{
    char *mark = strchr(name, '@');
    if (!mark || strchr(name, '/'))
        return NULL;
    *mark = '\0';
    return mark + 1;
}

static weft_err find_path(client *c, const char *file, char **out)
{
    *out = realpath(file, NULL);
    return *out ? WEFT_ERR_OK
                : weft_diag_error(c->diag, WEFT_ERR_IO, (weft_where){.file = file},
                                  "cannot be opened: %s", strerror(errno));
}

/* MODEL@ADAPTER FOLDER */
static weft_err load_adapter(client *c)
{
    char *path, *adapter = cut_adapter(c->argument[0]);
    if (!adapter || c->o->version || c->o->weight >= 0)
        return weft_diag_error(c->diag, WEFT_ERR_INPUT, (weft_where){0},
                               "load takes BUNDLE, or MODEL@ADAPTER FOLDER without version and "
                               "weight");
    WEFT_TRY(find_path(c, c->argument[1], &path));
    json_t *request = json_pack("{s:s, s:s, s:s, s:s}", "do", "load_adapter", "model",
                                c->argument[0], "adapter", adapter, "path", path);
    free(path);
    return operate(c, request);
}

static weft_err load_bundle(client *c)
{
    char *path;
    if (c->n_argument == 2)
        return load_adapter(c);
    WEFT_TRY(find_path(c, c->file, &path));
    json_t *request = json_pack("{s:s, s:s}", "do", "load", "bundle", path);
    add_text(request, "version", c->o->version);
    if (c->o->weight >= 0)
        json_object_set_new(request, "weight", json_real(c->o->weight));
    free(path);
    return operate(c, request);
}

static weft_err unload_bundle(client *c)
{
    char *path = realpath(c->file, NULL), *adapter = path ? NULL : cut_adapter(c->argument[0]);
    if (adapter)
        return operate(c, json_pack("{s:s, s:s, s:s}", "do", "unload_adapter", "model",
                                    c->argument[0], "adapter", adapter));
    json_t *request = json_pack("{s:s, s:s}", "do", "unload", "name", c->file);
    add_text(request, "path", path ? path : c->file);
    add_text(request, "version", c->o->version);
    free(path);
    return operate(c, request);
}

/* MODEL VERSION=WEIGHT... */
static weft_err set_weights(client *c)
{
    for (int i = 1; i < c->n_argument; i++) {
        char *version = c->argument[i], *equals = strchr(version, '=');
        double weight;
        if (!equals || !weft_parse_f64(equals + 1, &weight))
            return weft_diag_error(c->diag, WEFT_ERR_INPUT, (weft_where){0},
                                   "'%s' is not VERSION=WEIGHT", version);
        *equals = '\0';
        WEFT_TRY(operate(c, json_pack("{s:s, s:s, s:s, s:f}", "do", "weigh", "model", c->file,
                                      "version", version, "weight", weight)));
    }
    return WEFT_ERR_OK;
}

/* -- The commands ----------------------------------------------------------------------------- */

static weft_err ask_for(client *c, const char *command)
{
    json_t *answer = NULL;
    WEFT_TRY(ask(c, json_pack("{s:s}", "do", command), &answer));
    weft_err err = WEFT_ERR_OK;
    if (c->o->json)
        err = print_json(answer, JSON_COMPACT);
    else if (strcmp(command, "status") == 0)
        print_status(answer);
    else if (strcmp(command, "adapters") == 0)
        print_adapters(json_object_get(answer, "adapters"));
    else if (strcmp(command, "plan") == 0)
        err = print_json(json_object_get(answer, "plan"), JSON_INDENT(2));
    else if (strcmp(command, "explain") == 0)
        puts(text_of(answer, "text"));
    json_decref(answer);
    return err;
}

/* A command, how many arguments it takes, and what does it; NULL: it is asked for by its name. */
static const struct command_row {
    const char *name;
    int least, most;
    weft_err (*run)(client *c);
} commands[] = {
    {"status", 0, 0, NULL},   {"plan", 0, 1, apply_plan},      {"load", 1, 2, load_bundle},
    {"adapters", 0, 0, NULL}, {"unload", 1, 1, unload_bundle}, {"weights", 2, 256, set_weights},
    {"replan", 0, 0, NULL},   {"drain", 0, 0, NULL},           {"explain", 0, 0, NULL}};

static const char *command_at(size_t i, const void *user)
{
    (void)user;
    return i < sizeof commands / sizeof commands[0] ? commands[i].name : NULL;
}

static const struct command_row *find_command(const char *name)
{
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(name, commands[i].name) == 0)
            return &commands[i];
    return NULL;
}

static weft_err run_command(client *c, const struct command_row *command)
{
    return command->run && c->n_argument > 0 ? command->run(c) : ask_for(c, command->name);
}

/* -- The verb --------------------------------------------------------------------------------- */

#define OPTIONS_OF_ctl
#define OPTIONS options
#include "tools/common/option_rows.h"

/* The socket of `weft serve --control auto`. false: the environment names no folder for it. */
static bool default_socket(char out[SOCKET_PATH_MAX])
{
    const char *folder = getenv("XDG_RUNTIME_DIR");
    int n = folder && *folder ? snprintf(out, SOCKET_PATH_MAX, "%s/weft.control", folder) : -1;
    return n > 0 && n < SOCKET_PATH_MAX;
}

/* [SOCKET] COMMAND [ARGUMENT...]. Returns -1 to go on, or an exit code. */
static int parse(int argc, char **argv, options *o, client *c, const struct command_row **out,
                 char socket[SOCKET_PATH_MAX])
{
    char known[WEFT_NEAREST_BYTES_MAX];
    int code = weft_options_parse(&weft_verb_ctl, argc, argv, o), at = optind;
    if (code >= 0)
        return code;
    if (!o->socket && at < argc && !find_command(argv[at]))
        o->socket = argv[at++];
    if (!o->socket && at < argc && default_socket(socket))
        o->socket = socket;
    if (!o->socket || at == argc)
        return weft_tool_usage(&weft_verb_ctl,
                               "name a control socket (weft serve --control) and a command");
    *out = find_command(argv[at]);
    if (!*out)
        return weft_tool_usage(&weft_verb_ctl, "no command '%s'%s", argv[at],
                               weft_nearest_say(argv[at], command_at, NULL, known));
    c->argument = argv + at + 1;
    c->n_argument = argc - at - 1;
    c->file = c->n_argument ? c->argument[0] : NULL;
    if (c->n_argument > (*out)->most && (*out)->most == 0)
        return weft_tool_usage(&weft_verb_ctl, "'%s' takes no argument", argv[at]);
    if (c->n_argument < (*out)->least || c->n_argument > (*out)->most)
        return weft_tool_usage(&weft_verb_ctl, "wrong number of arguments of '%s'", argv[at]);
    if ((o->version || o->weight >= 0) && (*out)->run != load_bundle &&
        ((*out)->run != unload_bundle || o->weight >= 0))
        return weft_tool_usage(&weft_verb_ctl,
                               "--version is for load and unload, --weight for load");
    return -1;
}

static int run_ctl(int argc, char **argv)
{
    options o = {.patience_s = 10, .weight = -1};
    char socket[SOCKET_PATH_MAX];
    const struct command_row *command = NULL;
    client c = {.o = &o, .link = {.fd = -1}};
    int code = parse(argc, argv, &o, &c, &command, socket);
    if (code >= 0)
        return code;
    signal(SIGPIPE, SIG_IGN);
    c.arena = weft_arena_create(0);
    c.diag = weft_diag_create();
    weft_err err =
        c.arena && c.diag ? weft_link_open(o.socket, -1, c.diag, &c.link) : WEFT_ERR_NOMEM;
    if (err == WEFT_ERR_OK)
        err = run_command(&c, command);
    weft_link_close(&c.link);
    code = weft_tool_report(c.diag, err);
    weft_arena_destroy(c.arena);
    weft_diag_destroy(c.diag);
    return code;
}

const weft_verb weft_verb_ctl = {.name = "ctl", .row = rows, .run = run_ctl};
