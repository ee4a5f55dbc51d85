/* Running a batch in slices: few rows at a time, through all kernels (ops/batch_rows.h). The memory
 * of the values is that of one slice. */
#include "base/num.h"
#include "ops/batch_rows.h"
#include "runtime/session/session_int.h"

#include <stdlib.h>
#include <string.h>

/* -- The decision ----------------------------------------------------------------------------- */

typedef struct sizes {
    const weft_bundle *bundle;
    const weft_bundle_program *p;
    int64_t *symbol;
} sizes;

/* Bytes of a value; below 0: not known before it runs. */
static double value_bytes(const sizes *at, uint32_t v)
{
    const weft_ttype *type = &at->p->value[v - 1].type;
    double bytes = weft_dtype_size((weft_dtype)type->dtype);
    for (uint32_t d = 0; d < type->rank; d++) {
        int64_t n = -1;
        if (!weft_dim_is_const(type->dim[d]) && weft_dim_is_data(at->p->dims, type->dim[d]))
            return -1;
        if (!weft_dim_eval(at->p->dims, type->dim[d], at->symbol, at->p->n_symbol, &n) || n < 0)
            return -1;
        bytes *= (double)n;
    }
    return bytes;
}

static double weight_bytes(const sizes *at)
{
    double sum = 0;
    for (uint32_t v = 0; v < at->p->n_value; v++) {
        uint32_t w = at->p->value[v].weight;
        if (w && w <= at->bundle->n_weight)
            sum += (double)at->bundle->weight[w - 1].bytes;
    }
    return sum;
}

static weft_rows_traffic find_traffic(void *user, int64_t rows)
{
    const sizes *at = user;
    const weft_bundle_program *p = at->p;
    int64_t all = at->symbol[p->batch_symbol];
    weft_rows_traffic sum = {.weights = weight_bytes(at)};
    at->symbol[p->batch_symbol] = rows;
    for (uint32_t i = 0; !sum.unknown && i < p->n_launch; i++) {
        const weft_bundle_launch *l = &p->launch[i];
        double bytes = 0;
        for (uint32_t k = 0; bytes >= 0 && k < l->n_in + l->n_out; k++) {
            uint32_t v = k < l->n_in ? l->in[k] : l->out[k - l->n_in];
            if (!v || p->value[v - 1].weight)
                continue;
            double n = value_bytes(at, v);
            bytes = n < 0 ? n : bytes + n;
        }
        weft_rows_add(&sum, l->op, bytes);
    }
    at->symbol[p->batch_symbol] = all;
    return sum;
}

static int64_t choose_rows(const weft_session *s, int64_t *symbol)
{
    const weft_bundle_program *p = s->program;
    sizes at = {s->engine->bundle, p, symbol};
    if (p->symbol[p->batch_symbol].lo > 1)
        return 0;
    return weft_rows_choose(symbol[p->batch_symbol], s->engine->threads, find_traffic, &at);
}

int64_t weft_slicing__rows(weft_session *s, int64_t *symbol)
{
    const weft_bundle_program *p = s->program;
    weft_slicing *slices = &s->slices;
    size_t bytes = p->n_symbol * sizeof *symbol;
    if (p->batch_symbol >= p->n_symbol || p->n_require || !s->engine->driver->slices_batches)
        return 0;
    for (uint32_t i = 0; i < WEFT_SLICING_MAX; i++)
        if (slices->symbol[i] && memcmp(slices->symbol[i], symbol, bytes) == 0)
            return slices->rows[i];
    int64_t rows = choose_rows(s, symbol);
    uint32_t at = slices->next++ % WEFT_SLICING_MAX;
    if (!slices->symbol[at])
        slices->symbol[at] = malloc(bytes);
    /* Without memory it is decided again the next time. */
    if (slices->symbol[at])
        memcpy(slices->symbol[at], symbol, bytes);
    slices->rows[at] = rows;
    return rows;
}

/* -- Inputs and outputs ----------------------------------------------------------------------- */

static uint64_t row_bytes(const weft_tensor *t)
{
    return t->dim[0] > 0 ? weft_tensor_bytes(t) / (uint64_t)t->dim[0] : 0;
}

weft_err weft_slicing__start(weft_session *s)
{
    weft_slicing *slices = &s->slices;
    if (!slices->in)
        slices->in = calloc((size_t)s->program->n_input + 1, sizeof *slices->in);
    if (!slices->out)
        slices->out = calloc((size_t)s->program->n_output + 1, sizeof *slices->out);
    return slices->in && slices->out ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
}

void weft_slicing__cut(weft_session *s, const weft_tensor *in, int64_t begin, int64_t rows)
{
    for (uint32_t i = 0; i < s->program->n_input; i++) {
        weft_tensor *to = &s->slices.in[i];
        *to = in[i];
        to->dim[0] = rows;
        if (in[i].data)
            to->data = (char *)in[i].data + row_bytes(&in[i]) * (uint64_t)begin;
    }
}

/* Memory for all rows of all outputs. */
static weft_err make_room(weft_session *s, const weft_tensor *out, weft_diag *diag)
{
    weft_memory *memory = &s->slices.memory;
    uint64_t bytes = WEFT_ARENA_ALIGN;
    for (uint32_t i = 0; i < s->program->n_output; i++)
        bytes += weft_align_up(weft_tensor_bytes(&out[i]), WEFT_ARENA_ALIGN);
    return bytes > memory->bytes ? weft_session__grow(s, memory, bytes, diag) : WEFT_ERR_OK;
}

static weft_err place_outputs(weft_session *s, int64_t all, weft_diag *diag, weft_tensor *out)
{
    const weft_tensor *first = s->slices.out;
    for (uint32_t i = 0; i < s->program->n_output; i++) {
        out[i] = first[i];
        if (first[i].data)
            out[i].dim[0] = all;
        if (weft_numel(out[i].dim, out[i].rank) < 0)
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = s->program->name},
                                   "output %s is too large", s->program->output[i].name);
    }
    WEFT_TRY(make_room(s, out, diag));
    char *at = s->slices.memory.at;
    for (uint32_t i = 0; i < s->program->n_output; i++) {
        out[i].data = first[i].data ? at : NULL;
        at += weft_align_up(weft_tensor_bytes(&out[i]), WEFT_ARENA_ALIGN);
    }
    return WEFT_ERR_OK;
}

weft_err weft_slicing__gather(weft_session *s, int64_t begin, int64_t rows, int64_t all,
                              weft_diag *diag, weft_tensor *out)
{
    if (begin == 0)
        WEFT_TRY(place_outputs(s, all, diag, out));
    for (uint32_t i = 0; i < s->program->n_output; i++) {
        const weft_tensor *from = &s->slices.out[i];
        uint64_t row = row_bytes(&out[i]), bytes = weft_tensor_bytes(from);
        if (!from->data || bytes == 0)
            continue;
        if (from->dim[0] != rows || bytes != row * (uint64_t)rows)
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = s->program->name},
                                   "output %s does not have a row for each row of the batch",
                                   s->program->output[i].name);
        memcpy((char *)out[i].data + row * (uint64_t)begin, from->data, bytes);
    }
    return WEFT_ERR_OK;
}

void weft_slicing__free(weft_session *s)
{
    weft_engine__release(s->engine, &s->slices.memory);
    for (uint32_t i = 0; i < WEFT_SLICING_MAX; i++)
        free(s->slices.symbol[i]);
    free(s->slices.in);
    free(s->slices.out);
}
