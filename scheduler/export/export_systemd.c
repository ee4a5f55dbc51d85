/* Exports to systemd: a folder for each node, with a service for each worker and a target for all.
 *
 *   NODE/WORKER.service, NODE/NAME.target   for /etc/systemd/system; systemctl start NAME.target
 *   NODE/devices.sh                    to be run as root after the MIG instances are created:
 * writes CONFIG/devices/WORKER.env with CUDA_VISIBLE_DEVICES NODE/plans/WORKER.json plan of the
 * worker, for CONFIG/plans
 *
 * With a store, NODE/NAME-bundle-HEX.service gets the bundle before the workers of the node start;
 * another bundle is another service, so that a worker that starts again waits for it.
 *
 * A worker with an MPS share, or with several processes on a slice, needs the MPS control daemon of
 * its GPU or instance, which is a separate service with its pipe under /run. */
#include "scheduler/export/export_int.h"

#include <stdio.h>
#include <string.h>

/* Above the time in which the server prepares its models (--start-timeout). */
enum { START_TIMEOUT_S = 330 };

/* The name of the MPS daemon that a worker needs; NULL: none. */
static const char *mps_of(const export_ctx *ctx, const export_worker *w)
{
    if (w->kind == WEFT_SLICE_MIG && w->clients > 1)
        return weft_arena_printf(ctx->arena, "%s-mps", w->name);
    if (w->kind == WEFT_SLICE_MPS || (w->kind == WEFT_SLICE_WHOLE && w->clients > 1))
        return weft_arena_printf(ctx->arena, "%s-mps-gpu%u", ctx->o.name, w->gpu);
    return NULL;
}

static void write_device(const export_ctx *ctx, const export_worker *w, weft_buf *buf)
{
    if (w->kind == WEFT_SLICE_MIG)
        weft_buf_printf(buf, "EnvironmentFile=%s/devices/%s.env\n", ctx->o.config, w->name);
    else if (w->kind != WEFT_SLICE_CORES)
        weft_buf_printf(buf, "Environment=CUDA_VISIBLE_DEVICES=%u\n", w->gpu);
}

static void add_unit(export_ctx *ctx, const export_worker *w, const char *unit, weft_buf *buf)
{
    weft_export__add(ctx,
                     weft_arena_printf(ctx->arena, "%s/%s.service", ctx->node[w->node].name, unit),
                     buf->at ? buf->at : "", false);
    weft_buf_finish(buf);
}

/* What no service of ours needs. */
static void write_common(weft_buf *buf)
{
    weft_buf_puts(buf, "ProtectSystem=strict\n"
                       "NoNewPrivileges=yes\n"
                       "ProtectKernelTunables=yes\n"
                       "ProtectKernelModules=yes\n"
                       "ProtectKernelLogs=yes\n"
                       "ProtectControlGroups=yes\n"
                       "ProtectHostname=yes\n"
                       "ProtectProc=invisible\n"
                       "RestrictSUIDSGID=yes\n"
                       "RestrictRealtime=yes\n"
                       "RestrictNamespaces=yes\n"
                       "LockPersonality=yes\n"
                       "KeyringMode=private\n"
                       "SystemCallArchitectures=native\n");
}

/* The daemon runs as root and starts its servers as the users of their clients, who must reach its
 * pipes (no UMask). */
static void write_mps(export_ctx *ctx, const export_worker *w, const char *mps)
{
    weft_buf buf = {0};
    weft_buf_printf(&buf,
                    "[Unit]\n"
                    "Description=CUDA MPS control daemon %s\n\n"
                    "[Service]\n"
                    "Type=exec\n",
                    mps);
    write_device(ctx, w, &buf);
    weft_buf_printf(&buf,
                    "Environment=CUDA_MPS_PIPE_DIRECTORY=/run/%s\n"
                    "Environment=CUDA_MPS_LOG_DIRECTORY=/var/log/%s\n"
                    "RuntimeDirectory=%s\n"
                    "RuntimeDirectoryMode=0755\n"
                    "LogsDirectory=%s\n"
                    "ExecStart=/usr/bin/env nvidia-cuda-mps-control -f\n"
                    "Restart=on-failure\n",
                    mps, mps, mps, mps);
    write_common(&buf);
    weft_buf_puts(&buf, "ProtectHome=yes\nRestrictAddressFamilies=AF_UNIX AF_NETLINK\n");
    add_unit(ctx, w, mps, &buf);
}

/* What the worker may do. Kernels are generated when models are prepared (no
 * MemoryDenyWriteExecute), CPUs and memory are read from /proc (no ProcSubset), threads are bound
 * to CPUs (no ~@resources). A bundle is copied into the private /var/tmp. */
static void write_sandbox(const export_worker *w, weft_buf *buf)
{
    weft_buf_puts(buf, "DynamicUser=yes\n"
                       "ProtectHome=read-only\n"
                       "PrivateTmp=yes\n"
                       "UMask=0077\n"
                       "CapabilityBoundingSet=\n"
                       "AmbientCapabilities=\n"
                       "SystemCallFilter=@system-service\n"
                       "SystemCallErrorNumber=EPERM\n"
                       "OOMPolicy=continue\n");
    write_common(buf);
    if (w->kind == WEFT_SLICE_CORES) {
        weft_buf_puts(buf, "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6\n"
                           "PrivateDevices=yes\n"
                           "ProtectClock=yes\n");
        return;
    }
    /* Nodes that do not exist when the service starts are not allowed later: the driver makes them
     * when it is loaded (nvidia-modprobe, nvidia-persistenced). */
    weft_buf_puts(buf, "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK\n"
                       "DevicePolicy=closed\n"
                       "DeviceAllow=/dev/nvidiactl rw\n"
                       "DeviceAllow=/dev/nvidia-uvm rw\n"
                       "DeviceAllow=/dev/nvidia-uvm-tools rw\n"
                       "DeviceAllow=char-nvidia rw\n"
                       "DeviceAllow=char-nvidia-frontend rw\n"
                       "DeviceAllow=char-nvidia-caps r\n"
                       "LimitMEMLOCK=infinity\n");
}

/* The service that gets the bundle; NULL: it is there. */
static const char *bundle_of(const export_ctx *ctx)
{
    return ctx->o.store ? weft_arena_printf(ctx->arena, "%s-bundle-%.16s", ctx->o.name,
                                            strchr(ctx->o.digest, ':') + 1)
                        : NULL;
}

/* Runs as root, for the folder is nobody else's, and writes there only; the folder is made before
 * (+: outside of the sandbox, which cannot be built around a missing one). What fails is tried
 * again in the service: if the service failed, systemd would give up its workers. */
static void write_bundle(export_ctx *ctx, const export_node *node)
{
    weft_buf buf = {0};
    weft_buf_printf(&buf,
                    "[Unit]\n"
                    "Description=Weft: bundle %s\n"
                    "Wants=network-online.target\n"
                    "After=network-online.target\n\n"
                    "[Service]\n"
                    "Type=oneshot\n"
                    "RemainAfterExit=yes\n"
                    "TimeoutStartSec=infinity\n"
                    "ExecStartPre=+/bin/mkdir -p %s\n"
                    "ExecStart=/bin/sh -c 'until %s; do sleep 5; done'\n"
                    "ReadWritePaths=%s\n"
                    "ProtectHome=read-only\n"
                    "PrivateTmp=yes\n"
                    "PrivateDevices=yes\n"
                    "ProtectClock=yes\n"
                    "CapabilityBoundingSet=\n"
                    "SystemCallFilter=@system-service\n"
                    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6\n",
                    ctx->o.digest, weft_export__bundle_folder(ctx), weft_export__pull(ctx),
                    weft_export__bundle_folder(ctx));
    write_common(&buf);
    weft_export__add(ctx,
                     weft_arena_printf(ctx->arena, "%s/%s.service", node->name, bundle_of(ctx)),
                     weft_buf_keep(&buf, ctx->arena), false);
}

static void write_worker(export_ctx *ctx, const export_worker *w, const char *mps)
{
    weft_buf buf = {0};
    const char *bundle = bundle_of(ctx);
    weft_buf_puts(&buf, "[Unit]\nDescription=Weft:");
    for (size_t i = 0; i < w->n_model; i++)
        weft_buf_printf(&buf, " %s", w->model[i]);
    weft_buf_printf(&buf, " on %s %u %s\nAfter=network.target%s%s%s\n", w->type, w->device,
                    w->slice[0] ? w->kind == WEFT_SLICE_MPS ? "(share)" : w->slice : "(whole)",
                    mps ? " " : "", mps ? mps : "", mps ? ".service" : "");
    if (mps)
        weft_buf_printf(&buf, "Requires=%s.service\n", mps);
    if (bundle)
        weft_buf_printf(&buf, "Requires=%s.service\nAfter=%s.service\n", bundle, bundle);
    weft_buf_printf(&buf,
                    "PartOf=%s.target\n\n[Service]\n"
                    "Type=notify\n"
                    "NotifyAccess=main\n"
                    "WatchdogSec=30\n"
                    "TimeoutStartSec=%d\n",
                    ctx->o.name, START_TIMEOUT_S);
    write_device(ctx, w, &buf);
    if (mps)
        weft_buf_printf(&buf, "Environment=CUDA_MPS_PIPE_DIRECTORY=/run/%s\n", mps);
    if (w->kind == WEFT_SLICE_MPS)
        weft_buf_printf(&buf, "Environment=CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%u\n", w->percent);
    weft_buf_printf(&buf, "ExecStart=%s%s\n",
                    weft_export__command(ctx, w, ctx->node[w->node].address),
                    ctx->o.worker_tls ? " --tls-cert %d/tls.crt --tls-key %d/tls.key" : "");
    if (ctx->o.worker_tls) /* read as root, for a user that may not */
        weft_buf_printf(&buf,
                        "LoadCredential=tls.crt:%s/tls.crt\n"
                        "LoadCredential=tls.key:%s/tls.key\n",
                        ctx->o.worker_tls, ctx->o.worker_tls);
    weft_buf_puts(&buf, "Restart=on-failure\n"
                        "RestartSec=1\n"
                        "KillMode=mixed\n"
                        "TimeoutStopSec=40\n");
    uint64_t memory_mib = weft_export__memory_mib(w);
    if (memory_mib)
        weft_buf_printf(&buf, "MemoryMax=%lluM\n", (unsigned long long)memory_mib);
    write_sandbox(w, &buf);
    weft_buf_printf(&buf, "\n[Install]\nWantedBy=%s.target\n", ctx->o.name);
    add_unit(ctx, w, w->name, &buf);
}

static void write_target(export_ctx *ctx, const export_node *node)
{
    weft_buf buf = {0};
    weft_buf_printf(&buf, "[Unit]\nDescription=Weft: all workers of %s\n", node->name);
    for (uint32_t i = node->first; i < node->first + node->n; i++)
        weft_buf_printf(&buf, "Wants=%s.service\n", ctx->worker[i].name);
    weft_buf_puts(&buf, "\n[Install]\nWantedBy=multi-user.target\n");
    weft_export__add(ctx, weft_arena_printf(ctx->arena, "%s/%s.target", node->name, ctx->o.name),
                     buf.at ? buf.at : "", false);
    weft_buf_finish(&buf);
}

/* A worker has a /tmp and a /var/tmp of its own. */
static void warn_of_temporary(const export_ctx *ctx)
{
    const char *const paths[] = {ctx->o.bundle, ctx->o.weft, ctx->o.config};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (strncmp(paths[i], "/tmp/", 5) == 0 || strncmp(paths[i], "/var/tmp/", 9) == 0)
            weft_diag_warn(
                ctx->diag, (weft_where){.item = paths[i]},
                "services do not see it, as they have a /tmp and a /var/tmp of their own");
}

weft_err weft_export__systemd(export_ctx *ctx)
{
    warn_of_temporary(ctx);
    WEFT_TRY(weft_export__check_distinct(ctx));
    for (uint32_t i = 0; i < ctx->n_node; i++) {
        const export_node *node = &ctx->node[i];
        const char *last = NULL;
        write_target(ctx, node);
        if (ctx->o.store)
            write_bundle(ctx, node);
        weft_export__add_devices(ctx, node,
                                 weft_arena_printf(ctx->arena, "%s/devices.sh", node->name));
        for (uint32_t k = node->first; k < node->first + node->n; k++) {
            const export_worker *w = &ctx->worker[k];
            const char *mps = mps_of(ctx, w);
            if (mps && (!last || strcmp(last, mps) != 0))
                write_mps(ctx, w, mps);
            last = mps ? mps : last;
            write_worker(ctx, w, mps);
            weft_export__add(ctx,
                             weft_arena_printf(ctx->arena, "%s/plans/%s.json", node->name, w->name),
                             w->plan, false);
        }
    }
    return WEFT_ERR_OK;
}
