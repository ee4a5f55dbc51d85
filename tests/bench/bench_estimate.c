/* How long an estimate takes.
 *
 *   bench_estimate [--rounds N] MODEL.onnx...
 *
 * For each model, on an H100: one estimate for one batch size of a module that is loaded (best and
 * median of N), its two halves (kernels of the graph, prediction on one slice), and a whole profile
 * of all slices (whole, MIG, MPS shares), eight batch sizes and three process counts. No file is
 * read while the clock runs. */
#include "estimator/estimator.h"
#include "frontend/frontend.h"
#include "passes/passes.h"
#include "tests/bench/times.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS_MAX = 1000, SLICES_MAX = 32 };

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void give_up(const weft_diag *diag, const char *what)
{
    fprintf(stderr, "%s: %s\n", what,
            weft_diag_count(diag) > 0 ? weft_diag_at(diag, 0)->text : "no message");
    exit(1);
}

static void print_times(const char *what, double *ms, int n)
{
    sort_times(ms, (size_t)n);
    printf("  %-12s best %8.3f ms, median %8.3f ms\n", what, ms[0], ms[n / 2]);
}

static weft_graph *load(weft_module *m, const char *path, weft_diag *diag)
{
    size_t n = 0;
    weft_graph *g = NULL;
    weft_run_options run = {.verify = WEFT_VERIFY_OFF};
    const weft_pass *const *pass = weft_pipeline("cpu", &n);
    if (weft_import_onnx(m, path, NULL, diag, &g) != WEFT_ERR_OK ||
        weft_passes_run(m, pass, n, &run, diag) != WEFT_ERR_OK)
        give_up(diag, path);
    return weft_graph_at(m, 0);
}

static size_t make_slices(weft_slice *out, weft_diag *diag)
{
    const weft_device_type *type = weft_device_type_find("h100");
    size_t n = 0;
    for (size_t i = 0; type && i < type->n_mig && n < SLICES_MAX - 10; i++)
        if (weft_slice_make("h100", type->mig[i].name, diag, &out[n++]) != WEFT_ERR_OK)
            give_up(diag, "slice");
    for (int percent = 10; percent <= 100; percent += 10) {
        char name[8] = "";
        if (percent < 100)
            snprintf(name, sizeof name, "%d%%", percent);
        if (weft_slice_make("h100", name, diag, &out[n++]) != WEFT_ERR_OK)
            give_up(diag, "slice");
    }
    return n;
}

static void measure(const char *path, int rounds)
{
    static const uint32_t batch[] = {1, 2, 4, 8, 16, 32, 64, 128}, procs[] = {1, 2, 3};
    static double whole[ROUNDS_MAX], kernels[ROUNDS_MAX], slice_ms[ROUNDS_MAX], all[ROUNDS_MAX];
    weft_slice slice[SLICES_MAX], device;
    weft_diag *diag = weft_diag_create();
    weft_module *m = weft_module_create(0);
    weft_arena *arena = weft_arena_create(0);
    weft_graph *g = load(m, path, diag);
    size_t n_slice = make_slices(slice, diag);
    int64_t symbol[64] = {0};
    if (weft_slice_make("h100", "", diag, &device) != WEFT_ERR_OK ||
        weft_estimate_symbols(g, 1, diag, symbol) != WEFT_ERR_OK)
        give_up(diag, path);
    weft_arena_mark mark = weft_arena_get_mark(arena);
    size_t n_kernel = 0;
    for (int i = 0; i < rounds; i++) {
        weft_workload work;
        weft_estimate e;
        weft_profile profile;
        double start = now_ms();
        if (weft_workload_make(g, symbol, NULL, arena, diag, &work) != WEFT_ERR_OK)
            give_up(diag, path);
        double made = now_ms();
        if (weft_estimate_workload(&work, &device, NULL, arena, diag, &e) != WEFT_ERR_OK)
            give_up(diag, path);
        double end = now_ms();
        kernels[i] = made - start;
        slice_ms[i] = end - made;
        whole[i] = end - start;
        n_kernel = e.n;
        weft_arena_reset(arena, mark);
        start = now_ms();
        if (weft_estimate_profile(g, slice, n_slice, batch, sizeof batch / sizeof batch[0], procs,
                                  sizeof procs / sizeof procs[0], NULL, arena, diag,
                                  &profile) != WEFT_ERR_OK)
            give_up(diag, path);
        all[i] = now_ms() - start;
        weft_arena_reset(arena, mark);
    }
    printf("%s: %zu kernels, %zu slices\n", path, n_kernel, n_slice);
    print_times("estimate", whole, rounds);
    print_times("kernels", kernels, rounds);
    print_times("one slice", slice_ms, rounds);
    print_times("profile", all, rounds);
    weft_arena_destroy(arena);
    weft_module_destroy(m);
    weft_diag_destroy(diag);
}

int main(int argc, char **argv)
{
    int rounds = 50, first = 1;
    if (argc > 2 && strcmp(argv[1], "--rounds") == 0) {
        rounds = atoi(argv[2]);
        first = 3;
    }
    if (first >= argc || rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: bench_estimate [--rounds N] MODEL.onnx...\n");
        return 2;
    }
    for (int i = first; i < argc; i++)
        measure(argv[i], rounds);
    return 0;
}
