/* Carbon intensity of a grid as CSV, gCO2/kWh, hourly: one column under a header line (the layout
 * of clover/carbon_*.csv), or several of which the first whose name holds "carbon_intensity" counts
 * (clover_sustainability/UK-ESO.csv). There a first column of times like 2021-01-01T05:00Z places
 * each row, so that hours without a row are seen; what is missing repeats the hour before, and is
 * never zero. */
#include "scheduler/scheduler.h"

#include "base/file.h"
#include "base/num.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CARBON_BYTES_MAX = 64 << 20, CARBON_LINE_MAX = 1024, CARBON_HOURS_MAX = 1 << 20 };

typedef struct reader {
    weft_where where;
    weft_diag *diag;
    size_t column, n_column;
    bool timed;
    int64_t first_hour;
    WEFT_VEC(double) values;
} reader;

/* "2021-03-04T05:00Z" as hours; false when it is not of this form. Days by the civil calendar
 * (H. Hinnant, chrono-compatible low-level date algorithms). */
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
    return weft_diag_error(rd->diag, WEFT_ERR_INPUT, rd->where, "%s '%.64s'", text, value);
}

/* Field `i` of the line, cut out of it; NULL when there are fewer. */
static char *field_at(char *line, size_t i)
{
    while (i-- > 0) {
        line = strchr(line, ',');
        if (!line)
            return NULL;
        line++;
    }
    line[strcspn(line, ",")] = 0;
    return line;
}

static weft_err read_header(reader *rd, const char *line)
{
    bool found = false;
    rd->n_column = 1;
    for (const char *at = line; (at = strchr(at, ',')); at++)
        rd->n_column++;
    for (size_t i = 0; i < rd->n_column && rd->n_column > 1 && !found; i++) {
        char copy[CARBON_LINE_MAX];
        memcpy(copy, line, strlen(line) + 1);
        found = strstr(field_at(copy, i), "carbon_intensity") != NULL;
        rd->column = i;
    }
    if (rd->n_column > 1 && !found)
        return fail(rd, "no column is named carbon_intensity:", line);
    rd->timed = rd->n_column > 1 && rd->column > 0;
    return WEFT_ERR_OK;
}

static weft_err add_value(reader *rd, weft_arena *arena, double value)
{
    if (rd->values.len == CARBON_HOURS_MAX)
        return weft_diag_error(rd->diag, WEFT_ERR_INPUT, rd->where, "more than %d hours",
                               CARBON_HOURS_MAX);
    if (isnan(value))
        value = rd->values.at[rd->values.len - 1];
    WEFT_VEC_PUSH(arena, &rd->values, value);
    return WEFT_ERR_OK;
}

static weft_err read_row(reader *rd, weft_arena *arena, char *line)
{
    char copy[CARBON_LINE_MAX];
    memcpy(copy, line, strlen(line) + 1);
    const char *text = field_at(copy, rd->column);
    double value = (double)NAN;
    if (!text)
        return fail(rd, "too few fields:", line);
    if (text[0] && (!weft_parse_f64(text, &value) || !(value >= 0 && value <= 1e6)))
        return fail(rd, "intensity must be a number of gCO2/kWh from 0 to 1e6, not", text);
    if (rd->timed) {
        int64_t hour;
        if (!parse_hour(field_at(line, 0), &hour))
            return fail(rd, "time must be like 2021-01-31T05:00Z, not", line);
        if (rd->values.len == 0)
            rd->first_hour = hour;
        int64_t at = hour - rd->first_hour;
        if (at < rd->values.len)
            return fail(rd, "time is not after that of the row above:", line);
        if (at > CARBON_HOURS_MAX)
            return fail(rd, "time is too far behind the row above:", line);
        while (rd->values.len < at)
            WEFT_TRY(add_value(rd, arena, (double)NAN));
    }
    if (isnan(value) && rd->values.len == 0)
        return fail(rd, "the first intensity is missing:", line);
    return add_value(rd, arena, value);
}

static weft_err read_lines(reader *rd, weft_arena *arena, char *text, size_t len)
{
    char *at = text, *end = text + len;
    bool header = true;
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        at += 3;
    while (at < end) {
        char *stop = memchr(at, '\n', (size_t)(end - at));
        char *next = stop ? stop + 1 : end;
        size_t n = (size_t)((stop ? stop : end) - at);
        rd->where.line++;
        if (n >= CARBON_LINE_MAX || memchr(at, 0, n))
            return weft_diag_error(rd->diag, WEFT_ERR_INPUT, rd->where,
                                   "line is too long or holds a zero byte");
        at[n] = 0;
        if (n > 0 && at[n - 1] == '\r')
            at[n - 1] = 0;
        if (at[0] && at[0] != '#') {
            WEFT_TRY(header ? read_header(rd, at) : read_row(rd, arena, at));
            header = false;
        }
        at = next;
    }
    return rd->values.len > 0
               ? WEFT_ERR_OK
               : weft_diag_error(rd->diag, WEFT_ERR_INPUT, (weft_where){.file = rd->where.file},
                                 "no intensity under a header line");
}

weft_err weft_carbon_load(const char *path, weft_arena *arena, weft_diag *diag, weft_carbon *out)
{
    char *text = NULL;
    size_t len = 0;
    WEFT_TRY(weft_file_read(path, CARBON_BYTES_MAX, diag, &text, &len));
    reader rd = {.where = {.file = path}, .diag = diag};
    weft_err err = read_lines(&rd, arena, text, len);
    free(text);
    WEFT_TRY(err);
    *out = (weft_carbon){rd.values.at, rd.values.len, 3600};
    return WEFT_ERR_OK;
}
