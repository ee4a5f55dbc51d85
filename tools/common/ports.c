/* Tensors on the command line; see ports.h. */
#include "tools/common/ports.h"

#include "base/nearest.h"
#include "base/num.h"
#include "tools/common/programs.h"
#include "tools/common/tensor_stream.h"
#include "tools/common/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int weft_tool_bind(void *at, const weft_verb *verb, char *arg)
{
    weft_tool_bindings *list = at;
    char *equals = strchr(arg, '=');
    if (!equals || equals == arg || equals[1] != '@' || !equals[2])
        return weft_tool_usage(verb, "'%s' is not of the form NAME=@FILE", arg);
    if (list->n == WEFT_BINDINGS_MAX)
        return weft_tool_usage(verb, "over %d files", WEFT_BINDINGS_MAX);
    *equals = '\0';
    list->at[list->n++] = (weft_tool_binding){arg, equals + 2};
    return 0;
}

/* -- Loading ---------------------------------------------------------------------------------- */

/* Starts `COMMAND --tensor PATH` with its standard output in a pipe. */
static weft_err spawn_reader(const char *command, const char *path, weft_diag *diag, pid_t *out_pid,
                             FILE **out)
{
    int end[2];
    char *const argv[] = {(char *)command, (char *)WEFT_TENSOR_STREAM, (char *)path, NULL};
    posix_spawn_file_actions_t actions;
    if (pipe2(end, O_CLOEXEC) != 0)
        return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){.file = path}, "no pipe: %s",
                               strerror(errno));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, end[1], STDOUT_FILENO);
    int failed = posix_spawn(out_pid, command, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(end[1]);
    *out = failed ? NULL : fdopen(end[0], "rb");
    if (*out)
        return WEFT_ERR_OK;
    close(end[0]);
    return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){.file = path}, "cannot run %s", command);
}

/* Reads an ONNX tensor through weft-compiler, which prints its own errors. */
static weft_err load_onnx_tensor(const char *path, weft_arena *arena, weft_diag *diag,
                                 weft_tensor *out)
{
    char command[WEFT_PROGRAM_PATH_MAX];
    pid_t pid;
    FILE *from;
    int status = 0;
    if (!weft_program_find("weft-compiler", command))
        return weft_diag_error(diag, WEFT_ERR_UNSUP, (weft_where){.file = path},
                               "ONNX tensors are read by weft-compiler; .npy files are read "
                               "without it");
    WEFT_TRY(spawn_reader(command, path, diag, &pid, &from));
    weft_err err = weft_tool_read_tensor(from, path, arena, diag, out);
    fclose(from);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return err;
}

weft_err weft_tool_load_tensor(const char *path, weft_arena *arena, weft_diag *diag,
                               weft_tensor *out)
{
    size_t n = strlen(path);
    if (n > 3 && strcmp(path + n - 3, ".pb") == 0)
        return load_onnx_tensor(path, arena, diag, out);
    return weft_npy_load(path, arena, diag, out);
}

typedef struct names {
    const char *const *at;
    uint32_t n;
} names;

static const char *known_at(size_t i, const void *user)
{
    const names *known = user;
    return i < known->n ? known->at[i] : NULL;
}

weft_err weft_tool_refuse_port(const char *what, const char *name, const char *const *known,
                               uint32_t n_known, weft_where where, weft_diag *diag)
{
    const names list = {known, n_known};
    char text[WEFT_NEAREST_BYTES_MAX];
    return weft_diag_error(diag, WEFT_ERR_INPUT, where, "has no %s '%s'%s", what, name,
                           weft_nearest_say(name, known_at, &list, text));
}

weft_err weft_tool_load_named(const weft_tool_bindings *list, const char *model,
                              const char *const *name, uint32_t n_name, weft_arena *arena,
                              weft_diag *diag, weft_tensor *in)
{
    const weft_where where = {.item = model};
    for (size_t i = 0; i < list->n; i++) {
        uint32_t at = 0;
        while (at < n_name && strcmp(name[at], list->at[i].name) != 0)
            at++;
        if (at == n_name)
            return weft_tool_refuse_port("input", list->at[i].name, name, n_name, where, diag);
        WEFT_TRY(weft_tool_load_tensor(list->at[i].path, arena, diag, &in[at]));
    }
    for (uint32_t i = 0; i < n_name; i++)
        if (in[i].dtype == WEFT_DTYPE_NONE)
            return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                                   "input '%s' is missing: --input %s=@FILE", name[i], name[i]);
    return WEFT_ERR_OK;
}

weft_err weft_tool_load_inputs(const weft_tool_bindings *list, const weft_bundle_program *p,
                               weft_arena *arena, weft_diag *diag, weft_tensor *in)
{
    const char **name = weft_arena_array(arena, (size_t)p->n_input + 1, sizeof *name);
    for (uint32_t i = 0; i < p->n_input; i++)
        name[i] = p->input[i].name;
    return weft_tool_load_named(list, p->name, name, p->n_input, arena, diag, in);
}

int weft_tool_take_dim(const weft_verb *verb, char *arg, weft_tool_dim *out)
{
    char *equals = strchr(arg, '=');
    if (!equals || equals == arg || !weft_parse_i64(equals + 1, &out->value) || out->value < 0)
        return weft_tool_usage(verb, "--dim takes NAME=VALUE, not '%s'", arg);
    *equals = '\0';
    out->name = arg;
    return 0;
}
