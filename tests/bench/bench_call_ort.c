/* Time of a call through onnxruntime's C API: bench_call_ort LIBRARY MODEL.onnx RUNS prints the
 * median and the mean of Run in microseconds, for a model of one input x and one output y, one
 * float each, on one thread. Python's packages have the library without its header: the few
 * functions that are called are declared here by their places in the table, which no later version
 * changes. */
#include "tests/bench/times.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    GET_ERROR_MESSAGE = 2,
    CREATE_ENV = 3,
    CREATE_SESSION = 7,
    RUN = 9,
    CREATE_SESSION_OPTIONS = 10,
    SET_INTRA_OP_NUM_THREADS = 24,
    CREATE_TENSOR_WITH_DATA = 49,
    CREATE_CPU_MEMORY_INFO = 69
};

typedef void any(void);

static any *const *table;

static void need(void *status)
{
    if (!status)
        return;
    fprintf(stderr, "%s\n", ((const char *(*)(void *))table[GET_ERROR_MESSAGE])(status));
    exit(1);
}

/* Calls the function at this place of the table, which returns NULL or an error. */
#define CALL(place, types, ...) need(((void *(*)types)table[place])(__VA_ARGS__))

static void *make_tensor(void *memory, float *data)
{
    enum { FLOAT = 1 };
    static const int64_t shape[] = {1};
    void *out;
    CALL(CREATE_TENSOR_WITH_DATA, (void *, void *, size_t, const int64_t *, size_t, int, void **),
         memory, data, sizeof *data, shape, 1, FLOAT, &out);
    return out;
}

int main(int argc, char **argv)
{
    typedef struct {
        any *const *(*get)(uint32_t version);
    } base;
    size_t runs = argc == 4 ? strtoul(argv[3], NULL, 10) : 0;
    void *library = runs ? dlopen(argv[1], RTLD_NOW) : NULL;
    const base *(*entry)(void) = NULL;
    if (library)
        *(void **)&entry = dlsym(library, "OrtGetApiBase");
    if (!entry || !(table = entry()->get(1))) {
        fprintf(stderr, "usage: bench_call_ort LIBRARY MODEL.onnx RUNS\n");
        return 1;
    }
    enum { WARNING = 2, ARENA = 1, DEFAULT = 0 };
    static const char *const in_name[] = {"x"}, *const out_name[] = {"y"};
    void *env, *options, *session, *memory;
    float x = 2, y = 0;
    CALL(CREATE_ENV, (int, const char *, void **), WARNING, "bench", &env);
    CALL(CREATE_SESSION_OPTIONS, (void **), &options);
    CALL(SET_INTRA_OP_NUM_THREADS, (void *, int), options, 1);
    CALL(CREATE_SESSION, (void *, const char *, void *, void **), env, argv[2], options, &session);
    CALL(CREATE_CPU_MEMORY_INFO, (int, int, void **), ARENA, DEFAULT, &memory);
    void *in = make_tensor(memory, &x), *out = make_tensor(memory, &y);
    double *sample = malloc(runs * sizeof *sample), sum = 0;
    if (!sample)
        return 1;
    for (size_t i = 0; i < runs; i++) {
        double start = now_us();
        CALL(RUN,
             (void *, void *, const char *const *, void *const *, size_t, const char *const *,
              size_t, void **),
             session, NULL, in_name, &in, 1, out_name, 1, &out);
        sum += sample[i] = now_us() - start;
    }
    if (y != 2)
        return 1;
    sort_times(sample, runs);
    printf("%.3f %.3f\n", sample[runs / 2], sum / (double)runs);
    return 0;
}
