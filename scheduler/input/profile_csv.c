/* Reads measured profiles, which are CSV files (base/csv.h has the syntax) in one of two layouts:
 *
 * weft      The header names the columns, in any order. Required: device, slice, batch and time_us.
 *           Optional: procs (default 1), throughput_per_s, creq, mreq_bytes, bandwidth_gbps,
 *           energy_j, expected_error (default 0.05), time_p5_us and time_p95_us (its 90 % band;
 *           default: as expected_error implies), source (default "measured"), use over time
 *           (base/use_histogram.h; empty: not known), idle_us (time_us with the rest of the device
 *           idle; empty: not known) and host_us, what a request costs besides its execution (the
 *           largest of all rows holds).
 * parvagpu  The header is `Mig instance,Batch size,Workload Number,Throughput,Latency`: GPCs of an
 *           A100 80 GB, batch, MPS processes in the instance, inferences per second of one process,
 *           seconds per batch. A row with throughput 0 ran out of memory or was not measured, and
 *           is skipped. The layout has no memory column: mreq_bytes stays 0, not known, so that a
 *           measured point always fits. */
#include "scheduler/input/input.h"

#include "base/csv.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/num.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CSV_BYTES_MAX = 16 << 20,
    CSV_POINTS_MAX = 10000,
};

typedef enum column {
    COL_DEVICE,
    COL_SLICE,
    COL_BATCH,
    COL_PROCS,
    COL_TIME,
    COL_THROUGHPUT,
    COL_CREQ,
    COL_MREQ,
    COL_BANDWIDTH,
    COL_ENERGY,
    COL_ERROR,
    COL_P5,
    COL_P95,
    COL_SOURCE,
    COL_HOST,
    COL_USE,
    COL_IDLE,
    COL_COUNT
} column;

static const char *const column_name[COL_COUNT] = {
    [COL_DEVICE] = "device",
    [COL_SLICE] = "slice",
    [COL_BATCH] = "batch",
    [COL_PROCS] = "procs",
    [COL_TIME] = "time_us",
    [COL_THROUGHPUT] = "throughput_per_s",
    [COL_CREQ] = "creq",
    [COL_MREQ] = "mreq_bytes",
    [COL_BANDWIDTH] = "bandwidth_gbps",
    [COL_ENERGY] = "energy_j",
    [COL_ERROR] = "expected_error",
    [COL_P5] = "time_p5_us",
    [COL_P95] = "time_p95_us",
    [COL_SOURCE] = "source",
    [COL_HOST] = "host_us",
    [COL_USE] = "use",
    [COL_IDLE] = "idle_us",
};

static const char parvagpu_header[] = "Mig instance,Batch size,Workload Number,Throughput,Latency";

typedef struct profile_reader {
    weft_csv *csv;
    weft_arena *arena;
    weft_diag *diag;
    WEFT_VEC(weft_profile_point) points;
    double host_us;
    weft_map *seen; /* hashes of points */
} profile_reader;

/* -- Fields ----------------------------------------------------------------------------------- */

static weft_err read_number(const profile_reader *in, const char *text, const char *name,
                            double *out)
{
    double x;
    if (!weft_parse_f64(text, &x) || !isfinite(x) || x < 0)
        return weft_diag_error(in->diag, WEFT_ERR_INPUT, in->csv->where,
                               "%s: '%s' is not a number of at least 0", name, text);
    *out = x;
    return WEFT_ERR_OK;
}

static weft_err read_count(const profile_reader *in, const char *text, const char *name,
                           uint32_t *out)
{
    int64_t x;
    if (!weft_parse_i64(text, &x) || x < 1 || x > 1 << 20)
        return weft_diag_error(in->diag, WEFT_ERR_INPUT, in->csv->where,
                               "%s: '%s' is not a count from 1 to 1048576", name, text);
    *out = (uint32_t)x;
    return WEFT_ERR_OK;
}

static weft_err read_word(const profile_reader *in, const char *text, const char *name, size_t size,
                          char *out)
{
    if (strlen(text) >= size)
        return weft_diag_error(in->diag, WEFT_ERR_INPUT, in->csv->where,
                               "%s: '%s' has more than %zu bytes", name, text, size - 1);
    memcpy(out, text, strlen(text) + 1);
    return WEFT_ERR_OK;
}

static weft_err read_use(const profile_reader *in, const char *text, weft_usehist *out)
{
    if (!weft_usehist_parse(text, out))
        return weft_diag_error(
            in->diag, WEFT_ERR_INPUT, in->csv->where,
            "use: '%.40s' is not a list such as '00:100 52:155' with levels 0 to "
            "7 and parts that sum to 255",
            text);
    return WEFT_ERR_OK;
}

static bool is_same_key(const weft_profile_point *p, const weft_profile_point *q)
{
    return p->batch == q->batch && p->procs == q->procs && strcmp(p->slice, q->slice) == 0 &&
           strcmp(p->device, q->device) == 0;
}

/* Whether a point with the same device, slice, batch and processes was read before. A point whose
 * hash is known is compared with all points, in case the hash is a collision. */
static bool is_duplicate(profile_reader *in, const weft_profile_point *point)
{
    uint64_t hash = weft_hash64(point->device, strlen(point->device), point->batch), first;
    hash = weft_hash64(point->slice, strlen(point->slice), weft_hash_mix(hash, point->procs));
    if (!in->seen)
        in->seen = weft_map_create(in->arena);
    if (!weft_map_get(in->seen, hash, &first)) {
        weft_map_put(in->seen, hash, in->points.len);
        return false;
    }
    for (uint32_t i = 0; i < in->points.len; i++)
        if (is_same_key(&in->points.at[i], point))
            return true;
    return false;
}

static weft_err add_point(profile_reader *in, weft_profile_point *point)
{
    if (in->points.len == CSV_POINTS_MAX)
        return weft_diag_error(in->diag, WEFT_ERR_INPUT, in->csv->where,
                               "profile has more than 10000 points");
    const weft_device_type *type = weft_device_type_named(point->device);
    if (!type)
        return weft_diag_error(in->diag, WEFT_ERR_INPUT, in->csv->where,
                               "unknown device '%s'; `weft list gpus` shows the known ones",
                               point->device);
    snprintf(point->device, sizeof point->device, "%s", type->name);
    if (!weft_device_type_is_cpu(point->device)) {
        weft_fleet_device any = {.type = type->name, .count = 1, .mig = true, .mps = true};
        weft_fleet_slice spec;
        const char *why;
        if (!weft_fleet_slice__resolve(&any, point->slice, &spec, &why))
            return weft_diag_error(in->diag, WEFT_ERR_INPUT, in->csv->where, "slice '%s': %s",
                                   point->slice, why);
        point->share = spec.share;
    }
    if (is_duplicate(in, point))
        return weft_diag_error(in->diag, WEFT_ERR_INPUT, in->csv->where,
                               "device, slice, batch and procs appear twice");
    WEFT_VEC_PUSH(in->arena, &in->points, *point);
    return WEFT_ERR_OK;
}

/* -- Layout weft ------------------------------------------------------------------------------ */

static weft_err read_columns(profile_reader *in, column *out)
{
    uint32_t seen = 0;
    for (size_t i = 0; i < in->csv->n_field; i++) {
        column c = 0;
        while (c < COL_COUNT && strcmp(in->csv->field[i], column_name[c]) != 0)
            c++;
        if (c == COL_COUNT)
            return weft_diag_error(in->diag, WEFT_ERR_INPUT, in->csv->where, "unknown column '%s'",
                                   in->csv->field[i]);
        if (seen & 1u << c)
            return weft_diag_error(in->diag, WEFT_ERR_INPUT, in->csv->where,
                                   "column '%s' appears twice", in->csv->field[i]);
        seen |= 1u << c;
        out[i] = c;
    }
    static const column needed[] = {COL_DEVICE, COL_SLICE, COL_BATCH, COL_TIME};
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
        if (!(seen & 1u << needed[i]))
            return weft_diag_error(in->diag, WEFT_ERR_INPUT, in->csv->where,
                                   "column '%s' is missing", column_name[needed[i]]);
    return WEFT_ERR_OK;
}

static weft_err read_field(const profile_reader *in, column c, const char *text,
                           weft_profile_point *p)
{
    const char *name = column_name[c];
    double x;
    switch (c) {
    case COL_DEVICE:
        return read_word(in, text, name, sizeof p->device, p->device);
    case COL_SLICE:
        return read_word(in, text, name, sizeof p->slice, p->slice);
    case COL_SOURCE:
        return read_word(in, text, name, sizeof p->cost.source, p->cost.source);
    case COL_BATCH:
        return read_count(in, text, name, &p->batch);
    case COL_PROCS:
        return read_count(in, text, name, &p->procs);
    case COL_MREQ:
        WEFT_TRY(read_number(in, text, name, &x));
        p->cost.mreq_bytes = x < 9e18 ? (uint64_t)x : UINT64_MAX;
        return WEFT_ERR_OK;
    case COL_TIME:
        return read_number(in, text, name, &p->cost.time_us);
    case COL_THROUGHPUT:
        return read_number(in, text, name, &p->throughput_per_s);
    case COL_CREQ:
        return read_number(in, text, name, &p->cost.creq);
    case COL_BANDWIDTH:
        return read_number(in, text, name, &p->cost.bandwidth_gbps);
    case COL_ENERGY:
        return read_number(in, text, name, &p->cost.energy_j);
    case COL_ERROR:
        return read_number(in, text, name, &p->cost.expected_error);
    case COL_P5:
        return read_number(in, text, name, &p->cost.time_p5_us);
    case COL_P95:
        return read_number(in, text, name, &p->cost.time_p95_us);
    case COL_IDLE:
        return text[0] ? read_number(in, text, name, &p->idle_us) : WEFT_ERR_OK;
    case COL_USE:
        return text[0] ? read_use(in, text, &p->use) : WEFT_ERR_OK;
    case COL_HOST: /* of the profile, not of a point */
    case COL_COUNT:
        break;
    }
    return WEFT_ERR_BUG;
}

static weft_err load_weft(profile_reader *in)
{
    column columns[COL_COUNT];
    size_t n_column;
    bool more;
    WEFT_TRY(weft_csv_next(in->csv, in->diag, &more));
    if (!more)
        return weft_diag_error(in->diag, WEFT_ERR_INPUT, in->csv->where, "profile is empty");
    WEFT_TRY(read_columns(in, columns));
    n_column = in->csv->n_field;
    for (;;) {
        WEFT_TRY(weft_csv_next(in->csv, in->diag, &more));
        if (!more)
            return WEFT_ERR_OK;
        if (in->csv->n_field != n_column)
            return weft_diag_error(in->diag, WEFT_ERR_INPUT, in->csv->where,
                                   "line has %zu fields, the header has %zu", in->csv->n_field,
                                   n_column);
        weft_profile_point p = {.procs = 1, .cost = {.expected_error = 0.05, .source = "measured"}};
        double host_us = 0;
        for (size_t i = 0; i < n_column; i++)
            WEFT_TRY(columns[i] == COL_HOST
                         ? read_number(in, in->csv->field[i], "host_us", &host_us)
                         : read_field(in, columns[i], in->csv->field[i], &p));
        in->host_us = fmax(in->host_us, host_us);
        if (!(p.cost.time_us > 0))
            return weft_diag_error(in->diag, WEFT_ERR_INPUT, in->csv->where,
                                   "time_us: must be greater than 0");
        if (p.idle_us > p.cost.time_us)
            return weft_diag_error(in->diag, WEFT_ERR_INPUT, in->csv->where,
                                   "idle_us: %g is more than time_us %g", p.idle_us,
                                   p.cost.time_us);
        WEFT_TRY(add_point(in, &p));
    }
}

/* -- Layout parvagpu -------------------------------------------------------------------------- */

static weft_err read_parvagpu_row(profile_reader *in)
{
    static const char *const slice_of[8] = {NULL,      "1g.10gb", "2g.20gb", "3g.40gb",
                                            "4g.40gb", NULL,      NULL,      "7g.80gb"};
    weft_profile_point p = {.device = "a100-80",
                            .cost = {.expected_error = 0.05, .source = "measured"}};
    uint32_t gpcs;
    double per_process, seconds;
    if (in->csv->n_field != 5)
        return weft_diag_error(in->diag, WEFT_ERR_INPUT, in->csv->where,
                               "line has %zu fields, not 5", in->csv->n_field);
    WEFT_TRY(read_count(in, in->csv->field[0], "Mig instance", &gpcs));
    WEFT_TRY(read_count(in, in->csv->field[1], "Batch size", &p.batch));
    WEFT_TRY(read_count(in, in->csv->field[2], "Workload Number", &p.procs));
    WEFT_TRY(read_number(in, in->csv->field[3], "Throughput", &per_process));
    WEFT_TRY(read_number(in, in->csv->field[4], "Latency", &seconds));
    if (gpcs > 7 || !slice_of[gpcs])
        return weft_diag_error(in->diag, WEFT_ERR_INPUT, in->csv->where,
                               "Mig instance: %u, must be 1, 2, 3, 4 or 7", gpcs);
    if (!(per_process > 0) || !(seconds > 0))
        return WEFT_ERR_OK; /* the process ran out of memory, or the point was not measured */
    snprintf(p.slice, sizeof p.slice, "%s", slice_of[gpcs]);
    p.cost.time_us = seconds * 1e6;
    p.throughput_per_s = per_process * p.procs;
    return add_point(in, &p);
}

static weft_err load_parvagpu(profile_reader *in)
{
    bool more;
    WEFT_TRY(weft_csv_next(in->csv, in->diag, &more));
    if (!more || strcmp(in->csv->raw, parvagpu_header) != 0)
        return weft_diag_error(in->diag, WEFT_ERR_INPUT, in->csv->where, "header must be '%s'",
                               parvagpu_header);
    for (;;) {
        WEFT_TRY(weft_csv_next(in->csv, in->diag, &more));
        if (!more)
            return WEFT_ERR_OK;
        WEFT_TRY(read_parvagpu_row(in));
    }
}

weft_err weft_profile_load(const char *path, const char *layout, const char *model,
                           weft_arena *arena, weft_diag *diag, weft_profile *out)
{
    char *text;
    size_t len;
    bool weft = strcmp(layout, "weft") == 0;
    if (!weft && strcmp(layout, "parvagpu") != 0)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = path, .item = model},
                               "profile layout '%s' must be weft or parvagpu", layout);
    WEFT_TRY(weft_file_read(path, CSV_BYTES_MAX, diag, &text, &len));
    weft_where where = {.file = path, .item = model};
    profile_reader in = {.csv = weft_csv_create(text, len, where, (weft_csv_limits){0}),
                         .arena = arena,
                         .diag = diag};
    weft_err err = !in.csv ? WEFT_ERR_NOMEM : weft ? load_weft(&in) : load_parvagpu(&in);
    weft_csv_destroy(in.csv);
    free(text);
    if (err != WEFT_ERR_OK)
        return err;
    if (in.points.len == 0)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = path, .item = model},
                               "profile has no usable point");
    *out = (weft_profile){.point = in.points.at, .n = in.points.len, .host_us = in.host_us};
    return WEFT_ERR_OK;
}
