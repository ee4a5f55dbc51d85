/* Writes ONNX messages for tests, byte by byte, so that wrong ones can be written as well.
 *
 *     weft_buf graph = {0}, model = {0};
 *     onnx_put_value(&graph, ONNX_INPUT, "x", 1, "n,4");
 *     onnx_put_node(&graph, "Relu", "x", "y", NULL);
 *     onnx_put_value(&graph, ONNX_OUTPUT, "y", 1, "n,4");
 *     onnx_put_model(&model, &graph, 17);
 *
 * Sub-messages given by pointer are finished (freed) by the call that takes them. */
#ifndef WEFT_TESTS_SUPPORT_ONNX_WRITER_H
#define WEFT_TESTS_SUPPORT_ONNX_WRITER_H

#include "base/str.h"

#include <stdlib.h>
#include <string.h>

/* Field numbers. */
enum { ONNX_INITIALISER = 5, ONNX_INPUT = 11, ONNX_OUTPUT = 12, ONNX_FUNCTION = 25 };
/* Element types. */
enum {
    ONNX_FLOAT = 1,
    ONNX_INT32 = 6,
    ONNX_INT64 = 7,
    ONNX_STRING = 8,
    ONNX_BOOL = 9,
    ONNX_FLOAT16 = 10,
    ONNX_BFLOAT16 = 16
};

static inline void onnx_put_varint(weft_buf *b, uint64_t x)
{
    for (; x > 0x7f; x >>= 7)
        weft_buf_putc(b, (char)((x & 0x7f) | 0x80));
    weft_buf_putc(b, (char)x);
}

static inline void onnx_put_int(weft_buf *b, uint32_t field, int64_t x)
{
    onnx_put_varint(b, (uint64_t)field << 3);
    onnx_put_varint(b, (uint64_t)x);
}

static inline void onnx_put_bytes(weft_buf *b, uint32_t field, const void *at, size_t len)
{
    onnx_put_varint(b, (uint64_t)field << 3 | 2);
    onnx_put_varint(b, len);
    weft_buf_add(b, at, len);
}

static inline void onnx_put_str(weft_buf *b, uint32_t field, const char *s)
{
    onnx_put_bytes(b, field, s, strlen(s));
}

static inline void onnx_put_float(weft_buf *b, uint32_t field, float x)
{
    onnx_put_varint(b, (uint64_t)field << 3 | 5);
    weft_buf_add(b, &x, sizeof x);
}

static inline void onnx_put_msg(weft_buf *b, uint32_t field, weft_buf *sub)
{
    onnx_put_bytes(b, field, sub->at, sub->len);
    weft_buf_finish(sub);
    *sub = (weft_buf){0};
}

/* Calls `put` with each item of a comma-separated list; "" has no items. */
static inline void onnx_put_list(weft_buf *b, uint32_t field, const char *list)
{
    while (list && *list) {
        size_t len = strcspn(list, ",");
        onnx_put_bytes(b, field, list, len);
        list += len;
        if (*list == ',' && *++list == '\0')
            onnx_put_bytes(b, field, "", 0);
    }
}

/* -- Values: dims are numbers, names, or "?" for a dim without either ------------------------- */

static inline void onnx_put_value(weft_buf *graph, uint32_t field, const char *name, int elem_type,
                                  const char *dims)
{
    weft_buf shape = {0}, tensor = {0}, type = {0}, value = {0};
    for (const char *d = dims; d && *d;) {
        size_t len = strcspn(d, ",");
        weft_buf dim = {0};
        if ((d[0] >= '0' && d[0] <= '9') || d[0] == '-')
            onnx_put_int(&dim, 1, strtoll(d, NULL, 10));
        else if (d[0] != '?')
            onnx_put_bytes(&dim, 2, d, len);
        onnx_put_msg(&shape, 1, &dim);
        d += len + (d[len] == ',');
    }
    onnx_put_int(&tensor, 1, elem_type);
    if (dims)
        onnx_put_msg(&tensor, 2, &shape);
    onnx_put_msg(&type, 1, &tensor);
    onnx_put_str(&value, 1, name);
    onnx_put_msg(&value, 2, &type);
    onnx_put_msg(graph, field, &value);
}

/* -- Tensors ---------------------------------------------------------------------------------- */

static inline void onnx_put_dims(weft_buf *tensor, const char *dims)
{
    for (const char *d = dims; d && *d;) {
        onnx_put_int(tensor, 1, strtoll(d, NULL, 10));
        d += strcspn(d, ",");
        d += *d == ',';
    }
}

static inline void onnx_put_tensor_raw(weft_buf *b, uint32_t field, const char *name, int elem_type,
                                       const char *dims, const void *at, size_t len)
{
    weft_buf t = {0};
    onnx_put_dims(&t, dims);
    onnx_put_int(&t, 2, elem_type);
    onnx_put_str(&t, 8, name);
    onnx_put_bytes(&t, 9, at, len);
    onnx_put_msg(b, field, &t);
}

/* -- Attributes: appended to a node ----------------------------------------------------------- */

static inline void onnx_put_attr_int(weft_buf *node, const char *name, int64_t x)
{
    weft_buf a = {0};
    onnx_put_str(&a, 1, name);
    onnx_put_int(&a, 3, x);
    onnx_put_int(&a, 20, 2);
    onnx_put_msg(node, 5, &a);
}

static inline void onnx_put_attr_float(weft_buf *node, const char *name, float x)
{
    weft_buf a = {0};
    onnx_put_str(&a, 1, name);
    onnx_put_float(&a, 2, x);
    onnx_put_int(&a, 20, 1);
    onnx_put_msg(node, 5, &a);
}

static inline void onnx_put_attr_str(weft_buf *node, const char *name, const char *s)
{
    weft_buf a = {0};
    onnx_put_str(&a, 1, name);
    onnx_put_str(&a, 4, s);
    onnx_put_int(&a, 20, 3);
    onnx_put_msg(node, 5, &a);
}

static inline void onnx_put_attr_ints(weft_buf *node, const char *name, const char *list)
{
    weft_buf a = {0};
    onnx_put_str(&a, 1, name);
    for (const char *d = list; *d;) {
        onnx_put_int(&a, 8, strtoll(d, NULL, 10));
        d += strcspn(d, ",");
        d += *d == ',';
    }
    onnx_put_int(&a, 20, 7);
    onnx_put_msg(node, 5, &a);
}

static inline void onnx_put_attr_floats(weft_buf *node, const char *name, const float *x, size_t n)
{
    weft_buf a = {0};
    onnx_put_str(&a, 1, name);
    for (size_t i = 0; i < n; i++)
        onnx_put_float(&a, 7, x[i]);
    onnx_put_int(&a, 20, 6);
    onnx_put_msg(node, 5, &a);
}

static inline void onnx_put_attr_ref(weft_buf *node, const char *name, const char *ref, int type)
{
    weft_buf a = {0};
    onnx_put_str(&a, 1, name);
    onnx_put_str(&a, 21, ref);
    onnx_put_int(&a, 20, type);
    onnx_put_msg(node, 5, &a);
}

/* `graph` is finished. */
static inline void onnx_put_attr_graph(weft_buf *node, const char *name, weft_buf *graph)
{
    weft_buf a = {0};
    onnx_put_str(&a, 1, name);
    onnx_put_msg(&a, 6, graph);
    onnx_put_int(&a, 20, 5);
    onnx_put_msg(node, 5, &a);
}

/* -- Nodes, functions, models ----------------------------------------------------------------- */

/* `attrs` (may be NULL): attributes written by the functions above. `field` 1 in graphs, 7 in
 * functions. */
static inline void onnx_put_node_in(weft_buf *b, uint32_t field, const char *domain, const char *op,
                                    const char *in, const char *out, weft_buf *attrs)
{
    weft_buf n = {0};
    onnx_put_list(&n, 1, in);
    onnx_put_list(&n, 2, out);
    onnx_put_str(&n, 4, op);
    if (*domain)
        onnx_put_str(&n, 7, domain);
    if (attrs) {
        weft_buf_add(&n, attrs->at, attrs->len);
        weft_buf_finish(attrs);
        *attrs = (weft_buf){0};
    }
    onnx_put_msg(b, field, &n);
}

static inline void onnx_put_node(weft_buf *graph, const char *op, const char *in, const char *out,
                                 weft_buf *attrs)
{
    onnx_put_node_in(graph, 1, "", op, in, out, attrs);
}

static inline void onnx_put_opset(weft_buf *b, uint32_t field, const char *domain, int64_t version)
{
    weft_buf o = {0};
    if (*domain)
        onnx_put_str(&o, 1, domain);
    onnx_put_int(&o, 2, version);
    onnx_put_msg(b, field, &o);
}

/* Body: nodes written with field 7. */
static inline void onnx_put_function(weft_buf *model, const char *domain, const char *name,
                                     const char *in, const char *out, const char *attrs,
                                     weft_buf *body)
{
    weft_buf f = {0};
    onnx_put_str(&f, 1, name);
    onnx_put_list(&f, 4, in);
    onnx_put_list(&f, 5, out);
    onnx_put_list(&f, 6, attrs);
    weft_buf_add(&f, body->at, body->len);
    onnx_put_opset(&f, 9, "", 17);
    onnx_put_str(&f, 10, domain);
    weft_buf_finish(body);
    *body = (weft_buf){0};
    onnx_put_msg(model, ONNX_FUNCTION, &f);
}

static inline void onnx_put_model(weft_buf *model, weft_buf *graph, int64_t opset)
{
    onnx_put_int(model, 1, 8);
    onnx_put_opset(model, 8, "", opset);
    onnx_put_msg(model, 7, graph);
}

#endif
