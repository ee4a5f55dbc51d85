/* Random sets of small siblings, compiled with every merging mode and strategy and run on the CPU
 * driver. The models' own programs give the same answers, bit for bit, as in a bundle without
 * merging. The joint program gives the same answers: bit for bit with `exact`; up to 1e-6 of the
 * largest element with `interleaved`, which sums in the same order but may run an epilogue as a
 * kernel of its own; else up to 1e-5.
 *
 * Models are sequences of GEMMs, element-wise chains and norms on [b, s, W] or [b, W], or of
 * convolutions, chains and pools on [b, W, 3, 2]. Each node takes any earlier values, and each
 * model uses the weights in an order of its own, so that orders cross. A model's weight is the
 * common one; a copy under another name; or it has a few other elements, a low-rank update, some
 * other features, its features in another order, another number of features, a NaN, type f64, or no
 * relation at all. Initialisers of all models have the same names. There are scalar weights and
 * empty weights.
 *
 * usage: merge_random ROUNDS [FIRST] */
#include "codegen/codegen.h"
#include "passes/passes.h"
#include "runtime/runtime.h"
#include "tests/support/rand.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    WIDTH = 16,
    WINDOW = 4, /* taps for each channel: 2 x 2 */
    WEIGHTS = 5,
    NODES_MAX = 10,
    MODELS_MAX = 4,
    DRAWS = 3,
    BATCH_MAX = 5,
    SEQ_MAX = 3
};

typedef enum relation {
    SAME,
    ALIAS,
    SPARSE,
    LOW_RANK,
    FEATURES,
    ORDER,
    WIDER,
    EMPTY,
    WITH_NAN,
    OTHER_TYPE,
    UNRELATED,
    RELATIONS
} relation;

/* -- Sets ------------------------------------------------------------------------------------- */

typedef enum model_form { ROWS, SEQUENCES, IMAGES, FORMS } model_form;

typedef struct model_text {
    weft_buf *t;
    int model;
    model_form form;
    relation how[WEIGHTS];                  /* of this model's weights */
    uint32_t last;                          /* number of the last value */
    uint32_t ready[NODES_MAX + 1], n_ready; /* values that can be operands: f32, WIDTH features */
} model_text;

static void write_type(const model_text *x, const char *dtype, int width)
{
    if (x->form == IMAGES)
        weft_buf_printf(x->t, "%s[?b%d,%d,3,2]", dtype, x->model, width);
    else if (x->form == SEQUENCES)
        weft_buf_printf(x->t, "%s[?b%d,?s%d,%d]", dtype, x->model, x->model, width);
    else
        weft_buf_printf(x->t, "%s[?b%d,%d]", dtype, x->model, width);
}

/* Prints elements [taps, features]; a convolution's weight is stored as [features, taps]. */
static void write_elements(weft_buf *t, const float *w, int taps, int features, bool conv)
{
    weft_buf_printf(t, " = dense [");
    for (int i = 0; i < taps * features; i++) {
        float x = w[conv ? i % taps * features + i / taps : i];
        if (isnan(x))
            weft_buf_printf(t, "%snan", i ? ", " : "");
        else
            weft_buf_printf(t, "%s%.9e", i ? ", " : "", (double)x);
    }
    weft_buf_printf(t, "]\n");
}

/* Replaces `w` [taps, WIDTH] by a weight with this relation to it. */
static void change_weight(float *w, int taps, int model, int i, relation how, uint64_t *seed)
{
    int size = taps * WIDTH;
    if (how == UNRELATED || how == SPARSE)
        for (int n = how == SPARSE ? 5 : size; n > 0; n--)
            w[how == SPARSE ? rand_next(seed) % (uint64_t)size : (uint64_t)n - 1] =
                rand_signed(seed) / 4;
    if (how == LOW_RANK)
        for (int k = 0; k < taps; k++)
            for (int f = 0; f < WIDTH; f++)
                w[k * WIDTH + f] +=
                    0.01f * (float)((k * 7 + i) % 5 - 2) * (float)((f * 3 + model) % 7 - 3);
    if (how == FEATURES || how == ORDER)
        for (int k = 0; k < taps; k++)
            for (int f = 0; f < WIDTH / 2; f++) {
                float other = w[k * WIDTH + WIDTH - 1 - f];
                w[k * WIDTH + WIDTH - 1 - f] = how == ORDER ? w[k * WIDTH + f] : rand_signed(seed);
                if (how == ORDER)
                    w[k * WIDTH + f] = other;
            }
    /* No NaN where it meets padding: some kernels multiply it by zero and others do not. */
    if (how == WITH_NAN)
        w[rand_next(seed) % WIDTH * (uint64_t)(taps / WIDTH) * WIDTH + rand_next(seed) % WIDTH] =
            NAN;
}

/* Prints weight i of a model, a variation of the common one; returns its number of features. */
static int write_weight(weft_buf *t, model_form form, int model, int i, relation how,
                        uint64_t *seed)
{
    float w[2 * WIDTH * WIDTH * WINDOW];
    uint64_t common = (uint64_t)i * 7919 + 17;
    bool conv = form == IMAGES;
    int taps = conv ? WIDTH * WINDOW : WIDTH;
    int features = how == WIDER   ? WIDTH + 1 + (int)(rand_next(seed) % (WIDTH - 1))
                   : how == EMPTY ? 0
                                  : WIDTH;
    for (int k = 0; k < taps; k++)
        for (int f = 0; f < features; f++)
            w[k * features + f] = (f < WIDTH ? rand_signed(&common) : rand_signed(seed)) / 4;
    if (features == WIDTH)
        change_weight(w, taps, model, i, how, seed);
    weft_buf_printf(t, "weight $w%d_%d \"%s.%d\" : %s", model, i, how == ALIAS ? "alias" : "weight",
                    i, how == OTHER_TYPE ? "f64" : "f32");
    weft_buf_printf(t, conv ? "[%d,%d,2,2]" : "[%d,%d]", conv ? features : WIDTH,
                    conv ? WIDTH : features);
    write_elements(t, w, taps, features, conv);
    return features;
}

/* Prints operator `op`, whose result is the next value. */
static void write_node(model_text *x, const char *dtype, int width, const char *op)
{
    weft_buf_printf(x->t, "  %%%u : ", ++x->last);
    write_type(x, dtype, width);
    weft_buf_printf(x->t, " = %s\n", op);
}

static void print_gemm(const model_text *x, char *op, size_t size, uint32_t from, int i)
{
    if (x->form == IMAGES)
        snprintf(op, size, "conv %%%u, $w%d_%d {pads = [0, 0, 1, 1]}", from, x->model, i);
    else
        snprintf(op, size, "matmul %%%u, $w%d_%d", from, x->model, i);
}

static void write_gemm(model_text *x, uint32_t from, int i)
{
    char op[96];
    bool wide = x->how[i] == OTHER_TYPE;
    if (wide) {
        snprintf(op, sizeof op, "cast %%%u {to = f64}", from);
        write_node(x, "f64", WIDTH, op);
        from = x->last;
    }
    print_gemm(x, op, sizeof op, from, i);
    write_node(x, wide ? "f64" : "f32", WIDTH, op);
    if (wide) {
        snprintf(op, sizeof op, "cast %%%u {to = f32}", x->last);
        write_node(x, "f32", WIDTH, op);
    }
}

static void write_some_node(model_text *x, uint64_t *seed)
{
    char op[96];
    uint32_t from = x->ready[rand_next(seed) % 3 ? x->n_ready - 1 : rand_next(seed) % x->n_ready];
    uint32_t with = x->ready[rand_next(seed) % x->n_ready];
    int i = (int)(rand_next(seed) % (WEIGHTS - 1));
    uint64_t which = rand_next(seed) % 9;
    if (which == 0)
        snprintf(op, sizeof op, "add %%%u, %%%u", from, with);
    else if (which == 1)
        snprintf(op, sizeof op, "tanh %%%u", from);
    else if (which == 2 && x->form == IMAGES)
        snprintf(op, sizeof op,
                 "average_pool %%%u {kernel_shape = [2, 2], pads = [0, 0, 1, 1], strides = [1, 1]}",
                 from);
    else if (which == 2)
        snprintf(op, sizeof op, "layer_norm %%%u, $norm {axis = -1, epsilon = 1e-05}", from);
    else if (which == 3)
        snprintf(op, sizeof op, "mul %%%u, $scalar", from);
    if (which > 3)
        write_gemm(x, from, i);
    else
        write_node(x, "f32", WIDTH, op);
    x->ready[x->n_ready++] = x->last;
}

/* The last weight is that of the head, which has `features` classes. */
static void write_model(weft_buf *t, int model, model_form form, const relation *how, int features,
                        uint64_t *seed)
{
    char op[96];
    model_text x = {.t = t, .model = model, .form = form, .n_ready = 1};
    memcpy(x.how, how, sizeof x.how);
    weft_buf_printf(t, "graph @m%d (%%0 \"x\" : ", model);
    write_type(&x, "f32", WIDTH);
    weft_buf_printf(t, ") {\n  symbol ?b%d \"batch\"\n", model);
    if (form == SEQUENCES)
        weft_buf_printf(t, "  symbol ?s%d \"seq\"\n", model);
    for (uint64_t n = 3 + rand_next(seed) % (NODES_MAX - 3); n > 0; n--)
        write_some_node(&x, seed);
    uint32_t body = x.last;
    print_gemm(&x, op, sizeof op, body, WEIGHTS - 1);
    write_node(&x, "f32", features, op);
    weft_buf_printf(t, "  return \"y\" %%%u, \"body\" %%%u", x.last,
                    x.ready[rand_next(seed) % x.n_ready]);
    weft_buf_printf(t, "\n}\n");
}

/* The module as text: the weights of all models, then the models. */
static void write_set(weft_buf *t, uint64_t *seed)
{
    int n_model = 2 + (int)(rand_next(seed) % (MODELS_MAX - 1)), features[MODELS_MAX];
    relation how[MODELS_MAX][WEIGHTS];
    model_form form = (model_form)(rand_next(seed) % FORMS);
    weft_buf_printf(t, "wir 1 graph\n");
    for (int m = 0; m < n_model; m++)
        weft_buf_printf(t, "symbol ?b%d = [1, 64]\nsymbol ?s%d = [1, 16]\n", m, m);
    weft_buf_printf(t, "weight $scalar \"scalar\" : f32[] = dense [0.5]\n"
                       "weight $norm \"norm\" : f32[16] = random 5\n");
    for (int m = 0; m < n_model; m++)
        for (int i = 0; i < WEIGHTS; i++) {
            /* Mostly the common weight; otherwise there would be nothing to join. */
            how[m][i] = rand_next(seed) % 3 ? rand_next(seed) % 2 ? SAME : ALIAS
                                            : (relation)(rand_next(seed) % RELATIONS);
            if (i < WEIGHTS - 1 && (how[m][i] == WIDER || how[m][i] == EMPTY))
                how[m][i] = SPARSE;
            if (i == WEIGHTS - 1 && how[m][i] == OTHER_TYPE)
                how[m][i] = WIDER;
            features[m] = write_weight(t, form, m, i, how[m][i], seed);
        }
    for (int m = 0; m < n_model; m++)
        write_model(t, m, form, how[m], features[m], seed);
}

/* -- Running ---------------------------------------------------------------------------------- */

typedef struct manner {
    weft_merge mode;
    const weft_merge_strategy *strategy;
} manner;

typedef struct bundle_run {
    weft_engine *engine;
    const weft_bundle *bundle;
} bundle_run;

typedef struct checker {
    weft_arena *arena;
    weft_diag *diag;
    uint64_t joints, runs;
} checker;

static bool open_bundle(checker *c, const weft_buf *text, const manner *how, bundle_run *out)
{
    char path[64];
    size_t n = 0;
    const weft_pass *const *pass = weft_pipeline("cpu", &n);
    const weft_run_options run = {.pass = {.merge = how->mode,
                                           .strategy = how->strategy,
                                           .assignment = &weft_assignment_igraph},
                                  .verify = WEFT_VERIFY_EACH};
    const weft_engine_options engine = {.threads = 2};
    weft_bundle bundle = {0};
    weft_module *m = NULL;
    snprintf(path, sizeof path, "merge_random.%ld.weft", (long)getpid());
    bool ok = weft_module_parse(text->at, text->len, "random", NULL, c->diag, &m) == WEFT_ERR_OK &&
              weft_passes_run(m, pass, n, &run, c->diag) == WEFT_ERR_OK &&
              weft_codegen_bundle(m, weft_backend_find("cpu"), NULL, NULL, c->arena, c->diag,
                                  &bundle) == WEFT_ERR_OK &&
              weft_bundle_write(&bundle, path, c->diag) == WEFT_ERR_OK &&
              weft_engine_open(path, &engine, c->diag, &out->engine) == WEFT_ERR_OK;
    unlink(path);
    weft_module_destroy(m);
    if (ok)
        out->bundle = weft_engine_bundle(out->engine);
    return ok;
}

static weft_tensor make_input(checker *c, const weft_bundle_program *p, int64_t batch,
                              uint64_t *seed)
{
    const weft_ttype *t = &p->value[p->input[0].value - 1].type;
    weft_tensor in = {.dtype = WEFT_DTYPE_F32, .rank = t->rank};
    in.dim[0] = batch;
    for (uint32_t i = 1; i < t->rank; i++)
        in.dim[i] =
            weft_dim_is_const(t->dim[i]) ? t->dim[i] : 1 + (int64_t)(rand_next(seed) % SEQ_MAX);
    in.data = weft_arena_alloc(c->arena, weft_tensor_bytes(&in) + 64);
    for (int64_t i = 0; i < weft_tensor_numel(&in); i++)
        ((float *)in.data)[i] = rand_signed(seed);
    return in;
}

static bool run_program(checker *c, const bundle_run *b, const char *name, const weft_tensor *in,
                        uint32_t n_in, weft_tensor *out, uint32_t n_out)
{
    weft_session *session = NULL;
    bool ok = weft_session_open(b->engine, name, c->diag, &session) == WEFT_ERR_OK &&
              weft_session_run(session, in, n_in, c->diag, out, n_out) == WEFT_ERR_OK;
    for (uint32_t i = 0; ok && i < n_out; i++) {
        void *copy = weft_arena_alloc(c->arena, weft_tensor_bytes(&out[i]) + 1);
        memcpy(copy, out[i].data, weft_tensor_bytes(&out[i]));
        out[i].data = copy;
    }
    weft_session_close(session);
    return ok;
}

/* Whether they are the same up to `most` of the largest element; 0: bit for bit. */
static bool same_values(const weft_tensor *a, const weft_tensor *b, double most)
{
    double scale = 1e-30, worst = 0;
    if (a->rank != b->rank || memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim) != 0)
        return false;
    if (memcmp(a->data, b->data, weft_tensor_bytes(a)) == 0)
        return true;
    for (int64_t i = 0; i < weft_tensor_numel(a); i++)
        if (isfinite(weft_tensor_get_f64(a, i)))
            scale = fmax(scale, fabs(weft_tensor_get_f64(a, i)));
    for (int64_t i = 0; i < weft_tensor_numel(a); i++) {
        double x = weft_tensor_get_f64(a, i), y = weft_tensor_get_f64(b, i);
        if (isnan(x) != isnan(y) || isinf(x) != isinf(y))
            worst = INFINITY;
        else if (isfinite(x))
            worst = fmax(worst, fabs(x - y) / scale);
    }
    if (worst > most)
        printf("  %g of scale apart\n", worst);
    return worst <= most;
}

enum { OUTPUTS = 2 };

/* Runs every joint program of a bundle with random sizes; parts may be empty. */
static bool check_bundle(checker *c, const bundle_run *off, const bundle_run *b, double most,
                         uint64_t *seed)
{
    weft_tensor in[MODELS_MAX], own[OUTPUTS * MODELS_MAX], out[OUTPUTS * MODELS_MAX];
    for (uint32_t j = 0; j < b->bundle->n_joint; j++) {
        const weft_bundle_program *joint = &b->bundle->program[b->bundle->n_program + j];
        c->joints++;
        for (int draw = 0; draw < DRAWS; draw++, c->runs++) {
            for (uint32_t i = 0; i < joint->n_part; i++) {
                const weft_bundle_program *p = &b->bundle->program[joint->part[i].program];
                weft_tensor again[OUTPUTS];
                int64_t batch = (int64_t)(rand_next(seed) % (BATCH_MAX + 1));
                in[i] = make_input(c, p, batch, seed);
                for (int k = 0; k < OUTPUTS; k++)
                    own[OUTPUTS * i + (uint32_t)k] = (weft_tensor){0};
                if (batch == 0)
                    continue;
                if (!run_program(c, off, p->name, &in[i], 1, &own[OUTPUTS * i], OUTPUTS) ||
                    !run_program(c, b, p->name, &in[i], 1, again, OUTPUTS) ||
                    !same_values(&own[OUTPUTS * i], &again[0], 0) ||
                    !same_values(&own[OUTPUTS * i + 1], &again[1], 0))
                    return false;
            }
            if (!run_program(c, b, joint->name, in, joint->n_part, out, OUTPUTS * joint->n_part))
                return false;
            for (uint32_t i = 0; i < OUTPUTS * joint->n_part; i++)
                if (own[i].data ? !same_values(&own[i], &out[i], most)
                                : weft_tensor_numel(&out[i]) != 0) {
                    printf("  %s: result %u of draw %d differs\n", joint->name, i, draw);
                    return false;
                }
        }
    }
    return true;
}

static bool check_manner(checker *c, const weft_buf *text, const bundle_run *off, const manner *how,
                         uint64_t seed)
{
    bundle_run b = {0};
    const char *strategy = how->strategy ? weft_merge_strategy_name(how->strategy) : "";
    bool same_order = strcmp(strategy, "interleaved") == 0 || strcmp(strategy, "none") == 0;
    double most = how->mode == WEFT_MERGE_EXACT ? 0 : same_order ? 1e-6 : 1e-5;
    weft_arena_mark mark = weft_arena_get_mark(c->arena);
    bool ok = open_bundle(c, text, how, &b) && check_bundle(c, off, &b, most, &seed);
    weft_engine_close(b.engine);
    weft_arena_reset(c->arena, mark);
    return ok;
}

static bool check_set(checker *c, uint64_t round)
{
    uint64_t seed = round * 6007;
    weft_buf text = {0};
    bundle_run off = {0};
    manner how = {.mode = WEFT_MERGE_OFF};
    write_set(&text, &seed);
    bool ok = !text.failed && open_bundle(c, &text, &how, &off);
    for (int mode = WEFT_MERGE_AUTO; ok && mode <= WEFT_MERGE_EXACT; mode++) {
        how = (manner){.mode = (weft_merge)mode};
        ok = check_manner(c, &text, &off, &how, seed);
    }
    for (size_t i = 0; ok && weft_merge_strategy_at(i); i++) {
        how = (manner){.mode = WEFT_MERGE_STRATEGY, .strategy = weft_merge_strategy_at(i)};
        ok = check_manner(c, &text, &off, &how, seed);
    }
    if (!ok) {
        printf("round %llu, %s:\n%s", (unsigned long long)round,
               how.strategy                   ? weft_merge_strategy_name(how.strategy)
               : how.mode == WEFT_MERGE_AUTO  ? "auto"
               : how.mode == WEFT_MERGE_EXACT ? "exact"
                                              : "off",
               getenv("WEFT_SHOW") ? text.at : "");
        for (size_t i = 0; i < weft_diag_count(c->diag); i++) {
            char line[1024];
            weft_diag_format(weft_diag_at(c->diag, i), line, sizeof line);
            printf("  %s\n", line);
        }
    }
    weft_engine_close(off.engine);
    weft_buf_finish(&text);
    return ok;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        puts("usage: merge_random ROUNDS [FIRST]");
        return 2;
    }
    uint64_t rounds = strtoull(argv[1], NULL, 10),
             first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    checker c = {.diag = weft_diag_create(), .arena = weft_arena_create(0)};
    bool ok = c.diag && c.arena;
    for (uint64_t i = first; ok && i < first + rounds; i++) {
        weft_arena_mark mark = weft_arena_get_mark(c.arena);
        ok = check_set(&c, i);
        weft_arena_reset(c.arena, mark);
    }
    printf("%llu joint programs, %llu runs\n", (unsigned long long)c.joints,
           (unsigned long long)c.runs);
    ok = ok && c.joints >= rounds;
    weft_arena_destroy(c.arena);
    weft_diag_destroy(c.diag);
    return !ok;
}
