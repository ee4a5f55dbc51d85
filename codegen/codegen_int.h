/* Private to codegen/: the table of backends, and what one with device code is given. */
#ifndef WEFT_CODEGEN_CODEGEN_INT_H
#define WEFT_CODEGEN_CODEGEN_INT_H

#include "codegen/codegen.h"

/* Part of the bundle: bytes are equal only between equal versions. */
#ifndef WEFT_VERSION
#define WEFT_VERSION "0.1.0"
#endif

#define BACKEND(name) extern const weft_backend weft_backend_##name;
#include "codegen/backends.def"
#undef BACKEND

/* Code of a whole bundle in the making. */
struct weft_device_code {
    weft_module *m;
    weft_arena *arena; /* of the bundle */
    weft_diag *diag;
    const weft_codegen_options *options;
    /* A dim of the module as one of the program at hand. */
    weft_dim (*carry)(void *user, weft_dim d);
    void *user;
    void *state; /* the backend's */
};

#endif
