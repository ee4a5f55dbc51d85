/* Code of the CUDA driver: the choice of images for the device, kernels, and the execution of a
 * launch's commands. */
#include "runtime/cuda/drv_cuda_int.h"

#include "base/hash.h"
#include "base/num.h"
#include "base/pack.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- Images --------------------------------------------------------------------------------- */

/* Parses "sm_90", "sm_90a", "compute_80" into the number and the suffix. */
static bool read_arch(const char *text, const char *prefix, int *out, char *suffix)
{
    size_t n = strlen(prefix);
    char *end;
    if (strncmp(text, prefix, n) != 0 || text[n] < '0' || text[n] > '9')
        return false;
    long x = strtol(text + n, &end, 10);
    *suffix = *end;
    *out = (int)x;
    return x < 10000 && (*end == 0 || end[1] == 0);
}

/* How well machine code for `arch` fits a device of capability `cc`; < 0: it does not run. Code
 * runs on its own capability and on later ones of the same major number; with suffix a on its own
 * only, with suffix f within its family. */
static int fitness(int cc, int arch, char suffix)
{
    if (arch == cc)
        return INT32_MAX;
    bool same_major = arch / 10 == cc / 10 && arch < cc;
    return same_major && (suffix == 0 || suffix == 'f') ? arch : -1;
}

weft_err weft_cudev__choose_images(weft_engine *e, weft_diag *diag)
{
    weft_cudev *g = weft_cudev__of(e);
    const weft_bundle *b = e->bundle;
    const char *best_name = NULL;
    int best = -1, arch;
    char suffix;
    g->arch = b->n_arch;
    for (uint32_t i = 0; i < b->n_arch; i++) {
        int fit = read_arch(b->arch[i], "sm_", &arch, &suffix) ? fitness(g->cc, arch, suffix) : -1;
        if (fit > best) {
            best = fit;
            best_name = b->arch[i];
            g->arch = i;
        }
    }
    for (uint32_t i = 0; g->arch == b->n_arch && i < b->n_image; i++)
        if (read_arch(b->image[i].arch, "compute_", &arch, &suffix) && arch <= g->cc &&
            suffix == 0 && arch > best) {
            best = arch;
            best_name = b->image[i].arch;
        }
    if (!best_name && b->n_kernel)
        return weft_diag_error(diag, WEFT_ERR_NODEV, (weft_where){.file = g->name},
                               "the bundle is compiled for %s, this GPU is sm_%d: compile it with "
                               "--target sm_%d",
                               b->target && *b->target ? b->target : "no GPU", g->cc, g->cc);
    g->limits.arch = g->arch;
    snprintf(g->image, sizeof g->image, "%s", best_name ? best_name : "");
    for (uint32_t i = 0; i < b->n_image; i++)
        if (b->image[i].module < UINT32_MAX && b->image[i].module >= g->n_module)
            g->n_module = b->image[i].module + 1;
    if (g->n_module > b->n_image)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                               "the bundle's images name %u modules, but there are only %u images",
                               g->n_module, b->n_image);
    g->module = calloc((size_t)g->n_module + 1, sizeof *g->module);
    return g->module ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
}

void weft_cudev__unload_images(weft_cudev *g)
{
    for (uint32_t i = 0; i < g->n_module; i++)
        if (g->module[i])
            (void)g->cu->cuLibraryUnload(g->module[i]);
}

static weft_err refuse_image(weft_cudev *g, uint32_t module, const char *why, weft_diag *diag)
{
    return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = g->name},
                           "image of module %u for %s: %s", module, g->image, why);
}

/* An image that the driver rejects is an error of the bundle, unless the driver is too old for it.
 */
static weft_err check_load(weft_cudev *g, uint32_t module, weft_cu_result result, weft_diag *diag)
{
    weft_err err = weft_cudev__check(g, result, "cuLibraryLoadData", diag);
    if (err != WEFT_ERR_BUG)
        return err;
    if (result == WEFT_CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
        return weft_diag_error(diag, WEFT_ERR_NODEV, (weft_where){.file = g->name},
                               "image of module %u for %s needs a newer CUDA than the driver, "
                               "which supports %d.%d",
                               module, g->image, g->lib->version / 1000,
                               g->lib->version % 1000 / 10);
    return refuse_image(g, module, "the driver rejects it", diag);
}

static weft_err load_module(weft_engine *e, uint32_t module, weft_diag *diag)
{
    weft_cudev *g = weft_cudev__of(e);
    const weft_bundle *b = e->bundle;
    const weft_bundle_image *image = NULL;
    for (uint32_t i = 0; i < b->n_image && !image; i++)
        if (b->image[i].module == module && strcmp(b->image[i].arch, g->image) == 0)
            image = &b->image[i];
    if (!image)
        return refuse_image(g, module, "there is none", diag);
    if (b->file.len && weft_hash64(image->data, image->bytes, 0) != image->checksum)
        return refuse_image(g, module, "its checksum is wrong", diag);
    if (image->bytes == 0)
        return refuse_image(g, module, "it is empty", diag);
    /* The driver reads PTX as text. */
    if (g->arch == b->n_arch && image->data[image->bytes - 1] != 0)
        return refuse_image(g, module, "its text does not end with a zero byte", diag);
    return check_load(
        g, module,
        g->cu->cuLibraryLoadData(&g->module[module], image->data, NULL, NULL, 0, NULL, NULL, 0),
        diag);
}

/* -- Kernels -------------------------------------------------------------------------------- */

static weft_err find_kernel(weft_engine *e, uint32_t i, weft_diag *diag, weft_cu_kernel *out)
{
    weft_cudev *g = weft_cudev__of(e);
    const weft_bundle_kernel *k = &e->bundle->kernel[i];
    *out = g->kernel[i];
    if (*out)
        return WEFT_ERR_OK;
    if (k->module >= g->n_module)
        return refuse_image(g, k->module, "there is none", diag);
    if (!g->module[k->module])
        WEFT_TRY(load_module(e, k->module, diag));
    weft_cu_result result = g->cu->cuLibraryGetKernel(out, g->module[k->module], k->name);
    if (result == WEFT_CUDA_ERROR_NOT_FOUND)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = g->name},
                               "image of module %u for %s has no kernel %s", k->module, g->image,
                               k->name);
    WEFT_TRY(weft_cudev__check(g, result, "cuLibraryGetKernel", diag));
    /* More than 48 KiB of shared memory, static part included, must be requested explicitly. */
    if (k->shared_bytes)
        WEFT_TRY(weft_cudev__check(
            g,
            g->cu->cuKernelSetAttribute(WEFT_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                        (int)k->shared_bytes, *out, g->device),
            "cuKernelSetAttribute", diag));
    g->kernel[i] = *out;
    return WEFT_ERR_OK;
}

static size_t value_bytes(const weft_command_arg *v)
{
    return v->ref.at == WEFT_COMMAND_NO_REF ? 4 : 8;
}

/* The driver copies one argument per parameter of the kernel, so their numbers and sizes must
 * agree. */
static weft_err check_params(const weft_prep *p, const weft_command *s, weft_cu_kernel kernel)
{
    weft_cudev *g = weft_cudev__of(p->engine);
    size_t offset, bytes;
    if (!g->cu->cuKernelGetParamInfo)
        return WEFT_ERR_OK;
    bool sound = true;
    for (uint32_t i = 0; sound && i < s->n_arg; i++)
        sound = g->cu->cuKernelGetParamInfo(kernel, i, &offset, &bytes) == WEFT_CUDA_SUCCESS &&
                bytes == value_bytes(&s->arg[i]);
    if (sound &&
        g->cu->cuKernelGetParamInfo(kernel, s->n_arg, &offset, &bytes) == WEFT_CUDA_SUCCESS)
        sound = false;
    if (sound)
        return WEFT_ERR_OK;
    return weft_diag_error(p->diag, WEFT_ERR_INPUT, p->where,
                           "kernel %s does not take the %u arguments of its launch",
                           p->engine->bundle->kernel[s->kernel].name, s->n_arg);
}

/* -- Launches ------------------------------------------------------------------------------- */

static void destroy_launch(void *state)
{
    weft_cudev_launch *l = state;
    if (!l)
        return;
    for (uint32_t i = 0; l->gemm && i < l->commands->n; i++)
        weft_cudev__free_gemm(l->gemm[i]);
    for (uint32_t i = 0; l->conv && i < l->commands->n; i++)
        weft_cudev__free_conv(l->conv[i]);
    free(l->commands);
    free(l->kernel);
    free(l->row);
    free(l->gemm);
    free(l->conv);
    free(l->param);
    free(l->word);
    free(l);
}

/* A command that depends on a library becomes an ordinary kernel, or is removed. */
static void settle(weft_command_list *s, uint32_t i, bool wanted)
{
    if (wanted) {
        s->at[i].kind = WEFT_COMMAND_KERNEL;
        return;
    }
    s->n--;
    memmove(&s->at[i], &s->at[i + 1], (s->n - i) * sizeof *s->at);
}

/* Chooses between cuDNN with the kernels after it, and those instead. *gone: the convolution is
 * removed. */
static weft_err prepare_conv(const weft_prep *p, weft_cudev_launch *l, uint32_t i,
                             uint64_t *workspace, bool *gone)
{
    weft_command_list *s = l->commands;
    uint64_t bytes = 0;
    WEFT_TRY(weft_cudev__make_conv(l->gpu, p, s, i, &l->conv[i], &bytes));
    *workspace = bytes > *workspace ? bytes : *workspace;
    *gone = !l->conv[i];
    for (uint32_t k = i + 1; k < s->n && (s->at[k].kind == WEFT_COMMAND_AFTER ||
                                          s->at[k].kind == WEFT_COMMAND_INSTEAD);) {
        bool wanted = (s->at[k].kind == WEFT_COMMAND_INSTEAD) == *gone;
        settle(s, k, wanted);
        k += wanted;
    }
    if (*gone)
        settle(s, i, false);
    return WEFT_ERR_OK;
}

static weft_err prepare_command(const weft_prep *p, weft_cudev_launch *l, uint32_t i,
                                uint64_t *workspace)
{
    weft_cudev *g = l->gpu;
    const weft_command *s = &l->commands->at[i];
    if (s->kind == WEFT_COMMAND_GEMM) {
        uint64_t bytes = 0;
        bool finish = i + 1 < l->commands->n && s[1].kind == WEFT_COMMAND_FINISH, bare = finish;
        WEFT_TRY(weft_cudev__make_gemm(g, p, l->commands, i, &bare, &l->gemm[i], &bytes));
        *workspace = bytes > *workspace ? bytes : *workspace;
        if (finish)
            settle(l->commands, i + 1, bare);
    }
    if (s->kind != WEFT_COMMAND_KERNEL)
        return WEFT_ERR_OK;
    l->row[i] = &p->engine->bundle->kernel[s->kernel];
    pthread_mutex_lock(&g->lock);
    weft_err err = find_kernel(p->engine, s->kernel, p->diag, &l->kernel[i]);
    pthread_mutex_unlock(&g->lock);
    return err == WEFT_ERR_OK ? check_params(p, s, l->kernel[i]) : err;
}

static weft_err prepare_commands(const weft_prep *p, weft_cudev_launch *l)
{
    uint32_t n_arg = 0;
    uint64_t workspace = 0;
    weft_command_list *s = l->commands;
    WEFT_TRY(weft_command__check_limits(p, s, &l->gpu->limits));
    l->kernel = calloc((size_t)s->n + 1, sizeof *l->kernel);
    l->row = calloc((size_t)s->n + 1, sizeof *l->row);
    l->gemm = calloc((size_t)s->n + 1, sizeof *l->gemm);
    l->conv = calloc((size_t)s->n + 1, sizeof *l->conv);
    for (uint32_t i = 0; i < s->n; i++)
        n_arg = s->at[i].n_arg > n_arg ? s->at[i].n_arg : n_arg;
    l->param = calloc((size_t)n_arg + 1, sizeof *l->param);
    l->word = calloc((size_t)n_arg + 1, sizeof *l->word);
    if (!l->kernel || !l->row || !l->gemm || !l->conv || !l->param || !l->word)
        return WEFT_ERR_NOMEM;
    for (uint32_t i = 0; i < s->n;) {
        bool gone = false;
        WEFT_TRY(s->at[i].kind == WEFT_COMMAND_CONV ? prepare_conv(p, l, i, &workspace, &gone)
                                                    : prepare_command(p, l, i, &workspace));
        i += !gone;
    }
    l->workspace_offset = weft_align_up(s->scratch_bytes, WEFT_ARENA_ALIGN);
    if (workspace) {
        /* Scratch memory has a smaller alignment than a workspace needs. */
        s->bytes[s->n_operand] = l->workspace_offset + workspace + WEFT_CUDEV_WORKSPACE_ALIGN;
        s->access[s->n_operand] |= WEFT_ACCESS_WRITE;
    }
    return WEFT_ERR_OK;
}

weft_err weft_cudev__prepare(weft_prep *p)
{
    weft_cudev_launch *l = calloc(1, sizeof *l);
    if (!l)
        return WEFT_ERR_NOMEM;
    l->gpu = weft_cudev__of(p->engine);
    weft_err err = weft_command__make_list(p, &l->commands);
    if (err == WEFT_ERR_OK)
        err = prepare_commands(p, l);
    if (err != WEFT_ERR_OK) {
        destroy_launch(l);
        return err;
    }
    p->state = l;
    p->destroy = destroy_launch;
    p->scratch_bytes = l->commands->bytes[l->commands->n_operand];
    p->variant = "nothing";
    for (uint32_t i = l->commands->n; i-- > 0;)
        p->variant = l->row[i]                                      ? l->row[i]->name
                     : l->commands->at[i].kind == WEFT_COMMAND_GEMM ? "cublaslt"
                     : l->commands->at[i].kind == WEFT_COMMAND_CONV ? "cudnn"
                                                                    : "copy";
    return WEFT_ERR_OK;
}

/* -- Commands ------------------------------------------------------------------------------- */

void weft_cudev__set_params(weft_cudev_launch *l, uint32_t i, void *const *arg)
{
    const weft_command *s = &l->commands->at[i];
    for (uint32_t k = 0; k < s->n_arg; k++) {
        const weft_command_arg *v = &s->arg[k];
        l->word[k] = 0;
        if (v->ref.at != WEFT_COMMAND_NO_REF)
            l->word[k] = weft_cudev__address(arg, v->ref);
        else if (v->kind == WEFT_COMMAND_ARG_INT)
            memcpy(&l->word[k], &v->i, sizeof v->i);
        else
            memcpy(&l->word[k], &v->f, sizeof v->f);
        l->param[k] = &l->word[k];
    }
}

static weft_cu_deviceptr workspace_of(const weft_cudev_launch *l, void *const *arg)
{
    const weft_command_ref at = {l->commands->n_operand, l->workspace_offset};
    return weft_align_up(weft_cudev__address(arg, at), WEFT_CUDEV_WORKSPACE_ALIGN);
}

weft_err weft_cudev__warm_command(weft_cudev_launch *l, uint32_t i, void *const *arg,
                                  weft_cu_stream stream, weft_diag *diag)
{
    if (l->commands->at[i].kind == WEFT_COMMAND_CONV)
        return weft_cudev__warm_conv(l->conv[i], arg, workspace_of(l, arg), stream, diag);
    if (l->commands->at[i].kind != WEFT_COMMAND_GEMM)
        return WEFT_ERR_OK;
    return weft_cudev__warm_gemm(l->gemm[i], arg, workspace_of(l, arg), stream, diag);
}

weft_err weft_cudev__run_command(weft_cudev_launch *l, uint32_t i, void *const *arg,
                                 weft_cu_stream stream, weft_diag *diag)
{
    weft_cudev *g = l->gpu;
    const weft_command *s = &l->commands->at[i];
    switch (s->kind) {
    case WEFT_COMMAND_KERNEL:
        weft_cudev__set_params(l, i, arg);
        return weft_cudev__check(g,
                                 g->cu->cuLaunchKernel((weft_cu_function)l->kernel[i], s->grid[0],
                                                       s->grid[1], s->grid[2], l->row[i]->threads,
                                                       1, 1, l->row[i]->shared_bytes, stream,
                                                       l->param, NULL),
                                 "cuLaunchKernel", diag);
    case WEFT_COMMAND_GEMM:
        return weft_cudev__run_gemm(l->gemm[i], arg, workspace_of(l, arg), stream, diag);
    case WEFT_COMMAND_CONV:
        return weft_cudev__run_conv(l->conv[i], arg, workspace_of(l, arg), stream, diag);
    case WEFT_COMMAND_COPY:
        return weft_cudev__check(g,
                                 g->cu->cuMemcpyDtoDAsync(weft_cudev__address(arg, s->arg[0].ref),
                                                          weft_cudev__address(arg, s->arg[1].ref),
                                                          s->bytes, stream),
                                 "cuMemcpyDtoDAsync", diag);
    default:
        return weft_cudev__check(
            g, g->cu->cuMemsetD8Async(weft_cudev__address(arg, s->arg[0].ref), 0, s->bytes, stream),
            "cuMemsetD8Async", diag);
    }
}

weft_err weft_cudev__run_launch(weft_cudev_queue *queue, const weft_bound *launch, weft_diag *diag)
{
    weft_cudev_launch *l = launch->state;
    for (uint32_t i = 0; i < l->commands->n; i++)
        WEFT_TRY(weft_cudev__run_command(l, i, launch->arg, queue->stream, diag));
    return WEFT_ERR_OK;
}
