/* Reads deployment maps of ParvaGPU (SC'24) as plans.
 *
 *   Num instance,Num GPU,Model,Placement,Instance size,Batch size,Num proc
 *   0,0,resnet50,4,3,64,2
 *
 * The columns are node, GPU of the node, model, start slot, GPCs, batch and MPS processes; GPUs are
 * A100 80 GB. Published maps have overlapping instances, because ParvaGPU tested start slots only;
 * they are read without change, and the checker reports the overlaps.
 *
 * A map has no rates. The rate of a model is split over its instances in proportion to their
 * capacity; if any split respects all capacities, this one does. */
#include "scheduler/input/input.h"
#include "scheduler/plan/plan.h"

#include "base/csv.h"
#include "base/num.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char header[] =
    "Num instance,Num GPU,Model,Placement,Instance size,Batch size,Num proc";

enum { FIELDS = 7, NODE_GPUS_MAX = 1 << 20 };

typedef struct map_row {
    uint32_t node, gpu;
    weft_placement place;
} map_row;

typedef struct reader {
    weft_csv *csv;
    weft_arena *arena;
    weft_diag *diag;
    WEFT_VEC(map_row) rows;
} reader;

bool weft_parvagpu_detect(const char *text, size_t len)
{
    return len >= sizeof header - 1 && memcmp(text, header, sizeof header - 1) == 0;
}

static weft_err read_count(const reader *rd, const char *text, const char *name, int64_t lo,
                           int64_t hi, uint32_t *out)
{
    int64_t x;
    if (!weft_parse_i64(text, &x) || x < lo || x > hi)
        return weft_diag_error(rd->diag, WEFT_ERR_INPUT, rd->csv->where,
                               "%s: '%s' is not a number from %lld to %lld", name, text,
                               (long long)lo, (long long)hi);
    *out = (uint32_t)x;
    return WEFT_ERR_OK;
}

static weft_err read_row(reader *rd)
{
    static const char *const slice_of[8] = {NULL,      "1g.10gb", "2g.20gb", "3g.40gb",
                                            "4g.40gb", NULL,      NULL,      "7g.80gb"};
    const char *const *field = rd->csv->field;
    map_row row = {.place = {.type = "a100-80"}};
    uint32_t start = 0, size = 0;
    if (rd->csv->n_field != FIELDS)
        return weft_diag_error(rd->diag, WEFT_ERR_INPUT, rd->csv->where, "line must have 7 fields");
    WEFT_TRY(read_count(rd, field[0], "Num instance", 0, NODE_GPUS_MAX, &row.node));
    WEFT_TRY(read_count(rd, field[1], "Num GPU", 0, NODE_GPUS_MAX, &row.gpu));
    WEFT_TRY(read_count(rd, field[3], "Placement", 0, 31, &start));
    WEFT_TRY(read_count(rd, field[4], "Instance size", 1, 7, &size));
    WEFT_TRY(read_count(rd, field[5], "Batch size", 1, 1 << 20, &row.place.batch));
    WEFT_TRY(read_count(rd, field[6], "Num proc", 1, 1 << 10, &row.place.procs));
    if (!weft_set_name_valid(field[2]))
        return weft_diag_error(rd->diag, WEFT_ERR_INPUT, rd->csv->where,
                               "'%.128s' is not a model name", field[2]);
    if (!slice_of[size])
        return weft_diag_error(rd->diag, WEFT_ERR_INPUT, rd->csv->where,
                               "Instance size: %u, must be 1, 2, 3, 4 or 7", size);
    if (rd->rows.len == WEFT_PLAN_PLACEMENTS_MAX)
        return weft_diag_error(rd->diag, WEFT_ERR_INPUT, rd->csv->where,
                               "the map has more than 1048576 instances");
    row.place.model = weft_arena_strdup(rd->arena, field[2]);
    row.place.slice = slice_of[size];
    row.place.mig_start = (int32_t)start;
    WEFT_VEC_PUSH(rd->arena, &rd->rows, row);
    return WEFT_ERR_OK;
}

static int compare_rows(const void *a, const void *b)
{
    const map_row *p = a, *q = b;
    if (p->node != q->node)
        return p->node < q->node ? -1 : 1;
    if (p->gpu != q->gpu)
        return p->gpu < q->gpu ? -1 : 1;
    if (p->place.mig_start != q->place.mig_start)
        return p->place.mig_start < q->place.mig_start ? -1 : 1;
    int order = strcmp(p->place.model, q->place.model);
    return order ? order : strcmp(p->place.slice, q->place.slice);
}

/* Numbers devices in the order of node and GPU, and the slices of each device from 0. */
static void make_plan(reader *rd, weft_plan *plan)
{
    const map_row *row = rd->rows.at;
    uint32_t device = 0, slice = 0;
    plan->n = rd->rows.len;
    plan->at = weft_arena_array(rd->arena, plan->n, sizeof *plan->at);
    qsort(rd->rows.at, rd->rows.len, sizeof *rd->rows.at, compare_rows);
    for (size_t i = 0; i < plan->n; i++) {
        bool next = i > 0 && (row[i].node != row[i - 1].node || row[i].gpu != row[i - 1].gpu);
        device += next;
        slice = i == 0 || next ? 0 : slice + 1;
        plan->at[i] = row[i].place;
        plan->at[i].device = device;
        plan->at[i].slice_id = slice;
    }
}

/* Splits the rate of each model by capacity. Models that are not in the problem get rate 0. */
static void spread_rates(weft_plan *plan, const weft_problem *problem, weft_arena *arena)
{
    const weft_demands *demands = problem->demands;
    weft_demand_index index = weft_demands__index(demands, arena);
    double *sum = weft_arena_array(arena, demands->n, sizeof *sum);
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < plan->n; i++) {
            weft_placement *p = &plan->at[i];
            uint32_t d = weft_demands__find(&index, p->model);
            if (d == UINT32_MAX)
                continue;
            if (pass == 0)
                sum[d] += p->capacity_per_s;
            else if (sum[d] > 0)
                p->rate_per_s = demands->at[d].rate_per_s * p->capacity_per_s / sum[d];
        }
}

static weft_err read_map(reader *rd)
{
    bool more;
    WEFT_TRY(weft_csv_next(rd->csv, rd->diag, &more));
    if (!more || strcmp(rd->csv->raw, header) != 0)
        return weft_diag_error(rd->diag, WEFT_ERR_INPUT, rd->csv->where, "header must be '%s'",
                               header);
    for (;;) {
        WEFT_TRY(weft_csv_next(rd->csv, rd->diag, &more));
        if (!more)
            break;
        WEFT_TRY(read_row(rd));
    }
    if (rd->rows.len == 0)
        return weft_diag_error(rd->diag, WEFT_ERR_INPUT, (weft_where){.file = rd->csv->where.file},
                               "the map has no instance");
    return WEFT_ERR_OK;
}

weft_err weft_plan_from_parvagpu(const char *text, size_t len, const char *file,
                                 const weft_problem *problem, weft_arena *arena, weft_diag *diag,
                                 weft_plan *out)
{
    weft_csv *csv = weft_csv_create(text, len, (weft_where){.file = file}, (weft_csv_limits){0});
    reader rd = {.csv = csv, .arena = arena, .diag = diag};
    weft_plan plan = {.policy = "parvagpu", .rules = problem->rules, .goal = WEFT_GOAL_COST};
    weft_err err = csv ? read_map(&rd) : WEFT_ERR_NOMEM;
    weft_csv_destroy(csv);
    WEFT_TRY(err);
    make_plan(&rd, &plan);
    weft_plan_derive(&plan, problem, arena); /* the rates depend on the capacities */
    spread_rates(&plan, problem, arena);
    weft_plan_derive(&plan, problem, arena);
    *out = plan;
    return WEFT_ERR_OK;
}
