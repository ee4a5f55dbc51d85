/* Models compiled for the CPU into a bundle, and the memory that a process has taken. */
#ifndef WEFT_TESTS_SUPPORT_COMPILED_H
#define WEFT_TESTS_SUPPORT_COMPILED_H

#include "codegen/codegen.h"
#include "frontend/frontend.h"
#include "passes/passes.h"

#include <stdio.h>

/* The caller owns `m`; *out is valid as long as `m` and the arena. */
static inline weft_err compile_module(weft_module *m, const weft_run_options *run, const char *path,
                                      weft_arena *arena, weft_diag *diag, weft_bundle *out)
{
    size_t n = 0;
    const weft_pass *const *pass = weft_pipeline("cpu", &n);
    WEFT_TRY(weft_passes_run(m, pass, n, run, diag));
    WEFT_TRY(weft_codegen_bundle(m, weft_backend_find("cpu"), NULL, NULL, arena, diag, out));
    return weft_bundle_write(out, path, diag);
}

static inline weft_err import_files(weft_module *m, char *const *file, int n, weft_diag *diag)
{
    weft_graph *g = NULL;
    for (int i = 0; i < n; i++)
        WEFT_TRY(weft_import_onnx(m, file[i], &(weft_import_options){0}, diag, &g));
    return WEFT_ERR_OK;
}

/* Compiles the ONNX file `model` as graph "m" into the bundle file `path`. */
static inline weft_err compile_file(const char *model, const char *path,
                                    const weft_run_options *run, weft_arena *arena, weft_diag *diag)
{
    weft_module *m = weft_module_create(0);
    weft_graph *g = NULL;
    weft_bundle bundle;
    const weft_import_options import = {.graph_name = "m"};
    weft_err err = m ? weft_import_onnx(m, model, &import, diag, &g) : WEFT_ERR_NOMEM;
    if (err == WEFT_ERR_OK)
        err = compile_module(m, run, path, arena, diag, &bundle);
    weft_module_destroy(m);
    return err;
}

static inline uint64_t weight_bytes(const weft_bundle *b)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < b->n_weight; i++)
        bytes += b->weight[i].bytes;
    return bytes;
}

/* Peak resident memory of this process in kB since it was executed; -1: unknown. */
static inline long peak_kb(void)
{
    char line[256];
    long kb = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f) && sscanf(line, "VmHWM: %ld kB", &kb) != 1)
        ;
    if (f)
        fclose(f);
    return kb;
}

static inline void print_messages(const weft_diag *diag)
{
    for (size_t i = 0; i < weft_diag_count(diag); i++) {
        char text[1024];
        weft_diag_format(weft_diag_at(diag, i), text, sizeof text);
        fprintf(stderr, "%s\n", text);
    }
}

#endif
