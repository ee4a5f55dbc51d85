/* The search for the cheapest cover of a demand (cover_program.c), when it ends before everything
 * was looked at: what it returns is still a lower bound. The file under test is part of this
 * program. */
#include "scheduler/policies/cover_program.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

/* Slices by ascending price for a request. The cheapest cover of 267 requests a second is one of
 * the first kind and one of the last. */
static const item kinds[] = {{.peak_per_s = 207, .price = 208.392},
                             {.peak_per_s = 203, .price = 205.642},
                             {.peak_per_s = 60, .price = 62}};
static const double rate_per_s = 267, cheapest = 208.392 + 62;

static double search_covers(uint32_t visits, search *s)
{
    *s = (search){.items = kinds,
                  .order = {0, 1, 2},
                  .n = 3,
                  .turn_ratio = HUGE_VAL,
                  .cut = HUGE_VAL,
                  .most_kept = 2,
                  .visits = VISITS_MAX - visits};
    extend(s, 0, rate_per_s, 0);
    return fmin(s->n_kept > 0 ? s->cost[0] : HUGE_VAL, s->cut);
}

static void test_cover_search__bounds_what_it_left_out(void **state)
{
    search s;
    (void)state;
    for (uint32_t visits = 0; visits < 12; visits++) {
        double bound = search_covers(visits, &s);
        assert_true(bound <= cheapest * (1 + 1e-9));
        assert_true(bound >= rate_per_s * ratio_of(&kinds[0]) * (1 - 1e-9));
    }
}

static void test_cover_search__finds_the_cheapest(void **state)
{
    search s;
    (void)state;
    assert_float_equal(search_covers(VISITS_MAX, &s), cheapest, 1e-9);
    assert_true(s.cut == HUGE_VAL && s.kept[0][0] == 1 && s.kept[0][1] == 0 && s.kept[0][2] == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cover_search__bounds_what_it_left_out),
        cmocka_unit_test(test_cover_search__finds_the_cheapest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
