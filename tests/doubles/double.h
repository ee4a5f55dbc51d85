/* What the doubles of NVIDIA's libraries share: settings from the environment, the record of calls,
 * mistakes of the caller, errors on demand, and the image of kernels that goes from one to another.
 * README.md tells how tests use them. */
#ifndef WEFT_TESTS_DOUBLE_H
#define WEFT_TESTS_DOUBLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEFT_EXPORT         __attribute__((visibility("default")))
#define WEFT_PRINTF_DOUBLE  __attribute__((format(printf, 1, 2)))
#define WEFT_DOUBLE_VERSION 13000 /* of CUDA, as all four say */

/* Exported by each library, for tests that load it into their own process. */

/* Mistakes since the last call: their number, and their text (of the library, until the next). */
WEFT_EXPORT unsigned weft_double_mistakes(const char **text);
/* Calls so far that could fail, of all functions, as "*" of WEFT_DOUBLE_FAIL counts them. */
WEFT_EXPORT unsigned weft_double_calls(void);
/* Forgets all, whatever is still in use, and reads the environment again. */
WEFT_EXPORT void weft_double_reset(void);

/* -- Within a library -------------------------------------------------------------------------- */

/* Name in messages ("libcuda"); what `reset` calls, may be NULL. */
extern const char *const weft_double_library;
void weft_double_library_reset(void);

/* The caller did what is not allowed. Told on the error stream at once; a process that ends without
 * someone having asked for its mistakes ends with status 98. */
void weft_double_mistake(const char *format, ...) WEFT_PRINTF_DOUBLE;
/* A line of the record, in the file WEFT_DOUBLE_LOG. */
void weft_double_log(const char *format, ...) WEFT_PRINTF_DOUBLE;
/* Counts a call; what it shall return instead of success, 0: nothing. */
unsigned weft_double_fail(const char *call);
/* A setting WEFT_DOUBLE_name. */
const char *weft_double_text(const char *name);
uint64_t weft_double_number(const char *name, uint64_t otherwise);
/* Whether `word` is one of the comma-separated ones of a setting. */
bool weft_double_listed(const char *name, const char *word);
void weft_double_lock(void);
void weft_double_unlock(void);
uint64_t weft_double_sum(const void *data, size_t bytes);

/* -- Images: what the double of NVRTC makes and that of the driver loads -------------------------
 */

#define WEFT_DOUBLE_MAGIC "\177WDOUBLE"

/* Followed by a shared object, and a zero. */
typedef struct weft_double_image {
    char magic[8];
    char arch[24];  /* "sm_90", "compute_90" */
    uint64_t bytes; /* with this and the zero */
    uint64_t sum;   /* of what is behind this */
} weft_double_image;

enum { WEFT_DOUBLE_VALUE, WEFT_DOUBLE_POINTER_IN, WEFT_DOUBLE_POINTER };

typedef struct weft_double_param {
    unsigned short bytes, align; /* align: of what it points to */
    unsigned kind;
} weft_double_param;

/* The object has an array of them, weft_double_kernels, that ends at name NULL. */
typedef struct weft_double_kernel {
    const char *name;
    unsigned threads; /* at most */
    unsigned n_param;
    const weft_double_param *param;
    void (*run)(unsigned gx, unsigned gy, unsigned gz, unsigned threads, unsigned shared_bytes,
                void **params);
} weft_double_kernel;

/* And, when it was compiled to watch accesses, a pointer weft_double_touch to be set to this. */
typedef void (*weft_double_touch_fn)(const void *at, size_t bytes, int write);

/* -- Work of other libraries on streams ---------------------------------------------------------
 */

typedef struct weft_double_span {
    uintptr_t at;
    size_t bytes;
} weft_double_span;

/* Exported by libcuda's double: work that touches these addresses joins a stream, or the graph that
 * the stream is captured into. `data` is copied. `run` does it and tells the time that it takes,
 * made up, in us. Returns a CUresult. */
typedef unsigned (*weft_double_enqueue_fn)(void *stream, const char *what,
                                           double (*run)(void *data), const void *data,
                                           size_t bytes, const weft_double_span *read,
                                           size_t n_read, const weft_double_span *write,
                                           size_t n_write);

/* -- For the double of CUPTI ---------------------------------------------------------------------
 */

enum { WEFT_DOUBLE_RAN_KERNEL, WEFT_DOUBLE_RAN_COPY, WEFT_DOUBLE_RAN_SET };

/* Work of streams, not of graphs: when it is put there, by the thread that does, and when it ran.
 */
typedef struct weft_double_tracer {
    void (*called)(uint32_t call);
    void (*ran)(uint32_t call, int kind, double from_us, double to_us);
} weft_double_tracer;

/* Exported by libcuda's double as weft_double_trace; NULL: nobody wants to know. */
typedef void (*weft_double_trace_fn)(const weft_double_tracer *tracer);

#endif
