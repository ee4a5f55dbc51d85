/* The text format of protobuf, without a schema: fields as a tree. */
#ifndef WEFT_SCHEDULER_INPUT_PBTXT_H
#define WEFT_SCHEDULER_INPUT_PBTXT_H

#include "base/arena.h"
#include "base/diag.h"

#include <stdbool.h>

/* A field; the message of a file is a field without a name. A list `name: [a, b]` is a field for
 * each of its values, as if the name were repeated. */
typedef struct weft_pbtxt {
    const char *name;
    bool is_message;
    const struct weft_pbtxt *field; /* of a message, in their order */
    size_t n_field;
    const char *text; /* of a scalar: a string without its quotes, else the number or word */
    bool is_quoted;
    uint32_t line;
} weft_pbtxt;

/* Reads a whole file. INPUT with the line: wrong syntax, nested too deep, too many fields, a string
 * that contains a zero byte. `len` bytes of `text` are followed by a NUL. The result lives in
 * `arena`. */
WEFT_MUST_USE weft_err weft_pbtxt__parse(const char *text, size_t len, const char *file,
                                         weft_arena *arena, weft_diag *diag, weft_pbtxt *out);

#endif
