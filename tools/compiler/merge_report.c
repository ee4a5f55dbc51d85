/* The report of `weft compile` as JSON, and the similarity of models as CSV. */
#include "tools/compiler/merge_report.h"

#include "base/csv.h"
#include "tools/common/names.h"
#include "tools/common/report_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* -- JSON ------------------------------------------------------------------------------------- */

static json_t *json_count(uint64_t n)
{
    return json_integer(n > INT64_MAX ? INT64_MAX : (json_int_t)n);
}

static bool uses_weight(const weft_bundle_program *p, uint32_t w)
{
    for (uint32_t i = 0; i < p->n_value; i++)
        if (p->value[i].weight == w)
            return true;
    return false;
}

static json_t *report_weight(const weft_bundle *bundle, uint32_t w)
{
    const weft_bundle_weight *weight = &bundle->weight[w - 1];
    json_t *models = json_array();
    for (uint32_t i = 0; i < bundle->n_program; i++)
        if (uses_weight(&bundle->program[i], w))
            json_array_append_new(models, weft_tool_json_name(bundle->program[i].name));
    return json_pack("{s:o, s:o, s:o}", "weight", weft_tool_json_name(weight->name), "bytes",
                     json_count(weight->bytes), "models", models);
}

static json_t *report_candidate(const weft_merge_candidate *c)
{
    json_t *one = json_pack("{s:s, s:b, s:s}", "strategy", c->strategy, "fits", (int)c->fits,
                            "reason", c->reason);
    if (!c->fits)
        return one;
    json_object_set_new(one, "read_bytes", json_count(c->read_bytes));
    json_object_set_new(one, "made_bytes", json_count(c->made_bytes));
    if (c->gain_small > 0)
        json_object_set_new(one, "gain_small", json_real(c->gain_small));
    if (c->gain_large > 0)
        json_object_set_new(one, "gain_large", json_real(c->gain_large));
    return one;
}

static json_t *report_merge(const weft_merge_row *row)
{
    json_t *models = json_array(), *candidates = json_array();
    for (uint32_t i = 0; i < row->n_model; i++)
        json_array_append_new(models, weft_tool_json_name(row->model[i]));
    for (uint32_t i = 0; i < row->n_candidate; i++)
        json_array_append_new(candidates, report_candidate(&row->candidate[i]));
    return json_pack("{s:s, s:o, s:o, s:o, s:f, s:f, s:b, s:s, s:s, s:o}", "op", row->op, "item",
                     weft_tool_json_name(row->item), "models", models, "weight_bytes",
                     json_count(row->weight_bytes), "gain_small", row->gain_small, "gain_large",
                     row->gain_large, "joined", (int)row->joined, "strategy",
                     row->strategy ? row->strategy : "none", "reason", row->reason, "candidates",
                     candidates);
}

static json_t *report_pair(const weft_merge_pair *p)
{
    return json_pack("{s:o, s:o, s:f, s:f, s:b, s:o, s:o, s:o, s:o, s:I, s:I, s:I}", "a",
                     weft_tool_json_name(p->model[0]), "b", weft_tool_json_name(p->model[1]),
                     "architecture", p->architecture, "similarity", p->similarity, "lower_bound",
                     (int)p->lower_bound, "bytes_a", json_count(p->bytes[0]), "bytes_b",
                     json_count(p->bytes[1]), "equal_bytes", json_count(p->equal_bytes),
                     "common_bytes", json_count(p->common_bytes), "nodes_a",
                     (json_int_t)p->nodes[0], "nodes_b", (json_int_t)p->nodes[1], "matched",
                     (json_int_t)p->matched);
}

static json_t *report_change(const weft_tool_change *c)
{
    json_t *one = json_pack("{s:o, s:o, s:I}", "model", weft_tool_json_name(c->model), "output",
                            weft_tool_json_name(c->output), "runs", (json_int_t)c->runs);
    if (c->why)
        json_object_set_new(one, "not_measured", weft_tool_json_name(c->why));
    json_object_set_new(
        one, "difference",
        c->why ? json_null()
               : json_real(isfinite(c->difference) ? c->difference : WEFT_REPORT_NO_NUMBER));
    return one;
}

static json_t *report_changes(const weft_tool_changes *changes)
{
    json_t *outputs = json_array();
    for (uint32_t i = 0; i < changes->n; i++)
        json_array_append_new(outputs, report_change(&changes->at[i]));
    return outputs;
}

static json_t *report_tolerance(const weft_merge_log *log, const weft_tool_measured *measured)
{
    json_t *outputs = report_changes(&measured->by_weights);
    return json_pack("{s:f, s:I, s:o, s:f, s:o}", "value", measured->tolerance, "weights",
                     (json_int_t)log->near_weights, "bytes", json_count(log->near_bytes),
                     "largest_change", log->near_most, "outputs", outputs);
}

static json_t *report_delta(const weft_delta_row *d)
{
    return json_pack("{s:o, s:o, s:s, s:I, s:o, s:o, s:f}", "weight",
                     weft_tool_json_name(d->weight), "base", weft_tool_json_name(d->base), "kind",
                     d->kind, "size", (json_int_t)d->size, "full_bytes", json_count(d->full_bytes),
                     "bytes", json_count(d->bytes), "error", d->error);
}

static json_t *report_deltas(const weft_merge_log *log, const weft_tool_measured *measured)
{
    json_t *weights = json_array();
    for (uint32_t i = 0; i < log->deltas.len; i++)
        json_array_append_new(weights, report_delta(&log->deltas.at[i]));
    return json_pack("{s:s, s:o, s:o}", "mode",
                     measured->deltas == WEFT_DELTAS_NEAR ? "near" : "exact", "weights", weights,
                     "outputs", report_changes(&measured->by_weights));
}

static json_t *report_packs(const weft_merge_log *log)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < log->packs.len; i++) {
        const weft_pack_row *row = &log->packs.at[i];
        json_t *o = json_pack("{s:o, s:b}", "model", weft_tool_json_name(row->model), "packed",
                              row->reason == NULL);
        if (o && row->reason)
            json_object_set_new(o, "reason", weft_tool_json_name(row->reason));
        if (o && row->together_with)
            json_object_set_new(o, "together_with", json_integer(row->together_with));
        else if (o && row->apart)
            json_object_set_new(o, "apart", weft_tool_json_name(row->apart));
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *report_names(const weft_merge_model_group *group)
{
    json_t *names = json_array();
    for (uint32_t i = 0; i < group->n_model; i++)
        json_array_append_new(names, weft_tool_json_name(group->model[i]));
    return names;
}

static json_t *report_expectation(const weft_tool_expectation *e)
{
    return json_pack("{s:o, s:I, s:f, s:f, s:f}", "joint", weft_tool_json_name(e->joint), "batch",
                     (json_int_t)e->batch, "apart_ms", e->apart_us * 1e-3, "joint_ms",
                     e->joint_us * 1e-3, "gain", e->apart_us / e->joint_us);
}

static json_t *make_report(const weft_bundle *bundle, const weft_merge_log *log,
                           const weft_tool_expectations *expected)
{
    json_t *shared = json_array(), *groups = json_array(), *merges = json_array();
    json_t *pairs = json_array(), *expectations = json_array(), *apart = json_array();
    uint64_t distinct = 0, saved = 0;
    for (uint32_t w = 1; w <= bundle->n_weight; w++) {
        const weft_bundle_weight *weight = &bundle->weight[w - 1];
        distinct += weight->bytes;
        if (weight->n_users < 2)
            continue;
        saved += weight->bytes * (weight->n_users - 1);
        json_array_append_new(shared, report_weight(bundle, w));
    }
    for (uint32_t i = 0; log && i < log->rows.len; i++)
        json_array_append_new(merges, report_merge(&log->rows.at[i]));
    for (uint32_t i = 0; log && i < log->model_groups.len; i++)
        json_array_append_new(groups, report_names(&log->model_groups.at[i]));
    for (uint32_t i = 0; log && i < log->apart.len; i++)
        json_array_append_new(apart, json_pack("{s:o, s:s}", "models",
                                               report_names(&log->apart.at[i].models), "reason",
                                               log->apart.at[i].reason));
    for (uint32_t i = 0; log && i < log->pairs.len; i++)
        json_array_append_new(pairs, report_pair(&log->pairs.at[i]));
    for (uint32_t i = 0; i < expected->len; i++)
        json_array_append_new(expectations, report_expectation(&expected->at[i]));
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "weight_bytes",
                     json_count(distinct), "bytes_saved", json_count(saved), "shared", shared,
                     "groups", groups, "apart", apart, "merges", merges, "pairs", pairs, "expected",
                     expectations);
}

static json_t *report_convs(const weft_bundle *bundle, const weft_conv_planning *convs)
{
    json_t *targets = json_array();
    for (uint32_t i = 0; i < convs->n_plans; i++) {
        const weft_bundle_conv_plans *p = &convs->plans[i];
        json_array_append_new(
            targets, json_pack("{s:s, s:s, s:I, s:I, s:I}", "arch", bundle->arch[p->arch], "device",
                               p->device, "cudnn", (json_int_t)p->version, "planned",
                               (json_int_t)p->n_plan, "unplanned", (json_int_t)p->n_none));
    }
    return json_pack("{s:I, s:o, s:o}", "distinct", (json_int_t)convs->n_conv, "targets", targets,
                     "why_not", convs->why_not[0] ? json_string(convs->why_not) : json_null());
}

/* -- Files ------------------------------------------------------------------------------------ */

weft_err weft_tool_write_report(const weft_bundle *bundle, const weft_merge_log *log,
                                const weft_tool_expectations *expected,
                                const weft_tool_measured *measured, const char *path, bool json,
                                weft_diag *diag)
{
    json_t *root = make_report(bundle, log, expected);
    if (root && measured->tolerance > 0)
        json_object_set_new(root, "tolerance", report_tolerance(log, measured));
    if (root && measured->deltas != WEFT_DELTAS_OFF)
        json_object_set_new(root, "deltas", report_deltas(log, measured));
    if (root && log && log->packs.len > 0)
        json_object_set_new(root, "packed", report_packs(log));
    if (root && measured->convs->n_conv > 0)
        json_object_set_new(root, "convolutions", report_convs(bundle, measured->convs));
    if (root && measured->by_precision.at)
        json_object_set_new(root, "precision",
                            json_pack("{s:s, s:o}", "type", measured->precision, "outputs",
                                      report_changes(&measured->by_precision)));
    weft_err err = root ? weft_tool_save_report(root, path, json, diag) : WEFT_ERR_NOMEM;
    json_decref(root);
    return err;
}

/* Writes a field; control characters are escaped, so that each row is one line. */
static void put_field(weft_buf *out, const char *name)
{
    weft_buf plain = {0};
    weft_tool_put_name(&plain, name);
    weft_csv_put(out, plain.at ? plain.at : "");
    out->failed = out->failed || plain.failed;
    weft_buf_finish(&plain);
}

weft_err weft_tool_write_pairs(const weft_merge_log *log, const char *path, weft_diag *diag)
{
    weft_buf out = {0};
    weft_buf_puts(&out, "a,b,similarity,lower_bound,architecture,bytes_a,bytes_b,equal_bytes,"
                        "common_bytes,nodes_a,nodes_b,matched\n");
    for (uint32_t i = 0; i < log->pairs.len; i++) {
        const weft_merge_pair *p = &log->pairs.at[i];
        put_field(&out, p->model[0]);
        weft_buf_putc(&out, ',');
        put_field(&out, p->model[1]);
        weft_buf_printf(&out, ",%.6f,%d,%.6f,%llu,%llu,%llu,%llu,%u,%u,%u\n", p->similarity,
                        (int)p->lower_bound, p->architecture, (unsigned long long)p->bytes[0],
                        (unsigned long long)p->bytes[1], (unsigned long long)p->equal_bytes,
                        (unsigned long long)p->common_bytes, p->nodes[0], p->nodes[1], p->matched);
    }
    weft_err err = out.failed ? WEFT_ERR_NOMEM : weft_file_write(path, out.at, out.len, diag);
    weft_buf_finish(&out);
    return err;
}
