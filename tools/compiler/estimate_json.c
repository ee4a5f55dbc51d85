/* The report of `weft estimate` as JSON: docs/estimate-json.md. */
#include "tools/compiler/estimate.h"
#include "tools/common/names.h"

#include "base/file.h"
#include "base/str.h"
#include "tools/report/page.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static json_t *integer(uint64_t x)
{
    return json_integer(x > INT64_MAX ? INT64_MAX : (json_int_t)x);
}

static json_t *number_or_null(double x)
{
    return x > 0 ? json_real(x) : json_null();
}

static json_t *cost_to_json(const char *name, const weft_cost *c)
{
    json_t *o = json_object();
    json_object_set_new(o, "name", json_string(name));
    json_object_set_new(o, "time_us", json_real(c->time_us));
    json_object_set_new(o, "time_p5_us", number_or_null(c->time_p5_us));
    json_object_set_new(o, "time_p95_us", number_or_null(c->time_p95_us));
    json_object_set_new(o, "creq", json_real(c->creq));
    json_object_set_new(o, "mreq_bytes", integer(c->mreq_bytes));
    json_object_set_new(o, "bandwidth_gbps", json_real(c->bandwidth_gbps));
    json_object_set_new(o, "energy_j", json_real(c->energy_j));
    json_object_set_new(o, "source", json_string(c->source));
    json_object_set_new(o, "expected_error", json_real(c->expected_error));
    return o;
}

/* -- Kernels ---------------------------------------------------------------------------------- */

static json_t *reason_to_json(const weft_tool_finding *f, const weft_kernel_cost *k)
{
    double launches = k->launches > 1 ? k->launches : 1;
    weft_kernel_reason why;
    weft_estimate_explain(&k->kernel, f->slice, &f->how, k->cost.time_us / launches, &why);
    json_t *o = json_object();
    json_object_set_new(o, "peak_gflops", json_real(why.peak_gflops));
    json_object_set_new(o, "saving", json_real(why.saving));
    json_object_set_new(o, "compute_us", json_real(why.compute_us));
    json_object_set_new(o, "memory_bytes", json_real(why.memory_bytes));
    json_object_set_new(o, "traffic_us", json_real(why.traffic_us));
    json_object_set_new(o, "launch_us", json_real(why.launch_us));
    json_object_set_new(o, "roofline_us", json_real(why.roofline_us));
    json_object_set_new(o, "trees", json_string(why.family));
    json_object_set_new(o, "base_us", json_real(why.base_us));
    json_object_set_new(o, "correction", json_real(why.correction));
    json_object_set_new(o, "floor_us", json_real(why.floor_us));
    json_object_set_new(o, "widened", why.widened ? json_string(why.widened) : json_null());
    return o;
}

static json_t *kernel_to_json(const weft_tool_finding *f, const weft_kernel_cost *k, bool explain)
{
    const char *item = weft_node_loc(f->m, k->node).item;
    const weft_kernel *p = &k->kernel;
    const weft_usage *u = &k->usage;
    double bytes = p->work.bytes_read + p->work.bytes_written + p->work.weight_bytes;
    weft_cost cost = k->cost;
    /* A kernel needs memory for its operands and results only. */
    cost.mreq_bytes = bytes < 9e18 ? (uint64_t)bytes : UINT64_MAX;
    json_t *o = cost_to_json(item ? item : "", &cost);
    json_object_set_new(o, "op", json_string(k->op));
    json_object_set_new(o, "kind", json_string(weft_kernel_kind_name(p->kind)));
    json_object_set_new(o, "dtype", json_string(weft_dtype_name(p->dtype)));
    json_object_set_new(o, "model", json_string(k->model));
    json_object_set_new(o, "bound", json_string(k->bound));
    json_object_set_new(o, "launches", json_integer(k->launches));
    json_object_set_new(o, "flops", json_real(p->work.flops));
    json_object_set_new(o, "bytes", json_real(bytes));
    json_object_set_new(o, "start_us", json_real(k->start_us));
    json_object_set_new(o, "end_us", json_real(k->end_us));
    json_object_set_new(o, "sm_need", json_real(u->sm_need));
    json_object_set_new(o, "sm_peak", json_real(u->sm_peak));
    json_object_set_new(o, "sm_active", json_real(u->sm_active));
    json_object_set_new(o, "occ_active", json_real(u->occ_active));
    json_object_set_new(o, "occ_elapsed", json_real(u->occ_elapsed));
    if (explain)
        json_object_set_new(o, "explain", reason_to_json(f, k));
    return o;
}

static void add_kernels(const weft_tool_estimate *o, const weft_tool_finding *f, json_t *row)
{
    size_t top[WEFT_ESTIMATE_TOP];
    size_t n = weft_tool_slowest(&f->e, top, WEFT_ESTIMATE_TOP);
    json_t *slowest = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(slowest, kernel_to_json(f, &f->e.kernel[top[i]], o->explain));
    json_object_set_new(row, "dearest", slowest);
    if (!o->per_kernel)
        return;
    json_t *kernels = json_array();
    for (size_t i = 0; i < f->e.n; i++)
        json_array_append_new(kernels, kernel_to_json(f, &f->e.kernel[i], o->explain));
    json_object_set_new(row, "kernels", kernels);
}

/* -- Models ----------------------------------------------------------------------------------- */

static void add_details(const weft_tool_estimate *o, const weft_tool_finding *f, json_t *row)
{
    const weft_estimate *e = &f->e;
    double share[3];
    json_t *bins = json_array(), *over = json_object(), *bound = json_object();
    weft_tool_shares(e, share);
    for (int i = 0; i < WEFT_CREQ_BINS; i++)
        json_array_append_new(bins, json_real(e->creq.bin[i]));
    json_object_set_new(over, "mean", json_real(e->creq.mean));
    json_object_set_new(over, "max", json_real(e->creq.max));
    json_object_set_new(over, "p95", json_real(e->creq.p95));
    json_object_set_new(over, "span_us", json_real(e->creq.span_us));
    json_object_set_new(over, "histogram", bins);
    json_object_set_new(bound, "compute", json_real(share[0]));
    json_object_set_new(bound, "memory", json_real(share[1]));
    json_object_set_new(bound, "launch", json_real(share[2]));
    json_object_set_new(row, "weight_bytes", integer(e->weight_bytes));
    json_object_set_new(row, "arena_bytes", integer(e->arena_bytes));
    json_object_set_new(row, "workspace_bytes", integer(e->workspace_bytes));
    json_object_set_new(row, "io_bytes", integer(e->io_bytes));
    json_object_set_new(row, "context_bytes", integer(e->context_bytes));
    json_object_set_new(row, "n_kernels", integer(e->n));
    json_object_set_new(row, "device_us", json_real(e->device_us));
    json_object_set_new(row, "creq_over_time", over);
    json_object_set_new(row, "bound", bound);
    add_kernels(o, f, row);
}

static json_t *finding_to_json(const weft_tool_estimate *o, const weft_tool_finding *f)
{
    json_t *row = cost_to_json(f->name, &f->cost);
    json_object_set_new(row, "device", json_string(f->slice->gpu->name));
    json_object_set_new(row, "slice", json_string(f->slice->name));
    json_object_set_new(row, "batch", json_integer(f->batch));
    json_object_set_new(row, "procs", json_integer(f->procs));
    json_object_set_new(row, "throughput_per_s", json_real(f->throughput_per_s));
    json_object_set_new(row, "mem_bytes",
                        f->fits_known ? integer(f->slice->mem_bytes) : json_null());
    json_object_set_new(row, "fits", f->fits_known ? json_boolean(f->fits) : json_null());
    json_object_set_new(row, "price_per_hour", number_or_null(f->price_per_hour));
    json_object_set_new(row, "price_per_million", number_or_null(f->price_per_million));
    if (f->slow_down > 0) {
        json_object_set_new(row, "slow_down", json_real(f->slow_down));
        json_object_set_new(row, "alone_us", json_real(f->e.total.time_us));
    }
    if (f->m)
        add_details(o, f, row);
    return row;
}

static json_t *findings_to_json(const weft_tool_estimate *o, const weft_tool_finding *f, size_t n)
{
    json_t *root = json_object(), *models = json_array();
    json_object_set_new(root, "device", json_string(o->at[0].gpu->name));
    json_object_set_new(root, "slice", json_string(o->at[0].name));
    json_object_set_new(root, "batch", json_integer(o->batch[0]));
    json_object_set_new(root, "lowering", json_string(o->framework ? "framework" : "fused"));
    json_object_set_new(root, "calibration",
                        o->calibration ? weft_tool_json_name(o->calibration) : json_null());
    for (size_t i = 0; i < n; i++)
        json_array_append_new(models, finding_to_json(o, &f[i]));
    json_object_set_new(root, "models", models);
    return root;
}

weft_err weft_tool_draw_findings(const weft_tool_estimate *o, const weft_tool_finding *f, size_t n,
                                 weft_diag *diag)
{
    weft_tool_estimate all = *o;
    all.per_kernel = all.explain = true;
    json_t *root = findings_to_json(&all, f, n);
    weft_err err = weft_page_draw_estimate(root, o->draw, diag);
    json_decref(root);
    return err;
}

weft_err weft_tool_write_findings(const weft_tool_estimate *o, const weft_tool_finding *f, size_t n,
                                  weft_diag *diag)
{
    json_t *root = findings_to_json(o, f, n);
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(root);
    if (!text)
        return WEFT_ERR_NOMEM;
    weft_buf buf = {0};
    weft_buf_printf(&buf, "%s\n", text);
    free(text);
    weft_err err = buf.failed ? WEFT_ERR_NOMEM
                              : weft_file_write(o->output ? o->output : "-", buf.at, buf.len, diag);
    weft_buf_finish(&buf);
    return err;
}
