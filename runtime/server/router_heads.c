/* Requests to several models about one input, answered by one run of a model that has them as
 * heads.
 *
 * Where the set has such a model (docs/set-file.md, Heads), what its heads have in common is one
 * trunk of it, and outputs that nobody asks for are not computed. When a model is to run, requests
 * to the other heads whose inputs are equal to those of a request of its batch, byte by byte, are
 * answered by the same run: its rows are those of the batch, and each of these requests gets the
 * outputs of its head in the rows of the request that it equals. */
#include "runtime/server/router_int.h"

#include <stdlib.h>
#include <string.h>

/* -- Models ----------------------------------------------------------------------------------- */

static bool can_answer(const weft_bundle *b, const weft_bundle_program *p)
{
    bool ok = p->n_head > 1 && p->n_head <= JOINT_PARTS_MAX && weft_equal__is_repeatable(b, p);
    for (uint32_t k = 0; ok && k < p->n_head; k++) {
        const weft_bundle_program *head = &b->program[p->head[k]];
        ok = head->n_input == p->n_input &&
             (head->batch_symbol == UINT32_MAX) == (p->batch_symbol == UINT32_MAX);
    }
    return ok;
}

const weft_bundle_program *weft_heads__find(const weft_bundle *b, uint32_t model)
{
    const weft_bundle_program *best = NULL;
    for (uint32_t i = 0; i < b->n_program; i++) {
        const weft_bundle_program *p = &b->program[i];
        for (uint32_t k = 0; k < p->n_head; k++)
            if (p->head[k] == model && can_answer(b, p) && (!best || p->n_head > best->n_head))
                best = p;
    }
    return best;
}

/* -- Taking ----------------------------------------------------------------------------------- */

/* Requests at the head of the queue of another head that are equal to one in the table. */
static bool has_equal(equal_table *table, router_model *m)
{
    uint32_t n = 0;
    for (weft_request *r = m->head; r && n < BATCH_REQUESTS_MAX; r = r->next, n++)
        if (weft_equal__find(table, NULL, m, r))
            return true;
    return false;
}

/* Whether the program takes inputs of these sizes: other heads may have narrower bounds. */
static bool takes_inputs(const weft_bundle_program *p, const weft_bundle_program *own,
                         const weft_request *r)
{
    weft_tensor *in = calloc((size_t)p->n_input + 1, sizeof *in);
    int64_t *symbol = calloc((size_t)p->n_symbol + 1, sizeof *symbol);
    for (uint32_t i = 0; in && i < p->n_input; i++)
        in[i] = r->in[weft_bundle_find_port(own->input, own->n_input, p->input[i].name)];
    bool ok = in && symbol && weft_bundle_bind(p, in, p->n_input, symbol, NULL) == WEFT_ERR_OK;
    free(in);
    free(symbol);
    return ok;
}

static uint32_t index_of(const router_batch *batch, const weft_request *r)
{
    uint32_t i = 0;
    while (batch->request[i] != r)
        i++;
    return i;
}

/* Moves the requests that are equal to one of the batch `as` into a batch of their own. */
static void take_equal(equal_table *table, const router_batch *as, router_model *m,
                       router_batch *batch)
{
    uint32_t n = 0;
    for (weft_request *r = m->head, *next; r && n < BATCH_REQUESTS_MAX; r = next, n++) {
        next = r->next;
        const weft_request *equal = weft_batch__find_equal(batch, m, table, NULL, r);
        if (!equal)
            continue;
        weft_batch__remove(m, r);
        batch->request_row[batch->n] = as->request_row[index_of(as, equal)];
        batch->request_rows[batch->n] = r->rows;
        batch->is_equal[batch->n] = true;
        batch->request[batch->n++] = r;
        batch->rows += r->rows;
        batch->equal_rows += r->rows;
    }
    batch->padded_rows = as->padded_rows;
}

bool weft_batch__take_heads(const weft_bundle_program *p, const joint_query *q, router_model *model,
                            int64_t most, router_batch *batch)
{
    const router_worker *w = &q->worker[q->at];
    uint32_t first = w->bundle->first, must = 0, n = 0;
    router_model *m = &model[q->must];
    equal_table table;
    bool any = false;
    uint32_t own = first + (uint32_t)(p - w->bundle->bundle->program);
    if (!w->serves[own])
        return false;
    most = most < w->most[own] ? most : w->most[own];
    weft_equal__begin(&table, 0);
    for (weft_request *r = m->head; r && n < BATCH_REQUESTS_MAX; r = r->next, n++)
        weft_equal__add(&table, m, r);
    for (uint32_t k = 0; k < p->n_head; k++) {
        uint32_t at = first + p->head[k];
        must = at == q->must ? k : must;
        any = any || (at != q->must && w->serves[at] && has_equal(&table, &model[at]));
    }
    if (!any || !takes_inputs(p, m->program, m->head))
        return false;
    for (uint32_t k = 0; k < p->n_head; k++)
        batch[k] = (router_batch){.model = first + p->head[k], .sent_ns = q->now_ns};
    weft_batch__take(m, most, &batch[must]);
    weft_equal__begin(&table, 0);
    for (uint32_t i = 0; i < batch[must].n; i++)
        if (!batch[must].is_equal[i])
            weft_equal__add(&table, m, batch[must].request[i]);
    any = false;
    for (uint32_t k = 0; k < p->n_head; k++) {
        if (k != must && w->serves[batch[k].model])
            take_equal(&table, &batch[must], &model[batch[k].model], &batch[k]);
        any = any || (k != must && batch[k].n > 0);
    }
    if (!any)
        weft_batch__put_back(m, &batch[must]);
    return any;
}

/* -- Sending ---------------------------------------------------------------------------------- */

/* The batch whose rows run. */
static const router_batch *find_rows(const router_batch *batch)
{
    while (batch->n == 0 || batch->is_equal[0])
        batch++;
    return batch;
}

/* Outputs of the heads that no request asks for. */
static uint64_t skipped(const weft_bundle_program *p, const router_model *model,
                        const router_batch *batch)
{
    uint64_t skip = 0;
    for (uint32_t k = 0, at = 0; k < p->n_head; k++) {
        uint64_t all = batch[k].n > 0 ? weft_batch__skipped(&batch[k]) : UINT64_MAX;
        for (uint32_t i = 0; i < model[batch[k].model].program->n_output; i++, at++)
            if (i < WEFT_SKIPPED_OUTPUTS_MAX && at < WEFT_SKIPPED_OUTPUTS_MAX)
                skip |= (all >> i & 1) << at;
    }
    return skip;
}

bool weft_batch__compose_heads(const weft_bundle_program *p, const router_model *model,
                               const router_batch *batch, weft_wire_out *out)
{
    const router_batch *rows = find_rows(batch);
    const weft_bundle_program *own = model[rows->model].program;
    size_t padding = (size_t)(rows->padded_rows - rows->rows);
    if (!weft_wire__begin(out, WEFT_WIRE_RUN, p->n_input, p->n_input * (rows->n + padding)))
        return false;
    out->head.skip = skipped(p, model, batch);
    for (uint32_t i = 0; i < p->n_input; i++) {
        uint32_t k = weft_bundle_find_port(own->input, own->n_input, p->input[i].name);
        weft_batch__compose_input(rows, own, k, NULL, &out->tensor[i], out);
    }
    return true;
}
