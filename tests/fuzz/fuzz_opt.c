/* Text IR through the passes: a module that verifies stays valid after every pass. */
#include "ir/ir_int.h"
#include "passes/passes.h"

#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WEIGHTS_MAX_BYTES = 1 << 20 };

static weft_err run_passes(weft_module *m, weft_diag *diag)
{
    size_t n;
    const weft_pass *const *pass = weft_pipeline("cpu", &n);
    weft_merge_log log = {.arena = weft_arena_create(0), .want_pairs = true};
    weft_run_options options = {.pass = {.merge = WEFT_MERGE_AUTO,
                                         .assignment = &weft_assignment_igraph,
                                         .merge_tolerance = 1e-6},
                                .verify = WEFT_VERIFY_EACH};
    options.pass.merge_log = log.arena ? &log : NULL;
    weft_err err = weft_passes_run(m, pass, n, &options, diag);
    weft_arena_destroy(log.arena);
    return err;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_module *m = NULL;
    weft_diag *diag = weft_diag_create();
    if (weft_module__parse((const char *)data, size, "fuzz.wir", NULL, WEIGHTS_MAX_BYTES, diag,
                           &m) == WEFT_ERR_OK &&
        weft_module_verify(m, diag) == WEFT_ERR_OK && weft_module_stage(m) == WEFT_STAGE_GRAPH) {
        weft_err err = run_passes(m, diag);
        if (err == WEFT_ERR_BUG) {
            for (size_t i = 0; i < weft_diag_count(diag); i++)
                fprintf(stderr, "%s\n", weft_diag_at(diag, i)->text);
            abort();
        }
    }
    weft_module_destroy(m);
    weft_diag_destroy(diag);
    return 0;
}
