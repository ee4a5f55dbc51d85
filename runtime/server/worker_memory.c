/* The memory limit of a worker: RLIMIT_DATA, the private writable memory of the process. What is
 * mapped without being used (address space that CUDA reserves, the bundle, the channel) does not
 * count, unlike for RLIMIT_AS.
 *
 * An allocation above the limit fails, so that the request that needs it gets an error and the
 * worker goes on; one that cannot tell of it ends with a cause of its own. Only what the process
 * holds is limited: other workers and the router keep theirs. */
#include "base/cgroup.h"
#include "runtime/server/serve_int.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

/* What a worker may allocate for requests above what it holds when its models are prepared: as much
 * again, and this. Models prepared at all their buckets need little more, unless dimensions other
 * than the batch vary. */
static const uint64_t margin_bytes = (uint64_t)2 << 30;

static bool set_limit(uint64_t bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_DATA, &limit) != 0)
        return false;
    if (limit.rlim_max != RLIM_INFINITY && bytes > limit.rlim_max)
        bytes = limit.rlim_max;
    limit.rlim_cur = bytes;
    return setrlimit(RLIMIT_DATA, &limit) == 0;
}

/* Private writable memory, field 6 of /proc/self/statm (pages); 0: unknown. */
static uint64_t held_bytes(void)
{
    char text[256];
    unsigned long long pages = 0;
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    if (sscanf(text, "%*u %*u %*u %*u %*u %llu", &pages) != 1)
        return 0;
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t weft_worker__limit_memory(uint64_t bytes)
{
    bool limits = bytes != WEFT_MEMORY_AUTO && bytes != WEFT_MEMORY_UNLIMITED;
    return limits && set_limit(bytes) ? bytes : 0;
}

/* Three quarters of a group's memory: the kernel ends a worker that goes beyond it, whatever else
 * it runs, and the router, other workers and the bundle are in it, too. */
uint64_t weft_worker__auto_memory(uint64_t held, uint64_t group)
{
    uint64_t limit = 2 * held + margin_bytes, share = group / 4 * 3, least = held + held / 4;
    if (group && limit > share)
        limit = share;
    return limit > least ? limit : least;
}

uint64_t weft_worker__limit_memory_by_use(uint64_t bytes)
{
    uint64_t held = bytes == WEFT_MEMORY_AUTO ? held_bytes() : 0;
    uint64_t limit = weft_worker__auto_memory(held, weft_cgroup_memory_bytes(""));
    return held && set_limit(limit) ? limit : 0;
}
