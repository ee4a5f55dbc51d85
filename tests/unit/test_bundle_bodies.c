/* Bundles with bodies: they come back as written and run; wrong ones are refused; memory of loops
 * is bounded. */
#include "codegen/codegen.h"
#include "runtime/runtime.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* y = x + 1 repeated: `rounds` times, twice as often if `twice`; z: all values of it. */
static const char program[] =
    "wir 1 plan\n"
    "symbol ?n = [1, 8]\n"
    "symbol ?d0 data\n"
    "symbol ?d1 data\n"
    "weight $one : f32[] = dense [1.0]\n"
    "graph @m (%x : f32[?n], %rounds : i64[], %twice : bool[]) {\n"
    "  symbol ?n \"n\"\n"
    "  %1 : f32[?n], %2 : f32[?d0,?n] = loop %rounds, _, %x, %twice {body = \"m.body\", carried = "
    "1}\n"
    "  return \"y\" %1, \"z\" %2\n"
    "}\n"
    "body @m.body (%i : i64[], %go : bool[], %x : f32[?n], %twice : bool[]) {\n"
    "  symbol ?n \"n\"\n"
    "  %1 : f32[?n] = add %x, $one\n"
    "  %2 : f32[?n] = if %twice, %1, %1 {else_branch = \"m.no\", then_branch = \"m.yes\"}\n"
    "  return \"go\" %go, \"x\" %2, \"all\" %2\n"
    "}\n"
    "body @m.yes (%in : f32[?n]) {\n"
    "  symbol ?n \"n\"\n"
    "  %1 : f32[?n] = add %in, $one\n"
    "  return \"out\" %1\n"
    "}\n"
    "body @m.no (%in : f32[?n]) {\n"
    "  symbol ?n \"n\"\n"
    "  return \"out\" %in\n"
    "}\n";

enum { BODY, YES, NO, BODIES };

typedef struct subject {
    weft_module *m;
    weft_arena *arena;
    weft_diag *diag;
    weft_bundle b;
    char path[64];
} subject;

static void setup(subject *s)
{
    memset(s, 0, sizeof *s);
    s->arena = weft_arena_create(0);
    s->diag = weft_diag_create();
    snprintf(s->path, sizeof s->path, "%s/weft-bodies-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    int fd = mkstemp(s->path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(
        weft_module_parse(program, strlen(program), "bodies.wir", NULL, s->diag, &s->m), 0);
    assert_int_equal(weft_module_verify(s->m, s->diag), 0);
    assert_int_equal(
        weft_codegen_bundle(s->m, weft_backend_find("cpu"), NULL, NULL, s->arena, s->diag, &s->b),
        0);
    assert_int_equal(s->b.n_body, BODIES);
}

static void finish(subject *s)
{
    remove(s->path);
    weft_diag_destroy(s->diag);
    weft_module_destroy(s->m);
    weft_arena_destroy(s->arena);
}

static weft_bundle_program *body(subject *s, uint32_t i)
{
    return (weft_bundle_program *)(uintptr_t)&s->b.program[1 + i];
}

static weft_bundle_launch *launch(weft_bundle_program *p, uint32_t i)
{
    return (weft_bundle_launch *)(uintptr_t)&p->launch[i];
}

static void rename_body(weft_bundle_launch *l, weft_attr_key key, const char *name)
{
    for (uint32_t i = 0; i < l->attrs.n; i++)
        if (l->attrs.at[i].key == key)
            ((weft_attr *)(uintptr_t)&l->attrs.at[i])->u.s = name;
}

/* Writes the bundle as it is now; it must be refused with this text. */
static void check_refused(subject *s, const char *text)
{
    weft_bundle *read = NULL;
    assert_int_equal(weft_bundle_write(&s->b, s->path, s->diag), 0);
    assert_int_equal(weft_bundle_open(s->path, s->diag, &read), WEFT_ERR_INPUT);
    bool found = false;
    for (size_t i = 0; i < weft_diag_count(s->diag); i++)
        found = found || strstr(weft_diag_at(s->diag, i)->text, text);
    if (!found)
        fail_msg("\"%s\" is not among: %s", text,
                 weft_diag_count(s->diag) ? weft_diag_at(s->diag, 0)->text : "(nothing)");
}

static weft_engine *open_engine(subject *s, uint64_t limit)
{
    weft_engine *engine = NULL;
    assert_int_equal(weft_bundle_write(&s->b, s->path, s->diag), 0);
    const weft_engine_options options = {.threads = 1, .mem_limit_bytes = limit};
    assert_int_equal(weft_engine_open(s->path, &options, s->diag, &engine), 0);
    return engine;
}

static void test_bundle_bodies__run(void **state)
{
    (void)state;
    subject s;
    setup(&s);
    weft_engine *engine = open_engine(&s, 0);
    weft_session *session = NULL;
    assert_int_equal(weft_session_open(engine, "m", s.diag, &session), 0);
    for (int64_t rounds = -1; rounds < 4; rounds++)
        for (int64_t n = 1; n < 4; n++) {
            float x[4] = {1, 2, 3, 4};
            uint8_t twice = n % 2 == 0;
            weft_tensor out[2],
                in[3] = {{.dtype = WEFT_DTYPE_F32, .rank = 1, .dim = {n}, .data = x},
                         {.dtype = WEFT_DTYPE_I64, .data = &rounds},
                         {.dtype = WEFT_DTYPE_BOOL, .data = &twice}};
            assert_int_equal(weft_session_run(session, in, 3, s.diag, out, 2), 0);
            int64_t want = rounds > 0 ? rounds : 0;
            assert_int_equal(out[1].dim[0], want);
            assert_int_equal(out[1].dim[1], n);
            for (int64_t i = 0; i < n; i++) {
                float step = twice ? 2 : 1;
                assert_true(((float *)out[0].data)[i] == x[i] + step * (float)want);
                for (int64_t t = 0; t < want; t++)
                    assert_true(((float *)out[1].data)[t * n + i] == x[i] + step * (float)(t + 1));
            }
        }
    weft_session_close(session);
    weft_engine_close(engine);
    finish(&s);
}

/* A bucket that is prepared has prepared the bodies too. */
static void test_bundle_bodies__are_prepared(void **state)
{
    (void)state;
    subject s;
    setup(&s);
    weft_engine *engine = open_engine(&s, 0);
    weft_session *session = NULL;
    assert_int_equal(weft_session_open(engine, "m", s.diag, &session), 0);
    float x[8] = {0};
    int64_t rounds = 2;
    uint8_t twice = 0;
    weft_session_memory ready, ran;
    weft_tensor out[2], in[3] = {{.dtype = WEFT_DTYPE_F32, .rank = 1, .dim = {8}, .data = x},
                                 {.dtype = WEFT_DTYPE_I64, .data = &rounds},
                                 {.dtype = WEFT_DTYPE_BOOL, .data = &twice}};
    assert_int_equal(weft_session_prepare(session, in, 3, s.diag), 0);
    weft_session_get_memory(session, &ready);
    assert_int_equal(weft_session_run(session, in, 3, s.diag, out, 2), 0);
    weft_session_get_memory(session, &ran);
    assert_int_equal(ready.total_bytes, ran.total_bytes);
    assert_true(ready.total_bytes > ready.arena_bytes);
    weft_session_close(session);
    weft_engine_close(engine);
    finish(&s);
}

/* 2^40 rounds of 32 bytes each do not fit. */
static void test_bundle_bodies__memory_is_bounded(void **state)
{
    (void)state;
    subject s;
    setup(&s);
    weft_engine *engine = open_engine(&s, 1 << 20);
    weft_session *session = NULL;
    assert_int_equal(weft_session_open(engine, "m", s.diag, &session), 0);
    float x[8] = {0};
    int64_t rounds = (int64_t)1 << 40;
    uint8_t twice = 0;
    weft_tensor out[2], in[3] = {{.dtype = WEFT_DTYPE_F32, .rank = 1, .dim = {8}, .data = x},
                                 {.dtype = WEFT_DTYPE_I64, .data = &rounds},
                                 {.dtype = WEFT_DTYPE_BOOL, .data = &twice}};
    assert_int_equal(weft_session_run(session, in, 3, s.diag, out, 2), WEFT_ERR_NOMEM);
    rounds = 3; /* what the run took is free again */
    assert_int_equal(weft_session_run(session, in, 3, s.diag, out, 2), 0);
    assert_int_equal(out[1].dim[0], 3);
    weft_session_close(session);
    weft_engine_close(engine);
    finish(&s);
}

static void test_bundle_bodies__are_found_by_name(void **state)
{
    (void)state;
    subject s;
    setup(&s);
    rename_body(launch(body(&s, BODY), 1), WEFT_ATTR_THEN_BRANCH, "nobody");
    check_refused(&s, "a body is missing");
    finish(&s);

    setup(&s); /* the model's own program is no body */
    rename_body(launch(body(&s, BODY), 1), WEFT_ATTR_THEN_BRANCH, "m");
    check_refused(&s, "a body is missing");
    finish(&s);
}

static void test_bundle_bodies__do_not_run_themselves(void **state)
{
    (void)state;
    subject s;
    setup(&s);
    rename_body(launch(body(&s, BODY), 1), WEFT_ATTR_THEN_BRANCH, "m.body");
    check_refused(&s, "stands before the program");
    finish(&s);

    setup(&s);
    rename_body(launch(body(&s, BODY), 1), WEFT_ATTR_THEN_BRANCH, "m.no");
    check_refused(&s, "the same body");
    finish(&s);
}

static void test_bundle_bodies__have_ports_that_fit(void **state)
{
    (void)state;
    subject s;
    setup(&s);
    body(&s, BODY)->n_output = 2;
    check_refused(&s, "inputs or outputs of a body does not fit");
    finish(&s);

    setup(&s);
    launch(body(&s, BODY), 1)->n_in = 2; /* m.no gets no operand */
    check_refused(&s, "types of a body's inputs");
    finish(&s);

    setup(&s); /* the carried value is an integer inside */
    weft_bundle_program *p = body(&s, NO);
    ((weft_bundle_value *)(uintptr_t)&p->value[p->input[0].value - 1])->type.dtype = WEFT_DTYPE_I32;
    check_refused(&s, "types of a body's inputs");
    finish(&s);

    setup(&s);
    p = body(&s, YES);
    ((weft_bundle_value *)(uintptr_t)&p->value[p->input[0].value - 1])->type.rank = 0;
    check_refused(&s, "types of a body's inputs");
    finish(&s);
}

static void test_bundle_bodies__symbols_of_the_program_around(void **state)
{
    (void)state;
    subject s;
    setup(&s);
    uint32_t outer = 77;
    body(&s, BODY)->outer = &outer;
    check_refused(&s, "no counterpart");
    finish(&s);

    setup(&s);
    ((weft_bundle_program *)(uintptr_t)&s.b.program[0])->outer = &outer;
    check_refused(&s, "outer symbols");
    finish(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bundle_bodies__run),
        cmocka_unit_test(test_bundle_bodies__are_prepared),
        cmocka_unit_test(test_bundle_bodies__memory_is_bounded),
        cmocka_unit_test(test_bundle_bodies__are_found_by_name),
        cmocka_unit_test(test_bundle_bodies__do_not_run_themselves),
        cmocka_unit_test(test_bundle_bodies__have_ports_that_fit),
        cmocka_unit_test(test_bundle_bodies__symbols_of_the_program_around),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
