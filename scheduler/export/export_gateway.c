/* Exports to the Gateway API of Kubernetes: for each model an HTTPRoute by path and a GRPCRoute by
 * the header x-model, to the Services of the groups that serve it (--to kubernetes). Each of the
 * two has a listener of its own: of an HTTPRoute and a GRPCRoute for the same hosts a listener
 * accepts only one. A Service divides evenly among its pods, which are equal; the weights divide
 * among groups, by the plan's rates. */
#include "scheduler/export/export_int.h"

#include <stdlib.h>

enum { WEIGHT_MAX = 1000000, SERVICES_MAX = 16 /* both of a rule */ };

#define put        weft_export_yaml__put
#define put_number weft_export_yaml__put_number
#define open_map   weft_export_yaml__open_map
#define open_seq   weft_export_yaml__open_seq
#define end_map    weft_export_yaml__end_map
#define end_seq    weft_export_yaml__end_seq

/* The groups of a route. */
typedef struct backends {
    uint32_t n;
    const char **group;
    double *rate_per_s;
    uint32_t *weight;
} backends;

static void list_backends(const export_ctx *ctx, const export_route *r, backends *out)
{
    out->n = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        const char *group = ctx->group[ctx->worker[r->at[i].worker].group].name;
        uint32_t k = 0;
        while (k < out->n && out->group[k] != group)
            k++;
        if (k == out->n) {
            out->group[out->n] = group;
            out->rate_per_s[out->n++] = 0;
        }
        out->rate_per_s[k] += r->at[i].rate_per_s;
    }
}

static void write_match(weft_export_yaml *y, const export_ctx *ctx, const char *model, bool grpc)
{
    open_seq(y, "matches");
    weft_export_yaml__map(y);
    if (grpc) {
        open_seq(y, "headers");
        weft_export_yaml__map(y);
        put(y, "name", "x-model");
        put(y, "value", model);
        end_map(y);
        end_seq(y);
    } else {
        open_map(y, "path");
        put(y, "type", "PathPrefix");
        put(y, "value", weft_arena_printf(ctx->arena, "/v2/models/%s", model));
        end_map(y);
    }
    end_map(y);
    end_seq(y);
}

static void write_route(weft_export_yaml *y, const export_ctx *ctx, const char *model,
                        const backends *b, bool grpc)
{
    weft_export_yaml__document(y);
    weft_export_yaml__map(y);
    put(y, "apiVersion", "gateway.networking.k8s.io/v1");
    put(y, "kind", grpc ? "GRPCRoute" : "HTTPRoute");
    open_map(y, "metadata");
    const char *name = weft_arena_printf(ctx->arena, "%s-model-%s", ctx->o.name, model);
    put(y, "name", weft_export__label(ctx->arena, name, WEFT_EXPORT_LABEL_MAX));
    end_map(y);
    open_map(y, "spec");
    open_seq(y, "parentRefs");
    weft_export_yaml__map(y);
    put(y, "name", ctx->o.name);
    put(y, "sectionName", grpc ? "grpc" : "http");
    end_map(y);
    end_seq(y);
    open_seq(y, "rules");
    weft_export_yaml__map(y);
    write_match(y, ctx, model, grpc);
    open_seq(y, "backendRefs");
    for (uint32_t i = 0; i < b->n; i++) {
        weft_export_yaml__map(y);
        put(y, "name", b->group[i]);
        put_number(y, "port", ctx->o.port + grpc);
        put_number(y, "weight", b->weight[i]);
        end_map(y);
    }
    end_seq(y);
    end_map(y);
    end_seq(y);
    end_map(y);
    end_map(y);
}

weft_err weft_export__gateway(export_ctx *ctx)
{
    const export_route *route = weft_export__routes(ctx);
    backends b = {.group = weft_arena_array(ctx->arena, ctx->n_group, sizeof *b.group),
                  .rate_per_s = weft_arena_array(ctx->arena, ctx->n_group, sizeof *b.rate_per_s),
                  .weight = weft_arena_array(ctx->arena, ctx->n_group, sizeof *b.weight)};
    weft_export_yaml y;
    for (uint32_t m = 0; m < ctx->n_model; m++) {
        list_backends(ctx, &route[m], &b);
        if (b.n > SERVICES_MAX)
            return weft_diag_error(ctx->diag, WEFT_ERR_UNSUP, (weft_where){.item = route[m].model},
                                   "more groups of workers serve it than the %d of a route",
                                   SERVICES_MAX);
    }
    weft_export_yaml__begin(&y);
    for (uint32_t m = 0; m < ctx->n_model; m++) {
        list_backends(ctx, &route[m], &b);
        weft_export__weigh_model(ctx, route[m].model, b.rate_per_s, b.n, WEIGHT_MAX, b.weight);
        write_route(&y, ctx, route[m].model, &b, false);
        write_route(&y, ctx, route[m].model, &b, true);
    }
    char *text = weft_export_yaml__finish(&y);
    if (!text)
        return WEFT_ERR_NOMEM;
    weft_export__add(ctx, "routes.yaml", text, false);
    free(text);
    return WEFT_ERR_OK;
}
