/* Queues and batches: which requests run together, and how a batch's outputs become their answers.
 *
 * Requests of a model that agree in everything but the batch dimension (dim 0 of every input and
 * output) are joined, oldest first, up to the model's largest bucket. Between two buckets the batch
 * is filled up by repeating its last row when that wastes less than a third; otherwise it is cut to
 * the lower bucket and the rest goes with the next one. Rows are independent (the compiler made
 * sure), so that what is filled in changes nothing. */
#include "runtime/server/router_int.h"

#include <stdlib.h>
#include <string.h>

/* -- Queues --------------------------------------------------------------------------------- */

void weft_batch__push(router_model *model, weft_request *request, bool again)
{
    weft_request *next = again ? model->head : NULL;
    while (next && next->arrived_ns < request->arrived_ns)
        next = next->next;
    request->queued = true;
    request->next = next;
    request->prev = next ? next->prev : model->tail;
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

bool weft_batch__admit(weft_router *router, weft_request *request)
{
    const weft_bundle_program *p = router->model[request->model].program;
    int64_t *symbol = malloc((p->n_symbol + 1) * sizeof *symbol);
    weft_diag *diag = weft_diag_create();
    weft_err err = WEFT_ERR_NOMEM;
    if (symbol && diag)
        err = weft_bundle_bind(p, request->in, p->n_input, symbol, diag);
    if (err == WEFT_ERR_OK)
        request->rows = can_batch(p) ? symbol[p->batch_symbol] : 1;
    else if (diag && weft_diag_count(diag) > 0)
        weft_router__set_answer(request, WEFT_ANSWER_INVALID, "%s", weft_diag_at(diag, 0)->text);
    else
        weft_router__set_answer(request, WEFT_ANSWER_INTERNAL, "%s", weft_err_text(err));
    weft_diag_destroy(diag);
    free(symbol);
    return err == WEFT_ERR_OK;
}

/* -- Taking --------------------------------------------------------------------------------- */

/* Same dims but for dim 0. */
static bool fits_with(const weft_bundle_program *p, const weft_request *a, const weft_request *b)
{
    for (uint32_t i = 0; i < p->n_input; i++)
        if (memcmp(a->in[i].dim + 1, b->in[i].dim + 1,
                   sizeof a->in[i].dim - sizeof a->in[i].dim[0]) != 0)
            return false;
    return true;
}

/* The bucket of at least `rows` (or 0), and the largest below (or 0). */
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

/* Fills the batch up to a bucket, or gives the youngest requests back until it is one. */
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
        batch->rows -= r->rows;
        weft_batch__push(model, r, true);
    }
    batch->padded_rows = batch->rows;
    find_buckets(model->program, batch->rows, &above, &below);
    if (above > 0)
        batch->padded_rows = above;
}

int64_t weft_batch__waiting(const router_model *model)
{
    int64_t rows = 0, above, below;
    uint32_t n = 0;
    for (const weft_request *r = model->head; r && n < BATCH_REQUESTS_MAX; r = r->next, n++) {
        if (r->attempts > 0 || r->rows <= 0 || rows + r->rows > model->largest_bucket ||
            !fits_with(model->program, model->head, r))
            break;
        rows += r->rows;
    }
    if (rows == 0)
        return 0;
    find_buckets(model->program, rows, &above, &below);
    return model->head->rows > below ? above : below; /* a request is not cut, but filled up */
}

void weft_batch__take(router_model *model, int64_t most, router_batch *batch)
{
    const weft_bundle_program *p = model->program;
    weft_request *first = model->head, *next;
    bool alone = !can_batch(p) || first->attempts > 0 || first->rows <= 0;
    for (weft_request *r = first; r && batch->n < BATCH_REQUESTS_MAX; r = next) {
        next = r->next;
        if (r != first && (alone || r->attempts > 0 || r->rows <= 0 ||
                           batch->rows + r->rows > most || !fits_with(p, first, r)))
            continue;
        weft_batch__remove(model, r);
        batch->request[batch->n++] = r;
        batch->rows += r->rows;
        if (alone || batch->rows >= most)
            break;
    }
    if (!can_batch(p) || batch->rows <= 0 || batch->rows > model->largest_bucket) {
        batch->padded_rows = batch->rows;
        return;
    }
    round_to_bucket(model, batch);
}

/* -- Giving --------------------------------------------------------------------------------- */

/* Bytes of one request's part of output `t`; SIZE_MAX when the output cannot be parted. */
static size_t part_bytes(const router_model *model, const router_batch *batch,
                         const weft_wire_tensor *t, int64_t rows)
{
    size_t all = (size_t)weft_numel(t->dim, t->rank) * weft_dtype_size((weft_dtype)t->dtype);
    if (!can_batch(model->program) || (batch->n == 1 && batch->rows == batch->padded_rows))
        return all;
    if (t->rank < 1 || t->dim[0] != batch->padded_rows)
        return SIZE_MAX;
    return batch->padded_rows ? all / (size_t)batch->padded_rows * (size_t)rows : 0;
}

/* Copies the rows from `row` on of every output into the request. */
static bool give_one(const router_model *model, const router_batch *batch, weft_request *r,
                     int64_t row, const weft_wire_tensor *tensor, uint32_t n_tensor,
                     const uint8_t *payload)
{
    size_t total = 0, at = 0;
    for (uint32_t i = 0; i < n_tensor; i++) {
        size_t part = part_bytes(model, batch, &tensor[i], r->rows);
        if (part == SIZE_MAX)
            return false;
        total += (part + 63) / 64 * 64;
    }
    r->out_data = malloc(total + 1);
    if (!r->out_data)
        return false;
    for (uint32_t i = 0; i < n_tensor; i++) {
        const weft_wire_tensor *t = &tensor[i];
        size_t all = (size_t)weft_numel(t->dim, t->rank) * weft_dtype_size((weft_dtype)t->dtype);
        size_t part = part_bytes(model, batch, t, r->rows);
        r->out[i] =
            (weft_tensor){.dtype = (weft_dtype)t->dtype, .rank = t->rank, .data = r->out_data + at};
        memcpy(r->out[i].dim, t->dim, sizeof t->dim);
        if (part != all || batch->n > 1 || batch->rows != batch->padded_rows)
            r->out[i].dim[0] = r->rows;
        size_t skip = part == all || r->rows == 0 ? 0 : part / (size_t)r->rows * (size_t)row;
        memcpy(r->out_data + at, payload + skip, part);
        at += (part + 63) / 64 * 64;
        payload += all;
    }
    return true;
}

void weft_batch__give(const router_model *model, router_batch *batch,
                      const weft_wire_tensor *tensor, uint32_t n_tensor, const uint8_t *payload)
{
    int64_t row = 0;
    for (uint32_t i = 0; i < batch->n; i++) {
        weft_request *r = batch->request[i];
        r->answer = WEFT_ANSWER_OK;
        if (n_tensor != model->program->n_output ||
            !give_one(model, batch, r, row, tensor, n_tensor, payload))
            weft_router__set_answer(r, WEFT_ANSWER_INTERNAL, "the worker's answer does not fit");
        row += r->rows;
    }
}

/* -- Counting ------------------------------------------------------------------------------- */

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

void weft_batch__count(router_model *model, const router_batch *batch, const weft_wire_head *head,
                       uint64_t now_ns)
{
    weft_model_stats *s = &model->stats;
    uint64_t total_ns = now_ns - batch->sent_ns;
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
        r->queue_ns = batch->sent_ns > r->arrived_ns ? batch->sent_ns - r->arrived_ns : 0;
        r->compute_input_ns = r->compute_output_ns = wire_ns / 2;
        r->compute_infer_ns = head->infer_ns;
        add(&s->queue, 1, r->queue_ns);
        add(&s->compute_input, 1, r->compute_input_ns);
        add(&s->compute_infer, 1, r->compute_infer_ns);
        add(&s->compute_output, 1, r->compute_output_ns);
    }
}
