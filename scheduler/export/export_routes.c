/* The routes of a front: for each model the workers that serve it, each with its part of the
 * model's rate and an integer weight. Fronts differ in the largest weight that they take. */
#include "scheduler/export/export_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* A worker closes connections above its limit, 1024 of one address over each transport: those
     * of all its models, over both, stay below it. */
    CONNECTIONS_OF_WORKER = 2000,
    CONNECTIONS_MAX = 256
};

/* -- Rates ------------------------------------------------------------------------------------ */

const weft_demand *weft_export__demand(const export_ctx *ctx, const char *model)
{
    const weft_demands *d = ctx->o.demands;
    for (size_t i = 0; d && i < d->n; i++)
        if (strcmp(d->at[i].model, model) == 0)
            return &d->at[i];
    return NULL;
}

size_t weft_export__parts(const export_ctx *ctx, const weft_placement *p, export_part **out)
{
    const char *const *model;
    size_t n = weft_family_models(p->model, ctx->arena, &model);
    export_part *part = weft_arena_array(ctx->arena, n, sizeof *part);
    double all = 0;
    for (size_t i = 0; i < n; i++) {
        const weft_demand *d = weft_export__demand(ctx, model[i]);
        part[i] = (export_part){model[i], d ? d->rate_per_s : 0};
        all += part[i].rate_per_s;
    }
    for (size_t i = 0; i < n; i++)
        part[i].rate_per_s = p->rate_per_s * (all > 0 ? part[i].rate_per_s / all : 1.0 / (double)n);
    *out = part;
    return n;
}

static int order_shares(const void *a, const void *b)
{
    const export_share *p = a, *q = b;
    if (p->model != q->model)
        return p->model < q->model ? -1 : 1;
    return (p->worker > q->worker) - (p->worker < q->worker);
}

static int find_name(const void *name, const void *at)
{
    return strcmp(name, *(const char *const *)at);
}

/* All (model, worker) pairs with their rates and capacities, each once, by model and worker. */
static size_t list_shares(const export_ctx *ctx, export_share **out)
{
    WEFT_VEC(export_share) share = {0};
    for (uint32_t w = 0; w < ctx->n_worker; w++)
        for (uint32_t i = 0; i < ctx->worker[w].n; i++) {
            const weft_placement *p = ctx->worker[w].at[i];
            export_part *part;
            size_t n = weft_export__parts(ctx, p, &part);
            for (size_t k = 0; k < n; k++) {
                const char **at =
                    bsearch(part[k].model, ctx->model, ctx->n_model, sizeof *ctx->model, find_name);
                export_share one = {.model = (uint32_t)(at - ctx->model),
                                    .worker = w,
                                    .rate_per_s = part[k].rate_per_s,
                                    .capacity_per_s = p->capacity_per_s / (double)n};
                WEFT_VEC_PUSH(ctx->arena, &share, one);
            }
        }
    if (share.len > 0)
        qsort(share.at, share.len, sizeof *share.at, order_shares);
    size_t kept = 0;
    for (size_t i = 0; i < share.len; i++) {
        export_share *last = kept > 0 ? &share.at[kept - 1] : NULL;
        if (last && order_shares(last, &share.at[i]) == 0) {
            last->rate_per_s += share.at[i].rate_per_s;
            last->capacity_per_s += share.at[i].capacity_per_s;
        } else {
            share.at[kept++] = share.at[i];
        }
    }
    *out = share.at;
    return kept;
}

/* -- Weights ---------------------------------------------------------------------------------- */

static double weight_of(double rate, double largest, uint32_t scale)
{
    return fmax(1, round(rate / largest * scale)); /* rate * scale could overflow */
}

/* The largest relative error of the shares if the largest rate gets the weight `scale`. */
static double find_error(const double *rate, size_t n, double largest, uint32_t scale)
{
    double sum = 0, all = 0, error = 0;
    for (size_t i = 0; i < n; i++) {
        all += rate[i] / largest;
        sum += weight_of(rate[i], largest, scale);
    }
    for (size_t i = 0; i < n; i++)
        if (rate[i] / largest > 0) {
            double share = weight_of(rate[i], largest, scale) / sum;
            error = fmax(error, fabs(share * all / (rate[i] / largest) - 1));
        }
    return error;
}

enum { SCALES_TRIED = 256 };

double weft_export__weigh(const double *rate, size_t n, uint32_t weight_max, uint32_t *out_weight)
{
    double largest = 0, best = HUGE_VAL;
    uint32_t scale = weight_max;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, rate[i]);
    for (uint32_t s = weight_max; largest > 0 && s > 0 && s + SCALES_TRIED > weight_max && best > 0;
         s--) {
        double error = find_error(rate, n, largest, s);
        if (error < best) {
            best = error;
            scale = s;
        }
    }
    for (size_t i = 0; i < n; i++)
        out_weight[i] = largest > 0 ? (uint32_t)weight_of(rate[i], largest, scale) : 1;
    return largest > 0 ? best : 0;
}

/* -- Routes ----------------------------------------------------------------------------------- */

enum { WARN_PERCENT = 5 };

void weft_export__weigh_model(const export_ctx *ctx, const char *model, const double *rate,
                              size_t n, uint32_t weight_max, uint32_t *out_weight)
{
    double error = weft_export__weigh(rate, n, weight_max, out_weight);
    if (100 * error > WARN_PERCENT)
        weft_diag_warn(ctx->diag, (weft_where){.item = model},
                       "weights up to %u miss the plan's shares by up to %.0f %%", weight_max,
                       100 * error);
}

/* By rates, or by capacities where the plan gives the model no rate. */
static void set_rates(export_route *route)
{
    double all = 0;
    for (uint32_t i = 0; i < route->n; i++)
        all += route->at[i].rate_per_s;
    for (uint32_t i = 0; i < route->n && !(all > 0); i++)
        route->at[i].rate_per_s = route->at[i].capacity_per_s;
}

export_route *weft_export__routes(export_ctx *ctx)
{
    export_share *share;
    size_t n = list_shares(ctx, &share), at = 0;
    export_route *route = weft_arena_array(ctx->arena, ctx->n_model + 1, sizeof *route);
    for (uint32_t m = 0; m < ctx->n_model; m++) {
        size_t end = at;
        while (end < n && share[end].model == m)
            end++;
        route[m] = (export_route){ctx->model[m], &share[at], (uint32_t)(end - at)};
        at = end;
        set_rates(&route[m]);
    }
    return route;
}

void weft_export__weigh_route(const export_ctx *ctx, export_route *route, uint32_t weight_max)
{
    double *rate = weft_arena_array(ctx->arena, route->n, sizeof *rate);
    uint32_t *weight = weft_arena_array(ctx->arena, route->n, sizeof *weight);
    for (uint32_t i = 0; i < route->n; i++)
        rate[i] = route->at[i].rate_per_s;
    weft_export__weigh_model(ctx, route->model, rate, route->n, weight_max, weight);
    for (uint32_t i = 0; i < route->n; i++)
        route->at[i].weight = weight[i];
}

uint32_t weft_export__connections_of(const export_worker *worker)
{
    size_t n_model = worker->n_model ? worker->n_model : 1;
    size_t each = CONNECTIONS_OF_WORKER / n_model / 2;
    return each < 1 ? 1 : each > CONNECTIONS_MAX ? CONNECTIONS_MAX : (uint32_t)each;
}
