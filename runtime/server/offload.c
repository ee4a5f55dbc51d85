/* Work that takes too long for the loop's thread: large JSON bodies and answers, decompression, and
 * giving back large memory, of which the kernel clears 10 MiB in about 1 ms. One thread does the
 * jobs in order; each is handed back to the loop by an event. */
#include "runtime/server/serve_int.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

enum { FREE_BYTES = 1 << 20 };

typedef struct job_list {
    weft_job *first, *last;
} job_list;

struct weft_offload {
    weft_loop *loop;
    int nice;
    int event; /* counts jobs that are done */
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t work;
    job_list todo, done;
    bool ends;
};

static void append(job_list *list, weft_job *job)
{
    job->next = NULL;
    *(list->last ? &list->last->next : &list->first) = job;
    list->last = job;
}

static weft_job *take_first(job_list *list)
{
    weft_job *job = list->first;
    if (job && !(list->first = job->next))
        list->last = NULL;
    return job;
}

static void *do_jobs(void *user)
{
    weft_offload *o = user;
    const uint64_t one = 1;
    if (o->nice)
        (void)setpriority(PRIO_PROCESS, 0,
                          getpriority(PRIO_PROCESS, 0) + o->nice); /* of the thread */
    pthread_mutex_lock(&o->lock);
    while (!o->ends) {
        weft_job *job = take_first(&o->todo);
        if (!job) {
            pthread_cond_wait(&o->work, &o->lock);
            continue;
        }
        bool comes_back = job->done != NULL;
        pthread_mutex_unlock(&o->lock);
        job->run(job);
        pthread_mutex_lock(&o->lock);
        if (!comes_back)
            continue;
        append(&o->done, job);
        /* A full counter has woken the loop. */
        while (write(o->event, &one, sizeof one) < 0 && errno == EINTR)
            ;
    }
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

static void hand_back(weft_offload *o)
{
    for (;;) {
        pthread_mutex_lock(&o->lock);
        weft_job *job = take_first(&o->done);
        pthread_mutex_unlock(&o->lock);
        if (!job)
            return;
        job->done(job);
    }
}

static void on_event(void *user, uint32_t events)
{
    weft_offload *o = user;
    uint64_t count;
    (void)events;
    ssize_t got = read(o->event, &count, sizeof count);
    (void)got; /* not ready: then there is no job */
    hand_back(o);
}

weft_offload *weft_offload__create(weft_loop *loop, int nice)
{
    weft_offload *o = calloc(1, sizeof *o);
    sigset_t all, before;
    if (!o)
        return NULL;
    o->loop = loop;
    o->nice = nice;
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->work, NULL);
    o->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (o->event < 0 || !weft_loop__watch(loop, o->event, EPOLLIN, on_event, o)) {
        weft_offload__destroy(o);
        return NULL;
    }
    /* Signals are the loop's. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    o->has_thread = pthread_create(&o->thread, NULL, do_jobs, o) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (o->has_thread)
        return o;
    weft_offload__destroy(o);
    return NULL;
}

void weft_offload__submit(weft_offload *o, weft_job *job)
{
    pthread_mutex_lock(&o->lock);
    append(&o->todo, job);
    pthread_cond_signal(&o->work);
    pthread_mutex_unlock(&o->lock);
}

static void run_free(weft_job *job)
{
    free(job);
}

void weft_offload__free(weft_offload *o, void *at, size_t bytes)
{
    weft_job *job = at;
    if (!o || !at || bytes < FREE_BYTES) {
        free(at);
        return;
    }
    *job = (weft_job){.run = run_free};
    weft_offload__submit(o, job);
}

/* Ends the jobs that were not begun as they are. */
static void end_jobs(weft_offload *o)
{
    for (weft_job *job; (job = take_first(&o->todo));)
        if (job->done)
            append(&o->done, job);
        else
            job->run(job);
    hand_back(o);
}

void weft_offload__destroy(weft_offload *o)
{
    if (!o)
        return;
    if (o->has_thread) {
        pthread_mutex_lock(&o->lock);
        o->ends = true;
        pthread_cond_signal(&o->work);
        pthread_mutex_unlock(&o->lock);
        pthread_join(o->thread, NULL);
    }
    do
        end_jobs(o);
    while (o->todo.first || o->done.first);
    if (o->event >= 0) {
        weft_loop__unwatch(o->loop, o->event);
        close(o->event);
    }
    pthread_cond_destroy(&o->work);
    pthread_mutex_destroy(&o->lock);
    free(o);
}
