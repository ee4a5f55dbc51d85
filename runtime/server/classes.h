/* Outputs as classes, the protocol's classification extension: the elements with the largest
 * values of each row as strings VALUE:INDEX:LABEL, without the last part where there is no label.
 * Rows are those of the batch; a model that cannot be batched has one. */
#ifndef WEFT_RUNTIME_SERVER_CLASSES_H
#define WEFT_RUNTIME_SERVER_CLASSES_H

#include "runtime/server/serve_int.h"

enum {
    WEFT_CLASSES_MAX = 1024,
    WEFT_CLASSES_STRINGS_MAX = 1 << 20, /* of an output */
    WEFT_CLASSES_BYTES_MAX = 16 << 20   /* of text, over all outputs of a request */
};

/* Whether so many classes can be asked of the output; else the message says why not. */
weft_answer weft_classes__check(const weft_bundle_program *program, uint32_t output,
                                uint64_t n_class, char *message);

/* The strings of an answer. */
typedef struct weft_classes {
    int64_t dim[2]; /* rows, unless the model cannot be batched; then classes */
    int32_t rank;
    char *text; /* strings that end with a NUL each, in order; owned */
    size_t len; /* bytes of `text` */
    size_t n;   /* strings */
} weft_classes;

/* `room`: bytes that their text may take, less what it takes afterwards; WEFT_CLASSES_BYTES_MAX for
 * the first output of a request. Else the message says why there are none. */
weft_answer weft_classes__list(const weft_bundle_program *program, uint32_t output,
                               const weft_tensor *t, uint32_t n_class, size_t *room,
                               weft_classes *out, char *message);
/* The work of listing them, in bytes of JSON that take as long. */
size_t weft_classes__work(const weft_bundle_program *program, const weft_tensor *t,
                          uint32_t n_class);
/* Appends them as the binary form of BYTES: the length in 4 bytes, then the bytes, of each. */
void weft_classes__pack(const weft_classes *classes, weft_buf *out);
/* Bytes of that. */
size_t weft_classes__bytes(const weft_classes *classes);
void weft_classes__finish(weft_classes *classes); /* zeroed is allowed */

#endif
