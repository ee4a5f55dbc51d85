/* Requests whose inputs are equal byte by byte, which are computed once.
 *
 * Requests that wait together are put into a table by a hash of some of their bytes, taken evenly
 * from every input, so that telling different inputs apart costs little. Where two hashes agree,
 * all bytes are compared: no answer ever depends on a hash. Inputs are matched by name, so that
 * requests to several models of a family can be compared, too. All of that happens in one turn of
 * the loop: so many bytes are compared for a table, and what is left is computed by itself.
 *
 * Left out are models with random operators, whose answers to equal inputs differ, and tensors in
 * memory that a client shares, which it could change between the comparison and the run. */
#include "base/hash.h"
#include "ops/ops.h"
#include "runtime/server/router_int.h"

#include <string.h>

enum { SAMPLES = 16, SAMPLE_BYTES = 16, MASK = EQUAL_SLOTS - 1 };

/* -- Models ----------------------------------------------------------------------------------- */

static bool has_launch(const weft_bundle_program *p, uint32_t traits)
{
    for (uint32_t i = 0; i < p->n_launch; i++)
        if (weft_op_get(p->launch[i].op)->traits & traits)
            return true;
    return false;
}

bool weft_equal__is_repeatable(const weft_bundle *b, const weft_bundle_program *p)
{
    uint32_t first = b->n_program + b->n_joint;
    if (has_launch(p, WEFT_T_RANDOM))
        return false;
    /* Whichever bodies it runs. */
    for (uint32_t i = first; i < first + b->n_body && has_launch(p, WEFT_T_BODY); i++)
        if (has_launch(&b->program[i], WEFT_T_RANDOM))
            return false;
    return true;
}

/* -- Hashes ----------------------------------------------------------------------------------- */

static uint64_t sample_bytes(const uint8_t *data, size_t len, uint64_t seed)
{
    if (len <= (size_t)SAMPLES * SAMPLE_BYTES)
        return weft_hash64(data, len, seed);
    size_t step = (len - SAMPLE_BYTES) / (SAMPLES - 1);
    for (size_t i = 0; i < SAMPLES; i++)
        seed = weft_hash64(data + i * step, SAMPLE_BYTES, seed);
    return seed;
}

/* The sum over the inputs does not depend on their order. */
static uint64_t hash_inputs(const weft_bundle_program *p, const weft_request *r)
{
    uint64_t sum = r->adapter_at;
    for (uint32_t i = 0; i < p->n_input; i++) {
        const weft_tensor *t = &r->in[i];
        uint64_t seed = weft_hash64(p->input[i].name, strlen(p->input[i].name), t->dtype);
        seed = weft_hash64(t->dim, (size_t)t->rank * sizeof t->dim[0], seed);
        sum += sample_bytes(t->data, weft_tensor_bytes(t), seed);
    }
    return sum;
}

static uint64_t sample_of(const weft_bundle_program *p, weft_request *r)
{
    if (!r->is_sampled)
        r->sample = hash_inputs(p, r);
    r->is_sampled = true;
    return r->sample;
}

/* -- Comparison ------------------------------------------------------------------------------- */

static bool is_equal_tensor(const weft_tensor *a, const weft_tensor *b)
{
    size_t len = weft_tensor_bytes(a);
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dim, b->dim, (size_t)a->rank * sizeof a->dim[0]) == 0 &&
           (len == 0 || memcmp(a->data, b->data, len) == 0);
}

static size_t input_bytes(const weft_bundle_program *p, const weft_request *r)
{
    size_t sum = 0;
    for (uint32_t i = 0; i < p->n_input; i++)
        sum += weft_tensor_bytes(&r->in[i]);
    return sum;
}

static bool is_equal(equal_table *t, const weft_bundle_program *p, const weft_request *a,
                     const weft_bundle_program *q, const weft_request *b)
{
    size_t bytes = input_bytes(p, a);
    if (a->adapter_at != b->adapter_at || p->n_input != q->n_input || bytes != input_bytes(q, b) ||
        bytes > EQUAL_BYTES_MAX - t->compared)
        return false;
    t->compared += bytes;
    for (uint32_t i = 0; i < p->n_input; i++) {
        uint32_t k = p == q ? i : weft_bundle_find_port(q->input, q->n_input, p->input[i].name);
        if (k == UINT32_MAX || !is_equal_tensor(&a->in[i], &b->in[k]))
            return false;
    }
    return true;
}

/* -- Table ------------------------------------------------------------------------------------ */

static bool may_share(const router_model *m, const weft_request *r)
{
    return m->shares_equal && r->attempts == 0 && r->rows > 0 && !r->regions;
}

void weft_equal__begin(equal_table *t, size_t compared)
{
    t->n = 0;
    t->compared = compared;
}

weft_request *weft_equal__find(equal_table *t, const weft_bundle_program *of, const router_model *m,
                               weft_request *r)
{
    if (t->n == 0 || !may_share(m, r))
        return NULL;
    uint64_t sample = sample_of(m->program, r);
    for (uint64_t at = sample & MASK; t->at[at].request; at = (at + 1) & MASK) {
        const equal_slot *s = &t->at[at];
        if (s->request->sample == sample && (!of || s->program == of) &&
            is_equal(t, s->program, s->request, m->program, r))
            return s->request;
    }
    return NULL;
}

void weft_equal__add(equal_table *t, const router_model *m, weft_request *r)
{
    if (t->n == BATCH_REQUESTS_MAX || !may_share(m, r))
        return;
    if (t->n == 0)
        memset(t->at, 0, sizeof t->at);
    uint64_t at = sample_of(m->program, r) & MASK;
    while (t->at[at].request)
        at = (at + 1) & MASK;
    t->at[at] = (equal_slot){m->program, r};
    t->n++;
}
