/* Binding a specialisation: its values and launches get addresses in the session's memory, which
 * grows if it is too small. */
#include "runtime/session/session_int.h"

static void *address(weft_session *s, const weft_specialisation *spec, uint32_t v)
{
    const weft_device_ops *ops = s->engine->driver->device_ops;
    const weft_specialisation_value *root = &spec->value[spec->value[v].root];
    if (root->place == WEFT_PLACE_ARENA)
        return (char *)s->memory->at + root->offset + spec->value[v].shift;
    if (ops && root->place == WEFT_PLACE_INPUT)
        return (char *)s->memory->at + spec->input_offset + spec->input_at[root->input] +
               spec->value[v].shift;
    if (ops && root->place == WEFT_PLACE_WEIGHT)
        return (char *)ops->weight(s->engine, root->slot.weight) + spec->value[v].shift;
    return root->place == WEFT_PLACE_WEIGHT ? root->slot.tensor.data : NULL;
}

/* A device's driver has already reported the error; add what the memory was for. */
static void explain_memory(weft_session *s, weft_err err, uint64_t bytes, weft_diag *diag)
{
    const weft_device_ops *ops = s->engine->driver->device_ops;
    const weft_where where = {.item = s->program->name};
    if (!ops)
        (void)weft_diag_error(diag, err, where, "no memory for %llu bytes of activations",
                              (unsigned long long)bytes);
    if (ops && err == WEFT_ERR_NOMEM) {
        weft_diag_note(diag, where, "activations take %llu bytes", (unsigned long long)bytes);
        ops->note_memory(s->engine, diag);
    }
}

/* Memory that has to grow again grows by a quarter at least, if the limit allows: sizes that change
 * from run to run, as the past of a decoder, must not get new pages each time. */
static uint64_t ask_for(uint64_t old, uint64_t bytes)
{
    return old && bytes < old + old / 4 ? old + old / 4 : bytes;
}

weft_err weft_session__grow(weft_session *s, weft_memory *memory, uint64_t bytes, weft_diag *diag)
{
    weft_engine *e = s->engine;
    uint64_t most = e->driver->device_ops ? bytes : ask_for(memory->bytes, bytes);
    weft_engine__release(e, memory);
    if (most > bytes && weft_engine__take(e, most, NULL) == WEFT_ERR_OK)
        bytes = most;
    else
        WEFT_TRY(weft_engine__take(e, bytes, diag));
    weft_err err = e->driver->alloc(e, bytes, diag, &memory->at);
    if (err != WEFT_ERR_OK) {
        weft_engine__give(e, bytes);
        explain_memory(s, err, bytes, diag);
        return err;
    }
    memory->bytes = bytes;
    return WEFT_ERR_OK;
}

weft_err weft_specialisation__bind(weft_session *s, weft_specialisation *spec, weft_diag *diag)
{
    if (spec->bytes > s->memory->bytes || !s->memory->at)
        WEFT_TRY(
            weft_session__grow(s, s->memory, spec->bytes ? spec->bytes : WEFT_ARENA_ALIGN, diag));
    if (spec->base == s->memory->at)
        return WEFT_ERR_OK;
    spec->base = s->memory->at;
    for (uint32_t v = 1; v <= s->program->n_value; v++)
        spec->value[v].slot.tensor.data = address(s, spec, v);
    for (uint32_t i = 0; i < s->program->n_launch; i++) {
        const weft_bundle_launch *l = &s->program->launch[i];
        weft_specialisation_launch *to = &spec->launch[i];
        if (!to->arg)
            continue;
        for (uint32_t k = 0; k < l->n_in; k++)
            to->arg[k] = l->in[k] ? spec->value[l->in[k]].slot.tensor.data : NULL;
        for (uint32_t k = 0; k < l->n_out; k++)
            to->arg[l->n_in + k] = l->out[k] ? spec->value[l->out[k]].slot.tensor.data : NULL;
        to->arg[l->n_in + l->n_out] = (char *)s->memory->at + to->scratch_offset;
    }
    return WEFT_ERR_OK;
}
