/* Times of networks by batch: a larger batch must not take less time than a smaller one.
 *
 * Five networks as Weft's kernels, every device, whole and in slices (the smallest and the third
 * MIG profile, MPS shares of 30 and 70 %, one and two cores of a CPU). For each: how often the time
 * falls by more than 1 % from one batch to the next, the largest fall, and the largest drop of the
 * throughput (a cliff: one more sample that starts another wave on every unit). Batches 1 to 48 and
 * around 64, 128 and 256;
 * --every takes all from 1 to 256 (minutes), of one network if it is named.
 *
 * Usage: monotone [--every [NETWORK]] */
#include "tests/support/network.h"

#include "base/device_type.h"

#include <math.h>
#include <string.h>

enum { NETWORKS = 5, BATCH_MAX = 256, SLICES_MAX = 5, RECORDED_MAX = 256 };

static const char *const networks[NETWORKS] = {"resnet50", "mobilenet_v2", "vgg16", "densenet121",
                                               "bert_large"};
static const double fall_max = 0.01;

/* What the times of one slice do over all networks. */
typedef struct sweep {
    size_t steps, falls;
    double fall, cliff; /* the largest, as parts */
    char worst[64];     /* network and batch of the largest fall */
} sweep;

static bool is_tried(int batch, bool every)
{
    return every || batch <= 48 || (batch > 60 && batch <= 68) || (batch > 124 && batch <= 132) ||
           batch > 252;
}

static size_t make_slices(const weft_gpu *gpu, weft_slice *out)
{
    static const char *const cores[] = {"1core", "2core"}, *const shares[] = {"", "30%", "70%"};
    const weft_device_type *type = weft_device_type_find(gpu->name);
    const char *name[SLICES_MAX];
    size_t n = 0, made = 0;
    bool cpu = gpu->is_cpu;
    for (size_t i = 0; i < (cpu ? 2 : 3); i++)
        name[n++] = cpu ? cores[i] : shares[i];
    for (size_t i = 0; i < type->n_mig && i < 4; i += 3)
        name[n++] = type->mig[i].name;
    for (size_t i = 0; i < n; i++)
        made += weft_slice_make(gpu->name, name[i], NULL, &out[made]) == WEFT_ERR_OK;
    return made;
}

static double time_of(const weft_workload *work, const weft_slice *slice, weft_arena *arena)
{
    weft_estimate e;
    weft_arena_mark mark = weft_arena_get_mark(arena);
    weft_diag *diag = weft_diag_create();
    if (weft_estimate_workload(work, slice, NULL, arena, diag, &e) != WEFT_ERR_OK)
        network_give_up(diag, slice->gpu->name);
    weft_diag_destroy(diag);
    double time_us = e.total.time_us;
    weft_arena_reset(arena, mark);
    return time_us;
}

static void try_network(const char *network, const weft_workload *work, const weft_slice *slice,
                        bool every, weft_arena *arena, sweep *s)
{
    double last = 0;
    for (int b = 1; b <= BATCH_MAX; b++) {
        if (!is_tried(b, every)) {
            last = 0;
            continue;
        }
        double time_us = time_of(&work[b], slice, arena);
        if (last > 0) {
            double fall = 1 - time_us / last;
            s->steps++;
            s->falls += fall > fall_max;
            s->cliff = fmax(s->cliff, 1 - b / time_us / ((b - 1) / last));
            if (fall > s->fall) {
                s->fall = fall;
                snprintf(s->worst, sizeof s->worst, "%s %d", network, b);
            }
        }
        last = time_us;
    }
}

static void make_workloads(weft_graph *g, bool every, const char *name, weft_arena *arena,
                           weft_workload *out)
{
    int64_t symbol[8] = {0};
    weft_diag *diag = weft_diag_create();
    for (uint32_t b = 1; b <= BATCH_MAX; b++)
        if (is_tried((int)b, every) &&
            (weft_estimate_symbols(g, b, diag, symbol) != WEFT_ERR_OK ||
             weft_workload_make(g, symbol, NULL, arena, diag, &out[b]) != WEFT_ERR_OK))
            network_give_up(diag, name);
    weft_diag_destroy(diag);
}

/* Adds one network to the sweeps of all devices, which are of one kind. */
static void try_devices(int network, bool cpu, bool every, sweep sweeps[][SLICES_MAX])
{
    static weft_workload work[BATCH_MAX + 1];
    weft_arena *arena = weft_arena_create(0);
    weft_module *m = network_load(networks[network], cpu ? "cpu" : "gpu");
    make_workloads(weft_graph_at(m, 0), every, networks[network], arena, work);
    for (size_t d = 0; weft_gpu_at(d); d++) {
        weft_slice slice[SLICES_MAX];
        if (weft_gpu_at(d)->is_cpu != cpu)
            continue;
        size_t n = make_slices(weft_gpu_at(d), slice);
        for (size_t i = 0; i < n; i++)
            try_network(networks[network], work, &slice[i], every, arena, &sweeps[d][i]);
    }
    weft_module_destroy(m);
    weft_arena_destroy(arena);
}

int main(int argc, char **argv)
{
    static sweep sweeps[RECORDED_MAX][SLICES_MAX];
    bool every = argc > 1 && strcmp(argv[1], "--every") == 0;
    size_t falls = 0, steps = 0;
    for (int i = 0; i < NETWORKS; i++)
        for (int cpu = 0; cpu < 2 && (argc < 3 || strcmp(argv[2], networks[i]) == 0); cpu++)
            try_devices(i, cpu, every, sweeps);
    printf("device,slice,steps,falls,largest_fall,worst,largest_cliff\n");
    for (size_t d = 0; weft_gpu_at(d); d++) {
        weft_slice slice[SLICES_MAX];
        size_t n = make_slices(weft_gpu_at(d), slice);
        for (size_t i = 0; i < n; i++) {
            const sweep *s = &sweeps[d][i];
            printf("%s,%s,%zu,%zu,%.3f,%s,%.3f\n", weft_gpu_at(d)->name, slice[i].name, s->steps,
                   s->falls, s->fall, s->worst, s->cliff);
            falls += s->falls;
            steps += s->steps;
        }
    }
    fprintf(stderr, "%zu of %zu steps fall by more than %g %%\n", falls, steps, 100 * fall_max);
    return falls > 0;
}
