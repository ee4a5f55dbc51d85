/* Choice of a cuBLASLt algorithm for a GEMM.
 *
 * The default is the first candidate of cuBLASLt's heuristic, asked for when the GEMM is prepared.
 * If the bundle has an algorithm measured for this GEMM on such a GPU (tune_gemms.c) and cuBLASLt's
 * check accepts it, that algorithm is used instead. A measurement is valid for one version of the
 * library, one GPU name, and one number of multiprocessors. */
#include "runtime/cuda/drv_cuda_int.h"

#include "base/num.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Maximum workspace of an algorithm, as NVIDIA recommends for cuBLAS: from Hopper on, and before.
 */
enum { WORKSPACE_NEW = 32 << 20, WORKSPACE_OLD = 4 << 20 };

static uint64_t workspace_room(const weft_cudev *g)
{
    return g->cc >= 90 ? WORKSPACE_NEW : WORKSPACE_OLD;
}

/* -- Heuristic ----------------------------------------------------------------------------- */

/* The key of a GEMM: its sizes, and the alignments of a b c d. */
static weft_gemm_key key_of(const weft_command_gemm *n, const weft_command_list *commands)
{
    bool c = n->c.at != WEFT_COMMAND_NO_REF, bias = n->bias.at != WEFT_COMMAND_NO_REF;
    uint32_t d = weft_cudev__alignment(commands, n->d);
    return (weft_gemm_key){
        .dim = {n->m, n->n, n->k, n->batch, n->lda, n->ldb, c ? n->ldc : 0, n->ldd, n->stride_a,
                n->stride_b, c ? n->stride_c : 0, n->stride_d},
        .align = {weft_cudev__alignment(commands, n->a), weft_cudev__alignment(commands, n->b),
                  c ? weft_cudev__alignment(commands, n->c) : d, d},
        .dtype = n->dtype,
        .act = n->act,
        .flags = (n->trans_a ? WEFT_GEMM_TRANS_A : 0u) | (n->trans_b ? WEFT_GEMM_TRANS_B : 0u) |
                 (n->tf32 ? WEFT_GEMM_TF32 : 0u) | (c ? WEFT_GEMM_C : 0u) |
                 (bias ? WEFT_GEMM_BIAS : 0u)};
}

static weft_err set_preference(weft_cudev_gemm *p, const weft_gemm_key *key,
                               weft_cublaslt_pref pref, weft_diag *diag)
{
    uint64_t room = workspace_room(p->gpu);
    /* cuBLASLt's A is our b. */
    const struct {
        unsigned attribute;
        const void *value;
        size_t bytes;
    } row[] = {
        {WEFT_CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room},
        {WEFT_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &key->align[1], sizeof key->align[1]},
        {WEFT_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &key->align[0], sizeof key->align[0]},
        {WEFT_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &key->align[2], sizeof key->align[2]},
        {WEFT_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &key->align[3], sizeof key->align[3]},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        WEFT_TRY(weft_cudev__check_blas(p->gpu,
                                        p->lt->cublasLtMatmulPreferenceSetAttribute(
                                            pref, row[i].attribute, row[i].value, row[i].bytes),
                                        "cublasLtMatmulPreferenceSetAttribute", diag));
    return WEFT_ERR_OK;
}

/* The candidates of the library's heuristic, best first. *n: in, the most to return; out, their
 * number. */
static weft_err ask(weft_cudev_gemm *p, const weft_gemm_key *key, weft_diag *diag,
                    weft_cublaslt_heuristic *out, int *n)
{
    int most = *n, n_found = 0;
    weft_cublaslt_pref pref = NULL;
    *n = 0;
    WEFT_TRY(weft_cudev__check_blas(p->gpu, p->lt->cublasLtMatmulPreferenceCreate(&pref),
                                    "cublasLtMatmulPreferenceCreate", diag));
    weft_err err = set_preference(p, key, pref, diag);
    if (err == WEFT_ERR_OK) {
        weft_cublas_status status = p->lt->cublasLtMatmulAlgoGetHeuristic(
            p->gpu->lt_handle, p->desc, p->a, p->b, p->c ? p->c : p->d, p->d, pref, most, out,
            &n_found);
        if (status != WEFT_CUBLAS_STATUS_NOT_SUPPORTED)
            err = weft_cudev__check_blas(p->gpu, status, "cublasLtMatmulAlgoGetHeuristic", diag);
    }
    (void)p->lt->cublasLtMatmulPreferenceDestroy(pref);
    for (int i = 0; err == WEFT_ERR_OK && i < n_found && i < most; i++)
        if (out[i].state == WEFT_CUBLAS_STATUS_SUCCESS)
            out[(*n)++] = out[i];
    return err;
}

static void take(weft_cudev_gemm *p, const weft_cublaslt_heuristic *h)
{
    p->algo = h->algo;
    p->workspace = h->workspaceSize;
}

/* -- Stored algorithms ------------------------------------------------------------------------ */

_Static_assert(sizeof(weft_cublaslt_algo) == WEFT_ALGO_BYTES,
               "the bytes of an algorithm are stored");

static void find_tuning(weft_cudev *g, const weft_bundle *bundle)
{
    for (uint32_t i = 0; i < bundle->n_tuning; i++)
        if (weft_tuning_is_for(&bundle->tuning[i], g->name, g->sms, g->lt->version))
            g->tuning = &bundle->tuning[i];
}

static const weft_bundle_algo *find_stored(const weft_bundle_algo *from, uint32_t n,
                                           const weft_gemm_key *key)
{
    for (uint32_t i = 0; i < n; i++)
        if (memcmp(&from[i].gemm, key, sizeof *key) == 0)
            return &from[i];
    return NULL;
}

/* Uses a stored algorithm; false: the library rejects it. */
static bool take_stored(weft_cudev_gemm *p, const weft_bundle_algo *stored)
{
    weft_cublaslt_heuristic h;
    weft_cublaslt_algo algo;
    memset(&h, 0, sizeof h);
    memcpy(&algo, stored->bytes, sizeof algo);
    weft_cublas_status status = p->lt->cublasLtMatmulAlgoCheck(
        p->gpu->lt_handle, p->desc, p->a, p->b, p->c ? p->c : p->d, p->d, &algo, &h);
    if (status != WEFT_CUBLAS_STATUS_SUCCESS || h.state != WEFT_CUBLAS_STATUS_SUCCESS ||
        h.workspaceSize > workspace_room(p->gpu))
        return false;
    h.algo = algo; /* the check does not fill it in */
    take(p, &h);
    return true;
}

/* -- Measurement ---------------------------------------------------------------------------- */

enum { CANDIDATES = 8, WARM_RUNS = 2, RUNS = 10, ROUNDS = 3, FILL = 0x3c };

typedef struct bench {
    weft_cudev_gemm *p;
    weft_cu_deviceptr memory;
    weft_cudev_operands at;
    weft_cu_event from, to;
    weft_diag *diag;
} bench;

/* Bytes from the first element of a batch of matrices to the end of the last. */
static uint64_t span_bytes(const weft_command_gemm *n, weft_dtype dtype, int64_t rows, int64_t cols,
                           int64_t ld, int64_t stride)
{
    int64_t last = (n->batch - 1) * stride + (rows - 1) * ld + cols;
    return weft_align_up((uint64_t)last * weft_dtype_size(dtype), WEFT_CUDEV_WORKSPACE_ALIGN);
}

/* Allocates operands for the GEMM; command.c has checked that the sizes do not overflow. */
static weft_err open_bench(bench *b)
{
    weft_cudev *g = b->p->gpu;
    const weft_command_gemm *n = b->p->now;
    weft_dtype type = n->dtype, result = weft_gemm_result(type);
    const uint64_t bytes[] = {
        span_bytes(n, type, n->trans_a ? n->k : n->m, n->trans_a ? n->m : n->k, n->lda,
                   n->stride_a),
        span_bytes(n, type, n->trans_b ? n->n : n->k, n->trans_b ? n->k : n->n, n->ldb,
                   n->stride_b),
        n->c.at == WEFT_COMMAND_NO_REF ? 0 : span_bytes(n, result, n->m, n->n, n->ldc, n->stride_c),
        span_bytes(n, result, n->m, n->n, n->ldd, n->stride_d),
        weft_align_up((uint64_t)n->n * weft_dtype_size(result), WEFT_CUDEV_WORKSPACE_ALIGN),
        workspace_room(g)};
    weft_cu_deviceptr *const at[] = {&b->at.a, &b->at.b,    &b->at.c,
                                     &b->at.d, &b->at.bias, &b->at.workspace};
    uint64_t all = 0;
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
        all += bytes[i];
    WEFT_TRY(weft_cudev__check(g, g->cu->cuMemAlloc(&b->memory, all), "cuMemAlloc", b->diag));
    weft_cu_deviceptr next = b->memory;
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        *at[i] = next;
        next += bytes[i];
    }
    WEFT_TRY(weft_cudev__check(g, g->cu->cuMemsetD8Async(b->memory, FILL, all, g->load),
                               "cuMemsetD8Async", b->diag));
    WEFT_TRY(weft_cudev__check(g, g->cu->cuEventCreate(&b->from, WEFT_CU_EVENT_DEFAULT),
                               "cuEventCreate", b->diag));
    return weft_cudev__check(g, g->cu->cuEventCreate(&b->to, WEFT_CU_EVENT_DEFAULT),
                             "cuEventCreate", b->diag);
}

static void close_bench(bench *b)
{
    const weft_cu_api *cu = b->p->gpu->cu;
    if (b->from)
        (void)cu->cuEventDestroy(b->from);
    if (b->to)
        (void)cu->cuEventDestroy(b->to);
    if (b->memory)
        (void)cu->cuMemFree(b->memory);
}

static weft_err run_often(bench *b, int n)
{
    for (int i = 0; i < n; i++)
        WEFT_TRY(weft_cudev__multiply(b->p, &b->at, b->p->gpu->load, b->diag));
    return WEFT_ERR_OK;
}

/* The minimum of several rounds: disturbances only add time. */
static weft_err measure(bench *b, double *out_us)
{
    weft_cudev *g = b->p->gpu;
    *out_us = 0;
    WEFT_TRY(run_often(b, WARM_RUNS));
    for (int round = 0; round < ROUNDS; round++) {
        float ms = 0;
        WEFT_TRY(
            weft_cudev__check(g, g->cu->cuEventRecord(b->from, g->load), "cuEventRecord", b->diag));
        WEFT_TRY(run_often(b, RUNS));
        WEFT_TRY(
            weft_cudev__check(g, g->cu->cuEventRecord(b->to, g->load), "cuEventRecord", b->diag));
        WEFT_TRY(weft_cudev__check(g, g->cu->cuStreamSynchronize(g->load), "cuStreamSynchronize",
                                   b->diag));
        WEFT_TRY(weft_cudev__check(g, g->cu->cuEventElapsedTime(&ms, b->from, b->to),
                                   "cuEventElapsedTime", b->diag));
        double us = (double)ms * 1e3 / RUNS;
        *out_us = round == 0 || us < *out_us ? us : *out_us;
    }
    return WEFT_ERR_OK;
}

static weft_err measure_all(bench *b, const weft_cublaslt_heuristic *h, int n, double *out_us)
{
    int best = 0;
    for (int i = 0; i < n; i++) {
        double us;
        take(b->p, &h[i]);
        WEFT_TRY(measure(b, &us));
        if (i == 0 || us < *out_us) {
            best = i;
            *out_us = us;
        }
    }
    take(b->p, &h[best]);
    return WEFT_ERR_OK;
}

static weft_err keep(weft_tuner *to, const weft_cudev *g, const weft_bundle_algo *algo)
{
    weft_bundle_algo *more = realloc(to->algo, ((size_t)to->n + 1) * sizeof *more);
    if (!more)
        return WEFT_ERR_NOMEM;
    to->algo = more;
    to->algo[to->n++] = *algo;
    snprintf(to->device, sizeof to->device, "%s", g->name);
    to->sms = g->sms;
    to->version = g->lt->version;
    return WEFT_ERR_OK;
}

/* Measures the library's candidates, uses the fastest, and records it in the tuner. */
static weft_err tune(weft_cudev_gemm *p, const weft_gemm_key *key, weft_tuner *to, weft_diag *diag,
                     bool *found)
{
    weft_cublaslt_heuristic h[CANDIDATES];
    int n = CANDIDATES;
    weft_bundle_algo algo = {.gemm = *key};
    bench b = {.p = p, .diag = diag};
    memset(h, 0, sizeof h);
    WEFT_TRY(ask(p, key, diag, h, &n));
    *found = n > 0;
    if (n == 0)
        return WEFT_ERR_OK;
    weft_err err = open_bench(&b);
    if (err == WEFT_ERR_OK)
        err = measure_all(&b, h, n, &algo.time_us);
    close_bench(&b);
    memcpy(algo.bytes, &p->algo, sizeof algo.bytes);
    return err == WEFT_ERR_OK ? keep(to, p->gpu, &algo) : err;
}

static weft_err choose_algo(weft_cudev_gemm *gemm, const weft_prep *p,
                            const weft_command_list *commands, bool *found)
{
    const weft_command_gemm *n = gemm->now;
    const weft_gemm_key key = key_of(n, commands);
    weft_tuner *tuner = p->engine->tuner;
    const weft_bundle_tuning *t = gemm->gpu->tuning;
    weft_cublaslt_heuristic guess;
    int n_guess = 1;
    /* The address of the bias is not known yet, but the candidates depend on whether there is one.
     */
    if (n->bias.at != WEFT_COMMAND_NO_REF)
        WEFT_TRY(weft_cudev__set_bias(gemm, weft_cudev__alignment(commands, n->bias), p->diag));
    const weft_bundle_algo *stored = tuner ? find_stored(tuner->algo, tuner->n, &key)
                                     : t   ? find_stored(t->algo, t->n_algo, &key)
                                           : NULL;
    *found = stored && take_stored(gemm, stored);
    if (*found)
        return WEFT_ERR_OK;
    if (tuner)
        return tune(gemm, &key, tuner, p->diag, found);
    memset(&guess, 0, sizeof guess);
    WEFT_TRY(ask(gemm, &key, p->diag, &guess, &n_guess));
    *found = n_guess > 0;
    if (*found)
        take(gemm, &guess);
    return WEFT_ERR_OK;
}

/* -- Making a GEMM ---------------------------------------------------------------------------- */

static weft_err open_library(weft_cudev *g, const weft_bundle *bundle, weft_diag *diag)
{
    weft_err err = WEFT_ERR_OK;
    pthread_mutex_lock(&g->lock);
    if (!g->lt_handle) {
        err = weft_libcublaslt__get(diag, &g->lt);
        if (err == WEFT_ERR_OK)
            err = weft_cudev__check_blas(g, g->lt->api.cublasLtCreate(&g->lt_handle),
                                         "cublasLtCreate", diag);
        if (err == WEFT_ERR_OK)
            find_tuning(g, bundle);
    }
    pthread_mutex_unlock(&g->lock);
    return err;
}

void weft_cudev__close_gemms(weft_cudev *g)
{
    if (g->lt_handle)
        (void)g->lt->api.cublasLtDestroy(g->lt_handle);
    g->lt_handle = NULL;
}

/* "f16 with bias and gelu" */
static const char *epilogue_text(const weft_command_gemm *n, char text[32])
{
    static const char *const act[WEFT_GEMM_ACTS] = {"", "relu", "gelu"};
    bool bias = n->bias.at != WEFT_COMMAND_NO_REF;
    snprintf(text, 32, "%s%s%s%s", bias || n->act ? " with " : "", bias ? "bias" : "",
             bias && n->act ? " and " : "", act[n->act]);
    return text;
}

static weft_err refuse(const weft_cudev_gemm *p, const weft_prep *prep)
{
    const weft_command_gemm *n = p->now;
    char text[32];
    return weft_diag_error(prep->diag, WEFT_ERR_UNSUP, prep->where,
                           "%s: cuBLASLt %zu has no algorithm for a GEMM of %lld x %lld x "
                           "%lld in %s%s",
                           weft_op_get(prep->op)->name, p->gpu->lt->version, (long long)n->m,
                           (long long)n->n, (long long)n->k, weft_dtype_name(n->dtype),
                           epilogue_text(n, text));
}

/* Reduces the GEMM to d = alpha a b; another kernel applies c, bias and act. */
static void strip(weft_command_gemm *n)
{
    n->c.at = n->bias.at = WEFT_COMMAND_NO_REF;
    n->beta = 0;
    n->act = WEFT_GEMM_ACT_NONE;
}

static weft_err choose(weft_cudev_gemm *p, const weft_prep *prep, const weft_command_list *commands,
                       uint32_t command, bool *bare)
{
    bool found = false, may_strip = *bare;
    *bare = false;
    WEFT_TRY(weft_cudev__open_handles(p, prep->diag));
    WEFT_TRY(choose_algo(p, prep, commands, &found));
    if (!found && may_strip) {
        weft_cudev__close_handles(p);
        strip(commands->at[command].gemm);
        *bare = true;
        WEFT_TRY(weft_cudev__open_handles(p, prep->diag));
        WEFT_TRY(choose_algo(p, prep, commands, &found));
    }
    return found ? WEFT_ERR_OK : refuse(p, prep);
}

weft_err weft_cudev__make_gemm(weft_cudev *g, const weft_prep *p, const weft_command_list *commands,
                               uint32_t command, bool *bare, weft_cudev_gemm **out,
                               uint64_t *workspace)
{
    WEFT_TRY(open_library(g, p->engine->bundle, p->diag));
    weft_cudev_gemm *to = calloc(1, sizeof *to);
    if (!to)
        return WEFT_ERR_NOMEM;
    to->gpu = g;
    to->lt = &g->lt->api;
    to->now = commands->at[command].gemm;
    weft_err err = choose(to, p, commands, command, bare);
    if (err != WEFT_ERR_OK) {
        weft_cudev__free_gemm(to);
        return err;
    }
    *out = to;
    *workspace = to->workspace;
    return WEFT_ERR_OK;
}
