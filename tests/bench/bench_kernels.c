/* Times single kernels on this CPU; estimator/models/model_cpu.c is fitted to the results.
 *
 *   bench_kernels [-t THREADS] [-b BATCH,...] [-d NAME=VALUE,...] [-r RUNS] MODEL...
 *
 * MODEL is an ONNX file, or mlp:NxK:BYTES: GEMMs with weights of N x K and K x N alternately,
 * until the weights have BYTES in total; BYTES selects the cache level that the weights come from.
 * Each model is compiled and run as `weft run` does, up to RUNS times. Prints a CSV with a row for
 * each distinct launch: the sizes that the estimator gets and the 10th percentile of the time,
 * because other processes use the machine too. measure_kernels runs a grid of models. */
#include "codegen/codegen.h"
#include "estimator/estimator.h"
#include "frontend/frontend.h"
#include "passes/passes.h"
#include "runtime/runtime.h"
#include "tests/bench/times.h"
#include "tests/support/rand.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LIST_MAX = 16, RUN_US = 80000, RUNS_MAX = 10000, LAYERS_MAX = 256, SYMBOLS_MAX = 16 };

typedef struct options {
    uint32_t threads;
    int runs;
    int64_t batch[LIST_MAX], dim[LIST_MAX];
    size_t n_batch, n_dim;
    char dim_name[32];
} options;

typedef struct subject {
    const char *name;
    weft_module *m;
    weft_graph *g;
    weft_engine *engine;
    weft_session *session;
    weft_diag *diag;
    weft_arena *arena;
} subject;

static void give_up(const weft_diag *diag, const char *what)
{
    fprintf(stderr, "%s: %s\n", what,
            weft_diag_count(diag) > 0 ? weft_diag_at(diag, 0)->text : "no message");
    exit(1);
}

/* -- Models ----------------------------------------------------------------------------------- */

static bool write_mlp(const char *name, weft_buf *out)
{
    unsigned long n, k, bytes;
    if (sscanf(name, "mlp:%lux%lu:%lu", &n, &k, &bytes) != 3 || n == 0 || k == 0)
        return false;
    unsigned long layers = bytes / (4 * n * k);
    layers = layers < 2 ? 2 : layers > LAYERS_MAX ? LAYERS_MAX : layers / 2 * 2;
    weft_buf_printf(out, "wir 1 graph\nsymbol ?b = [1, 4096]\n");
    for (unsigned long i = 0; i < layers; i++)
        weft_buf_printf(out, "weight $w%lu : f32[%lu,%lu] = random %lu\n", i, i % 2 ? n : k,
                        i % 2 ? k : n, i + 1);
    weft_buf_printf(out, "graph @mlp (%%x : f32[?b,%lu]) {\n  symbol ?b \"batch\"\n", k);
    for (unsigned long i = 0; i < layers; i++)
        weft_buf_printf(out, "  %%%lu : f32[?b,%lu] = matmul %%%s%.0lu, $w%lu\n", i + 1,
                        i % 2 ? k : n, i ? "" : "x", i, i);
    weft_buf_printf(out, "  return \"y\" %%%lu\n}\n", layers);
    return true;
}

static void load(subject *s)
{
    weft_buf text = {0};
    weft_graph *g = NULL;
    size_t n = 0;
    const weft_pass *const *pass = weft_pipeline("cpu", &n);
    weft_run_options run = {.verify = WEFT_VERIFY_OFF};
    weft_err err = WEFT_ERR_OK;
    if (write_mlp(s->name, &text)) {
        err = weft_module_parse(text.at, text.len, s->name, NULL, s->diag, &s->m);
    } else {
        s->m = weft_module_create(0);
        err = weft_import_onnx(s->m, s->name, NULL, s->diag, &g);
    }
    weft_buf_finish(&text);
    if (err == WEFT_ERR_OK)
        err = weft_passes_run(s->m, pass, n, &run, s->diag);
    if (err != WEFT_ERR_OK)
        give_up(s->diag, s->name);
    s->g = weft_graph_at(s->m, 0);
}

static void open_session(subject *s, const options *o)
{
    char path[64];
    weft_bundle bundle = {0};
    const weft_engine_options engine = {.threads = o->threads};
    snprintf(path, sizeof path, "bench_kernels.%ld.weft", (long)getpid());
    if (weft_codegen_bundle(s->m, weft_backend_find("cpu"), NULL, NULL, s->arena, s->diag,
                            &bundle) != WEFT_ERR_OK ||
        weft_bundle_write(&bundle, path, s->diag) != WEFT_ERR_OK ||
        weft_engine_open(path, &engine, s->diag, &s->engine) != WEFT_ERR_OK ||
        weft_session_open(s->engine, weft_engine_bundle(s->engine)->program[0].name, s->diag,
                          &s->session) != WEFT_ERR_OK)
        give_up(s->diag, s->name);
    unlink(path);
}

/* Fills inputs: floats uniform in [-1, 1), integers 0. */
static weft_tensor *make_inputs(subject *s, const int64_t *symbol)
{
    const weft_bundle_program *p = weft_session_program(s->session);
    weft_tensor *in = weft_arena_array(s->arena, (size_t)p->n_input + 1, sizeof *in);
    uint64_t seed = 1;
    for (uint32_t i = 0; i < p->n_input; i++) {
        const weft_ttype *t = &p->value[p->input[i].value - 1].type;
        in[i] = (weft_tensor){.dtype = t->dtype, .rank = t->rank};
        for (uint32_t d = 0; d < t->rank; d++)
            if (!weft_dim_eval(p->dims, t->dim[d], symbol, p->n_symbol, &in[i].dim[d]))
                give_up(s->diag, s->name);
        in[i].data = weft_arena_alloc(s->arena, weft_tensor_bytes(&in[i]) + 64);
        memset(in[i].data, 0, weft_tensor_bytes(&in[i]));
        for (int64_t k = 0; in[i].dtype == WEFT_DTYPE_F32 && k < weft_tensor_numel(&in[i]); k++) {
            ((float *)in[i].data)[k] = rand_signed(&seed);
        }
    }
    return in;
}

/* -- Measuring -------------------------------------------------------------------------------- */

static void run_once(subject *s, const weft_tensor *in, weft_tensor *out)
{
    const weft_bundle_program *p = weft_session_program(s->session);
    if (weft_session_run(s->session, in, p->n_input, s->diag, out, p->n_output) != WEFT_ERR_OK)
        give_up(s->diag, s->name);
}

/* The 10th percentile of the times of each launch. */
static void measure(subject *s, const options *o, const weft_tensor *in, double *launch_us,
                    const char **variant)
{
    const weft_bundle_program *p = weft_session_program(s->session);
    size_t most = (size_t)o->runs, n_run = 0;
    weft_tensor *out = weft_arena_array(s->arena, (size_t)p->n_output + 1, sizeof *out);
    double *sample = weft_arena_array(s->arena, p->n_launch * most + 1, sizeof *sample);
    run_once(s, in, out);
    run_once(s, in, out);
    weft_session_profile(s->session, true);
    for (double start = now_us(); n_run < most && (n_run < 3 || now_us() - start < RUN_US);
         n_run++) {
        uint32_t n = 0;
        run_once(s, in, out);
        const weft_launch_time *t = weft_session_times(s->session, &n);
        for (uint32_t i = 0; i < n; i++) {
            sample[t[i].launch * most + n_run] = t[i].time_us;
            variant[t[i].launch] = t[i].variant;
        }
    }
    weft_session_profile(s->session, false);
    for (uint32_t i = 0; i < p->n_launch; i++) {
        sort_times(sample + i * most, n_run);
        launch_us[i] = sample[i * most + n_run / 10];
    }
}

/* -- Rows ------------------------------------------------------------------------------------- */

static bool same_problem(const weft_kernel *a, const weft_kernel *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->batch == b->batch && a->m == b->m &&
           a->n == b->n && a->k == b->k && a->rows == b->rows && a->cols == b->cols &&
           a->flop_saving == b->flop_saving && a->work.flops == b->work.flops &&
           a->work.bytes_read == b->work.bytes_read &&
           a->work.bytes_written == b->work.bytes_written &&
           a->work.weight_bytes == b->work.weight_bytes && a->conv.kernel_h == b->conv.kernel_h &&
           a->conv.stride_h == b->conv.stride_h;
}

/* Launches with equal sizes become one row with their mean time. */
static void print_rows(const subject *s, const options *o, const weft_workload *work,
                       const double *launch_us, const char *const *variant)
{
    const char *name = strrchr(s->name, '/') ? strrchr(s->name, '/') + 1 : s->name;
    for (size_t i = 0; i < work->n; i++) {
        const weft_kernel *k = &work->kernel[i].kernel;
        double sum = 0;
        uint32_t count = 0, first = 0;
        bool seen = false;
        for (size_t j = 0; j < work->n; j++) {
            uint32_t at = 0;
            if (!same_problem(k, &work->kernel[j].kernel) ||
                strcmp(work->kernel[i].op, work->kernel[j].op) != 0)
                continue;
            seen = seen || j < i;
            WEFT_FOREACH_NODE (s->m, s->g, node) {
                if (node.i == work->kernel[j].node.i)
                    break;
                at++;
            }
            first = count == 0 ? at : first;
            sum += launch_us[at];
            count++;
        }
        if (seen)
            continue;
        printf(
            "%s,%u,%s,%s,%s,%s,%g,%g,%g,%g,%.0f,%.0f,%g,%g,%g,%.0f,%.0f,%.0f,%.0f,%.0f,%u,%.4g\n",
            name, o->threads, variant[first], work->kernel[i].op, weft_kernel_kind_name(k->kind),
            weft_dtype_name(k->dtype), k->batch, k->m, k->n, k->k, k->rows, k->cols, k->conv.out_h,
            k->conv.out_w, k->flop_saving, k->work.flops, k->work.bytes_read, k->work.bytes_written,
            k->work.weight_bytes, k->reuse_bytes, count, sum / count);
    }
}

static void bench_sizes(subject *s, const options *o, int64_t batch, int64_t dim)
{
    int64_t symbol[SYMBOLS_MAX];
    weft_workload work;
    const weft_bundle_program *p = weft_session_program(s->session);
    if (weft_graph_symbol_count(s->g) > SYMBOLS_MAX ||
        weft_estimate_symbols(s->g, (uint32_t)batch, s->diag, symbol) != WEFT_ERR_OK)
        give_up(s->diag, s->name);
    for (uint32_t i = 0; i < weft_graph_symbol_count(s->g); i++)
        if (strcmp(weft_graph_symbol_name(s->g, i), o->dim_name) == 0)
            symbol[i] = dim;
    double *launch_us = weft_arena_array(s->arena, (size_t)p->n_launch + 1, sizeof *launch_us);
    const char **variant = weft_arena_array(s->arena, (size_t)p->n_launch + 1, sizeof *variant);
    if (weft_workload_make(s->g, symbol, NULL, s->arena, s->diag, &work) != WEFT_ERR_OK)
        give_up(s->diag, s->name);
    measure(s, o, make_inputs(s, symbol), launch_us, variant);
    print_rows(s, o, &work, launch_us, variant);
    fflush(stdout);
}

static void bench_model(const char *name, const options *o)
{
    subject s = {.name = name, .diag = weft_diag_create()};
    s.arena = weft_arena_create(0);
    load(&s);
    open_session(&s, o);
    for (size_t b = 0; b < o->n_batch; b++)
        for (size_t d = 0; d < (o->n_dim ? o->n_dim : 1); d++)
            bench_sizes(&s, o, o->batch[b], o->dim[d]);
    weft_session_close(s.session);
    weft_engine_close(s.engine);
    weft_module_destroy(s.m);
    weft_arena_destroy(s.arena);
    weft_diag_destroy(s.diag);
}

/* -- Options ---------------------------------------------------------------------------------- */

static size_t read_list(const char *text, int64_t *out)
{
    size_t n = 0;
    for (char *end; *text && n < LIST_MAX; text = *end ? end + 1 : end)
        out[n++] = strtoll(text, &end, 10);
    return n;
}

int main(int argc, char **argv)
{
    options o = {.threads = 2, .runs = 200, .batch = {1}, .n_batch = 1};
    int opt;
    while ((opt = getopt(argc, argv, "t:b:d:r:")) != -1) {
        const char *equals = optarg ? strchr(optarg, '=') : NULL;
        if (opt == 't')
            o.threads = (uint32_t)atoi(optarg);
        else if (opt == 'b')
            o.n_batch = read_list(optarg, o.batch);
        else if (opt == 'r')
            o.runs = atoi(optarg);
        else if (opt == 'd' && equals && equals - optarg < (ptrdiff_t)sizeof o.dim_name) {
            memcpy(o.dim_name, optarg, (size_t)(equals - optarg));
            o.n_dim = read_list(equals + 1, o.dim);
        } else
            return 2;
    }
    if (optind == argc || o.threads < 1 || o.runs < 1 || o.runs > RUNS_MAX) {
        fputs("usage: bench_kernels [-t THREADS] [-b BATCH,...] [-d NAME=VALUE,...] [-r RUNS] "
              "MODEL.onnx|mlp:NxK:BYTES...\n",
              stderr);
        return 2;
    }
    puts(
        "model,threads,variant,op,kind,dtype,b,m,n,k,rows,cols,out_h,out_w,saving,flops,bytes_read,"
        "bytes_written,weight_bytes,reuse_bytes,launches,time_us");
    for (int i = optind; i < argc; i++)
        bench_model(argv[i], &o);
    return 0;
}
