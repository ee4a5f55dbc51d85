/* An ONNX model that a test writes and imports, and checks of the result. The test declares its own
 * main. */
#ifndef WEFT_TESTS_SUPPORT_ONNX_SUBJECT_H
#define WEFT_TESTS_SUPPORT_ONNX_SUBJECT_H

#include "frontend/frontend.h"
#include "tests/support/onnx_writer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

typedef struct subject {
    weft_module *m;
    weft_graph *g;
    weft_diag *diag;
    weft_err err;
    uint8_t *bytes;
} subject;

static inline subject import_with(weft_buf *model, const weft_import_options *options)
{
    subject s = {.m = weft_module_create(0), .diag = weft_diag_create()};
    s.bytes = malloc(model->len);
    memcpy(s.bytes, model->at, model->len);
    s.err = weft_import_onnx_bytes(s.m, s.bytes, model->len, NULL, "dir/net-1.onnx", options,
                                   s.diag, &s.g);
    weft_buf_finish(model);
    *model = (weft_buf){0};
    return s;
}

static inline subject import(weft_buf *graph, int64_t opset)
{
    weft_buf model = {0};
    onnx_put_model(&model, graph, opset);
    return import_with(&model, NULL);
}

static inline void release(subject *s)
{
    weft_diag_destroy(s->diag);
    weft_module_destroy(s->m);
    free(s->bytes);
}

static inline bool says(const subject *s, const char *part)
{
    for (size_t i = 0; i < weft_diag_count(s->diag); i++) {
        char text[500];
        weft_diag_format(weft_diag_at(s->diag, i), text, sizeof text);
        if (strstr(text, part))
            return true;
    }
    return false;
}

static inline void check_ok(const subject *s)
{
    if (s->err != WEFT_ERR_OK)
        fail_msg("%s", weft_diag_at(s->diag, 0)->text);
}

static inline void check_fails(subject s, weft_err err, const char *part)
{
    if (!says(&s, part))
        fail_msg("\"%s\" does not hold \"%s\"",
                 weft_diag_count(s.diag) ? weft_diag_at(s.diag, 0)->text : "", part);
    assert_int_equal(s.err, err);
    release(&s);
}

/* Values of the only output at the inputs given (f32). */
static inline void check_values(subject *s, const weft_tensor *in, uint32_t n_in,
                                const float *wanted, int64_t n)
{
    weft_arena *arena = weft_arena_create(0);
    weft_tensor out;
    check_ok(s);
    if (weft_graph_eval(s->g, in, n_in, arena, s->diag, &out, 1) != WEFT_ERR_OK)
        fail_msg("%s", weft_diag_at(s->diag, 0)->text);
    assert_int_equal(weft_tensor_numel(&out), n);
    for (int64_t i = 0; i < n; i++)
        assert_float_equal(weft_tensor_get_f64(&out, i), wanted[i], 1e-5);
    weft_arena_destroy(arena);
    release(s);
}

static inline char *text_of(subject *s, weft_buf *b)
{
    weft_module_print(s->m, b);
    return b->at;
}

static inline void put_ends(weft_buf *graph, const char *x_dims, const char *y_dims)
{
    onnx_put_value(graph, ONNX_INPUT, "x", ONNX_FLOAT, x_dims);
    onnx_put_value(graph, ONNX_OUTPUT, "y", ONNX_FLOAT, y_dims);
}

#endif
