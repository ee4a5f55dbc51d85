/* Opening an engine by the name of its driver. This file is above the table of drivers; the part of
 * an engine that drivers use (engine.c) is below them. */
#include "runtime/driver_int.h"

#include <string.h>

/* Name of the driver for a target: "cpu", "null", "sm_80,sm_90". A bundle without target (made by a
 * test) runs on the CPU. */
static const char *driver_of_target(const char *target)
{
    if (!target || !*target)
        return "cpu";
    return strncmp(target, "sm_", 3) == 0 ? "cuda" : target;
}

weft_err weft_engine_open_bundle(weft_bundle *bundle, const weft_engine_options *options,
                                 weft_diag *diag, weft_engine **out)
{
    const char *name =
        options && options->driver ? options->driver : driver_of_target(bundle->target);
    const weft_driver *driver = weft_driver_find(name);
    if (!driver)
        return weft_diag_error(diag, WEFT_ERR_NODEV, (weft_where){0}, "no driver is named %s",
                               name);
    return weft_engine__create(bundle, driver, options, diag, out);
}

/* Takes the bundle over. */
static weft_err open_owned(weft_bundle *bundle, const weft_engine_options *options, weft_diag *diag,
                           weft_engine **out)
{
    weft_err err = weft_engine_open_bundle(bundle, options, diag, out);
    if (err != WEFT_ERR_OK) {
        weft_bundle_close(bundle);
        return err;
    }
    (*out)->owns_bundle = true;
    return WEFT_ERR_OK;
}

weft_err weft_engine_open(const char *bundle_path, const weft_engine_options *options,
                          weft_diag *diag, weft_engine **out)
{
    weft_bundle *bundle;
    WEFT_TRY(weft_bundle_open(bundle_path, diag, &bundle));
    return open_owned(bundle, options, diag, out);
}

weft_err weft_engine_open_fd(int fd, const char *name, const weft_engine_options *options,
                             weft_diag *diag, weft_engine **out)
{
    weft_bundle *bundle;
    WEFT_TRY(weft_bundle_open_fd(fd, name, diag, &bundle));
    return open_owned(bundle, options, diag, out);
}
