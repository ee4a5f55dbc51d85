/* Queues and batches: which requests run together, and how the outputs of a batch become answers.
 *
 * Requests of one model whose inputs agree in all dims but the batch dim (dim 0 of every input and
 * output) form a batch, in the order in which they are due, of at most the rows of the model's
 * largest bucket. A batch whose size is between two buckets is padded to the upper one by repeating
 * its last row when the padding is at most a third of that bucket; otherwise the batch is cut to
 * the lower bucket and the youngest requests return to the queue. Rows are independent (checked by
 * the compiler), so padding does not change the other rows.
 *
 * A request whose inputs are equal to those of another one in the batch (equal_inputs.c) stands
 * behind it and adds no rows. */
#include "runtime/server/router_int.h"

#include <stdlib.h>
#include <string.h>

enum { SYMBOLS_FEW = 16, COPIED_BYTES_MAX = 256 << 10 /* of the outputs of a request */ };

/* -- Queues --------------------------------------------------------------------------------- */

static bool is_before(const weft_request *a, const weft_request *b)
{
    return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->arrived_ns < b->arrived_ns;
}

void weft_batch__push(router_model *model, weft_request *request)
{
    weft_request *prev = model->tail; /* most requests are due last */
    while (prev && is_before(request, prev))
        prev = prev->prev;
    request->queued = true;
    request->prev = prev;
    request->next = prev ? prev->next : model->head;
    *(request->prev ? &request->prev->next : &model->head) = request;
    *(request->next ? &request->next->prev : &model->tail) = request;
    model->n_queued++;
}

void weft_batch__remove(router_model *model, weft_request *request)
{
    *(request->prev ? &request->prev->next : &model->head) = request->next;
    *(request->next ? &request->next->prev : &model->tail) = request->prev;
    request->next = request->prev = NULL;
    request->queued = false;
    model->n_queued--;
}

static bool can_batch(const weft_bundle_program *p)
{
    return p->batch_symbol < p->n_symbol;
}

int64_t weft_batch__largest(const weft_bundle_program *p)
{
    int64_t most = 0;
    for (uint32_t i = 0; i < p->n_bucket && can_batch(p); i++)
        if (p->bucket[i].symbol[p->batch_symbol] > most)
            most = p->bucket[i].symbol[p->batch_symbol];
    return most;
}

/* Sets the answer of a request whose inputs do not fit the model. */
static void refuse_inputs(const weft_bundle_program *p, weft_request *request, int64_t *symbol)
{
    weft_diag *diag = weft_diag_create();
    weft_err err =
        diag ? weft_bundle_bind(p, request->in, p->n_input, symbol, diag) : WEFT_ERR_NOMEM;
    if (diag && weft_diag_count(diag) > 0)
        weft_request__set_answer(request, WEFT_ANSWER_INVALID, "%s", weft_diag_at(diag, 0)->text);
    else
        weft_request__set_answer(request, WEFT_ANSWER_INTERNAL, "%s", weft_err_text(err));
    weft_diag_destroy(diag);
}

uint64_t weft_batch__find_adapter(const router_model *model, const char *name, size_t len,
                                  weft_live_adapter **out_live)
{
    const weft_bundle *b = model->bundle ? model->bundle->bundle : NULL;
    char text[WEFT_ADAPTER_NAME_MAX + 1];
    *out_live = NULL;
    if (!b || model->app || len == 0 || len >= sizeof text)
        return 0;
    const char *base = weft_bundle_served(model->program);
    uint32_t program = (uint32_t)(model->program - b->program);
    weft_live_adapter *live = weft_live__find(model->live, base, strlen(base), name, len);
    if (live) { /* also in place of one of the bundle */
        *out_live = live->number && weft_live__fits(live, b, program) ? live : NULL;
        return *out_live ? live->number : 0;
    }
    memcpy(text, name, len);
    text[len] = 0;
    return weft_bundle_find_adapter(b, program, text);
}

/* Finds the adapter that the request names, and holds it. false: the model has none of that name;
 * the answer is set. */
static bool find_adapter(const router_model *model, weft_request *request)
{
    weft_live_adapter *live = NULL;
    weft_live__release(request->live);
    request->live = NULL;
    request->adapter_at = 0;
    if (!request->adapter[0])
        return true;
    request->adapter_at =
        weft_batch__find_adapter(model, request->adapter, strlen(request->adapter), &live);
    request->live = weft_live__hold(live);
    if (!request->adapter_at)
        weft_request__set_answer(request, WEFT_ANSWER_INVALID, "model '%.128s' has no adapter '%s'",
                                 weft_bundle_served(model->program), request->adapter);
    return request->adapter_at != 0;
}

bool weft_batch__admit(const router_model *model, weft_request *request)
{
    const weft_bundle_program *p = model->program;
    int64_t few[SYMBOLS_FEW], *symbol = few;
    if (!find_adapter(model, request))
        return false;
    if (p->n_symbol > SYMBOLS_FEW)
        symbol = malloc(p->n_symbol * sizeof *symbol);
    /* Without diagnostics: most requests fit. */
    bool fits = symbol && weft_bundle_bind(p, request->in, p->n_input, symbol, NULL) == WEFT_ERR_OK;
    int64_t most = weft_batch__largest(p);
    if (!symbol)
        weft_request__set_answer(request, WEFT_ANSWER_INTERNAL, "%s",
                                 weft_err_text(WEFT_ERR_NOMEM));
    else if (!fits)
        refuse_inputs(p, request, symbol);
    else
        request->rows = can_batch(p) ? symbol[p->batch_symbol] : 1;
    if (fits && most > 0 && request->rows > most) {
        weft_request__set_answer(request, WEFT_ANSWER_INVALID,
                                 "the batch is %lld, above max_batch_size %lld",
                                 (long long)request->rows, (long long)most);
        fits = false;
    }
    if (symbol != few)
        free(symbol);
    return fits;
}

bool weft_batch__is_due(const router_model *model, double delay_us, uint64_t now_ns)
{
    double slo_us = model->program->slo_us;
    if (delay_us <= 0 || model->largest_bucket <= 1)
        return true;
    if (slo_us > 0 && delay_us > slo_us / 4)
        delay_us = slo_us / 4;
    return (int64_t)model->n_queued >= model->largest_bucket ||
           (double)(now_ns - model->head->arrived_ns) >= delay_us * 1e3;
}

/* -- Taking --------------------------------------------------------------------------------- */

/* Equal dims of all inputs, dim 0 excepted. */
static bool fits_with(const weft_bundle_program *p, const weft_request *a, const weft_request *b)
{
    for (uint32_t i = 0; i < p->n_input; i++)
        if (memcmp(a->in[i].dim + 1, b->in[i].dim + 1,
                   sizeof a->in[i].dim - sizeof a->in[i].dim[0]) != 0)
            return false;
    return true;
}

/* The smallest bucket of at least `rows` rows and the largest of at most `rows`; 0: none. */
static void find_buckets(const weft_bundle_program *p, int64_t rows, int64_t *out_above,
                         int64_t *out_below)
{
    *out_above = *out_below = 0;
    for (uint32_t i = 0; i < p->n_bucket; i++) {
        int64_t b = p->bucket[i].symbol[p->batch_symbol];
        if (b >= rows && (*out_above == 0 || b < *out_above))
            *out_above = b;
        if (b <= rows && b > *out_below)
            *out_below = b;
    }
}

/* Pads the batch to a bucket, or returns its youngest requests to the queue until it fits one. */
static void round_to_bucket(router_model *model, router_batch *batch)
{
    int64_t above, below;
    find_buckets(model->program, batch->rows, &above, &below);
    batch->padded_rows = batch->rows;
    if (above == 0 || above == batch->rows)
        return;
    if (3 * (above - batch->rows) <= above || below == 0) {
        batch->padded_rows = above;
        return;
    }
    while (batch->n > 1 && batch->rows > below) {
        weft_request *r = batch->request[--batch->n];
        batch->rows -= batch->request_rows[batch->n];
        weft_batch__push(model, r);
    }
    batch->padded_rows = batch->rows;
    find_buckets(model->program, batch->rows, &above, &below);
    if (above > 0)
        batch->padded_rows = above;
}

int64_t weft_batch__padded(const router_model *model, int64_t rows)
{
    int64_t above, below;
    if (!can_batch(model->program) || rows <= 0)
        return rows;
    find_buckets(model->program, rows, &above, &below);
    return above > 0 ? above : rows;
}

int64_t weft_batch__waiting(const router_model *model, size_t *compared)
{
    int64_t rows = 0, above, below;
    uint32_t n = 0;
    equal_table table;
    weft_equal__begin(&table, *compared);
    for (weft_request *r = model->head; r && n < BATCH_REQUESTS_MAX; r = r->next, n++) {
        if (r->attempts > 0 || r->rows <= 0 || !fits_with(model->program, model->head, r))
            break;
        if (weft_equal__find(&table, NULL, model, r))
            continue;
        if (rows + r->rows > model->largest_bucket)
            break;
        rows += r->rows;
        if (r->next)
            weft_equal__add(&table, model, r);
    }
    *compared = table.compared;
    if (rows == 0)
        return 0;
    find_buckets(model->program, rows, &above, &below);
    /* A single request larger than the lower bucket cannot be cut: it is padded. */
    return model->head->rows > below ? above : below;
}

static void put_at(router_batch *batch, uint32_t i, weft_request *r, int64_t rows, bool is_equal)
{
    batch->request[i] = r;
    batch->request_rows[i] = rows;
    batch->is_equal[i] = is_equal;
}

static void move_up(router_batch *batch, uint32_t i)
{
    put_at(batch, i + 1, batch->request[i], batch->request_rows[i], batch->is_equal[i]);
    batch->request_length[i + 1] = batch->request_length[i];
}

/* Requests of one adapter stand together: their rows are one segment of the low-rank GEMMs. The
 * order of others stays, so that a request stays behind that with equal inputs. */
static void sort_by_adapter(router_batch *batch)
{
    for (uint32_t i = 1; i < batch->n; i++) {
        weft_request *r = batch->request[i];
        int64_t rows = batch->request_rows[i];
        bool is_equal = batch->is_equal[i];
        uint32_t k = i;
        for (; k > 0 && batch->request[k - 1]->adapter_at > r->adapter_at; k--)
            move_up(batch, k - 1);
        put_at(batch, k, r, rows, is_equal);
    }
}

/* The answers to a batch are copied in one turn: how many rows those to equal requests may have. */
static bool has_room(const router_batch *batch, const router_model *model, const weft_request *r)
{
    int64_t most = model->row_bytes > 0 ? (int64_t)(EQUAL_BYTES_MAX / model->row_bytes) : 0;
    most = most > model->largest_bucket ? most : model->largest_bucket;
    return batch->n < BATCH_REQUESTS_MAX && batch->equal_rows + r->rows <= most;
}

weft_request *weft_batch__find_equal(const router_batch *batch, const router_model *model,
                                     equal_table *table, const weft_bundle_program *of,
                                     weft_request *request)
{
    return has_room(batch, model, request) ? weft_equal__find(table, of, model, request) : NULL;
}

void weft_batch__add(router_batch *batch, const router_model *model, equal_table *table,
                     const weft_request *as, weft_request *request)
{
    uint32_t end = batch->n++, at = as ? 1 : end;
    if (!as) {
        put_at(batch, at, request, request->rows, false);
        batch->rows += request->rows;
        if (model->head) /* else there is nothing to compare it with */
            weft_equal__add(table, model, request);
        return;
    }
    while (batch->request[at - 1] != as)
        at++;
    while (at < end && batch->is_equal[at])
        at++;
    for (uint32_t i = end; i > at; i--)
        move_up(batch, i - 1);
    batch->equal_rows += request->rows;
    put_at(batch, at, request, 0, true);
    batch->request_length[at] = batch->request_length[at - 1];
}

static void set_rows(router_batch *batch)
{
    int64_t row = 0, next = 0;
    for (uint32_t i = 0; i < batch->n; i++) {
        row = batch->is_equal[i] ? row : next;
        batch->request_row[i] = row;
        next += batch->request_rows[i];
    }
}

void weft_batch__take(router_model *model, int64_t most, router_batch *batch)
{
    const weft_bundle_program *p = model->program;
    weft_request *first = model->head, *next;
    bool alone = !can_batch(p) || first->attempts > 0 || first->rows <= 0;
    uint32_t n_seen = 0;
    equal_table table;
    weft_equal__begin(&table, 0);
    for (weft_request *r = first; r && batch->n < BATCH_REQUESTS_MAX; r = next) {
        bool full = r != first && (alone || batch->rows >= most);
        next = r->next;
        /* Then it looks for equal ones only, not in all of a long queue. */
        if (full && (!model->shares_equal || ++n_seen > BATCH_REQUESTS_MAX))
            break;
        bool fits = !full && r->attempts == 0 && r->rows > 0 && batch->rows + r->rows <= most &&
                    fits_with(p, first, r);
        const weft_request *as = weft_batch__find_equal(batch, model, &table, p, r);
        if (r != first && !fits && !as)
            continue;
        weft_batch__remove(model, r);
        weft_batch__add(batch, model, &table, as, r);
    }
    if (!can_batch(p) || batch->rows <= 0 || batch->rows > weft_batch__largest(p))
        batch->padded_rows = batch->rows;
    else
        round_to_bucket(model, batch);
    sort_by_adapter(batch);
    set_rows(batch);
}

void weft_batch__put_back(router_model *model, router_batch *batch)
{
    for (uint32_t i = batch->n; i-- > 0;)
        if (batch->request[i])
            weft_batch__push(model, batch->request[i]);
    batch->n = 0;
}

void weft_batch__keep_adapter(router_batch *batch, const weft_request *request)
{
    if (request->live)
        batch->left[batch->n_left++] = weft_live__hold(request->live);
}

void weft_batch__end(router_batch *batch)
{
    while (batch->n_left > 0)
        weft_live__release(batch->left[--batch->n_left]);
}

/* -- Sending -------------------------------------------------------------------------------- */

void weft_batch__compose_input(const router_batch *b, const weft_bundle_program *p, uint32_t i,
                               const weft_wire_tensor *empty, weft_wire_tensor *t,
                               weft_wire_out *out)
{
    if (b->n == 0) {
        *t = *empty;
        return;
    }
    const weft_tensor *last = &b->request[b->n - 1]->in[i];
    bool batched = can_batch(p);
    *t = (weft_wire_tensor){.dtype = last->dtype, .rank = last->rank};
    memcpy(t->dim, last->dim, sizeof t->dim);
    if (batched)
        t->dim[0] = b->padded_rows;
    for (uint32_t k = 0; k < b->n; k++) {
        const weft_tensor *in = &b->request[k]->in[i];
        if (!b->is_equal[k])
            weft_wire__add_chunk(out, in->data, weft_tensor_bytes(in));
    }
    size_t row = batched && last->dim[0] > 0 ? weft_tensor_bytes(last) / (size_t)last->dim[0] : 0;
    for (int64_t k = b->rows; k < b->padded_rows; k++)
        weft_wire__add_chunk(out, (const char *)last->data + row * (size_t)(last->dim[0] - 1), row);
}

static bool is_adapted(const router_batch *b)
{
    for (uint32_t i = 0; i < b->n; i++)
        if (b->request[i]->adapter_at)
            return true;
    return false;
}

/* The adapter of each row, or of the request that runs alone. Rows of padding repeat the last. */
static void compose_adapters(const router_batch *b, const weft_bundle_program *p,
                             weft_wire_tensor *t, weft_wire_out *out)
{
    int64_t rows = can_batch(p) ? b->padded_rows : 1, at = 0;
    *t = (weft_wire_tensor){.dtype = WEFT_DTYPE_U64, .rank = 1, .dim = {rows}};
    for (uint32_t i = 0; i < b->n; i++) {
        int64_t end = i + 1 < b->n ? at + b->request_rows[i] : rows;
        for (; at < end; at++)
            weft_wire__add_chunk(out, &b->request[i]->adapter_at, sizeof(uint64_t));
    }
    out->head.adapted = 1;
}

uint64_t weft_batch__skipped(const router_batch *b)
{
    uint64_t all = b->n > 0 ? UINT64_MAX : 0;
    for (uint32_t i = 0; i < b->n; i++)
        all &= b->request[i]->skip;
    return all;
}

bool weft_batch__compose(const router_model *model, const router_batch *batch, uint32_t n_batch,
                         const weft_wire_tensor *empty, weft_wire_out *out)
{
    uint32_t n_input = 0, at = 0;
    size_t n_chunk = 0;
    for (uint32_t k = 0; k < n_batch; k++) {
        const router_batch *b = &batch[k];
        uint32_t n = model[b->model].program->n_input;
        size_t padding = (size_t)(b->padded_rows > b->rows ? b->padded_rows - b->rows : 0);
        n_input += n;
        n_chunk += n * (b->n + padding);
    }
    /* Models with adapters are in no joint program. */
    bool adapted = !empty && is_adapted(&batch[0]);
    if (adapted)
        n_chunk += (size_t)batch[0].padded_rows + 1;
    if (!weft_wire__begin(out, WEFT_WIRE_RUN, n_input + adapted, n_chunk))
        return false;
    /* A joint program has the outputs of several models. */
    out->head.skip = empty ? 0 : weft_batch__skipped(&batch[0]);
    for (uint32_t k = 0; k < n_batch; k++) {
        const weft_bundle_program *p = model[batch[k].model].program;
        for (uint32_t i = 0; i < p->n_input; i++, at++)
            weft_batch__compose_input(&batch[k], p, i, empty ? &empty[at] : NULL, &out->tensor[at],
                                      out);
    }
    if (adapted)
        compose_adapters(&batch[0], model[batch[0].model].program, &out->tensor[at], out);
    return true;
}

/* -- Answers -------------------------------------------------------------------------------- */

/* Whether the run has the rows of one request, and no other ones. */
static bool is_single(const router_batch *batch)
{
    return batch->rows == batch->request_rows[0] && batch->rows == batch->padded_rows;
}

static size_t all_bytes(const weft_wire_tensor *t)
{
    return (size_t)weft_numel(t->dim, t->rank) * weft_dtype_size((weft_dtype)t->dtype);
}

/* Bytes of `rows` rows of output `t`; SIZE_MAX when the output has no row for each row of the
 * batch. */
static size_t rows_bytes(const router_model *model, const router_batch *batch,
                         const weft_wire_tensor *t, int64_t rows)
{
    size_t all = all_bytes(t);
    if (!can_batch(model->program) || is_single(batch))
        return all;
    if (t->rank < 1 || t->dim[0] != batch->padded_rows)
        return SIZE_MAX;
    return batch->padded_rows ? all / (size_t)batch->padded_rows * (size_t)rows : 0;
}

/* What a worker has answered. */
typedef struct batch_answer {
    const weft_wire_tensor *tensor;
    uint32_t n_tensor;
    const uint8_t *payload;
    weft_payload *owner; /* NULL: the payload is to be copied */
} batch_answer;

/* Bytes of the output before row `row` of the run, of which the request has `part` from there. */
static size_t bytes_before(const weft_request *r, const weft_wire_tensor *t, size_t part,
                           int64_t row)
{
    return part == all_bytes(t) || r->rows == 0 ? 0 : part / (size_t)r->rows * (size_t)row;
}

/* Whether the values of all outputs may be read where they are. */
static bool is_aligned(const batch_answer *a)
{
    uintptr_t at = (uintptr_t)a->payload;
    for (uint32_t i = 0; i < a->n_tensor; at += all_bytes(&a->tensor[i++]))
        if (at % weft_dtype_size((weft_dtype)a->tensor[i].dtype) != 0)
            return false;
    return true;
}

/* Gives the request its rows of every output, which start at `row`. false: the outputs do not fit,
 * or out of memory. */
static bool give_one(router_model *model, const router_batch *batch, weft_request *r, int64_t row,
                     const batch_answer *a)
{
    const uint8_t *payload = a->payload;
    size_t total = 0, at = 0;
    for (uint32_t i = 0; i < a->n_tensor; i++) {
        const weft_wire_tensor *t = &a->tensor[i];
        size_t part = weft_request__asks(r, i) ? rows_bytes(model, batch, t, r->rows) : 0;
        if (part == SIZE_MAX)
            return false;
        total += (part + 63) / 64 * 64;
    }
    /* To copy what is large would take the loop too long. */
    bool shares = a->owner && total > COPIED_BYTES_MAX && is_aligned(a);
    r->outputs = shares ? weft_payload__hold(a->owner) : weft_payload__create(total);
    if (!r->outputs)
        return false;
    size_t row_bytes = r->rows > 0 ? total / (size_t)r->rows : 0;
    model->row_bytes = row_bytes > model->row_bytes ? row_bytes : model->row_bytes;
    for (uint32_t i = 0; i < a->n_tensor; payload += all_bytes(&a->tensor[i++])) {
        const weft_wire_tensor *t = &a->tensor[i];
        if (!weft_request__asks(r, i)) {
            r->out[i] = (weft_tensor){.dtype = (weft_dtype)t->dtype, .rank = 1};
            continue;
        }
        size_t part = rows_bytes(model, batch, t, r->rows);
        const uint8_t *from = payload + bytes_before(r, t, part, row);
        uint8_t *data = shares ? (uint8_t *)from : weft_payload__at(r->outputs) + at;
        r->out[i] = (weft_tensor){.dtype = (weft_dtype)t->dtype, .rank = t->rank, .data = data};
        memcpy(r->out[i].dim, t->dim, sizeof t->dim);
        if (can_batch(model->program) && !is_single(batch))
            r->out[i].dim[0] = r->rows;
        if (!shares)
            memcpy(data, from, part);
        at += (part + 63) / 64 * 64;
    }
    return true;
}

void weft_batch__give(router_model *model, router_batch *batch, const weft_wire_tensor *tensor,
                      uint32_t n_tensor, const uint8_t *payload, weft_payload *owner)
{
    const batch_answer answer = {tensor, n_tensor, payload, owner};
    for (uint32_t i = 0; i < batch->n; i++) {
        weft_request *r = batch->request[i];
        if (!r)
            continue;
        r->answer = WEFT_ANSWER_OK;
        if (n_tensor != model->program->n_output ||
            !give_one(model, batch, r, batch->request_row[i], &answer))
            weft_request__set_answer(r, WEFT_ANSWER_INTERNAL, "the worker's answer does not fit");
    }
}

/* -- Statistics ----------------------------------------------------------------------------- */

static weft_batch_stat *find_stat(weft_model_stats *s, uint64_t batch)
{
    uint32_t i = 0;
    while (i < s->n_batch && s->batch[i].batch < batch)
        i++;
    if (i < s->n_batch && s->batch[i].batch == batch)
        return &s->batch[i];
    if (s->n_batch == WEFT_BATCH_STATS_MAX)
        return NULL;
    memmove(&s->batch[i + 1], &s->batch[i], (s->n_batch - i) * sizeof s->batch[0]);
    s->batch[i] = (weft_batch_stat){.batch = batch};
    s->n_batch++;
    return &s->batch[i];
}

static void add(weft_duration *d, uint64_t count, uint64_t ns)
{
    d->count += count;
    d->ns += ns;
}

void weft_batch__count_times(weft_model_stats *s, const weft_request *r)
{
    add(&s->queue, 1, r->queue_ns);
    add(&s->compute_input, 1, r->compute_input_ns);
    add(&s->compute_infer, 1, r->compute_infer_ns);
    add(&s->compute_output, 1, r->compute_output_ns);
}

void weft_batch__count_end(weft_model_stats *s, const weft_request *r, uint64_t took_ns)
{
    bool ok = r->answer == WEFT_ANSWER_OK;
    add(ok ? &s->success : &s->fail, 1, took_ns);
    if (ok) {
        weft_histogram__add(&s->duration, took_ns);
        weft_histogram__add(&s->queued, r->queue_ns);
    }
    s->rejected += r->answer == WEFT_ANSWER_UNAVAILABLE || r->answer == WEFT_ANSWER_OVERLOADED;
    s->pending--;
}

/* The worker may have begun a batch that was sent ahead before the answer to that before it was
 * taken. */
uint64_t weft_batch__took_ns(const router_batch *batch, const weft_wire_head *head, uint64_t now_ns)
{
    uint64_t took_ns = now_ns - batch->sent_ns,
             most_ns = batch->ahead_ns ? now_ns - batch->ahead_ns : took_ns;
    uint64_t infer_ns = head->infer_ns < most_ns ? head->infer_ns : most_ns;
    return infer_ns > took_ns ? infer_ns : took_ns;
}

void weft_batch__count(router_model *model, const router_batch *batch, const weft_wire_head *head,
                       uint64_t now_ns)
{
    weft_model_stats *s = &model->stats;
    uint64_t total_ns = weft_batch__took_ns(batch, head, now_ns);
    uint64_t wire_ns = total_ns > head->infer_ns ? total_ns - head->infer_ns : 0;
    s->last_inference_ms = weft_clock__wall_ms();
    s->inference_count += (uint64_t)batch->rows;
    s->execution_count++;
    weft_batch_stat *stat = find_stat(s, (uint64_t)batch->rows);
    if (stat) {
        add(&stat->compute_input, 1, wire_ns / 2);
        add(&stat->compute_infer, 1, head->infer_ns);
        add(&stat->compute_output, 1, wire_ns / 2);
    }
    for (uint32_t i = 0; i < batch->n; i++) {
        weft_request *r = batch->request[i];
        if (!r)
            continue;
        r->queue_ns = batch->sent_ns > r->arrived_ns ? batch->sent_ns - r->arrived_ns : 0;
        r->compute_input_ns = r->compute_output_ns = wire_ns / 2;
        r->compute_infer_ns = head->infer_ns;
        r->batch_rows = batch->padded_rows;
        if (batch->is_equal[i]) {
            s->inference_count += batch->request_rows[i] > 0 ? 0 : (uint64_t)r->rows;
            s->equal++;
        }
        weft_batch__count_times(s, r);
    }
}
