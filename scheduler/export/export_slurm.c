/* Exports to Slurm: a job for each worker, and lines for slurm.conf and gres.conf.
 *
 * jobs/WORKER.sh is a job for sbatch with the gres of the worker: a head of its own, then the text
 * of slurm_job.sh. It serves CONFIG/plans/WORKER.json (exported as plans/WORKER.json). A MIG worker
 * reads its device from CONFIG/devices/WORKER.env, which NODE-devices.sh writes on the node.
 * addresses.sh prints where the workers listen, for a front.
 *
 * slurm-nodes.conf and gres.conf have the nodes and their gres, for sites that do not have them
 * yet; nothing in them changes what a site has chosen. gres.conf has the device files of whole
 * GPUs, each with 100 mps if the plan has shares there. MIG instances are a gres "mig" with a count
 * for each profile, because Slurm's gpu plugin ignores resources without a device file, and the
 * minor numbers of instances are known only after they are created. (A slurmd that is built with
 * NVML can use AutoDetect=nvml and gpu:PROFILE instead.) */
#include "scheduler/export/export_int.h"

#include <stdio.h>
#include <string.h>

#define next_gpu weft_export__next_gpu

/* -- What a job asks for, and its node has ---------------------------------------------------- */

static uint32_t cpus_of(const export_worker *w)
{
    if (w->kind != WEFT_SLICE_CORES)
        return WEFT_EXPORT_GPU_CPUS;
    return w->cores ? w->cores : 1;
}

/* -- Nodes ------------------------------------------------------------------------------------ */

static uint32_t count_slices(const export_ctx *ctx, const export_node *node, const char *slice)
{
    uint32_t n = 0;
    for (uint32_t i = node->first; i < node->first + node->n; i++)
        n += strcmp(ctx->worker[i].slice, slice) == 0;
    return n;
}

/* Whether worker i is the first of its node with this slice name. */
static bool is_first(const export_ctx *ctx, const export_node *node, uint32_t i)
{
    for (uint32_t k = node->first; k < i; k++)
        if (strcmp(ctx->worker[k].slice, ctx->worker[i].slice) == 0)
            return false;
    return true;
}

/* The gres of a node; `sep` begins the first of them. */
static void write_gres(const export_ctx *ctx, const export_node *node, weft_buf *conf,
                       weft_buf *gres)
{
    const char *sep = " Gres=", *name = node->address;
    if (node->kind == WEFT_SLICE_MIG)
        for (uint32_t i = node->first; i < node->first + node->n; i++) {
            const char *slice = ctx->worker[i].slice;
            if (!is_first(ctx, node, i))
                continue;
            uint32_t n = count_slices(ctx, node, slice);
            weft_buf_printf(conf, "%smig:%s:%u", sep, slice, n);
            weft_buf_printf(gres, "NodeName=%s Name=mig Type=%s Count=%u\n", name, slice, n);
            sep = ",";
        }
    if (node->kind == WEFT_SLICE_WHOLE || node->kind == WEFT_SLICE_MPS) {
        weft_buf_printf(conf, "%sgpu:%s:%u", sep, node->type, node->n_gpu);
        for (uint32_t k = next_gpu(ctx, node, 0); k != UINT32_MAX; k = next_gpu(ctx, node, k + 1))
            weft_buf_printf(gres, "NodeName=%s Name=gpu Type=%s File=/dev/nvidia%u\n", name,
                            node->type, k);
    }
    if (node->kind == WEFT_SLICE_MPS) {
        weft_buf_printf(conf, ",mps:%u", 100 * node->n_gpu);
        for (uint32_t k = next_gpu(ctx, node, 0); k != UINT32_MAX; k = next_gpu(ctx, node, k + 1))
            weft_buf_printf(gres, "NodeName=%s Name=mps Count=100 File=/dev/nvidia%u\n", name, k);
    }
}

/* The first node of the plan with the address of the i-th. */
static uint32_t first_at(const export_ctx *ctx, uint32_t i)
{
    uint32_t k = 0;
    while (strcmp(ctx->node[k].address, ctx->node[i].address) != 0)
        k++;
    return k;
}

/* The node of Slurm that the i-th node of the plan is, with all others of the plan that it is. */
static void write_node(const export_ctx *ctx, uint32_t i, weft_buf *conf, weft_buf *gres)
{
    const char *name = ctx->node[i].address;
    uint32_t cpus = 0;
    uint64_t memory_mib = 0;
    if (first_at(ctx, i) != i)
        return;
    for (uint32_t w = 0; w < ctx->n_worker; w++) {
        const export_worker *worker = &ctx->worker[w];
        if (strcmp(ctx->node[worker->node].address, name) != 0)
            continue;
        cpus += cpus_of(worker);
        memory_mib += weft_export__request_mib(worker);
    }
    weft_buf_printf(conf, "NodeName=%s CPUs=%u", name, cpus);
    if (memory_mib)
        weft_buf_printf(conf, " RealMemory=%llu", (unsigned long long)memory_mib);
    for (uint32_t k = i; k < ctx->n_node; k++)
        if (strcmp(ctx->node[k].address, name) == 0)
            write_gres(ctx, &ctx->node[k], conf, gres);
    weft_buf_puts(conf, " State=UNKNOWN\n");
}

/* Names of Slurm's nodes; GPUs are numbered on each node of the plan. */
static weft_err check_nodes(const export_ctx *ctx)
{
    for (uint32_t i = 0; i < ctx->n_node; i++) {
        const export_node *node = &ctx->node[i];
        if (!weft_export__is_host_name(node->address))
            return weft_export__fail(ctx, node->name,
                                     "is no name of a node of Slurm:", node->address);
        for (uint32_t k = 0; k < i && node->kind != WEFT_SLICE_CORES; k++)
            if (ctx->node[k].kind != WEFT_SLICE_CORES &&
                strcmp(ctx->node[k].address, node->address) == 0)
                return weft_diag_error(ctx->diag, WEFT_ERR_INPUT,
                                       (weft_where){.file = ctx->o.nodes_path},
                                       "nodes '%s' and '%s', both with GPUs, have one name",
                                       ctx->node[k].name, node->name);
    }
    return WEFT_ERR_OK;
}

/* -- Jobs ------------------------------------------------------------------------------------- */

static const char *option_of(const export_ctx *ctx, const char *key)
{
    size_t len = strlen(key);
    for (size_t i = 0; i < ctx->o.n_sbatch; i++)
        if (strncmp(ctx->o.sbatch[i], key, len) == 0 && ctx->o.sbatch[i][len] == '=')
            return ctx->o.sbatch[i] + len + 1;
    return NULL;
}

/* Every job asks for memory: without, it would get all of its node. */
static void write_resources(const export_ctx *ctx, const export_worker *w, weft_buf *buf)
{
    uint64_t mib = weft_export__request_mib(w);
    if (!option_of(ctx, "cpus-per-task"))
        weft_buf_printf(buf, "#SBATCH --cpus-per-task=%u\n", cpus_of(w));
    if (mib && !option_of(ctx, "mem"))
        weft_buf_printf(buf, "#SBATCH --mem=%lluM\n", (unsigned long long)mib);
    if (w->kind == WEFT_SLICE_MIG)
        weft_buf_printf(buf, "#SBATCH --gres=mig:%s:1\n", w->slice);
    else if (w->kind == WEFT_SLICE_WHOLE)
        weft_buf_printf(buf, "#SBATCH --gres=gpu:%s:1\n", w->type);
    else if (w->kind == WEFT_SLICE_MPS)
        weft_buf_printf(buf, "#SBATCH --gres=mps:%u\n", w->percent);
    for (size_t i = 0; i < ctx->o.n_sbatch; i++)
        weft_buf_printf(buf, "#SBATCH --%s\n", ctx->o.sbatch[i]);
}

/* The instances of MIG are known by node. */
static void write_job(export_ctx *ctx, const export_worker *w)
{
    weft_buf buf = {0};
    weft_buf_printf(&buf,
                    "#!/bin/sh\n"
                    "#SBATCH --job-name=%s\n"
                    "#SBATCH --ntasks=1\n"
                    "#SBATCH --requeue\n"
                    "#SBATCH --open-mode=append\n"
                    "#SBATCH --signal=B:USR1@90\n",
                    w->name);
    if (ctx->o.nodes || w->kind == WEFT_SLICE_MIG)
        weft_buf_printf(&buf, "#SBATCH --nodelist=%s\n", ctx->node[w->node].address);
    write_resources(ctx, w, &buf);
    weft_buf_puts(&buf, "set -eu\numask 077\n");
    if (w->kind == WEFT_SLICE_MIG)
        weft_buf_printf(&buf, ". %s/devices/%s.env\nexport CUDA_VISIBLE_DEVICES\n", ctx->o.config,
                        w->name);
    if (w->kind == WEFT_SLICE_MPS)
        weft_buf_printf(&buf, "export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%u\n", w->percent);
    if (ctx->o.store)
        weft_buf_printf(&buf, "%s\n", weft_export__pull(ctx));
    const char *tls = ctx->o.worker_tls;
    weft_buf_printf(
        &buf, "tls='%s'\n",
        tls ? weft_arena_printf(ctx->arena, "--tls-cert %s/tls.crt --tls-key %s/tls.key", tls, tls)
            : "");
    weft_buf_printf(&buf, "name=%s weft=%s bundle=%s plan=%s/plans/%s.json\n%s", w->name,
                    ctx->o.weft, ctx->o.bundle, ctx->o.config, w->name,
                    weft_export__script("slurm_job.sh"));
    weft_export__add(ctx, weft_arena_printf(ctx->arena, "jobs/%s.sh", w->name),
                     weft_buf_keep(&buf, ctx->arena), true);
}

/* -- The exporter ----------------------------------------------------------------------------- */

weft_err weft_export__slurm(export_ctx *ctx)
{
    weft_buf conf = {0}, gres = {0};
    WEFT_TRY(check_nodes(ctx));
    weft_buf_puts(
        &conf,
        "# The nodes as the plan needs them, for a slurm.conf that does not have them yet.\n"
        "# GresTypes, SelectType and partitions are the site's: GresTypes needs gpu, and mps\n"
        "# or mig where they stand below.\n");
    weft_buf_puts(&gres,
                  "# MIG instances are counted; jobs take theirs from devices/WORKER.env.\n");
    for (uint32_t i = 0; i < ctx->n_node; i++) {
        write_node(ctx, i, &conf, &gres);
        weft_export__add_devices(ctx, &ctx->node[i],
                                 weft_arena_printf(ctx->arena, "%s-devices.sh", ctx->node[i].name));
    }
    weft_export__add(ctx, "slurm-nodes.conf", weft_buf_keep(&conf, ctx->arena), false);
    weft_export__add(ctx, "gres.conf", weft_buf_keep(&gres, ctx->arena), false);
    weft_export__add(ctx, "addresses.sh", weft_export__script("slurm_addresses.sh"), true);
    for (uint32_t i = 0; i < ctx->n_worker; i++) {
        write_job(ctx, &ctx->worker[i]);
        weft_export__add(ctx, weft_arena_printf(ctx->arena, "plans/%s.json", ctx->worker[i].name),
                         ctx->worker[i].plan, false);
    }
    return WEFT_ERR_OK;
}
