/* Test double of libcublasLt.so.13: GEMMs with epilogues, executed on the host when libcuda_double
 * runs them in a stream or a graph. Checks the descriptors, that the algorithm was returned for
 * this GEMM, alignments, and the workspace. */
#include "gemm_double.h"

#include "runtime/cuda/cublaslt_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const weft_double_library = "libcublasLt";

#define CUBLASLT_SYM(result, name, args) WEFT_EXPORT result name args;
#include "runtime/cuda/cublaslt_syms.def"
#undef CUBLASLT_SYM

enum { ALGO_MAGIC = 0x77656674, WORKSPACE_BYTES = 4096, ALGOS = 3 };

/* Simulated time of each algorithm, in the order of the heuristic. */
static const double algo_us[ALGOS] = {5, 3, 7};

typedef enum kind { HANDLE, LAYOUT, DESC, PREF, KINDS } kind;

static const char *const kind_name[KINDS] = {"handle", "layout", "description", "preference"};

/* One structure for all four kinds of handles. */
typedef struct object {
    struct object *next;
    kind kind;
    bool dead;
    /* Layout */
    unsigned type;
    uint64_t rows, cols;
    int64_t ld, stride;
    int batch;
    /* Description */
    unsigned compute, scale;
    int trans_a, trans_b, sm_target;
    unsigned epilogue;
    const void *bias;
    /* Preference */
    uint64_t workspace_max;
    uint32_t align[4];
} object;

static object *all;

void weft_double_library_reset(void)
{
    for (object *o = all, *next; o; o = next) {
        next = o->next;
        free(o);
    }
    all = NULL;
}

static weft_cublas_status enter(const char *call)
{
    weft_double_lock();
    return weft_double_fail(call);
}

static weft_cublas_status leave(weft_cublas_status s, const char *call)
{
    weft_double_log("%s = %u", call, s);
    weft_double_unlock();
    return s;
}

static object *get(const void *handle, kind k, const char *call)
{
    object *o = all;
    while (o && o != handle)
        o = o->next;
    if (o && o->kind == k && !o->dead)
        return o;
    weft_double_mistake("%s: %p %s %s", call, handle,
                        o && o->kind == k ? "was destroyed before, a" : "is not a", kind_name[k]);
    return NULL;
}

static weft_cublas_status make(kind k, const char *call, object **out)
{
    weft_cublas_status s = enter(call);
    object *o = s ? NULL : calloc(1, sizeof *o);
    if (o) {
        o->kind = k;
        o->next = all;
        all = o;
        *out = o;
    } else if (!s) {
        s = WEFT_CUBLAS_STATUS_ALLOC_FAILED;
    }
    return leave(s, call);
}

static weft_cublas_status end(const void *handle, kind k, const char *call)
{
    weft_cublas_status s = enter(call);
    object *o = get(handle, k, call);
    if (o)
        o->dead = true;
    else if (!s)
        s = WEFT_CUBLAS_STATUS_INVALID_VALUE;
    /* The handle must be destroyed last. */
    for (object *x = all; o && k == HANDLE && x; x = x->next) {
        if (x->dead || x->kind == HANDLE)
            continue;
        weft_double_mistake("%s: a %s still exists", call, kind_name[x->kind]);
        x->dead = true;
    }
    return leave(s, call);
}

/* -- Descriptors ------------------------------------------------------------------------------ */

size_t cublasLtGetVersion(void)
{
    return 130100;
}

const char *cublasLtGetStatusString(weft_cublas_status status)
{
    return status ? "an error of the double" : "CUBLAS_STATUS_SUCCESS";
}

weft_cublas_status cublasLtCreate(weft_cublaslt_handle *out)
{
    object *o = NULL;
    weft_cublas_status s = make(HANDLE, "cublasLtCreate", &o);
    if (!s)
        *out = (weft_cublaslt_handle)o;
    return s;
}

weft_cublas_status cublasLtDestroy(weft_cublaslt_handle handle)
{
    return end(handle, HANDLE, "cublasLtDestroy");
}

weft_cublas_status cublasLtMatrixLayoutCreate(weft_cublaslt_layout *out, unsigned type,
                                              uint64_t rows, uint64_t cols, int64_t ld)
{
    object *o = NULL;
    weft_cublas_status s = make(LAYOUT, "cublasLtMatrixLayoutCreate", &o);
    if (s)
        return s;
    o->type = type;
    o->rows = rows;
    o->cols = cols;
    o->ld = ld;
    o->batch = 1;
    *out = (weft_cublaslt_layout)o;
    if (weft_gemm_bytes(type) && rows && cols && ld >= (int64_t)rows)
        return s;
    weft_double_mistake("cublasLtMatrixLayoutCreate: type %u, %llu x %llu, leading dimension %lld",
                        type, (unsigned long long)rows, (unsigned long long)cols, (long long)ld);
    o->dead = true;
    return WEFT_CUBLAS_STATUS_INVALID_VALUE;
}

weft_cublas_status cublasLtMatrixLayoutDestroy(weft_cublaslt_layout layout)
{
    return end(layout, LAYOUT, "cublasLtMatrixLayoutDestroy");
}

/* Storage of an attribute. */
typedef struct place {
    unsigned attribute;
    void *at;
    size_t bytes;
} place;

static weft_cublas_status set(const void *handle, kind k, const char *call, unsigned attribute,
                              const void *value, size_t bytes)
{
    weft_cublas_status s = enter(call);
    object *o = s ? NULL : get(handle, k, call);
    if (!s && !o)
        s = WEFT_CUBLAS_STATUS_INVALID_VALUE;
    if (s)
        return leave(s, call);
    const place layout[] = {
        {WEFT_CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &o->batch, sizeof o->batch},
        {WEFT_CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &o->stride, sizeof o->stride},
        {0, NULL, 0}};
    const place desc[] = {
        {WEFT_CUBLASLT_MATMUL_DESC_TRANSA, &o->trans_a, sizeof o->trans_a},
        {WEFT_CUBLASLT_MATMUL_DESC_TRANSB, &o->trans_b, sizeof o->trans_b},
        {WEFT_CUBLASLT_MATMUL_DESC_EPILOGUE, &o->epilogue, sizeof o->epilogue},
        {WEFT_CUBLASLT_MATMUL_DESC_BIAS_POINTER, &o->bias, sizeof o->bias},
        {WEFT_CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &o->sm_target, sizeof o->sm_target},
        {0, NULL, 0}};
    const place pref[] = {
        {WEFT_CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &o->workspace_max, sizeof o->workspace_max},
        {WEFT_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &o->align[0], sizeof *o->align},
        {WEFT_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &o->align[1], sizeof *o->align},
        {WEFT_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &o->align[2], sizeof *o->align},
        {WEFT_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &o->align[3], sizeof *o->align},
        {0, NULL, 0}};
    const place *p = k == LAYOUT ? layout : k == DESC ? desc : pref;
    while (p->at && p->attribute != attribute)
        p++;
    if (!p->at || p->bytes != bytes) {
        weft_double_mistake("%s: attribute %u of %zu bytes", call, attribute, bytes);
        return leave(WEFT_CUBLAS_STATUS_INVALID_VALUE, call);
    }
    memcpy(p->at, value, bytes);
    return leave(0, call);
}

weft_cublas_status cublasLtMatrixLayoutSetAttribute(weft_cublaslt_layout layout, unsigned attribute,
                                                    const void *value, size_t bytes)
{
    return set(layout, LAYOUT, "cublasLtMatrixLayoutSetAttribute", attribute, value, bytes);
}

weft_cublas_status cublasLtMatmulDescCreate(weft_cublaslt_desc *out, unsigned compute_type,
                                            unsigned scale_type)
{
    const char *call = "cublasLtMatmulDescCreate";
    object *o = NULL;
    weft_cublas_status s = make(DESC, call, &o);
    if (s)
        return s;
    o->compute = compute_type;
    o->scale = scale_type;
    o->epilogue = WEFT_CUBLASLT_EPILOGUE_DEFAULT;
    *out = (weft_cublaslt_desc)o;
    if ((compute_type == WEFT_CUBLAS_COMPUTE_32F ||
         compute_type == WEFT_CUBLAS_COMPUTE_32F_FAST_TF32) &&
        scale_type == WEFT_CUDA_R_32F)
        return s;
    if (compute_type == WEFT_CUBLAS_COMPUTE_32I && scale_type == WEFT_CUDA_R_32I)
        return s;
    weft_double_mistake("%s: compute type %u, scale type %u", call, compute_type, scale_type);
    o->dead = true;
    return WEFT_CUBLAS_STATUS_NOT_SUPPORTED;
}

weft_cublas_status cublasLtMatmulDescDestroy(weft_cublaslt_desc desc)
{
    return end(desc, DESC, "cublasLtMatmulDescDestroy");
}

weft_cublas_status cublasLtMatmulDescSetAttribute(weft_cublaslt_desc desc, unsigned attribute,
                                                  const void *value, size_t bytes)
{
    return set(desc, DESC, "cublasLtMatmulDescSetAttribute", attribute, value, bytes);
}

weft_cublas_status cublasLtMatmulPreferenceCreate(weft_cublaslt_pref *out)
{
    object *o = NULL;
    weft_cublas_status s = make(PREF, "cublasLtMatmulPreferenceCreate", &o);
    if (s)
        return s;
    for (int i = 0; i < 4; i++)
        o->align[i] = 256;
    *out = (weft_cublaslt_pref)o;
    return s;
}

weft_cublas_status cublasLtMatmulPreferenceDestroy(weft_cublaslt_pref pref)
{
    return end(pref, PREF, "cublasLtMatmulPreferenceDestroy");
}

weft_cublas_status cublasLtMatmulPreferenceSetAttribute(weft_cublaslt_pref pref, unsigned attribute,
                                                        const void *value, size_t bytes)
{
    return set(pref, PREF, "cublasLtMatmulPreferenceSetAttribute", attribute, value, bytes);
}

/* -- GEMMs ------------------------------------------------------------------------------------ */

/* Key of the GEMM that an algorithm is valid for: everything but addresses. */
static uint64_t key_of(const object *desc, const object *const layout[4])
{
    uint64_t word[5 + 4 * 6] = {desc->compute, (uint64_t)desc->trans_a, (uint64_t)desc->trans_b,
                                desc->epilogue, (uint64_t)desc->sm_target};
    for (int i = 0; i < 4; i++) {
        uint64_t *w = word + 5 + 6 * i;
        w[0] = layout[i]->type;
        w[1] = layout[i]->rows;
        w[2] = layout[i]->cols;
        w[3] = (uint64_t)layout[i]->ld;
        w[4] = (uint64_t)layout[i]->batch;
        w[5] = (uint64_t)layout[i]->stride;
    }
    return weft_double_sum(word, sizeof word);
}

/* Checks that the sizes agree; false with a mistake. */
static bool fill_sizes(const object *desc, const object *const layout[4], const char *call,
                       weft_gemm *g)
{
    const object *a = layout[0], *b = layout[1], *c = layout[2], *d = layout[3];
    *g = (weft_gemm){.trans_a = desc->trans_a == WEFT_CUBLAS_OP_T,
                     .trans_b = desc->trans_b == WEFT_CUBLAS_OP_T,
                     .m = d->rows,
                     .n = d->cols,
                     .k = desc->trans_a == WEFT_CUBLAS_OP_T ? a->rows : a->cols,
                     .batch = (uint64_t)d->batch};
    uint64_t am = g->trans_a ? a->cols : a->rows, bk = g->trans_b ? b->cols : b->rows;
    uint64_t bn = g->trans_b ? b->rows : b->cols;
    bool ok = am == g->m && bk == g->k && bn == g->n && c->rows == g->m && c->cols == g->n;
    bool whole = desc->compute == WEFT_CUBLAS_COMPUTE_32I;
    g->type = a->type;
    g->result = whole ? (unsigned)WEFT_CUDA_R_32I : a->type;
    ok = ok && whole == (a->type == WEFT_CUDA_R_8I);
    for (int i = 0; i < 4; i++) {
        ok = ok && layout[i]->batch == d->batch && layout[i]->batch > 0 &&
             layout[i]->type == (i < 2 ? g->type : g->result);
        g->ld[i] = (uint64_t)layout[i]->ld;
        g->stride[i] = (uint64_t)layout[i]->stride;
    }
    if (!ok)
        weft_double_mistake("%s: A %llux%llu, B %llux%llu, C %llux%llu and D %llux%llu do not fit",
                            call, (unsigned long long)a->rows, (unsigned long long)a->cols,
                            (unsigned long long)b->rows, (unsigned long long)b->cols,
                            (unsigned long long)c->rows, (unsigned long long)c->cols,
                            (unsigned long long)d->rows, (unsigned long long)d->cols);
    return ok;
}

/* What cuBLASLt asks of integers on tensor cores in plain layouts: A transposed, B not, all sizes,
 * leading dimensions and strides multiples of 4, no epilogue. */
static bool check_bytes(const object *desc, const weft_gemm *g, const char *call)
{
    uint64_t words = g->m | g->n | g->k;
    for (int i = 0; i < 4; i++)
        words |= g->ld[i] | g->stride[i];
    if (desc->compute != WEFT_CUBLAS_COMPUTE_32I ||
        (g->trans_a && !g->trans_b && words % 4 == 0 &&
         desc->epilogue == WEFT_CUBLASLT_EPILOGUE_DEFAULT))
        return true;
    weft_double_mistake("%s: a GEMM of bytes, %llu x %llu x %llu%s%s, epilogue %u, not of words",
                        call, (unsigned long long)g->m, (unsigned long long)g->n,
                        (unsigned long long)g->k, g->trans_a ? "" : ", A not transposed",
                        g->trans_b ? ", B transposed" : "", desc->epilogue);
    return false;
}

static bool get_layouts(const void *const handle[4], const char *call, const object *out[4])
{
    for (int i = 0; i < 4; i++)
        if (!(out[i] = get(handle[i], LAYOUT, call)))
            return false;
    return true;
}

/* WEFT_DOUBLE_ABSENT: "gemm": there is no algorithm; "epilogue": none with an epilogue. */
static bool is_absent(const object *desc)
{
    return weft_double_listed("ABSENT", "gemm") ||
           (desc->epilogue != WEFT_CUBLASLT_EPILOGUE_DEFAULT &&
            weft_double_listed("ABSENT", "epilogue"));
}

static void fill_algo(weft_cublaslt_algo *to, const object *desc, const object *const layout[4],
                      const object *pref, int number)
{
    to->data[0] = ALGO_MAGIC;
    to->data[1] = key_of(desc, layout);
    to->data[2] = pref->workspace_max >= WORKSPACE_BYTES ? WORKSPACE_BYTES : 0;
    for (int i = 0; i < 4; i++)
        to->data[3 + i / 2] |= (uint64_t)pref->align[i] << (i % 2 * 32);
    to->data[5] = (uint64_t)number;
}

weft_cublas_status cublasLtMatmulAlgoGetHeuristic(weft_cublaslt_handle handle,
                                                  weft_cublaslt_desc desc, weft_cublaslt_layout a,
                                                  weft_cublaslt_layout b, weft_cublaslt_layout c,
                                                  weft_cublaslt_layout d, weft_cublaslt_pref pref,
                                                  int n_wanted, weft_cublaslt_heuristic out[],
                                                  int *out_n)
{
    const char *call = "cublasLtMatmulAlgoGetHeuristic";
    weft_cublas_status s = enter(call);
    const void *const handles[4] = {a, b, c, d};
    const object *layout[4], *x = s ? NULL : get(desc, DESC, call);
    const object *p = s ? NULL : get(pref, PREF, call);
    weft_gemm g;
    if (!s && (!get(handle, HANDLE, call) || !x || !p || !get_layouts(handles, call, layout) ||
               n_wanted < 1 || !fill_sizes(x, layout, call, &g) || !check_bytes(x, &g, call)))
        s = WEFT_CUBLAS_STATUS_INVALID_VALUE;
    if (!s && (is_absent(x) || weft_double_listed("ABSENT", "guess")))
        s = WEFT_CUBLAS_STATUS_NOT_SUPPORTED;
    *out_n = s ? 0 : n_wanted < ALGOS ? n_wanted : ALGOS;
    for (int i = 0; i < *out_n; i++) {
        memset(&out[i], 0, sizeof *out);
        fill_algo(&out[i].algo, x, layout, p, i);
        out[i].workspaceSize = (size_t)out[i].algo.data[2];
        out[i].wavesCount = 1;
    }
    return leave(s, call);
}

weft_cublas_status cublasLtMatmulAlgoCheck(weft_cublaslt_handle handle, weft_cublaslt_desc desc,
                                           weft_cublaslt_layout a, weft_cublaslt_layout b,
                                           weft_cublaslt_layout c, weft_cublaslt_layout d,
                                           const weft_cublaslt_algo *algo,
                                           weft_cublaslt_heuristic *out)
{
    const char *call = "cublasLtMatmulAlgoCheck";
    weft_cublas_status s = enter(call);
    const void *const handles[4] = {a, b, c, d};
    const object *layout[4], *x = s ? NULL : get(desc, DESC, call);
    if (!s && (!get(handle, HANDLE, call) || !x || !get_layouts(handles, call, layout) ||
               algo->data[0] != ALGO_MAGIC || algo->data[1] != key_of(x, layout)))
        s = WEFT_CUBLAS_STATUS_INVALID_VALUE;
    if (!s && (algo->data[5] >= ALGOS || is_absent(x)))
        s = WEFT_CUBLAS_STATUS_NOT_SUPPORTED;
    if (!s) {
        memset(out, 0, sizeof *out);
        out->workspaceSize = (size_t)algo->data[2];
        out->wavesCount = 1;
    }
    return leave(s, call);
}

typedef struct spans {
    weft_double_span *at;
    size_t n;
} spans;

/* Adds the ranges of a batch of matrices, by column where there are gaps. */
static bool put_matrix(spans *s, const void *at, const weft_gemm *g, int i, uint64_t cols,
                       uint64_t rows)
{
    uint64_t bytes = weft_gemm_bytes(i < 2 ? g->type : g->result);
    weft_double_span *p = realloc(s->at, (s->n + g->batch * cols + 2) * sizeof *p);
    if (!p)
        return false;
    s->at = p;
    for (uint64_t item = 0; item < g->batch; item++) {
        for (uint64_t j = 0; j < cols; j++) {
            uintptr_t from = (uintptr_t)at + (item * g->stride[i] + j * g->ld[i]) * bytes;
            weft_double_span *last = s->n ? &p[s->n - 1] : NULL;
            if (last && last->at + last->bytes == from)
                last->bytes += rows * bytes;
            else
                p[s->n++] = (weft_double_span){from, rows * bytes};
        }
    }
    return true;
}

static bool check_algo(const weft_cublaslt_algo *algo, uint64_t key, const void *const at[4],
                       const void *workspace, size_t workspace_bytes)
{
    const char *call = "cublasLtMatmul";
    if (algo->data[0] != ALGO_MAGIC || algo->data[1] != key || algo->data[5] >= ALGOS) {
        weft_double_mistake("%s: the algorithm was not returned for this GEMM", call);
        return false;
    }
    if (algo->data[2] > workspace_bytes || (algo->data[2] && (uintptr_t)workspace % 256)) {
        weft_double_mistake("%s: %zu bytes of workspace at %p, the algorithm needs %llu", call,
                            workspace_bytes, workspace, (unsigned long long)algo->data[2]);
        return false;
    }
    for (int i = 0; i < 4; i++) {
        uint32_t align = (uint32_t)(algo->data[3 + i / 2] >> (i % 2 * 32));
        if (!align || (uintptr_t)at[i] % align == 0)
            continue;
        weft_double_mistake("%s: %c at %p, the algorithm needs multiples of %u", call, "ABCD"[i],
                            at[i], align);
        return false;
    }
    return true;
}

static weft_double_enqueue_fn find_enqueue(void)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    weft_double_enqueue_fn fn = NULL;
    void *p = cuda ? dlsym(cuda, "weft_double_enqueue") : NULL;
    memcpy(&fn, &p, sizeof fn);
    if (cuda)
        dlclose(cuda);
    return fn;
}

/* Collects the accesses of a GEMM. false: out of memory. */
static bool put_accesses(const weft_gemm *g, const void *workspace, size_t bytes, spans *read,
                         spans *write)
{
    uint64_t a_cols = g->trans_a ? g->m : g->k, a_rows = g->trans_a ? g->k : g->m;
    uint64_t b_cols = g->trans_b ? g->k : g->n, b_rows = g->trans_b ? g->n : g->k;
    if (!put_matrix(read, g->a, g, 0, a_cols, a_rows) ||
        !put_matrix(read, g->b, g, 1, b_cols, b_rows) ||
        !put_matrix(write, g->d, g, 3, g->n, g->m) ||
        (g->beta != 0 && !put_matrix(read, g->c, g, 2, g->n, g->m)))
        return false;
    if (g->bias)
        read->at[read->n++] =
            (weft_double_span){(uintptr_t)g->bias, g->m * weft_gemm_bytes(g->result)};
    if (bytes)
        write->at[write->n++] = (weft_double_span){(uintptr_t)workspace, bytes};
    return true;
}

static weft_cublas_status enqueue(const weft_gemm *g, const void *workspace, size_t bytes,
                                  weft_cu_stream stream)
{
    weft_double_enqueue_fn fn = find_enqueue();
    if (!fn)
        return WEFT_CUBLAS_STATUS_NOT_INITIALIZED;
    char what[64];
    snprintf(what, sizeof what, "cublasLtMatmul %llux%llux%llu", (unsigned long long)g->m,
             (unsigned long long)g->n, (unsigned long long)g->k);
    spans read = {0}, write = {0};
    weft_cublas_status s = WEFT_CUBLAS_STATUS_ALLOC_FAILED;
    if (put_accesses(g, workspace, bytes, &read, &write))
        s = fn(stream, what, weft_gemm_run, g, sizeof *g, read.at, read.n, write.at, write.n)
                ? WEFT_CUBLAS_STATUS_EXECUTION_FAILED
                : 0;
    free(read.at);
    free(write.at);
    return s;
}

/* false: unknown epilogue. */
static bool fill_epilogue(const object *desc, weft_gemm *g)
{
    switch (desc->epilogue) {
    case WEFT_CUBLASLT_EPILOGUE_DEFAULT:
        return true;
    case WEFT_CUBLASLT_EPILOGUE_RELU:
        g->act = WEFT_GEMM_RELU;
        return true;
    case WEFT_CUBLASLT_EPILOGUE_GELU:
        g->act = WEFT_GEMM_GELU;
        return true;
    case WEFT_CUBLASLT_EPILOGUE_RELU_BIAS:
        g->act = WEFT_GEMM_RELU;
        break;
    case WEFT_CUBLASLT_EPILOGUE_GELU_BIAS:
        g->act = WEFT_GEMM_GELU;
        break;
    case WEFT_CUBLASLT_EPILOGUE_BIAS:
        break;
    default:
        return false;
    }
    g->bias = desc->bias;
    return g->bias != NULL;
}

/* Factors of the description's type; of integers only 1 and 0, and addresses of whole words. */
static bool read_factors(const object *desc, const void *alpha, const void *beta,
                         const void *const at[4], weft_gemm *g)
{
    int32_t whole[2];
    if (desc->compute != WEFT_CUBLAS_COMPUTE_32I) {
        memcpy(&g->alpha, alpha, sizeof g->alpha);
        memcpy(&g->beta, beta, sizeof g->beta);
        return true;
    }
    memcpy(&whole[0], alpha, sizeof *whole);
    memcpy(&whole[1], beta, sizeof *whole);
    uintptr_t address = (uintptr_t)at[0] | (uintptr_t)at[1] | (uintptr_t)at[3];
    if (whole[0] == 1 && whole[1] == 0 && address % 4 == 0)
        return true;
    weft_double_mistake(
        "cublasLtMatmul: a GEMM of bytes with factors %d and %d, addresses %p %p %p", (int)whole[0],
        (int)whole[1], at[0], at[1], at[3]);
    return false;
}

weft_cublas_status cublasLtMatmul(weft_cublaslt_handle handle, weft_cublaslt_desc desc,
                                  const void *alpha, const void *a, weft_cublaslt_layout a_layout,
                                  const void *b, weft_cublaslt_layout b_layout, const void *beta,
                                  const void *c, weft_cublaslt_layout c_layout, void *d,
                                  weft_cublaslt_layout d_layout, const weft_cublaslt_algo *algo,
                                  void *workspace, size_t workspace_bytes, weft_cu_stream stream)
{
    const char *call = "cublasLtMatmul";
    weft_cublas_status s = enter(call);
    const void *const handles[4] = {a_layout, b_layout, c_layout, d_layout};
    const void *const at[4] = {a, b, c, d};
    const object *layout[4], *x = s ? NULL : get(desc, DESC, call);
    weft_gemm g;
    if (!s && (!get(handle, HANDLE, call) || !x || !get_layouts(handles, call, layout) ||
               !fill_sizes(x, layout, call, &g) || !check_bytes(x, &g, call)))
        s = WEFT_CUBLAS_STATUS_INVALID_VALUE;
    if (!s && (!algo || !check_algo(algo, key_of(x, layout), at, workspace, workspace_bytes)))
        s = WEFT_CUBLAS_STATUS_INVALID_VALUE;
    if (!s && !fill_epilogue(x, &g)) {
        weft_double_mistake("%s: epilogue %u with bias %p", call, x->epilogue, x->bias);
        s = WEFT_CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (!s && !read_factors(x, alpha, beta, at, &g))
        s = WEFT_CUBLAS_STATUS_NOT_SUPPORTED;
    if (!s) {
        g.time_us = algo_us[algo->data[5]];
        g.a = a;
        g.b = b;
        g.c = c;
        g.d = d;
        s = enqueue(&g, workspace, (size_t)algo->data[2], stream);
    }
    return leave(s, call);
}
