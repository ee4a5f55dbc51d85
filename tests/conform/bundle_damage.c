/* Damaged bundles of real models: one byte of a bundle is changed, or the file is truncated, and
 * every model in it is opened and run. Each model must be refused with an error or give the
 * correct answers, bit for bit; nothing may crash or hang.
 *
 * Cases run in child processes, many cases each; results are in shared memory, so that a crash can
 * be attributed to its case. Half of the damaged bytes are outside the weights, because random
 * positions would nearly always hit weights. Exit code 77 if the models do not exist. */
#include "codegen/codegen.h"
#include "frontend/frontend.h"
#include "passes/passes.h"
#include "runtime/runtime.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FLIPS = 10000, CUTS = 1000, CHUNK = 500, CHUNK_SECONDS = 120, ANSWER_BYTES = 1 << 16 };
enum { MODELS_MAX = 8, BATCH = 2 };

typedef struct answer {
    size_t len;
    uint8_t at[ANSWER_BYTES];
} answer;

/* In shared memory. */
typedef struct world {
    answer right[MODELS_MAX];
    uint32_t refused, harmless, wrong;
    uint32_t answers; /* answers of the undamaged models */
    uint32_t at;      /* the case at work */
    bool failed;
} world;

typedef struct subject {
    world *w;
    uint8_t *bytes;
    size_t len, weights_at, weights_end;
    char path[64];
} subject;

/* -- The bundle ----------------------------------------------------------------------------- */

static weft_err compile(char *const *model, int n_model, const char *path, weft_arena *arena,
                        weft_diag *diag)
{
    weft_module *m = weft_module_create(0);
    weft_bundle bundle = {0};
    size_t n = 0;
    const weft_pass *const *pass = weft_pipeline("cpu", &n);
    const int64_t batch[] = {1, BATCH};
    const weft_run_options run = {.pass = {.batch = batch, .n_batch = 2}};
    weft_codegen_model about[MODELS_MAX] = {0};
    weft_err err = m ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
    for (int i = 0; i < n_model && err == WEFT_ERR_OK; i++) {
        weft_graph *g = NULL;
        err = weft_import_onnx(m, model[i], &(weft_import_options){0}, diag, &g);
    }
    if (err == WEFT_ERR_OK)
        err = weft_passes_run(m, pass, n, &run, diag);
    if (err == WEFT_ERR_OK)
        err = weft_codegen_bundle(m, weft_backend_find("cpu"), about, NULL, arena, diag, &bundle);
    if (err == WEFT_ERR_OK)
        err = weft_bundle_write(&bundle, path, diag);
    weft_module_destroy(m);
    return err;
}

static bool read_bundle(subject *s, weft_arena *arena, weft_diag *diag)
{
    weft_file file = {0};
    weft_bundle *b = NULL;
    if (weft_file_map(s->path, diag, &file) != WEFT_ERR_OK)
        return false;
    s->len = (size_t)file.len;
    s->bytes = weft_arena_alloc(arena, s->len);
    memcpy(s->bytes, file.at, s->len);
    weft_file_unmap(&file);
    if (weft_bundle_open(s->path, diag, &b) != WEFT_ERR_OK || b->n_program > MODELS_MAX)
        return false;
    /* The weights are contiguous; header, metadata and table surround them. */
    for (uint32_t i = 0; i < b->n_weight; i++) {
        const uint8_t *first = b->weight[0].data, *at = b->weight[i].data;
        s->weights_end = (size_t)(at - first) + (size_t)b->weight[i].bytes;
    }
    for (size_t i = 0; b->n_weight && i + 64 <= s->len; i += 64)
        if (memcmp(s->bytes + i, b->weight[0].data, 64) == 0) {
            s->weights_at = i;
            break;
        }
    s->weights_end += s->weights_at;
    weft_bundle_close(b);
    return s->weights_at > 0 && s->weights_end < s->len;
}

/* -- One run -------------------------------------------------------------------------------- */

static void fill(weft_tensor *t, weft_arena *arena)
{
    size_t bytes = (size_t)weft_tensor_numel(t) * weft_dtype_size(t->dtype);
    t->data = weft_arena_alloc(arena, bytes);
    if (t->dtype == WEFT_DTYPE_F32)
        for (int64_t i = 0; i < weft_tensor_numel(t); i++)
            ((float *)t->data)[i] = (float)(i * 7 % 17);
}

static bool run_model(weft_engine *engine, uint32_t i, weft_arena *arena, weft_diag *diag,
                      answer *out)
{
    const weft_bundle_program *p = &weft_engine_bundle(engine)->program[i];
    weft_session *session = NULL;
    weft_tensor *in = weft_arena_array(arena, p->n_input, sizeof *in);
    weft_tensor *got = weft_arena_array(arena, p->n_output, sizeof *got);
    out->len = 0;
    for (uint32_t k = 0; k < p->n_input; k++) {
        const weft_ttype *t = &p->value[p->input[k].value - 1].type;
        in[k].dtype = (weft_dtype)t->dtype;
        in[k].rank = (int32_t)t->rank;
        for (uint32_t d = 0; d < t->rank; d++)
            in[k].dim[d] = t->dim[d] < 0 ? BATCH : t->dim[d];
        fill(&in[k], arena);
    }
    bool ok = weft_session_open(engine, p->name, diag, &session) == WEFT_ERR_OK &&
              weft_session_run(session, in, p->n_input, diag, got, p->n_output) == WEFT_ERR_OK;
    for (uint32_t k = 0; ok && k < p->n_output; k++) {
        size_t n = (size_t)weft_tensor_numel(&got[k]) * weft_dtype_size(got[k].dtype);
        if (n > sizeof out->at - out->len)
            n = sizeof out->at - out->len;
        memcpy(out->at + out->len, got[k].data, n);
        out->len += n;
    }
    weft_session_close(session);
    return ok;
}

static bool is_right(const answer *got, const answer *right)
{
    return got->len > 0 && got->len == right->len && memcmp(got->at, right->at, got->len) == 0;
}

static void print_messages(const weft_diag *diag)
{
    for (size_t i = 0; diag && i < weft_diag_count(diag) && i < 3; i++) {
        char text[1024];
        weft_diag_format(weft_diag_at(diag, i), text, sizeof text);
        printf("%s\n", text);
    }
}

/* Opens the file and runs all models; `learn`: stores the answers as the correct ones. */
static void run_all(const subject *s, bool learn)
{
    static answer got;
    world *w = s->w;
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    weft_engine *engine = NULL;
    bool wrong = false;
    weft_engine_options options = {.threads = 1};
    bool refused = weft_engine_open(s->path, &options, diag, &engine) != WEFT_ERR_OK;
    uint32_t n = refused ? 0 : weft_engine_bundle(engine)->n_program;
    for (uint32_t i = 0; i < n && i < MODELS_MAX; i++) {
        if (!run_model(engine, i, arena, diag, &got))
            refused = true;
        else if (learn)
            w->right[i] = got;
        else if (!is_right(&got, &w->right[i]))
            wrong = true;
        else
            w->answers++;
    }
    if (learn)
        print_messages(diag);
    /* A refusal must have a message. */
    if (refused && weft_diag_count(diag) == 0)
        wrong = true;
    weft_engine_close(engine);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    w->failed = refused;
    if (wrong)
        w->wrong++;
    else if (refused)
        w->refused++;
    else
        w->harmless++;
}

/* -- Damage --------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static size_t pick_byte(const subject *s, uint32_t i)
{
    uint64_t x = mix(i);
    if (i % 2)
        return (size_t)(x % s->len);
    size_t others = s->len - (s->weights_end - s->weights_at), at = (size_t)(x % others);
    return at < s->weights_at ? at : at + (s->weights_end - s->weights_at);
}

static bool store(const subject *s, size_t len)
{
    FILE *f = fopen(s->path, "wb");
    bool ok = f && fwrite(s->bytes, 1, len, f) == len;
    if (f && fclose(f) != 0)
        ok = false;
    return ok;
}

static bool flip(const subject *s, uint32_t i)
{
    size_t at = pick_byte(s, i);
    uint8_t was = s->bytes[at];
    s->bytes[at] = was ^ (uint8_t)(1 + mix(~(uint64_t)i) % 255);
    bool ok = store(s, s->len);
    s->bytes[at] = was;
    if (ok)
        run_all(s, false);
    return ok;
}

static bool cut(const subject *s, uint32_t i)
{
    size_t len = i < 100 ? s->len - 1 - i : (size_t)(mix(i) % s->len);
    bool ok = store(s, len);
    if (ok)
        run_all(s, false);
    return ok;
}

/* Runs cases in a child process; false if it crashes or hangs. */
static bool run_apart(const subject *s, bool (*damage)(const subject *, uint32_t), uint32_t first,
                      uint32_t n)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        bool ok = true;
        alarm(CHUNK_SECONDS);
        for (uint32_t i = first; ok && i < first + n; i++) {
            uint32_t wrong = s->w->wrong;
            s->w->at = i;
            ok = damage(s, i);
            if (s->w->wrong != wrong)
                printf("case %u: WRONG answers, or refused without a message\n", i);
        }
        fflush(NULL);
        _exit(ok ? 0 : 1);
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        return false;
    if (WIFSIGNALED(status))
        printf("case %u: ended by signal %d\n", s->w->at, WTERMSIG(status));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool learn(const subject *s, uint32_t i)
{
    (void)i;
    run_all(s, true);
    return !s->w->failed;
}

static bool run_cases(const subject *s, const char *name, bool (*damage)(const subject *, uint32_t),
                      uint32_t n)
{
    world *w = s->w;
    w->refused = w->harmless = w->wrong = w->answers = 0;
    bool ok = true;
    for (uint32_t i = 0; i < n; i += CHUNK)
        ok = run_apart(s, damage, i, n - i < CHUNK ? n - i : CHUNK) && ok;
    printf("%s: %u cases, %u refused, %u harmless, %u wrong; %u right answers of whole models%s\n",
           name, n, w->refused, w->harmless, w->wrong, w->answers,
           ok ? "" : "; processes did not end well");
    return ok && w->wrong == 0 && w->refused + w->harmless == n;
}

static int run(int n_model, char **model, weft_arena *arena, weft_diag *diag)
{
    subject s = {0};
    s.w = mmap(NULL, sizeof *s.w, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s.w == MAP_FAILED)
        return 1;
    snprintf(s.path, sizeof s.path, "bundle-damage-%ld.weft", (long)getpid());
    bool ok = compile(model, n_model, s.path, arena, diag) == WEFT_ERR_OK &&
              read_bundle(&s, arena, diag) && run_apart(&s, learn, 0, 1);
    if (!ok)
        printf("the bundle that is whole does not run\n");
    if (ok) {
        printf("%zu bytes, %zu of them weights\n", s.len, s.weights_end - s.weights_at);
        ok = run_cases(&s, "one byte", flip, FLIPS);
        ok = run_cases(&s, "cut", cut, CUTS) && ok;
    }
    remove(s.path);
    munmap(s.w, sizeof *s.w);
    return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc - 1 > MODELS_MAX || access(argv[1], R_OK) != 0) {
        printf("skipped: name the ONNX files of a bundle\n");
        return 77;
    }
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    int code = diag && arena ? run(argc - 1, argv + 1, arena, diag) : 1;
    if (code)
        print_messages(diag);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return code;
}
