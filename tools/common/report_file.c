/* Report files; see report_file.h. */
#include "tools/common/report_file.h"

#include "base/file.h"
#include "tools/common/names.h"
#include "tools/common/tools.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* -- Text ------------------------------------------------------------------------------------- */

/* Reports are read from files: a key may be missing or have a value of another type. */
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
        weft_buf_puts(out, " does not apply");
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

/* Joint programs, as measured or as estimated. */
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
        else if (number_of(one, "difference") >= WEFT_REPORT_NO_NUMBER)
            weft_buf_puts(out, "  overflows or is NaN  ");
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
        "\nTolerance %g: %.0f weights were replaced by similar ones, elements change by up "
        "to %.3g; outputs, measured, by up to\n",
        number_of(t, "value"), number_of(t, "weights"), number_of(t, "largest_change"));
    put_changes(out, json_object_get(t, "outputs"));
}

static void put_deltas(weft_buf *out, const json_t *deltas)
{
    size_t i;
    json_t *one;
    double n = 0, full = 0, kept = 0, error = 0;
    double all = (double)json_array_size(json_object_get(deltas, "weights"));
    json_array_foreach(json_object_get(deltas, "weights"), i, one)
    {
        bool moved = number_of(one, "size") > 0;
        n += moved;
        full += moved ? number_of(one, "full_bytes") : 0;
        kept += moved ? number_of(one, "bytes") : 0;
        error = fmax(error, number_of(one, "error"));
    }
    if (!json_is_object(deltas))
        return;
    char of[32], as[32];
    weft_buf_printf(out,
                    "\n%.0f weights of %s are kept as differences of %s, %.0f similar ones whole; "
                    "elements change by up to %.3g\n",
                    n, weft_tool_bytes(full < 1e18 ? (uint64_t)full : 0, of),
                    weft_tool_bytes(kept < 1e18 ? (uint64_t)kept : 0, as), all - n, error);
    put_changes(out, json_object_get(deltas, "outputs"));
}

static void put_report(weft_buf *out, const json_t *root)
{
    size_t i;
    json_t *one, *merges = json_object_get(root, "merges");
    weft_buf_puts(out, "Weights: ");
    put_bytes(out, root, "weight_bytes");
    weft_buf_puts(out, " stored, each content once; ");
    put_bytes(out, root, "bytes_saved");
    weft_buf_puts(out, " more if every model had its own copy\n");
    put_tolerance(out, json_object_get(root, "tolerance"));
    put_deltas(out, json_object_get(root, "deltas"));
    put_precision(out, json_object_get(root, "precision"));
    put_pairs(out, json_object_get(root, "pairs"));
    json_array_foreach(json_object_get(root, "groups"), i, one)
    {
        weft_buf_puts(out, i ? "  " : "\nGroups of models that were matched with each other\n  ");
        put_names(out, one);
        weft_buf_puts(out, "\n");
    }
    json_array_foreach(json_object_get(root, "apart"), i, one)
    {
        weft_buf_puts(out, i ? "  " : "\nModels without a joint program\n  ");
        put_names(out, json_object_get(one, "models"));
        weft_buf_printf(out, ": %s\n", json_string_value(json_object_get(one, "reason")));
    }
    if (json_array_size(merges))
        weft_buf_puts(out, "\nCorresponding GEMMs, the chosen strategy and all candidates\n");
    else
        weft_buf_puts(out, "\nNo two models have corresponding GEMMs: nothing to merge\n");
    json_array_foreach(merges, i, one) put_merge(out, one);
    if (json_array_size(json_object_get(root, "joint")))
        put_joint(out, json_object_get(root, "joint"),
                  "Joint programs, measured against their models");
    else
        put_joint(out, json_object_get(root, "expected"), "Joint programs, as estimated");
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
