/* The file of --prices. */
#include "tools/common/prices.h"

#include "base/csv.h"
#include "base/device_type.h"
#include "base/file.h"
#include "base/num.h"

#include <stdio.h>
#include <string.h>

enum { DEVICE, PRICE, DATE, SOURCE, COLUMNS };
static const char *const column_names[COLUMNS] = {"device", "price_per_hour", "date", "source"};
static const double price_max = 1e6;

static weft_err refuse(const weft_csv *rows, weft_diag *diag, const char *column, const char *what,
                       const char *text)
{
    return weft_diag_error(diag, WEFT_ERR_INPUT, rows->where, "column '%s': %s '%.100s'", column,
                           what, text);
}

static weft_err read_header(weft_csv *rows, weft_diag *diag, int at[COLUMNS])
{
    bool more;
    for (size_t c = 0; c < COLUMNS; c++)
        at[c] = -1;
    WEFT_TRY(weft_csv_next(rows, diag, &more));
    for (size_t i = 0; more && i < rows->n_field; i++)
        for (size_t c = 0; c < COLUMNS; c++)
            if (strcmp(rows->field[i], column_names[c]) == 0) {
                if (at[c] >= 0)
                    return refuse(rows, diag, column_names[c], "stands twice:", column_names[c]);
                at[c] = (int)i;
            }
    for (size_t c = 0; c < COLUMNS; c++)
        if (at[c] < 0)
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = rows->where.file},
                                   "column '%s' is missing", column_names[c]);
    return WEFT_ERR_OK;
}

/* "2026-05", "2026-05-31" */
static bool is_date(const char *text)
{
    static const char form[] = "0000-00-00";
    size_t len = strlen(text);
    if (len != strlen("0000-00") && len != strlen(form))
        return false;
    for (size_t i = 0; i < len; i++)
        if (form[i] == '-' ? text[i] != '-' : text[i] < '0' || text[i] > '9')
            return false;
    int month = (text[5] - '0') * 10 + text[6] - '0', day = 1;
    if (len == strlen(form))
        day = (text[8] - '0') * 10 + text[9] - '0';
    return month >= 1 && month <= 12 && day >= 1 && day <= 31;
}

static weft_err read_row(const weft_csv *rows, const int at[COLUMNS], weft_arena *arena,
                         weft_diag *diag, weft_tool_price *out)
{
    const char *const *field = rows->field;
    for (size_t c = 0; c < COLUMNS; c++)
        if (at[c] >= (int)rows->n_field || !*field[at[c]])
            return refuse(rows, diag, column_names[c], "is empty", "");
    const weft_device_type *type = weft_device_type_named(field[at[DEVICE]]);
    if (!type)
        return refuse(rows, diag, "device", "unknown device", field[at[DEVICE]]);
    *out = (weft_tool_price){.device = type->name};
    if (!weft_parse_f64(field[at[PRICE]], &out->per_hour) || !(out->per_hour > 0) ||
        out->per_hour > price_max)
        return refuse(rows, diag, "price_per_hour", "must be above 0, not", field[at[PRICE]]);
    if (!is_date(field[at[DATE]]))
        return refuse(rows, diag, "date", "must be like 2026-05 or 2026-05-31, not",
                      field[at[DATE]]);
    out->date = weft_arena_strdup(arena, field[at[DATE]]);
    return WEFT_ERR_OK;
}

static weft_err read_rows(weft_csv *rows, weft_arena *arena, weft_diag *diag, weft_tool_prices *out)
{
    int at[COLUMNS];
    bool more;
    WEFT_VEC(weft_tool_price) found = {0};
    WEFT_TRY(read_header(rows, diag, at));
    for (;;) {
        weft_tool_price p;
        WEFT_TRY(weft_csv_next(rows, diag, &more));
        if (!more)
            break;
        WEFT_TRY(read_row(rows, at, arena, diag, &p));
        for (size_t i = 0; i < found.len; i++)
            if (strcmp(found.at[i].device, p.device) == 0)
                return refuse(rows, diag, "device", "stands twice:", p.device);
        WEFT_VEC_PUSH(arena, &found, p);
    }
    out->price = found.at;
    out->n = found.len;
    return WEFT_ERR_OK;
}

weft_err weft_tool_prices_load(const char *path, weft_arena *arena, weft_diag *diag,
                               weft_tool_prices *out)
{
    weft_file file = {0};
    *out = (weft_tool_prices){.file = path};
    if (!path)
        return WEFT_ERR_OK;
    WEFT_TRY(weft_file_map(path, diag, &file));
    weft_csv *rows = weft_csv_create((const char *)file.at, (size_t)file.len,
                                     (weft_where){.file = path}, (weft_csv_limits){0});
    weft_err err = rows ? read_rows(rows, arena, diag, out) : WEFT_ERR_NOMEM;
    weft_csv_destroy(rows);
    weft_file_unmap(&file);
    return err;
}

double weft_tool_price_of(const weft_tool_prices *prices, const char *device)
{
    const weft_device_type *type = weft_device_type_find(device);
    for (size_t i = 0; i < prices->n; i++)
        if (strcmp(prices->price[i].device, device) == 0)
            return prices->price[i].per_hour;
    return type ? type->price_per_hour : 0;
}

void weft_tool_prices_print(const weft_tool_prices *prices)
{
    const char *first = NULL, *last = NULL;
    for (size_t i = 0; i < prices->n; i++) {
        const char *date = prices->price[i].date;
        first = !first || strcmp(date, first) < 0 ? date : first;
        last = !last || strcmp(date, last) > 0 ? date : last;
    }
    if (prices->file)
        printf("prices: %s, %zu device%s%s%s%s%s\n", prices->file, prices->n,
               prices->n == 1 ? "" : "s", first ? ", " : "", first ? first : "",
               first && strcmp(first, last) != 0 ? " to " : "",
               first && strcmp(first, last) != 0 ? last : "");
}
