/* Listening sockets: IPv4, IPv6, all addresses of a name, UNIX sockets; and how many connections
 * the limit of descriptors allows. */
#include "runtime/server/serve_int.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    CONNECTIONS_MAX = 4096,  /* of each transport */
    CONNECTIONS_MIN = 4,     /* with fewer no server is started */
    DESCRIPTORS_MAX = 65536, /* the soft limit is not raised above */
    TRANSPORTS = 2,          /* HTTP and gRPC */
    OWN_FILES = 24,          /* standard streams, epoll, signals, listening sockets, meters */
    WORKER_FILES = 4         /* both ends of the sockets of a worker and of the one after it */
};

static const uint64_t pause_ns = 100000000u;

/* -- Opening -------------------------------------------------------------------------------- */

static weft_err add_socket(weft_listener *l, const struct sockaddr *to, socklen_t len)
{
    int on = 1, off = 0;
    int fd = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return WEFT_ERR_IO;
    l->fd[l->n++] = fd;
    if (to->sa_family != AF_UNIX)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    /* "::" takes IPv4 as well. */
    if (to->sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    return bind(fd, to, len) == 0 && listen(fd, SOMAXCONN) == 0 &&
                   weft_loop__watch(l->loop, fd, EPOLLIN, l->fn, l->user)
               ? WEFT_ERR_OK
               : WEFT_ERR_IO;
}

static int port_of(int fd)
{
    struct sockaddr_storage at = {0};
    socklen_t len = sizeof at;
    if (getsockname(fd, (struct sockaddr *)&at, &len) != 0)
        return -1;
    return ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                          : ((struct sockaddr_in *)&at)->sin_port);
}

static void set_port(struct sockaddr *at, int port)
{
    if (at->sa_family == AF_INET6)
        ((struct sockaddr_in6 *)at)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)at)->sin_port = htons((uint16_t)port);
}

static weft_err drop_last(weft_listener *l)
{
    if (l->n)
        close(l->fd[--l->n]);
    return WEFT_ERR_OK;
}

/* Port 0: the port that the first address gets is used for the others. */
static weft_err open_addresses(weft_listener *l, const char *address, int port, weft_diag *diag)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    char host[256];
    struct addrinfo *list = NULL;
    size_t len = strlen(address);
    bool brackets = len >= 2 && address[0] == '[' && address[len - 1] == ']';
    snprintf(host, sizeof host, "%.*s",
             (int)(brackets    ? len - 2
                   : len < 255 ? len
                               : 255),
             address + brackets);
    int failed = getaddrinfo(host, NULL, &hints, &list);
    if (failed)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = address},
                               "is not an address to listen on: %s", gai_strerror(failed));
    weft_err err = WEFT_ERR_OK;
    for (struct addrinfo *a = list; a && err == WEFT_ERR_OK && l->n < WEFT_LISTEN_MAX;
         a = a->ai_next) {
        set_port(a->ai_addr, l->n ? l->port : port);
        err = add_socket(l, a->ai_addr, a->ai_addrlen);
        if (err == WEFT_ERR_OK)
            l->port = port_of(l->fd[l->n - 1]);
        else if ((l->n > 1 || a->ai_next) && (errno == EADDRNOTAVAIL || errno == EAFNOSUPPORT))
            err = drop_last(l); /* a name has addresses of both families, a machine may have one */
    }
    if (l->n == 0)
        err = WEFT_ERR_IO;
    freeaddrinfo(list);
    if (err != WEFT_ERR_OK)
        return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){0}, "cannot listen on %s:%d: %s%s",
                               address, port, strerror(errno),
                               errno == EADDRINUSE ? ", by another program: name another port, 0 "
                                                     "for any that is free"
                                                   : "");
    return WEFT_ERR_OK;
}

/* Whether a socket of this name is left from a process that is gone. */
static bool is_stale(const struct sockaddr_un *at)
{
    struct stat info;
    if (lstat(at->sun_path, &info) != 0 || !S_ISSOCK(info.st_mode))
        return false;
    /* A server that accepts nothing for now is not gone, and not waited for. */
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool stale = fd >= 0 && connect(fd, (const struct sockaddr *)at, sizeof *at) != 0 &&
                 errno == ECONNREFUSED;
    if (fd >= 0)
        close(fd);
    return stale;
}

/* Keeps other servers from looking at the folder of a socket: between bind and listen it looks
 * stale. Returns a descriptor to close; -1: not locked. Somebody else who locks the folder delays a
 * start by a second, not more. */
static int lock_folder(const char *path)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    char folder[sizeof((struct sockaddr_un *)0)->sun_path] = ".";
    const char *slash = strrchr(path, '/');
    if (slash)
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - path) + 1, path);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < 100 && fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0; i++)
        nanosleep(&pause, NULL);
    return fd;
}

static weft_err open_path(weft_listener *l, const weft_serve_port *where, weft_diag *diag)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    struct stat made = {0};
    const char *path = where->path;
    if (strlen(path) >= sizeof to.sun_path)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = path},
                               "is longer than the %zu bytes of a UNIX socket's path",
                               sizeof to.sun_path - 1);
    memcpy(to.sun_path, path, strlen(path) + 1);
    int lock = lock_folder(path);
    if (is_stale(&to))
        unlink(path);
    mode_t mask = where->is_private ? umask(0177) : 0;
    weft_err err = add_socket(l, (struct sockaddr *)&to, sizeof to);
    int code = errno;
    if (where->is_private)
        umask(mask);
    if (err == WEFT_ERR_OK && lstat(path, &made) == 0) {
        l->path = path;
        l->dev = made.st_dev;
        l->ino = made.st_ino;
    }
    if (lock >= 0)
        close(lock);
    return err == WEFT_ERR_OK
               ? err
               : weft_diag_error(diag, WEFT_ERR_IO, (weft_where){0}, "cannot listen on unix:%s: %s",
                                 path, strerror(code));
}

static void set_events(weft_listener *l, uint32_t events)
{
    for (uint32_t i = 0; i < l->n; i++)
        weft_loop__change(l->loop, l->fd[i], events);
}

static void resume(void *user)
{
    set_events(user, EPOLLIN);
}

weft_err weft_listener__open(weft_listener *l, weft_loop *loop, const char *address,
                             const weft_serve_port *where, weft_loop_fn *fn, void *user,
                             weft_diag *diag)
{
    *l = (weft_listener){.loop = loop, .fn = fn, .user = user, .port = -1};
    l->pause = (weft_timer){.fn = resume, .user = l};
    return where->path ? open_path(l, where, diag)
                       : open_addresses(l, address ? address : "127.0.0.1", where->port, diag);
}

void weft_listener__close(weft_listener *l)
{
    for (uint32_t i = 0; i < l->n; i++) {
        weft_loop__unwatch(l->loop, l->fd[i]);
        close(l->fd[i]);
    }
    if (l->n)
        weft_timer__cancel(l->loop, &l->pause);
    /* What has taken the place of the socket meanwhile stays. */
    struct stat now;
    if (l->path && lstat(l->path, &now) == 0 && now.st_dev == l->dev && now.st_ino == l->ino)
        unlink(l->path);
    l->n = 0;
    l->path = NULL;
}

/* -- Accepting ------------------------------------------------------------------------------ */

void weft_listener__pause(weft_listener *l)
{
    if (weft_timer__set(l->loop, &l->pause, weft_clock__now_ns() + pause_ns))
        set_events(l, 0);
}

int weft_listener__accept(weft_listener *l, struct sockaddr_storage *peer, bool *out_full)
{
    socklen_t len = sizeof *peer;
    *out_full = false;
    for (uint32_t i = 0; i < l->n; i++) {
        int fd;
        do
            fd = accept4(l->fd[i], (struct sockaddr *)peer, peer ? &len : NULL,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);
        while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
        if (fd >= 0)
            return fd;
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            *out_full = true;
            weft_listener__pause(l);
            return -1;
        }
    }
    return -1;
}

bool weft_listen__is_on(const weft_serve_port *where)
{
    return where->path || where->port >= 0;
}

weft_err weft_listen__connections(const weft_serve_options *options, uint32_t n_worker,
                                  weft_diag *diag, uint32_t *out)
{
    struct rlimit files = {0};
    getrlimit(RLIMIT_NOFILE, &files);
    rlim_t want = files.rlim_max < DESCRIPTORS_MAX ? files.rlim_max : DESCRIPTORS_MAX;
    if (files.rlim_cur < want) {
        const struct rlimit raised = {.rlim_cur = want, .rlim_max = files.rlim_max};
        if (setrlimit(RLIMIT_NOFILE, &raised) == 0)
            files.rlim_cur = want;
    }
    uint64_t used = OWN_FILES + (uint64_t)WORKER_FILES * n_worker;
    if (weft_listen__is_on(&options->health))
        used += WEFT_LISTEN_MAX + WEFT_HEALTH_PROBES_MAX;
    uint64_t each = files.rlim_cur > used ? (files.rlim_cur - used) / TRANSPORTS : 0;
    if (each < CONNECTIONS_MIN)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                               "%llu descriptors (ulimit -n) are too few: %llu are needed",
                               (unsigned long long)files.rlim_cur,
                               (unsigned long long)used + CONNECTIONS_MIN * TRANSPORTS);
    *out = each < CONNECTIONS_MAX ? (uint32_t)each : CONNECTIONS_MAX;
    if (options->max_connections && options->max_connections < *out)
        *out = options->max_connections;
    return WEFT_ERR_OK;
}
