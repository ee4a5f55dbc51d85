/* Control groups, read from /proc and from the mounted hierarchies. */
#include "base/cgroup.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 8192 };

typedef struct hierarchy {
    bool v2;
    char group[PATH_MAX]; /* of this process */
    char mount[PATH_MAX]; /* where the hierarchy is mounted */
    char top[PATH_MAX];   /* the group that is mounted there */
    const char *controller;
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

FILE *weft_cgroup_open(const char *root, const char *folder, const char *name)
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
    FILE *f = weft_cgroup_open(root, "", "/proc/self/cgroup");
    while (f && !found && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
        if (!group)
            continue;
        *list++ = *group++ = '\0';
        found = h->v2 ? *list == '\0' : lists(list, h->controller);
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
    FILE *f = weft_cgroup_open(root, "", "/proc/self/mountinfo");
    while (f && !found && fgets(line, sizeof line, f)) {
        const char *rest = strstr(line, " - ");
        found = rest && sscanf(rest, " - %31s %*s %8191s", type, options) == 2 &&
                strcmp(type, h->v2 ? "cgroup2" : "cgroup") == 0 &&
                (h->v2 || lists(options, h->controller)) &&
                sscanf(line, "%*s %*s %*s %4095s %4095s", h->top, h->mount) == 2;
    }
    if (f)
        fclose(f);
    return found;
}

/* The least limit from the group up to the mounted one. */
static uint64_t least_limit(const char *root, const hierarchy *h, weft_cgroup_read *read)
{
    char folder[2 * PATH_MAX];
    uint64_t least = 0;
    size_t top = strlen(h->top), mount = strlen(h->mount);
    const char *group = h->group;
    /* The group's path is seen from the hierarchy's root, the mount may begin further down. A path
     * outside of the mount (another name space) leaves the mounted group itself. */
    if (strcmp(h->top, "/") == 0)
        top = 0;
    bool inside = strncmp(group, h->top, top) == 0 && (group[top] == '/' || group[top] == '\0');
    group = inside ? group + top : "";
    snprintf(folder, sizeof folder, "%s%s", h->mount, strcmp(group, "/") == 0 ? "" : group);
    for (;;) {
        uint64_t limit = read(root, folder, h->v2);
        least = limit && (least == 0 || limit < least) ? limit : least;
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < mount)
            return least;
        *slash = '\0';
    }
}

uint64_t weft_cgroup_least(const char *root, const char *controller, weft_cgroup_read *read)
{
    uint64_t least = 0;
    hierarchy *h = calloc(1, sizeof *h);
    for (int v = 1; h && v <= 2; v++) {
        h->v2 = v == 2;
        h->controller = controller;
        uint64_t limit =
            find_group(root, h) && find_mount(root, h) ? least_limit(root, h, read) : 0;
        least = limit && (least == 0 || limit < least) ? limit : least;
    }
    free(h);
    return least;
}

/* "max" in version 2, and in version 1 a number above all memory, are no limit. */
static uint64_t read_memory(const char *root, const char *folder, bool v2)
{
    unsigned long long bytes = 0;
    FILE *f = weft_cgroup_open(root, folder, v2 ? "/memory.max" : "/memory.limit_in_bytes");
    bool known = f && fscanf(f, "%llu", &bytes) == 1;
    if (f)
        fclose(f);
    return known && bytes < LLONG_MAX / 2 ? bytes : 0;
}

uint64_t weft_cgroup_memory_bytes(const char *root)
{
    return weft_cgroup_least(root, "memory", read_memory);
}
