/* For tests of the CUDA driver on the doubles: opening models of bundles, running them, comparing
 * results. */
#ifndef WEFT_TESTS_DOUBLES_DRV_WORLD_H
#define WEFT_TESTS_DOUBLES_DRV_WORLD_H

#include "doubles_world.h"
#include "runtime/runtime.h"
#include "tests/support/rand.h"

#include <math.h>
#include <pthread.h>
#include <unistd.h>

enum { PORTS_MAX = 64 };

static doubles d;
static weft_diag *diag;

/* -- Models ------------------------------------------------------------------------------------ */

/* An opened model of a bundle. */
typedef struct subject {
    weft_engine *engine;
    weft_session *session;
} subject;

static inline void close_subject(subject *s)
{
    weft_session_close(s->session);
    weft_engine_close(s->engine);
    *s = (subject){0};
}

static inline weft_err open_subject(subject *s, const char *path, const char *model,
                                    const weft_engine_options *options)
{
    *s = (subject){0};
    weft_err err = weft_engine_open(path, options, diag, &s->engine);
    if (err == WEFT_ERR_OK && !model)
        model = weft_engine_bundle(s->engine)->program[0].name;
    if (err == WEFT_ERR_OK)
        err = weft_session_open(s->engine, model, diag, &s->session);
    if (err != WEFT_ERR_OK)
        close_subject(s);
    return err;
}

static uint64_t seed = 1;

/* Inputs at the smallest sizes, with the given batch (all sizes, where none is the batch); the
 * parts of a joint program have different batches, some of them 0. Integers are 0 and 1. */
static inline uint32_t make_inputs(const weft_bundle_program *p, int64_t batch, weft_tensor *in)
{
    int64_t symbol[64] = {0};
    for (uint32_t i = 0; i < p->n_symbol && i < 64; i++) {
        bool follows = i == p->batch_symbol || p->batch_symbol == UINT32_MAX;
        symbol[i] = p->n_part ? (batch + i) % 4 : follows ? batch : 0;
        symbol[i] = symbol[i] < p->symbol[i].lo ? p->symbol[i].lo : symbol[i];
        symbol[i] = symbol[i] > p->symbol[i].hi ? p->symbol[i].hi : symbol[i];
    }
    for (uint32_t i = 0; i < p->n_input; i++) {
        const weft_ttype *t = &p->value[p->input[i].value - 1].type;
        in[i] = (weft_tensor){.dtype = (weft_dtype)t->dtype, .rank = t->rank};
        for (int k = 0; k < t->rank; k++)
            assert_true(weft_dim_eval(p->dims, t->dim[k], symbol, p->n_symbol, &in[i].dim[k]));
        int64_t n = weft_numel(in[i].dim, in[i].rank);
        in[i].data = malloc((size_t)n * weft_dtype_size(in[i].dtype) + 1);
        assert_non_null(in[i].data);
        for (int64_t k = 0; k < n; k++)
            weft_tensor_set_f64(&in[i], k,
                                in[i].dtype == WEFT_DTYPE_F32
                                    ? (double)rand_signed(&seed)
                                    : fabs((double)rand_signed(&seed)) * 2);
    }
    return p->n_input;
}

static inline void free_inputs(weft_tensor *in, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        free(in[i].data);
}

static inline void say(void)
{
    char text[512];
    for (size_t i = 0; i < weft_diag_count(diag); i++) {
        weft_diag_format(weft_diag_at(diag, i), text, sizeof text);
        print_message("%s\n", text);
    }
}

static inline bool is_said(const char *text)
{
    for (size_t i = 0; i < weft_diag_count(diag); i++)
        if (strstr(weft_diag_at(diag, i)->text, text))
            return true;
    return false;
}

static inline void need(weft_err err)
{
    if (err != WEFT_ERR_OK)
        say();
    assert_int_equal(err, WEFT_ERR_OK);
}

/* Largest difference, relative to the largest value. */
static inline double difference(const weft_tensor *a, const weft_tensor *b)
{
    double worst = 0, scale = 0;
    assert_int_equal(a->rank, b->rank);
    assert_memory_equal(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim);
    int64_t n = weft_numel(a->dim, a->rank);
    for (int64_t i = 0; i < n; i++) {
        double x = weft_tensor_get_f64(a, i), y = weft_tensor_get_f64(b, i);
        if (fabs(y) > scale)
            scale = fabs(y);
        if (!(fabs(x - y) <= worst) && x != y)
            worst = isnan(x - y) ? INFINITY : fabs(x - y);
    }
    return scale > 0 ? worst / scale : worst;
}

static double tolerance = 1e-4;
static const weft_engine_options whole = {.threads = 1};

static inline void compare(subject *gpu, subject *cpu, int64_t batch)
{
    const weft_bundle_program *p = weft_session_program(cpu->session);
    weft_tensor in[PORTS_MAX], a[PORTS_MAX], b[PORTS_MAX];
    assert_true(p->n_input <= PORTS_MAX && p->n_output <= PORTS_MAX);
    uint32_t n = make_inputs(p, batch, in);
    need(weft_session_run(cpu->session, in, n, diag, b, p->n_output));
    need(weft_session_run(gpu->session, in, n, diag, a, p->n_output));
    for (uint32_t i = 0; i < p->n_output; i++) {
        double x = difference(&a[i], &b[i]);
        if (!(x <= tolerance))
            fail_msg("%s, batch %lld, output %u: difference %g", p->name, (long long)batch, i, x);
    }
    free_inputs(in, n);
}

/* Fails if the doubles found a mistake. */
static inline void sound(void)
{
    const char *text;
    if (d.mistakes(&text))
        fail_msg("mistakes: %s", text);
    if (d.lt_mistakes(&text))
        fail_msg("mistakes: %s", text);
    if (d.dnn_mistakes(&text))
        fail_msg("mistakes: %s", text);
}

static inline int64_t batch_max(const weft_bundle_program *p)
{
    if (p->n_part)
        return 4;
    return p->batch_symbol == UINT32_MAX ? 1 : p->symbol[p->batch_symbol].hi;
}

static inline void compare_model(const char *cpu_path, const char *gpu_path, const char *model,
                                 const weft_engine_options *options, int64_t most)
{
    subject gpu, cpu;
    const weft_engine_options plain = {.threads = 1};
    need(open_subject(&cpu, cpu_path, model, &plain));
    need(open_subject(&gpu, gpu_path, model, options));
    int64_t hi = batch_max(weft_session_program(cpu.session));
    for (int64_t batch = 1; batch <= hi && batch <= most; batch++)
        compare(&gpu, &cpu, batch);
    compare(&gpu, &cpu, 1); /* from the cache of specialisations */
    close_subject(&gpu);
    close_subject(&cpu);
    sound();
}

static inline int start(void **state)
{
    (void)state;
    unsetenv("WEFT_DOUBLE_FAIL");
    unsetenv("WEFT_DOUBLE_MEM");
    unsetenv("WEFT_DOUBLE_ARCH");
    unsetenv("WEFT_DOUBLE_DEVICES");
    unsetenv("WEFT_DOUBLE_ORDER");
    d.reset();
    d.lt_reset();
    d.dnn_reset();
    seed = 1;
    diag = weft_diag_create();
    return diag ? 0 : -1;
}

static inline int end(void **state)
{
    (void)state;
    weft_diag_destroy(diag);
    diag = NULL;
    return 0;
}

#endif
