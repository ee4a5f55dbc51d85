/* Predicts the resident memory of a process that runs one model, without running it: a session is
 * prepared up to its kernels and offsets.
 *
 * The peak occurs either while a large weight is packed (its file pages are resident beside the
 * weights packed so far) or while the model runs. In both cases the program itself and the inputs,
 * which are loaded first, are resident:
 *
 *   peak = process + inputs + max(start, file + packed + arena + scratch) */
#include "runtime/session/session_int.h"

#include <stdlib.h>
#include <string.h>

/* Resident memory of `weft run` besides the program and the counted memory: library_bytes for
 * oneDNN and the heap, conv_code_bytes for the code generated for each convolution and, unless its
 * weights are transformed for Winograd, for packing them; other kernels have no measurable effect.
 * Both were fitted on transformers and networks of 20 to 120 convolutions, and hold for bundles
 * whose small weights stand together: each small weight among large ones keeps 60 kB of file pages
 * resident. */
static const uint64_t library_bytes = 3384000, conv_code_bytes = 42000;

/* Copies of the ports of `slices` slices: whole inputs are the caller's, whole outputs are gathered
 * from the slices. */
static uint64_t port_bytes(const weft_specialisation *spec, const weft_bundle_port *port,
                           uint32_t n, double slices)
{
    double bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        bytes += (double)spec->value[port[i].value].bytes * slices;
    return (uint64_t)bytes;
}

/* `slices`: batch divided by the rows that the specialisation is for. */
static void add_up(const weft_session *s, const weft_specialisation *spec, double slices,
                   const weft_weight_count *count, uint64_t program_bytes, weft_memory_plan *out)
{
    const weft_bundle_program *p = s->program;
    uint64_t gathered = slices > 1 ? port_bytes(spec, p->output, p->n_output, slices) : 0;
    uint64_t beside = weft_nested__bytes(s) + gathered;
    *out = (weft_memory_plan){.arena_bytes = spec->arena_bytes,
                              .scratch_bytes = spec->bytes - spec->arena_bytes + beside,
                              .packed_bytes = count->packed_bytes,
                              .file_bytes = count->file_bytes,
                              .start_bytes = count->peak_bytes};
    out->input_bytes = port_bytes(spec, p->input, p->n_input, slices);
    for (uint32_t i = 0; i < p->n_launch; i++) {
        out->n_kernel += spec->launch[i].run != NULL;
        out->n_conv += spec->launch[i].run && p->launch[i].op == WEFT_OP_CONV;
    }
    out->process_bytes = program_bytes + library_bytes + conv_code_bytes * out->n_conv;
    uint64_t running = out->file_bytes + out->packed_bytes + spec->bytes + beside;
    out->peak_bytes = out->process_bytes + out->input_bytes +
                      (running > out->start_bytes ? running : out->start_bytes);
}

weft_err weft_memory_plan_make(weft_bundle *bundle, const char *model, const int64_t *symbol,
                               const weft_engine_options *options, uint64_t program_bytes,
                               weft_diag *diag, weft_memory_plan *out)
{
    weft_weight_count count = {0};
    weft_engine *engine = NULL;
    weft_session *session = NULL;
    weft_specialisation *spec = NULL;
    double slices = 1;
    count.in_file = calloc((size_t)bundle->n_weight + 1, sizeof *count.in_file);
    if (!count.in_file)
        return WEFT_ERR_NOMEM;
    weft_err err = weft_engine_open_bundle(bundle, options, diag, &engine);
    if (err == WEFT_ERR_OK) {
        engine->count = &count;
        err = weft_session_open(engine, model, diag, &session);
    }
    if (err == WEFT_ERR_OK) {
        if (engine->driver->begin)
            engine->driver->begin(engine);
        if (session->program->n_symbol)
            memcpy(session->symbol, symbol, session->program->n_symbol * sizeof *symbol);
        int64_t rows = weft_slicing__rows(session, session->symbol);
        if (rows) {
            slices = (double)symbol[session->program->batch_symbol] / (double)rows;
            session->symbol[session->program->batch_symbol] = rows;
        }
        err = weft_specialisation__make(session, session->symbol, diag, &spec);
        if (err == WEFT_ERR_OK)
            err = weft_nested__ready(session, spec);
        if (engine->driver->end)
            engine->driver->end(engine);
    }
    if (err == WEFT_ERR_OK)
        add_up(session, spec, slices, &count, program_bytes, out);
    if (session)
        weft_specialisation__destroy(session, spec);
    weft_session_close(session);
    weft_engine_close(engine);
    free(count.in_file);
    return err;
}
