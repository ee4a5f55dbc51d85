/* What a session's memory is made of, and which bytes of it a run really writes. */
#include "runtime/session_int.h"

#include <stdlib.h>
#include <string.h>

enum { FILL_A = 0x5a, FILL_B = 0xa5 };

void weft_session_get_memory(const weft_session *session, weft_session_memory *out)
{
    const weft_engine *e = session->engine;
    *out = (weft_session_memory){0};
    if (session->now)
        *out = (weft_session_memory){.planned = session->now->planned,
                                     .arena_bytes = session->now->arena_bytes,
                                     .total_bytes = session->now->bytes};
    if (e->driver->packed_bytes)
        out->packed_bytes = e->driver->packed_bytes(session->engine);
}

/* One run over memory full of `fill`; marks what has another value afterwards. */
static weft_err run_over(weft_session *s, const weft_tensor *in, uint32_t n_in, weft_diag *diag,
                         int fill, weft_tensor *out, uint8_t *written, uint64_t n)
{
    memset(s->memory->at, fill, s->memory->bytes);
    WEFT_TRY(weft_session_run(s, in, n_in, diag, out, s->program->n_output));
    const uint8_t *at = s->memory->at;
    for (uint64_t i = 0; i < n; i++)
        written[i] |= at[i] != fill;
    return WEFT_ERR_OK;
}

weft_err weft_session_measure_memory(weft_session *session, const weft_tensor *in, uint32_t n_in,
                                     weft_diag *diag, weft_session_memory *out)
{
    weft_session *s = session;
    uint8_t *written = NULL;
    if (s->engine->driver->own)
        return weft_diag_error(diag, WEFT_ERR_UNSUP, (weft_where){.item = s->program->name},
                               "what a run writes is measured on CPUs");
    weft_tensor *result = calloc((size_t)s->program->n_output + 1, sizeof *result);
    if (!result)
        return WEFT_ERR_NOMEM;
    weft_err err = weft_session_run(s, in, n_in, diag, result, s->program->n_output);
    if (err == WEFT_ERR_OK) {
        weft_session_get_memory(s, out);
        written = calloc((size_t)out->arena_bytes + 1, 1);
        err = written ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
    }
    if (err == WEFT_ERR_OK)
        err = run_over(s, in, n_in, diag, FILL_A, result, written, out->arena_bytes);
    if (err == WEFT_ERR_OK)
        err = run_over(s, in, n_in, diag, FILL_B, result, written, out->arena_bytes);
    for (uint64_t i = 0; err == WEFT_ERR_OK && i < out->arena_bytes; i++) {
        out->touched_bytes += written[i];
        out->high_bytes = written[i] ? i + 1 : out->high_bytes;
    }
    free(written);
    free(result);
    return err;
}
