/* The notification protocol of systemd (sd_notify(3)): datagrams to the socket that $NOTIFY_SOCKET
 * names. The watchdog (WatchdogSec=) is answered from the loop, twice in its time, so that a loop
 * that hangs is noticed. What a busy manager does not take at once is sent again, in order, except
 * for signs of life. */
#include "runtime/server/serve_int.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

enum { OWED_MAX = 8, STATE_BYTES = 128 };

static const uint64_t again_ns = 20000000u;

struct weft_notify {
    weft_loop *loop;
    int fd;
    struct sockaddr_un to;
    socklen_t to_len;
    uint64_t watchdog_ns; /* between two signs of life; 0: none are asked for */
    weft_timer timer;
    char owed[OWED_MAX][STATE_BYTES]; /* states that were not taken, n_owed */
    uint32_t n_owed;
    weft_timer again;
};

/* "/path", or "@name" of an abstract socket. */
static bool set_address(weft_notify *n, const char *path)
{
    size_t len = strlen(path);
    if ((*path != '/' && *path != '@') || len < 2 || len >= sizeof n->to.sun_path)
        return false;
    n->to.sun_family = AF_UNIX;
    memcpy(n->to.sun_path, path, len);
    if (*path == '@')
        n->to.sun_path[0] = '\0';
    n->to_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + (*path == '/'));
    return true;
}

/* Half of $WATCHDOG_USEC, ns; 0: the watchdog is off, or for another process. */
static uint64_t watchdog_ns(void)
{
    const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    char *end = NULL;
    if (pid && strtol(pid, NULL, 10) != (long)getpid())
        return 0;
    unsigned long long us = usec ? strtoull(usec, &end, 10) : 0;
    return us && *end == '\0' && us < UINT64_MAX / 1000 ? us * 1000 / 2 : 0;
}

/* Not waited for: a manager that does not read must not stop the server. false: it takes nothing
 * now. */
static bool send_state(const weft_notify *n, const char *state)
{
    return sendto(n->fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT,
                  (const struct sockaddr *)&n->to, n->to_len) >= 0 ||
           (errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS);
}

static void send_owed(void *user)
{
    weft_notify *n = user;
    uint32_t sent = 0;
    while (sent < n->n_owed && send_state(n, n->owed[sent]))
        sent++;
    n->n_owed -= sent;
    memmove(n->owed, n->owed + sent, n->n_owed * sizeof n->owed[0]);
    if (n->n_owed)
        weft_timer__set(n->loop, &n->again, weft_clock__now_ns() + again_ns);
}

void weft_notify__send(weft_notify *n, const char *state)
{
    if (!n || (n->n_owed == 0 && send_state(n, state)) || n->n_owed == OWED_MAX)
        return;
    snprintf(n->owed[n->n_owed++], STATE_BYTES, "%s", state);
    weft_timer__set(n->loop, &n->again, weft_clock__now_ns() + again_ns);
}

void weft_notify__reloading(weft_notify *n)
{
    char text[64];
    snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%llu",
             (unsigned long long)weft_clock__now_ns() / 1000);
    weft_notify__send(n, text);
}

static void on_timer(void *user)
{
    weft_notify *n = user;
    if (n->n_owed == 0)
        (void)send_state(n, "WATCHDOG=1");
    weft_timer__set(n->loop, &n->timer, weft_clock__now_ns() + n->watchdog_ns);
}

static weft_err open_socket(weft_notify *n, const char *path, weft_diag *diag)
{
    if (!set_address(n, path))
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = "NOTIFY_SOCKET"},
                               "'%s' is not the path of a socket", path);
    n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (n->fd < 0)
        return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){.item = "NOTIFY_SOCKET"}, "%s",
                               strerror(errno));
    n->watchdog_ns = watchdog_ns();
    n->timer = (weft_timer){.fn = on_timer, .user = n};
    return n->watchdog_ns == 0 || weft_timer__set(n->loop, &n->timer, weft_clock__now_ns())
               ? WEFT_ERR_OK
               : WEFT_ERR_NOMEM;
}

weft_err weft_notify__create(weft_loop *loop, weft_diag *diag, weft_notify **out)
{
    const char *path = getenv("NOTIFY_SOCKET");
    *out = NULL;
    if (!path || !*path)
        return WEFT_ERR_OK;
    weft_notify *n = calloc(1, sizeof *n);
    if (!n)
        return WEFT_ERR_NOMEM;
    *n = (weft_notify){.loop = loop, .fd = -1};
    n->again = (weft_timer){.fn = send_owed, .user = n};
    weft_err err = open_socket(n, path, diag);
    if (err != WEFT_ERR_OK) {
        weft_notify__destroy(n);
        return err;
    }
    /* Workers speak to the router only. */
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    *out = n;
    return WEFT_ERR_OK;
}

void weft_notify__destroy(weft_notify *n)
{
    if (!n)
        return;
    if (n->timer.fn)
        weft_timer__cancel(n->loop, &n->timer);
    weft_timer__cancel(n->loop, &n->again);
    if (n->fd >= 0)
        close(n->fd);
    free(n);
}
