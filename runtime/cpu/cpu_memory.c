/* Memory for the preparation of kernels: cpu_memory.h. */
#include "runtime/cpu/cpu_memory.h"

#include <stdlib.h>

static _Thread_local bool lacked;

void weft_cpu__watch_memory(void)
{
    lacked = false;
}

bool weft_cpu__lacked_memory(void)
{
    return lacked;
}

void weft_cpu__note_lack(void)
{
    lacked = true;
}

void *weft_cpu__malloc(size_t size)
{
    void *at = malloc(size);
    lacked = lacked || !at;
    return at;
}

void *weft_cpu__calloc(size_t n, size_t size)
{
    void *at = calloc(n, size);
    lacked = lacked || !at;
    return at;
}
