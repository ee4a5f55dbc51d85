/* Every element-wise operator of the table for GPUs: kernels of emit_math.c, run on the host,
 * against the operators' references, over all element types that an operator takes, with
 * broadcasting, NaN and infinities, zeros among divisors. Steps have tests of their own
 * (test_cuda_emit.c). */
#include "ir/ir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/cuda_case.h"

/* What a node of an operator needs beside one or two operands. */
static const struct {
    weft_op_id op;
    const char *operands, *attrs;
} variants[] = {
    {WEFT_OP_WHERE, "%c, %x, %z", ""},
    {WEFT_OP_BIT_SHIFT, "%x, %z", " {direction = \"RIGHT\"}"},
    {WEFT_OP_BIT_SHIFT, "%x, %z", " {direction = \"LEFT\"}"},
    {WEFT_OP_MOD, "%x, %z", " {fmod = 1}"},
    {WEFT_OP_MOD, "%x, %z", ""},
    {WEFT_OP_MIN, "%x", ""},
    {WEFT_OP_MAX, "%z, %x, %z", ""},
    {WEFT_OP_SUM, "%z, %x, %z", ""},
    {WEFT_OP_MEAN, "%z, %x, %z", ""},
    {WEFT_OP_CLIP, "%x, %n", ""},
    {WEFT_OP_CLIP, "%x, _, %n", ""},
    {WEFT_OP_CLIP, "%x", " {max = 30, min = 2}"},
    {WEFT_OP_CLIP, "%x", " {max = 0.5, min = -0.25}"},
    {WEFT_OP_GELU, "%x", " {approximate = \"tanh\"}"},
    {WEFT_OP_IS_INF, "%x", " {detect_negative = 0}"},
    {WEFT_OP_SELU, "%x", " {alpha = 2.5}"},
    {WEFT_OP_CELU, "%x", " {alpha = 2.5}"},
    {WEFT_OP_SHRINK, "%x", " {bias = 3.0, lambd = 0.25}"},
};

enum { VARIANTS = sizeof variants / sizeof variants[0] };

static bool is_tested_elsewhere(const weft_op *op)
{
    weft_op_id id = weft_op_find(op->name);
    return !(op->traits & WEFT_T_EW) || id == WEFT_OP_EW || id == WEFT_OP_CAST;
}

static void print_graph(weft_buf *out, uint32_t i, const char *type, const char *result,
                        const char *name, const char *operands, const char *attrs)
{
    weft_buf_printf(
        out,
        "graph @%s_%u (%%x : %s[3,5,70], %%z : %s[5,1], %%c : bool[3,1,70], %%n : %s[]) "
        "{\n  %%y : %s[3,5,70] = %s %s%s\n  return \"y\" %%y\n}\n",
        name, i, type, type, type, result, name, operands, attrs);
}

/* Whether the operator takes the type at all. */
static bool is_legal(const char *graph)
{
    weft_buf text = {0};
    weft_diag *diag = weft_diag_create();
    weft_module *m = NULL;
    weft_buf_printf(&text, "wir 1 kernel\n%s", graph);
    bool ok = weft_module_parse(text.at, text.len, "t", NULL, diag, &m) == WEFT_ERR_OK &&
              weft_module_verify(m, diag) == WEFT_ERR_OK;
    weft_module_destroy(m);
    weft_diag_destroy(diag);
    weft_buf_finish(&text);
    return ok;
}

static uint32_t add_graph(weft_buf *out, uint32_t n, const char *type, const weft_op *op,
                          const char *operands, const char *attrs)
{
    const char *const result[] = {type, "bool"};
    for (int i = 0; i < 2; i++) {
        weft_buf one = {0};
        print_graph(&one, n, type, result[i], op->name, operands, attrs);
        bool ok = is_legal(one.at);
        if (ok)
            weft_buf_puts(out, one.at);
        weft_buf_finish(&one);
        if (ok)
            return n + 1;
    }
    return n;
}

/* All operators for one type; returns their number. */
static uint32_t check_type(const char *type)
{
    weft_buf text = {0};
    uint32_t n = 0;
    weft_buf_puts(&text, "wir 1 kernel\n");
    for (int id = 1; id < WEFT_OP_COUNT; id++) {
        const weft_op *op = weft_op_get((weft_op_id)id);
        if (is_tested_elsewhere(op))
            continue;
        if (op->in_min <= 2)
            n = add_graph(&text, n, type, op, op->in_min == 1 ? "%x" : "%x, %z", "");
        for (int v = 0; v < VARIANTS; v++)
            if (variants[v].op == (weft_op_id)id)
                n = add_graph(&text, n, type, op, variants[v].operands, variants[v].attrs);
    }
    cuda_case *c = cuda_case_start(text.at);
    for (uint32_t i = 0; i < n; i++)
        for (size_t shift = 0; shift < 2; shift++)
            cuda_case_verify(c, i, &(cuda_case_spec){.shift = shift, .special = shift});
    cuda_case_stop(c);
    weft_buf_finish(&text);
    return n;
}

static void test_cuda_math__floats_equal_the_reference(void **state)
{
    (void)state;
    assert_true(check_type("f32") >= 60);
    assert_true(check_type("f64") >= 60);
    assert_true(check_type("f16") >= 60);
    assert_true(check_type("bf16") >= 60);
}

static void test_cuda_math__integers_equal_the_reference(void **state)
{
    (void)state;
    static const char *const type[] = {"i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"};
    for (size_t i = 0; i < sizeof type / sizeof type[0]; i++)
        assert_true(check_type(type[i]) >= 20);
    assert_true(check_type("bool") >= 4);
}

/* Powers of other types than the base's. */
static void test_cuda_math__powers_of_mixed_types(void **state)
{
    (void)state;
    cuda_case *c = cuda_case_start("wir 1 kernel\n"
                                   "graph @a (%x : i32[70], %z : f32[70]) {\n"
                                   "  %y : i32[70] = pow %x, %z\n  return \"y\" %y\n}\n"
                                   "graph @b (%x : f32[70], %z : i64[70]) {\n"
                                   "  %y : f32[70] = pow %x, %z\n  return \"y\" %y\n}\n"
                                   "graph @c (%x : i64[7,1], %z : i32[70]) {\n"
                                   "  %y : i64[7,70] = pow %x, %z\n  return \"y\" %y\n}\n");
    for (uint32_t i = 0; i < 3; i++)
        cuda_case_verify(c, i, &(cuda_case_spec){0});
    cuda_case_stop(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_math__floats_equal_the_reference),
        cmocka_unit_test(test_cuda_math__integers_equal_the_reference),
        cmocka_unit_test(test_cuda_math__powers_of_mixed_types),
    };
    return cuda_host_status(cmocka_run_group_tests(tests, NULL, NULL));
}
