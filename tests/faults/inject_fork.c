#include "tests/faults/inject_fork.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* A try that takes longer hangs: SIGALRM ends it. */
enum { LIMIT_S = 60, DESCRIPTORS = 256, ERROR_STATUS = 120 };

static void give_up(const char *what)
{
    fprintf(stderr, "faults: %s\n", what);
    _exit(ERROR_STATUS);
}

/* Puts an open file of its own behind the descriptor: the one of that name in the current folder,
 * if the file was in `old`, otherwise the same file. */
static void reopen(int fd, const char *old)
{
    char link[64], path[PATH_MAX];
    size_t len = strlen(old);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0)
        give_up("no /proc");
    path[n] = '\0';
    bool inside = strncmp(path, old, len) == 0 && (path[len] == '/' || path[len] == '\0');
    const char *name = path[len] == '/' ? path + len + 1 : ".";
    int flags = fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND), more = fcntl(fd, F_GETFD);
    int own = open(inside && access(name, F_OK) == 0 ? name : link, flags);
    if (own < 0 || lseek(own, lseek(fd, 0, SEEK_CUR), SEEK_SET) < 0 ||
        dup3(own, fd, more & FD_CLOEXEC ? O_CLOEXEC : 0) < 0)
        give_up("a file cannot be opened again");
    close(own);
}

static void move_to(const char *folder)
{
    char old[PATH_MAX];
    if (!getcwd(old, sizeof old) || chdir(folder) != 0)
        give_up("no folder to try in");
    for (int fd = 0; fd < DESCRIPTORS; fd++) {
        struct stat s;
        if (fstat(fd, &s) == 0 && (S_ISREG(s.st_mode) || S_ISDIR(s.st_mode)))
            reopen(fd, old);
    }
}

/* A folder has a link for itself, its name, and each folder in it. */
static bool has_threads(void)
{
    struct stat s;
    return stat("/proc/self/task", &s) != 0 || s.st_nlink != 3;
}

bool inject_fork_tries(int driver, uint32_t kind, uint32_t stack, inject_order *order)
{
    inject_ask ask = {.kind = kind, .stack = stack};
    for (;;) {
        if (send(driver, &ask, sizeof ask, 0) != (ssize_t)sizeof ask ||
            recv(driver, order, sizeof *order, 0) != (ssize_t)sizeof *order)
            give_up("the driver has gone");
        if (order->mode < 0)
            return false;
        if (has_threads())
            give_up("fork needs a program of one thread");
        pid_t pid = fork();
        if (pid == 0) {
            close(driver);
            alarm(LIMIT_S);
            move_to(order->folder);
            return true;
        }
        ask = (inject_ask){0};
        if (pid < 0 || waitpid(pid, &ask.status, 0) != pid)
            give_up("no process to try in");
    }
}
