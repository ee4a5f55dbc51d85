/* Adapters (LoRA) of the models of a set, into the bundle of their bases. */
#ifndef WEFT_TOOLS_ADAPTERS_H
#define WEFT_TOOLS_ADAPTERS_H

#include "ir/bundle.h"
#include "passes/passes.h"
#include "tools/compiler/sources.h"

typedef struct weft_tool_adapter weft_tool_adapter;

typedef struct weft_tool_adapters {
    const weft_tool_adapter *at;
    size_t n;
    const weft_adapted_model *model; /* for weft_pass_options */
    size_t n_model;
} weft_tool_adapters;

/* Reads the adapters that the set names. INPUT: a folder is none, or two of a model have one name.
 */
WEFT_MUST_USE weft_err weft_tool_load_adapters(const weft_tool_sources *sources, weft_arena *arena,
                                               weft_diag *diag, weft_tool_adapters *out);
/* Adds them to the bundle whose programs were compiled with `model`. */
WEFT_MUST_USE weft_err weft_tool_add_adapters(const weft_tool_adapters *adapters, weft_arena *arena,
                                              weft_diag *diag, weft_bundle *bundle);
/* The folder of adapter i; NULL behind the last. */
const char *weft_tool_adapter_folder(const weft_tool_adapters *adapters, size_t i);

#endif
