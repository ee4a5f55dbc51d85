/* Watches the versions of models that get a smaller part of the requests than another version. One
 * whose requests fail or come late more often than those of the versions with more weight gets
 * weight 0 (scheduler/dispatch/canary.c decides). Requests that name a version do not count: one
 * client that sends nonsense to one version says nothing of it. Counts begin anew whenever versions
 * or weights of a model change. */
#include "runtime/server/deployment_int.h"

#include "base/hash.h"
#include "scheduler/scheduler.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t every_ns = 250000000;

/* Of a place for a model in the router. */
typedef struct rollout_version {
    weft_canary_counts from; /* when counting began */
    uint64_t signature;      /* of the versions and weights, since then */
    uint32_t look;
} rollout_version;

struct weft_rollout {
    weft_router *router;
    weft_deployment *deployment;
    weft_loop *loop;
    weft_timer timer;
    rollout_version *version;
    uint32_t n;
};

static weft_canary_counts count(const weft_router *router, uint32_t model)
{
    weft_offered o = weft_router__offered_by_weight(router, model);
    return (weft_canary_counts){.requests = o.answered + o.refused + o.failed,
                                .bad = o.late + o.refused + o.failed};
}

static weft_canary_counts count_since(const weft_rollout *r, uint32_t model)
{
    weft_canary_counts now = count(r->router, model), from = r->version[model].from;
    return (weft_canary_counts){now.requests - from.requests, now.bad - from.bad};
}

static uint32_t next(const weft_rollout *r, uint32_t model, uint32_t after)
{
    return weft_router__next_version(r->router, model, after);
}

/* Of all versions of a model and their weights. */
static uint64_t sign(const weft_rollout *r, uint32_t model)
{
    uint64_t hash = 1;
    for (uint32_t i = next(r, model, UINT32_MAX); i != UINT32_MAX; i = next(r, model, i)) {
        const weft_bundle_program *program = weft_router__model(r->router, i).program;
        double weight = weft_router__weight(r->router, i);
        hash = weft_hash64(&program, sizeof program, hash);
        hash = weft_hash64(&weight, sizeof weight, hash);
    }
    return hash;
}

/* Nothing is done, and tried again at the next look, if too many changes wait. */
static void abort_version(weft_rollout *r, uint32_t model, const weft_canary_counts *own,
                          const weft_canary_counts *others)
{
    weft_model_ref ref = weft_router__model(r->router, model);
    if (!weft_deployment__weigh(r->deployment, weft_bundle_served(ref.program), ref.version, 0,
                                NULL))
        return;
    WEFT_LOG(WEFT_LOG_WARN, "canary_aborted",
             {.key = "model", .text = weft_bundle_served(ref.program)},
             {.key = "version", .text = ref.version},
             {.key = "requests", .number = (double)own->requests},
             {.key = "bad", .number = (double)own->bad},
             {.key = "requests_of_others", .number = (double)others->requests},
             {.key = "bad_of_others", .number = (double)others->bad});
}

static void look_at(weft_rollout *r, uint32_t model)
{
    rollout_version *v = &r->version[model];
    double weight = weft_router__weight(r->router, model);
    weft_canary_counts own = count_since(r, model), others = {0};
    if (own.requests < weft_canary_look_at(v->look))
        return;
    for (uint32_t i = next(r, model, UINT32_MAX); i != UINT32_MAX; i = next(r, model, i)) {
        weft_canary_counts c = count_since(r, i);
        if (weft_router__weight(r->router, i) > weight) {
            others.requests += c.requests;
            others.bad += c.bad;
        }
    }
    if (weft_canary_is_worse(&own, &others, v->look))
        abort_version(r, model, &own, &others);
    while (own.requests >= weft_canary_look_at(v->look))
        v->look++;
}

/* Looks at the versions of a model. */
static void watch(weft_rollout *r, uint32_t model)
{
    uint64_t signature = sign(r, model);
    bool same = true;
    for (uint32_t i = next(r, model, UINT32_MAX); i != UINT32_MAX; i = next(r, model, i))
        same = same && r->version[i].signature == signature;
    for (uint32_t i = next(r, model, UINT32_MAX); i != UINT32_MAX; i = next(r, model, i)) {
        if (!same)
            r->version[i] = (rollout_version){.from = count(r->router, i), .signature = signature};
        else if (weft_router__weight(r->router, i) > 0)
            look_at(r, i);
    }
}

static void on_timer(void *user)
{
    weft_rollout *r = user;
    uint32_t n = weft_router__model_count(r->router);
    (void)weft_timer__set(r->loop, &r->timer, weft_clock__now_ns() + every_ns);
    if (n > r->n) {
        rollout_version *more = realloc(r->version, n * sizeof *more);
        if (!more)
            return;
        memset(more + r->n, 0, (n - r->n) * sizeof *more);
        r->version = more;
        r->n = n;
    }
    /* Versions of different weights have at least one that is not 1. */
    for (uint32_t i = 0; i < n; i++) {
        double weight = weft_router__weight(r->router, i);
        if (weft_router__is_shown(r->router, i) && weight > 0 && weight != 1)
            watch(r, i);
    }
}

weft_err weft_rollout__start(weft_router *router, weft_deployment *deployment, weft_loop *loop,
                             weft_rollout **out)
{
    weft_rollout *r = calloc(1, sizeof *r);
    if (!r)
        return WEFT_ERR_NOMEM;
    *r = (weft_rollout){.router = router,
                        .deployment = deployment,
                        .loop = loop,
                        .timer = {.fn = on_timer, .user = r}};
    if (!weft_timer__set(loop, &r->timer, weft_clock__now_ns() + every_ns)) {
        free(r);
        return WEFT_ERR_NOMEM;
    }
    *out = r;
    return WEFT_ERR_OK;
}

void weft_rollout__stop(weft_rollout *r)
{
    if (!r)
        return;
    weft_timer__cancel(r->loop, &r->timer);
    free(r->version);
    free(r);
}
