/* Memory of a session: its size, and which bytes of the arena a run writes. */
#include "runtime/session/session_int.h"

#include <stdlib.h>
#include <string.h>

enum { FILL_A = 0x5a, FILL_B = 0xa5 };

void weft_session_get_memory(const weft_session *session, weft_session_memory *out)
{
    const weft_engine *e = session->engine;
    *out = (weft_session_memory){0};
    if (session->now)
        *out =
            (weft_session_memory){.rows = session->slices.last,
                                  .planned = session->now->planned,
                                  .arena_bytes = session->now->arena_bytes,
                                  .total_bytes = session->now->bytes + weft_nested__bytes(session) +
                                                 session->slices.memory.bytes};
    if (e->driver->packed_bytes)
        out->packed_bytes = e->driver->packed_bytes(session->engine);
}

/* -- What a run writes ---------------------------------------------------------------------- */

/* Copies between `host` and the device's memory, and waits. */
static weft_err move(weft_session *s, uint8_t *host, uint64_t n, bool in, weft_diag *diag)
{
    const weft_driver *d = s->engine->driver;
    if (d->begin)
        d->begin(s->engine);
    weft_err err = in ? d->device_ops->copy_in(s->engine, s->queue, s->memory->at, host, n, diag)
                      : d->device_ops->copy_out(s->engine, s->queue, host, s->memory->at, n, diag);
    if (err == WEFT_ERR_OK)
        err = d->device_ops->wait(s->engine, s->queue, diag);
    if (d->end)
        d->end(s->engine);
    return err;
}

/* Runs the model over an arena filled with `fill` and marks the bytes that have another value
 * afterwards. `host`: the session's memory, or a buffer of its size when that memory is a device's.
 */
static weft_err run_over(weft_session *s, const weft_tensor *in, uint32_t n_in, weft_diag *diag,
                         int fill, uint8_t *host, weft_tensor *out, uint8_t *written, uint64_t n)
{
    bool on_device = s->engine->driver->device_ops != NULL;
    memset(host, fill, n);
    if (on_device && n)
        WEFT_TRY(move(s, host, n, true, diag));
    WEFT_TRY(weft_session_run(s, in, n_in, diag, out, s->program->n_output));
    if (on_device && n)
        WEFT_TRY(move(s, host, n, false, diag));
    for (uint64_t i = 0; i < n; i++)
        written[i] |= host[i] != fill;
    return WEFT_ERR_OK;
}

static weft_err measure(weft_session *s, const weft_tensor *in, uint32_t n_in, weft_diag *diag,
                        weft_tensor *result, weft_session_memory *out)
{
    const weft_device_ops *ops = s->engine->driver->device_ops;
    uint64_t n = out->arena_bytes;
    void *host = s->memory->at;
    uint8_t *written = calloc((size_t)n + 1, 1);
    weft_err err = written ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
    if (err == WEFT_ERR_OK && ops)
        err = ops->host_alloc(s->engine, n + 1, &host);
    if (err != WEFT_ERR_OK) {
        free(written);
        return err;
    }
    err = run_over(s, in, n_in, diag, FILL_A, host, result, written, n);
    if (err == WEFT_ERR_OK)
        err = run_over(s, in, n_in, diag, FILL_B, host, result, written, n);
    for (uint64_t i = 0; err == WEFT_ERR_OK && i < n; i++) {
        out->touched_bytes += written[i];
        out->high_bytes = written[i] ? i + 1 : out->high_bytes;
    }
    if (ops)
        ops->host_free(s->engine, host, n + 1);
    free(written);
    return err;
}

weft_err weft_session_measure_memory(weft_session *session, const weft_tensor *in, uint32_t n_in,
                                     weft_diag *diag, weft_session_memory *out)
{
    weft_session *s = session;
    weft_tensor *result = calloc((size_t)s->program->n_output + 1, sizeof *result);
    if (!result)
        return WEFT_ERR_NOMEM;
    weft_err err = weft_session_run(s, in, n_in, diag, result, s->program->n_output);
    if (err == WEFT_ERR_OK) {
        weft_session_get_memory(s, out);
        err = measure(s, in, n_in, diag, result, out);
    }
    free(result);
    return err;
}
