/* Apps: model-less queries, which name a task and may be answered by any model variant of it
 * (INFaaS, ATC'21).
 *
 * The rate of an app is served by its variants beside their own rates. Any split between variants
 * is allowed whose mean accuracy, weighted by requests, is at least the accuracy of the app. The
 * SLO of the app also holds for its variants. A policy that chooses variants itself
 * (WEFT_SPLIT_VARIANTS) sees the apps. For any other policy the most accurate variant is assigned
 * the whole rate, and variants without requests are left out. */
#include "scheduler/input/input.h"

#include <math.h>
#include <string.h>

bool weft_app__is_asked(const weft_set_app *app)
{
    return app->rate_per_s > 0;
}

uint32_t weft_app__best_variant(const weft_set_app *app)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < app->n_variant; i++) {
        const weft_set_variant *v = &app->variant[i], *b = &app->variant[best];
        if (v->accuracy > b->accuracy ||
            (v->accuracy >= b->accuracy && strcmp(v->model, b->model) < 0))
            best = i;
    }
    return best;
}

static weft_err check_app(const weft_problem *problem, size_t a, const weft_demand_index *index,
                          uint32_t *app_of, weft_diag *diag)
{
    const weft_set_app *app = &problem->app[a];
    weft_where where = {.item = app->name};
    double most = 0;
    if (!isfinite(app->rate_per_s) || app->rate_per_s < 0 || !isfinite(app->slo_us) ||
        app->slo_us < 0 || !isfinite(app->accuracy) || app->accuracy < 0)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                               "rate %g/s, slo %g us and accuracy %g must be numbers of at least 0",
                               app->rate_per_s, app->slo_us, app->accuracy);
    if (!weft_app__is_asked(app))
        return WEFT_ERR_OK;
    for (size_t i = 0; i < app->n_variant; i++) {
        uint32_t d = weft_demands__find(index, app->variant[i].model);
        if (d == UINT32_MAX)
            return weft_diag_error(diag, WEFT_ERR_INPUT, where, "variant '%s' is not a model",
                                   app->variant[i].model);
        if (app_of[d])
            return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                                   "variant '%s' also belongs to app '%s', which has a rate",
                                   app->variant[i].model, problem->app[app_of[d] - 1].name);
        app_of[d] = (uint32_t)a + 1;
        most = fmax(most, app->variant[i].accuracy);
    }
    if (most < app->accuracy)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                               "accuracy must be at least %g, the best variant has %g",
                               app->accuracy, most);
    return WEFT_ERR_OK;
}

weft_err weft_apps__index(const weft_problem *problem, weft_arena *arena, weft_diag *diag,
                          const uint32_t **out)
{
    uint32_t *app_of = weft_arena_array(arena, problem->demands->n + 1, sizeof *app_of);
    weft_demand_index index = weft_demands__index(problem->demands, arena);
    for (size_t a = 0; a < problem->n_app; a++)
        WEFT_TRY(check_app(problem, a, &index, app_of, diag));
    *out = app_of;
    return WEFT_ERR_OK;
}

weft_err weft_apps__resolve(const weft_problem *problem, bool assign, weft_arena *arena,
                            weft_diag *diag, weft_problem *out)
{
    const weft_demands *from = problem->demands;
    const uint32_t *app_of;
    bool any = false;
    *out = *problem;
    for (size_t a = 0; a < problem->n_app; a++)
        any = any || weft_app__is_asked(&problem->app[a]);
    if (!any)
        return WEFT_ERR_OK;
    WEFT_TRY(weft_apps__index(problem, arena, diag, &app_of));
    weft_demand *at = weft_arena_array(arena, from->n, sizeof *at);
    weft_demands *demands = weft_arena_alloc(arena, sizeof *demands);
    size_t n = 0;
    for (size_t i = 0; i < from->n; i++) {
        weft_demand d = from->at[i];
        const weft_set_app *app = app_of[i] ? &problem->app[app_of[i] - 1] : NULL;
        if (app && app->slo_us > 0 && (!(d.slo_us > 0) || app->slo_us < d.slo_us))
            d.slo_us = app->slo_us;
        if (app && assign) {
            bool best = strcmp(app->variant[weft_app__best_variant(app)].model, d.model) == 0;
            if (!best && !(d.rate_per_s > 0))
                continue;
            d.rate_per_s += best ? app->rate_per_s : 0;
        }
        at[n++] = d;
    }
    *demands = (weft_demands){at, n};
    out->demands = demands;
    /* The demands contain the rates of the apps now; with the apps they would count twice. */
    out->n_app = assign ? 0 : problem->n_app;
    return WEFT_ERR_OK;
}
