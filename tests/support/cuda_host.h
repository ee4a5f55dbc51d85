/* Kernels of codegen/cuda on the host: compiles CUDA C++ with the system's C++ compiler and
 * cuda_emu.h, and launches what came of it; with WEFT_PTX defined, compiles it with NVRTC and
 * interprets its PTX (cuda_ptx.h). Tests skip where there is no such compiler.
 *
 *     cuda_host *h = cuda_host_build(text);
 *     float *x = cuda_host_memory(h, bytes, shift);
 *     cuda_host_launch(h, "kernel", 3, 1, 1, 256, 0, (void *[]){&x, &n});
 *     cuda_host_close(h);
 */
#ifndef WEFT_TESTS_SUPPORT_CUDA_HOST_H
#define WEFT_TESTS_SUPPORT_CUDA_HOST_H

#include "base/file.h"
#include "base/hash.h"
#include "base/str.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of the build; "" when there is none. */
#ifndef WEFT_CXX
#define WEFT_CXX ""
#endif

/* Memory blocks; orders of threads to try: the interpreter's is random and it finds races in any.
 */
#ifdef WEFT_PTX
enum { CUDA_HOST_BLOCKS = 128, CUDA_HOST_ORDERS = 1 };
#else
enum { CUDA_HOST_BLOCKS = 128, CUDA_HOST_ORDERS = 2 };
#endif

typedef struct cuda_host {
    void *object; /* shared object, or module of PTX */
    unsigned order;
    bool keeps_faults; /* a launch records its fault instead of failing the test */
    char fault[600];   /* "": none */
    struct {
        void *pages, *at;
        size_t page_bytes, bytes;
    } memory[CUDA_HOST_BLOCKS];
    uint32_t n_memory;
} cuda_host;

#ifndef WEFT_PTX
/* Adds the entries that cuda_emu.h wants behind the kernels of `text`, which are written as
 * `extern "C" __global__ void __launch_bounds__(BOUNDS) NAME(`. */
static inline void cuda_host_entries(const char *text, weft_buf *out)
{
    static const char start[] = "extern \"C\" __global__ void __launch_bounds__(";
    for (const char *at = text; (at = strstr(at, start)) != NULL;) {
        at += sizeof start - 1;
        size_t bounds = strcspn(at, ")");
        const char *name = at + bounds + 1;
        name += strspn(name, " \n");
        size_t len = strcspn(name, "( ");
        weft_buf_printf(out, "WEFT_EMU_ENTRY(%.*s, (%.*s))\n", (int)len, name, (int)bounds, at);
    }
}

#endif

/* -- Compiled kernels, kept ----------------------------------------------------------------- */

static inline uint64_t cuda_host_hash_file(const char *path, uint64_t hash)
{
    weft_file file = {0};
    weft_diag *diag = weft_diag_create();
    if (weft_file_map(path, diag, &file) == WEFT_ERR_OK)
        hash = weft_hash64(file.at, file.len, hash);
    weft_file_unmap(&file);
    weft_diag_destroy(diag);
    return hash;
}

/* Of everything that the object depends on: the text, the headers, the compiler, its options. */
static inline uint64_t cuda_host_hash(const char *text)
{
    static const char *const also[] = {WEFT_SOURCE_DIR "/tests/support/cuda_emu.h",
                                       WEFT_SOURCE_DIR "/tests/support/cuda_host.h"};
    uint64_t hash = weft_hash64(text, strlen(text), 0);
    hash = weft_hash64(WEFT_CXX_VERSION, strlen(WEFT_CXX_VERSION), hash);
    for (size_t i = 0; i < sizeof also / sizeof *also; i++)
        hash = cuda_host_hash_file(also[i], hash);
    glob_t headers;
    if (glob(WEFT_SOURCE_DIR "/codegen/cuda/*.cuh", 0, NULL, &headers) == 0) {
        for (size_t i = 0; i < headers.gl_pathc; i++)
            hash = cuda_host_hash_file(headers.gl_pathv[i], hash);
        globfree(&headers);
    }
    return hash;
}

#ifndef WEFT_PTX
static inline void cuda_host_compile(const char *text, const char *dir, const char *object)
{
    weft_buf source = {0}, command = {0}, entries = {0};
    weft_buf_printf(&source, "%s/kernels.cpp", dir);
    FILE *f = fopen(source.at, "w");
    assert_non_null(f);
    cuda_host_entries(text, &entries);
    fprintf(f, "%s\n%s", text, entries.at ? entries.at : "");
    assert_int_equal(fclose(f), 0);
    weft_buf_printf(&command,
                    WEFT_CXX " -std=c++17 -O1 -w -fPIC -shared -ffp-contract=off"
                             " -I" WEFT_SOURCE_DIR "/codegen/cuda"
                             " -include " WEFT_SOURCE_DIR "/tests/support/cuda_emu.h"
                             " -o %s/kernels.so %s 2>%s/log || { head -c 4000 %s/log; exit 1; }",
                    dir, source.at, dir, dir);
    if (system(command.at) != 0)
        fail_msg("the host's compiler refuses %s", source.at);
    command.len = 0;
    weft_buf_printf(&command, "%s/kernels.so", dir);
    /* One rename: another test that compiles the same text sees all of it or nothing. */
    if (rename(command.at, object) != 0)
        fail_msg("%s cannot be written", object);
    weft_buf_finish(&source);
    weft_buf_finish(&command);
    weft_buf_finish(&entries);
}

static inline void cuda_host_remove(char *dir)
{
    weft_buf command = {0};
    weft_buf_printf(&command, "rm -rf %s", dir);
    assert_int_equal(system(command.at), 0);
    weft_buf_finish(&command);
}

/* Why kernels cannot be compiled; NULL: they can. */
static inline const char *cuda_host_missing(void)
{
    return WEFT_CXX[0] == '\0' ? "no C++ compiler was found when this was built" : NULL;
}

/* The shared object of the kernels of `text`. Objects are kept in WEFT_KERNEL_CACHE by the hash of
 * what they are made of, so that the sanitizer build and the release build compile each once. */
static inline cuda_host *cuda_host_build(const char *text)
{
    weft_buf object = {0};
    weft_buf_printf(&object, WEFT_KERNEL_CACHE "/%016llx.so",
                    (unsigned long long)cuda_host_hash(text));
    if (access(object.at, R_OK) != 0) {
        char dir[] = WEFT_KERNEL_CACHE "/making-XXXXXX";
        (void)mkdir(WEFT_KERNEL_CACHE, 0777);
        assert_non_null(mkdtemp(dir));
        cuda_host_compile(text, dir, object.at);
        cuda_host_remove(dir);
    }
    cuda_host *h = calloc(1, sizeof *h);
    assert_non_null(h);
    h->object = dlopen(object.at, RTLD_NOW | RTLD_LOCAL);
    if (h->object == NULL)
        fail_msg("%s", dlerror());
    weft_buf_finish(&object);
    return h;
}

static inline void cuda_host_unload(cuda_host *h)
{
    dlclose(h->object);
}

static inline void *cuda_host_symbol(cuda_host *h, const char *name)
{
    void *p = dlsym(h->object, name);
    if (p == NULL)
        fail_msg("no %s in the object", name);
    return p;
}

/* What went wrong, or NULL. */
static inline const char *cuda_host_try(cuda_host *h, const char *kernel, unsigned gx, unsigned gy,
                                        unsigned gz, unsigned threads, unsigned shared_bytes,
                                        void **params)
{
    void (*run)(unsigned, unsigned, unsigned, unsigned, unsigned, void **);
    const char *(*fault)(void);
    weft_buf name = {0};
    weft_buf_printf(&name, "weft_emu_%s", kernel);
    *(void **)&run = cuda_host_symbol(h, name.at);
    *(void **)&fault = cuda_host_symbol(h, "weft_emu_fault");
    weft_buf_finish(&name);
    *(unsigned *)cuda_host_symbol(h, "weft_emu_order") = h->order;
    run(gx, gy, gz, threads, shared_bytes, params);
    return fault();
}
#else
#include "tests/support/cuda_ptx.h"
#endif

/* Of a file of tests/support. */
static inline cuda_host *cuda_host_build_file(const char *name)
{
    weft_buf path = {0};
    weft_buf_printf(&path, "%s/tests/support/%s", WEFT_SOURCE_DIR, name);
    FILE *f = fopen(path.at, "r");
    assert_non_null(f);
    weft_buf text = {0};
    char line[512];
    while (fgets(line, sizeof line, f) != NULL)
        weft_buf_puts(&text, line);
    fclose(f);
    cuda_host *h = cuda_host_build(text.at);
    weft_buf_finish(&text);
    weft_buf_finish(&path);
    return h;
}

/* Pages without access follow `bytes` of memory filled with 0xff (NaN); its address is `shift` over
 * a multiple of 64, if that can be: the end is then up to 63 bytes before the page. */
static inline void *cuda_host_memory(cuda_host *h, size_t bytes, size_t shift)
{
    const size_t page = 4096;
    size_t room = (bytes + 64 + page - 1) / page * page;
    assert_true(h->n_memory < CUDA_HOST_BLOCKS);
    unsigned char *p =
        mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    mprotect(p + room, page, PROT_NONE);
    memset(p, 0xff, room);
    unsigned char *at = p + (room - bytes - shift) / 64 * 64 + shift;
    h->memory[h->n_memory].pages = p;
    h->memory[h->n_memory].page_bytes = room + page;
    h->memory[h->n_memory].at = at;
    h->memory[h->n_memory++].bytes = bytes;
    return at;
}

static inline void cuda_host_forget_memory(cuda_host *h)
{
    while (h->n_memory > 0) {
        h->n_memory--;
        munmap(h->memory[h->n_memory].pages, h->memory[h->n_memory].page_bytes);
    }
}

static inline void cuda_host_close(cuda_host *h)
{
    cuda_host_forget_memory(h);
    cuda_host_unload(h);
    free(h);
}

/* The order in which threads start: 0 or 1. */
static inline void cuda_host_order(cuda_host *h, unsigned order)
{
    h->order = order;
}

static inline void cuda_host_launch(cuda_host *h, const char *kernel, unsigned gx, unsigned gy,
                                    unsigned gz, unsigned threads, unsigned shared_bytes,
                                    void **params)
{
    const char *fault = cuda_host_try(h, kernel, gx, gy, gz, threads, shared_bytes, params);
    if (fault != NULL && h->keeps_faults)
        snprintf(h->fault, sizeof h->fault, "%s", fault);
    else if (fault != NULL)
        fail_msg("%s", fault);
}

/* What main returns of cmocka's result: without a compiler all was skipped. */
static inline int cuda_host_status(int failed)
{
    return failed == 0 && cuda_host_missing() ? 77 : failed;
}

#endif
