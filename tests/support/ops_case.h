/* One operator with operands and attributes, for unit tests: types are written as text ("?b, 768"),
 * results compared the same way. */
#ifndef WEFT_TESTS_SUPPORT_OPS_CASE_H
#define WEFT_TESTS_SUPPORT_OPS_CASE_H

#include "ops/ops.h"

#include <stdlib.h>
#include <string.h>

enum { CASE_IN = 10, CASE_OUT = 4, CASE_ATTR = 12 };

typedef struct ops_case {
    weft_arena *arena;
    weft_dimpool *pool;
    weft_diag *diag;
    weft_operand in[CASE_IN];
    weft_tensor tensor[CASE_IN]; /* of operands with data */
    weft_attr attr[CASE_ATTR];
    uint32_t n_attr, n_in;
    weft_ttype out[CASE_OUT];
    const weft_dim *content[CASE_OUT];
    weft_tensor result[CASE_OUT];
} ops_case;

static ops_case *cs;

static inline int case_set_up(void **state)
{
    (void)state;
    cs = calloc(1, sizeof *cs);
    cs->arena = weft_arena_create(0);
    cs->pool = weft_dimpool_create(cs->arena);
    cs->diag = weft_diag_create();
    return 0;
}

static inline int case_tear_down(void **state)
{
    (void)state;
    weft_diag_destroy(cs->diag);
    weft_arena_destroy(cs->arena);
    free(cs);
    return 0;
}

/* Removes all operands and attributes. */
static inline void again(void)
{
    memset(cs->in, 0, sizeof cs->in);
    memset(cs->out, 0, sizeof cs->out);
    memset(cs->content, 0, sizeof cs->content);
    cs->n_attr = cs->n_in = 0;
    weft_diag_clear(cs->diag);
}

/* "?b, 768" to dims. */
static inline uint32_t dims_of(const char *text, weft_dim *out)
{
    uint32_t n = 0;
    while (*text != '\0') {
        size_t used = weft_dim_parse(cs->pool, text, &out[n]);
        if (used == 0)
            fail_msg("cannot read \"%s\"", text);
        n++;
        text += used;
        text += strspn(text, ", ");
    }
    return n;
}

static inline void operand(uint32_t i, weft_dtype dtype, const char *dims)
{
    weft_operand *o = &cs->in[i];
    *o = (weft_operand){.present = true, .type = {.dtype = (uint8_t)dtype}};
    o->type.rank = (uint8_t)dims_of(dims, o->type.dim);
    if (cs->n_in <= i)
        cs->n_in = i + 1;
}

/* An integer operand with known symbolic elements. */
static inline void operand_content(uint32_t i, const char *dims, const char *content)
{
    weft_dim *list = weft_arena_array(cs->arena, 64, sizeof *list);
    operand(i, WEFT_DTYPE_I64, dims);
    cs->in[i].n_content = dims_of(content, list);
    cs->in[i].content = list;
}

/* An operand with data; its dimensions must be constant. */
static inline void operand_data(uint32_t i, weft_dtype dtype, const char *dims, const void *data)
{
    operand(i, dtype, dims);
    const weft_ttype *type = &cs->in[i].type;
    weft_tensor *t = &cs->tensor[i];
    *t = (weft_tensor){.dtype = dtype, .rank = type->rank};
    memcpy(t->dim, type->dim, sizeof t->dim);
    size_t bytes = weft_tensor_bytes(t);
    t->data = weft_arena_alloc(cs->arena, bytes);
    if (bytes > 0)
        memcpy(t->data, data, bytes);
    cs->in[i].data = t->data;
}

static inline weft_attr *add_attr(weft_attr_key key, weft_attr_kind kind)
{
    weft_attr *a = &cs->attr[cs->n_attr++];
    *a = (weft_attr){.key = (uint16_t)key, .kind = (uint16_t)kind};
    for (; a > cs->attr && a[-1].key > a->key; a--) {
        weft_attr swap = a[-1];
        a[-1] = *a;
        *a = swap;
    }
    return a;
}

static inline void attr_int(weft_attr_key key, int64_t x)
{
    add_attr(key, WEFT_KIND_INT)->u.i = x;
}

static inline void attr_str(weft_attr_key key, const char *s)
{
    add_attr(key, WEFT_KIND_STR)->u.s = s;
}

static inline void attr_dims(weft_attr_key key, const char *dims)
{
    weft_dim *list = weft_arena_array(cs->arena, 64, sizeof *list);
    weft_attr *a = add_attr(key, WEFT_KIND_DIMS);
    a->n = dims_of(dims, list);
    a->u.dims = list;
}

static inline void attr_ints(weft_attr_key key, const char *ints)
{
    attr_dims(key, ints);
    for (uint32_t i = 0; i < cs->n_attr; i++)
        if (cs->attr[i].key == key)
            cs->attr[i].kind = WEFT_KIND_INTS;
}

static inline void attr_floats(weft_attr_key key, const double *list, uint32_t n)
{
    weft_attr *a = add_attr(key, WEFT_KIND_FLOATS);
    a->n = n;
    a->u.floats = list;
}

static inline void attr_strs(weft_attr_key key, const char *const *list, uint32_t n)
{
    weft_attr *a = add_attr(key, WEFT_KIND_STRS);
    a->n = n;
    a->u.strs = list;
}

static inline weft_err try_infer(weft_op_id op, uint32_t n_out)
{
    memset(cs->out, 0, sizeof cs->out);
    memset(cs->content, 0, sizeof cs->content);
    weft_infer_ctx cx = {.op = weft_op_get(op),
                         .attrs = {cs->attr, cs->n_attr},
                         .pool = cs->pool,
                         .arena = cs->arena,
                         .in = cs->in,
                         .n_in = cs->n_in,
                         .out = cs->out,
                         .out_content = cs->content,
                         .n_out = n_out,
                         .diag = cs->diag};
    return weft_op_infer(&cx);
}

static inline void infer(weft_op_id op, uint32_t n_out)
{
    weft_err err = try_infer(op, n_out);
    if (err != WEFT_ERR_OK)
        fail_msg("%s: %s", weft_err_name(err),
                 weft_diag_count(cs->diag) ? weft_diag_at(cs->diag, 0)->text : "no message");
}

static inline void expect_list(const weft_dim *have, uint32_t n_have, const char *want)
{
    weft_dim list[64];
    uint32_t n = dims_of(want, list);
    weft_buf text = {0};
    for (uint32_t i = 0; i < n_have; i++) {
        weft_buf_puts(&text, i ? ", " : "");
        weft_dim_print(cs->pool, have[i], &text);
    }
    bool same = n == n_have;
    for (uint32_t i = 0; same && i < n; i++)
        same = list[i] == have[i];
    if (!same)
        fail_msg("[%s] instead of [%s]", text.at ? text.at : "", want);
    weft_buf_finish(&text);
}

static inline void expect_dims(uint32_t out, const char *dims)
{
    expect_list(cs->out[out].dim, cs->out[out].rank, dims);
}

static inline void expect_content(uint32_t out, const char *content)
{
    int64_t n = 1;
    for (uint32_t d = 0; d < cs->out[out].rank; d++)
        n *= cs->out[out].dim[d];
    assert_non_null(cs->content[out]);
    expect_list(cs->content[out], (uint32_t)n, content);
}

/* The operator is refused with this code and a message that contains this text. */
static inline void refuse(weft_op_id op, weft_err err, const char *text)
{
    assert_int_equal(try_infer(op, 1), err);
    assert_true(weft_diag_count(cs->diag) > 0);
    if (!strstr(weft_diag_at(cs->diag, 0)->text, text))
        fail_msg("got: %s", weft_diag_at(cs->diag, 0)->text);
    weft_diag_clear(cs->diag);
}

/* Runs infer and eval; all operands have data. */
static inline weft_err try_eval(weft_op_id op, uint32_t n_out)
{
    const weft_tensor *in[CASE_IN] = {NULL};
    infer(op, n_out);
    for (uint32_t i = 0; i < cs->n_in; i++)
        in[i] = cs->in[i].present ? &cs->tensor[i] : NULL;
    for (uint32_t o = 0; o < n_out; o++) {
        weft_tensor *t = &cs->result[o];
        *t = (weft_tensor){.dtype = (weft_dtype)cs->out[o].dtype, .rank = cs->out[o].rank};
        memcpy(t->dim, cs->out[o].dim, sizeof t->dim);
        t->data = weft_arena_alloc(cs->arena, weft_tensor_bytes(t));
    }
    weft_eval_ctx cx = {.op = weft_op_get(op),
                        .attrs = {cs->attr, cs->n_attr},
                        .in = in,
                        .n_in = cs->n_in,
                        .out = cs->result,
                        .n_out = n_out,
                        .scratch = cs->arena,
                        .diag = cs->diag};
    return weft_op_eval(&cx);
}

static inline void eval(weft_op_id op, uint32_t n_out)
{
    weft_err err = try_eval(op, n_out);
    if (err != WEFT_ERR_OK)
        fail_msg("%s: %s", weft_err_name(err),
                 weft_diag_count(cs->diag) ? weft_diag_at(cs->diag, 0)->text : "no message");
}

/* Result `out` has these dimensions and, within 1e-5, these elements. */
static inline void expect_values(uint32_t out, const char *dims, const double *want)
{
    expect_dims(out, dims);
    int64_t n = weft_tensor_numel(&cs->result[out]);
    for (int64_t i = 0; i < n; i++) {
        double x = weft_tensor_get_f64(&cs->result[out], i);
        if (!(x - want[i] <= 1e-5 && want[i] - x <= 1e-5))
            fail_msg("element %lld is %g instead of %g", (long long)i, x, want[i]);
    }
}

#endif
