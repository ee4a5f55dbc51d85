/* Compiles modules of kernels to images with NVRTC, which is loaded when the first bundle for GPUs
 * is compiled.
 *
 * Each pair of a module and an architecture is a job. Threads take jobs in order and store results
 * by job number, so that the bundle does not depend on the number of threads or on timing. */
#include "codegen/cuda/cubin.h"
#include "codegen/cuda/nvrtc_int.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS_MAX = 64, ARCHS_MAX = 128 };

typedef struct compiler {
    weft_nvrtc api;
    const weft_cuda_source *source;
    const char *const *arch;
    uint32_t n_arch, n_job;
    const char *worker;
    void (*progress)(uint32_t done, uint32_t total);
    atomic_uint next, n_done;
    weft_nvrtc__result *result;
} compiler;

/* -- Jobs -------------------------------------------------------------------------------------- */

static void *run_jobs(void *arg)
{
    compiler *c = arg;
    for (;;) {
        uint32_t job = atomic_fetch_add(&c->next, 1);
        if (job >= c->n_job)
            return NULL;
        const char *text = c->source[job / c->n_arch].text, *arch = c->arch[job % c->n_arch];
        bool want_ptx = job % c->n_arch + 1 == c->n_arch;
        if (c->worker)
            weft_nvrtc__delegate(c->worker, text, arch, want_ptx, &c->result[job]);
        else
            weft_nvrtc__compile(&c->api, text, arch, want_ptx, &c->result[job]);
        uint32_t done = atomic_fetch_add(&c->n_done, 1) + 1;
        if (c->progress)
            c->progress(done, c->n_job);
    }
}

/* Runs all jobs on this thread and up to n_thread - 1 others. */
static void run_all(compiler *c, uint32_t n_thread)
{
    pthread_t thread[THREADS_MAX];
    uint32_t n = 0;
    n_thread = n_thread < THREADS_MAX ? n_thread : THREADS_MAX;
    n_thread = n_thread < c->n_job ? n_thread : c->n_job;
    while (n + 1 < n_thread && pthread_create(&thread[n], NULL, run_jobs, c) == 0)
        n++;
    run_jobs(c);
    for (uint32_t i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
}

/* -- Errors ------------------------------------------------------------------------------------ */

/* The kernel that a compiler log is about: the first kernel of the module that the log names. */
static uint32_t find_culprit(const weft_cuda_source *source, const char *log)
{
    const char *first = NULL;
    uint32_t found = 0;
    for (uint32_t i = 0; i < source->n_kernel; i++) {
        size_t len = strlen(source->kernel[i]);
        const char *at = log;
        while ((at = strstr(at, source->kernel[i])) && at[len] >= '0' && at[len] <= '9')
            at += len; /* conv_1 must not match conv_12 */
        if (at && (!first || at < first)) {
            first = at;
            found = i;
        }
    }
    return found;
}

/* Copies the first line of a log that contains an error. */
static void first_error(const char *log, char *out, size_t size)
{
    const char *at = strstr(log, "error");
    const char *line = at ? at : log;
    while (line > log && line[-1] != '\n')
        line--;
    snprintf(out, size, "%.*s", (int)strcspn(line, "\n"), line);
}

static weft_err report(const compiler *c, uint32_t job, weft_diag *diag)
{
    const weft_nvrtc__result *r = &c->result[job];
    const weft_cuda_source *source = &c->source[job / c->n_arch];
    char line[300];
    if (r->log_bytes == 0 || source->n_kernel == 0)
        return weft_diag_error(
            diag, strcmp(r->failed, "malloc") == 0 ? WEFT_ERR_NOMEM : WEFT_ERR_BUG, (weft_where){0},
            "%s: NVRTC's error %d, for %s", r->failed, r->code, c->arch[job % c->n_arch]);
    uint32_t kernel = find_culprit(source, r->log);
    first_error(r->log, line, sizeof line);
    return weft_diag_error(diag, WEFT_ERR_BUG, (weft_where){.item = source->origin[kernel]},
                           "kernel %s does not compile for %s: %s", source->kernel[kernel],
                           c->arch[job % c->n_arch], line);
}

/* -- The library ------------------------------------------------------------------------------- */

static weft_err check_archs(const compiler *c, weft_diag *diag)
{
    int known[ARCHS_MAX], n = 0, major = 0, minor = 0;
    if (c->api.nvrtcVersion(&major, &minor) != 0 || c->api.nvrtcGetNumSupportedArchs(&n) != 0 ||
        n < 0 || n > ARCHS_MAX || c->api.nvrtcGetSupportedArchs(known) != 0)
        return weft_diag_error(diag, WEFT_ERR_NODEV, (weft_where){0},
                               "%s does not say for which GPUs it compiles",
                               weft_dynlib_name(c->api.lib));
    for (uint32_t i = 0; i < c->n_arch; i++) {
        bool found = false;
        for (int k = 0; k < n; k++)
            found = found || atoi(c->arch[i] + 3) == known[k];
        if (!found)
            return weft_diag_error(
                diag, WEFT_ERR_NODEV, (weft_where){0},
                "NVRTC %d.%d (%s) does not compile for %s; it does for sm_%d to sm_%d", major,
                minor, weft_dynlib_name(c->api.lib), c->arch[i], n ? known[0] : 0,
                n ? known[n - 1] : 0);
    }
    return WEFT_ERR_OK;
}

/* -- Results ----------------------------------------------------------------------------------- */

static void keep_image(weft_arena *arena, weft_bundle_image *image, const char *arch,
                       uint32_t module, const char *data, size_t bytes)
{
    uint8_t *copy = weft_arena_alloc(arena, bytes);
    memcpy(copy, data, bytes);
    *image = (weft_bundle_image){.arch = arch, .module = module, .data = copy, .bytes = bytes};
}

/* Copies images and resources into the arena. */
static void keep_results(const compiler *c, uint32_t n_source, weft_arena *arena,
                         weft_bundle_image *image, weft_bundle_resource *resource)
{
    const char *newest = c->arch[c->n_arch - 1];
    const char *ptx_arch = weft_arena_printf(arena, "compute_%s", newest + 3);
    uint32_t n_image = 0, kernel = 0;
    for (uint32_t module = 0; module < n_source; module++) {
        for (uint32_t i = 0; i < c->n_arch; i++) {
            const weft_nvrtc__result *r = &c->result[module * c->n_arch + i];
            keep_image(arena, &image[n_image++], c->arch[i], module, r->cubin, r->cubin_bytes);
            for (uint32_t k = 0; k < c->source[module].n_kernel; k++)
                weft_cubin_resource((const uint8_t *)r->cubin, r->cubin_bytes,
                                    c->source[module].kernel[k],
                                    &resource[(size_t)(kernel + k) * c->n_arch + i]);
        }
        const weft_nvrtc__result *last = &c->result[module * c->n_arch + c->n_arch - 1];
        keep_image(arena, &image[n_image++], ptx_arch, module, last->ptx, last->ptx_bytes);
        kernel += c->source[module].n_kernel;
    }
}

static void free_results(compiler *c)
{
    for (uint32_t i = 0; c->result && i < c->n_job; i++)
        weft_nvrtc__free(&c->result[i]);
    free(c->result);
}

static weft_err compile_all(compiler *c, uint32_t n_thread, weft_diag *diag)
{
    WEFT_TRY(check_archs(c, diag));
    c->result = calloc(c->n_job, sizeof *c->result);
    if (!c->result)
        return weft_diag_error(diag, WEFT_ERR_NOMEM, (weft_where){0},
                               "out of memory while compiling kernels");
    run_all(c, n_thread);
    for (uint32_t i = 0; i < c->n_job; i++)
        if (c->result[i].failed)
            return report(c, i, diag);
    return WEFT_ERR_OK;
}

weft_err weft_cuda__compile(const weft_cuda_source *source, uint32_t n_source,
                            const char *const *arch, uint32_t n_arch,
                            const weft_codegen_options *options, weft_arena *arena, weft_diag *diag,
                            weft_bundle_image **out_image, uint32_t *out_n_image,
                            weft_bundle_resource **out_resource)
{
    compiler c = {.source = source,
                  .arch = arch,
                  .n_arch = n_arch,
                  .n_job = n_source * n_arch,
                  .worker = options->worker,
                  .progress = options->progress};
    size_t n_kernel = 0;
    for (uint32_t i = 0; i < n_source; i++)
        n_kernel += source[i].n_kernel;
    uint32_t n_image = n_source * (n_arch + 1);
    weft_bundle_image *image = weft_arena_array(arena, n_image, sizeof *image);
    weft_bundle_resource *resource = weft_arena_array(arena, n_kernel * n_arch, sizeof *resource);
    if (n_source > 0) {
        WEFT_TRY(weft_nvrtc__open(diag, &c.api));
        weft_err err = compile_all(&c, options->n_thread, diag);
        if (err == WEFT_ERR_OK)
            keep_results(&c, n_source, arena, image, resource);
        free_results(&c);
        weft_nvrtc__close(&c.api);
        WEFT_TRY(err);
    }
    *out_image = image;
    *out_n_image = n_image;
    *out_resource = resource;
    return WEFT_ERR_OK;
}
