/* Makes calls of the C library fail. Linked into programs: its functions take the place of the
 * library's, for the program and for the libraries that it is linked with.
 *
 *   WEFT_FAULT=count      records each call that could fail
 *   WEFT_FAULT=fork       each call fails in a process of its own (inject_fork.h)
 *   WEFT_FAULT=live       what fails is written into WEFT_FAULT_STATE while the program runs
 *   WEFT_FAULT=KIND[@STACK]:N[:MODE]
 *       the N-th call fails, of those of the kind (all: any kind) and, if given, with this hash of
 *       the stack (hexadecimal). MODE: once (default), on (the N-th and all later ones), short
 *       (moves half of the bytes), intr (EINTR)
 *   WEFT_FAULT_STATE=FILE   inject.h; without it no call fails
 *   WEFT_FAULT_IN=NAME,NAME
 *       libraries whose calls count too, by the beginning of their names
 *
 * Calls of other libraries, and of C++'s runtime, which throws, pass. */
#include "tests/faults/inject.h"

#include "tests/faults/inject_fork.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unwind.h>

typedef enum inject_kind {
    ALL,
    ALLOC,
    READ,
    WRITE,
    OPEN,
    FILE_,
    MAP,
    PROCESS,
    SOCKET,
    WAIT,
    N_KINDS
} inject_kind;
#define FILE_KIND FILE_

static const char *const kind_names[N_KINDS] = {"all",  "alloc", "read",    "write",  "open",
                                                "file", "map",   "process", "socket", "wait"};

typedef enum inject_mode { ONCE, ON, SHORT, INTR, N_MODES } inject_mode;
static const char *const mode_names[N_MODES] = {"once", "on", "short", "intr"};

typedef enum inject_verdict { PASSES, FAILS, IS_SHORT } inject_verdict;

/* Of each stack the innermost STACK_FRAMES tell calls apart; OWN_FRAMES are this file's. */
enum { STACK_FRAMES = 6, OWN_FRAMES = 4, RANGES_MAX = 64 };

typedef struct range {
    uintptr_t from, to;
} range;

static inject_state *state;
static size_t n_point;
static struct {
    bool counts; /* WEFT_FAULT=count */
    bool forks;  /* WEFT_FAULT=fork */
    bool live;   /* WEFT_FAULT=live */
    int driver;
    inject_kind kind;
    inject_mode mode;
    bool by_stack;
    uint32_t stack;
    uint64_t first;
} fault;
static range counted[RANGES_MAX]; /* code whose calls count; [0] is the program's */
static size_t n_counted;
static uintptr_t base;
static __thread bool busy;

/* -- Setting ---------------------------------------------------------------------------------- */

/* Whether the file name of the library begins with one of the names of the list. */
static bool is_named(const char *path, const char *list)
{
    const char *file = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    while (list && *list) {
        size_t len = strcspn(list, ",");
        if (len && strncmp(file, list, len) == 0)
            return true;
        list += len + (list[len] == ',');
    }
    return false;
}

static int add_ranges(struct dl_phdr_info *info, size_t size, void *list)
{
    bool program = n_counted == 0; /* the first object */
    (void)size;
    if (program)
        base = info->dlpi_addr;
    else if (!is_named(info->dlpi_name, list))
        return 0;
    for (int i = 0; i < info->dlpi_phnum && n_counted < RANGES_MAX; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_LOAD && (p->p_flags & PF_X))
            counted[n_counted++] =
                (range){info->dlpi_addr + p->p_vaddr, info->dlpi_addr + p->p_vaddr + p->p_memsz};
    }
    return 0;
}

static int find_name(const char *text, size_t len, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (strlen(names[i]) == len && strncmp(names[i], text, len) == 0)
            return i;
    return -1;
}

/* KIND[@STACK]:N[:MODE] */
static bool parse(const char *text)
{
    size_t len = strcspn(text, "@:");
    char *end = NULL;
    int k = find_name(text, len, kind_names, N_KINDS);
    if (k < 0)
        return false;
    fault.kind = (inject_kind)k;
    text += len;
    if (*text == '@') {
        fault.by_stack = true;
        fault.stack = (uint32_t)strtoul(text + 1, &end, 16);
        text = end;
    }
    if (*text != ':')
        return false;
    fault.first = strtoull(text + 1, &end, 10);
    if (*end == ':') {
        int m = find_name(end + 1, strlen(end + 1), mode_names, N_MODES);
        fault.mode = (inject_mode)m;
        return m >= 0 && fault.first > 0;
    }
    return *end == '\0' && fault.first > 0;
}

/* Not by way of this file's own functions, nor of a sanitizer's. */
static inject_state *map_state(const char *path)
{
    long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
    long len = fd >= 0 ? syscall(SYS_lseek, fd, 0, SEEK_END) : -1;
    long at = len > (long)sizeof(inject_state)
                  ? syscall(SYS_mmap, NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                  : -1;
    if (fd >= 0)
        syscall(SYS_close, fd);
    if (at == -1)
        return NULL;
    n_point = ((size_t)len - sizeof(inject_state)) / sizeof(inject_point);
    return (inject_state *)(uintptr_t)at;
}

__attribute__((constructor)) static void configure(void)
{
    const char *text = getenv("WEFT_FAULT"), *path = getenv("WEFT_FAULT_STATE");
    if (!text || !path)
        return;
    const char *driver = getenv("WEFT_FAULT_DRIVER");
    fault.counts = strcmp(text, "count") == 0;
    fault.forks = strcmp(text, "fork") == 0 && driver;
    fault.driver = fault.forks ? atoi(driver) : -1;
    fault.live = strcmp(text, "live") == 0;
    dl_iterate_phdr(add_ranges, getenv("WEFT_FAULT_IN"));
    inject_state *at =
        fault.counts || fault.forks || fault.live || parse(text) ? map_state(path) : NULL;
    if (!at) {
        fprintf(stderr, "faults: WEFT_FAULT=%s or WEFT_FAULT_STATE=%s is wrong\n", text, path);
        _exit(120);
    }
    state = at;
}

/* -- Stacks ----------------------------------------------------------------------------------- */

typedef struct walk {
    uint64_t frame[INJECT_FRAMES + OWN_FRAMES];
    size_t n;
} walk;

static _Unwind_Reason_Code add_frame(struct _Unwind_Context *cx, void *user)
{
    walk *w = user;
    uintptr_t at = _Unwind_GetIP(cx);
    if (at >= counted[0].from && at < counted[0].to)
        w->frame[w->n++] = at - base;
    return w->n < INJECT_FRAMES + OWN_FRAMES ? _URC_NO_REASON : _URC_NORMAL_STOP;
}

/* The frames inside the program, from the caller of the injected function on. */
__attribute__((noinline)) static void walk_stack(walk *w)
{
    w->n = 0;
    _Unwind_Backtrace(add_frame, w);
    size_t own = w->n < OWN_FRAMES ? w->n : OWN_FRAMES;
    memmove(w->frame, w->frame + own, (w->n - own) * sizeof w->frame[0]);
    w->n -= own;
}

static uint32_t hash_stack(const walk *w)
{
    uint32_t h = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < w->n && i < STACK_FRAMES; i++)
        for (int b = 0; b < 8; b++)
            h = (h ^ (uint32_t)(w->frame[i] >> (8 * b) & 0xff)) * 16777619u;
    return h;
}

/* -- Decision --------------------------------------------------------------------------------- */

static bool is_counted(const void *caller)
{
    for (size_t i = 0; i < n_counted; i++)
        if ((uintptr_t)caller >= counted[i].from && (uintptr_t)caller < counted[i].to)
            return true;
    return false;
}

static void note(const char *call, const walk *w)
{
    state->pid = getpid();
    snprintf(state->call, sizeof state->call, "%s", call);
    memcpy(state->frame, w->frame, w->n * sizeof w->frame[0]);
}

/* Whether this is a process in which this call fails: the fault is set accordingly. */
static bool is_try(inject_kind of, uint32_t stack)
{
    inject_order order;
    if (!inject_fork_tries(fault.driver, of, stack, &order))
        return false;
    fault.forks = false;
    fault.mode = (inject_mode)order.mode;
    fault.kind = of;
    fault.by_stack = true;
    fault.stack = stack;
    fault.first = 1;
    state = map_state("state");
    if (!state)
        _exit(120);
    return true;
}

__attribute__((noinline)) static inject_verdict decide(inject_kind of, const char *call)
{
    walk w = {.n = 0};
    if (fault.mode != ON && atomic_load(&state->injected) > 0)
        return PASSES;
    if (fault.counts || fault.forks || fault.by_stack) {
        walk_stack(&w);
        if (w.n == 0) /* of a sanitizer, in a thread that begins */
            return PASSES;
    }
    if (fault.counts) {
        uint64_t i = atomic_fetch_add(&state->calls, 1);
        if (i < n_point)
            state->point[i] = (inject_point){of, hash_stack(&w)};
        return PASSES;
    }
    if (fault.forks && !is_try(of, hash_stack(&w)))
        return PASSES;
    if (fault.by_stack && hash_stack(&w) != fault.stack)
        return PASSES;
    uint64_t i = atomic_fetch_add(&state->calls, 1) + 1;
    if (i < fault.first || (i > fault.first && fault.mode != ON))
        return PASSES;
    if (!fault.by_stack)
        walk_stack(&w);
    if (atomic_fetch_add(&state->injected, 1) == 0)
        note(call, &w);
    return fault.mode == SHORT ? IS_SHORT : FAILS;
}

/* Takes over what the driver has written; false: nothing is to fail. Threads that do this at once
 * write the same. */
static bool take_live(void)
{
    uint32_t mode = atomic_load(&state->live_mode);
    if (mode == INJECT_NOTHING)
        return false;
    fault.counts = mode == INJECT_COUNT;
    fault.mode = fault.counts ? ONCE : (inject_mode)mode;
    fault.kind = (inject_kind)state->live_kind;
    fault.by_stack = true;
    fault.stack = state->live_stack;
    fault.first = state->live_nth;
    return true;
}

/* Whether a call of this kind, made from `caller`, fails. */
__attribute__((noinline)) static inject_verdict verdict(inject_kind of, const char *call,
                                                        const void *caller)
{
    if (!state || busy || !is_counted(caller) || (fault.live && !take_live()))
        return PASSES;
    bool moves = of == READ || of == WRITE;
    if (!fault.counts && !fault.forks &&
        ((fault.kind != ALL && fault.kind != of) || (fault.mode == SHORT && !moves) ||
         (fault.mode == INTR && !moves && of != WAIT) || (fault.mode != INTR && of == WAIT)))
        return PASSES;
    busy = true;
    int code = errno;
    inject_verdict v = decide(of, call);
    errno = code;
    busy = false;
    return v;
}

#define VERDICT(of, name) verdict(of, name, __builtin_return_address(0))

/* -- Calls ------------------------------------------------------------------------------------ */

/* The function that this file's one hides. */
static void *find_real(const char *name)
{
    bool was = busy;
    busy = true;
    void *at = dlsym(RTLD_NEXT, name);
    busy = was;
    if (!at)
        abort();
    return at;
}

#define REAL(name)                            \
    static __typeof__(name) *real;            \
    if (!real) {                              \
        void *at_real = find_real(#name);     \
        memcpy(&real, &at_real, sizeof real); \
    }

#define FAIL(code, value)                            \
    do {                                             \
        errno = fault.mode == INTR ? EINTR : (code); \
        return value;                                \
    } while (0)

#define CALL(of, code, value, type, name, params, args) \
    type name params                                    \
    {                                                   \
        REAL(name)                                      \
        if (VERDICT(KIND_##of, #name) == FAILS)         \
            FAIL(code, value);                          \
        return real args;                               \
    }

/* signalfd, eventfd and timerfd move whole records or fail. */
static bool moves_records(int fd)
{
    struct stat s;
    return fstat(fd, &s) == 0 && (s.st_mode & S_IFMT) == 0;
}

/* A write to an eventfd whose counter is not full fails only by a signal. */
static bool must_pass(inject_kind of, int fd)
{
    return of == WRITE && fault.mode != INTR && moves_records(fd);
}

#define TRANSFER(of, code, type, name, params, args)        \
    type name params                                        \
    {                                                       \
        REAL(name)                                          \
        inject_verdict v = VERDICT(KIND_##of, #name);       \
        if (v == FAILS && !must_pass(KIND_##of, fd))        \
            FAIL(code, -1);                                 \
        if (v == IS_SHORT && len > 1 && !moves_records(fd)) \
            len /= 2;                                       \
        return real args;                                   \
    }

#define KIND_READ    READ
#define KIND_WRITE   WRITE
#define KIND_OPEN    OPEN
#define KIND_FILE    FILE_KIND
#define KIND_MAP     MAP
#define KIND_PROCESS PROCESS
#define KIND_SOCKET  SOCKET
#define KIND_WAIT    WAIT

#include "tests/faults/inject_calls.def"

int open(const char *path, int flags, ...)
{
    REAL(open)
    va_list list;
    va_start(list, flags);
    mode_t rights = flags & (O_CREAT | __O_TMPFILE) ? va_arg(list, mode_t) : 0;
    va_end(list);
    if (VERDICT(OPEN, "open") == FAILS)
        FAIL(EMFILE, -1);
    return real(path, flags, rights);
}

int openat(int dir, const char *path, int flags, ...)
{
    REAL(openat)
    va_list list;
    va_start(list, flags);
    mode_t rights = flags & (O_CREAT | __O_TMPFILE) ? va_arg(list, mode_t) : 0;
    va_end(list);
    if (VERDICT(OPEN, "openat") == FAILS)
        FAIL(EMFILE, -1);
    return real(dir, path, flags, rights);
}

/* A stream that failed says so by ferror. */
enum { STREAM_FAILED = 0x20 };

size_t fread(void *at, size_t size, size_t n, FILE *f)
{
    REAL(fread)
    if (VERDICT(READ, "fread") != FAILS || fault.mode >= SHORT)
        return real(at, size, n, f);
    f->_flags |= STREAM_FAILED;
    FAIL(EIO, 0);
}

size_t fwrite(const void *at, size_t size, size_t n, FILE *f)
{
    REAL(fwrite)
    if (VERDICT(WRITE, "fwrite") != FAILS || fault.mode >= SHORT)
        return real(at, size, n, f);
    f->_flags |= STREAM_FAILED;
    FAIL(ENOSPC, 0);
}

/* What is watched can be taken out. */
int epoll_ctl(int fd, int op, int on, struct epoll_event *event)
{
    REAL(epoll_ctl)
    if (op != EPOLL_CTL_DEL && VERDICT(SOCKET, "epoll_ctl") == FAILS)
        FAIL(ENOSPC, -1);
    return real(fd, op, on, event);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *user)
{
    REAL(pthread_create)
    return VERDICT(PROCESS, "pthread_create") == FAILS ? EAGAIN : real(thread, attr, run, user);
}

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *attr, char *const argv[], char *const env[])
{
    REAL(posix_spawn)
    return VERDICT(PROCESS, "posix_spawn") == FAILS ? ENOMEM
                                                    : real(pid, path, actions, attr, argv, env);
}

/* -- Memory ----------------------------------------------------------------------------------- */

/* Found by name in a sanitizer's runtime, or glibc's own: dlsym itself allocates. */
#ifdef WEFT_FAULTS_SANITIZER
#define MEMORY(name) __interceptor_##name
#else
#define MEMORY(name) __libc_##name
#endif
void *MEMORY(malloc)(size_t);
void *MEMORY(calloc)(size_t, size_t);
void *MEMORY(realloc)(void *, size_t);
void *MEMORY(memalign)(size_t, size_t);

void *malloc(size_t size)
{
    if (VERDICT(ALLOC, "malloc") == FAILS)
        FAIL(ENOMEM, NULL);
    return MEMORY(malloc)(size);
}

void *calloc(size_t n, size_t size)
{
    if (VERDICT(ALLOC, "calloc") == FAILS)
        FAIL(ENOMEM, NULL);
    return MEMORY(calloc)(n, size);
}

void *realloc(void *at, size_t size)
{
    if (VERDICT(ALLOC, "realloc") == FAILS)
        FAIL(ENOMEM, NULL);
    return MEMORY(realloc)(at, size);
}

void *aligned_alloc(size_t align, size_t size)
{
    if (VERDICT(ALLOC, "aligned_alloc") == FAILS)
        FAIL(ENOMEM, NULL);
    return MEMORY(memalign)(align, size);
}

char *strdup(const char *text)
{
    size_t len = strlen(text) + 1;
    if (VERDICT(ALLOC, "strdup") == FAILS)
        FAIL(ENOMEM, NULL);
    char *copy = MEMORY(malloc)(len);
    return copy ? memcpy(copy, text, len) : NULL;
}
