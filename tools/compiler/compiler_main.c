/* weft-compiler: the verbs that read models, and two services for other processes. */
#include "codegen/codegen.h"
#include "frontend/frontend.h"
#include "tools/common/programs.h"
#include "tools/common/tensor_stream.h"

#include <string.h>

static const weft_verb *const verbs[] = {
#define VERB_compiler(name) &weft_verb_##name,
#define VERB_planner(name)
#define VERB_transfer(name)
#define VERB_server(name)
#define VERB(name, program, brief) VERB_##program(name)
#include "tools/verbs.def"
#undef VERB
    NULL};

/* Writes an ONNX tensor to standard output: weft-server does not contain the ONNX reader. */
static int stream_tensor(const char *path)
{
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    weft_tensor t;
    weft_err err = WEFT_ERR_NOMEM;
    if (diag && arena)
        err = weft_import_tensor(path, arena, diag, &t);
    if (err == WEFT_ERR_OK && !weft_tool_write_tensor(&t, stdout))
        err = weft_diag_error(diag, WEFT_ERR_IO, (weft_where){.file = path},
                              "cannot write the tensor to standard output");
    int code = weft_tool_report(diag, err);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return code;
}

int main(int argc, char **argv)
{
    /* `weft compile` runs itself in this way, once for each module of GPU kernels. */
    if (argc > 1 && strcmp(argv[1], WEFT_NVRTC_WORKER) == 0)
        return weft_nvrtc_worker(argv);
    if (argc == 3 && strcmp(argv[1], WEFT_TENSOR_STREAM) == 0)
        return stream_tensor(argv[2]);
    return weft_program_run("weft-compiler", verbs, argc, argv);
}
