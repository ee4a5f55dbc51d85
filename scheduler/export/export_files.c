/* What several exporters need: labels, files, the command line of a worker, and the script that
 * finds its MIG instance. */
#include "scheduler/export/export_int.h"

#include "base/hash.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* -- Names ------------------------------------------------------------------------------------ */

const char *weft_export__label(weft_arena *arena, const char *text, size_t max)
{
    size_t len = strlen(text);
    bool changed = len > max;
    char *label = weft_arena_alloc(arena, len + max + 16);
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        char c = (char)tolower((unsigned char)text[i]);
        bool fits = islower((unsigned char)c) || isdigit((unsigned char)c) || c == '-';
        label[n++] = fits ? c : '-';
        changed = changed || !fits || c != text[i];
    }
    while (n > 0 && label[n - 1] == '-') {
        n--;
        changed = true;
    }
    label[n] = 0;
    if (!changed)
        return label;
    uint64_t hash = weft_hash64(text, len, 0);
    if (n > max - 9)
        n = max - 9;
    snprintf(label + n, 10, "-%08x", (unsigned)(hash & 0xffffffffu));
    return label;
}

/* -- Files ------------------------------------------------------------------------------------ */

void weft_export__add(export_ctx *ctx, const char *path, const char *text, bool executable)
{
    weft_export_file file = {.path = path,
                             .text = weft_arena_strdup(ctx->arena, text),
                             .len = strlen(text),
                             .executable = executable};
    WEFT_VEC_PUSH(ctx->arena, &ctx->files, file);
}

const char *weft_export__script(const char *name)
{
    const export_script *s = weft_export__scripts;
    while (s->name && strcmp(s->name, name) != 0)
        s++;
    return s->text;
}

void weft_export__add_devices(export_ctx *ctx, const export_node *node, const char *path)
{
    weft_buf buf = {0};
    if (node->kind != WEFT_SLICE_MIG)
        return;
    weft_buf_printf(
        &buf,
        "#!/bin/sh\n"
        "# Finds the MIG instance of each worker of %s and writes it to\n"
        "# %s/devices/WORKER.env (or the folder that the first argument names). With names of\n"
        "# workers as further arguments, of those only: instances that no other file names.\n"
        "set -eu\n"
        "dir=${1:-%s/devices}\n"
        "[ $# -eq 0 ] || shift\n"
        "only=\" $* \"\n"
        "mkdir -p \"$dir\"\n"
        "list=$(nvidia-smi -L)\n"
        "missing=0\n"
        "# worker NAME GPU PROFILE NUMBER\n"
        "worker() {\n"
        "    used= nth=$4\n"
        "    case \"$only\" in \"  \" | *\" $1 \"*) rm -f \"$dir/$1.env\" ;; *) return ;; esac\n"
        "    [ \"$only\" = \"  \" ] || { nth=0; used=$(cat \"$dir\"/*.env 2>/dev/null | tr '\\n' ' "
        "'); }\n"
        "    uuid=$(printf '%%s\\n' \"$list\" | awk -v gpu=\"$2\" -v profile=\"$3\" "
        "-v nth=\"$nth\" -v used=\"$used\" '\n"
        "        /^GPU / { at = $2; sub(\":\", \"\", at); n = 0 }\n"
        "        at == gpu && $1 == \"MIG\" && $2 == profile {\n"
        "            sub(/.*UUID: /, \"\"); sub(/[)].*/, \"\")\n"
        "            if (!index(used, \"=\" $0 \" \") && n++ == nth) print }')\n"
        "    [ -n \"$uuid\" ] || { echo \"GPU $2 has no instance of $3 for $1\" >&2; missing=1; "
        "return; }\n"
        "    printf 'CUDA_VISIBLE_DEVICES=%%s\\n' \"$uuid\" >\"$dir/$1.env\"\n"
        "}\n",
        node->name, ctx->o.config, ctx->o.config);
    for (uint32_t i = node->first; i < node->first + node->n; i++)
        weft_buf_printf(&buf, "worker %s %u %s %u\n", ctx->worker[i].name, ctx->worker[i].gpu,
                        ctx->worker[i].slice, ctx->worker[i].nth);
    weft_buf_puts(&buf, "exit $missing\n");
    weft_export__add(ctx, path, buf.at ? buf.at : "", true);
    weft_buf_finish(&buf);
}

/* Memory of a worker on CPUs: three times what the plan counts for its models (what they use, as
 * much again for requests, and the copy of the bundle), and what the server may hold besides: 2 GiB
 * more in the worker, 1 GiB of bodies for each transport, and itself. */
enum { TIMES_PLANNED = 3, SERVER_MIB = 5 << 10 };

uint64_t weft_export__memory_mib(const export_worker *w)
{
    uint64_t planned = 0, mib = (uint64_t)1 << 20;
    for (uint32_t i = 0; i < w->n; i++) {
        if (w->at[i]->mem_bytes == 0)
            return 0;
        planned += w->at[i]->mem_bytes;
    }
    if (w->kind != WEFT_SLICE_CORES || planned >= UINT64_MAX / (2 * TIMES_PLANNED))
        return 0;
    return (TIMES_PLANNED * planned + mib - 1) / mib + SERVER_MIB;
}

/* Memory of the host for a GPU's worker: what its models take on the GPU is read through it. */
enum { GPU_HOST_MIB = 4 << 10 };

uint64_t weft_export__request_mib(const export_worker *w)
{
    uint64_t mib = GPU_HOST_MIB;
    if (w->kind == WEFT_SLICE_CORES)
        return weft_export__memory_mib(w);
    for (uint32_t i = 0; i < w->n; i++)
        mib += w->at[i]->mem_bytes >> 20;
    return mib;
}

const char *weft_export__command(const export_ctx *ctx, const export_worker *w, const char *address)
{
    return weft_arena_printf(ctx->arena,
                             "%s serve %s %s/plans/%s.json --address %s --http %u --grpc %u "
                             "--metrics %u",
                             ctx->o.weft, ctx->o.bundle, ctx->o.config, w->name, address, w->port,
                             w->port + 1, w->port + 2);
}

const char *weft_export__bundle_folder(const export_ctx *ctx)
{
    const char *slash = strrchr(ctx->o.bundle, '/');
    return weft_arena_strndup(ctx->arena, ctx->o.bundle, (size_t)(slash - ctx->o.bundle));
}

const char *weft_export__pull(const export_ctx *ctx)
{
    return weft_arena_printf(ctx->arena, "%s pull %s %s -o %s --have %s", ctx->o.weft, ctx->o.store,
                             ctx->o.digest, ctx->o.bundle, weft_export__bundle_folder(ctx));
}
