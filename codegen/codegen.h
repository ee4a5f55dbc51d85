/* Turns plan-stage modules into bundles: every graph becomes a program. A backend (a row of
 * backends.def) says which nodes it can launch and writes their device code. */
#ifndef WEFT_CODEGEN_CODEGEN_H
#define WEFT_CODEGEN_CODEGEN_H

#include "ir/bundle.h"
#include "ir/ir.h"

/* The device code of a bundle, written by the backend (codegen_int.h). */
typedef struct weft_device_code weft_device_code;

typedef struct weft_backend {
    const char *name; /* "cpu" */
    const char *brief;
    /* Returns false if the node cannot be launched; *why is then one sentence, static. */
    bool (*supports)(const weft_module *m, weft_node n, const char **why);
    /* For backends with device code; NULL: launches have no commands. `emit` sets the commands and
     * the scratch memory of a launch and reports each error that it returns; `finish` adds
     * architectures, images and kernels to the bundle. */
    weft_err (*start)(weft_device_code *code);
    weft_err (*emit)(weft_device_code *code, weft_node n, weft_bundle_launch *launch);
    weft_err (*finish)(weft_device_code *code, weft_bundle *bundle);
    void (*stop)(
        weft_device_code *code); /* always called last; frees everything that no arena owns */
} weft_backend;

const weft_backend *weft_backend_find(const char *name);
const weft_backend *weft_backend_at(size_t i); /* NULL if i is not a row */

/* What clients are told of an input or output (weft_bundle_port). */
typedef struct weft_codegen_port {
    const char *name, *format; /* NULL: not given */
    const char *const *label;
    size_t n_label;
} weft_codegen_port;

/* Facts about a model or a joint graph that are not in its graph; one record for each graph that is
 * no body, in order. A joint graph has a profile only. */
typedef struct weft_codegen_model {
    const char *serves, *version; /* weft_bundle_program; NULL: not given */
    const char *const *head;      /* names of models whose answers to one input it gives */
    size_t n_head;
    const weft_codegen_port *port; /* of inputs and outputs that have more than a name */
    size_t n_port;
    double slo_us, rate_per_s;
    bool admit_by_slo;
    weft_profile profile;
} weft_codegen_model;

/* Results of NVRTC that earlier runs left in a folder. A folder or file that another user owns,
 * that others may write, or that is damaged is not used; results are the same with and without. */
typedef struct weft_codegen_cache {
    const char *folder;   /* made if it is missing */
    uint64_t limit_bytes; /* beyond, the results used the longest time ago are removed */
    bool is_optional;     /* no warning if the folder cannot be used */
    uint32_t n_image,
        n_found; /* filled: images that were needed, and how many were in the folder */
} weft_codegen_cache;

typedef struct weft_codegen_options {
    const weft_codegen_model *model; /* one for each graph; NULL: no facts */
    const char *plan_json;           /* NULL: none */
    const char *target;              /* "sm_80,sm_90"; NULL: the backend's name */
    uint32_t n_thread;               /* threads that compile device code; 0: one */
    bool tf32;                       /* GEMMs of f32 may round their operands to TF32 */
    /* Path of a program that calls weft_nvrtc_worker when its only argument is WEFT_NVRTC_WORKER.
     * Each module of kernels is compiled by its own fork of this program. NULL: modules are
     * compiled in this process, and the machine code then depends on address space layout
     * randomisation. */
    const char *worker;
    weft_codegen_cache *cache; /* NULL: none */
    /* Called when so many of all modules of kernels are compiled, by any thread; NULL: not. */
    void (*progress)(uint32_t done, uint32_t total);
} weft_codegen_options;

#define WEFT_NVRTC_WORKER "--compile-kernels"
/* Compiles the module on standard input for one architecture and writes the result to standard
 * output. `argv` is main's: the program executes itself again if address space layout randomisation
 * is on. Returns an exit code. */
int weft_nvrtc_worker(char **argv);

/* Like weft_codegen_bundle, and also for backends with device code. */
WEFT_MUST_USE weft_err weft_codegen_make(weft_module *m, const weft_backend *backend,
                                         const weft_codegen_options *options, weft_arena *arena,
                                         weft_diag *diag, weft_bundle *out);

/* Fills `out` with one program for each graph and each distinct weight once, in order of first use.
 * Memory is allocated from `arena`; weights still refer to the module. Deterministic. */
WEFT_MUST_USE weft_err weft_codegen_bundle(weft_module *m, const weft_backend *backend,
                                           const weft_codegen_model *model, const char *plan_json,
                                           weft_arena *arena, weft_diag *diag, weft_bundle *out);

#endif
