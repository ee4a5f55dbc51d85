/* Batches sent ahead: each request gets its own rows, in whatever order answers are taken, and
 * nothing is sent ahead where that could delay another request. */
#include "runtime/server/router_int.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

enum { ROWS = 8, REQUESTS = 45, SMALL_BOX = 4096, LARGE_BOX = 1 << 20 };

/* A model that adds 1 to f32[n], a second one without requests, and one worker. */
typedef struct subject {
    weft_bundle_program program[2];
    weft_bundle bundle;
    router_bundle open;
    router_model model[2];
    router_worker worker;
    weft_router router;
    bool serves[2];
    int64_t most[2];
    router_batch batch[3];
    weft_wire_tensor answer_tensor[1];
    weft_channel *peer; /* the worker's end */
    int peer_fd;
    float value[REQUESTS];
    weft_request *request[REQUESTS];
    uint32_t n_request;
} subject;

static uint32_t n_done, n_ended;

static void count_done(weft_request *request)
{
    (void)request;
    n_done++;
}

static void on_answer(void *user, const weft_wire_head *head, const weft_wire_tensor *tensor,
                      const uint8_t *payload)
{
    router_worker *w = user;
    weft_batch__give(w->router->model, &w->part[0], tensor, head->n_tensor, payload, NULL);
}

static void on_idle(void *user)
{
    router_worker *w = user;
    w->size = 7; /* of the run before */
    weft_router__advance(w, 1);
    assert_true(w->n_part == 0 || w->size == 0);
    for (uint32_t i = 0; i < w->answered[0].n; i++)
        n_done += w->answered[0].request[i] != NULL;
    weft_router__send_ahead(w->router, 0);
}

static void on_end(void *user, bool starting)
{
    (void)user;
    (void)starting;
    n_ended++;
}

static const worker_events events = {.on_answer = on_answer, .on_idle = on_idle, .on_end = on_end};

static void begin(subject *s, size_t box)
{
    static const weft_serve_options options = {0};
    static const weft_serve_slice slice = {0};
    static const int64_t rows[1] = {ROWS};
    static const weft_bundle_bucket bucket = {.symbol = (int64_t *)rows};
    int pair[2], fd = -1;
    memset(s, 0, sizeof *s);
    n_done = n_ended = 0;
    for (int i = 0; i < 2; i++) {
        s->program[i] = (weft_bundle_program){.name = "m",
                                              .n_symbol = 1,
                                              .n_input = 1,
                                              .n_output = 1,
                                              .bucket = &bucket,
                                              .n_bucket = 1};
        s->model[i] = (router_model){.program = &s->program[i], .largest_bucket = ROWS};
        s->serves[i] = true;
        s->most[i] = ROWS;
    }
    s->bundle = (weft_bundle){.program = s->program, .n_program = 2};
    s->open.bundle = &s->bundle;
    s->router = (weft_router){.options = &options,
                              .loop = weft_loop__create(),
                              .model = s->model,
                              .n_model = 2,
                              .worker = &s->worker,
                              .n_worker = 1,
                              .n_pending = REQUESTS};
    s->worker = (router_worker){.router = &s->router,
                                .bundle = &s->open,
                                .serves = s->serves,
                                .most = s->most,
                                .part = &s->batch[0],
                                .answered = &s->batch[1],
                                .ahead = &s->batch[2]};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    s->worker.process = (worker_process){.events = &events,
                                         .user = &s->worker,
                                         .loop = s->router.loop,
                                         .slice = &slice,
                                         .state = WORKER_IDLE,
                                         .fd = pair[0],
                                         .outputs_max = 1,
                                         .channel_tensor = s->answer_tensor};
    s->peer_fd = pair[1];
    s->worker.process.channel = weft_channel__create(box, box, &fd);
    assert_non_null(s->router.loop);
    assert_non_null(s->worker.process.channel);
    s->peer = weft_channel__open(fd, box, box); /* closes fd */
    assert_non_null(s->peer);
    weft_admission__learn(&s->model[0], ROWS, 50000);
}

static void end(subject *s)
{
    weft_wire__free(&s->worker.process.tx);
    for (uint32_t i = 0; i < s->n_request; i++)
        weft_request__destroy(s->request[i]);
    weft_channel__destroy(s->worker.process.channel);
    weft_channel__destroy(s->peer);
    if (s->worker.process.fd >= 0)
        close(s->worker.process.fd);
    close(s->peer_fd);
    weft_loop__destroy(s->router.loop);
}

static void add_requests(subject *s, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        weft_request *r =
            weft_request__create(&(weft_model_ref){.program = &s->program[0], .version = "1"});
        s->value[s->n_request] = (float)s->n_request;
        r->in[0] = (weft_tensor){
            .dtype = WEFT_DTYPE_F32, .rank = 1, .dim = {1}, .data = &s->value[s->n_request]};
        r->rows = 1;
        r->arrived_ns = s->n_request;
        r->done = count_done;
        s->request[s->n_request++] = r;
        weft_batch__push(&s->model[0], r);
    }
}

/* Sends a batch to the idle worker. */
static void send_first(subject *s)
{
    router_worker *w = &s->worker;
    weft_wire_out message;
    w->part[0] = (router_batch){.sent_ns = 1};
    weft_batch__take(&s->model[0], ROWS, &w->part[0]);
    assert_true(weft_batch__compose(s->model, w->part, 1, NULL, &message));
    w->n_part = 1;
    message.head.id = ++s->router.next_id;
    weft_worker__send(&w->process, &message);
    assert_int_equal(w->process.state, WORKER_BUSY);
}

/* The worker runs its next message; `sends`: the answer goes into the channel. */
static weft_wire_head run(subject *s, bool sends)
{
    weft_wire_head head;
    weft_wire_tensor tensor[1];
    weft_wire_out out;
    size_t room = 0, at = 0;
    assert_true(weft_channel__has(s->peer));
    const uint8_t *box = weft_channel__take(s->peer, &room);
    assert_true(weft_wire__read(box, room, WEFT_WIRE_ALIGN, &head, tensor, 1, &at));
    assert_true(head.n_tensor == 1 && tensor[0].dim[0] <= ROWS);
    float y[ROWS];
    memcpy(y, box + at, head.payload_bytes);
    for (int64_t i = 0; i < tensor[0].dim[0]; i++)
        y[i] += 1;
    if (!sends)
        return head;
    assert_true(weft_wire__begin(&out, WEFT_WIRE_DONE, 1, 1));
    out.head.id = head.id;
    out.tensor[0] = tensor[0];
    weft_wire__add_chunk(&out, y, head.payload_bytes);
    uint8_t *to = weft_channel__room(s->peer, &room);
    assert_true(weft_wire__write(&out, to, room, 1));
    weft_channel__post(s->peer);
    weft_wire__free(&out);
    return head;
}

/* Answers are taken one by one, or two that are there at once. */
static void test_router_ahead__each_request_gets_its_rows(void **state)
{
    (void)state;
    for (int both = 0; both < 2; both++) {
        subject s;
        begin(&s, SMALL_BOX);
        router_worker *w = &s.worker;
        add_requests(&s, REQUESTS);
        send_first(&s);
        weft_router__send_ahead(&s.router, 0);
        assert_int_equal(w->n_ahead, 1);
        weft_router__send_ahead(&s.router, 0); /* one at most */
        assert_int_equal(s.model[0].n_queued, REQUESTS - 2 * ROWS);
        for (uint32_t n = 0; n < REQUESTS / ROWS;) {
            uint32_t runs = both && w->n_ahead ? 2 : 1;
            for (uint32_t i = 0; i < runs; i++)
                run(&s, true);
            for (uint32_t i = 0; i < runs; i++, n++)
                assert_true(weft_worker__take(&w->process));
        }
        /* The last five are not a full batch. */
        assert_int_equal(s.model[0].n_queued, REQUESTS % ROWS);
        assert_int_equal(w->process.state, WORKER_IDLE);
        assert_int_equal(weft_router__count_batches(w), 0);
        assert_int_equal(n_done, REQUESTS / ROWS * ROWS);
        for (uint32_t i = 0; i < n_done; i++)
            assert_true(*(float *)s.request[i]->out[0].data == s.value[i] + 1);
        end(&s);
    }
}

static bool is_sent_ahead(subject *s)
{
    weft_router__send_ahead(&s->router, 0);
    return s->worker.n_ahead > 0;
}

static void test_router_ahead__delays_nobody(void **state)
{
    subject s;
    (void)state;
    begin(&s, SMALL_BOX);
    add_requests(&s, 2 * ROWS);
    send_first(&s);
    s.model[0].head->promised = true;
    assert_false(is_sent_ahead(&s));
    s.model[0].head->promised = false;
    s.model[1].head = s.model[0].head; /* another model waits */
    assert_false(is_sent_ahead(&s));
    s.model[1].head = NULL;
    s.worker.retiring = true;
    assert_false(is_sent_ahead(&s));
    s.worker.retiring = false;
    s.worker.process.stall_ns = 1;
    assert_false(is_sent_ahead(&s));
    s.worker.process.stall_ns = 0;
    s.model[0].head->attempts = 1; /* it runs alone */
    assert_false(is_sent_ahead(&s));
    s.model[0].head->attempts = 0;
    s.serves[0] = false;
    assert_false(is_sent_ahead(&s));
    s.serves[0] = true;
    s.model[0].packed = &s.program[1];
    assert_false(is_sent_ahead(&s));
    s.model[0].packed = NULL;
    s.model[0].time[0].took.mean_ns = 2e6; /* others would wait for long */
    assert_false(is_sent_ahead(&s));
    s.model[0].time[0].took.mean_ns = 5e4;
    assert_true(is_sent_ahead(&s));
    end(&s);
    begin(&s, LARGE_BOX); /* which is one for each direction */
    add_requests(&s, 2 * ROWS);
    send_first(&s);
    assert_false(is_sent_ahead(&s));
    end(&s);
}

/* The rows of a request whose client is gone are computed for nobody. */
static void test_router_ahead__clients_leave(void **state)
{
    subject s;
    (void)state;
    begin(&s, SMALL_BOX);
    add_requests(&s, 2 * ROWS);
    send_first(&s);
    assert_true(is_sent_ahead(&s));
    weft_router__abandon(&s.router, s.request[ROWS + 3]);
    assert_int_equal(n_done, 1);
    run(&s, true);
    run(&s, true);
    assert_true(weft_worker__take(&s.worker.process));
    assert_true(weft_worker__take(&s.worker.process));
    assert_int_equal(n_done, 2 * ROWS);
    for (uint32_t i = 0; i < 2 * ROWS; i++)
        assert_true(i == ROWS + 3 || *(float *)s.request[i]->out[0].data == s.value[i] + 1);
    end(&s);
}

/* An answer that went over the socket comes before the one that is in the memory already; where it
 * does not come, the worker is ended. */
static void test_router_ahead__answers_keep_their_order(void **state)
{
    subject s;
    (void)state;
    begin(&s, SMALL_BOX);
    add_requests(&s, 2 * ROWS);
    send_first(&s);
    assert_true(is_sent_ahead(&s));
    run(&s, false);
    run(&s, true);
    assert_false(weft_worker__take(&s.worker.process));
    assert_false(weft_worker__take(&s.worker.process));
    assert_int_equal(s.worker.process.state, WORKER_BUSY);
    assert_int_equal(n_done + n_ended, 0);
    s.worker.process.early_ns = 1; /* long ago */
    assert_true(weft_worker__take(&s.worker.process));
    assert_int_equal(n_ended, 1);
    end(&s);
}

/* A request in a batch that a worker had not begun when it ended has cost no worker its life. */
static void test_router_ahead__not_begun_is_no_attempt(void **state)
{
    subject s;
    (void)state;
    begin(&s, SMALL_BOX);
    add_requests(&s, 3 * ROWS);
    send_first(&s);
    assert_true(is_sent_ahead(&s));
    assert_true(weft_router__has_begun(&s.worker, 0));
    assert_false(weft_router__has_begun(&s.worker, 1));
    run(&s, true); /* which the router has not seen */
    assert_true(weft_router__has_begun(&s.worker, 1));
    assert_true(weft_worker__take(&s.worker.process));
    assert_true(weft_router__has_begun(&s.worker, 0));
    assert_int_equal(s.worker.n_ahead, 1); /* the third batch */
    assert_false(weft_router__has_begun(&s.worker, 1));
    run(&s, true);
    run(&s, true);
    assert_true(weft_worker__take(&s.worker.process));
    assert_true(weft_worker__take(&s.worker.process));
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_router_ahead__each_request_gets_its_rows),
        cmocka_unit_test(test_router_ahead__delays_nobody),
        cmocka_unit_test(test_router_ahead__clients_leave),
        cmocka_unit_test(test_router_ahead__answers_keep_their_order),
        cmocka_unit_test(test_router_ahead__not_begun_is_no_attempt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
