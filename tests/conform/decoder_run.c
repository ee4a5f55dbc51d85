/* Runs a decoder token by token: the outputs behind the first are fed back as the inputs behind the
 * first, so that the length of the past grows by one in each step (decoder.py).
 *
 *   decoder_run BUNDLE TOKENS PREFILL LOGITS [THREADS]
 *
 * TOKENS: a file of i64. The first PREFILL of them are one run without a past; each of the others
 * is a step. LOGITS receives the last row of the first output of every run, as f32. Prints the
 * median times of a step at a length for the first time and again, and how resident memory grew in
 * the second half of the steps. */
#include "runtime/runtime.h"

#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PORTS_MAX = 256, STEPS_MAX = 4096 };

typedef struct decoder {
    weft_session *s;
    const weft_bundle_program *p;
    weft_tensor in[PORTS_MAX], out[PORTS_MAX];
    weft_diag *diag;
    FILE *logits;
} decoder;

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static long resident_kb(void)
{
    char line[256];
    long kb = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        (void)sscanf(line, "VmRSS: %ld", &kb);
    if (f)
        fclose(f);
    return kb;
}

static void need(weft_err err, const weft_diag *diag)
{
    char text[1024] = "";
    if (err == WEFT_ERR_OK)
        return;
    if (weft_diag_count(diag))
        weft_diag_format(weft_diag_at(diag, 0), text, sizeof text);
    fprintf(stderr, "decoder_run: %s: %s\n", weft_err_name(err), text);
    exit(1);
}

/* Runs `n` tokens on the past that the inputs hold. */
static double run(decoder *d, int64_t *token, int64_t n)
{
    d->in[0] = (weft_tensor){.dtype = WEFT_DTYPE_I64, .rank = 2, .dim = {1, n}, .data = token};
    double start = now_us();
    need(weft_session_run(d->s, d->in, d->p->n_input, d->diag, d->out, d->p->n_output), d->diag);
    return now_us() - start;
}

static void write_logits(decoder *d, int64_t n)
{
    const weft_tensor *t = &d->out[0];
    int64_t width = t->dim[t->rank - 1];
    fwrite((const float *)t->data + (n - 1) * width, sizeof(float), (size_t)width, d->logits);
}

/* The presents become the past. */
static void feed_back(decoder *d)
{
    for (uint32_t i = 1; i < d->p->n_input; i++) {
        size_t bytes = weft_tensor_bytes(&d->out[i]);
        void *copy = malloc(bytes + 1);
        if (!copy)
            exit(1);
        memcpy(copy, d->out[i].data, bytes);
        free(d->in[i].data);
        d->in[i] = d->out[i];
        d->in[i].data = copy;
    }
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *at, size_t n)
{
    qsort(at, n, sizeof *at, by_size);
    return n ? at[n / 2] : 0;
}

static void start(decoder *d)
{
    d->p = weft_session_program(d->s);
    if (d->p->n_input < 2 || d->p->n_input > PORTS_MAX || d->p->n_output != d->p->n_input) {
        fprintf(stderr, "decoder_run: the model is no decoder\n");
        exit(1);
    }
    for (uint32_t i = 1; i < d->p->n_input; i++) {
        const weft_ttype *t = &d->p->value[d->p->input[i].value - 1].type;
        d->in[i] = (weft_tensor){.dtype = t->dtype, .rank = t->rank, .data = malloc(1)};
        for (uint32_t k = 0; k < t->rank; k++)
            d->in[i].dim[k] = weft_dim_is_const(t->dim[k]) ? t->dim[k] : k == 0;
    }
}

static void decode(decoder *d, int64_t *token, int64_t n, int64_t prefill)
{
    static double first[STEPS_MAX], again[STEPS_MAX];
    size_t n_first = 0;
    long half = 0;
    run(d, token, prefill);
    write_logits(d, prefill);
    for (int64_t i = prefill; i < n; i++) {
        feed_back(d);
        first[n_first] = run(d, token + i, 1);
        write_logits(d, 1);
        again[n_first++] = run(d, token + i, 1);
        if (i == prefill + (n - prefill) / 2)
            half = resident_kb();
    }
    for (uint32_t i = 1; i < d->p->n_input; i++)
        free(d->in[i].data);
    printf("steps %zu first_us %.0f again_us %.0f grown_kb %ld\n", n_first, median(first, n_first),
           median(again, n_first), resident_kb() - half);
}

int main(int argc, char **argv)
{
    decoder d = {.diag = weft_diag_create()};
    weft_engine *engine = NULL;
    char *tokens = NULL;
    size_t len = 0;
    if (argc < 5 || !d.diag) {
        fprintf(stderr, "usage: decoder_run BUNDLE TOKENS PREFILL LOGITS [THREADS]\n");
        return 2;
    }
    const weft_engine_options options = {.driver = "cpu",
                                         .threads = argc > 5 ? (uint32_t)atoi(argv[5]) : 1};
    need(weft_engine_open(argv[1], &options, d.diag, &engine), d.diag);
    need(weft_session_open(engine, weft_engine_bundle(engine)->program[0].name, d.diag, &d.s),
         d.diag);
    need(weft_file_read(argv[2], STEPS_MAX * sizeof(int64_t), d.diag, &tokens, &len), d.diag);
    d.logits = fopen(argv[4], "wb");
    int64_t n = (int64_t)(len / sizeof(int64_t)), prefill = atoll(argv[3]);
    if (!d.logits || prefill < 1 || prefill > n)
        return 2;
    start(&d);
    decode(&d, (int64_t *)(void *)tokens, n, prefill);
    fclose(d.logits);
    free(tokens);
    weft_session_close(d.s);
    weft_engine_close(engine);
    weft_diag_destroy(d.diag);
    return 0;
}
