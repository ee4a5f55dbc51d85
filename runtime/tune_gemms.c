/* Tuning of GEMM algorithms: opens a session for each program and warms each bucket with an engine
 * that has a tuner, so that preparing a GEMM measures cuBLASLt's candidates (drv_cuda_algo.c). Only
 * GEMMs are run. */
#include "runtime/driver_int.h"

#include <stdlib.h>
#include <string.h>

static weft_err tune_program(weft_engine *engine, const weft_bundle_program *p, weft_diag *diag)
{
    weft_session *session = NULL;
    weft_err err = weft_session_open(engine, p->name, diag, &session);
    for (uint32_t i = 0; err == WEFT_ERR_OK && i < p->n_bucket; i++)
        err = weft_session_warm(session, i, diag);
    weft_session_close(session);
    return err;
}

static void put_out(const weft_tuner *t, weft_arena *arena, weft_bundle_tuning *out)
{
    weft_bundle_algo *algo = weft_arena_array(arena, t->n, sizeof *algo);
    if (t->n)
        memcpy(algo, t->algo, t->n * sizeof *algo);
    *out = (weft_bundle_tuning){.device = weft_arena_strdup(arena, t->device),
                                .sms = t->sms,
                                .version = t->version,
                                .algo = algo,
                                .n_algo = t->n};
}

weft_err weft_tune_gemms(weft_bundle *bundle, const weft_engine_options *options, weft_arena *arena,
                         weft_diag *diag, weft_bundle_tuning *out)
{
    weft_tuner tuner = {.n = 0};
    weft_engine *engine = NULL;
    weft_err err = weft_engine_open_bundle(bundle, options, diag, &engine);
    if (err == WEFT_ERR_OK)
        engine->tuner = &tuner;
    for (uint32_t i = 0; err == WEFT_ERR_OK && i < bundle->n_program + bundle->n_joint; i++)
        err = tune_program(engine, &bundle->program[i], diag);
    weft_engine_close(engine);
    if (err == WEFT_ERR_OK)
        put_out(&tuner, arena, out);
    free(tuner.algo);
    return err;
}
