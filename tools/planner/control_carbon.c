/* Carbon intensity that is polled. */
#include "tools/planner/control_carbon.h"

#include "tools/common/tools.h"

#include "base/file.h"
#include "base/num.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FILE_BYTES_MAX = 16 << 20, OUTPUT_MAX = 4096, COMMAND_MS = 10000 };

/* The last number of a text of numbers and other words. */
static bool last_number(char *text, double *out)
{
    bool found = false;
    double x;
    for (char *word, *rest = text; (word = strsep(&rest, " \t\r\n,;"));)
        if (*word && weft_parse_f64(word, &x) && x >= 0 && x <= 1e6) {
            *out = x;
            found = true;
        }
    return found;
}

/* Reads until the end of the output, or the time is over; false: it is. */
static bool read_output(int fd, char *text)
{
    double until_ms = weft_tool_now_ms() + COMMAND_MS;
    size_t len = 0;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        double left_ms = until_ms - weft_tool_now_ms();
        char more[512];
        int ready = left_ms > 0 ? poll(&p, 1, (int)left_ms + 1) : 0;
        if (ready == 0 || (ready < 0 && errno != EINTR))
            return false;
        if (ready < 0)
            continue;
        ssize_t n = read(fd, more, sizeof more);
        if (n <= 0 && !(n < 0 && (errno == EINTR || errno == EAGAIN)))
            return n == 0;
        if (n > 0 && len + (size_t)n >= OUTPUT_MAX)
            return false;
        if (n > 0)
            memcpy(text + len, more, (size_t)n);
        len += n > 0 ? (size_t)n : 0;
        text[len] = '\0';
    }
}

static weft_err run_command(const char *source, weft_diag *diag, char *text)
{
    int fd[2];
    const weft_where where = {.item = source};
    if (pipe2(fd, O_CLOEXEC) != 0)
        return weft_diag_error(diag, WEFT_ERR_IO, where, "no pipe: %s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        dup2(fd[1], STDOUT_FILENO);
        execl("/bin/sh", "sh", "-c", source + 1, (char *)NULL);
        _exit(127);
    }
    close(fd[1]);
    if (pid > 0)
        setpgid(pid, pid);
    bool done = pid > 0 && read_output(fd[0], text);
    close(fd[0]);
    if (pid < 0)
        return weft_diag_error(diag, WEFT_ERR_IO, where, "cannot start: %s", strerror(errno));
    int status = 0;
    if (!done)
        kill(-pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (!done)
        return weft_diag_error(diag, WEFT_ERR_IO, where,
                               "takes more than 10 s, or writes more than %d bytes", OUTPUT_MAX);
    if (status != 0)
        return weft_diag_error(diag, WEFT_ERR_IO, where, "fails with status %d", status);
    return WEFT_ERR_OK;
}

weft_err weft_tool_poll_carbon(const char *source, weft_diag *diag, double *out)
{
    char output[OUTPUT_MAX] = "", *text = output;
    size_t len;
    if (source[0] == '!')
        WEFT_TRY(run_command(source, diag, output));
    else
        WEFT_TRY(weft_file_read(source, FILE_BYTES_MAX, diag, &text, &len));
    bool found = last_number(text, out);
    if (text != output)
        free(text);
    return found ? WEFT_ERR_OK
                 : weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = source},
                                   "has no number of g/kWh");
}
