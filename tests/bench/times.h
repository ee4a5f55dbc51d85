/* Times of benchmarks in C. */
#ifndef WEFT_TESTS_BENCH_TIMES_H
#define WEFT_TESTS_BENCH_TIMES_H

#include <stdlib.h>
#include <time.h>

static inline double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static inline int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline void sort_times(double *us, size_t n)
{
    qsort(us, n, sizeof *us, by_value);
}

#endif
