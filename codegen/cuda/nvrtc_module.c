/* Compiles one module for one architecture.
 *
 * NVRTC's optimiser orders some of its work by addresses. Addresses depend on address space layout
 * randomisation (ASLR) and on earlier compilations, so equal source sometimes gives machine code
 * with other bytes. Therefore each job runs in its own process, without ASLR, from the same initial
 * state: the program executes itself with WEFT_NVRTC_WORKER and an environment reduced to the paths
 * of libraries, programs and temporary files, loads NVRTC and forks for each job. Between jobs it
 * allocates nothing, so that the forks are alike. A fork compiles on a new thread, because the
 * position of the main thread's stack depends on the size of environment and arguments. It reads
 *
 *     u32 length of architecture  u32 length of text  both strings
 *
 * from standard input and writes
 *
 *     u32 which function failed (0: none)  i32 code  u64 length of cubin, PTX, log  and these
 *
 * to standard output, in the byte order of this machine. If a process may not turn ASLR off (a
 * container can forbid it), it compiles with ASLR. */
#include "base/file.h"
#include "codegen/cuda/nvrtc_int.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { HEADERS_MAX = 64, STACK_BYTES = 8 << 20, TEXT_MAX = 64 << 20 };

/* -- The library ------------------------------------------------------------------------------- */

static const weft_dynlib_symbol symbols[] = {
#define SYM(need, name, params) {#name, offsetof(weft_nvrtc, name), need},
#include "codegen/cuda/nvrtc_syms.def"
#undef SYM
};

static const char *const library_names[] = {
#define NAME(name) name,
#include "base/nvrtc_names.def"
#undef NAME
};

weft_err weft_nvrtc__open(weft_diag *diag, weft_nvrtc *out)
{
    weft_nvrtc api = {0};
    WEFT_TRY(weft_dynlib_open("NVRTC, the compiler of CUDA kernels,", library_names,
                              sizeof library_names / sizeof library_names[0], diag, &api.lib));
    weft_err err =
        weft_dynlib_resolve(api.lib, symbols, sizeof symbols / sizeof symbols[0], &api, diag);
    if (err != WEFT_ERR_OK)
        weft_dynlib_close(api.lib);
    else
        *out = api;
    return err;
}

void weft_nvrtc__close(weft_nvrtc *api)
{
    weft_dynlib_close(api->lib);
}

/* -- In this process --------------------------------------------------------------------------- */

/* The functions that can fail. Their indices are exchanged between processes. */
static const char *const functions[] = {NULL,
                                        "nvrtcCreateProgram",
                                        "nvrtcCompileProgram",
                                        "nvrtcGetProgramLog",
                                        "nvrtcGetCUBIN",
                                        "nvrtcGetPTX",
                                        "malloc",
                                        "dlopen",
                                        "a process that compiles"};

enum { NONE, CREATE, COMPILE, GET_LOG, GET_CUBIN, GET_PTX, MALLOC, DLOPEN, WORKER, FUNCTIONS };

static void fail(weft_nvrtc__result *r, int function, int code)
{
    r->failed = functions[function];
    r->code = code;
}

void weft_nvrtc__free(weft_nvrtc__result *r)
{
    free(r->cubin);
    free(r->ptx);
    free(r->log);
}

/* Calls one function for a size, then another one for as many bytes. */
static bool fetch(weft_nvrtc__result *r, int function, int (*size)(void *, size_t *),
                  int (*get)(void *, char *), void *program, char **out, size_t *out_bytes)
{
    size_t bytes = 0;
    int code = size(program, &bytes);
    char *at = code == 0 ? malloc(bytes + 1) : NULL;
    if (at)
        code = get(program, at);
    if (!at || code != 0) {
        free(at);
        fail(r, at || code != 0 ? function : MALLOC, code);
        return false;
    }
    at[bytes] = 0;
    *out = at;
    *out_bytes = bytes;
    return true;
}

static void compile_program(const weft_nvrtc *api, const char *arch, void *program,
                            weft_nvrtc__result *r)
{
    enum { OPTIONS_MAX = 8 };
    char target[64], others[] = WEFT_NVRTC_OPTIONS, *rest = NULL;
    const char *option[OPTIONS_MAX] = {target};
    int n = 1;
    snprintf(target, sizeof target, "--gpu-architecture=%s", arch);
    for (char *at = strtok_r(others, " ", &rest); at && n < OPTIONS_MAX;
         at = strtok_r(NULL, " ", &rest))
        option[n++] = at;
    int code = api->nvrtcCompileProgram(program, n, option);
    if (code != 0) {
        (void)fetch(r, GET_LOG, api->nvrtcGetProgramLogSize, api->nvrtcGetProgramLog, program,
                    &r->log, &r->log_bytes);
        fail(r, COMPILE, code);
        return;
    }
    bool is_real = strncmp(arch, "sm_", 3) == 0;
    if (!is_real || fetch(r, GET_CUBIN, api->nvrtcGetCUBINSize, api->nvrtcGetCUBIN, program,
                          &r->cubin, &r->cubin_bytes))
        (void)fetch(r, GET_PTX, api->nvrtcGetPTXSize, api->nvrtcGetPTX, program, &r->ptx,
                    &r->ptx_bytes);
}

void weft_nvrtc__compile(const weft_nvrtc *api, const char *text, const char *arch,
                         weft_nvrtc__result *r)
{
    const char *header[HEADERS_MAX], *name[HEADERS_MAX];
    int n = 0;
    void *program = NULL;
    for (; weft_cuda__headers[n].name && n < HEADERS_MAX; n++) {
        header[n] = weft_cuda__headers[n].text;
        name[n] = weft_cuda__headers[n].name;
    }
    int code = api->nvrtcCreateProgram(&program, text, "weft.cu", n, header, name);
    if (code != 0) {
        fail(r, CREATE, code);
        return;
    }
    compile_program(api, arch, program, r);
    api->nvrtcDestroyProgram(&program);
}

/* -- Bytes from process to process ------------------------------------------------------------- */

/* Reads `bytes` bytes and appends a NUL. Returns memory of malloc; NULL on error or early end. */
static char *read_text(int fd, uint64_t bytes)
{
    char *at = bytes <= (uint64_t)1 << 32 ? malloc((size_t)bytes + 1) : NULL;
    if (at && !weft_file_get(fd, at, (size_t)bytes)) {
        free(at);
        return NULL;
    }
    if (at)
        at[bytes] = 0;
    return at;
}

static bool put_all(int fd, const void *at, size_t bytes)
{
    return weft_file_put(fd, at, bytes) == 0;
}

typedef struct answer {
    uint32_t function;
    int32_t code;
    uint64_t cubin_bytes, ptx_bytes, log_bytes;
} answer;

/* -- The process that compiles ----------------------------------------------------------------- */

enum { ENV_MAX = 64 };

static bool is_kept(const char *variable)
{
    static const char *const prefix[] = {"LD_LIBRARY_PATH=", "PATH=", "TMPDIR=", "WEFT_"};
    for (size_t i = 0; i < sizeof prefix / sizeof prefix[0]; i++)
        if (strncmp(variable, prefix[i], strlen(prefix[i])) == 0)
            return true;
    return false;
}

/* Executes the program again without ASLR and with a fixed stack size, unless both already hold. */
static void leave_chance(char **argv)
{
    struct rlimit stack;
    char *env[ENV_MAX + 1];
    size_t n = 0;
    int now = personality(0xffffffff);
    if (now < 0 || (now & ADDR_NO_RANDOMIZE) || getrlimit(RLIMIT_STACK, &stack) != 0)
        return;
    stack.rlim_cur = STACK_BYTES;
    if (personality((unsigned)now | ADDR_NO_RANDOMIZE) < 0)
        return;
    if (stack.rlim_max == RLIM_INFINITY || stack.rlim_max >= STACK_BYTES)
        (void)setrlimit(RLIMIT_STACK, &stack);
    for (char **v = environ; *v && n < ENV_MAX; v++)
        if (is_kept(*v))
            env[n++] = *v;
    env[n] = NULL;
    (void)execve("/proc/self/exe", argv, env);
}

typedef struct job {
    const weft_nvrtc *api; /* NULL: NVRTC could not be loaded */
    const char *text, *arch;
    weft_nvrtc__result r;
} job;

static void *run_job(void *arg)
{
    job *j = arg;
    if (j->api)
        weft_nvrtc__compile(j->api, j->text, j->arch, &j->r);
    else
        fail(&j->r, DLOPEN, 0);
    return NULL;
}

/* Reads a job, runs it and answers; returns the exit code of the process. */
static int do_job(const weft_nvrtc *api)
{
    uint32_t head[2];
    if (!weft_file_get(STDIN_FILENO, head, sizeof head) || head[0] > 64 || head[1] > TEXT_MAX)
        return 1;
    char *arch = read_text(STDIN_FILENO, head[0]), *text = read_text(STDIN_FILENO, head[1]);
    job j = {.api = api, .text = text, .arch = arch};
    weft_nvrtc__result *r = &j.r;
    answer a = {.function = MALLOC};
    pthread_t thread;
    if (arch && text && pthread_create(&thread, NULL, run_job, &j) == 0) {
        pthread_join(thread, NULL);
        a.function = NONE;
        while (a.function + 1 < FUNCTIONS && functions[a.function] != r->failed)
            a.function++;
    }
    a.code = r->code;
    a.cubin_bytes = r->cubin_bytes;
    a.ptx_bytes = r->ptx_bytes;
    a.log_bytes = r->log_bytes;
    bool ok = put_all(STDOUT_FILENO, &a, sizeof a) &&
              put_all(STDOUT_FILENO, r->cubin, r->cubin_bytes) &&
              put_all(STDOUT_FILENO, r->ptx, r->ptx_bytes) &&
              put_all(STDOUT_FILENO, r->log, r->log_bytes);
    weft_nvrtc__free(r);
    free(arch);
    free(text);
    return ok ? 0 : 1;
}

/* Waits until a job can be read; false: there will be none. */
static bool wait_for_job(void)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    char byte;
    while (poll(&in, 1, -1) < 0 && errno == EINTR)
        continue;
    return recv(STDIN_FILENO, &byte, 1, MSG_PEEK) == 1;
}

int weft_nvrtc_worker(char **argv)
{
    weft_nvrtc api;
    leave_chance(argv);
    /* NVRTC stores the name of the working directory. */
    if (chdir("/") != 0)
        return 1;
    bool is_open = weft_nvrtc__open(NULL, &api) == WEFT_ERR_OK;
    int status = 0, code = 0;
    pid_t pid = -1;
    while (status == 0 && pid != 0 && wait_for_job()) {
        pid = fork();
        if (pid == 0)
            code = do_job(is_open ? &api : NULL);
        while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
            continue;
        if (pid < 0)
            status = 1 << 8; /* as of a fork with exit code 1 */
    }
    if (is_open)
        weft_nvrtc__close(&api);
    if (pid == 0)
        return code;
    /* The process that asks learns from the end of this one how the fork ended. */
    if (WIFSIGNALED(status))
        (void)raise(WTERMSIG(status));
    return status ? 1 : 0;
}

/* -- The process that asks --------------------------------------------------------------------- */

static bool ask(int fd, const char *text, const char *arch)
{
    const uint32_t head[2] = {(uint32_t)strlen(arch), (uint32_t)strlen(text)};
    return head[1] <= TEXT_MAX && put_all(fd, head, sizeof head) && put_all(fd, arch, head[0]) &&
           put_all(fd, text, head[1]);
}

static bool hear(int fd, weft_nvrtc__result *r)
{
    answer a;
    if (!weft_file_get(fd, &a, sizeof a) || a.function >= FUNCTIONS)
        return false;
    r->cubin = read_text(fd, a.cubin_bytes);
    r->ptx = r->cubin ? read_text(fd, a.ptx_bytes) : NULL;
    r->log = r->ptx ? read_text(fd, a.log_bytes) : NULL;
    if (!r->log)
        return false;
    r->cubin_bytes = (size_t)a.cubin_bytes;
    r->ptx_bytes = (size_t)a.ptx_bytes;
    r->log_bytes = (size_t)a.log_bytes;
    if (a.function)
        fail(r, (int)a.function, a.code);
    return true;
}

/* Starts `worker` with `fd` as its standard input and output. */
static int start_worker(const char *worker, int fd, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    const char *const argv[] = {"weft", WEFT_NVRTC_WORKER, NULL};
    int err = posix_spawn_file_actions_init(&actions);
    if (err)
        return err;
    err = posix_spawn_file_actions_adddup2(&actions, fd, STDIN_FILENO);
    if (!err)
        err = posix_spawn_file_actions_adddup2(&actions, fd, STDOUT_FILENO);
    if (!err)
        err = posix_spawn(pid, worker, &actions, NULL, (char *const *)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return err;
}

static int start(const char *program, weft_nvrtc__worker *w)
{
    int pair[2];
    pid_t pid;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return errno;
    int err = start_worker(program, pair[1], &pid);
    close(pair[1]);
    if (err)
        close(pair[0]);
    else
        *w = (weft_nvrtc__worker){.fd = pair[0], .pid = pid};
    return err;
}

int weft_nvrtc__end_worker(weft_nvrtc__worker *w)
{
    int status = 0;
    if (w->pid == 0)
        return 0;
    close(w->fd);
    while (waitpid(w->pid, &status, 0) < 0 && errno == EINTR)
        continue;
    *w = (weft_nvrtc__worker){0};
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

void weft_nvrtc__delegate(const char *program, weft_nvrtc__worker *w, const char *text,
                          const char *arch, weft_nvrtc__result *r)
{
    bool is_new = w->pid == 0;
    int err = is_new ? start(program, w) : 0;
    if (err) {
        fail(r, WORKER, err);
        return;
    }
    /* If the worker dies before it has read everything, writing fails with EPIPE: the caller
     * ignores SIGPIPE. */
    if (ask(w->fd, text, arch) && hear(w->fd, r))
        return;
    int code = weft_nvrtc__end_worker(w);
    if (is_new) {
        fail(r, WORKER, code);
        return;
    }
    /* It may have ended after its last answer, for which this job is not to blame. */
    weft_nvrtc__free(r);
    *r = (weft_nvrtc__result){0};
    weft_nvrtc__delegate(program, w, text, arch, r);
}
