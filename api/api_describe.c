/* Descriptions of the models of a bundle, made when it is opened: one block of memory, divided by
 * the same code that first measures it. */
#include "api/api_int.h"

#include "base/str.h"

#include <stdlib.h>
#include <string.h>

/* A block that is measured (at NULL) or divided. */
typedef struct block {
    char *at;
    size_t used;
} block;

static void *take(block *b, size_t n, size_t size)
{
    size_t align = _Alignof(max_align_t);
    void *p = b->at ? b->at + b->used : NULL;
    b->used += (n * size + align - 1) / align * align;
    return p;
}

/* Text of a dim without the mark of symbols: "2*batch" of "2*?batch". */
static const char *take_text(block *b, const weft_buf *text)
{
    char *p = take(b, text->len + 1, 1);
    size_t len = 0;
    for (size_t i = 0; p && i < text->len; i++)
        if (text->at[i] != '?')
            p[len++] = text->at[i];
    return p; /* the block is of zeroes */
}

static bool fill_port(block *b, const weft_bundle_program *p, const weft_bundle_port *port,
                      weft_tensor_info *out)
{
    const weft_ttype *t = &p->value[port->value - 1].type;
    weft_tensor_info info = {
        .name = port->name, .type = (weft_type)t->dtype, .rank = (int32_t)t->rank};
    for (uint32_t d = 0; d < t->rank; d++) {
        weft_buf text = {0};
        weft_dim_print(p->dims, t->dim[d], &text);
        info.dim_text[d] = take_text(b, &text);
        bool failed = text.failed;
        weft_buf_finish(&text);
        if (failed)
            return false;
        weft_dim_bounds(p->dims, t->dim[d], &info.dim_min[d], &info.dim_max[d]);
        info.dim[d] = info.dim_min[d] == info.dim_max[d] ? info.dim_min[d] : -1;
    }
    if (out)
        *out = info;
    return true;
}

static const weft_tensor_info *fill_ports(block *b, const weft_bundle_program *p,
                                          const weft_bundle_port *port, uint32_t n, bool *ok)
{
    weft_tensor_info *info = take(b, n, sizeof *info);
    for (uint32_t i = 0; i < n; i++)
        *ok = fill_port(b, p, &port[i], info ? &info[i] : NULL) && *ok;
    return info;
}

/* Planned batch sizes, ascending, each once. */
static const uint32_t *fill_batches(block *b, const weft_bundle_program *p, uint32_t *out_n)
{
    uint32_t *batch = take(b, p->n_bucket, sizeof *batch);
    *out_n = 0;
    for (uint32_t i = 0; batch && p->batch_symbol < p->n_symbol && i < p->n_bucket; i++) {
        uint32_t size = (uint32_t)p->bucket[i].symbol[p->batch_symbol], k = *out_n;
        while (k > 0 && batch[k - 1] > size)
            k--;
        if (k > 0 && batch[k - 1] == size)
            continue;
        memmove(&batch[k + 1], &batch[k], (*out_n - k) * sizeof *batch);
        batch[k] = size;
        ++*out_n;
    }
    return batch;
}

static const weft_estimate_info *fill_estimates(block *b, const weft_profile *profile)
{
    weft_estimate_info *out = take(b, profile->n, sizeof *out);
    for (size_t i = 0; out && i < profile->n; i++) {
        const weft_profile_point *p = &profile->point[i];
        double rows = (double)p->batch * (double)p->procs;
        out[i] = (weft_estimate_info){.device = p->device,
                                      .slice = p->slice,
                                      .batch = p->batch,
                                      .processes = p->procs,
                                      .time_us = p->cost.time_us,
                                      .creq = p->cost.creq,
                                      .mreq_bytes = p->cost.mreq_bytes,
                                      .energy_j = p->cost.energy_j,
                                      .throughput_per_s =
                                          p->throughput_per_s > 0 ? p->throughput_per_s
                                          : p->cost.time_us > 0   ? rows * 1e6 / p->cost.time_us
                                                                  : 0,
                                      .expected_error = p->cost.expected_error,
                                      .source = p->cost.source};
    }
    return out;
}

static weft_model_info *fill_models(block *b, const weft_bundle *bundle, bool *ok)
{
    weft_model_info *info = take(b, bundle->n_program, sizeof *info);
    for (uint32_t i = 0; i < bundle->n_program; i++) {
        const weft_bundle_program *p = &bundle->program[i];
        weft_model_info m = {.name = p->name,
                             .n_input = p->n_input,
                             .n_output = p->n_output,
                             .slo_us = p->slo_us,
                             .rate_per_s = p->rate_per_s,
                             .n_estimate = (uint32_t)p->profile.n};
        m.input = fill_ports(b, p, p->input, p->n_input, ok);
        m.output = fill_ports(b, p, p->output, p->n_output, ok);
        m.batch = fill_batches(b, p, &m.n_batch);
        m.estimate = fill_estimates(b, &p->profile);
        if (info)
            info[i] = m;
    }
    return info;
}

weft_err weft_embed__describe(api_bundle *b)
{
    block measured = {0};
    bool ok = true;
    fill_models(&measured, b->bundle, &ok);
    block divided = {.at = ok ? calloc(measured.used + 1, 1) : NULL};
    if (!divided.at)
        return WEFT_ERR_NOMEM;
    b->info_memory = divided.at;
    b->info = fill_models(&divided, b->bundle, &ok);
    return ok ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
}
