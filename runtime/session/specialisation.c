/* Specialisations: a program at concrete values of its symbols.
 *
 * Values get dims and a place, launches a kernel, and blocks of memory (results and scratch memory)
 * an offset. The offsets are those of the bundle if it has a bucket of this size and its offsets
 * are valid, otherwise they are packed here. The bundle is untrusted: all sizes are computed again.
 */
#include "base/num.h"
#include "runtime/session/session_int.h"

#include <stdlib.h>
#include <string.h>

typedef struct build {
    weft_session *s;
    const weft_bundle_program *p;
    weft_specialisation *spec;
    weft_diag *diag;
    weft_arena *scratch;     /* until the specialisation is made */
    uint32_t *first, *last;  /* [v]: live range of a root, in launches */
    weft_place_level *level; /* [launch]; for devices with memory of their own */
} build;

static weft_where launch_where(const weft_bundle_launch *l)
{
    return (weft_where){.item = l->item};
}

/* -- Values --------------------------------------------------------------------------------- */

static weft_err place_value(build *b, uint32_t v)
{
    const weft_bundle_value *from = &b->p->value[v - 1];
    weft_specialisation_value *to = &b->spec->value[v];
    weft_tensor *t = &to->slot.tensor;

    to->root = v;
    to->slot.present = true;
    to->slot.layout = from->type.layout;
    to->slot.weight = from->weight;
    t->dtype = from->type.dtype;
    t->rank = from->type.rank;
    if (from->type.rank > WEFT_RANK_MAX || from->type.layout >= WEFT_LAYOUT_COUNT ||
        weft_dtype_size(from->type.dtype) == 0 ||
        (from->type.layout != WEFT_LAYOUT_PLAIN && from->type.rank < 2))
        return weft_diag_error(b->diag, WEFT_ERR_INPUT, (weft_where){0}, "value %u has no type", v);
    for (uint32_t d = 0; d < from->type.rank; d++) {
        weft_dim dim = from->type.dim[d];
        if (!weft_dim_is_const(dim) && weft_dim_is_data(b->p->dims, dim)) {
            to->place = WEFT_PLACE_DYNAMIC;
            return WEFT_ERR_OK;
        }
        if (!weft_dim_eval(b->p->dims, dim, b->spec->symbol, b->p->n_symbol, &t->dim[d]) ||
            t->dim[d] < 0)
            return weft_diag_error(b->diag, WEFT_ERR_INPUT, (weft_where){0},
                                   "dimension %u of value %u has no size for these inputs", d, v);
    }
    if (weft_numel(t->dim, t->rank) < 0 ||
        !weft_layout_bytes(t->dtype, to->slot.layout, t->dim, t->rank, &to->bytes))
        return weft_diag_error(b->diag, WEFT_ERR_INPUT, (weft_where){0}, "value %u is too large",
                               v);
    if (!from->weight)
        return WEFT_ERR_OK;
    to->place = WEFT_PLACE_WEIGHT;
    const weft_bundle *bundle = b->s->engine->bundle;
    if (from->weight > bundle->n_weight || bundle->weight[from->weight - 1].bytes < to->bytes)
        return weft_diag_error(b->diag, WEFT_ERR_INPUT, (weft_where){0},
                               "value %u is larger than its weight", v);
    t->data = (void *)(uintptr_t)bundle->weight[from->weight - 1].data;
    return WEFT_ERR_OK;
}

static bool attrs_are_dynamic(const build *b, weft_attrs attrs)
{
    for (uint32_t i = 0; i < attrs.n; i++)
        for (uint32_t k = 0; attrs.at[i].kind == WEFT_KIND_DIMS && k < attrs.at[i].n; k++)
            if (!weft_dim_is_const(attrs.at[i].u.dims[k]) &&
                weft_dim_is_data(b->p->dims, attrs.at[i].u.dims[k]))
                return true;
    return false;
}

static weft_err check_launch(build *b, const weft_bundle_launch *l)
{
    bool sound = l->op > WEFT_OP_NONE && l->op < WEFT_OP_COUNT && l->n_in + l->n_out < 1u << 16;
    const weft_op *op = sound ? weft_op_get(l->op) : NULL;
    sound = sound && l->n_in >= op->in_min && l->n_out >= op->out_min &&
            (op->in_max == WEFT_VARIADIC || l->n_in <= op->in_max) &&
            (op->out_max == WEFT_VARIADIC || l->n_out <= op->out_max);
    for (uint32_t k = 0; sound && k < l->n_in; k++)
        sound = l->in[k] <= b->p->n_value && (l->in[k] || k >= op->in_min);
    for (uint32_t k = 0; sound && k < l->n_out; k++)
        sound = l->out[k] <= b->p->n_value && (l->out[k] || k >= op->out_min);
    if (!sound)
        return weft_diag_error(
            b->diag, WEFT_ERR_INPUT, launch_where(l),
            "a launch is not valid: its operator, or the number or index of an operand");
    return WEFT_ERR_OK;
}

/* Describes launch i for weft_place_values. Its operands must be computed before it, and its
 * results once. */
static weft_err describe_launch(build *b, uint32_t i, bool *made, weft_place_launch *out)
{
    const weft_bundle_launch *l = &b->p->launch[i];
    WEFT_TRY(check_launch(b, l));
    for (uint32_t k = 0; k < l->n_in; k++)
        if (l->in[k] && !made[l->in[k]])
            return weft_diag_error(b->diag, WEFT_ERR_INPUT, launch_where(l),
                                   "operand %u is used before it is computed", k);
    for (uint32_t k = 0; k < l->n_out; k++) {
        if (l->out[k] && made[l->out[k]])
            return weft_diag_error(b->diag, WEFT_ERR_INPUT, launch_where(l),
                                   "result %u is computed twice", k);
        made[l->out[k]] = true;
    }
    *out = (weft_place_launch){.op = l->op,
                               .axis = weft_attrs_int(l->attrs, WEFT_ATTR_AXIS, 0),
                               .in = l->in,
                               .n_in = l->n_in,
                               .out = l->out,
                               .n_out = l->n_out,
                               .dynamic = attrs_are_dynamic(b, l->attrs)};
    weft_dim start;
    out->cut = !out->dynamic && weft_place_is_cut(l->op, l->attrs, l->n_in, &out->axis, &start) &&
               weft_dim_eval(b->p->dims, start, b->spec->symbol, b->p->n_symbol, &out->start);
    return WEFT_ERR_OK;
}

/* Assigns places by weft_place_values, as the memory planner of the compiler does. */
static void find_places(build *b, weft_place_launch *launch)
{
    const weft_bundle_program *p = b->p;
    weft_arena *arena = b->scratch;
    weft_place_value *place = weft_arena_array(arena, (size_t)p->n_value + 1, sizeof *place);
    uint32_t *output = weft_arena_array(arena, p->n_output, sizeof *output);
    for (uint32_t v = 1; v <= p->n_value; v++) {
        const weft_specialisation_value *from = &b->spec->value[v];
        place[v] = (weft_place_value){.place = from->place,
                                      .dtype = from->slot.tensor.dtype,
                                      .layout = from->slot.layout,
                                      .rank = from->slot.tensor.rank,
                                      .bytes = from->bytes};
        memcpy(place[v].dim, from->slot.tensor.dim, sizeof place[v].dim);
    }
    for (uint32_t i = 0; i < p->n_output; i++)
        output[i] = p->output[i].value;
    weft_place_values(place, p->n_value, launch, p->n_launch, output, p->n_output);
    if (b->s->engine->driver->device_ops) {
        uint32_t *maker = weft_arena_array(arena, (size_t)p->n_value + 1, sizeof *maker);
        weft_place_levels(launch, p->n_launch, maker, b->level);
    }
    for (uint32_t v = 1; v <= p->n_value; v++) {
        weft_specialisation_value *to = &b->spec->value[v];
        to->place = place[v].place;
        to->root = place[v].root;
        to->shift = place[v].shift;
        b->first[v] = b->level ? b->level[place[v].first].first : place[v].first;
        b->last[v] = b->level ? b->level[place[v].last].last : place[v].last;
        if (to->root != v) {
            to->slot.weight = b->spec->value[to->root].slot.weight;
            to->slot.tensor.data = b->spec->value[to->root].slot.tensor.data;
        }
    }
    for (uint32_t i = 0; i < p->n_launch; i++) {
        b->spec->launch[i].dynamic = launch[i].dynamic;
        b->spec->launch[i].view = launch[i].view;
        b->spec->launch[i].joined = launch[i].joined;
    }
}

static weft_err place_values(build *b)
{
    const weft_bundle_program *p = b->p;
    bool *made = weft_arena_array(b->scratch, (size_t)p->n_value + 1, sizeof *made);
    weft_place_launch *launch = weft_arena_array(b->scratch, p->n_launch, sizeof *launch);
    for (uint32_t v = 1; v <= p->n_value; v++) {
        WEFT_TRY(place_value(b, v));
        made[v] = b->spec->value[v].place == WEFT_PLACE_WEIGHT;
    }
    for (uint32_t i = 0; i < p->n_input; i++) {
        weft_specialisation_value *in = &b->spec->value[p->input[i].value];
        if (p->input[i].value == 0 || p->input[i].value > p->n_value ||
            in->place != WEFT_PLACE_NONE || in->slot.layout != WEFT_LAYOUT_PLAIN)
            return weft_diag_error(b->diag, WEFT_ERR_INPUT, (weft_where){0},
                                   "input %u of the program is not valid", i);
        in->place = WEFT_PLACE_INPUT;
        in->input = i;
        made[p->input[i].value] = true;
    }
    for (uint32_t i = 0; i < p->n_launch; i++)
        WEFT_TRY(describe_launch(b, i, made, &launch[i]));
    for (uint32_t i = 0; i < p->n_output; i++) {
        uint32_t v = p->output[i].value;
        if (v == 0 || v > p->n_value || !made[v] ||
            b->spec->value[v].slot.layout != WEFT_LAYOUT_PLAIN)
            return weft_diag_error(b->diag, WEFT_ERR_INPUT, (weft_where){0},
                                   "output %u of the program is not valid", i);
    }
    find_places(b, launch);
    for (uint32_t i = 0; b->s->engine->driver->device_ops && i < p->n_launch; i++)
        if (b->spec->launch[i].dynamic)
            return weft_diag_error(b->diag, WEFT_ERR_UNSUP, launch_where(&p->launch[i]),
                                   "%s: a dynamic shape is supported on CPUs only",
                                   weft_op_get(p->launch[i].op)->name);
    return WEFT_ERR_OK;
}

/* -- Kernels -------------------------------------------------------------------------------- */

/* Operands and results with their alignment; *out_empty: there is nothing to compute. */
static weft_err fill_slots(build *b, const weft_bundle_launch *l, weft_slot *slot, bool *out_empty)
{
    *out_empty = true;
    for (uint32_t k = 0; k < l->n_in + l->n_out; k++) {
        uint32_t v = k < l->n_in ? l->in[k] : l->out[k - l->n_in];
        if (!v)
            continue;
        slot[k] = b->spec->value[v].slot;
        slot[k].align = weft_specialisation__align(&b->spec->value[v]);
        if (k < l->n_in && slot[k].weight)
            WEFT_TRY(weft_engine__check_weight(b->s->engine, slot[k].weight, b->diag));
        if (k >= l->n_in && weft_tensor_numel(&slot[k].tensor) > 0)
            *out_empty = false;
    }
    return WEFT_ERR_OK;
}

static void take_kernel(weft_specialisation *spec, const weft_bundle_launch *l,
                        weft_specialisation_launch *to, weft_shared_kernel *kernel)
{
    const weft_prepared_kernel *got = weft_shared_kernel__get(kernel);
    to->kernel = kernel;
    to->run = got->run;
    to->state = got->state;
    to->variant = got->variant;
    to->scratch_bytes = got->scratch_bytes;
    to->arg = weft_arena_array(spec->arena, l->n_in + l->n_out + 1, sizeof *to->arg);
}

/* Makes the kernel of launch i; `empty`: there is nothing to compute. */
static weft_err make_kernel(build *b, uint32_t i, weft_attrs attrs, const weft_kernel_key *key,
                            weft_slot *slot, bool empty)
{
    const weft_bundle_launch *l = &b->p->launch[i];
    weft_specialisation_launch *to = &b->spec->launch[i];
    weft_prep prep = {.engine = b->s->engine,
                      .op = l->op,
                      .attrs = attrs,
                      .in = slot,
                      .n_in = l->n_in,
                      .out = slot + l->n_in,
                      .n_out = l->n_out,
                      .diag = b->diag,
                      .where = launch_where(l),
                      .program = b->p,
                      .launch = l,
                      .symbol = b->spec->symbol,
                      .n_symbol = b->p->n_symbol,
                      .keep_nan = b->spec->keep_nan,
                      .adapters = &b->s->adapter_rows};
    WEFT_TRY(weft_launch__check_types(&prep, b->scratch));
    if (empty)
        return WEFT_ERR_OK;
    WEFT_TRY(b->s->engine->driver->prepare(&prep));
    weft_shared_kernel *kernel = weft_shared_kernel__make(b->s, key, &prep);
    if (!kernel)
        return WEFT_ERR_NOMEM;
    take_kernel(b->spec, l, to, kernel);
    return WEFT_ERR_OK;
}

static weft_err prepare_launch(build *b, uint32_t i)
{
    const weft_bundle_launch *l = &b->p->launch[i];
    weft_specialisation_launch *to = &b->spec->launch[i];
    bool empty, body = weft_op_get(l->op)->traits & WEFT_T_BODY;
    weft_slot *slot = weft_arena_array(b->scratch, l->n_in + l->n_out, sizeof *slot);
    weft_attrs attrs;

    WEFT_TRY(weft_launch__bind_attrs(b->p, l, b->spec->symbol, b->p->n_symbol,
                                     body ? b->spec->arena : b->scratch, b->diag, &attrs));
    WEFT_TRY(fill_slots(b, l, slot, &empty));
    if (body) {
        to->arg = weft_arena_array(b->spec->arena, l->n_in + l->n_out + 1, sizeof *to->arg);
        return empty ? WEFT_ERR_OK : weft_nested__prepare(b->s, i, attrs, slot, to);
    }
    weft_kernel_key key = weft_shared_kernel__key(b->s, b->spec, i, attrs, b->scratch);
    weft_shared_kernel *kernel = weft_shared_kernel__find(b->s, &key);
    if (!kernel)
        return make_kernel(b, i, attrs, &key, slot, empty);
    take_kernel(b->spec, l, to, kernel);
    return WEFT_ERR_OK;
}

static weft_err prepare_launches(build *b)
{
    for (uint32_t i = 0; i < b->p->n_launch; i++) {
        const weft_specialisation_launch *l = &b->spec->launch[i];
        if (l->dynamic || l->view || l->joined)
            continue;
        weft_arena_mark mark = weft_arena_get_mark(b->scratch);
        WEFT_TRY(prepare_launch(b, i));
        weft_arena_reset(b->scratch, mark);
    }
    return WEFT_ERR_OK;
}

/* -- Memory --------------------------------------------------------------------------------- */

/* Takes the offsets of the bundle's bucket for this size; false if there is none or its offsets are
 * not valid. */
static bool use_bucket(build *b)
{
    const weft_bundle_bucket *bucket = NULL;
    weft_specialisation_value *value = b->spec->value;
    for (uint32_t i = 0; i < b->p->n_bucket && !bucket; i++)
        if (memcmp(b->p->bucket[i].symbol, b->spec->symbol, b->p->n_symbol * sizeof(int64_t)) == 0)
            bucket = &b->p->bucket[i];
    if (!bucket)
        return false;
    bool *has = weft_arena_array(b->scratch, b->p->n_value + 1, sizeof *has);
    bool sound = true;
    for (uint32_t i = 0; i < bucket->n_buffer && sound; i++) {
        const weft_bundle_buffer *f = &bucket->buffer[i];
        sound = f->value >= 1 && f->value <= b->p->n_value;
        if (!sound || value[f->value].place != WEFT_PLACE_ARENA)
            continue;
        value[f->value].offset = f->offset;
        has[f->value] = true;
        sound = f->offset % WEFT_ARENA_ALIGN == 0 && f->bytes >= value[f->value].bytes &&
                f->offset <= bucket->arena_bytes && f->bytes <= bucket->arena_bytes - f->offset;
        for (uint32_t k = 0; k < i && sound; k++) {
            const weft_bundle_buffer *g = &bucket->buffer[k];
            bool apart = g->offset + g->bytes <= f->offset || f->offset + f->bytes <= g->offset ||
                         b->last[g->value] < b->first[f->value] ||
                         b->last[f->value] < b->first[g->value];
            sound = apart || value[g->value].place != WEFT_PLACE_ARENA;
        }
    }
    for (uint32_t v = 1; v <= b->p->n_value; v++)
        sound = sound && (has[v] || value[v].place != WEFT_PLACE_ARENA);
    return sound;
}

/* Sets the offsets of the values: the bundle's, or packed here. `block` receives the values'
 * blocks. */
static weft_err pack_values(build *b, weft_block *block, size_t *out_n)
{
    weft_specialisation *spec = b->spec;
    size_t n = 0;
    spec->planned = use_bucket(b);
    for (uint32_t v = 1; v <= b->p->n_value; v++)
        if (spec->value[v].place == WEFT_PLACE_ARENA)
            block[n++] = (weft_block){.size = spec->value[v].bytes,
                                      .first = b->first[v],
                                      .last = b->last[v],
                                      .offset = spec->planned ? spec->value[v].offset : 0};
    *out_n = n;
    if (spec->planned)
        return weft_pack_around(block, n, NULL, 0, WEFT_ARENA_ALIGN, &spec->arena_bytes);
    WEFT_TRY(weft_pack_blocks(block, n, WEFT_ARENA_ALIGN, &spec->arena_bytes));
    n = 0;
    for (uint32_t v = 1; v <= b->p->n_value; v++)
        if (spec->value[v].place == WEFT_PLACE_ARENA)
            spec->value[v].offset = block[n++].offset;
    return WEFT_ERR_OK;
}

/* Packs the values, then packs scratch memory and copies of outputs into the gaps. */
static weft_err pack(build *b)
{
    const weft_bundle_program *p = b->p;
    weft_specialisation *spec = b->spec;
    size_t n_value, n = 0;
    weft_block *fixed = weft_arena_array(b->scratch, p->n_value, sizeof *fixed);
    weft_block *block =
        weft_arena_array(b->scratch, (size_t)p->n_launch + p->n_output + 1, sizeof *block);
    bool on_device = b->s->engine->driver->device_ops != NULL;

    WEFT_TRY(pack_values(b, fixed, &n_value));
    for (uint32_t i = 0; i < p->n_launch; i++)
        block[n++] = (weft_block){.size = spec->launch[i].scratch_bytes,
                                  .first = on_device ? b->level[i].first : i,
                                  .last = on_device ? b->level[i].last : i};
    for (uint32_t i = 0; i < p->n_output; i++) {
        const weft_specialisation_value *v = &spec->value[p->output[i].value];
        weft_place place = spec->value[v->root].place;
        bool copied = !on_device && (place == WEFT_PLACE_WEIGHT || place == WEFT_PLACE_INPUT);
        block[n++] = (weft_block){.size = copied ? v->bytes : 0, .last = p->n_launch};
        spec->copy[i] = copied;
    }
    block[n] = (weft_block){.size = spec->input_bytes};
    for (uint32_t i = 0; on_device && i < p->n_input; i++)
        if (b->last[p->input[i].value] > block[n].last)
            block[n].last = b->last[p->input[i].value];
    n++;
    WEFT_TRY(weft_pack_around(fixed, n_value, block, n, WEFT_ARENA_ALIGN, &spec->bytes));
    spec->input_offset = block[n - 1].offset;
    n = 0;
    for (uint32_t i = 0; i < p->n_launch; i++)
        spec->launch[i].scratch_offset = block[n++].offset;
    for (uint32_t i = 0; i < p->n_output; i++, n++)
        if (spec->copy[i])
            spec->copy[i] = block[n].offset + 1;
    return WEFT_ERR_OK;
}

/* Lists the addresses that point into inputs, which are the caller's memory. */
static void list_patches(build *b)
{
    weft_specialisation *spec = b->spec;
    WEFT_VEC(weft_specialisation_patch) list = {0};
    for (uint32_t i = 0; i < b->p->n_launch; i++) {
        const weft_bundle_launch *l = &b->p->launch[i];
        for (uint32_t k = 0; spec->launch[i].arg && k < l->n_in; k++) {
            if (!l->in[k])
                continue;
            const weft_specialisation_value *root = &spec->value[spec->value[l->in[k]].root];
            if (root->place == WEFT_PLACE_INPUT) {
                weft_specialisation_patch patch = {.at = &spec->launch[i].arg[k],
                                                   .input = root->input};
                WEFT_VEC_PUSH(spec->arena, &list, patch);
            }
        }
    }
    spec->patch = list.at;
    spec->n_patch = list.len;
    uint32_t n = 0, *alias = weft_arena_array(b->scratch, b->p->n_value, sizeof *alias);
    for (uint32_t v = 1; v <= b->p->n_value; v++)
        if (spec->value[spec->value[v].root].place == WEFT_PLACE_INPUT)
            alias[n++] = v;
    spec->alias = weft_arena_array(spec->arena, n, sizeof *spec->alias);
    memcpy(spec->alias, alias, n * sizeof *alias);
    spec->n_alias = n;
}

/* -- Life ----------------------------------------------------------------------------------- */

static void drop_launch(weft_specialisation_launch *l)
{
    if (l->destroy)
        l->destroy(l->state);
    weft_shared_kernel__drop(l->kernel);
}

void weft_specialisation__destroy(weft_session *s, weft_specialisation *spec)
{
    if (!spec)
        return;
    weft_specialisation__free_graphs(s, spec);
    for (uint32_t i = 0; spec->launch && i < s->program->n_launch; i++)
        drop_launch(&spec->launch[i]);
    weft_arena_destroy(spec->arena);
    free(spec);
}

/* Bytes of a specialisation but for what depends on its inputs: a server has some for each of its
 * models, for as long as it runs. */
static size_t count_bytes(const weft_bundle_program *p)
{
    size_t args = 0;
    for (uint32_t i = 0; i < p->n_launch; i++)
        args += ((size_t)p->launch[i].n_in + p->launch[i].n_out + 2) * sizeof(void *);
    return p->n_launch * sizeof(weft_specialisation_launch) + args +
           (p->n_value + (size_t)1) * sizeof(weft_specialisation_value) +
           (p->n_symbol + (size_t)p->n_output) * sizeof(int64_t) + 64;
}

/* The arenas have a recovery point. */
static weft_err fill(build *b, const int64_t *symbol)
{
    weft_specialisation *spec = b->spec;
    const weft_bundle_program *p = b->p;
    bool on_device = b->s->engine->driver->device_ops != NULL;

    weft_arena_reserve(spec->arena, count_bytes(p));
    spec->launch = weft_arena_array(spec->arena, p->n_launch, sizeof *spec->launch);
    spec->symbol = weft_arena_array(spec->arena, p->n_symbol, sizeof *symbol);
    if (p->n_symbol)
        memcpy(spec->symbol, symbol, p->n_symbol * sizeof *symbol);
    spec->value = weft_arena_array(spec->arena, (size_t)p->n_value + 1, sizeof *spec->value);
    spec->copy = weft_arena_array(spec->arena, p->n_output, sizeof *spec->copy);
    b->first = weft_arena_array(b->scratch, (size_t)p->n_value + 1, sizeof *b->first);
    b->last = weft_arena_array(b->scratch, (size_t)p->n_value + 1, sizeof *b->last);
    if (on_device)
        b->level = weft_arena_array(b->scratch, (size_t)p->n_launch + 1, sizeof *b->level);
    WEFT_TRY(place_values(b));
    WEFT_TRY(prepare_launches(b));
    if (on_device)
        weft_specialisation__place_device(b->s, spec);
    WEFT_TRY(pack(b));
    list_patches(b);
    return WEFT_ERR_OK;
}

static weft_err build_specialisation(build *b, const int64_t *symbol)
{
    jmp_buf env;
    weft_arena_guard(b->spec->arena, &env);
    weft_arena_guard(b->scratch, &env);
    if (setjmp(env)) {
        weft_arena_guard(b->spec->arena, NULL);
        return WEFT_ERR_NOMEM;
    }
    weft_err err = fill(b, symbol);
    weft_arena_guard(b->spec->arena, NULL);
    return err;
}

weft_err weft_specialisation__make(weft_session *s, const int64_t *symbol, weft_diag *diag,
                                   weft_specialisation **out)
{
    weft_specialisation *spec = calloc(1, sizeof *spec);
    if (!spec)
        return WEFT_ERR_NOMEM;
    spec->keep_nan = s->keep_nan;
    spec->arena = weft_arena_create(0);
    build b = {.s = s, .p = s->program, .spec = spec, .diag = diag};
    b.scratch = weft_arena_create(0);
    weft_err err = spec->arena && b.scratch ? build_specialisation(&b, symbol) : WEFT_ERR_NOMEM;
    weft_arena_destroy(b.scratch);
    if (err != WEFT_ERR_OK) {
        weft_specialisation__destroy(s, spec);
        return err;
    }
    *out = spec;
    return WEFT_ERR_OK;
}

weft_err weft_specialisation__get(weft_session *s, const int64_t *symbol, weft_diag *diag,
                                  weft_specialisation **out)
{
    uint32_t at = 0;
    size_t bytes = s->program->n_symbol * sizeof *symbol;
    uint32_t room =
        s->engine->driver->device_ops ? WEFT_SPECIALISATION_MAX : WEFT_SPECIALISATION_HOST_MAX;
    for (uint32_t i = 0; i < room; i++) {
        if (s->spec[i] && s->spec[i]->keep_nan == s->keep_nan &&
            (bytes == 0 || memcmp(s->spec[i]->symbol, symbol, bytes) == 0)) {
            s->spec[i]->last_use = ++s->clock;
            s->now = *out = s->spec[i];
            return WEFT_ERR_OK;
        }
        /* The first free entry, else the least recently used one. */
        if (s->spec[at] && (!s->spec[i] || s->spec[i]->last_use < s->spec[at]->last_use))
            at = i;
    }
    weft_specialisation *spec;
    WEFT_TRY(weft_specialisation__make(s, symbol, diag, &spec));
    /* Updating a graph is faster than recording a new one. */
    if (s->spec[at])
        weft_specialisation__give_graphs(s->spec[at], spec);
    weft_specialisation__destroy(s, s->spec[at]);
    s->spec[at] = spec;
    spec->last_use = ++s->clock;
    s->now = *out = spec;
    return WEFT_ERR_OK;
}
