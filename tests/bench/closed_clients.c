/* For bench_packed: clients that each wait for an answer before they ask again.
 *
 *   closed_clients PORT CLIENTS SECONDS SEED FILE
 *
 * FILE has requests, each a line "BYTES TOKENS" and then the bytes of an HTTP/1.1 request, of which
 * every client draws at random; answers need a Content-Length. Prints answers and tokens a second,
 * and the median and 99th percentile of the time of an answer in us. One thread: its own time is
 * small beside that of the server. */
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

enum { CLIENTS_MAX = 256, REQUESTS_MAX = 65536, ANSWER_BYTES = 1 << 20, TIMES_MAX = 1 << 22 };

typedef struct request {
    char *at;
    size_t bytes;
    long tokens;
} request;

typedef struct client {
    int fd;
    char *in;
    size_t len;
    long tokens;
    double since;
} client;

static request all[REQUESTS_MAX];
static size_t n_request;
static double *times;
static size_t n_time;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail(const char *what)
{
    fprintf(stderr, "closed_clients: %s\n", what);
    exit(1);
}

static void read_requests(const char *path)
{
    FILE *f = fopen(path, "rb");
    unsigned long bytes;
    long tokens;
    if (!f)
        fail("no such file");
    while (n_request < REQUESTS_MAX && fscanf(f, "%lu %ld", &bytes, &tokens) == 2) {
        request r = {malloc(bytes + 1), bytes, tokens};
        if (fgetc(f) != '\n' || !r.at || fread(r.at, 1, bytes, f) != bytes)
            fail("a request is cut");
        all[n_request++] = r;
    }
    fclose(f);
    if (n_request == 0)
        fail("no requests");
}

static int open_connection(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((unsigned short)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
        fail("no connection");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static void ask(client *c)
{
    const request *r = &all[(size_t)rand() % n_request];
    c->len = 0;
    c->tokens = r->tokens;
    c->since = now();
    for (size_t at = 0; at < r->bytes;) {
        ssize_t n = send(c->fd, r->at + at, r->bytes - at, MSG_NOSIGNAL);
        if (n <= 0)
            fail("the server closed a connection");
        at += (size_t)n;
    }
}

/* Whether the answer is whole; ends the program when it is no answer of status 200. */
static int is_whole(client *c)
{
    c->in[c->len] = '\0';
    const char *end = strstr(c->in, "\r\n\r\n");
    if (!end)
        return 0;
    const char *length = strcasestr(c->in, "\r\nContent-Length:");
    if (strncmp(c->in, "HTTP/1.1 200", 12) != 0 || !length || length > end)
        fail(c->in);
    return c->len >= (size_t)(end + 4 - c->in) + strtoul(length + 17, NULL, 10);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void run(client *c, int n, double seconds)
{
    struct epoll_event event[CLIENTS_MAX];
    int loop = epoll_create1(0);
    long tokens = 0;
    for (int i = 0; i < n; i++) {
        struct epoll_event e = {.events = EPOLLIN, .data.u32 = (unsigned)i};
        epoll_ctl(loop, EPOLL_CTL_ADD, c[i].fd, &e);
        ask(&c[i]);
    }
    double begin = now();
    while (now() < begin + seconds) {
        int ready = epoll_wait(loop, event, CLIENTS_MAX, 1000);
        for (int i = 0; i < ready; i++) {
            client *one = &c[event[i].data.u32];
            ssize_t got = recv(one->fd, one->in + one->len, ANSWER_BYTES - one->len, 0);
            if (got <= 0)
                fail("the server closed a connection");
            one->len += (size_t)got;
            if (!is_whole(one))
                continue;
            tokens += one->tokens;
            if (n_time < TIMES_MAX)
                times[n_time++] = now() - one->since;
            ask(one);
        }
    }
    double took = now() - begin;
    qsort(times, n_time, sizeof *times, by_value);
    printf("%.1f %.1f %.1f %.1f\n", (double)n_time / took, (double)tokens / took,
           n_time ? 1e6 * times[n_time / 2] : 0, n_time ? 1e6 * times[n_time * 99 / 100] : 0);
    close(loop);
}

int main(int n_arg, char **arg)
{
    static client c[CLIENTS_MAX];
    if (n_arg != 6 || atoi(arg[2]) < 1 || atoi(arg[2]) > CLIENTS_MAX)
        fail("usage: closed_clients PORT CLIENTS SECONDS SEED FILE");
    int n = atoi(arg[2]);
    srand((unsigned)atoi(arg[4]));
    read_requests(arg[5]);
    times = malloc(TIMES_MAX * sizeof *times);
    for (int i = 0; i < n; i++) {
        c[i].fd = open_connection(atoi(arg[1]));
        c[i].in = malloc(ANSWER_BYTES + 1);
        if (!times || !c[i].in)
            fail("no memory");
    }
    run(c, n, atof(arg[3]));
    return 0;
}
