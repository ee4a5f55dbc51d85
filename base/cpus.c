/* CPU sets, and the CPU limits of control groups. */
#include "base/cpus.h"

#include "base/cgroup.h"

#include <limits.h>
#include <sched.h>

/* Microseconds of CPU time in each period; -1: no limit ("max" in version 2). */
static void read_quota(const char *root, const char *folder, bool v2, long long *quota,
                       long long *period)
{
    FILE *f = weft_cgroup_open(root, folder, v2 ? "/cpu.max" : "/cpu.cfs_quota_us");
    *quota = *period = -1;
    if (f && fscanf(f, "%lld", quota) == 1 && v2 && fscanf(f, "%lld", period) != 1)
        *period = -1;
    if (f)
        fclose(f);
    if (v2)
        return;
    f = weft_cgroup_open(root, folder, "/cpu.cfs_period_us");
    if (f && fscanf(f, "%lld", period) != 1)
        *period = -1;
    if (f)
        fclose(f);
}

/* In thousandths of a CPU. */
static uint64_t read_limit(const char *root, const char *folder, bool v2)
{
    long long quota, period;
    read_quota(root, folder, v2, &quota, &period);
    if (quota <= 0 || period <= 0 || quota >= LLONG_MAX / 1000)
        return 0;
    uint64_t limit = (uint64_t)(quota * 1000 / period);
    return limit ? limit : 1;
}

uint64_t weft_cpus_limit(const char *root)
{
    return weft_cgroup_least(root, "cpu", read_limit);
}

uint32_t weft_cpus_usable(void)
{
    cpu_set_t set;
    uint32_t n = 1;
    uint64_t limit = weft_cpus_limit("");
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        n = (uint32_t)CPU_COUNT(&set);
    if (limit && limit / 1000 < n)
        n = limit < 1000 ? 1 : (uint32_t)(limit / 1000);
    return n;
}
