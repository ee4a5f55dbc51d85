/* Reports of merging: JSON, and the same as text for people. */
#include "tools/compiler/merge_report.h"

#include "base/csv.h"
#include "tools/common/names.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* JSON has no infinity. */
#define NO_NUMBER 1e300

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
    json_object_set_new(one, "difference",
                        c->why ? json_null()
                               : json_real(isfinite(c->difference) ? c->difference : NO_NUMBER));
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
    json_t *outputs = report_changes(&measured->by_tolerance);
    return json_pack("{s:f, s:I, s:o, s:f, s:o}", "value", measured->tolerance, "weights",
                     (json_int_t)log->near_weights, "bytes", json_count(log->near_bytes),
                     "largest_change", log->near_most, "outputs", outputs);
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
    json_t *pairs = json_array(), *expectations = json_array();
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
    for (uint32_t i = 0; log && i < log->pairs.len; i++)
        json_array_append_new(pairs, report_pair(&log->pairs.at[i]));
    for (uint32_t i = 0; i < expected->len; i++)
        json_array_append_new(expectations, report_expectation(&expected->at[i]));
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "weight_bytes", json_count(distinct),
                     "bytes_saved", json_count(saved), "shared", shared, "groups", groups, "merges",
                     merges, "pairs", pairs, "expected", expectations);
}

/* -- Text ------------------------------------------------------------------------------------- */

/* Reports are read back from files: a key may be absent or of another kind. */
static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static double number_of(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static void put_bytes(weft_buf *out, const json_t *o, const char *key)
{
    char buf[32];
    double n = number_of(o, key);
    weft_buf_puts(out, weft_tool_bytes(n > 0 && n < 1e18 ? (uint64_t)n : 0, buf));
}

static void put_gain(weft_buf *out, const char *label, const json_t *o, const char *key)
{
    double x = number_of(o, key);
    if (x > 0)
        weft_buf_printf(out, "%s%.2fx", label, x);
}

static void put_names(weft_buf *out, const json_t *list)
{
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one)
    {
        weft_buf_puts(out, i ? ", " : "");
        weft_tool_put_name(out, json_string_value(one) ? json_string_value(one) : "?");
    }
}

static void put_pairs(weft_buf *out, const json_t *list)
{
    size_t i;
    json_t *p;
    if (json_array_size(list))
        weft_buf_puts(out, "\nPairs of models: similarity 2|common|/(|A|+|B|) of weights, share of "
                           "corresponding operators, equal weights\n");
    json_array_foreach(list, i, p)
    {
        weft_buf_printf(out, "  %s%5.1f %%  %5.1f %%  ",
                        json_is_true(json_object_get(p, "lower_bound")) ? ">=" : "  ",
                        100 * number_of(p, "similarity"), 100 * number_of(p, "architecture"));
        put_bytes(out, p, "equal_bytes");
        weft_buf_puts(out, "  ");
        weft_tool_put_name(out, text_of(p, "a"));
        weft_buf_puts(out, ", ");
        weft_tool_put_name(out, text_of(p, "b"));
        weft_buf_puts(out, "\n");
    }
}

static void put_candidate(weft_buf *out, const json_t *c)
{
    weft_buf_puts(out, "      ");
    weft_tool_put_name(out, text_of(c, "strategy"));
    if (!json_is_true(json_object_get(c, "fits"))) {
        weft_buf_puts(out, " does not fit");
    } else {
        put_gain(out, "  gain ", c, "gain_small");
        put_gain(out, " small, ", c, "gain_large");
        weft_buf_puts(out, number_of(c, "gain_large") > 0 ? " large" : "");
        weft_buf_puts(out, "  reads ");
        put_bytes(out, c, "read_bytes");
        if (number_of(c, "made_bytes") > 0) {
            weft_buf_puts(out, ", adds ");
            put_bytes(out, c, "made_bytes");
        }
    }
    if (*text_of(c, "reason")) {
        weft_buf_puts(out, ": ");
        weft_tool_put_name(out, text_of(c, "reason"));
    }
    weft_buf_puts(out, "\n");
}

static void put_measured(weft_buf *out, const json_t *list)
{
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one)
    {
        weft_buf_printf(out, "%sbatch %.0f", i ? ", " : "; measured ", number_of(one, "batch"));
        put_gain(out, " ", one, "gain");
    }
}

static void put_merge(weft_buf *out, const json_t *m)
{
    size_t i;
    json_t *c;
    weft_buf_puts(out, "  ");
    weft_tool_put_name(out, text_of(m, "op"));
    weft_buf_puts(out, " ");
    weft_tool_put_name(out, text_of(m, "item"));
    weft_buf_puts(out, " of ");
    put_names(out, json_object_get(m, "models"));
    weft_buf_puts(out, "; weights ");
    put_bytes(out, m, "weight_bytes");
    weft_buf_puts(out, "\n    => ");
    weft_tool_put_name(out, text_of(m, "strategy"));
    put_gain(out, "  expected gain ", m, "gain_small");
    put_gain(out, " small, ", m, "gain_large");
    weft_buf_puts(out, " large");
    put_measured(out, json_object_get(m, "measured"));
    weft_buf_puts(out, ": ");
    weft_tool_put_name(out, text_of(m, "reason"));
    weft_buf_puts(out, "\n");
    json_array_foreach(json_object_get(m, "candidates"), i, c) put_candidate(out, c);
}

/* Measured, or as expected. */
static void put_joint(weft_buf *out, const json_t *list, const char *title)
{
    size_t i;
    json_t *j;
    if (json_array_size(list))
        weft_buf_printf(out, "\n%s\n", title);
    json_array_foreach(list, i, j)
    {
        weft_buf_puts(out, "  ");
        weft_tool_put_name(out, text_of(j, "joint"));
        weft_buf_printf(out, "  batch %.0f  apart %.3f ms  joint %.3f ms  gain %.2fx",
                        number_of(j, "batch"), number_of(j, "apart_ms"), number_of(j, "joint_ms"),
                        number_of(j, "gain"));
        put_gain(out, "  expected ", j, "expected");
        if (json_object_get(j, "difference"))
            weft_buf_printf(out, "  largest difference %.2g of scale", number_of(j, "difference"));
        weft_buf_puts(out, "\n");
    }
}

static void put_changes(weft_buf *out, const json_t *outputs)
{
    size_t i;
    json_t *one;
    json_array_foreach(outputs, i, one)
    {
        const char *why = text_of(one, "not_measured");
        if (*why)
            weft_buf_puts(out, "  not measured  ");
        else if (number_of(one, "difference") >= NO_NUMBER)
            weft_buf_puts(out, "  overflows, or is no number  ");
        else
            weft_buf_printf(out, "  %.3g of scale (%.0f inputs)  ", number_of(one, "difference"),
                            number_of(one, "runs"));
        weft_tool_put_name(out, text_of(one, "model"));
        weft_buf_puts(out, " ");
        weft_tool_put_name(out, text_of(one, "output"));
        weft_buf_puts(out, *why ? ": " : "");
        weft_tool_put_name(out, why);
        weft_buf_puts(out, "\n");
    }
}

static void put_precision(weft_buf *out, const json_t *p)
{
    if (!json_is_object(p))
        return;
    weft_buf_puts(out, "\nPrecision ");
    weft_tool_put_name(out, text_of(p, "type"));
    weft_buf_puts(out, ": outputs differ from those of f32, measured on the CPU at the smallest "
                       "sizes, by up to\n");
    put_changes(out, json_object_get(p, "outputs"));
}

static void put_tolerance(weft_buf *out, const json_t *t)
{
    if (!json_is_object(t))
        return;
    weft_buf_printf(
        out,
        "\nTolerance %g: %.0f weights were replaced by near ones, elements change by up "
        "to %.3g; outputs, measured, by up to\n",
        number_of(t, "value"), number_of(t, "weights"), number_of(t, "largest_change"));
    put_changes(out, json_object_get(t, "outputs"));
}

static void put_report(weft_buf *out, const json_t *root)
{
    size_t i;
    json_t *one, *merges = json_object_get(root, "merges");
    weft_buf_puts(out, "Weights: ");
    put_bytes(out, root, "weight_bytes");
    weft_buf_puts(out, " stored, each content once; ");
    put_bytes(out, root, "bytes_saved");
    weft_buf_puts(out, " more if every model had its own\n");
    put_tolerance(out, json_object_get(root, "tolerance"));
    put_precision(out, json_object_get(root, "precision"));
    put_pairs(out, json_object_get(root, "pairs"));
    json_array_foreach(json_object_get(root, "groups"), i, one)
    {
        weft_buf_puts(out, i ? "  " : "\nModels that were matched with each other\n  ");
        put_names(out, one);
        weft_buf_puts(out, "\n");
    }
    if (json_array_size(merges))
        weft_buf_puts(out,
                      "\nGroups of corresponding products, the choice and what else there was\n");
    else
        weft_buf_puts(out, "\nNo two models have products that correspond: nothing to merge\n");
    json_array_foreach(merges, i, one) put_merge(out, one);
    if (json_array_size(json_object_get(root, "joint")))
        put_joint(out, json_object_get(root, "joint"),
                  "Joint programs, measured beside their models");
    else
        put_joint(out, json_object_get(root, "expected"), "Joint programs, as expected");
}

/* -- Files ------------------------------------------------------------------------------------ */

weft_err weft_tool_save_report(const json_t *root, const char *path, bool json, weft_diag *diag)
{
    weft_buf out = {0};
    char *text = json ? json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;
    if (json)
        weft_buf_puts(&out, text ? text : "");
    else
        put_report(&out, root);
    if (json)
        weft_buf_putc(&out, '\n');
    bool failed = out.failed || (json && !text);
    weft_err err = failed ? WEFT_ERR_NOMEM : weft_file_write(path, out.at, out.len, diag);
    weft_buf_finish(&out);
    free(text);
    return err;
}

weft_err weft_tool_write_report(const weft_bundle *bundle, const weft_merge_log *log,
                                const weft_tool_expectations *expected,
                                const weft_tool_measured *measured, const char *path, bool json,
                                weft_diag *diag)
{
    json_t *root = make_report(bundle, log, expected);
    if (root && measured->by_tolerance.at)
        json_object_set_new(root, "tolerance", report_tolerance(log, measured));
    if (root && measured->by_precision.at)
        json_object_set_new(root, "precision",
                            json_pack("{s:s, s:o}", "type", measured->precision, "outputs",
                                      report_changes(&measured->by_precision)));
    weft_err err = root ? weft_tool_save_report(root, path, json, diag) : WEFT_ERR_NOMEM;
    json_decref(root);
    return err;
}

weft_err weft_tool_read_report(const char *path, weft_diag *diag, json_t **out)
{
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = path}, "%s", error.text);
    if (json_is_array(json_object_get(root, "merges"))) {
        *out = root;
        return WEFT_ERR_OK;
    }
    json_decref(root);
    return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = path},
                           "is no report of weft compile: it has no array `merges`");
}

/* A field: control characters are escaped, so that a row is a line. */
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
