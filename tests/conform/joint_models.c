/* Joint programs give the answers of their models. Every joint program runs with 0 to 8 rows for
 * each part, unequal between parts, and with other values of the other symbols; its models run
 * separately on the same inputs. With --merge exact all bits must be equal; otherwise errors are
 * at most 1e-5 of the largest element.
 *
 * usage: joint_models auto|exact|STRATEGY ROUNDS [--env] [--rule RULE] MODEL.onnx...
 *
 * --env: the arguments are names of models in the folder WEFT_MODELS; exit code 77 if it is not
 * set. --rule: uses the first model and two siblings whose weights a rule of merge_sets.h changes.
 * At least one joint program is expected, or none if ROUNDS is 0. */
#include "runtime/runtime.h"
#include "tests/bench/merge_sets.h"
#include "tests/support/compiled.h"
#include "tests/support/made_inputs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH_MAX = 8, OTHER_MAX = 20, PARTS_MAX = 32, SIBLINGS = 3 };

typedef struct subject {
    weft_engine *engine;
    const weft_bundle *bundle;
    const weft_bundle_program *joint;
    weft_session *session, *model[PARTS_MAX];
    weft_arena *arena;
    weft_diag *diag;
    uint64_t seed;
    bool exact;
    double worst;
} subject;

typedef struct model_files {
    char *const *file;
    int n;
    const char *rule; /* NULL: these models */
} model_files;

static weft_err import_models(const model_files *files, weft_arena *arena, weft_diag *diag,
                              weft_module **out)
{
    if (files->rule) {
        merge_spec spec = {.k = SIBLINGS};
        merge_set set;
        snprintf(spec.model, sizeof spec.model, "%s", files->file[0]);
        snprintf(spec.rule, sizeof spec.rule, "%s", files->rule);
        merge_set_make(&spec, arena, diag, &set);
        *out = set.module;
        return set.module ? WEFT_ERR_OK : WEFT_ERR_INPUT;
    }
    *out = weft_module_create(0);
    return *out ? import_files(*out, files->file, files->n, diag) : WEFT_ERR_NOMEM;
}

static weft_err compile(const model_files *files, const char *mode, const char *path,
                        weft_arena *arena, weft_diag *diag)
{
    weft_module *m = NULL;
    weft_bundle bundle = {0};
    weft_run_options run = {.verify = WEFT_VERIFY_EACH};
    run.pass.assignment = &weft_assignment_igraph;
    run.pass.strategy = weft_merge_strategy_find(mode);
    run.pass.merge = run.pass.strategy            ? WEFT_MERGE_STRATEGY
                     : strcmp(mode, "exact") == 0 ? WEFT_MERGE_EXACT
                                                  : WEFT_MERGE_AUTO;
    weft_err err = import_models(files, arena, diag, &m);
    if (err == WEFT_ERR_OK)
        err = compile_module(m, &run, path, arena, diag, &bundle);
    weft_module_destroy(m);
    return err;
}

/* Random inputs of a model with `batch` rows and random values of the other symbols. */
static bool make_part(subject *s, const weft_bundle_program *p, int64_t batch, weft_tensor *in)
{
    int64_t symbol[16];
    if (p->n_symbol > 16)
        return false;
    for (uint32_t i = 0; i < p->n_symbol; i++) {
        int64_t lo = p->symbol[i].lo > 1 ? p->symbol[i].lo : 1;
        int64_t hi = p->symbol[i].hi < OTHER_MAX ? p->symbol[i].hi : OTHER_MAX;
        symbol[i] = lo + (hi > lo ? (int64_t)(rand_next(&s->seed) % (uint64_t)(hi - lo + 1)) : 0);
    }
    symbol[p->batch_symbol] = batch;
    return make_inputs(p, symbol, &s->seed, s->arena, in);
}

static double difference(const weft_tensor *a, const weft_tensor *b)
{
    double most = 0, scale = 1e-30;
    if (a->rank != b->rank || memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim) != 0)
        return INFINITY;
    if (memcmp(a->data, b->data, weft_tensor_bytes(a)) == 0)
        return 0;
    for (int64_t i = 0; i < weft_tensor_numel(a); i++) {
        double x = weft_tensor_get_f64(a, i), y = weft_tensor_get_f64(b, i);
        if (isnan(x) || isnan(y))
            return INFINITY;
        most = fmax(most, fabs(x - y));
        scale = fmax(scale, fabs(x));
    }
    return most / scale;
}

/* Runs the joint program once with these rows for each part. */
static bool check_rows(subject *s, const int64_t *rows)
{
    const weft_bundle_program *joint = s->joint;
    weft_tensor *in = weft_arena_array(s->arena, (size_t)joint->n_input + 1, sizeof *in);
    weft_tensor *out = weft_arena_array(s->arena, (size_t)joint->n_output + 1, sizeof *out);
    weft_tensor *own = weft_arena_array(s->arena, (size_t)joint->n_output + 1, sizeof *own);
    uint32_t first = 0, first_out = 0;
    for (uint32_t i = 0; i < joint->n_part; i++) {
        const weft_bundle_part *part = &joint->part[i];
        if (!make_part(s, &s->bundle->program[part->program], rows[i], &in[first]))
            return false;
        if (rows[i] > 0 && weft_session_run(s->model[i], &in[first], part->n_in, s->diag,
                                            &own[first_out], part->n_out) != WEFT_ERR_OK)
            return false;
        first += part->n_in;
        first_out += part->n_out;
    }
    if (weft_session_run(s->session, in, joint->n_input, s->diag, out, joint->n_output) !=
        WEFT_ERR_OK)
        return false;
    first_out = 0;
    for (uint32_t i = 0; i < joint->n_part; first_out += joint->part[i++].n_out)
        for (uint32_t k = 0; k < joint->part[i].n_out; k++) {
            const weft_tensor *mine = &out[first_out + k];
            double apart = rows[i] > 0 ? difference(&own[first_out + k], mine)
                                       : (double)weft_tensor_numel(mine);
            s->worst = fmax(s->worst, apart);
            if (apart <= (s->exact ? 0 : 1e-5))
                continue;
            printf("  %s: %s with rows", joint->name, joint->output[first_out + k].name);
            for (uint32_t j = 0; j < joint->n_part; j++)
                printf(" %lld", (long long)rows[j]);
            printf(" differs by %g of scale\n", apart);
            return false;
        }
    return true;
}

static bool check_joint(subject *s, int rounds)
{
    int64_t rows[PARTS_MAX];
    uint32_t n = s->joint->n_part;
    bool ok = n <= PARTS_MAX &&
              weft_session_open(s->engine, s->joint->name, s->diag, &s->session) == WEFT_ERR_OK;
    for (uint32_t i = 0; ok && i < n; i++)
        ok = weft_session_open(s->engine, s->bundle->program[s->joint->part[i].program].name,
                               s->diag, &s->model[i]) == WEFT_ERR_OK;
    for (int round = 0; ok && round < rounds; round++) {
        weft_arena_mark mark = weft_arena_get_mark(s->arena);
        for (uint32_t i = 0; i < n; i++) {
            /* First every subset of the parts, then random rows. */
            bool there = (uint64_t)round >> (i < 60 ? i : 60) & 1;
            rows[i] = 1 + (int64_t)(rand_next(&s->seed) % BATCH_MAX);
            rows[i] = there || rand_next(&s->seed) % 8 == 0 ? rows[i] : 0;
        }
        ok = check_rows(s, rows);
        weft_arena_reset(s->arena, mark);
    }
    for (uint32_t i = 0; i < n && i < PARTS_MAX; i++) {
        weft_session_close(s->model[i]);
        s->model[i] = NULL;
    }
    weft_session_close(s->session);
    s->session = NULL;
    return ok;
}

static bool check_bundle(const char *path, bool exact, int rounds, weft_arena *arena,
                         weft_diag *diag)
{
    const weft_engine_options options = {.threads = 2};
    subject s = {.arena = arena, .diag = diag, .seed = 12345, .exact = exact};
    if (weft_engine_open(path, &options, diag, &s.engine) != WEFT_ERR_OK)
        return false;
    s.bundle = weft_engine_bundle(s.engine);
    bool ok = (s.bundle->n_joint > 0) == (rounds > 0);
    if (!ok)
        printf("  %u joint programs\n", s.bundle->n_joint);
    for (uint32_t i = 0; ok && i < s.bundle->n_joint; i++) {
        s.joint = &s.bundle->program[s.bundle->n_program + i];
        ok = check_joint(&s, rounds);
        printf("  %s: %u models, largest difference %.2g of scale%s\n", s.joint->name,
               s.joint->n_part, s.worst, ok ? "" : ": FAILED");
    }
    weft_engine_close(s.engine);
    return ok;
}

static bool check_set(const model_files *files, const char *mode, int rounds)
{
    char path[64];
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    snprintf(path, sizeof path, "joint_models.%ld.weft", (long)getpid());
    bool ok = diag && arena && compile(files, mode, path, arena, diag) == WEFT_ERR_OK &&
              check_bundle(path, strcmp(mode, "exact") == 0, rounds, arena, diag);
    unlink(path);
    if (!ok)
        print_messages(diag);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return ok;
}

/* Removes an option from the front of the arguments. */
static bool take_option(int *argc, char ***argv, const char *option)
{
    if (*argc < 1 || strcmp((*argv)[0], option) != 0)
        return false;
    (*argc)--;
    (*argv)++;
    return true;
}

int main(int argc, char **argv)
{
    static char path[PARTS_MAX][4096];
    const char *folder = getenv("WEFT_MODELS");
    if (argc < 4) {
        puts("usage: joint_models auto|exact|STRATEGY ROUNDS [--env] [--rule RULE] MODEL...");
        return 2;
    }
    char **file = argv + 3;
    int n = argc - 3;
    bool env = take_option(&n, &file, "--env");
    model_files files = {0};
    if (n > 1 && take_option(&n, &file, "--rule")) {
        files.rule = *file++;
        n--;
    }
    if (env && (!folder || !*folder)) {
        puts("skipped: WEFT_MODELS names no folder of exported models");
        return 77;
    }
    for (int i = 0; env && i < n && i < PARTS_MAX; i++) {
        snprintf(path[i], sizeof path[i], "%s/%s.onnx", folder, file[i]);
        file[i] = path[i];
    }
    files.file = file;
    files.n = n;
    return n < 1 || !check_set(&files, argv[1], atoi(argv[2]));
}
