/* For bench_router: a bare handler, and a client that times two servers in turn.
 *
 *   bench_router_c bare ANSWER_BYTES               prints its port, then answers every request
 *   bench_router_c time ROUNDS REQUESTS PATH BODY PORT PORT...
 *
 * `time` prints a line a round: for each port the median and 99th percentile of a request in us, on
 * a connection that is kept, one request at a time. */
#include <arpa/inet.h>
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

/* Whether the bytes of a connection hold a whole request: a head and as many bytes as it says. */
static int is_whole(const char *in, size_t len)
{
    const char *end = strstr(in, "\r\n\r\n");
    const char *length = end ? strcasestr(in, "\r\nContent-Length:") : NULL;
    size_t body = length && length < end ? strtoul(length + 17, NULL, 10) : 0;
    return end && len >= (size_t)(end + 4 - in) + body;
}

/* The least that an event loop does for a request: one connection at a time, one receive, one send.
 */
static int serve_connection(int loop, int fd, const char *answer, size_t answer_len)
{
    static char in[REPLY_BYTES + 1];
    struct epoll_event event = {.events = EPOLLIN};
    size_t len = 0;
    epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event);
    while (epoll_wait(loop, &event, 1, -1) >= 0) {
        ssize_t n = recv(fd, in + len, REPLY_BYTES - len, 0);
        if (n <= 0)
            break;
        len += (size_t)n;
        in[len] = '\0';
        if (!is_whole(in, len))
            continue;
        len = 0;
        if (send(fd, answer, answer_len, MSG_NOSIGNAL) != (ssize_t)answer_len)
            break;
    }
    return close(fd);
}

static int serve_bare(size_t bytes)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof to;
    int fd = socket(AF_INET, SOCK_STREAM, 0), loop = epoll_create1(0), on = 1;
    char *answer = malloc(bytes + 256);
    if (!answer || loop < 0 || bind(fd, (struct sockaddr *)&to, len) != 0 || listen(fd, 16) != 0 ||
        getsockname(fd, (struct sockaddr *)&to, &len) != 0)
        return 1;
    int head = sprintf(answer,
                       "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                       "Content-Length: %zu\r\n\r\n",
                       bytes);
    memset(answer + head, ' ', bytes);
    printf("%d\n", ntohs(to.sin_port));
    fflush(stdout);
    for (;;) {
        int client = accept(fd, NULL, NULL);
        if (client < 0)
            return 1;
        setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        serve_connection(loop, client, answer, (size_t)head + bytes);
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
