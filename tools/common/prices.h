/* Prices of devices that a user gives in place of those of the device table. */
#ifndef WEFT_TOOLS_PRICES_H
#define WEFT_TOOLS_PRICES_H

#include "base/arena.h"
#include "base/diag.h"

typedef struct weft_tool_price {
    const char *device; /* row of the device table */
    double per_hour;    /* of a device, dollars */
    const char *date;   /* "2026-05" or "2026-05-31" */
} weft_tool_price;

typedef struct weft_tool_prices {
    const char *file; /* NULL: those of the device table */
    const weft_tool_price *price;
    size_t n;
} weft_tool_prices;

/* Reads a table with the columns device, price_per_hour, date, source, in any order, as `weft list
 * prices` prints it. INPUT with the line: an unknown device, one that stands twice, a price that is
 * not above 0, a date or a source that is missing. `path` NULL: no file. Lives in `arena`. */
WEFT_MUST_USE weft_err weft_tool_prices_load(const char *path, weft_arena *arena, weft_diag *diag,
                                             weft_tool_prices *out);
/* Dollars an hour by the file, else by the device table; 0: not known. */
double weft_tool_price_of(const weft_tool_prices *prices, const char *device);
/* "prices: FILE, 12 devices, 2025-05 to 2026-05"; nothing without a file. */
void weft_tool_prices_print(const weft_tool_prices *prices);

#endif
