/* The table of drivers. */
#include "runtime/driver_int.h"

#include <string.h>

#define DRIVER(record) extern const weft_driver weft_driver_##record;
#include "runtime/drivers.def"
#undef DRIVER

static const weft_driver *const driver_table[] = {
#define DRIVER(record) &weft_driver_##record,
#include "runtime/drivers.def"
#undef DRIVER
};

const weft_driver *weft_driver_at(size_t i)
{
    return i < sizeof driver_table / sizeof *driver_table ? driver_table[i] : NULL;
}

const weft_driver *weft_driver_find(const char *name)
{
    for (size_t i = 0; weft_driver_at(i); i++)
        if (strcmp(weft_driver_at(i)->name, name) == 0)
            return weft_driver_at(i);
    return NULL;
}

const char *weft_driver_name(const weft_driver *driver)
{
    return driver->name;
}

void weft_driver_library(const weft_driver *driver, char *out, size_t room)
{
    out[0] = 0;
    if (driver->tell_library)
        driver->tell_library(out, room);
}

const char *weft_driver_brief(const weft_driver *driver)
{
    return driver->brief;
}
