/* Exports to HAProxy: the front of workers on one node or many.
 *
 *   haproxy.cfg   a backend for each model and protocol, a server for each worker of the model
 *   servers       the same servers as a table, for update.sh
 *   update.sh     brings a HAProxy that runs to this plan over its socket, without a reload
 *
 * A request goes to the backend h-MODEL by its path, or g-MODEL by the name in its message: field 1
 * of ModelInferRequest, ModelReadyRequest and the like, which HAProxy reads (ungrpc). Callers that
 * compress their messages name the model in the metadata x-model. Backends of no model have names
 * without these prefixes, which no model's name can give.
 *
 * A worker that refuses or breaks a connection leaves its backends at once (observe layer4), and
 * its requests are sent to others, as inference may be repeated: only those that lie in the buffer
 * as a whole, never after an answer of status 500, since the request may be what stops workers, and
 * never for lateness, which would multiply an overload. A backend with one server keeps it through
 * some failed checks, since nobody else could answer: requests wait for the worker to come back.
 *
 * The kernel accepts a connection for a worker that has no CPU at the moment; a TLS handshake waits
 * for the CPU on both sides, on a busy machine for seconds. If late handshakes counted as faults,
 * their requests and more checks would be more handshakes, of fewer workers, until none was left.
 * So with TLS a handshake has seconds, checks are rare also of workers in doubt, and a connection
 * that breaks has the worker checked soon: only checks take it out. Its requests are sent to others
 * meanwhile.
 *
 * Weights are the plan's rates. In turn (roundrobin) each worker gets its share of any load;
 * by outstanding requests (leastconn) shares are near the plan's only under load. */
#include "scheduler/export/export_int.h"

#include <stdio.h>
#include <string.h>

enum {
    WEIGHT_MAX = 256,
    CHECKS_PER_S = 2000 /* of the front, at most; a worker and model has two servers */
};

/* When a worker counts as dead. */
typedef struct patience {
    uint32_t connect_ms;
    uint32_t check_ms;         /* between two checks, and the time that a check may take */
    uint32_t fast_ms, down_ms; /* between checks: of a worker in doubt, of a dead one */
    uint32_t fall;             /* failed checks in a row */
    const char *on_error;      /* of a connection */
} patience;

static const patience of_plain = {500, 500, 200, 1000, 2, "mark-down"};
static const patience of_tls = {5000, 3000, 1000, 2000, 3, "fastinter"};

/* Of a server until update.sh gives it one. */
#define NO_ADDRESS "0.0.0.0"

typedef struct front {
    export_ctx *ctx;
    const export_route *route;
    weft_buf conf, table;
    patience patience;
} front;

/* -- Configuration ---------------------------------------------------------------------------- */

static void write_global(front *f)
{
    const weft_export_options *o = &f->ctx->o;
    weft_buf_printf(&f->conf,
                    "# Made by `weft export`: a front of the plan's workers. See docs/export.md.\n"
                    "global\n"
                    "    stats socket %s mode 600 level admin expose-fd listeners\n"
                    "    log stderr format raw local0 notice\n"
                    "    hard-stop-after 60s\n"
                    "    tune.bufsize %llu\n"
                    "\n"
                    "defaults\n"
                    "    mode http\n"
                    "    log global\n"
                    "    timeout connect %ums\n"
                    "    timeout client 60s\n"
                    "    timeout server 35s # above --timeout of the workers\n"
                    "    timeout queue 2s\n"
                    "    timeout http-request 30s\n"
                    "    retries 3\n"
                    "    option redispatch 1\n"
                    "    retry-on conn-failure empty-response junk-response 503\n"
                    "    http-reuse always\n"
                    "    balance %s\n"
                    "    option httpchk\n"
                    "    default-server init-addr last,libc,none # a name that is unknown ends "
                    "nothing\n"
                    "    http-error status 503 content-type application/json string "
                    "'{\"error\":\"no worker can answer\"}'\n",
                    o->socket, (unsigned long long)o->buffer_bytes, f->patience.connect_ms,
                    o->least ? "leastconn" : "roundrobin");
}

static void write_bind(front *f, uint32_t offset, const char *options, const char *tls_options)
{
    const weft_export_options *o = &f->ctx->o;
    const char *host = weft_export__host_of(f->ctx->arena, f->ctx->front_host);
    weft_buf_printf(&f->conf, "    bind %s:%u", host, f->ctx->front_port + offset);
    if (o->front_tls)
        weft_buf_printf(&f->conf, " ssl crt %s %s\n", o->front_tls, tls_options);
    else
        weft_buf_printf(&f->conf, "%s\n", options);
}

static void write_http(front *f)
{
    weft_buf_puts(&f->conf, "\nfrontend http\n");
    write_bind(f, 0, "", "alpn http/1.1");
    weft_buf_puts(&f->conf, "    option http-buffer-request\n"
                            "    option forwardfor\n"
                            "    monitor-uri /v2/health/ready\n");
    for (uint32_t m = 0; m < f->ctx->n_model; m++)
        weft_buf_printf(&f->conf, "    monitor fail if { nbsrv(h-%s) lt 1 }\n", f->route[m].model);
    weft_buf_puts(&f->conf,
                  "    http-request return status 200 if { path /v2/health/live }\n"
                  "    use_backend h-%[path,field(4,/),url_dec] if { path_beg /v2/models/ }\n"
                  "    use_backend workers if { path /v2 }\n"
                  "    default_backend unknown\n");
}

/* The message of a call is waited for as a whole, to be read, and sent again if need be. Methods
 * that have no model, and streams, which workers refuse, go to any worker. */
static void write_grpc(front *f)
{
    weft_buf_puts(&f->conf, "\nfrontend grpc\n");
    write_bind(f, 1, " proto h2", "alpn h2");
    weft_buf_puts(
        &f->conf,
        "    acl any path -m end /ServerLive /ServerReady /ServerMetadata /ModelStreamInfer\n"
        "    acl any path_beg /grpc.health.v1.Health/\n"
        "    http-request wait-for-body time 30s if !any\n"
        "    http-request set-var(txn.model) req.body,ungrpc(1) if !any\n"
        "    http-request set-var(txn.model) req.hdr(x-model) if { req.hdr(x-model) -m found }\n"
        "    use_backend grpc-workers if any\n"
        "    use_backend g-%[var(txn.model)] if { var(txn.model) -m len gt 0 }\n"
        "    default_backend grpc-unknown\n");
}

static void write_metrics(front *f)
{
    weft_buf_printf(&f->conf,
                    "\nfrontend metrics\n"
                    "    bind %s:%u\n"
                    "    http-request use-service prometheus-exporter if { path /metrics }\n"
                    "    http-request return status 404\n",
                    weft_export__host_of(f->ctx->arena, f->ctx->front_host),
                    f->ctx->front_port + 2);
}

/* Towards a worker. Its certificate is verified, for one name that those of all workers have: they
 * are asked by address. */
static const char *tls_of(front *f, bool grpc)
{
    const weft_export_options *o = &f->ctx->o;
    return o->worker_tls ? weft_arena_printf(f->ctx->arena,
                                             " ssl alpn %s verify required ca-file %s/ca.crt "
                                             "verifyhost %s check-ssl check-alpn http/1.1",
                                             grpc ? "h2" : "http/1.1", o->worker_tls, o->name)
                         : "";
}

static void write_server(front *f, const char *backend, const export_worker *w, bool grpc,
                         uint32_t weight, bool alone)
{
    bool published = f->ctx->o.published;
    const char *address = published ? NO_ADDRESS : f->ctx->node[w->node].address;
    uint32_t connections = weft_export__connections_of(w);
    const patience *p = &f->patience;
    const char *fall =
        alone ? "fall 10"
              : weft_arena_printf(f->ctx->arena, "fall %u observe layer4 error-limit 1 on-error %s",
                                  p->fall, p->on_error);
    const char *options = weft_arena_printf(
        f->ctx->arena,
        "%s%s maxconn %u check port %u inter %ums fastinter %ums downinter %ums rise 2 %s",
        grpc ? "proto h2 check-proto h1" : "proto h1", tls_of(f, grpc), connections, w->port,
        p->check_ms, p->fast_ms, p->down_ms, fall);
    weft_buf_printf(&f->conf, "    server %s %s:%u weight %u %s%s\n", w->name, address,
                    grpc ? w->port + 1 : w->port, weight, options, published ? " disabled" : "");
    weft_buf_printf(&f->table, "%s %s %s %u %u %u %s\n", backend, w->name, address,
                    grpc ? w->port + 1 : w->port, w->port, weight, options);
}

static void write_backend(front *f, const export_route *r, bool grpc)
{
    const char *name = weft_arena_printf(f->ctx->arena, "%c-%s", grpc ? 'g' : 'h', r->model);
    weft_buf_printf(&f->conf,
                    "\nbackend %s\n"
                    "    http-check send meth GET uri /v2/models/%s/ready ver HTTP/1.1 hdr Host "
                    "weft\n"
                    "    http-check expect status 200\n",
                    name, r->model);
    for (uint32_t i = 0; i < r->n; i++)
        write_server(f, name, &f->ctx->worker[r->at[i].worker], grpc, r->at[i].weight, r->n == 1);
}

/* What no model answers: all workers, and none. */
static void write_others(front *f, bool grpc)
{
    const char *name = grpc ? "grpc-workers" : "workers";
    weft_buf_printf(&f->conf,
                    "\nbackend %s\n"
                    "    http-check send meth GET uri /v2/health/ready ver HTTP/1.1 hdr Host weft\n"
                    "    http-check expect status 200\n",
                    name);
    for (uint32_t i = 0; i < f->ctx->n_worker; i++)
        write_server(f, name, &f->ctx->worker[i], grpc, 1, f->ctx->n_worker == 1);
    weft_buf_puts(&f->conf,
                  grpc ? "\nbackend grpc-unknown\n"
                         "    http-request return status 200 hdr grpc-status 5 hdr grpc-message "
                         "\"unknown model; compressed messages name it in x-model\"\n"
                         "    http-after-response set-header content-type application/grpc\n"
                       : "\nbackend unknown\n"
                         "    http-request return status 404 content-type application/json string "
                         "'{\"error\":\"unknown model or path\"}'\n");
}

/* -- The exporter ----------------------------------------------------------------------------- */

weft_err weft_export__haproxy(export_ctx *ctx)
{
    if (!ctx->o.published)
        WEFT_TRY(weft_export__check_distinct(ctx));
    export_route *route = weft_export__routes(ctx);
    front f = {.ctx = ctx, .route = route, .patience = ctx->o.worker_tls ? of_tls : of_plain};
    size_t checks = 2 * (size_t)ctx->n_worker;
    for (uint32_t m = 0; m < ctx->n_model; m++) {
        weft_export__weigh_route(ctx, &route[m], WEIGHT_MAX);
        checks += 2 * (size_t)route[m].n;
    }
    uint32_t least_ms = (uint32_t)(checks * 1000 / CHECKS_PER_S);
    if (f.patience.check_ms < least_ms)
        f.patience.check_ms = least_ms;
    write_global(&f);
    write_http(&f);
    write_grpc(&f);
    write_metrics(&f);
    for (uint32_t m = 0; m < ctx->n_model; m++) {
        write_backend(&f, &f.route[m], false);
        write_backend(&f, &f.route[m], true);
    }
    write_others(&f, false);
    write_others(&f, true);
    weft_export__add(ctx, "haproxy.cfg", weft_buf_keep(&f.conf, ctx->arena), false);
    weft_export__add(ctx, "servers", weft_buf_keep(&f.table, ctx->arena), false);
    weft_export__add(ctx, "update.sh", weft_export__script("haproxy_update.sh"), true);
    return WEFT_ERR_OK;
}
