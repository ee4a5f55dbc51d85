/* The CPU driver: oneDNN and the loops of this folder, on the CPUs of a slice. */
#include "base/cpus.h"
#include "runtime/cpu/cpu_dnnl.h"
#include "runtime/cpu/cpu_int.h"
#include "runtime/cpu/cpu_memory.h"
#include "runtime/cpu/cpu_team.h"
#include "runtime/kernel/kernel.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Allocations from this size on use huge pages. */
enum { HUGE_BYTES = 2 << 20 };
/* A thread has at least this time of a launch; with other processes on the same CPUs a helper
 * thread sleeps, may come late, and takes the CPU from others. */
static const double least_ns = 4000, least_shared_ns = 30000;
/* A thread's speed, roughly, for that decision. */
static const double flops_per_ns = 120, byte_flops_per_ns = 400, bytes_per_ns = 20;

/* -- Slices --------------------------------------------------------------------------------- */

/* Serial of the engine whose CPU set this thread is pinned to. */
static _Thread_local uint64_t pinned_to;

static void pin(const weft_engine *e)
{
    cpu_set_t set;
    if (e->n_cpu == 0 || pinned_to == e->serial)
        return;
    CPU_ZERO(&set);
    for (uint32_t i = 0; i < e->n_cpu; i++)
        if (e->cpu[i] < CPU_SETSIZE)
            CPU_SET(e->cpu[i], &set);
    if (sched_setaffinity(0, sizeof set, &set) == 0)
        pinned_to = e->serial;
    weft_team_reset();
}

static uint32_t count_cpus(const weft_engine *e)
{
    uint32_t usable = weft_cpus_usable();
    return e->n_cpu && e->n_cpu < usable ? e->n_cpu : usable;
}

static bool lost_nan(weft_engine *e)
{
    (void)e;
    bool lost = weft_cpu__has_lost_nan();
    weft_cpu__forget_lost_nan();
    return lost;
}

static void begin_cpu(weft_engine *e)
{
    const weft_cpu *cpu = e->device;
    weft_cpu__forget_lost_nan();
    pin(e);
    weft_team_begin(cpu->threads);
    weft_par_begin(cpu->least_ns);
}

static void end_cpu(weft_engine *e)
{
    (void)e;
    weft_team_end();
}

/* -- Life ----------------------------------------------------------------------------------- */

static void close_cpu(weft_engine *e)
{
    weft_cpu__dnnl_close(e->device);
    free(e->device);
    e->device = NULL;
}

static weft_err open_cpu(weft_engine *e, weft_diag *diag)
{
    weft_cpu *cpu = weft_cpu__calloc(1, sizeof *cpu);
    if (!cpu)
        return WEFT_ERR_NOMEM;
    e->device = cpu;
    pin(e);
    if (e->threads == 0)
        e->threads = count_cpus(e);
    cpu->threads = e->threads < WEFT_TEAM_THREADS_MAX ? e->threads : WEFT_TEAM_THREADS_MAX;
    cpu->least_ns = e->share_cpus ? least_shared_ns : least_ns;
    cpu->vec = weft_cpu__vec(weft_cpu__dnnl_lanes());
    begin_cpu(e);
    weft_err err = weft_cpu__dnnl_open(cpu, diag);
    end_cpu(e);
    bool foreign = cpu->threads > 1 && !weft_omp_is_ours();
    cpu->keep_nan = foreign || !weft_team_has_invalid();
    if (err == WEFT_ERR_OK && foreign)
        weft_diag_warn(diag, (weft_where){0},
                       "oneDNN runs on libgomp's threads, which is slow on a busy machine; link "
                       "the program with the options of the target weft_runtime");
    return err;
}

static weft_err alloc_cpu(weft_engine *e, uint64_t bytes, weft_diag *diag, void **out)
{
    (void)e;
    (void)diag;
    uint64_t room = weft_cpu__room(bytes);
    void *at = room ? mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                    : MAP_FAILED;
    if (at == MAP_FAILED)
        return WEFT_ERR_NOMEM;
    if (bytes >= HUGE_BYTES)
        (void)madvise(at, room, MADV_HUGEPAGE);
    *out = at;
    return WEFT_ERR_OK;
}

static void free_cpu(weft_engine *e, void *data, uint64_t bytes)
{
    (void)e;
    if (data)
        munmap(data, weft_cpu__room(bytes));
}

/* -- Kernels -------------------------------------------------------------------------------- */

typedef weft_err (*prepare_fn)(weft_prep *p);

static const struct {
    weft_op_id op;
    prepare_fn fn;
} kernel_table[] = {
#define K(op, fn) {WEFT_OP_##op, weft_cpu__prepare_##fn},
#include "runtime/cpu/cpu_kernels.def"
#undef K
};

static bool has_empty(const weft_prep *p)
{
    for (uint32_t i = 0; i < p->n_in; i++)
        if (p->in[i].present && weft_slot_numel(&p->in[i]) == 0)
            return true;
    return false;
}

/* Threads that are worth using for a launch. */
static uint32_t threads_for(const weft_prep *p)
{
    weft_work w;
    uint32_t threads = weft_cpu__of(p)->threads;
    if (threads <= 1 || weft_prep__work(p, &w) != WEFT_ERR_OK)
        return threads;
    bool is_bytes = p->op == WEFT_OP_QLINEAR_MATMUL || p->op == WEFT_OP_QLINEAR_CONV;
    double ns = w.flops / (is_bytes ? byte_flops_per_ns : flops_per_ns) +
                (w.bytes_read + w.bytes_written + w.weight_bytes) / bytes_per_ns;
    double most = ns / weft_cpu__of(p)->least_ns;
    return most < 2 ? 1 : most < threads ? (uint32_t)most : threads;
}

static weft_err drop_kernel(weft_prep *p)
{
    if (p->run && p->destroy)
        p->destroy(p->state);
    else if (p->run)
        free(p->state);
    p->run = NULL;
    p->state = NULL;
    p->destroy = NULL;
    return WEFT_ERR_NOMEM;
}

static weft_err prepare_kernel(weft_prep *p)
{
    if (!has_empty(p))
        for (size_t i = 0; i < sizeof kernel_table / sizeof *kernel_table; i++) {
            if (kernel_table[i].op != p->op)
                continue;
            weft_cpu__watch_memory();
            WEFT_TRY(kernel_table[i].fn(p));
            /* Another kernel than without the lack of memory would be chosen. */
            if (weft_cpu__lacked_memory())
                return drop_kernel(p);
            if (p->run)
                return WEFT_ERR_OK;
            p->scratch_bytes = 0;
        }
    return weft_ref__prepare(p);
}

static weft_err prepare_cpu(weft_prep *p)
{
    uint32_t threads = weft_team_limit(threads_for(p));
    weft_err err = prepare_kernel(p);
    weft_team_limit(threads);
    return err;
}

const weft_driver weft_driver_cpu = {
    .name = "cpu",
    .brief = "oneDNN and vector loops on a set of CPUs",
    .tell_library = weft_cpu__dnnl_version,
    .open = open_cpu,
    .close = close_cpu,
    .alloc = alloc_cpu,
    .free = free_cpu,
    .prepare = prepare_cpu,
    .begin = begin_cpu,
    .end = end_cpu,
    .lost_nan = lost_nan,
    .packed_bytes = weft_cpu__packed_bytes,
    .slices_batches = true,
};
