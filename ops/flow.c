/* `if`, `loop` and `scan`: the algorithm around their bodies. Carried values are copied after each
 * round, because the outputs of a body live in its own memory; results of rounds are collected in a
 * growing block. */
#include "ops/flow.h"

#include "base/num.h"
#include "ops/op_int.h"

#include <stdlib.h>
#include <string.h>

/* -- Table and layout ----------------------------------------------------------------------- */

weft_attr_key weft_flow_body_key(weft_op_id op, uint32_t i)
{
    if (op == WEFT_OP_IF && i < 2)
        return i == 0 ? WEFT_ATTR_THEN_BRANCH : WEFT_ATTR_ELSE_BRANCH;
    return (op == WEFT_OP_LOOP || op == WEFT_OP_SCAN) && i == 0 ? WEFT_ATTR_BODY : WEFT_ATTR_NONE;
}

uint32_t weft_flow_bodies(weft_op_id op)
{
    return op == WEFT_OP_IF ? 2 : op == WEFT_OP_LOOP || op == WEFT_OP_SCAN ? 1 : 0;
}

/* A list has `n` entries, or is absent. */
static bool list_fits(weft_attrs attrs, weft_attr_key key, uint32_t n)
{
    uint32_t have = 0;
    const int64_t *x = weft_attrs_ints(attrs, key, &have);
    return !x || have == n;
}

static bool lists_fit(weft_attrs attrs, const weft_flow_layout *l)
{
    return list_fits(attrs, WEFT_ATTR_SCAN_INPUT_AXES, l->n_sliced) &&
           list_fits(attrs, WEFT_ATTR_SCAN_INPUT_DIRECTIONS, l->n_sliced) &&
           list_fits(attrs, WEFT_ATTR_SCAN_OUTPUT_AXES, l->n_stacked) &&
           list_fits(attrs, WEFT_ATTR_SCAN_OUTPUT_DIRECTIONS, l->n_stacked);
}

bool weft_flow_layout_make(weft_op_id op, weft_attrs attrs, uint32_t n_in, uint32_t n_out,
                           const uint32_t body_in[WEFT_FLOW_BODIES],
                           const uint32_t body_out[WEFT_FLOW_BODIES], weft_flow_layout *out)
{
    int64_t carried = weft_attrs_int(attrs, WEFT_ATTR_CARRIED, 0);
    int64_t sliced = weft_attrs_int(attrs, WEFT_ATTR_NUM_SCAN_INPUTS, 0);
    weft_flow_layout l = {.n_body = weft_flow_bodies(op)};
    if (carried < 0 || carried > UINT16_MAX || sliced < 0 || sliced > UINT16_MAX)
        return false;
    if (op == WEFT_OP_LOOP) {
        l.first_carried = 2;
        l.first_out = 1;
    } else if (op == WEFT_OP_SCAN && sliced == 0) {
        return false;
    }
    l.n_carried = (uint32_t)carried;
    l.n_sliced = (uint32_t)sliced;
    l.n_formal = op == WEFT_OP_IF ? 0 : l.first_carried + l.n_carried + l.n_sliced;
    uint32_t at = op == WEFT_OP_IF ? 1 : l.n_formal;
    for (uint32_t b = 0; b < l.n_body; b++) {
        if (body_in[b] < l.n_formal || body_in[b] > UINT16_MAX ||
            body_out[b] != l.first_out + n_out)
            return false;
        l.first_capture[b] = at;
        l.n_capture[b] = body_in[b] - l.n_formal;
        at += l.n_capture[b];
    }
    if (l.n_body == 0 || n_in > at || n_out < l.n_carried)
        return false;
    l.n_stacked = op == WEFT_OP_IF ? 0 : n_out - l.n_carried;
    *out = l;
    return op == WEFT_OP_SCAN ? lists_fit(attrs, &l)
                              : list_fits(attrs, WEFT_ATTR_JOINED, l.n_stacked);
}

bool weft_flow_axis(weft_attrs attrs, bool result, uint32_t i, uint32_t rank, uint32_t *out)
{
    uint32_t n = 0;
    const int64_t *axes =
        weft_attrs_ints(attrs, result ? WEFT_ATTR_SCAN_OUTPUT_AXES : WEFT_ATTR_SCAN_INPUT_AXES, &n);
    return weft_axis__fix(i < n ? axes[i] : 0, rank, out);
}

bool weft_flow_joined(weft_attrs attrs, uint32_t i, uint32_t rank, uint32_t *out_axis)
{
    uint32_t n = 0;
    const int64_t *axes = weft_attrs_ints(attrs, WEFT_ATTR_JOINED, &n);
    if (i >= n || axes[i] < 0 || axes[i] >= (int64_t)rank)
        return false;
    *out_axis = (uint32_t)axes[i];
    return true;
}

static bool is_reversed(weft_attrs attrs, bool result, uint32_t i)
{
    uint32_t n = 0;
    const int64_t *direction = weft_attrs_ints(
        attrs, result ? WEFT_ATTR_SCAN_OUTPUT_DIRECTIONS : WEFT_ATTR_SCAN_INPUT_DIRECTIONS, &n);
    return i < n && direction[i] != 0;
}

/* ir/body.c infers the types: they follow from the bodies, which this folder does not know. */
weft_err weft_infer_body(weft_infer_ctx *cx)
{
    return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "its types follow from its bodies");
}

/* -- Memory --------------------------------------------------------------------------------- */

/* A block that is counted against the limit. */
typedef struct block {
    void *at;
    uint64_t bytes;
} block;

static weft_err grow(weft_flow *f, block *b, uint64_t bytes)
{
    if (bytes <= b->bytes)
        return WEFT_ERR_OK;
    uint64_t more = bytes - b->bytes;
    if (bytes > SIZE_MAX / 2)
        return WEFT_ERR_NOMEM;
    if (f->take)
        WEFT_TRY(f->take(f, more));
    void *at = realloc(b->at, bytes);
    if (!at) {
        if (f->give)
            f->give(f, more);
        return WEFT_ERR_NOMEM;
    }
    b->at = at;
    b->bytes = bytes;
    return WEFT_ERR_OK;
}

static void drop(weft_flow *f, block *b)
{
    if (f->give && b->bytes)
        f->give(f, b->bytes);
    free(b->at);
}

static weft_err keep(weft_flow *f, block *b, const weft_tensor *from, weft_tensor *to)
{
    size_t bytes = weft_tensor_bytes(from);
    WEFT_TRY(grow(f, b, bytes ? bytes : 1));
    if (bytes)
        memcpy(b->at, from->data, bytes);
    *to = *from;
    to->data = b->at;
    return WEFT_ERR_OK;
}

static weft_err give_result(weft_flow *f, uint32_t i, const weft_tensor *t)
{
    void *data = NULL;
    WEFT_TRY(f->place(f, i, t, &data));
    size_t bytes = weft_tensor_bytes(t);
    if (data && bytes)
        memcpy(data, t->data, bytes);
    return WEFT_ERR_OK;
}

/* -- Conditions and shapes ------------------------------------------------------------------ */

static weft_err fail(const weft_flow *f, const char *text)
{
    const char *name = f->op == WEFT_OP_IF ? "if" : f->op == WEFT_OP_LOOP ? "loop" : "scan";
    return weft_diag_error(f->diag, WEFT_ERR_INPUT, f->where, "%s: %s", name, text);
}

static weft_err read_condition(const weft_flow *f, const weft_tensor *t, bool *out)
{
    if (t->dtype != WEFT_DTYPE_BOOL || weft_tensor_numel(t) != 1)
        return fail(f, "the condition is not one element");
    *out = *(const uint8_t *)t->data != 0;
    return WEFT_ERR_OK;
}

static bool same_dims(const weft_tensor *a, const weft_tensor *b)
{
    return a->rank == b->rank && memcmp(a->dim, b->dim, (size_t)a->rank * sizeof a->dim[0]) == 0;
}

/* The operands of body `b`: room for formal inputs, then its captures. */
static weft_tensor *make_inputs(const weft_flow *f, uint32_t b)
{
    const weft_flow_layout *l = &f->layout;
    weft_tensor *in = calloc((size_t)l->n_formal + l->n_capture[b] + 1, sizeof *in);
    for (uint32_t k = 0; in && k < l->n_capture[b]; k++)
        if (l->first_capture[b] + k < f->n_in)
            in[l->n_formal + k] = f->in[l->first_capture[b] + k];
    return in;
}

/* -- if ------------------------------------------------------------------------------------- */

static weft_err run_if(weft_flow *f)
{
    bool yes;
    WEFT_TRY(read_condition(f, &f->in[0], &yes));
    uint32_t b = yes ? 0 : 1;
    weft_tensor *in = make_inputs(f, b);
    const weft_tensor *out;
    if (!in)
        return WEFT_ERR_NOMEM;
    weft_err err = f->run(f, b, in, &out);
    for (uint32_t i = 0; err == WEFT_ERR_OK && i < f->n_out; i++)
        err = give_result(f, i, &out[i]);
    free(in);
    return err;
}

/* -- loop and scan -------------------------------------------------------------------------- */

/* Results of the rounds so far, one after the other. */
typedef struct stack {
    block block;
    uint64_t bytes;    /* used */
    weft_tensor round; /* type of the last one */
    int64_t n;
    /* Joined along `axis`. */
    bool joined;
    uint32_t axis;
    block sizes; /* of each round along the axis, i64 */
    int64_t size;
} stack;

typedef struct rounds {
    weft_flow *f;
    weft_tensor *in; /* of the body */
    block *carried;
    stack *stacked;
    block *slice; /* of the sliced inputs */
    int64_t iteration;
    uint8_t condition;
} rounds;

static weft_err grow_twice(weft_flow *f, block *b, uint64_t need)
{
    if (need <= b->bytes)
        return WEFT_ERR_OK;
    return grow(f, b, need > UINT64_MAX / 2 ? need : 2 * need);
}

static weft_err push_size(weft_flow *f, stack *s, int64_t size)
{
    if (size > INT64_MAX - s->size)
        return fail(f, "a result is too large");
    WEFT_TRY(grow_twice(f, &s->sizes, ((uint64_t)s->n + 1) * sizeof size));
    memcpy((char *)s->sizes.at + (size_t)s->n * sizeof size, &size, sizeof size);
    s->size += size;
    return WEFT_ERR_OK;
}

static weft_err push(weft_flow *f, stack *s, uint32_t i, const weft_tensor *t)
{
    uint64_t bytes = weft_tensor_bytes(t), need;
    if (s->n == 0)
        s->joined = weft_flow_joined(f->attrs, i, (uint32_t)t->rank, &s->axis);
    weft_tensor same = *t;
    if (s->joined && s->n > 0 && t->rank == s->round.rank)
        same.dim[s->axis] = s->round.dim[s->axis];
    if (s->n > 0 && !same_dims(&s->round, &same))
        return fail(f, "the results of two rounds differ in shape");
    s->round = *t;
    if (s->joined)
        WEFT_TRY(push_size(f, s, t->dim[s->axis]));
    if (!weft_size_add(s->bytes, bytes, &need))
        return WEFT_ERR_NOMEM;
    WEFT_TRY(grow_twice(f, &s->block, need));
    if (bytes)
        memcpy((char *)s->block.at + s->bytes, t->data, bytes);
    s->bytes = need;
    s->n++;
    return WEFT_ERR_OK;
}

/* [n, outer, inner] to [outer, n, inner]. */
static void interleave(const stack *s, uint32_t axis, bool reversed, char *to)
{
    size_t outer = 1, inner = weft_dtype_size(s->round.dtype), n = (size_t)s->n;
    for (int32_t d = 0; d < s->round.rank; d++)
        *((uint32_t)d < axis ? &outer : &inner) *= (size_t)s->round.dim[d];
    for (size_t t = 0; t < n; t++)
        for (size_t o = 0; o < outer && inner; o++)
            memcpy(to + (o * n + (reversed ? n - 1 - t : t)) * inner,
                   (const char *)s->block.at + (t * outer + o) * inner, inner);
}

/* Rounds [outer, size of the round, inner] to [outer, sum, inner]. */
static void join(const stack *s, char *to)
{
    size_t outer = 1, inner = weft_dtype_size(s->round.dtype), start = 0;
    const char *from = s->block.at;
    for (int32_t d = 0; d < s->round.rank; d++)
        if ((uint32_t)d != s->axis)
            *((uint32_t)d < s->axis ? &outer : &inner) *= (size_t)s->round.dim[d];
    for (int64_t t = 0; t < s->n && inner; t++) {
        size_t size = (size_t)((const int64_t *)s->sizes.at)[t];
        for (size_t o = 0; o < outer && size; o++, from += size * inner)
            memcpy(to + (o * (size_t)s->size + start) * inner, from, size * inner);
        start += size;
    }
}

static weft_err give_joined(weft_flow *f, uint32_t result, const stack *s)
{
    weft_tensor t = s->round;
    void *data = NULL;
    t.dim[s->axis] = s->size;
    if (weft_tensor_numel(&t) < 0)
        return fail(f, "a result is too large");
    WEFT_TRY(f->place(f, result, &t, &data));
    if (data && weft_tensor_numel(&t) > 0)
        join(s, data);
    return WEFT_ERR_OK;
}

static weft_err give_stack(weft_flow *f, uint32_t i, const stack *s)
{
    uint32_t result = f->layout.n_carried + i, axis = 0;
    weft_tensor t = s->round;
    if (s->joined)
        return give_joined(f, result, s);
    if (t.rank >= WEFT_RANK_MAX || !weft_flow_axis(f->attrs, true, i, (uint32_t)t.rank + 1, &axis))
        return fail(f, "an axis is out of range");
    for (int32_t d = t.rank; d > (int32_t)axis; d--)
        t.dim[d] = t.dim[d - 1];
    t.dim[axis] = s->n;
    t.rank++;
    if (weft_tensor_numel(&t) < 0)
        return fail(f, "a result is too large");
    void *data = NULL;
    WEFT_TRY(f->place(f, result, &t, &data));
    if (data && weft_tensor_numel(&t) > 0)
        interleave(s, axis, is_reversed(f->attrs, true, i), data);
    return WEFT_ERR_OK;
}

/* Runs the body once; `first_out` counts from its carried outputs. */
static weft_err run_round(rounds *r, const weft_tensor **out)
{
    weft_flow *f = r->f;
    const weft_flow_layout *l = &f->layout;
    if (f->round)
        WEFT_TRY(f->round(f, r->iteration));
    WEFT_TRY(f->run(f, 0, r->in, out));
    const weft_tensor *result = *out + l->first_out;
    for (uint32_t k = 0; k < l->n_stacked; k++)
        WEFT_TRY(push(f, &r->stacked[k], k, &result[l->n_carried + k]));
    for (uint32_t k = 0; k < l->n_carried; k++)
        WEFT_TRY(keep(f, &r->carried[k], &result[k], &r->in[l->first_carried + k]));
    return WEFT_ERR_OK;
}

static weft_err give_results(rounds *r)
{
    weft_flow *f = r->f;
    const weft_flow_layout *l = &f->layout;
    for (uint32_t k = 0; k < l->n_carried; k++)
        WEFT_TRY(give_result(f, k, &r->in[l->first_carried + k]));
    for (uint32_t k = 0; k < l->n_stacked; k++) {
        stack *s = &r->stacked[k];
        if (s->n == 0) {
            WEFT_TRY(f->shape(f, r->in, l->first_out + l->n_carried + k, &s->round));
            s->joined = weft_flow_joined(f->attrs, k, (uint32_t)s->round.rank, &s->axis);
        }
        WEFT_TRY(give_stack(f, k, s));
    }
    return WEFT_ERR_OK;
}

static weft_err run_loop(rounds *r)
{
    weft_flow *f = r->f;
    int64_t limit = INT64_MAX;
    bool go = true;
    if (f->n_in > 0 && f->in[0].dtype != WEFT_DTYPE_NONE) {
        if (f->in[0].dtype != WEFT_DTYPE_I64 || weft_tensor_numel(&f->in[0]) != 1)
            return fail(f, "the trip count is not one element");
        limit = *(const int64_t *)f->in[0].data;
    }
    if (f->n_in > 1 && f->in[1].dtype != WEFT_DTYPE_NONE)
        WEFT_TRY(read_condition(f, &f->in[1], &go));
    r->in[0] = (weft_tensor){.dtype = WEFT_DTYPE_I64, .data = &r->iteration};
    r->in[1] = (weft_tensor){.dtype = WEFT_DTYPE_BOOL, .data = &r->condition};
    for (int i = 0; i < 2; i++) {
        r->in[i].rank = f->formal_rank[i];
        r->in[i].dim[0] = f->formal_rank[i] > 0;
    }
    for (r->iteration = 0; r->iteration < limit && go; r->iteration++) {
        const weft_tensor *out;
        r->condition = 1;
        WEFT_TRY(run_round(r, &out));
        WEFT_TRY(read_condition(f, &out[0], &go));
    }
    if (r->iteration < weft_attrs_int(f->attrs, WEFT_ATTR_MIN_ROUNDS, 0))
        return fail(f, "no round ran, but the ranks of its results are those that a round gives");
    return give_results(r);
}

/* Slice t of sliced input i. */
static weft_err take_slice(rounds *r, uint32_t i, uint32_t axis, int64_t t)
{
    weft_flow *f = r->f;
    const weft_tensor *from = &f->in[f->layout.first_carried + f->layout.n_carried + i];
    weft_tensor *to = &r->in[f->layout.n_carried + i];
    size_t outer = 1, inner = weft_dtype_size(from->dtype), n = (size_t)from->dim[axis];
    for (int32_t d = 0; d < from->rank; d++)
        if ((uint32_t)d != axis)
            *((uint32_t)d < axis ? &outer : &inner) *= (size_t)from->dim[d];
    if (is_reversed(f->attrs, false, i))
        t = from->dim[axis] - 1 - t;
    *to = (weft_tensor){.dtype = from->dtype, .rank = from->rank - 1};
    for (int32_t d = 0, k = 0; d < from->rank; d++)
        if ((uint32_t)d != axis)
            to->dim[k++] = from->dim[d];
    if (outer == 1) {
        to->data = (char *)from->data + (size_t)t * inner;
        return WEFT_ERR_OK;
    }
    WEFT_TRY(grow(f, &r->slice[i], outer * inner + 1));
    to->data = r->slice[i].at;
    for (size_t o = 0; o < outer && inner; o++)
        memcpy((char *)to->data + o * inner, (const char *)from->data + (o * n + (size_t)t) * inner,
               inner);
    return WEFT_ERR_OK;
}

static weft_err run_scan(rounds *r)
{
    weft_flow *f = r->f;
    const weft_flow_layout *l = &f->layout;
    int64_t n = -1;
    uint32_t axis[UINT8_MAX];
    if (l->n_sliced > UINT8_MAX)
        return fail(f, "too many scanned inputs");
    for (uint32_t i = 0; i < l->n_sliced; i++) {
        const weft_tensor *t = &f->in[l->first_carried + l->n_carried + i];
        if (t->rank < 1 || !weft_flow_axis(f->attrs, false, i, (uint32_t)t->rank, &axis[i]))
            return fail(f, "an axis is out of range");
        if (n >= 0 && n != t->dim[axis[i]])
            return fail(f, "the scanned inputs differ in length");
        n = t->dim[axis[i]];
    }
    if (n == 0)
        return fail(f, "the scanned inputs have no elements");
    for (int64_t t = 0; t < n; t++) {
        const weft_tensor *out;
        r->iteration = t;
        for (uint32_t i = 0; i < l->n_sliced; i++)
            WEFT_TRY(take_slice(r, i, axis[i], t));
        WEFT_TRY(run_round(r, &out));
    }
    return give_results(r);
}

static weft_err run_rounds(weft_flow *f)
{
    const weft_flow_layout *l = &f->layout;
    rounds r = {.f = f, .condition = 1, .in = make_inputs(f, 0)};
    r.carried = calloc(l->n_carried + (size_t)1, sizeof *r.carried);
    r.stacked = calloc(l->n_stacked + (size_t)1, sizeof *r.stacked);
    r.slice = calloc(l->n_sliced + (size_t)1, sizeof *r.slice);
    weft_err err = WEFT_ERR_NOMEM;
    if (r.in && r.carried && r.stacked && r.slice) {
        for (uint32_t k = 0; k < l->n_carried; k++)
            r.in[l->first_carried + k] = f->in[l->first_carried + k];
        err = f->op == WEFT_OP_LOOP ? run_loop(&r) : run_scan(&r);
    }
    for (uint32_t k = 0; r.carried && k < l->n_carried; k++)
        drop(f, &r.carried[k]);
    for (uint32_t k = 0; r.stacked && k < l->n_stacked; k++) {
        drop(f, &r.stacked[k].block);
        drop(f, &r.stacked[k].sizes);
    }
    for (uint32_t k = 0; r.slice && k < l->n_sliced; k++)
        drop(f, &r.slice[k]);
    free(r.in);
    free(r.carried);
    free(r.stacked);
    free(r.slice);
    return err;
}

weft_err weft_flow_run(weft_flow *f)
{
    uint32_t needed = f->layout.n_formal;
    for (uint32_t b = 0; b < f->layout.n_body; b++)
        needed = f->layout.first_capture[b] + f->layout.n_capture[b];
    for (uint32_t i = f->op == WEFT_OP_LOOP ? 2 : 0; i < needed; i++)
        if (i >= f->n_in || f->in[i].dtype == WEFT_DTYPE_NONE)
            return fail(f, "an operand is missing");
    return f->op == WEFT_OP_IF ? run_if(f) : run_rounds(f);
}
