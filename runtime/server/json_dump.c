/* jansson leaves out of a document what it has no memory for. Such a document is no answer and no
 * state. */
#include "runtime/server/json_dump.h"

#include <stdbool.h>
#include <stdlib.h>

static _Thread_local bool lacked_memory;

static void *alloc_json(size_t size)
{
    void *at = malloc(size);
    lacked_memory = lacked_memory || !at;
    return at;
}

void weft_json__watch_memory(void)
{
    json_set_alloc_funcs(alloc_json, free);
}

char *weft_json__dump(json_t *root, size_t flags)
{
    char *text = root ? json_dumps(root, flags) : NULL;
    json_decref(root);
    if (lacked_memory) {
        lacked_memory = false;
        free(text);
        return NULL;
    }
    return text;
}
