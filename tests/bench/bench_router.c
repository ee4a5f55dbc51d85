/* For bench_router: a bare libmicrohttpd handler, and a client that times two servers in turn.
 *
 *   bench_router_c bare ANSWER_BYTES               prints its port, then answers every request
 *   bench_router_c time ROUNDS REQUESTS PATH BODY PORT PORT...
 *
 * `time` prints a line a round: for each port the median and 99th percentile of a request in us, on
 * a connection that is kept, one request at a time. */
#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PORTS_MAX = 4, REPLY_BYTES = 65536 };

/* -- The bare handler ----------------------------------------------------------------------- */

static char *answer;
static size_t answer_len;

static enum MHD_Result on_request(void *user, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_len, void **state)
{
    static int seen;
    (void)user, (void)url, (void)method, (void)version, (void)upload;
    if (!*state) {
        *state = &seen;
        return MHD_YES;
    }
    if (*upload_len) {
        *upload_len = 0;
        return MHD_YES;
    }
    struct MHD_Response *r =
        MHD_create_response_from_buffer(answer_len, answer, MHD_RESPMEM_PERSISTENT);
    if (!r)
        return MHD_NO;
    MHD_add_response_header(r, "Content-Type", "application/json");
    enum MHD_Result queued = MHD_queue_response(connection, 200, r);
    MHD_destroy_response(r);
    return queued;
}

/* The handler is driven by an epoll loop of ours, as in the server. */
static int serve_bare(size_t bytes)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event event = {.events = EPOLLIN};
    answer_len = bytes;
    answer = malloc(bytes + 1);
    struct MHD_Daemon *d =
        MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, on_request, NULL, MHD_OPTION_SOCK_ADDR,
                         (struct sockaddr *)&to, MHD_OPTION_END);
    int loop = epoll_create1(0);
    if (!d || !answer || loop < 0)
        return 1;
    memset(answer, ' ', bytes);
    int fd = MHD_get_daemon_info(d, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event);
    printf("%d\n", MHD_get_daemon_info(d, MHD_DAEMON_INFO_BIND_PORT)->port);
    fflush(stdout);
    for (;;) {
        MHD_UNSIGNED_LONG_LONG ms;
        int wait = MHD_get_timeout(d, &ms) == MHD_YES ? (int)ms : -1;
        if (epoll_wait(loop, &event, 1, wait) < 0 || MHD_run(d) != MHD_YES)
            return 1;
    }
}

/* -- The client ----------------------------------------------------------------------------- */

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int connect_to(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

/* Sends the request and reads the whole answer; 0 if the status is not 200. */
static int ask(int fd, const char *request, size_t len)
{
    static char reply[REPLY_BYTES + 1];
    size_t got = 0, want = 0;
    if (write(fd, request, len) != (ssize_t)len)
        return 0;
    while (want == 0 || got < want) {
        ssize_t n = read(fd, reply + got, REPLY_BYTES - got);
        if (n <= 0)
            return 0;
        got += (size_t)n;
        reply[got] = '\0';
        char *end = want ? NULL : strstr(reply, "\r\n\r\n");
        char *length = end ? strcasestr(reply, "\r\nContent-Length:") : NULL;
        if (length)
            want = (size_t)(end + 4 - reply) + strtoul(length + 17, NULL, 10);
    }
    return strncmp(reply, "HTTP/1.1 200", 12) == 0;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int time_servers(int rounds, int n, const char *path, const char *body, int n_port,
                        char **port)
{
    static char request[REPLY_BYTES];
    int fd[PORTS_MAX];
    double *us = malloc((size_t)n * sizeof *us);
    int len = snprintf(request, sizeof request,
                       "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s", path,
                       strlen(body), body);
    if (!us || len >= (int)sizeof request || n_port > PORTS_MAX)
        return 1;
    for (int p = 0; p < n_port; p++)
        if ((fd[p] = connect_to(atoi(port[p]))) < 0)
            return 1;
    for (int round = 0; round < rounds; round++) {
        for (int p = 0; p < n_port; p++) {
            for (int i = -n / 10; i < n; i++) {
                double start = now_us();
                if (!ask(fd[p], request, (size_t)len))
                    return 1;
                if (i >= 0)
                    us[i] = now_us() - start;
            }
            qsort(us, (size_t)n, sizeof *us, compare);
            printf("%.2f %.2f%c", us[n / 2], us[n * 99 / 100], p + 1 < n_port ? ' ' : '\n');
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "bare") == 0)
        return serve_bare(strtoul(argv[2], NULL, 10));
    if (argc > 6 && strcmp(argv[1], "time") == 0)
        return time_servers(atoi(argv[2]), atoi(argv[3]), argv[4], argv[5], argc - 6, argv + 6);
    return 2;
}
