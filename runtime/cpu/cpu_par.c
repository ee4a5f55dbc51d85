/* Parallel loops over the threads of a slice. They use libgomp's team, as oneDNN does, through its
 * ABI: with clang's OpenMP runtime there would be a second thread pool on the same CPUs. */
#include "runtime/cpu/cpu_int.h"

void GOMP_parallel(void (*fn)(void *), void *data, unsigned num_threads, unsigned flags);
int omp_get_thread_num(void);
int omp_get_num_threads(void);

typedef struct par_job {
    weft_par_fn fn;
    void *cx;
    int64_t n;
} par_job;

/* Cost of entering a team and of its barrier. */
static const double enter_ns = 4000;

static void run_part(void *data)
{
    const par_job *job = data;
    int64_t self = omp_get_thread_num(), all = omp_get_num_threads();
    int64_t begin = job->n / all * self + (self < job->n % all ? self : job->n % all);
    int64_t end = begin + job->n / all + (self < job->n % all);
    if (begin < end)
        job->fn(job->cx, begin, end);
}

void weft_par_for(uint32_t threads, int64_t n, double cost_ns, weft_par_fn fn, void *cx)
{
    if (threads > n)
        threads = n > 0 ? (uint32_t)n : 1;
    if (threads <= 1 || (double)n * cost_ns < 2 * enter_ns) {
        fn(cx, 0, n);
        return;
    }
    par_job job = {.fn = fn, .cx = cx, .n = n};
    GOMP_parallel(run_part, &job, threads, 0);
}

uint32_t weft_par_self(void)
{
    return (uint32_t)omp_get_thread_num();
}
