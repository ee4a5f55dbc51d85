/* Private to runtime/cpu: memory that is needed to prepare a kernel.
 *
 * A preparation function that has no memory looks like one that does not support its launch, and
 * the next kernel of the table would be taken: a slower one, with other rounding. So the lack is
 * noted, and the driver refuses the launch. */
#ifndef WEFT_RUNTIME_CPU_MEMORY_H
#define WEFT_RUNTIME_CPU_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

void *weft_cpu__malloc(size_t size);
void *weft_cpu__calloc(size_t n, size_t size);
/* Notes a lack that a library reports. */
void weft_cpu__note_lack(void);
/* Whether this thread lacked memory since weft_cpu__watch_memory. */
void weft_cpu__watch_memory(void);
bool weft_cpu__lacked_memory(void);

#endif
