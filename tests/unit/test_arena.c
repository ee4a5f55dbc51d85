/* base/arena.h: memory of one lifetime. */
#include "base/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static void test_arena__gives_zeroed_aligned_memory(void **state)
{
    (void)state;
    weft_arena *arena = weft_arena_create(0);
    assert_non_null(arena);
    for (int round = 0; round < 3; round++) {
        weft_arena_mark mark = weft_arena_get_mark(arena);
        for (size_t size = 0; size < 6000; size = size * 3 / 2 + 1) {
            unsigned char *p = weft_arena_alloc(arena, size);
            assert_non_null(p);
            assert_int_equal((uintptr_t)p % 16, 0);
            for (size_t i = 0; i < size; i++)
                assert_int_equal(p[i], 0);
            memset(p, 0xaa, size);
        }
        weft_arena_reset(arena, mark);
    }
    weft_arena_destroy(arena);
    weft_arena_destroy(NULL);
}

static void test_arena__reset_restores_use_and_keeps_older_memory(void **state)
{
    (void)state;
    weft_arena *arena = weft_arena_create(0);
    weft_arena_mark empty = weft_arena_get_mark(arena);
    char *kept = weft_arena_strdup(arena, "kept");
    size_t used = weft_arena_used(arena);
    weft_arena_mark mark = weft_arena_get_mark(arena);
    for (int i = 0; i < 1000; i++)
        memset(weft_arena_alloc(arena, 100 + (size_t)i * 20), 0xff, 100);
    assert_true(weft_arena_used(arena) > used);
    weft_arena_reset(arena, mark);
    assert_int_equal(weft_arena_used(arena), used);
    assert_string_equal(kept, "kept");
    weft_arena_reset(arena, empty);
    assert_int_equal(weft_arena_used(arena), 0);
    weft_arena_destroy(arena);
}

/* The bytes that are reserved lie side by side, also behind a small block. */
static void test_arena__reserved_bytes_are_one_block(void **state)
{
    (void)state;
    weft_arena *arena = weft_arena_create(0);
    weft_arena_alloc(arena, 8);
    weft_arena_reserve(arena, 100000);
    unsigned char *first = weft_arena_alloc(arena, 160);
    for (int i = 1; i < 625; i++) {
        unsigned char *at = weft_arena_alloc(arena, 160);
        assert_true(at[0] == 0 && at[159] == 0);
        memset(at, 1, 160);
#ifndef WEFT_ARENA_DEBUG
        assert_ptr_equal(at, first + 160 * i);
#endif
    }
    assert_int_equal(first[0], 0);
    assert_int_equal(weft_arena_used(arena), 16 + 100000);
    weft_arena_destroy(arena);
}

static void test_arena__grow_keeps_contents_and_zeroes_the_rest(void **state)
{
    (void)state;
    weft_arena *arena = weft_arena_create(0);
    weft_arena_mark mark = weft_arena_get_mark(arena);
    memset(weft_arena_alloc(arena, 3000), 0xff, 3000);
    weft_arena_reset(arena, mark); /* the block is dirty now */
    unsigned char *p = NULL;
    size_t size = 0;
    for (size_t next = 1; next < 100000; next = next * 2 + 1) {
        p = weft_arena_grow(arena, p, size, next);
        for (size_t i = 0; i < size; i++)
            assert_int_equal(p[i], i % 251);
        for (size_t i = size; i < next; i++) {
            assert_int_equal(p[i], 0);
            p[i] = (unsigned char)(i % 251);
        }
        if (next % 5 == 0)
            weft_arena_alloc(arena, 1); /* no longer the last allocation */
        size = next;
    }
    assert_ptr_equal(weft_arena_grow(arena, p, size, 10), p);
    weft_arena_destroy(arena);
}

#ifndef WEFT_ARENA_DEBUG
static void test_arena__grow_of_the_last_allocation_stays_in_place(void **state)
{
    (void)state;
    weft_arena *arena = weft_arena_create(0);
    char *p = weft_arena_alloc(arena, 20);
    assert_ptr_equal(weft_arena_grow(arena, p, 20, 500), p);
    assert_int_equal(weft_arena_used(arena), 512);
    weft_arena_destroy(arena);
}
#endif

static void test_arena__unwinds_at_the_limit(void **state)
{
    (void)state;
    weft_arena *arena = weft_arena_create(10000);
    jmp_buf env;
    volatile int given = 0, unwound = 0;
    if (setjmp(env) == 0) {
        weft_arena_guard(arena, &env);
        for (;;) {
            weft_arena_alloc(arena, 1000);
            given++;
        }
    } else {
        unwound = 1;
    }
    assert_int_equal(unwound, 1);
    assert_int_equal(given, 9); /* 1008 bytes each */
    assert_true(weft_arena_used(arena) <= 10000);
    weft_arena_destroy(arena);
}

static bool array_unwinds(size_t count, size_t size)
{
    weft_arena *arena = weft_arena_create(0);
    jmp_buf env;
    volatile bool unwound = true;
    if (setjmp(env) == 0) {
        weft_arena_guard(arena, &env);
        weft_arena_array(arena, count, size);
        unwound = false;
    }
    weft_arena_destroy(arena);
    return unwound;
}

static void test_arena__unwinds_on_overflow(void **state)
{
    (void)state;
    assert_true(array_unwinds(SIZE_MAX, 2));
    assert_true(array_unwinds(SIZE_MAX / 2, 3));
    assert_true(array_unwinds(1, SIZE_MAX));
    assert_true(array_unwinds(1, SIZE_MAX / 2));
    assert_false(array_unwinds(1000, 16));
}

static void test_arena__guards_nest(void **state)
{
    (void)state;
    weft_arena *arena = weft_arena_create(0);
    jmp_buf outer, inner;
    assert_null(weft_arena_guard(arena, &outer));
    assert_ptr_equal(weft_arena_guard(arena, &inner), &outer);
    assert_ptr_equal(weft_arena_guard(arena, &outer), &inner);
    weft_arena_destroy(arena);
}

static void test_arena__strings_and_vectors(void **state)
{
    (void)state;
    weft_arena *arena = weft_arena_create(0);
    assert_string_equal(weft_arena_strndup(arena, "abcdef", 3), "abc");
    assert_string_equal(weft_arena_printf(arena, "%s-%d", "x", 42), "x-42");
    WEFT_VEC(uint32_t) vec = {0};
    for (uint32_t i = 0; i < 10000; i++)
        WEFT_VEC_PUSH(arena, &vec, i * 3);
    assert_int_equal(vec.len, 10000);
    for (uint32_t i = 0; i < 10000; i++)
        assert_int_equal(vec.at[i], i * 3);
    weft_arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arena__gives_zeroed_aligned_memory),
        cmocka_unit_test(test_arena__reset_restores_use_and_keeps_older_memory),
        cmocka_unit_test(test_arena__reserved_bytes_are_one_block),
        cmocka_unit_test(test_arena__grow_keeps_contents_and_zeroes_the_rest),
#ifndef WEFT_ARENA_DEBUG
        cmocka_unit_test(test_arena__grow_of_the_last_allocation_stays_in_place),
#endif
        cmocka_unit_test(test_arena__unwinds_at_the_limit),
        cmocka_unit_test(test_arena__unwinds_on_overflow),
        cmocka_unit_test(test_arena__guards_nest),
        cmocka_unit_test(test_arena__strings_and_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
