/* Time of a call through the C API: bench_call BUNDLE.weft RUNS prints the median and the mean of
 * weft_run in microseconds, for the bundle's first model, all symbols at their lower bounds. */
#include "tests/bench/times.h"

#include <weft/weft.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PORTS_MAX = 8 };

static void make_inputs(const weft_tensor_info *info, uint32_t n, weft_array *in)
{
    for (uint32_t i = 0; i < n; i++) {
        size_t bytes = weft_size_of(info[i].type);
        in[i] = (weft_array){.type = info[i].type, .rank = info[i].rank};
        for (int32_t d = 0; d < info[i].rank; d++)
            bytes *= (size_t)(in[i].dim[d] = info[i].dim_min[d]);
        in[i].data = calloc(bytes + 1, 1);
        in[i].bytes = bytes;
    }
}

int main(int argc, char **argv)
{
    weft_error error = {.text = "usage: bench_call BUNDLE.weft RUNS"};
    size_t runs = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
    weft_bundle *bundle = runs ? weft_open(argv[1], &(weft_options){.threads = 1}, &error) : NULL;
    weft_session *session =
        bundle ? weft_start(bundle, weft_describe(bundle, 0)->name, &error) : NULL;
    weft_array in[PORTS_MAX], out[PORTS_MAX] = {{0}};
    uint32_t n_in = 0, n_out = 0;
    double *us = calloc(runs + 1, sizeof *us), sum = 0;
    if (session && us) {
        const weft_tensor_info *info = weft_inputs(session, &n_in);
        weft_outputs(session, &n_out);
        if (n_in > PORTS_MAX || n_out > PORTS_MAX)
            return 1;
        make_inputs(info, n_in, in);
    }
    for (size_t i = 0; session && us && i < runs; i++) {
        double start = now_us();
        if (weft_run(session, in, n_in, out, n_out, &error) != WEFT_OK) {
            sum = -1;
            break;
        }
        us[i] = now_us() - start;
        sum += us[i];
    }
    if (!session || sum < 0) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    sort_times(us, runs);
    printf("%.3f %.3f\n", us[runs / 2], sum / (double)runs);
    for (uint32_t i = 0; i < n_in; i++)
        free(in[i].data);
    free(us);
    weft_stop(session);
    weft_close(bundle);
    return 0;
}
