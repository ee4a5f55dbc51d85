/* A bundle with right checksums and wrong types is refused before a kernel runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "codegen/codegen.h"
#include "runtime/runtime.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char text[] = "wir 1 plan\n"
                           "symbol ?b = [1, 8]\n"
                           "weight $w : f32[4,4] = random 7\n"
                           "weight $i : i64[2] = dense [1, 3]\n"
                           "graph @m (%x : f32[?b,4]) {\n"
                           "  symbol ?b \"b\"\n"
                           "  %1 : f32[?b,4] = matmul %x, $w\n"
                           "  %2 : f32[?b,2] = gather %1, $i {axis = 1}\n"
                           "  %3 : f32[2,?b] = transpose %2 {perm = [1, 0]}\n"
                           "  %4 : f32[2,?b] = ew %3 {steps = [\"relu i0\"]}\n"
                           "  %5 : f32[2,1,?b] = view %4 {shape = dims[2, 1, ?b]}\n"
                           "  %6 : f32[2,1,?b] = ew %5 {steps = [\"mul i0 #2\"]}\n"
                           "  return \"y\" %6\n"
                           "}\n";

typedef struct subject {
    weft_diag *diag;
    weft_arena *arena;
    weft_module *m;
    weft_bundle b;
    weft_bundle_program p;
    weft_bundle_value value[16];
    char path[64];
} subject;

static int set_up(void **state)
{
    static subject s;
    memset(&s, 0, sizeof s);
    *state = &s;
    s.diag = weft_diag_create();
    s.arena = weft_arena_create(0);
    snprintf(s.path, sizeof s.path, "bundle-run-%ld.weft", (long)getpid());
    assert_int_equal(weft_module_parse(text, strlen(text), "test.wir", NULL, s.diag, &s.m), 0);
    assert_int_equal(
        weft_codegen_bundle(s.m, weft_backend_find("cpu"), NULL, NULL, s.arena, s.diag, &s.b), 0);
    s.p = s.b.program[0];
    assert_int_equal(s.p.n_value, 9);
    memcpy(s.value, s.p.value, s.p.n_value * sizeof *s.value);
    s.p.value = s.value;
    s.b.program = &s.p;
    return 0;
}

static int tear_down(void **state)
{
    subject *s = *state;
    remove(s->path);
    weft_module_destroy(s->m);
    weft_arena_destroy(s->arena);
    weft_diag_destroy(s->diag);
    return 0;
}

/* Writes, reads and runs the bundle with a batch of 3. */
static weft_err run(subject *s)
{
    float x[12] = {1, 2, 3};
    weft_tensor in = {.dtype = WEFT_DTYPE_F32, .rank = 2, .dim = {3, 4}, .data = x}, out;
    weft_engine *engine = NULL;
    weft_session *session = NULL;
    assert_int_equal(weft_bundle_write(&s->b, s->path, s->diag), 0);
    weft_err err = weft_engine_open(s->path, NULL, s->diag, &engine);
    if (err == WEFT_ERR_OK)
        err = weft_session_open(engine, "m", s->diag, &session);
    if (err == WEFT_ERR_OK)
        err = weft_session_run(session, &in, 1, s->diag, &out, 1);
    if (err == WEFT_ERR_OK)
        assert_int_equal(out.dim[2], 3);
    weft_session_close(session);
    weft_engine_close(engine);
    return err;
}

static void test_bundle_run__the_truth_runs(void **state)
{
    assert_int_equal(run(*state), WEFT_ERR_OK);
}

static void test_bundle_run__a_wrong_type_does_not(void **state)
{
    subject *s = *state;
    /* Results of the launches, by value; each dimension larger, smaller, another rank or type. */
    static const uint32_t result[] = {3, 5, 6, 7, 8, 9};
    for (size_t i = 0; i < sizeof result / sizeof result[0]; i++) {
        weft_ttype *t = &s->value[result[i] - 1].type, good = *t;
        for (uint32_t k = 0; k < good.rank; k++) {
            t->dim[k] = 1000;
            assert_int_equal(run(s), WEFT_ERR_INPUT);
            t->dim[k] = 0;
            assert_int_equal(run(s), WEFT_ERR_INPUT);
            *t = good;
        }
        t->dtype = WEFT_DTYPE_I8;
        assert_int_equal(run(s), WEFT_ERR_INPUT);
        *t = good;
        t->rank++;
        t->dim[good.rank] = 1;
        assert_int_equal(run(s), WEFT_ERR_INPUT);
        *t = good;
    }
    assert_int_equal(run(s), WEFT_ERR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_bundle_run__the_truth_runs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bundle_run__a_wrong_type_does_not, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
