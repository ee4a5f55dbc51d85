/* Programs that the server runs beside itself. */
#include "tools/server/serve_child.h"

#include "tools/common/programs.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_EVERY_NS = 20000000 };

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

void weft_child_become(const weft_child *c, pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent)
        execv(c->argv[0], c->argv);
    _exit(127);
}

static int wait_for(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int weft_child_run(const weft_child *c)
{
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        dup2(STDERR_FILENO, STDOUT_FILENO); /* the server's first line of output is READY */
        weft_child_become(c, parent);
    }
    return pid < 0 ? -1 : wait_for(pid);
}

/* The process stays to be reaped. */
static bool has_ended(pid_t pid)
{
    siginfo_t info = {.si_pid = 0};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT | WNOHANG) != 0 || info.si_pid != 0;
}

/* Whether a signal to end waits: the server blocks them, to read them later. */
static bool is_to_end(void)
{
    sigset_t set;
    return sigpending(&set) == 0 && (sigismember(&set, SIGTERM) || sigismember(&set, SIGINT));
}

int weft_child_run_watched(const weft_child *c, weft_child_watch *watch)
{
    pid_t parent = getpid(), pid = -1;
    pthread_mutex_lock(&watch->lock);
    if (!watch->ends)
        pid = fork();
    if (pid == 0)
        weft_child_become(c, parent);
    watch->pid = pid > 0 ? pid : 0;
    pthread_mutex_unlock(&watch->lock);
    if (pid < 0)
        return -1;
    while (!has_ended(pid)) {
        if (is_to_end())
            weft_child_stop(watch);
        nanosleep(&(struct timespec){.tv_nsec = LOOK_EVERY_NS}, NULL);
    }
    pthread_mutex_lock(&watch->lock); /* its number is not another's before it is reaped */
    watch->pid = 0;
    int code = wait_for(pid);
    pthread_mutex_unlock(&watch->lock);
    return code;
}

void weft_child_stop(weft_child_watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    watch->ends = true;
    if (watch->pid)
        kill(watch->pid, SIGKILL);
    pthread_mutex_unlock(&watch->lock);
}
