/* Packed batches: requests of one model with sequences of different lengths in one run.
 *
 * Where the bundle has a packed program for a model (weft compile --pack) and the requests at the
 * head of its queue differ in length, the program runs the rows of all their sequences one after
 * the other, without padding between them. Its only size is the total of rows, rounded up to a
 * bucket: the rows that are missing repeat the first row and are a sequence of their own, whose
 * outputs nobody gets. Requests of one length run by the model's own program, in batches. */
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

/* Sequences of a run, the one of padding among them. */
static int64_t most_sequences(const weft_bundle_program *p)
{
    return type_of(p, &p->input[p->n_input - 1])->dim[0];
}

/* The smallest bucket of at least `rows` rows; 0: none. */
static int64_t find_bucket(const weft_bundle_program *p, int64_t rows)
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

const weft_bundle_program *weft_batch__find_packed(const weft_bundle *b, uint32_t model)
{
    for (uint32_t i = 0; i < b->n_joint; i++) {
        const weft_bundle_program *p = &b->program[b->n_program + i];
        if (p->is_packed && p->part[0].program == model && largest_bucket(p) > 0)
            return p;
    }
    return NULL;
}

/* -- Taking ----------------------------------------------------------------------------------- */

static int64_t length_of(const weft_bundle_program *p, const weft_request *r)
{
    for (uint32_t i = 0; i < p->part[0].n_in; i++)
        if (has_tokens(p, &p->input[i]))
            return r->in[i].dim[1];
    return 0;
}

/* Whether the sizes of the inputs are those of the program, with one length. */
static bool fits_program(const weft_bundle_program *p, const weft_request *r, int64_t length)
{
    for (uint32_t i = 0; i < p->part[0].n_in; i++) {
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

/* Requests at the head of the queue that fit into one run of at most `most` sequences; 0: they are
 * of one length, or fewer than two. */
static uint32_t count_fitting(const weft_bundle_program *p, const router_model *model, int64_t most)
{
    int64_t rows = 0, sequences = 0, room = largest_bucket(p);
    int64_t first = model->head ? length_of(p, model->head) : 0;
    uint32_t n = 0;
    bool differ = false;
    if (most > most_sequences(p) - 1)
        most = most_sequences(p) - 1;
    for (const weft_request *r = model->head; r && n < BATCH_REQUESTS_MAX; r = r->next, n++) {
        int64_t length = length_of(p, r);
        if (r->attempts > 0 || r->rows <= 0 || length <= 0 || sequences + r->rows > most ||
            length > (room - rows) / r->rows || !fits_program(p, r, length))
            break;
        rows += r->rows * length;
        sequences += r->rows;
        differ = differ || length != first;
    }
    return differ ? n : 0;
}

bool weft_batch__take_packed(const weft_bundle_program *p, router_model *model, int64_t most,
                             router_batch *batch)
{
    uint32_t n = count_fitting(p, model, most);
    int64_t rows = 0;
    while (batch->n < n) {
        weft_request *r = model->head;
        weft_batch__remove(model, r);
        batch->request_rows[batch->n] = r->rows;
        batch->request_length[batch->n] = length_of(p, r);
        batch->rows += r->rows;
        rows += r->rows * batch->request_length[batch->n];
        batch->request[batch->n++] = r;
    }
    batch->padded_rows = batch->rows;
    batch->packed_rows = n > 0 ? find_bucket(p, rows) : 0;
    return n > 0;
}

/* -- Sending ---------------------------------------------------------------------------------- */

static void compose_input(const weft_bundle_program *p, const router_batch *b, uint32_t i,
                          int64_t used, weft_wire_tensor *t, weft_wire_out *out)
{
    const weft_tensor *first = &b->request[0]->in[i];
    bool tokens = has_tokens(p, &p->input[i]);
    size_t row = weft_tensor_bytes(first) / (size_t)(first->dim[0] * (tokens ? first->dim[1] : 1));
    *t = (weft_wire_tensor){.dtype = first->dtype, .rank = first->rank};
    memcpy(t->dim, first->dim, sizeof t->dim);
    t->dim[0] = tokens ? 1 : most_sequences(p);
    if (tokens)
        t->dim[1] = b->packed_rows;
    for (uint32_t k = 0; k < b->n; k++) {
        const weft_tensor *in = &b->request[k]->in[i];
        weft_wire__add_chunk(out, in->data, weft_tensor_bytes(in));
    }
    int64_t all = tokens ? b->packed_rows : most_sequences(p);
    for (int64_t at = tokens ? used : b->rows; at < all; at++)
        weft_wire__add_chunk(out, first->data, row);
}

/* The position of each row and the start of each sequence, one array behind the other. Returns the
 * rows of requests. */
static int64_t set_places(const weft_bundle_program *p, const router_batch *b, int64_t *position)
{
    int64_t *start = position + b->packed_rows, n = most_sequences(p), at = 0, s = 0;
    for (uint32_t k = 0; k < b->n; k++)
        for (int64_t j = 0; j < b->request_rows[k]; j++) {
            start[s++] = at;
            for (int64_t i = 0; i < b->request_length[k]; i++)
                position[at++] = i;
        }
    int64_t used = at, last = at < b->packed_rows ? at : start[s - 1];
    while (at < b->packed_rows)
        position[at++] = 0;
    while (s < n)
        start[s++] = last;
    return used;
}

bool weft_batch__compose_packed(const weft_bundle_program *p, const router_batch *b,
                                int64_t *places, weft_wire_out *out)
{
    uint32_t n = p->part[0].n_in;
    int64_t used = set_places(p, b, places), sequences = most_sequences(p);
    size_t padding = (size_t)(b->packed_rows - used + sequences);
    if (!weft_wire__begin(out, WEFT_WIRE_RUN, p->n_input, n * (b->n + padding) + 2))
        return false;
    out->head.skip = weft_batch__skipped(b);
    for (uint32_t i = 0; i < n; i++)
        compose_input(p, b, i, used, &out->tensor[i], out);
    out->tensor[n] =
        (weft_wire_tensor){.dtype = WEFT_DTYPE_I64, .rank = 1, .dim = {b->packed_rows}};
    out->tensor[n + 1] = (weft_wire_tensor){.dtype = WEFT_DTYPE_I64, .rank = 1, .dim = {sequences}};
    weft_wire__add_chunk(out, places, (size_t)b->packed_rows * sizeof *places);
    weft_wire__add_chunk(out, places + b->packed_rows, (size_t)sequences * sizeof *places);
    return true;
}

size_t weft_batch__count_places(const weft_bundle_program *p)
{
    return (size_t)(largest_bucket(p) + most_sequences(p));
}

/* -- Answers ---------------------------------------------------------------------------------- */

/* Whether the output has a row for each row of the run, or for each sequence. */
static bool fits(const weft_bundle_program *p, const router_batch *b, uint32_t i,
                 const weft_wire_tensor *t)
{
    if (has_tokens(p, &p->output[i]))
        return t->rank >= 2 && t->dim[0] == 1 && t->dim[1] == b->packed_rows;
    return t->rank >= 1 && t->dim[0] == most_sequences(p);
}

static size_t bytes_of(const weft_wire_tensor *t)
{
    return (size_t)weft_numel(t->dim, t->rank) * weft_dtype_size((weft_dtype)t->dtype);
}

static size_t row_bytes(const weft_bundle_program *p, const router_batch *b, uint32_t i,
                        const weft_wire_tensor *t)
{
    return bytes_of(t) /
           (size_t)(has_tokens(p, &p->output[i]) ? b->packed_rows : most_sequences(p));
}

/* Rows of output i that request k gets. */
static int64_t rows_of(const weft_bundle_program *p, const router_batch *b, uint32_t k, uint32_t i)
{
    return b->request_rows[k] * (has_tokens(p, &p->output[i]) ? b->request_length[k] : 1);
}

/* Copies the rows of request k, `token` rows and `sequence` sequences behind the first ones. */
static bool give_one(const weft_bundle_program *p, const router_batch *b, uint32_t k, int64_t token,
                     int64_t sequence, const weft_wire_tensor *tensor, const uint8_t *payload)
{
    weft_request *r = b->request[k];
    size_t total = 0, at = 0;
    for (uint32_t i = 0; i < p->n_output; i++)
        total += (row_bytes(p, b, i, &tensor[i]) * (size_t)rows_of(p, b, k, i) + 63) / 64 * 64;
    r->out_data = malloc(total + 1);
    for (uint32_t i = 0; r->out_data && i < p->n_output; i++) {
        const weft_wire_tensor *t = &tensor[i];
        bool tokens = has_tokens(p, &p->output[i]);
        size_t row = row_bytes(p, b, i, t), n = (size_t)rows_of(p, b, k, i);
        if (weft_request__asks(r, i)) {
            r->out[i] = (weft_tensor){
                .dtype = (weft_dtype)t->dtype, .rank = t->rank, .data = r->out_data + at};
            memcpy(r->out[i].dim, t->dim, sizeof t->dim);
            r->out[i].dim[0] = b->request_rows[k];
            if (tokens)
                r->out[i].dim[1] = b->request_length[k];
            memcpy(r->out_data + at, payload + row * (size_t)(tokens ? token : sequence), row * n);
            at += (row * n + 63) / 64 * 64;
        } else {
            r->out[i] = (weft_tensor){.dtype = (weft_dtype)t->dtype, .rank = 1};
        }
        payload += bytes_of(t);
    }
    return r->out_data != NULL;
}

void weft_batch__give_packed(const weft_bundle_program *p, router_batch *b,
                             const weft_wire_tensor *tensor, uint32_t n_tensor,
                             const uint8_t *payload)
{
    int64_t token = 0, sequence = 0;
    bool ok = n_tensor == p->n_output;
    for (uint32_t i = 0; i < p->n_output && ok; i++)
        ok = fits(p, b, i, &tensor[i]) || bytes_of(&tensor[i]) == 0;
    for (uint32_t k = 0; k < b->n; k++) {
        weft_request *r = b->request[k];
        if (r) {
            r->answer = WEFT_ANSWER_OK;
            if (!ok || !give_one(p, b, k, token, sequence, tensor, payload))
                weft_request__set_answer(r, WEFT_ANSWER_INTERNAL,
                                         "the worker's answer does not fit");
        }
        token += b->request_rows[k] * b->request_length[k];
        sequence += b->request_rows[k];
    }
}
