/* CUDA C++ as far as the kernels of codegen/cuda use it, executed on the host: C++17, to be
 * included before a generated source file:
 *
 *     g++ -std=c++17 -O2 -w -fPIC -shared -include cuda_emu.h -o kernels.so generated.cpp
 *
 * Behind each kernel stands a line WEFT_EMU_ENTRY(NAME, BOUNDS). The object has for it, C linkage,
 *
 *     void weft_emu_NAME(unsigned gx, unsigned gy, unsigned gz, unsigned threads,
 *                        unsigned shared_bytes, void **params);
 *     const char *weft_emu_fault(void);    what went wrong since the last call, NULL: nothing
 *     extern unsigned weft_emu_order;      0: threads start by number, 1: the last one first
 *
 * params[i] is the address of argument i, as cuLaunchKernel takes it. One launch at a time.
 *
 * Threads of a block run one after the other on one stack until one of them has to wait for the
 * others (__syncthreads, a shuffle, a matrix instruction); it then stays behind on its stack and
 * another goes on with the rest. So kernels that never wait are plain loops. Reported, with kernel,
 * block and thread: barriers that not all threads reach, or that they reach at different places;
 * warp operations without all lanes; accesses to unmapped memory (callers that put their buffers
 * against a page without access learn of each access behind it; dynamic shared memory ends at such
 * a page); launches with the wrong number of threads. Missing barriers show where the results
 * for the two values of weft_emu_order differ. Dynamic shared memory starts as NaN; asynchronous
 * copies arrive when they are waited for, not before. */
#ifndef WEFT_TESTS_CUDA_EMU_H
#define WEFT_TESTS_CUDA_EMU_H

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <tuple>
#include <initializer_list>
#include <type_traits>
#include <utility>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#define WEFT_EMU 1

/* -- The language ------------------------------------------------------------------------------ */

#define __global__
#define __device__
#define __host__
#define __constant__    static
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__    __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
/* Blocks run one after the other: what is static is the block's. */
#define __shared__ static

struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) int2 {
    int x, y;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
static inline float2 make_float2(float x, float y)
{
    return {x, y};
}
static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}
static inline int2 make_int2(int x, int y)
{
    return {x, y};
}
static inline int4 make_int4(int x, int y, int z, int w)
{
    return {x, y, z, w};
}
static inline uint2 make_uint2(unsigned x, unsigned y)
{
    return {x, y};
}
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return {x, y, z, w};
}

static inline unsigned __float_as_uint(float x)
{
    unsigned y;
    memcpy(&y, &x, 4);
    return y;
}
static inline float __uint_as_float(unsigned x)
{
    float y;
    memcpy(&y, &x, 4);
    return y;
}
static inline int __float_as_int(float x)
{
    return (int)__float_as_uint(x);
}
static inline float __int_as_float(int x)
{
    return __uint_as_float((unsigned)x);
}
/* Names that the C library has for itself. */
#define __expf(x) expf(x)
#define __logf(x) logf(x)
static inline float __fdividef(float x, float y)
{
    return x / y;
}
static inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}
static inline float __frcp_rn(float x)
{
    return 1.0f / x;
}
static inline float __fmaf_rn(float x, float y, float z)
{
    return fmaf(x, y, z);
}
template <class T> static inline T __ldg(const T *p)
{
    return *p;
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((unsigned long long)a * b >> 32);
}
template <class T> static inline T min(T a, T b)
{
    return b < a ? b : a;
}
template <class T> static inline T max(T a, T b)
{
    return a < b ? b : a;
}

namespace weft_emu
{

struct dim3 {
    unsigned x, y, z;
};

enum { STACK_BYTES = 128 << 10, SHARED_BYTES = 256 << 10, COPIES_MAX = 256, GROUPS_MAX = 16 };

/* -- Stacks ------------------------------------------------------------------------------------ */

struct stack {
    unsigned char *bytes;
#if defined(__x86_64__)
    void *top;
#else
    ucontext_t top;
#endif
};

#if defined(__x86_64__)
extern "C" void weft_emu_switch(void **from, void *to) __attribute__((visibility("hidden")));
asm(R"(
    .text
    .weak weft_emu_switch
    .hidden weft_emu_switch
    .type weft_emu_switch, @function
weft_emu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size weft_emu_switch, .-weft_emu_switch
)");

static void switch_stack(stack *from, stack *to)
{
    weft_emu_switch(&from->top, to->top);
}

static void start_stack(stack *s, void (*run)())
{
    void **top = (void **)(s->bytes + STACK_BYTES) - 2;
    top[0] = (void *)run; /* returned to with a stack as behind a call */
    top[1] = nullptr;
    s->top = top - 6;
    memset(s->top, 0, 6 * sizeof(void *));
}
#else
static void switch_stack(stack *from, stack *to)
{
    swapcontext(&from->top, &to->top);
}

static void start_stack(stack *s, void (*run)())
{
    getcontext(&s->top);
    s->top.uc_stack.ss_sp = s->bytes;
    s->top.uc_stack.ss_size = STACK_BYTES;
    s->top.uc_link = nullptr;
    makecontext(&s->top, run, 0);
}
#endif

/* `bytes` with a page without access on either side; at the end of the pages. */
static unsigned char *guarded(size_t bytes)
{
    const size_t page = 4096, room = (bytes + page - 1) / page * page;
    unsigned char *p = (unsigned char *)mmap(nullptr, room + 2 * page, PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        abort();
    mprotect(p, page, PROT_NONE);
    mprotect(p + page + room, page, PROT_NONE);
    return p + page + room - bytes;
}

/* Of whole pages. */
static void forget(unsigned char *p, size_t bytes)
{
    const size_t page = 4096;
    if (p)
        munmap(p - page, bytes + 2 * page);
}

/* -- Threads ----------------------------------------------------------------------------------- */

struct copy {
    void *to;
    const void *from;
    unsigned short bytes, given;
};

struct thread {
    stack *on;
    unsigned number;
    unsigned n_copy, n_group;
    unsigned group_end[GROUPS_MAX]; /* in copy[] */
    copy at[COPIES_MAX];
};

/* An operation of a warp: lanes leave their operands, the last one to come may compute, all read.
 * Two slots in turns: a lane that is an operation ahead does not write what others still read. */
struct warp {
    unsigned arrived, turn;
    int site;
    alignas(16) unsigned char in[2][32][64];
    alignas(16) unsigned char out[2][32][64];
};

enum { THREADS_MAX = 1024, WARPS_MAX = THREADS_MAX / 32 };

struct machine {
    /* Of the launch. */
    const char *kernel;
    void (*call)(void **);
    void **params;
    dim3 grid, block, at; /* at: the block that runs */
    unsigned threads, shared_bytes;
    unsigned char *shared_end, *shared;
    /* Of the block. */
    thread *cur;
    unsigned started, finished;
    unsigned waiting; /* at the barrier */
    int barrier_site;
    unsigned ready_from, n_ready;
    unsigned ready[THREADS_MAX];
    stack *stacks;
    unsigned n_stack, n_free;
    stack *free_stack[THREADS_MAX + 1];
    stack main;
    thread *threads_at;
    warp *warps;
    /* Faults. */
    bool running;
    sigjmp_buf escape;
    struct sigaction old[2];
    char fault[512];
};

static machine M;

} // namespace weft_emu

extern "C" {
unsigned weft_emu_order = 0;

const char *weft_emu_fault(void)
{
    static char text[sizeof weft_emu::M.fault];
    memcpy(text, weft_emu::M.fault, sizeof text);
    weft_emu::M.fault[0] = '\0';
    return text[0] ? text : nullptr;
}
}

namespace weft_emu
{

/* Keeps the first fault and gives the launch up. */
[[noreturn]] static void fail(const char *format, ...)
{
    if (!M.fault[0]) {
        int n = snprintf(M.fault, sizeof M.fault, "%s: block %u,%u,%u thread %u: ", M.kernel,
                         M.at.x, M.at.y, M.at.z, M.cur ? M.cur->number : 0);
        va_list args;
        va_start(args, format);
        vsnprintf(M.fault + n, sizeof M.fault - (size_t)n, format, args);
        va_end(args);
    }
    siglongjmp(M.escape, 1);
}

static void on_signal(int number, siginfo_t *info, void *)
{
    if (!M.running) {
        sigaction(number, &M.old[number == SIGBUS], nullptr);
        return;
    }
    fail("%s at address %p", number == SIGBUS ? "bus error" : "access outside memory",
         info->si_addr);
}

/* Runs threads that have not started; comes back when there are none. */
static void run_threads()
{
    while (M.started < M.threads) {
        unsigned i = M.started++;
        thread *t = &M.threads_at[weft_emu_order ? M.threads - 1 - i : i];
        stack *on = M.cur->on;
        M.cur = t;
        t->on = on;
        t->n_copy = t->n_group = 0;
        M.call(M.params);
        M.finished++;
        if (M.cur->n_group || M.cur->n_copy)
            fail("ends with asynchronous copies that it did not wait for");
    }
}

static void resume_next();

static void stack_main()
{
    for (;;) {
        run_threads();
        M.free_stack[M.n_free++] = M.cur->on;
        resume_next();
    }
}

/* Leaves the current stack for a thread that can go on, a new one, or the end of the block. */
static void resume_next()
{
    stack *from = M.cur->on;
    if (M.n_ready) {
        thread *t = &M.threads_at[M.ready[M.ready_from]];
        M.ready_from = (M.ready_from + 1) % THREADS_MAX;
        M.n_ready--;
        M.cur = t;
        switch_stack(from, t->on);
    } else if (M.started < M.threads) {
        stack *to = M.n_free ? M.free_stack[--M.n_free] : &M.stacks[M.n_stack++];
        /* A free stack sleeps in stack_main, where it would go on with this thread's `cur`. */
        if (!to->bytes)
            to->bytes = guarded(STACK_BYTES);
        start_stack(to, stack_main);
        static thread starter;
        starter.on = to;
        starter.number = M.started;
        M.cur = &starter;
        switch_stack(from, to);
    } else {
        switch_stack(from, &M.main);
    }
}

static void make_ready(unsigned number)
{
    M.ready[(M.ready_from + M.n_ready++) % THREADS_MAX] = number;
}

static void wait_here()
{
    thread *me = M.cur;
    resume_next();
    M.cur = me;
}

static void release_block()
{
    M.waiting = 0;
    for (unsigned i = 0; i < M.threads; i++) {
        unsigned k = weft_emu_order ? M.threads - 1 - i : i;
        if (&M.threads_at[k] != M.cur)
            make_ready(k);
    }
}

static void barrier(int site)
{
    if (M.waiting == 0)
        M.barrier_site = site;
    else if (M.barrier_site != site)
        fail("waits at the barrier of line %d, others at that of line %d", site, M.barrier_site);
    if (++M.waiting == M.threads)
        release_block();
    else
        wait_here();
}

/* All lanes leave `n` bytes; the last runs `compute` on them; each gets `n_out` bytes back. */
template <class F>
static void collective(int site, const void *in, unsigned n, void *out, unsigned n_out, F compute)
{
    thread *me = M.cur;
    unsigned w = me->number / 32, lane = me->number % 32;
    unsigned lanes = M.threads - w * 32 < 32 ? M.threads - w * 32 : 32;
    warp *p = &M.warps[w];
    unsigned turn = p->turn & 1;
    if (p->arrived == 0)
        p->site = site;
    else if (p->site != site)
        fail("warp operation at %d, other lanes at %d", site, p->site);
    memcpy(p->in[turn][lane], in, n);
    if (++p->arrived < lanes) {
        wait_here();
    } else {
        compute(p->in[turn], p->out[turn], lanes);
        p->arrived = 0;
        p->turn++;
        for (unsigned i = 0; i < lanes; i++)
            if (i != lane)
                make_ready(w * 32 + i);
    }
    memcpy(out, p->out[turn][lane], n_out);
}

typedef unsigned char lanes_data[32][64];

static void check_mask(unsigned mask)
{
    if (mask != 0xffffffffu)
        fail("warp operation with lane mask %08x", mask);
    if (M.threads % 32)
        fail("warp operation in a block of %u threads", M.threads);
}

template <class T> static T shuffle(unsigned mask, T value, int kind, int arg, int width)
{
    struct item {
        T value;
        int arg;
    } mine = {value, arg};
    check_mask(mask);
    T got;
    collective(-1 - kind, &mine, sizeof mine, &got, sizeof got,
               [&](const lanes_data &in, lanes_data &out, unsigned lanes) {
                   for (unsigned i = 0; i < lanes; i++) {
                       item it, from;
                       memcpy(&it, in[i], sizeof it);
                       int base = (int)i / width * width, at = (int)i;
                       if (kind == 0)
                           at = base + (it.arg & (width - 1));
                       else if (kind == 1)
                           at = (int)i ^ it.arg;
                       else if (kind == 2)
                           at = (int)i + it.arg;
                       else
                           at = (int)i - it.arg;
                       if (at < base || at >= base + width)
                           at = (int)i;
                       memcpy(&from, in[at], sizeof from);
                       memcpy(out[i], &from.value, sizeof(T));
                   }
               });
    return got;
}

static unsigned vote(unsigned mask, bool mine)
{
    check_mask(mask);
    unsigned all = 0;
    collective(-10, &mine, 1, &all, sizeof all,
               [](const lanes_data &in, lanes_data &out, unsigned lanes) {
                   unsigned bits = 0;
                   for (unsigned i = 0; i < lanes; i++)
                       bits |= (unsigned)(in[i][0] != 0) << i;
                   for (unsigned i = 0; i < lanes; i++)
                       memcpy(out[i], &bits, sizeof bits);
               });
    return all;
}

/* -- Matrix instructions ---------------------------------------------------------------------- */

/* d += a b for the 16 x 8 result of a warp, fragments as mma.m16n8k16 has them; Half::of(bits) is
 * the value of an element. Products are summed in f32, in order of k. */
template <class Half>
static void mma16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    struct item {
        float d[4];
        unsigned a[4], b[2];
    } mine;
    if (M.threads % 32)
        fail("matrix instruction in a block of %u threads", M.threads);
    memcpy(mine.d, d, sizeof mine.d);
    memcpy(mine.a, a, sizeof mine.a);
    memcpy(mine.b, b, sizeof mine.b);
    collective(-20, &mine, sizeof mine, d, sizeof mine.d,
               [](const lanes_data &in, lanes_data &out, unsigned) {
                   float am[16][16], bm[16][8];
                   for (int l = 0; l < 32; l++) {
                       item it;
                       memcpy(&it, in[l], sizeof it);
                       int g = l / 4, t = l % 4;
                       for (int i = 0; i < 2; i++) {
                           int shift = 16 * i;
                           for (int r = 0; r < 4; r++)
                               am[g + r % 2 * 8][2 * t + r / 2 * 8 + i] =
                                   Half::of((unsigned short)(it.a[r] >> shift));
                           for (int r = 0; r < 2; r++)
                               bm[2 * t + r * 8 + i][g] =
                                   Half::of((unsigned short)(it.b[r] >> shift));
                       }
                   }
                   for (int l = 0; l < 32; l++) {
                       item it;
                       memcpy(&it, in[l], sizeof it);
                       int g = l / 4, t = l % 4;
                       for (int i = 0; i < 4; i++)
                           for (int k = 0; k < 16; k++)
                               it.d[i] += am[g + 8 * (i / 2)][k] * bm[k][2 * t + i % 2];
                       memcpy(out[l], it.d, sizeof it.d);
                   }
               });
}

/* The same of 32-bit elements, as mma.m16n8k8 has them: bits that are not TF32's must be zero. */
static void mma8(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    struct item {
        float d[4];
        unsigned a[4], b[2];
    } mine;
    if (M.threads % 32)
        fail("matrix instruction in a block of %u threads", M.threads);
    memcpy(mine.d, d, sizeof mine.d);
    memcpy(mine.a, a, sizeof mine.a);
    memcpy(mine.b, b, sizeof mine.b);
    for (unsigned bits : {a[0], a[1], a[2], a[3], b[0], b[1]})
        if ((bits & 0x7f800000u) != 0x7f800000u && (bits & 0x1fffu))
            fail("operand of a TF32 instruction is not rounded");
    collective(-21, &mine, sizeof mine, d, sizeof mine.d,
               [](const lanes_data &in, lanes_data &out, unsigned) {
                   float am[16][8], bm[8][8];
                   for (int l = 0; l < 32; l++) {
                       item it;
                       memcpy(&it, in[l], sizeof it);
                       int g = l / 4, t = l % 4;
                       for (int r = 0; r < 4; r++)
                           am[g + r % 2 * 8][t + r / 2 * 4] = __uint_as_float(it.a[r]);
                       for (int r = 0; r < 2; r++)
                           bm[t + r * 4][g] = __uint_as_float(it.b[r]);
                   }
                   for (int l = 0; l < 32; l++) {
                       item it;
                       memcpy(&it, in[l], sizeof it);
                       int g = l / 4, t = l % 4;
                       for (int i = 0; i < 4; i++)
                           for (int k = 0; k < 8; k++)
                               it.d[i] += am[g + 8 * (i / 2)][k] * bm[k][2 * t + i % 2];
                       memcpy(out[l], it.d, sizeof it.d);
                   }
               });
}

static void ldmatrix4(unsigned (&r)[4], const void *row, bool trans)
{
    if (M.threads % 32)
        fail("matrix load in a block of %u threads", M.threads);
    if ((uintptr_t)row & 15)
        fail("matrix row at an address that is not a multiple of 16");
    collective(-30 - trans, &row, sizeof row, r, sizeof r,
               [trans](const lanes_data &in, lanes_data &out, unsigned) {
                   for (int m = 0; m < 4; m++) {
                       uint16_t at[8][8];
                       for (int i = 0; i < 8; i++) {
                           const void *from;
                           memcpy(&from, in[8 * m + i], sizeof from);
                           memcpy(at[i], from, 16);
                       }
                       for (int l = 0; l < 32; l++) {
                           int g = l / 4, t = l % 4;
                           unsigned lo = trans ? at[2 * t][g] : at[g][2 * t];
                           unsigned hi = trans ? at[2 * t + 1][g] : at[g][2 * t + 1];
                           unsigned both = lo | hi << 16;
                           memcpy(out[l] + 4 * m, &both, 4);
                       }
                   }
               });
}

/* -- Asynchronous copies ----------------------------------------------------------------------- */

/* `given` bytes, the rest of `bytes` becomes zero. */
static void cp_async(void *to, const void *from, unsigned bytes, unsigned given)
{
    thread *t = M.cur;
    if (((uintptr_t)to | (given ? (uintptr_t)from : 0)) & (bytes - 1))
        fail("asynchronous copy of %u bytes at unaligned addresses", bytes);
    if (given > bytes)
        fail("asynchronous copy of %u bytes, %u of them given", bytes, given);
    if (t->n_copy == COPIES_MAX)
        fail("more than %d asynchronous copies at once", COPIES_MAX);
    t->at[t->n_copy++] = {to, from, (unsigned short)bytes, (unsigned short)given};
}

static void cp_commit()
{
    thread *t = M.cur;
    if (t->n_group == GROUPS_MAX)
        fail("more than %d groups of asynchronous copies at once", GROUPS_MAX);
    t->group_end[t->n_group++] = t->n_copy;
}

static void cp_wait(unsigned pending)
{
    thread *t = M.cur;
    if (t->n_group <= pending)
        return;
    unsigned done = t->n_group - pending, n = t->group_end[done - 1];
    for (unsigned i = 0; i < n; i++) {
        const copy *c = &t->at[i];
        memset(c->to, 0, c->bytes);
        if (c->given)
            memcpy(c->to, c->from, c->given);
    }
    t->n_copy -= n;
    t->n_group -= done;
    memmove(t->at, t->at + n, t->n_copy * sizeof *t->at);
    for (unsigned i = 0; i < t->n_group; i++)
        t->group_end[i] = t->group_end[i + done] - n;
}

/* -- Launches ---------------------------------------------------------------------------------- */

static inline dim3 thread_idx()
{
    return {M.cur->number, 0, 0};
}

static inline void *dynamic_shared()
{
    return M.shared;
}

static void start_machine()
{
    if (M.threads_at)
        return;
    M.threads_at = (thread *)calloc(THREADS_MAX, sizeof(thread));
    M.warps = (warp *)aligned_alloc(16, WARPS_MAX * sizeof(warp));
    M.stacks = (stack *)calloc(THREADS_MAX + 1, sizeof(stack));
    M.shared_end = guarded(SHARED_BYTES) + SHARED_BYTES;
    if (!M.threads_at || !M.warps || !M.stacks)
        abort();
    for (unsigned i = 0; i < THREADS_MAX; i++)
        M.threads_at[i].number = i;
}

/* When the object is unloaded. */
struct machine_owner {
    ~machine_owner()
    {
        for (unsigned i = 0; M.stacks && i <= THREADS_MAX; i++)
            forget(M.stacks[i].bytes, STACK_BYTES);
        forget(M.shared_end ? M.shared_end - SHARED_BYTES : nullptr, SHARED_BYTES);
        free(M.threads_at);
        free(M.warps);
        free(M.stacks);
    }
};
static machine_owner owner;

static void run_block()
{
    memset(M.shared, 0xff, M.shared_bytes);
    M.started = M.finished = M.waiting = M.n_ready = M.ready_from = M.n_stack = M.n_free = 0;
    for (unsigned i = 0; i < M.threads / 32 + 1 && i < WARPS_MAX; i++)
        M.warps[i].arrived = M.warps[i].turn = 0;
    static thread starter;
    starter.on = &M.main;
    M.cur = &starter;
    resume_next();
    if (M.finished == M.threads)
        return;
    M.cur = nullptr;
    if (M.waiting)
        fail("%u threads wait at the barrier of line %d, %u have ended, others wait elsewhere",
             M.waiting, M.barrier_site, M.finished);
    fail("%u threads wait for lanes of their warps, %u have ended", M.threads - M.finished,
         M.finished);
}

static void run(const char *kernel, unsigned declared, void (*call)(void **), unsigned gx,
                unsigned gy, unsigned gz, unsigned threads, unsigned shared_bytes, void **params)
{
    start_machine();
    M.kernel = kernel;
    M.cur = nullptr;
    M.at = {0, 0, 0};
    M.call = call;
    M.params = params;
    M.grid = {gx, gy, gz};
    M.block = {threads, 1, 1};
    M.threads = threads;
    M.shared_bytes = (shared_bytes + 15) & ~15u;
    M.shared = M.shared_end - (M.shared_bytes < SHARED_BYTES ? M.shared_bytes : SHARED_BYTES);
    struct sigaction sa = {};
    sa.sa_sigaction = on_signal;
    sa.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &sa, &M.old[0]);
    sigaction(SIGBUS, &sa, &M.old[1]);
    M.running = true;
    if (sigsetjmp(M.escape, 1) == 0) {
        if (threads == 0 || threads > declared || gx == 0 || gy == 0 || gz == 0 ||
            M.shared_bytes > SHARED_BYTES)
            fail("cannot be launched: grid %u,%u,%u, %u threads of at most %u, %u shared bytes", gx,
                 gy, gz, threads, declared, shared_bytes);
        for (M.at.z = 0; M.at.z < gz; M.at.z++)
            for (M.at.y = 0; M.at.y < gy; M.at.y++)
                for (M.at.x = 0; M.at.x < gx; M.at.x++)
                    run_block();
    }
    M.running = false;
    sigaction(SIGSEGV, &M.old[0], nullptr);
    sigaction(SIGBUS, &M.old[1], nullptr);
}

/* A kernel's arguments from their addresses. */
template <class... A, size_t... I>
static inline void call_with(void (*fn)(A...), void **params, std::index_sequence<I...>)
{
    fn(*(typename std::remove_reference<A>::type *)params[I]...);
}
template <class... A> static inline void call_kernel(void (*fn)(A...), void **params)
{
    call_with(fn, params, std::index_sequence_for<A...>{});
}

static constexpr unsigned bound(unsigned threads, unsigned = 1)
{
    return threads;
}

} // namespace weft_emu

/* Behind (or, after a declaration, before) a kernel: its entry. `bounds`: (threads) or (threads,
 * blocks), as in __launch_bounds__. */
#define WEFT_EMU_ENTRY(name, bounds)                                                             \
    extern "C" __attribute__((visibility("default"))) void weft_emu_##name(                      \
        unsigned gx, unsigned gy, unsigned gz, unsigned n, unsigned shared_bytes, void **params) \
    {                                                                                            \
        weft_emu::run(                                                                           \
            #name, weft_emu::bound bounds, [](void **p) { weft_emu::call_kernel(name, p); }, gx, \
            gy, gz, n, shared_bytes, params);                                                    \
    }

/* Dynamic shared memory: see prelude.cuh. */
#define DYNAMIC_SHARED(type, name) type *name = (type *)weft_emu::dynamic_shared()

#define threadIdx       (weft_emu::thread_idx())
#define blockIdx        (weft_emu::M.at)
#define blockDim        (weft_emu::M.block)
#define gridDim         (weft_emu::M.grid)
#define __syncthreads() weft_emu::barrier(__LINE__)
#define __syncwarp(...) (void)weft_emu::vote(0xffffffffu, true)
#define __threadfence() ((void)0)

template <class T> static inline T __shfl_sync(unsigned mask, T x, int lane, int width = 32)
{
    return weft_emu::shuffle(mask, x, 0, lane, width);
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T x, int bits, int width = 32)
{
    return weft_emu::shuffle(mask, x, 1, bits, width);
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T x, int by, int width = 32)
{
    return weft_emu::shuffle(mask, x, 2, by, width);
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T x, int by, int width = 32)
{
    return weft_emu::shuffle(mask, x, 3, by, width);
}
static inline unsigned __ballot_sync(unsigned mask, bool x)
{
    return weft_emu::vote(mask, x);
}
static inline bool __any_sync(unsigned mask, bool x)
{
    return weft_emu::vote(mask, x) != 0;
}
static inline bool __all_sync(unsigned mask, bool x)
{
    return weft_emu::vote(mask, !x) == 0;
}
template <class T> static inline T atomicAdd(T *p, T x)
{
    T old = *p;
    *p = old + x;
    return old;
}
template <class T> static inline T atomicMax(T *p, T x)
{
    T old = *p;
    *p = old < x ? x : old;
    return old;
}
template <class T> static inline T atomicMin(T *p, T x)
{
    T old = *p;
    *p = x < old ? x : old;
    return old;
}
static inline unsigned atomicCAS(unsigned *p, unsigned expected, unsigned x)
{
    unsigned old = *p;
    if (old == expected)
        *p = x;
    return old;
}

#endif
