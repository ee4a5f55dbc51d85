/* Peak resident memory of a process that compiles siblings is less than twice the bytes of their
 * distinct weights: weights are mapped from the files, and passes transform equal weights once.
 *
 * usage: compile_memory SIBLINGS (generated models of equal convolutions, norms and GEMMs, with
 * different heads) | compile_memory --env NAME... (models in the folder WEFT_MODELS; exit code 77
 * if it is not set) */
#include "tests/support/compiled.h"
#include "tests/support/onnx_writer.h"
#include "tests/support/rand.h"

#include <unistd.h>

enum { WIDTH = 1024, LAYERS = 5, HEAD = 16, FILES_MAX = 32 };

/* -- Siblings --------------------------------------------------------------------------------- */

static void put_weight(weft_buf *graph, const char *name, const char *dims, size_t n, uint64_t seed)
{
    float *w = malloc(n * sizeof *w);
    for (size_t i = 0; w && i < n; i++)
        w[i] = (float)rand_unit(&seed);
    onnx_put_tensor_raw(graph, ONNX_INITIALISER, name, ONNX_FLOAT, dims, w, n * sizeof *w);
    free(w);
}

/* Computes x{i+1} from x{i} with operator `op` and weight w{i}; a norm follows each convolution
 * and is folded into another weight. */
static void put_layer(weft_buf *graph, const char *op, const char *dims, int i)
{
    char weight[16], in[32], middle[32], out[16];
    bool conv = strcmp(op, "Conv") == 0;
    snprintf(weight, sizeof weight, "w%d", i);
    snprintf(in, sizeof in, "x%d,w%d", i, i);
    snprintf(middle, sizeof middle, "c%d,s,s,s,s", i);
    snprintf(out, sizeof out, "%c%d", conv ? 'c' : 'x', conv ? i : i + 1);
    put_weight(graph, weight, dims, (size_t)WIDTH * WIDTH, (uint32_t)i + 1);
    onnx_put_node(graph, op, in, out, NULL);
    out[0] = 'x';
    snprintf(out + 1, sizeof out - 1, "%d", i + 1);
    if (conv)
        onnx_put_node(graph, "BatchNormalization", middle, out, NULL);
}

static bool write_sibling(const char *path, uint32_t number)
{
    weft_buf graph = {0}, model = {0};
    onnx_put_value(&graph, ONNX_INPUT, "x0", ONNX_FLOAT, "n,1024,1,1");
    put_weight(&graph, "s", "1024", WIDTH, 100);
    put_weight(&graph, "head", "1024,16", (size_t)WIDTH * HEAD, 1000 + number);
    for (int i = 0; i < LAYERS; i++)
        put_layer(&graph, "Conv", "1024,1024,1,1", i);
    onnx_put_node(&graph, "Flatten", "x5", "x6", NULL);
    for (int i = LAYERS + 1; i <= 2 * LAYERS; i++)
        put_layer(&graph, "MatMul", "1024,1024", i);
    onnx_put_node(&graph, "MatMul", "x11,head", "y", NULL);
    onnx_put_value(&graph, ONNX_OUTPUT, "y", ONNX_FLOAT, NULL);
    onnx_put_model(&model, &graph, 17);
    weft_diag *diag = weft_diag_create();
    bool ok = !model.failed && weft_file_write(path, model.at, model.len, diag) == WEFT_ERR_OK;
    print_messages(diag);
    weft_diag_destroy(diag);
    weft_buf_finish(&model);
    return ok;
}

/* -- The process that compiles ---------------------------------------------------------------- */

static int compile_files(char *const *file, int n)
{
    char path[64];
    weft_bundle bundle = {0};
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    weft_module *m = weft_module_create(0);
    const weft_run_options run = {
        .pass = {.merge = WEFT_MERGE_AUTO, .assignment = &weft_assignment_igraph}};
    snprintf(path, sizeof path, "compile_memory.%ld.weft", (long)getpid());
    weft_err err = import_files(m, file, n, diag);
    if (err == WEFT_ERR_OK)
        err = compile_module(m, &run, path, arena, diag, &bundle);
    unlink(path);
    double weights = (double)weight_bytes(&bundle), peak = (double)peak_kb() * 1024;
    if (err == WEFT_ERR_OK)
        printf("%d models: distinct weights %.1f MB, peak %.1f MB, %.2f of them\n", n,
               weights * 1e-6, peak * 1e-6, peak / weights);
    weft_module_destroy(m);
    weft_arena_destroy(arena);
    print_messages(diag);
    weft_diag_destroy(diag);
    return !(err == WEFT_ERR_OK && peak > 0 && peak < 2 * weights);
}

/* Executes this program again, because the memory used to write the models must not count. */
static int compile_siblings(const char *self, int n)
{
    char path[64], command[8192];
    int len = snprintf(command, sizeof command, "'%s' --files", self);
    bool ok = true;
    for (int i = 0; i < n && ok && len < (int)sizeof command; i++) {
        snprintf(path, sizeof path, "compile_memory.%ld.%d.onnx", (long)getpid(), i);
        ok = write_sibling(path, (uint32_t)i);
        len += snprintf(command + len, sizeof command - (size_t)len, " %s", path);
    }
    ok = ok && len < (int)sizeof command && system(command) == 0;
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "compile_memory.%ld.%d.onnx", (long)getpid(), i);
        unlink(path);
    }
    return !ok;
}

int main(int argc, char **argv)
{
    static char path[FILES_MAX][4096];
    char *file[FILES_MAX];
    const char *folder = getenv("WEFT_MODELS");
    int n = argc - 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
#ifdef __SANITIZE_ADDRESS__
    puts("skipped: an instrumented program takes other memory");
    return 77;
#endif
    if (argc == 2 && atoi(argv[1]) > 1 && atoi(argv[1]) <= FILES_MAX)
        return compile_siblings(argv[0], atoi(argv[1]));
    if (n < 1 || n > FILES_MAX) {
        puts("usage: compile_memory SIBLINGS | compile_memory --env NAME...");
        return 2;
    }
    if (strcmp(argv[1], "--files") == 0)
        return compile_files(argv + 2, n);
    if (!folder || !*folder) {
        puts("skipped: WEFT_MODELS names no folder of exported models");
        return 77;
    }
    for (int i = 0; i < n; i++) {
        snprintf(path[i], sizeof path[i], "%s/%s.onnx", folder, argv[2 + i]);
        file[i] = path[i];
    }
    return compile_files(file, n);
}
