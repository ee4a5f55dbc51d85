/* Compiles modules of kernels to images with NVRTC, which is loaded when the first bundle for GPUs
 * is compiled.
 *
 * Each pair of a module and an architecture is a job. Threads take jobs in order and store results
 * by job number, so that the bundle does not depend on the number of threads or on timing. Results
 * that a cache has (nvrtc_cache.c) are not compiled again. */
#include "codegen/cuda/cubin.h"
#include "codegen/cuda/nvrtc_int.h"

#include "base/hash.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { THREADS_MAX = 64, ARCHS_MAX = 128 };

typedef struct compiler {
    weft_nvrtc api;
    const weft_cuda_source *source;
    const char *const *arch;
    uint32_t n_arch, n_job;
    const char *worker;
    weft_nvrtc__cache *cache; /* NULL: none */
    void (*progress)(uint32_t done, uint32_t total);
    atomic_uint next, n_done, n_found;
    weft_nvrtc__result *result;
} compiler;

/* -- Jobs -------------------------------------------------------------------------------------- */

static void run_job(compiler *c, weft_nvrtc__worker *w, const char *text, const char *arch,
                    weft_nvrtc__result *r)
{
    if (weft_nvrtc__cache_find(c->cache, text, arch, r)) {
        atomic_fetch_add(&c->n_found, 1);
        return;
    }
    if (c->worker)
        weft_nvrtc__delegate(c->worker, w, text, arch, r);
    else
        weft_nvrtc__compile(&c->api, text, arch, r);
    if (!r->failed)
        weft_nvrtc__cache_keep(c->cache, text, arch, r);
}

static void *run_jobs(void *arg)
{
    compiler *c = arg;
    weft_nvrtc__worker worker = {0};
    uint32_t job;
    while ((job = atomic_fetch_add(&c->next, 1)) < c->n_job) {
        run_job(c, &worker, c->source[job / c->n_arch].text, c->arch[job % c->n_arch],
                &c->result[job]);
        uint32_t done = atomic_fetch_add(&c->n_done, 1) + 1;
        if (c->progress)
            c->progress(done, c->n_job);
    }
    (void)weft_nvrtc__end_worker(&worker);
    return NULL;
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
    if (r->log_bytes == 0)
        return weft_diag_error(
            diag, strcmp(r->failed, "malloc") == 0 ? WEFT_ERR_NOMEM : WEFT_ERR_BUG, (weft_where){0},
            "%s: NVRTC's error %d, for %s", r->failed, r->code, c->arch[job % c->n_arch]);
    first_error(r->log, line, sizeof line);
    return weft_diag_error(diag, WEFT_ERR_BUG, (weft_where){.item = source->origin},
                           "kernel %s does not compile for %s: %s", source->kernel,
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
    for (uint32_t module = 0; module < n_source; module++) {
        const weft_nvrtc__result *r = &c->result[(size_t)module * c->n_arch];
        for (uint32_t i = 0; i < c->n_arch; i++) {
            keep_image(arena, image++, c->arch[i], module, r[i].cubin, r[i].cubin_bytes);
            weft_cubin_resource((const uint8_t *)r[i].cubin, r[i].cubin_bytes,
                                c->source[module].kernel, resource++);
        }
        keep_image(arena, image++, ptx_arch, module, r[c->n_arch - 1].ptx,
                   r[c->n_arch - 1].ptx_bytes);
    }
}

static void free_results(compiler *c)
{
    for (uint32_t i = 0; c->result && i < c->n_job; i++)
        weft_nvrtc__free(&c->result[i]);
    free(c->result);
}

/* What results depend on besides text and architecture: NVRTC's version and the file that it is,
 * its options, the files that kernels include, and whether ASLR is off (nvrtc_module.c). */
static void print_compiler(const compiler *c, weft_buf *out)
{
    int major = 0, minor = 0;
    Dl_info library;
    struct stat file = {0};
    void *function = weft_dynlib_find(c->api.lib, "nvrtcVersion");
    uint64_t hash = 0;
    (void)c->api.nvrtcVersion(&major, &minor);
    if (function && dladdr(function, &library) && library.dli_fname)
        (void)stat(library.dli_fname, &file);
    for (const weft_cuda_header *h = weft_cuda__headers; h->name; h++)
        hash = weft_hash64(h->text, strlen(h->text), weft_hash64(h->name, strlen(h->name), hash));
    weft_buf_printf(out, "NVRTC %d.%d, %lld bytes of %lld.%09ld; %s; headers %016llx; %s", major,
                    minor, (long long)file.st_size, (long long)file.st_mtim.tv_sec,
                    file.st_mtim.tv_nsec, WEFT_NVRTC_OPTIONS, (unsigned long long)hash,
                    c->worker ? "a process each" : "one process");
}

static void open_cache(compiler *c, const weft_codegen_cache *from, weft_diag *diag)
{
    weft_buf text = {0};
    const char *why = "out of memory";
    print_compiler(c, &text);
    if (!text.failed)
        c->cache = weft_nvrtc__cache_open(from->folder, from->limit_bytes, text.at, &why);
    weft_buf_finish(&text);
    if (!c->cache && !from->is_optional)
        weft_diag_warn(diag, (weft_where){.file = from->folder},
                       "compiled kernels are not kept here: %s", why);
}

static weft_err compile_all(compiler *c, const weft_codegen_options *options, weft_diag *diag)
{
    WEFT_TRY(check_archs(c, diag));
    c->result = calloc(c->n_job, sizeof *c->result);
    if (!c->result)
        return weft_diag_error(diag, WEFT_ERR_NOMEM, (weft_where){0},
                               "out of memory while compiling kernels");
    if (options->cache)
        open_cache(c, options->cache, diag);
    run_all(c, options->n_thread);
    weft_nvrtc__cache_close(c->cache);
    if (options->cache) {
        options->cache->n_image += c->n_job;
        options->cache->n_found += atomic_load(&c->n_found);
    }
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
    uint32_t n_image = n_source * (n_arch + 1);
    weft_bundle_image *image = weft_arena_array(arena, n_image, sizeof *image);
    weft_bundle_resource *resource = weft_arena_array(arena, c.n_job, sizeof *resource);
    if (n_source > 0) {
        WEFT_TRY(weft_nvrtc__open(diag, &c.api));
        weft_err err = compile_all(&c, options, diag);
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
