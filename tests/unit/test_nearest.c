/* Words that were mistyped, and words that mean nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/nearest.h"

#include <string.h>

static const char *const words[] = {"compile", "plan", "h100", "h200", "a100-40", "", "l4"};

static const char *at(size_t i, const void *user)
{
    (void)user;
    return i < sizeof words / sizeof words[0] ? words[i] : NULL;
}

static void test_nearest(void **state)
{
    static const struct {
        const char *word, *meant;
    } cases[] = {
        {"compile", "compile"}, {"comiple", "compile"}, {"compil", "compile"}, {"PLAN", "plan"},
        {"plna", "plan"},       {"plans", "plan"},      {"h10", "h100"},       {"H100", "h100"},
        {"h1000", "h100"},      {"h2OO", NULL},         {"serve", NULL},       {"", NULL},
        {"a100", "a100-40"},    {"a100-4", "a100-40"},  {"x", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *got = weft_nearest(cases[i].word, at, NULL);
        if (got != cases[i].meant && (!got || !cases[i].meant || strcmp(got, cases[i].meant) != 0))
            fail_msg("%s: %s, not %s", cases[i].word, got ? got : "nothing",
                     cases[i].meant ? cases[i].meant : "nothing");
    }
}

/* Words longer than any table's are no words of it. */
static void test_long(void **state)
{
    char word[500];
    (void)state;
    memset(word, 'p', sizeof word);
    word[sizeof word - 1] = '\0';
    assert_null(weft_nearest(word, at, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nearest), cmocka_unit_test(test_long)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
