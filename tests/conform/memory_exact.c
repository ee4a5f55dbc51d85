/* Used memory equals planned memory: every model is compiled for batches of 1, 8 and 32 and run at
 * each planned size, on memory filled with two patterns. The arena size in the plan, the arena
 * that the driver allocates and the last byte that the driver writes must agree. Buckets larger
 * than 1 GiB are skipped. A batch that runs in slices needs the memory of a slice.
 *
 * usage: memory_exact MODEL.onnx... | memory_exact --env (every *.onnx in the folder WEFT_MODELS;
 * exit code 77 if it is not set) */
#include "runtime/runtime.h"
#include "tests/support/compiled.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const uint64_t arena_max = (uint64_t)1 << 30;

/* An input of the bucket's size; integers are small, so that they are valid indices. */
static bool make_input(const weft_bundle_program *p, const weft_bundle_bucket *bucket, uint32_t i,
                       weft_arena *arena, weft_tensor *out)
{
    const weft_ttype *t = &p->value[p->input[i].value - 1].type;
    *out = (weft_tensor){.dtype = t->dtype, .rank = t->rank};
    for (uint32_t d = 0; d < t->rank; d++)
        if (!weft_dim_eval(p->dims, t->dim[d], bucket->symbol, p->n_symbol, &out->dim[d]))
            return false;
    int64_t n = weft_tensor_numel(out);
    size_t size = weft_dtype_size(out->dtype);
    out->data = weft_arena_alloc(arena, (size_t)n * size + 64);
    out->data = (void *)(((uintptr_t)out->data + 63) / 64 * 64);
    for (int64_t k = 0; k < n; k++)
        weft_tensor_set_f64(
            out, k, out->dtype == WEFT_DTYPE_F32 ? (double)(k * 7 % 17) / 8 - 1 : (double)(k % 2));
    return true;
}

static bool check_bucket(weft_session *s, const weft_bundle_bucket *bucket, weft_arena *arena,
                         weft_diag *diag)
{
    const weft_bundle_program *p = weft_session_program(s);
    weft_tensor *in = weft_arena_array(arena, (size_t)p->n_input + 1, sizeof *in);
    weft_session_memory m;
    for (uint32_t i = 0; i < p->n_input; i++)
        if (!make_input(p, bucket, i, arena, &in[i]))
            return false;
    if (weft_session_measure_memory(s, in, p->n_input, diag, &m) != WEFT_ERR_OK)
        return false;
    uint64_t want = bucket->arena_bytes;
    if (m.rows)
        want = want / (uint64_t)bucket->symbol[p->batch_symbol] * (uint64_t)m.rows;
    bool exact = (m.planned || m.rows) && m.arena_bytes == want && m.high_bytes == want &&
                 m.total_bytes >= m.arena_bytes;
    printf("  %s", exact ? "exact" : "DIFFERS");
    for (uint32_t i = 0; i < p->n_symbol; i++)
        printf(" %s=%lld", p->symbol[i].name, (long long)bucket->symbol[i]);
    printf(": planned %llu, used %llu, last byte written %llu, with scratch memory %llu\n",
           (unsigned long long)want, (unsigned long long)m.arena_bytes,
           (unsigned long long)m.high_bytes, (unsigned long long)m.total_bytes);
    return exact;
}

static bool check_bundle(const char *path, weft_diag *diag)
{
    const weft_engine_options options = {.threads = 2};
    weft_engine *engine = NULL;
    weft_session *session = NULL;
    if (weft_engine_open(path, &options, diag, &engine) != WEFT_ERR_OK)
        return false;
    const weft_bundle_program *p = &weft_engine_bundle(engine)->program[0];
    bool ok = weft_session_open(engine, p->name, diag, &session) == WEFT_ERR_OK && p->n_bucket > 0;
    for (uint32_t i = 0; ok && i < p->n_bucket; i++) {
        if (p->bucket[i].arena_bytes > arena_max)
            continue;
        weft_arena *arena = weft_arena_create(0);
        ok = arena && check_bucket(session, &p->bucket[i], arena, diag);
        weft_arena_destroy(arena);
    }
    weft_session_close(session);
    weft_engine_close(engine);
    return ok;
}

static bool check_model(const char *model)
{
    char path[64];
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    const int64_t batch[] = {1, 8, 32};
    const weft_run_options run = {.pass = {.batch = batch, .n_batch = 3}};
    printf("%s\n", model);
    snprintf(path, sizeof path, "memory_exact.%ld.weft", (long)getpid());
    bool ok = diag && arena && compile_file(model, path, &run, arena, diag) == WEFT_ERR_OK &&
              check_bundle(path, diag);
    unlink(path);
    for (size_t i = 0; !ok && i < weft_diag_count(diag); i++) {
        char text[1024];
        weft_diag_format(weft_diag_at(diag, i), text, sizeof text);
        printf("  %s\n", text);
    }
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return ok;
}

int main(int argc, char **argv)
{
    glob_t found = {0};
    int failed = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 2 && strcmp(argv[1], "--env") == 0) {
        const char *folder = getenv("WEFT_MODELS");
        char pattern[4096];
        snprintf(pattern, sizeof pattern, "%s/*.onnx", folder ? folder : "");
        if (!folder || !*folder || glob(pattern, 0, NULL, &found) != 0) {
            puts("skipped: WEFT_MODELS names no folder of exported models");
            return 77;
        }
    }
    for (size_t i = 0; i < found.gl_pathc; i++)
        failed += !check_model(found.gl_pathv[i]);
    for (int i = 1; i < argc && found.gl_pathc == 0; i++)
        failed += !check_model(argv[i]);
    globfree(&found);
    return failed > 0;
}
