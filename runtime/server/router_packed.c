/* Packed batches: requests with sequences of different lengths in one run, of one model or of the
 * models of a family.
 *
 * Where the bundle has a packed program for a model (weft compile --pack) and the requests at the
 * head of its queue differ in length, the program runs the rows of all their sequences one after
 * the other, without padding between them. Its only size is the total of rows, rounded up to a
 * bucket: the rows that are missing repeat rows of the first request, and are sequences of their
 * own, whose outputs nobody gets. Requests of one length run by the model's own program, in
 * batches. The packed program of a family also has an input that tells the model of each row; it
 * runs where requests of two of its models wait, of whatever lengths. */
#include "runtime/server/router_int.h"

#include <stdlib.h>
#include <string.h>

/* -- The program ------------------------------------------------------------------------------ */

static const weft_ttype *type_of(const weft_bundle_program *p, const weft_bundle_port *port)
{
    return &p->value[port->value - 1].type;
}

/* Whether the input or output has a row for each token, [1, rows, ..]; else one for each sequence.
 */
static bool has_tokens(const weft_bundle_program *p, const weft_bundle_port *port)
{
    const weft_ttype *t = type_of(p, port);
    return t->rank >= 2 && weft_dim_as_symbol(p->dims, t->dim[1]) == 0;
}

/* Inputs of the models. */
static uint32_t count_inputs(const weft_bundle_program *p)
{
    return p->part[0].n_in;
}

/* Sequences of a run, those of padding among them. */
static int64_t most_sequences(const weft_bundle_program *p)
{
    return type_of(p, &p->input[count_inputs(p) + 1])->dim[0];
}

int64_t weft_batch__packed_bucket(const weft_bundle_program *p, int64_t rows)
{
    int64_t best = 0;
    for (uint32_t i = 0; i < p->n_bucket; i++) {
        int64_t b = p->bucket[i].symbol[0];
        if (b >= rows && (best == 0 || b < best))
            best = b;
    }
    return best;
}

static int64_t largest_bucket(const weft_bundle_program *p)
{
    int64_t most = 0;
    for (uint32_t i = 0; i < p->n_bucket; i++)
        most = p->bucket[i].symbol[0] > most ? p->bucket[i].symbol[0] : most;
    return most;
}

static bool has_part(const weft_bundle_program *p, uint32_t model)
{
    for (uint32_t k = 0; k < p->n_part; k++)
        if (p->part[k].program == model)
            return true;
    return false;
}

const weft_bundle_program *weft_batch__find_packed(const weft_bundle *b, uint32_t model,
                                                   bool family)
{
    for (uint32_t i = 0; i < b->n_joint; i++) {
        const weft_bundle_program *p = &b->program[b->n_program + i];
        if (p->is_packed && (p->n_part > 1) == family && has_part(p, model) &&
            largest_bucket(p) > 0)
            return p;
    }
    return NULL;
}

size_t weft_batch__count_places(const weft_bundle_program *p)
{
    return (size_t)((p->n_part > 1 ? 2 : 1) * largest_bucket(p) + most_sequences(p));
}

/* -- Taking ----------------------------------------------------------------------------------- */

static int64_t length_of(const weft_bundle_program *p, const weft_request *r)
{
    for (uint32_t i = 0; i < count_inputs(p); i++)
        if (has_tokens(p, &p->input[i]))
            return r->in[i].dim[1];
    return 0;
}

/* Whether the sizes of the inputs are those of the program, with one length. */
static bool fits_program(const weft_bundle_program *p, const weft_request *r, int64_t length)
{
    for (uint32_t i = 0; i < count_inputs(p); i++) {
        const weft_ttype *t = type_of(p, &p->input[i]);
        bool tokens = has_tokens(p, &p->input[i]);
        if (tokens && r->in[i].dim[1] != length)
            return false;
        for (uint32_t k = tokens ? 2 : 1; k < t->rank; k++)
            if (r->in[i].dim[k] != t->dim[k])
                return false;
    }
    return true;
}

/* What a run has room for. */
typedef struct room {
    const weft_bundle_program *p;
    int64_t rows, sequences; /* taken */
    int64_t longest;         /* sequence */
    uint32_t requests;
} room;

/* Sequences of padding behind `rows` rows: none is longer than one of a request. */
static int64_t count_padding(const room *x, int64_t rows, int64_t longest)
{
    int64_t bucket = weft_batch__packed_bucket(x->p, rows);
    return (bucket - rows + longest - 1) / longest;
}

/* Takes up the request; false: it does not fit. */
static bool take_up(room *x, const weft_request *r)
{
    int64_t length = length_of(x->p, r), sequences = x->sequences + r->rows;
    if (r->attempts > 0 || r->rows <= 0 || length <= 0 || x->requests == BATCH_REQUESTS_MAX ||
        sequences > most_sequences(x->p) || length > (largest_bucket(x->p) - x->rows) / r->rows ||
        !fits_program(x->p, r, length))
        return false;
    int64_t rows = x->rows + r->rows * length, longest = length > x->longest ? length : x->longest;
    if (sequences + count_padding(x, rows, longest) > most_sequences(x->p))
        return false;
    x->rows = rows;
    x->sequences = sequences;
    x->longest = longest;
    x->requests++;
    return true;
}

static void move(const weft_bundle_program *p, router_model *model, equal_table *table,
                 const weft_request *as, weft_request *r, router_batch *batch)
{
    weft_batch__remove(model, r);
    batch->request_length[batch->n] = length_of(p, r);
    weft_batch__add(batch, model, table, as, r);
    batch->padded_rows = batch->rows;
}

static int64_t count_rows(const router_batch *batch)
{
    int64_t rows = 0;
    for (uint32_t i = 0; i < batch->n; i++)
        rows += batch->request_rows[i] * batch->request_length[i];
    return rows;
}

bool weft_batch__take_packed(const weft_bundle_program *p, router_model *model, int64_t most,
                             router_batch *batch)
{
    room x = {.p = p};
    equal_table table;
    weft_equal__begin(&table, 0);
    int64_t first = model->head ? length_of(p, model->head) : 0;
    bool differ = false;
    for (const weft_request *r = model->head; r && x.sequences + r->rows <= most; r = r->next) {
        if (!take_up(&x, r))
            break;
        differ = differ || length_of(p, r) != first;
    }
    for (uint32_t i = 0; differ && i < x.requests; i++) {
        weft_request *r = model->head;
        move(p, model, &table, weft_batch__find_equal(batch, model, &table, model->program, r), r,
             batch);
    }
    batch->packed_rows = differ ? weft_batch__packed_bucket(p, count_rows(batch)) : 0;
    return differ;
}

/* The part whose first request is due first, of those that are `open`; n_part: none. */
static uint32_t first_part(const weft_bundle_program *p, uint32_t first, const router_model *model,
                           const bool *open, uint64_t now_ns)
{
    uint32_t best = p->n_part;
    for (uint32_t k = 0; k < p->n_part; k++) {
        const router_model *m = &model[first + p->part[k].program];
        if (open[k] && m->head &&
            (best == p->n_part ||
             weft_admission__goes_first(m, &model[first + p->part[best].program], now_ns)))
            best = k;
    }
    return best;
}

bool weft_batch__take_family(const weft_bundle_program *p, const joint_query *q,
                             router_model *model, router_batch *batch)
{
    const router_worker *w = &q->worker[q->at];
    uint32_t first = w->bundle->first, n_open = 0, must = p->n_part;
    bool open[JOINT_PARTS_MAX] = {false};
    room x = {.p = p};
    equal_table table;
    weft_equal__begin(&table, 0);
    if (p->n_part > JOINT_PARTS_MAX)
        return false;
    for (uint32_t k = 0; k < p->n_part; k++) {
        uint32_t at = first + p->part[k].program;
        open[k] = weft_joint__can_join(q, at);
        n_open += open[k];
        must = at == q->must ? k : must;
    }
    if (n_open < 2 || must == p->n_part || !open[must])
        return false;
    for (uint32_t k = 0; k < p->n_part; k++)
        batch[k] = (router_batch){.model = first + p->part[k].program, .sent_ns = q->now_ns};
    for (uint32_t k = must; k < p->n_part; k = first_part(p, first, model, open, q->now_ns)) {
        router_model *m = &model[batch[k].model];
        weft_request *r = m->head;
        bool full = batch[k].n == BATCH_REQUESTS_MAX;
        const weft_request *as = weft_batch__find_equal(&batch[k], m, &table, m->program, r);
        if (!as && (full || batch[k].rows + r->rows > w->most[batch[k].model] || !take_up(&x, r))) {
            open[k] = false;
            if (k == must && x.requests == 0)
                return false; /* it runs by itself */
            continue;
        }
        move(p, m, &table, as, r, &batch[k]);
    }
    for (uint32_t k = 0; k < p->n_part; k++)
        batch[k].packed_rows = weft_batch__packed_bucket(p, x.rows);
    return true;
}

/* -- Sending ---------------------------------------------------------------------------------- */

/* The first request of the run. */
static const weft_request *first_request(const router_batch *b)
{
    while (b->n == 0)
        b++;
    return b->request[0];
}

static void compose_input(const weft_bundle_program *p, const router_batch *b, uint32_t i,
                          weft_wire_tensor *t, weft_wire_out *out)
{
    const weft_tensor *first = &first_request(b)->in[i];
    bool tokens = has_tokens(p, &p->input[i]);
    int64_t all = tokens ? b->packed_rows : most_sequences(p), at = 0;
    int64_t own = first->dim[0] * (tokens ? first->dim[1] : 1);
    size_t row = weft_tensor_bytes(first) / (size_t)own;
    *t = (weft_wire_tensor){.dtype = first->dtype, .rank = first->rank};
    memcpy(t->dim, first->dim, sizeof t->dim);
    t->dim[0] = tokens ? 1 : all;
    if (tokens)
        t->dim[1] = all;
    for (uint32_t k = 0; k < p->n_part; k++)
        for (uint32_t j = 0; j < b[k].n; j++) {
            const weft_tensor *in = &b[k].request[j]->in[i];
            if (!b[k].is_equal[j])
                weft_wire__add_chunk(out, in->data, weft_tensor_bytes(in));
            at += b[k].request_rows[j] * (tokens ? b[k].request_length[j] : 1);
        }
    for (; at < all; at += own)
        weft_wire__add_chunk(out, first->data, row * (size_t)(own < all - at ? own : all - at));
}

/* The position of each row, the start of each sequence and, of a family, the part of each row, one
 * array behind the other. */
static void set_places(const weft_bundle_program *p, const router_batch *b, int64_t *position)
{
    int64_t rows = b->packed_rows, n = most_sequences(p), at = 0, s = 0, longest = 1;
    int64_t *start = position + rows, *part = start + n;
    for (uint32_t k = 0; k < p->n_part; k++)
        for (uint32_t j = 0; j < b[k].n; j++) {
            int64_t length = b[k].request_length[j];
            longest = length > longest ? length : longest;
            for (int64_t c = 0; c < b[k].request_rows[j]; c++) {
                start[s++] = at;
                for (int64_t i = 0; i < length; i++, at++) {
                    position[at] = i;
                    if (p->n_part > 1)
                        part[at] = k;
                }
            }
        }
    for (int64_t i = 0; at < rows; i = i + 1 < longest ? i + 1 : 0, at++) {
        if (i == 0)
            start[s++] = at;
        position[at] = i;
        if (p->n_part > 1)
            part[at] = 0;
    }
    for (int64_t last = start[s - 1]; s < n; s++)
        start[s] = last;
}

static void add_numbers(weft_wire_out *out, uint32_t i, const int64_t *at, int64_t n)
{
    out->tensor[i] = (weft_wire_tensor){.dtype = WEFT_DTYPE_I64, .rank = 1, .dim = {n}};
    weft_wire__add_chunk(out, at, (size_t)n * sizeof *at);
}

/* The first output with the same value: models of a family may share it. */
static uint32_t find_output(const weft_bundle_program *p, uint32_t output)
{
    uint32_t i = 0;
    while (p->output[i].value != p->output[output].value)
        i++;
    return i;
}

/* Outputs of the program that no request asks for. */
static uint64_t skipped(const weft_bundle_program *p, const router_batch *b)
{
    uint64_t skip = UINT64_MAX;
    for (uint32_t k = 0, first = 0; k < p->n_part; first += p->part[k++].n_out)
        for (uint32_t i = 0; b[k].n > 0 && i < p->part[k].n_out; i++) {
            uint32_t output = find_output(p, first + i);
            uint64_t all = weft_batch__skipped(&b[k]);
            bool asked = i >= WEFT_SKIPPED_OUTPUTS_MAX || !(all >> i & 1);
            if (asked && output < WEFT_SKIPPED_OUTPUTS_MAX)
                skip &= ~((uint64_t)1 << output);
        }
    return skip;
}

bool weft_batch__compose_packed(const weft_bundle_program *p, const router_batch *b,
                                int64_t *places, weft_wire_out *out)
{
    uint32_t n = count_inputs(p), requests = 0;
    int64_t rows = b->packed_rows, sequences = most_sequences(p);
    for (uint32_t k = 0; k < p->n_part; k++)
        requests += b[k].n;
    /* Padding repeats the first request, of one row at least. */
    if (!weft_wire__begin(out, WEFT_WIRE_RUN, p->n_input,
                          n * (requests + (size_t)(rows + sequences)) + 3))
        return false;
    out->head.skip = skipped(p, b);
    set_places(p, b, places);
    for (uint32_t i = 0; i < n; i++)
        compose_input(p, b, i, &out->tensor[i], out);
    add_numbers(out, n, places, rows);
    add_numbers(out, n + 1, places + rows, sequences);
    if (p->n_part > 1)
        add_numbers(out, n + 2, places + rows + sequences, rows);
    return true;
}

/* -- Answers ---------------------------------------------------------------------------------- */

static size_t bytes_of(const weft_wire_tensor *t)
{
    return (size_t)weft_numel(t->dim, t->rank) * weft_dtype_size((weft_dtype)t->dtype);
}

/* Rows of the run that output i has, or sequences. */
static int64_t all_rows(const weft_bundle_program *p, const router_batch *b, uint32_t i)
{
    return has_tokens(p, &p->output[i]) ? b->packed_rows : most_sequences(p);
}

/* Whether the output has a row for each row of the run, or for each sequence. One that was skipped
 * has none. */
static bool fits(const weft_bundle_program *p, const router_batch *b, uint32_t i,
                 const weft_wire_tensor *t)
{
    bool tokens = has_tokens(p, &p->output[i]);
    return t->rank > tokens && t->dim[tokens] == all_rows(p, b, i) && (!tokens || t->dim[0] == 1);
}

/* An answer to a packed run. */
typedef struct packed_answer {
    const weft_bundle_program *p;
    const weft_wire_tensor *tensor;
    const uint8_t *payload;
    int64_t row, sequence; /* of the request */
} packed_answer;

static const uint8_t *find_data(const packed_answer *a, uint32_t output)
{
    const uint8_t *at = a->payload;
    for (uint32_t i = 0; i < output; i++)
        at += bytes_of(&a->tensor[i]);
    return at;
}

/* Bytes of the request's rows of the output. */
static size_t own_bytes(const packed_answer *a, const router_batch *b, uint32_t j, uint32_t output)
{
    bool tokens = has_tokens(a->p, &a->p->output[output]);
    size_t row = bytes_of(&a->tensor[output]) / (size_t)all_rows(a->p, b, output);
    return row * (size_t)(b->request[j]->rows * (tokens ? b->request_length[j] : 1));
}

static void give_output(const packed_answer *a, const router_batch *b, uint32_t j, uint32_t output,
                        weft_tensor *out, uint8_t *data)
{
    const weft_wire_tensor *t = &a->tensor[output];
    bool tokens = has_tokens(a->p, &a->p->output[output]);
    size_t row = bytes_of(t) / (size_t)all_rows(a->p, b, output);
    *out = (weft_tensor){.dtype = (weft_dtype)t->dtype, .rank = t->rank, .data = data};
    memcpy(out->dim, t->dim, sizeof t->dim);
    out->dim[0] = b->request[j]->rows;
    if (tokens)
        out->dim[1] = b->request_length[j];
    memcpy(data, find_data(a, output) + row * (size_t)(tokens ? a->row : a->sequence),
           own_bytes(a, b, j, output));
}

/* Copies the rows of request j of a part, whose outputs begin with `first`. false: an output that
 * the request asks for does not fit, or no memory. */
static bool give_one(const packed_answer *a, const router_batch *b, uint32_t j, uint32_t first,
                     uint32_t n_out)
{
    weft_request *r = b->request[j];
    size_t total = 0, at = 0;
    for (uint32_t i = 0; i < n_out; i++) {
        uint32_t output = find_output(a->p, first + i);
        if (!weft_request__asks(r, i))
            continue;
        if (!fits(a->p, b, output, &a->tensor[output]))
            return false;
        total += (own_bytes(a, b, j, output) + 63) / 64 * 64;
    }
    r->outputs = weft_payload__create(total);
    for (uint32_t i = 0; r->outputs && i < n_out; i++) {
        uint32_t output = find_output(a->p, first + i);
        if (!weft_request__asks(r, i)) {
            r->out[i] = (weft_tensor){.dtype = (weft_dtype)a->tensor[output].dtype, .rank = 1};
            continue;
        }
        give_output(a, b, j, output, &r->out[i], weft_payload__at(r->outputs) + at);
        at += (own_bytes(a, b, j, output) + 63) / 64 * 64;
    }
    return r->outputs != NULL;
}

void weft_batch__give_packed(const weft_bundle_program *p, router_batch *b,
                             const weft_wire_tensor *tensor, uint32_t n_tensor,
                             const uint8_t *payload)
{
    packed_answer a = {.p = p, .tensor = tensor, .payload = payload};
    bool ok = n_tensor == p->n_output;
    int64_t row = 0, sequence = 0; /* behind the request */
    for (uint32_t k = 0, first = 0; k < p->n_part; first += p->part[k++].n_out)
        for (uint32_t j = 0; j < b[k].n; j++) {
            weft_request *r = b[k].request[j];
            if (!b[k].is_equal[j]) { /* else it has those of the one before */
                a.row = row;
                a.sequence = sequence;
            }
            row += b[k].request_rows[j] * b[k].request_length[j];
            sequence += b[k].request_rows[j];
            if (r) {
                r->answer = WEFT_ANSWER_OK;
                if (!ok || !give_one(&a, &b[k], j, first, p->part[k].n_out))
                    weft_request__set_answer(r, WEFT_ANSWER_INTERNAL,
                                             "the worker's answer does not fit");
            }
        }
}
