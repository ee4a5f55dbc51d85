/* The calibration file:
 *
 *   # Weft calibration of h200: ...
 *   key,value
 *   calibration,2            version
 *   gpu,h200
 *   rows,1200
 *   launch,0.93 0.09 -0.12 0.15   of each constant: scale of its times (1 is the device's row),
 * mean relative
 *   ...                      error, edges of the 90 % band (log2 of measured over predicted)
 *   error_before,0.21        mean relative errors; error_after is held out, 0: not enough shapes
 *   error_after,0.09
 *   fitted,launch product    constants that had enough rows
 */
#include "tools/profile/calibration_file.h"

#include "base/file.h"
#include "base/num.h"
#include "base/csv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 1 << 16, VERSION = WEFT_CALIBRATION_VERSION };
#define SCALE_MIN 0.1
#define SCALE_MAX 10
#define EDGE_MAX  20

/* -- Writing ---------------------------------------------------------------------------------- */

weft_err weft_tool_calibration_save(const weft_calibration *c, const char *path, weft_diag *diag)
{
    weft_buf text = {0};
    weft_buf_printf(&text,
                    "# Weft calibration of %s: scales of predicted times, fitted to %zu "
                    "measurements\nkey,value\ncalibration,%d\ngpu,%s\nrows,%zu\n",
                    c->gpu, c->n_rows, VERSION, c->gpu, c->n_rows);
    for (int i = 0; i < WEFT_CALIBRATION_CONSTANTS; i++)
        weft_buf_printf(&text, "%s,%.9g %.6g %.6g %.6g\n", weft_calibration_name(i), c->scale[i],
                        c->error[i], c->edge[i][0], c->edge[i][1]);
    weft_buf_printf(&text, "error_before,%.6g\nerror_after,%.6g\nfitted,", c->error_before,
                    c->held_out ? c->error_after : 0);
    bool first = true;
    for (int i = 0; i < WEFT_CALIBRATION_CONSTANTS; i++)
        if (c->fitted[i]) {
            weft_buf_printf(&text, "%s%s", first ? "" : " ", weft_calibration_name(i));
            first = false;
        }
    weft_buf_puts(&text, "\n");
    weft_err err = text.failed ? WEFT_ERR_NOMEM : weft_file_write(path, text.at, text.len, diag);
    weft_buf_finish(&text);
    return err;
}

/* -- Reading ---------------------------------------------------------------------------------- */

enum { KEY_VERSION, KEY_GPU, KEY_ROWS, KEY_BEFORE, KEY_AFTER, KEY_FITTED, KEY_SCALE };
enum { KEYS = KEY_SCALE + WEFT_CALIBRATION_CONSTANTS };

static const char *const key_name[KEY_SCALE] = {"calibration",  "gpu",         "rows",
                                                "error_before", "error_after", "fitted"};

static const char *name_of(int key)
{
    return key < KEY_SCALE ? key_name[key]
                           : weft_calibration_name((weft_calibration_constant)(key - KEY_SCALE));
}

static bool read_number(const char *text, double lo, double hi, double *out)
{
    double x;
    if (!weft_parse_f64(text, &x) || !isfinite(x) || x < lo || x > hi)
        return false;
    *out = x;
    return true;
}

static bool read_fitted(const char *text, weft_calibration *c)
{
    while (*text) {
        size_t len = strcspn(text, " ");
        int i = 0;
        while (i < WEFT_CALIBRATION_CONSTANTS &&
               (strlen(weft_calibration_name(i)) != len ||
                strncmp(weft_calibration_name(i), text, len) != 0))
            i++;
        if (i == WEFT_CALIBRATION_CONSTANTS)
            return false;
        c->fitted[i] = true;
        text += len;
        text += *text == ' ';
    }
    return true;
}

/* "0.93 0.09 -0.12 0.15": scale, error, edges of the band. */
static bool read_constant(const char *text, int i, weft_calibration *c)
{
    enum { NUMBERS = 4, NUMBER_BYTES = 32 };
    static const double lo[NUMBERS] = {SCALE_MIN, 0, -EDGE_MAX, 0};
    static const double hi[NUMBERS] = {SCALE_MAX, 1e6, 0, EDGE_MAX};
    double *const out[NUMBERS] = {&c->scale[i], &c->error[i], &c->edge[i][0], &c->edge[i][1]};
    for (int k = 0; k < NUMBERS; k++) {
        char number[NUMBER_BYTES];
        size_t len = strcspn(text, " ");
        if (len >= sizeof number)
            return false;
        memcpy(number, text, len);
        number[len] = 0;
        if (!read_number(number, lo[k], hi[k], out[k]))
            return false;
        text += len + (text[len] == ' ');
    }
    return !*text;
}

static bool read_value(int key, const char *text, weft_calibration *c)
{
    double x = 0;
    switch (key) {
    case KEY_VERSION:
        return read_number(text, VERSION, VERSION, &x);
    case KEY_GPU:
        if (!weft_gpu_find(text) || strlen(text) >= sizeof c->gpu)
            return false;
        memcpy(c->gpu, text, strlen(text) + 1);
        return true;
    case KEY_ROWS:
        if (!read_number(text, 0, 1e12, &x))
            return false;
        c->n_rows = (size_t)x;
        return true;
    case KEY_BEFORE:
        return read_number(text, 0, 1e6, &c->error_before);
    case KEY_AFTER:
        if (!read_number(text, 0, 1e6, &c->error_after))
            return false;
        c->held_out = c->error_after > 0;
        return true;
    case KEY_FITTED:
        return read_fitted(text, c);
    default:
        return read_constant(text, key - KEY_SCALE, c);
    }
}

static weft_err read_row(const weft_csv *rows, bool *seen, weft_calibration *c, weft_diag *diag)
{
    weft_where where = {.file = rows->where.file, .line = rows->where.line};
    int key = 0;
    if (rows->n_field != 2)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "calibration: %zu fields, not 2",
                               rows->n_field);
    while (key < KEYS && strcmp(name_of(key), rows->field[0]) != 0)
        key++;
    if (key == KEYS)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "calibration: unknown key '%s'",
                               rows->field[0]);
    if (seen[key])
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "calibration: '%s' appears twice",
                               rows->field[0]);
    seen[key] = true;
    if (!read_value(key, rows->field[1], c))
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "calibration: %s cannot be '%s'",
                               rows->field[0], rows->field[1]);
    return WEFT_ERR_OK;
}

static weft_err read_rows(weft_csv *rows, weft_diag *diag, weft_calibration *c)
{
    bool seen[KEYS] = {false}, more;
    WEFT_TRY(weft_csv_next(rows, diag, &more));
    if (!more || rows->n_field != 2 || strcmp(rows->field[0], "key") != 0 ||
        strcmp(rows->field[1], "value") != 0)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = rows->where.file},
                               "is no calibration: the header must be 'key,value'");
    for (;;) {
        WEFT_TRY(weft_csv_next(rows, diag, &more));
        if (!more)
            break;
        WEFT_TRY(read_row(rows, seen, c, diag));
    }
    for (int key = 0; key < KEYS; key++)
        if (!seen[key])
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = rows->where.file},
                                   "calibration: '%s' is missing", name_of(key));
    return WEFT_ERR_OK;
}

weft_err weft_tool_calibration_load(const char *path, weft_diag *diag, weft_calibration *out)
{
    char *text = NULL;
    size_t len = 0;
    weft_calibration c = {0};
    WEFT_TRY(weft_file_read(path, FILE_BYTES_MAX, diag, &text, &len));
    weft_csv *rows = weft_csv_create(text, len, (weft_where){.file = path}, (weft_csv_limits){0});
    weft_err err = rows ? read_rows(rows, diag, &c) : WEFT_ERR_NOMEM;
    if (err == WEFT_ERR_OK)
        *out = c;
    weft_csv_destroy(rows);
    free(text);
    return err;
}
