/* How many CPUs this process may use at once: its CPU set, and the CPU limit of its control groups.
 */
#ifndef WEFT_BASE_CPUS_H
#define WEFT_BASE_CPUS_H

#include <stdint.h>

/* CPUs of the calling thread's set, but at most the limit rounded down: threads beyond it would use
 * up the group's time before the end of each period and be stopped. At least 1. */
uint32_t weft_cpus_usable(void);
/* The limit in thousandths of a CPU: the least one of the group and those that contain it (version
 * 1 and 2); 0: none. `root` is put before the paths of /proc and of the mounted hierarchies; "" for
 * this system. */
uint64_t weft_cpus_limit(const char *root);

#endif
