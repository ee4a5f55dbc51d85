/* Private to frontend/: the phases of an ONNX import.
 *
 *   bytes -> weft_onnx__slim     the message without tensor payloads, checked (onnx_wire.c)
 *         -> protobuf-c          unpacked structs, small
 *         -> weft_onnx__graph    graph, inputs, initialisers, outputs (onnx_graph.c)
 *         -> weft_onnx__body     nodes of a graph or function, sorted, one by one (onnx_node.c)
 *         -> rows of onnx_ops.def and their hooks (onnx_hook*.c)
 *
 * All functions unwind to the arenas' recovery point when memory is exhausted. */
#ifndef WEFT_FRONTEND_ONNX_INT_H
#define WEFT_FRONTEND_ONNX_INT_H

#include "base/map.h"
#include "frontend/frontend.h"

#include <onnx/onnx.pb-c.h>

/* Limits: far above real models, low enough to bound time and memory. */
enum {
    WEFT_ONNX_NAME_MAX = 1 << 16,    /* bytes of a string */
    WEFT_ONNX_NODES_MAX = 1000000,   /* after functions are inlined */
    WEFT_ONNX_PARTS_MAX = 16000000,  /* sub-messages of a file */
    WEFT_ONNX_SYMBOLS_MAX = 1024,    /* distinct symbolic dimensions */
    WEFT_ONNX_CALLS_MAX = 64,        /* depth of functions and graphs in each other */
    WEFT_ONNX_GRAPHS_MAX = 16,       /* depth of graphs in attributes */
    WEFT_ONNX_BODIES_MAX = 4096,     /* branches of If, bodies of Loop and Scan */
    WEFT_ONNX_COPY_MAX = 64 << 10,   /* bytes of a misaligned weight that is copied */
    WEFT_ONNX_SPARSE_MAX = 256 << 20 /* bytes of sparse tensors once they are dense */
};

enum {
    WEFT_ONNX_IR_FIRST = 3,
    WEFT_ONNX_IR_LAST = 14,
    WEFT_ONNX_OPSET_FIRST = 1,
    WEFT_ONNX_OPSET_LAST = 28
};

/* -- Wire format: onnx_wire.c ----------------------------------------------------------------- */

/* Field numbers of TensorProto that hold elements. */
typedef enum weft_onnx_field {
    WEFT_ONNX_NO_DATA = 0,
    WEFT_ONNX_FLOAT_DATA = 4,
    WEFT_ONNX_INT32_DATA = 5,
    WEFT_ONNX_STRING_DATA = 6,
    WEFT_ONNX_INT64_DATA = 7,
    WEFT_ONNX_RAW_DATA = 9,
    WEFT_ONNX_DOUBLE_DATA = 10,
    WEFT_ONNX_UINT64_DATA = 11
} weft_onnx_field;

/* The elements of one TensorProto, encoded as that field packs them. */
typedef struct weft_onnx_payload {
    weft_onnx_field field;
    const uint8_t *at; /* in the file, unless the writer scattered them */
    uint64_t len;
    uint64_t room; /* bytes allocated at `at` when it is a copy, else 0 */
} weft_onnx_payload;

typedef struct weft_onnx_slim {
    const uint8_t *at; /* a ModelProto or TensorProto; TensorProto.segment.begin numbers payloads */
    size_t len;
    const weft_onnx_payload *payload;
    uint32_t n_payload;
} weft_onnx_slim;

typedef enum weft_onnx_root { WEFT_ONNX_ROOT_MODEL, WEFT_ONNX_ROOT_TENSOR } weft_onnx_root;

/* `out` lives in `arena` and points into `bytes`. */
WEFT_MUST_USE weft_err weft_onnx__slim(const uint8_t *bytes, size_t len, weft_onnx_root root,
                                       weft_arena *arena, weft_diag *diag, const char *file,
                                       weft_onnx_slim *out);
/* Reads `n` varints that must fill `len` bytes exactly; false otherwise. */
bool weft_onnx__varints(const uint8_t *at, uint64_t len, uint64_t n, uint64_t *out);

/* -- One import ------------------------------------------------------------------------------- */

typedef struct weft_onnx_external {
    const char *location;
    weft_file file;
    uint32_t file_id;
} weft_onnx_external;

/* Domains of operators: the rows of onnx_domains.def. */
typedef enum weft_onnx_domain {
#define DOMAIN(id, name, last, file) WEFT_ONNX_##id,
#include "frontend/onnx_domains.def"
#undef DOMAIN
    WEFT_ONNX_DOMAINS
} weft_onnx_domain;

/* The version of each domain's operators that a model or a function imports; 0: not imported. */
typedef struct weft_onnx_opsets {
    int64_t of[WEFT_ONNX_DOMAINS];
} weft_onnx_opsets;

/* A dim of inputs that is a name in the file, or of one axis that has none of its own. */
typedef struct weft_onnx_symbol {
    const char *param; /* as in the file; NULL: none */
    const char *axis;  /* "input_axis" of the only axis; NULL: of all axes with that name */
    weft_dim dim;
} weft_onnx_symbol;

typedef struct weft_onnx_fn {
    const Onnx__FunctionProto *proto;
    weft_onnx_opsets opsets; /* in its body */
    bool open;               /* being inlined: a call is a cycle */
} weft_onnx_fn;

struct weft_onnx_scope;

/* Sequences of tensors have handles of their own, numbers of cx->sequences, which no function of
 * ir.h may see. */
#define WEFT_ONNX_SEQUENCE (1u << 31)
enum { WEFT_ONNX_SEQUENCE_MAX = 4096 }; /* elements that are known one by one */

typedef enum weft_onnx_list {
    WEFT_ONNX_LIST,   /* the elements at[n] */
    WEFT_ONNX_SLICES, /* slices of `whole` along `axis`, `chunk` long (the last one may be shorter);
                         without that axis if `squeeze`, and `chunk` is 1 then */
    WEFT_ONNX_JOINED, /* elements of any sizes, joined along `axis` in `whole` */
    WEFT_ONNX_APPENDED, /* in a loop's body: the list that it carries, of which only what the body
                           appends is known, at[n] */
} weft_onnx_list;

typedef struct weft_onnx_sequence {
    weft_onnx_list kind;
    weft_val *at;
    uint32_t n;
    weft_val whole;
    uint32_t axis;
    int64_t chunk;
    bool squeeze;
    uint32_t carried; /* APPENDED: number of the input of the body */
    const void *nest; /* and the body */
} weft_onnx_sequence;

static inline bool weft_onnx__is_sequence(weft_val v)
{
    return v.i & WEFT_ONNX_SEQUENCE;
}

typedef struct weft_onnx_ctx {
    weft_module *m;
    weft_graph *g;
    weft_arena *arena; /* freed after the import */
    weft_diag *diag;
    const char *file;
    const char *dir;  /* of external data; NULL: none */
    uint32_t file_id; /* 0: the module does not know the file yet */
    bool is_file;     /* mapped, to be owned by the module */
    const uint8_t *bytes;
    size_t len;
    const weft_import_options *options;
    weft_onnx_slim slim;
    weft_onnx_opsets opsets;
    weft_contents *contents;
    weft_map *known; /* onnx_known.c: value to its entry */
    WEFT_VEC(weft_tensor) known_at;
    uint32_t n_known_nodes;
    WEFT_VEC(weft_onnx_external) external;
    WEFT_VEC(weft_onnx_symbol) symbols;
    uint32_t n_earlier; /* symbols that the graph has of the models before */
    bool apart;         /* an axis with the name of an earlier axis of the same input is its own */
    bool related;       /* the model relates axes that `apart` separates */
    bool is_probe;      /* an import that is thrown away (onnx_probe.c) */
    bool rank_differs;  /* an output has another rank than the file declares */
    bool has_batch;     /* a symbol was taken for the batch */
    weft_onnx_fn *fn;
    uint32_t n_fn;
    weft_names *fn_names;                   /* id i: fn[i - 1] */
    uint32_t n_nodes, n_bodies, n_unrolled; /* n_unrolled: of rounds of loops */
    uint64_t sparse_bytes;                  /* of sparse tensors so far */
    WEFT_VEC(weft_onnx_sequence) sequences;
    weft_map *loose;     /* values of rank 0 or 1, as data decides (onnx_loose.c) */
    weft_names *refused; /* operators already reported */
    /* Imports the initialisers and nodes of a graph in an attribute. A pointer, because the hooks
     * that call it are below the functions that import nodes. */
    weft_err (*nested)(struct weft_onnx_ctx *cx, struct weft_onnx_scope *scope,
                       const Onnx__GraphProto *graph);
    weft_err failed; /* the first error; the import goes on to find more */
} weft_onnx_ctx;

/* An allocator for protobuf-c: memory from an arena, freed with the arena. */
void weft_onnx__allocator(weft_arena *arena, ProtobufCAllocator *out);

/* -- Tensors: onnx_tensor.c ------------------------------------------------------------------- */

typedef struct weft_onnx_data {
    weft_dtype dtype;
    int32_t rank;
    int64_t dim[WEFT_RANK_MAX];
    const uint8_t *at; /* maybe misaligned */
    uint64_t bytes;
    bool is_loose;    /* elements of fewer than 8 bits that take a byte each in the file already */
    uint32_t file_id; /* 0: decoded into the arena */
    uint64_t offset;
} weft_onnx_data;

/* ONNX data types; NONE and a name for messages when not supported. */
weft_dtype weft_onnx__dtype(int64_t onnx_type, const char **out_name);
/* Decoded elements live in `arena`. `cx` gives payloads and external data. */
WEFT_MUST_USE weft_err weft_onnx__tensor(weft_onnx_ctx *cx, const Onnx__TensorProto *t,
                                         weft_arena *arena, weft_where where, weft_onnx_data *out);
/* A weight of the module from a tensor. */
WEFT_MUST_USE weft_err weft_onnx__weight(weft_onnx_ctx *cx, const Onnx__TensorProto *t,
                                         const char *name, weft_where where, weft_val *out);

/* The same from a sparse tensor: onnx_sparse.c. */
WEFT_MUST_USE weft_err weft_onnx__sparse(weft_onnx_ctx *cx, const Onnx__SparseTensorProto *sparse,
                                         const char *name, weft_where where, weft_val *out);

/* -- Symbolic dims of inputs: onnx_symbol.c --------------------------------------------------- */

WEFT_MUST_USE weft_err weft_onnx__dim(weft_onnx_ctx *cx, const Onnx__TensorShapeProto *shape,
                                      size_t axis, const char *input, weft_where where,
                                      weft_dim *out);
/* INPUT: the options bound a symbolic dimension that the model does not have. */
WEFT_MUST_USE weft_err weft_onnx__check_dims(weft_onnx_ctx *cx);
/* The axis of an input that a model before has or gives, with dim `earlier`: false if the two
 * differ. An axis that is symbolic here has that dim, whatever its name. */
bool weft_onnx__share_dim(weft_onnx_ctx *cx, const Onnx__TensorShapeProto *shape, size_t axis,
                          const char *input, weft_dim earlier);
/* Whether a symbol is taken for the batch by its name, and whether an input has such a symbol. */
bool weft_onnx__is_batch(const char *name);
bool weft_onnx__names_batch(const Onnx__GraphProto *graph);
/* Whether an input has one name on several axes. */
bool weft_onnx__repeats_names(const Onnx__GraphProto *graph);
/* Whether a requirement of the graph relates two axes that have one name in the file. */
bool weft_onnx__relates_names(const weft_onnx_ctx *cx);

/* -- Imports that are tried: onnx_probe.c ------------------------------------------------------ */

/* Imports the bytes of a context. */
typedef weft_err weft_onnx_run(weft_onnx_ctx *cx);
/* Sets what the file leaves open: `apart`, and options with batches of 1 that a Squeeze without
 * axes removes. Nothing in a probe. */
void weft_onnx__probe(weft_onnx_ctx *cx, const Onnx__ModelProto *model, weft_onnx_run *run);

/* -- Graph: onnx_graph.c ---------------------------------------------------------------------- */

WEFT_MUST_USE weft_err weft_onnx__graph(weft_onnx_ctx *cx, const Onnx__GraphProto *graph);

/* -- Nodes: onnx_node.c ----------------------------------------------------------------------- */

typedef enum weft_onnx_bind {
    WEFT_ONNX_UNBOUND,
    WEFT_ONNX_BOUND,
    WEFT_ONNX_OUTER,   /* defined in an enclosing graph; weft_onnx__read binds it */
    WEFT_ONNX_OMITTED, /* a function's optional input that the caller leaves out */
    WEFT_ONNX_STRINGS, /* a tensor of strings, which is not computed (onnx_strings.c) */
    WEFT_ONNX_BROKEN   /* its node was refused: errors that follow from it are not reported */
} weft_onnx_bind;

typedef struct weft_onnx_name {
    weft_val val;
    weft_onnx_bind bind;
    uint32_t producer; /* node index + 1, while sorting */
} weft_onnx_name;

/* A graph of the module that is being filled: its captured values, by value of the graph around
 * it. */
typedef struct weft_onnx_nest {
    struct weft_onnx_nest *around; /* NULL: the model's graph is around it */
    weft_graph *g;
    weft_val round;  /* of a loop's body: the number of the round */
    bool no_rounds;  /* of a Scan's body, which does not know it */
    weft_map *inner; /* captured value to input */
    WEFT_VEC(weft_val) captured;
} weft_onnx_nest;

/* The names of one graph or of one call of a function. */
typedef struct weft_onnx_scope {
    struct weft_onnx_scope *parent; /* of the enclosing graph; NULL: none is visible */
    weft_onnx_nest *nest;           /* the body that the nodes go to; NULL: the model's graph */
    weft_names *names;
    WEFT_VEC(weft_onnx_name) name; /* by id in `names` */
    weft_onnx_opsets opsets;
    Onnx__NodeProto *const *node; /* of the graph or function, once they are read */
    size_t n_node;
    const char *prefix; /* of node names, "" at the top */
    uint32_t depth;
    const Onnx__FunctionProto *fn;              /* NULL at the top */
    const Onnx__AttributeProto *const *binding; /* the call's attributes */
    uint32_t n_binding;
} weft_onnx_scope;

/* Stores the first error and returns OK, so that the import continues; returns NOMEM at once. */
WEFT_MUST_USE weft_err weft_onnx__note_failure(weft_onnx_ctx *cx, weft_err err);
void weft_onnx__scope_init(weft_onnx_ctx *cx, weft_onnx_scope *scope);
/* The entry of a name, made if absent. */
weft_onnx_name *weft_onnx__scope_name(weft_onnx_ctx *cx, weft_onnx_scope *scope, const char *name);
/* The same for a name that is read: bound to the value of an enclosing graph if it is one of it. */
const weft_onnx_name *weft_onnx__read(weft_onnx_ctx *cx, weft_onnx_scope *scope, const char *name);
/* Whether the name is defined in the scope or in an enclosing one, which the entry then says. */
bool weft_onnx__is_defined(weft_onnx_ctx *cx, weft_onnx_scope *scope, const char *name);
/* A value or sequence of the graph around a body, in the body. */
weft_val weft_onnx__capture(weft_onnx_ctx *cx, weft_onnx_nest *nest, weft_val v);
/* The names that a node reads: its operands, and what graphs in its attributes read of the
 * enclosing graphs. */
typedef struct weft_onnx_reads {
    char *const *name;
    size_t n;
} weft_onnx_reads;
weft_onnx_reads weft_onnx__reads(weft_onnx_ctx *cx, const Onnx__NodeProto *node);
WEFT_MUST_USE weft_err weft_onnx__body(weft_onnx_ctx *cx, weft_onnx_scope *scope,
                                       Onnx__NodeProto *const *node, size_t n);
/* Model-local functions by name, checked for duplicates. */
WEFT_MUST_USE weft_err weft_onnx__functions(weft_onnx_ctx *cx, const Onnx__ModelProto *model);
/* Reads the imports of a model or of the function `owner`. */
WEFT_MUST_USE weft_err weft_onnx__opsets(weft_onnx_ctx *cx, Onnx__OperatorSetIdProto *const *import,
                                         size_t n, const char *owner, weft_onnx_opsets *out);

/* -- One element of rank 0 or 1: onnx_loose.c ------------------------------------------------- */

/* Branches of an If, or rounds of a loop, may give one element of rank 0 in one case and of rank 1
 * in the other. The value is of rank 1 here and marked; where its rank could be seen, the node is
 * refused. */
struct weft_onnx_call;
bool weft_onnx__is_loose(const weft_onnx_ctx *cx, weft_val v);
void weft_onnx__set_loose(weft_onnx_ctx *cx, weft_val v);
/* One element, of rank 0 or 1 with known dims. */
bool weft_onnx__is_single(const weft_onnx_ctx *cx, weft_val v);
/* The value with rank 1, marked. */
WEFT_MUST_USE weft_err weft_onnx__make_loose(struct weft_onnx_call *c, weft_val *v);
/* OK if the node does not show the rank of a loose operand; *out: its results are loose too. */
WEFT_MUST_USE weft_err weft_onnx__check_loose(struct weft_onnx_call *c, bool *out);

/* -- Strings: onnx_strings.c ------------------------------------------------------------------ */

/* Tensors of strings are not computed. A node that only moves them gives such a tensor again; any
 * other node that reads one is refused, and an output that is one is left out with a warning. */

/* What a hook puts in place of a result of strings. */
static inline weft_val weft_onnx__string_result(void)
{
    return (weft_val){UINT32_MAX};
}
/* OK if the node, which reads a tensor of strings, only moves it. */
WEFT_MUST_USE weft_err weft_onnx__move_strings(weft_onnx_ctx *cx, const Onnx__NodeProto *node,
                                               weft_where where);

/* -- One node: rows and hooks ----------------------------------------------------------------- */

enum { WEFT_ONNX_ATTR_MAX = WEFT_OP_ATTR_MAX + 4 };

struct weft_onnx_row;

typedef struct weft_onnx_call {
    weft_onnx_ctx *cx;
    weft_onnx_scope *scope;
    const struct weft_onnx_row *row;
    const char *op_type; /* for messages: with "domain:" unless that is the default one */
    int64_t opset;       /* version of the operator's domain */
    weft_where where;
    weft_loc loc;
    weft_val *in; /* without trailing omitted ones */
    uint32_t n_in;
    weft_val *out;                            /* to be set by the hook, n_out */
    uint32_t n_out;                           /* up to the last named result */
    uint32_t n_listed;                        /* all results of the node */
    const bool *wanted;                       /* result has a name */
    char *const *out_name;                    /* n_listed, "" if not wanted */
    const Onnx__AttributeProto *const *proto; /* references to a function's attributes resolved */
    uint32_t n_proto;
    uint64_t taken;                     /* bit i: proto[i] was read by the hook */
    weft_attr attr[WEFT_ONNX_ATTR_MAX]; /* made by the hook or from protos */
    uint32_t n_attr;
} weft_onnx_call;

typedef weft_err (*weft_onnx_hook)(weft_onnx_call *c);

typedef struct weft_onnx_row {
    const char *name;
    int first, last; /* versions of the domain; last 0: the newest supported */
    weft_op_id op;   /* NONE: the hook makes other operators */
    weft_onnx_hook hook;
} weft_onnx_row;

/* The domain with that name; WEFT_ONNX_DOMAINS if unknown. */
weft_onnx_domain weft_onnx__domain(const char *name);
/* The newest version that is supported. */
int weft_onnx__newest(weft_onnx_domain domain);
/* Why an operator of the default domain has no row, if that is on purpose; NULL otherwise. */
const char *weft_onnx__why_refused(const char *op_type);

/* -- Versions of operators: onnx_versions.c --------------------------------------------------- */

/* The version of a default operator that `opset` means; 0 if the operator is not ONNX's (exporters
 * write some of their own into the default domain) or is newer than `opset`. */
int weft_onnx__since(const char *op_type, int64_t opset);
/* Whether that version has been compared with our operator; true if it is not ONNX's. */
bool weft_onnx__is_read(const char *op_type, int64_t opset);

/* Searches by name. NULL if no version has the operator; a row with another range of versions if
 * only the version does not match. */
const weft_onnx_row *weft_onnx__row(weft_onnx_domain domain, const char *op_type, int64_t version);

#define ONNX(name, first, last, op, hook) weft_err weft_onnx_hook_##hook(weft_onnx_call *c);
#include "frontend/onnx_ops.def"
#include "frontend/onnx_ops_ml.def"
#include "frontend/onnx_ops_ms.def"
#include "frontend/onnx_ops_training.def"
#undef ONNX

/* -- Sequences: onnx_sequence.c --------------------------------------------------------------- */

weft_val weft_onnx__sequence(weft_onnx_ctx *cx, const weft_val *at, uint32_t n);
weft_val weft_onnx__sequence_add(weft_onnx_ctx *cx, const weft_onnx_sequence *s);
weft_onnx_sequence weft_onnx__sequence_get(const weft_onnx_ctx *cx, weft_val v);
/* UNSUP: the operator takes no sequences, but an operand is one. */
WEFT_MUST_USE weft_err weft_onnx__check_sequences(const weft_onnx_call *c);

/* -- Attributes: onnx_attr.c ------------------------------------------------------------------ */

typedef enum weft_onnx_attr_type {
    WEFT_ONNX_ATTR_NONE = 0,
    WEFT_ONNX_ATTR_FLOAT = 1,
    WEFT_ONNX_ATTR_INT = 2,
    WEFT_ONNX_ATTR_STRING = 3,
    WEFT_ONNX_ATTR_TENSOR = 4,
    WEFT_ONNX_ATTR_GRAPH = 5,
    WEFT_ONNX_ATTR_FLOATS = 6,
    WEFT_ONNX_ATTR_INTS = 7,
    WEFT_ONNX_ATTR_STRINGS = 8
} weft_onnx_attr_type;

/* The type field; in files before IR version 3, which lack it, derived from the fields present. */
int weft_onnx__attr_type(const Onnx__AttributeProto *a);
/* Attribute of the node by name, marked as read; NULL when absent. */
const Onnx__AttributeProto *weft_onnx__attr(weft_onnx_call *c, const char *name);
/* Marks an attribute as read; its value is ignored. */
void weft_onnx__ignore(weft_onnx_call *c, const char *name);
/* Typed reads: `otherwise` if absent; INPUT if the attribute has another type. */
WEFT_MUST_USE weft_err weft_onnx__get_int(weft_onnx_call *c, const char *name, int64_t otherwise,
                                          int64_t *out);
WEFT_MUST_USE weft_err weft_onnx__get_float(weft_onnx_call *c, const char *name, double otherwise,
                                            double *out);
WEFT_MUST_USE weft_err weft_onnx__get_str(weft_onnx_call *c, const char *name,
                                          const char *otherwise, const char **out);
/* Lists: NULL and 0 when absent. */
WEFT_MUST_USE weft_err weft_onnx__get_floats(weft_onnx_call *c, const char *name, const float **out,
                                             uint32_t *out_n);
WEFT_MUST_USE weft_err weft_onnx__get_ints(weft_onnx_call *c, const char *name, const int64_t **out,
                                           uint32_t *out_n);
WEFT_MUST_USE weft_err weft_onnx__get_strs(weft_onnx_call *c, const char *name,
                                           const char *const **out, uint32_t *out_n);
/* Number of strings of an attribute, which may hold any bytes. */
WEFT_MUST_USE weft_err weft_onnx__count_strings(weft_onnx_call *c, const char *name,
                                                uint32_t *out_n);
/* A tensor in the import's arena; rank -1 when absent. */
WEFT_MUST_USE weft_err weft_onnx__get_tensor(weft_onnx_call *c, const char *name, weft_tensor *out);
/* UNSUP unless all attributes were read. */
WEFT_MUST_USE weft_err weft_onnx__no_more_attrs(weft_onnx_call *c);
/* Adds or replaces an attribute of the node being made. */
void weft_onnx__put(weft_onnx_call *c, weft_attr attr);
void weft_onnx__put_dims(weft_onnx_call *c, weft_attr_key key, const weft_dim *dim, uint32_t n);
/* All attributes not read yet, by the schema of `op`; unknown ones are UNSUP. */
WEFT_MUST_USE weft_err weft_onnx__map_attrs(weft_onnx_call *c, weft_op_id op);

/* -- Known values: onnx_known.c --------------------------------------------------------------- */

/* The value of a tensor of one element, if it depends on no input: computed from constants, and
 * from sizes that are known. */
bool weft_onnx__known(weft_onnx_ctx *cx, weft_val v, double *out);

/* -- Making nodes: onnx_emit.c ---------------------------------------------------------------- */

/* Appends a node with the attributes given and infers its types; results into out[n_out]. */
WEFT_MUST_USE weft_err weft_onnx__emit(weft_onnx_call *c, weft_op_id op, const weft_val *in,
                                       uint32_t n_in, const weft_attr *attr, uint32_t n_attr,
                                       weft_val *out, uint32_t n_out);
/* The node itself: op of the row, operands, c->attr, results of c. */
WEFT_MUST_USE weft_err weft_onnx__finish(weft_onnx_call *c);
/* One operand, one result, one attribute of dims. */
WEFT_MUST_USE weft_err weft_onnx__emit_dims(weft_onnx_call *c, weft_op_id op, weft_val in,
                                            weft_attr_key key, const weft_dim *dim, uint32_t n,
                                            weft_val *out);
/* Constants of the module. */
weft_val weft_onnx__const(weft_onnx_call *c, weft_dtype dtype, const int64_t *dim, int32_t rank,
                          const void *elements);
const weft_ttype *weft_onnx__type(const weft_onnx_call *c, weft_val v);
/* Message of the node, prefixed with its operator. */
weft_err weft_onnx__fail(const weft_onnx_call *c, weft_err err, const char *fmt, ...)
    WEFT_PRINTF(3, 4);

#endif
