/* weft_health__*: probes are answered while the loop gives signs of life, and told when it does
 * not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/server/serve_int.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const uint64_t patience_ns = 200000000u;

static weft_health *open_health(void)
{
    const weft_serve_port any = {.port = 0};
    weft_diag *diag = weft_diag_create();
    weft_health *h = NULL;
    assert_int_equal(weft_health__create(NULL, &any, patience_ns, diag, &h), WEFT_ERR_OK);
    weft_diag_destroy(diag);
    return h;
}

static int connect_to(const weft_health *h)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)weft_health__port(h)),
                             .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* Status of the answer; 0: none. */
static int read_status(int fd)
{
    char text[1024];
    size_t len = 0;
    ssize_t n;
    int status = 0;
    while (len + 1 < sizeof text && (n = read(fd, text + len, sizeof text - 1 - len)) > 0)
        len += (size_t)n;
    text[len] = '\0';
    close(fd);
    return sscanf(text, "HTTP/1.1 %d", &status) == 1 ? status : 0;
}

static int ask(const weft_health *h, const char *line)
{
    char text[256];
    int fd = connect_to(h);
    int n = snprintf(text, sizeof text, "%s HTTP/1.1\r\nHost: x\r\n\r\n", line);
    assert_int_equal(write(fd, text, (size_t)n), n);
    return read_status(fd);
}

static void test_health__follows_the_loop(void **state)
{
    weft_health *h = open_health();
    (void)state;
    weft_health__beat(h, false);
    assert_int_equal(ask(h, "GET /v2/health/live"), 200);
    assert_int_equal(ask(h, "GET /v2/health/ready"), 400);
    weft_health__beat(h, true);
    assert_int_equal(ask(h, "HEAD /v2/health/ready"), 200);
    usleep(300000);
    assert_int_equal(ask(h, "GET /v2/health/live"), 503);
    assert_int_equal(ask(h, "GET /v2/health/ready"), 400);
    weft_health__beat(h, true);
    assert_int_equal(ask(h, "GET /v2/health/live"), 200);
    weft_health__destroy(h);
}

static void test_health__refuses_other_requests(void **state)
{
    static const struct {
        const char *line;
        int status;
    } cases[] = {{"GET /v2/health", 404},
                 {"GET /metrics", 404},
                 {"GET /v2/health/live/x", 404},
                 {"POST /v2/health/live", 405},
                 {"GET /v2/../v2/health/live", 400},
                 {"OPTIONS *", 400},
                 {"GET v2", 400}};
    weft_health *h = open_health();
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weft_health__beat(h, true);
        int status = ask(h, cases[i].line);
        if (status != cases[i].status)
            fail_msg("%s: %d", cases[i].line, status);
    }
    weft_health__destroy(h);
}

/* Clients that send nothing, or never end, keep nobody out. */
static void test_health__outlives_idle_clients(void **state)
{
    enum { CLIENTS = 100 };
    int fd[CLIENTS];
    weft_health *h = open_health();
    char *large = malloc(100000);
    (void)state;
    assert_non_null(large);
    memset(large, 'x', 100000);
    for (int i = 0; i < CLIENTS; i++) {
        fd[i] = connect_to(h);
        if (i % 2)
            assert_int_equal(write(fd[i], "GET /v2", 7), 7);
    }
    weft_health__beat(h, true);
    assert_int_equal(ask(h, "GET /v2/health/live"), 200);
    for (int i = 0; i < CLIENTS; i++) {
        if (i % 3 == 0)
            (void)send(fd[i], large, 100000, MSG_NOSIGNAL | MSG_DONTWAIT);
        close(fd[i]);
    }
    weft_health__beat(h, true);
    assert_int_equal(ask(h, "GET /v2/health/live"), 200);
    free(large);
    weft_health__destroy(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_health__follows_the_loop),
        cmocka_unit_test(test_health__refuses_other_requests),
        cmocka_unit_test(test_health__outlives_idle_clients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
