/* The event loop: epoll with one callback for each descriptor, timers in a binary heap, and idle
 * functions that tell how long to wait.
 *
 * A watch that is removed while events are delivered stays allocated until the round ends: an event
 * fetched before the removal then finds a watch without callback instead of freed memory.
 *
 * Deadlines of connections are nearly always moved to a later time before they pass. A later time
 * is therefore only noted: the timer keeps its place in the heap and is put back when it is due. */
#include "runtime/server/serve_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { EVENTS_MAX = 128, LOOKS = 16 /* at the source, for each at the descriptors */ };

static const uint64_t late_ns = 1000000;

typedef struct watch {
    int fd;
    uint32_t events;
    bool muted;
    weft_loop_fn *fn; /* NULL: removed */
    void *user;
    struct watch *next; /* of those removed */
} watch;

struct weft_loop {
    int epoll;
    watch **live; /* by descriptor */
    size_t n_live;
    watch *dead;
    weft_timer **heap; /* the earliest first */
    uint32_t n_heap, cap_heap;
    struct {
        weft_loop_idle_fn *fn;
        void *user;
    } idle[WEFT_LOOP_IDLE_MAX];
    uint32_t n_idle;
    const weft_loop_source *source; /* NULL: none */
    uint64_t began_ns;              /* this round, or its events came */
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

static void free_dead(weft_loop *loop)
{
    while (loop->dead) {
        watch *w = loop->dead;
        loop->dead = w->next;
        free(w);
    }
}

void weft_loop__destroy(weft_loop *loop)
{
    if (!loop)
        return;
    for (size_t i = 0; i < loop->n_live; i++)
        free(loop->live[i]);
    free_dead(loop);
    free(loop->live);
    free(loop->heap);
    close(loop->epoll);
    free(loop);
}

/* -- Descriptors ---------------------------------------------------------------------------- */

static watch *find(const weft_loop *loop, int fd)
{
    return fd >= 0 && (size_t)fd < loop->n_live ? loop->live[fd] : NULL;
}

static bool make_room(weft_loop *loop, int fd)
{
    size_t n = loop->n_live ? loop->n_live : 64;
    if ((size_t)fd < loop->n_live)
        return true;
    while (n <= (size_t)fd)
        n *= 2;
    watch **live = realloc(loop->live, n * sizeof *live);
    if (!live)
        return false;
    memset(live + loop->n_live, 0, (n - loop->n_live) * sizeof *live);
    loop->live = live;
    loop->n_live = n;
    return true;
}

bool weft_loop__watch(weft_loop *loop, int fd, uint32_t events, weft_loop_fn *fn, void *user)
{
    watch *w = fd >= 0 && make_room(loop, fd) ? malloc(sizeof *w) : NULL;
    if (!w)
        return false;
    *w = (watch){.fd = fd, .events = events, .fn = fn, .user = user};
    struct epoll_event event = {.events = events, .data = {.ptr = w}};
    if (epoll_ctl(loop->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        free(w);
        return false;
    }
    loop->live[fd] = w;
    return true;
}

static bool apply(weft_loop *loop, watch *w)
{
    struct epoll_event event = {.events = w->muted ? w->events & EPOLLRDHUP : w->events,
                                .data = {.ptr = w}};
    return epoll_ctl(loop->epoll, EPOLL_CTL_MOD, w->fd, &event) == 0;
}

bool weft_loop__change(weft_loop *loop, int fd, uint32_t events)
{
    watch *w = find(loop, fd);
    if (!w)
        return false;
    w->events = events;
    return apply(loop, w);
}

void weft_loop__mute(weft_loop *loop, int fd, bool muted)
{
    watch *w = find(loop, fd);
    if (!w || w->muted == muted)
        return;
    w->muted = muted;
    (void)apply(loop, w); /* which fails for no descriptor that is watched */
}

void weft_loop__deliver(weft_loop *loop, int fd, uint32_t events)
{
    watch *w = find(loop, fd);
    if (w)
        w->fn(w->user, events);
}

void weft_loop__unwatch(weft_loop *loop, int fd)
{
    watch *w = find(loop, fd);
    if (!w)
        return;
    epoll_ctl(loop->epoll, EPOLL_CTL_DEL, fd, NULL);
    loop->live[fd] = NULL;
    w->fn = NULL;
    w->next = loop->dead;
    loop->dead = w;
}

/* -- Timers --------------------------------------------------------------------------------- */

/* A timer in the heap knows its place: `place` is its index + 1. */
static void put(weft_loop *loop, uint32_t i, weft_timer *t)
{
    loop->heap[i] = t;
    t->place = i + 1;
}

static void sift_up(weft_loop *loop, uint32_t i, weft_timer *t)
{
    for (; i && loop->heap[(i - 1) / 2]->heap_ns > t->heap_ns; i = (i - 1) / 2)
        put(loop, i, loop->heap[(i - 1) / 2]);
    put(loop, i, t);
}

static void sift_down(weft_loop *loop, uint32_t i, weft_timer *t)
{
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child + 1 < loop->n_heap && loop->heap[child + 1]->heap_ns < loop->heap[child]->heap_ns)
            child++;
        if (child >= loop->n_heap || loop->heap[child]->heap_ns >= t->heap_ns)
            break;
        put(loop, i, loop->heap[child]);
        i = child;
    }
    put(loop, i, t);
}

bool weft_timer__set(weft_loop *loop, weft_timer *t, uint64_t at_ns)
{
    t->at_ns = at_ns;
    if (t->place && t->heap_ns <= at_ns)
        return true;
    if (!t->place && loop->n_heap == loop->cap_heap) {
        uint32_t cap = loop->cap_heap ? loop->cap_heap * 2 : 64;
        weft_timer **heap = realloc(loop->heap, cap * sizeof *heap);
        if (!heap)
            return false;
        loop->heap = heap;
        loop->cap_heap = cap;
    }
    t->heap_ns = at_ns;
    sift_up(loop, t->place ? t->place - 1 : loop->n_heap++, t);
    return true;
}

void weft_timer__cancel(weft_loop *loop, weft_timer *t)
{
    if (!t->place)
        return;
    uint32_t i = t->place - 1;
    weft_timer *last = loop->heap[--loop->n_heap];
    t->place = 0;
    if (last == t)
        return;
    if (i && loop->heap[(i - 1) / 2]->heap_ns > last->heap_ns)
        sift_up(loop, i, last);
    else
        sift_down(loop, i, last);
}

/* Calls the timers that are due. */
static void run_timers(weft_loop *loop)
{
    if (loop->n_heap == 0)
        return;
    uint64_t now_ns = weft_clock__now_ns();
    while (loop->n_heap && loop->heap[0]->heap_ns <= now_ns) {
        weft_timer *t = loop->heap[0];
        if (t->at_ns > now_ns) {
            t->heap_ns = t->at_ns;
            sift_down(loop, 0, t);
            continue;
        }
        weft_timer__cancel(loop, t);
        t->fn(t->user);
    }
}

static uint64_t time_to_timer(const weft_loop *loop)
{
    if (loop->n_heap == 0)
        return UINT64_MAX;
    uint64_t now_ns = weft_clock__now_ns(), at_ns = loop->heap[0]->heap_ns;
    return at_ns > now_ns ? at_ns - now_ns : 0;
}

/* -- Rounds --------------------------------------------------------------------------------- */

bool weft_loop__idle(weft_loop *loop, weft_loop_idle_fn *fn, void *user)
{
    if (loop->n_idle == WEFT_LOOP_IDLE_MAX)
        return false;
    loop->idle[loop->n_idle].fn = fn;
    loop->idle[loop->n_idle++].user = user;
    return true;
}

void weft_loop__source(weft_loop *loop, const weft_loop_source *source)
{
    loop->source = source;
}

/* Looks for events and for what the source brings, up to `wait_ns`, while that is worth it. Returns
 * the number of events; -1: failed, or, *out_taken set, the source brought something. */
static int look(weft_loop *loop, struct epoll_event *event, uint64_t wait_ns, bool *out_taken)
{
    const weft_loop_source *s = loop->source;
    uint64_t look_ns = wait_ns ? s->look(s->user) : 0, start_ns = weft_clock__now_ns();
    if (look_ns == 0)
        return 0;
    look_ns = look_ns < wait_ns ? look_ns : wait_ns;
    while (weft_clock__now_ns() - start_ns < look_ns) {
        int n = epoll_wait(loop->epoll, event, EVENTS_MAX, 0);
        if (n != 0)
            return n;
        for (int i = 0; i < LOOKS; i++) {
            if (s->take(s->user)) {
                *out_taken = true;
                return -1;
            }
            weft_clock__pause();
        }
    }
    s->missed(s->user);
    return 0;
}

/* As epoll_wait; -1 with *out_taken: the source brought something instead. */
static int wait_for(weft_loop *loop, struct epoll_event *event, uint64_t wait_ns, bool *out_taken)
{
    const weft_loop_source *s = loop->source;
    /* Rounded up: rounded down, the loop would spin during the last millisecond of a timer. */
    int wait_ms = wait_ns > 3600000000000u ? 3600000 : (int)((wait_ns + 999999) / 1000000);
    if (!s)
        return epoll_wait(loop->epoll, event, EVENTS_MAX, wait_ms);
    int n = look(loop, event, wait_ns, out_taken);
    if (n != 0)
        return n;
    if (!s->sleep(s->user))
        wait_ms = 0;
    n = epoll_wait(loop->epoll, event, EVENTS_MAX, wait_ms);
    s->wake(s->user);
    return n;
}

bool weft_loop__is_late(const weft_loop *loop)
{
    return weft_clock__now_ns() - loop->began_ns > late_ns;
}

bool weft_loop__turn(weft_loop *loop)
{
    loop->began_ns = weft_clock__now_ns();
    run_timers(loop);
    uint64_t wait_ns = UINT64_MAX;
    for (uint32_t i = 0; i < loop->n_idle; i++) {
        uint64_t most = loop->idle[i].fn(loop->idle[i].user);
        wait_ns = most < wait_ns ? most : wait_ns;
    }
    /* Last: idle functions and timers set timers. */
    uint64_t timer_ns = time_to_timer(loop);
    wait_ns = timer_ns < wait_ns ? timer_ns : wait_ns;
    struct epoll_event event[EVENTS_MAX];
    bool taken = false;
    int n = wait_for(loop, event, wait_ns, &taken);
    if (n < 0)
        return taken || errno == EINTR;
    const weft_loop_source *s = loop->source;
    loop->began_ns = weft_clock__now_ns();
    for (int i = 0; i < n; i++) {
        watch *w = event[i].data.ptr;
        if (w->fn)
            w->fn(w->user, event[i].events);
        /* What waits for the source is not idle during a long turn. */
        if (s)
            (void)s->take(s->user);
    }
    free_dead(loop);
    return true;
}
