/* Parallel loops over the threads of a slice. */
#include "runtime/cpu/cpu_int.h"
#include "runtime/cpu/cpu_team.h"

typedef struct par_job {
    weft_par_fn fn;
    void *cx;
    int64_t n, parts;
} par_job;

/* Less work than this stays on the caller, and a thread gets no less than half of it: handing over
 * takes about 1 us. With other processes on the same CPUs a helper thread sleeps, and may come
 * late. */
static const double least_busy_ns = 30000;
static _Thread_local double least_ns = 4000;

void weft_par_begin(double ns)
{
    least_ns = ns;
}

/* Loops are split further than into one part a thread, so that threads that come late leave their
 * parts to others; a part has at least so much work. */
static const double part_ns = 5000;
enum { PARTS_PER_THREAD = 4 };

static void run_part(void *cx, uint32_t part)
{
    const par_job *job = cx;
    int64_t all = job->parts, rest = job->n % all;
    int64_t begin = job->n / all * part + (part < rest ? part : rest);
    job->fn(job->cx, begin, begin + job->n / all + (part < rest));
}

void weft_par_for(uint32_t threads, int64_t n, double cost_ns, weft_par_fn fn, void *cx)
{
    double work = (double)n * cost_ns;
    if (threads > n)
        threads = n > 0 ? (uint32_t)n : 1;
    if (work < least_ns / 2 * threads)
        threads = work < least_ns ? 1 : (uint32_t)(work / (least_ns / 2));
    if (threads > 1 && (work >= least_busy_ns || !weft_team_is_busy())) {
        int64_t parts = (int64_t)(work / part_ns), most = (int64_t)threads * PARTS_PER_THREAD;
        parts = parts < most ? parts : most;
        parts = parts > threads ? parts : threads;
        parts = parts < WEFT_TEAM_THREADS_MAX ? parts : threads;
        par_job job = {.fn = fn, .cx = cx, .n = n, .parts = parts < n ? parts : n};
        if (weft_team_run(run_part, &job, (uint32_t)job.parts, threads))
            return;
    }
    fn(cx, 0, n);
}

uint32_t weft_par_self(void)
{
    return weft_team_self();
}
