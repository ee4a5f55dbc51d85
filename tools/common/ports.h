/* Tensors on the command line: NAME=@FILE for inputs and outputs. */
#ifndef WEFT_TOOLS_PORTS_H
#define WEFT_TOOLS_PORTS_H

#include "ir/bundle.h"
#include "tools/common/sample_tensors.h"
#include "tools/common/tools.h"

enum { WEFT_BINDINGS_MAX = 256 };

typedef struct weft_tool_binding {
    const char *name, *path;
} weft_tool_binding;

typedef struct weft_tool_bindings {
    weft_tool_binding at[WEFT_BINDINGS_MAX];
    size_t n;
} weft_tool_bindings;

/* Value of an option NAME=@FILE: adds it to the weft_tool_bindings `at`. `arg` is changed. */
int weft_tool_bind(void *at, const weft_verb *verb, char *arg);
/* Reads a .npy file, or an ONNX tensor (.pb). */
WEFT_MUST_USE weft_err weft_tool_load_tensor(const char *path, weft_arena *arena, weft_diag *diag,
                                             weft_tensor *out);
/* Reports that a model has no `what` ("input") called `name`, and which one may be meant. Returns
 * INPUT. `known`: those that it has. */
weft_err weft_tool_refuse_port(const char *what, const char *name, const char *const *known,
                               uint32_t n_known, weft_where where, weft_diag *diag);
/* Loads every input of a model whose inputs have these names; `in` has room for n_name and is
 * zeroed. */
WEFT_MUST_USE weft_err weft_tool_load_named(const weft_tool_bindings *list, const char *model,
                                            const char *const *name, uint32_t n_name,
                                            weft_arena *arena, weft_diag *diag, weft_tensor *in);
/* The same for a program. */
WEFT_MUST_USE weft_err weft_tool_load_inputs(const weft_tool_bindings *list,
                                             const weft_bundle_program *p, weft_arena *arena,
                                             weft_diag *diag, weft_tensor *in);
/* Value of an option NAME=VALUE. `arg` is changed. Returns 0, or an exit code after a message. */
int weft_tool_take_dim(const weft_verb *verb, char *arg, weft_tool_dim *out);

#endif
