/* weft_key_file__*: lines of key files, patterns of models. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/str.h"
#include "runtime/server/access_int.h"

#include <stdlib.h>
#include <string.h>

#define HASH_A "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF"
#define HASH_B "10112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF"

static weft_err parse(const char *text, weft_key_file *out)
{
    weft_diag *diag = weft_diag_create();
    weft_err err = weft_key_file__parse(strdup(text), strlen(text), "keys", diag, out);
    assert_int_equal(weft_diag_count(diag), err == WEFT_ERR_OK ? 0 : 1);
    weft_diag_destroy(diag);
    return err;
}

static void test_key_file__reads_lines(void **state)
{
    weft_key_file f;
    (void)state;
    assert_int_equal(parse("# a comment\r\n\n  \t\n"
                           "team-a " HASH_A " a,b* inference,health 2.5 # slow\r\n"
                           "spiffe://x/y\tcertificate * *\n"
                           "anyone none ? health",
                           &f),
                     WEFT_ERR_OK);
    assert_int_equal(f.n, 3);
    assert_string_equal(f.key[0].name, "team-a");
    assert_int_equal(f.key[0].kind, WEFT_KEY_SECRET);
    assert_int_equal(f.key[0].sha256[1], 0x11);
    assert_int_equal(f.key[0].sha256[31], 0xff);
    assert_int_equal(f.key[0].groups, 1u << WEFT_API_INFERENCE | 1u << WEFT_API_HEALTH);
    assert_true(f.key[0].rate_per_s == 2.5);
    assert_int_equal(f.key[1].kind, WEFT_KEY_CERTIFICATE);
    assert_int_equal(f.key[1].groups, (1u << WEFT_API_GROUPS) - 1);
    assert_true(f.key[1].rate_per_s == 0);
    assert_int_equal(f.key[2].kind, WEFT_KEY_NONE);
    assert_string_equal(f.key[2].models, "?");
    weft_key_file__finish(&f);
}

static void test_key_file__refuses(void **state)
{
    static const char *const texts[] = {
        "",
        "# nothing\n",
        "a " HASH_A " *\n",
        "a " HASH_A "0 * *\n",
        "a g0112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF * *\n",
        "a secret * *\n",
        "a\"b " HASH_A " * *\n",
        "a " HASH_A " , *\n",
        "a " HASH_A " a, *\n",
        "a " HASH_A " * health,\n",
        "a " HASH_A " * Health\n",
        "a " HASH_A " * *,health\n",
        "a " HASH_A " * * 0\n",
        "a " HASH_A " * * nan\n",
        "a " HASH_A " * * inf\n",
        "a " HASH_A " * * 1 2\n",
        "a " HASH_A " * *\nb " HASH_A " * *\n",
        "a " HASH_A " * *\na " HASH_B " * *\n",
        "a none * *\nb none * *\n",
    };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        weft_key_file f;
        if (parse(texts[i], &f) != WEFT_ERR_INPUT)
            fail_msg("accepted: %s", texts[i]);
    }
}

static void test_key_file__refuses_too_many_keys_and_nul(void **state)
{
    weft_buf text = {0};
    weft_key_file f;
    weft_diag *diag = weft_diag_create();
    (void)state;
    for (int i = 0; i < WEFT_KEYS_MAX; i++)
        weft_buf_printf(&text, "k%d certificate * *\n", i);
    assert_int_equal(parse(text.at, &f), WEFT_ERR_OK);
    weft_key_file__finish(&f);
    weft_buf_puts(&text, "more certificate * *\n");
    assert_int_equal(parse(text.at, &f), WEFT_ERR_INPUT);
    text.at[10] = '\0';
    /* The parser frees its text. */
    assert_int_equal(weft_key_file__parse(text.at, text.len, "keys", diag, &f), WEFT_ERR_INPUT);
    weft_diag_destroy(diag);
}

static void test_key__names_models(void **state)
{
    static const struct {
        const char *patterns, *model;
        bool matches;
    } cases[] = {{"*", "a", true},
                 {"a", "a", true},
                 {"a", "ab", false},
                 {"ab", "a", false},
                 {"a*", "a", true},
                 {"a*c", "abbc", true},
                 {"a*c", "abcb", false},
                 {"*b*", "abc", true},
                 {"a?c", "abc", true},
                 {"a?c", "ac", false},
                 {"x,a*", "ab", true},
                 {"x,y", "x,y", false},
                 {"**a**b", "ab", true},
                 {"*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
                 {"*.v?,*-int8", "m-int8", true},
                 {"?", "", false}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (weft_key__names_model(cases[i].patterns, cases[i].model) != cases[i].matches)
            fail_msg("%s, %s", cases[i].patterns, cases[i].model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_key_file__reads_lines),
        cmocka_unit_test(test_key_file__refuses),
        cmocka_unit_test(test_key_file__refuses_too_many_keys_and_nul),
        cmocka_unit_test(test_key__names_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
