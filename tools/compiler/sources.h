/* Model files as modules: one file, or all models of a set. */
#ifndef WEFT_TOOLS_SOURCES_H
#define WEFT_TOOLS_SOURCES_H

#include "codegen/codegen.h"
#include "frontend/frontend.h"
#include "scheduler/scheduler.h"
#include "passes/passes.h"
#include "tools/common/tools.h"

/* Loads an ONNX file or a text IR file into a new module; the first bytes say which one it is. "-"
 * is standard input. */
WEFT_MUST_USE weft_err weft_tool_load_module(const char *path, weft_diag *diag, weft_module **out);

/* One module with the models of a set file or of files on the command line. */
typedef struct weft_tool_sources {
    weft_module *module;          /* owned */
    const char *set_file;         /* the set file, repository or text IR file; NULL: ONNX files */
    const weft_set *set;          /* NULL: not from a set file */
    const weft_set_model **model; /* indexed by graph; NULL: not from a set file */
    const char **with_heads;      /* names of models that run others as heads */
    size_t n_with_heads;
} weft_tool_sources;

/* Loads one set file (.yaml, .yml), one model repository (a folder), one text IR file, or ONNX
 * files. Names of models must differ. */
WEFT_MUST_USE weft_err weft_tool_load_sources(char *const *file, int n_file,
                                              const weft_import_options *import, weft_arena *arena,
                                              weft_diag *diag, weft_tool_sources *out);
/* Loads the same files again, to lower the models for another kind of device. UNSUP: standard
 * input. */
WEFT_MUST_USE weft_err weft_tool_load_again(char *const *file, int n_file,
                                            const weft_import_options *import, weft_arena *arena,
                                            weft_diag *diag, weft_tool_sources *out);

#endif
