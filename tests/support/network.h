/* Networks of tests/regress/make_networks.py with the kernels that a framework runs. Errors are
 * printed and end the program. */
#ifndef WEFT_TESTS_SUPPORT_NETWORK_H
#define WEFT_TESTS_SUPPORT_NETWORK_H

#include "base/file.h"
#include "estimator/estimator.h"
#include "passes/passes.h"

#include <stdio.h>
#include <stdlib.h>

static inline void network_give_up(const weft_diag *diag, const char *name)
{
    fprintf(stderr, "%s: %s\n", name,
            weft_diag_count(diag) > 0 ? weft_diag_at(diag, 0)->text : "no message");
    exit(1);
}

/* Parses a network, runs the pipeline and plans these batch sizes. The caller owns the module. */
static inline weft_module *network_load_for(const char *name, const char *pipeline,
                                            const int64_t *batch, size_t n_batch)
{
    char path[1024];
    size_t n = 0;
    weft_file file;
    weft_module *m = NULL;
    weft_diag *diag = weft_diag_create();
    weft_run_options options = {.pass = {.batch = batch, .n_batch = n_batch},
                                .verify = WEFT_VERIFY_END};
    const weft_pass *const *pass = weft_pipeline(pipeline, &n);
    snprintf(path, sizeof path, "%s/%s.wir", WEFT_NETWORKS, name);
    if (weft_file_map(path, diag, &file) != WEFT_ERR_OK ||
        weft_module_parse((const char *)file.at, file.len, name, NULL, diag, &m) != WEFT_ERR_OK ||
        weft_passes_run(m, pass, n, &options, diag) != WEFT_ERR_OK)
        network_give_up(diag, name);
    weft_file_unmap(&file);
    weft_diag_destroy(diag);
    return m;
}

static inline weft_module *network_load(const char *name, const char *pipeline)
{
    return network_load_for(name, pipeline, NULL, 0);
}

#endif
