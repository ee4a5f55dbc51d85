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

typedef struct device_meter {
    char *gpu, *mig;   /* UUIDs; mig NULL: the whole GPU */
    weft_meter *meter; /* NULL: the device cannot be read */
    weft_meter_reading last;
    bool used; /* some worker is on it */
} device_meter;

struct weft_metrics_meters {
    device_meter *at;
    uint32_t n;
};

static bool is_device(const device_meter *m, const char *gpu, const char *mig)
{
    return strcmp(m->gpu, gpu) == 0 && (m->mig && mig ? strcmp(m->mig, mig) == 0 : m->mig == mig);
}

static void close_meter(device_meter *m)
{
    weft_meter_close(m->meter);
    free(m->gpu);
    free(m->mig);
}

/* Without memory the device has no metrics. */
static void use(weft_metrics_meters *m, const char *gpu, const char *mig)
{
    for (uint32_t i = 0; i < m->n; i++)
        if (is_device(&m->at[i], gpu, mig)) {
            m->at[i].used = true;
            return;
        }
    device_meter new = {.gpu = strdup(gpu), .mig = mig ? strdup(mig) : NULL, .used = true};
    device_meter *at = realloc(m->at, (m->n + 1) * sizeof *at);
    m->at = at ? at : m->at;
    if (!at || !new.gpu || (mig && !new.mig)) {
        close_meter(&new);
        return;
    }
    /* An error is ignored: a GPU can be served without metrics. */
    if (weft_meter_open(mig ? mig : gpu, 0, NULL, &new.meter) != WEFT_ERR_OK)
        new.meter = NULL;
    m->at[m->n++] = new;
}

/* Opens meters of the devices that workers are on, and closes those of others: plans change. */
static void follow_workers(weft_metrics_meters *m, const weft_router *router)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n; i++)
        m->at[i].used = false;
    for (uint32_t i = 0; i < weft_router__worker_count(router); i++) {
        const weft_worker_status s = weft_router__worker_status(router, i);
        if (s.retired || !s.gpu)
            continue;
        use(m, s.gpu, NULL);
        if (s.mig)
            use(m, s.gpu, s.mig);
    }
    for (uint32_t i = 0; i < m->n; i++) {
        if (m->at[i].used)
            m->at[n++] = m->at[i];
        else
            close_meter(&m->at[i]);
    }
    m->n = n;
}

weft_metrics_meters *weft_metrics__open_meters(const weft_router *router)
{
    weft_metrics_meters *m = calloc(1, sizeof *m);
    if (m)
        follow_workers(m, router);
    return m;
}

void weft_metrics__close_meters(weft_metrics_meters *meters)
{
    if (!meters)
        return;
    for (uint32_t i = 0; i < meters->n; i++)
        close_meter(&meters->at[i]);
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
    if (!meters)
        return;
    follow_workers(meters, router);
    if (meters->n == 0)
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
