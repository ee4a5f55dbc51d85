/* Messages in shared memory: what is written is read, malformed heads are refused whatever they
 * say, and no message is lost between a writer and a reader that sleeps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/server/serve_int.h"
#include "tests/support/rand.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BOX = 4096, TENSORS = 4, ROUNDS = 20000, MESSAGES = 100000 };

/* -- Writing and reading -------------------------------------------------------------------- */

/* A message of random tensors, whose data are the bytes of `data` in up to three chunks each. */
static void make_message(uint64_t *seed, weft_wire_out *out, const uint8_t *data)
{
    uint32_t n = rand_below(seed, TENSORS + 1);
    size_t at = 0;
    assert_true(weft_wire__begin(out, WEFT_WIRE_RUN, n, 3 * TENSORS));
    for (uint32_t i = 0; i < n; i++) {
        size_t bytes = rand_below(seed, 4) ? rand_below(seed, 200) : 0, left = bytes;
        out->tensor[i] =
            (weft_wire_tensor){.dtype = WEFT_DTYPE_U8, .rank = 1, .dim = {(int64_t)bytes}};
        for (int k = 0; k < 2; k++) {
            size_t part = rand_below(seed, (uint32_t)left + 1);
            weft_wire__add_chunk(out, data + at, part);
            at += part;
            left -= part;
        }
        weft_wire__add_chunk(out, data + at, left);
        at += left;
    }
}

static void test_what_is_written_is_read(void **state)
{
    uint64_t seed = 1;
    uint8_t data[800];
    uint8_t *box = aligned_alloc(64, BOX);
    (void)state;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)rand_below(&seed, 256);
    for (int round = 0; round < ROUNDS; round++) {
        weft_wire_out out;
        weft_wire_head head;
        weft_wire_tensor tensor[TENSORS];
        size_t at = 0, from = 0, align = round % 2 ? 1 : WEFT_WIRE_ALIGN;
        size_t room = rand_below(&seed, 3) ? BOX : rand_below(&seed, BOX);
        make_message(&seed, &out, data);
        if (!weft_wire__write(&out, box, room, align)) {
            assert_true(room < 2 * 1024);
            weft_wire__free(&out);
            continue;
        }
        assert_true(weft_wire__read(box, room, align, &head, tensor, TENSORS, &at));
        assert_memory_equal(&head, &out.head, sizeof head);
        assert_int_equal(at % WEFT_WIRE_ALIGN, 0);
        for (uint32_t i = 0; i < head.n_tensor; i++) {
            size_t bytes = (size_t)tensor[i].dim[0];
            assert_true(at + bytes <= room);
            assert_memory_equal(box + at, data + from, bytes);
            from += bytes;
            at = align > 1 ? weft_wire__align(at + bytes) : at + bytes;
        }
        assert_false(head.n_tensor > 0 &&
                     weft_wire__read(box, room, align, &head, tensor, head.n_tensor - 1, &at));
        weft_wire__free(&out);
    }
    free(box);
}

/* Bytes of the heads are changed at random; what is accepted lies in the box. */
static void test_damaged_heads(void **state)
{
    uint64_t seed = 2;
    uint8_t data[800] = {0};
    uint8_t *box = malloc(BOX); /* exactly: what is read beyond is found by the sanitizers */
    uint32_t accepted = 0;
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        weft_wire_out out;
        weft_wire_head head;
        weft_wire_tensor tensor[TENSORS];
        size_t at = 0, align = round % 2 ? 1 : WEFT_WIRE_ALIGN, room = BOX;
        memset(box, 0, BOX);
        make_message(&seed, &out, data);
        assert_true(weft_wire__write(&out, box, BOX, align));
        size_t heads = sizeof out.head + out.head.n_tensor * sizeof *out.tensor;
        for (uint32_t k = 1 + rand_below(&seed, 3); k > 0; k--)
            box[rand_below(&seed, (uint32_t)heads)] ^= (uint8_t)(1u << rand_below(&seed, 8));
        room = rand_below(&seed, 4) ? room : rand_below(&seed, BOX);
        weft_wire__free(&out);
        if (!weft_wire__read(box, room, align, &head, tensor, TENSORS, &at))
            continue;
        accepted++;
        assert_true(head.n_tensor <= TENSORS);
        for (uint32_t i = 0; i < head.n_tensor; i++) {
            size_t bytes = (size_t)weft_numel(tensor[i].dim, tensor[i].rank) *
                           weft_dtype_size((weft_dtype)tensor[i].dtype);
            assert_true(at <= room && bytes <= room - at);
            at = align > 1 && i + 1 < head.n_tensor ? weft_wire__align(at + bytes) : at + bytes;
        }
    }
    assert_true(accepted > 0);
    free(box);
}

/* -- Two ends ------------------------------------------------------------------------------- */

typedef struct end {
    weft_channel *channel;
    int bell_in, bell_out;
} end;

static void send_number(end *e, uint32_t n)
{
    size_t room = 0;
    memcpy(weft_channel__room(e->channel, &room), &n, sizeof n);
    assert_int_equal(room, BOX);
    if (weft_channel__post(e->channel))
        assert_int_equal(write(e->bell_out, "", 1), 1);
}

/* Sleeps at the pipe like a worker at its socket; looks first in some rounds. */
static uint32_t receive_number(end *e, uint32_t round)
{
    uint32_t n = 0;
    size_t room = 0;
    char bell;
    for (uint32_t i = 0; i < round % 64 && !weft_channel__has(e->channel); i++)
        weft_clock__pause();
    while (!weft_channel__has(e->channel) && weft_channel__sleep(e->channel))
        assert_int_equal(read(e->bell_in, &bell, 1), 1);
    weft_channel__wake(e->channel);
    memcpy(&n, weft_channel__take(e->channel, &room), sizeof n);
    assert_int_equal(room, BOX);
    return n;
}

static void *answer(void *user)
{
    end *e = user;
    for (uint32_t i = 0; i < MESSAGES; i++)
        send_number(e, receive_number(e, i / 3) + 1);
    return NULL;
}

static void test_no_message_is_lost(void **state)
{
    int fd = -1, there[2], back[2];
    pthread_t thread;
    (void)state;
    weft_channel *router = weft_channel__create(BOX, BOX - 100, &fd);
    assert_non_null(router);
    assert_int_equal(ftruncate(fd, 0), -1);
    weft_channel *worker = weft_channel__open(fd, BOX, BOX - 100);
    assert_non_null(worker);
    assert_int_equal(pipe(there), 0);
    assert_int_equal(pipe(back), 0);
    end a = {router, back[0], there[1]}, b = {worker, there[0], back[1]};
    assert_int_equal(pthread_create(&thread, NULL, answer, &b), 0);
    for (uint32_t i = 0; i < MESSAGES; i++) {
        send_number(&a, i);
        assert_int_equal(receive_number(&a, i), i + 1);
    }
    pthread_join(thread, NULL);
    for (int i = 0; i < 2; i++) {
        close(there[i]);
        close(back[i]);
    }
    weft_channel__destroy(worker);
    weft_channel__destroy(router);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_is_written_is_read),
                                       cmocka_unit_test(test_damaged_heads),
                                       cmocka_unit_test(test_no_message_is_lost)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
