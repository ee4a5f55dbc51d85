/* The team: see cpu_team.h.
 *
 * The caller publishes a job by writing its fields and then the word `job` (sequence number and
 * number of parts). A part is claimed by writing the sequence number into taken[part]. A job ends
 * only after all its parts are taken, so that a late helper with an old word claims nothing.
 *
 * Waiting is a bounded spin followed by a futex. libgomp's waiting is not usable here: it spins for
 * milliseconds unless the environment said otherwise before the program was started, and on a busy
 * machine it spins in the time slice that the thread it waits for needs. */
#include "runtime/cpu/cpu_team.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    SPIN_NS = 100 * 1000,       /* of a waiting thread, before it sleeps */
    SPIN_BUSY_NS = 3 * 1000,    /* the same on a busy machine */
    SPIN_REST_NS = 10 * 1000,   /* the same between two runs: others may want the CPU */
    STOLEN_NS = 50 * 1000,      /* a spinning thread that does not run for so long was preempted */
    BUSY_NS = 50 * 1000 * 1000, /* how long the machine counts as busy afterwards */
    PAUSES = 16,                /* between two looks at the clock */
    LINE = 64,
    RENUMBER = 1 << 28, /* jobs */
};

typedef struct weft_team {
    alignas(LINE) _Atomic uint64_t job; /* job_word */
    weft_team_fn fn;
    void *cx;
    alignas(LINE) _Atomic uint32_t pending; /* parts that are not finished */
    _Atomic uint32_t caller_sleeps;
    alignas(LINE) _Atomic uint32_t bell; /* futex of sleeping helpers; counts jobs */
    _Atomic uint32_t sleepers;
    alignas(LINE) _Atomic uint32_t phase; /* futex of the barrier; counts its releases */
    _Atomic uint32_t arrived, phase_sleepers;
    alignas(LINE) _Atomic uint64_t busy_until_ns;
    _Atomic bool rests; /* the caller is between two runs */
    _Atomic bool stop;
    _Atomic bool invalid; /* a helper's flag of an invalid operation was raised */
    uint32_t n_helper;
    uint32_t forks; /* value of `forks` when the helpers were created */
    pthread_t helper[WEFT_TEAM_THREADS_MAX];
    _Atomic uint32_t taken[WEFT_TEAM_THREADS_MAX]; /* last job of which the part was claimed */
} weft_team;

/* The calling thread's team, and its place in the current job. */
typedef struct thread_state {
    weft_team *own;  /* the thread is the caller of this team */
    weft_team *team; /* of the current job */
    uint32_t limit, self, part, parts;
    uint32_t nested; /* jobs of one part, started within this one */
} thread_state;

static _Thread_local thread_state me;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* frees the team of a thread that ends */
static _Atomic uint32_t forks;

/* -- Waiting -------------------------------------------------------------------------------- */

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void sleep_on(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void wake(_Atomic uint32_t *word, uint32_t n)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

/* Spins while *word is `value`, for a limited time; false: it still is. A gap in the thread's own
 * time means that another process had the CPU: the spin then ends at once, and the next ones are
 * short. */
static bool spin_while(weft_team *team, _Atomic uint32_t *word, uint32_t value)
{
    uint64_t start = now_ns(), last = start;
    uint64_t busy = atomic_load_explicit(&team->busy_until_ns, memory_order_relaxed);
    uint64_t limit = start < busy ? SPIN_BUSY_NS : SPIN_NS;
    for (;;) {
        for (int i = 0; i < PAUSES; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != value)
                return true;
            pause_cpu();
        }
        uint64_t now = now_ns();
        if (now - last > STOLEN_NS) {
            atomic_store_explicit(&team->busy_until_ns, now + BUSY_NS, memory_order_relaxed);
            return atomic_load(word) != value;
        }
        if (now - start > limit || (now - start > SPIN_REST_NS &&
                                    atomic_load_explicit(&team->rests, memory_order_relaxed)))
            return false;
        last = now;
    }
}

bool weft_team_is_busy(void)
{
    return me.own && now_ns() < atomic_load_explicit(&me.own->busy_until_ns, memory_order_relaxed);
}

/* -- The flag of invalid operations --------------------------------------------------------- */

/* Bit 0 of MXCSR; writing the register takes longer than reading it. */
static bool is_invalid(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_stmxcsr() & 1;
#else
    return false;
#endif
}

static void clear_invalid(void)
{
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() & ~1u);
#endif
}

bool weft_team_has_invalid(void)
{
#if defined(__x86_64__)
    return true;
#else
    return false;
#endif
}

void weft_team_clear_invalid(void)
{
    if (is_invalid())
        clear_invalid();
    if (me.own && atomic_load_explicit(&me.own->invalid, memory_order_relaxed))
        atomic_store(&me.own->invalid, false);
}

bool weft_team_is_invalid(void)
{
    return is_invalid() || (me.own && atomic_load(&me.own->invalid));
}

/* -- Parts ---------------------------------------------------------------------------------- */

static uint64_t job_word(uint32_t serial, uint32_t threads, uint32_t parts)
{
    return (uint64_t)serial << 32 | threads << 16 | parts;
}

/* Only a part that was last claimed by an earlier job: a late helper must not take parts of the
 * next job for those of its own. */
static bool claim(weft_team *team, uint32_t serial, uint32_t part)
{
    uint32_t last = atomic_load_explicit(&team->taken[part], memory_order_relaxed);
    return (int32_t)(serial - last) > 0 &&
           atomic_compare_exchange_strong(&team->taken[part], &last, serial);
}

static void enter_part(weft_team *team, uint32_t part, uint32_t parts)
{
    me.team = team;
    me.part = part;
    me.parts = parts;
}

/* Claims and executes parts of a job until none is left; `done` of them are done already. Threads
 * start at different parts, so that the same thread gets the same part of jobs of one size: its
 * cache has the data. */
static void work(weft_team *team, uint64_t job, uint32_t done)
{
    uint32_t serial = (uint32_t)(job >> 32), threads = job >> 16 & 0xffff, parts = job & 0xffff;
    if (me.self >= threads)
        return;
    uint32_t first = (uint32_t)((uint64_t)parts * me.self / threads);
    for (uint32_t i = 0; i < parts; i++) {
        uint32_t part = first + i < parts ? first + i : first + i - parts;
        if (!claim(team, serial, part))
            continue;
        enter_part(team, part, parts);
        team->fn(team->cx, part);
        me.parts = 0;
        done++;
    }
    if (me.self > 0 && is_invalid()) {
        atomic_store(&team->invalid, true);
        clear_invalid();
    }
    if (done && atomic_fetch_sub(&team->pending, done) == done && me.self > 0 &&
        atomic_load(&team->caller_sleeps))
        wake(&team->pending, 1);
}

/* `own`: part 0 is claimed for the caller. */
static void publish(weft_team *team, weft_team_fn fn, void *cx, uint32_t parts, uint32_t threads,
                    bool own)
{
    uint32_t serial = (uint32_t)(atomic_load(&team->job) >> 32) + 1;
    /* Numbers that wrap around must not meet those of parts that were not used for long. */
    for (uint32_t i = 0; serial % RENUMBER == 0 && i < WEFT_TEAM_THREADS_MAX; i++)
        atomic_store(&team->taken[i], serial - 1);
    team->fn = fn;
    team->cx = cx;
    if (own)
        atomic_store(&team->taken[0], serial);
    atomic_store(&team->pending, parts);
    atomic_store(&team->job, job_word(serial, threads, parts));
    atomic_fetch_add(&team->bell, 1);
    if (atomic_load(&team->sleepers))
        wake(&team->bell, team->n_helper);
}

static void wait_for_parts(weft_team *team)
{
    uint32_t left;
    while ((left = atomic_load(&team->pending)) != 0) {
        if (spin_while(team, &team->pending, left))
            continue;
        atomic_store(&team->caller_sleeps, 1);
        sleep_on(&team->pending, left);
        atomic_store(&team->caller_sleeps, 0);
    }
}

/* -- Helpers -------------------------------------------------------------------------------- */

typedef struct helper_start {
    weft_team *team;
    uint32_t self;
} helper_start;

static void *run_helper(void *arg)
{
    helper_start start = *(helper_start *)arg;
    weft_team *team = start.team;
    free(arg);
    me = (thread_state){.self = start.self};
    for (;;) {
        uint32_t heard = atomic_load(&team->bell);
        if (atomic_load(&team->stop))
            return NULL;
        work(team, atomic_load(&team->job), 0);
        if (spin_while(team, &team->bell, heard))
            continue;
        atomic_fetch_add(&team->sleepers, 1);
        sleep_on(&team->bell, heard);
        atomic_fetch_sub(&team->sleepers, 1);
    }
}

static bool add_helper(weft_team *team)
{
    sigset_t all, old;
    helper_start *start = malloc(sizeof *start);
    if (!start)
        return false;
    *start = (helper_start){.team = team, .self = team->n_helper + 1};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = pthread_create(&team->helper[team->n_helper], NULL, run_helper, start);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed)
        free(start);
    else
        team->n_helper++;
    return !failed;
}

static void destroy_team(void *arg)
{
    weft_team *team = arg;
    atomic_store(&team->stop, true);
    atomic_fetch_add(&team->bell, 1);
    wake(&team->bell, WEFT_TEAM_THREADS_MAX);
    /* The child of a fork has none of the helpers. */
    for (uint32_t i = 0; team->forks == atomic_load(&forks) && i < team->n_helper; i++)
        pthread_join(team->helper[i], NULL);
    free(team);
}

static void count_fork(void)
{
    atomic_fetch_add(&forks, 1);
}

static void init_once(void)
{
    pthread_key_create(&key, destroy_team);
    pthread_atfork(NULL, NULL, count_fork);
}

/* The team of the calling thread with at least `threads` threads, or NULL. */
static weft_team *get_team(uint32_t threads)
{
    pthread_once(&once, init_once);
    if (me.own && me.own->forks != atomic_load(&forks))
        weft_team_reset();
    if (!me.own) {
        weft_team *team = aligned_alloc(LINE, sizeof *team);
        if (!team)
            return NULL;
        memset(team, 0, sizeof *team);
        team->forks = atomic_load(&forks);
        me.own = team;
        pthread_setspecific(key, team);
    }
    while (me.own->n_helper + 1 < threads)
        if (!add_helper(me.own))
            return NULL;
    return me.own;
}

void weft_team_reset(void)
{
    if (!me.own)
        return;
    pthread_setspecific(key, NULL);
    destroy_team(me.own);
    me.own = NULL;
}

/* -- Jobs ----------------------------------------------------------------------------------- */

void weft_team_begin(uint32_t threads)
{
    me.limit = threads < WEFT_TEAM_THREADS_MAX ? threads : WEFT_TEAM_THREADS_MAX;
    if (me.own)
        atomic_store_explicit(&me.own->rests, false, memory_order_relaxed);
}

void weft_team_end(void)
{
    me.limit = 0;
    if (me.own)
        atomic_store_explicit(&me.own->rests, true, memory_order_relaxed);
}

uint32_t weft_team_threads(void)
{
    return me.parts ? 1 : me.limit;
}

uint32_t weft_team_limit(uint32_t threads)
{
    uint32_t old = me.limit;
    me.limit = threads;
    return old;
}

/* Parts one after the other; each is a job of one part. */
static void run_serially(weft_team_fn fn, void *cx, uint32_t parts)
{
    thread_state outer = me;
    for (uint32_t i = 0; i < parts; i++) {
        enter_part(me.team, 0, 1);
        fn(cx, i);
    }
    me = outer;
}

bool weft_team_run(weft_team_fn fn, void *cx, uint32_t parts, uint32_t threads)
{
    if (threads > parts)
        threads = parts;
    if (me.parts || threads <= 1) {
        run_serially(fn, cx, parts);
        return true;
    }
    weft_team *team = parts <= WEFT_TEAM_THREADS_MAX ? get_team(threads) : NULL;
    if (!team)
        return false;
    publish(team, fn, cx, parts, threads, false);
    work(team, atomic_load(&team->job), 0);
    wait_for_parts(team);
    return true;
}

bool weft_team_start(weft_team_fn fn, void *cx, uint32_t parts)
{
    if (me.parts || parts <= 1) {
        me.nested++;
        return true;
    }
    weft_team *team = parts <= WEFT_TEAM_THREADS_MAX ? get_team(parts) : NULL;
    if (!team)
        return false;
    publish(team, fn, cx, parts, parts, true);
    enter_part(team, 0, parts);
    return true;
}

void weft_team_join(void)
{
    weft_team *team = me.own;
    if (me.nested) {
        me.nested--;
        return;
    }
    me.parts = 0;
    work(team, atomic_load(&team->job), 1);
    wait_for_parts(team);
}

uint32_t weft_team_part(void)
{
    return me.nested ? 0 : me.part;
}

uint32_t weft_team_parts(void)
{
    return me.parts && !me.nested ? me.parts : 1;
}

uint32_t weft_team_self(void)
{
    return me.self;
}

void weft_team_barrier(void)
{
    weft_team *team = me.team;
    if (weft_team_parts() <= 1)
        return;
    uint32_t phase = atomic_load(&team->phase);
    if (atomic_fetch_add(&team->arrived, 1) + 1 == me.parts) {
        atomic_store(&team->arrived, 0);
        atomic_fetch_add(&team->phase, 1);
        if (atomic_load(&team->phase_sleepers))
            wake(&team->phase, WEFT_TEAM_THREADS_MAX);
        return;
    }
    while (!spin_while(team, &team->phase, phase)) {
        atomic_fetch_add(&team->phase_sleepers, 1);
        sleep_on(&team->phase, phase);
        atomic_fetch_sub(&team->phase_sleepers, 1);
    }
}
