/* Exports to mig-parted: for each node of GPUs one configuration with the name of the node.
 *
 *   nvidia-mig-parted apply -f mig-parted.yaml -c weft-h100-0
 *   kubectl label node NODE nvidia.com/mig.config=weft-h100-0      (GPU operator's MIG manager)
 *
 * The file states the number of instances of each profile, and the driver chooses their start
 * slots. Every legal multiset of instances has legal start slots, and the instances of a profile
 * are equal, so a worker finds its instance by profile and number. */
#include "scheduler/export/export_int.h"

#include <stdlib.h>
#include <string.h>

#define next weft_export__next_gpu

/* Writes the number of instances of a GPU by profile, in the order of the device table. */
static void write_instances(weft_export_yaml *y, const export_ctx *ctx, const export_node *node,
                            uint32_t gpu)
{
    const weft_device_type *type = weft_device_type_find(node->type);
    weft_export_yaml__open_map(y, "mig-devices");
    for (size_t i = 0; type && i < type->n_mig; i++) {
        uint32_t n = 0;
        for (uint32_t k = node->first; k < node->first + node->n; k++)
            n += ctx->worker[k].gpu == gpu && strcmp(ctx->worker[k].slice, type->mig[i].name) == 0;
        if (n > 0)
            weft_export_yaml__put_number(y, type->mig[i].name, n);
    }
    weft_export_yaml__end_map(y);
}

static bool same_instances(const export_ctx *ctx, const export_node *node, uint32_t a, uint32_t b)
{
    const weft_device_type *type = weft_device_type_find(node->type);
    for (size_t i = 0; type && i < type->n_mig; i++) {
        int diff = 0;
        for (uint32_t k = node->first; k < node->first + node->n; k++)
            if (strcmp(ctx->worker[k].slice, type->mig[i].name) == 0)
                diff += (ctx->worker[k].gpu == a) - (ctx->worker[k].gpu == b);
        if (diff != 0)
            return false;
    }
    return true;
}

/* Writes one entry for all GPUs with the same instances, at the first of them. */
static void write_gpu(weft_export_yaml *y, const export_ctx *ctx, const export_node *node,
                      uint32_t gpu)
{
    bool mig = node->kind == WEFT_SLICE_MIG;
    for (uint32_t k = next(ctx, node, 0); k < gpu; k = next(ctx, node, k + 1))
        if (!mig || same_instances(ctx, node, k, gpu))
            return;
    weft_export_yaml__map(y);
    weft_export_yaml__open_seq(y, "devices");
    for (uint32_t k = gpu; k != UINT32_MAX; k = next(ctx, node, k + 1))
        if (!mig || same_instances(ctx, node, gpu, k))
            weft_export_yaml__number(y, k);
    weft_export_yaml__end_seq(y);
    weft_export_yaml__put_bool(y, "mig-enabled", mig);
    if (mig) {
        write_instances(y, ctx, node, gpu);
    } else {
        weft_export_yaml__open_map(y, "mig-devices");
        weft_export_yaml__end_map(y);
    }
    weft_export_yaml__end_map(y);
}

weft_err weft_export__mig_parted(export_ctx *ctx)
{
    weft_export_yaml y;
    bool any = false;
    weft_export_yaml__begin(&y);
    weft_export_yaml__document(&y);
    weft_export_yaml__map(&y);
    weft_export_yaml__put(&y, "version", "v1");
    weft_export_yaml__open_map(&y, "mig-configs");
    for (uint32_t i = 0; i < ctx->n_node; i++) {
        const export_node *node = &ctx->node[i];
        if (node->kind == WEFT_SLICE_CORES)
            continue;
        any = true;
        weft_export_yaml__open_seq(&y, node->name);
        for (uint32_t gpu = next(ctx, node, 0); gpu != UINT32_MAX; gpu = next(ctx, node, gpu + 1))
            write_gpu(&y, ctx, node, gpu);
        weft_export_yaml__end_seq(&y);
    }
    weft_export_yaml__end_map(&y);
    weft_export_yaml__end_map(&y);
    char *text = weft_export_yaml__finish(&y);
    if (!text)
        return WEFT_ERR_NOMEM;
    weft_export__add(ctx, "mig-parted.yaml", text, false);
    free(text);
    return any ? WEFT_ERR_OK
               : weft_diag_error(ctx->diag, WEFT_ERR_INPUT, (weft_where){0},
                                 "the plan has no GPU: there is nothing for mig-parted");
}
