/* Resolves slice names on the rows of a fleet, and looks up memory and price where a row does not
 * state them. */
#include "scheduler/input/input.h"

#include "base/slice_name.h"

#include <stdio.h>
#include <string.h>

uint32_t weft_fleet__mig_clients_max(const weft_mig_profile *mig)
{
    return WEFT_MPS_CLIENTS_MAX * mig->gpcs / mig->of_gpcs;
}

uint64_t weft_fleet__mem(const weft_fleet_device *row)
{
    const weft_device_type *type = weft_device_type_find(row->type);
    return row->mem_bytes || !type ? row->mem_bytes : type->mem_bytes;
}

double weft_fleet_listed_price(const weft_fleet_device *row, double price_per_hour)
{
    return price_per_hour * (weft_device_type_is_cpu(row->type) ? row->cores : 1);
}

double weft_fleet__price(const weft_fleet_device *row)
{
    const weft_device_type *type = weft_device_type_find(row->type);
    return row->price_per_hour > 0 || !type ? row->price_per_hour
                                            : weft_fleet_listed_price(row, type->price_per_hour);
}

const weft_fleet_device *weft_fleet__row(const weft_fleet *fleet, const char *type)
{
    for (size_t i = 0; i < fleet->n_device; i++)
        if (strcmp(fleet->device[i].type, type) == 0)
            return &fleet->device[i];
    return NULL;
}

/* -- Slice names ------------------------------------------------------------------------------ */

static bool resolve_cores(const weft_fleet_device *row, weft_fleet_slice *spec, const char **why)
{
    *why = "a CPU slice is named by its cores, such as 2core";
    if (!weft_slicename_cores(spec->name, WEFT_FLEET_CORES_MAX, &spec->cores))
        return false;
    bool found = row->n_slice == 0 && spec->cores == row->cores;
    for (size_t i = 0; i < row->n_slice; i++)
        found = found || row->slice_cores[i] == spec->cores;
    *why = "the fleet has no slice of that many cores";
    if (!found)
        return false;
    spec->kind = WEFT_SLICE_CORES;
    spec->share = spec->weight = (double)spec->cores / row->cores;
    spec->mem_bytes = weft_fleet__mem(row);
    return true;
}

static bool resolve_percent(const weft_fleet_device *row, const weft_slice_name *parts,
                            weft_fleet_slice *spec, const char **why)
{
    *why = "an MPS share is a whole percentage from 1% to 100%";
    if (!parts->percent)
        return false;
    spec->percent = parts->percent;
    *why = "the fleet does not allow MPS on this device";
    if (!row->mps)
        return false;
    spec->kind = WEFT_SLICE_MPS;
    spec->share = spec->weight = spec->percent / 100.0;
    spec->mem_bytes = weft_fleet__mem(row);
    return true;
}

bool weft_fleet_slice__is_nested(const weft_fleet_slice *spec)
{
    return spec->kind == WEFT_SLICE_MIG && spec->percent > 0;
}

/* Resolves an instance, "3g.40gb", or a share of one, "3g.40gb/50%", for which percent becomes 50.
 */
static bool resolve_mig(const weft_fleet_device *row, const weft_slice_name *parts,
                        weft_fleet_slice *spec, const char **why)
{
    const weft_device_type *type = weft_device_type_find(row->type);
    double part = 1;
    if (parts->share > 0) {
        *why = "an MPS share of an instance is a whole percentage from 1% to 100%";
        if (!parts->percent)
            return false;
        spec->percent = parts->percent;
        *why = "the fleet does not allow MPS on this device";
        if (!row->mps)
            return false;
        part = spec->percent / 100.0;
    }
    spec->mig = weft_device_type_mig(type, parts->profile);
    *why = "the device has no MIG profile of that name";
    if (!spec->mig)
        return false;
    *why = "the fleet does not allow MIG on this device";
    if (!row->mig)
        return false;
    spec->kind = WEFT_SLICE_MIG;
    spec->share = spec->mig->share * part;
    spec->weight = (double)spec->mig->gpcs / spec->mig->of_gpcs * part;
    spec->mem_bytes = spec->mig->mem_bytes;
    return true;
}

bool weft_fleet_slice__resolve(const weft_fleet_device *row, const char *name,
                               weft_fleet_slice *out, const char **why)
{
    weft_fleet_slice spec = {0};
    weft_slice_name parts;
    *why = "the slice name is too long";
    if (strlen(name) >= sizeof spec.name)
        return false;
    snprintf(spec.name, sizeof spec.name, "%s", name);
    if (weft_device_type_is_cpu(row->type)) {
        if (!resolve_cores(row, &spec, why))
            return false;
    } else if (name[0] == 0) {
        spec.share = spec.weight = 1;
        spec.mem_bytes = weft_fleet__mem(row);
    } else {
        *why = strchr(name, '/')
                   ? "an MPS share of an instance is a whole percentage from 1% to 100%"
                   : "an MPS share is a whole percentage from 1% to 100%";
        if (!weft_slicename_parse(name, &parts))
            return false;
        bool found = parts.profile[0] || parts.share == 0
                         ? resolve_mig(row, &parts, &spec, why)
                         : resolve_percent(row, &parts, &spec, why);
        if (!found)
            return false;
    }
    *out = spec;
    return true;
}
