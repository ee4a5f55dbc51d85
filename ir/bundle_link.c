/* Bodies of launches: found by the names in their attributes, and checked against the launch.
 *
 * A body stands behind the program that runs it, and only one launch runs it, so programs and
 * bodies are trees. */
#include "ir/bundle.h"

#include "base/map.h"

#include <string.h>

typedef struct linker {
    weft_bundle *b;
    weft_diag *diag;
    weft_names *names; /* of bodies */
    uint32_t *index;   /* program by id in `names` */
    uint32_t *depth;   /* by program; of a body that nothing runs: 0 */
    uint32_t program;
} linker;

static weft_err refuse(const linker *k, const weft_bundle_launch *l, const char *what)
{
    weft_where where = {.item = k->b->program[k->program].name};
    return weft_diag_error(k->diag, WEFT_ERR_INPUT, where, "%s: %s", weft_op_get(l->op)->name,
                           what);
}

static const weft_ttype *type_of(const weft_bundle_program *p, uint32_t v)
{
    return &p->value[v - 1].type;
}

static bool same_kind(const weft_ttype *a, const weft_ttype *b)
{
    return a->dtype == b->dtype && a->rank == b->rank;
}

/* Element types and ranks of what goes into a body and comes out of it. */
static bool ports_fit(const weft_bundle_program *p, const weft_bundle_launch *l,
                      const weft_flow_layout *f, uint32_t b, const weft_bundle_program *body)
{
    for (uint32_t i = 0; i < f->n_capture[b]; i++) {
        uint32_t at = f->first_capture[b] + i, v = at < l->n_in ? l->in[at] : 0;
        if (!v || !same_kind(type_of(p, v), type_of(body, body->input[f->n_formal + i].value)))
            return false;
    }
    for (uint32_t i = 0; i < f->n_carried + f->n_sliced; i++) {
        uint32_t at = f->first_carried + i, v = at < l->n_in ? l->in[at] : 0;
        const weft_ttype *in = type_of(body, body->input[at].value);
        if (!v || type_of(p, v)->dtype != in->dtype ||
            type_of(p, v)->rank != in->rank + (i >= f->n_carried))
            return false;
        if (i < f->n_carried && !same_kind(in, type_of(body, body->output[f->first_out + i].value)))
            return false;
    }
    for (uint32_t i = 0; i < l->n_out; i++) {
        const weft_ttype *out = type_of(body, body->output[f->first_out + i].value);
        uint32_t axis;
        bool stacked = l->op != WEFT_OP_IF && i >= f->n_carried &&
                       !weft_flow_joined(l->attrs, i - f->n_carried, out->rank, &axis);
        if (out->rank + stacked > WEFT_RANK_MAX)
            return false;
        if (l->out[i] && (type_of(p, l->out[i])->dtype != out->dtype ||
                          type_of(p, l->out[i])->rank != out->rank + stacked))
            return false;
    }
    return true;
}

/* Iteration and condition of a loop, condition of an if. */
static bool singles_fit(const weft_bundle_program *p, const weft_bundle_launch *l,
                        const weft_bundle_program *body)
{
    weft_dtype want[2] = {l->op == WEFT_OP_IF ? WEFT_DTYPE_BOOL : WEFT_DTYPE_I64, WEFT_DTYPE_BOOL};
    uint32_t n = l->op == WEFT_OP_IF ? 1 : l->op == WEFT_OP_LOOP ? 2 : 0;
    for (uint32_t i = 0; i < n; i++) {
        if (i < l->n_in && l->in[i] && type_of(p, l->in[i])->dtype != want[i])
            return false;
        const weft_ttype *t = l->op == WEFT_OP_LOOP ? type_of(body, body->input[i].value) : NULL;
        if (t && (t->dtype != want[i] || t->rank > 1))
            return false;
    }
    return l->op != WEFT_OP_LOOP || type_of(body, body->output[0].value)->dtype == WEFT_DTYPE_BOOL;
}

static weft_err find_body(linker *k, weft_bundle_launch *l, uint32_t b)
{
    const char *name = weft_attrs_str(l->attrs, weft_flow_body_key(l->op, b), "");
    uint32_t id = weft_names_find(k->names, name, strlen(name));
    uint32_t body = id ? k->index[id] : 0;
    if (!id || body <= k->program)
        return refuse(k, l, "a body is missing, or stands before the program that runs it");
    if (k->depth[body])
        return refuse(k, l, "two launches have the same body");
    k->depth[body] = k->depth[k->program] + 1;
    if (k->depth[body] > WEFT_FLOW_DEPTH_MAX + 1)
        return refuse(k, l, "bodies are nested too deep");
    const weft_bundle_program *around = &k->b->program[k->program], *p = &k->b->program[body];
    for (uint32_t i = 0; i < p->n_symbol; i++)
        if (p->outer && p->outer[i] > weft_dim_symbol_count(around->dims))
            return refuse(k, l,
                          "a symbol of a body has no counterpart in the program that runs it");
    l->body[b] = body + 1;
    return WEFT_ERR_OK;
}

static weft_err link_launch(linker *k, weft_bundle_launch *l)
{
    const weft_bundle_program *p = &k->b->program[k->program];
    uint32_t n_in[WEFT_FLOW_BODIES] = {0}, n_out[WEFT_FLOW_BODIES] = {0};
    weft_flow_layout f;
    for (uint32_t b = 0; b < weft_flow_bodies(l->op); b++) {
        WEFT_TRY(find_body(k, l, b));
        n_in[b] = k->b->program[l->body[b] - 1].n_input;
        n_out[b] = k->b->program[l->body[b] - 1].n_output;
    }
    if (!weft_flow_layout_make(l->op, l->attrs, l->n_in, l->n_out, n_in, n_out, &f))
        return refuse(k, l, "the number of inputs or outputs of a body does not fit");
    for (uint32_t b = 0; b < f.n_body; b++) {
        const weft_bundle_program *body = &k->b->program[l->body[b] - 1];
        if (!ports_fit(p, l, &f, b, body) || !singles_fit(p, l, body))
            return refuse(k, l, "the types of a body's inputs or outputs do not fit");
    }
    return WEFT_ERR_OK;
}

static weft_err link_all(linker *k, weft_arena *arena)
{
    weft_bundle *b = k->b;
    uint32_t first = b->n_program + b->n_joint, n = first + b->n_body;
    k->names = weft_names_create(arena);
    k->index = weft_arena_array(arena, (size_t)b->n_body + 2, sizeof *k->index);
    k->depth = weft_arena_array(arena, (size_t)n + 1, sizeof *k->depth);
    for (uint32_t i = first; i < n; i++) {
        uint32_t id = weft_names_add(k->names, b->program[i].name, strlen(b->program[i].name));
        if (id <= b->n_body)
            k->index[id] = i;
    }
    for (uint32_t i = 0; i < n; i++) {
        const weft_bundle_program *p = &b->program[i];
        k->program = i;
        if (i < first)
            k->depth[i] = 1;
        for (uint32_t l = 0; l < p->n_launch; l++)
            if (weft_op_get(p->launch[l].op)->traits & WEFT_T_BODY)
                WEFT_TRY(link_launch(k, (weft_bundle_launch *)(uintptr_t)&p->launch[l]));
    }
    return WEFT_ERR_OK;
}

weft_err weft_bundle_link(weft_bundle *bundle, weft_diag *diag)
{
    linker k = {.b = bundle, .diag = diag};
    weft_arena *arena = weft_arena_create(0);
    jmp_buf env;
    weft_err err;
    if (!arena)
        return WEFT_ERR_NOMEM;
    if (setjmp(env)) {
        err = WEFT_ERR_NOMEM;
    } else {
        weft_arena_guard(arena, &env);
        err = link_all(&k, arena);
    }
    weft_arena_destroy(arena);
    return err;
}

/* -- Users of weights ----------------------------------------------------------------------- */

/* Marks the weights of a program and its bodies; returns the bytes of those not marked before.
 * `users`: raised for each of them; NULL: not counted. */
static uint64_t count_program(const weft_bundle *b, uint32_t program, uint32_t mark,
                              uint32_t *marked, uint32_t *users)
{
    const weft_bundle_program *p = &b->program[program];
    uint64_t bytes = 0;
    for (uint32_t v = 0; v < p->n_value; v++) {
        uint32_t w = p->value[v].weight;
        if (!w || marked[w - 1] == mark)
            continue;
        marked[w - 1] = mark;
        bytes += b->weight[w - 1].bytes;
        if (users)
            users[w - 1]++;
    }
    for (uint32_t l = 0; l < p->n_launch; l++)
        for (uint32_t k = 0; k < weft_flow_bodies(p->launch[l].op); k++)
            bytes += count_program(b, p->launch[l].body[k] - 1, mark, marked, users);
    return bytes;
}

static void count_adapter(const weft_bundle_adapter *a, uint32_t mark, uint32_t *marked,
                          uint32_t *users)
{
    for (uint32_t i = 0; i < 2 * a->n_factor; i++) {
        uint32_t w = i % 2 ? a->factor[i / 2].b : a->factor[i / 2].a;
        users[w - 1] += marked[w - 1] != mark;
        marked[w - 1] = mark;
    }
}

void weft_bundle_count_users(const weft_bundle *bundle, weft_arena *arena, uint32_t *users)
{
    uint32_t *marked = weft_arena_array(arena, bundle->n_weight, sizeof *marked);
    for (uint32_t i = 0; i < bundle->n_weight; i++)
        users[i] = 0;
    for (uint32_t i = 0; i < bundle->n_program; i++)
        count_program(bundle, i, i + 1, marked, users);
    for (uint32_t i = 0; i < bundle->n_adapter; i++)
        count_adapter(&bundle->adapter[i], bundle->n_program + i + 1, marked, users);
}

void weft_bundle_count_memory(const weft_bundle *bundle, uint32_t *marked, uint64_t *bytes)
{
    for (uint32_t i = 0; i < bundle->n_program; i++) {
        const weft_bundle_program *p = &bundle->program[i];
        uint64_t arena = 0;
        for (uint32_t k = 0; k < p->n_bucket; k++)
            arena = p->bucket[k].arena_bytes > arena ? p->bucket[k].arena_bytes : arena;
        bytes[i] = count_program(bundle, i, i + 1, marked, NULL) + arena;
    }
}
