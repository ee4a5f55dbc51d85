/* Test double of libcuda.so.1: the memory that work reads and writes, to find unordered works that
 * access the same bytes. Kernels compiled to be watched report each access; of other kernels only
 * the first byte of each result is known. */
#include "libcuda_double.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* -- Spans ------------------------------------------------------------------------------------ */

void weft_spans__add(weft_spans *s, uintptr_t at, size_t bytes)
{
    if (bytes == 0)
        return;
    if (s->n && s->at[s->n - 1].at + s->at[s->n - 1].bytes == at) {
        s->at[s->n - 1].bytes += bytes;
        return;
    }
    if (s->n == s->room) {
        size_t room = s->room ? 2 * s->room : 4;
        weft_double_span *p = realloc(s->at, room * sizeof *p);
        if (!p)
            return; /* fewer conflicts are found */
        s->at = p;
        s->room = room;
    }
    s->at[s->n++] = (weft_double_span){at, bytes};
}

static int compare_spans(const void *a, const void *b)
{
    const weft_double_span *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Sorts the spans and merges those that meet. */
void weft_spans__sort(weft_spans *s)
{
    if (s->n == 0)
        return;
    qsort(s->at, s->n, sizeof *s->at, compare_spans);
    size_t n = 1;
    for (size_t i = 1; i < s->n; i++) {
        weft_double_span *last = &s->at[n - 1], x = s->at[i];
        uintptr_t end = last->at + last->bytes;
        if (x.at > end)
            s->at[n++] = x;
        else if (x.at + x.bytes > end)
            last->bytes = x.at + x.bytes - last->at;
    }
    s->n = n;
}

uintptr_t weft_spans__meet(const weft_spans *a, const weft_spans *b)
{
    for (size_t i = 0, k = 0; i < a->n && k < b->n;) {
        const weft_double_span *x = &a->at[i], *y = &b->at[k];
        if (x->at + x->bytes <= y->at)
            i++;
        else if (y->at + y->bytes <= x->at)
            k++;
        else
            return x->at > y->at ? x->at : y->at;
    }
    return 0;
}

/* -- Watching --------------------------------------------------------------------------------- */

/* One bit for each 4 bytes of device memory: read, written. */
static struct {
    uint64_t *bits[2];
    uintptr_t from, to; /* range of device memory */
    uintptr_t lo, hi;   /* range accessed */
    const weft_work *work;
    unsigned told;
    uintptr_t good_from, good_to; /* the live allocation last accessed */
} T;

enum { BYTES_PER_WORD = 256 };

void weft_watch__reset(void)
{
    for (int i = 0; i < 2; i++)
        if (T.bits[i])
            munmap(T.bits[i], WEFT_MEMORY_ROOM / BYTES_PER_WORD * 8);
    memset(&T, 0, sizeof T);
}

void weft_watch__start(const weft_work *w)
{
    for (int i = 0; i < 2 && !T.bits[i]; i++) {
        void *p = mmap(NULL, WEFT_MEMORY_ROOM / BYTES_PER_WORD * 8, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED)
            return;
        T.bits[i] = p;
    }
    weft_memory__bounds(&T.from, &T.to);
    T.work = w;
    T.lo = UINTPTR_MAX;
    T.hi = 0;
    T.told = 0;
    T.good_from = T.good_to = 0;
}

/* An access outside live allocations; reported a few times, not for each thread. */
static void check_touch(uintptr_t p, size_t bytes)
{
    if (weft_memory__block(p, &T.good_from, &T.good_to) && p + bytes <= T.good_to)
        return;
    if (T.told < 3 && !weft_memory__check(T.work->what, p, bytes))
        T.told++;
}

void weft_watch__touch(const void *at, size_t bytes, int write)
{
    uintptr_t p = (uintptr_t)at;
    if (p - T.from >= T.to - T.from || !T.work || bytes == 0)
        return;
    if (p < T.good_from || p + bytes > T.good_to)
        check_touch(p, bytes);
    if (p < T.lo)
        T.lo = p;
    if (p + bytes > T.hi)
        T.hi = p + bytes;
    for (size_t i = (p - T.from) / 4, end = (p + bytes - 1 - T.from) / 4; i <= end; i++)
        T.bits[write != 0][i / 64] |= 1ull << (i % 64);
}

static void take_bits(uint64_t *bits, weft_spans *out)
{
    size_t from = (T.lo - T.from) / BYTES_PER_WORD, to = (T.hi - 1 - T.from) / BYTES_PER_WORD;
    for (size_t w = from; w <= to; w++) {
        for (unsigned i = 0; bits[w] && i < 64; i++)
            if (bits[w] >> i & 1)
                weft_spans__add(out, T.from + (w * 64 + i) * 4, 4);
        bits[w] = 0;
    }
}

void weft_watch__end(weft_work *w)
{
    if (!T.work)
        return;
    T.work = NULL;
    w->read.n = w->write.n = 0;
    if (T.lo >= T.hi)
        return;
    take_bits(T.bits[0], &w->read);
    take_bits(T.bits[1], &w->write);
}
