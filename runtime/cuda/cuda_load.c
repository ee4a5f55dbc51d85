/* Loads libcuda.so.1, libcublasLt.so, libcudnn.so and libcupti.so with dlopen, so that one program
 * runs with and without a GPU. */
#include "runtime/cuda/cuda_load.h"

#include "base/dynlib.h"

#include <pthread.h>
#include <string.h>

/* Values of `need` in cuda_syms.def besides 0 and 1. */
enum { GRAPH = 2, GREEN = 3 };

static const char *const cuda_names[] = {"libcuda.so.1"};
static const char *const cublaslt_names[] = {"libcublasLt.so.13", "libcublasLt.so.12",
                                             "/usr/local/cuda/lib64/libcublasLt.so.13",
                                             "/usr/local/cuda/lib64/libcublasLt.so.12"};

static const char *const cudnn_names[] = {"libcudnn.so.9", "/usr/local/cuda/lib64/libcudnn.so.9"};

static const char *const cupti_names[] = {"libcupti.so.13",
                                          "libcupti.so.12",
                                          "/usr/local/cuda/lib64/libcupti.so.13",
                                          "/usr/local/cuda/lib64/libcupti.so.12",
                                          "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13",
                                          "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.12"};

typedef struct symbol {
    const char *name;
    int version, need;
    size_t offset; /* of the pointer in weft_cu_api */
} symbol;

static const symbol symbol_table[] = {
#define CUDA_SYM(name, version, need, args) {#name, version, need, offsetof(weft_cu_api, name)},
#include "runtime/cuda/cuda_syms.def"
#undef CUDA_SYM
};

static const weft_dynlib_symbol cublaslt_table[] = {
#define CUBLASLT_SYM(result, name, args) {#name, offsetof(weft_cublaslt_api, name), true},
#include "runtime/cuda/cublaslt_syms.def"
#undef CUBLASLT_SYM
};

static const weft_dynlib_symbol cudnn_table[] = {
#define CUDNN_SYM(result, name, args) {#name, offsetof(weft_cudnn_api, name), true},
#include "runtime/cuda/cudnn_syms.def"
#undef CUDNN_SYM
};

static const weft_dynlib_symbol cupti_table[] = {
#define CUPTI_SYM(name, args) {#name, offsetof(weft_cupti_api, name), true},
#include "runtime/cuda/cupti_syms.def"
#undef CUPTI_SYM
};

/* Loaded libraries are never unloaded: CUDA has threads and exit handlers that still run their
 * code. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static weft_libcuda cuda;
static weft_libcublaslt cublaslt;
static weft_libcudnn cudnn;
static weft_cupti_api cupti;
static weft_dynlib *cuda_lib, *cublaslt_lib, *cudnn_lib, *cupti_lib;
static bool cupti_tried;

/* -- The driver ----------------------------------------------------------------------------- */

static weft_err too_old(const weft_dynlib *lib, int version, weft_diag *diag)
{
    return weft_diag_error(
        diag, WEFT_ERR_NODEV, (weft_where){.file = weft_dynlib_name(lib)},
        "the CUDA driver is too old: it supports CUDA %d.%d, CUDA %d.%d is needed", version / 1000,
        version % 1000 / 10, WEFT_CUDA_VERSION_MIN / 1000, WEFT_CUDA_VERSION_MIN % 1000 / 10);
}

/* Checked before the functions are looked up, because a driver older than CUDA 12.0 has no
 * cuGetProcAddress_v2. */
static weft_err check_version(const weft_dynlib *lib, weft_diag *diag, int *out)
{
    weft_cu_result (*get_version)(int *) = NULL;
    const weft_dynlib_symbol row[] = {{"cuDriverGetVersion", 0, true}};
    WEFT_TRY(weft_dynlib_resolve(lib, row, 1, &get_version, diag));
    weft_cu_result result = get_version(out);
    if (result != WEFT_CUDA_SUCCESS)
        return weft_diag_error(diag, WEFT_ERR_NODEV, (weft_where){.file = weft_dynlib_name(lib)},
                               result == WEFT_CUDA_ERROR_STUB_LIBRARY
                                   ? "this is the stub library for linking, not a CUDA driver"
                                   : "the CUDA driver does not report its version (error %u)",
                               result);
    return *out < WEFT_CUDA_VERSION_MIN ? too_old(lib, *out, diag) : WEFT_ERR_OK;
}

static weft_err resolve(const weft_dynlib *lib, weft_libcuda *to, weft_diag *diag)
{
    weft_cu_get_proc get = NULL;
    const weft_dynlib_symbol row[] = {{"cuGetProcAddress_v2", 0, true}};
    WEFT_TRY(weft_dynlib_resolve(lib, row, 1, &get, diag));
    to->graphs = to->green = true;
    for (size_t i = 0; i < sizeof symbol_table / sizeof *symbol_table; i++) {
        const symbol *s = &symbol_table[i];
        void *at = NULL;
        unsigned status = 0;
        /* cuGetProcAddress fails for a version newer than the driver; for an unknown name it
         * succeeds with another status. */
        weft_cu_result result =
            get(s->name, &at, s->version, WEFT_CU_GET_PROC_ADDRESS_DEFAULT, &status);
        if (result != WEFT_CUDA_SUCCESS || status != WEFT_CU_GET_PROC_ADDRESS_SUCCESS)
            at = NULL;
        memcpy((char *)&to->api + s->offset, &at, sizeof at);
        if (at)
            continue;
        if (s->need == 1)
            return weft_diag_error(
                diag, WEFT_ERR_NODEV, (weft_where){.file = weft_dynlib_name(lib)},
                "the CUDA driver, for CUDA %d.%d, lacks %s of CUDA %d.%d", to->version / 1000,
                to->version % 1000 / 10, s->name, s->version / 1000, s->version % 1000 / 10);
        to->graphs = to->graphs && s->need != GRAPH;
        to->green = to->green && s->need != GREEN;
    }
    return WEFT_ERR_OK;
}

static weft_err load_cuda(weft_diag *diag)
{
    weft_dynlib *lib;
    weft_libcuda found = {0};
    WEFT_TRY(weft_dynlib_open("the CUDA driver", cuda_names, sizeof cuda_names / sizeof *cuda_names,
                              diag, &lib));
    weft_err err = check_version(lib, diag, &found.version);
    if (err == WEFT_ERR_OK)
        err = resolve(lib, &found, diag);
    if (err != WEFT_ERR_OK) {
        weft_dynlib_close(lib);
        return err;
    }
    cuda = found;
    cuda_lib = lib;
    return WEFT_ERR_OK;
}

weft_err weft_libcuda__get(weft_diag *diag, const weft_libcuda **out)
{
    pthread_mutex_lock(&lock);
    weft_err err = cuda_lib ? WEFT_ERR_OK : load_cuda(diag);
    pthread_mutex_unlock(&lock);
    *out = err == WEFT_ERR_OK ? &cuda : NULL;
    return err;
}

/* -- cuBLASLt ------------------------------------------------------------------------------- */

static weft_err load_cublaslt(weft_diag *diag)
{
    weft_dynlib *lib;
    WEFT_TRY(weft_dynlib_open("cuBLASLt", cublaslt_names,
                              sizeof cublaslt_names / sizeof *cublaslt_names, diag, &lib));
    weft_err err = weft_dynlib_resolve(
        lib, cublaslt_table, sizeof cublaslt_table / sizeof *cublaslt_table, &cublaslt.api, diag);
    if (err != WEFT_ERR_OK) {
        weft_dynlib_close(lib);
        return err;
    }
    cublaslt.version = cublaslt.api.cublasLtGetVersion();
    cublaslt_lib = lib;
    return WEFT_ERR_OK;
}

weft_err weft_libcublaslt__get(weft_diag *diag, const weft_libcublaslt **out)
{
    pthread_mutex_lock(&lock);
    weft_err err = cublaslt_lib ? WEFT_ERR_OK : load_cublaslt(diag);
    pthread_mutex_unlock(&lock);
    *out = err == WEFT_ERR_OK ? &cublaslt : NULL;
    return err;
}

/* -- cuDNN ---------------------------------------------------------------------------------- */

static weft_err check_cudnn(const weft_dynlib *lib, weft_diag *diag)
{
    cudnn.version = cudnn.api.cudnnGetVersion();
    if (cudnn.version >= WEFT_CUDNN_VERSION_MIN && cudnn.version < WEFT_CUDNN_VERSION_END)
        return WEFT_ERR_OK;
    return weft_diag_error(diag, WEFT_ERR_NODEV, (weft_where){.file = weft_dynlib_name(lib)},
                           "cuDNN %zu.%zu is here, 9.8 or a later 9 is needed",
                           cudnn.version / 10000, cudnn.version / 100 % 100);
}

static weft_err load_cudnn(weft_diag *diag)
{
    weft_dynlib *lib;
    WEFT_TRY(weft_dynlib_open("cuDNN", cudnn_names, sizeof cudnn_names / sizeof *cudnn_names, diag,
                              &lib));
    weft_err err = weft_dynlib_resolve(lib, cudnn_table, sizeof cudnn_table / sizeof *cudnn_table,
                                       &cudnn.api, diag);
    if (err == WEFT_ERR_OK)
        err = check_cudnn(lib, diag);
    if (err != WEFT_ERR_OK) {
        weft_dynlib_close(lib);
        return err;
    }
    cudnn_lib = lib;
    return WEFT_ERR_OK;
}

weft_err weft_libcudnn__get(weft_diag *diag, const weft_libcudnn **out)
{
    pthread_mutex_lock(&lock);
    weft_err err = cudnn_lib ? WEFT_ERR_OK : load_cudnn(diag);
    pthread_mutex_unlock(&lock);
    *out = err == WEFT_ERR_OK ? &cudnn : NULL;
    return err;
}

/* -- CUPTI ---------------------------------------------------------------------------------- */

static void load_cupti(void)
{
    cupti_tried = true;
    if (weft_dynlib_open("CUPTI", cupti_names, sizeof cupti_names / sizeof *cupti_names, NULL,
                         &cupti_lib) != WEFT_ERR_OK) {
        cupti_lib = NULL;
        return;
    }
    if (weft_dynlib_resolve(cupti_lib, cupti_table, sizeof cupti_table / sizeof *cupti_table,
                            &cupti, NULL) == WEFT_ERR_OK)
        return;
    weft_dynlib_close(cupti_lib);
    cupti_lib = NULL;
}

const weft_cupti_api *weft_libcupti__get(void)
{
    pthread_mutex_lock(&lock);
    if (!cupti_tried)
        load_cupti();
    pthread_mutex_unlock(&lock);
    return cupti_lib ? &cupti : NULL;
}
