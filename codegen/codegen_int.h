/* Private to codegen/: the table of backends. */
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

#endif
