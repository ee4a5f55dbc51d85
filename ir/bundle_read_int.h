/* Private to ir/bundle_read*.c: the state of the reader. */
#ifndef WEFT_IR_BUNDLE_READ_INT_H
#define WEFT_IR_BUNDLE_READ_INT_H

#include "ir/bundle_int.h"

#include "bundle.pb-c.h"

typedef enum definition { UNDEFINED, BY_WEIGHT, BY_INPUT, BY_LAUNCH } definition;

typedef struct weft_bundle__reader {
    weft_bundle *b;
    const Weft__Bundle__Bundle *msg;
    weft_arena *arena, *scratch;
    const char *path;
    weft_diag *diag;
    /* By number of the message. */
    weft_op_id *op;
    weft_attr_key *key;
    weft_dtype *dtype;
    weft_layout *layout;
    /* Of the current program. */
    weft_bundle_program *p;
    const char *item;
    weft_dim *expr;
    size_t n_expr;
    uint8_t *defined; /* definition by value, from 1 */
    /* By kernel: classes of its parameters, "pif" (pointer, int, float), as the first command has
     * them.
     */
    const char **signature;
} weft_bundle__reader;

/* INPUT with a message at the current program. */
weft_err weft_bundle__refuse(weft_bundle__reader *r, const char *fmt, ...) WEFT_PRINTF(2, 3);
/* Decodes a dim of a message; false: no such expression. */
bool weft_bundle__get_dim(const weft_bundle__reader *r, int64_t code, weft_dim *out);

/* Reads architectures, images and kernels. `section` is NULL if the file has none. */
WEFT_MUST_USE weft_err weft_bundle__read_code(weft_bundle__reader *r, const weft_file *section);
/* Reads the commands of a launch whose operands and results have been read. */
WEFT_MUST_USE weft_err weft_bundle__read_commands(weft_bundle__reader *r,
                                                  const Weft__Bundle__Launch *m,
                                                  weft_bundle_launch *launch);

#endif
