/* Apps: requests that name a task, which the variant answers that suits them now.
 *
 * An app is a model of the router with the ports of its variants and no queue. When a request
 * comes, each variant is forecast as admission does it, with what stands in its queue and runs on
 * its workers, and weft_pick_choose decides; the request then is one of that variant's. Variants
 * that the plan does not place here, that are not ready, whose queue is full or that do not take
 * the request's sizes are passed over.
 *
 * A plan may take a variant away as long as another one stays; what waits for it then goes there.
 *
 * What an answer costs is the time that a worker's cores spend on a row of the largest batch. */
#include "runtime/server/router_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* After this time without a batch the forecast of an idle variant is its best time. */
static const uint64_t fresh_ms = 1000;

/* How far a model can take requests. */
typedef enum service_level {
    LEVEL_NONE,
    LEVEL_COMES_BACK, /* its workers are started, or started again: requests wait for them */
    LEVEL_READY,      /* until the change under way is over */
    LEVEL_STAYS
} service_level;

/* The workers of a variant. */
typedef struct variant_service {
    service_level level;
    uint32_t n_cpu; /* of the slice of one of them; 0: nobody serves it */
} variant_service;

typedef struct router_app {
    const weft_bundle_app *app;
    weft_offered *count;      /* by variant */
    weft_pick_variant *now;   /* by variant: scratch */
    variant_service *service; /* the same */
    weft_pick_mean mean;
    bool servable;
} router_app;

/* -- Life ------------------------------------------------------------------------------------- */

static bool check(const weft_bundle *b, const weft_bundle_app *app)
{
    weft_diag *diag = weft_diag_create();
    bool ok = weft_bundle_check_app(b, app, diag) == WEFT_ERR_OK;
    if (!ok)
        WEFT_LOG(WEFT_LOG_WARN, "app_not_served", {.key = "app", .text = app->name},
                 {.key = "why",
                  .text = diag && weft_diag_count(diag) ? weft_diag_at(diag, 0)->text : ""});
    weft_diag_destroy(diag);
    return ok;
}

struct router_app *weft_served_app__create(const weft_bundle *bundle, const weft_bundle_app *app)
{
    router_app *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    *a = (router_app){.app = app,
                      .servable = check(bundle, app),
                      .mean = {.least = app->accuracy},
                      .count = calloc(app->n_variant, sizeof *a->count),
                      .now = calloc(app->n_variant, sizeof *a->now),
                      .service = calloc(app->n_variant, sizeof *a->service)};
    for (uint32_t k = 0; k < app->n_variant; k++)
        a->mean.most = fmax(a->mean.most, app->variant[k].accuracy);
    if (a->count && a->now && a->service)
        return a;
    weft_served_app__destroy(a);
    return NULL;
}

void weft_served_app__destroy(struct router_app *a)
{
    if (a) {
        free(a->count);
        free(a->now);
        free(a->service);
    }
    free(a);
}

bool weft_served_app__is_servable(const struct router_app *a)
{
    return a->servable;
}

/* The router's model that is a variant of the app. */
static uint32_t variant_of(const weft_router *router, uint32_t app, uint32_t variant)
{
    const router_model *m = &router->model[app];
    return m->bundle->first + m->app->app->variant[variant].program;
}

bool weft_served_app__any(const weft_router *router, uint32_t model,
                          bool (*holds)(const weft_router *router, uint32_t variant))
{
    const router_app *a = router->model[model].app;
    for (uint32_t i = 0; a->servable && i < a->app->n_variant; i++) {
        uint32_t at = variant_of(router, model, i);
        if (router->model[at].shown && holds(router, at))
            return true;
    }
    return false;
}

bool weft_served_app__can_lose(const weft_router *router, uint32_t model,
                               bool (*holds)(const weft_router *router, uint32_t variant))
{
    const router_bundle *b = router->model[model].bundle;
    bool any = false;
    for (uint32_t i = b->bundle->n_program; i < weft_bundle_faces(b->bundle); i++) {
        const router_app *a = router->model[b->first + i].app;
        bool has = false, stays = false;
        for (uint32_t k = 0; router->model[b->first + i].shown && k < a->app->n_variant; k++) {
            uint32_t at = variant_of(router, b->first + i, k);
            has = has || at == model;
            stays = stays || (at != model && holds(router, at));
        }
        if (has && !stays)
            return false;
        any = any || has;
    }
    return any && !(router->model[model].program->rate_per_s > 0);
}

/* -- The choice ------------------------------------------------------------------------------- */

/* Core-milliseconds of an answer; 0: not known. */
static double cost_of(const router_model *m, const variant_service *service)
{
    double each_ms = (double)weft_admission__batch_ns(m, m->largest_bucket) * 1e-6 / //
                     (double)m->largest_bucket;
    return each_ms * service->n_cpu;
}

static service_level level_of(const router_worker *w)
{
    bool up = w->process.stall_ns == 0 &&
              (w->process.state == WORKER_IDLE || w->process.state == WORKER_BUSY);
    return w->retiring   ? LEVEL_NONE
           : !up         ? LEVEL_COMES_BACK
           : w->outgoing ? LEVEL_READY
                         : LEVEL_STAYS;
}

/* Looks at the workers of each variant, and returns the best level. */
static service_level look_at_services(const weft_router *router, uint32_t app)
{
    router_app *a = router->model[app].app;
    service_level best = LEVEL_NONE;
    memset(a->service, 0, a->app->n_variant * sizeof *a->service);
    for (uint32_t i = 0; i < router->n_worker; i++) {
        const router_worker *w = &router->worker[i];
        service_level level = level_of(w);
        for (uint32_t k = 0; k < a->app->n_variant; k++) {
            variant_service *s = &a->service[k];
            if (!w->serves[variant_of(router, app, k)])
                continue;
            if (s->n_cpu == 0)
                s->n_cpu = w->process.slice->n_cpu > 0 ? w->process.slice->n_cpu : 1;
            s->level = level > s->level ? level : s->level;
            best = level > best ? level : best;
        }
    }
    return best;
}

bool weft_served_app__stays(const weft_router *router, uint32_t app)
{
    return look_at_services(router, app) == LEVEL_STAYS;
}

/* What each variant is now. false: none takes the sizes of the request; its answer is set. */
static bool look_at_variants(const weft_router *router, uint32_t app, weft_request *request,
                             double latency_us)
{
    router_app *a = router->model[app].app;
    service_level least = look_at_services(router, app);
    bool any = false;
    for (uint32_t i = 0; i < a->app->n_variant; i++) {
        uint32_t model = variant_of(router, app, i);
        const router_model *m = &router->model[model];
        bool fits = weft_batch__admit(m, request);
        a->now[i] = (weft_pick_variant){.accuracy = a->app->variant[i].accuracy};
        any = any || fits;
        /* Variants that leave alone are no candidates; with the app they are. */
        bool leaves = router->model[app].shown && !m->shown;
        if (!fits || leaves || m->n_queued >= QUEUE_MAX || a->service[i].level == LEVEL_NONE ||
            a->service[i].level < least)
            continue;
        double host_us = m->program->profile.host_us;
        weft_forecast f = weft_admission__forecast(
            router, model, weft_line_due_ns(request->arrived_ns, latency_us, host_us),
            request->rows, request->arrived_ns);
        a->now[i].ready = true;
        a->now[i].wait_us = f.start_ns * 1e-3;
        a->now[i].finish_us = f.finish_ns * 1e-3 + host_us;
        /* A forecast that is too long must not keep a variant from being measured again. */
        if (f.at_once && weft_clock__wall_ms() > m->stats.last_inference_ms + fresh_ms)
            a->now[i].finish_us =
                (double)weft_admission__least_ns(m, request->rows) * 1e-3 + host_us;
        a->now[i].cost = cost_of(m, &a->service[i]);
    }
    return any;
}

/* No variant is ready that satisfies the request. */
static void refuse(const router_app *a, const weft_pick_query *q, weft_pick p,
                   weft_request *request)
{
    double least = fmax(q->min_accuracy, 0);
    if (least > a->mean.most)
        weft_request__set_answer(
            request, WEFT_ANSWER_INVALID,
            "no variant of app '%s' has an accuracy of %g: the best one has %g", a->app->name,
            least, a->mean.most);
    else if (p.variant == UINT32_MAX)
        weft_request__set_answer(request, WEFT_ANSWER_UNAVAILABLE,
                                 "no variant of app '%s' is ready", a->app->name);
    else
        weft_request__set_answer(
            request, WEFT_ANSWER_UNAVAILABLE,
            "no variant of app '%s' that is ready is accurate and cheap enough; the nearest one "
            "has an accuracy of %g and costs %.3g core-ms",
            a->app->name, a->now[p.variant].accuracy, a->now[p.variant].cost);
}

bool weft_served_app__choose(weft_router *router, weft_request *request)
{
    uint32_t app = request->model;
    router_app *a = router->model[app].app;
    const weft_app_need *need = &request->need;
    double latency_us =
        need->latency_us > 0 ? need->latency_us : router->model[app].program->slo_us;
    if (request->timeout_us > 0 && !(latency_us > 0 && latency_us < (double)request->timeout_us))
        latency_us = (double)request->timeout_us;
    const weft_pick_query query = {.min_accuracy = need->min_accuracy,
                                   .latency_us = latency_us,
                                   .max_cost = need->max_cost,
                                   .mean = a->mean,
                                   .best_effort = need->best_effort};
    if (!look_at_variants(router, app, request, latency_us))
        return false;
    weft_pick p = weft_pick_choose(a->now, a->app->n_variant, &query);
    if (p.reason == WEFT_PICK_NONE) {
        refuse(a, &query, p, request);
        return false;
    }
    const weft_pick_variant *v = &a->now[p.variant];
    request->answer = WEFT_ANSWER_OK; /* of a variant that does not take its sizes */
    request->message[0] = '\0';
    request->model = variant_of(router, app, p.variant);
    request->chosen =
        (weft_app_choice){.app = app,
                          .variant = p.variant,
                          .name = weft_bundle_served(router->model[request->model].program),
                          .reason = weft_pick_reason_name(p.reason),
                          .accuracy = v->accuracy,
                          .cost = v->cost,
                          .predicted_us = v->finish_us};
    weft_pick_begin(&a->mean, v->accuracy);
    router->model[request->model].stats.pending++;
    a->count[p.variant].arrivals++;
    return true;
}

/* -- Counts ----------------------------------------------------------------------------------- */

static void add_answer(weft_offered *to, const weft_request *r, uint64_t took_ns, double slo_us)
{
    bool ok = r->answer == WEFT_ANSWER_OK;
    bool refused = r->answer == WEFT_ANSWER_UNAVAILABLE || r->answer == WEFT_ANSWER_OVERLOADED;
    to->answered += ok;
    to->late += ok && slo_us > 0 && (double)took_ns > slo_us * 1e3;
    to->refused += refused;
    to->failed += !ok && !refused;
}

/* The statistics of an app. */
static void add_to_app(weft_model_stats *s, const weft_request *r, uint64_t took_ns)
{
    weft_batch__count_end(s, r, took_ns);
    if (r->answer != WEFT_ANSWER_OK)
        return;
    s->last_inference_ms = weft_clock__wall_ms();
    s->inference_count += r->rows > 0 ? (uint64_t)r->rows : 1;
    weft_batch__count_times(s, r);
}

void weft_served_app__count(weft_router *router, const weft_request *r, uint64_t took_ns)
{
    router_model *m = &router->model[r->chosen.name ? r->chosen.app : r->model];
    double slo_us = m->program->slo_us;
    add_answer(&m->own, r, took_ns, slo_us);
    if (r->by_weight)
        add_answer(&m->by_weight, r, took_ns, slo_us);
    if (!r->chosen.name)
        return;
    weft_pick_end(&m->app->mean, r->chosen.accuracy, r->answer == WEFT_ANSWER_OK);
    add_answer(&m->app->count[r->chosen.variant], r, took_ns, slo_us);
    add_to_app(&m->stats, r, took_ns);
}

bool weft_router__is_app(const weft_router *router, uint32_t model)
{
    return router->model[model].app != NULL;
}

weft_offered weft_router__offered(const weft_router *router, uint32_t model)
{
    return router->model[model].own;
}

weft_offered weft_router__offered_by_weight(const weft_router *router, uint32_t model)
{
    return router->model[model].by_weight;
}

uint32_t weft_router__app_variants(const weft_router *router, uint32_t app)
{
    return router->model[app].app->app->n_variant;
}

weft_app_counts weft_router__app_counts(const weft_router *router, uint32_t app, uint32_t variant)
{
    const router_app *a = router->model[app].app;
    uint32_t at = variant_of(router, app, variant);
    return (weft_app_counts){.variant = weft_bundle_served(router->model[at].program),
                             .accuracy = a->app->variant[variant].accuracy,
                             .count = a->count[variant]};
}
