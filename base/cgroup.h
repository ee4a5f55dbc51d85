/* Limits of the control groups (version 1 and 2) that this process is in. `root` is put before the
 * paths of /proc and of the mounted hierarchies; "" for this system. */
#ifndef WEFT_BASE_CGROUP_H
#define WEFT_BASE_CGROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* What memory the processes of the group may take together: the least limit of the group and those
 * that contain it; 0: none. */
uint64_t weft_cgroup_memory_bytes(const char *root);

/* The limit that a group has by the files in `folder`; 0: none. */
typedef uint64_t weft_cgroup_read(const char *root, const char *folder, bool v2);
/* The least one of the group and those that contain it; 0: none. */
uint64_t weft_cgroup_least(const char *root, const char *controller, weft_cgroup_read *read);
/* A file of a group; NULL: there is none. */
FILE *weft_cgroup_open(const char *root, const char *folder, const char *name);

#endif
