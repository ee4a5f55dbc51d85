/* Exports to Slurm: lines for slurm.conf and gres.conf, and a job for each worker.
 *
 *   slurm-nodes.conf   nodes with their gres, for inclusion in slurm.conf
 *   gres.conf          device files of whole GPUs, each with 100 mps if the plan has shares there.
 *                      MIG instances are a gres "mig" with a count for each profile, because
 *                      Slurm's gpu plugin ignores resources without a device file, and the minor
 *                      numbers of instances are known only after they are created. (A slurmd that
 * is built with NVML can use AutoDetect=nvml and gpu:PROFILE instead.) jobs/WORKER.sh     a job for
 * sbatch on the node of the plan, with the gres of the worker. A MIG worker reads its device from
 * CONFIG/devices/WORKER.env, which NODE-devices.sh writes on the node plans/WORKER.json  plan of
 * the worker, for CONFIG/plans on the nodes */
#include "scheduler/export/export_int.h"

#include <stdio.h>
#include <string.h>

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

static bool has_kind(const export_ctx *ctx, weft_fleet_slice_kind kind)
{
    for (uint32_t i = 0; i < ctx->n_node; i++)
        if (ctx->node[i].kind == kind)
            return true;
    return false;
}

static void write_node(const export_ctx *ctx, const export_node *node, weft_buf *conf,
                       weft_buf *gres)
{
    const char *sep = " Gres=";
    uint32_t cores = 0;
    uint64_t memory_mib = 0; /* a job may not ask for more than its node has */
    for (uint32_t i = node->first; i < node->first + node->n; i++) {
        cores += node->kind == WEFT_SLICE_CORES ? ctx->worker[i].cores : 1;
        memory_mib += weft_export__memory_mib(&ctx->worker[i]);
    }
    weft_buf_printf(conf, "NodeName=%s CPUs=%u", node->name, cores ? cores : 1);
    if (memory_mib)
        weft_buf_printf(conf, " RealMemory=%llu", (unsigned long long)memory_mib);
    if (node->kind == WEFT_SLICE_MIG)
        for (uint32_t i = node->first; i < node->first + node->n; i++) {
            const char *slice = ctx->worker[i].slice;
            if (!is_first(ctx, node, i))
                continue;
            uint32_t n = count_slices(ctx, node, slice);
            weft_buf_printf(conf, "%smig:%s:%u", sep, slice, n);
            weft_buf_printf(gres, "NodeName=%s Name=mig Type=%s Count=%u\n", node->name, slice, n);
            sep = ",";
        }
    if (node->kind == WEFT_SLICE_WHOLE || node->kind == WEFT_SLICE_MPS) {
        weft_buf_printf(conf, "%sgpu:%s:%u", sep, node->type, node->n_gpu);
        for (uint32_t k = 0; k < node->n_gpu; k++)
            weft_buf_printf(gres, "NodeName=%s Name=gpu Type=%s File=/dev/nvidia%u\n", node->name,
                            node->type, k);
    }
    if (node->kind == WEFT_SLICE_MPS) {
        weft_buf_printf(conf, ",mps:%u", 100 * node->n_gpu);
        for (uint32_t k = 0; k < node->n_gpu; k++)
            weft_buf_printf(gres, "NodeName=%s Name=mps Count=100 File=/dev/nvidia%u\n", node->name,
                            k);
    }
    weft_buf_puts(conf, " State=UNKNOWN\n");
}

static void write_job(export_ctx *ctx, const export_worker *w)
{
    weft_buf buf = {0};
    weft_buf_printf(&buf,
                    "#!/bin/sh\n"
                    "#SBATCH --job-name=%s\n"
                    "#SBATCH --nodelist=%s\n"
                    "#SBATCH --ntasks=1\n"
                    "#SBATCH --cpus-per-task=%u\n"
                    "#SBATCH --signal=TERM@40\n",
                    w->name, ctx->node[w->node].name, w->cores ? w->cores : 1);
    uint64_t memory_mib = weft_export__memory_mib(w);
    if (memory_mib)
        weft_buf_printf(&buf, "#SBATCH --mem=%lluM\n", (unsigned long long)memory_mib);
    if (w->kind == WEFT_SLICE_MIG)
        weft_buf_printf(&buf, "#SBATCH --gres=mig:%s:1\n", w->slice);
    else if (w->kind == WEFT_SLICE_WHOLE)
        weft_buf_printf(&buf, "#SBATCH --gres=gpu:%s:1\n", w->type);
    else if (w->kind == WEFT_SLICE_MPS)
        weft_buf_printf(&buf, "#SBATCH --gres=mps:%u\n", w->percent);
    weft_buf_puts(&buf, "set -eu\numask 077\n");
    if (w->kind == WEFT_SLICE_MIG)
        weft_buf_printf(&buf, ". %s/devices/%s.env\nexport CUDA_VISIBLE_DEVICES\n", ctx->o.config,
                        w->name);
    if (w->kind == WEFT_SLICE_MPS)
        weft_buf_printf(&buf, "export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%u\n", w->percent);
    weft_buf_printf(&buf, "exec srun setpriv --no-new-privs %s\n",
                    weft_export__command(ctx, w, ctx->node[w->node].address));
    weft_export__add(ctx, weft_arena_printf(ctx->arena, "jobs/%s.sh", w->name),
                     buf.at ? buf.at : "", true);
    weft_buf_finish(&buf);
}

weft_err weft_export__slurm(export_ctx *ctx)
{
    weft_buf conf = {0}, gres = {0};
    weft_buf_printf(
        &conf,
        "# Include from slurm.conf. Node names are those of the plan: rename them here, in\n"
        "# gres.conf and in the jobs, or set NodeHostname.\n"
        "GresTypes=gpu%s%s\n"
        "SelectType=select/cons_tres\n",
        has_kind(ctx, WEFT_SLICE_MPS) ? ",mps" : "", has_kind(ctx, WEFT_SLICE_MIG) ? ",mig" : "");
    weft_buf_puts(&gres,
                  "# MIG instances are counted; jobs take theirs from devices/WORKER.env.\n");
    for (uint32_t i = 0; i < ctx->n_node; i++) {
        write_node(ctx, &ctx->node[i], &conf, &gres);
        weft_export__add_devices(ctx, &ctx->node[i],
                                 weft_arena_printf(ctx->arena, "%s-devices.sh", ctx->node[i].name));
    }
    weft_buf_printf(&conf, "PartitionName=%s Nodes=", ctx->o.name);
    for (uint32_t i = 0; i < ctx->n_node; i++)
        weft_buf_printf(&conf, "%s%s", i ? "," : "", ctx->node[i].name);
    weft_buf_puts(&conf, " MaxTime=INFINITE State=UP\n");
    bool failed = conf.failed || gres.failed;
    if (!failed) {
        weft_export__add(ctx, "slurm-nodes.conf", conf.at, false);
        weft_export__add(ctx, "gres.conf", gres.at, false);
    }
    weft_buf_finish(&conf);
    weft_buf_finish(&gres);
    for (uint32_t i = 0; i < ctx->n_worker && !failed; i++) {
        write_job(ctx, &ctx->worker[i]);
        weft_export__add(ctx, weft_arena_printf(ctx->arena, "plans/%s.json", ctx->worker[i].name),
                         ctx->worker[i].plan, false);
    }
    return failed ? WEFT_ERR_NOMEM : WEFT_ERR_OK;
}
