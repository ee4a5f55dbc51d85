/* ParvaGPU's published data, read once for all tests of a program. Include cmocka before this
 * header. */
#ifndef WEFT_TESTS_SUPPORT_PARVAGPU_DATA_H
#define WEFT_TESTS_SUPPORT_PARVAGPU_DATA_H

#include "parvagpu_sets.h"

#include "base/arena.h"

static parvagpu_data data;
static weft_arena *data_arena;

/* Reads the data at the first call; skips the test if there is none. */
static inline void need_data(void)
{
    static bool found;
    if (!data_arena) {
        data_arena = weft_arena_create(0);
        found = parvagpu_load(data_arena, &data);
        if (!found)
            print_message("no parvagpu folder in WEFT_DATA\n");
    }
    if (!found)
        skip();
}

static inline void release_data(void)
{
    weft_arena_destroy(data_arena);
    data_arena = NULL;
}

#endif
