/* The importer: ONNX files become graphs of the IR. No other folder depends on ONNX types.
 *
 * Initialisers become spans of the mapped file (or of external data files beneath the model's
 * folder), not copies. All input is untrusted. Thread-compatible. */
#ifndef WEFT_FRONTEND_FRONTEND_H
#define WEFT_FRONTEND_FRONTEND_H

#include "ir/ir.h"

/* Bounds of a symbolic dimension, by ONNX dim_param name. */
typedef struct weft_import_dim {
    const char *name;
    int64_t lo, hi;
} weft_import_dim;

/* The value of an input, which becomes a constant and is no input of the graph. */
typedef struct weft_import_value {
    const char *name;
    const double *x;
    size_t n;
    bool is_list; /* else one number, for all elements */
} weft_import_value;

/* An input or output of the model, and what it is in the graph. */
typedef struct weft_import_port {
    const char *name; /* in the model */
    const char *as;   /* in the graph; NULL: `name` */
    /* Of an input: sizes for its symbolic axes, where they are not below 0. Without effect if the
     * input has another number of axes. */
    const int64_t *dim;
    size_t n_dim;
    /* The graph has the elements in this shape, where -1 at axis 0 is the model's axis 0. NULL: in
     * the model's. */
    const int64_t *outer_dim;
    size_t n_outer_dim;
    /* In the graph. Of an input: the value that it gets; none: an input of the graph, and then set.
     * Of an output: set. */
    weft_val val;
} weft_import_port;

/* Zero-initialised: the defaults. */
typedef struct weft_import_options {
    const char *graph_name; /* NULL: the file's base name without .onnx, made a valid name */
    const weft_import_dim *dim;
    size_t n_dim;
    const weft_import_value *value;
    size_t n_value;
    bool allow_hard_links; /* external data with more than one link */
    /* The model becomes one of several heads of a graph: its outputs are called HEAD/NAME. `into`:
     * the graph of the models before, whose inputs this one shares by name; NULL: the first. */
    const char *head;
    weft_graph *into;
    int64_t batch_max; /* bound of the symbols at axis 0 of inputs; 0: none */
    /* Inputs that are not listed are as in the model. If outputs are listed, only these are made;
     * with `is_step` they become values, and no outputs of the graph. */
    weft_import_port *input, *output;
    size_t n_input, n_output;
    bool is_step;
} weft_import_options;

/* Reads one ONNX file into a new graph of `m` (graph stage), or adds it to `options->into`, which
 * is left incomplete by a failure. UNSUP: operators, attributes or types are not supported; one run
 * reports all of them. */
WEFT_MUST_USE weft_err weft_import_onnx(weft_module *m, const char *path,
                                        const weft_import_options *options, weft_diag *diag,
                                        weft_graph **out);

/* The same from bytes that outlive the module (fuzzing, tests). External data is looked up beneath
 * `dir`; NULL refuses it. */
WEFT_MUST_USE weft_err weft_import_onnx_bytes(weft_module *m, const uint8_t *bytes, size_t len,
                                              const char *dir, const char *file,
                                              const weft_import_options *options, weft_diag *diag,
                                              weft_graph **out);

/* Reads a TensorProto file (.pb) as a tensor in `arena`. */
WEFT_MUST_USE weft_err weft_import_tensor(const char *path, weft_arena *arena, weft_diag *diag,
                                          weft_tensor *out);

/* ONNX operators that the importer knows: i-th name, its domain and the range of the domain's
 * versions; NULL behind the last. */
const char *weft_import_op_at(size_t i, const char **out_domain, int *out_first, int *out_last);

#endif
