/* Every function of weft.h on the bundle of the digits, which is argv[1]: answers do not depend on
 * how the bundle was opened, on who owns the buffers, on threads or on the joint program; wrong
 * calls and damaged bundles give errors with text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <weft/weft.h>

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS_MAX = 8, PIXELS = 64, CLASSES_MAX = 16, MODELS = 3 };

static const char *bundle_path;
static const char *const model[MODELS] = {"digits", "parity", "size"};
static float image[ROWS_MAX * PIXELS];

static weft_bundle *open_bundle(const weft_options *options)
{
    weft_error error;
    weft_bundle *bundle = weft_open(bundle_path, options, &error);
    if (!bundle)
        fail_msg("%s", error.text);
    return bundle;
}

static weft_session *start(weft_bundle *bundle, const char *name)
{
    weft_error error;
    weft_session *session = weft_start(bundle, name, &error);
    if (!session)
        fail_msg("%s", error.text);
    return session;
}

static weft_array images(int64_t rows)
{
    return (weft_array){.type = WEFT_F32,
                        .rank = 4,
                        .dim = {rows, 1, 8, 8},
                        .data = image,
                        .bytes = (size_t)rows * PIXELS * sizeof(float)};
}

/* Scores of `rows` images; returns their number. */
static size_t run(weft_session *session, int64_t rows, float *out)
{
    weft_error error;
    weft_array in = images(rows);
    weft_array y = {.data = out, .bytes = ROWS_MAX * CLASSES_MAX * sizeof *out};
    if (weft_run(session, &in, 1, &y, 1, &error) != WEFT_OK)
        fail_msg("%s", error.text);
    assert_int_equal(y.type, WEFT_F32);
    assert_int_equal(y.rank, 2);
    assert_int_equal(y.dim[0], rows);
    return y.bytes / sizeof *out;
}

/* -- Bundles ---------------------------------------------------------------------------------- */

static void test_describe(void **state)
{
    (void)state;
    weft_bundle *bundle = open_bundle(NULL);
    uint32_t n = 0;
    assert_string_equal(weft_built_for(bundle), "cpu");
    assert_null(weft_planned(bundle));
    while (weft_describe(bundle, n))
        n++;
    assert_int_equal(n, 4);
    assert_null(weft_find(bundle, "no-such-model"));
    assert_null(weft_find(bundle, NULL));
    const weft_model_info *m = weft_find(bundle, "digits");
    assert_non_null(m);
    assert_int_equal(m->n_input, 1);
    assert_string_equal(m->input[0].name, "image");
    assert_int_equal(m->input[0].type, WEFT_F32);
    assert_int_equal(m->input[0].rank, 4);
    assert_int_equal(m->input[0].dim[0], -1);
    assert_string_equal(m->input[0].dim_text[0], "batch");
    assert_int_equal(m->input[0].dim_min[0], 1);
    assert_true(m->input[0].dim_max[0] >= 450);
    assert_int_equal(m->input[0].dim[2], 8);
    assert_string_equal(m->input[0].dim_text[2], "8");
    assert_int_equal(m->n_output, 1);
    assert_int_equal(m->output[0].dim[1], 10);
    assert_true(m->n_batch > 0);
    for (uint32_t i = 1; i < m->n_batch; i++)
        assert_true(m->batch[i] > m->batch[i - 1]);
    assert_true(m->n_estimate > 0);
    for (uint32_t i = 0; i < m->n_estimate; i++) {
        const weft_estimate_info *e = &m->estimate[i];
        assert_true(e->time_us > 0 && e->creq >= 0 && e->creq <= 1 && e->mreq_bytes > 0);
        assert_true(e->throughput_per_s > 0 && e->batch > 0 && e->processes > 0);
        assert_true(e->device[0] && e->source[0]);
    }
    weft_close(bundle);
    weft_close(NULL);
    weft_stop(NULL);
}

static void test_types(void **state)
{
    (void)state;
    assert_int_equal(weft_size_of(WEFT_F32), 4);
    assert_int_equal(weft_size_of(WEFT_U2), 1);
    assert_int_equal(weft_size_of((weft_type)99), 0);
    assert_string_equal(weft_name_of(WEFT_BF16), "bf16");
    assert_string_equal(weft_name_of((weft_type)-1), "none");
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", WEFT_VERSION_MAJOR, WEFT_VERSION_MINOR,
             WEFT_VERSION_PATCH);
    assert_string_equal(weft_version(), version);
}

/* The bundle's bytes. */
static char *read_bundle(size_t *out_len)
{
    FILE *f = fopen(bundle_path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *out_len = (size_t)ftell(f);
    rewind(f);
    char *bytes = malloc(*out_len);
    assert_int_equal(fread(bytes, 1, *out_len, f), *out_len);
    fclose(f);
    return bytes;
}

static void test_ways_to_open(void **state)
{
    (void)state;
    float want[ROWS_MAX * CLASSES_MAX], got[ROWS_MAX * CLASSES_MAX];
    size_t len;
    char *bytes = read_bundle(&len);
    int fd = open(bundle_path, O_RDONLY);
    weft_bundle *way[] = {open_bundle(NULL), weft_open_fd(fd, "digits", NULL, NULL),
                          weft_open_memory(bytes, len, NULL, NULL)};
    close(fd);
    free(bytes);
    for (size_t i = 0; i < 3; i++) {
        assert_non_null(way[i]);
        weft_session *session = start(way[i], "digits");
        weft_close(way[i]); /* stays open for the session */
        size_t n = run(session, 3, i == 0 ? want : got);
        assert_int_equal(n, 30);
        if (i > 0)
            assert_memory_equal(got, want, n * sizeof *got);
        weft_stop(session);
    }
}

/* -- Runs ------------------------------------------------------------------------------------- */

static void test_buffers(void **state)
{
    (void)state;
    weft_bundle *bundle = open_bundle(NULL);
    weft_session *session = start(bundle, "digits");
    float want[ROWS_MAX * CLASSES_MAX], small[4] = {7, 7, 7, 7};
    weft_error error;
    weft_array in = images(2), size = {0}, borrowed = {0};
    weft_array little = {.data = small, .bytes = sizeof small};
    assert_int_equal(weft_measure(session, &in, 1, &size, 1, NULL), WEFT_OK);
    assert_int_equal(weft_prepare(session, &in, 1, NULL), WEFT_OK);
    size_t n = run(session, 2, want);
    assert_int_equal(size.bytes, n * sizeof *want);
    assert_int_equal(size.rank, 2);
    assert_int_equal(size.dim[0], 2);
    assert_int_equal(size.dim[1], 10);
    assert_int_equal(weft_run(session, &in, 1, &borrowed, 1, NULL), WEFT_OK);
    assert_int_equal(borrowed.bytes, size.bytes);
    assert_memory_equal(borrowed.data, want, borrowed.bytes);
    assert_int_equal(weft_run(session, &in, 1, &little, 1, &error), WEFT_INPUT);
    assert_non_null(strstr(error.text, "80 bytes, the room is 16"));
    assert_int_equal(little.bytes, 80);
    assert_true(small[0] == 7 && small[3] == 7);
    /* An input at an odd address. */
    char *odd = malloc(2 * PIXELS * sizeof(float) + 1);
    memcpy(odd + 1, image, 2 * PIXELS * sizeof(float));
    in.data = odd + 1;
    borrowed.data = NULL;
    assert_int_equal(weft_run(session, &in, 1, &borrowed, 1, NULL), WEFT_OK);
    assert_memory_equal(borrowed.data, want, borrowed.bytes);
    free(odd);
    weft_stop(session);
    weft_close(bundle);
}

static void test_wrong_calls(void **state)
{
    (void)state;
    weft_bundle *bundle = open_bundle(NULL);
    weft_session *session = start(bundle, "digits");
    float scores[CLASSES_MAX];
    weft_error error;
    const struct {
        weft_array in;
        uint32_t n_in, n_out;
        const char *text;
    } wrong[] = {
        {{WEFT_F64, 4, {1, 1, 8, 8}, image, sizeof image}, 1, 1, "type f64, the model takes f32"},
        {{WEFT_F32, 3, {1, 8, 8}, image, sizeof image}, 1, 1, "image"},
        {{WEFT_F32, 9, {1, 1, 8, 8}, image, sizeof image}, 1, 1, "rank 9"},
        {{WEFT_F32, -1, {1, 1, 8, 8}, image, sizeof image}, 1, 1, "rank -1"},
        {{WEFT_F32, 4, {1, 1, 8, 9}, image, sizeof image}, 1, 1, "image"},
        {{WEFT_F32, 4, {-1, 1, 8, 8}, image, sizeof image}, 1, 1, "negative"},
        {{WEFT_F32, 4, {INT64_MAX, 1, 8, 8}, image, sizeof image}, 1, 1, "too large"},
        {{WEFT_F32, 4, {1, 1, 8, 8}, image, 255}, 1, 1, "255 bytes, its dims are of 256"},
        {{WEFT_F32, 4, {1, 1, 8, 8}, NULL, 256}, 1, 1, "0 bytes, its dims are of 256"},
        {{WEFT_F32, 4, {1, 1, 8, 8}, image, 256}, 0, 1, "0 inputs"},
        {{WEFT_F32, 4, {1, 1, 8, 8}, image, 256}, 1, 0, "0 outputs"},
        {{WEFT_F32, 4, {1, 1, 8, 8}, image, 256}, 1, 2, "2 outputs"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        weft_array out[2] = {{.data = scores, .bytes = sizeof scores}};
        error.text[0] = 0;
        assert_int_equal(
            weft_run(session, &wrong[i].in, wrong[i].n_in, out, wrong[i].n_out, &error),
            WEFT_INPUT);
        if (!strstr(error.text, wrong[i].text))
            fail_msg("case %zu: '%s' has no '%s'", i, error.text, wrong[i].text);
    }
    weft_array in = images(1), out = {0};
    assert_int_equal(weft_run(session, &in, 1, NULL, 1, NULL), WEFT_INPUT);
    assert_int_equal(weft_run(session, NULL, 1, &out, 1, NULL), WEFT_INPUT);
    assert_int_equal(weft_run_async(session, &in, 1, &out, 1, NULL, NULL, &error), WEFT_INPUT);
    assert_null(weft_start(bundle, "no-such-model", &error));
    assert_non_null(strstr(error.text, "no-such-model"));
    assert_null(weft_start(bundle, NULL, &error));
    const char *twice[] = {"digits", "digits"};
    assert_null(weft_start_joint(bundle, twice, 2, &error));
    assert_non_null(strstr(error.text, "twice"));
    assert_null(weft_start_joint(bundle, twice, 0, &error));
    assert_null(weft_start_joint(bundle, twice, 1000, &error));
    weft_stop(session);
    weft_close(bundle);
}

static void test_options(void **state)
{
    (void)state;
    weft_error error;
    assert_null(weft_open(bundle_path, &(weft_options){.reserved = {[5] = 1}}, &error));
    assert_int_equal(error.status, WEFT_INPUT);
    assert_null(weft_open(bundle_path, &(weft_options){.driver = "abacus"}, &error));
    assert_int_equal(error.status, WEFT_NO_DEVICE);
    assert_null(weft_open(bundle_path, &(weft_options){.time_limit_s = NAN}, &error));
    assert_null(weft_open(bundle_path, &(weft_options){.n_cpu = 3}, &error));
    assert_null(weft_open("no-such-file.weft", NULL, &error));
    assert_int_equal(error.status, WEFT_IO);
    assert_non_null(strstr(error.text, "no-such-file.weft"));
    assert_null(weft_open(NULL, NULL, &error));
    assert_null(weft_open_fd(-1, "x", NULL, &error));
    assert_null(weft_open_memory(NULL, 0, NULL, &error));
    assert_null(weft_open_memory("weft", 4, NULL, NULL));
    /* A limit of memory that no model keeps. */
    weft_bundle *bundle = open_bundle(&(weft_options){.memory_limit_bytes = 64});
    weft_session *session = start(bundle, "digits");
    weft_array in = images(8), out = {0};
    assert_int_equal(weft_run(session, &in, 1, &out, 1, &error), WEFT_NO_MEMORY);
    assert_non_null(strstr(error.text, "limit of 64"));
    weft_stop(session);
    weft_close(bundle);
}

/* -- Several models --------------------------------------------------------------------------- */

static void test_joint(void **state)
{
    (void)state;
    weft_bundle *bundle = open_bundle(NULL);
    weft_error error;
    float want[MODELS][ROWS_MAX * CLASSES_MAX];
    size_t n[MODELS];
    bool is_joint = false;
    for (size_t i = 0; i < MODELS; i++) {
        weft_session *session = start(bundle, model[i]);
        n[i] = run(session, (int64_t)i + 1, want[i]);
        assert_null(weft_joined_by(session));
        weft_stop(session);
    }
    /* Every order of every two, and all three; each model with a batch of its own. */
    const uint32_t order[][MODELS] = {{0, 1, 2}, {2, 1, 0}, {1, 2}, {2, 1}, {0, 1}, {0, 2}, {2, 0}};
    for (size_t k = 0; k < sizeof order / sizeof order[0]; k++) {
        const char *names[MODELS];
        weft_array in[MODELS], out[MODELS] = {{0}};
        uint32_t n_model = k < 2 ? 3 : 2, n_in;
        for (uint32_t i = 0; i < n_model; i++) {
            names[i] = model[order[k][i]];
            in[i] = images((int64_t)order[k][i] + 1);
        }
        weft_session *session = weft_start_joint(bundle, names, n_model, &error);
        if (!session)
            fail_msg("%s", error.text);
        is_joint |= weft_joined_by(session) != NULL;
        weft_inputs(session, &n_in);
        assert_int_equal(n_in, n_model);
        assert_int_equal(weft_prepare(session, in, n_model, NULL), WEFT_OK);
        if (weft_run(session, in, n_model, out, n_model, &error) != WEFT_OK)
            fail_msg("%s", error.text);
        for (uint32_t i = 0; i < n_model; i++) {
            assert_int_equal(out[i].bytes, n[order[k][i]] * sizeof(float));
            assert_memory_equal(out[i].data, want[order[k][i]], out[i].bytes);
        }
        weft_stop(session);
    }
    assert_true(is_joint);
    weft_close(bundle);
}

/* -- Threads ---------------------------------------------------------------------------------- */

enum { ASYNC_RUNS = 20 };

typedef struct heard {
    float want[ROWS_MAX][ROWS_MAX * CLASSES_MAX];
    size_t n, errors;
} heard;

static void hear(void *user, const weft_array *out, uint32_t n_out, const weft_error *error)
{
    heard *h = user;
    size_t rows = h->n % ROWS_MAX + 1;
    h->n++;
    h->errors += error || n_out != 1 || out[0].dim[0] != (int64_t)rows ||
                 memcmp(out[0].data, h->want[rows - 1], out[0].bytes) != 0;
}

static void hear_error(void *user, const weft_array *out, uint32_t n_out, const weft_error *error)
{
    (void)out;
    (void)n_out;
    *(weft_status *)user = error ? error->status : WEFT_OK;
}

static void test_async(void **state)
{
    (void)state;
    weft_bundle *bundle = open_bundle(NULL);
    weft_session *session = start(bundle, "parity");
    static heard h;
    for (int64_t rows = 1; rows <= ROWS_MAX; rows++)
        run(session, rows, h.want[rows - 1]);
    weft_array out = {0};
    for (size_t i = 0; i < ASYNC_RUNS; i++) {
        weft_array in = images((int64_t)(i % ROWS_MAX) + 1);
        assert_int_equal(weft_run_async(session, &in, 1, &out, 1, hear, &h, NULL), WEFT_OK);
    }
    weft_wait(session);
    assert_int_equal(h.n, ASYNC_RUNS);
    assert_int_equal(h.errors, 0);
    weft_status status = WEFT_OK;
    weft_array wrong = images(1);
    wrong.dim[3] = 7;
    assert_int_equal(weft_run_async(session, &wrong, 1, &out, 1, hear_error, &status, NULL),
                     WEFT_OK);
    weft_array in = images(5);
    h.n = 4;
    assert_int_equal(weft_run_async(session, &in, 1, &out, 1, hear, &h, NULL), WEFT_OK);
    weft_stop(session); /* runs what is queued */
    assert_int_equal(status, WEFT_INPUT);
    assert_int_equal(h.n, 5);
    assert_int_equal(h.errors, 0);
    weft_close(bundle);
}

typedef struct user {
    weft_bundle *bundle;
    weft_session *shared;
    const float *want[MODELS];
    size_t n[MODELS], errors;
    pthread_t thread;
} user;

static void *use(void *at)
{
    user *u = at;
    for (size_t k = 0; k < 30; k++) {
        size_t i = k % MODELS;
        weft_session *session = k % 4 == 0 ? u->shared : weft_start(u->bundle, model[i], NULL);
        i = k % 4 == 0 ? 0 : i;
        weft_array in = images(4);
        float scores[ROWS_MAX * CLASSES_MAX];
        weft_array out = {.data = scores, .bytes = sizeof scores};
        u->errors += weft_run(session, &in, 1, &out, 1, NULL) != WEFT_OK ||
                     memcmp(scores, u->want[i], u->n[i] * sizeof(float)) != 0;
        if (session != u->shared)
            weft_stop(session);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    weft_bundle *bundle = open_bundle(&(weft_options){.threads = 2});
    static float want[MODELS][ROWS_MAX * CLASSES_MAX];
    user u[4];
    weft_session *shared = start(bundle, model[0]);
    for (size_t i = 0; i < 4; i++) {
        u[i] = (user){.bundle = bundle, .shared = shared};
        for (size_t k = 0; k < MODELS; k++) {
            weft_session *session = start(bundle, model[k]);
            u[i].want[k] = want[k];
            u[i].n[k] = run(session, 4, want[k]);
            weft_stop(session);
        }
    }
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&u[i].thread, NULL, use, &u[i]), 0);
    for (size_t i = 0; i < 4; i++) {
        pthread_join(u[i].thread, NULL);
        assert_int_equal(u[i].errors, 0);
    }
    weft_stop(shared);
    weft_close(bundle);
}

static void test_kernels(void **state)
{
    (void)state;
    weft_bundle *bundle = open_bundle(NULL);
    weft_session *session = start(bundle, "digits");
    float scores[ROWS_MAX * CLASSES_MAX];
    uint32_t n = 0;
    double us = 0;
    weft_watch(session, 1);
    for (int i = 0; i < 5; i++)
        run(session, 8, scores);
    const weft_kernel_info *k = weft_kernels(session, &n);
    assert_true(n > 3);
    for (uint32_t i = 0; i < n; i++) {
        assert_string_equal(k[i].model, "digits");
        assert_true(k[i].op[0] != 0);
        us += k[i].time_us;
    }
    assert_true(us > 0);
    weft_watch(session, 0);
    weft_stop(session);
    weft_close(bundle);
}

/* -- Damage ----------------------------------------------------------------------------------- */

static uint32_t random_below(uint32_t n)
{
    static uint64_t x = 88172645463325252u;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return (uint32_t)(x % n);
}

/* Opens the bytes and runs every model: an error, or the right answer. Returns the errors. */
static size_t run_damaged(const char *bytes, size_t len, const float *want, size_t n_want)
{
    weft_error error = {.text = ""};
    weft_bundle *bundle = weft_open_memory(bytes, len, NULL, &error);
    weft_session *session = bundle ? weft_start(bundle, "digits", &error) : NULL;
    weft_array in = images(2), out = {0};
    bool ok = session && weft_run(session, &in, 1, &out, 1, &error) == WEFT_OK;
    if (ok)
        assert_memory_equal(out.data, want, n_want * sizeof *want);
    else
        assert_true(error.text[0] != 0 && error.status != WEFT_OK && error.status != WEFT_INTERNAL);
    weft_stop(session);
    weft_close(bundle);
    return !ok;
}

static void test_damage(void **state)
{
    (void)state;
    float want[ROWS_MAX * CLASSES_MAX];
    size_t len, errors = 0;
    char *bytes = read_bundle(&len);
    weft_bundle *bundle = open_bundle(NULL);
    weft_session *session = start(bundle, "digits");
    size_t n = run(session, 2, want);
    weft_stop(session);
    weft_close(bundle);
    assert_int_equal(run_damaged(bytes, len, want, n), 0);
    for (int i = 0; i < 150; i++) {
        /* Half of the damage at the start, where the metadata is. */
        size_t at = random_below(i % 2 ? (uint32_t)len : 8192);
        char before = bytes[at];
        bytes[at] = (char)(before ^ (1 << random_below(8)));
        errors += run_damaged(bytes, len, want, n);
        bytes[at] = before;
    }
    for (int i = 0; i < 50; i++)
        errors += run_damaged(bytes, random_below((uint32_t)len), want, n);
    assert_true(errors >= 100);
    free(bytes);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_describe),     cmocka_unit_test(test_types),
        cmocka_unit_test(test_ways_to_open), cmocka_unit_test(test_buffers),
        cmocka_unit_test(test_wrong_calls),  cmocka_unit_test(test_options),
        cmocka_unit_test(test_joint),        cmocka_unit_test(test_async),
        cmocka_unit_test(test_threads),      cmocka_unit_test(test_kernels),
        cmocka_unit_test(test_damage),
    };
    if (argc != 2)
        return 2;
    bundle_path = argv[1];
    for (size_t i = 0; i < sizeof image / sizeof image[0]; i++)
        image[i] = (float)((i * 7919) % 17);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
