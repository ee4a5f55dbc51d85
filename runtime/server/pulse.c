/* The pulse of a worker: a counter in memory that router and worker share. A thread of the worker
 * counts while the process runs, whatever the model does: a counter that stands still tells of a
 * stopped or frozen process. That a batch takes too long is the router's to tell (router.c). */
#include "runtime/server/serve_int.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static const long beat_every_ns = 25000000;

struct weft_pulse {
    _Atomic uint64_t beats;
};

static weft_pulse *map(int fd)
{
    void *at = mmap(NULL, sizeof(weft_pulse), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

weft_pulse *weft_pulse__create(int *out_fd)
{
    weft_pulse *pulse = NULL;
    *out_fd = memfd_create("weft-pulse", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    /* Sealed: a worker cannot shrink it, which would raise SIGBUS in the router. */
    if (*out_fd >= 0 && ftruncate(*out_fd, sizeof *pulse) == 0 &&
        fcntl(*out_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        pulse = map(*out_fd);
    if (pulse)
        return pulse;
    if (*out_fd >= 0)
        close(*out_fd);
    *out_fd = -1;
    return NULL;
}

void weft_pulse__destroy(weft_pulse *pulse)
{
    if (pulse)
        munmap(pulse, sizeof *pulse);
}

void weft_pulse__reset(weft_pulse *pulse)
{
    atomic_store_explicit(&pulse->beats, 0, memory_order_relaxed);
}

uint64_t weft_pulse__beats(const weft_pulse *pulse)
{
    return atomic_load_explicit(&pulse->beats, memory_order_relaxed);
}

static void *beat(void *user)
{
    weft_pulse *pulse = user;
    const struct timespec pause = {.tv_nsec = beat_every_ns};
    for (;;) {
        atomic_fetch_add_explicit(&pulse->beats, 1, memory_order_relaxed);
        clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
    }
    return NULL;
}

bool weft_pulse__start(int fd)
{
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t all, before;
    weft_pulse *pulse = map(fd);
    close(fd);
    if (!pulse || pthread_attr_init(&attr) != 0)
        return false;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    bool ok = pthread_create(&thread, &attr, beat, pulse) == 0;
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return ok;
}
