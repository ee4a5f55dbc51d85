/* The order of TLS handshakes that wait: addresses in turn, of one address the newest and the
 * oldest in turn. */
#include "runtime/server/serve_int.h"
#include "tests/support/rand.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { PEERS = 5, STREAMS = 40 };

static weft_handshakes waiting;
static weft_peer peer[PEERS];
static weft_stream stream[STREAMS];

static int begin(void **state)
{
    (void)state;
    memset(&waiting, 0, sizeof waiting);
    memset(peer, 0, sizeof peer);
    memset(stream, 0, sizeof stream);
    return 0;
}

static void add(int i, int p)
{
    stream[i].peer = &peer[p];
    weft_handshakes__add(&waiting, &stream[i]);
}

/* -1: none. */
static int take(void)
{
    const weft_stream *s = weft_handshakes__take(&waiting);
    return s ? (int)(s - stream) : -1;
}

static void test_one_address(void **state)
{
    (void)state;
    assert_int_equal(take(), -1);
    for (int i = 0; i < 5; i++)
        add(i, 0);
    add(2, 0); /* waits already */
    static const int order[] = {4, 0, 3, 1, 2, -1};
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
        assert_int_equal(take(), order[i]);
    assert_null(waiting.first);
}

static void test_a_flood_and_another(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++)
        add(i, 0);
    assert_int_equal(take(), 29);
    add(30, 1);
    assert_int_equal(take(), 0);
    assert_int_equal(take(), 30);
    assert_int_equal(take(), 28);
}

static void test_leaving(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++)
        add(i, i / 3);
    weft_handshakes__leave(&waiting, &stream[1]);
    weft_handshakes__leave(&waiting, &stream[1]); /* waits no longer */
    weft_handshakes__leave(&waiting, &stream[0]);
    weft_handshakes__leave(&waiting, &stream[2]);
    static const int order[] = {5, 3, 4, -1};
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
        assert_int_equal(take(), order[i]);
}

/* Beside a model: an array of those that wait, in the order in which they came. */
static void test_random(void **state)
{
    uint64_t seed = 7;
    int came[STREAMS], n = 0, since[PEERS] = {0};
    (void)state;
    for (int round = 0; round < RAND_ROUNDS(20000); round++) {
        int i = (int)rand_below(&seed, STREAMS), what = (int)rand_below(&seed, 3);
        if (what == 0 && !stream[i].waits) {
            int p = (int)rand_below(&seed, PEERS);
            if (!peer[p].newest)
                since[p] = 0;
            add(i, p);
            came[n++] = i;
            continue;
        }
        bool waited = stream[i].waits;
        if (what == 1)
            weft_handshakes__leave(&waiting, &stream[i]);
        else
            i = take();
        if (what == 1 && !waited)
            continue;
        assert_int_equal(i >= 0, n > 0);
        if (i < 0)
            continue;
        int at = 0, older = 0, newer = 0;
        while (came[at] != i)
            at++;
        for (int k = 0; k < n; k++) {
            older += k < at && stream[came[k]].peer == stream[i].peer;
            newer += k > at && stream[came[k]].peer == stream[i].peer;
        }
        memmove(came + at, came + at + 1, (size_t)(n - at - 1) * sizeof came[0]);
        n--;
        if (what == 1)
            continue;
        assert_true(older == 0 || newer == 0);
        for (int p = 0; p < PEERS; p++) {
            since[p] = &peer[p] == stream[i].peer ? 0 : since[p] + 1;
            assert_true(!peer[p].newest || since[p] < PEERS);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup(test_one_address, begin),
                                       cmocka_unit_test_setup(test_a_flood_and_another, begin),
                                       cmocka_unit_test_setup(test_leaving, begin),
                                       cmocka_unit_test_setup(test_random, begin)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
