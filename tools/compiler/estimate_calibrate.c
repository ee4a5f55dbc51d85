/* `weft estimate --calibrate`: fits the constants of a device to measurements.
 *
 * Without model files each row is a kernel, as for --kernels, with `measured_us`. With model files
 * each row is a whole model: `model,batch,measured_us` (`model` may be left out if there is one),
 * on the slice of the command line. */
#include "tools/compiler/estimate.h"

#include "base/file.h"
#include "base/num.h"
#include "tools/profile/calibration_file.h"
#include "base/csv.h"
#include "tools/compiler/estimate_kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CSV_BYTES_MAX = 64 << 20, ROWS_MAX = 1 << 20 };

typedef struct measurements {
    const weft_tool_estimate *o;
    weft_arena *arena;
    WEFT_VEC(weft_calibration_row) rows;
} measurements;

static weft_err add_row(measurements *all, const weft_calibration_row *row, weft_diag *diag)
{
    if (all->rows.len == ROWS_MAX)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = all->o->calibrate},
                               "more than %d measurements", ROWS_MAX);
    WEFT_VEC_PUSH(all->arena, &all->rows, *row);
    return WEFT_ERR_OK;
}

/* -- Kernels ---------------------------------------------------------------------------------- */

/* Hashes a kernel without slice and time: rows of equal hash are measurements of one shape. */
static uint64_t hash_kernel(const weft_kernel *k)
{
    const double size[] = {
        (double)k->kind, (double)k->dtype, k->batch,          k->m, k->n, k->k, k->rows,
        k->cols,         k->work.flops,    k->work.bytes_read};
    return weft_hash64(size, sizeof size, k->fn ? weft_hash64(k->fn, strlen(k->fn), 0) : 0);
}

static weft_err on_kernel(void *user, const weft_kernel *kernel, const weft_slice *slice,
                          bool exact, double measured_us, weft_diag *diag)
{
    measurements *all = user;
    const weft_slice *at = &all->o->at[0];
    const weft_estimate_options how = {.exact_f32 = exact || all->o->pass.exact_f32};
    weft_calibration_row row = {.measured_us = measured_us, .shape = hash_kernel(kernel)};
    if (slice->gpu != at->gpu)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = all->o->calibrate},
                               "holds a measurement of %s; --gpu says %s", slice->gpu->name,
                               at->gpu->name);
    WEFT_TRY(weft_calibration_add_kernel(kernel, 1, slice, &how, diag, &row));
    return add_row(all, &row, diag);
}

static weft_err read_kernels(measurements *all, weft_diag *diag)
{
    const weft_tool_kernels how = {.input = all->o->calibrate,
                                   .gpu = all->o->gpu,
                                   .slice = all->o->slice,
                                   .on_row = on_kernel,
                                   .user = all};
    return weft_tool_estimate_kernels(&how, diag);
}

/* -- Models ----------------------------------------------------------------------------------- */

enum { COL_MODEL, COL_BATCH, COL_MEASURED, COLUMNS };
static const char *const column_name[COLUMNS] = {"model", "batch", "measured_us"};

static weft_graph *find_graph(weft_module *m, const char *name)
{
    if (!name)
        return weft_graph_model_count(m) == 1 ? weft_graph_at(m, 0) : NULL;
    for (uint32_t i = 0; i < weft_graph_count(m); i++)
        if (strcmp(weft_graph_name(weft_graph_at(m, i)), name) == 0)
            return weft_graph_at(m, i);
    return NULL;
}

static weft_err add_model(measurements *all, weft_graph *g, int64_t batch, double measured_us,
                          weft_diag *diag)
{
    const weft_tool_estimate *o = all->o;
    weft_estimate_options how = {.exact_f32 = o->pass.exact_f32};
    if (o->framework)
        how.lowering = WEFT_LOWERING_FRAMEWORK;
    const char *name = weft_graph_name(g);
    weft_calibration_row row = {.measured_us = measured_us,
                                .shape = weft_hash64(name, strlen(name), (uint64_t)batch)};
    weft_workload work;
    int64_t *symbol =
        weft_arena_array(all->arena, (size_t)weft_graph_symbol_count(g) + 1, sizeof *symbol);
    WEFT_TRY(weft_tool_estimate_symbols(o, g, batch, diag, symbol));
    WEFT_TRY(weft_workload_make(g, symbol, &how, all->arena, diag, &work));
    WEFT_TRY(weft_workload_divide(&work, &o->at[0], all->arena, diag, &work));
    WEFT_TRY(weft_calibration_add_workload(&work, &o->at[0], &how, diag, &row));
    return add_row(all, &row, diag);
}

static weft_err read_header(const weft_csv *rows, bool more, int *at, weft_diag *diag)
{
    for (int c = 0; c < COLUMNS; c++) {
        at[c] = -1;
        for (size_t i = 0; more && i < rows->n_field; i++)
            if (strcmp(rows->field[i], column_name[c]) == 0)
                at[c] = (int)i;
        if (at[c] < 0 && c != COL_MODEL)
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = rows->where.file},
                                   "column '%s' is missing", column_name[c]);
    }
    return WEFT_ERR_OK;
}

static weft_err read_row(measurements *all, const weft_csv *rows, const int *at, weft_module *m,
                         weft_diag *diag)
{
    weft_where where = {.file = rows->where.file, .line = rows->where.line};
    int64_t batch = 0;
    double measured_us = 0;
    for (int c = 0; c < COLUMNS; c++)
        if (at[c] >= (int)rows->n_field)
            return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                                   "column '%s': the row ends before it", column_name[c]);
    const char *name = at[COL_MODEL] >= 0 ? rows->field[at[COL_MODEL]] : NULL;
    weft_graph *g = find_graph(m, name);
    if (!g)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                               "column 'model': no model file is '%.100s'", name ? name : "");
    if (!weft_parse_i64(rows->field[at[COL_BATCH]], &batch) || batch < 1 || batch > 1 << 20)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                               "column 'batch': '%.100s' is no batch size",
                               rows->field[at[COL_BATCH]]);
    if (!weft_parse_f64(rows->field[at[COL_MEASURED]], &measured_us) || !isfinite(measured_us) ||
        !(measured_us > 0) || measured_us > 1e15)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                               "column 'measured_us': must be a time above 0, not '%.100s'",
                               rows->field[at[COL_MEASURED]]);
    return add_model(all, g, batch, measured_us, diag);
}

static weft_err read_models(measurements *all, weft_module *m, weft_csv *rows, weft_diag *diag)
{
    int at[COLUMNS];
    bool more;
    WEFT_TRY(weft_csv_next(rows, diag, &more));
    WEFT_TRY(read_header(rows, more, at, diag));
    for (;;) {
        WEFT_TRY(weft_csv_next(rows, diag, &more));
        if (!more)
            return WEFT_ERR_OK;
        WEFT_TRY(read_row(all, rows, at, m, diag));
    }
}

static weft_err open_models(measurements *all, weft_module *m, weft_diag *diag)
{
    char *text = NULL;
    size_t len = 0;
    WEFT_TRY(weft_file_read(all->o->calibrate, CSV_BYTES_MAX, diag, &text, &len));
    weft_csv *rows =
        weft_csv_create(text, len, (weft_where){.file = all->o->calibrate}, (weft_csv_limits){0});
    weft_err err = rows ? read_models(all, m, rows, diag) : WEFT_ERR_NOMEM;
    weft_csv_destroy(rows);
    free(text);
    return err;
}

/* -- The result ------------------------------------------------------------------------------- */

void weft_tool_print_fit(const weft_calibration *c, FILE *to)
{
    fprintf(to, "%s: %zu measurements\n", c->gpu, c->n_rows);
    for (int i = 0; i < WEFT_CALIBRATION_CONSTANTS; i++) {
        if (c->fitted[i])
            fprintf(to, "  %-12s x %.3f +-%.0f %%  (from %zu measurements)\n",
                    weft_calibration_name(i), c->scale[i], c->error[i] * 100, c->rows[i]);
        else
            fprintf(to, "  %-12s kept     (%zu measurements of it, %d are needed)\n",
                    weft_calibration_name(i), c->rows[i], WEFT_CALIBRATION_ROWS_MIN);
    }
    fprintf(to, "mean error %.1f %% before, %.1f %% after", c->error_before * 100,
            (c->held_out ? c->error_after : c->error_fitted) * 100);
    if (c->held_out)
        fprintf(to, ", on shapes left out of the fit (%.1f %% on its own)\n",
                c->error_fitted * 100);
    else
        fputs(" on the fit's own measurements: too few shapes to leave any out\n", to);
}

weft_err weft_tool_calibrate(const weft_tool_estimate *o, weft_module *m, weft_diag *diag)
{
    weft_calibration fit;
    measurements all = {.o = o, .arena = weft_arena_create(0)};
    if (!all.arena)
        return WEFT_ERR_NOMEM;
    weft_err err = m ? open_models(&all, m, diag) : read_kernels(&all, diag);
    if (err == WEFT_ERR_OK)
        err = weft_calibration_fit(all.rows.at, all.rows.len, o->at[0].gpu, diag, &fit);
    weft_arena_destroy(all.arena);
    if (err != WEFT_ERR_OK)
        return err;
    weft_tool_print_fit(&fit, o->output && strcmp(o->output, "-") == 0 ? stderr : stdout);
    if (fit.held_out && fit.error_after >= fit.error_before)
        weft_diag_warn(diag, (weft_where){.file = o->calibrate},
                       "the fit is no better than the device's row on shapes it has not seen");
    return o->output ? weft_tool_calibration_save(&fit, o->output, diag) : WEFT_ERR_OK;
}
