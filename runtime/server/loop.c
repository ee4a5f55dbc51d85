/* The event loop: epoll with one callback for each descriptor, and idle functions that tell how
 * long to wait.
 *
 * A watch that is removed while events are delivered stays allocated until the round ends: an event
 * fetched before the removal then finds a watch without callback instead of freed memory. */
#include "runtime/server/serve_int.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { EVENTS_MAX = 128 };

typedef struct watch {
    int fd;
    weft_loop_fn *fn; /* NULL: removed */
    void *user;
    struct watch *next;
} watch;

struct weft_loop {
    int epoll;
    watch *live, *dead;
    struct {
        weft_loop_idle_fn *fn;
        void *user;
    } idle[WEFT_LOOP_IDLE_MAX];
    uint32_t n_idle;
};

weft_loop *weft_loop__create(void)
{
    weft_loop *loop = calloc(1, sizeof *loop);
    if (!loop)
        return NULL;
    loop->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (loop->epoll < 0) {
        free(loop);
        return NULL;
    }
    return loop;
}

static void free_list(watch **list)
{
    while (*list) {
        watch *w = *list;
        *list = w->next;
        free(w);
    }
}

void weft_loop__destroy(weft_loop *loop)
{
    if (!loop)
        return;
    free_list(&loop->live);
    free_list(&loop->dead);
    close(loop->epoll);
    free(loop);
}

static watch **find(weft_loop *loop, int fd)
{
    watch **at = &loop->live;
    while (*at && (*at)->fd != fd)
        at = &(*at)->next;
    return at;
}

bool weft_loop__watch(weft_loop *loop, int fd, uint32_t events, weft_loop_fn *fn, void *user)
{
    watch *w = malloc(sizeof *w);
    if (!w)
        return false;
    *w = (watch){.fd = fd, .fn = fn, .user = user, .next = loop->live};
    struct epoll_event event = {.events = events, .data = {.ptr = w}};
    if (epoll_ctl(loop->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        free(w);
        return false;
    }
    loop->live = w;
    return true;
}

bool weft_loop__change(weft_loop *loop, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data = {.ptr = *find(loop, fd)}};
    return event.data.ptr && epoll_ctl(loop->epoll, EPOLL_CTL_MOD, fd, &event) == 0;
}

void weft_loop__unwatch(weft_loop *loop, int fd)
{
    watch **at = find(loop, fd), *w = *at;
    if (!w)
        return;
    epoll_ctl(loop->epoll, EPOLL_CTL_DEL, fd, NULL);
    *at = w->next;
    w->fn = NULL;
    w->next = loop->dead;
    loop->dead = w;
}

bool weft_loop__idle(weft_loop *loop, weft_loop_idle_fn *fn, void *user)
{
    if (loop->n_idle == WEFT_LOOP_IDLE_MAX)
        return false;
    loop->idle[loop->n_idle].fn = fn;
    loop->idle[loop->n_idle++].user = user;
    return true;
}

bool weft_loop__turn(weft_loop *loop)
{
    uint64_t wait_ns = UINT64_MAX;
    for (uint32_t i = 0; i < loop->n_idle; i++) {
        uint64_t most = loop->idle[i].fn(loop->idle[i].user);
        wait_ns = most < wait_ns ? most : wait_ns;
    }
    struct epoll_event event[EVENTS_MAX];
    /* Rounded up: rounded down, the loop would spin during the last millisecond of a timer. */
    int wait_ms = wait_ns > 3600000000000u ? 3600000 : (int)((wait_ns + 999999) / 1000000);
    int n = epoll_wait(loop->epoll, event, EVENTS_MAX, wait_ms);
    if (n < 0)
        return errno == EINTR;
    for (int i = 0; i < n; i++) {
        watch *w = event[i].data.ptr;
        if (w->fn)
            w->fn(w->user, event[i].events);
    }
    free_list(&loop->dead);
    return true;
}
