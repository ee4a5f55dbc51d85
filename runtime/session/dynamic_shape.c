/* Launches of dynamic shape: the sizes of their results depend on data.
 *
 * Such a launch is handled during the run. Inference gets the data of all its operands, the results
 * are allocated on the heap until the session's next run, and the kernel is prepared, run once and
 * destroyed. */
#include "base/num.h"
#include "runtime/session/session_int.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER = 64 };

void weft_dynamic_shape__reset(weft_session *s)
{
    while (s->block) {
        weft_dynamic_shape_block *next = s->block->next;
        weft_engine__give(s->engine, s->block->bytes);
        free(s->block);
        s->block = next;
    }
}

weft_err weft_dynamic_shape__alloc(weft_session *s, uint64_t bytes, weft_diag *diag, void **out)
{
    uint64_t total;
    if (!weft_size_add(bytes, 2 * HEADER, &total) || total > SIZE_MAX / 2)
        return WEFT_ERR_NOMEM;
    total = weft_align_up(total, HEADER);
    WEFT_TRY(weft_engine__take(s->engine, total, diag));
    weft_dynamic_shape_block *block = aligned_alloc(HEADER, total);
    if (!block) {
        weft_engine__give(s->engine, total);
        return WEFT_ERR_NOMEM;
    }
    block->next = s->block;
    block->bytes = total;
    s->block = block;
    *out = (char *)block + HEADER;
    return WEFT_ERR_OK;
}

/* The current slot of value v. */
static weft_slot slot_of(weft_session *s, const weft_specialisation *spec, uint32_t v)
{
    return spec->value[v].place == WEFT_PLACE_DYNAMIC ? s->dynamic[v] : spec->value[v].slot;
}

/* Sets the data-dependent symbols of a type from its dims, which are known now. */
static void bind_symbols(weft_session *s, const weft_ttype *type, const int64_t *dim)
{
    for (uint32_t d = 0; d < type->rank; d++) {
        uint32_t i = weft_dim_is_const(type->dim[d])
                         ? UINT32_MAX
                         : weft_dim_as_symbol(s->program->dims, type->dim[d]);
        if (i < s->n_symbol && s->symbol[i] < 0)
            s->symbol[i] = dim[d];
    }
}

/* A size that the inputs alone determine must be the one that the compiler derived. */
static bool is_derived(const weft_session *s, weft_dim declared, int64_t size)
{
    int64_t want;
    return !weft_dim_eval(s->program->dims, declared, s->symbol, s->n_symbol, &want) ||
           want == size;
}

/* Sets the dims of value v in this run and allocates its memory. */
static weft_err place_result(weft_session *s, uint32_t v, const weft_tensor *type, void **data,
                             weft_diag *diag)
{
    const weft_ttype *declared = &s->program->value[v - 1].type;
    weft_slot *slot = &s->dynamic[v];
    uint64_t bytes;
    memset(slot, 0, sizeof *slot);
    slot->present = true;
    slot->layout = declared->layout;
    slot->tensor = *type;
    bool sound = type->dtype == declared->dtype && type->rank == declared->rank;
    for (int32_t d = 0; sound && d < type->rank; d++)
        sound = type->dim[d] >= 0 && is_derived(s, declared->dim[d], type->dim[d]);
    if (!sound || weft_numel(type->dim, type->rank) < 0 ||
        !weft_layout_bytes(declared->dtype, declared->layout, type->dim, type->rank, &bytes))
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = s->program->name},
                               "the type of a result differs from the type in the bundle");
    WEFT_TRY(weft_dynamic_shape__alloc(s, bytes, diag, &slot->tensor.data));
    bind_symbols(s, declared, slot->tensor.dim);
    *data = slot->tensor.data;
    return WEFT_ERR_OK;
}

static weft_err place_results(weft_session *s, const weft_bundle_launch *l, const weft_ttype *type,
                              weft_diag *diag)
{
    for (uint32_t k = 0; k < l->n_out; k++) {
        if (!l->out[k])
            continue;
        weft_tensor t = {.dtype = (weft_dtype)type[k].dtype, .rank = type[k].rank};
        for (uint32_t d = 0; d < type[k].rank; d++)
            t.dim[d] = weft_dim_is_const(type[k].dim[d]) ? type[k].dim[d] : -1;
        void *data;
        WEFT_TRY(place_result(s, l->out[k], &t, &data, diag));
    }
    return WEFT_ERR_OK;
}

static weft_err run_kernel(weft_session *s, weft_prep *prep, const weft_slot *slot, weft_diag *diag)
{
    atomic_store(&s->engine->has_dynamic, true);
    uint32_t n = prep->n_in + prep->n_out;
    bool empty = true;
    for (uint32_t k = 0; k < prep->n_out; k++)
        if (prep->out[k].present && weft_tensor_numel(&prep->out[k].tensor) > 0)
            empty = false;
    if (empty)
        return WEFT_ERR_OK;
    void **arg = weft_arena_array(s->scratch, n + 1, sizeof *arg);
    for (uint32_t k = 0; k < n; k++)
        arg[k] = slot[k].tensor.data;
    WEFT_TRY(s->engine->driver->prepare(prep));
    weft_err err = WEFT_ERR_OK;
    if (prep->scratch_bytes)
        err = weft_dynamic_shape__alloc(s, prep->scratch_bytes, diag, &arg[n]);
    if (err == WEFT_ERR_OK) {
        err = prep->run(prep->state, arg);
        if (err != WEFT_ERR_OK)
            err = weft_launch__fail(prep->op, prep->where, err, diag);
    }
    if (prep->destroy)
        prep->destroy(prep->state);
    else
        free(prep->state);
    return err;
}

static weft_err run_dynamic(weft_session *s, weft_specialisation *spec, uint32_t launch,
                            weft_diag *diag)
{
    const weft_bundle_launch *l = &s->program->launch[launch];
    weft_attrs attrs;
    uint32_t n = l->n_in + l->n_out;
    weft_slot *slot = weft_arena_array(s->scratch, n, sizeof *slot);
    weft_operand *in = weft_arena_array(s->scratch, l->n_in, sizeof *in);
    weft_ttype *type = weft_arena_array(s->scratch, l->n_out, sizeof *type);
    const weft_dim **content = weft_arena_array(s->scratch, l->n_out, sizeof *content);

    WEFT_TRY(
        weft_launch__bind_attrs(s->program, l, s->symbol, s->n_symbol, s->scratch, diag, &attrs));
    for (uint32_t k = 0; k < l->n_in; k++) {
        if (l->in[k])
            slot[k] = slot_of(s, spec, l->in[k]);
        if (slot[k].weight)
            WEFT_TRY(weft_engine__check_weight(s->engine, slot[k].weight, diag));
        weft_launch__to_operand(&slot[k], &in[k]);
    }
    if (weft_op_get(l->op)->traits & WEFT_T_BODY)
        return weft_nested__run(s, launch, attrs, slot, place_result);
    weft_infer_ctx cx = {.op = weft_op_get(l->op),
                         .attrs = attrs,
                         .pool = weft_dimpool_create(s->scratch),
                         .arena = s->scratch,
                         .in = in,
                         .n_in = l->n_in,
                         .out = type,
                         .out_content = content,
                         .n_out = l->n_out,
                         .diag = diag,
                         .where = {.item = l->item}};
    WEFT_TRY(weft_op_infer(&cx));
    WEFT_TRY(place_results(s, l, type, diag));
    for (uint32_t k = 0; k < l->n_out; k++)
        if (l->out[k])
            slot[l->n_in + k] = s->dynamic[l->out[k]];
    weft_prep prep = {.engine = s->engine,
                      .op = l->op,
                      .attrs = attrs,
                      .in = slot,
                      .n_in = l->n_in,
                      .out = slot + l->n_in,
                      .n_out = l->n_out,
                      .diag = diag,
                      .where = {.item = l->item},
                      .program = s->program,
                      .launch = l,
                      .symbol = s->symbol,
                      .n_symbol = s->n_symbol,
                      .keep_nan = s->keep_nan,
                      .adapters = &s->adapter_rows};
    return run_kernel(s, &prep, slot, diag);
}

weft_err weft_dynamic_shape__run(weft_session *s, weft_specialisation *spec, uint32_t launch,
                                 weft_diag *diag)
{
    jmp_buf env;
    weft_arena_mark mark = weft_arena_get_mark(s->scratch);
    if (setjmp(env)) {
        weft_arena_guard(s->scratch, NULL);
        weft_arena_reset(s->scratch, mark);
        return WEFT_ERR_NOMEM;
    }
    weft_arena_guard(s->scratch, &env);
    weft_err err = run_dynamic(s, spec, launch, diag);
    weft_arena_guard(s->scratch, NULL);
    weft_arena_reset(s->scratch, mark);
    return err;
}
