/* Weft as a library: runs the models of a bundle inside another program.
 *
 *     weft_error error;
 *     weft_bundle *bundle = weft_open("digits.weft", NULL, &error);
 *     weft_session *session = bundle ? weft_start(bundle, "digits", &error) : NULL;
 *     weft_array in = {WEFT_F32, 4, {1, 1, 8, 8}, pixels, sizeof pixels};
 *     weft_array out = {.data = logits, .bytes = sizeof logits};
 *     if (!session || weft_run(session, &in, 1, &out, 1, &error) != WEFT_OK)
 *         fprintf(stderr, "%s\n", error.text);
 *     weft_stop(session);
 *     weft_close(bundle);
 *
 * Link with pkg-config weft, or find_package(Weft) and Weft::runtime. The library contains no
 * compiler: `weft compile` makes bundles. It prints nothing, installs no signal handler, and never
 * ends the process because of a bundle or an input.
 *
 * Threads. A bundle may be used by any threads at once. So may a session; its runs wait for each
 * other, so sessions of one bundle are what runs in parallel. weft_close and weft_stop must be the
 * last call with their handle. A bundle stays open until its last session is stopped, whatever the
 * order of weft_close and weft_stop. A child of fork() must not use handles of its parent.
 *
 * Errors. Functions return a status, or a handle that is NULL on failure, and fill *error; `error`
 * may be NULL.
 *
 * Stability. Programs built against libweft.so.1 run with every later libweft.so.1: fields are
 * added only behind those of structures that the library allocates, or in place of `reserved`. */
#ifndef WEFT_WEFT_H
#define WEFT_WEFT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_VERSION_MAJOR 0
#define WEFT_VERSION_MINOR 1
#define WEFT_VERSION_PATCH 0

/* Version of the library at run time: "0.1.0". */
const char *weft_version(void);

/* -- Errors ----------------------------------------------------------------------------------- */

typedef enum weft_status {
    WEFT_OK = 0,
    WEFT_INPUT = 1,       /* the bundle, an argument or a tensor is wrong */
    WEFT_UNSUPPORTED = 2, /* valid, but not supported */
    WEFT_NO_MEMORY = 3,   /* out of memory, or over the limit of the options */
    WEFT_NO_DEVICE = 4,   /* the device or its driver library is absent, or the device is lost */
    WEFT_IO = 5,          /* the operating system refused a file */
    WEFT_INTERNAL = 6     /* a defect of Weft */
} weft_status;

/* Filled by the function that fails; unchanged by one that succeeds. */
typedef struct weft_error {
    weft_status status;
    char text[1020]; /* "digits.weft: image: ...", without a newline */
} weft_error;

/* -- Bundles ---------------------------------------------------------------------------------- */

typedef struct weft_bundle weft_bundle;

/* The slice of a device on which the sessions of a bundle run. All zero: the defaults. */
typedef struct weft_options {
    const char *driver;  /* "cpu", "cuda", "null"; NULL: the one for the bundle's target */
    uint32_t threads;    /* of the CPU driver, for each thread that runs; 0: one a CPU */
    const uint32_t *cpu; /* CPUs to use; threads that run a session are then bound to these */
    uint32_t n_cpu;
    uint32_t gpu;                /* which of the GPUs that CUDA shows */
    uint32_t sm_first, n_sm;     /* a green context of n_sm multiprocessors; 0: the whole GPU */
    double time_limit_s;         /* a run ends before the next round of a loop; 0: no limit */
    uint64_t memory_limit_bytes; /* of activations, results and weights on a GPU; 0: no limit */
    uint64_t reserved[8];        /* 0 */
} weft_options;

/* Opens a bundle: checks everything in it but the bytes of weights, which are checked by the first
 * session that uses them. Uses no device. The file is mapped: replace it by renaming another one
 * over it, never by writing into it. */
weft_bundle *weft_open(const char *path, const weft_options *options, weft_error *error);
/* The same for a descriptor, which may be closed afterwards; `name` is for messages. */
weft_bundle *weft_open_fd(int fd, const char *name, const weft_options *options, weft_error *error);
/* The same for bytes in memory, which are copied. */
weft_bundle *weft_open_memory(const void *bytes, size_t len, const weft_options *options,
                              weft_error *error);
void weft_close(weft_bundle *bundle);

/* -- What is in a bundle ---------------------------------------------------------------------- */

typedef enum weft_type {
    WEFT_F32 = 1,
    WEFT_F64 = 2,
    WEFT_F16 = 3,
    WEFT_BF16 = 4,
    WEFT_I8 = 5,
    WEFT_I16 = 6,
    WEFT_I32 = 7,
    WEFT_I64 = 8,
    WEFT_U8 = 9,
    WEFT_U16 = 10,
    WEFT_U32 = 11,
    WEFT_U64 = 12,
    WEFT_BOOL = 13, /* a byte: 0 or 1 */
    WEFT_F8E4M3FN = 14,
    WEFT_F8E4M3FNUZ = 15,
    WEFT_F8E5M2 = 16,
    WEFT_F8E5M2FNUZ = 17,
    WEFT_F8E8M0 = 18,
    WEFT_F6E2M3 = 19, /* types of fewer than 8 bits take the low bits of a byte each */
    WEFT_F6E3M2 = 20,
    WEFT_F4E2M1 = 21,
    WEFT_I4 = 22,
    WEFT_U4 = 23,
    WEFT_I2 = 24,
    WEFT_U2 = 25
} weft_type;

/* Bytes of an element; 0: no such type. */
size_t weft_size_of(weft_type type);
/* "f32", "i64", ...; "none": no such type. */
const char *weft_name_of(weft_type type);

enum { WEFT_DIMS_MAX = 8 };

/* An input or output of a model. */
typedef struct weft_tensor_info {
    const char *name;
    weft_type type;
    int32_t rank;
    int64_t dim[WEFT_DIMS_MAX];          /* -1: not constant */
    const char *dim_text[WEFT_DIMS_MAX]; /* "batch", "2*seq", "8" */
    int64_t dim_min[WEFT_DIMS_MAX], dim_max[WEFT_DIMS_MAX];
} weft_tensor_info;

/* An estimate for one device, slice and batch, made when the bundle was compiled with --gpu. */
typedef struct weft_estimate_info {
    const char *device, *slice; /* "h100", "1g.10gb"; slice "": the whole device */
    uint32_t batch, processes;
    double time_us;          /* of one execution */
    double creq;             /* share of the device's compute units, 0 to 1 */
    uint64_t mreq_bytes;     /* memory that the model needs */
    double energy_j;         /* of one execution */
    double throughput_per_s; /* rows a second, of all processes */
    double expected_error;   /* of time_us, relative: 0.3 = 30 % */
    const char *source;      /* "analytic", "learned", "measured" */
} weft_estimate_info;

typedef struct weft_model_info {
    const char *name;
    const weft_tensor_info *input, *output;
    uint32_t n_input, n_output;
    const uint32_t *batch; /* batch sizes that memory was planned for; other sizes run as well */
    uint32_t n_batch;      /* 0: the model has no batch dimension */
    double slo_us, rate_per_s; /* from the set file; 0: none */
    const weft_estimate_info *estimate;
    uint32_t n_estimate;
} weft_model_info;

/* The i-th model; NULL: there are fewer. Valid until the bundle is closed. */
const weft_model_info *weft_describe(const weft_bundle *bundle, uint32_t i);
/* The model of that name; NULL: there is none. */
const weft_model_info *weft_find(const weft_bundle *bundle, const char *model);
/* Target of the bundle: "cpu", "sm_80,sm_90". */
const char *weft_built_for(const weft_bundle *bundle);
/* The plan.json in the bundle; NULL: none. */
const char *weft_planned(const weft_bundle *bundle);

/* -- Sessions --------------------------------------------------------------------------------- */

typedef struct weft_session weft_session;

/* Prepares a model: checks its weights and packs them, once for all sessions of the bundle. */
weft_session *weft_start(weft_bundle *bundle, const char *model, weft_error *error);
/* Prepares several models to run together. The inputs of the session are those of the models one
 * after the other, in the order given; its outputs likewise. Where the bundle has a joint program
 * for these models, it runs as long as it is predicted to be faster; otherwise the models run one
 * after the other. A model may be named once. */
weft_session *weft_start_joint(weft_bundle *bundle, const char *const *model, uint32_t n,
                               weft_error *error);
/* Ends asynchronous runs first. Must not be called from a weft_done. */
void weft_stop(weft_session *session);

/* Inputs and outputs of the session; valid until it is stopped. */
const weft_tensor_info *weft_inputs(const weft_session *session, uint32_t *out_n);
const weft_tensor_info *weft_outputs(const weft_session *session, uint32_t *out_n);
/* Name of the joint program that the session uses; NULL: none. */
const char *weft_joined_by(const weft_session *session);

/* A dense, row-major tensor in memory of the caller. */
typedef struct weft_array {
    weft_type type;
    int32_t rank;
    int64_t dim[WEFT_DIMS_MAX];
    void *data;   /* inputs are only read */
    size_t bytes; /* of the room at `data` */
} weft_array;

/* Sets type, rank, dims and bytes of the outputs for inputs of these types and dims, without
 * running. `data` is neither read nor set. An output whose size only a run can tell has dims of -1
 * and bytes 0. */
weft_status weft_measure(weft_session *session, const weft_array *in, uint32_t n_in,
                         weft_array *out, uint32_t n_out, weft_error *error);
/* Prepares runs of these sizes in advance, so that the first one takes no longer than later ones.
 * Data is not read. */
weft_status weft_prepare(weft_session *session, const weft_array *in, uint32_t n_in,
                         weft_error *error);

/* Runs once. Inputs have any sizes within the bounds of their dims. An output with `data` is copied
 * there; if it needs more than its `bytes`, the status is WEFT_INPUT and `bytes` is what it needs.
 * An output without `data` gets memory of the session, valid until the next call that gets this
 * session. Type, rank, dims and bytes of all outputs are set. */
weft_status weft_run(weft_session *session, const weft_array *in, uint32_t n_in, weft_array *out,
                     uint32_t n_out, weft_error *error);

/* Called when an asynchronous run has ended, on a thread of the session. `out` is valid until it
 * returns; `error` is NULL after success. It may start further runs. */
typedef void weft_done(void *user, const weft_array *out, uint32_t n_out, const weft_error *error);

/* Runs on a thread of the session, in the order of the calls. The arrays are copied; the memory
 * that they point to must live until `done` is called. After WEFT_OK `done` is called exactly once;
 * otherwise never. */
weft_status weft_run_async(weft_session *session, const weft_array *in, uint32_t n_in,
                           const weft_array *out, uint32_t n_out, weft_done *done, void *user,
                           weft_error *error);
/* Waits until all asynchronous runs have ended. Must not be called from a weft_done. */
void weft_wait(weft_session *session);

/* -- Where time goes -------------------------------------------------------------------------- */

/* Mean time of a kernel over the runs since weft_watch switched timing on. */
typedef struct weft_kernel_info {
    const char *model, *op; /* model: or joint program */
    const char *item;       /* ONNX node; "": unknown */
    const char *variant;    /* "onednn:jit:avx2", "ew", "ref", ... */
    double time_us;
} weft_kernel_info;

/* Switches timing of kernels on or off and forgets what was measured. CPU driver only: on a GPU all
 * times are 0. */
void weft_watch(weft_session *session, int on);
/* Valid until the next call that gets this session. NULL: no memory. */
const weft_kernel_info *weft_kernels(weft_session *session, uint32_t *out_n);

#ifdef __cplusplus
}
#endif

#endif
