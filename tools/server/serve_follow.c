/* The first plan and the controller of a server that follows its load. */
#include "tools/server/serve_follow.h"

#include "base/file.h"
#include "scheduler/scheduler.h"
#include "tools/common/programs.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FIRST_PAUSE_MS = 200, LONGEST_PAUSE_MS = 10000, WELL_S = 60 };

/* -- The first plan --------------------------------------------------------------------------- */

static weft_err make_plan(const weft_follow_options *o, weft_arena *arena, weft_diag *diag,
                          weft_child_watch *watch, const char *to)
{
    weft_child c;
    WEFT_TRY(weft_child_begin("weft-planner", "plan", "--policy", arena, diag, &c));
    weft_child_add(&c, NULL, "--quiet");
    weft_child_add(&c, NULL, o->set);
    weft_child_add(&c, "--fleet", o->fleet);
    weft_child_add(&c, "--policy", o->policy);
    weft_child_add(&c, "--policy-options", o->policy_options);
    weft_child_add(&c, "-o", to);
    int code = weft_child_run(&c, watch);
    if (code == WEFT_EXIT_INFEASIBLE)
        return weft_diag_error(diag, WEFT_ERR_INFEASIBLE, (weft_where){.file = o->set},
                               "no plan meets the demands of the set; give a plan to start with");
    return code == 0 ? WEFT_ERR_OK
                     : weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = o->set},
                                       "the first plan cannot be made (exit code %d)", code);
}

/* The command line of the controller, without what tells it where the server is. */
static weft_err begin_controller(const weft_follow_options *o, const char *plan, weft_arena *arena,
                                 weft_diag *diag, weft_child *out)
{
    WEFT_TRY(weft_child_begin("weft-planner", "control", "--policy", arena, diag, out));
    weft_child_add(out, NULL, o->set);
    weft_child_add(out, "--fleet", o->fleet);
    weft_child_add(out, "--plan", plan);
    weft_child_add(out, "--policy", o->policy);
    weft_child_add(out, "--policy-options", o->policy_options);
    weft_child_add(out, "--control", o->control_options);
    weft_child_add(out, "--carbon", o->carbon);
    return WEFT_ERR_OK;
}

/* What the controller would refuse is refused before anything is served; the controller itself says
 * why. */
static weft_err check_controller(const weft_follow_options *o, weft_arena *arena, weft_diag *diag,
                                 weft_follow *follow)
{
    weft_child c;
    WEFT_TRY(begin_controller(o, follow->plan, arena, diag, &c));
    weft_child_add(&c, NULL, "--check");
    int code = weft_child_run(&c, &follow->watch);
    return code == 0
               ? WEFT_ERR_OK
               : weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = o->set},
                                 "the controller cannot follow this set (exit code %d)", code);
}

weft_err weft_follow_prepare(const weft_follow_options *o, const char *plan, const char *socket,
                             weft_arena *arena, weft_diag *diag, weft_follow *out)
{
    const char *base = getenv("TMPDIR");
    char *folder = weft_arena_printf(arena, "%s/weft-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(folder))
        return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){.file = folder},
                               "cannot be created: %s", strerror(errno));
    *out =
        (weft_follow){.folder = folder,
                      .plan = plan ? plan : weft_arena_printf(arena, "%s/plan.json", folder),
                      .socket = socket ? socket : weft_arena_printf(arena, "%s/control", folder)};
    pthread_mutex_init(&out->watch.lock, NULL);
    if (!plan)
        WEFT_TRY(make_plan(o, arena, diag, &out->watch, out->plan));
    return check_controller(o, arena, diag, out);
}

/* -- The controller --------------------------------------------------------------------------- */

/* Standard error may be a pipe that nobody reads: the end of the server must not wait for it. */
static void tell_end(int code, int wait_ms)
{
    struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&ready, 1, 0) == 1 && ready.revents & POLLOUT)
        fprintf(stderr, "weft serve: the controller ended (%d), it starts again in %d ms\n", code,
                wait_ms);
}

static void *keep_running(void *user)
{
    weft_follow *f = user;
    struct stat file;
    int wait_ms = FIRST_PAUSE_MS;
    for (;;) {
        while (stat(f->socket, &file) != 0)
            if (!weft_child_pause(&f->watch, FIRST_PAUSE_MS / 4))
                return NULL;
        double start_ms = weft_tool_now_ms();
        int code = weft_child_run(&f->controller, &f->watch);
        if (weft_tool_now_ms() - start_ms > 1e3 * WELL_S)
            wait_ms = FIRST_PAUSE_MS;
        if (!weft_child_is_stopped(&f->watch) && stat(f->socket, &file) == 0)
            tell_end(code, wait_ms);
        if (!weft_child_pause(&f->watch, wait_ms))
            return NULL;
        wait_ms = 2 * wait_ms < LONGEST_PAUSE_MS ? 2 * wait_ms : LONGEST_PAUSE_MS;
    }
}

weft_err weft_follow_start(const weft_follow_options *o, weft_arena *arena, weft_diag *diag,
                           weft_follow *f)
{
    sigset_t all, before;
    WEFT_TRY(begin_controller(o, f->plan, arena, diag, &f->controller));
    weft_child_add(&f->controller, "--socket", f->socket);
    f->watch.by_stop_only = true;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&f->thread, NULL, keep_running, f);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    f->has_thread = code == 0;
    return code == 0 ? WEFT_ERR_OK
                     : weft_diag_error(diag, WEFT_ERR_IO, (weft_where){0},
                                       "cannot start a thread: %s", strerror(code));
}

void weft_follow_end(weft_follow *f)
{
    if (f->has_thread) {
        weft_child_stop(&f->watch);
        pthread_join(f->thread, NULL);
    }
    if (f->folder) {
        weft_file_remove_folder(f->folder);
        pthread_mutex_destroy(&f->watch.lock);
    }
    *f = (weft_follow){0};
}
