/* Thousands of different shapes through one session: each answer is correct, a size out of bounds
 * is refused with the name of its symbol, and memory stays bounded however many shapes there are.
 */
#include "codegen/codegen.h"
#include "runtime/runtime.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { IDS = 100, WIDTH = 32, BATCH_MAX = 3, LENGTH_MAX = 3000, GROWTH_KB = 8 << 10 };

static const char text[] = "wir 1 plan\n"
                           "symbol ?b = [1, 3]\n"
                           "symbol ?s = [1, 3000]\n"
                           "weight $t : f32[100,32] = random 7\n"
                           "weight $w : f32[32,32] = random 8\n"
                           "graph @m (%x : i64[?b,?s]) {\n"
                           "  symbol ?b \"batch\"\n"
                           "  symbol ?s \"seq\"\n"
                           "  %1 : f32[?b,?s,32] = gather $t, %x {axis = 0}\n"
                           "  %2 : f32[?b,?s,32] = matmul %1, $w\n"
                           "  %3 : f32[?b,?s,32] = ew %2 {steps = [\"relu i0\"]}\n"
                           "  return \"y\" %3\n"
                           "}\n";

typedef struct subject {
    weft_session *session;
    weft_diag *diag;
    int64_t x[(BATCH_MAX + 1) * (LENGTH_MAX + 1)];
    float right[IDS][WIDTH];
} subject;

static int fail(const weft_diag *diag, const char *what)
{
    char line[1024] = "";
    size_t n = weft_diag_count(diag);
    if (n)
        weft_diag_format(weft_diag_at(diag, n - 1), line, sizeof line);
    printf("FAILED: %s (%s)\n", what, line);
    return 1;
}

/* Expected result for each id, by definition. */
static void compute_right(subject *s, const weft_bundle *b)
{
    const float *t = (const float *)(const void *)b->weight[0].data;
    const float *w = (const float *)(const void *)b->weight[1].data;
    if (b->weight[0].dim[0] != IDS) {
        const float *other = t;
        t = w;
        w = other;
    }
    for (int id = 0; id < IDS; id++)
        for (int k = 0; k < WIDTH; k++) {
            double sum = 0;
            for (int i = 0; i < WIDTH; i++)
                sum += (double)t[id * WIDTH + i] * (double)w[i * WIDTH + k];
            s->right[id][k] = sum > 0 ? (float)sum : 0;
        }
}

static weft_err run(subject *s, int64_t batch, int64_t length, weft_tensor *out)
{
    weft_tensor in = {.dtype = WEFT_DTYPE_I64, .rank = 2, .dim = {batch, length}, .data = s->x};
    return weft_session_run(s->session, &in, 1, s->diag, out, 1);
}

static bool is_right(const subject *s, const weft_tensor *out, int64_t n)
{
    const float *y = out->data;
    if (weft_tensor_numel(out) != n * WIDTH)
        return false;
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < WIDTH; k++)
            if (!(fabsf(y[i * WIDTH + k] - s->right[s->x[i]][k]) <= 1e-4f))
                return false;
    return true;
}

/* Anonymous memory of this process in bytes. */
static long anonymous_kb(void)
{
    char line[256];
    long kb = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "RssAnon:", 8) == 0)
            kb = strtol(line + 8, NULL, 10);
    if (f)
        fclose(f);
    return kb;
}

static int check_bounds(subject *s)
{
    static const int64_t shape[][2] = {{0, 5}, {BATCH_MAX + 1, 5}, {1, 0}, {2, LENGTH_MAX + 1}};
    weft_tensor out;
    for (size_t i = 0; i < sizeof shape / sizeof shape[0]; i++) {
        size_t before = weft_diag_count(s->diag);
        if (run(s, shape[i][0], shape[i][1], &out) != WEFT_ERR_INPUT ||
            weft_diag_count(s->diag) == before)
            return fail(s->diag, "a shape outside the bounds is not refused");
    }
    s->x[1] = IDS;
    if (run(s, 1, 4, &out) != WEFT_ERR_INPUT)
        return fail(s->diag, "an index that is too large is not refused");
    s->x[1] = 0;
    return run(s, 1, 4, &out) == WEFT_ERR_OK && is_right(s, &out, 4)
               ? 0
               : fail(s->diag, "the run after a refused one is wrong");
}

static int check_shapes(subject *s)
{
    long before = 0;
    weft_tensor out;
    for (int64_t i = 1; i <= LENGTH_MAX; i++) {
        /* 7 and 3000 are coprime: every length occurs once, and consecutive lengths differ much. */
        int64_t length = i * 7 % LENGTH_MAX + 1, batch = 1 + i % BATCH_MAX;
        if (run(s, batch, length, &out) != WEFT_ERR_OK || !is_right(s, &out, batch * length)) {
            printf("%lld x %lld\n", (long long)batch, (long long)length);
            return fail(s->diag, "a shape is answered wrong");
        }
        if (i == LENGTH_MAX / 3 * 2)
            before = anonymous_kb();
    }
    long end = anonymous_kb();
    printf("%d shapes: %ld kB after two thirds, %ld kB after all\n", LENGTH_MAX, before, end);
    return end - before <= GROWTH_KB ? 0 : fail(s->diag, "memory grows with the number of shapes");
}

static int run_all(subject *s, const char *path)
{
    weft_engine *engine = NULL;
    const weft_engine_options options = {.threads = 1};
    if (weft_engine_open(path, &options, s->diag, &engine) != WEFT_ERR_OK)
        return fail(s->diag, "the bundle does not open");
    int code = 1;
    if (weft_session_open(engine, "m", s->diag, &s->session) == WEFT_ERR_OK) {
        compute_right(s, weft_engine_bundle(engine));
        code = check_bounds(s);
        code = code ? code : check_shapes(s);
    } else {
        fail(s->diag, "the model does not open");
    }
    weft_session_close(s->session);
    weft_engine_close(engine);
    return code;
}

int main(void)
{
    static subject s;
    char path[64];
    weft_module *m = NULL;
    weft_bundle bundle = {0};
    weft_arena *arena = weft_arena_create(0);
    s.diag = weft_diag_create();
    for (size_t i = 0; i < sizeof s.x / sizeof s.x[0]; i++)
        s.x[i] = (int64_t)(i * 37 % IDS);
    snprintf(path, sizeof path, "bundle-shapes-%ld.weft", (long)getpid());
    weft_err err = weft_module_parse(text, strlen(text), "shapes.wir", NULL, s.diag, &m);
    if (err == WEFT_ERR_OK)
        err = weft_codegen_bundle(m, weft_backend_find("cpu"), NULL, NULL, arena, s.diag, &bundle);
    if (err == WEFT_ERR_OK)
        err = weft_bundle_write(&bundle, path, s.diag);
    int code =
        err == WEFT_ERR_OK ? run_all(&s, path) : fail(s.diag, "the bundle cannot be written");
    remove(path);
    weft_module_destroy(m);
    weft_arena_destroy(arena);
    weft_diag_destroy(s.diag);
    return code;
}
