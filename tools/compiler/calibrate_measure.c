/* Kernels that `weft calibrate` measures: GEMMs whose weights come from each level of the caches
 * and from memory, convolutions, pooling, attention, normalisations and element-wise functions. */
#include "tools/compiler/calibrate_measure.h"

#include "base/hash.h"
#include "base/str.h"
#include "codegen/codegen.h"
#include "passes/passes.h"
#include "runtime/runtime.h"
#include "tools/common/sample_tensors.h"
#include "tools/common/tools.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    RUNS_MAX = 400,
    RUNS_MIN = 5,
    LAYERS_MAX = 128,
    SYMBOLS_MAX = 4,
    BATCHES = 4,
    SUBJECT_MAX = 128
};
static const double run_ms = 60;

/* -- Models ----------------------------------------------------------------------------------- */

/* GEMMs with weights of n x k and k x n alternately, `bytes` in total. */
typedef struct chain {
    unsigned n, k;
    double bytes;
} chain;

static const chain chains[] = {{64, 256, 3e5},    {128, 128, 2e6},   {256, 1024, 4e6},
                               {512, 512, 14e6},  {384, 1536, 36e6}, {768, 3072, 50e6},
                               {1024, 1024, 4e7}, {2048, 2048, 7e7}};

/* Convolutions of a square image with square filters; a group for each channel, or one. */
typedef struct conv {
    unsigned in, out, size, taps, stride;
    bool depthwise;
} conv;

static const conv convs[] = {
    {32, 32, 56, 3, 1, false},   {64, 64, 56, 3, 1, false},    {128, 128, 28, 3, 1, false},
    {256, 256, 14, 3, 1, false}, {512, 512, 7, 3, 1, false},   {128, 32, 28, 3, 1, false},
    {3, 64, 224, 7, 2, false},   {128, 128, 56, 3, 2, false},  {256, 256, 28, 3, 2, false},
    {64, 64, 56, 1, 1, false},   {64, 256, 56, 1, 1, false},   {256, 64, 56, 1, 1, false},
    {16, 96, 112, 1, 1, false},  {24, 144, 56, 1, 1, false},   {512, 128, 28, 1, 1, false},
    {576, 96, 14, 1, 1, false},  {1024, 256, 14, 1, 1, false}, {512, 512, 14, 1, 1, false},
    {32, 32, 112, 3, 1, true},   {96, 96, 112, 3, 2, true},    {144, 144, 56, 3, 1, true},
    {240, 240, 28, 5, 1, true},  {384, 384, 14, 3, 1, true},   {960, 960, 7, 3, 1, true}};

/* Pooling of a square image, 3 x 3 or 2 x 2 windows at stride 2. */
typedef struct pool {
    unsigned channels, size, taps;
    const char *op;
} pool;

static const pool pools[] = {{64, 112, 3, "max_pool"},
                             {96, 55, 3, "max_pool"},
                             {128, 56, 2, "average_pool"},
                             {256, 28, 2, "average_pool"}};

/* Attention over 12 heads of 64, and tokens of a request. */
static const unsigned attentions[] = {8, 32, 128};

/* Functions over rows of 768. */
static const char *const functions[] = {"relu %x", "sigmoid %x", "softmax %x {axis = -1}",
                                        "layer_norm %x, $g, $b {axis = -1, epsilon = 1e-05}"};

enum {
    CHAINS = sizeof chains / sizeof chains[0],
    CONVS = sizeof convs / sizeof convs[0],
    POOLS = sizeof pools / sizeof pools[0],
    ATTENTIONS = sizeof attentions / sizeof attentions[0],
    FUNCTIONS = sizeof functions / sizeof functions[0],
    MODELS = CHAINS + CONVS + POOLS + ATTENTIONS + FUNCTIONS
};

static void write_chain(const chain *c, weft_buf *out)
{
    double layers = fmin(LAYERS_MAX, fmax(2, c->bytes / (4.0 * c->n * c->k)));
    unsigned count = (unsigned)layers / 2 * 2;
    for (unsigned i = 0; i < count; i++)
        weft_buf_printf(out, "weight $w%u : f32[%u,%u] = random %u\n", i, i % 2 ? c->n : c->k,
                        i % 2 ? c->k : c->n, i + 1);
    weft_buf_printf(out, "graph @g (%%x : f32[?b,%u]) {\n  symbol ?b \"batch\"\n", c->k);
    for (unsigned i = 0; i < count; i++) {
        weft_buf_printf(out, "  %%%u : f32[?b,%u] = matmul %%", i + 1, i % 2 ? c->k : c->n);
        if (i)
            weft_buf_printf(out, "%u, $w%u\n", i, i);
        else
            weft_buf_puts(out, "x, $w0\n");
    }
    weft_buf_printf(out, "  return \"y\" %%%u\n}\n", count);
}

/* A subject between 1 x 1 convolutions and relus, so that it gets the layout that it has in
 * networks: `in` channels of in_size x in_size to `out` of out_size x out_size. Few channels are
 * read as they are. */
static void write_between(const char *subject, unsigned in, unsigned in_size, unsigned out,
                          unsigned out_size, weft_buf *text)
{
    enum { FEW = 16 };
    unsigned at = 0;
    weft_buf_printf(text,
                    "weight $a : f32[%u,%u,1,1] = random 2\nweight $z : f32[%u,%u,1,1] = random 3\n"
                    "graph @g (%%x : f32[?b,%u,%u,%u]) {\n  symbol ?b \"batch\"\n",
                    in, in, out, out, in, in_size, in_size);
    if (in >= FEW) {
        weft_buf_printf(text,
                        "  %%1 : f32[?b,%u,%u,%u] = conv %%x, $a\n"
                        "  %%2 : f32[?b,%u,%u,%u] = relu %%1\n",
                        in, in_size, in_size, in, in_size, in_size);
        at = 2;
    }
    weft_buf_printf(text, "  %%%u : f32[?b,%u,%u,%u] = ", at + 1, out, out_size, out_size);
    weft_buf_printf(text, subject, at ? "%2" : "%x");
    weft_buf_printf(text,
                    "\n  %%%u : f32[?b,%u,%u,%u] = relu %%%u\n"
                    "  %%%u : f32[?b,%u,%u,%u] = conv %%%u, $z\n  return \"y\" %%%u\n}\n",
                    at + 2, out, out_size, out_size, at + 1, at + 3, out, out_size, out_size,
                    at + 2, at + 3);
}

static void write_conv(const conv *c, weft_buf *out)
{
    char subject[SUBJECT_MAX];
    unsigned pad = c->taps / 2, size = (c->size + 2 * pad - c->taps) / c->stride + 1;
    snprintf(subject, sizeof subject,
             "conv %%s, $w {group = %u, pads = [%u, %u, %u, %u], strides = [%u, %u]}",
             c->depthwise ? c->in : 1, pad, pad, pad, pad, c->stride, c->stride);
    weft_buf_printf(out, "weight $w : f32[%u,%u,%u,%u] = random 1\n", c->out,
                    c->depthwise ? 1 : c->in, c->taps, c->taps);
    write_between(subject, c->in, c->size, c->out, size, out);
}

static void write_pool(const pool *p, weft_buf *out)
{
    char subject[SUBJECT_MAX];
    snprintf(subject, sizeof subject, "%s %%s {kernel_shape = [%u, %u], strides = [2, 2]}", p->op,
             p->taps, p->taps);
    write_between(subject, p->channels, p->size, p->channels, (p->size - p->taps) / 2 + 1, out);
}

static void write_attention(unsigned tokens, weft_buf *out)
{
    weft_buf_printf(out,
                    "graph @g (%%x : f32[?b,%u,2304]) {\n  symbol ?b \"batch\"\n"
                    "  %%1 : f32[?b,%u,768] = attention %%x, %%x, %%x {head_dim = 64, heads = 12, "
                    "k_offset = 768, q_offset = 0, scale = 0.125, v_offset = 1536}\n"
                    "  return \"y\" %%1\n}\n",
                    tokens, tokens);
}

static void write_function(const char *text, weft_buf *out)
{
    weft_buf_printf(out,
                    "weight $g : f32[768] = random 1\nweight $b : f32[768] = random 2\n"
                    "graph @g (%%x : f32[?b,128,768]) {\n  symbol ?b \"batch\"\n"
                    "  %%1 : f32[?b,128,768] = %s\n  return \"y\" %%1\n}\n",
                    text);
}

/* Writes model i; false: there are no more. */
static bool write_model(size_t i, weft_buf *out, int64_t *batch)
{
    static const int64_t rows[BATCHES] = {1, 4, 16, 64}, images[BATCHES] = {1, 2, 4, 8};
    memcpy(batch, i < CHAINS ? rows : images, sizeof rows);
    weft_buf_puts(out, "wir 1 graph\nsymbol ?b = [1, 4096]\n");
    if (i < CHAINS)
        write_chain(&chains[i], out);
    else if ((i -= CHAINS) < CONVS)
        write_conv(&convs[i], out);
    else if ((i -= CONVS) < POOLS)
        write_pool(&pools[i], out);
    else if ((i -= POOLS) < ATTENTIONS)
        write_attention(attentions[i], out);
    else if ((i -= ATTENTIONS) < FUNCTIONS)
        write_function(functions[i], out);
    else
        return false;
    return true;
}

/* -- One model -------------------------------------------------------------------------------- */

typedef struct subject {
    weft_module *m;
    weft_graph *g;
    weft_engine *engine;
    weft_session *session;
    weft_slice slice;
    weft_arena *arena;
    weft_diag *diag;
    const char *path;
    double wall_ms, cpu_ms; /* of the measured runs */
} subject;

static weft_err open_model(subject *s, const weft_buf *text, const int64_t *batch, uint32_t threads)
{
    const weft_engine_options engine = {.threads = threads};
    weft_run_options run = {.verify = WEFT_VERIFY_OFF,
                            .pass = {.batch = batch, .n_batch = BATCHES}};
    size_t n = 0;
    weft_bundle bundle = {0};
    const weft_pass *const *pass = weft_pipeline_for("cpu", &n);
    WEFT_TRY(weft_module_parse(text->at, text->len, "calibration", NULL, s->diag, &s->m));
    WEFT_TRY(weft_passes_run(s->m, pass, n, &run, s->diag));
    s->g = weft_graph_at(s->m, 0);
    WEFT_TRY(weft_codegen_bundle(s->m, weft_backend_find("cpu"), NULL, NULL, s->arena, s->diag,
                                 &bundle));
    WEFT_TRY(weft_bundle_write(&bundle, s->path, s->diag));
    WEFT_TRY(weft_engine_open(s->path, &engine, s->diag, &s->engine));
    return weft_session_open(s->engine, weft_engine_bundle(s->engine)->program[0].name, s->diag,
                             &s->session);
}

static double cpu_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The 10th percentile of the time of each launch; 0: it was not timed. */
static weft_err measure(subject *s, int64_t batch, double *launch_us)
{
    const weft_bundle_program *p = weft_session_program(s->session);
    weft_tensor *in = weft_arena_array(s->arena, (size_t)p->n_input + 1, sizeof *in);
    weft_tensor *out = weft_arena_array(s->arena, (size_t)p->n_output + 1, sizeof *out);
    double *sample = weft_arena_array(s->arena, (size_t)p->n_launch * RUNS_MAX + 1, sizeof *sample);
    size_t n_run = 0;
    WEFT_TRY(weft_tool_make_inputs(p, batch, NULL, 0, s->arena, s->diag, in));
    for (int i = 0; i < 2; i++)
        WEFT_TRY(weft_session_run(s->session, in, p->n_input, s->diag, out, p->n_output));
    weft_session_profile(s->session, true);
    double start_ms = weft_tool_now_ms(), start_cpu_ms = cpu_now_ms();
    while (n_run < RUNS_MAX && (n_run < RUNS_MIN || weft_tool_now_ms() - start_ms < run_ms)) {
        uint32_t n = 0;
        WEFT_TRY(weft_session_run(s->session, in, p->n_input, s->diag, out, p->n_output));
        const weft_launch_time *t = weft_session_times(s->session, &n);
        for (uint32_t i = 0; i < n; i++)
            sample[t[i].launch * RUNS_MAX + n_run] = t[i].time_us;
        n_run++;
    }
    s->wall_ms += weft_tool_now_ms() - start_ms;
    s->cpu_ms += cpu_now_ms() - start_cpu_ms;
    weft_session_profile(s->session, false);
    for (uint32_t i = 0; i < p->n_launch; i++) {
        qsort(sample + i * RUNS_MAX, n_run, sizeof *sample, by_value);
        launch_us[i] = sample[i * RUNS_MAX + n_run / 10];
    }
    return WEFT_ERR_OK;
}

/* -- Rows ------------------------------------------------------------------------------------- */

/* Index of the launch of a node: launches are the nodes in order. */
static uint32_t launch_of(const subject *s, weft_node node)
{
    uint32_t at = 0;
    for (weft_node n = weft_graph_first(s->g); n.i && n.i != node.i; n = weft_node_next(s->m, n))
        at++;
    return at;
}

/* Kernels with equal problems become one row with their mean time. */
static weft_err add_rows(subject *s, size_t model, const weft_workload *work,
                         const double *launch_us, weft_arena *arena, weft_tool_rows *rows)
{
    static const double time_min_us = 0.15; /* shorter ones are the clock's own time */
    for (size_t i = 0; i < work->n; i++) {
        const weft_kernel *k = &work->kernel[i].kernel;
        double sum = 0, count = 0;
        bool seen = false;
        for (size_t j = 0; j < work->n; j++) {
            const weft_kernel *other = &work->kernel[j].kernel;
            if (memcmp(k, other, sizeof *k) != 0)
                continue;
            seen = seen || j < i;
            sum += launch_us[launch_of(s, work->kernel[j].node)] / work->kernel[j].launches;
            count++;
        }
        if (seen || !(sum / count >= time_min_us))
            continue;
        /* One shape: this model's kernels of all batch sizes and thread counts. */
        const double shape[] = {(double)model, (double)k->kind, k->n, k->k};
        weft_calibration_row row = {.measured_us = sum / count,
                                    .shape = weft_hash64(shape, sizeof shape, 0)};
        WEFT_TRY(weft_calibration_add_kernel(k, 1, &s->slice, NULL, s->diag, &row));
        WEFT_VEC_PUSH(arena, rows, row);
    }
    return WEFT_ERR_OK;
}

static weft_err measure_model(subject *s, size_t model, const weft_buf *text, const int64_t *batch,
                              uint32_t threads, weft_arena *arena, weft_tool_rows *rows)
{
    WEFT_TRY(open_model(s, text, batch, threads));
    uint32_t n_launch = weft_session_program(s->session)->n_launch;
    for (int b = 0; b < BATCHES; b++) {
        int64_t symbol[SYMBOLS_MAX];
        weft_workload work;
        double *launch_us = weft_arena_array(s->arena, (size_t)n_launch + 1, sizeof *launch_us);
        WEFT_TRY(weft_estimate_symbols(s->g, (uint32_t)batch[b], s->diag, symbol));
        WEFT_TRY(weft_workload_make(s->g, symbol, NULL, s->arena, s->diag, &work));
        WEFT_TRY(weft_workload_divide(&work, &s->slice, s->arena, s->diag, &work));
        WEFT_TRY(measure(s, batch[b], launch_us));
        WEFT_TRY(add_rows(s, model, &work, launch_us, arena, rows));
    }
    return WEFT_ERR_OK;
}

weft_err weft_tool_measure_kernels(uint32_t threads, weft_arena *arena, weft_diag *diag,
                                   weft_tool_rows *rows, double *out_cpu_part)
{
    double wall_ms = 0, cpu_ms = 0;
    weft_err err = WEFT_ERR_OK;
    char cores[WEFT_SLICE_NAME_MAX];
    int64_t batch[BATCHES];
    snprintf(cores, sizeof cores, "%ucore", threads);
    for (size_t i = 0; err == WEFT_ERR_OK; i++) {
        weft_buf text = {0};
        subject s = {.diag = diag, .arena = weft_arena_create(0)};
        bool more = write_model(i, &text, batch);
        if (more) {
            weft_tool_progress("measuring kernels, %u thread%s", threads, threads == 1 ? "" : "s");
            weft_tool_advance((double)i, MODELS, "models");
        }
        err = !s.arena || text.failed
                  ? WEFT_ERR_NOMEM
                  : weft_tool_make_temporary("weft-calibrate", s.arena, diag, &s.path);
        if (err == WEFT_ERR_OK && more)
            err = weft_slice_make("cpu", cores, diag, &s.slice);
        if (err == WEFT_ERR_OK && more)
            err = measure_model(&s, i, &text, batch, threads, arena, rows);
        wall_ms += s.wall_ms;
        cpu_ms += s.cpu_ms;
        weft_session_close(s.session);
        weft_engine_close(s.engine);
        weft_module_destroy(s.m);
        if (s.path)
            unlink(s.path);
        weft_arena_destroy(s.arena);
        weft_buf_finish(&text);
        if (!more)
            break;
    }
    weft_tool_progress(NULL);
    *out_cpu_part = wall_ms > 0 ? cpu_ms / wall_ms : 1;
    return err;
}
