/* Shared by the test doubles of NVIDIA's libraries: settings from the environment, the log of
 * calls, mistakes of the caller, injected errors, and the format of images of kernels. README.md
 * describes how tests use them. */
#ifndef WEFT_TESTS_DOUBLE_H
#define WEFT_TESTS_DOUBLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEFT_EXPORT         __attribute__((visibility("default")))
#define WEFT_PRINTF_DOUBLE  __attribute__((format(printf, 1, 2)))
#define WEFT_DOUBLE_VERSION 13000 /* CUDA version that all doubles report */

/* Exported by each library, for tests that load it into their process. */

/* Number of mistakes since the last call, and their text, which is valid until the next call. */
WEFT_EXPORT unsigned weft_double_mistakes(const char **text);
/* Number of calls so far that can fail, as "*" of WEFT_DOUBLE_FAIL counts them. */
WEFT_EXPORT unsigned weft_double_calls(void);
/* Drops all state, even if still in use, and reads the environment again. */
WEFT_EXPORT void weft_double_reset(void);

/* -- Within a library -------------------------------------------------------------------------- */

/* The library's name in messages ("libcuda"), and its hook for weft_double_reset. */
extern const char *const weft_double_library;
void weft_double_library_reset(void);

/* Reports a mistake of the caller on standard error. A process whose mistakes nobody asked for ends
 * with status 98. */
void weft_double_mistake(const char *format, ...) WEFT_PRINTF_DOUBLE;
/* Writes a line to the log, the file WEFT_DOUBLE_LOG. */
void weft_double_log(const char *format, ...) WEFT_PRINTF_DOUBLE;
/* Counts a call. Returns the error code that it must return, or 0. */
unsigned weft_double_fail(const char *call);
/* Value of the environment variable WEFT_DOUBLE_name. */
const char *weft_double_text(const char *name);
uint64_t weft_double_number(const char *name, uint64_t otherwise);
/* Whether `word` is an element of a comma-separated setting. */
bool weft_double_listed(const char *name, const char *word);
void weft_double_lock(void);
void weft_double_unlock(void);
uint64_t weft_double_sum(const void *data, size_t bytes);

/* -- Images: made by libnvrtc_double, loaded by libcuda_double -------------------------------- */

#define WEFT_DOUBLE_MAGIC "\177WDOUBLE"

/* Header; a shared object and a zero byte follow. */
typedef struct weft_double_image {
    char magic[8];
    char arch[24];  /* "sm_90", "compute_90" */
    uint64_t bytes; /* size, with header and zero byte */
    uint64_t sum;   /* checksum of what follows the header */
} weft_double_image;

enum { WEFT_DOUBLE_VALUE, WEFT_DOUBLE_POINTER_IN, WEFT_DOUBLE_POINTER };

typedef struct weft_double_param {
    unsigned short bytes, align; /* align: of the pointed-to type */
    unsigned kind;
} weft_double_param;

/* The shared object exports an array of them, weft_double_kernels, that ends with name NULL. */
typedef struct weft_double_kernel {
    const char *name;
    unsigned threads; /* limit */
    unsigned n_param;
    const weft_double_param *param;
    void (*run)(unsigned gx, unsigned gy, unsigned gz, unsigned threads, unsigned shared_bytes,
                void **params);
} weft_double_kernel;

/* An object compiled to watch accesses also exports a pointer weft_double_touch, which is set to
 * such a function. */
typedef void (*weft_double_touch_fn)(const void *at, size_t bytes, int write);

/* -- Work of other libraries on streams ------------------------------------------------------- */

typedef struct weft_double_span {
    uintptr_t at;
    size_t bytes;
} weft_double_span;

/* Exported by libcuda_double: enqueues work with the given accesses on a stream, or into the graph
 * that the stream is captured into. `data` is copied. `run` executes the work and returns its
 * simulated time in us. Returns a CUresult. */
typedef unsigned (*weft_double_enqueue_fn)(void *stream, const char *what,
                                           double (*run)(void *data), const void *data,
                                           size_t bytes, const weft_double_span *read,
                                           size_t n_read, const weft_double_span *write,
                                           size_t n_write);

/* -- For libcupti_double ---------------------------------------------------------------------- */

enum { WEFT_DOUBLE_RAN_KERNEL, WEFT_DOUBLE_RAN_COPY, WEFT_DOUBLE_RAN_SET };

/* Called for work on streams, not in graphs: when it is enqueued (on the calling thread), and when
 * it ran. */
typedef struct weft_double_tracer {
    void (*called)(uint32_t call);
    void (*ran)(uint32_t call, int kind, double from_us, double to_us);
} weft_double_tracer;

/* Exported by libcuda_double as weft_double_trace; NULL ends the tracing. */
typedef void (*weft_double_trace_fn)(const weft_double_tracer *tracer);

#endif
