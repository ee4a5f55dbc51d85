/* The IR: several models in one module, one graph a model, through three stages.
 *
 *   graph   operators on tensors with symbolic dimensions
 *   kernel  what a driver launches: fused operators, layouts chosen, views explicit
 *   plan    the same nodes with memory planned for each batch bucket
 *
 * Strict SSA: a value is a graph input, a weight, or the result of one node; nodes stand in
 * topological order. Handles are indices in one-field structs: {0} means none. Every stage prints
 * as text and reads back (README.md has the grammar). A module is single-thread; different modules
 * are independent.
 *
 * Memory: everything lives in the module's arena; when it is exhausted, functions unwind to
 * weft_module_guard's recovery point (see base/arena.h). */
#ifndef WEFT_IR_IR_H
#define WEFT_IR_IR_H

#include "base/file.h"
#include "base/hash.h"
#include "ops/flow.h"
#include "ops/place.h"

typedef struct weft_val {
    uint32_t i;
} weft_val;
typedef struct weft_node {
    uint32_t i;
} weft_node;
typedef struct weft_type {
    uint32_t i;
} weft_type;
typedef struct weft_weight {
    uint32_t i;
} weft_weight;

typedef struct weft_module weft_module;
typedef struct weft_graph weft_graph;

typedef enum weft_stage { WEFT_STAGE_GRAPH, WEFT_STAGE_KERNEL, WEFT_STAGE_PLAN } weft_stage;

const char *weft_stage_name(weft_stage stage); /* "graph", "kernel", "plan" */

/* -- Modules -------------------------------------------------------------------------------- */

/* Owned; NULL when out of memory. `limit_bytes` bounds the arena, 0: none. */
weft_module *weft_module_create(size_t limit_bytes);
void weft_module_destroy(weft_module *m);
/* Sets the recovery point for exhaustion of the module's arena; NULL removes it. */
void weft_module_guard(weft_module *m, jmp_buf *env);
weft_arena *weft_module_arena(weft_module *m);
weft_dimpool *weft_module_dims(weft_module *m);
weft_stage weft_module_stage(const weft_module *m);
void weft_module_set_stage(weft_module *m, weft_stage stage);
/* The module unmaps the file when it is destroyed. `path` is copied; returns the file's id >= 1,
 * used as origin of weights and locations. */
uint32_t weft_module_own_file(weft_module *m, const char *path, weft_file file);
/* Releases the memory of the mapped files; later accesses read them from the files again. */
void weft_module_drop_files(const weft_module *m);
/* Registers a file that is not mapped, for locations. */
uint32_t weft_module_name_file(weft_module *m, const char *path);
const char *weft_module_file_path(const weft_module *m, uint32_t file_id); /* NULL: no such id */
/* Whether the module owns a mapping of the file. */
bool weft_module_file_is_mapped(const weft_module *m, uint32_t file_id);

/* -- Types ---------------------------------------------------------------------------------- */

weft_type weft_type_intern(weft_module *m, const weft_ttype *type);
/* PLAIN layout. */
weft_type weft_type_make(weft_module *m, weft_dtype dtype, const weft_dim *dim, uint32_t rank);
/* Borrowed until the module is destroyed. */
const weft_ttype *weft_type_get(const weft_module *m, weft_type type);

/* -- Weights -------------------------------------------------------------------------------- */

typedef struct weft_weight_info {
    weft_type type;      /* constant dims, PLAIN */
    const char *name;    /* name of the initialiser, or generated */
    const uint8_t *data; /* may be unaligned when mapped */
    uint64_t bytes;
    uint32_t file_id; /* where the bytes are mapped from, 0: made by the compiler */
    uint64_t offset;  /* in that file */
    uint32_t group;   /* merge group, 0: none */
} weft_weight_info;

/* `data` is borrowed: mapped file or the module's arena. `bytes` must be what the type needs. */
weft_weight weft_weight_add(weft_module *m, const weft_weight_info *info);
/* Adds a weight with a copy of `data`; unless it is small, an earlier weight that this function
 * made with the same type and content is returned, so equal weights that passes compute for sibling
 * models are stored once. */
weft_weight weft_weight_add_copy(weft_module *m, const weft_weight_info *info);
const weft_weight_info *weft_weight_get(const weft_module *m, weft_weight w);
uint32_t weft_weight_count(const weft_module *m); /* weights are 1 .. count */
/* Hash of type and bytes; computed once. Releases the bytes of a mapped file from memory. */
weft_hash128 weft_weight_hash(weft_module *m, weft_weight w);
/* Whether type and bytes are equal. Weights with equal hashes are compared byte by byte, because
 * hash collisions can be constructed. */
bool weft_weight_equal(weft_module *m, weft_weight a, weft_weight b);
/* The weight's value, shared by all graphs. */
weft_val weft_weight_val(weft_module *m, weft_weight w);
weft_tensor weft_weight_tensor(const weft_module *m, weft_weight w);

/* -- Graphs --------------------------------------------------------------------------------- */

/* Name unique in the module (the caller checks with weft_graph_find). */
weft_graph *weft_graph_create(weft_module *m, const char *name);
uint32_t weft_graph_count(const weft_module *m);
weft_graph *weft_graph_at(const weft_module *m, uint32_t i); /* 0 .. count - 1 */
weft_graph *weft_graph_find(const weft_module *m, const char *name);
uint32_t weft_graph_index(const weft_graph *g); /* weft_graph_at of it is g */
const char *weft_graph_name(const weft_graph *g);
weft_module *weft_graph_module(const weft_graph *g);

/* Symbolic dims of a graph. The symbol is called `name` in the pool unless another graph has that
 * one, else "<graph>.<name>". */
weft_dim weft_graph_symbol(weft_graph *g, const char *name, int64_t lo, int64_t hi);
uint32_t weft_graph_symbol_count(const weft_graph *g);
const char *weft_graph_symbol_name(const weft_graph *g, uint32_t i);
weft_dim weft_graph_symbol_dim(const weft_graph *g, uint32_t i);

/* Symbol `name` of a graph that shares the dim of another graph's symbol. */
void weft_graph_share_symbol(weft_graph *g, const char *name, weft_dim dim);

/* Sizes that the operators of a graph need to agree, and that nothing proves: they are compared
 * once the sizes of the inputs are known, before anything runs. */
typedef struct weft_graph_require {
    weft_require_kind kind;
    weft_dim a, b;
    weft_dim guard;   /* where it is 0 the requirement does not hold: a part without requests */
    const char *item; /* the node, or NULL */
    const char *what; /* "Reshape: number of elements" */
} weft_graph_require;

/* Of a graph, and of one that an importer makes. */
enum { WEFT_GRAPH_REQUIRES_MAX = 65536, WEFT_MODEL_REQUIRES_MAX = 4096 };

/* Names are copied; a requirement that the graph has is not added again. false: there are
 * WEFT_GRAPH_REQUIRES_MAX. */
bool weft_graph_add_require(weft_graph *g, const weft_graph_require *require);
uint32_t weft_graph_require_count(const weft_graph *g);
const weft_graph_require *weft_graph_require_at(const weft_graph *g, uint32_t i);
/* The first requirement that does not hold for these values of the pool's symbols (below 0: not
 * known), or NULL. */
const weft_graph_require *weft_graph_find_broken(const weft_graph *g, const weft_dimpool *dims,
                                                 const int64_t *value, uint32_t n);

/* A joint graph runs several models at once: its inputs and outputs are those of its parts, one
 * model after the other, and it has their symbols. Any part may be empty: its batch is 0. */
typedef struct weft_part {
    const char *model; /* graph of the module */
    uint32_t n_in, n_out;
} weft_part;

/* A packed graph is a joint graph that runs requests of different lengths: its inputs and outputs
 * hold the rows of all their sequences one after the other, or one row for each sequence. Behind
 * the inputs of its part it has two of its own: the position of each row in its sequence, and the
 * row at which each sequence starts (passes/pack_sequences.c). With several parts, whose inputs are
 * alike, it has the inputs of one part, which hold the rows of all, and a third of its own: the
 * part of each row (passes/pack_family.c). */
enum { WEFT_PACKED_SEQUENCES = 32 };
void weft_graph_set_packed(weft_graph *g);
bool weft_graph_is_packed(const weft_graph *g);

void weft_graph_add_part(weft_graph *g, const weft_part *part);
uint32_t weft_graph_part_count(const weft_graph *g); /* 0: the graph of one model */
const weft_part *weft_graph_part(const weft_graph *g, uint32_t i);
/* The total number of input elements up to which the joint graph is faster than its models run
 * separately. 0: always. */
void weft_graph_set_limit(weft_graph *g, uint64_t elements);
uint64_t weft_graph_limit(const weft_graph *g);

/* Index of the symbol along which requests may be batched: dim 0 of every input and output, and no
 * operator mixes along it (conservative analysis, batch_symbol.c). UINT32_MAX: none. */
uint32_t weft_graph_batch_symbol(const weft_graph *g);

/* How values depend on one symbol, along one axis of each (batch_symbol.c). */
typedef enum weft_spread_kind {
    WEFT_SPREAD_NONE, /* not at all */
    WEFT_SPREAD_AXIS, /* index i of the axis depends on index i of the operands' axes alone */
    WEFT_SPREAD_MIXED
} weft_spread_kind;

typedef struct weft_spread {
    uint8_t kind; /* weft_spread_kind */
    uint8_t axis;
    bool constant;         /* along the axis, so that any outer and inner fit */
    weft_dim outer, inner; /* dim[axis] == outer * symbol * inner */
} weft_spread;

typedef struct weft_spreads weft_spreads;
/* Lives in `arena`. All values are NONE until they are set or visited. */
weft_spreads *weft_spreads_create(const weft_graph *g, weft_dim symbol, weft_arena *arena);
void weft_spreads_set(weft_spreads *s, weft_val v, const weft_spread *spread);
weft_spread weft_spreads_get(const weft_spreads *s, weft_val v);
/* Sets the results of a node from its operands. */
void weft_spreads_visit(weft_spreads *s, weft_node n);
/* Whether the dim is an expression of the symbol. */
bool weft_spreads_mention(weft_spreads *s, weft_dim d);

weft_val weft_graph_add_input(weft_graph *g, const char *name, weft_type type);
void weft_graph_add_output(weft_graph *g, const char *name, weft_val val);
uint32_t weft_graph_input_count(const weft_graph *g);
uint32_t weft_graph_output_count(const weft_graph *g);
weft_val weft_graph_input(const weft_graph *g, uint32_t i);
weft_val weft_graph_output(const weft_graph *g, uint32_t i);
const char *weft_graph_input_name(const weft_graph *g, uint32_t i);
const char *weft_graph_output_name(const weft_graph *g, uint32_t i);
void weft_graph_set_output(weft_graph *g, uint32_t i, weft_val val);
void weft_graph_drop_outputs(weft_graph *g); /* all of them */

/* -- Nodes ---------------------------------------------------------------------------------- */

typedef struct weft_loc {
    uint32_t file_id; /* 0: unknown */
    const char *item; /* ONNX node name, or NULL */
    uint32_t line;
} weft_loc;

/* Description of a new node; arrays and attribute payloads are copied. */
typedef struct weft_node_spec {
    weft_op_id op;
    const weft_val *in; /* entries may be none for omitted operands */
    uint32_t n_in;
    const weft_type *out;
    uint32_t n_out;
    const weft_attr *attr; /* any order, keys unique */
    uint32_t n_attr;
    weft_loc loc;
} weft_node_spec;

weft_node weft_node_append(weft_graph *g, const weft_node_spec *spec);
weft_node weft_node_insert_before(weft_graph *g, weft_node before, const weft_node_spec *spec);
/* Results must be unused. */
void weft_node_remove(weft_graph *g, weft_node n);
/* Moves a node; the caller keeps the topological order. */
void weft_node_move_before(weft_graph *g, weft_node n, weft_node before);

weft_node weft_graph_first(const weft_graph *g);
weft_node weft_graph_last(const weft_graph *g);
weft_node weft_node_next(const weft_module *m, weft_node n);
weft_node weft_node_prev(const weft_module *m, weft_node n);
uint32_t weft_graph_node_count(const weft_graph *g);
/* `n` may be removed inside the loop body. */
#define WEFT_FOREACH_NODE(m, g, n)                                                            \
    for (weft_node n = weft_graph_first(g), next_##n = n.i ? weft_node_next((m), n) : n; n.i; \
         n = next_##n, next_##n = n.i ? weft_node_next((m), n) : n)

weft_op_id weft_node_op(const weft_module *m, weft_node n);
const weft_op *weft_node_opdef(const weft_module *m, weft_node n);
uint32_t weft_node_in_count(const weft_module *m, weft_node n);
uint32_t weft_node_out_count(const weft_module *m, weft_node n);
weft_val weft_node_in(const weft_module *m, weft_node n, uint32_t i); /* none behind the last */
weft_val weft_node_out(const weft_module *m, weft_node n, uint32_t i);
void weft_node_set_in(weft_module *m, weft_node n, uint32_t i, weft_val val);
/* Appends an operand, filling with none up to index i. */
void weft_node_grow_in(weft_module *m, weft_node n, uint32_t i, weft_val val);
void weft_node_trim_in(weft_module *m, weft_node n); /* drops trailing none operands */
weft_attrs weft_node_attrs(const weft_module *m, weft_node n);
void weft_node_set_attr(weft_module *m, weft_node n, const weft_attr *attr); /* adds or replaces */
void weft_node_drop_attr(weft_module *m, weft_node n, weft_attr_key key);
weft_loc weft_node_loc(const weft_module *m, weft_node n);
/* For messages: file and item of the node. */
weft_where weft_node_where(const weft_module *m, weft_node n);

/* Attributes as compound literals: WEFT_ATTR_OF_INT(AXIS, 1). */
#define WEFT_ATTR_OF_INT(k, x) \
    ((weft_attr){.key = WEFT_ATTR_##k, .kind = WEFT_KIND_INT, .u = {.i = (x)}})
#define WEFT_ATTR_OF_FLOAT(k, x) \
    ((weft_attr){.key = WEFT_ATTR_##k, .kind = WEFT_KIND_FLOAT, .u = {.f = (x)}})
#define WEFT_ATTR_OF_STR(k, x) \
    ((weft_attr){.key = WEFT_ATTR_##k, .kind = WEFT_KIND_STR, .u = {.s = (x)}})
#define WEFT_ATTR_OF_DTYPE(k, x) \
    ((weft_attr){.key = WEFT_ATTR_##k, .kind = WEFT_KIND_DTYPE, .u = {.dtype = (x)}})
#define WEFT_ATTR_OF_INTS(k, x, count) \
    ((weft_attr){.key = WEFT_ATTR_##k, .kind = WEFT_KIND_INTS, .n = (count), .u = {.ints = (x)}})
#define WEFT_ATTR_OF_DIMS(k, x, count) \
    ((weft_attr){.key = WEFT_ATTR_##k, .kind = WEFT_KIND_DIMS, .n = (count), .u = {.dims = (x)}})
#define WEFT_ATTR_OF_STRS(k, x, count) \
    ((weft_attr){.key = WEFT_ATTR_##k, .kind = WEFT_KIND_STRS, .n = (count), .u = {.strs = (x)}})

/* -- Values --------------------------------------------------------------------------------- */

typedef enum weft_val_kind { WEFT_VAL_NODE, WEFT_VAL_INPUT, WEFT_VAL_WEIGHT } weft_val_kind;

weft_val_kind weft_val_get_kind(const weft_module *m, weft_val v);
weft_type weft_val_type(const weft_module *m, weft_val v);
const weft_ttype *weft_val_ttype(const weft_module *m, weft_val v);
void weft_val_set_type(weft_module *m, weft_val v, weft_type type);
weft_node weft_val_node(const weft_module *m, weft_val v);     /* none unless kind NODE */
uint32_t weft_val_index(const weft_module *m, weft_val v);     /* which result, or which input */
weft_weight weft_val_weight(const weft_module *m, weft_val v); /* none unless kind WEIGHT */
uint32_t weft_val_count(const weft_module *m);                 /* values are 1 .. count */

/* Number of uses as operand of nodes; graph outputs are not counted. */
typedef struct weft_use {
    weft_node node;
    uint32_t idx;
} weft_use;

uint32_t weft_val_use_count(const weft_module *m, weft_val v);
/* The i-th use, in an unspecified but deterministic order; O(i). */
weft_use weft_val_use(const weft_module *m, weft_val v, uint32_t i);
/* The use after `u` of the same value, whose node is none behind the last; O(1). */
weft_use weft_use_next(const weft_module *m, weft_use u);
#define WEFT_FOREACH_USE(m, v, u) \
    for (weft_use u = weft_val_use((m), (v), 0); u.node.i; u = weft_use_next((m), u))
bool weft_val_is_output(const weft_graph *g, weft_val v);
/* Replaces operands of nodes and outputs of g. Uses of a weight in other graphs are replaced too.
 */
void weft_val_replace(weft_graph *g, weft_val old, weft_val with);

/* -- Bodies: graphs that nodes run (ops/flow.h) ------------------------------------------------ */

/* A graph that is no model: it is run by one node of an earlier graph, whose attribute names it.
 * Its name is `base`, or that with a number. */
weft_graph *weft_body_create(weft_module *m, const char *base);
bool weft_graph_is_body(const weft_graph *g);
/* Whether the graph is a model: neither a body nor a joint graph. */
bool weft_graph_is_model(const weft_graph *g);
uint32_t weft_graph_model_count(const weft_module *m);
/* INPUT: two nodes have the same body. Graphs and bodies are then trees. */
WEFT_MUST_USE weft_err weft_body_check(weft_module *m, weft_diag *diag);
/* Removes the graphs from the n_graph-th on. */
void weft_body_drop(weft_module *m, uint32_t n_graph);
/* Removes the bodies that no node runs. */
void weft_body_collect(weft_module *m);
/* Replaces node n of g, an `if`, by the nodes of its body b, whose outputs have the types of the
 * results. The bodies are to be collected. */
void weft_body_inline(weft_graph *g, weft_node n, uint32_t b);
uint32_t weft_node_body_count(const weft_module *m, weft_node n);
/* NULL: no body behind the node's graph has that name. */
weft_graph *weft_node_body(const weft_module *m, weft_node n, uint32_t i);
/* false: a body is missing, or its ports do not fit the node. */
bool weft_node_flow(const weft_module *m, weft_node n, weft_flow_layout *out);

/* -- Plan stage ----------------------------------------------------------------------------- */

/* Memory of one value in the arena of a bucket. `first` and `last` number nodes from 0 in order. */
typedef struct weft_buffer {
    weft_val val;
    uint64_t offset, bytes;
    uint32_t first, last;
} weft_buffer;

/* The memory plan of a graph for given values of its symbols. Values without a buffer: inputs,
 * weights, values that share memory with another one (views, operands of a concatenation), and
 * values with a dynamic shape. */
typedef struct weft_bucket {
    const int64_t *symbol; /* value of each symbol of the graph */
    uint32_t n_symbol;
    uint64_t arena_bytes;
    const weft_buffer *buffer; /* by val */
    uint32_t n_buffer;
} weft_bucket;

/* Copied. */
void weft_graph_add_bucket(weft_graph *g, const weft_bucket *bucket);
void weft_graph_clear_buckets(weft_graph *g);
uint32_t weft_graph_bucket_count(const weft_graph *g);
const weft_bucket *weft_graph_bucket(const weft_graph *g, uint32_t i);

/* A graph in the structures of ops/place.h. Values are numbered from 1. */
typedef struct weft_places {
    weft_place_value *value;
    weft_val *val;          /* by number */
    const uint32_t *number; /* by val.i; 0: not of this graph */
    uint32_t n;
    weft_place_launch *launch; /* nodes in order */
    uint32_t n_launch;
    const uint32_t *output;
    uint32_t n_output;
} weft_places;

/* Lives in `arena`. */
void weft_graph_place_start(weft_graph *g, weft_arena *arena, weft_places *out);
/* Places the values, with these values of the pool's symbols (-1: not known). false: a dim has no
 * value. May be called again with other values. */
bool weft_graph_place(weft_graph *g, const weft_dimpool *dims, const int64_t *symbol,
                      uint32_t n_symbol, weft_places *places);

/* -- Text, checks, evaluation ------------------------------------------------------------------ */

/* Canonical text: print(parse(print(m))) == print(m). */
void weft_module_print(weft_module *m, weft_buf *out);
/* Owned module. Weights in files are looked up beneath `dir` (NULL: refused). Hostile input: INPUT
 * with file:line. */
WEFT_MUST_USE weft_err weft_module_parse(const char *text, size_t len, const char *file,
                                         const char *dir, weft_diag *diag, weft_module **out);
/* Checks every rule of the module's stage; one error for each violation, naming the rule. */
WEFT_MUST_USE weft_err weft_module_verify(weft_module *m, weft_diag *diag);

/* Runs a graph with the reference implementations; the oracle of tests. Inputs are in graph order;
 * their dims determine the symbols. Outputs live in `arena`. Layouts are ignored. */
WEFT_MUST_USE weft_err weft_graph_eval(weft_graph *g, const weft_tensor *in, uint32_t n_in,
                                       weft_arena *arena, weft_diag *diag, weft_tensor *out,
                                       uint32_t n_out);
/* The same with f32 factors (weft_op_is_factor) rounded to TF32 and sums in f32. */
WEFT_MUST_USE weft_err weft_graph_eval_tf32(weft_graph *g, const weft_tensor *in, uint32_t n_in,
                                            weft_arena *arena, weft_diag *diag, weft_tensor *out,
                                            uint32_t n_out);
/* Evaluates one node whose operands are all weights; results in the module's arena. */
WEFT_MUST_USE weft_err weft_node_eval(weft_graph *g, weft_node n, weft_diag *diag, weft_tensor *out,
                                      uint32_t n_out);
/* Types of a node's results from its operands; contents: known contents of values by value
 * index (entries NULL when unknown), updated; may be NULL. */
typedef struct weft_contents weft_contents;
weft_contents *weft_contents_create(weft_module *m, weft_arena *arena);
/* Content of an integer value: of a weight, or found by inference. NULL when unknown. */
const weft_dim *weft_contents_get(weft_contents *c, weft_val v, uint32_t *out_n);
/* `dim` is borrowed. */
void weft_contents_set(weft_contents *c, weft_val v, const weft_dim *dim, uint32_t n);
/* Gives the inputs of a node's bodies the types and contents of its operands, and the bodies the
 * symbols of `g`. Before the types of the bodies are inferred. */
void weft_body_sync(weft_graph *g, weft_node n, weft_contents *contents);
/* The type of an input of `body` that captures `v`. captured: the values around it that its last n
 * inputs are. */
weft_type weft_body_capture_type(weft_graph *body, const weft_val *captured, uint32_t n,
                                 weft_val v);
/* The same for a content; false: the body cannot know it. */
bool weft_body_capture_content(weft_graph *body, const weft_val *captured, uint32_t n,
                               const weft_dim *content, uint32_t n_content, weft_dim *out);
WEFT_MUST_USE weft_err weft_node_infer(weft_graph *g, weft_node n, weft_contents *contents,
                                       weft_diag *diag, weft_ttype *out, uint32_t n_out);
/* The same for a node that an importer made: what inference assumes of sizes becomes requirements
 * of the graph. `op` is the operator's name in messages. */
WEFT_MUST_USE weft_err weft_node_infer_new(weft_graph *g, weft_node n, weft_contents *contents,
                                           const char *op, weft_diag *diag, weft_ttype *out,
                                           uint32_t n_out);

#endif
