/* Tables of small graphs that are compiled for a GPU, run on the host and compared with the
 * operators' references, once at even and once at crooked addresses with NaN and infinities. */
#ifndef WEFT_TESTS_SUPPORT_CUDA_GRAPHS_H
#define WEFT_TESTS_SUPPORT_CUDA_GRAPHS_H

#include "tests/support/cuda_case.h"
#include "tests/support/typed_text.h"

/* One graph. In the texts T is the element type at hand. */
typedef struct emit_case {
    const char *inputs;  /* "%x : T[?b,3]" */
    const char *node;    /* "T[?b,3] = ew %x {...}" */
    const char *symbols; /* those of ?b, ?s, ?t in use, in this order: "bs" */
    int64_t symbol[3];
    bool plain; /* no NaN among the inputs: the order of maxima is not told with them */
} emit_case;

/* A module with a graph for each case; symbols have names of their own in each. */
static inline char *emit_case_text(const emit_case *cases, size_t n, const char *weights,
                                   const char *type)
{
    weft_buf out = {0}, body = {0};
    weft_buf_puts(&out, "wir 1 kernel\n");
    for (size_t i = 0; i < n; i++) {
        const emit_case *c = &cases[i];
        for (const char *s = c->symbols; *s; s++)
            weft_buf_printf(&out, "symbol ?%c%zu = [0, inf]\n", *s, i);
        weft_buf_printf(&body, "graph @g%zu (", i);
        put_typed(&body, c->inputs, type);
        weft_buf_puts(&body, ") {\n");
        for (const char *s = c->symbols; *s; s++)
            weft_buf_printf(&body, "  symbol ?%c%zu \"%c\"\n", *s, i, *s);
        weft_buf_puts(&body, "  %y : ");
        put_typed(&body, c->node, type);
        weft_buf_puts(&body, "\n  return \"y\" %y\n}\n");
    }
    weft_buf_puts(&out, weights);
    /* "?b" of case 7 is "?b7". */
    size_t graph = 0;
    for (const char *s = body.at; *s; s++) {
        if (strncmp(s, "graph @g", 8) == 0)
            graph = (size_t)strtoul(s + 8, NULL, 10);
        weft_buf_putc(&out, *s);
        if (s[0] == '?' && strchr("bst", s[1]) && !(s[2] >= '0' && s[2] <= '9')) {
            weft_buf_printf(&out, "%c%zu", s[1], graph);
            s++;
        }
    }
    weft_buf_finish(&body);
    return out.at;
}

static inline void check_cases(const emit_case *cases, size_t n, const char *weights,
                               const char *type, double tolerance)
{
    char *text = emit_case_text(cases, n, weights, type);
    cuda_case *c = cuda_case_start(text);
    for (uint32_t i = 0; i < n; i++)
        for (size_t shift = 0; shift < 2; shift++) {
            const cuda_case_spec spec = {.symbol = cases[i].symbol,
                                         .shift = shift,
                                         .special = shift == 1 && !cases[i].plain,
                                         .tolerance = tolerance};
            cuda_case_verify(c, i, &spec);
        }
    cuda_case_stop(c);
    free(text);
}

#define CHECK(cases, weights, type, tolerance) \
    check_cases(cases, sizeof cases / sizeof cases[0], weights, type, tolerance)

/* The same where the weights have the type too. */
static inline void check_typed_weights(const emit_case *cases, size_t n, const char *weights,
                                       const char *type, double tolerance)
{
    weft_buf text = {0};
    put_typed(&text, weights, type);
    check_cases(cases, n, text.at, type, tolerance);
    weft_buf_finish(&text);
}

#endif
