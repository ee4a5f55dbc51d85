/* Test double of libnvrtc.so.13: compiles CUDA C++ for the host, with a C++ compiler and
 * tests/support/cuda_emu.h, into an image that libcuda_double runs. Compiled images are cached in a
 * folder.
 *
 *   WEFT_DOUBLE_CXX     the compiler, default "c++"
 *   WEFT_DOUBLE_CACHE   the folder, default weft-doubles in TMPDIR
 *   WEFT_DOUBLE_WATCH   1: kernels report each memory access (slower)
 *   WEFT_DOUBLE_FAIL    as in README.md
 *   WEFT_DOUBLE_SYNTAX  1: adds an error to the source */
#include "double.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

const char *const weft_double_library = "libnvrtc";

#define SYM(need, name, params) WEFT_EXPORT int name params;
#include "codegen/cuda/nvrtc_syms.def"
#undef SYM
WEFT_EXPORT const char *nvrtcGetErrorString(int code);

enum {
    OUT_OF_MEMORY = 1,
    INVALID_INPUT = 3,
    INVALID_PROGRAM = 4,
    INVALID_OPTION = 5,
    COMPILATION = 6
};

static const int archs[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};

/* Added before the source; a table of its kernels and the access callback are added after it. */
static const char head_text[] =
    "namespace weft_double {\n"
    "struct param { unsigned short bytes, align; unsigned kind; };\n"
    "struct kernel { const char *name; unsigned threads, n_param; const param *p;\n"
    "  void (*run)(unsigned, unsigned, unsigned, unsigned, unsigned, void **); };\n"
    "template <class T> struct of { static constexpr param p = {sizeof(T), 0, 0}; };\n"
    "template <class T> struct of<const T *> { static constexpr param p = {8, alignof(T), 1}; };\n"
    "template <class T> struct of<T *> { static constexpr param p = {8, alignof(T), 2}; };\n"
    "template <class... A> struct list {\n"
    "  static constexpr param p[] = {of<A>::p..., {0, 0, 0}}; };\n"
    "template <class... A> const param *params(void (*)(A...)) { return list<A...>::p; }\n"
    "template <class... A> constexpr unsigned count(void (*)(A...)) { return sizeof...(A); }\n"
    "}\n";

static const char watch_text[] =
    "static void weft_double_nobody(const void *, size_t, int) {}\n"
    "extern \"C\" {\n"
    "__attribute__((visibility(\"default\")))\n"
    "void (*weft_double_touch)(const void *, size_t, int) = weft_double_nobody;\n"
    "#define WATCH(name, bytes, write) __attribute__((visibility(\"hidden\"), "
    "no_sanitize(\"thread\"))) \\\n"
    "    void name(void *p) { weft_double_touch(p, bytes, write); }\n"
    "#define WATCH_BOTH(n) WATCH(__tsan_read##n, n, 0) WATCH(__tsan_write##n, n, 1) \\\n"
    "    WATCH(__tsan_unaligned_read##n, n, 0) WATCH(__tsan_unaligned_write##n, n, 1)\n"
    "WATCH_BOTH(1) WATCH_BOTH(2) WATCH_BOTH(4) WATCH_BOTH(8) WATCH_BOTH(16)\n"
    "#define WATCH_RANGE(name, write) __attribute__((visibility(\"hidden\"), "
    "no_sanitize(\"thread\"))) \\\n"
    "    void name(void *p, unsigned long n) { weft_double_touch(p, n, write); }\n"
    "WATCH_RANGE(__tsan_read_range, 0) WATCH_RANGE(__tsan_write_range, 1)\n"
    "#define WATCH_NOT(name) __attribute__((visibility(\"hidden\"), no_sanitize(\"thread\"))) \\\n"
    "    void name(void *) {}\n"
    "WATCH_NOT(__tsan_func_entry) WATCH_NOT(__tsan_vptr_read)\n"
    "__attribute__((visibility(\"hidden\"))) void __tsan_func_exit() {}\n"
    "__attribute__((visibility(\"hidden\"))) void __tsan_init() {}\n"
    "__attribute__((visibility(\"hidden\"))) void __tsan_vptr_update(void **, void *) {}\n"
    "}\n";

typedef struct program {
    struct program *next;
    char *text;
    int n_header;
    char **header, **header_name;
    bool compiled, destroyed;
    char arch[24];
    unsigned char *object; /* NULL: compilation failed */
    size_t object_bytes;
    char *log;
} program;

static program *all;

static void end_program(program *p)
{
    for (int i = 0; i < p->n_header; i++) {
        free(p->header[i]);
        free(p->header_name[i]);
    }
    free(p->header);
    free(p->header_name);
    free(p->text);
    free(p->object);
    free(p->log);
    p->header = p->header_name = NULL;
    p->text = p->log = NULL;
    p->object = NULL;
    p->n_header = 0;
    p->destroyed = true;
}

void weft_double_library_reset(void)
{
    for (program *p = all, *next; p; p = next) {
        next = p->next;
        end_program(p);
        free(p);
    }
    all = NULL;
}

/* The live program behind a handle; otherwise NULL and a mistake. */
static program *get(void *handle, const char *call)
{
    program *p = all;
    while (p && p != handle)
        p = p->next;
    if (p && !p->destroyed)
        return p;
    weft_double_mistake("%s: %p %s", call, handle, p ? "was destroyed before" : "is not a program");
    return NULL;
}

static int enter(const char *call)
{
    weft_double_lock();
    return (int)weft_double_fail(call);
}

static int leave(int r, const char *call)
{
    weft_double_log("%s = %d", call, r);
    weft_double_unlock();
    return r;
}

/* -- Texts and files -------------------------------------------------------------------------- */

typedef struct text {
    char *at;
    size_t n, room;
    bool failed;
} text;

static void put(text *t, const char *from, size_t n)
{
    if (t->n + n + 1 > t->room) {
        size_t room = 2 * (t->n + n + 1);
        char *p = realloc(t->at, room);
        if (!p) {
            t->failed = true;
            return;
        }
        t->at = p;
        t->room = room;
    }
    memcpy(t->at + t->n, from, n);
    t->n += n;
    t->at[t->n] = '\0';
}

static void puts_to(text *t, const char *from)
{
    put(t, from, strlen(from));
}

static bool write_file(const char *folder, const char *name, const char *at)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    bool ok = f && fputs(at, f) >= 0;
    return f && fclose(f) == 0 && ok;
}

static unsigned char *read_file(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    if (!f)
        return NULL;
    unsigned char *at = NULL;
    if (fstat(fileno(f), &st) == 0 && (at = malloc((size_t)st.st_size + 1))) {
        *bytes = fread(at, 1, (size_t)st.st_size, f);
        at[*bytes] = 0;
    }
    fclose(f);
    return at;
}

/* -- Compiling -------------------------------------------------------------------------------- */

/* Adds a row to the table for each `extern "C" __global__ void __launch_bounds__(256, 2)\nNAME(`.
 */
static void put_entries(text *out, const char *source)
{
    text table = {0};
    const char *at = source;
    while ((at = strstr(at, "__global__ void"))) {
        at += strlen("__global__ void");
        const char *name = at + strspn(at, " \n"), *bounds = "(1024)";
        size_t bounds_len = strlen(bounds);
        if (strncmp(name, "__launch_bounds__", 17) == 0) {
            bounds = name + 17;
            bounds_len = strcspn(bounds, ")") + 1;
            name = bounds + bounds_len;
            name += strspn(name, " \n");
        }
        size_t len = strcspn(name, "( \n;");
        char line[1000];
        snprintf(line, sizeof line, "WEFT_EMU_ENTRY(%.*s, (%.*s))\n", (int)len, name,
                 (int)bounds_len - 2, bounds + 1);
        puts_to(out, line);
        snprintf(line, sizeof line,
                 "{\"%.*s\", weft_emu::bound%.*s, weft_double::count(%.*s), "
                 "weft_double::params(%.*s), weft_emu_%.*s},\n",
                 (int)len, name, (int)bounds_len, bounds, (int)len, name, (int)len, name, (int)len,
                 name);
        puts_to(&table, line);
    }
    puts_to(out, "extern \"C\" __attribute__((visibility(\"default\")))\n"
                 "const weft_double::kernel weft_double_kernels[] = {\n");
    if (table.at)
        puts_to(out, table.at);
    puts_to(out, "{nullptr, 0, 0, nullptr, nullptr}};\n");
    out->failed = out->failed || table.failed;
    free(table.at);
}

static char *whole_source(const program *p, bool watch)
{
    text t = {0};
    puts_to(&t, "#line 1 \"weft.cu\"\n");
    puts_to(&t, p->text);
    if (weft_double_number("SYNTAX", 0))
        puts_to(&t, "\nthis is no C++;\n");
    puts_to(&t, "\n#line 1 \"doubles\"\n");
    puts_to(&t, head_text);
    if (watch)
        puts_to(&t, watch_text);
    put_entries(&t, p->text);
    if (!t.failed)
        return t.at;
    free(t.at);
    return NULL;
}

static void remove_folder(const program *p, const char *folder)
{
    static const char *const own[] = {"weft.cpp", "weft.o", "weft.so", "log"};
    char path[600];
    for (int i = 0; i < p->n_header + 4; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, i < 4 ? own[i] : p->header_name[i - 4]);
        unlink(path);
    }
    rmdir(folder);
}

/* Runs a program and appends its output to `log`; returns its exit status. */
static int run_tool(const char *const *argv, const char *log)
{
    extern char **environ;
    posix_spawn_file_actions_t io;
    posix_spawn_file_actions_init(&io);
    posix_spawn_file_actions_addopen(&io, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&io, 1, log, O_WRONLY | O_CREAT | O_APPEND, 0666);
    posix_spawn_file_actions_adddup2(&io, 1, 2);
    pid_t pid;
    int status = -1;
    if (posix_spawnp(&pid, argv[0], &io, NULL, (char *const *)(uintptr_t)argv, environ) == 0)
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
    posix_spawn_file_actions_destroy(&io);
    return status;
}

#define EMU_FOLDER WEFT_SOURCE_DIR "/tests/support"
#define EMU_NAME   "cuda_emu.h"

/* Appends the compiler and its options for all files, then `more`, which ends with NULL. */
static void put_command(const char **argv, bool watch, const char *const *more)
{
    static const char *const option[] = {"-std=c++17",      "-O1",       "-w",
                                         "-fPIC",           "-fno-rtti", "-ffp-contract=off",
                                         "-fno-exceptions", "-c",        "-fno-strict-aliasing"};
    int n = 0;
    argv[n++] = weft_double_text("CXX") ? weft_double_text("CXX") : "c++";
    for (size_t i = 0; i < sizeof option / sizeof *option; i++)
        argv[n++] = option[i];
    if (watch)
        argv[n++] = "-fsanitize=thread";
    while ((argv[n++] = *more++) != NULL)
        continue;
}

/* Compiles EMU_NAME, whose text is `emu`, beforehand into a new folder of this name. */
static void prepare_emu(const char *cache, const char *target, const char *emu, bool watch)
{
    char folder[512], header[600], made[600];
    const char *argv[24];
    snprintf(folder, sizeof folder, "%s/emu-XXXXXX", cache);
    if (!mkdtemp(folder))
        return;
    snprintf(header, sizeof header, "%s/" EMU_NAME, folder);
    snprintf(made, sizeof made, "%s/" EMU_NAME ".gch", folder);
    put_command(argv, watch, (const char *const[]){"-x", "c++-header", header, "-o", made, NULL});
    if (write_file(folder, EMU_NAME, emu) && run_tool(argv, "/dev/null") == 0 &&
        rename(folder, target) == 0)
        return;
    unlink(made);
    unlink(header);
    rmdir(folder);
}

/* The path of EMU_NAME beside what the compiler made of it beforehand, which takes longer than most
 * kernels do; that of the file itself if there is no such thing. */
static void find_emu(const char *cache, bool watch, char path[600])
{
    char folder[512], made[600];
    size_t n;
    const char *cxx = weft_double_text("CXX");
    char *emu = (char *)read_file(EMU_FOLDER "/" EMU_NAME, &n);
    uint64_t sum = emu ? weft_double_sum(emu, n) * 31 + watch : 0;
    sum = sum * 31 + (cxx ? weft_double_sum(cxx, strlen(cxx)) : 0);
    snprintf(folder, sizeof folder, "%s/emu-%016llx", cache, (unsigned long long)sum);
    snprintf(made, sizeof made, "%s/" EMU_NAME ".gch", folder);
    if (emu && access(made, R_OK) != 0)
        prepare_emu(cache, folder, emu, watch);
    snprintf(path, 600, "%s/" EMU_NAME, access(made, R_OK) == 0 ? folder : EMU_FOLDER);
    free(emu);
}

/* Compiles weft.cpp in `folder` to weft.so. Compiling and linking are separate, because an object
 * compiled for watching must not be linked with the sanitizer library that its code expects. */
static bool run_compiler(const char *cache, const char *folder, bool watch)
{
    char include[600], source[600], part[600], object[600], log[600], emu[600];
    const char *argv[24];
    find_emu(cache, watch, emu);
    snprintf(include, sizeof include, "-I%s", folder);
    snprintf(source, sizeof source, "%s/weft.cpp", folder);
    snprintf(part, sizeof part, "%s/weft.o", folder);
    snprintf(object, sizeof object, "%s/weft.so", folder);
    snprintf(log, sizeof log, "%s/log", folder);
    put_command(argv, watch,
                (const char *const[]){"-include", emu, include, "-o", part, source, NULL});
    const char *const link[] = {argv[0], "-shared", "-o", object, part, NULL};
    return run_tool(argv, log) == 0 && run_tool(link, log) == 0;
}

static void write_sources(const program *p, const char *folder, const char *source)
{
    for (int i = 0; i < p->n_header; i++)
        if (!strchr(p->header_name[i], '/'))
            write_file(folder, p->header_name[i], p->header[i]);
    write_file(folder, "weft.cpp", source);
}

/* Reads the object from `path`; compiles it first if it is not in the cache. */
static void compile_to(program *p, const char *cache, const char *path, const char *source,
                       bool watch)
{
    char folder[512], object[600], log[600];
    size_t n;
    snprintf(folder, sizeof folder, "%s/compile-XXXXXX", cache);
    if (!mkdtemp(folder)) {
        p->log = strdup("error: no folder to compile in");
        return;
    }
    write_sources(p, folder, source);
    snprintf(object, sizeof object, "%s/weft.so", folder);
    snprintf(log, sizeof log, "%s/log", folder);
    if (run_compiler(cache, folder, watch))
        rename(object, path);
    p->log = (char *)read_file(log, &n);
    remove_folder(p, folder);
    p->object = read_file(path, &p->object_bytes);
}

static uint64_t sum_of(const program *p, const char *source, bool watch)
{
    size_t n;
    unsigned char *emu = read_file(EMU_FOLDER "/" EMU_NAME, &n);
    const char *cxx = weft_double_text("CXX");
    uint64_t sum = emu ? weft_double_sum(emu, n) : 0;
    free(emu);
    sum = sum * 31 + weft_double_sum(source, strlen(source)) + watch;
    sum = sum * 31 + (cxx ? weft_double_sum(cxx, strlen(cxx)) : 0);
    for (int i = 0; i < p->n_header; i++)
        sum = sum * 31 + weft_double_sum(p->header[i], strlen(p->header[i]));
    return sum;
}

static void compile(program *p)
{
    const char *cache = weft_double_text("CACHE"), *tmp = getenv("TMPDIR");
    bool watch = weft_double_number("WATCH", 0);
    char folder[400], path[512];
    if (cache)
        snprintf(folder, sizeof folder, "%s", cache);
    else
        snprintf(folder, sizeof folder, "%s/weft-doubles-%u", tmp ? tmp : "/tmp", getuid());
    mkdir(folder, 0700);
    char *source = whole_source(p, watch);
    if (!source)
        return;
    uint64_t sum = sum_of(p, source, watch);
    snprintf(path, sizeof path, "%s/%016llx.so", folder, (unsigned long long)sum);
    p->object = read_file(path, &p->object_bytes);
    if (!p->object)
        compile_to(p, folder, path, source, watch);
    free(source);
}

/* -- Calls ------------------------------------------------------------------------------------ */

const char *nvrtcGetErrorString(int code)
{
    return code ? "an error of the double" : "NVRTC_SUCCESS";
}

int nvrtcVersion(int *major, int *minor)
{
    *major = WEFT_DOUBLE_VERSION / 1000;
    *minor = WEFT_DOUBLE_VERSION % 1000 / 10;
    return leave(enter("nvrtcVersion"), "nvrtcVersion");
}

int nvrtcGetNumSupportedArchs(int *n)
{
    *n = (int)(sizeof archs / sizeof *archs);
    return leave(enter("nvrtcGetNumSupportedArchs"), "nvrtcGetNumSupportedArchs");
}

int nvrtcGetSupportedArchs(int *arch)
{
    memcpy(arch, archs, sizeof archs);
    return leave(enter("nvrtcGetSupportedArchs"), "nvrtcGetSupportedArchs");
}

static bool copy_texts(program *p, const char *source, int n, const char *const *header,
                       const char *const *name)
{
    p->text = strdup(source);
    p->header = calloc((size_t)n + 1, sizeof *p->header);
    p->header_name = calloc((size_t)n + 1, sizeof *p->header_name);
    if (!p->text || !p->header || !p->header_name)
        return false;
    for (p->n_header = 0; p->n_header < n; p->n_header++) {
        int i = p->n_header;
        p->header[i] = strdup(header[i]);
        p->header_name[i] = strdup(name[i]);
        if (!p->header[i] || !p->header_name[i])
            return false;
    }
    return true;
}

int nvrtcCreateProgram(void **out, const char *source, const char *name, int n_header,
                       const char *const *header, const char *const *header_name)
{
    int r = enter("nvrtcCreateProgram");
    (void)name;
    if (!r && (!source || n_header < 0))
        r = INVALID_INPUT;
    program *p = r ? NULL : calloc(1, sizeof *p);
    if (p) {
        p->next = all;
        all = p;
        if (copy_texts(p, source, n_header, header, header_name))
            *out = p;
        else
            r = OUT_OF_MEMORY;
    } else if (!r) {
        r = OUT_OF_MEMORY;
    }
    return leave(r, "nvrtcCreateProgram");
}

int nvrtcDestroyProgram(void **handle)
{
    int r = enter("nvrtcDestroyProgram");
    program *p = get(*handle, "nvrtcDestroyProgram");
    if (p)
        end_program(p);
    else if (!r)
        r = INVALID_PROGRAM;
    *handle = NULL;
    return leave(r, "nvrtcDestroyProgram");
}

/* Without the lock, so that several threads compile at the same time. */
int nvrtcCompileProgram(void *handle, int n_option, const char *const *option)
{
    int r = enter("nvrtcCompileProgram");
    program *p = r ? NULL : get(handle, "nvrtcCompileProgram");
    if (!r && !p)
        r = INVALID_PROGRAM;
    for (int i = 0; !r && i < n_option; i++) {
        static const char arch[] = "--gpu-architecture=";
        if (strncmp(option[i], arch, sizeof arch - 1) == 0)
            snprintf(p->arch, sizeof p->arch, "%s", option[i] + sizeof arch - 1);
        else if (option[i][0] != '-')
            r = INVALID_OPTION;
    }
    weft_double_unlock();
    if (!r) {
        compile(p);
        p->compiled = true;
        r = p->object ? 0 : COMPILATION;
    }
    weft_double_lock();
    return leave(r, "nvrtcCompileProgram");
}

/* Returns the size of the image, and the image if `out` is not NULL. */
static int get_image(void *handle, const char *call, const char *kind, size_t *bytes, char *out)
{
    int r = enter(call), number;
    program *p = r ? NULL : get(handle, call);
    if (!r && !p)
        r = INVALID_PROGRAM;
    if (!r && !p->object) {
        weft_double_mistake("%s: the program %s", call,
                            p->compiled ? "did not compile" : "was not compiled");
        r = INVALID_PROGRAM;
    }
    if (!r && (sscanf(p->arch, "%*[a-z]_%d", &number) != 1 ||
               (strcmp(kind, "sm") == 0 && strncmp(p->arch, "sm_", 3) != 0))) {
        weft_double_mistake("%s: the program was compiled for \"%s\"", call, p->arch);
        r = INVALID_PROGRAM;
    }
    if (!r) {
        weft_double_image image = {.bytes = sizeof image + p->object_bytes + 1};
        if (bytes)
            *bytes = image.bytes;
        if (out) {
            memcpy(image.magic, WEFT_DOUBLE_MAGIC, 8);
            snprintf(image.arch, sizeof image.arch, "%s_%d", kind, number);
            memcpy(out + sizeof image, p->object, p->object_bytes);
            out[image.bytes - 1] = 0;
            image.sum = weft_double_sum(out + sizeof image, p->object_bytes + 1);
            memcpy(out, &image, sizeof image);
        }
    }
    return leave(r, call);
}

int nvrtcGetPTXSize(void *handle, size_t *bytes)
{
    return get_image(handle, "nvrtcGetPTXSize", "compute", bytes, NULL);
}

int nvrtcGetPTX(void *handle, char *out)
{
    return get_image(handle, "nvrtcGetPTX", "compute", NULL, out);
}

int nvrtcGetCUBINSize(void *handle, size_t *bytes)
{
    return get_image(handle, "nvrtcGetCUBINSize", "sm", bytes, NULL);
}

int nvrtcGetCUBIN(void *handle, char *out)
{
    return get_image(handle, "nvrtcGetCUBIN", "sm", NULL, out);
}

static int get_log(void *handle, const char *call, size_t *bytes, char *out)
{
    int r = enter(call);
    program *p = r ? NULL : get(handle, call);
    if (!r && !p)
        r = INVALID_PROGRAM;
    if (!r) {
        const char *log = p->log ? p->log : "";
        if (bytes)
            *bytes = strlen(log) + 1;
        if (out)
            memcpy(out, log, strlen(log) + 1);
    }
    return leave(r, call);
}

int nvrtcGetProgramLogSize(void *handle, size_t *bytes)
{
    return get_log(handle, "nvrtcGetProgramLogSize", bytes, NULL);
}

int nvrtcGetProgramLog(void *handle, char *out)
{
    return get_log(handle, "nvrtcGetProgramLog", NULL, out);
}
