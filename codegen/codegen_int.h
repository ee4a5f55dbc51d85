/* Private to codegen/: the table of backends, and the record through which a backend adds device
 * code to a bundle. */
#ifndef WEFT_CODEGEN_CODEGEN_INT_H
#define WEFT_CODEGEN_CODEGEN_INT_H

#include "codegen/codegen.h"

/* Written into every bundle: only equal versions of Weft produce equal bytes. */
#ifndef WEFT_VERSION
#define WEFT_VERSION "0.1.0"
#endif

#define BACKEND(name) extern const weft_backend weft_backend_##name;
#include "codegen/backends.def"
#undef BACKEND

/* Device code of the bundle that is being generated. */
struct weft_device_code {
    weft_module *m;
    weft_arena *arena; /* of the bundle */
    weft_diag *diag;
    const weft_codegen_options *options;
    /* Converts a dim of the module to a dim of the current program. */
    weft_dim (*carry)(void *user, weft_dim d);
    void *user;
    void *state; /* the backend's */
};

#endif
