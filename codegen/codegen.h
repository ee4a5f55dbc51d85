/* Plan-stage modules into bundles. A backend (row of backends.def) says which nodes it can launch
 * and which variant of a kernel it takes; codegen turns every graph into a program. */
#ifndef WEFT_CODEGEN_CODEGEN_H
#define WEFT_CODEGEN_CODEGEN_H

#include "ir/bundle.h"
#include "ir/ir.h"

/* What a backend with device code writes to (codegen_int.h). */
typedef struct weft_device_code weft_device_code;

typedef struct weft_backend {
    const char *name; /* "cpu" */
    const char *brief;
    /* false: cannot be launched; *why is one sentence, static. */
    bool (*supports)(const weft_module *m, weft_node n, const char **why);
    /* For devices that run code of ours; NULL: launches have no commands. `emit` sets the commands
     * and the scratch memory of a launch and adds a message to the error that it returns; `finish`
     * adds architectures, images and kernels to the bundle. */
    weft_err (*start)(weft_device_code *code);
    weft_err (*emit)(weft_device_code *code, weft_node n, weft_bundle_launch *launch);
    weft_err (*finish)(weft_device_code *code, weft_bundle *bundle);
    void (*stop)(weft_device_code *code); /* always, last; frees what is in no arena */
} weft_backend;

const weft_backend *weft_backend_find(const char *name);
const weft_backend *weft_backend_at(size_t i); /* NULL behind the last */

/* What the bundle says of a model beyond its graph; by graph order. */
typedef struct weft_codegen_model {
    double slo_us, rate_per_s;
    weft_profile profile;
} weft_codegen_model;

typedef struct weft_codegen_options {
    const weft_codegen_model *model; /* by graph; NULL: nothing is known */
    const char *plan_json;           /* NULL: none */
    const char *target;              /* "sm_80,sm_90"; NULL: the backend's name */
    uint32_t n_thread;               /* for compilers; 0: one */
    bool tf32;                       /* products of f32 may be rounded to TF32 */
    /* Program that calls weft_nvrtc_worker when it is run with WEFT_NVRTC_WORKER as its only
     * argument: kernels are compiled by it, each module by a process of its own. NULL: in this
     * process, where the addresses of the day leave traces in the code. */
    const char *worker;
} weft_codegen_options;

#define WEFT_NVRTC_WORKER "--compile-kernels"
/* Compiles the module on standard input for one architecture, to standard output. argv as main has
 * it: the program is started again where addresses are drawn by chance. Returns an exit code. */
int weft_nvrtc_worker(char **argv);

/* As below, for backends with device code too. */
WEFT_MUST_USE weft_err weft_codegen_make(weft_module *m, const weft_backend *backend,
                                         const weft_codegen_options *options, weft_arena *arena,
                                         weft_diag *diag, weft_bundle *out);

/* Fills `out` (in `arena`, referring to the module's weights): one program a graph, weights once
 * per distinct content, in the order of first use. Deterministic. */
WEFT_MUST_USE weft_err weft_codegen_bundle(weft_module *m, const weft_backend *backend,
                                           const weft_codegen_model *model, const char *plan_json,
                                           weft_arena *arena, weft_diag *diag, weft_bundle *out);

#endif
