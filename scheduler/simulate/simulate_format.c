/* The report of a simulation as JSON, and its time buckets as CSV (docs/simulate.md). */
#include "scheduler/scheduler.h"

#include "base/str.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { REPORT_DIGITS = 12 };

static json_t *number(double x)
{
    return isfinite(x) && x == floor(x) && fabs(x) < 1e15 ? json_integer((json_int_t)x)
                                                          : json_real(x);
}

static void put(json_t *o, const char *key, double x)
{
    json_object_set_new(o, key, number(x));
}

static void put_count(json_t *o, const char *key, uint64_t n)
{
    json_object_set_new(o, key, json_integer((json_int_t)n));
}

static void put_text(json_t *o, const char *key, const char *text)
{
    json_object_set_new(o, key, json_string(text));
}

static void put_counts(json_t *o, const weft_sim_counts *c)
{
    put_count(o, "requests", c->requests);
    put_count(o, "answered", c->answered);
    put_count(o, "good", c->good);
    put_count(o, "late", c->late);
    put_count(o, "dropped", c->dropped);
}

static json_t *service_to_json(const weft_sim_service *s, double seconds)
{
    json_t *o = json_object();
    if (s->name)
        put_text(o, s->app ? "app" : "model", s->name);
    put_counts(o, &s->count);
    put_count(o, "in_flight", s->in_flight);
    put(o, "goodput_per_s", seconds > 0 ? (double)s->count.good / seconds : 0);
    put(o, "violations",
        s->count.requests ? (double)(s->count.late + s->count.dropped) / (double)s->count.requests
                          : 0);
    if (s->name)
        put(o, "slo_us", s->slo_us);
    put(o, "mean_us", s->mean_us);
    put(o, "mean_wait_us", s->mean_wait_us);
    put(o, "p50_us", s->p50_us);
    put(o, "p95_us", s->p95_us);
    put(o, "p99_us", s->p99_us);
    put(o, "max_us", s->max_us);
    put_count(o, "batches", s->batches);
    put_count(o, "padded_rows", s->padded_rows);
    if (s->app)
        put(o, "accuracy", s->accuracy);
    return o;
}

static json_t *slice_to_json(const weft_sim_slice *s)
{
    json_t *o = json_object();
    put_count(o, "device", s->device);
    put_text(o, "type", s->type);
    put_text(o, "slice", s->slice);
    put_count(o, "slice_id", s->slice_id);
    json_object_set_new(o, "mig_start",
                        s->mig_start < 0 ? json_null() : json_integer(s->mig_start));
    put_text(o, "models", s->models);
    put(o, "from_s", s->from_s);
    put(o, "to_s", s->to_s);
    put(o, "utilisation", s->busy);
    put_count(o, "batches", s->batches);
    put_count(o, "requests", s->requests);
    return o;
}

static json_t *device_to_json(const weft_sim_device *d)
{
    json_t *o = json_object();
    put_count(o, "device", d->device);
    put_text(o, "type", d->type);
    put(o, "used_s", d->used_s);
    put(o, "utilisation", d->busy);
    return o;
}

static json_t *bucket_to_json(const weft_sim_report *r, const weft_sim_bucket *b)
{
    json_t *o = json_object(), *models = json_array();
    put(o, "start_s", b->start_s);
    put(o, "length_s", b->length_s);
    put(o, "utilisation", b->busy);
    put_count(o, "gpus", b->gpus);
    if (r->has_energy)
        put(o, "energy_j", b->energy_j);
    if (r->has_carbon) {
        put(o, "carbon_g", b->carbon_g);
        put(o, "carbon_g_per_kwh", b->carbon_g_per_kwh);
    }
    for (size_t i = 0; i < r->n_service; i++) {
        json_t *m = json_object();
        put_text(m, "name", r->service[i].name);
        put_counts(m, &b->count[i]);
        put(m, "p99_us", b->p99_us[i]);
        json_array_append_new(models, m);
    }
    json_object_set_new(o, "models", models);
    return o;
}

static json_t *change_to_json(const weft_sim_change *c)
{
    json_t *o = json_object();
    put(o, "at_s", c->at_s);
    put_text(o, "policy", c->policy);
    json_object_set_new(o, "refused", json_boolean(c->refused));
    if (c->why[0])
        json_object_set_new(o, "why", json_string(c->why));
    put_count(o, "gpus", c->gpus);
    put_count(o, "kept", c->kept);
    put_count(o, "started", c->started);
    put_count(o, "stopped", c->stopped);
    put(o, "ready_s", c->ready_s);
    return o;
}

weft_err weft_sim_to_json(const weft_sim_report *report, char **out)
{
    const weft_sim_report *r = report;
    json_t *root = json_object(), *models = json_array(), *slices = json_array();
    json_t *time = json_array(), *changes = json_array(), *devices = json_array();
    put_text(root, "format", "weft-simulation");
    put_count(root, "version", 1);
    put(root, "simulated_s", r->simulated_s);
    put_count(root, "events", r->events);
    put(root, "utilisation", r->busy);
    put(root, "device_s", r->device_s);
    put(root, "cost", r->cost);
    if (r->has_energy)
        put(root, "energy_j", r->energy_j);
    else
        json_object_set_new(root, "energy_j", json_null());
    if (r->has_carbon)
        put(root, "carbon_g", r->carbon_g);
    else
        json_object_set_new(root, "carbon_g", json_null());
    json_object_set_new(root, "total", service_to_json(&r->total, r->simulated_s));
    for (size_t i = 0; i < r->n_service; i++)
        json_array_append_new(models, service_to_json(&r->service[i], r->simulated_s));
    for (size_t i = 0; i < r->n_slice; i++)
        json_array_append_new(slices, slice_to_json(&r->slice[i]));
    for (size_t i = 0; i < r->n_device; i++)
        json_array_append_new(devices, device_to_json(&r->device[i]));
    for (size_t i = 0; i < r->n_bucket; i++)
        json_array_append_new(time, bucket_to_json(r, &r->bucket[i]));
    for (size_t i = 0; i < r->n_change; i++)
        json_array_append_new(changes, change_to_json(&r->change[i]));
    bool whole = root && models && json_array_size(models) == r->n_service &&
                 json_array_size(slices) == r->n_slice && json_array_size(time) == r->n_bucket &&
                 json_array_size(changes) == r->n_change && json_array_size(devices) == r->n_device;
    json_object_set_new(root, "models", models);
    json_object_set_new(root, "slices", slices);
    json_object_set_new(root, "devices", devices);
    json_object_set_new(root, "time", time);
    json_object_set_new(root, "changes", changes);
    char *text =
        whole ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(REPORT_DIGITS)) : NULL;
    json_decref(root);
    if (!text)
        return WEFT_ERR_NOMEM;
    *out = text;
    return WEFT_ERR_OK;
}

static void csv_row(weft_buf *buf, const weft_sim_report *r, const weft_sim_bucket *b,
                    const char *name, const weft_sim_counts *c, double p99_us)
{
    weft_buf_printf(buf, "%.12g,%.12g,%s,%llu,%llu,%llu,%llu,%llu,", b->start_s, b->length_s, name,
                    (unsigned long long)c->requests, (unsigned long long)c->answered,
                    (unsigned long long)c->good, (unsigned long long)c->late,
                    (unsigned long long)c->dropped);
    if (p99_us >= 0)
        weft_buf_printf(buf, "%.12g", p99_us);
    weft_buf_printf(buf, ",%.12g,%u,", b->busy, b->gpus);
    if (r->has_energy)
        weft_buf_printf(buf, "%.12g", b->energy_j);
    if (r->has_carbon)
        weft_buf_printf(buf, ",%.12g,%.12g\n", b->carbon_g, b->carbon_g_per_kwh);
    else
        weft_buf_puts(buf, ",,\n");
}

weft_err weft_sim_to_csv(const weft_sim_report *report, char **out)
{
    weft_buf buf = {0};
    weft_buf_puts(&buf, "start_s,length_s,model,requests,answered,good,late,dropped,p99_us,"
                        "utilisation,gpus,energy_j,carbon_g,carbon_g_per_kwh\n");
    for (size_t i = 0; i < report->n_bucket; i++) {
        const weft_sim_bucket *b = &report->bucket[i];
        weft_sim_counts all = {0};
        for (size_t k = 0; k < report->n_service; k++) {
            const weft_sim_counts *c = &b->count[k];
            all.requests += c->requests;
            all.answered += c->answered;
            all.good += c->good;
            all.late += c->late;
            all.dropped += c->dropped;
        }
        csv_row(&buf, report, b, "*", &all, -1);
        for (size_t k = 0; k < report->n_service; k++)
            csv_row(&buf, report, b, report->service[k].name, &b->count[k], b->p99_us[k]);
    }
    if (buf.failed || !buf.at) {
        weft_buf_finish(&buf);
        return WEFT_ERR_NOMEM;
    }
    *out = buf.at;
    return WEFT_ERR_OK;
}
