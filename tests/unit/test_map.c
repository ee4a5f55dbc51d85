/* base/map.h and base/hash.h. */
#include "base/hash.h"
#include "base/map.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void test_map__finds_what_was_put_in_order(void **state)
{
    (void)state;
    weft_arena *arena = weft_arena_create(0);
    weft_map *map = weft_map_create(arena);
    uint64_t value = 7;
    assert_false(weft_map_get(map, 0, &value));
    assert_int_equal(value, 7);
    /* Keys that differ in high bits only, and the key 0. */
    for (uint64_t i = 0; i < 20000; i++)
        weft_map_put(map, i << 40, i);
    for (uint64_t i = 0; i < 20000; i += 2)
        weft_map_put(map, i << 40, i + 1);
    assert_int_equal(weft_map_len(map), 20000);
    for (uint32_t i = 0; i < 20000; i++) {
        uint64_t key;
        assert_true(weft_map_get(map, (uint64_t)i << 40, &value));
        assert_int_equal(value, i % 2 ? i : i + 1);
        weft_map_entry(map, i, &key, &value);
        assert_int_equal(key, (uint64_t)i << 40);
        assert_int_equal(value, i % 2 ? i : i + 1);
    }
    assert_false(weft_map_get(map, 1, &value));
    weft_arena_destroy(arena);
}

static void test_map__hashes_depend_on_content_and_seed(void **state)
{
    (void)state;
    assert_int_equal(weft_hash64("abc", 3, 0), weft_hash64("abcd", 3, 0));
    assert_int_not_equal(weft_hash64("abc", 3, 0), weft_hash64("abc", 3, 1));
    assert_int_not_equal(weft_hash64("abc", 3, 0), weft_hash64("abd", 3, 0));
    assert_true(weft_hash128_eq(weft_hash_content("abc", 3, 0), weft_hash_content("abc", 3, 0)));
    assert_false(weft_hash128_eq(weft_hash_content("abc", 3, 0), weft_hash_content("abc", 2, 0)));
    /* The checksum of the empty input, from the specification of XXH3: files depend on it. */
    assert_int_equal(weft_hash64("", 0, 0), 0x2d06800538d394c2u);
}

/* Equal rows, and equal columns, have equal hashes; elements may be unaligned. */
static void test_hash__rows_and_columns(void **state)
{
    (void)state;
    static const char matrix[] = "-abcabcdabcabd";
    uint64_t row[2], col[3];
    weft_hash_rows(matrix + 1, 2, 3, 1, row);
    assert_true(row[0] == row[1]);
    weft_hash_rows(matrix + 8, 2, 3, 1, row);
    assert_true(row[0] != row[1]);
    static const uint16_t wide[2][3] = {{1, 2, 1}, {3, 3, 3}};
    static const char longer[] = "123456789012345678901234567890";
    weft_hash_cols(wide, 2, 3, sizeof wide[0][0], col);
    assert_true(col[0] == col[2] && col[0] != col[1]);
    weft_hash_cols(longer, 1, 3, 10, col);
    assert_true(col[0] == col[1] && col[1] == col[2]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_map__finds_what_was_put_in_order),
        cmocka_unit_test(test_hash__rows_and_columns),
        cmocka_unit_test(test_map__hashes_depend_on_content_and_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
