/* Kernels that several specialisations use.
 *
 * A kernel depends on its operator, attributes, the types of its operands and results, and which
 * weights are operands; not on addresses, which it does not hold between runs. Launches that agree
 * in these have one kernel: those of a session, which runs one specialisation at a time (where only
 * one size changes, as the length of a decoder's past does with every token, most launches keep
 * their kernels), and those of all sessions that share their memory, which run one at a time:
 * siblings with equal weights, in the server. Not on devices with memory of their own, whose
 * kernels are recorded in graphs.
 *
 * The table is a hash table with chains. Its size is a power of two and doubles when there are as
 * many kernels. */
#include "base/hash.h"
#include "runtime/session/session_int.h"

#include <stdlib.h>
#include <string.h>

enum { TABLE_MIN = 64 };

struct weft_shared_kernel {
    weft_shared_kernel *next; /* of the same place in the table */
    weft_kernel_table *table; /* NULL: in none */
    uint32_t refs;
    weft_prepared_kernel got;
    weft_kernel_key key; /* its words are behind the struct */
    uint64_t word[];
};

/* -- What a kernel depends on ----------------------------------------------------------------- */

typedef struct words {
    weft_arena *arena;
    uint64_t *at;
    uint32_t len, cap;
} words;

static void put(words *w, uint64_t x)
{
    WEFT_VEC_PUSH(w->arena, w, x);
}

static void put_text(words *w, const char *s)
{
    size_t n = strlen(s);
    put(w, n);
    for (size_t i = 0; i < n; i += sizeof(uint64_t)) {
        uint64_t x = 0;
        memcpy(&x, s + i, n - i < sizeof x ? n - i : sizeof x);
        put(w, x);
    }
}

static void put_float(words *w, double f)
{
    uint64_t x;
    memcpy(&x, &f, sizeof x);
    put(w, x);
}

static void put_attr(words *w, const weft_attr *a)
{
    put(w, (uint64_t)a->key << 48 | (uint64_t)a->kind << 32 | a->n);
    switch ((weft_attr_kind)a->kind) {
    case WEFT_KIND_INT:
        put(w, (uint64_t)a->u.i);
        return;
    case WEFT_KIND_FLOAT:
        put_float(w, a->u.f);
        return;
    case WEFT_KIND_STR:
        put_text(w, a->u.s);
        return;
    case WEFT_KIND_DTYPE:
        put(w, a->u.dtype);
        return;
    default:
        break;
    }
    for (uint32_t i = 0; i < a->n; i++) {
        if (a->kind == WEFT_KIND_INTS)
            put(w, (uint64_t)a->u.ints[i]);
        else if (a->kind == WEFT_KIND_FLOATS)
            put_float(w, a->u.floats[i]);
        else if (a->kind == WEFT_KIND_STRS)
            put_text(w, a->u.strs[i]);
        else
            put(w, (uint64_t)a->u.dims[i]); /* bound: its value */
    }
}

static void put_value(words *w, const weft_specialisation_value *v)
{
    const weft_tensor *t = &v->slot.tensor;
    put(w, (uint64_t)t->dtype << 32 | (uint64_t)v->slot.layout << 16 | (uint64_t)t->rank);
    put(w, (uint64_t)v->slot.weight << 32 | weft_specialisation__align(v));
    put(w, v->slot.weight ? v->shift : 0);
    for (int32_t d = 0; d < t->rank; d++)
        put(w, (uint64_t)t->dim[d]);
}

weft_kernel_key weft_shared_kernel__key(const weft_session *s, const weft_specialisation *spec,
                                        uint32_t i, weft_attrs attrs, weft_arena *arena)
{
    const weft_bundle_launch *l = &s->program->launch[i];
    words w = {.arena = arena};
    put(&w, (uint64_t)l->op << 1 | spec->keep_nan);
    put(&w, (uint64_t)l->n_in << 32 | l->n_out);
    for (uint32_t k = 0; k < l->n_in + l->n_out; k++) {
        uint32_t v = k < l->n_in ? l->in[k] : l->out[k - l->n_in];
        if (v)
            put_value(&w, &spec->value[v]);
        else
            put(&w, UINT64_MAX);
    }
    for (uint32_t k = 0; k < attrs.n; k++)
        put_attr(&w, &attrs.at[k]);
    /* Such a kernel asks its own session which adapters the rows use. */
    if (weft_op_get(l->op)->traits & WEFT_T_PER_RUN)
        put(&w, (uintptr_t)s);
    return (weft_kernel_key){
        .hash = weft_hash64(w.at, w.len * sizeof *w.at, 0), .word = w.at, .n_word = w.len};
}

/* -- The table -------------------------------------------------------------------------------- */

static weft_shared_kernel **place_of(const weft_kernel_table *t, uint64_t hash)
{
    return &t->first[hash & (t->room - 1)];
}

/* Without memory for a larger table its chains become longer; without any, a kernel is not shared.
 */
static void grow_table(weft_kernel_table *t)
{
    weft_kernel_table to = {.room = t->room ? t->room * 2 : TABLE_MIN};
    to.first = calloc(to.room, sizeof *to.first);
    if (!to.first)
        return;
    for (uint32_t i = 0; i < t->room; i++) {
        for (weft_shared_kernel *k = t->first[i], *next; k; k = next) {
            weft_shared_kernel **at = place_of(&to, k->key.hash);
            next = k->next;
            k->next = *at;
            *at = k;
        }
    }
    free(t->first);
    t->first = to.first;
    t->room = to.room;
}

static void insert(weft_kernel_table *t, weft_shared_kernel *kernel)
{
    if (t->n >= t->room)
        grow_table(t);
    if (!t->room)
        return;
    weft_shared_kernel **at = place_of(t, kernel->key.hash);
    kernel->next = *at;
    kernel->table = t;
    *at = kernel;
    t->n++;
}

static void take_out(weft_shared_kernel *kernel)
{
    weft_shared_kernel **at = place_of(kernel->table, kernel->key.hash);
    while (*at != kernel)
        at = &(*at)->next;
    *at = kernel->next;
    kernel->table->n--;
}

weft_shared_kernel *weft_shared_kernel__find(const weft_session *s, const weft_kernel_key *key)
{
    const weft_kernel_table *t = s->kernels;
    weft_shared_kernel *k =
        t->room && !s->engine->driver->device_ops ? *place_of(t, key->hash) : NULL;
    while (k && (k->key.hash != key->hash || k->key.n_word != key->n_word ||
                 memcmp(k->key.word, key->word, key->n_word * sizeof *key->word) != 0))
        k = k->next;
    if (k)
        k->refs++;
    return k;
}

weft_shared_kernel *weft_shared_kernel__make(const weft_session *s, const weft_kernel_key *key,
                                             const weft_prep *prep)
{
    size_t bytes = key->n_word * sizeof *key->word;
    weft_shared_kernel *kernel = malloc(sizeof *kernel + bytes);
    void (*destroy)(void *) = prep->destroy ? prep->destroy : free;
    if (!kernel) {
        destroy(prep->state);
        return NULL;
    }
    *kernel = (weft_shared_kernel){.refs = 1,
                                   .got = {.run = prep->run,
                                           .state = prep->state,
                                           .destroy = destroy,
                                           .variant = prep->variant,
                                           .scratch_bytes = prep->scratch_bytes},
                                   .key = *key};
    memcpy(kernel->word, key->word, bytes);
    kernel->key.word = kernel->word;
    if (!s->engine->driver->device_ops)
        insert(s->kernels, kernel);
    return kernel;
}

const weft_prepared_kernel *weft_shared_kernel__get(const weft_shared_kernel *kernel)
{
    return &kernel->got;
}

void weft_shared_kernel__drop(weft_shared_kernel *kernel)
{
    if (!kernel || --kernel->refs > 0)
        return;
    if (kernel->table)
        take_out(kernel);
    kernel->got.destroy(kernel->got.state);
    free(kernel);
}
