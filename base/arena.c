/* Arenas: a stack of blocks, each a bump allocator. The newest block is the only one that gives
 * memory; a reset frees the blocks above the mark but keeps one as a spare, so that a scratch arena
 * that is reset in a loop does not call malloc in it.
 *
 * With WEFT_ARENA_DEBUG every allocation is a block of its own, filled with 0xdd before it is
 * freed: a sanitizer then sees each use after reset and each overrun. */
#include "base/arena.h"

#include "base/num.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_ALIGN = 16, BLOCK_MIN_BYTES = 4096, BLOCK_MAX_BYTES = 1 << 20 };

typedef struct block {
    struct block *prev;
    size_t cap;   /* bytes behind this header */
    size_t used;  /* of them given out */
    size_t dirty; /* bytes at or above this offset are still zero */
    size_t below; /* bytes given out by older blocks */
    size_t pad;
} block;

_Static_assert(sizeof(block) % ARENA_ALIGN == 0, "data behind the header must stay aligned");

struct weft_arena {
    block *top;
    block *spare;
    jmp_buf *env;
    size_t limit_bytes; /* 0: none */
    size_t next_bytes;  /* size of the next block */
};

static unsigned char *block_data(block *b)
{
    return (unsigned char *)(b + 1);
}

weft_arena *weft_arena_create(size_t limit_bytes)
{
    weft_arena *arena = calloc(1, sizeof *arena);
    if (!arena)
        return NULL;
    arena->limit_bytes = limit_bytes;
    arena->next_bytes = BLOCK_MIN_BYTES;
    return arena;
}

static void free_block(block *b)
{
#ifdef WEFT_ARENA_DEBUG
    memset(block_data(b), 0xdd, b->cap);
#endif
    free(b);
}

void weft_arena_destroy(weft_arena *arena)
{
    if (!arena)
        return;
    while (arena->top) {
        block *prev = arena->top->prev;
        free_block(arena->top);
        arena->top = prev;
    }
    free(arena->spare);
    free(arena);
}

jmp_buf *weft_arena_guard(weft_arena *arena, jmp_buf *env)
{
    jmp_buf *before = arena->env;
    arena->env = env;
    return before;
}

static void (*on_exhausted)(void);

void weft_arena_on_exhausted(void (*end)(void))
{
    on_exhausted = end;
}

WEFT_NORETURN void weft_arena_exhaust(weft_arena *arena)
{
    if (arena->env)
        longjmp(*arena->env, 1);
    if (on_exhausted)
        on_exhausted();
    abort();
}

size_t weft_arena_used(const weft_arena *arena)
{
    return arena->top ? arena->top->below + arena->top->used : 0;
}

/* Bytes that an allocation of `size` takes; unwinds when that is over the limit. `have` of them
 * are given out already. */
static size_t check_room(weft_arena *arena, size_t size, size_t have)
{
    if (size > PTRDIFF_MAX - 2 * (size_t)BLOCK_MAX_BYTES)
        weft_arena_exhaust(arena);
    size_t room = size ? (size + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN : ARENA_ALIGN;
    size_t others = weft_arena_used(arena) - have;
    if (room > PTRDIFF_MAX - others)
        weft_arena_exhaust(arena);
    if (arena->limit_bytes && (others > arena->limit_bytes || room > arena->limit_bytes - others))
        weft_arena_exhaust(arena);
    return room;
}

static void push_block(weft_arena *arena, size_t room)
{
    block *b = arena->spare;
    if (b && b->cap >= room) {
        arena->spare = NULL;
    } else {
#ifdef WEFT_ARENA_DEBUG
        size_t cap = room;
#else
        size_t cap = room > arena->next_bytes ? room : arena->next_bytes;
        if (arena->next_bytes < BLOCK_MAX_BYTES)
            arena->next_bytes *= 2;
#endif
        b = calloc(1, sizeof *b + cap);
        if (!b)
            weft_arena_exhaust(arena);
        b->cap = cap;
    }
    b->used = 0;
    b->below = weft_arena_used(arena);
    b->prev = arena->top;
    arena->top = b;
}

void weft_arena_reserve(weft_arena *arena, size_t bytes)
{
#ifdef WEFT_ARENA_DEBUG
    (void)arena, (void)bytes; /* every allocation is a block of its own */
#else
    size_t next_bytes = arena->next_bytes;
    push_block(arena, check_room(arena, bytes, 0));
    arena->next_bytes = next_bytes;
#endif
}

void *weft_arena_alloc(weft_arena *arena, size_t size)
{
    size_t room = check_room(arena, size, 0);
#ifdef WEFT_ARENA_DEBUG
    push_block(arena, size ? size : 1);
    arena->top->used = room;
    return block_data(arena->top);
#else
    if (!arena->top || arena->top->cap - arena->top->used < room)
        push_block(arena, room);
    block *b = arena->top;
    unsigned char *at = block_data(b) + b->used;
    if (b->used < b->dirty)
        memset(at, 0, room < b->dirty - b->used ? room : b->dirty - b->used);
    b->used += room;
    if (b->used > b->dirty)
        b->dirty = b->used;
    return at;
#endif
}

void *weft_arena_array(weft_arena *arena, size_t count, size_t size)
{
    uint64_t bytes;
    if (!weft_size_mul(count, size, &bytes) || bytes > SIZE_MAX)
        weft_arena_exhaust(arena);
    return weft_arena_alloc(arena, (size_t)bytes);
}

void *weft_arena_grow(weft_arena *arena, void *old, size_t old_size, size_t new_size)
{
    if (old && new_size <= old_size)
        return old;
#ifndef WEFT_ARENA_DEBUG
    block *b = arena->top;
    size_t had = old_size ? (old_size + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN : ARENA_ALIGN;
    if (old && b && had <= b->used && (unsigned char *)old == block_data(b) + b->used - had) {
        size_t room = check_room(arena, new_size, had);
        size_t start = b->used - had;
        if (room <= b->cap - start) {
            memset(block_data(b) + start + old_size, 0, new_size - old_size);
            b->used = start + room;
            if (b->used > b->dirty)
                b->dirty = b->used;
            return old;
        }
    }
#endif
    void *at = weft_arena_alloc(arena, new_size);
    if (old && old_size)
        memcpy(at, old, old_size);
    return at;
}

char *weft_arena_strndup(weft_arena *arena, const char *s, size_t len)
{
    if (len == SIZE_MAX)
        weft_arena_exhaust(arena);
    char *at = weft_arena_alloc(arena, len + 1);
    if (len)
        memcpy(at, s, len);
    return at;
}

char *weft_arena_strdup(weft_arena *arena, const char *s)
{
    return weft_arena_strndup(arena, s, strlen(s));
}

char *weft_arena_printf(weft_arena *arena, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int len = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (len < 0) {
        va_end(again);
        weft_arena_exhaust(arena);
    }
    char *at = weft_arena_alloc(arena, (size_t)len + 1);
    vsnprintf(at, (size_t)len + 1, fmt, again);
    va_end(again);
    return at;
}

weft_arena_mark weft_arena_get_mark(const weft_arena *arena)
{
    weft_arena_mark mark = {arena->top, arena->top ? arena->top->used : 0};
    return mark;
}

void weft_arena_reset(weft_arena *arena, weft_arena_mark mark)
{
    while (arena->top && arena->top != mark.block) {
        block *b = arena->top;
        arena->top = b->prev;
#ifdef WEFT_ARENA_DEBUG
        free_block(b);
#else
        /* Huge blocks go back to the system; of the others the largest is worth keeping. */
        if (b->cap <= 4 * (size_t)BLOCK_MAX_BYTES &&
            (!arena->spare || arena->spare->cap < b->cap)) {
            free(arena->spare);
            arena->spare = b;
        } else {
            free_block(b);
        }
#endif
    }
    if (arena->top)
        arena->top->used = mark.used;
}
