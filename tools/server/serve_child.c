/* Programs that the server runs beside itself. */
#include "tools/server/serve_child.h"

#include "tools/common/programs.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_EVERY_MS = 20 };

void weft_child_add(weft_child *c, const char *name, const char *value)
{
    if (!value)
        return;
    if (name)
        c->argv[c->n++] = (char *)name;
    c->argv[c->n++] = (char *)value;
}

weft_err weft_child_begin(const char *program, const char *verb, const char *needs,
                          weft_arena *arena, weft_diag *diag, weft_child *out)
{
    char path[WEFT_PROGRAM_PATH_MAX];
    if (!weft_program_find(program, path))
        return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){0}, "%s needs the program %s", needs,
                               program);
    *out = (weft_child){.n = 0};
    weft_child_add(out, weft_arena_strdup(arena, path), verb);
    return WEFT_ERR_OK;
}

/* In the process that was forked: signals as in a new process, those of the server's terminal to
 * the server alone, which ends its children; an end with the server. What the program prints goes
 * to standard error: the server's first line of output is READY. */
static _Noreturn void become(const weft_child *c, pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent)
        execv(c->argv[0], c->argv);
    _exit(127);
}

/* Reaps it. */
static int exit_code_of(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The process stays to be reaped. */
static bool has_ended(pid_t pid, bool waits)
{
    siginfo_t info = {.si_pid = 0};
    int how = WEXITED | WNOWAIT | (waits ? 0 : WNOHANG);
    return waitid(P_PID, (id_t)pid, &info, how) == 0 ? info.si_pid != 0 : errno != EINTR;
}

/* Whether a signal to end waits: the server blocks them, to read them later. */
static bool is_to_end(void)
{
    sigset_t set;
    return sigpending(&set) == 0 && (sigismember(&set, SIGTERM) || sigismember(&set, SIGINT));
}

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

int weft_child_run(const weft_child *c, weft_child_watch *watch)
{
    pid_t parent = getpid(), pid = -1;
    pthread_mutex_lock(&watch->lock);
    if (!watch->ends)
        pid = fork();
    if (pid == 0)
        become(c, parent);
    watch->pid = pid > 0 ? pid : 0;
    pthread_mutex_unlock(&watch->lock);
    if (pid < 0)
        return -1;
    while (!has_ended(pid, watch->by_stop_only)) {
        if (watch->by_stop_only)
            continue;
        if (is_to_end())
            weft_child_stop(watch);
        pause_ms(LOOK_EVERY_MS);
    }
    pthread_mutex_lock(&watch->lock); /* its number is not another's before it is reaped */
    watch->pid = 0;
    int code = exit_code_of(pid);
    pthread_mutex_unlock(&watch->lock);
    return code;
}

bool weft_child_is_stopped(weft_child_watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    bool ends = watch->ends;
    pthread_mutex_unlock(&watch->lock);
    return ends;
}

bool weft_child_pause(weft_child_watch *watch, int ms)
{
    for (; ms > 0 && !weft_child_is_stopped(watch); ms -= LOOK_EVERY_MS)
        pause_ms(ms < LOOK_EVERY_MS ? ms : LOOK_EVERY_MS);
    return !weft_child_is_stopped(watch);
}

void weft_child_stop(weft_child_watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    watch->ends = true;
    if (watch->pid)
        kill(watch->pid, SIGKILL);
    pthread_mutex_unlock(&watch->lock);
}
