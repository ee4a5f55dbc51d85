/* A private MPS daemon for one GPU or MIG instance, with pipe and log directories of its own, so
 * that it does not interfere with other daemons of the machine. As in NVIDIA's "Multi-Process
 * Service", section 5.1: the control program started with -d becomes a daemon and returns; "quit"
 * on the standard input of a second one ends servers and daemon. The compute mode is not changed.
 *
 * The daemon is not a child of this process and would outlive it. A watcher, which is a child, ends
 * the daemon when the other end of the watcher's pipe is closed: by weft_mps_stop, or by the kernel
 * when this process has ended in any way. */
#include "runtime/machine/machine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATH_BYTES = 512, START_SECONDS = 20, STOP_SECONDS = 20 };
/* The watcher's end of its pipe. */
enum { WATCHED = 3 };

struct weft_mps {
    char control[PATH_BYTES]; /* path of the control program */
    char pipe[PATH_BYTES], log[PATH_BYTES];
    char visible[WEFT_MACHINE_NAME_MAX];
    pid_t watcher; /* 0: none */
    int end;       /* this process's end of the watcher's pipe */
};

static bool make_dirs(weft_mps *m)
{
    const char *tmp = getenv("TMPDIR");
    int n = snprintf(m->pipe, sizeof m->pipe, "%s/weft-mps-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    errno = ENAMETOOLONG; /* paths of sockets in this directory must fit into 108 bytes */
    if (n < 0 || n > 80 || !mkdtemp(m->pipe)) {
        m->pipe[0] = '\0';
        return false;
    }
    n = snprintf(m->log, sizeof m->log, "%s/log", m->pipe);
    return n > 0 && mkdir(m->log, 0700) == 0;
}

static void remove_files(const char *dir)
{
    char path[PATH_BYTES + 300];
    DIR *d = opendir(dir);
    for (const struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        unlink(path); /* fails on directories, which stay */
    }
    if (d)
        closedir(d);
    rmdir(dir);
}

extern char **environ;

/* A copy of the environment with the three variables of `set`; freed by the caller. */
static char **make_environment(char *const set[3])
{
    size_t n = 0, m = 0;
    while (environ[n])
        n++;
    char **out = calloc(n + 4, sizeof *out);
    for (size_t i = 0; out && i < n; i++) {
        bool ours = false;
        for (size_t k = 0; k < 3; k++)
            ours = ours || strncmp(environ[i], set[k], strcspn(set[k], "=") + 1) == 0;
        if (!ours)
            out[m++] = environ[i];
    }
    for (size_t k = 0; out && k < 3; k++)
        out[m++] = set[k];
    return out;
}

/* Starts the control program in the daemon's environment. `in`: its standard input; -1: none. */
static pid_t spawn(const weft_mps *m, const char *arg, int in)
{
    char pipe_dir[PATH_BYTES + 32], log_dir[PATH_BYTES + 32], visible[WEFT_MACHINE_NAME_MAX + 32];
    char *const set[3] = {pipe_dir, log_dir, visible};
    char *const argv[] = {(char *)m->control, (char *)arg, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none;
    pid_t pid = -1;
    snprintf(pipe_dir, sizeof pipe_dir, "CUDA_MPS_PIPE_DIRECTORY=%s", m->pipe);
    snprintf(log_dir, sizeof log_dir, "CUDA_MPS_LOG_DIRECTORY=%s", m->log);
    snprintf(visible, sizeof visible, "CUDA_VISIBLE_DEVICES=%s", m->visible);
    char **env = make_environment(set);
    if (!env || posix_spawn_file_actions_init(&files) != 0) {
        free(env);
        return -1;
    }
    posix_spawnattr_init(&attr);
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
    if (in >= 0)
        posix_spawn_file_actions_adddup2(&files, in, 0);
    else
        posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    if (posix_spawn(&pid, m->control, &files, &attr, argv, env) != 0)
        pid = -1;
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    free(env);
    return pid;
}

/* Waits for a process and returns its exit code; -1: a signal ended it, or it took too long and was
 * killed. */
static int wait_for(pid_t pid, int seconds)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    int status = 0;
    for (int i = 0; i < seconds * 100; i++) {
        pid_t got = waitpid(pid, &status, WNOHANG);
        if (got == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        if (got < 0 && errno != EINTR)
            return -1;
        nanosleep(&pause, NULL);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return -1;
}

/* Notes the last line of the daemon's log. */
static void note_log(const weft_mps *m, weft_diag *diag)
{
    char path[PATH_BYTES + 32], line[256], last[256] = "";
    snprintf(path, sizeof path, "%s/control.log", m->log);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        snprintf(last, sizeof last, "%s", line);
    }
    if (f)
        fclose(f);
    if (last[0])
        weft_diag_note(diag, (weft_where){0}, "its log ends with: %s", last);
}

static bool quit(const weft_mps *m)
{
    static const char word[] = "quit\n";
    int pair[2];
    if (pipe2(pair, O_CLOEXEC) != 0)
        return false;
    bool ok = write(pair[1], word, sizeof word - 1) == (ssize_t)(sizeof word - 1);
    close(pair[1]);
    pid_t pid = ok ? spawn(m, NULL, pair[0]) : -1;
    close(pair[0]);
    return pid > 0 && wait_for(pid, STOP_SECONDS) == 0;
}

static void remove_dirs(const weft_mps *m)
{
    remove_files(m->log);
    remove_files(m->pipe);
}

/* Runs in the watcher. Closes all inherited descriptors, because other processes may wait for their
 * end of file; blocks all signals. */
static _Noreturn void watch(const weft_mps *m, int from)
{
    sigset_t every;
    char byte;
    sigfillset(&every);
    sigprocmask(SIG_SETMASK, &every, NULL);
    setsid();
    prctl(PR_SET_NAME, "weft-mps");
    dup2(from, WATCHED);
    closefrom(WATCHED + 1);
    for (int fd = 0; fd < WATCHED; fd++) {
        close(fd);
        if (open("/dev/null", O_RDWR) != fd)
            _exit(1);
    }
    while (read(WATCHED, &byte, 1) < 0 && errno == EINTR)
        ;
    bool ended = quit(m);
    if (ended)
        remove_dirs(m);
    _exit(ended ? 0 : 1);
}

static bool start_watcher(weft_mps *m)
{
    int pair[2];
    if (pipe2(pair, O_CLOEXEC) != 0)
        return false;
    m->watcher = fork();
    if (m->watcher == 0)
        watch(m, pair[0]);
    close(pair[0]);
    m->end = pair[1];
    if (m->watcher > 0)
        return true;
    m->watcher = 0;
    close(pair[1]);
    return false;
}

/* Ends the watcher without a "quit": there is no daemon. */
static void drop_watcher(weft_mps *m)
{
    kill(m->watcher, SIGKILL);
    waitpid(m->watcher, NULL, 0);
    close(m->end);
    m->watcher = 0;
}

weft_err weft_mps_start(const char *control, const char *visible, weft_diag *diag, weft_mps **out)
{
    const weft_where where = {.item = "MPS"};
    weft_mps *m = calloc(1, sizeof *m);
    if (!m)
        return WEFT_ERR_NOMEM;
    snprintf(m->control, sizeof m->control, "%s", control);
    snprintf(m->visible, sizeof m->visible, "%s", visible);
    if (!make_dirs(m) || !start_watcher(m)) {
        weft_err err =
            weft_diag_error(diag, WEFT_ERR_IO, where,
                            "no directory for its pipes, or no process: %s", strerror(errno));
        weft_mps_stop(m, diag);
        return err;
    }
    pid_t pid = spawn(m, "-d", -1);
    int code = pid > 0 ? wait_for(pid, START_SECONDS) : -1;
    if (code != 0) {
        weft_err err =
            weft_diag_error(diag, WEFT_ERR_NODEV, where, "'%s -d' for %s %s %d", control, visible,
                            code < 0 ? "did not end within seconds" : "ended with code",
                            code < 0 ? START_SECONDS : code);
        note_log(m, diag);
        /* A control program that did not return may have left a daemon: the watcher ends it. */
        if (code > 0)
            drop_watcher(m);
        weft_mps_stop(m, diag);
        return err;
    }
    *out = m;
    return WEFT_ERR_OK;
}

const char *weft_mps_pipe_dir(const weft_mps *mps)
{
    return mps->pipe;
}

void weft_mps_stop(weft_mps *mps, weft_diag *diag)
{
    if (!mps)
        return;
    if (mps->watcher) {
        bool killed = waitpid(mps->watcher, NULL, WNOHANG) == mps->watcher;
        close(mps->end);
        if (!killed)
            kill(mps->watcher, SIGCONT); /* it may have been stopped */
        bool ended = killed ? quit(mps) : wait_for(mps->watcher, STOP_SECONDS + 1) == 0;
        if (killed && ended)
            remove_dirs(mps);
        if (!ended)
            weft_diag_warn(diag, (weft_where){.item = "MPS"},
                           "the daemon with the pipe directory %s did not stop", mps->pipe);
    } else if (mps->pipe[0]) {
        remove_dirs(mps);
    }
    free(mps);
}
