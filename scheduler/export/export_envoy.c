/* Exports to Envoy: the front of workers on one node or many, as a folder that is its
 * configuration.
 *
 *   envoy.yaml         bootstrap: where the rest is
 *   listeners.yaml     HTTP and gRPC, and which model's cluster a request goes to
 *   clusters.yaml      a cluster for each model and protocol
 *   endpoints/C.yaml   the workers of a cluster, with weights from the plan's rates
 *   update.sh          brings the folder of a running Envoy to this plan; it reads what is moved in
 *
 * A request goes to the cluster h-MODEL by its path, or to g-MODEL by the metadata x-model; where a
 * call has none, a filter takes the name from its message: field 1 of ModelInferRequest,
 * ModelReadyRequest and the like. Compressed messages name the model in the metadata.
 *
 * A worker whose connection fails leaves its cluster at once, for a second (outlier detection), and
 * until it is ready again (health checks, which go to its HTTP port). A request whose connection
 * failed, or whose worker is not available, is sent to another worker, as inference may be
 * repeated: only what lies in the buffer as a whole, never after status 500 or because it is late.
 * A cluster of one worker keeps it through some failed checks, since nobody else could answer. */
#include "scheduler/export/export_int.h"

#include <string.h>

enum {
    WEIGHT_MAX = 256,
    /* Bytes of a gRPC call that is read for its model: above --max-request of workers. */
    MESSAGE_MAX = 68 << 20,
    CHECKS_PER_S = 2000,
    CHECK_MS = 500
};

#define TYPE "\"@type\": \"type.googleapis.com/envoy."

typedef struct front {
    export_ctx *ctx;
    export_route *route;
    weft_buf listeners, clusters;
    uint32_t check_ms;
} front;

/* The model of a call without x-model: the name is the first field of its message. Methods without
 * models go to any worker. */
static const char name_model[] =
    "                        function envoy_on_request(call)\n"
    "                          local headers = call:headers()\n"
    "                          local method = string.match(headers:get(\":path\") or \"\", "
    "\"/([%a]+)$\") or \"\"\n"
    "                          local any = {ServerLive = 1, ServerReady = 1, ServerMetadata = 1, "
    "ModelStreamInfer = 1, Check = 1}\n"
    "                          if headers:get(\"x-model\") or any[method] then return end\n"
    "                          local body = call:body()\n"
    "                          if not body then return end\n"
    "                          local at = body:getBytes(0, math.min(body:length(), 512))\n"
    "                          local packed, tag, size, more = string.byte(at, 1), string.byte(at, "
    "6, "
    "8)\n"
    "                          if packed ~= 0 or tag ~= 10 or not size then return end\n"
    "                          local first = 8\n"
    "                          if size >= 128 then first, size = 9, size - 128 + 128 * (more or 0) "
    "end\n"
    "                          call:headers():add(\"x-model\", string.sub(at, first, first + size "
    "- 1))\n"
    "                        end\n";

/* -- Listeners -------------------------------------------------------------------------------- */

static const char *front_address(const front *f)
{
    const char *host = f->ctx->front_host;
    return strcmp(host, "*") == 0 ? "0.0.0.0" : host;
}

static void open_listener(front *f, const char *name, uint32_t offset, const char *codec)
{
    weft_buf_printf(
        &f->listeners,
        "  - " TYPE "config.listener.v3.Listener\"\n"
        "    name: %s\n"
        "    address: {socket_address: {address: \"%s\", port_value: %u}}\n"
        "    per_connection_buffer_limit_bytes: %llu\n"
        "    filter_chains:\n"
        "      - filters:\n"
        "          - name: http\n"
        "            typed_config:\n"
        "              " TYPE
        "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager\"\n"
        "              stat_prefix: %s\n"
        "              codec_type: %s\n"
        "              drain_timeout: 5s\n"
        "              request_timeout: 30s\n"
        "              common_http_protocol_options: {idle_timeout: 60s}\n"
        "              http_filters:\n",
        name, front_address(f), f->ctx->front_port + offset,
        offset ? (unsigned long long)MESSAGE_MAX : (unsigned long long)f->ctx->o.buffer_bytes, name,
        codec);
}

static void close_listener(front *f, const char *protocol)
{
    const char *file = f->ctx->o.front_tls;
    if (file)
        weft_buf_printf(&f->listeners,
                        "        transport_socket:\n"
                        "          name: tls\n"
                        "          typed_config:\n"
                        "            " TYPE
                        "extensions.transport_sockets.tls.v3.DownstreamTlsContext\"\n"
                        "            common_tls_context:\n"
                        "              alpn_protocols: [\"%s\"]\n"
                        "              tls_certificates:\n"
                        "                - {certificate_chain: {filename: \"%s\"}, private_key: "
                        "{filename: \"%s\"}}\n",
                        protocol, file, file);
}

static void open_routes(front *f)
{
    weft_buf_printf(&f->listeners,
                    "                - name: router\n"
                    "                  typed_config: {" TYPE
                    "extensions.filters.http.router.v3.Router\"}\n"
                    "              route_config:\n"
                    "                virtual_hosts:\n"
                    "                  - name: models\n"
                    "                    domains: [\"*\"]\n"
                    "                    request_body_buffer_limit: %llu\n"
                    "                    routes:\n",
                    (unsigned long long)f->ctx->o.buffer_bytes);
}

/* A route to a cluster; `codes`: answers of other workers are asked for after status 503, too. */
static void write_route(front *f, const char *match, const char *cluster, bool codes)
{
    weft_buf_printf(
        &f->listeners,
        "                      - match: {%s}\n"
        "                        route:\n"
        "                          cluster: \"%s\"\n"
        "                          timeout: 35s # above --timeout of the workers\n"
        "                          retry_policy:\n"
        "                            retry_on: connect-failure,refused-stream,reset%s\n"
        "%s"
        "                            num_retries: 3\n"
        "                            retry_host_predicate: [{name: other, typed_config: {" TYPE
        "extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate\"}}]\n"
        "                            host_selection_retry_max_attempts: 5\n",
        match, cluster, codes ? ",retriable-status-codes" : "",
        codes ? "                            retriable_status_codes: [503]\n" : "");
}

static void write_http(front *f)
{
    weft_arena *arena = f->ctx->arena;
    open_listener(f, "http", 0, "HTTP1");
    weft_buf_puts(&f->listeners, "                - name: ready\n"
                                 "                  typed_config:\n"
                                 "                    " TYPE
                                 "extensions.filters.http.health_check.v3.HealthCheck\"\n"
                                 "                    pass_through_mode: false\n"
                                 "                    headers: [{name: \":path\", string_match: "
                                 "{exact: /v2/health/ready}}]\n"
                                 "                    cluster_min_healthy_percentages:\n");
    for (uint32_t m = 0; m < f->ctx->n_model; m++)
        weft_buf_printf(&f->listeners, "                      \"h-%s\": {value: %.4g}\n",
                        f->route[m].model, 50.0 / f->route[m].n); /* one of n is enough */
    open_routes(f);
    weft_buf_puts(&f->listeners, "                      - match: {path: /v2/health/live}\n"
                                 "                        direct_response: {status: 200}\n");
    for (uint32_t m = 0; m < f->ctx->n_model; m++) {
        const char *model = f->route[m].model;
        write_route(f, weft_arena_printf(arena, "path_separated_prefix: \"/v2/models/%s\"", model),
                    weft_arena_printf(arena, "h-%s", model), true);
    }
    write_route(f, "path: /v2", "workers", true);
    weft_buf_puts(
        &f->listeners,
        "                      - match: {prefix: /}\n"
        "                        direct_response: {status: 404, body: {inline_string: "
        "'{\"error\":\"unknown model or path\"}'}}\n"
        "                        response_headers_to_add: [{header: {key: content-type, value: "
        "application/json}, append_action: OVERWRITE_IF_EXISTS_OR_ADD}]\n");
    close_listener(f, "http/1.1");
}

static void write_grpc(front *f)
{
    static const char *const any[] = {"ServerLive", "ServerReady", "ServerMetadata",
                                      "ModelStreamInfer"};
    weft_arena *arena = f->ctx->arena;
    open_listener(f, "grpc", 1, "HTTP2");
    weft_buf_printf(&f->listeners,
                    "                - name: model\n"
                    "                  typed_config:\n"
                    "                    " TYPE "extensions.filters.http.lua.v3.Lua\"\n"
                    "                    default_source_code:\n"
                    "                      inline_string: |\n"
                    "%s",
                    name_model);
    open_routes(f);
    for (size_t i = 0; i < sizeof any / sizeof any[0]; i++)
        write_route(f, weft_arena_printf(arena, "path: /inference.GRPCInferenceService/%s", any[i]),
                    "grpc-workers", false);
    write_route(f, "prefix: /grpc.health.v1.Health/", "grpc-workers", false);
    for (uint32_t m = 0; m < f->ctx->n_model; m++) {
        const char *model = f->route[m].model;
        write_route(
            f,
            weft_arena_printf(arena,
                              "prefix: /inference.GRPCInferenceService/, headers: [{name: x-model, "
                              "string_match: {exact: \"%s\"}}]",
                              model),
            weft_arena_printf(arena, "g-%s", model), false);
    }
    weft_buf_puts(
        &f->listeners,
        "                      - match: {prefix: /}\n"
        "                        direct_response: {status: 200}\n"
        "                        response_headers_to_add:\n"
        "                          - {header: {key: content-type, value: application/grpc}}\n"
        "                          - {header: {key: grpc-status, value: \"5\"}}\n"
        "                          - {header: {key: grpc-message, value: unknown model; compressed "
        "messages "
        "name it in x-model}}\n");
    close_listener(f, "h2");
}

/* -- Clusters --------------------------------------------------------------------------------- */

static void write_endpoints(front *f, const char *cluster, const export_share *share, uint32_t n,
                            bool grpc)
{
    weft_buf out = {0};
    weft_buf_printf(&out,
                    "resources:\n"
                    "  - " TYPE "config.endpoint.v3.ClusterLoadAssignment\"\n"
                    "    cluster_name: \"%s\"\n"
                    "    endpoints:\n"
                    "      - lb_endpoints:\n",
                    cluster);
    for (uint32_t i = 0; i < n; i++) {
        const export_worker *w = &f->ctx->worker[share ? share[i].worker : i];
        weft_buf_printf(
            &out,
            "          - load_balancing_weight: %u\n"
            "            endpoint: {hostname: \"%s\", address: {socket_address: {address: \"%s\", "
            "port_value: %u}}, health_check_config: {port_value: %u}}\n",
            share ? share[i].weight : 1, w->name, f->ctx->node[w->node].address,
            grpc ? w->port + 1 : w->port, w->port);
    }
    weft_export__add(f->ctx, weft_arena_printf(f->ctx->arena, "endpoints/%s.yaml", cluster),
                     weft_buf_keep(&out, f->ctx->arena), false);
}

/* Towards workers. Their certificates are verified, for one name that those of all have: they are
 * asked by address. */
static void write_worker_tls(front *f, bool grpc)
{
    const weft_export_options *o = &f->ctx->o;
    if (!o->worker_tls)
        return;
    const char *verify = weft_arena_printf(
        f->ctx->arena,
        "validation_context: {trusted_ca: {filename: \"%s/ca.crt\"}, "
        "match_typed_subject_alt_names: [{san_type: DNS, matcher: {exact: \"%s\"}}]}",
        o->worker_tls, o->name);
    weft_buf_printf(&f->clusters,
                    "    transport_socket_matches:\n"
                    "      - name: check\n"
                    "        match: {check: true}\n"
                    "        transport_socket:\n"
                    "          name: tls\n"
                    "          typed_config:\n"
                    "            " TYPE "extensions.transport_sockets.tls.v3.UpstreamTlsContext\"\n"
                    "            common_tls_context: {alpn_protocols: [http/1.1], %s}\n"
                    "    transport_socket:\n"
                    "      name: tls\n"
                    "      typed_config:\n"
                    "        " TYPE "extensions.transport_sockets.tls.v3.UpstreamTlsContext\"\n"
                    "        common_tls_context: {alpn_protocols: [%s], %s}\n",
                    verify, grpc ? "h2" : "http/1.1", verify);
}

static void write_cluster(front *f, const char *name, const char *check, const export_share *share,
                          uint32_t n, bool grpc)
{
    uint32_t connections = 0;
    for (uint32_t i = 0; i < n; i++)
        connections += weft_export__connections_of(&f->ctx->worker[share ? share[i].worker : i]);
    weft_buf_printf(
        &f->clusters,
        "  - " TYPE "config.cluster.v3.Cluster\"\n"
        "    name: \"%s\"\n"
        "    type: EDS\n"
        "    eds_cluster_config: {eds_config: {resource_api_version: V3, path_config_source: "
        "{path: "
        "\"%s/endpoints/%s.yaml\"}}}\n"
        "    connect_timeout: %s\n"
        "    lb_policy: %s\n"
        "    common_lb_config: {healthy_panic_threshold: {value: 0}}\n"
        "    circuit_breakers: {thresholds: [{max_connections: %u, max_pending_requests: 65536, "
        "max_requests: "
        "65536, max_retries: 1024}]}\n"
        "    health_checks:\n"
        "      - timeout: %s\n"
        "        interval: %.3fs\n"
        "        no_traffic_interval: %.3fs\n"
        "        unhealthy_interval: %.3fs\n"
        "        unhealthy_threshold: %u\n"
        "        healthy_threshold: 1\n"
        "        http_health_check: {path: \"%s\", host: weft, codec_client_type: HTTP1}\n",
        name, f->ctx->o.config, name, f->ctx->o.worker_tls ? "5s" : "0.5s",
        f->ctx->o.least ? "LEAST_REQUEST" : "ROUND_ROBIN", connections,
        f->ctx->o.worker_tls ? "3s" : "0.5s", f->check_ms / 1e3, f->check_ms / 1e3,
        f->check_ms / 1e3, n == 1 ? 10 : 2, check);
    if (f->ctx->o.worker_tls)
        weft_buf_puts(&f->clusters, "        transport_socket_match_criteria: {check: true}\n");
    if (n > 1)
        weft_buf_puts(
            &f->clusters,
            "    outlier_detection: {split_external_local_origin_errors: true, "
            "consecutive_local_origin_failure: 1, enforcing_consecutive_local_origin_failure: 100, "
            "consecutive_5xx: 1000000, enforcing_consecutive_5xx: 0, enforcing_success_rate: 0, "
            "enforcing_local_origin_success_rate: 0, interval: 0.5s, base_ejection_time: 1s, "
            "max_ejection_time: 1s, max_ejection_percent: 100}\n");
    if (grpc)
        weft_buf_puts(&f->clusters,
                      "    typed_extension_protocol_options:\n"
                      "      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:\n"
                      "        " TYPE "extensions.upstreams.http.v3.HttpProtocolOptions\"\n"
                      "        explicit_http_config: {http2_protocol_options: {}}\n");
    write_worker_tls(f, grpc);
    write_endpoints(f, name, share, n, grpc);
}

/* -- The exporter ----------------------------------------------------------------------------- */

static const char bootstrap[] =
    "# Made by `weft export`: a front of the plan's workers. See docs/export.md.\n"
    "# envoy -c %s/envoy.yaml\n"
    "node: {id: \"%s\", cluster: \"%s\"}\n"
    "admin: {address: {socket_address: {address: 127.0.0.1, port_value: %u}}}\n"
    "dynamic_resources:\n"
    "  cds_config: {resource_api_version: V3, path_config_source: {path: \"%s/clusters.yaml\"}}\n"
    "  lds_config: {resource_api_version: V3, path_config_source: {path: \"%s/listeners.yaml\"}}\n";

weft_err weft_export__envoy(export_ctx *ctx)
{
    WEFT_TRY(weft_export__check_distinct(ctx));
    WEFT_TRY(weft_export__check_ips(ctx));
    front f = {.ctx = ctx,
               .route = weft_export__routes(ctx),
               .check_ms = ctx->o.worker_tls ? 3000 : CHECK_MS};
    const weft_export_options *o = &ctx->o;
    weft_buf boot = {0};
    size_t checks = 2 * (size_t)ctx->n_worker;
    for (uint32_t m = 0; m < ctx->n_model; m++) {
        weft_export__weigh_route(ctx, &f.route[m], WEIGHT_MAX);
        checks += 2 * (size_t)f.route[m].n;
    }
    if (f.check_ms < checks * 1000 / CHECKS_PER_S)
        f.check_ms = (uint32_t)(checks * 1000 / CHECKS_PER_S);
    weft_buf_printf(&boot, bootstrap, o->config, o->name, o->name, ctx->front_port + 2, o->config,
                    o->config);
    weft_buf_puts(&f.listeners, "resources:\n");
    weft_buf_puts(&f.clusters, "resources:\n");
    write_http(&f);
    write_grpc(&f);
    for (uint32_t m = 0; m < ctx->n_model; m++) {
        const export_route *r = &f.route[m];
        const char *check = weft_arena_printf(ctx->arena, "/v2/models/%s/ready", r->model);
        write_cluster(&f, weft_arena_printf(ctx->arena, "h-%s", r->model), check, r->at, r->n,
                      false);
        write_cluster(&f, weft_arena_printf(ctx->arena, "g-%s", r->model), check, r->at, r->n,
                      true);
    }
    write_cluster(&f, "workers", "/v2/health/ready", NULL, ctx->n_worker, false);
    write_cluster(&f, "grpc-workers", "/v2/health/ready", NULL, ctx->n_worker, true);
    weft_export__add(ctx, "envoy.yaml", weft_buf_keep(&boot, ctx->arena), false);
    weft_export__add(ctx, "listeners.yaml", weft_buf_keep(&f.listeners, ctx->arena), false);
    weft_export__add(ctx, "clusters.yaml", weft_buf_keep(&f.clusters, ctx->arena), false);
    weft_export__add(ctx, "update.sh", weft_export__script("envoy_update.sh"), true);
    return WEFT_ERR_OK;
}
