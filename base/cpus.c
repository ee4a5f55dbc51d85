/* CPU sets and control groups, read from /proc and from the mounted hierarchies. */
#include "base/cpus.h"

#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 8192 };

typedef struct hierarchy {
    bool v2;
    char group[PATH_MAX]; /* of this process */
    char mount[PATH_MAX]; /* where the hierarchy is mounted */
    char top[PATH_MAX];   /* the group that is mounted there */
} hierarchy;

/* Whether a list with commas has the name. */
static bool lists(const char *list, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, name, len) == 0 && (at[len] == ',' || at[len] == '\0'))
            return true;
    return false;
}

static FILE *open_below(const char *root, const char *folder, const char *name)
{
    char path[3 * PATH_MAX];
    int n = snprintf(path, sizeof path, "%s%s%s", root, folder, name);
    return n > 0 && (size_t)n < sizeof path ? fopen(path, "re") : NULL;
}

/* /proc/self/cgroup: NUMBER:CONTROLLERS:GROUP; version 2 has no controllers. */
static bool find_group(const char *root, hierarchy *h)
{
    char line[LINE];
    bool found = false;
    FILE *f = open_below(root, "", "/proc/self/cgroup");
    while (f && !found && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
        if (!group)
            continue;
        *list++ = *group++ = '\0';
        found = h->v2 ? *list == '\0' : lists(list, "cpu");
        found = found && (size_t)snprintf(h->group, sizeof h->group, "%s", group) < sizeof h->group;
    }
    if (f)
        fclose(f);
    return found;
}

/* /proc/self/mountinfo: ID PARENT DEVICE TOP MOUNT OPTIONS ... - TYPE SOURCE OPTIONS. */
static bool find_mount(const char *root, hierarchy *h)
{
    char line[LINE], type[32], options[LINE];
    bool found = false;
    FILE *f = open_below(root, "", "/proc/self/mountinfo");
    while (f && !found && fgets(line, sizeof line, f)) {
        const char *rest = strstr(line, " - ");
        found = rest && sscanf(rest, " - %31s %*s %8191s", type, options) == 2 &&
                strcmp(type, h->v2 ? "cgroup2" : "cgroup") == 0 &&
                (h->v2 || lists(options, "cpu")) &&
                sscanf(line, "%*s %*s %*s %4095s %4095s", h->top, h->mount) == 2;
    }
    if (f)
        fclose(f);
    return found;
}

/* Microseconds of CPU time in each period; -1: no limit ("max" in version 2). */
static void read_quota(const char *root, const hierarchy *h, const char *folder, long long *quota,
                       long long *period)
{
    FILE *f = open_below(root, folder, h->v2 ? "/cpu.max" : "/cpu.cfs_quota_us");
    *quota = *period = -1;
    if (f && fscanf(f, "%lld", quota) == 1 && h->v2 && fscanf(f, "%lld", period) != 1)
        *period = -1;
    if (f)
        fclose(f);
    if (h->v2)
        return;
    f = open_below(root, folder, "/cpu.cfs_period_us");
    if (f && fscanf(f, "%lld", period) != 1)
        *period = -1;
    if (f)
        fclose(f);
}

/* The least limit from the group up to the mounted one. */
static uint64_t least_limit(const char *root, const hierarchy *h)
{
    char folder[2 * PATH_MAX];
    uint64_t least = 0;
    size_t top = strlen(h->top), mount = strlen(h->mount);
    const char *group = h->group;
    /* The group's path is seen from the hierarchy's root, the mount may begin further down. A path
     * outside of the mount (another name space) leaves the mounted group itself. */
    if (strcmp(h->top, "/") == 0)
        top = 0;
    group = strncmp(group, h->top, top) == 0 ? group + top : "";
    snprintf(folder, sizeof folder, "%s%s", h->mount, strcmp(group, "/") == 0 ? "" : group);
    for (;;) {
        long long quota, period;
        read_quota(root, h, folder, &quota, &period);
        if (quota > 0 && period > 0 && quota < LLONG_MAX / 1000) {
            uint64_t limit = (uint64_t)(quota * 1000 / period);
            limit = limit ? limit : 1;
            least = least == 0 || limit < least ? limit : least;
        }
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < mount)
            return least;
        *slash = '\0';
    }
}

uint64_t weft_cpus_limit(const char *root)
{
    uint64_t least = 0;
    hierarchy *h = calloc(1, sizeof *h);
    for (int v = 1; h && v <= 2; v++) {
        h->v2 = v == 2;
        uint64_t limit = find_group(root, h) && find_mount(root, h) ? least_limit(root, h) : 0;
        least = limit && (least == 0 || limit < least) ? limit : least;
    }
    free(h);
    return least;
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
