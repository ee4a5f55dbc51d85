/* Whether it is worth looking for a message before sleeping. To wake a process takes 5 to 60 us,
 * more than a small model runs; to look takes a CPU that others may need. So a process looks only
 * while messages usually come soon, for about as long as they take, and stops for a while when it
 * looked in vain or lost its CPU to others. */
#include "base/cpus.h"
#include "runtime/server/serve_int.h"

#include <sys/resource.h>

enum {
    LOOK_MAX_NS = 200 * 1000,
    GRACE_NS = 10 * 1000,
    MEAN_OF = 8,     /* messages */
    MISSES_MAX = 10, /* the pause doubles with each up to 2^MISSES_MAX messages */
    BUSY_PAUSE = 64  /* messages without looking after the CPU was taken away */
};

/* How often the thread has lost its CPU. */
static long count_losses(void)
{
    struct rusage use = {0};
    getrusage(RUSAGE_THREAD, &use);
    return use.ru_nivcsw;
}

uint64_t weft_look__limit(weft_look *look)
{
    if (look->usual_ns == 0 || look->usual_ns > LOOK_MAX_NS)
        return 0;
    if (look->pause) {
        look->pause--;
        return 0;
    }
    if (look->n_cpu == 0)
        look->n_cpu = weft_cpus_usable();
    long losses = count_losses();
    if (look->n_cpu < 2 || losses != look->losses) {
        look->losses = losses;
        look->pause = BUSY_PAUSE;
        return 0;
    }
    return 2 * look->usual_ns + GRACE_NS;
}

void weft_look__found(weft_look *look, uint64_t waited_ns)
{
    uint64_t most = 8 * (uint64_t)LOOK_MAX_NS, ns = waited_ns < most ? waited_ns : most;
    if (ns <= 2 * look->usual_ns + GRACE_NS && look->misses)
        look->misses--;
    look->usual_ns = look->usual_ns ? (look->usual_ns * (MEAN_OF - 1) + ns) / MEAN_OF : ns;
}

void weft_look__missed(weft_look *look)
{
    look->misses += look->misses < MISSES_MAX;
    look->pause = 1u << look->misses;
}
