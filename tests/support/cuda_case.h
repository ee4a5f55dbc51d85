/* Graphs compiled for a GPU and run on the host: what the backend "cuda" writes goes to the host's
 * C++ compiler instead of NVRTC (weft_cuda__compile is defined here), its commands are done one
 * after the other, and results are compared with weft_graph_eval. All graphs of a module are
 * compiled at once. Values are in memory of their own, at addresses as crooked as is asked for,
 * with a page without access behind it. */
#ifndef WEFT_TESTS_SUPPORT_CUDA_CASE_H
#define WEFT_TESTS_SUPPORT_CUDA_CASE_H

#include "base/f16.h"
#include "codegen/cuda/cuda_int.h"
#include "ir/ir.h"
#include "tests/support/cuda_host.h"

#include <math.h>

static char *cuda_case_text; /* of all modules of source */

weft_err weft_cuda__compile(const weft_cuda_source *source, uint32_t n_source,
                            const char *const *arch, uint32_t n_arch,
                            const weft_codegen_options *options, weft_arena *arena, weft_diag *diag,
                            weft_bundle_image **out_image, uint32_t *out_n_image,
                            weft_bundle_resource **out_resource)
{
    (void)arch, (void)options, (void)diag;
    weft_buf all = {0};
    for (uint32_t i = 0; i < n_source; i++)
        weft_buf_puts(&all, source[i].text);
    free(cuda_case_text);
    cuda_case_text = all.at ? all.at : calloc(1, 1);
    *out_image = NULL;
    *out_n_image = 0;
    *out_resource = weft_arena_array(arena, (size_t)n_source * n_arch + 1, sizeof **out_resource);
    return WEFT_ERR_OK;
}

typedef struct cuda_case {
    weft_module *m;
    weft_arena *arena;
    weft_diag *diag;
    weft_bundle bundle;
    cuda_host *host;
} cuda_case;

static inline void cuda_case_check(const cuda_case *c, weft_err err)
{
    if (err != WEFT_ERR_OK)
        fail_msg("%s: %s", weft_err_name(err),
                 weft_diag_count(c->diag) ? weft_diag_at(c->diag, 0)->text : "no message");
}

/* Reads kernel-stage text and compiles it; tf32: GEMMs of f32 may round to TF32. `prepare`, if not
 * NULL, changes the module before. */
static inline cuda_case *cuda_case_start_with(const char *text, bool tf32,
                                              void (*prepare)(weft_module *m, weft_diag *diag))
{
    if (cuda_host_missing()) {
        print_message("%s\n", cuda_host_missing());
        skip();
    }
    cuda_case *c = calloc(1, sizeof *c);
    assert_non_null(c);
    c->diag = weft_diag_create();
    c->arena = weft_arena_create(0);
    cuda_case_check(c, weft_module_parse(text, strlen(text), "case", NULL, c->diag, &c->m));
    if (prepare)
        prepare(c->m, c->diag);
    cuda_case_check(c, weft_module_verify(c->m, c->diag));
    weft_codegen_options options = {.target = "sm_80", .tf32 = tf32};
    cuda_case_check(c, weft_codegen_make(c->m, weft_backend_find("cuda"), &options, c->arena,
                                         c->diag, &c->bundle));
    c->host = cuda_host_build(cuda_case_text);
    return c;
}

static inline cuda_case *cuda_case_start_as(const char *text, bool tf32)
{
    return cuda_case_start_with(text, tf32, NULL);
}

static inline cuda_case *cuda_case_start(const char *text)
{
    return cuda_case_start_as(text, false);
}

static inline void cuda_case_stop(cuda_case *c)
{
    cuda_host_close(c->host);
    weft_module_destroy(c->m);
    weft_arena_destroy(c->arena);
    weft_diag_destroy(c->diag);
    free(c);
    free(cuda_case_text);
    cuda_case_text = NULL;
}

/* -- Commands ---------------------------------------------------------------------------------- */

typedef struct cuda_case_run {
    cuda_case *c;
    const weft_bundle_program *p;
    int64_t symbol[64];
    weft_tensor *value; /* by value - 1 */
    const weft_bundle_launch *launch;
    unsigned char *scratch;
} cuda_case_run;

static inline int64_t cuda_case_dim(const cuda_case_run *r, weft_dim d)
{
    int64_t x;
    if (!weft_dim_eval(r->p->dims, d, r->symbol, r->p->n_symbol, &x))
        fail_msg("a dim without a value");
    return x;
}

static inline void *cuda_case_address(const cuda_case_run *r, const weft_bundle_arg *arg)
{
    int64_t at = cuda_case_dim(r, arg->dim);
    switch (arg->kind) {
    case WEFT_COMMAND_ARG_IN:
        return (unsigned char *)r->value[r->launch->in[arg->index] - 1].data + at;
    case WEFT_COMMAND_ARG_OUT:
        return (unsigned char *)r->value[r->launch->out[arg->index] - 1].data + at;
    case WEFT_COMMAND_ARG_SCRATCH:
        return r->scratch + at;
    default:
        return NULL;
    }
}

static inline void cuda_case_kernel(const cuda_case_run *r, const weft_bundle_command *s)
{
    const weft_bundle_kernel *k = &r->c->bundle.kernel[s->kernel];
    enum { ARGS = 128 };
    void *pointer[ARGS], *param[ARGS];
    int32_t whole[ARGS];
    float real[ARGS];
    int64_t grid[3];
    assert_true(s->n_arg <= ARGS);
    for (uint32_t i = 0; i < s->n_arg; i++) {
        const weft_bundle_arg *arg = &s->arg[i];
        if (arg->kind == WEFT_COMMAND_ARG_INT) {
            int64_t x = cuda_case_dim(r, arg->dim);
            assert_true(x >= INT32_MIN && x <= INT32_MAX);
            whole[i] = (int32_t)x;
            param[i] = &whole[i];
        } else if (arg->kind == WEFT_COMMAND_ARG_FLOAT) {
            real[i] = arg->f;
            param[i] = &real[i];
        } else {
            pointer[i] = cuda_case_address(r, arg);
            param[i] = &pointer[i];
        }
    }
    for (int i = 0; i < 3; i++) {
        grid[i] = cuda_case_dim(r, s->grid[i]);
        if (grid[i] == 0)
            return;
        assert_true(grid[i] > 0 && grid[i] <= (i == 0 ? INT32_MAX : 65535));
    }
    cuda_host_launch(r->c->host, k->name, (unsigned)grid[0], (unsigned)grid[1], (unsigned)grid[2],
                     k->threads, k->shared_bytes, param);
}

static inline float cuda_case_get(weft_dtype t, const void *p, int64_t i)
{
    weft_tensor x = {.dtype = t, .rank = 1, .dim = {i + 1}, .data = (void *)(uintptr_t)p};
    return (float)weft_tensor_get_f64(&x, i);
}

static inline void cuda_case_put(weft_dtype t, void *p, int64_t i, float x)
{
    const weft_tensor to = {.dtype = t, .rank = 1, .dim = {i + 1}, .data = p};
    weft_tensor_set_f64(&to, i, x);
}

/* A GEMM of bytes: exact, with the layouts that cuBLASLt's integers ask for. */
static inline void cuda_case_bytes(const cuda_case_run *r, const weft_bundle_gemm *g)
{
    int64_t m = cuda_case_dim(r, g->m), n = cuda_case_dim(r, g->n), k = cuda_case_dim(r, g->k);
    int64_t lda = cuda_case_dim(r, g->lda), ldb = cuda_case_dim(r, g->ldb);
    int64_t ldd = cuda_case_dim(r, g->ldd), batch = cuda_case_dim(r, g->batch);
    int64_t step_a = cuda_case_dim(r, g->stride_a), step_b = cuda_case_dim(r, g->stride_b);
    int64_t step_d = cuda_case_dim(r, g->stride_d);
    const int8_t *a = cuda_case_address(r, &g->a), *b = cuda_case_address(r, &g->b);
    int32_t *d = cuda_case_address(r, &g->d);
    assert_true(weft_gemm_is_bytes(g) && k > 0 && lda >= k && ldb >= k && ldd >= n);
    assert_true((m | n | k | lda | ldb | ldd | step_a | step_b | step_d) % WEFT_GEMM_BYTES_STEP ==
                0);
    for (int64_t x = 0; x < batch; x++)
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                uint32_t sum = 0;
                for (int64_t c = 0; c < k; c++)
                    sum += (uint32_t)(a[x * step_a + i * lda + c] * b[x * step_b + j * ldb + c]);
                d[x * step_d + i * ldd + j] = (int32_t)sum;
            }
}

/* What the library would do: see ir/bundle.h. */
static inline void cuda_case_gemm(const cuda_case_run *r, const weft_bundle_gemm *g)
{
    if (cuda_case_dim(r, g->m) == 0)
        return;
    if (g->dtype == WEFT_DTYPE_I8) {
        cuda_case_bytes(r, g);
        return;
    }
    int64_t m = cuda_case_dim(r, g->m), n = cuda_case_dim(r, g->n), k = cuda_case_dim(r, g->k);
    int64_t lda = cuda_case_dim(r, g->lda), ldb = cuda_case_dim(r, g->ldb);
    int64_t ldc = cuda_case_dim(r, g->ldc), ldd = cuda_case_dim(r, g->ldd);
    assert_true(k > 0 && lda >= (g->trans_a ? m : k) && ldb >= (g->trans_b ? k : n) && ldd >= n);
    const void *pa = cuda_case_address(r, &g->a), *pb = cuda_case_address(r, &g->b);
    const void *pc = cuda_case_address(r, &g->c), *bias = cuda_case_address(r, &g->bias);
    void *pd = cuda_case_address(r, &g->d);
    for (int64_t b = 0; b < cuda_case_dim(r, g->batch); b++) {
        int64_t at_a = b * cuda_case_dim(r, g->stride_a), at_b = b * cuda_case_dim(r, g->stride_b);
        int64_t at_c = b * cuda_case_dim(r, g->stride_c), at_d = b * cuda_case_dim(r, g->stride_d);
        for (int64_t i = 0; i < m; i++) {
            for (int64_t j = 0; j < n; j++) {
                float sum = 0;
                for (int64_t x = 0; x < k; x++)
                    sum += cuda_case_get(g->dtype, pa,
                                         at_a + (g->trans_a ? x * lda + i : i * lda + x)) *
                           cuda_case_get(g->dtype, pb,
                                         at_b + (g->trans_b ? j * ldb + x : x * ldb + j));
                sum *= g->alpha;
                if (pc != NULL)
                    sum += g->beta * cuda_case_get(g->dtype, pc, at_c + i * ldc + j);
                if (bias != NULL)
                    sum += cuda_case_get(g->dtype, bias, j);
                if (g->act == WEFT_GEMM_ACT_RELU)
                    sum = weft_step_apply(WEFT_STEP_RELU, &sum);
                else if (g->act == WEFT_GEMM_ACT_GELU_TANH)
                    sum = weft_step_apply(WEFT_STEP_GELU_TANH, &sum);
                cuda_case_put(g->dtype, pd, at_d + i * ldd + j, sum);
            }
        }
    }
}

static inline void cuda_case_command(const cuda_case_run *r, const weft_bundle_command *s)
{
    switch (s->kind) {
    case WEFT_COMMAND_KERNEL:
    case WEFT_COMMAND_INSTEAD:
        cuda_case_kernel(r, s);
        break;
    case WEFT_COMMAND_CONV: /* there is no cuDNN here */
    case WEFT_COMMAND_AFTER:
        break;
    case WEFT_COMMAND_GEMM:
        cuda_case_gemm(r, s->gemm);
        break;
    case WEFT_COMMAND_FINISH:
        break; /* GEMMs on the host support every epilogue */
    case WEFT_COMMAND_COPY:
        memmove(cuda_case_address(r, &s->arg[0]), cuda_case_address(r, &s->arg[1]),
                (size_t)cuda_case_dim(r, s->bytes));
        break;
    default:
        memset(cuda_case_address(r, &s->arg[0]), 0, (size_t)cuda_case_dim(r, s->bytes));
    }
}

/* -- Programs ---------------------------------------------------------------------------------- */

/* Runs program `index` on inputs (in order); `out` refers to memory that the next run frees.
 * `shift`: elements that addresses are off a multiple of 64 bytes; `order`: of threads. */
static inline void cuda_case_go(cuda_case *c, uint32_t index, const weft_tensor *in, size_t shift,
                                unsigned order, weft_tensor *out)
{
    cuda_case_run r = {.c = c, .p = &c->bundle.program[index]};
    const weft_bundle_program *p = r.p;
    cuda_host_forget_memory(c->host);
    cuda_host_order(c->host, order);
    assert_true(p->n_symbol <= 64);
    cuda_case_check(c, weft_bundle_bind(p, in, p->n_input, r.symbol, c->diag));
    r.value = calloc(p->n_value, sizeof *r.value);
    for (uint32_t v = 0; v < p->n_value; v++) {
        weft_tensor *t = &r.value[v];
        const weft_ttype *type = &p->value[v].type;
        *t = (weft_tensor){.dtype = (weft_dtype)type->dtype, .rank = type->rank};
        for (uint32_t d = 0; d < type->rank; d++)
            t->dim[d] = cuda_case_dim(&r, type->dim[d]);
        size_t size = weft_dtype_size(t->dtype), bytes = weft_tensor_bytes(t);
        /* Drivers align weights. */
        t->data = cuda_host_memory(c->host, bytes, p->value[v].weight ? 0 : shift * size % 64);
        if (p->value[v].weight)
            memcpy(t->data, c->bundle.weight[p->value[v].weight - 1].data, bytes);
    }
    for (uint32_t i = 0; i < p->n_input; i++)
        if (p->input[i].value)
            memcpy(r.value[p->input[i].value - 1].data, in[i].data, weft_tensor_bytes(&in[i]));
    for (uint32_t l = 0; l < p->n_launch; l++) {
        r.launch = &p->launch[l];
        r.scratch =
            cuda_host_memory(c->host, (size_t)cuda_case_dim(&r, r.launch->scratch_bytes), 0);
        for (uint32_t s = 0; s < r.launch->n_command; s++)
            cuda_case_command(&r, &r.launch->command[s]);
    }
    for (uint32_t o = 0; o < p->n_output; o++)
        out[o] = r.value[p->output[o].value - 1];
    free(r.value);
}

/* Numbers in [-1, 1), the same for the same seed. */
static inline float cuda_case_random(uint64_t *seed)
{
    uint64_t x = *seed += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (float)((x ^ x >> 31) >> 40) * 0x1p-23f - 1;
}

/* NaN where NaN is expected, infinities likewise, the rest within `tolerance` of the largest. */
static inline void cuda_case_compare(const char *name, const weft_tensor *have,
                                     const weft_tensor *want, double tolerance)
{
    int64_t n = weft_tensor_numel(want);
    double scale = 0;
    assert_int_equal(weft_tensor_numel(have), n);
    for (int64_t i = 0; i < n; i++) {
        double w = fabs(weft_tensor_get_f64(want, i));
        if (isfinite(w) && w > scale)
            scale = w;
    }
    for (int64_t i = 0; i < n; i++) {
        double w = weft_tensor_get_f64(want, i), h = weft_tensor_get_f64(have, i);
        if (isfinite(w) ? !(fabs(h - w) <= tolerance * scale) : !(isnan(w) ? isnan(h) : h == w))
            fail_msg("%s: element %lld of %lld is %g instead of %g", name, (long long)i,
                     (long long)n, h, w);
    }
}

/* Makes the elements of rows with NaN or infinities, where `have` is not finite, those of `want`.
 */
static inline void cuda_case_forgive(weft_tensor *have, const weft_tensor *want)
{
    int64_t cols = want->rank ? want->dim[want->rank - 1] : 1, n = weft_tensor_numel(want);
    for (int64_t row = 0; row < n; row += cols) {
        bool special = false;
        for (int64_t i = row; i < row + cols; i++)
            special = special || !isfinite(weft_tensor_get_f64(want, i));
        for (int64_t i = row; i < row + cols && special; i++)
            if (!isfinite(weft_tensor_get_f64(have, i)))
                weft_tensor_set_f64(have, i, weft_tensor_get_f64(want, i));
    }
}

static inline double cuda_case_tolerance(weft_dtype t)
{
    return t == WEFT_DTYPE_F16 ? 2e-3 : t == WEFT_DTYPE_BF16 ? 1.2e-2 : 1e-5;
}

enum { CUDA_CASE_PORTS = 16 };

/* What a run is like. */
typedef struct cuda_case_spec {
    const int64_t *symbol; /* values of the graph's symbols */
    size_t shift;
    bool special;     /* some NaN and infinities among the inputs */
    double tolerance; /* 0: by element type */
    bool exact;       /* results have the reference's bits */
    bool two_sums;    /* a sum of products where the reference has one: of infinities, NaN */
} cuda_case_spec;

/* Runs graph `index` on random inputs in each order of threads and compares all outputs. */
static inline void cuda_case_verify(cuda_case *c, uint32_t index, const cuda_case_spec *spec)
{
    weft_graph *g = weft_graph_at(c->m, index);
    const weft_dimpool *pool = weft_module_dims(c->m);
    weft_tensor in[CUDA_CASE_PORTS], want[CUDA_CASE_PORTS], have[CUDA_CASE_PORTS];
    uint32_t n_in = weft_graph_input_count(g), n_out = weft_graph_output_count(g);
    int64_t symbol[64];
    uint64_t seed = index * 1000 + spec->shift;
    memset(symbol, 0xff, sizeof symbol);
    for (uint32_t i = 0; i < weft_graph_symbol_count(g); i++)
        symbol[weft_dim_as_symbol(pool, weft_graph_symbol_dim(g, i))] = spec->symbol[i];
    assert_true(n_in <= CUDA_CASE_PORTS && n_out <= CUDA_CASE_PORTS);
    for (uint32_t i = 0; i < n_in; i++) {
        const weft_ttype *t = weft_val_ttype(c->m, weft_graph_input(g, i));
        in[i] = (weft_tensor){.dtype = (weft_dtype)t->dtype, .rank = t->rank};
        for (uint32_t d = 0; d < t->rank; d++)
            assert_true(weft_dim_eval(pool, t->dim[d], symbol, 64, &in[i].dim[d]));
        int64_t n = weft_tensor_numel(&in[i]);
        in[i].data = malloc(weft_tensor_bytes(&in[i]) + 1);
        for (int64_t k = 0; k < n; k++) {
            float x = cuda_case_random(&seed);
            if (in[i].dtype == WEFT_DTYPE_BOOL)
                x = x > -0.5f;
            else if (in[i].dtype == WEFT_DTYPE_U8 || in[i].dtype == WEFT_DTYPE_I8)
                x = floorf(x * 128) + (in[i].dtype == WEFT_DTYPE_U8 ? 128 : 0);
            else if (!weft_dtype_is_float(in[i].dtype))
                x = floorf(x * 100);
            else if (spec->special && (k * 7919 + i) % 997 == 5)
                x = k % 3 == 0 ? (float)NAN : k % 3 == 1 ? INFINITY : -INFINITY;
            cuda_case_put(in[i].dtype, in[i].data, k, x);
        }
    }
    weft_arena *arena = weft_arena_create(0);
    cuda_case_check(c, weft_graph_eval(g, in, n_in, arena, c->diag, want, n_out));
    for (unsigned order = 0; order < CUDA_HOST_ORDERS; order++) {
        cuda_case_go(c, index, in, spec->shift, order, have);
        for (uint32_t o = 0; o < n_out && spec->two_sums; o++)
            cuda_case_forgive(&have[o], &want[o]);
        for (uint32_t o = 0; o < n_out && spec->exact; o++)
            if (memcmp(have[o].data, want[o].data, weft_tensor_bytes(&want[o])) != 0)
                cuda_case_compare(weft_graph_name(g), &have[o], &want[o], 1e-12);
        for (uint32_t o = 0; o < n_out && spec->exact; o++)
            assert_memory_equal(have[o].data, want[o].data, weft_tensor_bytes(&want[o]));
        for (uint32_t o = 0; o < n_out && !spec->exact; o++)
            cuda_case_compare(weft_graph_name(g), &have[o], &want[o],
                              spec->tolerance > 0 ? spec->tolerance
                                                  : cuda_case_tolerance(want[o].dtype));
    }
    weft_arena_destroy(arena);
    for (uint32_t i = 0; i < n_in; i++)
        free(in[i].data);
}

#endif
