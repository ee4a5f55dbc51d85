/* Arenas: memory with one lifetime. Compile-side functions never return NULL: when memory is
 * exhausted (or `limit_bytes` reached) they unwind with longjmp to the recovery point set by
 * weft_arena_guard at the API boundary, which returns NOMEM; without one they call the function of
 * weft_arena_on_exhausted, and abort the process if there is none. An arena is single-thread. */
#ifndef WEFT_BASE_ARENA_H
#define WEFT_BASE_ARENA_H

#include "base/err.h"

#include <setjmp.h>
#include <stddef.h>

typedef struct weft_arena weft_arena;

typedef struct weft_arena_mark {
    void *block;
    size_t used;
} weft_arena_mark;

/* Owned. `limit_bytes` 0: no limit. NULL when out of memory. */
weft_arena *weft_arena_create(size_t limit_bytes);
void weft_arena_destroy(weft_arena *arena);

/* Sets the recovery point: `env` was filled by setjmp; NULL removes it. Several arenas may share
 * one environment. Returns the previous recovery point, which the caller restores. */
jmp_buf *weft_arena_guard(weft_arena *arena, jmp_buf *env);

/* What a program does when an arena without recovery point has no memory: `end` says so and ends
 * the process. Set before the first arena is created. */
void weft_arena_on_exhausted(void (*end)(void));
/* Unwinds as an allocation does for which there is no memory. */
WEFT_NORETURN void weft_arena_exhaust(weft_arena *arena);

/* Zeroed, aligned to 16. Size 0 gives a valid pointer. */
void *weft_arena_alloc(weft_arena *arena, size_t size);
/* count * size with overflow checked. */
void *weft_arena_array(weft_arena *arena, size_t count, size_t size);
/* Grows an array of the arena: in place if it is the last allocation, else by copying. */
void *weft_arena_grow(weft_arena *arena, void *old, size_t old_size, size_t new_size);
/* The next allocations take these bytes in all from a block of their size; what lives long wastes
 * no part of a larger one. */
void weft_arena_reserve(weft_arena *arena, size_t bytes);
char *weft_arena_strdup(weft_arena *arena, const char *s);
char *weft_arena_strndup(weft_arena *arena, const char *s, size_t len);
char *weft_arena_printf(weft_arena *arena, const char *fmt, ...) WEFT_PRINTF(2, 3);

weft_arena_mark weft_arena_get_mark(const weft_arena *arena);
/* Frees all that was allocated since the mark. */
void weft_arena_reset(weft_arena *arena, weft_arena_mark mark);
size_t weft_arena_used(const weft_arena *arena);

/* A typed growing array in an arena: struct { T *at; uint32_t len, cap; } */
#define WEFT_VEC(T)        \
    struct {               \
        T *at;             \
        uint32_t len, cap; \
    }
#define WEFT_VEC_PUSH(arena, vec, item)                                                     \
    do {                                                                                    \
        if ((vec)->len == (vec)->cap) {                                                     \
            uint32_t cap_ = (vec)->cap ? (vec)->cap * 2 : 8;                                \
            (vec)->at = weft_arena_grow((arena), (vec)->at, (vec)->len * sizeof *(vec)->at, \
                                        cap_ * sizeof *(vec)->at);                          \
            (vec)->cap = cap_;                                                              \
        }                                                                                   \
        (vec)->at[(vec)->len++] = (item);                                                   \
    } while (0)

#endif
