/* What `weft serve --repository` adds for a model repository of Triton: its models are compiled, at
 * the start all together, later each when it is loaded. These are runs of the compiler program,
 * because the server links no compiler. */
#ifndef WEFT_TOOLS_SERVE_REPOSITORY_H
#define WEFT_TOOLS_SERVE_REPOSITORY_H

#include "base/arena.h"
#include "base/diag.h"
#include "runtime/server/server.h"

typedef struct weft_triton weft_triton;

/* Whether the folder has models that are to be compiled, and not bundles. */
bool weft_triton_is_for(const char *folder);
/* Compiles all models of the folder; *out_bundle is the path of the bundle. INPUT: they cannot be
 * compiled; the compiler has said why. The result is ended by weft_triton_end. */
WEFT_MUST_USE weft_err weft_triton_begin(const char *folder, weft_arena *arena, weft_diag *diag,
                                         const char **out_bundle, weft_triton **out);
/* What the server calls. `poll_s`: how often the folder is looked at; 0: never. */
weft_serve_source weft_triton_source(weft_triton *repository, double poll_s);
/* Removes the compiled bundles. NULL is allowed. */
void weft_triton_end(weft_triton *repository);

#endif
