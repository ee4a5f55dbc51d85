/* weft_batch__take, _compose and _give, weft_worker__send: however requests are batched and padded,
 * each gets its own rows and nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/server/router_int.h"
#include "tests/support/rand.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REQUESTS_MAX = 60, ROUNDS = 3000, BUCKETS_MAX = 4, WIDTH_MAX = 4 };

/* A model of inputs a i32[b,w], c i32[b] and outputs y i64[b,w] (a + c), z i32[b] (c), e i8[b,0];
 * one that cannot be batched has the same, with a fixed first dimension. */
typedef struct subject {
    router_model model;
    worker_process worker;
    router_batch batch;
    weft_bundle_program program;
    weft_bundle_bucket bucket[BUCKETS_MAX];
    int64_t bucket_rows[BUCKETS_MAX];
    int peer; /* the worker's end */
    uint64_t seed;
    weft_request *request[REQUESTS_MAX];
    uint32_t n_request, n_answered;
} subject;

static uint32_t pick(subject *s, uint32_t n)
{
    return rand_below(&s->seed, n);
}

static void begin(subject *s, uint32_t seed)
{
    int pair[2];
    memset(s, 0, sizeof *s);
    s->seed = seed;
    bool batched = pick(s, 8) != 0;
    static const weft_bundle_port input[] = {{.name = "a", .value = 1}, {.name = "c", .value = 2}};
    s->program = (weft_bundle_program){.name = "m",
                                       .n_symbol = 2,
                                       .input = input,
                                       .n_input = 2,
                                       .n_output = 3,
                                       .batch_symbol = batched ? 0 : UINT32_MAX,
                                       .bucket = s->bucket,
                                       .n_bucket = pick(s, BUCKETS_MAX + 1)};
    s->model = (router_model){.program = &s->program,
                              .largest_bucket = 1,
                              .shares_equal = pick(s, 2) != 0,
                              .row_bytes = 1};
    for (uint32_t i = 0; i < s->program.n_bucket; i++) {
        s->bucket_rows[i] = 1 + pick(s, pick(s, 2) ? 4 : 20);
        s->bucket[i].symbol = &s->bucket_rows[i];
        if (batched && s->bucket_rows[i] > s->model.largest_bucket)
            s->model.largest_bucket = s->bucket_rows[i];
    }
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    s->worker = (worker_process){.fd = pair[0]};
    s->peer = pair[1];
}

static void end(subject *s)
{
    for (uint32_t i = 0; i < s->n_request; i++) {
        free(s->request[i]->in[0].data);
        free(s->request[i]->in[1].data);
        weft_request__destroy(s->request[i]);
    }
    weft_wire__free(&s->worker.tx);
    close(s->worker.fd);
    close(s->peer);
}

/* The inputs of one of the last requests, or of one that differs in an element. */
static void repeat_inputs(subject *s, weft_request *r)
{
    const weft_request *old = s->request[s->n_request - 1 - pick(s, s->n_request < 4 ? 1 : 4)];
    for (uint32_t i = 0; i < 2; i++) {
        size_t len = weft_tensor_bytes(&old->in[i]);
        free(r->in[i].data);
        r->in[i] = old->in[i];
        r->in[i].data = malloc(len + 1);
        memcpy(r->in[i].data, old->in[i].data, len);
        if (len > 0 && pick(s, 6) == 0)
            ((int32_t *)r->in[i].data)[pick(s, (uint32_t)len / 4)] ^= 1;
    }
    r->rows = old->rows;
}

static bool has_equal_inputs(const weft_request *a, const weft_request *b)
{
    for (uint32_t i = 0; i < 2; i++)
        if (memcmp(a->in[i].dim, b->in[i].dim, sizeof a->in[i].dim) != 0 ||
            memcmp(a->in[i].data, b->in[i].data, weft_tensor_bytes(&a->in[i])) != 0)
            return false;
    return true;
}

static void add_request(subject *s)
{
    weft_request *r =
        weft_request__create(&(weft_model_ref){.program = &s->program, .version = "1"});
    bool batched = s->program.batch_symbol == 0;
    int64_t rows = batched ? pick(s, pick(s, 4) ? 4 : 24) : 3,
            width = 1 + pick(s, pick(s, 2) ? 1 : 3);
    int32_t *a = malloc((size_t)(rows * width) * sizeof *a + 1);
    int32_t *c = malloc((size_t)rows * sizeof *c + 1);
    for (int64_t i = 0; i < rows * width; i++)
        a[i] = (int32_t)pick(s, 1 << 20);
    for (int64_t i = 0; i < rows; i++)
        c[i] = (int32_t)pick(s, 1 << 20);
    r->in[0] = (weft_tensor){.dtype = WEFT_DTYPE_I32, .rank = 2, .dim = {rows, width}, .data = a};
    r->in[1] = (weft_tensor){.dtype = WEFT_DTYPE_I32, .rank = 1, .dim = {rows}, .data = c};
    r->rows = batched ? rows : 1;
    if (s->n_request > 0 && pick(s, 2))
        repeat_inputs(s, r);
    r->arrived_ns = s->n_request;
    r->attempts = pick(s, 10) == 0;
    s->request[s->n_request++] = r;
    weft_batch__push(&s->model, r);
}

/* Behind one with equal inputs that arrived before it; and no other one has them. */
static void check_equal(const subject *s, uint32_t i)
{
    const router_batch *b = &s->batch;
    const weft_request *r = b->request[i];
    if (b->is_equal[i]) {
        assert_true(s->model.shares_equal && i > 0 && r->attempts == 0);
        assert_true(has_equal_inputs(r, b->request[i - 1]));
        assert_int_equal(b->request_row[i], b->request_row[i - 1]);
        assert_true(r->arrived_ns > b->request[i - 1]->arrived_ns);
    }
    for (uint32_t k = 0; k < i && !b->is_equal[i] && s->model.shares_equal; k++)
        assert_false(has_equal_inputs(r, b->request[k]));
}

static void check_batch(const subject *s, const weft_request *oldest)
{
    const router_batch *b = &s->batch;
    uint64_t before_ns = 0;
    int64_t rows = 0, least = 0;
    assert_true(b->n > 0 && b->n <= BATCH_REQUESTS_MAX);
    assert_ptr_equal(b->request[0], oldest);
    for (uint32_t i = 0; i < b->n; i++) {
        const weft_request *r = b->request[i];
        bool own = !b->is_equal[i];
        rows += own ? r->rows : 0;
        assert_false(r->queued);
        assert_true(i == 0 || !own || r->arrived_ns > before_ns);
        before_ns = own ? r->arrived_ns : before_ns;
        assert_true(b->n == 1 || (r->attempts == 0 && r->rows > 0));
        assert_true(i == 0 || !own || s->program.batch_symbol == 0);
        check_equal(s, i);
        assert_int_equal(r->in[0].dim[1], oldest->in[0].dim[1]);
    }
    assert_int_equal(b->rows, rows);
    assert_true(rows == oldest->rows || rows <= s->model.largest_bucket);
    if (b->padded_rows == rows)
        return;
    /* Padded to the smallest bucket that holds all rows. */
    for (uint32_t i = 0; i < s->program.n_bucket; i++)
        if (s->bucket_rows[i] >= rows && (least == 0 || s->bucket_rows[i] < least))
            least = s->bucket_rows[i];
    assert_true(rows > 0 && b->padded_rows == least);
}

static void check_queue(const subject *s)
{
    uint32_t n = 0;
    for (const weft_request *r = s->model.head; r; r = r->next, n++) {
        assert_true(r->queued);
        assert_true(!r->next || (r->next->arrived_ns > r->arrived_ns && r->next->prev == r));
    }
    assert_int_equal(n, s->model.n_queued);
}

static void receive(const subject *s, void *to, size_t len)
{
    if (len)
        assert_int_equal(recv(s->peer, to, len, MSG_WAITALL), len);
}

/* Plays the worker: reads the batch from the socket, computes the outputs, hands them back. */
static void play_worker(subject *s)
{
    router_batch *b = &s->batch;
    weft_wire_head head;
    weft_wire_tensor t[2], out[3];
    receive(s, &head, sizeof head);
    receive(s, t, sizeof t);
    assert_true(weft_wire__head_valid(&head) && head.kind == WEFT_WIRE_RUN && head.n_tensor == 2);
    assert_true(weft_wire__tensors_valid(t, 2, head.payload_bytes));
    int64_t rows = t[0].dim[0], width = t[0].dim[1];
    assert_int_equal(t[1].dim[0], rows);
    assert_int_equal(rows, s->program.batch_symbol == 0 ? b->padded_rows : 3);
    size_t n = (size_t)(rows * width);
    int32_t *a = calloc(n + 1, sizeof *a), *c = calloc((size_t)rows + 1, sizeof *c);
    receive(s, a, n * sizeof *a);
    receive(s, c, (size_t)rows * sizeof *c);
    char nothing;
    assert_int_equal(recv(s->peer, &nothing, 1, MSG_DONTWAIT), -1);
    uint8_t *payload = malloc(n * 8 + (size_t)rows * 4 + 1);
    for (size_t i = 0; i < n; i++) {
        int64_t y = (int64_t)a[i] + c[i / (size_t)width];
        memcpy(payload + 8 * i, &y, 8);
    }
    memcpy(payload + 8 * n, c, (size_t)rows * 4);
    out[0] = (weft_wire_tensor){.dtype = WEFT_DTYPE_I64, .rank = 2, .dim = {rows, width}};
    out[1] = (weft_wire_tensor){.dtype = WEFT_DTYPE_I32, .rank = 1, .dim = {rows}};
    out[2] = (weft_wire_tensor){.dtype = WEFT_DTYPE_I8, .rank = 2, .dim = {rows, 0}};
    weft_batch__give(&s->model, b, out, 3, payload, NULL);
    weft_batch__count(&s->model, b, &head, 1000);
    free(payload);
    free(a);
    free(c);
}

static void check_answer(const weft_request *r)
{
    const int32_t *a = r->in[0].data, *c = r->in[1].data;
    int64_t rows = r->in[0].dim[0], width = r->in[0].dim[1];
    const int64_t *y = r->out[0].data;
    assert_int_equal(r->answer, WEFT_ANSWER_OK);
    assert_true(r->out[0].dtype == WEFT_DTYPE_I64 && r->out[0].rank == 2);
    assert_true(r->out[0].dim[0] == rows && r->out[0].dim[1] == width);
    assert_true(r->out[1].dim[0] == rows && r->out[2].dim[0] == rows && r->out[2].dim[1] == 0);
    for (int64_t i = 0; i < rows * width; i++)
        assert_int_equal(y[i], (int64_t)a[i] + c[i / width]);
    if (rows)
        assert_memory_equal(r->out[1].data, c, (size_t)rows * 4);
}

static void run_batch(subject *s)
{
    const weft_request *oldest = s->model.head;
    s->batch = (router_batch){0};
    weft_batch__take(&s->model, s->model.largest_bucket, &s->batch);
    check_batch(s, oldest);
    check_queue(s);
    if (pick(s, 10) == 0) { /* the worker dies: all requests return to their places in the queue */
        for (uint32_t i = 0; i < s->batch.n; i++)
            weft_batch__push(&s->model, s->batch.request[i]);
        check_queue(s);
        return;
    }
    weft_wire_out message;
    assert_true(weft_batch__compose(&s->model, &s->batch, 1, NULL, &message));
    weft_worker__send(&s->worker, &message);
    assert_int_equal(s->worker.state, WORKER_BUSY);
    if (pick(s, 5) == 0) { /* a request leaves the batch, and the others keep their rows */
        uint32_t i = pick(s, s->batch.n);
        weft_batch__push(&s->model, s->batch.request[i]);
        s->batch.request[i] = NULL;
    }
    play_worker(s);
    for (uint32_t i = 0; i < s->batch.n; i++)
        if (s->batch.request[i]) {
            check_answer(s->batch.request[i]);
            s->n_answered++;
        }
}

static void test_batch__each_request_gets_its_rows(void **state)
{
    static subject s;
    (void)state;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        begin(&s, round);
        uint32_t n = 1 + pick(&s, pick(&s, 3) ? 10 : REQUESTS_MAX);
        while (s.n_answered < n) {
            if (s.n_request < n && pick(&s, 3))
                add_request(&s);
            else if (s.model.head)
                run_batch(&s);
        }
        assert_null(s.model.head);
        assert_int_equal(s.model.stats.queue.count, n);
        end(&s);
    }
}

/* Requests that differ in the last byte of their inputs only, or in none, need not be told apart at
 * any price: so many bytes are compared for a batch, and the others are computed by themselves. */
static void test_batch__compares_so_many_bytes(void **state)
{
    enum { N = 8, LEN = EQUAL_BYTES_MAX / 3 };
    static const weft_bundle_port input[] = {{.name = "a", .value = 1}};
    weft_bundle_program p = {.name = "m", .n_symbol = 1, .input = input, .n_input = 1};
    router_model model = {.program = &p, .largest_bucket = 1, .shares_equal = true, .row_bytes = 1};
    uint8_t *data = calloc(N, LEN);
    (void)state;
    for (uint32_t equal = 0; equal < 2; equal++) {
        weft_request *request[N];
        router_batch batch = {0};
        equal_table table;
        weft_equal__begin(&table, 0);
        for (uint32_t i = 0; i < N; i++) {
            weft_request *r =
                weft_request__create(&(weft_model_ref){.program = &p, .version = "1"});
            data[i * LEN + LEN - 1] = (uint8_t)(equal ? 0 : i); /* in no sample */
            r->in[0] = (weft_tensor){
                .dtype = WEFT_DTYPE_U8, .rank = 2, .dim = {1, LEN}, .data = data + i * LEN};
            r->rows = 1;
            r->arrived_ns = i;
            request[i] = r;
            assert_null(equal ? NULL : weft_equal__find(&table, NULL, &model, r));
            weft_equal__add(&table, &model, r);
            weft_batch__push(&model, r);
        }
        assert_true(equal || (table.compared > 0 && table.compared <= EQUAL_BYTES_MAX));
        weft_batch__take(&model, N, &batch);
        assert_int_equal(batch.n, N);
        assert_int_equal(batch.rows, equal ? N - 3 : N);
        for (uint32_t i = 0; i < N; i++)
            weft_request__destroy(request[i]);
    }
    free(data);
}

/* Large outputs are not copied: requests refer to what the worker sent, unless its values could not
 * be read there. */
static void test_batch__large_outputs_are_shared(void **state)
{
    enum { N = 3, ROWS = 70001 };
    static const weft_bundle_port input[] = {{.name = "a", .value = 1}};
    static const struct {
        weft_dtype first;
        bool has_owner, shares;
    } cases[] = {{WEFT_DTYPE_I32, true, true},
                 {WEFT_DTYPE_I8, true, false}, /* an odd number of bytes before the others */
                 {WEFT_DTYPE_I32, false, false}};
    weft_bundle_program p = {
        .name = "m", .n_symbol = 1, .input = input, .n_input = 1, .n_output = 2};
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        router_model model = {.program = &p, .largest_bucket = N * ROWS, .row_bytes = 1};
        router_batch batch = {0};
        const weft_wire_tensor out[2] = {{cases[k].first, 1, {N * ROWS}},
                                         {WEFT_DTYPE_I32, 1, {N * ROWS}}};
        size_t before = N * ROWS * weft_dtype_size(cases[k].first), bytes = before + N * ROWS * 4;
        weft_payload *owner = weft_payload__create(bytes);
        for (size_t i = 0; i < bytes; i++)
            weft_payload__at(owner)[i] = (uint8_t)(i * 7 + i / 251);
        for (uint32_t i = 0; i < N; i++) {
            weft_request *r =
                weft_request__create(&(weft_model_ref){.program = &p, .version = "1"});
            r->in[0] = (weft_tensor){.dtype = WEFT_DTYPE_I8, .rank = 1, .dim = {ROWS}};
            r->rows = ROWS;
            r->arrived_ns = i;
            weft_batch__push(&model, r);
        }
        weft_batch__take(&model, N * ROWS, &batch);
        assert_int_equal(batch.n, N);
        weft_batch__give(&model, &batch, out, 2, weft_payload__at(owner),
                         cases[k].has_owner ? owner : NULL);
        weft_payload__release(weft_payload__hold(owner), NULL);
        for (uint32_t i = 0; i < N; i++) {
            weft_request *r = batch.request[i];
            const uint8_t *at = weft_payload__at(owner);
            assert_int_equal(r->answer, WEFT_ANSWER_OK);
            assert_int_equal(r->outputs == owner, cases[k].shares);
            assert_memory_equal(r->out[0].data, at + before / N * i, before / N);
            assert_memory_equal(r->out[1].data, at + before + ROWS * 4 * i, ROWS * 4);
            assert_true((uintptr_t)r->out[1].data % 4 == 0 && r->out[1].dim[0] == ROWS);
        }
        weft_payload__release(owner, NULL); /* the requests keep it */
        for (uint32_t i = 0; i < N; i++) {
            assert_int_equal(*(uint8_t *)batch.request[i]->out[0].data,
                             (uint8_t)(before / N * i * 7 + before / N * i / 251));
            weft_request__destroy(batch.request[i]);
        }
    }
}

/* Outputs that cannot be divided among the requests are an error. */
static void test_batch__refuses_outputs_that_do_not_fit(void **state)
{
    static subject s;
    uint8_t payload[4096] = {0};
    (void)state;
    begin(&s, 1);
    s.program.batch_symbol = 0;
    s.program.n_bucket = 0;
    s.model.largest_bucket = 100;
    while (s.n_request < 5)
        add_request(&s);
    for (uint32_t i = 0; i < 5; i++) {
        s.request[i]->in[0].dim[1] = 1;
        s.request[i]->rows = s.request[i]->in[0].dim[0] = s.request[i]->in[1].dim[0] = 0;
        s.request[i]->attempts = 0;
    }
    s.request[0]->rows = 2;
    s.request[1]->rows = 3;
    router_batch b = {0};
    weft_batch__take(&s.model, s.model.largest_bucket, &b);
    assert_int_equal(b.n, 2);
    static const weft_wire_tensor bad[] = {{WEFT_DTYPE_I32, 0, {0}},
                                           {WEFT_DTYPE_I32, 1, {4}},
                                           {WEFT_DTYPE_I32, 1, {6}},
                                           {WEFT_DTYPE_I32, 1, {0}},
                                           {WEFT_DTYPE_I32, 2, {1, 5}}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const weft_wire_tensor out[3] = {bad[i], bad[i], bad[i]};
        weft_batch__give(&s.model, &b, out, 3, payload, NULL);
        assert_int_equal(b.request[0]->answer, WEFT_ANSWER_INTERNAL);
        assert_int_equal(b.request[1]->answer, WEFT_ANSWER_INTERNAL);
        weft_batch__give(&s.model, &b, out, 2, payload, NULL);
        assert_int_equal(b.request[1]->answer, WEFT_ANSWER_INTERNAL);
    }
    end(&s);
}

/* What is not sent yet is copied: the chunks may change afterwards. */
static void test_wire__owns_what_is_not_sent(void **state)
{
    char a[] = "first", b[] = "second", c[] = "third";
    weft_wire_out out;
    (void)state;
    assert_true(weft_wire__begin(&out, WEFT_WIRE_RUN, 0, 3));
    weft_wire__add_chunk(&out, a, 5);
    weft_wire__add_chunk(&out, b, 6);
    weft_wire__add_chunk(&out, c, 5);
    out.at_iov = 3; /* "first" is sent, and a part of "second" */
    out.iov[3] = (struct iovec){.iov_base = b + 2, .iov_len = 4};
    assert_true(weft_wire__own(&out));
    memset(a, 'x', 5);
    memset(b, 'x', 6);
    memset(c, 'x', 5);
    assert_true(weft_wire__own(&out)); /* a second time changes nothing */
    assert_memory_equal(out.iov[3].iov_base, "cond", 4);
    assert_memory_equal(out.iov[4].iov_base, "third", 5);
    assert_true(out.iov[3].iov_len == 4 && out.iov[4].iov_len == 5);
    weft_wire__free(&out);
}

static uint32_t n_done[WEFT_ANSWER_INTERNAL + 1];

static void count_done(weft_request *request)
{
    n_done[request->answer]++;
}

/* While the worker starts: requests above the limit, or while draining, are refused at once, the
 * queued ones when the router gives up. */
static void test_batch__queues_are_bounded(void **state)
{
    static weft_request *request[QUEUE_MAX + 20];
    static const weft_serve_options options = {0};
    static const weft_bundle_value none[1];
    weft_bundle_program p = {.name = "m", .value = none, .batch_symbol = UINT32_MAX};
    const weft_model_ref ref = {.program = &p, .version = "1"};
    router_model model = {.program = &p, .largest_bucket = 1};
    bool serves = true;
    int64_t most = 1;
    router_worker worker = {
        .serves = &serves, .most = &most, .process = {.state = WORKER_STARTING}};
    weft_router router = {.options = &options,
                          .model = &model,
                          .n_model = 1,
                          .worker = &worker,
                          .n_worker = 1,
                          .timeout_ns = 1000000000};
    (void)state;
    for (uint32_t i = 0; i < QUEUE_MAX + 20; i++) {
        request[i] = weft_request__create(&ref);
        request[i]->done = count_done;
        if (i == QUEUE_MAX + 10)
            weft_router__drain(&router);
        weft_router__submit(&router, request[i]);
        uint32_t full = i < QUEUE_MAX ? 0 : i + 1 - QUEUE_MAX;
        full = full > 10 ? 10 : full;
        assert_int_equal(n_done[WEFT_ANSWER_OVERLOADED], full);
        assert_int_equal(n_done[WEFT_ANSWER_UNAVAILABLE],
                         i < QUEUE_MAX ? 0 : i + 1 - QUEUE_MAX - full);
    }
    assert_non_null(strstr(request[QUEUE_MAX]->message, "full"));
    assert_int_equal(model.stats.pending, QUEUE_MAX);
    weft_router__abandon(&router, request[7]);
    assert_int_equal(model.n_queued, QUEUE_MAX - 1);
    assert_true(n_done[WEFT_ANSWER_UNAVAILABLE] == 11); /* abandoned: at once */
    weft_router__give_up(&router);
    assert_true(weft_router__is_idle(&router));
    assert_int_equal(n_done[WEFT_ANSWER_UNAVAILABLE], QUEUE_MAX + 10);
    for (uint32_t i = 0; i < QUEUE_MAX + 20; i++)
        weft_request__destroy(request[i]);
}

/* A plan may place a model of the bundle elsewhere: its requests are not queued. */
static void test_batch__models_without_worker(void **state)
{
    static const weft_serve_options options = {0};
    static const weft_bundle_value none[1];
    weft_bundle_program p = {.name = "m", .value = none, .batch_symbol = UINT32_MAX};
    const weft_model_ref ref = {.program = &p, .version = "1"};
    router_model model = {.program = &p, .version = "1", .shown = true, .largest_bucket = 1};
    bool serves = false;
    uint32_t key;
    int64_t most = 1;
    router_worker worker = {
        .serves = &serves, .most = &most, .process = {.state = WORKER_STARTING}};
    weft_router router = {.options = &options,
                          .model = &model,
                          .key = &key,
                          .n_model = 1,
                          .worker = &worker,
                          .n_worker = 1,
                          .timeout_ns = 1000000000};
    (void)state;
    weft_router__set_key(&router, 0);
    memset(n_done, 0, sizeof n_done);
    weft_request *request = weft_request__create(&ref);
    request->done = count_done;
    assert_true(weft_router__all_ready(&router));
    assert_int_equal(weft_router__find(&router, "m", 1, NULL, 0), UINT32_MAX);
    weft_router__submit(&router, request);
    assert_int_equal(n_done[WEFT_ANSWER_NOT_FOUND], 1);
    assert_int_equal(model.n_queued, 0);
    weft_request__destroy(request);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batch__models_without_worker),
        cmocka_unit_test(test_batch__each_request_gets_its_rows),
        cmocka_unit_test(test_batch__compares_so_many_bytes),
        cmocka_unit_test(test_batch__large_outputs_are_shared),
        cmocka_unit_test(test_batch__refuses_outputs_that_do_not_fit),
        cmocka_unit_test(test_wire__owns_what_is_not_sent),
        cmocka_unit_test(test_batch__queues_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
