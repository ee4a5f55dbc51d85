/* Carbon intensity of a grid as CSV: gCO2/kWh by the hour.
 *
 * Two layouts. Either one column under a header line (clover/carbon_*.csv), or several columns,
 * of which the first one with "carbon_intensity" in its name is read
 * (clover_sustainability/UK-ESO.csv). In the second layout the first column has times such as
 * 2021-01-01T05:00Z, so that missing hours are noticed. An hour without a value repeats the hour
 * before it; it is never zero. */
#include "scheduler/scheduler.h"

#include "base/csv.h"
#include "base/file.h"
#include "base/num.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CARBON_BYTES_MAX = 64 << 20, CARBON_HOURS_MAX = 1 << 20 };

typedef struct reader {
    weft_csv *csv;
    weft_diag *diag;
    size_t column;
    bool timed; /* the first column has the hour */
    int64_t first_hour;
    WEFT_VEC(double) values;
} reader;

/* Hours since March 1 of the year 0 of a text such as "2021-03-04T05:00Z"; false: the text is not
 * of this form. Days are counted as in H. Hinnant, chrono-Compatible Low-Level Date Algorithms. */
static bool parse_hour(const char *text, int64_t *out)
{
    static const char form[] = "dddd-dd-ddTdd:dd";
    int64_t v[5] = {0};
    int part = 0;
    for (size_t i = 0; i < sizeof form - 1; i++) {
        if (form[i] == 'd' ? !isdigit((unsigned char)text[i])
                           : text[i] != form[i] && !(form[i] == 'T' && text[i] == ' '))
            return false;
        if (form[i] == 'd')
            v[part] = v[part] * 10 + (text[i] - '0');
        else
            part++;
    }
    if (v[1] < 1 || v[1] > 12 || v[2] < 1 || v[2] > 31 || v[3] > 23)
        return false;
    int64_t y = v[0] - (v[1] <= 2), era = y / 400, yoe = y - era * 400;
    int64_t doy = (153 * (v[1] + (v[1] > 2 ? -3 : 9)) + 2) / 5 + v[2] - 1;
    *out = (era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy) * 24 + v[3];
    return true;
}

static weft_err fail(const reader *rd, const char *text, const char *value)
{
    return weft_diag_error(rd->diag, WEFT_ERR_INPUT, rd->csv->where, "%s '%.64s'", text, value);
}

static weft_err read_header(reader *rd)
{
    const weft_csv *csv = rd->csv;
    bool found = csv->n_field == 1;
    for (size_t i = 0; i < csv->n_field && !found; i++) {
        found = strstr(csv->field[i], "carbon_intensity") != NULL;
        rd->column = i;
    }
    rd->timed = rd->column > 0;
    return found ? WEFT_ERR_OK : fail(rd, "no column is named carbon_intensity:", csv->raw);
}

static weft_err add_value(reader *rd, weft_arena *arena, double value)
{
    if (rd->values.len == CARBON_HOURS_MAX)
        return weft_diag_error(rd->diag, WEFT_ERR_INPUT, rd->csv->where, "more than %d hours",
                               CARBON_HOURS_MAX);
    if (isnan(value))
        value = rd->values.at[rd->values.len - 1];
    WEFT_VEC_PUSH(arena, &rd->values, value);
    return WEFT_ERR_OK;
}

static weft_err read_row(reader *rd, weft_arena *arena)
{
    const weft_csv *csv = rd->csv;
    double value = (double)NAN;
    if (rd->column >= csv->n_field)
        return fail(rd, "too few fields:", csv->raw);
    const char *text = csv->field[rd->column];
    if (text[0] && (!weft_parse_f64(text, &value) || !(value >= 0 && value <= 1e6)))
        return fail(rd, "intensity must be a number of gCO2/kWh from 0 to 1e6, not", text);
    if (rd->timed) {
        int64_t hour;
        if (!parse_hour(csv->field[0], &hour))
            return fail(rd, "time must be like 2021-01-31T05:00Z, not", csv->field[0]);
        if (rd->values.len == 0)
            rd->first_hour = hour;
        int64_t at = hour - rd->first_hour;
        if (at < rd->values.len)
            return fail(rd, "time is not after that of the row above:", csv->field[0]);
        if (at > CARBON_HOURS_MAX)
            return fail(rd, "time is too far behind the row above:", csv->field[0]);
        while (rd->values.len < at)
            WEFT_TRY(add_value(rd, arena, (double)NAN));
    }
    if (isnan(value) && rd->values.len == 0)
        return fail(rd, "the first intensity is missing:", csv->raw);
    return add_value(rd, arena, value);
}

static weft_err read_rows(reader *rd, weft_arena *arena)
{
    bool more;
    WEFT_TRY(weft_csv_next(rd->csv, rd->diag, &more));
    if (more)
        WEFT_TRY(read_header(rd));
    while (more) {
        WEFT_TRY(weft_csv_next(rd->csv, rd->diag, &more));
        if (more)
            WEFT_TRY(read_row(rd, arena));
    }
    return rd->values.len > 0 ? WEFT_ERR_OK
                              : weft_diag_error(rd->diag, WEFT_ERR_INPUT,
                                                (weft_where){.file = rd->csv->where.file},
                                                "no intensity under a header line");
}

weft_err weft_carbon_load(const char *path, weft_arena *arena, weft_diag *diag, weft_carbon *out)
{
    char *text = NULL;
    size_t len = 0;
    WEFT_TRY(weft_file_read(path, CARBON_BYTES_MAX, diag, &text, &len));
    weft_csv *csv = weft_csv_create(text, len, (weft_where){.file = path}, (weft_csv_limits){0});
    reader rd = {.csv = csv, .diag = diag};
    weft_err err = csv ? read_rows(&rd, arena) : WEFT_ERR_NOMEM;
    weft_csv_destroy(csv);
    free(text);
    WEFT_TRY(err);
    *out = (weft_carbon){rd.values.at, rd.values.len, 3600};
    return WEFT_ERR_OK;
}
