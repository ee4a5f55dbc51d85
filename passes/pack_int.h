/* What the files of pack-sequences share (pack_sequences.c). */
#ifndef WEFT_PASSES_PACK_INT_H
#define WEFT_PASSES_PACK_INT_H

#include "passes/passes_int.h"

/* Classes of values. */
typedef enum weft_pack_class {
    WEFT_PACK_FREE,
    WEFT_PACK_TOKEN,
    WEFT_PACK_SEQUENCE,
    WEFT_PACK_EVEN,
    WEFT_PACK_PLACE,
    WEFT_PACK_PLACES,
    WEFT_PACK_KEYS,
    WEFT_PACK_PAIR
} weft_pack_class;

/* What the sizes of the model become; BY_PAIR: by row, but the last axis by position. */
typedef enum weft_pack_form {
    WEFT_PACK_BY_ROW,
    WEFT_PACK_BY_SEQUENCE,
    WEFT_PACK_TABLE,
    WEFT_PACK_BY_PAIR
} weft_pack_form;

typedef struct weft_packer {
    weft_passctx *cx;
    weft_module *m;
    weft_dimpool *dims;
    weft_graph *from, *to;
    weft_dim batch, seq, rows, longest;
    weft_val position, start;
    weft_val numbers;      /* of rows; this and the following: none, not yet */
    weft_val before, keys; /* first row of each row's sequence; rows of its keys, by position */
    weft_spreads *tokens, *batches;
    uint8_t *of;   /* class, by value of `from` */
    weft_val *val; /* in `to`, by value; of PLACE and PLACES the table */
    weft_val *row; /* of PLACE: rows gathered from the table; none: not yet */
    const char *reason;
} weft_packer;

/* Records why the graph cannot be packed, the first reason alone; false. */
bool weft_packer__refuse(weft_packer *p, weft_node n, const char *why);

/* -- Values of the model -- */

bool weft_packer__mentions(weft_packer *p, weft_dim d);
/* Axes of the value whose size is an expression of the length; `batch`: of the batch. */
uint32_t weft_packer__count_axes(weft_packer *p, weft_val v, bool batch);
/* The two last axes are the length: scores of queries and keys. */
bool weft_packer__is_square(weft_packer *p, weft_val v);
/* A mask of keys: [.., 1, ?s]. */
bool weft_packer__is_keys(weft_packer *p, weft_val v);
weft_pack_class weft_packer__class_of(const weft_packer *p, weft_val v);
/* Sizes of a value or of a shape in the packed graph; false: one is no product of the batch, the
 * length and numbers. */
bool weft_packer__put_dims(weft_packer *p, weft_pack_form f, const weft_dim *dim, uint32_t n,
                           weft_dim *out);
bool weft_packer__put_type(weft_packer *p, weft_pack_form f, weft_val v, weft_ttype *out);

/* -- Values of the packed graph -- */

/* The table, or the value itself. */
weft_val weft_packer__get(const weft_packer *p, weft_val v);
/* The value with a row for each token. */
weft_val weft_packer__by_row(weft_packer *p, weft_val v);
weft_val weft_packer__gather(weft_packer *p, weft_val data, weft_val index, uint32_t axis,
                             weft_loc loc);
weft_val weft_packer__reshape(weft_packer *p, weft_val x, const weft_ttype *type, weft_loc loc);
weft_val weft_packer__combine(weft_packer *p, weft_op_id op, weft_val a, weft_val b,
                              const weft_ttype *type);
/* 0, 1, .. of all rows; the first row of the sequence of each; first, first + step, .. of the
 * longest sequence. */
weft_val weft_packer__row_numbers(weft_packer *p);
weft_val weft_packer__first_rows(weft_packer *p);
weft_val weft_packer__position_numbers(weft_packer *p, int64_t first, int64_t step);

/* Copies the node with its operands in the form. `narrow`: an element-wise node of masks, which may
 * be of size 1 where those of the model are repeated. */
bool weft_packer__copy(weft_packer *p, weft_node n, weft_pack_form f, bool narrow);
/* Sets the class of the results; true. `even`: the node computes the same for each sequence. */
bool weft_packer__finish(weft_packer *p, weft_node n, weft_pack_class c);
bool weft_packer__finish_sequence(weft_packer *p, weft_node n, bool even);

#endif
