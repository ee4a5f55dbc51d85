/* Times of launches by CUPTI, if it is installed.
 *
 * Events around a launch also measure the gap between two launches, which for small kernels exceeds
 * the kernel's own time. CUPTI reports the start and the end of each kernel, copy and fill.
 * Launches are enqueued one after the other, each under an external correlation id, and the times
 * of all work under an id are summed. Records arrive in buffers, in any order, possibly on another
 * thread and after the end of the trace, so ids are never reused. There is one trace at a time per
 * process, because CUPTI has one set of enabled activities.
 *
 * If CUPTI refuses, or reports nothing about some launch, the times of the events of the same run
 * are used: a second run would read inputs that the first has overwritten. */
#include "runtime/cuda/drv_cuda_int.h"

#include <stdlib.h>
#include <string.h>

enum { BUFFER_BYTES = 1 << 20, BUFFER_ALIGN = 8 };

/* A call of the driver and its correlation id (labels) or its device time (works). */
typedef struct entry {
    uint32_t call;
    uint64_t number;
    double us;
} entry;

typedef struct entries {
    entry *at;
    size_t n, room;
} entries;

static pthread_mutex_t trace_lock = PTHREAD_MUTEX_INITIALIZER; /* held during a trace */
static uint64_t first_number; /* correlation id of its first launch; protected by trace_lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects everything below */
static const weft_cupti_api *cupti; /* not NULL: the callbacks are registered */
static entries labels, works;
static bool failed; /* a record was lost: out of memory */

/* CUPTI records an external correlation only for calls of an API whose activity is enabled. Weft
 * calls the driver, cuBLASLt the runtime. */
static const unsigned kinds[] = {WEFT_CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                 WEFT_CUPTI_ACTIVITY_KIND_MEMCPY,
                                 WEFT_CUPTI_ACTIVITY_KIND_MEMSET,
                                 WEFT_CUPTI_ACTIVITY_KIND_DRIVER,
                                 WEFT_CUPTI_ACTIVITY_KIND_RUNTIME,
                                 WEFT_CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* -- Records -------------------------------------------------------------------------------- */

static void add(entries *to, entry e)
{
    if (to->n == to->room) {
        size_t room = to->room ? 2 * to->room : 256;
        entry *more = realloc(to->at, room * sizeof *more);
        if (!more) {
            failed = true;
            return;
        }
        to->at = more;
        to->room = room;
    }
    to->at[to->n++] = e;
}

/* Both times are 0 if CUPTI has none. */
static void add_work(uint32_t call, uint64_t start, uint64_t end)
{
    if (end)
        add(&works, (entry){.call = call, .us = end > start ? (double)(end - start) * 1e-3 : 0});
}

static void take(const weft_cupti_activity *record)
{
    const weft_cupti_external *x = (const void *)record;
    const weft_cupti_kernel *k = (const void *)record;
    const weft_cupti_move *m = (const void *)record;
    switch (record->kind) {
    case WEFT_CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
        if (x->externalKind == WEFT_CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0)
            add(&labels, (entry){.call = x->correlationId, .number = x->externalId});
        break;
    case WEFT_CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        add_work(k->correlationId, k->start, k->end);
        break;
    case WEFT_CUPTI_ACTIVITY_KIND_MEMCPY:
    case WEFT_CUPTI_ACTIVITY_KIND_MEMSET:
        add_work(m->correlationId, m->start, m->end);
        break;
    default:
        break;
    }
}

static void on_request(uint8_t **buffer, size_t *bytes, size_t *most_records)
{
    *buffer = aligned_alloc(BUFFER_ALIGN, BUFFER_BYTES);
    *bytes = *buffer ? BUFFER_BYTES : 0;
    *most_records = 0; /* no limit */
}

static void on_complete(weft_cu_context ctx, uint32_t stream, uint8_t *buffer, size_t bytes,
                        size_t valid_bytes)
{
    weft_cupti_activity *record = NULL;
    (void)ctx;
    (void)stream;
    (void)bytes;
    pthread_mutex_lock(&lock);
    while (valid_bytes &&
           cupti->cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == WEFT_CUPTI_SUCCESS)
        take(record);
    pthread_mutex_unlock(&lock);
    free(buffer);
}

/* -- A trace -------------------------------------------------------------------------------- */

static void stop(unsigned n_kind)
{
    for (unsigned i = 0; i < n_kind; i++)
        (void)cupti->cuptiActivityDisable(kinds[i]);
}

static bool begin(void)
{
    if (!cupti) {
        const weft_cupti_api *api = weft_libcupti__get();
        if (!api ||
            api->cuptiActivityRegisterCallbacks(on_request, on_complete) != WEFT_CUPTI_SUCCESS)
            return false;
        cupti = api;
    }
    for (unsigned i = 0; i < KINDS; i++)
        if (cupti->cuptiActivityEnable(kinds[i]) != WEFT_CUPTI_SUCCESS) {
            stop(i);
            return false;
        }
    pthread_mutex_lock(&lock);
    labels.n = works.n = 0;
    failed = false;
    pthread_mutex_unlock(&lock);
    return true;
}

bool weft_cudev__trace_begin(void)
{
    pthread_mutex_lock(&trace_lock);
    bool begun = begin();
    if (!begun)
        pthread_mutex_unlock(&trace_lock);
    return begun;
}

weft_err weft_cudev__trace_launch(weft_cudev_queue *queue, const weft_bound_list *list, uint32_t i,
                                  weft_diag *diag)
{
    const unsigned custom = WEFT_CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
    uint64_t last;
    /* A launch without an id gets no record, which trace_end detects. */
    bool pushed = cupti->cuptiActivityPushExternalCorrelationId(custom, first_number + i) ==
                  WEFT_CUPTI_SUCCESS;
    weft_err err = weft_cudev__run_launch(queue, &list->at[i], diag);
    if (pushed)
        (void)cupti->cuptiActivityPopExternalCorrelationId(custom, &last);
    return err;
}

static int by_call(const void *a, const void *b)
{
    uint32_t x = ((const entry *)a)->call, y = ((const entry *)b)->call;
    return (x > y) - (x < y);
}

/* Sums the time of each launch; false: some launch has fewer records than commands. */
static bool sum(const weft_bound_list *list, double *us)
{
    uint32_t *count = calloc((size_t)list->n + 1, sizeof *count);
    bool all = count && !failed;
    if (labels.n)
        qsort(labels.at, labels.n, sizeof *labels.at, by_call);
    for (size_t i = 0; all && i < works.n; i++) {
        const entry *x =
            labels.n ? bsearch(&works.at[i], labels.at, labels.n, sizeof *labels.at, by_call)
                     : NULL;
        if (!x || x->number - first_number >= list->n)
            continue; /* not of this trace */
        us[x->number - first_number] += works.at[i].us;
        count[x->number - first_number]++;
    }
    for (uint32_t i = 0; all && i < list->n; i++) {
        const weft_cudev_launch *l = list->at[i].state;
        all = count[i] >= l->commands->n;
    }
    free(count);
    return all;
}

bool weft_cudev__trace_end(const weft_bound_list *list, double *time_us)
{
    double *us = calloc((size_t)list->n + 1, sizeof *us);
    bool told = cupti->cuptiActivityFlushAll(0) == WEFT_CUPTI_SUCCESS && us;
    stop(KINDS);
    pthread_mutex_lock(&lock);
    told = told && sum(list, us);
    pthread_mutex_unlock(&lock);
    first_number += list->n;
    pthread_mutex_unlock(&trace_lock);
    for (uint32_t i = 0; told && i < list->n; i++)
        time_us[list->at[i].launch] += us[i];
    free(us);
    return told;
}
