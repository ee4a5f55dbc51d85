/* Reads fleet files: the devices, how each may be split, and what it costs.
 *
 *   devices:
 *     - type: cpu          # a name of devices.def; no type may appear twice
 *       count: 1
 *       cores: 2           # CPU only, required
 *       slices: [1, 1]     # CPU only: cores of each slice; default one slice of all cores
 *     - type: h100
 *       count: 2
 *       price: 2.99        # of one device, dollars an hour; default: the device table
 *       mem: 80GiB         # default: the device table
 *       per_node: 8        # devices of a node, a rack and a zone, each a multiple of the one
 * before; per_rack: 32       #   default: the fleet does not say per_zone: 128 mig: true          #
 * may be split into MIG instances mps: true          # may be split into MPS shares */
#include "scheduler/input/input.h"
#include "scheduler/input/yaml_int.h"

#include "base/num.h"

#include <math.h>
#include <string.h>

enum { ROWS_MAX = 64 };

typedef struct raw_device {
    char *type, *mem;
    uint32_t count, cores;
    uint32_t *slices;
    uint32_t n_slices;
    double price;
    uint32_t per_node, per_rack, per_zone;
    int mig, mps;
} raw_device;

typedef struct raw_fleet {
    raw_device *devices;
    uint32_t n_devices;
} raw_fleet;

#define OPT (CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL)

/* libcyaml's boolean type reads any word but a few as true; an enumeration accepts only these. */
static const cyaml_strval_t bool_words[] = {{"false", 0}, {"true", 1}};

static const cyaml_schema_value_t slice_schema = {
    CYAML_VALUE_UINT(CYAML_FLAG_DEFAULT, uint32_t),
};

static const cyaml_schema_field_t device_fields[] = {
    CYAML_FIELD_STRING_PTR("type", CYAML_FLAG_POINTER, raw_device, type, 1, 32),
    CYAML_FIELD_UINT("count", CYAML_FLAG_DEFAULT, raw_device, count),
    CYAML_FIELD_UINT("cores", CYAML_FLAG_OPTIONAL, raw_device, cores),
    {.key = "slices",
     .data_offset = offsetof(raw_device, slices),
     .count_offset = offsetof(raw_device, n_slices),
     .count_size = sizeof(uint32_t),
     .value = {CYAML_VALUE_SEQUENCE(OPT, uint32_t, &slice_schema, 1, WEFT_FLEET_CORES_MAX)}},
    CYAML_FIELD_FLOAT("price", CYAML_FLAG_OPTIONAL, raw_device, price),
    CYAML_FIELD_UINT("per_node", CYAML_FLAG_OPTIONAL, raw_device, per_node),
    CYAML_FIELD_UINT("per_rack", CYAML_FLAG_OPTIONAL, raw_device, per_rack),
    CYAML_FIELD_UINT("per_zone", CYAML_FLAG_OPTIONAL, raw_device, per_zone),
    CYAML_FIELD_STRING_PTR("mem", OPT, raw_device, mem, 1, 32),
    CYAML_FIELD_ENUM("mig", CYAML_FLAG_OPTIONAL | CYAML_FLAG_STRICT, raw_device, mig, bool_words,
                     2),
    CYAML_FIELD_ENUM("mps", CYAML_FLAG_OPTIONAL | CYAML_FLAG_STRICT, raw_device, mps, bool_words,
                     2),
    CYAML_FIELD_END,
};

static const cyaml_schema_value_t device_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, raw_device, device_fields),
};

static const cyaml_schema_field_t fleet_fields[] = {
    {.key = "devices",
     .data_offset = offsetof(raw_fleet, devices),
     .count_offset = offsetof(raw_fleet, n_devices),
     .count_size = sizeof(uint32_t),
     .value = {CYAML_VALUE_SEQUENCE(CYAML_FLAG_POINTER, raw_device, &device_schema, 1, ROWS_MAX)}},
    CYAML_FIELD_END,
};

static const cyaml_schema_value_t fleet_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, raw_fleet, fleet_fields),
};

static weft_err check_cpu(const raw_device *raw, weft_where where, weft_diag *diag)
{
    uint64_t sum = 0;
    if (raw->cores < 1 || raw->cores > WEFT_FLEET_CORES_MAX)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                               "cores: a cpu must have 1 to 4096, not %u", raw->cores);
    if (raw->mig || raw->mps)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "a cpu supports neither MIG nor MPS");
    for (uint32_t i = 0; i < raw->n_slices; i++) {
        if (raw->slices[i] < 1)
            return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                                   "slices: slice %u has no cores, must have at least 1", i);
        sum += raw->slices[i];
    }
    if (sum > raw->cores)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                               "slices: %llu cores in total, the device has %u",
                               (unsigned long long)sum, raw->cores);
    return WEFT_ERR_OK;
}

/* Without per_node each device is a node. */
static weft_err read_domains(const raw_device *raw, weft_where where, weft_diag *diag,
                             uint32_t *out)
{
    uint32_t last = raw->per_node;
    out[WEFT_DOMAIN_NODE] = raw->per_node;
    out[WEFT_DOMAIN_RACK] = raw->per_rack;
    out[WEFT_DOMAIN_ZONE] = raw->per_zone;
    if (!last && (raw->per_rack || raw->per_zone))
        last = out[WEFT_DOMAIN_NODE] = 1;
    if (last > WEFT_LOCATION_GPU_MAX + 1)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "per_node: must be at most %d, not %u",
                               WEFT_LOCATION_GPU_MAX + 1, last);
    for (int d = WEFT_DOMAIN_RACK; d < WEFT_DOMAINS; d++) {
        if (out[d] && out[d] % last != 0)
            return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                                   "per_%s: %u is no multiple of %u, which the smaller domain has",
                                   weft_domain_name((weft_domain)d), out[d], last);
        last = out[d] ? out[d] : last;
    }
    return WEFT_ERR_OK;
}

static weft_err read_device(const raw_device *raw, weft_where where, weft_diag *diag,
                            weft_fleet_device *out)
{
    const weft_device_type *type = weft_device_type_named(raw->type);
    const char *near = type ? NULL : weft_device_type_near(raw->type);
    weft_fleet_device row = {.type = type ? type->name : raw->type,
                             .count = raw->count,
                             .cores = raw->cores,
                             .slice_cores = raw->slices,
                             .n_slice = raw->n_slices,
                             .mig = raw->mig != 0,
                             .mps = raw->mps != 0,
                             .price_per_hour = raw->price};
    if (!type)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                               "unknown device type%s%s%s; `weft list gpus` shows the known ones",
                               near ? ", did you mean " : "", near ? near : "", near ? "?" : "");
    if (row.mps && type->is_foreign)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "mps: %s has none", type->name);
    if (row.count < 1 || row.count > WEFT_FLEET_COUNT_MAX)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "count: must be 1 to 65536, not %u",
                               row.count);
    if (!isfinite(row.price_per_hour) || row.price_per_hour < 0 || row.price_per_hour > 1e6)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                               "price: must be 0 to 1000000 dollars an hour, not %g",
                               row.price_per_hour);
    if (raw->mem && (!weft_parse_bytes(raw->mem, &row.mem_bytes) || row.mem_bytes == 0))
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "mem: '%s' is not a size such as 80GiB",
                               raw->mem);
    WEFT_TRY(read_domains(raw, where, diag, row.per_domain));
    if (weft_device_type_is_cpu(row.type))
        WEFT_TRY(check_cpu(raw, where, diag));
    else if (raw->cores || raw->n_slices)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                               "only a cpu has the keys cores and slices");
    if (row.mig && type->mig_slots == 0)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "devices of this type have no MIG");
    *out = row;
    return WEFT_ERR_OK;
}

static weft_err read_fleet(weft_yaml *yaml, weft_arena *arena, weft_diag *diag, weft_fleet *out)
{
    void *loaded = NULL;
    WEFT_TRY(weft_yaml__load(yaml, &fleet_schema, arena, diag, &loaded));
    const raw_fleet *raw = loaded;
    const yaml_node_t *rows =
        weft_yaml__get(yaml, yaml_document_get_root_node(&yaml->doc), "devices");
    weft_fleet_device *device = weft_arena_array(arena, raw->n_devices, sizeof *device);
    for (size_t i = 0; i < raw->n_devices; i++) {
        weft_where where = {.file = yaml->file,
                            .item = raw->devices[i].type,
                            .line = weft_yaml__line(weft_yaml__at(yaml, rows, i))};
        WEFT_TRY(read_device(&raw->devices[i], where, diag, &device[i]));
        /* A placement names its device by type alone, so a type must belong to one row. */
        for (size_t j = 0; j < i; j++)
            if (strcmp(device[j].type, device[i].type) == 0)
                return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                                       "device type appears twice; merge the rows into one");
    }
    *out = (weft_fleet){
        .file = weft_arena_strdup(arena, yaml->file), .device = device, .n_device = raw->n_devices};
    return WEFT_ERR_OK;
}

weft_err weft_fleet_load(const char *path, weft_arena *arena, weft_diag *diag, weft_fleet *out)
{
    weft_yaml yaml;
    WEFT_TRY(weft_yaml__open(path, diag, &yaml));
    weft_err err = read_fleet(&yaml, arena, diag, out);
    weft_yaml__close(&yaml);
    return err;
}
