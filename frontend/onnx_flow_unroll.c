/* Loops of a few rounds, as torch exports tensor_split: the nodes of each round, in the graph
 * around the loop. The shapes of each round are then known, and so are the elements of a list that
 * differ in shape. */
#include "frontend/onnx_flow_int.h"

#include <string.h>

/* Rounds of a loop, and nodes of all rounds of a model, so that loops in each other stay small. */
enum { ROUNDS_MAX = 8, NODES_MAX = 4096 };

/* Whether the tensor has one element that is not 0. */
static bool is_true(const Onnx__TensorProto *t)
{
    return t->n_int32_data == 1 ? t->int32_data[0] != 0
                                : t->n_int32_data == 0 && t->has_raw_data && t->raw_data.len == 1 &&
                                      t->raw_data.data[0] != 0;
}

static bool is_true_constant(const Onnx__NodeProto *n)
{
    const Onnx__AttributeProto *a = n->n_attribute == 1 ? n->attribute[0] : NULL;
    return weft_onnx__is_plain(n, "Constant") && a && a->name && strcmp(a->name, "value") == 0 &&
           a->t && is_true(a->t);
}

/* Whether the body defines the name; *out: as a constant that is true. */
static bool is_own(const Onnx__GraphProto *body, const char *name, bool *out)
{
    *out = false;
    for (size_t i = 0; i < body->n_input; i++)
        if (body->input[i]->name && strcmp(body->input[i]->name, name) == 0)
            return true;
    for (size_t i = 0; i < body->n_initializer; i++)
        if (body->initializer[i]->name && strcmp(body->initializer[i]->name, name) == 0) {
            *out = is_true(body->initializer[i]);
            return true;
        }
    for (size_t i = 0; i < body->n_node; i++)
        for (size_t k = 0; k < body->node[i]->n_output; k++)
            if (strcmp(body->node[i]->output[k], name) == 0) {
                *out = is_true_constant(body->node[i]);
                return true;
            }
    return false;
}

/* Whether the body, or a graph in it, may draw random numbers, other ones in each round. */
static bool is_random(const Onnx__GraphProto *body)
{
    for (size_t i = 0; i < body->n_node; i++) {
        const Onnx__NodeProto *n = body->node[i];
        const char *op = n->op_type ? n->op_type : "";
        if (strncmp(op, "Random", 6) == 0 || strcmp(op, "Bernoulli") == 0 ||
            strcmp(op, "Multinomial") == 0)
            return true;
        for (size_t k = 0; k < n->n_attribute; k++)
            if (n->attribute[k]->g && is_random(n->attribute[k]->g))
                return true;
    }
    return false;
}

/* Whether a value is known and not 0. */
static bool is_known_true(weft_onnx_ctx *cx, weft_val v)
{
    double x;
    return v.i && !weft_onnx__is_sequence(v) && weft_onnx__known(cx, v, &x) && x != 0;
}

/* Whether every round asks for the next one. */
static bool goes_on(const weft_onnx_call *c, const Onnx__GraphProto *body)
{
    bool is = false;
    const char *name = weft_onnx__source_name(body, 0);
    const char *condition = body->n_input > 1 ? body->input[1]->name : NULL;
    if (!name || !condition)
        return false;
    if (strcmp(name, condition) == 0)
        return true;
    if (is_own(body, name, &is))
        return is;
    if (!weft_onnx__is_defined(c->cx, c->scope, name))
        return false;
    const weft_onnx_name *e = weft_onnx__read(c->cx, c->scope, name);
    return e->bind == WEFT_ONNX_BOUND && is_known_true(c->cx, e->val);
}

uint32_t weft_onnx__few_rounds(const weft_onnx_call *c, const Onnx__GraphProto *body)
{
    double rounds;
    weft_onnx_ctx *cx = c->cx;
    if (c->n_in < WEFT_ONNX_LOOP_FIRST || !c->in[0].i || weft_onnx__is_sequence(c->in[0]) ||
        !weft_onnx__known(cx, c->in[0], &rounds) || rounds < 1 || rounds > ROUNDS_MAX ||
        body->n_node > NODES_MAX || cx->n_unrolled + rounds * (double)body->n_node > NODES_MAX ||
        (c->in[1].i && !is_known_true(cx, c->in[1])) || body->n_output < c->n_in - 1 ||
        c->n_listed > body->n_output - 1 || is_random(body))
        return 0;
    for (uint32_t i = WEFT_ONNX_LOOP_FIRST; i < c->n_in; i++)
        if (!c->in[i].i)
            return 0;
    return goes_on(c, body) ? (uint32_t)rounds : 0;
}

/* A constant of the rank that the body declares for its input. */
static weft_val formal(weft_onnx_call *c, const Onnx__GraphProto *body, size_t i, weft_dtype dtype,
                       const void *element)
{
    const int64_t one = 1;
    return weft_onnx__const(c, dtype, &one, weft_onnx__declared_rank(body, i), element);
}

weft_err weft_onnx__unroll(weft_onnx_call *c, const Onnx__GraphProto *body, uint32_t rounds)
{
    weft_arena *arena = c->cx->arena;
    weft_onnx_build b = {.c = c};
    uint32_t n_carried = c->n_in - WEFT_ONNX_LOOP_FIRST, n_out = (uint32_t)body->n_output;
    uint32_t n_scan = n_out - 1 - n_carried;
    weft_val *in = weft_arena_array(arena, c->n_in, sizeof *in);
    weft_val *out = weft_arena_array(arena, n_out, sizeof *out);
    weft_val *part = weft_arena_array(arena, (size_t)n_scan * rounds + 1, sizeof *part);
    const bool yes = true;
    c->cx->n_unrolled += rounds * (uint32_t)body->n_node;
    memcpy(in, c->in, c->n_in * sizeof *in);
    in[1] = formal(c, body, 1, WEFT_DTYPE_BOOL, &yes);
    for (uint32_t r = 0; r < rounds; r++) {
        const int64_t number = r;
        in[0] = formal(c, body, 0, WEFT_DTYPE_I64, &number);
        WEFT_TRY(weft_onnx__flow_inline(c, "body", weft_arena_printf(arena, "body.%u", r), in,
                                        c->n_in, out, n_out));
        for (uint32_t i = 1; i < n_out; i++)
            if (!out[i].i)
                return WEFT_ERR_OK; /* a node was refused */
        memcpy(in + WEFT_ONNX_LOOP_FIRST, out + 1, n_carried * sizeof *in);
        for (uint32_t i = 0; i < n_scan; i++) {
            weft_val v = out[1 + n_carried + i];
            if (weft_onnx__is_sequence(v))
                return weft_onnx__fail(c, WEFT_ERR_UNSUP, "a result of rounds is a sequence");
            part[i * rounds + r] = weft_onnx__unsqueeze(&b, v, 0);
        }
    }
    for (uint32_t i = 0; i < c->n_out; i++)
        c->out[i] = i < n_carried
                        ? in[WEFT_ONNX_LOOP_FIRST + i]
                        : weft_onnx__concat(&b, part + (i - n_carried) * rounds, rounds, 0);
    return b.err;
}
