/* weft ctl: asks a running server over its control socket, and changes its plan. */
#include "tools/common/options.h"
#include "tools/common/tools.h"
#include "tools/planner/control_link.h"

#include "base/file.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PLAN_BYTES_MAX = 4 << 20 };
static const double poll_s = 0.05;

typedef struct options {
    bool json, no_wait;
    double patience_s;
} options;

typedef struct client {
    const options *o;
    const char *file; /* argument of the command; NULL: none */
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
    printf("%-20s %-5s %7s %10s %10s %8s %8s %8s\n", "model", "ready", "queue", "arrivals",
           "answered", "late", "refused", "failed");
    json_array_foreach(models, i, m)
    {
        bool ready = json_is_true(json_object_get(m, "ready"));
        printf("%-20s %-5s %7lld %10lld %10lld %8lld %8lld %8lld\n", text_of(m, "model"),
               ready ? "yes" : "no", number_of(m, "queue"), number_of(m, "arrivals"),
               number_of(m, "answered"), number_of(m, "late"), number_of(m, "refused"),
               number_of(m, "failed"));
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
    print_models(json_object_get(status, "models"));
    print_workers(json_object_get(status, "workers"));
}

/* -- Changes ---------------------------------------------------------------------------------- */

/* Waits until the change to `generation` is over. */
static weft_err wait_for(client *c, uint64_t generation, double *out_took_s)
{
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
                                  "the change was undone, the plan before it is in force: %s",
                                  s.last_error);
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
    if (err == WEFT_ERR_OK && !c->o->json)
        printf(c->o->no_wait ? "generation %llu\n" : "generation %llu is in force after %.3g s\n",
               (unsigned long long)generation, took_s);
    return err;
}

static weft_err run_command(client *c, const char *command)
{
    json_t *answer = NULL;
    if (c->file)
        return apply_plan(c);
    WEFT_TRY(ask(c, json_pack("{s:s}", "do", command), &answer));
    weft_err err = WEFT_ERR_OK;
    if (c->o->json)
        err = print_json(answer, JSON_COMPACT);
    else if (strcmp(command, "status") == 0)
        print_status(answer);
    else if (strcmp(command, "plan") == 0)
        err = print_json(json_object_get(answer, "plan"), JSON_INDENT(2));
    else if (strcmp(command, "explain") == 0)
        puts(text_of(answer, "text"));
    json_decref(answer);
    return err;
}

/* -- The verb --------------------------------------------------------------------------------- */

#define OPTIONS_OF_ctl
#define OPTIONS options
#include "tools/common/option_rows.h"

static bool is_command(const char *name)
{
    static const char *const commands[] = {"status", "plan", "drain", "replan", "explain"};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(name, commands[i]) == 0)
            return true;
    return false;
}

static int run_ctl(int argc, char **argv)
{
    options o = {.patience_s = 10};
    int code = weft_options_parse(&weft_verb_ctl, argc, argv, &o);
    if (code >= 0)
        return code;
    int n = argc - optind;
    const char *command = n > 1 ? argv[optind + 1] : "";
    if (n < 2 || n > 3)
        return weft_tool_usage(&weft_verb_ctl, "name a control socket and a command");
    if (!is_command(command))
        return weft_tool_usage(&weft_verb_ctl, "no command '%s'", command);
    if (n == 3 && strcmp(command, "plan") != 0)
        return weft_tool_usage(&weft_verb_ctl, "'%s' takes no argument", command);
    signal(SIGPIPE, SIG_IGN);
    client c = {.o = &o,
                .file = n == 3 ? argv[optind + 2] : NULL,
                .link = {.fd = -1},
                .arena = weft_arena_create(0),
                .diag = weft_diag_create()};
    weft_err err =
        c.arena && c.diag ? weft_link_open(argv[optind], -1, c.diag, &c.link) : WEFT_ERR_NOMEM;
    if (err == WEFT_ERR_OK)
        err = run_command(&c, command);
    weft_link_close(&c.link);
    code = weft_tool_report(c.diag, err);
    weft_arena_destroy(c.arena);
    weft_diag_destroy(c.diag);
    return code;
}

const weft_verb weft_verb_ctl = {.name = "ctl", .row = rows, .run = run_ctl};
