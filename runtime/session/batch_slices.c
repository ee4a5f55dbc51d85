/* Running a batch in slices.
 *
 * The values of a large batch do not fit into the caches: every kernel then reads from memory what
 * the kernel before wrote there. A few rows of the batch at a time, through all kernels, do fit;
 * for that, weights are read again for every slice. So a batch is divided if the values that would
 * leave the cache are more than twice the bytes of the weights that are read again: values come
 * back from the next cache in part. The memory of the values is that of one slice.
 *
 * Measured on an AMD EPYC (Zen 5: L2 1 MiB a core, L3 32 MiB), milliseconds an image in a batch of
 * 8, at a time all, four and two, with one thread: mobilenet_v2 3.68, 3.25, 3.07; densenet121 23.7,
 * 22.5, 21.5; squeezenet1_1 2.88, 2.63, 2.43; resnet50 30.6, 29.2, 28.9 (values 2.6 times the
 * weights). resnet18 (1.1 times) takes 10.3, and 10.9 two at a time. One at a time is slower for
 * networks with many weights (resnet50 30.8), and each thread should have a row. */
#include "base/num.h"
#include "runtime/session/session_int.h"

#include <stdlib.h>
#include <string.h>

/* Values of a launch that are more bytes leave the cache. */
static const double cache_bytes = 8 << 20, weight_cost = 2;
enum { ROWS_MIN = 2 };

/* -- What a run moves ------------------------------------------------------------------------- */

/* Bytes of a value for `rows` rows of the batch; below 0: not known before it runs. */
static double value_bytes(const weft_bundle_program *p, uint32_t v, int64_t *symbol, int64_t rows)
{
    const weft_ttype *type = &p->value[v - 1].type;
    double bytes = weft_dtype_size((weft_dtype)type->dtype);
    int64_t all = symbol[p->batch_symbol];
    symbol[p->batch_symbol] = rows;
    for (uint32_t d = 0; d < type->rank; d++) {
        int64_t n = -1;
        if (!weft_dim_is_const(type->dim[d]) && weft_dim_is_data(p->dims, type->dim[d]))
            bytes = -1;
        else if (!weft_dim_eval(p->dims, type->dim[d], symbol, p->n_symbol, &n) || n < 0)
            bytes = -1;
        if (bytes < 0)
            break;
        bytes *= (double)n;
    }
    symbol[p->batch_symbol] = all;
    return bytes;
}

/* What the launches of a program move. */
typedef struct traffic {
    double spilled; /* bytes of values that leave the cache */
    double widest;  /* most bytes of one launch */
    bool known;     /* false: sizes depend on data, or launches have bodies */
} traffic;

static traffic add_traffic(const weft_bundle_program *p, int64_t *symbol, int64_t rows)
{
    traffic sum = {.known = true};
    for (uint32_t i = 0; sum.known && i < p->n_launch; i++) {
        const weft_bundle_launch *l = &p->launch[i];
        double bytes = 0;
        bool moves = l->op != WEFT_OP_VIEW && l->op != WEFT_OP_CONCAT;
        sum.known = !(weft_op_get(l->op)->traits & WEFT_T_BODY);
        for (uint32_t k = 0; sum.known && k < l->n_in + l->n_out; k++) {
            uint32_t v = k < l->n_in ? l->in[k] : l->out[k - l->n_in];
            if (!v || p->value[v - 1].weight)
                continue;
            double n = value_bytes(p, v, symbol, rows);
            sum.known = n >= 0;
            bytes += n;
        }
        if (!moves)
            continue;
        sum.widest = bytes > sum.widest ? bytes : sum.widest;
        sum.spilled += bytes > cache_bytes ? bytes : 0;
    }
    return sum;
}

static double weight_bytes(const weft_session *s)
{
    double sum = 0;
    for (uint32_t v = 0; v < s->program->n_value; v++) {
        uint32_t w = s->program->value[v].weight;
        if (w && w <= s->engine->bundle->n_weight)
            sum += (double)s->engine->bundle->weight[w - 1].bytes;
    }
    return sum;
}

/* -- The decision ----------------------------------------------------------------------------- */

static int64_t choose_rows(const weft_session *s, int64_t *symbol)
{
    const weft_bundle_program *p = s->program;
    int64_t all = symbol[p->batch_symbol], rows = ROWS_MIN;
    if (rows < s->engine->threads)
        rows = s->engine->threads;
    if (rows >= all || p->symbol[p->batch_symbol].lo > 1)
        return 0;
    traffic whole = add_traffic(p, symbol, all);
    if (!whole.known || whole.widest <= cache_bytes)
        return 0;
    while (rows * 2 < all && add_traffic(p, symbol, rows * 2).widest <= cache_bytes)
        rows *= 2;
    double again = (double)((all - 1) / rows) * weight_bytes(s);
    return whole.spilled > weight_cost * again ? rows : 0;
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
