/* weft_batch__give_packed: each request gets its own rows, and what a worker answers without the
 * rows that a request asks for is an error, whatever its dims say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/server/router_int.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS = 8, SEQUENCES = 4, WIDTH = 2 };

/* A packed program of one model: rows [1, rows, WIDTH], positions, starts; the outputs are y i32
 * [1, rows, WIDTH], a value for each row, and z i32[SEQUENCES], one for each sequence. */
typedef struct subject {
    weft_arena *arena;
    weft_bundle_program program;
    weft_bundle_value value[4];
    weft_bundle_port input[3], output[2];
    weft_bundle_part part;
    router_batch batch;
    weft_request request[2];
    weft_tensor out[2][2];
    weft_wire_tensor tensor[2];
    int32_t payload[ROWS * WIDTH + SEQUENCES];
} subject;

/* Two requests: one sequence of 3 rows, and two of 2. */
static subject *begin(void)
{
    static const int64_t rows[] = {1, 2}, length[] = {3, 2};
    subject *s = calloc(1, sizeof *s);
    s->arena = weft_arena_create(1 << 20);
    weft_dimpool *dims = weft_dimpool_create(s->arena);
    weft_dim n = weft_dim_symbol(dims, "rows", 1, ROWS);
    s->value[0].type = (weft_ttype){.rank = 3, .dim = {1, n, WIDTH}};
    s->value[1].type = (weft_ttype){.rank = 1, .dim = {n}};
    s->value[2].type = (weft_ttype){.rank = 1, .dim = {SEQUENCES}};
    s->input[0].value = s->output[0].value = 1;
    s->input[1].value = 2;
    s->input[2].value = s->output[1].value = 3;
    s->part = (weft_bundle_part){.n_in = 1, .n_out = 2};
    s->program = (weft_bundle_program){.dims = dims,
                                       .value = s->value,
                                       .n_value = 3,
                                       .input = s->input,
                                       .n_input = 3,
                                       .output = s->output,
                                       .n_output = 2,
                                       .part = &s->part,
                                       .n_part = 1,
                                       .is_packed = true};
    s->batch.n = 2;
    s->batch.packed_rows = ROWS;
    for (uint32_t i = 0; i < 2; i++) {
        s->batch.request[i] = &s->request[i];
        s->request[i].rows = s->batch.request_rows[i] = rows[i];
        s->batch.request_length[i] = length[i];
        s->request[i].out = s->out[i];
    }
    s->tensor[0] = (weft_wire_tensor){.dtype = WEFT_DTYPE_I32, .rank = 3, .dim = {1, ROWS, WIDTH}};
    s->tensor[1] = (weft_wire_tensor){.dtype = WEFT_DTYPE_I32, .rank = 1, .dim = {SEQUENCES}};
    for (int32_t i = 0; i < ROWS * WIDTH + SEQUENCES; i++)
        s->payload[i] = i;
    return s;
}

static void give(subject *s)
{
    weft_batch__give_packed(&s->program, &s->batch, s->tensor, 2, (const uint8_t *)s->payload);
}

static void end(subject *s)
{
    for (uint32_t i = 0; i < 2; i++)
        weft_payload__release(s->request[i].outputs, NULL);
    weft_arena_destroy(s->arena);
    free(s);
}

static void test_rows(void **state)
{
    (void)state;
    subject *s = begin();
    give(s);
    const weft_tensor *y = &s->out[1][0], *z = &s->out[1][1];
    assert_int_equal(s->request[1].answer, WEFT_ANSWER_OK);
    assert_true(y->rank == 3 && y->dim[0] == 2 && y->dim[1] == 2 && y->dim[2] == WIDTH);
    assert_memory_equal(y->data, &s->payload[3 * WIDTH], 4 * WIDTH * sizeof(int32_t));
    assert_true(z->rank == 1 && z->dim[0] == 2);
    assert_memory_equal(z->data, &s->payload[ROWS * WIDTH + 1], 2 * sizeof(int32_t));
    end(s);
}

/* Each has no bytes; its dims are those of a skipped output, or others. */
static void test_no_rows(void **state)
{
    static const weft_wire_tensor wrong[] = {
        {.dtype = WEFT_DTYPE_I32, .rank = 1, .dim = {0}},
        {.dtype = WEFT_DTYPE_I32, .rank = 3, .dim = {1, 0, 1 << 20}},
        {.dtype = WEFT_DTYPE_I32, .rank = 3, .dim = {0, ROWS, 1 << 20}}};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        subject *s = begin();
        s->request[1].skip = 1;
        s->tensor[0] = wrong[i];
        memmove(s->payload, &s->payload[ROWS * WIDTH], SEQUENCES * sizeof(int32_t));
        give(s);
        assert_int_equal(s->request[0].answer, WEFT_ANSWER_INTERNAL);
        assert_int_equal(s->request[1].answer, WEFT_ANSWER_OK); /* it asks for the other one */
        assert_memory_equal(s->out[1][1].data, &s->payload[1], 2 * sizeof(int32_t));
        end(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_no_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
