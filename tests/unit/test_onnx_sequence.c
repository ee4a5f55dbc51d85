/* Sequences that are known at import: made, changed and read at constant positions. */
#include "tests/support/onnx_subject.h"

static void put_int(weft_buf *graph, const char *name, int64_t x)
{
    onnx_put_tensor_raw(graph, ONNX_INITIALISER, name, ONNX_INT64, "", &x, sizeof x);
}

/* y of a graph with x = [1, 2, 3, 4, 5, 6] of shape [6]. */
static void check(weft_buf *graph, const float *wanted, int64_t n)
{
    subject s = import(graph, 17);
    float x[6] = {1, 2, 3, 4, 5, 6};
    weft_tensor in = {.dtype = WEFT_DTYPE_F32, .rank = 1, .dim = {6}, .data = x};
    check_values(&s, &in, 1, wanted, n);
}

static void test_onnx_sequence__split_and_at(void **state)
{
    (void)state;
    static const struct {
        int64_t chunk, at;
        float want[3];
        int64_t n;
    } cases[] = {{3, 1, {4, 5, 6}, 3}, {4, -1, {5, 6}, 2}, {2, 0, {1, 2}, 2}};
    for (size_t i = 0; i < 3; i++) {
        weft_buf graph = {0};
        put_ends(&graph, "6", NULL);
        put_int(&graph, "chunk", cases[i].chunk);
        put_int(&graph, "at", cases[i].at);
        onnx_put_node(&graph, "SplitToSequence", "x,chunk", "s", NULL);
        onnx_put_node(&graph, "SequenceAt", "s,at", "y", NULL);
        check(&graph, cases[i].want, cases[i].n);
    }
}

/* Parts in another order: insert at the front, erase, concatenate. */
static void test_onnx_sequence__changes(void **state)
{
    (void)state;
    weft_buf graph = {0}, attrs = {0};
    int64_t sizes[3] = {1, 2, 3};
    put_ends(&graph, "6", NULL);
    onnx_put_tensor_raw(&graph, ONNX_INITIALISER, "sizes", ONNX_INT64, "3", sizes, sizeof sizes);
    put_int(&graph, "zero", 0);
    put_int(&graph, "two", 2);
    onnx_put_node(&graph, "SplitToSequence", "x,sizes", "s", NULL);
    onnx_put_node(&graph, "SequenceAt", "s,two", "last", NULL);
    onnx_put_node(&graph, "SequenceInsert", "s,last,zero", "t", NULL); /* 456 1 23 456 */
    onnx_put_node(&graph, "SequenceErase", "t", "u", NULL);            /* 456 1 23 */
    onnx_put_node(&graph, "Identity", "u", "v", NULL);
    onnx_put_attr_int(&attrs, "axis", 0);
    onnx_put_node(&graph, "ConcatFromSequence", "v", "y", &attrs);
    check(&graph, (float[]){4, 5, 6, 1, 2, 3}, 6);
}

static void test_onnx_sequence__construct_and_stack(void **state)
{
    (void)state;
    weft_buf graph = {0}, attrs = {0};
    put_ends(&graph, "6", NULL);
    onnx_put_node(&graph, "Neg", "x", "n", NULL);
    onnx_put_node(&graph, "SequenceEmpty", "", "e", NULL);
    onnx_put_node(&graph, "SequenceInsert", "e,x", "s", NULL);
    onnx_put_node(&graph, "SequenceInsert", "s,n", "t", NULL);
    onnx_put_attr_int(&attrs, "axis", 1);
    onnx_put_attr_int(&attrs, "new_axis", 1);
    onnx_put_node(&graph, "ConcatFromSequence", "t", "y", &attrs);
    check(&graph, (float[]){1, -1, 2, -2, 3, -3, 4, -4, 5, -5, 6, -6}, 12);
}

static void test_onnx_sequence__refusals(void **state)
{
    (void)state;
    weft_buf graph = {0};
    put_ends(&graph, "6", NULL);
    onnx_put_node(&graph, "SequenceConstruct", "x,x", "s", NULL);
    onnx_put_node(&graph, "Relu", "s", "y", NULL);
    check_fails(import(&graph, 17), WEFT_ERR_UNSUP, "Relu: input 0 is a sequence");
    put_ends(&graph, "6", NULL);
    onnx_put_node(&graph, "SequenceConstruct", "x,x", "y", NULL);
    check_fails(import(&graph, 17), WEFT_ERR_UNSUP, "output \"y\" is a sequence");
    put_ends(&graph, "6", NULL);
    put_int(&graph, "five", 5);
    onnx_put_node(&graph, "SequenceConstruct", "x,x", "s", NULL);
    onnx_put_node(&graph, "SequenceAt", "s,five", "y", NULL);
    check_fails(import(&graph, 17), WEFT_ERR_INPUT, "position 5 of a sequence of 2");
    put_ends(&graph, "6", NULL);
    put_int(&graph, "zero", 0);
    onnx_put_node(&graph, "SequenceAt", "x,zero", "y", NULL);
    check_fails(import(&graph, 17), WEFT_ERR_INPUT, "input 0 is no sequence");
    put_ends(&graph, "6", NULL);
    onnx_put_value(&graph, ONNX_INPUT, "p", ONNX_INT64, "");
    onnx_put_node(&graph, "SequenceConstruct", "x,x", "s", NULL);
    onnx_put_node(&graph, "SequenceInsert", "s,x,p", "t", NULL);
    onnx_put_node(&graph, "SequenceLength", "t", "y", NULL);
    check_fails(import(&graph, 17), WEFT_ERR_UNSUP, "the position depends on data");
    put_ends(&graph, "1000000", NULL);
    put_int(&graph, "zero", 0);
    onnx_put_node(&graph, "SplitToSequence", "x", "s", NULL);
    onnx_put_node(&graph, "SequenceAt", "s,zero", "y", NULL);
    check_fails(import(&graph, 17), WEFT_ERR_UNSUP, "1000000 parts, 4096 are supported");
    put_ends(&graph, "n", NULL);
    put_int(&graph, "zero", 0);
    onnx_put_node(&graph, "SplitToSequence", "x", "s", NULL);
    onnx_put_node(&graph, "SequenceErase", "s,zero", "t", NULL);
    onnx_put_node(&graph, "SequenceLength", "t", "y", NULL);
    check_fails(import(&graph, 17), WEFT_ERR_UNSUP, "fix the size with `dims:`");
}

/* A sequence of the graph around a branch that is decided by data. */
static void test_onnx_sequence__in_branches(void **state)
{
    (void)state;
    for (int inside = 0; inside < 2; inside++) {
        weft_buf graph = {0}, yes = {0}, no = {0}, attrs = {0};
        put_ends(&graph, "6", NULL);
        put_int(&graph, "at", -1);
        put_int(&graph, "two", 2);
        onnx_put_value(&graph, ONNX_INPUT, "c", ONNX_BOOL, "");
        onnx_put_node(&graph, "SplitToSequence", "x,two", "s", NULL);
        if (inside)
            onnx_put_node(&yes, "SequenceAt", "s,at", "a", NULL);
        else
            onnx_put_node(&yes, "Identity", "s", "a", NULL);
        onnx_put_value(&yes, ONNX_OUTPUT, "a", ONNX_FLOAT, NULL);
        onnx_put_node(&no, "Identity", inside ? "x" : "s", "b", NULL);
        onnx_put_value(&no, ONNX_OUTPUT, "b", ONNX_FLOAT, NULL);
        onnx_put_attr_graph(&attrs, "then_branch", &yes);
        onnx_put_attr_graph(&attrs, "else_branch", &no);
        onnx_put_node(&graph, "If", "c", "y", &attrs);
        if (!inside) {
            check_fails(import(&graph, 17), WEFT_ERR_UNSUP, "then_branch: output 0 is a sequence");
            continue;
        }
        subject s = import(&graph, 17);
        float x[6] = {1, 2, 3, 4, 5, 6};
        uint8_t yes_please = 1;
        weft_tensor in[2] = {{.dtype = WEFT_DTYPE_F32, .rank = 1, .dim = {6}, .data = x},
                             {.dtype = WEFT_DTYPE_BOOL, .data = &yes_please}};
        check_values(&s, in, 2, (float[]){5, 6}, 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_onnx_sequence__split_and_at),
        cmocka_unit_test(test_onnx_sequence__changes),
        cmocka_unit_test(test_onnx_sequence__construct_and_stack),
        cmocka_unit_test(test_onnx_sequence__refusals),
        cmocka_unit_test(test_onnx_sequence__in_branches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
