/* Compiles and runs models for tests/support/worker.py, which sends requests on standard input and
 * reads replies from standard output. A request is a line of words, then the tensors it announces;
 * a reply is "ok N" and N items, or "error CODE MESSAGE".
 *
 *   compile PIPELINE TARGET MERGE DELTAS N
 *                                      N lines follow, each the path of an ONNX file; models are
 *                                      named m0, m1, ... PIPELINE: "cpu", or "plain" for no pass
 *                                      that rewrites a graph. MERGE: off, auto or exact. DELTAS:
 *                                      off, exact or near.
 *     reply: a line for each program, NAME INPUTS OUTPUTS BATCHED MODEL...: 1 if requests may be
 *     batched, and the models of a joint program
 *   run PROGRAM DRIVER THREADS N       N tensors follow: the program's inputs in order
 *     reply: the outputs in order
 *   kernels                            what ran: a line for each launch of the last run's program
 *
 * A tensor is a line "DTYPE RANK DIM..." and its bytes. A request that takes longer than
 * REQUEST_SECONDS ends the process by SIGALRM. */
#include "runtime/runtime.h"
#include "tests/support/compiled.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MODELS_MAX = 64, PORTS_MAX = 256, OPEN_MAX = 8, REQUEST_SECONDS = 120, ALIGN = 64 };

typedef struct opened {
    char driver[16];
    uint32_t threads;
    weft_engine *engine;
} opened;

typedef struct fenced {
    void *at;
    size_t bytes;
    bool late; /* the data end at the second page */
} fenced;

typedef struct worker {
    weft_arena *arena;
    weft_diag *diag;
    char path[64]; /* the bundle */
    opened open[OPEN_MAX];
    uint32_t n_open;
    weft_session *session; /* of the last run */
    fenced fence[PORTS_MAX];
    uint32_t n_fence; /* of this request */
} worker;

/* -- Replies -------------------------------------------------------------------------------- */

static void reply_error(const worker *w, weft_err err)
{
    char text[1024] = "no message";
    if (weft_diag_count(w->diag))
        weft_diag_format(weft_diag_at(w->diag, 0), text, sizeof text);
    for (char *c = text; *c; c++)
        *c = *c == '\n' ? ' ' : *c;
    printf("error %d %s\n", (int)err, text);
}

static void reply_programs(const weft_bundle *b)
{
    printf("ok %u\n", b->n_program + b->n_joint);
    for (uint32_t i = 0; i < b->n_program + b->n_joint; i++) {
        const weft_bundle_program *p = &b->program[i];
        printf("%s %u %u %d", p->name, p->n_input, p->n_output, p->batch_symbol < p->n_symbol);
        for (uint32_t k = 0; k < p->n_part; k++)
            printf(" %s", b->program[p->part[k].program].name);
        printf("\n");
    }
}

static void reply_tensors(const weft_tensor *t, uint32_t n)
{
    printf("ok %u\n", n);
    for (uint32_t i = 0; i < n; i++) {
        printf("%s %d", weft_dtype_name(t[i].dtype), t[i].rank);
        for (int32_t d = 0; d < t[i].rank; d++)
            printf(" %lld", (long long)t[i].dim[d]);
        printf("\n");
        fwrite(t[i].data, 1, weft_tensor_bytes(&t[i]), stdout);
    }
}

/* -- Compiling ------------------------------------------------------------------------------ */

static void close_all(worker *w)
{
    weft_session_close(w->session);
    w->session = NULL;
    for (uint32_t i = 0; i < w->n_open; i++)
        weft_engine_close(w->open[i].engine);
    w->n_open = 0;
}

static weft_err compile(worker *w, const char *pipeline, const weft_run_options *run, uint32_t n,
                        char file[][4096], weft_bundle *out)
{
    static const char *const plain[] = {"infer-shapes", "lower-kernels", "plan-memory"};
    const weft_pass *passes[sizeof plain / sizeof *plain];
    size_t count = sizeof plain / sizeof *plain;
    const weft_pass *const *pass = weft_pipeline(pipeline, &count);
    weft_module *m = weft_module_create(0);
    weft_graph *g = NULL;
    weft_err err = m ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
    if (!pass) {
        count = sizeof plain / sizeof *plain;
        for (size_t i = 0; i < count; i++)
            passes[i] = weft_pass_find(plain[i]);
        pass = passes;
    }
    for (uint32_t i = 0; err == WEFT_ERR_OK && i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "m%u", i);
        err = weft_import_onnx(m, file[i], &(weft_import_options){.graph_name = name}, w->diag, &g);
    }
    if (err == WEFT_ERR_OK)
        err = weft_passes_run(m, pass, count, run, w->diag);
    if (err == WEFT_ERR_OK)
        err = weft_codegen_bundle(m, weft_backend_find("cpu"), NULL, NULL, w->arena, w->diag, out);
    if (err == WEFT_ERR_OK) {
        err = weft_bundle_write(out, w->path, w->diag);
        if (err == WEFT_ERR_OK)
            reply_programs(out);
    }
    weft_module_destroy(m);
    return err;
}

/* The lines that follow the request; false: the input is over. */
static bool read_lines(char line[][4096], uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (!fgets(line[i], sizeof line[i], stdin))
            return false;
        line[i][strcspn(line[i], "\n")] = '\0';
    }
    return true;
}

static bool do_compile(worker *w, const char *request)
{
    static char file[MODELS_MAX][4096];
    static const int64_t batch[] = {1, 3};
    char pipeline[16], target[16], merge[16], deltas[16], pack[16];
    uint32_t n = 0;
    weft_bundle bundle = {0};
    if (sscanf(request, "compile %15s %15s %15s %15s %15s %u", pipeline, target, merge, deltas,
               pack, &n) != 6 ||
        n > MODELS_MAX || !read_lines(file, n))
        return false;
    const weft_run_options run = {
        .pass = {.target = target,
                 .batch = batch,
                 .n_batch = 2,
                 .merge = strcmp(merge, "auto") == 0    ? WEFT_MERGE_AUTO
                          : strcmp(merge, "exact") == 0 ? WEFT_MERGE_EXACT
                                                        : WEFT_MERGE_OFF,
                 .deltas = strcmp(deltas, "exact") == 0  ? WEFT_DELTAS_EXACT
                           : strcmp(deltas, "near") == 0 ? WEFT_DELTAS_NEAR
                                                         : WEFT_DELTAS_OFF,
                 .pack = strcmp(pack, "pack") == 0,
                 .assignment = &weft_assignment_igraph},
        .verify = WEFT_VERIFY_EACH};
    close_all(w);
    weft_err err = compile(w, pipeline, &run, n, file, &bundle);
    if (err != WEFT_ERR_OK)
        reply_error(w, err);
    return true;
}

/* -- Running -------------------------------------------------------------------------------- */

static weft_err find_engine(worker *w, const char *driver, uint32_t threads, weft_engine **out)
{
    for (uint32_t i = 0; i < w->n_open; i++)
        if (strcmp(w->open[i].driver, driver) == 0 && w->open[i].threads == threads) {
            *out = w->open[i].engine;
            return WEFT_ERR_OK;
        }
    if (w->n_open == OPEN_MAX)
        close_all(w);
    opened *o = &w->open[w->n_open];
    const weft_engine_options options = {.driver = driver, .threads = threads};
    snprintf(o->driver, sizeof o->driver, "%s", driver);
    o->threads = threads;
    WEFT_TRY(weft_engine_open(w->path, &options, w->diag, &o->engine));
    w->n_open++;
    *out = o->engine;
    return WEFT_ERR_OK;
}

/* Memory for an input between two pages that cannot be read, behind the first and before the second
 * in turn: a kernel that reads beside its operand ends the process. */
static void *fence(fenced *f, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (bytes + page - 1) / page * page;
    if (f->at)
        munmap(f->at, f->bytes);
    f->bytes = room + 2 * page;
    f->at = mmap(NULL, f->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (f->at == MAP_FAILED) {
        f->at = NULL;
        return NULL;
    }
    f->late = !f->late;
    mprotect(f->at, page, PROT_NONE);
    mprotect((char *)f->at + page + room, page, PROT_NONE);
    return (char *)f->at + page + (f->late ? (room - bytes) / ALIGN * ALIGN : 0);
}

static bool read_tensor(worker *w, weft_tensor *out)
{
    char line[256], dtype[16];
    int at = 0, used = 0;
    *out = (weft_tensor){0};
    if (!fgets(line, sizeof line, stdin) ||
        sscanf(line, "%15s %d%n", dtype, &out->rank, &at) != 2 || out->rank > WEFT_RANK_MAX)
        return false;
    out->dtype = weft_dtype_parse(dtype);
    for (int32_t d = 0; d < out->rank; d++, at += used) {
        long long dim = 0;
        if (sscanf(line + at, "%lld%n", &dim, &used) != 1)
            return false;
        out->dim[d] = dim;
    }
    if (out->dtype == WEFT_DTYPE_NONE || weft_tensor_numel(out) < 0)
        return false;
    size_t bytes = weft_tensor_bytes(out);
    out->data = fence(&w->fence[w->n_fence++], bytes);
    return out->data && (bytes == 0 || fread(out->data, bytes, 1, stdin) == 1);
}

static bool do_run(worker *w, const char *request)
{
    char program[64], driver[16];
    uint32_t threads = 0, n = 0;
    static weft_tensor in[PORTS_MAX], out[PORTS_MAX];
    if (sscanf(request, "run %63s %15s %u %u", program, driver, &threads, &n) != 4 || n > PORTS_MAX)
        return false;
    w->n_fence = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!read_tensor(w, &in[i]))
            return false;
    weft_engine *engine = NULL;
    weft_session_close(w->session);
    w->session = NULL;
    weft_err err = find_engine(w, driver, threads, &engine);
    if (err == WEFT_ERR_OK)
        err = weft_session_open(engine, program, w->diag, &w->session);
    uint32_t n_out = err == WEFT_ERR_OK ? weft_session_program(w->session)->n_output : 0;
    if (err == WEFT_ERR_OK && n_out > PORTS_MAX)
        err = weft_diag_error(w->diag, WEFT_ERR_UNSUP, (weft_where){0}, "%u outputs", n_out);
    if (err == WEFT_ERR_OK) {
        weft_session_profile(w->session, true);
        err = weft_session_run(w->session, in, n, w->diag, out, n_out);
    }
    if (err == WEFT_ERR_OK)
        reply_tensors(out, n_out);
    else
        reply_error(w, err);
    return true;
}

static void do_kernels(worker *w)
{
    uint32_t n = 0;
    const weft_launch_time *t = w->session ? weft_session_times(w->session, &n) : NULL;
    printf("ok %u\n", n);
    for (uint32_t i = 0; i < n; i++)
        printf("%u %s\n", t[i].launch, t[i].variant);
}

/* false: the input is over, or is not understood. */
static bool serve(worker *w)
{
    char request[512];
    if (!fgets(request, sizeof request, stdin))
        return false;
    alarm(REQUEST_SECONDS);
    weft_arena_mark mark = weft_arena_get_mark(w->arena);
    weft_diag_clear(w->diag);
    bool ok = true;
    if (strncmp(request, "compile ", 8) == 0)
        ok = do_compile(w, request);
    else if (strncmp(request, "run ", 4) == 0)
        ok = do_run(w, request);
    else if (strcmp(request, "kernels\n") == 0)
        do_kernels(w);
    else
        ok = false;
    weft_arena_reset(w->arena, mark);
    fflush(stdout);
    alarm(0);
    if (!ok)
        fprintf(stderr, "model_worker: bad request: %s", request);
    return ok;
}

int main(void)
{
    worker w = {.arena = weft_arena_create(0),
                .diag = weft_diag_create(),
                .path = "/tmp/weft-worker-XXXXXX"};
    int fd = mkstemp(w.path);
    if (!w.arena || !w.diag || fd < 0) {
        perror("model_worker");
        return 1;
    }
    close(fd);
    while (serve(&w))
        ;
    close_all(&w);
    unlink(w.path);
    weft_diag_destroy(w.diag);
    weft_arena_destroy(w.arena);
    return feof(stdin) ? 0 : 1;
}
