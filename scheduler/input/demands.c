/* Makes demands of models, checks them, and indexes them by model name. */
#include "scheduler/input/input.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

weft_demand weft_demand_of(const weft_set_model *model, weft_profile profile)
{
    return (weft_demand){.model = model->name,
                         .slo_us = model->slo_us,
                         .rate_per_s = model->rate_per_s,
                         .profile = profile,
                         .admit_by_slo = model->admit_by_slo,
                         .spread = model->spread};
}

/* -- Check ------------------------------------------------------------------------------------ */

/* A name that appears twice; NULL: none does, or *err tells what went wrong. */
static const char *find_duplicate(const weft_demands *demands, weft_diag *diag, weft_err *err)
{
    const char **name = malloc((demands->n + 1) * sizeof *name), *found = NULL;
    if (!name) {
        *err = weft_diag_error(diag, WEFT_ERR_NOMEM, (weft_where){0}, "out of memory");
        return NULL;
    }
    for (size_t i = 0; i < demands->n; i++)
        name[i] = demands->at[i].model;
    qsort(name, demands->n, sizeof *name, weft_str_order);
    for (size_t i = 1; i < demands->n && !found; i++)
        if (strcmp(name[i - 1], name[i]) == 0)
            found = name[i];
    free(name);
    return found;
}

weft_err weft_demands__check(const weft_demands *demands, weft_diag *diag)
{
    weft_err err = WEFT_ERR_OK;
    for (size_t i = 0; i < demands->n; i++) {
        const weft_demand *d = &demands->at[i];
        weft_where where = {.item = d->model};
        if (!weft_family_name_valid(d->model))
            return weft_diag_error(diag, WEFT_ERR_INPUT, where, "model name is not usable");
        if (!isfinite(d->slo_us) || d->slo_us < 0 || !isfinite(d->rate_per_s) || d->rate_per_s < 0)
            return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                                   "slo %g us and rate %g/s must be numbers of at least 0",
                                   d->slo_us, d->rate_per_s);
    }
    const char *twice = find_duplicate(demands, diag, &err);
    if (twice)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = twice},
                               "model appears twice");
    return err;
}

/* -- Index by name ---------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b, void *demands)
{
    const weft_demand *at = demands;
    return strcmp(at[*(const uint32_t *)a].model, at[*(const uint32_t *)b].model);
}

weft_demand_index weft_demands__index(const weft_demands *demands, weft_arena *arena)
{
    uint32_t *order = weft_arena_array(arena, demands->n, sizeof *order);
    for (size_t i = 0; i < demands->n; i++)
        order[i] = (uint32_t)i;
    if (demands->n > 0)
        qsort_r(order, demands->n, sizeof *order, compare_names, (void *)demands->at);
    return (weft_demand_index){.demands = demands, .by_name = order};
}

uint32_t weft_demands__find(const weft_demand_index *index, const char *model)
{
    size_t lo = 0, hi = index->demands->n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        int order = strcmp(model, index->demands->at[index->by_name[mid]].model);
        if (order == 0)
            return index->by_name[mid];
        if (order < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return UINT32_MAX;
}

static const char *model_at(size_t i, const void *user)
{
    const weft_demands *demands = user;
    return i < demands->n ? demands->at[i].model : NULL;
}

const char *weft_demands_say_known(const weft_demands *demands, const char *model,
                                   char buf[WEFT_NEAREST_BYTES_MAX])
{
    return weft_nearest_say(model, model_at, demands, buf);
}
