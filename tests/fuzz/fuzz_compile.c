/* ONNX files through the compiler and the CPU driver: a file that is imported is compiled or
 * refused, and its bundle runs or is refused. No pass may leave a module that does not verify, and
 * no bundle that we wrote may be damaged.
 *
 * Corpus: onnx */
#include "codegen/codegen.h"
#include "frontend/frontend.h"
#include "passes/passes.h"
#include "tests/support/bundle_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MODULE_MAX_BYTES = 256 << 20, WRITTEN_MAX_BYTES = 16 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fail(const weft_diag *diag)
{
    for (size_t i = 0; i < weft_diag_count(diag); i++)
        fprintf(stderr, "%s\n", weft_diag_at(diag, i)->text);
    abort();
}

static weft_err compile(weft_module *m, weft_arena *arena, const char *path, weft_diag *diag)
{
    static const int64_t batch[] = {1, 3};
    size_t n;
    const weft_pass *const *pass = weft_pipeline("cpu", &n);
    const weft_run_options options = {.pass = {.batch = batch, .n_batch = 2},
                                      .verify = WEFT_VERIFY_EACH};
    weft_bundle bundle = {0};
    WEFT_TRY(weft_passes_run(m, pass, n, &options, diag));
    WEFT_TRY(weft_codegen_bundle(m, weft_backend_find("cpu"), NULL, NULL, arena, diag, &bundle));
    uint64_t bytes = 0;
    for (uint32_t w = 0; w < bundle.n_weight; w++)
        bytes += bundle.weight[w].bytes;
    if (bytes > WRITTEN_MAX_BYTES)
        return WEFT_ERR_NOMEM;
    return weft_bundle_write(&bundle, path, diag);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *folder = getenv("TMPDIR");
    char path[256];
    weft_module *m = weft_module_create(MODULE_MAX_BYTES);
    weft_arena *arena = weft_arena_create(MODULE_MAX_BYTES);
    weft_diag *diag = weft_diag_create();
    weft_graph *g = NULL;
    if (!m || !arena || !diag)
        abort();
    snprintf(path, sizeof path, "%s/fuzz-compile-%ld", folder ? folder : "/tmp", (long)getpid());
    weft_err err = weft_import_onnx_bytes(m, data, size, NULL, "fuzz.onnx", NULL, diag, &g);
    if (err == WEFT_ERR_OK)
        err = compile(m, arena, path, diag);
    if (err == WEFT_ERR_BUG || err == WEFT_ERR_IO ||
        (err != WEFT_ERR_OK && weft_diag_count(diag) == 0))
        fail(diag);
    weft_module_destroy(m);
    weft_arena_destroy(arena);
    if (err == WEFT_ERR_OK) {
        weft_bundle *b = NULL;
        if (weft_bundle_open(path, diag, &b) != WEFT_ERR_OK)
            fail(diag);
        weft_bundle_close(b);
        bundle_run_file(path, data, size < 64 ? size : 64);
        unlink(path);
    }
    weft_diag_destroy(diag);
    return 0;
}
