/* Where Kubernetes may put the workers of a plan: a type of device, the failure domains that the
 * plan asks for, which are conditions, and workers of one model apart from each other, which is a
 * preference, since a condition that the cluster cannot meet keeps planned workers from starting.
 */
#include "scheduler/export/yaml_words.h"

#include "base/hash.h"
#include "base/map.h"

#include <string.h>

const char *weft_export__model_key(const export_ctx *ctx, const char *model)
{
    return weft_arena_printf(ctx->arena, "model.weft/%s",
                             weft_export__label(ctx->arena, model, WEFT_EXPORT_MODEL_LABEL_MAX));
}

/* Whether two groups, whose models are sorted, have one in common. */
static bool share_model(const export_worker *a, const export_worker *b)
{
    size_t i = 0, k = 0;
    while (i < a->n_model && k < b->n_model) {
        int order = strcmp(a->model[i], b->model[k]);
        if (order == 0)
            return true;
        *(order < 0 ? &i : &k) += 1;
    }
    return false;
}

/* The label of nodes that a failure domain is known by. */
static const char *const topology[WEFT_DOMAINS] = {NULL, "kubernetes.io/hostname", "weft/rack",
                                                   "topology.kubernetes.io/zone"};

static void write_constraint(weft_export_yaml *y, weft_domain domain, uint32_t skew, bool must,
                             const char *key, const char *value)
{
    weft_export_yaml__map(y);
    put_number(y, "maxSkew", skew);
    if (must)
        put_number(y, "minDomains", 2);
    put(y, "topologyKey", topology[domain]);
    put(y, "whenUnsatisfiable", must ? "DoNotSchedule" : "ScheduleAnyway");
    open_map(y, "labelSelector");
    open_map(y, "matchLabels");
    put(y, key, value);
    end_map(y);
    end_map(y);
    end_map(y);
}

/* What the plan asks for a model; NONE: nothing. */
static weft_domain domain_of(const export_ctx *ctx, const char *model)
{
    const weft_demand *d = weft_export__demand(ctx, model);
    weft_domain survive = ctx->plan->rules.survive;
    return d && d->spread > survive ? d->spread : survive;
}

static bool has_model(const export_worker *w, const char *model)
{
    for (size_t i = 0; i < w->n_model; i++)
        if (strcmp(w->model[i], model) == 0)
            return true;
    return false;
}

/* Most workers of a model in one domain of the plan. */
static uint32_t most_in_one(const export_ctx *ctx, const char *model, weft_domain domain)
{
    weft_map *count = weft_map_create(ctx->arena);
    uint64_t most = 1;
    for (uint32_t i = 0; i < ctx->n_worker; i++) {
        const char *name = weft_location__domain(&ctx->worker[i].where, domain);
        uint64_t n = 0;
        if (!name || !has_model(&ctx->worker[i], model))
            continue;
        uint64_t key = weft_hash64(name, strlen(name), 0);
        (void)weft_map_get(count, key, &n);
        weft_map_put(count, key, n + 1);
        most = n + 1 > most ? n + 1 : most;
    }
    return (uint32_t)most;
}

/* Models that the plan has in several domains have to be; the replicas of a group are on several
 * nodes and in several zones if there are. */
static void write_spread(weft_export_yaml *y, const export_ctx *ctx, const export_worker *w)
{
    const export_group *group = &ctx->group[w->group];
    bool asked = false;
    for (size_t i = 0; i < w->n_model; i++)
        asked = asked || domain_of(ctx, w->model[i]) != WEFT_DOMAIN_NONE;
    if (group->n < 2 && !asked)
        return;
    open_seq(y, "topologySpreadConstraints");
    for (size_t i = 0; i < w->n_model; i++) {
        weft_domain domain = domain_of(ctx, w->model[i]);
        if (domain != WEFT_DOMAIN_NONE)
            write_constraint(y, domain, most_in_one(ctx, w->model[i], domain), true,
                             weft_export__model_key(ctx, w->model[i]), "true");
    }
    if (group->n > 1) {
        write_constraint(y, WEFT_DOMAIN_NODE, 1, false, "weft/group", group->name);
        write_constraint(y, WEFT_DOMAIN_ZONE, 1, false, "weft/group", group->name);
    }
    end_seq(y);
}

/* Other groups that serve one of the models of a group, on other nodes. */
static void write_anti_affinity(weft_export_yaml *y, const export_ctx *ctx, const uint32_t *other,
                                uint32_t n)
{
    open_map(y, "affinity");
    open_map(y, "podAntiAffinity");
    open_seq(y, "preferredDuringSchedulingIgnoredDuringExecution");
    weft_export_yaml__map(y);
    put_number(y, "weight", 100);
    open_map(y, "podAffinityTerm");
    put(y, "topologyKey", "kubernetes.io/hostname");
    open_map(y, "labelSelector");
    open_seq(y, "matchExpressions");
    weft_export_yaml__map(y);
    put(y, "key", "weft/group");
    put(y, "operator", "In");
    open_seq(y, "values");
    for (uint32_t i = 0; i < n; i++)
        weft_export_yaml__text(y, ctx->group[other[i]].name);
    end_seq(y);
    end_map(y);
    end_seq(y);
    end_map(y);
    end_map(y);
    end_map(y);
    end_seq(y);
    end_map(y);
    end_map(y);
}

void weft_export__write_scheduling(weft_export_yaml *y, const export_ctx *ctx,
                                   const export_worker *w)
{
    uint32_t *other = weft_arena_array(ctx->arena, ctx->n_group + 1, sizeof *other);
    uint32_t n = 0;
    open_map(y, "nodeSelector");
    put(y, "weft/device-type", w->type);
    end_map(y);
    write_spread(y, ctx, w);
    for (uint32_t i = 0; i < ctx->n_group; i++)
        if (i != w->group && share_model(w, &ctx->worker[ctx->group[i].first]))
            other[n++] = i;
    if (n > 0)
        write_anti_affinity(y, ctx, other, n);
}
