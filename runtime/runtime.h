/* Bundles into answers: drivers, sessions, and the server.
 *
 * A node (weft_engine) holds a bundle and a driver on one slice; a session runs one model of it.
 * An engine is thread-compatible; a session is single-thread and may be used on another thread
 * than its siblings. */
#ifndef WEFT_RUNTIME_RUNTIME_H
#define WEFT_RUNTIME_RUNTIME_H

#include "base/tensor.h"
#include "ir/bundle.h"

/* -- Drivers -------------------------------------------------------------------------------- */

typedef struct weft_driver weft_driver; /* rows of drivers.def */
const weft_driver *weft_driver_find(const char *name);
const weft_driver *weft_driver_at(size_t i); /* NULL behind the last */
const char *weft_driver_name(const weft_driver *driver);
const char *weft_driver_brief(const weft_driver *driver);

/* -- Engines -------------------------------------------------------------------------------- */

/* Zero-initialised: the defaults. */
typedef struct weft_engine_options {
    const char *driver;  /* NULL: "cpu" */
    uint32_t threads;    /* 0: CPUs of the slice */
    const uint32_t *cpu; /* CPU set of the slice; NULL: inherited */
    uint32_t n_cpu;
    uint64_t mem_limit_bytes; /* of arenas and results, 0: none */
} weft_engine_options;

typedef struct weft_engine weft_engine;

WEFT_MUST_USE weft_err weft_engine_open(const char *bundle_path,
                                        const weft_engine_options *options, weft_diag *diag,
                                        weft_engine **out);
void weft_engine_close(weft_engine *engine);
const weft_bundle *weft_engine_bundle(const weft_engine *engine);

/* -- Sessions ------------------------------------------------------------------------------- */

typedef struct weft_session weft_session;

/* Prepares a model: checks and packs its weights (shared with the engine's other sessions where equal). */
WEFT_MUST_USE weft_err weft_session_open(weft_engine *engine, const char *model, weft_diag *diag,
                                         weft_session **out);
void weft_session_close(weft_session *session);
const weft_bundle_program *weft_session_program(const weft_session *session);

/* Makes ready for a bucket, so that the first request of that size is not slower. */
WEFT_MUST_USE weft_err weft_session_warm(weft_session *session, uint32_t bucket, weft_diag *diag);

/* Runs the model. `in` are in the program's input order with any dims inside the symbols' ranges (bucket sizes
 * are fastest, others are prepared on first use and kept in a small cache). `out` gets the outputs
 * in order; their data belongs to the session until its next run. INPUT when dims or dtypes do not
 * fit; NOMEM over the limit. */
WEFT_MUST_USE weft_err weft_session_run(weft_session *session, const weft_tensor *in,
                                        uint32_t n_in, weft_diag *diag, weft_tensor *out,
                                        uint32_t n_out);

/* What a launch took, mean over runs since profiling was switched on. */
typedef struct weft_launch_time {
    uint32_t launch; /* of the program */
    const char *variant; /* "onednn:jit_avx512...", "ew", "ref" */
    double time_us;
} weft_launch_time;
void weft_session_profile(weft_session *session, bool on);
/* Borrowed until the next run. */
const weft_launch_time *weft_session_times(weft_session *session, uint32_t *out_n);

#endif
