/* Test double of libcuda.so.1: images, kernels, launches. An image contains a shared object with
 * the kernels, compiled for the host, or is PTX (libcuda_ptx.c). */
#include "libcuda_double.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define W weft_cuda__world

enum { STATIC_SHARED_MAX = 48 << 10, PARAM_ROOM = 16, LOADED_MAX = 4096 };

/* -- Images ----------------------------------------------------------------------------------- */

static weft_cu_result check_image(const weft_double_image *image)
{
    if (memcmp(image->magic, WEFT_DOUBLE_MAGIC, 8) != 0)
        return WEFT_CUDA_ERROR_INVALID_IMAGE;
    if (image->bytes <= sizeof *image || image->bytes > (uint64_t)1 << 30)
        return WEFT_CUDA_ERROR_INVALID_IMAGE;
    int arch, mine = weft_cuda__device()->major * 10 + weft_cuda__device()->minor;
    if (sscanf(image->arch, "sm_%d", &arch) == 1) {
        if (arch / 10 != mine / 10 || arch % 10 > mine % 10)
            return WEFT_CUDA_ERROR_NO_BINARY_FOR_GPU;
    } else if (sscanf(image->arch, "compute_%d", &arch) == 1) {
        if (arch > mine)
            return WEFT_CUDA_ERROR_NO_BINARY_FOR_GPU;
    } else {
        return WEFT_CUDA_ERROR_INVALID_IMAGE;
    }
    if (weft_double_sum(image + 1, image->bytes - sizeof *image) != image->sum)
        return image->arch[0] == 'c' ? WEFT_CUDA_ERROR_INVALID_PTX : WEFT_CUDA_ERROR_INVALID_IMAGE;
    return 0;
}

/* Shared objects stay loaded: some C++ symbols prevent unloading, and each object allocates stacks.
 */
typedef struct loaded {
    uint64_t sum;
    void *handle;
} loaded;

static loaded loadeds[LOADED_MAX];
static size_t n_loaded;

/* The dynamic loader identifies objects by their path. */
static void *load_file(const weft_double_image *image)
{
    size_t bytes = image->bytes - sizeof *image - 1;
    const char *at = (const char *)(image + 1), *tmp = getenv("TMPDIR");
    char path[512];
    snprintf(path, sizeof path, "%s/weft-kernels-XXXXXX", tmp ? tmp : "/tmp");
    int fd = mkstemp(path);
    if (fd < 0)
        return NULL;
    while (bytes) {
        ssize_t n = write(fd, at, bytes);
        if (n <= 0)
            break;
        at += n;
        bytes -= (size_t)n;
    }
    close(fd);
    void *handle = bytes ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle && !bytes)
        weft_double_log("dlopen: %s", dlerror());
    unlink(path);
    return handle;
}

static void *open_image(const weft_double_image *image)
{
    for (size_t i = 0; i < n_loaded; i++)
        if (loadeds[i].sum == image->sum)
            return loadeds[i].handle;
    void *handle = load_file(image);
    if (handle && n_loaded < LOADED_MAX)
        loadeds[n_loaded++] = (loaded){image->sum, handle};
    return handle;
}

static void end_library(weft_object *o)
{
    weft_cuda_library *lib = (weft_cuda_library *)o;
    for (weft_object *k = W.object; k; k = k->next)
        if (k->kind == WEFT_KERNEL && ((weft_cuda_kernel *)k)->library == lib)
            k->dead = true;
    weft_ptx__unload(lib->ptx);
    lib->ptx = NULL;
}

static weft_cu_result load_ptx(weft_cuda_library **out, const char *text)
{
    weft_cuda_ptx *ptx;
    weft_cu_result r =
        weft_ptx__load(text, weft_cuda__device()->major * 10 + weft_cuda__device()->minor, &ptx);
    if (r)
        return r;
    weft_cuda_library *lib = weft_cuda__make(WEFT_LIBRARY, sizeof *lib, end_library);
    if (!lib) {
        weft_ptx__unload(ptx);
        return WEFT_CUDA_ERROR_OUT_OF_MEMORY;
    }
    lib->ptx = ptx;
    lib->kernel = weft_ptx__kernels(ptx);
    *out = lib;
    return 0;
}

static weft_cu_result load(weft_cuda_library **out, const weft_double_image *image)
{
    weft_cu_result r = check_image(image);
    if (r)
        return r;
    void *handle = open_image(image);
    if (!handle)
        return WEFT_CUDA_ERROR_INVALID_IMAGE;
    weft_cuda_library *lib = weft_cuda__make(WEFT_LIBRARY, sizeof *lib, end_library);
    if (!lib)
        return WEFT_CUDA_ERROR_OUT_OF_MEMORY;
    lib->kernel = dlsym(handle, "weft_double_kernels");
    lib->order = dlsym(handle, "weft_emu_order");
    void *fault = dlsym(handle, "weft_emu_fault");
    memcpy(&lib->fault, &fault, sizeof fault);
    lib->touch = dlsym(handle, "weft_double_touch");
    if (!lib->kernel || !lib->order || !lib->fault) {
        weft_cuda__kill(&lib->o);
        return WEFT_CUDA_ERROR_INVALID_IMAGE;
    }
    *out = lib;
    return 0;
}

weft_cu_result cuLibraryLoadData(weft_cu_library *out, const void *image, unsigned *jit_option,
                                 void **jit_value, unsigned n_jit, unsigned *option, void **value,
                                 unsigned n_option)
{
    weft_cu_result r = weft_cuda__enter("cuLibraryLoadData", WEFT_IN_CONTEXT);
    (void)jit_option, (void)jit_value, (void)option, (void)value;
    if (!r && (n_jit || n_option || (uintptr_t)image % 8))
        r = WEFT_CUDA_ERROR_INVALID_VALUE;
    weft_cuda_library *lib = NULL;
    if (!r)
        r = weft_ptx__is(image) ? load_ptx(&lib, image) : load(&lib, image);
    if (!r)
        *out = (weft_cu_library)lib;
    return weft_cuda__leave(r, "cuLibraryLoadData", "%u", lib ? lib->o.serial : 0);
}

weft_cu_result cuLibraryUnload(weft_cu_library library)
{
    const char *call = "cuLibraryUnload";
    weft_cu_result r = weft_cuda__enter(call, WEFT_AFTER_INIT);
    weft_cuda_library *lib = weft_cuda__get(library, WEFT_LIBRARY, call);
    if (lib) {
        if (weft_stream__uses(&lib->o)) {
            weft_double_mistake("%s: kernels of library %u are still pending", call, lib->o.serial);
            weft_stream__finish_all();
        }
        weft_cuda__kill(&lib->o);
    } else if (!r) {
        r = WEFT_CUDA_ERROR_INVALID_HANDLE;
    }
    return weft_cuda__leave(r, call, "%u", lib ? lib->o.serial : 0);
}

weft_cu_result cuLibraryGetKernel(weft_cu_kernel *out, weft_cu_library library, const char *name)
{
    const char *call = "cuLibraryGetKernel";
    weft_cu_result r = weft_cuda__enter(call, WEFT_IN_CONTEXT);
    weft_cuda_library *lib = r ? NULL : weft_cuda__get(library, WEFT_LIBRARY, call);
    if (!r && !lib)
        r = WEFT_CUDA_ERROR_INVALID_HANDLE;
    const weft_double_kernel *of = lib ? lib->kernel : NULL;
    while (of && of->name && strcmp(of->name, name) != 0)
        of++;
    if (!r && !of->name)
        r = WEFT_CUDA_ERROR_NOT_FOUND;
    weft_cuda_kernel *k = r ? NULL : weft_cuda__make(WEFT_KERNEL, sizeof *k, NULL);
    if (k) {
        k->library = lib;
        k->of = of;
        *out = (weft_cu_kernel)k;
    } else if (!r) {
        r = WEFT_CUDA_ERROR_OUT_OF_MEMORY;
    }
    return weft_cuda__leave(r, call, "%u, %s", lib ? lib->o.serial : 0, name);
}

weft_cu_result cuKernelSetAttribute(unsigned attribute, int value, weft_cu_kernel kernel,
                                    weft_cu_device device)
{
    const char *call = "cuKernelSetAttribute";
    weft_cu_result r = weft_cuda__enter(call, WEFT_IN_CONTEXT);
    weft_cuda_kernel *k = r ? NULL : weft_cuda__get(kernel, WEFT_KERNEL, call);
    int most = W.device[0].major >= 9 ? 232448 : W.device[0].major == 8 ? 101376 : 65536;
    if (!r && !k)
        r = WEFT_CUDA_ERROR_INVALID_HANDLE;
    if (!r && (device < 0 || device >= W.n_device || value < 0 || value > most ||
               attribute != WEFT_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES))
        r = WEFT_CUDA_ERROR_INVALID_VALUE;
    if (!r)
        k->dynamic_max = (unsigned)value;
    return weft_cuda__leave(r, call, "%u, %d, %s", attribute, value, k ? k->of->name : "");
}

weft_cu_result cuKernelGetParamInfo(weft_cu_kernel kernel, size_t i, size_t *offset, size_t *bytes)
{
    const char *call = "cuKernelGetParamInfo";
    weft_cu_result r = weft_cuda__enter(call, WEFT_IN_CONTEXT);
    weft_cuda_kernel *k = r ? NULL : weft_cuda__get(kernel, WEFT_KERNEL, call);
    if (!r && !k)
        r = WEFT_CUDA_ERROR_INVALID_HANDLE;
    if (!r && i >= k->of->n_param)
        r = WEFT_CUDA_ERROR_INVALID_VALUE;
    if (!r) {
        size_t at = 0;
        for (size_t p = 0; p <= i; p++) {
            size_t n = k->of->param[p].bytes;
            at = (at + n - 1) / n * n;
            *offset = at;
            at += n;
        }
        if (bytes)
            *bytes = k->of->param[i].bytes;
    }
    return weft_cuda__leave(r, call, "%s, %zu", k ? k->of->name : "", i);
}

/* -- Launches --------------------------------------------------------------------------------- */

static bool check_shape(const weft_cuda_kernel *k, const char *call, const unsigned grid[3],
                        const unsigned block[3], unsigned shared_bytes)
{
    const char *wrong = NULL;
    if (!grid[0] || !grid[1] || !grid[2])
        wrong = "an empty grid";
    else if (grid[0] > 0x7fffffffu || grid[1] > 65535 || grid[2] > 65535)
        wrong = "too large a grid";
    else if (!block[0] || block[0] > k->of->threads || block[1] != 1 || block[2] != 1)
        wrong = "a block size it was not compiled for";
    else if (shared_bytes > STATIC_SHARED_MAX && shared_bytes > k->dynamic_max)
        wrong = "more shared memory than requested";
    if (wrong)
        weft_double_mistake("%s: kernel %s with %s: grid %u,%u,%u, block %u,%u,%u of at most %u, "
                            "%u shared bytes",
                            call, k->of->name, wrong, grid[0], grid[1], grid[2], block[0], block[1],
                            block[2], k->of->threads, shared_bytes);
    return !wrong;
}

static bool check_pointer(const weft_cuda_kernel *k, const char *call, unsigned i, uintptr_t at)
{
    char what[160];
    const weft_double_param *p = &k->of->param[i];
    snprintf(what, sizeof what, "%s: kernel %s, argument %u", call, k->of->name, i);
    if (at == 0)
        return true; /* an omitted operand */
    if (!weft_memory__check(what, at, 0))
        return false;
    if (p->align && at % p->align) {
        weft_double_mistake("%s: %p is not a multiple of %u", what, (void *)at, p->align);
        return false;
    }
    return true;
}

weft_cu_result weft_kernel__work(weft_work *out, const char *call, void *kernel,
                                 const unsigned grid[3], const unsigned block[3],
                                 unsigned shared_bytes, void **param, void **extra)
{
    weft_cuda_kernel *k = weft_cuda__get(kernel, WEFT_KERNEL, call);
    if (!k)
        return WEFT_CUDA_ERROR_INVALID_HANDLE;
    if (extra || (!param && k->of->n_param)) {
        weft_double_mistake("%s: kernel %s takes %u arguments", call, k->of->name, k->of->n_param);
        return WEFT_CUDA_ERROR_INVALID_VALUE;
    }
    if (!check_shape(k, call, grid, block, shared_bytes))
        return WEFT_CUDA_ERROR_INVALID_VALUE;
    weft_work w = {.kind = WEFT_WORK_KERNEL,
                   .kernel = k,
                   .grid = {grid[0], grid[1], grid[2]},
                   .threads = block[0],
                   .shared_bytes = shared_bytes,
                   .arg = calloc(k->of->n_param + 1, PARAM_ROOM)};
    if (!w.arg)
        return WEFT_CUDA_ERROR_OUT_OF_MEMORY;
    snprintf(w.what, sizeof w.what, "kernel %s", k->of->name);
    for (unsigned i = 0; i < k->of->n_param; i++) {
        const weft_double_param *p = &k->of->param[i];
        if (!param[i]) {
            weft_double_mistake("%s: kernel %s, argument %u is missing", call, k->of->name, i);
            weft_work__free(&w);
            return WEFT_CUDA_ERROR_INVALID_VALUE;
        }
        memcpy(w.arg + i * PARAM_ROOM, param[i], p->bytes);
        uintptr_t at = 0;
        memcpy(&at, w.arg + i * PARAM_ROOM, p->bytes < sizeof at ? p->bytes : sizeof at);
        if (p->kind == WEFT_DOUBLE_VALUE)
            continue;
        if (!check_pointer(k, call, i, at)) {
            weft_work__free(&w);
            return WEFT_CUDA_ERROR_INVALID_VALUE;
        }
        /* A kernel that is not watched: it writes each result, which has elements because the grid
         * is not empty; operands may be empty. */
        if (at && p->kind == WEFT_DOUBLE_POINTER)
            weft_spans__add(&w.write, at, 1);
    }
    *out = w;
    return 0;
}

weft_cu_result weft_kernel__run(weft_work *w)
{
    weft_cuda_kernel *k = w->kernel;
    weft_cuda_library *lib = k->library;
    void *param[256];
    unsigned n = k->of->n_param < 256 ? k->of->n_param : 256;
    for (unsigned i = 0; i < n; i++)
        param[i] = w->arg + i * PARAM_ROOM;
    if (lib->ptx) {
        const char *wrong = weft_ptx__run(lib->ptx, w, param);
        if (wrong)
            weft_double_mistake("%s", wrong);
        return wrong ? WEFT_CUDA_ERROR_ILLEGAL_ADDRESS : 0;
    }
    *lib->order = (unsigned)weft_double_number("THREADS_LAST_FIRST", 0);
    weft_double_touch_fn nobody = lib->touch ? *lib->touch : NULL;
    if (lib->touch) {
        weft_watch__start(w);
        *lib->touch = weft_watch__touch;
    }
    k->of->run(w->grid[0], w->grid[1], w->grid[2], w->threads, w->shared_bytes, param);
    if (lib->touch) {
        /* The shared object outlives this library. */
        *lib->touch = nobody;
        weft_watch__end(w);
    }
    W.now_us += 1 + 0.01 * w->grid[0] * w->grid[1] * w->grid[2];
    const char *fault = lib->fault();
    if (!fault)
        return 0;
    weft_double_mistake("%s", fault);
    return WEFT_CUDA_ERROR_ILLEGAL_ADDRESS;
}

weft_cu_result cuLaunchKernel(weft_cu_function kernel, unsigned grid_x, unsigned grid_y,
                              unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                              unsigned shared_bytes, weft_cu_stream stream, void **param,
                              void **extra)
{
    const char *call = "cuLaunchKernel";
    weft_cu_result r = weft_cuda__enter(call, WEFT_IN_CONTEXT);
    const unsigned grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
    weft_cuda_stream *s = r ? NULL : weft_cuda__get(stream, WEFT_STREAM, call);
    weft_work w = {0};
    if (!r && !s)
        r = WEFT_CUDA_ERROR_INVALID_HANDLE;
    if (!r)
        r = weft_kernel__work(&w, call, kernel, grid, block, shared_bytes, param, extra);
    if (!r)
        r = weft_stream__enqueue(s, &w);
    return weft_cuda__leave(r, call, "%s, %ux%ux%u, %u, stream %u", w.what, grid_x, grid_y, grid_z,
                            block_x, s ? s->o.serial : 0);
}
