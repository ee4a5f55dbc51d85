/* The entry points of OpenMP's runtime that oneDNN calls, over the team of cpu_team.h.
 *
 * oneDNN is built for libgomp. Programs that link this file export these names, so that they come
 * before libgomp's for all libraries of the process. A thread is served here only while it runs or
 * prepares a model (weft_team_begin); all other calls go on to libgomp, so that code with OpenMP in
 * the same process works as before. Where the names are not exported, oneDNN uses libgomp's team
 * beside ours, which is correct but slow on a busy machine (weft_omp_is_ours).
 *
 * GOMP_parallel is what gcc has emitted since version 5, GOMP_parallel_start and _end before it. */
#include "runtime/cpu/cpu_int.h"
#include "runtime/cpu/cpu_team.h"

#include <dlfcn.h>
#include <pthread.h>

#define EXPORT __attribute__((visibility("default")))

typedef void (*gomp_fn)(void *data);

EXPORT void GOMP_parallel(gomp_fn fn, void *data, unsigned n, unsigned flags);
EXPORT void GOMP_parallel_start(gomp_fn fn, void *data, unsigned n);
EXPORT void GOMP_parallel_end(void);
EXPORT void GOMP_barrier(void);
EXPORT bool GOMP_loop_static_start(long start, long end, long step, long chunk, long *first,
                                   long *last);
EXPORT bool GOMP_loop_static_next(long *first, long *last);
EXPORT void GOMP_loop_end_nowait(void);
EXPORT int omp_get_max_threads(void);
EXPORT int omp_get_num_threads(void);
EXPORT int omp_get_thread_num(void);
EXPORT int omp_in_parallel(void);

/* -- libgomp's functions -------------------------------------------------------------------- */

static struct {
    void (*parallel)(gomp_fn fn, void *data, unsigned n, unsigned flags);
    void (*parallel_start)(gomp_fn fn, void *data, unsigned n);
    void (*parallel_end)(void);
    void (*barrier)(void);
    bool (*loop_static_start)(long, long, long, long, long *, long *);
    bool (*loop_static_next)(long *, long *);
    void (*loop_end_nowait)(void);
    int (*get_max_threads)(void);
    int (*get_num_threads)(void);
    int (*get_thread_num)(void);
    int (*in_parallel)(void);
} gomp;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load_gomp(void)
{
    /* Linked in already; libraries are never closed. */
    void *lib = dlopen("libgomp.so.1", RTLD_NOW);
#define LOAD(field, name) *(void **)&gomp.field = lib ? dlsym(lib, name) : NULL
    LOAD(parallel, "GOMP_parallel");
    LOAD(parallel_start, "GOMP_parallel_start");
    LOAD(parallel_end, "GOMP_parallel_end");
    LOAD(barrier, "GOMP_barrier");
    LOAD(loop_static_start, "GOMP_loop_static_start");
    LOAD(loop_static_next, "GOMP_loop_static_next");
    LOAD(loop_end_nowait, "GOMP_loop_end_nowait");
    LOAD(get_max_threads, "omp_get_max_threads");
    LOAD(get_num_threads, "omp_get_num_threads");
    LOAD(get_thread_num, "omp_get_thread_num");
    LOAD(in_parallel, "omp_in_parallel");
#undef LOAD
}

/* -- Regions -------------------------------------------------------------------------------- */

typedef struct region {
    gomp_fn fn;
    void *data;
} region;

/* The calling thread runs or prepares a model, or executes a part of a job. */
static bool is_served(void)
{
    return weft_team_threads() > 0;
}

static void run_part(void *cx, uint32_t part)
{
    const region *r = cx;
    (void)part;
    r->fn(r->data);
}

static uint32_t team_size(unsigned n)
{
    return weft_team_parts() > 1 ? 1 : n ? n : weft_team_threads();
}

EXPORT void GOMP_parallel(gomp_fn fn, void *data, unsigned n, unsigned flags)
{
    region r = {fn, data};
    uint32_t team = team_size(n);
    if (is_served() && weft_team_run(run_part, &r, team, team))
        return;
    pthread_once(&once, load_gomp);
    uint32_t limit = weft_team_limit(0);
    gomp.parallel(fn, data, n, flags);
    weft_team_limit(limit);
}

/* Between GOMP_parallel_start and _end. */
static _Thread_local region started;
static _Thread_local struct {
    uint32_t depth, limit;
} forwarded;

EXPORT void GOMP_parallel_start(gomp_fn fn, void *data, unsigned n)
{
    uint32_t team = team_size(n);
    if (team > 1)
        started = (region){fn, data};
    if (is_served() && weft_team_start(run_part, &started, team))
        return;
    pthread_once(&once, load_gomp);
    uint32_t limit = weft_team_limit(0);
    if (forwarded.depth++ == 0)
        forwarded.limit = limit;
    gomp.parallel_start(fn, data, n);
}

EXPORT void GOMP_parallel_end(void)
{
    if (!forwarded.depth) {
        weft_team_join();
        return;
    }
    gomp.parallel_end();
    if (--forwarded.depth == 0)
        weft_team_limit(forwarded.limit);
}

EXPORT void GOMP_barrier(void)
{
    if (is_served()) {
        weft_team_barrier();
        return;
    }
    pthread_once(&once, load_gomp);
    gomp.barrier();
}

/* -- Loops with a static schedule ----------------------------------------------------------- */

/* The loop that the thread executes: `n` iterations, given out in chunks; chunk number `turn` is
 * the thread's next one. */
static _Thread_local struct {
    long start, n, step, chunk, turn;
} loop;

static bool next_chunk(long *first, long *last)
{
    if (loop.turn > (loop.n - 1) / loop.chunk || loop.n <= 0)
        return false;
    long from = loop.turn * loop.chunk;
    long to = loop.n - from < loop.chunk ? loop.n : from + loop.chunk;
    *first = loop.start + from * loop.step;
    *last = loop.start + to * loop.step;
    loop.turn += weft_team_parts();
    return true;
}

EXPORT bool GOMP_loop_static_start(long start, long end, long step, long chunk, long *first,
                                   long *last)
{
    if (!is_served()) {
        pthread_once(&once, load_gomp);
        return gomp.loop_static_start(start, end, step, chunk, first, last);
    }
    long parts = weft_team_parts(), n = (end - start + step - (step > 0 ? 1 : -1)) / step;
    loop.start = start;
    loop.n = n;
    loop.step = step;
    loop.chunk = chunk > 0 ? chunk : n / parts + (n % parts > 0);
    loop.turn = weft_team_part();
    return next_chunk(first, last);
}

EXPORT bool GOMP_loop_static_next(long *first, long *last)
{
    if (is_served())
        return next_chunk(first, last);
    pthread_once(&once, load_gomp);
    return gomp.loop_static_next(first, last);
}

EXPORT void GOMP_loop_end_nowait(void)
{
    if (is_served())
        return;
    pthread_once(&once, load_gomp);
    gomp.loop_end_nowait();
}

/* -- Questions ------------------------------------------------------------------------------ */

EXPORT int omp_get_max_threads(void)
{
    if (is_served())
        return weft_team_parts() > 1 ? (int)weft_team_parts() : (int)weft_team_threads();
    pthread_once(&once, load_gomp);
    return gomp.get_max_threads ? gomp.get_max_threads() : 1;
}

EXPORT int omp_get_num_threads(void)
{
    if (is_served())
        return (int)weft_team_parts();
    pthread_once(&once, load_gomp);
    return gomp.get_num_threads ? gomp.get_num_threads() : 1;
}

EXPORT int omp_get_thread_num(void)
{
    if (is_served())
        return (int)weft_team_part();
    pthread_once(&once, load_gomp);
    return gomp.get_thread_num ? gomp.get_thread_num() : 0;
}

EXPORT int omp_in_parallel(void)
{
    if (is_served())
        return weft_team_parts() > 1;
    pthread_once(&once, load_gomp);
    return gomp.in_parallel ? gomp.in_parallel() : 0;
}

bool weft_omp_is_ours(void)
{
    void *found = dlsym(RTLD_DEFAULT, "GOMP_parallel");
    void (*ours)(gomp_fn, void *, unsigned, unsigned) = GOMP_parallel;
    return found && memcmp(&found, &ours, sizeof found) == 0;
}
