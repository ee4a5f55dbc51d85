/* Resident memory of siblings that differ in the head: one process runs all of them, separately
 * and as joint programs; another runs only the first model, both with the rows of one model and
 * with the rows of all together. The first may use the memory of the second, the heads and 2 %.
 * Peaks are those that the kernel reports.
 *
 * usage: joint_memory SIBLINGS ROWS OTHER MODEL | joint_memory SIBLINGS ROWS OTHER --env NAME
 * (MODEL, ROWS, OTHER: see tests/bench/merge_sets.h; NAME: a model in the folder WEFT_MODELS; exit
 * code 77 if it is not set) */
#include "runtime/runtime.h"
#include "tests/bench/merge_sets.h"
#include "tests/support/compiled.h"
#include "tests/support/made_inputs.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SYMBOLS_MAX = 16 };

/* -- A process that runs a bundle ------------------------------------------------------------- */

static bool make_part(const weft_bundle_program *p, const merge_spec *spec, weft_arena *arena,
                      weft_tensor *in)
{
    int64_t symbol[SYMBOLS_MAX];
    uint64_t seed = 1;
    for (uint32_t i = 0; i < p->n_symbol && i < SYMBOLS_MAX; i++)
        symbol[i] = i == p->batch_symbol ? spec->rows : spec->other;
    return p->n_symbol <= SYMBOLS_MAX && make_inputs(p, symbol, &seed, arena, in);
}

/* Each part of a joint program gets this many rows. */
static weft_err run_program(weft_session *s, const weft_bundle *b, const merge_spec *spec,
                            weft_diag *diag)
{
    const weft_bundle_program *p = weft_session_program(s);
    weft_arena *arena = weft_arena_create(0);
    weft_tensor *in = weft_arena_array(arena, (size_t)p->n_input + 1, sizeof *in), *at = in;
    weft_tensor *out = weft_arena_array(arena, (size_t)p->n_output + 1, sizeof *out);
    bool made = p->n_part > 0 || make_part(p, spec, arena, in);
    for (uint32_t i = 0; i < p->n_part && made; at += p->part[i++].n_in)
        made = make_part(&b->program[p->part[i].program], spec, arena, at);
    weft_err err =
        made ? weft_session_run(s, in, p->n_input, diag, out, p->n_output) : WEFT_ERR_INPUT;
    weft_arena_destroy(arena);
    return err;
}

/* Opens all programs of the bundle at once, as a worker of the server does; a single program also
 * runs `together` rows. */
static int run_bundle(const char *path, merge_spec spec, int64_t together)
{
    const weft_engine_options options = {.threads = 2, .share_memory = true};
    weft_diag *diag = weft_diag_create();
    weft_engine *engine = NULL;
    weft_err err = weft_engine_open(path, &options, diag, &engine);
    const weft_bundle *b = err == WEFT_ERR_OK ? weft_engine_bundle(engine) : NULL;
    uint32_t n = b ? b->n_program + b->n_joint : 0;
    weft_session **session = calloc((size_t)n + 1, sizeof *session);
    for (uint32_t i = 0; i < n && err == WEFT_ERR_OK; i++) {
        err = weft_session_open(engine, b->program[i].name, diag, &session[i]);
        if (err == WEFT_ERR_OK)
            err = run_program(session[i], b, &spec, diag);
    }
    spec.rows = together;
    if (err == WEFT_ERR_OK && n == 1)
        err = run_program(session[0], b, &spec, diag);
    if (err == WEFT_ERR_OK)
        printf("%ld\n", peak_kb());
    for (uint32_t i = 0; i < n; i++)
        weft_session_close(session[i]);
    free(session);
    weft_engine_close(engine);
    print_messages(diag);
    weft_diag_destroy(diag);
    return err != WEFT_ERR_OK;
}

/* -- Siblings --------------------------------------------------------------------------------- */

typedef struct result {
    double weights, peak; /* bytes */
    uint32_t n_joint;
} result;

static weft_err compile(const merge_spec *spec, const char *path, weft_diag *diag, result *out)
{
    merge_set set;
    weft_bundle bundle = {0};
    const weft_run_options run = {
        .pass = {.merge = WEFT_MERGE_AUTO, .assignment = &weft_assignment_igraph}};
    weft_arena *arena = weft_arena_create(0);
    merge_set_make(spec, arena, diag, &set);
    weft_err err =
        set.module ? compile_module(set.module, &run, path, arena, diag, &bundle) : WEFT_ERR_INPUT;
    out->weights = (double)weight_bytes(&bundle);
    out->n_joint = bundle.n_joint;
    weft_module_destroy(set.module);
    weft_arena_destroy(arena);
    return err;
}

/* Compiles in a child process, so that its memory does not count. */
static bool measure(const char *self, const merge_spec *spec, int64_t together, result *out)
{
    char path[64], command[4096];
    long kb = 0;
    weft_diag *diag = weft_diag_create();
    *out = (result){0};
    snprintf(path, sizeof path, "joint_memory.%ld.weft", (long)getpid());
    snprintf(command, sizeof command, "'%s' --run '%s' %lld %lld %lld", self, path,
             (long long)spec->rows, (long long)spec->other, (long long)together);
    FILE *f = compile(spec, path, diag, out) == WEFT_ERR_OK ? popen(command, "r") : NULL;
    bool ok = f && fscanf(f, "%ld", &kb) == 1 && kb > 0;
    if (f)
        pclose(f);
    out->peak = (double)kb * 1024;
    unlink(path);
    print_messages(diag);
    weft_diag_destroy(diag);
    return ok;
}

static bool check(const char *self, merge_spec spec)
{
    result one, all;
    int siblings = spec.k;
    bool ok = measure(self, &spec, spec.rows * siblings, &all);
    spec.k = 1;
    ok = measure(self, &spec, spec.rows * siblings, &one) && ok;
    double heads = (all.weights - one.weights) * siblings / (siblings - 1);
    /* 0.1 MB for the session and kernels of each further model's own program. */
    double most = 1.02 * (one.peak + heads) + 1e5 * (siblings - 1);
    printf("one model %.2f MB, %d siblings by %u joint programs %.2f MB, heads %.2f MB, at most "
           "%.2f MB\n",
           one.peak * 1e-6, siblings, all.n_joint, all.peak * 1e-6, heads * 1e-6, most * 1e-6);
    return ok && all.n_joint > 0 && all.peak <= most;
}

int main(int argc, char **argv)
{
    const char *folder = getenv("WEFT_MODELS");
    bool child = argc == 6 && strcmp(argv[1], "--run") == 0;
    bool env = argc == 6 && strcmp(argv[4], "--env") == 0;
    if (child)
        return run_bundle(argv[2], (merge_spec){.rows = atoi(argv[3]), .other = atoi(argv[4])},
                          atoi(argv[5]));
    if (!env && (argc != 5 || atoi(argv[1]) < 2)) {
        puts("usage: joint_memory SIBLINGS ROWS OTHER MODEL|--env NAME");
        return 2;
    }
    merge_spec spec = {
        .k = atoi(argv[1]), .rows = atoi(argv[2]), .other = atoi(argv[3]), .rule = "head"};
    int n =
        env ? snprintf(spec.model, sizeof spec.model, "%s/%s.onnx", folder ? folder : "", argv[5])
            : snprintf(spec.model, sizeof spec.model, "%s", argv[4]);
#ifdef __SANITIZE_ADDRESS__
    puts("skipped: an instrumented program takes other memory");
    return 77;
#endif
    if (env && (!folder || !*folder)) {
        puts("skipped: WEFT_MODELS names no folder of exported models");
        return 77;
    }
    return n < 0 || (size_t)n >= sizeof spec.model || !check(argv[0], spec);
}
