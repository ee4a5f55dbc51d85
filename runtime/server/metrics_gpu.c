/* Metrics of the GPUs and MIG instances that are served on, and of their workers. */
#include "runtime/machine/machine.h"
#include "runtime/server/oip_int.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *type, *help, *nv_name;
    size_t field;
    bool whole;
} metrics[] = {
#define GPU_METRIC(name, type, help, nv_name, field, whole) \
    {name, type, help, nv_name, offsetof(weft_meter_reading, field), whole},
#include "runtime/server/metrics_gpu.def"
#undef GPU_METRIC
};

struct weft_metrics_meters {
    struct {
        const char *gpu, *mig; /* UUIDs, of the options; mig NULL: the whole GPU */
        weft_meter *meter;     /* NULL: the device cannot be read */
        weft_meter_reading last;
    } * at;
    uint32_t n;
};

static void add(weft_metrics_meters *m, const char *gpu, const char *mig)
{
    for (uint32_t i = 0; i < m->n; i++) {
        const char *uuid = m->at[i].mig;
        if (strcmp(m->at[i].gpu, gpu) == 0 && (uuid && mig ? strcmp(uuid, mig) == 0 : uuid == mig))
            return;
    }
    m->at[m->n].gpu = gpu;
    m->at[m->n].mig = mig;
    /* An error is ignored: a GPU can be served without metrics. */
    if (weft_meter_open(mig ? mig : gpu, 0, NULL, &m->at[m->n].meter) != WEFT_ERR_OK)
        m->at[m->n].meter = NULL;
    m->n++;
}

weft_metrics_meters *weft_metrics__open_meters(const weft_serve_options *options)
{
    weft_metrics_meters *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->at = calloc((size_t)options->n_slice * 2 + 1, sizeof *m->at);
    for (uint32_t i = 0; m->at && i < options->n_slice; i++) {
        const weft_serve_slice *s = &options->slice[i];
        if (s->gpu)
            add(m, s->gpu, NULL);
        if (s->gpu && s->mig)
            add(m, s->gpu, s->mig);
    }
    return m;
}

void weft_metrics__close_meters(weft_metrics_meters *meters)
{
    if (!meters)
        return;
    for (uint32_t i = 0; i < meters->n; i++)
        weft_meter_close(meters->at[i].meter);
    free(meters->at);
    free(meters);
}

/* UUIDs come from NVML: letters, digits and '-', which need no escape. */
static void put_line(weft_buf *out, const char *name, const weft_metrics_meters *m, uint32_t i,
                     double value, bool nv)
{
    weft_buf_printf(out, "%s{%s=\"%s\"", name, nv ? "gpu_uuid" : "gpu", m->at[i].gpu);
    if (!nv && m->at[i].mig)
        weft_buf_printf(out, ",instance=\"%s\"", m->at[i].mig);
    weft_buf_puts(out, "} ");
    weft_buf_put_f64(out, value);
    weft_buf_putc(out, '\n');
}

static void put_family(const weft_metrics_meters *m, size_t which, bool nv, weft_buf *out)
{
    const char *name = nv ? metrics[which].nv_name : metrics[which].name;
    bool head = false;
    for (uint32_t i = 0; i < m->n; i++) {
        double value = *(const double *)((const char *)&m->at[i].last + metrics[which].field);
        if (value < 0 || (m->at[i].mig && (nv || metrics[which].whole)))
            continue;
        if (!head)
            weft_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, metrics[which].help, name,
                            metrics[which].type);
        head = true;
        put_line(out, name, m, i, value, nv);
    }
}

static bool is_on(const weft_worker_status *s, const char *slice)
{
    return !s->retired && strcmp(s->name ? s->name : "", slice) == 0;
}

/* A value for each slice, which has a worker for each bundle: of a gauge the least, else the sum.
 */
static void put_workers(const weft_router *router, const char *name, const char *type,
                        const char *help, double (*value)(const weft_worker_status *),
                        weft_buf *out)
{
    bool is_gauge = strcmp(type, "gauge") == 0;
    weft_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
    for (uint32_t i = 0; i < weft_router__worker_count(router); i++) {
        weft_worker_status s = weft_router__worker_status(router, i);
        const char *slice = s.name ? s.name : "";
        double all = 0;
        bool is_first = !s.retired;
        for (uint32_t k = 0; k < weft_router__worker_count(router) && is_first; k++) {
            weft_worker_status other = weft_router__worker_status(router, k);
            if (!is_on(&other, slice))
                continue;
            is_first = k >= i;
            double x = value(&other);
            all = k == i ? x : is_gauge ? (x < all ? x : all) : all + x;
        }
        if (is_first)
            weft_buf_printf(out, "%s{slice=\"%s\"} %.0f\n", name, slice, all);
    }
}

static double is_ready(const weft_worker_status *s)
{
    return s->ready;
}

static double restarts(const weft_worker_status *s)
{
    return (double)s->restarts;
}

static double losses(const weft_worker_status *s)
{
    return (double)s->losses;
}

void weft_metrics__write_gpus(weft_metrics_meters *meters, const weft_router *router, bool nv_names,
                              weft_buf *out)
{
    if (!meters || meters->n == 0)
        return;
    for (uint32_t i = 0; i < meters->n; i++) {
        weft_meter_reading *r = &meters->at[i].last;
        if (meters->at[i].meter)
            weft_meter_read(meters->at[i].meter, r);
        else
            *r = weft_meter_unknown;
    }
    for (size_t i = 0; i < sizeof metrics / sizeof metrics[0]; i++) {
        put_family(meters, i, false, out);
        if (nv_names && metrics[i].nv_name[0])
            put_family(meters, i, true, out);
    }
    put_workers(router, "weft_slice_ready", "gauge", "The worker of the slice can answer", is_ready,
                out);
    put_workers(router, "weft_slice_restarts_total", "counter", "Workers started again", restarts,
                out);
    put_workers(router, "weft_slice_losses_total", "counter",
                "Workers that ended because their device was lost", losses, out);
}
